/* The single-device step as hash-consed nodes; see reference.h.
 *
 * Forward and backward of a dense decoder (Vaswani et al. 2017, pre-norm), written down as the mathematics
 * has it: rows are all tokens of the batch, weights are whole.  Gradients of a value that several operators
 * read are sums, and sums don't depend on order, so the backward pass needs no schedule.  Attributes enter
 * the recipes with the model's values: an instruction with another eps, scale or head size is another node,
 * and is not found. */

#include "compiler/verify/reference_build.h"

#include <math.h>

uint64_t reference_real(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

uint32_t reference_make(struct builder *b, struct recipe r, size_t output, const char *name, int64_t cols,
                        int64_t domain)
{
    r.output = (uint16_t)output;
    return nodes_add(b->nodes, &r, name, cols, domain);
}

static uint32_t source(struct builder *b, enum reference_source s, uint64_t unit, const char *name, int64_t cols)
{
    struct recipe r = {.op = RECIPE_SOURCE, .attr = {s, unit}};
    return reference_make(b, r, 0, name, cols, 0);
}

uint32_t reference_sum(struct builder *b, uint32_t x, uint32_t y, const char *name)
{
    uint32_t node = nodes_sum(b->nodes, x, y);
    nodes_label(b->nodes, node, name);
    return node;
}

/* ---- weights ---- */

uint32_t reference_unit_add(struct builder *b, uint32_t layer, struct named n, int64_t rows, int64_t cols, bool vector)
{
    const char *name = b->gpt2 ? n.gpt2 : n.llama;
    uint32_t id = (uint32_t)b->units.n;
    if (layer != NONE)
        name = NAME("%s.%u.%s", b->gpt2 ? "transformer.h" : "model.layers", layer, name);
    struct weight_unit u = {.name = name,
                            .rows = rows,
                            .cols = cols,
                            .outputs = vector ? cols : rows,
                            .vector = vector,
                            .transposed = b->gpt2 && !vector && layer != NONE,
                            .decay = !vector,
                            .gradient = NODE_ZERO,
                            .init = vector ? INIT_ZEROS : INIT_NORMAL,
                            .std = b->job->train.init_std};
    if ((b->gpt2 || n.fused) && n.outputs) {
        u.at = n.at;
        u.outputs = n.outputs;
    }
    u.param = source(b, SOURCE_PARAM, id, name, cols);
    u.used = u.param;
    u.made = NODE_ZERO;
    u.repeats = 1;
    u.moment[0] = source(b, SOURCE_MOMENT1, id, NAME("first moment of %s", name), cols);
    u.moment[1] = source(b, SOURCE_MOMENT2, id, NAME("second moment of %s", name), cols);
    vec_push(b->arena, &b->units, u);
    return id;
}

uint32_t reference_param(const struct builder *b, uint32_t unit)
{
    return unit == NONE ? NODE_ZERO : b->units.at[unit].used;
}

void reference_repeat(struct builder *b, uint32_t unit, int64_t repeats, int64_t head)
{
    struct weight_unit *u = &b->units.at[unit];
    struct recipe r = {.op = RECIPE_SPREAD, .input = {u->param}, .attr = {(uint64_t)repeats}};
    if (repeats == 1)
        return;
    u->repeats = repeats;
    u->head = head;
    u->used = reference_make(b, r, 0, NAME("%s, repeated", u->name), u->vector ? u->cols * repeats : u->cols, 0);
}

void reference_gradient(struct builder *b, uint32_t unit, uint32_t node)
{
    struct weight_unit *u = &b->units.at[unit];
    b->nodes->at[node].weight = true;
    if (u->repeats > 1) {
        struct recipe r = {.op = RECIPE_FOLD, .input = {node}, .attr = {(uint64_t)u->repeats}};
        u->made = node;
        nodes_label(b->nodes, node, NAME("gradient of %s, repeated", u->name));
        node = reference_make(b, r, 0, NAME("gradient of %s", u->name), u->cols, b->nodes->at[node].domain);
        b->nodes->at[node].weight = true;
    }
    u->gradient = reference_sum(b, u->gradient, node, NAME("gradient of %s", u->name));
}

/* ---- linear layers: y = x W' + b ---- */

int64_t reference_fp8(const struct builder *b, uint32_t unit)
{
    static const int64_t numbers[] = {
        [FP8_TENSOR] = 1, [FP8_ROW] = 2, [FP8_BLOCK] = 3, [FP8_MX] = 4}; /* as isa.def has them */
    const struct train *t = &b->job->train;
    return t->precision != DT_FP8 || (unit != NONE && b->units.at[unit].half) ? 0 : numbers[t->recipe];
}

uint32_t reference_linear(struct builder *b, uint32_t x, uint32_t w, uint32_t bias, const char *name)
{
    const struct weight_unit *u = &b->units.at[w];
    struct recipe r = {.op = OP_MATMUL_NT};
    INPUT(r, MATMUL_NT, a, x);
    int64_t outputs = u->rows * u->repeats;
    INPUT(r, MATMUL_NT, b, u->used);
    INTEGER(r, MATMUL_NT, fp8, reference_fp8(b, w));
    uint32_t y = reference_make(b, r, OPND(MATMUL_NT, c), NAME("%s without bias", name), outputs, u->cols);
    if (bias != NONE)
        return reference_sum(b, y, reference_param(b, bias), name);
    nodes_label(b->nodes, y, name);
    return y;
}

/* returns the input gradient; adds the weight gradients */
uint32_t reference_linear_back(struct builder *b, uint32_t dy, uint32_t x, uint32_t w, uint32_t bias, const char *name)
{
    const struct weight_unit u = b->units.at[w];
    struct recipe r = {.op = OP_MATMUL_TN};
    INPUT(r, MATMUL_TN, a, dy);
    INPUT(r, MATMUL_TN, b, x);
    INTEGER(r, MATMUL_TN, fp8, reference_fp8(b, w));
    reference_gradient(b, w,
                       reference_make(b, r, OPND(MATMUL_TN, c), NAME("gradient of %s", u.name), u.cols, b->ntokens));
    if (bias != NONE) {
        struct recipe s = {.op = OP_BIAS_W};
        INPUT(s, BIAS_W, dy, dy);
        reference_gradient(b, bias,
                           reference_make(b, s, OPND(BIAS_W, db), NAME("gradient of %s", b->units.at[bias].name),
                                          u.rows * u.repeats, b->ntokens));
    }
    struct recipe t = {.op = OP_MATMUL_NN};
    INPUT(t, MATMUL_NN, a, dy);
    INPUT(t, MATMUL_NN, b, u.used);
    INTEGER(t, MATMUL_NN, fp8, reference_fp8(b, w));
    return reference_make(b, t, OPND(MATMUL_NN, c), NAME("input gradient of %s", name), u.cols, u.rows * u.repeats);
}

uint32_t reference_kept(struct builder *b, uint32_t x)
{
    struct recipe to = {.op = OP_QUANTIZE}, from = {.op = OP_DEQUANTIZE};
    if (!b->job->train.fp8_kept)
        return x;
    const char *name = nodes_name(b->nodes, x);
    int64_t cols = b->nodes->at[x].cols;
    INPUT(to, QUANTIZE, x, x);
    uint32_t words = nodes_find(b->nodes, &to);
    if (words == NONE)
        words = reference_make(b, to, OPND(QUANTIZE, y), NAME("%s in 8 bits", name), cols, 0);
    INPUT(from, DEQUANTIZE, x, words);
    uint32_t node = nodes_find(b->nodes, &from);
    return node != NONE ? node : reference_make(b, from, OPND(DEQUANTIZE, y), NAME("%s of 8 bits", name), cols, 0);
}

/* ---- norms ---- */

static struct norm_nodes rms(struct builder *b, uint32_t layer, uint32_t x, struct named gain, const char *name)
{
    int64_t h = b->nodes->at[x].cols;
    struct norm_nodes n = {.rms = true, .cols = h, .x = x, .bias = NONE, .name = name};
    n.gain = reference_unit_add(b, layer, gain, 1, h, true);
    b->units.at[n.gain].init = INIT_ONES;
    struct recipe r = {.op = OP_RMSNORM};
    INPUT(r, RMSNORM, x, x);
    INPUT(r, RMSNORM, g, reference_param(b, n.gain));
    NUMBER(r, RMSNORM, eps, b->model->norm.eps);
    n.y = reference_make(b, r, OPND(RMSNORM, y), name, h, 0);
    n.rstd = reference_make(b, r, OPND(RMSNORM, rstd), NAME("1/rms of %s", name), 1, 0);
    return n;
}

struct norm_nodes reference_rms(struct builder *b, uint32_t layer, uint32_t x, const char *weight, const char *name)
{
    return rms(b, layer, x, (struct named){weight, weight, 0, 0, false}, name);
}

struct norm_nodes reference_norm(struct builder *b, uint32_t layer, uint32_t x, const char *llama, const char *gpt2,
                                 const char *name)
{
    const struct norm *norm = &b->model->norm;
    int64_t h = (int64_t)b->model->width;
    struct named gain = {NAME("%s.weight", llama), NAME("%s.weight", gpt2), 0, 0, false};
    if (norm->kind == NORM_RMS)
        return rms(b, layer, x, gain, name);
    struct norm_nodes n = {.cols = h, .x = x, .bias = NONE, .name = name};
    n.gain = reference_unit_add(b, layer, gain, 1, h, true);
    b->units.at[n.gain].init = INIT_ONES;
    if (norm->bias)
        n.bias = reference_unit_add(
            b, layer, (struct named){NAME("%s.bias", llama), NAME("%s.bias", gpt2), 0, 0, false}, 1, h, true);
    struct recipe r = {.op = OP_LAYERNORM};
    INPUT(r, LAYERNORM, x, x);
    INPUT(r, LAYERNORM, g, reference_param(b, n.gain));
    INPUT(r, LAYERNORM, b, reference_param(b, n.bias));
    NUMBER(r, LAYERNORM, eps, norm->eps);
    n.y = reference_make(b, r, OPND(LAYERNORM, y), name, h, 0);
    n.mean = reference_make(b, r, OPND(LAYERNORM, mean), NAME("mean of %s", name), 1, 0);
    n.rstd = reference_make(b, r, OPND(LAYERNORM, rstd), NAME("1/deviation of %s", name), 1, 0);
    return n;
}

uint32_t reference_norm_back(struct builder *b, const struct norm_nodes *n, uint32_t dy)
{
    int64_t h = n->cols;
    const char *dx = NAME("input gradient of %s", n->name), *dg = NAME("gradient of %s", b->units.at[n->gain].name);
    if (n->rms) {
        struct recipe w = {.op = OP_RMSNORM_W}, r = {.op = OP_RMSNORM_I};
        INPUT(w, RMSNORM_W, dy, dy);
        INPUT(w, RMSNORM_W, x, n->x);
        INPUT(w, RMSNORM_W, rstd, n->rstd);
        reference_gradient(b, n->gain, reference_make(b, w, OPND(RMSNORM_W, dg), dg, h, b->ntokens));
        INPUT(r, RMSNORM_I, dy, dy);
        INPUT(r, RMSNORM_I, x, n->x);
        INPUT(r, RMSNORM_I, g, reference_param(b, n->gain));
        INPUT(r, RMSNORM_I, rstd, n->rstd);
        return reference_make(b, r, OPND(RMSNORM_I, dx), dx, h, 0);
    }
    struct recipe w = {.op = OP_LAYERNORM_W}, r = {.op = OP_LAYERNORM_I};
    INPUT(w, LAYERNORM_W, dy, dy);
    INPUT(w, LAYERNORM_W, x, n->x);
    INPUT(w, LAYERNORM_W, mean, n->mean);
    INPUT(w, LAYERNORM_W, rstd, n->rstd);
    reference_gradient(b, n->gain, reference_make(b, w, OPND(LAYERNORM_W, dg), dg, h, b->ntokens));
    if (n->bias != NONE)
        reference_gradient(b, n->bias,
                           reference_make(b, w, OPND(LAYERNORM_W, db),
                                          NAME("gradient of %s", b->units.at[n->bias].name), h, b->ntokens));
    INPUT(r, LAYERNORM_I, dy, dy);
    INPUT(r, LAYERNORM_I, x, n->x);
    INPUT(r, LAYERNORM_I, g, reference_param(b, n->gain));
    INPUT(r, LAYERNORM_I, mean, n->mean);
    INPUT(r, LAYERNORM_I, rstd, n->rstd);
    return reference_make(b, r, OPND(LAYERNORM_I, dx), dx, h, 0);
}

/* ---- both ends ---- */

struct ends {
    uint32_t table, positions, head, head_bias; /* units */
    uint32_t x, tokens, targets;
    struct norm_nodes norm, embed_norm;
};

/* y = factor x, which is its own gradient */
static uint32_t scaled(struct builder *b, uint32_t x, double factor, const char *name)
{
    struct recipe r = {.op = OP_SCALE};
    INPUT(r, SCALE, x, x);
    NUMBER(r, SCALE, factor, factor);
    return factor == 1 ? x : reference_make(b, r, OPND(SCALE, y), name, b->nodes->at[x].cols, 0);
}

static uint32_t embed_norm(struct builder *b, struct ends *e, uint32_t x)
{
    if (!b->model->embed_norm)
        return x;
    e->embed_norm = reference_norm(b, NONE, x, "model.embed_layernorm", "transformer.word_embeddings_layernorm",
                                   "norm of the embedding");
    return e->embed_norm.y;
}

static uint32_t embed(struct builder *b, struct ends *e)
{
    const struct model *m = b->model;
    int64_t h = (int64_t)m->width;
    e->table = reference_unit_add(b, NONE,
                                  (struct named){"model.embed_tokens.weight", "transformer.wte.weight", 0, 0, false},
                                  (int64_t)m->vocab, h, false);
    b->units.at[e->table].padded = true;
    struct recipe r = {.op = OP_EMBED};
    INPUT(r, EMBED, tokens, e->tokens);
    INPUT(r, EMBED, table, reference_param(b, e->table));
    uint32_t x = reference_make(b, r, OPND(EMBED, y), "embedding", h, (int64_t)m->vocab);
    e->positions = NONE;
    x = scaled(b, x, m->embed_scale, "scaled embedding");
    if (!m->positions)
        return embed_norm(b, e, x);
    e->positions = reference_unit_add(
        b, NONE, (struct named){"model.embed_positions.weight", "transformer.wpe.weight", 0, 0, false},
        (int64_t)m->positions, h, false);
    struct recipe p = {.op = OP_POSITION};
    INPUT(p, POSITION, x, x);
    INPUT(p, POSITION, table, reference_param(b, e->positions));
    INTEGER(p, POSITION, sequence, b->job->train.sequence);
    return embed_norm(b, e, reference_make(b, p, OPND(POSITION, y), "embedding with positions", h, 0));
}

static void embed_back(struct builder *b, const struct ends *e, uint32_t dx)
{
    int64_t h = (int64_t)b->model->width;
    if (b->model->embed_norm)
        dx = reference_norm_back(b, &e->embed_norm, dx);
    if (e->positions != NONE) {
        struct recipe p = {.op = OP_POSITION_W};
        INPUT(p, POSITION_W, dy, dx);
        INTEGER(p, POSITION_W, sequence, b->job->train.sequence);
        reference_gradient(b, e->positions,
                           reference_make(b, p, OPND(POSITION_W, dtable), "gradient of positions", h, b->ntokens));
    }
    dx = scaled(b, dx, b->model->embed_scale, "gradient of the unscaled embedding");
    struct recipe r = {.op = OP_EMBED_W};
    INPUT(r, EMBED_W, dy, dx);
    INPUT(r, EMBED_W, tokens, e->tokens);
    reference_gradient(b, e->table,
                       reference_make(b, r, OPND(EMBED_W, dtable), "gradient of the embedding", h, b->ntokens));
}

static uint32_t softcap(struct builder *b, uint32_t x)
{
    struct recipe r = {.op = OP_SOFTCAP};
    INPUT(r, SOFTCAP, x, x);
    NUMBER(r, SOFTCAP, cap, b->model->head_softcap);
    return b->model->head_softcap > 0 ? reference_make(b, r, OPND(SOFTCAP, y), "capped logits", b->nodes->at[x].cols, 0)
                                      : x;
}

static uint32_t softcap_back(struct builder *b, uint32_t x, uint32_t dy)
{
    struct recipe r = {.op = OP_SOFTCAP_I};
    INPUT(r, SOFTCAP_I, x, x);
    INPUT(r, SOFTCAP_I, dy, dy);
    NUMBER(r, SOFTCAP_I, cap, b->model->head_softcap);
    return b->model->head_softcap > 0
               ? reference_make(b, r, OPND(SOFTCAP_I, dx), "gradient of the uncapped logits", b->nodes->at[x].cols, 0)
               : dy;
}

static double mean(const struct builder *b)
{
    return 1 / ((double)b->job->train.sequence * (double)b->job->train.batch);
}

/* cross entropy of a normalised stream behind the head; its gradient by the logits, and the softmax sums */
static uint32_t cross_entropy(struct builder *b, const struct ends *e, uint32_t y, uint32_t targets, double scale,
                              uint32_t *sums)
{
    const struct model *m = b->model;
    int64_t v = (int64_t)m->vocab;
    uint32_t raw = scaled(b, reference_linear(b, y, e->head, e->head_bias, "logits"), m->head_scale, "scaled logits");
    uint32_t logits = softcap(b, raw);
    struct recipe rmax = {.op = OP_XENT_MAX}, rsum = {.op = OP_XENT_SUM}, rback = {.op = OP_XENT_I};
    INPUT(rmax, XENT_MAX, logits, logits);
    INTEGER(rmax, XENT_MAX, vocab, v);
    uint32_t max = reference_make(b, rmax, OPND(XENT_MAX, max), "row maxima of the logits", 1, v);
    b->nodes->at[max].max = true;
    INPUT(rsum, XENT_SUM, logits, logits);
    INPUT(rsum, XENT_SUM, max, max);
    INPUT(rsum, XENT_SUM, targets, targets);
    INTEGER(rsum, XENT_SUM, vocab, v);
    *sums = reference_make(b, rsum, OPND(XENT_SUM, sum), "softmax sums", 2, v);
    INPUT(rback, XENT_I, logits, logits);
    INPUT(rback, XENT_I, max, max);
    INPUT(rback, XENT_I, sum, *sums);
    INPUT(rback, XENT_I, targets, targets);
    INTEGER(rback, XENT_I, vocab, v);
    INPUT(rback, XENT_I, by, b->scale);
    NUMBER(rback, XENT_I, scale, scale);
    uint32_t dlogits = reference_make(b, rback, OPND(XENT_I, dlogits), "gradient of the logits", v, 0);
    return scaled(b, softcap_back(b, raw, dlogits), m->head_scale, "gradient of the unscaled logits");
}

/* The loss node; *dlogits gets the gradient of the logits.  Gradients behind them come later: prediction modules' are
 * first in the sums. */
static uint32_t head(struct builder *b, struct ends *e, uint32_t x, uint32_t *dlogits)
{
    const struct model *m = b->model;
    int64_t v = (int64_t)m->vocab, h = (int64_t)m->width;
    e->norm = reference_norm(b, NONE, x, "model.norm", "transformer.ln_f", "final norm");
    e->head = m->tied ? e->table
                      : reference_unit_add(b, NONE, (struct named){"lm_head.weight", "lm_head.weight", 0, 0, false}, v,
                                           h, false);
    b->units.at[e->head].padded = b->units.at[e->head].half = true;
    e->head_bias = NONE;
    if (m->head_bias) {
        e->head_bias = reference_unit_add(b, NONE, (struct named){"lm_head.bias", "lm_head.bias", 0, 0, false}, 1, v,
                                          true);
        b->units.at[e->head_bias].padded = true;
    }
    struct recipe rloss = {.op = OP_XENT_LOSS};
    uint32_t sums;
    *dlogits = cross_entropy(b, e, e->norm.y, e->targets, mean(b), &sums);
    INPUT(rloss, XENT_LOSS, sum, sums);
    NUMBER(rloss, XENT_LOSS, scale, mean(b));
    return reference_make(b, rloss, OPND(XENT_LOSS, loss), "the loss", 1, b->ntokens);
}

static uint32_t head_back(struct builder *b, const struct ends *e, uint32_t dlogits)
{
    return reference_norm_back(b, &e->norm,
                               reference_linear_back(b, dlogits, e->norm.y, e->head, e->head_bias, "logits"));
}

/* ---- prediction modules (arXiv:2412.19437, section 2.2) ---- */

struct module {
    struct norm_nodes embedding, stream, norm;
    struct layer_nodes layer;
    uint32_t tokens, both, project, dlogits;
};

/* h' = layer(M [norm(embedding of the token k later); norm(h)]) and the gradient of its loss by its logits */
static uint32_t module(struct builder *b, struct ends *e, const struct reference *r, uint32_t k, uint32_t x,
                       struct module *n)
{
    const struct model *m = b->model;
    uint32_t layer = m->nlayers + k - 1, sums;
    int64_t h = (int64_t)m->width;
    struct recipe embed = {.op = OP_EMBED}, join = {.op = OP_CONCAT};
    n->tokens = r->later[0][k];
    INPUT(embed, EMBED, tokens, n->tokens);
    INPUT(embed, EMBED, table, reference_param(b, e->table));
    uint32_t y = reference_make(b, embed, OPND(EMBED, y), NAME("module %u: embedding", k), h, (int64_t)m->vocab);
    y = scaled(b, y, m->embed_scale, NAME("module %u: scaled embedding", k));
    n->embedding = reference_norm(b, layer, y, "enorm", "enorm", NAME("module %u: norm of the embedding", k));
    n->stream = reference_norm(b, layer, x, "hnorm", "hnorm", NAME("module %u: norm of the stream", k));
    INPUT(join, CONCAT, a, n->embedding.y);
    INPUT(join, CONCAT, b, n->stream.y);
    n->both = reference_make(b, join, OPND(CONCAT, y), NAME("module %u: embedding and stream", k), 2 * h, 0);
    n->project = reference_unit_add(b, layer, (struct named){"eh_proj.weight", "eh_proj.weight", 0, 0, false}, h, 2 * h,
                                    false);
    x = reference_linear(b, n->both, n->project, NONE, NAME("module %u: projection", k));
    x = reference_layer(b, layer, m->predict_layer, x, &n->layer);
    n->norm = reference_norm(b, layer, x, "shared_head.norm", "shared_head.norm", NAME("module %u: final norm", k));
    n->dlogits = cross_entropy(b, e, n->norm.y, r->later[1][k], m->predict_weight / m->predict * mean(b), &sums);
    return x;
}

/* dx: gradient of its output by later modules; returns that of its input */
static uint32_t module_back(struct builder *b, const struct ends *e, uint32_t k, const struct module *n, uint32_t dx)
{
    const struct model *m = b->model;
    int64_t h = (int64_t)m->width;
    uint32_t d = reference_linear_back(b, n->dlogits, n->norm.y, e->head, e->head_bias, NAME("module %u: logits", k));
    dx = reference_sum(b, dx, reference_norm_back(b, &n->norm, d), NAME("module %u: gradient of its output", k));
    dx = reference_layer_back(b, m->nlayers + k - 1, m->predict_layer, &n->layer, dx);
    struct recipe part = {.op = OP_CONCAT_I}, embed = {.op = OP_EMBED_W};
    INPUT(part, CONCAT_I, dy,
          reference_linear_back(b, dx, n->both, n->project, NONE, NAME("module %u: projection", k)));
    uint32_t de = reference_make(b, part, OPND(CONCAT_I, da), NAME("module %u: gradient of the normed embedding", k), h,
                                 0);
    uint32_t dh = reference_make(b, part, OPND(CONCAT_I, db), NAME("module %u: gradient of the normed stream", k), h,
                                 0);
    de = scaled(b, reference_norm_back(b, &n->embedding, de), m->embed_scale, NAME("module %u: gradient unscaled", k));
    INPUT(embed, EMBED_W, dy, de);
    INPUT(embed, EMBED_W, tokens, n->tokens);
    reference_gradient(b, e->table,
                       reference_make(b, embed, OPND(EMBED_W, dtable), NAME("module %u: gradient of the embedding", k),
                                      h, b->ntokens));
    return reference_norm_back(b, &n->stream, dh);
}

/* all of them, there and back: the gradient of the residual stream that they read, NODE_ZERO without any */
static uint32_t modules(struct builder *b, struct ends *e, struct reference *r, uint32_t x)
{
    uint32_t n = b->model->predict, dx = NODE_ZERO;
    struct module *all = ARENA_ARRAY(b->arena, struct module, n + 1u);
    for (uint32_t s = 0; s < 2; s++) {
        r->later[s] = ARENA_ARRAY(b->arena, uint32_t, n + 1u);
        for (uint32_t k = 1; k <= n; k++)
            r->later[s][k] = source(b, s ? SOURCE_TARGETS : SOURCE_TOKENS, k,
                                    NAME("%s %u places later", s ? "targets" : "tokens", k), 1);
    }
    for (uint32_t k = 1; k <= n; k++)
        x = module(b, e, r, k, x, &all[k]);
    for (uint32_t k = n; k > 0; k--)
        dx = module_back(b, e, k, &all[k], dx);
    return dx;
}

static const char *cannot_express(const struct job *job)
{
    const struct model *m = &job->model;
    if (m->predict && (m->positions || m->embed_norm))
        return "prediction modules with more than tokens in the embedding";
    return NULL;
}

static bool gpt2_names(const struct model *m)
{
    bool plain = m->positions && m->norm.kind == NORM_LAYER;
    for (uint32_t i = 0; i < m->nlayers; i++) {
        const struct layer *l = m->layers[i];
        plain = plain && !l->is_moe && l->ffn.act != ACT_SWIGLU && l->ffn.act != ACT_GEGLU &&
                l->attn.kind == ATTN_GQA && l->attn.heads == l->attn.kv && l->attn.qk_norm == QK_NORM_NO;
    }
    return plain;
}

/* the clipping factor takes the loss scale out again */
static void finish_clip(struct builder *b, struct reference *r)
{
    const struct train *t = &b->job->train;
    struct recipe c = {.op = OP_CLIP}, s = {.op = OP_CLIP_SCALED};
    r->norm = r->squares;
    r->scale = r->next_scale = b->scale;
    if (b->scale == NODE_ZERO) {
        INPUT(c, CLIP, sum, r->squares);
        NUMBER(c, CLIP, limit, t->clip);
        r->clip = reference_make(b, c, OPND(CLIP, scale), "clipping factor", 1, 0);
        return;
    }
    INPUT(s, CLIP_SCALED, sum, r->squares);
    INPUT(s, CLIP_SCALED, state, b->scale);
    NUMBER(s, CLIP_SCALED, limit, t->clip);
    NUMBER(s, CLIP_SCALED, initial, t->loss_scale);
    INTEGER(s, CLIP_SCALED, window, (int64_t)t->scale_window);
    INTEGER(s, CLIP_SCALED, hysteresis, (int64_t)t->scale_hysteresis);
    r->clip = reference_make(b, s, OPND(CLIP_SCALED, scale), "clipping factor", 1, 0);
    r->norm = reference_make(b, s, OPND(CLIP_SCALED, sum), "squared norm of the gradient without the loss scale", 1, 0);
    r->next_scale = reference_make(b, s, OPND(CLIP_SCALED, state), "the next loss scale", SCALE_WORDS, 0);
}

static void finish_units(struct builder *b, struct reference *r)
{
    double residual = b->job->train.init_residual ? sqrt(2.0 * b->model->nlayers) : 1;
    for (uint32_t i = 0; i < b->units.n; i++) {
        struct weight_unit *u = &b->units.at[i];
        const char *end = strrchr(u->name, '.');
        if (u->moved)
            continue;
        struct recipe q = {.op = RECIPE_SQUARES, .input = {u->gradient}};
        for (uint32_t k = i; k-- > 0 && k + 32 > i;) /* biases of parallel sublayers have one gradient */
            q.attr[0] += b->units.at[k].gradient == u->gradient;
        r->repeats = u->repeats > r->repeats ? u->repeats : r->repeats;
        u->squares = reference_make(b, q, 0, NAME("squared norm of the gradient of %s", u->name), 1,
                                    u->rows * u->cols * (u->family ? u->family : 1));
        r->squares = nodes_sum(b->nodes, r->squares, u->squares);
        for (size_t k = 0; k < 3 && end; k++) {
            static const char *const last[3] = {"o_proj.weight", "down_proj.weight", "c_proj.weight"};
            size_t n = strlen(u->name), m = strlen(last[k]);
            if (n > m && !strcmp(u->name + n - m, last[k]))
                u->std /= residual;
        }
    }
    nodes_label(b->nodes, r->squares, "squared norm of the gradient");
    finish_clip(b, r);
}

struct reference *reference_new(struct arena *a, const struct job *job, const struct decision *d, const char **cannot)
{
    const struct model *m = &job->model;
    struct builder builder = {.arena = a, .nodes = nodes_new(a), .job = job, .model = m}, *b = &builder;
    struct ends e;
    if ((*cannot = cannot_express(job)))
        return NULL;
    struct reference *r = ARENA_NEW(a, struct reference);
    r->ntokens = b->ntokens = (int64_t)(job->train.sequence * job->train.batch);
    b->gpt2 = gpt2_names(m);
    b->tp = d->tp;
    b->again = d->recompute == RECOMPUTE_SELECTIVE ? d->parts : 0;
    r->tokens = e.tokens = source(b, SOURCE_TOKENS, 0, "tokens", 1);
    r->targets = e.targets = source(b, SOURCE_TARGETS, 0, "targets", 1);
    r->block = source(b, SOURCE_BLOCK, 0, "step block", STEP_WORDS);
    b->scale = job->train.precision == DT_FP16 ? source(b, SOURCE_SCALE, 0, "the loss scale", SCALE_WORDS) : NODE_ZERO;
    struct layer_nodes *layers = ARENA_ARRAY(a, struct layer_nodes, m->nlayers + 1u);
    uint32_t x = embed(b, &e), dx, dlogits;
    for (uint32_t i = 0; i < m->nlayers; i++)
        x = reference_layer(b, i, m->layers[i], x, &layers[i]);
    r->loss = head(b, &e, x, &dlogits);
    r->next_balance = b->balance;
    dx = modules(b, &e, r, x);
    dx = reference_sum(b, dx, head_back(b, &e, dlogits), "gradient of the last layer's output");
    for (uint32_t i = m->nlayers; i-- > 0;)
        dx = reference_layer_back(b, i, m->layers[i], &layers[i], dx);
    embed_back(b, &e, dx);
    finish_units(b, r);
    r->job = job;
    r->balance = b->balance;
    r->nodes = b->nodes;
    r->units = b->units.at;
    r->nunits = (uint32_t)b->units.n;
    reference_index(a, r);
    return r;
}
