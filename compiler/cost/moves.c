/* The transfers of parameters and gradients between the ranks that share them, piece by piece, as
 * compiler/lower/shard.c emits them, and the optimizer's update: what simulate_actions() runs beside a schedule's
 * actions.
 *
 * A piece is a layer, the embedding or the head.  Its matrices are one bucket, its experts another; the vectors of a
 * chunk are one.  Under ZeRO 1 parameters are gathered at the start of the step and gradients reduced after the last
 * microbatch; under ZeRO 2 the gradients of pieces are reduce-scattered for every microbatch, and under ZeRO 3
 * parameters are gathered at every use.  Where two copies of the model are on mirror ranks, all reductions wait for
 * the end, where both ranks add theirs. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/walk.h"
#include "compiler/model/actions.h"

#include <math.h>
#include <string.h>

#define ALIKE 4 /* number of previous stages that a stage is compared with */

double cost_bucket(const struct cost *c)
{
    bool pieces = c->profile->allocator < 0.5 || c->decision->zero >= 2;
    return pieces ? 0 : fmax(40e6, 1e6 * c->decision->dp * c->decision->cp); /* Megatron-LM's default */
}

double cost_parameter_bytes(const struct cost *c)
{
    const struct train *t = &c->job->train;
    if (t->precision == DT_FP8 && t->recipe == FP8_TENSOR && c->decision->zero == 3 && c->profile->zero3_eight > 0.5)
        return 1;
    return t->precision == DT_FP32 ? 4 : 2;
}

static struct cost_mover dense_movers(const struct cost *c)
{
    struct cost_mover m = {.shard = c->shard, .replicas = c->replicas, .slow = 1};
    const struct train *t = &c->job->train;
    m.gradient = t->reduce == DT_FP32 ? 4 : 2;
    m.parameter = cost_parameter_bytes(c);
    m.sum = t->grads == DT_FP32 ? 4 : 2;
    if (c->decision->zero == 0 || c->decision->shard < 2) {
        m.shard = (struct cost_group){.n = 1};
        m.replicas = c->group[AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)];
    } else if (c->replicas.n > 1) { /* as they are placed */
        const struct mesh mesh = decision_mesh(c->job, c->decision);
        m.shard = cost_mask_group(c, &mesh, mesh.dim[MESH_SHARD]);
        m.replicas = cost_mask_group(c, &mesh, mesh.dim[MESH_REPLICA]);
        if (m.shard.n != c->decision->shard) { /* the groups do not nest */
            m.shard = c->shard;
            m.replicas = c->replicas;
        }
    }
    if (c->decision->zero == 3)
        m.slow = 1 / c->profile->zero3_speed;
    m.bucket = cost_bucket(c);
    return m;
}

/* Of the weights of key heads, of which ranks of tp hold copies as well. */
static struct cost_mover key_movers(const struct cost *c, const struct cost_mover *dense)
{
    struct cost_mover m = *dense;
    if (decision_key_ranks(c->job, c->decision) < 2)
        return m;
    const struct mesh mesh = decision_mesh(c->job, c->decision);
    if (mesh.dim[MESH_KEYS]) /* otherwise the groups do not nest */
        m.replicas = cost_mask_group(c, &mesh, mesh.dim[MESH_REPLICA] | mesh.dim[MESH_KEYS]);
    return m;
}

static struct cost_mover expert_movers(const struct cost *c, const struct cost_mover *dense)
{
    struct decision d = *c->decision;
    struct cost_mover m = *dense;
    d.ep_nodes = cost_exchange_nodes(c);
    const struct mesh mesh = decision_mesh(c->job, &d);
    m.shard = cost_mask_group(c, &mesh, mesh.dim[MESH_EXPERT_SHARD]);
    m.replicas = cost_mask_group(c, &mesh, mesh.dim[MESH_EXPERT_REPLICA]);
    uint32_t edp = decision_expert_dp(&d), shard = d.zero ? decision_expert_shard(&d) : 1;
    if (m.shard.n != shard || m.replicas.n != edp / shard) { /* the groups do not nest */
        m.shard = shard > 1 ? cost_run_group(c, shard, d.ep * d.etp) : (struct cost_group){.n = 1};
        m.replicas = edp > shard ? cost_run_group(c, edp / shard, d.ep * d.etp * shard) : (struct cost_group){.n = 1};
    }
    return m;
}

struct cost_movers cost_movers(const struct cost *c)
{
    struct cost_movers x = {.dense = dense_movers(c)};
    x.keys = key_movers(c, &x.dense);
    x.experts = model_has_experts(&c->job->model) ? expert_movers(c, &x.dense) : x.dense;
    return x;
}

/* Seconds of moving `elements` elements of `element` bytes each. */
static double moved_s(const struct cost *c, const struct cost_mover *m, enum op op, double elements, double element,
                      const struct cost_group *g)
{
    if (g->n < 2 || elements <= 0)
        return 0;
    if (m->bucket <= 0)
        return m->slow * cost_group_s(c, op, element * elements, g);
    return elements / m->bucket * cost_group_s(c, op, element * m->bucket, g);
}

static double gather_s(const struct cost *c, const struct cost_mover *m, double elements)
{
    return moved_s(c, m, OP_ALL_GATHER, elements, m->parameter, &m->shard);
}

static double scatter_s(const struct cost *c, const struct cost_mover *m, double elements)
{
    return moved_s(c, m, OP_REDUCE_SCATTER, elements, m->gradient, &m->shard);
}

static double replicas_s(const struct cost *c, const struct cost_mover *m, double elements)
{
    return moved_s(c, m, OP_ALL_REDUCE, elements, m->gradient / m->shard.n, &m->replicas);
}

/* gradients that are summed between ranks in another format than they are accumulated in, on their way to one or back
 */
static double convert_s(const struct cost *c, const struct cost_mover *m, double elements)
{
    return fabs(m->sum - m->gradient) > 0 ? cost_stream_s(c, (m->sum + m->gradient) * elements) + c->device.launch_s
                                          : 0;
}

struct maker {
    struct arena *arena;
    const struct cost *c;
    const struct cost_shape *s;
    struct cost_movers by;
    bool run;    /* for the simulation of actions, not for bounds on it */
    bool splits; /* the schedule has I and W */
    uint32_t nplaces;
    bool crowded;          /* rows to experts use the queue of gradients */
    double late_s, ties_s; /* of the stage's two copies on mirror ranks: seconds of what each reduces at the end, and
                            * of what they reduce together */
};

/* Seconds of the reduction over tp of gradients of what every rank of tp holds whole: each rank has them for its own
 * tokens. */
static double alike_s(const struct maker *x, double elements)
{
    return x->c->decision->sp && elements > 0
               ? cost_collective_s(x->c, OP_ALL_REDUCE, x->by.dense.gradient * elements, AXIS_BIT(AXIS_TP))
               : 0;
}

/* Adds a bucket of a piece; whole: it is not scattered for every microbatch; alike: every rank of tp holds it whole. */
static void add_bucket(struct maker *x, const struct cost_mover *m, double elements, bool whole, bool alike,
                       struct pipeline_piece *p)
{
    const struct decision *d = x->c->decision;
    bool each = d->zero >= 2 && m->shard.n > 1 && !whole;
    if (elements <= 0)
        return;
    double sum = scatter_s(x->c, m, elements), finish = replicas_s(x->c, m, elements), own = elements / m->shard.n,
           back = each ? convert_s(x->c, m, own) : 0;
    double convert = m->shard.n * m->replicas.n > 1 || alike ? convert_s(x->c, m, elements) : 0;
    *(each ? &finish : &sum) += alike ? alike_s(x, each ? own : elements) : 0;
    p->gather_s += gather_s(x->c, m, elements);
    p->gathers |= d->zero >= 3 && m->shard.n > 1;
    p->scatters |= each;
    p->add_s += each ? cost_stream_s(x->c, 3 * m->sum * own) + back : 0;
    p->back_s += back;
    if (d->schedule != SCHED_DUALPIPE) {
        p->sum_s += sum;
        p->finish_s += finish + (finish > 0 ? back : 0);
        p->convert_s += convert;
        return;
    }
    p->sum_s += each ? sum : 0;
    p->convert_s += each ? convert : 0;
    x->ties_s += p->count * moved_s(x->c, m, OP_ALL_REDUCE, each ? own : elements, m->gradient, &x->c->tie);
    bool turns = x->c->job->wishes.never_overlap &
                 OVERLAP_DP; /* otherwise conversions run beside the reductions of earlier buckets */
    x->late_s += p->count *
                 ((each ? 0 : sum) + finish + (turns ? back + (each ? 0 : convert_s(x->c, m, elements)) : 0));
}

/* Do rows to experts use the queue of gradients for any part of their way (compiler/lower/moe.c)? */
static bool exchanges_there(const struct cost *c)
{
    const struct decision *d = c->decision;
    return decision_exchanges_apart(c->job, d) && (d->ep > 1 || d->etp > 1) &&
           (cost_exchange_nodes(c) > 1 || d->cp > 1 || d->sp);
}

/* Sets the fractions of a layer's passes before it needs that queue. */
static void add_free(struct maker *x, const struct cost_block *b, struct pipeline_piece *p)
{
    struct arena_mark mark = arena_mark(x->arena);
    struct walk w;
    cost_block_walk(x->arena, x->c, x->s, b, &w);
    struct walk_strand f = walk_strand_new(x->arena, &w, WALK_F), back = walk_strand_new(x->arena, &w, WALK_B);
    p->free_forward = walk_before_s(&f, WALK_DP) / (f.kernels_s + walk_exposed_s(&f, false, true));
    p->free_backward = walk_before_s(&back, WALK_DP) / (back.kernels_s + walk_exposed_s(&back, true, true));
    arena_reset(x->arena, mark);
}

/* Where transfers of parameters and gradients take turns with kernels, other transfers of a pass run beside them
 * (compiler/lower/shard.c). */
static void add_beside(struct maker *x, const struct cost_block *b, bool layer, struct pipeline_piece *p)
{
    static const uint32_t passes[] = {WALK_F, WALK_B, WALK_I, WALK_W};
    struct arena_mark mark = arena_mark(x->arena);
    struct walk w;
    double sums_s = p->sum_s + (p->scatters ? 0 : p->finish_s);
    if (b->forward_comm_s + b->backward_comm_s <= 0 || (!p->gathers && sums_s <= 0))
        return;
    p->waits = true;
    cost_block_walk(x->arena, x->c, x->s, b, &w);
    for (int k = 0; k < 4; k++) {
        double front_s = p->gathers && k < 3 && (k == 0 || p->reads) ? p->gather_s : 0, behind_s = k % 2 ? sums_s : 0;
        struct walk_strand alone = walk_strand_new(x->arena, &w, passes[k]);
        struct walk_strand turns = walk_strand_turns(x->arena, &alone, front_s, behind_s);
        if (k || decision_cuts(x->c->job, x->c->decision) > 1)
            p->beside[k] = fmax(0, walk_exposed_s(&alone, layer, false) - walk_exposed_s(&turns, layer, false));
    }
    arena_reset(x->arena, mark);
}

static struct pipeline_piece make_piece(struct maker *x, const struct cost_block *b, uint32_t count, bool reads)
{
    struct pipeline_piece p = {.count = count, .reads = reads, .exchanges = b->experts > 0};
    if (x->crowded && p.exchanges)
        add_free(x, b, &p);
    p.forward = b->forward_s + b->forward_comm_s;
    p.backward = b->backward_s + b->backward_comm_s;
    p.weight = b->weight_s + b->weight_comm_s;
    p.input = b->input_s + b->input_comm_s;
    /* its W finds gradients that its I made; or several pieces use its table (outside DualPipe tie_ends() handles
     * that) */
    bool shared = x->c->decision->schedule == SCHED_DUALPIPE && (b == &x->s->embed || b == &x->s->head) &&
                  (x->c->job->model.tied || x->c->job->model.predict);
    bool whole = (x->splits && b->early) || shared;
    add_bucket(x, &x->by.dense, b->matrices - b->key_matrices - b->whole_matrices, whole, false, &p);
    add_bucket(x, &x->by.keys, b->key_matrices, whole, false, &p);
    bool late = p.sum_s + p.finish_s > 0;
    add_bucket(x, &x->by.dense, b->whole_matrices, whole, true, &p);
    late |= b->whole_late && p.sum_s + p.finish_s > 0;
    add_bucket(x, &x->by.experts, b->experts, whole, false, &p);
    if (x->c->job->wishes.never_overlap & OVERLAP_DP)
        add_beside(x, b, b != &x->s->embed && b != &x->s->head && b != &x->s->predict, &p);
    p.early = x->splits && !late && !p.scatters && p.convert_s <= 0 && p.sum_s + p.finish_s > 0;
    return p;
}

double cost_park_s(const struct cost *c, const struct cost_shape *s, const struct cost_block *b, bool received,
                   double *fetch_s)
{
    if (b->lives) {
        const struct cost_lives *v = cost_lives(c, b);
        *fetch_s = (v->fetched - (received ? v->fetched_input : 0)) / cost_host_bytes_s(c);
        return (v->copied - (received ? v->parked_input : 0)) / cost_host_bytes_s(c);
    }
    double bytes = fmax(0, b->keep_bytes - b->stack_bytes);
    *fetch_s = fmax(0, b->waits_bytes - b->stack_bytes) / cost_host_bytes_s(c);
    return (received ? fmax(0, bytes - s->boundary_bytes) : bytes) / cost_host_bytes_s(c);
}

static void add_copies(struct maker *x, const struct cost_block *b, bool received, struct pipeline_piece *p)
{
    p->park_s = cost_park_s(x->c, x->s, b, received, &p->fetch_s);
    if (!x->run || p->park_s <= 0)
        return;
    p->copies = cost_copies(x->arena, x->c, x->s, b, received, p->park_s, p->fetch_s, &p->ncopies);
    for (uint32_t i = 0; i < p->ncopies; i++)
        x->nplaces = p->copies[i].place >= x->nplaces ? p->copies[i].place + 1 : x->nplaces;
}

/* Makes all pieces of a stage in the array `at`; returns their number. */
static uint32_t make_pieces(struct maker *x, const struct stage *st, struct pipeline_piece *at)
{
    const struct job *job = x->c->job;
    uint32_t n = 0;
    if (st->embed)
        at[n++] = make_piece(x, &x->s->embed, 1, false);
    for (uint32_t i = 0, run; i < st->count; i += run) {
        const struct cost_block *b = cost_layer(x->s, st, i);
        bool parks = job->wishes.offload & OFFLOAD_ACTIVATIONS, received = parks && i == 0 && !st->embed;
        run = received ? 1 : cost_run(x->s, st, i);
        at[n] = make_piece(x, b, run, true);
        if (parks)
            add_copies(x, b, received, &at[n]);
        n++;
    }
    double late_s = x->late_s, ties_s = x->ties_s;
    if (st->head)
        at[n++] = make_piece(x, &x->s->head, 1, true);
    if (st->head && job->model.tied &&
        cost_ends_meet(x->c->decision)) { /* it is the embedding's table, whose reduction is counted already */
        x->late_s = late_s;
        x->ties_s = ties_s;
    }
    if (st->head && job->model.predict) {
        at[n] = make_piece(x, &x->s->predict, job->model.predict, true);
        if (at[n].gathers) /* at every use it gathers the head's weights and the embedding's table as well */
            at[n].gather_s += gather_s(x->c, &x->by.dense, x->s->head.matrices) +
                              (job->model.tied ? 0 : gather_s(x->c, &x->by.dense, x->s->embed.matrices));
        n++;
    }
    return n;
}

/* Seconds of reducing vectors; split: without those of shared key heads. */
static double vector_sum_s(const struct maker *x, double split, double keys, double whole)
{
    const double elements[] = {split, whole, keys};
    double seconds = 0;
    for (int k = 0; k < 3; k++)
        if (elements[k] > 0)
            seconds += convert_s(x->c, &x->by.dense, elements[k]) + scatter_s(x->c, &x->by.dense, elements[k]) +
                       replicas_s(x->c, k < 2 ? &x->by.dense : &x->by.keys, elements[k]);
    return seconds + alike_s(x, whole);
}

static void make_vectors(struct maker *x, const struct stage *st, struct pipeline_moves *m)
{
    double split = 0, keys = 0, whole = 0;
    for (uint32_t i = 0, run; i < st->count; i += run) {
        const struct cost_block *b = cost_layer(x->s, st, i);
        run = cost_run(x->s, st, i);
        split += run * (b->vectors_split - b->key_vectors);
        keys += run * b->key_vectors;
        whole += run * b->vectors_whole;
    }
    if (st->head) {
        split += x->s->head.vectors_split;
        whole += x->s->head.vectors_whole;
    }
    m->sum_s = vector_sum_s(x, split, keys, whole);
    m->gather_s = gather_s(x->c, &x->by.dense, split) + gather_s(x->c, &x->by.dense, keys) +
                  gather_s(x->c, &x->by.dense, whole);
    if (x->c->decision->schedule != SCHED_DUALPIPE)
        return;
    x->ties_s += moved_s(x->c, &x->by.dense, OP_ALL_REDUCE, split + keys + whole, x->by.dense.gradient, &x->c->tie);
    x->late_s += m->sum_s;
    m->sum_s = 0;
}

/* Turns the seconds of pieces into shares of the stage's actions. */
static void share_out(struct pipeline_piece *p, uint32_t n)
{
    double forward = 0, backward = 0, input = 0, weight = 0;
    for (uint32_t i = 0; i < n; i++) {
        forward += p[i].count * p[i].forward;
        backward += p[i].count * p[i].backward;
        input += p[i].count * p[i].input;
        weight += p[i].count * p[i].weight;
    }
    for (uint32_t i = 0; i < n; i++) {
        p[i].forward /= forward > 0 ? forward : 1;
        p[i].backward /= backward > 0 ? backward : 1;
        p[i].input /= input > 0 ? input : 1;
        p[i].weight /= weight > 0 ? weight : 1;
    }
}

/* Does a stage have only layers of one kind, whose input stays where it arrived? */
static bool usual(const struct maker *x, const struct stage *st)
{
    bool parks = x->c->job->wishes.offload & OFFLOAD_ACTIVATIONS;
    return !st->embed && !st->head && st->count && x->s->run[st->first] >= st->count && !parks;
}

/* One of the few previous stages that has as many layers of the same kind, of which as many do not recompute; the
 * stage itself if there is none. */
static uint32_t like_before(const struct maker *x, uint32_t stage)
{
    const struct stage *all = x->c->decision->stages, *st = &all[stage];
    for (uint32_t i = stage; i-- > 0 && i + ALIKE >= stage && usual(x, st);)
        if (all[i].count == st->count && all[i].spared == st->spared && usual(x, &all[i]) &&
            x->s->kind[all[i].first] == x->s->kind[st->first])
            return i;
    return stage;
}

/* Makes the pieces of a stage in the array `at`, and its vectors; equal stages are copied. */
static void make_stage(struct maker *x, uint32_t stage, struct pipeline_moves *moves, struct pipeline_piece *at)
{
    const struct stage *st = &x->c->decision->stages[stage];
    const struct job *job = x->c->job;
    struct pipeline_moves *m = &moves[stage];
    uint32_t like = like_before(x, stage);
    if (like < stage) {
        *m = moves[like];
        m->pieces = memcpy(at, m->pieces, m->npieces * sizeof *at);
        return;
    }
    x->late_s = x->ties_s = 0;
    m->npieces = make_pieces(x, st, at);
    m->pieces = at;
    make_vectors(x, st, m);
    m->late_s = x->late_s + x->ties_s;
    /* they are on two queues, and overlap but for one bucket where the queue of kernels need not convert the next
     * one first */
    if (job->wishes.never_overlap & OVERLAP_DP && job->train.grads == job->train.reduce)
        m->late_s = fmax(x->late_s, x->ties_s) + fmin(x->late_s, x->ties_s) / (st->count + 1);
    share_out(at, m->npieces);
}

/* The embedding's table, where the other end of the pipeline has it too, as its head or for prediction modules. */
static void tie_ends(const struct maker *x, struct pipeline_moves *moves, struct pipeline_piece *first,
                     struct pipeline_piece *last)
{
    const struct cost *c = x->c;
    const struct decision *d = c->decision;
    const struct model *m = &c->job->model;
    double elements = x->s->embed.matrices;
    bool here = cost_ends_meet(d);
    if (!(m->tied || m->predict) || d->schedule == SCHED_DUALPIPE)
        return;
    first->scatters &= !m->predict && !here; /* several pieces use it */
    last->scatters &= !m->predict && !(m->tied && here);
    if (here) {
        if (m->tied) { /* it is the embedding's own; where that is gathered at every use, so is this */
            last->sum_s = last->finish_s = 0;
            last->gather_s = last->gathers ? last->gather_s : 0;
        }
        return;
    }
    double own = first->scatters ? elements / x->by.dense.shard.n : elements;
    double tie_s = cost_group_s(c, OP_ALL_REDUCE, x->by.dense.gradient * own, &c->tie), late = first->finish_s;
    bool apart = c->job->wishes.never_overlap & OVERLAP_DP; /* all other reductions are on the queue of kernels */
    late += first->scatters ? 0 : first->sum_s + first->convert_s;
    first->ties = last->ties = true;
    moves[0].late_s += late + (apart ? 0 : tie_s);
    moves[d->nstages - 1].late_s += late + (apart ? 0 : tie_s);
    moves[0].tie_s = moves[d->nstages - 1].tie_s = apart ? tie_s : 0;
    struct pipeline_piece *both[] = {first, m->tied ? last : NULL};
    for (int k = 0; k < 2 && both[k]; k++) {
        both[k]->sum_s = both[k]->scatters ? both[k]->sum_s : 0;
        both[k]->convert_s = both[k]->scatters ? both[k]->convert_s : 0;
        both[k]->finish_s = 0;
    }
}

/* Upper bound of the number of pieces of all stages: runs of equal layers, split at stages and where recomputation
 * changes. */
static uint32_t most_pieces(const struct decision *d, const struct cost_shape *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->nstages; i++) {
        n += 4;
        for (uint32_t k = 0; k < d->stages[i].count; k += cost_run(s, &d->stages[i], k))
            n++;
    }
    return n;
}

bool cost_splits(const struct decision *d)
{
    bool splits = pipeline_splits(d->schedule);
    for (uint32_t r = 0; r < d->pp && d->listed && !splits; r++)
        for (uint32_t k = 0; k < d->listed->nactions[r]; k++)
            splits |= d->listed->actions[r][k].kind == 'I';
    return splits;
}

/* run: for the simulation of actions, not for bounds on it. */
static void find_moves(struct arena *a, const struct cost *c, const struct cost_shape *s,
                       const struct cost_stage *ranks, const struct cost_movers *by, bool run,
                       struct pipeline_times *times)
{
    const struct decision *d = c->decision;
    struct maker x = {.arena = a, .c = c, .s = s, .by = *by, .run = run, .crowded = run && exchanges_there(c)};
    struct pipeline_moves *moves = ARENA_ARRAY(a, struct pipeline_moves, d->nstages);
    struct pipeline_update *updates = ARENA_ARRAY(a, struct pipeline_update, d->pp);
    struct pipeline_piece *at = arena_grow(a, NULL, 0, most_pieces(d, s), sizeof *at), *first = at, *last = at;
    x.splits = cost_splits(d);
    for (uint32_t i = 0; i < d->nstages; i++) {
        make_stage(&x, i, moves, at);
        uint32_t n = moves[i].npieces;
        last = n ? &at[n - 1 - (d->stages[i].head && c->job->model.predict ? 1 : 0)] : last;
        at += n;
    }
    tie_ends(&x, moves, first, last);
    for (uint32_t r = 0; r < d->pp; r++)
        updates[r] = cost_rank_update(c, ranks, r);
    times->moves = moves;
    times->updates = updates;
    times->prefetch = cost_uses_ahead(c, s);
    times->crowded = x.crowded;
    times->nplaces = x.nplaces;
    times->blocks = c->job->wishes.never_overlap & OVERLAP_DP;
    times->agree_s = cost_agree_s(c);
    times->seam_s = run ? cost_seam_s(c, ranks, false) : 0; /* bounds do not include it */
}

void cost_moves(struct arena *a, const struct cost *c, const struct cost_shape *s, const struct cost_stage *ranks,
                struct pipeline_times *times)
{
    struct cost_movers by = cost_movers(c);
    find_moves(a, c, s, ranks, &by, true, times);
}

void cost_moves_by(struct arena *a, const struct cost *c, const struct cost_shape *s, const struct cost_stage *ranks,
                   const struct cost_movers *by, struct pipeline_times *times)
{
    find_moves(a, c, s, ranks, by, false, times);
}
