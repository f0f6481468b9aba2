/* What waits on a rank for actions to come, of a schedule that is a list: inputs that the stage in front has sent, gradients that
 * the stage behind has.
 *
 * Receives have a queue of their own, in the order in which things come while the schedule runs, and each waits for a place: there
 * are as many as are taken at a time in that run (compiler/lower/rings.c).  So something may be there as soon as all that comes
 * before it has a place, and it has.  One gradient at a time is the stage's own (moments_stage.received).  All forwards are taken to
 * be as long, backwards twice that.  Linear in the actions of all ranks, and of the rank's own in its stages. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/moments_private.h"

#include <math.h>
#include <string.h>

/* ---- when actions end ---- */

struct clock {
    const struct decision *d;
    double *end[2]; /* of F, and of B or I, by stage and microbatch; INFINITY: not yet */
};

static double *end_of(const struct clock *x, bool back, uint32_t stage, uint32_t microbatch)
{
    return &x->end[back][(size_t)stage * x->d->microbatches + microbatch];
}

/* when what an action needs is there, besides its own rank's */
static double ready(const struct clock *x, const struct action *a)
{
    if (a->kind == 'F')
        return a->stage ? *end_of(x, false, a->stage - 1, a->microbatch) : 0;
    return a->kind == 'W' || a->stage + 1 == x->d->nstages ? 0 : *end_of(x, true, a->stage + 1, a->microbatch);
}

static void run_all(struct arena *a, struct clock *x)
{
    const struct schedule *s = x->d->listed;
    uint32_t *at = ARENA_ARRAY(a, uint32_t, s->nranks);
    double *now = ARENA_ARRAY(a, double, s->nranks);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t r = 0; r < s->nranks; r++)
            for (; at[r] < s->nactions[r]; at[r]++, more = true) {
                const struct action *t = &s->actions[r][at[r]];
                double from = t->kind == 'O' ? 0 : ready(x, t);
                if (from >= INFINITY)
                    break;
                now[r] = fmax(now[r], from) + (t->kind == 'O' ? 0 : t->kind == 'B' ? 2 : 1);
                if (t->kind != 'W' && t->kind != 'O')
                    *end_of(x, t->kind != 'F', t->stage, t->microbatch) = now[r];
            }
    }
}

/* ---- what comes when ---- */

/* As many places for what comes for a stage's passes as are taken at a time, until its backward pass is over. */
static void find_places(struct arrivals *x)
{
    uint32_t came[2][DECISION_MOST_VPP] = {{0}}, ended[DECISION_MOST_VPP] = {0};
    const struct schedule *s = x->d->listed;
    for (uint32_t k = 0; k < s->nactions[x->rank]; k++) {
        const struct action *t = &s->actions[x->rank][k];
        uint32_t c = t->stage / x->d->pp;
        if (t->kind != 'B' && t->kind != 'I')
            continue;
        double end = x->ends[(size_t)t->stage * x->m + t->microbatch];
        for (int kind = 0; kind < 2; kind++) {
            struct comes *y = &x->comes[kind][c];
            uint32_t *n = &came[kind][c];
            while (y->when && *n < x->m && y->when[*n] < end)
                ++*n;
            y->places = *n > ended[c] + y->places ? *n - ended[c] : y->places;
        }
        ended[c]++;
    }
}

void arrivals_begin(struct arrivals *x, struct arena *a, const struct decision *d, uint32_t rank)
{
    struct clock clock = {.d = d};
    size_t n = (size_t)d->nstages * d->microbatches;
    *x = (struct arrivals){.d = d, .rank = rank, .m = d->microbatches};
    for (int k = 0; k < 2; k++) {
        clock.end[k] = ARENA_ARRAY(a, double, n + 1);
        for (size_t i = 0; i < n; i++)
            clock.end[k][i] = INFINITY;
    }
    run_all(a, &clock);
    x->ends = clock.end[1];
    for (uint32_t c = 0; c < d->vpp; c++) {
        uint32_t s = cost_rank_stage(d, rank, c);
        if (s && cost_stage_rank(d, s - 1) != rank)
            x->comes[0][c].when = end_of(&clock, false, s - 1, 0);
        if (s + 1 < d->nstages && cost_stage_rank(d, s + 1) != rank)
            x->comes[1][c].when = end_of(&clock, true, s + 1, 0);
    }
    find_places(x);
}

/* the next thing to come; NULL: there is none */
static struct comes *next_of(struct arrivals *x, uint32_t *c)
{
    struct comes *next = NULL;
    for (int kind = 0; kind < 2; kind++)
        for (uint32_t k = 0; k < x->d->vpp; k++) {
            struct comes *y = &x->comes[kind][k];
            if (!y->when || y->n == x->m || (next && next->when[next->n] <= y->when[y->n]))
                continue;
            next = y;
            *c = k;
        }
    return next;
}

double arrivals_at(struct arrivals *x, const struct moments_stage *stages, const struct action *a)
{
    double bytes = 0;
    uint32_t c = 0;
    for (struct comes *y = next_of(x, &c); y && y->n < x->ended[c] + y->places; y = next_of(x, &c))
        y->n++;
    x->begun[a->stage / x->d->pp] += a->kind == 'F';
    for (c = 0; c < x->d->vpp; c++) {
        uint32_t inputs = x->comes[0][c].n, gradients = x->comes[1][c].n;
        bytes += inputs > x->begun[c] ? (inputs - x->begun[c]) * stages[c].arrives : 0;
        bytes += gradients > x->ended[c] + 1 ? (gradients - x->ended[c] - 1) * stages[c].sent : 0;
    }
    x->ended[a->stage / x->d->pp] += a->kind == 'B' || a->kind == 'I';
    return bytes;
}
