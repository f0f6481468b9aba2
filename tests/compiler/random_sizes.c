/* Drawing realistic jobs: models of published shapes, dense and with experts, on the worked clusters; or a worked example's
 * own model.  A decision's dimensions come by coins, as in random_layout.c, then what the rules of legality leave; the batch
 * follows from it. */

#include "tests/compiler/random_sizes.h"

#include "compiler/schedule/schedule.h"
#include "compiler/support/strbuf.h"
#include "tests/compiler/random_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_WORK = 640,       /* layers times microbatches of a step */
    MOST_GPUS_LOG2 = 12,
    TRIES = 2000,
};

static const char *const examples[] = {"gpt2-124m",   "llama3-8b",    "llama3-70b",    "gpt3-175b",
                                       "llama3-405b", "mixtral-8x7b", "mixtral-8x22b", "deepseek-v3"};
static const char *const clusters[] = {
    "topologies/h100-1024.xml",     "topologies/h100-1024.xml",           "topologies/a100-1024.xml",
    "topologies/h800-2048.xml",     "topologies/dgx-h100-superpod.xml",   "topologies/dgx-a100-superpod.xml",
    "topologies/gb200-nvl72.xml",   "topologies/meta-24k-roce.xml",       "topologies/h100x8.xml",
    "topologies/tpu-v5p.xml"};

struct draw {
    struct arena *a;
    uint64_t *state, seed;
    struct strbuf *out;
};

static bool once_in(struct draw *x, uint32_t n)
{
    return random_below(x->state, n) == 0;
}
#define ONE_OF(x, ...)                                                                                                      \
    ((const uint32_t[]){__VA_ARGS__}[random_below((x)->state, sizeof(const uint32_t[]){__VA_ARGS__} / sizeof(uint32_t))])
#define WORD_OF(x, ...)                                                                                                     \
    ((const char *const[]){                                                                                                 \
        __VA_ARGS__}[random_below((x)->state, sizeof(const char *const[]){__VA_ARGS__} / sizeof(char *))])

/* ---- models ---- */

static void draw_attention(struct draw *x, uint32_t width)
{
    uint32_t heads = width / 128, kv = ONE_OF(x, 8, 8, heads / 4, heads);
    kv = kv && heads % kv == 0 ? kv : heads;
    if (once_in(x, 5)) {
        strbuf_printf(x->out, "attn mla(heads=%u, %skv_rank=512, nope=128, rope=64, v=128)\n", heads,
                      WORD_OF(x, "", "q_rank=1536, "));
        return;
    }
    strbuf_printf(x->out, "attn gqa(heads=%u, kv=%u, head=128", heads, kv);
    const char *rope = WORD_OF(x, ", rope=10_000", ", rope=500_000", "");
    strbuf_text(x->out, *rope || once_in(x, 2) ? rope : ", alibi=yes");
    strbuf_text(x->out, WORD_OF(x, "", "", "", ", bias=yes", ", qkv_bias=yes"));
    const char *more = WORD_OF(x, "", "", "", ", qk_norm=head", ", window=1024");
    strbuf_text(x->out, !strcmp(more, ", window=1024") && once_in(x, 2) ? ", chunk=512" : more);
    strbuf_text(x->out, ")\n");
}

static void draw_dense(struct draw *x, uint32_t width)
{
    strbuf_text(x->out, "        layer {\n            ");
    draw_attention(x, width);
    if (once_in(x, 3)) {
        const char *kind = WORD_OF(x, "gelu", "gelu", "relu2"), *bias = WORD_OF(x, "", ", bias=yes");
        strbuf_printf(x->out, "            ffn %s(%u%s)\n        }\n", kind, 4 * width, bias);
    } else {
        strbuf_printf(x->out, "            ffn swiglu(%u)\n        }\n", width * ONE_OF(x, 5, 7, 7, 8) / 2);
    }
}

static void draw_experts(struct draw *x, uint32_t width)
{
    uint32_t experts = ONE_OF(x, 8, 8, 16, 64, 64, 128, 256), active = ONE_OF(x, 1, 2, 2, 4, 8);
    uint32_t inner = width * (experts > 16 ? 1 : 2) * ONE_OF(x, 1, 2, 3) / 4;
    active = active > experts / 2 ? 2 : active;
    strbuf_text(x->out, "        layer {\n            ");
    draw_attention(x, width);
    bool shared = once_in(x, 3);
    strbuf_printf(x->out, "            moe swiglu(%u%s) {\n                experts %u\n                active %u\n", inner,
                  !shared && once_in(x, 3) ? ", bias=yes" : "", experts, active);
    if (shared)
        strbuf_text(x->out, "                shared 1\n");
    bool groups = experts >= 64 && active >= 4 && once_in(x, 2);
    strbuf_printf(x->out, "                router %s%s", WORD_OF(x, "softmax(scale=1", "sigmoid(scale=2.5"),
                  groups ? ", groups=8, pick=4" : "");
    strbuf_printf(x->out, "%s)\n", WORD_OF(x, "", ", bias=yes"));
    if (once_in(x, 4))
        strbuf_text(x->out, "                balance 0.01\n");
    strbuf_text(x->out, "            }\n        }\n");
}

static void draw_predict(struct draw *x, uint32_t width)
{
    bool own = once_in(x, 2);
    strbuf_printf(x->out, "    predict 1 ahead%s\n", own ? " {" : "");
    if (!own)
        return;
    draw_dense(x, width);
    strbuf_text(x->out, "    }\n");
}

static void draw_model(struct draw *x)
{
    uint32_t width = 128 * ONE_OF(x, 16, 16, 32, 32, 40, 48, 64, 64, 96, 128);
    bool experts = once_in(x, 2), positions = !experts && once_in(x, 5);
    uint32_t sequence = ONE_OF(x, 2048, 4096, 4096, 8192, 8192, 16384, 32768), layers = ONE_OF(x, 8, 16, 24, 32, 40, 48);
    uint32_t vocab = ONE_OF(x, 32000, 50257, 128256, 151936);
    strbuf_printf(x->out, "llmc 1\nmodel drawn {\n    vocab %u\n    width %u\n    norm %s\n    embed tokens\n", vocab, width,
                  WORD_OF(x, "rmsnorm", "rmsnorm", "layernorm"));
    if (positions)
        strbuf_printf(x->out, "    embed positions(%u)\n", sequence);
    if (!experts || once_in(x, 3)) {
        strbuf_printf(x->out, "    repeat %u {\n", experts ? ONE_OF(x, 1, 3) : layers);
        draw_dense(x, width);
        strbuf_text(x->out, "    }\n");
    }
    if (experts) {
        strbuf_printf(x->out, "    repeat %u {\n", layers);
        draw_experts(x, width);
        strbuf_text(x->out, "    }\n");
    }
    strbuf_printf(x->out, "    head %s\n", WORD_OF(x, "untied", "untied", "tied"));
    if (experts && once_in(x, 6))
        draw_predict(x, width);
    static const char *const eight[] = {"fp8(recipe=block)", "fp8(recipe=block, dispatch=fp8)", "fp8(recipe=block, activations=fp8)",
                                        "fp8(recipe=block, dispatch=fp8, activations=fp8)"};
    strbuf_printf(x->out, "}\ntrain {\n    sequence %u\n    batch 8 sequences\n    precision %s\n", sequence,
                  WORD_OF(x, "bf16(master=fp32, grads=fp32)", "bf16(grads=bf16)", "bf16",
                          "bf16(master=fp32, grads=fp32, moments=bf16)",
                          eight[x->seed % 4], "fp32"));
    strbuf_printf(x->out, "    optimizer %s\n",
                  WORD_OF(x, "adamw(lr=1e-4)", "adamw(lr=1e-4)", "adamw(lr=1e-4)", "sgd(lr=0.1, momentum=0.9)"));
    if (experts)
        strbuf_printf(x->out, "    imbalance %s\n", WORD_OF(x, "1", "1.15"));
    strbuf_text(x->out, "}\n");
}

/* a worked example without its plan */
static void take_example(struct draw *x, const char *name)
{
    char path[80], line[1000];
    snprintf(path, sizeof path, "plans/%s/model.llm", name);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f) && strncmp(line, "plan {", 6))
        strbuf_text(x->out, line);
    if (f)
        fclose(f);
}

/* ---- decisions ---- */

static uint32_t degree(struct draw *x, uint32_t most_log2)
{
    return random_below(x->state, 2) ? 1u << random_below(x->state, most_log2 + 1) : 1;
}

static bool has_experts(const struct job *job)
{
    bool any = false;
    for (uint32_t i = 0; i < job->model.nlayers; i++)
        any |= job->model.layers[i]->is_moe;
    return any;
}

/* what is seldom legal is drawn first and kept over some tries of the rest */
struct aim {
    enum schedule_kind schedule;
    bool piped;
    uint32_t ep, etp;
};

static struct aim draw_aim(struct draw *x, bool experts)
{
    struct aim aim = {.schedule = (enum schedule_kind)random_below(x->state, NSCHEDULES), .ep = 1, .etp = 1};
    aim.piped = random_below(x->state, 5);
    if (aim.schedule == SCHED_AUTO)
        aim.schedule = SCHED_FILE;
    if (experts) {
        aim.ep = once_in(x, 4) ? 1 : 1u << random_below(x->state, 7);
        aim.etp = once_in(x, 6) ? 2 : 1;
    }
    return aim;
}

static void draw_recompute(struct draw *x, struct decision *d)
{
    static const enum recompute kinds[] = {RECOMPUTE_NONE, RECOMPUTE_NONE, RECOMPUTE_FULL, RECOMPUTE_SELECTIVE};
    d->recompute = kinds[random_below(x->state, 4)];
    if (d->recompute == RECOMPUTE_SELECTIVE)
        d->parts = once_in(x, 2) ? 1 + random_below(x->state, 255) : 1u << random_below(x->state, 8);
    if (d->recompute == RECOMPUTE_FULL && once_in(x, 3))
        d->recompute_layers = 1 + random_below(x->state, 3);
}

static void draw_degrees(struct draw *x, const struct aim *aim, struct decision *d)
{
    static const enum axis orders[][NAXES] = {{AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP},
                                              {AXIS_TP, AXIS_CP, AXIS_PP, AXIS_DP},
                                              {AXIS_CP, AXIS_TP, AXIS_DP, AXIS_PP}};
    memcpy(d->order, orders[random_below(x->state, 6) < 4 ? 0 : random_below(x->state, 3)], sizeof d->order);
    d->tp = degree(x, 3);
    d->cp = once_in(x, 2) ? 1 : degree(x, 4);
    d->pp = aim->piped ? 2u << random_below(x->state, 4) : 1;
    d->dp = 1u << random_below(x->state, 9);
    d->ep = aim->ep;
    d->etp = aim->etp;
    d->sp = d->tp > 1 && random_below(x->state, 3);
    d->context = (enum context_kind)(1 + random_below(x->state, 3));
    d->zero = random_below(x->state, 4);
    d->shard = d->zero ? d->dp * d->cp : 1;
    if (d->zero && once_in(x, 6))
        d->shard = 1u << random_below(x->state, 5);
    d->microbatch = ONE_OF(x, 1, 1, 1, 2, 4);
    d->schedule = aim->schedule;
    d->vpp = schedule_chunks(d->schedule);
    if (!d->vpp)
        d->vpp = aim->schedule == SCHED_FILE ? 1 + random_below(x->state, 2) : ONE_OF(x, 2, 2, 3, 4);
    d->nstages = d->pp * d->vpp;
    uint32_t rounds = 1 + random_below(x->state, 4);
    d->microbatches = once_in(x, 8) ? 1 : d->pp > 1 ? rounds * d->pp : rounds;
}

/* a formula's schedule, as if another program had written it */
static bool listed(struct draw *x, struct decision *d)
{
    if (d->schedule != SCHED_FILE)
        return true;
    struct decision like = *d;
    like.schedule = d->vpp == 1 ? ONE_OF(x, SCHED_1F1B, SCHED_ZB_H1, SCHED_GPIPE)
                                : ONE_OF(x, SCHED_INTERLEAVED, SCHED_V_HALF, SCHED_ZB_V);
    d->folds = decision_folds(&like);
    d->listed = schedule_new(x->a, &like);
    return d->listed != NULL;
}

static bool finish(struct draw *x, struct job *job, const struct topo *topo, struct decision *d)
{
    const char *why;
    uint32_t n = job->model.nlayers;
    if ((uint64_t)n * d->microbatches > MOST_WORK || d->nstages > n)
        return false;
    job->train.batch = (uint64_t)d->dp * d->microbatch * d->microbatches;
    if (!decision_place(x->a, topo, d, &why))
        return false;
    decision_cut(x->a, d, n, NULL, 0.5, 1);
    decision_spare(d);
    struct decision plain = *d;
    if (d->schedule == SCHED_FILE && (!decision_legal(x->a, job, topo, &plain, &why) || !listed(x, d)))
        return false;
    for (uint32_t s = 0; s < d->nstages && d->recompute == RECOMPUTE_FULL && !d->recompute_layers; s++)
        if (random_below(x->state, 4) == 0)
            d->stages[s].spared = random_below(x->state, d->stages[s].count + 1);
    return decision_legal(x->a, job, topo, d, &why) && decision_emittable(x->a, job, d, &why);
}

/* what a job says and a decision does not */
static void draw_wishes(struct draw *x, struct job *job, bool experts)
{
    static const uint32_t never[] = {0, 0, 0, 0, OVERLAP_CP, OVERLAP_DP};
    job->wishes.offload = once_in(x, 6) ? 1 + random_below(x->state, 3) : 0;
    job->wishes.never_overlap = never[random_below(x->state, sizeof never / sizeof *never)];
    bool can = !experts && job->train.optimizer == OPT_ADAMW && !(job->wishes.offload & OFFLOAD_OPTIMIZER);
    job->wishes.post_validation = can && once_in(x, 2);
    /* from bits of the last draw, so that a seed's layout stays what it was; of other stacks it is not emitted */
    bool overlaps = *x->state >> 41 & 1 && job->wishes.profile->allocator < 0.5;
    job->wishes.overlap = overlaps ? OVERLAP_TP : 0;
}

bool sized_draw(struct arena *a, uint64_t seed, struct sized_draw *out)
{
    uint64_t state = seed * 0x2545f4914f6cdd1du + 1;
    struct strbuf text = {0};
    struct draw x = {.a = a, .state = &state, .seed = seed, .out = &text};
    if (once_in(&x, 4))
        take_example(&x, WORD_OF(&x, examples[0], examples[1], examples[2], examples[3], examples[4], examples[5],
                                 examples[6], examples[7]));
    else
        draw_model(&x);
    static const char *const profiles[] = {"megatron-core", "torch-fsdp", "megatron-2022"};
    if (once_in(&x, 4))
        strbuf_printf(&text, "plan {\n    profile \"%s\"\n}\n", profiles[random_below(&state, 3)]);
    *out = (struct sized_draw){.model = arena_strdup(a, text.text),
                               .cluster = clusters[random_below(&state, sizeof clusters / sizeof *clusters)]};
    strbuf_free(&text);
    out->job = text_job(a, out->model);
    out->topo = topo_read(a, diag_new(a), out->cluster);
    if (!out->job || !out->topo)
        return false;
    bool experts = has_experts(out->job);
    draw_wishes(&x, out->job, experts);
    struct aim aim = {0};
    for (uint32_t tries = 0; tries < TRIES; tries++) {
        struct arena_mark mark = arena_mark(a);
        struct decision d = decision_single();
        if (tries % 100 == 0)
            aim = draw_aim(&x, experts);
        draw_degrees(&x, &aim, &d);
        draw_recompute(&x, &d);
        uint64_t ranks = (uint64_t)d.tp * d.cp * d.pp * d.dp;
        if (ranks <= out->topo->gpus && ranks <= 1u << MOST_GPUS_LOG2 && finish(&x, out->job, out->topo, &d)) {
            if (experts && d.ep > 1) /* as fit_plan() has it, or less where memory is short */
                d.room = once_in(&x, 4) ? 1.2 : cost_usual_room(out->job, &out->topo->types[d.type].gpu);
            out->decision = d;
            return true;
        }
        arena_reset(a, mark);
    }
    return false;
}
