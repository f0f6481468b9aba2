/* Gradient norm, clipping and the update rules.  Scalars in fp64, elements in fp32; parameters and moments
 * may be stored in bf16, and are rounded to nearest even after they were used: of a bf16 weight changes below half its
 * last place, some 1/512 of it, are lost.
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

static double clip(double limit, double sum)
{
    double scale = limit > 0 ? limit / (sqrt(sum) + 1e-6) : 1;
    return scale < 1 ? scale : 1;
}

void cpu_CLIP(struct kernel_args *k)
{
    const double *need = V(CLIP, need)->data;
    double sum = *(const double *)V(CLIP, sum)->data;
    bool never = (need && need[0] > 0) || !isfinite(sum);
    *(double *)V(CLIP, scale)->data = never ? -1 : clip(NUMBER(CLIP, limit), sum);
}

/* The rule of Megatron-LM's DynamicGradScaler, with its growth of 2, backoff of 1/2 and least scale of 1; with a
 * hysteresis of 1 that of torch.amp's GradScaler. */
void cpu_CLIP_SCALED(struct kernel_args *k)
{
    const double *need = V(CLIP_SCALED, need)->data;
    double *sum = V(CLIP_SCALED, sum)->data, *state = V(CLIP_SCALED, state)->data, *scale = V(CLIP_SCALED, scale)->data;
    double by = state[SCALE_FACTOR];
    bool overflow = !isfinite(*sum);
    *sum = *sum / by / by;
    *scale = overflow || (need && need[0] > 0) ? -1 : clip(NUMBER(CLIP_SCALED, limit), *sum) / by;
    if (overflow) {
        state[SCALE_GOOD_STEPS] = 0;
        state[SCALE_PATIENCE] -= 1;
        state[SCALE_SKIPPED] += 1;
        if (state[SCALE_PATIENCE] <= 0)
            state[SCALE_FACTOR] = by > 2 ? by / 2 : 1;
    } else if (!need || !(need[0] > 0)) {
        state[SCALE_GOOD_STEPS] += 1;
        if (state[SCALE_GOOD_STEPS] >= (double)INTEGER(CLIP_SCALED, window)) {
            state[SCALE_FACTOR] = 2 * by;
            state[SCALE_GOOD_STEPS] = 0;
            state[SCALE_PATIENCE] = (double)INTEGER(CLIP_SCALED, hysteresis);
        }
    }
}

/* row i to be changed, then stored: in place for fp32 */
static float *row_open(const struct view *v, uint32_t i, float *tmp)
{
    if (v->dtype == DTYPE_F32)
        return (float *)v->data + (size_t)i * v->ld;
    row_load(v, i, tmp);
    return tmp;
}

struct adamw {
    float beta1, beta2, keep1, keep2, eps, rate, root2, shrink, scale;
};

static struct adamw adamw_of(double beta1, double beta2, double eps, double decay, const double *step, double scale)
{
    double lr = step[STEP_LR];
    return (struct adamw){(float)beta1,
                          (float)beta2,
                          (float)(1 - beta1),
                          (float)(1 - beta2),
                          (float)eps,
                          (float)(lr / step[STEP_CORRECTION1]),
                          (float)(1 / sqrt(step[STEP_CORRECTION2])),
                          (float)(1 - lr * decay),
                          (float)scale};
}

/* One row, param, mean and square in place.  ADAMW_AHEAD must foretell ADAMW's very bits: both come here. */
VARIANTS static __attribute__((noinline)) void adamw_row(const struct adamw *rule, uint32_t n, const float *grad,
                                                         float *restrict param, float *restrict mean,
                                                         float *restrict square)
{
    const struct adamw a = *rule;
    for (uint32_t j = 0; j < n; j++) {
        float d = grad[j] * a.scale;
        mean[j] = a.beta1 * mean[j] + a.keep1 * d;
        square[j] = a.beta2 * square[j] + a.keep2 * d * d;
        param[j] = a.shrink * param[j] - a.rate * mean[j] / (sqrtf(square[j]) * a.root2 + a.eps);
    }
}

void cpu_ADAMW(struct kernel_args *k)
{
    const struct view *p = V(ADAMW, p), *m = V(ADAMW, m), *v = V(ADAMW, v), *g = V(ADAMW, g), *copy = V(ADAMW, copy);
    struct adamw a = adamw_of(NUMBER(ADAMW, beta1), NUMBER(ADAMW, beta2), NUMBER(ADAMW, eps), NUMBER(ADAMW, decay),
                              V(ADAMW, step)->data, *(const double *)V(ADAMW, scale)->data);
    size_t n = p->cols;
    for (uint32_t i = 0; i < p->rows && a.scale >= 0; i++) {
        float *mean = row_open(m, i, k->scratch + n), *square = row_open(v, i, k->scratch + 2 * n);
        float *param = row_open(p, i, k->scratch + 3 * n);
        adamw_row(&a, p->cols, row_load(g, i, k->scratch), param, mean, square);
        row_store(p, i, param);
        row_store(m, i, mean);
        row_store(v, i, square);
        if (copy->data)
            row_store(copy, i, param);
    }
}

void cpu_ADAMW_AHEAD(struct kernel_args *k)
{
    const struct view *state[] = {V(ADAMW_AHEAD, p), V(ADAMW_AHEAD, m), V(ADAMW_AHEAD, v)};
    struct adamw a = adamw_of(NUMBER(ADAMW_AHEAD, beta1), NUMBER(ADAMW_AHEAD, beta2), NUMBER(ADAMW_AHEAD, eps),
                              NUMBER(ADAMW_AHEAD, decay), V(ADAMW_AHEAD, step)->data, 1);
    size_t n = state[0]->cols;
    for (uint32_t i = 0; i < state[0]->rows; i++) {
        float *now[3];
        for (uint32_t s = 0; s < 3; s++) {
            now[s] = k->scratch + (s + 1) * n;
            const float *row = row_load(state[s], i, now[s]);
            if (row != now[s])
                memcpy(now[s], row, n * sizeof *row);
        }
        adamw_row(&a, state[0]->cols, row_load(V(ADAMW_AHEAD, g), i, k->scratch), now[0], now[1], now[2]);
        row_store(V(ADAMW_AHEAD, copy), i, now[0]);
    }
}

/* a mark for who replays the program */
void cpu_SEAM(struct kernel_args *k)
{
    (void)k;
}

VARIANTS void cpu_SGD(struct kernel_args *k)
{
    const struct view *p = V(SGD, p), *m = V(SGD, m), *g = V(SGD, g), *copy = V(SGD, copy);
    float lr = (float)((const double *)V(SGD, step)->data)[STEP_LR];
    float momentum = (float)NUMBER(SGD, momentum), decay = (float)NUMBER(SGD, decay);
    float scale = (float)*(const double *)V(SGD, scale)->data;
    for (uint32_t i = 0; i < p->rows && scale >= 0; i++) {
        const float *grad = row_load(g, i, k->scratch);
        float *param = row_open(p, i, k->scratch + 2 * (size_t)p->cols);
        float *mean = m->data ? row_open(m, i, k->scratch + p->cols) : NULL;
        for (uint32_t j = 0; j < p->cols; j++) {
            float d = grad[j] * scale + decay * param[j];
            if (mean)
                d = mean[j] = momentum * mean[j] + d;
            param[j] -= lr * d;
        }
        row_store(p, i, param);
        if (mean)
            row_store(m, i, mean);
        if (copy->data)
            row_store(copy, i, param);
    }
}
