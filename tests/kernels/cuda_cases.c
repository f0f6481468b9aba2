/* See cuda_cases.h. */

#include "tests/kernels/cuda_cases.h"
#include "kernels/cuda/cuda_kernels.h"
#include "runtime/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIMS = 6, MOST_SET = 12 }; /* of struct cuda_shape */
enum layout { DENSE, GAPS, CROOKED, NLAYOUTS };

struct cuda_case {
    struct cuda_shape shape; /* int32 operands are drawn from its range unless prepared otherwise */
    void (*prepare)(const struct kernel_args *k, uint64_t *random);
    uint32_t absent; /* bits: optional operands left out */
    double tolerance; /* of fp32 and fp64 outputs, relative to the largest value; 0 = 2e-6 */
    enum { STAGED_NONE, STAGED_IDS, STAGED_ROUTING } staged;
};
struct mode {
    enum dtype c, g;
    bool add;
    enum layout layout;
};

#define VIEW(op, name) (&k->operand[OPND(op, name)])
#define EACH(v, i, j)                                                                                        \
    for (uint32_t i = 0; i < (v)->rows; i++)                                                                 \
        for (uint32_t j = 0; j < (v)->cols; j++)

/* in (0, 1); 64-bit linear congruential generator */
static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 12) + 0.5) * 0x1p-52;
}

double cuda_cases_get(const struct view *v, uint32_t i, uint32_t j)
{
    size_t at = (size_t)i * v->ld + j;
    uint32_t wide;
    float f;
    switch (v->dtype) {
    case DTYPE_F32:
        return (double)((const float *)v->data)[at];
    case DTYPE_BF16:
        wide = (uint32_t)((const uint16_t *)v->data)[at] << 16;
        memcpy(&f, &wide, sizeof f);
        return (double)f;
    case DTYPE_F64:
        return ((const double *)v->data)[at];
    case DTYPE_I32:
        return ((const int32_t *)v->data)[at];
    case NDTYPES:
        break;
    }
    return 0;
}

void cuda_cases_set(const struct view *v, uint32_t i, uint32_t j, double x)
{
    size_t at = (size_t)i * v->ld + j;
    float f = (float)x;
    uint32_t bits;
    switch (v->dtype) {
    case DTYPE_F32:
        ((float *)v->data)[at] = f;
        return;
    case DTYPE_BF16:
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t *)v->data)[at] = (uint16_t)(bits >> 16);
        return;
    case DTYPE_F64:
        ((double *)v->data)[at] = x;
        return;
    case DTYPE_I32:
        ((int32_t *)v->data)[at] = (int32_t)x;
        return;
    case NDTYPES:
        break;
    }
}

/* Preparations: inputs that cannot be any number. */
static void make_positive(const struct view *v, uint64_t *random)
{
    EACH(v, i, j) cuda_cases_set(v, i, j, 0.05 + draw(random));
}

static void prepare_xent(const struct kernel_args *k, uint64_t *random)
{
    make_positive(VIEW(XENT_I, sum), random);
    EACH(VIEW(XENT_I, sum), i, j) cuda_cases_set(VIEW(XENT_I, sum), i, j, 3 + draw(random));
}

static void prepare_loss(const struct kernel_args *k, uint64_t *random)
{
    make_positive(VIEW(XENT_LOSS, sum), random);
}

static void prepare_clip(const struct kernel_args *k, uint64_t *random)
{
    make_positive(VIEW(CLIP, sum), random);
    if (VIEW(CLIP, need)->data)
        make_positive(VIEW(CLIP, need), random);
}

static void step_block(const struct view *step)
{
    const double words[STEP_WORDS] = {3, 0.01, 0.271, 0.142625, 12, 1, 1, 1};
    for (uint32_t j = 0; j < STEP_WORDS; j++)
        cuda_cases_set(step, 0, j, words[j]);
}

static void prepare_adamw(const struct kernel_args *k, uint64_t *random)
{
    make_positive(VIEW(ADAMW, v), random);
    cuda_cases_set(VIEW(ADAMW, scale), 0, 0, 0.7);
    step_block(VIEW(ADAMW, step));
}

static void prepare_adamw_refused(const struct kernel_args *k, uint64_t *random)
{
    prepare_adamw(k, random);
    cuda_cases_set(VIEW(ADAMW, scale), 0, 0, -1);
    EACH(VIEW(ADAMW, copy), i, j) cuda_cases_set(VIEW(ADAMW, copy), i, j, draw(random));
}

static void prepare_sgd(const struct kernel_args *k, uint64_t *random)
{
    (void)random;
    cuda_cases_set(VIEW(SGD, scale), 0, 0, 0.7);
    step_block(VIEW(SGD, step));
}

static void prepare_route(const struct kernel_args *k, uint64_t *random)
{
    const struct view *v = VIEW(ROUTE, logits);
    EACH(v, i, j) cuda_cases_set(v, i, j, 6 * draw(random) - 3);
    step_block(VIEW(ROUTE, step));
}

/* many equal scores: of those the lower index is chosen */
static void prepare_route_ties(const struct kernel_args *k, uint64_t *random)
{
    const struct view *v = VIEW(ROUTE, logits);
    EACH(v, i, j) cuda_cases_set(v, i, j, floor(4 * draw(random)) - 1.5);
    EACH(VIEW(ROUTE, bias), i, j) cuda_cases_set(VIEW(ROUTE, bias), i, j, 0.25);
    step_block(VIEW(ROUTE, step));
}

/* scores as a router makes them, and distinct choices */
static void prepare_route_slope(const struct kernel_args *k, uint64_t *random)
{
    const struct view *score = VIEW(ROUTE_I, score), *index = VIEW(ROUTE_I, index);
    make_positive(score, random);
    for (uint32_t i = 0; i < score->rows; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < score->cols; j++)
            sum += cuda_cases_get(score, i, j);
        for (uint32_t j = 0; j < score->cols; j++)
            cuda_cases_set(score, i, j, cuda_cases_get(score, i, j) / sum);
        uint32_t first = (uint32_t)(draw(random) * score->cols);
        for (uint32_t j = 0; j < index->cols; j++)
            cuda_cases_set(index, i, j, (first + 3 * j) % score->cols);
    }
}

static void prepare_balance(const struct kernel_args *k, uint64_t *random)
{
    make_positive(VIEW(BALANCE, score), random);
}

/* some experts have exactly the mean of 4 */
static void prepare_bias_move(const struct kernel_args *k, uint64_t *random)
{
    const struct view *load = VIEW(BIAS_MOVE, load);
    (void)random;
    for (uint32_t j = 0; j < load->cols; j++)
        cuda_cases_set(load, 0, j, j % 4 == 0 ? 2 : j % 4 == 1 ? 6 : 4);
    cuda_cases_set(VIEW(BIAS_MOVE, scale), 0, 0, 1);
}

/* rows of blocks, each at most once, some choices without one */
static void scatter_places(const struct view *place, uint32_t rows, uint64_t *random)
{
    uint32_t next = 0;
    EACH(place, i, j) cuda_cases_set(place, i, j, draw(random) < 0.2 || next >= rows ? -1 : (double)(next++ * 7 % rows));
}
static void prepare_dispatch(const struct kernel_args *k, uint64_t *random)
{
    scatter_places(VIEW(DISPATCH, place), VIEW(DISPATCH, y)->rows, random);
}

static void prepare_arrange(const struct kernel_args *k, uint64_t *random)
{
    if (VIEW(ARRANGE, need)->data)
        for (uint32_t j = 0; j < 2; j++)
            cuda_cases_set(VIEW(ARRANGE, need), 0, j, draw(random));
}

#define D(...)                                                                                               \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }
/* shapes: of few rows and many, of widths with whole packs and without; hidden sizes wide enough for every path */
static const struct cuda_case cases[] = {
    {.shape.op = OP_FILL, .shape.dims = D({"t", 5}, {"h", 24}), .shape.attrs = D({"value", 1.5})},
    {.shape.op = OP_FILL, .shape.dims = D({"t", 3}, {"h", 7}), .shape.attrs = D({"value", -3})},
    {.shape.op = OP_FILL, .shape.dims = D({"t", 1}, {"h", 1}), .shape.attrs = D({"value", 0.1})},
    {.shape.op = OP_COPY, .shape.dims = D({"t", 37}, {"h", 64})},
    {.shape.op = OP_COPY, .shape.dims = D({"t", 5}, {"h", 13})},
    {.shape.op = OP_COPY, .shape.dims = D({"t", 2}, {"h", 4104})},
    {.shape.op = OP_ADD, .shape.dims = D({"t", 9}, {"h", 64})},
    {.shape.op = OP_ADD, .shape.dims = D({"t", 9}, {"h", 33}), .absent = 1 << OPND(ADD, b)},
    {.shape.op = OP_ADD, .shape.dims = D({"t", 17}, {"h", 40}), .absent = 1 << OPND(ADD, bias)},
    {.shape.op = OP_ADD, .shape.dims = D({"t", 3}, {"h", 8}), .absent = 1 << OPND(ADD, bias) | 1 << OPND(ADD, b)},
    {.shape.op = OP_EMBED, .shape.dims = D({"t", 23}, {"v", 19}, {"h", 48}), .shape.attrs = D({"start", 5}), .shape.low = 0, .shape.high = 30},
    {.shape.op = OP_EMBED, .shape.dims = D({"t", 6}, {"v", 3}, {"h", 5}), .shape.low = -1, .shape.high = 4},
    {.shape.op = OP_EMBED_W, .shape.dims = D({"t", 70}, {"v", 19}, {"h", 48}), .shape.attrs = D({"start", 5}), .shape.low = 0, .shape.high = 30},
    {.shape.op = OP_EMBED_W, .shape.dims = D({"t", 300}, {"v", 4}, {"h", 5}), .shape.low = 0, .shape.high = 2, .tolerance = 1e-5},
    {.shape.op = OP_EMBED_W, .shape.dims = D({"t", 3}, {"v", 700}, {"h", 8}), .shape.low = 0, .shape.high = 700},
    {.shape.op = OP_POSITION, .shape.dims = D({"t", 24}, {"s", 40}, {"h", 16}), .shape.attrs = D({"start", 3}, {"sequence", 12}, {"first", 5}, {"shift", 9})},
    {.shape.op = OP_POSITION, .shape.dims = D({"t", 7}, {"s", 9}, {"h", 9}), .shape.attrs = D({"sequence", 8})},
    {.shape.op = OP_POSITION_W, .shape.dims = D({"t", 29}, {"s", 40}, {"h", 16}), .shape.attrs = D({"start", 15}, {"sequence", 12}, {"first", 5}, {"shift", 9})},
    {.shape.op = OP_POSITION_W, .shape.dims = D({"t", 7}, {"s", 9}, {"h", 9}), .shape.attrs = D({"sequence", 8})},
    {.shape.op = OP_RMSNORM, .shape.dims = D({"t", 9}, {"h", 64}), .shape.attrs = D({"eps", 1e-5})},
    {.shape.op = OP_RMSNORM, .shape.dims = D({"t", 33}, {"h", 8}), .shape.attrs = D({"eps", 1e-5})},
    {.shape.op = OP_RMSNORM, .shape.dims = D({"t", 5}, {"h", 13}), .shape.attrs = D({"eps", 1e-5})},
    {.shape.op = OP_RMSNORM, .shape.dims = D({"t", 11}, {"h", 496}), .shape.attrs = D({"eps", 1e-6})},
    {.shape.op = OP_RMSNORM, .shape.dims = D({"t", 10}, {"h", 1000}), .shape.attrs = D({"eps", 1e-6})},
    {.shape.op = OP_RMSNORM, .shape.dims = D({"t", 3}, {"h", 4096}), .shape.attrs = D({"eps", 1e-6})},
    {.shape.op = OP_RMSNORM, .shape.dims = D({"t", 2}, {"h", 8200}), .shape.attrs = D({"eps", 1e-6})},
    {.shape.op = OP_RMSNORM, .shape.dims = D({"t", 2}, {"h", 33024}), .shape.attrs = D({"eps", 1e-6})},
    {.shape.op = OP_RMSNORM_I, .shape.dims = D({"t", 9}, {"h", 64})},
    {.shape.op = OP_RMSNORM_I, .shape.dims = D({"t", 5}, {"h", 13})},
    {.shape.op = OP_RMSNORM_I, .shape.dims = D({"t", 10}, {"h", 1000})},
    {.shape.op = OP_RMSNORM_I, .shape.dims = D({"t", 3}, {"h", 4096})},
    {.shape.op = OP_RMSNORM_I, .shape.dims = D({"t", 2}, {"h", 33024})},
    {.shape.op = OP_RMSNORM_W, .shape.dims = D({"t", 9}, {"h", 64}), .tolerance = 1e-5},
    {.shape.op = OP_RMSNORM_W, .shape.dims = D({"t", 333}, {"h", 264}), .tolerance = 1e-5},
    {.shape.op = OP_RMSNORM_W, .shape.dims = D({"t", 2100}, {"h", 13}), .tolerance = 1e-5},
    {.shape.op = OP_LAYERNORM, .shape.dims = D({"t", 9}, {"h", 64}), .shape.attrs = D({"eps", 1e-5})},
    {.shape.op = OP_LAYERNORM, .shape.dims = D({"t", 9}, {"h", 35}), .shape.attrs = D({"eps", 1e-5}), .absent = 1 << OPND(LAYERNORM, b)},
    {.shape.op = OP_LAYERNORM, .shape.dims = D({"t", 4}, {"h", 768}), .shape.attrs = D({"eps", 1e-5}), .absent = 1 << OPND(LAYERNORM, b)},
    {.shape.op = OP_LAYERNORM, .shape.dims = D({"t", 3}, {"h", 1600}), .shape.attrs = D({"eps", 1e-5})},
    {.shape.op = OP_LAYERNORM_I, .shape.dims = D({"t", 9}, {"h", 64})},
    {.shape.op = OP_LAYERNORM_I, .shape.dims = D({"t", 9}, {"h", 35})},
    {.shape.op = OP_LAYERNORM_I, .shape.dims = D({"t", 3}, {"h", 1600})},
    {.shape.op = OP_LAYERNORM_W, .shape.dims = D({"t", 9}, {"h", 64}), .tolerance = 1e-5},
    {.shape.op = OP_LAYERNORM_W, .shape.dims = D({"t", 333}, {"h", 21}), .tolerance = 1e-5},
    {.shape.op = OP_LAYERNORM_W, .shape.dims = D({"t", 100}, {"h", 264}), .absent = 1 << OPND(LAYERNORM_W, db), .tolerance = 1e-5},
    {.shape.op = OP_BIAS_W, .shape.dims = D({"t", 1}, {"h", 64})},
    {.shape.op = OP_BIAS_W, .shape.dims = D({"t", 2100}, {"h", 24}), .tolerance = 1e-5},
    {.shape.op = OP_BIAS_W, .shape.dims = D({"t", 50}, {"h", 11}), .tolerance = 1e-5},
    {.shape.op = OP_ROPE, .shape.dims = D({"t", 20}, {"a", 128}), .shape.attrs = D({"head", 64}, {"dims", 64}, {"sequence", 16}, {"theta", 10000}, {"start", 3})},
    {.shape.op = OP_ROPE, .shape.dims = D({"t", 9}, {"a", 2048}), .shape.attrs = D({"head", 128}, {"dims", 128}, {"sequence", 8}, {"theta", 500000}, {"inverse", 1},
               {"scaling", 2}, {"factor", 8}, {"low", 1}, {"high", 4}, {"original", 64}), .tolerance = 4e-6},
    {.shape.op = OP_ROPE, .shape.dims = D({"t", 9}, {"a", 96}), .shape.attrs = D({"head", 48}, {"dims", 16}, {"from", 32}, {"sequence", 8}, {"theta", 10000}, {"adjacent", 1},
               {"first", 100000}, {"shift", 300000}, {"magnitude", 1.5}), .tolerance = 4e-6},
    {.shape.op = OP_ROPE, .shape.dims = D({"t", 9}, {"a", 44}), .shape.attrs = D({"head", 22}, {"dims", 6}, {"from", 3}, {"sequence", 8}, {"theta", 10000}, {"scaling", 1}, {"factor", 4})},
    {.shape.op = OP_ROPE, .shape.dims = D({"t", 9}, {"a", 20}), .shape.attrs = D({"head", 10}, {"dims", 10}, {"sequence", 8}, {"theta", 10000}, {"adjacent", 1},
               {"scaling", 3}, {"factor", 4}, {"low", 1}, {"high", 32}, {"original", 64})},
    {.shape.op = OP_ROPE, .shape.dims = D({"t", 9}, {"a", 160}), .shape.attrs = D({"head", 80}, {"dims", 32}, {"from", 16}, {"sequence", 9}, {"theta", 10000})},
    {.shape.op = OP_GELU, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"tanh", 1})},
    {.shape.op = OP_GELU, .shape.dims = D({"t", 9}, {"h", 37})},
    {.shape.op = OP_GELU_I, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"tanh", 1})},
    {.shape.op = OP_GELU_I, .shape.dims = D({"t", 9}, {"h", 37})},
    {.shape.op = OP_RELU, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"power", 1})},
    {.shape.op = OP_RELU, .shape.dims = D({"t", 9}, {"h", 37}), .shape.attrs = D({"power", 2})},
    {.shape.op = OP_RELU_I, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"power", 1})},
    {.shape.op = OP_RELU_I, .shape.dims = D({"t", 9}, {"h", 37}), .shape.attrs = D({"power", 2})},
    {.shape.op = OP_SWIGLU, .shape.dims = D({"t", 9}, {"h", 104})},
    {.shape.op = OP_SWIGLU, .shape.dims = D({"t", 9}, {"h", 37})},
    {.shape.op = OP_SWIGLU_I, .shape.dims = D({"t", 9}, {"h", 104})},
    {.shape.op = OP_SWIGLU_I, .shape.dims = D({"t", 9}, {"h", 37})},
    {.shape.op = OP_GEGLU, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"tanh", 1})},
    {.shape.op = OP_GEGLU, .shape.dims = D({"t", 9}, {"h", 37})},
    {.shape.op = OP_GEGLU_I, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"tanh", 1})},
    {.shape.op = OP_GEGLU_I, .shape.dims = D({"t", 9}, {"h", 37})},
    {.shape.op = OP_XENT_MAX, .shape.dims = D({"t", 9}, {"v", 64}), .shape.attrs = D({"start", 128}, {"vocab", 181})},
    {.shape.op = OP_XENT_MAX, .shape.dims = D({"t", 3}, {"v", 4100}), .shape.attrs = D({"vocab", 9000})},
    {.shape.op = OP_XENT_MAX, .shape.dims = D({"t", 3}, {"v", 16}), .shape.attrs = D({"start", 48}, {"vocab", 40})},
    {.shape.op = OP_XENT_SUM, .shape.dims = D({"t", 9}, {"v", 64}), .shape.attrs = D({"start", 128}, {"vocab", 181}), .shape.low = 120, .shape.high = 190},
    {.shape.op = OP_XENT_SUM, .shape.dims = D({"t", 20}, {"v", 35}), .shape.attrs = D({"vocab", 33}), .shape.low = -1, .shape.high = 5},
    {.shape.op = OP_XENT_SUM, .shape.dims = D({"t", 3}, {"v", 8200}), .shape.attrs = D({"vocab", 8200}), .shape.low = 0, .shape.high = 8200},
    {.shape.op = OP_XENT_LOSS, .shape.dims = D({"t", 9}), .shape.attrs = D({"scale", 0.125}, {"count", 3}), .prepare = prepare_loss},
    {.shape.op = OP_XENT_LOSS, .shape.dims = D({"t", 1000}), .shape.attrs = D({"scale", 0.125}, {"count", 1}), .prepare = prepare_loss},
    {.shape.op = OP_XENT_I, .shape.dims = D({"t", 9}, {"v", 64}), .shape.attrs = D({"start", 128}, {"vocab", 181}, {"scale", 0.25}), .shape.low = 120, .shape.high = 190, .prepare = prepare_xent},
    {.shape.op = OP_XENT_I, .shape.dims = D({"t", 20}, {"v", 35}), .shape.attrs = D({"vocab", 33}, {"scale", 0.25}), .shape.low = -1, .shape.high = 5, .prepare = prepare_xent},
    {.shape.op = OP_XENT_I, .shape.dims = D({"t", 3}, {"v", 8200}), .shape.attrs = D({"vocab", 8200}, {"scale", 2}), .shape.low = 0, .shape.high = 8200, .prepare = prepare_xent},
    {.shape.op = OP_SQNORM, .shape.dims = D({"t", 9}, {"h", 64}), .shape.attrs = D({"count", 2})},
    {.shape.op = OP_SQNORM, .shape.dims = D({"t", 700}, {"h", 13}), .shape.attrs = D({"count", 1})},
    {.shape.op = OP_CLIP, .shape.attrs = D({"limit", 0.3}), .prepare = prepare_clip},
    {.shape.op = OP_CLIP, .shape.attrs = D({"limit", 0.3}), .prepare = prepare_clip, .absent = 1 << OPND(CLIP, need)},
    {.shape.op = OP_CLIP, .prepare = prepare_clip, .absent = 1 << OPND(CLIP, need)},
    {.shape.op = OP_ADAMW, .shape.dims = D({"t", 9}, {"h", 64}), .shape.attrs = D({"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}), .prepare = prepare_adamw},
    {.shape.op = OP_ADAMW, .shape.dims = D({"t", 9}, {"h", 13}), .shape.attrs = D({"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}), .prepare = prepare_adamw,
     .absent = 1 << OPND(ADAMW, copy)},
    {.shape.op = OP_ADAMW, .shape.dims = D({"t", 3}, {"h", 8}), .shape.attrs = D({"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}), .prepare = prepare_adamw_refused},
    {.shape.op = OP_SGD, .shape.dims = D({"t", 9}, {"h", 64}), .shape.attrs = D({"momentum", 0.9}, {"decay", 0.1}), .prepare = prepare_sgd},
    {.shape.op = OP_SGD, .shape.dims = D({"t", 9}, {"h", 13}), .shape.attrs = D({"decay", 0.1}), .prepare = prepare_sgd, .absent = 1 << OPND(SGD, m) | 1 << OPND(SGD, copy)},
    {.shape.op = OP_TOKENS, .shape.dims = D({"t", 24}), .shape.attrs = D({"sequence", 8}), .staged = STAGED_IDS},
    {.shape.op = OP_TOKENS, .shape.dims = D({"t", 300}), .shape.attrs = D({"sequence", 8}), .staged = STAGED_IDS, .absent = 1 << OPND(TOKENS, tokens)},
    {.shape.op = OP_TOKENS_AHEAD, .shape.dims = D({"t", 24}), .shape.attrs = D({"sequence", 8}, {"whole", 9}), .staged = STAGED_IDS},
    {.shape.op = OP_ROUTE, .shape.dims = D({"t", 21}, {"e", 8}, {"k", 2}), .shape.attrs = D({"groups", 1}, {"pick", 1}, {"normalize", 1}, {"scale", 1}, {"sequence", 8}),
     .prepare = prepare_route, .absent = 1 << OPND(ROUTE, bias)},
    {.shape.op = OP_ROUTE, .shape.dims = D({"t", 13}, {"e", 64}, {"k", 6}), .shape.attrs = D({"groups", 8}, {"pick", 3}, {"scale", 1.5}, {"sequence", 8}, {"sigmoid", 1}, {"normalize", 1}), .prepare = prepare_route},
    {.shape.op = OP_ROUTE, .shape.dims = D({"t", 13}, {"e", 12}, {"k", 3}), .shape.attrs = D({"groups", 4}, {"pick", 2}, {"scale", 1.5}, {"sequence", 8}), .prepare = prepare_route},
    {.shape.op = OP_ROUTE, .shape.dims = D({"t", 13}, {"e", 64}, {"k", 6}), .shape.attrs = D({"groups", 8}, {"pick", 3}, {"scale", 1.5}, {"sequence", 8}, {"sigmoid", 1}, {"normalize", 1}),
     .prepare = prepare_route, .staged = STAGED_ROUTING},
    {.shape.op = OP_ROUTE, .shape.dims = D({"t", 40}, {"e", 48}, {"k", 4}), .shape.attrs = D({"groups", 1}, {"pick", 1}, {"normalize", 1}, {"scale", 1}, {"sequence", 8}, {"sigmoid", 1}),
     .prepare = prepare_route_ties},
    {.shape.op = OP_ROUTE_I, .shape.dims = D({"t", 21}, {"e", 8}, {"k", 2}, {"s", 3}), .shape.attrs = D({"normalize", 1}, {"scale", 1}, {"sequence", 8}), .prepare = prepare_route_slope,
     .absent = 1 << OPND(ROUTE_I, load)},
    {.shape.op = OP_ROUTE_I, .shape.dims = D({"t", 13}, {"e", 70}, {"k", 6}, {"s", 2}), .shape.attrs = D({"scale", 1.5}, {"sequence", 8}, {"sigmoid", 1}, {"balance", 0.01}, {"start", 2}, {"normalize", 1}), .prepare = prepare_route_slope},
    {.shape.op = OP_ROUTE_I, .shape.dims = D({"t", 13}, {"e", 70}, {"k", 6}, {"s", 2}), .shape.attrs = D({"scale", 1.5}, {"sequence", 8}, {"balance", 0.01}), .prepare = prepare_route_slope},
    {.shape.op = OP_LOAD, .shape.dims = D({"t", 40}, {"e", 8}, {"k", 2}, {"s", 3}), .shape.attrs = D({"sequence", 16}, {"start", 4}), .shape.low = 0, .shape.high = 9},
    {.shape.op = OP_LOAD, .shape.dims = D({"t", 700}, {"e", 64}, {"k", 6}, {"s", 1}), .shape.attrs = D({"sequence", 1e12}), .shape.low = 0, .shape.high = 64},
    {.shape.op = OP_BALANCE, .shape.dims = D({"t", 40}, {"e", 70}, {"s", 3}), .shape.attrs = D({"sequence", 16}, {"start", 4}, {"scale", 0.1}), .prepare = prepare_balance},
    {.shape.op = OP_BIAS_MOVE, .shape.dims = D({"e", 12}), .shape.attrs = D({"rate", 0.001}), .prepare = prepare_bias_move},
    {.shape.op = OP_BIAS_MOVE, .shape.dims = D({"e", 300}), .shape.attrs = D({"rate", 0.001}), .prepare = prepare_bias_move},
    {.shape.op = OP_ARRANGE, .shape.dims = D({"t", 40}, {"k", 2}), .shape.attrs = D({"experts", 8}, {"blocks", 1}, {"rows", 80}, {"sequence", 16}), .shape.low = 0, .shape.high = 8, .prepare = prepare_arrange},
    {.shape.op = OP_ARRANGE, .shape.dims = D({"t", 700}, {"k", 6}), .shape.attrs = D({"experts", 16}, {"blocks", 4}, {"rows", 1000}, {"sequence", 128}), .shape.low = 0, .shape.high = 16, .prepare = prepare_arrange},
    {.shape.op = OP_ARRANGE, .shape.dims = D({"t", 700}, {"k", 3}), .shape.attrs = D({"experts", 8}, {"blocks", 2}, {"rows", 900}, {"sequence", 512}, {"capacity", 170}, {"start", 100}), .shape.low = -1, .shape.high = 10,
     .prepare = prepare_arrange},
    {.shape.op = OP_ARRANGE, .shape.dims = D({"t", 30}, {"k", 2}), .shape.attrs = D({"experts", 6}, {"blocks", 6}, {"rows", 4}, {"sequence", 8}), .shape.low = 2, .shape.high = 4, .absent = 1 << OPND(ARRANGE, need)},
    {.shape.op = OP_DISPATCH, .shape.dims = D({"t", 20}, {"k", 2}, {"m", 45}, {"h", 48}), .prepare = prepare_dispatch},
    {.shape.op = OP_DISPATCH, .shape.dims = D({"t", 20}, {"k", 3}, {"m", 45}, {"h", 13}), .prepare = prepare_dispatch, .absent = 1 << OPND(DISPATCH, weight)},
    {.shape.op = OP_COMBINE, .shape.dims = D({"t", 20}, {"k", 2}, {"m", 45}, {"h", 48}), .shape.low = -1, .shape.high = 47},
    {.shape.op = OP_COMBINE, .shape.dims = D({"t", 20}, {"k", 8}, {"m", 45}, {"h", 13}), .shape.low = -1, .shape.high = 47, .absent = 1 << OPND(COMBINE, weight)},
    {.shape.op = OP_COMBINE_W, .shape.dims = D({"t", 20}, {"k", 2}, {"m", 45}, {"h", 48}), .shape.low = -1, .shape.high = 47},
    {.shape.op = OP_COMBINE_W, .shape.dims = D({"t", 7}, {"k", 10}, {"m", 45}, {"h", 333}), .shape.low = -1, .shape.high = 47},
    {.shape.op = OP_DISPATCH, .shape.dims = D({"t", 20}, {"k", 3}, {"m", 65}, {"h", 1}), .prepare = prepare_dispatch, .absent = 1 << OPND(DISPATCH, x)},
    {.shape.op = OP_COMBINE_W, .shape.dims = D({"t", 20}, {"k", 3}, {"m", 45}, {"h", 1}), .shape.low = -1, .shape.high = 47, .absent = 1 << OPND(COMBINE_W, dy)},
    {.shape.op = OP_WEIGH_I, .shape.dims = D({"m", 21}, {"h", 48})},
    {.shape.op = OP_WEIGH_I, .shape.dims = D({"m", 9}, {"h", 333})},
    {.shape.op = OP_COLUMNS_SPLIT, .shape.dims = D({"t", 9}, {"w", 24}), .shape.attrs = D({"parts", 3})},
    {.shape.op = OP_COLUMNS_SPLIT, .shape.dims = D({"t", 9}, {"w", 5}), .shape.attrs = D({"parts", 4})},
    {.shape.op = OP_COLUMNS_JOIN, .shape.dims = D({"t", 9}, {"w", 24}), .shape.attrs = D({"parts", 3})},
    {.shape.op = OP_COLUMNS_JOIN, .shape.dims = D({"t", 9}, {"w", 5}), .shape.attrs = D({"parts", 4})},
    {.shape.op = OP_SCALE, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"factor", 0.3})},
    {.shape.op = OP_SCALE, .shape.dims = D({"t", 9}, {"h", 7}), .shape.attrs = D({"factor", -2})},
    {.shape.op = OP_SOFTCAP, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"cap", 0.8})},
    {.shape.op = OP_SOFTCAP_I, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"cap", 0.8})},
    {.shape.op = OP_HEADNORM, .shape.dims = D({"t", 9}), .shape.attrs = D({"heads", 3}, {"head", 64}, {"eps", 1e-6})},
    {.shape.op = OP_HEADNORM, .shape.dims = D({"t", 9}), .shape.attrs = D({"heads", 5}, {"head", 12}, {"eps", 1e-6})},
    {.shape.op = OP_HEADNORM_I, .shape.dims = D({"t", 9}), .shape.attrs = D({"heads", 3}, {"head", 64})},
    {.shape.op = OP_HEADNORM_I, .shape.dims = D({"t", 9}), .shape.attrs = D({"heads", 5}, {"head", 12})},
    {.shape.op = OP_HEADNORM_W, .shape.dims = D({"t", 90}), .shape.attrs = D({"heads", 3}, {"head", 64}), .tolerance = 1e-5},
    {.shape.op = OP_HEADNORM_W, .shape.dims = D({"t", 9}), .shape.attrs = D({"heads", 5}, {"head", 12}), .tolerance = 1e-5},
    {.shape.op = OP_MLA_KEYS, .shape.dims = D({"t", 9}, {"w", 3 * 40}, {"r", 8}, {"u", 16}), .shape.attrs = D({"heads", 3}, {"head", 32})},
    {.shape.op = OP_MLA_KEYS, .shape.dims = D({"t", 9}, {"w", 2 * 9}, {"r", 3}, {"u", 5}), .shape.attrs = D({"heads", 2}, {"head", 7})},
    {.shape.op = OP_MLA_KEYS_I, .shape.dims = D({"t", 9}, {"w", 3 * 40}, {"r", 8}, {"u", 16}), .shape.attrs = D({"heads", 3}, {"head", 32})},
    {.shape.op = OP_MLA_KEYS_I, .shape.dims = D({"t", 9}, {"w", 2 * 9}, {"r", 3}, {"u", 5}), .shape.attrs = D({"heads", 2}, {"head", 7})},
    {.shape.op = OP_CONCAT, .shape.dims = D({"t", 9}, {"w", 48}, {"h", 24})},
    {.shape.op = OP_CONCAT, .shape.dims = D({"t", 9}, {"w", 14}, {"h", 7})},
    {.shape.op = OP_CONCAT_I, .shape.dims = D({"t", 9}, {"w", 48}, {"h", 24})},
    {.shape.op = OP_CONCAT_I, .shape.dims = D({"t", 9}, {"w", 14}, {"h", 7})},
};
#undef D

/* one run's operands on the host, and the same on the device */
struct set {
    struct kernel_args k;
    uint8_t *host[ISA_MAX_OPERANDS], *before[ISA_MAX_OPERANDS], *device[ISA_MAX_OPERANDS], *second[ISA_MAX_OPERANDS];
    size_t bytes[ISA_MAX_OPERANDS], offset[ISA_MAX_OPERANDS];
};

static uint32_t dim(const struct cuda_shape *c, const char *text, size_t n)
{
    if (text[0] >= '0' && text[0] <= '9')
        return (uint32_t)atoi(text);
    for (uint32_t i = 0; i < MOST_DIMS && c->dims[i].name; i++)
        if (strlen(c->dims[i].name) == n && strncmp(c->dims[i].name, text, n) == 0)
            return c->dims[i].value;
    for (uint32_t i = 0; i < MOST_SET && c->attrs[i].name; i++)
        if (strlen(c->attrs[i].name) == n && strncmp(c->attrs[i].name, text, n) == 0)
            return (uint32_t)c->attrs[i].value;
    printf("\n%s: no value for %s\n", isa_info(c->op)->name, text);
    abort();
}

static uint32_t extent(const struct cuda_shape *c, const char *text)
{
    const char *star = strchr(text, '*');
    return star ? dim(c, text, (size_t)(star - text)) * dim(c, star + 1, strlen(star + 1)) : dim(c, text, strlen(text));
}

static enum dtype dtype_of(char letter, const struct mode *m)
{
    switch (letter) {
    case 'C':
        return m->c;
    case 'G':
    case 'A':
        return m->g;
    case 'I':
        return DTYPE_I32;
    case 'D':
        return DTYPE_F64;
    default:
        return DTYPE_F32;
    }
}

static void make_operand(const struct cuda_case *c, const struct mode *m, struct set *s, uint32_t i, uint64_t *random)
{
    const struct isa_operand *o = &isa_info(c->shape.op)->operand[i];
    uint32_t rows = extent(&c->shape, o->rows), cols = extent(&c->shape, o->cols);
    enum dtype dtype = dtype_of(o->dtype, m);
    uint32_t size = isa_dtype_bytes(dtype), gap = m->layout == GAPS ? 16 - cols % 8 : m->layout == CROOKED ? 3 : 0;
    uint32_t ld = cols + (rows > 1 ? gap : 0);
    bool add = o->mark == MARK_ADD && m->add;
    s->offset[i] = m->layout == CROOKED ? size : 0;
    s->bytes[i] = ((size_t)(rows - 1) * ld + cols) * size + s->offset[i];
    s->host[i] = aligned_alloc(64, (s->bytes[i] + 63) / 64 * 64);
    memset(s->host[i], 0xff, s->bytes[i]);
    s->k.operand[i] = (struct view){s->host[i] + s->offset[i], dtype, add, rows, cols, ld};
    for (uint32_t r = 0; r < rows && (o->mark != MARK_WRITE && (o->mark != MARK_ADD || add)); r++)
        for (uint32_t j = 0; j < cols; j++) {
            double x = draw(random), sign = draw(random) < 0.5 ? -1 : 1;
            cuda_cases_set(&s->k.operand[i], r, j, dtype == DTYPE_I32 ? floor(c->shape.low + x * (c->shape.high - c->shape.low)) : sign * (0.01 + x));
        }
}

static void set_attributes(const struct cuda_shape *c, struct kernel_args *k)
{
    const struct isa_info *info = isa_info(c->op);
    for (uint32_t i = 0; i < info->nattrs; i++)
        for (uint32_t j = 0; j < MOST_SET && c->attrs[j].name; j++)
            if (strcmp(c->attrs[j].name, info->attr[i].name) == 0) {
                if (info->attr[i].kind == ATTR_REAL)
                    k->attr[i].f = c->attrs[j].value;
                else
                    k->attr[i].i = (int64_t)c->attrs[j].value;
            }
}

void cuda_cases_views(const struct cuda_shape *s, uint32_t absent, enum dtype c, enum dtype g, struct kernel_args *k)
{
    const struct isa_info *info = isa_info(s->op);
    const struct mode m = {c, g, false, DENSE};
    memset(k, 0, sizeof *k);
    set_attributes(s, k);
    for (uint32_t i = 0; i < info->noperands; i++) {
        if (absent >> i & 1)
            continue;
        uint32_t rows = extent(s, info->operand[i].rows), cols = extent(s, info->operand[i].cols);
        k->operand[i] = (struct view){NULL, dtype_of(info->operand[i].dtype, &m), false, rows, cols, cols};
    }
}

/* device memory with the operands as they were, a poisoned workspace, one call; what it left comes back into out */
static const char *run_device(const struct cuda_place *p, const struct cuda_case *c, const struct set *s, const int32_t *staged,
                              size_t nstaged, int run, uint8_t *const *out)
{
    struct kernel_args k = s->k;
    struct cuda_call call = {.args = &k};
    void *memory[ISA_MAX_OPERANDS] = {0}, *ids = NULL;
    size_t need = cuda_workspace_bytes(c->shape.op, &s->k, 90);
    uint8_t *poison = malloc(need + 1);
    memset(poison, run ? 0x5a : 0xff, need + 1);
    for (uint32_t i = 0; i < isa_info(c->shape.op)->noperands; i++)
        if (s->bytes[i]) {
            memory[i] = p->make(s->bytes[i]);
            p->store(memory[i], s->before[i], s->bytes[i]);
            k.operand[i].data = (uint8_t *)memory[i] + s->offset[i];
        }
    call.workspace = p->make(need ? need : 1);
    call.workspace_bytes = need;
    p->store(call.workspace, poison, need);
    if (staged) {
        ids = p->make(nstaged * sizeof *staged);
        p->store(ids, staged, nstaged * sizeof *staged);
        call.staged = ids;
    }
    const char *why = cuda_stream_check(c->shape.op, &s->k);
    why = why ? why : p->launch(c->shape.op, &call);
    const char *late = p->finish(run);
    for (uint32_t i = 0; i < isa_info(c->shape.op)->noperands; i++)
        if (s->bytes[i]) {
            p->fetch(out[i], memory[i], s->bytes[i]);
            p->drop(memory[i]);
        }
    p->drop(call.workspace);
    if (ids)
        p->drop(ids);
    free(poison);
    return why ? why : late;
}

/* the largest difference over the largest value; both NaN, or the same infinity, is none */
static double difference(const struct view *want, const struct view *have)
{
    double most = 1e-3, worst = 0;
    EACH(want, i, j)
    {
        double a = cuda_cases_get(want, i, j), b = cuda_cases_get(have, i, j);
        most = isfinite(a) && fabs(a) > most ? fabs(a) : most;
        if (!isfinite(a) || !isfinite(b)) {
            if (!(a == b || (isnan(a) && isnan(b))))
                return INFINITY;
        } else if (fabs(a - b) > worst) {
            worst = fabs(a - b);
        }
    }
    return worst / most;
}

/* bytes between rows and before the first are as they were */
static bool gaps_kept(const struct view *v, const uint8_t *before, const uint8_t *after, size_t bytes, size_t offset)
{
    size_t row = (size_t)v->ld * isa_dtype_bytes(v->dtype), used = (size_t)v->cols * isa_dtype_bytes(v->dtype);
    for (size_t b = 0; b < bytes; b++)
        if ((b < offset || (b - offset) % row >= used) && before[b] != after[b])
            return false;
    return true;
}

static bool compare(const struct cuda_case *c, const struct mode *m, const struct set *s, uint32_t i)
{
    const struct isa_operand *o = &isa_info(c->shape.op)->operand[i];
    const struct view *want = &s->k.operand[i];
    struct view have = *want;
    have.data = s->device[i] + s->offset[i];
    double tolerance = c->tolerance > 0 ? c->tolerance : 2e-6, error = 0;
    if (want->dtype == DTYPE_BF16)
        tolerance = 4.5e-3; /* one unit in the last place, where the CPU's fp64 sums round the other way */
    if (want->dtype == DTYPE_I32)
        tolerance = 0;
    const char *wrong = NULL;
    if (o->mark == MARK_READ && memcmp(s->before[i], s->device[i], s->bytes[i]) != 0)
        wrong = "an operand that is read was written";
    else if (!gaps_kept(want, s->before[i], s->device[i], s->bytes[i], s->offset[i]))
        wrong = "memory between rows was written";
    else if (memcmp(s->device[i], s->second[i], s->bytes[i]) != 0)
        wrong = "a second run gave other bits";
    else if ((error = difference(want, &have)) > tolerance)
        wrong = "differs from the CPU";
    if (wrong)
        printf("\n    %s %s %u x %u (C %s, G %s%s, layout %d): %s, error %.3g of %.3g\n", isa_info(c->shape.op)->name, o->name,
               want->rows, want->cols, isa_dtype_name(m->c), isa_dtype_name(m->g), m->add ? ", add" : "", (int)m->layout, wrong,
               error, tolerance);
    return !wrong;
}

/* what the host stages for the call, or NULL; TOKENS' reference is that itself */
static int32_t *stage(const struct cuda_case *c, struct set *s, uint64_t *random, size_t *n)
{
    const struct kernel_args *k = &s->k;
    *n = 0;
    if (c->staged == STAGED_NONE)
        return NULL;
    const struct view *shape = c->staged == STAGED_ROUTING ? VIEW(ROUTE, index) : k->operand[0].data ? &k->operand[0] : &k->operand[1];
    *n = c->staged == STAGED_ROUTING ? (size_t)shape->rows * shape->cols : 2 * (size_t)shape->rows;
    int32_t *ids = malloc(*n * sizeof *ids);
    for (size_t e = 0; e < *n; e++)
        ids[e] = (int32_t)(draw(random) * 1000);
    for (uint32_t i = 0; i < 2 && c->staged == STAGED_IDS; i++)
        for (uint32_t r = 0; r < shape->rows && k->operand[i].data; r++)
            cuda_cases_set(&k->operand[i], r, 0, ids[(size_t)i * shape->rows + r]);
    if (c->staged == STAGED_ROUTING) /* the CPU's own choices, but for one token none */
        for (size_t e = 0; e < *n; e++)
            ids[e] = e / shape->cols == 3 ? -1 : (int32_t)cuda_cases_get(shape, (uint32_t)(e / shape->cols), (uint32_t)(e % shape->cols));
    return ids;
}

static bool run_case(const struct cuda_place *p, const struct cuda_case *c, const struct mode *m)
{
    const struct isa_info *info = isa_info(c->shape.op);
    struct set s = {.k = {.scratch = NULL}};
    uint64_t random = 4711 + (uint64_t)c->shape.op;
    size_t nstaged;
    set_attributes(&c->shape, &s.k);
    for (uint32_t i = 0; i < info->noperands; i++)
        if (!(c->absent >> i & 1))
            make_operand(c, m, &s, i, &random);
    if (c->prepare)
        c->prepare(&s.k, &random);
    for (uint32_t i = 0; i < info->noperands; i++)
        if (s.bytes[i]) {
            s.before[i] = memcpy(malloc(s.bytes[i]), s.host[i], s.bytes[i]);
            s.device[i] = malloc(s.bytes[i] + 8);
            s.second[i] = malloc(s.bytes[i]);
        }
    size_t floats = kernel_scratch_floats(c->shape.op, &s.k) + 16;
    s.k.scratch = aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64);
    memset(s.k.scratch, 0xff, floats * sizeof(float));
    const char *why = kernel_check(c->shape.op, &s.k);
    if (!why && c->staged != STAGED_IDS)
        device_cpu()->run(c->shape.op, &s.k);
    int32_t *staged = stage(c, &s, &random, &nstaged);
    why = why ? why : run_device(p, c, &s, staged, nstaged, 0, s.device);
    why = why ? why : run_device(p, c, &s, staged, nstaged, 1, s.second);
    bool fine = !why;
    if (why)
        printf("\n    %s: %s\n", info->name, why);
    for (uint32_t i = 0; i < info->noperands; i++) {
        if (s.bytes[i] && fine)
            fine = compare(c, m, &s, i);
        free(s.host[i]);
        free(s.before[i]);
        free(s.device[i]);
        free(s.second[i]);
    }
    free(staged);
    free(s.k.scratch);
    return fine;
}

/* does the row have operands of this kind that make a difference? */
static bool has_letter(const struct isa_info *info, const char *letters)
{
    for (uint32_t i = 0; i < info->noperands; i++)
        if (strchr(letters, info->operand[i].dtype))
            return true;
    return false;
}
static bool has_add(const struct isa_info *info)
{
    for (uint32_t i = 0; i < info->noperands; i++)
        if (info->operand[i].mark == MARK_ADD)
            return true;
    return false;
}

unsigned cuda_cases_check(const struct cuda_place *p, const char *filter, unsigned *nruns)
{
    const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    unsigned failed = 0;
    *nruns = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct isa_info *info = isa_info(cases[i].shape.op);
        if (filter && !strstr(info->name, filter))
            continue;
        for (unsigned bits = 0; bits < 8 * NLAYOUTS; bits++) {
            struct mode m = {dtypes[bits & 1], dtypes[bits >> 1 & 1], bits >> 2 & 1, (enum layout)(bits >> 3)};
            if ((m.c != DTYPE_F32 && !has_letter(info, "C")) || (m.g != DTYPE_F32 && !has_letter(info, "GA")) || (m.add && !has_add(info)))
                continue;
            failed += !run_case(p, &cases[i], &m);
            ++*nruns;
        }
    }
    return failed;
}
