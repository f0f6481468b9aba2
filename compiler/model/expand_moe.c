/* Expansion of mixtures of experts: router and routed experts, shared experts.
 *
 * All experts of a layer are one operator whose weights are families of tensors; shared experts are an FFN
 * beside it. */

#include "compiler/model/expand_build.h"

/* one matrix [rows, cols] per expert */
static struct opr_weight *expand_experts(struct expand_builder *b, const struct moe *m, const char *name, uint64_t rows,
                                         uint64_t cols, enum opr_split split)
{
    const char *suffix = arena_printf(b->arena, "mlp.experts.%%.%s.weight", name);
    struct opr_weight *w = expand_matrix(b, suffix, suffix, rows * m->experts, cols, SPLIT_NONE);
    w->family = m->experts;
    w->hf_rows = rows;
    w->member_split = split;
    return w;
}

/* one vector [n] per expert */
static void expand_offsets(struct expand_builder *b, const struct moe *m, const char *name, uint64_t n)
{
    const char *suffix = arena_printf(b->arena, "mlp.experts.%%.%s.bias", name);
    struct opr_weight *w = expand_vector(b, suffix, suffix, n, SPLIT_NONE, WEIGHT_ZEROS);
    w->rows = m->experts;
    w->family = m->experts;
}

static uint32_t expand_router(struct expand_builder *b, const struct moe *m, uint32_t in)
{
    uint32_t route = expand_value(b, "route", CLASS_TOKENS, m->experts);
    struct opr *o = expand_opr(b, OPR_ROUTER, "moe.router", in, route);
    o->moe = m;
    o->span = m->span;
    expand_matrix(b, "mlp.gate.weight", "mlp.gate.weight", m->experts, b->model->width, SPLIT_NONE);
    if (m->linear_bias)
        expand_vector(b, "mlp.gate.bias", "mlp.gate.bias", m->experts, SPLIT_NONE, WEIGHT_ZEROS);
    const char *correction = "mlp.gate.e_score_correction_bias";
    if (m->bias)
        expand_vector(b, correction, correction, m->experts, SPLIT_NONE, WEIGHT_ZEROS)->moved = true;
    return route;
}

uint32_t expand_moe(struct expand_builder *b, const struct moe *m, uint32_t in)
{
    uint64_t width = b->model->width;
    uint32_t route = expand_router(b, m, in), d = expand_value(b, "ed", CLASS_TOKENS, width);
    struct opr *o = expand_opr(b, OPR_EXPERTS, "moe.experts", in, d);
    o->in[1] = route;
    o->moe = m;
    o->ffn = &m->expert;
    o->span = m->span;
    if (m->expert.act == ACT_SWIGLU || m->expert.act == ACT_GEGLU)
        expand_experts(b, m, "gate_proj", m->expert.width, width, SPLIT_ROWS);
    expand_experts(b, m, "up_proj", m->expert.width, width, SPLIT_ROWS);
    expand_experts(b, m, "down_proj", width, m->expert.width, SPLIT_COLS)->init = WEIGHT_RESIDUAL;
    if (m->expert.bias && (m->expert.act == ACT_SWIGLU || m->expert.act == ACT_GEGLU))
        expand_offsets(b, m, "gate_proj", m->expert.width);
    if (m->expert.bias) {
        expand_offsets(b, m, "up_proj", m->expert.width);
        expand_offsets(b, m, "down_proj", width);
    }
    if (!m->shared)
        return d;
    struct ffn *shared = ARENA_NEW(b->arena, struct ffn);
    *shared = m->expert;
    shared->width *= m->shared;
    b->ffn = "mlp.shared_experts";
    size_t first = b->oprs.n;
    uint32_t s = expand_ffn(b, shared, in);
    for (size_t i = first; i < b->oprs.n; i++)
        b->oprs.at[i].shared = true;
    b->ffn = "mlp";
    uint32_t sum = expand_value(b, "ds", CLASS_TOKENS, width);
    o = expand_opr(b, OPR_ADD, "moe.add", d, sum);
    o->in[1] = s;
    o->span = m->span;
    return sum;
}
