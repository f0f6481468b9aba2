/* Causal attention and its gradient, per sequence and head, in blocks of rows.
 *
 * A block's scores against all keys it may see are one matrix product; the softmax is then taken whole, so no
 * running rescale is needed.  The gradient recomputes the probabilities from the saved log-sum-exp (Dao et
 * al., FlashAttention-2, arXiv 2307.08691, algorithm 2): dS = P (dP - D) with D = rowsum(dO O). Several query
 * heads share a key head; their contributions add in head order.  Work O(t S head), scratch 2 BLOCK S +
 * (bf16) (4 S + 5 BLOCK) head floats. */

#include "kernels/cpu/rows.h"

#include <cblas.h>

enum { BLOCK = ATTENTION_BLOCK };

struct shape {
    uint32_t heads, kv, head, sequence, window;
    uint32_t u; /* dimensions of a head's values */
    float scale, softcap;
    int64_t alibi, first_head; /* linear biases: heads in all, 0 = none; number of the first one here */
};

/* keys seen by query i: [first_key(i), i] */
static uint32_t first_key(const struct shape *s, uint32_t i)
{
    return s->window && i + 1 > s->window ? i + 1 - s->window : 0;
}

static void product(bool ta, bool tb, uint32_t m, uint32_t n, uint32_t inner, float alpha, const float *a, uint32_t lda,
                    const float *b, uint32_t ldb, float beta, float *c, uint32_t ldc)
{
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n,
                (int)inner, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

VARIANTS static void cap_scores(const struct shape *s, float *score, size_t n)
{
    if (!(s->softcap > 0))
        return;
    for (size_t j = 0; j < n; j++)
        score[j] = s->softcap * float_tanh(score[j] / s->softcap);
}

/* score[0..n) of query i against keys k0.. -> probabilities, 0 where masked; returns the log-sum-exp */
VARIANTS static float softmax_row(const struct shape *s, uint32_t i, uint32_t k0, uint32_t n, float slope, float *score)
{
    uint32_t from = first_key(s, i) - k0, to = i + 1 - k0;
    if (slope > 0)
        row_bias(score + from, slope, (float)from - (float)(i - k0), to - from);
    float most = row_max(score + from, to - from);
    double sum = row_exp(score + from, score + from, most, to - from);
    float inverse = (float)(1 / sum);
    memset(score, 0, from * sizeof *score);
    for (uint32_t j = from; j < to; j++)
        score[j] *= inverse;
    memset(score + to, 0, (n - to) * sizeof *score);
    return most + (float)log(sum);
}

static void forward_head(struct kernel_args *k, const struct shape *s, uint32_t row0, uint32_t h)
{
    const struct view *o = V(ATTENTION, o), *lse = V(ATTENTION, lse);
    uint32_t d = s->head, u = s->u, length = s->sequence, g = h / (s->heads / s->kv), ldq, ldk, ldv, ldo;
    float *score = k->scratch, *tmp_k = score + 2 * (size_t)BLOCK * length, *tmp_v = tmp_k + (size_t)length * d;
    float *tmp_q = tmp_v + (size_t)length * u, *tmp_o = tmp_q + (size_t)BLOCK * d;
    float slope = attention_slope(s->alibi, s->first_head + h);
    const float *key = tile_load(V(ATTENTION, k), row0, length, g * d, d, tmp_k, &ldk);
    const float *value = tile_load(V(ATTENTION, v), row0, length, g * u, u, tmp_v, &ldv);
    for (uint32_t i0 = 0; i0 < length; i0 += BLOCK) {
        uint32_t m = length - i0 < BLOCK ? length - i0 : BLOCK, k0 = first_key(s, i0), n = i0 + m - k0;
        const float *query = tile_load(V(ATTENTION, q), row0 + i0, m, h * d, d, tmp_q, &ldq);
        product(false, true, m, n, d, s->scale, query, ldq, key + (size_t)k0 * ldk, ldk, 0, score, n);
        cap_scores(s, score, (size_t)m * n);
        for (uint32_t i = 0; i < m; i++)
            ((float *)lse->data)[(size_t)(row0 + i0 + i) * lse->ld + h] = softmax_row(s, i0 + i, k0, n, slope,
                                                                                      score + (size_t)i * n);
        float *out = tile_open(o, row0 + i0, h * u, u, tmp_o, &ldo);
        product(false, false, m, u, n, 1, score, n, value + (size_t)k0 * ldv, ldv, 0, out, ldo);
        tile_close(o, row0 + i0, m, h * u, u, out);
    }
}

void cpu_ATTENTION(struct kernel_args *k)
{
    struct shape s = {(uint32_t)INTEGER(ATTENTION, heads),
                      (uint32_t)INTEGER(ATTENTION, kv),
                      (uint32_t)INTEGER(ATTENTION, head),
                      (uint32_t)INTEGER(ATTENTION, sequence),
                      (uint32_t)INTEGER(ATTENTION, window),
                      V(ATTENTION, v)->cols / (uint32_t)INTEGER(ATTENTION, kv),
                      (float)NUMBER(ATTENTION, scale),
                      (float)NUMBER(ATTENTION, softcap),
                      INTEGER(ATTENTION, alibi),
                      INTEGER(ATTENTION, first_head)};
    for (uint32_t row0 = 0; row0 < V(ATTENTION, q)->rows; row0 += s.sequence)
        for (uint32_t h = 0; h < s.heads; h++)
            forward_head(k, &s, row0, h);
}

/* scores -> probabilities (0 where masked), dprob -> gradient by the uncapped score, for m rows of a block */
VARIANTS static void backward_rows(const struct shape *s, uint32_t i0, uint32_t m, uint32_t k0, uint32_t n, float slope,
                                   const float *lse, uint32_t ldl, const float *delta, float *prob, float *dprob)
{
    for (uint32_t i = 0; i < m; i++) {
        uint32_t from = first_key(s, i0 + i) - k0, to = i0 + i + 1 - k0;
        float *restrict p = prob + (size_t)i * n, *restrict dp = dprob + (size_t)i * n;
        float total = lse[(size_t)i * ldl], shift = delta[i], place = (float)(i0 + i - k0);
        memset(p, 0, from * sizeof *p);
        memset(dp, 0, from * sizeof *dp);
        for (uint32_t j = from; j < to; j++) {
            float ratio = s->softcap > 0 ? p[j] / s->softcap : 0; /* tanh of the raw score, cap's slope 1 - tanh^2 */
            p[j] = float_exp(p[j] + slope * ((float)j - place) - total);
            dp[j] = p[j] * (dp[j] - shift) * (1 - ratio * ratio);
        }
        memset(p + to, 0, (n - to) * sizeof *p);
        memset(dp + to, 0, (n - to) * sizeof *dp);
    }
}

/* one query head's share of the gradients of key head kcol / d, which gather in dkey and dvalue */
static void backward_head(struct kernel_args *k, const struct shape *s, uint32_t row0, uint32_t h, const float *key,
                          uint32_t ldk, const float *value, uint32_t ldv, float *dkey, uint32_t lddk, float *dvalue,
                          uint32_t lddv, float *tmp)
{
    const struct view *q = V(ATTENTION_I, q), *dq = V(ATTENTION_I, dq), *lse = V(ATTENTION_I, lse);
    uint32_t d = s->head, u = s->u, length = s->sequence, ldq, ldo, lddo, lddq;
    float *score = k->scratch, *dscore = score + (size_t)BLOCK * length, delta[BLOCK];
    float *tmp_o = tmp + (size_t)BLOCK * d, *tmp_do = tmp_o + (size_t)BLOCK * u, *tmp_dq = tmp_do + (size_t)BLOCK * u;
    float slope = attention_slope(s->alibi, s->first_head + h);
    for (uint32_t i0 = 0; i0 < length; i0 += BLOCK) {
        uint32_t m = length - i0 < BLOCK ? length - i0 : BLOCK, k0 = first_key(s, i0), n = i0 + m - k0;
        uint32_t row = row0 + i0;
        const float *query = tile_load(q, row, m, h * d, d, tmp, &ldq);
        const float *out = tile_load(V(ATTENTION_I, o), row, m, h * u, u, tmp_o, &ldo);
        const float *dout = tile_load(V(ATTENTION_I, dout), row, m, h * u, u, tmp_do, &lddo);
        for (uint32_t i = 0; i < m; i++)
            delta[i] = (float)row_dot(out + (size_t)i * ldo, dout + (size_t)i * lddo, u);
        product(false, true, m, n, d, s->scale, query, ldq, key + (size_t)k0 * ldk, ldk, 0, score, n);
        cap_scores(s, score, (size_t)m * n);
        product(false, true, m, n, u, 1, dout, lddo, value + (size_t)k0 * ldv, ldv, 0, dscore, n);
        backward_rows(s, i0, m, k0, n, slope, (const float *)lse->data + (size_t)row * lse->ld + h, lse->ld, delta,
                      score, dscore);
        float *dquery = tile_open(dq, row, h * d, d, tmp_dq, &lddq);
        product(false, false, m, d, n, s->scale, dscore, n, key + (size_t)k0 * ldk, ldk, 0, dquery, lddq);
        tile_close(dq, row, m, h * d, d, dquery);
        product(true, false, n, d, m, s->scale, dscore, n, query, ldq, 1, dkey + (size_t)k0 * lddk, lddk);
        product(true, false, n, u, m, 1, score, n, dout, lddo, 1, dvalue + (size_t)k0 * lddv, lddv);
    }
}

static void zero_tile(float *tile, uint32_t rows, uint32_t cols, uint32_t ld)
{
    for (uint32_t i = 0; i < rows; i++)
        memset(tile + (size_t)i * ld, 0, cols * sizeof *tile);
}

void cpu_ATTENTION_I(struct kernel_args *k)
{
    struct shape s = {(uint32_t)INTEGER(ATTENTION_I, heads),
                      (uint32_t)INTEGER(ATTENTION_I, kv),
                      (uint32_t)INTEGER(ATTENTION_I, head),
                      (uint32_t)INTEGER(ATTENTION_I, sequence),
                      (uint32_t)INTEGER(ATTENTION_I, window),
                      V(ATTENTION_I, v)->cols / (uint32_t)INTEGER(ATTENTION_I, kv),
                      (float)NUMBER(ATTENTION_I, scale),
                      (float)NUMBER(ATTENTION_I, softcap),
                      INTEGER(ATTENTION_I, alibi),
                      INTEGER(ATTENTION_I, first_head)};
    const struct view *dk = V(ATTENTION_I, dk), *dv = V(ATTENTION_I, dv);
    uint32_t d = s.head, u = s.u, length = s.sequence, shared = s.heads / s.kv, ldk, ldv, lddk, lddv;
    float *tmp_k = k->scratch + 2 * (size_t)BLOCK * length, *tmp_v = tmp_k + (size_t)length * d;
    float *tmp_dk = tmp_v + (size_t)length * u, *tmp_dv = tmp_dk + (size_t)length * d;
    for (uint32_t row0 = 0; row0 < dk->rows; row0 += length)
        for (uint32_t g = 0; g < s.kv; g++) {
            const float *key = tile_load(V(ATTENTION_I, k), row0, length, g * d, d, tmp_k, &ldk);
            const float *value = tile_load(V(ATTENTION_I, v), row0, length, g * u, u, tmp_v, &ldv);
            float *dkey = tile_open(dk, row0, g * d, d, tmp_dk, &lddk);
            float *dvalue = tile_open(dv, row0, g * u, u, tmp_dv, &lddv);
            zero_tile(dkey, length, d, lddk);
            zero_tile(dvalue, length, u, lddv);
            for (uint32_t h = g * shared; h < (g + 1) * shared; h++)
                backward_head(k, &s, row0, h, key, ldk, value, ldv, dkey, lddk, dvalue, lddv,
                              tmp_dv + (size_t)length * u);
            tile_close(dk, row0, length, g * d, d, dkey);
            tile_close(dv, row0, length, g * u, u, dvalue);
        }
}
