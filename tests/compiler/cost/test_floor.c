/* Floors: no group of a mesh, in any order of axes on any shipped cluster, communicates faster than the floor of as many
 * ranks, and no decision that was found needs less memory than the least of its state. */

#include "compiler/cost/cost_private.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/search/found.h"

#include <CUnit/Basic.h>
#include <string.h>

static const struct {
    const char *model, *cluster;
} examples[] = {{"deepseek-v3", "h800-2048"},   {"llama3-405b", "meta-24k-roce"}, {"mixtral-8x22b", "gb200-nvl72"},
                {"mixtral-8x7b", "tpu-v5p"},    {"gpt3-175b", "a100-1024"},       {"tiny-moe", "cpu8"},
                {"tiny-moe", "cpu16"},          {"llama3-8b", "dgx-h100-superpod"}, {"mixtral-8x7b", "dgx-a100-superpod"}};

/* any degrees, order and nodes that the cluster has; false: it has not so many */
static bool any_decision(struct arena *a, const struct topo *topo, uint64_t *state, struct decision *d)
{
    const char *why;
    *d = decision_single();
    d->tp = 1u << random_below(state, 7);
    d->cp = 1u << random_below(state, 4);
    d->pp = 1 + random_below(state, 6);
    d->dp = 1u << random_below(state, 8);
    d->ep = 1u << random_below(state, 7);
    if ((uint64_t)d->tp * d->cp * d->dp % d->ep)
        d->ep = 1;
    for (uint32_t i = NAXES; i-- > 1;) {
        uint32_t j = random_below(state, i + 1);
        enum axis x = d->order[i];
        d->order[i] = d->order[j];
        d->order[j] = x;
    }
    return decision_place(a, topo, d, &why);
}

static void check_group(const struct cost *c, const struct cost *near, const struct cost_group *g, uint32_t *slower)
{
    static const enum op ops[] = {OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_TO_ALL};
    struct cost_group floor = cost_floor_group(near, g->n);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        for (double bytes = 100; bytes < 1e11; bytes *= 13)
            *slower += cost_group_s(near, ops[i], bytes, &floor) > cost_group_s(c, ops[i], bytes, g) * (1 + 1e-5);
    for (double bytes = 100; bytes < 1e11; bytes *= 13)
        for (uint32_t pick = 0; pick < 8; pick += 4)
            *slower += cost_dispatch_s(near, bytes, 8, 8, pick, &floor, true) >
                       cost_dispatch_s(c, bytes, 8, 8, pick, g, true) * (1 + 1e-5);
}

/* of drawn decisions on a cluster */
static void check_cluster(struct arena *a, const struct job *job, const struct topo *topo, uint64_t *state)
{
    uint32_t slower = 0, tried = 0;
    for (uint32_t k = 0; k < 400; k++) {
        struct decision d;
        struct arena_mark mark = arena_mark(a);
        if (any_decision(a, topo, state, &d)) {
            struct cost *c = cost_new(a, job, topo, &d), near = *c;
            cost_device_init(&near);
            cost_net_init(&near);
            check_group(c, &near, &c->group[AXIS_BIT(AXIS_TP)], &slower);
            check_group(c, &near, &c->group[AXIS_BIT(AXIS_CP)], &slower);
            check_group(c, &near, &c->ep, &slower);
            tried++;
        }
        arena_reset(a, mark);
    }
    CU_ASSERT(tried > 10);
    CU_ASSERT_EQUAL(slower, 0);
}

static void test_groups(void)
{
    uint64_t state = 17;
    for (size_t i = 0; i < ARRAY_LEN(examples); i++) {
        struct arena *a = arena_new();
        struct diag *diag = diag_new(a);
        struct job *job = job_read(a, diag, arena_printf(a, "plans/%s/model.llm", examples[i].model), NULL, 0);
        struct topo *topo = topo_read(a, diag, arena_printf(a, "topologies/%s.xml", examples[i].cluster));
        CU_ASSERT_FATAL(job && topo);
        check_cluster(a, job, topo, &state);
        arena_free(a);
    }
}

/* Upper levels are neither nearer nor faster, whatever is stated of them and assumed of what is not. */
static void test_levels(void)
{
    static const struct {
        const char *medium, *nic, *leaf, *spine;
    } rows[] = {{"infiniband", "", "latency=\"15us\"", "latency=\"1us\""},
                {"roce", "", "oversubscription=\"4\"", "oversubscription=\"0.5\""},
                {"efa", "", "", "latency=\"1us\""},
                {"efa", "", "latency=\"2us\"", ""},
                {"efa", "latency=\"4us\"", "", "latency=\"50us\""}};
    uint64_t state = 5;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new();
        const char *text = arena_printf(
            a, "<cluster version=\"1\"><node-type id=\"n\" gpus=\"8\"><gpu model=\"H100-SXM\"/><scale-up kind=\"nvswitch\" "
               "bandwidth=\"450GB/s\"/><nic count=\"8\" bandwidth=\"400Gb/s\" %s/></node-type><nodes type=\"n\" count=\"256\"/>"
               "<fabric medium=\"%s\"><tier name=\"leaf\" span=\"4\" %s/><tier name=\"spine\" span=\"all\" %s/></fabric>"
               "</cluster>",
            rows[i].nic, rows[i].medium, rows[i].leaf, rows[i].spine);
        struct source s = {.name = "c.xml", .text = text, .size = strlen(text)};
        struct diag *diag = diag_new(a);
        struct topo *topo = topo_parse(a, diag, &s, NULL);
        struct job *job = job_read(a, diag, "plans/deepseek-v3/model.llm", NULL, 0);
        if (!topo)
            diag_print(diag, stderr, false);
        CU_ASSERT_FATAL(topo && job);
        struct decision d = decision_single();
        const char *why;
        CU_ASSERT_FATAL(decision_place(a, topo, &d, &why));
        const struct cost_net *net = &cost_new(a, job, topo, &d)->net;
        CU_ASSERT(net->extra_s[2] >= net->extra_s[1] && net->bytes_s[2] <= net->bytes_s[1]);
        check_cluster(a, job, topo, &state);
        arena_free(a);
    }
}

/* a floor is worth something: inside a node it is what the group takes */
static void test_close(void)
{
    struct arena *a = arena_new();
    struct diag *diag = diag_new(a);
    struct job *job = job_read(a, diag, "plans/deepseek-v3/model.llm", NULL, 0);
    struct topo *topo = topo_read(a, diag, "topologies/h800-2048.xml");
    CU_ASSERT_FATAL(job && topo);
    struct decision d = decision_single();
    const char *why;
    d.tp = 8;
    d.dp = 32;
    CU_ASSERT_FATAL(decision_place(a, topo, &d, &why));
    const struct cost *c = cost_new(a, job, topo, &d);
    struct cost_group floor = cost_floor_group(c, 8);
    double own = cost_collective_s(c, OP_ALL_GATHER, 1e8, AXIS_BIT(AXIS_TP)), least = cost_group_s(c, OP_ALL_GATHER, 1e8, &floor);
    CU_ASSERT(least <= own && least > 0.9 * own);
    arena_free(a);
}

static void test_state(void)
{
    const char *const sets[] = {"gpus<=256"};
    for (size_t i = 0; i < 4; i++) {
        struct found f = search_example(examples[i].model, examples[i].cluster, sets, i < 2 ? 0 : 1, 10, false);
        for (uint32_t k = 0; k < f.r->ncandidates; k++) {
            const struct candidate *x = &f.r->candidates[k];
            struct cost *c = cost_new(f.a, f.job, f.topo, &x->decision);
            struct cost_kinds kinds = cost_kinds_new(f.a, &f.job->model);
            struct cost_shape shape;
            cost_shape_init(f.a, c, &kinds, &shape);
            CU_ASSERT(cost_state_least(c, &shape) <= x->estimate.peak_bytes);
        }
        arena_free(f.a);
    }
}

void suite_floor(void);
void suite_floor(void)
{
    CU_pSuite s = CU_add_suite("floor", NULL, NULL);
    CU_add_test(s, "no group is faster", test_groups);
    CU_add_test(s, "upper levels are further", test_levels);
    CU_add_test(s, "what sits together is as fast", test_close);
    CU_add_test(s, "no rank holds less", test_state);
}
