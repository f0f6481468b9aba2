/* Rotary position embedding.
 *
 * Frequencies come from the host in fp64, as full turns per place, in the kernel's arguments.  A block makes the cosines and
 * sines of its rows' places once and turns all heads with them: place times frequency in fp64, of that the fraction of
 * a turn in fp32, so places of 10^6 lose nothing.  A thread handles the two packs that turn together. */

#include "kernels/cuda/pack.cuh"

#include <math.h>

namespace {

enum { MOST_PAIRS = 256, MOST_ROWS = 8 /* of a block */ };
enum scaling { SCALING_NONE, SCALING_LINEAR, SCALING_LLAMA3, SCALING_YARN };
const double TURN = 2 * 3.14159265358979323846;

/* YaRN: pairs that turn more than `high` times within the original length keep their frequency, those that turn less
 * than `low` times are divided by factor, between them it fades linearly in the pair's number */
double yarn_frequency(const struct cuda_call *c, double f, double pair, double dims)
{
    double scale = dims / (2 * log(NUMBER(ROPE, theta)));
    double first = fmax(0, floor(scale * log(NUMBER(ROPE, original) / (NUMBER(ROPE, high) * TURN))));
    double last = fmin(dims - 1, ceil(scale * log(NUMBER(ROPE, original) / (NUMBER(ROPE, low) * TURN))));
    last = last > first ? last : first + 0.001;
    double ramp = fmin(1, fmax(0, (pair - first) / (last - first)));
    return f * (1 - ramp) + f / NUMBER(ROPE, factor) * ramp;
}

/* radians per place; the scalings are those of kernels/cpu/rope.c */
double frequency(const struct cuda_call *c, double pair, double dims)
{
    double f = pow(NUMBER(ROPE, theta), -2.0 * pair / dims), factor = NUMBER(ROPE, factor);
    double low = NUMBER(ROPE, low), high = NUMBER(ROPE, high);
    switch ((enum scaling)INTEGER(ROPE, scaling)) {
    case SCALING_NONE:
        return f;
    case SCALING_LINEAR:
        return f / factor;
    case SCALING_YARN:
        return yarn_frequency(c, f, pair, dims);
    case SCALING_LLAMA3:
        break;
    }
    double turns = NUMBER(ROPE, original) * f / TURN; /* within the original length */
    if (turns < low || turns > high)
        return turns < low ? f / factor : f;
    double keep = (turns - low) / (high - low);
    return (1 - keep) * f / factor + keep * f;
}

template <class T> struct rope_args {
    T *y;
    const T *x;
    size_t ld_y, ld_x;
    int64_t start, sequence, first, shift;
    unsigned rows, block_rows, heads, head, half, from;
    float size, sign; /* of the cosines, of the sines */
    bool adjacent;
    double turns[MOST_PAIRS];
};

/* cosine and sine of every pair for the block's rows */
template <class T> __device__ __forceinline__ void make_table(const rope_args<T> &a, float *cosine, float *sine)
{
    for (unsigned t = threadIdx.x; t < a.block_rows * a.half; t += BLOCK) {
        int64_t w = (a.start + (int64_t)blockIdx.x * a.block_rows + t / a.half) % a.sequence;
        double turns = (double)(a.first + w + (w >= a.sequence / 2 ? a.shift : 0)) * a.turns[t % a.half];
        float fs, fc;
        turns -= floor(turns + 0.5);
        sincospif((float)(2 * turns), &fs, &fc);
        cosine[t] = fc * a.size;
        sine[t] = fs * a.sign;
    }
}

/* one head: packs that turn, then packs that are copied; item < half / N + (head - 2 half) / N */
template <int N, class T>
__device__ __forceinline__ void turn_packs(const rope_args<T> &a, const T *x, T *y, unsigned item, const float *cosine, const float *sine)
{
    unsigned pair = item * N;
    float low[N], high[N], first[N], second[N];
    if (pair >= a.half) { /* columns before `from`, then behind the turning ones */
        unsigned j = pair - a.half;
        j = j < a.from ? j : j + 2 * a.half;
        load<N>(low, x + j);
        store<N>(y + j, low);
        return;
    }
    unsigned at = a.from + (a.adjacent ? 2 * pair : pair), other = a.adjacent ? at + N : at + a.half;
    load<N>(low, x + at);
    load<N>(high, x + other);
    UNROLL for (int e = 0; e < N; e++)
    { /* first, second: members of pair + e */
        float p = a.adjacent && N > 1 ? (2 * e < N ? low[2 * e % N] : high[2 * e % N]) : low[e];
        float q = a.adjacent && N > 1 ? (2 * e < N ? low[(2 * e + 1) % N] : high[(2 * e + 1) % N]) : high[e];
        first[e] = p * cosine[pair + (unsigned)e] - q * sine[pair + (unsigned)e];
        second[e] = q * cosine[pair + (unsigned)e] + p * sine[pair + (unsigned)e];
    }
    UNROLL for (int e = 0; e < N; e++)
    {
        bool odd = e & 1;
        low[e] = a.adjacent && N > 1 ? (odd ? second[e / 2] : first[e / 2]) : first[e];
        high[e] = a.adjacent && N > 1 ? (odd ? second[(e + N) / 2] : first[(e + N) / 2]) : second[e];
    }
    store<N>(y + at, low);
    store<N>(y + other, high);
}

template <int N, class T> __global__ void __launch_bounds__(BLOCK) rope_kernel(const __grid_constant__ rope_args<T> a)
{
    SHARED(float, cosine, MOST_ROWS *MOST_PAIRS);
    SHARED(float, sine, MOST_ROWS *MOST_PAIRS);
    make_table(a, cosine, sine);
    __syncthreads();
    unsigned items = (a.half + a.head - 2 * a.half) / N, per_row = a.heads * items;
    for (unsigned t = threadIdx.x; t < a.block_rows * per_row; t += BLOCK) {
        unsigned row = t / per_row, head = t % per_row / items, item = t % items;
        size_t i = (size_t)blockIdx.x * a.block_rows + row;
        if (i < a.rows)
            turn_packs<N, T>(a, a.x + i * a.ld_x + (size_t)head * a.head, a.y + i * a.ld_y + (size_t)head * a.head, item,
                             cosine + row * a.half, sine + row * a.half);
    }
}

/* pairs, the columns before them and those behind are whole packs */
template <class T> bool whole_packs(const rope_args<T> &a)
{
    return a.half % PACK == 0 && a.from % PACK == 0 && a.head % PACK == 0;
}

template <class T> const char *rope(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(ROPE, y), *x = &OPERAND(ROPE, x);
    unsigned dims = (unsigned)INTEGER(ROPE, dims), head = (unsigned)INTEGER(ROPE, head);
    double size = NUMBER(ROPE, magnitude) > 0 ? NUMBER(ROPE, magnitude) : 1;
    rope_args<T> a = {};
    a.y = static_cast<T *>(y->data);
    a.x = static_cast<const T *>(x->data);
    a.ld_y = y->ld;
    a.ld_x = x->ld;
    a.start = INTEGER(ROPE, start);
    a.sequence = INTEGER(ROPE, sequence);
    a.first = INTEGER(ROPE, first);
    a.shift = INTEGER(ROPE, shift);
    a.rows = x->rows;
    a.heads = x->cols / head;
    a.head = head;
    a.half = dims / 2;
    a.from = (unsigned)INTEGER(ROPE, from);
    a.size = (float)size;
    a.sign = (float)(INTEGER(ROPE, inverse) ? -size : size);
    a.adjacent = INTEGER(ROPE, adjacent) != 0;
    for (unsigned p = 0; p < a.half; p++)
        a.turns[p] = frequency(c, p, dims) / TURN;
    bool packed = view_packed(y) && view_packed(x) && whole_packs(a);
    unsigned work = x->cols / 2 / (packed ? PACK : 1); /* two packs each */
    a.block_rows = work >= BLOCK ? 1 : work * MOST_ROWS <= BLOCK ? (unsigned)MOST_ROWS : BLOCK / work;
    unsigned blocks = blocks_for(a.rows, a.block_rows);
    if (packed)
        LAUNCH((rope_kernel<PACK, T>), blocks, BLOCK, 0, c->stream, a);
    else
        LAUNCH((rope_kernel<1, T>), blocks, BLOCK, 0, c->stream, a);
    return cuda_launched();
}

} // namespace

const char *cuda_ROPE(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(ROPE, x).dtype, rope, c);
}
