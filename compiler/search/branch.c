/* The tree of a search, opened best bound first.
 *
 * A mesh (four axes and the experts' degrees) is bounded by the kernels of its fastest microbatch size; it opens into
 * families: an order of axes and nodes, a microbatch, recomputation, sequence parallelism and a context kind, bounded by
 * their blocks with transfers (shapes.c).  A family opens into leaves: ZeRO level and shard, schedule and chunks, which
 * are looked at one by one.  Nothing whose bound reaches the worst candidate kept is opened, so what is left when the
 * heap is empty is the best of the space, and what is left when the budget ends bounds how much better another could be.
 *
 * A first dive over the most promising meshes with few leaves each finds something to compare with. */

#include "compiler/search/search_private.h"

#include <math.h>
#include <string.h>

/* ---- a heap of nodes: least bound first, leaves before families before meshes, then by index ---- */

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

/* sequence parallelism as wished, where it is possible */
static bool sp_possible(const struct searching *s, const struct decision *d, uint64_t tokens)
{
    enum tri wish = s->job->wishes.sequence_parallel;
    if (d->sp && (d->tp == 1 || tokens % d->tp))
        return false;
    return d->sp ? wish != TRI_NO : wish != TRI_YES || d->tp == 1; /* with tp = 1 there is nothing to split */
}

static bool next_microbatch(const struct searching *s, const struct decision *d, uint64_t per_replica, uint64_t *b)
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

/* ---- leaves ---- */

static bool within_limits(const struct searching *s, const struct estimate *e)
{
    const struct wishes *w = &s->job->wishes;
    const struct train *t = &s->job->train;
    if (w->step_time_s > 0 && e->step_time_s > w->step_time_s)
        return false;
    if (w->finish_s > 0 && t->total > 0 &&
        t->total / ((double)t->batch * (double)t->sequence) * e->step_time_s > w->finish_s)
        return false;
    return true;
}

static void too_full(struct searching *s, const struct candidate *x)
{
    struct search_result *r = s->result;
    r->removed[REMOVED_MEMORY]++;
    if (r->has_closest && x->estimate.peak_bytes >= r->closest.estimate.peak_bytes)
        return;
    r->closest = *x;
    r->closest.decision.stages = ARENA_ARRAY(s->arena, struct stage, x->decision.nstages);
    memcpy(r->closest.decision.stages, x->decision.stages, x->decision.nstages * sizeof *x->decision.stages);
    r->has_closest = true;
}

/* memory of x's decision; false if it does not fit, or repeats the decision without recomputation */
static bool leaf_fits(struct searching *s, const struct cost *c, const struct search_shape *h, bool spare, struct candidate *x)
{
    struct decision *d = &x->decision;
    if (spare && d->recompute != RECOMPUTE_NONE) {
        memcpy(s->scratch, d->stages, d->nstages * sizeof *d->stages);
        d->stages = s->scratch;
        if (search_spare(c, &h->shape, d, s->memory_limit)) {
            uint32_t again = 0;
            for (uint32_t i = 0; i < d->nstages; i++)
                again += d->stages[i].count - d->stages[i].spared;
            if (again == 0)
                return false;
        } else {
            decision_spare(d);
        }
    }
    cost_memory(c, &h->shape, &x->estimate);
    if (x->estimate.peak_bytes <= s->memory_limit)
        return true;
    too_full(s, x);
    return false;
}

/* one decision, complete and legal: true unless it does not fit; over: even without what its ZeRO level adds */
static bool leaf(struct searching *s, struct cost *c, const struct family *f, const struct decision *d, bool *over)
{
    struct search_result *r = s->result;
    struct candidate x = {.decision = *d};
    const char *why;
    if (s->unlike && search_dimension_value(d, s->dimension) == search_dimension_value(s->unlike, s->dimension))
        return true;
    c->decision = &x.decision;
    r->evaluated++;
    uint64_t before = r->removed[REMOVED_MEMORY];
    if (!leaf_fits(s, c, f->shape, f->spare, &x)) {
        *over = x.estimate.peak_bytes - x.estimate.buffer_bytes > s->memory_limit && d->microbatches > 1;
        return r->removed[REMOVED_MEMORY] == before;
    }
    cost_time(c, &f->shape->shape, s->ranks, s->stages, &x.estimate);
    if (s->fastest_s <= 0 || x.estimate.step_time_s < s->fastest_s)
        s->fastest_s = x.estimate.step_time_s;
    if (!within_limits(s, &x.estimate)) {
        r->removed[REMOVED_TIME]++;
        return true;
    }
    if (s->emit_only && !decision_emittable(s->arena, s->job, &x.decision, &why)) {
        s->cannot = why;
        r->removed[REMOVED_EMIT]++;
        return true;
    }
    s->fastest_seen_s = fmin(s->fastest_seen_s, search_objective(s, x.estimate.step_time_s, d->gpus_used));
    search_keep(s, &x);
    return true;
}

/* divisors of all for which one rank more would leave a level of the network, and all itself; most first */
static uint32_t shard_choices(const struct searching *s, const struct cost *c, const struct decision *d, uint32_t room,
                              uint32_t *out)
{
    uint32_t all = d->dp * d->cp, n = 0;
    const struct wish *w = &s->job->wishes.degree[DEG_SHARD];
    if (d->zero == 0 || all == 1) {
        out[0] = 1;
        return space_wants(w, 1);
    }
    if (w->relation != REL_ANY) {
        for (uint32_t v = all; v >= 1 && n < room; v--)
            if (all % v == 0 && space_wants(w, v))
                out[n++] = v;
        return n;
    }
    out[n++] = all;
    struct cost_group last = cost_run_group(c, all, d->order[0] == AXIS_TP ? d->tp : 1);
    for (uint32_t v = all / 2; v >= 2 && n < room; v--) {
        if (all % v)
            continue;
        struct cost_group g = cost_run_group(c, v, d->order[0] == AXIS_TP ? d->tp : 1);
        if (g.level < last.level)
            out[n++] = v;
        last = g.level < last.level ? g : last;
    }
    return n;
}

/* The schedules of a family that cut the model into the same stages on the same ranks: one run of space.schedules.  Their
 * times differ in the pipeline alone, and those of ZeRO levels in all but the pipeline, so that one row and one column of
 * the table of both bound every cell. */
struct class {
    uint32_t first, n; /* schedules first .. first + n - 1 */
    const struct search_cut *cut;
    double pipeline_s[SPACE_SCHEDULES]; /* step time under the first state choice, INFINITY if it does not apply */
    bool dead[SPACE_SCHEDULES];         /* fits under no state choice */
};
/* ZeRO levels with their shards, those that need least memory first */
enum { STATES = 64 };
struct states {
    uint32_t n, zero[STATES], shard[STATES];
    double more_s[STATES]; /* step time beyond that of the first */
};

static void list_states(const struct searching *s, struct cost *c, struct decision *d, bool few, struct states *out)
{
    bool split = d->dp * d->cp > 1; /* else all levels are the first */
    c->decision = d;
    out->n = 0;
    for (uint32_t z = split ? s->space.zero.n : 1; z-- > 0;) {
        uint32_t shards[16];
        d->zero = s->space.zero.at[z];
        if (few && split && d->zero != 1 && s->space.zero.n > 1)
            continue;
        uint32_t n = shard_choices(s, c, d, few ? 1 : ARRAY_LEN(shards), shards);
        for (uint32_t i = 0; i < n && out->n < STATES; i++) {
            out->zero[out->n] = d->zero;
            out->shard[out->n++] = shards[i];
        }
    }
}

static void set_state(struct cost *c, struct decision *d, const struct states *x, uint32_t i)
{
    d->zero = x->zero[i];
    d->shard = x->shard[i];
    c->decision = d;
    cost_set_shard(c);
}

static void set_schedule(const struct searching *s, struct decision *d, uint32_t k)
{
    const struct space_schedule *x = &s->space.schedules[k];
    d->schedule = x->kind;
    d->vpp = x->vpp;
    d->schedule_group = x->group ? x->group : x->groups_of_pp > 1 ? x->groups_of_pp * d->pp : 0;
}

static bool schedule_applies(const struct searching *s, const struct decision *d, uint32_t k)
{
    if (d->pp * d->vpp > s->job->model.nlayers && d->vpp > 1 && !s->layout_stages)
        return false;
    return (!s->layout_stages || d->pp * d->vpp == s->layout_nstages) &&
           space_schedule_takes(&s->space, &s->space.schedules[k], d);
}

/* step time of d with all layers spared that may be: a bound for whatever memory leaves of them */
static double bound_s(struct searching *s, struct cost *c, const struct family *f, struct decision *d)
{
    struct estimate e = {0};
    struct stage *stages = d->stages;
    if (f->spare && d->recompute != RECOMPUTE_NONE) {
        memcpy(s->scratch, stages, d->nstages * sizeof *stages);
        for (uint32_t i = 0; i < d->nstages; i++)
            s->scratch[i].spared = s->scratch[i].count;
        d->stages = s->scratch;
    }
    c->decision = d;
    s->result->evaluated++;
    cost_time(c, &f->shape->shape, s->ranks, s->stages, &e);
    d->stages = stages;
    return e.step_time_s;
}

/* the row and the column; false if no schedule of the class applies */
static bool fill_class(struct searching *s, struct cost *c, const struct family *f, struct decision *d, struct class *x,
                       struct states *states)
{
    uint32_t any = UINT32_MAX;
    set_state(c, d, states, 0);
    for (uint32_t k = x->first; k < x->first + x->n; k++) {
        x->pipeline_s[k - x->first] = INFINITY;
        x->dead[k - x->first] = false;
        set_schedule(s, d, k);
        if (!schedule_applies(s, d, k))
            continue;
        if (any == UINT32_MAX) {
            x->cut = search_cut(s, f->shape, d);
            d->nstages = x->cut->nstages;
            d->stages = x->cut->stages;
        }
        any = k;
        x->pipeline_s[k - x->first] = bound_s(s, c, f, d);
    }
    if (any == UINT32_MAX)
        return false;
    set_schedule(s, d, any);
    states->more_s[0] = 0;
    for (uint32_t i = 1; i < states->n; i++) {
        set_state(c, d, states, i);
        states->more_s[i] = bound_s(s, c, f, d) - x->pipeline_s[any - x->first];
    }
    return true;
}

/* does the schedule hold no more than any other of its class, on every rank? */
static bool thrifty(enum schedule_kind k)
{
    return k == SCHED_1F1B || k == SCHED_V_HALF || k == SCHED_V_MIN;
}

/* the cells of the table whose bound is low enough; few: only so many schedules; true if something fits */
static bool open_class(struct searching *s, struct cost *c, struct family *f, struct decision *d, struct class *x,
                       const struct states *states, uint32_t few)
{
    bool fits = false, live = true, thrifty_here = false;
    for (uint32_t k = 0; k < x->n; k++)
        thrifty_here |= thrifty(s->space.schedules[x->first + k].kind) && isfinite(x->pipeline_s[k]);
    for (uint32_t i = 0; i < states->n && live; i++) {
        set_state(c, d, states, i);
        bool thrifty_dead = thrifty_here;
        for (int rest = 0; rest < 2; rest++)
            for (uint32_t k = 0, done = 0; k < x->n && !(few && done == few); k++) {
                bool is_thrifty = thrifty(s->space.schedules[x->first + k].kind);
                if (is_thrifty == rest || !isfinite(x->pipeline_s[k]))
                    continue;
                done++;
                s->result->space++;
                if (x->dead[k] || (rest && thrifty_dead)) {
                    s->result->removed[REMOVED_MEMORY]++;
                    continue;
                }
                double bound = (x->pipeline_s[k] + states->more_s[i]) * (1 - 1e-9);
                if (search_objective(s, bound, d->gpus_used) >= search_worst(s)) {
                    s->result->removed[REMOVED_BOUND]++;
                    thrifty_dead &= !is_thrifty;
                    fits = true; /* for all we know */
                    continue;
                }
                set_schedule(s, d, x->first + k);
                d->stages = x->cut->stages;
                bool over = false; /* by more than another state could change */
                fits |= leaf(s, c, f, d, &over);
                x->dead[k] = over;
                thrifty_dead &= !is_thrifty || over;
            }
        live = !thrifty_dead; /* then the others are as well, under this state and all that follow */
    }
    return fits;
}

static bool open_classes(struct searching *s, struct family *f, uint32_t few)
{
    struct decision d = f->decision;
    struct cost c = *f->cost;
    struct states states;
    bool fits = false;
    list_states(s, &c, &d, few, &states);
    for (uint32_t k = 0, n; k < s->space.nschedules && states.n; k += n) {
        const struct space_schedule *all = s->space.schedules;
        for (n = 1; k + n < s->space.nschedules && all[k + n].vpp == all[k].vpp &&
                    cost_v_placement(all[k + n].kind) == cost_v_placement(all[k].kind);)
            n++;
        struct class x;
        x.first = k;
        x.n = n;
        x.cut = NULL;
        if (fill_class(s, &c, f, &d, &x, &states))
            fits |= open_class(s, &c, f, &d, &x, &states, few);
    }
    return fits;
}

/* could the family with b sequences fit under the least state, by any schedule that holds least of its class? */
static bool probe(struct searching *s, const struct family *f, uint32_t b)
{
    struct decision d = f->decision;
    struct cost c = *f->cost;
    struct states states;
    struct estimate e = {0};
    d.microbatches = (uint32_t)((uint64_t)d.microbatch * d.microbatches / b);
    d.microbatch = b;
    list_states(s, &c, &d, false, &states);
    if (!states.n || d.microbatches == 1)
        return true;
    set_state(&c, &d, &states, 0);
    struct search_shape *h = b == f->decision.microbatch ? f->shape : search_shape(s, &c);
    bool any = false;
    for (uint32_t k = 0, first = 0; k < s->space.nschedules; k++) {
        const struct space_schedule *all = s->space.schedules;
        if (all[k].vpp != all[first].vpp || cost_v_placement(all[k].kind) != cost_v_placement(all[first].kind))
            first = k;
        bool least = thrifty(all[k].kind);
        for (uint32_t i = first; i < s->space.nschedules && all[i].vpp == all[k].vpp && !least; i++)
            least = cost_v_placement(all[i].kind) == cost_v_placement(all[k].kind) && thrifty(all[i].kind);
        if (least && !thrifty(all[k].kind))
            continue; /* another of its class holds less */
        set_schedule(s, &d, k);
        if (!schedule_applies(s, &d, k))
            continue;
        const struct search_cut *cut = search_cut(s, h, &d);
        d.nstages = cut->nstages;
        d.stages = cut->stages;
        any = true;
        s->result->evaluated++;
        cost_memory(&c, &h->shape, &e);
        if (e.peak_bytes - e.buffer_bytes <= s->memory_limit)
            return true;
        struct candidate x = {.decision = d, .estimate = e};
        too_full(s, &x);
    }
    return !any;
}

static uint32_t least_microbatch(const struct searching *s, const struct decision *d)
{
    uint64_t b = 0, per_replica = (uint64_t)d->microbatch * d->microbatches;
    while (next_microbatch(s, d, per_replica, &b))
        if (sp_possible(s, d, s->job->train.sequence / d->cp * b))
            return (uint32_t)b;
    return d->microbatch;
}

static void open_family(struct searching *s, struct family *f, uint32_t few)
{
    uint32_t b = f->decision.microbatch;
    if (few) {
        open_classes(s, f, few);
        return;
    }
    if (*f->dead_from == UINT32_MAX) { /* more sequences need more memory: ask the fewest first */
        uint32_t least = least_microbatch(s, &f->decision);
        *f->dead_from = least == b || probe(s, f, least) ? UINT32_MAX - 1 : 0;
    }
    if (b >= *f->dead_from)
        return;
    if (!probe(s, f, b) || !open_classes(s, f, 0))
        *f->dead_from = b;
}

/* ---- families ---- */

static double family_bound(const struct searching *s, const struct search_shape *h, const struct decision *d)
{
    double t = search_shape_bound_s(h, d, s->job->model.nlayers, s->overlapping && d->pp > 1);
    return search_objective(s, t, d->gpus_used);
}

static void add_family(struct searching *s, struct cost *c, struct decision *d, bool spare, uint32_t *dead_from, bool dive)
{
    c->decision = d;
    struct search_shape *h = search_shape(s, c);
    struct family f = {*d, c, h, dead_from, spare, family_bound(s, h, d)};
    if (f.bound >= search_worst(s)) {
        s->result->removed[REMOVED_BOUND]++;
    } else if (dive) {
        open_family(s, &f, 3);
    } else {
        heap_push(s, (struct node){f.bound, NODE_FAMILY, (uint32_t)s->families.n});
        vec_push(s->arena, &s->families, f);
    }
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

/* all families of a mesh in one order; dive: recomputation none and full, sequence parallelism where possible */
static void open_order(struct searching *s, struct cost *c, struct decision *d, bool dive)
{
    const struct wishes *w = &s->job->wishes;
    uint64_t per_replica = s->job->train.batch / d->dp;
    for (uint32_t i = 0; i < s->space.nrecompute; i++) {
        const struct space_recompute *k = &s->space.recompute[i];
        if (dive && i > 0 && i + 1 < s->space.nrecompute)
            continue;
        d->recompute = k->kind;
        d->parts = k->parts;
        d->recompute_layers = k->layers;
        for (int sp = 1; sp >= 0; sp--)
            for (int context = CONTEXT_RING; context <= CONTEXT_ALL_TO_ALL; context++) {
                d->sp = sp;
                d->context = d->cp > 1 ? (enum context_kind)context : CONTEXT_AUTO;
                if (d->cp == 1 ? context != CONTEXT_RING : w->context != CONTEXT_AUTO && (int)w->context != context)
                    continue;
                if (!context_possible(s, d))
                    continue;
                uint32_t *dead_from = ARENA_NEW(s->arena, uint32_t);
                *dead_from = UINT32_MAX;
                for (uint64_t b = 0; next_microbatch(s, d, per_replica, &b);) {
                    d->microbatch = (uint32_t)b;
                    d->microbatches = (uint32_t)(per_replica / b);
                    if (sp_possible(s, d, s->job->train.sequence / d->cp * b))
                        add_family(s, c, d, k->spare || (s->spare && k->kind != RECOMPUTE_NONE), dead_from, dive);
                }
                if (dive && s->result->evaluated >= s->budget / 4)
                    return;
            }
    }
}

/* ---- meshes ---- */

static bool same_group(const struct cost_group *a, const struct cost_group *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* the same degrees in another order of axes cost the same */
static bool same_transfers(const struct cost *a, const struct cost *b)
{
    const uint32_t masks[] = {AXIS_BIT(AXIS_TP), AXIS_BIT(AXIS_CP), AXIS_BIT(AXIS_DP), AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)};
    for (size_t i = 0; i < ARRAY_LEN(masks); i++)
        if (!same_group(&a->group[masks[i]], &b->group[masks[i]]))
            return false;
    return a->next_level == b->next_level && same_group(&a->tie, &b->tie) && same_group(&a->ep, &b->ep) &&
           (a->mesh.order[0] == AXIS_TP) == (b->mesh.order[0] == AXIS_TP);
}

static struct decision mesh_decision(const struct mesh_node *m)
{
    return (struct decision){.tp = m->mesh.tp, .cp = m->mesh.cp, .dp = m->mesh.dp, .pp = m->mesh.pp, .vpp = 1, .ep = m->ep,
                             .etp = m->etp, .shard = 1};
}

static void open_mesh(struct searching *s, const struct mesh_node *m, bool dive)
{
    struct decision d = mesh_decision(m);
    const struct cost *orders[SPACE_ORDERS];
    uint32_t n = 0;
    for (uint32_t order = 0; order < s->space.norders && !(dive && n); order++) {
        if (!space_order_counts(&s->space, order, &m->mesh) || !space_place(&s->space, order, &d))
            continue;
        struct arena_mark mark = arena_mark(s->arena);
        struct cost *c = ARENA_NEW(s->arena, struct cost);
        cost_init(c, s->job, s->topo, &d, false);
        uint32_t i = 0;
        while (i < n && !same_transfers(orders[i], c))
            i++;
        if (i < n) {
            s->result->removed[REMOVED_SAME]++;
            arena_reset(s->arena, mark);
            continue;
        }
        orders[n++] = c;
        open_order(s, c, &d, dive);
    }
}

/* kernels of the fastest microbatch size, sequence parallelism and recomputation: a bound for every order of a mesh */
struct tuple {
    uint32_t tp, cp, ep, etp;
    uint64_t most; /* of b */
    VEC(struct search_shape *) shapes; /* [b - 1], NULL where not asked for yet */
};

static double tuple_bound_s(struct searching *s, struct tuple *t, const struct cost *c, struct decision *d, uint64_t per_replica)
{
    double best = INFINITY;
    struct cost own = *c;
    own.decision = d;
    for (uint64_t b = 0; next_microbatch(s, d, per_replica, &b);) {
        d->microbatch = (uint32_t)b;
        d->microbatches = (uint32_t)(per_replica / b);
        d->sp = true; /* splits what norms stream; the wishes may not allow it */
        if (d->tp == 1 || s->job->wishes.sequence_parallel == TRI_NO || s->job->train.sequence / d->cp * b % d->tp)
            d->sp = false;
        while (t->shapes.n < b)
            vec_push(s->arena, &t->shapes, NULL);
        if (!t->shapes.at[b - 1])
            t->shapes.at[b - 1] = search_shape(s, &own);
        best = fmin(best, search_shape_bound_s(t->shapes.at[b - 1], d, s->job->model.nlayers, true));
    }
    return best;
}

/* the bound of a mesh: of the recomputation that costs least, for the first cost that can be had */
static void add_meshes(struct searching *s, const struct space_mesh *meshes, uint32_t n, uint32_t ep, uint32_t etp)
{
    struct tuple t = {0};
    struct cost *c = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const struct space_mesh *m = &meshes[i];
        struct mesh_node x = {*m, ep, etp, 0};
        struct decision d = mesh_decision(&x);
        if ((uint64_t)d.tp * d.cp * d.dp % ((uint64_t)ep * etp))
            continue;
        if (!c || m->tp != t.tp || m->cp != t.cp) {
            t = (struct tuple){.tp = m->tp, .cp = m->cp, .ep = ep, .etp = etp};
            c = NULL;
        }
        uint32_t order = 0;
        while (order < s->space.norders && !space_place(&s->space, order, &d))
            order++;
        if (order == s->space.norders)
            continue;
        d.recompute = s->space.recompute[0].kind;
        d.parts = s->space.recompute[0].parts;
        d.recompute_layers = s->space.recompute[0].layers;
        d.context = d.cp > 1 ? CONTEXT_RING : CONTEXT_AUTO;
        if (!c) {
            c = ARENA_NEW(s->arena, struct cost);
            cost_init(c, s->job, s->topo, &d, false);
            cost_device_init(c); /* other meshes may do without degraded nodes */
        }
        x.bound = search_objective(s, tuple_bound_s(s, &t, c, &d, s->job->train.batch / d.dp), d.gpus_used);
        if (isfinite(x.bound))
            vec_push(s->arena, &s->meshes, x);
    }
}

/* the most promising meshes first, few leaves each, until enough fit or a quarter of the budget is gone */
static void dive(struct searching *s)
{
    enum { ENOUGH = 24 };
    uint64_t opened = 0;
    for (size_t i = 0; i < s->heap.n; i++) /* a heap is nearly sorted */
        if (s->result->evaluated < s->budget / 4 && (!s->result->ncandidates || opened < ENOUGH)) {
            opened += s->result->ncandidates > 0;
            open_mesh(s, &s->meshes.at[s->heap.at[i].index], true);
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
        if (x.bound >= search_worst(s)) {
            s->result->removed[REMOVED_BOUND] += s->heap.n;
            return;
        }
        if (s->result->evaluated >= s->budget) {
            s->cut_short = true;
            s->rest_bound = x.bound;
            return;
        }
        heap_pop(s);
        if (x.kind == NODE_MESH)
            open_mesh(s, &s->meshes.at[x.index], false);
        else if (x.kind == NODE_FAMILY)
            open_family(s, &s->families.at[x.index], 0);
    }
}
