/* Papers' configurations: GPT as in Megatron-LM (learned positions, biases, tied head) or Llama 3, on DGX
 * A100 with eight HDR adapters (Selene) or on H100 nodes with eight adapters of 400 Gb/s. */

#include "tests/compiler/cost/published.h"

#include "compiler/model/sema.h"

#include <CUnit/CUnit.h>
#include <string.h>

static const char gpt_text[] =
    "llmc 1\nmodel gpt {\n vocab %u\n width %u\n norm layernorm\n embed tokens\n embed positions(%u)\n"
    " repeat %u { layer { attn mha(heads=%u, bias=yes)\n ffn gelu(%u, bias=yes) } }\n head tied\n}\n"
    "train {\n sequence %u\n batch %u sequences\n optimizer adamw\n %s\n}\nplan {\n %s\n}\n";

static const char llama_text[] =
    "llmc 1\nmodel llama {\n vocab %u\n width %u\n norm rmsnorm\n embed tokens\n"
    " repeat %u { layer { attn gqa(heads=%u, kv=%u, rope=500_000)\n ffn swiglu(%u) } }\n head untied\n}\n"
    "train {\n sequence %u\n batch %u sequences\n optimizer adamw\n %s\n}\nplan {\n %s\n}\n";

static const char cluster_text[] =
    "<cluster version=\"1\"><node-type id=\"n\" gpus=\"8\"><gpu model=\"%s\"%s/>"
    "<scale-up kind=\"nvswitch\" bandwidth=\"%s\"/><nic count=\"8\" bandwidth=\"%s\"/></node-type>"
    "<nodes type=\"n\" count=\"%u\"/><fabric medium=\"infiniband\">%s</fabric></cluster>";

static struct source *source_of(struct arena *a, const char *name, const char *text)
{
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){.name = name, .text = text, .size = strlen(text)};
    return s;
}

struct job *published_job(struct arena *a, const struct published_run *r)
{
    uint32_t sequence = r->sequence ? r->sequence : 2048, vocab = r->vocab ? r->vocab
                                                                  : r->kv  ? 128256
                                                                           : 51200;
    const char *train = r->train ? r->train : "precision bf16", *plan = r->plan ? r->plan : "";
    char *text = r->kv ? arena_printf(a, llama_text, vocab, r->width, r->layers, r->heads, r->kv, r->ffn,
                                      sequence, r->batch, train, plan)
                       : arena_printf(a, gpt_text, vocab, r->width, sequence, r->layers, r->heads,
                                      4 * r->width, sequence, r->batch, train, plan);
    struct diag *d = diag_new(a);
    struct job *job = job_parse(a, d, source_of(a, r->name, text), NULL, 0);
    if (!job)
        diag_print(d, stderr, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    return job;
}

struct topo *published_topo(struct arena *a, const struct published_run *r)
{
    char *text = arena_printf(a, cluster_text, r->hopper ? "H100-SXM" : "A100-SXM-80GB",
                              r->roomy ? " memory=\"100TiB\"" : "", r->hopper ? "450GB/s" : "300GB/s",
                              r->hopper ? "400Gb/s" : "200Gb/s", r->gpus / 8,
                              r->tiers ? r->tiers : "<tier name=\"leaf\" span=\"all\"/>");
    struct diag *d = diag_new(a);
    struct topo *topo = topo_parse(a, d, source_of(a, "cluster.xml", text), NULL);
    if (!topo)
        diag_print(d, stderr, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    return topo;
}

const struct candidate *published_best(struct arena *a, const struct published_run *r, struct job *job,
                                       struct topo *topo)
{
    struct diag *d = diag_new(a);
    struct search_result *found = search(a, d, job, topo, 1, 0, false);
    if (!found->ncandidates) {
        fprintf(stderr, "%s:\n", r->name);
        diag_print(d, stderr, false);
    }
    CU_ASSERT_EQUAL_FATAL(found->ncandidates, 1);
    return &found->candidates[0];
}

struct plan *published_plan(struct arena *a, const struct published_run *r)
{
    const char *why = "";
    struct job *job = published_job(a, r);
    struct topo *topo = published_topo(a, r);
    const struct candidate *c = published_best(a, r, job, topo);
    if (!c->emittable)
        fprintf(stderr, "%s: %s\n", r->name, c->cannot);
    CU_ASSERT_FATAL(c->emittable);
    struct plan *p = compile_decision(a, job, topo, &c->decision, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}
