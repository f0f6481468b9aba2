/* How long a rank must idle because of what the other ranks can feed it.
 *
 * Microbatches are alike, so on each stage the k-th forward and the k-th input gradient may be taken for microbatch
 * k's: every microbatch goes through a line of positions, the forwards of all stages and then the input gradients
 * back, and several positions are on one rank.  A state is how many jobs the rank has done at each of its positions.
 * A state cannot be reached before everything that it depends on is done on every rank, each of which is taken as
 * one machine whose jobs have heads and tails (Jackson's preemptive schedule; Carlier, 1982); the tails take into
 * account in which order the last jobs of the state were done.  What remains of that time after the rank's own jobs
 * is idle, where weight gradients count as done as soon as they may be.
 *
 * A schedule passes through states one job at a time, and its rank has idled at least as long as any of them
 * requires.  The least of this maximum over all paths of states to the end is the bound.  States are visited best
 * first, so the search may stop at any time: all unvisited states require at least as much. */

#include "compiler/schedule/auto_feed.h"
#include "compiler/support/real.h"

#include "compiler/support/heap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_OWN 8   /* most positions of the rank */
#define MOST_LAST 3  /* how many of a state's last jobs have a known order */
#define STATES 400u  /* most states visited */
#define MOST_ROOM 64 /* bits of a state's key, which must stay below this */

struct state {
    double idle_s;
    uint32_t depth;
    uint16_t done[MOST_OWN];
    uint8_t last[MOST_LAST]; /* positions (index into `own`) of the last jobs, the latest first */
};
/* Longest path in seconds from the end of a job at one position to the start of a job at a later position: for the
 * same microbatch, and what each microbatch between the two adds. */
struct way {
    double path_s, each_s;
};
struct feed {
    const struct auto_line *line;
    uint32_t own[MOST_OWN], nown;
    struct way *ways; /* from position y to own[j]: at j * n + y */
    struct auto_timed *jobs, *waiting;
    struct state *heap;
    uint32_t nheap;
    uint64_t *seen; /* keys + 1; 0: free */
    uint64_t mask;
};

/* --- states in the order of what they ask --- */

static bool before(const struct state *x, const struct state *y)
{
    return x->idle_s < y->idle_s || (x->idle_s == y->idle_s && x->depth > y->depth);
}

HEAP(states, struct state, before)

/* Marks a state as visited; true if it was not yet. */
static bool visit(struct feed *f, const struct state *x)
{
    uint64_t key = 0;
    for (uint32_t j = 0; j < f->nown; j++)
        key = key * (f->line->m + 1) + x->done[j];
    for (uint32_t i = 0; i < MOST_LAST; i++)
        key = key * MOST_OWN + x->last[i];
    for (uint64_t h = (key * 0x9e3779b97f4a7c15u) >> 20;; h++) {
        uint64_t *at = &f->seen[h & f->mask];
        if (*at == key + 1)
            return false;
        if (!*at) {
            *at = key + 1;
            return true;
        }
    }
}

/* --- what a state asks --- */

/* Seconds from the end of microbatch k at position y to the end of the state's last job. */
static double tail_s(const struct feed *f, const struct state *x, uint32_t y, uint32_t k)
{
    const struct auto_line *l = f->line;
    uint16_t done[MOST_OWN];
    double tail = 0, behind = 0; /* behind: seconds of the last jobs counted so far */
    memcpy(done, x->done, sizeof done);
    for (uint32_t i = 0; i < MOST_LAST && i < x->depth; i++) {
        uint32_t j = x->last[i], own = f->own[j], last = --done[j];
        const struct way *w = &f->ways[j * l->n + y];
        if (own == y && last == k)
            return fmax(tail, behind);
        if (own >= y && k <= last)
            tail = fmax(tail, behind + w->path_s + (last - k) * w->each_s + l->takes[own]);
        behind += l->takes[own];
    }
    for (uint32_t j = f->nown; j-- > 0 && f->own[j] >= y;) {
        const struct way *w = &f->ways[j * l->n + y];
        if (k >= done[j])
            continue;
        bool itself = f->own[j] == y && k + 1 == done[j];
        double way = itself ? 0 : w->path_s + (done[j] - 1 - k) * w->each_s + l->takes[f->own[j]];
        tail = fmax(tail, behind + way);
    }
    return tail;
}

static int compare_heads(const void *x, const void *y)
{
    const struct auto_timed *a = x, *b = y;
    return (a->head_s > b->head_s) - (a->head_s < b->head_s);
}

static bool longer_tail(const struct auto_timed *x, const struct auto_timed *y)
{
    return x->tail_s > y->tail_s;
}

HEAP(tails, struct auto_timed, longer_tail)

double auto_machine_s(struct auto_timed *jobs, uint32_t n, struct auto_timed *waiting)
{
    double now = 0, all = 0;
    qsort(jobs, n, sizeof *jobs, compare_heads);
    for (uint32_t next = 0, nwaiting = 0; next < n || nwaiting;) {
        if (!nwaiting)
            now = fmax(now, jobs[next].head_s);
        while (next < n && jobs[next].head_s <= now)
            tails_push(waiting, nwaiting++, jobs[next++]);
        double until = next < n ? jobs[next].head_s : INFINITY;
        if (now + waiting->takes_s <= until) {
            now += waiting->takes_s;
            all = fmax(all, now + waiting->tail_s);
            tails_pop(waiting, nwaiting--);
        } else {
            waiting->takes_s -= until - now;
            now = until;
        }
    }
    return all;
}

static double state_idle_s(struct feed *f, const struct state *x)
{
    const struct auto_line *l = f->line;
    double all = 0, own = 0;
    for (uint32_t q = 0; q < l->p; q++) {
        uint32_t n = 0, j = 0;
        for (uint32_t y = 0; y < l->n; y++) {
            j += j < f->nown && f->own[j] < y; /* the rank's next position, which depends on position y */
            for (uint32_t k = 0; l->rank[y] == q && j < f->nown && k < x->done[j]; k++)
                f->jobs[n++] = (struct auto_timed){l->head[y][k], l->takes[y], tail_s(f, x, y, k)};
        }
        all = fmax(all, auto_machine_s(f->jobs, n, f->waiting));
    }
    for (uint32_t j = 0; j < f->nown; j++)
        own += x->done[j] * (l->takes[f->own[j]] + l->weight[f->own[j]]);
    return all - own;
}

/* --- the search --- */

static void find_ways(const struct auto_line *l, uint32_t x, struct way *ways)
{
    double path = 0, each = l->takes[x];
    ways[x] = (struct way){-each, each}; /* the k-th job after one at x starts k - 1 jobs later */
    for (uint32_t y = x; y-- > 0;) {
        path += l->gap[y];
        each = fmax(each, fmax(l->gap[y], l->takes[y]));
        ways[y] = (struct way){path, each};
        path += l->takes[y];
    }
}

static void feed_init(struct arena *a, const struct auto_line *l, uint32_t rank, struct feed *f)
{
    size_t room = (size_t)(STATES + 1) * MOST_OWN;
    *f = (struct feed){.line = l};
    for (uint32_t x = 0; x < l->n; x++)
        if (l->rank[x] == rank)
            f->own[f->nown++] = x;
    f->jobs = ARENA_ARRAY(a, struct auto_timed, (size_t)f->nown * l->m);
    f->waiting = ARENA_ARRAY(a, struct auto_timed, (size_t)f->nown * l->m + 1);
    f->ways = ARENA_ARRAY(a, struct way, (size_t)f->nown * l->n);
    for (uint32_t j = 0; j < f->nown; j++)
        find_ways(l, f->own[j], f->ways + (size_t)j * l->n);
    f->heap = ARENA_ARRAY(a, struct state, room);
    for (f->mask = 1; f->mask < 4 * STATES;)
        f->mask *= 2;
    f->seen = ARENA_ARRAY(a, uint64_t, f->mask--);
    memset(f->seen, 0, (f->mask + 1) * sizeof *f->seen);
}

static void push_next(struct feed *f, const struct state *x, uint32_t j)
{
    struct state y = *x;
    y.done[j]++;
    y.depth++;
    memmove(y.last + 1, y.last, sizeof y.last - sizeof *y.last);
    y.last[0] = (uint8_t)j;
    y.idle_s = fmax(x->idle_s, state_idle_s(f, &y));
    states_push(f->heap, f->nheap++, y);
}

double auto_feed_idle_s(struct arena *a, const struct auto_line *l, uint32_t rank)
{
    struct state x = {0};
    struct feed f;
    uint32_t positions = l->n / l->p;
    if (positions > MOST_OWN || positions * real_log2(l->m + 1) + 3 * MOST_LAST >= MOST_ROOM)
        return 0;
    struct arena_mark mark = arena_mark(a);
    feed_init(a, l, rank, &f);
    states_push(f.heap, f.nheap++, x);
    for (uint32_t n = 0; n < STATES;) {
        x = states_pop(f.heap, f.nheap--);
        if (x.done[f.nown - 1] == l->m)
            break;
        if (!visit(&f, &x))
            continue;
        n++;
        for (uint32_t j = 0; j < f.nown; j++)
            if (x.done[j] < (j ? x.done[j - 1] : l->m))
                push_next(&f, &x, j);
    }
    arena_reset(a, mark);
    return x.idle_s;
}
