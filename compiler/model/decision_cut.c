/* The cut of layers into stages.
 *
 * It minimises the heaviest stage exactly, then the sum of squares (in closed form for equal layers, else by dynamic
 * programming over prefixes, O(stages * layers^2)), then puts fewer layers in earlier stages, because
 * those keep more microbatches in flight under 1F1B. */

#include "compiler/model/decision.h"

#include <math.h>
#include <string.h>

/* Latest plan of layers into stages; prefix[i] = cost of the first i layers. */
struct cut {
    uint32_t n, stages;
    const double *prefix;
    double embed, head;
};

/* may a cut with stages up to `most` have its s-th end behind i layers? */
static bool may_end(const struct cut *c, uint32_t s, uint32_t i, double most)
{
    double before = c->prefix[i] + c->embed, after = c->prefix[c->n] - c->prefix[i] + c->head;
    most *= 1 + 1e-9;
    return s + 1 == c->stages ? before + c->head <= c->stages * most
                              : before <= (s + 1) * most && after <= (c->stages - 1 - s) * most;
}

/* The heaviest stage of the cut that puts as many layers as possible into earlier stages, none of which weighs more
 * than `limit`; INFINITY: one does. */
static double fill_stages(const struct cut *c, double limit)
{
    double heaviest = 0;
    for (uint32_t s = 0, i = 0, first; s < c->stages; s++) {
        double extra = (s == 0 ? c->embed : 0) + (s + 1 == c->stages ? c->head : 0);
        first = i++;
        i = s + 1 == c->stages ? c->n : i;
        while (c->n - i > c->stages - 1 - s && c->prefix[i + 1] - c->prefix[first] + extra <= limit)
            i++;
        double own = c->prefix[i] - c->prefix[first] + extra;
        if (own > limit)
            return INFINITY;
        heaviest = own > heaviest ? own : heaviest;
    }
    return heaviest;
}

/* The least weight that the heaviest stage of a cut can have: a lighter one is tried until there is none.  Stages
 * that are filled until they have their share weigh no more than it and a layer. */
static double least_heavy(const struct cut *c)
{
    double largest = 0, least = INFINITY;
    for (uint32_t i = 0; i < c->n; i++)
        largest = fmax(largest, c->prefix[i + 1] - c->prefix[i]);
    double own = fill_stages(c, (c->prefix[c->n] + c->embed + c->head) / c->stages + largest + c->embed + c->head);
    for (own = isinf(own) ? fill_stages(c, INFINITY) : own; own < least; own = fill_stages(c, nextafter(least, 0)))
        least = own;
    return least;
}

/* The first i layers in s + 1 stages; best: of fewer layers in s stages, INFINITY where there is no such cut.  Stages
 * grow from one j to the next, so that a heavier one than `limit` ends the search.  Of equals the smaller j. */
static double least_squares(const struct cut *c, uint32_t s, uint32_t i, double limit, const double *best,
                            uint32_t *from)
{
    double embed = s == 0 ? c->embed : 0, head = s + 1 == c->stages ? c->head : 0, least = INFINITY;
    for (uint32_t j = i; j-- > s;) {
        double cost = c->prefix[i] - c->prefix[j] + embed + head;
        if (cost > limit)
            break;
        if (isinf(best[j]))
            continue;
        double v = best[j] + cost * cost;
        if (v <= least * (1 + 1e-12)) {
            least = v;
            *from = j;
        }
    }
    return least;
}

/* The cut with the least sum of squares of which no stage is heavier than `limit`; some cut has none heavier than
 * `most`. */
static void cut_solve(struct arena *a, const struct cut *c, double limit, double most, uint32_t *from)
{
    uint32_t n = c->n;
    double *best = ARENA_ARRAY(a, double, n + 1), *next = ARENA_ARRAY(a, double, n + 1);
    for (uint32_t i = 0; i <= n; i++)
        best[i] = i ? INFINITY : 0;
    for (uint32_t s = 0; s < c->stages; s++) {
        for (uint32_t i = 0; i <= n; i++)
            next[i] = may_end(c, s, i, most) ? least_squares(c, s, i, limit, best, &from[(size_t)s * (n + 1) + i])
                                             : INFINITY;
        double *swap = best;
        best = next;
        next = swap;
    }
}

/* cost of stage s beyond its layers */
static double stage_extra(uint32_t s, uint32_t stages, double embed, double head)
{
    return (s == 0 ? embed : 0) + (s + 1 == stages ? head : 0);
}

/* layers of cost t that stage s may hold under the limit, at least one */
static uint64_t stage_room(double limit, double extra, double t)
{
    double room = floor((limit - extra) / t * (1 + 1e-12) + 1e-9);
    return room < 1 ? 1 : (uint64_t)room;
}

static bool limit_holds(uint32_t n, uint32_t stages, double limit, double t, double embed, double head)
{
    uint64_t room = stage_room(limit, embed, t) + stage_room(limit, head, t) + (stages - 2) * stage_room(limit, 0, t);
    return room >= n;
}

/* The same cut where all layers cost t and there are two stages or more, without dynamic programming: the
 * least limit is the cost of some stage with some number of layers; what the limit leaves room for beyond n
 * is taken from the heaviest stages, earlier ones first.  O(n + stages). */
static void cut_even(uint32_t n, uint32_t stages, double t, double embed, double head, uint32_t *count)
{
    const double extra[] = {0, embed, head};
    double limit = INFINITY, least = t + fmax(embed, head);
    for (int i = 0; i < 3; i++) { /* of each kind of stage the fewest layers whose cost is a limit that holds */
        uint32_t low = 0, high = n + 1;
        while (low + 1 < high) {
            uint32_t k = low + (high - low) / 2;
            double candidate = extra[i] + k * t;
            if (candidate >= least * (1 - 1e-12) && limit_holds(n, stages, candidate, t, embed, head))
                high = k;
            else
                low = k;
        }
        if (high <= n)
            limit = fmin(limit, extra[i] + high * t);
    }
    uint64_t room = 0;
    for (uint32_t s = 0; s < stages; s++) {
        uint64_t own = stage_room(limit, stage_extra(s, stages, embed, head), t);
        count[s] = own < n ? (uint32_t)own : n;
        room += count[s];
    }
    /* stages between the first and the last are alike: those before `turn` have given a layer more than the others */
    for (uint32_t turn = 1; room > n; room--) {
        const uint32_t ask[] = {0, turn, stages - 1};
        uint32_t heaviest = NONE;
        double most = -1;
        for (int i = 0; i < 3; i++) {
            uint32_t s = ask[i];
            double cost = count[s] * t + stage_extra(s, stages, embed, head);
            if (count[s] > 1 && cost > most * (1 + 1e-12)) {
                most = cost;
                heaviest = s;
            }
        }
        count[heaviest]--;
        turn = heaviest != turn || turn == 0 ? turn : turn + 1 < stages - 1 ? turn + 1 : stages > 2;
    }
}

/* beyond these sizes, and with fewer layers than stages, an even cut by count has to do */
static void cut_uneven(struct arena *a, uint32_t n, uint32_t stages, const double *cost, double embed, double head,
                       uint32_t *count)
{
    bool solve = cost && stages <= n && n <= 4096 && (uint64_t)n * n * stages <= 50u * 1000 * 1000;
    uint32_t *from = NULL, end = n;
    if (solve) {
        double *prefix = ARENA_ARRAY(a, double, n + 1);
        for (uint32_t i = 0; i < n; i++)
            prefix[i + 1] = prefix[i] + cost[i];
        struct cut c = {n, stages, prefix, embed, head};
        from = ARENA_ARRAY(a, uint32_t, (size_t)stages * (n + 1));
        double most = least_heavy(&c);
        cut_solve(a, &c, most * (1 + 1e-9), most, from);
    }
    for (uint32_t s = stages; s-- > 0;) {
        uint32_t first = from ? from[(size_t)s * (n + 1) + end] : (uint32_t)((uint64_t)n * s / stages);
        count[s] = end - first;
        end = first;
    }
}

/* Loads of the ranks under a cut into several stages each: the most, and the sum of squares. */
struct loads {
    double most, squares;
};

static struct loads rank_loads(const struct decision *d, const uint32_t *count, const double *cost, double embed,
                               double head, double *load)
{
    uint32_t stages = d->pp * d->vpp;
    bool folds = decision_folds(d);
    struct loads sum = {0};
    for (uint32_t r = 0; r < d->pp; r++)
        load[r] = 0;
    for (uint32_t s = 0, next = 0; s < stages; s++) {
        double own = stage_extra(s, stages, embed, head);
        for (uint32_t k = 0; k < count[s]; k++, next++)
            own += cost ? cost[next] : 1;
        load[folds && s >= d->pp ? stages - 1 - s : s % d->pp] += own;
    }
    for (uint32_t r = 0; r < d->pp; r++) {
        sum.most = fmax(sum.most, load[r]);
        sum.squares += load[r] * load[r];
    }
    return sum;
}

/* layers that a stage can give away: one stays unless it has the embedding or the head */
static uint32_t stage_spare(const struct decision *d, const uint32_t *count, uint32_t s)
{
    uint32_t stays = s > 0 && s + 1 < d->pp * d->vpp ? 1 : 0;
    return count[s] > stays ? count[s] - stays : 0;
}

/* A rank's stage that can give away most layers, or has fewest. */
static uint32_t rank_stage(const struct decision *d, const uint32_t *count, uint32_t r, bool most)
{
    uint32_t found = r;
    for (uint32_t j = 1; j < d->vpp; j++) {
        uint32_t s = decision_folds(d) ? 2 * d->pp - 1 - r : r + j * d->pp;
        if (most ? stage_spare(d, count, s) > stage_spare(d, count, found) : count[s] < count[found])
            found = s;
    }
    return found;
}

/* Stages of even cost make uneven ranks where one rank has the head beside a stage of layers: layers move
 * from the fullest rank to the emptiest, all stages between shifting along, as long as that helps. */
static void balance_ranks(struct arena *a, const struct decision *d, uint32_t *count, const double *cost, double embed,
                          double head)
{
    double *load = ARENA_ARRAY(a, double, d->pp);
    struct loads now = rank_loads(d, count, cost, embed, head, load);
    for (uint32_t moves = 0; moves < 2 * d->pp; moves++) {
        uint32_t full = 0, empty = 0;
        for (uint32_t r = 1; r < d->pp; r++) {
            full = load[r] > load[full] ? r : full;
            empty = load[r] < load[empty] ? r : empty;
        }
        uint32_t from = rank_stage(d, count, full, true), to = rank_stage(d, count, empty, false);
        if (stage_spare(d, count, from) == 0)
            return;
        count[from]--;
        count[to]++;
        struct loads then = rank_loads(d, count, cost, embed, head, load);
        if (then.most > now.most * (1 + 1e-12) || then.squares >= now.squares * (1 - 1e-12)) {
            count[from]++;
            count[to]--;
            return;
        }
        now = then;
    }
}

uint32_t *decision_count_layers(struct arena *a, uint32_t stages, uint32_t nlayers, const double *cost, double embed,
                                double head)
{
    uint32_t *count = ARENA_ARRAY(a, uint32_t, stages);
    struct arena_mark mark = arena_mark(a);
    bool even = stages > 1 && stages <= nlayers;
    for (uint32_t i = 1; even && cost && i < nlayers; i++)
        even = cost[i] == cost[0];
    double t = cost && nlayers ? cost[0] : 1;
    if (even && t > 0)
        cut_even(nlayers, stages, t, embed, head, count);
    else
        cut_uneven(a, nlayers, stages, cost, embed, head, count);
    arena_reset(a, mark);
    return count;
}

void decision_cut_by(struct arena *a, struct decision *d, uint32_t nlayers, const double *cost, double embed,
                     double head, const uint32_t *layers)
{
    uint32_t stages = d->pp * d->vpp;
    d->nstages = stages;
    d->stages = ARENA_ARRAY(a, struct stage, stages);
    struct arena_mark mark = arena_mark(a);
    uint32_t *count = ARENA_ARRAY(a, uint32_t, stages);
    memcpy(count, layers, stages * sizeof *count);
    if (d->vpp > 1 && stages <= nlayers)
        balance_ranks(a, d, count, cost, embed, head);
    for (uint32_t s = 0, first = 0; s < stages; s++) {
        d->stages[s] = (struct stage){first, count[s], s == 0, s + 1 == stages, 0};
        first += count[s];
    }
    arena_reset(a, mark);
}

void decision_cut(struct arena *a, struct decision *d, uint32_t nlayers, const double *cost, double embed, double head)
{
    decision_cut_by(a, d, nlayers, cost, embed, head,
                    decision_count_layers(a, d->pp * d->vpp, nlayers, cost, embed, head));
}
