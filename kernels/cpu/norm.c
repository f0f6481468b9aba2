/* RMS and layer normalisation, and their gradients by input and by weight.  Statistics and column sums in
 * fp64. */

#include "kernels/cpu/rows.h"

VARIANTS void cpu_RMSNORM(struct kernel_args *k)
{
    const struct view *y = V(RMSNORM, y), *x = V(RMSNORM, x);
    uint32_t h = x->cols;
    float *tmp_x = k->scratch, *out = tmp_x + h;
    const float *g = row_load(V(RMSNORM, g), 0, out + h);
    const struct view *stat = V(RMSNORM, rstd);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp_x);
        float rstd = (float)(1 / sqrt(row_dot(in, in, h) / h + NUMBER(RMSNORM, eps)));
        for (uint32_t j = 0; j < h; j++)
            out[j] = in[j] * rstd * g[j];
        row_store(y, i, out);
        row_store(stat, i, &rstd);
    }
}

/* y = x r g with r = (mean(x^2) + eps)^-1/2, hence dx = r (g dy - x r^2 mean(g dy x)) */
VARIANTS void cpu_RMSNORM_I(struct kernel_args *k)
{
    const struct view *dx = V(RMSNORM_I, dx), *dy = V(RMSNORM_I, dy), *x = V(RMSNORM_I, x);
    const struct view *stat = V(RMSNORM_I, rstd);
    uint32_t h = x->cols;
    float *tmp_x = k->scratch, *tmp_dy = tmp_x + h, *out = tmp_dy + h;
    const float *g = row_load(V(RMSNORM_I, g), 0, out + h);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp_x), *up = row_load(dy, i, tmp_dy);
        float rstd = *row_load(stat, i, NULL);
        for (uint32_t j = 0; j < h; j++)
            out[j] = up[j] * g[j];
        float pull = (float)(row_dot(out, in, h) / h * (double)rstd * (double)rstd);
        for (uint32_t j = 0; j < h; j++)
            out[j] = rstd * (out[j] - in[j] * pull);
        row_store(dx, i, out);
    }
}

VARIANTS void cpu_RMSNORM_W(struct kernel_args *k)
{
    const struct view *dy = V(RMSNORM_W, dy), *x = V(RMSNORM_W, x), *stat = V(RMSNORM_W, rstd);
    uint32_t h = x->cols;
    double *sum = (double *)(void *)k->scratch;
    float *tmp_x = k->scratch + 2 * (size_t)h, *tmp_dy = tmp_x + h;
    memset(sum, 0, h * sizeof *sum);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp_x), *up = row_load(dy, i, tmp_dy);
        float rstd = *row_load(stat, i, NULL);
        for (uint32_t j = 0; j < h; j++)
            sum[j] += (double)(up[j] * in[j] * rstd);
    }
    columns_store(V(RMSNORM_W, dg), sum);
}

VARIANTS void cpu_LAYERNORM(struct kernel_args *k)
{
    const struct view *y = V(LAYERNORM, y), *x = V(LAYERNORM, x), *bias = V(LAYERNORM, b);
    uint32_t h = x->cols;
    float *tmp_x = k->scratch, *out = tmp_x + h;
    const float *g = row_load(V(LAYERNORM, g), 0, out + h);
    const float *b = bias->data ? row_load(bias, 0, out + 2 * (size_t)h) : NULL;
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp_x);
        float mean = (float)(row_sum(in, h) / h);
        for (uint32_t j = 0; j < h; j++)
            out[j] = in[j] - mean;
        float rstd = (float)(1 / sqrt(row_dot(out, out, h) / h + NUMBER(LAYERNORM, eps)));
        for (uint32_t j = 0; j < h; j++)
            out[j] = out[j] * rstd * g[j] + (b ? b[j] : 0);
        row_store(y, i, out);
        row_store(V(LAYERNORM, mean), i, &mean);
        row_store(V(LAYERNORM, rstd), i, &rstd);
    }
}

/* with n = (x - mean) r: dx = r (g dy - mean(g dy) - n mean(g dy n)) */
VARIANTS void cpu_LAYERNORM_I(struct kernel_args *k)
{
    const struct view *dx = V(LAYERNORM_I, dx), *dy = V(LAYERNORM_I, dy), *x = V(LAYERNORM_I, x);
    uint32_t h = x->cols;
    float *tmp_x = k->scratch, *tmp_dy = tmp_x + h, *normal = tmp_dy + h, *out = normal + h;
    const float *g = row_load(V(LAYERNORM_I, g), 0, out + h);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp_x), *up = row_load(dy, i, tmp_dy);
        float mean = *row_load(V(LAYERNORM_I, mean), i, NULL), rstd = *row_load(V(LAYERNORM_I, rstd), i, NULL);
        for (uint32_t j = 0; j < h; j++) {
            normal[j] = (in[j] - mean) * rstd;
            out[j] = up[j] * g[j];
        }
        float shift = (float)(row_sum(out, h) / h), pull = (float)(row_dot(out, normal, h) / h);
        for (uint32_t j = 0; j < h; j++)
            out[j] = rstd * (out[j] - shift - normal[j] * pull);
        row_store(dx, i, out);
    }
}

VARIANTS void cpu_LAYERNORM_W(struct kernel_args *k)
{
    const struct view *dy = V(LAYERNORM_W, dy), *x = V(LAYERNORM_W, x), *db = V(LAYERNORM_W, db);
    uint32_t h = x->cols;
    double *sum_g = (double *)(void *)k->scratch, *sum_b = sum_g + h;
    float *tmp_x = k->scratch + 4 * (size_t)h, *tmp_dy = tmp_x + h;
    memset(sum_g, 0, 2 * (size_t)h * sizeof *sum_g);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp_x), *up = row_load(dy, i, tmp_dy);
        float mean = *row_load(V(LAYERNORM_W, mean), i, NULL), rstd = *row_load(V(LAYERNORM_W, rstd), i, NULL);
        for (uint32_t j = 0; j < h; j++) {
            sum_g[j] += (double)(up[j] * ((in[j] - mean) * rstd));
            sum_b[j] += (double)up[j];
        }
    }
    columns_store(V(LAYERNORM_W, dg), sum_g);
    if (db->data)
        columns_store(db, sum_b);
}
