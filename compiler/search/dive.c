/* The dive: a first look at the most promising meshes, for a plan that the tree's bounds can be compared with.
 *
 * Meshes are taken in the order of a guess at their step (promised_s), in one order of axes and then in the others,
 * with their smallest microbatches and a few schedules.  The leaves with the least bounds, one of each family, are
 * timed; then all schedules and states of the best families.  The dive spends at most half of the first budget, or,
 * while nothing has been found, half of SEARCH_PATIENCE budgets; if a wide gap is left later, it starts again with a
 * share of the whole budget.  Its guesses decide what is looked at when, never what is ruled out: branch.c opens
 * every mesh again. */

#include "compiler/search/branch.h"
#include "compiler/search/bounds.h"
#include "compiler/search/candidates.h"
#include "compiler/search/leaves.h"

#include <math.h>

enum { DIVE_LEAVES = 12, SIZES = 3, AGAIN_SHARE = 3 };
#define NEAR 1.02 /* a leaf whose bound exceeds the best one's by more is not evaluated */
struct dive {
    struct leaf best[DIVE_LEAVES]; /* least bound first */
    uint32_t n;
    bool several; /* keep several leaves of a family */
};

/* Inserts leaf x by its bound; of each family only the best leaf is kept, unless `several`. */
static void dive_leaf(struct searching *s, void *to, const struct leaf *x)
{
    struct dive *dive = to;
    (void)s;
    uint32_t at = dive->several ? dive->n : 0;
    while (at < dive->n && dive->best[at].family != x->family)
        at++;
    if (at < dive->n && dive->best[at].bound <= x->bound)
        return;
    if (at == dive->n && dive->n < DIVE_LEAVES)
        dive->n++;
    for (; at > 0 && x->bound < dive->best[at - 1].bound; at--)
        if (at < DIVE_LEAVES)
            dive->best[at] = dive->best[at - 1];
    if (at < DIVE_LEAVES)
        dive->best[at] = *x;
}

/* a leaf with a greater bound is not among the best */
static double dive_last(const struct dive *dive)
{
    double last = dive->n < DIVE_LEAVES ? INFINITY : dive->best[DIVE_LEAVES - 1].bound;
    return dive->n ? fmin(last, dive->best[0].bound * NEAR) : last;
}

static void time_leaves(struct searching *s, struct dive *found)
{
    for (uint32_t i = 0; i < found->n; i++)
        if (found->best[i].bound < search_best(s))
            search_finish_leaf(s, &found->best[i]);
}

static void dive_cell(struct searching *s, void *to, const struct cell *cell, double bound, uint32_t family)
{
    (void)family;
    if (bound < search_best(s))
        search_open_cell(s, cell, dive_leaf, to);
}

/* Evaluates all schedules and states of the best families of a dive. */
static void polish(struct searching *s, const struct dive *found)
{
    enum { FAMILIES = 4 };
    struct dive *more = ARENA_NEW(s->arena, struct dive);
    more->several = true;
    for (uint32_t i = 0; i < found->n && i < FAMILIES; i++) {
        struct family *f = &s->families.at[found->best[i].family];
        if (!f->refined)
            search_refine(s, f);
        search_open_family(s, found->best[i].family, dive_cell, more);
    }
    time_leaves(s, more);
}

/* Looks at a mesh with its most_sizes smallest microbatch sizes and a few schedules. */
static void dive_mesh(struct searching *s, struct mesh_node *m, enum which_orders which, uint32_t most_sizes,
                      struct dive *found)
{
    uint32_t first = (uint32_t)s->families.n, sizes = 0, last = 0;
    const struct cost *order = NULL;
    search_look_at_mesh(s, m, which);
    for (uint32_t f = first; f < s->families.n; f++) {
        struct family *x = &s->families.at[f];
        bool usual = x->decision.context != CONTEXT_RING || s->job->wishes.context == CONTEXT_RING;
        if (x->cost != order)
            sizes = last = 0;
        order = x->cost;
        if (x->decision.sp != s->families.at[first].decision.sp || !usual ||
            (last != x->decision.microbatch && sizes == most_sizes))
            continue;
        sizes += last != x->decision.microbatch;
        last = x->decision.microbatch;
        search_refine(s, x);
        if (!found->n || x->bound < found->best[0].bound)
            search_sample_family(s, f, dive_last(found), dive_leaf, found);
    }
}

/* The factor by which a microbatch's layers take longer if only the share `room` of their activations can be kept:
 * with the cheapest kind of recomputation, in as few layers as necessary; if none suffices, a much larger factor. */
static double recompute_factor(const struct searching *s, double room)
{
    double least = INFINITY, kept = 1, slowest = 0;
    for (uint32_t i = 0; i < s->space.nrecompute; i++) {
        const struct space_recompute *k = &s->space.recompute[i];
        if (k->kept <= room && k->kept < 1)
            least = fmin(least, k->extra * (1 - room) / (1 - k->kept));
        kept = fmin(kept, k->kept);
        slowest = fmax(slowest, k->extra);
    }
    return room >= 1 ? 1 : isfinite(least) ? 1 + least : (1 + slowest) * kept / fmax(room, 1e-3);
}

/* A guess at a family's step from its bound: half of 1F1B's bubble, as with virtual stages; activations of three
 * fifths of 1F1B's microbatches on the fullest rank, recomputed as far as they do not fit beside the least state;
 * under ZeRO 3 parameters gathered twice and gradients scattered for every microbatch. */
static double promised_s(struct searching *s, const struct mesh_node *m, const struct decision *d)
{
    struct cost c = *m->floor;
    double moved_s = 0, bytes = 0, flying = fmin(d->pp, d->microbatches);
    c.decision = d;
    const struct cost_shape *x = &search_shape(s, &c)->shape;
    for (uint32_t i = 0; i < s->job->model.nlayers; i += x->run[i])
        bytes += x->run[i] * x->layers[x->kind[i]].keep_bytes;
    bytes *= fmax(1, 0.6 * flying) / d->pp;
    double room = ((double)s->memory_limit - (double)cost_state_least(&c, x)) / fmax(1, bytes);
    if (d->zero >= 2)
        moved_s = d->microbatches * search_floor_shards_s(s, &c, x, false);
    double step_s = search_floor_bound_s(s, m, d) * recompute_factor(s, room);
    return fmax(step_s, moved_s) * (1 + 0.5 * (d->pp - 1) / d->microbatches);
}

/* the guess for a mesh, with its smallest microbatches */
static double mesh_promise(struct searching *s, struct mesh_node *m)
{
    enum { TRIED = 2 };
    struct decision d = search_mesh_decision(m);
    uint32_t gpus = m->mesh.tp * m->mesh.cp * m->mesh.dp * m->mesh.pp;
    double least = INFINITY;
    d = search_before_families(s, &d);
    for (uint32_t i = 0; i < TRIED && search_next_family(s, &d); i++) {
        if (i == 0 && search_least_zero(s, m, &d) > 3)
            break;
        least = fmin(least, search_objective(s, promised_s(s, m, &d), gpus));
    }
    m->dead = !isfinite(least);
    return least;
}

/* Lists meshes whose state may fit, the most promising first; meshes for which a quarter of the budget did not
 * suffice to make a guess come last. */
static uint32_t promising_meshes(struct searching *s, uint32_t **out)
{
    size_t n = 0, count = s->heap.n;
    struct node *by_bound = ARENA_ARRAY(s->arena, struct node, count ? count : 1);
    for (size_t i = 0; i < count; i++)
        by_bound[i] = search_pop(s);
    for (size_t i = 0; i < count; i++) {
        struct mesh_node *m = &s->meshes.at[by_bound[i].index];
        double promise = s->result->spent < s->budget / 4 ? mesh_promise(s, m) : 1e3 * m->bound;
        if (!m->dead)
            search_push(s, (struct node){promise, NODE_MESH, by_bound[i].index});
    }
    *out = ARENA_ARRAY(s->arena, uint32_t, count ? count : 1);
    while (s->heap.n)
        (*out)[n++] = search_pop(s).index;
    return (uint32_t)n;
}

/* In how many axes a mesh differs from d's.  Different experts' degrees count as one difference if all axes are
 * equal, otherwise as NAXES. */
static int apart(const struct mesh_node *m, const struct decision *d)
{
    const struct space_mesh *x = &m->mesh;
    int axes = (x->tp != d->tp) + (x->cp != d->cp) + (x->pp != d->pp) + (x->dp != d->dp);
    if (m->ep == d->ep && m->etp == d->etp)
        return axes;
    return axes ? NAXES : 1;
}

/* Looks at a mesh in all orders of axes. */
static void dive_near(struct searching *s, struct mesh_node *m, uint32_t most_sizes, struct dive *found)
{
    if (m->dead)
        return;
    if (!m->refined)
        search_refine_mesh(s, m);
    for (enum which_orders which = ORDERS_FIRST; which <= ORDERS_OTHER && m->bound < search_best(s); which++)
        dive_mesh(s, m, which, most_sizes, found);
}

void search_climb(struct searching *s, uint64_t most)
{
    enum { NEAR_AXES = 2, OWN_SIZES = 8 };
    double before = INFINITY;
    struct dive *found = ARENA_NEW(s->arena, struct dive);
    while (search_best(s) < before && s->result->spent < most) {
        struct decision best = s->result->candidates[0].decision;
        before = search_best(s);
        *found = (struct dive){0};
        for (uint32_t i = 0; i < s->meshes.n; i++) {
            int axes = apart(&s->meshes.at[i], &best);
            if (axes <= NEAR_AXES)
                dive_near(s, &s->meshes.at[i], axes ? SIZES : OWN_SIZES, found);
        }
        time_leaves(s, found);
        polish(s, found);
    }
}

/* Looks at every mesh whose bound is below `above`, in one order of axes and then in the others, until `most` work
 * is done; then times the best leaves. */
static void dive(struct searching *s, uint64_t most, double above)
{
    struct dive *found = ARENA_NEW(s->arena, struct dive);
    for (enum which_orders which = ORDERS_FIRST; which <= ORDERS_OTHER; which++)
        for (uint32_t i = 0; i < s->npromising; i++) {
            struct mesh_node *m = &s->meshes.at[s->promising[i]];
            if (s->result->spent >= (found->n ? most : SEARCH_PATIENCE * most))
                break;
            if (!m->refined)
                search_refine_mesh(s, m);
            if (m->bound < above && (!found->n || m->bound < found->best[0].bound))
                dive_mesh(s, m, which, SIZES, found);
        }
    time_leaves(s, found);
    polish(s, found);
}

void search_dive(struct searching *s)
{
    s->npromising = promising_meshes(s, &s->promising);
    dive(s, s->budget / 4, INFINITY);
    search_push_meshes(s); /* the heap holds all meshes again */
}

void search_dive_again(struct searching *s)
{
    dive(s, s->result->spent + s->most / AGAIN_SHARE, search_best(s));
}
