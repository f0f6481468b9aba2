/* Explanations: figures that add up, also as printed; signs of sensitivities; changes that keep what they
 * promise; sweeps. */

#include "compiler/inspect/explain.h"
#include "compiler/inspect/explain_items.h"
#include "compiler/inspect/explain_private.h"
#include "compiler/inspect/sweep.h"
#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void suite_explain(void);

struct asked {
    struct arena *a;
    struct diag *d;
    struct job *job;
    struct topo *topo;
};

static struct asked ask(const char *model, const char *cluster, const char *const *sets, uint32_t nsets)
{
    struct asked q = {.a = arena_new()};
    q.d = diag_new(q.a);
    q.job = job_read(q.a, q.d, model, sets, nsets);
    q.topo = topo_read(q.a, q.d, cluster);
    CU_ASSERT_PTR_NOT_NULL_FATAL(q.job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(q.topo);
    return q;
}

/* in some the schedule is pinned: where it is open, a search synthesises schedules for seconds */
static const struct {
    const char *model, *cluster, *sets[5];
    uint32_t nsets;
} requests[] = {
    {"plans/llama3-8b/model.llm", "topologies/h100x8.xml", {0}, 0},
    {"plans/llama3-8b/model.llm", "tests/cases/explain/seven.xml", {"pp=7", "zero=1", "schedule=zb_h1"}, 3},
    {"plans/llama3-8b/model.llm", "tests/cases/explain/slow-spine.xml", {"tp=2", "pp=4", "schedule=1f1b"}, 3},
    {"plans/mixtral-8x7b/model.llm", "topologies/dgx-h100-superpod.xml", {"gpus=64", "pp=4", "tp=1", "schedule=1f1b"}, 4},
    {"plans/tiny-llama/model.llm", "topologies/cpu8.xml", {0}, 0},
    {"plans/gpt3-175b/model.llm", "topologies/a100-1024.xml", {"tp=8", "pp=16", "zero=1", "schedule=1f1b", "batch=192 sequences"}, 5},
    {"plans/gpt3-175b/model.llm",
     "topologies/a100-1024.xml",
     {"profile=\"megatron-core\"", "pp=16", "zero=1", "schedule=interleaved", "batch=192 sequences"},
     5},
    {"plans/llama3-8b/model.llm", "topologies/h100x8.xml", {"profile=\"torch-fsdp\""}, 1},
};
#define NREQUESTS (sizeof requests / sizeof *requests)

/* rounded items add up to the rounded sum, and none is a whole unit off */
static void test_round(void)
{
    srand(5);
    for (int k = 0; k < 2000; k++) {
        double value[EXPLAIN_ITEMS], sum = 0, unit = pow(10, rand() % 7 - 3);
        int64_t out[EXPLAIN_ITEMS], total = 0;
        uint32_t n = 1 + (uint32_t)rand() % (EXPLAIN_ITEMS - 1);
        for (uint32_t i = 0; i < n; i++)
            sum += value[i] = rand() % 4 ? (double)rand() / RAND_MAX * pow(10, rand() % 5 - 2) : 0;
        int64_t whole = explain_round(value, n, unit, out);
        bool near = true;
        for (uint32_t i = 0; i < n; i++) {
            total += out[i];
            near &= fabs((double)out[i] - value[i] / unit) <= 1.0 && (value[i] > 0 || out[i] == 0);
        }
        CU_ASSERT(near);
        CU_ASSERT_EQUAL(total, whole);
        CU_ASSERT_EQUAL(whole, llround(sum / unit));
    }
}

/* items are all of the estimate: a new part of step_time_s or peak_bytes without an item fails here */
static void test_items(void)
{
    for (size_t i = 0; i < NREQUESTS; i++) {
        struct asked q = ask(requests[i].model, requests[i].cluster, requests[i].sets, requests[i].nsets);
        struct search_result *r = search(q.a, q.d, q.job, q.topo, 4, 20000, false);
        CU_ASSERT_FATAL(r->ncandidates > 0);
        for (uint32_t k = 0; k < r->ncandidates; k++) {
            struct explain_item item[EXPLAIN_ITEMS];
            const struct estimate *e = &r->candidates[k].estimate;
            double seconds = 0, bytes = 0;
            const struct cost *c = cost_new(q.a, q.job, q.topo, &r->candidates[k].decision);
            uint32_t n = explain_time_items(q.a, c, e, item);
            CU_ASSERT_FATAL(n <= EXPLAIN_ITEMS);
            for (uint32_t m = 0; m < n; m++) {
                CU_ASSERT(item[m].value >= 0 && *item[m].name && *item[m].meaning);
                seconds += item[m].value;
            }
            CU_ASSERT_DOUBLE_EQUAL(seconds, e->step_time_s, 1e-9 * e->step_time_s);
            n = explain_memory_items(q.a, c, e, item);
            CU_ASSERT_FATAL(n <= EXPLAIN_ITEMS);
            for (uint32_t m = 0; m < n; m++) {
                CU_ASSERT(item[m].value >= 0 && (m == 0 || item[m].value <= item[m - 1].value));
                bytes += item[m].value;
            }
            CU_ASSERT_EQUAL(bytes, (double)e->peak_bytes);
        }
        arena_free(q.a);
    }
}

static char *explained_within(struct asked *q, bool all, bool json, uint64_t budget, enum status want)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    struct explain_options o = {.all = all, .json = json, .budget = budget, .quiet = true, .width = 100};
    CU_ASSERT_EQUAL(explain(q->a, q->d, q->job, q->topo, NULL, &o, out), want);
    fclose(out);
    return text;
}

static char *explained(struct asked *q, bool all, bool json, enum status want)
{
    return explained_within(q, all, json, 5000, want);
}

/* sums of the column before the unit and of the shares, from a heading to its total, as a reader would add */
static void add_up(const char *text, const char *heading, const char *unit_after)
{
    const char *at = strstr(text, heading);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    at = strchr(at, '\n') + 1;
    double sum = 0, share = 0;
    for (int rows = 0;; rows++) {
        double value = 0, part = 0;
        char unit[8] = "";
        CU_ASSERT_FATAL(strncmp(at, "  ", 2) == 0 && strlen(at) > 26);
        int got = sscanf(at + 26, "%lf %7s %lf %%", &value, unit, &part);
        CU_ASSERT_EQUAL_FATAL(got, 3);
        CU_ASSERT_PTR_NOT_NULL(strstr(unit, unit_after));
        if (!strncmp(at, "  total", 7)) {
            CU_ASSERT_DOUBLE_EQUAL(sum, value, 1e-6 * value);
            CU_ASSERT_DOUBLE_EQUAL(share, 100, 1e-6);
            CU_ASSERT_DOUBLE_EQUAL(part, 100, 1e-6);
            CU_ASSERT(rows >= 2);
            return;
        }
        sum += value;
        share += part;
        do
            at = strchr(at, '\n') + 1;
        while (!strncmp(at, "                ", 16)); /* details */
    }
}

static char *printed(const struct explanation *x, bool all, bool json)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    json ? explain_json(x, out) : explain_text(x, all, 110, out);
    fclose(out);
    return text;
}

static void check_text(const struct explanation *x, bool all)
{
    char *text = printed(x, all, false);
    add_up(text, "Time of a step\n", "s");
    add_up(text, "Memory of stage", "iB");
    size_t lines = 0;
    for (const char *p = text; (p = strchr(p, '\n')); p++)
        lines++;
    CU_ASSERT(all || lines <= 60); /* one screen */
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\nHow sure\n"));
    free(text);
}

static void check_figures(const json_t *root)
{
    json_t *time = json_object_get(root, "time"), *memory = json_object_get(root, "memory"), *x;
    double total = json_number_value(json_object_get(time, "step_time_s")), sum = 0;
    size_t i;
    json_array_foreach(json_object_get(time, "items"), i, x) sum +=
        json_number_value(json_object_get(x, "seconds"));
    CU_ASSERT_DOUBLE_EQUAL(sum, total, 1e-9 * total);
    total = json_number_value(json_object_get(memory, "peak_bytes"));
    sum = 0;
    json_array_foreach(json_object_get(memory, "items"), i, x) sum +=
        json_number_value(json_object_get(x, "bytes"));
    CU_ASSERT_EQUAL(sum, total);
    CU_ASSERT(total <= json_number_value(json_object_get(memory, "limit_bytes")));
    json_array_foreach(json_object_get(root, "sensitivity"), i, x)
    {
        /* less of anything is never faster, more is never slower; 10 % less can't cost more than all of it
         * would */
        double less = json_number_value(json_object_get(x, "at_minus_10_percent"));
        json_t *more = json_object_get(x, "at_plus_10_percent");
        CU_ASSERT(less >= -1e-3 && less < 0.13);
        CU_ASSERT(json_is_null(more) || (json_number_value(more) <= 1e-3 && json_number_value(more) > -0.1));
    }
    CU_ASSERT(i >= 2);
}

static void check_json(const struct explanation *x)
{
    static const char *const keys[] = {"schema", "model", "cluster", "profile", "chosen", "runners_up", "jitter", "changes", "search"};
    char *text = printed(x, false, true);
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        printf("\n    line %d: %s\n", error.line, error.text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(root);
    check_figures(root);
    CU_ASSERT(json_is_true(json_object_get(root, "feasible")));
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        CU_ASSERT_PTR_NOT_NULL(json_object_get(root, keys[k]));
    json_decref(root);
    free(text);
}

static void test_views(void)
{
    for (size_t i = 0; i < NREQUESTS; i++) {
        struct asked q = ask(requests[i].model, requests[i].cluster, requests[i].sets, requests[i].nsets);
        struct explanation x = {.arena = q.a, .job = q.job, .topo = q.topo, .budget = 5000, .all = i == 0};
        CU_ASSERT_FATAL(explain_find(&x, q.d));
        check_text(&x, false);
        if (x.all)
            check_text(&x, true);
        check_json(&x);
        arena_free(q.a);
    }
}

/* what a plainer plan gives up, beside the text's (tests/cases/explain/given-up) */
static void test_json_given_up(void)
{
    static const char *const sets[] = {"gpus=16", "memory=60GiB"};
    struct asked q = ask("plans/llama3-8b/model.llm", "topologies/a100-1024.xml", sets, 2);
    char *text = explained_within(&q, false, true, 0, STATUS_OK);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_t *given = json_object_get(json_object_get(root, "search"), "given_up");
    double faster = json_number_value(json_object_get(given, "faster"));
    double fastest = json_number_value(json_object_get(given, "step_time_s"));
    double chosen = json_number_value(json_object_get(json_object_get(root, "chosen"), "step_time_s"));
    CU_ASSERT(faster > 0);
    CU_ASSERT_DOUBLE_EQUAL(1 - fastest / chosen, faster, 1e-12);
    CU_ASSERT(json_is_object(json_object_get(given, "decision")));
    json_decref(root);
    free(text);
    arena_free(q.a);
}

/* how sure, in per cent of what the search says */
static void test_how_sure(void)
{
    struct asked q = ask("plans/tiny-llama/model.llm", "topologies/cpu8.xml", NULL, 0);
    struct search_result r = *search(q.a, q.d, q.job, q.topo, 1, 100, false);
    CU_ASSERT_FATAL(r.ncandidates == 1);
    struct explanation x = {.arena = q.a, .job = q.job, .topo = q.topo, .found = &r, .chosen = r.candidates[0],
                            .shown = r.candidates[0].estimate};
    x.cost = cost_new(q.a, q.job, q.topo, &x.chosen.decision);
    r.fastest = r.candidates[0];
    r.given_up = 0.25;
    r.gap = 0.5;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    explain_text(&x, false, 100, out);
    fclose(out);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "  A less plain one would be 25.0 % faster"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "may be up to 50.0 % faster"));
    free(text);
    arena_free(q.a);
}

/* what can be more or less is what the cluster has: no links where a GPU is alone, no network on one node */
static void test_what_it_depends_on(void)
{
    static const struct {
        const char *model, *cluster, *sets[2], *keys;
        uint32_t nsets;
    } rows[] = {
        {"plans/gpt2-124m/model.llm", "topologies/h200x1.xml", {0}, "compute memory_bandwidth ", 0},
        {"plans/tiny-llama/model.llm", "topologies/cpu8.xml", {0}, "compute memory_bandwidth scale_up ", 0},
        {"plans/llama3-8b/model.llm", "tests/cases/explain/slow-spine.xml", {"gpus=8", "tp=8"},
         "compute memory_bandwidth scale_up nic tier rack tier spine ", 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct asked q = ask(rows[i].model, rows[i].cluster, rows[i].sets, rows[i].nsets);
        char *text = explained_within(&q, false, true, 100, STATUS_OK), keys[256] = "";
        json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *x;
        size_t k;
        json_array_foreach(json_object_get(root, "sensitivity"), k, x)
        {
            strcat(keys, json_string_value(json_object_get(x, "key")));
            strcat(keys, " ");
        }
        CU_ASSERT_STRING_EQUAL(keys, rows[i].keys);
        if (strcmp(keys, rows[i].keys) != 0)
            printf("\n    %s: %s", rows[i].cluster, keys);
        json_decref(root);
        free(text);
        arena_free(q.a);
    }
}

static const struct {
    const char *model, *cluster, *sets[5];
    uint32_t nsets;
    const char *change; /* one that must be named */
} rescues[] = {
    {"plans/llama3-405b/model.llm", "topologies/h100x8.xml", {"schedule=1f1b"}, 1, "nodes instead of 1"},
    {"plans/llama3-8b/model.llm", "topologies/h100x8.xml", {"step_time=5s", "schedule=1f1b"}, 2, "without 'step_time'"},
    {"plans/llama3-8b/model.llm", "topologies/h100x8.xml", {"tp=16", "schedule=1f1b"}, 2, "without 'tp'"},
    {"plans/llama3-8b/model.llm",
     "topologies/h100x8.xml",
     {"memory=8GiB", "tp=1", "zero=0", "schedule=1f1b"},
     4,
     "without 'memory'"},
    {"plans/llama3-8b/model.llm", "tests/cases/explain/mixed.xml", {0}, 0, "with use \"new\""},
    {"plans/llama3-8b/model.llm",
     "tests/cases/explain/seven.xml",
     {"tp=4", "pp=2", "dp=8", "gpus=56", "cp=1"},
     5,
     "8 nodes instead of 7"},
};

/* what is offered keeps within the request's own limits */
static void test_rescue(void)
{
    for (size_t i = 0; i < sizeof rescues / sizeof *rescues; i++) {
        struct asked q = ask(rescues[i].model, rescues[i].cluster, rescues[i].sets, rescues[i].nsets);
        char *text = explained(&q, true, true, STATUS_NO_PLAN);
        json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *x;
        CU_ASSERT_PTR_NOT_NULL_FATAL(root);
        CU_ASSERT(json_is_false(json_object_get(root, "feasible")));
        bool named = false;
        size_t k;
        json_array_foreach(json_object_get(root, "changes"), k, x)
        {
            const char *change = json_string_value(json_object_get(x, "change"));
            named |= strstr(change, rescues[i].change) != NULL;
            CU_ASSERT(json_number_value(json_object_get(x, "step_time_s")) > 0);
            double peak = json_number_value(json_object_get(x, "peak_memory_bytes"));
            CU_ASSERT(peak > 0 && peak < 140e9);
            if (strstr(change, "nodes instead") && q.job->wishes.step_time_s > 0)
                CU_ASSERT(json_number_value(json_object_get(x, "step_time_s")) <= q.job->wishes.step_time_s);
        }
        if (!named)
            printf("\n    %s: no \"%s\" in %s\n", rescues[i].cluster, rescues[i].change, text);
        CU_ASSERT(named);
        json_decref(root);
        free(text);
        arena_free(q.a);
    }
}

/* one machine more lets the batch divide: it must be told, and be true */
static void test_nodes(void)
{
    static const char *const pin = "schedule=1f1b";
    struct asked q = ask("plans/llama3-8b/model.llm", "tests/cases/explain/excluded.xml", &pin, 1);
    char *text = explained(&q, false, false, STATUS_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "with m3 back (GPU 5 off the bus), 64 GPUs: "));
    free(text);
    arena_free(q.a);
    q = ask("plans/llama3-8b/model.llm", "tests/cases/explain/seven.xml", &pin, 1);
    text = explained(&q, false, false, STATUS_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "1 node more, 64 GPUs: "));
    free(text);
    arena_free(q.a);
}

/* pin: a set, or NULL */
static enum status swept(struct asked *q, const char *pin, const char *const *sweeps, uint32_t n, bool json, char **text)
{
    size_t size = 0;
    FILE *out = open_memstream(text, &size);
    struct sweep_options o = {.model = "plans/llama3-8b/model.llm", .sets = &pin, .nsets = pin != NULL, .sweeps = sweeps,
                              .nsweeps = n, .budget = 5000, .json = json, .width = 200};
    enum status s = sweep(q->a, q->d, q->topo, &o, out);
    fclose(out);
    return s;
}

static void test_sweep(void)
{
    struct asked q = ask("plans/llama3-8b/model.llm", "topologies/h100x8.xml", NULL, 0);
    static const char *const two[] = {"tp=[1, 2, 16]", "microbatch=1,2"};
    char *text, *rest, *line;
    CU_ASSERT_EQUAL(swept(&q, "schedule=1f1b", two, 2, false, &text), STATUS_OK);
    rest = text;
    const char *plan = NULL;
    for (int i = 0; (line = strsep(&rest, "\n")) && i < 7; i++) {
        if (i == 0)
            plan = strstr(line, "  plan");
        CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
        bool none = i > 4;
        CU_ASSERT(!none || strstr(line, "'tp' must be 16"));
        CU_ASSERT(none || i == 0 || !strncmp(line + (plan - text), "  tp ", 5)); /* columns are aligned */
    }
    free(text);
    CU_ASSERT_EQUAL(swept(&q, "schedule=1f1b", two, 2, true, &text), STATUS_OK);
    rest = text;
    for (int i = 0; i < 6; i++) {
        json_t *o = json_loads((line = strsep(&rest, "\n")) ? line : "", JSON_REJECT_DUPLICATES, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(o);
        static const char *const tp[] = {"1", "2", "16"};
        json_t *keys = json_object_get(o, "sweep");
        CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(keys, "tp")), tp[i / 2]);
        CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(keys, "microbatch")), i % 2 ? "2" : "1");
        CU_ASSERT(json_is_null(json_object_get(o, "estimate")) == (i >= 4));
        CU_ASSERT(json_is_null(json_object_get(o, "why")) == (i < 4));
        json_decref(o);
    }
    CU_ASSERT(rest && !*rest);
    free(text);
    arena_free(q.a);
}

/* Gradients of what routed experts leave, 267,392 parameters, in fp32, on each of tp 2 and pp 2. */
static void test_dense(void)
{
    struct asked q = ask("plans/tiny-moe/model.llm", "topologies/cpu16.xml", NULL, 0);
    char *text = explained(&q, false, false, STATUS_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "  reduce-scatter of 261KiB, ring over 4,"));
    free(text);
    arena_free(q.a);
}

/* a row without a plan says what lacks: memory, in which the closest miss does not fit */
static void test_sweep_memory(void)
{
    struct asked q = ask("plans/llama3-8b/model.llm", "topologies/h100x8.xml", NULL, 0);
    static const char *const memory = "memory=1GiB,60GiB";
    char *text;
    CU_ASSERT_EQUAL(swept(&q, NULL, &memory, 1, false, &text), STATUS_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n1GiB        -  needs 17.5GiB of 1GiB\n60GiB "));
    free(text);
    arena_free(q.a);
}

/* malformed or refused: nothing is printed; one value refused: a row that says so */
static void test_sweep_refused(void)
{
    static const struct {
        const char *list;
        enum status status;
    } cases[] = {
        {"tp", STATUS_USAGE},
        {"tp=1,,2", STATUS_USAGE},
        {"=1", STATUS_USAGE},
        {"nosuch=1", STATUS_INPUT},
        {"tp=0,x", STATUS_INPUT},
        {"tp=16", STATUS_NO_PLAN},
        {"tp=0,1", STATUS_OK},
        {"batch=1Mi tokens, 1000 tokens", STATUS_OK},
        {"schedule=1f1b,interleaved(group=2)", STATUS_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct asked q = ask("plans/llama3-8b/model.llm", "topologies/h100x8.xml", NULL, 0);
        char *text;
        bool open = !strncmp(cases[i].list, "schedule", 8);
        enum status s = swept(&q, open ? NULL : "schedule=1f1b", &cases[i].list, 1, false, &text);
        if (s != cases[i].status)
            printf("\n    --sweep %s: status %d\n", cases[i].list, (int)s);
        CU_ASSERT_EQUAL(s, cases[i].status);
        bool refused = s == STATUS_USAGE || s == STATUS_INPUT;
        CU_ASSERT(refused == !*text && refused == (diag_errors(q.d) > 0));
        free(text);
        arena_free(q.a);
    }
}

/* --set KEY=VALUE, limits and lists */
static void test_sets(void)
{
    static const struct {
        const char *set;
        enum relation relation;
        uint64_t value, nlist;
    } cases[] = {
        {"tp=2", REL_EQ, 2, 0},     {"tp = 2", REL_EQ, 2, 0},   {"tp<=4", REL_LE, 4, 0},
        {"tp <= 4", REL_LE, 4, 0},  {"tp>=2", REL_GE, 2, 0},    {"tp in [1, 2]", REL_IN, 0, 2},
        {"tp in[4]", REL_IN, 0, 1}, {"tp=[1,2]", REL_IN, 0, 2}, {"tp=in [1,2]", REL_IN, 0, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct asked q = ask("plans/llama3-8b/model.llm", "topologies/h100x8.xml", &cases[i].set, 1);
        const struct wish *w = &q.job->wishes.degree[DEG_TP];
        CU_ASSERT_EQUAL(w->relation, cases[i].relation);
        CU_ASSERT(w->relation == REL_IN ? w->nlist == cases[i].nlist : w->value == cases[i].value);
        arena_free(q.a);
    }
}

void suite_explain(void)
{
    CU_pSuite s = CU_add_suite("explain", NULL, NULL);
    CU_add_test(s, "rounded items add up", test_round);
    CU_add_test(s, "items are all of the estimate", test_items);
    CU_add_test(s, "figures add up as printed; sensitivities have their signs", test_views);
    CU_add_test(s, "what a plainer plan gives up, as JSON", test_json_given_up);
    CU_add_test(s, "how sure, in per cent", test_how_sure);
    CU_add_test(s, "what it depends on", test_what_it_depends_on);
    CU_add_test(s, "what would make an impossible request possible", test_rescue);
    CU_add_test(s, "a node more", test_nodes);
    CU_add_test(s, "sweeps: rows, columns, JSON lines", test_sweep);
    CU_add_test(s, "sweeps that are refused", test_sweep_refused);
    CU_add_test(s, "sweeps over memory", test_sweep_memory);
    CU_add_test(s, "gradients beside experts", test_dense);
    CU_add_test(s, "--set with limits and lists", test_sets);
}
