/* Faults in real plans are found, and named.
 *
 * Small plans over all dimensions get one fault each (mutate.h).  The verifier must report it, at an
 * instruction that the fault touches, that meets it, or that uses its bytes.  A mutant that it accepts must
 * be harmless: the brute-force closure over all ranks (oracle.h) finds neither deadlock nor race, and runs
 * under adversarial orders compute the same losses and gradient norms as the plan without the fault. */

#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/mutate.h"
#include "tests/compiler/verify/oracle.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NMUTANTS 10500 /* all plans together */
#define NSEEDS 2
#define TOLERANCE 1e-5

static const char llama[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 2 {\n        layer {\n            attn gqa(heads=4, kv=2, rope=10_000)\n"
    "            ffn swiglu(48)\n        }\n    }\n    head untied\n}\n"
    "train {\n    sequence 8\n    batch 8 sequences\n    precision fp32\n"
    "    optimizer adamw(lr=1e-3)\n}\n";
static const char gpt2[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm layernorm\n    embed tokens\n"
    "    embed positions(8)\n    repeat 2 {\n        layer {\n            attn mha(heads=4, bias=yes)\n"
    "            ffn gelu(64, bias=yes)\n        }\n    }\n    head tied\n}\n"
    "train {\n    sequence 8\n    batch 8 sequences\n    precision fp32\n"
    "    optimizer adamw(lr=1e-3)\n}\n";
static const char deep[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 16\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 3 {\n        layer {\n            attn gqa(heads=2, kv=1, rope=10_000, bias=yes)\n"
    "            ffn geglu(32)\n        }\n    }\n    head tied\n}\n"
    "train {\n    sequence 8\n    batch 8 sequences\n    precision fp32\n"
    "    optimizer sgd(lr=0.1, momentum=0.9)\n}\n";
static const struct {
    const char *model, *decision;
} plans[] = {
    {llama, "tp=2 sp=1 pp=2 dp=2 zero=1 microbatch=2"},
    {llama, "tp=2 pp=2 dp=2 zero=0 microbatch=1"},
    {gpt2, "tp=2 sp=1 pp=2 dp=2 zero=1 microbatch=1 gpipe=1"},
    {gpt2, "tp=2 pp=2 dp=1 microbatch=2"},
    {deep, "tp=1 pp=3 dp=2 zero=1 microbatch=2"},
    {gpt2, "tp=4 sp=1 pp=1 dp=2 zero=0 microbatch=2"},
    {llama, "tp=2 sp=1 pp=2 dp=1 microbatch=2 full=1"},
    {llama, "tp=1 pp=2 dp=2 zero=1 microbatch=2 full=1 gpipe=1"},
    {gpt2, "tp=1 pp=1 dp=4 zero=1 microbatch=1"},
    {llama, "tp=1 pp=1 dp=1 microbatch=4"},
};
#define NPLANS (sizeof plans / sizeof *plans)

struct tally {
    uint32_t made, survived, harmless, unnamed, disagreed;
    uint32_t killed[10];
};

/* ---- is a message about the fault? ---- */

static bool overlaps_site(const struct mutant *m, uint32_t role, bool evaluation, uint32_t insn)
{
    const struct program *p = evaluation ? m->plan.eval[role] : m->plan.train[role];
    for (uint32_t k = 0; k < isa_info((enum op)p->insns[insn].op)->noperands; k++) {
        const struct operand *o = &p->operands[p->insns[insn].operand + k];
        if (o->buffer == NONE)
            continue;
        uint64_t size = isa_dtype_bytes((enum dtype)o->dtype),
                 start = p->buffers[o->buffer].offset + o->offset;
        uint64_t span = o->slot == UINT16_MAX ? 0 : (uint64_t)p->slots[o->slot].most * o->slot_stride;
        uint64_t end = start + span + ((uint64_t)(o->rows - 1) * o->ld + o->cols) * size;
        for (uint32_t s = 0; s < m->nsites; s++)
            if (m->sites[s].role == role && m->sites[s].evaluation == evaluation && m->sites[s].start < end &&
                start < m->sites[s].end)
                return true;
    }
    return false;
}

/* a fault in what a role sends is seen where it is used: one step of messages is followed */
static bool meets_site(const struct mutant *m, uint32_t role, bool evaluation, uint32_t insn)
{
    const struct program *p = evaluation ? m->plan.eval[role] : m->plan.train[role];
    for (uint32_t s = 0; s < m->nsites; s++) {
        const struct mutation_site *x = &m->sites[s];
        if (x->insn == NONE || x->evaluation != evaluation)
            continue;
        const struct program *q = evaluation ? m->plan.eval[x->role] : m->plan.train[x->role];
        if (x->insn < q->ninsns && (q->insns[x->insn].seq + 4) / 8 == (p->insns[insn].seq + 4) / 8)
            return true;
    }
    return false;
}

/* a collective across roles is one instruction: does any member's part of it use the bytes? */
static bool member_overlaps(const struct mutant *m, uint32_t role, bool evaluation, uint32_t insn)
{
    const struct program *p = evaluation ? m->plan.eval[role] : m->plan.train[role];
    if (isa_info((enum op)p->insns[insn].op)->unit != UNIT_COLLECTIVE)
        return false;
    for (uint32_t r = 0; r < m->plan.nroles; r++) {
        const struct program *q = evaluation ? m->plan.eval[r] : m->plan.train[r];
        for (uint32_t i = 0; i < q->ninsns; i++)
            if (q->insns[i].seq == p->insns[insn].seq && overlaps_site(m, r, evaluation, i))
                return true;
    }
    return false;
}

static bool about(const struct mutant *m, uint32_t role, bool evaluation, uint32_t insn)
{
    for (uint32_t s = 0; s < m->nsites; s++)
        if (m->sites[s].role == role && m->sites[s].evaluation == evaluation && m->sites[s].insn == insn)
            return true;
    return overlaps_site(m, role, evaluation, insn) || meets_site(m, role, evaluation, insn) ||
           member_overlaps(m, role, evaluation, insn);
}

/* "buffer NAME" of a buffer that the fault touches */
static bool names_buffer(const struct mutant *m, const struct violation *v)
{
    const struct program *p = v->evaluation ? m->plan.eval[v->role] : m->plan.train[v->role];
    for (uint32_t b = 0; b < p->nbuffers; b++) {
        char text[64];
        snprintf(text, sizeof text, "buffer %s ", p->buffers[b].name);
        for (uint32_t s = 0; s < m->nsites && strstr(v->message, text); s++)
            if (m->sites[s].role == v->role && m->sites[s].evaluation == v->evaluation &&
                m->sites[s].start < p->buffers[b].offset + p->buffers[b].bytes &&
                p->buffers[b].offset < m->sites[s].end)
                return true;
    }
    return false;
}

/* A collective on another queue no longer orders what stood before it with what stands after it. */
static bool lost_order(const struct mutant *m, const struct violation *v)
{
    const struct program *p = v->evaluation ? m->plan.eval[v->role] : m->plan.train[v->role];
    const char *other = strstr(v->message, "bytes that instruction ");
    if (m->kind != MUTATE_QUEUE || v->property != 4 || !other)
        return false;
    unsigned long i = strtoul(other + strlen("bytes that instruction "), NULL, 10);
    return i < p->ninsns && p->insns[i].seq < m->seq && m->seq < p->insns[v->insn].seq;
}

static bool names_fault(const struct mutant *m, const struct violation *v)
{
    if (m->global || v->role == NONE)
        return true;
    if (v->insn == NONE)
        return v->property == 1 || names_buffer(m, v);
    if (about(m, v->role, v->evaluation, v->insn) || lost_order(m, v))
        return true;
    uint32_t role = v->role;
    for (const char *s = v->message; *s; s++) {
        if (!strncmp(s, "role ", 5))
            role = (uint32_t)strtoul(s + 5, NULL, 10);
        if (strncmp(s, "instruction ", 12) != 0 || role >= m->plan.nroles)
            continue;
        const struct program *p = v->evaluation ? m->plan.eval[role] : m->plan.train[role];
        unsigned long i = strtoul(s + 12, NULL, 10);
        if (i < p->ninsns && about(m, role, v->evaluation, (uint32_t)i))
            return true;
    }
    return false;
}

/* ---- do survivors compute the same? ---- */

static void write_tokens(const char *path)
{
    FILE *f = fopen(path, "wb");
    uint64_t state = 1;
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    for (int i = 0; i < 2000; i++) {
        uint16_t token = (uint16_t)random_below(&state, 97);
        fwrite(&token, sizeof token, 1, f);
    }
    fclose(f);
}

/* losses, norms and held-out losses of a run */
struct outcome {
    struct e2e_log log;
    size_t evals;
    double eval[E2E_STEPS];
};

static bool read_evals(const char *path, struct outcome *o)
{
    char line[1024];
    FILE *f = fopen(path, "r");
    o->evals = 0;
    while (f && o->evals < E2E_STEPS && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "\"eval_loss\": ");
        if (at)
            o->eval[o->evals++] = strtod(at + strlen("\"eval_loss\": "), NULL);
    }
    if (f)
        fclose(f);
    return o->evals > 0;
}

static bool run(const struct plan *p, const char *folder, const char *data, unsigned seed, struct outcome *o)
{
    char error[512], path[E2E_PATH + 32], out[E2E_PATH + 32];
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    snprintf(out, sizeof out, "%s/out.txt", folder);
    char plan[E2E_PATH + 32];
    snprintf(plan, sizeof plan, "%s/plan", folder);
    if (plan_write(p, plan, true, error, sizeof error) != STATUS_OK) {
        printf("\n    %s", error);
        return false;
    }
    return !e2e_command(out,
                        "%s/llmrun '%s' --data '%s' --eval '%s' --eval-every 1 --steps 3 --watchdog 20 "
                        "--quiet --log '%s' "
                        "--shuffle-queues %u",
                        e2e_build(), plan, data, data, path, seed) &&
           e2e_log_read(path, &o->log) && o->log.steps == 3 && read_evals(path, o);
}

static bool runs_alike(const struct mutant *m, const char *folder, const char *data,
                       const struct outcome *want)
{
    for (unsigned seed = 1; seed <= NSEEDS; seed++) {
        struct outcome o;
        if (!run(&m->plan, folder, data, seed, &o) || o.evals != want->evals)
            return false;
        for (size_t s = 0; s < o.log.steps; s++)
            if (e2e_relative(o.log.loss[s], want->log.loss[s]) > TOLERANCE ||
                e2e_relative(o.log.grad_norm[s], want->log.grad_norm[s]) > 10 * TOLERANCE)
                return false;
        for (size_t s = 0; s < o.evals; s++)
            if (e2e_relative(o.eval[s], want->eval[s]) > TOLERANCE)
                return false;
    }
    return true;
}

struct bench {
    char folder[E2E_PATH], data[E2E_PATH + 32];
    struct outcome want;
};

static void judge(struct arena *a, const struct mutant *m, const struct bench *b, struct tally *t,
                  const char *what)
{
    const struct verdict *full = verify_plan(a, &m->plan, true);
    t->disagreed += full->nviolations > 0;
    if (full->nviolations)
        printf("\n    %s: full disagrees: %.400s", what, full->violations[0].message);
    const char *why = oracle_order(a, &m->plan, false);
    if (!why)
        why = oracle_order(a, &m->plan, true);
    if (!why && m->values && !runs_alike(m, b->folder, b->data, &b->want))
        why = "runs differ";
    t->harmless += !why;
    if (why) {
        const struct program *p =
            m->nsites ? (m->sites[0].evaluation ? m->plan.eval : m->plan.train)[m->sites[0].role] : NULL;
        printf("\n    %s %s survived, but %s; ", what, mutation_name(m->kind), why);
        for (uint32_t s = 0; s < m->nsites; s++)
            if (p && m->sites[s].insn != NONE && m->sites[s].insn < p->ninsns) {
                program_print_insn(p, m->sites[s].insn, stdout);
                break;
            }
    }
}

/* more of the kinds that need luck, fewer of those where any draw is harmless */
static uint32_t weight(enum mutation k)
{
    switch ((unsigned)k) {
    case MUTATE_DROP:
        return 5;
    case MUTATE_ARENA:
    case MUTATE_SEQ:
    case MUTATE_QUEUE:
    case MUTATE_GPU:
    case MUTATE_DUPLICATE:
    case MUTATE_SWAP:
        return 1;
    }
    return 2;
}

static void mutate_plan(const struct plan *p, const char *what, uint64_t seed, uint32_t count,
                        struct bench *b, struct tally *tallies)
{
    uint32_t kinds = 0, total = 0;
    enum mutation list[4 * NMUTATIONS];
    for (unsigned k = 0; k < NMUTATIONS; k++)
        for (uint32_t w = 0; w < weight((enum mutation)k) && kinds < 4 * NMUTATIONS; w++)
            list[kinds++] = (enum mutation)k;
    for (uint32_t draws = 0; total < count && draws < 20 * count; draws++) {
        struct arena *a = arena_new();
        struct mutant m;
        enum mutation kind = list[random_below(&seed, kinds)];
        struct tally *t = &tallies[kind];
        if (!mutate(a, p, kind, &seed, &m)) {
            arena_free(a);
            continue;
        }
        total++;
        t->made++;
        const struct verdict *v = verify_plan(a, &m.plan, false);
        if (v->nviolations) {
            bool named = false;
            for (uint32_t i = 0; i < v->nviolations && !named; i++)
                named = names_fault(&m, &v->violations[i]);
            t->killed[v->violations[0].property]++;
            t->unnamed += !named;
            if (!named && getenv("LLMC_SHOW"))
                printf("\n    %s %s not named: %.600s", what, mutation_name(kind), v->violations[0].message);
        } else {
            t->survived++;
            judge(a, &m, b, t, what);
        }
        mutant_free(&m);
        arena_free(a);
    }
}

static void test_mutants(void)
{
    struct tally tallies[NMUTATIONS] = {0}, sum = {0};
    struct bench b;
    uint32_t per_plan = (e2e_quick() ? 300u : NMUTANTS) / (uint32_t)NPLANS;
    e2e_folder(b.folder, "mutation");
    snprintf(b.data, sizeof b.data, "%s/tokens.bin", b.folder);
    write_tokens(b.data);
    for (size_t i = 0; i < NPLANS; i++) {
        struct arena *a = arena_new();
        const char *why = "";
        struct job *job = text_job(a, plans[i].model);
        struct topo *topo = random_host(a, 8);
        struct decision d = text_decision(a, job, topo, plans[i].decision);
        struct plan *raw = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(raw);
        struct plan *p = mutate_spread(a, raw, 8);
        CU_ASSERT_EQUAL(verify_plan(a, p, true)->nviolations, 0);
        CU_ASSERT_PTR_NULL(oracle_order(a, p, false));
        CU_ASSERT_TRUE_FATAL(run(p, b.folder, b.data, 99, &b.want));
        mutate_plan(p, plans[i].decision, i + 1, per_plan, &b, tallies);
        plan_close(raw);
        for (uint32_t r = 0; r < p->nroles; r++) {
            program_free(p->train[r]);
            program_free(p->eval[r]);
        }
        ranks_free(p->ranks);
        arena_free(a);
    }
    printf("\n    %-20s %6s %6s %8s %7s   killed by property 1..8\n", "mutation", "made", "alive", "harmless",
           "unnamed");
    for (unsigned k = 0; k < NMUTATIONS; k++) {
        const struct tally *t = &tallies[k];
        printf("    %-20s %6u %6u %8u %7u  ", mutation_name((enum mutation)k), t->made, t->survived,
               t->harmless, t->unnamed);
        for (int p = 1; p <= 8; p++)
            printf(" %5u", t->killed[p]);
        printf("\n");
        sum.made += t->made;
        sum.survived += t->survived;
        sum.harmless += t->harmless;
        sum.unnamed += t->unnamed;
        sum.disagreed += t->disagreed;
    }
    printf("    %-20s %6u %6u %8u %7u\n  ", "all", sum.made, sum.survived, sum.harmless, sum.unnamed);
    CU_ASSERT_TRUE(e2e_quick() || sum.made >= 10000);
    CU_ASSERT_EQUAL(sum.survived, sum.harmless);
    CU_ASSERT_EQUAL(sum.disagreed, 0);
    CU_ASSERT_EQUAL(sum.unnamed, 0);
}

void suite_verify_mutation(void);
void suite_verify_mutation(void)
{
    CU_pSuite s = CU_add_suite("verify_mutation", NULL, NULL);
    CU_add_test(s, "ten thousand faults are found and named", test_mutants);
}
