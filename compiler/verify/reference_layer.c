/* The reference's layers: feed-forward, and how sublayers join the residual stream.
 *
 * x + f(n(x)), x + n(f(x)) or x + n(f(n(x))), one sublayer after the other or both of the same input.  Sums
 * of gradients carry a name at each state that an accumulating backward pass can leave them in. */

#include "compiler/verify/reference_build.h"

static bool gated(const struct ffn *f)
{
    return f->act == ACT_SWIGLU || f->act == ACT_GEGLU;
}

/* the recipe of an activation or of its gradient; inputs are the caller's */
struct recipe reference_activation(const struct ffn *f, bool back)
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
        NUMBER(r, SWIGLU, limit, f->limit);
        NUMBER(r, SWIGLU, alpha, model_alpha(f));
        NUMBER(r, SWIGLU, offset, f->offset);
        break;
    case ACT_GEGLU:
        r.op = back ? OP_GEGLU_I : OP_GEGLU;
        INTEGER(r, GEGLU, tanh, f->approx_tanh);
        break;
    }
    return r;
}

uint32_t reference_kept_act(struct builder *b, const struct ffn *f, uint32_t gate, uint32_t up, uint32_t act,
                            bool again)
{
    struct recipe r = reference_activation(f, false);
    if (!again || !b->job->train.fp8_kept)
        return reference_kept(b, act);
    if (gated(f)) {
        INPUT(r, SWIGLU, gate, reference_kept(b, gate)); /* GEGLU has the same operands */
        INPUT(r, SWIGLU, up, reference_kept(b, up));
    } else {
        INPUT(r, GELU, x, reference_kept(b, up));
    }
    uint32_t node = nodes_find(b->nodes, &r);
    if (node == NONE)
        node = reference_make(b, r, 0, NAME("%s of 8 bits", nodes_name(b->nodes, act)), b->nodes->at[act].cols, 0);
    return reference_kept(b, node);
}

uint32_t reference_ffn(struct builder *b, uint32_t layer, const struct ffn *f, const char *prefix, uint32_t x,
                       struct ffn_nodes *n)
{
    int64_t h = (int64_t)b->model->width, w = (int64_t)f->width;
    *n = (struct ffn_nodes){.wgate = NONE, .bgate = NONE, .bup = NONE, .bdown = NONE};
    n->x = x;
    if (gated(f))
        n->wgate = reference_unit_add(
            b, layer, (struct named){NAME("%s.gate_proj.weight", prefix), "mlp.c_gate.weight", 0, 0, false}, w, h,
            false);
    n->wup = reference_unit_add(
        b, layer, (struct named){NAME("%s.up_proj.weight", prefix), "mlp.c_fc.weight", 0, 0, false}, w, h, false);
    if (f->bias && gated(f))
        n->bgate = reference_unit_add(
            b, layer, (struct named){NAME("%s.gate_proj.bias", prefix), "mlp.c_gate.bias", 0, 0, false}, 1, w, true);
    if (f->bias)
        n->bup = reference_unit_add(
            b, layer, (struct named){NAME("%s.up_proj.bias", prefix), "mlp.c_fc.bias", 0, 0, false}, 1, w, true);
    n->wdown = reference_unit_add(
        b, layer, (struct named){NAME("%s.down_proj.weight", prefix), "mlp.c_proj.weight", 0, 0, false}, h, w, false);
    if (f->bias)
        n->bdown = reference_unit_add(
            b, layer, (struct named){NAME("%s.down_proj.bias", prefix), "mlp.c_proj.bias", 0, 0, false}, 1, h, true);
    struct recipe r = reference_activation(f, false);
    n->up = reference_linear(b, n->x, n->wup, n->bup, NAME("layer %u: up", layer));
    if (gated(f)) {
        n->gate = reference_linear(b, n->x, n->wgate, n->bgate, NAME("layer %u: gate", layer));
        INPUT(r, SWIGLU, gate, n->gate); /* GEGLU has the same operands */
        INPUT(r, SWIGLU, up, n->up);
    } else {
        INPUT(r, GELU, x, n->up);
    }
    n->act = reference_make(b, r, 0, NAME("layer %u: activation", layer), w, 0);
    return reference_linear(b, n->act, n->wdown, n->bdown, NAME("layer %u: down", layer));
}

/* gradients of gate and up by its input come from one product, which adds them up */
uint32_t reference_ffn_back(struct builder *b, uint32_t layer, const struct ffn *f, const struct ffn_nodes *n,
                            uint32_t dy, bool shared)
{
    int64_t w = (int64_t)f->width;
    struct recipe r = reference_activation(f, true);
    bool again = b->again & PART_FFN_ACT && !(b->again & PART_FFN) && !shared;
    uint32_t x = reference_kept(b, n->x), act = reference_kept_act(b, f, n->gate, n->up, n->act, again), dn = NODE_ZERO;
    uint32_t dact = reference_linear_back(b, dy, act, n->wdown, n->bdown, NAME("layer %u: down", layer));
    if (gated(f)) {
        INPUT(r, SWIGLU_I, dy, dact);
        INPUT(r, SWIGLU_I, gate, reference_kept(b, n->gate));
        INPUT(r, SWIGLU_I, up, reference_kept(b, n->up));
        uint32_t dgate = reference_make(b, r, OPND(SWIGLU_I, dgate), NAME("layer %u: gradient of gate", layer), w, 0);
        dn = reference_linear_back(b, dgate, x, n->wgate, n->bgate, NAME("layer %u: gate", layer));
    } else {
        INPUT(r, GELU_I, dy, dact);
        INPUT(r, GELU_I, x, reference_kept(b, n->up));
    }
    uint32_t dup = reference_make(b, r, gated(f) ? OPND(SWIGLU_I, dup) : OPND(GELU_I, dx),
                                  NAME("layer %u: gradient of up", layer), w, 0);
    return reference_sum(b, dn, reference_linear_back(b, dup, x, n->wup, n->bup, NAME("layer %u: up", layer)),
                         NAME("layer %u: gradient of feed-forward's input", layer));
}

/* ---- the layer ---- */

static uint32_t add_residual(struct builder *b, uint32_t layer, uint32_t x, uint32_t f, const char *what)
{
    return reference_sum(b, x, f, NAME("layer %u: %s", layer, what));
}

uint32_t reference_layer(struct builder *b, uint32_t layer, const struct layer *l, uint32_t x, struct layer_nodes *n)
{
    bool pre = b->model->norm.place != NORM_POST, post = b->model->norm.place != NORM_PRE;
    const char *second = pre && post ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    uint32_t in = x;
    if (pre) {
        n->norm[0] = reference_norm(b, layer, x, "input_layernorm", "ln_1", NAME("layer %u: attention's norm", layer));
        in = n->norm[0].y;
    }
    uint32_t f = reference_attention(b, layer, &l->attn, in, &n->attn);
    if (post) {
        n->post[0] = reference_norm(b, layer, f, "post_attention_layernorm", "ln_1_post",
                                    NAME("layer %u: norm behind attention", layer));
        f = n->post[0].y;
    }
    uint32_t x1 = add_residual(b, layer, x, f, "after attention");
    if (!l->parallel)
        in = x1;
    if (l->parallel ? l->parallel_norms == 2 : pre) {
        n->norm[1] = reference_norm(b, layer, l->parallel ? x : x1, second, "ln_2",
                                    NAME("layer %u: feed-forward's norm", layer));
        in = n->norm[1].y;
    }
    f = l->is_moe ? reference_moe(b, layer, &l->moe, in, &n->moe)
                  : reference_ffn(b, layer, &l->ffn, "mlp", in, &n->ffn);
    if (post) {
        n->post[1] = reference_norm(b, layer, f, "post_feedforward_layernorm", "ln_2_post",
                                    NAME("layer %u: norm behind feed-forward", layer));
        f = n->post[1].y;
    }
    return add_residual(b, layer, x1, f, "output");
}

static uint32_t sublayer_back(struct builder *b, uint32_t layer, const struct layer *l, const struct layer_nodes *n,
                              uint32_t dy, uint32_t dn)
{
    if (l->is_moe)
        return reference_moe_back(b, layer, &l->moe, &n->moe, dy, dn);
    return reference_sum(b, dn, reference_ffn_back(b, layer, &l->ffn, &n->ffn, dy, false),
                         NAME("layer %u: gradient of feed-forward's input", layer));
}

static uint32_t parallel_back(struct builder *b, uint32_t layer, const struct layer *l, const struct layer_nodes *n,
                              uint32_t dx)
{
    uint32_t df = sublayer_back(b, layer, l, n, dx, NODE_ZERO), dn = l->parallel_norms == 1 ? df : NODE_ZERO, d = dx;
    dn = reference_attention_back(b, layer, &l->attn, &n->attn, dx, dn);
    if (l->parallel_norms == 2)
        d = add_residual(b, layer, d, reference_norm_back(b, &n->norm[1], df), "gradient of its input by feed-forward");
    return add_residual(b, layer, d, reference_norm_back(b, &n->norm[0], dn), "gradient of its input");
}

uint32_t reference_layer_back(struct builder *b, uint32_t layer, const struct layer *l, const struct layer_nodes *n,
                              uint32_t dx)
{
    bool pre = b->model->norm.place != NORM_POST, post = b->model->norm.place != NORM_PRE;
    if (l->parallel)
        return parallel_back(b, layer, l, n, dx);
    uint32_t d = post ? reference_norm_back(b, &n->post[1], dx) : dx;
    /* without a norm before the sublayer, its products add to the residual's gradient */
    d = sublayer_back(b, layer, l, n, d, pre ? NODE_ZERO : dx);
    dx = pre ? add_residual(b, layer, dx, reference_norm_back(b, &n->norm[1], d), "gradient after attention") : d;
    d = post ? reference_norm_back(b, &n->post[0], dx) : dx;
    if (!pre) /* its products add to the residual's gradient one by one */
        return reference_attention_back(b, layer, &l->attn, &n->attn, d, dx);
    d = reference_attention_back(b, layer, &l->attn, &n->attn, d, NODE_ZERO);
    return add_residual(b, layer, dx, reference_norm_back(b, &n->norm[0], d), "gradient of its input");
}
