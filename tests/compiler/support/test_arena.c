/* Growing arrays in an arena: what they hold stays, in place and moved, beside others and across blocks. */

#include "compiler/support/arena.h"
#include "compiler/support/vec.h"

#include <CUnit/CUnit.h>
#include <stdbool.h>
#include <stdint.h>

void suite_arena(void);

enum { MANY = 3000000 }; /* items of 4 bytes: more than any usual block */

static bool counts_up(const uint32_t *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] != i)
            return false;
    return true;
}

/* alone, it stays where it is until its block is full; what comes behind it makes it move */
static void test_in_place(void)
{
    struct arena *a = arena_new();
    VEC(uint32_t) v = {0};
    for (uint32_t i = 0; i < 8; i++)
        vec_push(a, &v, i);
    const uint32_t *first = v.at;
    for (uint32_t i = 8; i < 1000; i++)
        vec_push(a, &v, i);
    CU_ASSERT_PTR_EQUAL(v.at, first);
    uint32_t *behind = ARENA_ARRAY(a, uint32_t, 4);
    CU_ASSERT((unsigned char *)behind >= (unsigned char *)(v.at + v.room));
    behind[0] = 7;
    for (uint32_t i = 1000; i <= 1024; i++)
        vec_push(a, &v, i);
    CU_ASSERT_PTR_NOT_EQUAL(v.at, first);
    CU_ASSERT(counts_up(v.at, v.n));
    CU_ASSERT(behind[0] == 7 && behind[1] == 0 && behind[3] == 0);
    arena_free(a);
}

/* two that grow in turns, beyond the largest usual block; memory that is handed out afterwards is zeroed */
static void test_in_turns(void)
{
    struct arena *a = arena_new();
    VEC(uint32_t) x = {0}, y = {0};
    for (uint32_t i = 0; i < MANY; i++) {
        vec_push(a, &x, i);
        if (i % 3 == 0)
            vec_push(a, &y, i / 3);
    }
    CU_ASSERT(counts_up(x.at, x.n) && counts_up(y.at, y.n));
    struct arena_mark mark = arena_mark(a);
    VEC(uint32_t) z = {0};
    for (uint32_t i = 0; i < 100000; i++)
        vec_push(a, &z, UINT32_MAX);
    arena_reset(a, mark);
    const uint32_t *zero = ARENA_ARRAY(a, uint32_t, 100000);
    bool clear = true;
    for (size_t i = 0; i < 100000; i++)
        clear &= zero[i] == 0;
    CU_ASSERT(clear);
    CU_ASSERT(counts_up(x.at, x.n) && counts_up(y.at, y.n));
    arena_free(a);
}

void suite_arena(void)
{
    CU_pSuite s = CU_add_suite("arena", NULL, NULL);
    CU_add_test(s, "an array grows where it is", test_in_place);
    CU_add_test(s, "arrays that grow in turns keep what they hold", test_in_turns);
}
