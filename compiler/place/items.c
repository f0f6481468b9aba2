/* Items of placement: what gets an offset of its own, from coarse to fine.
 *
 * A buffer as a whole keeps a program short and easy to read; slots of a ring as separate items can fill each
 * other's gaps where rings are not full at the same time; and a part whose lives are separate items conflicts with
 * others only while it holds data.
 *
 * Packing costs items squared, so small lives, which hardly matter, and lives beyond MOST_ITEMS share pools.  The
 * lives of one size use as few places as there are of them at a time: each takes the first place that is free when
 * it begins (which colours an interval graph with the fewest colours: Golumbic, Algorithmic Graph Theory and Perfect
 * Graphs, 1980, section 8.6).  Slots of a ring are used in turns, so in a long step every slot is in use now and
 * then, and at some time overlaps every slot of a ring of another depth.  The last places of a pool are used only
 * when it is full, and rings that are not full at the same time share them. */

#include "compiler/place/place_private.h"

#include <stdlib.h>
#include <string.h>

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

/* Sets the items' times from the lives that `of` assigns to them. */
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

/* consecutive lives of a part that share one item */
struct stay {
    uint32_t part, lo, hi;
    bool alone;     /* it needs an item of its own, since it is also live at the step's begin */
    uint32_t place; /* its place in a pool, or NONE */
};
struct stays {
    uint32_t n, nplaces, *of; /* nplaces: places in all pools; of: the stay of each life */
    struct stay *at;
};

/* Lives of a part that overlap on the compute queue's clock form one stay, although one may end before the other
 * begins by the clock of another queue, which is not looked at. */
static void add_part(struct stays *s, const struct lives *l, uint32_t part)
{
    struct stay *x = NULL;
    for (uint32_t i = l->first_life[part]; i < l->first_life[part + 1]; i++) {
        const struct life *y = &l->lives[i];
        if (!x || y->lo > x->hi) {
            x = &s->at[s->n++];
            *x = (struct stay){part, y->lo, y->hi, false, NONE};
        }
        x->hi = y->hi > x->hi ? y->hi : x->hi;
        s->of[i] = s->n - 1;
    }
}

static struct stays find_stays(struct arena *a, const struct lives *l)
{
    struct stays s = {.of = ARENA_ARRAY(a, uint32_t, l->nlives + 1u),
                      .at = ARENA_ARRAY(a, struct stay, l->nlives + 1u)};
    for (uint32_t k = 0; k < l->nparts; k++)
        add_part(&s, l, k);
    for (uint32_t i = l->first_life[l->nparts]; i < l->nlives; i++) {
        s.of[i] = s.of[l->lives[i].same];
        s.at[s.of[i]].alone = true;
    }
    return s;
}

struct sized {
    uint64_t bytes;
    uint32_t lo, stay;
};

/* the largest first, among equals the earliest */
static int by_size(const void *x, const void *y)
{
    const struct sized *a = x, *b = y;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->lo != b->lo)
        return a->lo < b->lo ? -1 : 1;
    return (a->stay > b->stay) - (a->stay < b->stay);
}

/* Makes a pool for n stays of one size, given in the order in which they begin. */
static void make_pool(struct arena *a, struct stays *s, const struct sized *list, uint32_t n)
{
    struct arena_mark mark = arena_mark(a);
    uint32_t *end = ARENA_ARRAY(a, uint32_t, n + 1u), nplaces = 0;
    for (uint32_t k = 0; k < n; k++) {
        struct stay *x = &s->at[list[k].stay];
        uint32_t place = 0;
        while (place < nplaces && end[place] >= x->lo)
            place++;
        nplaces += place == nplaces;
        end[place] = x->hi;
        x->place = s->nplaces + place;
    }
    s->nplaces += nplaces;
    arena_reset(a, mark);
}

/* Makes pools for sizes up to `small`, and for as many larger sizes as needed to get at most MOST_ITEMS items. */
static void make_pools(struct arena *a, const struct lives *l, struct stays *s, uint64_t small)
{
    struct arena_mark mark = arena_mark(a);
    struct sized *list = ARENA_ARRAY(a, struct sized, s->n + 1u);
    uint32_t n = 0, apart = s->n;
    for (uint32_t k = 0; k < s->n; k++)
        if (!s->at[k].alone)
            list[n++] = (struct sized){l->parts[s->at[k].part].bytes, s->at[k].lo, k};
    qsort(list, n, sizeof *list, by_size);
    for (uint32_t first, end = n; end && (list[end - 1].bytes <= small || apart + s->nplaces > MOST_ITEMS);
         end = first) {
        for (first = end - 1; first && list[first - 1].bytes == list[first].bytes;)
            first--;
        make_pool(a, s, list + first, end - first);
        apart -= end - first;
    }
    arena_reset(a, mark);
}

/* Numbers the items, one per stay or place of a pool; returns how many there are. */
static uint32_t number_stays(struct arena *a, const struct stays *s, uint32_t *item)
{
    uint32_t *of_place = ARENA_ARRAY(a, uint32_t, s->nplaces + 1u), n = 0;
    memset(of_place, 0xff, s->nplaces * sizeof *of_place);
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t place = s->at[k].place;
        item[k] = place == NONE || of_place[place] == NONE ? n++ : of_place[place];
        if (place != NONE)
            of_place[place] = item[k];
    }
    return n;
}

struct items *place_lives_apart(struct arena *a, const struct lives *l, uint64_t live)
{
    struct stays s = find_stays(a, l);
    make_pools(a, l, &s, live / SMALL);
    uint32_t *item = ARENA_ARRAY(a, uint32_t, s.n + 1u);
    struct items *x = new_items(a, l, number_stays(a, &s, item));
    for (uint32_t i = 0; i < l->nlives; i++) {
        x->of[i] = item[s.of[i]];
        x->bytes[x->of[i]] = l->parts[l->lives[i].part].bytes;
    }
    return set_times(x, l);
}
