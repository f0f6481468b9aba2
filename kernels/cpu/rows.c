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

VARIANTS const float *row_load(const struct view *v, uint32_t i, float *tmp)
{
    size_t at = (size_t)i * v->ld;
    if (v->dtype == DTYPE_F32)
        return (const float *)v->data + at;
    const uint16_t *in = (const uint16_t *)v->data + at;
    for (uint32_t j = 0; j < v->cols; j++)
        tmp[j] = float_of_bf16(in[j]);
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
        for (uint32_t j = 0; j < v->cols; j++)
            out[j] = bf16_of_float(float_of_bf16(out[j]) + x[j]);
    else
        for (uint32_t j = 0; j < v->cols; j++)
            out[j] = bf16_of_float(x[j]);
}

VARIANTS const float *tile_load(const struct view *v, uint32_t row, uint32_t rows, uint32_t col,
                                uint32_t cols, float *tmp, uint32_t *ld)
{
    if (v->dtype == DTYPE_F32) {
        *ld = v->ld;
        return (const float *)v->data + (size_t)row * v->ld + col;
    }
    *ld = cols;
    for (uint32_t i = 0; i < rows; i++) {
        const uint16_t *in = (const uint16_t *)v->data + (size_t)(row + i) * v->ld + col;
        for (uint32_t j = 0; j < cols; j++)
            tmp[(size_t)i * cols + j] = float_of_bf16(in[j]);
    }
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

VARIANTS void tile_close(const struct view *v, uint32_t row, uint32_t rows, uint32_t col, uint32_t cols,
                         const float *tmp)
{
    if (v->dtype == DTYPE_F32)
        return;
    for (uint32_t i = 0; i < rows; i++) {
        uint16_t *out = (uint16_t *)v->data + (size_t)(row + i) * v->ld + col;
        for (uint32_t j = 0; j < cols; j++)
            out[j] = bf16_of_float(tmp[(size_t)i * cols + j]);
    }
}

enum { LANES = 16 };

ALWAYS_INLINE double lanes_sum(double lane[LANES])
{
    for (uint32_t n = LANES / 2; n; n /= 2)
        for (uint32_t l = 0; l < n; l++)
            lane[l] += lane[l + n];
    return lane[0];
}

VARIANTS double row_dot(const float *a, const float *b, uint32_t n)
{
    double lane[LANES] = {0};
    uint32_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (uint32_t l = 0; l < LANES; l++)
            lane[l] += (double)a[j + l] * (double)b[j + l];
    for (uint32_t l = 0; j < n; j++, l++)
        lane[l] += (double)a[j] * (double)b[j];
    return lanes_sum(lane);
}

VARIANTS double row_sum(const float *a, uint32_t n)
{
    double lane[LANES] = {0};
    uint32_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (uint32_t l = 0; l < LANES; l++)
            lane[l] += (double)a[j + l];
    for (uint32_t l = 0; j < n; j++, l++)
        lane[l] += (double)a[j];
    return lanes_sum(lane);
}

VARIANTS float row_max(const float *a, uint32_t n)
{
    float lane[LANES], most = -INFINITY;
    uint32_t j = 0;
    for (uint32_t l = 0; l < LANES; l++)
        lane[l] = -INFINITY;
    for (; j + LANES <= n; j += LANES)
        for (uint32_t l = 0; l < LANES; l++)
            lane[l] = a[j + l] > lane[l] ? a[j + l] : lane[l];
    for (uint32_t l = 0; j < n; j++, l++)
        lane[l] = a[j] > lane[l] ? a[j] : lane[l];
    for (uint32_t l = 0; l < LANES; l++)
        most = lane[l] > most ? lane[l] : most;
    return most;
}

VARIANTS double row_exp(float *out, const float *a, float shift, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        out[j] = float_exp(a[j] - shift);
    return row_sum(out, n);
}

VARIANTS void columns_store(const struct view *out, const double *sum)
{
    if (out->dtype == DTYPE_F32) {
        float *y = out->data;
        for (uint32_t j = 0; j < out->cols; j++)
            y[j] = (float)(sum[j] + (out->add ? (double)y[j] : 0));
    } else {
        uint16_t *y = out->data;
        for (uint32_t j = 0; j < out->cols; j++)
            y[j] = bf16_of_float((float)(sum[j] + (out->add ? (double)float_of_bf16(y[j]) : 0)));
    }
}
