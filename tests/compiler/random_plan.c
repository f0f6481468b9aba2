/* Generator of random plans: draws dimensions until decision_legal() agrees, so every plan is one a user
 * could ask for. */

#include "tests/compiler/random_plan.h"

#include "runtime/program_share.h"

#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>

const char tiny_llama[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 4 {\n        layer {\n            attn gqa(heads=4, kv=2, rope=10_000)\n"
    "            ffn swiglu(48)\n        }\n    }\n    head untied\n}\n"
    "train {\n    sequence 16\n    batch 16 sequences\n    precision fp32\n"
    "    optimizer adamw(lr=1e-3)\n}\n";
const char tiny_gpt2[] =
    "llmc 1\nmodel tiny {\n    vocab 97\n    width 32\n    norm layernorm\n    embed tokens\n"
    "    embed positions(16)\n    repeat 4 {\n        layer {\n            attn mha(heads=4, bias=yes)\n"
    "            ffn gelu(64, bias=yes)\n        }\n    }\n    head tied\n}\n"
    "train {\n    sequence 16\n    batch 16 sequences\n    precision fp32\n"
    "    optimizer adamw(lr=1e-3)\n}\n";

uint32_t random_below(uint64_t *state, uint32_t n)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 11) % n;
}

struct job *text_job(struct arena *a, const char *text)
{
    struct diag *d = diag_new(a);
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){"test.llm", text, strlen(text), false};
    struct job *job = job_parse(a, d, s, NULL, 0);
    if (!job)
        diag_print(d, stderr, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    return job;
}

/* fp32, or one of 16 bits; the loss scale moves at every step */
static const char *pick_precision(uint64_t *state)
{
    static const char *const all[] = {"fp32", "bf16", "fp16(window=1)", "fp16(grads=fp16, scale=1_024, window=1)"};
    return all[random_below(state, 4)];
}

static const char *pick(uint64_t *state, const char *x, const char *y)
{
    return random_below(state, 2) ? x : y;
}

struct job *random_job(struct arena *a, uint64_t *state)
{
    static const uint32_t heads_of[] = {2, 4, 8}, sequence_of[] = {8, 16, 32}, batch_of[] = {8, 16, 24};
    uint32_t heads = heads_of[random_below(state, 3)], width = heads * 8, layers = 1 + random_below(state, 6);
    uint32_t sequence = sequence_of[random_below(state, 3)], batch = batch_of[random_below(state, 3)];
    bool gpt2 = random_below(state, 2);
    uint32_t kv = gpt2 ? heads : heads >> random_below(state, 2), ffn = 16 + 16 * random_below(state, 4);
    struct strbuf b = {0};
    const char *norm = gpt2 ? "layernorm" : pick(state, "rmsnorm", "layernorm(bias=no)");
    strbuf_printf(&b, "llmc 1\nmodel random {\n    vocab %u\n    width %u\n    norm %s\n    embed tokens\n",
                  60 + random_below(state, 60), width, norm);
    if (gpt2)
        strbuf_printf(&b, "    embed positions(%u)\n", sequence + random_below(state, 2) * 8);
    const char *head = pick(state, "tied", "untied");
    const char *kind = gpt2 ? pick(state, "gelu", "relu") : pick(state, "swiglu", "geglu");
    bool bias = gpt2 || random_below(state, 3) == 0;
    strbuf_printf(&b, "    repeat %u {\n        layer {\n            attn gqa(heads=%u, kv=%u%s%s)\n", layers, heads, kv,
                  gpt2 ? "" : ", rope=10_000", bias ? ", bias=yes" : "");
    strbuf_printf(&b, "            ffn %s(%u%s)\n        }\n    }\n    head %s\n}\n", kind, ffn, gpt2 ? ", bias=yes" : "", head);
    const char *clip = pick(state, "1.0", "0.5");
    const char *optimizer =
        random_below(state, 4) ? "adamw(lr=1e-3)" : pick(state, "sgd(lr=0.1, momentum=0.9)", "sgd(lr=0.1)");
    strbuf_printf(&b, "train {\n    sequence %u\n    batch %u sequences\n    precision %s\n", sequence, batch,
                  pick_precision(state));
    strbuf_printf(&b, "    optimizer %s\n    clip %s\n}\n", optimizer, clip);
    char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text_job(a, text);
}

struct topo *random_host(struct arena *a, uint32_t gpus)
{
    struct diag *d = diag_new(a);
    struct source *s = ARENA_NEW(a, struct source);
    char *text = arena_printf(
        a,
        "<?xml version=\"1.0\"?>\n<cluster version=\"1\" name=\"host\">\n"
        "  <node-type id=\"host\" gpus=\"%u\" host-bandwidth=\"2GB/s\">\n"
        "    <gpu model=\"cpu\" memory=\"2GiB\" memory-bandwidth=\"5GB/s\">"
        "<peak dtype=\"fp32\" rate=\"20GFLOP/s\"/><peak dtype=\"bf16\" rate=\"20GFLOP/s\"/></gpu>\n"
        "    <scale-up kind=\"none\"/>\n  </node-type>\n  <nodes type=\"host\" count=\"1\"/>\n</cluster>\n",
        gpus);
    *s = (struct source){"host.xml", text, strlen(text), false};
    struct topo *t = topo_parse(a, d, s, NULL);
    if (!t)
        diag_print(d, stderr, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static void finish_decision(struct arena *a, const struct job *job, const struct topo *topo,
                            struct decision *d)
{
    uint32_t *nodes;
    d->shard = !d->zero ? 1 : d->shard > 1 ? d->shard : d->dp * d->cp;
    d->microbatches = (uint32_t)(job->train.batch / d->dp / (d->microbatch ? d->microbatch : 1));
    d->nstages = d->pp * d->vpp;
    d->gpus_used = d->tp * d->cp * d->pp * d->dp;
    topo_usable(a, topo, 0, &nodes);
    d->nnodes = 1;
    d->nodes = nodes;
}

struct decision text_decision(struct arena *a, const struct job *job, const struct topo *topo,
                              const char *text)
{
    struct decision d = decision_single();
    const struct {
        const char *name;
        uint32_t *at;
    } degree[] = {{"tp=", &d.tp},
                  {"pp=", &d.pp},
                  {"dp=", &d.dp},
                  {"zero=", &d.zero},
                  {"microbatch=", &d.microbatch},
                  {"shard=", &d.shard},
                  {"prefetch=", &d.prefetch},
                  {"vpp=", &d.vpp},
                  {"ep=", &d.ep},
                  {"etp=", &d.etp},
                  {"nodes=", &d.ep_nodes},
                  {"ring=", &d.cp},
                  {"all_gather=", &d.cp},
                  {"all_to_all=", &d.cp}};
    for (const char *p = text; *p; p += strspn(p, " \n")) {
        size_t n = strcspn(p, " \n");
        uint32_t value = (uint32_t)strtoul(p + strcspn(p, "=") + 1, NULL, 10);
        for (size_t i = 0; i < ARRAY_LEN(degree); i++)
            if (!strncmp(p, degree[i].name, strlen(degree[i].name)))
                *degree[i].at = value;
        if (!strncmp(p, "ring=", 5))
            d.context = CONTEXT_RING;
        if (!strncmp(p, "all_gather=", 11))
            d.context = CONTEXT_ALL_GATHER;
        if (!strncmp(p, "all_to_all=", 11))
            d.context = CONTEXT_ALL_TO_ALL;
        if (!strncmp(p, "sp=", 3))
            d.sp = value;
        if (!strncmp(p, "full=", 5) && value)
            d.recompute = RECOMPUTE_FULL;
        if (!strncmp(p, "gpipe=", 6) && value)
            d.schedule = SCHED_GPIPE;
        for (int k = 0; k < SCHED_AUTO && !strncmp(p, "schedule=", 9); k++) {
            const char *name = schedule_name((enum schedule_kind)k);
            if (strlen(name) == n - 9 && !strncmp(p + 9, name, n - 9))
                d.schedule = (enum schedule_kind)k;
        }
        p += n;
    }
    finish_decision(a, job, topo, &d);
    decision_cut(a, &d, job->model.nlayers, NULL, 0, 0);
    return d;
}

/* number of chunks and size of groups for a schedule; plain ones where it needs a pipeline */
static void draw_chunks(uint64_t *state, struct decision *d)
{
    if (d->pp == 1)
        d->schedule = random_below(state, 3) ? SCHED_1F1B : SCHED_GPIPE;
    d->vpp = schedule_chunks(d->schedule) ? schedule_chunks(d->schedule) : 2 + random_below(state, 2);
    if (!schedule_chunks(d->schedule) && random_below(state, 2))
        d->schedule_group = d->pp + random_below(state, 4);
}

struct decision random_decision(struct arena *a, uint64_t *state, const struct job *job,
                                const struct topo *topo, uint32_t max_ranks)
{
    enum schedule_kind schedule = (enum schedule_kind)random_below(state, SCHED_AUTO);
    for (uint32_t drawn = 0;; drawn++) {
        struct decision d = decision_single();
        d.schedule = drawn < 100 ? schedule : SCHED_1F1B; /* with some models no layout is legal */
        const char *why;
        d.tp = 1u << random_below(state, 3);
        d.pp =
            drawn < 100 && schedule != SCHED_1F1B ? 2 + random_below(state, 3) : 1 + random_below(state, 4);
        d.dp = 1 + random_below(state, 4);
        d.zero = random_below(state, 4);
        d.shard = d.dp == 4 && random_below(state, 2) ? 2 : 1;
        d.prefetch = d.zero == 3 ? random_below(state, 4) : 0;
        d.microbatch = 1 + random_below(state, 3);
        d.sp = d.tp > 1 && random_below(state, 2);
        draw_chunks(state, &d);
        d.recompute = random_below(state, 3) ? RECOMPUTE_NONE : RECOMPUTE_FULL;
        d.recompute_layers = d.recompute == RECOMPUTE_FULL && random_below(state, 3) == 0 ? 1 : 0;
        finish_decision(a, job, topo, &d);
        if (d.gpus_used > max_ranks || d.pp * d.vpp > job->model.nlayers)
            continue;
        double *cost = ARENA_ARRAY(a, double, job->model.nlayers);
        for (uint32_t i = 0; i < job->model.nlayers; i++)
            cost[i] = 1 + random_below(state, 4);
        uint32_t head = random_below(state, 3), embed = random_below(state, 3);
        decision_cut(a, &d, job->model.nlayers, cost, embed, head);
        if (decision_legal(a, job, topo, &d, &why) && decision_emittable(a, job, &d, &why))
            return d;
    }
}

struct plan *compile_apart(struct arena *a, struct job *job, struct topo *topo, const struct decision *d,
                           const struct compile_options *o, const char **why)
{
    struct plan *p = compile_decision(a, job, topo, d, o, why);
    for (uint32_t r = 0; p && r < p->nroles; r++) {
        program_unshare(p->train[r]);
        program_unshare(p->eval[r]);
    }
    return p;
}

struct plan *random_plan(struct arena *a, uint64_t seed, uint32_t max_ranks)
{
    uint64_t state = seed * 0x2545f4914f6cdd1du + 1;
    const char *why = "";
    struct job *job = random_job(a, &state);
    struct topo *topo = random_host(a, max_ranks);
    struct decision d = random_decision(a, &state, job, topo, max_ranks);
    struct plan *p = compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
    if (!p)
        fprintf(stderr, "seed %llu: %s: %s\n", (unsigned long long)seed, decision_text(a, job, &d), why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

struct plan *text_plan(struct arena *a, const char *model, const char *decision)
{
    const char *why = "";
    struct job *job = text_job(a, model);
    struct topo *topo = random_host(a, 8);
    struct decision d = text_decision(a, job, topo, decision);
    struct plan *p = compile_apart(a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}
