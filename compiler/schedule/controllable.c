/* V-Half and V-Min (after Qi et al., 2024, "Pipeline parallelism with controllable memory"): V-shaped placement, the
 * backward split, and one building block repeated every six slots of one action each, F I W of two stages.
 *
 * The block gives each rank six slots: F of stage r at a + step r and so on, down the V and up, and down and up again
 * for the input gradients, each W in the first free slot behind its I.  A rank's slots must differ modulo six.  A
 * microbatch's activations live from its F to its W, so the steps set the memory: with steps of one everywhere (V-Min)
 * the two stages of a rank live 4p slots in all, p/3 microbatches of a whole rank; with steps of one and two in turn
 * (V-Half) 6p slots, p/2.  Delays at the three turns keep slots apart: they depend on p mod 3 and p mod 2.  Only the
 * order is kept, holes close up.  Idle where F = I = W: about 1/2 (V-Half) and 2/3 (V-Min) of 1F1B's. */

#include "compiler/schedule/family.h"

#include <stdlib.h>

struct beat {
    char kind;
    uint32_t stage, at;
};

/* down: slots from a rank to the next, in both passes; up: from a rank to the one before */
struct block {
    uint32_t down, up, turn[3];
};

static int compare_beats(const void *x, const void *y)
{
    const struct beat *a = x, *b = y;
    return (int)(a->at % 6) - (int)(b->at % 6);
}

static void place_weight(const struct beat *beats, struct beat *w, uint32_t after)
{
    bool used[6] = {false};
    for (uint32_t k = 0; k < 6; k++)
        if (beats[k].at != UINT32_MAX)
            used[beats[k].at % 6] = true;
    w->at = after + 1;
    while (used[w->at % 6])
        w->at++;
}

static void run_block(struct schedule *s, const struct block *b)
{
    uint32_t p = s->nranks, m = s->microbatches;
    uint32_t f1 = (p - 1) * (b->down + b->up) + b->turn[0], i1 = f1 + b->turn[1];
    uint32_t i0 = i1 + (p - 1) * (b->down + b->up) + b->turn[2];
    for (uint32_t r = 0; r < p; r++) {
        uint32_t last = 2 * p - 1 - r;
        struct beat beats[6] = {{'F', r, b->down * r},       {'F', last, f1 - b->up * r}, {'I', last, i1 + b->down * r},
                                {'W', last, UINT32_MAX},     {'I', r, i0 - b->up * r},    {'W', r, UINT32_MAX}};
        place_weight(beats, &beats[3], beats[2].at);
        place_weight(beats, &beats[5], beats[4].at);
        qsort(beats, 6, sizeof *beats, compare_beats);
        uint32_t periods = m;
        for (uint32_t k = 0; k < 6; k++)
            periods = m + beats[k].at / 6 > periods ? m + beats[k].at / 6 : periods;
        for (uint32_t n = 0; n < periods; n++)
            for (uint32_t k = 0; k < 6; k++)
                if (n >= beats[k].at / 6 && n - beats[k].at / 6 < m)
                    schedule_append(s, r, beats[k].kind, beats[k].stage, n - beats[k].at / 6);
    }
}

void schedule_v_half(struct schedule *s)
{
    static const struct block even = {1, 2, {5, 1, 1}}, odd = {1, 2, {2, 1, 4}};
    run_block(s, s->nranks % 2 ? &odd : &even);
}

void schedule_v_min(struct schedule *s)
{
    static const struct block plain = {1, 1, {1, 1, 1}}, thirds = {1, 1, {1, 3, 1}};
    run_block(s, s->nranks % 3 ? &plain : &thirds);
}
