/* Attention of some rows of a sequence to some of its keys, its gradient, and the merge of two such parts.
 *
 * Rows and keys come in runs of consecutive places (places.h).  A block of rows is multiplied with the keys
 * it may see of every run; the softmax over all of them is taken whole.  Two parts merge by their
 * log-sum-exps: L = log(e^La + e^Lb), o = e^(La - L) oa + e^(Lb - L) ob (Dao 2023, section 3.1).  The
 * gradient uses the log-sum-exp and the output of all keys, so that the parts' contributions add up (Liu et
 * al., Ring Attention, arXiv 2310.01889).  Work O(t u head), scratch 2 BLOCK u + (bf16) (4 u + 5 BLOCK) head
 * floats for u keys of a sequence. */

#include "kernels/cpu/places.h"
#include "kernels/cpu/rows.h"

#include <cblas.h>

enum { BLOCK = ATTENTION_BLOCK };

struct job {
    uint32_t heads, kv, head, value, keys; /* dimensions of a head's keys, values; keys of a sequence at hand */
    int64_t window;
    float scale, softcap;
    int64_t alibi, first_head; /* linear biases: heads in all, 0 = none; number of the first one here */
    struct places q, k;
};
/* rows that are handled together, and what they see: of run r the keys [from[r], to[r]), at column[r] of n */
struct block {
    uint32_t row, m, n;
    int64_t place;
    uint32_t *from, *to, *column;
};

static void product(bool ta, bool tb, uint32_t m, uint32_t n, uint32_t inner, float alpha, const float *a, uint32_t lda,
                    const float *b, uint32_t ldb, float beta, float *c, uint32_t ldc)
{
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n,
                (int)inner, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

VARIANTS static void cap_scores(const struct job *j, float *score, size_t n)
{
    if (!(j->softcap > 0))
        return;
    for (size_t i = 0; i < n; i++)
        score[i] = j->softcap * float_tanh(score[i] / j->softcap);
}

static int64_t clamp(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

/* keys of run r that rows at places [low, high] see: up to high, and after low - window */
static void visible(const struct job *j, uint32_t r, int64_t low, int64_t high, uint32_t *from, uint32_t *to)
{
    int64_t start = run_place(&j->k, r), half = j->k.sequence / 2;
    *to = (uint32_t)clamp(high + 1 - start, half);
    *from = j->window ? (uint32_t)clamp(low + 1 - j->window - start, half) : 0;
    if (*from > *to)
        *from = *to;
}

static void see(const struct job *j, struct block *b)
{
    b->n = 0;
    for (uint32_t r = 0; r < 2 * j->k.parts; r++) {
        visible(j, r, b->place, b->place + b->m - 1, &b->from[r], &b->to[r]);
        b->column[r] = b->n;
        b->n += b->to[r] - b->from[r];
    }
}

/* columns of run r that row i of the block sees */
static void columns_of(const struct job *j, const struct block *b, uint32_t r, uint32_t i, uint32_t *first,
                       uint32_t *end)
{
    uint32_t from, to;
    visible(j, r, b->place + i, b->place + i, &from, &to);
    *first = b->column[r] + (from > b->from[r] ? from - b->from[r] : 0);
    *end = b->column[r] + (to > b->from[r] ? to - b->from[r] : 0);
    uint32_t last = b->column[r] + b->to[r] - b->from[r];
    *end = *end > last ? last : *end;
    *first = *first > *end ? *end : *first;
}

/* place of the key of run r's column 0 less that of row i */
static float columns_ahead(const struct job *j, const struct block *b, uint32_t r, uint32_t i)
{
    return (float)(run_place(&j->k, r) + b->from[r] - b->column[r] - (b->place + i));
}

/* score[0..n) of row i -> probabilities, 0 where masked; returns the log-sum-exp, -inf if all is */
static float softmax_row(const struct job *j, const struct block *b, uint32_t i, float slope, float *score)
{
    float most = -INFINITY;
    double sum = 0;
    uint32_t first, end, done = 0;
    for (uint32_t r = 0; r < 2 * j->k.parts; r++) {
        columns_of(j, b, r, i, &first, &end);
        if (slope > 0)
            row_bias(score + first, slope, columns_ahead(j, b, r, i) + (float)first, end - first);
        most = fmaxf(most, row_max(score + first, end - first));
    }
    for (uint32_t r = 0; r < 2 * j->k.parts; r++) {
        columns_of(j, b, r, i, &first, &end);
        memset(score + done, 0, (first - done) * sizeof *score);
        if (end > first)
            sum += row_exp(score + first, score + first, most, end - first);
        done = end;
    }
    memset(score + done, 0, (b->n - done) * sizeof *score);
    if (!(sum > 0))
        return -INFINITY;
    float inverse = (float)(1 / sum);
    for (uint32_t c = 0; c < b->n; c++)
        score[c] *= inverse;
    return most + (float)log(sum);
}

/* c = alpha rows times the block's keys (or values); data: run r at data + r * step */
static void times_keys(const struct job *j, const struct block *b, uint32_t dims, const float *rows, uint32_t ld,
                       float alpha, const float *const *run, uint32_t ldk, float *score)
{
    for (uint32_t r = 0; r < 2 * j->k.parts; r++)
        if (b->to[r] > b->from[r])
            product(false, true, b->m, b->to[r] - b->from[r], dims, alpha, rows, ld, run[r] + (size_t)b->from[r] * ldk,
                    ldk, 0, score + b->column[r], b->n);
}

/* out = alpha weights times values (or keys), 0 where nothing is seen */
static void weigh(const struct job *j, const struct block *b, uint32_t dims, const float *weights, float alpha,
                  const float *const *run, uint32_t ldk, float *out, uint32_t ldo)
{
    for (uint32_t i = 0; i < b->m; i++)
        memset(out + (size_t)i * ldo, 0, dims * sizeof *out);
    for (uint32_t r = 0; r < 2 * j->k.parts; r++)
        if (b->to[r] > b->from[r])
            product(false, false, b->m, dims, b->to[r] - b->from[r], alpha, weights + b->column[r], b->n,
                    run[r] + (size_t)b->from[r] * ldk, ldk, 1, out, ldo);
}

/* runs of one sequence and head of a matrix of keys: in place for fp32, else converted to tmp */
static void load_runs(const struct job *j, const struct view *v, uint32_t sequence, uint32_t head, uint32_t d,
                      float *tmp, const float **run, uint32_t *ld)
{
    uint32_t half = j->k.sequence / 2;
    for (uint32_t r = 0; r < 2 * j->k.parts; r++)
        run[r] = tile_load(v, run_row(&j->k, sequence, r), half, head * d, d, tmp + (size_t)r * half * d, ld);
}

/* The scratch begins with four lists of pointers to runs and three of numbers, 2 * parts each. */
#define LISTS(j) (32 * (size_t)(j)->k.parts) /* floats: 16 for pointers, 6 for numbers, and whole cache lines */

static void lists(const struct job *j, float *at, struct block *b, const float **list[4])
{
    uint32_t runs = 2 * j->k.parts;
    uint64_t *words = (uint64_t *)(void *)at;
    for (int i = 0; i < 4; i++)
        list[i] = (const float **)(void *)(words + (size_t)i * runs);
    uint32_t *numbers = (uint32_t *)(void *)(words + 4 * (size_t)runs);
    b->from = numbers;
    b->to = numbers + runs;
    b->column = numbers + 2 * (size_t)runs;
}

static void forward_head(struct kernel_args *k, const struct job *j, uint32_t sequence, uint32_t h)
{
    const struct view *o = V(ATTENTION_PART, o), *lse = V(ATTENTION_PART, lse);
    const float **list[4];
    struct block b;
    lists(j, k->scratch, &b, list);
    uint32_t d = j->head, u = j->value, half = j->q.sequence / 2, ldk, ldv, ldq, ldo;
    float *score = k->scratch + LISTS(j);
    float *tmp_k = score + 2 * (size_t)BLOCK * j->keys, *tmp_v = tmp_k + (size_t)j->keys * d;
    float *tmp_q = tmp_v + (size_t)j->keys * u, *tmp_o = tmp_q + (size_t)BLOCK * d;
    float slope = attention_slope(j->alibi, j->first_head + h);
    load_runs(j, V(ATTENTION_PART, k), sequence, h / (j->heads / j->kv), d, tmp_k, list[0], &ldk);
    load_runs(j, V(ATTENTION_PART, v), sequence, h / (j->heads / j->kv), u, tmp_v, list[1], &ldv);
    for (uint32_t r = 0; r < 2 * j->q.parts; r++)
        for (uint32_t i0 = 0; i0 < half; i0 += BLOCK) {
            b.m = half - i0 < BLOCK ? half - i0 : BLOCK;
            b.row = run_row(&j->q, sequence, r) + i0;
            b.place = run_place(&j->q, r) + i0;
            see(j, &b);
            const float *query = tile_load(V(ATTENTION_PART, q), b.row, b.m, h * d, d, tmp_q, &ldq);
            times_keys(j, &b, d, query, ldq, j->scale, list[0], ldk, score);
            cap_scores(j, score, (size_t)b.m * b.n);
            for (uint32_t i = 0; i < b.m; i++)
                ((float *)lse->data)[(size_t)(b.row + i) * lse->ld + h] = softmax_row(j, &b, i, slope,
                                                                                      score + (size_t)i * b.n);
            float *out = tile_open(o, b.row, h * u, u, tmp_o, &ldo);
            weigh(j, &b, u, score, 1, list[1], ldv, out, ldo);
            tile_close(o, b.row, b.m, h * u, u, out);
        }
}

#define JOB(op)                                                                                                        \
    {                                                                                                                  \
        (uint32_t) INTEGER(op, heads), (uint32_t)INTEGER(op, kv), (uint32_t)INTEGER(op, head),                         \
            V(op, v)->cols / (uint32_t)INTEGER(op, kv), (uint32_t)(INTEGER(op, sequence) * INTEGER(op, kparts)),       \
            INTEGER(op, window), (float)NUMBER(op, scale), (float)NUMBER(op, softcap), INTEGER(op, alibi),             \
            INTEGER(op, first_head),                                                                                   \
            {V(op, q)->rows, (uint32_t)INTEGER(op, parts), (uint32_t)INTEGER(op, sequence), INTEGER(op, first),        \
             INTEGER(op, shift)},                                                                                      \
        {                                                                                                              \
            V(op, k)->rows, (uint32_t)INTEGER(op, kparts), (uint32_t)INTEGER(op, sequence), INTEGER(op, kfirst),       \
                INTEGER(op, kshift)                                                                                    \
        }                                                                                                              \
    }

void cpu_ATTENTION_PART(struct kernel_args *k)
{
    struct job j = JOB(ATTENTION_PART);
    uint32_t sequences = j.q.rows / j.q.parts / j.q.sequence;
    for (uint32_t s = 0; s < sequences; s++)
        for (uint32_t h = 0; h < j.heads; h++)
            forward_head(k, &j, s, h);
}

/* scores -> probabilities (0 where masked), dprob -> gradient by the uncapped score, for row i of a block */
VARIANTS static void backward_row(const struct job *j, const struct block *b, uint32_t i, float slope, float total,
                                  float shift, float *restrict p, float *restrict dp)
{
    uint32_t first, end, done = 0;
    for (uint32_t r = 0; r < 2 * j->k.parts; r++) {
        columns_of(j, b, r, i, &first, &end);
        memset(p + done, 0, (first - done) * sizeof *p);
        memset(dp + done, 0, (first - done) * sizeof *dp);
        float ahead = columns_ahead(j, b, r, i);
        for (uint32_t c = first; c < end; c++) {
            float ratio = j->softcap > 0 ? p[c] / j->softcap : 0; /* tanh of the raw score */
            p[c] = float_exp(p[c] + slope * (ahead + (float)c) - total);
            dp[c] = p[c] * (dp[c] - shift) * (1 - ratio * ratio);
        }
        done = end;
    }
    memset(p + done, 0, (b->n - done) * sizeof *p);
    memset(dp + done, 0, (b->n - done) * sizeof *dp);
}

/* d(run) += alpha weights' rows */
static void gather(const struct job *j, const struct block *b, uint32_t dims, const float *weights, float alpha,
                   const float *rows, uint32_t ld, const float *const *run, uint32_t ldr)
{
    for (uint32_t r = 0; r < 2 * j->k.parts; r++)
        if (b->to[r] > b->from[r]) /* the lists are of const floats, the gradients' tiles are not */
            product(true, false, b->to[r] - b->from[r], dims, b->m, alpha, weights + b->column[r], b->n, rows, ld, 1,
                    (float *)(uintptr_t)(run[r] + (size_t)b->from[r] * ldr), ldr);
}

static void store_dquery(const struct job *j, const struct view *dq, const struct block *b, uint32_t h,
                         const float *tile)
{
    struct view part = *dq;
    part.cols = j->head;
    part.data = (char *)dq->data + (size_t)h * j->head * (dq->dtype == DTYPE_F32 ? 4 : 2);
    for (uint32_t i = 0; i < b->m; i++)
        row_store(&part, b->row + i, tile + (size_t)i * j->head);
}

/* one query head's share of the gradients of its key head; lists: keys, values, their gradients' tiles */
static void backward_head(struct kernel_args *k, const struct job *j, uint32_t sequence, uint32_t h, struct block *b,
                          const float **list[4], const uint32_t ld[4], float *score, float *tmp)
{
    const struct view *lse = V(ATTENTION_PART_I, lse);
    uint32_t d = j->head, u = j->value, half = j->q.sequence / 2, ldq, ldo, lddo;
    float *dscore = score + (size_t)BLOCK * j->keys, delta[BLOCK];
    float *tmp_o = tmp + (size_t)BLOCK * d, *tmp_do = tmp_o + (size_t)BLOCK * u, *dquery = tmp_do + (size_t)BLOCK * u;
    float slope = attention_slope(j->alibi, j->first_head + h);
    for (uint32_t r = 0; r < 2 * j->q.parts; r++)
        for (uint32_t i0 = 0; i0 < half; i0 += BLOCK) {
            b->m = half - i0 < BLOCK ? half - i0 : BLOCK;
            b->row = run_row(&j->q, sequence, r) + i0;
            b->place = run_place(&j->q, r) + i0;
            see(j, b);
            const float *query = tile_load(V(ATTENTION_PART_I, q), b->row, b->m, h * d, d, tmp, &ldq);
            const float *out = tile_load(V(ATTENTION_PART_I, o), b->row, b->m, h * u, u, tmp_o, &ldo);
            const float *dout = tile_load(V(ATTENTION_PART_I, dout), b->row, b->m, h * u, u, tmp_do, &lddo);
            for (uint32_t i = 0; i < b->m; i++)
                delta[i] = (float)row_dot(out + (size_t)i * ldo, dout + (size_t)i * lddo, u);
            times_keys(j, b, d, query, ldq, j->scale, list[0], ld[0], score);
            cap_scores(j, score, (size_t)b->m * b->n);
            times_keys(j, b, u, dout, lddo, 1, list[1], ld[1], dscore);
            for (uint32_t i = 0; i < b->m; i++)
                backward_row(j, b, i, slope, ((const float *)lse->data)[(size_t)(b->row + i) * lse->ld + h], delta[i],
                             score + (size_t)i * b->n, dscore + (size_t)i * b->n);
            weigh(j, b, d, dscore, j->scale, list[0], ld[0], dquery, d);
            store_dquery(j, V(ATTENTION_PART_I, dq), b, h, dquery);
            gather(j, b, d, dscore, j->scale, query, ldq, list[2], ld[2]);
            gather(j, b, u, score, 1, dout, lddo, list[3], ld[3]);
        }
}

/* zeroed tiles for the gradient of one sequence and key head */
static void open_runs(const struct job *j, const struct view *v, uint32_t sequence, uint32_t g, uint32_t d, float *tmp,
                      const float **run, uint32_t *ld)
{
    uint32_t half = j->k.sequence / 2;
    for (uint32_t r = 0; r < 2 * j->k.parts; r++) {
        float *tile = tile_open(v, run_row(&j->k, sequence, r), g * d, d, tmp + (size_t)r * half * d, ld);
        for (uint32_t i = 0; i < half; i++)
            memset(tile + (size_t)i * *ld, 0, d * sizeof *tile);
        run[r] = tile;
    }
}

static void close_runs(const struct job *j, const struct view *v, uint32_t sequence, uint32_t g, uint32_t d,
                       const float *const *run)
{
    for (uint32_t r = 0; r < 2 * j->k.parts; r++)
        tile_close(v, run_row(&j->k, sequence, r), j->k.sequence / 2, g * d, d, run[r]);
}

void cpu_ATTENTION_PART_I(struct kernel_args *k)
{
    struct job j = JOB(ATTENTION_PART_I);
    uint32_t sequences = j.q.rows / j.q.parts / j.q.sequence, shared = j.heads / j.kv, ld[4];
    const float **list[4];
    struct block b;
    lists(&j, k->scratch, &b, list);
    size_t tile = (size_t)j.keys * (j.head > j.value ? j.head : j.value);
    float *score = k->scratch + LISTS(&j), *tmp = score + 2 * (size_t)BLOCK * j.keys;
    const struct view *dk = V(ATTENTION_PART_I, dk), *dv = V(ATTENTION_PART_I, dv);
    for (uint32_t s = 0; s < sequences; s++)
        for (uint32_t g = 0; g < j.kv; g++) {
            load_runs(&j, V(ATTENTION_PART_I, k), s, g, j.head, tmp, list[0], &ld[0]);
            load_runs(&j, V(ATTENTION_PART_I, v), s, g, j.value, tmp + tile, list[1], &ld[1]);
            open_runs(&j, dk, s, g, j.head, tmp + 2 * tile, list[2], &ld[2]);
            open_runs(&j, dv, s, g, j.value, tmp + 3 * tile, list[3], &ld[3]);
            for (uint32_t h = g * shared; h < (g + 1) * shared; h++)
                backward_head(k, &j, s, h, &b, list, ld, score, tmp + 4 * tile);
            close_runs(&j, dk, s, g, j.head, list[2]);
            close_runs(&j, dv, s, g, j.value, list[3]);
        }
}

void cpu_ATTENTION_MERGE(struct kernel_args *k)
{
    const struct view *o = V(ATTENTION_MERGE, o), *lse = V(ATTENTION_MERGE, lse);
    const struct view *part = V(ATTENTION_MERGE, part), *part_lse = V(ATTENTION_MERGE, part_lse);
    uint32_t head = (uint32_t)INTEGER(ATTENTION_MERGE, head);
    for (uint32_t i = 0; i < o->rows; i++)
        for (uint32_t h = 0; h < lse->cols; h++) {
            float *la = (float *)lse->data + (size_t)i * lse->ld + h, *a = (float *)o->data + (size_t)i * o->ld;
            float lb = ((const float *)part_lse->data)[(size_t)i * part_lse->ld + h];
            const float *b = (const float *)part->data + (size_t)i * part->ld;
            if (lb == -INFINITY)
                continue;
            double most = *la > lb ? *la : lb, ea = exp(*la - most), eb = exp(lb - most), sum = ea + eb;
            float wa = (float)(ea / sum), wb = (float)(eb / sum);
            for (uint32_t c = h * head; c < (h + 1) * head; c++)
                a[c] = wa * a[c] + wb * b[c];
            *la = (float)(most + log(sum));
        }
}

void cpu_COLUMNS_SPLIT(struct kernel_args *k)
{
    const struct view *y = V(COLUMNS_SPLIT, y), *x = V(COLUMNS_SPLIT, x);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, k->scratch);
        for (uint32_t p = 0; p < (uint32_t)INTEGER(COLUMNS_SPLIT, parts); p++)
            row_store(y, p * x->rows + i, in + (size_t)p * y->cols);
    }
}

void cpu_COLUMNS_JOIN(struct kernel_args *k)
{
    const struct view *y = V(COLUMNS_JOIN, y), *x = V(COLUMNS_JOIN, x);
    float *out = k->scratch, *tmp = out + y->cols;
    for (uint32_t i = 0; i < y->rows; i++) {
        for (uint32_t p = 0; p < (uint32_t)INTEGER(COLUMNS_JOIN, parts); p++)
            memcpy(out + (size_t)p * x->cols, row_load(x, p * y->rows + i, tmp), x->cols * sizeof *out);
        row_store(y, i, out);
    }
}
