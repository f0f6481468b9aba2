/* Property 7, conservation: what programs carry for the runtime beside their instructions.
 *
 *   job       learning rates, bias corrections, data order and the length of a run come from the header
 *   tables    buckets and tensors say what is filled in, loaded and saved; both programs of a rank must say
 * the same, or evaluation would find other weights than its proof assumes counts    a bucket's count slot
 * says which copy is saved: the one that counts in the gradient norm, which conserve.c proves to count each
 * element once
 *
 * One pass over the tables; counts compare every optimizer instruction with the SQNORMs of its gradient. */

#include "compiler/verify/prove.h"

#include <string.h>

static void check_job(struct arena *a, const struct plan *p, const struct job_info *j, struct site at,
                      struct verdict *v)
{
    const struct train *t = &p->job->train;
    double tokens = (double)t->sequence * (double)t->batch;
    uint64_t steps = t->total > 0 ? (uint64_t)(t->total / tokens) : 0;
    bool data = j->sequence == t->sequence && j->batch == t->batch && j->vocab == p->job->model.vocab &&
                j->seed == t->seed && j->steps_total == steps && j->tokens_per_step == tokens;
    bool rates = j->lr_kind == (uint32_t)t->lr_kind && j->lr == t->lr && j->lr_min == t->lr_min &&
                 j->lr_warmup == t->lr_warmup && j->lr_decay == t->lr_decay && j->lr_stable == t->lr_stable;
    if (!data || !rates || j->optimizer != (uint32_t)t->optimizer || j->beta1 != t->beta1 || j->beta2 != t->beta2)
        prove_report(a, p, v, at, "the job in its header is not the model file's");
}

static bool same_bucket(const struct bucket *x, const struct bucket *y)
{
    return !strcmp(x->name, y->name) && x->elements == y->elements && x->tensor == y->tensor &&
           x->ntensors == y->ntensors && x->decay == y->decay; /* evaluation saves nothing */
}

static bool same_tensor(const struct tensor *x, const struct tensor *y)
{
    bool family = x->family == y->family && x->member == y->member && x->boxes == y->boxes &&
                  x->member_slot == y->member_slot && x->member_stride == y->member_stride;
    return family && !strcmp(x->name, y->name) && x->ndim == y->ndim && x->shape[0] == y->shape[0] &&
           x->shape[1] == y->shape[1] && x->row == y->row && x->col == y->col && x->rows == y->rows &&
           x->cols == y->cols && x->row_slot == y->row_slot && x->col_slot == y->col_slot &&
           x->row_stride == y->row_stride && x->col_stride == y->col_stride && x->transposed == y->transposed &&
           x->at == y->at && x->init == y->init && x->std == y->std;
}

static void check_tables(struct arena *a, const struct plan *p, uint32_t role, struct verdict *v)
{
    const struct program *t = prove_program(p, role, PROGRAM_TRAIN), *e = prove_program(p, role, PROGRAM_EVAL);
    struct site at = {7, role, NONE, true, NONE};
    if (!e)
        return;
    bool same = t->nbuckets == e->nbuckets && t->ntensors == e->ntensors;
    for (uint32_t i = 0; same && i < t->nbuckets; i++)
        if (!same_bucket(&t->buckets[i], &e->buckets[i])) {
            prove_report(a, p, v, at, "bucket %s is not the training program's", e->buckets[i].name);
            return;
        }
    for (uint32_t i = 0; same && i < t->ntensors; i++)
        if (!same_tensor(&t->tensors[i], &e->tensors[i])) {
            prove_report(a, p, v, at, "tensor %s is not the training program's", e->tensors[i].name);
            return;
        }
    if (!same)
        prove_report(a, p, v, at, "its tables of weights are not the training program's");
}

/* Does the copy that is saved count in the norm, and no other? */
static bool same_count(const struct program *q, const struct bucket *b, uint32_t sqnorm)
{
    const struct attr *count = prove_attr(q, sqnorm, ATTR(SQNORM, count));
    bool slot = count->slot != NONE && count->stride;
    if (b->count_slot == NONE)
        return count->u.i == 1; /* and 0 where a slot says the rest */
    const struct slot *s = &q->slots[b->count_slot];
    if (!slot) /* never counts: neither is it saved, because first(pp) is 0 behind the first stage */
        return count->u.i == 0 && s->arg & AXIS_BIT(AXIS_PP) && q->role > 0;
    return q->slots[count->slot].arg == s->arg; /* FIRST both, by conserve_count() and the loader */
}

/* A correction bias is whole on every rank of its stage and has no norm: the first rank of the stage saves it.  The
 * upper half of the roles of DualPipe has a second copy of every stage, which is not saved: first(pp) is 0 there. */
static void check_moved(struct arena *a, const struct plan *p, const struct program *q, struct site at,
                        struct verdict *v)
{
    uint32_t bucket = q->buffers[prove_operand(q, at.insn, OPND(BIAS_MOVE, bias))->buffer].bucket, want = 0;
    for (uint32_t digit = 0; digit < p->mesh.ndigits; digit++)
        if (p->mesh.size[digit] > 1 && p->mesh.home[digit] != AXIS_PP)
            want |= AXIS_BIT(digit);
    uint32_t slot = bucket == NONE ? NONE : q->buckets[bucket].count_slot;
    uint32_t have = slot == NONE ? 0 : prove_mask(&p->mesh, q->slots[slot].arg);
    bool mirrored = p->decision.schedule == SCHED_DUALPIPE && q->role >= p->nroles / 2;
    if (bucket == NONE || (mirrored ? !(have & AXIS_BIT(AXIS_PP)) : have != want))
        prove_report(a, p, v, at, "the bias that it moves is not saved by the first rank of its stage alone");
}

static uint32_t count_op(const struct program *p, enum op op)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->ninsns; i++)
        n += p->insns[i].op == op;
    return n;
}

static void check_counts(struct arena *a, const struct plan *p, uint32_t role, struct verdict *v)
{
    const struct program *q = prove_program(p, role, PROGRAM_TRAIN);
    struct arena *scratch = arena_new();
    uint32_t nnorms = 0, *norm = ARENA_ARRAY(scratch, uint32_t, count_op(q, OP_SQNORM) + 1u);
    for (uint32_t i = 0; i < q->ninsns; i++)
        if (q->insns[i].op == OP_SQNORM)
            norm[nnorms++] = i;
    for (uint32_t i = 0; i < q->ninsns; i++) {
        enum op op = q->insns[i].op;
        if (op == OP_BIAS_MOVE)
            check_moved(a, p, q, (struct site){7, role, NONE, false, i}, v);
        if (op != OP_ADAMW && op != OP_SGD)
            continue;
        const struct operand *g = prove_operand(q, i, op == OP_ADAMW ? OPND(ADAMW, g) : OPND(SGD, g));
        const struct operand *copy = prove_operand(q, i, op == OP_ADAMW ? OPND(ADAMW, copy) : OPND(SGD, copy));
        uint32_t bucket = q->buffers[prove_operand(q, i, OPND(ADAMW, p))->buffer].bucket;
        if (bucket == NONE && copy->buffer != NONE) /* the master copy is fetched for the update */
            bucket = q->buffers[copy->buffer].bucket;
        struct site at = {7, role, NONE, false, i};
        bool counted = false, same = true;
        for (uint32_t n = 0; n < nnorms && bucket != NONE && same; n++) {
            uint32_t j = norm[n];
            if (j > i || prove_operand(q, j, OPND(SQNORM, g))->buffer != g->buffer)
                continue;
            counted = true;
            same = same_count(q, &q->buckets[bucket], j);
            if (!same)
                prove_report(a, p, v, at, "bucket %s is not saved where %s counts it", q->buckets[bucket].name,
                             prove_insn_text(a, q, j));
        }
        if (bucket == NONE || !counted)
            prove_report(a, p, v, at, "no norm says on which ranks what it updates is saved");
    }
    arena_free(scratch);
}

void verify_job_tables(struct arena *a, const struct plan *p, struct verdict *v)
{
    for (uint32_t role = 0; role < p->nroles; role++) {
        for (int kind = 0; kind < NPROGRAM_KINDS; kind++) {
            const struct program *q = prove_program(p, role, kind);
            struct site at = {7, role, NONE, kind == PROGRAM_EVAL, NONE};
            if (q)
                check_job(a, p, &q->job, at, v);
        }
        check_tables(a, p, role, v);
        check_counts(a, p, role, v);
    }
}
