/* Placement: host memory, then buffers that outlive the step, then step buffers, which may share bytes where lives.c
 * allows it.
 *
 * The slots of a ring are live at different times, so they can be placed one by one.  That matters for schedules
 * whose rings are not full at the same time (the rings for W of a zero-bubble schedule fill while those for I
 * drain).  But a ring stays in one piece where that costs little, since such a program is shorter and easier to
 * read.
 *
 * Where the arena still ends well above the most bytes that may be live at a time, the lives of a part get offsets
 * of their own, too.  Parts conflict if any of their lives do, so three buffers of which every two are live together
 * at some time need three places, while their lives may need only two.  Cost: lives.c, conflicts.c and pack.c, for
 * each granularity that is tried. */

#include "compiler/place/place_private.h"

#include <string.h>

/* a finer granularity is used if it saves more than 1/WORTH of the arena; lives are tried one by one if MUCH times
 * that may be saved */
enum { WORTH = 200, MUCH = 2 };

/* Most bytes live at a time, on the clock of the compute queue; sure: counting only the times at which a life is
 * live in every run. */
static uint64_t most_live(struct arena *a, const struct lives *l, bool sure)
{
    uint32_t length = l->length + 2;
    struct arena_mark mark = arena_mark(a);
    uint64_t *gain = ARENA_ARRAY(a, uint64_t, length + 1u), live = 0, most = 0; /* unsigned differences wrap around */
    uint32_t past = 0;
    for (uint32_t i = 0; i < l->nlives; i++) {
        const struct life *x = &l->lives[i];
        uint64_t bytes = place_align(l->parts[x->part].bytes);
        uint32_t from = sure ? x->sure_lo : x->lo, to = sure ? x->sure_end : x->hi + 1;
        past = i && x->part == x[-1].part ? past : 0; /* lives of one part may overlap on the clock */
        from = from > past ? from : past;
        if (from >= to)
            continue;
        gain[from] += bytes;
        gain[to] -= bytes;
        past = to;
    }
    for (uint32_t t = 0; t < length; t++) {
        live += gain[t];
        most = live > most ? live : most;
    }
    arena_reset(a, mark);
    return most;
}

/* result of packing at one granularity: items, their offsets, and the end of the last one */
struct packing {
    const struct items *items;
    uint64_t *offset, top;
};

static struct packing pack(struct arena *a, const struct lives *l, const struct items *items, bool thorough,
                           uint64_t bound, uint64_t enough)
{
    struct packing x = {items, ARENA_ARRAY(a, uint64_t, items->n + 1u), 0};
    x.top = place_pack(a, place_conflicts(a, l, items), items, thorough, bound, enough, x.offset);
    return x;
}

/* Places step buffers from `floor` on; returns the end of the last one.  It need not be lower than `enough`, nor, by
 * placing lives one by one, than `usual`.  Whatever may be live at the same time conflicts, so no packing ends below
 * `bound`. */
static uint64_t place_step(struct arena *a, struct program *p, uint64_t floor, uint64_t enough, uint64_t usual)
{
    const struct lives *l = place_lives(a, p);
    enough = enough > floor ? enough - floor : 0;
    usual = usual > floor ? usual - floor : 0;
    uint64_t bound = most_live(a, l, false);
    struct packing best = pack(a, l, place_buffers_whole(a, l, p), false, bound, enough);
    uint64_t worth = (floor + best.top) / WORTH;
    bool whole = true;
    for (int lives = 0; lives < 2; lives++) {
        uint64_t good = lives && usual > enough ? usual : enough;
        if (best.top <= good || best.top - bound <= (lives ? MUCH * worth : worth))
            continue;
        uint64_t want = good < best.top - worth ? good : best.top - worth - 1;
        struct packing x = pack(a, l, lives ? place_lives_apart(a, l, bound) : place_parts_apart(a, l), lives, bound,
                                want);
        if (x.top >= best.top || best.top - x.top <= worth)
            continue;
        best = x;
        whole = false;
    }
    if (whole)
        place_settle_buffers(p, l, best.offset, floor);
    else
        place_settle_lives(a, p, l, best.items, best.offset, floor);
    return floor + best.top;
}

static uint64_t place_kept(struct program *p, uint64_t host_bytes)
{
    uint64_t top = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++) /* host memory comes first, where both programs of a rank expect it */
        if (p->buffers[b].host) {
            p->buffers[b].offset = top;
            top = place_align(top + p->buffers[b].bytes);
        }
    top = top > host_bytes ? top : host_bytes;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (!p->buffers[b].host && p->buffers[b].kind != BUFFER_STEP) {
            p->buffers[b].offset = top;
            top = place_align(top + p->buffers[b].bytes);
        }
    return top;
}

void place_within(struct arena *a, struct program *p, uint64_t host_bytes, uint64_t enough, uint64_t usual)
{
    struct arena_mark mark = arena_mark(a);
    p->nplaces = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        p->buffers[b].scattered = false;
    p->arena_bytes = place_step(a, p, place_kept(p, host_bytes), enough, usual);
    arena_reset(a, mark);
}

void place_program(struct arena *a, struct program *p, uint64_t host_bytes)
{
    place_within(a, p, host_bytes, 0, 0);
}

struct place_peak place_peak(struct arena *a, const struct program *p)
{
    struct arena_mark mark = arena_mark(a);
    const struct lives *l = place_lives(a, p);
    uint64_t kept = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (!p->buffers[b].host && p->buffers[b].kind != BUFFER_STEP)
            kept += place_align(p->buffers[b].bytes);
    struct place_peak peak = {kept + most_live(a, l, true), kept + most_live(a, l, false)};
    arena_reset(a, mark);
    return peak;
}
