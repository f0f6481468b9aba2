/* Rows of views as fp32: conversion, rounding, accumulation, and sums with a fixed order. */

#include "kernels/cpu/rows.h"

float bf16_load(uint16_t bits)
{
    return float_of_bf16(bits);
}

uint16_t bf16_round(float x)
{
    return bf16_of_float(x);
}

float f16_load(uint16_t bits)
{
    return float_of_f16(bits);
}

uint16_t f16_round(float x)
{
    return f16_of_float(x);
}

/* n numbers of 16 bits as fp32 */
VARIANTS static void widen(float *restrict out, const uint16_t *in, uint32_t n, enum dtype dtype)
{
    if (dtype == DTYPE_F16)
        for (uint32_t j = 0; j < n; j++)
            out[j] = float_of_f16(in[j]);
    else
        for (uint32_t j = 0; j < n; j++)
            out[j] = float_of_bf16(in[j]);
}

VARIANTS static void narrow(uint16_t *restrict out, const float *in, uint32_t n, enum dtype dtype)
{
    if (dtype == DTYPE_F16)
        for (uint32_t j = 0; j < n; j++)
            out[j] = f16_of_float(in[j]);
    else
        for (uint32_t j = 0; j < n; j++)
            out[j] = bf16_of_float(in[j]);
}

VARIANTS static void narrow_sum(uint16_t *restrict out, const float *in, uint32_t n, enum dtype dtype)
{
    if (dtype == DTYPE_F16)
        for (uint32_t j = 0; j < n; j++)
            out[j] = f16_of_float(float_of_f16(out[j]) + in[j]);
    else
        for (uint32_t j = 0; j < n; j++)
            out[j] = bf16_of_float(float_of_bf16(out[j]) + in[j]);
}

const float *row_load(const struct view *v, uint32_t i, float *tmp)
{
    size_t at = (size_t)i * v->ld;
    if (v->dtype == DTYPE_F32)
        return (const float *)v->data + at;
    widen(tmp, (const uint16_t *)v->data + at, v->cols, v->dtype);
    return tmp;
}

VARIANTS void row_store(const struct view *v, uint32_t i, const float *x)
{
    size_t at = (size_t)i * v->ld;
    if (v->dtype == DTYPE_F32) {
        float *out = (float *)v->data + at;
        if (v->add)
            for (uint32_t j = 0; j < v->cols; j++)
                out[j] += x[j];
        else if (out != x)
            memcpy(out, x, v->cols * sizeof *out);
        return;
    }
    uint16_t *out = (uint16_t *)v->data + at;
    if (v->add)
        narrow_sum(out, x, v->cols, v->dtype);
    else
        narrow(out, x, v->cols, v->dtype);
}

const float *tile_load(const struct view *v, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols, float *tmp,
                       uint32_t *ld)
{
    if (v->dtype == DTYPE_F32) {
        *ld = v->ld;
        return (const float *)v->data + (size_t)row * v->ld + col;
    }
    *ld = cols;
    for (uint32_t i = 0; i < rows; i++)
        widen(tmp + (size_t)i * cols, (const uint16_t *)v->data + (size_t)(row + i) * v->ld + col, cols, v->dtype);
    return tmp;
}

float *tile_open(const struct view *v, uint32_t row, uint32_t col, uint32_t cols, float *tmp, uint32_t *ld)
{
    if (v->dtype == DTYPE_F32) {
        *ld = v->ld;
        return (float *)v->data + (size_t)row * v->ld + col;
    }
    *ld = cols;
    return tmp;
}

void tile_close(const struct view *v, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols, const float *tmp)
{
    if (v->dtype == DTYPE_F32)
        return;
    for (uint32_t i = 0; i < rows; i++)
        narrow((uint16_t *)v->data + (size_t)(row + i) * v->ld + col, tmp + (size_t)i * cols, cols, v->dtype);
}

/* Sums run in LANES lanes, held as two vectors; the compiler makes them from whatever the processor has. */
enum { WIDE = 8, LANES = 2 * WIDE };
typedef float floats __attribute__((vector_size(WIDE * sizeof(float))));
typedef int32_t masks __attribute__((vector_size(WIDE * sizeof(float))));
typedef double doubles __attribute__((vector_size(WIDE * sizeof(double))));

/* lane l + lane l + n for halving n: the order of the table */
ALWAYS_INLINE double lanes_sum(const doubles *low, const doubles *high)
{
    doubles lane = *low + *high;
    for (uint32_t n = WIDE / 2; n; n /= 2)
        for (uint32_t l = 0; l < n; l++)
            lane[l] += lane[l + n];
    return lane[0];
}

VARIANTS double row_dot(const float *a, const float *b, uint32_t n)
{
    doubles low = {0}, high = {0};
    uint32_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        floats x, y, u, v;
        memcpy(&x, a + j, sizeof x);
        memcpy(&y, b + j, sizeof y);
        memcpy(&u, a + j + WIDE, sizeof u);
        memcpy(&v, b + j + WIDE, sizeof v);
        low += __builtin_convertvector(x, doubles) * __builtin_convertvector(y, doubles);
        high += __builtin_convertvector(u, doubles) * __builtin_convertvector(v, doubles);
    }
    double rest = 0;
    for (; j < n; j++)
        rest += (double)a[j] * (double)b[j];
    return lanes_sum(&low, &high) + rest;
}

VARIANTS double row_sum(const float *a, uint32_t n)
{
    doubles low = {0}, high = {0};
    uint32_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        floats x, y;
        memcpy(&x, a + j, sizeof x);
        memcpy(&y, a + j + WIDE, sizeof y);
        low += __builtin_convertvector(x, doubles);
        high += __builtin_convertvector(y, doubles);
    }
    double rest = 0;
    for (; j < n; j++)
        rest += (double)a[j];
    return lanes_sum(&low, &high) + rest;
}

VARIANTS float row_max(const float *a, uint32_t n)
{
    floats lane, x;
    float most = -INFINITY;
    uint32_t j = 0;
    for (uint32_t l = 0; l < WIDE; l++)
        lane[l] = -INFINITY;
    for (; j + WIDE <= n; j += WIDE) {
        memcpy(&x, a + j, sizeof x);
        masks larger = x > lane;
        lane = (floats)(((masks)x & larger) | ((masks)lane & ~larger));
    }
    for (uint32_t l = 0; l < WIDE; l++)
        most = lane[l] > most ? lane[l] : most;
    for (; j < n; j++)
        most = a[j] > most ? a[j] : most;
    return most;
}

VARIANTS double row_exp(float *out, const float *a, float shift, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        out[j] = float_exp(a[j] - shift);
    return row_sum(out, n);
}

/* Press et al., arXiv 2108.12409, section 3.1 and, for heads that are no power of 2, the authors' code */
float attention_slope(int64_t heads, int64_t head)
{
    int64_t whole = 1;
    if (!heads)
        return 0;
    while (2 * whole <= heads)
        whole *= 2;
    double exponent = head < whole ? 8 * (double)(head + 1) : 4 * (double)(2 * (head - whole) + 1);
    return (float)exp2(-exponent / (double)whole);
}

VARIANTS void row_bias(float *a, float slope, float ahead, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        a[j] += slope * (ahead + (float)j);
}

VARIANTS void columns_store(const struct view *out, const double *sum)
{
    if (out->dtype == DTYPE_F32) {
        float *y = out->data;
        for (uint32_t j = 0; j < out->cols; j++)
            y[j] = (float)(sum[j] + (out->add ? (double)y[j] : 0));
    } else if (out->dtype == DTYPE_F16) {
        uint16_t *y = out->data;
        for (uint32_t j = 0; j < out->cols; j++)
            y[j] = f16_of_float((float)(sum[j] + (out->add ? (double)float_of_f16(y[j]) : 0)));
    } else {
        uint16_t *y = out->data;
        for (uint32_t j = 0; j < out->cols; j++)
            y[j] = bf16_of_float((float)(sum[j] + (out->add ? (double)float_of_bf16(y[j]) : 0)));
    }
}
