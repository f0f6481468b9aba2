/* Looped placement: stage s on rank s mod p, v chunks per rank.  Interleaved 1F1B (Narayanan et al., SC'21, section
 * 2.2) with any group size, and combined 1F1B (Megatron-Core's overlap of expert all-to-all), where every forward of
 * the steady state overlaps a backward of another microbatch.
 *
 * The order of forwards: microbatches in groups of N, the last one smaller; inside a group chunk by chunk.
 * Backwards take the same order with the chunks reversed.  Rank r runs w = min(mv, 2(p-1-r) + (v-1)N) forwards
 * ahead, then one forward and one backward in turn.  A pair's backward must be ready when its forward is, hence one
 * more forward ahead in the combined form; with one chunk per rank w = 2(p-1-r) + 1 there.  N above p costs memory
 * and hides transfers; the warm-up uses the requested N even if there are fewer than N microbatches.  Idle without
 * transfers: (p-1)(F+B)/v. */

#include "compiler/schedule/family.h"

/* position in the order of forwards, advanced one by one */
struct place {
    uint32_t base, size; /* group: its first microbatch and how many */
    uint32_t chunk, i;
};

static struct place place_first(const struct schedule *s, uint32_t group)
{
    return (struct place){.size = group < s->microbatches ? group : s->microbatches};
}

static void place_next(const struct schedule *s, struct place *at, uint32_t chunks)
{
    if (++at->i < at->size)
        return;
    at->i = 0;
    if (++at->chunk < chunks)
        return;
    at->chunk = 0;
    at->base += at->size;
    if (s->microbatches - at->base < at->size)
        at->size = s->microbatches - at->base;
}

void schedule_interleaved(struct schedule *s, uint32_t group, bool pairs)
{
    uint32_t p = s->nranks, v = s->nstages / p;
    uint64_t all = (uint64_t)s->microbatches * v;
    for (uint32_t r = 0; r < p; r++) {
        uint64_t ahead = 2 * (uint64_t)(p - 1 - r) + (uint64_t)(v - 1) * group + (pairs ? 1 : 0);
        uint64_t w = ahead < all ? ahead : all;
        struct place f = place_first(s, group), b = f;
        for (uint64_t k = 0; k < all + w; k++) {
            struct action forward = {'F', false, f.chunk * p + r, f.base + f.i};
            struct action backward = {'B', false, (v - 1 - b.chunk) * p + r, b.base + b.i};
            bool has_forward = k < all, has_backward = k >= w;
            if (pairs && has_forward && has_backward) {
                schedule_append_pair(s, r, forward, backward);
            } else {
                if (has_forward)
                    schedule_append(s, r, 'F', forward.stage, forward.microbatch);
                if (has_backward)
                    schedule_append(s, r, 'B', backward.stage, backward.microbatch);
            }
            if (has_forward)
                place_next(s, &f, v);
            if (has_backward)
                place_next(s, &b, v);
        }
    }
}
