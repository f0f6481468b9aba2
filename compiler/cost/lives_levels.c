/* Bytes of a pass's stores as its instructions run: their peak, and how they rise and fall over the time of the
 * pass. */

#include "compiler/cost/lives.h"

#include <math.h>
#include <string.h>

/* the shortest step, as a share of its pass's kernels, unless its phase differs from the next one's */
#define SHORTEST (1.0 / 32)

/* ---- seconds ---- */

/* Seconds of each instruction: those of its operator are divided over the operator's products or, without products,
 * equally over all of its instructions. */
static const double *seconds_of(const struct lives *l, const struct lives_pass *p, const struct lives_order *order)
{
    struct parts {
        double products, all; /* of an operator's own instructions, or of its recomputed ones */
    } *parts = ARENA_ARRAY(l->arena, struct parts, 2 * l->e->noprs + 2u);
    double *s = ARENA_ARRAY(l->arena, double, p->insns.n + 1);
    for (size_t i = 0; i < p->insns.n; i++) {
        const struct lives_insn *x = &p->insns.at[i];
        struct parts *own = &parts[2 * x->opr + x->again];
        own->products += (double)x->parts;
        own->all++;
    }
    for (uint32_t k = 0; k < 2 * l->e->noprs; k++) {
        double seconds = order->seconds[k];
        parts[k].all = parts[k].products > 0 || parts[k].all <= 0 ? 0 : seconds / parts[k].all;
        parts[k].products = parts[k].products > 0 ? seconds / parts[k].products : 0;
    }
    for (size_t i = 0; i < p->insns.n; i++) {
        const struct lives_insn *x = &p->insns.at[i];
        const struct parts *own = &parts[2 * x->opr + x->again];
        s[i] = (double)x->parts * own->products + own->all;
    }
    return s;
}

/* Adds up the kernel seconds by operator, those of recomputation after the others; the first `again` steps of
 * order->strand are recomputed. */
static void add_seconds(const struct lives *l, struct lives_order *order, size_t again)
{
    order->seconds = ARENA_ARRAY(l->arena, double, 2 * l->e->noprs + 2u);
    for (size_t i = 0; i < order->strand.n; i++) {
        const struct walk_step *s = &order->strand.at[i];
        order->seconds[2 * s->opr + (i < again)] += s->kind == WALK_KERNEL ? s->seconds : 0;
    }
}

void lives_find_order(struct lives *l)
{
    static const uint32_t passes[] = {WALK_F, WALK_B};
    struct walk w;
    l->levels = ARENA_ARRAY(l->levels_arena, struct cost_levels, 2);
    cost_expansion_walk(l->arena, l->c, l->e, l->kind == LIVES_LAYER || l->kind == LIVES_PREDICT, &w);
    for (int k = 0; k < 2; k++) {
        struct lives_order *x = &l->order[k];
        size_t plain = 0;
        x->strand = walk_strand_new(l->arena, &w, passes[k]);
        for (size_t i = 0; k && i < w.steps.n; i++)
            plain += (w.steps.at[i].passes & WALK_B) != 0;
        size_t again = k ? x->strand.n - plain : 0; /* a transfer that is requested ahead of them adds two more steps */
        x->first = (uint32_t)again;
        add_seconds(l, x, again);
    }
}

/* ---- steps ---- */

/* consecutive instructions */
struct level {
    double seconds, during, behind;
    uint32_t phase;
};
struct levels {
    struct level *at;
    size_t n;
    double all_s;
};

/* Adds an instruction, from the back: one that takes little time forms one step with what follows it. */
static void add_level(struct levels *x, double seconds, double during, double behind, uint32_t phase)
{
    struct level *step = &x->at[x->n ? x->n - 1 : 0];
    if (!x->n || seconds > SHORTEST * x->all_s || step->phase != phase) {
        step = &x->at[x->n++];
        *step = (struct level){0, 0, behind, phase};
    }
    step->seconds += seconds;
    step->during = fmax(step->during, during);
}

static void put(struct cost_levels *x, const struct walk_step *step, double during, double behind)
{
    x->all_s += step->seconds;
    x->step[x->n] = *step;
    x->bytes[x->n++] = (struct cost_level){(float)during, (float)behind};
}

/* Adds a copy to host memory, or from there. */
static void put_copy(const struct lives *l, struct cost_levels *x, double bytes, bool fetch)
{
    const struct walk_step copy = {.kind = fetch ? WALK_FETCH : WALK_BEHIND,
                                   .room = fetch ? WALK_FETCHED : WALK_PARKED,
                                   .queue = WALK_COPY,
                                   .seconds = bytes / cost_host_bytes_s(l->c)};
    if (bytes > 0)
        put(x, &copy, 0, 0);
}

/* Adds as kernels the levels, which are stored last to first, until `until` seconds have been run; little: seconds
 * that are not told apart. */
static void put_until(struct cost_levels *to, struct levels *x, double *done, double until, double little)
{
    for (double end; x->n && until > *done + little; *done = end) {
        struct level *k = &x->at[x->n - 1];
        bool all = k->seconds <= until - *done + little;
        end = all ? *done + k->seconds : until;
        const struct walk_step step = {
            .kind = WALK_KERNEL, .passes = (uint8_t)k->phase, .queue = WALK_COMPUTE, .seconds = end - *done};
        put(to, &step, k->during, all ? k->behind : k->during);
        k->seconds -= end - *done;
        x->n -= all;
    }
}

/* Inserts the pass's transfers between its levels. */
static void join(const struct lives *l, struct levels *x, const struct lives_order *order, const bool *parked,
                 struct cost_levels *to)
{
    const struct walk_step received = {.kind = WALK_USE, .room = WALK_RECEIVED},
                           fetched = {.kind = WALK_USE, .room = WALK_FETCHED};
    bool back = order == &l->order[1];
    double factor = order->strand.kernels_s > 0 ? x->all_s / order->strand.kernels_s : 0, now = 0, done = 0;
    size_t most = x->n + 2 * order->strand.n + l->stores.n + 4; /* each transfer may split a level */
    double fetched_bytes = 0;
    for (size_t s = 0; s < l->stores.n && back; s++)
        fetched_bytes += parked[s] ? l->stores.at[s].bytes : 0;
    struct arena_mark mark = arena_mark(l->arena);
    struct cost_levels all = {.step = arena_array(l->arena, most, sizeof *all.step),
                              .bytes = arena_array(l->arena, most, sizeof *all.bytes)};
    if (fetched_bytes > 0)
        put(&all, &fetched, 0, 0);
    put_copy(l, &all, fetched_bytes, true);
    for (size_t i = 0; i < order->strand.n; i++) {
        const struct walk_step *s = &order->strand.at[i];
        bool kernel = s->kind == WALK_KERNEL,
             counts = !kernel && (s->seconds <= 0 || s->seconds > SHORTEST * order->strand.all_s);
        if (i == order->first || counts)
            put_until(&all, x, &done, now, SHORTEST * x->all_s);
        if (i == order->first)
            put(&all, &received, 0, 0);
        if (counts)
            put(&all, s, 0, 0);
        now += kernel ? s->seconds * factor : 0;
    }
    put_until(&all, x, &done, INFINITY, 0);
    for (size_t s = 0; s < l->stores.n && !back; s++)
        put_copy(l, &all, parked[s] ? l->stores.at[s].bytes : 0, false);
    to->n = all.n;
    to->fetch_s = fetched_bytes / cost_host_bytes_s(l->c);
    to->all_s = all.all_s;
    to->step = arena_array(l->levels_arena, all.n + 1, sizeof *to->step);
    to->bytes = arena_array(l->levels_arena, all.n + 1, sizeof *to->bytes);
    memcpy(to->step, all.step, all.n * sizeof *to->step);
    memcpy(to->bytes, all.bytes, all.n * sizeof *to->bytes);
    arena_reset(l->arena, mark);
}

double lives_most(const struct lives *l, const struct lives_pass *p, bool *live, double *parts, struct lives_ends *ends,
                  struct cost_levels *levels)
{
    struct arena_mark mark = arena_mark(l->arena);
    bool *open = ARENA_ARRAY(l->arena, bool, l->stores.n + 1);
    bool *parked = levels ? ARENA_ARRAY(l->arena, bool, l->stores.n + 1) : NULL;
    for (size_t s = 0; levels && s < l->stores.n; s++)
        parked[s] = live[s] && l->stores.at[s].parks;
    const struct lives_order *order = levels ? &l->order[parts != NULL] : NULL;
    const double *seconds = levels ? seconds_of(l, p, order) : NULL;
    struct levels steps = {0};
    double now = 0, most;
    if (levels)
        steps.at = ARENA_ARRAY(l->arena, struct level, p->insns.n + 1);
    for (size_t i = 0; levels && i < p->insns.n; i++)
        steps.all_s += seconds[i];
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
        uint32_t part = (i >= p->begun[0] ? 1u : 0) + (i >= p->begun[1] ? 2u : 0) +
                        (p->used != NONE && i > p->used ? 4u : 0);
        if (parts && now > parts[part])
            parts[part] = now;
        if (ends && p->made != NONE && i > p->made)
            ends->made = fmax(ends->made, now);
        if (ends && !moved)
            ends->moved = fmax(ends->moved, now);
        moved |= p->insns.at[i].moves;
        if (levels)
            add_level(&steps, seconds[i], now, behind, part);
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
        for (size_t s = 0; s < l->stores.n && parts; s++)
            parked[s] = live[s] && l->stores.at[s].parks;
        join(l, &steps, order, parked, levels);
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
