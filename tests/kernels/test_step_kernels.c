/* Kernels behind the backward pass, against plain formulas in double precision: loss, norm, clipping, optimizers. */

#include "tests/kernels/harness.h"

#include "runtime/device.h"

#include <CUnit/CUnit.h>
#include <math.h>

static void prepare_loss(struct sample *s)
{
    for (uint32_t i = 0; i < ROWS(s, XENT_LOSS, sum); i++)
        AT(s, XENT_LOSS, sum, i, 0) = 2 + fabs(AT(s, XENT_LOSS, sum, i, 0));
}

static void ref_loss(struct sample *s)
{
    double sum = 0;
    for (uint32_t i = 0; i < ROWS(s, XENT_LOSS, sum); i++)
        sum += log(AT(s, XENT_LOSS, sum, i, 0)) - AT(s, XENT_LOSS, sum, i, 1);
    AT(s, XENT_LOSS, loss, 0, 0) =
        sum * REAL_ATTR(s, XENT_LOSS, scale) * (double)INT_ATTR(s, XENT_LOSS, count);
}

static void ref_sqnorm(struct sample *s)
{
    double sum = 0;
    EACH(s, SQNORM, g, i, j) sum += AT(s, SQNORM, g, i, j) * AT(s, SQNORM, g, i, j);
    AT(s, SQNORM, sum, 0, 0) = sum * (double)INT_ATTR(s, SQNORM, count);
}

static void prepare_clip(struct sample *s)
{
    AT(s, CLIP, sum, 0, 0) = 16;
    if (s->v[OPND(CLIP, need)])
        AT(s, CLIP, need, 0, 0) = 0;
}

static void prepare_need(struct sample *s)
{
    AT(s, CLIP, sum, 0, 0) = 16;
    AT(s, CLIP, need, 0, 0) = 1.5;
}

static void ref_clip(struct sample *s)
{
    double limit = REAL_ATTR(s, CLIP, limit);
    AT(s, CLIP, scale, 0, 0) = limit > 0 ? fmin(1, limit / (4 + 1e-6)) : 1;
    if (s->v[OPND(CLIP, need)] && AT(s, CLIP, need, 0, 0) > 0)
        AT(s, CLIP, scale, 0, 0) = -1;
}

/* s = 4, gradients of squared norm 16 */
static void prepare_scaled(struct sample *s)
{
    const double state[SCALE_WORDS] = {4, 2, 1, 7};
    AT(s, CLIP_SCALED, sum, 0, 0) = 256;
    for (uint32_t j = 0; j < SCALE_WORDS; j++)
        AT(s, CLIP_SCALED, state, 0, j) = state[j];
    if (s->v[OPND(CLIP_SCALED, need)])
        AT(s, CLIP_SCALED, need, 0, 0) = 0;
}

static void prepare_scaled_need(struct sample *s)
{
    prepare_scaled(s);
    AT(s, CLIP_SCALED, need, 0, 0) = 1.5;
}

static void prepare_overflow(struct sample *s)
{
    prepare_scaled(s);
    AT(s, CLIP_SCALED, sum, 0, 0) = INFINITY;
}

static void prepare_first_overflow(struct sample *s)
{
    prepare_overflow(s);
    AT(s, CLIP_SCALED, state, 0, SCALE_PATIENCE) = 2;
}

static void prepare_least(struct sample *s)
{
    prepare_overflow(s);
    AT(s, CLIP_SCALED, state, 0, SCALE_FACTOR) = 1.5;
}

static void leave_scale(struct sample *s, double factor, double good, double patience, double skipped)
{
    const double state[SCALE_WORDS] = {factor, good, patience, skipped};
    for (uint32_t j = 0; j < SCALE_WORDS; j++)
        AT(s, CLIP_SCALED, state, 0, j) = state[j];
}

static void ref_scaled(struct sample *s)
{
    double limit = REAL_ATTR(s, CLIP_SCALED, limit);
    bool lacks = s->v[OPND(CLIP_SCALED, need)] && AT(s, CLIP_SCALED, need, 0, 0) > 0;
    AT(s, CLIP_SCALED, sum, 0, 0) = 16;
    AT(s, CLIP_SCALED, scale, 0, 0) = lacks ? -1 : limit > 0 ? fmin(1, limit / (4 + 1e-6)) / 4 : 0.25;
    if (!lacks)
        leave_scale(s, 4, 3, 1, 7);
}

static void ref_scaled_grows(struct sample *s)
{
    ref_scaled(s);
    leave_scale(s, 8, 0, 5, 7);
}

static void ref_overflow(struct sample *s)
{
    AT(s, CLIP_SCALED, scale, 0, 0) = -1;
    leave_scale(s, 2, 0, 0, 8);
}

static void ref_first_overflow(struct sample *s)
{
    AT(s, CLIP_SCALED, scale, 0, 0) = -1;
    leave_scale(s, 4, 0, 1, 8);
}

static void ref_least(struct sample *s)
{
    AT(s, CLIP_SCALED, scale, 0, 0) = -1;
    leave_scale(s, 1, 0, 0, 8);
}

static void prepare_adamw(struct sample *s)
{
    EACH(s, ADAMW, v, i, j) AT(s, ADAMW, v, i, j) = fabs(AT(s, ADAMW, v, i, j));
    AT(s, ADAMW, scale, 0, 0) = fabs(AT(s, ADAMW, scale, 0, 0));
    AT(s, ADAMW, step, 0, STEP_LR) = 0.01;
    AT(s, ADAMW, step, 0, STEP_CORRECTION1) = 1 - pow(REAL_ATTR(s, ADAMW, beta1), 3);
    AT(s, ADAMW, step, 0, STEP_CORRECTION2) = 1 - pow(REAL_ATTR(s, ADAMW, beta2), 3);
}

static void ref_adamw(struct sample *s)
{
    double b1 = REAL_ATTR(s, ADAMW, beta1), b2 = REAL_ATTR(s, ADAMW, beta2),
           lr = AT(s, ADAMW, step, 0, STEP_LR);
    EACH(s, ADAMW, p, i, j)
    {
        double g = AT(s, ADAMW, g, i, j) * AT(s, ADAMW, scale, 0, 0);
        double m = AT(s, ADAMW, m, i, j) = b1 * AT(s, ADAMW, m, i, j) + (1 - b1) * g;
        double v = AT(s, ADAMW, v, i, j) = b2 * AT(s, ADAMW, v, i, j) + (1 - b2) * g * g;
        double mhat = m / AT(s, ADAMW, step, 0, STEP_CORRECTION1),
               vhat = v / AT(s, ADAMW, step, 0, STEP_CORRECTION2);
        double p = AT(s, ADAMW, p, i, j);
        AT(s, ADAMW, p, i, j) =
            p - lr * (mhat / (sqrt(vhat) + REAL_ATTR(s, ADAMW, eps)) + REAL_ATTR(s, ADAMW, decay) * p);
        if (s->v[OPND(ADAMW, copy)])
            AT(s, ADAMW, copy, i, j) = AT(s, ADAMW, p, i, j);
    }
}

static void prepare_ahead(struct sample *s)
{
    EACH(s, ADAMW_AHEAD, v, i, j) AT(s, ADAMW_AHEAD, v, i, j) = fabs(AT(s, ADAMW_AHEAD, v, i, j));
    AT(s, ADAMW_AHEAD, step, 0, STEP_LR) = 0.01;
    AT(s, ADAMW_AHEAD, step, 0, STEP_CORRECTION1) = 1 - pow(REAL_ATTR(s, ADAMW_AHEAD, beta1), 3);
    AT(s, ADAMW_AHEAD, step, 0, STEP_CORRECTION2) = 1 - pow(REAL_ATTR(s, ADAMW_AHEAD, beta2), 3);
}

static void ref_ahead(struct sample *s)
{
    double b1 = REAL_ATTR(s, ADAMW_AHEAD, beta1), b2 = REAL_ATTR(s, ADAMW_AHEAD, beta2);
    EACH(s, ADAMW_AHEAD, p, i, j)
    {
        double g = AT(s, ADAMW_AHEAD, g, i, j), p = AT(s, ADAMW_AHEAD, p, i, j);
        double m = b1 * AT(s, ADAMW_AHEAD, m, i, j) + (1 - b1) * g, v = b2 * AT(s, ADAMW_AHEAD, v, i, j) + (1 - b2) * g * g;
        double mhat = m / AT(s, ADAMW_AHEAD, step, 0, STEP_CORRECTION1),
               vhat = v / AT(s, ADAMW_AHEAD, step, 0, STEP_CORRECTION2);
        AT(s, ADAMW_AHEAD, copy, i, j) = p - AT(s, ADAMW_AHEAD, step, 0, STEP_LR) *
                                                 (mhat / (sqrt(vhat) + REAL_ATTR(s, ADAMW_AHEAD, eps)) +
                                                  REAL_ATTR(s, ADAMW_AHEAD, decay) * p);
    }
}

static void prepare_sgd(struct sample *s)
{
    AT(s, SGD, scale, 0, 0) = fabs(AT(s, SGD, scale, 0, 0));
}

/* scale -1: the step is not taken */
static void prepare_skip(struct sample *s)
{
    s->v[s->op == OP_SGD ? OPND(SGD, scale) : OPND(ADAMW, scale)][0] = -1;
}

static void ref_skip(struct sample *s)
{
    (void)s;
}

static void ref_sgd(struct sample *s)
{
    EACH(s, SGD, p, i, j)
    {
        double p = AT(s, SGD, p, i, j),
               d = AT(s, SGD, g, i, j) * AT(s, SGD, scale, 0, 0) + REAL_ATTR(s, SGD, decay) * p;
        if (s->v[OPND(SGD, m)])
            d = AT(s, SGD, m, i, j) = REAL_ATTR(s, SGD, momentum) * AT(s, SGD, m, i, j) + d;
        AT(s, SGD, p, i, j) = p - AT(s, SGD, step, 0, STEP_LR) * d;
        if (s->v[OPND(SGD, copy)])
            AT(s, SGD, copy, i, j) = AT(s, SGD, p, i, j);
    }
}

static const struct kernel_case cases[] = {
    {OP_XENT_LOSS, {{"t", 9}}, {{"scale", 0.25}, {"count", 1}}, prepare_loss, ref_loss, 0, 0, 0},
    {OP_XENT_LOSS, {{"t", 9}}, {{"scale", 0.25}, {"count", 0}}, prepare_loss, ref_loss, 0, 0, 0},
    {OP_SQNORM, {{"t", 9}, {"h", 11}}, {{"count", 1}}, NULL, ref_sqnorm, 0, 0, 0},
    {OP_CLIP, {{0}}, {{"limit", 1}}, prepare_clip, ref_clip, 0, 0, 0},
    {OP_CLIP, {{0}}, {{"limit", 5}}, prepare_clip, ref_clip, 0, 0, 0},
    {OP_CLIP, {{0}}, {{"limit", 0}}, prepare_clip, ref_clip, 0, 0, 0},
    {OP_CLIP, {{0}}, {{"limit", 5}}, prepare_clip, ref_clip, 0, 0, 1 << OPND(CLIP, need)},
    {OP_CLIP, {{0}}, {{"limit", 5}}, prepare_need, ref_clip, 0, 0, 0},
    {OP_CLIP_SCALED, {{0}}, {{"limit", 1}, {"window", 4}, {"hysteresis", 5}}, prepare_scaled, ref_scaled, 0, 0, 0},
    {OP_CLIP_SCALED, {{0}}, {{"limit", 5}, {"window", 4}, {"hysteresis", 5}}, prepare_scaled, ref_scaled, 0, 0, 0},
    {OP_CLIP_SCALED, {{0}}, {{"limit", 0}, {"window", 4}}, prepare_scaled, ref_scaled, 0, 0, 1 << OPND(CLIP_SCALED, need)},
    {OP_CLIP_SCALED, {{0}}, {{"limit", 1}, {"window", 1}, {"hysteresis", 5}}, prepare_scaled_need, ref_scaled, 0, 0, 0},
    {OP_CLIP_SCALED, {{0}}, {{"limit", 1}, {"window", 3}, {"hysteresis", 5}}, prepare_scaled, ref_scaled_grows, 0, 0, 0},
    {OP_CLIP_SCALED, {{0}}, {{"limit", 1}, {"window", 3}, {"hysteresis", 5}}, prepare_overflow, ref_overflow, 0, 0, 0},
    {OP_CLIP_SCALED, {{0}}, {{"limit", 1}, {"window", 3}, {"hysteresis", 5}}, prepare_first_overflow, ref_first_overflow, 0, 0, 0},
    {OP_CLIP_SCALED, {{0}}, {{"limit", 1}, {"window", 3}, {"hysteresis", 5}}, prepare_least, ref_least, 0, 0, 0},
    {OP_ADAMW,
     {{"t", 3}, {"h", 11}},
     {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}},
     prepare_adamw,
     ref_adamw,
     0,
     0,
     0},
    {OP_ADAMW, {{"t", 3}, {"h", 11}}, {{"beta1", 0.9}, {"beta2", 0.95}}, prepare_skip, ref_skip, 0, 0, 0},
    {OP_ADAMW_AHEAD,
     {{"t", 3}, {"h", 11}},
     {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}},
     prepare_ahead,
     ref_ahead,
     0,
     0,
     0},
    {OP_SGD, {{"t", 3}, {"h", 11}}, {{"momentum", 0.9}}, prepare_skip, ref_skip, 0, 0, 0},
    {OP_SGD, {{"t", 3}, {"h", 11}}, {{"momentum", 0.9}, {"decay", 0.1}}, prepare_sgd, ref_sgd, 0, 0, 0},
    {OP_SGD,
     {{"t", 3}, {"h", 11}},
     {{"decay", 0.1}},
     prepare_sgd,
     ref_sgd,
     0,
     0,
     1 << OPND(SGD, m) | 1 << OPND(SGD, copy)},
};

static void test_all(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        harness_check(&cases[i]);
}

static void test_no_number(void)
{
    double scale = 0, sum = NAN, state[SCALE_WORDS] = {4, 2, 1, 0};
    struct kernel_args k = {.operand = {[OPND(CLIP_SCALED, scale)] = {&scale, DTYPE_F64, false, 1, 1, 1},
                                        [OPND(CLIP_SCALED, sum)] = {&sum, DTYPE_F64, false, 1, 1, 1},
                                        [OPND(CLIP_SCALED, state)] = {state, DTYPE_F64, false, 1, SCALE_WORDS, SCALE_WORDS}}};
    k.attr[ATTR(CLIP_SCALED, limit)].f = 1;
    k.attr[ATTR(CLIP_SCALED, window)].i = 10;
    device_cpu_run(OP_CLIP_SCALED, &k);
    CU_ASSERT(scale == -1 && isnan(sum));
    CU_ASSERT(state[SCALE_FACTOR] == 2 && state[SCALE_GOOD_STEPS] == 0 && state[SCALE_SKIPPED] == 1);
}

/* without a loss scale the step must not be taken, clipped or not */
static void test_no_number_taken(void)
{
    static const double sums[] = {NAN, INFINITY}, limits[] = {0, 5};
    for (int i = 0; i < 4; i++) {
        double scale = 0, sum = sums[i / 2];
        struct kernel_args k = {.operand = {[OPND(CLIP, scale)] = {&scale, DTYPE_F64, false, 1, 1, 1},
                                            [OPND(CLIP, sum)] = {&sum, DTYPE_F64, false, 1, 1, 1}}};
        k.attr[ATTR(CLIP, limit)].f = limits[i % 2];
        device_cpu_run(OP_CLIP, &k);
        CU_ASSERT_EQUAL(scale, -1);
    }
}

void suite_step_kernels(void);
void suite_step_kernels(void)
{
    CU_pSuite s = CU_add_suite("step_kernels", NULL, NULL);
    CU_add_test(s, "kernels equal plain formulas", test_all);
    CU_add_test(s, "a norm that is no number is an overflow", test_no_number);
    CU_add_test(s, "a step whose norm is no number", test_no_number_taken);
}
