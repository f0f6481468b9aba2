/* Property 7: the formats of gradients on their way, beside those that precision.c reads off operands.
 *
 * Gradients of weights are accumulated in `grads`, summed between ranks in `reduce`, and used as that sum leaves them.
 * Under ZeRO 2 and 3 shards of a microbatch's sum come back to `grads`, where microbatches are added up.  What a COPY
 * converts, a collective sums and an ADD accumulates is told by its value: a node that leads to a weight's gradient. */

#include "compiler/verify/conserve.h"

static bool is_gradient(const struct machine *m, const struct value *v)
{
    return v->kind == VALUE_NODES && m->c->nodes->at[v->nterms ? v->terms[0].node : v->node].weight;
}

static bool has_gradient(const struct machine *m, const struct whole *w)
{
    for (uint32_t k = 0; k < w->n; k++)
        if (is_gradient(m, &w->at[k].value))
            return true;
    return false;
}

static bool check(struct machine *m, uint32_t i, const char *does, enum dtype have, enum dtype want)
{
    return have == want || conserve_fail(m, i, "it %s gradients in %s, the job asks for %s", does, isa_dtype_name(have),
                                         isa_dtype_name(want));
}

bool conserve_reduce_format(struct machine *m, uint32_t i, const struct operand *o, const struct whole *w)
{
    return !has_gradient(m, w) ||
           check(m, i, "sums", (enum dtype)o->dtype, prove_format(m->c->plan->job->train.reduce));
}

bool conserve_add_format(struct machine *m, uint32_t i, const struct operand *o)
{
    return check(m, i, "accumulates", (enum dtype)o->dtype, prove_format(m->c->plan->job->train.grads));
}

/* a COPY between two formats; *done: of gradients, whose list is copied */
bool conserve_convert(struct machine *m, uint32_t i, bool *done)
{
    const struct train *t = &m->c->plan->job->train;
    const struct operand *x = prove_operand(m->program, i, OPND(COPY, x)),
                         *y = prove_operand(m->program, i, OPND(COPY, y));
    enum dtype grads = prove_format(t->grads), reduce = prove_format(t->reduce);
    struct whole w;
    uint32_t part;
    *done = store_read_flat(m->store, x, &w, &part) && has_gradient(m, &w);
    if (!*done)
        return x->dtype == DTYPE_F32 || conserve_fail(m, i, "it widens what is no gradient");
    bool there = x->dtype == grads && y->dtype == reduce, back = x->dtype == reduce && y->dtype == grads;
    if (!there && !(back && part && m->c->plan->decision.zero >= 2))
        return conserve_fail(
            m, i, "it converts gradients from %s to %s, which are accumulated in %s and summed between ranks in %s",
            isa_dtype_name((enum dtype)x->dtype), isa_dtype_name((enum dtype)y->dtype), isa_dtype_name(grads),
            isa_dtype_name(reduce));
    return conserve_copy_flat(m, i);
}
