/* See cuda_table.h. */

#include "tests/kernels/cuda_table.h"

#include <math.h>
#include <string.h>

#define VIEW(op, name) (&k->operand[OPND(op, name)])

/* Preparations: inputs that cannot be any number. */
static void make_positive(const struct view *v, uint64_t *random)
{
    EACH(v, i, j) cuda_cases_set(v, i, j, 0.05 + cuda_cases_draw(random));
}

static void prepare_xent(const struct kernel_args *k, uint64_t *random)
{
    make_positive(VIEW(XENT_I, sum), random);
    EACH(VIEW(XENT_I, sum), i, j) cuda_cases_set(VIEW(XENT_I, sum), i, j, 3 + cuda_cases_draw(random));
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

/* of a loss times 8, with steps without overflow behind it */
static void prepare_scaled(const struct kernel_args *k, uint64_t *random)
{
    const double state[SCALE_WORDS] = {8, 2, 1, 5};
    make_positive(VIEW(CLIP_SCALED, sum), random);
    if (VIEW(CLIP_SCALED, need)->data)
        cuda_cases_set(VIEW(CLIP_SCALED, need), 0, 0, 0);
    for (uint32_t j = 0; j < SCALE_WORDS; j++)
        cuda_cases_set(VIEW(CLIP_SCALED, state), 0, j, state[j]);
}

static void prepare_lacks(const struct kernel_args *k, uint64_t *random)
{
    prepare_scaled(k, random);
    cuda_cases_set(VIEW(CLIP_SCALED, need), 0, 0, 2);
}

static void prepare_overflow(const struct kernel_args *k, uint64_t *random)
{
    prepare_scaled(k, random);
    cuda_cases_set(VIEW(CLIP_SCALED, sum), 0, 0, INFINITY);
}

static void prepare_first_overflow(const struct kernel_args *k, uint64_t *random)
{
    prepare_overflow(k, random);
    cuda_cases_set(VIEW(CLIP_SCALED, state), 0, SCALE_PATIENCE, 2);
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

static void prepare_ahead(const struct kernel_args *k, uint64_t *random)
{
    make_positive(VIEW(ADAMW_AHEAD, v), random);
    step_block(VIEW(ADAMW_AHEAD, step));
}

static void prepare_adamw_refused(const struct kernel_args *k, uint64_t *random)
{
    prepare_adamw(k, random);
    cuda_cases_set(VIEW(ADAMW, scale), 0, 0, -1);
    EACH(VIEW(ADAMW, copy), i, j) cuda_cases_set(VIEW(ADAMW, copy), i, j, cuda_cases_draw(random));
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
    EACH(v, i, j) cuda_cases_set(v, i, j, 6 * cuda_cases_draw(random) - 3);
    step_block(VIEW(ROUTE, step));
}

/* many equal scores: of those the lower index is chosen */
static void prepare_route_ties(const struct kernel_args *k, uint64_t *random)
{
    const struct view *v = VIEW(ROUTE, logits);
    EACH(v, i, j) cuda_cases_set(v, i, j, floor(4 * cuda_cases_draw(random)) - 1.5);
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
        uint32_t first = (uint32_t)(cuda_cases_draw(random) * score->cols);
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
    EACH(place, i, j) cuda_cases_set(place, i, j, cuda_cases_draw(random) < 0.2 || next >= rows ? -1 : (double)(next++ * 7 % rows));
}
static void prepare_dispatch(const struct kernel_args *k, uint64_t *random)
{
    scatter_places(VIEW(DISPATCH, place), VIEW(DISPATCH, y)->rows, random);
}

/* every code but NaN, scales of all sizes; a NaN among them */
static void prepare_dequantize(const struct kernel_args *k, uint64_t *random)
{
    const struct view *x = VIEW(DEQUANTIZE, x);
    uint32_t words = (VIEW(DEQUANTIZE, y)->cols + 3) / 4;
    EACH(x, i, j)
    {
        uint32_t word = (uint32_t)(cuda_cases_draw(random) * 4294967296.0);
        word = i || j ? word & 0xf7f7f7f7u : 0x7fu;
        word = j < words ? word : (uint32_t)(cuda_cases_draw(random) * 20 + 117) << 23;
        memcpy((int32_t *)x->data + (size_t)i * x->ld + j, &word, sizeof word);
    }
}

/* a share of zeros, one of the smallest numbers, one with an infinity */
static void prepare_quantize(const struct kernel_args *k, uint64_t *random)
{
    const struct view *x = VIEW(QUANTIZE, x);
    (void)random;
    for (uint32_t j = 0; j < x->cols && x->rows > 2; j++) {
        cuda_cases_set(x, 0, j, 0);
        cuda_cases_set(x, 1, j, 1e-39 * j);
    }
    cuda_cases_set(x, x->rows - 1, 0, HUGE_VAL);
}

static void prepare_arrange(const struct kernel_args *k, uint64_t *random)
{
    if (VIEW(ARRANGE, need)->data)
        for (uint32_t j = 0; j < 2; j++)
            cuda_cases_set(VIEW(ARRANGE, need), 0, j, cuda_cases_draw(random));
}

static void prepare_once(const struct kernel_args *k, uint64_t *random)
{
    if (VIEW(ARRANGE_ONCE, need)->data)
        for (uint32_t j = 0; j < 2; j++)
            cuda_cases_set(VIEW(ARRANGE_ONCE, need), 0, j, cuda_cases_draw(random));
}

#define D(...)                                                                                               \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }
/* shapes: of few rows and many, of widths with whole packs and without; hidden sizes wide enough for every path */
const struct cuda_case cuda_table[] = {
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
    {.shape.op = OP_SWIGLU, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"limit", 0.5}, {"alpha", 1.702}, {"offset", 1})},
    {.shape.op = OP_SWIGLU_I, .shape.dims = D({"t", 9}, {"h", 104})},
    {.shape.op = OP_SWIGLU_I, .shape.dims = D({"t", 9}, {"h", 37})},
    {.shape.op = OP_SWIGLU_I, .shape.dims = D({"t", 9}, {"h", 37}), .shape.attrs = D({"limit", 0.5}, {"alpha", 1.702}, {"offset", 1})},
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
    {.shape.op = OP_XENT_I, .shape.dims = D({"t", 20}, {"v", 35}), .shape.attrs = D({"vocab", 33}, {"scale", 0.25}), .shape.low = -1, .shape.high = 5, .prepare = prepare_xent, .absent = 1 << OPND(XENT_I, by)},
    {.shape.op = OP_XENT_I, .shape.dims = D({"t", 3}, {"v", 8200}), .shape.attrs = D({"vocab", 8200}, {"scale", 2}), .shape.low = 0, .shape.high = 8200, .prepare = prepare_xent},
    {.shape.op = OP_SQNORM, .shape.dims = D({"t", 9}, {"h", 64}), .shape.attrs = D({"count", 2})},
    {.shape.op = OP_SQNORM, .shape.dims = D({"t", 700}, {"h", 13}), .shape.attrs = D({"count", 1})},
    {.shape.op = OP_CLIP, .shape.attrs = D({"limit", 0.3}), .prepare = prepare_clip},
    {.shape.op = OP_CLIP, .shape.attrs = D({"limit", 0.3}), .prepare = prepare_clip, .absent = 1 << OPND(CLIP, need)},
    {.shape.op = OP_CLIP, .prepare = prepare_clip, .absent = 1 << OPND(CLIP, need)},
    {.shape.op = OP_CLIP_SCALED, .shape.attrs = D({"limit", 0.01}, {"window", 9}, {"hysteresis", 2}), .prepare = prepare_scaled},
    {.shape.op = OP_CLIP_SCALED, .shape.attrs = D({"window", 3}, {"hysteresis", 2}), .prepare = prepare_scaled, .absent = 1 << OPND(CLIP_SCALED, need)},
    {.shape.op = OP_CLIP_SCALED, .shape.attrs = D({"limit", 0.01}, {"window", 1}, {"hysteresis", 2}), .prepare = prepare_lacks},
    {.shape.op = OP_CLIP_SCALED, .shape.attrs = D({"limit", 0.01}, {"window", 1}, {"hysteresis", 2}), .prepare = prepare_overflow},
    {.shape.op = OP_CLIP_SCALED, .shape.attrs = D({"limit", 0.01}, {"window", 1}, {"hysteresis", 2}), .prepare = prepare_first_overflow},
    {.shape.op = OP_ADAMW, .shape.dims = D({"t", 9}, {"h", 64}), .shape.attrs = D({"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}), .prepare = prepare_adamw},
    {.shape.op = OP_ADAMW, .shape.dims = D({"t", 9}, {"h", 13}), .shape.attrs = D({"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}), .prepare = prepare_adamw,
     .absent = 1 << OPND(ADAMW, copy)},
    {.shape.op = OP_ADAMW, .shape.dims = D({"t", 3}, {"h", 8}), .shape.attrs = D({"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}), .prepare = prepare_adamw_refused},
    {.shape.op = OP_ADAMW_AHEAD, .shape.dims = D({"t", 9}, {"h", 64}), .shape.attrs = D({"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}), .prepare = prepare_ahead},
    {.shape.op = OP_ADAMW_AHEAD, .shape.dims = D({"t", 5}, {"h", 13}), .shape.attrs = D({"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"decay", 0.1}), .prepare = prepare_ahead},
    {.shape.op = OP_SGD, .shape.dims = D({"t", 9}, {"h", 64}), .shape.attrs = D({"momentum", 0.9}, {"decay", 0.1}), .prepare = prepare_sgd},
    {.shape.op = OP_SGD, .shape.dims = D({"t", 9}, {"h", 13}), .shape.attrs = D({"decay", 0.1}), .prepare = prepare_sgd, .absent = 1 << OPND(SGD, m) | 1 << OPND(SGD, copy)},
    {.shape.op = OP_TOKENS, .shape.dims = D({"t", 24}), .shape.attrs = D({"sequence", 8}), .staged = STAGED_IDS},
    {.shape.op = OP_TOKENS, .shape.dims = D({"t", 304}), .shape.attrs = D({"sequence", 8}), .staged = STAGED_IDS, .absent = 1 << OPND(TOKENS, tokens)},
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
     .absent = 1 << OPND(ROUTE_I, load) | 1 << OPND(ROUTE_I, by)},
    {.shape.op = OP_ROUTE_I, .shape.dims = D({"t", 13}, {"e", 70}, {"k", 6}, {"s", 2}), .shape.attrs = D({"scale", 1.5}, {"sequence", 8}, {"sigmoid", 1}, {"balance", 0.01}, {"start", 2}, {"normalize", 1}), .prepare = prepare_route_slope},
    {.shape.op = OP_ROUTE_I, .shape.dims = D({"t", 13}, {"e", 70}, {"k", 6}, {"s", 2}), .shape.attrs = D({"scale", 1.5}, {"sequence", 8}, {"balance", 0.01}), .prepare = prepare_route_slope},
    {.shape.op = OP_LOAD, .shape.dims = D({"t", 40}, {"e", 8}, {"k", 2}, {"s", 3}), .shape.attrs = D({"sequence", 16}, {"start", 4}), .shape.low = 0, .shape.high = 9},
    {.shape.op = OP_LOAD, .shape.dims = D({"t", 700}, {"e", 64}, {"k", 6}, {"s", 1}), .shape.attrs = D({"sequence", 4e9}), .shape.low = 0, .shape.high = 64},
    {.shape.op = OP_BALANCE, .shape.dims = D({"t", 40}, {"e", 70}, {"s", 3}), .shape.attrs = D({"sequence", 16}, {"start", 4}, {"scale", 0.1}), .prepare = prepare_balance},
    {.shape.op = OP_BIAS_MOVE, .shape.dims = D({"e", 12}), .shape.attrs = D({"rate", 0.001}), .prepare = prepare_bias_move},
    {.shape.op = OP_BIAS_MOVE, .shape.dims = D({"e", 300}), .shape.attrs = D({"rate", 0.001}), .prepare = prepare_bias_move},
    {.shape.op = OP_ARRANGE, .shape.dims = D({"t", 40}, {"k", 2}), .shape.attrs = D({"experts", 8}, {"blocks", 1}, {"rows", 80}, {"sequence", 16}), .shape.low = 0, .shape.high = 8, .prepare = prepare_arrange},
    {.shape.op = OP_ARRANGE, .shape.dims = D({"t", 700}, {"k", 6}), .shape.attrs = D({"experts", 16}, {"blocks", 4}, {"rows", 1000}, {"sequence", 128}), .shape.low = 0, .shape.high = 16, .prepare = prepare_arrange},
    {.shape.op = OP_ARRANGE, .shape.dims = D({"t", 700}, {"k", 3}), .shape.attrs = D({"experts", 8}, {"blocks", 2}, {"rows", 900}, {"sequence", 512}, {"capacity", 170}, {"start", 100}), .shape.low = -1, .shape.high = 10,
     .prepare = prepare_arrange},
    {.shape.op = OP_ARRANGE, .shape.dims = D({"t", 30}, {"k", 2}), .shape.attrs = D({"experts", 6}, {"blocks", 6}, {"rows", 4}, {"sequence", 8}), .shape.low = 2, .shape.high = 4, .absent = 1 << OPND(ARRANGE, need)},
    {.shape.op = OP_ARRANGE, .shape.dims = D({"t", 60}, {"k", 4}), .shape.attrs = D({"experts", 6}, {"blocks", 3}, {"rows", 30}, {"sequence", 8}, {"tokens", 20}), .shape.low = -2, .shape.high = 6, .prepare = prepare_arrange},
    {.shape.op = OP_ARRANGE_ONCE, .shape.dims = D({"t", 40}, {"k", 2}), .shape.attrs = D({"experts", 8}, {"blocks", 2}, {"rows", 40}, {"sequence", 16}, {"mean", 30}), .shape.low = 0, .shape.high = 8, .prepare = prepare_once},
    {.shape.op = OP_ARRANGE_ONCE, .shape.dims = D({"t", 700}, {"k", 8}), .shape.attrs = D({"experts", 64}, {"blocks", 8}, {"rows", 300}, {"sequence", 128}, {"mean", 360.5}), .shape.low = -1, .shape.high = 66, .prepare = prepare_once},
    {.shape.op = OP_ARRANGE_ONCE, .shape.dims = D({"t", 600}, {"k", 3}), .shape.attrs = D({"experts", 8}, {"blocks", 4}, {"rows", 250}, {"sequence", 256}, {"capacity", 60}, {"start", 100}, {"mean", 200}), .shape.low = 0, .shape.high = 8, .prepare = prepare_once},
    {.shape.op = OP_ARRANGE_ONCE, .shape.dims = D({"t", 30}, {"k", 2}), .shape.attrs = D({"experts", 6}, {"blocks", 6}, {"rows", 4}, {"sequence", 8}, {"mean", 9}), .shape.low = 2, .shape.high = 4, .absent = 1 << OPND(ARRANGE_ONCE, need)},
    {.shape.op = OP_DISPATCH, .shape.dims = D({"t", 20}, {"k", 2}, {"m", 45}, {"h", 48}), .prepare = prepare_dispatch},
    {.shape.op = OP_DISPATCH, .shape.dims = D({"t", 20}, {"k", 3}, {"m", 45}, {"h", 13}), .prepare = prepare_dispatch, .absent = 1 << OPND(DISPATCH, weight)},
    {.shape.op = OP_DISPATCH, .shape.dims = D({"t", 20}, {"k", 3}, {"m", 45}, {"h", 33}), .shape.low = INT32_MIN, .shape.high = INT32_MAX,
     .prepare = prepare_dispatch, .absent = 1 << OPND(DISPATCH, weight), .words = true},
    {.shape.op = OP_DISPATCH, .shape.dims = D({"t", 20}, {"k", 2}, {"m", 45}, {"h", 132}), .shape.low = INT32_MIN, .shape.high = INT32_MAX,
     .prepare = prepare_dispatch, .absent = 1 << OPND(DISPATCH, weight), .words = true},
    {.shape.op = OP_QUANTIZE, .shape.dims = D({"t", 20}, {"h", 512}, {"w", 132}), .prepare = prepare_quantize},
    {.shape.op = OP_QUANTIZE, .shape.dims = D({"t", 3}, {"h", 301}, {"w", 79}), .prepare = prepare_quantize},
    {.shape.op = OP_DEQUANTIZE, .shape.dims = D({"t", 20}, {"h", 512}, {"w", 132}), .prepare = prepare_dequantize},
    {.shape.op = OP_DEQUANTIZE, .shape.dims = D({"t", 3}, {"h", 301}, {"w", 79}), .prepare = prepare_dequantize},
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
#define ELEMENT(name, attribute, value, function)                                                            \
    {.shape.op = OP_##name, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({#attribute, value})},    \
    {.shape.op = OP_##name, .shape.dims = D({"t", 9}, {"h", 7}), .shape.attrs = D({#attribute, value})},
#include "tests/kernels/elements.def"
    {.shape.op = OP_SOFTCAP_I, .shape.dims = D({"t", 9}, {"h", 40}), .shape.attrs = D({"cap", 0.8})},
    {.shape.op = OP_HEADNORM, .shape.dims = D({"t", 9}), .shape.attrs = D({"heads", 3}, {"head", 64}, {"eps", 1e-6})},
    {.shape.op = OP_HEADNORM, .shape.dims = D({"t", 9}), .shape.attrs = D({"heads", 5}, {"head", 12}, {"eps", 1e-6})},
    {.shape.op = OP_HEADNORM_I, .shape.dims = D({"t", 9}), .shape.attrs = D({"heads", 3}, {"head", 64})},
    {.shape.op = OP_SINK, .shape.dims = D({"t", 9}), .shape.attrs = D({"heads", 3}, {"head", 64})},
    {.shape.op = OP_SINK, .shape.dims = D({"t", 13}), .shape.attrs = D({"heads", 5}, {"head", 12})},
    {.shape.op = OP_SINK_W, .shape.dims = D({"t", 90}), .shape.attrs = D({"heads", 3}, {"head", 64}), .tolerance = 1e-5},
    {.shape.op = OP_SINK_W, .shape.dims = D({"t", 9}), .shape.attrs = D({"heads", 5}, {"head", 12}), .tolerance = 1e-5},
    {.shape.op = OP_SINK_W, .shape.dims = D({"t", 2100}), .shape.attrs = D({"heads", 2}, {"head", 8}), .tolerance = 1e-5},
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

const size_t cuda_table_length = sizeof cuda_table / sizeof *cuda_table;
