/* The lowering's driver: for every pipeline rank its pieces, its buffers, then its schedule action by action.
 *
 * F of a stage runs its pieces' operators in order.  B runs the pieces backwards; a piece that recomputes first runs its
 * forward operators again, as far as its backward needs them.  After a stage's last B every bucket is reduced as soon as
 * the piece that completes it is done.  A new kind of operator is one row of the table below and its file. */

#include "compiler/lower/build.h"

#include <stdio.h>

const struct rule *lower_rule(enum opr_kind kind)
{
    static const struct rule table[] = {
        [OPR_EMBED] = {lower_embed, lower_embed_back, false, false, 0},
        [OPR_POSITION] = {lower_position, lower_position_back, false, false, 0},
        [OPR_NORM] = {lower_norm, lower_norm_back, true, false, 2},
        [OPR_LINEAR] = {lower_linear, lower_linear_back, true, false, 0},
        [OPR_ROPE] = {lower_rope, lower_rope_back, false, false, 0},
        [OPR_ATTENTION] = {lower_attention, lower_attention_back, true, true, 1},
        [OPR_ACT] = {lower_act, lower_act_back, true, false, 0},
        [OPR_ADD] = {lower_add, lower_add_back, false, false, 0},
        [OPR_LOSS] = {lower_loss, lower_loss_back, true, false, 2},
        [OPR_ROUTER] = {NULL, NULL, false, false, 0},
        [OPR_EXPERTS] = {NULL, NULL, false, false, 0},
    };
    return &table[kind];
}

/* columns of an operator's k-th statistics */
static uint32_t aux_cols(const struct lower *l, const struct opr *o, uint32_t k)
{
    if (o->kind == OPR_ATTENTION)
        return o->attn->heads / l->d->tp;
    return o->kind == OPR_LOSS && k == 1 ? 2 : 1;
}

static uint32_t aux_count(const struct lower *l, const struct opr *o)
{
    bool rms = o->kind == OPR_NORM && l->job->model.norm.kind == NORM_RMS;
    return rms ? 1 : lower_rule(o->kind)->naux;
}

/* what B needs of a piece: values that are saved, and operators that recomputing must run to make them */
static void plan_piece(struct lower *l, struct piece *pc)
{
    const struct expansion *e = pc->e;
    bool *want = ARENA_ARRAY(l->arena, bool, e->nvalues);
    pc->saved = ARENA_ARRAY(l->arena, bool, e->nvalues);
    pc->needed = ARENA_ARRAY(l->arena, bool, e->noprs);
    for (uint32_t i = e->noprs; i-- > 0;) {
        const struct opr *o = &e->oprs[i];
        const struct rule *r = lower_rule(o->kind);
        pc->needed[i] = r->saves_out || aux_count(l, o) || (o->out != NONE && want[o->out]);
        if (r->saves_out)
            pc->saved[o->out] = want[o->out] = true;
        for (uint32_t k = 0; k < 2; k++)
            if (o->in[k] != NONE && (r->saves_in || pc->needed[i])) {
                want[o->in[k]] = true;
                pc->saved[o->in[k]] |= r->saves_in;
            }
    }
}

static void place_piece(struct lower *l, uint32_t index)
{
    struct piece *pc = &l->pieces[index];
    const struct expansion *e = pc->e;
    pc->buffer = ARENA_ARRAY(l->arena, uint32_t, e->nvalues);
    pc->aux = arena_array(l->arena, e->noprs, sizeof *pc->aux);
    pc->gradient = ARENA_ARRAY(l->arena, struct mat, e->nvalues);
    pc->has_gradient = ARENA_ARRAY(l->arena, bool, e->nvalues);
    char tag[16], name[40];
    if (pc->layer != NONE)
        snprintf(tag, sizeof tag, "L%u", pc->layer);
    else
        snprintf(tag, sizeof tag, "%s", index ? "head" : "embed");
    for (uint32_t v = 0; v < e->nvalues; v++) {
        bool input = v == 0 && !(l->stage->embed && index == 0);
        bool keep = !l->evaluation && pc->saved[v] && (!pc->recompute || input);
        pc->buffer[v] = NONE;
        if (!keep || (input && index == 0))
            continue;
        uint64_t rows = e->values[v].class == CLASS_TOKENS ? l->local : l->tokens;
        snprintf(name, sizeof name, "%s.%s", tag, e->values[v].name);
        uint64_t bytes = rows * lower_local_cols(l, &e->values[v]) * isa_dtype_bytes(l->ctype);
        pc->buffer[v] = lower_step_buffer(l, name, l->ctype, bytes, l->ring_act);
    }
    for (uint32_t i = 0; i < e->noprs; i++)
        for (uint32_t k = 0; k < 2; k++) {
            pc->aux[i][k] = NONE;
            if (k >= aux_count(l, &e->oprs[i]) || l->evaluation || pc->recompute)
                continue;
            uint64_t rows = e->oprs[i].kind == OPR_NORM ? l->local : l->tokens;
            snprintf(name, sizeof name, "%s.%s.%u", tag, e->oprs[i].name, k);
            pc->aux[i][k] = lower_step_buffer(l, name, DTYPE_F32, rows * aux_cols(l, &e->oprs[i], k) * sizeof(float),
                                              l->ring_act);
        }
}

static uint32_t span_line(struct span s)
{
    uint32_t line = 0, column;
    if (s.source)
        source_position(s.source, s.start, &line, &column);
    return line;
}

static void add_piece(struct lower *l, const struct expansion *e, uint32_t layer, bool recompute)
{
    struct piece *pc = &l->pieces[l->npieces++];
    pc->e = e;
    pc->layer = layer;
    pc->recompute = recompute;
    pc->line = ARENA_ARRAY(l->arena, uint32_t, e->noprs);
    pc->weights = ARENA_ARRAY(l->arena, struct weight_place, e->nweights);
    for (uint32_t i = 0; i < e->noprs; i++)
        pc->line[i] = span_line(e->oprs[i].span);
    plan_piece(l, pc);
}

static void add_pieces(struct lower *l)
{
    const struct model *m = &l->job->model;
    const struct layer *previous = NULL;
    const struct expansion *e = NULL;
    l->pieces = ARENA_ARRAY(l->arena, struct piece, l->stage->count + 2);
    if (l->stage->embed)
        add_piece(l, expand_embed(l->arena, m), NONE, false);
    for (uint32_t i = 0; i < l->stage->count; i++) {
        const struct layer *layer = m->layers[l->stage->first + i];
        if (layer != previous)
            e = expand_layer(l->arena, m, layer);
        previous = layer;
        bool full = l->d->recompute == RECOMPUTE_FULL && (!l->d->recompute_layers || i < l->d->recompute_layers);
        add_piece(l, e, l->stage->first + i, full);
    }
    if (l->stage->head)
        add_piece(l, expand_head(l->arena, m), NONE, false);
}

static void add_blocks(struct lower *l)
{
    struct buffer b = {.kind = BUFFER_BLOCK, .dtype = DTYPE_F64, .ring = NONE, .bytes = STEP_WORDS * 8, .bucket = NONE,
                       .shard_slot = NONE, .stride = STEP_WORDS * 8, .name = "step"};
    l->step_block = program_buffer(l->p, &b);
    b.kind = BUFFER_METRICS;
    b.bytes = b.stride = METRIC_WORDS * 8;
    snprintf(b.name, sizeof b.name, "metrics");
    l->metrics = program_buffer(l->p, &b);
}

static void add_step_buffers(struct lower *l)
{
    uint64_t rows = (uint64_t)l->local * l->job->model.width * isa_dtype_bytes(l->ctype);
    bool first = l->stage->embed, last = l->stage->head;
    l->ring_act = program_ring(l->p, "act", 1);
    l->ring_in = program_ring(l->p, "in", 1);
    l->ring_out = program_ring(l->p, "out", 1);
    l->ring_grad = program_ring(l->p, "grad", 1);
    l->ring_token = program_ring(l->p, "token", 1);
    l->input = first ? NONE : lower_step_buffer(l, "input", l->ctype, rows, l->ring_in);
    l->output = last ? NONE : lower_step_buffer(l, "output", l->ctype, rows, l->ring_out);
    l->gradient = l->evaluation ? NONE : lower_step_buffer(l, "gradient", l->ctype, rows, l->ring_grad);
    uint64_t ids = (uint64_t)l->tokens * sizeof(int32_t);
    l->tokens_buffer = first ? lower_step_buffer(l, "tokens", DTYPE_I32, ids, l->ring_token) : NONE;
    l->targets_buffer = last ? lower_step_buffer(l, "targets", DTYPE_I32, ids, l->ring_token) : NONE;
    for (uint32_t p = 0; p < l->npieces; p++)
        place_piece(l, p);
    if (l->evaluation)
        return;
    l->scale = lower_step_buffer(l, "clip.scale", DTYPE_F64, sizeof(double), NONE);
    for (uint32_t b = 0; b < l->nbuckets; b++) {
        char name[56];
        snprintf(name, sizeof name, "grad.%s", l->p->buckets[b].name);
        l->buckets[b].gradient = lower_step_buffer(l, name, DTYPE_F32, l->p->buckets[b].elements * sizeof(float), NONE);
    }
}

static void piece_forward(struct lower *l, uint32_t piece)
{
    const struct piece *pc = &l->pieces[piece];
    l->layer = pc->layer;
    for (uint32_t i = 0; i < pc->e->noprs; i++)
        if (!l->recomputing || pc->needed[i]) {
            l->line = pc->line[i];
            lower_rule(pc->e->oprs[i].kind)->forward(l, piece, i);
        }
}

static void piece_backward(struct lower *l, uint32_t piece)
{
    const struct piece *pc = &l->pieces[piece];
    l->layer = pc->layer;
    for (uint32_t i = pc->e->noprs; i-- > 0;) {
        l->line = pc->line[i];
        lower_rule(pc->e->oprs[i].kind)->backward(l, piece, i);
    }
}

static void forward(struct lower *l)
{
    struct mat boundary = lower_ring_mat(l, NONE, l->ctype, l->local, (uint32_t)l->job->model.width);
    l->layer = NONE;
    l->line = 0;
    if (l->input != NONE) {
        boundary.buffer = l->input;
        lower_receive(l, boundary, l->role - 1);
    }
    for (uint32_t p = 0; p < l->npieces; p++)
        piece_forward(l, p);
    l->layer = NONE;
    l->line = 0;
    if (l->output != NONE) {
        boundary.buffer = l->output;
        lower_send(l, boundary, l->role + 1);
    }
}

static void reduce_buckets(struct lower *l, uint32_t piece)
{
    for (uint32_t b = 0; b < l->nbuckets; b++)
        if (l->buckets[b].piece == piece)
            lower_bucket_reduce(l, b);
}

static void backward(struct lower *l, bool last)
{
    struct mat boundary = lower_ring_mat(l, l->gradient, l->ctype, l->local, (uint32_t)l->job->model.width);
    for (uint32_t p = 0; p < l->npieces; p++)
        for (uint32_t v = 0; v < l->pieces[p].e->nvalues; v++) {
            l->pieces[p].gradient[v].buffer = NONE;
            l->pieces[p].has_gradient[v] = false;
        }
    l->layer = NONE;
    l->line = 0;
    if (l->output != NONE)
        lower_receive(l, boundary, l->role + 1);
    for (uint32_t p = l->npieces; p-- > 0;) {
        struct piece *pc = &l->pieces[p];
        if (pc->e->result == NONE) {
            pc->gradient[0] = boundary;
        } else {
            pc->gradient[pc->e->result] = boundary;
            pc->has_gradient[pc->e->result] = true;
        }
        if (pc->recompute) {
            l->recomputing = true;
            piece_forward(l, p);
            l->recomputing = false;
        }
        piece_backward(l, p);
        if (last)
            reduce_buckets(l, p);
    }
    l->layer = NONE;
    l->line = 0;
    if (last)
        reduce_buckets(l, NONE);
    if (l->input != NONE)
        lower_send(l, boundary, l->role - 1);
}

static void lower_actions(struct lower *l, const struct schedule *s)
{
    uint32_t backs = 0;
    lower_head_of_step(l);
    for (uint32_t i = 0; i < s->nactions[l->role]; i++) {
        const struct action *a = &s->actions[l->role][i];
        l->action = a->kind;
        l->microbatch = a->microbatch;
        if (a->kind == 'F')
            forward(l);
        else if (a->kind == 'B')
            backward(l, ++backs == s->microbatches);
        else if (a->kind == 'O')
            lower_optimizer(l);
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
    return (struct job_info){.sequence = t->sequence, .batch = t->batch, .vocab = j->model.vocab, .seed = t->seed,
                             .steps_total = t->total > 0 ? (uint64_t)(t->total / per_step) : 0,
                             .optimizer = t->optimizer, .lr_kind = t->lr_kind, .lr = t->lr, .lr_min = t->lr_min,
                             .beta1 = t->beta1, .beta2 = t->beta2, .lr_warmup = t->lr_warmup, .lr_decay = t->lr_decay,
                             .lr_stable = t->lr_stable, .tokens_per_step = per_step};
}

/* One role's program, in program order; instances gets one entry per operand.  train: NULL, or the role's training
 * program, whose slots and persistent buffers its evaluation program repeats. */
static struct program *lower_role(struct arena *a, const struct job *job, const struct decision *d, uint32_t role,
                                  const struct program *train, const struct schedule *s, uint32_t **instances)
{
    struct lower l = {.arena = a, .job = job, .d = d, .role = role, .stage_index = role, .evaluation = train != NULL};
    l.p = program_new(role, d->pp);
    l.p->evaluation = l.evaluation;
    for (uint32_t i = 0; train && i < train->nslots; i++)
        program_slot(l.p, train->slots[i].name, train->slots[i].kind, train->slots[i].arg, train->slots[i].most);
    l.p->job = job_info(job);
    l.stage = &d->stages[role];
    l.ctype = job->train.precision == DT_FP32 ? DTYPE_F32 : DTYPE_BF16;
    l.sp = d->sp && d->tp > 1;
    l.tokens = d->microbatch * (uint32_t)job->train.sequence;
    l.local = l.sp ? l.tokens / d->tp : l.tokens;
    add_pieces(&l);
    add_blocks(&l);
    lower_params(&l);
    add_step_buffers(&l);
    lower_actions(&l, s);
    *instances = l.instances.at;
    return l.p;
}

void lower_plan(struct arena *a, const struct cost *c, struct plan *p)
{
    const struct decision *d = &p->decision;
    uint32_t **instances = ARENA_ARRAY(a, uint32_t *, d->pp);
    p->nroles = d->pp;
    p->train = ARENA_ARRAY(a, struct program *, d->pp);
    p->eval = ARENA_ARRAY(a, struct program *, d->pp);
    struct schedule *s = schedule_new(a, d), *f = schedule_forward(a, d->pp, d->nstages, d->microbatches);
    for (uint32_t r = 0; r < d->pp; r++)
        p->train[r] = lower_role(a, p->job, d, r, NULL, s, &instances[r]);
    order_programs(a, c, p->train, instances, d->pp, d->microbatches);
    for (uint32_t r = 0; r < d->pp; r++)
        p->eval[r] = lower_role(a, p->job, d, r, p->train[r], f, &instances[r]);
    order_programs(a, c, p->eval, instances, d->pp, d->microbatches);
}
