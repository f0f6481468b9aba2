/* Attention with sinks, ATTENTION, SINK, SINK_W and ATTENTION_I one behind the other, against what it is for: a softmax over
 * a row's scores and one more per head, which has no value (openai/gpt-oss, torch/model.py, sdpa()); its gradient by central
 * differences. */

#include "kernels/kernels.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>

enum { T = 12, SEQUENCE = 6, HEADS = 4, KV = 2, HEAD = 3, Q = HEADS * HEAD, K = KV * HEAD };
enum { INPUTS = T * (Q + 2 * K) + HEADS }; /* q, k, v, sinks */

struct layer {
    double scale, softcap, in[INPUTS], dout[T * Q];
    uint32_t window;
};

static const double *q_of(const struct layer *x)
{
    return x->in;
}
static const double *k_of(const struct layer *x)
{
    return x->in + T * Q;
}
static const double *v_of(const struct layer *x)
{
    return x->in + T * (Q + K);
}
static const double *sinks_of(const struct layer *x)
{
    return x->in + T * (Q + 2 * K);
}

/* o of one row and head; its log-sum-exp is returned */
static double attend(const struct layer *x, uint32_t i, uint32_t h, double o[HEAD])
{
    double sum = exp(sinks_of(x)[h]);
    uint32_t first = i / SEQUENCE * SEQUENCE, g = h / (HEADS / KV);
    for (uint32_t d = 0; d < HEAD; d++)
        o[d] = 0;
    for (uint32_t j = first; j <= i; j++) {
        double score = 0;
        for (uint32_t d = 0; d < HEAD; d++)
            score += x->scale * q_of(x)[i * Q + h * HEAD + d] * k_of(x)[j * K + g * HEAD + d];
        score = x->softcap > 0 ? x->softcap * tanh(score / x->softcap) : score;
        double e = x->window && i - j >= x->window ? 0 : exp(score);
        sum += e;
        for (uint32_t d = 0; d < HEAD; d++)
            o[d] += e * v_of(x)[j * K + g * HEAD + d];
    }
    for (uint32_t d = 0; d < HEAD; d++)
        o[d] /= sum;
    return log(sum);
}

static double objective(const struct layer *x)
{
    double sum = 0, o[HEAD];
    for (uint32_t i = 0; i < T; i++)
        for (uint32_t h = 0; h < HEADS; h++) {
            attend(x, i, h, o);
            for (uint32_t d = 0; d < HEAD; d++)
                sum += o[d] * x->dout[i * Q + h * HEAD + d];
        }
    return sum;
}

static struct view view(float *data, uint32_t rows, uint32_t cols)
{
    return (struct view){data, DTYPE_F32, false, rows, cols, cols};
}

static void run(enum op op, void (*kernel)(struct kernel_args *k), struct kernel_args *k)
{
    CU_ASSERT_PTR_NULL(kernel_check(op, k));
    size_t bytes = (kernel_scratch_floats(op, k) * sizeof(float) + 63) / 64 * 64;
    k->scratch = aligned_alloc(64, bytes + 64);
    CU_ASSERT_PTR_NOT_NULL_FATAL(k->scratch);
    kernel(k);
    free(k->scratch);
}

#define SET(k, op, name) (k).operand[OPND(op, name)]
#define SET_ATTENTION(k, op, x)                                                                              \
    do {                                                                                                     \
        (k).attr[ATTR(op, heads)].i = HEADS;                                                                 \
        (k).attr[ATTR(op, kv)].i = KV;                                                                       \
        (k).attr[ATTR(op, head)].i = HEAD;                                                                   \
        (k).attr[ATTR(op, sequence)].i = SEQUENCE;                                                           \
        (k).attr[ATTR(op, scale)].f = (x)->scale;                                                            \
        (k).attr[ATTR(op, window)].i = (x)->window;                                                          \
        (k).attr[ATTR(op, softcap)].f = (x)->softcap;                                                        \
    } while (0)

/* in[] rounded to fp32; gradient: by in[]; o and lse in place of attention's */
static void forward(const struct layer *x, float *in, float *o, float *lse)
{
    struct kernel_args a = {0}, s = {0};
    for (int i = 0; i < INPUTS; i++)
        in[i] = (float)x->in[i];
    SET(a, ATTENTION, o) = SET(s, SINK, y) = SET(s, SINK, x) = view(o, T, Q);
    SET(a, ATTENTION, lse) = SET(s, SINK, total) = SET(s, SINK, lse) = view(lse, T, HEADS);
    SET(a, ATTENTION, q) = view(in, T, Q);
    SET(a, ATTENTION, k) = view(in + T * Q, T, K);
    SET(a, ATTENTION, v) = view(in + T * (Q + K), T, K);
    SET(s, SINK, sink) = view(in + T * (Q + 2 * K), 1, HEADS);
    SET_ATTENTION(a, ATTENTION, x);
    s.attr[ATTR(SINK, heads)].i = HEADS;
    s.attr[ATTR(SINK, head)].i = HEAD;
    run(OP_ATTENTION, cpu_ATTENTION, &a);
    run(OP_SINK, cpu_SINK, &s);
}

static void backward(const struct layer *x, float *in, float *o, float *lse, float *gradient)
{
    struct kernel_args a = {0}, s = {0};
    float dout[T * Q];
    for (int i = 0; i < T * Q; i++)
        dout[i] = (float)x->dout[i];
    SET(s, SINK_W, dsink) = view(gradient + T * (Q + 2 * K), 1, HEADS);
    SET(s, SINK_W, dy) = SET(a, ATTENTION_I, dout) = view(dout, T, Q);
    SET(s, SINK_W, y) = SET(a, ATTENTION_I, o) = view(o, T, Q);
    SET(s, SINK_W, total) = SET(a, ATTENTION_I, lse) = view(lse, T, HEADS);
    SET(s, SINK_W, sink) = view(in + T * (Q + 2 * K), 1, HEADS);
    SET(a, ATTENTION_I, dq) = view(gradient, T, Q);
    SET(a, ATTENTION_I, dk) = view(gradient + T * Q, T, K);
    SET(a, ATTENTION_I, dv) = view(gradient + T * (Q + K), T, K);
    SET(a, ATTENTION_I, q) = view(in, T, Q);
    SET(a, ATTENTION_I, k) = view(in + T * Q, T, K);
    SET(a, ATTENTION_I, v) = view(in + T * (Q + K), T, K);
    SET_ATTENTION(a, ATTENTION_I, x);
    s.attr[ATTR(SINK_W, heads)].i = HEADS;
    s.attr[ATTR(SINK_W, head)].i = HEAD;
    run(OP_SINK_W, cpu_SINK_W, &s);
    run(OP_ATTENTION_I, cpu_ATTENTION_I, &a);
}

static void check(struct layer *x)
{
    static const double STEP = 1e-4;
    float in[INPUTS], o[T * Q], lse[T * HEADS], gradient[INPUTS];
    double worst = 0, want[HEAD];
    forward(x, in, o, lse);
    for (uint32_t i = 0; i < T; i++)
        for (uint32_t h = 0; h < HEADS; h++) {
            worst = fmax(worst, fabs(attend(x, i, h, want) - (double)lse[i * HEADS + h]));
            for (uint32_t d = 0; d < HEAD; d++)
                worst = fmax(worst, fabs(want[d] - (double)o[i * Q + h * HEAD + d]));
        }
    CU_ASSERT(worst < 2e-6);
    backward(x, in, o, lse, gradient);
    for (int i = 0; i < INPUTS; i++) {
        double old = x->in[i], up, down;
        x->in[i] = old + STEP;
        up = objective(x);
        x->in[i] = old - STEP;
        down = objective(x);
        x->in[i] = old;
        worst = fmax(worst, fabs((up - down) / (2 * STEP) - (double)gradient[i]));
    }
    CU_ASSERT(worst < 5e-6);
    double sum = 0;
    for (int h = 0; h < HEADS; h++)
        sum += fabs((double)gradient[T * (Q + 2 * K) + h]);
    CU_ASSERT(sum > 1e-2); /* of sinks: something was compared */
}

static void draw(struct layer *x)
{
    uint32_t random = 7;
    for (int i = 0; i < INPUTS + T * Q; i++) {
        random = random * 1664525u + 1013904223u;
        double drawn = (double)(float)((random >> 8) * 0x1p-23 - 1);
        *(i < INPUTS ? &x->in[i] : &x->dout[i - INPUTS]) = drawn;
    }
}

static void test_layer(void)
{
    static const struct layer kinds[] = {{.scale = 0.7}, {.scale = 2, .window = 3}, {.scale = 3, .softcap = 1.5}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct layer x = kinds[i];
        draw(&x);
        check(&x);
    }
}

/* a sink far below all scores changes nothing, one far above takes all weight */
static void test_ends(void)
{
    struct layer x = {.scale = 0.7};
    float in[INPUTS], o[T * Q], lse[T * HEADS], none[T * Q], alone[T * HEADS];
    draw(&x);
    for (int h = 0; h < HEADS; h++)
        x.in[T * (Q + 2 * K) + h] = -1e4;
    forward(&x, in, none, alone);
    x.in[T * (Q + 2 * K)] = 1e4;
    forward(&x, in, o, lse);
    for (int i = 0; i < T * Q; i++)
        CU_ASSERT(i % Q < HEAD ? fabs((double)o[i]) < 1e-30 : o[i] == none[i]);
    for (int i = 0; i < T * HEADS; i++)
        CU_ASSERT(i % HEADS ? lse[i] == alone[i] : lse[i] == 1e4f);
    CU_ASSERT(isfinite(alone[0]) && fabs((double)none[0]) > 0);
}

void suite_sinks(void);
void suite_sinks(void)
{
    CU_pSuite s = CU_add_suite("sinks", NULL, NULL);
    CU_add_test(s, "a softmax with one more score, and its gradient", test_layer);
    CU_add_test(s, "sinks far below and far above all scores", test_ends);
}
