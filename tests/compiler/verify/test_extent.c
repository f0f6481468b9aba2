/* Sets of contributions against bitmaps: unions in any order are those of the elements, an element twice is never taken,
 * and sets that together leave nothing out end as one interval. */

#include "compiler/verify/extent.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

enum { ELEMENTS = 192 };

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

static struct block comb(int64_t lo, int64_t len, int64_t count, int64_t stride)
{
    return (struct block){.extent = extent_new(lo, len), .count = count, .stride = stride};
}

/* adds a comb's elements; how many were there already */
static int mark(char *bitmap, const struct block *b)
{
    int twice = 0;
    for (int64_t k = 0; k < b->count; k++)
        for (int64_t i = 0; i < b->extent.len; i++)
            twice += bitmap[b->extent.lo + k * b->stride + i]++ != 0;
    return twice;
}

static bool same_as(const struct blocks *x, const char *bitmap)
{
    char have[ELEMENTS] = {0};
    for (uint32_t i = 0; i < x->n; i++)
        if (mark(have, &x->at[i]))
            return false;
    for (int i = 0; i < ELEMENTS; i++)
        if (have[i] != (bitmap[i] != 0))
            return false;
    return true;
}

/* two shards of [0, 192) by eights: combs of 48 and of 96, joined in an order that leaves several */
static void test_strides(void)
{
    struct arena *a = arena_new();
    struct block have[] = {comb(0, 32, 4, 48), comb(32, 16, 2, 96)}, more = comb(80, 16, 2, 96), again = comb(79, 16, 2, 96);
    struct blocks x = {2, have}, y = {1, &more}, z = {1, &again}, out;
    CU_ASSERT(blocks_union(a, &x, &y, &out) && blocks_whole(&out, ELEMENTS));
    CU_ASSERT_EQUAL(out.n, 1);
    CU_ASSERT(!blocks_union(a, &x, &z, &out));
    arena_free(a);
}

/* what is equally long is one comb, wherever it begins and in either order; what continues an interval is one
 * interval */
static void test_joins(void)
{
    struct arena *a = arena_new();
    struct block at3 = comb(3, 2, 1, 1), at9 = comb(9, 2, 1, 1), at15 = comb(15, 2, 1, 1), at5 = comb(5, 4, 1, 1);
    struct blocks x = {1, &at3}, y = {1, &at9}, z = {1, &at15}, w = {1, &at5}, two, three, line;
    CU_ASSERT(blocks_union(a, &x, &y, &two) && two.n == 1 && two.at[0].count == 2 && two.at[0].stride == 6);
    CU_ASSERT(blocks_union(a, &z, &two, &three) && three.n == 1 && three.at[0].count == 3 &&
              three.at[0].extent.lo == 3);
    CU_ASSERT(blocks_union(a, &w, &x, &line) && line.n == 1 && line.at[0].count == 1);
    CU_ASSERT(line.at[0].extent.lo == 3 && line.at[0].extent.len == 6);
    /* so is what fills a comb's gaps, here with an interval far behind */
    struct block teeth = comb(0, 4, 3, 8), gaps = comb(4, 4, 3, 8), at60 = comb(60, 4, 1, 1);
    struct blocks odd = {1, &teeth}, even = {1, &gaps}, behind = {1, &at60}, full;
    CU_ASSERT(blocks_union(a, &odd, &even, &line) && line.n == 1);
    CU_ASSERT(line.at[0].count == 1 && line.at[0].extent.len == 24);
    CU_ASSERT(blocks_union(a, &odd, &behind, &two) && blocks_union(a, &two, &even, &full) && full.n == 2);
    CU_ASSERT(full.at[0].count == 1 && full.at[0].extent.len == 24 && full.at[1].extent.lo == 60);
    /* beside what fits neither they still are one */
    struct block at40 = comb(40, 5, 1, 1);
    struct blocks far = {1, &at40}, apart;
    CU_ASSERT(blocks_union(a, &far, &x, &apart) && blocks_union(a, &apart, &y, &two) && two.n == 2);
    CU_ASSERT(two.at[0].count == 2 && two.at[0].stride == 6 && two.at[1].extent.lo == 40);
    arena_free(a);
}

/* combs cut from one another's gaps: rows of a (copies x parts x rows) box, dealt out and added in a drawn order */
static void test_boxes(void)
{
    static const int64_t sizes[][3] = {{4, 3, 16}, {2, 6, 16}, {8, 8, 3}, {12, 4, 4}, {3, 16, 4}, {2, 2, 48}};
    struct arena *a = arena_new();
    uint64_t seed = 7;
    for (int round = 0; round < 2000; round++) {
        struct arena_mark before = arena_mark(a);
        const int64_t *n = sizes[draw(&seed, 6)];
        struct blocks sum = {0};
        char bitmap[ELEMENTS] = {0};
        int64_t order[16], parts = n[1];
        for (int64_t i = 0; i < parts; i++) {
            int64_t at = draw(&seed, (uint32_t)i + 1);
            order[i] = order[at];
            order[at] = i;
        }
        bool taken = true;
        for (int64_t i = 0; i < parts && taken; i++) {
            struct block b = comb(order[i] * n[2], n[2], n[0], parts * n[2]);
            struct blocks one = {1, &b};
            mark(bitmap, &b);
            taken = blocks_union(a, &sum, &one, &sum);
            CU_ASSERT(taken && same_as(&sum, bitmap));
        }
        CU_ASSERT(sum.n == 1 && sum.at[0].count == 1 && blocks_whole(&sum, ELEMENTS));
        arena_reset(a, before);
    }
    arena_free(a);
}

/* any combs at all: what is taken is right, what shares an element is refused */
static void test_drawn(void)
{
    struct arena *a = arena_new();
    uint64_t seed = 11;
    uint32_t accepted = 0, overlapping = 0, cautious = 0;
    for (int round = 0; round < 20000; round++) {
        struct block list[4];
        struct blocks sum = {0};
        char bitmap[ELEMENTS] = {0};
        for (int i = 0; i < 4; i++) {
            int64_t len = 1 + draw(&seed, 16), stride = len + draw(&seed, 32), count = 1 + draw(&seed, 4);
            list[i] = comb(draw(&seed, (uint32_t)(ELEMENTS - (count - 1) * stride - len + 1)), len, count, stride);
            struct blocks one = {1, &list[i]}, next;
            bool twice = mark(bitmap, &list[i]) > 0, taken = blocks_union(a, &sum, &one, &next);
            CU_ASSERT(!(twice && taken));
            overlapping += twice;
            cautious += !twice && !taken;
            accepted += taken;
            if (!taken)
                break;
            sum = next;
            CU_ASSERT(same_as(&sum, bitmap));
        }
    }
    printf("\n    %u taken, %u with an element twice, %u refused to be safe ... ", accepted, overlapping, cautious);
    CU_ASSERT(accepted > 10000 && overlapping > 1000 && cautious * 20 < accepted);
    arena_free(a);
}

void suite_extent(void);
/* Sets are equal where their elements are, however they are cut, and only where all blocks follow the ranks alike: [0, 8) and
 * [8, 16) are [0, 16), but not if one of them moves, counts on first ranks alone or is of another rank's turn. */
static void test_equal(void)
{
    struct block whole = comb(0, 16, 1, 1), halves[2] = {comb(0, 8, 1, 1), comb(8, 8, 1, 1)}, odd = comb(0, 4, 2, 8),
                 even = comb(4, 4, 2, 8), mixed[2] = {odd, even};
    struct blocks x = {1, &whole}, y = {2, halves}, z = {2, mixed}, one = {1, halves}, nothing = {0};
    CU_ASSERT(blocks_equal(&x, &x) && blocks_equal(&x, &y) && blocks_equal(&y, &x) && blocks_equal(&y, &z));
    CU_ASSERT(blocks_equal(&nothing, &nothing) && !blocks_equal(&nothing, &x) && !blocks_equal(&x, &nothing));
    CU_ASSERT(!blocks_equal(&one, &x) && !blocks_equal(&x, &one));
    for (int fault = 0; fault < 5; fault++)
        for (int at = 0; at < 2; at++) {
            struct block other[2] = {halves[0], halves[1]};
            if (fault == 0)
                other[at].extent.step[AXIS_DP] = 16;
            if (fault == 1)
                other[at].first = AXIS_BIT(AXIS_DP);
            if (fault == 2)
                other[at].turns = 1;
            if (fault == 3)
                other[at].extent.turn = 1;
            if (fault == 4)
                other[at].extent.lo += 16;
            struct blocks w = {2, other};
            CU_ASSERT(!blocks_equal(&w, &x) && !blocks_equal(&x, &w) && !blocks_equal(&z, &w) && !blocks_equal(&w, &z));
        }
}

void suite_extent(void)
{
    CU_pSuite s = CU_add_suite("extent", NULL, NULL);
    CU_add_test(s, "strides that differ", test_strides);
    CU_add_test(s, "equal intervals are one comb", test_joins);
    CU_add_test(s, "boxes in any order", test_boxes);
    CU_add_test(s, "drawn combs", test_drawn);
    CU_add_test(s, "equal sets", test_equal);
}
