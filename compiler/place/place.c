/* Placement: host memory, then what outlives the step, then the step's buffers where lives.c says that they may share bytes.
 *
 * The slots of a ring are live at different times, so they are placed one by one, which tells on schedules whose rings are
 * not full at the same time (a zero-bubble's rings for W fill while those for I drain).  But a ring stays in one piece where
 * that costs little: such a program is shorter, and easier to read.  Cost: lives.c, conflicts.c and pack.c, for both. */

#include "compiler/place/place_private.h"

#include <string.h>

enum { WORTH = 200 }; /* rings are scattered where that saves more than this part of the arena */

/* bytes by the clock of the compute queue: the most of them at a time */
static uint64_t most_live(struct arena *a, const struct lives *l, bool sure)
{
    uint32_t length = l->length + 2;
    struct arena_mark mark = arena_mark(a);
    uint64_t *gain = ARENA_ARRAY(a, uint64_t, length + 1u), live = 0, most = 0; /* differences wrap */
    uint32_t past = 0;
    for (uint32_t i = 0; i < l->nlives; i++) {
        const struct life *x = &l->lives[i];
        uint64_t bytes = place_align(l->parts[x->part].bytes);
        uint32_t from = sure ? x->sure_lo : x->lo, to = sure ? x->sure_end : x->hi + 1;
        past = i && x->part == x[-1].part ? past : 0; /* lives of a part may meet */
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

/* the first bit that is set from x on; 64 * words if there is none */
static uint32_t next_bit(const uint64_t *bits, uint32_t words, uint32_t x)
{
    for (uint32_t w = x / 64; w < words; w++, x = 64 * w) {
        uint64_t rest = bits[w] >> x % 64;
        if (rest)
            return x + (uint32_t)__builtin_ctzll(rest);
    }
    return 64 * words;
}

/* rings in one piece: items are buffers, which conflict where any of their parts do */
static struct conflicts *join_slots(struct arena *a, const struct conflicts *c, const struct lives *l, const struct program *p)
{
    struct conflicts *joined = ARENA_NEW(a, struct conflicts);
    joined->n = p->nbuffers;
    joined->words = (joined->n + 63) / 64;
    joined->bits = ARENA_ARRAY(a, uint64_t, (size_t)joined->n * joined->words + 1);
    uint64_t *any = ARENA_ARRAY(a, uint64_t, c->words + 1u);
    for (uint32_t b = 0; b < p->nbuffers; b++) {
        memset(any, 0, c->words * sizeof *any);
        for (uint32_t x = l->first_part[b]; x < l->first_part[b + 1]; x++)
            for (uint32_t w = 0; w < c->words; w++)
                any[w] |= c->bits[(size_t)x * c->words + w];
        for (uint32_t x = next_bit(any, c->words, 0); x < 64 * c->words;) {
            uint32_t other = l->parts[x].buffer;
            joined->bits[(size_t)b * joined->words + other / 64] |= (uint64_t)1 << other % 64;
            x = next_bit(any, c->words, l->first_part[other + 1]);
        }
    }
    return joined;
}

/* the first time that an item is live */
static void find_starts(const struct lives *l, uint32_t *part, uint32_t *buffer, uint32_t nbuffers)
{
    memset(part, 0xff, l->nparts * sizeof *part);
    memset(buffer, 0xff, nbuffers * sizeof *buffer);
    for (uint32_t i = 0; i < l->nlives; i++) {
        uint32_t x = l->lives[i].part, b = l->parts[x].buffer, lo = l->lives[i].lo;
        part[x] = lo < part[x] ? lo : part[x];
        buffer[b] = lo < buffer[b] ? lo : buffer[b];
    }
}

static void set_places(struct program *p, const struct lives *l, const uint64_t *offset, uint64_t floor)
{
    for (uint32_t b = 0; b < p->nbuffers; b++) {
        struct buffer *x = &p->buffers[b];
        uint32_t first = l->first_part[b], n = l->first_part[b + 1] - first;
        if (!n)
            continue;
        x->offset = floor + offset[first];
        for (uint32_t k = 1; k < n && !x->scattered; k++)
            x->scattered = offset[first + k] != offset[first] + k * x->stride;
        x->place = x->scattered ? p->nplaces : 0;
        for (uint32_t k = 0; x->scattered && k < n; k++)
            program_add_place(p, floor + offset[first + k]);
    }
}

/* the step's buffers from `floor` on; the end of the last one, which need not be lower than `enough` */
static uint64_t place_step(struct arena *a, struct program *p, uint64_t floor, uint64_t enough)
{
    const struct lives *l = place_lives(a, p);
    const struct conflicts *c = place_conflicts(a, l), *joined = join_slots(a, c, l, p);
    uint64_t *bytes = ARENA_ARRAY(a, uint64_t, l->nparts + 1u), *whole = ARENA_ARRAY(a, uint64_t, p->nbuffers + 1u);
    uint64_t *apart_at = ARENA_ARRAY(a, uint64_t, l->nparts + 1u), *whole_at = ARENA_ARRAY(a, uint64_t, p->nbuffers + 1u);
    uint32_t *start = ARENA_ARRAY(a, uint32_t, l->nparts + 1u), *whole_start = ARENA_ARRAY(a, uint32_t, p->nbuffers + 1u);
    for (uint32_t x = 0; x < l->nparts; x++)
        bytes[x] = l->parts[x].bytes;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        whole[b] = l->first_part[b] < l->first_part[b + 1] ? p->buffers[b].bytes : 0;
    find_starts(l, start, whole_start, p->nbuffers);
    enough = enough > floor ? enough - floor : 0;
    uint64_t bound = most_live(a, l, true), top = place_pack(a, joined, whole, whole_start, bound, enough, whole_at), apart = top;
    uint64_t worth = (floor + top) / WORTH;
    if (top > enough && top - bound > worth && l->nparts > 0)
        apart = place_pack(a, c, bytes, start, bound, enough < top - worth ? enough : top - worth - 1, apart_at);
    if (top - apart > worth && apart < top) {
        set_places(p, l, apart_at, floor);
        return floor + apart;
    }
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (whole[b])
            p->buffers[b].offset = floor + whole_at[b];
    return floor + top;
}

static uint64_t place_kept(struct program *p, uint64_t host_bytes)
{
    uint64_t top = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++) /* host memory comes first, where both programs of a rank find it */
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

void place_within(struct arena *a, struct program *p, uint64_t host_bytes, uint64_t enough)
{
    struct arena_mark mark = arena_mark(a);
    p->nplaces = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        p->buffers[b].scattered = false;
    p->arena_bytes = place_step(a, p, place_kept(p, host_bytes), enough);
    arena_reset(a, mark);
}

void place_program(struct arena *a, struct program *p, uint64_t host_bytes)
{
    place_within(a, p, host_bytes, 0);
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
