/* Loss scaling: gradients begin with the scale, and the clipping factor takes it out again.  Experts and a prediction module
 * are further places where gradients begin. */

#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <string.h>

static const char fp16_job[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm\n    embed tokens\n"
    "    layer {\n        attn gqa(heads=4, kv=2)\n        moe swiglu(24) {\n            experts 8\n            active 2\n"
    "            balance 0.01\n        }\n    }\n    predict 1 ahead\n    head untied\n}\n"
    "train {\n    sequence 16\n    batch 16 sequences\n    precision fp16(window=3)\n    optimizer adamw(lr=1e-3)\n}\n";

static bool accepted(struct arena *a, const struct plan *p)
{
    struct arena_mark mark = arena_mark(a);
    bool fine = verify_plan(a, p, false)->nviolations == 0;
    arena_reset(a, mark);
    return fine;
}

static void without_factor(struct program *q, uint32_t i)
{
    const struct insn *x = &q->insns[i];
    q->operands[x->operand + (x->op == OP_XENT_I ? OPND(XENT_I, by) : OPND(ROUTE_I, by))].buffer = NONE;
}

static void by_another_word(struct program *q, uint32_t i)
{
    const struct insn *x = &q->insns[i];
    q->operands[x->operand + (x->op == OP_XENT_I ? OPND(XENT_I, by) : OPND(ROUTE_I, by))].offset += 8;
}

/* the scale is not taken out: CLIP has operands and attribute of the same order */
static void plain_clip(struct program *q, uint32_t i)
{
    struct insn *x = &q->insns[i];
    struct operand *o = &q->operands[x->operand];
    x->op = OP_CLIP;
    o[OPND(CLIP, sum)].mark = MARK_READ;
    o[OPND(CLIP, need)] = o[OPND(CLIP_SCALED, need)];
}

static void another_begin(struct program *q, uint32_t i)
{
    q->attrs[q->insns[i].attr + ATTR(CLIP_SCALED, initial)].u.f *= 2;
}

static void another_window(struct program *q, uint32_t i)
{
    q->attrs[q->insns[i].attr + ATTR(CLIP_SCALED, window)].u.i += 1;
}

static void another_patience(struct program *q, uint32_t i)
{
    q->attrs[q->insns[i].attr + ATTR(CLIP_SCALED, hysteresis)].u.i += 1;
}

static void another_limit(struct program *q, uint32_t i)
{
    q->attrs[q->insns[i].attr + ATTR(CLIP_SCALED, limit)].u.f *= 2;
}

static void in_bf16(struct program *q, uint32_t i)
{
    const struct insn *x = &q->insns[i];
    for (uint32_t k = 0; k < isa_info(x->op)->noperands; k++)
        if (q->operands[x->operand + k].dtype == DTYPE_F16)
            q->operands[x->operand + k].dtype = DTYPE_BF16;
}

/* the fault at every instruction of the kind: how many there were; all must be found */
static uint32_t check_fault(struct arena *a, const struct plan *p, enum op op, void (*fault)(struct program *q, uint32_t i))
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < p->nroles; r++)
        for (uint32_t i = 0; i < p->train[r]->ninsns; i++) {
            struct program *q = p->train[r];
            if (q->insns[i].op != op)
                continue;
            const struct insn keep = q->insns[i];
            struct operand operand[ISA_MAX_OPERANDS];
            struct attr attr[ISA_MAX_ATTRS];
            const struct isa_info *info = isa_info(op);
            memcpy(operand, q->operands + keep.operand, info->noperands * sizeof *operand);
            memcpy(attr, q->attrs + keep.attr, info->nattrs * sizeof *attr);
            if (op == OP_ROUTE_I && operand[OPND(ROUTE_I, by)].buffer == NONE)
                continue;
            fault(q, i);
            CU_ASSERT(!accepted(a, p));
            q->insns[i] = keep;
            memcpy(q->operands + keep.operand, operand, info->noperands * sizeof *operand);
            memcpy(q->attrs + keep.attr, attr, info->nattrs * sizeof *attr);
            n++;
        }
    return n;
}

static void test_scale(void)
{
    static const char *const decisions[] = {"tp=1 pp=1 dp=2 ep=2 zero=1 microbatch=4", "tp=2 sp=1 pp=2 dp=2 zero=0 microbatch=4"};
    for (size_t k = 0; k < sizeof decisions / sizeof *decisions; k++) {
        struct arena *a = arena_new();
        struct job *job = text_job(a, fp16_job);
        struct topo *topo = random_host(a, 8);
        struct decision d = text_decision(a, job, topo, decisions[k]);
        const char *why = "";
        struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        CU_ASSERT(accepted(a, p));
        CU_ASSERT(check_fault(a, p, OP_XENT_I, without_factor) >= 2); /* the head's and the module's */
        CU_ASSERT(check_fault(a, p, OP_XENT_I, by_another_word) >= 2);
        CU_ASSERT(check_fault(a, p, OP_XENT_I, in_bf16) >= 2);
        CU_ASSERT(check_fault(a, p, OP_ROUTE_I, without_factor) >= 2);
        CU_ASSERT(check_fault(a, p, OP_ROUTE_I, by_another_word) >= 2);
        CU_ASSERT_EQUAL(check_fault(a, p, OP_CLIP_SCALED, plain_clip), p->nroles);
        CU_ASSERT_EQUAL(check_fault(a, p, OP_CLIP_SCALED, another_begin), p->nroles);
        CU_ASSERT_EQUAL(check_fault(a, p, OP_CLIP_SCALED, another_window), p->nroles);
        CU_ASSERT_EQUAL(check_fault(a, p, OP_CLIP_SCALED, another_patience), p->nroles);
        CU_ASSERT_EQUAL(check_fault(a, p, OP_CLIP_SCALED, another_limit), p->nroles);
        CU_ASSERT(accepted(a, p));
        plan_close(p);
        arena_free(a);
    }
}

void suite_loss_scale(void);
void suite_loss_scale(void)
{
    CU_pSuite s = CU_add_suite("loss_scale", NULL, NULL);
    CU_add_test(s, "a loss scale that is not applied once and taken out once is found", test_scale);
}
