/* The single-device step as hash-consed nodes; see reference.h.
 *
 * Forward and backward of a dense decoder (Vaswani et al. 2017, pre-norm), written down as the mathematics
 * has it: rows are all tokens of the batch, weights are whole.  Gradients of a value that several operators
 * read are sums, and sums don't depend on order, so the backward pass needs no schedule.  Attributes enter
 * the recipes with the model's values: an instruction with another eps, scale or head size is another node,
 * and is not found. */

#include "compiler/verify/reference.h"

#include "compiler/support/vec.h"

#include <math.h>

struct builder {
    struct arena *arena;
    struct nodes *nodes;
    const struct job *job;
    const struct model *model;
    int64_t ntokens;
    bool gpt2;
    VEC(struct weight_unit) units;
};

uint64_t reference_real(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

#define INPUT(r, op_, name, node) ((r).input[OPND(op_, name)] = (node))
#define INTEGER(r, op_, name, v) ((r).attr[ATTR(op_, name)] = (uint64_t)(int64_t)(v))
#define NUMBER(r, op_, name, v) ((r).attr[ATTR(op_, name)] = reference_real(v))

static uint32_t make(struct builder *b, struct recipe r, size_t output, const char *name, int64_t cols,
                     int64_t domain)
{
    r.output = (uint16_t)output;
    return nodes_add(b->nodes, &r, name, cols, domain);
}

static uint32_t source(struct builder *b, enum reference_source s, uint64_t unit, const char *name,
                       int64_t cols)
{
    struct recipe r = {.op = RECIPE_SOURCE, .attr = {s, unit}};
    return make(b, r, 0, name, cols, 0);
}

static uint32_t sum(struct builder *b, uint32_t x, uint32_t y, const char *name, int64_t cols)
{
    uint32_t node = nodes_sum(b->nodes, x, y);
    nodes_label(b->nodes, node, name, cols);
    return node;
}

#define NAME(...) arena_printf(b->arena, __VA_ARGS__)

/* ---- weights ---- */

struct named {
    const char *llama, *gpt2; /* of the tensor, without layer */
    int64_t at, outputs;      /* GPT-2's fused tensors */
};

static uint32_t add_unit(struct builder *b, uint32_t layer, struct named n, int64_t rows, int64_t cols,
                         bool vector)
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
    if (b->gpt2 && n.outputs) {
        u.at = n.at;
        u.outputs = n.outputs;
    }
    u.param = source(b, SOURCE_PARAM, id, name, cols);
    u.moment[0] = source(b, SOURCE_MOMENT1, id, NAME("first moment of %s", name), cols);
    u.moment[1] = source(b, SOURCE_MOMENT2, id, NAME("second moment of %s", name), cols);
    vec_push(b->arena, &b->units, u);
    return id;
}

static uint32_t param(const struct builder *b, uint32_t unit)
{
    return unit == NONE ? NODE_ZERO : b->units.at[unit].param;
}

static void add_gradient(struct builder *b, uint32_t unit, uint32_t node)
{
    struct weight_unit *u = &b->units.at[unit];
    b->nodes->at[node].weight = true;
    u->gradient = sum(b, u->gradient, node, NAME("gradient of %s", u->name), b->nodes->at[node].cols);
}

/* ---- linear layers: y = x W' + b ---- */

static uint32_t linear(struct builder *b, uint32_t x, uint32_t w, uint32_t bias, const char *name)
{
    const struct weight_unit *u = &b->units.at[w];
    struct recipe r = {.op = OP_MATMUL_NT};
    INPUT(r, MATMUL_NT, a, x);
    INPUT(r, MATMUL_NT, b, u->param);
    uint32_t y = make(b, r, OPND(MATMUL_NT, c), NAME("%s without bias", name), u->rows, u->cols);
    if (bias != NONE)
        return sum(b, y, param(b, bias), name, u->rows);
    nodes_label(b->nodes, y, name, u->rows);
    return y;
}

/* returns the input gradient; adds the weight gradients */
static uint32_t linear_back(struct builder *b, uint32_t dy, uint32_t x, uint32_t w, uint32_t bias,
                            const char *name)
{
    const struct weight_unit u = b->units.at[w];
    struct recipe r = {.op = OP_MATMUL_TN};
    INPUT(r, MATMUL_TN, a, dy);
    INPUT(r, MATMUL_TN, b, x);
    add_gradient(b, w, make(b, r, OPND(MATMUL_TN, c), NAME("gradient of %s", u.name), u.cols, b->ntokens));
    if (bias != NONE) {
        struct recipe s = {.op = OP_BIAS_W};
        INPUT(s, BIAS_W, dy, dy);
        add_gradient(
            b, bias,
            make(b, s, OPND(BIAS_W, db), NAME("gradient of %s", b->units.at[bias].name), u.rows, b->ntokens));
    }
    struct recipe t = {.op = OP_MATMUL_NN};
    INPUT(t, MATMUL_NN, a, dy);
    INPUT(t, MATMUL_NN, b, u.param);
    return make(b, t, OPND(MATMUL_NN, c), NAME("input gradient of %s", name), u.cols, u.rows);
}

/* ---- norms ---- */

struct norm_nodes {
    uint32_t x, y, mean, rstd, gain, bias; /* gain, bias: units */
    const char *name;
};

static struct norm_nodes add_norm(struct builder *b, uint32_t layer, uint32_t x, const char *llama,
                                  const char *gpt2, const char *name)
{
    const struct norm *norm = &b->model->norm;
    int64_t h = (int64_t)b->model->width;
    struct norm_nodes n = {.x = x, .bias = NONE, .name = name};
    n.gain = add_unit(b, layer, (struct named){NAME("%s.weight", llama), NAME("%s.weight", gpt2), 0, 0}, 1, h,
                      true);
    b->units.at[n.gain].init = INIT_ONES;
    if (norm->kind == NORM_RMS) {
        struct recipe r = {.op = OP_RMSNORM};
        INPUT(r, RMSNORM, x, x);
        INPUT(r, RMSNORM, g, param(b, n.gain));
        NUMBER(r, RMSNORM, eps, norm->eps);
        n.y = make(b, r, OPND(RMSNORM, y), name, h, 0);
        n.rstd = make(b, r, OPND(RMSNORM, rstd), NAME("1/rms of %s", name), 1, 0);
        return n;
    }
    if (norm->bias)
        n.bias = add_unit(b, layer, (struct named){NAME("%s.bias", llama), NAME("%s.bias", gpt2), 0, 0}, 1, h,
                          true);
    struct recipe r = {.op = OP_LAYERNORM};
    INPUT(r, LAYERNORM, x, x);
    INPUT(r, LAYERNORM, g, param(b, n.gain));
    INPUT(r, LAYERNORM, b, param(b, n.bias));
    NUMBER(r, LAYERNORM, eps, norm->eps);
    n.y = make(b, r, OPND(LAYERNORM, y), name, h, 0);
    n.mean = make(b, r, OPND(LAYERNORM, mean), NAME("mean of %s", name), 1, 0);
    n.rstd = make(b, r, OPND(LAYERNORM, rstd), NAME("1/deviation of %s", name), 1, 0);
    return n;
}

static uint32_t norm_back(struct builder *b, const struct norm_nodes *n, uint32_t dy)
{
    int64_t h = (int64_t)b->model->width;
    const char *dx = NAME("input gradient of %s", n->name),
               *dg = NAME("gradient of %s", b->units.at[n->gain].name);
    if (b->model->norm.kind == NORM_RMS) {
        struct recipe w = {.op = OP_RMSNORM_W}, r = {.op = OP_RMSNORM_I};
        INPUT(w, RMSNORM_W, dy, dy);
        INPUT(w, RMSNORM_W, x, n->x);
        INPUT(w, RMSNORM_W, rstd, n->rstd);
        add_gradient(b, n->gain, make(b, w, OPND(RMSNORM_W, dg), dg, h, b->ntokens));
        INPUT(r, RMSNORM_I, dy, dy);
        INPUT(r, RMSNORM_I, x, n->x);
        INPUT(r, RMSNORM_I, g, param(b, n->gain));
        INPUT(r, RMSNORM_I, rstd, n->rstd);
        return make(b, r, OPND(RMSNORM_I, dx), dx, h, 0);
    }
    struct recipe w = {.op = OP_LAYERNORM_W}, r = {.op = OP_LAYERNORM_I};
    INPUT(w, LAYERNORM_W, dy, dy);
    INPUT(w, LAYERNORM_W, x, n->x);
    INPUT(w, LAYERNORM_W, mean, n->mean);
    INPUT(w, LAYERNORM_W, rstd, n->rstd);
    add_gradient(b, n->gain, make(b, w, OPND(LAYERNORM_W, dg), dg, h, b->ntokens));
    if (n->bias != NONE)
        add_gradient(b, n->bias,
                     make(b, w, OPND(LAYERNORM_W, db), NAME("gradient of %s", b->units.at[n->bias].name), h,
                          b->ntokens));
    INPUT(r, LAYERNORM_I, dy, dy);
    INPUT(r, LAYERNORM_I, x, n->x);
    INPUT(r, LAYERNORM_I, g, param(b, n->gain));
    INPUT(r, LAYERNORM_I, mean, n->mean);
    INPUT(r, LAYERNORM_I, rstd, n->rstd);
    return make(b, r, OPND(LAYERNORM_I, dx), dx, h, 0);
}

/* ---- attention ---- */

struct attn_nodes {
    struct norm_nodes norm;
    uint32_t w[3], bias[3], wo, bo; /* units */
    uint32_t qkv[3];                /* as attention reads them */
    uint32_t o, lse;
};

static uint32_t rotate(struct builder *b, const struct attn *t, uint32_t x, bool inverse, const char *name)
{
    struct recipe r = {.op = OP_ROPE};
    INPUT(r, ROPE, x, x);
    INTEGER(r, ROPE, head, t->head);
    INTEGER(r, ROPE, dims, t->rope.dims);
    INTEGER(r, ROPE, adjacent, t->rope.adjacent);
    INTEGER(r, ROPE, inverse, inverse);
    INTEGER(r, ROPE, sequence, b->job->train.sequence);
    NUMBER(r, ROPE, theta, t->rope.theta);
    INTEGER(r, ROPE, scaling, t->rope.scaling);
    NUMBER(r, ROPE, factor, t->rope.factor);
    NUMBER(r, ROPE, low, t->rope.low);
    NUMBER(r, ROPE, high, t->rope.high);
    NUMBER(r, ROPE, original, t->rope.original);
    return make(b, r, OPND(ROPE, y), name, b->nodes->at[x].cols, 0);
}

/* attributes that do not depend on how heads are split */
static void attention_attrs(const struct builder *b, const struct attn *t, struct recipe *r)
{
    INTEGER(*r, ATTENTION, head, t->head);
    INTEGER(*r, ATTENTION, sequence, b->job->train.sequence);
    NUMBER(*r, ATTENTION, scale, 1 / sqrt(t->scale));
    INTEGER(*r, ATTENTION, window, t->window);
    NUMBER(*r, ATTENTION, softcap, t->softcap);
}

static uint32_t attention(struct builder *b, uint32_t layer, const struct attn *t, uint32_t x,
                          struct attn_nodes *n)
{
    static const char *const letter[3] = {"q", "k", "v"};
    int64_t h = (int64_t)b->model->width, q = (int64_t)t->heads * t->head, kv = (int64_t)t->kv * t->head,
            at = 0;
    n->norm = add_norm(b, layer, x, "input_layernorm", "ln_1", NAME("layer %u: attention's norm", layer));
    for (int i = 0; i < 3; i++) {
        int64_t rows = i ? kv : q;
        n->w[i] = add_unit(
            b, layer,
            (struct named){NAME("self_attn.%s_proj.weight", letter[i]), "attn.c_attn.weight", at, q + 2 * kv},
            rows, h, false);
        at += rows;
    }
    at = 0;
    for (int i = 0; i < 3; i++) {
        int64_t rows = i ? kv : q;
        n->bias[i] = NONE;
        if (t->bias || t->qkv_bias)
            n->bias[i] = add_unit(
                b, layer,
                (struct named){NAME("self_attn.%s_proj.bias", letter[i]), "attn.c_attn.bias", at, q + 2 * kv},
                1, rows, true);
        at += rows;
    }
    for (int i = 0; i < 3; i++) {
        n->qkv[i] = linear(b, n->norm.y, n->w[i], n->bias[i], NAME("layer %u: %s", layer, letter[i]));
        if (t->rope.on && i < 2)
            n->qkv[i] = rotate(b, t, n->qkv[i], false, NAME("layer %u: rotated %s", layer, letter[i]));
    }
    struct recipe r = {.op = OP_ATTENTION};
    INPUT(r, ATTENTION, q, n->qkv[0]);
    INPUT(r, ATTENTION, k, n->qkv[1]);
    INPUT(r, ATTENTION, v, n->qkv[2]);
    attention_attrs(b, t, &r);
    n->o = make(b, r, OPND(ATTENTION, o), NAME("layer %u: attention", layer), q, 0);
    n->lse = make(b, r, OPND(ATTENTION, lse), NAME("layer %u: attention's log-sum-exp", layer), t->heads, 0);
    n->wo = add_unit(b, layer, (struct named){"self_attn.o_proj.weight", "attn.c_proj.weight", 0, 0}, h, q,
                     false);
    n->bo = t->bias ? add_unit(b, layer, (struct named){"self_attn.o_proj.bias", "attn.c_proj.bias", 0, 0}, 1,
                               h, true)
                    : NONE;
    uint32_t a = linear(b, n->o, n->wo, n->bo, NAME("layer %u: attention's output", layer));
    return sum(b, x, a, NAME("layer %u: after attention", layer), h);
}

static uint32_t attention_back(struct builder *b, uint32_t layer, const struct attn *t,
                               const struct attn_nodes *n, uint32_t dx)
{
    static const char *const letter[3] = {"q", "k", "v"};
    const int64_t cols[3] = {(int64_t)t->heads * t->head, (int64_t)t->kv * t->head, (int64_t)t->kv * t->head};
    uint32_t dn = NODE_ZERO;
    struct recipe r = {.op = OP_ATTENTION_I};
    INPUT(r, ATTENTION_I, q, n->qkv[0]);
    INPUT(r, ATTENTION_I, k, n->qkv[1]);
    INPUT(r, ATTENTION_I, v, n->qkv[2]);
    INPUT(r, ATTENTION_I, o, n->o);
    INPUT(r, ATTENTION_I, lse, n->lse);
    INPUT(r, ATTENTION_I, dout,
          linear_back(b, dx, n->o, n->wo, n->bo, NAME("layer %u: attention's output", layer)));
    attention_attrs(b, t, &r);
    for (size_t i = 0; i < 3; i++) {
        uint32_t d = make(b, r, OPND(ATTENTION_I, dq) + i, NAME("layer %u: gradient of %s", layer, letter[i]),
                          cols[i], 0);
        if (t->rope.on && i < 2)
            d = rotate(b, t, d, true, NAME("layer %u: gradient of unrotated %s", layer, letter[i]));
        dn = sum(b, dn,
                 linear_back(b, d, n->norm.y, n->w[i], n->bias[i], NAME("layer %u: %s", layer, letter[i])),
                 NAME("layer %u: gradient of attention's norm", layer), (int64_t)b->model->width);
    }
    return sum(b, dx, norm_back(b, &n->norm, dn), NAME("layer %u: gradient of its input", layer),
               (int64_t)b->model->width);
}

/* ---- feed-forward ---- */

struct ffn_nodes {
    struct norm_nodes norm;
    uint32_t wgate, wup, wdown, bgate, bup, bdown; /* units; wgate NONE = not gated */
    uint32_t gate, up, act;
};

static bool gated(const struct ffn *f)
{
    return f->act == ACT_SWIGLU || f->act == ACT_GEGLU;
}

/* the recipe of an activation or of its gradient; inputs are the caller's */
static struct recipe activation(const struct ffn *f, bool back)
{
    struct recipe r = {0};
    switch (f->act) {
    case ACT_GELU:
        r.op = back ? OP_GELU_I : OP_GELU;
        INTEGER(r, GELU, tanh, f->approx_tanh);
        break;
    case ACT_RELU:
    case ACT_RELU2:
        r.op = back ? OP_RELU_I : OP_RELU;
        INTEGER(r, RELU, power, f->act == ACT_RELU ? 1 : 2);
        break;
    case ACT_SWIGLU:
        r.op = back ? OP_SWIGLU_I : OP_SWIGLU;
        break;
    case ACT_GEGLU:
        r.op = back ? OP_GEGLU_I : OP_GEGLU;
        INTEGER(r, GEGLU, tanh, f->approx_tanh);
        break;
    }
    return r;
}

static uint32_t ffn(struct builder *b, uint32_t layer, const struct ffn *f, uint32_t x, struct ffn_nodes *n)
{
    int64_t h = (int64_t)b->model->width, w = (int64_t)f->width;
    *n = (struct ffn_nodes){.wgate = NONE, .bgate = NONE, .bup = NONE, .bdown = NONE};
    n->norm = add_norm(b, layer, x, "post_attention_layernorm", "ln_2",
                       NAME("layer %u: feed-forward's norm", layer));
    if (gated(f))
        n->wgate = add_unit(b, layer, (struct named){"mlp.gate_proj.weight", "mlp.c_gate.weight", 0, 0}, w, h,
                            false);
    n->wup = add_unit(b, layer, (struct named){"mlp.up_proj.weight", "mlp.c_fc.weight", 0, 0}, w, h, false);
    if (f->bias && gated(f))
        n->bgate =
            add_unit(b, layer, (struct named){"mlp.gate_proj.bias", "mlp.c_gate.bias", 0, 0}, 1, w, true);
    if (f->bias)
        n->bup = add_unit(b, layer, (struct named){"mlp.up_proj.bias", "mlp.c_fc.bias", 0, 0}, 1, w, true);
    n->wdown =
        add_unit(b, layer, (struct named){"mlp.down_proj.weight", "mlp.c_proj.weight", 0, 0}, h, w, false);
    if (f->bias)
        n->bdown =
            add_unit(b, layer, (struct named){"mlp.down_proj.bias", "mlp.c_proj.bias", 0, 0}, 1, h, true);
    struct recipe r = activation(f, false);
    n->up = linear(b, n->norm.y, n->wup, n->bup, NAME("layer %u: up", layer));
    if (gated(f)) {
        n->gate = linear(b, n->norm.y, n->wgate, n->bgate, NAME("layer %u: gate", layer));
        INPUT(r, SWIGLU, gate, n->gate); /* GEGLU has the same operands */
        INPUT(r, SWIGLU, up, n->up);
    } else {
        INPUT(r, GELU, x, n->up);
    }
    n->act = make(b, r, 0, NAME("layer %u: activation", layer), w, 0);
    uint32_t d = linear(b, n->act, n->wdown, n->bdown, NAME("layer %u: down", layer));
    return sum(b, x, d, NAME("layer %u: output", layer), h);
}

static uint32_t ffn_back(struct builder *b, uint32_t layer, const struct ffn *f, const struct ffn_nodes *n,
                         uint32_t dx)
{
    int64_t h = (int64_t)b->model->width, w = (int64_t)f->width;
    struct recipe r = activation(f, true);
    uint32_t dact = linear_back(b, dx, n->act, n->wdown, n->bdown, NAME("layer %u: down", layer)),
             dn = NODE_ZERO;
    if (gated(f)) {
        INPUT(r, SWIGLU_I, dy, dact);
        INPUT(r, SWIGLU_I, gate, n->gate);
        INPUT(r, SWIGLU_I, up, n->up);
        uint32_t dgate = make(b, r, OPND(SWIGLU_I, dgate), NAME("layer %u: gradient of gate", layer), w, 0);
        dn = linear_back(b, dgate, n->norm.y, n->wgate, n->bgate, NAME("layer %u: gate", layer));
    } else {
        INPUT(r, GELU_I, dy, dact);
        INPUT(r, GELU_I, x, n->up);
    }
    uint32_t dup = make(b, r, gated(f) ? OPND(SWIGLU_I, dup) : OPND(GELU_I, dx),
                        NAME("layer %u: gradient of up", layer), w, 0);
    dn = sum(b, dn, linear_back(b, dup, n->norm.y, n->wup, n->bup, NAME("layer %u: up", layer)),
             NAME("layer %u: gradient of feed-forward's norm", layer), h);
    return sum(b, dx, norm_back(b, &n->norm, dn), NAME("layer %u: gradient after attention", layer), h);
}

/* ---- both ends ---- */

struct ends {
    uint32_t table, positions, head; /* units */
    uint32_t x, tokens, targets, logits;
    struct norm_nodes norm;
};

static uint32_t embed(struct builder *b, struct ends *e)
{
    const struct model *m = b->model;
    int64_t h = (int64_t)m->width;
    e->table = add_unit(b, NONE, (struct named){"model.embed_tokens.weight", "transformer.wte.weight", 0, 0},
                        (int64_t)m->vocab, h, false);
    b->units.at[e->table].padded = true;
    struct recipe r = {.op = OP_EMBED};
    INPUT(r, EMBED, tokens, e->tokens);
    INPUT(r, EMBED, table, param(b, e->table));
    uint32_t x = make(b, r, OPND(EMBED, y), "embedding", h, (int64_t)m->vocab);
    e->positions = NONE;
    if (!m->positions)
        return x;
    e->positions =
        add_unit(b, NONE, (struct named){"model.embed_positions.weight", "transformer.wpe.weight", 0, 0},
                 (int64_t)m->positions, h, false);
    struct recipe p = {.op = OP_POSITION};
    INPUT(p, POSITION, x, x);
    INPUT(p, POSITION, table, param(b, e->positions));
    INTEGER(p, POSITION, sequence, b->job->train.sequence);
    return make(b, p, OPND(POSITION, y), "embedding with positions", h, 0);
}

static void embed_back(struct builder *b, const struct ends *e, uint32_t dx)
{
    int64_t h = (int64_t)b->model->width;
    if (e->positions != NONE) {
        struct recipe p = {.op = OP_POSITION_W};
        INPUT(p, POSITION_W, dy, dx);
        INTEGER(p, POSITION_W, sequence, b->job->train.sequence);
        add_gradient(b, e->positions,
                     make(b, p, OPND(POSITION_W, dtable), "gradient of positions", h, b->ntokens));
    }
    struct recipe r = {.op = OP_EMBED_W};
    INPUT(r, EMBED_W, dy, dx);
    INPUT(r, EMBED_W, tokens, e->tokens);
    add_gradient(b, e->table, make(b, r, OPND(EMBED_W, dtable), "gradient of the embedding", h, b->ntokens));
}

/* the loss node; *dx gets the gradient of x */
static uint32_t head(struct builder *b, struct ends *e, uint32_t x, uint32_t *dx)
{
    const struct model *m = b->model;
    int64_t v = (int64_t)m->vocab, h = (int64_t)m->width;
    double scale = 1 / ((double)b->job->train.sequence * (double)b->job->train.batch);
    e->norm = add_norm(b, NONE, x, "model.norm", "transformer.ln_f", "final norm");
    e->head = m->tied
                  ? e->table
                  : add_unit(b, NONE, (struct named){"lm_head.weight", "lm_head.weight", 0, 0}, v, h, false);
    b->units.at[e->head].padded = true;
    uint32_t logits = linear(b, e->norm.y, e->head, NONE, "logits");
    struct recipe rmax = {.op = OP_XENT_MAX}, rsum = {.op = OP_XENT_SUM}, rloss = {.op = OP_XENT_LOSS},
                  rback = {.op = OP_XENT_I};
    INPUT(rmax, XENT_MAX, logits, logits);
    INTEGER(rmax, XENT_MAX, vocab, v);
    uint32_t max = make(b, rmax, OPND(XENT_MAX, max), "row maxima of the logits", 1, v);
    b->nodes->at[max].max = true;
    INPUT(rsum, XENT_SUM, logits, logits);
    INPUT(rsum, XENT_SUM, max, max);
    INPUT(rsum, XENT_SUM, targets, e->targets);
    INTEGER(rsum, XENT_SUM, vocab, v);
    uint32_t sums = make(b, rsum, OPND(XENT_SUM, sum), "softmax sums", 2, v);
    INPUT(rloss, XENT_LOSS, sum, sums);
    NUMBER(rloss, XENT_LOSS, scale, scale);
    uint32_t loss = make(b, rloss, OPND(XENT_LOSS, loss), "the loss", 1, b->ntokens);
    INPUT(rback, XENT_I, logits, logits);
    INPUT(rback, XENT_I, max, max);
    INPUT(rback, XENT_I, sum, sums);
    INPUT(rback, XENT_I, targets, e->targets);
    INTEGER(rback, XENT_I, vocab, v);
    NUMBER(rback, XENT_I, scale, scale);
    uint32_t dlogits = make(b, rback, OPND(XENT_I, dlogits), "gradient of the logits", v, 0);
    *dx = norm_back(b, &e->norm, linear_back(b, dlogits, e->norm.y, e->head, NONE, "logits"));
    return loss;
}

static const char *cannot_express(const struct job *job)
{
    const struct model *m = &job->model;
    for (uint32_t i = 0; i < m->nlayers; i++) {
        const struct layer *l = m->layers[i];
        if (l->is_moe)
            return "mixture of experts";
        if (l->attn.kind != ATTN_GQA || l->attn.qk_norm != QK_NORM_NO || l->attn.sinks || l->attn.alibi ||
            l->attn.chunk)
            return "this kind of attention";
        if (l->parallel || l->ffn.limit > 0)
            return "this kind of layer";
    }
    if (m->norm.place != NORM_PRE || m->embed_norm || m->embed_scale != 1 || m->head_bias ||
        m->head_softcap > 0 || m->head_scale != 1)
        return "this placement of norms, or scaled embeddings or logits";
    return m->predict ? "prediction modules" : NULL;
}

static bool gpt2_names(const struct model *m)
{
    bool plain = m->positions && m->norm.kind == NORM_LAYER;
    for (uint32_t i = 0; i < m->nlayers; i++)
        plain = plain && !gated(&m->layers[i]->ffn) && m->layers[i]->attn.heads == m->layers[i]->attn.kv;
    return plain;
}

static void finish_units(struct builder *b, struct reference *r)
{
    double residual = b->job->train.init_residual ? sqrt(2.0 * b->model->nlayers) : 1;
    for (uint32_t i = 0; i < b->units.n; i++) {
        struct weight_unit *u = &b->units.at[i];
        const char *end = strrchr(u->name, '.');
        struct recipe q = {.op = RECIPE_SQUARES, .input = {u->gradient}};
        u->squares = make(b, q, 0, NAME("squared norm of the gradient of %s", u->name), 1, u->rows * u->cols);
        r->squares = nodes_sum(b->nodes, r->squares, u->squares);
        for (size_t k = 0; k < 3 && end; k++) {
            static const char *const last[3] = {"o_proj.weight", "down_proj.weight", "c_proj.weight"};
            size_t n = strlen(u->name), m = strlen(last[k]);
            if (n > m && !strcmp(u->name + n - m, last[k]))
                u->std /= residual;
        }
    }
    nodes_label(b->nodes, r->squares, "squared norm of the gradient", 1);
    struct recipe c = {.op = OP_CLIP};
    INPUT(c, CLIP, sum, r->squares);
    NUMBER(c, CLIP, limit, b->job->train.clip);
    r->clip = make(b, c, OPND(CLIP, scale), "clipping factor", 1, 0);
}

struct reference *reference_new(struct arena *a, const struct job *job, const char **cannot)
{
    const struct model *m = &job->model;
    struct builder builder = {.arena = a, .nodes = nodes_new(a), .job = job, .model = m}, *b = &builder;
    struct ends e;
    if ((*cannot = cannot_express(job)))
        return NULL;
    struct reference *r = ARENA_NEW(a, struct reference);
    r->ntokens = b->ntokens = (int64_t)(job->train.sequence * job->train.batch);
    b->gpt2 = gpt2_names(m);
    r->tokens = e.tokens = source(b, SOURCE_TOKENS, 0, "tokens", 1);
    r->targets = e.targets = source(b, SOURCE_TARGETS, 0, "targets", 1);
    r->block = source(b, SOURCE_BLOCK, 0, "step block", STEP_WORDS);
    struct attn_nodes *attn = ARENA_ARRAY(a, struct attn_nodes, m->nlayers + 1u);
    struct ffn_nodes *f = ARENA_ARRAY(a, struct ffn_nodes, m->nlayers + 1u);
    uint32_t x = embed(b, &e), dx;
    for (uint32_t i = 0; i < m->nlayers; i++) {
        x = attention(b, i, &m->layers[i]->attn, x, &attn[i]);
        x = ffn(b, i, &m->layers[i]->ffn, x, &f[i]);
    }
    r->loss = head(b, &e, x, &dx);
    for (uint32_t i = m->nlayers; i-- > 0;) {
        dx = ffn_back(b, i, &m->layers[i]->ffn, &f[i], dx);
        dx = attention_back(b, i, &m->layers[i]->attn, &attn[i], dx);
    }
    embed_back(b, &e, dx);
    finish_units(b, r);
    r->job = job;
    r->nodes = b->nodes;
    r->units = b->units.at;
    r->nunits = (uint32_t)b->units.n;
    reference_index(a, r);
    return r;
}
