/* RMSNorm (Zhang and Sennrich 2019) and LayerNorm.  Statistics are kept for the backward pass.
 * Under sequence parallelism the gradients of gain and bias are partial over tp: params.c reduces them there. */

#include "compiler/lower/build.h"

/* norms within latent attention are RMSNorm, whatever the model has */
enum norm_kind lower_norm_kind(const struct lower *l, const struct opr *o)
{
    return o->attn ? NORM_RMS : l->job->model.norm.kind;
}

/* one run of the rows: value, statistics, gradient */
static struct mat own_rows(const struct lower *l, struct mat m, uint32_t run)
{
    return mat_cut(m, run, l->runs);
}

static void norm(struct lower *l, uint32_t piece, uint32_t opr, uint32_t run)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct mat x = own_rows(l, lower_value(l, piece, o->in[0]), run), y = own_rows(l, lower_value(l, piece, o->out), run);
    struct mat g = lower_vector(l, piece, o, 0, false);
    if (lower_norm_kind(l, o) == NORM_RMS) {
        uint32_t i = lower_insn(l, OP_RMSNORM);
        ARG(l, i, RMSNORM, y, y, MARK_WRITE);
        ARG(l, i, RMSNORM, x, x, MARK_READ);
        ARG(l, i, RMSNORM, g, g, MARK_READ);
        ARG(l, i, RMSNORM, rstd, own_rows(l, lower_aux(l, piece, opr, 0), run), MARK_WRITE);
        ATTR_REAL_SET(l, i, RMSNORM, eps, l->job->model.norm.eps);
        return;
    }
    uint32_t i = lower_insn(l, OP_LAYERNORM);
    ARG(l, i, LAYERNORM, y, y, MARK_WRITE);
    ARG(l, i, LAYERNORM, x, x, MARK_READ);
    ARG(l, i, LAYERNORM, g, g, MARK_READ);
    ARG(l, i, LAYERNORM, b, lower_vector(l, piece, o, 1, false), MARK_READ);
    ARG(l, i, LAYERNORM, rstd, own_rows(l, lower_aux(l, piece, opr, 0), run), MARK_WRITE);
    ARG(l, i, LAYERNORM, mean, own_rows(l, lower_aux(l, piece, opr, 1), run), MARK_WRITE);
    ATTR_REAL_SET(l, i, LAYERNORM, eps, l->job->model.norm.eps);
}

void lower_norm(struct lower *l, uint32_t piece, uint32_t opr)
{
    for (uint32_t run = l->from; run < l->to; run++)
        norm(l, piece, opr, run);
}

static void rms_back(struct lower *l, uint32_t piece, uint32_t opr, uint32_t run, struct mat dx, enum mark mark)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct mat x = own_rows(l, lower_value(l, piece, o->in[0]), run), dy = own_rows(l, pc->gradient[o->out], run);
    struct mat rstd = own_rows(l, lower_aux(l, piece, opr, 0), run);
    uint32_t i = lower_insn(l, OP_RMSNORM_I);
    ARG(l, i, RMSNORM_I, dx, dx, mark);
    ARG(l, i, RMSNORM_I, dy, dy, MARK_READ);
    ARG(l, i, RMSNORM_I, x, x, MARK_READ);
    ARG(l, i, RMSNORM_I, g, lower_vector(l, piece, o, 0, false), MARK_READ);
    ARG(l, i, RMSNORM_I, rstd, rstd, MARK_READ);
    mark = lower_contribution(l, piece, o->bias);
    i = lower_insn(l, OP_RMSNORM_W);
    ARG(l, i, RMSNORM_W, dg, lower_vector(l, piece, o, 0, true), mark);
    ARG(l, i, RMSNORM_W, dy, dy, MARK_READ);
    ARG(l, i, RMSNORM_W, x, x, MARK_READ);
    ARG(l, i, RMSNORM_W, rstd, rstd, MARK_READ);
}

static void layer_back(struct lower *l, uint32_t piece, uint32_t opr, uint32_t run, struct mat dx, enum mark mark)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct mat x = own_rows(l, lower_value(l, piece, o->in[0]), run), dy = own_rows(l, pc->gradient[o->out], run);
    struct mat rstd = own_rows(l, lower_aux(l, piece, opr, 0), run), mean = own_rows(l, lower_aux(l, piece, opr, 1), run);
    uint32_t i = lower_insn(l, OP_LAYERNORM_I);
    ARG(l, i, LAYERNORM_I, dx, dx, mark);
    ARG(l, i, LAYERNORM_I, dy, dy, MARK_READ);
    ARG(l, i, LAYERNORM_I, x, x, MARK_READ);
    ARG(l, i, LAYERNORM_I, g, lower_vector(l, piece, o, 0, false), MARK_READ);
    ARG(l, i, LAYERNORM_I, mean, mean, MARK_READ);
    ARG(l, i, LAYERNORM_I, rstd, rstd, MARK_READ);
    mark = lower_contribution(l, piece, o->bias);
    i = lower_insn(l, OP_LAYERNORM_W);
    ARG(l, i, LAYERNORM_W, dg, lower_vector(l, piece, o, 0, true), mark);
    ARG(l, i, LAYERNORM_W, db, lower_vector(l, piece, o, 1, true), mark);
    ARG(l, i, LAYERNORM_W, dy, dy, MARK_READ);
    ARG(l, i, LAYERNORM_W, x, x, MARK_READ);
    ARG(l, i, LAYERNORM_W, mean, mean, MARK_READ);
    ARG(l, i, LAYERNORM_W, rstd, rstd, MARK_READ);
}

void lower_norm_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    enum mark mark;
    struct mat dx = lower_gradient(l, piece, o->in[0], &mark);
    for (uint32_t run = 0; run < l->runs; run++)
        (lower_norm_kind(l, o) == NORM_RMS ? rms_back : layer_back)(l, piece, opr, run, own_rows(l, dx, run), mark);
}
