/* Expansion of mixtures of experts, planned and costed but not run yet.
 *
 * All experts of a layer are one operator with stacked weights; shared experts are an FFN of their own beside it. */

#include "compiler/model/expand_build.h"

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
