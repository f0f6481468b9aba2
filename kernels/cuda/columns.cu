/* Sums over rows: gradients of norms by gain and bias, of linear layers by bias.
 *
 * Two launches.  The first takes a chunk of rows per block and writes the chunk's sums to the workspace; the second adds
 * chunks, in order.  How rows are divided depends on shapes alone, so the same numbers give the same bits. */

#include "kernels/cuda/stream.cuh"

namespace {

const unsigned FINISH_COLUMNS = 32, FINISH_ROWS = 16;

enum sums { SUMS_PLAIN /* of dy */, SUMS_RMS /* of dy x rstd */, SUMS_LAYER /* of dy (x - mean) rstd, and of dy */ };

/* a head's rows as in norm.cu: rows counts them all, cols is one head's width */
template <class T> struct column_args {
    const T *dy, *x;
    const float *mean, *rstd;
    float *part; /* [sums][chunks][cols] */
    size_t ld_dy, ld_x, ld_mean, ld_rstd, rows, chunk_rows;
    unsigned cols, heads;
};

/* dy and x at row r, packed column j, into the sums of SUMS_* */
template <int N, enum sums KIND, class T>
__device__ __forceinline__ void take_row(const column_args<T> &a, size_t r, size_t j, float (*sum)[N])
{
    size_t i = r / a.heads, head = r % a.heads;
    float up[N], in[N];
    load<N>(up, a.dy + i * a.ld_dy + head * a.cols + j);
    if (KIND != SUMS_PLAIN) {
        float mean = KIND == SUMS_LAYER ? a.mean[i * a.ld_mean] : 0, rstd = a.rstd[i * a.ld_rstd + head];
        load<N>(in, a.x + i * a.ld_x + head * a.cols + j);
        UNROLL for (int e = 0; e < N; e++) sum[0][e] += up[e] * ((in[e] - mean) * rstd);
    }
    if (KIND != SUMS_RMS)
        UNROLL for (int e = 0; e < N; e++) sum[KIND == SUMS_LAYER][e] += up[e];
}

/* block: x packs of columns, y rows; the rows' sums meet in shared memory in row order */
template <int N, enum sums KIND, class T> __global__ void __launch_bounds__(BLOCK) column_kernel(const column_args<T> a)
{
    const int K = KIND == SUMS_LAYER ? 2 : 1;
    SHARED(float, meet, BLOCK *N);
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N, first = blockIdx.y * a.chunk_rows;
    size_t end = first + a.chunk_rows < a.rows ? first + a.chunk_rows : a.rows;
    float sum[K][N];
    UNROLL for (int k = 0; k < K; k++) UNROLL for (int e = 0; e < N; e++) sum[k][e] = 0;
    for (size_t r = first + threadIdx.y; j < a.cols && r < end; r += blockDim.y)
        take_row<N, KIND, T>(a, r, j, sum);
    UNROLL for (int k = 0; k < K; k++)
    {
        __syncthreads();
        UNROLL for (int e = 0; e < N; e++) meet[(threadIdx.y * N + (unsigned)e) * blockDim.x + threadIdx.x] = sum[k][e];
        __syncthreads();
        for (unsigned e = threadIdx.y; e < N && j < a.cols; e += blockDim.y) {
            float total = 0;
            for (unsigned y = 0; y < blockDim.y; y++)
                total += meet[(y * N + e) * blockDim.x + threadIdx.x];
            a.part[((size_t)k * gridDim.y + blockIdx.y) * a.cols + j + e] = total;
        }
    }
}

template <class T> __global__ void finish_kernel(T *out, const float *part, unsigned cols, unsigned chunks, bool add)
{
    SHARED(float, meet, FINISH_COLUMNS *FINISH_ROWS);
    unsigned j = blockIdx.x * FINISH_COLUMNS + threadIdx.x;
    float sum = 0;
    for (unsigned k = threadIdx.y; j < cols && k < chunks; k += FINISH_ROWS)
        sum += part[(size_t)k * cols + j];
    meet[threadIdx.y * FINISH_COLUMNS + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || j >= cols)
        return;
    for (unsigned y = 1; y < FINISH_ROWS; y++)
        sum += meet[y * FINISH_COLUMNS + threadIdx.x];
    out[j] = narrow<T>(sum + (add ? widen(out[j]) : 0));
}

/* first: sums of products (NULL: none are wanted), second: of dy alone */
template <class T, enum sums KIND>
const char *column_sums(const struct cuda_call *c, const struct view *first, const struct view *second, const struct view *dy,
                        const struct view *x, const struct view *mean, const struct view *rstd)
{
    unsigned cols = first->cols, heads = dy->cols / cols, chunks = workspace_chunks((size_t)dy->rows * heads);
    bool packed = view_packed(dy) && (!x || view_packed(x)) && cols % PACK == 0;
    column_args<T> a = {};
    a.dy = static_cast<const T *>(dy->data);
    a.ld_dy = dy->ld;
    if (KIND != SUMS_PLAIN) {
        a.x = static_cast<const T *>(x->data);
        a.ld_x = x->ld;
        a.rstd = static_cast<const float *>(rstd->data);
        a.ld_rstd = rstd->ld;
    }
    if (KIND == SUMS_LAYER) {
        a.mean = static_cast<const float *>(mean->data);
        a.ld_mean = mean->ld;
    }
    a.part = static_cast<float *>(c->workspace);
    a.rows = (size_t)dy->rows * heads;
    a.chunk_rows = (a.rows + chunks - 1) / chunks;
    a.cols = cols;
    a.heads = heads;
    size_t packs = packed ? cols / PACK : cols;
    unsigned width = power_of_two(packs, 32);
    dim3 grid(blocks_for(packs, width), chunks), block(width, BLOCK / width);
    if (packed)
        LAUNCH((column_kernel<PACK, KIND, T>), grid, block, 0, c->stream, a);
    else
        LAUNCH((column_kernel<1, KIND, T>), grid, block, 0, c->stream, a);
    cuda_finish_columns(first, a.part, chunks, c->stream);
    if (second && second->data)
        cuda_finish_columns(second, a.part + (size_t)chunks * cols, chunks, c->stream);
    return cuda_launched();
}

template <class T> const char *bias_sums(const struct cuda_call *c)
{
    return column_sums<T, SUMS_PLAIN>(c, &OPERAND(BIAS_W, db), nullptr, &OPERAND(BIAS_W, dy), nullptr, nullptr, nullptr);
}
template <class T> const char *rms_sums(const struct cuda_call *c)
{
    return column_sums<T, SUMS_RMS>(c, &OPERAND(RMSNORM_W, dg), nullptr, &OPERAND(RMSNORM_W, dy), &OPERAND(RMSNORM_W, x), nullptr,
                                    &OPERAND(RMSNORM_W, rstd));
}
template <class T> const char *head_sums(const struct cuda_call *c)
{
    return column_sums<T, SUMS_RMS>(c, &OPERAND(HEADNORM_W, dg), nullptr, &OPERAND(HEADNORM_W, dy), &OPERAND(HEADNORM_W, x), nullptr,
                                    &OPERAND(HEADNORM_W, rstd));
}
template <class T> const char *layer_sums(const struct cuda_call *c)
{
    return column_sums<T, SUMS_LAYER>(c, &OPERAND(LAYERNORM_W, dg), &OPERAND(LAYERNORM_W, db), &OPERAND(LAYERNORM_W, dy),
                                      &OPERAND(LAYERNORM_W, x), &OPERAND(LAYERNORM_W, mean), &OPERAND(LAYERNORM_W, rstd));
}

} // namespace

void cuda_finish_columns(const struct view *out, const float *part, unsigned chunks, struct CUstream_st *stream)
{
    dim3 grid(blocks_for(out->cols, FINISH_COLUMNS)), block(FINISH_COLUMNS, FINISH_ROWS);
    if (out->dtype == DTYPE_F32)
        LAUNCH(finish_kernel<float>, grid, block, 0, stream, static_cast<float *>(out->data), part, out->cols, chunks, out->add);
    else
        LAUNCH(finish_kernel<bf16>, grid, block, 0, stream, static_cast<bf16 *>(out->data), part, out->cols, chunks, out->add);
}

const char *cuda_BIAS_W(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(BIAS_W, dy).dtype, bias_sums, c);
}

const char *cuda_RMSNORM_W(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(RMSNORM_W, dy).dtype, rms_sums, c);
}

const char *cuda_HEADNORM_W(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(HEADNORM_W, dy).dtype, head_sums, c);
}

const char *cuda_LAYERNORM_W(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(LAYERNORM_W, dy).dtype, layer_sums, c);
}
