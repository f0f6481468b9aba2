/* Offload of activations: what a layer keeps for its backward pass is held in host memory in between.
 *
 * Such a layer uses one of two sets of buffers on the device, its neighbours the other.  After its forward pass
 * everything that it keeps is copied out on the copy queue while the next layer runs; before its backward pass it is
 * fetched, and the layer that runs after it in the backward pass is fetched right afterwards, so that each fetch can
 * overlap with one layer's backward pass.  W fetches once more what it reads.  What a stage uses again soon stays on
 * the device: the loss; so do the stage's input and statistics of a few columns. */

#include "compiler/lower/build.h"
#include "compiler/lower/operators.h"
#include "compiler/lower/step.h"

bool lower_offloads(const struct lower *l, const struct piece *pc)
{
    return l->job->wishes.offload & OFFLOAD_ACTIVATIONS && !l->evaluation && pc->layer != NONE && !pc->ahead;
}

static struct mat place(struct lower *l, uint32_t piece, const char *name, struct mat host)
{
    return lower_temp(l, arena_printf(l->arena, "%s.%u", name, piece % 2), host.dtype, host.rows, host.cols);
}

struct mat lower_offloaded(struct lower *l, uint32_t piece, const char *name, struct mat m)
{
    return l->p->buffers[m.buffer].host ? place(l, piece, name, m) : m;
}

static void move(struct lower *l, uint32_t piece, uint32_t buffer, const char *name, struct aux_shape s, bool fetch)
{
    if (buffer == NONE || !l->p->buffers[buffer].host)
        return;
    struct mat host = lower_ring_mat(l, buffer, s.dtype, s.rows, s.cols), device = place(l, piece, name, host);
    lower_copy(l, fetch ? device : host, fetch ? host : device);
}

static void move_all(struct lower *l, uint32_t piece, bool fetch)
{
    const struct piece *pc = &l->pieces[piece];
    const struct expansion *e = pc->e;
    if (!lower_offloads(l, pc))
        return;
    l->layer = pc->layer;
    bool all = !fetch || l->halves & HALF_INPUT; /* W reads only inputs of matrix products */
    for (uint32_t v = 0; v < e->nvalues; v++)
        if (all || pc->weighs[v])
            move(l, piece, pc->buffer[v], e->values[v].name, lower_value_shape(l, &e->values[v]), fetch);
    for (uint32_t i = 0; all && i < e->noprs; i++)
        for (uint32_t k = 0; k < LOWER_AUX; k++)
            if (pc->aux[i][k] != NONE)
                move(l, piece, pc->aux[i][k], lower_aux_name(l, &e->oprs[i], k), lower_aux_shape(l, &e->oprs[i], k),
                     fetch);
}

void lower_offload(struct lower *l, uint32_t piece)
{
    move_all(l, piece, false);
}

void lower_fetch(struct lower *l, uint32_t piece)
{
    const struct chunk *c = l->chunk;
    if (piece + 1 == c->first + c->npieces) /* otherwise the next piece has fetched it */
        move_all(l, piece, true);
    if (piece > c->first)
        move_all(l, piece - 1, true);
}
