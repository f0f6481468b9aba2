/* Synthesised schedules: their steps as ratios to the best formula that fits the same memory and to the bound,
 * published schedulers' figures, and how long making one takes.  Seconds are processor time. */

#include "compiler/cost/pipeline.h"
#include "compiler/simulate/simulate.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#define MOST_STAGES 512
#define MOST_RANKS 128

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct load {
    struct decision d;
    bool folds;
    struct pipeline_stage stages[MOST_STAGES];
    struct pipeline_times times;
    double keep[MOST_STAGES], late[MOST_STAGES], most[MOST_RANKS];
    struct act_bytes bytes;
};

/* times of a rank's whole share; room: microbatches of it; head: of the last stage, on top */
static void make_load(struct load *x, uint32_t p, uint32_t v, bool folds, uint32_t m, const double times[4], double room,
                      double head)
{
    x->d = (struct decision){.pp = p, .vpp = v, .nstages = p * v, .microbatches = m};
    x->folds = folds;
    x->times = (struct pipeline_times){.stages = x->stages};
    for (uint32_t s = 0; s < p * v; s++) {
        double size = 1.0 / v + (s + 1 == p * v ? head : 0);
        x->stages[s] = (struct pipeline_stage){.forward_s = times[0] * size,
                                               .backward_s = (times[1] + times[2]) * size,
                                               .input_s = times[1] * size,
                                               .weight_s = times[2] * size,
                                               .next_s = times[3],
                                               .back_s = times[3]};
        x->keep[s] = x->late[s] = 1.0 / v;
    }
    x->bytes = (struct act_bytes){x->keep, x->late};
    for (uint32_t r = 0; r < p; r++)
        x->most[r] = room;
}

/* the best formula's makespan in the same memory; INFINITY without one */
static double best_formula_s(struct arena *a, const struct load *x, const char **name)
{
    double best = INFINITY;
    struct act_rank ranks[MOST_RANKS];
    *name = "none";
    for (int k = 0; k < SCHED_AUTO; k++) {
        struct decision d = x->d;
        d.schedule = (enum schedule_kind)k;
        uint32_t chunks = schedule_chunks(d.schedule);
        if (k == SCHED_DUALPIPE || decision_folds(&d) != x->folds || (chunks && chunks != d.vpp) ||
            schedule_unsupported(a, &d))
            continue;
        double step_s = simulate_actions(a, schedule_new(a, &d), &x->times, &x->bytes, ranks);
        for (uint32_t r = 0; r < d.pp; r++)
            if (ranks[r].peak_bytes > x->most[r] * (1 + 1e-9))
                step_s = INFINITY;
        if (step_s < best) {
            best = step_s;
            *name = schedule_name(d.schedule);
        }
    }
    return best;
}

static void line(struct arena *a, const struct load *x)
{
    struct schedule_costs c = {
        .times = &x->times, .keep_bytes = x->keep, .late_bytes = x->late, .most_bytes = x->most, .folds = x->folds};
    const char *name;
    double formula_s = best_formula_s(a, x, &name), step_s = 0, start = now_s();
    const struct schedule *s = schedule_auto(a, &x->d, &c, &step_s);
    double seconds = now_s() - start, bound_s = schedule_auto_bound_s(a, &x->d, &c, false);
    printf("  %4u %4u %-7s %5u %8.1f   %10.4f %9.4f %12s %9.3f\n", x->d.pp, x->d.vpp, x->folds ? "folded" : "looped",
           x->d.microbatches, x->most[0], isfinite(formula_s) ? step_s / formula_s : 0, s ? step_s / bound_s : 0, name,
           seconds);
}

static void bench_ratios(struct arena *a, struct load *x)
{
    static const struct {
        uint32_t p, v;
        bool folds;
        uint32_t m;
        double room; /* times p */
    } rows[] = {{8, 1, false, 32, 1},     {8, 1, false, 32, 1.5},  {8, 1, false, 32, 2},    {8, 2, true, 32, 0.5},
                {8, 2, true, 32, 0.75},   {8, 2, true, 32, 1},     {8, 2, false, 32, 1.5},  {8, 4, false, 32, 1.25},
                {16, 1, false, 64, 1},    {16, 2, true, 64, 0.5},  {16, 2, true, 64, 1},    {16, 4, false, 64, 1.25},
                {32, 2, true, 128, 0.75}, {64, 1, false, 256, 1},  {64, 1, false, 256, 2},  {64, 2, true, 256, 0.5},
                {64, 2, true, 256, 1},    {64, 4, false, 256, 1.25}};
    const double times[4] = {1, 1.1, 0.9, 0.03};
    printf("F, I, W = 1, 1.1, 0.9; transfers 0.03; a head of 0.25 of a rank's share; memory in microbatches\n"
           "  pp  vpp placement  mb   memory   of formula  of bound      formula   seconds\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena_mark mark = arena_mark(a);
        make_load(x, rows[i].p, rows[i].v, rows[i].folds, rows[i].m, times, rows[i].room * rows[i].p, 0.25);
        line(a, x);
        arena_reset(a, mark);
    }
}

/* sail-sg's scheduler (zero-bubble-pipeline-parallelism, auto_schedule.py, its eight rules run again): bubble of the
 * longest rank's span, one stage per rank.  Its own account of memory has 34h + 5as from F to I and 32h of it from I to
 * W; h, a, s of the model that the times are of. */
static void bench_published(struct arena *a, struct load *x)
{
    static const struct {
        uint32_t p, m, room;
        double idle[2]; /* all stays until W; W needs 32h */
    } rows[] = {{8, 32, 8, {12.380, 12.380}},
                {8, 32, 16, {7.814, 0.363}},
                {16, 128, 16, {7.036, 7.036}},
                {16, 128, 32, {4.509, 0.195}}};
    const double times[4] = {18522, 18086, 9337, 601}, late[2] = {1, 32 * 2304 / (34 * 2304 + 5 * 24 * 1024.0)};
    struct act_rank ranks[MOST_RANKS];
    printf("times of a real run, idle per cent of a rank's span   from I to W   published     ours   least possible\n");
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        struct arena_mark mark = arena_mark(a);
        uint32_t k = (uint32_t)(i / 2), p = rows[k].p;
        double work = rows[k].m * (times[0] + times[1] + times[2]), step_s, span_s = 0, peak = 0;
        make_load(x, p, 1, false, rows[k].m, times, rows[k].room, 0);
        for (uint32_t s = 0; s < p; s++)
            x->late[s] = late[i % 2];
        x->times.skewed = true;
        struct schedule_costs c = {
            .times = &x->times, .keep_bytes = x->keep, .late_bytes = x->late, .most_bytes = x->most};
        const struct schedule *s = schedule_auto(a, &x->d, &c, &step_s);
        simulate_actions(a, s, &x->times, &x->bytes, ranks);
        for (uint32_t r = 0; r < p; r++) {
            span_s = fmax(span_s, ranks[r].end_s - ranks[r].start_s);
            peak = fmax(peak, ranks[r].peak_bytes);
        }
        printf("  pp %2u, %3u microbatches, memory of %2u (%5.2f)  %8.0f %% %11.3f %8.3f %16.3f\n", p, rows[k].m,
               rows[k].room, peak, 100 * late[i % 2], rows[k].idle[i % 2], 100 - 100 * work / span_s,
               100 - 100 * work / schedule_auto_bound_s(a, &x->d, &c, false));
        arena_reset(a, mark);
    }
}

int main(void)
{
    struct arena *a = arena_new();
    struct load *x = ARENA_NEW(a, struct load);
    bench_ratios(a, x);
    bench_published(a, x);
    arena_free(a);
    return 0;
}
