/* Run of actions: every schedule's bubble and memory as its paper has them, against closed forms and a table.
 */

#include "compiler/simulate/simulate.h"

#include <CUnit/Basic.h>
#include <math.h>

/* one run with equal stages, times of a rank's whole share of the layers */
struct shape {
    enum schedule_kind kind;
    uint32_t p, v, m, group;
    double f, i, w, c, pair;
};
struct outcome {
    double step_s, makespan_s, span_s; /* span: from a rank's first action to its last, the longest */
    double peak;                       /* microbatches of a rank's whole share, on the fullest rank */
};

static struct outcome run(const struct shape *x)
{
    struct arena *a = arena_new();
    struct decision d = {.pp = x->p,
                         .vpp = x->v,
                         .microbatches = x->m,
                         .nstages = x->p * x->v,
                         .schedule = x->kind,
                         .schedule_group = x->group};
    struct pipeline_stage stages[128];
    struct act_rank ranks[32];
    double share = x->kind == SCHED_DUALPIPE ? 1 : x->v;
    double hidden = x->pair > 0 ? (1 - x->pair) / share : 0;
    for (uint32_t s = 0; s < d.nstages; s++)
        stages[s] = (struct pipeline_stage){
            x->f / share, (x->i + x->w) / share, x->i / share,          x->w / share, x->c,
            x->c,         hidden * x->f,         hidden * (x->i + x->w), 0, 0};
    struct pipeline_times times = {.stages = stages, .skewed = true};
    const struct schedule *s = schedule_new(a, &d);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    struct outcome o = {.step_s = simulate_actions(a, s, &times, NULL, ranks)};
    for (uint32_t r = 0; r < x->p; r++) {
        o.makespan_s = fmax(o.makespan_s, ranks[r].end_s);
        o.span_s = fmax(o.span_s, ranks[r].end_s - ranks[r].start_s);
        o.peak = fmax(o.peak, ranks[r].peak / share);
        CU_ASSERT_EQUAL(ranks[r].live, 0);
        CU_ASSERT_DOUBLE_EQUAL(ranks[r].busy_s + ranks[r].idle_s, o.step_s, 1e-9);
    }
    arena_free(a);
    return o;
}

/* GPipe (Huang et al. 2019) and 1F1B: (p-1)/(m+p-1) of the step; interleaved (SC'21): (p-1)/(v m) of the
 * ideal time */
static void test_bubbles(void)
{
    for (uint32_t p = 1; p <= 8; p++)
        for (uint32_t m = 1; m <= 3 * p; m++) {
            const enum schedule_kind kinds[] = {SCHED_GPIPE, SCHED_1F1B, SCHED_EAGER_1F1B};
            for (size_t k = 0; k < 3; k++) {
                struct outcome o = run(&(struct shape){kinds[k], p, 1, m, 0, 3, 4, 3, 0, 1});
                CU_ASSERT_EQUAL(o.makespan_s, (m + p - 1) * 10.0);
                CU_ASSERT_DOUBLE_EQUAL(1 - m * 10 / o.makespan_s, (p - 1.0) / (m + p - 1), 1e-12);
            }
        }
    for (uint32_t p = 2; p <= 8; p++)
        for (uint32_t v = 2; v <= 4; v++)
            for (uint32_t m = p; m <= 4 * p; m += p) {
                struct outcome o = run(&(struct shape){SCHED_INTERLEAVED, p, v, m, 0, 12, 12, 12, 0, 1});
                CU_ASSERT_DOUBLE_EQUAL(o.makespan_s / (m * 36) - 1, (p - 1.0) / (v * m), 1e-12);
            }
}

/* with transfers: (m+p-1)(F+X) + 2c[(p-1)m/p + p-2] for p | m, and 2c(p-1) for the eager order */
static void test_transfers(void)
{
    for (uint32_t p = 2; p <= 8; p++)
        for (uint32_t m = p; m <= 4 * p; m += p) {
            double hops = (p - 1) * (m / p) + p - 2;
            CU_ASSERT_EQUAL(run(&(struct shape){SCHED_1F1B, p, 1, m, 0, 100, 100, 100, 5, 1}).makespan_s,
                            (m + p - 1) * 300.0 + 10 * hops);
            CU_ASSERT_EQUAL(
                run(&(struct shape){SCHED_EAGER_1F1B, p, 1, m, 0, 100, 100, 100, 5, 1}).makespan_s,
                (m + p - 1) * 300.0 + 10.0 * (p - 1));
        }
}

/* Bubble in per cent of the makespan with F = I = W = 1 and free transfers; peak: microbatches on the fullest
 * of 8 ranks. Of ZB-H1, ZB-H2 and ZB-V it is what any schedule of their placement leaves: (p-1)F, (p-1)F/2.
 */
static const struct {
    enum schedule_kind kind;
    uint32_t v;
    double idle[4]; /* p4 m8, p8 m24, p8 m64, p16 m64 */
    double peak;
} table[] = {
    {SCHED_GPIPE, 1, {27.27, 22.58, 9.86, 18.99}, 24},
    {SCHED_1F1B, 1, {27.27, 22.58, 9.86, 18.99}, 8},
    {SCHED_INTERLEAVED, 2, {15.79, 12.73, 5.19, 10.49}, 11.5},
    {SCHED_INTERLEAVED, 4, {8.57, 6.80, 2.66, 5.54}, 9.75},
    {SCHED_ZB_H1, 1, {11.11, 8.86, 3.52, 7.25}, 8},
    {SCHED_ZB_H2, 1, {11.11, 8.86, 3.52, 7.25}, 15},
    {SCHED_ZB_V, 2, {5.88, 4.64, 1.79, 3.76}, 8},
    {SCHED_DUALPIPE_V, 2, {11.11, 8.86, 3.52, 7.25}, 8.5},
    {SCHED_DUALPIPE, 1, {7.69, 7.69, 3.03, 6.80}, 9},
};

static void test_table(void)
{
    const uint32_t p[4] = {4, 8, 8, 16}, m[4] = {8, 24, 64, 64};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int k = 0; k < 4; k++) {
            struct outcome o = run(&(struct shape){table[i].kind, p[k], table[i].v, m[k], 0, 1, 1, 1, 0, 1});
            CU_ASSERT_DOUBLE_EQUAL(100 - 300 * m[k] / o.makespan_s, table[i].idle[k], 0.005);
            if (k == 1)
                CU_ASSERT_DOUBLE_EQUAL(o.peak, table[i].peak, 0.001);
            if (pipeline_skews(table[i].kind)) { /* no rank idles inside its own span, nor when steps follow
                                                    each other */
                CU_ASSERT_DOUBLE_EQUAL(o.span_s, 3 * m[k], 1e-9);
                CU_ASSERT_DOUBLE_EQUAL(o.step_s, 3 * m[k], 1e-9);
            } else {
                CU_ASSERT_EQUAL(o.step_s, o.makespan_s);
            }
        }
}

/* Worked examples of the papers, F, I, W unequal. */
static void test_papers(void)
{
    for (uint32_t p = 2; p <= 10; p++) {
        uint32_t m = 4 * p;
        /* Qi et al. 2023: (p-1)(F+I-W), and with 2p microbatches' memory (p-1)(F+I-2W) inside each rank's
         * span */
        double t = run(&(struct shape){SCHED_ZB_H1, p, 1, m, 0, 10, 12, 8, 0, 1}).makespan_s;
        CU_ASSERT_DOUBLE_EQUAL(t - 30.0 * m, (p - 1) * (10 + 12 - 8.0), 1e-9);
        t = run(&(struct shape){SCHED_ZB_H2, p, 1, m, 0, 10, 12, 8, 0, 1}).span_s;
        CU_ASSERT_DOUBLE_EQUAL(t - 30.0 * m, (p - 1) * (10 + 12 - 16.0), 1e-9);
        /* Qi et al. 2024: V-Half and V-Min hold about p/2 and p/3 and idle for about 1/2 and 2/3 of 1F1B */
        struct outcome half = run(&(struct shape){SCHED_V_HALF, p, 2, m, 0, 1, 1, 1, 0, 1});
        struct outcome third = run(&(struct shape){SCHED_V_MIN, p, 2, m, 0, 1, 1, 1, 0, 1});
        CU_ASSERT(half.peak <= (p + 3) / 2.0 && third.peak <= ceil(p / 3.0) + 1);
        CU_ASSERT(half.makespan_s - 3 * m <= 1.5 * (p - 1) + 0.5 &&
                  third.makespan_s - 3 * m <= 2 * (p - 1) + 1);
    }
    for (uint32_t p = 4; p <= 12; p += 4) {
        uint32_t m = 4 * p;
        /* DeepSeek-V3 report, table 2: (p/2-1)(F&B + B - 3W), memory p + 1; for DualPipeV half of (p-1)(...)
         */
        struct outcome o = run(&(struct shape){SCHED_DUALPIPE, p, 1, m, 0, 1, 1, 1, 0, 1});
        CU_ASSERT_DOUBLE_EQUAL(o.makespan_s - 3 * m, (p / 2 - 1) * (3 + 2 - 3.0), 1e-9);
        CU_ASSERT_DOUBLE_EQUAL(o.peak, p + 1, 1e-9);
        o = run(&(struct shape){SCHED_DUALPIPE_V, p, 2, m, 0, 1, 1, 1, 0, 1});
        CU_ASSERT_DOUBLE_EQUAL(o.makespan_s - 3 * m, (p - 1) * (3 + 2 - 3.0) / 2, 1e-9);
        CU_ASSERT_DOUBLE_EQUAL(o.peak, p + 0.5, 1e-9);
    }
}

/* Pairs that hide 15 % of both: makespan and peak. */
static const struct {
    enum schedule_kind kind;
    uint32_t v, m;
    double makespan_s, peak;
} pairs[] = {
    {SCHED_COMBINED_1F1B, 1, 24, 82.65, 16},   {SCHED_COMBINED_1F1B, 1, 64, 184.65, 16},
    {SCHED_COMBINED_1F1B, 2, 24, 73.725, 12},  {SCHED_COMBINED_1F1B, 2, 64, 175.725, 12},
    {SCHED_COMBINED_1F1B, 4, 24, 69.2625, 10}, {SCHED_COMBINED_1F1B, 4, 64, 171.2625, 10},
    {SCHED_DUALPIPE_V, 2, 24, 70.45, 8.5},     {SCHED_DUALPIPE_V, 2, 64, 172.45, 8.5},
    {SCHED_DUALPIPE, 1, 24, 69.90, 9},         {SCHED_DUALPIPE, 1, 64, 171.90, 9},
};

static void test_pairs(void)
{
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct outcome o =
            run(&(struct shape){pairs[i].kind, 8, pairs[i].v, pairs[i].m, 0, 1, 1, 1, 0, 0.85});
        CU_ASSERT_DOUBLE_EQUAL(o.makespan_s, pairs[i].makespan_s, 1e-9);
        CU_ASSERT_DOUBLE_EQUAL(o.peak, pairs[i].peak, 1e-9);
    }
}

/* transfers of c = 0.05 and 0.2, p = 8, m = 32, F = I = W = 1, no waiting for the channel of another peer */
static const struct {
    enum schedule_kind kind;
    uint32_t v, group;
    double at[2];
} slow[] = {
    {SCHED_1F1B, 1, 0, {120.40, 130.60}},        {SCHED_INTERLEAVED, 2, 0, {108.00, 112.50}},
    {SCHED_INTERLEAVED, 4, 0, {104.35, 113.65}}, {SCHED_ZB_H1, 1, 0, {104.40, 108.60}},
    {SCHED_ZB_H2, 1, 0, {103.35, 104.40}},       {SCHED_ZB_V, 2, 0, {101.15, 106.10}},
    {SCHED_DUALPIPE_V, 2, 0, {106.60, 118.90}},  {SCHED_DUALPIPE, 1, 0, {103.85, 109.40}},
};

static void test_slow(void)
{
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
        for (int k = 0; k < 2; k++) {
            struct shape x = {slow[i].kind, 8, slow[i].v, 32, slow[i].group, 1, 1, 1, k ? 0.2 : 0.05, 1};
            CU_ASSERT_DOUBLE_EQUAL(run(&x).makespan_s, slow[i].at[k], 1e-9);
        }
}

/* a transfer that holds its sender prolongs F and B, and nothing waits for a channel */
static void test_held(void)
{
    struct arena *a = arena_new();
    struct decision d = {.pp = 4, .vpp = 1, .microbatches = 8, .nstages = 4, .schedule = SCHED_1F1B};
    struct pipeline_stage held[4], longer[4];
    for (uint32_t s = 0; s < 4; s++) {
        held[s] = (struct pipeline_stage){1, 2, 1, 1, 0.5, 0.25, 0, 0, 0, 0};
        longer[s] = (struct pipeline_stage){s < 3 ? 1.5 : 1, s > 0 ? 2.25 : 2, 1, 1, 0, 0, 0, 0, 0, 0};
    }
    struct pipeline_times x = {.stages = held, .held = 1}, y = {.stages = longer};
    const struct schedule *s = schedule_new(a, &d);
    CU_ASSERT_DOUBLE_EQUAL(simulate_actions(a, s, &x, NULL, NULL), simulate_actions(a, s, &y, NULL, NULL),
                           1e-12);
    arena_free(a);
}

/* bytes: the last rank of 1F1B holds one microbatch of a heavy stage, the first four of a light one */
static void test_memory(void)
{
    struct arena *a = arena_new();
    struct decision d = {.pp = 4, .vpp = 1, .microbatches = 8, .nstages = 4, .schedule = SCHED_1F1B};
    struct pipeline_stage stages[4];
    const double bytes[4] = {10, 10, 10, 100};
    struct act_rank ranks[4];
    for (uint32_t s = 0; s < 4; s++)
        stages[s] = (struct pipeline_stage){1, 2, 1, 1, 0, 0, 0, 0, 0, 0};
    struct pipeline_times times = {.stages = stages, .skewed = true};
    simulate_actions(a, schedule_new(a, &d), &times, &(struct act_bytes){.keep = bytes}, ranks);
    for (uint32_t r = 0; r < 4; r++) {
        CU_ASSERT_EQUAL(ranks[r].peak, 4 - r);
        CU_ASSERT_EQUAL(ranks[r].peak_bytes, (4 - r) * bytes[r]);
    }
    arena_free(a);
}

/* One rank alone: the update, its vectors gathered, all actions, its vectors summed, and the norm, whether transfers stand
 * between kernels or have a queue of their own. */
static void test_updates(void)
{
    struct decision d = {.pp = 1, .vpp = 1, .microbatches = 3, .nstages = 1, .schedule = SCHED_1F1B};
    const struct pipeline_stage stage = {.forward_s = 10, .backward_s = 20};
    for (uint32_t k = 0; k < 8; k++) {
        struct arena *a = arena_new();
        const struct pipeline_moves moves = {.gather_s = k & 1 ? 5 : 0, .sum_s = k & 2 ? 7 : 0};
        const struct pipeline_update update = {.update_s = 11, .norm_s = 2};
        struct pipeline_times times = {.stages = &stage, .moves = &moves, .updates = &update, .blocks = k & 4, .agree_s = 1};
        CU_ASSERT_EQUAL(simulate_actions(a, schedule_new(a, &d), &times, NULL, NULL),
                        11 + moves.gather_s + 3 * 30 + moves.sum_s + 2 + 1);
        arena_free(a);
    }
}

/* One rank, a layer with experts and two whose parameters are gathered: what is gathered ahead is on its way
 * from the step's begin, and rows to experts' ranks wait behind it. */
static void test_gathered_ahead(void)
{
    struct decision d = {.pp = 1, .vpp = 1, .microbatches = 1, .nstages = 1, .schedule = SCHED_1F1B};
    const struct pipeline_stage stage = {.forward_s = 10, .backward_s = 20};
    const struct pipeline_piece pieces[3] = {
        {.count = 1, .forward = 0.5, .backward = 0.5, .exchanges = true},
        {.count = 1, .forward = 0.25, .backward = 0.25, .gather_s = 6, .gathers = true},
        {.count = 1, .forward = 0.25, .backward = 0.25, .gather_s = 6, .gathers = true}};
    static const double step_s[] = {6 + 2.5 + 6 + 2.5 + 20, 6 + 10 + 20, 12 + 10 + 20, 12 + 10 + 20};
    const struct pipeline_moves moves = {.npieces = 3, .pieces = pieces};
    const struct pipeline_update update = {0};
    for (uint32_t ahead = 0; ahead < 4; ahead++) {
        struct arena *a = arena_new();
        struct pipeline_times times = {
            .stages = &stage, .moves = &moves, .updates = &update, .prefetch = ahead, .crowded = true};
        CU_ASSERT_EQUAL(simulate_actions(a, schedule_new(a, &d), &times, NULL, NULL), step_s[ahead]);
        arena_free(a);
    }
}

void suite_actions(void);
void suite_actions(void)
{
    CU_pSuite s = CU_add_suite("actions", NULL, NULL);
    CU_add_test(s, "bubbles", test_bubbles);
    CU_add_test(s, "transfer time", test_transfers);
    CU_add_test(s, "bubbles and memory of every schedule", test_table);
    CU_add_test(s, "papers' figures", test_papers);
    CU_add_test(s, "overlapped pairs", test_pairs);
    CU_add_test(s, "slow transfers", test_slow);
    CU_add_test(s, "transfers that hold the sender", test_held);
    CU_add_test(s, "bytes in flight", test_memory);
    CU_add_test(s, "parameters that are gathered ahead", test_gathered_ahead);
    CU_add_test(s, "from update to update", test_updates);
}
