/* predict(): the estimate with the schedule run is near the closed form's, never below it, and
 * its items add up; schedules in pairs hide dispatch and combine. */

#include "compiler/model/sema.h"
#include "compiler/simulate/predict.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/Basic.h>
#include <string.h>

#define MODEL(ffn)                                                                                           \
    "llmc 1\nmodel m {\n vocab 32000\n width 2048\n norm rmsnorm\n embed tokens\n"                           \
    " repeat 17 { layer { attn gqa(heads=16, kv=8, rope=10_000)\n " ffn " } }\n"                             \
    " head untied\n}\ntrain {\n sequence 2048\n batch 64 sequences\n precision bf16\n}\n"

static const char cluster[] =
    "<cluster version=\"1\"><node-type id=\"n\" gpus=\"8\"><gpu model=\"H100-SXM\"/>"
    "<scale-up kind=\"nvswitch\" bandwidth=\"450GB/s\"/><nic count=\"8\" bandwidth=\"100Gb/s\"/></node-type>"
    "<nodes type=\"n\" count=\"4\"/><fabric medium=\"infiniband\"><tier name=\"core\" "
    "span=\"all\"/></fabric></cluster>";

/* pp = 4 with the expert degree given, 16 microbatches */
static struct cost *make(struct arena *a, const char *model, enum schedule_kind kind, uint32_t vpp,
                         uint32_t ep)
{
    struct job *job = text_job(a, model);
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){"c.xml", cluster, strlen(cluster), false};
    struct topo *topo = topo_parse(a, diag_new(a), s, NULL);
    struct decision *d = ARENA_NEW(a, struct decision);
    const char *why = "";
    *d = (struct decision){.tp = 1,
                           .cp = 1,
                           .pp = 4,
                           .vpp = vpp,
                           .dp = 8,
                           .ep = ep,
                           .etp = 1,
                           .shard = 1,
                           .microbatch = 1,
                           .microbatches = 8,
                           .schedule = kind,
                           .order = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP}};
    CU_ASSERT_FATAL(topo && decision_place(a, topo, d, &why));
    decision_cut(a, d, job->model.nlayers, NULL, 0, 0);
    bool legal = decision_legal(a, job, topo, d, &why);
    CU_ASSERT_FATAL(legal);
    return cost_new(a, job, topo, d);
}

static double sum(const struct estimate *e)
{
    return e->compute_s + e->tp_comm_s + e->pp_comm_s + e->dp_comm_s + e->bubble_s + e->optimizer_s;
}

static const struct {
    enum schedule_kind kind;
    uint32_t vpp;
} all[] = {{SCHED_GPIPE, 1},         {SCHED_1F1B, 1},     {SCHED_EAGER_1F1B, 1},  {SCHED_ZB_H1, 1},
           {SCHED_ZB_H2, 1},         {SCHED_DUALPIPE, 1}, {SCHED_INTERLEAVED, 2}, {SCHED_INTERLEAVED, 4},
           {SCHED_COMBINED_1F1B, 2}, {SCHED_ZB_V, 2},     {SCHED_V_HALF, 2},      {SCHED_V_MIN, 2},
           {SCHED_DUALPIPE_V, 2}};

static void test_schedules(void)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct arena *a = arena_new();
        const struct cost *c = make(a, MODEL("ffn swiglu(8192)"), all[i].kind, all[i].vpp, 1);
        struct estimate run, closed;
        CU_ASSERT(predict(a, c, &run));
        cost_estimate(a, c, &closed);
        CU_ASSERT_DOUBLE_EQUAL(sum(&run), run.step_time_s, 1e-12);
        CU_ASSERT_DOUBLE_EQUAL(sum(&closed), closed.step_time_s, 1e-12);
        CU_ASSERT(run.step_time_s >= closed.step_time_s * (1 - 1e-9));
        /* the closed form hides what it can of the last reduction */
        CU_ASSERT(run.step_time_s <= closed.step_time_s * (all[i].kind == SCHED_V_MIN ? 1.16 : 1.09));
        CU_ASSERT(run.bubble_s > 0 && run.pp_comm_s > 0);
        CU_ASSERT_EQUAL(run.peak_bytes, closed.peak_bytes);
        arena_free(a);
    }
}

/* another microbatch's kernels hide dispatch and combine */
static void test_pairs(void)
{
    struct arena *a = arena_new();
    const char *model = MODEL("moe swiglu(1024) { experts 16\n active 4 }");
    struct estimate plain, pairs;
    CU_ASSERT(predict(a, make(a, model, SCHED_INTERLEAVED, 2, 8), &plain));
    CU_ASSERT(predict(a, make(a, model, SCHED_COMBINED_1F1B, 2, 8), &pairs));
    CU_ASSERT(plain.tp_comm_s > 0);
    CU_ASSERT(pairs.tp_comm_s + pairs.bubble_s < plain.tp_comm_s + plain.bubble_s);
    CU_ASSERT(pairs.step_time_s < plain.step_time_s);
    arena_free(a);
}

/* millions of microbatches are left to the closed form */
static void test_too_long(void)
{
    struct arena *a = arena_new();
    struct cost *c = make(a, MODEL("ffn swiglu(8192)"), SCHED_1F1B, 1, 1);
    struct decision d = *c->decision;
    struct estimate run, closed;
    d.microbatches = 3000000;
    c->decision = &d;
    CU_ASSERT_FALSE(predict(a, c, &run));
    cost_estimate(a, c, &closed);
    CU_ASSERT_EQUAL(run.step_time_s, closed.step_time_s);
    arena_free(a);
}

/* Steps whose kernels take other times than planned: each run has a seed of its own, by its number alone, and
 * no step is off by more than its kernels are. */
static void test_jitter(void)
{
    enum { RUNS = 5 };
    struct arena *a = arena_new();
    struct cost *c = make(a, MODEL("ffn swiglu(8192)"), SCHED_1F1B, 1, 1);
    double even_s, runs_s[RUNS], few_s[RUNS], plain_s;
    for (uint32_t i = 0; i < RUNS; i++)
        runs_s[i] = few_s[i] = -1;
    CU_ASSERT_FATAL(predict_jitter(a, c, 0.1, RUNS, &even_s, runs_s));
    CU_ASSERT_FATAL(predict_jitter(a, c, 0.1, 2, &plain_s, few_s));
    CU_ASSERT_EQUAL(even_s, plain_s);
    for (uint32_t i = 0; i < RUNS; i++) {
        CU_ASSERT(runs_s[i] >= 0.9 * even_s && runs_s[i] <= 1.1 * even_s && runs_s[i] != even_s);
        CU_ASSERT_EQUAL(few_s[i], i < 2 ? runs_s[i] : -1);
        for (uint32_t k = 0; k < i; k++)
            CU_ASSERT_NOT_EQUAL(runs_s[i], runs_s[k]);
    }
    CU_ASSERT(predict_jitter(a, c, 0, RUNS, &even_s, runs_s));
    for (uint32_t i = 0; i < RUNS; i++)
        CU_ASSERT_EQUAL(runs_s[i], even_s);
    arena_free(a);
}

void suite_predict(void);
void suite_predict(void)
{
    CU_pSuite s = CU_add_suite("predict", NULL, NULL);
    CU_add_test(s, "every schedule", test_schedules);
    CU_add_test(s, "pairs hide transfers of experts", test_pairs);
    CU_add_test(s, "kernels that take other times", test_jitter);
    CU_add_test(s, "very long steps", test_too_long);
}
