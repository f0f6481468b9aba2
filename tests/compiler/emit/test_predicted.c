/* The contract's figures against formulas of the tests' own: which peak MFU divides by, per GPU of those that
 * are used, operations and parameters of prediction modules, and memory of the device without what lies in
 * the host's. */

#include "compiler/emit/plan.h"
#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

enum {
    VOCAB = 256,
    WIDTH = 64,
    HEADS = 4,
    KV = 2,
    FFN = 160,
    AHEAD_FFN = 96,
    LAYERS = 4,
    SEQUENCE = 32,
    BATCH = 8
};

static const char layer_form[] = "layer { attn gqa(heads=4, kv=2, rope=10_000); ffn swiglu(%d) }";

static struct job *make_job(struct arena *a, const char *precision, unsigned ahead, const char *plan)
{
    char layer[160], last[160], predict[240] = "";
    snprintf(layer, sizeof layer, layer_form, FFN);
    snprintf(last, sizeof last, layer_form, AHEAD_FFN);
    if (ahead)
        snprintf(predict, sizeof predict, "    predict %u ahead { %s }\n", ahead, last);
    return text_job(
        a,
        arena_printf(a,
                     "llmc 1\nmodel m {\n    vocab %d\n    width %d\n    norm rmsnorm\n    embed tokens\n"
                     "    repeat %d { %s }\n    head untied\n%s}\n"
                     "train {\n    sequence %d\n    batch %d sequences\n    precision %s\n}\nplan {\n%s}\n",
                     VOCAB, WIDTH, LAYERS, layer, predict, SEQUENCE, BATCH, precision, plan));
}

static struct topo *make_topo(struct arena *a, const char *peaks)
{
    struct diag *d = diag_new(a);
    char *text =
        arena_printf(a,
                     "<cluster version='1' name='eight'><node-type id='n' gpus='8' host-bandwidth='2GB/s'>"
                     "<gpu model='made-up' memory='2GiB' reserve='64MiB' memory-bandwidth='5GB/s'>%s</gpu>"
                     "<scale-up kind='none'/></node-type><nodes type='n' count='1'/></cluster>",
                     peaks);
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){.name = "c.xml", .text = text, .size = strlen(text)};
    struct topo *t = topo_parse(a, d, s, NULL);
    diag_print(d, stdout, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* ---- closed forms; multiplications and additions count as two, backward as twice forward ---- */

static double layer_weights(double ffn)
{
    double head = WIDTH / HEADS;
    return WIDTH * (HEADS + 2 * KV) * head + HEADS * head * WIDTH + 3 * WIDTH * ffn;
}

static double step_flops(unsigned ahead)
{
    double scores = 2 * 2.0 * SEQUENCE * WIDTH, head = 2.0 * WIDTH * VOCAB;
    double token = LAYERS * (2 * layer_weights(FFN) + scores) + head;
    token += ahead * (2 * layer_weights(AHEAD_FFN) + scores + 2.0 * 2 * WIDTH * WIDTH + head);
    return 3 * token * SEQUENCE * BATCH;
}

static bool near(double x, double y)
{
    return fabs(x - y) <= 1e-12 * fabs(y);
}

/* ---- figures of a step ---- */

#define PEAK(dtype, rate) "<peak dtype='" dtype "' rate='" rate "GFLOP/s'/>"

/* MFU is of the dtype that is computed in; halves stand in for each other, nothing for fp8 */
static void test_mfu(void)
{
    static const char all[] = PEAK("fp32", "20") PEAK("bf16", "170") PEAK("fp16", "110") PEAK("fp8", "330");
    static const struct {
        const char *precision, *peaks;
        double peak_flop_s;
    } cases[] = {
        {"fp32", all, 20e9},
        {"bf16", all, 170e9},
        {"fp16", all, 110e9},
        {"fp8", all, 330e9},
        {"bf16", PEAK("fp32", "20") PEAK("fp16", "110"), 110e9},
        {"fp16", PEAK("fp32", "20") PEAK("bf16", "170"), 170e9},
        {"bf16", PEAK("fp32", "20"), 20e9},
        {"fp16", PEAK("fp32", "20"), 20e9},
        {"fp8", PEAK("fp32", "20") PEAK("bf16", "170"), 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct decision d = decision_single();
        d.gpus_used = 4;
        struct predicted f =
            predicted_new(make_job(a, cases[i].precision, 0, ""), make_topo(a, cases[i].peaks), &d, 0.125);
        CU_ASSERT(cases[i].peak_flop_s > 0 ? near(f.mfu, step_flops(0) / (0.125 * 4 * cases[i].peak_flop_s))
                                           : f.mfu == 0);
        arena_free(a);
    }
}

/* rates are per GPU of those that are used, whatever the cluster has beside them */
static void test_rates(void)
{
    struct arena *a = arena_new();
    struct topo *t = make_topo(a, PEAK("fp32", "20"));
    struct job *job = make_job(a, "fp32", 0, "");
    CU_ASSERT_EQUAL(t->gpus, 8);
    for (uint32_t used = 1; used <= 8; used *= 2) {
        struct decision d = decision_single();
        d.gpus_used = used;
        struct predicted f = predicted_new(job, t, &d, 0.5);
        CU_ASSERT_EQUAL(f.step_time_s, 0.5);
        CU_ASSERT(near(f.tokens_per_s_per_gpu, SEQUENCE * BATCH / (0.5 * used)));
        CU_ASSERT(near(f.model_flops_per_gpu_s, step_flops(0) / (0.5 * used)));
        CU_ASSERT(near(f.mfu, step_flops(0) / (0.5 * used * 20e9)));
    }
    arena_free(a);
}

/* modules of multi-token prediction: a layer, the projection of [hidden; embedding], and the shared head's
 * product once more; their parameters have a line of their own */
static void test_prediction(void)
{
    double layer = layer_weights(AHEAD_FFN) + 2 * WIDTH, one = layer + 2 * WIDTH * WIDTH + 3 * WIDTH;
    double rest = LAYERS * (layer_weights(FFN) + 2 * WIDTH) + 2 * VOCAB * WIDTH + WIDTH;
    for (unsigned ahead = 0; ahead <= 3; ahead++) {
        struct arena *a = arena_new();
        struct strbuf out = {0};
        struct topo *t = make_topo(a, PEAK("fp32", "20"));
        struct job *job = make_job(a, "fp32", ahead, "");
        CU_ASSERT(near(model_flops(&job->model, SEQUENCE, BATCH), step_flops(ahead)));
        strbuf_text(&out, "{");
        job_json(job, t, 3, &out);
        strbuf_text(&out, "\"end\": 0}");
        json_t *o = json_loads(out.text, 0, NULL), *model = json_object_get(o, "model"),
               *cluster = json_object_get(o, "cluster");
        json_t *extra = json_object_get(model, "prediction_parameters");
        CU_ASSERT_PTR_NOT_NULL_FATAL(o);
        CU_ASSERT_EQUAL((double)json_integer_value(json_object_get(model, "parameters")), rest);
        CU_ASSERT_EQUAL((double)json_integer_value(json_object_get(model, "active_parameters")), rest);
        CU_ASSERT(ahead ? (double)json_integer_value(extra) == ahead * one : extra == NULL);
        CU_ASSERT_EQUAL(json_integer_value(json_object_get(model, "layers")), LAYERS);
        CU_ASSERT_EQUAL(json_integer_value(json_object_get(cluster, "gpus")), 8);
        CU_ASSERT_EQUAL(json_integer_value(json_object_get(cluster, "gpus_used")), 3);
        json_decref(o);
        strbuf_free(&out);
        arena_free(a);
    }
}

/* ---- memory ---- */

/* bytes of the device between the first and the last buffer that is no host memory; *host: those of the
 * host's */
static uint64_t device_bytes(const struct program *p, uint64_t *host)
{
    uint64_t first = UINT64_MAX, end = 0;
    *host = 0;
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const struct buffer *b = &p->buffers[i];
        if (b->host) {
            *host = b->offset + b->bytes > *host ? b->offset + b->bytes : *host;
            continue;
        }
        for (uint32_t k = 0; k < (b->scattered ? p->rings[b->ring].depth : 1); k++) {
            uint64_t from = program_slot_offset(p, b, k), to = from + (b->scattered ? b->stride : b->bytes);
            first = from < first ? from : first;
            end = to > end ? to : end;
        }
    }
    return end - first;
}

/* the peak is the device's: what is offloaded is not in it, and the rank is the first with the most */
static void test_memory(void)
{
    static const char *const offload[] = {"", "    offload [optimizer]\n", "    offload [activations]\n",
                                          "    offload [optimizer, activations]\n"};
    uint64_t peak[4];
    for (int i = 0; i < 4; i++) {
        struct arena *a = arena_new();
        const char *why = "";
        struct job *job = make_job(a, "fp32", 0, offload[i]);
        struct topo *t = make_topo(a, PEAK("fp32", "20"));
        struct decision d = text_decision(a, job, t, "tp=1 pp=2 dp=2 microbatch=1 schedule=1f1b");
        struct plan *p = compile_decision(a, job, t, &d, &(struct compile_options){0}, &why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        struct predicted f = plan_predicted(p);
        uint64_t most = 0, host_most = 0;
        uint32_t fullest = 0;
        for (uint32_t r = 0; r < p->nroles; r++) {
            uint64_t host, bytes = device_bytes(p->train[r], &host);
            fullest = bytes > most ? r : fullest;
            most = bytes > most ? bytes : most;
            host_most = host > host_most ? host : host_most;
        }
        CU_ASSERT(i ? host_most > 4096 : host_most == 0);
        CU_ASSERT(f.peak_memory_bytes >= most &&
                  f.peak_memory_bytes < most + 512); /* arenas end at multiples of 256 */
        CU_ASSERT_EQUAL(p->ranks->ranks[f.peak_memory_rank].role, fullest);
        for (uint32_t r = 0; r < f.peak_memory_rank; r++)
            CU_ASSERT(p->ranks->ranks[r].role != fullest);
        peak[i] = f.peak_memory_bytes;
        plan_close(p);
        arena_free(a);
    }
    CU_ASSERT(peak[1] < peak[0] && peak[3] < peak[2]);
}

void suite_predicted(void);
void suite_predicted(void)
{
    CU_pSuite s = CU_add_suite("predicted", NULL, NULL);
    CU_add_test(s, "MFU by the peak of the dtype that is computed in", test_mfu);
    CU_add_test(s, "rates per GPU that is used", test_rates);
    CU_add_test(s, "prediction modules", test_prediction);
    CU_add_test(s, "memory of the device", test_memory);
}
