/* Property 7: matrix products and bias gradients, the only instructions whose operands are several matrices
 * side by side (q, k and v; gate and up).  Each pair of pieces is a product of the reference; input gradients
 * of several pieces add up.
 *
 * The index that is summed over must hold the same elements on both sides.  Where it is not whole, the result
 * is a partial sum over exactly these elements: feature columns of a row-parallel layer, tokens of a weight
 * gradient. */

#include "compiler/verify/conserve.h"

/* pieces must be complete values; side by side along rows (rows = true: each has all columns) or columns */
static bool read_side(struct machine *m, uint32_t i, size_t k, bool rows, struct parts *out)
{
    const struct isa_info *info = isa_info(m->program->insns[i].op);
    const struct operand *o = prove_operand(m->program, i, k);
    if (!conserve_read_parts(m, i, k, out))
        return false;
    for (uint32_t p = 0; p < out->n; p++) {
        const struct part *x = &out->at[p];
        if (!conserve_complete(&x->value))
            return conserve_fail(m, i, "it reads %s, which holds %s", info->operand[k].name,
                                 value_text(m->c->arena, m->c->nodes, &x->value));
        if (rows ? x->cols != o->cols : x->rows != o->rows)
            return conserve_fail(m, i, "its operand %s is made of pieces that are not %s: %s", info->operand[k].name,
                                 rows ? "one below the other" : "side by side",
                                 value_text(m->c->arena, m->c->nodes, &x->value));
    }
    return true;
}

/* weights as products have them: key heads that several ranks hold are each rank's own repetition */
static bool read_weights(struct machine *m, uint32_t i, size_t k, bool rows, struct parts *out)
{
    if (!read_side(m, i, k, rows, out))
        return false;
    for (uint32_t p = 0; p < out->n; p++)
        conserve_spread(m->c, &out->at[p].value);
    return true;
}

static bool same_index(struct machine *m, uint32_t i, const struct value *x, const struct extent *a,
                       const struct value *y, const struct extent *b)
{
    if (extent_same(a, b))
        return true;
    return conserve_fail_inputs(m, i, "it sums over elements %s of %s, but %s of %s%s%s", extent_text(m->c->arena, a),
                                nodes_name(m->c->nodes, x->node), extent_text(m->c->arena, b),
                                nodes_name(m->c->nodes, y->node), conserve_origin(m, x), conserve_origin(m, y));
}

static bool add_bias(struct machine *m, uint32_t i, const struct parts *biases, struct part *part)
{
    for (uint32_t p = 0; p < biases->n; p++) {
        const struct part *x = &biases->at[p];
        if (x->col != part->col)
            continue;
        if (!extent_same(&x->value.col, &part->value.col))
            break;
        if (part->value.nterms)
            return conserve_fail(m, i, "it adds %s to a partial sum: it would count on every rank",
                                 nodes_name(m->c->nodes, x->value.node));
        part->value.node = nodes_sum(m->c->nodes, part->value.node, x->value.node);
        return true;
    }
    return conserve_fail(m, i, "its bias does not have the columns of %s", nodes_name(m->c->nodes, part->value.node));
}

/* c = a b': columns of c are rows of b */
bool rule_MATMUL_NT(struct machine *m, uint32_t i)
{
    struct parts *b = &m->c->parts[1], *biases = &m->c->parts[2], *out = &m->c->parts[3];
    bool bias = prove_operand(m->program, i, OPND(MATMUL_NT, bias))->buffer != NONE;
    struct value a;
    if (!conserve_read(m, i, OPND(MATMUL_NT, a), &a) || !read_weights(m, i, OPND(MATMUL_NT, b), true, b) ||
        (bias && !read_weights(m, i, OPND(MATMUL_NT, bias), false, biases)))
        return false;
    out->n = b->n;
    for (uint32_t p = 0; p < b->n; p++) {
        const struct part *w = &b->at[p];
        struct recipe r = {.op = OP_MATMUL_NT, .output = OPND(MATMUL_NT, c)};
        r.input[OPND(MATMUL_NT, a)] = a.node;
        r.input[OPND(MATMUL_NT, b)] = w->value.node;
        conserve_attrs(m, i, &r);
        uint32_t node = conserve_find(m, i, &r);
        if (node == NONE || !same_index(m, i, &a, &a.col, &w->value, &w->value.col))
            return false;
        out->at[p] = (struct part){0, prove_operand(m->program, i, OPND(MATMUL_NT, c))->rows, w->row, w->rows,
                                   i, conserve_value(m->c, node, &a.col, a.row, w->value.row)};
        out->at[p].value.origin = a.origin;
        out->at[p].value.origin_role = a.origin_role;
        if (bias && !add_bias(m, i, biases, &out->at[p]))
            return false;
    }
    return conserve_emit(m, i, OPND(MATMUL_NT, c), out);
}

/* c = a b: column pieces of a meet row pieces of b, and their products add up */
bool rule_MATMUL_NN(struct machine *m, uint32_t i)
{
    struct parts *a = &m->c->parts[1], *b = &m->c->parts[2];
    if (!read_side(m, i, OPND(MATMUL_NN, a), false, a) || !read_weights(m, i, OPND(MATMUL_NN, b), true, b))
        return false;
    struct value sum = {.kind = VALUE_ZERO};
    for (uint32_t p = 0; p < a->n; p++) {
        const struct part *x = &a->at[p], *w = p < b->n ? &b->at[p] : NULL;
        if (!w || x->cols != w->rows) /* and those before it are equally many */
            return conserve_fail(m, i, "columns of %s meet no rows of one weight",
                                 nodes_name(m->c->nodes, x->value.node));
        struct recipe r = {.op = OP_MATMUL_NN, .output = OPND(MATMUL_NN, c)};
        r.input[OPND(MATMUL_NN, a)] = x->value.node;
        r.input[OPND(MATMUL_NN, b)] = w->value.node;
        conserve_attrs(m, i, &r);
        uint32_t node = conserve_find(m, i, &r);
        if (node == NONE || !same_index(m, i, &x->value, &x->value.col, &w->value, &w->value.row))
            return false;
        struct value v = conserve_value(m->c, node, &x->value.col, x->value.row, w->value.col), before = sum;
        v.origin = x->value.origin;
        v.origin_role = x->value.origin_role;
        const char *why = value_add(m->c->scratch, m->c->nodes, &before, &v, &sum);
        if (why)
            return conserve_fail_inputs(m, i, "%s", why);
    }
    return conserve_emit_one(m, i, OPND(MATMUL_NN, c), &sum);
}

/* c = a' b: column pieces of a become row pieces of c */
bool rule_MATMUL_TN(struct machine *m, uint32_t i)
{
    struct parts *a = &m->c->parts[1], *out = &m->c->parts[3];
    struct value b;
    if (!read_side(m, i, OPND(MATMUL_TN, a), false, a) || !conserve_read(m, i, OPND(MATMUL_TN, b), &b))
        return false;
    out->n = a->n;
    for (uint32_t p = 0; p < a->n; p++) {
        const struct part *x = &a->at[p];
        struct recipe r = {.op = OP_MATMUL_TN, .output = OPND(MATMUL_TN, c)};
        r.input[OPND(MATMUL_TN, a)] = x->value.node;
        r.input[OPND(MATMUL_TN, b)] = b.node;
        conserve_attrs(m, i, &r);
        uint32_t node = conserve_find(m, i, &r);
        if (node == NONE || !same_index(m, i, &x->value, &x->value.row, &b, &b.row))
            return false;
        out->at[p] = (struct part){x->col, x->cols,
                                   0,      prove_operand(m->program, i, OPND(MATMUL_TN, c))->cols,
                                   i,      conserve_value(m->c, node, &b.row, x->value.col, b.col)};
    }
    return conserve_emit(m, i, OPND(MATMUL_TN, c), out);
}

/* db = column sums of dy, piece by piece */
bool rule_BIAS_W(struct machine *m, uint32_t i)
{
    struct parts *dy = &m->c->parts[1], *out = &m->c->parts[3];
    if (!read_side(m, i, OPND(BIAS_W, dy), false, dy))
        return false;
    out->n = dy->n;
    for (uint32_t p = 0; p < dy->n; p++) {
        const struct part *x = &dy->at[p];
        struct recipe r = {.op = OP_BIAS_W, .output = OPND(BIAS_W, db)};
        r.input[OPND(BIAS_W, dy)] = x->value.node;
        uint32_t node = conserve_find(m, i, &r);
        if (node == NONE)
            return false;
        out->at[p] = (struct part){
            0, 1, x->col, x->cols, i, conserve_value(m->c, node, &x->value.row, extent_new(0, 1), x->value.col)};
    }
    return conserve_emit(m, i, OPND(BIAS_W, db), out);
}
