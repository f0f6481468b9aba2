/* Predicted against measured microbenchmarks: for every kind and GPU the number of rows, bias, median and
 * 90th percentile of the error in seconds, the rows that are furthest off, and what was left out and why.
 *
 *   bench_micro FOLDER [kind]        FOLDER/micro.tsv, one measurement a line
 *   bench_micro FOLDER fit           improves the constants of device.c by coordinate descent and prints them
 *
 * A row is priced in-process by the function of cost/ that a plan would call, on one node of eight of its GPU
 * as the catalogue describes it, without a software stack's profile.  Rows of devices that the catalogue
 * lacks are counted and left out. A further kind is a function and a line of the table `kinds`. */

#include "compiler/cost/cost.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"
#include "tests/bench/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GPUS = 32, MAX_ROWS = 4096, WORST = 5 };

/* A row's name of a device holds `part`, and `form` if there is one: that of the catalogue.  First match. */
static const struct {
    const char *part, *form, *model, *scale_up; /* scale_up: GB/s one way; NULL = PCIe only */
} names[] = {
    {"GB300", NULL, "GB300", "900"},     {"GB200", NULL, "GB200", "900"},
    {"B300", NULL, "B300", "900"},       {"B200", NULL, "B200", "900"},
    {"Blackwell", NULL, "GB200", "900"}, {"GH200", NULL, "GH200", NULL},
    {"H200", NULL, "H200-SXM", "450"},   {"H100", "PCI", "H100-PCIe", NULL},
    {"H100", NULL, "H100-SXM", "450"},   {"Hopper", NULL, "H100-SXM", "450"},
    {"H800", NULL, "H800-SXM", "200"},   {"A100", "PCI", "A100-PCIe-80GB", NULL},
    {"A100", NULL, "A100-SXM", "300"},   {"A800", NULL, "A800-SXM", "200"},
    {"V100", NULL, "V100", "150"},
};

struct row {
    const char *kind, *gpu, *text;         /* text: the shape, for the list of the worst */
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
    uint32_t nrows, unknown, older, nlines;
    struct row rows[MAX_ROWS];
    const struct table_line *lines;
};

static const char model_text[] =
    "llmc 1\nmodel bench {\n vocab 32000\n width 4096\n norm rmsnorm\n embed tokens\n repeat 8 { layer {\n"
    " attn gqa(heads=32, kv=8, rope=10_000)\n ffn swiglu(8192) } }\n head untied\n}\n"
    "train {\n sequence 4096\n batch 64 sequences\n precision bf16\n}\n";

static struct cost *make_cost(struct bench *b, const char *model, const char *scale_up)
{
    char *text =
        arena_printf(b->a,
                     "<cluster version=\"1\"><node-type id=\"n\" gpus=\"8\"><gpu model=\"%s\"/>"
                     "<scale-up kind=\"%s\"%s%s%s/><nic count=\"8\" bandwidth=\"400Gb/s\"/></node-type>"
                     "<nodes type=\"n\" count=\"1\"/></cluster>",
                     model, scale_up ? "nvswitch" : "none", scale_up ? " bandwidth=\"" : "",
                     scale_up ? scale_up : "", scale_up ? "GB/s\"" : "");
    struct source *s = ARENA_NEW(b->a, struct source);
    *s = (struct source){"bench.xml", text, strlen(text), false};
    struct topo *topo = topo_parse(b->a, b->d, s, NULL);
    struct decision *d = ARENA_NEW(b->a, struct decision);
    *d = decision_single();
    d->tp = 8;
    d->microbatches = 64;
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
        if (!strstr(gpu, names[i].part) || (names[i].form && !strstr(gpu, names[i].form)))
            continue;
        for (uint32_t k = 0; k < b->ngpus; k++)
            if (!strcmp(b->gpus[k].model, names[i].model))
                return b->gpus[k].cost;
        b->gpus[b->ngpus].model = names[i].model;
        return b->gpus[b->ngpus++].cost = make_cost(b, names[i].model, names[i].scale_up);
    }
    return NULL;
}

/* one measurement: seconds that were measured and that are predicted */
static void add(struct bench *b, const char *kind, const char *gpu, double measured_s, double predicted_s,
                const char *text)
{
    if (b->nrows < MAX_ROWS && measured_s > 0)
        b->rows[b->nrows++] =
            (struct row){arena_strdup(b->a, kind),    arena_strdup(b->a, gpu), text, measured_s, predicted_s,
                         predicted_s / measured_s - 1};
}

/* SimuMax: m, n, k are those of the output and the inner dimension, whatever the layout; TN is a forward
 * product, NN an input gradient, NT a weight gradient, which is added to the output */
static void gemm(struct bench *b, const struct cost *c, const struct table_line *row)
{
    const char *layout = table_word(row, "layout");
    struct cost own = *c;
    own.device.gradient_bytes = strcmp(table_word(row, "out"), "fp32") ? 2 : 4;
    enum product product = !strcmp(layout, "NT")   ? PRODUCT_WEIGHT
                           : !strcmp(layout, "NN") ? PRODUCT_INPUT
                                                   : PRODUCT_FORWARD;
    double m = table_number(row, "m"), n = table_number(row, "n"), k = table_number(row, "k");
    double predicted = cost_matmul_s(&own, product, (uint64_t)m, (uint64_t)n, (uint64_t)k, DTYPE_BF16);
    add(b, "gemm", table_word(row, "gpu"), 2 * m * n * k / table_number(row, "tflops") * 1e-12, predicted,
        arena_printf(b->a, "%s %s m=%g n=%g k=%g", layout, table_word(row, "out"), m, n, k));
}

/* The best shape of a sweep, and its fastest run: uniform operands, cool device, so without the limit of
 * power. */
static void gemm_peak(struct bench *b, const struct cost *c, const struct table_line *row)
{
    unsigned long long m = 0, n = 0, k = 0;
    struct cost own = *c;
    struct job job = *c->job;
    bool fp8 = !strcmp(table_word(row, "dtype"), "fp8");
    job.train.precision = fp8 ? DT_FP8 : DT_BF16;
    own.job = &job;
    for (int i = 0; i < COST_NNUMBERS; i++)
        own.device.power_flop_s[i] = INFINITY;
    if (sscanf(table_word(row, "shape"), "%llux%llux%llu", &m, &n, &k) != 3)
        return;
    double predicted = cost_matmul_s(&own, PRODUCT_FORWARD, m, n, k, DTYPE_BF16);
    add(b, fp8 ? "gemm_peak fp8" : "gemm_peak bf16", table_word(row, "gpu"),
        2.0 * (double)m * (double)n * (double)k / table_number(row, "tflops") * 1e-12, predicted,
        arena_strdup(b->a, table_word(row, "shape")));
}

/* SimuMax measured Transformer Engine's loop of products, which takes the host about 9 us per group where
 * they are small */
static void grouped_gemm(struct bench *b, const struct cost *c, const struct table_line *row)
{
    const char *stage = table_word(row, "stage");
    struct cost own = *c;
    own.device.group_s = 9e-6;
    own.device.gradient_bytes = strcmp(table_word(row, "grads"), "fp32") ? 2 : 4;
    enum product product = !strcmp(stage, "fwd")          ? PRODUCT_FORWARD
                           : !strcmp(stage, "bwd_grad_w") ? PRODUCT_WEIGHT
                                                          : PRODUCT_INPUT;
    double groups = table_number(row, "groups"), m = table_number(row, "m"), n = table_number(row, "n"),
           k = table_number(row, "k");
    double predicted =
        cost_grouped_matmul_s(&own, product, (uint64_t)groups, m, (uint64_t)n, (uint64_t)k, DTYPE_BF16);
    add(b, "grouped_gemm", table_word(row, "gpu"),
        2 * groups * m * n * k / table_number(row, "tflops") * 1e-12, predicted,
        arena_printf(b->a, "%s groups=%g m=%g n=%g k=%g %s", stage, groups, m, n, k,
                     table_word(row, "grads")));
}

/* SimuMax counts the whole score matrix, and backward as 2.5 times that; the kernels are causal */
static void sdp(struct bench *b, const struct cost *c, const struct table_line *row)
{
    bool backward = !strcmp(row->block->kind, "sdp_bwd");
    struct cost_attention a = {.context = table_number(row, "seq"),
                               .heads = table_number(row, "heads"),
                               .kv = table_number(row, "kv"),
                               .qk = table_number(row, "qk"),
                               .v = table_number(row, "v")};
    a.tokens = table_number(row, "batch") * a.context;
    double flops = 2 * a.tokens * a.context * a.heads * (a.qk + a.v) * (backward ? 2.5 : 1);
    add(b, row->block->kind, table_word(row, "gpu"), flops / table_number(row, "tflops") * 1e-12,
        cost_attention_s(c, &a, DTYPE_BF16, backward),
        arena_printf(b->a, "seq=%g heads=%g kv=%g qk=%g v=%g", a.context, a.heads, a.kv, a.qk, a.v));
}

/* DeepSeek-V3's heads, half of the scores counted */
static void mla(struct bench *b, const struct cost *c, const struct table_line *row)
{
    double s = table_number(row, "seq");
    struct cost_attention a = {.tokens = s, .context = s, .heads = 128, .qk = 192, .v = 128};
    double flops = a.tokens * a.context * a.heads * (a.qk + a.v);
    const char *text = arena_printf(b->a, "seq=%g heads=128 qk=192 v=128", s);
    add(b, "flash_attention mla", table_word(row, "gpu"), flops / table_number(row, "fwd") * 1e-12,
        cost_attention_s(c, &a, DTYPE_BF16, false), text);
    add(b, "flash_attention mla", table_word(row, "gpu"), 2.5 * flops / table_number(row, "bwd") * 1e-12,
        cost_attention_s(c, &a, DTYPE_BF16, true), text);
}

/* The FlashAttention papers' figures: 16,384 tokens, width 2048.  Left out: version 2 on Hopper, older than
 * what stacks use there. */
static void flash(struct bench *b, const struct cost *c, const struct table_line *row)
{
    const char *impl = table_word(row, "impl"), *pass = table_word(row, "pass");
    double s = table_number(row, "seq"), d = table_number(row, "head");
    if (!strcmp(impl, "fa2") && c->type->gpu.sm >= 90) {
        b->older++;
        return;
    }
    bool causal = !strcmp(table_word(row, "causal"), "true");
    struct cost_attention a = {
        .tokens = 16384, .context = s, .heads = 2048 / d, .qk = d, .v = d, .full = !causal};
    bool forward = strcmp(pass, "bwd") != 0, backward = strcmp(pass, "fwd") != 0;
    double flops =
        4 * a.tokens * s * a.heads * d * (causal ? 0.5 : 1) * ((forward ? 1 : 0) + (backward ? 2.5 : 0));
    double predicted = (forward ? cost_attention_s(c, &a, DTYPE_BF16, false) : 0) +
                       (backward ? cost_attention_s(c, &a, DTYPE_BF16, true) : 0);
    add(b, arena_printf(b->a, "flash_attention %s", impl), table_word(row, "gpu"),
        flops / table_number(row, "tflops") * 1e-12, predicted,
        arena_printf(b->a, "%s seq=%g head=%g%s", pass, s, d, causal ? " causal" : ""));
}

static const struct {
    const char *kind;
    void (*price)(struct bench *b, const struct cost *c, const struct table_line *row);
} kinds[] = {
    {"gemm", gemm},   {"gemm_peak", gemm_peak}, {"grouped_gemm", grouped_gemm},
    {"sdp_fwd", sdp}, {"sdp_bwd", sdp},         {"flash_attention", flash},
    {"mla", mla},
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
        printf("    %+7.1f %%  measured %10.1f us  predicted %10.1f us  %s\n", 100 * rows[i].error,
               1e6 * rows[i].measured_s, 1e6 * rows[i].predicted_s, rows[i].text);
}

/* prices the lines of a kind (NULL = all) on a device (NULL = all) */
static void price(struct bench *b, const char *kind, const struct cost *device)
{
    b->nrows = b->unknown = b->older = 0;
    for (uint32_t l = 0; l < b->nlines; l++)
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
            if (strcmp(kinds[i].kind, b->lines[l].block->kind) || (kind && strcmp(kind, kinds[i].kind)))
                continue;
            const struct cost *c = find_cost(b, table_word(&b->lines[l], "gpu"));
            b->unknown += !c;
            if (c && (!device || c == device))
                kinds[i].price(b, c, &b->lines[l]);
        }
}

/* A constant of a device that the rows determine.  Those of one GPU are fitted to all rows of that GPU. */
static const struct knob {
    const char *name;
    size_t offset;
    const char *model;
} knobs[] = {
#define KNOB(model, member)                                                                                  \
    {                                                                                                        \
#member, offsetof(struct cost_device, member), model                                                 \
    }
    KNOB("A100-PCIe-80GB", power_flop_s[COST_HALF]),
    KNOB("A100-PCIe-80GB", fill),
    KNOB("A100-PCIe-80GB", split_s),
    KNOB("A100-PCIe-80GB", weight_share),
    KNOB("A100-PCIe-80GB", write),
    KNOB("A100-PCIe-80GB", group_shown),
    KNOB("A100-PCIe-80GB", shared),
    KNOB("A100-PCIe-80GB", forward.unequal),
    KNOB("A100-PCIe-80GB", backward.unequal),
    KNOB("A100-SXM", forward.flop_s),
    KNOB("A100-SXM", forward.softmax),
    KNOB("A100-SXM", forward.fill),
    KNOB("A100-SXM", forward.tail),
    KNOB("A100-SXM", backward.flop_s),
    KNOB("A100-SXM", backward.softmax),
    KNOB("A100-SXM", backward.fill),
    KNOB("A100-SXM", backward.tail),
    KNOB("H100-SXM", forward.flop_s),
    KNOB("H100-SXM", forward.softmax),
    KNOB("H100-SXM", forward.fill),
    KNOB("H100-SXM", forward.tail),
    KNOB("H100-SXM", forward.unequal),
    KNOB("H100-SXM", backward.unequal),
    KNOB("B200", power_flop_s[COST_HALF]),
    KNOB("B200", fill),
    KNOB("B200", split_s),
    KNOB("B200", weight_share),
    KNOB("B200", group_shown),
    KNOB("B200", shared),
    KNOB("B200", forward.flop_s),
    KNOB("B200", forward.softmax),
    KNOB("B200", forward.fill),
    KNOB("B200", forward.tail),
    KNOB("B200", forward.unequal),
    KNOB("B200", backward.flop_s),
    KNOB("B200", backward.softmax),
    KNOB("B200", backward.fill),
    KNOB("B200", backward.tail),
    KNOB("B200", backward.unequal),
#undef KNOB
};

/* Mean |log error| of a device's rows, every kind alike by the root of its size.  Not the median: it would
 * jump. */
static double loss(struct bench *b, struct cost *device)
{
    double sum = 0, weights = 0;
    cost_device_tiles(&device->device, device->device.shared);
    price(b, NULL, device);
    qsort(b->rows, b->nrows, sizeof *b->rows, by_group);
    for (uint32_t i = 0, n; i < b->nrows; i += n) {
        double group = 0;
        for (n = 0; i + n < b->nrows && !strcmp(b->rows[i].kind, b->rows[i + n].kind); n++)
            group += fabs(log1p(b->rows[i + n].error));
        sum += group / sqrt(n);
        weights += sqrt(n);
    }
    return weights > 0 ? sum / weights : 0;
}

/* one pass over a device's knobs, each by a factor of 1 + step either way; its loss afterwards */
static double descend(struct bench *b, struct cost *device, const char *model, double step)
{
    double best = loss(b, device);
    for (size_t k = 0; k < ARRAY_LEN(knobs); k++) {
        if (strcmp(knobs[k].model, model))
            continue;
        double *at = (double *)((char *)&device->device + knobs[k].offset), was = *at;
        for (int side = 0; side < 2; side++) {
            double before = *at;
            *at = was * (side ? 1 / (1 + step) : 1 + step);
            double now = loss(b, device);
            if (now < best - 1e-6)
                best = now;
            else
                *at = before;
        }
    }
    return best;
}

static void fit(struct bench *b)
{
    price(b, NULL, NULL); /* makes the devices */
    struct cost_device start[MAX_GPUS];
    for (uint32_t g = 0; g < b->ngpus; g++) {
        start[g] = b->gpus[g].cost->device;
        double first = loss(b, b->gpus[g].cost), last = first;
        for (double step = 0.16; step > 0.005; step /= 2)
            for (int pass = 0; pass < 4; pass++)
                last = descend(b, b->gpus[g].cost, b->gpus[g].model, step);
        printf("%s: mean error %.2f %% -> %.2f %%\n", b->gpus[g].model, 100 * first, 100 * last);
        for (size_t k = 0; k < ARRAY_LEN(knobs); k++)
            if (!strcmp(knobs[k].model, b->gpus[g].model))
                printf("    %-26s x %.3f = %g\n", knobs[k].name,
                       *(double *)((char *)&b->gpus[g].cost->device + knobs[k].offset) /
                           *(double *)((char *)&start[g] + knobs[k].offset),
                       *(double *)((char *)&b->gpus[g].cost->device + knobs[k].offset));
    }
}

/* every parameter at its default: kernels as the device table has them */
static const struct profile *plain_profile(struct arena *a)
{
    struct profile *p = ARENA_NEW(a, struct profile);
    size_t n;
    const struct profile_param *params = profile_params(&n);
    for (size_t i = 0; i < n; i++)
        *PROFILE_PARAM(p, &params[i]) = params[i].value;
    return p;
}

/* rows used and left out, and how many constants were fitted to the rows they are compared with */
static void report_left_out(const struct bench *b)
{
    uint32_t other = 0;
    for (uint32_t l = 0; l < b->nlines; l++) {
        bool priced = false;
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
            priced = priced || !strcmp(kinds[i].kind, b->lines[l].block->kind);
        other += !priced;
    }
    printf("%u figures used, forward and backward of a line counted apart; lines left out: %u of devices "
           "that the catalogue lacks, "
           "%u of FlashAttention-2 on Hopper, %u of other kinds (collectives: bench_comm)\n",
           b->nrows, b->unknown, b->older, other);
    printf("%zu constants of the device table are fitted to these very rows (`fit`), so the errors are those "
           "of the fit\n",
           ARRAY_LEN(knobs));
}

int main(int argc, char **argv)
{
    struct arena *a = arena_new();
    struct bench *b = ARENA_NEW(a, struct bench);
    *b = (struct bench){.a = a, .d = diag_new(a)};
    struct source s = {"bench.llm", model_text, strlen(model_text), false};
    b->job = job_parse(a, b->d, &s, NULL, 0);
    if (b->job)
        b->job->wishes.profile = plain_profile(a);
    b->lines = argc > 1 ? table_read(a, argv[1], &b->nlines) : NULL;
    if (!b->lines || !b->job) {
        fprintf(stderr, "usage: bench_micro FOLDER [kind | fit]     FOLDER holds micro.tsv\n");
        return 2;
    }
    if (argc > 2 && !strcmp(argv[2], "fit"))
        fit(b);
    price(b, argc > 2 && strcmp(argv[2], "fit") ? argv[2] : NULL, NULL);
    qsort(b->rows, b->nrows, sizeof *b->rows, by_group);
    printf("%-34s %-16s %5s %8s %8s %8s   error of predicted seconds, %%\n", "kind", "gpu", "rows", "bias",
           "median", "p90");
    for (uint32_t i = 0, n; i < b->nrows; i += n) {
        for (n = 1; i + n < b->nrows && !strcmp(b->rows[i].kind, b->rows[i + n].kind) &&
                    !strcmp(b->rows[i].gpu, b->rows[i + n].gpu);)
            n++;
        report(b, &b->rows[i], n);
    }
    report_left_out(b);
    arena_free(a);
    return 0;
}
