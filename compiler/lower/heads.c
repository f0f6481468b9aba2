/* Norms of queries and keys, and the keys and values of latent attention; heads are split over tp.
 *
 * The gains of such norms are whole on every rank, but a rank's gradient of them covers its own heads alone:
 * their bucket is summed over tp.  Latent attention: the rotary key is a TOKENS value, rotated on the own
 * rows, gathered, and put to every own head; its gradient is a sum over the own heads, then over tp.  The
 * keys and values that attention reads lie side by side in one value, [k | v]. */

#include "compiler/lower/build.h"

/* a headnorm's columns within [q | k ..] */
static struct mat half(const struct lower *l, const struct opr *o, struct mat m)
{
    uint32_t q = o->attn->heads / l->d->tp * o->attn->head, kv = lower_key_heads(l, o->attn) * o->attn->head;
    return o->keys ? mat_columns(m, q, kv) : mat_columns(m, 0, q);
}

/* what is normalised by itself: a head, or all of them together */
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
    uint32_t i = lower_insn(l, OP_HEADNORM);
    ARG(l, i, HEADNORM, y, y, MARK_WRITE);
    ARG(l, i, HEADNORM, x, x, MARK_READ);
    ARG(l, i, HEADNORM, g, lower_vector(l, piece, o, 0, false), MARK_READ);
    ARG(l, i, HEADNORM, rstd, rstd, MARK_WRITE);
    ATTR_INT_SET(l, i, HEADNORM, heads, heads);
    ATTR_INT_SET(l, i, HEADNORM, head, x.cols / heads);
    ATTR_REAL_SET(l, i, HEADNORM, eps, l->job->model.norm.eps);
}

/* attention has written the gradient of v beside where this writes that of q or k */
void lower_headnorm_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    enum mark mark;
    uint32_t heads = lower_normed_heads(l, o);
    struct mat x = half(l, o, lower_value(l, piece, o->in[0])),
               dx = half(l, o, lower_gradient(l, piece, o->in[0], &mark));
    struct mat dy = half(l, o, pc->gradient[o->out]), rstd = lower_aux(l, piece, opr, 0);
    uint32_t i = lower_insn(l, OP_HEADNORM_I);
    ARG(l, i, HEADNORM_I, dx, dx, MARK_WRITE);
    ARG(l, i, HEADNORM_I, dy, dy, MARK_READ);
    ARG(l, i, HEADNORM_I, x, x, MARK_READ);
    ARG(l, i, HEADNORM_I, g, lower_vector(l, piece, o, 0, false), MARK_READ);
    ARG(l, i, HEADNORM_I, rstd, rstd, MARK_READ);
    ATTR_INT_SET(l, i, HEADNORM_I, heads, heads);
    ATTR_INT_SET(l, i, HEADNORM_I, head, x.cols / heads);
    mark = lower_contribution(l, piece, o->bias);
    i = lower_insn(l, OP_HEADNORM_W);
    ARG(l, i, HEADNORM_W, dg, lower_vector(l, piece, o, 0, true), mark);
    ARG(l, i, HEADNORM_W, dy, dy, MARK_READ);
    ARG(l, i, HEADNORM_W, x, x, MARK_READ);
    ARG(l, i, HEADNORM_W, rstd, rstd, MARK_READ);
    ATTR_INT_SET(l, i, HEADNORM_W, heads, heads);
    ATTR_INT_SET(l, i, HEADNORM_W, head, x.cols / heads);
}

void lower_keys(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    uint32_t heads = o->attn->heads / l->d->tp, k = heads * o->attn->head;
    struct mat rope = lower_gather(l, "krfull", lower_value(l, piece, o->in[1])),
               y = lower_value(l, piece, o->out);
    uint32_t i = lower_insn(l, OP_MLA_KEYS);
    ARG(l, i, MLA_KEYS, k, mat_columns(y, 0, k), MARK_WRITE);
    ARG(l, i, MLA_KEYS, v, mat_columns(y, k, y.cols - k), MARK_WRITE);
    ARG(l, i, MLA_KEYS, kv, lower_value(l, piece, o->in[0]), MARK_READ);
    ARG(l, i, MLA_KEYS, rope, rope, MARK_READ);
    ATTR_INT_SET(l, i, MLA_KEYS, heads, heads);
    ATTR_INT_SET(l, i, MLA_KEYS, head, o->attn->head);
}

void lower_keys_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    enum mark mark;
    uint32_t heads = o->attn->heads / l->d->tp, k = heads * o->attn->head;
    struct mat dy = pc->gradient[o->out], dkv = lower_gradient(l, piece, o->in[0], &mark);
    struct mat drope = lower_gradient(l, piece, o->in[1], &mark), partial = lower_partial(l, drope);
    uint32_t i = lower_insn(l, OP_MLA_KEYS_I);
    ARG(l, i, MLA_KEYS_I, dkv, dkv, MARK_WRITE);
    ARG(l, i, MLA_KEYS_I, drope, partial, MARK_WRITE);
    ARG(l, i, MLA_KEYS_I, dk, mat_columns(dy, 0, k), MARK_READ);
    ARG(l, i, MLA_KEYS_I, dv, mat_columns(dy, k, dy.cols - k), MARK_READ);
    ATTR_INT_SET(l, i, MLA_KEYS_I, heads, heads);
    ATTR_INT_SET(l, i, MLA_KEYS_I, head, o->attn->head);
    lower_reduce_into(l, partial, drope);
}
