/* What the lowering works with: matrices in buffers, slots, places of values and weights. */

#include "compiler/lower/build.h"
#include "compiler/lower/operators.h"
#include "compiler/lower/shard.h"
#include "compiler/lower/step.h"

#include <assert.h>
#include <stdio.h>

uint32_t lower_slot(struct lower *l, enum slot_kind kind, uint32_t arg)
{
    for (uint32_t i = 0; i < l->p->nslots; i++)
        if (l->p->slots[i].kind == kind && l->p->slots[i].arg == arg)
            return i;
    char digits[20] = "", name[40];
    uint32_t mask = kind == SLOT_BEHIND ? SLOT_BEHIND_MASK(arg) : arg & GROUP_TIE ? 0 : arg;
    uint32_t size = mesh_group_size(&l->mesh, mask);
    if (kind != SLOT_PEER && !(arg & GROUP_TIE))
        mesh_mask_text(&l->mesh, mask, "_", digits, sizeof digits);
    switch (kind) {
    case SLOT_COORD:
        return program_slot(l->p, digits, kind, arg, size - 1);
    case SLOT_FIRST:
        snprintf(name, sizeof name, "first_%s", digits);
        return program_slot(l->p, name, kind, arg, 1);
    case SLOT_PEER:
        snprintf(name, sizeof name, "stage_%u", arg);
        return program_slot(l->p, name, kind, arg, l->d->gpus_used - 1);
    case SLOT_GROUP:
        snprintf(name, sizeof name, "group_%s", arg & GROUP_TIE ? "tie" : digits);
        return program_slot(l->p, name, kind, arg, arg & GROUP_TIE ? 2 : size);
    case SLOT_BEHIND:
        snprintf(name, sizeof name, "%s_behind_%u", digits, SLOT_BEHIND_DISTANCE(arg));
        return program_slot(l->p, name, kind, arg, size - 1);
    }
    assert(false);
    return NONE;
}

int64_t lower_fp8(const struct lower *l)
{
    return l->job->train.precision == DT_FP8 ? (int64_t)l->job->train.recipe + 1 : 0;
}

uint32_t lower_step_buffer(struct lower *l, const char *name, enum dtype dtype, uint64_t bytes, uint32_t ring)
{
    struct buffer b = {.kind = BUFFER_STEP, .dtype = dtype, .ring = ring, .bucket = NONE, .shard_slot = NONE};
    snprintf(b.name, sizeof b.name, "%s", name);
    b.stride = b.bytes = (bytes + 255) / 256 * 256;
    return program_buffer(l->p, &b);
}

static struct mat whole(uint32_t buffer, uint32_t instance, enum dtype dtype, uint32_t rows, uint32_t cols)
{
    return (struct mat){buffer, instance, 0, rows, cols, cols, dtype, NONE, 0};
}

static uint32_t hash_name(const char *name)
{
    uint32_t h = 0;
    for (; *name; name++)
        h = h * 31 + (unsigned char)*name;
    return h;
}

struct mat lower_temp(struct lower *l, const char *name, enum dtype dtype, uint32_t rows, uint32_t cols)
{
    char full[40];
    snprintf(full, sizeof full, "t.%s%s.%s.%ux%u", l->temps, name, isa_dtype_name(dtype), rows, cols);
    uint32_t n = l->p->nbuffers, *hint = &l->temp[hash_name(full) % TEMP_HINTS], i = *hint;
    if (i >= n || strcmp(l->p->buffers[i].name, full) != 0)
        for (i = n; i-- > 0 && strcmp(l->p->buffers[i].name, full) != 0;)
            ;
    if (i >= n)
        i = lower_step_buffer(l, full, dtype, (uint64_t)rows * cols * isa_dtype_bytes(dtype), NONE);
    *hint = i;
    return whole(i, NONE, dtype, rows, cols);
}

struct mat lower_ring_mat(struct lower *l, uint32_t buffer, enum dtype dtype, uint32_t rows, uint32_t cols)
{
    return whole(buffer, l->microbatch, dtype, rows, cols);
}

struct mat mat_columns(struct mat m, uint32_t first, uint32_t cols)
{
    m.at += (uint64_t)first * isa_dtype_bytes(m.dtype);
    m.cols = cols;
    return m;
}

struct mat mat_cut(struct mat m, uint32_t cut, uint32_t cuts)
{
    m.rows /= cuts;
    m.at += (uint64_t)cut * m.rows * m.ld * isa_dtype_bytes(m.dtype);
    return m;
}

uint32_t lower_key_heads(const struct lower *l, const struct attn *t)
{
    return t->kv / model_key_parts(t->kv, l->d->tp);
}

static uint32_t local_cols(const struct lower *l, const struct opr_value *v)
{
    if (v->class == CLASS_TOKENS)
        return (uint32_t)v->cols;
    if (!strncmp(v->name, "logits", 6))
        return (uint32_t)(expand_padded_vocab(v->cols, l->d->tp) / l->d->tp);
    return (uint32_t)expand_own_cols(v, l->d->tp);
}

static bool is_half(const struct lower *l)
{
    return l->halves == HALF_INPUT || l->halves == HALF_WEIGHT;
}

/* a matrix in a ring buffer that is written in I and read in W; the buffer is made when first needed */
static struct mat late_mat(struct lower *l, uint32_t piece, uint32_t value, const char *prefix, uint32_t *buffer,
                           uint32_t rows, uint32_t cols)
{
    const struct piece *pc = &l->pieces[piece];
    if (*buffer == NONE) {
        const char *name = arena_printf(l->arena, "%s.%s%s.late", lower_piece_name(l, piece, "L"), prefix,
                                        pc->e->values[value].name);
        uint64_t bytes = (uint64_t)rows * cols * isa_dtype_bytes(l->ctype);
        *buffer = lower_step_buffer(l, name, l->ctype, bytes, l->chunks[pc->chunk].ring_late);
    }
    return lower_ring_mat(l, *buffer, l->ctype, rows, cols);
}

struct aux_shape lower_value_shape(const struct lower *l, const struct opr_value *v)
{
    return (struct aux_shape){l->ctype, v->class == CLASS_TOKENS ? l->local : l->tokens, local_cols(l, v)};
}

uint32_t lower_runs(const struct lower *l, uint32_t piece, uint32_t value)
{
    return l->pieces[piece].e->values[value].class == CLASS_TOKENS ? l->runs : 1;
}

struct bind lower_run_start(struct lower *l, uint32_t run)
{
    return bind_to((int64_t)run * (l->tokens / l->runs), l->sp ? lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_TP]) : NONE,
                   l->local / l->runs);
}

struct bind lower_sample(struct lower *l)
{
    uint32_t dp = l->d->dp > 1 ? lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_DP]) : NONE;
    return bind_to((int64_t)l->microbatch * l->d->microbatch, dp, (int64_t)l->d->microbatches * l->d->microbatch);
}

struct mat lower_step_block(const struct lower *l)
{
    return (struct mat){l->step_block, NONE, 0, 1, STEP_WORDS, STEP_WORDS, DTYPE_F64, NONE, 0};
}

struct mat lower_value(struct lower *l, uint32_t piece, uint32_t value)
{
    const struct piece *pc = &l->pieces[piece];
    const struct opr_value *v = &pc->e->values[value];
    uint32_t rows = lower_value_shape(l, v).rows, cols = lower_value_shape(l, v).cols;
    const struct chunk *c = &l->chunks[pc->chunk];
    bool last = piece + 1 == c->first + c->npieces;
    if (value == 0 && pc->ahead == 1) /* its input is the head's, which passes it on */
        return lower_value(l, piece - 1, 0);
    if (value == pc->e->result && !last && l->pieces[piece + 1].ahead != 1 && !l->recomputing)
        return lower_value(l, piece + 1, 0);
    if (value == pc->e->result && last && c->output != NONE && !l->recomputing)
        return lower_ring_mat(l, c->output, l->ctype, rows, cols);
    if (value == 0 && piece == c->first && c->input != NONE)
        return lower_ring_mat(l, c->input, l->ctype, rows, cols);
    if (pc->buffer[value] != NONE)
        return lower_offloaded(l, piece, v->name, lower_ring_mat(l, pc->buffer[value], l->ctype, rows, cols));
    if (pc->weighs[value] && is_half(l) && !pc->eight[value])
        return late_mat(l, piece, value, "", &pc->late_value[value], rows, cols);
    return lower_temp(l, v->name, l->ctype, rows, cols);
}

struct aux_shape lower_aux_shape(const struct lower *l, const struct opr *o, uint32_t k)
{
    if (o->kind == OPR_ROUTER || o->kind == OPR_EXPERTS)
        return lower_moe_shape(l, o, k);
    if (o->kind == OPR_NORM)
        return (struct aux_shape){DTYPE_F32, l->local, 1};
    if (o->kind == OPR_ATTENTION && lower_exchanges_heads(l)) {
        uint32_t rows = l->d->cp * l->tokens;
        return k ? (struct aux_shape){l->ctype, rows, lower_exchanged_cols(l, o->attn)}
                 : (struct aux_shape){DTYPE_F32, rows, o->attn->heads / l->d->tp / l->d->cp};
    }
    if (o->kind == OPR_HEADNORM)
        return (struct aux_shape){DTYPE_F32, l->tokens, lower_normed_heads(l, o)};
    return (struct aux_shape){DTYPE_F32, l->tokens,
                              o->kind == OPR_ATTENTION        ? o->attn->heads / l->d->tp
                              : o->kind == OPR_LOSS && k == 1 ? 2
                                                              : 1};
}

const char *lower_aux_name(const struct lower *l, const struct opr *o, uint32_t k)
{
    return arena_printf(l->arena, "%s%u", o->name, k);
}

struct mat lower_aux(struct lower *l, uint32_t piece, uint32_t opr, uint32_t k)
{
    const struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct aux_shape s = lower_aux_shape(l, o, k);
    const char *name = lower_aux_name(l, o, k);
    if (pc->aux[opr][k] != NONE)
        return lower_offloaded(l, piece, name, lower_ring_mat(l, pc->aux[opr][k], s.dtype, s.rows, s.cols));
    return lower_temp(l, name, s.dtype, s.rows, s.cols);
}

struct mat lower_exchanged(struct lower *l, uint32_t piece, uint32_t opr)
{
    return lower_aux(l, piece, opr, 1);
}

static struct mat bucket_mat(struct lower *l, uint32_t piece, const struct weight_place *w, uint32_t rows,
                             bool gradient)
{
    const struct bucket_info *b = &l->buckets[w->bucket];
    enum dtype dtype = b->moved ? DTYPE_F32 : gradient ? l->gtype : l->ctype;
    struct mat m = whole(gradient ? b->gradient : b->param, NONE, dtype, rows, w->cols);
    uint64_t element = w->at;
    if (gradient ? b->scatters : b->gathers) {
        m.buffer = gradient ? l->shards.making : l->shards.ring->gathered[l->shards.ring->at % l->shards.ring->depth];
        const struct shard_part *part = lower_shard_part(&l->pieces[piece], w->bucket);
        element += gradient ? part->made_at : part->at;
    }
    m.at = element * isa_dtype_bytes(dtype);
    return m;
}

struct mat lower_weight(struct lower *l, uint32_t piece, const struct opr *o, bool gradient)
{
    const struct weight_place *w = &l->pieces[piece].weights[o->weight];
    uint32_t rows = 0;
    for (uint32_t i = 0; i < o->nweights; i++)
        rows += w[i].rows;
    return bucket_mat(l, piece, w, rows, gradient);
}

struct mat lower_vector(struct lower *l, uint32_t piece, const struct opr *o, uint32_t k, bool gradient)
{
    if (k >= o->nbiases)
        return mat_none();
    const struct weight_place *w = &l->pieces[piece].weights[o->bias + k];
    return bucket_mat(l, piece, w, w->rows, gradient);
}

struct mat lower_vectors(struct lower *l, uint32_t piece, const struct opr *o, bool gradient)
{
    struct mat m = lower_vector(l, piece, o, 0, gradient);
    for (uint32_t k = 1; k < o->nbiases; k++)
        m.cols += l->pieces[piece].weights[o->bias + k].cols;
    m.ld = m.cols;
    return m;
}

struct mat lower_one_weight(struct lower *l, uint32_t piece, const struct opr *o, uint32_t k, bool gradient)
{
    const struct weight_place *w = &l->pieces[piece].weights[o->weight + k];
    return bucket_mat(l, piece, w, w->rows, gradient);
}

enum mark lower_contribution(struct lower *l, uint32_t piece, uint32_t weight)
{
    bool *written = l->pieces[piece].weights[weight].written;
    enum mark mark = *written ? MARK_ADD : MARK_WRITE;
    *written = true;
    return mark;
}

struct mat lower_gradient(struct lower *l, uint32_t piece, uint32_t value, enum mark *mark)
{
    struct piece *pc = &l->pieces[piece];
    *mark = pc->has_gradient[value] ? MARK_ADD : MARK_WRITE;
    if (!pc->has_gradient[value] && pc->gradient[value].buffer == NONE) {
        const struct opr_value *v = &pc->e->values[value];
        uint32_t rows = v->class == CLASS_TOKENS ? l->local : l->tokens, cols = local_cols(l, v);
        if (pc->weighed[value] && is_half(l))
            pc->gradient[value] = late_mat(l, piece, value, "d", &pc->late_gradient[value], rows, cols);
        else
            pc->gradient[value] = lower_temp(l, arena_printf(l->arena, "d%s", v->name), l->ctype, rows, cols);
    }
    pc->has_gradient[value] = true;
    return pc->gradient[value];
}

struct mat lower_output_gradient(struct lower *l, uint32_t piece, uint32_t value)
{
    struct piece *pc = &l->pieces[piece];
    const struct chunk *c = &l->chunks[pc->chunk];
    if (l->halves == HALF_WEIGHT) {
        struct mat m = pc->late[value];
        m.instance = l->microbatch;
        return m;
    }
    struct mat dy = pc->gradient[value];
    if (l->halves != HALF_INPUT || l->undivided)
        return dy;
    uint32_t ring = l->p->buffers[dy.buffer].ring;
    bool embeds = c->stage->embed && piece == c->first; /* nothing changes this gradient afterwards */
    if (ring != c->ring_act && ring != c->ring_late && !embeds) {
        struct mat copy = late_mat(l, piece, value, "d", &pc->late_gradient[value], dy.rows, dy.cols);
        EMIT(l, COPY, .y = copy, .x = dy);
        dy = copy;
    }
    pc->late[value] = dy;
    return dy;
}
