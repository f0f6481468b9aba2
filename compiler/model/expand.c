/* Model expansion: dense transformer layers, embedding and head as operators.
 *
 * One pass per layer, in forward order; the current residual value is threaded through.  Weights that are used as one
 * stacked matrix (q, k, v; gate, up) are listed in stacking order.  Attention is expanded in
 * expand_attn.c, experts in expand_moe.c.
 * Parallel sublayers: norms and both branches come before both additions, so that in the backward pass everything that
 * reads the branches' gradient, which shares the residual's buffer, is done before norms add to it. */

#include "compiler/model/expand_build.h"

#include <string.h>

#define NO_LAYER UINT32_MAX

uint32_t expand_value(struct expand_builder *b, const char *name, enum opr_class class, uint64_t cols)
{
    vec_push(b->arena, &b->values, (struct opr_value){.name = name, .class = class, .cols = cols});
    return (uint32_t)b->values.n - 1;
}

struct opr *expand_opr(struct expand_builder *b, enum opr_kind kind, const char *name, uint32_t in, uint32_t out)
{
    vec_push(b->arena, &b->oprs,
             (struct opr){.kind = kind,
                          .name = name,
                          .in = {in, NO_VALUE},
                          .out = out,
                          .weight = (uint32_t)b->weights.n,
                          .bias = (uint32_t)b->weights.n});
    return &b->oprs.at[b->oprs.n - 1];
}

struct opr_weight *expand_matrix(struct expand_builder *b, const char *llama, const char *gpt2, uint64_t rows,
                                 uint64_t cols, enum opr_split split)
{
    struct opr *o = &b->oprs.at[b->oprs.n - 1];
    vec_push(b->arena, &b->weights,
             (struct opr_weight){.suffix = b->gpt2 ? gpt2 : llama,
                                 .rows = rows,
                                 .cols = cols,
                                 .transposed = b->gpt2,
                                 .hf_rows = rows,
                                 .split = split,
                                 .decay = true,
                                 .init = WEIGHT_NORMAL});
    o->nweights++;
    o->bias = (uint32_t)b->weights.n;
    return &b->weights.at[b->weights.n - 1];
}

struct opr_weight *expand_vector(struct expand_builder *b, const char *llama, const char *gpt2, uint64_t n,
                                 enum opr_split split, enum opr_init init)
{
    struct opr *o = &b->oprs.at[b->oprs.n - 1];
    vec_push(b->arena, &b->weights,
             (struct opr_weight){.suffix = b->gpt2 ? gpt2 : llama,
                                 .rows = 1,
                                 .cols = n,
                                 .vector = true,
                                 .hf_rows = n,
                                 .split = split,
                                 .init = init});
    o->nbiases++;
    return &b->weights.at[b->weights.n - 1];
}

/* gain (and bias) count as the norm's "biases": vectors that are used, not multiplied as matrices */
uint32_t expand_norm(struct expand_builder *b, const char *name, const char *out, uint32_t in, const char *llama,
                     const char *gpt2)
{
    const struct model *m = b->model;
    uint32_t v = expand_value(b, out, CLASS_TOKENS, m->width);
    struct opr *o = expand_opr(b, OPR_NORM, name, in, v);
    o->span = m->norm_span;
    const char *stem = b->gpt2 ? gpt2 : llama;
    char *gain = arena_printf(b->arena, "%s.weight", stem), *bias = arena_printf(b->arena, "%s.bias", stem);
    expand_vector(b, gain, gain, m->width, SPLIT_NONE, WEIGHT_ONES);
    if (m->norm.kind == NORM_LAYER && m->norm.bias)
        expand_vector(b, bias, bias, m->width, SPLIT_NONE, WEIGHT_ZEROS);
    return v;
}

/* x + branch (+ bias) */
static uint32_t expand_add(struct expand_builder *b, const char *name, const char *out, uint32_t x, uint32_t branch,
                           const char *llama_bias, const char *gpt2_bias, struct span span)
{
    uint32_t v = expand_value(b, out, CLASS_TOKENS, b->model->width);
    struct opr *o = expand_opr(b, OPR_ADD, name, x, v);
    o->in[1] = branch;
    o->span = span;
    if (llama_bias)
        expand_vector(b, llama_bias, gpt2_bias, b->model->width, SPLIT_NONE, WEIGHT_ZEROS);
    return v;
}

static bool gated(enum act act)
{
    return act == ACT_SWIGLU || act == ACT_GEGLU;
}

static const char *ffn_name(const struct expand_builder *b, const char *tail)
{
    return arena_printf(b->arena, "%s.%s", b->ffn, tail);
}

uint32_t expand_ffn(struct expand_builder *b, const struct ffn *f, uint32_t in)
{
    uint64_t width = b->model->width, parts = gated(f->act) ? 2 : 1;
    uint32_t up = expand_value(b, "up", CLASS_COLS, parts * f->width);
    struct opr *o = expand_opr(b, OPR_LINEAR, "ffn.up", in, up);
    o->ffn = f;
    o->span = f->span;
    if (gated(f->act))
        expand_matrix(b, ffn_name(b, "gate_proj.weight"), "mlp.c_gate.weight", f->width, width, SPLIT_ROWS);
    expand_matrix(b, ffn_name(b, "up_proj.weight"), "mlp.c_fc.weight", f->width, width, SPLIT_ROWS);
    if (f->bias && gated(f->act))
        expand_vector(b, ffn_name(b, "gate_proj.bias"), "mlp.c_gate.bias", f->width, SPLIT_ROWS, WEIGHT_ZEROS);
    if (f->bias)
        expand_vector(b, ffn_name(b, "up_proj.bias"), "mlp.c_fc.bias", f->width, SPLIT_ROWS, WEIGHT_ZEROS);
    uint32_t h = expand_value(b, "h", CLASS_COLS, f->width);
    o = expand_opr(b, OPR_ACT, "ffn.act", up, h);
    o->ffn = f;
    o->span = f->span;
    uint32_t d = expand_value(b, "d", CLASS_TOKENS, width);
    o = expand_opr(b, OPR_LINEAR, "ffn.down", h, d);
    o->row_parallel = true;
    o->span = f->span;
    expand_matrix(b, ffn_name(b, "down_proj.weight"), "mlp.c_proj.weight", width, f->width, SPLIT_COLS)
        ->init = WEIGHT_RESIDUAL;
    return d;
}

struct expansion *expand_finish(struct expand_builder *b, uint32_t result)
{
    struct expansion *e = ARENA_NEW(b->arena, struct expansion);
    *e = (struct expansion){(uint32_t)b->values.n,
                            (uint32_t)b->oprs.n,
                            (uint32_t)b->weights.n,
                            b->values.at,
                            b->oprs.at,
                            b->weights.at,
                            result,
                            (uint32_t)b->oprs.n};
    return e;
}

/* the sublayers' branches up to what is added to the residual stream */
static uint32_t expand_branch(struct expand_builder *b, const struct layer *l, bool attn, uint32_t in)
{
    if (attn)
        return l->attn.kind == ATTN_MLA ? expand_mla(b, &l->attn, in) : expand_gqa(b, &l->attn, in);
    return l->is_moe ? expand_moe(b, &l->moe, in) : expand_ffn(b, &l->ffn, in);
}

struct sublayer {
    const char *add, *sum, *norm, *normed, *llama, *gpt2, *bias, *gpt2_bias;
    struct span span;
};

/* x + f, or x + norm(f + bias) */
static uint32_t expand_join(struct expand_builder *b, const struct sublayer *s, uint32_t x, uint32_t f)
{
    bool post = b->model->norm.place != NORM_PRE;
    if (post && s->bias)
        f = expand_add(b, arena_printf(b->arena, "%s.bias", s->add), arena_printf(b->arena, "%s.b", s->sum), f,
                       NO_VALUE, s->bias, s->gpt2_bias, s->span);
    if (post)
        f = expand_norm(b, s->norm, s->normed, f, s->llama, s->gpt2);
    return expand_add(b, s->add, s->sum, x, f, post ? NULL : s->bias, s->gpt2_bias, s->span);
}

uint32_t expand_sublayers(struct expand_builder *b, const struct layer *l, uint32_t x)
{
    const struct model *m = b->model;
    bool pre = m->norm.place != NORM_POST, both = m->norm.place == NORM_BOTH;
    struct sublayer attn = {"attn.add",
                            "x1",
                            "norm1.post",
                            "p1",
                            "post_attention_layernorm",
                            "ln_1_post",
                            l->attn.bias ? "self_attn.o_proj.bias" : NULL,
                            "attn.c_proj.bias",
                            l->attn.span};
    struct sublayer ffn = {"ffn.add",
                           "x2",
                           "norm2.post",
                           "p2",
                           "post_feedforward_layernorm",
                           "ln_2_post",
                           !l->is_moe && l->ffn.bias ? "mlp.down_proj.bias" : NULL,
                           "mlp.c_proj.bias",
                           l->is_moe ? l->moe.span : l->ffn.span};
    const char *second = both ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    uint32_t n1 = pre ? expand_norm(b, "norm1", "n1", x, "input_layernorm", "ln_1") : x, n2 = n1;
    if (l->parallel) {
        if (l->parallel_norms == 2)
            n2 = expand_norm(b, "norm2", "n2", x, second, "ln_2");
        uint32_t f1 = expand_branch(b, l, true, n1), f2 = expand_branch(b, l, false, n2);
        return expand_join(b, &ffn, expand_join(b, &attn, x, f1), f2);
    }
    uint32_t x1 = expand_join(b, &attn, x, expand_branch(b, l, true, n1));
    n2 = pre ? expand_norm(b, "norm2", "n2", x1, second, "ln_2") : x1;
    return expand_join(b, &ffn, x1, expand_branch(b, l, false, n2));
}

/* models with learned positions, layernorm, plain (ungated) FFN and plain attention carry GPT-2's names */
static bool gpt2_names(const struct model *m)
{
    if (!m->positions || m->norm.kind != NORM_LAYER)
        return false;
    for (uint32_t i = 0; i < m->nlayers; i++)
        if (m->layers[i]->is_moe || gated(m->layers[i]->ffn.act) || m->layers[i]->attn.kv != m->layers[i]->attn.heads ||
            m->layers[i]->attn.kind == ATTN_MLA || m->layers[i]->attn.qk_norm != QK_NORM_NO)
            return false;
    return true;
}

const struct expansion *expand_layer(struct arena *a, const struct model *m, const struct layer *l)
{
    struct expand_builder b = {.arena = a, .model = m, .gpt2 = gpt2_names(m), .ffn = "mlp"};
    uint32_t x = expand_value(&b, "x", CLASS_TOKENS, m->width);
    return expand_finish(&b, expand_sublayers(&b, l, x));
}

const struct expansion *expand_embed(struct arena *a, const struct model *m)
{
    struct expand_builder b = {.arena = a, .model = m, .gpt2 = gpt2_names(m), .ffn = "mlp"};
    uint32_t x = expand_value(&b, "e", CLASS_TOKENS, m->width);
    expand_opr(&b, OPR_EMBED, "embed", NO_VALUE, x)->span = m->embed_span;
    expand_matrix(&b, "model.embed_tokens.weight", "transformer.wte.weight", m->vocab, m->width, SPLIT_ROWS)
        ->transposed = false;
    if (m->embed_scale != 1) {
        struct opr *o = expand_opr(&b, OPR_SCALE, "embed.scale", x, x);
        o->span = m->embed_span;
        o->factor = m->embed_scale;
    }
    if (m->positions) {
        uint32_t y = expand_value(&b, "ep", CLASS_TOKENS, m->width);
        expand_opr(&b, OPR_POSITION, "positions", x, y)->span = m->positions_span;
        expand_matrix(&b, "model.embed_positions.weight", "transformer.wpe.weight", m->positions, m->width, SPLIT_NONE)
            ->transposed = false;
        x = y;
    }
    if (m->embed_norm)
        x = expand_norm(&b, "embed.norm", "en", x, "model.embed_layernorm", "transformer.word_embeddings_layernorm");
    return expand_finish(&b, x);
}

void expand_logits_loss(struct expand_builder *b, uint32_t x, const char *llama_norm, const char *gpt2_norm,
                        uint32_t ahead)
{
    const struct model *m = b->model;
    struct span span = ahead ? m->predict_span : m->head_span;
    uint32_t n = expand_norm(b, "norm.final", "nf", x, llama_norm, gpt2_norm);
    bool cap = m->head_softcap > 0;
    uint32_t logits = expand_value(b, cap ? "logits.raw" : "logits", CLASS_COLS, m->vocab);
    expand_opr(b, OPR_LINEAR, "head", n, logits)->span = span;
    const char *llama = m->tied ? "model.embed_tokens.weight" : "lm_head.weight";
    const char *gpt2 = m->tied ? "transformer.wte.weight" : "lm_head.weight";
    struct opr_weight *w = expand_matrix(b, llama, gpt2, m->vocab, m->width, SPLIT_ROWS);
    w->transposed = false;
    w->shared_with = ahead ? WEIGHT_OF_HEAD : WEIGHT_OWN;
    if (m->head_bias) {
        w = expand_vector(b, "lm_head.bias", "lm_head.bias", m->vocab, SPLIT_ROWS, WEIGHT_ZEROS);
        w->shared_with = ahead ? WEIGHT_OF_HEAD : WEIGHT_OWN;
    }
    if (m->head_scale != 1) {
        struct opr *o = expand_opr(b, OPR_SCALE, "head.scale", logits, logits);
        o->span = span;
        o->factor = m->head_scale;
    }
    if (cap) {
        uint32_t capped = expand_value(b, "logits", CLASS_COLS, m->vocab);
        struct opr *o = expand_opr(b, OPR_SOFTCAP, "head.softcap", logits, capped);
        o->span = span;
        o->factor = m->head_softcap;
        logits = capped;
    }
    struct opr *o = expand_opr(b, OPR_LOSS, "loss", logits, NO_VALUE);
    o->span = span;
    o->ahead = ahead;
}

const struct expansion *expand_head(struct arena *a, const struct model *m)
{
    struct expand_builder b = {.arena = a, .model = m, .gpt2 = gpt2_names(m), .ffn = "mlp"};
    uint32_t x = expand_value(&b, "xf", CLASS_TOKENS, m->width);
    expand_logits_loss(&b, x, "model.norm", "transformer.ln_f", 0);
    return expand_finish(&b, m->predict ? x : NO_VALUE);
}

char *expand_weight_name(struct arena *a, const struct opr_weight *w, uint32_t layer)
{
    if (layer == NO_LAYER || w->shared_with)
        return arena_strdup(a, w->suffix);
    bool gpt2 = !strncmp(w->suffix, "attn.", 5) || !strncmp(w->suffix, "ln_", 3) || !strncmp(w->suffix, "mlp.c_", 6);
    return arena_printf(a, "%s.%u.%s", gpt2 ? "transformer.h" : "model.layers", layer, w->suffix);
}

uint64_t expand_padded_vocab(uint64_t vocab, uint32_t tp)
{
    uint64_t step = vocab >= 8192 ? 64 * (uint64_t)tp : tp;
    return (vocab + step - 1) / step * step;
}

/* its output is scaled and capped at most, and is the loss's then */
static bool makes_logits(const struct expansion *e, const struct opr *o)
{
    const struct opr *end = e->oprs + e->noprs;
    for (o++; o < end && (o->kind == OPR_SCALE || o->kind == OPR_SOFTCAP); o++)
        continue;
    return o < end && o->kind == OPR_LOSS;
}

double expand_own_cols(const struct opr_value *v, uint32_t tp)
{
    double own = (double)(v->cols - v->keys) / tp;
    return v->keys ? own + (double)v->keys / model_key_parts(v->kv, tp) : own;
}

uint32_t expand_parts(const struct opr_weight *w, uint32_t tp)
{
    return w->kv ? model_key_parts(w->kv, tp) : tp;
}

bool expand_puts_off(const struct expansion *e, const struct opr *o)
{
    if (o->kind != OPR_LINEAR)
        return o->kind == OPR_EMBED || o->kind == OPR_POSITION;
    /* the head's gradient lies in the logits, which are kept */
    return makes_logits(e, o) || e->values[o->out].cols <= 8 * e->values[o->in[0]].cols;
}
