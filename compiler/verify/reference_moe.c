/* The reference's experts.
 *
 * A dispatched matrix has one row per expert; what a rank has of it are the rows that some tokens sent, so
 * its nodes are those of all tokens and values say whose rows they hold (value.h).  Where rows lie within a
 * block is the program's business: the node of `place` follows from the choices alone, and so do counts. */

#include "compiler/verify/reference_build.h"

static bool gated(const struct ffn *f)
{
    return f->act == ACT_SWIGLU || f->act == ACT_GEGLU;
}

static uint32_t family(struct builder *b, uint32_t layer, const struct moe *m, const char *name, int64_t rows,
                       int64_t cols)
{
    const char *tensor = NAME("mlp.experts.%%.%s.weight", name);
    uint32_t u = reference_unit_add(b, layer, (struct named){tensor, tensor, 0, 0, false}, rows, cols, false);
    b->units.at[u].family = m->experts;
    return u;
}

/* weight of a sequence's balance loss, arXiv 2412.19437, equations 17 to 20: E / (K S) counts, 1 / S scores,
 * mean */
static double balance_scale(const struct builder *b, const struct moe *m)
{
    double s = (double)b->job->train.sequence;
    return m->balance * m->experts / (m->active * s) / (s * (double)b->job->train.batch);
}

/* What blocks of ranks and of nodes lack in rows, of which a program may say either, both or none; and the places that
 * choices get at nodes. */
static void needs(struct builder *b, uint32_t layer, struct moe_nodes *n)
{
    struct recipe once = {.op = OP_ARRANGE_ONCE}, arrange = {.op = OP_ARRANGE};
    INPUT(once, ARRANGE_ONCE, index, n->index);
    INPUT(arrange, ARRANGE, index, n->index);
    n->once = reference_make(b, once, OPND(ARRANGE_ONCE, place), NAME("layer %u: places of rows for nodes", layer),
                             b->nodes->at[n->index].cols, 0);
    reference_make(b, once, OPND(ARRANGE_ONCE, chosen), NAME("layer %u: choices at nodes", layer),
                   b->nodes->at[n->index].cols, 0);
    const char *name = NAME("layer %u: rows that experts lack", layer);
    uint32_t rows = reference_make(b, arrange, OPND(ARRANGE, need), name, 2, b->ntokens);
    uint32_t nodes = reference_make(b, once, OPND(ARRANGE_ONCE, need), NAME("layer %u: rows that nodes lack", layer), 2,
                                    b->ntokens);
    b->nodes->at[rows].max = b->nodes->at[nodes].max = true;
}

/* what goes to nodes of tokens' rows x: the same values, in other places */
static void to_nodes(struct builder *b, const struct moe_nodes *n, uint32_t x, const char *name)
{
    struct recipe r = {.op = OP_DISPATCH};
    INPUT(r, DISPATCH, x, x);
    INPUT(r, DISPATCH, place, n->once);
    reference_make(b, r, OPND(DISPATCH, y), name, b->nodes->at[x].cols, 0);
}

static void route(struct builder *b, uint32_t layer, const struct moe *m, uint32_t logits, struct moe_nodes *n)
{
    struct recipe r = {.op = OP_ROUTE};
    struct recipe step = {.op = RECIPE_SOURCE, .attr = {SOURCE_BLOCK, 0}};
    INPUT(r, ROUTE, logits, logits);
    INPUT(r, ROUTE, bias, reference_param(b, n->correction));
    INPUT(r, ROUTE, step, nodes_find(b->nodes, &step));
    INTEGER(r, ROUTE, sigmoid, m->router == ROUTER_SIGMOID);
    INTEGER(r, ROUTE, groups, m->groups);
    INTEGER(r, ROUTE, pick, m->pick);
    INTEGER(r, ROUTE, normalize, m->normalize);
    NUMBER(r, ROUTE, scale, m->scale);
    INTEGER(r, ROUTE, layer, layer);
    n->index = reference_make(b, r, OPND(ROUTE, index), NAME("layer %u: choices", layer), m->active, 0);
    n->weight = reference_make(b, r, OPND(ROUTE, weight), NAME("layer %u: choices' weights", layer), m->active, 0);
    n->score = reference_make(b, r, OPND(ROUTE, score), NAME("layer %u: router's scores", layer), m->experts, 0);
    struct recipe load = {.op = OP_LOAD}, arrange = {.op = OP_ARRANGE};
    INPUT(load, LOAD, index, n->index);
    n->load = reference_make(b, load, OPND(LOAD, load), NAME("layer %u: load of experts", layer), m->experts,
                             b->ntokens);
    INPUT(arrange, ARRANGE, index, n->index);
    n->place = reference_make(b, arrange, OPND(ARRANGE, place), NAME("layer %u: places of choices", layer), m->active,
                              0);
    n->counts = reference_make(b, arrange, OPND(ARRANGE, counts), NAME("layer %u: rows per expert", layer), 1, 0);
    needs(b, layer, n);
    if (!(m->balance > 0))
        return;
    struct recipe balance = {.op = OP_BALANCE};
    INPUT(balance, BALANCE, load, n->load);
    INPUT(balance, BALANCE, score, n->score);
    NUMBER(balance, BALANCE, scale, balance_scale(b, m));
    uint32_t loss = reference_make(b, balance, OPND(BALANCE, loss), NAME("layer %u: balance loss", layer), 1,
                                   b->ntokens);
    b->balance = reference_sum(b, b->balance, loss, "the balance loss");
}

static struct recipe product(const struct moe_nodes *n, enum op op, uint32_t a, uint32_t w)
{
    struct recipe r = {.op = (uint16_t)op};
    INPUT(r, GROUPED_NT, a, a); /* the three rows have the same operands, but for the bias */
    INPUT(r, GROUPED_NT, b, w);
    INPUT(r, GROUPED_NT, counts, n->counts);
    return r;
}

static uint32_t grouped(struct builder *b, const struct moe_nodes *n, enum op op, uint32_t a, uint32_t w,
                        const char *name, int64_t cols, int64_t domain)
{
    struct recipe r = product(n, op, a, w);
    INTEGER(r, GROUPED_NT, fp8, reference_fp8(b, NONE));
    return reference_make(b, r, OPND(GROUPED_NT, c), name, cols, domain);
}

/* rows a by the experts' k-th matrices, and their k-th biases */
static uint32_t projected(struct builder *b, const struct moe_nodes *n, uint32_t a, int k, const char *name,
                          int64_t cols, int64_t domain)
{
    struct recipe r = product(n, OP_GROUPED_NT, a, reference_param(b, n->w[k]));
    INPUT(r, GROUPED_NT, bias, n->offset[k] == NONE ? NODE_ZERO : reference_param(b, n->offset[k]));
    INTEGER(r, GROUPED_NT, fp8, reference_fp8(b, NONE));
    return reference_make(b, r, OPND(GROUPED_NT, c), name, cols, domain);
}

/* each expert's sum of its rows of dy, times their weights */
static void offset_gradient(struct builder *b, const struct moe_nodes *n, uint32_t unit, uint32_t dy, uint32_t weight)
{
    struct recipe r = {.op = OP_GROUPED_BIAS_W};
    if (unit == NONE)
        return;
    INPUT(r, GROUPED_BIAS_W, dy, dy);
    INPUT(r, GROUPED_BIAS_W, weight, weight);
    INPUT(r, GROUPED_BIAS_W, counts, n->counts);
    const struct weight_unit u = b->units.at[unit];
    reference_gradient(
        b, unit, reference_make(b, r, OPND(GROUPED_BIAS_W, db), NAME("gradient of %s", u.name), u.cols, b->ntokens));
}

static uint32_t dispatch(struct builder *b, const struct moe_nodes *n, uint32_t x, uint32_t weight, const char *name,
                         int64_t cols)
{
    struct recipe r = {.op = OP_DISPATCH};
    INPUT(r, DISPATCH, x, x);
    INPUT(r, DISPATCH, place, n->place);
    INPUT(r, DISPATCH, weight, weight);
    return reference_make(b, r, OPND(DISPATCH, y), name, cols, 0);
}

/* Rows, or gradients of them, as they are sent to experts, and as they are read there. */
static uint32_t sent(struct builder *b, uint32_t x, const char *name)
{
    struct recipe r = {.op = OP_QUANTIZE};
    INPUT(r, QUANTIZE, x, x);
    return b->job->train.fp8_sent ? reference_make(b, r, OPND(QUANTIZE, y), name, b->nodes->at[x].cols, 0) : x;
}

static uint32_t arrived(struct builder *b, uint32_t x, const char *name)
{
    struct recipe r = {.op = OP_DEQUANTIZE};
    INPUT(r, DEQUANTIZE, x, x);
    return b->job->train.fp8_sent ? reference_make(b, r, OPND(DEQUANTIZE, y), name, b->nodes->at[x].cols, 0) : x;
}

static uint32_t combine(struct builder *b, const struct moe_nodes *n, uint32_t x, uint32_t weight, const char *name,
                        int64_t experts)
{
    struct recipe r = {.op = OP_COMBINE};
    INPUT(r, COMBINE, x, x);
    INPUT(r, COMBINE, place, n->place);
    INPUT(r, COMBINE, weight, weight);
    return reference_make(b, r, OPND(COMBINE, y), name, (int64_t)b->model->width, experts);
}

static void add_units(struct builder *b, uint32_t layer, const struct moe *m, struct moe_nodes *n)
{
    int64_t h = (int64_t)b->model->width, w = (int64_t)m->expert.width, e = m->experts;
    const char *gate = "mlp.gate.weight", *bias = "mlp.gate.bias", *correction = "mlp.gate.e_score_correction_bias";
    n->router = reference_unit_add(b, layer, (struct named){gate, gate, 0, 0, false}, e, h, false);
    b->units.at[n->router].half = true;
    n->router_bias = n->correction = n->w[0] = NONE;
    if (m->linear_bias)
        n->router_bias = reference_unit_add(b, layer, (struct named){bias, bias, 0, 0, false}, 1, e, true);
    if (m->bias)
        n->correction = reference_unit_add(b, layer, (struct named){correction, correction, 0, 0, false}, 1, e, true);
    if (gated(&m->expert))
        n->w[0] = family(b, layer, m, "gate_proj", w, h);
    n->w[1] = family(b, layer, m, "up_proj", w, h);
    n->w[2] = family(b, layer, m, "down_proj", h, w);
    static const char *const names[3] = {"gate_proj", "up_proj", "down_proj"};
    for (int k = 0; k < 3; k++) {
        const char *tensor = NAME("mlp.experts.%%.%s.bias", names[k]);
        n->offset[k] = NONE;
        if (!m->expert.bias || n->w[k] == NONE)
            continue;
        n->offset[k] = reference_unit_add(b, layer, (struct named){tensor, tensor, 0, 0, false}, 1, k < 2 ? w : h,
                                          true);
        b->units.at[n->offset[k]].family = m->experts;
    }
}

uint32_t reference_moe(struct builder *b, uint32_t layer, const struct moe *m, uint32_t x, struct moe_nodes *n)
{
    int64_t h = (int64_t)b->model->width, w = (int64_t)m->expert.width;
    struct recipe act = reference_activation(&m->expert, false);
    n->x = x;
    add_units(b, layer, m, n);
    route(b, layer, m, reference_linear(b, x, n->router, n->router_bias, NAME("layer %u: router's logits", layer)), n);
    if (n->correction != NONE) {
        struct weight_unit *u = &b->units.at[n->correction];
        u->moved = true;
        u->rate = m->rate;
        u->gradient = n->load;
    }
    uint32_t rows = sent(b, x, NAME("layer %u: rows to experts in 8 bits", layer));
    to_nodes(b, n, rows, NAME("layer %u: rows at nodes", layer));
    to_nodes(b, n, n->weight, NAME("layer %u: choices' weights at nodes", layer));
    n->rows = arrived(b, dispatch(b, n, rows, NODE_ZERO, NAME("layer %u: experts' rows", layer), h),
                      NAME("layer %u: experts' rows of 8 bits", layer));
    n->up = projected(b, n, n->rows, 1, NAME("layer %u: experts' up", layer), w, h);
    if (gated(&m->expert)) {
        n->gate = projected(b, n, n->rows, 0, NAME("layer %u: experts' gate", layer), w, h);
        INPUT(act, SWIGLU, gate, n->gate);
        INPUT(act, SWIGLU, up, n->up);
    } else {
        INPUT(act, GELU, x, n->up);
    }
    n->act = reference_make(b, act, 0, NAME("layer %u: experts' activation", layer), w, 0);
    uint32_t back = projected(b, n, n->act, 2, NAME("layer %u: experts' down", layer), h, w);
    uint32_t y = combine(b, n, back, n->weight, NAME("layer %u: experts' output", layer), m->experts);
    if (!m->shared)
        return y;
    n->shared = m->expert;
    n->shared.width *= m->shared;
    uint32_t s = reference_ffn(b, layer, &n->shared, "mlp.shared_experts", x, &n->shared_nodes);
    return reference_sum(b, y, s, NAME("layer %u: output of all experts", layer));
}

static void weight_gradient(struct builder *b, const struct moe_nodes *n, uint32_t unit, uint32_t dy, uint32_t x)
{
    const struct weight_unit u = b->units.at[unit];
    reference_gradient(b, unit,
                       grouped(b, n, OP_GROUPED_TN, dy, x, NAME("gradient of %s", u.name), u.cols, b->ntokens));
}

/* The gradient of the experts' rows, from that of the tokens' sums, which goes to the experts without the choices'
 * weights. A sum's weights are factors of its rows' activations just as well, the product behind them being linear; so
 * dweight = (dy W) . activation, and nothing that experts sent back is needed again. */
static uint32_t experts_back(struct builder *b, uint32_t layer, const struct moe *m, const struct moe_nodes *n,
                             uint32_t dback, uint32_t *dweight)
{
    int64_t h = (int64_t)b->model->width, w = (int64_t)m->expert.width;
    struct recipe r = reference_activation(&m->expert, true), weigh = {.op = OP_WEIGH_I};
    uint32_t dsum = grouped(b, n, OP_GROUPED_NN, dback, reference_param(b, n->w[2]),
                            NAME("layer %u: gradient of experts' activation without weights", layer), w, h);
    INPUT(weigh, WEIGH_I, dy, dsum);
    bool again = b->again & PART_MOE_ACT && !(b->again & PART_MOE);
    uint32_t weights = dispatch(b, n, NODE_ZERO, n->weight, NAME("layer %u: weights of experts' rows", layer), 1);
    INPUT(weigh, WEIGH_I, x, reference_kept_act(b, &m->expert, n->gate, n->up, n->act, again));
    INPUT(weigh, WEIGH_I, weight, weights);
    uint32_t dact = reference_make(b, weigh, OPND(WEIGH_I, dx),
                                   NAME("layer %u: gradient of experts' activation", layer), w, 0);
    uint32_t act = reference_make(b, weigh, OPND(WEIGH_I, y), NAME("layer %u: weighted activation of experts", layer),
                                  w, 0);
    *dweight = reference_make(b, weigh, OPND(WEIGH_I, dweight),
                              NAME("layer %u: gradient of weights of experts' rows", layer), 1, w);
    if (n->offset[2] != NONE) /* weights are factors of the biases, too */
        *dweight = reference_sum(b, *dweight,
                                 reference_make(b, product(n, OP_GROUPED_NT, dback, reference_param(b, n->offset[2])),
                                                OPND(GROUPED_NT, c),
                                                NAME("layer %u: the same by experts' biases", layer), 1, h),
                                 NAME("layer %u: gradient of weights of experts' rows with biases", layer));
    offset_gradient(b, n, n->offset[2], dback, weights);
    uint32_t d = NODE_ZERO, dgate = NODE_ZERO, rows = b->job->train.fp8_sent ? n->rows : reference_kept(b, n->rows);
    weight_gradient(b, n, n->w[2], dback, act);
    if (gated(&m->expert)) {
        INPUT(r, SWIGLU_I, dy, dact);
        INPUT(r, SWIGLU_I, gate, reference_kept(b, n->gate));
        INPUT(r, SWIGLU_I, up, reference_kept(b, n->up));
        dgate = reference_make(b, r, OPND(SWIGLU_I, dgate), NAME("layer %u: gradient of experts' gate", layer), w, 0);
        weight_gradient(b, n, n->w[0], dgate, rows);
        offset_gradient(b, n, n->offset[0], dgate, NODE_ZERO);
        d = grouped(b, n, OP_GROUPED_NN, dgate, reference_param(b, n->w[0]),
                    NAME("layer %u: gradient of experts' rows by gate", layer), h, w);
    } else {
        INPUT(r, GELU_I, dy, dact);
        INPUT(r, GELU_I, x, reference_kept(b, n->up));
    }
    uint32_t dup = reference_make(b, r, gated(&m->expert) ? OPND(SWIGLU_I, dup) : OPND(GELU_I, dx),
                                  NAME("layer %u: gradient of experts' up", layer), w, 0);
    weight_gradient(b, n, n->w[1], dup, rows);
    offset_gradient(b, n, n->offset[1], dup, NODE_ZERO);
    uint32_t e = grouped(b, n, OP_GROUPED_NN, dup, reference_param(b, n->w[1]),
                         NAME("layer %u: gradient of experts' rows by up", layer), h, w);
    return reference_sum(b, d, e, NAME("layer %u: gradient of experts' rows", layer));
}

/* dn: the gradient that its input has already, to which each part is added */
uint32_t reference_moe_back(struct builder *b, uint32_t layer, const struct moe *m, const struct moe_nodes *n,
                            uint32_t dy, uint32_t dn)
{
    int64_t h = (int64_t)b->model->width;
    uint32_t d = dn;
    if (m->shared)
        d = reference_sum(b, d, reference_ffn_back(b, layer, &n->shared, &n->shared_nodes, dy, true),
                          NAME("layer %u: input gradient of shared experts", layer));
    uint32_t dsent = sent(b, dy, NAME("layer %u: gradients to experts in 8 bits", layer)), dweight;
    to_nodes(b, n, dsent, NAME("layer %u: gradient of rows at nodes", layer));
    uint32_t dback = arrived(b, dispatch(b, n, dsent, NODE_ZERO, NAME("layer %u: gradient of experts' down", layer), h),
                             NAME("layer %u: gradient of experts' down of 8 bits", layer));
    uint32_t drows = experts_back(b, layer, m, n, dback, &dweight);
    d = reference_sum(b, d,
                      combine(b, n, drows, NODE_ZERO, NAME("layer %u: input gradient of experts", layer), m->experts),
                      NAME("layer %u: input gradient of all experts", layer));
    struct recipe w = {.op = OP_COMBINE_W}, r = {.op = OP_ROUTE_I};
    INPUT(w, COMBINE_W, x, dweight);
    INPUT(w, COMBINE_W, place, n->place);
    INPUT(r, ROUTE_I, dweight,
          reference_make(b, w, OPND(COMBINE_W, dweight), NAME("layer %u: gradient of choices' weights", layer),
                         m->active, m->experts));
    INPUT(r, ROUTE_I, index, n->index);
    INPUT(r, ROUTE_I, score, n->score);
    if (m->balance > 0) {
        INPUT(r, ROUTE_I, load, n->load);
        INPUT(r, ROUTE_I, by, b->scale);
    }
    INTEGER(r, ROUTE_I, sigmoid, m->router == ROUTER_SIGMOID);
    INTEGER(r, ROUTE_I, normalize, m->normalize);
    NUMBER(r, ROUTE_I, scale, m->scale);
    NUMBER(r, ROUTE_I, balance, balance_scale(b, m));
    uint32_t dlogits = reference_make(b, r, OPND(ROUTE_I, dlogits),
                                      NAME("layer %u: gradient of router's logits", layer), m->experts, 0);
    uint32_t e = reference_linear_back(b, dlogits, reference_kept(b, n->x), n->router, n->router_bias,
                                       NAME("layer %u: router", layer));
    return reference_sum(b, d, e, NAME("layer %u: gradient of experts' input", layer));
}
