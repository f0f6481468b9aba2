/* Changes of every field over plans of all dimensions, and the count of what became of them: see fields.h.
 *
 * What `llmc check` asks of a folder is asked of each changed plan.  Fields are drawn evenly, whatever their
 * table's length, a quarter of the draws being references to slots; every slot that the mesh allows is
 * declared, so that each reference can become any of them, and in a full run does.  Reports fields that were
 * never refused or never made, and holes: accepted, with harm. */

#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/fields.h"
#include "tests/compiler/verify/oracle.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <unistd.h>

#define HEAD(width) "llmc 1\nmodel tiny {\n    vocab 32\n    width " width "\n"
#define LAYERS(n, attn, ffn)                                                                                 \
    "    repeat " n " {\n        layer {\n            attn " attn "\n            " ffn "\n        }\n    "   \
                                                                                       "}\n"
#define TRAIN(precision, optimizer, rest)                                                                    \
    "}\ntrain {\n    sequence 8\n    batch 4 sequences\n    precision " precision                            \
    "\n    optimizer " optimizer "\n" rest "}\n"
#define ADAMW "adamw(lr=1e-3, weight_decay=0.1)"
#define PLAIN TRAIN("fp32", ADAMW, "")
#define LLAMA(n, head)                                                                                       \
    HEAD("8")                                                                                                \
    "    norm rmsnorm\n    embed tokens\n" LAYERS(n, "gqa(heads=4, kv=2, rope=10_000)",                      \
                                                  "ffn swiglu(8)") "    head " head "\n"
#define EXPERTS(more) "moe swiglu(4) {\n experts 4\n active 2\n" more "}"
#define MOE(more)                                                                                            \
    HEAD("8")                                                                                                \
    "    norm rmsnorm\n    embed tokens\n" LAYERS("2", "gqa(heads=2, kv=2, rope=10_000)",                    \
                                                  EXPERTS(more)) "    head untied\n"
#define SOFTMAX "router softmax\n"
#define SIGMOID "shared 1\n balance 0.01\n router sigmoid(groups=2, pick=1, bias=yes, scale=2.5)\n"

static const char llama[] = LLAMA("2", "untied") PLAIN, four[] = LLAMA("4", "tied") PLAIN,
                  half[] = LLAMA("2", "untied") TRAIN("bf16", ADAMW, "    clip 1.0\n"),
                  mixed[] = LLAMA("2", "tied") TRAIN("bf16(grads=fp32)", ADAMW, ""),
                  eight[] = LLAMA("2", "untied") TRAIN("fp8(recipe=tensor)", ADAMW, ""),
                  sgd[] = LLAMA("2", "tied") TRAIN("fp32", "sgd(lr=0.1)", ""),
                  momentum[] = LLAMA("2", "untied") TRAIN("bf16", "sgd(lr=0.1, momentum=0.9)", ""),
                  unclipped[] = LLAMA("2", "untied") TRAIN("fp32", ADAMW, "    clip none\n"),
                  seams[] = LLAMA("4", "untied")
                      TRAIN("fp32", ADAMW, "    clip 1.0\n") "plan {\n    post_validation yes\n}\n",
                  state[] = LLAMA("2", "untied") PLAIN "plan {\n    offload [optimizer]\n}\n",
                  kept[] = LLAMA("2", "untied")
                      TRAIN("bf16", ADAMW, "") "plan {\n    offload [optimizer, activations]\n}\n",
                  gpt2[] = HEAD("8") "    norm layernorm\n    embed tokens\n    embed positions(8)\n" LAYERS(
                      "2", "mha(heads=2, bias=yes)", "ffn gelu(8, bias=yes)") "    head tied\n" PLAIN,
                  gemma[] = HEAD("8") "    norm rmsnorm(place=both)\n    embed tokens(scale=yes)\n" LAYERS(
                      "2", "gqa(heads=2, kv=2, rope=10_000, softcap=5, window=3)",
                      "ffn geglu(8)") "    head tied(softcap=3)\n" PLAIN,
                  qwen3[] = HEAD("8") "    norm rmsnorm\n    embed tokens\n" LAYERS(
                      "2", "gqa(heads=4, kv=2, rope=10_000, qk_norm=head)",
                      "ffn swiglu(8)") "    head untied\n" PLAIN,
                  latent[] = HEAD("8") "    norm rmsnorm\n    embed tokens\n" LAYERS(
                      "2", "mla(heads=2, q_rank=4, kv_rank=4, nope=2, rope=2, v=2)",
                      "ffn swiglu(8)") "    head untied\n" PLAIN,
                  experts[] = MOE(SIGMOID) PLAIN, capped[] = MOE("capacity 1.0\n " SOFTMAX) PLAIN,
                  roomy[] = MOE(SIGMOID) TRAIN("fp32", ADAMW, "    expert_room 1.8\n"),
                  tight[] = MOE(SOFTMAX) TRAIN("fp32", ADAMW, "    expert_room 1\n"),
                  cut[] = HEAD("8") "    norm rmsnorm\n    embed tokens\n" LAYERS(
                      "2", "gqa(heads=4, kv=4, rope=10_000, qk_norm=head)",
                      EXPERTS(SOFTMAX)) "    head untied\n" PLAIN,
                  ahead[] = HEAD("8") "    norm rmsnorm\n    embed tokens\n" LAYERS(
                      "2", "gqa(heads=2, kv=2, rope=10_000)",
                      "ffn swiglu(8)") "    predict 1 ahead\n    head untied\n" PLAIN;
static const struct {
    const char *name, *model, *decision;
    bool lacks; /* its experts lack room */
} plans[] = {{"llama", llama, "dp=2 zero=1 microbatch=1", false},
             {"half", half, "dp=2 zero=1 microbatch=1", false},
             {"tight", tight, "dp=2 ep=2 microbatch=1", true},
             {"llama", llama, "tp=2 sp=1 pp=2 dp=2 zero=1 microbatch=1", false},
             {"roomy", roomy, "tp=2 sp=1 dp=2 ep=4 nodes=2 microbatch=1", false},
             {"seams", seams, "pp=2 dp=2 zero=1 microbatch=1 schedule=zb_h2", false},
             {"kept", kept, "dp=2 zero=1 microbatch=1", false},
             {"llama", llama, "ring=2 dp=2 zero=1 microbatch=1", false},
             {"half", half, "dp=4 zero=3 shard=2 prefetch=1 microbatch=1", false},
             {"tight", tight, "dp=4 ep=4 nodes=2 zero=1 microbatch=1 full=1", true},
             {"llama", llama, "tp=2 pp=2 microbatch=1", false},
             {"llama", llama, "microbatch=2", false},
             {"llama", llama, "dp=4 zero=2 shard=2 microbatch=1", false},
             {"llama", llama, "tp=2 dp=2 zero=3 prefetch=1 microbatch=1 full=1", false},
             {"llama", llama, "all_gather=2 pp=2 microbatch=1", false},
             {"llama", llama, "all_to_all=2 dp=2 zero=1 microbatch=1", false},
             {"llama", llama, "ring=4 microbatch=1 full=1", false},
             {"gpt2", gpt2, "tp=2 sp=1 pp=2 dp=2 zero=1 microbatch=1 gpipe=1", false},
             {"gpt2", gpt2, "tp=2 pp=2 microbatch=1 schedule=dualpipe", false},
             {"gpt2", gpt2, "all_gather=2 dp=2 zero=2 microbatch=1", false},
             {"four", four, "tp=2 sp=1 pp=2 vpp=2 microbatch=1 schedule=zb_v full=1", false},
             {"four", four, "pp=2 vpp=2 dp=2 zero=1 microbatch=1 schedule=interleaved", false},
             {"four", four, "pp=2 vpp=2 tp=2 sp=1 microbatch=1 schedule=combined_1f1b", false},
             {"four", four, "pp=4 dp=2 zero=1 microbatch=1", false},
             {"four", four, "pp=2 vpp=2 microbatch=1 schedule=dualpipe_v", false},
             {"mixed", mixed, "pp=2 dp=2 zero=1 microbatch=1 schedule=zb_h1", false},
             {"mixed", mixed, "tp=2 sp=1 dp=2 microbatch=1", false},
             {"eight", eight, "tp=2 dp=2 zero=1 microbatch=1", false},
             {"eight", eight, "pp=2 dp=2 microbatch=1 full=1", false},
             {"sgd", sgd, "dp=2 zero=1 microbatch=1", false},
             {"momentum", momentum, "tp=2 dp=2 zero=1 microbatch=1", false},
             {"unclipped", unclipped, "pp=2 dp=2 microbatch=1", false},
             {"seams", seams, "pp=2 vpp=2 microbatch=1 schedule=zb_v", false},
             {"state", state, "tp=2 dp=2 zero=1 microbatch=1", false},
             {"gemma", gemma, "tp=2 sp=1 pp=2 microbatch=1", false},
             {"qwen3", qwen3, "tp=2 dp=2 zero=1 microbatch=1", false},
             {"latent", latent, "tp=2 sp=1 pp=2 microbatch=1", false},
             {"experts", experts, "dp=2 ep=2 zero=1 microbatch=1", false},
             {"experts", experts, "tp=2 sp=1 pp=2 dp=2 ep=2 microbatch=1 full=1", false},
             {"capped", capped, "dp=2 ep=2 microbatch=1", false},
             {"tight", tight, "pp=2 dp=2 ep=2 microbatch=1 full=1", true},
             {"cut", cut, "tp=4 sp=1 dp=2 ep=2 zero=1 microbatch=1", false},
             {"ahead", ahead, "pp=2 dp=2 zero=1 microbatch=1", false}};
enum { NPLANS = sizeof plans / sizeof *plans };

struct tally {
    uint32_t made, refused[9], harmless, people, holes;
};
struct run {
    struct tally *tallies; /* by field */
    uint64_t seed, holes;
};

/* what the reader of plan.json refuses */
static bool readable(struct arena *a, const struct plan *p)
{
    const struct decision *d = &p->decision;
    uint32_t axes = 0;
    const char *why;
    for (int i = 0; i < NAXES; i++)
        axes |= 1u << d->order[i];
    return axes == (1u << NAXES) - 1 && d->tp && d->cp && d->pp && d->vpp && d->dp && d->ep && d->etp &&
           d->pp == p->nroles && decision_legal(a, p->job, p->topo, d, &why);
}

/* as `check` goes through a folder: 0..8 the property that is broken, 9: it holds */
static uint32_t check(struct arena *a, struct plan *p)
{
    if (!readable(a, p))
        return 0;
    p->mesh = decision_mesh(p->job, &p->decision);
    if (p->ranks->nranks != p->mesh.nranks || p->ranks->nroles != p->nroles)
        return 0;
    const struct verdict *v = verify_plan(a, p, false);
    return v->nviolations ? v->violations[0].property : 9;
}

static const struct field *draw_field(uint64_t *random)
{
    bool slots = random_below(random, 4) == 0;
    const struct field *f = &fields_all[random_below(random, fields_n)];
    while (slots && f->type != FIELDS_REDECLARED && (f->type != FIELDS_INDEX || f->of != FIELDS_SLOT))
        f = &fields_all[random_below(random, fields_n)];
    return f;
}

/* what becomes of a change that was made; it is undone */
static void judge(struct arena *a, struct fields_bench *b, struct run *run, const char *what,
                  const struct fields_change *c)
{
    struct tally *t = &run->tallies[c->field - fields_all];
    uint32_t property = check(a, b->plan);
    const char *why = property == 9 ? fields_harm(a, b, c) : NULL;
    bool people = fields_for_people(b->base, c);
    t->made++;
    if (property < 9)
        t->refused[property]++;
    else
        (*(why ? &t->holes : people ? &t->people : &t->harmless))++;
    if (why)
        printf("\n    %s: %s: accepted, but %.600s", what, c->text, why);
    else if (property == 9 && getenv("LLMC_SHOW") && !people)
        printf("\n    %s: %s: harmless", what, c->text);
    run->holes += why != NULL;
    fields_undo(b->plan, c, b->base);
}

static bool change_plan(struct fields_bench *b, struct run *run, const char *what, uint64_t *random)
{
    struct arena *a = arena_new();
    struct fields_change c;
    bool made = fields_change(a, b->plan, draw_field(random), random, &c);
    if (made)
        judge(a, b, run, what, &c);
    arena_free(a);
    return made;
}

/* every reference to a slot made one to each other slot, alone and everywhere */
static void refer_all(struct fields_bench *b, struct run *run, const char *what)
{
    enum { ROOM = 4096 };
    struct fields_site *sites = calloc(ROOM, sizeof *sites);
    uint32_t n = fields_sites(b->plan, sites, ROOM);
    CU_ASSERT(n <= ROOM);
    for (uint32_t i = 0; i < n && i < ROOM; i++)
        for (uint32_t slot = 0; slot <= b->plan->train[sites[i].role]->nslots; slot++)
            for (int everywhere = 0; everywhere < 2; everywhere++) {
                struct arena *a = arena_new();
                struct fields_change c;
                uint64_t value = slot < b->plan->train[sites[i].role]->nslots ? slot : UINT64_MAX;
                if (fields_refer(a, b->plan, &sites[i], value, everywhere, &c))
                    judge(a, b, run, what, &c);
                arena_free(a);
            }
    free(sites);
}

/* memory of no more than a plan needs: a change may not ask the judges for gigabytes */
static void bound_memory(const struct plan *p)
{
    struct topo_gpu *gpu = (struct topo_gpu *)&p->topo->types[p->decision.type].gpu;
    uint64_t most = 0;
    for (uint32_t r = 0; r < p->nroles; r++) {
        most = p->train[r]->arena_bytes > most ? p->train[r]->arena_bytes : most;
        most = p->eval[r]->arena_bytes > most ? p->eval[r]->arena_bytes : most;
    }
    gpu->memory_bytes =
        (gpu->reserve_bytes < gpu->memory_bytes ? gpu->reserve_bytes : gpu->memory_bytes) + most + 65536;
    gpu->memory_bytes += gpu->memory_bytes / 49; /* what is kept free of it */
}

static void change_all(struct arena *a, struct fields_bench *b, struct run *run, const char *what,
                       uint64_t changes, bool all)
{
    uint64_t random = run->seed++;
    const char *why = exact_compare(a, b->base, b->truth, 1).why;
    const struct verdict *v = verify_plan(a, b->plan, true);
    if (v->nviolations)
        why = v->violations[0].message;
    why = why ? why : oracle_order(a, b->plan, false);
    CU_ASSERT_PTR_NULL(why);
    if (why)
        printf("\n    %s, unchanged: %.600s", what, why);
    for (uint64_t made = 0, tries = 0; !why && made < changes && tries < 8 * changes; tries++)
        made += change_plan(b, run, what, &random);
    if (!why && all)
        refer_all(b, run, what);
}

static void run_plan(size_t i, struct run *run, uint64_t changes, bool all)
{
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(a, plans[i].model);
    struct topo *topo = random_host(a, 8);
    struct decision d = text_decision(a, job, topo, plans[i].decision),
                    alone = text_decision(a, job, topo, "microbatch=1");
    struct plan *raw = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
    struct plan *one = raw ? compile_apart(a, job, topo, &alone, &(struct compile_options){0}, &why) : NULL;
    char what[128], folder[E2E_PATH];
    snprintf(what, sizeof what, "%s %s", plans[i].name, plans[i].decision);
    CU_ASSERT(raw && one);
    if (!raw || !one) {
        printf("\n    %s: %.600s", what, why);
        return;
    }
    struct fields_bench b = {.plan = mutate_copy_plan(a, raw)};
    fields_add_slots(b.plan);
    b.base = mutate_copy_plan(a, b.plan);
    bound_memory(b.plan);
    b.truth = exact_truth(a, plans[i].lacks ? b.base : one, &why);
    snprintf(folder, sizeof folder, "%s/fields-%d", e2e_build(), (int)getpid());
    struct fields_host *host = b.truth ? fields_host_new(a, b.base, folder, &why) : NULL;
    b.host = host;
    CU_ASSERT_PTR_NOT_NULL(host);
    if (host) {
        change_all(a, &b, run, what, changes, all);
        fields_host_free(host);
    } else {
        printf("\n    %s: %.600s", what, why);
    }
    plan_close(raw);
    plan_close(one);
    fields_free(b.plan);
    fields_free((struct plan *)b.base);
    arena_free(a);
}

static void print_tallies(const struct run *run, bool all)
{
    struct tally sum = {0};
    printf("\n    %-28s %7s  refused unread or by property 1..8 %32s %8s %6s\n", "table and field", "made",
           "harmless", "people", "holes");
    for (uint32_t f = 0; f <= fields_n; f++) {
        const struct tally *t = f < fields_n ? &run->tallies[f] : &sum;
        char name[64];
        snprintf(name, sizeof name, "%s.%s", f < fields_n ? fields_table_names[fields_all[f].table] : "all",
                 f < fields_n ? fields_all[f].name : "");
        if (all || f == fields_n) {
            printf("    %-28s %7u ", name, t->made);
            for (int p = 0; p < 9; p++)
                printf(" %6u", t->refused[p]);
            printf("  %8u %8u %6u\n", t->harmless, t->people, t->holes);
        }
        sum.made += f < fields_n ? t->made : 0;
        for (int p = 0; p < 9; p++)
            sum.refused[p] += f < fields_n ? t->refused[p] : 0;
        sum.harmless += f < fields_n ? t->harmless : 0;
        sum.people += f < fields_n ? t->people : 0;
        sum.holes += f < fields_n ? t->holes : 0;
    }
    printf("  ");
}

uint64_t fields_run(uint64_t changes, uint64_t seed, bool all_plans)
{
    uint64_t n = all_plans ? NPLANS : 10;
    struct run run = {calloc(fields_n, sizeof *run.tallies), seed, 0};
    for (uint64_t i = 0; i < n; i++) {
        run_plan(i, &run, changes / n + (i < changes % n), all_plans);
        if (all_plans && i % 4 == 3) {
            printf("\n    %llu plans of %llu", (unsigned long long)i + 1, (unsigned long long)n);
            fflush(stdout);
        }
    }
    print_tallies(&run, all_plans);
    free(run.tallies);
    return run.holes;
}
