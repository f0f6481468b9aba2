/* Run of a schedule's actions with durations, without instructions.
 *
 * A rank runs its list in order; F waits for the transfer from the stage before, B and I for the one from the
 * stage after.  A transfer starts when its producer has ended and the one before it on the same boundary and
 * direction is through ("queue per peer and direction", the upper reference of receive placement: the timed
 * order of the emitted instructions is within a few per cent of it).  Receivers always have a free slot:
 * rings are as deep as the schedule needs.  A backward begins with what it needs no gradient for (lead_s).  The
 * `held` part of a transfer is computed time lost on the sender and prolongs its action instead.  A pair starts when both its actions can; it takes both less what they
 * hide of each other, but not less than the longer one.
 *
 * Where the optimizer step of a rank does not wait for others (schedule.h) two steps run one after the other.
 *
 * A boundary's transfers in one direction come from one rank, in its order, so no time depends on the order
 * in which ranks are looked at: a rank runs until an input is missing, and whoever makes one wakes the rank
 * that needs it. Linear in actions; two numbers per stage and microbatch. */

#include "compiler/simulate/beside.h"
#include "compiler/simulate/simulate.h"

#include <math.h>
#include <string.h>

#define NOT_YET (-1.0)

/* durations of a stage with what its sends hold, and latencies of the transfers */
struct act_stage {
    double forward, backward, input, weight, next, back;
    double forward_held, backward_held, forward_hidden, backward_hidden, lead;
    uint32_t next_rank, back_rank; /* NONE: no stage there */
    double keep_bytes, late_bytes;
};

struct act_run {
    const struct schedule *s;
    struct act_stage *stage;
    double *forward_in, *backward_in; /* arrival, by stage * microbatches + microbatch */
    double *next_free, *back_free;    /* of a stage's two outgoing channels */
    struct cost_pairs *pairs;
    double jitter;
    uint64_t random; /* splitmix64's state (Steele, Lea and Flood 2014) */
    uint32_t *position, *stack, nstack;
    bool *stacked;
    struct act_rank *ranks;
    struct beside **beside; /* by rank; NULL: actions alone */
    const uint32_t *early;  /* by rank: actions that run before the step before is known to be good; NULL: it is */
    double validated_s;     /* when it is known */
};

static void wake(struct act_run *run, uint32_t rank)
{
    if (!run->stacked[rank]) {
        run->stacked[rank] = true;
        run->stack[run->nstack++] = rank;
    }
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* when an action's input is there; NOT_YET if it has not been made */
static double ready_s(const struct act_run *run, const struct action *t)
{
    size_t here = (size_t)t->stage * run->s->microbatches + t->microbatch;
    double in = t->kind == 'F'                     ? run->forward_in[here]
                : t->kind == 'W' || t->kind == 'O' ? 0
                                                   : run->backward_in[here];
    bool leads = in > 0 && (t->kind == 'B' || t->kind == 'I');
    return leads ? later(in - run->stage[t->stage].lead, 0) : in;
}

static void send_forward(struct act_run *run, uint32_t stage, size_t here, double end)
{
    const struct act_stage *st = &run->stage[stage];
    if (st->next_rank == NONE) { /* the last stage: its own backward may come */
        run->backward_in[here] = end;
        return;
    }
    if (st->next > 0)
        run->next_free[stage] = end = later(run->next_free[stage], end) + st->next;
    run->forward_in[here + run->s->microbatches] = end;
    wake(run, st->next_rank);
}

static void send_backward(struct act_run *run, uint32_t stage, size_t here, double end)
{
    const struct act_stage *st = &run->stage[stage];
    if (st->back_rank == NONE)
        return;
    if (st->back > 0)
        run->back_free[stage] = end = later(run->back_free[stage], end) + st->back;
    run->backward_in[here - run->s->microbatches] = end;
    wake(run, st->back_rank);
}

static void count_live(struct act_rank *k, const struct act_stage *st, char kind)
{
    k->live_bytes += kind == 'F'   ? st->keep_bytes
                     : kind == 'I' ? st->late_bytes - st->keep_bytes
                     : kind == 'W' ? -st->late_bytes
                                   : -st->keep_bytes;
    k->peak_bytes = later(k->peak_bytes, k->live_bytes);
    k->live += kind == 'F';
    k->live -= kind == 'W' || kind == 'B';
    k->peak = k->live > k->peak ? k->live : k->peak;
}

/* what follows from an action that ended */
static void finish(struct act_run *run, struct act_rank *k, const struct action *t, double end)
{
    size_t here = (size_t)t->stage * run->s->microbatches + t->microbatch;
    if (t->kind == 'F')
        send_forward(run, t->stage, here, end);
    else if (t->kind != 'W')
        send_backward(run, t->stage, here, end);
    count_live(k, &run->stage[t->stage], t->kind);
}

static double duration_s(const struct act_stage *st, char kind)
{
    return kind == 'F' ? st->forward : kind == 'B' ? st->backward : kind == 'I' ? st->input : st->weight;
}

/* of an action and the next one, together: where both end, and where each one's output is there */
static struct cost_pair pair_s(const struct act_run *run, const struct action *at)
{
    uint32_t chain = run->s->nstages / run->s->copies;
    const struct act_stage *f = &run->stage[at->stage], *b = &run->stage[at[1].stage];
    double f_s = f->forward - f->forward_held, b_s = b->backward - b->backward_held;
    double held = f->forward_held + b->backward_held, hidden = f->forward_hidden + b->backward_hidden;
    struct cost_pair p = cost_pair(run->pairs, at->stage % chain, at[1].stage % chain, f_s, b_s, hidden);
    return (struct cost_pair){p.forward_s + held, p.backward_s + held, p.end_s + held};
}

/* what a duration is multiplied with under jitter */
static double off(struct act_run *run)
{
    uint64_t z = (run->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return 1 + run->jitter * ((double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1);
}

/* an action, or a pair in turn, with what travels beside it */
static struct beside_end take_beside(struct act_run *run, uint32_t r, const struct action *at, double start, double takes)
{
    double free_s = run->ranks[r].end_s;
    uint32_t k = (uint32_t)(at - run->s->actions[r]);
    if (!run->beside)
        return (struct beside_end){.end_s = start + takes};
    if (!at->pair)
        return beside_action(run->beside[r], k, start, free_s, takes);
    double first = duration_s(&run->stage[at->stage], at->kind), second = duration_s(&run->stage[at[1].stage], at[1].kind);
    double share = first + second > 0 ? first / (first + second) : 0;
    return beside_pair(run->beside[r], k, start, free_s, share * takes, (1 - share) * takes);
}

/* runs rank r as far as its inputs go */
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
        ready = later(ready, run->validated_s);
        if (at->pair) {
            double other = ready_s(run, at + 1);
            if (other < 0)
                break;
            ready = later(ready, other);
            pair = pair_s(run, at);
            takes = pair.end_s;
        } else {
            takes = duration_s(&run->stage[at->stage], at->kind);
        }
        if (run->jitter > 0)
            takes *= off(run);
        double start = later(k->end_s, ready);
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

static void prepare_stages(struct act_run *run, const struct pipeline_times *times, const struct act_bytes *bytes)
{
    const struct schedule *s = run->s;
    uint32_t chain = s->nstages / s->copies;
    for (uint32_t i = 0; i < s->nstages; i++) {
        const struct pipeline_stage *from = &times->stages[i % chain];
        bool last = (i + 1) % chain == 0, first = i % chain == 0;
        bool sends = !last && s->stage_rank[i] != s->stage_rank[i + 1];
        bool sends_back = !first && s->stage_rank[i] != s->stage_rank[i - 1];
        struct act_stage *st = &run->stage[i];
        st->forward_held = sends ? times->held * from->next_s : 0;
        st->backward_held = sends_back ? times->held * from->back_s : 0;
        st->forward_hidden = from->forward_hidden_s;
        st->backward_hidden = from->backward_hidden_s;
        st->forward = from->forward_s + st->forward_held;
        st->backward = from->backward_s + st->backward_held;
        st->input = from->input_s + st->backward_held;
        st->weight = from->weight_s;
        st->lead = from->lead_s;
        st->next = sends ? (1 - times->held) * from->next_s : 0;
        st->back = sends_back ? (1 - times->held) * from->back_s : 0;
        st->next_rank = last ? NONE : s->stage_rank[i + 1];
        st->back_rank = first ? NONE : s->stage_rank[i - 1];
        st->keep_bytes = bytes ? bytes->keep[i % chain] : 1;
        st->late_bytes = bytes && bytes->late ? bytes->late[i % chain] : st->keep_bytes;
        double *in = run->forward_in + (size_t)i * s->microbatches;
        for (uint32_t m = 0; !first && m < s->microbatches; m++)
            in[m] = NOT_YET;
    }
    for (size_t i = 0; i < (size_t)s->nstages * s->microbatches; i++)
        run->backward_in[i] = NOT_YET;
}

static void run_on(struct act_run *run)
{
    while (run->nstack) {
        uint32_t r = run->stack[--run->nstack];
        run->stacked[r] = false;
        advance(run, r);
    }
}

/* What a step begins with before all ranks have agreed that the one before is good: actions, and parameters on their way; the
 * sum over ranks comes behind both (compiler/lower/order.c, cross_seam()). */
static void run_early(struct act_run *run, const struct pipeline_times *times)
{
    run_on(run);
    run->early = NULL;
    for (uint32_t r = 0; r < run->s->nranks; r++) {
        run->validated_s = later(run->validated_s, later(run->ranks[r].end_s, beside_wire_s(run->beside[r])) + times->agree_s);
        wake(run, r);
    }
}

/* the whole schedule, from where the ranks are; returns the end of its last action.  begins: by rank, of what travels beside
 * it; NULL: at the update's end */
static double run_step(struct act_run *run, const struct pipeline_times *times, const struct act_bytes *bytes,
                       const double *begins)
{
    const struct schedule *s = run->s;
    prepare_stages(run, times, bytes);
    for (uint32_t r = s->nranks; r-- > 0;) {
        run->position[r] = 0;
        if (run->beside)
            run->ranks[r].end_s = beside_begin(run->beside[r], begins ? begins[r] : times->updates[r].update_s);
        wake(run, r);
    }
    if (run->early)
        run_early(run, times);
    run_on(run);
    double end = 0;
    for (uint32_t r = 0; r < s->nranks; r++) {
        end = later(end, run->ranks[r].end_s);
        if (run->position[r] < s->nactions[r] && s->actions[r][run->position[r]].kind != 'O')
            end = INFINITY; /* stuck; an infinite step is nobody's choice */
    }
    return end;
}

/* when each rank's gradients are whole, and how large they are is known there */
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
        bool late = run->s->copies > 1 && !times->blocks; /* then buckets are summed in the order of their norms, which run beside */
        whole[r] = late ? later(whole[r] + u->last_norm_s, ended[r] + u->norm_s) : whole[r] + u->norm_s;
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

/* the step behind one whose gradients are whole at ends[]; returns when its own are */
static double *next_step(struct arena *a, struct act_run *run, const struct pipeline_times *times, const struct act_bytes *bytes,
                         const double *ends)
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
    run_step(run, times, bytes, begins);
    return settled(a, run, times);
}

/* Seconds from a step's end to the next one's on the rank where it is longest, each rank going on when it is through, or, behind
 * what it may run early, when all are. */
static double period_s(struct arena *a, struct act_run *run, const struct pipeline_times *times,
                       const struct act_bytes *bytes)
{
    struct act_rank *first = run->ranks;
    double period = 0, *ends = settled(a, run, times);
    if (times->validated && run->beside)
        ends = next_step(a, run, times, bytes, ends);
    double *again = next_step(a, run, times, bytes, ends);
    for (uint32_t r = 0; r < run->s->nranks; r++)
        period = later(period, again[r] - ends[r]);
    run->ranks = first;
    return period;
}

/* From one update's begin to the next: gradients whole on all ranks, and the norm of all. */
static double step_with_updates_s(struct arena *a, const struct act_run *run, const struct pipeline_times *times)
{
    double *ends = settled(a, run, times), step = 0;
    for (uint32_t r = 0; r < run->s->nranks; r++)
        step = later(step, ends[r]);
    return step + times->agree_s;
}

/* When each rank's next actions may begin where some rank's first state from host memory is late, because the queue of copies
 * had activations to bring back; NULL: it is there in time everywhere. */
static double *late_begins(struct arena *a, const struct act_run *run, const struct pipeline_times *times, double step_s)
{
    uint32_t n = run->s->nranks;
    double *begins = ARENA_ARRAY(a, double, n);
    bool any = false;
    for (uint32_t r = 0; r < n; r++) {
        const struct pipeline_update *u = &times->updates[r];
        double there_s = step_s + times->seam_s + u->first_s;
        double late = u->ahead_s > 0 ? beside_copies_s(run->beside[r]) + u->ahead_s - there_s : 0;
        begins[r] = u->update_s + later(late, 0);
        any |= late > 0;
    }
    return any ? begins : NULL;
}

/* a step between updates that has been run once, with what its begin owes to its end */
static double steady_step_s(struct arena *a, struct act_run *run, const struct pipeline_times *times, const struct act_bytes *bytes)
{
    double step_s = step_with_updates_s(a, run, times), *begins = late_begins(a, run, times, step_s);
    if (!begins)
        return step_s;
    memset(run->ranks, 0, run->s->nranks * sizeof *run->ranks);
    memset(run->next_free, 0, run->s->nstages * sizeof *run->next_free);
    memset(run->back_free, 0, run->s->nstages * sizeof *run->back_free);
    new_beside(a, run, times);
    run_step(run, times, bytes, begins);
    return step_with_updates_s(a, run, times);
}

double simulate_actions(struct arena *a, const struct schedule *s, const struct pipeline_times *times,
                        const struct act_bytes *bytes, struct act_rank *ranks)
{
    struct arena_mark mark = arena_mark(a);
    size_t cells = (size_t)s->nstages * s->microbatches;
    struct act_run run = {.s = s, .pairs = times->pairs, .jitter = times->jitter, .random = times->seed, .ranks = ranks};
    if (!ranks)
        run.ranks = ARENA_ARRAY(a, struct act_rank, s->nranks);
    memset(run.ranks, 0, s->nranks * sizeof *run.ranks);
    run.stage = ARENA_ARRAY(a, struct act_stage, s->nstages);
    run.forward_in = ARENA_ARRAY(a, double, cells);
    run.backward_in = ARENA_ARRAY(a, double, cells);
    run.next_free = ARENA_ARRAY(a, double, s->nstages);
    run.back_free = ARENA_ARRAY(a, double, s->nstages);
    run.position = ARENA_ARRAY(a, uint32_t, s->nranks);
    run.stack = ARENA_ARRAY(a, uint32_t, s->nranks);
    run.stacked = ARENA_ARRAY(a, bool, s->nranks);
    if (times->moves)
        new_beside(a, &run, times);
    double step_s = run_step(&run, times, bytes, NULL);
    if (s->skews && times->skewed && isfinite(step_s))
        step_s = period_s(a, &run, times, bytes);
    else if (run.beside && isfinite(step_s))
        step_s = steady_step_s(a, &run, times, bytes);
    for (uint32_t r = 0; r < s->nranks; r++)
        run.ranks[r].idle_s = step_s - run.ranks[r].busy_s;
    arena_reset(a, mark);
    return step_s;
}
