/* Philox against its authors' known answers, normals by their statistics and their independence of layout,
 * and the learning rate against the compiler's. */

#include "compiler/model/model.h"
#include "runtime/lr.h"
#include "runtime/random.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

/* the known-answer table of Random123, philox4x32 with 10 rounds */
static void test_philox(void)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                 {{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
                  {UINT32_MAX, UINT32_MAX},
                  {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                 {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                  {0xa4093822, 0x299f31d0},
                  {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        random_philox(known[i].counter, known[i].key, out);
        CU_ASSERT(memcmp(out, known[i].out, sizeof out) == 0);
    }
}

static void test_normals(void)
{
    enum { N = 40000 };
    static float x[N], y[N];
    double sum = 0, square = 0, product = 0;
    uint32_t beyond = 0;
    random_normals(1, "a.weight", 0, 1, N, 2, x);
    random_normals(1, "b.weight", 0, 1, N, 2, y);
    for (uint32_t i = 0; i < N; i++) {
        sum += (double)x[i];
        square += (double)x[i] * (double)x[i];
        product += (double)x[i] * (double)y[i];
        beyond += fabsf(x[i]) > 4;
    }
    CU_ASSERT(fabs(sum / N) < 0.04);
    CU_ASSERT(fabs(square / N - 4) < 0.12);
    CU_ASSERT(fabs(product / N) < 0.08); /* other names, other numbers */
    CU_ASSERT(beyond > N * 0.04 && beyond < N * 0.051);
    random_normals(2, "a.weight", 0, 1, 4, 2, y);
    CU_ASSERT(x[0] != y[0] && x[1] != y[1]);        /* other seeds too */
    random_normals(1, "a.weight", 7, 5, 100, 2, y); /* any order of elements gives the same ones */
    for (uint32_t i = 0; i < 100; i++)
        CU_ASSERT(y[i] == x[7 + 5 * i]);
    random_normals(1, "a.weight", (uint64_t)1 << 40, 1, 4, 1, y);
    CU_ASSERT(isfinite(y[0]) && y[0] != x[0] / 2);
}

static void test_lr(void)
{
    struct job_info t = {.lr = 1, .lr_min = 0.1, .lr_warmup = 9, .lr_kind = LR_COSINE};
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 0, 109), 0.1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 8, 109), 0.9, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 9, 109), 1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 59, 109), 0.55, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 109, 109), 0.1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 5000, 109), 0.1, 1e-12);
    t.lr_kind = LR_LINEAR;
    t.lr_decay = 19;
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 14, 109), 0.55, 1e-12);
    t.lr_kind = LR_WSD;
    t.lr_stable = 10;
    t.lr_decay = 10;
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 19, 0), 1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 24, 0), 0.55, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 29, 0), 0.1, 1e-12);
    t.lr_kind = LR_CONSTANT;
    CU_ASSERT_DOUBLE_EQUAL(lr_at(&t, 1000, 0), 1, 1e-12);
}

void suite_random(void);
void suite_random(void)
{
    CU_pSuite s = CU_add_suite("random", NULL, NULL);
    CU_add_test(s, "known answers", test_philox);
    CU_add_test(s, "normals", test_normals);
    CU_add_test(s, "learning rate as the compiler's", test_lr);
}
