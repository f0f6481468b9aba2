/* Families: what a mesh with an order of axes, a microbatch size, sequence parallelism and a context kind opens
 * into.
 *
 * A family is a table with a row per schedule and a column per state (ZeRO level and shard).  Schedules of a class
 * cut the model into the same stages on the same ranks, and their times differ only in the pipeline; states differ
 * in everything but the pipeline, unless overlapped pairs move expert rows beside it.  So one row and one column
 * bound every cell, assuming that all layers are spared from recomputation that may be.  Cells wait in the heap;
 * when its turn comes, a cell becomes leaves, one for each kind of recomputation that fits.
 *
 * While nothing has been found memory is checked first.  More sequences never need less memory, so kinds of
 * recomputation that do not fit with the smallest microbatch are dropped for all sizes; and a kind that does not fit
 * with the schedule that holds least in each class, under any ZeRO level with its state sharded as far as allowed, is
 * dropped for the family.  Later the leaves' own check costs less. */

#include "compiler/model/orders.h"
#include "compiler/search/trade.h"
#include "compiler/search/bounds.h"
#include "compiler/search/candidates.h"
#include "compiler/search/leaves.h"

#include <math.h>
#include <string.h>

static void set_recompute(const struct searching *s, struct decision *d, uint32_t k)
{
    d->recompute = s->space.recompute[k].kind;
    d->parts = s->space.recompute[k].parts;
    d->recompute_layers = s->space.recompute[k].layers;
}

bool search_schedule_applies(const struct searching *s, const struct decision *d, uint32_t k)
{
    uint32_t vpp = s->space.schedules[k].vpp;
    if (d->pp * vpp > s->job->model.nlayers && vpp > 1 && !s->layout_stages)
        return false;
    return (!s->layout_stages || d->pp * vpp == s->layout_nstages) &&
           space_schedule_takes(&s->space, &s->space.schedules[k], d);
}

/* index after the last schedule of k's class */
static uint32_t class_end(const struct searching *s, uint32_t k)
{
    uint32_t end = k + 1;
    while (end < s->space.nschedules && search_same_class(&s->space.schedules[k], &s->space.schedules[end]))
        end++;
    return end;
}

/* may the schedule hold fewer activations than every other one of its class, on some rank? */
static bool thrifty(enum schedule_kind k)
{
    return k == SCHED_1F1B || k == SCHED_INTERLEAVED || k == SCHED_V_HALF || k == SCHED_V_MIN || order_of(k);
}

/* Lower bound on the memory of x's decision, under any schedule of its class, any shard of its ZeRO level, and with
 * all layers recomputed that may be; does it fit?  One that does not may be the closest miss. */
static bool may_fit(struct searching *s, struct cost *c, const struct search_shape *h, struct candidate *x)
{
    struct cost_rooms rooms;
    s->result->spent += ++s->nprobes % 8 == 0; /* most stop at the first rank */
    c->decision = &x->decision;
    if (x->decision.recompute_layers) {
        memcpy(s->scratch, x->decision.stages, x->decision.nstages * sizeof *s->scratch);
        x->decision.stages = s->scratch;
        decision_spare(&x->decision);
    }
    cost_rooms_least(&rooms, c, &h->shape);
    if (cost_rooms_fullest(&rooms, s->memory_limit, &x->estimate))
        return true;
    if (search_found(s)) {
        s->result->removed[REMOVED_MEMORY]++;
        return false;
    }
    cost_rooms_init(&rooms, c, &h->shape);
    if (cost_rooms_fullest(&rooms, search_miss_bytes(s), &x->estimate))
        search_too_full(s, x);
    else
        s->result->removed[REMOVED_MEMORY]++;
    return false;
}

/* Does it exceed the memory even without buffers?  Then it also does under states that need more. */
static bool needs_more(const struct searching *s, const struct estimate *e)
{
    return e->peak_bytes - e->buffer_bytes > s->memory_limit;
}

/* could any schedule from first to end - 1 become a candidate under a ZeRO level? */
static bool class_hopes(struct searching *s, const struct family *f, uint32_t first, uint32_t end, uint32_t zero)
{
    for (uint32_t k = first; k < end; k++)
        if (search_schedule_applies(s, &f->decision, k) && search_hopes(s, &f->decision, search_level_s(s, f, k, zero)))
            return true;
    return false;
}

/* Could a kind of recomputation fit, with b sequences per microbatch, under some ZeRO level and a schedule that
 * holds least?  With the family's own b only schedules that could become candidates are checked; *skipped: some were
 * not. */
static bool probe(struct searching *s, const struct family *f, uint32_t kind, uint32_t b, bool *skipped)
{
    struct decision d = f->decision;
    struct cost c = *f->cost;
    const struct states *states = search_states(s, f);
    bool any = false;
    d.microbatches = (uint32_t)((uint64_t)d.microbatch * d.microbatches / b);
    d.microbatch = b;
    set_recompute(s, &d, kind);
    if (!states->n || d.microbatches == 1)
        return states->n;
    search_set_state(&c, &d, &states->at[0]);
    struct search_shape *h = search_shape(s, &c);
    for (uint32_t first = 0, end; first < s->space.nschedules; first = end) {
        bool least_here = false;
        end = class_end(s, first);
        for (uint32_t k = first; k < end; k++)
            least_here |= thrifty(s->space.schedules[k].kind) && search_schedule_applies(s, &d, k);
        for (uint32_t k = first; k < end; k++) {
            if ((least_here && !thrifty(s->space.schedules[k].kind)) || !search_schedule_applies(s, &d, k))
                continue;
            any = true;
            for (uint32_t i = 0; i < states->n; i++) { /* those that need least memory come first */
                if (i && states->at[i].zero == states->at[i - 1].zero)
                    continue; /* the first state of a level has the most shards */
                if (!search_has_room(s, &states->at[i]))
                    continue;
                if (b == f->decision.microbatch && f->least && !class_hopes(s, f, first, end, states->at[i].zero)) {
                    *skipped = true;
                    continue;
                }
                struct candidate x = {.decision = d};
                search_set_state(&c, &x.decision, &states->at[i]);
                search_set_schedule(s, f, &x.decision, k);
                if (may_fit(s, &c, h, &x))
                    return true;
                if (search_found(s) && needs_more(s, &x.estimate))
                    break;
            }
        }
    }
    return !any && !*skipped;
}

static uint32_t least_microbatch(const struct searching *s, const struct decision *d)
{
    uint64_t b = 0, per_replica = (uint64_t)d->microbatch * d->microbatches;
    while (search_next_microbatch(s, d, per_replica, &b))
        if (search_sp_possible(s, d, b))
            return (uint32_t)b;
    return d->microbatch;
}

/* Can the kind of recomputation have leaves in this family? */
static bool kind_lives(struct searching *s, struct family *f, uint32_t kind)
{
    uint32_t b = f->decision.microbatch, *dead_from = &f->dead_from[kind];
    bool skipped = false;
    if (*dead_from == UINT32_MAX) { /* first with the smallest microbatch */
        uint32_t least = least_microbatch(s, &f->decision);
        bool lives = probe(s, f, kind, least, &skipped);
        if (!skipped)
            *dead_from = lives ? UINT32_MAX - 1 : 0;
        if (least == b)
            return lives;
    }
    if (b >= *dead_from)
        return false;
    skipped = false;
    bool lives = probe(s, f, kind, b, &skipped);
    if (!lives && !skipped)
        *dead_from = b;
    return lives;
}

static void add_cell(struct searching *s, const struct family *f, uint32_t index, const struct cell *cell,
                     double step_s, cell_taker take, void *to)
{
    double bound = search_objective(s, step_s, f->decision.gpus_used);
    if (bound < search_worst(s))
        take(s, to, cell, fmax(bound, f->bound), index);
    else
        s->result->removed[isfinite(bound) ? REMOVED_BOUND : REMOVED_MEMORY]++;
}

static uint32_t alive_kinds(struct searching *s, struct family *f)
{
    struct cost c = *f->cost;
    c.decision = &f->decision;
    uint32_t alive = 0, roomy = search_roomy_kinds(s, &c, search_shape(s, &c));
    for (uint32_t kind = 0; kind < s->space.nrecompute; kind++)
        alive |= roomy & 1u << kind && (search_found(s) || kind_lives(s, f, kind)) ? 1u << kind : 0;
    return alive;
}

/* Finds which kinds of recomputation can have leaves; false: none. */
static bool find_alive(struct searching *s, struct family *f)
{
    struct search_least *known = f->least;
    if (f->alive_states)
        return f->alive;
    f->alive = known && known->asked ? known->alive : alive_kinds(s, f);
    if (known) {
        known->asked = true;
        known->alive = f->alive;
    }
    uint32_t n = s->space.nschedules * s->space.nrecompute;
    f->alive_states = arena_array(s->arena, n, sizeof *f->alive_states);
    memset(f->alive_states, SEARCH_STATES, n * sizeof *f->alive_states);
    return f->alive;
}

/* A state of no higher ZeRO level and no larger shard group needs at least as much memory as one that does not fit. */
static void note_dead(const struct searching *s, struct family *f, const struct cell *cell, uint32_t kind)
{
    const struct states *all = f->states;
    const struct state *x = &all->at[cell->state];
    uint8_t *alive = f->alive_states[cell->schedule * s->space.nrecompute + kind];
    for (uint32_t i = cell->state; i < all->n; i++)
        if (all->at[i].shard <= x->shard && i < alive[all->at[i].zero])
            alive[all->at[i].zero] = (uint8_t)i;
}

static bool is_dead(const struct searching *s, const struct family *f, const struct cell *cell, uint32_t kind)
{
    return cell->state >= f->alive_states[cell->schedule * s->space.nrecompute + kind][f->states->at[cell->state].zero];
}

/* Can the family's pipeline run schedule k, and could it become a candidate under any state? */
static bool schedule_hopes(const struct searching *s, const struct family *f, uint32_t k)
{
    bool applies = search_schedule_applies(s, &f->decision, k), any = applies && !f->least;
    for (uint32_t i = 0; applies && !any && i < f->states->n; i++)
        any = search_has_room(s, &f->states->at[i]) &&
              search_hopes(s, &f->decision, f->least->schedules[k].pipeline_s[f->states->at[i].zero]);
    return any;
}

/* Schedules of a class that least.c bounds alike: those that do not split the backward, those that do, those that
 * skew steps, and those that run two copies of the model; each with and without overlapped pairs. */
enum { TAILS = 8 };

static uint32_t tail_kind(const struct space_schedule *x)
{
    uint32_t ends = x->kind == SCHED_DUALPIPE ? 3 : pipeline_skews(x->kind) ? 2 : pipeline_splits(x->kind) || x->listed;
    return 2 * ends + decision_pairs(x->kind);
}

/* Step times of one class of schedules, in parts: a pipeline per schedule, and a tail per state. */
struct class_row {
    uint32_t end; /* index after its last schedule */
    struct row_stages {
        bool known;
        struct search_stages stages; /* stored in s->row_ranks and s->row_stages */
        double steadier_s;           /* upper bound on how much less slow nodes delay under recomputation */
    } stages[ROW_KINDS];
    bool timed[ROW_KINDS][SPACE_SCHEDULES];
    struct search_pipeline body[ROW_KINDS][SPACE_SCHEDULES];
    /* by ZeRO level: the pipeline, with what memory forces ranks to recompute; 0: not known */
    double squeezed_s[SPACE_SCHEDULES][4];
    bool known[TAILS][SEARCH_STATES];
    struct search_tail tail[TAILS][SEARCH_STATES];
};

static enum row_kind row_kind(const struct searching *s, uint32_t k, uint32_t zero)
{
    const struct decision d = {.schedule = s->space.schedules[k].kind, .zero = zero};
    if (!decision_pairs(d.schedule))
        return s->space.schedules[k].listed ? ROW_LISTED : ROW_PLAIN;
    return model_has_experts(&s->job->model) && decision_exchanges_apart(s->job, &d) ? ROW_APART : ROW_PAIRS;
}

/* Sets a state for a row's stages, before one is chosen: software stacks add up half-precision gradients in the
 * least time where they are sharded most. */
static void set_row_state(const struct cost *c, enum row_kind kind, struct decision *d)
{
    bool apart = model_has_experts(&c->job->model) && decision_exchanges_apart(c->job, d);
    d->zero = 0;
    if (kind == ROW_APART || (c->device.gradient_bytes > 2 && !(kind == ROW_PAIRS && apart)))
        return;
    d->zero = 2;
    d->shard = d->dp * d->cp;
}

/* stages of the class of schedule k */
static const struct row_stages *stages_of(struct searching *s, const struct family *f, struct class_row *x, uint32_t k,
                                          enum row_kind kind)
{
    struct row_stages *own = &x->stages[kind];
    if (own->known)
        return own;
    struct decision d = f->decision;
    struct cost c = *f->cost;
    c.decision = &d;
    search_set_schedule(s, f, &d, k);
    search_states(s, f);
    set_row_state(&c, kind, &d);
    own->known = true;
    own->steadier_s = 0;
    own->stages = search_stages(&c, f->shape, s->row_ranks[kind], s->row_stages[kind]);
    if (!s->may_spare)
        return own;
    /* slow nodes delay no transfers, and recomputation may repeat those of the forward */
    search_shorten_stages(s, &c, f->shape, kind != ROW_PLAIN, s->row_ranks[kind], s->row_stages[kind]);
    own->stages.body = cost_body(&c, s->row_ranks[kind]);
    own->stages.body.slow = cost_slow_least(f->cost);
    for (uint32_t r = 0; r < d.pp; r++)
        own->steadier_s += own->stages.body.slow * d.microbatches * s->row_ranks[kind][r].forward_comm_s / d.pp;
    return own;
}

static const struct search_pipeline *body_of(struct searching *s, const struct family *f, struct class_row *x,
                                             uint32_t k, uint32_t zero)
{
    enum row_kind kind = row_kind(s, k, zero);
    struct search_pipeline *body = &x->body[kind][k];
    if (x->timed[kind][k])
        return body;
    struct decision d = f->decision;
    const struct row_stages *own = stages_of(s, f, x, k, kind);
    search_set_schedule(s, f, &d, k);
    *body = search_pipeline(s, &own->stages, &d);
    body->step_s = cost_larger(body->pipeline_s, body->step_s - own->steadier_s);
    x->timed[kind][k] = true;
    return body;
}

/* Begins with the class of schedule k, which is the first of it. */
static void begin_class(const struct searching *s, uint32_t k, struct class_row *x)
{
    x->end = class_end(s, k);
    for (uint32_t i = 0; i < ROW_KINDS; i++)
        x->stages[i].known = false;
    memset(x->timed, 0, sizeof x->timed);
    memset(x->squeezed_s, 0, sizeof x->squeezed_s);
    memset(x->known, 0, sizeof x->known);
}

/* Lower bound in seconds on any order of actions of k's class without pairs. */
static double least_order_s(struct searching *s, const struct family *f, struct class_row *x, uint32_t k)
{
    struct decision d = f->decision;
    const struct row_stages *own = stages_of(s, f, x, k, ROW_PLAIN);
    search_set_schedule(s, f, &d, k);
    d.folds = s->space.schedules[k].folds;
    d.schedule = SCHED_AUTO;
    return search_pipeline(s, &own->stages, &d).step_s;
}

/* transfers of a state, which are the same for all its stages */
static const struct cost_movers *movers_of(struct searching *s, const struct cost *c, struct state *x)
{
    uint32_t ep_nodes = cost_exchange_nodes(c);
    if (!x->by || x->ep_nodes != ep_nodes) {
        x->by = x->by ? x->by : ARENA_NEW(s->arena, struct cost_movers);
        *x->by = cost_movers(c);
        x->ep_nodes = ep_nodes;
    }
    return x->by;
}

static const struct search_tail *tail_of(struct searching *s, const struct family *f, struct class_row *x, uint32_t k,
                                         uint32_t state)
{
    uint32_t kind = tail_kind(&s->space.schedules[k]);
    struct search_tail *t = &x->tail[kind][state];
    if (x->known[kind][state])
        return t;
    struct decision d = f->decision;
    struct cost c = *f->cost;
    search_set_schedule(s, f, &d, k);
    search_set_state(&c, &d, &f->states->at[state]);
    const struct row_stages *own = stages_of(s, f, x, k, row_kind(s, k, d.zero));
    *t = search_tail(s, &c, f->shape, &own->stages, movers_of(s, &c, &f->states->at[state]), s->may_spare);
    s->result->spent += ++s->ntails % 2 == 0; /* two cost as much as an evaluation */
    x->known[kind][state] = true;
    return t;
}

/* Lower bound in seconds on the pipeline, given what memory forces ranks to recompute. */
static double squeezed_of(struct searching *s, const struct family *f, struct class_row *x, uint32_t k, uint32_t zero)
{
    double *known_s = &x->squeezed_s[k][zero];
    struct decision d = f->decision;
    if (!f->least || *known_s > 0)
        return *known_s;
    *known_s = search_level_s(s, f, k, zero);
    const struct squeeze *squeeze = f->least->schedules[k].squeeze;
    if (!squeeze || !search_hopes(s, &d, *known_s))
        return *known_s;
    search_set_schedule(s, f, &d, k);
    *known_s = cost_larger(
        *known_s, search_squeezed_s(s, &stages_of(s, f, x, k, row_kind(s, k, zero))->stages, &d, squeeze, zero));
    return *known_s;
}

/* Lower bound in seconds on a cell's step: with all layers spared that may be, where every time is no later than in
 * a run that recomputes; or by what memory forces single ranks to recompute, where the longer backward passes hide
 * more transfers.  Parts are computed in order of cost, as long as the cell could still become a candidate. */
static double cell_bound_s(struct searching *s, const struct family *f, struct class_row *x, uint32_t k, uint32_t state)
{
    uint32_t zero = f->states->at[state].zero;
    if (!search_has_room(s, &f->states->at[state]))
        return INFINITY;
    double step_s = (f->least ? f->least->schedules[k].pipeline_s[zero] : 0) * (1 - 1e-9);
    if (!search_hopes(s, &f->decision, step_s))
        return step_s;
    const struct search_pipeline *body = body_of(s, f, x, k, zero);
    step_s = cost_larger(step_s, body->step_s * (1 - 1e-9));
    if (!search_hopes(s, &f->decision, step_s))
        return step_s;
    const struct search_tail *t = tail_of(s, f, x, k, state);
    step_s = cost_larger(step_s, search_step_s(f->cost, body, t));
    if (!search_hopes(s, &f->decision, step_s))
        return step_s;
    double squeezed_s = squeezed_of(s, f, x, k, zero);
    step_s = cost_larger(step_s, squeezed_s * (1 - 1e-9));
    if (squeezed_s > body->step_s)
        step_s = cost_larger(step_s, (squeezed_s + f->cost->crowd * t->least.beside_longer_s + t->seam_s) * (1 - 1e-9));
    return step_s;
}

/* Index of the fastest of a class's schedules without pairs, from `first` on; SPACE_SCHEDULES if there is none. */
static uint32_t fastest_plain(struct searching *s, const struct family *f, uint32_t first, struct class_row *x)
{
    uint32_t best = SPACE_SCHEDULES;
    double best_s = INFINITY;
    for (uint32_t k = first; k < x->end; k++) {
        if (!search_schedule_applies(s, &f->decision, k) || decision_pairs(s->space.schedules[k].kind))
            continue;
        double step_s = body_of(s, f, x, k, 0)->step_s;
        best = step_s < best_s ? k : best;
        best_s = cost_smaller(best_s, step_s);
    }
    return best;
}

void search_hope_family(struct searching *s, uint32_t index, cell_taker take, void *to)
{
    struct family *f = &s->families.at[index];
    const struct decision *d = &f->decision;
    if (d->pp == 1 || !find_alive(s, f))
        return;
    const struct states *states = search_states(s, f);
    struct class_row x;
    x.end = 0;
    for (uint32_t k = 0; k < s->space.nschedules; k++) {
        if (k < x.end || !search_schedule_applies(s, d, k))
            continue;
        begin_class(s, k, &x);
        uint32_t own = fastest_plain(s, f, k, &x);
        if (own == SPACE_SCHEDULES)
            continue;
        const struct search_pipeline *body = body_of(s, f, &x, own, 0);
        double half_s = (least_order_s(s, f, &x, own) + body->step_s) / 2;
        for (uint32_t i = 0; i < states->n; i++) {
            double hope_s = half_s;
            if (!search_hopes(s, d, hope_s))
                break;
            hope_s += search_step_s(f->cost, body, tail_of(s, f, &x, own, i)) - body->step_s;
            if (search_hopes(s, d, hope_s))
                take(s, to, &(struct cell){index, k, i}, search_objective(s, hope_s, d->gpus_used), index);
        }
    }
}

void search_open_class(struct searching *s, const struct cell *cell, leaf_taker take, void *to)
{
    struct cell own = *cell;
    for (uint32_t end = class_end(s, cell->schedule); own.schedule < end; own.schedule++)
        if (!decision_pairs(s->space.schedules[own.schedule].kind) &&
            search_schedule_applies(s, &s->families.at[cell->family].decision, own.schedule))
            search_open_cell(s, &own, take, to);
}

/* Is it one of a few schedules of each kind that may be the fastest?  Pairs, where transfers to experts take long. */
static bool usual(const struct searching *s, uint32_t k)
{
    const struct space_schedule *x = &s->space.schedules[k];
    bool pairs = x->kind == SCHED_DUALPIPE || x->kind == SCHED_DUALPIPE_V ||
                 (x->kind == SCHED_COMBINED_1F1B && x->vpp == 2);
    return (pairs && model_has_experts(&s->job->model)) || x->kind == SCHED_1F1B || x->kind == SCHED_ZB_V ||
           x->kind == SCHED_V_HALF || (x->kind == SCHED_INTERLEAVED && x->groups_of_pp < 2) || s->space.nschedules < 4;
}

void search_sample_family(struct searching *s, uint32_t index, double most, leaf_taker take, void *to)
{
    struct family *f = &s->families.at[index];
    const struct decision *d = &f->decision;
    const struct states *states = search_states(s, f);
    struct class_row x;
    x.end = 0;
    bool dead = false; /* computed when a cell is to be evaluated */
    for (uint32_t k = 0; k < s->space.nschedules && states->n && !dead; k++) {
        if (!usual(s, k) || !schedule_hopes(s, f, k))
            continue;
        if (k >= x.end)
            begin_class(s, k, &x);
        for (uint32_t i = 0; i < states->n && !dead; i++) {
            double bound = search_objective(s, cell_bound_s(s, f, &x, k, i), d->gpus_used);
            dead = bound < most && !find_alive(s, f);
            if (bound < most && !dead)
                search_open_cell(s, &(struct cell){index, k, i}, take, to);
        }
    }
}

void search_open_family(struct searching *s, uint32_t index, cell_taker take, void *to)
{
    struct family *f = &s->families.at[index];
    const struct states *states = search_states(s, f);
    struct class_row x;
    x.end = 0;
    if (!search_found(s) && !find_alive(s, f)) { /* where nothing fits, no bound on time is worth computing */
        s->result->removed[REMOVED_MEMORY] += (uint64_t)s->space.nschedules * states->n;
        return;
    }
    for (uint32_t k = 0; k < s->space.nschedules && states->n; k++) {
        if (!schedule_hopes(s, f, k)) {
            s->result->removed[REMOVED_BOUND]++;
            continue;
        }
        if (k >= x.end)
            begin_class(s, k, &x);
        for (uint32_t i = 0; i < states->n; i++)
            add_cell(s, f, index, &(struct cell){index, k, i}, cell_bound_s(s, f, &x, k, i), take, to);
    }
}

void search_open_cell(struct searching *s, const struct cell *cell, leaf_taker take, void *to)
{
    struct family *f = &s->families.at[cell->family];
    find_alive(s, f);
    for (uint32_t kind = 0; kind < s->space.nrecompute; kind++) {
        if (!(f->alive & 1u << kind) || is_dead(s, f, cell, kind)) {
            s->result->removed[REMOVED_MEMORY]++;
            continue;
        }
        struct decision d = f->decision;
        struct cost c = *f->cost;
        struct leaf x;
        set_recompute(s, &d, kind);
        search_set_schedule(s, f, &d, cell->schedule);
        search_set_state(&c, &d, &f->states->at[cell->state]);
        const struct space_recompute *k = &s->space.recompute[kind];
        const struct search_sparing by = {f->shape, kind};
        search_count(s, &d);
        enum leaf_fate fate = search_leaf(s, &c, search_shape(s, &c), &d, k->spare || s->spare ? &by : NULL, &x);
        if (fate == LEAF_DEAD)
            note_dead(s, f, cell, kind);
        x.cost = f->cost;
        x.family = cell->family;
        if (fate == LEAF_GOOD)
            take(s, to, &x);
        if (k->kind == RECOMPUTE_NONE && fate != LEAF_DEAD && x.candidate.estimate.peak_bytes <= s->memory_limit &&
            s->may_spare)
            return; /* since everything fits without recomputation, all other kinds would spare every layer */
    }
}
