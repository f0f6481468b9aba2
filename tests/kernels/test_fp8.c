/* 8-bit operands against formulas of the tests' own: all codes of both formats, the nearest of them by search, and products
 * of operands that were rounded tile by tile in double precision. */

#include "kernels/cpu/fp8.h"
#include "kernels/kernels.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* value of a code, as arXiv 2209.05433, table 1 has it; NaN where the code is no finite number */
static double code_value(uint32_t code, enum fp8_format format)
{
    uint32_t mantissa_bits = format == FP8_E4M3 ? 3 : 2, bias = format == FP8_E4M3 ? 7 : 15;
    uint32_t fraction = code & ((1u << mantissa_bits) - 1), exponent = (code & 127) >> mantissa_bits;
    if (format == FP8_E4M3 ? (code & 127) == 127 : exponent == 31)
        return NAN;
    double m = fraction / (double)(1u << mantissa_bits);
    double v = exponent ? ldexp(1 + m, (int)exponent - (int)bias) : ldexp(m, 1 - (int)bias);
    return code & 128 ? -v : v;
}

/* the nearest number, of two the one with the even code; codes of positive numbers ascend */
static double nearest(double x, enum fp8_format format)
{
    double a = fabs(x), best = 0;
    for (uint32_t code = 0; code < 128; code++) {
        double v = code_value(code, format);
        if (!isnan(v) && (fabs(a - v) < fabs(a - best) || (fabs(a - v) == fabs(a - best) && code % 2 == 0)))
            best = v;
    }
    return copysign(best, x);
}

static void test_codes(void)
{
    static const double largest[] = {[FP8_E4M3] = 448, [FP8_E5M2] = 57344};
    for (enum fp8_format f = FP8_E4M3; f <= FP8_E5M2; f++) {
        uint32_t numbers = 0;
        for (uint32_t code = 0; code < 256; code++) {
            double v = code_value(code, f), next = code_value(code + 1, f);
            if (isnan(v))
                continue;
            numbers++;
            CU_ASSERT_EQUAL(fp8_round((float)v, f), (float)v);
            CU_ASSERT(!signbit(fp8_round((float)v, f)) == !signbit(v));
            if ((code & 127) == 127 || isnan(next) || (code & 128) != ((code + 1) & 128))
                continue;
            float middle = (float)((v + next) / 2), even = (float)(code % 2 ? next : v);
            CU_ASSERT_EQUAL(fp8_round(middle, f), even);
            CU_ASSERT_EQUAL(fp8_round(nextafterf(middle, (float)v), f), (float)v);
            CU_ASSERT_EQUAL(fp8_round(nextafterf(middle, (float)next), f), (float)next);
        }
        CU_ASSERT_EQUAL(numbers, f == FP8_E4M3 ? 254u : 248u);
        CU_ASSERT_EQUAL(fp8_round(1e9f, f), (float)largest[f]);
        CU_ASSERT_EQUAL(fp8_round(-INFINITY, f), -(float)largest[f]);
        CU_ASSERT(isnan(fp8_round(NAN, f)));
    }
}

/* fp32 numbers of every exponent, which are far beyond both ends of the formats: to the nearest, and none
 * wraps around */
static void test_range(void)
{
    uint32_t wrong = 0;
    for (enum fp8_format f = FP8_E4M3; f <= FP8_E5M2; f++)
        for (uint32_t exponent = 0; exponent < 256; exponent++)
            for (uint32_t i = 0; i < 64; i++) {
                uint32_t bits = (i & 1) << 31 | exponent << 23 | (i * 0x9e3779b1u) >> 9;
                float x;
                memcpy(&x, &bits, sizeof x);
                float y = fp8_round(x, f);
                double near = nearest(fmax(-1e6, fmin(1e6, (double)x)),
                                      f); /* beyond, distances from all codes are equal */
                bool fine = isnan(x) ? isnan(y) : y == (float)near && !signbit(y) == !signbit(x);
                wrong += !fine;
            }
    CU_ASSERT_EQUAL(wrong, 0);
}

/* ---- products ---- */

struct matrix {
    uint32_t rows, cols;
    float *at;
    double *rounded;
};

/* rows spread over six orders of magnitude, so that who shares a scale matters */
static struct matrix new_matrix(uint32_t rows, uint32_t cols, uint64_t *state)
{
    struct matrix m = {rows, cols, calloc((size_t)rows * cols, sizeof(float)), calloc((size_t)rows * cols, sizeof(double))};
    for (size_t i = 0; i < (size_t)rows * cols; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        double u = (double)(*state >> 40) / (1 << 24) - 0.5;
        m.at[i] = (float)ldexp(u, (int)(i % 7 + i / cols % 5) - 6);
    }
    return m;
}

static void round_one(struct matrix *m, uint32_t i0, uint32_t j0, uint32_t rows, uint32_t cols, enum fp8_format f, bool power)
{
    double most = 0, largest = f == FP8_E4M3 ? 448 : 57344;
    for (uint32_t i = i0; i < i0 + rows && i < m->rows; i++)
        for (uint32_t j = j0; j < j0 + cols && j < m->cols; j++)
            most = fmax(most, fabs(m->at[i * m->cols + j]));
    double scale = power ? fmax(exp2(ceil(log2(most / largest))), 0x1p-126) : (double)((float)most / (float)largest);
    for (uint32_t i = i0; i < i0 + rows && i < m->rows; i++)
        for (uint32_t j = j0; j < j0 + cols && j < m->cols; j++) /* the quotient is the kernel's, its rounding is not */
            m->rounded[i * m->cols + j] = scale * nearest((double)(m->at[i * m->cols + j] / (float)scale), f);
}

/* tiles of high rows and wide columns */
static void round_all(struct matrix *m, uint32_t high, uint32_t wide, enum fp8_format f, bool power)
{
    for (uint32_t i = 0; i < m->rows; i += high)
        for (uint32_t j = 0; j < m->cols; j += wide)
            round_one(m, i, j, high, wide, f, power);
}

static void round_operand(struct matrix *m, int recipe, enum fp8_use use, bool down)
{
    static const struct {
        uint32_t along, across; /* what is summed over; 1000 = all */
    } shape[] = {{0, 0}, {1000, 1000}, {1000, 1}, {128, 1}, {32, 1}};
    uint32_t along = shape[recipe].along, across = recipe == 3 && use == FP8_WEIGHT ? 128 : shape[recipe].across;
    round_all(m, down ? along : across, down ? across : along, recipe == 1 && use == FP8_GRADIENT ? FP8_E5M2 : FP8_E4M3,
              recipe == 4);
}

static struct view view_of(const struct matrix *m)
{
    return (struct view){.data = m->at, .dtype = DTYPE_F32, .rows = m->rows, .cols = m->cols, .ld = m->cols};
}

/* op: 0 a b', 1 a b, 2 a' b */
static void check_product(int op, int recipe)
{
    static const enum op ops[] = {OP_MATMUL_NT, OP_MATMUL_NN, OP_MATMUL_TN};
    static const enum fp8_use uses[][2] = {{FP8_INPUT, FP8_WEIGHT}, {FP8_GRADIENT, FP8_WEIGHT}, {FP8_GRADIENT, FP8_INPUT}};
    const uint32_t m = 9, n = 140, k = 163;
    uint64_t state = 7;
    struct matrix a = op == 2 ? new_matrix(k, m, &state) : new_matrix(m, k, &state);
    struct matrix b = op == 0 ? new_matrix(n, k, &state) : new_matrix(k, n, &state), c = new_matrix(m, n, &state);
    struct kernel_args args = {.operand = {view_of(&c), view_of(&a), view_of(&b)}};
    args.attr[ATTR(MATMUL_NT, fp8)].i = recipe;
    args.scratch = aligned_alloc(64, (kernel_scratch_floats(ops[op], &args) * sizeof(float) + 127) / 64 * 64);
    if (op == 0)
        cpu_MATMUL_NT(&args);
    else if (op == 1)
        cpu_MATMUL_NN(&args);
    else
        cpu_MATMUL_TN(&args);
    round_operand(&a, recipe, uses[op][0], op == 2);
    round_operand(&b, recipe, uses[op][1], op != 0);
    double worst = 0;
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < n; j++) {
            double sum = 0, size = 0;
            for (uint32_t x = 0; x < k; x++) {
                double term = a.rounded[op == 2 ? x * m + i : i * k + x] * b.rounded[op == 0 ? j * k + x : x * n + j];
                sum += term;
                size += fabs(term);
            }
            worst = fmax(worst, fabs(c.at[i * n + j] - sum) / size);
        }
    CU_ASSERT(worst < 3e-6);
    if (!(worst < 3e-6))
        printf("\n    %s, recipe %d: off by %.2g", isa_info(ops[op])->name, recipe, worst);
    struct matrix *all[] = {&a, &b, &c};
    for (int i = 0; i < 3; i++) {
        free(all[i]->at);
        free(all[i]->rounded);
    }
    free(args.scratch);
}

static void test_products(void)
{
    for (int op = 0; op < 3; op++)
        for (int recipe = 1; recipe <= 4; recipe++)
            check_product(op, recipe);
}

/* rows as they are stored, of several sizes; shares of zeros stay zeros, and an infinity takes its share along */
static void check_rows(uint32_t cols, enum dtype dtype)
{
    uint64_t state = cols;
    struct matrix x = new_matrix(5, cols, &state), y = new_matrix(5, cols, &state);
    uint32_t words = (uint32_t)isa_eight_words(cols);
    int32_t *packed = malloc(5 * words * sizeof *packed);
    for (uint32_t j = 0; j < cols; j++)
        x.at[2 * cols + j] = j < 128 ? 0 : ldexpf(x.at[2 * cols + j], -120);
    struct kernel_args args = {.operand = {{packed, DTYPE_I32, false, 5, words, words}, view_of(&x)}, .scratch = y.at};
    CU_ASSERT_PTR_NULL(kernel_check(OP_QUANTIZE, &args));
    cpu_QUANTIZE(&args);
    uint16_t *half = malloc(5 * cols * sizeof *half);
    float scratch[1024];
    struct view packs = args.operand[0], out = {dtype == DTYPE_F32 ? (void *)y.at : half, dtype, false, 5, cols, cols};
    args = (struct kernel_args){.operand = {out, packs}, .scratch = scratch};
    CU_ASSERT_PTR_NULL(kernel_check(OP_DEQUANTIZE, &args));
    cpu_DEQUANTIZE(&args);
    round_all(&x, 1, 128, FP8_E4M3, true);
    for (uint32_t i = 0; i < 5 * cols; i++) { /* powers of two as scales: exact in 16 bits too */
        uint32_t bits = (uint32_t)half[i] << 16;
        float have = y.at[i];
        if (dtype == DTYPE_BF16)
            memcpy(&have, &bits, sizeof have);
        double want = x.at[i] == 0 ? 0 : x.rounded[i];
        bool normal = fabs(want) >= 0x1p-126 || want == 0;
        CU_ASSERT((double)have == want || (dtype == DTYPE_BF16 && !normal));
    }
    args.operand[1].cols++;
    CU_ASSERT_PTR_NOT_NULL(kernel_check(OP_DEQUANTIZE, &args));
    free(half);
    free(packed);
    free(x.at);
    free(x.rounded);
    free(y.at);
    free(y.rounded);
}

static void test_rows(void)
{
    static const uint32_t cols[] = {1, 4, 127, 128, 130, 512, 999};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++)
        for (enum dtype d = DTYPE_F32; d <= DTYPE_BF16; d++)
            check_rows(cols[i], d);
}

void suite_fp8(void);
void suite_fp8(void)
{
    CU_pSuite s = CU_add_suite("fp8", NULL, NULL);
    CU_add_test(s, "every code stays, every middle goes to the even one, what is too large to the largest", test_codes);
    CU_add_test(s, "fp32 numbers of every exponent", test_range);
    CU_add_test(s, "rows stored in 8 bits", test_rows);
    CU_add_test(s, "products of operands rounded tile by tile, every recipe", test_products);
}
