/* The family with one stage per pipeline rank: GPipe, 1F1B and eager 1F1B.
 *
 * GPipe (Huang et al., 2019): all forwards, then all backwards, both in ascending microbatch order, so that
 * gradients accumulate in the order of 1F1B and the two can be compared bit for bit. 1F1B (PipeDream-Flush;
 * Megatron-LM, SC'21, section 2.2): rank r runs w forwards ahead, then one forward and one backward in turn.
 * w = min(m, p - 1 - r) holds at most p - r microbatches' activations; eager 1F1B takes twice that (Alpa's
 * overlap-friendly order), which hides one transfer in each direction at the price of nearly twice the
 * activations.  Both leave (p - 1)(F + B) idle when transfers are free. */

#include "compiler/schedule/family.h"

void schedule_gpipe(struct schedule *s)
{
    for (uint32_t r = 0; r < s->nranks; r++) {
        for (uint32_t i = 0; i < s->microbatches; i++)
            schedule_append(s, r, 'F', r, i);
        for (uint32_t i = 0; i < s->microbatches; i++)
            schedule_append(s, r, 'B', r, i);
    }
}

void schedule_1f1b(struct schedule *s, bool eager)
{
    uint32_t m = s->microbatches;
    for (uint32_t r = 0; r < s->nranks; r++) {
        uint32_t ahead = (s->nranks - 1 - r) * (eager ? 2 : 1);
        uint32_t w = ahead < m ? ahead : m;
        for (uint32_t i = 0; i < w; i++)
            schedule_append(s, r, 'F', r, i);
        for (uint32_t i = 0; i < m - w; i++) {
            schedule_append(s, r, 'F', r, w + i);
            schedule_append(s, r, 'B', r, i);
        }
        for (uint32_t i = m - w; i < m; i++)
            schedule_append(s, r, 'B', r, i);
    }
}
