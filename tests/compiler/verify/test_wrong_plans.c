/* Plans that are right for another job, or wrong in several places that fit together: what single mutations
 * don't reach. */

#include "compiler/support/vec.h"
#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"
#include "tests/runtime/program_parse.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

/* ---- the plan of another job ---- */

static const char llama_job[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm(eps=1e-5)\n    embed tokens\n    "
    "repeat 4 {\n"
    "        layer {\n"
    "            attn gqa(heads=4, kv=2, head=8, rope=rotary(500, dims=6, pairs=half, scaling=llama3(8, 1, "
    "4, 64)), scale=8)\n"
    "            ffn swiglu(48)\n        }\n    }\n    head untied\n}\n"
    "train {\n    sequence 16\n    batch 16 sequences\n    precision bf16(grads=fp32)\n"
    "    optimizer adamw(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)\n"
    "    lr_schedule cosine(warmup=2, decay=10, min=1e-5)\n    clip 1.0\n    init normal(std=0.02, "
    "residual=yes)\n    seed 1\n}\n";
static const char gpt2_job[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm layernorm(eps=1e-5, bias=yes)\n    embed "
    "tokens\n"
    "    embed positions(24)\n    repeat 4 {\n        layer {\n            attn mha(heads=4, bias=yes)\n"
    "            ffn gelu(64, bias=yes, approx=tanh)\n        }\n    }\n    head tied\n}\n"
    "train {\n    sequence 16\n    batch 16 sequences\n    precision fp32\n    optimizer sgd(lr=0.1, "
    "momentum=0.9)\n"
    "    lr_schedule wsd(warmup=2, stable=3, decay=10, min=1e-5)\n    total 1Mi tokens\n}\n";

static const struct edit {
    bool gpt2;
    const char *from, *to;
} edits[] = {
    {false, "vocab 97", "vocab 98"},
    {false, "norm rmsnorm(eps=1e-5)", "norm rmsnorm(eps=1e-6)"},
    {false, "norm rmsnorm(eps=1e-5)", "norm layernorm(bias=no)"},
    {false, "repeat 4", "repeat 5"},
    {false, "repeat 4", "repeat 3"},
    {false, "kv=2", "kv=4"},
    {false, "kv=2", "kv=2, qkv_bias=yes"},
    {false, "rotary(500", "rotary(501"},
    {false, "dims=6", "dims=8"},
    {false, "pairs=half", "pairs=adjacent"},
    {false, "llama3(8,", "llama3(4,"},
    {false, "llama3(8, 1,", "llama3(8, 2,"},
    {false, "1, 4, 64", "1, 5, 64"},
    {false, "4, 64)", "4, 32)"},
    {false, "llama3(8, 1, 4, 64)", "linear(8)"},
    {false, "scale=8", "scale=9"},
    {false, "ffn swiglu(48)", "ffn geglu(48)"},
    {false, "ffn swiglu(48)", "ffn swiglu(48, bias=yes)"},
    {false, "head untied", "head tied"},
    {false, "sequence 16", "sequence 8"},
    {false, "batch 16", "batch 32"},
    {false, "precision bf16(grads=fp32)", "precision fp32"},
    {false, "precision bf16(grads=fp32)", "precision fp8"},
    {false, "precision bf16(grads=fp32)", "precision fp8(recipe=block)"},
    {false, "grads=fp32", "grads=bf16"},
    {false, "grads=fp32", "grads=bf16, reduce=fp32"},
    {false, "grads=fp32", "moments=bf16"},
    {false, "grads=fp32", "master=bf16"},
    {false, "lr=1e-3", "lr=2e-3"},
    {false, "beta1=0.9,", "beta1=0.8,"},
    {false, "beta2=0.95", "beta2=0.9"},
    {false, "eps=1e-8", "eps=1e-6"},
    {false, "weight_decay=0.1", "weight_decay=0.2"},
    {false, "cosine(", "linear("},
    {false, "warmup=2", "warmup=3"},
    {false, "decay=10,", "decay=11,"},
    {false, "min=1e-5", "min=1e-6"},
    {false, "clip 1.0", "clip 0.5"},
    {false, "clip 1.0", "clip none"},
    {false, "std=0.02", "std=0.03"},
    {false, "residual=yes", "residual=no"},
    {false, "seed 1", "seed 2"},
    {true, "bias=yes)\n    embed tokens", "bias=no)\n    embed tokens"},
    {true, "positions(24)", "positions(25)"},
    {true, "heads=4, bias=yes", "heads=4, qkv_bias=yes"},
    {true, "heads=4", "heads=8"},
    {true, "gelu(64, bias=yes, approx=tanh)", "relu(64, bias=yes)"},
    {true, "64, bias=yes", "64"},
    {true, "approx=tanh", "approx=none"},
    {true, "head tied", "head untied"},
    {true, "precision fp32", "precision bf16"},
    {true, "momentum=0.9", "momentum=0.8"},
    {true, "momentum=0.9", "momentum=0"},
    {true, "sgd(lr=0.1", "sgd(lr=0.2"},
    {true, "sgd(lr=0.1, momentum=0.9)", "adamw(lr=0.1)"},
    {true, "stable=3", "stable=4"},
    {true, "total 1Mi", "total 2Mi"},
};

static const char *edited(struct arena *a, const struct edit *e)
{
    const char *text = e->gpt2 ? gpt2_job : llama_job, *at = strstr(text, e->from);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    return arena_printf(a, "%.*s%s%s", (int)(at - text), text, e->to, at + strlen(e->from));
}

static void test_other_job(void)
{
    static const char *const decisions[] = {"tp=2 sp=1 pp=2 dp=2 zero=1 microbatch=2",
                                            "tp=1 pp=1 dp=1 microbatch=4"};
    for (size_t k = 0; k < ARRAY_LEN(decisions); k++)
        for (size_t i = 0; i < ARRAY_LEN(edits); i++) {
            struct arena *a = arena_new();
            struct plan *p = text_plan(a, edits[i].gpt2 ? gpt2_job : llama_job, decisions[k]);
            CU_ASSERT_EQUAL(verify_plan(a, p, false)->nviolations, 0);
            p->job = text_job(a, edited(a, &edits[i]));
            const struct verdict *v = verify_plan(a, p, false);
            CU_ASSERT(v->nviolations > 0);
            if (!v->nviolations)
                printf("\n    %s: a plan for '%s' is accepted for '%s'", decisions[k], edits[i].from,
                       edits[i].to);
            plan_close(p);
            arena_free(a);
        }
}

/* ---- edits of program text that fit together ---- */

/* One change of a printed program: in the first line that holds all words of `line`, `from` becomes `to`
 * (empty: the rest of the line goes); or the values of key `from` in that line and of `to` (or `from`) in the
 * first line that holds all words of `other` change places. */
struct change {
    const char *line, *from, *to, *other;
};
struct wrong {
    const char *name, *decision;
    bool gpt2, evaluation;
    uint32_t role;
    const char *message; /* part of it */
    struct change change[4];
};

static const char whole[] = "tp=2 sp=1 pp=2 dp=2 zero=0 microbatch=2",
                  sharded[] = "tp=2 sp=1 pp=2 dp=2 zero=1 microbatch=2",
                  single[] = "tp=1 pp=1 dp=1 microbatch=4";
static const struct wrong wrongs[] = {
    {"gradients of two layers change places",
     single,
     false,
     false,
     0,
     "expected gradient of model.layers.0.self_attn.q_proj.weight",
     {{"ADAMW grad.layer0#", "g=", NULL, "ADAMW grad.layer1#"}}},
    {"gradients of two layers' shards change places",
     sharded,
     false,
     false,
     1,
     "expected gradient of model.layers.2.self_attn.q_proj.weight",
     {{"ADAMW grad.layer2#", "g=", NULL, "ADAMW grad.layer3#"}}},
    {"first moments of two layers change places",
     single,
     false,
     false,
     0,
     "expected first moment of model.layers.0.self_attn.q_proj.weight",
     {{"ADAMW m.layer0#", "m=", NULL, "ADAMW m.layer1#"}}},
    {"the moments change places",
     whole,
     false,
     false,
     0,
     "expected first moment of model.layers.0.self_attn.q_proj.weight",
     {{"ADAMW grad.layer0#", " m=", " v=", "ADAMW grad.layer0#"}}},
    {"working copies of two layers change places",
     single,
     false,
     false,
     0,
     "at the end of the step buffer param.layer0 holds updated model.layers.1.self_attn.q_proj.weight",
     {{"ADAMW copy=%param.layer0#", "copy=", NULL, "ADAMW copy=%param.layer1#"}}},
    {"working copies of two layers' shards change places",
     sharded,
     false,
     false,
     0,
     "at the end of the step buffer param.layer0 holds updated model.layers.1.self_attn.q_proj.weight",
     {{"ADAMW copy=%param.layer0#", "copy=", NULL, "ADAMW copy=%param.layer1#"}}},
    {"master weights of two layers change places",
     whole,
     false,
     false,
     0,
     "expected first moment of model.layers.1.self_attn.q_proj.weight",
     {{"ADAMW p=%master.layer0#", "p=", NULL, "ADAMW p=%master.layer1#"}}},
    {"evaluation calls gate what training calls up, and uses it so",
     "tp=1 pp=1 dp=1 microbatch=16",
     false,
     true,
     0,
     "tensor model.layers.0.mlp.up_proj.weight is not the training program",
     {{"tensor model.layers.0.mlp.gate_proj.weight", "gate_proj", "temporary", NULL},
      {"tensor model.layers.0.mlp.up_proj.weight", "up_proj", "gate_proj", NULL},
      {"tensor model.layers.0.mlp.temporary.weight", "temporary", "up_proj", NULL},
      {"SWIGLU L0", " gate=", " up=", "SWIGLU L0"}}},
    {"a replicated bucket counts in the norm on all ranks",
     whole,
     false,
     false,
     0,
     "bucket vectors.whole is not saved where",
     {{"bucket vectors. elements", " count first", "", NULL}}},
    {"maximum instead of sum of the metrics",
     whole,
     false,
     false,
     0,
     "attribute max differs",
     {{"ALL_REDUCE metrics", "max=0", "max=1", NULL}}},
    {"metrics over the wrong group",
     sharded,
     false,
     false,
     0,
     "f32 here, f64 there",
     {{"ALL_REDUCE metrics", "group=", NULL, "ALL_REDUCE grad.vectors"}}},
    {"one bucket gathered twice, another never, for evaluation",
     sharded,
     false,
     true,
     0,
     "nothing orders the two",
     {{"ALL_GATHER y=%param.layer0#", "y=", NULL, "ALL_GATHER y=%param.layer1#"},
      {"ALL_GATHER x=%param.layer1#", "x=", NULL, "ALL_GATHER x=%param.layer0#"}}},
    {"a gather whose input lies in another member's part of the output",
     sharded,
     false,
     true,
     0,
     "operands y and x overlap",
     {{"RMSNORM y=%t.n2.", "y=%t.n2.bf16.16x32#30", "y=%t.full.bf16.32x32#25", NULL},
      {"ALL_GATHER x=%t.n2.", "x=%t.n2.bf16.16x32#30", "x=%t.full.bf16.32x32#25", NULL}}},
    {"a reduction that writes where other members still read",
     sharded,
     false,
     true,
     0,
     "operands y and x overlap",
     {{"REDUCE_SCATTER y=%t.d.", "y=%t.d.bf16.16x32#34", "y=%t.part.bf16.32x32#21", NULL},
      {"ADD b=%t.d.", "b=%t.d.bf16.16x32#34", "b=%t.part.bf16.32x32#21", NULL}}},
    {"evaluation takes a moment for its own scratch", sharded, false, true, 0,
     "buffer m.layer0 is not where the evaluation program keeps it",
     {{"buffer m.layer0 moment1", " moment1 ", " step ", NULL}, {"buffer m.layer0 step", " bucket", "", NULL}}},
};

/* of a job that hides transfers of tensor parallelism: rows in four parts */
static const struct wrong cut[] = {
    {"a run of a rank's rows has the positions of another", whole, true, false, 0,
     "it says that its elements are [0, 4) + 4 tp (modulo the sequence)",
     {{"POSITION start=8+tp", "start=8", "start=0", NULL}}},
    {"a product leaves two parts of its rows in each other's places", whole, true, false, 0, "as one matrix, but it holds",
     {{"MATMUL_NT L0.qkv +3072[8x48]", "c=", NULL, "MATMUL_NT L0.qkv +4608[8x48]"}}},
    {"a part of the rows is gathered twice, another never", whole, true, false, 0, "as one matrix, but it holds",
     {{"ALL_GATHER t.full +2048[8x32] L0.n1", "+1024[4x32]", "+512[4x32]", NULL}}},
    {"a product does not wait for a part of its rows", whole, true, false, 0, "nothing orders the two",
     {{"MATMUL_NT L0.qkv t.full +1024[8x32]", " <tp:", "", NULL}}},
    {"a run counts twice in a norm's gradient, another never", whole, true, false, 0, "contributions to gradient of transformer.h.1.ln_2.weight would count twice",
     {{"LAYERNORM_W L1.x1#34+512", "#34+512", "#34", NULL}, {"LAYERNORM_W L1.x1#34[ #42+16", "#42+16", "#42", NULL},
      {"LAYERNORM_W L1.x1#34[ #41+16", "#41+16", "#41", NULL}, {"LAYERNORM_W L1.x1#34[ +512[4x32]", "+512[", "[", NULL}}},
};

struct slice {
    size_t at, n;
};

/* the first line that holds all words */
static struct slice find_line(const char *text, const char *words)
{
    struct arena *a = arena_new();
    struct slice line = {0, strcspn(text, "\n")};
    for (; text[line.at]; line.at += line.n + 1, line.n = strcspn(text + line.at, "\n")) {
        const char *copy = arena_printf(a, "%.*s", (int)line.n, text + line.at);
        bool all = true;
        for (const char *w = words; *w && all; w += strspn(w, " ")) {
            size_t n = strcspn(w, " ");
            all = strstr(copy, arena_printf(a, "%.*s", (int)n, w)) != NULL;
            w += n;
        }
        if (all)
            break;
    }
    if (!text[line.at])
        printf("\n    no line has '%s'", words);
    arena_free(a);
    CU_ASSERT_FATAL(text[line.at]);
    return line;
}

/* `what` in a line; with value: what stands behind it, up to a blank */
static struct slice find_in(const char *text, struct slice line, const char *what, bool value)
{
    const char *at = strstr(text + line.at, what);
    CU_ASSERT_FATAL(at && at < text + line.at + line.n);
    if (value)
        at += strlen(what);
    return (struct slice){(size_t)(at - text), value ? strcspn(at, " \n") : strlen(what)};
}

static const char *put(struct arena *a, const char *text, struct slice s, const char *to, size_t n)
{
    return arena_printf(a, "%.*s%.*s%s", (int)s.at, text, (int)n, to, text + s.at + s.n);
}

static const char *change(struct arena *a, const char *text, const struct change *c)
{
    struct slice x = find_in(text, find_line(text, c->line), c->from, c->other);
    if (!c->other && !*c->to)
        x.n = strcspn(text + x.at, "\n");
    if (!c->other)
        return put(a, text, x, c->to, strlen(c->to));
    struct slice y = find_in(text, find_line(text, c->other), c->to ? c->to : c->from, true);
    if (y.at < x.at) {
        struct slice swap = x;
        x = y;
        y = swap;
    }
    return put(a, put(a, text, y, text + x.at, x.n), x, text + y.at, y.n);
}

static void edit_program(struct arena *a, struct plan *p, const struct wrong *w)
{
    struct program **at = &(w->evaluation ? p->eval : p->train)[w->role], *q;
    char *printed = NULL;
    struct error error = {""};
    size_t size;
    FILE *f = open_memstream(&printed, &size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    program_print(*at, f);
    fclose(f);
    const char *text = printed;
    for (size_t i = 0; i < ARRAY_LEN(w->change) && w->change[i].line; i++)
        text = change(a, text, &w->change[i]);
    enum status status = program_parse(text, strlen(text), &q, &error);
    if (status != STATUS_OK)
        printf("\n    %s: %s", w->name, error.text);
    CU_ASSERT_EQUAL_FATAL(status, STATUS_OK);
    program_free(*at);
    free(printed);
    *at = q;
}

static void edit_plans(const struct wrong *all, size_t n, const char *more)
{
    for (const struct wrong *w = all; w < all + n; w++) {
        struct arena *a = arena_new();
        struct plan *p = text_plan(a, arena_printf(a, "%s%s", w->gpt2 ? gpt2_job : llama_job, more), w->decision);
        CU_ASSERT_EQUAL(verify_plan(a, p, false)->nviolations, 0);
        edit_program(a, p, w);
        const struct verdict *v = verify_plan(a, p, false);
        bool refused = v->nviolations && strstr(v->violations[0].message, w->message);
        CU_ASSERT(refused);
        if (!refused)
            printf("\n    %s: %s", w->name, v->nviolations ? v->violations[0].message : "accepted");
        plan_close(p);
        arena_free(a);
    }
}

static void test_edited(void)
{
    edit_plans(wrongs, ARRAY_LEN(wrongs), "");
}

static void test_cut(void)
{
    edit_plans(cut, ARRAY_LEN(cut), "plan {\n    overlap tp with compute\n}\n");
}

/* A step over twice the batch with half the scale is the right plan of another job; with the smaller job's
 * header and scale it would add gradients of samples that belong to the next step. */
static void test_more_samples(void)
{
    struct arena *a = arena_new();
    struct job *job = text_job(a, llama_job);
    struct plan *p = text_plan(a, edited(a, &(struct edit){false, "batch 16", "batch 32"}),
                               "tp=1 pp=1 dp=2 zero=1 microbatch=2");
    p->job = job;
    for (int evaluation = 0; evaluation < 2; evaluation++) {
        struct program *q = (evaluation ? p->eval : p->train)[0];
        q->job.batch = job->train.batch;
        q->job.tokens_per_step /= 2;
        for (uint32_t i = 0; i < q->ninsns; i++) {
            if (q->insns[i].op == OP_XENT_LOSS)
                q->attrs[q->insns[i].attr + ATTR(XENT_LOSS, scale)].u.f *= 2;
            if (q->insns[i].op == OP_XENT_I)
                q->attrs[q->insns[i].attr + ATTR(XENT_I, scale)].u.f *= 2;
        }
    }
    const struct verdict *v = verify_plan(a, p, false);
    bool refused = v->nviolations && strstr(v->violations[0].message, "samples");
    CU_ASSERT(refused);
    if (!refused)
        printf("\n    %s", v->nviolations ? v->violations[0].message : "accepted");
    plan_close(p);
    arena_free(a);
}

void suite_wrong_plans(void);
void suite_wrong_plans(void)
{
    CU_pSuite s = CU_add_suite("wrong_plans", NULL, NULL);
    CU_add_test(s, "the plan of another job is refused", test_other_job);
    CU_add_test(s, "edits that fit together are refused", test_edited);
    CU_add_test(s, "rows in parts that are mixed up are refused", test_cut);
    CU_add_test(s, "a step over more than its batch is refused", test_more_samples);
}
