/* Against choices that people have published: on the same GPUs, with the same batch, sequence, software stack
 * and family of recomputation, the search's own choice is predicted at least as fast.
 *
 * Sources: Korthikanti et al. 2022, table 3 (22B to 1T; full recomputation, and selective with sequence
 * parallelism); Narayanan et al., SC'21, table 1, microbatches and chunks as in the script released with it;
 * Llama 3 report, table 4 (tp 8, pp 16, the three stages of pre-training).  What a row leaves open (schedule
 * of Llama 3) is left open for both. */

#include "compiler/search/search.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *name;
    bool llama;
    uint32_t layers, width, heads, sequence, batch, gpus;
    uint32_t tp, cp, pp, vpp, microbatch; /* microbatch 0: left open */
    bool selective;                       /* with sequence parallelism; else full without */
};
static const struct row rows[] = {
    {"Korthikanti 22B full", false, 48, 6144, 64, 2048, 4, 8, 8, 1, 1, 1, 4, false},
    {"Korthikanti 22B selective", false, 48, 6144, 64, 2048, 4, 8, 8, 1, 1, 1, 4, true},
    {"Korthikanti 175B full", false, 96, 12288, 96, 2048, 64, 64, 8, 1, 8, 3, 1, false},
    {"Korthikanti 175B selective", false, 96, 12288, 96, 2048, 64, 64, 8, 1, 8, 3, 1, true},
    {"Korthikanti 530B full", false, 105, 20480, 128, 2048, 280, 280, 8, 1, 35, 3, 1, false},
    {"Korthikanti 530B selective", false, 105, 20480, 128, 2048, 280, 280, 8, 1, 35, 3, 1, true},
    {"Korthikanti 1T full", false, 128, 25600, 160, 2048, 512, 512, 8, 1, 64, 1, 1, false},
    {"Korthikanti 1T selective", false, 128, 25600, 160, 2048, 512, 512, 8, 1, 64, 1, 1, true},
    {"SC'21 1.7B", false, 24, 2304, 24, 2048, 512, 32, 1, 1, 1, 1, 16, false},
    {"SC'21 3.6B", false, 30, 3072, 32, 2048, 512, 64, 2, 1, 1, 1, 16, false},
    {"SC'21 7.5B", false, 36, 4096, 32, 2048, 512, 128, 4, 1, 1, 1, 16, false},
    {"SC'21 18.4B", false, 40, 6144, 48, 2048, 1024, 256, 8, 1, 1, 1, 8, false},
    {"SC'21 39.1B", false, 48, 8192, 64, 2048, 1536, 512, 8, 1, 2, 1, 4, false},
    {"SC'21 76.1B", false, 60, 10240, 80, 2048, 1792, 1024, 8, 1, 4, 3, 2, false},
    {"SC'21 145.6B", false, 80, 12288, 96, 2048, 2304, 1536, 8, 1, 8, 2, 2, false},
    {"SC'21 310.1B", false, 96, 16384, 128, 2048, 2160, 1920, 8, 1, 16, 2, 1, false},
    {"SC'21 529.6B", false, 105, 20480, 128, 2048, 2520, 2520, 8, 1, 35, 1, 1, false},
    {"SC'21 1008B", false, 128, 25600, 160, 2048, 3072, 3072, 8, 1, 64, 1, 1, false},
    {"Llama 3 405B, 8,192 GPUs", true, 126, 16384, 128, 8192, 2048, 8192, 8, 1, 16, 0, 0, false},
    {"Llama 3 405B, 16,384 GPUs", true, 126, 16384, 128, 8192, 2048, 16384, 8, 1, 16, 0, 0, false},
    {"Llama 3 405B, long context", true, 126, 16384, 128, 131072, 128, 16384, 8, 16, 16, 0, 0, false},
};

static const char *model_text(struct arena *a, const struct row *r, const char *plan)
{
    const char *layers =
        r->llama
            ? arena_printf(a, "attn gqa(heads=%u, kv=8, head=128, rope=500_000)\nffn swiglu(53_248)",
                           r->heads)
            : arena_printf(a, "attn mha(heads=%u, bias=yes)\nffn gelu(%u, bias=yes)", r->heads, 4 * r->width);
    return arena_printf(a,
                        "llmc 1\nmodel published {\nvocab %s\nwidth %u\nnorm %s\nembed tokens\n%srepeat %u "
                        "{\nlayer {\n%s\n}\n}\n"
                        "head %s\n}\ntrain {\nsequence %u\nbatch %u sequences\nprecision %s\n}\nplan "
                        "{\nprofile %s\ngpus = %u\n%s}\n",
                        r->llama ? "128_256" : "51_200", r->width, r->llama ? "rmsnorm" : "layernorm",
                        r->llama ? "" : "embed positions(2048)\n", r->layers, layers,
                        r->llama ? "untied" : "tied", r->sequence, r->batch,
                        r->llama ? "bf16" : "fp16(master=fp32)",
                        r->llama ? "\"megatron-core\"" : "\"megatron-2022\"", r->gpus, plan);
}

static struct topo *cluster(struct arena *a, const struct row *r)
{
    struct diag *d = diag_new(a);
    struct source *s = ARENA_NEW(a, struct source);
    char *text = arena_printf(
        a,
        "<cluster version=\"1\" name=\"published\"><node-type id=\"node\" gpus=\"8\"><gpu model=\"%s\"/>"
        "<scale-up kind=\"nvswitch\" bandwidth=\"%uGB/s\"/><nic count=\"8\" "
        "bandwidth=\"%uGb/s\"/></node-type>"
        "<nodes type=\"node\" count=\"%u\"/>%s</cluster>",
        r->llama ? "H100-SXM" : "A100-SXM-80GB", r->llama ? 450 : 300, r->llama ? 400 : 200, r->gpus / 8,
        r->gpus > 8 ? "<fabric medium=\"infiniband\"><tier name=\"leaf\" span=\"all\"/></fabric>" : "");
    *s = (struct source){"published.xml", text, strlen(text), false};
    struct topo *t = topo_parse(a, d, s, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static void check(const struct row *r)
{
    struct arena *a = arena_new();
    struct topo *topo = cluster(a, r);
    const char *family = r->llama       ? ""
                         : r->selective ? "recompute selective\nsequence_parallel yes\n"
                                        : "recompute full\n";
    const char *chunks = r->vpp > 1    ? arena_printf(a, "vpp = %u\nschedule interleaved\n", r->vpp)
                         : r->vpp == 1 ? "vpp = 1\nschedule 1f1b\n"
                                       : "schedule in [1f1b, interleaved]\n";
    const char *size = r->microbatch ? arena_printf(a, "microbatch = %u\n", r->microbatch) : "";
    const char *pinned = arena_printf(a, "%s%s%stp = %u\ncp = %u\npp = %u\n%s", family, chunks, size, r->tp,
                                      r->cp, r->pp, r->llama ? "zero in [1, 2]\n" : "zero = 0\n");
    struct job *theirs = text_job(a, model_text(a, r, pinned)), *ours = text_job(a, model_text(a, r, family));
    struct search_result *published = search(a, diag_new(a), theirs, topo, 1, 0, false);
    struct search_result *own = search(a, diag_new(a), ours, topo, 1, 0, false);
    CU_ASSERT_EQUAL(own->ncandidates, 1);
    CU_ASSERT_EQUAL(published->ncandidates, 1); /* it did run */
    if (own->ncandidates && published->ncandidates) {
        const struct candidate *x = &own->candidates[0], *y = &published->candidates[0];
        bool good = x->estimate.step_time_s <= y->estimate.step_time_s * (1 + 1e-9);
        CU_ASSERT(good);
        if (!good || getenv("LLMC_VERBOSE"))
            printf("\n%s: ours %.4g s, gap %.3f, %s\n  published %.4g s, %s\n", r->name,
                   x->estimate.step_time_s, own->gap, decision_text(a, ours, &x->decision), y->estimate.step_time_s,
                   decision_text(a, theirs, &y->decision));
    } else {
        printf("\n%s: ours %u, published %u found; closest %.1f GiB of %.1f\n", r->name, own->ncandidates,
               published->ncandidates, (double)published->closest.estimate.peak_bytes / (1 << 30),
               (double)published->memory_limit_bytes / (1 << 30));
    }
    arena_free(a);
}

static void test_published_choice(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i += test_whole() ? 1 : 4)
        check(&rows[i]);
}

void suite_published_choice(void);
void suite_published_choice(void)
{
    CU_pSuite s = CU_add_suite("published_choice", NULL, NULL);
    CU_add_test(s, "no slower than the published choice", test_published_choice);
}
