/* What the search does a hundred thousand times: bounds of pipelines, and runs of actions with their schedule
 * made anew. Per second of processor time.  Rates at 8 ranks and 64 microbatches, and growth curves: time per
 * stage and per action stays flat. */

#include "compiler/simulate/simulate.h"
#include "compiler/support/vec.h"

#include <stdio.h>
#include <time.h>

#define MOST_STAGES 2048
#define SECONDS 0.05 /* per line */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct load {
    struct decision d;
    struct pipeline_stage stages[MOST_STAGES];
    struct pipeline_times times;
};

static void make_load(struct load *x, enum schedule_kind kind, uint32_t p, uint32_t v, uint32_t m)
{
    x->d = (struct decision){.schedule = kind, .pp = p, .vpp = v, .nstages = p * v, .microbatches = m};
    for (uint32_t s = 0; s < x->d.nstages; s++) {
        double size = s + 1 == x->d.nstages ? 1.2 : 1;
        x->stages[s] = (struct pipeline_stage){.forward_s = 1 * size, .backward_s = 2 * size, .input_s = 1.1 * size,
                                               .weight_s = 0.9 * size, .next_s = 0.05, .back_s = 0.05};
    }
    x->times = (struct pipeline_times){.stages = x->stages};
}

/* runs per second of a schedule made and run; its makespan in *makespan_s, its actions in *nactions */
static double run_rate(struct arena *a, const struct load *x, double *makespan_s, uint64_t *nactions)
{
    double start = now_s(), end = start;
    uint64_t runs = 0;
    while (end - start < SECONDS) {
        struct arena_mark mark = arena_mark(a);
        const struct schedule *s = schedule_new(a, &x->d);
        *makespan_s = simulate_actions(a, s, &x->times, NULL, NULL);
        *nactions = 0;
        for (uint32_t r = 0; r < s->nranks; r++)
            *nactions += s->nactions[r] - 1;
        arena_reset(a, mark);
        runs++;
        end = now_s();
    }
    return (double)runs / (end - start);
}

static double bound_rate(const struct load *x, double *bound_s)
{
    double start = now_s(), end = start;
    uint64_t runs = 0;
    while (end - start < SECONDS) {
        for (int k = 0; k < 100; k++)
            *bound_s = pipeline_bound_s(&x->d, &x->times);
        runs += 100;
        end = now_s();
    }
    return (double)runs / (end - start);
}

static void bench_schedules(struct arena *a, struct load *x)
{
    static const struct {
        const char *name;
        enum schedule_kind kind;
        uint32_t v;
    } all[] = {{"gpipe", SCHED_GPIPE, 1},
               {"1f1b", SCHED_1F1B, 1},
               {"eager_1f1b", SCHED_EAGER_1F1B, 1},
               {"interleaved", SCHED_INTERLEAVED, 2},
               {"combined_1f1b", SCHED_COMBINED_1F1B, 2},
               {"zb_h1", SCHED_ZB_H1, 1},
               {"zb_h2", SCHED_ZB_H2, 1},
               {"zb_v", SCHED_ZB_V, 2},
               {"v_half", SCHED_V_HALF, 2},
               {"v_min", SCHED_V_MIN, 2},
               {"dualpipe", SCHED_DUALPIPE, 1},
               {"dualpipe_v", SCHED_DUALPIPE_V, 2}};
    printf("8 ranks, 64 microbatches   runs/s   ns/action   bounds/s   bound/run\n");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        double makespan_s = 0, bound_s = 0;
        uint64_t nactions = 0;
        make_load(x, all[i].kind, 8, all[i].v, 64);
        double runs = run_rate(a, x, &makespan_s, &nactions), bounds = bound_rate(x, &bound_s);
        printf("  %-20s %10.0f %11.1f %10.0f %11.4f\n", all[i].name, runs, 1e9 / runs / (double)nactions,
               bounds, bound_s / makespan_s);
    }
}

static void bench_growth(struct arena *a, struct load *x)
{
    static const uint32_t ranks[] = {4, 8, 16, 32, 64, 128}, microbatches[] = {16, 64, 256, 1024};
    printf("1f1b, runs/s and ns/action   ");
    for (size_t k = 0; k < ARRAY_LEN(microbatches); k++)
        printf("%11s m = %-4u", "", microbatches[k]);
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        printf("\n  %3u ranks                  ", ranks[i]);
        for (size_t k = 0; k < ARRAY_LEN(microbatches); k++) {
            double makespan_s = 0;
            uint64_t nactions = 0;
            make_load(x, SCHED_1F1B, ranks[i], 1, microbatches[k]);
            double runs = run_rate(a, x, &makespan_s, &nactions);
            printf("%12.0f %6.1f", runs, 1e9 / runs / (double)nactions);
        }
    }
    printf("\nbounds/s and ns/stage               1f1b         interleaved 4             zb_v\n");
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        static const struct {
            enum schedule_kind kind;
            uint32_t v;
        } kinds[] = {{SCHED_1F1B, 1}, {SCHED_INTERLEAVED, 4}, {SCHED_ZB_V, 2}};
        printf("  %3u ranks          ", ranks[i]);
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            double bound_s = 0;
            make_load(x, kinds[k].kind, ranks[i], kinds[k].v, 8 * ranks[i]);
            double bounds = bound_rate(x, &bound_s);
            printf("%14.0f %6.1f", bounds, 1e9 / bounds / x->d.nstages);
        }
        printf("\n");
    }
}

int main(void)
{
    struct arena *a = arena_new();
    struct load *x = ARENA_NEW(a, struct load);
    bench_schedules(a, x);
    bench_growth(a, x);
    arena_free(a);
    return 0;
}
