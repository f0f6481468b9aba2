/* walk_exposed_s(): follows the clocks of the kernels and of the queues of transfers.  Linear in steps. */

#include "compiler/cost/walk.h"

#include <string.h>

struct clocks {
    double kernels_s, made_s; /* times at which the queue of kernels is free, and at which the latest data is
                               * available */
    double queue_s[NWALK_QUEUES];
    double there_s[NWALK_ROOMS], free_s[NWALK_ROOMS];
};

static bool counts(enum walk_kind kind, double seconds)
{
    return seconds > 0 || kind == WALK_USE || kind == WALK_FREE || kind == WALK_MADE;
}

void walk_add(struct walk *w, enum walk_kind kind, uint32_t room, uint32_t passes, double seconds)
{
    bool forward = passes & (WALK_F | WALK_AGAIN);
    uint8_t in = (uint8_t)((passes & ~(uint32_t)WALK_AGAIN) | (passes & WALK_AGAIN ? WALK_B | WALK_I : 0));
    struct walk_step s = {(uint8_t)kind, (uint8_t)room, in, (uint8_t)w->queue, w->opr, seconds};
    if (!in || !counts(kind, seconds))
        return;
    if (forward)
        vec_push(w->arena, &w->forward, s);
    else
        vec_push(w->arena, &w->steps, s);
}

void walk_forward(struct walk *w, enum walk_kind kind, enum walk_room room, double seconds, bool again)
{
    walk_add(w, kind, room, WALK_F | (again ? WALK_AGAIN : 0), seconds);
}

void walk_own(struct walk *w, uint32_t passes, uint32_t n, bool at_once, double kernel_s)
{
    for (uint32_t i = 0; i < n; i++) {
        walk_add(w, WALK_USE, WALK_OWN + i, passes, 0);
        if (!at_once || i + 1 == n)
            walk_add(w, WALK_KERNEL, 0, passes, kernel_s);
        if (!at_once)
            walk_add(w, WALK_MADE, WALK_OWN + i, passes, 0);
    }
}

void walk_gathered(struct walk *w, uint32_t passes, uint32_t n, double transfer_s, double kernel_s)
{
    for (uint32_t i = 0; i < n; i++)
        walk_add(w, WALK_ONWARD, i, passes, transfer_s);
    for (uint32_t i = 0; i < n; i++) {
        walk_add(w, WALK_USE, WALK_WHOLE + i, passes, 0);
        walk_add(w, WALK_KERNEL, 0, passes, kernel_s);
    }
}

void walk_reduced(struct walk *w, uint32_t passes, uint32_t n, double kernel_s, double transfer_s)
{
    for (uint32_t i = 0; i < n; i++) {
        walk_add(w, WALK_KERNEL, 0, passes, kernel_s);
        walk_add(w, WALK_BEHIND, WALK_OWN + i, passes, transfer_s);
    }
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void take(struct clocks *c, const struct walk_step *s, bool apart)
{
    double *queue_s = &c->queue_s[s->queue == WALK_DP && !apart ? WALK_TP : s->queue];
    switch ((enum walk_kind)s->kind) {
    case WALK_KERNEL:
        c->made_s = c->kernels_s += s->seconds;
        break;
    case WALK_TURN:
        c->kernels_s += s->seconds;
        break;
    case WALK_BLOCK:
        c->made_s = *queue_s = later(*queue_s, c->made_s) + s->seconds;
        c->kernels_s = later(c->kernels_s, c->made_s);
        break;
    case WALK_AHEAD:
    case WALK_FETCH:
        c->there_s[s->room] = *queue_s = later(*queue_s, c->free_s[s->room]) + s->seconds;
        break;
    case WALK_BEHIND:
        c->there_s[s->room] = *queue_s = later(*queue_s, c->made_s) + s->seconds;
        break;
    case WALK_USE:
        c->kernels_s = later(c->kernels_s, c->there_s[s->room]);
        c->made_s = later(c->made_s, c->there_s[s->room]);
        break;
    case WALK_FREE:
        c->free_s[s->room] = c->made_s;
        break;
    case WALK_MADE:
        c->there_s[s->room] = c->made_s;
        break;
    case WALK_ONWARD:
        *queue_s = later(*queue_s, c->there_s[WALK_OWN + s->room]) + s->seconds;
        c->there_s[WALK_WHOLE + s->room] = *queue_s;
        break;
    }
}

/* Lists operators from the last to the first, and the steps of each in their order. */
static size_t list_backward(const struct walk *w, uint32_t pass, struct walk_step *out)
{
    size_t n = 0;
    for (size_t end = w->steps.n, first; end > 0; end = first) {
        first = end - 1;
        while (first > 0 && w->steps.at[first - 1].opr == w->steps.at[first].opr)
            first--;
        for (size_t i = first; i < end; i++)
            if (w->steps.at[i].passes & pass)
                out[n++] = w->steps.at[i];
    }
    return n;
}

/* The first `back` of n steps are those of recomputation.  A transfer directly after them, with which the backward
 * pass begins, carries what the block above has made, so it need not wait for them.  Returns the new number of
 * steps. */
static size_t ask_ahead(struct walk_step *out, size_t n, size_t back)
{
    struct walk_step first = out[back];
    if (back == 0 || back == n || first.kind != WALK_BLOCK)
        return n;
    memmove(out + back + 3, out + back + 1, (n - back - 1) * sizeof *out);
    memmove(out + 1, out, back * sizeof *out);
    out[0] = out[back + 2] = first;
    out[0].kind = WALK_FREE;
    out[back + 2].kind = WALK_USE;
    out[0].seconds = out[back + 2].seconds = 0;
    out[back + 1] = first;
    out[back + 1].kind = WALK_AHEAD;
    out[0].room = out[back + 1].room = out[back + 2].room = WALK_ABOVE;
    return n + 2;
}

static size_t list(const struct walk *w, uint32_t pass, struct walk_step *out)
{
    size_t n = 0;
    for (size_t i = 0; i < w->forward.n; i++)
        if (w->forward.at[i].passes & pass)
            out[n++] = w->forward.at[i];
    return pass == WALK_F ? n : ask_ahead(out, n + list_backward(w, pass, out + n), n);
}

struct walk_strand walk_strand_new(struct arena *a, const struct walk *w, uint32_t pass)
{
    struct walk_step *at = arena_grow(a, NULL, 0, w->forward.n + w->steps.n + 3, sizeof *at);
    struct walk_strand x = {.at = at, .n = list(w, pass, at)};
    for (size_t i = 0; i < x.n; i++) {
        x.all_s += at[i].seconds;
        x.kernels_s += at[i].kind == WALK_KERNEL ? at[i].seconds : 0;
    }
    return x;
}

struct walk_strand walk_strand_join(struct arena *a, const struct walk_strand *parts, size_t n, double kernels_s)
{
    struct walk_strand x = {0};
    for (size_t i = 0; i < n; i++) {
        x.n += parts[i].n;
        x.kernels_s += parts[i].kernels_s;
        x.turns_s += parts[i].turns_s;
        x.all_s += parts[i].all_s - parts[i].kernels_s;
    }
    double factor = x.kernels_s > 0 ? kernels_s / x.kernels_s : 1;
    struct walk_step *at = arena_grow(a, NULL, 0, x.n + 1, sizeof *at), *end = at;
    for (size_t i = 0; i < n; i++) {
        memcpy(end, parts[i].at, parts[i].n * sizeof *end);
        end += parts[i].n;
    }
    for (size_t i = 0; i < x.n && factor != 1; i++)
        at[i].seconds *= at[i].kind == WALK_KERNEL ? factor : 1;
    x.at = at;
    x.kernels_s *= factor;
    x.all_s += x.kernels_s;
    return x;
}

struct walk_strand walk_strand_turns(struct arena *a, const struct walk_strand *x, double front_s, double behind_s)
{
    struct walk_step *at = arena_grow(a, NULL, 0, x->n + 2, sizeof *at);
    at[0] = (struct walk_step){.kind = WALK_TURN, .queue = WALK_COMPUTE, .seconds = front_s};
    memcpy(at + 1, x->at, x->n * sizeof *at);
    at[x->n + 1] = at[0];
    at[x->n + 1].seconds = behind_s;
    double turns_s = front_s + behind_s;
    return (struct walk_strand){at, x->n + 2, x->all_s + turns_s, x->kernels_s, x->turns_s + turns_s};
}

double walk_exposed_s(const struct walk_strand *x, bool round, bool apart)
{
    struct clocks c = {0};
    double before_s = 0;
    if (x->all_s <= x->kernels_s + x->turns_s)
        return 0;
    for (int k = 0; k < 1 + round; k++) {
        before_s = c.kernels_s;
        for (size_t i = 0; i < x->n; i++)
            take(&c, &x->at[i], apart);
    }
    double exposed_s = c.kernels_s - before_s - x->kernels_s - x->turns_s;
    return exposed_s > 0 ? exposed_s : 0;
}

double walk_before_s(const struct walk_strand *x, enum walk_queue queue)
{
    struct clocks c = {0};
    size_t i = 0;
    for (; i < x->n && (x->at[i].kind == WALK_KERNEL || x->at[i].seconds <= 0 || x->at[i].queue != queue); i++)
        take(&c, &x->at[i], true);
    return c.kernels_s;
}
