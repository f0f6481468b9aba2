/* Packing: an offset for every item, so that conflicting items share no byte.
 *
 * Items are placed one by one at the lowest offset where they fit among those already placed (Pisarchyk and Lee
 * 2020, whose order is by size).  The quality depends on the order, so several orders are tried and the lowest
 * packing is kept; the next one is tried only while the best ends well above the bound.  A thorough packing tries
 * more orders, and improves the best one in rounds: items that ended too high come first in the next round (Joslin
 * and Clements 1999).  Cost: items squared. */

#include "compiler/place/place_private.h"

#include <stdlib.h>
#include <string.h>

enum { ENOUGH = 100 }; /* a packing is good enough at 1/ENOUGH above the bound */
/* number of rounds with few items; half as many with LARGE items, fewer with more */
enum { ROUNDS = 64, LARGE = 1000 };

struct item {
    uint32_t index;
    uint64_t bytes, weight; /* heavier items come first, */
    uint32_t start;         /* then earlier ones */
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

/* placed items by offset; one array per field, since every item is compared with all that are placed */
struct placed {
    uint64_t *start, *end;
    uint32_t *index;
};

static struct placed new_placed(struct arena *a, uint32_t n)
{
    return (struct placed){ARENA_ARRAY(a, uint64_t, n + 1u), ARENA_ARRAY(a, uint64_t, n + 1u),
                           ARENA_ARRAY(a, uint32_t, n + 1u)};
}

/* Returns the lowest offset where `bytes` fit among those of n placed items that conflict by `row`.  Which ones
 * conflict follows no pattern that a processor could predict, so the only branch is the one that ends the loop. */
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
    uint32_t low = 0, high = n; /* after all items with the same start */
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

struct packing {
    const struct conflicts *c;
    const struct items *of;
    struct item *order;
    struct placed placed;
    uint64_t *tried, *best, best_top; /* best: offsets of the best packing */
};

/* Packs in the current order; returns the end of the last item, or UINT64_MAX if it is not lower than `limit`. */
static uint64_t pack_in_order(struct packing *x, uint64_t limit)
{
    const struct conflicts *c = x->c;
    uint64_t top = 0;
    for (uint32_t n = 0; n < c->n; n++) {
        const struct item *i = &x->order[n];
        uint64_t at = lowest_fit(&x->placed, n, c->bits + (size_t)i->index * c->words, i->bytes), end = at + i->bytes;
        x->tried[i->index] = at;
        if (end >= limit)
            return UINT64_MAX;
        top = end > top ? end : top;
        insert(&x->placed, n, at, end, i->index);
    }
    return top;
}

static bool keep_better(struct packing *x, uint64_t top)
{
    bool better = top < x->best_top;
    if (better) {
        x->best_top = top;
        memcpy(x->best, x->tried, x->c->n * sizeof *x->best);
    }
    return better;
}

static uint64_t degree(const struct conflicts *c, uint32_t item)
{
    uint64_t n = 0;
    for (uint32_t w = 0; w < c->words; w++)
        n += (uint64_t)__builtin_popcountll(c->bits[(size_t)item * c->words + w]);
    return n;
}

/* by size, by size times the number of conflicting items, by size times live time, and by live time */
enum order { BY_SIZE, BY_SIZE_AND_DEGREE, BY_SIZE_AND_LENGTH, BY_LENGTH, NORDERS };
enum { USUAL_ORDERS = BY_SIZE_AND_DEGREE + 1 };

static void sort_items(struct packing *x, enum order order)
{
    for (uint32_t i = 0; i < x->c->n; i++) {
        uint64_t bytes = place_align(x->of->bytes[i]), size = bytes / PLACE_ALIGN, weight = size;
        if (order == BY_SIZE_AND_DEGREE)
            weight = size * (degree(x->c, i) + 1);
        else if (order != BY_SIZE)
            weight = x->of->length[i] * (order == BY_LENGTH ? 1 : size);
        x->order[i] = (struct item){i, bytes, weight, x->of->start[i]};
    }
    qsort(x->order, x->c->n, sizeof *x->order, by_weight);
}

/* Moves items that ended above `enough` to the front; the rest keeps its order. */
static void put_first(struct packing *x, struct item *scratch, uint64_t enough)
{
    uint32_t n = 0, late = 0;
    for (uint32_t k = 0; k < x->c->n; k++) {
        struct item i = x->order[k];
        if (x->tried[i.index] + i.bytes > enough)
            x->order[n++] = i;
        else
            scratch[late++] = i;
    }
    memcpy(x->order + n, scratch, late * sizeof *scratch);
}

uint64_t place_pack(struct arena *a, const struct conflicts *c, const struct items *of, bool thorough, uint64_t bound,
                    uint64_t enough, uint64_t *offset)
{
    struct arena_mark mark = arena_mark(a);
    struct packing x = {c,
                        of,
                        ARENA_ARRAY(a, struct item, c->n + 1u),
                        new_placed(a, c->n),
                        ARENA_ARRAY(a, uint64_t, c->n + 1u),
                        offset,
                        UINT64_MAX};
    enum order best = BY_SIZE;
    enough = enough > bound + bound / ENOUGH ? enough : bound + bound / ENOUGH;
    for (enum order order = 0; order < (thorough ? NORDERS : USUAL_ORDERS) && x.best_top > enough; order++) {
        sort_items(&x, order);
        best = keep_better(&x, pack_in_order(&x, x.best_top)) ? order : best;
    }
    if (thorough && x.best_top > enough) {
        struct item *scratch = ARENA_ARRAY(a, struct item, c->n + 1u);
        sort_items(&x, best);
        keep_better(&x, pack_in_order(&x, UINT64_MAX));
        uint64_t all = ROUNDS * LARGE * LARGE, round = (uint64_t)c->n * c->n + LARGE * LARGE;
        for (uint64_t work = 0; work < all && x.best_top > enough; work += round) {
            put_first(&x, scratch, enough);
            keep_better(&x, pack_in_order(&x, UINT64_MAX));
        }
    }
    arena_reset(a, mark);
    return x.best_top == UINT64_MAX ? 0 : x.best_top;
}
