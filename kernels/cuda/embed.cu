/* Token ids, token and position embeddings, and the embeddings' gradients.
 *
 * The gradient adds rows of equal tokens in token order, without atomics on floating-point numbers.  Rows are grouped by
 * token: integer atomics count how often each occurs and give it a piece of a list; the list's order within a piece
 * depends on timing, so every row then finds its rank there by counting smaller row numbers, which does not.  Work is
 * O(t + vocab) and, for a token that occurs n times, n^2 comparisons. */

#include "kernels/cuda/stream.cuh"

namespace {

template <class T> struct gather_args {
    T *y;
    const T *x, *table; /* x: added, or NULL */
    const int32_t *tokens;
    size_t ld_y, ld_x, ld_table, ld_tokens, rows, cols, table_rows;
    int64_t start;
    int64_t sequence, first, shift; /* positions only, isa.def's places */
};

/* row of the position table for row i */
__device__ __forceinline__ int64_t place_of_row(int64_t i, int64_t start, int64_t sequence, int64_t first, int64_t shift)
{
    int64_t w = (start + i) % sequence;
    return first + w + (w >= sequence / 2 ? shift : 0);
}

/* y = table's row of the token, or of the place plus x */
template <int N, bool TOKENS, class T> __global__ void __launch_bounds__(BLOCK) gather_kernel(const gather_args<T> a)
{
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    for (size_t i = (size_t)blockIdx.y * blockDim.y + threadIdx.y; j < a.cols && i < a.rows; i += (size_t)gridDim.y * blockDim.y) {
        int64_t row = TOKENS ? a.tokens[i * a.ld_tokens] - a.start : place_of_row((int64_t)i, a.start, a.sequence, a.first, a.shift);
        float v[N], in[N];
        UNROLL for (int e = 0; e < N; e++) v[e] = 0;
        if (row >= 0 && row < (int64_t)a.table_rows)
            load<N>(v, a.table + (size_t)row * a.ld_table + j);
        if (!TOKENS) {
            load<N>(in, a.x + i * a.ld_x + j);
            UNROLL for (int e = 0; e < N; e++) v[e] += in[e];
        }
        store<N>(a.y + i * a.ld_y + j, v);
    }
}

template <bool TOKENS, class T> const char *gather(const struct cuda_call *c, const gather_args<T> &a, bool packed)
{
    struct shape s = map_shape(a.rows, packed ? a.cols / PACK : a.cols);
    if (packed)
        LAUNCH((gather_kernel<PACK, TOKENS, T>), s.grid, s.block, 0, c->stream, a);
    else
        LAUNCH((gather_kernel<1, TOKENS, T>), s.grid, s.block, 0, c->stream, a);
    return cuda_launched();
}

template <class T> const char *embed(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(EMBED, y), *tokens = &OPERAND(EMBED, tokens), *table = &OPERAND(EMBED, table);
    gather_args<T> a = {static_cast<T *>(y->data), nullptr, static_cast<const T *>(table->data),
                        static_cast<const int32_t *>(tokens->data), y->ld, 0, table->ld, tokens->ld, y->rows, y->cols, table->rows,
                        INTEGER(EMBED, start), 0, 0, 0};
    return gather<true, T>(c, a, view_packed(y) && view_packed(table));
}

template <class T> const char *position(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(POSITION, y), *x = &OPERAND(POSITION, x), *table = &OPERAND(POSITION, table);
    gather_args<T> a = {static_cast<T *>(y->data), static_cast<const T *>(x->data), static_cast<const T *>(table->data), nullptr,
                        y->ld, x->ld, table->ld, 0, y->rows, y->cols, table->rows, INTEGER(POSITION, start),
                        INTEGER(POSITION, sequence), INTEGER(POSITION, first), INTEGER(POSITION, shift)};
    return gather<false, T>(c, a, view_packed(y) && view_packed(x) && view_packed(table));
}

/* The workspace of EMBED_W: how often each row of the table occurs, where its piece of the list begins, how much of that is
 * filled, the list as it comes and in order, which rows occur, how many they are and how much of the list is used. */
struct groups {
    unsigned *count, *begin, *filled, *list, *sorted, *present, *total;
};
struct groups groups_at(void *workspace, size_t tokens, size_t vocab)
{
    unsigned *w = static_cast<unsigned *>(workspace);
    struct groups g = {w, w + vocab, w + 2 * vocab, w + 3 * vocab, w + 3 * vocab + tokens, w + 3 * vocab + 2 * tokens,
                       w + 3 * vocab + 3 * tokens};
    return g;
}

struct token_args {
    const int32_t *tokens;
    size_t ld;
    int64_t start;
    unsigned rows, vocab;
    struct groups g;
};

/* row of the table, or vocab where the token belongs to another part of it */
__device__ __forceinline__ unsigned row_of(const token_args &a, unsigned i)
{
    int64_t row = a.tokens[i * a.ld] - a.start;
    return row >= 0 && row < a.vocab ? (unsigned)row : a.vocab;
}

__global__ void __launch_bounds__(BLOCK) clear_kernel(const token_args a)
{
    unsigned v = blockIdx.x * BLOCK + threadIdx.x;
    if (v < a.vocab)
        a.g.count[v] = a.g.filled[v] = 0;
    if (v < 2)
        a.g.total[v] = 0;
}
__global__ void __launch_bounds__(BLOCK) count_kernel(const token_args a)
{
    unsigned i = blockIdx.x * BLOCK + threadIdx.x, v = i < a.rows ? row_of(a, i) : a.vocab;
    if (v < a.vocab)
        atomicAdd(&a.g.count[v], 1u);
}
__global__ void __launch_bounds__(BLOCK) divide_kernel(const token_args a)
{
    unsigned v = blockIdx.x * BLOCK + threadIdx.x;
    if (v >= a.vocab || !a.g.count[v])
        return;
    a.g.begin[v] = atomicAdd(&a.g.total[1], a.g.count[v]);
    a.g.present[atomicAdd(&a.g.total[0], 1u)] = v;
}
__global__ void __launch_bounds__(BLOCK) list_kernel(const token_args a)
{
    unsigned i = blockIdx.x * BLOCK + threadIdx.x, v = i < a.rows ? row_of(a, i) : a.vocab;
    if (v < a.vocab)
        a.g.list[a.g.begin[v] + atomicAdd(&a.g.filled[v], 1u)] = i;
}
/* a warp per row: its rank among the rows of its token */
__global__ void __launch_bounds__(BLOCK) rank_kernel(const token_args a)
{
    unsigned i = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32, v = i < a.rows ? row_of(a, i) : a.vocab, rank = 0;
    if (v == a.vocab)
        return; /* the whole warp */
    const unsigned *piece = a.g.list + a.g.begin[v];
    for (unsigned k = threadIdx.x % 32; k < a.g.count[v]; k += 32)
        rank += piece[k] < i;
    for (int o = 16; o; o /= 2)
        rank += __shfl_xor_sync(0xffffffffu, rank, o);
    if (threadIdx.x % 32 == 0)
        a.g.sorted[a.g.begin[v] + rank] = i;
}

/* one row of the table per blockIdx.y: the sum of its rows of dy, in order */
template <int N, class G, class T>
__global__ void __launch_bounds__(BLOCK) embed_sum_kernel(G *table, size_t ld_table, const T *dy, size_t ld_dy, size_t cols,
                                                          const token_args a, bool add)
{
    const unsigned DEEP = 8;
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    for (unsigned p = blockIdx.y * blockDim.y + threadIdx.y; j < cols && p < a.g.total[0]; p += gridDim.y * blockDim.y) {
        unsigned v = a.g.present[p], n = a.g.count[v];
        const unsigned *row = a.g.sorted + a.g.begin[v];
        float sum[N], in[N];
        UNROLL for (int e = 0; e < N; e++) sum[e] = 0;
        if (add)
            load<N>(sum, table + v * ld_table + j);
        unsigned k = 0;
        for (; k + DEEP <= n; k += DEEP) { /* of common tokens several rows on the way */
            float more[DEEP][N];
            UNROLL for (unsigned d = 0; d < DEEP; d++) load<N>(more[d], dy + row[k + d] * ld_dy + j);
            UNROLL for (unsigned d = 0; d < DEEP; d++) UNROLL for (int e = 0; e < N; e++) sum[e] += more[d][e];
        }
        for (; k < n; k++) {
            load<N>(in, dy + row[k] * ld_dy + j);
            UNROLL for (int e = 0; e < N; e++) sum[e] += in[e];
        }
        store<N>(table + v * ld_table + j, sum);
    }
}

/* rows of the table that no token has, where the gradient is written and not added */
template <int N, class G>
__global__ void __launch_bounds__(BLOCK) embed_zero_kernel(G *table, size_t ld_table, size_t cols, const token_args a)
{
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    for (unsigned v = blockIdx.y * blockDim.y + threadIdx.y; j < cols && v < a.vocab; v += gridDim.y * blockDim.y) {
        float zero[N];
        UNROLL for (int e = 0; e < N; e++) zero[e] = 0;
        if (!a.g.count[v])
            store<N>(table + v * ld_table + j, zero);
    }
}

template <int N, class G, class T> void embed_sum(const struct cuda_call *c, const token_args &a)
{
    const struct view *table = &OPERAND(EMBED_W, dtable), *dy = &OPERAND(EMBED_W, dy);
    G *to = static_cast<G *>(table->data);
    size_t cols = table->cols;
    struct shape s = map_shape(a.rows < a.vocab ? a.rows : a.vocab, cols / N);
    LAUNCH((embed_sum_kernel<N, G, T>), s.grid, s.block, 0, c->stream, to, table->ld, static_cast<const T *>(dy->data), dy->ld, cols, a,
           table->add);
    if (table->add)
        return;
    s = map_shape(a.vocab, cols / N);
    LAUNCH((embed_zero_kernel<N, G>), s.grid, s.block, 0, c->stream, to, table->ld, cols, a);
}

template <class G, class T> struct position_args {
    G *table;
    const T *dy;
    size_t ld_table, ld_dy, rows, cols, table_rows;
    int64_t start, sequence, first, shift;
    bool add;
};

/* Row p of the table: the sum of all rows at that place, in order.  Places rise with the number w in the sequence, so at
 * most one w has place p. */
template <int N, class G, class T> __global__ void __launch_bounds__(BLOCK) position_sum_kernel(const position_args<G, T> a)
{
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    for (size_t p = (size_t)blockIdx.y * blockDim.y + threadIdx.y; j < a.cols && p < a.table_rows; p += (size_t)gridDim.y * blockDim.y) {
        int64_t w = (int64_t)p - a.first, half = a.sequence / 2;
        if (w >= half)
            w = w - a.shift >= half ? w - a.shift : -1;
        bool here = w >= 0 && w < a.sequence;
        float sum[N], in[N];
        UNROLL for (int e = 0; e < N; e++) sum[e] = 0;
        if (a.add && !here)
            continue;
        if (a.add)
            load<N>(sum, a.table + p * a.ld_table + j);
        int64_t i = here ? (w - a.start % a.sequence + a.sequence) % a.sequence : (int64_t)a.rows;
        for (; i < (int64_t)a.rows; i += a.sequence) {
            load<N>(in, a.dy + (size_t)i * a.ld_dy + j);
            UNROLL for (int e = 0; e < N; e++) sum[e] += in[e];
        }
        store<N>(a.table + p * a.ld_table + j, sum);
    }
}

template <class G, class T> const char *position_sum(const struct cuda_call *c)
{
    const struct view *table = &OPERAND(POSITION_W, dtable), *dy = &OPERAND(POSITION_W, dy);
    position_args<G, T> a = {static_cast<G *>(table->data), static_cast<const T *>(dy->data), table->ld, dy->ld, dy->rows, dy->cols,
                             table->rows, INTEGER(POSITION_W, start), INTEGER(POSITION_W, sequence), INTEGER(POSITION_W, first),
                             INTEGER(POSITION_W, shift), table->add};
    bool packed = view_packed(table) && view_packed(dy);
    struct shape s = map_shape(table->rows, packed ? a.cols / PACK : a.cols);
    if (packed)
        LAUNCH((position_sum_kernel<PACK, G, T>), s.grid, s.block, 0, c->stream, a);
    else
        LAUNCH((position_sum_kernel<1, G, T>), s.grid, s.block, 0, c->stream, a);
    return cuda_launched();
}

/* staged ids into rows of a view */
__global__ void __launch_bounds__(BLOCK) ids_kernel(int32_t *ids, size_t ld, const int32_t *staged, unsigned rows)
{
    unsigned i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < rows)
        ids[i * ld] = staged[i];
}

const char *ids(const struct cuda_call *c, const struct view *tokens, const struct view *targets)
{
    unsigned rows = tokens->data ? tokens->rows : targets->rows;
    for (int i = 0; i < 2; i++) {
        const struct view *v = i ? targets : tokens;
        if (v->data)
            LAUNCH(ids_kernel, blocks_for(rows, BLOCK), BLOCK, 0, c->stream, static_cast<int32_t *>(v->data), v->ld,
                   c->staged + (size_t)i * rows, rows);
    }
    return cuda_launched();
}

} // namespace

const char *cuda_TOKENS(const struct cuda_call *c)
{
    return ids(c, &OPERAND(TOKENS, tokens), &OPERAND(TOKENS, targets));
}

const char *cuda_TOKENS_AHEAD(const struct cuda_call *c)
{
    return ids(c, &OPERAND(TOKENS_AHEAD, tokens), &OPERAND(TOKENS_AHEAD, targets));
}

const char *cuda_EMBED(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(EMBED, y).dtype, embed, c);
}

const char *cuda_EMBED_W(const struct cuda_call *c)
{
    const struct view *table = &OPERAND(EMBED_W, dtable), *dy = &OPERAND(EMBED_W, dy), *tokens = &OPERAND(EMBED_W, tokens);
    token_args a = {static_cast<const int32_t *>(tokens->data), tokens->ld, INTEGER(EMBED_W, start), dy->rows, table->rows,
                    groups_at(c->workspace, dy->rows, table->rows)};
    unsigned by_row = blocks_for(a.vocab < 2 ? 2 : a.vocab, BLOCK), by_token = blocks_for(a.rows, BLOCK);
    LAUNCH(clear_kernel, by_row, BLOCK, 0, c->stream, a);
    LAUNCH(count_kernel, by_token, BLOCK, 0, c->stream, a);
    LAUNCH(divide_kernel, by_row, BLOCK, 0, c->stream, a);
    LAUNCH(list_kernel, by_token, BLOCK, 0, c->stream, a);
    LAUNCH(rank_kernel, blocks_for(a.rows, BLOCK / 32), BLOCK, 0, c->stream, a);
    bool packed = view_packed(table) && view_packed(dy), wide = table->dtype == DTYPE_F32;
    if (packed)
        dy->dtype == DTYPE_F32 ? (wide ? embed_sum<PACK, float, float>(c, a) : embed_sum<PACK, bf16, float>(c, a))
                               : (wide ? embed_sum<PACK, float, bf16>(c, a) : embed_sum<PACK, bf16, bf16>(c, a));
    else
        dy->dtype == DTYPE_F32 ? (wide ? embed_sum<1, float, float>(c, a) : embed_sum<1, bf16, float>(c, a))
                               : (wide ? embed_sum<1, float, bf16>(c, a) : embed_sum<1, bf16, bf16>(c, a));
    return cuda_launched();
}

const char *cuda_POSITION(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(POSITION, y).dtype, position, c);
}

const char *cuda_POSITION_W(const struct cuda_call *c)
{
    if (OPERAND(POSITION_W, dtable).dtype == DTYPE_F32)
        return OPERAND(POSITION_W, dy).dtype == DTYPE_F32 ? position_sum<float, float>(c) : position_sum<float, bf16>(c);
    return OPERAND(POSITION_W, dy).dtype == DTYPE_F32 ? position_sum<bf16, float>(c) : position_sum<bf16, bf16>(c);
}
