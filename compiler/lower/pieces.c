/* What a role consists of: its chunks (stages), their pieces, and the step buffers.
 *
 * A chunk's input is received into a ring, or is the output buffer of the previous stage where that is on the same
 * rank; then value and gradient pass from chunk to chunk without a transfer.  One gradient buffer per chunk holds
 * the gradient of its output, then of whatever residual value the backward pass has reached, finally of its input.
 * What a piece keeps for its backward pass follows from its operators' rules. */

#include "compiler/lower/build.h"
#include "compiler/lower/operators.h"
#include "compiler/lower/shard.h"
#include "compiler/lower/step.h"

#include "compiler/model/backward.h"

#include <assert.h>
#include <stdio.h>

static uint32_t aux_count(const struct lower *l, const struct opr *o)
{
    if (o->kind == OPR_NORM && lower_norm_kind(l, o) == NORM_RMS)
        return 1;
    if (o->kind == OPR_ATTENTION && !lower_exchanges_heads(l))
        return 1; /* exchanged heads: its operands, too */
    if (o->kind == OPR_ROUTER)
        return lower_router_aux(o->moe);
    if (o->kind == OPR_EXPERTS)
        return lower_experts_aux(l);
    return opr_info(o->kind)->beside;
}

static void plan_piece(struct lower *l, struct piece *pc)
{
    struct backward b = backward_new(l->arena, pc->e, pc->again, lower_exchanges_heads(l));
    pc->recompute = b.recompute;
    pc->saved = b.saved;
    pc->needed = b.needed;
    pc->unread = b.unread;
    pc->weighed = b.weighed;
    pc->weighs = b.weighs;
    pc->eight = lower_keeps_eight(l, pc) ? backward_eight(l->arena, pc->e)
                                         : ARENA_ARRAY(l->arena, uint8_t, pc->e->nvalues);
}

/* Makes a ring buffer for what a piece keeps of a microbatch: on the device or, if it is large and offloaded, in
 * host memory. */
static uint32_t keep_buffer(struct lower *l, const struct piece *pc, const char *name, struct aux_shape s)
{
    uint64_t bytes = (uint64_t)s.rows * s.cols * isa_dtype_bytes(s.dtype);
    uint64_t stream = (uint64_t)l->local * l->job->model.width * isa_dtype_bytes(l->ctype);
    uint32_t buffer = lower_step_buffer(l, name, s.dtype, bytes, l->chunks[pc->chunk].ring_act);
    l->p->buffers[buffer].host = lower_offloads(l, pc) && 4 * bytes >= stream && s.dtype != DTYPE_I32 &&
                                 s.dtype != DTYPE_F64;
    return buffer;
}

/* Is the value a router's choice?  It is a value in name only: choices and weights are auxiliary results of the
 * operator. */
static bool is_choice(const struct expansion *e, uint32_t value)
{
    bool choice = false;
    for (uint32_t i = 0; i < e->noprs; i++)
        choice |= e->oprs[i].kind == OPR_ROUTER && e->oprs[i].out == value;
    return choice;
}

static void place_piece(struct lower *l, uint32_t index)
{
    struct piece *pc = &l->pieces[index];
    const struct chunk *c = &l->chunks[pc->chunk];
    const struct expansion *e = pc->e;
    pc->buffer = ARENA_ARRAY(l->arena, uint32_t, e->nvalues);
    pc->eight_buffer = ARENA_ARRAY(l->arena, uint32_t, e->nvalues);
    pc->aux = arena_array(l->arena, e->noprs, sizeof *pc->aux);
    pc->gradient = ARENA_ARRAY(l->arena, struct mat, e->nvalues);
    pc->has_gradient = ARENA_ARRAY(l->arena, bool, e->nvalues);
    pc->late = ARENA_ARRAY(l->arena, struct mat, e->nvalues);
    pc->late_value = ARENA_ARRAY(l->arena, uint32_t, e->nvalues);
    pc->late_gradient = ARENA_ARRAY(l->arena, uint32_t, e->nvalues);
    const char *tag = lower_piece_name(l, index, "L");
    char name[40];
    for (uint32_t v = 0; v < e->nvalues; v++) {
        bool first = index == c->first, input = v == 0 && !(c->stage->embed && first);
        bool keep = !l->evaluation && pc->saved[v];
        pc->buffer[v] = pc->late_value[v] = pc->late_gradient[v] = pc->eight_buffer[v] = NONE;
        /* that is the head's input, which the head keeps */
        if (!keep || (input && first) || (v == 0 && pc->ahead == 1))
            continue;
        snprintf(name, sizeof name, "%s.%s", tag, e->values[v].name);
        struct aux_shape s = lower_value_shape(l, &e->values[v]);
        if (pc->eight[v]) {
            struct mat m = lower_words((struct mat){.rows = s.rows, .cols = s.cols}, pc->eight[v]);
            pc->eight_buffer[v] = keep_buffer(l, pc, name, (struct aux_shape){m.dtype, m.rows, m.cols});
            continue;
        }
        pc->buffer[v] = keep_buffer(l, pc, name, s);
        l->p->buffers[pc->buffer[v]].host &= !is_choice(e, v);
    }
    for (uint32_t i = 0; i < e->noprs; i++)
        for (uint32_t k = 0; k < LOWER_AUX; k++) {
            pc->aux[i][k] = NONE;
            bool made = pc->needed[i] && !(backward_act_only(&e->oprs[i], pc->again) && k != EXPERTS_ACT);
            if (k >= aux_count(l, &e->oprs[i]) || l->evaluation || made)
                continue;
            struct aux_shape shape = lower_aux_shape(l, &e->oprs[i], k);
            snprintf(name, sizeof name, "%s.%s.%u", tag, e->oprs[i].name, k);
            pc->aux[i][k] = keep_buffer(l, pc, name, shape);
        }
}

static uint32_t span_line(struct span s)
{
    uint32_t line = 0, column;
    if (s.source)
        source_position(s.source, s.start, &line, &column);
    return line;
}

static void add_piece(struct lower *l, const struct expansion *e, uint32_t layer, uint32_t parts)
{
    struct piece *pc = &l->pieces[l->npieces++];
    pc->e = e;
    pc->layer = layer;
    pc->chunk = l->nchunks - 1;
    pc->again = parts;
    pc->line = ARENA_ARRAY(l->arena, uint32_t, e->noprs);
    pc->weights = ARENA_ARRAY(l->arena, struct weight_place, e->nweights);
    for (uint32_t i = 0; i < e->noprs; i++)
        pc->line[i] = span_line(e->oprs[i].span);
    plan_piece(l, pc);
    l->chunks[l->nchunks - 1].npieces++;
}

static void add_pieces(struct lower *l, const struct stage *stage)
{
    const struct model *m = &l->job->model;
    const struct layer *previous = NULL;
    const struct expansion *e = NULL;
    uint32_t parts = backward_again(l->d->recompute, l->d->parts);
    if (stage->embed)
        add_piece(l, expand_embed(l->arena, m), NONE, 0);
    for (uint32_t i = 0; i < stage->count; i++) {
        const struct layer *layer = m->layers[stage->first + i];
        if (layer != previous)
            e = expand_layer(l->arena, m, layer);
        previous = layer;
        add_piece(l, e, stage->first + i, i < stage->count - stage->spared ? parts : 0);
    }
    if (stage->head)
        add_piece(l, expand_head(l->arena, m), NONE, 0);
    for (uint32_t k = 1; stage->head && k <= m->predict; k++) {
        add_piece(l, expand_predict(l->arena, m, k), m->nlayers + k - 1, parts);
        l->pieces[l->npieces - 1].ahead = k;
    }
}

/* Makes the chunks: stages of this rank in ascending order; in DualPipe the stages of the second copy follow those
 * of the first. */
void lower_chunks(struct lower *l, const struct schedule *s)
{
    uint32_t chain = s->nstages / s->copies, pieces = 0, n = 0;
    l->copies = s->copies;
    for (uint32_t i = 0; i < s->nstages; i++)
        if (s->stage_rank[i] == l->role) {
            pieces += l->d->stages[i % chain].count + 2 + l->job->model.predict;
            n++;
        }
    l->chunks = ARENA_ARRAY(l->arena, struct chunk, n);
    l->pieces = ARENA_ARRAY(l->arena, struct piece, pieces);
    for (uint32_t i = 0; i < s->nstages; i++) {
        if (s->stage_rank[i] != l->role)
            continue;
        struct chunk *c = &l->chunks[l->nchunks++];
        *c = (struct chunk){.stage = &l->d->stages[i % chain],
                            .stage_index = i % chain,
                            .index = i,
                            .copy = i / chain,
                            .first = l->npieces,
                            .left = s->microbatches,
                            .before = NONE,
                            .behind = NONE};
        if (i % chain)
            c->before = s->stage_rank[i - 1];
        if ((i + 1) % chain)
            c->behind = s->stage_rank[i + 1];
        add_pieces(l, c->stage);
    }
    for (uint32_t i = 0; i < s->nactions[l->role]; i++)
        l->splits |= s->actions[l->role][i].kind == 'I';
}

const char *lower_piece_name(const struct lower *l, uint32_t piece, const char *layer)
{
    const struct piece *pc = &l->pieces[piece];
    const struct chunk *c = &l->chunks[pc->chunk];
    if (pc->layer != NONE)
        return arena_printf(l->arena, "%s%u", layer, pc->layer);
    return c->stage->embed && piece == c->first ? "embed" : "head";
}

void lower_blocks(struct lower *l)
{
    struct buffer b = {.kind = BUFFER_BLOCK,
                       .dtype = DTYPE_F64,
                       .ring = NONE,
                       .bytes = STEP_WORDS * 8,
                       .bucket = NONE,
                       .shard_slot = NONE,
                       .stride = STEP_WORDS * 8,
                       .name = "step"};
    l->step_block = program_buffer(l->p, &b);
    b.kind = BUFFER_METRICS;
    b.bytes = b.stride = METRIC_WORDS * 8;
    snprintf(b.name, sizeof b.name, "metrics");
    l->metrics = program_buffer(l->p, &b);
    l->loss_scale = NONE;
    if (l->job->train.precision != DT_FP16)
        return;
    b.kind = BUFFER_SCALE;
    b.bytes = b.stride = SCALE_WORDS * 8;
    snprintf(b.name, sizeof b.name, "loss.scale");
    l->loss_scale = program_buffer(l->p, &b);
}

void lower_workspace(struct lower *l, const struct program *train)
{
    uint64_t bytes = program_workspace_bytes(l->p, l->cost->type->gpu.sm);
    for (uint32_t i = 0; train && i < train->nbuffers; i++)
        if (train->buffers[i].kind == BUFFER_WORKSPACE)
            bytes = train->buffers[i].bytes; /* a forward pass needs no more */
    struct buffer b = {.kind = BUFFER_WORKSPACE,
                       .dtype = DTYPE_F32,
                       .ring = NONE,
                       .bucket = NONE,
                       .shard_slot = NONE,
                       .name = "workspace"};
    b.bytes = b.stride = (bytes + 255) / 256 * 256;
    if (bytes)
        program_buffer(l->p, &b);
}

/* "act", or "act.s5" where the rank has several chunks */
static const char *chunk_name(const struct lower *l, const struct chunk *c, const char *name)
{
    return l->nchunks == 1 ? name : arena_printf(l->arena, "%s.s%u", name, c->stage_index);
}

static uint32_t chunk_buffer(struct lower *l, const struct chunk *c, const char *name, enum dtype dtype, uint64_t bytes,
                             uint32_t ring)
{
    return lower_step_buffer(l, chunk_name(l, c, name), dtype, bytes, ring);
}

/* the chunk of the next stage; NULL where that is on another rank */
static const struct chunk *next_chunk(const struct lower *l, const struct chunk *c)
{
    for (uint32_t i = 0; i < l->nchunks && c->behind == l->role; i++)
        if (l->chunks[i].index == c->index + 1)
            return &l->chunks[i];
    return NULL;
}

/* Makes the buffers at a chunk's ends.  A chunk without pieces passes on what it receives. */
static void place_ends(struct lower *l, struct chunk *c)
{
    uint64_t rows = (uint64_t)l->local * l->job->model.width * isa_dtype_bytes(l->ctype);
    uint64_t ids = (uint64_t)l->tokens * sizeof(int32_t);
    const struct chunk *next = next_chunk(l, c);
    bool first = c->stage->embed, last = c->stage->head, empty = c->npieces == 0;
    c->input = c->output = c->gradient = c->tokens_buffer = c->targets_buffer = NONE;
    if (next) {
        c->output = next->input;
        c->gradient = next->gradient;
    }
    if (!first)
        c->input = empty && next ? next->input : chunk_buffer(l, c, "input", l->ctype, rows, c->ring_in);
    if (!last && !next)
        c->output = empty ? c->input : chunk_buffer(l, c, "output", l->ctype, rows, c->ring_out);
    if (!l->evaluation && !next)
        c->gradient = chunk_buffer(l, c, "gradient", l->ctype, rows, c->ring_grad);
    if (first)
        c->tokens_buffer = chunk_buffer(l, c, "tokens", DTYPE_I32, ids, c->ring_token);
    if (last)
        c->targets_buffer = chunk_buffer(l, c, "targets", DTYPE_I32, ids, c->ring_token);
    for (uint32_t p = c->first; p < c->first + c->npieces && !l->evaluation; p++) {
        struct piece *pc = &l->pieces[p];
        if (!pc->ahead)
            continue;
        pc->tokens = chunk_buffer(l, c, arena_printf(l->arena, "tokens.%u", pc->ahead), DTYPE_I32, ids, c->ring_token);
        pc->targets = chunk_buffer(l, c, arena_printf(l->arena, "targets.%u", pc->ahead), DTYPE_I32, ids,
                                   c->ring_token);
    }
}

void lower_step_buffers(struct lower *l)
{
    for (uint32_t i = 0; i < l->nchunks; i++) {
        struct chunk *c = &l->chunks[i];
        c->ring_act = program_ring(l->p, chunk_name(l, c, "act"), 1);
        c->ring_in = program_ring(l->p, chunk_name(l, c, "in"), 1);
        c->ring_out = program_ring(l->p, chunk_name(l, c, "out"), 1);
        c->ring_grad = program_ring(l->p, chunk_name(l, c, "grad"), 1);
        c->ring_token = program_ring(l->p, chunk_name(l, c, "token"), 1);
        c->ring_late = l->splits && !l->evaluation ? program_ring(l->p, chunk_name(l, c, "late"), 1) : NONE;
    }
    for (uint32_t i = l->nchunks; i-- > 0;)
        place_ends(l, &l->chunks[i]);
    for (uint32_t p = 0; p < l->npieces; p++)
        place_piece(l, p);
    if (l->evaluation)
        return;
    l->scale = lower_step_buffer(l, "clip.scale", DTYPE_F64, sizeof(double), NONE);
    for (uint32_t b = 0; b < l->nbuckets; b++) {
        char name[56];
        snprintf(name, sizeof name, "grad.%s", l->p->buckets[b].name);
        uint64_t elements = l->buckets[b].scatters ? l->buckets[b].own : l->p->buckets[b].elements;
        enum dtype dtype = l->buckets[b].moved ? DTYPE_F64 : l->gtype; /* a count in place of a gradient */
        l->buckets[b].gradient = lower_step_buffer(l, name, dtype, elements * isa_dtype_bytes(dtype), NONE);
        snprintf(name, sizeof name, "reduced.%s", l->p->buckets[b].name);
        if (l->rtype != l->gtype && lower_reduces(l, b))
            l->buckets[b].reduced = lower_step_buffer(l, name, l->rtype, elements * isa_dtype_bytes(l->rtype), NONE);
    }
}
