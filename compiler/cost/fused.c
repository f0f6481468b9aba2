/* Bytes that instructions do not move on a GPU, because one call runs them together with their neighbours
 * (kernels/cuda/fused.h): a norm finds the sum that was just made in registers, its weight gradients find what its
 * input gradient read, and so on.
 *
 * This depends on the profile: other stacks' constants were fitted to published runs with every instruction priced
 * by itself. */

#include "compiler/cost/cost_private.h"

static const struct operand *at(const struct program *p, const struct insn *x, size_t i)
{
    return &p->operands[x->operand + i];
}

static double bytes_of(const struct operand *o)
{
    return o->buffer == NONE ? 0 : (double)o->rows * o->cols * isa_dtype_bytes((enum dtype)o->dtype);
}

static bool same(const struct operand *a, const struct operand *b)
{
    return a->buffer == b->buffer && a->offset == b->offset && a->slot == b->slot && a->rows == b->rows &&
           a->cols == b->cols;
}

/* The n-th instruction before x, if nothing is in between and x waits for nothing; else NULL. */
static const struct insn *before(const struct program *p, const struct insn *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, x--)
        if (x == p->insns || x->nwaits || x[-1].queue != x->queue)
            return NULL;
    return x;
}

static bool is(const struct insn *x, enum op op)
{
    return x && x->op == op;
}

bool cost_fuses(const struct cost *c)
{
    return c->type->gpu.sm && c->profile->joins > 0.5;
}

double cost_fused_bytes(const struct program *p, const struct insn *x)
{
    const struct insn *one = before(p, x, 1), *two = before(p, x, 2);
    if ((is(x, OP_RMSNORM) || is(x, OP_LAYERNORM)) && is(one, OP_ADD) &&
        same(at(p, x, OPND(RMSNORM, x)), at(p, one, OPND(ADD, y))))
        return bytes_of(at(p, x, OPND(RMSNORM, x)));
    if (is(x, OP_RMSNORM_W) && is(one, OP_RMSNORM_I))
        return bytes_of(at(p, x, OPND(RMSNORM_W, dy))) + bytes_of(at(p, x, OPND(RMSNORM_W, x)));
    if (is(x, OP_LAYERNORM_W) && is(one, OP_LAYERNORM_I))
        return bytes_of(at(p, x, OPND(LAYERNORM_W, dy))) + bytes_of(at(p, x, OPND(LAYERNORM_W, x)));
    if (is(x, OP_BIAS_W) && (is(two, OP_LAYERNORM_I) || is(two, OP_RMSNORM_I)) &&
        same(at(p, x, OPND(BIAS_W, dy)), at(p, two, OPND(RMSNORM_I, dx))))
        return bytes_of(at(p, x, OPND(BIAS_W, dy)));
    if (is(x, OP_BIAS_W) && is(one, OP_MATMUL_TN) && same(at(p, x, OPND(BIAS_W, dy)), at(p, one, OPND(MATMUL_TN, a))))
        return bytes_of(at(p, x, OPND(BIAS_W, dy)));
    if (is(x, OP_XENT_SUM) && is(one, OP_XENT_MAX))
        return bytes_of(at(p, x, OPND(XENT_SUM, logits)));
    if (is(x, OP_XENT_I) && is(one, OP_XENT_LOSS) && is(two, OP_XENT_SUM))
        return bytes_of(at(p, x, OPND(XENT_I, logits)));
    if (is(x, OP_GELU) && is(one, OP_MATMUL_NT) && same(at(p, x, OPND(GELU, x)), at(p, one, OPND(MATMUL_NT, c))))
        return bytes_of(at(p, x, OPND(GELU, x)));
    const struct insn *made = is(one, OP_MATMUL_TN) ? two : one;
    if (is(x, OP_GELU_I) && is(made, OP_MATMUL_NN) && same(at(p, x, OPND(GELU_I, dy)), at(p, made, OPND(MATMUL_NN, c))))
        return bytes_of(at(p, x, OPND(GELU_I, dy))) + bytes_of(at(p, x, OPND(GELU_I, dx)));
    return 0;
}
