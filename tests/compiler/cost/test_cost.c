/* The cost model: kernels and collectives against published figures, measured curves, unit costs, and the closed form
 * against the emitted plan: simulated step and placed arena. */

#include "compiler/cost/cost_private.h"
#include "compiler/fit.h"
#include "compiler/model/sema.h"
#include "compiler/search/search.h"
#include "compiler/support/vec.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/random_sizes.h"
#include "tests/draws.h"

#include <CUnit/Basic.h>
#include <string.h>

#define HOST(gpu, bandwidth, extra)                                                                          \
    "<cluster version=\"1\"><node-type id=\"n\" gpus=\"8\"><gpu model=\"" gpu "\"/>"                         \
    "<scale-up kind=\"nvswitch\" bandwidth=\"" bandwidth "\"/><nic count=\"8\" bandwidth=\"400Gb/s\"/></node-type>" \
    "<nodes type=\"n\" count=\"4\"/><fabric medium=\"infiniband\"><tier name=\"core\" span=\"all\"/></fabric>" extra "</cluster>"

static const char model[] = "llmc 1\nmodel m {\n vocab 32000\n width 2048\n norm rmsnorm\n embed tokens\n"
                            " repeat 8 { layer { attn gqa(heads=16, kv=8, rope=10_000)\n ffn swiglu(8192) } }\n"
                            " head untied\n}\ntrain {\n sequence 2048\n batch 64 sequences\n precision bf16\n}\n";

static struct topo *text_topo(struct arena *a, const char *text)
{
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){"c.xml", text, strlen(text), false};
    struct topo *t = topo_parse(a, diag_new(a), s, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static struct cost *make(struct arena *a, const char *cluster, struct decision *d)
{
    struct job *job = text_job(a, model);
    struct topo *topo = text_topo(a, cluster);
    const char *why = "";
    decision_place(a, topo, d, &why);
    decision_cut(a, d, job->model.nlayers, NULL, 0, 0);
    bool good = decision_legal(a, job, topo, d, &why);
    CU_ASSERT_FATAL(good);
    return cost_new(a, job, topo, d);
}

static struct decision basic(uint32_t tp, uint32_t pp, uint32_t dp)
{
    struct decision d = decision_single();
    d.tp = tp;
    d.pp = pp;
    d.dp = dp;
    d.microbatches = 64 / dp;
    return d;
}

static double busbw(const struct cost *c, enum op op, double bytes, uint32_t mask, double n)
{
    double factor = op == OP_ALL_REDUCE ? 2 * (n - 1) / n : (n - 1) / n;
    return factor * bytes / cost_collective_s(c, op, bytes, mask) / 1e9;
}

static void test_collectives(void)
{
    struct arena *a = arena_new();
    struct decision d = basic(8, 1, 4);
    uint32_t tp = AXIS_BIT(AXIS_TP), dp = AXIS_BIT(AXIS_DP);
    double gib = 1024.0 * 1024 * 1024;
    struct cost *h = make(a, HOST("H100-SXM", "450GB/s", ""), &d), *g = make(a, HOST("A100-SXM", "300GB/s", ""), &d);
    CU_ASSERT_DOUBLE_EQUAL(busbw(h, OP_ALL_GATHER, gib, tp, 8), 361, 15); /* 8 x H200: 361 */
    CU_ASSERT_DOUBLE_EQUAL(busbw(g, OP_ALL_REDUCE, gib, tp, 8), 235, 15); /* 8 x A100: 229-235 */
    CU_ASSERT(busbw(h, OP_ALL_REDUCE, 1 << 20, tp, 8) < 70);              /* 8 x H200: 40, 8 x H100: 66 at 1 MiB */
    CU_ASSERT_DOUBLE_EQUAL(busbw(h, OP_ALL_REDUCE, gib, dp, 4), 45, 3);   /* one GPU per node on its own 50 GB/s NIC */
    /* a group over 4 full nodes uses all NICs of each */
    double world = busbw(h, OP_ALL_REDUCE, gib, AXES_WORLD, 32);
    CU_ASSERT(world > 150 && world < 400);
    CU_ASSERT_EQUAL(cost_collective_s(h, OP_ALL_REDUCE, 1e6, AXIS_BIT(AXIS_PP)), 0); /* one member */
    CU_ASSERT(cost_collective_s(h, OP_REDUCE_SCATTER, gib, tp) < cost_collective_s(h, OP_ALL_REDUCE, gib, tp));
    arena_free(a);
}

static void test_measured(void)
{
    struct arena *a = arena_new();
    struct decision d = basic(8, 1, 4);
    const char *with = HOST("H100-SXM", "450GB/s",
                            "<measured date=\"2026-01-01\"><collective op=\"all_reduce\" ranks=\"8\" per-node=\"8\">"
                            "<point size=\"1MiB\" time=\"50us\"/><point size=\"4MiB\" time=\"70us\"/></collective>"
                            "<gemm dtype=\"bf16\"><point m=\"4096\" n=\"4096\" k=\"4096\" rate=\"500TFLOP/s\"/></gemm></measured>");
    struct cost *c = make(a, with, &d);
    uint32_t tp = AXIS_BIT(AXIS_TP);
    CU_ASSERT_DOUBLE_EQUAL(cost_collective_s(c, OP_ALL_REDUCE, 1 << 20, tp), 50e-6, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(cost_collective_s(c, OP_ALL_REDUCE, 2 << 20, tp), 60e-6, 1e-9); /* halfway in log(size) */
    CU_ASSERT_DOUBLE_EQUAL(cost_collective_s(c, OP_ALL_REDUCE, 8 << 20, tp), 140e-6, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(cost_collective_s(c, OP_ALL_REDUCE, 1024, tp), 50e-6, 1e-9);
    double rate = 2.0 * 4096 * 4096 * 4096 / cost_matmul_s(c, PRODUCT_FORWARD, 4096, 4096, 4096, DTYPE_BF16);
    CU_ASSERT_DOUBLE_EQUAL(rate, 500e12, 1e9);
    arena_free(a);
}

/* a curve is that of its own operation, and of no other */
static void test_measured_operations(void)
{
    static const struct {
        const char *name;
        enum op op;
    } operations[] = {{"all_reduce", OP_ALL_REDUCE}, {"all_gather", OP_ALL_GATHER},
                      {"reduce_scatter", OP_REDUCE_SCATTER}, {"all_to_all", OP_ALL_TO_ALL},
                      {"broadcast", OP_BROADCAST}, {"send_recv", OP_SEND}};
    const double mib = 1 << 20;
    for (size_t i = 0; i < ARRAY_LEN(operations); i++) {
        struct arena *a = arena_new();
        struct decision d = basic(2, 2, 2); /* two stages in a node */
        const char *cluster = HOST("H100-SXM", "450GB/s",
                                   "<measured date=\"2026-01-01\"><collective op=\"%s\" ranks=\"2\">"
                                   "<point size=\"1MiB\" time=\"7ms\"/></collective></measured>");
        struct cost *c = make(a, arena_printf(a, cluster, operations[i].name), &d);
        for (size_t k = 0; k < ARRAY_LEN(operations); k++) {
            enum op op = operations[k].op;
            double s = op == OP_SEND ? cost_transfer_s(c, mib)
                                     : cost_collective_s(c, op, mib, AXIS_BIT(AXIS_TP));
            CU_ASSERT(i == k ? s == 7e-3 : s < 1e-3);
        }
        arena_free(a);
    }
}

/* each of several measured products has its own rate; what is near it is as much slower or faster as the formula has it */
static void test_measured_products(void)
{
    struct arena *a = arena_new();
    struct decision d = basic(8, 1, 4);
    const char *points = "";
    enum { POINTS = 8 };
    for (uint32_t i = 0; i < POINTS; i++)
        points = arena_printf(a, "%s<point m=\"%u\" n=\"4096\" k=\"%u\" rate=\"%uTFLOP/s\"/>", points, 256u << i, 8192u >> i / 2,
                              100 + 10 * i);
    struct cost *c = make(a, arena_printf(a, HOST("H100-SXM", "450GB/s", "<measured date=\"2026-01-01\"><gemm dtype=\"bf16\">%s</gemm>"
                                                                         "</measured>"), points), &d);
    const struct cost *formula = make(a, HOST("H100-SXM", "450GB/s", ""), &d);
    for (uint32_t i = 0; i < POINTS; i++)
        for (uint32_t more = 0; more < 3; more++) {
            uint64_t point = 256u << i, m = point + 32 * more, k = 8192u >> i / 2;
            double seconds = cost_matmul_s(c, PRODUCT_FORWARD, m, 4096, k, DTYPE_BF16), launch = formula->device.launch_s;
            double slower = (cost_matmul_s(formula, PRODUCT_FORWARD, m, 4096, k, DTYPE_BF16) - launch) /
                            (cost_matmul_s(formula, PRODUCT_FORWARD, point, 4096, k, DTYPE_BF16) - launch);
            double rate = 2.0 * (double)point * 4096 * (double)k / (seconds / slower);
            CU_ASSERT_DOUBLE_EQUAL(rate, (100 + 10 * i) * 1e12, more ? 2e12 : 1e9);
        }
    arena_free(a);
}

static void test_unit(void)
{
    struct arena *a = arena_new();
    struct plan *p = random_plan(a, 11, 8);
    struct cost *c = cost_new(a, p->job, p->topo, &p->decision);
    for (uint32_t r = 0; r < p->nroles; r++)
        for (uint32_t i = 0; i < p->train[r]->ninsns; i++) {
            c->unit.on = false;
            CU_ASSERT(cost_insn_ns(c, p->train[r], i, false) >= 1);
            c->unit = (struct cost_unit){true, 10, 20, 3};
            const struct insn *x = &p->train[r]->insns[i];
            int64_t ns = cost_insn_ns(c, p->train[r], i, true), rest = cost_insn_ns(c, p->train[r], i, false);
            bool transfer = x->op == OP_SEND || x->op == OP_RECV, compute = x->queue == QUEUE_COMPUTE;
            CU_ASSERT_EQUAL(rest, transfer ? 3 : 0);
            CU_ASSERT_EQUAL(ns, transfer ? 3 : compute && x->action == 'F' ? 10 : compute && x->action == 'B' ? 20 : 0);
        }
    plan_close(p);
    arena_free(a);
}

/* shipped jobs: what the closed form may miss of the placed arena and of the simulated step */
static const struct {
    const char *model, *cluster, *sets[5];
    uint32_t nsets;
} emitted[] = {
    {"gpt2-124m", "h100x8", {"tp=2", "pp=2"}, 2},
    {"gpt2-124m", "h100x8", {"microbatch=4", "recompute=full"}, 2},
    {"llama3-8b", "h100x8", {"batch=64 sequences"}, 1},
    {"llama3-8b", "h100x8", {"batch=64 sequences", "recompute=full", "zero=1"}, 3},
    {"tiny-llama", "cpu8", {"gpus=8"}, 1},
    {"gpt3-175b", "a100-1024", {"tp=8", "pp=16", "microbatch=1"}, 3},
};

static void test_emitted(void)
{
    for (size_t i = 0; i < sizeof emitted / sizeof *emitted; i++) {
        struct arena *a = arena_new();
        struct diag *diag = diag_new(a);
        struct job *job = job_read(a, diag, arena_printf(a, "plans/%s/model.llm", emitted[i].model), emitted[i].sets,
                                   emitted[i].nsets);
        struct topo *topo = topo_read(a, diag, arena_printf(a, "topologies/%s.xml", emitted[i].cluster));
        CU_ASSERT_PTR_NOT_NULL_FATAL(job);
        CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
        struct search_result *r = search(a, diag, job, topo, 1, 0, true);
        CU_ASSERT_EQUAL_FATAL(r->ncandidates, 1);
        const struct estimate *e = &r->candidates[0].estimate;
        const char *why = "";
        struct plan *p = compile_decision(a, job, topo, &r->candidates[0].decision, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        uint64_t live = 0; /* placing may leave holes */
        for (uint32_t k = 0; k < p->nroles; k++)
            live = p->timeline->roles[k].peak_live_bytes > live ? p->timeline->roles[k].peak_live_bytes : live;
        double memory = (double)e->peak_bytes / (double)fit_peak_bytes(p), of_live = (double)e->peak_bytes / (double)live;
        double time = e->step_time_s / ((double)p->timeline->step_ns * 1e-9);
        CU_ASSERT(of_live > 0.95 && memory < 1.10); /* rings are counted in one piece, which the arena need not have */
        CU_ASSERT(time > 0.90 && time < 1.10);
        if (of_live <= 0.95 || memory >= 1.10 || time <= 0.90 || time >= 1.10)
            printf("[%s %s: memory %.3f time %.3f] ", emitted[i].model, emitted[i].sets[0], memory, time);
        CU_ASSERT_DOUBLE_EQUAL(e->compute_s + e->tp_comm_s + e->pp_comm_s + e->dp_comm_s + e->bubble_s + e->optimizer_s,
                               e->step_time_s, 1e-9);
        CU_ASSERT_EQUAL(e->parameter_bytes + e->gradient_bytes + e->optimizer_bytes + e->activation_bytes + e->buffer_bytes,
                        e->peak_bytes);
        plan_close(p);
        arena_free(a);
    }
}

/* by a profile that joins them, memory-bound instructions cost what they do beside their neighbours on a GPU */
static void test_joined(void)
{
    static const struct {
        enum op op;
        double least, most; /* of the time by itself */
    } shares[] = {{OP_ADD, 1, 1},         {OP_GELU, 0.4, 0.6},   {OP_GELU_I, 0.3, 0.45},     {OP_XENT_SUM, 0, 0.05}, {OP_XENT_I, 0.45, 0.55},
                  {OP_BIAS_W, 0, 0.3}, {OP_EMBED_W, 1, 1},    {OP_LAYERNORM_I, 1, 1},     {OP_LAYERNORM, 0.4, 0.7}, {OP_ADAMW, 1, 1}};
    static const char *const sets[] = {"gpus=1", "microbatch=16"};
    struct arena *a = arena_new();
    struct diag *diag = diag_new(a);
    struct topo *bare = text_topo(a, HOST("H100-SXM", "450GB/s", ""));
    struct job *job = job_read(a, diag, "plans/gpt2-124m/model.llm", sets, 2);
    struct search_result *r = search(a, diag, job, bare, 1, 0, true);
    CU_ASSERT_EQUAL_FATAL(r->ncandidates, 1);
    const char *why = "";
    struct plan *p = compile_decision(a, job, bare, &r->candidates[0].decision, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    struct profile apart = *job->wishes.profile;
    struct job unjoined = *job;
    CU_ASSERT_EQUAL(apart.joins, 1);
    apart.joins = 0;
    unjoined.wishes.profile = &apart;
    struct cost *alone = cost_new(a, &unjoined, bare, &p->decision), *beside = cost_new(a, job, bare, &p->decision);
    for (size_t k = 0; k < sizeof shares / sizeof *shares; k++) {
        int64_t ns[2] = {0, 0};
        for (uint32_t i = 0; i < p->train[0]->ninsns; i++)
            if (p->train[0]->insns[i].op == shares[k].op) {
                ns[0] += cost_insn_ns(alone, p->train[0], i, false);
                ns[1] += cost_insn_ns(beside, p->train[0], i, false);
            }
        double share = (double)ns[1] / (double)ns[0];
        CU_ASSERT(ns[0] > 0 && share >= shares[k].least && share <= shares[k].most);
        if (share < shares[k].least || share > shares[k].most)
            printf("[%s: %.3f] ", isa_info(shares[k].op)->name, share);
    }
    plan_close(p);
    arena_free(a);
}

/* Kernels of a GPU that take far longer than the formulas have it: the closed form and the programs both say so. */
static void test_measured_kernels(void)
{
    static const char *const ops[] = {"RMSNORM", "RMSNORM_I", "RMSNORM_W", "SWIGLU", "SWIGLU_I", "ADD", "ROPE", "XENT_MAX", "XENT_I", "SQNORM", "ADAMW"};
    static const char *const sets[][2] = {{"batch=64 sequences", "tp=8"}, {"gpus=16", "zero=3"}, {"gpus=16", "pp=2"}};
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        struct arena *a = arena_new();
        struct diag *diag = diag_new(a);
        const char *kernels = "", *why = "";
        for (size_t k = 0; k < ARRAY_LEN(ops); k++)
            kernels = arena_printf(a, "%s<kernel op=\"%s\" dtype=\"bf16\"><point size=\"1MB\" time=\"5us\"/><point size=\"100MB\" time=\"500us\"/></kernel>",
                                   kernels, ops[k]);
        struct topo *topo = text_topo(a, arena_printf(a, HOST("H100-SXM", "450GB/s", "<measured date=\"2026-01-01\">%s</measured>"), kernels));
        struct topo *bare = text_topo(a, HOST("H100-SXM", "450GB/s", ""));
        struct job *job = job_read(a, diag, "plans/llama3-8b/model.llm", sets[i], 2);
        struct search_result *r = search(a, diag, job, topo, 1, 0, true);
        CU_ASSERT_EQUAL_FATAL(r->ncandidates, 1);
        struct plan *p = compile_decision(a, job, topo, &r->candidates[0].decision, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        struct estimate fast;
        cost_estimate(a, cost_new(a, job, bare, &p->decision), &fast);
        double simulated = (double)p->timeline->step_ns * 1e-9, closed = r->candidates[0].estimate.step_time_s;
        CU_ASSERT(simulated > 1.2 * fast.step_time_s);
        CU_ASSERT_DOUBLE_EQUAL(closed / simulated, 1, 0.05);
        if (fabs(closed / simulated - 1) > 0.05 || simulated <= 1.2 * fast.step_time_s)
            printf("[%s %s: %g simulated, %g in closed form, %g by formulas] ", sets[i][0], sets[i][1], simulated, closed, fast.step_time_s);
        plan_close(p);
        arena_free(a);
    }
}

/* Parameters are gathered as many uses ahead as one gather takes a third of a layer's time, at most four. */
static void test_prefetch(void)
{
    static const struct {
        const char *nic;
        uint32_t ahead;
    } cases[] = {{"400Gb/s", 1}, {"25Gb/s", 3}, {"5Gb/s", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct diag *diag = diag_new(a);
        struct job *job = job_read(a, diag, "plans/llama3-8b/model.llm", NULL, 0);
        char *text = arena_printf(a, "<cluster version=\"1\"><node-type id=\"n\" gpus=\"1\"><gpu model=\"H100-SXM\"/><nic "
                                  "count=\"1\" bandwidth=\"%s\"/></node-type><nodes type=\"n\" count=\"64\"/><fabric "
                                  "medium=\"infiniband\"><tier name=\"leaf\" span=\"all\"/></fabric></cluster>", cases[i].nic);
        struct source *s = ARENA_NEW(a, struct source);
        *s = (struct source){"c.xml", text, strlen(text), false};
        struct topo *topo = topo_parse(a, diag, s, NULL);
        CU_ASSERT_FATAL(job && topo);
        struct decision d = text_decision(a, job, topo, "dp=64 zero=3 shard=64 microbatch=8");
        uint32_t ahead = cost_prefetch(a, cost_new(a, job, topo, &d));
        if (ahead != cases[i].ahead)
            printf("\n    %s: %u", cases[i].nic, ahead);
        CU_ASSERT_EQUAL(ahead, cases[i].ahead);
        d.zero = 1;
        CU_ASSERT_EQUAL(cost_prefetch(a, cost_new(a, job, topo, &d)), 0);
        arena_free(a);
    }
}

static bool same_times(const struct cost_block *x, const struct cost_block *y)
{
    const double pairs[][2] = {{x->forward_s, y->forward_s},         {x->forward_comm_s, y->forward_comm_s},
                               {x->backward_s, y->backward_s},       {x->backward_comm_s, y->backward_comm_s},
                               {x->input_s, y->input_s},             {x->input_comm_s, y->input_comm_s},
                               {x->weight_s, y->weight_s},           {x->weight_comm_s, y->weight_comm_s},
                               {x->again_s, y->again_s},             {x->kept_s, y->kept_s},
                               {x->apart_forward_s, y->apart_forward_s}, {x->apart_backward_s, y->apart_backward_s},
                               {x->apart_input_s, y->apart_input_s}, {x->forward_hidden_s, y->forward_hidden_s},
                               {x->backward_hidden_s, y->backward_hidden_s}, {x->keep_bytes, y->keep_bytes}};
    bool same = true;
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++)
        same &= pairs[i][0] <= pairs[i][1] && pairs[i][1] <= pairs[i][0];
    return same;
}

/* a drawn decision's blocks, made from those without recomputation and by themselves; returns how many differ */
static uint32_t varied(struct arena *a, const struct sized_draw *x, enum recompute kind, uint32_t parts)
{
    struct decision d = x->decision, none = x->decision;
    d.recompute = kind;
    d.parts = parts;
    none.recompute = RECOMPUTE_NONE;
    none.parts = 0;
    const struct cost *c = cost_new(a, x->job, x->topo, &d), *bare = cost_new(a, x->job, x->topo, &none);
    struct cost_kinds kinds = cost_kinds_new(a, &x->job->model);
    struct cost_shape from, own, by_itself;
    uint32_t unlike = 0;
    cost_shape_init(a, bare, &kinds, &from);
    cost_shape_init(a, c, &kinds, &by_itself);
    cost_shape_vary(a, c, &kinds, &from, NULL, &own);
    for (uint32_t i = 0; i < own.ndistinct; i++)
        unlike += !same_times(&own.layers[i], &by_itself.layers[i]);
    return unlike + (x->job->model.predict && !same_times(&own.predict, &by_itself.predict));
}

static void test_varied(void)
{
    uint32_t all = test_draws(600, 40), compared = 0, unlike = 0;
    for (uint64_t seed = 1; seed <= all; seed++) {
        struct arena *a = arena_new();
        struct sized_draw x;
        if (sized_draw(a, seed, &x)) {
            compared++;
            unlike += varied(a, &x, RECOMPUTE_FULL, 0) + varied(a, &x, RECOMPUTE_SELECTIVE, PART_NORM | PART_MOE) +
                      varied(a, &x, RECOMPUTE_SELECTIVE, PART_CORE_ATTN);
        }
        arena_free(a);
    }
    CU_ASSERT(compared > all / 4);
    CU_ASSERT_EQUAL(unlike, 0);
}

void suite_cost(void);
void suite_cost(void)
{
    CU_pSuite s = CU_add_suite("cost", NULL, NULL);
    CU_add_test(s, "collectives against published bandwidths", test_collectives);
    CU_add_test(s, "measured curves win", test_measured);
    CU_add_test(s, "measured operations", test_measured_operations);
    CU_add_test(s, "measured products", test_measured_products);
    CU_add_test(s, "unit costs", test_unit);
    CU_add_test(s, "uses ahead", test_prefetch);
    CU_add_test(s, "instructions beside their neighbours", test_joined);
    CU_add_test(s, "kernels that were measured", test_measured_kernels);
    CU_add_test(s, "recomputation leaves F and W as they are", test_varied);
    CU_add_test(s, "closed form against arena and simulation", test_emitted);
}
