/* Expansion of what is planned and costed but not run yet: latent attention and mixtures of experts.
 *
 * Latent attention as in DeepSeek-V2 (arXiv 2405.04434, section 2.1): queries and keys/values go through low-rank
 * projections that every tensor-parallel rank holds whole; the projections up to heads are column-parallel.
 * All experts of a layer are one operator with stacked weights; shared experts are an FFN of their own beside it. */

#include "compiler/model/expand_build.h"

/* a low-rank projection down, whole on every rank, and its norm */
static uint32_t expand_down(struct expand_builder *b, const struct attn *t, uint32_t in, const char *name, uint64_t rows,
                            uint64_t normed, const char *weight, const char *norm)
{
    uint32_t low = expand_value(b, name, CLASS_TOKENS, rows);
    expand_opr(b, OPR_LINEAR, name, in, low)->span = t->span;
    expand_matrix(b, weight, weight, rows, b->model->width, SPLIT_NONE);
    uint32_t out = expand_value(b, arena_printf(b->arena, "%s.n", name), CLASS_TOKENS, normed);
    expand_opr(b, OPR_NORM, arena_printf(b->arena, "%s.norm", name), low, out)->span = t->span;
    expand_vector(b, norm, norm, normed, SPLIT_NONE, WEIGHT_ONES);
    return out;
}

uint32_t expand_mla(struct expand_builder *b, const struct attn *t, uint32_t in)
{
    uint64_t qk = (uint64_t)t->heads * (t->nope + t->rope_dims), v = (uint64_t)t->heads * t->v;
    uint64_t width = b->model->width, nope = (uint64_t)t->heads * t->nope;
    uint32_t q_in = in;
    if (t->q_rank)
        q_in = expand_down(b, t, in, "mla.q_down", t->q_rank, t->q_rank, "self_attn.q_a_proj.weight",
                           "self_attn.q_a_layernorm.weight");
    uint32_t kv_in = expand_down(b, t, in, "mla.kv_down", (uint64_t)t->kv_rank + t->rope_dims, t->kv_rank,
                                 "self_attn.kv_a_proj_with_mqa.weight", "self_attn.kv_a_layernorm.weight");
    uint32_t q = expand_value(b, "q", CLASS_COLS, qk);
    struct opr *o = expand_opr(b, OPR_LINEAR, "mla.q_up", q_in, q);
    o->attn = t;
    o->span = t->span;
    const char *name = t->q_rank ? "self_attn.q_b_proj.weight" : "self_attn.q_proj.weight";
    expand_matrix(b, name, name, qk, t->q_rank ? t->q_rank : width, SPLIT_ROWS);
    uint32_t kv = expand_value(b, "kv", CLASS_COLS, nope + v);
    o = expand_opr(b, OPR_LINEAR, "mla.kv_up", kv_in, kv);
    o->attn = t;
    o->span = t->span;
    expand_matrix(b, "self_attn.kv_b_proj.weight", "self_attn.kv_b_proj.weight", nope + v, t->kv_rank, SPLIT_ROWS);
    o = expand_opr(b, OPR_ROPE, "attn.rope", q, q);
    o->attn = t;
    o->span = t->span;
    uint32_t out = expand_value(b, "o", CLASS_COLS, v);
    o = expand_opr(b, OPR_ATTENTION, "attn.core", q, out);
    o->in[1] = kv;
    o->attn = t;
    o->span = t->span;
    uint32_t a = expand_value(b, "a", CLASS_TOKENS, width);
    o = expand_opr(b, OPR_LINEAR, "attn.out", out, a);
    o->row_parallel = true;
    o->span = t->span;
    expand_matrix(b, "self_attn.o_proj.weight", "self_attn.o_proj.weight", width, v, SPLIT_COLS)->init = WEIGHT_RESIDUAL;
    return a;
}

uint32_t expand_moe(struct expand_builder *b, const struct moe *m, uint32_t in)
{
    uint64_t width = b->model->width, rows = (uint64_t)m->experts * m->expert.width;
    uint32_t route = expand_value(b, "route", CLASS_TOKENS, m->experts);
    struct opr *o = expand_opr(b, OPR_ROUTER, "moe.router", in, route);
    o->moe = m;
    o->span = m->span;
    expand_matrix(b, "mlp.gate.weight", "mlp.gate.weight", m->experts, width, SPLIT_NONE);
    if (m->linear_bias)
        expand_vector(b, "mlp.gate.bias", "mlp.gate.bias", m->experts, SPLIT_NONE, WEIGHT_ZEROS);
    uint32_t d = expand_value(b, "ed", CLASS_TOKENS, width);
    o = expand_opr(b, OPR_EXPERTS, "moe.experts", in, d);
    o->in[1] = route;
    o->moe = m;
    o->ffn = &m->expert;
    o->span = m->span;
    if (m->expert.act == ACT_SWIGLU || m->expert.act == ACT_GEGLU)
        expand_matrix(b, "mlp.experts.gate_proj.weight", "mlp.experts.gate_proj.weight", rows, width, SPLIT_NONE);
    expand_matrix(b, "mlp.experts.up_proj.weight", "mlp.experts.up_proj.weight", rows, width, SPLIT_NONE);
    expand_matrix(b, "mlp.experts.down_proj.weight", "mlp.experts.down_proj.weight", width, rows, SPLIT_NONE)->init =
        WEIGHT_RESIDUAL;
    if (!m->shared)
        return d;
    struct ffn *shared = ARENA_NEW(b->arena, struct ffn);
    *shared = m->expert;
    shared->width *= m->shared;
    uint32_t s = expand_ffn(b, shared, in);
    uint32_t sum = expand_value(b, "ds", CLASS_TOKENS, width);
    o = expand_opr(b, OPR_ADD, "moe.add", d, sum);
    o->in[1] = s;
    o->span = m->span;
    return sum;
}
