/* Every parameter of a profile changes what its meaning says, by as much as it says.
 *
 * A case is a job on a cluster with a decision, and one parameter at two values; all others have the values of a stack
 * without effects, but for those that the case sets.  Where the change of an item of the estimate, or of a price, follows
 * from other prices, it is computed from them here; `least` and `most` say within which multiples of that it must lie.
 * The loop over all parameters fails for one without a case. */

#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "compiler/search/search.h"
#include "compiler/support/vec.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

/* ---- what is looked at ---- */

struct seen {
    struct arena *arena;
    struct job *job;
    struct topo *topo;
    struct decision *decision;
    struct profile profile;
    const struct cost *cost;
    struct estimate e;
};

static void look(struct seen *s)
{
    s->job->wishes.profile = &s->profile;
    s->cost = cost_new(s->arena, s->job, s->topo, s->decision);
    cost_estimate(s->arena, s->cost, &s->e);
}

/* the same with another value of one parameter */
static const struct seen *with(const struct seen *s, const char *name, double value)
{
    struct seen *t = ARENA_NEW(s->arena, struct seen);
    *t = *s;
    t->job = ARENA_NEW(s->arena, struct job);
    *t->job = *s->job;
    *PROFILE_PARAM(&t->profile, profile_param(name)) = value;
    look(t);
    return t;
}

#define LAYERS 8
#define WIDTH 2048.0
#define FFN 8192.0
#define SEQUENCE 2048.0
#define VOCAB 32000.0
#define HEADS 16.0
#define KV 8.0
#define HEAD 128.0
#define EXPERTS 16
#define EXPERT_FFN 1024

static const char job_text[] =
    "llmc 1\nmodel m {\n vocab 32000\n width 2048\n norm rmsnorm\n embed tokens\n repeat 8 { layer { attn gqa(heads=16, kv=8, "
    "rope=10_000)\n %s } }\n head untied\n}\ntrain {\n sequence 2048\n batch 64 sequences\n precision %s\n}\nplan {\n %s\n}\n";
static const char nodes_of_8[] =
    "<cluster version=\"1\"><node-type id=\"n\" gpus=\"8\"><gpu model=\"%s\"/><scale-up kind=\"nvswitch\" "
    "bandwidth=\"450GB/s\"/><nic count=\"%u\" bandwidth=\"400Gb/s\"/></node-type><nodes type=\"n\" count=\"4\"/>"
    "<fabric medium=\"infiniband\"><tier name=\"core\" span=\"all\"/></fabric></cluster>";

/* elements of a layer's matrices, and of all parameters */
static double layer_elements(void)
{
    return WIDTH * HEAD * (2 * HEADS + 2 * KV) + 3 * WIDTH * FFN;
}
static double elements(void)
{
    return 2 * VOCAB * WIDTH + LAYERS * (layer_elements() + 2 * WIDTH) + WIDTH;
}
static double microbatches(const struct seen *s)
{
    return s->decision->microbatches;
}
static double tokens(const struct seen *s)
{
    return SEQUENCE * s->decision->microbatch;
}
static double matmul(const struct seen *s, enum product p, double m, double n, double k)
{
    return cost_matmul_s(s->cost, p, (uint64_t)m, (uint64_t)n, (uint64_t)k, DTYPE_BF16);
}
static double attention(const struct seen *s, bool backward)
{
    struct cost_attention t = {.tokens = tokens(s) / s->decision->cp, .context = SEQUENCE, .heads = HEADS, .kv = KV, .qk = HEAD, .v = HEAD};
    return cost_attention_s(s->cost, &t, DTYPE_BF16, backward);
}
static double over_tp(const struct seen *s, enum op op, double bytes)
{
    return cost_collective_s(s->cost, op, bytes, AXIS_BIT(AXIS_TP));
}

/* ---- items ---- */

static double item_product(const struct seen *s)
{
    return matmul(s, PRODUCT_FORWARD, 8192, 8192, 8192);
}
static double item_attention(const struct seen *s)
{
    return attention(s, false) + attention(s, true);
}
static double item_stream(const struct seen *s)
{
    return cost_stream_s(s->cost, 1e9);
}
static double item_quantize(const struct seen *s)
{
    return cost_quantize_s(s->cost, 1e9);
}
static double item_compute(const struct seen *s)
{
    return s->e.compute_s;
}
static double item_tp(const struct seen *s)
{
    return s->e.tp_comm_s;
}
static double item_pp(const struct seen *s)
{
    return s->e.pp_comm_s;
}
static double item_dp(const struct seen *s)
{
    return s->e.dp_comm_s;
}
static double item_bubble(const struct seen *s)
{
    return s->e.bubble_s;
}
static double item_optimizer(const struct seen *s)
{
    return s->e.optimizer_s;
}
static double item_ring(const struct seen *s)
{
    return cost_collective_s(s->cost, OP_ALL_REDUCE, 1e9, AXIS_BIT(AXIS_DP));
}
static double item_activations(const struct seen *s)
{
    return (double)s->e.activation_bytes;
}
static double item_buffers(const struct seen *s)
{
    return (double)s->e.buffer_bytes;
}
static double item_allocator(const struct seen *s)
{
    return (double)s->e.allocator_bytes;
}
static double item_context(const struct seen *s)
{
    return (double)s->e.context_bytes;
}
static double item_communicators(const struct seen *s)
{
    return (double)s->e.communicator_bytes;
}
static double item_parameters(const struct seen *s)
{
    return (double)s->e.parameter_bytes;
}

/* ---- by how much an item must change; b: as the case has it, from its first value of the parameter ---- */

static double by_itself(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)to;
    return item; /* speed halved, share doubled */
}
static double minus_half(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)to;
    return -item / 2;
}
static double by_bytes(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return (to - from) * 1e9 / b->cost->device.bytes_s;
}
static double by_four_bytes(const struct seen *b, double from, double to, double item)
{
    return 4 * by_bytes(b, from, to, item);
}

/* scores of 16 bits, written once and read once in each direction */
static double by_scores(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return 2 * 2 * 2 * HEADS * tokens(b) * SEQUENCE / b->cost->device.bytes_s;
}
static double by_loss(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return microbatches(b) * (to - from) * 2 * tokens(b) * VOCAB / b->cost->device.bytes_s;
}
static double by_added_gradients(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return microbatches(b) * (2 + 2 * 4) * elements() / b->cost->device.bytes_s;
}
static double by_last_product(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return microbatches(b) * LAYERS * matmul(b, PRODUCT_FORWARD, tokens(b), WIDTH, FFN);
}

/* kernels of a layer: forward 2 norms, 4 products, rope, attention, activation, 2 sums; backward twice for norms and
 * products, 3 of attention, one of rope and activation; of embedding and head 1 + 2, and 2 products, a norm and 6 of the loss */
#define LAYER_KERNELS (2 + 4 + 1 + 1 + 1 + 2 + 4 + 8 + 3 + 1 + 1)
#define OTHER_KERNELS (1 + 2 + 1 + 2 + 1 + 2 + 6 + 2)
static double by_host(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return microbatches(b) * (to - from) * 1e-6 * (LAYERS * LAYER_KERNELS + OTHER_KERNELS);
}
/* kernels and host add instead of the root of the sum of their squares */
static double by_blocking(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to;
    double kernels = with(b, "host_op_us", 0)->e.compute_s, host = by_host(b, 0, b->profile.host_op_us, 0);
    return kernels + host - item;
}
static double by_layer_us(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return microbatches(b) * LAYERS * 2 * 1e-6 * (to - from);
}
static double by_ms(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)item;
    return 1e-3 * (to - from);
}
static double by_four_nodes(const struct seen *b, double from, double to, double item)
{
    (void)b;
    return (to - from) * log2(4) * item;
}

/* beside a column-parallel product's weight gradient goes the reduction of its input's gradient, beside its input gradient the
 * gather of its input where activations are split */
static double hidden_beside(const struct seen *b, double n)
{
    double bytes = 2 * tokens(b) * WIDTH, tp = b->decision->tp, hidden = 0;
    if (b->decision->sp)
        hidden += fmin(over_tp(b, OP_ALL_GATHER, bytes), matmul(b, PRODUCT_INPUT, tokens(b), WIDTH, n / tp));
    return hidden + fmin(over_tp(b, b->decision->sp ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, bytes),
                         matmul(b, PRODUCT_WEIGHT, n / tp, WIDTH, tokens(b)));
}
static double by_hidden(const struct seen *b, double from, double to, double item)
{
    (void)item;
    double layer = hidden_beside(b, HEAD * (HEADS + 2 * KV)) + hidden_beside(b, 2 * FFN);
    return (from - to) * microbatches(b) * (LAYERS * layer + hidden_beside(b, VOCAB));
}
static double by_ring_attention(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return microbatches(b) * LAYERS * (1 / to - 1 / from) * (attention(b, false) + attention(b, true));
}
static double by_dispatch(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    double bytes = 2 * tokens(b) * b->cost->job->train.imbalance * WIDTH;
    double once = cost_dispatch_s(b->cost, bytes, 2, 1, 1, &b->cost->ep, true),
           each = cost_dispatch_s(b->cost, bytes, 2, 1, 1, &b->cost->ep, false);
    return microbatches(b) * LAYERS * 2 * 2 * (once - each);
}
/* a sender computes nothing while it sends: the last stage, which has the head and is the slowest, sends a gradient back for
 * each microbatch, and nothing follows the last one */
static double by_sends(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return (to - from) * (microbatches(b) - 1) * cost_transfer_s(b->cost, 2 * tokens(b) * WIDTH);
}
/* a rank no longer waits for the others' last actions: at most a forward and a backward of every other one */
static double by_own_end(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return -((double)b->decision->pp - 1) * (b->e.stage_forward_s + b->e.stage_backward_s);
}
static double by_shares(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to;
    double bytes = 2 * tokens(b) * WIDTH, whole = cost_transfer_s(b->cost, bytes);
    return item * ((cost_transfer_s(b->cost, bytes / 2) + over_tp(b, OP_ALL_GATHER, bytes)) / whole - 1);
}
/* all of it shown: one reduction and one gather in buckets of 40 million elements */
static double by_dp(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to;
    double pieces = ceil(elements() / 40e6), each = elements() / pieces;
    return pieces * (cost_group_s(b->cost, OP_REDUCE_SCATTER, 4 * each, &b->cost->shard) +
                     cost_group_s(b->cost, OP_ALL_GATHER, 2 * each, &b->cost->shard)) - item;
}
static double by_chunks(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)to;
    return -item;
}
/* two GPUs of a node share its ring: 1 GB over 8 members on 4 nodes by 2 x 2 GB/s */
static double by_far_nics(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from;
    return 2 * 7.0 / 8 / (2 * to) - item;
}
static double by_zero3_overlap(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to;
    return with(b, "dp_shown", b->profile.dp_overlap_shown)->e.dp_comm_s - item;
}
static double by_stolen(const struct seen *b, double from, double to, double item)
{
    (void)from;
    return to * (with(b, "dp_shown", 1)->e.dp_comm_s - item);
}

/* ---- bytes ---- */

static double by_share(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return (to - from) * (double)(b->e.activation_bytes + b->e.buffer_bytes);
}
static double by_gib(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)item;
    return (to - from) * (1 << 30);
}
/* all ranks, tp, dp, two neighbours, the ranks of a copy of the model */
static double by_six_mib(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)item;
    return (to - from) * 6 * (1 << 20);
}
static double by_kept_scores(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return LAYERS * HEADS * tokens(b) * (2 * SEQUENCE - 4); /* instead of a statistic in fp32 */
}
/* masks of scores and scaled scores; masks behind the embedding and both sublayers */
static double by_masks(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return LAYERS * HEADS * tokens(b) * 3 * SEQUENCE + (2 * LAYERS + 1) * tokens(b) * WIDTH;
}
static double by_logits(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return (to - from) * tokens(b) * VOCAB / b->decision->tp;
}
static double by_parallel_logits(const struct seen *b, double from, double to, double item)
{
    (void)from;
    return by_logits(b, b->profile.loss_bytes, to, item);
}
static double by_whole_logits(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item;
    return b->profile.loss_bytes * tokens(b) * VOCAB * (1 - 1.0 / b->decision->tp);
}
static double by_copies(const struct seen *b, double from, double to, double item)
{
    (void)item;
    return (to - from) * LAYERS * 2 * tokens(b) * (FFN + HEAD * (HEADS + KV));
}
static double by_vocabulary_gradient(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to, (void)item; /* beside the logits' gradient, that of the stream; without it copies of logits are fuller */
    return 2 * VOCAB * WIDTH + 2 * tokens(b) * VOCAB - b->profile.loss_bytes * tokens(b) * VOCAB;
}
static double by_shapes(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)to, (void)item;
    return 2 * fmax(layer_elements(), VOCAB * WIDTH); /* of the block that has most */
}
static double by_gradient_copies(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)item;
    return (to - from) * elements();
}
static double by_masters(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)to;
    return item; /* fp32 instead of half precision */
}
static double by_gathered(const struct seen *b, double from, double to, double item)
{
    (void)b, (void)from, (void)item; /* weights in half precision, gradients to be reduced in fp32 */
    return (2 + 4) * (1e9 * to - 2 * VOCAB * WIDTH);
}
/* of a layer stay its input, attention's output and, of q, k, v, output, gate, up and down, every second product backwards
 * from the last; beside layers stays what full recomputation leaves there too */
static double by_second_products(const struct seen *b, double from, double to, double item)
{
    (void)from, (void)to;
    struct seen *full = ARENA_NEW(b->arena, struct seen);
    *full = *b;
    full->decision = ARENA_NEW(b->arena, struct decision);
    *full->decision = *b->decision;
    full->decision->recompute = RECOMPUTE_FULL;
    look(full);
    double beside = (double)full->e.activation_bytes - LAYERS * 2 * tokens(b) * WIDTH;
    double products = HEADS * HEAD /* q */ + KV * HEAD /* v */ + FFN /* gate */ + WIDTH /* down */;
    return beside + LAYERS * 2 * tokens(b) * (WIDTH + HEADS * HEAD + products) - item;
}

/* ---- cases ---- */

#define DENSE "ffn swiglu(8192)"
#define MOE "moe swiglu(1024) {\n experts 16\n active 2\n }"
struct number {
    const char *param, *layer, *precision, *gpu, *decision, *plan, *set;
    double from, to;
    double (*item)(const struct seen *s);
    double (*change)(const struct seen *b, double from, double to, double item);
    double least, most;
    unsigned nics; /* of a node */
};
static const struct number numbers[] = {
#define NUMBER(param, from, to, item, change, least, most, layer, precision, gpu, nics, decision, plan, set)                 \
    {#param, layer, precision, gpu, decision, plan, set, from, to, item_##item, change, least, most, nics},
#include "tests/compiler/profile/numbers.def"
#undef NUMBER
};

static struct seen situation(struct arena *a, const struct number *x)
{
    struct seen s = {.arena = a};
    struct source *cluster = ARENA_NEW(a, struct source);
    const char *text = arena_printf(a, nodes_of_8, x->gpu, x->nics), *why = "";
    unsigned line;
    *cluster = (struct source){"c.xml", text, strlen(text), false};
    s.topo = topo_parse(a, diag_new(a), cluster, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s.topo);
    s.job = text_job(a, arena_printf(a, job_text, x->layer, x->precision, x->plan));
    s.decision = ARENA_NEW(a, struct decision);
    *s.decision = text_decision(a, s.job, s.topo, x->decision);
    if (s.job->wishes.recompute == RECOMPUTE_SELECTIVE) {
        s.decision->recompute = RECOMPUTE_SELECTIVE;
        s.decision->parts = PART_CORE_ATTN;
    }
    bool placed = decision_place(a, s.topo, s.decision, &why);
    CU_ASSERT_FATAL(placed);
    CU_ASSERT_FATAL(profile_parse(&s.profile, x->set, strlen(x->set), &line, &why));
    return s;
}

static void test_changes(void)
{
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        const struct number *x = &numbers[i];
        struct arena *a = arena_new();
        struct seen b = situation(a, x);
        const struct profile_param *param = profile_param(x->param);
        CU_ASSERT_PTR_NOT_NULL_FATAL(param);
        CU_ASSERT_FATAL(x->from >= param->low && x->from <= param->high && x->to >= param->low && x->to <= param->high);
        *PROFILE_PARAM(&b.profile, param) = x->from;
        look(&b);
        double item = x->item(&b), want = x->change(&b, x->from, x->to, item);
        double change = x->item(with(&b, x->param, x->to)) - item;
        bool fine = want != 0 && change / want >= x->least && change / want <= x->most;
        CU_ASSERT(fine);
        if (!fine)
            printf("\n    %s from %g to %g: an item of %g changes by %g, %g times the expected %g", x->param, x->from, x->to,
                   item, change, change / want, want);
        arena_free(a);
    }
}

/* Generations of GPUs have parameters of their own, and in a domain of several nodes the host does not wait. */
static void test_others(void)
{
    static const char *const gpus[] = {"A100-SXM", "H100-SXM", "B200"};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        for (size_t g = 0; g < ARRAY_LEN(gpus) && strstr(numbers[i].param, "_sm"); g++) {
            struct arena *a = arena_new();
            struct number x = numbers[i];
            x.gpu = gpus[g];
            struct seen b = situation(a, &x);
            look(&b);
            double change = x.item(with(&b, x.param, x.to)) - x.item(&b);
            CU_ASSERT_EQUAL(change == 0, strcmp(x.gpu, numbers[i].gpu) != 0);
            arena_free(a);
        }
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        if (strcmp(numbers[i].param, "moe_wait_us") != 0)
            continue;
        struct arena *a = arena_new();
        struct seen b = situation(a, &numbers[i]);
        b.topo->types[0].scale_up.span = 2;
        look(&b);
        CU_ASSERT_EQUAL(item_compute(with(&b, "moe_wait_us", 1000)), item_compute(&b));
        CU_ASSERT(item_compute(with(&b, "moe_layer_us", 1000)) > item_compute(&b));
        arena_free(a);
    }
}

/* What prices instructions changes the simulated step of an emitted plan as it changes the estimate. */
static void test_plans(void)
{
    static const char *const priced[] = {"matmul_sm80", "matmul_sm90", "matmul_sm100", "attention_sm80", "attention_sm90",
                                         "attention_sm100", "attention_unfused", "stream_traffic", "cp_attention",
                                         "straggle", "far_nic_gbs"};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        for (size_t k = 0; k < ARRAY_LEN(priced); k++) {
            if (strcmp(numbers[i].param, priced[k]) != 0)
                continue;
            struct arena *a = arena_new();
            struct seen b = situation(a, &numbers[i]);
            double step_s[2], plan_s[2];
            for (int n = 0; n < 2; n++) {
                const char *why = "";
                *PROFILE_PARAM(&b.profile, profile_param(priced[k])) = n ? numbers[i].to : numbers[i].from;
                look(&b);
                step_s[n] = b.e.step_time_s;
                struct plan *p = compile_decision(a, b.job, b.topo, b.decision, &(struct compile_options){0}, &why);
                CU_ASSERT_PTR_NOT_NULL_FATAL(p);
                plan_s[n] = 1e-9 * (double)p->timeline->step_ns;
                plan_close(p);
            }
            double ratio = (plan_s[1] - plan_s[0]) / (step_s[1] - step_s[0]);
            CU_ASSERT(ratio > 0.8 && ratio < 1.25);
            if (!(ratio > 0.8 && ratio < 1.25))
                printf("\n    %s: the plan's step changes by %g, %g times what the estimate's does", priced[k],
                       plan_s[1] - plan_s[0], ratio);
            arena_free(a);
        }
}

static void test_sequence_parallel(void)
{
    static const struct {
        const char *plan;
        enum tri want;
    } cases[] = {{"", TRI_AUTO},
                 {"adjust sequence_parallel = 1", TRI_AUTO},
                 {"adjust sequence_parallel = 0", TRI_NO},
                 {"adjust sequence_parallel = 0\n sequence_parallel yes", TRI_YES}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        CU_ASSERT_EQUAL(text_job(a, arena_printf(a, job_text, DENSE, "bf16", cases[i].plan))->wishes.sequence_parallel,
                        cases[i].want);
        arena_free(a);
    }
}

/* 0.67 billion parameters in 10 GiB, whole on every rank: 18 bytes of each are 11.2 GiB */
static void test_zero_most(void)
{
    static const struct {
        const char *plan;
        uint32_t least, most; /* ZeRO of the best; least > most: nothing fits */
    } cases[] = {{"", 1, 3},
                 {"adjust zero_most = 3", 1, 3},
                 {"adjust zero_most = 1", 1, 1},
                 {"adjust zero_most = 0", 1, 0},
                 {"zero = 3\n adjust zero_most = 0", 3, 3}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *plan = arena_printf(a, "tp = 1\n pp = 1\n cp = 1\n microbatch = 1\n memory <= 10GiB\n %s", cases[i].plan);
        struct number x = numbers[0];
        x.plan = plan;
        struct seen s = situation(a, &x);
        struct diag *d = diag_new(a);
        const struct search_result *r = search(a, d, text_job(a, arena_printf(a, job_text, DENSE, "bf16", plan)), s.topo, 1, 0, false);
        CU_ASSERT_EQUAL(r->ncandidates, cases[i].least <= cases[i].most);
        if (r->ncandidates)
            CU_ASSERT(r->candidates[0].decision.zero >= cases[i].least && r->candidates[0].decision.zero <= cases[i].most);
        arena_free(a);
    }
}

/* what no estimate of one decision shows: the two above */
static const char *const elsewhere[] = {"sequence_parallel", "zero_most"};

/* a parameter without a case */
static void test_all(void)
{
    size_t nparams;
    const struct profile_param *params = profile_params(&nparams);
    for (size_t i = 0; i < nparams; i++) {
        bool found = false;
        for (size_t k = 0; k < ARRAY_LEN(numbers); k++)
            found = found || !strcmp(numbers[k].param, params[i].name);
        for (size_t k = 0; k < ARRAY_LEN(elsewhere); k++)
            found = found || !strcmp(elsewhere[k], params[i].name);
        CU_ASSERT(found);
        if (!found)
            printf("\n    no case for %s", params[i].name);
    }
}

void suite_profile_numbers(void);
void suite_profile_numbers(void)
{
    CU_pSuite s = CU_add_suite("profile_numbers", NULL, NULL);
    CU_add_test(s, "every parameter changes what its meaning says", test_changes);
    CU_add_test(s, "no parameter changes what it is not about", test_others);
    CU_add_test(s, "an emitted plan's step changes as the estimate", test_plans);
    CU_add_test(s, "sequence parallelism where nobody speaks of it", test_sequence_parallel);
    CU_add_test(s, "the largest ZeRO that is looked for", test_zero_most);
    CU_add_test(s, "every parameter has a case", test_all);
}
