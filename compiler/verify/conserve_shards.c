/* Property 7: flat lists of elements, as the buffers of a bucket hold them, and sums of their shards.
 *
 * A shard is "the own part of that list": it can be added to another one only where the same digits number both, and
 * then element by element of the whole list, because what is added on one rank is added on all. */

#include "compiler/verify/conserve.h"

struct whole conserve_copy(struct conserve *c, const struct whole *w)
{
    struct whole copy = {w->elements, w->n, ARENA_ARRAY(c->scratch, struct stretch, w->n + 1u)};
    if (w->n)
        memcpy(copy.at, w->at, w->n * sizeof *w->at);
    return copy;
}

/* Add one stretch to a list that may hold zeros, cut differently, in its place. */
const char *conserve_overlay(struct conserve *c, struct whole *acc, const struct stretch *s)
{
    if (s->value.kind == VALUE_ZERO)
        return NULL;
    for (uint32_t k = 0; k < acc->n; k++) {
        struct stretch *x = &acc->at[k];
        if (x->at == s->at && x->n == s->n)
            return value_add(c->scratch, c->nodes, &x->value, &s->value, &x->value);
        if (x->value.kind != VALUE_ZERO || s->at < x->at || s->at + s->n > x->at + x->n)
            continue;
        struct stretch before = *x, after = *x;
        before.n = s->at - x->at;
        after.at = s->at + s->n;
        after.n = x->at + x->n - after.at;
        struct whole grown = {acc->elements, 0, ARENA_ARRAY(c->scratch, struct stretch, acc->n + 2u)};
        for (uint32_t j = 0; j < acc->n; j++) {
            if (j != k)
                grown.at[grown.n++] = acc->at[j];
            else if (before.n)
                grown.at[grown.n++] = before;
            if (j == k)
                grown.at[grown.n++] = *s;
            if (j == k && after.n)
                grown.at[grown.n++] = after;
        }
        *acc = grown;
        return NULL;
    }
    return "its members hold different things at the same place";
}

/* y += a where a is a shard; *shards: it is one */
bool conserve_add_shards(struct machine *m, uint32_t i, bool *shards)
{
    struct conserve *c = m->c;
    const struct operand *y = prove_operand(m->program, i, OPND(ADD, y)),
                         *a = prove_operand(m->program, i, OPND(ADD, a));
    struct whole from, to;
    uint32_t part, own;
    *shards = y->mark == MARK_ADD && store_read_flat(m->store, a, &from, &part) && part;
    if (!*shards)
        return true;
    if (prove_operand(m->program, i, OPND(ADD, b))->buffer != NONE ||
        prove_operand(m->program, i, OPND(ADD, bias))->buffer != NONE)
        return conserve_fail(m, i, "it adds more than a shard to a shard");
    if (!conserve_add_format(m, i, y) || !conserve_read_flat(m, i, OPND(ADD, y), &to, &own))
        return false;
    if (part != own) /* of equal shapes, so lists are equally long */
        return conserve_fail(m, i, "it adds a shard to what is not the same part of its bucket");
    to = conserve_copy(c, &to);
    for (uint32_t k = 0; k < from.n; k++) {
        const char *why = conserve_overlay(c, &to, &from.at[k]);
        if (why)
            return conserve_fail_inputs(m, i, "%s", why);
    }
    for (uint32_t k = 0; k < to.n; k++)
        if (!conserve_known(m, i, &to.at[k].value))
            return false;
    return store_write_flat(m->store, y, &to, own, i) || conserve_fail(m, i, "its operand can't hold the result");
}

bool conserve_copy_flat(struct machine *m, uint32_t i)
{
    const struct operand *y = prove_operand(m->program, i, OPND(COPY, y));
    struct whole w;
    uint32_t part;
    if (!conserve_read_flat(m, i, OPND(COPY, x), &w, &part))
        return false;
    w = conserve_copy(m->c, &w);
    return store_write_flat(m->store, y, &w, part, i) || conserve_fail(m, i, "its output can't hold the list");
}
