/* walk_exposed_s(): two clocks, of kernels and of the queue of transfers.  Linear in steps. */

#include "compiler/cost/walk.h"

struct clocks {
    double kernels_s, queue_s, busy_s; /* busy: of kernels alone */
    double there_s[NWALK_ROOMS], free_s[NWALK_ROOMS];
};

void walk_add(struct walk *w, enum walk_kind kind, enum walk_room room, uint32_t passes, double seconds)
{
    if (seconds > 0 || kind == WALK_USE || kind == WALK_FREE)
        vec_push(w->arena, &w->steps,
                 ((struct walk_step){(uint8_t)kind, (uint8_t)room, (uint8_t)passes, w->opr, seconds}));
}

void walk_again(struct walk *w, enum walk_kind kind, double seconds)
{
    if (seconds > 0)
        vec_push(w->arena, &w->again, ((struct walk_step){(uint8_t)kind, 0, WALK_B | WALK_I, w->opr, seconds}));
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void take(struct clocks *c, const struct walk_step *s)
{
    switch ((enum walk_kind)s->kind) {
    case WALK_KERNEL:
        c->kernels_s += s->seconds;
        c->busy_s += s->seconds;
        break;
    case WALK_BLOCK:
        c->kernels_s = c->queue_s = later(c->queue_s, c->kernels_s) + s->seconds;
        break;
    case WALK_AHEAD:
        c->there_s[s->room] = c->queue_s = later(c->queue_s, c->free_s[s->room]) + s->seconds;
        break;
    case WALK_BEHIND:
        c->there_s[s->room] = c->queue_s = later(c->queue_s, c->kernels_s) + s->seconds;
        break;
    case WALK_USE:
        c->kernels_s = later(c->kernels_s, c->there_s[s->room]);
        break;
    case WALK_FREE:
        c->free_s[s->room] = c->kernels_s;
        break;
    }
}

static void run(struct clocks *c, const struct walk *w, uint32_t pass)
{
    for (size_t i = 0; i < w->again.n; i++)
        if (w->again.at[i].passes & pass)
            take(c, &w->again.at[i]);
    for (size_t end = w->steps.n, first; end > 0; end = first) {
        first = end - 1;
        while (first > 0 && w->steps.at[first - 1].opr == w->steps.at[first].opr)
            first--;
        for (size_t i = first; i < end; i++)
            if (w->steps.at[i].passes & pass)
                take(c, &w->steps.at[i]);
    }
}

double walk_exposed_s(const struct walk *w, uint32_t pass, bool round)
{
    struct clocks c = {0};
    run(&c, w, pass);
    double before_s = round ? c.kernels_s : 0, busy_s = c.busy_s;
    if (round)
        run(&c, w, pass);
    double exposed_s = c.kernels_s - before_s - busy_s;
    return exposed_s > 0 ? exposed_s : 0;
}
