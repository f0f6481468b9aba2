/* The tree of a search, opened best bound first.
 *
 * A mesh (four axes and the experts' degrees) is bounded by the kernels of its fastest microbatch size, then also by
 * the transfers that it needs in any order of axes (floor.c); it is dropped if its parameters' state does not fit in
 * memory in any way.  It opens into lots: a microbatch size, sequence parallelism and a context kind, bounded by
 * what memory forces them to recompute (room.c).  A lot opens into families, one for each order of axes and its
 * nodes, bounded by their blocks with their own transfers, then by their cuts into stages (shapes.c).  A family
 * opens into cells, a schedule and a state each (family.c), a cell into leaves, one for each kind of recomputation,
 * and a leaf is timed by simulating its schedule (leaf.c).
 *
 * Nothing whose bound reaches the worst candidate kept is opened.  So when the least bound in the heap reaches the
 * best time found, that is the best of the space; and when the budget ends, the least bound left limits how much
 * better any other decision could be.
 *
 * A dive (dive.c) finds something to compare with first. */

#include "compiler/model/means.h"
#include "compiler/search/branch.h"
#include "compiler/search/bounds.h"
#include "compiler/search/candidates.h"
#include "compiler/search/leaves.h"
#include "compiler/search/passes.h"

#include "compiler/support/diag.h"
#include "compiler/support/heap.h"
#include "compiler/support/units.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define TELL_S 0.2        /* seconds between two words of how far it is */
enum { CLIMB_SHARE = 5 }; /* 1/CLIMB_SHARE of the first budget is spent after a search that was cut short */
#define NEAR_ENOUGH 0.01  /* a gap for which no more than the least work is done, */
/* and one for which no more than a quarter of the whole is done, since finalists close the rest */
#define GOOD_ENOUGH 0.025

/* ---- a heap of nodes: least bound first, leaves before cells, families, lots and meshes, then by index ---- */

static bool node_before(const struct node *x, const struct node *y)
{
    if (x->bound != y->bound)
        return x->bound < y->bound;
    return x->kind != y->kind ? x->kind < y->kind : x->index < y->index;
}

HEAP(nodes, struct node, node_before)

void search_push(struct searching *s, struct node x)
{
    vec_reserve(s->arena, &s->heap, s->heap.n + 1);
    nodes_push(s->heap.at, s->heap.n++, x);
}

struct node search_pop(struct searching *s)
{
    return nodes_pop(s->heap.at, s->heap.n--);
}

/* ---- families ---- */

/* Is d's choice of sequence parallelism wished and possible? */
bool search_sp_possible(const struct searching *s, const struct decision *d, uint64_t b)
{
    uint64_t tokens = s->job->train.sequence / d->cp * b;
    enum tri wish = s->job->wishes.sequence_parallel;
    if (d->sp && (d->tp == 1 || tokens % d->tp))
        return false;
    if (d->tp > 1 && !(means_of(s->job, TARGET_sequence_parallel) & (d->sp ? 2 : 1)))
        return false;
    return d->sp ? wish != TRI_NO : wish != TRI_YES || d->tp == 1; /* with tp = 1 there is nothing to split */
}

bool search_next_microbatch(const struct searching *s, const struct decision *d, uint64_t per_replica, uint64_t *b)
{
    const struct wish *w = &s->job->wishes.degree[DEG_MICROBATCH];
    uint64_t last = w->relation == REL_EQ ? w->value : w->relation == REL_ANY ? 4096 : 65536;
    for (++*b; *b <= per_replica && *b <= last; ++*b) {
        if (w->relation == REL_ANY && *b > 1 && *b * s->job->train.sequence / d->cp > 256 * 1024)
            return false; /* matrix products have long been large enough */
        if (per_replica % *b == 0 && per_replica / *b <= INT32_MAX && space_wants(w, *b))
            return true;
    }
    return false;
}

static bool context_possible(const struct searching *s, const struct decision *d)
{
    if (!means_offer(s->job, TARGET_context, 1u << (d->context - 1)))
        return false;
    if (d->context != CONTEXT_ALL_TO_ALL)
        return true;
    const struct layer *last = NULL;
    for (uint32_t i = 0; i < model_all_layers(&s->job->model); i++) {
        const struct layer *l = model_layer(&s->job->model, i);
        const struct attn *t = &l->attn;
        if (l != last &&
            (t->heads / d->tp % d->cp || (t->kind == ATTN_GQA && t->kv / model_key_parts(t->kv, d->tp) % d->cp)))
            return false;
        last = l;
    }
    return true;
}

static uint32_t *dead_from_new(struct searching *s)
{
    uint32_t *dead_from = ARENA_ARRAY(s->arena, uint32_t, s->space.nrecompute);
    for (uint32_t i = 0; i < s->space.nrecompute; i++)
        dead_from[i] = UINT32_MAX;
    return dead_from;
}

/* Sets the recomputation that a family's blocks are made for: none where that is possible, even if only by sparing
 * every layer. */
static void set_table_recompute(const struct searching *s, struct decision *d)
{
    d->recompute = s->may_spare ? RECOMPUTE_NONE : s->space.recompute[0].kind;
    d->parts = s->may_spare ? 0 : s->space.recompute[0].parts;
    d->recompute_layers = s->may_spare ? 0 : s->space.recompute[0].layers;
}

/* Moves d to the next combination of sequence parallelism and context kind; false after the last. */
static bool next_kind(const struct searching *s, struct decision *d)
{
    enum context_kind wish = s->job->wishes.context;
    while (d->cp > 1 && d->context < CONTEXT_ALL_TO_ALL) {
        d->context++;
        if ((wish == CONTEXT_AUTO || d->context == wish) && context_possible(s, d))
            return true;
    }
    if (!d->sp)
        return false;
    d->sp = false;
    d->context = CONTEXT_AUTO;
    return d->cp == 1 || next_kind(s, d);
}

/* The state before a mesh's first family, in any one order of axes: microbatch sizes ascend, and combinations with
 * sequence parallelism come first. */
struct decision search_before_families(const struct searching *s, const struct decision *mesh)
{
    struct decision d = *mesh;
    set_table_recompute(s, &d);
    d.sp = true;
    d.context = CONTEXT_AUTO;
    d.microbatch = 0;
    if (d.cp > 1 && !next_kind(s, &d))
        d.cp = 0;
    return d;
}

bool search_next_family(const struct searching *s, struct decision *d)
{
    uint64_t per_replica = s->job->train.batch / d->dp;
    while (d->cp) {
        for (uint64_t b = d->microbatch; search_next_microbatch(s, d, per_replica, &b);) {
            d->microbatch = (uint32_t)b;
            d->microbatches = (uint32_t)(per_replica / b);
            if (search_sp_possible(s, d, b))
                return true;
        }
        d->microbatch = 0;
        if (!next_kind(s, d))
            break;
    }
    return false;
}

double search_floor_bound_s(struct searching *s, const struct mesh_node *m, const struct decision *d)
{
    struct cost c = *m->floor;
    c.decision = d;
    return search_share_bound_s(search_shape(s, &c), d);
}

/* Raises a bound by what memory forces d to recompute, for any placement of its ranks. */
static double room_bound(struct searching *s, const struct cost *floor, const struct decision *d, double bound)
{
    struct cost c = *floor;
    c.decision = d;
    struct search_shape *h = search_shape(s, &c);
    double step_s = search_room_bound_s(s, &c, h, search_share_bound_s(h, d));
    return fmax(bound, search_objective(s, step_s, d->tp * d->cp * d->dp * d->pp));
}

/* ---- meshes ---- */

/* Do two orders of axes of the same degrees cost the same? */
static bool same_transfers(const struct cost *a, const struct cost *b)
{
    const uint32_t masks[] = {AXIS_BIT(AXIS_TP), AXIS_BIT(AXIS_CP), AXIS_BIT(AXIS_DP),
                              AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)};
    for (size_t i = 0; i < ARRAY_LEN(masks); i++)
        if (!search_same_group(&a->group[masks[i]], &b->group[masks[i]]))
            return false;
    return a->next_level == b->next_level && search_same_group(&a->tie, &b->tie) && search_same_group(&a->ep, &b->ep) &&
           search_same_group(&a->far, &b->far);
}

struct decision search_mesh_decision(const struct mesh_node *m)
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

/* orders of axes that cost differently, as far as they were needed */
struct mesh_orders {
    uint32_t n, next; /* next: the first of the space's orders that was not tried yet */
    struct mesh_order {
        struct decision decision; /* the mesh's decision, placed on nodes */
        const struct cost *cost;
        struct states *states;
    } at[SPACE_ORDERS];
};

/* the mesh's i-th order of axes that costs differently; NULL after the last */
static const struct mesh_order *nth_order(struct searching *s, struct mesh_node *m, uint32_t i)
{
    if (!m->orders) {
        m->orders = ARENA_NEW(s->arena, struct mesh_orders);
        m->orders->n = m->orders->next = 0;
    }
    struct mesh_orders *x = m->orders;
    struct decision d = search_mesh_decision(m);
    for (; x->n <= i && x->next < s->space.norders; x->next++) {
        if (!space_order_counts(&s->space, x->next, &m->mesh) || !space_place(&s->space, x->next, &d))
            continue;
        const struct mesh_runs *runs = space_runs(&s->space, &d); /* the same for all orders of axes */
        struct arena_mark mark = arena_mark(s->arena);
        struct cost *c = ARENA_NEW(s->arena, struct cost);
        struct mesh_order *own = &x->at[x->n];
        own->decision = d;
        cost_init(s->arena, c, s->job, s->topo, &own->decision, runs, s->products, s->pairs);
        uint32_t same = 0;
        while (same < x->n && !same_transfers(x->at[same].cost, c))
            same++;
        if (same < x->n) {
            s->result->removed[REMOVED_SAME]++;
            arena_reset(s->arena, mark);
            continue;
        }
        own->cost = c;
        own->states = ARENA_NEW(s->arena, struct states);
        x->n++;
    }
    return i < x->n ? &x->at[i] : NULL;
}

uint32_t search_count_orders(struct searching *s, struct mesh_node *m)
{
    uint32_t n = 0;
    while (nth_order(s, m, n))
        n++;
    return n;
}

/* Makes a family of d, which has no order of axes, in this order. */
static struct family family_new(const struct mesh_order *order, const struct mesh_node *m, const struct decision *d)
{
    const struct decision *place = &order->decision;
    struct family f = {.decision = *d, .cost = order->cost, .floor = m->floor, .states = order->states};
    memcpy(f.decision.order, place->order, sizeof place->order);
    f.decision.type = place->type;
    f.decision.gpus_used = place->gpus_used;
    f.decision.nodes = place->nodes;
    f.decision.nnodes = place->nnodes;
    return f;
}

void search_look_at_mesh(struct searching *s, struct mesh_node *m, enum which_orders which)
{
    const struct mesh_order *order;
    for (uint32_t i = which == ORDERS_FIRST ? 0 : 1; (which != ORDERS_FIRST || i == 0) && (order = nth_order(s, m, i));
         i++) {
        struct decision mesh = search_mesh_decision(m), d = search_before_families(s, &mesh);
        uint32_t *dead_from = NULL;
        int sp = -1, context = -1;
        while (search_next_family(s, &d)) {
            if (sp != d.sp || context != (int)d.context)
                dead_from = dead_from_new(s);
            sp = d.sp;
            context = (int)d.context;
            struct family f = family_new(order, m, &d);
            f.dead_from = dead_from;
            f.bound = search_objective(s, search_floor_bound_s(s, m, &d), f.decision.gpus_used);
            if (f.bound >= search_worst(s))
                s->result->removed[REMOVED_BOUND]++;
            else
                vec_push(s->arena, &s->families, f);
        }
    }
}

/* Opens all lots of a mesh. */
static void open_mesh(struct searching *s, uint32_t mesh)
{
    const struct mesh_node *m = &s->meshes.at[mesh];
    struct decision own = search_mesh_decision(m), d = search_before_families(s, &own);
    uint32_t **dead_from = NULL, gpus = m->mesh.tp * m->mesh.cp * m->mesh.dp * m->mesh.pp;
    int sp = -1, context = -1;
    while (search_next_family(s, &d)) {
        if (sp != d.sp || context != (int)d.context) {
            dead_from = ARENA_ARRAY(s->arena, uint32_t *, SPACE_ORDERS);
            memset(dead_from, 0, SPACE_ORDERS * sizeof *dead_from);
        }
        sp = d.sp;
        context = (int)d.context;
        struct lot x = {.decision = d, .mesh = mesh, .dead_from = dead_from};
        x.bound = fmax(m->bound, search_objective(s, search_floor_bound_s(s, m, &d), gpus));
        if (x.bound >= search_worst(s)) {
            s->result->removed[REMOVED_BOUND]++;
            continue;
        }
        search_push(s, (struct node){x.bound, NODE_LOT, (uint32_t)s->lots.n});
        vec_push(s->arena, &s->lots, x);
    }
}

/* Opens all families of a lot. */
static void open_lot(struct searching *s, const struct lot *x)
{
    struct mesh_node *m = &s->meshes.at[x->mesh];
    const struct mesh_order *order;
    for (uint32_t i = 0; (order = nth_order(s, m, i)); i++) {
        struct family f = family_new(order, m, &x->decision);
        if (!x->dead_from[i])
            x->dead_from[i] = dead_from_new(s);
        f.dead_from = x->dead_from[i];
        f.bound = x->bound;
        f.roomed = x->roomed;
        search_push(s, (struct node){f.bound, NODE_FAMILY, (uint32_t)s->families.n});
        vec_push(s->arena, &s->families, f);
    }
}

/* Lower bound in seconds by the kernels of the fastest microbatch size. */
static double kernels_bound_s(struct searching *s, const struct cost *floor, struct decision *d)
{
    uint64_t per_replica = s->job->train.batch / d->dp;
    double best = INFINITY;
    struct cost c = *floor;
    set_table_recompute(s, d);
    d->context = d->cp > 1 ? CONTEXT_ALL_GATHER : CONTEXT_AUTO; /* attention in a ring's parts is slower */
    c.decision = d;
    for (uint64_t b = 0; search_next_microbatch(s, d, per_replica, &b);) {
        d->microbatch = (uint32_t)b;
        d->microbatches = (uint32_t)(per_replica / b);
        d->sp = true; /* splits the rows of norms; the wishes may not allow it */
        if (d->tp == 1 || s->job->wishes.sequence_parallel == TRI_NO || s->job->train.sequence / d->cp * b % d->tp)
            d->sp = false;
        best = fmin(best, search_shape_bound_s(search_shape(s, &c), d));
    }
    return best;
}

/* Adds meshes that can be placed, bounded by their kernels with the cheapest recomputation. */
static void add_meshes(struct searching *s, const struct space_mesh *meshes, uint32_t n, uint32_t ep, uint32_t etp)
{
    const struct cost *floor = NULL;
    uint32_t tp = 0, cp = 0; /* those of `floor`, not of the previous mesh, which may have been skipped */
    for (uint32_t i = 0; i < n; i++) {
        const struct space_mesh *m = &meshes[i];
        struct mesh_node x = {.mesh = *m, .ep = ep, .etp = etp};
        struct decision d = search_mesh_decision(&x);
        if ((uint64_t)d.tp * d.cp * d.dp % ((uint64_t)ep * etp))
            continue;
        uint32_t order = 0;
        while (order < s->space.norders && !space_place(&s->space, order, &d))
            order++;
        if (order == s->space.norders)
            continue;
        if (!floor || m->tp != tp || m->cp != cp)
            floor = search_floor(s, &d);
        tp = m->tp;
        cp = m->cp;
        x.floor = floor;
        x.bound = search_objective(s, kernels_bound_s(s, floor, &d), d.gpus_used);
        if (isfinite(x.bound))
            vec_push(s->arena, &s->meshes, x);
    }
}

uint32_t search_least_zero(struct searching *s, const struct mesh_node *m, struct decision *d)
{
    struct cost c = *m->floor;
    c.decision = d;
    struct search_shape *h = search_shape(s, &c);
    d->shard = d->dp * d->cp; /* the largest shard group needs least memory */
    for (uint32_t i = 0; i < s->space.zero.n; i++) {
        d->zero = s->space.zero.at[i];
        if (search_state_fits(s, &c, h))
            return d->zero;
    }
    return 4;
}

void search_refine_mesh(struct searching *s, struct mesh_node *m)
{
    struct decision d = search_mesh_decision(m);
    double least = INFINITY;
    uint32_t gpus = m->mesh.tp * m->mesh.cp * m->mesh.dp * m->mesh.pp;
    m->refined = true;
    d = search_before_families(s, &d);
    m->dead = !search_next_family(s, &d) || search_least_zero(s, m, &d) > 3;
    if (m->dead)
        return;
    do {
        least = fmin(least, search_floor_bound_s(s, m, &d));
    } while (search_next_family(s, &d));
    m->bound = fmax(m->bound, search_objective(s, least, gpus));
}

void search_refine(struct searching *s, struct family *f)
{
    double step_s;
    if (!f->shape) {
        struct cost c = *f->cost;
        c.decision = &f->decision;
        f->shape = search_shape(s, &c);
        step_s = search_share_bound_s(f->shape, &f->decision);
    } else {
        f->refined = true;
        f->least = search_family_bound(s, f);
        step_s = f->least->step_s;
    }
    f->bound = fmax(f->bound, search_objective(s, step_s, f->decision.gpus_used));
}

/* ---- the loop ---- */

void search_push_meshes(struct searching *s)
{
    s->heap.n = 0;
    for (size_t i = 0; i < s->meshes.n; i++)
        search_push(s, (struct node){s->meshes.at[i].bound, NODE_MESH, (uint32_t)i});
}

static void push_leaf(struct searching *s, void *to, const struct leaf *x)
{
    (void)to;
    search_push(s, (struct node){x->bound, NODE_LEAF, (uint32_t)s->leaves.n});
    vec_push(s->arena, &s->leaves, *x);
}

static void push_cell(struct searching *s, void *to, const struct cell *cell, double bound, uint32_t family)
{
    (void)to;
    (void)family;
    search_push(s, (struct node){bound, NODE_CELL, (uint32_t)s->cells.n});
    vec_push(s->arena, &s->cells, *cell);
}

/* Puts a node back into the heap with a greater bound, unless that rules it out. */
static void push_again(struct searching *s, enum node_kind kind, uint32_t index, double bound)
{
    if (bound >= search_worst(s))
        s->result->removed[isfinite(bound) ? REMOVED_BOUND : REMOVED_MEMORY]++;
    else
        search_push(s, (struct node){bound, kind, index});
}

/* A mesh is first refined and put back by its bound; the next time it is opened. */
static void open_or_refine_mesh(struct searching *s, uint32_t index)
{
    struct mesh_node *m = &s->meshes.at[index];
    if (m->refined) {
        open_mesh(s, index);
        return;
    }
    search_refine_mesh(s, m);
    push_again(s, NODE_MESH, index, m->bound);
}

/* The same for a lot and a family.  While nothing has been found they are not bounded by memory, since what does not
 * fit may be the closest miss. */
static void open_or_refine_lot(struct searching *s, uint32_t index)
{
    struct lot *x = &s->lots.at[index];
    double before = x->bound;
    if (!x->roomed && isfinite(search_best(s))) {
        x->roomed = true;
        x->bound = room_bound(s, s->meshes.at[x->mesh].floor, &x->decision, before);
    }
    if (x->bound > before)
        push_again(s, NODE_LOT, index, x->bound);
    else
        open_lot(s, x);
}

static void open_or_refine(struct searching *s, const struct node *x)
{
    struct family *f = &s->families.at[x->index];
    if (f->refined) {
        search_open_family(s, x->index, push_cell, NULL);
        return;
    }
    if (!f->roomed && isfinite(search_best(s))) {
        f->roomed = true;
        f->bound = room_bound(s, f->floor, &f->decision, f->bound);
    }
    search_refine(s, f);
    push_again(s, NODE_FAMILY, x->index, f->bound);
}

void search_open_node(struct searching *s, const struct node *x)
{
    switch ((enum node_kind)x->kind) {
    case NODE_MESH:
        open_or_refine_mesh(s, x->index);
        break;
    case NODE_FAMILY:
        open_or_refine(s, x);
        break;
    case NODE_LOT:
        open_or_refine_lot(s, x->index);
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

void search_plant(struct searching *s)
{
    struct space_mesh *meshes;
    uint32_t n = space_meshes(s->arena, &s->space, &meshes);
    s->nmeshes = n;
    for (uint32_t e = 0; e < s->space.ep.n; e++)
        for (uint32_t t = 0; t < s->space.etp.n; t++)
            add_meshes(s, meshes, n, s->space.ep.at[e], s->space.etp.at[t]);
    search_push_meshes(s);
}

/* The work after which the search ends if nothing that is left is better than a bound. */
static uint64_t most_work(const struct searching *s, double bound)
{
    double best = search_best(s);
    if (isinf(best))
        return SEARCH_PATIENCE * s->budget;
    if (bound >= (1 - NEAR_ENOUGH) * best || s->most <= s->budget)
        return s->budget;
    if (bound < (1 - GOOD_ENOUGH) * best)
        return s->most;
    return s->most / 4 > s->budget ? s->most / 4 : s->budget;
}

/* Says how far the search is, some times a second. */
static void tell(struct searching *s, double bound)
{
    struct timespec t;
    if (!s->diag || !diag_shows_progress(s->diag))
        return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double now_s = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec, best = search_best(s);
    if (now_s < s->told_s + TELL_S)
        return;
    s->told_s = now_s;
    struct units_text evaluations = units_show_commas(s->result->spent), most = units_show_commas(s->most);
    if (isinf(best))
        diag_progress(s->diag, "searching: %s evaluations, no plan so far", evaluations.s);
    else
        diag_progress(s->diag, "searching: %s evaluations of at most %s, at most %.1f %% from the best", evaluations.s,
                      most.s, 100 * fmax(0, 1 - bound / best));
}

void search_branch(struct searching *s)
{
    bool again = false;
    search_plant(s);
    search_dive(s);
    while (s->heap.n) {
        struct node x = s->heap.at[0];
        struct search_result *r = s->result;
        tell(s, x.bound);
        if (x.kind == NODE_MESH && s->meshes.at[x.index].dead && r->ncandidates) {
            search_pop(s); /* if nothing fits, a dead mesh may have the closest miss */
            r->removed[REMOVED_MEMORY]++;
            continue;
        }
        bool certain = r->ncandidates && x.bound >= search_best(s);
        uint64_t most = most_work(s, x.bound);
        if (r->ncandidates && most == s->most && r->spent >= s->most / 4 && !again) {
            again = true;
            search_climb(s, r->spent + s->budget / CLIMB_SHARE);
            if (most_work(s, x.bound) == s->most)
                search_dive_again(s);
            continue;
        }
        bool spent = r->spent >= most;
        if (spent && !s->cut_short && !certain) {
            s->cut_short = true;
            s->rest_bound = x.bound;
        }
        if (s->job->wishes.objective == MINIMIZE_STEP_TIME && !s->fewest && x.bound > search_limit_s(s) &&
            s->fastest_s > 0)
            break; /* nothing that is left keeps the limits on time, and the error message can name a time */
        /* the list of candidates is filled up with the best leaves that remain */
        if (x.bound >= search_worst(s) || (certain && r->ncandidates == s->top) ||
            (spent && (x.kind != NODE_LEAF || r->ncandidates == s->top)))
            break;
        search_pop(s);
        search_open_node(s, &x);
    }
    s->result->removed[REMOVED_BOUND] += s->heap.n;
    if (s->cut_short && s->rest_bound < (1 - NEAR_ENOUGH) * search_best(s))
        search_climb(s, s->result->spent + s->budget / CLIMB_SHARE);
}
