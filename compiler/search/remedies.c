/* Single changes of a decision that does not fit, each evaluated: what it saves and what it costs. */

#include "compiler/model/means.h"
#include "compiler/search/passes.h"
#include "compiler/search/state.h"

#include <stdlib.h>
#include <string.h>

struct change {
    const struct job *job;
    const struct topo *topo;
    uint64_t usable; /* GPUs of the decision's type */
};

enum {
    CHANGE_SELECTIVE,
    CHANGE_FULL,
    CHANGE_PP,
    CHANGE_ZERO,
    CHANGE_TP,
    CHANGE_SP,
    CHANGE_MICROBATCH,
    CHANGE_CP,
    CHANGE_EP,
    CHANGE_SCHEDULE,
    CHANGE_DP,
    NCHANGES
};

static bool recompute(struct decision *d, enum recompute kind, uint32_t parts)
{
    d->recompute = kind;
    d->parts = parts;
    d->recompute_layers = 0;
    return true;
}

static bool times(uint32_t *degree, uint32_t factor)
{
    *degree *= factor;
    return true;
}

/* Applies one change to d; false if it does not apply. */
static bool apply(struct arena *a, const struct change *x, int which, struct decision *d, const char **name)
{
    bool room = (uint64_t)d->gpus_used * 2 <= x->usable, done = false;
    uint32_t layers = x->job->model.nlayers;
    switch (which) {
    case CHANGE_SELECTIVE:
        done = d->recompute == RECOMPUTE_NONE &&
               recompute(d, RECOMPUTE_SELECTIVE, PART_CORE_ATTN | PART_NORM | PART_FFN_ACT);
        *name = "recompute [norm, core_attn, ffn_act]";
        break;
    case CHANGE_FULL:
        done = (d->recompute != RECOMPUTE_FULL || d->recompute_layers) && recompute(d, RECOMPUTE_FULL, 0);
        *name = "recompute full";
        break;
    case CHANGE_PP:
        if (d->pp * 2 * d->vpp <= layers && !x->job->wishes.layout && room)
            done = times(&d->pp, 2);
        *name = arena_printf(a, "pp %u", d->pp);
        break;
    case CHANGE_ZERO:
        if (d->zero < 3 && d->dp * d->cp > 1) {
            d->zero++;
            d->shard = d->dp * d->cp;
            done = true;
        }
        *name = arena_printf(a, "zero %u", d->zero);
        break;
    case CHANGE_TP:
        if (d->tp * 2 <= x->topo->types[d->type].gpus && room)
            done = times(&d->tp, 2);
        *name = arena_printf(a, "tp %u", d->tp);
        break;
    case CHANGE_SP:
        done = d->tp > 1 && !d->sp;
        d->sp |= done;
        *name = "sequence parallelism";
        break;
    case CHANGE_MICROBATCH:
        if (d->microbatch % 2 == 0) {
            d->microbatch /= 2;
            done = times(&d->microbatches, 2);
        }
        *name = arena_printf(a, "microbatch %u", d->microbatch);
        break;
    case CHANGE_CP:
        if (room && d->context != CONTEXT_ALL_TO_ALL) {
            d->context = d->cp == 1 ? CONTEXT_ALL_GATHER : d->context;
            d->shard *= d->zero ? 2 : 1;
            done = times(&d->cp, 2);
        }
        *name = arena_printf(a, "cp %u", d->cp);
        break;
    case CHANGE_EP:
        if ((uint64_t)d->tp * d->cp * d->dp % (2 * (uint64_t)d->ep * d->etp) == 0)
            done = times(&d->ep, 2);
        *name = arena_printf(a, "ep %u", d->ep);
        break;
    case CHANGE_SCHEDULE:
        done = d->schedule == SCHED_GPIPE;
        d->schedule = done ? SCHED_1F1B : d->schedule;
        *name = "schedule 1f1b";
        break;
    case CHANGE_DP:
        if (room && d->zero && d->microbatches % 2 == 0) {
            d->shard = d->shard == d->dp * d->cp ? 2 * d->shard : d->shard;
            d->microbatches /= 2;
            done = times(&d->dp, 2);
        }
        *name = arena_printf(a, "dp %u", d->dp);
        break;
    }
    return done;
}

/* Copies the stages, or cuts them anew if their number has changed. */
static void cut_again(struct arena *a, const struct job *job, const struct cost *c, struct decision *d, bool anew)
{
    uint32_t n = job->model.nlayers;
    struct stage *stages = ARENA_ARRAY(a, struct stage, d->nstages);
    memcpy(stages, d->stages, d->nstages * sizeof *stages);
    d->stages = stages;
    if (anew) {
        double *layer_s = ARENA_ARRAY(a, double, n ? n : 1), embed_s, head_s;
        cost_layers(a, c, layer_s, &embed_s, &head_s);
        decision_cut(a, d, n, layer_s, embed_s, head_s);
    }
    decision_spare(d);
}

static int compare_remedies(const void *x, const void *y)
{
    const struct remedy *a = x, *b = y;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    if (a->candidate.emittable != b->candidate.emittable)
        return a->candidate.emittable ? -1 : 1;
    if (a->saves_bytes != b->saves_bytes)
        return a->saves_bytes > b->saves_bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

uint32_t search_remedies(struct arena *a, const struct job *job, const struct topo *topo, const struct candidate *miss,
                         uint64_t limit_bytes, bool emit_only, struct remedy **out)
{
    uint32_t *nodes, n = 0;
    const struct decision *from = &miss->decision;
    struct change x = {job, topo, (uint64_t)topo_usable(a, topo, from->type, &nodes) * topo->types[from->type].gpus};
    struct estimate before;
    const char *untold = search_untold(a, job);
    cost_estimate(a, cost_new(a, job, topo, from), &before);
    *out = ARENA_ARRAY(a, struct remedy, NCHANGES);
    for (int which = 0; which < NCHANGES; which++) {
        struct remedy r = {.candidate.decision = *from};
        struct decision *d = &r.candidate.decision;
        const char *why = NULL;
        if (!apply(a, &x, which, d, &r.name) || !decision_place(a, topo, d, &why))
            continue;
        struct cost *c = cost_new(a, job, topo, d);
        cut_again(a, job, c, d, d->pp != from->pp);
        if (!decision_legal(a, job, topo, d, &why) || !means_allow(a, job, d, &why))
            continue;
        cost_estimate(a, c, &r.candidate.estimate);
        if (r.candidate.estimate.peak_bytes >= before.peak_bytes)
            continue;
        why = untold;
        r.candidate.emittable = !why && decision_emittable(a, job, d, &why);
        r.candidate.cannot = r.candidate.emittable ? NULL : why;
        r.saves_bytes = before.peak_bytes - r.candidate.estimate.peak_bytes;
        r.slower = r.candidate.estimate.step_time_s / before.step_time_s - 1;
        r.fits = r.candidate.estimate.peak_bytes <= limit_bytes && (r.candidate.emittable || !emit_only);
        (*out)[n++] = r;
    }
    qsort(*out, n, sizeof **out, compare_remedies);
    return n;
}
