/* V-Half and V-Min (after Qi et al., 2024, "Pipeline parallelism with controllable memory"): V-shaped placement,
 * split backward, and one building block repeated every six slots of one action each: F, I and W of two stages.
 *
 * The block gives each rank six slots: F of stage r at a + step r and so on, down the V and up, and down and up
 * again for the input gradients, each W in the first free slot after its I.  A rank's slots must differ modulo six.
 * A microbatch's activations are live from its F to its W, so the steps determine the memory: with steps of one
 * everywhere (V-Min) the two stages of a rank are live for 4p slots in all, p/3 microbatches of a whole rank; with
 * steps of one and two in turn (V-Half) for 6p slots, p/2 microbatches.  Delays at the three turns keep slots apart:
 * they depend on p mod 3 and p mod 2.  Only the order is kept; holes close up.  Idle time where F = I = W: about 1/2
 * (V-Half) and 2/3 (V-Min) of 1F1B's. */

#include "compiler/cost/pipeline.h"
#include "compiler/schedule/family.h"

#include <stdlib.h>

struct beat {
    char kind;
    uint32_t stage, at;
};

static int compare_beats(const void *x, const void *y)
{
    const struct beat *a = x, *b = y;
    return (int)(a->at % 6) - (int)(b->at % 6);
}

void schedule_block(struct schedule *s, enum schedule_kind kind)
{
    uint32_t p = s->nranks, m = s->microbatches, at[NSLOTS];
    for (uint32_t r = 0; r < p; r++) {
        uint32_t last = 2 * p - 1 - r, periods = m;
        pipeline_block(kind, p, r, at);
        struct beat beats[NSLOTS] = {{'F', r, at[SLOT_F]},     {'F', last, at[SLOT_F2]}, {'I', last, at[SLOT_I2]},
                                     {'W', last, at[SLOT_W2]}, {'I', r, at[SLOT_I]},     {'W', r, at[SLOT_W]}};
        qsort(beats, NSLOTS, sizeof *beats, compare_beats);
        for (uint32_t k = 0; k < NSLOTS; k++)
            periods = m + beats[k].at / 6 > periods ? m + beats[k].at / 6 : periods;
        for (uint32_t n = 0; n < periods; n++)
            for (uint32_t k = 0; k < NSLOTS; k++)
                if (n >= beats[k].at / 6 && n - beats[k].at / 6 < m)
                    schedule_append(s, r, beats[k].kind, beats[k].stage, n - beats[k].at / 6);
    }
}
