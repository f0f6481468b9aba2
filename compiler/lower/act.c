/* Activations between the two products of a feed-forward layer; columns are split over tp.
 * Gated forms read [gate | up], the two halves of the fused first product. */

#include "compiler/lower/build.h"

static struct mat gate(struct mat m)
{
    return mat_columns(m, 0, m.cols / 2);
}

static struct mat up(struct mat m)
{
    return mat_columns(m, m.cols / 2, m.cols / 2);
}

void lower_activation(struct lower *l, const struct ffn *f, struct mat x, struct mat y)
{
    uint32_t i;
    switch (f->act) {
    case ACT_GELU:
        i = lower_insn(l, OP_GELU);
        ARG(l, i, GELU, y, y, MARK_WRITE);
        ARG(l, i, GELU, x, x, MARK_READ);
        ATTR_INT_SET(l, i, GELU, tanh, f->approx_tanh);
        break;
    case ACT_RELU:
    case ACT_RELU2:
        i = lower_insn(l, OP_RELU);
        ARG(l, i, RELU, y, y, MARK_WRITE);
        ARG(l, i, RELU, x, x, MARK_READ);
        ATTR_INT_SET(l, i, RELU, power, f->act == ACT_RELU ? 1 : 2);
        break;
    case ACT_SWIGLU:
        i = lower_insn(l, OP_SWIGLU);
        ARG(l, i, SWIGLU, y, y, MARK_WRITE);
        ARG(l, i, SWIGLU, gate, gate(x), MARK_READ);
        ARG(l, i, SWIGLU, up, up(x), MARK_READ);
        ATTR_REAL_SET(l, i, SWIGLU, limit, f->limit);
        ATTR_REAL_SET(l, i, SWIGLU, alpha, model_alpha(f));
        ATTR_REAL_SET(l, i, SWIGLU, offset, f->offset);
        break;
    case ACT_GEGLU:
        i = lower_insn(l, OP_GEGLU);
        ARG(l, i, GEGLU, y, y, MARK_WRITE);
        ARG(l, i, GEGLU, gate, gate(x), MARK_READ);
        ARG(l, i, GEGLU, up, up(x), MARK_READ);
        ATTR_INT_SET(l, i, GEGLU, tanh, f->approx_tanh);
        break;
    }
}

static void gated_back(struct lower *l, const struct ffn *f, struct mat x, struct mat dx, struct mat dy)
{
    if (f->act == ACT_SWIGLU) {
        uint32_t i = lower_insn(l, OP_SWIGLU_I);
        ARG(l, i, SWIGLU_I, dgate, gate(dx), MARK_WRITE);
        ARG(l, i, SWIGLU_I, dup, up(dx), MARK_WRITE);
        ARG(l, i, SWIGLU_I, dy, dy, MARK_READ);
        ARG(l, i, SWIGLU_I, gate, gate(x), MARK_READ);
        ARG(l, i, SWIGLU_I, up, up(x), MARK_READ);
        ATTR_REAL_SET(l, i, SWIGLU_I, limit, f->limit);
        ATTR_REAL_SET(l, i, SWIGLU_I, alpha, model_alpha(f));
        ATTR_REAL_SET(l, i, SWIGLU_I, offset, f->offset);
        return;
    }
    uint32_t i = lower_insn(l, OP_GEGLU_I);
    ARG(l, i, GEGLU_I, dgate, gate(dx), MARK_WRITE);
    ARG(l, i, GEGLU_I, dup, up(dx), MARK_WRITE);
    ARG(l, i, GEGLU_I, dy, dy, MARK_READ);
    ARG(l, i, GEGLU_I, gate, gate(x), MARK_READ);
    ARG(l, i, GEGLU_I, up, up(x), MARK_READ);
    ATTR_INT_SET(l, i, GEGLU_I, tanh, f->approx_tanh);
}

void lower_activation_back(struct lower *l, const struct ffn *f, struct mat x, struct mat dx, struct mat dy)
{
    uint32_t i;
    switch (f->act) {
    case ACT_GELU:
        i = lower_insn(l, OP_GELU_I);
        ARG(l, i, GELU_I, dx, dx, MARK_WRITE);
        ARG(l, i, GELU_I, dy, dy, MARK_READ);
        ARG(l, i, GELU_I, x, x, MARK_READ);
        ATTR_INT_SET(l, i, GELU_I, tanh, f->approx_tanh);
        break;
    case ACT_RELU:
    case ACT_RELU2:
        i = lower_insn(l, OP_RELU_I);
        ARG(l, i, RELU_I, dx, dx, MARK_WRITE);
        ARG(l, i, RELU_I, dy, dy, MARK_READ);
        ARG(l, i, RELU_I, x, x, MARK_READ);
        ATTR_INT_SET(l, i, RELU_I, power, f->act == ACT_RELU ? 1 : 2);
        break;
    case ACT_SWIGLU:
    case ACT_GEGLU:
        gated_back(l, f, x, dx, dy);
        break;
    }
}

void lower_act(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    bool kept = l->recomputing && l->pieces[piece].saved[o->in[0]];
    lower_activation(l, o->ffn, (kept ? lower_kept : lower_value)(l, piece, o->in[0]), lower_value(l, piece, o->out));
}

void lower_act_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    enum mark mark;
    struct mat x = lower_kept(l, piece, o->in[0]), dx = lower_gradient(l, piece, o->in[0], &mark);
    lower_activation_back(l, o->ffn, x, dx, pc->gradient[o->out]);
}

/* in place, its gradient too */
static void scale(struct lower *l, struct mat m, uint32_t runs, double factor)
{
    for (uint32_t run = 0; run < runs; run++) {
        uint32_t i = lower_insn(l, OP_SCALE);
        ARG(l, i, SCALE, y, mat_cut(m, run, runs), MARK_WRITE);
        ARG(l, i, SCALE, x, mat_cut(m, run, runs), MARK_READ);
        ATTR_REAL_SET(l, i, SCALE, factor, factor);
    }
}

void lower_scale(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    scale(l, lower_value(l, piece, o->out), lower_runs(l, piece, o->out), o->factor);
}

void lower_scale_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    scale(l, l->pieces[piece].gradient[o->out], lower_runs(l, piece, o->out), o->factor);
}

void lower_softcap(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    uint32_t i = lower_insn(l, OP_SOFTCAP);
    ARG(l, i, SOFTCAP, y, lower_value(l, piece, o->out), MARK_WRITE);
    ARG(l, i, SOFTCAP, x, lower_value(l, piece, o->in[0]), MARK_READ);
    ATTR_REAL_SET(l, i, SOFTCAP, cap, o->factor);
}

/* over the output's gradient */
void lower_softcap_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct mat d = pc->gradient[o->out];
    uint32_t i = lower_insn(l, OP_SOFTCAP_I);
    ARG(l, i, SOFTCAP_I, dx, d, MARK_WRITE);
    ARG(l, i, SOFTCAP_I, dy, d, MARK_READ);
    ARG(l, i, SOFTCAP_I, x, lower_value(l, piece, o->in[0]), MARK_READ);
    ATTR_REAL_SET(l, i, SOFTCAP_I, cap, o->factor);
    pc->gradient[o->in[0]] = d;
    pc->has_gradient[o->in[0]] = true;
}
