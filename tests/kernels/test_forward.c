/* Kernels of a forward pass, against plain formulas in double precision. */

#include "tests/kernels/harness.h"

#include <CUnit/CUnit.h>
#include <math.h>

static void ref_fill(struct sample *s)
{
    EACH(s, FILL, y, i, j) AT(s, FILL, y, i, j) = REAL_ATTR(s, FILL, value);
}

static void ref_copy(struct sample *s)
{
    EACH(s, COPY, y, i, j) AT(s, COPY, y, i, j) = AT(s, COPY, x, i, j);
}

static void ref_add(struct sample *s)
{
    EACH(s, ADD, y, i, j)
    AT(s, ADD, y, i, j) = AT(s, ADD, a, i, j) + (s->v[OPND(ADD, b)] ? AT(s, ADD, b, i, j) : 0) +
                          (s->v[OPND(ADD, bias)] ? AT(s, ADD, bias, 0, j) : 0);
}

static void ref_embed(struct sample *s)
{
    EACH(s, EMBED, y, i, j)
    {
        int64_t row = (int64_t)AT(s, EMBED, tokens, i, 0) - INT_ATTR(s, EMBED, start);
        AT(s, EMBED, y, i, j) =
            row >= 0 && row < (int64_t)ROWS(s, EMBED, table) ? AT(s, EMBED, table, row, j) : 0;
    }
}

static void ref_position(struct sample *s)
{
    EACH(s, POSITION, y, i, j)
    AT(s, POSITION, y, i, j) =
        AT(s, POSITION, x, i, j) +
        AT(s, POSITION, table, (i + INT_ATTR(s, POSITION, start)) % INT_ATTR(s, POSITION, sequence), j);
}

static void ref_rmsnorm(struct sample *s)
{
    uint32_t h = COLS(s, RMSNORM, x);
    for (uint32_t i = 0; i < ROWS(s, RMSNORM, x); i++) {
        double sum = 0;
        for (uint32_t j = 0; j < h; j++)
            sum += AT(s, RMSNORM, x, i, j) * AT(s, RMSNORM, x, i, j);
        double r = AT(s, RMSNORM, rstd, i, 0) = 1 / sqrt(sum / h + REAL_ATTR(s, RMSNORM, eps));
        for (uint32_t j = 0; j < h; j++)
            AT(s, RMSNORM, y, i, j) = AT(s, RMSNORM, x, i, j) * r * AT(s, RMSNORM, g, 0, j);
    }
}

static void ref_layernorm(struct sample *s)
{
    uint32_t h = COLS(s, LAYERNORM, x);
    for (uint32_t i = 0; i < ROWS(s, LAYERNORM, x); i++) {
        double mean = 0, var = 0;
        for (uint32_t j = 0; j < h; j++)
            mean += AT(s, LAYERNORM, x, i, j) / h;
        for (uint32_t j = 0; j < h; j++)
            var += (AT(s, LAYERNORM, x, i, j) - mean) * (AT(s, LAYERNORM, x, i, j) - mean) / h;
        double r = 1 / sqrt(var + REAL_ATTR(s, LAYERNORM, eps));
        AT(s, LAYERNORM, mean, i, 0) = mean;
        AT(s, LAYERNORM, rstd, i, 0) = r;
        for (uint32_t j = 0; j < h; j++)
            AT(s, LAYERNORM, y, i, j) = (AT(s, LAYERNORM, x, i, j) - mean) * r * AT(s, LAYERNORM, g, 0, j) +
                                        (s->v[OPND(LAYERNORM, b)] ? AT(s, LAYERNORM, b, 0, j) : 0);
    }
}

static void ref_nt(struct sample *s)
{
    EACH(s, MATMUL_NT, c, i, j)
    {
        double sum = s->v[OPND(MATMUL_NT, bias)] ? AT(s, MATMUL_NT, bias, 0, j) : 0;
        for (uint32_t k = 0; k < COLS(s, MATMUL_NT, a); k++)
            sum += AT(s, MATMUL_NT, a, i, k) * AT(s, MATMUL_NT, b, j, k);
        AT(s, MATMUL_NT, c, i, j) = sum;
    }
}

static void ref_nn(struct sample *s)
{
    EACH(s, MATMUL_NN, c, i, j)
    {
        double sum = 0;
        for (uint32_t k = 0; k < COLS(s, MATMUL_NN, a); k++)
            sum += AT(s, MATMUL_NN, a, i, k) * AT(s, MATMUL_NN, b, k, j);
        AT(s, MATMUL_NN, c, i, j) = sum;
    }
}

static void ref_tn(struct sample *s)
{
    EACH(s, MATMUL_TN, c, i, j)
    {
        double sum = 0;
        for (uint32_t k = 0; k < ROWS(s, MATMUL_TN, a); k++)
            sum += AT(s, MATMUL_TN, a, k, i) * AT(s, MATMUL_TN, b, k, j);
        AT(s, MATMUL_TN, c, i, j) = sum;
    }
}

static void ref_bias(struct sample *s)
{
    for (uint32_t j = 0; j < COLS(s, BIAS_W, dy); j++) {
        AT(s, BIAS_W, db, 0, j) = 0;
        for (uint32_t i = 0; i < ROWS(s, BIAS_W, dy); i++)
            AT(s, BIAS_W, db, 0, j) += AT(s, BIAS_W, dy, i, j);
    }
}

/* rotation written as complex multiplication, frequencies by the published formulas */
static double rope_frequency(const struct sample *s, uint32_t pair)
{
    double f = 1 / pow(REAL_ATTR(s, ROPE, theta), 2.0 * pair / (double)INT_ATTR(s, ROPE, dims));
    double wavelength = 2 * acos(-1) / f, original = REAL_ATTR(s, ROPE, original);
    double low = REAL_ATTR(s, ROPE, low), high = REAL_ATTR(s, ROPE, high),
           factor = REAL_ATTR(s, ROPE, factor);
    if (INT_ATTR(s, ROPE, scaling) == 1)
        return f / factor;
    if (INT_ATTR(s, ROPE, scaling) ==
        3) { /* the pairs at which a wave fits `high` and `low` times, then a ramp */
        double dims = (double)INT_ATTR(s, ROPE, dims), size = log(REAL_ATTR(s, ROPE, theta));
        double first = fmax(0, floor(dims * log(original / (2 * acos(-1) * high)) / (2 * size)));
        double last = fmin(dims - 1, ceil(dims * log(original / (2 * acos(-1) * low)) / (2 * size)));
        double keep = 1 - fmin(1, fmax(0, (pair - first) / (last - first)));
        return f / factor * (1 - keep) + f * keep;
    }
    if (INT_ATTR(s, ROPE, scaling) != 2 || wavelength < original / high)
        return f;
    if (wavelength > original / low)
        return f / factor;
    double smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * f / factor + smooth * f;
}

static void ref_rope(struct sample *s)
{
    uint32_t head = (uint32_t)INT_ATTR(s, ROPE, head), dims = (uint32_t)INT_ATTR(s, ROPE, dims);
    EACH(s, ROPE, y, i, j) AT(s, ROPE, y, i, j) = AT(s, ROPE, x, i, j);
    for (uint32_t i = 0; i < ROWS(s, ROPE, x); i++)
        for (uint32_t c = 0; c < COLS(s, ROPE, x); c += head)
            for (uint32_t p = 0; p < dims / 2; p++) {
                bool adjacent = INT_ATTR(s, ROPE, adjacent);
                uint32_t first = c + (uint32_t)INT_ATTR(s, ROPE, from);
                uint32_t a = first + (adjacent ? 2 * p : p),
                         b = first + (adjacent ? 2 * p + 1 : p + dims / 2);
                double size = REAL_ATTR(s, ROPE, magnitude) > 0 ? REAL_ATTR(s, ROPE, magnitude) : 1;
                double at = (double)((i + INT_ATTR(s, ROPE, start)) % INT_ATTR(s, ROPE, sequence)) *
                            rope_frequency(s, p);
                double sign = INT_ATTR(s, ROPE, inverse) ? -1 : 1, re = size * cos(at),
                       im = size * sign * sin(at);
                AT(s, ROPE, y, i, a) = AT(s, ROPE, x, i, a) * re - AT(s, ROPE, x, i, b) * im;
                AT(s, ROPE, y, i, b) = AT(s, ROPE, x, i, a) * im + AT(s, ROPE, x, i, b) * re;
            }
}

static void ref_attention(struct sample *s)
{
    uint32_t heads = (uint32_t)INT_ATTR(s, ATTENTION, heads), d = (uint32_t)INT_ATTR(s, ATTENTION, head);
    uint32_t shared = heads / (uint32_t)INT_ATTR(s, ATTENTION, kv),
             length = (uint32_t)INT_ATTR(s, ATTENTION, sequence),
             u = COLS(s, ATTENTION, v) / (uint32_t)INT_ATTR(s, ATTENTION, kv);
    int64_t window = INT_ATTR(s, ATTENTION, window);
    double cap = REAL_ATTR(s, ATTENTION, softcap), score[256];
    for (uint32_t i = 0; i < ROWS(s, ATTENTION, q); i++)
        for (uint32_t h = 0; h < heads; h++) {
            uint32_t first = i / length * length;
            double sum = 0;
            for (uint32_t e = 0; e < u; e++)
                AT(s, ATTENTION, o, i, h * u + e) = 0;
            for (uint32_t j = first; j <= i; j++) {
                double dot = 0;
                for (uint32_t e = 0; e < d; e++)
                    dot += AT(s, ATTENTION, q, i, h * d + e) * AT(s, ATTENTION, k, j, h / shared * d + e);
                dot *= REAL_ATTR(s, ATTENTION, scale);
                dot = cap > 0 ? cap * tanh(dot / cap) : dot;
                dot -= (i - j) * harness_slope(INT_ATTR(s, ATTENTION, alibi), INT_ATTR(s, ATTENTION, first_head) + h);
                sum += score[j - first] = window && i - j >= window ? 0 : exp(dot);
            }
            for (uint32_t j = first; j <= i; j++)
                for (uint32_t e = 0; e < u; e++)
                    AT(s, ATTENTION, o, i, h * u + e) +=
                        score[j - first] / sum * AT(s, ATTENTION, v, j, h / shared * u + e);
            AT(s, ATTENTION, lse, i, h) = log(sum);
        }
}

#define ELEMENT(op, attribute, value, function)                                                               \
    static void ref_element_##op(struct sample *s)                                                           \
    {                                                                                                        \
        EACH(s, op, y, i, j)                                                                                 \
        {                                                                                                    \
            double x = AT(s, op, x, i, j), a = value;                                                        \
            AT(s, op, y, i, j) = function;                                                                   \
            (void)a;                                                                                         \
        }                                                                                                    \
    }
#include "tests/kernels/elements.def"

static void ref_headnorm(struct sample *s)
{
    uint32_t d = (uint32_t)INT_ATTR(s, HEADNORM, head);
    EACH(s, HEADNORM, rstd, i, h)
    {
        double sum = 0;
        for (uint32_t e = 0; e < d; e++)
            sum += AT(s, HEADNORM, x, i, h * d + e) * AT(s, HEADNORM, x, i, h * d + e) / d;
        AT(s, HEADNORM, rstd, i, h) = 1 / sqrt(sum + REAL_ATTR(s, HEADNORM, eps));
        for (uint32_t e = 0; e < d; e++)
            AT(s, HEADNORM, y, i, h * d + e) =
                AT(s, HEADNORM, x, i, h * d + e) * AT(s, HEADNORM, rstd, i, h) * AT(s, HEADNORM, g, 0, e);
    }
}

static void ref_sink(struct sample *s)
{
    uint32_t d = (uint32_t)INT_ATTR(s, SINK, head);
    EACH(s, SINK, total, i, h)
    {
        double sum = exp(AT(s, SINK, lse, i, h)) + exp(AT(s, SINK, sink, 0, h));
        AT(s, SINK, total, i, h) = log(sum);
        for (uint32_t e = 0; e < d; e++)
            AT(s, SINK, y, i, h * d + e) = AT(s, SINK, x, i, h * d + e) * exp(AT(s, SINK, lse, i, h)) / sum;
    }
}

static void ref_concat(struct sample *s)
{
    uint32_t h = COLS(s, CONCAT, a);
    EACH(s, CONCAT, y, i, j)
    AT(s, CONCAT, y, i, j) = j < h ? AT(s, CONCAT, a, i, j) : AT(s, CONCAT, b, i, j - h);
}

static void ref_keys(struct sample *s)
{
    uint32_t head = (uint32_t)INT_ATTR(s, MLA_KEYS, head), r = COLS(s, MLA_KEYS, rope);
    uint32_t u = COLS(s, MLA_KEYS, v) / (uint32_t)INT_ATTR(s, MLA_KEYS, heads), one = head - r + u;
    EACH(s, MLA_KEYS, k, i, j)
    AT(s, MLA_KEYS, k, i, j) = j % head < head - r ? AT(s, MLA_KEYS, kv, i, j / head * one + j % head)
                                                   : AT(s, MLA_KEYS, rope, i, j % head - (head - r));
    EACH(s, MLA_KEYS, v, i, j)
    AT(s, MLA_KEYS, v, i, j) = AT(s, MLA_KEYS, kv, i, j / u * one + head - r + j % u);
}

static double gelu(double x, int64_t tanh_form)
{
    return tanh_form ? 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)))
                     : 0.5 * x * (1 + erf(x / sqrt(2)));
}

static void ref_gelu(struct sample *s)
{
    EACH(s, GELU, y, i, j) AT(s, GELU, y, i, j) = gelu(AT(s, GELU, x, i, j), INT_ATTR(s, GELU, tanh));
}

static void ref_relu(struct sample *s)
{
    EACH(s, RELU, y, i, j)
    AT(s, RELU, y, i, j) = pow(fmax(AT(s, RELU, x, i, j), 0), (double)INT_ATTR(s, RELU, power));
}

static void ref_swiglu(struct sample *s)
{
    double limit = REAL_ATTR(s, SWIGLU, limit), alpha = REAL_ATTR(s, SWIGLU, alpha);
    limit = limit > 0 ? limit : INFINITY;
    alpha = alpha > 0 ? alpha : 1;
    EACH(s, SWIGLU, y, i, j)
    {
        double gate = fmin(AT(s, SWIGLU, gate, i, j), limit);
        double up = fmin(fmax(AT(s, SWIGLU, up, i, j), -limit), limit) + REAL_ATTR(s, SWIGLU, offset);
        AT(s, SWIGLU, y, i, j) = gate / (1 + exp(-alpha * gate)) * up;
    }
}

static void ref_geglu(struct sample *s)
{
    EACH(s, GEGLU, y, i, j)
    AT(s, GEGLU, y, i, j) = gelu(AT(s, GEGLU, gate, i, j), INT_ATTR(s, GEGLU, tanh)) * AT(s, GEGLU, up, i, j);
}

static void ref_max(struct sample *s)
{
    for (uint32_t i = 0; i < ROWS(s, XENT_MAX, logits); i++) {
        AT(s, XENT_MAX, max, i, 0) = -INFINITY;
        for (uint32_t j = 0; j < COLS(s, XENT_MAX, logits); j++)
            if (INT_ATTR(s, XENT_MAX, start) + j < INT_ATTR(s, XENT_MAX, vocab))
                AT(s, XENT_MAX, max, i, 0) = fmax(AT(s, XENT_MAX, max, i, 0), AT(s, XENT_MAX, logits, i, j));
    }
}

static void ref_sum(struct sample *s)
{
    for (uint32_t i = 0; i < ROWS(s, XENT_SUM, logits); i++) {
        AT(s, XENT_SUM, sum, i, 0) = AT(s, XENT_SUM, sum, i, 1) = 0;
        for (uint32_t j = 0; j < COLS(s, XENT_SUM, logits); j++) {
            int64_t id = INT_ATTR(s, XENT_SUM, start) + j;
            double x = AT(s, XENT_SUM, logits, i, j) - AT(s, XENT_SUM, max, i, 0);
            if (id >= INT_ATTR(s, XENT_SUM, vocab))
                continue;
            AT(s, XENT_SUM, sum, i, 0) += exp(x);
            if (id == (int64_t)AT(s, XENT_SUM, targets, i, 0))
                AT(s, XENT_SUM, sum, i, 1) = x;
        }
    }
}

static const struct kernel_case cases[] = {
    {OP_FILL, {{"t", 5}, {"h", 7}}, {{"value", 0.5}}, NULL, ref_fill, 0, 0, 0},
    {OP_COPY, {{"t", 5}, {"h", 7}}, {{0}}, NULL, ref_copy, 0, 0, 0},
    {OP_ADD, {{"t", 5}, {"h", 7}}, {{0}}, NULL, ref_add, 0, 0, 0},
    {OP_ADD, {{"t", 5}, {"h", 7}}, {{0}}, NULL, ref_add, 0, 0, 1 << OPND(ADD, b)},
    {OP_ADD, {{"t", 5}, {"h", 7}}, {{0}}, NULL, ref_add, 0, 0, 1 << OPND(ADD, bias)},
    {OP_EMBED, {{"t", 9}, {"h", 5}, {"v", 4}}, {{"start", 3}}, NULL, ref_embed, 10, 0, 0},
    {OP_POSITION,
     {{"t", 9}, {"h", 5}, {"s", 6}},
     {{"start", 2}, {"sequence", 5}},
     NULL,
     ref_position,
     0,
     0,
     0},
    {OP_RMSNORM, {{"t", 4}, {"h", 21}}, {{"eps", 1e-5}}, NULL, ref_rmsnorm, 0, 0, 0},
    {OP_LAYERNORM, {{"t", 4}, {"h", 21}}, {{"eps", 1e-5}}, NULL, ref_layernorm, 0, 0, 0},
    {OP_LAYERNORM,
     {{"t", 4}, {"h", 16}},
     {{"eps", 1e-5}},
     NULL,
     ref_layernorm,
     0,
     0,
     1 << OPND(LAYERNORM, b)},
    {OP_MATMUL_NT, {{"m", 9}, {"n", 13}, {"k", 17}}, {{0}}, NULL, ref_nt, 0, 0, 0},
    {OP_MATMUL_NT, {{"m", 9}, {"n", 13}, {"k", 17}}, {{0}}, NULL, ref_nt, 0, 0, 1 << OPND(MATMUL_NT, bias)},
    {OP_MATMUL_NN, {{"m", 9}, {"n", 13}, {"k", 17}}, {{0}}, NULL, ref_nn, 0, 0, 0},
    {OP_MATMUL_TN, {{"m", 9}, {"n", 13}, {"k", 17}}, {{0}}, NULL, ref_tn, 0, 0, 0},
    {OP_BIAS_W, {{"t", 12}, {"h", 7}}, {{0}}, NULL, ref_bias, 0, 0, 0},
    {OP_ROPE,
     {{"t", 12}, {"a", 16}},
     {{"head", 8}, {"dims", 8}, {"sequence", 6}, {"theta", 10000}},
     NULL,
     ref_rope,
     0,
     0,
     0},
    {OP_ROPE,
     {{"t", 4}, {"a", 16}},
     {{"head", 8},
      {"dims", 6},
      {"adjacent", 1},
      {"inverse", 1},
      {"start", 4},
      {"sequence", 8},
      {"theta", 100},
      {"scaling", 1},
      {"factor", 4}},
     NULL,
     ref_rope,
     0,
     0,
     0},
    {OP_ROPE,
     {{"t", 40}, {"a", 8}},
     {{"head", 8},
      {"dims", 8},
      {"sequence", 40},
      {"theta", 500},
      {"scaling", 2},
      {"factor", 8},
      {"low", 1},
      {"high", 4},
      {"original", 32}},
     NULL,
     ref_rope,
     0,
     0,
     0},
    {OP_ROPE,
     {{"t", 40}, {"a", 28}},
     {{"head", 14},
      {"dims", 12},
      {"from", 2},
      {"magnitude", 1.25},
      {"sequence", 40},
      {"theta", 50},
      {"scaling", 3},
      {"factor", 4},
      {"low", 1},
      {"high", 3},
      {"original", 32}},
     NULL,
     ref_rope,
     0,
     0,
     0},
    {OP_ATTENTION,
     {{"t", 150}, {"u", 5}},
     {{"heads", 4}, {"kv", 2}, {"head", 3}, {"sequence", 75}, {"scale", 0.7}},
     NULL,
     ref_attention,
     0,
     0,
     0},
    {OP_ATTENTION,
     {{"t", 140}, {"u", 4}},
     {{"heads", 2}, {"kv", 1}, {"head", 4}, {"sequence", 140}, {"scale", 3}, {"window", 33}, {"softcap", 2}},
     NULL,
     ref_attention,
     0,
     4e-6,
     0},
    /* heads 1 to 6 of 7, of which 4 are the power of 2 */
    {OP_ATTENTION,
     {{"t", 70}, {"u", 2}},
     {{"heads", 6}, {"kv", 3}, {"head", 2}, {"sequence", 35}, {"scale", 0.7}, {"alibi", 7}, {"first_head", 1}},
     NULL,
     ref_attention,
     0,
     0,
     0},
    {OP_ATTENTION,
     {{"t", 140}, {"u", 4}},
     {{"heads", 2}, {"kv", 1}, {"head", 4}, {"sequence", 140}, {"scale", 3}, {"window", 33}, {"softcap", 2}, {"alibi", 8},
      {"first_head", 4}},
     NULL,
     ref_attention,
     0,
     4e-6,
     0},
#define ELEMENT(op, attribute, value, function)                                                              \
    {OP_##op, {{"t", 5}, {"h", 9}}, {{#attribute, value}}, NULL, ref_element_##op, 0, 0, 0},
#include "tests/kernels/elements.def"
    {OP_HEADNORM, {{"t", 4}}, {{"heads", 3}, {"head", 5}, {"eps", 1e-5}}, NULL, ref_headnorm, 0, 0, 0},
    {OP_MLA_KEYS,
     {{"t", 4}, {"w", 18}, {"r", 2}, {"u", 3}},
     {{"heads", 3}, {"head", 5}},
     NULL,
     ref_keys,
     0,
     0,
     0},
    {OP_SINK, {{"t", 5}}, {{"heads", 3}, {"head", 4}}, NULL, ref_sink, 0, 0, 0},
    {OP_CONCAT, {{"t", 5}, {"h", 9}, {"w", 18}}, {{0}}, NULL, ref_concat, 0, 0, 0},
    {OP_GELU, {{"t", 5}, {"h", 9}}, {{"tanh", 0}}, NULL, ref_gelu, 0, 0, 0},
    {OP_GELU, {{"t", 5}, {"h", 9}}, {{"tanh", 1}}, NULL, ref_gelu, 0, 0, 0},
    {OP_RELU, {{"t", 5}, {"h", 9}}, {{"power", 1}}, NULL, ref_relu, 0, 0, 0},
    {OP_RELU, {{"t", 5}, {"h", 9}}, {{"power", 2}}, NULL, ref_relu, 0, 0, 0},
    {OP_SWIGLU, {{"t", 5}, {"h", 9}}, {{0}}, NULL, ref_swiglu, 0, 0, 0},
    {OP_SWIGLU, {{"t", 5}, {"h", 9}}, {{"limit", 0.5}}, NULL, ref_swiglu, 0, 0, 0},
    {OP_SWIGLU, {{"t", 5}, {"h", 9}}, {{"limit", 0.7}, {"alpha", 1.702}, {"offset", 1}}, NULL, ref_swiglu, 0, 0, 0},
    {OP_GEGLU, {{"t", 5}, {"h", 9}}, {{"tanh", 0}}, NULL, ref_geglu, 0, 0, 0},
    {OP_GEGLU, {{"t", 5}, {"h", 9}}, {{"tanh", 1}}, NULL, ref_geglu, 0, 0, 0},
    {OP_XENT_MAX, {{"t", 5}, {"v", 9}}, {{"start", 9}, {"vocab", 15}}, NULL, ref_max, 0, 0, 0},
    {OP_XENT_MAX, {{"t", 5}, {"v", 9}}, {{"start", 18}, {"vocab", 15}}, NULL, ref_max, 0, 0, 0},
    {OP_XENT_SUM, {{"t", 9}, {"v", 9}}, {{"start", 9}, {"vocab", 15}}, NULL, ref_sum, 15, 0, 0},
};

static void test_all(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        harness_check(&cases[i]);
}

void suite_forward(void);
void suite_forward(void)
{
    CU_pSuite s = CU_add_suite("forward", NULL, NULL);
    CU_add_test(s, "kernels equal plain formulas", test_all);
}
