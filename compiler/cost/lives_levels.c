/* Bytes of a pass's stores as its instructions go by: the most, and how they rise and fall along its time. */

#include "compiler/cost/lives.h"

#include <math.h>

/* steps are no shorter than this share of their pass, unless what they make is told apart */
#define SHORTEST (1.0 / 16)

/* seconds of each instruction: its operator's go to products, or to all of its instructions alike */
static const float *seconds_of(const struct lives *l, const struct lives_pass *p, bool forward, double *all_s)
{
    struct parts {
        float products, all; /* of an operator, and of what of it runs again */
    } *parts = ARENA_ARRAY(l->arena, struct parts, 2 * l->e->noprs + 2u);
    float *s = ARENA_ARRAY(l->arena, float, p->insns.n + 1);
    *all_s = 0;
    for (size_t i = 0; i < p->insns.n; i++) {
        const struct lives_insn *x = &p->insns.at[i];
        struct parts *own = &parts[2 * x->opr + x->again];
        own->products += x->parts;
        own->all++;
    }
    for (uint32_t k = 0; k < 2 * l->e->noprs && l->seconds; k++) {
        float seconds = l->seconds[k / 2][forward ? 0 : k % 2 ? 1 : 2];
        parts[k].all = parts[k].products > 0 || parts[k].all <= 0 ? 0 : seconds / parts[k].all;
        parts[k].products = parts[k].products > 0 ? seconds / parts[k].products : 0;
    }
    for (size_t i = 0; i < p->insns.n && l->seconds; i++) {
        const struct lives_insn *x = &p->insns.at[i];
        const struct parts *own = &parts[2 * x->opr + x->again];
        s[i] = x->parts * own->products + own->all;
        *all_s += (double)s[i];
    }
    return s;
}

/* from the back: an instruction that takes little time is one step with what follows it */
static void add_level(struct cost_levels *x, float seconds, double during, double behind, uint32_t phase)
{
    struct cost_level *step = &x->at[x->n ? x->n - 1 : 0];
    bool begins = !x->n || (double)seconds > SHORTEST * x->all_s || step->phase != phase;
    if (begins && x->n < COST_LEVELS_MOST) {
        step = &x->at[x->n++];
        *step = (struct cost_level){0, 0, (float)behind, phase};
    }
    step->seconds += seconds;
    step->during = fmaxf(step->during, (float)during);
}

static void turn_round(struct cost_levels *x)
{
    for (uint32_t i = 0; i < x->n / 2; i++) {
        struct cost_level step = x->at[i];
        x->at[i] = x->at[x->n - 1 - i];
        x->at[x->n - 1 - i] = step;
    }
}

double lives_most(const struct lives *l, const struct lives_pass *p, bool *live, double *parts, struct lives_ends *ends,
                  struct cost_levels *levels)
{
    struct arena_mark mark = arena_mark(l->arena);
    bool *open = ARENA_ARRAY(l->arena, bool, l->stores.n + 1);
    const float *seconds = levels ? seconds_of(l, p, !parts, &levels->all_s) : NULL;
    double now = 0, most;
    if (levels)
        levels->n = 0;
    bool moved = false;
    if (ends)
        *ends = (struct lives_ends){0};
    for (size_t s = 0; s < l->stores.n; s++) {
        open[s] = live[s];
        now += live[s] ? l->stores.at[s].bytes : 0;
    }
    most = now;
    for (size_t i = p->insns.n; i-- > 0;) {
        size_t first = p->insns.at[i].touch, end = i + 1 < p->insns.n ? p->insns.at[i + 1].touch : p->touches.n;
        double behind = now;
        for (size_t k = first; k < end; k++) {
            const struct lives_touch *t = &p->touches.at[k];
            now += open[t->store] ? 0 : l->stores.at[t->store].bytes;
            open[t->store] = true;
            live[t->store] &= !t->covers;
        }
        most = now > most ? now : most;
        uint32_t part = (i >= p->begun[0] ? 1u : 0) + (i >= p->begun[1] ? 2u : 0) + (p->used != NONE && i > p->used ? 4u : 0);
        if (parts && now > parts[part])
            parts[part] = now;
        if (ends && p->made != NONE && i > p->made)
            ends->made = fmax(ends->made, now);
        if (ends && !moved)
            ends->moved = fmax(ends->moved, now);
        moved |= p->insns.at[i].moves;
        if (levels)
            add_level(levels, seconds[i], now, behind, part);
        for (size_t k = first; k < end; k++)
            live[p->touches.at[k].store] |= p->touches.at[k].reads;
        for (size_t k = first; k < end; k++) {
            uint32_t s = p->touches.at[k].store;
            now -= open[s] && !live[s] ? l->stores.at[s].bytes : 0;
            open[s] &= live[s];
        }
    }
    if (levels) {
        levels->front = now;
        turn_round(levels);
    }
    arena_reset(l->arena, mark);
    return most;
}

double lives_ahead(const struct lives *l, const struct lives_pass *p)
{
    double bytes = 0;
    for (size_t i = 0; i < p->insns.n && p->insns.at[i].moves; i++) {
        size_t end = i + 1 < p->insns.n ? p->insns.at[i + 1].touch : p->touches.n;
        for (size_t k = p->insns.at[i].touch; k < end; k++)
            bytes += p->touches.at[k].covers ? l->stores.at[p->touches.at[k].store].bytes : 0;
    }
    return bytes;
}
