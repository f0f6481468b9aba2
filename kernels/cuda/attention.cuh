#ifndef LLMC_KERNELS_CUDA_ATTENTION_CUH
#define LLMC_KERNELS_CUDA_ATTENTION_CUH

/* What the attention kernels share: the job, runs of consecutive places, and which tiles see each other.
 *
 * Rows of a sequence come in runs of consecutive places, keys likewise (kernels/cpu/places.h); plain ATTENTION is one run
 * of the whole sequence.  A tile lies within one run, so whether row i of a tile sees key j of a run depends on j - i alone:
 * it does iff j - i <= reach and, with a window, j - i > reach - window, where reach = place of the tile's row 0 - place of
 * the run's key 0. */

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/bf16.cuh"

struct attention_side {
    int runs, length;           /* per sequence; tokens of a run */
    int sequence, part_rows;    /* tokens of a part's sequence; rows of a part */
    int first, shift;           /* places, below 2^29 */
};
struct attention_matrix {
    void *data;
    int ld;
    bool fp32, add;
};
struct attention_job {
    int heads, kv, head, value; /* dimensions of a head's queries and keys, and of its values */
    int sequences, window;
    float scale, softcap;
    int alibi, first_head; /* linear biases: heads in all, 0 = none; number of the first one here */
    struct attention_side q, k;
    struct attention_matrix mq, mk, mv, mo, dout, dq, dk, dv;
    float *lse, *delta; /* delta: [rows][heads], sum of dout o; workspace */
    int ldl;
};

/* bf16 by tensor cores: NULL = launched.  Only what attention_fits accepts. */
const char *attention_forward_bf16(const struct attention_job *j, cudaStream_t stream);
const char *attention_backward_bf16(const struct attention_job *j, cudaStream_t stream);
/* any dtype, any dims up to 256; fp32: q, k, v, o and dout are */
const char *attention_forward_plain(const struct attention_job *j, bool fp32, cudaStream_t stream);
const char *attention_backward_plain(const struct attention_job *j, bool fp32, cudaStream_t stream);
/* delta = rows' sums of dout o, per head */
const char *attention_delta(const struct attention_job *j, bool fp32, cudaStream_t stream);

#ifdef __cplusplus
/* run r: its first row in the operand, and that row's place */
static __device__ inline int run_row(const struct attention_side &s, int sequence, int r)
{
    return r / 2 * s.part_rows + sequence * s.sequence + r % 2 * s.length;
}
static __device__ inline int run_place(const struct attention_side &s, int r)
{
    return s.first + r / 2 * s.length + r % 2 * (s.length + s.shift - 2 * (r / 2) * s.length);
}
static __device__ inline int attention_clamp(int x, int most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

/* slope of head h of those here, as isa.def has it; 0 without biases */
static __device__ inline float attention_slope(const attention_job &j, int h)
{
    int whole = 1, n = j.first_head + h;
    if (!j.alibi)
        return 0;
    while (2 * (long long)whole <= j.alibi)
        whole *= 2;
    return exp2f(-(n < whole ? 8 * (float)(n + 1) : 4 * (float)(2 * (n - whole) + 1)) / (float)whole);
}

/* tiles of the other side that a tile sees, in order of runs, then of places */
struct attention_cursor {
    int run, at, end; /* now: elements [at, end) of run; end is that of the run's seen part */
    int reach;
};

/* keys for queries [i0, i0 + m) of a run that begins at place p, in tiles of n whose beginnings are multiples of n */
static __device__ inline bool next_keys(const struct attention_job &j, int place, int m, int n, struct attention_cursor &c)
{
    c.at += n;
    while (c.at >= c.end) {
        if (++c.run >= j.k.runs)
            return false;
        c.reach = place - run_place(j.k, c.run);
        c.end = attention_clamp(c.reach + m, j.k.length);
        int from = j.window ? attention_clamp(c.reach + 1 - j.window, j.k.length) : 0;
        c.at = from >= c.end ? c.end : from / n * n;
    }
    return true;
}

/* queries for keys [.., + n) that begin at place p, in tiles of m; reach = place of the first key - place of the run */
static __device__ inline bool next_queries(const struct attention_job &j, int place, int n, int m, struct attention_cursor &c)
{
    c.at += m;
    while (c.at >= c.end) {
        if (++c.run >= j.q.runs)
            return false;
        c.reach = place - run_place(j.q, c.run);
        c.end = j.window ? attention_clamp(c.reach + n - 1 + j.window, j.q.length) : j.q.length;
        int from = attention_clamp(c.reach, j.q.length);
        c.at = from >= c.end ? c.end : from / m * m;
    }
    return true;
}
#define ATTENTION_START {-1, 0, 0, 0}

/* the softmax's exponent is taken to the base 2: e^x = 2^(x log2 e) */
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

static __device__ inline float *fp32_of(const struct attention_matrix &m, size_t row, int col)
{
    return (float *)m.data + row * (size_t)m.ld + (size_t)col;
}
static __device__ inline bf16 *bf16_of(const struct attention_matrix &m, size_t row, int col)
{
    return (bf16 *)m.data + row * (size_t)m.ld + (size_t)col;
}
/* two neighbours of a row; the first's column is even */
static __device__ inline void store_pair(const struct attention_matrix &m, size_t row, int col, float x, float y)
{
    if (m.fp32) {
        float2 *at = (float2 *)fp32_of(m, row, col);
        *at = m.add ? make_float2(at->x + x, at->y + y) : make_float2(x, y);
        return;
    }
    uint32_t *at = (uint32_t *)bf16_of(m, row, col);
    if (m.add) {
        x += __uint_as_float(*at << 16);
        y += __uint_as_float(*at & 0xffff0000u);
    }
    *at = pack_bf16(x, y);
}
#endif
#endif
