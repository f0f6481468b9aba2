/* Faults of ZeRO 2 and 3 and of shards with replicas: each is one that a wrong lowering would make, and the sentence that
 * names it is the verifier's. */

#include "compiler/fit.h"
#include "compiler/llmc.h"
#include "compiler/support/vec.h"
#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/mutate.h"
#include "tests/runtime/program_parse.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char job_text[] =
    "llmc 1\nmodel tiny {\n    vocab 96\n    width 32\n    norm rmsnorm(eps=1e-5)\n    embed tokens\n    repeat 3 {\n"
    "        layer {\n            attn gqa(heads=4, kv=2, rope=500)\n            ffn swiglu(48)\n        }\n    }\n"
    "    head untied\n}\ntrain {\n    sequence 8\n    batch 8 sequences\n    precision fp32\n"
    "    optimizer adamw(lr=1e-3)\n    clip 1.0\n}\n";

static char *replaced(struct arena *a, const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    return arena_printf(a, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static uint32_t find_insn(const struct program *p, enum op op, const char *buffer, size_t operand, uint32_t skip)
{
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct operand *o = &p->operands[p->insns[i].operand + operand];
        if (p->insns[i].op == op && o->buffer != NONE &&
            !strncmp(p->buffers[o->buffer].name, buffer, strlen(buffer)) && skip-- == 0)
            return i;
    }
    CU_FAIL_FATAL("no such instruction");
    return NONE;
}

static struct operand *at(struct program *p, uint32_t insn, size_t operand)
{
    return &p->operands[p->insns[insn].operand + operand];
}

static uint32_t find_buffer(const struct program *p, const char *name)
{
    uint32_t b = 0;
    while (b < p->nbuffers && strcmp(p->buffers[b].name, name) != 0)
        b++;
    CU_ASSERT_FATAL(b < p->nbuffers);
    return b;
}

static uint32_t find_slot(const struct program *p, const char *name)
{
    uint32_t s = 0;
    while (s < p->nslots && strcmp(p->slots[s].name, name) != 0)
        s++;
    CU_ASSERT_FATAL(s < p->nslots);
    return s;
}

static void gathers_elsewhere(struct program *p)
{
    uint32_t i = find_insn(p, OP_ALL_GATHER, "gathered.1", OPND(ALL_GATHER, y), 1);
    at(p, i, OPND(ALL_GATHER, y))->buffer = find_buffer(p, "gathered.0");
}

static void gathers_another_layer(struct program *p)
{
    uint32_t i = find_insn(p, OP_ALL_GATHER, "param.layer1", OPND(ALL_GATHER, x), 0);
    at(p, i, OPND(ALL_GATHER, x))->buffer = find_buffer(p, "param.layer2");
}

static void scatters_over_replicas(struct program *p)
{
    uint32_t i = find_insn(p, OP_REDUCE_SCATTER, "made.", OPND(REDUCE_SCATTER, x), 0);
    p->attrs[p->insns[i].attr + ATTR(REDUCE_SCATTER, group)].slot = find_slot(p, "group_replica");
}

static void adds_to_another_layer(struct program *p)
{
    uint32_t i = find_insn(p, OP_ADD, "grad.layer1", OPND(ADD, y), 0);
    at(p, i, OPND(ADD, y))->buffer = find_buffer(p, "grad.layer2");
}

static void forgets_microbatch(struct program *p)
{
    at(p, find_insn(p, OP_ADD, "grad.layer1", OPND(ADD, y), 0), OPND(ADD, y))->mark = MARK_WRITE;
}

static void counts_microbatch_twice(struct program *p)
{
    uint32_t i = find_insn(p, OP_ADD, "grad.layer1", OPND(ADD, y), 0);
    at(p, i, OPND(ADD, a))->buffer = find_buffer(p, "grad.layer1");
}

static void sums_own_shards(struct program *p)
{
    uint32_t i = find_insn(p, OP_ALL_REDUCE, "grad.layer1", OPND(ALL_REDUCE, x), 0);
    p->attrs[p->insns[i].attr + ATTR(ALL_REDUCE, group)].slot = find_slot(p, "group_shard");
}

static void counts_replicas(struct program *p)
{
    uint32_t i = find_insn(p, OP_SQNORM, "grad.layer1", OPND(SQNORM, g), 0);
    struct attr *count = &p->attrs[p->insns[i].attr + ATTR(SQNORM, count)];
    *count = (struct attr){.u.i = 1, .slot = NONE};
}

static void updates_another_layer(struct program *p)
{
    uint32_t i = find_insn(p, OP_ADAMW, "param.layer1", OPND(ADAMW, p), 0);
    at(p, i, OPND(ADAMW, g))->buffer = find_buffer(p, "grad.layer2");
}

static void keeps_whole_state(struct program *p)
{
    p->buffers[find_buffer(p, "param.layer1")].shard_slot = NONE;
}

static const struct fault {
    void (*make)(struct program *p);
    const char *says;
} faults[] = {
    {gathers_elsewhere, "the model's step has no MATMUL_NT of a = layer 1"},
    {gathers_another_layer, "the model's step has no MATMUL_NT of a = layer 1"},
    {scatters_over_replicas, "it adds a shard to what is not the same part of its bucket"},
    {adds_to_another_layer, "which is no gradient of the whole batch"},
    {forgets_microbatch, "which is no gradient of the whole batch"},
    {counts_microbatch_twice, "would count twice"},
    {sums_own_shards, "it reduces shards"},
    {counts_replicas, "reducing it would count it 2 times"},
    {updates_another_layer, "expected gradient of model.layers.1.self_attn.q_proj.weight"},
    {keeps_whole_state, "are not the 7680 elements of bucket layer1"},
};

static void test_faults(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(a, job_text);
    struct topo *topo = random_host(a, 8);
    struct decision d = text_decision(a, job, topo, "dp=4 zero=3 shard=2 prefetch=1 microbatch=1");
    struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_EQUAL(verify_plan(a, p, true)->nviolations, 0);
    for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
        struct plan wrong = *p;
        struct program *q = mutate_copy(p->train[0]);
        wrong.train = &q;
        faults[i].make(q);
        const struct verdict *v = verify_plan(a, &wrong, false);
        bool said = false;
        for (uint32_t k = 0; k < v->nviolations; k++)
            said |= strstr(v->violations[k].message, faults[i].says) != NULL;
        CU_ASSERT(said);
        for (uint32_t k = 0; k < v->nviolations && !said; k++)
            printf("\n    fault %zu: property %u: %.600s", i, v->violations[k].property, v->violations[k].message);
        if (!v->nviolations)
            printf("\n    fault %zu was not found", i);
        program_free(q);
    }
    plan_close(p);
    arena_free(a);
}

/* ZeRO 3 holds a shard of the weights and of their gradients, and buffers of few pieces. */
static void test_memory(void)
{
    uint64_t bytes[4];
    for (uint32_t zero = 0; zero < 4; zero++) {
        struct arena *a = arena_new();
        const char *why = "";
        struct job *job = text_job(a, job_text);
        struct topo *topo = random_host(a, 8);
        struct decision d = text_decision(a, job, topo, arena_printf(a, "dp=8 zero=%u microbatch=1", zero));
        struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        bytes[zero] = 0;
        for (uint32_t b = 0; b < p->train[0]->nbuffers; b++)
            if (p->train[0]->buffers[b].bucket != NONE || !strncmp(p->train[0]->buffers[b].name, "grad.", 5))
                bytes[zero] += p->train[0]->buffers[b].bytes;
        plan_close(p);
        arena_free(a);
    }
    /* of four parts (parameters, gradients, two moments) one after the other is an eighth, vectors apart */
    CU_ASSERT(bytes[1] * 16 < bytes[0] * 10 && bytes[2] * 16 < bytes[0] * 7 && bytes[3] * 16 < bytes[0] * 3);
}

/* What the cost model says a rank needs, against what placement gave it: where weights and their state dominate. */
static void test_estimate(void)
{
    static const char *const decisions[] = {"dp=8 zero=1 microbatch=1 full=1", "dp=8 zero=2 microbatch=1 full=1",
                                            "dp=8 zero=3 microbatch=1 full=1 prefetch=1",
                                            "dp=8 zero=3 shard=4 microbatch=1 full=1 prefetch=1",
                                            "pp=2 dp=4 zero=2 microbatch=1 full=1",
                                            "tp=2 sp=1 dp=4 zero=3 shard=2 microbatch=1 full=1 prefetch=1"};
    for (size_t i = 0; i < ARRAY_LEN(decisions); i++) {
        struct arena *a = arena_new();
        const char *why = "";
        const char *text = replaced(a, job_text, "repeat 3", "repeat 9");
        struct job *job = text_job(a, replaced(a, replaced(a, text, "width 32", "width 256"), "swiglu(48)", "swiglu(768)"));
        struct topo *topo = random_host(a, 8);
        struct decision d = text_decision(a, job, topo, decisions[i]);
        struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
        struct estimate e;
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        cost_estimate(a, cost_new(a, job, topo, &d), &e);
        double placed = (double)fit_peak_bytes(p), off = (double)e.peak_bytes / placed - 1;
        CU_ASSERT(off > -0.05 && off < 0.05);
        if (off <= -0.05 || off >= 0.05)
            printf("\n    %s: estimated %llu, placed %.0f: %.1f %% off", decisions[i], (unsigned long long)e.peak_bytes,
                   placed, 100 * off);
        plan_close(p);
        arena_free(a);
    }
}

static const struct host_fault {
    size_t operand; /* of a fetching COPY */
    const char *says;
} host_faults[] = {
    {OPND(COPY, x), "to update"},
    {OPND(COPY, y), "of which 7680 bytes were not written in this step"},
};

/* State in host memory: less on the device by as much, the same file and text, and copies of the right thing. */
static void test_host(void)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(a, job_text);
    struct topo *topo = random_host(a, 8);
    struct decision d = text_decision(a, job, topo, "dp=2 tp=2 zero=1 microbatch=1");
    struct plan *all = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
    job->wishes.offload = OFFLOAD_OPTIMIZER;
    struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_FATAL(p && all);
    CU_ASSERT_EQUAL(verify_plan(a, p, true)->nviolations, 0);
    CU_ASSERT(fit_peak_bytes(p) < fit_peak_bytes(all));
    uint64_t state = 0;
    for (uint32_t b = 0; b < p->train[0]->nbuffers; b++) {
        enum buffer_kind kind = p->train[0]->buffers[b].kind;
        CU_ASSERT_EQUAL(p->train[0]->buffers[b].host, kind == BUFFER_MOMENT1 || kind == BUFFER_MOMENT2);
        state += kind == BUFFER_MOMENT1 || kind == BUFFER_MOMENT2 ? p->train[0]->buffers[b].bytes : 0;
    }
    CU_ASSERT(state <= program_host_bytes(p->train[0]) && program_host_bytes(p->train[0]) < state + 256 * 20);
    CU_ASSERT_EQUAL(program_host_bytes(p->eval[0]), program_host_bytes(p->train[0]));

    char *text = NULL;
    struct error error;
    size_t size, n, again_size;
    uint8_t *bytes, *again;
    struct program *decoded, *parsed;
    CU_ASSERT_EQUAL_FATAL(program_encode(p->train[0], &bytes, &size), STATUS_OK);
    CU_ASSERT_EQUAL_FATAL(program_decode(bytes, size, &decoded, &error), STATUS_OK);
    FILE *f = open_memstream(&text, &n);
    program_print(decoded, f);
    fclose(f);
    CU_ASSERT_EQUAL_FATAL(program_parse(text, n, &parsed, &error), STATUS_OK);
    CU_ASSERT_EQUAL_FATAL(program_encode(parsed, &again, &again_size), STATUS_OK);
    CU_ASSERT(size == again_size && !memcmp(bytes, again, size));
    program_free(decoded);
    free(bytes);
    free(again);
    free(text);

    uint32_t copy = find_insn(parsed, OP_COPY, "v.layer1", OPND(COPY, x), 0);
    parsed->insns[copy].op = OP_COPY;
    parsed->insns[copy].queue = QUEUE_COMPUTE;
    CU_ASSERT_EQUAL(program_check(parsed, &error), STATUS_INPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "operand x: only copies on queue copy reach host memory"));
    parsed->insns[copy].queue = QUEUE_COPY;
    uint32_t device = find_buffer(parsed, "param.layer1");
    parsed->buffers[device].offset = 0;
    CU_ASSERT_EQUAL(program_check(parsed, &error), STATUS_INPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "(param.layer1): offset 0 lies in the"));
    program_free(parsed);
    for (size_t i = 0; i < ARRAY_LEN(host_faults); i++) {
        struct plan wrong = *p;
        struct program *q = mutate_copy(p->train[0]);
        wrong.train = &q;
        copy = find_insn(q, OP_COPY, "v.layer1", OPND(COPY, x), 0);
        struct operand *o = at(q, copy, host_faults[i].operand);
        o->buffer = host_faults[i].operand == OPND(COPY, x) ? find_buffer(q, "m.layer1") : find_buffer(q, "grad.layer2");
        const struct verdict *v = verify_plan(a, &wrong, false);
        bool said = false;
        for (uint32_t k = 0; k < v->nviolations; k++)
            said |= strstr(v->violations[k].message, host_faults[i].says) != NULL;
        CU_ASSERT(said);
        for (uint32_t k = 0; k < v->nviolations && !said; k++)
            printf("\n    host fault %zu: property %u: %.600s", i, v->violations[k].property, v->violations[k].message);
        program_free(q);
    }
    plan_close(all);
    plan_close(p);
    arena_free(a);
}

void suite_shards(void);
void suite_shards(void)
{
    CU_pSuite s = CU_add_suite("shards", NULL, NULL);
    CU_add_test(s, "faults of gathers, scatters and replicas are found", test_faults);
    CU_add_test(s, "each stage of ZeRO holds less", test_memory);
    CU_add_test(s, "as much as was estimated", test_estimate);
    CU_add_test(s, "state in host memory", test_host);
}
