/* Nanoseconds of one instruction of a program, by its unit: shapes come from its operands, group sizes from the
 * decision's mesh. The closed form uses the same kernel and transfer functions, so the two can be compared.
 *
 * Memory-bound instructions move every operand once, and twice where it is accumulated or updated; of a table only
 * the rows that are looked up count.  Every instruction takes at least 1 ns, so that time orders whatever order is
 * left open. */

#include "compiler/cost/cost_private.h"

#include <math.h>

static const struct operand *operand_at(const struct program *p, const struct insn *x, size_t i)
{
    return &p->operands[x->operand + i];
}

static double operand_bytes(const struct operand *o)
{
    return o->buffer == NONE ? 0 : (double)o->rows * o->cols * isa_dtype_bytes((enum dtype)o->dtype);
}

static bool writes(const struct program *p, const struct insn *x, const struct operand *where)
{
    for (size_t i = 0; i < isa_info(x->op)->noperands; i++) {
        const struct operand *o = operand_at(p, x, i);
        if (o->mark != MARK_READ && o->buffer == where->buffer && o->offset == where->offset)
            return true;
    }
    return false;
}

/* Has an earlier product already converted this one's input?  Products convert the operand that is not a weight to 8
 * bits, both row-wise and transposed: forward products their input, products for input gradients the output
 * gradient; products for weight gradients find both.  Projections of one input share one conversion, as long as
 * nothing else is written to that buffer. */
static bool finds_converted(const struct program *p, const struct insn *x)
{
    const struct operand *a = operand_at(p, x, OPND(MATMUL_NT, a));
    for (const struct insn *y = x; y > p->insns && x - y < 8;) {
        const struct operand *b = operand_at(p, --y, OPND(MATMUL_NT, a));
        if (writes(p, y, a))
            break;
        if (y->op == x->op && y->action == x->action && y->microbatch == x->microbatch && b->buffer == a->buffer &&
            b->offset == a->offset)
            return true;
    }
    return false;
}

static double quantize_insn_s(const struct cost *c, const struct program *p, const struct insn *x, double elements)
{
    return finds_converted(p, x) ? 0 : cost_quantize_s(c, elements);
}

static double matmul_insn_s(const struct cost *c, const struct program *p, const struct insn *x)
{
    const struct operand *out = operand_at(p, x, OPND(MATMUL_NT, c)), *in = operand_at(p, x, OPND(MATMUL_NT, a));
    bool reduces_rows = x->op == OP_MATMUL_TN; /* c[m, n] = a[k, m]' b[k, n] */
    uint64_t k = reduces_rows ? in->rows : in->cols;
    enum product product = reduces_rows ? PRODUCT_WEIGHT : PRODUCT_FORWARD; /* weight gradients are fp32 */
    if (p->attrs[x->attr + ATTR(MATMUL_NT, fp8)].u.i == 0)
        return cost_matmul_half_s(c, product, out->rows, out->cols, k, (enum dtype)in->dtype);
    double converts = reduces_rows ? 0 : quantize_insn_s(c, p, x, (double)in->rows * in->cols);
    return converts + cost_matmul_s(c, product, out->rows, out->cols, k, (enum dtype)in->dtype);
}

/* Rows per expert that its products process on average, not the capacity of its blocks: kernels go by the row
 * counts. */
static double expert_rows(const struct cost *c, uint64_t experts)
{
    const struct decision *d = c->decision;
    const struct model *m = &c->job->model;
    double tokens = (double)d->microbatch * (double)c->job->train.sequence / d->cp / (d->sp ? d->tp : 1);
    for (uint32_t i = 0; i < model_all_layers(m); i++) {
        const struct layer *l = model_layer(m, i);
        if (l->is_moe && l->moe.experts == experts * d->ep)
            return tokens * d->etp * l->moe.active / (double)experts * c->job->train.imbalance;
    }
    return tokens;
}

static double grouped_insn_s(const struct cost *c, const struct program *p, const struct insn *x)
{
    const struct operand *out = operand_at(p, x, OPND(GROUPED_NT, c)), *a = operand_at(p, x, OPND(GROUPED_NT, a)),
                         *b = operand_at(p, x, OPND(GROUPED_NT, b));
    uint64_t experts = (uint64_t)p->attrs[x->attr + ATTR(GROUPED_NT, experts)].u.i;
    bool forward = x->op == OP_GROUPED_NT, weight = x->op == OP_GROUPED_TN;
    enum product product = forward ? PRODUCT_FORWARD : weight ? PRODUCT_WEIGHT : PRODUCT_INPUT;
    double rows = fmin(expert_rows(c, experts), (double)a->rows / (double)experts);
    double converts = 0;
    if (p->attrs[x->attr + ATTR(GROUPED_NT, fp8)].u.i && !weight)
        converts = quantize_insn_s(c, p, x, rows * (double)experts * a->cols);
    return converts + cost_grouped_matmul_s(c, product, experts, rows, forward ? out->cols : a->cols,
                                            forward  ? a->cols
                                            : weight ? b->cols
                                                     : out->cols,
                                            (enum dtype)a->dtype);
}

static double attention_insn_s(const struct cost *c, const struct program *p, const struct insn *x)
{
    bool backward = x->op == OP_ATTENTION_I;
    const struct attr *at = &p->attrs[x->attr];
    double kv = (double)at[ATTR(ATTENTION, kv)].u.i;
    const struct operand *q = operand_at(p, x, backward ? OPND(ATTENTION_I, q) : OPND(ATTENTION, q));
    const struct operand *v = operand_at(p, x, backward ? OPND(ATTENTION_I, v) : OPND(ATTENTION, v));
    struct cost_attention a = {.tokens = q->rows,
                               .context = (double)at[ATTR(ATTENTION, sequence)].u.i,
                               .window = (double)at[ATTR(ATTENTION, window)].u.i,
                               .heads = (double)at[ATTR(ATTENTION, heads)].u.i,
                               .kv = kv,
                               .qk = (double)at[ATTR(ATTENTION, head)].u.i,
                               .v = v->cols / kv};
    return cost_attention_s(c, &a, (enum dtype)q->dtype, backward);
}

/* Seconds of attention to a part of the keys.  The kernels skip what the mask hides, so all ranks and steps take
 * equal shares: the keys of all ranks are the whole sequence, those of one rank are one step of a ring, at the
 * profile's ring speed, including the merge. */
static double attention_part_s(const struct cost *c, const struct program *p, const struct insn *x)
{
    bool backward = x->op == OP_ATTENTION_PART_I;
    const struct attr *at = &p->attrs[x->attr];
    const struct operand *q = operand_at(p, x, backward ? OPND(ATTENTION_PART_I, q) : OPND(ATTENTION_PART, q));
    double head = (double)at[ATTR(ATTENTION_PART, head)].u.i;
    double kv = (double)at[ATTR(ATTENTION_PART, kv)].u.i;
    double window = (double)at[ATTR(ATTENTION_PART, window)].u.i;
    double part = (double)at[ATTR(ATTENTION_PART, sequence)].u.i;
    double parts = (double)at[ATTR(ATTENTION_PART, kparts)].u.i;
    double sequence = (double)c->job->train.sequence;
    const struct operand *v = operand_at(p, x, backward ? OPND(ATTENTION_PART_I, v) : OPND(ATTENTION_PART, v));
    struct cost_attention a = {.tokens = q->rows,
                               .context = sequence,
                               .window = window,
                               .heads = q->cols / head,
                               .kv = kv,
                               .qk = head,
                               .v = v->cols / kv};
    double whole = cost_attention_s(c, &a, (enum dtype)q->dtype, backward);
    return part * parts < sequence ? whole * part * parts / sequence / c->profile->cp_attention : whole;
}

/* Bytes of those rows of blocks that the choices point at. */
static double chosen_bytes(const struct operand *rows, const struct operand *place)
{
    return (double)place->rows * place->cols * rows->cols * isa_dtype_bytes((enum dtype)rows->dtype);
}

static bool has_half(const struct program *p, const struct insn *x)
{
    for (size_t i = 0; i < isa_info(x->op)->noperands; i++)
        if (operand_at(p, x, i)->buffer != NONE && isa_dtype_bytes((enum dtype)operand_at(p, x, i)->dtype) == 2)
            return true;
    return false;
}

static double stream_insn_s(const struct cost *c, const struct program *p, const struct insn *x)
{
    const struct isa_info *info = isa_info(x->op);
    double bytes = 0;
    if (x->op == OP_ATTENTION_MERGE)
        return 0; /* included in attention_part_s() */
    size_t table = x->op == OP_EMBED ? OPND(EMBED, table) : x->op == OP_POSITION ? OPND(POSITION, table) : SIZE_MAX;
    for (size_t i = 0; i < info->noperands; i++) {
        const struct operand *o = operand_at(p, x, i);
        double own = operand_bytes(o);
        if (o->buffer != NONE && p->buffers[o->buffer].host)
            return own / cost_host_bytes_s(c);
        if (i == table)
            own = fmin(own, operand_bytes(operand_at(p, x, 0)));
        if (x->op == OP_DISPATCH && i == OPND(DISPATCH, y))
            own = fmin(own, chosen_bytes(o, operand_at(p, x, OPND(DISPATCH, place))));
        if (x->op == OP_COMBINE && i == OPND(COMBINE, x))
            own = fmin(own, chosen_bytes(o, operand_at(p, x, OPND(COMBINE, place))));
        if (x->op == OP_EMBED_W && i == OPND(EMBED_W, dtable) && o->mark == MARK_ADD)
            own = fmin(own, 2 * operand_bytes(operand_at(p, x, OPND(EMBED_W, dy))));
        bytes += own * (o->mark == MARK_ADD || o->mark == MARK_UPDATE ? 2 : 1);
    }
    bytes -= cost_fuses(c) ? cost_fused_bytes(p, x) : 0;
    return cost_stream_of_s(c, x->op, bytes, has_half(p, x));
}

static double collective_insn_s(const struct cost *c, const struct program *p, const struct insn *x)
{
    const struct isa_info *info = isa_info(x->op);
    double bytes = 0;
    for (size_t i = 0; i < info->noperands; i++)
        bytes = fmax(bytes, operand_bytes(operand_at(p, x, i)));
    for (size_t i = 0; i < info->nattrs; i++)
        if (info->attr[i].kind == ATTR_GROUP)
            return x->op == OP_SHIFT ? cost_shift_s(c, bytes, p->slots[p->attrs[x->attr + i].slot].arg)
                                     : cost_digits_s(c, x->op, bytes, p->slots[p->attrs[x->attr + i].slot].arg);
    return 0;
}

static int64_t unit_ns(const struct cost *c, const struct insn *x, bool first)
{
    if (x->op == OP_SEND || x->op == OP_RECV)
        return c->unit.c_ns;
    if (!first || x->queue != QUEUE_COMPUTE)
        return 0;
    bool half = x->action == 'I' || x->action == 'W';
    return x->action == 'F' ? c->unit.f_ns : x->action == 'B' ? c->unit.b_ns : half ? c->unit.b_ns / 2 : 0;
}

static bool in_8_bits(const struct program *p, const struct insn *x)
{
    if (isa_info(x->op)->unit != UNIT_MATMUL)
        return false;
    return p->attrs[x->attr + (isa_grouped(x->op) ? ATTR(GROUPED_NT, fp8) : ATTR(MATMUL_NT, fp8))].u.i != 0;
}

/* Instructions with the same operands take the same time, except where they are fused with neighbours; products in 8
 * bits have two times, with and without the conversion. */
int64_t cost_insn_once(const struct cost *c, const struct program *p, uint32_t i, bool first, int64_t *known)
{
    const struct insn *x = &p->insns[i];
    if (c->unit.on || (isa_info(x->op)->unit == UNIT_STREAM && cost_fuses(c)))
        return cost_insn_ns(c, p, i, first);
    int64_t *ns = &known[x->operand + (in_8_bits(p, x) && finds_converted(p, x))];
    if (!*ns)
        *ns = cost_insn_ns(c, p, i, first);
    return *ns;
}

int64_t cost_insn_ns(const struct cost *c, const struct program *p, uint32_t i, bool first)
{
    const struct insn *x = &p->insns[i];
    if (c->unit.on)
        return unit_ns(c, x, first);
    double seconds = 0;
    switch (isa_info(x->op)->unit) {
    case UNIT_MATMUL:
        seconds = isa_grouped(x->op) ? grouped_insn_s(c, p, x) : matmul_insn_s(c, p, x);
        break;
    case UNIT_ATTENTION:
        seconds = x->op == OP_ATTENTION_PART || x->op == OP_ATTENTION_PART_I ? attention_part_s(c, p, x)
                                                                             : attention_insn_s(c, p, x);
        break;
    case UNIT_STREAM:
        seconds = stream_insn_s(c, p, x);
        break;
    case UNIT_P2P:
        seconds = cost_transfer_s(c, operand_bytes(operand_at(p, x, 0)));
        break;
    case UNIT_COLLECTIVE:
        seconds = collective_insn_s(c, p, x);
        break;
    case UNIT_HOST:
        seconds = c->device.launch_s;
        break;
    }
    double ns = seconds * 1e9;
    return ns < 1 ? 1 : ns > 1e17 ? (int64_t)1e17 : (int64_t)llround(ns);
}
