/* Property 7: rows in 8 bits.
 *
 * QUANTIZE gives a value of its own, the rounded rows, and so does DEQUANTIZE: where numbers are rounded is part of
 * what a plan computes.  Rows keep their places, and the columns of a value stay those of its numbers; but its words
 * hold whole rows alone. Which numbers share a scale depends on the columns that a rank has, as it does in products. */

#include "compiler/verify/conserve.h"

static bool check_words(struct machine *m, uint32_t i, size_t words, size_t numbers, const struct value *v)
{
    uint32_t have = prove_operand(m->program, i, words)->cols, cols = prove_operand(m->program, i, numbers)->cols;
    return (v->col.len == (int64_t)cols && have == isa_eight_words(cols) && !v->member.len) ||
           conserve_fail_inputs(m, i, "%u words are not the %u numbers of %s in 8 bits", have, cols,
                                value_text(m->c->arena, m->c->nodes, v));
}

bool rule_QUANTIZE(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_QUANTIZE};
    struct value v;
    if (!conserve_read(m, i, OPND(QUANTIZE, x), &v) || !check_words(m, i, OPND(QUANTIZE, y), OPND(QUANTIZE, x), &v))
        return false;
    r.input[OPND(QUANTIZE, x)] = v.node;
    v.node = conserve_find(m, i, &r);
    v.eight = true;
    return v.node != NONE && conserve_emit_one(m, i, OPND(QUANTIZE, y), &v);
}

bool rule_DEQUANTIZE(struct machine *m, uint32_t i)
{
    struct recipe r = {.op = OP_DEQUANTIZE};
    struct value v;
    if (!conserve_read(m, i, OPND(DEQUANTIZE, x), &v))
        return false;
    if (!v.eight)
        return conserve_fail_inputs(m, i, "it reads %s, which is not in 8 bits",
                                    value_text(m->c->arena, m->c->nodes, &v));
    if (!check_words(m, i, OPND(DEQUANTIZE, x), OPND(DEQUANTIZE, y), &v))
        return false;
    r.input[OPND(DEQUANTIZE, x)] = v.node;
    v.node = conserve_find(m, i, &r);
    v.eight = false;
    return v.node != NONE && conserve_emit_one(m, i, OPND(DEQUANTIZE, y), &v);
}
