/* Gradient norm, clipping and the update rules.  Scalars in fp64, elements in fp32; moments may be stored in
 * bf16, and are rounded after they were used.
 *
 * AdamW: Loshchilov & Hutter, arXiv 1711.05101, algorithm 2, with the decay multiplied by the learning rate.
 */

#include "kernels/cpu/rows.h"

void cpu_SQNORM(struct kernel_args *k)
{
    const struct view *g = V(SQNORM, g), *sum = V(SQNORM, sum);
    double total = 0, *out = sum->data;
    for (uint32_t i = 0; i < g->rows; i++) {
        const float *in = row_load(g, i, k->scratch);
        total += row_dot(in, in, g->cols);
    }
    total *= (double)INTEGER(SQNORM, count);
    *out = sum->add ? *out + total : total;
}

void cpu_CLIP(struct kernel_args *k)
{
    double limit = NUMBER(CLIP, limit), norm = sqrt(*(const double *)V(CLIP, sum)->data);
    double scale = limit > 0 ? limit / (norm + 1e-6) : 1;
    const double *need = V(CLIP, need)->data;
    *(double *)V(CLIP, scale)->data = need && need[0] > 0 ? -1 : scale < 1 ? scale : 1;
}

/* row i to be changed, then stored: in place for fp32 */
static float *row_open(const struct view *v, uint32_t i, float *tmp)
{
    if (v->dtype == DTYPE_F32)
        return (float *)v->data + (size_t)i * v->ld;
    row_load(v, i, tmp);
    return tmp;
}

VARIANTS void cpu_ADAMW(struct kernel_args *k)
{
    const struct view *p = V(ADAMW, p), *m = V(ADAMW, m), *v = V(ADAMW, v), *g = V(ADAMW, g),
                      *copy = V(ADAMW, copy);
    const double *step = V(ADAMW, step)->data;
    double lr = step[STEP_LR];
    float beta1 = (float)NUMBER(ADAMW, beta1), beta2 = (float)NUMBER(ADAMW, beta2);
    float keep1 = (float)(1 - NUMBER(ADAMW, beta1)), keep2 = (float)(1 - NUMBER(ADAMW, beta2));
    float eps = (float)NUMBER(ADAMW, eps), rate = (float)(lr / step[STEP_CORRECTION1]);
    float root2 = (float)(1 / sqrt(step[STEP_CORRECTION2])), shrink = (float)(1 - lr * NUMBER(ADAMW, decay));
    float scale = (float)*(const double *)V(ADAMW, scale)->data;
    for (uint32_t i = 0; i < p->rows && scale >= 0; i++) {
        const float *grad = row_load(g, i, k->scratch);
        float *restrict param = (float *)p->data + (size_t)i * p->ld;
        float *restrict mean = row_open(m, i, k->scratch + p->cols), *restrict square = row_open(v, i, k->scratch + 2 * (size_t)p->cols);
        for (uint32_t j = 0; j < p->cols; j++) {
            float d = grad[j] * scale;
            mean[j] = beta1 * mean[j] + keep1 * d;
            square[j] = beta2 * square[j] + keep2 * d * d;
            param[j] = shrink * param[j] - rate * mean[j] / (sqrtf(square[j]) * root2 + eps);
        }
        row_store(m, i, mean);
        row_store(v, i, square);
        if (copy->data)
            row_store(copy, i, param);
    }
}

VARIANTS void cpu_SGD(struct kernel_args *k)
{
    const struct view *p = V(SGD, p), *m = V(SGD, m), *g = V(SGD, g), *copy = V(SGD, copy);
    float lr = (float)((const double *)V(SGD, step)->data)[STEP_LR];
    float momentum = (float)NUMBER(SGD, momentum), decay = (float)NUMBER(SGD, decay);
    float scale = (float)*(const double *)V(SGD, scale)->data;
    for (uint32_t i = 0; i < p->rows && scale >= 0; i++) {
        const float *grad = row_load(g, i, k->scratch);
        float *param = (float *)p->data + (size_t)i * p->ld;
        float *mean = m->data ? row_open(m, i, k->scratch + p->cols) : NULL;
        for (uint32_t j = 0; j < p->cols; j++) {
            float d = grad[j] * scale + decay * param[j];
            if (mean)
                d = mean[j] = momentum * mean[j] + d;
            param[j] -= lr * d;
        }
        if (mean)
            row_store(m, i, mean);
        if (copy->data)
            row_store(copy, i, param);
    }
}
