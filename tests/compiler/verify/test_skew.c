/* Seams: plans whose steps are checked during the next one are accepted, and what would make the replay another step than the
 * text is refused by name. */

#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char job_text[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm\n    embed tokens\n    repeat 8 {\n"
    "        layer {\n            attn gqa(heads=4, kv=2, rope=10_000)\n            ffn swiglu(48)\n        }\n    }\n"
    "    head %s\n}\ntrain {\n    sequence 16\n    batch 16 sequences\n    precision %s\n    optimizer adamw(lr=1e-3)\n"
    "    clip 1.0\n}\nplan {\n    post_validation %s\n}\n";

static struct plan *make(struct arena *a, const char *head, const char *precision, const char *post, const char *decision)
{
    const char *why = "";
    struct job *job = text_job(a, arena_printf(a, job_text, head, precision, post));
    struct topo *topo = random_host(a, 16);
    struct decision d = text_decision(a, job, topo, decision);
    CU_ASSERT(decision_emittable(a, job, &d, &why));
    struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

/* of each instruction its position against those that its phase begins and ends at, on its queue */
static void check_positions(struct arena *a, const struct program *p, const uint32_t begin[NPHASES + 1])
{
    uint32_t at[NPHASES + 1][NQUEUES], length[NQUEUES], *position = ARENA_ARRAY(a, uint32_t, p->ninsns + 1u), wrong = 0;
    program_positions(p, position, length);
    CU_ASSERT_EQUAL(program_phase_positions(p, at), program_phases(p, (uint32_t[NPHASES + 1]){0}));
    CU_ASSERT_EQUAL(memcmp(at[NPHASES], length, sizeof length), 0);
    for (uint32_t i = 0, k = 0; i < p->ninsns; i++) {
        while (i >= begin[k + 1])
            k++;
        wrong += position[i] < at[k][p->insns[i].queue] || position[i] >= at[k + 1][p->insns[i].queue];
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

/* By queues and waits alone, a seam comes behind all that is listed before it and before all that is listed behind. */
static void check_waits(struct arena *a, const struct program *p)
{
    uint32_t length[NQUEUES], *position = ARENA_ARRAY(a, uint32_t, p->ninsns + 1u), listed[NQUEUES] = {0}, wrong = 0;
    uint32_t(*known)[NQUEUES] = arena_array(a, p->ninsns, sizeof *known); /* of each queue: how many it comes behind */
    uint32_t *last[NQUEUES], seam = NONE;
    program_positions(p, position, length);
    for (uint32_t q = 0; q < NQUEUES; q++)
        last[q] = ARENA_ARRAY(a, uint32_t, length[q] + 1u);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *in = &p->insns[i];
        uint32_t *own = known[i];
        memset(own, 0, sizeof *known);
        for (uint32_t w = 0; w <= in->nwaits; w++) { /* the one before it on its queue, and those that it waits for */
            bool before = w == in->nwaits;
            if (before && !listed[in->queue])
                continue;
            const struct wait *x = &p->waits[in->wait + (before ? 0 : w)];
            uint32_t q = before ? in->queue : x->queue, at = before ? listed[q] - 1 : x->position;
            const uint32_t *other = known[last[q][at]];
            for (uint32_t k = 0; k < NQUEUES; k++)
                own[k] = other[k] > own[k] ? other[k] : own[k];
            own[q] = at + 1 > own[q] ? at + 1 : own[q];
        }
        if (in->op == OP_SEAM)
            wrong += memcmp(own, listed, sizeof listed) != 0;
        else if (seam != NONE)
            wrong += own[p->insns[seam].queue] <= position[seam];
        seam = in->op == OP_SEAM ? i : seam;
        last[in->queue][listed[in->queue]++] = i;
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

static void test_accepted(void)
{
    static const char *const decisions[] = {
        "pp=4 schedule=zb_h2",           "pp=4 tp=2 sp=1 dp=2 zero=1 schedule=zb_h2", "pp=4 dp=2 zero=2 schedule=zb_h2",
        "pp=4 dp=2 zero=3 schedule=zb_h2", "pp=4 vpp=2 schedule=zb_v",                "pp=2 vpp=2 tp=2 dp=2 zero=1 full=1 schedule=zb_v",
        "pp=4 vpp=2 dp=2 zero=3 schedule=zb_v", "pp=2 ring=2 dp=2 schedule=zb_h2",    "pp=8 dp=2 schedule=zb_h2",
        "pp=8 dp=2 microbatch=4 schedule=zb_h2"};
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        struct arena *a = arena_new();
        uint32_t at[NPHASES + 1];
        char decision[128];
        snprintf(decision, sizeof decision, "%s%s", strstr(decisions[i], "microbatch") ? "" : "microbatch=1 ", decisions[i]);
        struct plan *p = make(a, i % 2 ? "tied" : "untied", i % 3 ? "fp32" : "bf16(grads=fp32)", "yes", decision);
        const struct verdict *v = verify_plan(a, p, i % 2);
        CU_ASSERT_EQUAL(v->nviolations, 0);
        if (v->nviolations)
            printf("\n    %s: %s", decision, v->violations[0].message);
        for (uint32_t r = 0; r < p->nroles; r++) {
            CU_ASSERT(program_phases(p->train[r], at));
            check_positions(a, p->train[r], at);
            check_waits(a, p->train[r]);
            uint32_t forwards = 0; /* in the early phase: as many as the rank may be ahead */
            for (uint32_t k = 0; k < at[PHASE_BODY]; k++)
                if (p->train[r]->insns[k].action == 'F' && p->train[r]->insns[k].microbatch >= forwards)
                    forwards = p->train[r]->insns[k].microbatch + 1;
            uint32_t most = p->nroles - 1 - r, m = p->decision.microbatches;
            CU_ASSERT_EQUAL(forwards, most < m ? most : m);
            if (forwards != (most < m ? most : m))
                printf("\n    %s: rank %u begins with %u of %u", decision, r, forwards, m);
        }
        plan_close(p);
        arena_free(a);
    }
}

/* nothing skews that was not asked to, or cannot */
static void test_not_skewed(void)
{
    static const char *const rows[][2] = {{"no", "pp=4 microbatch=1 schedule=zb_h2"}, {"yes", "pp=4 microbatch=1 schedule=1f1b"}};
    for (size_t i = 0; i < 2; i++) {
        struct arena *a = arena_new();
        uint32_t at[NPHASES + 1];
        struct plan *p = make(a, "untied", "fp32", rows[i][0], rows[i][1]);
        for (uint32_t r = 0; r < p->nroles; r++)
            CU_ASSERT(!program_phases(p->train[r], at) && at[PHASE_BODY] == 0 && at[PHASE_CHECK] == p->train[r]->ninsns);
        plan_close(p);
        arena_free(a);
    }
}

static uint32_t find(const struct program *p, uint32_t from, enum op op)
{
    while (from < p->ninsns && p->insns[from].op != op)
        from++;
    CU_ASSERT_FATAL(from < p->ninsns);
    return from;
}

static uint32_t buffer_of(const struct program *p, enum buffer_kind kind)
{
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (p->buffers[b].kind == kind)
            return b;
    CU_FAIL_FATAL("no such buffer");
    return NONE;
}

/* what is foretold with another decay */
static void harm_foretold(struct program *p)
{
    p->attrs[p->insns[find(p, 0, OP_ADAMW_AHEAD)].attr + ATTR(ADAMW_AHEAD, decay)].u.f = 0.5;
}

/* a norm of the early phase leaves its result where the check finds a gradient */
static void harm_gradient(struct program *p)
{
    struct operand *y = &p->operands[p->insns[find(p, 0, OP_RMSNORM)].operand + OPND(RMSNORM, y)];
    const struct operand *g = &p->operands[p->insns[find(p, 0, OP_ADAMW)].operand + OPND(ADAMW, g)];
    y->buffer = g->buffer;
    y->offset = g->offset;
}

/* ... or where the moments are */
static void harm_moment(struct program *p)
{
    p->operands[p->insns[find(p, 0, OP_RMSNORM)].operand + OPND(RMSNORM, y)].buffer = buffer_of(p, BUFFER_MOMENT1);
}

/* the SEND behind the first seam stands before it */
static void harm_send(struct program *p)
{
    uint32_t seam = find(p, 0, OP_SEAM), send = find(p, seam, OP_SEND);
    struct insn moved = p->insns[send];
    memmove(p->insns + seam + 1, p->insns + seam, (send - seam) * sizeof *p->insns);
    p->insns[seam] = moved;
}

/* an update in the body */
static void harm_update(struct program *p)
{
    uint32_t seam = find(p, find(p, 0, OP_SEAM) + 1, OP_SEAM), update = find(p, seam, OP_ADAMW);
    struct insn moved = p->insns[update];
    memmove(p->insns + seam + 1, p->insns + seam, (update - seam) * sizeof *p->insns);
    p->insns[seam] = moved;
}

static const struct {
    void (*harm)(struct program *p);
    uint32_t property;
    const char *message; /* its beginning behind the place */
} harms[] = {
    {harm_foretold, 7, "no ADAMW_AHEAD of the body foretells it"},
    {harm_gradient, 4, "of the step before, and writes bytes of grad."},
    {harm_moment, 7, "it changes buffer m.embed before the first seam, where it may run twice"},
    {harm_send, 2, "1 of its communications with role 0 come before the first seam, there 2"},
    {harm_update, 7, "it updates what the check is not about"},
};

static void test_refused(void)
{
    for (size_t i = 0; i < sizeof harms / sizeof *harms; i++) {
        struct arena *a = arena_new();
        struct plan *p = make(a, "untied", "fp32", "yes", "pp=3 microbatch=1 schedule=zb_h2");
        struct verdict v = {0};
        verify_skew(a, p, &v);
        CU_ASSERT_EQUAL(v.nviolations, 0);
        harms[i].harm(p->train[0]);
        verify_skew(a, p, &v);
        bool found = false;
        for (uint32_t k = 0; k < v.nviolations; k++)
            found |= v.violations[k].property == harms[i].property && strstr(v.violations[k].message, harms[i].message) != NULL;
        CU_ASSERT(found);
        for (uint32_t k = 0; k < v.nviolations && !found; k++)
            printf("\n    %zu: property %u: %s", i, v.violations[k].property, v.violations[k].message);
        plan_close(p);
        arena_free(a);
    }
}

/* one role without seams */
static void test_mixed(void)
{
    struct arena *a = arena_new();
    struct plan *p = make(a, "untied", "fp32", "yes", "pp=3 microbatch=1 schedule=zb_h2"),
                *q = make(a, "untied", "fp32", "no", "pp=3 microbatch=1 schedule=zb_h2");
    struct verdict v = {0};
    struct program *other = p->train[1];
    p->train[1] = q->train[1];
    verify_skew(a, p, &v);
    CU_ASSERT_EQUAL_FATAL(v.nviolations, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(v.violations[0].message, "2 roles have seams, 1 have none"));
    p->train[1] = other;
    plan_close(p);
    plan_close(q);
    arena_free(a);
}

static void test_cannot(void)
{
    static const char *const rows[][3] = {
        {"adamw(lr=1e-3)", "sgd(lr=0.1)", "post_validation with another optimizer than adamw"},
        {"post_validation yes", "post_validation yes\n    offload [optimizer]",
         "post_validation with the optimizer's state in host memory"},
        {"ffn swiglu(48)", "moe swiglu(48) {\n experts 4\n active 2\n router softmax\n }", "post_validation with experts"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena *a = arena_new();
        const char *why = "", *text = arena_printf(a, job_text, "untied", "fp32", "yes"), *at = strstr(text, rows[i][0]);
        CU_ASSERT_PTR_NOT_NULL_FATAL(at);
        struct job *job =
            text_job(a, arena_printf(a, "%.*s%s%s", (int)(at - text), text, rows[i][1], at + strlen(rows[i][0])));
        struct decision d = text_decision(a, job, random_host(a, 8), "pp=4 microbatch=1 schedule=zb_h2");
        CU_ASSERT_FALSE(decision_emittable(a, job, &d, &why));
        CU_ASSERT_STRING_EQUAL(why, rows[i][2]);
        arena_free(a);
    }
}

void suite_skew(void);
void suite_skew(void)
{
    CU_pSuite s = CU_add_suite("skew", NULL, NULL);
    CU_add_test(s, "steps that are checked during the next one", test_accepted);
    CU_add_test(s, "only where it is asked for and can be", test_not_skewed);
    CU_add_test(s, "what would make it another step", test_refused);
    CU_add_test(s, "all ranks or none", test_mixed);
    CU_add_test(s, "what it cannot go with", test_cannot);
}
