/* Logarithms and powers: near the C library's, exact where they can be, and the same bits everywhere. */

#include "compiler/support/real.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

static uint64_t bits(double x)
{
    uint64_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static double ulps(double found, double wanted)
{
    return fabs(found - wanted) / (nextafter(fabs(wanted), INFINITY) - fabs(wanted));
}

static void test_near(void)
{
    double worst = 0, worst2 = 0;
    uint64_t seed = 88172645463325252u;
    for (int i = 0; i < 100000; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        double x = ldexp(1 + (double)(seed >> 12) * 0x1p-52, (int)(seed % 100) - 50);
        worst = fmax(worst, ulps(real_log(x), log(x)));
        worst2 = fmax(worst2, ulps(real_log2(x), log2(x)));
        CU_ASSERT_FATAL(ulps(real_power(x, 3), x * x * x) < 0.5);
    }
    CU_ASSERT(worst <= 2);
    CU_ASSERT(worst2 <= 3);
}

static void test_exact(void)
{
    for (int e = -60; e <= 60; e++)
        CU_ASSERT_EQUAL(bits(real_log2(ldexp(1, e))), bits(e));
    CU_ASSERT_EQUAL(bits(real_log(1)), bits(0));
    CU_ASSERT_EQUAL(bits(real_power(7, 0)), bits(1));
    CU_ASSERT_EQUAL(bits(real_power(0.5, 10)), bits(0x1p-10));
}

static void test_bits(void)
{
    CU_ASSERT_EQUAL(bits(real_log(3)), 0x3ff193ea7aad030a);
    CU_ASSERT_EQUAL(bits(real_log(0.1)), 0xc0026bb1bbb55515);
    CU_ASSERT_EQUAL(bits(real_log2(1000)), 0x4023ee7b471b3a95);
    CU_ASSERT_EQUAL(bits(real_power(0.7, 8)), 0x3fad840a3b424b50);
}

void suite_real(void);
void suite_real(void)
{
    CU_pSuite s = CU_add_suite("real", NULL, NULL);
    CU_add_test(s, "within three units of the last place of the C library's", test_near);
    CU_add_test(s, "powers of two have whole logarithms", test_exact);
    CU_add_test(s, "the same bits everywhere", test_bits);
}
