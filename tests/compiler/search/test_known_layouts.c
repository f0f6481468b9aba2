/* Layouts that people know, on the machines they ran on: each fits, and its simulated step is within 10 % of
 * the published one.
 *
 * - Llama 3 405B: Grattafiori et al., arXiv:2407.21783, table 4 and section 3.3.2: 430, 400 and 380 TFLOP/s
 * per GPU, of 6N and half of attention; interleaved stages of one layer, the embedding and the head stages of
 * their own; gradients accumulated in fp32 over microbatches, then reduced to shards, and parameters kept
 * from forward to backward: zero 1 in this language, whose zero 2 reduces for every microbatch.  Nothing is
 * checkpointed; that norms and gates are computed again by the kernels that read them is ours: with all of a
 * layer's values kept, no rank of 80 GB holds the 143 (or 128) layers that the first one has in flight.
 *
 * - DeepSeek-V3: arXiv:2412.19437, section 1 (180,000 hours of 2,048 H800 for 10^12 tokens), 3.2 (pp 16, ep
 * 64 over 8 nodes, ZeRO-1, DualPipe, 20 multiprocessors for communication, norms and MLA's up-projections
 * again) and 3.3 (dispatch and inputs of products and gates in fp8, gates' outputs again, moments in bf16).
 * How layers are cut is ours: four a stage.
 *
 * - Megatron-LM of 2019: Shoeybi et al., arXiv:1909.08053, section 5: 8.3 billion parameters on 512 V100,
 * model parallel 8, batch 512, every layer checkpointed, fp16: 15.1 PFLOP/s in all, recomputation counted.
 * That gradients are reduced in fp16 is ours.
 *
 * - PaLM 540B: Chowdhery et al., arXiv:2204.02311, sections 2 (parallel layers without biases, one key head for
 * all, tied embeddings), 4 (two pods of 3,072 TPU v4, each with model parallel 12 and fully sharded data
 * parallel 256, no pipeline) and 4.1 (238,300 tokens/s).  What is computed again is the search's to say.
 *
 * - GPT-3: Brown et al., arXiv:2005.14165: V100 and no layout; it fits. */

#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void suite_known_layouts(void);

#define LLAMA                                                                                                \
    " profile \"megatron-core\"\n tp = 8\n pp = 16\n vpp = 8\n zero = 1\n microbatch = 1\n"                  \
    " sequence_parallel yes\n schedule interleaved\n layout \"E|(t|)*126L\"\n"                               \
    " order [tp, cp, pp, dp]\n recompute [norm, ffn_act]\n"                                                  \
    " never overlap [tp]\n memory <= 79.6GiB\n"
#define DEEPSEEK                                                                                             \
    " profile \"megatron-core\"\n tp = 1\n cp = 1\n pp = 16\n ep = 64\n dp = 128\n zero = 1\n"               \
    " microbatch = 1\n"                                                                                      \
    " schedule dualpipe\n recompute [norm, mla_up, ffn_act, moe_act]\n overlap all_to_all with compute\n"    \
    " leave 20 sms for comm\n keep ep within 8 nodes\n"

static const char megatron_8b[] =
    "llmc 1\nmodel megatron_8b {\n vocab 51_200\n width 3072\n norm layernorm\n embed tokens\n"
    " embed positions(1024)\n"
    " repeat 72 { layer { attn mha(heads=32, bias=yes)\n ffn gelu(12_288, bias=yes) } }\n head tied\n}\n"
    "train {\n sequence 1024\n batch 512 sequences\n"
    " precision fp16(master=fp32, grads=fp16)\n}\n";

static const char palm_540b[] =
    "llmc 1\nmodel palm_540b {\n vocab 256_000\n width 18_432\n norm layernorm\n embed tokens\n"
    " repeat 118 { layer parallel(norms=1) { attn gqa(heads=48, kv=1, head=256, rope=10_000)\n ffn swiglu(73_728) } }\n"
    " head tied\n}\n"
    "train {\n sequence 2048\n batch 2048 sequences\n precision bf16\n}\n";

/* counted as the source counts */
enum flops { FLOPS_CAUSAL, FLOPS_AGAIN };

static const struct known {
    const char *name;
    const char *model; /* a job without its plan block, or a folder of plans/, whose plan block is replaced */
    const char *cluster, *precision, *plan;
    uint32_t gpus;
    double seconds, tflops; /* of a step; or per GPU */
    enum flops flops;
} known[] = {
    {"Llama 3 405B, 8,192", "llama3-405b", "topologies/meta-24k-roce.xml", NULL, LLAMA " cp = 1\n dp = 64\n",
     8192, 0, 430, FLOPS_CAUSAL},
    {"Llama 3 405B, 16,384", "llama3-405b", "topologies/meta-24k-roce.xml", NULL,
     LLAMA " cp = 1\n dp = 128\n", 16384, 0, 400, FLOPS_CAUSAL},
    {"Llama 3 405B, 131,072 tokens", "llama3-405b-128k", "topologies/meta-24k-roce.xml", NULL,
     LLAMA " cp = 16\n context all_gather\n dp = 8\n", 16384, 0, 380, FLOPS_CAUSAL},
    {"DeepSeek-V3", "deepseek-v3", "topologies/h800-2048.xml",
     "precision=fp8(moments=bf16, recipe=block, activations=fp8, dispatch=fp8)",
     DEEPSEEK " layout \"Et*4|(t*4|)*14tL\"\n", 2048, 180e3 * 3600 / 1e12 * 15360 * 4096 / 2048, 0,
     FLOPS_CAUSAL},
    {"Megatron-LM 8.3B, 512 V100", megatron_8b, "tests/cases/known/dgx2-v100.xml", NULL,
     " profile \"megatron-2022\"\n gpus = 512\n tp = 8\n pp = 1\n dp = 64\n zero = 0\n microbatch = 8\n"
     " recompute full\n sequence_parallel no\n",
     512, 0, 15100.0 / 512, FLOPS_AGAIN},
    {"PaLM 540B, 6,144 TPU v4", palm_540b, "tests/cases/known/tpu-v4-pods.xml", NULL,
     " tp = 12\n pp = 1\n dp = 512\n zero = 3\n shard = 256\n keep shard within torus\n"
     " order [tp, cp, dp, pp]\n",
     6144, 2048.0 * 2048 / 238300, 0, FLOPS_CAUSAL},
    {"GPT-3 175B, V100", "gpt3-175b", "tests/cases/known/dgx2-v100.xml", "precision=fp16",
     " tp = 8\n keep tp within node\n", 0, 0, 0, FLOPS_CAUSAL},
};

static struct job *job_of(struct arena *a, struct diag *d, const struct known *k)
{
    const char *text = k->model;
    if (!strchr(text, '\n')) {
        const struct source *s = source_read(a, d, arena_printf(a, "plans/%s/model.llm", k->model), 1 << 20);
        const char *plan = s ? strstr(s->text, "\nplan {") : NULL;
        CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
        text = arena_strndup(a, s->text, (size_t)(plan - s->text) + 1);
    }
    struct source *s = ARENA_NEW(a, struct source);
    text = arena_printf(a, "%splan {\n%s}\n", text, k->plan);
    *s = (struct source){.name = k->name, .text = text, .size = strlen(text)};
    struct job *job = job_parse(a, d, s, &k->precision, k->precision != NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    return job;
}

/* of a step, as the source counts them for its TFLOP/s */
static double flops(const struct known *k, const struct job *job)
{
    const struct model *m = &job->model;
    double tokens = (double)job->train.batch * (double)job->train.sequence, s = (double)job->train.sequence;
    double l = m->nlayers, h = (double)m->width;
    if (k->flops == FLOPS_CAUSAL)
        return (6 * (double)model_parameters(m) + 6 * l * h * s) * tokens;
    return 96 * tokens * l * h * h * (1 + s / (6 * h) + (double)m->vocab / (16 * l * h));
}

static void check(const struct known *k)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct job *job = job_of(a, d, k);
    struct topo *topo = topo_read(a, d, k->cluster);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    const struct search_result *r = search(a, d, job, topo, 1, 0, false);
    double seconds = k->tflops > 0 ? flops(k, job) / (k->gpus * k->tflops * 1e12) : k->seconds;
    CU_ASSERT_EQUAL(r->ncandidates, 1);
    if (r->ncandidates) {
        const struct candidate *x = &r->candidates[0];
        double error = seconds > 0 ? x->estimate.step_time_s / seconds - 1 : 0;
        CU_ASSERT(k->gpus == 0 || x->decision.gpus_used == k->gpus);
        CU_ASSERT(x->estimate.peak_bytes <= r->memory_limit_bytes);
        CU_ASSERT(fabs(error) <= 0.1);
        if (fabs(error) > 0.1 || getenv("VERBOSE"))
            printf("\n%-30s %6.2f s, predicted %6.2f: %+5.1f %%, %.1f GiB\n    %s", k->name, seconds,
                   x->estimate.step_time_s, 100 * error, (double)x->estimate.peak_bytes / (1 << 30),
                   decision_text(a, job, &x->decision));
    } else {
        diag_print(d, stdout, false);
    }
    arena_free(a);
}

static void test_known(void)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        check(&known[i]);
}

/* programs of Llama, PaLM and Megatron-LM, this one in fp16, as well are emitted, proved and placed */
static void test_emitted(void)
{
    static const size_t emitted[] = {1, 2, 4, 5};
    for (size_t k = 0; k < ARRAY_LEN(emitted); k++) {
        size_t i = emitted[k];
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        struct plan *plan = NULL;
        struct verdict *verdict = NULL;
        struct job *job = job_of(a, d, &known[i]);
        struct topo *topo = topo_read(a, d, known[i].cluster);
        CU_ASSERT_EQUAL(compile_job(a, d, job, topo, &(struct compile_options){.top = 1}, &plan, &verdict),
                        STATUS_OK);
        CU_ASSERT_FATAL(plan != NULL);
        CU_ASSERT_EQUAL(plan->decision.gpus_used, known[i].gpus);
        plan_close(plan);
        arena_free(a);
    }
}

void suite_known_layouts(void)
{
    CU_pSuite s = CU_add_suite("known_layouts", NULL, NULL);
    CU_add_test(s, "fit, and near the published speed", test_known);
    CU_add_test(s, "programs of Llama 3, PaLM and Megatron-LM", test_emitted);
}
