/* Checks any schedule, and finds an order in which its actions can run.
 *
 * The check has two halves.  The first counts: every (stage, microbatch) has one F and one B, or one F, one I and
 * one W, all on the stage's rank, and one O ends every rank.  The second is a run without durations: a rank advances
 * while its next action's inputs exist; whoever makes an input wakes the rank that needs it.  The run visits every
 * action once and wakes at most two ranks for each, so it is linear, and it gets stuck exactly if order and
 * dependences form a cycle.  A pair starts when both its actions can. */

#include "compiler/schedule/family.h"
#include "compiler/support/strbuf.h"

/* bits of what has been seen or run of one (stage, microbatch) */
enum { SEEN_F = 1, SEEN_I = 2, SEEN_W = 4, SEEN_B = SEEN_I | SEEN_W };

static unsigned bits(char kind)
{
    switch (kind) {
    case 'F':
        return SEEN_F;
    case 'I':
        return SEEN_I;
    case 'W':
        return SEEN_W;
    case 'B':
        return SEEN_B;
    }
    return 0;
}

static bool count_actions(struct arena *a, const struct schedule *s, uint8_t *seen, const char **why)
{
    for (uint32_t r = 0; r < s->nranks; r++) {
        for (uint32_t k = 0; k < s->nactions[r]; k++) {
            const struct action *t = &s->actions[r][k];
            if (t->kind == 'O') {
                if (k + 1 == s->nactions[r] && !s->forward_only)
                    continue;
                *why = arena_printf(a,
                                    s->forward_only ? "rank %u: an optimizer step in a forward-only schedule"
                                                    : "rank %u: the optimizer step is not its last action",
                                    r);
                return false;
            }
            if (!bits(t->kind) || t->stage >= s->nstages || t->microbatch >= s->microbatches) {
                *why = arena_printf(a, "rank %u, action %u: no such action: %u%c%u", r, k, t->stage, t->kind,
                                    t->microbatch);
                return false;
            }
            if (s->stage_rank[t->stage] != r) {
                *why = arena_printf(a, "%u%c%u is on rank %u, but stage %u is on rank %u", t->stage, t->kind,
                                    t->microbatch, r, t->stage, s->stage_rank[t->stage]);
                return false;
            }
            uint8_t *had = &seen[(size_t)t->stage * s->microbatches + t->microbatch];
            if (*had & bits(t->kind)) {
                *why = arena_printf(a, "rank %u: %u%c%u repeats work already done", r, t->stage, t->kind,
                                    t->microbatch);
                return false;
            }
            *had = (uint8_t)(*had | bits(t->kind));
            if (t->pair && (t->kind != 'F' || k + 1 == s->nactions[r] || t[1].kind != 'B')) {
                *why = arena_printf(a, "rank %u: %u%c%u is not a forward with a backward behind it", r, t->stage,
                                    t->kind, t->microbatch);
                return false;
            }
        }
        if (!s->forward_only && (s->nactions[r] == 0 || s->actions[r][s->nactions[r] - 1].kind != 'O')) {
            *why = arena_printf(a, "rank %u does not end with the optimizer step", r);
            return false;
        }
    }
    return true;
}

bool schedule_check(struct arena *a, const struct schedule *s, const char **why)
{
    struct arena_mark mark = arena_mark(a);
    uint8_t *seen = ARENA_ARRAY(a, uint8_t, (size_t)s->nstages * s->microbatches);
    if (!count_actions(a, s, seen, why))
        return false;
    unsigned want = s->forward_only ? SEEN_F : SEEN_F | SEEN_B;
    for (uint32_t stage = 0; stage < s->nstages; stage++) {
        for (uint32_t i = 0; i < s->microbatches; i++) {
            unsigned missing = want & ~(unsigned)seen[(size_t)stage * s->microbatches + i];
            if (!missing)
                continue;
            char kind = missing & SEEN_F ? 'F' : missing == SEEN_B ? 'B' : missing & SEEN_I ? 'I' : 'W';
            *why = arena_printf(a, "%u%c%u is missing", stage, kind, i);
            return false;
        }
    }
    uint32_t n;
    bool ok = schedule_order(a, s, &n, why) != NULL;
    if (ok)
        arena_reset(a, mark);
    return ok;
}

/* --- the run without durations --- */

struct run {
    const struct schedule *s;
    uint32_t chain;     /* stages of one copy */
    uint8_t *done;      /* SEEN_ bits by stage * microbatches + microbatch */
    uint32_t *position; /* per rank */
    uint32_t *stack;    /* ranks whose next action may be runnable */
    bool *stacked;
    uint32_t nstack;
};

static bool is_done(const struct run *run, uint32_t stage, uint32_t microbatch, unsigned what)
{
    return (run->done[(size_t)stage * run->s->microbatches + microbatch] & what) == what;
}

static bool can_run(const struct run *run, const struct action *t)
{
    uint32_t i = t->microbatch;
    switch (t->kind) {
    case 'F':
        return t->stage % run->chain == 0 || is_done(run, t->stage - 1, i, SEEN_F);
    case 'B':
    case 'I':
        return is_done(run, t->stage, i, SEEN_F) &&
               ((t->stage + 1) % run->chain == 0 || is_done(run, t->stage + 1, i, SEEN_I));
    case 'W':
        return is_done(run, t->stage, i, SEEN_I);
    }
    return true;
}

static void wake(struct run *run, uint32_t rank)
{
    if (rank != NONE && !run->stacked[rank]) {
        run->stacked[rank] = true;
        run->stack[run->nstack++] = rank;
    }
}

static void finish_action(struct run *run, const struct action *t)
{
    const struct schedule *s = run->s;
    if (t->kind == 'O')
        return;
    uint8_t *done = &run->done[(size_t)t->stage * s->microbatches + t->microbatch];
    *done = (uint8_t)(*done | bits(t->kind));
    if (t->kind == 'F' && (t->stage + 1) % run->chain)
        wake(run, s->stage_rank[t->stage + 1]);
    if (bits(t->kind) & SEEN_I && t->stage % run->chain)
        wake(run, s->stage_rank[t->stage - 1]);
}

static const char *stuck(struct arena *a, const struct run *run)
{
    const struct schedule *s = run->s;
    struct strbuf b = {0};
    strbuf_text(&b, "the order of actions cannot run: ");
    uint32_t shown = 0;
    for (uint32_t r = 0; r < s->nranks; r++) {
        if (run->position[r] == s->nactions[r])
            continue;
        const struct action *t = &s->actions[r][run->position[r]];
        if (++shown > 4) {
            strbuf_text(&b, ", ...");
            break;
        }
        strbuf_printf(&b, "%srank %u is blocked at %u%c%u", shown > 1 ? ", " : "", r, t->stage, t->kind, t->microbatch);
    }
    const char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}

const struct schedule_step *schedule_order(struct arena *a, const struct schedule *s, uint32_t *nsteps,
                                           const char **why)
{
    size_t total = 0;
    for (uint32_t r = 0; r < s->nranks; r++)
        total += s->nactions[r];
    struct schedule_step *steps = ARENA_ARRAY(a, struct schedule_step, total + 1);
    struct arena_mark mark = arena_mark(a);
    struct run run = {.s = s, .chain = s->nstages / s->copies};
    run.done = ARENA_ARRAY(a, uint8_t, (size_t)s->nstages * s->microbatches);
    run.position = ARENA_ARRAY(a, uint32_t, s->nranks);
    run.stack = ARENA_ARRAY(a, uint32_t, s->nranks);
    run.stacked = ARENA_ARRAY(a, bool, s->nranks);
    for (uint32_t r = s->nranks; r-- > 0;)
        wake(&run, r);
    size_t n = 0;
    while (run.nstack) {
        uint32_t r = run.stack[--run.nstack];
        run.stacked[r] = false;
        while (run.position[r] < s->nactions[r]) {
            const struct action *t = &s->actions[r][run.position[r]];
            uint32_t together = t->pair ? 2 : 1;
            if (!can_run(&run, t) || (t->pair && !can_run(&run, t + 1)))
                break;
            for (uint32_t k = 0; k < together; k++) {
                steps[n++] = (struct schedule_step){.rank = r, .index = run.position[r]++};
                finish_action(&run, t + k);
            }
        }
    }
    if (n < total) {
        *why = stuck(a, &run);
        return NULL;
    }
    arena_reset(a, mark);
    *nsteps = (uint32_t)n;
    return steps;
}
