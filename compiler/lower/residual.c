/* Residual addition, and the concatenation of values.  The bias of the preceding row-parallel product is added here,
 * once, after that product's reduction.
 *
 * Backward: both inputs have the output's gradient and share its buffer.  What later accumulates into the residual's
 * gradient (the norm's input gradient) is issued after everything that reads the branch's gradient. */

#include "compiler/lower/build.h"
#include "compiler/lower/operators.h"

void lower_add(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    for (uint32_t run = l->from; run < l->to; run++) {
        EMIT(l, ADD, .y = mat_write(mat_cut(lower_value(l, piece, o->out), run, l->runs)),
             .a = mat_cut(lower_value(l, piece, o->in[0]), run, l->runs),
             .b = o->in[1] == NONE ? mat_none() : mat_cut(lower_value(l, piece, o->in[1]), run, l->runs),
             .bias = lower_vector(l, piece, o, 0, false));
    }
}

void lower_add_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    for (int k = 0; k < 2 && o->in[k] != NONE; k++) {
        pc->gradient[o->in[k]] = pc->gradient[o->out];
        pc->has_gradient[o->in[k]] = true;
    }
    uint32_t runs = o->nbiases ? lower_runs(l, piece, o->out) : 0;
    for (uint32_t run = 0; run < runs; run++) {
        enum mark mark = lower_contribution(l, piece, o->bias);
        EMIT(l, BIAS_W, .db = mat_by(lower_vector(l, piece, o, 0, true), mark),
             .dy = mat_cut(pc->gradient[o->out], run, runs));
    }
}

void lower_concat(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    uint32_t runs = lower_runs(l, piece, o->out);
    for (uint32_t run = 0; run < runs; run++) {
        EMIT(l, CONCAT, .y = mat_cut(lower_value(l, piece, o->out), run, runs),
             .a = mat_cut(lower_value(l, piece, o->in[0]), run, runs),
             .b = mat_cut(lower_value(l, piece, o->in[1]), run, runs));
    }
}

void lower_concat_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    enum mark mark;
    struct mat da = lower_gradient(l, piece, o->in[0], &mark), db = lower_gradient(l, piece, o->in[1], &mark);
    uint32_t runs = lower_runs(l, piece, o->out);
    for (uint32_t run = 0; run < runs; run++) {
        EMIT(l, CONCAT_I, .da = mat_cut(da, run, runs), .db = mat_cut(db, run, runs),
             .dy = mat_cut(pc->gradient[o->out], run, runs));
    }
}
