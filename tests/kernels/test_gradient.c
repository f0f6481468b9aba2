/* Gradient kernels against central differences of their forward formulas, all in double precision. */

#include "tests/kernels/harness.h"

#include <CUnit/CUnit.h>
#include <math.h>

static const double EPS = 1e-5;

static double rms(const double *x, uint32_t h)
{
    double sum = 0;
    for (uint32_t j = 0; j < h; j++)
        sum += x[j] * x[j];
    return 1 / sqrt(sum / h + EPS);
}

/* normalises x into mean and 1 / standard deviation */
static void moments(const double *x, uint32_t h, double *mean, double *rstd)
{
    double var = 0;
    *mean = 0;
    for (uint32_t j = 0; j < h; j++)
        *mean += x[j] / h;
    for (uint32_t j = 0; j < h; j++)
        var += (x[j] - *mean) * (x[j] - *mean) / h;
    *rstd = 1 / sqrt(var + EPS);
}

/* sum of dy * y over rows, y the normalised x times g */
static double norm_objective(const double *x, const double *g, const double *dy, uint32_t rows, uint32_t h,
                             bool layer)
{
    double sum = 0;
    for (uint32_t i = 0; i < rows; i++, x += h, dy += h) {
        double mean = 0, r = rms(x, h);
        if (layer)
            moments(x, h, &mean, &r);
        for (uint32_t j = 0; j < h; j++)
            sum += dy[j] * (x[j] - mean) * r * (g ? g[j] : 1);
    }
    return sum;
}

static double of_rmsnorm_i(const struct sample *s)
{
    return norm_objective(s->v[OPND(RMSNORM_I, x)], s->v[OPND(RMSNORM_I, g)], s->v[OPND(RMSNORM_I, dy)],
                          ROWS(s, RMSNORM_I, x), COLS(s, RMSNORM_I, x), false);
}

static double of_layernorm_i(const struct sample *s)
{
    return norm_objective(s->v[OPND(LAYERNORM_I, x)], s->v[OPND(LAYERNORM_I, g)], s->v[OPND(LAYERNORM_I, dy)],
                          ROWS(s, LAYERNORM_I, x), COLS(s, LAYERNORM_I, x), true);
}

static void stats(double *mean, double *rstd, const double *x, uint32_t rows, uint32_t h)
{
    for (uint32_t i = 0; i < rows; i++) {
        double m = 0, r = rms(x + (size_t)i * h, h);
        if (mean)
            moments(x + (size_t)i * h, h, &m, &r);
        if (mean)
            mean[i] = m;
        rstd[i] = r;
    }
}

static void prepare_rmsnorm_i(struct sample *s)
{
    stats(NULL, s->v[OPND(RMSNORM_I, rstd)], s->v[OPND(RMSNORM_I, x)], ROWS(s, RMSNORM_I, x),
          COLS(s, RMSNORM_I, x));
}

static void prepare_rmsnorm_w(struct sample *s)
{
    stats(NULL, s->v[OPND(RMSNORM_W, rstd)], s->v[OPND(RMSNORM_W, x)], ROWS(s, RMSNORM_W, x),
          COLS(s, RMSNORM_W, x));
}

static void prepare_layernorm_i(struct sample *s)
{
    stats(s->v[OPND(LAYERNORM_I, mean)], s->v[OPND(LAYERNORM_I, rstd)], s->v[OPND(LAYERNORM_I, x)],
          ROWS(s, LAYERNORM_I, x), COLS(s, LAYERNORM_I, x));
}

static void prepare_layernorm_w(struct sample *s)
{
    stats(s->v[OPND(LAYERNORM_W, mean)], s->v[OPND(LAYERNORM_W, rstd)], s->v[OPND(LAYERNORM_W, x)],
          ROWS(s, LAYERNORM_W, x), COLS(s, LAYERNORM_W, x));
}

static void ref_rmsnorm_i(struct sample *s)
{
    harness_differentiate(s, of_rmsnorm_i, OPND(RMSNORM_I, x), OPND(RMSNORM_I, dx));
}

static void ref_layernorm_i(struct sample *s)
{
    harness_differentiate(s, of_layernorm_i, OPND(LAYERNORM_I, x), OPND(LAYERNORM_I, dx));
}

/* y is linear in g and b, so the gradients are plain sums */
static void ref_rmsnorm_w(struct sample *s)
{
    for (uint32_t j = 0; j < COLS(s, RMSNORM_W, x); j++) {
        AT(s, RMSNORM_W, dg, 0, j) = 0;
        for (uint32_t i = 0; i < ROWS(s, RMSNORM_W, x); i++)
            AT(s, RMSNORM_W, dg, 0, j) +=
                AT(s, RMSNORM_W, dy, i, j) * AT(s, RMSNORM_W, x, i, j) * AT(s, RMSNORM_W, rstd, i, 0);
    }
}

static void ref_layernorm_w(struct sample *s)
{
    for (uint32_t j = 0; j < COLS(s, LAYERNORM_W, x); j++) {
        double dg = 0, db = 0;
        for (uint32_t i = 0; i < ROWS(s, LAYERNORM_W, x); i++) {
            dg += AT(s, LAYERNORM_W, dy, i, j) *
                  (AT(s, LAYERNORM_W, x, i, j) - AT(s, LAYERNORM_W, mean, i, 0)) *
                  AT(s, LAYERNORM_W, rstd, i, 0);
            db += AT(s, LAYERNORM_W, dy, i, j);
        }
        AT(s, LAYERNORM_W, dg, 0, j) = dg;
        if (s->v[OPND(LAYERNORM_W, db)])
            AT(s, LAYERNORM_W, db, 0, j) = db;
    }
}

static void ref_embed_w(struct sample *s)
{
    EACH(s, EMBED_W, dtable, i, j) AT(s, EMBED_W, dtable, i, j) = 0;
    EACH(s, EMBED_W, dy, i, j)
    {
        int64_t row = (int64_t)AT(s, EMBED_W, tokens, i, 0) - INT_ATTR(s, EMBED_W, start);
        if (row >= 0 && row < (int64_t)ROWS(s, EMBED_W, dtable))
            AT(s, EMBED_W, dtable, row, j) += AT(s, EMBED_W, dy, i, j);
    }
}

static void ref_position_w(struct sample *s)
{
    EACH(s, POSITION_W, dtable, i, j) AT(s, POSITION_W, dtable, i, j) = 0;
    EACH(s, POSITION_W, dy, i, j)
    AT(s, POSITION_W, dtable, (i + INT_ATTR(s, POSITION_W, start)) % INT_ATTR(s, POSITION_W, sequence), j) +=
        AT(s, POSITION_W, dy, i, j);
}

static double gelu(double x, int64_t tanh_form)
{
    return tanh_form ? 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)))
                     : 0.5 * x * (1 + erf(x / sqrt(2)));
}

static double of_gelu(const struct sample *s)
{
    double sum = 0;
    EACH(s, GELU_I, x, i, j)
    sum += AT(s, GELU_I, dy, i, j) * gelu(AT(s, GELU_I, x, i, j), INT_ATTR(s, GELU_I, tanh));
    return sum;
}

static void ref_gelu_i(struct sample *s)
{
    harness_differentiate(s, of_gelu, OPND(GELU_I, x), OPND(GELU_I, dx));
}

static double of_relu(const struct sample *s)
{
    double sum = 0;
    EACH(s, RELU_I, x, i, j)
    sum += AT(s, RELU_I, dy, i, j) * pow(fmax(AT(s, RELU_I, x, i, j), 0), (double)INT_ATTR(s, RELU_I, power));
    return sum;
}

static void ref_relu_i(struct sample *s)
{
    harness_differentiate(s, of_relu, OPND(RELU_I, x), OPND(RELU_I, dx));
}

static double of_swiglu(const struct sample *s)
{
    double sum = 0, limit = REAL_ATTR(s, SWIGLU_I, limit), alpha = REAL_ATTR(s, SWIGLU_I, alpha);
    limit = limit > 0 ? limit : INFINITY;
    alpha = alpha > 0 ? alpha : 1;
    EACH(s, SWIGLU_I, up, i, j)
    {
        double gate = fmin(AT(s, SWIGLU_I, gate, i, j), limit);
        double up = fmin(fmax(AT(s, SWIGLU_I, up, i, j), -limit), limit) + REAL_ATTR(s, SWIGLU_I, offset);
        sum += AT(s, SWIGLU_I, dy, i, j) * up * gate / (1 + exp(-alpha * gate));
    }
    return sum;
}

static void ref_swiglu_i(struct sample *s)
{
    harness_differentiate(s, of_swiglu, OPND(SWIGLU_I, gate), OPND(SWIGLU_I, dgate));
    harness_differentiate(s, of_swiglu, OPND(SWIGLU_I, up), OPND(SWIGLU_I, dup));
}

static double of_geglu(const struct sample *s)
{
    double sum = 0;
    EACH(s, GEGLU_I, up, i, j)
    sum += AT(s, GEGLU_I, dy, i, j) * AT(s, GEGLU_I, up, i, j) *
           gelu(AT(s, GEGLU_I, gate, i, j), INT_ATTR(s, GEGLU_I, tanh));
    return sum;
}

static void ref_geglu_i(struct sample *s)
{
    harness_differentiate(s, of_geglu, OPND(GEGLU_I, gate), OPND(GEGLU_I, dgate));
    harness_differentiate(s, of_geglu, OPND(GEGLU_I, up), OPND(GEGLU_I, dup));
}

/* one query row's attention; out gets its output, the log-sum-exp is returned */
static double attend(const struct sample *s, uint32_t i, uint32_t h, double *out)
{
    uint32_t d = (uint32_t)INT_ATTR(s, ATTENTION_I, head),
             u = COLS(s, ATTENTION_I, v) / (uint32_t)INT_ATTR(s, ATTENTION_I, kv),
             length = (uint32_t)INT_ATTR(s, ATTENTION_I, sequence);
    uint32_t kv = h / (uint32_t)(INT_ATTR(s, ATTENTION_I, heads) / INT_ATTR(s, ATTENTION_I, kv));
    int64_t window = INT_ATTR(s, ATTENTION_I, window);
    double cap = REAL_ATTR(s, ATTENTION_I, softcap), sum = 0;
    for (uint32_t e = 0; e < u; e++)
        out[e] = 0;
    for (uint32_t j = i / length * length; j <= i; j++) {
        double dot = 0;
        if (window && i - j >= window)
            continue;
        for (uint32_t e = 0; e < d; e++)
            dot += AT(s, ATTENTION_I, q, i, h * d + e) * AT(s, ATTENTION_I, k, j, kv * d + e);
        dot *= REAL_ATTR(s, ATTENTION_I, scale);
        dot = cap > 0 ? cap * tanh(dot / cap) : dot;
        double weight =
            exp(dot - (i - j) * harness_slope(INT_ATTR(s, ATTENTION_I, alibi), INT_ATTR(s, ATTENTION_I, first_head) + h));
        sum += weight;
        for (uint32_t e = 0; e < u; e++)
            out[e] += weight * AT(s, ATTENTION_I, v, j, kv * u + e);
    }
    for (uint32_t e = 0; e < u; e++)
        out[e] /= sum;
    return log(sum);
}

static double of_attention(const struct sample *s)
{
    uint32_t d = COLS(s, ATTENTION_I, v) / (uint32_t)INT_ATTR(s, ATTENTION_I, kv);
    double sum = 0, out[16];
    for (uint32_t i = 0; i < ROWS(s, ATTENTION_I, q); i++)
        for (uint32_t h = 0; h < INT_ATTR(s, ATTENTION_I, heads); h++) {
            attend(s, i, h, out);
            for (uint32_t e = 0; e < d; e++)
                sum += out[e] * AT(s, ATTENTION_I, dout, i, h * d + e);
        }
    return sum;
}

static void prepare_attention(struct sample *s)
{
    uint32_t d = COLS(s, ATTENTION_I, v) / (uint32_t)INT_ATTR(s, ATTENTION_I, kv);
    for (uint32_t i = 0; i < ROWS(s, ATTENTION_I, q); i++)
        for (uint32_t h = 0; h < INT_ATTR(s, ATTENTION_I, heads); h++)
            AT(s, ATTENTION_I, lse, i, h) = attend(s, i, h, &AT(s, ATTENTION_I, o, i, h * d));
}

static void ref_attention_i(struct sample *s)
{
    harness_differentiate(s, of_attention, OPND(ATTENTION_I, q), OPND(ATTENTION_I, dq));
    harness_differentiate(s, of_attention, OPND(ATTENTION_I, k), OPND(ATTENTION_I, dk));
    harness_differentiate(s, of_attention, OPND(ATTENTION_I, v), OPND(ATTENTION_I, dv));
}

/* loss of all rows over valid columns, times scale */
static double of_xent(const struct sample *s)
{
    double loss = 0;
    for (uint32_t i = 0; i < ROWS(s, XENT_I, logits); i++) {
        double sum = 0;
        for (uint32_t j = 0; j < COLS(s, XENT_I, logits); j++)
            if (INT_ATTR(s, XENT_I, start) + j < INT_ATTR(s, XENT_I, vocab))
                sum += exp(AT(s, XENT_I, logits, i, j));
        loss += log(sum);
        int64_t target = (int64_t)AT(s, XENT_I, targets, i, 0) - INT_ATTR(s, XENT_I, start);
        if (target >= 0 && target < (int64_t)COLS(s, XENT_I, logits))
            loss -= AT(s, XENT_I, logits, i, target);
    }
    return loss * REAL_ATTR(s, XENT_I, scale) * (s->v[OPND(XENT_I, by)] ? AT(s, XENT_I, by, 0, 0) : 1);
}

static void prepare_xent(struct sample *s)
{
    for (uint32_t i = 0; i < ROWS(s, XENT_I, logits); i++) {
        double sum = 0;
        AT(s, XENT_I, max, i, 0) = 0.75; /* any shift will do: the kernel must take it from here */
        for (uint32_t j = 0; j < COLS(s, XENT_I, logits); j++)
            if (INT_ATTR(s, XENT_I, start) + j < INT_ATTR(s, XENT_I, vocab))
                sum += exp(AT(s, XENT_I, logits, i, j) - 0.75);
        AT(s, XENT_I, sum, i, 0) = sum;
    }
}

static void prepare_scaled_xent(struct sample *s)
{
    prepare_xent(s);
    AT(s, XENT_I, by, 0, 0) = 1024;
}

static void ref_xent_i(struct sample *s)
{
    harness_differentiate(s, of_xent, OPND(XENT_I, logits), OPND(XENT_I, dlogits));
}

static double of_softcap(const struct sample *s)
{
    double sum = 0, cap = REAL_ATTR(s, SOFTCAP_I, cap);
    EACH(s, SOFTCAP_I, x, i, j)
    sum += AT(s, SOFTCAP_I, dy, i, j) * cap * tanh(AT(s, SOFTCAP_I, x, i, j) / cap);
    return sum;
}

static void ref_softcap_i(struct sample *s)
{
    harness_differentiate(s, of_softcap, OPND(SOFTCAP_I, x), OPND(SOFTCAP_I, dx));
}

/* a matrix of heads is, row-major, a matrix of one head per row */
static double of_headnorm_i(const struct sample *s)
{
    uint32_t d = (uint32_t)INT_ATTR(s, HEADNORM_I, head);
    return norm_objective(s->v[OPND(HEADNORM_I, x)], s->v[OPND(HEADNORM_I, g)], s->v[OPND(HEADNORM_I, dy)],
                          ROWS(s, HEADNORM_I, x) * (COLS(s, HEADNORM_I, x) / d), d, false);
}

static void prepare_headnorm_i(struct sample *s)
{
    uint32_t d = (uint32_t)INT_ATTR(s, HEADNORM_I, head);
    stats(NULL, s->v[OPND(HEADNORM_I, rstd)], s->v[OPND(HEADNORM_I, x)],
          ROWS(s, HEADNORM_I, x) * (COLS(s, HEADNORM_I, x) / d), d);
}

static void ref_headnorm_i(struct sample *s)
{
    harness_differentiate(s, of_headnorm_i, OPND(HEADNORM_I, x), OPND(HEADNORM_I, dx));
}

static void ref_headnorm_w(struct sample *s)
{
    uint32_t d = (uint32_t)INT_ATTR(s, HEADNORM_W, head);
    for (uint32_t e = 0; e < d; e++)
        AT(s, HEADNORM_W, dg, 0, e) = 0;
    EACH(s, HEADNORM_W, x, i, j)
    AT(s, HEADNORM_W, dg, 0, j % d) +=
        AT(s, HEADNORM_W, dy, i, j) * AT(s, HEADNORM_W, x, i, j) * AT(s, HEADNORM_W, rstd, i, j / d);
}

/* test_sinks.c has the differences, of all of attention */
static void ref_sink_w(struct sample *s)
{
    uint32_t d = (uint32_t)INT_ATTR(s, SINK_W, head);
    for (uint32_t h = 0; h < COLS(s, SINK_W, dsink); h++)
        AT(s, SINK_W, dsink, 0, h) = 0;
    EACH(s, SINK_W, y, i, j)
    AT(s, SINK_W, dsink, 0, j / d) -= exp(AT(s, SINK_W, sink, 0, j / d) - AT(s, SINK_W, total, i, j / d)) *
                                      AT(s, SINK_W, dy, i, j) * AT(s, SINK_W, y, i, j);
}

static void ref_concat_i(struct sample *s)
{
    uint32_t h = COLS(s, CONCAT_I, da);
    EACH(s, CONCAT_I, dy, i, j)
    *(j < h ? &AT(s, CONCAT_I, da, i, j) : &AT(s, CONCAT_I, db, i, j - h)) = AT(s, CONCAT_I, dy, i, j);
}

static void ref_keys_i(struct sample *s)
{
    uint32_t heads = (uint32_t)INT_ATTR(s, MLA_KEYS_I, heads), head = (uint32_t)INT_ATTR(s, MLA_KEYS_I, head);
    uint32_t r = COLS(s, MLA_KEYS_I, drope), u = COLS(s, MLA_KEYS_I, dv) / heads, one = head - r + u;
    EACH(s, MLA_KEYS_I, dkv, i, j)
    {
        uint32_t h = j / one, c = j % one;
        AT(s, MLA_KEYS_I, dkv, i, j) = c < head - r ? AT(s, MLA_KEYS_I, dk, i, h * head + c)
                                                    : AT(s, MLA_KEYS_I, dv, i, h * u + c - (head - r));
    }
    EACH(s, MLA_KEYS_I, drope, i, j)
    {
        AT(s, MLA_KEYS_I, drope, i, j) = 0;
        for (uint32_t h = 0; h < heads; h++)
            AT(s, MLA_KEYS_I, drope, i, j) += AT(s, MLA_KEYS_I, dk, i, h * head + head - r + j);
    }
}

static const struct kernel_case cases[] = {
    {OP_RMSNORM_I, {{"t", 4}, {"h", 13}}, {{0}}, prepare_rmsnorm_i, ref_rmsnorm_i, 0, 5e-6, 0},
    {OP_RMSNORM_W, {{"t", 4}, {"h", 13}}, {{0}}, prepare_rmsnorm_w, ref_rmsnorm_w, 0, 0, 0},
    {OP_LAYERNORM_I, {{"t", 4}, {"h", 13}}, {{0}}, prepare_layernorm_i, ref_layernorm_i, 0, 5e-6, 0},
    {OP_LAYERNORM_W, {{"t", 4}, {"h", 13}}, {{0}}, prepare_layernorm_w, ref_layernorm_w, 0, 0, 0},
    {OP_LAYERNORM_W,
     {{"t", 4}, {"h", 13}},
     {{0}},
     prepare_layernorm_w,
     ref_layernorm_w,
     0,
     0,
     1 << OPND(LAYERNORM_W, db)},
    {OP_EMBED_W, {{"t", 19}, {"h", 5}, {"v", 4}}, {{"start", 3}}, NULL, ref_embed_w, 10, 0, 0},
    {OP_POSITION_W,
     {{"t", 9}, {"h", 5}, {"s", 6}},
     {{"start", 2}, {"sequence", 5}},
     NULL,
     ref_position_w,
     0,
     0,
     0},
    {OP_GELU_I, {{"t", 5}, {"h", 9}}, {{"tanh", 0}}, NULL, ref_gelu_i, 0, 0, 0},
    {OP_GELU_I, {{"t", 5}, {"h", 9}}, {{"tanh", 1}}, NULL, ref_gelu_i, 0, 0, 0},
    {OP_RELU_I, {{"t", 5}, {"h", 9}}, {{"power", 1}}, NULL, ref_relu_i, 0, 0, 0},
    {OP_RELU_I, {{"t", 5}, {"h", 9}}, {{"power", 2}}, NULL, ref_relu_i, 0, 0, 0},
    {OP_SWIGLU_I, {{"t", 5}, {"h", 9}}, {{0}}, NULL, ref_swiglu_i, 0, 0, 0},
    {OP_SWIGLU_I, {{"t", 5}, {"h", 9}}, {{"limit", 0.5}}, NULL, ref_swiglu_i, 0, 0, 0},
    {OP_SWIGLU_I, {{"t", 5}, {"h", 9}}, {{"limit", 0.7}, {"alpha", 1.702}, {"offset", 1}}, NULL, ref_swiglu_i, 0, 0, 0},
    {OP_GEGLU_I, {{"t", 5}, {"h", 9}}, {{"tanh", 0}}, NULL, ref_geglu_i, 0, 0, 0},
    {OP_GEGLU_I, {{"t", 5}, {"h", 9}}, {{"tanh", 1}}, NULL, ref_geglu_i, 0, 0, 0},
    {OP_ATTENTION_I,
     {{"t", 16}, {"u", 5}},
     {{"heads", 4}, {"kv", 2}, {"head", 3}, {"sequence", 8}, {"scale", 0.7}},
     prepare_attention,
     ref_attention_i,
     0,
     1e-5,
     0},
    {OP_ATTENTION_I,
     {{"t", 72}, {"u", 2}},
     {{"heads", 1}, {"kv", 1}, {"head", 2}, {"sequence", 72}, {"scale", 2}, {"window", 9}, {"softcap", 1.5}},
     prepare_attention,
     ref_attention_i,
     0,
     1e-5,
     0},
    {OP_ATTENTION_I,
     {{"t", 24}, {"u", 2}},
     {{"heads", 6}, {"kv", 3}, {"head", 2}, {"sequence", 12}, {"scale", 1.3}, {"alibi", 7}, {"first_head", 1}},
     prepare_attention,
     ref_attention_i,
     0,
     1e-5,
     0},
    {OP_ATTENTION_I,
     {{"t", 72}, {"u", 2}},
     {{"heads", 1}, {"kv", 1}, {"head", 2}, {"sequence", 72}, {"scale", 2}, {"window", 9}, {"softcap", 1.5}, {"alibi", 3},
      {"first_head", 2}},
     prepare_attention,
     ref_attention_i,
     0,
     1e-5,
     0},
    {OP_SOFTCAP_I, {{"t", 5}, {"h", 9}}, {{"cap", 1.5}}, NULL, ref_softcap_i, 0, 0, 0},
    {OP_HEADNORM_I, {{"t", 4}}, {{"heads", 3}, {"head", 5}}, prepare_headnorm_i, ref_headnorm_i, 0, 5e-6, 0},
    {OP_HEADNORM_W, {{"t", 4}}, {{"heads", 3}, {"head", 5}}, NULL, ref_headnorm_w, 0, 0, 0},
    {OP_SINK_W, {{"t", 7}}, {{"heads", 3}, {"head", 4}}, NULL, ref_sink_w, 0, 0, 0},
    {OP_CONCAT_I, {{"t", 5}, {"h", 9}, {"w", 18}}, {{0}}, NULL, ref_concat_i, 0, 0, 0},
    {OP_MLA_KEYS_I,
     {{"t", 4}, {"w", 18}, {"r", 2}, {"u", 3}},
     {{"heads", 3}, {"head", 5}},
     NULL,
     ref_keys_i,
     0,
     0,
     0},
    {OP_XENT_I,
     {{"t", 7}, {"v", 9}},
     {{"start", 9}, {"vocab", 15}, {"scale", 0.3}},
     prepare_xent,
     ref_xent_i,
     15,
     0,
     1 << OPND(XENT_I, by)},
    {OP_XENT_I, {{"t", 7}, {"v", 9}}, {{"start", 9}, {"vocab", 15}, {"scale", 0.3}}, prepare_scaled_xent, ref_xent_i, 15, 0, 0},
};

static void test_all(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        harness_check(&cases[i]);
}

void suite_gradient(void);
void suite_gradient(void)
{
    CU_pSuite s = CU_add_suite("gradient", NULL, NULL);
    CU_add_test(s, "gradient kernels equal central differences", test_all);
}
