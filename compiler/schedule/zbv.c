/* ZB-V (Qi et al., 2024, "Pipeline parallelism with controllable memory"): two stages per rank in the shape of a V,
 * the backward split.  Rank 0 has the first and the last stage; the turn of the V is local to rank p-1.  Every rank
 * holds p microbatches' activations, as 1F1B's first rank does, and is busy from its first to its last action where
 * F = I = W; rank r starts rF/2 late.
 *
 * The order is made for max(m, 2p - 1) microbatches; actions of microbatches beyond m are left out. */

#include "compiler/schedule/family.h"

/* One rank's counters: of forwards, input gradients and weight gradients done on its first and second stage.
 */
struct fold {
    struct schedule *s;
    uint32_t rank, stage[2];
    uint32_t f[2], i[2], w[2];
};

static void append(struct fold *x, char kind, uint32_t slot, uint32_t *count)
{
    uint32_t microbatch = (*count)++;
    if (microbatch < x->s->microbatches)
        schedule_append(x->s, x->rank, kind, x->stage[slot], microbatch);
}

static void forward(struct fold *x, uint32_t slot)
{
    append(x, 'F', slot, &x->f[slot]);
}

static void backward(struct fold *x, uint32_t slot)
{
    append(x, 'I', slot, &x->i[slot]);
    append(x, 'W', slot, &x->w[slot]);
}

static void drain(struct fold *x, uint32_t p, uint32_t r)
{
    for (uint32_t k = 0; k < r; k++) {
        append(x, 'I', 0, &x->i[0]);
        append(x, 'I', 1, &x->i[1]);
    }
    for (uint32_t k = 0; k < p - r; k++) {
        append(x, 'I', 0, &x->i[0]);
        append(x, 'W', 0, &x->w[0]);
    }
    while (x->w[1] < x->i[1])
        append(x, 'W', 1, &x->w[1]);
    while (x->w[0] < x->i[0])
        append(x, 'W', 0, &x->w[0]);
}

void schedule_zb_v(struct schedule *s)
{
    uint32_t p = s->nranks, m = s->microbatches, all = m > 2 * p - 1 ? m : 2 * p - 1;
    for (uint32_t r = 0; r < p; r++) {
        struct fold x = {.s = s, .rank = r, .stage = {r, 2 * p - 1 - r}};
        for (uint32_t k = 0; k < 2 * (p - r) - 1; k++)
            forward(&x, 0);
        for (uint32_t k = 0; k < r; k++) {
            forward(&x, 1);
            forward(&x, 0);
        }
        for (uint32_t k = 0; k < p - r; k++) {
            forward(&x, 1);
            backward(&x, 1);
        }
        while (x.f[1] < x.f[0] || x.f[0] < all) {
            if (x.f[0] < all)
                forward(&x, 0);
            backward(&x, 0);
            forward(&x, 1);
            backward(&x, 1);
        }
        drain(&x, p, r);
    }
}
