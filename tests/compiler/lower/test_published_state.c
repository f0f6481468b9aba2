/* Bytes of training state per parameter, as papers count them, in buffers of lowered programs and in the
 * estimate.
 *
 * - ZeRO: Rajbhandari et al., arXiv:1910.02054, section 3.1: mixed precision with Adam keeps 2 + 2 + 12
 * bytes; a parameter's optimizer state is divided by the replicas at stage 1, gradients too at 2, all of it
 * at 3 (figure 1).
 *
 * - Megatron-LM, theoretical_memory_usage.py: gradients in fp32 make 18, with a distributed optimizer 6 +
 * 12/d.
 *
 * - Llama 3: Grattafiori et al., arXiv:2407.21783, table 4: 405B with tp 8, pp 16, dp 128 on 16,384 GPUs. */

#include "tests/compiler/cost/published.h"

#include "compiler/support/vec.h"

#include <CUnit/Basic.h>
#include <string.h>

#define LLAMA_405B .layers = 126, .width = 16384, .heads = 128, .kv = 8, .ffn = 53248, .sequence = 8192
#define GPT_7B .layers = 36, .width = 4096, .heads = 32
#define FP32_GRADS "precision bf16(grads=fp32)"
#define BF16_GRADS "precision bf16(grads=bf16)"
#define L405_PLAN                                                                                            \
    " tp = 8\n pp = 16\n microbatch = 1\n schedule 1f1b\n recompute none\n layout \"Et*7|(t*8|)*14t*7L\"\n"
#define ONE_PLAN " tp = 1\n pp = 1\n microbatch = 1\n recompute full\n"

static const struct row {
    struct published_run run;
    bool lowered;
    double parameters, gradients, optimizer; /* bytes per parameter that a rank works on */
} rows[] = {
    {{.name = "405B, one replica",
      LLAMA_405B,
      .batch = 4,
      .gpus = 128,
      .train = FP32_GRADS,
      .plan = L405_PLAN " dp = 1\n zero = 0\n"},
     true,
     2,
     4,
     12},
    {{.name = "405B, ZeRO-1 over 128",
      LLAMA_405B,
      .batch = 2048,
      .gpus = 16384,
      .train = FP32_GRADS,
      .plan = L405_PLAN " dp = 128\n zero = 1\n"},
     true,
     2,
     4,
     12.0 / 128},
    {{.name = "405B, ZeRO-1, bf16",
      LLAMA_405B,
      .batch = 2048,
      .gpus = 16384,
      .train = BF16_GRADS,
      .plan = L405_PLAN " dp = 128\n zero = 1\n"},
     false,
     2,
     2,
     12.0 / 128},
    {{.name = "7.5B",
      GPT_7B,
      .batch = 64,
      .gpus = 64,
      .train = FP32_GRADS,
      .plan = ONE_PLAN " dp = 64\n zero = 0\n"},
     true,
     2,
     4,
     12},
    {{.name = "7.5B, bf16",
      GPT_7B,
      .batch = 64,
      .gpus = 64,
      .train = BF16_GRADS,
      .plan = ONE_PLAN " dp = 64\n zero = 0\n"},
     false,
     2,
     2,
     12},
    {{.name = "7.5B, stage 1",
      GPT_7B,
      .batch = 64,
      .gpus = 64,
      .train = BF16_GRADS,
      .plan = ONE_PLAN " dp = 64\n zero = 1\n"},
     false,
     2,
     2,
     12.0 / 64},
    {{.name = "7.5B, stage 2",
      GPT_7B,
      .batch = 64,
      .gpus = 64,
      .train = BF16_GRADS,
      .plan = ONE_PLAN " dp = 64\n zero = 2\n"},
     false,
     2,
     2.0 / 64,
     12.0 / 64},
    {{.name = "7.5B, stage 3",
      GPT_7B,
      .batch = 64,
      .gpus = 64,
      .train = BF16_GRADS,
      .plan = ONE_PLAN " dp = 64\n zero = 3\n"},
     false,
     2.0 / 64,
     2.0 / 64,
     12.0 / 64},
};

struct state {
    double elements, parameters, gradients, optimizer; /* elements worked on; bytes */
};

static struct state state_of(const struct program *p)
{
    struct state s = {0};
    for (uint32_t i = 0; i < p->nbuckets; i++)
        s.elements += (double)p->buckets[i].elements;
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const struct buffer *b = &p->buffers[i];
        double bytes = (double)b->bytes;
        switch (b->kind) {
        case BUFFER_PARAM:
            s.parameters += bytes;
            break;
        case BUFFER_MASTER:
        case BUFFER_MOMENT1:
        case BUFFER_MOMENT2:
            s.optimizer += bytes;
            break;
        case BUFFER_STEP:
            s.gradients += strncmp(b->name, "grad.", 5) ? 0 : bytes;
            break;
        case BUFFER_BLOCK:
        case BUFFER_METRICS:
        case BUFFER_WORKSPACE:
        case BUFFER_SCALE:
        case NBUFFER_KINDS:
            break;
        }
    }
    return s;
}

static void near(const char *name, double got, double wanted)
{
    bool good = got >= wanted * (1 - 1e-9) && got <= wanted * 1.002; /* buckets are padded */
    CU_ASSERT(good);
    if (!good)
        printf("[%s: %.4f bytes per parameter, published %.4f] ", name, got, wanted);
}

static void test_lowered(void)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!rows[i].lowered)
            continue;
        struct arena *a = arena_new();
        struct published_run run = rows[i].run;
        run.roomy = true;
        struct plan *p = published_plan(a, &run);
        double elements = 0;
        for (uint32_t r = 0; r < p->nroles; r++) {
            struct state s = state_of(p->train[r]);
            near(run.name, s.parameters / s.elements, rows[i].parameters);
            near(run.name, s.gradients / s.elements, rows[i].gradients);
            near(run.name, s.optimizer / s.elements, rows[i].optimizer);
            CU_ASSERT(s.parameters + s.gradients + s.optimizer <= (double)p->train[r]->arena_bytes);
            elements += s.elements * p->decision.tp;
        }
        /* no parameter twice but norms and biases that every tp rank holds */
        near(run.name, elements / (double)model_parameters(&p->job->model), 1);
        plan_close(p);
        arena_free(a);
    }
}

static void test_estimated(void)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new();
        struct published_run run = rows[i].run;
        run.roomy = true;
        struct job *job = published_job(a, &run);
        const struct candidate *c = published_best(a, &run, job, published_topo(a, &run));
        const struct estimate *e = &c->estimate;
        /* the fullest rank's parameters, from what it keeps of them */
        double n = (double)e->parameter_bytes / rows[i].parameters;
        CU_ASSERT(n <= 1.1 * (double)model_parameters(&job->model) / c->decision.tp / c->decision.pp);
        /* of ZeRO 2 and 3 the papers leave out that vectors are whole everywhere, and so is the gradient of a tied table */
        double table = c->decision.zero >= 2 ? 51200.0 * (double)job->model.width : 0;
        double elements = (double)model_parameters(&job->model);
        double whole = table / elements, vectors = c->decision.zero >= 2 ? 0.00026 : 0;
        double got = (double)e->gradient_bytes / n, most = rows[i].gradients + 2 * (whole + vectors);
        CU_ASSERT(got >= rows[i].gradients * (1 - 1e-9) && got <= 1.02 * most);
        if (got > 1.02 * most)
            printf("[%s: %.4f bytes per parameter, not up to %.4f] ", run.name, got, most);
        double beside = c->decision.zero == 3 ? vectors * c->decision.shard : 0;
        near(run.name, (double)e->optimizer_bytes / n * (1 + beside), rows[i].optimizer);
        arena_free(a);
    }
}

/* ZeRO, figure 1: GB per device for 7.5B parameters on 64 devices */
static void test_figure_1(void)
{
    static const double gigabytes[4] = {120, 31.4, 16.6, 1.9};
    for (size_t stage = 0; stage < 4; stage++) {
        const struct row *r = &rows[4 + stage];
        double bytes = 7.5 * (r->parameters + r->gradients + r->optimizer);
        CU_ASSERT_DOUBLE_EQUAL(bytes, gigabytes[stage], 0.051);
    }
}

void suite_published_state(void);
void suite_published_state(void)
{
    CU_pSuite s = CU_add_suite("published_state", NULL, NULL);
    CU_add_test(s, "bytes per parameter of lowered plans", test_lowered);
    CU_add_test(s, "bytes per parameter of the estimate", test_estimated);
    CU_add_test(s, "ZeRO's figure 1", test_figure_1);
}
