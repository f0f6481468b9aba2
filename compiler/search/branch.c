/* The tree of a search, opened best bound first.
 *
 * A mesh (four axes and the experts' degrees) is bounded by the kernels of its fastest microbatch size; it
 * opens into families: an order of axes and nodes, a microbatch, sequence parallelism and a context kind,
 * bounded by their blocks with transfers (shapes.c).  A family opens into cells, a schedule and a state each
 * (family.c), a cell into leaves, one for each kind of recomputation, and a leaf is timed by running its
 * schedule (leaf.c).  Nothing whose bound reaches the worst candidate kept is opened, so when the least bound
 * in the heap reaches the best time found, that is the best of the space, and what is left when the budget
 * ends bounds how much better another could be.
 *
 * A dive over the most promising meshes finds something to compare with first. */

#include "compiler/search/search_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- a heap of nodes: least bound first, leaves before cells, families and meshes, then by index ---- */

static bool node_before(const struct node *x, const struct node *y)
{
    if (x->bound != y->bound)
        return x->bound < y->bound;
    return x->kind != y->kind ? x->kind < y->kind : x->index < y->index;
}

static void heap_push(struct searching *s, struct node x)
{
    vec_push(s->arena, &s->heap, x);
    struct node *at = s->heap.at;
    size_t i = s->heap.n - 1;
    for (; i > 0 && node_before(&x, &at[(i - 1) / 2]); i = (i - 1) / 2)
        at[i] = at[(i - 1) / 2];
    at[i] = x;
}

static struct node heap_pop(struct searching *s)
{
    struct node *at = s->heap.at, top = at[0], last = at[--s->heap.n];
    size_t i = 0, n = s->heap.n;
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && node_before(&at[child + 1], &at[child]))
            child++;
        if (!node_before(&at[child], &last))
            break;
        at[i] = at[child];
    }
    if (n)
        at[i] = last;
    return top;
}

/* ---- families ---- */

/* sequence parallelism as wished, where it is possible */
bool search_sp_possible(const struct searching *s, const struct decision *d, uint64_t b)
{
    uint64_t tokens = s->job->train.sequence / d->cp * b;
    enum tri wish = s->job->wishes.sequence_parallel;
    if (d->sp && (d->tp == 1 || tokens % d->tp))
        return false;
    return d->sp ? wish != TRI_NO : wish != TRI_YES || d->tp == 1; /* with tp = 1 there is nothing to split */
}

bool search_next_microbatch(const struct searching *s, const struct decision *d, uint64_t per_replica,
                            uint64_t *b)
{
    const struct wish *w = &s->job->wishes.degree[DEG_MICROBATCH];
    uint64_t last = w->relation == REL_EQ ? w->value : w->relation == REL_ANY ? 4096 : 65536;
    for (++*b; *b <= per_replica && *b <= last; ++*b) {
        if (w->relation == REL_ANY && *b > 1 && *b * s->job->train.sequence / d->cp > 256 * 1024)
            return false; /* products are long since large enough */
        if (per_replica % *b == 0 && per_replica / *b <= INT32_MAX && space_wants(w, *b))
            return true;
    }
    return false;
}

static bool context_possible(const struct searching *s, const struct decision *d)
{
    if (d->context != CONTEXT_ALL_TO_ALL)
        return true;
    const struct layer *last = NULL;
    for (uint32_t i = 0; i < s->job->model.nlayers; i++) {
        const struct attn *t = &s->job->model.layers[i]->attn;
        if (s->job->model.layers[i] != last &&
            (t->heads / d->tp % d->cp || (t->kind == ATTN_GQA && t->kv / d->tp % d->cp)))
            return false;
        last = s->job->model.layers[i];
    }
    return true;
}

/* kernels by microbatch size, whatever the order, context kind and (least) recomputation: bounds before any
 * shape of their own is made */
struct tuple {
    uint32_t tp, cp, ep, etp;
    VEC(const struct search_shape *) shapes; /* [b - 1], NULL where not asked for */
};

static uint32_t *dead_from_new(struct searching *s)
{
    uint32_t *dead_from = ARENA_ARRAY(s->arena, uint32_t, s->space.nrecompute);
    for (uint32_t i = 0; i < s->space.nrecompute; i++)
        dead_from[i] = UINT32_MAX;
    return dead_from;
}

static void add_family(struct searching *s, const struct cost *c, const struct tuple *t,
                       const struct decision *d, uint32_t *dead_from, struct states *states)
{
    double step_s =
        search_shape_bound_s(t->shapes.at[d->microbatch - 1], d); /* refined when its turn comes */
    struct family f = {.decision = *d,
                       .cost = c,
                       .dead_from = dead_from,
                       .states = states,
                       .bound = search_objective(s, step_s, d->gpus_used)};
    if (f.bound >= search_worst(s)) {
        s->result->removed[REMOVED_BOUND]++;
        return;
    }
    heap_push(s, (struct node){f.bound, NODE_FAMILY, (uint32_t)s->families.n});
    vec_push(s->arena, &s->families, f);
}

/* blocks of the table: without recomputation where that may be had, even if only by sparing every layer */
static void set_table_recompute(const struct searching *s, struct decision *d)
{
    d->recompute = s->may_spare ? RECOMPUTE_NONE : s->space.recompute[0].kind;
    d->parts = s->may_spare ? 0 : s->space.recompute[0].parts;
    d->recompute_layers = s->may_spare ? 0 : s->space.recompute[0].layers;
}

/* all families of a mesh in one order */
static void open_order(struct searching *s, const struct cost *c, const struct tuple *t, struct decision *d)
{
    const struct wishes *w = &s->job->wishes;
    uint64_t per_replica = s->job->train.batch / d->dp;
    struct states *states = ARENA_NEW(s->arena, struct states);
    set_table_recompute(s, d);
    for (int sp = 1; sp >= 0; sp--)
        for (int context = CONTEXT_RING; context <= CONTEXT_ALL_TO_ALL; context++) {
            d->sp = sp;
            d->context = d->cp > 1 ? (enum context_kind)context : CONTEXT_AUTO;
            if (d->cp == 1 ? context != CONTEXT_RING
                           : w->context != CONTEXT_AUTO && (int)w->context != context)
                continue;
            if (!context_possible(s, d))
                continue;
            uint32_t *dead_from = dead_from_new(s);
            for (uint64_t b = 0; search_next_microbatch(s, d, per_replica, &b);) {
                d->microbatch = (uint32_t)b;
                d->microbatches = (uint32_t)(per_replica / b);
                if (search_sp_possible(s, d, b))
                    add_family(s, c, t, d, dead_from, states);
            }
        }
}

/* ---- meshes ---- */

/* the same degrees in another order of axes cost the same */
static bool same_transfers(const struct cost *a, const struct cost *b)
{
    const uint32_t masks[] = {AXIS_BIT(AXIS_TP), AXIS_BIT(AXIS_CP), AXIS_BIT(AXIS_DP),
                              AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)};
    for (size_t i = 0; i < ARRAY_LEN(masks); i++)
        if (!search_same_group(&a->group[masks[i]], &b->group[masks[i]]))
            return false;
    return a->next_level == b->next_level && search_same_group(&a->tie, &b->tie) &&
           search_same_group(&a->ep, &b->ep);
}

static struct decision mesh_decision(const struct mesh_node *m)
{
    return (struct decision){.tp = m->mesh.tp,
                             .cp = m->mesh.cp,
                             .dp = m->mesh.dp,
                             .pp = m->mesh.pp,
                             .vpp = 1,
                             .ep = m->ep,
                             .etp = m->etp,
                             .shard = 1};
}

/* families of a mesh in the first order of axes that there is, in the others, in all */
enum mesh_orders { ORDERS_FIRST, ORDERS_OTHER, ORDERS_ALL };

static void open_mesh(struct searching *s, const struct mesh_node *m, enum mesh_orders which)
{
    struct decision d = mesh_decision(m);
    const struct cost *orders[SPACE_ORDERS];
    uint32_t n = 0;
    for (uint32_t order = 0; order < s->space.norders && !(which == ORDERS_FIRST && n); order++) {
        if (!space_order_counts(&s->space, order, &m->mesh) || !space_place(&s->space, order, &d))
            continue;
        struct arena_mark mark = arena_mark(s->arena);
        struct cost *c = ARENA_NEW(s->arena, struct cost);
        cost_init(c, s->job, s->topo, &d, space_runs(&s->space, &d), s->products);
        uint32_t i = 0;
        while (i < n && !same_transfers(orders[i], c))
            i++;
        if (i < n) {
            s->result->removed[REMOVED_SAME]++;
            arena_reset(s->arena, mark);
            continue;
        }
        orders[n++] = c;
        if (which != ORDERS_OTHER || n > 1)
            open_order(s, c, m->tuple, &d);
    }
}

static double tuple_bound_s(struct searching *s, struct tuple *t, const struct cost *c, struct decision *d,
                            uint64_t per_replica)
{
    double best = INFINITY;
    struct cost own = *c;
    own.decision = d;
    for (uint64_t b = 0; search_next_microbatch(s, d, per_replica, &b);) {
        d->microbatch = (uint32_t)b;
        d->microbatches = (uint32_t)(per_replica / b);
        d->sp = true; /* splits what norms stream; the wishes may not allow it */
        if (d->tp == 1 || s->job->wishes.sequence_parallel == TRI_NO ||
            s->job->train.sequence / d->cp * b % d->tp)
            d->sp = false;
        while (t->shapes.n < b)
            vec_push(s->arena, &t->shapes, NULL);
        if (!t->shapes.at[b - 1])
            t->shapes.at[b - 1] = search_shape(s, &own);
        best = fmin(best, search_shape_bound_s(t->shapes.at[b - 1], d));
    }
    return best;
}

/* the bound of a mesh: of the recomputation that costs least, for the first cost that can be had */
static void add_meshes(struct searching *s, const struct space_mesh *meshes, uint32_t n, uint32_t ep,
                       uint32_t etp)
{
    struct tuple *t = NULL;
    struct cost *c = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const struct space_mesh *m = &meshes[i];
        struct mesh_node x = {.mesh = *m, .ep = ep, .etp = etp};
        struct decision d = mesh_decision(&x);
        if ((uint64_t)d.tp * d.cp * d.dp % ((uint64_t)ep * etp))
            continue;
        if (!c || m->tp != t->tp || m->cp != t->cp) {
            t = ARENA_NEW(s->arena, struct tuple);
            *t = (struct tuple){.tp = m->tp, .cp = m->cp, .ep = ep, .etp = etp};
            c = NULL;
        }
        x.tuple = t;
        uint32_t order = 0;
        while (order < s->space.norders && !space_place(&s->space, order, &d))
            order++;
        if (order == s->space.norders)
            continue;
        set_table_recompute(s, &d);
        d.context = d.cp > 1 ? CONTEXT_RING : CONTEXT_AUTO;
        if (!c) {
            c = ARENA_NEW(s->arena, struct cost);
            cost_init(c, s->job, s->topo, &d, space_runs(&s->space, &d), s->products);
            cost_device_init(c); /* other meshes may do without degraded nodes */
        }
        x.bound = search_objective(s, tuple_bound_s(s, t, c, &d, s->job->train.batch / d.dp), d.gpus_used);
        if (isfinite(x.bound))
            vec_push(s->arena, &s->meshes, x);
    }
}

/* a family's bound by its own blocks with transfers, later by its cuts */
static void refine(struct searching *s, struct family *f)
{
    double step_s;
    if (!f->shape) {
        struct cost c = *f->cost;
        c.decision = &f->decision;
        f->shape = search_shape(s, &c);
        step_s = search_share_bound_s(f->shape, &f->decision);
    } else {
        f->refined = true;
        step_s = search_family_bound_s(s, f->shape, &f->decision);
    }
    f->bound = fmax(f->bound, search_objective(s, step_s, f->decision.gpus_used));
}

/* ---- the dive ---- */

/* while nothing has been found that many budgets may be spent: "nothing fits" had better be true */
#define PATIENCE 10
enum { DIVE_LEAVES = 12 };
#define NEAR 1.02 /* a leaf whose bound is further behind the best one's is not worth a look */
struct dive {
    struct leaf best[DIVE_LEAVES]; /* least bound first */
    uint32_t n;
};

static void dive_leaf(struct searching *s, void *to, const struct leaf *x)
{
    struct dive *dive = to;
    (void)s;
    uint32_t at = dive->n < DIVE_LEAVES ? dive->n++ : DIVE_LEAVES;
    for (; at > 0 && x->bound < dive->best[at - 1].bound; at--)
        if (at < DIVE_LEAVES)
            dive->best[at] = dive->best[at - 1];
    if (at < DIVE_LEAVES)
        dive->best[at] = *x;
}

/* a leaf of a greater bound is not among the best */
static double dive_last(const struct dive *dive)
{
    double last = dive->n < DIVE_LEAVES ? INFINITY : dive->best[DIVE_LEAVES - 1].bound;
    return dive->n ? fmin(last, dive->best[0].bound * NEAR) : last;
}

static int compare_nodes(const void *x, const void *y)
{
    return node_before(x, y) ? -1 : node_before(y, x);
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

/* all schedules and states of the best families of a dive */
static void polish(struct searching *s, const struct dive *found)
{
    enum { FAMILIES = 4 };
    struct dive *more = ARENA_NEW(s->arena, struct dive);
    uint32_t seen[FAMILIES], n = 0;
    for (uint32_t i = 0; i < found->n && n < FAMILIES; i++) {
        uint32_t k = 0;
        while (k < n && seen[k] != found->best[i].family)
            k++;
        if (k < n)
            continue;
        seen[n++] = found->best[i].family;
        struct family *f = &s->families.at[found->best[i].family];
        if (!f->refined)
            refine(s, f);
        search_open_family(s, found->best[i].family, dive_cell, more);
    }
    time_leaves(s, more);
}

/* a mesh with the smallest microbatches and a few schedules */
static void dive_mesh(struct searching *s, const struct mesh_node *m, enum mesh_orders which, struct dive *found)
{
    enum { SIZES = 3 };
    uint32_t first = (uint32_t)s->families.n, sizes = 0, last = 0;
    const struct cost *order = NULL;
    open_mesh(s, m, which);
    for (uint32_t f = first; f < s->families.n; f++) {
        struct family *x = &s->families.at[f];
        bool usual = x->decision.context != CONTEXT_RING || s->job->wishes.context == CONTEXT_RING;
        if (x->cost != order)
            sizes = last = 0;
        order = x->cost;
        if (x->decision.sp != s->families.at[first].decision.sp || !usual ||
            (last != x->decision.microbatch && sizes == SIZES))
            continue;
        sizes += last != x->decision.microbatch;
        last = x->decision.microbatch;
        refine(s, x);
        if (!found->n || x->bound < found->best[0].bound)
            search_sample_family(s, f, dive_last(found), dive_leaf, found);
    }
}

/* Every mesh that its bound leaves hope for, in one order and then in the others, until a quarter of the budget is gone;
 * the best leaves are timed. */
static void dive(struct searching *s)
{
    struct dive *found = ARENA_NEW(s->arena, struct dive);
    if (s->heap.n == 0)
        return;
    qsort(s->heap.at, s->heap.n, sizeof *s->heap.at, compare_nodes); /* sorted is a heap as well */
    size_t n = s->heap.n;
    struct node *meshes = ARENA_ARRAY(s->arena, struct node, n);
    memcpy(meshes, s->heap.at, n * sizeof *meshes);
    for (enum mesh_orders which = ORDERS_FIRST; which <= ORDERS_OTHER; which++)
        for (size_t i = 0; i < n && s->result->evaluated < (found->n ? s->budget / 4 : PATIENCE / 2 * s->budget); i++) {
            if (found->n && meshes[i].bound >= found->best[0].bound)
                break;
            dive_mesh(s, &s->meshes.at[meshes[i].index], which, found);
        }
    memcpy(s->heap.at, meshes, n * sizeof *meshes); /* families were for the dive alone */
    s->heap.n = n;
    time_leaves(s, found);
    polish(s, found);
}

/* ---- the loop ---- */

static void push_leaf(struct searching *s, void *to, const struct leaf *x)
{
    (void)to;
    heap_push(s, (struct node){x->bound, NODE_LEAF, (uint32_t)s->leaves.n});
    vec_push(s->arena, &s->leaves, *x);
}

static void push_cell(struct searching *s, void *to, const struct cell *cell, double bound, uint32_t family)
{
    (void)to;
    (void)family;
    heap_push(s, (struct node){bound, NODE_CELL, (uint32_t)s->cells.n});
    vec_push(s->arena, &s->cells, *cell);
}

/* a family's turn: first its bound, and back in its place */
static void open_or_refine(struct searching *s, const struct node *x)
{
    struct family *f = &s->families.at[x->index];
    if (f->refined) {
        search_open_family(s, x->index, push_cell, NULL);
        return;
    }
    refine(s, f);
    if (f->bound >= search_worst(s))
        s->result->removed[REMOVED_BOUND]++;
    else
        heap_push(s, (struct node){f->bound, NODE_FAMILY, x->index});
}

static void open_node(struct searching *s, const struct node *x)
{
    switch ((enum node_kind)x->kind) {
    case NODE_MESH:
        open_mesh(s, &s->meshes.at[x->index], ORDERS_ALL);
        break;
    case NODE_FAMILY:
        open_or_refine(s, x);
        break;
    case NODE_CELL: {
        struct cell cell = s->cells.at[x->index];
        search_open_cell(s, &cell, push_leaf, NULL);
        break;
    }
    case NODE_LEAF: {
        struct leaf leaf = s->leaves.at[x->index];
        search_finish_leaf(s, &leaf);
        break;
    }
    }
}

void search_branch(struct searching *s)
{
    struct space_mesh *meshes;
    uint32_t n = space_meshes(s->arena, &s->space, &meshes);
    s->nmeshes = n;
    for (uint32_t e = 0; e < s->space.ep.n; e++)
        for (uint32_t t = 0; t < s->space.etp.n; t++)
            add_meshes(s, meshes, n, s->space.ep.at[e], s->space.etp.at[t]);
    for (size_t i = 0; i < s->meshes.n; i++)
        heap_push(s, (struct node){s->meshes.at[i].bound, NODE_MESH, (uint32_t)i});
    dive(s);
    while (s->heap.n) {
        struct node x = s->heap.at[0];
        const struct search_result *r = s->result;
        bool certain = r->ncandidates && x.bound >= search_best(s),
             spent = r->evaluated >= s->budget * (r->ncandidates ? 1 : PATIENCE);
        if (spent && !s->cut_short && !certain) {
            s->cut_short = true;
            s->rest_bound = x.bound;
        }
        if (s->job->wishes.objective == MINIMIZE_STEP_TIME && !s->fewest && x.bound > search_limit_s(s) &&
            s->fastest_s > 0)
            break; /* nothing that is left keeps the limits, and the error can name a time */
        /* the rest of the list is filled with the best of what is there */
        if (x.bound >= search_worst(s) || (certain && r->ncandidates == s->top) ||
            (spent && (x.kind != NODE_LEAF || r->ncandidates == s->top)))
            break;
        heap_pop(s);
        open_node(s, &x);
    }
    s->result->removed[REMOVED_BOUND] += s->heap.n;
}
