/* Runs of orders for schedule_auto(): simulate_actions() on strings of (kind, chunk), several times faster,
 * and with the same result to the last bit; memory along an order; and the bound of a placement. */

#include "compiler/schedule/auto_private.h"

#include <math.h>
#include <string.h>

struct auto_run {
    const struct auto_job *job;
    double *forward_in, *backward_in;         /* arrivals, by slot * m + microbatch */
    double *next_free, *back_free;            /* by slot */
    uint32_t *f, *i;                          /* done, by slot */
    uint32_t *forward_there, *backward_there; /* arrived or on the way, by slot */
    double *start, *end, *before;             /* by rank */
    uint32_t *position, *stack, nstack;
    bool *stacked;
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
    run->forward_in = ARENA_ARRAY(a, double, (size_t)slots * job->m);
    run->backward_in = ARENA_ARRAY(a, double, (size_t)slots * job->m);
    run->next_free = ARENA_ARRAY(a, double, slots);
    run->back_free = ARENA_ARRAY(a, double, slots);
    run->f = ARENA_ARRAY(a, uint32_t, slots);
    run->i = ARENA_ARRAY(a, uint32_t, slots);
    run->forward_there = ARENA_ARRAY(a, uint32_t, slots);
    run->backward_there = ARENA_ARRAY(a, uint32_t, slots);
    run->start = ARENA_ARRAY(a, double, job->p);
    run->end = ARENA_ARRAY(a, double, job->p);
    run->before = ARENA_ARRAY(a, double, job->p);
    run->position = ARENA_ARRAY(a, uint32_t, job->p);
    run->stack = ARENA_ARRAY(a, uint32_t, job->p);
    run->stacked = ARENA_ARRAY(a, bool, job->p);
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

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void wake(struct auto_run *run, uint32_t rank)
{
    if (!run->stacked[rank]) {
        run->stacked[rank] = true;
        run->stack[run->nstack++] = rank;
    }
}

static void send_forward(struct auto_run *run, uint32_t slot, double end)
{
    const struct auto_stage *st = &run->job->slot[slot];
    size_t m = run->job->m, i = run->f[slot]++;
    if (st->next == NONE) {
        run->backward_in[slot * m + i] = end;
        run->backward_there[slot]++;
        return;
    }
    if (st->next_s > 0)
        run->next_free[slot] = end = later(run->next_free[slot], end) + st->next_s;
    run->forward_in[st->next * m + i] = end;
    run->forward_there[st->next]++;
    wake(run, run->job->slot[st->next].rank);
}

static void send_backward(struct auto_run *run, uint32_t slot, double end)
{
    const struct auto_stage *st = &run->job->slot[slot];
    size_t m = run->job->m, i = run->i[slot]++;
    if (st->back == NONE)
        return;
    if (st->back_s > 0)
        run->back_free[slot] = end = later(run->back_free[slot], end) + st->back_s;
    run->backward_in[st->back * m + i] = end;
    run->backward_there[st->back]++;
    wake(run, run->job->slot[st->back].rank);
}

/* when the input of a slot's next F, or of its next I or B, is there; negative if it has not been made */
static double forward_ready_s(const struct auto_run *run, uint32_t slot)
{
    uint32_t i = run->f[slot];
    return i < run->forward_there[slot] ? run->forward_in[(size_t)slot * run->job->m + i] : -1;
}

static double backward_ready_s(const struct auto_run *run, uint32_t slot)
{
    uint32_t i = run->i[slot];
    return i < run->backward_there[slot] ? run->backward_in[(size_t)slot * run->job->m + i] : -1;
}

static struct cost_pair pair_s(const struct auto_run *run, const struct auto_stage *f, const struct auto_stage *b)
{
    double f_s = f->takes[AUTO_F] - f->forward_held, b_s = b->takes[AUTO_B] - b->backward_held;
    double held = f->forward_held + b->backward_held, hidden = f->forward_hidden + b->backward_hidden;
    struct cost_pair p = cost_pair(run->job->pairs, f->stage, b->stage, f_s, b_s, hidden);
    return (struct cost_pair){p.forward_s + held, p.backward_s + held, p.end_s + held};
}

/* false where an input is missing */
static bool run_pair(struct auto_run *run, uint32_t r, uint32_t f, uint32_t b)
{
    double x = forward_ready_s(run, f), y = backward_ready_s(run, b);
    if (x < 0 || y < 0)
        return false;
    struct cost_pair p = pair_s(run, &run->job->slot[f], &run->job->slot[b]);
    double end = run->end[r] = later(run->end[r], later(x, y)) + p.end_s;
    send_forward(run, f, end - (p.end_s - p.forward_s));
    send_backward(run, b, end - (p.end_s - p.backward_s));
    return true;
}

static bool run_action(struct auto_run *run, uint32_t r, uint32_t slot, enum auto_kind kind)
{
    double ready = kind == AUTO_F   ? forward_ready_s(run, slot)
                   : kind == AUTO_W ? 0
                                    : backward_ready_s(run, slot);
    if (ready < 0)
        return false;
    double end = run->end[r] = later(run->end[r], ready) + run->job->slot[slot].takes[kind];
    if (kind == AUTO_F)
        send_forward(run, slot, end);
    else if (kind != AUTO_W)
        send_backward(run, slot, end);
    return true;
}

static void record(struct auto_run *run, uint32_t r, uint32_t k, uint16_t x, double start)
{
    struct auto_trace *t = &run->trace;
    uint32_t slot = r * run->job->v + AUTO_CHUNK(x);
    size_t first = (size_t)slot * run->job->m;
    t->start[r][k] = start;
    t->end[r][k] = run->end[r];
    if (AUTO_KIND(x) == AUTO_F) {
        t->microbatch[r][k] = run->f[slot] - 1;
        t->forward[first + run->f[slot] - 1] = k;
    } else if (AUTO_KIND(x) != AUTO_W) {
        t->microbatch[r][k] = run->i[slot] - 1;
        t->backward[first + run->i[slot] - 1] = k;
    }
}

static void advance(struct auto_run *run, const struct auto_order *order, uint32_t r)
{
    const uint16_t *all = order->at[r];
    const struct auto_stage *st = &run->job->slot[r * run->job->v];
    uint32_t k = run->position[r], n = order->n[r], first = r * run->job->v;
    if (k == 0) { /* the first action is a forward */
        run->start[r] = forward_ready_s(run, first);
        if (run->start[r] < 0)
            return;
        run->start[r] = later(run->start[r], run->end[r]);
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
            double takes = pair ? pair_s(run, &st[c], &st[AUTO_CHUNK(all[k + 1])]).end_s : st[c].takes[AUTO_KIND(x)];
            record(run, r, k, x, run->end[r] - takes);
            if (pair)
                record(run, r, k + 1, all[k + 1], run->end[r] - takes);
        }
        k += pair;
    }
    run->position[r] = k;
}

/* from where the ranks are; false if it gets stuck */
static bool run_step(struct auto_run *run, const struct auto_order *order)
{
    const struct auto_job *job = run->job;
    uint32_t slots = job->p * job->v;
    memset(run->f, 0, slots * sizeof *run->f);
    memset(run->i, 0, slots * sizeof *run->i);
    memset(run->backward_there, 0, slots * sizeof *run->backward_there);
    for (uint32_t s = 0; s < slots; s++)
        run->forward_there[s] = job->slot[s].back == NONE ? job->m : 0;
    for (uint32_t r = job->p; r-- > 0;) {
        run->position[r] = 0;
        wake(run, r);
    }
    while (run->nstack) {
        uint32_t r = run->stack[--run->nstack];
        run->stacked[r] = false;
        advance(run, order, r);
    }
    for (uint32_t r = 0; r < job->p; r++)
        if (run->position[r] < order->n[r])
            return false;
    return true;
}

static bool run_first(struct auto_run *run, const struct auto_order *order)
{
    const struct auto_job *job = run->job;
    uint32_t slots = job->p * job->v;
    memset(run->end, 0, job->p * sizeof *run->end);
    memset(run->next_free, 0, slots * sizeof *run->next_free);
    memset(run->back_free, 0, slots * sizeof *run->back_free);
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
        score.longest_s = later(score.longest_s, s);
        score.sum_s += s;
    }
    return score;
}

/* where ranks' steps follow each other apart: from one step's end to the next one's */
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
        longest = later(longest, run->end[r] - before[r]);
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
        case AUTO_F:
            f[c]++;
            live += keep;
            break;
        case AUTO_I:
            i[c]++;
            live += later_bytes - keep;
            break;
        case AUTO_W:
            w[c]++;
            live -= later_bytes;
            break;
        case AUTO_B:
            i[c]++;
            w[c]++;
            live -= keep;
            break;
        case AUTO_KINDS:
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
        for (uint32_t k = 0; s->actions[r][k].kind != 'O'; k++) { /* which is a rank's last */
            const struct action *t = &s->actions[r][k];
            uint32_t chunk = t->stage / job->p; /* of looped and of folded placement */
            enum auto_kind kind = t->kind == 'F'   ? AUTO_F
                                  : t->kind == 'I' ? AUTO_I
                                  : t->kind == 'W' ? AUTO_W
                                                   : AUTO_B;
            out->at[r][out->n[r]++] = (uint16_t)(AUTO_SYMBOL(kind, chunk) | (t->pair ? AUTO_PAIR : 0));
        }
    }
}
