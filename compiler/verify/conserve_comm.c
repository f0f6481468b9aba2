/* Property 7: transfers and collectives.
 *
 * Members of a group within a role hold the same value with coordinates put in, so a reduction over an axis
 * is the union of its contributions over that coordinate, and a gather joins the intervals that the
 * coordinate numbers.  A reduction across roles (the metrics over the world, a tied table over its two
 * stages) waits for all member roles; there, values of different roles add up like values of one. */

#include "compiler/verify/conserve.h"

#include <assert.h>

static uint32_t group_mask(const struct machine *m, uint32_t i)
{
    return prove_mask(&m->c->plan->mesh, prove_comm_slot(m->program, i)->arg);
}

bool conserve_crosses(const struct machine *m, uint32_t i)
{
    return prove_crosses(group_mask(m, i));
}

/* digits that a shard's norm depends on: those that number the shards */
static uint32_t slice_mask(const struct block *b)
{
    uint32_t mask = 0;
    for (uint32_t digit = 0; digit < NDIGITS; digit++)
        mask |= b->extent.step[digit] ? AXIS_BIT(digit) : 0;
    return mask;
}

/* the digits of a mask one by one, outermost first of dp, then cp, then tp; pp needs all roles */
static const char *reduce_digits(struct conserve *c, struct value *v, uint32_t mask, bool max)
{
    static const enum axis order[] = {AXIS_DP, AXIS_CP, AXIS_TP};
    const struct mesh *mesh = &c->plan->mesh;
    mask = max ? mask : conserve_fold(c, v, mask);
    for (size_t k = 0; k < ARRAY_LEN(order); k++)
        for (uint32_t i = mesh->ndigits; i-- > 0;) {
            uint32_t digit = mesh->order[i];
            if (!(mask & AXIS_BIT(digit)) || mesh->home[digit] != (uint32_t)order[k])
                continue;
            const char *why = value_reduce(c->scratch, c->nodes, mesh, v, digit, max, v);
            if (why)
                return why;
        }
    return NULL;
}

/* A shard's norm becomes its weights' norms when it is summed over all the digits that number the shards, each of which
 * counts then; what these weights' norms lack is summed over the rest of the mask. */
static const char *open_slice(struct conserve *c, const struct term *t, uint32_t mask, struct value *sum)
{
    const struct node *n = &c->nodes->at[t->node];
    uint32_t own = slice_mask(&t->blocks.at[0]), first = t->blocks.at[0].first;
    struct value part;
    if (own & ~mask || first & own)
        return "the shards whose norms it sums are not the whole bucket";
    const char *why = conserve_norm_of(c, c->slices.at[n->recipe.attr[0]], first, &part);
    if (!why)
        why = reduce_digits(c, &part, mask & ~own, false);
    return why ? why : value_add(c->scratch, c->nodes, sum, &part, sum);
}

/* sum or maximum over all digits of a mask but pp */
static const char *reduce(struct conserve *c, const struct value *v, uint32_t mask, bool max, struct value *out)
{
    struct term *terms = ARENA_ARRAY(c->scratch, struct term, v->nterms + 1u);
    struct value rest = *v, opened = {.kind = VALUE_ZERO};
    *out = *v;
    if (v->kind == VALUE_ZERO || !mask)
        return NULL;
    if (v->kind != VALUE_NODES)
        return reduce_digits(c, out, mask, max);
    rest.nterms = 0;
    rest.terms = terms;
    for (uint32_t i = 0; i < v->nterms; i++) {
        const struct term *t = &v->terms[i];
        bool slice = c->nodes->at[t->node].recipe.op == RECIPE_SLICE; /* of one block, which slice_norm() has made */
        const char *why = NULL;
        if (slice && slice_mask(&t->blocks.at[0]) & mask)
            why = open_slice(c, t, mask, &opened);
        else
            terms[rest.nterms++] = *t;
        if (why)
            return why;
    }
    const char *why = NULL;
    if (rest.nterms || rest.node != NODE_ZERO || opened.kind == VALUE_ZERO)
        why = reduce_digits(c, &rest, mask, max);
    else
        rest = (struct value){.kind = VALUE_ZERO};
    return why ? why : value_add(c->scratch, c->nodes, &rest, &opened, out);
}

/* ---- all-reduce ---- */

/* what every member brings to a reduction across roles */
static const char *contributions(struct machine *m, uint32_t mask, uint64_t at)
{
    const char *text = "";
    for (uint32_t r = 0; r < m->c->nroles; r++) {
        struct machine *other = &m->c->machines[r];
        if (!prove_member(m->c->plan, mask, r))
            continue;
        for (uint32_t k = 0; k < other->deposit.n; k++)
            if (other->deposit.at[k].at <= at && at < other->deposit.at[k].at + other->deposit.at[k].n)
                text = arena_printf(m->c->arena, "%s; role %u's %s brings %s", text, r,
                                    prove_insn_text(m->c->arena, other->program, other->next),
                                    value_text(m->c->arena, m->c->nodes, &other->deposit.at[k].value));
    }
    return text;
}

/* One weight too few or too many in a squared norm, as words. */
static const char *norm_difference(const struct conserve *c, uint32_t node)
{
    struct nodes *g = c->nodes;
    for (uint32_t u = 0; u < c->reference->nunits; u++) {
        const struct weight_unit *w = &c->reference->units[u];
        if (nodes_sum(g, node, w->squares) == c->reference->squares)
            return arena_printf(c->arena, ": it lacks %s", g->at[w->squares].name);
        if (nodes_sum(g, c->reference->squares, w->squares) == node)
            return arena_printf(c->arena, ": it has %s twice", g->at[w->squares].name);
    }
    return "";
}

/* Over the world nothing is left that could complete a sum. */
static bool check_world(struct machine *m, uint32_t i, uint32_t mask, const struct whole *sum)
{
    const struct conserve *c = m->c;
    uint32_t world = prove_mask(&c->plan->mesh, AXES_WORLD);
    for (uint32_t k = 0; k < sum->n; k++) {
        const struct value *v = &sum->at[k].value;
        if (v->kind != VALUE_NODES || (mask != world && c->nodes->at[v->node].name) ||
            (!v->nterms && c->nodes->at[v->node].name))
            continue;
        if (v->nterms && c->nodes->at[v->terms[0].node].recipe.op == OP_LOAD)
            continue; /* of some sequences: who reads it knows of which, and takes nothing else */
        return conserve_fail(m, i, "summed over its members it is %s, which the model's step does not have%s%s",
                             value_text(c->arena, c->nodes, v), norm_difference(c, v->node),
                             contributions(m, mask, sum->at[k].at));
    }
    return true;
}

/* over axes of one role: a flat list, or matrices side by side */
static bool all_reduce(struct machine *m, uint32_t i, uint32_t mask)
{
    const struct operand *o = prove_operand(m->program, i, OPND(ALL_REDUCE, x));
    bool max = prove_attr(m->program, i, ATTR(ALL_REDUCE, max))->u.i != 0;
    struct parts *p = &m->c->parts[1];
    const char *why = NULL;
    struct whole w;
    uint32_t part;
    if (store_read_flat(m->store, o, &w, &part)) {
        if (part & mask)
            return conserve_fail(m, i, "it reduces shards");
        if (!conserve_reduce_format(m, i, o, &w))
            return false;
        w = conserve_copy(m->c, &w);
        for (uint32_t k = 0; k < w.n && !why; k++)
            why = reduce(m->c, &w.at[k].value, mask, max, &w.at[k].value);
        if (why)
            return conserve_fail_inputs(m, i, "%s", why);
        if (!check_world(m, i, mask, &w))
            return false;
        return store_write_flat(m->store, o, &w, part, i) || conserve_fail(m, i, "its operand can't hold the result");
    }
    if (!conserve_read_parts(m, i, OPND(ALL_REDUCE, x), p))
        return false;
    for (uint32_t k = 0; k < p->n && !why; k++)
        why = reduce(m->c, &p->at[k].value, mask, max, &p->at[k].value);
    for (uint32_t k = 0; k < p->n && !why; k++) {
        if (!conserve_known(m, i, &p->at[k].value))
            return false;
        store_write(m->store, o, &p->at[k], i);
    }
    return !why || conserve_fail_inputs(m, i, "%s", why);
}

static bool finish_crossing(struct machine *m, uint32_t i, uint32_t mask, bool max)
{
    struct conserve *c = m->c;
    struct whole sum = {0};
    const char *why = NULL;
    for (uint32_t r = 0; r < c->nroles && !why; r++) {
        const struct whole *w = &c->machines[r].deposit;
        if (!prove_together(c->plan, mask, m->role, r))
            continue;
        if (!sum.at)
            sum = (struct whole){w->elements, 1, ARENA_ARRAY(c->scratch, struct stretch, 2)};
        if (!sum.at[0].n)
            sum.at[0] = (struct stretch){0, w->elements, {.kind = VALUE_ZERO}};
        for (uint32_t k = 0; k < w->n && !why; k++) {
            struct stretch s = w->at[k];
            why = reduce(c, &s.value, mask & GROUP_TIE ? 0 : mask, max, &s.value);
            if (!why)
                why = conserve_overlay(c, &sum, &s);
        }
    }
    if (why)
        return conserve_fail(m, i, "%s%s", why, contributions(m, mask, 0));
    if (!check_world(m, i, mask, &sum))
        return false;
    for (uint32_t r = 0; r < c->nroles; r++) {
        struct machine *other = &c->machines[r];
        if (!prove_together(c->plan, mask, m->role, r))
            continue;
        const struct operand *o = prove_operand(other->program, other->next, OPND(ALL_REDUCE, x));
        struct whole w = {sum.elements, sum.n, ARENA_ARRAY(c->scratch, struct stretch, sum.n)};
        memcpy(w.at, sum.at, sum.n * sizeof *w.at);
        if (!store_write_flat(other->store, o, &w, other->deposit_part, other->next))
            return conserve_fail(other, other->next, "its operand can't hold the result");
        other->deposited = false;
        other->next += r != m->role; /* the caller steps on itself */
    }
    return true;
}

/* every member leaves its value; the last to come adds them up for all */
static bool all_reduce_crossing(struct machine *m, uint32_t i, uint32_t mask)
{
    struct conserve *c = m->c;
    uint32_t there = 0, members = 0;
    if (!m->deposited) {
        if (!conserve_read_flat(m, i, OPND(ALL_REDUCE, x), &m->deposit, &m->deposit_part))
            return false;
        if (m->deposit_part & mask)
            return conserve_fail(m, i, "it reduces shards");
        if (!conserve_reduce_format(m, i, prove_operand(m->program, i, OPND(ALL_REDUCE, x)), &m->deposit))
            return false;
        m->deposited = true;
        m->deposit_mask = mask;
    }
    for (uint32_t r = 0; r < c->nroles; r++) {
        const struct machine *other = &c->machines[r];
        members += prove_together(c->plan, mask, m->role, r);
        there += prove_together(c->plan, mask, m->role, r) && other->deposited && other->deposit_mask == mask &&
                 other->deposit_part == m->deposit_part && other->deposit.elements == m->deposit.elements;
    }
    m->waits = there < members;
    return m->waits || finish_crossing(m, i, mask, prove_attr(m->program, i, ATTR(ALL_REDUCE, max))->u.i != 0);
}

/* ---- gather and scatter ---- */

static bool gather_flat(struct machine *m, uint32_t i, uint32_t mask)
{
    struct whole w;
    uint32_t part;
    if (!conserve_read_flat(m, i, OPND(ALL_GATHER, x), &w, &part))
        return false;
    if (prove_mask(&m->c->plan->mesh, part) != mask)
        return conserve_fail(m, i, "it gathers what is no shard along its group");
    return store_write_flat(m->store, prove_operand(m->program, i, OPND(ALL_GATHER, y)), &w, 0, i) ||
           conserve_fail(m, i, "its output can't hold all shards");
}

/* Are rows the members' own, one below the other in the order of their numbers, and of the same columns?  Rows of a
 * family are not: each of its matrices has some of them. */
static bool split_rows(const struct machine *m, const struct value *v, uint32_t mask)
{
    const struct mesh *mesh = &m->c->plan->mesh;
    if (v->row.turn || v->member.len)
        return false;
    for (uint32_t digit = 0; digit < NDIGITS; digit++)
        if (mask & AXIS_BIT(digit) &&
            (v->row.step[digit] != v->row.len * mesh_weight(mesh, mask, digit) || v->col.step[digit]))
            return false;
    return true;
}

static bool same_along(const struct value *v, uint32_t mask)
{
    for (uint32_t j = 0; j < v->nterms; j++)
        for (uint32_t b = 0; b < v->terms[j].blocks.n; b++) {
            const struct block *k = &v->terms[j].blocks.at[b];
            if ((slice_mask(k) | k->first) & mask)
                return false;
        }
    return true;
}

/* members' rows one below the other: they must be consecutive by number */
static bool gather_rows(struct machine *m, uint32_t i, uint32_t mask)
{
    struct parts *p = &m->c->parts[1];
    const struct operand *x = prove_operand(m->program, i, OPND(ALL_GATHER, x));
    uint32_t n = mesh_group_size(&m->c->plan->mesh, mask);
    if (!conserve_read_parts(m, i, OPND(ALL_GATHER, x), p))
        return false;
    for (uint32_t k = 0; k < p->n; k++) {
        struct part *t = &p->at[k];
        if (t->value.kind != VALUE_NODES || t->rows != x->rows || !split_rows(m, &t->value, mask))
            return conserve_fail_inputs(m, i, "it gathers %s, which is not split by rows along its group",
                                        value_text(m->c->arena, m->c->nodes, &t->value));
        if (!same_along(&t->value, mask))
            return conserve_fail(m, i, "it gathers partial sums that differ along its group");
        t->rows *= n;
        for (uint32_t digit = 0; digit < NDIGITS; digit++)
            t->value.row.step[digit] *= !(mask & AXIS_BIT(digit));
        t->value.row.len *= n;
    }
    return conserve_emit(m, i, OPND(ALL_GATHER, y), p);
}

static bool scatter_flat(struct machine *m, uint32_t i, uint32_t mask)
{
    struct whole w;
    uint32_t part;
    const struct operand *y = prove_operand(m->program, i, OPND(REDUCE_SCATTER, y));
    if (!conserve_read_flat(m, i, OPND(REDUCE_SCATTER, x), &w, &part))
        return false;
    if (part)
        return conserve_fail(m, i, "it reduces shards");
    if (!conserve_reduce_format(m, i, y, &w))
        return false;
    for (uint32_t k = 0; k < w.n; k++) {
        const char *why = reduce(m->c, &w.at[k].value, mask, false, &w.at[k].value);
        if (why)
            return conserve_fail_inputs(m, i, "%s", why);
    }
    uint32_t own = y->slot == UINT16_MAX ? mask : store_part(m->program, y);
    return (prove_mask(&m->c->plan->mesh, own) == mask && store_write_flat(m->store, y, &w, own, i)) ||
           conserve_fail(m, i, "its output is not the own shard");
}

static bool scatter_rows(struct machine *m, uint32_t i, uint32_t mask)
{
    struct parts *p = &m->c->parts[1];
    const struct operand *x = prove_operand(m->program, i, OPND(REDUCE_SCATTER, x)),
                         *y = prove_operand(m->program, i, OPND(REDUCE_SCATTER, y));
    if (!conserve_read_parts(m, i, OPND(REDUCE_SCATTER, x), p))
        return false;
    for (uint32_t k = 0; k < p->n; k++) {
        struct part *t = &p->at[k];
        if (t->rows != x->rows || t->value.kind != VALUE_NODES)
            return conserve_fail_inputs(m, i, "it scatters rows of %s",
                                        value_text(m->c->arena, m->c->nodes, &t->value));
        const char *why = reduce(m->c, &t->value, mask, false, &t->value);
        if (why)
            return conserve_fail_inputs(m, i, "%s", why);
        t->rows = y->rows;
        t->value.row.len = y->rows;
        extent_move(&t->value.row, &m->c->plan->mesh, mask, y->rows);
    }
    return conserve_emit(m, i, OPND(REDUCE_SCATTER, y), p);
}

/* Elements of buckets are flat lists, whose shards are runs; anything else is a matrix, whose shards are rows.  A shard
 * says so itself; sums are of a bucket where they are on the way to a weight's gradient. */
static bool is_flat(struct machine *m, uint32_t i, bool gather, uint32_t mask)
{
    const struct operand *x = prove_operand(m->program, i, gather ? OPND(ALL_GATHER, x) : OPND(REDUCE_SCATTER, x));
    bool bucket = m->program->buffers[x->buffer].bucket != NONE, zeros = true, weight = false;
    struct whole w;
    uint32_t part;
    struct arena_mark before = arena_mark(m->c->scratch);
    if (!store_read_flat(m->store, x, &w, &part))
        return bucket || mask == prove_mask(&m->c->plan->mesh, m->c->plan->mesh.dim[MESH_DP]);
    for (uint32_t k = 0; k < w.n && !weight; k++) {
        const struct value *v = &w.at[k].value;
        if (v->kind != VALUE_NODES)
            continue;
        zeros = false;
        weight = !gather && m->c->nodes->at[v->nterms ? v->terms[0].node : v->node].weight;
    }
    arena_reset(m->c->scratch, before);
    return part || zeros || weight || bucket;
}

/* ---- transfers ---- */

bool rule_SEND(struct machine *m, uint32_t i)
{
    uint32_t peer = prove_comm_slot(m->program, i)->arg;
    const struct operand *o = prove_operand(m->program, i, OPND(SEND, x));
    struct parts *p = &m->c->parts[1];
    assert(peer < m->c->nroles); /* property 2 */
    if (!conserve_read_parts(m, i, OPND(SEND, x), p))
        return false;
    struct message msg = {i, o->rows, o->cols, p->n, ARENA_ARRAY(m->c->scratch, struct part, p->n)};
    memcpy(msg.parts, p->at, p->n * sizeof *p->at);
    for (uint32_t k = 0; k < p->n; k++)
        if (p->at[k].value.kind == VALUE_PART)
            return conserve_fail(m, i, "it sends a shard");
    conserve_put(m->c, m->role, peer, &msg);
    return true;
}

bool rule_RECV(struct machine *m, uint32_t i)
{
    uint32_t peer = prove_comm_slot(m->program, i)->arg;
    const struct operand *o = prove_operand(m->program, i, OPND(RECV, y));
    assert(peer < m->c->nroles);
    struct message msg;
    m->waits = !conserve_take(m->c, peer, m->role, &msg);
    if (m->waits)
        return true;
    assert(msg.rows == o->rows && msg.cols == o->cols);
    struct parts *p = &m->c->parts[1];
    p->n = msg.nparts;
    memcpy(p->at, msg.parts, p->n * sizeof *p->at);
    return conserve_emit(m, i, OPND(RECV, y), p);
}

bool rule_ALL_REDUCE(struct machine *m, uint32_t i)
{
    uint32_t mask = group_mask(m, i);
    return prove_crosses(mask) ? all_reduce_crossing(m, i, mask) : all_reduce(m, i, mask);
}

static bool no_rule(struct machine *m, uint32_t i)
{
    return conserve_fail(m, i, "there is no rule for this collective over this group");
}

/* *done: it moved rows of experts, or failed to */
static bool move_routed(struct machine *m, uint32_t i, uint32_t mask, bool *done)
{
    *done = false;
    return !mask || prove_crosses(mask) || conserve_routed(m, i, mask, done);
}

static bool gather_or_scatter(struct machine *m, uint32_t i, bool gather)
{
    uint32_t mask = group_mask(m, i);
    bool done, fine = move_routed(m, i, mask, &done);
    if (done)
        return fine;
    if (!mask || prove_crosses(mask))
        return no_rule(m, i);
    if (is_flat(m, i, gather, mask))
        return gather ? gather_flat(m, i, mask) : scatter_flat(m, i, mask);
    return gather ? gather_rows(m, i, mask) : scatter_rows(m, i, mask);
}

bool rule_ALL_GATHER(struct machine *m, uint32_t i)
{
    return gather_or_scatter(m, i, true);
}

bool rule_REDUCE_SCATTER(struct machine *m, uint32_t i)
{
    return gather_or_scatter(m, i, false);
}

bool rule_ALL_TO_ALL(struct machine *m, uint32_t i)
{
    uint32_t mask = group_mask(m, i);
    bool done, fine = move_routed(m, i, mask, &done);
    if (done)
        return fine;
    return mask == prove_mask(&m->c->plan->mesh, m->c->plan->mesh.dim[MESH_CP]) ? conserve_exchange(m, i)
                                                                                : no_rule(m, i);
}

bool rule_BROADCAST(struct machine *m, uint32_t i)
{
    return no_rule(m, i);
}
