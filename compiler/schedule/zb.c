/* Zero-bubble schedules with one stage per rank (Qi et al., 2023): the backward is split in two, and only the input
 * gradient I is on the critical path to the previous stage; weight gradients W fill the bubbles.
 *
 * ZB-H1 keeps 1F1B's warm-up, rank r runs its weight gradients r microbatches late, and every rank holds p
 * microbatches; idle: (p-1)(F + I - W) for W <= F, I.  ZB-H2 runs 2(p-r) - 1 forwards ahead and holds 2p - 1
 * microbatches: every rank is busy from its first to its last action where F = I = W, but rank r starts rF late, so
 * a step that ends on all ranks at once still has (p-1)F idle. */

#include "compiler/schedule/family.h"

void schedule_zb_h1(struct schedule *s)
{
    uint32_t p = s->nranks, m = s->microbatches;
    for (uint32_t r = 0; r < p; r++) {
        uint32_t f = 0, w = 0, ahead = p - 1 - r < m ? p - 1 - r : m;
        while (f < ahead)
            schedule_append(s, r, 'F', r, f++);
        for (uint32_t k = 0; k < m; k++) {
            if (f < m)
                schedule_append(s, r, 'F', r, f++);
            schedule_append(s, r, 'I', r, k);
            if (k >= r)
                schedule_append(s, r, 'W', r, w++);
        }
        while (w < m)
            schedule_append(s, r, 'W', r, w++);
    }
}

void schedule_zb_h2(struct schedule *s)
{
    uint32_t p = s->nranks, m = s->microbatches;
    for (uint32_t r = 0; r < p; r++) {
        uint32_t f = 0, w = 0, ahead = 2 * (p - r) - 1 < m ? 2 * (p - r) - 1 : m;
        while (f < ahead)
            schedule_append(s, r, 'F', r, f++);
        for (uint32_t k = 0; k < m; k++) {
            schedule_append(s, r, 'I', r, k);
            if (k >= 2 * r)
                schedule_append(s, r, 'W', r, w++);
            if (f < m)
                schedule_append(s, r, 'F', r, f++);
        }
        while (w < m)
            schedule_append(s, r, 'W', r, w++);
    }
}
