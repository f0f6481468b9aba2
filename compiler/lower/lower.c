/* The lowering's driver: for every pipeline rank its chunks, its buffers, then its schedule action by action.
 *
 * F of a chunk runs its pieces' operators in order.  B runs the pieces in reverse; a piece that recomputes first
 * runs the forward operators that its backward needs again.  If the backward is split, I is B without the weight
 * gradients of matrix products and tables, and keeps in a ring what W needs for these.  Two actions that overlap
 * become one list of instructions.  After a chunk's last B or W, every bucket is reduced as soon as the piece that
 * completes it is done.  A new kind of operator is one row of compiler/model/opr.def and the two functions named
 * after it. */

#include "compiler/cost/walk.h"
#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"
#include "compiler/lower/finish.h"
#include "compiler/lower/operators.h"
#include "compiler/lower/shard.h"
#include "compiler/lower/step.h"
#include "compiler/support/parallel.h"

#include "runtime/program_share.h"

/* rules of operators: forward; backward: first the input's gradient, then the weights' */
struct rule {
    void (*forward)(struct lower *l, uint32_t piece, uint32_t opr);
    void (*backward)(struct lower *l, uint32_t piece, uint32_t opr);
};

static const struct rule *rule_of(enum opr_kind kind)
{
    static const struct rule table[] = {
#define OPR(kind, name, reads, beside, word, meaning) [OPR_##kind] = {lower_##name, lower_##name##_back},
#include "compiler/model/opr.def"
#undef OPR
    };
    return &table[kind];
}

/* The end of the operators from i on that run on the local rows one run at a time (additions and norms); i + 1 if i
 * is not one. */
static uint32_t end_of_rows(const struct lower *l, const struct expansion *e, uint32_t i)
{
    uint32_t end = i;
    while (end < e->noprs && l->runs > 1 && (e->oprs[end].kind == OPR_ADD || e->oprs[end].kind == OPR_NORM))
        end++;
    return end > i ? end : i + 1;
}

static void piece_forward(struct lower *l, uint32_t piece)
{
    const struct piece *pc = &l->pieces[piece];
    l->layer = pc->layer;
    for (uint32_t i = 0, end; i < pc->e->noprs; i = end) {
        end = end_of_rows(l, pc->e, i);
        for (uint32_t run = 0; run < (end > i + 1 ? l->runs : 1); run++) {
            l->from = run;
            l->to = end > i + 1 ? run + 1 : l->runs;
            for (uint32_t k = i; k < end; k++)
                if (!l->recomputing || pc->needed[k]) {
                    l->line = pc->line[k];
                    rule_of(pc->e->oprs[k].kind)->forward(l, piece, k);
                }
        }
        for (uint32_t k = i; k < end; k++)
            if (!l->recomputing || pc->needed[k])
                lower_keep(l, piece, k);
    }
}

static void piece_backward(struct lower *l, uint32_t piece)
{
    const struct piece *pc = &l->pieces[piece];
    l->layer = pc->layer;
    for (uint32_t i = pc->e->noprs; i-- > 0;) {
        const struct opr *o = &pc->e->oprs[i];
        bool late = expand_puts_off(pc->e, o);
        if (!(l->halves & HALF_INPUT) && !late)
            continue;
        l->line = pc->line[i];
        l->undivided = !late;
        rule_of(o->kind)->backward(l, piece, i);
    }
}

/* Two channels between neighbouring stages: values of stage s forward, gradients of its input back. */
static uint32_t forward_channel(uint32_t stage)
{
    return 2 * stage;
}

static uint32_t backward_channel(uint32_t stage)
{
    return 2 * stage + 1;
}

static void untag(struct lower *l)
{
    l->layer = NONE;
    l->line = 0;
}

static struct mat boundary(struct lower *l, uint32_t buffer)
{
    return lower_ring_mat(l, buffer, l->ctype, l->local, (uint32_t)l->job->model.width);
}

static void forward(struct lower *l)
{
    const struct chunk *c = l->chunk;
    untag(l);
    if (c->before != NONE && c->before != l->role)
        lower_receive(l, boundary(l, c->input), c->before, forward_channel(c->index - 1));
    for (uint32_t p = c->first; p < c->first + c->npieces; p++) {
        if (l->evaluation && l->pieces[p].ahead) /* an evaluation's loss is that of the next token alone */
            continue;
        lower_open_params(l, p);
        piece_forward(l, p);
        lower_offload(l, p);
    }
    untag(l);
    if (l->seam_next)
        lower_first_seam(l);
    if (c->behind != NONE && c->behind != l->role)
        lower_send(l, boundary(l, c->output), c->behind, forward_channel(c->index));
}

/* Reduces the buckets that a piece completes, or that the end of the chunk completes (piece NONE).  Sums over roles
 * are left for the end of the step: one end of the pipeline finishes long before the other, and whatever follows
 * such a sum in its queue would wait with it; and both mirror ranks must reduce their copies in the same order. */
static void reduce_buckets(struct lower *l, uint32_t piece, bool last)
{
    for (uint32_t b = 0; b < l->nbuckets; b++) {
        struct bucket_info *info = &l->buckets[b];
        if (info->scatters && info->piece == piece)
            lower_bucket_scatter(l, piece, b, last);
        if (info->scatters || !last)
            continue;
        bool mine = piece == NONE ? info->piece == NONE && info->chunk == l->chunk : info->piece == piece;
        if ((mine || (piece != NONE && info->shared == piece)) && --info->pending == 0 && !info->tie)
            lower_bucket_reduce(l, b);
    }
}

/* Reduces what is summed over roles, in the order of the model's stages, so that this rank and its mirror rank have
 * the same order; a tied table is one bucket. */
static void reduce_late(struct lower *l)
{
    lower_close_gradients(l);
    l->action = 'O';
    l->microbatch = NONE;
    untag(l);
    for (uint32_t stage = 0; stage < l->d->nstages; stage++)
        for (uint32_t b = 0; b < l->nbuckets; b++)
            if (l->buckets[b].tie && l->buckets[b].chunk->stage_index == stage) {
                l->stage_index = stage;
                lower_bucket_reduce(l, b);
            }
}

/* The gradient of a piece's result, or of its input where it has no result (the head), is in the chunk's buffer.  A
 * prediction module's input takes the buffer over once the gradient of its result is no longer needed. */
static void enter_piece(struct piece *pc, struct mat at)
{
    for (uint32_t v = 0; v < pc->e->nvalues; v++) {
        pc->gradient[v].buffer = NONE;
        pc->has_gradient[v] = false;
    }
    uint32_t value = pc->e->result == NONE ? 0 : pc->e->result;
    if (pc->ahead)
        pc->gradient[0] = at;
    pc->gradient[value] = at;
    pc->has_gradient[value] = pc->e->result != NONE;
}

/* Writes a B, or an I, which keeps what W needs. */
static void backward(struct lower *l)
{
    struct chunk *c = l->chunk;
    struct mat at = boundary(l, c->gradient);
    bool last = l->halves & HALF_WEIGHT && --c->left == 0;
    untag(l);
    if (c->behind != NONE && c->behind != l->role)
        lower_receive(l, at, c->behind, backward_channel(c->index + 1));
    for (uint32_t p = c->first + c->npieces; p-- > c->first;) {
        struct piece *pc = &l->pieces[p];
        enter_piece(pc, at);
        lower_fetch(l, p);
        lower_open_params(l, p);
        lower_open_gradients(l, p);
        if (pc->recompute) {
            l->recomputing = true;
            piece_forward(l, p);
            l->recomputing = false;
        }
        piece_backward(l, p);
        if (l->halves & HALF_WEIGHT)
            reduce_buckets(l, p, last);
    }
    untag(l);
    if (last)
        reduce_buckets(l, NONE, true);
    if (c->before != NONE && c->before != l->role)
        lower_send(l, at, c->before, backward_channel(c->index));
}

static void weights(struct lower *l)
{
    struct chunk *c = l->chunk;
    bool last = --c->left == 0;
    for (uint32_t p = c->first + c->npieces; p-- > c->first;) {
        lower_fetch(l, p);
        lower_open_gradients(l, p);
        piece_backward(l, p);
        if (l->halves & HALF_WEIGHT)
            reduce_buckets(l, p, last);
    }
    untag(l);
    if (last)
        reduce_buckets(l, NONE, true);
}

/* Sets the action's chunk and tags: stage of the model, microbatch of the step. */
static void enter_action(struct lower *l, const struct schedule *s, const struct action *a)
{
    l->action = a->kind;
    for (uint32_t i = 0; i < l->nchunks; i++)
        if (l->chunks[i].index == a->stage)
            l->chunk = &l->chunks[i];
    l->stage_index = l->chunk->stage_index;
    l->microbatch = l->chunk->copy * s->microbatches + a->microbatch;
    l->halves = a->kind == 'B'   ? HALF_INPUT | HALF_WEIGHT
                : a->kind == 'I' ? HALF_INPUT
                : a->kind == 'W' ? HALF_WEIGHT
                                 : 0;
}

static void lower_action(struct lower *l, const struct schedule *s, const struct action *a)
{
    enter_action(l, s, a);
    if (a->kind == 'F')
        forward(l);
    else if (a->kind == 'W')
        weights(l);
    else
        backward(l);
}

/* Shares the lists of operands of the instructions written since the last call. */
static void share(struct lower *l)
{
    program_share(l->p, l->bodies, l->shared);
    l->shared = l->p->ninsns;
}

/* one of two lists of instructions, and how much of its time has passed */
struct strand {
    uint32_t next, end;
    double done_ns, all_ns;
};

/* when queues and buffers become free, in a simulation of a pair by itself */
struct watch {
    double queue_ns[NQUEUES];
    double *written_ns, *read_ns; /* by buffer */
};

static struct strand new_strand(const struct lower *l, uint32_t first, uint32_t end)
{
    struct strand s = {.next = first, .end = end, .all_ns = 1};
    for (uint32_t i = first; i < end; i++)
        s.all_ns += (double)cost_insn_ns(l->cost, l->p, i, false);
    return s;
}

/* Does the instruction fetch from host memory?  Kernels wait for that, while a copy to host memory only has to free
 * its buffer. */
static bool fetches(const struct lower *l, const struct insn *n)
{
    const struct operand *x = &l->p->operands[n->operand + OPND(COPY, x)];
    return n->op == OP_COPY && n->queue == QUEUE_COPY && l->p->buffers[x->buffer].host;
}

static double start_ns(const struct lower *l, const struct watch *w, const struct strand *s)
{
    const struct insn *n = &l->p->insns[s->next];
    double at = fetches(l, n) ? 0 : w->queue_ns[n->queue];
    for (uint32_t k = n->operand; k < n->operand + isa_info(n->op)->noperands; k++) {
        const struct operand *o = &l->p->operands[k];
        if (o->buffer == NONE)
            continue;
        double free = w->written_ns[o->buffer];
        if (o->mark != MARK_READ && w->read_ns[o->buffer] > free)
            free = w->read_ns[o->buffer];
        at = free > at ? free : at;
    }
    return at;
}

static void run_next(const struct lower *l, struct watch *w, struct strand *s)
{
    const struct insn *n = &l->p->insns[s->next];
    double takes = (double)cost_insn_ns(l->cost, l->p, s->next, false), start = start_ns(l, w, s),
           free = w->queue_ns[n->queue];
    double end = (free > start ? free : start) + takes;
    w->queue_ns[n->queue] = end;
    for (uint32_t k = n->operand; k < n->operand + isa_info(n->op)->noperands; k++) {
        const struct operand *o = &l->p->operands[k];
        double *last = o->buffer == NONE      ? NULL
                       : o->mark == MARK_READ ? &w->read_ns[o->buffer]
                                              : &w->written_ns[o->buffer];
        if (last && end > *last)
            *last = end;
    }
    s->done_ns += takes;
    s->next++;
}

/* Writes two overlapping actions as one list, in the order of walk_is_next().  Temporaries of the second have other
 * names, and its parameters are gathered into buffers of its own; everything else that both access is only read. */
static void lower_pair(struct lower *l, const struct schedule *s, const struct action *a)
{
    uint32_t first = l->p->ninsns;
    lower_action(l, s, a);
    uint32_t second = l->p->ninsns;
    l->temps = "b.";
    l->shards.ring = &l->shards.rings[1];
    lower_action(l, s, a + 1);
    l->shards.ring = &l->shards.rings[0];
    l->temps = "";
    share(l);
    uint32_t end = l->p->ninsns, n = end - first;
    while (l->channels.n < end)
        vec_push(l->arena, &l->channels, NONE);
    struct strand x = new_strand(l, first, second), y = new_strand(l, second, end);
    struct arena_mark mark = arena_mark(l->arena);
    struct insn *insns = ARENA_ARRAY(l->arena, struct insn, n);
    uint32_t *channels = ARENA_ARRAY(l->arena, uint32_t, n);
    struct watch w = {.written_ns = ARENA_ARRAY(l->arena, double, l->p->nbuffers),
                      .read_ns = ARENA_ARRAY(l->arena, double, l->p->nbuffers)};
    for (uint32_t k = 0; k < n; k++) {
        bool left = y.next == y.end;
        if (!left && x.next < x.end) {
            left = walk_is_next(start_ns(l, &w, &x), start_ns(l, &w, &y), x.done_ns * y.all_ns, y.done_ns * x.all_ns);
        }
        struct strand *from = left ? &x : &y;
        insns[k] = l->p->insns[from->next];
        channels[k] = l->channels.at[from->next];
        run_next(l, &w, from);
    }
    memcpy(l->p->insns + first, insns, n * sizeof *insns);
    memcpy(l->channels.at + first, channels, n * sizeof *channels);
    arena_reset(l->arena, mark);
}

/* Writes an action, or two that overlap. */
static void lower_actions_together(struct lower *l, const struct schedule *s, const struct action *a)
{
    uint32_t first = l->p->ninsns;
    share(l);
    if (lower_repeat(l, s, a)) {
        l->shared = l->p->ninsns;
        return;
    }
    if (a->pair)
        lower_pair(l, s, a);
    else
        lower_action(l, s, a);
    share(l);
    while (l->channels.n < l->p->ninsns)
        vec_push(l->arena, &l->channels, NONE);
    lower_remember(l, s, a, first);
}

static void lower_early(struct lower *l, const struct schedule *s)
{
    uint32_t early = schedule_early(s, l->role), next = l->role + 1 < l->d->pp ? schedule_early(s, l->role + 1) : 0;
    for (uint32_t i = 0; i < early; i++) {
        l->seam_next = i + 1 == early && next < early;
        lower_action(l, s, &s->actions[l->role][i]);
        share(l);
        while (l->channels.n < l->p->ninsns)
            vec_push(l->arena, &l->channels, NONE);
    }
    if (next == early)
        lower_first_seam(l);
    l->early = early;
}

static void lower_actions(struct lower *l, const struct schedule *s)
{
    lower_head_of_step(l);
    if (l->skews)
        lower_early(l, s);
    for (uint32_t i = l->early; i < s->nactions[l->role]; i++) {
        const struct action *a = &s->actions[l->role][i];
        if (a->kind == 'O') {
            reduce_late(l);
            lower_optimizer(l);
        } else {
            lower_actions_together(l, s, a);
            i += a->pair;
        }
    }
    if (l->evaluation) {
        l->action = 'O';
        l->microbatch = l->layer = NONE;
        lower_metrics_reduce(l);
    }
}

static struct job_info job_info(const struct job *j)
{
    const struct train *t = &j->train;
    double per_step = (double)t->sequence * (double)t->batch;
    return (struct job_info){.sequence = t->sequence,
                             .batch = t->batch,
                             .vocab = j->model.vocab,
                             .seed = t->seed,
                             .steps_total = t->total > 0 ? (uint64_t)(t->total / per_step) : 0,
                             .optimizer = t->optimizer,
                             .lr_kind = t->lr_kind,
                             .lr = t->lr,
                             .lr_min = t->lr_min,
                             .beta1 = t->beta1,
                             .beta2 = t->beta2,
                             .lr_warmup = t->lr_warmup,
                             .lr_decay = t->lr_decay,
                             .lr_stable = t->lr_stable,
                             .tokens_per_step = per_step};
}

static enum dtype dtype_of(enum dtype_name d)
{
    return d == DT_FP32 ? DTYPE_F32 : d == DT_FP16 ? DTYPE_F16 : DTYPE_BF16;
}

/* Writes one role's program, in program order.  train: NULL, or the role's training program, whose slots and
 * persistent buffers its evaluation program repeats. */
static struct lowered lower_role(struct arena *a, const struct cost *c, const struct job *job, const struct decision *d,
                                 uint32_t role, const struct program *train, const struct schedule *s)
{
    struct lower l = {.arena = a,
                      .cost = c,
                      .job = job,
                      .d = d,
                      .role = role,
                      .evaluation = train != NULL,
                      .temps = "",
                      .mesh = decision_mesh(job, d)};
    l.p = program_new(role, d->pp);
    l.p->evaluation = l.evaluation;
    for (uint32_t i = 0; train && i < train->nslots; i++)
        program_slot(l.p, train->slots[i].name, train->slots[i].kind, train->slots[i].arg, train->slots[i].most);
    l.p->job = job_info(job);
    l.ctype = dtype_of(train_working(&job->train));
    l.mtype = dtype_of(job->train.master);
    l.gtype = dtype_of(job->train.grads);
    l.rtype = dtype_of(job->train.reduce);
    l.sp = d->sp && d->tp > 1;
    l.skews = !l.evaluation && decision_skews(job, d);
    l.tokens = d->microbatch * (uint32_t)job->train.sequence / d->cp;
    l.local = l.sp ? l.tokens / d->tp : l.tokens;
    l.cuts = decision_cuts(job, d);
    l.runs = l.sp ? l.cuts : 1;
    lower_chunks(&l, s);
    l.chunk = l.chunks;
    l.stage_index = l.chunk->stage_index;
    lower_blocks(&l);
    lower_params(&l);
    lower_step_buffers(&l);
    lower_shards(&l, s);
    l.bodies = program_bodies_new();
    lower_actions(&l, s);
    lower_workspace(&l, train);
    share(&l);
    program_bodies_free(l.bodies);
    program_trim(l.p);
    while (l.channels.n < l.p->ninsns)
        vec_push(a, &l.channels, NONE);
    return (struct lowered){l.p, l.channels.at, l.cuts};
}

/* the programs of one kind on their way; arenas: one per role, since roles are lowered at the same time */
struct lowering {
    const struct cost *cost;
    struct plan *plan;
    const struct schedule *schedule;
    bool evaluation;
    struct lowered *all;
    struct arena **arenas;
};

static void lower_one(void *context, uint32_t r)
{
    struct lowering *x = context;
    struct plan *p = x->plan;
    x->arenas[r] = arena_new();
    x->all[r] = lower_role(x->arenas[r], x->cost, p->job, &p->decision, r, x->evaluation ? p->train[r] : NULL,
                           x->schedule);
    (x->evaluation ? p->eval : p->train)[r] = x->all[r].p;
}

/* Makes the training or the evaluation programs of all roles; what they are made from is freed afterwards. */
static void lower_programs(const struct cost *c, struct plan *p, const struct schedule *s, bool evaluation)
{
    uint32_t nroles = p->decision.pp;
    struct arena *scratch = arena_new();
    struct lowering x = {.cost = c,
                         .plan = p,
                         .schedule = s,
                         .evaluation = evaluation,
                         .all = ARENA_ARRAY(scratch, struct lowered, nroles),
                         .arenas = ARENA_ARRAY(scratch, struct arena *, nroles)};
    parallel_each(nroles, lower_one, &x);
    order_programs(c, x.all, nroles, p->decision.microbatches);
    for (uint32_t r = 0; r < nroles; r++)
        arena_free(x.arenas[r]);
    arena_free(scratch);
}

static void lower_kinds(struct arena *a, const struct cost *c, struct plan *p, bool evaluation)
{
    p->nroles = p->decision.pp;
    p->train = ARENA_ARRAY(a, struct program *, p->nroles);
    p->eval = ARENA_ARRAY(a, struct program *, p->nroles);
    struct arena_mark mark = arena_mark(a);
    struct schedule *s = schedule_new(a, &p->decision);
    lower_programs(c, p, s, false);
    if (evaluation)
        lower_programs(c, p, schedule_forward(a, s), true);
    arena_reset(a, mark);
}

void lower_plan(struct arena *a, const struct cost *c, struct plan *p)
{
    lower_kinds(a, c, p, true);
}

void lower_training(struct arena *a, const struct cost *c, struct plan *p)
{
    lower_kinds(a, c, p, false);
}
