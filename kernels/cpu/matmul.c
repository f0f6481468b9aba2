/* Matrix products by the BLAS's sgemm, and the bias gradient.
 *
 * fp32 operands are used in place, but for those that are rounded to 8 bits (fp8.c).  bf16 operands are
 * converted whole into scratch, multiplied in fp32 and rounded once at the end, as a GPU's tensor cores do.
 * Accumulation is sgemm's beta = 1, or one addition when bf16. */

#include "kernels/cpu/fp8.h"

#include <cblas.h>

void fp8_multiply(const struct view *c, const struct view *a, bool ta, const struct view *b, bool tb,
                  const struct view *bias, const struct fp8_pair *fp8, float *scratch)
{
    uint32_t m = c->rows, n = c->cols, inner = ta ? a->rows : a->cols, lda, ldb, ldc;
    float *tmp_b = scratch + (a->dtype == DTYPE_F32 && !fp8->recipe ? 0 : (size_t)a->rows * a->cols);
    float *tmp_c = tmp_b + (b->dtype == DTYPE_F32 && !fp8->recipe ? 0 : (size_t)b->rows * b->cols);
    const float *in_a = fp8_load(a, fp8->recipe, fp8->a, ta, scratch, &lda);
    const float *in_b = fp8_load(b, fp8->recipe, fp8->b, !tb, tmp_b, &ldb);
    float *out = tile_open(c, 0, 0, n, tmp_c, &ldc);
    bool direct = c->dtype == DTYPE_F32;
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n,
                (int)inner, 1, in_a, (int)lda, in_b, (int)ldb, direct && c->add ? 1 : 0, out, (int)ldc);
    if (direct && !bias)
        return;
    float *tmp_bias = tmp_c + (direct ? 0 : (size_t)m * n);
    const float *add = bias ? row_load(bias, 0, tmp_bias) : NULL;
    for (uint32_t i = 0; i < m; i++) {
        float *row = out + (size_t)i * ldc;
        for (uint32_t j = 0; add && j < n; j++)
            row[j] += add[j];
        if (!direct)
            row_store(c, i, row);
    }
}

void cpu_MATMUL_NT(struct kernel_args *k)
{
    const struct view *bias = V(MATMUL_NT, bias);
    struct fp8_pair fp8 = {INTEGER(MATMUL_NT, fp8), FP8_INPUT, FP8_WEIGHT};
    fp8_multiply(V(MATMUL_NT, c), V(MATMUL_NT, a), false, V(MATMUL_NT, b), true, bias->data ? bias : NULL, &fp8,
                 k->scratch);
}

void cpu_MATMUL_NN(struct kernel_args *k)
{
    struct fp8_pair fp8 = {INTEGER(MATMUL_NN, fp8), FP8_GRADIENT, FP8_WEIGHT};
    fp8_multiply(V(MATMUL_NN, c), V(MATMUL_NN, a), false, V(MATMUL_NN, b), false, NULL, &fp8, k->scratch);
}

void cpu_MATMUL_TN(struct kernel_args *k)
{
    struct fp8_pair fp8 = {INTEGER(MATMUL_TN, fp8), FP8_GRADIENT, FP8_INPUT};
    fp8_multiply(V(MATMUL_TN, c), V(MATMUL_TN, a), true, V(MATMUL_TN, b), false, NULL, &fp8, k->scratch);
}

VARIANTS void cpu_BIAS_W(struct kernel_args *k)
{
    const struct view *db = V(BIAS_W, db), *dy = V(BIAS_W, dy);
    double *sum = (double *)(void *)k->scratch;
    float *tmp = k->scratch + 2 * (size_t)dy->cols;
    memset(sum, 0, dy->cols * sizeof *sum);
    for (uint32_t i = 0; i < dy->rows; i++) {
        const float *in = row_load(dy, i, tmp);
        for (uint32_t j = 0; j < dy->cols; j++)
            sum[j] += (double)in[j];
    }
    columns_store(db, sum);
}
