/* Property 7: rows of experts on their way.
 *
 * An ALL_TO_ALL among expert ranks leaves each the rows of its own experts that all members' tokens sent: the union of
 * their tokens, as a reduce-scatter of disjoint contributions.  The way back keeps the tokens and notes over which
 * digits the rows came home.  Rows that went to nodes, one for each node that a token has a choice on, travel by the
 * same two rules: blocks are nodes, and a block's rows are of the experts there.  What comes back of them are sums over
 * these experts, different ones in every block, so that nothing but the COMBINE at home may add them (value_reduce()
 * refuses). */

#include "compiler/verify/conserve.h"

/* members' tokens of the digits of a mask together; NULL: some are the same */
static struct routed *united(struct machine *m, const struct routed *t, uint32_t mask)
{
    struct routed *all = ARENA_NEW(m->c->scratch, struct routed);
    *all = *t;
    for (uint32_t k = 0; k < m->c->plan->mesh.ndigits; k++) {
        uint32_t digit = m->c->plan->mesh.order[k];
        if (mask & AXIS_BIT(digit) &&
            !sets_reduce(m->c->nodes->sets, &all->tokens, digit, m->c->plan->mesh.size[digit], &all->tokens))
            return NULL;
    }
    return all;
}

/* Is v's row what member number 0 has, moved on by its length for each number in the mask?  *whole: all of theirs. */
static bool member_rows(const struct mesh *mesh, uint32_t mask, const struct extent *row, struct extent *whole)
{
    *whole = *row;
    for (int d = 0; d < NDIGITS; d++)
        whole->step[d] *= !(mask & AXIS_BIT(d));
    struct extent own = *whole;
    extent_move(&own, mesh, mask, own.len);
    whole->len *= mesh_group_size(mesh, mask);
    return extent_same(&own, row);
}

static bool all_to_all(struct machine *m, uint32_t i, uint32_t mask, struct value v)
{
    const struct mesh *mesh = &m->c->plan->mesh;
    uint32_t n = mesh_group_size(mesh, mask);
    struct extent own = v.row, whole;
    struct routed *t = ARENA_NEW(m->c->scratch, struct routed);
    bool forth = v.routed->blocks == n && v.row.len % n == 0 && !v.routed->home && n > 1 && !v.nterms;
    for (int d = 0; d < NDIGITS; d++)
        forth = forth && !(mask & AXIS_BIT(d) && v.row.step[d]);
    own.len /= n;
    extent_move(&own, mesh, mask, own.len);
    if (forth) {
        t = united(m, v.routed, mask);
        if (!t)
            return conserve_fail_inputs(m, i, "members send rows of the same tokens");
        if (t->once)
            t->from = v.routed;
        v.row = own;
    } else {
        if (v.routed->blocks != n || v.routed->home & mask || !member_rows(mesh, mask, &v.row, &whole))
            return conserve_fail_inputs(m, i, "it exchanges %s in %u blocks among %u ranks",
                                        value_text(m->c->arena, m->c->nodes, &v), v.routed->blocks, n);
        *t = *v.routed;
        t->home |= mask;
        v.row = whole;
    }
    v.routed = t;
    return conserve_emit_one(m, i, OPND(ALL_TO_ALL, y), &v);
}

/* what the members of one expert hold, one below the other: rows of all their tokens */
static bool gather(struct machine *m, uint32_t i, uint32_t mask, struct value v)
{
    struct routed *t = united(m, v.routed, mask);
    bool same = !v.nterms && t != NULL && !t->once;
    for (int d = 0; d < NDIGITS; d++)
        same = same && !(mask & AXIS_BIT(d) && (v.row.step[d] || v.col.step[d]));
    if (!same)
        return conserve_fail_inputs(m, i, "it gathers %s of other experts, or of the same tokens",
                                    value_text(m->c->arena, m->c->nodes, &v));
    t->blocks *= mesh_group_size(&m->c->plan->mesh, mask);
    v.routed = t;
    return conserve_emit_one(m, i, OPND(ALL_GATHER, y), &v);
}

static bool scatter(struct machine *m, uint32_t i, uint32_t mask, struct value v)
{
    const struct mesh *mesh = &m->c->plan->mesh;
    struct routed *t = ARENA_NEW(m->c->scratch, struct routed);
    for (uint32_t k = 0; k < mesh->ndigits; k++) {
        uint32_t digit = mesh->order[k];
        const char *why = mask & AXIS_BIT(digit) ? value_reduce(m->c->scratch, m->c->nodes, mesh, &v, digit, false, &v)
                                                 : NULL;
        if (why)
            return conserve_fail_inputs(m, i, "%s", why);
    }
    *t = *v.routed;
    if (t->blocks % mesh_group_size(mesh, mask) || t->home & mask)
        return conserve_fail(m, i, "it scatters %u blocks over %u ranks", t->blocks, mesh_group_size(mesh, mask));
    t->blocks /= mesh_group_size(mesh, mask);
    t->home |= mask;
    v.routed = t;
    return conserve_emit_one(m, i, OPND(REDUCE_SCATTER, y), &v);
}

bool conserve_routed(struct machine *m, uint32_t i, uint32_t mask, bool *mine)
{
    enum op op = m->program->insns[i].op;
    size_t k = op == OP_ALL_TO_ALL   ? OPND(ALL_TO_ALL, x)
               : op == OP_ALL_GATHER ? OPND(ALL_GATHER, x)
                                     : OPND(REDUCE_SCATTER, x);
    struct parts *p = &m->c->parts[0];
    *mine = store_read(m->store, prove_operand(m->program, i, k), p) && p->n == 1 &&
            p->at[0].value.kind == VALUE_NODES && p->at[0].value.routed;
    if (!*mine)
        return true;
    struct value v = p->at[0].value;
    if (!conserve_read_parts(m, i, k, p)) /* for messages: who wrote it */
        return false;
    return op == OP_ALL_TO_ALL   ? !v.nterms || v.routed->once ? all_to_all(m, i, mask, v)
                                                               : conserve_fail_inputs(m, i, "it exchanges partial sums")
             : op == OP_ALL_GATHER ? gather(m, i, mask, v)
                                 : scatter(m, i, mask, v);
}
