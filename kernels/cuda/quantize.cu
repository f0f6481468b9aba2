/* Rows that are stored in 8 bits, as isa.def lays them out and kernels/cpu/fp8.c makes them, bit for bit.
 *
 * QUANTIZE: a warp per share of 128 numbers, four neighbouring ones to a lane, which makes a word of them; the largest
 * magnitude, and from its exponent the scale, by shuffles.  DEQUANTIZE: a thread per word. */

#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/reduce.cuh"

namespace {

enum { THREADS = 256, WARPS = THREADS / 32, SHARE = 128 };
const size_t MOST_BLOCKS = 65535;

struct eight_rows {
    void *numbers;
    uint32_t *words;
    size_t ld_numbers, ld_words, rows, cols;
    bool aligned; /* four numbers at a time */
};

__device__ __forceinline__ void load_four(float *v, const float *at, size_t n, bool aligned)
{
    if (aligned) {
        float4 four = *reinterpret_cast<const float4 *>(at);
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
        return;
    }
    for (unsigned e = 0; e < 4; e++)
        v[e] = e < n ? at[e] : 0;
}

__device__ __forceinline__ void load_four(float *v, const bf16 *at, size_t n, bool aligned)
{
    if (aligned) {
        uint2 four = *reinterpret_cast<const uint2 *>(at);
        uint32_t word[2] = {four.x, four.y};
        UNROLL for (int e = 0; e < 4; e++) v[e] = __uint_as_float(e & 1 ? word[e / 2] & 0xffff0000u : word[e / 2] << 16);
        return;
    }
    for (unsigned e = 0; e < 4; e++)
        v[e] = e < n ? bf16_value(at[e]) : 0;
}

__device__ __forceinline__ void store_four(float *at, const float *v, size_t n, bool aligned)
{
    if (aligned)
        *reinterpret_cast<float4 *>(at) = make_float4(v[0], v[1], v[2], v[3]);
    for (unsigned e = 0; e < 4 && !aligned; e++)
        if (e < n)
            at[e] = v[e];
}

__device__ __forceinline__ void store_four(bf16 *at, const float *v, size_t n, bool aligned)
{
    uint32_t low = pack_bf16(v[0], v[1]), high = pack_bf16(v[2], v[3]);
    if (aligned)
        *reinterpret_cast<uint2 *>(at) = make_uint2(low, high);
    for (unsigned e = 0; e < 4 && !aligned; e++)
        if (e < n)
            at[e].bits = (uint16_t)((e < 2 ? low : high) >> e % 2 * 16);
}

/* exponent field of the smallest normal power of two by which most comes down to 448 = 1.75 * 2^8 */
__device__ __forceinline__ uint32_t scale_exponent(float most)
{
    uint32_t bits = __float_as_uint(most), exponent = (bits >> 23) + ((bits & 0x7fffffu) > 0x600000u);
    return exponent > 9 ? exponent - 8 : 1;
}

template <class T> __global__ void __launch_bounds__(THREADS) quantize_kernel(const eight_rows a)
{
    size_t shares = (a.cols + SHARE - 1) / SHARE, all = shares * a.rows, lane = threadIdx.x % 32;
    for (size_t at = (size_t)blockIdx.x * WARPS + threadIdx.x / 32; at < all; at += (size_t)gridDim.x * WARPS) {
        size_t row = at / shares, share = at % shares, col = share * SHARE + lane * 4;
        const T *in = static_cast<const T *>(a.numbers) + row * a.ld_numbers + col;
        uint32_t *words = a.words + row * a.ld_words;
        float v[4] = {}, most = 0;
        if (col < a.cols)
            load_four(v, in, a.cols - col, a.aligned);
        UNROLL for (int e = 0; e < 4; e++) most = fmaxf(most, fabsf(v[e]));
        for (int o = 16; o; o /= 2)
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, o));
        uint32_t infinite = 0x7f800000u, exponent = scale_exponent(most);
        bool finite = __float_as_uint(most) < infinite;
        float inverse = __uint_as_float((254 - (finite ? exponent : 1)) << 23);
        UNROLL for (int e = 0; e < 4; e++) v[e] = finite ? v[e] * inverse : __uint_as_float(0x7fc00000u);
        UNROLL for (size_t e = 0; e < 4; e++) v[e] = col + e < a.cols ? v[e] : 0;
        if (col < a.cols)
            words[col / 4] = eight_pair(v[0], v[1], false) | eight_pair(v[2], v[3], false) << 16;
        if (lane == 0)
            words[(a.cols + 3) / 4 + share] = finite ? exponent << 23 : 0x7fc00000u;
    }
}

__device__ __forceinline__ float eight_value(uint32_t byte)
{
    uint32_t sign = (byte & 0x80u) << 24, field = byte >> 3 & 15, mantissa = byte & 7;
    if ((byte & 0x7fu) == 0x7fu)
        return __uint_as_float(0x7fc00000u);
    uint32_t small = __float_as_uint((float)mantissa / 512);
    return __uint_as_float((field ? (field + 120) << 23 | mantissa << 20 : small) | sign);
}

template <class T> __global__ void __launch_bounds__(THREADS) dequantize_kernel(const eight_rows a)
{
    size_t wide = (a.cols + 3) / 4, all = wide * a.rows;
    for (size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x; at < all; at += (size_t)gridDim.x * THREADS) {
        size_t row = at / wide, col = at % wide * 4;
        const uint32_t *words = a.words + row * a.ld_words;
        uint32_t word = words[col / 4];
        float v[4], scale = __uint_as_float(words[wide + col / SHARE]);
        UNROLL for (int e = 0; e < 4; e++) v[e] = scale * eight_value(word >> e * 8 & 0xff);
        store_four(static_cast<T *>(a.numbers) + row * a.ld_numbers + col, v, a.cols - col, a.aligned);
    }
}

eight_rows rows_of(const struct view *numbers, const struct view *words)
{
    size_t bytes = isa_dtype_bytes(numbers->dtype);
    bool aligned = numbers->cols % 4 == 0 && (uintptr_t)numbers->data % (4 * bytes) == 0 && (numbers->rows == 1 || numbers->ld % 4 == 0);
    return {numbers->data, static_cast<uint32_t *>(words->data), numbers->ld, words->ld, numbers->rows, numbers->cols, aligned};
}

unsigned blocks_of(size_t n, size_t each)
{
    size_t blocks = (n + each - 1) / each;
    return (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

} // namespace

const char *cuda_QUANTIZE(const struct cuda_call *c)
{
    const struct view *y = &c->args->operand[OPND(QUANTIZE, y)], *x = &c->args->operand[OPND(QUANTIZE, x)];
    eight_rows a = rows_of(x, y);
    unsigned blocks = blocks_of(a.rows * ((a.cols + SHARE - 1) / SHARE), WARPS);
    if (x->dtype == DTYPE_F32)
        LAUNCH((quantize_kernel<float>), blocks, THREADS, 0, c->stream, a);
    else
        LAUNCH((quantize_kernel<bf16>), blocks, THREADS, 0, c->stream, a);
    return cuda_launched();
}

const char *cuda_DEQUANTIZE(const struct cuda_call *c)
{
    const struct view *y = &c->args->operand[OPND(DEQUANTIZE, y)], *x = &c->args->operand[OPND(DEQUANTIZE, x)];
    eight_rows a = rows_of(y, x);
    unsigned blocks = blocks_of(a.rows * ((a.cols + 3) / 4), THREADS);
    if (y->dtype == DTYPE_F32)
        LAUNCH((dequantize_kernel<float>), blocks, THREADS, 0, c->stream, a);
    else
        LAUNCH((dequantize_kernel<bf16>), blocks, THREADS, 0, c->stream, a);
    return cuda_launched();
}
