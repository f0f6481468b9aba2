/* RMSNorm (Zhang and Sennrich 2019) and LayerNorm.  Statistics are kept for the backward pass.  Under sequence
 * parallelism the gradients of gain and bias are partial sums over tp, which shard.c reduces with their bucket. */

#include "compiler/lower/build.h"
#include "compiler/lower/operators.h"

/* norms within latent attention are RMSNorm, whatever the model has */
enum norm_kind lower_norm_kind(const struct lower *l, const struct opr *o)
{
    return o->attn ? NORM_RMS : l->job->model.norm.kind;
}

/* one run of the rows of a value, its statistics or its gradient */
static struct mat own_rows(const struct lower *l, struct mat m, uint32_t run)
{
    return mat_cut(m, run, l->runs);
}

static void norm(struct lower *l, uint32_t piece, uint32_t opr, uint32_t run)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct mat x = own_rows(l, lower_value(l, piece, o->in[0]), run),
               y = own_rows(l, lower_value(l, piece, o->out), run);
    struct mat g = lower_vector(l, piece, o, 0, false);
    if (lower_norm_kind(l, o) == NORM_RMS) {
        EMIT(l, RMSNORM, .y = y, .x = x, .g = g, .rstd = own_rows(l, lower_aux(l, piece, opr, 0), run),
             .eps = l->job->model.norm.eps);
        return;
    }
    EMIT(l, LAYERNORM, .y = y, .x = x, .g = g, .b = lower_vector(l, piece, o, 1, false),
         .rstd = own_rows(l, lower_aux(l, piece, opr, 0), run), .mean = own_rows(l, lower_aux(l, piece, opr, 1), run),
         .eps = l->job->model.norm.eps);
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
    EMIT(l, RMSNORM_I, .dx = mat_by(dx, mark), .dy = dy, .x = x, .g = lower_vector(l, piece, o, 0, false),
         .rstd = rstd);
    mark = lower_contribution(l, piece, o->bias);
    EMIT(l, RMSNORM_W, .dg = mat_by(lower_vector(l, piece, o, 0, true), mark), .dy = dy, .x = x, .rstd = rstd);
}

static void layer_back(struct lower *l, uint32_t piece, uint32_t opr, uint32_t run, struct mat dx, enum mark mark)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct mat x = own_rows(l, lower_value(l, piece, o->in[0]), run), dy = own_rows(l, pc->gradient[o->out], run);
    struct mat rstd = own_rows(l, lower_aux(l, piece, opr, 0), run),
               mean = own_rows(l, lower_aux(l, piece, opr, 1), run);
    EMIT(l, LAYERNORM_I, .dx = mat_by(dx, mark), .dy = dy, .x = x, .g = lower_vector(l, piece, o, 0, false),
         .mean = mean, .rstd = rstd);
    mark = lower_contribution(l, piece, o->bias);
    EMIT(l, LAYERNORM_W, .dg = mat_by(lower_vector(l, piece, o, 0, true), mark),
         .db = mat_by(lower_vector(l, piece, o, 1, true), mark), .dy = dy, .x = x, .mean = mean, .rstd = rstd);
}

void lower_norm_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    enum mark mark;
    struct mat dx = lower_gradient(l, piece, o->in[0], &mark);
    for (uint32_t run = 0; run < l->runs; run++)
        (lower_norm_kind(l, o) == NORM_RMS ? rms_back : layer_back)(l, piece, opr, run, own_rows(l, dx, run), mark);
}
