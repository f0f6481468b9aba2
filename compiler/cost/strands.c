/* Two passes that run together, step by step in the order of walk_is_next(), by which lower_pair() of compiler/lower/lower.c
 * orders their instructions.  Queues are in order, so the times at which the two end follow.  Linear in steps, some nanoseconds
 * each. */

#include "compiler/cost/walk.h"

struct strand {
    const struct walk_step *at, *end;
    double share;   /* reciprocal of all its seconds */
    double done;    /* share of them that was run */
    double ready_s; /* the next kernel's input is there */
    double turned_s;
    double kernels_s, there_s[NWALK_ROOMS], free_s[NWALK_ROOMS];
    bool apart;
    uint32_t queue; /* of the next step; */
    double needs_s; /* when it may start there */
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

static uint32_t queue_of(const struct strand *x)
{
    return x->at->kind == WALK_KERNEL || x->at->kind == WALK_TURN ? WALK_COMPUTE : x->at->queue == WALK_DP && !x->apart ? WALK_TP : x->at->queue;
}

/* when what the next step reads is there, and what it writes is free */
static double needs_s(const struct strand *x)
{
    switch ((enum walk_kind)x->at->kind) {
    case WALK_AHEAD:
        return x->free_s[x->at->room];
    case WALK_ONWARD:
        return x->there_s[WALK_OWN + x->at->room];
    case WALK_TURN:
        return x->kernels_s;
    case WALK_KERNEL:
        return x->ready_s;
    case WALK_BLOCK:
    case WALK_BEHIND:
    case WALK_USE:
    case WALK_FREE:
    case WALK_MADE:
        break;
    }
    return later(x->ready_s, x->kernels_s);
}

/* what takes no time, up to the next step that does */
static void settle(struct strand *x)
{
    for (; x->at < x->end && x->at->seconds <= 0; x->at++) {
        if (x->at->kind == WALK_USE)
            x->ready_s = later(x->ready_s, x->there_s[x->at->room]);
        else if (x->at->kind == WALK_FREE)
            x->free_s[x->at->room] = x->kernels_s;
        else if (x->at->kind == WALK_MADE)
            x->there_s[x->at->room] = later(x->ready_s, x->kernels_s);
    }
    if (x->at == x->end)
        return;
    x->queue = queue_of(x);
    x->needs_s = needs_s(x);
}

static double start_s(const double *queue_s, const struct strand *x)
{
    return later(queue_s[x->queue], x->needs_s);
}

static void run_next(double *queue_s, struct strand *x)
{
    double end = start_s(queue_s, x) + x->at->seconds;
    queue_s[x->queue] = end;
    if (x->at->kind == WALK_KERNEL)
        x->kernels_s = end;
    else if (x->at->kind == WALK_BLOCK)
        x->ready_s = end;
    else if (x->at->kind == WALK_TURN)
        x->turned_s = end;
    else if (x->at->kind == WALK_ONWARD)
        x->there_s[WALK_WHOLE + x->at->room] = end;
    else
        x->there_s[x->at->room] = end;
    x->done += x->at->seconds * x->share;
    x->at++;
    settle(x);
}

static struct strand new_strand(const struct walk_strand *s, bool apart)
{
    struct strand x = {.at = s->at, .end = s->at + s->n, .share = s->all_s > 0 ? 1 / s->all_s : 0, .apart = apart};
    settle(&x);
    return x;
}

static double end_s(const struct strand *x)
{
    double end = later(later(x->ready_s, x->kernels_s), x->turned_s);
    for (int k = 0; k < NWALK_ROOMS; k++)
        end = later(end, x->there_s[k]);
    return end;
}

void walk_together(const struct walk_strand *f, const struct walk_strand *b, bool apart, double *f_s, double *b_s)
{
    struct strand x = new_strand(f, apart), y = new_strand(b, apart);
    double queue_s[NWALK_QUEUES] = {0};
    while (x.at < x.end || y.at < y.end) {
        bool left = y.at == y.end;
        if (!left && x.at < x.end)
            left = walk_is_next(start_s(queue_s, &x), start_s(queue_s, &y), x.done, y.done);
        run_next(queue_s, left ? &x : &y);
    }
    *f_s = end_s(&x);
    *b_s = end_s(&y);
}
