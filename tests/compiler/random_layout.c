/* Drawing layouts: dimensions first by a few coins, so that each is often above 1 and seldom all are; then
 * whatever the rules of legality leave. */

#include "tests/compiler/random_layout.h"

#include "compiler/execute/shrink.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/random_plan.h"

#include <stdio.h>
#include <stdlib.h>

#define TRAIN(batch)                                                                                         \
    "train {\n    sequence 16\n    batch " batch                                                             \
    " sequences\n    precision fp32\n    optimizer adamw(lr=1e-3)\n}\n"
#define MODEL "llmc 1\nmodel tiny {\n    vocab 53\n    width 16\n"

const struct layout_model layout_models[] = {
    {"llama", MODEL "    norm rmsnorm\n    embed tokens\n    repeat 6 {\n        layer {\n"
                    "            attn gqa(heads=8, kv=4, head=4, rope=10_000)\n            ffn swiglu(24)\n  "
                    "      }\n    }\n"
                    "    head untied\n}\n" TRAIN("16")},
    {"gpt2",
     MODEL "    norm layernorm\n    embed tokens\n    embed positions(16)\n    repeat 5 {\n        layer {\n"
           "            attn mha(heads=4, bias=yes)\n            ffn gelu(32, bias=yes)\n        }\n    }\n"
           "    head tied\n}\n" TRAIN("24")},
    {"mistral", MODEL
     "    norm rmsnorm\n    embed tokens\n    repeat 8 {\n        layer {\n"
     "            attn gqa(heads=4, kv=1, window=6, rope=500)\n            ffn geglu(16)\n        }\n    }\n"
     "    head tied\n}\n" TRAIN("16")},
    {"mixtral", MODEL
     "    norm rmsnorm\n    embed tokens\n    repeat 4 {\n        layer {\n"
     "            attn gqa(heads=4, kv=4, rope=10_000)\n            moe swiglu(16) {\n"
     "                experts 4\n                active 2\n                router softmax\n            }\n"
     "        }\n    }\n    head untied\n}\n" TRAIN("12")},
    {"gemma",
     MODEL "    norm rmsnorm(place=both)\n    embed tokens(scale=yes)\n    repeat 2 {\n        layer {\n"
           "            attn gqa(heads=4, kv=2, window=6, rope=10_000, softcap=5, scale=6)\n"
           "            ffn geglu(32)\n        }\n        layer {\n"
           "            attn gqa(heads=4, kv=2, rope=10_000, softcap=5, scale=6)\n            ffn geglu(32)\n"
           "        }\n    }\n    head tied(softcap=8)\n}\n" TRAIN("16")},
    {"neox", MODEL "    norm layernorm\n    embed tokens\n    repeat 4 {\n        layer parallel(norms=2) {\n"
                   "            attn mha(heads=4, rope=rotary(10_000, dims=2), bias=yes)\n"
                   "            ffn gelu(32, bias=yes)\n        }\n    }\n    head untied\n}\n" TRAIN("12")},
    {"qwen3",
     MODEL "    norm rmsnorm\n    embed tokens\n    repeat 4 {\n        layer {\n"
           "            attn gqa(heads=4, kv=2, rope=10_000, qk_norm=head)\n            moe swiglu(16) {\n"
           "                experts 8\n                active 2\n                router softmax\n"
           "            }\n        }\n    }\n    head untied\n}\n" TRAIN("16")},
    {"latent",
     MODEL "    norm rmsnorm\n    embed tokens\n    repeat 4 {\n        layer {\n"
           "            attn mla(heads=4, kv_rank=8, nope=4, rope=2, v=6)\n            ffn swiglu(24)\n"
           "        }\n    }\n    head untied\n}\n" TRAIN("16")},
    {"balanced", MODEL "    norm rmsnorm\n    embed tokens\n    repeat 3 {\n        layer {\n"
                       "            attn gqa(heads=4, kv=2, rope=10_000)\n            moe swiglu(16) {\n"
                       "                experts 4\n                active 2\n                router softmax\n"
                       "                balance 0.01\n            }\n        }\n"
                       "    }\n    head tied\n}\n" TRAIN("12")},
    {"deepseek", MODEL
     "    norm rmsnorm\n    embed tokens\n    repeat 1 {\n        layer {\n"
     "            attn mla(heads=4, q_rank=8, kv_rank=8, nope=4, rope=4, v=4)\n            ffn swiglu(24)\n"
     "        }\n    }\n    repeat 3 {\n        layer {\n"
     "            attn mla(heads=4, q_rank=8, kv_rank=8, nope=4, rope=4, v=4)\n            moe swiglu(8) {\n"
     "                experts 8\n                active 2\n                shared 1\n"
     "                router sigmoid(groups=4, pick=2, bias=yes, scale=2.5)\n            }\n        }\n"
     "    }\n    head untied\n}\n" TRAIN("16")},
    {"predict", MODEL
     "    norm rmsnorm\n    embed tokens\n    repeat 1 {\n        layer {\n"
     "            attn mla(heads=4, q_rank=8, kv_rank=8, nope=4, rope=4, v=4)\n            ffn swiglu(24)\n"
     "        }\n    }\n    repeat 3 {\n        layer {\n"
     "            attn mla(heads=4, q_rank=8, kv_rank=8, nope=4, rope=4, v=4)\n            moe swiglu(8) {\n"
     "                experts 8\n                active 2\n                shared 1\n"
     "                router sigmoid(groups=4, pick=2, bias=yes, scale=2.5)\n            }\n        }\n"
     "    }\n    predict 1 ahead\n    head untied\n}\n" TRAIN("16")},
    {"gpt-oss", MODEL
     "    norm rmsnorm\n    embed tokens\n    repeat 2 {\n        layer {\n"
     "            attn gqa(heads=8, kv=2, head=4, window=6, rope=500, bias=yes, sinks=yes)\n            moe swiglu(16, bias=yes, limit=7, "
     "alpha=1.702, offset=1) {\n                experts 4\n                active 2\n"
     "                router softmax(linear_bias=yes)\n            }\n        }\n        layer {\n"
     "            attn gqa(heads=8, kv=2, head=4, rope=500, bias=yes, sinks=yes)\n            ffn swiglu(24, limit=0.5)\n"
     "        }\n    }\n    head untied\n}\n" TRAIN("16")},
    /* experts in a prediction module alone */
    {"module", MODEL "    norm rmsnorm\n    embed tokens\n    repeat 4 {\n        layer {\n"
                     "            attn gqa(heads=4, kv=2, rope=10_000)\n            ffn swiglu(24)\n        }\n    }\n"
                     "    predict 1 ahead {\n        layer {\n            attn gqa(heads=8, kv=4, head=4, window=6, alibi=yes)\n"
                     "            moe gelu(16) {\n                experts 4\n                active 2\n"
                     "                router sigmoid(bias=yes)\n                balance 0.01\n            }\n        }\n    }\n"
                     "    head untied\n}\n" TRAIN("16")},
    {"bloom", MODEL "    norm layernorm\n    embed tokens(norm=yes)\n    repeat 4 {\n        layer {\n"
                    "            attn mha(heads=12, head=4, alibi=yes)\n            ffn gelu(32, bias=yes)\n"
                    "        }\n    }\n    head tied\n}\n" TRAIN("12")},
};
const uint32_t layout_nmodels = sizeof layout_models / sizeof *layout_models;

static uint32_t degree(uint64_t *state, uint32_t most_log2)
{
    return random_below(state, 2) ? 1u << random_below(state, most_log2 + 1) : 1;
}

/* the same, but half of the time with a factor of 3 where `of`, which it must divide, has one; a draw of its
 * own only there, so that layouts of a seed stay what they were for other models */
static uint32_t degree_of(uint64_t *state, uint32_t most_log2, uint64_t of)
{
    uint32_t power = degree(state, most_log2);
    return of % 3 == 0 && random_below(state, 2) ? 3 * (power > 2 ? 2 : power) : power;
}

static uint64_t common(uint64_t x, uint64_t y)
{
    while (y) {
        uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

/* what tp must divide, and ep; 0: nothing */
static uint64_t common_heads(const struct job *job)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < model_all_layers(&job->model); i++)
        n = common(n, model_layer(&job->model, i)->attn.heads);
    return n;
}

static uint64_t common_experts(const struct job *job)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < model_all_layers(&job->model); i++)
        n = common(n, model_layer(&job->model, i)->is_moe ? model_layer(&job->model, i)->moe.experts : 0);
    return n;
}

/* What is seldom legal is drawn first and kept over some tries of the rest: else the easy ones would crowd it
 * out. */
struct aim {
    enum schedule_kind schedule;
    bool piped, wide; /* pp > 1; groups of more than pp microbatches */
    uint32_t vpp, tp, ep, etp;
};

static struct aim draw_aim(uint64_t *state, const struct job *job)
{
    struct aim x = {
        .piped = random_below(state, 4), .tp = degree_of(state, 2, common_heads(job)), .ep = 1, .etp = 1};
    x.schedule = random_below(state, 6) ? (enum schedule_kind)random_below(state, NSCHEDULES) : SCHED_1F1B;
    x.vpp = schedule_chunks(x.schedule);
    if (x.schedule == SCHED_AUTO || x.schedule == SCHED_FILE)
        x.vpp = 1 + random_below(state, 2);
    else if (!x.vpp) {
        x.vpp = 2 + random_below(state, 2);
        x.wide = random_below(state, 3) == 0;
    }
    if (model_has_experts(&job->model)) {
        x.ep = 1u << random_below(state, 4);
        if (common_experts(job) % 3 == 0 && random_below(state, 2))
            x.ep = 3u << random_below(state, 2);
        x.etp = degree(state, 1);
    }
    return x;
}

/* some formula's schedule of this shape, printed and read again as another program's would be; NULL where
 * there is none */
static const struct schedule *filed(struct arena *a, uint64_t *state, struct decision *d)
{
    struct decision like = *d;
    char *text = NULL;
    size_t size = 0;
    const char *why;
    do
        like.schedule = (enum schedule_kind)random_below(state, SCHED_AUTO);
    while (like.schedule == SCHED_DUALPIPE); /* the form has one copy of the model */
    struct schedule *s = schedule_new(a, &like);
    FILE *f = s ? open_memstream(&text, &size) : NULL;
    if (!f)
        return NULL;
    schedule_print(s, f);
    fclose(f);
    s = schedule_parse(a, text, size, &why);
    free(text);
    d->folds = decision_folds(&like);
    return s;
}

static bool listed(struct arena *a, uint64_t *state, struct decision *d)
{
    if (d->schedule == SCHED_FILE)
        return (d->listed = filed(a, state, d)) != NULL;
    if (d->schedule != SCHED_AUTO)
        return true;
    d->folds = d->vpp == 2 && random_below(state, 2);
    d->listed = shrink_schedule(a, d, random_below(state, 1000));
    return d->listed != NULL;
}

static void draw_recompute(uint64_t *state, struct decision *d)
{
    static const enum recompute kinds[] = {RECOMPUTE_NONE, RECOMPUTE_NONE, RECOMPUTE_FULL,
                                           RECOMPUTE_SELECTIVE};
    d->recompute = kinds[random_below(state, 4)];
    d->parts = d->recompute == RECOMPUTE_SELECTIVE ? 1 + random_below(state, 255) : 0;
    if (d->recompute == RECOMPUTE_SELECTIVE && random_below(state, 2)) /* one alone, as is usual */
        d->parts = 1u << random_below(state, 8);
    d->recompute_layers =
        d->recompute == RECOMPUTE_FULL && random_below(state, 3) == 0 ? 1 + random_below(state, 2) : 0;
}

/* the k-th of all orders, of which the usual ones are drawn more often */
static void any_order(uint64_t k, enum axis order[NAXES])
{
    enum axis left[NAXES] = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP};
    for (uint32_t i = 0; i < NAXES; i++) {
        uint32_t at = (uint32_t)(k % (NAXES - i));
        k /= NAXES - i;
        order[i] = left[at];
        for (; at + 1 < NAXES; at++)
            left[at] = left[at + 1];
    }
}

static void draw_degrees(uint64_t *state, const struct aim *aim, const struct job *job, struct decision *d)
{
    static const enum axis orders[][NAXES] = {{AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP},
                                              {AXIS_TP, AXIS_CP, AXIS_PP, AXIS_DP},
                                              {AXIS_CP, AXIS_TP, AXIS_DP, AXIS_PP}};
    const enum axis *order = orders[random_below(state, 6) < 3 ? 0 : random_below(state, 3)];
    for (int i = 0; i < NAXES; i++)
        d->order[i] = order[i];
    if ((*state >> 44 & 7) == 0)
        any_order(*state >> 47, d->order);
    d->tp = aim->tp;
    d->cp = degree_of(state, 2, job->train.sequence);
    d->pp = aim->piped ? 2 + random_below(state, 3) : 1;
    d->dp = random_below(state, 4) ? degree(state, 3) : 3;
    if (random_below(state, 12) == 0)
        d->tp = d->cp = d->pp = d->dp = 2;
    d->ep = aim->ep;
    d->etp = aim->etp;
    /* from bits of the last draw, so that a seed's layout stays what it was in all else */
    d->ep_nodes = d->ep > 2 && *state >> 40 & 3 ? d->ep > 4 && *state >> 42 & 1 ? 4 : 2 : 1;
    d->sp = d->tp > 1 && random_below(state, 3);
    d->context = (enum context_kind)(1 + random_below(state, 3));
    d->zero = random_below(state, 4);
    d->shard = d->zero ? d->dp * d->cp : 1;
    if (d->zero && random_below(state, 2))
        d->shard = random_below(state, 2) ? d->dp : degree(state, 3);
    d->prefetch = d->zero == 3 && !(job->wishes.never_overlap & OVERLAP_DP) ? random_below(state, 4) : 0;
    d->microbatch = 1 + random_below(state, 3);
    d->schedule = aim->schedule;
    d->vpp = aim->vpp;
    d->schedule_group = aim->wide ? d->pp + 1 + random_below(state, 2) : 0;
    d->nstages = d->pp * d->vpp;
}

/* may it be legal with some schedule of its kind?  Asked before one is synthesised, which takes long */
static bool worth_listing(struct arena *a, const struct job *job, const struct topo *topo,
                          const struct decision *d)
{
    struct decision t = *d;
    const char *why;
    if (d->schedule != SCHED_AUTO && d->schedule != SCHED_FILE)
        return true;
    decision_cut(a, &t, job->model.nlayers, NULL, 0, 0);
    decision_spare(&t);
    return decision_legal(a, job, topo, &t, &why) && decision_emittable(a, job, &t, &why);
}

static bool finish(struct arena *a, uint64_t *state, const struct job *job, const struct topo *topo,
                   struct decision *d)
{
    const char *why;
    uint32_t n = job->model.nlayers;
    d->microbatches = (uint32_t)(job->train.batch / d->dp / d->microbatch);
    if (!d->microbatches || job->train.batch % ((uint64_t)d->dp * d->microbatch) ||
        d->pp > d->microbatches * 8 || !decision_place(a, topo, d, &why) || !worth_listing(a, job, topo, d) ||
        !listed(a, state, d))
        return false;
    double *cost = ARENA_ARRAY(a, double, n);
    for (uint32_t i = 0; i < n; i++)
        cost[i] = 1 + random_below(state, 4);
    uint32_t head = random_below(state, 3), embed = random_below(state, 3);
    decision_cut(a, d, n, cost, embed, head);
    decision_spare(d);
    for (uint32_t s = 0; s < d->nstages && d->recompute == RECOMPUTE_FULL && !d->recompute_layers; s++)
        if (random_below(state, 4) == 0)
            d->stages[s].spared = random_below(state, d->stages[s].count + 1);
    return decision_legal(a, job, topo, d, &why) && decision_emittable(a, job, d, &why);
}

bool layout_draw(struct arena *a, uint64_t *state, const struct job *job, const struct topo *topo,
                 uint32_t max_ranks, struct decision *out)
{
    struct arena_mark mark = arena_mark(a);
    struct aim aim = {0};
    for (uint32_t tries = 0; tries < 100000; tries++) {
        struct decision d = decision_single();
        if (tries % 300 == 0)
            aim = draw_aim(state, job);
        draw_degrees(state, &aim, job, &d);
        draw_recompute(state, &d);
        uint32_t ranks = d.tp * d.cp * d.pp * d.dp;
        if (ranks < 2 || ranks > max_ranks || d.nstages > job->model.nlayers)
            continue;
        if (finish(a, state, job, topo, &d)) {
            *out = d;
            return true;
        }
        arena_reset(a, mark);
    }
    return false;
}

void layout_wishes(uint64_t *state, struct job *job)
{
    static const uint32_t never[] = {0, 0, 0, OVERLAP_CP, OVERLAP_DP, OVERLAP_CP | OVERLAP_DP};
    job->wishes.offload = random_below(state, 2) ? 0 : random_below(state, 4); /* bits of offload_part */
    job->wishes.never_overlap = never[random_below(state, sizeof never / sizeof *never)];
    bool can = !model_has_experts(&job->model) && job->train.optimizer == OPT_ADAMW && !(job->wishes.offload & OFFLOAD_OPTIMIZER);
    /* from a bit of the last draw, so that a seed's layout stays what it was */
    job->wishes.post_validation = can && *state >> 40 & 1;
    job->wishes.overlap = *state >> 41 & 1 ? OVERLAP_TP : 0; /* and from others of it */
    static const uint32_t turns[] = {0, 0, OVERLAP_TP, OVERLAP_ALL_TO_ALL, OVERLAP_TP | OVERLAP_ALL_TO_ALL};
    uint64_t apart = *state;
    job->wishes.never_overlap |= turns[random_below(&apart, sizeof turns / sizeof *turns)] & ~job->wishes.overlap;
}

struct decision layout_alone(struct arena *a, const struct job *job, const struct topo *topo)
{
    struct decision d = decision_single();
    const char *why = "";
    d.microbatches = (uint32_t)job->train.batch;
    decision_place(a, topo, &d, &why);
    decision_cut(a, &d, job->model.nlayers, NULL, 0, 0);
    return d;
}
