/* Whole runs: Daly's own examples, a search for the best interval, runs that are drawn interruption by interruption,
 * and the bill of a job against arithmetic of the test's own. */

#include "compiler/cost/run.h"
#include "compiler/support/strbuf.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

/* Figures 3 to 5 of the paper, minutes: "the new model predicts" */
static void test_daly(void)
{
    CU_ASSERT_EQUAL(round(run_interval_s(5 * 60, 24 * 3600) / 60), 117);
    CU_ASSERT_EQUAL(round(run_interval_s(5 * 60, 6 * 3600) / 60), 57);
    CU_ASSERT_EQUAL(round(run_interval_s(5 * 60, 15 * 60) / 6), 91);
    CU_ASSERT_DOUBLE_EQUAL(run_interval_s(601, 300), 300, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(run_interval_young_s(8, 100), 40, 1e-9);
}

static double uniform(uint64_t *state)
{
    return (random_below(state, UINT32_MAX) + 0.5) / UINT32_MAX;
}

/* no other interval is better by more than the error of the series */
static void test_best(void)
{
    uint64_t state = 1;
    for (int i = 0; i < 200; i++) {
        double mtbf = 100 * exp(10 * uniform(&state)), checkpoint = mtbf * 0.2 * uniform(&state);
        double restart = mtbf * uniform(&state), least = INFINITY;
        for (double t = mtbf / 1e4; t < 4 * mtbf; t *= 1.01)
            least = fmin(least, run_wall_s(1, t, checkpoint, restart, mtbf));
        CU_ASSERT(run_wall_s(1, run_interval_s(checkpoint, mtbf), checkpoint, restart, mtbf) <= least * 1.0005);
    }
}

/* seconds until `need` seconds pass undisturbed, from an interruption's clock that forgets */
static double undisturbed(uint64_t *state, double need, double mtbf, bool restarts, double restart)
{
    double spent = 0;
    for (;;) {
        double at = -mtbf * log(uniform(state));
        if (at >= need)
            return spent + need;
        spent += at;
        if (restarts)
            spent += undisturbed(state, restart, mtbf, false, 0);
    }
}

static void test_drawn(void)
{
    static const struct {
        double interval, checkpoint, restart, mtbf;
    } cases[] = {{50, 2, 10, 300}, {50, 20, 60, 100}, {10, 0, 0, 50}, {1, 0.5, 30, 20}};
    uint64_t state = 7;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum { SEGMENTS = 200000 };
        double sum = 0, interval = cases[i].interval;
        for (int k = 0; k < SEGMENTS; k++)
            sum += undisturbed(&state, interval + cases[i].checkpoint, cases[i].mtbf, true, cases[i].restart);
        double wall = run_wall_s(SEGMENTS * interval, interval, cases[i].checkpoint, cases[i].restart, cases[i].mtbf);
        CU_ASSERT(fabs(sum / wall - 1) < 0.01);
    }
}

/* ---- the bill of a job ---- */

static const struct cost *make(struct arena *a, const char *precision, const char *total, const char *gpu, double price)
{
    const char *model = "llmc 1\nmodel m {\n vocab 64\n width 64\n norm rmsnorm\n embed tokens\n"
                        " layer { attn mha(heads=4); ffn swiglu(64) }\n head untied\n}\n";
    struct job *job = text_job(a, arena_printf(a, "%strain {\n sequence 100\n batch 10 sequences\n precision %s\n%s}\n",
                                               model, precision, total));
    const char *cluster = arena_printf(
        a,
        "<cluster version='1' name='c'><node-type id='n' gpus='4' host-bandwidth='2GB/s'%s<scale-up kind='none'/>"
        "<nic count='1' bandwidth='100Gb/s'/></node-type><nodes type='n' count='8'/>"
        "<fabric medium='roce'><tier name='all' span='all'/></fabric></cluster>",
        gpu);
    struct source s = {.name = "c.xml", .text = cluster, .size = strlen(cluster)};
    struct source *kept = ARENA_NEW(a, struct source);
    struct decision *d = ARENA_NEW(a, struct decision);
    const char *why = "";
    *kept = s;
    struct topo *t = topo_parse(a, diag_new(a), kept, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    *d = decision_single();
    d->dp = d->gpus_used = 10; /* on three nodes */
    CU_ASSERT_FATAL(decision_place(a, t, d, &why));
    job->price = price;
    return cost_new(a, job, t, d);
}

#define H100 "><gpu model='H100-SXM'/>"
#define CPU "><gpu model='cpu' memory='2GiB'><peak dtype='fp32' rate='1GFLOP/s'/></gpu>"
static const struct estimate held = {.parameter_bytes = 1000000000, .optimizer_bytes = 6000000000};

static void test_bill(void)
{
    struct arena *a = arena_new();
    const struct cost *c = make(a, "bf16", " total 1M tokens\n", " mtbf='30d' restart='2min'" H100, 2.5);
    struct whole_run r = run_whole(c, &held, 100);
    double mtbf = 30 * 86400.0 / 3,
           every = round((sqrt(2 * 3 * mtbf) * (1 + sqrt(3 / mtbf / 2) / 3 + 3 / mtbf / 18) - 3) / 100);
    double wall = mtbf * exp(120 / mtbf) * (exp((100 * every + 3) / mtbf) - 1) * 1000 / every;
    CU_ASSERT_EQUAL(r.steps, 1000);                  /* 1,000 tokens each */
    CU_ASSERT_DOUBLE_EQUAL(r.checkpoint_s, 3, 1e-9); /* 6 GB at 2 GB/s; bf16 has its master copy among them */
    CU_ASSERT(r.every == (uint64_t)every && r.every > 1 && r.every_s == 100 * every);
    CU_ASSERT_DOUBLE_EQUAL(r.seconds / wall, 1, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(r.goodput, 100000 / wall, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(r.interruptions, wall / mtbf, 1e-9);
    CU_ASSERT_DOUBLE_EQUAL(r.gpu_hours, wall / 360, 1e-6);
    CU_ASSERT_DOUBLE_EQUAL(r.dollars, 2.5 * wall / 360, 1e-6);
    CU_ASSERT(r.mtbf_s == mtbf && !r.assumed && r.restart_s == 120);
    r = run_whole(c, &held, 1e9); /* a step that takes longer than anything lasts */
    CU_ASSERT(r.every == 1 && r.goodput < 1e-9);
    CU_ASSERT_PTR_NOT_NULL(strstr(run_text(a, &r), "interruptions leave no time"));
    arena_free(a);
}

static void test_unsaid(void)
{
    struct arena *a = arena_new();
    struct whole_run r = run_whole(make(a, "bf16", "", H100, 1), &held, 1);
    struct strbuf b = {0};
    run_json(&r, &b);
    CU_ASSERT(!r.steps && !b.length);
    r = run_whole(make(a, "bf16", " total 1001 tokens\n", H100, 0), &held,
                  1); /* a whole step more for the last token */
    CU_ASSERT(r.steps == 2 && r.assumed && r.restart_s == 600 && r.node_mtbf_s == 264 * 86400.0 && r.every == 2);
    CU_ASSERT_STRING_EQUAL(run_text(a, &r), "5s, 0 GPU hours; goodput 40.0 %");
    CU_ASSERT_STRING_EQUAL(run_detail(a, &r, 1),
                           "1,001 tokens in 2 steps, at best with a checkpoint after every 2 (2s), of 3s each\n"
                           " 0 interruptions: a node has one in 264d, as is assumed, and steps go on after 10min");
    r = run_whole(make(a, "fp32", " total 1M tokens\n", CPU, 0), &held, 1);
    CU_ASSERT(r.seconds == 1000 && r.goodput == 1 && !r.every && r.mtbf_s == 0);
    CU_ASSERT_DOUBLE_EQUAL(r.checkpoint_s, 3.5, 1e-9); /* the weights are their own master copy */
    CU_ASSERT_STRING_EQUAL(run_text(a, &r), "16.7min, 3 GPU hours");
    CU_ASSERT_STRING_EQUAL(run_detail(a, &r, 1), "1M tokens in 1,000 steps");
    strbuf_free(&b);
    arena_free(a);
}

void suite_whole_run(void);
void suite_whole_run(void)
{
    CU_pSuite s = CU_add_suite("whole_run", NULL, NULL);
    CU_add_test(s, "the best interval is that of Daly's figures", test_daly);
    CU_add_test(s, "no other interval is better", test_best);
    CU_add_test(s, "the wall time is that of drawn interruptions", test_drawn);
    CU_add_test(s, "what a run costs, by hand", test_bill);
    CU_add_test(s, "nothing is said of what nobody said", test_unsaid);
}
