/* Which slot of a ring a microbatch takes.
 *
 * The memory for what one microbatch keeps in a chunk is a cell.  The rings of one kind, one per chunk, share cells:
 * a microbatch in one chunk takes a cell that a microbatch of another chunk has freed, and placement puts both
 * rings' slots for that cell on the same bytes.  A cell is reused only where, in the keying simulation, its last
 * user ends before the next one starts.
 *
 * What is kept until I, what is kept until W, and what I leaves for W (the rings act, kept and late) either have
 * cells of their own or share one: which is better depends on how long W is deferred.  Both are tried, with the
 * rings' parts of cells as items that are packed as placement will pack buffers.
 *
 * Cost: users times cells, and items squared. */

#include "compiler/lower/order.h"

#include <stdlib.h>

void ring_life_join(struct ring_life *l, const struct ring_life *x)
{
    if (!l->used) {
        *l = *x;
        return;
    }
    bool sooner = x->first < l->first;
    if (x->action == l->action)
        l->grown = x->grown > l->grown ? x->grown : l->grown;
    else if (sooner)
        l->grown = x->grown;
    l->action = sooner ? x->action : l->action;
    l->start = sooner ? x->start : l->start;
    l->first = sooner ? x->first : l->first;
    l->last = x->last > l->last ? x->last : l->last;
    l->end = x->end > l->end ? x->end : l->end;
}

static bool ends_before(const struct ring_life *x, const struct ring_life *y)
{
    return !x || (x->end <= y->start && x->last < y->first);
}

/* when all, or almost all, of what the microbatch keeps has been written */
static int64_t growth_end(const struct ring_life *l)
{
    return l->grown + (l->grown - l->start) / 8;
}

/* a microbatch of one of the rings of a kind, sorted by first use */
struct user {
    uint32_t first, ring, microbatch;
};

static int by_first(const void *x, const void *y)
{
    const struct user *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

/* A cell has two faces, which placement can lay out one against the other: an F that runs beside the B that empties
 * a cell fills its other face. */
struct cell {
    const struct ring_life *last[2]; /* latest user of each face */
    uint32_t face;                   /* the face used later */
};

/* A user takes the lowest cell that is empty when it starts, else the one that is emptied first while the user's
 * data grows, else a new cell.  So the last cells are used only while all others are, and chunks take turns with
 * them: placement finds the slots of one chunk free where those of another are not. */
static void take(struct arena *a, const struct role *r, const struct ring_life *life, const struct user *users,
                 uint32_t n, uint32_t *slots)
{
    struct arena_mark mark = arena_mark(a);
    struct cell *cells = ARENA_ARRAY(a, struct cell, n + 1u);
    uint32_t ncells = 0;
    int64_t soonest = 0; /* the earliest end of any cell's last user */
    for (uint32_t i = 0; i < n; i++) {
        size_t at = (size_t)users[i].ring * r->microbatches + users[i].microbatch;
        const struct ring_life *l = &life[at];
        uint32_t best = ncells, face = 0;
        for (uint32_t c = 0; c < ncells && soonest <= growth_end(l); c++) {
            const struct cell *x = &cells[c];
            if (ends_before(x->last[x->face], l) && ends_before(x->last[!x->face], l)) {
                best = c;
                face = 0;
                break;
            }
            if (x->last[x->face]->end <= growth_end(l) && ends_before(x->last[!x->face], l) &&
                (best == ncells || x->last[x->face]->end < cells[best].last[cells[best].face]->end)) {
                best = c;
                face = !x->face;
            }
        }
        ncells += best == ncells;
        cells[best].last[face] = l;
        cells[best].face = face;
        slots[at] = 2 * best + face;
        soonest = l->end;
        for (uint32_t c = 0; c < ncells; c++)
            soonest = cells[c].last[cells[c].face]->end < soonest ? cells[c].last[cells[c].face]->end : soonest;
    }
    arena_reset(a, mark);
}

/* A ring's name is its kind and, where the rank has several chunks, the chunk: "act.s3". */
static bool is_named(const struct ring *r, const char *kind)
{
    size_t n = strcspn(r->name, ".");
    return n == strlen(kind) && !memcmp(r->name, kind, n);
}

/* Is the ring of a kind that holds what a microbatch keeps in a chunk from F to I, B or W? */
static bool is_left(const struct ring *r)
{
    return is_named(r, "act") || is_named(r, "kept") || is_named(r, "late");
}

static bool one_kind(const struct ring *x, const struct ring *y, bool united)
{
    size_t n = strcspn(x->name, ".");
    return (united && is_left(x) && is_left(y)) || (n == strcspn(y->name, ".") && !memcmp(x->name, y->name, n));
}

static bool one_chunk(const struct ring *x, const struct ring *y)
{
    return !strcmp(x->name + strcspn(x->name, "."), y->name + strcspn(y->name, "."));
}

/* Assigns cells to the rings of one kind.  Rings of one kind and chunk share a microbatch's cell: its live ranges in
 * all of them are joined. */
static void take_kind(struct arena *a, const struct role *r, uint32_t first, const struct ring_life *life, bool united,
                      uint32_t *slots)
{
    const struct ring *rings = r->p->rings;
    struct arena_mark mark = arena_mark(a);
    uint32_t n = 0, m = r->microbatches, nrings = r->p->nrings, *lead = ARENA_ARRAY(a, uint32_t, nrings);
    struct ring_life *joined = ARENA_ARRAY(a, struct ring_life, (size_t)nrings * m + 1);
    struct user *users = ARENA_ARRAY(a, struct user, (size_t)nrings * m + 1);
    for (uint32_t g = first; g < nrings; g++) {
        if (!one_kind(&rings[first], &rings[g], united))
            continue;
        lead[g] = first;
        while (!one_kind(&rings[g], &rings[lead[g]], united) || !one_chunk(&rings[g], &rings[lead[g]]))
            lead[g]++;
        for (uint32_t k = 0; k < m; k++)
            if (life[(size_t)g * m + k].used)
                ring_life_join(&joined[(size_t)lead[g] * m + k], &life[(size_t)g * m + k]);
    }
    for (uint32_t g = first; g < nrings; g++)
        for (uint32_t k = 0; k < m; k++)
            if (joined[(size_t)g * m + k].used)
                users[n++] = (struct user){joined[(size_t)g * m + k].first, g, k};
    qsort(users, n, sizeof *users, by_first);
    take(a, r, joined, users, n, slots);
    for (uint32_t g = nrings; g-- > first;) /* a ring's lead has a lower index */
        if (one_kind(&rings[first], &rings[g], united))
            memmove(slots + (size_t)g * m, slots + (size_t)lead[g] * m, m * sizeof *slots);
    arena_reset(a, mark);
}

static void take_all(struct arena *a, const struct role *r, const struct ring_life *life, bool united, uint32_t *slots)
{
    for (uint32_t g = 0; g < r->p->nrings; g++) {
        bool done = false;
        for (uint32_t h = 0; h < g; h++)
            done |= one_kind(&r->p->rings[g], &r->p->rings[h], united);
        if (!done)
            take_kind(a, r, g, life, united, slots);
    }
}

/* ---- what a way to take cells comes to ---- */

/* a ring's part of a cell, and its users in order of time */
struct item {
    uint64_t bytes, at;
    uint32_t n;
    const struct ring_life **users;
};

static int by_bytes(const void *x, const void *y)
{
    const struct item *a = x, *b = y;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    if (a->users[0]->first != b->users[0]->first)
        return a->users[0]->first < b->users[0]->first ? -1 : 1;
    return 0;
}

/* Does x end before y starts?  By time alone: while one drains and another fills, both take no more than the larger. */
static bool goes_before(const struct ring_life *x, const struct ring_life *y)
{
    return x->end <= y->start;
}

static bool meet(const struct item *x, const struct item *y)
{
    for (uint32_t i = 0, k = 0; i < x->n && k < y->n;) {
        if (goes_before(x->users[i], y->users[k]))
            i++;
        else if (goes_before(y->users[k], x->users[i]))
            k++;
        else
            return true;
    }
    return false;
}

static uint32_t find_items(struct arena *a, const struct role *r, const struct ring_life *life, const uint32_t *slots,
                           struct item **items)
{
    const struct program *p = r->p;
    uint32_t n = 0, m = r->microbatches;
    uint64_t *bytes = ARENA_ARRAY(a, uint64_t, p->nrings + 1u);
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (p->buffers[b].ring != NONE && !p->buffers[b].host)
            bytes[p->buffers[b].ring] += p->buffers[b].stride;
    *items = ARENA_ARRAY(a, struct item, (size_t)p->nrings * m + 1);
    struct user *users = ARENA_ARRAY(a, struct user, m + 1u);
    for (uint32_t g = 0; g < p->nrings; g++) {
        uint32_t nusers = 0;
        for (uint32_t k = 0; k < m; k++)
            if (life[(size_t)g * m + k].used)
                users[nusers++] = (struct user){life[(size_t)g * m + k].first, g, k};
        qsort(users, nusers, sizeof *users, by_first);
        uint32_t *of = ARENA_ARRAY(a, uint32_t, (size_t)m * p->nrings + 1); /* index + 1 of a cell's item */
        for (uint32_t k = 0; k < nusers; k++) {
            size_t at = (size_t)g * m + users[k].microbatch;
            uint32_t cell = slots[at] / 2;
            if (!of[cell]) {
                (*items)[n] = (struct item){.bytes = bytes[g],
                                            .users = arena_array(a, nusers, sizeof *(*items)->users)};
                of[cell] = ++n;
            }
            struct item *x = &(*items)[of[cell] - 1];
            x->users[x->n++] = &life[at];
        }
    }
    return n;
}

/* Returns the end of all items when they are placed largest first, each at the lowest offset that is free: roughly
 * the size that placement will reach. */
static uint64_t extent_of(struct arena *a, const struct role *r, const struct ring_life *life, const uint32_t *slots)
{
    struct arena_mark mark = arena_mark(a);
    struct item *items, **placed;
    uint32_t n = find_items(a, r, life, slots, &items);
    uint64_t top = 0;
    placed = ARENA_ARRAY(a, struct item *, n + 1u);
    qsort(items, n, sizeof *items, by_bytes);
    for (uint32_t i = 0; i < n; i++) {
        struct item *x = &items[i];
        uint32_t k = 0;
        for (; k < i && placed[k]->at < x->at + x->bytes; k++)
            if (placed[k]->at + placed[k]->bytes > x->at && meet(x, placed[k]))
                x->at = placed[k]->at + placed[k]->bytes;
        for (k = i; k && placed[k - 1]->at > x->at; k--)
            placed[k] = placed[k - 1];
        placed[k] = x;
        top = x->at + x->bytes > top ? x->at + x->bytes : top;
    }
    arena_reset(a, mark);
    return top;
}

/* Numbers a ring's slots: the faces that it has taken, in their order. */
static void number_slots(struct arena *a, struct role *r, uint32_t ring, const struct ring_life *life)
{
    struct arena_mark mark = arena_mark(a);
    uint32_t most = 0, depth = 0;
    size_t first = (size_t)ring * r->microbatches;
    for (uint32_t m = 0; m < r->microbatches; m++)
        most = life[first + m].used && r->slots[first + m] > most ? r->slots[first + m] : most;
    uint32_t *slot = ARENA_ARRAY(a, uint32_t, most + 1u);
    for (uint32_t m = 0; m < r->microbatches; m++)
        if (life[first + m].used)
            slot[r->slots[first + m]] = 1;
    for (uint32_t k = 0; k <= most; k++)
        slot[k] = slot[k] ? depth++ : 0;
    for (uint32_t m = 0; m < r->microbatches; m++)
        r->slots[first + m] = life[first + m].used ? slot[r->slots[first + m]] : 0;
    r->depth[ring] = r->p->rings[ring].depth = depth ? depth : 1;
    arena_reset(a, mark);
}

/* ---- many slots ---- */

/* With many more slots than microbatches in flight, and the same slot for all that a microbatch keeps, placement has
 * the most freedom: what shares bytes once does so in every round.  The number of slots is limited by the time that
 * placement takes. */
enum { MOST_PARTS = 16384, TIMES_IN_FLIGHT = 4 };

/* Can microbatches use slots in turns of `period`? */
static bool takes_turns(const struct ring_life *life, uint32_t microbatches, uint32_t period)
{
    for (uint32_t k = period; k < microbatches; k++)
        if (life[k].used && life[k - period].used && !ends_before(&life[k - period], &life[k]))
            return false;
    return true;
}

/* Assigns slots in turns; false if there would be too many or too few of them, or if chunks would have to take turns
 * with each other. */
static bool take_turns(struct role *r, const struct ring_life *life, uint32_t chunks)
{
    const struct program *p = r->p;
    uint32_t n = 0, m = r->microbatches, in_flight = 1;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        n += p->buffers[b].ring != NONE && is_left(&p->rings[p->buffers[b].ring]);
    uint32_t period = n ? MOST_PARTS / n / p->nroles : 0;
    period = period < m ? period : m;
    for (uint32_t g = 0; g < p->nrings; g++)
        for (uint32_t k = 0; k < m && is_left(&p->rings[g]); k++) {
            uint32_t slot = r->slots[(size_t)g * m + k];
            in_flight = slot / 2 + 1 > in_flight ? slot / 2 + 1 : in_flight;
        }
    if (period < m && (chunks > 1 || period < TIMES_IN_FLIGHT * in_flight))
        return false;
    for (uint32_t g = 0; g < p->nrings; g++)
        if (is_left(&p->rings[g]) && !takes_turns(&life[(size_t)g * m], m, period))
            return false;
    for (uint32_t g = 0; g < p->nrings; g++)
        for (uint32_t k = 0; k < m && is_left(&p->rings[g]); k++)
            r->slots[(size_t)g * m + k] = k % period;
    return true;
}

void lower_take_cells(struct arena *a, struct role *r, const struct ring_life *life)
{
    struct arena_mark mark = arena_mark(a);
    const struct ring *rings = r->p->rings;
    size_t n = (size_t)r->p->nrings * r->microbatches;
    uint32_t *united = ARENA_ARRAY(a, uint32_t, n + 1), chunks = 0, late = 0;
    for (uint32_t g = 0; g < r->p->nrings; g++) {
        chunks += is_named(&rings[g], "act");
        late += is_named(&rings[g], "kept") || is_named(&rings[g], "late");
    }
    take_all(a, r, life, false, r->slots);
    if ((late || chunks > 1) && !take_turns(r, life, chunks) && late) {
        take_all(a, r, life, true, united);
        if (extent_of(a, r, life, united) < extent_of(a, r, life, r->slots))
            memcpy(r->slots, united, n * sizeof *united);
    }
    for (uint32_t g = 0; g < r->p->nrings; g++)
        number_slots(a, r, g, life);
    arena_reset(a, mark);
}
