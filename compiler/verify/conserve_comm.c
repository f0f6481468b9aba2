/* Property 7: transfers and collectives.
 *
 * Members of a group within a role hold the same value with coordinates put in, so a reduction over an axis
 * is the union of its contributions over that coordinate, and a gather joins the intervals that the
 * coordinate numbers.  A reduction across roles (the metrics over the world, a tied table over its two
 * stages) waits for all member roles; there, values of different roles add up like values of one. */

#include "compiler/verify/conserve.h"

static uint32_t group_mask(const struct machine *m, uint32_t i)
{
    return prove_mask(&m->c->plan->mesh, prove_comm_slot(m->program, i)->arg);
}

/* the one axis of a mask, NAXES if it has none or several */
static uint32_t only_axis(uint32_t mask)
{
    for (uint32_t a = 0; a < NAXES; a++)
        if (mask == AXIS_BIT(a))
            return a;
    return NAXES;
}

/* A shard's norm becomes its weights' norms when it is summed over the axis that numbers the shards. */
static const char *open_slices(struct conserve *c, const struct value *v, uint32_t axis, struct value *rest,
                               struct value *opened)
{
    struct term *terms = ARENA_ARRAY(c->scratch, struct term, v->nterms + 1u);
    *rest = *v;
    rest->nterms = 0;
    rest->terms = terms;
    *opened = (struct value){.kind = VALUE_ZERO};
    for (uint32_t i = 0; i < v->nterms; i++) {
        const struct term *t = &v->terms[i];
        const struct node *n = &c->nodes->at[t->node];
        if (n->recipe.op != RECIPE_SLICE || t->blocks.n != 1 || !t->blocks.at[0].extent.step[axis]) {
            terms[rest->nterms++] = *t;
            continue;
        }
        struct block plain = t->blocks.at[0];
        struct blocks one = {1, &plain}, all;
        struct value part;
        uint32_t first = plain.first;
        plain.first = 0;
        if (first & AXIS_BIT(axis) ||
            !blocks_reduce(c->scratch, &one, axis, c->plan->mesh.size[axis], &all) ||
            !blocks_whole(&all, n->domain))
            return "the shards whose norms it sums are not the whole bucket";
        const char *why = conserve_norm_of(c, c->slices.at[n->recipe.attr[0]], first, &part);
        if (!why)
            why = value_add(c->scratch, c->nodes, opened, &part, opened);
        if (why)
            return why;
    }
    return NULL;
}

/* sum or maximum over all axes of a mask; dp first, because shards open up only there */
static const char *reduce(struct conserve *c, const struct value *v, uint32_t mask, bool max,
                          struct value *out)
{
    static const enum axis order[] = {AXIS_DP, AXIS_CP, AXIS_TP};
    *out = *v;
    for (size_t k = 0; k < ARRAY_LEN(order); k++) {
        uint32_t axis = order[k];
        struct value rest, opened;
        if (!(mask & AXIS_BIT(axis)) || out->kind == VALUE_ZERO)
            continue;
        const char *why = open_slices(c, out, axis, &rest, &opened);
        if (!why)
            why = value_reduce(c->scratch, c->nodes, &rest, axis, c->plan->mesh.size[axis], max, &rest);
        if (!why)
            why = value_add(c->scratch, c->nodes, &rest, &opened, out);
        if (why)
            return why;
    }
    return NULL;
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
        return conserve_fail(m, i,
                             "summed over its members it is %s, which the model's step does not have%s%s",
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
    uint32_t axis;
    if (store_read_flat(m->store, o, &w, &axis)) {
        if (axis != NAXES)
            return conserve_fail(m, i, "it reduces shards");
        for (uint32_t k = 0; k < w.n && !why; k++)
            why = reduce(m->c, &w.at[k].value, mask, max, &w.at[k].value);
        if (why)
            return conserve_fail_inputs(m, i, "%s", why);
        if (!check_world(m, i, mask, &w))
            return false;
        return store_write_flat(m->store, o, &w, NAXES, i) ||
               conserve_fail(m, i, "its operand can't hold the result");
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

/* Add one stretch to a list that may hold zeros, cut differently, in its place. */
static const char *overlay(struct conserve *c, struct whole *acc, const struct stretch *s)
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

static bool finish_crossing(struct machine *m, uint32_t i, uint32_t mask, bool max)
{
    struct conserve *c = m->c;
    struct whole sum = {0};
    const char *why = NULL;
    for (uint32_t r = 0; r < c->nroles && !why; r++) {
        const struct whole *w = &c->machines[r].deposit;
        if (!prove_member(c->plan, mask, r))
            continue;
        if (!sum.at)
            sum = (struct whole){w->elements, 1, ARENA_ARRAY(c->scratch, struct stretch, 2)};
        if (!sum.at[0].n)
            sum.at[0] = (struct stretch){0, w->elements, {.kind = VALUE_ZERO}};
        for (uint32_t k = 0; k < w->n && !why; k++) {
            struct stretch s = w->at[k];
            why = reduce(c, &s.value, mask & GROUP_TIE ? 0 : mask, max, &s.value);
            if (!why)
                why = overlay(c, &sum, &s);
        }
    }
    if (why)
        return conserve_fail(m, i, "%s%s", why, contributions(m, mask, 0));
    if (!check_world(m, i, mask, &sum))
        return false;
    for (uint32_t r = 0; r < c->nroles; r++) {
        struct machine *other = &c->machines[r];
        if (!prove_member(c->plan, mask, r))
            continue;
        const struct operand *o = prove_operand(other->program, other->next, OPND(ALL_REDUCE, x));
        struct whole w = {sum.elements, sum.n, ARENA_ARRAY(c->scratch, struct stretch, sum.n)};
        memcpy(w.at, sum.at, sum.n * sizeof *w.at);
        if (!store_write_flat(other->store, o, &w, NAXES, other->next))
            return conserve_fail(other, other->next, "its operand can't hold the result");
        other->deposited = false;
        other->next += r != m->role; /* the caller steps on itself */
    }
    return true;
}

/* every member leaves its value; the last to come adds them up for all */
static bool all_reduce_crossing(struct machine *m, uint32_t i, uint32_t mask, bool *wait)
{
    struct conserve *c = m->c;
    uint32_t axis, there = 0, members = 0;
    if (!m->deposited) {
        if (!conserve_read_flat(m, i, OPND(ALL_REDUCE, x), &m->deposit, &axis))
            return false;
        if (axis != NAXES)
            return conserve_fail(m, i, "it reduces shards");
        m->deposited = true;
        m->deposit_mask = mask;
    }
    for (uint32_t r = 0; r < c->nroles; r++) {
        const struct machine *other = &c->machines[r];
        members += prove_member(c->plan, mask, r);
        there += prove_member(c->plan, mask, r) && other->deposited && other->deposit_mask == mask &&
                 other->deposit.elements == m->deposit.elements;
    }
    *wait = there < members;
    return *wait || finish_crossing(m, i, mask, prove_attr(m->program, i, ATTR(ALL_REDUCE, max))->u.i != 0);
}

/* ---- gather and scatter ---- */

static bool gather_flat(struct machine *m, uint32_t i, uint32_t axis)
{
    struct whole w;
    uint32_t parts;
    if (!conserve_read_flat(m, i, OPND(ALL_GATHER, x), &w, &parts))
        return false;
    if (parts != axis)
        return conserve_fail(m, i, "it gathers what is no shard along its group");
    return store_write_flat(m->store, prove_operand(m->program, i, OPND(ALL_GATHER, y)), &w, NAXES, i) ||
           conserve_fail(m, i, "its output can't hold all shards");
}

/* members' rows one below the other: they must be consecutive by coordinate */
static bool gather_rows(struct machine *m, uint32_t i, uint32_t axis)
{
    struct parts *p = &m->c->parts[1];
    const struct operand *x = prove_operand(m->program, i, OPND(ALL_GATHER, x));
    int64_t n = m->c->plan->mesh.size[axis];
    if (!conserve_read_parts(m, i, OPND(ALL_GATHER, x), p))
        return false;
    for (uint32_t k = 0; k < p->n; k++) {
        struct part *t = &p->at[k];
        if (t->value.kind != VALUE_NODES || t->rows != x->rows || t->value.row.step[axis] != t->value.row.len)
            return conserve_fail_inputs(m, i, "it gathers %s, which is not split by rows along its group",
                                        value_text(m->c->arena, m->c->nodes, &t->value));
        for (uint32_t j = 0; j < t->value.nterms; j++)
            for (uint32_t b = 0; b < t->value.terms[j].blocks.n; b++)
                if (t->value.terms[j].blocks.at[b].extent.step[axis] || t->value.terms[j].blocks.at[b].first)
                    return conserve_fail(m, i, "it gathers partial sums that differ along its group");
        t->rows *= (uint32_t)n;
        t->value.row.step[axis] = 0;
        t->value.row.len *= n;
    }
    return conserve_emit(m, i, OPND(ALL_GATHER, y), p);
}

static bool scatter_flat(struct machine *m, uint32_t i, uint32_t axis)
{
    struct whole w;
    uint32_t parts;
    if (!conserve_read_flat(m, i, OPND(REDUCE_SCATTER, x), &w, &parts))
        return false;
    if (parts != NAXES)
        return conserve_fail(m, i, "it reduces shards");
    for (uint32_t k = 0; k < w.n; k++) {
        const char *why = reduce(m->c, &w.at[k].value, AXIS_BIT(axis), false, &w.at[k].value);
        if (why)
            return conserve_fail_inputs(m, i, "%s", why);
    }
    return store_write_flat(m->store, prove_operand(m->program, i, OPND(REDUCE_SCATTER, y)), &w, axis, i) ||
           conserve_fail(m, i, "its output is not the own shard");
}

static bool scatter_rows(struct machine *m, uint32_t i, uint32_t axis)
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
        const char *why = reduce(m->c, &t->value, AXIS_BIT(axis), false, &t->value);
        if (why)
            return conserve_fail_inputs(m, i, "%s", why);
        t->rows = y->rows;
        t->value.row.len = y->rows;
        t->value.row.step[axis] = y->rows;
    }
    return conserve_emit(m, i, OPND(REDUCE_SCATTER, y), p);
}

/* ---- transfers ---- */

static bool send(struct machine *m, uint32_t i)
{
    uint32_t peer = prove_comm_slot(m->program, i)->arg;
    const struct operand *o = prove_operand(m->program, i, OPND(SEND, x));
    struct parts *p = &m->c->parts[1];
    if (peer >= m->c->nroles)
        return conserve_fail(m, i, "its peer does not exist");
    if (!conserve_read_parts(m, i, OPND(SEND, x), p))
        return false;
    struct message msg = {i, o->rows, o->cols, p->n, ARENA_ARRAY(m->c->scratch, struct part, p->n)};
    memcpy(msg.parts, p->at, p->n * sizeof *p->at);
    for (uint32_t k = 0; k < p->n; k++)
        if (p->at[k].value.kind == VALUE_PART)
            return conserve_fail(m, i, "it sends a shard");
    vec_push(m->c->scratch, &m->c->channels[m->role * m->c->nroles + peer].messages, msg);
    return true;
}

static bool receive(struct machine *m, uint32_t i, bool *wait)
{
    uint32_t peer = prove_comm_slot(m->program, i)->arg;
    const struct operand *o = prove_operand(m->program, i, OPND(RECV, y));
    if (peer >= m->c->nroles)
        return conserve_fail(m, i, "its peer does not exist");
    struct channel *ch = &m->c->channels[peer * m->c->nroles + m->role];
    *wait = ch->taken == ch->messages.n;
    if (*wait)
        return true;
    const struct message *msg = &ch->messages.at[ch->taken++];
    if (msg->rows != o->rows || msg->cols != o->cols)
        return conserve_fail(m, i, "it receives %u x %u elements as %u x %u", msg->rows, msg->cols, o->rows,
                             o->cols);
    struct parts *p = &m->c->parts[1];
    p->n = msg->nparts;
    memcpy(p->at, msg->parts, p->n * sizeof *p->at);
    return conserve_emit(m, i, OPND(RECV, y), p);
}

bool conserve_comm(struct machine *m, uint32_t i, bool *wait)
{
    uint16_t op = m->program->insns[i].op;
    if (op == OP_SEND)
        return send(m, i);
    if (op == OP_RECV)
        return receive(m, i, wait);
    uint32_t mask = group_mask(m, i), axis = only_axis(mask);
    if (op == OP_ALL_REDUCE)
        return prove_crosses(mask) ? all_reduce_crossing(m, i, mask, wait) : all_reduce(m, i, mask);
    if ((op != OP_ALL_GATHER && op != OP_REDUCE_SCATTER) || axis >= NAXES || axis == AXIS_PP)
        return conserve_fail(m, i, "there is no rule for this collective over this group");
    bool flat = axis == AXIS_DP; /* shards of buckets; along the other axes rows of activations */
    if (op == OP_ALL_GATHER)
        return flat ? gather_flat(m, i, axis) : gather_rows(m, i, axis);
    return flat ? scatter_flat(m, i, axis) : scatter_rows(m, i, axis);
}
