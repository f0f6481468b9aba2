/* Faults in plans of split sequences, one of each kind that context parallelism can have: places of the wrong
 * rank, keys that went too far round the ring, parts merged with themselves or with another part's sums, a
 * ring's slot of the wrong rank.  Each must be reported, in these words.  (test_mutation.c makes them by the
 * thousand, at random.) */

#include "compiler/execute/exact.h"
#include "compiler/verify/verify.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/mutate_private.h"
#include "tests/draws.h"

#include <CUnit/CUnit.h>
#include <string.h>

static struct insn *find(struct program *p, enum op op, uint32_t nth)
{
    for (uint32_t i = 0; i < p->ninsns; i++)
        if (p->insns[i].op == op && nth-- == 0)
            return &p->insns[i];
    CU_FAIL_FATAL("there is no such instruction");
    return NULL;
}

static uint32_t find_slot(const struct program *p, enum slot_kind kind, uint32_t nth)
{
    for (uint32_t i = 0; i < p->nslots; i++)
        if (p->slots[i].kind == kind && nth-- == 0)
            return i;
    CU_FAIL_FATAL("there is no such slot");
    return NONE;
}

static struct attr *attr(struct program *p, enum op op, uint32_t nth, size_t k)
{
    return &p->attrs[find(p, op, nth)->attr + k];
}

static void own_places(struct program *p)
{
    struct attr *first = attr(p, OP_ATTENTION_PART, 1, ATTR(ATTENTION_PART, kfirst)),
                *shift = attr(p, OP_ATTENTION_PART, 1, ATTR(ATTENTION_PART, kshift));
    first->slot = shift->slot = attr(p, OP_ATTENTION_PART, 0, ATTR(ATTENTION_PART, kfirst))->slot;
}

static void wrong_run(struct program *p)
{
    attr(p, OP_ATTENTION_PART, 0, ATTR(ATTENTION_PART, shift))->u.i += 4;
}

static void too_far(struct program *p)
{
    attr(p, OP_SHIFT, 1, ATTR(SHIFT, by))->u.i = 2;
}

static void merges_itself(struct program *p)
{
    struct operand *o = &p->operands[find(p, OP_ATTENTION_MERGE, 0)->operand];
    o[OPND(ATTENTION_MERGE, part)] = o[OPND(ATTENTION_MERGE, o)];
    o[OPND(ATTENTION_MERGE, part_lse)] = o[OPND(ATTENTION_MERGE, lse)];
    o[OPND(ATTENTION_MERGE, part)].mark = o[OPND(ATTENTION_MERGE, part_lse)].mark = MARK_READ;
}

static void other_sums(struct program *p)
{
    struct operand *o = &p->operands[find(p, OP_ATTENTION_MERGE, 0)->operand];
    o[OPND(ATTENTION_MERGE, part_lse)] = o[OPND(ATTENTION_MERGE, lse)];
    o[OPND(ATTENTION_MERGE, part_lse)].mark = MARK_READ;
}

/* the second step's part goes to where the first one's is, as if it were all */
static void not_merged(struct program *p)
{
    struct operand *o = &p->operands[find(p, OP_ATTENTION_MERGE, 0)->operand];
    o[OPND(ATTENTION_MERGE, o)] = o[OPND(ATTENTION_MERGE, part)];
    o[OPND(ATTENTION_MERGE, o)].mark = MARK_UPDATE;
}

static void wrong_tokens(struct program *p)
{
    attr(p, OP_TOKENS, 0, ATTR(TOKENS, first))->stride *= 2;
}

static void not_turned(struct program *p)
{
    attr(p, OP_ROPE, 0, ATTR(ROPE, shift))->stride = 0;
}

static void half_keys(struct program *p)
{
    attr(p, OP_ATTENTION_PART, 0, ATTR(ATTENTION_PART, kparts))->u.i = 1;
}

static void swapped_blocks(struct program *p)
{
    struct attr *group = attr(p, OP_ALL_TO_ALL, 0, ATTR(ALL_TO_ALL, group));
    group->slot =
        find_slot(p, SLOT_GROUP, p->slots[group->slot].arg == p->slots[find_slot(p, SLOT_GROUP, 0)].arg);
}

static const struct {
    const char *decision;
    void (*fault)(struct program *p);
    const char *words;
} faults[] = {
    {"ring=4", own_places,
     "its kfirst and kshift are not the places of rows [0, 4) + 4 cp of the rank 1 places before"},
    {"ring=4", wrong_run, "its first and shift are not the places of rows [0, 4) + 4 cp"},
    {"ring=4", too_far,
     "its kfirst and kshift are not the places of rows [0, 4) + 4 cp of the rank 3 places before"},
    {"ring=4", merges_itself, "keys would count twice in layer 0: attention"},
    {"ring=4", other_sums, "are not output and log-sum-exps of the same keys"},
    {"ring=4", not_merged, "are not output and log-sum-exps of the same keys"},
    {"ring=4", wrong_tokens, "its first and shift are not the places of rows"},
    {"all_gather=2", not_turned, "its first and shift are not the places of rows"},
    {"all_gather=2", half_keys, "are not those of one rank of cp"},
    {"all_to_all=2 dp=2", swapped_blocks, "there is no rule for this collective over this group"},
};

static void test_faults(void)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct arena *a = arena_new();
        const char *why = "";
        struct job *job = text_job(a, tiny_llama);
        struct topo *topo = random_host(a, 8);
        struct decision d = text_decision(a, job, topo, faults[i].decision);
        struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        faults[i].fault(p->train[0]);
        const struct verdict *v = verify_plan(a, p, false);
        bool found = false;
        for (uint32_t k = 0; k < v->nviolations; k++)
            found = found || strstr(v->violations[k].message, faults[i].words);
        CU_ASSERT(found);
        if (!found)
            printf("\n    %s: wanted \"%s\", got \"%.600s\"", faults[i].decision, faults[i].words,
                   v->nviolations ? v->violations[0].message : "nothing");
        plan_close(p);
        arena_free(a);
    }
}

/* ranks.bin says another rank's number than the ring's */
static void test_slot(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(a, tiny_llama);
    struct topo *topo = random_host(a, 8);
    struct decision d = text_decision(a, job, topo, "ring=4");
    struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    uint32_t slot = find_slot(p->train[0], SLOT_BEHIND, 0);
    uint64_t *value = &p->ranks->values[p->ranks->ranks[1].slot + slot];
    CU_ASSERT_EQUAL(*value, 0);
    *value = 2;
    const struct verdict *v = verify_plan(a, p, false);
    CU_ASSERT_FATAL(v->nviolations > 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(v->violations[0].message, "slot cp_behind_1 is 2, the mesh says 0"));
    plan_close(p);
    arena_free(a);
}

static const char windowed[] =
    "llmc 1\nmodel tiny {\n    vocab 53\n    width 16\n    norm rmsnorm\n    embed tokens\n    repeat 8 {\n"
    "        layer {\n            attn gqa(heads=4, kv=2, window=6, rope=500)\n            ffn geglu(16)\n        }\n"
    "    }\n    head tied\n}\ntrain {\n    sequence 16\n    batch 8 sequences\n    precision fp32\n"
    "    optimizer adamw(lr=1e-3)\n}\n";

/* Without one collective, on all its members, its output holds another microbatch's or another layer's rows: that is
 * found, or does no harm, as where a gather is done again while the rows of the first one still lie there.  Tries every
 * so many'th; returns how many were found. */
static uint32_t drop_each(struct arena *a, struct plan *p, const struct exact_truth *truth, uint32_t every)
{
    uint32_t found = 0, n = 0;
    uint64_t state = 1;
    for (uint32_t role = 0; role < p->nroles; role++)
        for (uint32_t i = 0; i < p->train[role]->ninsns; i++) {
            if (!mutate_is_collective(p->train[role], i) || p->train[role]->insns[i].layer == NONE || n++ % every)
                continue;
            struct mutant m;
            mutant_begin(a, p, MUTATE_DROP_MATCHED, &m);
            struct mutate_draw d = {&m, &state, role, false, p->train[role]};
            mutate_on_all_members(&d, i, mutate_drop_from);
            const char *why = NULL;
            if (verify_plan(a, &m.plan, false)->nviolations)
                found++;
            else
                why = mutant_harm(a, &m, truth);
            CU_ASSERT_PTR_NULL(why);
            if (why)
                printf("\n    role %u, instruction %u is not missed, but %.300s", role, i, why);
            mutant_free(&m);
        }
    return found;
}

static void test_dropped(void)
{
    static const char *const decisions[] = {"all_gather=2 pp=4 vpp=2 dp=1 zero=0 microbatch=2 schedule=v_half",
                                            "all_gather=2 pp=4 vpp=2 dp=1 zero=0 microbatch=2 schedule=v_half full=1"};
    uint32_t every = test_draws_usual(1, 3, 3);
    for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++) {
        struct arena *a = arena_new();
        const char *why = "";
        struct job *job = text_job(a, windowed);
        struct topo *topo = random_host(a, 8);
        struct decision d = text_decision(a, job, topo, decisions[i]), alone = layout_alone(a, job, topo);
        struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
        struct plan *one = compile_apart(a, job, topo, &alone, &(struct compile_options){0}, &why);
        CU_ASSERT_FATAL(p && one);
        const struct exact_truth *truth = exact_truth(a, one, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(truth);
        CU_ASSERT_EQUAL(verify_plan(a, p, false)->nviolations, 0);
        for (uint64_t seed = 1; seed <= 8; seed++) {
            why = exact_compare(a, p, truth, seed).why;
            CU_ASSERT_PTR_NULL(why);
            if (why)
                printf("\n    %s, seed %u, without a fault: %.300s", decisions[i], (unsigned)seed, why);
        }
        CU_ASSERT(drop_each(a, p, truth, every) >= 8 * 4 / every);
        plan_close(p);
        plan_close(one);
        arena_free(a);
    }
}

/* zeros of half the width leave half of the metrics as they were */
static void test_metrics(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(a, tiny_llama);
    struct topo *topo = random_host(a, 8);
    struct decision d = text_decision(a, job, topo, "all_gather=2");
    struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
    bool found = false;
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    struct program *q = p->train[0];
    for (uint32_t i = 0; i < q->ninsns; i++) {
        struct operand *y = &q->operands[q->insns[i].operand];
        if (q->insns[i].op == OP_FILL && q->buffers[y->buffer].kind == BUFFER_METRICS) {
            y->dtype = DTYPE_I32;
            found = true;
        }
    }
    CU_ASSERT(found);
    const struct verdict *v = verify_plan(a, p, false);
    CU_ASSERT_FATAL(v->nviolations > 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(v->violations[0].message, "its operand y is i32, expected f64"));
    if (!strstr(v->violations[0].message, "its operand y is i32, expected f64"))
        printf("\n    %.500s", v->violations[0].message);
    plan_close(p);
    arena_free(a);
}

void suite_split_sequences(void);
void suite_split_sequences(void)
{
    CU_pSuite s = CU_add_suite("split_sequences", NULL, NULL);
    CU_add_test(s, "faults of split sequences are named", test_faults);
    CU_add_test(s, "a dropped collective is missed, or was done twice", test_dropped);
    CU_add_test(s, "metrics are cleared in their own format", test_metrics);
    CU_add_test(s, "a ring's slots are the mesh's", test_slot);
}
