/* Emulation of 8-bit operands: shares of a matrix are scaled, rounded to E4M3 or E5M2 and scaled back.
 *
 * Formats: Micikevicius et al. 2022 (arXiv 2209.05433), without infinities: what is too large becomes the largest
 * number.  Recipes: 1 one scale per operand and E5M2 for gradients (section 3 there); 2 one per row; 3 DeepSeek-V3's
 * tiles of 1 x 128 and, for weights, 128 x 128 (arXiv 2412.19437, section 3.3); 4 microscaling, 32 elements and powers
 * of two (OCP MX 1.0), rounded up so that nothing saturates.  Every recipe is tiles of one shape.  Products of two
 * rounded numbers are exact in fp32; sums are sgemm's.
 *
 * Rows that travel or are kept in 8 bits: tiles of 1 x 128 as in DeepSeek-V3, their scales powers of two as there
 * (section 3.3.3), so that bf16 holds every number exactly. */

#include "kernels/cpu/fp8.h"

#define LARGEST_E4M3 448.0f
#define LARGEST_E5M2 57344.0f

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Numbers of one binade are a power of two apart; below the smallest normal one (2^least) the spacing stays. */
static inline float round_to(float x, int mantissa, int least, float largest)
{
    uint32_t sign = bits_of(x) & 0x80000000, exponent = bits_of(x) >> 23 & 255, smallest = (uint32_t)(127 + least);
    float a = fabsf(x);
    if (!(a < largest))
        return a >= largest ? of_bits(bits_of(largest) | sign) : x;
    uint32_t e = exponent > smallest ? exponent : smallest;
    float step = of_bits((e - (uint32_t)mantissa) << 23), back = of_bits((254 - e + (uint32_t)mantissa) << 23);
    return of_bits(bits_of(rintf(a * back) * step) | sign);
}

float fp8_round(float x, enum fp8_format format)
{
    return format == FP8_E4M3 ? round_to(x, 3, -6, LARGEST_E4M3) : round_to(x, 2, -14, LARGEST_E5M2);
}

/* what the largest magnitude is divided by; 0: the tile stays as it is, being zero or beyond fp32 */
static float tile_scale(const float *x, size_t ld, uint32_t rows, uint32_t cols, float largest, bool power)
{
    float most = 0;
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < cols; j++)
            most = fabsf(x[i * ld + j]) > most ? fabsf(x[i * ld + j]) : most;
    if (!(most > 0 && most < INFINITY))
        return 0;
    int exponent;
    float fraction = frexpf(most / largest, &exponent);
    float scale = power ? ldexpf(1, fraction > 0.5f ? exponent : exponent - 1) : most / largest;
    return scale >= 1e-38f ? scale : 1e-38f; /* its inverse is finite */
}

VARIANTS static void round_tile(float *x, size_t ld, uint32_t rows, uint32_t cols, enum fp8_format format, bool power)
{
    float scale = tile_scale(x, ld, rows, cols, format == FP8_E4M3 ? LARGEST_E4M3 : LARGEST_E5M2, power);
    if (!(scale > 0))
        return;
    for (uint32_t i = 0; i < rows; i++) {
        float *row = x + i * ld;
        if (format == FP8_E4M3)
            for (uint32_t j = 0; j < cols; j++)
                row[j] = scale * round_to(row[j] / scale, 3, -6, LARGEST_E4M3);
        else
            for (uint32_t j = 0; j < cols; j++)
                row[j] = scale * round_to(row[j] / scale, 2, -14, LARGEST_E5M2);
    }
}

const float *fp8_load(const struct view *v, int64_t recipe, enum fp8_use use, bool down, float *tmp, uint32_t *ld)
{
    const float *x = tile_load(v, 0, v->rows, 0, v->cols, tmp, ld);
    if (!recipe)
        return x;
    for (uint32_t i = 0; i < v->rows && x != tmp; i++)
        memcpy(tmp + (size_t)i * v->cols, x + (size_t)i * *ld, v->cols * sizeof *tmp);
    *ld = v->cols;
    /* of a tile: how much of what is summed over, and how much across */
    uint32_t inner = recipe <= 2 ? UINT32_MAX : recipe == 3 ? 128 : 32;
    uint32_t outer = recipe == 1 ? UINT32_MAX : recipe == 3 && use == FP8_WEIGHT ? 128 : 1;
    uint32_t high = down ? inner : outer, wide = down ? outer : inner;
    high = high < v->rows ? high : v->rows;
    wide = wide < v->cols ? wide : v->cols;
    enum fp8_format format = recipe == 1 && use == FP8_GRADIENT ? FP8_E5M2 : FP8_E4M3;
    for (uint32_t i = 0; i < v->rows; i += high)
        for (uint32_t j = 0; j < v->cols; j += wide)
            round_tile(tmp + (size_t)i * v->cols + j, v->cols, v->rows - i < high ? v->rows - i : high,
                       v->cols - j < wide ? v->cols - j : wide, format, recipe == 4);
    return tmp;
}

/* ---- rows that are stored in 8 bits ---- */

enum { EIGHT_TILE = 128 };

/* exponent field of the smallest normal power of two p with most / p <= 448 = 1.75 * 2^8; most is finite */
static uint32_t eight_exponent(float most)
{
    uint32_t bits = bits_of(most), exponent = (bits >> 23) + ((bits & 0x7fffff) > 0x600000);
    return exponent > 9 ? exponent - 8 : 1;
}

static inline uint8_t eight_of(float x)
{
    uint32_t sign = bits_of(x) >> 24 & 0x80, a = bits_of(x) & 0x7fffffff;
    if (a > 0x7f800000)
        return 0x7f;
    if (a >> 23 <= 120) /* below 2^-6, multiples of 2^-9 */
        return (uint8_t)(sign | (uint32_t)rintf(of_bits(a) * 512));
    a += 0x7ffff + (a >> 20 & 1);
    return (uint8_t)(sign | ((a >> 20) - (120 << 3)));
}

static inline float eight_value(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80) << 24, field = b >> 3 & 15, mantissa = b & 7;
    if ((b & 0x7f) == 0x7f)
        return NAN;
    float small = (float)mantissa / 512;
    return of_bits((field ? (field + 120) << 23 | mantissa << 20 : bits_of(small)) | sign);
}

VARIANTS void cpu_QUANTIZE(struct kernel_args *k)
{
    const struct view *y = V(QUANTIZE, y), *x = V(QUANTIZE, x);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, k->scratch);
        uint32_t *words = (uint32_t *)y->data + (size_t)i * y->ld, *scale = words + (x->cols + 3) / 4;
        uint8_t *out = (uint8_t *)words;
        memset(words, 0, y->cols * sizeof *words);
        for (uint32_t from = 0; from < x->cols; from += EIGHT_TILE) {
            uint32_t n = x->cols - from < EIGHT_TILE ? x->cols - from : EIGHT_TILE;
            float most = 0;
            for (uint32_t j = 0; j < n; j++)
                most = fabsf(in[from + j]) > most ? fabsf(in[from + j]) : most;
            uint32_t exponent = most < INFINITY ? eight_exponent(most) : 1;
            float inverse = of_bits((254 - exponent) << 23);
            for (uint32_t j = 0; j < n; j++)
                out[from + j] = most < INFINITY ? eight_of(in[from + j] * inverse) : 0x7f;
            *scale++ = most < INFINITY ? exponent << 23 : 0x7fc00000;
        }
    }
}

VARIANTS void cpu_DEQUANTIZE(struct kernel_args *k)
{
    const struct view *y = V(DEQUANTIZE, y), *x = V(DEQUANTIZE, x);
    for (uint32_t i = 0; i < y->rows; i++) {
        const uint32_t *words = (const uint32_t *)x->data + (size_t)i * x->ld, *scale = words + (y->cols + 3) / 4;
        const uint8_t *in = (const uint8_t *)words;
        for (uint32_t j = 0; j < y->cols; j++)
            k->scratch[j] = of_bits(scale[j / EIGHT_TILE]) * eight_value(in[j]);
        row_store(y, i, k->scratch);
    }
}
