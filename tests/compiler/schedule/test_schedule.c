/* Schedules: golden listings (p = 4, m = 8), refusals with their exact sentences, torch's CSV there and back.
 */

#include "compiler/schedule/schedule.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

static const struct decision *decide(struct arena *a, enum schedule_kind kind, uint32_t p, uint32_t m)
{
    struct decision *d = ARENA_NEW(a, struct decision);
    *d = (struct decision){.tp = 1, .cp = 1, .pp = p, .vpp = 1, .dp = 1, .microbatch = 1, .microbatches = m};
    d->schedule = kind;
    d->nstages = p;
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
    const char *csv;
} golden[] = {
    {SCHED_GPIPE, "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0F7,0B0,0B1,0B2,0B3,0B4,0B5,0B6,0B7\n"
                  "1F0,1F1,1F2,1F3,1F4,1F5,1F6,1F7,1B0,1B1,1B2,1B3,1B4,1B5,1B6,1B7\n"
                  "2F0,2F1,2F2,2F3,2F4,2F5,2F6,2F7,2B0,2B1,2B2,2B3,2B4,2B5,2B6,2B7\n"
                  "3F0,3F1,3F2,3F3,3F4,3F5,3F6,3F7,3B0,3B1,3B2,3B3,3B4,3B5,3B6,3B7\n"},
    {SCHED_1F1B, "0F0,0F1,0F2,0F3,0B0,0F4,0B1,0F5,0B2,0F6,0B3,0F7,0B4,0B5,0B6,0B7\n"
                 "1F0,1F1,1F2,1B0,1F3,1B1,1F4,1B2,1F5,1B3,1F6,1B4,1F7,1B5,1B6,1B7\n"
                 "2F0,2F1,2B0,2F2,2B1,2F3,2B2,2F4,2B3,2F5,2B4,2F6,2B5,2F7,2B6,2B7\n"
                 "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4,3F5,3B5,3F6,3B6,3F7,3B7\n"},
    {SCHED_EAGER_1F1B, "0F0,0F1,0F2,0F3,0F4,0F5,0F6,0B0,0F7,0B1,0B2,0B3,0B4,0B5,0B6,0B7\n"
                       "1F0,1F1,1F2,1F3,1F4,1B0,1F5,1B1,1F6,1B2,1F7,1B3,1B4,1B5,1B6,1B7\n"
                       "2F0,2F1,2F2,2B0,2F3,2B1,2F4,2B2,2F5,2B3,2F6,2B4,2F7,2B5,2B6,2B7\n"
                       "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4,3F5,3B5,3F6,3B6,3F7,3B7\n"},
};

static void test_golden(void)
{
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        struct arena *a = arena_new();
        const struct schedule *s = schedule_new(a, decide(a, golden[i].kind, 4, 8));
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_STRING_EQUAL(csv(a, s), golden[i].csv);
        for (uint32_t r = 0; r < 4; r++) {
            CU_ASSERT_EQUAL(schedule_rank(s, r), r);
            CU_ASSERT_EQUAL(s->actions[r][s->nactions[r] - 1].kind, 'O');
        }
        arena_free(a);
    }
}

/* every shape runs, and prints and parses back to itself */
static void test_shapes(void)
{
    const enum schedule_kind kinds[] = {SCHED_GPIPE, SCHED_1F1B, SCHED_EAGER_1F1B};
    for (uint32_t p = 1; p <= 9; p++) {
        for (uint32_t m = 1; m <= 20; m++) {
            struct arena *a = arena_new();
            for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
                const char *why = "";
                const struct schedule *s = schedule_new(a, decide(a, kinds[i], p, m));
                CU_ASSERT_FATAL(s && schedule_check(a, s, &why));
                const char *text = csv(a, s);
                const struct schedule *back = schedule_parse(a, text, strlen(text), &why);
                CU_ASSERT_PTR_NOT_NULL_FATAL(back);
                CU_ASSERT_STRING_EQUAL(csv(a, back), text);
                CU_ASSERT_EQUAL(back->nactions[p - 1], s->nactions[p - 1]);
            }
            arena_free(a);
        }
    }
}

static void test_forward(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    const struct schedule *s = schedule_forward(a, 2, 2, 3);
    CU_ASSERT(schedule_check(a, s, &why));
    CU_ASSERT_STRING_EQUAL(csv(a, s), "0F0,0F1,0F2\n1F0,1F1,1F2\n");
    s = schedule_forward(a, 2, 4, 3);
    CU_ASSERT(schedule_check(a, s, &why));
    CU_ASSERT_STRING_EQUAL(csv(a, s), "0F0,0F1,2F0,2F1,0F2,2F2\n1F0,1F1,3F0,3F1,1F2,3F2\n");
    arena_free(a);
}

static void test_unsupported(void)
{
    struct arena *a = arena_new();
    const struct decision *d = decide(a, SCHED_ZB_H1, 4, 8);
    CU_ASSERT_PTR_NULL(schedule_new(a, d));
    CU_ASSERT_STRING_EQUAL(schedule_unsupported(a, d), "schedule 'zb_h1' cannot be made yet; gpipe, 1f1b and "
                                                       "eager_1f1b can");
    struct decision chunks = *decide(a, SCHED_1F1B, 4, 8);
    chunks.nstages = 8;
    CU_ASSERT_STRING_EQUAL(
        schedule_unsupported(a, &chunks),
        "schedule '1f1b' runs one stage per pipeline rank, but 8 stages on 4 ranks are asked for");
    arena_free(a);
}

static const struct {
    const char *csv, *why;
} bad[] = {
    {"", "the schedule has no actions"},
    {"\n,,\n", "the schedule has no actions"},
    {"0F0,0X0\n", "row 1, cell 2: '0X0' is not <stage><F, B, I or W><microbatch>"},
    {"0F0\n1SEND_F0\n", "row 2, cell 1: '1SEND_F0' is not <stage><F, B, I or W><microbatch>"},
    {"(0F0;1B1)OVERLAP_F_B\n",
     "row 1, cell 1: '(0F0;1B1)OVERLAP_F_B' is not <stage><F, B, I or W><microbatch>"},
    {"0F9999999999\n", "row 1, cell 1: '0F9999999999' is not <stage><F, B, I or W><microbatch>"},
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
}

/* split backward, idle ticks, V placement, blanks and CRLF are read */
static void test_parse(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    const char *text = " 0F0,,3F0 ,3I0,3W0,0B0\r\n1F0,2F0,2B0,1B0\r\n";
    const struct schedule *s = schedule_parse(a, text, strlen(text), &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(schedule_rank(s, 3), 0);
    CU_ASSERT_EQUAL(schedule_rank(s, 2), 1);
    CU_ASSERT_STRING_EQUAL(csv(a, s), "0F0,3F0,3I0,3W0,0B0\n1F0,2F0,2B0,1B0\n");
    arena_free(a);
}

void suite_schedule(void);
void suite_schedule(void)
{
    CU_pSuite s = CU_add_suite("schedule", NULL, NULL);
    CU_add_test(s, "golden listings", test_golden);
    CU_add_test(s, "all shapes run and read back", test_shapes);
    CU_add_test(s, "forward only", test_forward);
    CU_add_test(s, "refused by name", test_unsupported);
    CU_add_test(s, "bad schedules", test_bad);
    CU_add_test(s, "torch CSV", test_parse);
}
