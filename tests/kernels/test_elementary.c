/* exp, logistic and tanh against libm in double precision, over floats drawn from all bit patterns; and the
 * vector variant that this processor runs against the scalar code, bit by bit. */

#include "kernels/cpu/rows.h"

#include <CUnit/CUnit.h>

enum { STRIDE = 4099 /* prime: every exponent and all sorts of mantissas */ };

static double units_off(float have, double want)
{
    float near = fabsf((float)want);
    if (!(near < INFINITY))
        return have == (float)want ? 0 : INFINITY;
    return fabs((double)have - want) / (double)(nextafterf(near, INFINITY) - near);
}

static void test_errors(void)
{
    double exp_off = 0, tanh_off = 0, logistic_off = 0;
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += STRIDE) {
        uint32_t word = (uint32_t)bits;
        float x;
        memcpy(&x, &word, sizeof x);
        if (isnan(x)) {
            CU_ASSERT_FATAL(isnan(float_exp(x)) && isnan(float_tanh(x)) && isnan(float_logistic(x)));
            continue;
        }
        exp_off = fmax(exp_off, units_off(float_exp(x), exp((double)x)));
        tanh_off = fmax(tanh_off, units_off(float_tanh(x), tanh((double)x)));
        if (x > -88.7f)
            logistic_off = fmax(logistic_off, units_off(float_logistic(x), 1 / (1 + exp(-(double)x))));
        else
            CU_ASSERT_FATAL(float_logistic(x) <= 0x1p-126f);
    }
    CU_ASSERT(exp_off < 1.1);
    CU_ASSERT(tanh_off < 1.7);
    CU_ASSERT(logistic_off < 2.5);
}

static void test_ends(void)
{
    CU_ASSERT(float_exp(0) == 1 && float_exp(-INFINITY) == 0 && float_exp(INFINITY) == INFINITY);
    CU_ASSERT(float_exp(88.7f) < INFINITY && float_exp(88.8f) == INFINITY);
    CU_ASSERT(float_exp(-103) == 0x1p-149f && float_exp(-104.5f) == 0);
    CU_ASSERT(float_tanh(INFINITY) == 1 && float_tanh(-INFINITY) == -1 && float_tanh(0) == 0);
    CU_ASSERT(float_logistic(INFINITY) == 1 && float_logistic(-INFINITY) == 0 && float_logistic(0) == 0.5f);
}

static void test_variants(void)
{
    enum { N = 1003 };
    float in[N], out[N];
    double sum = 0, most = -INFINITY;
    for (uint32_t j = 0; j < N; j++)
        in[j] = (float)((j * 7919 % N) * 0.2 - 150);
    double have = row_exp(out, in, 0.375f, N);
    for (uint32_t j = 0; j < N; j++) {
        float want = float_exp(in[j] - 0.375f);
        CU_ASSERT(memcmp(&out[j], &want, sizeof want) == 0);
        sum += (double)out[j];
        most = fmax(most, (double)in[j]);
    }
    CU_ASSERT(fabs(have - sum) <= 1e-13 * sum);
    CU_ASSERT((double)row_max(in, N) == most);
    CU_ASSERT(row_max(in, 0) == -INFINITY);
}

void suite_elementary(void);
void suite_elementary(void)
{
    CU_pSuite s = CU_add_suite("elementary", NULL, NULL);
    CU_add_test(s, "errors are within the stated bounds", test_errors);
    CU_add_test(s, "ends of the range", test_ends);
    CU_add_test(s, "vector variants give the scalar code's bits", test_variants);
}
