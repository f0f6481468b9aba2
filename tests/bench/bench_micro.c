/* Predicted against measured microbenchmarks: for every kind and GPU the number of rows, bias, median and 90th percentile
 * of the error in seconds, and the rows that are furthest off.
 *
 *   bench_micro FOLDER [kind]        FOLDER/microbench.jsonl, one measurement a line
 *
 * A row is priced in-process by the function of cost/ that a plan would call, on one node of eight of its GPU as the
 * catalogue describes it, without a software stack's profile.  Rows of devices that the catalogue lacks are counted and left out.
 * A further kind is a function and a line of the table `kinds`. */

#include "compiler/cost/cost.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GPUS = 32, MAX_ROWS = 4096, WORST = 5 };

/* as the rows name a device, as the catalogue does */
static const struct {
    const char *row, *model, *scale_up; /* GB/s one way; NULL = PCIe only */
} names[] = {
    {"A100", "A100-SXM", "300"},         {"A100-SXM", "A100-SXM", "300"},         {"NVIDIA A100 SXM", "A100-SXM", "300"},
    {"A100-PCIe-80GB", "A100-PCIe-80GB", NULL}, {"NVIDIA A100 PCIe", "A100-PCIe-80GB", NULL},
    {"H100", "H100-SXM", "450"},         {"H100-SXM", "H100-SXM", "450"},         {"NVIDIA H100 SXM", "H100-SXM", "450"},
    {"Hopper", "H100-SXM", "450"},       {"H200-SXM", "H200-SXM", "450"},         {"NVIDIA H200 SXM", "H200-SXM", "450"},
    {"NVIDIA GH200 SXM", "GH200", NULL}, {"B200", "B200", "900"},                 {"B200-SXM", "B200", "900"},
    {"NVIDIA B200 SXM", "B200", "900"},  {"Blackwell", "GB200", "900"},           {"GB200", "GB200", "900"},
    {"NVIDIA GB200 SXM", "GB200", "900"}, {"NVIDIA B300 SXM", "B300", "900"},     {"V100-SXM", "V100", "150"},
};

struct row {
    const char *kind, *gpu, *text; /* text: the shape, for the list of the worst */
    double measured_s, predicted_s, error; /* predicted / measured - 1 */
};
struct bench {
    struct arena *a;
    struct diag *d;
    struct job *job;
    uint32_t ngpus;
    struct {
        const char *model;
        struct cost *cost;
    } gpus[MAX_GPUS];
    uint32_t nrows, unknown;
    struct row rows[MAX_ROWS];
};

static const char model_text[] = "llmc 1\nmodel bench {\n vocab 32000\n width 4096\n norm rmsnorm\n embed tokens\n repeat 8 { layer {\n"
                                 " attn gqa(heads=32, kv=8, rope=10_000)\n ffn swiglu(8192) } }\n head untied\n}\n"
                                 "train {\n sequence 4096\n batch 64 sequences\n precision bf16\n}\n";

static struct cost *make_cost(struct bench *b, const char *model, const char *scale_up)
{
    char *text = arena_printf(b->a, "<cluster version=\"1\"><node-type id=\"n\" gpus=\"8\"><gpu model=\"%s\"/>"
                              "<scale-up kind=\"%s\"%s%s%s/><nic count=\"8\" bandwidth=\"400Gb/s\"/></node-type>"
                              "<nodes type=\"n\" count=\"1\"/></cluster>", model, scale_up ? "nvswitch" : "none",
                              scale_up ? " bandwidth=\"" : "", scale_up ? scale_up : "", scale_up ? "GB/s\"" : "");
    struct source *s = ARENA_NEW(b->a, struct source);
    *s = (struct source){"bench.xml", text, strlen(text), false};
    struct topo *topo = topo_parse(b->a, b->d, s, NULL);
    struct decision *d = ARENA_NEW(b->a, struct decision);
    *d = (struct decision){.tp = 8, .cp = 1, .pp = 1, .vpp = 1, .dp = 1, .ep = 1, .etp = 1, .shard = 1, .microbatch = 1,
                           .microbatches = 64, .schedule = SCHED_1F1B, .order = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP}};
    const char *why = "";
    if (!topo || !decision_place(b->a, topo, d, &why)) {
        diag_print(b->d, stderr, false);
        fprintf(stderr, "%s: %s\n", model, why);
        exit(1);
    }
    decision_cut(b->a, d, b->job->model.nlayers, NULL, 0, 0);
    return cost_new(b->a, b->job, topo, d);
}

/* NULL: no such device in the catalogue */
static const struct cost *find_cost(struct bench *b, const char *gpu)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i].row, gpu))
            continue;
        for (uint32_t k = 0; k < b->ngpus; k++)
            if (!strcmp(b->gpus[k].model, names[i].model))
                return b->gpus[k].cost;
        b->gpus[b->ngpus].model = names[i].model;
        return b->gpus[b->ngpus++].cost = make_cost(b, names[i].model, names[i].scale_up);
    }
    return NULL;
}

/* SimuMax writes numbers of a shape as strings */
static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v);
}

static const char *word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* one measurement: seconds that were measured and that are predicted */
static void add(struct bench *b, const char *kind, const char *gpu, double measured_s, double predicted_s, const char *text)
{
    if (b->nrows < MAX_ROWS && measured_s > 0)
        b->rows[b->nrows++] = (struct row){arena_strdup(b->a, kind), arena_strdup(b->a, gpu), text, measured_s, predicted_s,
                                           predicted_s / measured_s - 1};
}

/* m, n, k: of the output and the inner dimension, whatever the layout */
static void gemm(struct bench *b, const struct cost *c, const json_t *row)
{
    const json_t *s = json_object_get(row, "shape");
    const char *layout = word(s, "layout");
    double m = number(s, "m"), n = number(s, "n"), k = number(s, "k");
    double predicted = cost_matmul_s(c, (uint64_t)m, (uint64_t)n, (uint64_t)k, DTYPE_BF16);
    add(b, "gemm", word(row, "gpu"), 2 * m * n * k / number(row, "tflops") * 1e-12, predicted,
        arena_printf(b->a, "%s %s m=%g n=%g k=%g", layout, word(s, "out_dtype"), m, n, k));
}

static const struct {
    const char *kind;
    void (*price)(struct bench *b, const struct cost *c, const json_t *row);
} kinds[] = {
    {"gemm", gemm},
};

static int by_group(const void *x, const void *y)
{
    const struct row *a = x, *b = y;
    int order = strcmp(a->kind, b->kind);
    order = order ? order : strcmp(a->gpu, b->gpu);
    return order ? order : (fabs(a->error) > fabs(b->error)) - (fabs(a->error) < fabs(b->error));
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* rows of one kind and GPU, by rising error */
static void report(struct bench *b, const struct row *rows, uint32_t n)
{
    double *signed_error = ARENA_ARRAY(b->a, double, n);
    for (uint32_t i = 0; i < n; i++)
        signed_error[i] = rows[i].error;
    qsort(signed_error, n, sizeof *signed_error, by_value);
    uint32_t p90 = (uint32_t)ceil(0.9 * n);
    printf("%-34s %-16s %5u %+8.1f %8.1f %8.1f\n", rows->kind, rows->gpu, n, 100 * signed_error[n / 2],
           100 * fabs(rows[n / 2].error), 100 * fabs(rows[p90 ? p90 - 1 : 0].error));
    for (uint32_t i = n; i-- > 0 && n - i <= WORST && fabs(rows[i].error) > 0.10;)
        printf("    %+7.1f %%  measured %10.1f us  predicted %10.1f us  %s\n", 100 * rows[i].error, 1e6 * rows[i].measured_s,
               1e6 * rows[i].predicted_s, rows[i].text);
}

static void read_rows(struct bench *b, FILE *f, const char *only)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, f) > 0) {
        json_t *row = json_loads(line, 0, NULL);
        for (size_t i = 0; row && i < ARRAY_LEN(kinds); i++) {
            if (strcmp(kinds[i].kind, word(row, "kind")) || (only && strcmp(only, kinds[i].kind)))
                continue;
            const struct cost *c = find_cost(b, word(row, "gpu"));
            b->unknown += !c;
            if (c)
                kinds[i].price(b, c, row);
        }
        json_decref(row);
    }
    free(line);
}

int main(int argc, char **argv)
{
    struct arena *a = arena_new();
    struct bench *b = ARENA_NEW(a, struct bench);
    *b = (struct bench){.a = a, .d = diag_new(a)};
    struct source s = {"bench.llm", model_text, strlen(model_text), false};
    b->job = job_parse(a, b->d, &s, NULL, 0);
    char *path = argc > 1 ? arena_printf(a, "%s/microbench.jsonl", argv[1]) : NULL;
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f || !b->job) {
        fprintf(stderr, "usage: bench_micro FOLDER [kind]     FOLDER holds microbench.jsonl\n");
        return 2;
    }
    read_rows(b, f, argc > 2 ? argv[2] : NULL);
    fclose(f);
    qsort(b->rows, b->nrows, sizeof *b->rows, by_group);
    printf("%-34s %-16s %5s %8s %8s %8s   error of predicted seconds, %%\n", "kind", "gpu", "rows", "bias", "median", "p90");
    for (uint32_t i = 0, n; i < b->nrows; i += n) {
        for (n = 1; i + n < b->nrows && !strcmp(b->rows[i].kind, b->rows[i + n].kind) && !strcmp(b->rows[i].gpu, b->rows[i + n].gpu);)
            n++;
        report(b, &b->rows[i], n);
    }
    printf("%u rows, %u of devices that the catalogue lacks left out\n", b->nrows, b->unknown);
    arena_free(a);
    return 0;
}
