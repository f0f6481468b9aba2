/* Every number of plan.json, from the text of the job, of the cluster and of the trace, without the code that wrote it.
 *
 * A case is a model, a cluster and pins.  What it is made of stands beside the text as plain numbers, from which
 * closed formulas make parameters and FLOPs; busy times are summed over the trace's events, bytes are read from
 * the programs' text (figures.c).  The table of figures names all keys: a number of plan.json that it does not
 * name fails. */

#include "compiler/fit.h"
#include "compiler/llmc.h"
#include "compiler/inspect/estimate.h"
#include "compiler/support/units.h"
#include "compiler/inspect/show.h"
#include "compiler/inspect/trace.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"
#include "tests/compiler/emit/figures.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- from the numbers beside the text ---- */

static double attention_elements(const struct shape *s)
{
    double q = s->heads * s->head, kv = s->kv * s->head;
    return s->width * (2 * q + 2 * kv) + (s->biases ? q + 2 * kv + s->width : 0);
}
static double ffn_elements(const struct shape *s)
{
    return s->products * s->width * s->ffn + (s->biases ? s->ffn * (s->products - 1) + s->width : 0);
}
static double elements(const struct shape *s, double experts)
{
    double norm = s->width * (s->layernorm ? 2 : 1), layer = attention_elements(s) + 2 * norm;
    layer += s->experts > 0 ? s->width * s->experts + (experts + s->shared) * ffn_elements(s) : ffn_elements(s);
    return s->layers * layer + norm + s->width * (s->vocab * (s->tied ? 1 : 2) + s->positions);
}
static double parameters(const struct seen *x)
{
    return elements(&x->c->shape, x->c->shape.experts);
}
static double active_parameters(const struct seen *x)
{
    return elements(&x->c->shape, x->c->shape.active);
}
static double layers(const struct seen *x)
{
    return x->c->shape.layers;
}
static double gpus(const struct seen *x)
{
    return x->c->gpus;
}
static double used(const struct seen *x)
{
    return x->c->used;
}
static double step_s(const struct seen *x)
{
    return figures_predicted(x, "step_time_s");
}
static double tokens_rate(const struct seen *x)
{
    return x->c->shape.batch * x->c->shape.sequence / step_s(x) / x->c->used;
}

/* Three times the forward's products, two operations a multiplication: matrices that a token meets, the head,
 * and queries by keys and scores by values over the whole sequence. */
static double flops_rate(const struct seen *x)
{
    const struct shape *s = &x->c->shape;
    double ffn = s->products * s->width * s->ffn,
           feed = s->experts > 0 ? s->width * s->experts + (s->active + s->shared) * ffn : ffn;
    double layer = s->width * s->head * (2 * s->heads + 2 * s->kv) + feed + 2 * s->heads * s->head * s->sequence;
    return 3 * 2 * (s->layers * layer + s->width * s->vocab) * s->batch * s->sequence / step_s(x) / x->c->used;
}
static double mfu(const struct seen *x)
{
    return flops_rate(x) / x->c->peak_flop_s;
}

/* ---- search ---- */

static double search_number(const struct seen *x, const char *key)
{
    return json_number_value(json_object_get(json_object_get(x->json, "search"), key));
}
static double space(const struct seen *x)
{
    return x->c->space;
}
/* a search that ends has looked at the rest of the space in whole branches */
static double evaluated(const struct seen *x)
{
    return x->c->space - search_number(x, "pruned");
}
static double pruned(const struct seen *x)
{
    return x->c->space - search_number(x, "evaluated");
}
static double budget(const struct seen *x)
{
    return (double)x->c->budget;
}
/* at least one for each configuration that was looked at, at most what was granted */
static double spent(const struct seen *x)
{
    double n = search_number(x, "spent");
    return n >= search_number(x, "evaluated") && n <= (double)x->c->budget ? n : -1;
}
/* of a space that was closed: what the plan's step takes longer than the fastest estimate */
static double emitted_gap(const struct seen *x)
{
    struct arena *a = arena_new();
    const struct search_result *r = search(a, diag_new(a), x->plan->job, x->plan->topo, 1, 0, true);
    double least = r->ncandidates ? r->fastest.estimate.step_time_s : 0;
    arena_free(a);
    return fmax(0, 1 - least / step_s(x));
}
static double one(const struct seen *x)
{
    (void)x;
    return 1;
}
/* candidates that are kept where nobody says how many */
static double sixteen(const struct seen *x)
{
    (void)x;
    return 16;
}

static const struct figure {
    const char *path;
    double (*want)(const struct seen *x); /* NULL: by the whole object `decision`, or a text */
    double tolerance;
    bool counted; /* where a case says how large the space is */
} figures[] = {
    {"schema", one, 0, false},
    {"compiler.version", NULL, 0, false},
    {"compiler.instructions", NULL, 0, false},
    {"model.name", NULL, 0, false},
    {"model.parameters", parameters, 0, false},
    {"model.active_parameters", active_parameters, 0, false},
    {"model.layers", layers, 0, false},
    {"cluster.name", NULL, 0, false},
    {"target", NULL, 0, false}, /* suite targets */
    {"cluster.gpus", gpus, 0, false},
    {"cluster.gpus_used", used, 0, false},
    {"predicted.step_time_s", figures_step_s, 1e-9, false},
    {"predicted.tokens_per_s_per_gpu", tokens_rate, 1e-12, false},
    {"predicted.model_flops_per_gpu_s", flops_rate, 1e-12, false},
    {"predicted.mfu", mfu, 1e-12, false},
    {"predicted.bubble_fraction", figures_bubble, 1e-6, false},
    {"predicted.exposed_comm_fraction", figures_exposed, 1e-6, false},
    {"predicted.peak_memory_bytes", figures_peak_bytes, 0, false},
    {"predicted.peak_memory_rank", figures_peak_rank, 0, false},
    {"waiting", NULL, 0, false}, /* figures_check_waiting() */
    {"search.space", space, 0, true},
    {"search.evaluated", evaluated, 0, true},
    {"search.pruned", pruned, 0, true},
    {"search.top", sixteen, 0, false},
    {"search.budget", budget, 0, false},
    {"search.spent", spent, 0, false},
    {"search.gap", emitted_gap, 1e-6, false},
};

#define LLAMA                                                                                                \
    "vocab 97\n width 32\n norm rmsnorm\n embed tokens\n"                                                    \
    " repeat 4 { layer { attn gqa(heads=4, kv=2, rope=10_000)\n ffn swiglu(48) } }\n head untied\n"
#define GPT2                                                                                                 \
    "vocab 60\n width 32\n norm layernorm\n embed tokens\n embed positions(24)\n"                            \
    " repeat 3 { layer { attn mha(heads=4, bias=yes)\n ffn gelu(64, bias=yes) } }\n head tied\n"
#define EXPERTS                                                                                              \
    "vocab 64\n width 32\n norm rmsnorm\n embed tokens\n"                                                    \
    " repeat 2 { layer { attn gqa(heads=4, kv=2, rope=10_000)\n"                                             \
    " moe swiglu(24) {\n experts 8\n active 2\n shared 1\n } } }\n head untied\n"

#define ORDER " order [tp, cp, dp, pp]"
#define USUAL " schedule 1f1b\n recompute none\n" ORDER

#define WORDS(x) #x
/* of plans under 1f1b without chunks, on node 0 in the usual order */
#define DECISION(tp, sp, cp, pp, dp, ep, zero, shard, microbatch, microbatches, recompute, parts, layout,    \
                 context, offload)                                                                           \
    "{\"tp\": " WORDS(tp) ", \"sp\": " sp ", \"cp\": " WORDS(cp) ", \"pp\": " WORDS(pp)                       \
    ", \"vpp\": 1, \"dp\": " WORDS(dp) ", \"ep\": " WORDS(ep) ", \"etp\": 1, \"zero\": " WORDS(zero)          \
    ", \"shard\": " WORDS(shard) ", \"microbatch\": " WORDS(microbatch)                                      \
    ", \"microbatches\": " WORDS(microbatches) ", \"recompute\": \"" recompute "\", \"recompute_detail\": [" \
    parts "], \"schedule\": \"1f1b\", \"schedule_group\": null, \"layout\": \"" layout                       \
    "\", \"context\": " context ", \"order\": [\"tp\", \"cp\", \"dp\", \"pp\"], \"offload\": [" offload      \
    "], \"prefetch\": null, \"node_type\": 0, \"nodes\": [[0, 1]]}"

static const struct figures_case cases[] = {
    {"llama", LLAMA, "fp32",
     "tp = 2\n sequence_parallel yes\n pp = 2\n dp = 2\n cp = 1\n zero = 1\n microbatch = 2\n" USUAL,
     {4, 32, 97, 4, 2, 8, 48, 3, 0, 16, 16, 0, 0, 0, false, false, false, false}, 8, 8, 20e9, 750000, 1,
     DECISION(2, "true", 1, 2, 2, 1, 1, 2, 2, 4, "none", "", "Et*2|t*2L", "null", "")},
    {"llama on half of the machine", LLAMA, "bf16",
     "tp = 1\n pp = 2\n dp = 2\n cp = 1\n gpus = 4\n zero = 1\n microbatch = 1\n" USUAL,
     {4, 32, 97, 4, 2, 8, 48, 3, 0, 16, 16, 0, 0, 0, false, false, false, false}, 8, 4, 40e9, 750000, 1,
     DECISION(1, "false", 1, 2, 2, 1, 1, 2, 1, 8, "none", "", "Et*2|t*2L", "null", "")},
    {"gpt2", GPT2, "bf16",
     "tp = 2\n pp = 1\n dp = 2\n cp = 1\n zero in [0, 1]\n sequence_parallel no\n microbatch = 2\n" USUAL,
     {3, 32, 60, 4, 4, 8, 64, 2, 24, 16, 16, 0, 0, 0, true, true, true, false}, 8, 4, 40e9, 500, 0,
     DECISION(2, "false", 1, 1, 2, 1, 1, 2, 2, 4, "none", "", "Et*3L", "null", "")},
    {"experts", EXPERTS, "bf16",
     "tp = 1\n pp = 1\n dp = 4\n cp = 1\n ep = 4\n zero = 1\n microbatch = 1\n" USUAL,
     {2, 32, 64, 4, 2, 8, 24, 3, 0, 16, 16, 8, 2, 1, false, false, false, false}, 8, 4, 40e9, 750000, 0,
     DECISION(1, "false", 1, 1, 4, 4, 1, 4, 1, 4, "none", "", "Et*2L", "null", "")},
    {"offloaded", LLAMA, "fp32",
     "tp = 1\n pp = 2\n dp = 1\n cp = 1\n offload [optimizer, activations]\n microbatch = 4\n" USUAL,
     {4, 32, 97, 4, 2, 8, 48, 3, 0, 16, 16, 0, 0, 0, false, false, false, false}, 8, 2, 20e9, 750000, 0,
     DECISION(1, "false", 1, 2, 1, 1, 0, 1, 4, 4, "none", "", "Et*2|t*2L", "null", "\"optimizer\", \"activations\"")},
    {"ring", LLAMA, "fp32",
     "tp = 1\n pp = 1\n dp = 2\n cp = 2\n context ring\n zero = 1\n microbatch = 2\n schedule 1f1b\n"
     " recompute [norm]\n" ORDER,
     {4, 32, 97, 4, 2, 8, 48, 3, 0, 16, 16, 0, 0, 0, false, false, false, false}, 8, 4, 20e9, 750000, 0,
     DECISION(1, "false", 2, 1, 2, 1, 1, 4, 2, 4, "selective", "\"norm\"", "Et*4L", "\"ring\"", "")},
};

static const char host_text[] =
    "<?xml version=\"1.0\"?>\n<cluster version=\"1\" name=\"host\">\n"
    "  <node-type id=\"host\" gpus=\"8\" host-bandwidth=\"2GB/s\">\n"
    "    <gpu model=\"cpu\" memory=\"2GiB\" memory-bandwidth=\"5GB/s\"><peak dtype=\"fp32\" rate=\"20GFLOP/s\"/>"
    "<peak dtype=\"bf16\" rate=\"40GFLOP/s\"/><peak dtype=\"fp16\" rate=\"30GFLOP/s\"/></gpu>\n"
    "    <scale-up kind=\"none\"/>\n  </node-type>\n  <nodes type=\"host\" count=\"1\"/>\n</cluster>\n";

static json_t *written(void (*write)(const struct plan *p, FILE *out), const struct plan *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    write(p, f);
    fclose(f);
    json_t *j = json_loads(text, 0, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(j);
    free(text);
    return j;
}
static void write_plan(const struct plan *p, FILE *out)
{
    struct strbuf b = {0};
    plan_json(p, false, &b);
    fputs(b.text, out);
    strbuf_free(&b);
}
static void write_trace(const struct plan *p, FILE *out)
{
    trace_write(p, NULL, 0, false, out);
}
static void write_memory(const struct plan *p, FILE *out)
{
    show_memory(p, out, &(struct show_options){.json = true, .rank = -1, .stage = -1});
}

static struct job *job_of(struct arena *a, const struct figures_case *c)
{
    static const char text[] = "llmc 1\nmodel tiny {\n %s}\n"
                               "train {\n sequence 16\n batch 16 sequences\n precision %s\n}\nplan {\n %s\n}\n";
    return text_job(a, arena_printf(a, text, c->model, c->precision, c->plan));
}
static struct topo *host(struct arena *a)
{
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){"host.xml", host_text, strlen(host_text), false};
    struct topo *topo = topo_parse(a, diag_new(a), s, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    return topo;
}

static struct plan *plan_of(struct arena *a, const struct figures_case *c)
{
    struct job *job = job_of(a, c);
    struct topo *topo = host(a);
    struct diag *d = diag_new(a);
    struct plan *p = NULL;
    struct verdict *verdict = NULL;
    enum status status = compile_job(a, d, job, topo, &(struct compile_options){.budget = c->budget}, &p, &verdict);
    if (status != STATUS_OK)
        diag_print(d, stderr, false);
    CU_ASSERT_EQUAL_FATAL(status, STATUS_OK);
    return p;
}

/* every leaf of an object but `decision` and `set` */
static void check_leaves(const struct seen *x, const json_t *object, const char *prefix, bool *done)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        char path[100];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (!strcmp(path, "decision") || !strcmp(path, "set"))
            continue;
        if (json_is_object(value)) {
            check_leaves(x, value, path, done);
            continue;
        }
        size_t i = 0;
        while (i < ARRAY_LEN(figures) && strcmp(figures[i].path, path) != 0)
            i++;
        CU_ASSERT(i < ARRAY_LEN(figures));
        if (i == ARRAY_LEN(figures)) {
            printf("\n    %s: nothing checks %s", x->c->name, path);
            continue;
        }
        done[i] = true;
        if (!figures[i].want || (figures[i].counted && x->c->space == 0))
            continue;
        double have = json_number_value(value), want = figures[i].want(x);
        bool fine = fabs(have - want) <= figures[i].tolerance * fmax(fabs(want), 1e-3);
        CU_ASSERT(json_is_number(value) && fine);
        if (!fine)
            printf("\n    %s: %s is %.17g, not %.17g", x->c->name, path, have, want);
    }
}

/* whose plan it is: this compiler's, with this table of instructions */
static void check_compiler(const struct seen *x)
{
    const json_t *c = json_object_get(x->json, "compiler");
    char fingerprint[17];
    snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)isa_fingerprint());
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(c, "version")), LLMC_VERSION);
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(c, "instructions")), fingerprint);
}

/* both ways: a key that only one of them has differs */
static void check_decision(const struct seen *x)
{
    json_t *want = json_loads(x->c->decision, 0, NULL), *have = json_object_get(x->json, "decision"), *value;
    const char *key;
    CU_ASSERT_PTR_NOT_NULL_FATAL(want);
    CU_ASSERT_EQUAL(json_object_size(have), json_object_size(want));
    json_object_foreach(have, key, value)
    {
        CU_ASSERT(json_equal(value, json_object_get(want, key)));
        if (!json_equal(value, json_object_get(want, key))) {
            char *text = json_dumps(value, JSON_ENCODE_ANY);
            printf("\n    %s: decision.%s is %s", x->c->name, key, text);
            free(text);
        }
    }
    json_decref(want);
}

static void test_figures(void)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        struct plan *p = plan_of(a, &cases[i]);
        struct seen x = {&cases[i], p, written(write_plan, p), written(write_trace, p), written(write_memory, p)};
        bool done[ARRAY_LEN(figures)] = {false};
        check_leaves(&x, x.json, "", done);
        for (size_t k = 0; k < ARRAY_LEN(figures); k++)
            CU_ASSERT(done[k]);
        check_compiler(&x);
        check_decision(&x);
        figures_check_waiting(&x);
        CU_ASSERT_EQUAL(figures_predicted(&x, "peak_memory_bytes"), (double)fit_peak_bytes(p));
        json_decref(x.json);
        json_decref(x.trace);
        json_decref(x.memory);
        plan_close(p);
        arena_free(a);
    }
}

/* ---- estimates: their items add up to their figures ---- */

static double part(const struct seen *x, const char *object, const char *key)
{
    const json_t *value = json_object_get(json_object_get(x->json, object), key);
    CU_ASSERT(json_is_number(value));
    return json_number_value(value);
}
static double sum(const struct seen *x, const char *object, size_t n, const char *const keys[])
{
    double all = 0;
    for (size_t i = 0; i < n; i++)
        all += part(x, object, keys[i]);
    CU_ASSERT_EQUAL(json_object_size(json_object_get(x->json, object)), n);
    return all;
}
static const char *const times[] = {"compute_s", "bubble_s", "optimizer_s", "tp_comm_s", "pp_comm_s", "dp_comm_s"};
static const char *const memories[] = {"parameter_bytes",  "gradient_bytes", "optimizer_bytes",
                                       "activation_bytes", "buffer_bytes",   "allocator_bytes",
                                       "communicator_bytes", "context_bytes"};

static double time_sum(const struct seen *x)
{
    return sum(x, "time", ARRAY_LEN(times), times);
}
static double memory_sum(const struct seen *x)
{
    return sum(x, "memory", ARRAY_LEN(memories), memories);
}
static double bubble_item(const struct seen *x)
{
    return part(x, "time", "bubble_s") / step_s(x);
}
static double transfer_items(const struct seen *x)
{
    return (part(x, "time", "tp_comm_s") + part(x, "time", "pp_comm_s") + part(x, "time", "dp_comm_s")) / step_s(x);
}

static void check_estimate(const struct seen *x)
{
    static const struct figure estimates[] = {
        {"step_time_s", time_sum, 1e-12, false},
        {"tokens_per_s_per_gpu", tokens_rate, 1e-12, false},
        {"model_flops_per_gpu_s", flops_rate, 1e-12, false},
        {"mfu", mfu, 1e-12, false},
        {"bubble_fraction", bubble_item, 1e-12, false},
        {"exposed_comm_fraction", transfer_items, 1e-12, false},
        {"peak_memory_bytes", memory_sum, 1e-12, false},
        {"peak_memory_rank", NULL, 0, false},
    };
    const json_t *all = json_object_get(x->json, "predicted");
    CU_ASSERT_EQUAL(json_object_size(all), ARRAY_LEN(estimates));
    for (size_t i = 0; i < ARRAY_LEN(estimates); i++) {
        double have = figures_predicted(x, estimates[i].path), want = estimates[i].want ? estimates[i].want(x) : have;
        bool fine = fabs(have - want) <= estimates[i].tolerance * fmax(fabs(want), 1e-3);
        CU_ASSERT(json_object_get(all, estimates[i].path) && fine);
        if (!fine)
            printf("\n    %s: estimate's %s is %.17g, not %.17g", x->c->name, estimates[i].path, have, want);
    }
    CU_ASSERT(figures_predicted(x, "peak_memory_rank") < x->c->used);
    double before = step_s(x);
    size_t i;
    const json_t *other;
    json_array_foreach(json_object_get(x->json, "candidates"), i, other)
    {
        double next = json_number_value(json_object_get(json_object_get(other, "predicted"), "step_time_s"));
        CU_ASSERT(next >= 0.98 * before); /* a plainer one may be that much slower, and first */
        before = fmax(before, next);
    }
    double looked = search_number(x, "evaluated"), gap = search_number(x, "gap");
    CU_ASSERT(looked > 0 && looked + search_number(x, "pruned") <= search_number(x, "space"));
    CU_ASSERT(gap >= 0 && gap <= 1);
    CU_ASSERT(gap > 0 || looked + search_number(x, "pruned") == search_number(x, "space"));
}

/* the table that people read has the candidates' own figures */
static void check_table(const struct job *job, const struct topo *topo, const struct search_result *found, const json_t *all)
{
    char *text = NULL, want[480];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    estimate_print(job, topo, found, &(struct estimate_more){0}, 100, out);
    fclose(out);
    for (uint32_t i = 1; i < found->ncandidates; i++) {
        const json_t *p = json_object_get(json_array_get(all, i - 1), "predicted");
        const struct candidate *c = &found->candidates[i];
        snprintf(want, sizeof want, "\n  %3u. %10s %8.1f %9s  ", i + 1, units_show_seconds(c->estimate.step_time_s).s,
                 100 * json_number_value(json_object_get(p, "mfu")), units_show_bytes(c->estimate.peak_bytes).s);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, want));
    }
    free(text);
}

/* A table that is printed again and again leaves nothing behind, but the pieces that malloc() keeps after the first times;
 * a leak would be there every time. */
static void check_returned(const struct job *job, const struct topo *topo, const struct search_result *found)
{
    FILE *none = fopen("/dev/null", "w");
    bool settled = false;
    CU_ASSERT_PTR_NOT_NULL_FATAL(none);
    for (int i = 0; i < 20 && !settled; i++) {
        struct mallinfo2 before = mallinfo2();
        estimate_print(job, topo, found, &(struct estimate_more){0}, 100, none);
        settled = mallinfo2().uordblks <= before.uordblks;
    }
    CU_ASSERT(settled);
    fclose(none);
}

static void test_estimates(void)
{
    static const uint64_t budgets[] = {0, 40, 5000};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t k = 0; k < ARRAY_LEN(budgets); k++) {
            struct arena *a = arena_new();
            struct figures_case open = cases[i]; /* nothing is pinned but what its numbers depend on */
            open.plan = arena_printf(a, "gpus = %.0f", cases[i].used);
            struct job *job = job_of(a, &open);
            struct topo *topo = host(a);
            struct strbuf text = {0};
            const struct search_result *found = search(a, diag_new(a), job, topo, 5, budgets[k], false);
            CU_ASSERT_FATAL(found->ncandidates > 0);
            estimate_json(job, topo, found, &(struct estimate_more){.formulas = i % 2}, &text);
            struct seen x = {&open, NULL, json_loads(text.text, 0, NULL), NULL, NULL};
            CU_ASSERT_PTR_NOT_NULL_FATAL(x.json);
            CU_ASSERT_EQUAL(part(&x, "model", "parameters"), parameters(&x));
            CU_ASSERT_EQUAL(part(&x, "model", "active_parameters"), active_parameters(&x));
            CU_ASSERT_EQUAL(part(&x, "cluster", "gpus_used"), cases[i].used);
            CU_ASSERT_EQUAL(search_number(&x, "budget"), budgets[k] ? (double)budgets[k] : SEARCH_BUDGET);
            CU_ASSERT(search_number(&x, "spent") > 0);
            check_estimate(&x);
            check_table(job, topo, found, json_object_get(x.json, "candidates"));
            check_returned(job, topo, found);
            json_decref(x.json);
            strbuf_free(&text);
            arena_free(a);
        }
}

void suite_plan_figures(void);
void suite_plan_figures(void)
{
    CU_pSuite s = CU_add_suite("plan_figures", NULL, NULL);
    CU_add_test(s, "every number of plan.json, from elsewhere", test_figures);
    CU_add_test(s, "items of an estimate add up", test_estimates);
}
