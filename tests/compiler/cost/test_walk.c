/* What a block's passes hide of their transfers, against times computed by hand. */

#include "compiler/cost/walk.h"

#include <CUnit/CUnit.h>

void suite_walk(void);

static bool near(double x, double y)
{
    return x - y < 1e-9 && y - x < 1e-9;
}

/* a product whose input is gathered ahead for its weights, and whose input's gradient is reduced beside them */
static void add_product(struct walk *w, uint32_t opr, double gather, double reduce, double kernel)
{
    w->opr = opr;
    walk_add(w, WALK_AHEAD, WALK_INPUT, WALK_B | WALK_W, gather);
    walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_I, kernel);
    walk_add(w, WALK_BEHIND, WALK_REDUCED, WALK_B | WALK_I, reduce);
    walk_add(w, WALK_USE, WALK_INPUT, WALK_B | WALK_W, 0);
    walk_add(w, WALK_KERNEL, 0, WALK_B | WALK_W, kernel);
    walk_add(w, WALK_FREE, WALK_INPUT, WALK_B | WALK_W, 0);
    walk_add(w, WALK_USE, WALK_REDUCED, WALK_B | WALK_I, 0);
}

static double exposed_s(struct walk *w, uint32_t pass, bool round)
{
    struct walk_strand x = walk_strand_new(w->arena, w, pass);
    return walk_exposed_s(&x, round, false);
}

static void test_product(void)
{
    struct walk w = {.arena = arena_new()};
    add_product(&w, 0, 2, 3, 4);
    /* B: the gather 0-2, the input's product 0-4, the reduction 4-7 under the weights' 4-8 */
    CU_ASSERT(near(exposed_s(&w, WALK_B, false), 0));
    /* I: nothing for the reduction to hide behind */
    CU_ASSERT(near(exposed_s(&w, WALK_I, false), 3));
    /* W: the gather 0-2, the product 2-6; a second one's gather waits for the room, 6-8 */
    CU_ASSERT(near(exposed_s(&w, WALK_W, false), 2));
    CU_ASSERT(near(exposed_s(&w, WALK_W, true), 2));
    arena_free(w.arena);
}

static void test_order(void)
{
    struct walk w = {.arena = arena_new()};
    walk_add(&w, WALK_KERNEL, 0, WALK_B, 5);
    add_product(&w, 1, 9, 0, 1);
    /* from the last operator to the first: the gather 0-9, of which the input's product hides 1; weights 9-10; then 5 */
    CU_ASSERT(near(exposed_s(&w, WALK_B, false), 8));
    /* behind one of its like: the gather 10-19, over the first operator's 10-15 and the input's product 15-16 */
    CU_ASSERT(near(exposed_s(&w, WALK_B, true), 3));
    /* a forward pass that runs again comes first, and waits for its transfers */
    walk_forward(&w, WALK_KERNEL, 0, 6, true);
    walk_forward(&w, WALK_BLOCK, 0, 2, true);
    CU_ASSERT(near(exposed_s(&w, WALK_B, false), 10));
    /* W runs nothing again: gather, then product */
    CU_ASSERT(near(exposed_s(&w, WALK_W, false), 9));
    arena_free(w.arena);
}

/* kernel, transfer that it waits for, kernel; twice over, on one queue of transfers or on two */
static void test_together(void)
{
    struct walk w = {.arena = arena_new()}, v = {.arena = w.arena, .queue = WALK_DP};
    double f_s, b_s;
    for (uint32_t k = 0; k < 2; k++) {
        struct walk *x = k ? &v : &w;
        walk_forward(x, WALK_KERNEL, 0, 2, true);
        walk_forward(x, WALK_BLOCK, 0, 3, true);
        walk_forward(x, WALK_KERNEL, 0, 4, true);
    }
    struct walk_strand f = walk_strand_new(w.arena, &w, WALK_F), b = walk_strand_new(w.arena, &v, WALK_B);
    CU_ASSERT(near(f.kernels_s, 6) && near(f.all_s, 9) && f.n == 3 && b.n == 3);
    /* kernels 0-2, 2-4; transfers 2-5 and, behind it, 5-8; kernels 5-9, 9-13 */
    walk_together(&f, &b, false, &f_s, &b_s);
    CU_ASSERT(near(f_s, 9) && near(b_s, 13));
    /* transfers 2-5, 4-7: the second kernels as before */
    walk_together(&f, &b, true, &f_s, &b_s);
    CU_ASSERT(near(f_s, 9) && near(b_s, 13));
    /* kernels of half the time: 0-1, 1-2; transfers 1-4, 4-7 or 2-5; kernels 4-6, then 7-9 or 6-8 */
    f = walk_strand_join(w.arena, &f, 1, 3);
    b = walk_strand_join(w.arena, &b, 1, 3);
    walk_together(&f, &b, false, &f_s, &b_s);
    CU_ASSERT(near(f_s, 6) && near(b_s, 9));
    walk_together(&f, &b, true, &f_s, &b_s);
    CU_ASSERT(near(f_s, 6) && near(b_s, 8));
    arena_free(w.arena);
}

/* passes of drawn steps, of one block and of two: as joined ones run */
static void test_rows(void)
{
    uint32_t state = 1;
    for (uint32_t k = 0; k < 200; k++) {
        struct walk w = {.arena = arena_new()};
        for (uint32_t i = 0; i < 12; i++) {
            uint32_t kind = (state = state * 1664525 + 1013904223) >> 16;
            w.queue = kind & 8 ? WALK_DP : WALK_TP;
            walk_add(&w, kind % 4, WALK_KEYS, kind & 16 ? WALK_F : WALK_B, (kind >> 5) % 7);
            walk_add(&w, kind & 1024 ? WALK_USE : WALK_FREE, WALK_KEYS, kind & 16 ? WALK_F : WALK_B, 0);
        }
        const struct walk_strand f = walk_strand_new(w.arena, &w, WALK_F), b = walk_strand_new(w.arena, &w, WALK_B);
        const struct walk_strand fs[] = {f, f}, bs[] = {b, b};
        double one_s, two_s, f_s, b_s;
        walk_rows_together(&f, &b, k % 2, &one_s, &two_s);
        walk_together(&f, &b, k % 2, &f_s, &b_s);
        CU_ASSERT_EQUAL(one_s, f_s > b_s ? f_s : b_s);
        struct walk_strand f2 = walk_strand_join(w.arena, fs, 2, 2 * f.kernels_s);
        struct walk_strand b2 = walk_strand_join(w.arena, bs, 2, 2 * b.kernels_s);
        walk_together(&f2, &b2, k % 2, &f_s, &b_s);
        CU_ASSERT_EQUAL(two_s, f_s > b_s ? f_s : b_s);
        arena_free(w.arena);
    }
}

/* rows in parts: a product whose input is gathered, one whose output is reduced, kernels on a rank's own rows between */
static void add_cut(struct walk *w, uint32_t n, bool at_once, double transfer)
{
    walk_own(w, WALK_F, n, false, 1);
    walk_gathered(w, WALK_F, n, transfer, 4);
    walk_add(w, WALK_KERNEL, 0, WALK_F, 3);
    walk_reduced(w, WALK_F, n, 4, transfer);
    walk_own(w, WALK_F, n, at_once, 1);
}

static void test_cut(void)
{
    struct walk w = {.arena = arena_new()}, once = w, longer = w;
    /* Own rows 0-1, 1-2; gathered 1-3, 3-5; the product 3-7, 7-11; 11-14; the other one 14-18, 18-22; reduced 18-20,
     * 22-24; own rows wait for the last part alone: 22-23, 24-25.  Of that kernels are 23. */
    add_cut(&w, 2, false, 2);
    CU_ASSERT(near(exposed_s(&w, WALK_F, false), 1 + 1));
    /* all of them at once, 24-25: as many waits, but one kernel less */
    add_cut(&once, 2, true, 2);
    CU_ASSERT(near(exposed_s(&once, WALK_F, false), 1 + 2));
    /* Longer than their products: gathered 1-7, 7-13; 7-11, 13-17; 17-20; 20-24, 24-28; reduced 24-30, 30-36; 30-31, 36-37 */
    add_cut(&longer, 2, false, 6);
    CU_ASSERT(near(exposed_s(&longer, WALK_F, false), 37 - 23));
    /* of no other pass */
    CU_ASSERT(near(exposed_s(&longer, WALK_B, false), 0));
    /* in a pass that runs it again, own rows are there from the start */
    walk_gathered(&longer, WALK_F | WALK_AGAIN, 2, 6, 4);
    CU_ASSERT(near(exposed_s(&longer, WALK_B, false), 16 - 8));
    arena_free(w.arena);
}

static void test_turns(void)
{
    struct walk w = {.arena = arena_new()};
    walk_add(&w, WALK_BLOCK, 0, WALK_B, 3);
    walk_add(&w, WALK_KERNEL, 0, WALK_B, 4);
    struct walk_strand x = walk_strand_new(w.arena, &w, WALK_B), y = walk_strand_turns(w.arena, &x, 0, 2);
    CU_ASSERT(near(walk_exposed_s(&x, true, false), 3));
    CU_ASSERT(near(walk_exposed_s(&y, false, false), 3));
    /* behind one of its like: the transfer 7-10, over the turn 7-9 of the one before */
    CU_ASSERT(near(walk_exposed_s(&y, true, false), 1));
    y = walk_strand_turns(w.arena, &x, 2, 2); /* and that in front of its own */
    CU_ASSERT(near(walk_exposed_s(&y, true, false), 0));
    double f_s, b_s;
    struct walk_strand none = {0};
    walk_together(&none, &y, true, &f_s, &b_s); /* 0-3 beside 0-2, 3-7, 7-9 */
    CU_ASSERT(near(b_s, 9));
    arena_free(w.arena);
}

void suite_walk(void)
{
    CU_pSuite s = CU_add_suite("walk", NULL, NULL);
    CU_add_test(s, "a product's transfers", test_product);
    CU_add_test(s, "order of operators", test_order);
    CU_add_test(s, "rows in parts", test_cut);
    CU_add_test(s, "turns of kernels' queue", test_turns);
    CU_add_test(s, "two passes together", test_together);
    CU_add_test(s, "two blocks in a row together", test_rows);
}
