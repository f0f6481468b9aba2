/* Decisions: every rule of legality with its sentence, the cut into stages against brute force, written forms. */

#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "tests/compiler/model/given.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SET(field, value)                                                                                    \
    static void set_##field(struct decision *d)                                                              \
    {                                                                                                        \
        d->field = value;                                                                                    \
    }
SET(tp, 3)
SET(dp, 3)
SET(vpp, 0)
SET(microbatch, 3)
SET(zero, 4)
SET(shard, 3)
SET(ep, 2)
SET(cp, 2)
SET(recompute, RECOMPUTE_AUTO)
SET(schedule, SCHED_INTERLEAVED)
SET(nstages, 3)
static void set_order(struct decision *d)
{
    d->order[0] = AXIS_PP;
}
static void set_first(struct decision *d)
{
    d->stages[1].first = 2;
}
static void set_count(struct decision *d)
{
    d->stages[1].count = 2;
}
static void set_nodes(struct decision *d)
{
    d->nnodes = 0;
}

static const struct {
    void (*set)(struct decision *d);
    const char *why;
} illegal[] = {
    {set_tp, "tp * cp * pp * dp = 12 is not the number of GPUs used, 8"},
    {set_dp, "tp * cp * pp * dp = 12 is not the number of GPUs used, 8"},
    {set_cp, "tp * cp * pp * dp = 16 is not the number of GPUs used, 8"},
    {set_vpp, "vpp must be at least 1"},
    {set_microbatch, "the batch of 16 sequences is not microbatch 3 * microbatches 4 * dp 2"},
    {set_zero, "zero must be 0 to 3"},
    {set_shard, "shard = 3 does not divide dp * cp = 2"},
    {set_ep, "ep and etp need a model with experts"},
    {set_recompute, "a decision names one kind of recomputation"},
    {set_schedule, "schedule interleaved takes vpp >= 2, not 1"},
    {set_nstages, "3 stages are not pp * vpp = 2"},
    {set_order, "the order must name tp, cp, dp and pp once each"},
    {set_first, "stage 1 starts at layer 2, expected 3"},
    {set_count, "the stages hold 5 of 6 layers"},
    {set_nodes, "0 nodes of 8 GPUs cannot hold 8 ranks"},
};

static void test_legal(void)
{
    struct given g = given();
    const char *why = "";
    CU_ASSERT(decision_legal(g.a, g.job, g.topo, &g.d, &why));
    CU_ASSERT(decision_emittable(g.a, g.job, &g.d, &why));
    arena_free(g.a);
    for (size_t i = 0; i < sizeof illegal / sizeof *illegal; i++) {
        g = given();
        illegal[i].set(&g.d);
        CU_ASSERT_FALSE(decision_legal(g.a, g.job, g.topo, &g.d, &why));
        CU_ASSERT_STRING_EQUAL(why, illegal[i].why);
        arena_free(g.a);
    }
}

static void test_emittable(void)
{
    struct given g = given();
    const char *why = "";
    g.job->wishes.offload = OFFLOAD_OPTIMIZER;
    CU_ASSERT_TRUE(decision_emittable(g.a, g.job, &g.d, &why));
    g.job->wishes.offload = OFFLOAD_ACTIVATIONS;
    CU_ASSERT_TRUE(decision_emittable(g.a, g.job, &g.d, &why));
    g.job->wishes.offload = 0;
    g.d.dp = 64;
    CU_ASSERT_FALSE(decision_place(g.a, g.topo, &g.d, &why));
    CU_ASSERT_STRING_EQUAL(why, "256 GPUs are needed but 'c' has 8 usable");
    arena_free(g.a);
}

/* ---- every sentence of decision_emittable() ---- */

struct refused {
    struct job *job;
    struct decision *d;
    struct layer *layer; /* all layers are this one */
};

static void make_experts(struct refused *x)
{
    x->layer->is_moe = true;
    x->layer->moe = (struct moe){.expert = x->layer->ffn, .experts = 64, .active = 2, .groups = 1, .pick = 1};
}

static void want_words(struct refused *x)
{
    static const struct plan_only only = {.what = "'dispatch'"};
    x->job->plan_only = &only;
    x->job->nplan_only = 1;
}

static void want_sinks(struct refused *x)
{
    x->layer->attn.sinks = true;
    x->d->cp = 2;
    x->d->context = CONTEXT_ALL_TO_ALL;
}

static void want_normalised(struct refused *x)
{
    x->layer->attn.qk_norm = QK_NORM_FULL;
}

static void want_biases(struct refused *x)
{
    make_experts(x);
    x->layer->moe.expert.bias = true;
    x->layer->moe.shared = 2;
}

static void want_whole_rows(struct refused *x)
{
    make_experts(x);
    x->d->sp = false;
}

static void want_capacity_cp(struct refused *x)
{
    make_experts(x);
    x->layer->moe.capacity = 1;
    x->d->cp = 2;
}

static void want_capacity_tp(struct refused *x)
{
    make_experts(x);
    x->layer->moe.capacity = 1;
    x->d->microbatch = 1;
}

static void want_all_to_all(struct refused *x)
{
    x->job->wishes.overlap = OVERLAP_ALL_TO_ALL;
}

static void want_overlapped_tp(struct refused *x)
{
    static const struct profile other = {.allocator = 1};
    x->job->wishes.overlap = OVERLAP_TP;
    x->job->wishes.profile = &other;
    x->job->wishes.profile_name = "other";
}

static void want_overlapped_cp(struct refused *x)
{
    x->job->wishes.overlap = OVERLAP_CP;
    x->d->cp = 2;
    x->d->context = CONTEXT_ALL_TO_ALL;
}

static void want_waiting_pp(struct refused *x)
{
    x->job->wishes.never_overlap = OVERLAP_PP;
}

static void want_prefetch(struct refused *x)
{
    x->job->wishes.never_overlap = OVERLAP_DP;
    x->d->zero = 3;
    x->d->prefetch = 2;
}

static void skew(struct refused *x)
{
    x->job->wishes.post_validation = true;
    x->d->schedule = SCHED_ZB_H2;
}

static void want_skewed_sgd(struct refused *x)
{
    skew(x);
    x->job->train.optimizer = OPT_SGD;
}

static void want_skewed_host(struct refused *x)
{
    skew(x);
    x->job->wishes.offload = OFFLOAD_OPTIMIZER;
}

static void want_skewed_experts(struct refused *x)
{
    skew(x);
    make_experts(x);
}

static void want_odd_experts(struct refused *x)
{
    make_experts(x);
    x->d->dp = 6;
    x->d->ep = 3;
}

static void want_odd_shard(struct refused *x)
{
    x->d->dp = 6;
    x->d->shard = 4;
}

static void want_cuts(struct refused *x)
{
    make_experts(x);
    x->d->tp = x->d->dp = 16;
    x->d->etp = x->d->ep_nodes = 2;
    x->d->ep = x->d->shard = 4;
}

static void want_tokens(struct refused *x)
{
    x->job->train.sequence = UINT64_C(1) << 30;
}

static void want_weights(struct refused *x)
{
    x->job->model.vocab = UINT64_C(1) << 31;
}

static void want_instructions(struct refused *x)
{
    x->d->microbatches = 10000;
}

static const struct {
    void (*want)(struct refused *x);
    const char *why;
} refused[] = {
    {want_words, "'dispatch'"},
    {want_sinks, "sinks with heads exchanged over cp = 2"},
    {want_normalised, "tp = 2 with queries normalised over all heads"},
    {want_biases, "shared experts with biases"},
    {want_whole_rows, "experts with tp = 2 and no sequence parallelism"},
    {want_capacity_cp, "experts with a capacity and sequences split over cp = 2"},
    {want_capacity_tp, "experts with a capacity and the sequences of a microbatch of 1 split over tp = 2"},
    {want_all_to_all, "overlap of all_to_all without combined_1f1b, dualpipe or dualpipe_v"},
    {want_overlapped_tp, "overlap of tp with profile \"other\""},
    {want_overlapped_cp, "overlap of cp by all_to_all"},
    {want_waiting_pp, "never overlap of pp"},
    {want_prefetch, "prefetch = 2 with 'never overlap dp'"},
    {want_skewed_sgd, "post_validation with another optimizer than adamw"},
    {want_skewed_host, "post_validation with the optimizer's state in host memory"},
    {want_skewed_experts, "post_validation with experts"},
    {want_odd_experts, "tp = 2 across ep: their groups do not nest"},
    {want_odd_shard, "shard = 4 across dp: their groups do not nest"},
    {want_cuts, "groups of experts, of their nodes, of key heads and of shards that end inside those of tp, cp and dp in "
                "more than 4 places"},
    {want_tokens, "a microbatch of 2147483648 tokens"},
    {want_weights, "weights of 2.75e+11 elements on one rank"},
    {want_instructions, "a program of about 4.4 million instructions (10000 microbatches)"},
};

static void test_refused(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct given g = given();
        const char *why = "";
        struct layer layer = *g.job->model.layers[0];
        struct refused x = {g.job, &g.d, &layer};
        for (uint32_t l = 0; l < g.job->model.nlayers; l++)
            g.job->model.layers[l] = &layer;
        CU_ASSERT(decision_emittable(g.a, g.job, &g.d, &why));
        refused[i].want(&x);
        CU_ASSERT_FALSE(decision_emittable(g.a, g.job, &g.d, &why));
        CU_ASSERT_STRING_EQUAL(why, refused[i].why);
        if (strcmp(why, refused[i].why) != 0)
            printf("\n    %s", why);
        arena_free(g.a);
    }
}

/* a wish to overlap something of which the layout has nothing holds */
static void test_nothing_to_overlap(void)
{
    struct given g = given();
    const char *why = "";
    g.job->wishes.overlap = OVERLAP_CP;
    CU_ASSERT(decision_emittable(g.a, g.job, &g.d, &why));
    g.d.cp = 2;
    g.d.context = CONTEXT_RING;
    CU_ASSERT(decision_emittable(g.a, g.job, &g.d, &why));
    arena_free(g.a);
}

/* least heaviest stage by trying all cuts of n layers into what is left */
static double best_cut(const double *cost, uint32_t n, uint32_t stages, bool first, double embed, double head)
{
    double best = INFINITY, sum = first ? embed : 0;
    if (stages == 1) {
        for (uint32_t i = 0; i < n; i++)
            sum += cost[i];
        return sum + head;
    }
    for (uint32_t i = 1; i + stages - 1 <= n; i++) {
        sum += cost[i - 1];
        best = fmin(best, fmax(sum, best_cut(cost + i, n - i, stages - 1, false, embed, head)));
    }
    return best;
}

static void test_cut(void)
{
    struct arena *a = arena_new();
    srand(7);
    for (int round = 0; round < 400; round++) {
        uint32_t n = 2 + (uint32_t)rand() % 9, stages = 1 + (uint32_t)rand() % (n < 5 ? n : 5);
        double cost[12], embed = rand() % 4 * 0.5, head = rand() % 6 * 0.7, heaviest = 0;
        for (uint32_t i = 0; i < n; i++)
            cost[i] = round % 2 ? 1.25 : 1 + rand() % 5;
        struct decision d = {.pp = stages, .vpp = 1};
        decision_cut(a, &d, n, cost, embed, head);
        uint32_t next = 0;
        for (uint32_t s = 0; s < stages; s++) {
            double sum = (s == 0 ? embed : 0) + (s + 1 == stages ? head : 0);
            CU_ASSERT_EQUAL(d.stages[s].first, next);
            CU_ASSERT(d.stages[s].count >= 1);
            for (uint32_t i = 0; i < d.stages[s].count; i++)
                sum += cost[next + i];
            next += d.stages[s].count;
            heaviest = fmax(heaviest, sum);
        }
        CU_ASSERT_EQUAL(next, n);
        CU_ASSERT_DOUBLE_EQUAL(heaviest, best_cut(cost, n, stages, true, embed, head), 1e-9);
    }
    arena_free(a);
}

/* 61 layers and a head of three on 16 ranks of two stages: four each, looped and folded */
static void test_cut_ranks(void)
{
    const enum schedule_kind kinds[] = {SCHED_INTERLEAVED, SCHED_ZB_V};
    for (int k = 0; k < 2; k++) {
        struct arena *a = arena_new();
        struct decision d = {.pp = 16, .vpp = 2, .schedule = kinds[k]};
        double load[16] = {0};
        decision_cut(a, &d, 61, NULL, 0, 3);
        for (uint32_t s = 0, next = 0; s < 32; next += d.stages[s++].count) {
            CU_ASSERT_EQUAL(d.stages[s].first, next);
            load[k && s >= 16 ? 31 - s : s % 16] += d.stages[s].count + (s == 31 ? 3 : 0);
        }
        for (uint32_t r = 0; r < 16; r++)
            CU_ASSERT_EQUAL(load[r], 4);
        arena_free(a);
    }
}

static const struct {
    const char *layout, *print; /* print NULL = refused with `why` */
    const char *why;
} layouts[] = {
    {"Et*3|t*3L", "Et*3|t*3L", NULL},
    {"Ettt|tttL", "Et*3|t*3L", NULL},
    {"E|(t*2|)*3L", "E|t*2|t*2|t*2|L", NULL},
    {"Et*5, | t m L", "Et*5|tL", NULL},
    {"Et*5|t", NULL, "the layout must end with L"},
    {"t*6L", NULL, "the layout must start with E"},
    {"Et*5L", NULL, "the layout has 5 layers, the model 6"},
    {"Et*6L|", NULL, "L must be the last element of the layout"},
    {"EEt*6L", NULL, "the layout has a second E"},
    {"Et*6xL", NULL, "the layout has 'x'; E, t, m, L, |, *N and parentheses are known"},
    {"E(t*6L", NULL, "the layout does not close a parenthesis"},
    {"Et)*6L", NULL, "the layout closes a parenthesis that is not open"},
    {"E((t)*2)*3L", NULL, "the layout nests parentheses"},
    {"Et*L", NULL, "a repeat count in the layout is missing or too large"},
    {"Et*99999999999999999999L", NULL, "a repeat count in the layout is missing or too large"},
    {"E(t*1000)*1000L", NULL, "a repeat count in the layout is missing or too large"},
    {"Etm|t*5L", NULL, "prediction modules (m) are planned in the last stage only"},
};

static void test_layout(void)
{
    struct arena *a = arena_new();
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct decision d = {0};
        const char *why = "";
        bool good = decision_parse_layout(a, &d, 6, layouts[i].layout, &why);
        CU_ASSERT_EQUAL(good, layouts[i].print != NULL);
        CU_ASSERT_STRING_EQUAL(good ? decision_layout(a, &d) : why, good ? layouts[i].print : layouts[i].why);
    }
    arena_free(a);
}

static void test_text(void)
{
    struct given g = given();
    CU_ASSERT_STRING_EQUAL(decision_text(g.a, g.job, &g.d),
                           "tp 2 sp, pp 2, dp 2, zero 1, microbatch 2 x 4, 1f1b, recompute none");
    g.d.order[2] = AXIS_PP;
    g.d.order[3] = AXIS_DP;
    g.d.recompute = RECOMPUTE_SELECTIVE;
    g.d.parts = PART_NORM | PART_FFN_ACT;
    CU_ASSERT_STRING_EQUAL(decision_text(g.a, g.job, &g.d), "tp 2 sp, pp 2, dp 2, zero 1, microbatch 2 x 4, 1f1b, order tp cp pp dp, "
                                                     "recompute selective [norm ffn_act]");
    /* an axis of one rank may stand anywhere; of the others every unusual order is said */
    memcpy(g.d.order, (const enum axis[]){AXIS_TP, AXIS_DP, AXIS_CP, AXIS_PP}, sizeof g.d.order);
    CU_ASSERT_PTR_NULL(strstr(decision_text(g.a, g.job, &g.d), "order"));
    g.d.cp = 2;
    CU_ASSERT_PTR_NOT_NULL(strstr(decision_text(g.a, g.job, &g.d), ", order tp dp cp pp, "));
    /* what the job asks for and no search changes */
    g.job->wishes.offload = OFFLOAD_OPTIMIZER | OFFLOAD_ACTIVATIONS;
    g.job->wishes.post_validation = true;
    g.d.schedule = SCHED_ZB_H2;
    const char *text = decision_text(g.a, g.job, &g.d);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, ", zb_h2 post-validated, "));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, ", offload optimizer activations"));
    struct strbuf json = {0};
    decision_json(g.job, &g.d, &json);
    CU_ASSERT_PTR_NOT_NULL(strstr(json.text, "\"offload\": [\"optimizer\", \"activations\"]"));
    CU_ASSERT_PTR_NOT_NULL(strstr(json.text, "\"post_validation\": true"));
    strbuf_free(&json);
    arena_free(g.a);
}

static bool read_back(struct given *g, const char *json, struct decision *d, const char **why)
{
    return decision_from_json(g->a, json, strlen(json), g->job, g->topo, d, why);
}

static void test_json(void)
{
    struct given g = given();
    struct strbuf one = {0}, two = {0};
    struct decision d;
    const char *why = "";
    decision_json(g.job, &g.d, &one);
    CU_ASSERT_FATAL(read_back(&g, one.text, &d, &why));
    decision_json(g.job, &d, &two);
    CU_ASSERT_STRING_EQUAL(one.text, two.text);
    CU_ASSERT_FALSE(read_back(&g, "{}", &d, &why));
    CU_ASSERT_STRING_EQUAL(why, "decision: 'tp' must be a whole number");
    CU_ASSERT_FALSE(read_back(&g, "[]", &d, &why));
    CU_ASSERT_STRING_EQUAL(why, "decision: not an object");
    /* every value replaced in turn must be refused, or still give a legal decision */
    for (size_t i = 0; i < one.length; i++) {
        char *edited = arena_strdup(g.a, one.text);
        edited[i] = edited[i] == '9' ? '0' : '9';
        if (read_back(&g, edited, &d, &why))
            CU_ASSERT(decision_legal(g.a, g.job, g.topo, &d, &why));
    }
    static const struct {
        const char *list, *why;
    } stages[] = {
        {"[1, 1]", NULL},
        {"[0, 3]", NULL},
        {"[0, 4]", "decision: 'recompute_stages' must count layers of its stage"},
        {"[-1, 1]", "decision: 'recompute_stages' must count layers of its stage"},
        {"[\"1\", 1]", "decision: 'recompute_stages' must count layers of its stage"},
        {"[1.5, 1]", "decision: 'recompute_stages' must count layers of its stage"},
        {"[1]", "decision: 'recompute_stages' must have one number for each of the 2 stages"},
    };
    const char *none = strstr(one.text, "\"recompute\": \"none\",");
    CU_ASSERT_PTR_NOT_NULL_FATAL(none);
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        char *edited = arena_printf(g.a, "%.*s\"recompute\": \"full\", \"recompute_stages\": %s,%s", (int)(none - one.text),
                                    one.text, stages[i].list, none + strlen("\"recompute\": \"none\","));
        why = "";
        CU_ASSERT_EQUAL(read_back(&g, edited, &d, &why), stages[i].why == NULL);
        CU_ASSERT_STRING_EQUAL(why, stages[i].why ? stages[i].why : "");
    }
    for (size_t n = 0; n < one.length; n++)
        CU_ASSERT_FALSE(decision_from_json(g.a, one.text, n, g.job, g.topo, &d, &why));
    strbuf_free(&one);
    strbuf_free(&two);
    arena_free(g.a);
}

/* nodes are listed in runs [first, count]: all of them the cluster's, in its order, no more than it has */
static void test_json_nodes(void)
{
    static const char cluster[] = "<cluster version='1'><node-type id='c' gpus='1'><gpu model='H100-SXM'/>"
                                  "<nic count='1' bandwidth='400Gb/s'/></node-type>"
                                  "<nodes type='c' count='8'/>"
                                  "<fabric><tier name='leaf' span='all'/></fabric></cluster>";
    static const char none[] = "decision: 'nodes' lists nodes that the cluster does not have",
                      order[] = "node %u of the plan is not a usable node of its type, in order";
    static const struct {
        const char *list, *why;
        uint32_t node;
    } cases[] = {
        {"[[0, 8]]", "", 0},
        {"[[0, 1], [1, 6], [7, 1]]", "", 0},
        {"[[4, 4], [0, 4]]", order, 4},
        {"[[0, 6], [5, 2]]", order, 6},
        {"[[0, 9]]", none, 0},
        {"[[-1, 8]]", none, 0},
        {"[[0, 0], [0, 8]]", none, 0},
        {"[[0, -1], [0, 8]]", none, 0},
        {"[[1, 8]]", none, 0},
        {"[[9, 1]]", none, 0},
        {"[[0, 8], [7, 1]]", none, 0},
        {"[[0, 9223372036854775807]]", none, 0},
    };
    struct given g = given();
    struct source s = {.name = "c.xml", .text = cluster, .size = sizeof cluster - 1};
    g.topo = topo_parse(g.a, diag_new(g.a), &s, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(g.topo);
    struct strbuf json = {0};
    decision_json(g.job, &g.d, &json);
    const char *list = strstr(json.text, "\"nodes\": "), *rest = list ? strstr(list, "]]") : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(rest);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct decision d;
        const char *why = "";
        const char *edited = arena_printf(g.a, "%.*s\"nodes\": %s%s", (int)(list - json.text), json.text,
                                          cases[i].list, rest + 2);
        CU_ASSERT_EQUAL(read_back(&g, edited, &d, &why), !*cases[i].why);
        bool disorder = cases[i].why == order;
        CU_ASSERT_STRING_EQUAL(why, disorder ? arena_printf(g.a, order, cases[i].node) : cases[i].why);
        for (uint32_t k = 0; !*why && k < 8; k++)
            CU_ASSERT(d.nnodes == 8 && d.nodes[k] == k);
    }
    strbuf_free(&json);
    arena_free(g.a);
}

void suite_decision(void);
void suite_decision(void)
{
    CU_pSuite s = CU_add_suite("decision", NULL, NULL);
    CU_add_test(s, "legality and its sentences", test_legal);
    CU_add_test(s, "what can be emitted", test_emittable);
    CU_add_test(s, "what cannot, by every sentence", test_refused);
    CU_add_test(s, "an overlap of nothing", test_nothing_to_overlap);
    CU_add_test(s, "cut against brute force", test_cut);
    CU_add_test(s, "cuts into ranks of several stages", test_cut_ranks);
    CU_add_test(s, "layout strings", test_layout);
    CU_add_test(s, "one line of text", test_text);
    CU_add_test(s, "JSON and back", test_json);
    CU_add_test(s, "lists of nodes as JSON", test_json_nodes);
}
