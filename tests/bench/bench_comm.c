/* Predicted against measured collectives: rows of the kinds nccl, comm_fit and moe_dispatch of FOLDER/micro.tsv.
 *
 *   bench_comm FOLDER [all]        all: every row, not the groups' worst alone
 *
 * A row is priced by the functions that a plan calls, for a group of its size on nodes of its GPU with one 400 Gb/s NIC per
 * GPU.  Lines that somebody fitted (comm_fit) are compared at 16, 64, 256 and 1024 MiB; bandwidths "for large messages" at
 * 16 GiB.  Last: nanoseconds per call, as a search sees them. */

#include "compiler/cost/cost_private.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"
#include "tests/bench/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_MACHINES = 64, MAX_ROWS = 1024, WORST = 6 };
#define MIB 1048576.0

struct machine {
    const char *model, *medium;
    uint32_t nodes;
    bool multicast;
    struct cost *cost;
};
struct row {
    const char *group, *text, *why;
    double measured_s, predicted_s, error;
};
struct bench {
    struct arena *a;
    struct job *job;
    uint32_t nmachines, nrows;
    struct machine machines[MAX_MACHINES];
    struct row rows[MAX_ROWS];
};

static const char model_text[] = "llmc 1\nmodel bench {\n vocab 32000\n width 4096\n norm rmsnorm\n embed tokens\n repeat 8 { layer {\n"
                                 " attn gqa(heads=32, kv=8, rope=10_000)\n ffn swiglu(8192) } }\n head untied\n}\n"
                                 "train {\n sequence 4096\n batch 2048 sequences\n precision bf16\n}\n";

/* as rows name a GPU: the catalogue's name, its scale-up, GPUs per node, nodes per domain */
static const struct {
    const char *row, *model, *scale_up;
    uint32_t gpus, span;
} names[] = {
    {"A100-SXM", "A100-SXM", "kind=\"nvswitch\" bandwidth=\"300GB/s\"", 8, 1},
    {"V100-SXM", "V100", "kind=\"mesh\" bandwidth=\"150GB/s\"", 8, 1},
    {"H100-SXM", "H100-SXM", "kind=\"nvswitch\" bandwidth=\"450GB/s\"", 8, 1},
    {"H100", "H100-SXM", "kind=\"nvswitch\" bandwidth=\"450GB/s\"", 8, 1},
    {"H200-SXM", "H200-SXM", "kind=\"nvswitch\" bandwidth=\"450GB/s\"", 8, 1},
    {"B200-SXM", "B200", "kind=\"nvswitch\" bandwidth=\"900GB/s\"", 8, 1},
    {"B200", "B200", "kind=\"nvswitch\" bandwidth=\"900GB/s\"", 8, 1},
    {"GB200", "GB200", "kind=\"nvswitch\" bandwidth=\"900GB/s\" span=\"16\"", 4, 16},
    {"MI300X", "MI300X", "kind=\"mesh\" bandwidth=\"448GB/s\"", 8, 1},
    {"A100-PCIe-80GB", "A100-PCIe-80GB", "kind=\"pcie\" bandwidth=\"32GB/s\"", 8, 1},
};

static struct cost *make_cost(struct bench *b, size_t name, const struct machine *m)
{
    char *text = arena_printf(b->a, "<cluster version=\"1\"><node-type id=\"n\" gpus=\"%u\"><gpu model=\"%s\"/><scale-up %s%s/>"
                              "<nic count=\"%u\" bandwidth=\"400Gb/s\"/></node-type><nodes type=\"n\" count=\"%u\"/>"
                              "<fabric medium=\"%s\"><tier name=\"leaf\" span=\"all\"/></fabric></cluster>",
                              names[name].gpus, m->model, names[name].scale_up, m->multicast ? "" : " multicast=\"no\"",
                              names[name].gpus, m->nodes, m->medium);
    struct source *s = ARENA_NEW(b->a, struct source);
    *s = (struct source){"bench.xml", text, strlen(text), false};
    struct diag *diag = diag_new(b->a);
    struct topo *topo = topo_parse(b->a, diag, s, NULL);
    struct decision *d = ARENA_NEW(b->a, struct decision);
    *d = (struct decision){.tp = names[name].gpus, .cp = 1, .pp = 1, .vpp = 1, .dp = m->nodes, .ep = 1, .etp = 1, .shard = 1,
                           .microbatch = 1, .microbatches = 2, .schedule = SCHED_1F1B,
                           .order = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP}};
    const char *why = "";
    if (!topo || !decision_place(b->a, topo, d, &why)) {
        diag_print(diag, stderr, false);
        fprintf(stderr, "%s: %s\n", m->model, why);
        exit(1);
    }
    return cost_new(b->a, b->job, topo, d);
}

/* NULL: no such device */
static const struct cost *find_cost(struct bench *b, const char *gpu, uint32_t nodes, const char *setup)
{
    const char *medium = !strcmp(setup, "efa") ? "efa" : "infiniband";
    bool multicast = strcmp(setup, "ring") != 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i].row, gpu))
            continue;
        struct machine m = {names[i].model, medium, nodes, multicast, NULL};
        for (uint32_t k = 0; k < b->nmachines; k++) {
            const struct machine *x = &b->machines[k];
            if (!strcmp(x->model, m.model) && !strcmp(x->medium, medium) && x->nodes == nodes && x->multicast == multicast)
                return x->cost;
        }
        m.cost = make_cost(b, i, &m);
        if (b->nmachines < MAX_MACHINES)
            b->machines[b->nmachines++] = m;
        return m.cost;
    }
    return NULL;
}

static enum op find_op(const char *name)
{
    static const struct {
        const char *name;
        enum op op;
    } ops[] = {{"all_reduce", OP_ALL_REDUCE}, {"all_gather", OP_ALL_GATHER}, {"reduce_scatter", OP_REDUCE_SCATTER},
               {"all2all", OP_ALL_TO_ALL}};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (!strcmp(ops[i].name, name))
            return ops[i].op;
    return NOPS;
}

static void add(struct bench *b, const char *group, const char *text, const char *why, double measured_s, double predicted_s)
{
    if (b->nrows < MAX_ROWS && measured_s > 0)
        b->rows[b->nrows++] = (struct row){group, text, arena_strdup(b->a, why), measured_s, predicted_s,
                                           predicted_s / measured_s - 1};
}

static void price(struct bench *b, const struct cost *c, const char *group, enum op op, uint32_t n, double bytes,
                  double measured_s)
{
    struct cost_group g = cost_run_group(c, n, 1);
    char why[160];
    cost_collective_why(c, op, bytes, &g, why, sizeof why);
    add(b, group, arena_printf(b->a, "%u GPUs, %.0f MiB", n, bytes / MIB), why, measured_s, cost_group_s(c, op, bytes, &g));
}

static void nccl(struct bench *b, const struct table_line *row)
{
    double bytes = table_number(row, "bytes"), n = table_number(row, "gpus"), bus = table_number(row, "busbw") * 1e9;
    enum op op = find_op(table_word(row, "op"));
    const struct cost *c =
        find_cost(b, table_word(row, "gpu"), (uint32_t)table_number(row, "nodes"), table_word(row, "setup"));
    if (!c || op == NOPS)
        return;
    bytes = bytes > 0 ? bytes : 16384 * MIB;
    double factor = op == OP_ALL_REDUCE ? 2 * (n - 1) / n : (n - 1) / n;
    price(b, c, arena_printf(b->a, "%s %s, %s, %g nodes", table_word(row, "gpu"), table_word(row, "op"),
                          table_word(row, "source"), table_number(row, "nodes")), op,
          (uint32_t)n, bytes, factor * bytes / bus);
}

/* SimuMax: (latency + fixed) + bytes * factor / (efficiency * peak GiB/s) */
static void comm_fit(struct bench *b, const struct table_line *row)
{
    const char *link = table_word(row, "link");
    enum op op = find_op(table_word(row, "op"));
    double efficiency = table_number(row, "efficiency"), rate = efficiency * table_number(row, "peak") * 1073741824;
    uint32_t n = strstr(link, "_2x") ? 2 : strstr(link, "_4x") || strstr(link, "low") ? 4 : 8;
    if (op == NOPS || efficiency <= 0 || strstr(link, "inter"))
        return;
    const struct cost *c = find_cost(b, table_word(row, "gpu"), 1, "");
    double factor = (op == OP_ALL_REDUCE ? 2.0 : 1.0) * (n - 1) / n;
    for (double mib = 16; c && mib <= 1024; mib *= 4)
        price(b, c, arena_printf(b->a, "%s %s, SimuMax's fit", table_word(row, "gpu"), table_word(row, "op")),
              op, n, mib * MIB,
              (table_number(row, "latency") + table_number(row, "fixed")) * 1e-6 + factor * mib * MIB / rate);
}

/* DeepSeek-V3's routing: 8 of 256 experts from 4 of 8 groups */
static void moe_dispatch(struct bench *b, const struct table_line *row)
{
    uint32_t ep = (uint32_t)table_number(row, "ep"), domain = !strcmp(table_word(row, "gpu"), "GB200") ? 64 : 8;
    bool once = strstr(table_word(row, "op"), "hybridep") != NULL;
    const struct cost *c = find_cost(b, table_word(row, "gpu"), domain == 64 ? 16 : ep / 8 ? ep / 8 : 1, "");
    if (!c)
        return;
    struct cost_group g = cost_run_group(c, ep, 1);
    double bytes = table_number(row, "tokens") * table_number(row, "hidden") * 2;
    add(b, arena_printf(b->a, "%s %s", table_word(row, "gpu"), once ? "once per node" : "all-to-all"),
        arena_printf(b->a, "%s, %u ranks", table_word(row, "op"), ep), "", table_number(row, "latency") * 1e-6,
        cost_dispatch_s(c, bytes, 8, 8, 4, &g, once));
}

static int by_group(const void *x, const void *y)
{
    const struct row *a = x, *b = y;
    int order = strcmp(a->group, b->group);
    return order ? order : (fabs(a->error) > fabs(b->error)) - (fabs(a->error) < fabs(b->error));
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* rows of one group, by rising error */
static void report(struct bench *b, const struct row *rows, uint32_t n, bool all)
{
    double *signed_error = ARENA_ARRAY(b->a, double, n);
    for (uint32_t i = 0; i < n; i++)
        signed_error[i] = rows[i].error;
    qsort(signed_error, n, sizeof *signed_error, by_value);
    uint32_t p90 = (uint32_t)ceil(0.9 * n);
    printf("%-44s %5u %+8.1f %8.1f %8.1f\n", rows->group, n, 100 * signed_error[n / 2], 100 * fabs(rows[n / 2].error),
           100 * fabs(rows[p90 - 1].error));
    for (uint32_t i = n; i-- > 0 && (all || (n - i <= WORST && fabs(rows[i].error) > 0.10));)
        printf("  %+7.1f %%  measured %8.1f us  predicted %8.1f us  %s  %s\n", 100 * rows[i].error, 1e6 * rows[i].measured_s,
               1e6 * rows[i].predicted_s, rows[i].text, rows[i].why);
}

static void time_calls(const struct cost *c)
{
    struct cost_group g = cost_run_group(c, 8, 1);
    enum { CALLS = 2000000, GROUPS = 20000 };
    struct timespec from, to;
    double sum = 0; /* printed, so that the calls stay */
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (uint32_t i = 0; i < CALLS; i++)
        sum += cost_group_s(c, i & 1 ? OP_ALL_REDUCE : OP_ALL_GATHER, 1e3 * (i & 0xffff), &g);
    clock_gettime(CLOCK_MONOTONIC, &to);
    double call_ns = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / CALLS;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (uint32_t i = 0; i < GROUPS; i++)
        sum += (double)cost_run_group(c, 8, 1).lines[0].start_s;
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.0f ns per collective, %.0f ns to tune a group (sum of times %.3g s)\n", call_ns,
           ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / GROUPS, sum);
}

int main(int argc, char **argv)
{
    struct arena *a = arena_new();
    struct bench *b = ARENA_NEW(a, struct bench);
    *b = (struct bench){.a = a};
    struct source s = {"bench.llm", model_text, strlen(model_text), false};
    b->job = job_parse(a, diag_new(a), &s, NULL, 0);
    uint32_t nlines, left_out = 0;
    const struct table_line *lines = argc > 1 ? table_read(a, argv[1], &nlines) : NULL;
    if (!lines || !b->job) {
        fprintf(stderr, "usage: bench_comm FOLDER [all]     FOLDER holds micro.tsv\n");
        return 2;
    }
    for (uint32_t i = 0; i < nlines; i++) {
        const char *kind = lines[i].block->kind;
        uint32_t before = b->nrows;
        if (!strcmp(kind, "nccl"))
            nccl(b, &lines[i]);
        else if (!strcmp(kind, "comm_fit"))
            comm_fit(b, &lines[i]);
        else if (!strcmp(kind, "moe_dispatch"))
            moe_dispatch(b, &lines[i]);
        else
            continue;
        left_out += b->nrows == before;
    }
    qsort(b->rows, b->nrows, sizeof *b->rows, by_group);
    printf("%-44s %5s %8s %8s %8s   error of predicted seconds, %%\n", "collective", "rows", "bias", "median", "p90");
    double *off = ARENA_ARRAY(a, double, b->nrows + 1);
    for (uint32_t i = 0, n; i < b->nrows; i += n) {
        for (n = 1; i + n < b->nrows && !strcmp(b->rows[i].group, b->rows[i + n].group);)
            n++;
        report(b, &b->rows[i], n, argc > 2);
    }
    for (uint32_t i = 0; i < b->nrows; i++)
        off[i] = fabs(b->rows[i].error);
    qsort(off, b->nrows, sizeof *off, by_value);
    if (b->nrows)
        printf("%-44s %5u %8s %8.1f %8.1f\n", "all", b->nrows, "", 100 * off[b->nrows / 2], 100 * off[b->nrows * 9 / 10]);
    printf("%u figures used, a fitted line counted at four sizes; lines left out: %u between nodes, point to "
           "point, or of devices that "
           "the table lacks\n",
           b->nrows, left_out);
    if (b->nmachines)
        time_calls(b->machines[0].cost);
    arena_free(a);
    return 0;
}
