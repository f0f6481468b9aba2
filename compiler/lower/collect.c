/* Layout conversions over tensor parallelism, and stage boundaries.
 *
 * Under sequence parallelism a TOKENS value holds this rank's rows only: an all-gather makes it whole before a
 * column-parallel product, and a reduce-scatter sums the partial products of a row-parallel one back to rows
 * (Korthikanti et al. 2022, section 4.2).  Without it values are whole everywhere and partial sums are all-reduced.
 *
 * `overlap tp with compute` cuts the tokens of a microbatch into a few parts, each of which travels by itself while
 * the product that it belongs to works on another (as in Transformer Engine and PyTorch: Wang et al. 2023, doi
 * 10.1145/3567955.3567959).  Each part of the whole rows has a share from every rank, so under sequence parallelism
 * a rank's rows are not one run of consecutive tokens but one run per part, in every layer and on every stage.  What
 * computes on a rank's own rows does so run by run, and starts with one while the next is on its way.  Where rows
 * are whole they are in the order of their tokens, so attention and weight gradients are not affected. */

#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"

enum queue lower_dp_queue(const struct lower *l)
{
    return l->job->wishes.never_overlap & OVERLAP_DP ? QUEUE_COMPUTE : QUEUE_DP;
}

static enum queue tp_queue(const struct lower *l)
{
    return decision_tp_turns(l->job, l->d) ? QUEUE_COMPUTE : QUEUE_TP;
}

void lower_collective(struct lower *l, enum op op, enum queue q, uint32_t mask, struct mat x, struct mat y)
{
    uint32_t slot = lower_slot(l, SLOT_GROUP, mask);
    if (op == OP_ALL_REDUCE)
        EMIT(l, ALL_REDUCE, .x = x, .group = slot, .max = 0);
    else if (op == OP_ALL_GATHER)
        EMIT(l, ALL_GATHER, .x = x, .y = y, .group = slot);
    else if (op == OP_ALL_TO_ALL)
        EMIT(l, ALL_TO_ALL, .x = x, .y = y, .group = slot);
    else
        EMIT(l, REDUCE_SCATTER, .x = x, .y = y, .group = slot);
    lower_last(l)->queue = (uint8_t)q;
}

void lower_maximum(struct lower *l, enum queue q, uint32_t mask, struct mat x)
{
    EMIT(l, ALL_REDUCE, .x = x, .group = lower_slot(l, SLOT_GROUP, mask), .max = 1);
    lower_last(l)->queue = (uint8_t)q;
}

struct mat lower_gather(struct lower *l, const char *name, struct mat m)
{
    if (!l->sp)
        return m;
    struct mat whole = lower_temp(l, name, m.dtype, l->tokens, m.cols);
    for (uint32_t run = 0; run < l->runs; run++)
        lower_collective(l, OP_ALL_GATHER, tp_queue(l), l->mesh.dim[MESH_TP], mat_cut(m, run, l->runs),
                         mat_cut(whole, run, l->runs));
    return whole;
}

struct mat lower_partial(struct lower *l, struct mat out)
{
    return l->sp ? lower_temp(l, "part", out.dtype, l->tokens, out.cols) : out;
}

static void reduce(struct lower *l, struct mat partial, struct mat out)
{
    if (l->d->tp == 1)
        return;
    if (l->sp)
        lower_collective(l, OP_REDUCE_SCATTER, tp_queue(l), l->mesh.dim[MESH_TP], partial, out);
    else
        lower_collective(l, OP_ALL_REDUCE, tp_queue(l), l->mesh.dim[MESH_TP], out, out);
}

void lower_reduce_cut(struct lower *l, struct mat partial, struct mat out, uint32_t cut)
{
    reduce(l, mat_cut(partial, cut, l->cuts), mat_cut(out, cut, l->cuts));
}

void lower_reduce_into(struct lower *l, struct mat partial, struct mat out)
{
    for (uint32_t run = 0; run < l->runs; run++)
        reduce(l, mat_cut(partial, run, l->runs), mat_cut(out, run, l->runs));
}

/* Assigns the last instruction to a channel. */
static void set_channel(struct lower *l, uint32_t channel)
{
    while (l->channels.n < l->p->ninsns)
        vec_push(l->arena, &l->channels, NONE);
    l->channels.at[l->p->ninsns - 1] = channel;
}

void lower_send(struct lower *l, struct mat m, uint32_t peer, uint32_t channel)
{
    EMIT(l, SEND, .x = m, .peer = lower_slot(l, SLOT_PEER, peer));
    set_channel(l, channel);
}

void lower_receive(struct lower *l, struct mat m, uint32_t peer, uint32_t channel)
{
    EMIT(l, RECV, .y = m, .peer = lower_slot(l, SLOT_PEER, peer));
    set_channel(l, channel);
}
