/* DualPipe (DeepSeek-V3 report, section 3.2.1) and DualPipeV: eight phases in which a rank serves two streams of
 * microbatches, with forwards of one overlapping backwards of the other.
 *
 * DualPipeV: stages r and 2p-1-r on rank r; the streams are the two stages, slot 0 the first one; h = r, n = p, M =
 * m. DualPipe: p even, two copies of the model in opposite directions, stage r of one and stage p-1-r of the other
 * on rank r; slot 0 is the copy whose first stage is nearer; h = min(r, p-1-r), n = p/2, M = m/2 of each copy.
 *   1. 2(n-h-1) times F0
 *   2. h+1 times F0 F1
 *   3. n-h-1 times I1 W F1
 *   4. M-2n+h+1 times (F0 & B1) (F1 & B0); on the middle ranks the first F0 and B1 run one after the other, since that
 *      backward needs that forward
 *   5. n-h-1 times B1 (F1 & B0)
 *   6. h+1 times B1 B0, the second half of them as I, with W deferred
 *   7. n-h-1 times W I0
 *   8. the deferred W's
 * Each W runs the oldest deferred weight gradient.  Idle: (p/2-1)(F&B + B - 3W) for DualPipe and (p-1)(F&B + B -
 * 3W)/2 for DualPipeV. */

#include "compiler/schedule/family.h"

#include <assert.h>

struct streams {
    struct schedule *s;
    uint32_t rank, stage[2];
    uint32_t f[2], b[2];
    struct action *left; /* deferred weight gradients: a queue */
    uint32_t first, end;
};

static void forward(struct streams *x, uint32_t slot)
{
    schedule_append(x->s, x->rank, 'F', x->stage[slot], x->f[slot]++);
}

static void backward(struct streams *x, uint32_t slot)
{
    schedule_append(x->s, x->rank, 'B', x->stage[slot], x->b[slot]++);
}

static void both(struct streams *x, uint32_t slot)
{
    struct action f = {'F', false, x->stage[slot], x->f[slot]++};
    struct action b = {'B', false, x->stage[1 - slot], x->b[1 - slot]++};
    schedule_append_pair(x->s, x->rank, f, b);
}

static void input(struct streams *x, uint32_t slot)
{
    x->left[x->end++] = (struct action){'W', false, x->stage[slot], x->b[slot]};
    schedule_append(x->s, x->rank, 'I', x->stage[slot], x->b[slot]++);
}

static void weight(struct streams *x)
{
    assert(x->first < x->end);
    const struct action *w = &x->left[x->first++];
    schedule_append(x->s, x->rank, 'W', w->stage, w->microbatch);
}

static void run_phases(struct streams *x, uint32_t h, uint32_t n, uint32_t all, bool middle)
{
    uint32_t outer = n - h - 1;
    for (uint32_t k = 0; k < 2 * outer; k++)
        forward(x, 0);
    for (uint32_t k = 0; k <= h; k++) {
        forward(x, 0);
        forward(x, 1);
    }
    for (uint32_t k = 0; k < outer; k++) {
        input(x, 1);
        weight(x);
        forward(x, 1);
    }
    for (uint32_t k = 0; k < all + h + 1 - 2 * n; k++) {
        if (k == 0 && middle) {
            forward(x, 0);
            backward(x, 1);
        } else {
            both(x, 0);
        }
        both(x, 1);
    }
    for (uint32_t k = 0; k < outer; k++) {
        backward(x, 1);
        both(x, 1);
    }
    for (uint32_t k = 0; k < 2 * (h + 1); k++) {
        if (k <= h)
            backward(x, 1 - k % 2);
        else
            input(x, 1 - k % 2);
    }
    for (uint32_t k = 0; k < outer; k++) {
        weight(x);
        input(x, 0);
    }
    while (x->first < x->end)
        weight(x);
}

void schedule_dualpipe_v(struct schedule *s, struct action *scratch)
{
    uint32_t p = s->nranks;
    for (uint32_t r = 0; r < p; r++) {
        struct streams x = {.s = s, .rank = r, .stage = {r, 2 * p - 1 - r}, .left = scratch};
        run_phases(&x, r, p, s->microbatches, r == p - 1);
    }
}

void schedule_dualpipe(struct schedule *s, struct action *scratch)
{
    uint32_t p = s->nranks;
    for (uint32_t r = 0; r < p; r++) {
        bool near = r < p / 2; /* the first copy's first stage is nearer */
        uint32_t own = r, other = 2 * p - 1 - r, h = near ? r : p - 1 - r;
        struct streams x = {.s = s, .rank = r, .stage = {near ? own : other, near ? other : own}, .left = scratch};
        run_phases(&x, h, p / 2, s->microbatches, h == p / 2 - 1);
    }
}
