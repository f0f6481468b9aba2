/* Where synthesised schedules may do best.
 *
 * The branches of the search are cut off by what formulas take: by time, and by memory, which makes layers
 * recompute.  A synthesised schedule is limited by neither.  So all families are ranked again by a bound on any
 * order of their actions, whether they were opened or not; then their classes of schedules by an optimistic estimate
 * (family.c); and of the best classes, leaves are taken that fit under some formula. */

#include "compiler/search/candidates.h"
#include "compiler/search/leaves.h"

#include <math.h>
#include <stdlib.h>

enum { FAMILIES = 500, CELLS = 250 }; /* most families and cells that are looked at */

struct hope {
    struct cell cell;
    double bound;
};
struct hopes {
    VEC(struct hope) all;
};

static int by_bound(const void *a, const void *b)
{
    const struct hope *x = a, *y = b;
    if (x->bound != y->bound)
        return x->bound < y->bound ? -1 : 1;
    if (x->cell.family != y->cell.family)
        return x->cell.family < y->cell.family ? -1 : 1;
    if (x->cell.schedule != y->cell.schedule)
        return x->cell.schedule < y->cell.schedule ? -1 : 1;
    return (x->cell.state > y->cell.state) - (x->cell.state < y->cell.state);
}

static void add_hope(struct searching *s, struct hopes *to, const struct cell *cell, double bound)
{
    if (bound < search_best(s))
        vec_push(s->arena, &to->all, ((struct hope){*cell, bound}));
}

static void take_cell(struct searching *s, void *to, const struct cell *cell, double bound, uint32_t family)
{
    (void)family;
    add_hope(s, to, cell, bound);
}

static void best_first(struct hopes *x)
{
    if (x->all.n)
        qsort(x->all.at, x->all.n, sizeof *x->all.at, by_bound);
}

/* An optimistic estimate of x's decision with a synthesised schedule: half way from its own bound to a bound on any
 * order. */
static double hope_of(struct searching *s, const struct leaf *x)
{
    struct decision d = x->candidate.decision;
    struct cost c = *x->cost;
    d.folds = decision_folds(&x->candidate.decision);
    d.schedule = SCHED_AUTO;
    d.schedule_group = 0;
    c.decision = &d;
    cost_set_shard(&c);
    double any_s = search_leaf_bound_s(s, &c, x->shape);
    return (x->bound + search_objective(s, any_s, d.gpus_used)) / 2;
}

/* Inserts leaf x by its estimate; of similar leaves only the best is kept. */
static void take_leaf(struct searching *s, void *to, const struct leaf *x)
{
    struct search_starts *out = to;
    struct leaf own = *x;
    uint32_t at = 0;
    own.bound = hope_of(s, x);
    while (at < out->n && !search_alike(&out->at[at].candidate.decision, &x->candidate.decision))
        at++;
    if (at < out->n ? out->at[at].bound <= own.bound : at == SEARCH_STARTS && out->at[at - 1].bound <= own.bound)
        return;
    if (at == out->n && at < SEARCH_STARTS)
        out->n++;
    at = at < SEARCH_STARTS ? at : SEARCH_STARTS - 1;
    for (; at > 0 && own.bound < out->at[at - 1].bound; at--)
        out->at[at] = out->at[at - 1];
    out->at[at] = own;
}

void search_find_starts(struct searching *s, struct search_starts *out)
{
    struct hopes families = {0}, cells = {0};
    uint32_t top = s->top;
    *out = (struct search_starts){0};
    for (uint32_t i = 0; i < s->families.n; i++) {
        const struct family *f = &s->families.at[i];
        if (f->refined)
            add_hope(s, &families, &(struct cell){.family = i},
                     search_objective(s, f->least->order_s, f->decision.gpus_used));
    }
    best_first(&families);
    for (size_t i = 0; i < families.all.n && i < FAMILIES; i++)
        search_hope_family(s, families.all.at[i].cell.family, take_cell, &cells);
    best_first(&cells);
    s->top = s->result->ncandidates + 1; /* so that no leaf is removed for the time that its formula takes */
    for (size_t i = 0; i < cells.all.n && i < CELLS; i++)
        search_open_class(s, &cells.all.at[i].cell, take_leaf, out);
    s->top = top;
}
