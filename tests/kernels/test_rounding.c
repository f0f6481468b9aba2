/* bf16 on the CPU, exhaustively: every number keeps its bits, and around every middle between two neighbours
 * the nearest one is taken, of two the even one, by each of the ways in which kernels and transport store
 * bf16.  The rule is worked out here in double precision, without looking at bits. */

#include "kernels/cpu/rows.h"
#include "kernels/cpu/sums.h"

#include <CUnit/CUnit.h>
#include <math.h>

enum { NUMBERS = 0x7f80, N = SUMS_BLOCK };

/* the nearest bf16, of two the one with the even last digit; from the middle behind the largest number on it
 * is infinity */
static double nearest(double x)
{
    int exponent;
    frexp(x, &exponent); /* |x| < 2^exponent: eight digits, or fewer below 2^-126 */
    double step = ldexp(1, (exponent < -125 ? -125 : exponent) - 8), n = floor(fabs(x) / step),
           rest = fabs(x) / step - n;
    if (rest > 0.5 || (rest == 0.5 && fmod(n, 2) != 0))
        n++;
    double r = n * step;
    return copysign(r >= 0x1p128 ? INFINITY : r, x);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* the ways to store n numbers */
static void by_one(uint16_t *out, const float *x, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        out[j] = bf16_round(x[j]);
}

static void by_row(uint16_t *out, const float *x, uint32_t n)
{
    struct view v = {out, DTYPE_BF16, false, 1, n, n};
    row_store(&v, 0, x);
}

static void by_sum(uint16_t *out, const float *x, uint32_t n)
{
    struct view v = {out, DTYPE_BF16, true, 1, n, n};
    for (uint32_t j = 0; j < n; j++)
        out[j] = 0x8000; /* -0 changes nothing */
    row_store(&v, 0, x);
}

static void by_tile(uint16_t *out, const float *x, uint32_t n)
{
    struct view v = {out, DTYPE_BF16, false, 1, n, n};
    tile_close(&v, 0, 1, 0, n, x);
}

static void by_columns(uint16_t *out, const float *x, uint32_t n)
{
    struct view v = {out, DTYPE_BF16, false, 1, n, n};
    double sum[N];
    for (uint32_t j = 0; j < n; j++)
        sum[j] = (double)x[j];
    columns_store(&v, sum);
}

static void by_ranks(uint16_t *out, const float *x, uint32_t n)
{
    union sums s;
    memcpy(s.f, x, n * sizeof *x);
    sums_store(&s, out, n, DTYPE_BF16);
}

static const struct {
    const char *name;
    void (*store)(uint16_t *out, const float *x, uint32_t n);
} ways[] = {{"one", by_one},   {"row", by_row},         {"sum", by_sum},
            {"tile", by_tile}, {"columns", by_columns}, {"ranks", by_ranks}};
enum { NWAYS = sizeof ways / sizeof *ways };

static uint32_t count_wrong(const float *x, uint32_t n)
{
    uint32_t wrong = 0;
    uint16_t out[N];
    for (size_t w = 0; w < NWAYS; w++) {
        ways[w].store(out, x, n);
        for (uint32_t j = 0; j < n; j++) {
            uint32_t want = bits_of((float)nearest((double)x[j])) >> 16;
            if (x[j] == 0 && ways[w].store == by_columns)
                want = 0; /* a sum of columns is added to 0, which has no sign */
            if (out[j] != want && wrong++ < 3)
                printf("\n    %s: %a is stored as %04x, not %04x", ways[w].name, (double)x[j], out[j], want);
        }
    }
    return wrong;
}

/* around every number: itself, its neighbours in fp32, the middle to the next bf16 and the middle's
 * neighbours */
static void test_numbers(void)
{
    static const uint32_t off[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    float x[N];
    uint32_t n = 0, wrong = 0, looked = 0;
    for (uint32_t code = 0; code < NUMBERS; code++)
        for (size_t i = 0; i < 2 * sizeof off / sizeof *off; i++) {
            x[n++] = of_bits(((code << 16) + off[i / 2]) | (i % 2 ? 0x80000000 : 0));
            if (n < N && (code + 1 < NUMBERS || i + 1 < 2 * sizeof off / sizeof *off))
                continue;
            wrong += count_wrong(x, n);
            looked += n;
            n = 0;
        }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_EQUAL(looked, 2 * 6 * NUMBERS);
    CU_ASSERT_EQUAL(bf16_round(0x1.fep127f), 0x7f7f); /* the largest, and what is nearer to 2^128 */
    CU_ASSERT_EQUAL(bf16_round(0x1.fefffep127f), 0x7f7f);
    CU_ASSERT_EQUAL(bf16_round(0x1.ffp127f), 0x7f80);
    CU_ASSERT_EQUAL(bf16_round(0x1p-134f), 0); /* half of the smallest */
    CU_ASSERT_EQUAL(bf16_round(0x1.0002p-134f), 1);
    CU_ASSERT_EQUAL(bf16_round(-0x1.8p-133f), 0x8002); /* one and a half of it */
}

/* infinities stay; a NaN stays one, of its sign, also where its payload lies in the half that goes */
static void test_specials(void)
{
    static const uint32_t nans[] = {0x7f800001, 0x7f80ffff, 0x7fbfffff, 0x7fc00000,
                                    0x7fffffff, 0x7f810000, 0x7fc00001};
    uint16_t out[2];
    for (size_t w = 0; w < NWAYS; w++) {
        ways[w].store(out, (const float[]){INFINITY, -INFINITY}, 2);
        CU_ASSERT(out[0] == 0x7f80 && out[1] == 0xff80);
        for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
            ways[w].store(out, (const float[]){of_bits(nans[i]), of_bits(nans[i] | 0x80000000)}, 2);
            CU_ASSERT(isnan(bf16_load(out[0])) && isnan(bf16_load(out[1])));
            CU_ASSERT(!(out[0] & 0x8000) && (out[1] & 0x8000));
        }
    }
}

/* read and stored, every code comes back; what is read is the number that its digits say */
static void test_codes(void)
{
    for (uint32_t code = 0; code < 65536; code++) {
        float x = bf16_load((uint16_t)code);
        uint32_t exponent = code >> 7 & 255, fraction = code & 127;
        double v = exponent ? ldexp(128 + fraction, (int)exponent - 134) : ldexp(fraction, -133);
        if (exponent == 255 && fraction) {
            CU_ASSERT(isnan(x));
            continue;
        }
        CU_ASSERT_FATAL((double)x == copysign(exponent == 255 ? INFINITY : v, code & 0x8000 ? -1 : 1));
        CU_ASSERT_FATAL(!signbit(x) == !(code & 0x8000));
        CU_ASSERT_FATAL(bf16_round(x) == code);
    }
}

void suite_rounding(void);
void suite_rounding(void)
{
    CU_pSuite s = CU_add_suite("rounding", NULL, NULL);
    CU_add_test(s, "the nearest bf16, of two the even one", test_numbers);
    CU_add_test(s, "infinities and NaN", test_specials);
    CU_add_test(s, "every code", test_codes);
}
