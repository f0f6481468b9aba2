/* Golden figures of drawn jobs: what every pass makes of them, of the search's work as of the last digit that a view
 * prints, must be what tests/cases/golden/NAME.txt holds.  A line has the figures that people ask for and, of each text
 * too long to keep, a hash.  UPDATE=1 rewrites the files: read the difference before it is committed.  GOLDEN='KIND SEED'
 * prints the texts behind the hashes of one job. */

#include "compiler/execute/machine.h"
#include "compiler/fit.h"
#include "compiler/inspect/estimate.h"
#include "compiler/inspect/explain.h"
#include "compiler/inspect/show.h"
#include "compiler/inspect/trace.h"
#include "compiler/model/sema.h"
#include "compiler/simulate/predict.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "runtime/hash.h"
#include "runtime/program.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_model.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/random_sizes.h"
#include "tests/draws.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void suite_golden_tiny(void);
void suite_golden_sized(void);
void suite_golden_search(void);

enum { TINY = 48, DRAWN_MODELS = 24, SIZED = 16, SEARCHES = 40, MOST_RANKS = 16, EXPLAIN_BUDGET = 500, SHORT_BUDGET = 4000 };

/* One golden file being made.  `text` collects what the next hash is of. */
struct golden {
    const char *kind;
    struct arena *a; /* of the job at hand */
    FILE *out, *text;
    char *of;
    size_t size;
    bool shown; /* the job at hand is GOLDEN's */
};

static void begin(struct golden *g, uint64_t seed)
{
    char *own = arena_printf(g->a, "%s %llu", g->kind, (unsigned long long)seed);
    g->shown = getenv("GOLDEN") && !strcmp(getenv("GOLDEN"), own);
    g->text = open_memstream(&g->of, &g->size);
}

/* a new instruction changes the table's fingerprint, which a summary shows, but no plan without it */
static void hide_fingerprint(char *text)
{
    char fingerprint[20];
    int n = snprintf(fingerprint, sizeof fingerprint, "%016llx", (unsigned long long)isa_fingerprint());
    for (char *at = text; (at = strstr(at, fingerprint));)
        memset(at, '-', (size_t)n);
}

/* the hash of all that was written to `text` since the last one */
static void hashed(struct golden *g, const char *name)
{
    fclose(g->text);
    hide_fingerprint(g->of);
    if (g->shown)
        printf("\n==== %s\n%s", name, g->of);
    fprintf(g->out, " %s %08x", name, (unsigned)(hash64(g->of, g->size, 0) >> 32));
    free(g->of);
    g->text = open_memstream(&g->of, &g->size);
}

static void end(struct golden *g)
{
    fputc('\n', g->out);
    fclose(g->text);
    free(g->of);
}

/* ---- plans ---- */

static void write_programs(struct golden *g, const struct plan *p)
{
    for (uint32_t r = 0; r < p->nroles; r++) {
        program_print(p->train[r], g->text);
        if (p->eval[r])
            program_print(p->eval[r], g->text);
    }
}

static void write_timeline(struct golden *g, const struct plan *p)
{
    for (uint32_t r = 0; r < p->nroles; r++) {
        const struct sim_role *role = &p->timeline->roles[r];
        for (uint32_t i = 0; i < role->ninsns; i++)
            fprintf(g->text, "%lld %lld\n", (long long)role->insns[i].start_ns, (long long)role->insns[i].end_ns);
        fprintf(g->text, "%lld %lld %lld %lld", (long long)role->begin_ns, (long long)role->end_ns,
                (long long)role->busy_ns, (long long)role->peak_ns);
        for (int k = 0; k < NIDLE; k++)
            fprintf(g->text, " %lld", (long long)role->idle_ns[k]);
        for (uint32_t k = 0; k < p->nroles; k++)
            fprintf(g->text, " %lld", (long long)role->waited_ns[k]);
        uint32_t n;
        const struct live_point *live = simulate_memory(g->a, p->train[r], role, &n);
        for (uint32_t k = 0; k < n; k++)
            fprintf(g->text, "\n%lld %llu", (long long)live[k].at_ns, (unsigned long long)live[k].bytes);
        fputc('\n', g->text);
    }
}

static void write_views(struct golden *g, const struct plan *p)
{
    static const uint32_t widths[] = {80, 131};
    for (uint32_t k = 0; k < 4; k++) {
        struct show_options o = {.json = k == 3, .comm = k == 1, .colour = k == 2, .unicode = k, .width = widths[k & 1],
                                 .rank = -1, .stage = k == 2 ? (int64_t)p->nroles - 1 : -1};
        show_summary(p, g->text, &o);
        show_memory(p, g->text, &o);
        show_traffic(p, g->text, &o);
        show_schedule(p, g->text, &o);
        show_timeline(p, g->text, &o);
    }
}

static void write_traces(struct golden *g, const struct plan *p)
{
    trace_write(p, NULL, 0, false, g->text);
    trace_times(p, g->text);
}

static void write_json(struct golden *g, const struct plan *p)
{
    struct strbuf b = {0};
    struct predicted f = plan_predicted(p);
    predicted_json(&f, &b);
    job_json(p->job, p->topo, p->decision.gpus_used, &b);
    fputs(b.text, g->text);
    strbuf_free(&b);
}

static void write_estimate(struct golden *g, const struct estimate *e)
{
    fprintf(g->text, "%.5g %.5g %.5g %.5g %.5g %.5g %.5g %.5g %.5g\n", e->step_time_s, e->compute_s, e->tp_comm_s,
            e->pp_comm_s, e->dp_comm_s, e->bubble_s, e->optimizer_s, e->stage_forward_s, e->stage_backward_s);
    const uint64_t bytes[] = {e->peak_bytes,       e->peak_stage,      e->parameter_bytes,    e->gradient_bytes, e->optimizer_bytes,
                              e->activation_bytes, e->buffer_bytes,    e->allocator_bytes,    e->communicator_bytes,
                              e->context_bytes};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        fprintf(g->text, " %llu", (unsigned long long)bytes[i]);
}

static void write_explained(struct golden *g, const struct plan *p)
{
    for (int json = 0; json < 2; json++) {
        struct explain_options o = {.all = true, .json = json, .quiet = true, .budget = EXPLAIN_BUDGET, .width = 100};
        explain(g->a, diag_new(g->a), p->job, p->topo, p, &o, g->text);
    }
}

/* all that a step and an evaluation leave in memory, from memory that nobody has written (each element some fixed number) */
static void write_executed(struct golden *g, const struct plan *p)
{
    const char *why = "";
    struct exact_machine *m = exact_open(g->a, p, 0, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    bool ran = exact_run(m, EXACT_TRAIN) && exact_run(m, EXACT_EVAL);
    fprintf(g->text, "%s, %llu instructions\n", ran ? "ran" : m->why, (unsigned long long)m->ninsns);
    for (uint32_t r = 0; r < m->nranks; r++) {
        const struct memory *memory = &m->ranks[r].memory;
        fprintf(g->text, "%u: %llu undefined, %016llx\n", r, (unsigned long long)memory->undefined,
                (unsigned long long)hash64(memory->word, memory->nwords * sizeof *memory->word, 0));
    }
    exact_close(m);
}

static void one_plan(struct golden *g, uint64_t seed, const char *name, struct job *job, struct topo *topo,
                     const struct decision *d, bool tiny)
{
    const char *why = "";
    struct plan *p = compile_decision(g->a, job, topo, d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    fprintf(g->out, "%llu %s %s\n   %.5g ms, arena %llu,", (unsigned long long)seed, name, decision_text(g->a, job, &p->decision),
            1e-6 * (double)p->timeline->step_ns, (unsigned long long)fit_peak_bytes(p));
    struct estimate e;
    const struct cost *c = cost_new(g->a, job, topo, &p->decision);
    cost_estimate(g->a, c, &e);
    write_estimate(g, &e);
    predict(g->a, c, &e);
    write_estimate(g, &e);
    hashed(g, "estimate");
    write_programs(g, p);
    hashed(g, "programs");
    write_timeline(g, p);
    hashed(g, "times");
    write_views(g, p);
    hashed(g, "show");
    write_traces(g, p);
    hashed(g, "trace");
    write_json(g, p);
    hashed(g, "json");
    if (tiny && seed % 2) {
        write_executed(g, p);
        hashed(g, "executed");
    }
    if (tiny && seed % 6 == 0) {
        write_explained(g, p);
        hashed(g, "explain");
    }
    plan_close(p);
}

static void tiny_plan(struct golden *g, uint64_t seed)
{
    uint64_t state = seed;
    bool drawn = seed > TINY;
    const struct layout_model *m = &layout_models[seed % layout_nmodels];
    struct job *job = text_job(g->a, drawn ? random_model(g->a, &state) : m->text);
    struct topo *topo = random_host(g->a, MOST_RANKS);
    struct decision d;
    layout_wishes(&state, job);
    job->wishes.overlap = 0; /* what the files keep are plans without it */
    if (layout_draw(g->a, &state, job, topo, MOST_RANKS, &d))
        one_plan(g, seed, drawn ? "drawn" : m->name, job, topo, &d, true);
    else
        fprintf(g->out, "%llu no layout", (unsigned long long)seed);
}

static void sized_plan(struct golden *g, uint64_t seed)
{
    struct sized_draw x;
    if (sized_draw(g->a, seed, &x))
        one_plan(g, seed, x.cluster, x.job, x.topo, &x.decision, false);
    else
        fprintf(g->out, "%llu no decision", (unsigned long long)seed);
}

/* ---- searches ---- */

/* wishes after the batch */
static const char *const wished[][3] = {{"batch=64 sequences"},
                                        {"batch=64 sequences", "tp=2"},
                                        {"batch=64 sequences", "pp=2", "zero=1"},
                                        {"batch=48 sequences", "dp=4"},
                                        {"batch=64 sequences", "cp=2", "pp=1"},
                                        {"batch=32 sequences", "zero=3"},
                                        {"batch=64 sequences", "schedule=zb_h1"},
                                        {"batch=96 sequences", "gpus=24"},
                                        {"batch=64 sequences", "microbatch=1", "recompute=full"},
                                        {"batch=64 sequences", "gpus=64", "tp=4"}};

/* all that a search tells */
static void write_found(struct golden *g, const struct job *job, const struct topo *topo, struct search_result *r)
{
    fprintf(g->text, "%llu %llu %llu %llu %llu %llu %llu", (unsigned long long)r->space, (unsigned long long)r->evaluated,
            (unsigned long long)r->pruned, (unsigned long long)r->budget, (unsigned long long)r->spent,
            (unsigned long long)r->illegal, (unsigned long long)r->simulated);
    for (int k = 0; k < NREMOVALS; k++)
        fprintf(g->text, " %llu", (unsigned long long)r->removed[k]);
    fprintf(g->text, "\n%.5g %.5g %.5g %llu\n", r->gap, r->given_up, r->least, (unsigned long long)r->memory_limit_bytes);
    for (uint32_t i = 0; i < r->ncandidates; i++) {
        fprintf(g->text, "%s\n", decision_text(g->a, job, &r->candidates[i].decision));
        write_estimate(g, &r->candidates[i].estimate);
    }
    if (r->has_closest)
        fprintf(g->text, "%s\n", decision_text(g->a, job, &r->closest.decision));
    r->seconds = 0; /* which differs from run to run */
    if (r->ncandidates)
        estimate_print(job, topo, r, &(struct estimate_more){0}, 100, g->text);
}

static void write_around(struct golden *g, const struct job *job, const struct topo *topo, const struct search_result *r)
{
    struct neighbour n[NDIMENSIONS];
    search_neighbours(g->a, job, topo, &r->candidates[0], false, n);
    for (int k = 0; k < NDIMENSIONS; k++) {
        fprintf(g->text, "%d%d%d ", n[k].found, n[k].memory, n[k].wished);
        if (n[k].found || n[k].memory)
            fprintf(g->text, "%.5g %s", n[k].slower, decision_text(g->a, job, &n[k].candidate.decision));
        fputc('\n', g->text);
    }
    struct relaxation *list;
    uint32_t nlist = search_relaxations(g->a, job, topo, false, SHORT_BUDGET, &list);
    for (uint32_t k = 0; k < nlist; k++)
        fprintf(g->text, "%s %s\n", list[k].wish, list[k].found ? decision_text(g->a, job, &list[k].candidate.decision) : "");
}

/* the first candidate, and a hash of all the rest */
static struct search_result *short_search(struct golden *g, struct diag *d, const struct job *job,
                                          const struct topo *topo, bool emit_only)
{
    struct search_result *r = search(g->a, d, job, topo, 5, SHORT_BUDGET, emit_only);
    if (r->ncandidates) {
        const struct candidate *x = &r->candidates[0];
        fprintf(g->out, " %s\n   %.5g s, %s,", decision_text(g->a, job, &x->decision),
                x->estimate.step_time_s, units_show_bytes(x->estimate.peak_bytes).s);
    }
    write_found(g, job, topo, r);
    diag_print(d, g->text, false);
    hashed(g, "search");
    return r;
}

static void one_search(struct golden *g, uint64_t seed)
{
    static const char *const clusters[] = {"topologies/h100x8.xml", "topologies/a100-1024.xml", "topologies/h800-2048.xml",
                                           "topologies/gb200-nvl72.xml", "topologies/tpu-v5p.xml"};
    struct sized_draw x;
    if (!sized_draw(g->a, 1000 + seed, &x)) {
        fprintf(g->out, "%llu no job", (unsigned long long)seed);
        return;
    }
    const char *const *set = wished[seed % (sizeof wished / sizeof *wished)];
    const char *cluster = clusters[seed % (sizeof clusters / sizeof *clusters)];
    struct diag *d = diag_new(g->a);
    struct source text = {.name = "drawn", .text = x.model, .size = strlen(x.model)};
    struct job *job = job_parse(g->a, d, &text, set, set[2] ? 3 : set[1] ? 2 : 1);
    struct topo *topo = topo_read(g->a, d, cluster);
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    fprintf(g->out, "%llu %s %s %s %s:", (unsigned long long)seed, cluster, set[0], set[1] ? set[1] : "", set[2] ? set[2] : "");
    struct search_result *r = short_search(g, d, job, topo, seed % 2);
    if (r->ncandidates && seed % 3 == 0) {
        write_around(g, job, topo, r);
        hashed(g, "around");
    }
}

/* shipped jobs, whose batches are large */
static const char *const shipped[][3] = {
    {"llama3-8b", "h100x8", ""},
    {"llama3-8b", "h100x8", "memory=40GiB"},
    {"llama3-8b", "h100x8", "schedule in [1f1b, zb_h1, zb_h2, gpipe]"},
    {"gpt3-175b", "a100-1024", "schedule in [gpipe, 1f1b, zb_h1, zb_h2]"},
    {"mixtral-8x22b", "h100-1024", "gpus=64"},
    {"turing-nlg-530b", "dgx-a100-superpod", "gpus=512"},
    {"deepseek-v3-1024", "h100-1024", "recompute=none"}};

static void shipped_search(struct golden *g, uint64_t k)
{
    const char *const *x = shipped[k];
    struct diag *d = diag_new(g->a);
    struct job *job = job_read(g->a, d, arena_printf(g->a, "plans/%s/model.llm", x[0]), &x[2], *x[2] != 0);
    struct topo *topo = topo_read(g->a, d, arena_printf(g->a, "topologies/%s.xml", x[1]));
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    fprintf(g->out, "%s %s %s:", x[0], x[1], x[2]);
    short_search(g, d, job, topo, true);
}

/* ---- files ---- */

/* the first line that is not the golden file's, and how many more */
static void compare(const char *path, const char *got, const char *want)
{
    uint32_t differ = 0;
    while (*got || *want) {
        size_t m = strcspn(got, "\n"), n = strcspn(want, "\n");
        if ((m != n || memcmp(got, want, n)) && !differ++)
            printf("\n    %s: wanted\n%.*s\n    got\n%.*s", path, (int)n, want, (int)m, got);
        got += m + (got[m] == '\n');
        want += n + (want[n] == '\n');
    }
    if (differ)
        printf("\n    %u lines differ", differ);
    CU_ASSERT(!differ);
}

/* how many of all drawn jobs are compared: in `make check` the first half, but where UPDATE or GOLDEN is set */
static uint64_t some(uint64_t all)
{
    return test_usual() && !getenv("UPDATE") && !getenv("GOLDEN") ? all / 2 : all;
}

/* Ends a golden file's text before the job of this seed, which it begins with, if there is one. */
static void cut_before(char *text, uint64_t seed)
{
    char begins[24];
    snprintf(begins, sizeof begins, "\n%llu ", (unsigned long long)seed);
    char *at = strstr(text, begins);
    if (at)
        at[1] = 0;
}

static void check(const char *kind, uint64_t first, uint64_t n, void (*one)(struct golden *g, uint64_t seed))
{
    char path[80], *got = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "tests/cases/golden/%s.txt", kind);
    struct golden g = {.kind = kind, .out = open_memstream(&got, &size)};
    for (uint64_t seed = first; seed < first + n; seed++) {
        g.a = arena_new();
        begin(&g, seed);
        one(&g, seed);
        end(&g);
        arena_free(g.a);
    }
    fclose(g.out);
    FILE *f = getenv("UPDATE") ? fopen(path, "w") : NULL;
    if (f) {
        fputs(got, f);
        fclose(f);
    }
    struct arena *a = arena_new();
    struct source *want = source_read(a, diag_new(a), path, 1 << 20);
    CU_ASSERT_PTR_NOT_NULL_FATAL(want);
    char *text = arena_strdup(a, want->text);
    cut_before(text, first + n);
    compare(path, got, text);
    arena_free(a);
    free(got);
}

static void test_tiny(void)
{
    check("tiny", 1, some(TINY + DRAWN_MODELS), tiny_plan);
}

static void test_sized(void)
{
    check("sized", 1, SIZED, sized_plan);
}

static void test_search(void)
{
    check("search", 1, some(SEARCHES), one_search);
}

static void test_shipped(void)
{
    check("shipped", 0, sizeof shipped / sizeof *shipped, shipped_search);
}

void suite_golden_tiny(void)
{
    CU_pSuite s = CU_add_suite("golden_tiny", NULL, NULL);
    CU_add_test(s, "drawn plans of tiny models: programs, times, views", test_tiny);
}

void suite_golden_sized(void)
{
    CU_pSuite s = CU_add_suite("golden_sized", NULL, NULL);
    CU_add_test(s, "drawn plans of published sizes", test_sized);
}

void suite_golden_search(void)
{
    CU_pSuite s = CU_add_suite("golden_search", NULL, NULL);
    CU_add_test(s, "shipped jobs' searches: choice, work", test_shipped);
    CU_add_test(s, "drawn searches: choice, work, neighbours", test_search);
}
