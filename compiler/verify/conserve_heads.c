/* Property 7: instructions that work on every head by itself: norms of queries and keys, sinks, latent
 * attention's keys.
 *
 * Columns must be whole heads; which heads they are follows from the columns, whatever the attributes say of
 * their number.  A gain is as wide as a head, and so whole.  It is shared by all heads and gets a sum over rows and
 * heads: its contributions are numbered row * H + head, of H heads in the model, so that a rank's share is a comb.
 * The rotary part that all heads share gets a sum over heads.  A sink is one head's own and gets a sum over
 * rows. */

#include "compiler/verify/conserve.h"

static bool divides(const struct extent *e, int64_t n)
{
    bool fine = n > 0 && e->lo % n == 0 && e->len % n == 0;
    for (int a = 0; a < NDIGITS; a++)
        fine = fine && e->step[a] % n == 0;
    return fine;
}

static bool read_into(struct machine *m, uint32_t i, size_t k, struct recipe *r, struct value *v)
{
    if (!conserve_read(m, i, k, v))
        return false;
    r->input[k] = v->node;
    return true;
}

/* which heads a value's columns are, `size` columns each */
static bool heads_of(struct machine *m, uint32_t i, const struct value *v, int64_t size, struct extent *heads)
{
    if (!divides(&v->col, size))
        return conserve_fail(m, i, "columns %s of %s are no whole heads of %lld", extent_text(m->c->arena, &v->col),
                             nodes_name(m->c->nodes, v->node), (long long)size);
    *heads = extent_scaled(&v->col, 1, size);
    return true;
}

static bool same(struct machine *m, uint32_t i, const struct value *x, const struct extent *a, const struct value *y,
                 const struct extent *b, const char *what)
{
    return extent_same(a, b) ||
           conserve_fail_inputs(m, i, "%s %s of %s meet %s of %s%s%s", what, extent_text(m->c->arena, a),
                                nodes_name(m->c->nodes, x->node), extent_text(m->c->arena, b),
                                nodes_name(m->c->nodes, y->node), conserve_origin(m, x), conserve_origin(m, y));
}

static bool emit(struct machine *m, uint32_t i, struct recipe *r, size_t k, const struct extent *over,
                 const struct value *like, struct extent row, struct extent col)
{
    r->output = (uint16_t)k;
    uint32_t node = conserve_find(m, i, r);
    if (node == NONE)
        return false;
    struct value v = conserve_value(m->c, node, over, row, col);
    v.origin = like->origin;
    v.origin_role = like->origin_role;
    return conserve_emit_one(m, i, k, &v);
}

static bool head_norm(struct machine *m, uint32_t i, struct recipe *r, int64_t head)
{
    struct value x, g;
    struct extent heads;
    return read_into(m, i, OPND(HEADNORM, x), r, &x) && read_into(m, i, OPND(HEADNORM, g), r, &g) &&
           heads_of(m, i, &x, head, &heads) && emit(m, i, r, OPND(HEADNORM, y), NULL, &x, x.row, x.col) &&
           emit(m, i, r, OPND(HEADNORM, rstd), NULL, &x, x.row, heads);
}

static bool head_norm_input(struct machine *m, uint32_t i, struct recipe *r, int64_t head)
{
    struct value dy, x, g, rstd;
    struct extent heads;
    return read_into(m, i, OPND(HEADNORM_I, dy), r, &dy) && read_into(m, i, OPND(HEADNORM_I, x), r, &x) &&
           read_into(m, i, OPND(HEADNORM_I, g), r, &g) && read_into(m, i, OPND(HEADNORM_I, rstd), r, &rstd) &&
           heads_of(m, i, &x, head, &heads) && same(m, i, &dy, &dy.row, &x, &x.row, "rows") &&
           same(m, i, &dy, &dy.col, &x, &x.col, "columns") && same(m, i, &rstd, &rstd.row, &x, &x.row, "rows") &&
           same(m, i, &rstd, &rstd.col, &x, &heads, "heads") &&
           emit(m, i, r, OPND(HEADNORM_I, dx), NULL, &dy, dy.row, dy.col);
}

/* sum over rows and heads */
static bool head_norm_gain(struct machine *m, uint32_t i, struct recipe *r, int64_t head)
{
    struct value dy, x, rstd;
    struct extent heads;
    if (!read_into(m, i, OPND(HEADNORM_W, dy), r, &dy) || !read_into(m, i, OPND(HEADNORM_W, x), r, &x) ||
        !read_into(m, i, OPND(HEADNORM_W, rstd), r, &rstd) || !heads_of(m, i, &x, head, &heads) ||
        !same(m, i, &dy, &dy.row, &x, &x.row, "rows") || !same(m, i, &dy, &dy.col, &x, &x.col, "columns") ||
        !same(m, i, &rstd, &rstd.row, &x, &x.row, "rows") || !same(m, i, &rstd, &rstd.col, &x, &heads, "heads"))
        return false;
    int64_t all = m->c->nodes->at[x.node].cols / head;
    struct block *block = ARENA_NEW(m->c->scratch, struct block);
    *block = (struct block){.extent = extent_scaled(&x.row, all, 1), .count = x.row.len, .stride = all};
    block->extent.lo += heads.lo;
    block->extent.len = heads.len;
    for (int a = 0; a < NDIGITS; a++)
        block->extent.step[a] += heads.step[a];
    if (heads.len == all || x.row.len == 1) {
        block->extent.len *= x.row.len;
        block->count = 1;
    }
    r->output = OPND(HEADNORM_W, dg);
    uint32_t node = conserve_find(m, i, r);
    if (node == NONE)
        return false;
    struct value v = conserve_value(m->c, node, NULL, extent_new(0, 1), extent_new(0, head));
    struct term *term = ARENA_NEW(m->c->scratch, struct term);
    *term = (struct term){node, {1, block}};
    if (!blocks_whole(&term->blocks, m->c->nodes->at[node].domain)) {
        v.node = NODE_ZERO;
        v.nterms = 1;
        v.terms = term;
    }
    return conserve_emit_one(m, i, OPND(HEADNORM_W, dg), &v);
}

static bool sink(struct machine *m, uint32_t i, struct recipe *r, int64_t head)
{
    struct value x, lse, own;
    struct extent heads;
    return read_into(m, i, OPND(SINK, x), r, &x) && read_into(m, i, OPND(SINK, lse), r, &lse) &&
           read_into(m, i, OPND(SINK, sink), r, &own) && heads_of(m, i, &x, head, &heads) &&
           same(m, i, &lse, &lse.row, &x, &x.row, "rows") && same(m, i, &lse, &lse.col, &x, &heads, "heads") &&
           same(m, i, &own, &own.col, &x, &heads, "heads") && emit(m, i, r, OPND(SINK, y), NULL, &x, x.row, x.col) &&
           emit(m, i, r, OPND(SINK, total), NULL, &x, x.row, heads);
}

static bool sink_gradient(struct machine *m, uint32_t i, struct recipe *r, int64_t head)
{
    struct value dy, y, total, own;
    struct extent heads;
    return read_into(m, i, OPND(SINK_W, dy), r, &dy) && read_into(m, i, OPND(SINK_W, y), r, &y) &&
           read_into(m, i, OPND(SINK_W, total), r, &total) && read_into(m, i, OPND(SINK_W, sink), r, &own) &&
           heads_of(m, i, &y, head, &heads) && same(m, i, &dy, &dy.row, &y, &y.row, "rows") &&
           same(m, i, &dy, &dy.col, &y, &y.col, "columns") && same(m, i, &total, &total.row, &y, &y.row, "rows") &&
           same(m, i, &total, &total.col, &y, &heads, "heads") && same(m, i, &own, &own.col, &y, &heads, "heads") &&
           emit(m, i, r, OPND(SINK_W, dsink), &y.row, &y, extent_new(0, 1), heads);
}

static bool whole_rope(struct machine *m, uint32_t i, const struct value *rope)
{
    return extent_whole(&rope->col, m->c->nodes->at[rope->node].cols) ||
           conserve_fail(m, i, "its rotary part has columns %s of %lld", extent_text(m->c->arena, &rope->col),
                         (long long)m->c->nodes->at[rope->node].cols);
}

static bool keys(struct machine *m, uint32_t i, struct recipe *r, int64_t head)
{
    struct value kv, rope;
    struct extent heads;
    if (!read_into(m, i, OPND(MLA_KEYS, kv), r, &kv) || !read_into(m, i, OPND(MLA_KEYS, rope), r, &rope))
        return false;
    int64_t n = prove_attr(m->program, i, ATTR(MLA_KEYS, heads))->u.i;
    int64_t u = prove_operand(m->program, i, OPND(MLA_KEYS, v))->cols / n;
    return heads_of(m, i, &kv, head - rope.col.len + u, &heads) && whole_rope(m, i, &rope) &&
           same(m, i, &kv, &kv.row, &rope, &rope.row, "rows") &&
           emit(m, i, r, OPND(MLA_KEYS, k), NULL, &kv, kv.row, extent_scaled(&heads, head, 1)) &&
           emit(m, i, r, OPND(MLA_KEYS, v), NULL, &kv, kv.row, extent_scaled(&heads, u, 1));
}

static bool keys_input(struct machine *m, uint32_t i, struct recipe *r, int64_t head)
{
    struct value dk, dv;
    struct extent heads, value_heads;
    if (!read_into(m, i, OPND(MLA_KEYS_I, dk), r, &dk) || !read_into(m, i, OPND(MLA_KEYS_I, dv), r, &dv))
        return false;
    int64_t rope = prove_operand(m->program, i, OPND(MLA_KEYS_I, drope))->cols;
    int64_t u = m->c->nodes->at[dk.node].cols ? m->c->nodes->at[dv.node].cols * head / m->c->nodes->at[dk.node].cols
                                              : 0;
    return heads_of(m, i, &dk, head, &heads) && heads_of(m, i, &dv, u, &value_heads) &&
           same(m, i, &dk, &dk.row, &dv, &dv.row, "rows") && same(m, i, &dk, &heads, &dv, &value_heads, "heads") &&
           emit(m, i, r, OPND(MLA_KEYS_I, dkv), NULL, &dk, dk.row, extent_scaled(&heads, head - rope + u, 1)) &&
           emit(m, i, r, OPND(MLA_KEYS_I, drope), &heads, &dk, dk.row, extent_new(0, rope));
}

#define RULE_OF_HEADS(name, rule)                                                                                      \
    bool rule_##name(struct machine *m, uint32_t i)                                                                    \
    {                                                                                                                  \
        struct recipe r = {.op = OP_##name};                                                                           \
        conserve_attrs(m, i, &r);                                                                                      \
        r.attr[ATTR(name, heads)] = 0; /* of this rank: they follow from its columns */                                \
        return rule(m, i, &r, prove_attr(m->program, i, ATTR(name, head))->u.i);                                       \
    }
RULE_OF_HEADS(HEADNORM, head_norm)
RULE_OF_HEADS(HEADNORM_I, head_norm_input)
RULE_OF_HEADS(HEADNORM_W, head_norm_gain)
RULE_OF_HEADS(SINK, sink)
RULE_OF_HEADS(SINK_W, sink_gradient)
RULE_OF_HEADS(MLA_KEYS, keys)
RULE_OF_HEADS(MLA_KEYS_I, keys_input)
