/* Activations, element by element in fp32, and their gradients.
 *
 * gelu's tanh form is x s(2u) with the logistic s and u = sqrt(2/pi) (x + 0.044715 x^3), since
 * (1 + tanh u) / 2 = s(2u); Hendrycks & Gimpel, arXiv 1606.08415. */

#include "kernels/cpu/rows.h"

/* out = gelu(x), n elements; erff is a call and keeps the erf form from being vector code */
VARIANTS static void gelu_row(float *restrict out, const float *restrict x, uint32_t n, bool tanh_form)
{
    if (tanh_form)
        for (uint32_t j = 0; j < n; j++)
            out[j] = x[j] * float_logistic(1.59576912f * (x[j] + 0.044715f * x[j] * x[j] * x[j]));
    else
        for (uint32_t j = 0; j < n; j++)
            out[j] = 0.5f * x[j] * (1 + erff(x[j] * 0.70710678f));
}

/* out = the derivative of gelu at x */
VARIANTS static void gelu_slope_row(float *restrict out, const float *restrict x, uint32_t n, bool tanh_form)
{
    if (tanh_form)
        for (uint32_t j = 0; j < n; j++) {
            float s = float_logistic(1.59576912f * (x[j] + 0.044715f * x[j] * x[j] * x[j]));
            out[j] = s + x[j] * s * (1 - s) * 1.59576912f * (1 + 0.134145f * x[j] * x[j]);
        }
    else
        for (uint32_t j = 0; j < n; j++)
            out[j] = 0.5f * (1 + erff(x[j] * 0.70710678f)) + x[j] * 0.39894228f * float_exp(-0.5f * x[j] * x[j]);
}

void cpu_GELU(struct kernel_args *k)
{
    const struct view *y = V(GELU, y), *x = V(GELU, x);
    float *tmp = k->scratch, *out = tmp + x->cols;
    for (uint32_t i = 0; i < x->rows; i++) {
        gelu_row(out, row_load(x, i, tmp), x->cols, INTEGER(GELU, tanh));
        row_store(y, i, out);
    }
}

VARIANTS void cpu_GELU_I(struct kernel_args *k)
{
    const struct view *dx = V(GELU_I, dx), *dy = V(GELU_I, dy), *x = V(GELU_I, x);
    float *tmp_x = k->scratch, *tmp_dy = tmp_x + x->cols, *out = tmp_dy + x->cols;
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *up = row_load(dy, i, tmp_dy);
        gelu_slope_row(out, row_load(x, i, tmp_x), x->cols, INTEGER(GELU_I, tanh));
        for (uint32_t j = 0; j < x->cols; j++)
            out[j] *= up[j];
        row_store(dx, i, out);
    }
}

VARIANTS void cpu_RELU(struct kernel_args *k)
{
    const struct view *y = V(RELU, y), *x = V(RELU, x);
    bool square = INTEGER(RELU, power) == 2;
    float *tmp = k->scratch, *out = tmp + x->cols;
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp);
        for (uint32_t j = 0; j < x->cols; j++) {
            float positive = in[j] > 0 ? in[j] : 0;
            out[j] = square ? positive * positive : positive;
        }
        row_store(y, i, out);
    }
}

VARIANTS void cpu_RELU_I(struct kernel_args *k)
{
    const struct view *dx = V(RELU_I, dx), *dy = V(RELU_I, dy), *x = V(RELU_I, x);
    bool square = INTEGER(RELU_I, power) == 2;
    float *tmp_x = k->scratch, *tmp_dy = tmp_x + x->cols, *out = tmp_dy + x->cols;
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp_x), *up = row_load(dy, i, tmp_dy);
        for (uint32_t j = 0; j < x->cols; j++)
            out[j] = in[j] > 0 ? up[j] * (square ? 2 * in[j] : 1) : 0;
        row_store(dx, i, out);
    }
}

/* SWIGLU's attributes; limit INFINITY: none */
struct swiglu {
    float limit, alpha, offset;
};

static struct swiglu swiglu_of(double limit, double alpha, double offset)
{
    return (struct swiglu){limit > 0 ? (float)limit : INFINITY, alpha > 0 ? (float)alpha : 1, (float)offset};
}

/* written so that what is no number stays so */
static inline float at_most(float x, float limit)
{
    return x > limit ? limit : x;
}

static inline float at_least(float x, float limit)
{
    return x < limit ? limit : x;
}

VARIANTS void cpu_SWIGLU(struct kernel_args *k)
{
    const struct view *y = V(SWIGLU, y), *gate = V(SWIGLU, gate), *up = V(SWIGLU, up);
    struct swiglu w = swiglu_of(NUMBER(SWIGLU, limit), NUMBER(SWIGLU, alpha), NUMBER(SWIGLU, offset));
    float *tmp_gate = k->scratch, *tmp_up = tmp_gate + y->cols, *out = tmp_up + y->cols;
    for (uint32_t i = 0; i < y->rows; i++) {
        const float *a = row_load(gate, i, tmp_gate), *b = row_load(up, i, tmp_up);
        for (uint32_t j = 0; j < y->cols; j++) {
            float g = at_most(a[j], w.limit), u = at_least(at_most(b[j], w.limit), -w.limit);
            out[j] = g * float_logistic(w.alpha * g) * (u + w.offset);
        }
        row_store(y, i, out);
    }
}

/* with g, u and s = logistic(alpha g): dgate = dy (u + offset) s (1 + alpha g (1 - s)), dup = dy g s */
VARIANTS void cpu_SWIGLU_I(struct kernel_args *k)
{
    struct swiglu w = swiglu_of(NUMBER(SWIGLU_I, limit), NUMBER(SWIGLU_I, alpha), NUMBER(SWIGLU_I, offset));
    const struct view *gate = V(SWIGLU_I, gate), *up = V(SWIGLU_I, up), *dy = V(SWIGLU_I, dy);
    uint32_t h = gate->cols;
    float *tmp_gate = k->scratch, *tmp_up = tmp_gate + h, *tmp_dy = tmp_up + h, *dgate = tmp_dy + h, *dup = dgate + h;
    for (uint32_t i = 0; i < gate->rows; i++) {
        const float *a = row_load(gate, i, tmp_gate), *b = row_load(up, i, tmp_up), *d = row_load(dy, i, tmp_dy);
        for (uint32_t j = 0; j < h; j++) {
            float g = at_most(a[j], w.limit), u = at_least(at_most(b[j], w.limit), -w.limit);
            float s = float_logistic(w.alpha * g), slope = s * (1 + w.alpha * g * (1 - s));
            dgate[j] = a[j] > w.limit ? 0 : d[j] * (u + w.offset) * slope;
            dup[j] = b[j] > w.limit || b[j] < -w.limit ? 0 : d[j] * g * s;
        }
        row_store(V(SWIGLU_I, dgate), i, dgate);
        row_store(V(SWIGLU_I, dup), i, dup);
    }
}

VARIANTS void cpu_GEGLU(struct kernel_args *k)
{
    const struct view *y = V(GEGLU, y), *gate = V(GEGLU, gate), *up = V(GEGLU, up);
    float *tmp_gate = k->scratch, *tmp_up = tmp_gate + y->cols, *out = tmp_up + y->cols;
    for (uint32_t i = 0; i < y->rows; i++) {
        const float *b = row_load(up, i, tmp_up);
        gelu_row(out, row_load(gate, i, tmp_gate), y->cols, INTEGER(GEGLU, tanh));
        for (uint32_t j = 0; j < y->cols; j++)
            out[j] *= b[j];
        row_store(y, i, out);
    }
}

/* dgate = dy up gelu'(gate), dup = dy gelu(gate) */
VARIANTS void cpu_GEGLU_I(struct kernel_args *k)
{
    const struct view *gate = V(GEGLU_I, gate), *up = V(GEGLU_I, up), *dy = V(GEGLU_I, dy);
    bool tanh_form = INTEGER(GEGLU_I, tanh);
    uint32_t h = gate->cols;
    float *tmp_gate = k->scratch, *tmp_up = tmp_gate + h, *tmp_dy = tmp_up + h;
    float *restrict dgate = tmp_dy + h, *restrict dup = dgate + h;
    for (uint32_t i = 0; i < gate->rows; i++) {
        const float *a = row_load(gate, i, tmp_gate), *b = row_load(up, i, tmp_up), *d = row_load(dy, i, tmp_dy);
        gelu_slope_row(dgate, a, h, tanh_form);
        gelu_row(dup, a, h, tanh_form);
        for (uint32_t j = 0; j < h; j++) {
            dgate[j] *= d[j] * b[j];
            dup[j] *= d[j];
        }
        row_store(V(GEGLU_I, dgate), i, dgate);
        row_store(V(GEGLU_I, dup), i, dup);
    }
}

VARIANTS void cpu_SCALE(struct kernel_args *k)
{
    const struct view *y = V(SCALE, y), *x = V(SCALE, x);
    float *tmp = k->scratch, *out = tmp + x->cols, factor = (float)NUMBER(SCALE, factor);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp);
        for (uint32_t j = 0; j < x->cols; j++)
            out[j] = in[j] * factor;
        row_store(y, i, out);
    }
}

VARIANTS void cpu_SOFTCAP(struct kernel_args *k)
{
    const struct view *y = V(SOFTCAP, y), *x = V(SOFTCAP, x);
    float *tmp = k->scratch, *out = tmp + x->cols, cap = (float)NUMBER(SOFTCAP, cap);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp);
        for (uint32_t j = 0; j < x->cols; j++)
            out[j] = cap * float_tanh(in[j] / cap);
        row_store(y, i, out);
    }
}

/* slope 1 - tanh^2 */
VARIANTS void cpu_SOFTCAP_I(struct kernel_args *k)
{
    const struct view *dx = V(SOFTCAP_I, dx), *dy = V(SOFTCAP_I, dy), *x = V(SOFTCAP_I, x);
    float *tmp = k->scratch, *tmp_dy = tmp + x->cols, *out = tmp_dy + x->cols, cap = (float)NUMBER(SOFTCAP_I, cap);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp), *up = row_load(dy, i, tmp_dy);
        for (uint32_t j = 0; j < x->cols; j++) {
            float ratio = float_tanh(in[j] / cap);
            out[j] = up[j] * (1 - ratio * ratio);
        }
        row_store(dx, i, out);
    }
}
