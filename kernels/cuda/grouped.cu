/* Experts' products, and single ones where cuBLASLt isn't: which kernel, and the table of row tiles.
 *
 * How many rows an expert has is only known on the device, in counts.  A first small kernel turns counts into groups (first
 * row and rows of every block's experts, cut at the block's end as on the CPU) and into a table of tiles of up to 128 rows
 * in the workspace; the product's grid has room for the most tiles there can be: one per 128 rows and one more per group. */

#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/products.h"

#define V(op, name) (&k->operand[OPND(op, name)])
#define INTEGER(op, name) (k->attr[ATTR(op, name)].i)

enum { TABLE_THREADS = 1024, GROUP_LIMIT = 1 << 20 };

/* one block: a thread per stretch of groups; sums over threads by a scan in shared memory */
__global__ void __launch_bounds__(TABLE_THREADS)
    group_tiles(const int32_t *counts, int ldcounts, int experts, int blocks, int rows_per_block, row_group *group, row_tile *tile, int *ntiles)
{
    SHARED(int, sums, TABLE_THREADS);
    SHARED(int, tiles, TABLE_THREADS);
    int groups = experts * blocks, t = (int)threadIdx.x, own = (groups + TABLE_THREADS - 1) / TABLE_THREADS;
    int from = t * own < groups ? t * own : groups, to = from + own < groups ? from + own : groups;
    auto count = [&](int g) {
        int n = counts[(size_t)g * (size_t)ldcounts];
        return n < 0 ? 0 : n < rows_per_block ? n : rows_per_block;
    };
    /* sums[t]: rows of the block of group `to` (that of the next stretch's first) that lie before it, in this stretch */
    int sum = 0;
    for (int g = from; g < to; g++) {
        sum = (g % experts ? sum : 0) + count(g);
        sum = sum < rows_per_block ? sum : rows_per_block;
    }
    sums[t] = sum;
    __syncthreads();
    int before = 0; /* rows before `from` in its own block: stretches back to the block's first group */
    if (from < groups)
        for (int s = t - 1, first = from / experts * experts; s >= 0 && from % experts; s--) {
            before = before + sums[s] < rows_per_block ? before + sums[s] : rows_per_block;
            if (s * own <= first)
                break;
        }
    int need = 0, used = before;
    for (int g = from; g < to; g++) {
        used = g % experts ? used : 0;
        int n = count(g) < rows_per_block - used ? count(g) : rows_per_block - used;
        group[g] = {g / experts * rows_per_block + used, n};
        used += n;
        need += (n + TILE_M - 1) / TILE_M;
    }
    tiles[t] = need;
    __syncthreads();
    for (int step = 1; step < TABLE_THREADS; step *= 2) {
        int more = t >= step ? tiles[t - step] : 0;
        __syncthreads();
        tiles[t] += more;
        __syncthreads();
    }
    if (t == TABLE_THREADS - 1)
        *ntiles = tiles[t];
    int at = tiles[t] - need;
    for (int g = from; g < to; g++)
        for (int row = 0; row < group[g].rows; row += TILE_M) {
            int left = group[g].rows - row;
            tile[at++] = {group[g].row + row, left < TILE_M ? left : TILE_M, g % experts, g};
        }
}

static bool aligned(const struct view *v)
{
    return v->dtype == DTYPE_BF16 && (uintptr_t)v->data % 16 == 0 && v->ld % 8 == 0;
}

static const char *launch(const product_job *j, const struct view *a, bool ta, const struct view *b, bool tb, cudaStream_t stream)
{
    return aligned(a) && aligned(b) ? product_bf16(j, ta, tb, stream)
                                    : product_plain(j, ta, tb, a->dtype == DTYPE_F32, stream);
}

static product_job job_of(const struct view *c, const struct view *a, const struct view *b)
{
    product_job j = {};
    j.a = a->data;
    j.b = b->data;
    j.c = c->data;
    j.lda = (int)a->ld;
    j.ldb = (int)b->ld;
    j.ldc = (int)c->ld;
    j.c_fp32 = c->dtype == DTYPE_F32;
    j.add = c->add;
    return j;
}

/* two numbers of 8 bits are one element */
static void in_pairs(product_job *j)
{
    j->lda /= 2;
    j->ldb /= 2;
    j->k /= 2;
}

const char *product_own(const struct cuda_call *c, const struct product *p)
{
    product_job j = job_of(&p->c, &p->a, &p->b);
    j.bias = p->bias.data;
    j.bias_fp32 = p->bias.dtype == DTYPE_F32;
    j.m = (int)p->m;
    j.n = (int)p->n;
    j.k = (int)p->k;
    if (!p->eight)
        return launch(&j, &p->a, p->ta, &p->b, p->tb, c->stream);
    j.scale_a = p->scale_a;
    j.scale_b = p->scale_b;
    in_pairs(&j);
    return product_eight(&j, p->gradient, c->stream);
}

static_assert(TILE_M == WORKSPACE_TILE && sizeof(row_tile) == 16 && sizeof(row_group) == 8, "as workspace_experts() counts");

/* the workspace: tiles, groups, and how many tiles there are */
static const char *make_table(const struct cuda_call *c, product_job *j, const struct view *counts, uint32_t rows)
{
    size_t groups = (size_t)j->experts * (size_t)j->blocks;
    row_tile *tile = (row_tile *)c->workspace;
    row_group *group = (row_group *)(tile + rows / TILE_M + groups);
    int *ntiles = (int *)(group + groups);
    if (c->workspace_bytes < workspace_experts(rows, groups))
        return "the workspace is too small for a table of experts' rows";
    j->group = group;
    j->tile = tile;
    j->ntiles = ntiles;
    LAUNCH(group_tiles, 1, TABLE_THREADS, 0, c->stream, (const int32_t *)counts->data, (int)counts->ld, j->experts, j->blocks,
           (int)rows / j->blocks, group, tile, ntiles);
    return cuda_launched();
}

/* Makes the operands of 8 bits behind the table, and puts them into the job. */
static const char *round_operands(const struct cuda_call *c, product_job *j, const struct workspace_fp8 *w, const struct view *a,
                                  const struct view *b, bool turned_b, bool gradient)
{
    bool experts = j->form == FORM_EXPERTS;
    eight_operands o = {{eight_of(a, j->experts * j->blocks, experts, gradient), eight_of(b, j->experts, turned_b, false)}};
    if (c->workspace_bytes < w->total)
        return "the workspace is too small for operands of 8 bits";
    o.operand[0].group = j->group;
    if (experts) {
        int wide = eight_rounded((int)a->rows) + 16 * j->experts * j->blocks;
        o.operand[1].group = j->group;
        o.operand[1].groups = o.operand[0].groups;
        o.operand[0].ld_out = o.operand[1].ld_out = wide;
    }
    eight_place(&o, c->workspace, w);
    j->a = o.operand[0].out;
    j->b = o.operand[1].out;
    j->lda = o.operand[0].ld_out;
    j->ldb = o.operand[1].ld_out;
    j->scale_a = o.operand[0].scale;
    j->scale_b = o.operand[1].scale;
    in_pairs(j);
    return eight_make(&o, a->dtype == DTYPE_F32, c->stream);
}

static const char *rows_product(enum op op, const struct cuda_call *c, const struct view *out, const struct view *a, const struct view *b, bool tb,
                                const struct view *counts, const struct view *bias, int64_t experts, int64_t blocks)
{
    product_job j = job_of(out, a, b);
    j.form = FORM_ROWS;
    j.m = (int)out->rows;
    j.n = (int)out->cols;
    j.k = (int)a->cols;
    j.experts = (int)experts;
    j.blocks = (int)blocks;
    j.b_rows = (int)(b->rows / (uint32_t)experts);
    if (bias && bias->data) {
        j.bias = bias->data;
        j.bias_fp32 = bias->dtype == DTYPE_F32;
        j.ld_bias = (int)bias->ld;
    }
    struct workspace_fp8 w;
    const char *why = make_table(c, &j, counts, out->rows);
    if (why || product_fp8_plan(op, c->args, product_sm(c), &w))
        return why ? why : launch(&j, a, false, b, tb, c->stream);
    why = round_operands(c, &j, &w, a, b, !tb, !tb);
    j.b_rows = j.n;
    return why ? why : product_eight(&j, !tb, c->stream);
}

const char *cuda_GROUPED_NT(const struct cuda_call *c)
{
    const struct kernel_args *k = c->args;
    return rows_product(OP_GROUPED_NT, c, V(GROUPED_NT, c), V(GROUPED_NT, a), V(GROUPED_NT, b), true, V(GROUPED_NT, counts),
                        V(GROUPED_NT, bias), INTEGER(GROUPED_NT, experts), INTEGER(GROUPED_NT, blocks));
}

const char *cuda_GROUPED_NN(const struct cuda_call *c)
{
    const struct kernel_args *k = c->args;
    return rows_product(OP_GROUPED_NN, c, V(GROUPED_NN, c), V(GROUPED_NN, a), V(GROUPED_NN, b), false, V(GROUPED_NN, counts),
                        NULL, INTEGER(GROUPED_NN, experts), INTEGER(GROUPED_NN, blocks));
}

const char *cuda_GROUPED_TN(const struct cuda_call *c)
{
    const struct kernel_args *k = c->args;
    const struct view *a = V(GROUPED_TN, a), *b = V(GROUPED_TN, b);
    product_job j = job_of(V(GROUPED_TN, c), a, b);
    j.form = FORM_EXPERTS;
    j.m = (int)a->cols;
    j.n = (int)b->cols;
    j.experts = (int)INTEGER(GROUPED_TN, experts);
    j.blocks = (int)INTEGER(GROUPED_TN, blocks);
    struct workspace_fp8 w;
    const char *why = make_table(c, &j, V(GROUPED_TN, counts), a->rows);
    if (why || product_fp8_plan(OP_GROUPED_TN, k, product_sm(c), &w))
        return why ? why : launch(&j, a, true, b, false, c->stream);
    why = round_operands(c, &j, &w, a, b, true, true);
    return why ? why : product_eight(&j, true, c->stream);
}

/* a block per 32 columns and expert; its warps take every eighth of the expert's rows, block of rows by block of rows */
__global__ void __launch_bounds__(256) grouped_bias(const void *dy, int ld, bool fp32, const float *weight, int ldw, const int32_t *counts,
                                                    int ldcounts, int experts, int blocks, int rows_per_block, void *db, int lddb,
                                                    bool db_fp32, bool add, int cols)
{
    SHARED(int, first, 256);
    SHARED(int, number, 256);
    SHARED(float, part, 256);
    int t = (int)threadIdx.x, lane = t % 32, warp = t / 32, e = (int)blockIdx.y, col = (int)blockIdx.x * 32 + lane;
    float sum = 0;
    for (int b0 = 0; b0 < blocks; b0 += 256) {
        int b = b0 + t, at = 0, n = 0;
        for (int i = 0; b < blocks && i <= e; i++) {
            at += n;
            n = counts[(size_t)(b * experts + i) * (size_t)ldcounts];
            n = n < 0 ? 0 : n < rows_per_block - at ? n : rows_per_block - at;
        }
        __syncthreads();
        first[t] = b * rows_per_block + at;
        number[t] = n;
        __syncthreads();
        for (int k = 0; k < 256 && b0 + k < blocks; k++)
            for (int i = warp; i < number[k] && col < cols; i += 8) {
                size_t row = (size_t)(first[k] + i), x = row * (size_t)ld + (size_t)col;
                float y = fp32 ? ((const float *)dy)[x] : bf16_value(((const bf16 *)dy)[x]);
                sum += weight ? weight[row * (size_t)ldw] * y : y;
            }
    }
    part[t] = sum;
    __syncthreads();
    if (warp || col >= cols)
        return;
    for (int w = 1; w < 8; w++)
        sum += part[w * 32 + lane];
    size_t to = (size_t)e * (size_t)lddb + (size_t)col;
    if (db_fp32)
        ((float *)db)[to] = add ? ((float *)db)[to] + sum : sum;
    else
        ((bf16 *)db)[to] = bf16_nearest(add ? bf16_value(((bf16 *)db)[to]) + sum : sum);
}

const char *cuda_GROUPED_BIAS_W(const struct cuda_call *c)
{
    const struct kernel_args *k = c->args;
    const struct view *db = V(GROUPED_BIAS_W, db), *dy = V(GROUPED_BIAS_W, dy), *weight = V(GROUPED_BIAS_W, weight);
    const struct view *counts = V(GROUPED_BIAS_W, counts);
    int experts = (int)INTEGER(GROUPED_BIAS_W, experts), blocks = (int)INTEGER(GROUPED_BIAS_W, blocks);
    LAUNCH(grouped_bias, dim3((dy->cols + 31) / 32, (unsigned)experts, 1), 256, 0, c->stream, (const void *)dy->data, (int)dy->ld,
           dy->dtype == DTYPE_F32, (const float *)weight->data, (int)weight->ld, (const int32_t *)counts->data, (int)counts->ld, experts,
           blocks, (int)dy->rows / blocks, db->data, (int)db->ld, db->dtype == DTYPE_F32, db->add, (int)dy->cols);
    return cuda_launched();
}

static const char *check_groups(const struct view *rows, int64_t experts, int64_t blocks)
{
    if (experts > 65535 || experts * blocks > GROUP_LIMIT)
        return "more than 65535 experts, or 2^20 groups of rows, are not supported on GPUs";
    return rows->rows > INT32_MAX / 2 ? "more than 2^30 rows are not supported on GPUs" : NULL;
}

const char *grouped_check(enum op op, const struct kernel_args *k)
{
    if (op == OP_GROUPED_NT)
        return check_groups(V(GROUPED_NT, a), INTEGER(GROUPED_NT, experts), INTEGER(GROUPED_NT, blocks));
    if (op == OP_GROUPED_NN)
        return check_groups(V(GROUPED_NN, a), INTEGER(GROUPED_NN, experts), INTEGER(GROUPED_NN, blocks));
    if (op == OP_GROUPED_TN)
        return check_groups(V(GROUPED_TN, a), INTEGER(GROUPED_TN, experts), INTEGER(GROUPED_TN, blocks));
    if (op == OP_GROUPED_BIAS_W)
        return check_groups(V(GROUPED_BIAS_W, dy), INTEGER(GROUPED_BIAS_W, experts), INTEGER(GROUPED_BIAS_W, blocks));
    return NULL;
}

/* ---- small ones beside cuBLASLt ---- */

__global__ void __launch_bounds__(256) add_bias(void *c, int ldc, bool c_fp32, const void *bias, bool bias_fp32, int rows, int cols)
{
    product_job j = {};
    product_part p = {};
    j.bias = bias;
    j.bias_fp32 = bias_fp32;
    j.c = c;
    j.ldc = ldc;
    j.c_fp32 = c_fp32;
    j.add = true;
    long long n = (long long)rows * cols, step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        product_store(j, p, (int)(i / cols), (int)(i % cols), 0);
}

__global__ void __launch_bounds__(256) fill_random(void *data, int ld, bool fp32, int rows, int cols, uint32_t seed)
{
    long long n = (long long)rows * cols, step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint32_t h = ((uint32_t)i ^ seed * 0x9e3779b9u) * 0x85ebca6bu; /* a mixing of bits, not a generator of quality */
        h = (h ^ h >> 15) * 0xc2b2ae35u;
        h ^= h >> 13;
        float x = (float)(int32_t)h * (1.0f / 2147483648.0f);
        size_t at = (size_t)(i / cols) * (size_t)ld + (size_t)(i % cols);
        if (fp32)
            ((float *)data)[at] = x;
        else
            ((bf16 *)data)[at] = bf16_nearest(x);
    }
}

static unsigned blocks_for(const struct view *v)
{
    uint64_t n = ((uint64_t)v->rows * v->cols + 255) / 256;
    return (unsigned)(n < 4096 ? n : 4096);
}

const char *product_add_bias(const struct cuda_call *c, const struct product *p)
{
    LAUNCH(add_bias, blocks_for(&p->c), 256, 0, c->stream, p->c.data, (int)p->c.ld, p->c.dtype == DTYPE_F32, (const void *)p->bias.data,
           p->bias.dtype == DTYPE_F32, (int)p->c.rows, (int)p->c.cols);
    return cuda_launched();
}

const char *product_fill(const struct cuda_call *c, const struct view *v, uint32_t seed)
{
    LAUNCH(fill_random, blocks_for(v), 256, 0, c->stream, v->data, (int)v->ld, v->dtype == DTYPE_F32, (int)v->rows, (int)v->cols, seed);
    return cuda_launched();
}
