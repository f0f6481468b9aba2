/* Items of placement: what gets a place of its own, from coarse to fine.
 *
 * A buffer as a whole keeps a program short and easy to read; slots of a ring apart fit beside one another where rings are not
 * full at the same time; and a part whose lives are apart conflicts with others only while it holds something.  Packing costs
 * items squared, so of small parts, which hardly tell, and of parts beyond MOST_ITEMS lives, the smallest first, all lives are
 * one item. */

#include "compiler/place/place_private.h"

#include <stdlib.h>

enum { MOST_ITEMS = 4096, SMALL = 1000 };

static struct items *new_items(struct arena *a, const struct lives *l, uint32_t n)
{
    struct items *x = ARENA_NEW(a, struct items);
    x->n = n;
    x->of = ARENA_ARRAY(a, uint32_t, l->nlives + 1u);
    x->bytes = ARENA_ARRAY(a, uint64_t, n + 1u);
    x->start = ARENA_ARRAY(a, uint32_t, n + 1u);
    x->length = ARENA_ARRAY(a, uint64_t, n + 1u);
    return x;
}

/* when its items live; `of` says which they are */
static struct items *set_times(struct items *x, const struct lives *l)
{
    for (uint32_t i = 0; i < x->n; i++)
        x->start[i] = UINT32_MAX;
    for (uint32_t i = 0; i < l->nlives; i++) {
        const struct life *y = &l->lives[i];
        uint32_t *start = &x->start[x->of[i]];
        *start = y->lo < *start ? y->lo : *start;
        x->length[x->of[i]] += y->hi - y->lo + 1;
    }
    return x;
}

struct items *place_buffers_whole(struct arena *a, const struct lives *l, const struct program *p)
{
    struct items *x = new_items(a, l, p->nbuffers);
    for (uint32_t i = 0; i < l->nlives; i++)
        x->of[i] = l->parts[l->lives[i].part].buffer;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        x->bytes[b] = l->first_part[b] < l->first_part[b + 1] ? p->buffers[b].bytes : 0;
    return set_times(x, l);
}

struct items *place_parts_apart(struct arena *a, const struct lives *l)
{
    struct items *x = new_items(a, l, l->nparts);
    for (uint32_t i = 0; i < l->nlives; i++)
        x->of[i] = l->lives[i].part;
    for (uint32_t k = 0; k < l->nparts; k++)
        x->bytes[k] = l->parts[k].bytes;
    return set_times(x, l);
}

/* Numbers the lives of a part from `first` on; returns how many numbers it takes.  Lives that meet on the clock, one of which
 * ends before the other one begins by a clock that is not looked at, have one. */
static uint32_t number_lives(const struct lives *l, uint32_t part, uint32_t first, uint32_t *of)
{
    uint32_t n = 0, end = 0;
    for (uint32_t i = l->first_life[part]; i < l->first_life[part + 1]; i++) {
        n += !n || l->lives[i].lo > end;
        end = l->lives[i].hi > end ? l->lives[i].hi : end;
        if (of)
            of[i] = first + n - 1;
    }
    return n ? n : 1;
}

struct sized {
    uint64_t bytes;
    uint32_t part;
};

static int largest_first(const void *x, const void *y)
{
    const struct sized *a = x, *b = y;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return (a->part > b->part) - (a->part < b->part);
}

/* the parts of which every life is an item */
static bool *find_large(struct arena *a, const struct lives *l)
{
    bool *large = ARENA_ARRAY(a, bool, l->nparts + 1u);
    struct arena_mark mark = arena_mark(a);
    struct sized *order = ARENA_ARRAY(a, struct sized, l->nparts + 1u);
    uint64_t sum = 0;
    uint32_t n = l->nparts;
    for (uint32_t k = 0; k < l->nparts; k++) {
        order[k] = (struct sized){l->parts[k].bytes, k};
        sum += l->parts[k].bytes;
    }
    qsort(order, l->nparts, sizeof *order, largest_first);
    for (uint32_t k = 0; k < l->nparts && order[k].bytes > sum / SMALL; k++) {
        uint32_t more = number_lives(l, order[k].part, 0, NULL) - 1;
        large[order[k].part] = more <= MOST_ITEMS && n + more <= MOST_ITEMS;
        n += large[order[k].part] ? more : 0;
    }
    arena_reset(a, mark);
    return large;
}

struct items *place_lives_apart(struct arena *a, const struct lives *l)
{
    const bool *large = find_large(a, l);
    uint32_t n = 0;
    for (uint32_t k = 0; k < l->nparts; k++)
        n += large[k] ? number_lives(l, k, 0, NULL) : 1;
    struct items *x = new_items(a, l, n);
    n = 0;
    for (uint32_t k = 0; k < l->nparts; k++) {
        uint32_t first = n;
        n += large[k] ? number_lives(l, k, first, x->of) : 1;
        for (uint32_t i = l->first_life[k]; i < l->first_life[k + 1] && !large[k]; i++)
            x->of[i] = first;
        for (uint32_t i = first; i < n; i++)
            x->bytes[i] = l->parts[k].bytes;
    }
    for (uint32_t i = l->first_life[l->nparts]; i < l->nlives; i++)
        x->of[i] = x->of[l->lives[i].same];
    return set_times(x, l);
}
