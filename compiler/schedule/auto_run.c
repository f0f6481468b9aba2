/* Runs of orders for schedule_auto(): what simulate_actions() computes, on strings of (kind, chunk) and without what
 * only reports need, with a bitwise equal result; and memory along an order. */

#include "compiler/schedule/auto_private.h"

#include <math.h>
#include <string.h>

struct auto_run {
    const struct auto_job *job;
    struct relay *relay;
    uint32_t *f, *i;              /* actions done, by slot */
    double *start, *end, *before; /* by rank */
    uint32_t *position;
    bool records;
    struct auto_trace trace;
};

struct auto_order *auto_order_new(struct arena *a, const struct auto_job *job)
{
    struct auto_order *o = ARENA_NEW(a, struct auto_order);
    o->n = ARENA_ARRAY(a, uint32_t, job->p);
    o->at = ARENA_ARRAY(a, uint16_t *, job->p);
    for (uint32_t r = 0; r < job->p; r++)
        o->at[r] = ARENA_ARRAY(a, uint16_t, (size_t)3 * job->v * job->m + 1);
    return o;
}

void auto_order_copy(const struct auto_job *job, struct auto_order *to, const struct auto_order *from)
{
    memcpy(to->n, from->n, job->p * sizeof *to->n);
    for (uint32_t r = 0; r < job->p; r++)
        memcpy(to->at[r], from->at[r], from->n[r] * sizeof *to->at[r]);
}

struct auto_run *auto_run_new(struct arena *a, const struct auto_job *job)
{
    struct auto_run *run = ARENA_NEW(a, struct auto_run);
    uint32_t slots = job->p * job->v;
    run->job = job;
    run->relay = relay_new(a, job->slot, slots, job->p, job->m, job->pairs);
    run->f = ARENA_ARRAY(a, uint32_t, slots);
    run->i = ARENA_ARRAY(a, uint32_t, slots);
    run->start = ARENA_ARRAY(a, double, job->p);
    run->end = ARENA_ARRAY(a, double, job->p);
    run->before = ARENA_ARRAY(a, double, job->p);
    run->position = ARENA_ARRAY(a, uint32_t, job->p);
    struct auto_trace *t = &run->trace;
    t->start = ARENA_ARRAY(a, double *, job->p);
    t->end = ARENA_ARRAY(a, double *, job->p);
    t->microbatch = ARENA_ARRAY(a, uint32_t *, job->p);
    for (uint32_t r = 0; r < job->p; r++) {
        t->start[r] = ARENA_ARRAY(a, double, (size_t)3 * job->v * job->m);
        t->end[r] = ARENA_ARRAY(a, double, (size_t)3 * job->v * job->m);
        t->microbatch[r] = ARENA_ARRAY(a, uint32_t, (size_t)3 * job->v * job->m);
    }
    t->forward = ARENA_ARRAY(a, uint32_t, (size_t)slots * job->m);
    t->backward = ARENA_ARRAY(a, uint32_t, (size_t)slots * job->m);
    return run;
}

static void end_forward(struct auto_run *run, uint32_t slot, double end)
{
    uint32_t to = relay_end_forward(run->relay, slot, run->f[slot]++, end);
    if (to != NONE)
        relay_wake(run->relay, run->job->slot[to].rank);
}

static void end_backward(struct auto_run *run, uint32_t slot, double end)
{
    uint32_t to = relay_end_backward(run->relay, slot, run->i[slot]++, end);
    if (to != NONE)
        relay_wake(run->relay, run->job->slot[to].rank);
}

/* runs a pair; false where an input has not been sent yet */
static bool run_pair(struct auto_run *run, uint32_t r, uint32_t f, uint32_t b)
{
    double x = relay_forward_s(run->relay, f, run->f[f]), y = relay_backward_s(run->relay, b, run->i[b]);
    if (x < 0 || y < 0)
        return false;
    struct cost_pair p = relay_pair(run->relay, &run->job->slot[f], &run->job->slot[b]);
    double start = relay_later(run->end[r], relay_later(x, y));
    run->end[r] = start + p.end_s;
    end_forward(run, f, start + p.forward_s);
    end_backward(run, b, start + p.backward_s);
    return true;
}

static bool run_action(struct auto_run *run, uint32_t r, uint32_t slot, enum relay_kind kind)
{
    double ready = kind == RELAY_F   ? relay_forward_s(run->relay, slot, run->f[slot])
                   : kind == RELAY_W ? 0
                                     : relay_backward_s(run->relay, slot, run->i[slot]);
    if (ready < 0)
        return false;
    double end = run->end[r] = relay_later(run->end[r], ready) + run->job->slot[slot].takes[kind];
    if (kind == RELAY_F)
        end_forward(run, slot, end);
    else if (kind != RELAY_W)
        end_backward(run, slot, end);
    return true;
}

static void record(struct auto_run *run, uint32_t r, uint32_t k, uint16_t x, double start)
{
    struct auto_trace *t = &run->trace;
    uint32_t slot = r * run->job->v + AUTO_CHUNK(x);
    size_t first = (size_t)slot * run->job->m;
    t->start[r][k] = start;
    t->end[r][k] = run->end[r];
    if (AUTO_KIND(x) == RELAY_F) {
        t->microbatch[r][k] = run->f[slot] - 1;
        t->forward[first + run->f[slot] - 1] = k;
    } else if (AUTO_KIND(x) != RELAY_W) {
        t->microbatch[r][k] = run->i[slot] - 1;
        t->backward[first + run->i[slot] - 1] = k;
    }
}

static void advance(struct auto_run *run, const struct auto_order *order, uint32_t r)
{
    const uint16_t *all = order->at[r];
    const struct relay_stage *st = &run->job->slot[r * run->job->v];
    uint32_t k = run->position[r], n = order->n[r], first = r * run->job->v;
    if (k == 0) { /* a rank's first action is a forward */
        run->start[r] = relay_forward_s(run->relay, first, 0);
        if (run->start[r] < 0)
            return;
        run->start[r] = relay_later(run->start[r], run->end[r]);
    }
    for (; k < n; k++) {
        uint16_t x = all[k];
        uint32_t c = AUTO_CHUNK(x);
        bool pair = x & AUTO_PAIR;
        bool ran = pair ? run_pair(run, r, first + c, first + AUTO_CHUNK(all[k + 1]))
                        : run_action(run, r, first + c, AUTO_KIND(x));
        if (!ran)
            break;
        if (run->records) {
            double takes = pair ? relay_pair(run->relay, &st[c], &st[AUTO_CHUNK(all[k + 1])]).end_s
                                : st[c].takes[AUTO_KIND(x)];
            record(run, r, k, x, run->end[r] - takes);
            if (pair)
                record(run, r, k + 1, all[k + 1], run->end[r] - takes);
        }
        k += pair;
    }
    run->position[r] = k;
}

/* Runs a step from the ranks' current times; false if it deadlocks. */
static bool run_step(struct auto_run *run, const struct auto_order *order)
{
    const struct auto_job *job = run->job;
    uint32_t slots = job->p * job->v;
    memset(run->f, 0, slots * sizeof *run->f);
    memset(run->i, 0, slots * sizeof *run->i);
    relay_begin(run->relay);
    for (uint32_t r = job->p; r-- > 0;) {
        run->position[r] = 0;
        relay_wake(run->relay, r);
    }
    for (uint32_t r; relay_next_rank(run->relay, &r);)
        advance(run, order, r);
    for (uint32_t r = 0; r < job->p; r++)
        if (run->position[r] < order->n[r])
            return false;
    return true;
}

static bool run_first(struct auto_run *run, const struct auto_order *order)
{
    memset(run->end, 0, run->job->p * sizeof *run->end);
    relay_free_channels(run->relay);
    return run_step(run, order);
}

struct auto_score auto_run_order(struct auto_run *run, const struct auto_order *order)
{
    const struct auto_job *job = run->job;
    struct auto_score score = {0};
    if (!run_first(run, order))
        return (struct auto_score){INFINITY, INFINITY};
    for (uint32_t r = 0; r < job->p; r++) {
        double s = run->end[r] - (job->skews ? run->start[r] : 0);
        score.longest_s = relay_later(score.longest_s, s);
        score.sum_s += s;
    }
    return score;
}

/* where steps are skewed: the longest time on any rank from the end of one step to the end of the next */
double auto_run_step_s(struct auto_run *run, const struct auto_order *order)
{
    const struct auto_job *job = run->job;
    double longest = 0;
    if (!run_first(run, order))
        return INFINITY;
    double *before = run->before;
    memset(before, 0, job->p * sizeof *before);
    if (job->skews) {
        memcpy(before, run->end, job->p * sizeof *before);
        run_step(run, order);
    }
    for (uint32_t r = 0; r < job->p; r++)
        longest = relay_later(longest, run->end[r] - before[r]);
    return longest;
}

struct auto_score auto_run_record(struct auto_run *run, const struct auto_order *order)
{
    run->records = true;
    struct auto_score s = auto_run_order(run, order);
    run->records = false;
    return s;
}

const struct auto_trace *auto_run_trace(const struct auto_run *run)
{
    return &run->trace;
}

bool auto_better(const struct auto_score *x, const struct auto_score *y)
{
    if (isinf(y->longest_s))
        return !isinf(x->longest_s);
    if (fabs(x->longest_s - y->longest_s) > 1e-12 * y->longest_s)
        return x->longest_s < y->longest_s;
    return x->sum_s < y->sum_s * (1 - 1e-12);
}

bool auto_order_fits(const struct auto_job *job, const struct auto_order *order, uint32_t r)
{
    uint32_t f[DECISION_MOST_VPP] = {0}, i[DECISION_MOST_VPP] = {0}, w[DECISION_MOST_VPP] = {0};
    double live = 0, most = job->most ? job->most[r] * (1 + 1e-9) : INFINITY;
    for (uint32_t k = 0; k < order->n[r]; k++) {
        uint32_t c = AUTO_CHUNK(order->at[r][k]);
        double keep = job->slot[r * job->v + c].keep, later_bytes = job->slot[r * job->v + c].late;
        switch (AUTO_KIND(order->at[r][k])) {
        case RELAY_F:
            f[c]++;
            live += keep;
            break;
        case RELAY_I:
            i[c]++;
            live += later_bytes - keep;
            break;
        case RELAY_W:
            w[c]++;
            live -= later_bytes;
            break;
        case RELAY_B:
            i[c]++;
            w[c]++;
            live -= keep;
            break;
        case RELAY_KINDS:
            break;
        }
        if (i[c] > f[c] || w[c] > i[c] || live > most)
            return false;
    }
    return true;
}

void auto_order_of(const struct auto_job *job, const struct schedule *s, struct auto_order *out)
{
    for (uint32_t r = 0; r < job->p; r++) {
        out->n[r] = 0;
        for (uint32_t k = 0; s->actions[r][k].kind != 'O'; k++) { /* O is a rank's last action */
            const struct action *t = &s->actions[r][k];
            uint32_t chunk = t->stage / job->p; /* holds for both looped and folded placement */
            enum relay_kind kind = t->kind == 'F'   ? RELAY_F
                                   : t->kind == 'I' ? RELAY_I
                                   : t->kind == 'W' ? RELAY_W
                                                    : RELAY_B;
            out->at[r][out->n[r]++] = (uint16_t)(AUTO_SYMBOL(kind, chunk) | (t->pair ? AUTO_PAIR : 0));
        }
    }
}
