/* Residual addition, and values side by side (where nothing else reads them).  The bias of the row-parallel product before it is added here, once, after that product's reduction.
 *
 * Backward: both inputs have the output's gradient.  They share its buffer; what later accumulates into the residual's
 * gradient (the norm's input gradient) is issued after everything that reads the branch's. */

#include "compiler/lower/build.h"

void lower_add(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    uint32_t i = lower_insn(l, OP_ADD);
    ARG(l, i, ADD, y, lower_value(l, piece, o->out), MARK_WRITE);
    ARG(l, i, ADD, a, lower_value(l, piece, o->in[0]), MARK_READ);
    if (o->in[1] != NONE)
        ARG(l, i, ADD, b, lower_value(l, piece, o->in[1]), MARK_READ);
    ARG(l, i, ADD, bias, lower_vector(l, piece, o, 0, false), MARK_READ);
}

void lower_add_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    for (int k = 0; k < 2 && o->in[k] != NONE; k++) {
        pc->gradient[o->in[k]] = pc->gradient[o->out];
        pc->has_gradient[o->in[k]] = true;
    }
    if (!o->nbiases)
        return;
    enum mark mark = lower_contribution(l, piece, o->bias);
    uint32_t i = lower_insn(l, OP_BIAS_W);
    ARG(l, i, BIAS_W, db, lower_vector(l, piece, o, 0, true), mark);
    ARG(l, i, BIAS_W, dy, pc->gradient[o->out], MARK_READ);
}

void lower_concat(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    uint32_t i = lower_insn(l, OP_CONCAT);
    ARG(l, i, CONCAT, y, lower_value(l, piece, o->out), MARK_WRITE);
    ARG(l, i, CONCAT, a, lower_value(l, piece, o->in[0]), MARK_READ);
    ARG(l, i, CONCAT, b, lower_value(l, piece, o->in[1]), MARK_READ);
}

void lower_concat_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    enum mark mark;
    struct mat da = lower_gradient(l, piece, o->in[0], &mark), db = lower_gradient(l, piece, o->in[1], &mark);
    uint32_t i = lower_insn(l, OP_CONCAT_I);
    ARG(l, i, CONCAT_I, da, da, MARK_WRITE);
    ARG(l, i, CONCAT_I, db, db, MARK_WRITE);
    ARG(l, i, CONCAT_I, dy, pc->gradient[o->out], MARK_READ);
}
