/* Which items may be live at the same time.
 *
 * One sweep over the compute queue's clock keeps the set of live items as bits: where a life begins, its item
 * conflicts with the whole set, which is or-ed into the item's row at once.  Afterwards the matrix is made
 * symmetric, 64 x 64 bits at a time (Warren, Hacker's Delight, section 7-3).
 *
 * Rejected: the clocks of other queues, which would separate some lives of transfers without compute in between.
 * They save half a percent of a few arenas and take six times as long.
 *
 * Cost: lives times items / 64, and items squared / 10. */

#include "compiler/place/place_private.h"

#include <string.h>

struct sweep {
    /* linked lists of lives by time; ends: by the first time after the life */
    uint32_t *begins, *ends, *next_begin, *next_end;
    uint32_t *live; /* by item: number of its lives that are live */
    uint64_t *set;
};

static void list_lives(struct sweep *s, const struct lives *l)
{
    uint32_t length = l->length;
    memset(s->begins, 0xff, ((size_t)length + 2) * sizeof *s->begins);
    memset(s->ends, 0xff, ((size_t)length + 2) * sizeof *s->ends);
    for (uint32_t i = 0; i < l->nlives; i++) {
        uint32_t lo = l->lives[i].lo, end = l->lives[i].hi + 1;
        s->next_begin[i] = s->begins[lo];
        s->begins[lo] = i;
        s->next_end[i] = s->ends[end];
        s->ends[end] = i;
    }
}

static void sweep(struct sweep *s, const struct lives *l, const uint32_t *of, struct conflicts *c)
{
    list_lives(s, l);
    for (uint32_t t = 0; t <= l->length; t++) {
        for (uint32_t i = s->ends[t]; i != NONE; i = s->next_end[i]) {
            uint32_t item = of[i];
            if (--s->live[item] == 0)
                s->set[item / 64] &= ~((uint64_t)1 << item % 64);
        }
        for (uint32_t i = s->begins[t]; i != NONE; i = s->next_begin[i]) {
            uint32_t item = of[i];
            uint64_t *row = c->bits + (size_t)item * c->words;
            for (uint32_t w = 0; w < c->words; w++)
                row[w] |= s->set[w];
            s->live[item]++;
            s->set[item / 64] |= (uint64_t)1 << item % 64;
        }
    }
}

/* x[i] bit j <-> x[j] bit i */
static void transpose(uint64_t x[64])
{
    uint64_t mask = 0xffffffffu;
    for (uint32_t j = 32; j; j >>= 1, mask ^= mask << j)
        for (uint32_t k = 0; k < 64; k = ((k | j) + 1) & ~j) {
            uint64_t t = ((x[k] >> j) ^ x[k | j]) & mask;
            x[k] ^= t << j;
            x[k | j] ^= t;
        }
}

static void load(const struct conflicts *c, uint32_t row, uint32_t word, uint64_t out[64])
{
    for (uint32_t k = 0; k < 64; k++)
        out[k] = row + k < c->n ? c->bits[(size_t)(row + k) * c->words + word] : 0;
}

static void join(struct conflicts *c, uint32_t row, uint32_t word, const uint64_t in[64])
{
    for (uint32_t k = 0; k < 64 && row + k < c->n; k++)
        c->bits[(size_t)(row + k) * c->words + word] |= in[k];
}

static void make_symmetric(struct conflicts *c)
{
    uint64_t upper[64], lower[64];
    for (uint32_t x = 0; x < c->words; x++)
        for (uint32_t y = x; y < c->words; y++) {
            load(c, 64 * x, y, upper);
            load(c, 64 * y, x, lower);
            transpose(upper);
            transpose(lower);
            join(c, 64 * y, x, upper);
            join(c, 64 * x, y, lower);
        }
}

static struct conflicts *new_conflicts(struct arena *a, uint32_t n)
{
    struct conflicts *c = ARENA_NEW(a, struct conflicts);
    c->n = n;
    c->words = (n + 63) / 64;
    c->bits = ARENA_ARRAY(a, uint64_t, (size_t)n * c->words + 1);
    return c;
}

struct conflicts *place_conflicts(struct arena *a, const struct lives *l, const struct items *items)
{
    struct conflicts *c = new_conflicts(a, items->n);
    struct arena_mark mark = arena_mark(a);
    struct sweep s = {.begins = ARENA_ARRAY(a, uint32_t, (size_t)l->length + 2),
                      .ends = ARENA_ARRAY(a, uint32_t, (size_t)l->length + 2),
                      .next_begin = ARENA_ARRAY(a, uint32_t, l->nlives + 1u),
                      .next_end = ARENA_ARRAY(a, uint32_t, l->nlives + 1u),
                      .live = ARENA_ARRAY(a, uint32_t, items->n + 1u),
                      .set = ARENA_ARRAY(a, uint64_t, c->words + 1u)};
    sweep(&s, l, items->of, c);
    make_symmetric(c);
    arena_reset(a, mark);
    return c;
}
