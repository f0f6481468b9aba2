/* Rows that treat every element by itself: activations, their gradients, scaling, soft caps; fill and add.
 *
 * One kernel over an operation's inputs and outputs: a thread loads a pack of every input, computes in fp32, stores.
 * Operands without gaps between rows are taken as one long row.  gelu's tanh form is x s(2u) with the logistic s, as in
 * kernels/cpu/act.c. */

#include "kernels/cuda/pack.cuh"

#include <stdint.h>

namespace {

__device__ __forceinline__ float logistic(float x)
{
    return __fdividef(1.0f, 1.0f + expf(-x));
}
__device__ __forceinline__ float gelu(float x, int tanh_form)
{
    if (tanh_form)
        return x * logistic(1.59576912f * (x + 0.044715f * x * x * x));
    return 0.5f * x * (1 + erff(x * 0.70710678f));
}
__device__ __forceinline__ float gelu_slope(float x, int tanh_form)
{
    if (tanh_form) {
        float s = logistic(1.59576912f * (x + 0.044715f * x * x * x));
        return s + x * s * (1 - s) * 1.59576912f * (1 + 0.134145f * x * x);
    }
    return 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
}

/* operations: in and out are one element of every input and output, in isa.def's order */
struct gelu_op {
    enum { INPUTS = 1, OUTPUTS = 1 };
    int tanh_form;
    __device__ void operator()(const float *in, float *out) const { out[0] = gelu(in[0], tanh_form); }
};
struct gelu_slope_op {
    enum { INPUTS = 2, OUTPUTS = 1 };
    int tanh_form;
    __device__ void operator()(const float *in, float *out) const { out[0] = in[0] * gelu_slope(in[1], tanh_form); }
};
struct relu_op {
    enum { INPUTS = 1, OUTPUTS = 1 };
    int square;
    __device__ void operator()(const float *in, float *out) const
    {
        float x = in[0] > 0 ? in[0] : 0;
        out[0] = square ? x * x : x;
    }
};
struct relu_slope_op {
    enum { INPUTS = 2, OUTPUTS = 1 };
    int square;
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = in[1] > 0 ? in[0] * (square ? 2 * in[1] : 1) : 0;
    }
};
struct swiglu { /* its attributes; limit INFINITY: none */
    float limit, alpha, offset;
};
struct swiglu swiglu_of(double limit, double alpha, double offset)
{
    return {limit > 0 ? (float)limit : INFINITY, alpha > 0 ? (float)alpha : 1.0f, (float)offset};
}
/* written so that what is no number stays so */
__device__ __forceinline__ float at_most(float x, float limit)
{
    return x > limit ? limit : x;
}
__device__ __forceinline__ float at_least(float x, float limit)
{
    return x < limit ? limit : x;
}
struct swiglu_op {
    enum { INPUTS = 2, OUTPUTS = 1 };
    struct swiglu w;
    __device__ void operator()(const float *in, float *out) const
    {
        float g = at_most(in[0], w.limit), u = at_least(at_most(in[1], w.limit), -w.limit);
        out[0] = g * logistic(w.alpha * g) * (u + w.offset);
    }
};
struct swiglu_slope_op { /* dy, gate, up -> dgate, dup */
    enum { INPUTS = 3, OUTPUTS = 2 };
    struct swiglu w;
    __device__ void operator()(const float *in, float *out) const
    {
        float g = at_most(in[1], w.limit), u = at_least(at_most(in[2], w.limit), -w.limit);
        float s = logistic(w.alpha * g);
        out[0] = in[1] > w.limit ? 0 : in[0] * (u + w.offset) * s * (1 + w.alpha * g * (1 - s));
        out[1] = in[2] > w.limit || in[2] < -w.limit ? 0 : in[0] * g * s;
    }
};
struct geglu_op {
    enum { INPUTS = 2, OUTPUTS = 1 };
    int tanh_form;
    __device__ void operator()(const float *in, float *out) const { out[0] = gelu(in[0], tanh_form) * in[1]; }
};
struct geglu_slope_op {
    enum { INPUTS = 3, OUTPUTS = 2 };
    int tanh_form;
    __device__ void operator()(const float *in, float *out) const
    {
        out[0] = in[0] * in[2] * gelu_slope(in[1], tanh_form);
        out[1] = in[0] * gelu(in[1], tanh_form);
    }
};
struct scale_op {
    enum { INPUTS = 1, OUTPUTS = 1 };
    float factor;
    __device__ void operator()(const float *in, float *out) const { out[0] = in[0] * factor; }
};
struct softcap_op {
    enum { INPUTS = 1, OUTPUTS = 1 };
    float cap;
    __device__ void operator()(const float *in, float *out) const { out[0] = cap * tanhf(in[0] / cap); }
};
struct softcap_slope_op {
    enum { INPUTS = 2, OUTPUTS = 1 };
    float cap;
    __device__ void operator()(const float *in, float *out) const
    {
        float ratio = tanhf(in[1] / cap);
        out[0] = in[0] * (1 - ratio * ratio);
    }
};
struct add_op { /* a + b + bias; inputs that are absent are not read */
    enum { INPUTS = 3, OUTPUTS = 1 };
    __device__ void operator()(const float *in, float *out) const { out[0] = in[0] + in[1] + in[2]; }
};

template <class T, int INPUTS, int OUTPUTS> struct map_args {
    size_t rows, cols;
    const T *in[INPUTS]; /* NULL = zeros */
    T *out[OUTPUTS];
    size_t ld_in[INPUTS], ld_out[OUTPUTS]; /* ld_in 0: all rows are the same one */
    bool add;
};

template <int N, class T, class Op>
__global__ void __launch_bounds__(BLOCK) map_kernel(const map_args<T, Op::INPUTS, Op::OUTPUTS> a, const Op op)
{
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (j >= a.cols)
        return;
    for (size_t i = (size_t)blockIdx.y * blockDim.y + threadIdx.y; i < a.rows; i += (size_t)gridDim.y * blockDim.y) {
        float in[Op::INPUTS][N], out[Op::OUTPUTS][N];
        UNROLL for (int k = 0; k < Op::INPUTS; k++)
        {
            if (a.in[k])
                load<N>(in[k], a.in[k] + i * a.ld_in[k] + j);
            else
                UNROLL for (int e = 0; e < N; e++) in[k][e] = 0;
        }
        UNROLL for (int e = 0; e < N; e++)
        {
            float x[Op::INPUTS], y[Op::OUTPUTS];
            UNROLL for (int k = 0; k < Op::INPUTS; k++) x[k] = in[k][e];
            op(x, y);
            UNROLL for (int k = 0; k < Op::OUTPUTS; k++) out[k][e] = y[k];
        }
        UNROLL for (int k = 0; k < Op::OUTPUTS; k++) put<N>(a.out[k] + i * a.ld_out[k] + j, out[k], a.add);
    }
}

/* shared: bit k = input k has one row for all */
template <class T, class Op>
const char *map_typed(const struct cuda_call *c, const Op &op, const struct view *const *in, const struct view *const *out,
                      unsigned shared)
{
    map_args<T, Op::INPUTS, Op::OUTPUTS> a;
    bool packed = true, flat = true;
    a.rows = out[0]->rows;
    a.cols = out[0]->cols;
    a.add = out[0]->add;
    for (int k = 0; k < Op::INPUTS; k++) {
        a.in[k] = static_cast<const T *>(in[k]->data);
        a.ld_in[k] = shared >> k & 1 ? 0 : in[k]->ld;
        packed = packed && view_packed(in[k]);
        flat = flat && (!in[k]->data || a.ld_in[k] == a.cols);
    }
    for (int k = 0; k < Op::OUTPUTS; k++) {
        a.out[k] = static_cast<T *>(out[k]->data);
        a.ld_out[k] = out[k]->ld;
        packed = packed && view_packed(out[k]);
        flat = flat && a.ld_out[k] == a.cols;
    }
    if (flat) {
        a.cols *= a.rows;
        a.rows = 1;
    }
    struct shape s = map_shape(a.rows, packed ? a.cols / PACK : a.cols);
    if (packed)
        LAUNCH((map_kernel<PACK, T, Op>), s.grid, s.block, 0, c->stream, a, op);
    else
        LAUNCH((map_kernel<1, T, Op>), s.grid, s.block, 0, c->stream, a, op);
    return cuda_launched();
}

template <class Op>
const char *map(const struct cuda_call *c, const Op &op, const struct view *const *in, const struct view *const *out,
                unsigned shared = 0)
{
    return out[0]->dtype == DTYPE_F32 ? map_typed<float, Op>(c, op, in, out, shared)
                                      : map_typed<bf16, Op>(c, op, in, out, shared);
}

/* `words` words of W per row, all of them value */
template <class W> __global__ void __launch_bounds__(BLOCK) fill_kernel(W *y, size_t rows, size_t words, size_t ld, W value)
{
    size_t j = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t i = (size_t)blockIdx.y * blockDim.y + threadIdx.y; j < words && i < rows; i += (size_t)gridDim.y * blockDim.y)
        y[i * ld + j] = value;
}

/* the 8 bytes that one or several elements of value are */
uint64_t fill_pattern(enum dtype dtype, double value)
{
    uint64_t bits = 0;
    float f = (float)value;
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    switch (dtype) {
    case DTYPE_F64:
        memcpy(&bits, &value, sizeof bits);
        return bits;
    case DTYPE_I32:
        word = (uint32_t)(int32_t)value;
        break;
    case DTYPE_BF16:
        word = f != f ? 0x7fc0u : (word + 0x7fffu + (word >> 16 & 1)) >> 16;
        word |= word << 16;
        break;
    case DTYPE_F32:
    case DTYPE_F16: /* cuda_check() refuses it */
    case NDTYPES:
        break;
    }
    return (uint64_t)word << 32 | word;
}

} // namespace

const char *cuda_FILL(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(FILL, y);
    uint64_t eight = fill_pattern(y->dtype, NUMBER(FILL, value));
    size_t size = isa_dtype_bytes(y->dtype), rows = y->rows, row = y->cols * size, step = y->ld * size;
    if (row == step) {
        row *= rows;
        step = row;
        rows = 1;
    }
    if ((uintptr_t)y->data % 16 == 0 && row % 16 == 0 && step % 16 == 0) {
        struct shape s = map_shape(rows, row / 16);
        uint4 value = {(unsigned)eight, (unsigned)(eight >> 32), (unsigned)eight, (unsigned)(eight >> 32)};
        LAUNCH(fill_kernel<uint4>, s.grid, s.block, 0, c->stream, static_cast<uint4 *>(y->data), rows, row / 16, step / 16, value);
        return cuda_launched();
    }
    struct shape s = map_shape(rows, row / size);
    if (size == 8)
        LAUNCH(fill_kernel<uint64_t>, s.grid, s.block, 0, c->stream, static_cast<uint64_t *>(y->data), rows, row / 8, step / 8, eight);
    else if (size == 4)
        LAUNCH(fill_kernel<uint32_t>, s.grid, s.block, 0, c->stream, static_cast<uint32_t *>(y->data), rows, row / 4, step / 4,
               (uint32_t)eight);
    else
        LAUNCH(fill_kernel<uint16_t>, s.grid, s.block, 0, c->stream, static_cast<uint16_t *>(y->data), rows, row / 2, step / 2,
               (uint16_t)eight);
    return cuda_launched();
}

#define IN(...)                                                                                              \
    const struct view *const in[] = { __VA_ARGS__ }
#define OUT(...)                                                                                             \
    const struct view *const out[] = { __VA_ARGS__ }

const char *cuda_ADD(const struct cuda_call *c)
{
    IN(&OPERAND(ADD, a), &OPERAND(ADD, b), &OPERAND(ADD, bias));
    OUT(&OPERAND(ADD, y));
    return map(c, add_op{}, in, out, 4);
}

const char *cuda_GELU(const struct cuda_call *c)
{
    IN(&OPERAND(GELU, x));
    OUT(&OPERAND(GELU, y));
    return map(c, gelu_op{INTEGER(GELU, tanh) != 0}, in, out);
}

const char *cuda_GELU_I(const struct cuda_call *c)
{
    IN(&OPERAND(GELU_I, dy), &OPERAND(GELU_I, x));
    OUT(&OPERAND(GELU_I, dx));
    return map(c, gelu_slope_op{INTEGER(GELU_I, tanh) != 0}, in, out);
}

const char *cuda_RELU(const struct cuda_call *c)
{
    IN(&OPERAND(RELU, x));
    OUT(&OPERAND(RELU, y));
    return map(c, relu_op{INTEGER(RELU, power) == 2}, in, out);
}

const char *cuda_RELU_I(const struct cuda_call *c)
{
    IN(&OPERAND(RELU_I, dy), &OPERAND(RELU_I, x));
    OUT(&OPERAND(RELU_I, dx));
    return map(c, relu_slope_op{INTEGER(RELU_I, power) == 2}, in, out);
}

const char *cuda_SWIGLU(const struct cuda_call *c)
{
    IN(&OPERAND(SWIGLU, gate), &OPERAND(SWIGLU, up));
    OUT(&OPERAND(SWIGLU, y));
    struct swiglu w = swiglu_of(NUMBER(SWIGLU, limit), NUMBER(SWIGLU, alpha), NUMBER(SWIGLU, offset));
    return map(c, swiglu_op{w}, in, out);
}

const char *cuda_SWIGLU_I(const struct cuda_call *c)
{
    IN(&OPERAND(SWIGLU_I, dy), &OPERAND(SWIGLU_I, gate), &OPERAND(SWIGLU_I, up));
    OUT(&OPERAND(SWIGLU_I, dgate), &OPERAND(SWIGLU_I, dup));
    struct swiglu w = swiglu_of(NUMBER(SWIGLU_I, limit), NUMBER(SWIGLU_I, alpha), NUMBER(SWIGLU_I, offset));
    return map(c, swiglu_slope_op{w}, in, out);
}

const char *cuda_GEGLU(const struct cuda_call *c)
{
    IN(&OPERAND(GEGLU, gate), &OPERAND(GEGLU, up));
    OUT(&OPERAND(GEGLU, y));
    return map(c, geglu_op{INTEGER(GEGLU, tanh) != 0}, in, out);
}

const char *cuda_GEGLU_I(const struct cuda_call *c)
{
    IN(&OPERAND(GEGLU_I, dy), &OPERAND(GEGLU_I, gate), &OPERAND(GEGLU_I, up));
    OUT(&OPERAND(GEGLU_I, dgate), &OPERAND(GEGLU_I, dup));
    return map(c, geglu_slope_op{INTEGER(GEGLU_I, tanh) != 0}, in, out);
}

const char *cuda_SCALE(const struct cuda_call *c)
{
    IN(&OPERAND(SCALE, x));
    OUT(&OPERAND(SCALE, y));
    return map(c, scale_op{(float)NUMBER(SCALE, factor)}, in, out);
}

const char *cuda_SOFTCAP(const struct cuda_call *c)
{
    IN(&OPERAND(SOFTCAP, x));
    OUT(&OPERAND(SOFTCAP, y));
    return map(c, softcap_op{(float)NUMBER(SOFTCAP, cap)}, in, out);
}

const char *cuda_SOFTCAP_I(const struct cuda_call *c)
{
    IN(&OPERAND(SOFTCAP_I, dy), &OPERAND(SOFTCAP_I, x));
    OUT(&OPERAND(SOFTCAP_I, dx));
    return map(c, softcap_slope_op{(float)NUMBER(SOFTCAP_I, cap)}, in, out);
}
