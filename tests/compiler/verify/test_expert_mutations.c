/* Every attribute and operand of experts' instructions, and the exchanges between them, changed one at a
 * time: the verifier must refuse each plan. */

#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <string.h>

#define JOB(precision)                                                                                                  \
    "llmc 1\nmodel m {\n    vocab 64\n    width 32\n    norm rmsnorm\n    embed tokens\n    repeat 2 {\n        layer {\n" \
    "            attn gqa(heads=4, kv=2, rope=10_000)\n            moe swiglu(24) {\n                experts 8\n"         \
    "                active 2\n                shared 1\n                balance 0.01\n"                                \
    "                router sigmoid(groups=4, pick=2, bias=yes, scale=2.5, rate=0.01)\n            }\n        }\n    }\n"  \
    "    head untied\n}\ntrain {\n    sequence 16\n    batch 4 sequences\n    precision " precision                       \
    "\n    optimizer adamw(lr=1e-3)\n    expert_room 1\n}\n"
static const char job_text[] = JOB("fp32"), eight_text[] = JOB("fp8(dispatch=fp8)"), kept_text[] = JOB("fp8(activations=fp8)");

static struct plan *make_plan(struct arena *a, const char *text, const char *decision, uint32_t ep, uint32_t nodes)
{
    const char *why = "";
    struct job *job = text_job(a, text);
    struct topo *topo = random_host(a, 8);
    struct decision d = text_decision(a, job, topo, decision);
    d.ep = ep;
    d.ep_nodes = nodes;
    struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

static bool of_experts(enum op op)
{
    return (op >= OP_ROUTE && op <= OP_GROUPED_TN) || op == OP_ALL_TO_ALL || op == OP_ARRANGE_ONCE || op == OP_WEIGH_I ||
           op == OP_QUANTIZE || op == OP_DEQUANTIZE;
}

struct count {
    uint32_t tried, survived;
};

static void expect_refused(struct plan *p, uint32_t insn, const char *what, const char *name, struct count *n)
{
    struct arena *a = arena_new();
    const struct program *q = p->train[0];
    struct error error;
    n->tried++;
    if (program_check(q, &error) == STATUS_OK && verify_plan(a, p, false)->nviolations == 0) {
        n->survived++;
        printf("\n    %s of ", what);
        program_print_insn(q, insn, stdout);
        printf(": %s", name);
    }
    arena_free(a);
}

static void change_attributes(struct plan *p, uint32_t insn, struct count *n)
{
    struct program *q = p->train[0];
    const struct isa_info *info = isa_info(q->insns[insn].op);
    for (uint32_t k = 0; k < info->nattrs; k++) {
        struct attr *at = &q->attrs[q->insns[insn].attr + k], keep = *at;
        if (info->attr[k].kind == ATTR_GROUP || info->attr[k].kind == ATTR_PEER)
            continue;
        if (q->insns[insn].op == OP_LOAD && k == ATTR(LOAD, sequence) &&
            q->operands[q->insns[insn].operand].rows == 1)
            continue; /* one sequence is one, however long */
        if (info->attr[k].kind == ATTR_REAL)
            at->u.f += 0.5;
        else
            at->u.i = at->u.i == 1 ? 0 : at->u.i + 1;
        expect_refused(p, insn, "an attribute", info->attr[k].name, n);
        *at = keep;
    }
}

static bool same_place(const struct operand *x, const struct operand *y)
{
    return x->buffer == y->buffer && x->offset == y->offset;
}

/* the same operand of the nearest instruction of that row before it, of equal shape, which is not the same
 * place */
static const struct operand *another(const struct program *q, uint32_t insn, uint32_t k)
{
    const struct operand *o = &q->operands[q->insns[insn].operand + k];
    for (uint32_t j = insn; j-- > 0;) {
        const struct operand *x = &q->operands[q->insns[j].operand + k];
        if (q->insns[j].op == q->insns[insn].op && x->buffer != NONE && x->rows == o->rows &&
            x->cols == o->cols && x->dtype == o->dtype && x->ld == o->ld && !same_place(x, o))
            return x;
    }
    return NULL;
}

static void change_operands(struct plan *p, uint32_t insn, struct count *n)
{
    struct program *q = p->train[0];
    const struct isa_info *info = isa_info(q->insns[insn].op);
    for (uint32_t k = 0; k < info->noperands; k++) {
        struct operand *o = &q->operands[q->insns[insn].operand + k], keep = *o;
        const struct operand *x = o->buffer == NONE ? NULL : another(q, insn, k);
        if (x && q->buffers[x->buffer].kind != BUFFER_METRICS) {
            *o = *x;
            o->mark = keep.mark;
            expect_refused(p, insn, "an operand", info->operand[k].name, n);
            *o = keep;
        }
        if (keep.buffer != NONE && info->operand[k].optional) {
            o->buffer = NONE;
            expect_refused(p, insn, "an absent operand", info->operand[k].name, n);
            *o = keep;
        }
    }
}

static void change_families(struct plan *p, struct count *n)
{
    struct program *q = p->train[0];
    for (uint32_t i = 0; i < q->ntensors; i++) {
        struct tensor *t = &q->tensors[i], keep = *t;
        if (!t->family)
            continue;
        t->member_slot = NONE;
        t->member_stride = 0;
        expect_refused(p, 0, "members", t->name, n);
        *t = keep;
        t->member += 1;
        expect_refused(p, 0, "the first member", t->name, n);
        *t = keep;
    }
}

static void test_mutations(void)
{
    static const struct {
        const char *job, *decision;
        uint32_t ep, nodes;
    } cases[] = {{job_text, "dp=2 microbatch=1", 2, 1},
                 {job_text, "dp=4 microbatch=1", 4, 2},
                 {eight_text, "dp=4 microbatch=1", 4, 2},
                 {job_text, "tp=2 sp=1 dp=2 zero=1 microbatch=1", 4, 1},
                 {kept_text, "dp=2 microbatch=1", 2, 1}};
    for (size_t c = 0; c < (test_whole() ? sizeof cases / sizeof *cases : 3); c++) {
        struct arena *a = arena_new();
        struct plan *p = make_plan(a, cases[c].job, cases[c].decision, cases[c].ep, cases[c].nodes);
        struct count n = {0};
        const struct verdict *valid = verify_plan(a, p, true);
        if (valid->nviolations)
            printf("\n    %s: %s", cases[c].decision, valid->violations[0].message);
        CU_ASSERT_EQUAL_FATAL(valid->nviolations, 0);
        for (uint32_t i = 0; i < p->train[0]->ninsns; i++) {
            if (!of_experts(p->train[0]->insns[i].op))
                continue;
            change_attributes(p, i, &n);
            change_operands(p, i, &n);
        }
        change_families(p, &n);
        CU_ASSERT(n.tried > 200);
        CU_ASSERT_EQUAL(n.survived, 0);
        plan_close(p);
        arena_free(a);
    }
}

void suite_expert_mutations(void);
void suite_expert_mutations(void)
{
    CU_pSuite s = CU_add_suite("expert_mutations", NULL, NULL);
    CU_add_test(s, "every change of experts' instructions is refused", test_mutations);
}
