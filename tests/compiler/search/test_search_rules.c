/* Rules of the search that one small search each can show: which wishes are warned of, that a layout is kept
 * as it is given, and how steps of very many actions are timed. */

#include "compiler/model/sema.h"
#include "compiler/search/space.h"
#include "compiler/support/vec.h"
#include "tests/compiler/search/found.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <string.h>

/* wishes that nothing can follow, and the same ones where something can */
static const struct {
    const char *sets[4], *message; /* NULL: no warning */
} wished[] = {
    {{"tp=1", "sequence_parallel=yes"},
     "--set:1:19: warning: sequence parallelism does nothing here: tp can only be 1"},
    {{"tp in [1, 2]", "sequence_parallel=yes"}, NULL},
    {{"zero=0", "shard=2"},
     "--set:1:9: warning: there is no state to split over 2 ranks: zero can only be 0"},
    {{"zero=0", "shard=2", "cp in [1, 2]", "sequence=4096"},
     "--set:1:9: warning: there is no state to split over 2 ranks: zero can only be 0"},
    {{"shard=2"}, NULL},
    {{"zero in [0, 1]", "shard=2", "cp=1"}, NULL},
    {{"zero=0", "shard=1"}, NULL},
};

static void test_idle(void)
{
    for (size_t i = 0; i < ARRAY_LEN(wished); i++) {
        uint32_t n = 0;
        while (n < ARRAY_LEN(wished[i].sets) && wished[i].sets[n])
            n++;
        struct found f = search_example("tiny-llama", "cpu8", wished[i].sets, n, 1, false);
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        diag_print(f.d, out, false);
        fclose(out);
        bool warned = wished[i].message && strstr(text, wished[i].message);
        CU_ASSERT_EQUAL(diag_warnings(f.d), warned);
        CU_ASSERT_EQUAL(warned, wished[i].message != NULL);
        if (diag_warnings(f.d) != warned || warned != (wished[i].message != NULL))
            printf("\n    %zu: %s", i, text);
        free(text);
        arena_free(f.a);
    }
}

/* layers of each stage, the first to the last */
static const uint32_t layout[] = {1, 1, 0, 2};

static struct found search_layout(const char *const *sets, uint32_t nsets, const char *text)
{
    struct found f = {.a = arena_new()};
    f.d = diag_new(f.a);
    f.job = job_read(f.a, f.d, "plans/tiny-llama/model.llm", sets, nsets);
    f.topo = topo_read(f.a, f.d, "topologies/cpu8.xml");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f.job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f.topo);
    f.job->wishes.layout = text;
    f.r = search(f.a, f.d, f.job, f.topo, 20, 0, false);
    return f;
}

/* The stages that a layout gives are those of every candidate; where nothing fits with them nothing is found.
 */
static void test_layout(void)
{
    static const char *const sets[] = {"tp=1",       "dp=4", "pp=2", "vpp=2", "schedule=interleaved",
                                       "memory=1MiB"};
    struct found f = search_layout(sets, 5, "Et|t||ttL");
    CU_ASSERT_FATAL(f.r->ncandidates > 0);
    for (uint32_t k = 0; k < f.r->ncandidates; k++) {
        const struct decision *d = &f.r->candidates[k].decision;
        CU_ASSERT_EQUAL_FATAL(d->nstages, ARRAY_LEN(layout));
        for (uint32_t i = 0; i < d->nstages; i++)
            CU_ASSERT_EQUAL(d->stages[i].count, layout[i]);
    }
    arena_free(f.a);
    f = search_layout(sets, 6, "Et|t||ttL");
    CU_ASSERT_EQUAL(f.r->ncandidates, 0);
    CU_ASSERT(f.r->has_closest && diag_errors(f.d) == 1);
    arena_free(f.a);
}

/* the axes that an order names are the innermost ones as it names them; behind them come the others: tp, cp,
 * dp, pp */
static const struct {
    const char *set;
    enum axis order[NAXES];
} orders[] = {
    {"order=[pp]", {AXIS_PP, AXIS_TP, AXIS_CP, AXIS_DP}},
    {"order=[cp, tp]", {AXIS_CP, AXIS_TP, AXIS_DP, AXIS_PP}},
    {"order=[pp, tp]", {AXIS_PP, AXIS_TP, AXIS_CP, AXIS_DP}},
    {"order=[dp, pp, tp]", {AXIS_DP, AXIS_PP, AXIS_TP, AXIS_CP}},
    {"order=[pp, dp, cp, tp]", {AXIS_PP, AXIS_DP, AXIS_CP, AXIS_TP}},
};

static void test_order(void)
{
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        struct found f = search_example("tiny-llama", "cpu8", &orders[i].set, 1, 4, false);
        CU_ASSERT_FATAL(f.r->ncandidates > 0);
        for (uint32_t k = 0; k < f.r->ncandidates; k++)
            CU_ASSERT(!memcmp(f.r->candidates[k].decision.order, orders[i].order, sizeof orders[i].order));
        arena_free(f.a);
    }
}

/* Node lists for runs of 1 to 32 nodes within a pod are made once each; the first is that of all usable
 * nodes, and there is room for as many as these. */
static void test_places(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct job *job = job_read(a, d, "plans/llama3-405b/model.llm", NULL, 0);
    struct topo *topo = topo_read(a, d, "topologies/meta-24k-roce.xml");
    struct space *s = ARENA_NEW(a, struct space);
    struct keep_wish keep = {.axis = "pp", .within = "pod"};
    CU_ASSERT_FATAL(job && topo);
    job->wishes.keeps = &keep;
    job->wishes.nkeeps = 1;
    CU_ASSERT_FATAL(space_new(a, d, job, topo, false, s));
    for (uint32_t nodes = 1; nodes <= ARRAY_LEN(s->places) + 1; nodes++)
        for (int again = 0; again < 2; again++) {
            struct decision x = decision_single();
            bool room = nodes <= ARRAY_LEN(s->places);
            x.tp = topo->types[s->type].gpus;
            x.pp = nodes;
            CU_ASSERT_EQUAL(space_place(s, 0, &x), room);
            CU_ASSERT_EQUAL(s->nplaces, room ? nodes : ARRAY_LEN(s->places));
            CU_ASSERT(!room || x.nnodes == nodes);
        }
    arena_free(a);
}

/* Where the number of GPUs is given, GPU time orders plans as time does: the search goes the same way. */
static void test_gpu_time(void)
{
    static const char *const sets[] = {"gpus in [8]", "tp>=1", "pp>=1", "dp>=1", "batch=32 sequences"};
    struct found f = search_example("llama3-8b", "h100x8", sets, ARRAY_LEN(sets), 8, false);
    f.job->wishes.objective = MINIMIZE_GPU_TIME;
    const struct search_result *r = search(f.a, f.d, f.job, f.topo, 8, 0, false);
    CU_ASSERT_FATAL(r->ncandidates > 1 && r->ncandidates == f.r->ncandidates);
    CU_ASSERT_EQUAL(r->spent, f.r->spent);
    for (uint32_t k = 0; k < r->ncandidates; k++)
        CU_ASSERT_STRING_EQUAL(decision_text(f.a, f.job, &r->candidates[k].decision),
                               decision_text(f.a, f.job, &f.r->candidates[k].decision));
    arena_free(f.a);
}

/* A step is run action by action if it has not more than two million of them: else its time is that of the
 * closed form. */
static void test_many_actions(void)
{
    static const struct {
        const char *batch;
        bool run;
    } cases[] = {{"batch=16 sequences", true}, {"batch=262144 sequences", false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *const sets[] = {"tp=1",       "dp=1",   "pp=4",        "microbatch=1",
                                    "sequence=8", "zero=0", cases[i].batch};
        struct found f = search_example("tiny-llama", "cpu8", sets, ARRAY_LEN(sets), 1, false);
        CU_ASSERT_EQUAL_FATAL(f.r->ncandidates, 1);
        CU_ASSERT_EQUAL(f.r->simulated > 0, cases[i].run);
        const struct candidate *x = &f.r->candidates[0];
        struct estimate e;
        cost_estimate(f.a, cost_new(f.a, f.job, f.topo, &x->decision), &e);
        if (!cases[i].run)
            CU_ASSERT_DOUBLE_EQUAL(x->estimate.step_time_s, e.step_time_s, 1e-9 * e.step_time_s);
        arena_free(f.a);
    }
}

void suite_search_rules(void);
void suite_search_rules(void)
{
    CU_pSuite s = CU_add_suite("search_rules", NULL, NULL);
    CU_add_test(s, "wishes that do nothing", test_idle);
    CU_add_test(s, "a layout stays as it is given", test_layout);
    CU_add_test(s, "orders of some axes", test_order);
    CU_add_test(s, "lists of nodes", test_places);
    CU_add_test(s, "GPU time of so many GPUs", test_gpu_time);
    CU_add_test(s, "steps of very many actions", test_many_actions);
}
