/* Activations between the two products of a feed-forward layer; columns are split over tp.
 * Gated forms read [gate | up], the two halves of the fused first product. */

#include "compiler/lower/build.h"
#include "compiler/lower/operators.h"

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
    switch (f->act) {
    case ACT_GELU:
        EMIT(l, GELU, .y = y, .x = x, .tanh = f->approx_tanh);
        break;
    case ACT_RELU:
    case ACT_RELU2:
        EMIT(l, RELU, .y = y, .x = x, .power = f->act == ACT_RELU ? 1 : 2);
        break;
    case ACT_SWIGLU:
        EMIT(l, SWIGLU, .y = y, .gate = gate(x), .up = up(x), .limit = f->limit, .alpha = model_alpha(f),
             .offset = f->offset);
        break;
    case ACT_GEGLU:
        EMIT(l, GEGLU, .y = y, .gate = gate(x), .up = up(x), .tanh = f->approx_tanh);
        break;
    }
}

static void gated_back(struct lower *l, const struct ffn *f, struct mat x, struct mat dx, struct mat dy)
{
    if (f->act == ACT_SWIGLU) {
        EMIT(l, SWIGLU_I, .dgate = gate(dx), .dup = up(dx), .dy = dy, .gate = gate(x), .up = up(x), .limit = f->limit,
             .alpha = model_alpha(f), .offset = f->offset);
        return;
    }
    EMIT(l, GEGLU_I, .dgate = gate(dx), .dup = up(dx), .dy = dy, .gate = gate(x), .up = up(x), .tanh = f->approx_tanh);
}

void lower_activation_back(struct lower *l, const struct ffn *f, struct mat x, struct mat dx, struct mat dy)
{
    switch (f->act) {
    case ACT_GELU:
        EMIT(l, GELU_I, .dx = dx, .dy = dy, .x = x, .tanh = f->approx_tanh);
        break;
    case ACT_RELU:
    case ACT_RELU2:
        EMIT(l, RELU_I, .dx = dx, .dy = dy, .x = x, .power = f->act == ACT_RELU ? 1 : 2);
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
    struct mat y = lower_value(l, piece, o->out);
    lower_activation(l, o->ffn, (kept ? lower_kept : lower_value)(l, piece, o->in[0]), y);
}

void lower_act_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    enum mark mark;
    struct mat x = lower_kept(l, piece, o->in[0]), dx = lower_gradient(l, piece, o->in[0], &mark);
    lower_activation_back(l, o->ffn, x, dx, pc->gradient[o->out]);
}

/* scales in place; its gradient, too */
static void scale(struct lower *l, struct mat m, uint32_t runs, double factor)
{
    for (uint32_t run = 0; run < runs; run++) {
        EMIT(l, SCALE, .y = mat_write(mat_cut(m, run, runs)), .x = mat_cut(m, run, runs), .factor = factor);
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
    EMIT(l, SOFTCAP, .y = lower_value(l, piece, o->out), .x = lower_value(l, piece, o->in[0]), .cap = o->factor);
}

/* the input's gradient overwrites the output's */
void lower_softcap_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct mat d = pc->gradient[o->out];
    EMIT(l, SOFTCAP_I, .dx = d, .dy = d, .x = lower_value(l, piece, o->in[0]), .cap = o->factor);
    pc->gradient[o->in[0]] = d;
    pc->has_gradient[o->in[0]] = true;
}
