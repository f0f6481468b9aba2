/* No field of a plan can be changed so that the verifier does not see it and the run does: see fields.h.
 *
 * Some such changes, which every check once passed, stand here by themselves.  make check-fields: FIELDS=N
 * others, drawn over every field of every table, in parts with FIELDS_FROM=SEED, and every reference to a
 * slot. */

#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/fields.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

static const char halves[] =
    "llmc 1\nmodel tiny {\n    vocab 32\n    width 16\n    norm rmsnorm\n    embed tokens\n    repeat 2 {\n  "
    "      layer {\n"
    "            attn gqa(heads=2, kv=2, rope=10_000)\n            ffn swiglu(16)\n        }\n    }\n    "
    "head untied\n}\n"
    "train {\n    sequence 8\n    batch 4 sequences\n    precision bf16\n    optimizer adamw(lr=1e-3)\n}\n";
#define EXPERTS(router, room)                                                                                \
    "llmc 1\nmodel tiny {\n    vocab 32\n    width 16\n    norm rmsnorm\n    embed tokens\n    repeat 2 "    \
    "{\n        layer {\n"                                                                                   \
    "            attn gqa(heads=2, kv=2, rope=10_000)\n            moe swiglu(8) {\n                "        \
    "experts 4\n"                                                                                            \
    "                active 2\n                router softmax\n" router                                      \
    "            }\n        }\n    }\n    head untied\n}\n"                                                  \
    "train {\n    sequence 8\n    batch 4 sequences\n    precision fp32\n    optimizer "                     \
    "adamw(lr=1e-3)\n" room "}\n"
static const char crowded[] = EXPERTS("", "    expert_room 1\n"), balanced[] = EXPERTS("balance 0.01\n", "");

/* a plan of its own to change by hand */
static struct plan *make_plan(struct arena *a, const char *model, const char *decision)
{
    struct plan *raw = text_plan(a, model, decision), *p = mutate_copy_plan(a, raw);
    plan_close(raw);
    CU_ASSERT_EQUAL(verify_plan(a, p, true)->nviolations, 0);
    return p;
}

static void expect(struct arena *a, struct plan *p, const char *says)
{
    const struct verdict *v = verify_plan(a, p, true);
    bool said = false;
    for (uint32_t i = 0; i < v->nviolations; i++)
        said |= strstr(v->violations[i].message, says) != NULL;
    CU_ASSERT(said);
    for (uint32_t i = 0; i < v->nviolations && !said; i++)
        printf("\n    %s", v->violations[i].message);
    fields_free(p);
}

/* "first of dp" is 1 where the number on dp is 0: each of two ranks would load and keep the other's shard */
static void test_shards(void)
{
    struct arena *a = arena_new();
    struct plan *p = make_plan(a, halves, "dp=2 zero=1 microbatch=1");
    uint32_t shard = NONE, changed = 0;
    for (uint32_t b = 0; b < p->train[0]->nbuffers && shard == NONE; b++)
        shard = p->train[0]->buffers[b].shard_slot;
    CU_ASSERT_FATAL(shard != NONE);
    uint32_t first = fields_add_slot(p, 0, SLOT_FIRST, p->train[0]->slots[shard].arg);
    for (int kind = 0; kind < 2; kind++) {
        struct program *q = kind ? p->eval[0] : p->train[0];
        for (uint32_t b = 0; b < q->nbuffers; b++)
            if (q->buffers[b].shard_slot == shard) {
                q->buffers[b].shard_slot = first;
                changed++;
            }
    }
    CU_ASSERT(changed >= 6); /* master copy and moments, in both programs */
    expect(a, p, "its shard depends on slot first_4, which is no coordinate");
    arena_free(a);
}

static struct operand *operand_of(struct program *q, uint32_t insn, size_t k)
{
    return &q->operands[q->insns[insn].operand + k];
}

static uint32_t find_insn(const struct program *q, enum op op)
{
    for (uint32_t i = 0; i < q->ninsns; i++)
        if (q->insns[i].op == op)
            return i;
    CU_FAIL_FATAL("no such instruction");
    return NONE;
}

/* Nobody is told that experts lack room; tags that call it a backward pass change nothing. */
static void test_untold(void)
{
    struct arena *a = arena_new();
    struct plan *p = make_plan(a, crowded, "dp=2 ep=2 microbatch=1");
    for (int kind = 0; kind < 2; kind++) {
        struct program *q = kind ? p->eval[0] : p->train[0];
        for (uint32_t i = 0; i < q->ninsns; i++) {
            if (q->insns[i].op == OP_ARRANGE) {
                operand_of(q, i, OPND(ARRANGE, need))->buffer = NONE;
                q->insns[i].action = 'B';
            } else if (q->insns[i].op == OP_CLIP) {
                operand_of(q, i, OPND(CLIP, need))->buffer = NONE;
            }
        }
    }
    expect(a, p, "its blocks of 8 rows may lack room for up to 16, and nobody is told");
    arena_free(a);
}

/* Adds a block of metrics, zeroed with the other one, that nobody reads, and returns its buffer.  The `twice`-th
 * ARRANGE, if there are so many, is there twice then.  Replaces the program. */
static uint32_t add_metrics(struct program **at, uint32_t twice)
{
    struct program *q = *at;
    uint32_t n = 0, narrange = 0, fill = NONE, *list = calloc(q->ninsns + 2u, sizeof *list),
             *seq = calloc(q->ninsns + 2u, sizeof *seq);
    for (uint32_t i = 0; i < q->ninsns; i++) {
        bool zeroes = fill == NONE && q->insns[i].op == OP_FILL &&
                      q->buffers[operand_of(q, i, OPND(FILL, y))->buffer].kind == BUFFER_METRICS;
        bool again = zeroes || (q->insns[i].op == OP_ARRANGE && narrange++ == twice);
        for (int k = 0; k <= again; k++) {
            list[n] = i;
            seq[n++] = 4 * q->insns[i].seq + (uint32_t)k;
        }
        fill = zeroes ? i + 1 : fill;
    }
    CU_ASSERT_FATAL(fill != NONE);
    *at = mutate_rebuild(q, list, seq, n);
    program_free(q);
    q = *at;
    struct buffer b = q->buffers[operand_of(q, fill, OPND(FILL, y))->buffer];
    b.kind = BUFFER_STEP;
    b.offset = q->arena_bytes = (q->arena_bytes + 255) / 256 * 256;
    q->arena_bytes += 256;
    operand_of(q, fill, OPND(FILL, y))->buffer = program_buffer(q, &b);
    free(list);
    free(seq);
    return q->nbuffers - 1;
}

/* What experts lack is written where nobody looks, and the clipping does not ask for it. */
static void test_told_nobody(void)
{
    struct arena *a = arena_new();
    struct plan *p = make_plan(a, crowded, "dp=2 ep=2 microbatch=1");
    uint32_t aside = add_metrics(&p->train[0], NONE);
    for (uint32_t i = 0; i < p->train[0]->ninsns; i++)
        if (p->train[0]->insns[i].op == OP_ARRANGE)
            operand_of(p->train[0], i, OPND(ARRANGE, need))->buffer = aside;
    operand_of(p->train[0], find_insn(p->train[0], OP_CLIP), OPND(CLIP, need))->buffer = NONE;
    expect(a, p, "at the end of the step what experts lacked is zeros, and the optimizer has not seen it");
    arena_free(a);
}

/* The first ARRANGE of some choices has room for all and says that nothing is lacking; the second gives the
 * places. */
static void test_told_twice(void)
{
    struct arena *a = arena_new();
    struct plan *p = make_plan(a, crowded, "dp=2 ep=2 microbatch=1");
    uint32_t aside = add_metrics(&p->train[0], 0), first = find_insn(p->train[0], OP_ARRANGE);
    struct program *q = p->train[0];
    CU_ASSERT_EQUAL_FATAL(q->insns[first + 1].op, OP_ARRANGE);
    q->attrs[q->insns[first].attr + ATTR(ARRANGE, rows)].u.i = 16;
    operand_of(q, first + 1, OPND(ARRANGE, need))->buffer = aside;
    expect(a, p, "what these choices lack is told twice");
    arena_free(a);
}

/* an instruction of a program stands there twice; replaces the program */
static void repeat(struct program **at, uint32_t insn)
{
    struct program *q = *at;
    uint32_t n = 0, *list = calloc(q->ninsns + 1u, sizeof *list), *seq = calloc(q->ninsns + 1u, sizeof *seq);
    for (uint32_t i = 0; i < q->ninsns; i++)
        for (uint32_t k = 0; k <= (i == insn); k++) {
            list[n] = i;
            seq[n++] = 4 * q->insns[i].seq + k;
        }
    *at = mutate_rebuild(q, list, seq, n);
    program_free(q);
    free(list);
    free(seq);
}

/* Of a copy of the gradient, the norm counts every element once; but nothing else would show that every replica saves
 * its bucket. */
static void test_saved_twice(void)
{
    struct arena *a = arena_new();
    struct plan *p = make_plan(a, halves, "dp=2 zero=0 microbatch=1");
    uint32_t norm = find_insn(p->train[0], OP_SQNORM);
    repeat(&p->train[0], norm);
    struct program *q = p->train[0];
    struct operand *y = operand_of(q, norm, OPND(COPY, y)), *x = operand_of(q, norm, OPND(COPY, x));
    struct buffer copy = q->buffers[x->buffer];
    copy.offset = q->arena_bytes = (q->arena_bytes + 255) / 256 * 256;
    q->arena_bytes += copy.bytes;
    q->insns[norm].op = OP_COPY;
    CU_ASSERT_EQUAL_FATAL(x->rows * x->cols, 32 * 16); /* the embedding, as the matrix that it is */
    x->rows = 32;
    x->cols = x->ld = 16;
    *y = *x;
    y->mark = MARK_WRITE;
    y->buffer = operand_of(q, norm + 1, OPND(SQNORM, g))->buffer = program_buffer(q, &copy);
    for (uint32_t i = 0; i < q->ninsns; i++) {
        struct operand *g = operand_of(q, i, OPND(ADAMW, g)), *param = operand_of(q, i, OPND(ADAMW, copy));
        if (q->insns[i].op == OP_ADAMW && g->buffer == x->buffer)
            q->buckets[q->buffers[param->buffer].bucket].count_slot = NONE;
    }
    expect(a, p, "no norm says on which ranks what it updates is saved");
    arena_free(a);
}

/* A place in a sequence may be counted from the beginning of any sequence; a load may not, for rows count in the
 * sequence that they are in. */
static void test_sequences(void)
{
    static const struct {
        enum op op;
        size_t attr;
    } readers[] = {{OP_BALANCE, ATTR(BALANCE, start)}, {OP_ROUTE_I, ATTR(ROUTE_I, start)}};
    for (size_t i = 0; i < ARRAY_LEN(readers); i++) {
        struct arena *a = arena_new();
        struct plan *p = make_plan(a, balanced, "tp=2 sp=1 dp=2 microbatch=1");
        uint32_t both = fields_add_slot(p, 0, SLOT_COORD, AXIS_BIT(AXIS_TP) | AXIS_BIT(AXIS_DP));
        struct program *q = p->train[0];
        q->attrs[q->insns[find_insn(q, readers[i].op)].attr + readers[i].attr].slot = both;
        expect(a, p, "do not lie [0, 4) + 4 tp + 8 dp rows into 1 sequences of 8");
        arena_free(a);
    }
    struct arena *a = arena_new();
    struct plan *p = make_plan(a, balanced, "tp=2 sp=1 microbatch=2");
    struct program *q = p->train[0];
    struct attr *start = &q->attrs[q->insns[find_insn(q, OP_LOAD)].attr + ATTR(LOAD, start)];
    CU_ASSERT(start->u.i == 0 && start->stride == 8);
    *start = (struct attr){
        .u.i = 8, .stride = -8, .slot = start->slot}; /* each rank counts for the other's sequence */
    expect(a, p, "do not lie [8, 16) + -8 tp rows into 2 sequences of 8");
    arena_free(a);
}

static void test_drawn(void)
{
    const char *wanted = getenv("FIELDS"), *from = getenv("FIELDS_FROM");
    uint64_t n = wanted ? strtoull(wanted, NULL, 10) : test_draws(2000, 200);
    CU_ASSERT_EQUAL(fields_run(n, from ? strtoull(from, NULL, 10) : 1, wanted != NULL), 0);
}

void suite_fields(void);
void suite_fields(void)
{
    CU_pSuite s = CU_add_suite("fields", NULL, NULL);
    CU_add_test(s, "shards that ranks have exchanged", test_shards);
    CU_add_test(s, "experts that lack room where nobody is told", test_untold);
    CU_add_test(s, "or told where nobody reads", test_told_nobody);
    CU_add_test(s, "or told twice, once wrongly", test_told_twice);
    CU_add_test(s, "weights that every replica saves", test_saved_twice);
    CU_add_test(s, "loads of another sequence", test_sequences);
    CU_add_test(s, "any field of any table", test_drawn);
}
