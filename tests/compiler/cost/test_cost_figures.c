/* Figures of the cost model in closed form: what is converted to 8 bits and how often, that gradients of
 * experts are read and written once each, and how rows of 8-bit products have to be aligned.  Prices are
 * taken apart by what they depend on: the difference between two values of one parameter is exactly the work
 * that goes by it. */

#include "compiler/cost/cost_private.h"
#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

enum {
    WIDTH = 2048,
    HEADS = 16,
    KV = 8,
    HEAD = 128,
    FFN = 8192,
    EXPERT = 1024,
    EXPERTS = 8,
    ACTIVE = 2,
    SEQUENCE = 2048,
    LAYERS = 2
};

static struct job *make_job(struct arena *a, bool moe, const char *more)
{
    char sublayer[160];
    snprintf(sublayer, sizeof sublayer,
             moe ? "moe swiglu(%d) { experts %d; active %d; router softmax }" : "ffn swiglu(%d)",
             moe ? EXPERT : FFN, EXPERTS, ACTIVE);
    return text_job(
        a,
        arena_printf(a,
                     "llmc 1\nmodel m {\n vocab 32000\n width %d\n norm rmsnorm\n embed tokens\n"
                     " repeat %d { layer { attn gqa(heads=%d, kv=%d, rope=10_000); %s } }\n head untied\n}\n"
                     "train {\n sequence %d\n batch 64 sequences\n precision fp8\n}\nplan {\n%s}\n",
                     WIDTH, LAYERS, HEADS, KV, sublayer, SEQUENCE, more));
}

static struct topo *make_topo(struct arena *a, const char *gpu)
{
    struct source *s = ARENA_NEW(a, struct source);
    char *text = arena_printf(
        a,
        "<cluster version='1'><node-type id='n' gpus='8'><gpu model='%s'/>"
        "<scale-up kind='nvswitch' bandwidth='450GB/s'/></node-type><nodes type='n' count='1'/></cluster>",
        gpu);
    *s = (struct source){"c.xml", text, strlen(text), false};
    struct topo *t = topo_parse(a, diag_new(a), s, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* The stack of no effect, but that conversions move `traffic` times their bytes, and come before gathers: llmrun's, whose
 * allocator is 0, come behind. */
static const struct profile *profile_of(struct arena *a, double traffic)
{
    struct profile *p = ARENA_NEW(a, struct profile);
    unsigned line;
    const char *why = "";
    CU_ASSERT_FATAL(profile_parse(p, "", 0, &line, &why));
    p->quantize_traffic = traffic;
    p->allocator = 1;
    p->tp_backward_hidden = p->sp_backward_hidden = 0; /* no transfer goes by a product's time */
    return p;
}

static struct cost *make_cost(struct arena *a, struct job *job, struct topo *topo, const char *decision,
                              double traffic)
{
    struct decision *d = ARENA_NEW(a, struct decision);
    const char *why = "";
    *d = text_decision(a, job, topo, decision);
    CU_ASSERT_FATAL(decision_place(a, topo, d, &why));
    job->wishes.profile = profile_of(a, traffic);
    return cost_new(a, job, topo, d);
}

static bool near(double have, double want, double tolerance)
{
    bool fine = fabs(have - want) <= tolerance * fabs(want);
    if (!fine)
        printf("\n    %.9g, expected %.9g", have, want);
    return fine;
}

/* ---- conversions to 8 bits ---- */

/* a 16-bit element is read, and written twice in 8 bits: by rows, and by columns for the products of
 * gradients */
static void test_conversion(void)
{
    struct arena *a = arena_new();
    struct job *job = make_job(a, false, "");
    struct topo *t = make_topo(a, "H100-SXM");
    for (int traffic = 1; traffic <= 3; traffic++) {
        const struct cost *c = make_cost(a, job, t, "microbatch=1", traffic);
        CU_ASSERT(
            near(cost_quantize_s(c, 1e6), traffic * 4e6 / c->device.bytes_s + c->device.launch_s, 1e-12));
        CU_ASSERT_EQUAL(cost_quantize_s(c, 0), c->device.launch_s);
    }
    arena_free(a);
}

/* Elements that a layer converts, forward and backward, per microbatch: what each product reads of
 * activations, and the gradient of what it made; weights are converted once a step, by nobody here.  What is
 * gathered over tp other stacks convert in shares before it travels, and on Hopper transpose after, for half of a
 * conversion's traffic; llmrun's gathers come before conversions. */
static void test_layer(void)
{
    static const double m = SEQUENCE, qkv = (HEADS + 2 * KV) * HEAD, o = HEADS * HEAD;
    static const double column_in = WIDTH, column_out = qkv + 2.0 * FFN, row_in = o + FFN, row_out = WIDTH;
    static const struct {
        const char *gpu, *decision;
        double forward, backward;
        bool stack;
    } cases[] = {
        {"H100-SXM", "microbatch=1", m * (2 * column_in + row_in), m * (column_out + 2 * row_out), false},
        {"H100-SXM", "microbatch=3", 3 * m * (2 * column_in + row_in), 3 * m * (column_out + 2 * row_out), false},
        {"B200", "microbatch=1", m * (2 * column_in + row_in), m * (column_out + 2 * row_out), false},
        {"H100-SXM", "tp=4 microbatch=1", m * (2 * column_in + row_in / 4),
         m * (column_out / 4 + 2 * row_out), false},
        {"H100-SXM", "tp=4 sp=1 microbatch=1", m * (2 * column_in * (0.25 + 0.5) + row_in / 4),
         m * (column_out / 4 + 2 * row_out * (0.25 + 0.5)), true},
        {"B200", "tp=4 sp=1 microbatch=1", m * (2 * column_in * 0.25 + row_in / 4),
         m * (column_out / 4 + 2 * row_out * 0.25), true},
        {"H100-SXM", "tp=4 sp=1 microbatch=1", m * (2 * column_in + row_in / 4),
         m * (column_out / 4 + 2 * row_out), false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct job *job = make_job(a, false, "");
        struct topo *t = make_topo(a, cases[i].gpu);
        const struct cost_kinds kinds = cost_kinds_new(a, &job->model);
        struct cost_shape shape[2];
        double bytes_s = 0;
        for (int k = 0; k < 2; k++) {
            struct cost *c = make_cost(a, job, t, cases[i].decision, 1 + k);
            ((struct profile *)(uintptr_t)c->profile)->allocator = cases[i].stack;
            cost_shape_init(a, c, &kinds, &shape[k]);
            bytes_s = c->device.bytes_s;
        }
        double forward = shape[1].layers[0].forward_s - shape[0].layers[0].forward_s;
        double backward = shape[1].layers[0].backward_s - shape[0].layers[0].backward_s;
        CU_ASSERT(near(forward * bytes_s / 4, cases[i].forward, 1e-9));
        CU_ASSERT(near(backward * bytes_s / 4, cases[i].backward, 1e-9));
        CU_ASSERT_EQUAL(shape[1].head.forward_s, shape[0].head.forward_s); /* which stays in half precision */
        CU_ASSERT_EQUAL(shape[1].head.backward_s, shape[0].head.backward_s);
        arena_free(a);
    }
}

/* the same of experts: rows that come to them, and what their gates make of these; with ep all ranks' rows
 * are shared evenly */
static void test_experts(void)
{
    static const double m = SEQUENCE, qkv = (HEADS + 2 * KV) * HEAD, o = HEADS * HEAD, routed = m * ACTIVE;
    static const char *const decisions[] = {"microbatch=1", "dp=4 ep=4 microbatch=1"};
    for (int i = 0; i < 2; i++) {
        struct arena *a = arena_new();
        struct job *job = make_job(a, true, "");
        struct topo *t = make_topo(a, "H100-SXM");
        const struct cost_kinds kinds = cost_kinds_new(a, &job->model);
        struct cost_shape shape[2];
        double bytes_s = 0, unequal = job->train.imbalance;
        for (int k = 0; k < 2; k++) {
            const struct cost *c = make_cost(a, job, t, decisions[i], 1 + k);
            cost_shape_init(a, c, &kinds, &shape[k]);
            bytes_s = c->device.bytes_s;
        }
        double forward = shape[1].layers[0].forward_s - shape[0].layers[0].forward_s;
        double backward = shape[1].layers[0].backward_s - shape[0].layers[0].backward_s;
        CU_ASSERT(near(forward * bytes_s / 4, m * (WIDTH + o) + unequal * routed * (WIDTH + EXPERT), 1e-9));
        CU_ASSERT(
            near(backward * bytes_s / 4, m * (qkv + WIDTH) + unequal * routed * (WIDTH + 2 * EXPERT), 1e-9));
        arena_free(a);
    }
}

/* the instructions of a plan convert what the closed form says; products side by side share one conversion */
static void test_instructions(void)
{
    struct arena *a = arena_new();
    struct job *job = make_job(a, false, "");
    struct topo *t = make_topo(a, "H100-SXM");
    const char *why = "";
    double ns[2][2] = {{0}}; /* by traffic; of one microbatch's F and B */
    struct cost *c = NULL;
    for (int k = 0; k < 2; k++) {
        c = make_cost(a, job, t, "microbatch=1", 1 + k);
        struct decision d = *c->decision;
        struct plan *p = compile_decision(a, job, t, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        const struct program *program = p->train[0];
        for (uint32_t i = 0; i < program->ninsns; i++)
            if (program->insns[i].microbatch == 1 && strchr("FB", program->insns[i].action))
                ns[k][program->insns[i].action == 'B'] += (double)cost_insn_ns(c, program, i, false);
        plan_close(p);
    }
    double forward = SEQUENCE * (2.0 * WIDTH + HEADS * HEAD + FFN);
    double backward = SEQUENCE * ((HEADS + 2.0 * KV) * HEAD + 2 * FFN + 2 * WIDTH);
    /* prices are whole nanoseconds, of some 100,000 */
    CU_ASSERT(near((ns[1][0] - ns[0][0]) * 1e-9 * c->device.bytes_s / 4, LAYERS * forward, 1e-3));
    CU_ASSERT(near((ns[1][1] - ns[0][1]) * 1e-9 * c->device.bytes_s / 4, LAYERS * backward, 1e-3));
    arena_free(a);
}

/* Operands of instructions in a table of their own: `step` instructions apart in turn, from the last to the
 * first. */
static void turn_operands(struct arena *a, struct program *p, uint32_t step)
{
    struct operand *turned = ARENA_ARRAY(a, struct operand, p->noperands);
    uint32_t end = 0;
    for (uint32_t k = 0; k < step && k < p->ninsns; k++)
        for (uint32_t i = p->ninsns - k; i > 0; i = i > step ? i - step : 0) {
            struct insn *x = &p->insns[i - 1];
            uint32_t n = (uint32_t)isa_info(x->op)->noperands;
            memcpy(turned + end, p->operands + x->operand, n * sizeof *turned);
            x->operand = end;
            end += n;
        }
    CU_ASSERT_EQUAL_FATAL(end, p->noperands);
    memcpy(p->operands, turned, end * sizeof *turned);
}

/* What an instruction takes is the same wherever in the program's table its operands lie. */
static void test_places_of_operands(void)
{
    struct arena *a = arena_new();
    struct job *job = text_job(
        a, "llmc 1\nmodel m {\n vocab 512\n width 1024\n norm rmsnorm\n embed tokens\n repeat 2 { layer {\n"
           " attn mla(heads=8, q_rank=512, kv_rank=512, nope=64, rope=64, v=64)\n"
           " moe swiglu(512) { experts 8; active 2; shared 1; router softmax } } }\n head untied\n}\n"
           "train {\n sequence 1024\n batch 4 sequences\n precision fp8\n}\n");
    struct topo *t = make_topo(a, "H100-SXM");
    const char *why = "";
    struct cost *c = make_cost(a, job, t, "microbatch=2", 1);
    struct plan *p = compile_apart(a, job, t, c->decision, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    uint32_t n = p->train[0]->ninsns;
    int64_t *ns = ARENA_ARRAY(a, int64_t, n);
    for (uint32_t i = 0; i < n; i++)
        ns[i] = cost_insn_ns(c, p->train[0], i, false);
    for (uint32_t step = 1; step <= 8; step++) {
        uint32_t others = 0;
        turn_operands(a, p->train[0], step);
        for (uint32_t i = 0; i < n; i++)
            others += cost_insn_ns(c, p->train[0], i, false) != ns[i];
        CU_ASSERT_EQUAL(others, 0);
    }
    plan_close(p);
    arena_free(a);
}

/* ---- gradients of experts ---- */

/* a product of few rows takes the time of its memory: the step's gradient is read and written once, whatever
 * its element */
static void test_expert_gradients(void)
{
    struct arena *a = arena_new();
    struct job *job = make_job(a, true, "");
    struct topo *t = make_topo(a, "H100-SXM");
    struct cost *c = make_cost(a, job, t, "microbatch=1", 1);
    const double groups = 8, n = 4096, k = 2048;
    double seconds[3], bytes[] = {4, 8, 12}; /* above 2, so that products are of one layout */
    for (int i = 0; i < 3; i++) {
        c->device.gradient_bytes = bytes[i];
        seconds[i] = cost_grouped_matmul_s(c, PRODUCT_WEIGHT, 8, 16, 4096, 2048, DTYPE_BF16);
    }
    for (int i = 1; i < 3; i++)
        CU_ASSERT(
            near(seconds[i] - seconds[i - 1], groups * n * k * 2 * 4 / c->device.product_bytes_s, 1e-9));
    /* and forward products write theirs in 16 bits, whatever the gradients are kept in */
    double forward = cost_grouped_matmul_s(c, PRODUCT_FORWARD, 8, 16, 4096, 2048, DTYPE_BF16);
    c->device.gradient_bytes = 4;
    CU_ASSERT_EQUAL(cost_grouped_matmul_s(c, PRODUCT_FORWARD, 8, 16, 4096, 2048, DTYPE_BF16), forward);
    arena_free(a);
}

/* gradients that are made apart and added: a 16-bit one read, the step's read and written, of experts as of
 * all others, for each microbatch and shared among ZeRO's ranks by nobody */
static double added_s(struct arena *a, struct job *job, struct topo *t, bool added, double *elements,
                      double *bytes_s)
{
    struct cost *c = make_cost(a, job, t, "dp=2 zero=1 microbatch=1", 1);
    struct profile *p = ARENA_NEW(a, struct profile);
    struct estimate e;
    struct cost_shape shape;
    const struct cost_kinds kinds = cost_kinds_new(a, &job->model);
    *p = *c->profile;
    p->gradients_added = added;
    c->profile = p;
    cost_estimate(a, c, &e);
    cost_shape_init(a, c, &kinds, &shape);
    const struct cost_block *l = &shape.layers[0];
    *elements = LAYERS * (l->matrices + l->vectors_split + l->vectors_whole + l->experts);
    *bytes_s = c->device.bytes_s;
    return e.stage_backward_s;
}

static void test_added(void)
{
    struct arena *a = arena_new();
    struct topo *t = make_topo(a, "H100-SXM");
    double rest[2];
    for (int moe = 0; moe < 2; moe++) {
        struct job *job = make_job(a, moe, "");
        double elements, bytes_s, plain = added_s(a, job, t, false, &elements, &bytes_s);
        double extra = (added_s(a, job, t, true, &elements, &bytes_s) - plain) * bytes_s / (2 + 2 * 4);
        rest[moe] = extra - elements; /* the embedding, the head and the last norm */
    }
    CU_ASSERT(near(rest[0], 2.0 * 32000 * WIDTH + WIDTH, 1e-6));
    CU_ASSERT(near(rest[1], rest[0], 1e-6));
    arena_free(a);
}

/* ---- layers that are spared from recomputation ---- */

static bool same_block(const struct cost *x, const struct cost_block *a, const struct cost *y,
                       const struct cost_block *b)
{
    return a->forward_s == b->forward_s && a->backward_s == b->backward_s &&
           a->forward_comm_s == b->forward_comm_s && a->backward_comm_s == b->backward_comm_s &&
           a->again_s == b->again_s && a->weight_s == b->weight_s && a->input_s == b->input_s &&
           a->forward_hidden_s == b->forward_hidden_s && a->backward_hidden_s == b->backward_hidden_s &&
           a->keep_bytes == b->keep_bytes && a->forward_bytes == b->forward_bytes &&
           a->backward_bytes == b->backward_bytes &&
           !memcmp(cost_lives(x, a), cost_lives(y, b), sizeof(struct cost_lives));
}

/* They are what they are where nothing is recomputed, and the last ones of their stage. */
static void test_spared(void)
{
    struct arena *a = arena_new();
    struct topo *t = make_topo(a, "H100-SXM");
    for (int moe = 0; moe < 2; moe++) {
        struct job *job = make_job(a, moe, "");
        struct decision d[2];
        struct cost *c[2];
        struct cost_shape s[2];
        struct cost_kinds kinds = cost_kinds_new(a, &job->model);
        for (int full = 0; full < 2; full++) {
            const char *why = "";
            const char *text = full ? "microbatch=1 tp=2 sp=1 full=1" : "microbatch=1 tp=2 sp=1";
            d[full] = text_decision(a, job, t, text);
            CU_ASSERT_FATAL(decision_place(a, t, &d[full], &why));
            c[full] = cost_new(a, job, t, &d[full]);
            cost_shape_init(a, c[full], &kinds, &s[full]);
        }
        CU_ASSERT(!same_block(c[0], &s[0].layers[0], c[1], &s[1].layers[0]));
        for (uint32_t k = 0; k < s[0].ndistinct; k++)
            CU_ASSERT(same_block(c[0], &s[0].layers[k], c[1], &s[1].spared[k]));
        for (uint32_t spared = 0; spared <= LAYERS; spared++) {
            const struct stage st = {.count = LAYERS, .spared = spared};
            for (uint32_t i = 0; i < LAYERS; i++) {
                const struct cost_block *among = i + spared < LAYERS ? s[1].layers : s[1].spared;
                CU_ASSERT_PTR_EQUAL(cost_layer(&s[1], &st, i), &among[s[1].kind[i]]);
            }
        }
    }
    arena_free(a);
}

/* ---- what lives while a block runs under llmrun ---- */

static struct job *plain_job(struct arena *a, const char *sublayers, uint32_t sequence, const char *precision)
{
    return text_job(
        a, arena_printf(a,
                        "llmc 1\nmodel m {\n vocab 256\n width %d\n norm rmsnorm\n embed tokens\n"
                        " repeat 2 { layer { %s } }\n head untied\n}\n"
                        "train {\n sequence %u\n batch 8 sequences\n precision %s\n}\n",
                        WIDTH, sublayers, sequence, precision));
}

/* a decision's shape under the job's own profile, whose buffers are llmrun's */
static const struct cost_shape *shape_of(struct arena *a, const struct job *job, struct topo *t, const char *decision,
                                         struct cost **c)
{
    struct cost_shape *s = ARENA_NEW(a, struct cost_shape);
    struct decision *d = ARENA_NEW(a, struct decision);
    const struct cost_kinds kinds = cost_kinds_new(a, &job->model);
    const char *why = "";
    *d = text_decision(a, job, t, decision);
    CU_ASSERT_FATAL(decision_place(a, t, d, &why));
    *c = cost_new(a, job, t, d);
    cost_shape_init(a, *c, &kinds, s);
    return s;
}

/* To sort the tokens of a microbatch by their rows of the table takes room for three numbers each. */
static void test_sorted_tokens(void)
{
    struct arena *a = arena_new();
    struct topo *t = make_topo(a, "H100-SXM");
    double bytes[2];
    for (uint32_t i = 0; i < 2; i++) {
        const char *sublayers = "attn mha(heads=16, rope=10_000); ffn swiglu(1024)";
        struct job *job = plain_job(a, sublayers, 4096u << i, "bf16");
        struct cost *c;
        const struct cost_shape *s = shape_of(a, job, t, "microbatch=1", &c);
        bytes[i] = cost_lives(c, &s->embed)->workspace;
    }
    CU_ASSERT_EQUAL(bytes[1] - bytes[0], 3 * 4 * 4096);
    arena_free(a);
}

/* Attention by a ring adds up in fp32.  So the most that lives in forward, which is there where the products are
 * small, is in fp32 twice that of bf16 but for the sum, a part and their statistics. */
static void test_ring_sums(void)
{
    struct arena *a = arena_new();
    struct topo *t = make_topo(a, "H100-SXM");
    double most[2];
    for (uint32_t i = 0; i < 2; i++) {
        const char *sublayers = "attn mha(heads=16, rope=10_000); ffn swiglu(64)";
        struct job *job = plain_job(a, sublayers, SEQUENCE, i ? "fp32" : "bf16");
        struct cost *c;
        const struct cost_shape *s = shape_of(a, job, t, "microbatch=1 ring=4", &c);
        most[i] = cost_lives(c, &s->layers[0])->forward;
    }
    double tokens = SEQUENCE / 4.0;
    CU_ASSERT_EQUAL(2 * most[0] - most[1], 4 * tokens * (2 * WIDTH + 2 * 16 + 1)); /* 1: of the norm */
    arena_free(a);
}

/* ---- numbers that a device computes in ---- */

/* Half precision is what the job says if the device has it, at any rate, else the other half, else fp32; a
 * device without fp32 computes that in half precision. */
static void test_peaks(void)
{
    static const struct {
        const char *precision;
        double fp32, bf16, fp16; /* the device's peaks, 0: it has none */
        double half, full;       /* what its products go by */
    } cases[] = {{"bf16", 8, 1, 4, 1, 8}, {"bf16", 8, 0, 4, 4, 8}, {"bf16", 8, 0, 0, 8, 8},
                 {"bf16", 0, 1, 0, 1, 1}, {"fp16", 8, 1, 4, 4, 8}, {"fp16", 8, 4, 1, 1, 8},
                 {"fp16", 8, 1, 0, 1, 8}, {"fp16", 0, 0, 1, 1, 1}};
    struct arena *a = arena_new();
    struct topo *t = make_topo(a, "H100-SXM");
    struct topo_gpu *gpu = &t->types[0].gpu;
    gpu->sm = 0; /* no table of what it sustains */
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *sublayers = "attn mha(heads=16, rope=10_000); ffn swiglu(64)";
        struct job *job = plain_job(a, sublayers, 256, cases[i].precision);
        gpu->peak_flop_s[TOPO_FP32] = cases[i].fp32;
        gpu->peak_flop_s[TOPO_BF16] = cases[i].bf16;
        gpu->peak_flop_s[TOPO_FP16] = cases[i].fp16;
        const struct cost_device *dev = &make_cost(a, job, t, "microbatch=1", 1)->device;
        CU_ASSERT(near(dev->clock_flop_s[COST_HALF], 0.8 * cases[i].half, 1e-12));
        CU_ASSERT(near(dev->clock_flop_s[COST_F32], 0.8 * cases[i].full, 1e-12));
    }
    arena_free(a);
}

/* ---- actions with what travels beside them ---- */

/* An action is no shorter than copies of what its layers keep, but for two, and for what a transfer in its
 * own direction holds up kernels behind it anyway. */
static void test_copies(void)
{
    struct arena *a = arena_new();
    struct job *job = make_job(a, false, "");
    const struct cost *c = make_cost(a, job, make_topo(a, "H100-SXM"), "microbatch=1 pp=2", 1);
    const struct decision *d = c->decision;
    const struct pipeline_piece piece = {.count = 5, .park_s = 10};
    struct pipeline_moves moves[2] = {{.npieces = 1, .pieces = &piece}, {.npieces = 1, .pieces = &piece}};
    struct pipeline_update updates[2] = {{0}};
    struct pipeline_stage plain[2], stages[2];
    for (uint32_t i = 0; i < 2; i++)
        plain[i] = (struct pipeline_stage){.forward_s = 1,
                                           .backward_s = 2,
                                           .input_s = 1,
                                           .weight_s = 1,
                                           .next_s = 2 + i,
                                           .back_s = 4 + i,
                                           .forward_hidden_s = 0.25,
                                           .backward_hidden_s = 0.125};
    CU_ASSERT_EQUAL_FATAL(d->nstages, 2);
    for (int held = 0; held <= 1; held++) {
        struct pipeline_times times = {.stages = plain, .moves = moves, .updates = updates, .held = held};
        CU_ASSERT(cost_least_stretch(c, &times, stages) >= 0);
        for (uint32_t i = 0; i < 2; i++) {
            CU_ASSERT_EQUAL(stages[i].forward_s, 30 - held * plain[i].next_s);
            CU_ASSERT_EQUAL(stages[i].backward_s, 30 - held * plain[i].back_s);
            CU_ASSERT_EQUAL(stages[i].input_s, 30 - held * plain[i].back_s);
            CU_ASSERT_EQUAL(stages[i].weight_s, plain[i].weight_s);
        }
    }
    arena_free(a);
}

/* ---- alignment ---- */

/* Share of its speed that a product keeps by the bytes at which rows begin: 16, 8, 4, less.  The same columns
 * are half as many bytes in 8 bits.  Sizes from 4,097 to 4,112 have as many tiles, and memory and power cost
 * nothing here: time goes by the share alone. */
static void test_alignment(void)
{
    static const struct {
        uint64_t size;
        double fp8, half; /* in units of the share at 8 bytes; 0 = no loss */
    } cases[] = {{4112, 0, 0}, {4104, 1, 0}, {4100, 0.75, 1}, {4098, 0.5, 0.75}, {4097, 0.5, 0.5}};
    static double (*const price[])(const struct cost *, enum product, uint64_t, uint64_t, uint64_t,
                                   enum dtype) = {cost_matmul_s, cost_matmul_half_s};
    struct arena *a = arena_new();
    struct job *job = make_job(a, false, "");
    struct cost *c = make_cost(a, job, make_topo(a, "H100-SXM"), "microbatch=1", 1);
    struct cost_device *dev = &c->device;
    CU_ASSERT(dev->odd > 0 && dev->odd < 1 && dev->batch_odd > 0 && dev->batch_odd < 1);
    dev->product_bytes_s = dev->power_flop_s[COST_FP8] = dev->power_flop_s[COST_HALF] = INFINITY;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t z = cases[i].size, y = 4112;
        for (int half = 0; half < 2; half++) {
            double units = half ? cases[i].half : cases[i].fp8, share = units > 0 ? units * dev->odd : 1;
            double whole = price[half](c, PRODUCT_FORWARD, y, y, y, DTYPE_BF16) - dev->launch_s;
            double n = price[half](c, PRODUCT_FORWARD, y, z, y, DTYPE_BF16) - dev->launch_s;
            double k = price[half](c, PRODUCT_FORWARD, y, y, z, DTYPE_BF16) - dev->launch_s;
            double m = price[half](c, PRODUCT_FORWARD, z, y, y, DTYPE_BF16) - dev->launch_s;
            CU_ASSERT(near(whole / n, share, 1e-9) && near(whole / k, share, 1e-9));
            CU_ASSERT(near(whole / m, 1, 1e-9)); /* rows, not columns */
            /* of a weight's gradient both operands' rows are as long as its own sides */
            whole = price[half](c, PRODUCT_WEIGHT, y, y, y, DTYPE_BF16) - dev->launch_s;
            n = price[half](c, PRODUCT_WEIGHT, y, z, y, DTYPE_BF16) - dev->launch_s;
            m = price[half](c, PRODUCT_WEIGHT, z, y, y, DTYPE_BF16) - dev->launch_s;
            k = price[half](c, PRODUCT_WEIGHT, y, y, z, DTYPE_BF16) - dev->launch_s;
            CU_ASSERT(near(whole / n, share, 1e-9) && near(whole / m, share, 1e-9) &&
                      near(whole / k, 1, 1e-9));
        }
        double whole = cost_batched_matmul_s(c, 4, y, y, y, DTYPE_BF16) - dev->launch_s;
        double odd = cost_batched_matmul_s(c, 4, y, z, y, DTYPE_BF16) - dev->launch_s;
        CU_ASSERT(near(whole / odd, cases[i].half > 0 ? dev->batch_odd : 1, 1e-9));
    }
    arena_free(a);
}

void suite_cost_figures(void);
void suite_cost_figures(void)
{
    CU_pSuite s = CU_add_suite("cost_figures", NULL, NULL);
    CU_add_test(s, "a conversion to 8 bits", test_conversion);
    CU_add_test(s, "conversions of a layer", test_layer);
    CU_add_test(s, "conversions for experts", test_experts);
    CU_add_test(s, "conversions of a plan's instructions", test_instructions);
    CU_add_test(s, "instructions whose operands lie elsewhere", test_places_of_operands);
    CU_add_test(s, "gradients of experts: read and written once", test_expert_gradients);
    CU_add_test(s, "gradients that are made apart and added", test_added);
    CU_add_test(s, "layers spared from recomputation", test_spared);
    CU_add_test(s, "tokens that are sorted", test_sorted_tokens);
    CU_add_test(s, "sums of a ring", test_ring_sums);
    CU_add_test(s, "peaks by precision", test_peaks);
    CU_add_test(s, "actions and copies of what is kept", test_copies);
    CU_add_test(s, "alignment of rows in 8 and 16 bits", test_alignment);
}
