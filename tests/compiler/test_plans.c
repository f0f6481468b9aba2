/* The worked examples: every plans/<name>/model.llm on the cluster that plans/<name>/cluster names must give
 * exactly plans/<name>/summary.txt.
 *
 * `cluster` holds the path of the cluster file, then lines `set KEY=VALUE`.  The summary holds what does not
 * change with the last digits of the cost model: parameters, decision, stages, memory; of a model that cannot
 * be emitted yet the estimate's, and how plan refuses it.  UPDATE=1 rewrites.  Sanitizer runs leave the
 * largest out; only LLMC_DRAWS=all has the one that takes longest.  The folder of each plan must come from its
 * inputs, but for the four that take longest. */

#include "compiler/fit.h"
#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "compiler/simulate/predict.h"
#include "compiler/support/units.h"
#include "tests/e2e/e2e.h"
#include "tests/e2e/forge.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* one plan, all of it pinned, on GPUs that have just enough memory if nothing is kept free */
static void test_free(void)
{
    const char *sets[] = {"tp=2", "pp=1", "dp=4", "zero=1", "microbatch=1", "recompute=none", "sequence_parallel=no",
                          "batch=8 sequences", NULL};
    static const char *const rooms[] = {"keep=0GiB free", "keep=128 MiB free", "keep=1GiB free"};
    for (size_t i = 0; i < 3; i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        sets[8] = rooms[i];
        struct job *job = job_read(a, d, "plans/llama3-8b/model.llm", sets, 9);
        struct topo *topo = topo_read(a, d, "tests/cases/headroom/h100x8-58.xml");
        CU_ASSERT_FATAL(job && topo);
        CU_ASSERT_EQUAL(job->wishes.nkeeps, 1); /* where tp lies is another wish */
        struct search_result *found = search(a, d, job, topo, 8, 0, true);
        struct plan *p = NULL;
        if (found->ncandidates)
            fit_plan(a, d, job, topo, found, 8, &(struct compile_options){0}, &p);
        CU_ASSERT_EQUAL(p != NULL, i < 2);
        if (p) {
            uint64_t peak = fit_peak_bytes(p), most = topo->types[0].gpu.memory_bytes - topo->types[0].gpu.reserve_bytes;
            CU_ASSERT(peak <= most - job->wishes.free_bytes);
            CU_ASSERT(peak > most - topo->types[0].gpu.memory_bytes / 50);
        }
        plan_close(p);
        arena_free(a);
    }
}

void suite_plans(void);

#define SETS_MAX 8
#define QUICK_LAYERS 60 /* deepest model of a sanitizer run */

struct example {
    struct arena *a;
    const char *name, *cluster;
    uint32_t nsets;
    const char *sets[SETS_MAX];
    struct job *job;
    struct topo *topo;
};

static const char *read_text(struct arena *a, const char *path)
{
    struct source *s = source_read(a, diag_new(a), path, 1 << 20);
    return s ? s->text : "";
}

static void open_example(struct example *x, const char *name)
{
    *x = (struct example){.a = arena_new(), .name = name};
    struct diag *d = diag_new(x->a);
    const char *at = read_text(x->a, arena_printf(x->a, "plans/%s/cluster", name));
    x->cluster = arena_strndup(x->a, at, strcspn(at, "\n"));
    for (at += strcspn(at, "\n"); *at; at += strcspn(at, "\n")) {
        at++;
        if (!*at)
            break;
        CU_ASSERT_FATAL(!strncmp(at, "set ", 4) && x->nsets < SETS_MAX);
        x->sets[x->nsets++] = arena_strndup(x->a, at + 4, strcspn(at + 4, "\n"));
    }
    x->job = job_read(x->a, d, arena_printf(x->a, "plans/%s/model.llm", name), x->sets, x->nsets);
    x->topo = topo_read(x->a, d, x->cluster);
    diag_print(d, stdout, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(x->job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(x->topo);
    CU_ASSERT(diag_warnings(d) == 0);
}

/* 2 % of a GPU's memory stay free beside its reserve */
static void check_room(const struct example *x, const struct plan *p)
{
    const struct topo_gpu *gpu = &x->topo->types[p->decision.type].gpu;
    uint64_t room = topo_is_cpu(gpu) ? 0 : gpu->memory_bytes / 50 - (1 << 20);
    CU_ASSERT(fit_peak_bytes(p) + gpu->reserve_bytes + room <= gpu->memory_bytes);
}

static void write_decision(const struct example *x, const struct decision *d, uint64_t peak, const char *how,
                           FILE *out)
{
    const struct model *m = &x->job->model;
    uint64_t all = model_parameters(m), active = model_active_parameters(m);
    fprintf(out, "model     %s, %u layers, %s parameters", m->name, m->nlayers, units_show_commas(all).s);
    fprintf(out, all == active ? "\n" : ", %s active\n", units_show_commas(active).s);
    fprintf(out, "cluster   %s, %s of ", x->topo->name, units_show_commas(d->gpus_used).s);
    fprintf(out, "%s GPUs\n", units_show_commas(x->topo->gpus).s);
    fprintf(out, "decision  %s\nstages    %s\n", decision_text(x->a, x->job, d), decision_layout(x->a, d));
    fprintf(out, "memory    %s %s\n", units_show_bytes(peak).s, how);
}

/* The estimate that the choice is made by and the step of the programs that come out.  Experts' transfers that hide beside
 * other microbatches' kernels are only roughly in the estimate. */
static void check_estimate(const struct example *x, const struct plan *p)
{
    struct estimate e;
    struct cost c;
    cost_init(x->a, &c, x->job, x->topo, &p->decision, NULL, NULL, NULL);
    predict(x->a, &c, &e);
    double off = 1e-9 * (double)p->timeline->step_ns / e.step_time_s - 1, most = p->decision.ep > 1 ? 0.08 : 0.03;
    CU_ASSERT(fabs(off) <= most);
    if (!(fabs(off) <= most))
        printf("\n    %s: planned %.4g s, estimated %.4g s", x->name, 1e-9 * (double)p->timeline->step_ns, e.step_time_s);
}

/* written and read back, the plan is the one that its inputs give */
static void check_origin(const struct example *x, struct plan *p)
{
    char dir[E2E_PATH];
    const char *text;
    struct error error = {""};
    if (model_parameters(&x->job->model) * x->job->train.batch > (uint64_t)(test_usual() ? 20e12 : 500e12))
        return;
    e2e_folder(dir, "plans-example");
    p->nsets = x->nsets;
    p->sets = x->sets;
    CU_ASSERT_EQUAL_FATAL(plan_write(p, dir, true, &error), STATUS_OK);
    CU_ASSERT_EQUAL(forge_judge(x->a, dir, &text), 0);
    if (*text)
        printf("\n    %s: %s\n", x->name, text);
}

static void write_summary(const struct example *x, FILE *out)
{
    struct diag *d = diag_new(x->a);
    struct plan *p = NULL;
    struct verdict *v = NULL;
    enum status s = compile_job(x->a, d, x->job, x->topo, &(struct compile_options){0}, &p, &v);
    if (s == STATUS_OK) {
        CU_ASSERT(v && v->nviolations == 0 && v->certificate);
        check_estimate(x, p);
        check_room(x, p);
        write_decision(x, &p->decision, fit_peak_bytes(p), "on the fullest rank", out);
        check_origin(x, p);
        plan_close(p);
        return;
    }
    CU_ASSERT_EQUAL(s, STATUS_NO_PLAN);
    if (s != STATUS_NO_PLAN)
        printf("\n    status %d: %s\n", (int)s, v && v->nviolations ? v->violations[0].message : "");
    struct search_result *r = search(x->a, diag_new(x->a), x->job, x->topo, 1, 0, false);
    CU_ASSERT_FATAL(r->ncandidates == 1);
    write_decision(x, &r->candidates[0].decision, r->candidates[0].estimate.peak_bytes,
                   "on the fullest stage, estimated", out);
    diag_print(d, out, false);
}

static void check_example(const char *name)
{
    struct example x;
    open_example(&x, name);
    if (!test_quick() || x.job->model.nlayers <= QUICK_LAYERS) {
        char *got = NULL;
        size_t size = 0;
        const char *path = arena_printf(x.a, "plans/%s/summary.txt", name);
        FILE *out = open_memstream(&got, &size);
        write_summary(&x, out);
        fclose(out);
        FILE *f = getenv("UPDATE") ? fopen(path, "w") : NULL;
        if (f) {
            fputs(got, f);
            fclose(f);
        }
        const char *want = read_text(x.a, path);
        if (strcmp(got, want))
            printf("\n%s: wanted\n%sgot\n%s", path, want, got);
        CU_ASSERT(!strcmp(got, want));
        free(got);
    }
    arena_free(x.a);
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* the two of DeepSeek-V3 take as long as all others */
static bool is_seen(const char *name)
{
    if (strncmp(name, "deepseek-v3", 11) != 0 || getenv("UPDATE"))
        return true;
    return strcmp(name, "deepseek-v3") ? test_whole() : !test_usual();
}

static void test_examples(void)
{
    struct dirent **names;
    int n = scandir("plans", &names, visible, alphasort);
    CU_ASSERT_FATAL(n >= 9);
    for (int i = 0; i < n; i++) {
        if (is_seen(names[i]->d_name))
            check_example(names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

/* the sizes that the two large examples are about */
static void test_sizes(void)
{
    static const struct {
        const char *name, *cluster;
        uint32_t gpus;
        uint64_t batch, sequence;
    } cases[] = {
        {"llama3-405b", "topologies/meta-24k-roce.xml", 16384, 2048, 8192},
        {"gpt3-175b", "topologies/a100-1024.xml", 1024, 1536, 2048},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct example x;
        open_example(&x, cases[i].name);
        CU_ASSERT_STRING_EQUAL(x.cluster, cases[i].cluster);
        CU_ASSERT_EQUAL(x.job->train.batch, cases[i].batch);
        CU_ASSERT_EQUAL(x.job->train.sequence, cases[i].sequence);
        const char *summary = read_text(x.a, arena_printf(x.a, "plans/%s/summary.txt", x.name));
        CU_ASSERT_PTR_NOT_NULL(
            strstr(summary, arena_printf(x.a, ", %s of ", units_show_commas(cases[i].gpus).s)));
        arena_free(x.a);
    }
}

/* Candidates whose estimates promise too little memory: the search is repeated for less, until something fits as it is
 * placed; where nothing does, the error says what was placed and which wish forbids what would fit. */
static void test_fit(void)
{
    static const struct {
        const char *memory;
        const char *message; /* NULL: there is a plan */
    } cases[] = {{"32MiB", NULL}, {"8MiB", "nothing fits in 8,388,608 bytes. Closest: tp 2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        const char *set = arena_printf(a, "memory=%s", cases[i].memory);
        struct job *open = job_read(a, d, "plans/tiny-llama/model.llm", NULL, 0),
                   *job = job_read(a, d, "plans/tiny-llama/model.llm", &set, 1);
        struct topo *topo = topo_read(a, d, "topologies/cpu8.xml");
        CU_ASSERT_FATAL(open && job && topo);
        struct search_result *found = search(a, d, open, topo, 8, 0, true);
        CU_ASSERT_FATAL(found->ncandidates > 0);
        for (uint32_t k = 0; k < found->ncandidates; k++)
            found->candidates[k].estimate.peak_bytes = 7 << 20;
        struct plan *p = NULL;
        enum status s = fit_plan(a, d, job, topo, found, 8, &(struct compile_options){0}, &p);
        CU_ASSERT_EQUAL(s, cases[i].message ? STATUS_NO_PLAN : STATUS_OK);
        CU_ASSERT_EQUAL(p != NULL, !cases[i].message);
        if (p)
            CU_ASSERT(fit_peak_bytes(p) <= job->wishes.memory);
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        diag_print(d, out, false);
        fclose(out);
        CU_ASSERT(!cases[i].message || strstr(text, cases[i].message));
        CU_ASSERT(!cases[i].message || strstr(text, "help: it would fit without 'memory': tp 2"));
        if (cases[i].message && !strstr(text, cases[i].message))
            printf("\n%s", text);
        free(text);
        plan_close(p);
        arena_free(a);
    }
}

void suite_plans(void)
{
    CU_pSuite s = CU_add_suite("plans", NULL, NULL);
    CU_add_test(s, "every worked example gives its summary, and comes from its inputs", test_examples);
    CU_add_test(s, "what placing learns goes back into the search", test_fit);
    CU_add_test(s, "what is kept free", test_free);
    CU_add_test(s, "Llama-3 405B on 16,384 GPUs, GPT-3 175B on 1,024", test_sizes);
}
