/* Rules for list scheduling: first a table of rules, among which are the shapes of the known formulas; then the best
 * one is changed at random, and a change that is not worse is kept.
 *
 * What pays off depends on the costs: how many microbatches a rank starts ahead (its window), whether it runs them
 * before pending input gradients, when it runs deferred weight gradients, and, where computing both gradients at
 * once is cheaper, up to which microbatch. */

#include "compiler/schedule/auto_private.h"

#include <string.h>

#define WALKS 4
#define GREEDY 4 /* cost of one list scheduling, in runs of an order */

enum window { WINDOW_ALL, WINDOW_1F1B, WINDOW_EAGER, WINDOW_P, WINDOW_INTERLEAVED, NWINDOWS };

static uint32_t window_of(const struct auto_job *job, enum window w, uint32_t r, uint32_t group)
{
    uint32_t p = job->p, v = job->v;
    switch (w) {
    case WINDOW_ALL:
        return v * job->m;
    case WINDOW_1F1B:
        return v * (p - r);
    case WINDOW_EAGER:
        return v * (2 * (p - r) - 1);
    case WINDOW_P:
        return v * p;
    case WINDOW_INTERLEAVED:
        return 2 * (p - 1 - r) + (v - 1) * group + 1;
    case NWINDOWS:
        break;
    }
    return 1;
}

static bool try_rules(struct auto_search *x, const struct auto_rules *u, struct auto_score *score)
{
    auto_greedy_make(x->greedy, u, x->trial);
    x->spent += GREEDY * x->nactions;
    return auto_offer(x, x->trial, score);
}

static void copy_rules(const struct auto_job *job, struct auto_rules *to, const struct auto_rules *from)
{
    struct auto_rank_rule *own = to->rank;
    *to = *from;
    to->rank = own;
    memcpy(own, from->rank, job->p * sizeof *own);
}

/* Does any stage take longer for I and W than for B? */
static bool fusing_pays(const struct auto_job *job)
{
    for (uint32_t k = 0; k < job->p * job->v; k++)
        if (job->slot[k].takes[RELAY_B] < (job->slot[k].takes[RELAY_I] + job->slot[k].takes[RELAY_W]) * (1 - 1e-9))
            return true;
    return false;
}

/* The n-th rule of the table, from the digits of n, where the most important choice changes fastest; false after the
 * last. */
static bool table_rules(const struct auto_job *job, uint32_t n, bool fuses, struct auto_rules *u)
{
    const uint32_t groups[] = {job->p, 1, 2 * job->p, job->m};
    uint32_t p = job->p, m = job->m, some = job->v > 1 ? 4 : 1;
    enum window w = (enum window)(n % NWINDOWS);
    u->fuse = 0;
    u->spread = u->spread_back = 0;
    u->fuse_entry = fuses && (n /= NWINDOWS) % 5;
    if (fuses) { /* fuse I and W up to the last few microbatches, or in all */
        const uint32_t ends[] = {m, m > p ? m - p : 0, m > 2 * p ? m - 2 * p : 0, m, m > p / 2 ? m - p / 2 : 0};
        u->fuse = n % 5 ? ends[n % 5] : 0;
        n /= 5;
    } else {
        n /= NWINDOWS;
    }
    u->group = groups[n % some];
    u->group_back = groups[n / some % some];
    n /= some * some;
    bool ahead = n & 1, lag = n & 2;
    u->patience = n & 4 ? 1 : 0;
    u->eager = n & 8 ? 1 : 0;
    u->turn = m;
    for (uint32_t r = 0; r < p; r++) {
        uint32_t window = window_of(job, w, r, u->group), all = job->v * m;
        u->rank[r] = (struct auto_rank_rule){window, ahead ? window : 0, lag ? (r ? r : 1) : all, all};
    }
    return n < 16;
}

static uint32_t nudge(struct auto_search *x, uint32_t value, uint32_t most)
{
    uint32_t by = auto_draw(x, 4) ? 1 : 1 + auto_draw(x, 4);
    if (auto_draw(x, 12) == 0)
        return auto_draw(x, 2) ? most : 1;
    if (value >= most) /* from "no limit" to a limit that matters */
        return 1 + auto_draw(x, x->job.p * 2 * x->job.v);
    if (auto_draw(x, 2))
        return value > by ? value - by : 1;
    return value + by < most ? value + by : most;
}

static void change_ranks(struct auto_search *x, struct auto_rules *u, uint32_t what)
{
    uint32_t p = x->job.p, most = x->job.v * x->job.m;
    uint32_t first = auto_draw(x, p), end = auto_draw(x, 3) ? first + 1 : first + 1 + auto_draw(x, p - first);
    for (uint32_t r = first; r < end; r++) {
        struct auto_rank_rule *k = &u->rank[r];
        if (what < 3)
            k->window = nudge(x, k->window, most);
        else if (what < 5)
            k->ahead = nudge(x, k->ahead, most);
        else if (what < 7)
            k->lag = nudge(x, k->lag, most);
        else
            k->late = nudge(x, k->late, most);
    }
}

static void change_rules(struct auto_search *x, struct auto_rules *u, bool fuses)
{
    const uint32_t groups[] = {x->job.p, 1, 2 * x->job.p, x->job.m};
    for (uint32_t k = 1 + auto_draw(x, 3); k-- > 0;) {
        uint32_t what = auto_draw(x, 15);
        if (what < 8)
            change_ranks(x, u, what);
        else if (what == 8)
            u->patience = auto_draw(x, 5) / 4.0;
        else if (what == 9)
            u->eager = auto_draw(x, 5) / 4.0;
        else if (what == 10)
            u->turn = 1 + auto_draw(x, x->job.m);
        else if (what == 11 && fuses)
            u->fuse = auto_draw(x, x->job.m + 1);
        else if (x->job.v > 1 && what > 12)
            *(auto_draw(x, 2) ? &u->spread : &u->spread_back) = auto_draw(x, 3) ? 1 + auto_draw(x, 2 * x->job.p) : 0;
        else if (x->job.v > 1)
            *(auto_draw(x, 2) ? &u->group : &u->group_back) = auto_draw(x, 2) ? groups[auto_draw(x, 4)]
                                                                              : 1 + auto_draw(x, x->job.m);
    }
}

static struct auto_rules *new_rules(struct auto_search *x)
{
    struct auto_rules *u = ARENA_NEW(x->arena, struct auto_rules);
    *u = (struct auto_rules){.rank = ARENA_ARRAY(x->arena, struct auto_rank_rule, x->job.p)};
    return u;
}

/* Random changes, starting from the rules `first`, whose score is `least`. */
static void walk(struct auto_search *x, const struct auto_rules *first, struct auto_score least, bool fuses,
                 uint64_t until)
{
    struct auto_rules *u = new_rules(x), *best = new_rules(x);
    struct auto_score score;
    copy_rules(&x->job, best, first);
    while (x->spent < until && !auto_optimal(x)) {
        copy_rules(&x->job, u, best);
        change_rules(x, u, fuses);
        try_rules(x, u, &score);
        if (auto_better(&least, &score))
            continue;
        least = score;
        copy_rules(&x->job, best, u);
    }
}

void auto_try_rules(struct auto_search *x, uint64_t until)
{
    struct auto_rules *u = new_rules(x), *best = new_rules(x);
    struct auto_score score, least = {0};
    bool fuses = fusing_pays(&x->job);
    /* the formulas may have spent it all */
    uint64_t half = x->spent < until ? x->spent + (until - x->spent) / 2 : until;
    for (uint32_t n = 0; table_rules(&x->job, n, fuses, u) && !auto_optimal(x) && (n == 0 || x->spent < half); n++) {
        try_rules(x, u, &score);
        if (n == 0 || auto_better(&score, &least)) {
            least = score;
            copy_rules(&x->job, best, u);
        }
    }
    for (uint64_t k = WALKS; k-- > 0 && x->spent < until;)
        walk(x, best, least, fuses, until - (until - x->spent) / (k + 1) * k);
}
