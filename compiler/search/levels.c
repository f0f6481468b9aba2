/* Lower bounds on a family's schedules under ZeRO levels: by their classes' cuts into stages, then by what memory
 * forces single ranks to recompute.
 *
 * Computing the latter costs more than everything else of a cell's bound (family.c), and most cells of a family are
 * ruled out without it.  So the family's bound is that of its cuts, and memory is considered where a
 * cell needs it, once for all states of a level and all orders of axes. */

#include "compiler/search/trade.h"
#include "compiler/search/bounds.h"
#include "compiler/search/candidates.h"

#include <math.h>
#include <string.h>

void search_set_schedule(struct searching *s, const struct family *f, struct decision *d, uint32_t k)
{
    const struct space_schedule *x = &s->space.schedules[k];
    d->schedule = x->kind;
    d->vpp = x->vpp;
    d->listed = x->listed;
    d->folds = x->listed && x->folds;
    d->schedule_group = x->group ? x->group : x->groups_of_pp > 1 ? x->groups_of_pp * d->pp : 0;
    const struct search_cut *cut = search_cut(s, f->shape, d);
    d->nstages = cut->nstages;
    d->stages = cut->stages;
}

bool search_same_class(const struct space_schedule *x, const struct space_schedule *y)
{
    return x->vpp == y->vpp && x->folds == y->folds;
}

static enum placement placement_of(const struct space_schedule *k)
{
    return k->kind == SCHED_DUALPIPE ? PLACE_BOTH_WAYS : k->folds ? PLACE_FOLDED : PLACE_LOOPED;
}

bool search_hopes(const struct searching *s, const struct decision *d, double step_s)
{
    return search_objective(s, step_s, d->gpus_used) < search_worst(s);
}

/* Lower bound in seconds by schedule k's cut; class_s: bounds computed before for its class, without pairs, with
 * them, and for schedules that may skew steps. */
static double cut_s(struct searching *s, const struct family *f, struct search_least *x, uint32_t k, double class_s[3])
{
    const struct space_schedule *own = &s->space.schedules[k];
    struct decision d = f->decision;
    bool pairs = decision_pairs(own->kind);
    double *bound_s = &class_s[pipeline_skews(own->kind) ? 2 : pairs];
    search_set_schedule(s, f, &d, k);
    if (*bound_s <= 0 || own->kind == SCHED_DUALPIPE)
        *bound_s = search_class_bound_s(s, f->shape, &d, placement_of(own));
    if (!pairs && d.pp > 1)
        x->order_s = cost_smaller(x->order_s, *bound_s);
    return *bound_s;
}

/* Bounds all schedules that apply, each by its class, with transfers hidden only where it runs pairs; moved_s:
 * seconds of ZeRO transfers, by whether the backward is split and by level. */
static void bound_schedules(struct searching *s, const struct family *f, struct search_least *x, double moved_s[2][4])
{
    const struct decision *d = &f->decision;
    double class_s[3] = {0}, plain_s = d->microbatches * (f->shape->plain_s / d->pp) * (1 - 1e-12);
    bool plain = search_hopes(s, d, plain_s);
    for (uint32_t k = 0; k < s->space.nschedules; k++) {
        const struct space_schedule *own = &s->space.schedules[k];
        bool splits = d->pp > 1 && (pipeline_splits(own->kind) || own->listed);
        if (k == 0 || !search_same_class(own, own - 1))
            memset(class_s, 0, sizeof class_s);
        if (!search_schedule_applies(s, d, k))
            continue;
        double own_s = plain || decision_pairs(own->kind) ? cut_s(s, f, x, k, class_s) : plain_s;
        for (uint32_t zero = 0; zero < 4; zero++)
            x->schedules[k].pipeline_s[zero] = own_s;
        for (uint32_t i = 0; i < s->space.zero.n; i++)
            x->step_s = cost_smaller(x->step_s, cost_larger(own_s, moved_s[splits][s->space.zero.at[i]]));
    }
}

struct search_least *search_family_bound(struct searching *s, const struct family *f)
{
    struct decision d = f->decision;
    struct cost c = *f->floor;
    double moved_s[2][4] = {{0}};
    uint32_t replicas = d.dp * d.cp;
    for (struct search_least *x = f->shape->least; x; x = x->next)
        if (x->pp == d.pp && x->replicas == replicas && x->microbatches == d.microbatches)
            return x; /* made for another order of axes */
    struct search_least *x = ARENA_NEW(s->arena, struct search_least);
    *x = (struct search_least){
        d.pp, replicas, d.microbatches, .step_s = INFINITY, .order_s = INFINITY, .next = f->shape->least};
    x->schedules = ARENA_ARRAY(s->arena, struct schedule_least, s->space.nschedules);
    c.decision = &d;
    d.shard = replicas;
    for (d.zero = 2; d.zero < 4; d.zero++)
        for (int splits = 0; splits < 2; splits++)
            moved_s[splits][d.zero] = d.microbatches * search_floor_shards_s(s, &c, &f->shape->shape, splits);
    bound_schedules(s, f, x, moved_s);
    f->shape->least = x;
    s->result->spent++;
    return x;
}

/* While nothing has been found memory is not considered, since what does not fit may be the closest miss. */
double search_level_s(struct searching *s, const struct family *f, uint32_t k, uint32_t zero)
{
    struct schedule_least *x = &f->least->schedules[k];
    struct decision d = f->decision;
    struct cost c = *f->cost;
    if (x->asked[zero] || !isfinite(search_best(s)) || !search_hopes(s, &d, x->pipeline_s[zero]))
        return x->pipeline_s[zero];
    c.decision = &d;
    search_set_schedule(s, f, &d, k);
    d.zero = zero;
    d.shard = d.dp * d.cp; /* splits most */
    x->squeeze = x->squeeze ? x->squeeze : ARENA_NEW(s->arena, struct squeeze);
    double squeezed_s = search_squeeze_s(s, &c, f->shape, placement_of(&s->space.schedules[k]), x->squeeze);
    x->pipeline_s[zero] = cost_larger(x->pipeline_s[zero], squeezed_s);
    for (uint32_t i = zero; i < (squeezed_s > 0 ? zero + 1 : 4); i++) /* what fits unsharded usually fits sharded */
        x->asked[i] = true;
    return x->pipeline_s[zero];
}
