/* Local search: actions on the critical path change positions.
 *
 * The critical path goes back in time from the end of the slowest rank: along a rank while its actions follow each
 * other without a gap (a block), then to the action whose result the block's first one waited for.  An order gets
 * shorter only if a block changes (Nowicki and Smutnicki, 1996, for job shops): something of the block moves into
 * the gap before it, its last action moves earlier, or something moves after it.  A move is kept if the result is no
 * worse than the current order or than the order some steps ago (late acceptance, Burke and Bykov, 2017).  Each move
 * is measured by a whole run: linear in actions. */

#include "compiler/schedule/auto_private.h"

#include <math.h>
#include <string.h>

#define LATE 100
#define REACH 8 /* most positions beyond a block */

struct block {
    uint32_t rank, first, last;
};
struct local {
    struct auto_search *search;
    struct auto_order *order;
    struct block *blocks;
    uint32_t nblocks, room;
};

/* Finds the action that the one at position *k of rank *r waited for; false: none, or the action belongs to a pair. */
static bool cause(const struct local *x, uint32_t *r, uint32_t *k)
{
    const struct auto_job *job = &x->search->job;
    const struct auto_trace *t = auto_run_trace(x->search->run);
    uint16_t y = x->order->at[*r][*k];
    uint32_t slot = *r * job->v + AUTO_CHUNK(y), i = t->microbatch[*r][*k];
    const struct relay_stage *st = &job->slot[slot];
    const uint32_t *place = t->forward;
    if (AUTO_KIND(y) == RELAY_W || y & AUTO_PAIR)
        return false;
    if (AUTO_KIND(y) == RELAY_F) {
        slot = st->back;
    } else if (st->next != NONE) {
        slot = st->next;
        place = t->backward;
    }
    if (slot == NONE)
        return false;
    *r = job->slot[slot].rank;
    *k = place[(size_t)slot * job->m + i];
    return true;
}

static void trace(struct local *x)
{
    const struct auto_job *job = &x->search->job;
    const struct auto_trace *t = auto_run_trace(x->search->run);
    double longest = -1;
    uint32_t r = 0;
    for (uint32_t q = 0; q < job->p; q++) {
        double s = t->end[q][x->order->n[q] - 1] - (job->skews ? t->start[q][0] : 0);
        if (s > longest) {
            longest = s;
            r = q;
        }
    }
    uint32_t k = x->order->n[r] - 1;
    x->nblocks = 0;
    do {
        uint32_t last = k;
        while (k > 0 && t->start[r][k] <= t->end[r][k - 1] * (1 + 1e-12))
            k--;
        x->blocks[x->nblocks++] = (struct block){r, k, last};
    } while (x->nblocks < x->room && cause(x, &r, &k));
}

static void move(uint16_t *at, uint32_t from, uint32_t to)
{
    uint16_t y = at[from];
    if (from < to)
        memmove(at + from, at + from + 1, (to - from) * sizeof *at);
    else
        memmove(at + to + 1, at + to, (from - to) * sizeof *at);
    at[to] = y;
}

/* May the action move?  Pairs are never split or moved. */
static bool movable(const uint16_t *at, uint32_t from, uint32_t to)
{
    uint32_t front = from < to ? to : to - 1; /* current position of the action that will precede it */
    return !(at[from] & AUTO_PAIR) && !(from && at[from - 1] & AUTO_PAIR) &&
           !((from < to || to > 0) && at[front] & AUTO_PAIR);
}

static void propose(struct local *x, const struct block *b, uint32_t *from, uint32_t *to)
{
    struct auto_search *s = x->search;
    uint32_t length = b->last - b->first + 1, at;
    switch (auto_draw(s, 4)) {
    case 0: /* into the gap before the block */
        *from = b->first + 1 + auto_draw(s, length + REACH);
        *to = b->first;
        return;
    case 1: /* move the last action earlier */
        *from = b->last;
        *to = b->first + auto_draw(s, length);
        return;
    case 2: /* move something after the block */
        *from = b->first + auto_draw(s, length);
        *to = b->last + auto_draw(s, REACH / 2);
        return;
    default: /* move by a few positions */
        *from = b->first + auto_draw(s, length);
        at = *from + auto_draw(s, 2 * REACH);
        *to = at > REACH ? at - REACH : 0;
    }
}

/* A weighted sum of both parts of the score, so that the search can cross plateaus of the first. */
static double height(const struct auto_search *s, const struct auto_score *score)
{
    return isinf(score->longest_s) ? INFINITY : score->longest_s + 0.01 * score->sum_s / s->job.p;
}

void auto_change_order(struct auto_search *s, uint64_t until)
{
    struct local x = {.search = s, .order = s->trial, .room = 4 * s->job.p * s->job.v + 3 * s->job.m};
    uint32_t futile = 0, steps = 0;
    double late[LATE], now;
    if (s->job.p == 1 || auto_optimal(s))
        return;
    x.blocks = ARENA_ARRAY(s->arena, struct block, x.room);
    auto_order_copy(&s->job, x.order, s->best);
    struct auto_score score = auto_run_record(s->run, x.order);
    now = height(s, &score);
    for (uint32_t k = 0; k < LATE; k++)
        late[k] = now;
    trace(&x);
    while (s->spent < until && !auto_optimal(s) && futile < 10000) {
        const struct block *b = &x.blocks[auto_draw(s, x.nblocks)];
        uint16_t *at = x.order->at[b->rank];
        uint32_t r = b->rank, n = x.order->n[r], from, to;
        futile++;
        propose(&x, b, &from, &to);
        if (from >= n || to >= n || from == to || at[from] == at[to] || !movable(at, from, to))
            continue;
        move(at, from, to);
        if (!auto_order_fits(&s->job, x.order, r)) {
            move(at, to, from);
            continue;
        }
        futile = 0;
        auto_offer(s, x.order, &score);
        double h = height(s, &score), *old = &late[steps++ % LATE];
        if (h <= now || h <= *old) {
            now = h;
            auto_run_record(s->run, x.order);
            s->spent += s->nactions;
            trace(&x);
        } else {
            move(at, to, from);
        }
        *old = now;
    }
}
