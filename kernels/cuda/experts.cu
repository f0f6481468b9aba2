/* Experts' rows: which row of which block each choice gets, rows into blocks and back, and the gradient of the weights.
 *
 * ARRANGE numbers an expert's choices in token order: a block per expert looks at all choices and adds up matches with scans
 * over its threads, so the order never depends on timing.  Work is O(experts t k), read from the cache; then one block lays
 * experts one behind the other, and every choice adds its expert's first row. */

#include "kernels/cuda/stream.cuh"

namespace {

const unsigned ARRANGE_THREADS = 512, ARRANGE_ITEMS = 4 /* choices per thread and round */;

struct arrange_args {
    const int32_t *index;
    int32_t *place, *counts, *begin; /* begin: first row of every expert, in the workspace */
    double *need;
    size_t ld_index, ld_place, ld_counts;
    unsigned tokens, choices, experts, blocks;
    int64_t rows, capacity;
    uint64_t start, sequence;
    uint64_t expected; /* tokens */
};

/* threads' numbers added up over those before this thread; total: over all; part: ARRANGE_THREADS / 32 words */
__device__ __forceinline__ unsigned block_scan(unsigned x, unsigned *part, unsigned *total)
{
    unsigned lane = threadIdx.x % 32, sum = x;
    for (unsigned o = 1; o < 32; o *= 2) {
        unsigned other = __shfl_up_sync(0xffffffffu, sum, o);
        sum += lane >= o ? other : 0;
    }
    if (lane == 31)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    unsigned before = 0, all = 0;
    for (unsigned w = 0; w < ARRANGE_THREADS / 32; w++) {
        before += w < threadIdx.x / 32 ? part[w] : 0;
        all += part[w];
    }
    __syncthreads();
    *total = all;
    return before + sum - x;
}

/* Choices [from, to) of one sequence: an expert's get numbers from `base` on as far as capacity goes, the others -1.
 * Returns how many got one. */
__device__ __forceinline__ unsigned number_choices(const arrange_args &a, uint64_t from, uint64_t to, unsigned base, unsigned *part)
{
    uint64_t most = a.capacity ? (uint64_t)a.capacity : UINT64_MAX, seen = 0;
    for (uint64_t at = from; at < to; at += ARRANGE_THREADS * ARRANGE_ITEMS) {
        uint64_t first = at + threadIdx.x * ARRANGE_ITEMS;
        unsigned chosen[ARRANGE_ITEMS], matches = 0, total;
        UNROLL for (unsigned e = 0; e < ARRANGE_ITEMS; e++)
        {
            uint64_t t = first + e;
            chosen[e] = t < to ? (unsigned)a.index[t / a.choices * a.ld_index + t % a.choices] : a.experts + 1;
            matches += t < to && chosen[e] == blockIdx.x;
        }
        uint64_t rank = seen + block_scan(matches, part, &total);
        UNROLL for (unsigned e = 0; e < ARRANGE_ITEMS; e++)
        {
            uint64_t t = first + e;
            bool own = t < to && chosen[e] == blockIdx.x, nobodys = t < to && chosen[e] >= a.experts && blockIdx.x == 0;
            if (own || nobodys)
                a.place[t / a.choices * a.ld_place + t % a.choices] = own && rank < most ? (int32_t)(base + rank) : -1;
            rank += own;
        }
        seen += total;
    }
    return (unsigned)(seen < most ? seen : most);
}

__global__ void __launch_bounds__(512) number_kernel(const arrange_args a)
{
    SHARED(unsigned, part, ARRANGE_THREADS / 32);
    unsigned base = 0;
    uint64_t choices = (uint64_t)a.tokens * a.choices;
    if (!a.capacity)
        base = number_choices(a, 0, choices, 0, part);
    else
        for (uint64_t row = 0, next; row < a.tokens; row = next) {
            next = ((a.start + row) / a.sequence + 1) * a.sequence - a.start;
            next = next < a.tokens ? next : a.tokens;
            base += number_choices(a, row * a.choices, next * a.choices, base, part);
        }
    if (threadIdx.x == 0)
        a.counts[blockIdx.x * a.ld_counts] = (int32_t)base;
}

/* experts one behind the other in their blocks, as far as there are rows */
__global__ void __launch_bounds__(BLOCK) lay_kernel(const arrange_args a)
{
    DYNAMIC_SHARED(int32_t, count);
    SHARED(double, most, BLOCK);
    unsigned each = a.experts / a.blocks;
    double wanted = 0;
    for (unsigned e = threadIdx.x; e < a.experts; e += BLOCK)
        count[e] = a.counts[e * a.ld_counts];
    __syncthreads();
    for (unsigned b = threadIdx.x; b < a.blocks; b += BLOCK) {
        int64_t used = 0, all = 0;
        for (unsigned e = b * each; e < (b + 1) * each; e++) {
            int32_t n = count[e];
            all += n;
            n = n < a.rows - used ? n : (int32_t)(a.rows - used);
            count[e] = n;
            a.begin[e] = (int32_t)(b * a.rows + used);
            used += n;
        }
        wanted = all > a.rows && (double)all > wanted ? (double)all : wanted;
    }
    most[threadIdx.x] = wanted;
    __syncthreads();
    for (unsigned e = threadIdx.x; e < a.experts; e += BLOCK)
        a.counts[e * a.ld_counts] = count[e];
    if (threadIdx.x || !a.need)
        return;
    for (unsigned t = 1; t < BLOCK; t++)
        wanted = most[t] > wanted ? most[t] : wanted;
    double share = wanted / ((double)a.expected * a.choices / a.blocks);
    a.need[0] = wanted > 0 && share > a.need[0] ? share : a.need[0];
    a.need[1] = wanted > a.need[1] ? wanted : a.need[1];
}

__global__ void __launch_bounds__(BLOCK) place_kernel(const arrange_args a)
{
    uint64_t t = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (t >= (uint64_t)a.tokens * a.choices)
        return;
    int32_t *p = &a.place[t / a.choices * a.ld_place + t % a.choices], e = a.index[t / a.choices * a.ld_index + t % a.choices];
    if (*p >= 0)
        *p = *p < a.counts[e * a.ld_counts] ? a.begin[e] + *p : -1;
}

struct once_args {
    const int32_t *index;
    int32_t *place, *chosen, *filled; /* filled: by block, in the workspace */
    double *need;
    size_t ld_index, ld_place, ld_chosen;
    unsigned tokens, choices, experts, blocks;
    int64_t rows;
    bool counted; /* place says which choices fit: those with a number */
    double mean;
};

/* A block per block of rows, a thread per token: tokens with a choice there get rows in their order. */
__global__ void __launch_bounds__(512) once_kernel(const once_args a)
{
    SHARED(unsigned, part, ARRANGE_THREADS / 32);
    unsigned each = a.experts / a.blocks, b = blockIdx.x;
    int64_t seen = 0;
    int32_t *own = a.chosen + (size_t)b * (size_t)a.rows * a.ld_chosen;
    for (uint64_t t = threadIdx.x; t < (uint64_t)a.rows * a.choices; t += ARRANGE_THREADS)
        own[t / a.choices * a.ld_chosen + t % a.choices] = -1;
    __syncthreads();
    for (uint64_t at = 0; at < a.tokens; at += ARRANGE_THREADS) {
        uint64_t i = at + threadIdx.x;
        const int32_t *index = a.index + i * a.ld_index;
        int32_t *place = a.place + i * a.ld_place;
        unsigned has = 0, total;
        for (unsigned j = 0; i < a.tokens && j < a.choices; j++)
            has |= (unsigned)index[j] < a.experts && (unsigned)index[j] / each == b && (!a.counted || place[j] >= 0);
        int64_t row = seen + block_scan(has, part, &total);
        for (unsigned j = 0, first = 1; i < a.tokens && j < a.choices; j++) {
            unsigned e = (unsigned)index[j];
            if (e >= a.experts ? b != 0 : e / each != b)
                continue;
            bool fits = e < a.experts && (!a.counted || place[j] >= 0) && row < a.rows;
            place[j] = fits && first ? (int32_t)(b * a.rows + row) : -1;
            if (fits)
                own[(size_t)row * a.ld_chosen + j] = (int32_t)(e - b * each);
            first = fits ? 0 : first;
        }
        seen += total;
    }
    if (threadIdx.x == 0)
        a.filled[b] = (int32_t)seen;
}

__global__ void __launch_bounds__(32) once_need_kernel(const once_args a)
{
    if (threadIdx.x)
        return;
    for (unsigned b = 0; b < a.blocks; b++) {
        double wanted = a.filled[b];
        if (a.filled[b] <= a.rows)
            continue;
        a.need[0] = wanted / a.mean > a.need[0] ? wanted / a.mean : a.need[0];
        a.need[1] = wanted > a.need[1] ? wanted : a.need[1];
    }
}

template <class T> struct rows_args {
    T *y;
    const T *x; /* NULL = ones */
    const int32_t *place;
    const float *weight; /* NULL = ones */
    size_t ld_y, ld_x, ld_place, ld_weight, tokens, cols, rows;
    unsigned choices;
    bool add;
};

/* y[place] = x weight */
template <int N, class T> __global__ void __launch_bounds__(BLOCK) dispatch_kernel(const rows_args<T> a)
{
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    for (size_t i = (size_t)blockIdx.y * blockDim.y + threadIdx.y; j < a.cols && i < a.tokens; i += (size_t)gridDim.y * blockDim.y) {
        float in[N], out[N];
        UNROLL for (int e = 0; e < N; e++) in[e] = 1;
        if (a.x)
            load<N>(in, a.x + i * a.ld_x + j);
        for (unsigned k = 0; k < a.choices; k++) {
            size_t row = (unsigned)a.place[i * a.ld_place + k];
            float w = a.weight ? a.weight[i * a.ld_weight + k] : 1;
            UNROLL for (int e = 0; e < N; e++) out[e] = w * in[e];
            if (row < a.rows)
                store<N>(a.y + row * a.ld_y + j, out);
        }
    }
}

/* y = sum of x[place] weight, in the order of choices */
template <int N, class T> __global__ void __launch_bounds__(BLOCK) combine_kernel(const rows_args<T> a)
{
    size_t j = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    for (size_t i = (size_t)blockIdx.y * blockDim.y + threadIdx.y; j < a.cols && i < a.tokens; i += (size_t)gridDim.y * blockDim.y) {
        float in[N], out[N];
        UNROLL for (int e = 0; e < N; e++) out[e] = 0;
        for (unsigned k = 0; k < a.choices; k++) {
            size_t row = (unsigned)a.place[i * a.ld_place + k];
            float w = a.weight ? a.weight[i * a.ld_weight + k] : 1;
            if (row >= a.rows)
                continue;
            load<N>(in, a.x + row * a.ld_x + j);
            UNROLL for (int e = 0; e < N; e++) out[e] += w * in[e];
        }
        put<N>(a.y + i * a.ld_y + j, out, a.add);
    }
}

/* a block per token, its warps take the choices: out = dy . x[place]; dy NULL = ones */
template <int N, class T>
__global__ void __launch_bounds__(BLOCK) weight_kernel(float *out, size_t ld_out, const T *dy, size_t ld_dy, const rows_args<T> a)
{
    size_t i = blockIdx.x;
    for (unsigned k = threadIdx.x / 32; k < a.choices; k += BLOCK / 32) {
        size_t row = (unsigned)a.place[i * a.ld_place + k];
        float sum = 0;
        for (size_t j = threadIdx.x % 32 * N; row < a.rows && j < a.cols; j += 32 * N) {
            float up[N], in[N];
            UNROLL for (int e = 0; e < N; e++) up[e] = 1;
            if (dy)
                load<N>(up, dy + i * ld_dy + j);
            load<N>(in, a.x + row * a.ld_x + j);
            UNROLL for (int e = 0; e < N; e++) sum += up[e] * in[e];
        }
        for (int o = 16; o; o /= 2)
            sum += __shfl_xor_sync(0xffffffffu, sum, o);
        if (threadIdx.x % 32 == 0)
            out[i * ld_out + k] = sum;
    }
}

template <class T> struct weigh_args {
    T *dx, *y;
    float *dweight;
    const T *dy, *x;
    const float *weight;
    size_t ld_dx, ld_y, ld_dweight, ld_dy, ld_x, ld_weight, rows, cols;
};

/* a warp per row */
template <int N, class T> __global__ void __launch_bounds__(BLOCK) weigh_kernel(const weigh_args<T> a)
{
    size_t i = (size_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32;
    if (i >= a.rows)
        return;
    float w = a.weight[i * a.ld_weight], sum = 0;
    for (size_t j = threadIdx.x % 32 * N; j < a.cols; j += 32 * N) {
        float up[N], in[N];
        load<N>(up, a.dy + i * a.ld_dy + j);
        load<N>(in, a.x + i * a.ld_x + j);
        UNROLL for (int e = 0; e < N; e++) {
            sum += up[e] * in[e];
            up[e] *= w;
            in[e] *= w;
        }
        store<N>(a.dx + i * a.ld_dx + j, up);
        store<N>(a.y + i * a.ld_y + j, in);
    }
    for (int o = 16; o; o /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (threadIdx.x % 32 == 0)
        a.dweight[i * a.ld_dweight] = sum;
}

template <class T> rows_args<T> row_operands(const struct view *y, const struct view *x, const struct view *place, const struct view *weight)
{
    rows_args<T> a = {};
    a.y = static_cast<T *>(y->data);
    a.ld_y = y->ld;
    a.x = static_cast<const T *>(x->data);
    a.ld_x = x->ld;
    a.place = static_cast<const int32_t *>(place->data);
    a.ld_place = place->ld;
    a.tokens = place->rows;
    a.choices = place->cols;
    a.cols = x->cols;
    if (weight && weight->data) {
        a.weight = static_cast<const float *>(weight->data);
        a.ld_weight = weight->ld;
    }
    return a;
}

/* y[place] = x: rows in 8 bits, a word or four at a time */
template <class T> __global__ void __launch_bounds__(BLOCK) dispatch_words_kernel(const rows_args<T> a)
{
    size_t j = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t i = (size_t)blockIdx.y * blockDim.y + threadIdx.y; j < a.cols && i < a.tokens; i += (size_t)gridDim.y * blockDim.y) {
        T word = a.x[i * a.ld_x + j];
        for (unsigned k = 0; k < a.choices; k++) {
            size_t row = (unsigned)a.place[i * a.ld_place + k];
            if (row < a.rows)
                a.y[row * a.ld_y + j] = word;
        }
    }
}

template <class T> const char *dispatch_words(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(DISPATCH, y), *x = &OPERAND(DISPATCH, x);
    rows_args<T> a = row_operands<T>(y, x, &OPERAND(DISPATCH, place), nullptr);
    size_t words = sizeof(T) / sizeof(int32_t);
    a.cols /= words;
    a.ld_x /= words;
    a.ld_y /= words;
    a.rows = y->rows;
    struct shape s = map_shape(a.tokens, a.cols);
    LAUNCH((dispatch_words_kernel<T>), s.grid, s.block, 0, c->stream, a);
    return cuda_launched();
}

template <class T> const char *dispatch(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(DISPATCH, y), *x = &OPERAND(DISPATCH, x);
    rows_args<T> a = row_operands<T>(y, x, &OPERAND(DISPATCH, place), &OPERAND(DISPATCH, weight));
    a.cols = y->cols;
    bool packed = view_packed(y) && view_packed(x);
    struct shape s = map_shape(a.tokens, packed ? a.cols / PACK : a.cols);
    a.rows = y->rows;
    if (packed)
        LAUNCH((dispatch_kernel<PACK, T>), s.grid, s.block, 0, c->stream, a);
    else
        LAUNCH((dispatch_kernel<1, T>), s.grid, s.block, 0, c->stream, a);
    return cuda_launched();
}

template <class T> const char *combine(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(COMBINE, y), *x = &OPERAND(COMBINE, x);
    rows_args<T> a = row_operands<T>(y, x, &OPERAND(COMBINE, place), &OPERAND(COMBINE, weight));
    bool packed = view_packed(y) && view_packed(x);
    struct shape s = map_shape(a.tokens, packed ? a.cols / PACK : a.cols);
    a.rows = x->rows;
    a.add = y->add;
    if (packed)
        LAUNCH((combine_kernel<PACK, T>), s.grid, s.block, 0, c->stream, a);
    else
        LAUNCH((combine_kernel<1, T>), s.grid, s.block, 0, c->stream, a);
    return cuda_launched();
}

template <class T> const char *combine_weight(const struct cuda_call *c)
{
    const struct view *out = &OPERAND(COMBINE_W, dweight), *dy = &OPERAND(COMBINE_W, dy), *x = &OPERAND(COMBINE_W, x);
    struct view none = {};
    rows_args<T> a = row_operands<T>(&none, x, &OPERAND(COMBINE_W, place), nullptr);
    a.rows = x->rows;
    float *to = static_cast<float *>(out->data);
    const T *up = static_cast<const T *>(dy->data);
    if (view_packed(dy) && view_packed(x))
        LAUNCH((weight_kernel<PACK, T>), (unsigned)a.tokens, BLOCK, 0, c->stream, to, out->ld, up, dy->ld, a);
    else
        LAUNCH((weight_kernel<1, T>), (unsigned)a.tokens, BLOCK, 0, c->stream, to, out->ld, up, dy->ld, a);
    return cuda_launched();
}

template <class T> const char *weigh(const struct cuda_call *c)
{
    const struct view *dx = &OPERAND(WEIGH_I, dx), *y = &OPERAND(WEIGH_I, y), *dweight = &OPERAND(WEIGH_I, dweight);
    const struct view *dy = &OPERAND(WEIGH_I, dy), *x = &OPERAND(WEIGH_I, x), *weight = &OPERAND(WEIGH_I, weight);
    weigh_args<T> a = {static_cast<T *>(dx->data), static_cast<T *>(y->data), static_cast<float *>(dweight->data),
                       static_cast<const T *>(dy->data), static_cast<const T *>(x->data), static_cast<const float *>(weight->data),
                       dx->ld, y->ld, dweight->ld, dy->ld, x->ld, weight->ld, dx->rows, dx->cols};
    unsigned blocks = blocks_for(a.rows, BLOCK / 32);
    if (view_packed(dx) && view_packed(y) && view_packed(dy) && view_packed(x))
        LAUNCH((weigh_kernel<PACK, T>), blocks, BLOCK, 0, c->stream, a);
    else
        LAUNCH((weigh_kernel<1, T>), blocks, BLOCK, 0, c->stream, a);
    return cuda_launched();
}

} // namespace

const char *cuda_ARRANGE(const struct cuda_call *c)
{
    const struct view *place = &OPERAND(ARRANGE, place), *counts = &OPERAND(ARRANGE, counts), *index = &OPERAND(ARRANGE, index);
    arrange_args a = {static_cast<const int32_t *>(index->data), static_cast<int32_t *>(place->data),
                      static_cast<int32_t *>(counts->data), static_cast<int32_t *>(c->workspace),
                      static_cast<double *>(OPERAND(ARRANGE, need).data), index->ld, place->ld, counts->ld, index->rows, index->cols,
                      (unsigned)INTEGER(ARRANGE, experts), (unsigned)INTEGER(ARRANGE, blocks), INTEGER(ARRANGE, rows),
                      INTEGER(ARRANGE, capacity), (uint64_t)INTEGER(ARRANGE, start), (uint64_t)INTEGER(ARRANGE, sequence), (uint64_t)INTEGER(ARRANGE, tokens)};
    a.expected = a.expected ? a.expected : a.tokens;
    LAUNCH(number_kernel, a.experts, ARRANGE_THREADS, 0, c->stream, a);
    LAUNCH(lay_kernel, 1, BLOCK, a.experts * sizeof(int32_t), c->stream, a);
    LAUNCH(place_kernel, blocks_for((size_t)a.tokens * a.choices, BLOCK), BLOCK, 0, c->stream, a);
    return cuda_launched();
}

/* with a capacity first which choices fit, as ARRANGE numbers them; the numbers lie in `place` meanwhile */
const char *cuda_ARRANGE_ONCE(const struct cuda_call *c)
{
    const struct view *place = &OPERAND(ARRANGE_ONCE, place), *chosen = &OPERAND(ARRANGE_ONCE, chosen);
    const struct view *index = &OPERAND(ARRANGE_ONCE, index);
    int32_t *counts = static_cast<int32_t *>(c->workspace);
    arrange_args n = {static_cast<const int32_t *>(index->data), static_cast<int32_t *>(place->data), counts, nullptr, nullptr,
                      index->ld, place->ld, 1, index->rows, index->cols, (unsigned)INTEGER(ARRANGE_ONCE, experts),
                      (unsigned)INTEGER(ARRANGE_ONCE, blocks), INTEGER(ARRANGE_ONCE, rows), INTEGER(ARRANGE_ONCE, capacity),
                      (uint64_t)INTEGER(ARRANGE_ONCE, start), (uint64_t)INTEGER(ARRANGE_ONCE, sequence), index->rows};
    once_args a = {n.index, n.place, static_cast<int32_t *>(chosen->data), counts + n.experts,
                   static_cast<double *>(OPERAND(ARRANGE_ONCE, need).data), index->ld, place->ld, chosen->ld, n.tokens, n.choices,
                   n.experts, n.blocks, n.rows, n.capacity > 0, NUMBER(ARRANGE_ONCE, mean)};
    if (a.counted)
        LAUNCH(number_kernel, n.experts, ARRANGE_THREADS, 0, c->stream, n);
    LAUNCH(once_kernel, a.blocks, ARRANGE_THREADS, 0, c->stream, a);
    if (a.need)
        LAUNCH(once_need_kernel, 1, 32, 0, c->stream, a);
    return cuda_launched();
}

const char *cuda_DISPATCH(const struct cuda_call *c)
{
    const struct view *y = &OPERAND(DISPATCH, y), *x = &OPERAND(DISPATCH, x);
    bool fours = y->cols % 4 == 0 && y->ld % 4 == 0 && x->ld % 4 == 0 && (uintptr_t)y->data % 16 == 0 && (uintptr_t)x->data % 16 == 0;
    if (y->dtype == DTYPE_I32)
        return fours ? dispatch_words<uint4>(c) : dispatch_words<uint32_t>(c);
    return BY_DTYPE(y->dtype, dispatch, c);
}

const char *cuda_COMBINE(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(COMBINE, x).dtype, combine, c);
}

const char *cuda_COMBINE_W(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(COMBINE_W, x).dtype, combine_weight, c);
}

const char *cuda_WEIGH_I(const struct cuda_call *c)
{
    return BY_DTYPE(OPERAND(WEIGH_I, x).dtype, weigh, c);
}
