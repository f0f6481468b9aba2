/* What the answer depends on: the chosen plan on a cluster in which one bandwidth, or computing, is 10 % less
 * or more, or one node is slower; and whether another plan would be chosen there.
 *
 * The other plans are the search's best ones, estimated again on the changed cluster; with --all the search
 * runs again on each of them.  Measured curves scale with what they measure: the part of a transfer's time
 * above the first point's, which is latency. */

#include "compiler/inspect/explain_private.h"
#include "compiler/simulate/predict.h"

#include <math.h>
#include <string.h>

#define SHIFT 0.10
/* changes of the choice that gain less than this are a tie */
#define TIE 0.002

enum shift_kind { SHIFT_COMPUTE, SHIFT_MEMORY, SHIFT_SCALE_UP, SHIFT_NIC, SHIFT_TIER, SHIFT_NODE };

static void scale_curve(struct arena *a, struct topo_measured *m, double factor)
{
    struct topo_point *points = ARENA_ARRAY(a, struct topo_point, m->npoints ? m->npoints : 1);
    for (uint32_t i = 0; i < m->npoints; i++) {
        points[i] = m->points[i];
        points[i].flop_s *= factor;
        points[i].backward_flop_s *= factor;
        points[i].seconds = points[0].seconds + (points[i].seconds - m->points[0].seconds) / factor;
    }
    m->points = points;
}

/* does a curve measure what is changed? */
static bool curve_of(const struct topo *t, const struct topo_measured *m, enum shift_kind kind, uint32_t tier)
{
    bool product = !strcmp(m->kind, "gemm") || !strcmp(m->kind, "attention"), collective = m->ranks > 0;
    bool inside = m->tier && !strcmp(m->tier, topo_level_name(t, 0));
    bool here = m->tier && tier < t->ntiers && !strcmp(m->tier, t->tiers[tier].name);
    switch (kind) {
    case SHIFT_COMPUTE:
        return product;
    case SHIFT_SCALE_UP:
        return collective && inside;
    case SHIFT_NIC:
        return collective && !inside;
    case SHIFT_TIER:
        return collective && here;
    case SHIFT_MEMORY:
    case SHIFT_NODE:
        break;
    }
    return false;
}

static void scale_type(struct arena *a, struct topo_node_type *y, enum shift_kind kind, double factor)
{
    if (kind == SHIFT_COMPUTE)
        for (int i = 0; i < NTOPO_DTYPES; i++)
            y->gpu.peak_flop_s[i] *= factor;
    if (kind == SHIFT_MEMORY)
        y->gpu.memory_bytes_s *= factor;
    if (kind == SHIFT_SCALE_UP) {
        y->scale_up.bytes_s *= factor;
        y->host_bytes_s *= y->scale_up.kind == SCALE_UP_NONE ? factor : 1;
    }
    if (kind == SHIFT_NIC) {
        struct topo_nic *nics = ARENA_ARRAY(a, struct topo_nic, y->nnics ? y->nnics : 1);
        for (uint32_t i = 0; i < y->nnics; i++) {
            nics[i] = y->nics[i];
            nics[i].bytes_s *= factor;
        }
        y->nics = nics;
        y->nic_bytes_s_per_gpu *= factor;
    }
}

static const struct topo *shifted(struct arena *a, const struct topo *t, enum shift_kind kind, uint32_t which,
                                  double factor)
{
    struct topo *copy = explain_topo(a, t, 0);
    for (uint32_t i = 0; i < t->ntypes; i++)
        scale_type(a, &copy->types[i], kind, factor);
    for (uint32_t i = 0; i < t->nmeasured; i++)
        if (curve_of(t, &t->measured[i], kind, which))
            scale_curve(a, &copy->measured[i], factor);
    if (kind == SHIFT_NIC)
        copy->torus_bytes_s *= factor;
    if (kind == SHIFT_TIER)
        copy->tiers[which].oversubscription /= factor;
    if (kind == SHIFT_NODE)
        copy->nodes[which].compute_factor *= factor;
    return copy;
}

static double step_s(struct explanation *x, const struct topo *t, const struct decision *d)
{
    struct arena_mark mark = arena_mark(x->arena);
    struct estimate e;
    cost_estimate(x->arena, cost_new(x->arena, x->job, t, d), &e);
    arena_reset(x->arena, mark);
    return e.step_time_s;
}

/* what the choice minimises */
static double price(const struct explanation *x, double seconds, const struct decision *d)
{
    return x->job->wishes.objective == MINIMIZE_GPU_TIME ? seconds * d->gpus_used : seconds;
}

static void take_choice(struct explanation *x, const struct decision *d, double gain, struct explain_shift *s)
{
    if (gain < TIE || (s->choice && gain <= s->gain))
        return;
    s->choice = decision_text(x->arena, x->job, d);
    s->gain = gain;
}

/* what a new search there finds */
static void searched_choice(struct explanation *x, const struct topo *t, struct explain_shift *s)
{
    const struct search_result *r = search(x->arena, diag_new(x->arena), x->job, t, 1, x->budget, x->emit_only);
    struct estimate e;
    if (!r->ncandidates)
        return;
    const struct candidate *best = &r->candidates[0];
    predict(x->arena, cost_new(x->arena, x->job, t, &x->chosen.decision), &e);
    double then = price(x, e.step_time_s, &x->chosen.decision);
    take_choice(x, &best->decision, 1 - price(x, best->estimate.step_time_s, &best->decision) / then, s);
}

/* the one of the search's best plans that would be chosen there, if it is another and gains more than it did
 * before */
static void other_choice(struct explanation *x, const struct topo *t, double chosen_s, struct explain_shift *s)
{
    double least = price(x, chosen_s, &x->chosen.decision) * (1 - TIE);
    const struct candidate *best = NULL;
    for (uint32_t i = 0; i < x->found->ncandidates; i++) {
        const struct candidate *c = &x->found->candidates[i];
        double p = price(x, step_s(x, t, &c->decision), &c->decision);
        if (p < least) {
            least = p;
            best = c;
        }
    }
    if (!best)
        return;
    double before = price(x, step_s(x, x->topo, &x->chosen.decision), &x->chosen.decision);
    if (price(x, step_s(x, x->topo, &best->decision), &best->decision) < before * (1 - TIE))
        return; /* it would have won anyhow: the plan is somebody's wish, not our choice */
    take_choice(x, &best->decision, 1 - least / price(x, chosen_s, &x->chosen.decision), s);
}

static void add_shift(struct explanation *x, enum shift_kind kind, uint32_t which, const char *key, const char *what)
{
    double now = step_s(x, x->topo, &x->chosen.decision);
    struct explain_shift s = {.key = key, .what = what, .more = NAN};
    for (int up = 0; up < (kind == SHIFT_NODE ? 1 : 2); up++) {
        const struct topo *t = shifted(x->arena, x->topo, kind, which, up ? 1 + SHIFT : 1 - SHIFT);
        double then = step_s(x, t, &x->chosen.decision);
        *(up ? &s.more : &s.less) = then / now - 1;
        if (x->all)
            searched_choice(x, t, &s);
        else
            other_choice(x, t, then, &s);
    }
    vec_push(x->arena, &x->shifts, s);
}

void explain_shifts(struct explanation *x)
{
    const struct topo *t = x->topo;
    const struct decision *d = &x->chosen.decision;
    add_shift(x, SHIFT_COMPUTE, 0, "compute", "computing");
    add_shift(x, SHIFT_MEMORY, 0, "memory_bandwidth", "memory bandwidth");
    bool joined = t->types[d->type].scale_up.kind != SCALE_UP_NONE;
    if (t->types[d->type].gpus * t->types[d->type].scale_up.span > 1)
        add_shift(x, SHIFT_SCALE_UP, 0, "scale_up", joined ? "scale-up bandwidth" : "bandwidth inside a node");
    if (t->nnodes > 1) {
        add_shift(x, SHIFT_NIC, 0, t->torus_dims ? "torus" : "nic",
                  !t->torus_dims  ? "NIC bandwidth"
                  : t->ntiers > 1 ? "bandwidth of torus and NICs"
                                  : "torus bandwidth");
        for (uint32_t i = t->torus_dims > 0; i < t->ntiers; i++) {
            add_shift(x, SHIFT_TIER, i, arena_printf(x->arena, "tier %s", t->tiers[i].name),
                      arena_printf(x->arena, "bandwidth of '%s'", t->tiers[i].name));
            if (t->tiers[i].oversubscription > 1)
                x->shifts.at[x->shifts.n - 1].note = arena_printf(x->arena, "%g to 1 oversubscribed",
                                                                  t->tiers[i].oversubscription);
        }
    }
    if (d->nnodes > 1)
        add_shift(x, SHIFT_NODE, d->nodes[0], "slow_node", "one node slower");
}
