/* Operands of products in 8 bits, by recipe `tensor`: each group of rows divided by a scale that makes its largest magnitude
 * the largest 8-bit number, as kernels/cpu/fp8.c does it.
 *
 * Two launches for both operands: the largest magnitudes of parts of every group, then their largest, the scale, and the
 * rounded copy in tiles of 64 x 64, turned where the sum runs down the rows, since 8-bit products want what is summed over
 * next to each other.  Largest of numbers does not depend on an order: no atomics.  NaN are passed over and stay NaN; an
 * infinity makes all of its group NaN, for no scale fits it. */

#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/reduce.cuh"

enum { EIGHT_THREADS = 256, EIGHT_SIDE = 64, EIGHT_LD = EIGHT_SIDE + 4, EIGHT_PACK = 8, EIGHT_BLOCKS = 1056 };

static __device__ inline void load_pack(float *v, const bf16 *at)
{
    uint4 eight = *reinterpret_cast<const uint4 *>(at);
    uint32_t word[4] = {eight.x, eight.y, eight.z, eight.w};
    UNROLL for (int j = 0; j < EIGHT_PACK; j++)
        v[j] = __uint_as_float(j & 1 ? word[j / 2] & 0xffff0000u : word[j / 2] << 16);
}
static __device__ inline void load_pack(float *v, const float *at)
{
    UNROLL for (int j = 0; j < EIGHT_PACK; j += 4)
    {
        float4 four = *reinterpret_cast<const float4 *>(at + j);
        v[j] = four.x, v[j + 1] = four.y, v[j + 2] = four.z, v[j + 3] = four.w;
    }
}

template <class T> __global__ void __launch_bounds__(EIGHT_THREADS) eight_largest(eight_operands p)
{
    SHARED(float, part, EIGHT_THREADS / 32);
    const eight_operand &s = p.operand[blockIdx.z];
    int g = (int)blockIdx.x, nth = (int)blockIdx.y, t = (int)threadIdx.x;
    if (g >= s.groups || nth >= s.parts)
        return;
    row_group r = eight_group(s, g);
    int packs = s.cols / EIGHT_PACK, across = 1;
    while (across < EIGHT_THREADS && across < packs)
        across *= 2;
    int down = EIGHT_THREADS / across;
    float most = 0, v[EIGHT_PACK];
    for (int row = nth * down + t / across; row < r.rows; row += s.parts * down)
        for (int pack = t % across; pack < packs; pack += across) {
            load_pack(v, (const T *)s.x + (size_t)(r.row + row) * (size_t)s.ld + (size_t)pack * EIGHT_PACK);
            UNROLL for (int j = 0; j < EIGHT_PACK; j++) most = fmaxf(most, fabsf(v[j]));
        }
    most = block_max(most, part);
    if (t == 0)
        s.part[(size_t)g * (size_t)s.parts + (size_t)nth] = most;
}

/* what the group's numbers are divided by */
static __device__ inline float group_scale(const eight_operand &s, int g, float *shared)
{
    float most = 0;
    for (int i = (int)threadIdx.x; i < s.parts; i += EIGHT_THREADS)
        most = fmaxf(most, s.part[(size_t)g * (size_t)s.parts + (size_t)i]);
    most = block_max(most, shared);
    float scale = most / (s.e5m2 ? 57344.0f : 448.0f), infinite = __uint_as_float(0x7f800000u);
    if (most >= infinite)
        return infinite - infinite;
    return most > 0 ? fmaxf(scale, 1e-38f) : 1; /* its inverse is finite */
}

/* 16 numbers down one column of the tile */
static __device__ inline uint4 tile_column(const uint8_t *tile, int row, int col)
{
    uint32_t word[4] = {};
    UNROLL for (int i = 0; i < 16; i++) word[i / 4] |= (uint32_t)tile[(row + i) * EIGHT_LD + col] << i % 4 * 8;
    return make_uint4(word[0], word[1], word[2], word[3]);
}

template <class T> __global__ void __launch_bounds__(EIGHT_THREADS) eight_round(eight_operands p)
{
    SHARED(float, part, EIGHT_THREADS / 32);
    SHARED(uint32_t, words, EIGHT_SIDE * EIGHT_LD / 4);
    const eight_operand &s = p.operand[blockIdx.z];
    int g = (int)blockIdx.x, t = (int)threadIdx.x;
    if (g >= s.groups)
        return;
    row_group r = eight_group(s, g);
    float scale = group_scale(s, g, part);
    if (blockIdx.y == 0 && t == 0)
        s.scale[g] = scale;
    size_t row_out = s.group ? 0 : (size_t)g * (size_t)s.cols;
    int col_out = s.group ? eight_column(r, g) : 0;
    int across = (s.cols + EIGHT_SIDE - 1) / EIGHT_SIDE, tiles = across * ((r.rows + EIGHT_SIDE - 1) / EIGHT_SIDE);
    for (int i = (int)blockIdx.y; i < tiles; i += (int)gridDim.y) {
        int row0 = i / across * EIGHT_SIDE, col0 = i % across * EIGHT_SIDE;
        UNROLL for (int j = 0; j < EIGHT_SIDE * EIGHT_SIDE / EIGHT_PACK / EIGHT_THREADS; j++)
        {
            int at = t + j * EIGHT_THREADS, row = at / (EIGHT_SIDE / EIGHT_PACK), col = at % (EIGHT_SIDE / EIGHT_PACK) * EIGHT_PACK;
            bool there = row0 + row < r.rows && col0 + col < s.cols;
            uint32_t low = 0, high = 0;
            if (there) {
                float v[EIGHT_PACK];
                load_pack(v, (const T *)s.x + (size_t)(r.row + row0 + row) * (size_t)s.ld + (size_t)(col0 + col));
                UNROLL for (int e = 0; e < EIGHT_PACK; e++) v[e] = v[e] / scale;
                low = eight_pair(v[0], v[1], s.e5m2) | eight_pair(v[2], v[3], s.e5m2) << 16;
                high = eight_pair(v[4], v[5], s.e5m2) | eight_pair(v[6], v[7], s.e5m2) << 16;
            }
            if (s.turned) {
                words[(row * EIGHT_LD + col) / 4] = low;
                words[(row * EIGHT_LD + col) / 4 + 1] = high;
            } else if (there) {
                *reinterpret_cast<uint2 *>(s.out + (size_t)(r.row + row0 + row) * (size_t)s.ld_out + (size_t)(col0 + col)) = make_uint2(low, high);
            }
        }
        if (!s.turned)
            continue;
        __syncthreads();
        int col = t / 4, row = t % 4 * 16;
        if (col0 + col < s.cols && row0 + row < r.rows)
            *reinterpret_cast<uint4 *>(s.out + (row_out + (size_t)(col0 + col)) * (size_t)s.ld_out + (size_t)(col_out + row0 + row)) =
                tile_column((const uint8_t *)words, row, col);
        __syncthreads();
    }
}

template <class T> static const char *launch(const eight_operands *p, unsigned groups, unsigned parts, unsigned blocks, cudaStream_t stream)
{
    LAUNCH((eight_largest<T>), dim3(groups, parts, 2), EIGHT_THREADS, 0, stream, *p);
    LAUNCH((eight_round<T>), dim3(groups, blocks, 2), EIGHT_THREADS, 0, stream, *p);
    return cuda_launched();
}

static_assert(sizeof(float) * EIGHT_PARTS == WORKSPACE_FP8_PARTS, "as workspace_fp8() counts");

const char *eight_make(eight_operands *p, bool fp32, cudaStream_t stream)
{
    int groups = 1, parts = 1;
    long long blocks = 1;
    for (eight_operand &s : p->operand) {
        long long elements = (long long)s.all_rows * s.cols, own = elements / s.groups / (EIGHT_THREADS * EIGHT_PACK) + 1;
        s.parts = (int)(own < EIGHT_PARTS / s.groups ? own : EIGHT_PARTS / s.groups);
        s.parts = s.parts ? s.parts : 1;
        long long tiles = elements / s.groups / (EIGHT_SIDE * EIGHT_SIDE) + 1, most = EIGHT_BLOCKS / s.groups + 1;
        tiles = tiles < most ? tiles : most;
        blocks = tiles > blocks ? tiles : blocks;
        groups = s.groups > groups ? s.groups : groups;
        parts = s.parts > parts ? s.parts : parts;
    }
    return fp32 ? launch<float>(p, (unsigned)groups, (unsigned)parts, (unsigned)blocks, stream)
                : launch<bf16>(p, (unsigned)groups, (unsigned)parts, (unsigned)blocks, stream);
}

bool eight_aligned(const struct view *v)
{
    return (uintptr_t)v->data % 16 == 0 && (size_t)v->ld * isa_dtype_bytes(v->dtype) % 16 == 0;
}

/* a view's rows in equal groups, one behind the other */
eight_operand eight_of(const struct view *v, int groups, bool turned, bool e5m2)
{
    eight_operand s = {};
    s.x = v->data;
    s.rows = (int)v->rows / groups;
    s.all_rows = (int)v->rows;
    s.cols = (int)v->cols;
    s.ld = (int)v->ld;
    s.groups = groups;
    s.turned = turned;
    s.e5m2 = e5m2;
    s.ld_out = turned ? eight_rounded(s.rows) : s.cols;
    return s;
}

void eight_place(eight_operands *p, void *workspace, const struct workspace_fp8 *w)
{
    uint8_t *at = (uint8_t *)workspace;
    const struct workspace_eight *place[2] = {&w->a, &w->b};
    for (int i = 0; i < 2; i++) {
        p->operand[i].part = (float *)(at + place[i]->parts);
        p->operand[i].scale = (float *)(at + place[i]->scales);
        p->operand[i].out = at + place[i]->numbers;
    }
}

const char *product_fp8(const struct cuda_call *c, const struct product *p, const struct workspace_fp8 *w, struct product *out,
                        struct cuda_call *rest)
{
    if (c->workspace_bytes < w->total)
        return "the workspace is too small for operands of 8 bits";
    eight_operands o = {{eight_of(&p->a, 1, p->ta, p->gradient), eight_of(&p->b, 1, !p->tb, false)}};
    eight_place(&o, c->workspace, w);
    *out = *p;
    out->ta = false;
    out->tb = true;
    out->eight = true;
    out->a.data = o.operand[0].out;
    out->b.data = o.operand[1].out;
    out->a.rows = p->m;
    out->b.rows = p->n;
    out->a.cols = out->a.ld = out->b.cols = out->b.ld = p->k;
    out->scale_a = o.operand[0].scale;
    out->scale_b = o.operand[1].scale;
    *rest = *c;
    rest->workspace_bytes = w->before;
    return eight_make(&o, p->a.dtype == DTYPE_F32, c->stream);
}
