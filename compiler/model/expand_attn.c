/* Expansion of attention: from the (normalised) input to the branch's output before its bias.
 *
 * Grouped queries go through one fused projection [q | k | v]; norms of queries and keys write [q | k] beside
 * it. Latent attention as in DeepSeek-V2 (arXiv 2405.04434, section 2.1): queries and keys/values go through
 * low-rank projections that every tensor-parallel rank holds whole; the projections up to heads are
 * column-parallel.  The rotary key, which all heads share, is rotated on the rank's own rows and put to every
 * head by OPR_KEYS. */

#include "compiler/model/expand_build.h"

static struct opr *attn_opr(struct expand_builder *b, const struct attn *t, enum opr_kind kind, const char *name,
                            uint32_t in, uint32_t out)
{
    struct opr *o = expand_opr(b, kind, name, in, out);
    o->attn = t;
    o->span = t->span;
    return o;
}

static void stacked(struct opr_weight *w, uint64_t first, uint64_t all)
{
    w->hf_row = first;
    w->hf_rows = all;
}

static void expand_qkv(struct expand_builder *b, const struct attn *t, uint32_t in, uint32_t out)
{
    static const char *const name[3] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
    uint64_t q = (uint64_t)t->heads * t->head, kv = (uint64_t)t->kv * t->head, all = q + 2 * kv, at = 0;
    attn_opr(b, t, OPR_LINEAR, "attn.qkv", in, out);
    for (int i = 0; i < 3; i++) {
        uint64_t rows = i ? kv : q;
        struct opr_weight *w = expand_matrix(b, arena_printf(b->arena, "%s.weight", name[i]), "attn.c_attn.weight",
                                             rows, b->model->width, SPLIT_ROWS);
        w->kv = i ? t->kv : 0;
        if (b->gpt2)
            stacked(w, at, all);
        at += rows;
    }
    at = 0;
    for (int i = 0; (t->bias || t->qkv_bias) && i < 3; i++) {
        uint64_t rows = i ? kv : q;
        struct opr_weight *w = expand_vector(b, arena_printf(b->arena, "%s.bias", name[i]), "attn.c_attn.bias", rows,
                                             SPLIT_ROWS, WEIGHT_ZEROS);
        w->kv = i ? t->kv : 0;
        if (b->gpt2)
            stacked(w, at, all);
        at += rows;
    }
}

/* columns of the queries' heads, then so many times those of the key heads */
static uint32_t expand_heads(struct expand_builder *b, const struct attn *t, const char *name, uint32_t times)
{
    uint64_t keys = times * (uint64_t)t->kv * t->head;
    uint32_t v = expand_value(b, name, CLASS_COLS, (uint64_t)t->heads * t->head + keys);
    b->values.at[v].keys = keys;
    b->values.at[v].kv = t->kv;
    return v;
}

static uint32_t expand_head_norms(struct expand_builder *b, const struct attn *t, uint32_t qkv)
{
    uint32_t qk = expand_heads(b, t, "qk", 1);
    static const char *const name[2] = {"self_attn.q_norm.weight", "self_attn.k_norm.weight"};
    for (int k = 0; k < 2; k++) {
        attn_opr(b, t, OPR_HEADNORM, k ? "attn.k_norm" : "attn.q_norm", qkv, qk)->keys = k;
        uint64_t gains = t->qk_norm == QK_NORM_FULL ? (k ? t->kv : t->heads) : 1;
        expand_vector(b, name[k], name[k], gains * t->head, SPLIT_NONE, WEIGHT_ONES)->shared = true;
    }
    return qk;
}

static uint32_t expand_out(struct expand_builder *b, const struct attn *t, uint32_t out, uint64_t cols)
{
    uint32_t a = expand_value(b, "a", CLASS_TOKENS, b->model->width);
    struct opr *o = expand_opr(b, OPR_LINEAR, "attn.out", out, a);
    o->row_parallel = true;
    o->span = t->span;
    expand_matrix(b, "self_attn.o_proj.weight", "attn.c_proj.weight", b->model->width, cols, SPLIT_COLS)
        ->init = WEIGHT_RESIDUAL;
    return a;
}

uint32_t expand_gqa(struct expand_builder *b, const struct attn *t, uint32_t in)
{
    uint64_t q = (uint64_t)t->heads * t->head;
    uint32_t qkv = expand_heads(b, t, "qkv", 2), read = qkv;
    expand_qkv(b, t, in, qkv);
    if (t->qk_norm != QK_NORM_NO)
        read = expand_head_norms(b, t, qkv);
    if (t->rope.on)
        attn_opr(b, t, OPR_ROPE, "attn.rope", read, read);
    uint32_t out = expand_value(b, "o", CLASS_COLS, q);
    struct opr *o = attn_opr(b, t, OPR_ATTENTION, "attn.core", read, out);
    if (read != qkv)
        o->in[1] = qkv;
    if (t->sinks)
        expand_vector(b, "self_attn.sinks", "attn.sinks", t->heads, SPLIT_ROWS, WEIGHT_ZEROS);
    return expand_out(b, t, out, q);
}

/* a projection that is whole on every rank: `rows` of a tensor of `all`, from `first` on */
static uint32_t expand_down(struct expand_builder *b, const struct attn *t, uint32_t in, const char *name,
                            const char *value, const char *weight, uint64_t first, uint64_t rows, uint64_t all)
{
    uint32_t low = expand_value(b, value, CLASS_TOKENS, rows);
    expand_opr(b, OPR_LINEAR, name, in, low)->span = t->span;
    stacked(expand_matrix(b, weight, weight, rows, b->model->width, SPLIT_NONE), first, all);
    return low;
}

static uint32_t expand_latent_norm(struct expand_builder *b, const struct attn *t, uint32_t low, const char *name,
                                   const char *value, const char *weight, uint64_t rank)
{
    uint32_t out = expand_value(b, value, CLASS_TOKENS, rank);
    attn_opr(b, t, OPR_NORM, name, low, out); /* RMSNorm, whatever the model's norm is */
    expand_vector(b, weight, weight, rank, SPLIT_NONE, WEIGHT_ONES);
    return out;
}

uint32_t expand_mla(struct expand_builder *b, const struct attn *t, uint32_t in)
{
    uint64_t qk = (uint64_t)t->heads * t->head, v = (uint64_t)t->heads * t->v, width = b->model->width;
    uint64_t nope = (uint64_t)t->heads * t->nope, latent = (uint64_t)t->kv_rank + t->rope_dims;
    const char *down = "self_attn.kv_a_proj_with_mqa.weight", *up = "self_attn.kv_b_proj.weight";
    uint32_t q_in = in;
    if (t->q_rank) {
        q_in = expand_down(b, t, in, "mla.q_down", "cq", "self_attn.q_a_proj.weight", 0, t->q_rank, t->q_rank);
        q_in = expand_latent_norm(b, t, q_in, "mla.q_norm", "cqn", "self_attn.q_a_layernorm.weight", t->q_rank);
    }
    uint32_t ckv = expand_down(b, t, in, "mla.kv_down", "ckv", down, 0, t->kv_rank, latent);
    uint32_t kr = expand_down(b, t, in, "mla.k_rope", "kr", down, t->kv_rank, t->rope_dims, latent);
    ckv = expand_latent_norm(b, t, ckv, "mla.kv_norm", "ckvn", "self_attn.kv_a_layernorm.weight", t->kv_rank);
    uint32_t q = expand_value(b, "q", CLASS_COLS, qk), kv = expand_value(b, "kv", CLASS_COLS, nope + v);
    attn_opr(b, t, OPR_LINEAR, "mla.q_up", q_in, q);
    const char *name = t->q_rank ? "self_attn.q_b_proj.weight" : "self_attn.q_proj.weight";
    expand_matrix(b, name, name, qk, t->q_rank ? t->q_rank : width, SPLIT_ROWS);
    attn_opr(b, t, OPR_LINEAR, "mla.kv_up", ckv, kv);
    expand_matrix(b, up, up, nope + v, t->kv_rank, SPLIT_ROWS);
    attn_opr(b, t, OPR_ROPE, "attn.rope", q, q);
    attn_opr(b, t, OPR_ROPE, "mla.k_rotate", kr, kr);
    uint32_t keys = expand_value(b, "mkv", CLASS_COLS, qk + v);
    attn_opr(b, t, OPR_KEYS, "mla.keys", kv, keys)->in[1] = kr;
    uint32_t out = expand_value(b, "o", CLASS_COLS, v);
    attn_opr(b, t, OPR_ATTENTION, "attn.core", q, out)->in[1] = keys;
    return expand_out(b, t, out, v);
}
