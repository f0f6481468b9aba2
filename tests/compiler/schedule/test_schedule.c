/* Schedules: golden listings (p = 4, m = 8), every shape runs, steps under unit costs, refusals with their exact sentences,
 * torch's CSV there and back. */

#include "compiler/schedule/schedule.h"
#include "compiler/simulate/simulate.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

static const struct decision *decide(struct arena *a, enum schedule_kind kind, uint32_t v, uint32_t p,
                                     uint32_t m)
{
    struct decision *d = ARENA_NEW(a, struct decision);
    *d = (struct decision){.tp = 1, .cp = 1, .pp = p, .vpp = v, .dp = 1, .microbatch = 1, .microbatches = m};
    d->schedule = kind;
    d->nstages = p * v;
    return d;
}

static const char *csv(struct arena *a, const struct schedule *s)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    schedule_print(s, f);
    fclose(f);
    char *copy = arena_strndup(a, text, size);
    free(text);
    return copy;
}

static const struct {
    enum schedule_kind kind;
    uint32_t chunks;
    const char *csv;
} golden[] = {
    {SCHED_GPIPE, 1,
     "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7,0B0,0B1,0B2,0B3,0B4,0B5,0B6,0B7\n"
     "1F0,1F1,1F2,1F3,1F4,1F5,1F6,1F7,1B0,1B1,1B2,1B3,1B4,1B5,1B6,1B7\n"
     "2F0,2F1,2F2,2F3,2F4,2F5,2F6,2F7,2B0,2B1,2B2,2B3,2B4,2B5,2B6,2B7\n"
     "3F0,3F1,3F2,3F3,3F4,3F5,3F6,3F7,3B0,3B1,3B2,3B3,3B4,3B5,3B6,3B7\n"},
    {SCHED_1F1B, 1,
     "0F0,0F1,0F2,0F3,0B0,0F4,0B1,0F5,0B2,0F6,0B3,0F7,0B4,0B5,0B6,0B7\n"
     "1F0,1F1,1F2,1B0,1F3,1B1,1F4,1B2,1F5,1B3,1F6,1B4,1F7,1B5,1B6,1B7\n"
     "2F0,2F1,2B0,2F2,2B1,2F3,2B2,2F4,2B3,2F5,2B4,2F6,2B5,2F7,2B6,2B7\n"
     "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4,3F5,3B5,3F6,3B6,3F7,3B7\n"},
    {SCHED_EAGER_1F1B, 1,
     "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0B0,0F7,0B1,0B2,0B3,0B4,0B5,0B6,0B7\n"
     "1F0,1F1,1F2,1F3,1F4,1B0,1F5,1B1,1F6,1B2,1F7,1B3,1B4,1B5,1B6,1B7\n"
     "2F0,2F1,2F2,2B0,2F3,2B1,2F4,2B2,2F5,2B3,2F6,2B4,2F7,2B5,2B6,2B7\n"
     "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4,3F5,3B5,3F6,3B6,3F7,3B7\n"},
    {SCHED_INTERLEAVED, 2,
     "0F0,0F1,0F2,0F3,4F0,4F1,4F2,4F3,0F4,0F5,0F6,4B0,0F7,4B1,4F4,4B2,4F5,4B3,4F6,0B0,4F7,0B1,0B2,0B3,"
     "4B4,4B5,4B6,4B7,0B4,0B5,0B6,0B7\n"
     "1F0,1F1,1F2,1F3,5F0,5F1,5F2,5F3,1F4,5B0,1F5,5B1,1F6,5B2,1F7,5B3,5F4,1B0,5F5,1B1,5F6,1B2,5F7,1B3,"
     "5B4,5B5,5B6,5B7,1B4,1B5,1B6,1B7\n"
     "2F0,2F1,2F2,2F3,6F0,6F1,6F2,6B0,6F3,6B1,2F4,6B2,2F5,6B3,2F6,2B0,2F7,2B1,6F4,2B2,6F5,2B3,6F6,6B4,"
     "6F7,6B5,6B6,6B7,2B4,2B5,2B6,2B7\n"
     "3F0,3F1,3F2,3F3,7F0,7B0,7F1,7B1,7F2,7B2,7F3,7B3,3F4,3B0,3F5,3B1,3F6,3B2,3F7,3B3,7F4,7B4,7F5,7B5,"
     "7F6,7B6,7F7,7B7,3B4,3B5,3B6,3B7\n"},
    {SCHED_ZB_H1, 1,
     "0F0,0F1,0F2,0F3,0I0,0W0,0F4,0I1,0W1,0F5,0I2,0W2,0F6,0I3,0W3,0F7,0I4,0W4,0I5,0W5,0I6,0W6,0I7,0W7\n"
     "1F0,1F1,1F2,1I0,1F3,1I1,1W0,1F4,1I2,1W1,1F5,1I3,1W2,1F6,1I4,1W3,1F7,1I5,1W4,1I6,1W5,1I7,1W6,1W7\n"
     "2F0,2F1,2I0,2F2,2I1,2F3,2I2,2W0,2F4,2I3,2W1,2F5,2I4,2W2,2F6,2I5,2W3,2F7,2I6,2W4,2I7,2W5,2W6,2W7\n"
     "3F0,3I0,3F1,3I1,3F2,3I2,3F3,3I3,3W0,3F4,3I4,3W1,3F5,3I5,3W2,3F6,3I6,3W3,3F7,3I7,3W4,3W5,3W6,3W7\n"},
    {SCHED_ZB_H2, 1,
     "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0I0,0W0,0F7,0I1,0W1,0I2,0W2,0I3,0W3,0I4,0W4,0I5,0W5,0I6,0W6,0I7,0W7\n"
     "1F0,1F1,1F2,1F3,1F4,1I0,1F5,1I1,1F6,1I2,1W0,1F7,1I3,1W1,1I4,1W2,1I5,1W3,1I6,1W4,1I7,1W5,1W6,1W7\n"
     "2F0,2F1,2F2,2I0,2F3,2I1,2F4,2I2,2F5,2I3,2F6,2I4,2W0,2F7,2I5,2W1,2I6,2W2,2I7,2W3,2W4,2W5,2W6,2W7\n"
     "3F0,3I0,3F1,3I1,3F2,3I2,3F3,3I3,3F4,3I4,3F5,3I5,3F6,3I6,3W0,3F7,3I7,3W1,3W2,3W3,3W4,3W5,3W6,3W7\n"},
    {SCHED_ZB_V, 2,
     "0F0,0F1,0F2,0F3,0F4,0F5,0F6,7F0,7I0,7W0,7F1,7I1,7W1,7F2,7I2,7W2,7F3,7I3,7W3,0F7,0I0,0W0,7F4,7I4,"
     "7W4,0I1,0W1,7F5,7I5,7W5,0I2,0W2,7F6,7I6,7W6,0I3,0W3,7F7,7I7,7W7,0I4,0W4,0I5,0W5,0I6,0W6,0I7,0W7\n"
     "1F0,1F1,1F2,1F3,1F4,6F0,1F5,6F1,6I0,6W0,6F2,6I1,6W1,6F3,6I2,6W2,1F6,1I0,1W0,6F4,6I3,6W3,1F7,1I1,"
     "1W1,6F5,6I4,6W4,1I2,1W2,6F6,6I5,6W5,1I3,1W3,6F7,6I6,6W6,1I4,6I7,1I5,1W4,1I6,1W5,1I7,1W6,6W7,1W7\n"
     "2F0,2F1,2F2,5F0,2F3,5F1,2F4,5F2,5I0,5W0,5F3,5I1,5W1,2F5,2I0,2W0,5F4,5I2,5W2,2F6,2I1,2W1,5F5,5I3,"
     "5W3,2F7,2I2,2W2,5F6,5I4,5W4,2I3,2W3,5F7,5I5,5W5,2I4,5I6,2I5,5I7,2I6,2W4,2I7,2W5,5W6,5W7,2W6,2W7\n"
     "3F0,4F0,3F1,4F1,3F2,4F2,3F3,4F3,4I0,4W0,3F4,3I0,3W0,4F4,4I1,4W1,3F5,3I1,3W1,4F5,4I2,4W2,3F6,3I2,"
     "3W2,4F6,4I3,4W3,3F7,3I3,3W3,4F7,4I4,4W4,3I4,4I5,3I5,4I6,3I6,4I7,3I7,3W4,4W5,4W6,4W7,3W5,3W6,3W7\n"},
    {SCHED_DUALPIPE_V, 2,
     "0F0,0F1,0F2,0F3,0F4,0F5,0F6,7F0,7I0,7W0,7F1,7I1,7W1,7F2,7I2,7W2,7F3,(0F7;7B3)OVERLAP_F_B,"
     "(7F4;0B0)OVERLAP_F_B,7B4,(7F5;0B1)OVERLAP_F_B,7B5,(7F6;0B2)OVERLAP_F_B,7B6,(7F7;0B3)OVERLAP_F_B,"
     "7B7,0I4,0W4,0I5,0W5,0I6,0W6,0I7,0W7\n"
     "1F0,1F1,1F2,1F3,1F4,6F0,1F5,6F1,6I0,6W0,6F2,6I1,6W1,6F3,(1F6;6B2)OVERLAP_F_B,"
     "(6F4;1B0)OVERLAP_F_B,(1F7;6B3)OVERLAP_F_B,(6F5;1B1)OVERLAP_F_B,6B4,(6F6;1B2)OVERLAP_F_B,6B5,"
     "(6F7;1B3)OVERLAP_F_B,6B6,1B4,6I7,1I5,6W7,1I6,1W5,1I7,1W6,1W7\n"
     "2F0,2F1,2F2,5F0,2F3,5F1,2F4,5F2,5I0,5W0,5F3,(2F5;5B1)OVERLAP_F_B,(5F4;2B0)OVERLAP_F_B,"
     "(2F6;5B2)OVERLAP_F_B,(5F5;2B1)OVERLAP_F_B,(2F7;5B3)OVERLAP_F_B,(5F6;2B2)OVERLAP_F_B,5B4,"
     "(5F7;2B3)OVERLAP_F_B,5B5,2B4,5B6,2I5,5I7,2I6,2W5,2I7,5W7,2W6,2W7\n"
     "3F0,4F0,3F1,4F1,3F2,4F2,3F3,4F3,3F4,4B0,(4F4;3B0)OVERLAP_F_B,(3F5;4B1)OVERLAP_F_B,"
     "(4F5;3B1)OVERLAP_F_B,(3F6;4B2)OVERLAP_F_B,(4F6;3B2)OVERLAP_F_B,(3F7;4B3)OVERLAP_F_B,"
     "(4F7;3B3)OVERLAP_F_B,4B4,3B4,4B5,3B5,4I6,3I6,4I7,3I7,4W6,3W6,4W7,3W7\n"},
    {SCHED_DUALPIPE, 1,
     "0F0,0F1,0F2,7F0,7I0,7W0,7F1,(0F3;7B1)OVERLAP_F_B,(7F2;0B0)OVERLAP_F_B,7B2,(7F3;0B1)OVERLAP_F_B,"
     "7B3,0I2,0W2,0I3,0W3\n"
     "1F0,6F0,1F1,6F1,1F2,6B0,(6F2;1B0)OVERLAP_F_B,(1F3;6B1)OVERLAP_F_B,(6F3;1B1)OVERLAP_F_B,6B2,1B2,"
     "6I3,1I3,6W3,1W3\n"
     "5F0,2F0,5F1,2F1,5F2,2B0,(2F2;5B0)OVERLAP_F_B,(5F3;2B1)OVERLAP_F_B,(2F3;5B1)OVERLAP_F_B,2B2,5B2,"
     "2I3,5I3,2W3,5W3\n"
     "4F0,4F1,4F2,3F0,3I0,3W0,3F1,(4F3;3B1)OVERLAP_F_B,(3F2;4B0)OVERLAP_F_B,3B2,(3F3;4B1)OVERLAP_F_B,"
     "3B3,4I2,4W2,4I3,4W3\n"},
};

static void test_golden(void)
{
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        struct arena *a = arena_new();
        uint32_t p = 4, v = golden[i].chunks;
        const struct schedule *s = schedule_new(a, decide(a, golden[i].kind, v, p, 8));
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_STRING_EQUAL(csv(a, s), golden[i].csv);
        for (uint32_t r = 0; r < p; r++) {
            CU_ASSERT_EQUAL(s->stage_rank[r], r);
            CU_ASSERT_EQUAL(s->actions[r][s->nactions[r] - 1].kind, 'O');
        }
        bool mirrored = golden[i].kind == SCHED_DUALPIPE;
        bool folded = golden[i].kind == SCHED_ZB_V || golden[i].kind == SCHED_DUALPIPE_V;
        for (uint32_t r = p; r < s->nstages; r++)
            CU_ASSERT_EQUAL(s->stage_rank[r], folded || mirrored ? 2 * p - 1 - r : r - p);
        arena_free(a);
    }
}

/* one shape: it runs, and prints and parses back to itself (a CSV knows one copy of the model only) */
static void check_shape(struct arena *a, const struct decision *d)
{
    const char *why = "";
    const struct schedule *s = schedule_new(a, d);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_FATAL(schedule_check(a, s, &why));
    if (s->copies > 1)
        return;
    const char *text = csv(a, s);
    const struct schedule *back = schedule_parse(a, text, strlen(text), &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(back);
    CU_ASSERT_STRING_EQUAL(csv(a, back), text);
    CU_ASSERT_EQUAL(back->nactions[d->pp - 1], s->nactions[d->pp - 1]);
}

/* Which shapes are legal, as the schedules' definitions have it.  With interleaving and combined 1F1B the
 * last of the groups (of pp) must not be smaller than pp, unless it is the only one. */
static bool any_shape(uint32_t p, uint32_t m)
{
    return p > 0 && m > 0;
}

static bool whole_groups(uint32_t p, uint32_t m)
{
    return m <= p || m % p == 0;
}

static bool full_turns(uint32_t p, uint32_t m)
{
    return m >= 2 * p - 1;
}

static bool both_ways(uint32_t p, uint32_t m)
{
    return p % 2 == 0 && m % 2 == 0 && m >= 2 * p;
}

static const struct {
    enum schedule_kind kind;
    uint32_t least, most; /* chunks per rank */
    bool (*legal)(uint32_t p, uint32_t m);
    double step; /* of p = 4, m = 8 and the least chunks, a rank's F, I and W of a microbatch 1 each: 24 and the bubble */
} kinds[] = {{SCHED_GPIPE, 1, 1, any_shape, 33},
             {SCHED_1F1B, 1, 1, any_shape, 33},
             {SCHED_EAGER_1F1B, 1, 1, any_shape, 33},
             {SCHED_INTERLEAVED, 2, 4, whole_groups, 28.5},
             {SCHED_COMBINED_1F1B, 1, 4, whole_groups, 33},
             {SCHED_ZB_H1, 1, 1, any_shape, 27},
             {SCHED_ZB_H2, 1, 1, any_shape, 27},
             {SCHED_ZB_V, 2, 2, any_shape, 25.5},
             {SCHED_V_HALF, 2, 2, any_shape, 28},
             {SCHED_V_MIN, 2, 2, any_shape, 29.5},
             {SCHED_DUALPIPE, 1, 1, both_ways, 26},
             {SCHED_DUALPIPE_V, 2, 2, full_turns, 27}};

/* legal shapes are made and run, the others are refused with a reason */
static void test_shapes(void)
{
    uint32_t made = 0, refused = 0;
    for (uint32_t p = 1; p <= 9; p++)
        for (uint32_t m = 1; m <= 20; m += m < 6 ? 1 : 3) {
            struct arena *a = arena_new();
            for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
                for (uint32_t v = 1; v <= 5; v++) {
                    const struct decision *d = decide(a, kinds[i].kind, v, p, m);
                    bool fixed = schedule_chunks(kinds[i].kind) > 0;
                    if (!fixed && (v < kinds[i].least || v > kinds[i].most))
                        continue;
                    bool legal = kinds[i].legal(p, m) && (!fixed || v == kinds[i].least);
                    const char *why = schedule_unsupported(a, d);
                    CU_ASSERT_EQUAL(why == NULL, legal);
                    CU_ASSERT(why == NULL || strstr(why, schedule_name(kinds[i].kind)));
                    if (why) {
                        CU_ASSERT_PTR_NULL(schedule_new(a, d));
                        refused++;
                        continue;
                    }
                    check_shape(a, d);
                    made++;
                }
            arena_free(a);
        }
    CU_ASSERT(made > 700 && refused > 700);
}

/* bubbles by the schedules' papers: 1F1B's (p - 1)(F + I + W), a v-th of it interleaved, ZB-H1's (p - 1)(F + I - W), and so on */
static void test_steps(void)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct arena *a = arena_new();
        const struct decision *d = decide(a, kinds[i].kind, kinds[i].least, 4, 8);
        struct pipeline_stage stages[8];
        double share = kinds[i].least;
        for (uint32_t s = 0; s < d->nstages; s++)
            stages[s] = (struct pipeline_stage){1 / share, 2 / share, 1 / share, 1 / share, 0, 0, 0, 0, 0, 0};
        double step = simulate_actions(a, schedule_new(a, d), &(struct pipeline_times){.stages = stages}, NULL, NULL);
        CU_ASSERT_DOUBLE_EQUAL(step, kinds[i].step, 1e-9);
        if (step < kinds[i].step - 1e-9 || step > kinds[i].step + 1e-9)
            printf("\n    schedule '%s' takes %g, not %g", schedule_name(kinds[i].kind), step, kinds[i].step);
        arena_free(a);
    }
}

/* every row of schedule.def but 'auto' and 'file' has its shapes above */
static void test_rows(void)
{
    for (uint32_t k = 0; k < SCHED_AUTO; k++) {
        bool found = false;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            found |= kinds[i].kind == k;
        CU_ASSERT(found);
        if (!found)
            printf("\n    schedule '%s' has no row among the shapes of test_schedule.c", schedule_name((enum schedule_kind)k));
    }
}

/* interleaved with every group that divides the microbatches, or leaves at least p for the last group */
static void test_groups(void)
{
    for (uint32_t p = 2; p <= 6; p++)
        for (uint32_t m = p; m <= 17; m++)
            for (uint32_t n = p; n <= m; n++) {
                struct arena *a = arena_new();
                struct decision d = *decide(a, SCHED_INTERLEAVED, 3, p, m);
                d.schedule_group = n;
                if (m % n && m % n < p) {
                    CU_ASSERT_PTR_NOT_NULL(schedule_unsupported(a, &d));
                    arena_free(a);
                    continue;
                }
                check_shape(a, &d);
                d.schedule = SCHED_COMBINED_1F1B;
                check_shape(a, &d);
                arena_free(a);
            }
}

static void test_forward(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct decision d = {.pp = 2, .nstages = 2, .microbatches = 3, .schedule = SCHED_1F1B};
    const struct schedule *s = schedule_forward(a, schedule_new(a, &d));
    CU_ASSERT(schedule_check(a, s, &why));
    CU_ASSERT_STRING_EQUAL(csv(a, s), "0F0,0F1,0F2\n1F0,1F1,1F2\n");
    d = (struct decision){
        .pp = 2, .nstages = 4, .microbatches = 3, .schedule = SCHED_INTERLEAVED, .schedule_group = 3};
    s = schedule_forward(a, schedule_new(a, &d));
    CU_ASSERT(schedule_check(a, s, &why));
    CU_ASSERT_STRING_EQUAL(csv(a, s), "0F0,0F1,2F0,2F1,0F2,2F2\n1F0,1F1,3F0,3F1,1F2,3F2\n");
    arena_free(a);
}

static const struct {
    enum schedule_kind kind;
    uint32_t chunks, p, m;
    const char *why;
} unsupported[] = {
    {SCHED_1F1B, 2, 4, 8,
     "schedule '1f1b' runs one stage per pipeline rank, but 8 stages on 4 ranks are asked for"},
    {SCHED_ZB_V, 1, 4, 8,
     "schedule 'zb_v' runs two stages per pipeline rank, but 4 stages on 4 ranks are asked for"},
    {SCHED_INTERLEAVED, 2, 4, 10,
     "schedule 'interleaved' takes groups of at least pp = 4 microbatches, the last one too; 10 in groups of "
     "4 leave 2"},
    {SCHED_DUALPIPE_V, 2, 4, 6, "schedule 'dualpipe_v' needs at least 2 * pp - 1 = 7 microbatches, not 6"},
    {SCHED_DUALPIPE, 1, 4, 6,
     "schedule 'dualpipe' needs an even pp and an even number of at least 2 * pp microbatches, not 4 and 6"},
    {SCHED_DUALPIPE, 1, 3, 8,
     "schedule 'dualpipe' needs an even pp and an even number of at least 2 * pp microbatches, not 3 and 8"},
    {SCHED_AUTO, 1, 4, 8, "schedule 'auto' comes with its actions, and there are none"},
};

/* a rank is ahead of the last one by as many forward passes as lie between them, if its list begins with so many */
static void test_early(void)
{
    struct arena *a = arena_new();
    const struct schedule *linear = schedule_new(a, decide(a, SCHED_ZB_H2, 1, 4, 8)), *folded = schedule_new(a, decide(a, SCHED_ZB_V, 2, 4, 8));
    for (uint32_t r = 0; r < 4; r++) {
        CU_ASSERT_EQUAL(schedule_early(linear, r), 3 - r);
        CU_ASSERT_EQUAL(schedule_early(folded, r), 3 - r);
    }
    linear = schedule_new(a, decide(a, SCHED_ZB_H2, 1, 4, 1)); /* one microbatch */
    CU_ASSERT_EQUAL(schedule_early(linear, 0), 1);
    CU_ASSERT_EQUAL(schedule_early(linear, 3), 0);
    arena_free(a);
}

static void test_unsupported(void)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        struct arena *a = arena_new();
        const struct decision *d =
            decide(a, unsupported[i].kind, unsupported[i].chunks, unsupported[i].p, unsupported[i].m);
        CU_ASSERT_PTR_NULL(schedule_new(a, d));
        const char *why = schedule_unsupported(a, d);
        CU_ASSERT_PTR_NOT_NULL_FATAL(why);
        CU_ASSERT_STRING_EQUAL(why, unsupported[i].why);
        arena_free(a);
    }
}

static const struct {
    const char *csv, *why;
} bad[] = {
    {"", "the schedule has no actions"},
    {"\n,,\n", "the schedule has no actions"},
    {"0F0,0X0\n",
     "row 1, cell 2: '0X0' is neither <stage><F, B, I or W><microbatch> nor (<F>;<B>)OVERLAP_F_B"},
    {"0F0\n1SEND_F0\n",
     "row 2, cell 1: '1SEND_F0' is neither <stage><F, B, I or W><microbatch> nor (<F>;<B>)OVERLAP_F_B"},
    {"(0F0;1I1)OVERLAP_F_B\n", "row 1, cell 1: '(0F0;1I1)OVERLAP_F_B' is neither <stage><F, B, I or "
                               "W><microbatch> nor (<F>;<B>)OVERLAP_F_B"},
    {"0F9999999999\n",
     "row 1, cell 1: '0F9999999999' is neither <stage><F, B, I or W><microbatch> nor (<F>;<B>)OVERLAP_F_B"},
    {"(0F0;1B1)\n",
     "row 1, cell 1: '(0F0;1B1)' is neither <stage><F, B, I or W><microbatch> nor (<F>;<B>)OVERLAP_F_B"},
    {"0F0,(0F1;0B1)OVERLAP_F_B,0B0\n", "the order of actions cannot run: rank 0 is blocked at 0F1"},
    {"0F0,1000000F1000000\n", "2 actions are too few for 1000001 stages and 1000001 microbatches"},
    {"0F0,0B0,0B0\n", "rank 0: 0B0 repeats work already done"},
    {"0F0,0B0,0W0\n", "rank 0: 0W0 repeats work already done"},
    {"0F0,0I0\n", "0W0 is missing"},
    {"0F0,0F1,0B0\n", "0B1 is missing"},
    {"0F0,1F0,0B0\n1B0\n", "1B0 is on rank 1, but stage 1 is on rank 0"},
    {"0B0,0F0\n", "the order of actions cannot run: rank 0 is blocked at 0B0"},
    {"0F0,0W0,0I0\n", "the order of actions cannot run: rank 0 is blocked at 0W0"},
    {"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
     "the order of actions cannot run: rank 0 is blocked at 0B0, rank 1 is blocked at 1F1"},
};

static void test_bad(void)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct arena *a = arena_new();
        const char *why = "(accepted)";
        CU_ASSERT_PTR_NULL(schedule_parse(a, bad[i].csv, strlen(bad[i].csv), &why));
        CU_ASSERT_STRING_EQUAL(why, bad[i].why);
        arena_free(a);
    }
    const char *why = "(accepted)"; /* too long a text is not looked at */
    CU_ASSERT_PTR_NULL(schedule_parse(NULL, "", ((size_t)64 << 20) + 1, &why));
    CU_ASSERT_STRING_EQUAL(why, "a schedule of more than 64 MiB is not read");
}

/* split backward, idle ticks, V placement, blanks and CRLF are read */
static void test_parse(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    const char *text = " 0F0,,3F0 ,3I0,3W0,0B0\r\n1F0,2F0,2B0,1B0\r\n";
    const struct schedule *s = schedule_parse(a, text, strlen(text), &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(s->stage_rank[3], 0);
    CU_ASSERT_EQUAL(s->stage_rank[2], 1);
    CU_ASSERT_STRING_EQUAL(csv(a, s), "0F0,3F0,3I0,3W0,0B0\n1F0,2F0,2B0,1B0\n");
    arena_free(a);
}

void suite_schedule(void);
void suite_schedule(void)
{
    CU_pSuite s = CU_add_suite("schedule", NULL, NULL);
    CU_add_test(s, "golden listings", test_golden);
    CU_add_test(s, "all shapes run and read back", test_shapes);
    CU_add_test(s, "every schedule has shapes", test_rows);
    CU_add_test(s, "steps under unit costs", test_steps);
    CU_add_test(s, "groups of interleaved schedules", test_groups);
    CU_add_test(s, "forward only", test_forward);
    CU_add_test(s, "what begins early", test_early);
    CU_add_test(s, "refused by name", test_unsupported);
    CU_add_test(s, "bad schedules", test_bad);
    CU_add_test(s, "torch CSV", test_parse);
}
