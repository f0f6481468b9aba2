/* Norms of queries and keys, and the keys and values of latent attention; heads are split over tp.
 *
 * The gains of such norms are whole on every rank, but a rank's gradient of them covers its own heads only, so their
 * bucket is summed over tp.  Latent attention: the rotary key is a TOKENS value, rotated on this rank's rows,
 * gathered, and copied to each of its heads; its gradient is a sum over this rank's heads, then over tp.  The keys
 * and values that attention reads are side by side in one value, [k | v]. */

#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"
#include "compiler/lower/operators.h"

/* a headnorm's columns within [q | k ..] */
static struct mat half(const struct lower *l, const struct opr *o, struct mat m)
{
    uint32_t q = o->attn->heads / l->d->tp * o->attn->head, kv = lower_key_heads(l, o->attn) * o->attn->head;
    return o->keys ? mat_columns(m, q, kv) : mat_columns(m, 0, q);
}

/* number of heads that are normalised separately; 1: all of them together */
uint32_t lower_normed_heads(const struct lower *l, const struct opr *o)
{
    return o->attn->qk_norm == QK_NORM_FULL ? 1 : o->keys ? lower_key_heads(l, o->attn) : o->attn->heads / l->d->tp;
}

void lower_headnorm(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    uint32_t heads = lower_normed_heads(l, o);
    struct mat x = half(l, o, lower_value(l, piece, o->in[0])), y = half(l, o, lower_value(l, piece, o->out));
    struct mat rstd = lower_aux(l, piece, opr, 0);
    EMIT(l, HEADNORM, .y = y, .x = x, .g = lower_vector(l, piece, o, 0, false), .rstd = rstd, .heads = heads,
         .head = x.cols / heads, .eps = l->job->model.norm.eps);
}

/* attention has already written v's gradient into the columns next to those of q's or k's gradient */
void lower_headnorm_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    enum mark mark;
    uint32_t heads = lower_normed_heads(l, o);
    struct mat x = half(l, o, lower_value(l, piece, o->in[0])),
               dx = half(l, o, lower_gradient(l, piece, o->in[0], &mark));
    struct mat dy = half(l, o, pc->gradient[o->out]), rstd = lower_aux(l, piece, opr, 0);
    EMIT(l, HEADNORM_I, .dx = dx, .dy = dy, .x = x, .g = lower_vector(l, piece, o, 0, false), .rstd = rstd,
         .heads = heads, .head = x.cols / heads);
    mark = lower_contribution(l, piece, o->bias);
    EMIT(l, HEADNORM_W, .dg = mat_by(lower_vector(l, piece, o, 0, true), mark), .dy = dy, .x = x, .rstd = rstd,
         .heads = heads, .head = x.cols / heads);
}

void lower_keys(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    uint32_t heads = o->attn->heads / l->d->tp, k = heads * o->attn->head;
    struct mat rope = lower_gather(l, "krfull", lower_value(l, piece, o->in[1])), y = lower_value(l, piece, o->out);
    EMIT(l, MLA_KEYS, .k = mat_columns(y, 0, k), .v = mat_columns(y, k, y.cols - k),
         .kv = lower_value(l, piece, o->in[0]), .rope = rope, .heads = heads, .head = o->attn->head);
}

void lower_keys_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    enum mark mark;
    uint32_t heads = o->attn->heads / l->d->tp, k = heads * o->attn->head;
    struct mat dy = pc->gradient[o->out], dkv = lower_gradient(l, piece, o->in[0], &mark);
    struct mat drope = lower_gradient(l, piece, o->in[1], &mark), partial = lower_partial(l, drope);
    EMIT(l, MLA_KEYS_I, .dkv = dkv, .drope = partial, .dk = mat_columns(dy, 0, k),
         .dv = mat_columns(dy, k, dy.cols - k), .heads = heads, .head = o->attn->head);
    lower_reduce_into(l, partial, drope);
}
