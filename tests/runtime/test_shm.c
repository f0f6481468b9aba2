/* Meetings in shared memory, driven from one process that plays all members: every dtype, strided operands,
 * in-place forms, maxima, more meetings than seats, pieces larger than one, and members that do not agree. */

#include "tests/runtime/meetings.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

static void test_forms(void)
{
    struct meetings t;
    open_meetings(&t, NULL);
    check_forms(&t);
    close_meetings(&t);
}

static void test_pairs(void)
{
    struct meetings t;
    open_meetings(&t, NULL);
    for (uint64_t number = 0; number < 9; number++) { /* more than there are seats */
        float *a = (float *)(void *)t.world[0].arena[0], *b = (float *)(void *)t.world[0].arena[1];
        struct view x = {a, DTYPE_F32, false, 2, 3, 4}, y = {b, DTYPE_F32, false, 2, 3, 5};
        struct meeting m[2] = {{.op = OP_SEND, .channel = 1, .self = 0, .number = number, .x = x, .y = x},
                               {.op = OP_RECV, .channel = 1, .self = 1, .number = number, .x = y, .y = y}};
        for (uint32_t i = 0; i < 10; i++)
            a[i] = (float)(number * 10 + i), b[i] = -1;
        meet(&t, m, 2);
        CU_ASSERT(b[0] == a[0] && b[2] == a[2] && b[5] == a[4] && b[7] == a[6]);
        CU_ASSERT(b[3] == -1 && b[4] == -1 && b[8] == -1);
    }
    close_meetings(&t);
}

/* a member may be ahead by as many meetings as there are seats, not by more */
static void test_seats(void)
{
    struct meetings t;
    open_meetings(&t, NULL);
    struct view v = {t.world[0].arena[0], DTYPE_F32, false, 1, 1, 1};
    for (uint64_t number = 0; number < 5; number++) {
        struct meeting m = {.op = OP_SEND, .channel = 1, .self = 0, .number = number, .x = v, .y = v};
        CU_ASSERT(transport_post(t.end[0], &m) == (number < 4 ? MEETING_OPEN : MEETING_REFUSED));
        CU_ASSERT(number == 4 || transport_poll(t.end[0], &m) == MEETING_OPEN);
    }
    close_meetings(&t);
}

/* sums go in member order: 2^24 + 1 + 1 in fp32 depends on it */
static void test_order(void)
{
    struct meetings t;
    struct meeting m[MEMBERS];
    const float values[MEMBERS] = {16777216, 1, 1};
    open_meetings(&t, NULL);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        struct view v = {t.world[0].arena[r], DTYPE_F32, false, 1, 1, 1};
        *(float *)v.data = values[r];
        m[r] = (struct meeting){.op = OP_ALL_REDUCE, .self = r, .x = v, .y = v};
    }
    meet(&t, m, MEMBERS);
    for (uint32_t r = 0; r < MEMBERS; r++)
        CU_ASSERT(*(float *)m[r].x.data == 16777216);
    close_meetings(&t);
}

/* what the last of three members brings is another meeting than the first one's: nothing is moved, and it is said */
static void test_disagreement(void)
{
    static const struct {
        enum op op, other_op;
        uint32_t x_rows, y_rows, argument;                    /* of all members */
        uint32_t other_x_rows, other_y_rows, other_argument; /* of the last */
        uint32_t other_cols;
        enum dtype other_dtype;
        const char *says; /* behind the two ranks; NULL = they agree */
    } cases[] = {
        {OP_BROADCAST, OP_BROADCAST, 4, 4, 1, 4, 4, 1, 3, DTYPE_F32, NULL},
        {OP_BROADCAST, OP_BROADCAST, 4, 4, 1, 4, 4, 2, 3, DTYPE_F32,
         "BROADCAST f32 4x3 and BROADCAST f32 4x3 (argument 1, 2)"},
        {OP_SHIFT, OP_SHIFT, 4, 4, 1, 4, 4, 2, 3, DTYPE_F32,
         "SHIFT f32 4x3 and SHIFT f32 4x3 (argument 1, 2)"},
        {OP_ALL_REDUCE, OP_ALL_REDUCE, 4, 4, 0, 4, 4, 1, 3, DTYPE_F32,
         "ALL_REDUCE f32 4x3 and ALL_REDUCE f32 4x3 (argument 0, 1)"},
        {OP_ALL_REDUCE, OP_BROADCAST, 4, 4, 0, 4, 4, 0, 3, DTYPE_F32,
         "ALL_REDUCE f32 4x3 and BROADCAST f32 4x3 (argument 0, 0)"},
        {OP_ALL_REDUCE, OP_ALL_REDUCE, 4, 4, 0, 4, 4, 0, 2, DTYPE_F32,
         "ALL_REDUCE f32 4x3 and ALL_REDUCE f32 4x2 (argument 0, 0)"},
        {OP_ALL_REDUCE, OP_ALL_REDUCE, 4, 4, 0, 5, 4, 0, 3, DTYPE_F32,
         "ALL_REDUCE f32 4x3 and ALL_REDUCE f32 5x3 (argument 0, 0)"},
        {OP_ALL_GATHER, OP_ALL_GATHER, 4, 12, 0, 4, 8, 0, 3, DTYPE_F32,
         "ALL_GATHER f32 4x3 and ALL_GATHER f32 4x3 (argument 0, 0)"},
        {OP_ALL_REDUCE, OP_ALL_REDUCE, 4, 4, 0, 4, 4, 0, 3, DTYPE_BF16,
         "ALL_REDUCE f32 4x3 and ALL_REDUCE bf16 4x3 (argument 0, 0)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct meetings t;
        char wanted[200];
        open_meetings(&t, NULL);
        for (uint32_t r = 0; r < MEMBERS; r++) {
            bool last = r == MEMBERS - 1;
            enum dtype dtype = last ? cases[i].other_dtype : DTYPE_F32;
            uint32_t cols = last ? cases[i].other_cols : 3;
            struct view x = {
                t.world[0].arena[r], dtype, false, last ? cases[i].other_x_rows : cases[i].x_rows, cols, 8};
            struct view y = {t.world[0].arena[r] + ARENA / 2,
                             dtype,
                             false,
                             last ? cases[i].other_y_rows : cases[i].y_rows,
                             cols,
                             8};
            struct meeting m = {.op = last ? cases[i].other_op : cases[i].op, .self = r, .x = x, .y = y};
            m.argument = last ? cases[i].other_argument : cases[i].argument;
            CU_ASSERT(transport_post(t.end[r], &m) == (last && cases[i].says ? MEETING_FAILED : MEETING_OPEN));
        }
        CU_ASSERT(world_failed(&t.world[0]) == (cases[i].says ? STATUS_BUG : STATUS_OK));
        snprintf(wanted, sizeof wanted, "ranks 0 and 2 meet with different operations: %s",
                 cases[i].says ? cases[i].says : "");
        if (cases[i].says)
            CU_ASSERT_STRING_EQUAL(t.world[0].control->message, wanted);
        close_meetings(&t);
    }
}

/* all agree on what would overwrite a peer */
static void test_sizes(void)
{
    static const struct {
        enum op op;
        uint32_t x_rows, y_rows, argument;
        const char *says; /* NULL = it fits */
    } cases[] = {
        {OP_ALL_GATHER, 4, 12, 0, NULL},
        {OP_ALL_GATHER, 4, 13, 0, "ALL_GATHER of 4 to 13 rows among 3 ranks"},
        {OP_REDUCE_SCATTER, 12, 4, 0, NULL},
        {OP_REDUCE_SCATTER, 4, 4, 0, "REDUCE_SCATTER of 4 to 4 rows among 3 ranks"},
        {OP_ALL_REDUCE, 4, 5, 0, "ALL_REDUCE of 4 to 5 rows among 3 ranks"},
        {OP_ALL_TO_ALL, 6, 6, 0, NULL},
        {OP_ALL_TO_ALL, 4, 4, 0, "ALL_TO_ALL of 4 to 4 rows among 3 ranks"},
        {OP_BROADCAST, 4, 4, 2, NULL},
        {OP_BROADCAST, 4, 4, 3, "BROADCAST of 4 to 4 rows among 3 ranks"},
        {OP_SHIFT, 4, 4, 3, "SHIFT of 4 to 4 rows among 3 ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct meetings t;
        open_meetings(&t, NULL);
        for (uint32_t r = 0; r < MEMBERS; r++) {
            struct view x = {t.world[0].arena[r], DTYPE_F32, false, cases[i].x_rows, 3, 8};
            struct view y = {t.world[0].arena[r] + ARENA / 2, DTYPE_F32, false, cases[i].y_rows, 3, 8};
            struct meeting m = {.op = cases[i].op, .self = r, .argument = cases[i].argument, .x = x, .y = y};
            bool fails = r == MEMBERS - 1 && cases[i].says;
            CU_ASSERT(transport_post(t.end[r], &m) == (fails ? MEETING_FAILED : MEETING_OPEN));
        }
        CU_ASSERT(world_failed(&t.world[0]) == (cases[i].says ? STATUS_BUG : STATUS_OK));
        if (cases[i].says)
            CU_ASSERT_STRING_EQUAL(t.world[0].control->message, cases[i].says);
        close_meetings(&t);
    }
}

/* what channels share is in whole cache lines: no two of them meet in one, and none begins within one */
static void test_lines(void)
{
    uint32_t members[40];
    for (uint32_t n = 1; n <= 40; n++) {
        const struct channel list[] = {{n, members}, {2, members}, {n, members}};
        members[n - 1] = n - 1;
        size_t one = transport_shared_bytes(list, 1);
        size_t pair = transport_shared_bytes(list + 1, 1);
        CU_ASSERT(one >= n * sizeof(struct view) && one % 64 == 0);
        CU_ASSERT_EQUAL(transport_shared_bytes(list, 3), 2 * one + pair);
    }
    CU_ASSERT_EQUAL(transport_shared_bytes(NULL, 0), 0);
}

void suite_shm(void);
void suite_shm(void)
{
    CU_pSuite s = CU_add_suite("shm", NULL, NULL);
    CU_add_test(s, "every operation, dtype, stride, in place", test_forms);
    CU_add_test(s, "pairs", test_pairs);
    CU_add_test(s, "whole cache lines", test_lines);
    CU_add_test(s, "seats", test_seats);
    CU_add_test(s, "member order", test_order);
    CU_add_test(s, "members that disagree", test_disagreement);
    CU_add_test(s, "sizes that do not fit", test_sizes);
}
