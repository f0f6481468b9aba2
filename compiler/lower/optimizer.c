/* The step's head, the reduction of gradients, the optimizer.
 *
 * Reduction of a bucket, on the dp queue under the backward pass: over the tied pair, over tp where gradients of whole
 * tensors are partial sums (sequence parallelism), then over dp: all-reduce, or reduce-scatter to the own shard (ZeRO-1).
 * Every rank adds its share of the squared norm and of the loss to the metrics block, which is summed over the world. */

#include "compiler/lower/build.h"

static struct mat flat(uint32_t buffer, enum dtype dtype, uint64_t elements)
{
    uint32_t cols = 64, rows = (uint32_t)(elements / cols);
    return (struct mat){buffer, NONE, 0, rows, cols, cols, dtype, NONE, 0};
}

/* the own shard of a whole bucket buffer; all of it without ZeRO */
static struct mat own_shard(struct lower *l, struct mat m)
{
    if (!l->d->zero || l->d->dp * l->d->cp == 1)
        return m;
    m.rows /= l->d->dp * l->d->cp;
    m.slot = lower_slot(l, SLOT_COORD, (l->mesh.dim[MESH_DP] | l->mesh.dim[MESH_CP]));
    m.slot_stride = (uint64_t)m.rows * m.cols * isa_dtype_bytes(m.dtype);
    return m;
}

static struct mat metric(const struct lower *l, uint32_t first, uint32_t n)
{
    return (struct mat){l->metrics, NONE, first * sizeof(double), 1, n, n, DTYPE_F64, NONE, 0};
}

void lower_head_of_step(struct lower *l)
{
    l->action = 'H';
    l->microbatch = l->layer = NONE;
    l->line = 0;
    uint32_t i = lower_insn(l, OP_FILL);
    ARG(l, i, FILL, y, metric(l, 0, METRIC_WORDS), MARK_WRITE);
    if (!l->d->zero || l->d->dp * l->d->cp == 1)
        return;
    /* in the order of first use: the vectors' buckets come last in the list, but the first norm needs them */
    for (int pieces = 0; pieces < 2; pieces++)
        for (uint32_t b = 0; b < l->nbuckets; b++) {
            if ((l->buckets[b].piece != NONE) != pieces)
                continue;
            struct mat m = flat(l->buckets[b].param, l->ctype, l->p->buckets[b].elements);
            lower_collective(l, OP_ALL_GATHER, QUEUE_DP, (l->mesh.dim[MESH_DP] | l->mesh.dim[MESH_CP]), own_shard(l, m), m);
        }
}

void lower_bucket_reduce(struct lower *l, uint32_t bucket)
{
    struct bucket_info *b = &l->buckets[bucket];
    uint64_t elements = l->p->buckets[bucket].elements;
    struct mat m = flat(b->gradient, DTYPE_F32, elements);
    if (elements > b->used) {
        uint32_t i = lower_insn(l, OP_FILL), pad = (uint32_t)(elements - b->used);
        struct mat tail = {b->gradient, NONE, b->used * sizeof(float), 1, pad, pad, DTYPE_F32, NONE, 0};
        ARG(l, i, FILL, y, tail, MARK_WRITE);
    }
    if (b->tie)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_DP, GROUP_TIE, m, m);
    if (l->sp && !b->split)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_DP, l->mesh.dim[MESH_TP], m, m);
    if (l->d->dp * l->d->cp == 1)
        return;
    if (l->d->zero)
        lower_collective(l, OP_REDUCE_SCATTER, QUEUE_DP, (l->mesh.dim[MESH_DP] | l->mesh.dim[MESH_CP]), m, own_shard(l, m));
    else
        lower_collective(l, OP_ALL_REDUCE, QUEUE_DP, (l->mesh.dim[MESH_DP] | l->mesh.dim[MESH_CP]), m, m);
}

void lower_metrics_reduce(struct lower *l)
{
    if (l->d->gpus_used > 1)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_DP, l->mesh.dim[MESH_WORLD], metric(l, 0, METRIC_WORDS), metric(l, 0, METRIC_WORDS));
}

static void square_norm(struct lower *l, uint32_t bucket)
{
    const struct bucket_info *b = &l->buckets[bucket];
    struct mat g = own_shard(l, flat(b->gradient, DTYPE_F32, l->p->buckets[bucket].elements));
    uint32_t mask = 0, i = lower_insn(l, OP_SQNORM);
    if (!b->split && l->d->tp > 1)
        mask |= l->mesh.dim[MESH_TP];
    if (!l->d->zero && l->d->dp * l->d->cp > 1)
        mask |= (l->mesh.dim[MESH_DP] | l->mesh.dim[MESH_CP]);
    uint32_t slot = mask && b->counts ? lower_slot(l, SLOT_FIRST, mask) : NONE;
    /* the copy of a tied embedding lives behind the first stage, where first(pp) is never 1: it neither counts nor saves */
    l->p->buckets[bucket].count_slot = b->counts ? slot : lower_slot(l, SLOT_FIRST, l->mesh.dim[MESH_PP]);
    ARG(l, i, SQNORM, sum, metric(l, METRIC_SQNORM, 1), MARK_ADD);
    ARG(l, i, SQNORM, g, g, MARK_READ);
    ATTR_BIND_SET(l, i, SQNORM, count, b->counts && !mask, slot, 1);
}

static void update(struct lower *l, uint32_t bucket)
{
    const struct bucket_info *b = &l->buckets[bucket];
    const struct train *t = &l->job->train;
    uint64_t n = l->p->buckets[bucket].elements;
    struct mat g = own_shard(l, flat(b->gradient, DTYPE_F32, n)), param = own_shard(l, flat(b->param, l->ctype, n));
    struct mat none = {.buffer = NONE}, step = {l->step_block, NONE, 0, 1, STEP_WORDS, STEP_WORDS, DTYPE_F64, NONE, 0};
    uint64_t own = (uint64_t)g.rows * g.cols;
    struct mat p = b->master == NONE ? param : flat(b->master, DTYPE_F32, own);
    struct mat copy = b->master == NONE ? none : param;
    struct mat m = b->moment1 == NONE ? none : flat(b->moment1, DTYPE_F32, own);
    struct mat scale = {l->scale, NONE, 0, 1, 1, 1, DTYPE_F64, NONE, 0};
    double decay = l->p->buckets[bucket].decay ? t->weight_decay : 0;
    if (t->optimizer == OPT_SGD) {
        uint32_t i = lower_insn(l, OP_SGD);
        ARG(l, i, SGD, p, p, MARK_UPDATE);
        ARG(l, i, SGD, copy, copy, MARK_WRITE);
        ARG(l, i, SGD, m, m, MARK_UPDATE);
        ARG(l, i, SGD, g, g, MARK_READ);
        ARG(l, i, SGD, scale, scale, MARK_READ);
        ARG(l, i, SGD, step, step, MARK_READ);
        ATTR_REAL_SET(l, i, SGD, momentum, t->momentum);
        ATTR_REAL_SET(l, i, SGD, decay, decay);
        return;
    }
    uint32_t i = lower_insn(l, OP_ADAMW);
    ARG(l, i, ADAMW, p, p, MARK_UPDATE);
    ARG(l, i, ADAMW, copy, copy, MARK_WRITE);
    ARG(l, i, ADAMW, m, m, MARK_UPDATE);
    ARG(l, i, ADAMW, v, flat(b->moment2, DTYPE_F32, own), MARK_UPDATE);
    ARG(l, i, ADAMW, g, g, MARK_READ);
    ARG(l, i, ADAMW, scale, scale, MARK_READ);
    ARG(l, i, ADAMW, step, step, MARK_READ);
    ATTR_REAL_SET(l, i, ADAMW, beta1, t->beta1);
    ATTR_REAL_SET(l, i, ADAMW, beta2, t->beta2);
    ATTR_REAL_SET(l, i, ADAMW, eps, t->eps);
    ATTR_REAL_SET(l, i, ADAMW, decay, decay);
}

void lower_optimizer(struct lower *l)
{
    l->action = 'O';
    l->microbatch = l->layer = NONE;
    l->line = 0;
    for (uint32_t b = 0; b < l->nbuckets; b++)
        square_norm(l, b);
    lower_metrics_reduce(l);
    uint32_t i = lower_insn(l, OP_CLIP);
    struct mat scale = {l->scale, NONE, 0, 1, 1, 1, DTYPE_F64, NONE, 0};
    ARG(l, i, CLIP, scale, scale, MARK_WRITE);
    ARG(l, i, CLIP, sum, metric(l, METRIC_SQNORM, 1), MARK_READ);
    ATTR_REAL_SET(l, i, CLIP, limit, l->job->train.clip);
    for (uint32_t b = 0; b < l->nbuckets; b++)
        update(l, b);
}
