/* The reference's attention: grouped queries (Ainslie et al. 2023) with norms of q and k, and latent
 * attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), written down as the mathematics has it: q, k and v
 * are matrices of their own, whatever a plan fuses. */

#include "compiler/support/real.h"
#include "compiler/verify/reference_build.h"

#include <math.h>

/* heads of `head` columns, of which dims turn, beginning with `from` */
static uint32_t rotate(struct builder *b, const struct attn *t, uint32_t x, uint32_t head, uint32_t from, bool inverse,
                       const char *name)
{
    const struct rope *p = &t->rope;
    bool yarn = p->scaling == ROPE_YARN;
    double step = 0.1 * real_log(p->factor);
    struct recipe r = {.op = OP_ROPE};
    INPUT(r, ROPE, x, x);
    INTEGER(r, ROPE, head, head);
    INTEGER(r, ROPE, dims, p->dims);
    INTEGER(r, ROPE, from, from);
    INTEGER(r, ROPE, adjacent, p->adjacent);
    INTEGER(r, ROPE, inverse, inverse);
    INTEGER(r, ROPE, sequence, b->job->train.sequence);
    NUMBER(r, ROPE, theta, p->theta);
    INTEGER(r, ROPE, scaling, p->scaling);
    NUMBER(r, ROPE, factor, p->factor);
    NUMBER(r, ROPE, low, yarn ? p->slow : p->low);
    NUMBER(r, ROPE, high, yarn ? p->fast : p->high);
    NUMBER(r, ROPE, original, p->original);
    if (yarn)
        NUMBER(r, ROPE, magnitude, (p->mscale * step + 1) / (p->mscale_all * step + 1));
    return reference_make(b, r, OPND(ROPE, y), name, b->nodes->at[x].cols, 0);
}

/* attributes that do not depend on how heads are split */
static void attention_attrs(const struct builder *b, const struct attn *t, struct recipe *r)
{
    INTEGER(*r, ATTENTION, head, t->head);
    INTEGER(*r, ATTENTION, sequence, t->chunk && t->chunk < b->job->train.sequence ? t->chunk : b->job->train.sequence);
    NUMBER(*r, ATTENTION, scale, 1 / sqrt(t->scale));
    INTEGER(*r, ATTENTION, window, t->window);
    NUMBER(*r, ATTENTION, softcap, t->softcap);
    INTEGER(*r, ATTENTION, alibi, t->alibi ? t->heads : 0);
}

static int64_t value_cols(const struct attn *t)
{
    return (int64_t)t->heads * (t->kind == ATTN_MLA ? t->v : t->head);
}

/* one more score per head, of no value */
static void sinks(struct builder *b, uint32_t layer, const struct attn *t, struct attn_nodes *n)
{
    struct recipe r = {.op = OP_SINK};
    n->sink = reference_unit_add(b, layer, (struct named){"self_attn.sinks", "attn.sinks", 0, 0, false}, 1, t->heads,
                                 true);
    INPUT(r, SINK, x, n->o);
    INPUT(r, SINK, lse, n->lse);
    INPUT(r, SINK, sink, reference_param(b, n->sink));
    INTEGER(r, SINK, head, t->head);
    n->o = reference_make(b, r, OPND(SINK, y), NAME("layer %u: attention with sinks", layer), value_cols(t), 0);
    n->lse = reference_make(b, r, OPND(SINK, total), NAME("layer %u: log-sum-exp with sinks", layer), t->heads, 0);
}

static void sinks_back(struct builder *b, const struct attn *t, const struct attn_nodes *n, uint32_t dout)
{
    struct recipe r = {.op = OP_SINK_W};
    INPUT(r, SINK_W, dy, dout);
    INPUT(r, SINK_W, y, n->o);
    INPUT(r, SINK_W, total, n->lse);
    INPUT(r, SINK_W, sink, reference_param(b, n->sink));
    INTEGER(r, SINK_W, head, t->head);
    const char *name = NAME("gradient of %s", b->units.at[n->sink].name);
    reference_gradient(b, n->sink, reference_make(b, r, OPND(SINK_W, dsink), name, t->heads, b->ntokens));
}

static uint32_t core(struct builder *b, uint32_t layer, const struct attn *t, struct attn_nodes *n)
{
    int64_t h = (int64_t)b->model->width;
    struct recipe r = {.op = OP_ATTENTION};
    INPUT(r, ATTENTION, q, n->qkv[0]);
    INPUT(r, ATTENTION, k, n->qkv[1]);
    INPUT(r, ATTENTION, v, n->qkv[2]);
    attention_attrs(b, t, &r);
    n->o = reference_make(b, r, OPND(ATTENTION, o), NAME("layer %u: attention", layer), value_cols(t), 0);
    n->lse = reference_make(b, r, OPND(ATTENTION, lse), NAME("layer %u: attention's log-sum-exp", layer), t->heads, 0);
    if (t->sinks)
        sinks(b, layer, t, n);
    n->wo = reference_unit_add(b, layer, (struct named){"self_attn.o_proj.weight", "attn.c_proj.weight", 0, 0, false},
                               h, value_cols(t), false);
    n->bo = NONE;
    if (t->bias)
        n->bo = reference_unit_add(b, layer, (struct named){"self_attn.o_proj.bias", "attn.c_proj.bias", 0, 0, false},
                                   1, h, true);
    return reference_linear(b, n->o, n->wo, n->bo, NAME("layer %u: attention's output", layer));
}

/* gradients by q, k and v as attention reads them */
static void core_back(struct builder *b, uint32_t layer, const struct attn *t, const struct attn_nodes *n, uint32_t dy,
                      uint32_t d[3])
{
    static const char *const letter[3] = {"q", "k", "v"};
    struct recipe r = {.op = OP_ATTENTION_I};
    uint32_t dout = reference_linear_back(b, dy, n->o, n->wo, n->bo, NAME("layer %u: attention's output", layer));
    if (t->sinks)
        sinks_back(b, t, n, dout);
    INPUT(r, ATTENTION_I, q, n->qkv[0]);
    INPUT(r, ATTENTION_I, k, n->qkv[1]);
    INPUT(r, ATTENTION_I, v, n->qkv[2]);
    INPUT(r, ATTENTION_I, o, n->o);
    INPUT(r, ATTENTION_I, lse, n->lse);
    INPUT(r, ATTENTION_I, dout, dout);
    attention_attrs(b, t, &r);
    for (size_t i = 0; i < 3; i++)
        d[i] = reference_make(b, r, OPND(ATTENTION_I, dq) + i, NAME("layer %u: gradient of %s", layer, letter[i]),
                              b->nodes->at[n->qkv[i]].cols, 0);
}

/* ---- norms of q (0) and k (1), head by head ---- */

/* columns that are normalised together: a head, or all */
static int64_t normed(const struct attn *t, int k)
{
    return t->qk_norm == QK_NORM_FULL ? (int64_t)(k ? t->kv : t->heads) * t->head : t->head;
}

static uint32_t head_norm(struct builder *b, uint32_t layer, const struct attn *t, uint32_t x, int k,
                          struct attn_nodes *n)
{
    const char *letter = k ? "k" : "q";
    struct named name = {NAME("self_attn.%s_norm.weight", letter), NAME("self_attn.%s_norm.weight", letter), 0, 0,
                         false};
    n->gain[k] = reference_unit_add(b, layer, name, 1, normed(t, k), true);
    b->units.at[n->gain[k]].init = INIT_ONES;
    struct recipe r = {.op = OP_HEADNORM};
    INPUT(r, HEADNORM, x, x);
    INPUT(r, HEADNORM, g, reference_param(b, n->gain[k]));
    INTEGER(r, HEADNORM, head, normed(t, k));
    NUMBER(r, HEADNORM, eps, b->model->norm.eps);
    n->rstd[k] = reference_make(b, r, OPND(HEADNORM, rstd), NAME("layer %u: 1/rms of %s", layer, letter),
                                b->nodes->at[x].cols / normed(t, k), 0);
    return reference_make(b, r, OPND(HEADNORM, y), NAME("layer %u: normalised %s", layer, letter), b->nodes->at[x].cols,
                          0);
}

static uint32_t head_norm_back(struct builder *b, uint32_t layer, const struct attn *t, uint32_t dy, int k,
                               const struct attn_nodes *n)
{
    const char *letter = k ? "k" : "q";
    struct recipe w = {.op = OP_HEADNORM_W}, r = {.op = OP_HEADNORM_I};
    INPUT(w, HEADNORM_W, dy, dy);
    INPUT(w, HEADNORM_W, x, n->raw[k]);
    INPUT(w, HEADNORM_W, rstd, n->rstd[k]);
    INTEGER(w, HEADNORM_W, head, normed(t, k));
    reference_gradient(b, n->gain[k],
                       reference_make(b, w, OPND(HEADNORM_W, dg), NAME("gradient of %s", b->units.at[n->gain[k]].name),
                                      normed(t, k), b->ntokens * (b->nodes->at[dy].cols / normed(t, k))));
    INPUT(r, HEADNORM_I, dy, dy);
    INPUT(r, HEADNORM_I, x, n->raw[k]);
    INPUT(r, HEADNORM_I, g, reference_param(b, n->gain[k]));
    INPUT(r, HEADNORM_I, rstd, n->rstd[k]);
    INTEGER(r, HEADNORM_I, head, normed(t, k));
    return reference_make(b, r, OPND(HEADNORM_I, dx), NAME("layer %u: gradient of raw %s", layer, letter),
                          b->nodes->at[dy].cols, 0);
}

/* ---- grouped queries ---- */

/* how often each key head is written down: once for every tensor-parallel rank that attends to it (reference.h) */
static int64_t repeats(const struct builder *b, const struct attn *t)
{
    return b->tp > (int64_t)t->kv && b->tp % t->kv == 0 ? b->tp / t->kv : 1;
}

static uint32_t grouped(struct builder *b, uint32_t layer, const struct attn *t, struct attn_nodes *n)
{
    static const char *const letter[3] = {"q", "k", "v"};
    int64_t h = (int64_t)b->model->width, q = (int64_t)t->heads * t->head, kv = (int64_t)t->kv * t->head;
    const int64_t rows[3] = {q, kv, kv}, at[3] = {0, q, q + kv};
    for (int i = 0; i < 3; i++)
        n->w[i] = reference_unit_add(
            b, layer,
            (struct named){NAME("self_attn.%s_proj.weight", letter[i]), "attn.c_attn.weight", at[i], q + 2 * kv, false},
            rows[i], h, false);
    for (int i = 0; i < 3; i++) {
        n->bias[i] = NONE;
        if (t->bias || t->qkv_bias)
            n->bias[i] = reference_unit_add(
                b, layer,
                (struct named){NAME("self_attn.%s_proj.bias", letter[i]), "attn.c_attn.bias", at[i], q + 2 * kv, false},
                1, rows[i], true);
        if (i && n->bias[i] != NONE)
            reference_repeat(b, n->bias[i], repeats(b, t), t->head);
        if (i)
            reference_repeat(b, n->w[i], repeats(b, t), t->head);
    }
    for (int i = 0; i < 3; i++) {
        n->raw[i] = n->qkv[i] = reference_linear(b, n->x, n->w[i], n->bias[i], NAME("layer %u: %s", layer, letter[i]));
        if (i < 2 && t->qk_norm != QK_NORM_NO)
            n->qkv[i] = head_norm(b, layer, t, n->qkv[i], i, n);
        if (i < 2 && t->rope.on)
            n->qkv[i] = rotate(b, t, n->qkv[i], t->head, 0, false, NAME("layer %u: rotated %s", layer, letter[i]));
    }
    return core(b, layer, t, n);
}

static uint32_t grouped_back(struct builder *b, uint32_t layer, const struct attn *t, const struct attn_nodes *n,
                             uint32_t dy, uint32_t dn)
{
    static const char *const letter[3] = {"q", "k", "v"};
    uint32_t d[3], own = NODE_ZERO;
    core_back(b, layer, t, n, dy, d);
    for (int i = 0; i < 3; i++) {
        if (i < 2 && t->rope.on)
            d[i] = rotate(b, t, d[i], t->head, 0, true, NAME("layer %u: gradient of unrotated %s", layer, letter[i]));
        if (i < 2 && t->qk_norm != QK_NORM_NO)
            d[i] = head_norm_back(b, layer, t, d[i], i, n);
        own = reference_sum(b, own,
                            reference_linear_back(b, d[i], reference_kept(b, n->x), n->w[i], n->bias[i],
                                                  NAME("layer %u: %s", layer, letter[i])),
                            NAME("layer %u: gradient of attention's input", layer));
    }
    return dn == NODE_ZERO ? own : reference_sum(b, dn, own, NAME("layer %u: gradient of its sublayers' input", layer));
}

/* ---- latent attention ---- */

static uint32_t latent(struct builder *b, uint32_t layer, const struct attn *t, struct attn_nodes *n)
{
    const char *down = "self_attn.kv_a_proj_with_mqa.weight", *up = "self_attn.kv_b_proj.weight";
    const char *q_name = t->q_rank ? "self_attn.q_b_proj.weight" : "self_attn.q_proj.weight";
    int64_t h = (int64_t)b->model->width, heads = t->heads, all = (int64_t)t->kv_rank + t->rope_dims;
    uint32_t q_in = n->x;
    n->down[0] = NONE;
    if (t->q_rank) {
        const char *a = "self_attn.q_a_proj.weight";
        n->down[0] = reference_unit_add(b, layer, (struct named){a, a, 0, 0, false}, t->q_rank, h, false);
        n->latent[0] = reference_linear(b, n->x, n->down[0], NONE, NAME("layer %u: latent of q", layer));
        n->norm[0] = reference_rms(b, layer, n->latent[0], "self_attn.q_a_layernorm.weight",
                                   NAME("layer %u: norm of q's latent", layer));
        q_in = n->norm[0].y;
    }
    n->down[1] = reference_unit_add(b, layer, (struct named){down, down, 0, all, true}, t->kv_rank, h, false);
    n->down[2] = reference_unit_add(b, layer, (struct named){down, down, t->kv_rank, all, true}, t->rope_dims, h,
                                    false);
    n->latent[1] = reference_linear(b, n->x, n->down[1], NONE, NAME("layer %u: latent of k and v", layer));
    n->latent[2] = reference_linear(b, n->x, n->down[2], NONE, NAME("layer %u: rotary key", layer));
    n->norm[1] = reference_rms(b, layer, n->latent[1], "self_attn.kv_a_layernorm.weight",
                               NAME("layer %u: norm of k's and v's latent", layer));
    n->up[0] = reference_unit_add(b, layer, (struct named){q_name, q_name, 0, 0, false}, heads * t->head,
                                  t->q_rank ? t->q_rank : h, false);
    n->up[1] = reference_unit_add(b, layer, (struct named){up, up, 0, 0, false}, heads * (t->nope + t->v), t->kv_rank,
                                  false);
    n->qkv[0] = rotate(b, t, reference_linear(b, q_in, n->up[0], NONE, NAME("layer %u: q", layer)), t->head, t->nope,
                       false, NAME("layer %u: rotated q", layer));
    struct recipe r = {.op = OP_MLA_KEYS};
    INPUT(r, MLA_KEYS, kv,
          reference_linear(b, n->norm[1].y, n->up[1], NONE, NAME("layer %u: k and v without positions", layer)));
    INPUT(r, MLA_KEYS, rope, rotate(b, t, n->latent[2], t->rope_dims, 0, false, NAME("layer %u: rotated key", layer)));
    INTEGER(r, MLA_KEYS, head, t->head);
    n->qkv[1] = reference_make(b, r, OPND(MLA_KEYS, k), NAME("layer %u: k", layer), heads * t->head, 0);
    n->qkv[2] = reference_make(b, r, OPND(MLA_KEYS, v), NAME("layer %u: v", layer), heads * t->v, 0);
    return core(b, layer, t, n);
}

static uint32_t latent_back(struct builder *b, uint32_t layer, const struct attn *t, const struct attn_nodes *n,
                            uint32_t dy, uint32_t dn)
{
    int64_t heads = t->heads;
    const char *sum = NAME("layer %u: gradient of attention's input", layer);
    uint32_t d[3];
    core_back(b, layer, t, n, dy, d);
    struct recipe r = {.op = OP_MLA_KEYS_I};
    INPUT(r, MLA_KEYS_I, dk, d[1]);
    INPUT(r, MLA_KEYS_I, dv, d[2]);
    INTEGER(r, MLA_KEYS_I, head, t->head);
    uint32_t dkv = reference_make(b, r, OPND(MLA_KEYS_I, dkv),
                                  NAME("layer %u: gradient of k and v without positions", layer),
                                  heads * (t->nope + t->v), 0);
    uint32_t dr = reference_make(b, r, OPND(MLA_KEYS_I, drope), NAME("layer %u: gradient of the rotated key", layer),
                                 t->rope_dims, heads);
    dr = rotate(b, t, dr, t->rope_dims, 0, true, NAME("layer %u: gradient of the rotary key", layer));
    uint32_t dq = rotate(b, t, d[0], t->head, t->nope, true, NAME("layer %u: gradient of unrotated q", layer));
    dkv = reference_linear_back(b, dkv, reference_kept(b, n->norm[1].y), n->up[1], NONE,
                                NAME("layer %u: k and v", layer));
    dq = reference_linear_back(b, dq, reference_kept(b, t->q_rank ? n->norm[0].y : n->x), n->up[0], NONE,
                               NAME("layer %u: q", layer));
    if (!t->q_rank)
        dn = reference_sum(b, dn, dq, sum);
    dn = reference_sum(
        b, dn,
        reference_linear_back(b, dr, reference_kept(b, n->x), n->down[2], NONE, NAME("layer %u: rotary key", layer)),
        sum);
    dkv = reference_norm_back(b, &n->norm[1], dkv);
    dn = reference_sum(b, dn,
                       reference_linear_back(b, dkv, reference_kept(b, n->x), n->down[1], NONE,
                                             NAME("layer %u: latent of k and v", layer)),
                       sum);
    if (!t->q_rank)
        return dn;
    dq = reference_norm_back(b, &n->norm[0], dq);
    return reference_sum(
        b, dn,
        reference_linear_back(b, dq, reference_kept(b, n->x), n->down[0], NONE, NAME("layer %u: latent of q", layer)),
        sum);
}

uint32_t reference_attention(struct builder *b, uint32_t layer, const struct attn *t, uint32_t x, struct attn_nodes *n)
{
    n->x = x;
    return t->kind == ATTN_MLA ? latent(b, layer, t, n) : grouped(b, layer, t, n);
}

uint32_t reference_attention_back(struct builder *b, uint32_t layer, const struct attn *t, const struct attn_nodes *n,
                                  uint32_t dy, uint32_t dn)
{
    return t->kind == ATTN_MLA ? latent_back(b, layer, t, n, dy, dn) : grouped_back(b, layer, t, n, dy, dn);
}
