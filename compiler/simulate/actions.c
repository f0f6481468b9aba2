/* Runs a schedule's actions with durations, without instructions.
 *
 * A rank runs its list in order; F waits for the transfer from the previous stage, B and I for the one from the next
 * stage (schedule/relay.h).  This is the "queue per peer and direction" model, the ideal for the placement of
 * receives: the timed order of the emitted instructions is within a few per cent of it.  A pair starts when both its
 * actions can.
 *
 * Where a rank's optimizer step does not wait for other ranks (schedule.h), two steps are run one after the other.
 *
 * A boundary's transfers in one direction come from one rank, in its order, so no time depends on the order in which
 * ranks are visited: a rank runs until an input is missing, and whoever makes one wakes the rank that needs it.
 * Linear in actions; memory is two numbers per stage and microbatch. */

#include "compiler/schedule/relay.h"
#include "compiler/simulate/beside.h"
#include "compiler/simulate/simulate.h"

#include <math.h>
#include <string.h>

struct act_run {
    const struct schedule *s;
    struct relay *relay; /* by stage of the schedule, those of the second copy after the first's */
    double jitter;
    uint64_t random; /* splitmix64's state (Steele, Lea and Flood 2014) */
    uint32_t *position;
    struct act_rank *ranks;
    struct beside **beside; /* by rank: transfers beside its actions; NULL: actions alone */
    /* by rank: number of actions that may run before the previous step is validated; NULL: it already is */
    const uint32_t *early;
    double validated_s; /* when the previous step is validated */
};

/* when an action's input has arrived, seconds; negative if it has not been made yet */
static double ready_s(const struct act_run *run, const struct action *t)
{
    if (t->kind == 'W' || t->kind == 'O')
        return 0;
    return t->kind == 'F' ? relay_forward_s(run->relay, t->stage, t->microbatch)
                          : relay_backward_s(run->relay, t->stage, t->microbatch);
}

static void count_live(struct act_rank *k, const struct relay_stage *st, char kind)
{
    k->live_bytes += kind == 'F' ? st->keep : kind == 'I' ? st->late - st->keep : kind == 'W' ? -st->late : -st->keep;
    k->peak_bytes = relay_later(k->peak_bytes, k->live_bytes);
    k->live += kind == 'F';
    k->live -= kind == 'W' || kind == 'B';
    k->peak = k->live > k->peak ? k->live : k->peak;
}

/* Hands over the output of an action that has ended, and counts its activations. */
static void finish(struct act_run *run, struct act_rank *k, const struct action *t, double end)
{
    uint32_t to = NONE;
    if (t->kind != 'W')
        to = t->kind == 'F' ? relay_end_forward(run->relay, t->stage, t->microbatch, end)
                            : relay_end_backward(run->relay, t->stage, t->microbatch, end);
    if (to != NONE)
        relay_wake(run->relay, run->relay->stage[to].rank);
    count_live(k, &run->relay->stage[t->stage], t->kind);
}

static double duration_s(const struct act_run *run, const struct action *t)
{
    enum relay_kind kind = t->kind == 'F' ? RELAY_F : t->kind == 'B' ? RELAY_B : t->kind == 'I' ? RELAY_I : RELAY_W;
    return run->relay->stage[t->stage].takes[kind];
}

/* the factor on a duration under jitter */
static double off(struct act_run *run)
{
    uint64_t z = (run->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return 1 + run->jitter * ((double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1);
}

/* Runs an action, or a pair, with the transfers beside it; returns when they end. */
static struct beside_end take_beside(struct act_run *run, uint32_t r, const struct action *at, double start,
                                     double takes)
{
    double free_s = run->ranks[r].end_s;
    uint32_t k = (uint32_t)(at - run->s->actions[r]);
    if (!run->beside)
        return (struct beside_end){.end_s = start + takes};
    if (!at->pair)
        return beside_action(run->beside[r], k, start, free_s, takes);
    double first = duration_s(run, at), second = duration_s(run, at + 1);
    double share = first + second > 0 ? first / (first + second) : 0;
    return beside_pair(run->beside[r], k, start, free_s, share * takes, (1 - share) * takes);
}

/* Runs rank r until an input is missing. */
static void advance(struct act_run *run, uint32_t r)
{
    const struct schedule *s = run->s;
    struct act_rank *k = &run->ranks[r];
    const struct action *at = s->actions[r] + run->position[r], *end = s->actions[r] + s->nactions[r];
    for (; at < end && at->kind != 'O'; at += at->pair ? 2 : 1) {
        double ready = ready_s(run, at), takes;
        struct cost_pair pair = {0};
        if (ready < 0 || (run->early && at - s->actions[r] >= run->early[r]))
            break;
        ready = relay_later(ready, run->validated_s);
        if (at->pair) {
            double other = ready_s(run, at + 1);
            if (other < 0)
                break;
            ready = relay_later(ready, other);
            pair = relay_pair(run->relay, &run->relay->stage[at->stage], &run->relay->stage[at[1].stage]);
            takes = pair.end_s;
        } else {
            takes = duration_s(run, at);
        }
        if (run->jitter > 0)
            takes *= off(run);
        double start = relay_later(k->end_s, ready);
        if (at == s->actions[r])
            k->start_s = start;
        struct beside_end through = take_beside(run, r, at, start, takes);
        k->end_s = through.end_s;
        k->busy_s += takes;
        if (at->pair) {
            double stretch = pair.end_s > 0 ? takes / pair.end_s : 1;
            finish(run, k, at, start + through.late_s[0] + stretch * pair.forward_s);
            finish(run, k, at + 1, start + through.late_s[1] + stretch * pair.backward_s);
        } else {
            finish(run, k, at, start + takes + through.late_s[0]);
        }
    }
    run->position[r] = (uint32_t)(at - s->actions[r]);
}

static struct relay *prepare_stages(struct arena *a, const struct schedule *s, const struct pipeline_times *times,
                                    const struct act_bytes *bytes)
{
    uint32_t chain = s->nstages / s->copies;
    struct relay_stage *stages = ARENA_ARRAY(a, struct relay_stage, s->nstages);
    for (uint32_t i = 0; i < s->nstages; i++) {
        struct relay_stage *st = &stages[i];
        bool last = (i + 1) % chain == 0, first = i % chain == 0;
        relay_stage_times(st, times, i % chain, !last && s->stage_rank[i] != s->stage_rank[i + 1],
                          !first && s->stage_rank[i] != s->stage_rank[i - 1]);
        st->next = last ? NONE : i + 1;
        st->back = first ? NONE : i - 1;
        st->rank = s->stage_rank[i];
        st->keep = bytes ? bytes->keep[i % chain] : 1;
        st->late = bytes && bytes->late ? bytes->late[i % chain] : st->keep;
    }
    return relay_new(a, stages, s->nstages, s->nranks, s->microbatches, times->pairs);
}

static void run_on(struct act_run *run)
{
    for (uint32_t r; relay_next_rank(run->relay, &r);)
        advance(run, r);
}

/* Runs what a step may start before all ranks have agreed that the previous step is valid: its early actions, and
 * the gathering of parameters.  The sum over ranks that validates it comes after both (compiler/lower/order.c,
 * cross_seam()). */
static void run_early(struct act_run *run, const struct pipeline_times *times)
{
    run_on(run);
    run->early = NULL;
    for (uint32_t r = 0; r < run->s->nranks; r++) {
        run->validated_s = relay_later(
            run->validated_s, relay_later(run->ranks[r].end_s, beside_wire_s(run->beside[r])) + times->agree_s);
        relay_wake(run->relay, r);
    }
}

/* Runs the whole schedule from the ranks' current times; returns the end of its last action.  begins: by rank, when
 * transfers beside it may begin; NULL: at the end of the optimizer update. */
static double run_step(struct act_run *run, const struct pipeline_times *times, const double *begins)
{
    const struct schedule *s = run->s;
    relay_begin(run->relay);
    for (uint32_t r = s->nranks; r-- > 0;) {
        run->position[r] = 0;
        if (run->beside)
            run->ranks[r].end_s = beside_begin(run->beside[r], begins ? begins[r] : times->updates[r].update_s);
        relay_wake(run->relay, r);
    }
    if (run->early)
        run_early(run, times);
    run_on(run);
    double end = 0;
    for (uint32_t r = 0; r < s->nranks; r++) {
        end = relay_later(end, run->ranks[r].end_s);
        if (run->position[r] < s->nactions[r] && s->actions[r][run->position[r]].kind != 'O')
            end = INFINITY; /* deadlock: an infinite step is never chosen */
    }
    return end;
}

/* When, on each rank, its gradients are complete and its part of their norm is known. */
static double *settled(struct arena *a, const struct act_run *run, const struct pipeline_times *times)
{
    uint32_t n = run->s->nranks;
    double *ended = ARENA_ARRAY(a, double, n), *whole = ARENA_ARRAY(a, double, n);
    for (uint32_t r = 0; r < n; r++)
        ended[r] = run->ranks[r].end_s;
    if (!run->beside)
        return ended;
    beside_settle(run->beside, n, ended, whole);
    for (uint32_t r = 0; r < n; r++) {
        const struct pipeline_update *u = &times->updates[r];
        /* in this case buckets are summed in the order in which their norms are computed, which overlap */
        bool late = run->s->copies > 1 && !times->blocks;
        whole[r] = late ? relay_later(whole[r] + u->last_norm_s, ended[r] + u->norm_s) : whole[r] + u->norm_s;
    }
    return whole;
}

static void new_beside(struct arena *a, struct act_run *run, const struct pipeline_times *times)
{
    run->beside = arena_array(a, run->s->nranks, sizeof *run->beside);
    for (uint32_t r = 0; r < run->s->nranks; r++)
        run->beside[r] = beside_new(a, run->s, times, r);
}

static const uint32_t *early_actions(struct arena *a, const struct schedule *s)
{
    uint32_t *early = ARENA_ARRAY(a, uint32_t, s->nranks);
    for (uint32_t r = 0; r < s->nranks; r++)
        early[r] = schedule_early(s, r);
    return early;
}

/* Runs the step after one whose gradients are complete at ends[]; returns when its own are. */
static double *next_step(struct arena *a, struct act_run *run, const struct pipeline_times *times, const double *ends)
{
    uint32_t n = run->s->nranks;
    double *begins = ARENA_ARRAY(a, double, n);
    run->ranks = ARENA_ARRAY(a, struct act_rank, n);
    run->validated_s = 0;
    for (uint32_t r = 0; r < n; r++)
        run->ranks[r].end_s = begins[r] = ends[r] + (run->beside ? times->updates[r].update_s + times->agree_s : 0);
    if (run->beside) {
        new_beside(a, run, times);
        run->early = times->validated ? early_actions(a, run->s) : NULL;
    }
    run_step(run, times, begins);
    return settled(a, run, times);
}

/* The longest time on any rank from the end of one step to the end of the next, where each rank goes on when it is
 * done or, after what it may run early, when all are. */
static double period_s(struct arena *a, struct act_run *run, const struct pipeline_times *times)
{
    struct act_rank *first = run->ranks;
    double period = 0, *ends = settled(a, run, times);
    if (times->validated && run->beside)
        ends = next_step(a, run, times, ends);
    double *again = next_step(a, run, times, ends);
    for (uint32_t r = 0; r < run->s->nranks; r++)
        period = relay_later(period, again[r] - ends[r]);
    run->ranks = first;
    return period;
}

/* From the begin of one optimizer update to the next: until gradients are complete on all ranks and the global norm
 * is known. */
static double step_with_updates_s(struct arena *a, const struct act_run *run, const struct pipeline_times *times)
{
    double *ends = settled(a, run, times), step = 0;
    for (uint32_t r = 0; r < run->s->nranks; r++)
        step = relay_later(step, ends[r]);
    return step + times->agree_s;
}

/* When each rank's next actions may begin if on some rank the first state from host memory arrives late, because the
 * copy queue had activations to bring back; NULL: it arrives in time everywhere. */
static double *late_begins(struct arena *a, const struct act_run *run, const struct pipeline_times *times,
                           double step_s)
{
    uint32_t n = run->s->nranks;
    double *begins = ARENA_ARRAY(a, double, n);
    bool any = false;
    for (uint32_t r = 0; r < n; r++) {
        const struct pipeline_update *u = &times->updates[r];
        double there_s = step_s + times->seam_s + u->first_s;
        double late = u->ahead_s > 0 ? beside_copies_s(run->beside[r]) + u->ahead_s - there_s : 0;
        begins[r] = u->update_s + relay_later(late, 0);
        any |= late > 0;
    }
    return any ? begins : NULL;
}

/* Seconds of a step between updates that has been run once, run again where the previous step delays its begin. */
static double steady_step_s(struct arena *a, struct act_run *run, const struct pipeline_times *times)
{
    double step_s = step_with_updates_s(a, run, times), *begins = late_begins(a, run, times, step_s);
    if (!begins)
        return step_s;
    memset(run->ranks, 0, run->s->nranks * sizeof *run->ranks);
    relay_free_channels(run->relay);
    new_beside(a, run, times);
    run_step(run, times, begins);
    return step_with_updates_s(a, run, times);
}

double simulate_actions(struct arena *a, const struct schedule *s, const struct pipeline_times *times,
                        const struct act_bytes *bytes, struct act_rank *ranks)
{
    struct arena_mark mark = arena_mark(a);
    struct act_run run = {.s = s, .jitter = times->jitter, .random = times->seed, .ranks = ranks};
    if (!ranks)
        run.ranks = ARENA_ARRAY(a, struct act_rank, s->nranks);
    memset(run.ranks, 0, s->nranks * sizeof *run.ranks);
    run.relay = prepare_stages(a, s, times, bytes);
    run.position = ARENA_ARRAY(a, uint32_t, s->nranks);
    if (times->moves)
        new_beside(a, &run, times);
    double step_s = run_step(&run, times, NULL);
    if (s->skews && times->skewed && isfinite(step_s))
        step_s = period_s(a, &run, times);
    else if (run.beside && isfinite(step_s))
        step_s = steady_step_s(a, &run, times);
    for (uint32_t r = 0; r < s->nranks; r++)
        run.ranks[r].idle_s = step_s - run.ranks[r].busy_s;
    arena_reset(a, mark);
    return step_s;
}
