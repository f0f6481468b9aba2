/* Cross-entropy in its pieces, the gradient norm, clipping, and the updates.  The maximum is that of the numbers 0
 * .. p - 1, which is the same in any order of reduction, and 0 where there is none.  The update is the real one with
 * 1 / (sqrt(v) + eps) replaced by a random function: all of it acts on single elements. */

#include "compiler/execute/kernel.h"

static uint64_t *row(const struct exact_view *v, uint64_t i)
{
    return v->at + i * v->cols;
}

/* The number of real, not padded columns in this rank's part. */
static uint32_t valid_columns(int64_t start, int64_t vocab, uint32_t cols)
{
    int64_t n = vocab - start;
    return n <= 0 ? 0 : n < (int64_t)cols ? (uint32_t)n : cols;
}

void exact_XENT_MAX(struct exact_args *k)
{
    const struct exact_view *logits = V(XENT_MAX, logits);
    uint32_t n = valid_columns(INTEGER(XENT_MAX, start), INTEGER(XENT_MAX, vocab), logits->cols);
    for (uint32_t i = 0; i < logits->rows; i++)
        for (uint32_t j = 0; j < n; j++)
            if (row(logits, i)[j] > V(XENT_MAX, max)->at[i])
                V(XENT_MAX, max)->at[i] = row(logits, i)[j];
}

void exact_XENT_SUM(struct exact_args *k)
{
    const struct exact_view *logits = V(XENT_SUM, logits), *sum = V(XENT_SUM, sum);
    int64_t start = INTEGER(XENT_SUM, start);
    uint32_t n = valid_columns(start, INTEGER(XENT_SUM, vocab), logits->cols);
    for (uint32_t i = 0; i < logits->rows; i++) {
        uint64_t most = V(XENT_SUM, max)->at[i];
        int64_t target = (int64_t)V(XENT_SUM, targets)->at[i] - start;
        for (uint32_t j = 0; j < n; j++)
            row(sum, i)[0] = field_add(row(sum, i)[0], exact_exp(field_sub(row(logits, i)[j], most)));
        if (V(XENT_SUM, targets)->at[i] == (uint64_t)-1)
            row(sum, i)[0] = start == 0;
        row(sum, i)[1] = target >= 0 && target < n ? field_sub(row(logits, i)[target], most) : 0;
    }
}

void exact_XENT_LOSS(struct exact_args *k)
{
    const struct exact_view *sum = V(XENT_LOSS, sum);
    uint64_t total = 0;
    for (uint32_t i = 0; i < sum->rows; i++)
        total = field_add(total, field_sub(field_hash(SALT_LOG, row(sum, i)[0], 0), row(sum, i)[1]));
    total = field_mul(total, field_integer(INTEGER(XENT_LOSS, count)));
    V(XENT_LOSS, loss)->at[0] = field_mul(total, field_real(NUMBER(XENT_LOSS, scale)));
}

void exact_XENT_I(struct exact_args *k)
{
    const struct exact_view *logits = V(XENT_I, logits), *dlogits = V(XENT_I, dlogits), *sum = V(XENT_I, sum);
    int64_t start = INTEGER(XENT_I, start);
    uint32_t n = valid_columns(start, INTEGER(XENT_I, vocab), logits->cols);
    uint64_t scale = field_real(NUMBER(XENT_I, scale));
    if (V(XENT_I, by)->at)
        scale = field_mul(scale, V(XENT_I, by)->at[0]);
    for (uint32_t i = 0; i < logits->rows; i++) {
        bool masked = V(XENT_I, targets)->at[i] == (uint64_t)-1;
        uint64_t most = V(XENT_I, max)->at[i], inverse = field_inverse(row(sum, i)[0]);
        int64_t target = (int64_t)V(XENT_I, targets)->at[i] - start;
        for (uint32_t j = 0; j < n; j++) {
            uint64_t p = field_mul(exact_exp(field_sub(row(logits, i)[j], most)), inverse);
            row(dlogits, i)[j] = masked ? 0 : field_mul(scale, field_sub(p, j == target));
        }
    }
}

void exact_SQNORM(struct exact_args *k)
{
    const struct exact_view *g = V(SQNORM, g);
    uint64_t n = (uint64_t)g->rows * g->cols;
    V(SQNORM, sum)->at[0] = field_mul(field_dot(g->at, 1, g->at, 1, n), field_integer(INTEGER(SQNORM, count)));
}

void exact_CLIP(struct exact_args *k)
{
    double limit = NUMBER(CLIP, limit);
    if (V(CLIP, need)->at && V(CLIP, need)->at[0]) {
        V(CLIP, scale)->at[0] = field_minus(1);
        return;
    }
    V(CLIP, scale)->at[0] = limit > 0 ? field_hash(SALT_CLIP, V(CLIP, sum)->at[0], field_image(limit)) : 1;
}

/* No sum overflows here, so every step is valid. */
void exact_CLIP_SCALED(struct exact_args *k)
{
    double limit = NUMBER(CLIP_SCALED, limit);
    uint64_t *state = V(CLIP_SCALED, state)->at, *sum = V(CLIP_SCALED, sum)->at,
             inverse = field_inverse(state[SCALE_FACTOR]);
    sum[0] = field_mul(sum[0], field_mul(inverse, inverse));
    if (V(CLIP_SCALED, need)->at && V(CLIP_SCALED, need)->at[0]) {
        V(CLIP_SCALED, scale)->at[0] = field_minus(1);
        return;
    }
    V(CLIP_SCALED, scale)->at[0] = field_mul(inverse,
                                             limit > 0 ? field_hash(SALT_CLIP, sum[0], field_image(limit)) : 1);
    state[SCALE_GOOD_STEPS] = field_add(state[SCALE_GOOD_STEPS], 1);
    if (state[SCALE_GOOD_STEPS] < (uint64_t)INTEGER(CLIP_SCALED, window))
        return;
    state[SCALE_FACTOR] = field_add(state[SCALE_FACTOR], state[SCALE_FACTOR]);
    state[SCALE_GOOD_STEPS] = 0;
    state[SCALE_PATIENCE] = field_integer(INTEGER(CLIP_SCALED, hysteresis));
}

/* a scale of -1 means that the step must not be taken */
static bool taken(const struct exact_view *scale)
{
    return scale->at[0] != FIELD_P - 1;
}

struct adamw {
    uint64_t beta1, beta2, corrections, shrink, rate;
};

static struct adamw adamw_of(double beta1, double beta2, double eps, double decay, const uint64_t *step)
{
    return (struct adamw){field_real(beta1), field_real(beta2),
                          field_bits(step[STEP_CORRECTION1], step[STEP_CORRECTION2], field_image(eps)),
                          field_sub(1, field_mul(step[STEP_LR], field_real(decay))), step[STEP_LR]};
}

/* updates one element */
static void adamw(const struct adamw *a, uint64_t d, uint64_t *p, uint64_t *m, uint64_t *v)
{
    *m = field_add(field_mul(a->beta1, *m), field_mul(field_sub(1, a->beta1), d));
    *v = field_add(field_mul(a->beta2, *v), field_mul(field_sub(1, a->beta2), field_mul(d, d)));
    uint64_t change = field_mul(*m, field_hash(SALT_ADAM, *v, a->corrections));
    *p = field_sub(field_mul(a->shrink, *p), field_mul(a->rate, change));
}

void exact_ADAMW(struct exact_args *k)
{
    const struct exact_view *p = V(ADAMW, p), *m = V(ADAMW, m), *v = V(ADAMW, v), *copy = V(ADAMW, copy);
    struct adamw a = adamw_of(NUMBER(ADAMW, beta1), NUMBER(ADAMW, beta2), NUMBER(ADAMW, eps), NUMBER(ADAMW, decay),
                              V(ADAMW, step)->at);
    for (uint64_t i = 0; i < (uint64_t)p->rows * p->cols && taken(V(ADAMW, scale)); i++) {
        adamw(&a, field_mul(V(ADAMW, g)->at[i], V(ADAMW, scale)->at[0]), &p->at[i], &m->at[i], &v->at[i]);
        if (copy->at)
            copy->at[i] = p->at[i];
    }
}

void exact_ADAMW_AHEAD(struct exact_args *k)
{
    const struct exact_view *p = V(ADAMW_AHEAD, p), *copy = V(ADAMW_AHEAD, copy);
    struct adamw a = adamw_of(NUMBER(ADAMW_AHEAD, beta1), NUMBER(ADAMW_AHEAD, beta2), NUMBER(ADAMW_AHEAD, eps),
                              NUMBER(ADAMW_AHEAD, decay), V(ADAMW_AHEAD, step)->at);
    for (uint64_t i = 0; i < (uint64_t)p->rows * p->cols; i++) {
        uint64_t param = p->at[i], m = V(ADAMW_AHEAD, m)->at[i], v = V(ADAMW_AHEAD, v)->at[i];
        adamw(&a, V(ADAMW_AHEAD, g)->at[i], &param, &m, &v);
        copy->at[i] = param;
    }
}

void exact_SEAM(struct exact_args *k)
{
    (void)k;
}

void exact_SGD(struct exact_args *k)
{
    const struct exact_view *p = V(SGD, p), *m = V(SGD, m), *copy = V(SGD, copy);
    uint64_t momentum = field_real(NUMBER(SGD, momentum)), decay = field_real(NUMBER(SGD, decay));
    for (uint64_t i = 0; i < (uint64_t)p->rows * p->cols && taken(V(SGD, scale)); i++) {
        uint64_t d = field_mul(V(SGD, g)->at[i], V(SGD, scale)->at[0]);
        d = field_add(d, field_mul(decay, p->at[i]));
        if (m->at)
            d = m->at[i] = field_add(field_mul(momentum, m->at[i]), d);
        p->at[i] = field_sub(p->at[i], field_mul(V(SGD, step)->at[STEP_LR], d));
        if (copy->at)
            copy->at[i] = p->at[i];
    }
}
