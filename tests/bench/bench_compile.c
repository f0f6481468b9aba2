/* Seconds of each compiler pass, for 8 to 98,304 ranks: how compile time grows.
 *
 * One row per job; the passes are those of llmc.c, called one by one.  Behind the jobs, one model with 64 to 512
 * microbatches: what the passes behind the search take per microbatch, as a ratio to 64, should stay at 1.  The cluster is N nodes of 8 H100 behind one fabric,
 * written for the benchmark, so that only its size varies; batch grows with it where the published one would leave
 * replicas without work.  Bytes are those of the plan folder's programs and rank table. */

#include "compiler/fit.h"
#include "compiler/llmc.h"
#include "compiler/lower/lower.h"
#include "compiler/model/sema.h"
#include "compiler/place/place.h"
#include "compiler/search/search.h"
#include "compiler/support/vec.h"
#include "compiler/topology/topo.h"
#include "compiler/verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FEWEST = 64 }; /* microbatches of the growth curve's first */
enum { READ, SEARCH, LOWER, PLACE, RANKS, SIMULATE, VERIFY, ENCODE, NPASSES };
static const char *const phase_names[NPASSES] = {"read", "search", "lower", "place", "ranks", "simulate", "verify", "encode"};

struct bench_job {
    const char *model, *batch;
    uint32_t ranks, microbatches; /* microbatches: of the growth curve's, else 0 */
};
static const struct bench_job jobs[] = {
    {"plans/llama3-8b/model.llm", "batch=512 sequences", 8, 0},
    {"plans/llama3-8b/model.llm", "batch=512 sequences", 64, 0},
    {"plans/llama3-8b/model.llm", "batch=512 sequences", 512, 0},
    {"plans/llama3-405b/model.llm", "batch=2048 sequences", 2048, 0},
    {"plans/llama3-405b/model.llm", "batch=2048 sequences", 16384, 0},
    {"plans/llama3-405b/model.llm", "batch=12288 sequences", 98304, 0},
    {"plans/llama3-70b-fsdp/model.llm", "batch=1024 sequences", 1024, 0},
    {"plans/mixtral-8x22b/model.llm", "batch=256 sequences", 256, 0},
    {"plans/deepseek-v3-1024/model.llm", "batch=8192 sequences", 1024, 0},
    {"plans/deepseek-v3/model.llm", "batch=15360 sequences", 2048, 0},
    {"plans/llama3-405b-128k/model.llm", "batch=128 sequences", 16384, 0},
    {"plans/llama3-70b/model.llm", "batch=64 sequences", 64, 64},
    {"plans/llama3-70b/model.llm", "batch=128 sequences", 64, 128},
    {"plans/llama3-70b/model.llm", "batch=256 sequences", 64, 256},
    {"plans/llama3-70b/model.llm", "batch=512 sequences", 64, 512},
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct topo *make_cluster(struct arena *a, struct diag *d, const char *path, uint32_t ranks)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return NULL;
    fprintf(f, "<cluster version=\"1\" name=\"bench\">\n  <node-type id=\"hgx\" gpus=\"8\">\n    <gpu model=\"H100-SXM\"/>\n"
               "    <scale-up kind=\"nvswitch\" bandwidth=\"450GB/s\"/>\n    <nic count=\"8\" bandwidth=\"400Gb/s\"/>\n"
               "  </node-type>\n  <nodes type=\"hgx\" count=\"%u\"/>\n", ranks / 8);
    if (ranks > 8)
        fprintf(f, "  <fabric medium=\"infiniband\" rails=\"8\">\n    <tier name=\"all\" span=\"all\"/>\n  </fabric>\n");
    fprintf(f, "</cluster>\n");
    fclose(f);
    return topo_read(a, d, path);
}

static void count_bytes(const struct plan *p, size_t *bytes)
{
    uint8_t *data;
    size_t size;
    for (uint32_t r = 0; r < 2 * p->nroles; r++) {
        if (program_encode(r < p->nroles ? p->train[r] : p->eval[r - p->nroles], &data, &size) != STATUS_OK)
            continue;
        *bytes += size;
        free(data);
    }
    if (ranks_encode(p->ranks, &data, &size) == STATUS_OK) {
        *bytes += size;
        free(data);
    }
}

/* what a job took, for the growth curve */
struct result {
    double seconds, peak_mib; /* behind the search; above the process's start */
    uint32_t instructions;
};

static long peak_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static bool fits(const struct plan *p)
{
    return fit_peak_bytes(p) <= decision_memory_bytes(p->job, p->topo, &p->decision);
}

/* The passes behind the search.  false: it does not fit, so that llmc would take another. */
static bool compile(struct arena *a, struct plan *p, double room, double *seconds, size_t *bytes, uint32_t *violations)
{
    const char *why = "";
    double t = now_s();
    struct cost *cost = cost_new(a, p->job, p->topo, &p->decision);
    if (!p->decision.prefetch)
        p->decision.prefetch = cost_prefetch(a, cost);
    p->decision.room = room;
    lower_plan(a, cost, p);
    seconds[LOWER] = now_s() - t, t = now_s();
    for (uint32_t r = 0; r < p->nroles; r++) {
        place_program(a, p->train[r], 0);
        place_program(a, p->eval[r], program_host_bytes(p->train[r]));
    }
    seconds[PLACE] = now_s() - t, t = now_s();
    if (!fits(p))
        return false;
    p->ranks = plan_ranks(p);
    seconds[RANKS] = now_s() - t, t = now_s();
    p->timeline = simulate(a, cost, (const struct program *const *)p->train, p->nroles, &why);
    seconds[SIMULATE] = now_s() - t, t = now_s();
    *violations = verify_plan(a, p, false)->nviolations + !p->timeline;
    seconds[VERIFY] = now_s() - t, t = now_s();
    count_bytes(p, bytes);
    seconds[ENCODE] = now_s() - t;
    return true;
}

/* the first candidate that fits, with much or little room for experts' rows */
static bool compile_first(struct arena *a, struct plan *p, const struct search_result *found, double *seconds, size_t *bytes,
                          uint32_t *violations)
{
    struct plan empty = *p;
    bool experts = model_has_experts(&p->job->model);
    for (uint32_t k = 0; k < found->ncandidates; k++)
        for (uint32_t turn = 0; turn < 1u + experts; turn++) {
            *p = empty;
            p->decision = found->candidates[k].decision;
            p->mesh = decision_mesh(p->job, &p->decision);
            if (compile(a, p, !experts ? 0 : turn ? 1 : 1.2 * p->job->train.imbalance, seconds, bytes, violations))
                return true;
            plan_close(p);
        }
    *p = empty;
    return false;
}

static int bench(const struct bench_job *j, const char *cluster, struct result *r)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    double seconds[NPASSES] = {0}, t = now_s(), total = 0;
    const char *sets[] = {j->batch, "tp=8", "pp=8", "dp=1", "microbatch=1", "schedule=1f1b"};
    long before = peak_kib();
    struct job *job = job_read(a, d, j->model, sets, j->microbatches ? ARRAY_LEN(sets) : 1);
    struct topo *topo = make_cluster(a, d, cluster, j->ranks);
    seconds[READ] = now_s() - t, t = now_s();
    struct search_result *found = job && topo ? search(a, d, job, topo, 16, 0, true) : NULL;
    seconds[SEARCH] = now_s() - t;
    size_t bytes = 0;
    uint32_t violations = 1;
    struct plan p = {.job = job, .topo = topo};
    if (!found || !found->ncandidates || !compile_first(a, &p, found, seconds, &bytes, &violations)) {
        diag_print(d, stderr, false);
        arena_free(a);
        return 1;
    }
    printf("%6u", p.decision.gpus_used);
    for (int k = 0; k < NPASSES; k++) {
        printf(" %9.3f", seconds[k]);
        total += seconds[k];
    }
    for (uint32_t k = 0; k < p.nroles; k++)
        r->instructions += p.train[k]->ninsns;
    r->seconds = total - seconds[READ] - seconds[SEARCH];
    r->peak_mib = (double)(peak_kib() - before) / 1024;
    printf(" %9.3f  %8ld %8.1f %9u %6u  %s\n", total, peak_kib() / 1024, (double)bytes / (1 << 20), r->instructions,
           p.nroles, violations ? "VIOLATIONS" : decision_text(a, p.job, &p.decision));
    fflush(stdout);
    plan_close(&p);
    arena_free(a);
    return violations != 0;
}

/* in a process of its own, so that each has a peak of its own */
static int bench_apart(const struct bench_job *j, const char *cluster, struct result *r)
{
    int ends[2], status = 1;
    if (pipe(ends))
        return 1;
    pid_t pid = fork();
    if (pid == 0) {
        int failed = bench(j, cluster, r);
        _exit(write(ends[1], r, sizeof *r) != (ssize_t)sizeof *r || failed);
    }
    close(ends[1]);
    bool told = read(ends[0], r, sizeof *r) == (ssize_t)sizeof *r;
    close(ends[0]);
    waitpid(pid, &status, 0);
    return !told || status != 0;
}

int main(int argc, char **argv)
{
    const char *cluster = argc > 1 ? argv[1] : "build/bench-cluster.xml";
    size_t only = argc > 2 ? strtoul(argv[2], NULL, 10) : 0; /* one of the rows, from 1 */
    struct result first = {0};
    printf("%6s", "ranks");
    for (int k = 0; k < NPASSES; k++)
        printf(" %9s", phase_names[k]);
    printf(" %9s  %8s %8s %9s %6s  decision; times in s\n", "total", "peak MiB", "plan MiB", "insns", "roles");
    int failed = 0;
    fflush(stdout);
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        struct result r = {0};
        if (only && i + 1 != only && !(jobs[only - 1].microbatches && jobs[i].microbatches))
            continue;
        failed |= bench_apart(&jobs[i], cluster, &r);
        first = jobs[i].microbatches && !(first.seconds > 0) ? r : first;
        if (jobs[i].microbatches && r.instructions)
            printf("       %u microbatches: per microbatch %.2f of the time, %.2f of the memory; %.2f us and %.0f bytes an instruction\n",
                   jobs[i].microbatches, r.seconds / first.seconds * FEWEST / jobs[i].microbatches,
                   r.peak_mib / first.peak_mib * FEWEST / jobs[i].microbatches,
                   1e6 * r.seconds / r.instructions, r.peak_mib * (1 << 20) / r.instructions);
        fflush(stdout);
    }
    remove(cluster);
    return failed;
}
