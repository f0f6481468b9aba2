/* Two passes that run together, step by step in the order of walk_is_next(), by which lower_pair() of
 * compiler/lower/lower.c orders their instructions.  Queues are in order, so the end times of both passes follow.
 * Linear in steps, a few nanoseconds each. */

#include "compiler/cost/walk.h"

#include <string.h>

static uint32_t queue_of(const struct walk_run *x)
{
    return x->at->kind == WALK_KERNEL || x->at->kind == WALK_TURN ? WALK_COMPUTE
           : x->at->queue == WALK_DP && !x->apart                 ? WALK_TP
                                                                  : x->at->queue;
}

static double start_s(const struct walk_run *x)
{
    if (x->at->kind == WALK_KERNEL)
        return x->ready_s;
    if (x->at->kind == WALK_AHEAD || x->at->kind == WALK_FETCH)
        return x->free_s[x->at->room];
    if (x->at->kind == WALK_ONWARD)
        return x->there_s[WALK_OWN + x->at->room];
    return x->at->kind == WALK_TURN ? x->kernels_s : walk_later(x->ready_s, x->kernels_s);
}

/* Handles the steps that take no time, up to the next kernel or transfer. */
static void settle(struct walk_run *x)
{
    for (; x->at < x->end && x->at->seconds <= 0 && x->at->kind != WALK_KERNEL; x->at++) {
        if (x->at->kind == WALK_USE)
            x->ready_s = walk_later(x->ready_s, x->there_s[x->at->room]);
        else if (x->at->kind == WALK_FREE)
            x->free_s[x->at->room] = x->kernels_s;
        else if (x->at->kind == WALK_MADE)
            x->there_s[x->at->room] = walk_later(x->ready_s, x->kernels_s);
    }
    if (x->at == x->end)
        return;
    x->queue = queue_of(x);
    x->asks = x->at->kind == WALK_FETCH ? WALK_NONE : x->queue;
    x->start_s = start_s(x);
}

void walk_run_settle(struct walk_run *x, const struct walk_step *step, double end_s)
{
    if (step->kind == WALK_KERNEL)
        x->kernels_s = end_s;
    else if (step->kind == WALK_BLOCK)
        x->ready_s = end_s;
    else if (step->kind == WALK_TURN)
        x->turned_s = end_s;
    else if (step->kind == WALK_ONWARD)
        x->there_s[WALK_WHOLE + step->room] = end_s;
    else
        x->there_s[step->room] = end_s;
    settle(x);
}

void walk_run_enter(struct walk_run *x, const struct walk_step *at, size_t n)
{
    x->at = at;
    x->end = at + n;
    settle(x);
}

static struct walk_run new_run(const struct walk_strand *s, bool apart)
{
    struct walk_run x = {.share = s->all_s > 0 ? 1 / s->all_s : 0, .apart = apart};
    walk_run_enter(&x, s->at, s->n);
    return x;
}

static double end_s(const struct walk_run *x)
{
    double end = walk_later(walk_later(x->ready_s, x->kernels_s), x->turned_s);
    for (int k = 0; k < NWALK_ROOMS; k++)
        end = walk_later(end, x->there_s[k]);
    return end;
}

void walk_together(const struct walk_strand *f, const struct walk_strand *b, bool apart, double *f_s, double *b_s)
{
    struct walk_run x = new_run(f, apart), y = new_run(b, apart);
    double queue_s[NWALK_QUEUES + 1] = {0};
    while (x.at < x.end || y.at < y.end) {
        bool left = y.at == y.end;
        if (!left && x.at < x.end) {
            left = walk_run_is_next(queue_s, &x, &y);
        }
        walk_run_next(queue_s, left ? &x : &y);
    }
    *f_s = end_s(&x);
    *b_s = end_s(&y);
}

static bool has_ended(const struct walk_run *x)
{
    return x->at == x->end;
}

/* Runs both until either ends. */
static void run_on(double *queue_s, struct walk_run *x, struct walk_run *y)
{
    while (!has_ended(x) && !has_ended(y))
        walk_run_next(queue_s, walk_run_is_next(queue_s, x, y) ? x : y);
}

static void run_alone(double *queue_s, struct walk_run *x)
{
    while (!has_ended(x))
        walk_run_next(queue_s, x);
}

/* Enters the next of the blocks that are left, if this one has ended. */
static bool enter_next(struct walk_run *x, const struct walk_strand *s, uint32_t *left)
{
    if (!has_ended(x) || !*left)
        return false;
    walk_run_enter(x, s->at, s->n);
    --*left;
    return true;
}

/* With two blocks in a row each second is half the share of the total that it is with one, so the order is the same
 * until one pass has finished its first block. */
void walk_rows_together(const struct walk_strand *f, const struct walk_strand *b, bool apart, double *one_s,
                        double *two_s)
{
    struct walk_run x = new_run(f, apart), y = new_run(b, apart);
    double queue_s[NWALK_QUEUES + 1] = {0}, rest_s[NWALK_QUEUES + 1];
    uint32_t left[2] = {1, 1};
    run_on(queue_s, &x, &y);
    struct walk_run first[2] = {x, y};
    memcpy(rest_s, queue_s, sizeof rest_s);
    run_alone(rest_s, &first[0]);
    run_alone(rest_s, &first[1]);
    *one_s = walk_later(end_s(&first[0]), end_s(&first[1]));
    for (;;) {
        if (enter_next(&x, f, &left[0]) || enter_next(&y, b, &left[1]))
            continue;
        if (has_ended(&x) && has_ended(&y))
            break;
        run_on(queue_s, &x, &y);
        if (has_ended(&y) && !left[1])
            run_alone(queue_s, &x);
        if (has_ended(&x) && !left[0])
            run_alone(queue_s, &y);
    }
    *two_s = walk_later(end_s(&x), end_s(&y));
}
