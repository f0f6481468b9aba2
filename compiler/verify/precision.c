/* Property 7, conservation: the numbers have the formats that the job asks for.
 *
 * Values of conserve.c are those of real arithmetic, so a gradient that was accumulated in bf16, or a master
 * copy that was rounded on the way, would still be the right node there.  Here every operand's format is
 * compared with what the job says of its use: compute format for the model's values, `grads` for weight
 * gradients, `reduce` for those that were summed between ranks, and what it says for the optimizer's state.
 * A COPY may convert between those two formats of gradients, and round what was accumulated in fp32.
 * Transfers and collectives follow: what they read was written in its own format (store.c).  One pass over
 * the instructions, once for each list of operands. */

#include "compiler/verify/prove.h"

#include "runtime/program_share.h"

struct formats {
    enum dtype compute, gradients, reduce, moments, master; /* compute: also of the working copy */
};

enum dtype prove_format(enum dtype_name d)
{
    return d == DT_FP32 ? DTYPE_F32 : d == DT_FP16 ? DTYPE_F16 : DTYPE_BF16;
}

/* Under fp8 operands of products are rounded as they are read (an attribute, which belongs to the node), and so are
 * rows that are stored in 8 bits (QUANTIZE, a node). */
static struct formats job_formats(const struct train *t)
{
    return (struct formats){prove_format(t->precision), prove_format(t->grads), prove_format(t->reduce),
                            prove_format(t->moments), prove_format(t->master)};
}

/* format of an operand that the table calls so; NDTYPES = any, or not the job's to say */
static enum dtype wanted(const struct formats *f, enum isa_format format)
{
    switch (format) {
    case FORMAT_C:
    case FORMAT_G_COMPUTE:
        return f->compute;
    case FORMAT_G_GRADIENT:
        return f->gradients;
    case FORMAT_G_MASTER:
        return f->master;
    case FORMAT_G_MOMENT:
        return f->moments;
    case FORMAT_G:
    case FORMAT_F:
    case FORMAT_I:
    case FORMAT_D:
    case FORMAT_A:
        break;
    }
    return NDTYPES;
}

/* a complete gradient, which may have been summed between ranks: one that is read */
static bool takes_gradient(const struct isa_operand *o)
{
    return o->format == FORMAT_G_GRADIENT && o->mark == MARK_READ;
}

/* between the formats of gradients; of which values, and which way, conserve_formats.c says */
static bool converts_gradient(const struct formats *f, enum dtype from, enum dtype to)
{
    return (from == f->gradients && to == f->reduce) || (from == f->reduce && to == f->gradients);
}

/* choices' weights and their gradients, on their way: alone, a column each row; all k of a token between nodes */
static bool moves_weights(const struct plan *p, const struct program *q, uint32_t insn)
{
    enum op op = q->insns[insn].op;
    if (op == OP_DISPATCH && prove_operand(q, insn, OPND(DISPATCH, x))->buffer == NONE)
        return true;
    if (op == OP_COMBINE_W)
        return prove_operand(q, insn, OPND(COMBINE_W, dy))->buffer == NONE;
    if (op != OP_DISPATCH && op != OP_COMBINE)
        return false;
    const struct operand *x = prove_operand(q, insn, op == OP_DISPATCH ? OPND(DISPATCH, x) : OPND(COMBINE, x)),
                         *place = prove_operand(q, insn,
                                                op == OP_DISPATCH ? OPND(DISPATCH, place) : OPND(COMBINE, place));
    bool eight = op == OP_DISPATCH && p->job->train.fp8_sent;
    return x->cols == place->cols && x->cols != (eight ? isa_eight_words(p->job->model.width) : p->job->model.width);
}

/* what DISPATCH moves: weights, tokens' rows in 8 bits or in the compute format */
static enum dtype dispatched(const struct plan *p, const struct program *q, uint32_t insn, const struct formats *f)
{
    return moves_weights(p, q, insn) ? DTYPE_F32 : p->job->train.fp8_sent ? DTYPE_I32 : f->compute;
}

/* false: not all are right */
static bool check_insn(struct arena *a, const struct plan *p, const struct program *q, const struct formats *f,
                       struct site at, struct verdict *v)
{
    enum op op = q->insns[at.insn].op;
    const struct isa_info *info = isa_info(op);
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = prove_operand(q, at.insn, k);
        enum dtype want = wanted(f, info->operand[k].format);
        if (op == OP_FILL && o->buffer != NONE && q->buffers[o->buffer].kind == BUFFER_METRICS)
            want = q->buffers[o->buffer].dtype; /* zeros of another format could leave some as they were */
        if (op == OP_COPY)
            want = prove_operand(q, at.insn, OPND(COPY, x))->dtype;
        if (info->operand[k].format == FORMAT_C && moves_weights(p, q, at.insn))
            want = DTYPE_F32;
        if (op == OP_COPY && converts_gradient(f, want, (enum dtype)o->dtype))
            continue;
        if (takes_gradient(&info->operand[k]) && o->dtype == f->reduce)
            continue;
        if (op == OP_DISPATCH && info->operand[k].format == FORMAT_A)
            want = dispatched(p, q, at.insn, f);
        if (op == OP_MATMUL_NT && o->dtype == DTYPE_F32 && k == OPND(MATMUL_NT, c))
            continue; /* a router's logits keep the accumulator's format */
        if (op == OP_GROUPED_NT && o->dtype == DTYPE_F32 && o->cols == 1 && k == OPND(GROUPED_NT, c))
            continue; /* what biases add to the gradients of choices' weights */
        if (op == OP_COPY && want == DTYPE_F32 && o->dtype == f->compute)
            continue; /* what was accumulated in fp32, rounded once */
        if (op == OP_ADD && prove_operand(q, at.insn, OPND(ADD, y))->mark == MARK_ADD && o->dtype == DTYPE_F32)
            continue; /* a sum that is kept in fp32 */
        if (o->buffer == NONE || want == NDTYPES || o->dtype == want)
            continue;
        prove_report(a, p, v, at, "its operand %s is %s, expected %s", info->operand[k].name,
                     isa_dtype_name((enum dtype)o->dtype), isa_dtype_name(want));
        return false;
    }
    return true;
}

/* correction biases: the working copy is the only one */
static bool is_moved(const struct plan *p, uint32_t role, uint32_t bucket)
{
    const struct program *q = prove_program(p, role, PROGRAM_TRAIN);
    for (uint32_t i = q ? q->ninsns : 0; i-- > 0;)
        if (q->insns[i].op == OP_BIAS_MOVE &&
            q->buffers[prove_operand(q, i, OPND(BIAS_MOVE, bias))->buffer].bucket == bucket)
            return true;
    return false;
}

static void check_buffer(struct arena *a, const struct plan *p, const struct buffer *b, const struct formats *f,
                         struct site at, struct verdict *v)
{
    enum dtype want = NDTYPES;
    switch (b->kind) {
    case BUFFER_PARAM:
        want = b->dtype != f->compute && is_moved(p, at.role, b->bucket) ? DTYPE_F32 : f->compute;
        break;
    case BUFFER_MASTER:
        want = f->master;
        break;
    case BUFFER_MOMENT1:
    case BUFFER_MOMENT2:
        want = f->moments;
        break;
    case BUFFER_STEP:
    case BUFFER_BLOCK:
    case BUFFER_METRICS:
    case BUFFER_WORKSPACE:
    case BUFFER_SCALE:
    case NBUFFER_KINDS:
        break;
    }
    if (want != NDTYPES && b->dtype != want)
        prove_report(a, p, v, at, "buffer %s is %s, the job asks for %s", b->name, isa_dtype_name(b->dtype),
                     isa_dtype_name(want));
}

/* the same lists of operands come again for every microbatch (program_share.h) */
static void check_program(struct arena *a, const struct plan *p, const struct program *q, const struct formats *f,
                          struct site at, struct verdict *v)
{
    struct arena *scratch = arena_new();
    uint64_t *seen = ARENA_ARRAY(scratch, uint64_t, q->noperands + 1u);
    for (uint32_t i = 0; i < q->nbuffers; i++)
        check_buffer(a, p, &q->buffers[i], f, at, v);
    for (at.insn = 0; at.insn < q->ninsns && prove_count(v, 7) < 20; at.insn++)
        if (!program_seen(seen, &q->insns[at.insn]) && !check_insn(a, p, q, f, at, v))
            seen[q->insns[at.insn].operand] = 0; /* every one is reported */
    arena_free(scratch);
}

void verify_precision(struct arena *a, const struct plan *p, struct verdict *v)
{
    struct formats f = job_formats(&p->job->train);
    for (uint32_t role = 0; role < p->nroles; role++)
        for (int kind = 0; kind < NPROGRAM_KINDS; kind++) {
            const struct program *q = prove_program(p, role, kind);
            if (q)
                check_program(a, p, q, &f, (struct site){7, role, NONE, kind == PROGRAM_EVAL, NONE}, v);
        }
}
