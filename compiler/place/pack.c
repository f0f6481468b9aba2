/* Packing: an offset for every item, so that two in conflict share no byte.
 *
 * Items are placed one by one at the lowest offset where they fit beside those that are there (Pisarchyk and Lee 2020, whose
 * order is by size).  The order decides how good that is, so two are tried, and the lower packing is kept; the second only
 * where the first ends well above the bound.  Cost: items squared. */

#include "compiler/place/place_private.h"

#include <stdlib.h>
#include <string.h>

enum { ENOUGH = 100 }; /* above the bound by this part of it */

struct item {
    uint32_t index;
    uint64_t bytes, weight; /* the heavier comes first, */
    uint32_t start;         /* then the earlier */
};

static int by_weight(const void *x, const void *y)
{
    const struct item *a = x, *b = y;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* what is placed, by offset; an array per field, since every item is compared with all that are there */
struct placed {
    uint64_t *start, *end;
    uint32_t *index;
};

static struct placed new_placed(struct arena *a, uint32_t n)
{
    return (struct placed){ARENA_ARRAY(a, uint64_t, n + 1u), ARENA_ARRAY(a, uint64_t, n + 1u), ARENA_ARRAY(a, uint32_t, n + 1u)};
}

/* the lowest offset where `bytes` fit beside those of n placed items that a row of conflicts has.  Which ones it has follows no
 * pattern that a processor could foresee, so there is no branch on it but the last one's. */
static uint64_t lowest_fit(const struct placed *p, uint32_t n, const uint64_t *row, uint64_t bytes)
{
    uint64_t at = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint64_t conflict = -(row[p->index[k] / 64] >> p->index[k] % 64 & 1), end = p->end[k] & conflict;
        if ((p->start[k] & conflict) >= at + bytes)
            break;
        at = end > at ? end : at;
    }
    return at;
}

static void insert(struct placed *p, uint32_t n, uint64_t start, uint64_t end, uint32_t index)
{
    uint32_t low = 0, high = n; /* behind what starts there, too */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (p->start[middle] > start)
            high = middle;
        else
            low = middle + 1;
    }
    memmove(p->start + low + 1, p->start + low, (n - low) * sizeof *p->start);
    memmove(p->end + low + 1, p->end + low, (n - low) * sizeof *p->end);
    memmove(p->index + low + 1, p->index + low, (n - low) * sizeof *p->index);
    p->start[low] = start;
    p->end[low] = end;
    p->index[low] = index;
}

/* false: it ends no lower than `limit` */
static bool pack_in_order(const struct conflicts *c, const struct item *items, uint64_t limit, struct placed *placed,
                          uint64_t *offset, uint64_t *top)
{
    *top = 0;
    for (uint32_t n = 0; n < c->n; n++) {
        const struct item *x = &items[n];
        uint64_t at = lowest_fit(placed, n, c->bits + (size_t)x->index * c->words, x->bytes), end = at + x->bytes;
        offset[x->index] = at;
        if (end >= limit)
            return false;
        *top = end > *top ? end : *top;
        insert(placed, n, at, end, x->index);
    }
    return true;
}

static uint64_t degree(const struct conflicts *c, uint32_t item)
{
    uint64_t n = 0;
    for (uint32_t w = 0; w < c->words; w++)
        n += (uint64_t)__builtin_popcountll(c->bits[(size_t)item * c->words + w]);
    return n;
}

/* by size, and by size times the number of items in conflict */
enum order { BY_SIZE, BY_SIZE_AND_DEGREE, NORDERS };

uint64_t place_pack(struct arena *a, const struct conflicts *c, const uint64_t *bytes, const uint32_t *start, uint64_t bound,
                    uint64_t enough, uint64_t *offset)
{
    struct arena_mark mark = arena_mark(a);
    struct item *items = ARENA_ARRAY(a, struct item, c->n + 1u);
    struct placed placed = new_placed(a, c->n);
    uint64_t *tried = ARENA_ARRAY(a, uint64_t, c->n + 1u), best = UINT64_MAX;
    enough = enough > bound + bound / ENOUGH ? enough : bound + bound / ENOUGH;
    for (enum order order = 0; order < NORDERS && best > enough; order++) {
        uint64_t top;
        for (uint32_t i = 0; i < c->n; i++) {
            items[i] = (struct item){i, place_align(bytes[i]), place_align(bytes[i]), start[i]};
            if (order == BY_SIZE_AND_DEGREE)
                items[i].weight = items[i].bytes / PLACE_ALIGN * (degree(c, i) + 1);
        }
        qsort(items, c->n, sizeof *items, by_weight);
        bool better = pack_in_order(c, items, best, &placed, tried, &top);
        if (!better)
            continue;
        best = top;
        memcpy(offset, tried, c->n * sizeof *offset);
    }
    arena_reset(a, mark);
    return best == UINT64_MAX ? 0 : best;
}
