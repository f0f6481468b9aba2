/* bf16 and fp16 on the CPU, exhaustively: every number keeps its bits, and around every middle between two
 * neighbours the nearest one is taken, of two the even one, by each of the ways in which kernels and transport
 * store 16 bits.  The rule is worked out here in double precision, without looking at bits. */

#include "kernels/cpu/rows.h"
#include "kernels/cpu/sums.h"
#include "runtime/device.h"

#include <CUnit/CUnit.h>
#include <math.h>

enum { N = SUMS_BLOCK };

static const struct format {
    enum dtype dtype;
    float (*load)(uint16_t bits);
    uint16_t (*round)(float x);
    int fraction;      /* bits of it */
    int least;         /* exponent of the smallest normal number */
    uint32_t infinity; /* its code */
    double beyond;     /* what would come behind the largest number */
} formats[] = {{DTYPE_BF16, bf16_load, bf16_round, 7, -126, 0x7f80, 0x1p128},
               {DTYPE_F16, f16_load, f16_round, 10, -14, 0x7c00, 0x1p16}};
enum { NFORMATS = sizeof formats / sizeof *formats };

/* the nearest number, of two the one with the even last digit; from the middle behind the largest one on it is
 * infinity */
static double nearest(const struct format *f, double x)
{
    int exponent;
    frexp(x, &exponent); /* |x| < 2^exponent: all digits, or fewer below the smallest normal number */
    double step = ldexp(1, (exponent <= f->least ? f->least + 1 : exponent) - f->fraction - 1),
           n = floor(fabs(x) / step), rest = fabs(x) / step - n;
    if (rest > 0.5 || (rest == 0.5 && fmod(n, 2) != 0))
        n++;
    double r = n * step;
    return copysign(r >= f->beyond ? INFINITY : r, x);
}

/* the number that a code's digits say, without its sign */
static double value_of(const struct format *f, uint32_t code)
{
    uint32_t exponent = (code & 0x7fff) >> f->fraction, fraction = code & ((1u << f->fraction) - 1);
    if ((code & 0x7fff) == f->infinity)
        return INFINITY;
    return ldexp((exponent ? 1u << f->fraction : 0) + fraction, (exponent ? (int)exponent : 1) - 1 + f->least - f->fraction);
}

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* the ways to store n numbers */
static void by_one(const struct format *f, uint16_t *out, const float *x, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        out[j] = f->round(x[j]);
}

static void by_row(const struct format *f, uint16_t *out, const float *x, uint32_t n)
{
    struct view v = {out, f->dtype, false, 1, n, n};
    row_store(&v, 0, x);
}

static void by_sum(const struct format *f, uint16_t *out, const float *x, uint32_t n)
{
    struct view v = {out, f->dtype, true, 1, n, n};
    for (uint32_t j = 0; j < n; j++)
        out[j] = 0x8000; /* -0 changes nothing */
    row_store(&v, 0, x);
}

static void by_tile(const struct format *f, uint16_t *out, const float *x, uint32_t n)
{
    struct view v = {out, f->dtype, false, 1, n, n};
    tile_close(&v, 0, 1, 0, n, x);
}

static void by_columns(const struct format *f, uint16_t *out, const float *x, uint32_t n)
{
    struct view v = {out, f->dtype, false, 1, n, n};
    double sum[N];
    for (uint32_t j = 0; j < n; j++)
        sum[j] = (double)x[j];
    columns_store(&v, sum);
}

static void by_ranks(const struct format *f, uint16_t *out, const float *x, uint32_t n)
{
    union sums s;
    memcpy(s.f, x, n * sizeof *x);
    sums_store(&s, out, n, f->dtype);
}

static void by_fill(const struct format *f, uint16_t *out, const float *x, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++) {
        struct kernel_args k = {.operand = {{out + j, f->dtype, false, 1, 1, 1}}};
        k.attr[ATTR(FILL, value)].f = (double)x[j];
        device_cpu_run(OP_FILL, &k);
    }
}

static const struct {
    const char *name;
    void (*store)(const struct format *f, uint16_t *out, const float *x, uint32_t n);
} ways[] = {{"one", by_one},   {"row", by_row},         {"sum", by_sum},    {"tile", by_tile},
            {"columns", by_columns}, {"ranks", by_ranks}, {"fill", by_fill}};
enum { NWAYS = sizeof ways / sizeof *ways };

static uint32_t count_wrong(const struct format *f, const float *x, uint32_t n)
{
    uint32_t wrong = 0;
    uint16_t out[N];
    for (size_t w = 0; w < NWAYS; w++) {
        ways[w].store(f, out, x, n);
        for (uint32_t j = 0; j < n; j++) {
            double want = nearest(f, (double)x[j]), have = (double)f->load(out[j]);
            if (x[j] == 0 && ways[w].store == by_columns)
                want = 0; /* a sum of columns is added to 0, which has no sign */
            if ((have != want || !signbit(have) != !signbit(want)) && wrong++ < 3)
                printf("\n    %s, %s: %a is stored as %a, not %a", isa_dtype_name(f->dtype), ways[w].name, (double)x[j], have, want);
        }
    }
    return wrong;
}

/* around every number: itself, its neighbours in fp32, the middle to the next one and the middle's neighbours */
static void look_around(const struct format *f)
{
    float x[N];
    uint32_t n = 0, wrong = 0, looked = 0;
    for (uint32_t code = 0; code < f->infinity; code++) {
        double here = value_of(f, code), next = code + 1 < f->infinity ? value_of(f, code + 1) : f->beyond;
        float middle = (float)((here + next) / 2);
        CU_ASSERT_FATAL((double)middle == (here + next) / 2);
        const float at[] = {(float)here, nextafterf((float)here, INFINITY), nextafterf(middle, 0), middle,
                            nextafterf(middle, INFINITY), nextafterf((float)next, 0)};
        for (size_t i = 0; i < 2 * sizeof at / sizeof *at; i++) {
            x[n++] = i % 2 ? -at[i / 2] : at[i / 2];
            if (n < N && (code + 1 < f->infinity || i + 1 < 2 * sizeof at / sizeof *at))
                continue;
            wrong += count_wrong(f, x, n);
            looked += n;
            n = 0;
        }
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT_EQUAL(looked, 2 * 6 * f->infinity);
}

static void test_numbers(void)
{
    for (size_t i = 0; i < NFORMATS; i++)
        look_around(&formats[i]);
    CU_ASSERT_EQUAL(bf16_round(0x1.fep127f), 0x7f7f); /* the largest, and what is nearer to 2^128 */
    CU_ASSERT_EQUAL(bf16_round(0x1.fefffep127f), 0x7f7f);
    CU_ASSERT_EQUAL(bf16_round(0x1.ffp127f), 0x7f80);
    CU_ASSERT_EQUAL(bf16_round(0x1p-134f), 0); /* half of the smallest */
    CU_ASSERT_EQUAL(bf16_round(0x1.0002p-134f), 1);
    CU_ASSERT_EQUAL(bf16_round(-0x1.8p-133f), 0x8002); /* one and a half of it */
    CU_ASSERT_EQUAL(f16_round(65504), 0x7bff);
    CU_ASSERT_EQUAL(f16_round(0x1.ffdffep15f), 0x7bff);
    CU_ASSERT_EQUAL(f16_round(65520), 0x7c00);
    CU_ASSERT_EQUAL(f16_round(-0x1p127f), 0xfc00);
    CU_ASSERT_EQUAL(f16_round(0x1p-25f), 0);
    CU_ASSERT_EQUAL(f16_round(0x1.000002p-25f), 1);
    CU_ASSERT_EQUAL(f16_round(-0x1.8p-24f), 0x8002);
    CU_ASSERT_EQUAL(f16_round(0x1.ffep-15f), 0x0400); /* between the largest subnormal and the smallest normal number */
    CU_ASSERT_EQUAL(f16_round(0x1p-149f), 0);
}

/* infinities stay; a NaN stays one, of its sign, also where its payload lies in the part that goes */
static void test_specials(void)
{
    static const uint32_t nans[] = {0x7f800001, 0x7f80ffff, 0x7fbfffff, 0x7fc00000,
                                    0x7fffffff, 0x7f810000, 0x7fc00001, 0x7f801fff};
    uint16_t out[2];
    for (size_t w = 0; w < NFORMATS * NWAYS; w++) {
        const struct format *f = &formats[w / NWAYS];
        ways[w % NWAYS].store(f, out, (const float[]){INFINITY, -INFINITY}, 2);
        CU_ASSERT(out[0] == f->infinity && out[1] == (f->infinity | 0x8000));
        for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
            ways[w % NWAYS].store(f, out, (const float[]){of_bits(nans[i]), of_bits(nans[i] | 0x80000000)}, 2);
            CU_ASSERT(isnan(f->load(out[0])) && isnan(f->load(out[1])));
            CU_ASSERT(!(out[0] & 0x8000) && (out[1] & 0x8000));
        }
    }
}

/* read and stored, every code comes back; what is read is the number that its digits say, also from rows and over ranks */
static void test_codes(void)
{
    for (uint32_t i = 0; i < NFORMATS * 65536; i++) {
        const struct format *f = &formats[i / 65536];
        uint16_t code = (uint16_t)i;
        float x = f->load(code), row;
        union sums s;
        struct view v = {&code, f->dtype, false, 1, 1, 1};
        sums_take(&s, &code, 1, f->dtype, SUMS_SET);
        if ((code & 0x7fffu) > f->infinity) {
            CU_ASSERT(isnan(x) && isnan(s.f[0]) && isnan(*row_load(&v, 0, &row)));
            continue;
        }
        CU_ASSERT_FATAL((double)x == copysign(value_of(f, code), code & 0x8000 ? -1 : 1));
        CU_ASSERT_FATAL(x == s.f[0] && x == *row_load(&v, 0, &row));
        CU_ASSERT_FATAL(!signbit(x) == !(code & 0x8000));
        CU_ASSERT_FATAL(f->round(x) == code);
    }
}

void suite_rounding(void);
void suite_rounding(void)
{
    CU_pSuite s = CU_add_suite("rounding", NULL, NULL);
    CU_add_test(s, "the nearest number, of two the even one", test_numbers);
    CU_add_test(s, "infinities and NaN", test_specials);
    CU_add_test(s, "every code", test_codes);
}
