/* The router, its gradient, and how evenly the choices fall.  Rules and their sources: kernels/cpu/route.c.
 *
 * A warp per token.  Scores lie in shared memory; the largest is found by comparing in the warp, the lower index first
 * among equals and NaN last, so a token's choices are those of the CPU wherever scores are. */

#include "kernels/cuda/stream.cuh"

namespace {

const unsigned ROUTE_WARPS = 4, WHOLE = 0xffffffffu;

struct route_args {
    int32_t *index;
    float *weight, *score;
    const float *logits, *bias;
    const int32_t *given; /* choices, dense, or NULL; a token whose first is -1 has none */
    size_t ld_index, ld_weight, ld_score, ld_logits;
    unsigned rows, experts, choices, groups, pick;
    float scale;
    bool sigmoid, normalize;
};

__device__ __forceinline__ float warp_sum(float x)
{
    for (int o = 16; o; o /= 2)
        x += __shfl_xor_sync(WHOLE, x, o);
    return x;
}
__device__ __forceinline__ double warp_sum(double x)
{
    for (int o = 16; o; o /= 2)
        x += __shfl_xor_sync(WHOLE, x, o);
    return x;
}

/* does a at index i come before b at j */
__device__ __forceinline__ bool before(float a, unsigned i, float b, unsigned j)
{
    if (a != a || b != b)
        return a == a || (b != b && i < j);
    return a > b || (a == b && i < j);
}

/* the index of the largest of n in shared memory, for all lanes; -inf takes its place */
__device__ __forceinline__ unsigned take_largest(float *x, unsigned n)
{
    unsigned lane = threadIdx.x % 32, best = lane < n ? lane : 0;
    float most = x[best];
    for (unsigned j = lane + 32; j < n; j += 32)
        if (before(x[j], j, most, best)) {
            most = x[j];
            best = j;
        }
    for (int o = 16; o; o /= 2) {
        float other = __shfl_xor_sync(WHOLE, most, o);
        unsigned at = __shfl_xor_sync(WHOLE, best, o);
        if (before(other, at, most, best)) {
            most = other;
            best = at;
        }
    }
    if (lane == 0)
        x[best] = -INFINITY;
    __syncwarp();
    return best;
}

/* out = softmax or logistic of a token's logits */
__device__ __forceinline__ void make_scores(const route_args &a, const float *logits, float *out)
{
    unsigned lane = threadIdx.x % 32;
    float most = -INFINITY, sum = 0;
    for (unsigned j = lane; j < a.experts; j += 32)
        most = fmaxf(most, logits[j]);
    for (int o = 16; o && !a.sigmoid; o /= 2)
        most = fmaxf(most, __shfl_xor_sync(WHOLE, most, o));
    for (unsigned j = lane; j < a.experts; j += 32) {
        out[j] = a.sigmoid ? 1 / (1 + expf(-logits[j])) : expf(logits[j] - most);
        sum += out[j];
    }
    if (!a.sigmoid) {
        float inverse = 1 / warp_sum(sum);
        for (unsigned j = lane; j < a.experts; j += 32)
            out[j] *= inverse;
    }
    __syncwarp();
}

/* A group counts by its best, with sigmoid by its two best; all but the `pick` best groups become -inf.
 * group: 2 groups floats */
__device__ __forceinline__ void limit_groups(const route_args &a, float *x, float *group)
{
    unsigned lane = threadIdx.x % 32, size = a.experts / a.groups;
    float *picked = group + a.groups;
    for (unsigned g = lane; g < a.groups; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (unsigned j = g * size; j < (g + 1) * size; j++) {
            if (x[j] > first) {
                second = first;
                first = x[j];
            } else if (x[j] > second) {
                second = x[j];
            }
        }
        group[g] = a.sigmoid && size > 1 ? first + second : first;
        picked[g] = 0;
    }
    __syncwarp();
    for (unsigned k = 0; k < a.pick; k++) {
        unsigned g = take_largest(group, a.groups);
        if (lane == 0)
            picked[g] = 1;
    }
    __syncwarp();
    for (unsigned j = lane; j < a.experts; j += 32)
        if (picked[j / size] < 1)
            x[j] = -INFINITY;
    __syncwarp();
}

__global__ void route_kernel(const route_args a)
{
    DYNAMIC_SHARED(float, memory);
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    size_t i = (size_t)blockIdx.x * ROUTE_WARPS + warp;
    if (i >= a.rows)
        return; /* the whole warp; no block barrier follows */
    float *score = memory + (size_t)warp * 2 * (a.experts + a.groups), *biased = score + a.experts, *group = biased + a.experts;
    make_scores(a, a.logits + i * a.ld_logits, score);
    for (unsigned j = lane; j < a.experts; j += 32) {
        biased[j] = score[j] + (a.bias ? a.bias[j] : 0);
        a.score[i * a.ld_score + j] = score[j];
    }
    __syncwarp();
    const int32_t *given = a.given && a.given[i * a.choices] >= 0 ? a.given + i * a.choices : nullptr;
    if (a.groups > 1 && !given)
        limit_groups(a, biased, group);
    int32_t *index = a.index + i * a.ld_index;
    double sum = 0;
    for (unsigned k = 0; k < a.choices; k++) {
        unsigned e = given ? (unsigned)given[k] : take_largest(biased, a.experts);
        e = e < a.experts ? e : 0;
        sum += (double)score[e];
        if (lane == 0)
            index[k] = (int32_t)e;
    }
    __syncwarp();
    float factor = a.normalize ? (float)((double)a.scale / (sum + 1e-20)) : a.scale;
    for (unsigned k = lane; k < a.choices; k += 32)
        a.weight[i * a.ld_weight + k] = factor * score[index[k]];
}

/* operands and attributes of ROUTE_I */
struct route_slope_args {
    void *dlogits;
    const float *dweight, *score;
    const int32_t *index;
    const double *load;
    size_t ld_dlogits, ld_dweight, ld_score, ld_index, ld_load;
    unsigned rows, experts, choices;
    uint64_t start, sequence, nsequences;
    double scale, balance;
    bool sigmoid, normalize, wide;
    const double *by; /* NULL: 1 */
};

/* the gradient by a token's scores, in shared memory: of the chosen weights, in the order of choices */
__device__ __forceinline__ void score_slope(const route_slope_args &a, size_t i, const float *s, float *d)
{
    unsigned lane = threadIdx.x % 32;
    const float *dw = a.dweight + i * a.ld_dweight;
    const int32_t *chosen = a.index + i * a.ld_index;
    double sum = 0, dot = 0;
    for (unsigned j = lane; j < a.experts; j += 32)
        d[j] = 0;
    for (unsigned k = 0; k < a.choices; k++)
        if ((unsigned)chosen[k] < a.experts) {
            sum += (double)s[chosen[k]];
            dot += (double)dw[k] * (double)s[chosen[k]];
        }
    sum += 1e-20;
    __syncwarp();
    for (unsigned k = 0; k < a.choices && lane == 0; k++)
        if ((unsigned)chosen[k] < a.experts)
            d[chosen[k]] += (float)(a.scale * (a.normalize ? ((double)dw[k] - dot / sum) / sum : (double)dw[k]));
    __syncwarp();
}

__global__ void route_slope_kernel(const route_slope_args a)
{
    DYNAMIC_SHARED(float, memory);
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    size_t i = (size_t)blockIdx.x * ROUTE_WARPS + warp;
    if (i >= a.rows)
        return; /* the whole warp; no block barrier follows */
    const float *s = a.score + i * a.ld_score;
    float *d = memory + (size_t)warp * a.experts;
    score_slope(a, i, s, d);
    uint64_t q = (a.start + i) / a.sequence;
    double mean = 0;
    if (a.load && q < a.nsequences) { /* of balance * sum of load p, p = score over its sum, which is 1 for a softmax */
        const double *load = a.load + q * a.ld_load;
        double sum = 0, dot = 0, balance = a.by ? a.balance * *a.by : a.balance;
        for (unsigned j = lane; j < a.experts; j += 32)
            sum += (double)s[j];
        sum = a.sigmoid ? warp_sum(sum) : 1;
        for (unsigned j = lane; j < a.experts; j += 32)
            dot += load[j] * (double)s[j] / (sum * sum);
        dot = a.sigmoid ? warp_sum(dot) : 0;
        for (unsigned j = lane; j < a.experts; j += 32)
            d[j] += (float)(balance * (load[j] / sum - dot));
    }
    for (unsigned j = lane; j < a.experts; j += 32)
        mean += (double)d[j] * (double)s[j];
    mean = warp_sum(mean);
    for (unsigned j = lane; j < a.experts; j += 32) {
        float out = a.sigmoid ? d[j] * s[j] * (1 - s[j]) : (float)((double)s[j] * ((double)d[j] - mean));
        if (a.wide)
            static_cast<float *>(a.dlogits)[i * a.ld_dlogits + j] = out;
        else
            static_cast<bf16 *>(a.dlogits)[i * a.ld_dlogits + j] = narrow<bf16>(out);
    }
}

/* A block per sequence.  Counts are whole numbers, so atomics cannot change the sum. */
__global__ void __launch_bounds__(1024) load_kernel(double *load, size_t ld_load, const int32_t *index, size_t ld_index, unsigned experts,
                                                    unsigned rows, unsigned choices, uint64_t start, uint64_t sequence, bool add)
{
    DYNAMIC_SHARED(unsigned, count);
    uint64_t first = blockIdx.x * sequence, end = first + sequence;
    first = first > start ? first - start : 0;
    end = end > start ? end - start : 0;
    end = end < rows ? end : rows;
    for (unsigned e = threadIdx.x; e < experts; e += blockDim.x)
        count[e] = 0;
    __syncthreads();
    for (uint64_t t = first * choices + threadIdx.x; t < end * choices; t += blockDim.x) {
        unsigned e = (unsigned)index[t / choices * ld_index + t % choices];
        if (e < experts)
            atomicAdd(&count[e], 1u);
    }
    __syncthreads();
    for (unsigned e = threadIdx.x; e < experts; e += blockDim.x) {
        double *out = &load[blockIdx.x * ld_load + e];
        *out = (add ? *out : 0) + count[e];
    }
}

/* a warp per row, blocks of eight rows at a time */
__global__ void __launch_bounds__(BLOCK) balance_kernel(double *part, const double *load, size_t ld_load, unsigned sequences,
                                                        const float *score, size_t ld_score, unsigned rows, unsigned experts,
                                                        uint64_t start, uint64_t sequence)
{
    SHARED(double, meet, 32);
    unsigned lane = threadIdx.x % 32;
    double total = 0;
    for (size_t i = (size_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32; i < rows; i += (size_t)gridDim.x * (BLOCK / 32)) {
        uint64_t q = (start + i) / sequence;
        double dot = 0, sum = 0;
        for (unsigned j = lane; j < experts; j += 32) {
            double s = (double)score[i * ld_score + j];
            dot += q < sequences ? load[q * ld_load + j] * s : 0;
            sum += s;
        }
        dot = warp_sum(dot);
        sum = warp_sum(sum);
        total += lane == 0 ? dot / sum : 0;
    }
    total = block_sum(total, meet);
    if (threadIdx.x == 0)
        part[blockIdx.x] = total;
}

/* The mean is added up as on the CPU: whether an expert has exactly the mean must not depend on rounding. */
__global__ void __launch_bounds__(BLOCK) bias_move_kernel(float *bias, const double *load, const double *scale, unsigned experts,
                                                          double rate)
{
    DYNAMIC_SHARED(double, share);
    SHARED(double, mean, 1);
    for (unsigned j = threadIdx.x; j < experts; j += BLOCK)
        share[j] = load[j] / experts;
    __syncthreads();
    if (threadIdx.x == 0) {
        double sum = 0;
        for (unsigned j = 0; j < experts; j++)
            sum += share[j];
        mean[0] = sum;
    }
    __syncthreads();
    for (unsigned j = threadIdx.x; j < experts && *scale >= 0; j += BLOCK)
        bias[j] += (float)(rate * (double)((load[j] < mean[0]) - (load[j] > mean[0])));
}

} // namespace

const char *cuda_ROUTE(const struct cuda_call *c)
{
    const struct view *index = &OPERAND(ROUTE, index), *weight = &OPERAND(ROUTE, weight), *score = &OPERAND(ROUTE, score),
                      *logits = &OPERAND(ROUTE, logits);
    route_args a = {static_cast<int32_t *>(index->data), static_cast<float *>(weight->data), static_cast<float *>(score->data),
                    static_cast<const float *>(logits->data), static_cast<const float *>(OPERAND(ROUTE, bias).data), c->staged,
                    index->ld, weight->ld, score->ld, logits->ld, logits->rows, logits->cols, index->cols,
                    (unsigned)INTEGER(ROUTE, groups), (unsigned)INTEGER(ROUTE, pick), (float)NUMBER(ROUTE, scale),
                    INTEGER(ROUTE, sigmoid) != 0, INTEGER(ROUTE, normalize) != 0};
    size_t shared = ROUTE_WARPS * 2 * (size_t)(a.experts + a.groups) * sizeof(float);
    LAUNCH(route_kernel, blocks_for(a.rows, ROUTE_WARPS), ROUTE_WARPS * 32, shared, c->stream, a);
    return cuda_launched();
}

const char *cuda_ROUTE_I(const struct cuda_call *c)
{
    const struct view *dlogits = &OPERAND(ROUTE_I, dlogits), *dweight = &OPERAND(ROUTE_I, dweight), *index = &OPERAND(ROUTE_I, index),
                      *score = &OPERAND(ROUTE_I, score), *load = &OPERAND(ROUTE_I, load);
    route_slope_args a = {dlogits->data, static_cast<const float *>(dweight->data), static_cast<const float *>(score->data),
                          static_cast<const int32_t *>(index->data), static_cast<const double *>(load->data), dlogits->ld,
                          dweight->ld, score->ld, index->ld, load->ld, score->rows, score->cols, index->cols,
                          (uint64_t)INTEGER(ROUTE_I, start), (uint64_t)INTEGER(ROUTE_I, sequence), load->rows,
                          NUMBER(ROUTE_I, scale), NUMBER(ROUTE_I, balance), INTEGER(ROUTE_I, sigmoid) != 0,
                          INTEGER(ROUTE_I, normalize) != 0, dlogits->dtype == DTYPE_F32,
                          static_cast<const double *>(OPERAND(ROUTE_I, by).data)};
    LAUNCH(route_slope_kernel, blocks_for(a.rows, ROUTE_WARPS), ROUTE_WARPS * 32, ROUTE_WARPS * (size_t)a.experts * sizeof(float),
           c->stream, a);
    return cuda_launched();
}

const char *cuda_LOAD(const struct cuda_call *c)
{
    const struct view *load = &OPERAND(LOAD, load), *index = &OPERAND(LOAD, index);
    LAUNCH(load_kernel, load->rows, 1024, load->cols * sizeof(unsigned), c->stream, static_cast<double *>(load->data), load->ld,
           static_cast<const int32_t *>(index->data), index->ld, load->cols, index->rows, index->cols, (uint64_t)INTEGER(LOAD, start),
           (uint64_t)INTEGER(LOAD, sequence), load->add);
    return cuda_launched();
}

const char *cuda_BALANCE(const struct cuda_call *c)
{
    const struct view *load = &OPERAND(BALANCE, load), *score = &OPERAND(BALANCE, score);
    unsigned blocks = blocks_for(score->rows, BLOCK / 32);
    blocks = blocks < MOST_PARTS ? blocks : MOST_PARTS;
    double *part = static_cast<double *>(c->workspace);
    LAUNCH(balance_kernel, blocks, BLOCK, 0, c->stream, part, static_cast<const double *>(load->data), load->ld, load->rows,
           static_cast<const float *>(score->data), score->ld, score->rows, score->cols, (uint64_t)INTEGER(BALANCE, start),
           (uint64_t)INTEGER(BALANCE, sequence));
    return cuda_sum_parts(&OPERAND(BALANCE, loss), part, blocks, NUMBER(BALANCE, scale), c->stream);
}

const char *cuda_BIAS_MOVE(const struct cuda_call *c)
{
    const struct view *bias = &OPERAND(BIAS_MOVE, bias);
    LAUNCH(bias_move_kernel, 1, BLOCK, bias->cols * sizeof(double), c->stream, static_cast<float *>(bias->data),
           static_cast<const double *>(OPERAND(BIAS_MOVE, load).data), static_cast<const double *>(OPERAND(BIAS_MOVE, scale).data),
           bias->cols, NUMBER(BIAS_MOVE, rate));
    return cuda_launched();
}
