/* Property 7, conservation: the plan computes the model's training step, no more and no less.
 *
 * Translation validation by value numbering.  reference.c writes the step down as nodes; every role's program
 * is interpreted once over abstract values (value.h), each instruction must find its node, and at the end
 * every parameter was updated with its whole gradient, the metrics hold the whole loss and norm.  That every
 * layer runs once per microbatch, in order, follows: a node names its inputs.  Recomputed values are equal
 * nodes.
 *
 * Roles run until they have to wait for a value of another one; a RECV takes the oldest value of its channel,
 * and a collective across roles waits for all members.  Property 3 says that this ends.  The first violation
 * of a program ends its interpretation: what follows would be consequences. */

#include "compiler/verify/conserve.h"

bool conserve_fail(struct machine *m, uint32_t i, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *s = arena_vprintf(m->c->arena, fmt, ap);
    va_end(ap);
    m->site.insn = i;
    const struct machine *before = m->c->suspect;
    if (!m->c->failed && before && (before != m || m->c->suspect_insn != i))
        s = arena_printf(m->c->arena, "%s; before, role %u's %s read what another microbatch had left", s, before->role,
                         prove_insn_text(m->c->arena, before->program, m->c->suspect_insn));
    if (!m->c->failed)
        prove_report(m->c->arena, m->c->plan, m->c->verdict, m->site, "%s", s);
    m->c->failed = true;
    return false;
}

bool conserve_fail_inputs(struct machine *m, uint32_t i, const char *fmt, ...)
{
    const struct isa_info *info = isa_info(m->program->insns[i].op);
    va_list ap;
    va_start(ap, fmt);
    char *s = arena_vprintf(m->c->arena, fmt, ap);
    va_end(ap);
    for (uint32_t k = 0; k < info->noperands && !m->c->failed; k++)
        if (m->writer[k] != NONE)
            s = arena_printf(m->c->arena, "%s; %s is by %s", s, info->operand[k].name,
                             prove_insn_text(m->c->arena, m->program, m->writer[k]));
    return conserve_fail(m, i, "%s", s);
}

const char *conserve_origin(struct machine *m, const struct value *v)
{
    if (!v->origin)
        return "";
    const struct program *p = m->c->machines[v->origin_role].program;
    return arena_printf(m->c->arena, "; rows by role %u's %s", v->origin_role,
                        prove_insn_text(m->c->arena, p, v->origin - 1));
}

/* Tags are for people, and messages are too: a stale input often shows only where it meets fresh ones. */
static void suspect(struct machine *m, uint32_t i, size_t k, uint32_t writer)
{
    const struct insn *all = m->program->insns;
    if (m->c->suspect || writer == NONE || all[writer].microbatch == all[i].microbatch ||
        all[writer].microbatch == NONE || all[i].microbatch == NONE ||
        prove_operand(m->program, i, k)->mark != MARK_READ)
        return;
    m->c->suspect = m;
    m->c->suspect_insn = i;
}

static const char *writer_text(struct machine *m, uint32_t writer)
{
    return writer == NONE ? "" : arena_printf(m->c->arena, ", by %s", prove_insn_text(m->c->arena, m->program, writer));
}

/* why an operand can't be read, in words */
static bool fail_read(struct machine *m, uint32_t i, size_t k)
{
    const struct operand *o = prove_operand(m->program, i, k);
    const char *name = isa_info(m->program->insns[i].op)->operand[k].name;
    const struct cell *c = &m->store->cells[m->store->first[o->buffer]];
    for (uint32_t p = 0; p < c->n; p++)
        if (c->pieces[p].own)
            return conserve_fail(m, i,
                                 "it reads %s (%s), of which only the own shard is up to date: the rest is stale%s",
                                 name, m->program->buffers[o->buffer].name, writer_text(m, c->pieces[p].writer));
    uint32_t writer = store_writer(m->store, o);
    return conserve_fail(m, i, "it reads %s (%s), whose bytes do not hold one known matrix%s", name,
                         m->program->buffers[o->buffer].name, writer_text(m, writer));
}

bool conserve_read_parts(struct machine *m, uint32_t i, size_t k, struct parts *out)
{
    if (!store_read(m->store, prove_operand(m->program, i, k), out))
        return fail_read(m, i, k);
    for (uint32_t p = 0; p < out->n; p++)
        suspect(m, i, k, out->at[p].writer);
    m->writer[k] = out->at[0].writer;
    return true;
}

bool conserve_read_flat(struct machine *m, uint32_t i, size_t k, struct whole *out, uint32_t *mask)
{
    if (!store_read_flat(m->store, prove_operand(m->program, i, k), out, mask))
        return fail_read(m, i, k);
    m->writer[k] = store_writer(m->store, prove_operand(m->program, i, k));
    return true;
}

bool conserve_complete(const struct value *v)
{
    return v->kind == VALUE_NODES && !v->nterms;
}

bool conserve_read(struct machine *m, uint32_t i, size_t k, struct value *out)
{
    const struct piece *whole = store_whole(m->store, prove_operand(m->program, i, k));
    if (whole && conserve_complete(&whole->value)) {
        suspect(m, i, k, whole->writer);
        m->writer[k] = whole->writer;
        *out = whole->value;
        return true;
    }
    struct parts *p = &m->c->parts[0];
    const char *name = isa_info(m->program->insns[i].op)->operand[k].name;
    if (!conserve_read_parts(m, i, k, p))
        return false;
    *out = p->at[0].value;
    if (p->n != 1)
        return conserve_fail(m, i, "it reads %s as one matrix, but it holds %s beside %s%s", name,
                             value_text(m->c->arena, m->c->nodes, &p->at[0].value),
                             value_text(m->c->arena, m->c->nodes, &p->at[1].value), writer_text(m, p->at[0].writer));
    if (!conserve_complete(out))
        return conserve_fail(m, i, "it reads %s, which holds %s%s", name, value_text(m->c->arena, m->c->nodes, out),
                             writer_text(m, p->at[0].writer));
    return true;
}

bool conserve_zeros(const struct parts *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->at[i].value.kind != VALUE_ZERO)
            return false;
    return true;
}

static const struct part *same_part(const struct parts *p, const struct part *x)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->at[i].row == x->row && p->at[i].rows == x->rows && p->at[i].col == x->col && p->at[i].cols == x->cols)
            return &p->at[i];
    return NULL;
}

bool conserve_known(struct machine *m, uint32_t i, const struct value *v)
{
    if (v->kind != VALUE_NODES || m->c->nodes->at[v->node].name)
        return true;
    const struct recipe *r = &m->c->nodes->at[v->node].recipe;
    return conserve_fail_inputs(m, i, "the model's step has no sum of %s and %s", nodes_name(m->c->nodes, r->input[0]),
                                nodes_name(m->c->nodes, r->input[1]));
}

/* sums over weights or layers that only the end of the step completes */
static bool grows(enum op op)
{
    return op == OP_SQNORM || op == OP_BALANCE || op == OP_ARRANGE || op == OP_ARRANGE_ONCE;
}

bool conserve_emit(struct machine *m, uint32_t i, size_t k, const struct parts *out)
{
    const struct operand *o = prove_operand(m->program, i, k);
    struct parts *old = &m->c->parts[4];
    bool add = o->mark == MARK_ADD;
    if (add && !conserve_read_parts(m, i, k, old))
        return false;
    if (add && conserve_zeros(old))
        add = false;
    for (uint32_t p = 0; p < out->n; p++) {
        struct part part = out->at[p];
        const struct part *there = add ? same_part(old, &part) : NULL;
        if (add && !there)
            return conserve_fail(
                m, i, "it adds %s to other shapes, %s%s", value_text(m->c->arena, m->c->nodes, &part.value),
                value_text(m->c->arena, m->c->nodes, &old->at[0].value), writer_text(m, old->at[0].writer));
        const char *why = there ? value_add(m->c->scratch, m->c->nodes, &there->value, &part.value, &part.value) : NULL;
        if (why)
            return conserve_fail(m, i, "%s%s", why, writer_text(m, there->writer));
        if (!grows(m->program->insns[i].op) && !conserve_known(m, i, &part.value))
            return false;
        store_write(m->store, o, &part, i);
    }
    return true;
}

bool conserve_emit_one(struct machine *m, uint32_t i, size_t k, const struct value *v)
{
    struct parts *out = &m->c->parts[3];
    const struct operand *o = prove_operand(m->program, i, k);
    if (o->mark != MARK_ADD) {
        if (!grows(m->program->insns[i].op) && !conserve_known(m, i, v))
            return false;
        store_write_whole(m->store, o, v, i);
        return true;
    }
    out->n = 1;
    out->at[0] = (struct part){0, o->rows, 0, o->cols, i, *v};
    return conserve_emit(m, i, k, out);
}

struct value conserve_value(struct conserve *c, uint32_t node, const struct extent *over, struct extent row,
                            struct extent col)
{
    struct value v = {.kind = VALUE_NODES, .node = node, .row = row, .col = col};
    if (!over || extent_whole(over, c->nodes->at[node].domain))
        return v;
    struct term *term = ARENA_NEW(c->scratch, struct term);
    *term = (struct term){node, sets_one(c->nodes->sets, &(struct block){.extent = *over, .count = 1})};
    v.node = NODE_ZERO;
    v.nterms = 1;
    v.terms = term;
    return v;
}

bool conserve_bind(struct machine *m, uint32_t i, size_t attr, int64_t len, struct extent *out)
{
    const struct attr *a = prove_attr(m->program, i, attr);
    *out = extent_new(a->u.i, len);
    if (a->slot == NONE || !a->stride)
        return true;
    const struct slot *s = &m->program->slots[a->slot];
    if (s->kind != SLOT_COORD)
        return conserve_fail(m, i, "its attribute %s depends on slot %s, which is no coordinate",
                             isa_info(m->program->insns[i].op)->attr[attr].name, s->name);
    extent_move(out, &m->c->plan->mesh, s->arg, a->stride);
    return true;
}

bool conserve_count(struct machine *m, uint32_t i, size_t attr, uint32_t *first, bool *never)
{
    const struct attr *a = prove_attr(m->program, i, attr);
    bool slot = a->slot != NONE && a->stride;
    *first = 0;
    *never = !slot && a->u.i == 0;
    if (!slot && (a->u.i == 0 || a->u.i == 1))
        return true;
    if (!slot || a->u.i != 0 || a->stride != 1 || m->program->slots[a->slot].kind != SLOT_FIRST)
        return conserve_fail(m, i, "its count is neither 0 nor 1 nor 1 on the first ranks alone");
    *first = prove_mask(&m->c->plan->mesh, m->program->slots[a->slot].arg);
    *never = (*first & AXIS_BIT(AXIS_PP)) != 0 && m->role != 0;
    *first &= ~AXIS_BIT(AXIS_PP);
    return true;
}

void conserve_attrs(const struct machine *m, uint32_t i, struct recipe *r)
{
    const struct isa_info *info = recipe_info(r);
    for (uint32_t k = 0; k < info->nattrs; k++) {
        const struct attr *a = prove_attr(m->program, i, k);
        if (info->attr[k].kind == ATTR_INT)
            r->attr[k] = (uint64_t)a->u.i;
        else if (info->attr[k].kind == ATTR_REAL)
            r->attr[k] = reference_real(a->u.f);
    }
}

static const char *attr_text(struct arena *a, const struct isa_attr *t, uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return t->kind == ATTR_REAL ? arena_printf(a, "%.17g", v) : arena_printf(a, "%lld", (long long)bits);
}

/* what the reference has instead: the same opcode with other attributes, or with some of the inputs */
static const char *expectation(struct machine *m, const struct recipe *r)
{
    const struct isa_info *info = recipe_info(r);
    const struct nodes *g = m->c->nodes;
    for (uint32_t n = 1; n < g->n; n++) {
        const struct recipe *x = &g->at[n].recipe;
        if (x->op != r->op || x->output != r->output || memcmp(x->input, r->input, sizeof x->input))
            continue;
        for (uint32_t k = 0; k < info->nattrs; k++)
            if (x->attr[k] != r->attr[k])
                return arena_printf(m->c->arena, "; for %s attribute %s is %s in the model, here %s", g->at[n].name,
                                    info->attr[k].name, attr_text(m->c->arena, &info->attr[k], x->attr[k]),
                                    attr_text(m->c->arena, &info->attr[k], r->attr[k]));
    }
    for (uint32_t n = 1; n < g->n; n++) {
        const struct recipe *x = &g->at[n].recipe;
        bool shares = false;
        uint32_t other = NONE;
        for (uint32_t k = 0; k < info->noperands && x->op == r->op && x->output == r->output; k++) {
            if (x->input[k] == r->input[k])
                shares |= x->input[k] != NODE_ZERO;
            else
                other = k;
        }
        if (shares && other != NONE)
            return arena_printf(m->c->arena, "; %s takes %s as %s", g->at[n].name,
                                x->input[other] ? nodes_name(g, x->input[other]) : "nothing",
                                info->operand[other].name);
    }
    return "";
}

uint32_t conserve_find(struct machine *m, uint32_t i, const struct recipe *r)
{
    uint32_t *guess = &m->guess[m->program->insns[i].operand + (r->output < ISA_MAX_OPERANDS ? r->output : 0)];
    if (nodes_are(m->c->nodes, *guess, r))
        return *guess;
    uint32_t node = nodes_find(m->c->nodes, r);
    if (node != NONE) {
        *guess = node;
        return node;
    }
    const struct isa_info *info = recipe_info(r);
    const char *inputs = "";
    for (uint32_t k = 0; k < info->noperands; k++)
        if (r->input[k] != NODE_ZERO)
            inputs = arena_printf(m->c->arena, "%s%s%s = %s", inputs, *inputs ? ", " : "", info->operand[k].name,
                                  nodes_name(m->c->nodes, r->input[k]));
    conserve_fail_inputs(m, i, "the model's step has no %s of %s%s", info->name, inputs, expectation(m, r));
    return NONE;
}
