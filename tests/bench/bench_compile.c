/* Seconds of each compiler pass, for 8 to 98,304 ranks: how compile time grows.
 *
 * One row per job; the passes are those of compile.c, called one by one.  The cluster is N nodes of 8 H100 behind one fabric,
 * written for the benchmark, so that only its size varies; batch grows with it where the published one would leave
 * replicas without work.  Bytes are those of the plan folder's programs and rank table. */

#include "compiler/emit/plan.h"
#include "compiler/lower/lower.h"
#include "compiler/model/sema.h"
#include "compiler/place/place.h"
#include "compiler/search/search.h"
#include "compiler/topology/topo.h"
#include "compiler/verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READ, SEARCH, LOWER, PLACE, RANKS, SIMULATE, VERIFY, ENCODE, NPHASES };
static const char *const phase_names[NPHASES] = {"read", "search", "lower", "place", "ranks", "simulate", "verify", "encode"};

static const struct {
    const char *model, *batch;
    uint32_t ranks;
} jobs[] = {
    {"plans/llama3-8b/model.llm", "batch=512 sequences", 8},       {"plans/llama3-8b/model.llm", "batch=512 sequences", 64},
    {"plans/llama3-8b/model.llm", "batch=512 sequences", 512},     {"plans/llama3-405b/model.llm", "batch=2048 sequences", 2048},
    {"plans/llama3-405b/model.llm", "batch=2048 sequences", 16384}, {"plans/llama3-405b/model.llm", "batch=12288 sequences", 98304},
    {"plans/llama3-70b-fsdp/model.llm", "batch=1024 sequences", 1024}, {"plans/mixtral-8x22b/model.llm", "batch=256 sequences", 256},
    {"plans/deepseek-v3-1024/model.llm", "batch=8192 sequences", 1024}, {"plans/deepseek-v3/model.llm", "batch=15360 sequences", 2048},
    {"plans/llama3-405b-128k/model.llm", "batch=128 sequences", 16384},
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

static bool model_has_experts(const struct job *job)
{
    return model_active_parameters(&job->model) < model_parameters(&job->model);
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

/* the passes behind the search; returns the number of violations */
static uint32_t compile(struct arena *a, struct plan *p, double *seconds, size_t *bytes)
{
    const char *why = "";
    double t = now_s();
    struct cost *cost = cost_new(a, p->job, p->topo, &p->decision);
    if (!p->decision.prefetch)
        p->decision.prefetch = cost_prefetch(a, cost);
    p->decision.room = model_has_experts(p->job) ? 1.2 * p->job->train.imbalance : 0;
    lower_plan(a, cost, p);
    seconds[LOWER] = now_s() - t, t = now_s();
    for (uint32_t r = 0; r < p->nroles; r++) {
        place_program(a, p->train[r], 0);
        place_program(a, p->eval[r], program_host_bytes(p->train[r]));
    }
    seconds[PLACE] = now_s() - t, t = now_s();
    p->ranks = plan_ranks(p);
    seconds[RANKS] = now_s() - t, t = now_s();
    p->timeline = simulate(a, cost, (const struct program *const *)p->train, p->nroles, &why);
    seconds[SIMULATE] = now_s() - t, t = now_s();
    uint32_t violations = verify_plan(a, p, false)->nviolations;
    seconds[VERIFY] = now_s() - t, t = now_s();
    count_bytes(p, bytes);
    seconds[ENCODE] = now_s() - t;
    return violations + !p->timeline;
}

static int bench(size_t i, const char *cluster)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    double seconds[NPHASES] = {0}, t = now_s(), total = 0;
    const char *sets[] = {jobs[i].batch};
    struct job *job = job_read(a, d, jobs[i].model, sets, 1);
    struct topo *topo = make_cluster(a, d, cluster, jobs[i].ranks);
    seconds[READ] = now_s() - t, t = now_s();
    struct search_result *found = job && topo ? search(a, d, job, topo, 16, 0, true) : NULL;
    seconds[SEARCH] = now_s() - t;
    if (!found || !found->ncandidates) {
        diag_print(d, stderr, false);
        arena_free(a);
        return 1;
    }
    size_t bytes = 0;
    uint32_t violations = 1, instructions = 0;
    struct plan p;
    for (uint32_t k = 0; k < found->ncandidates && violations; k++) { /* as llmc: the first that fits when placed */
        p = (struct plan){.job = job, .topo = topo, .decision = found->candidates[k].decision};
        p.mesh = decision_mesh(job, &p.decision);
        bytes = 0;
        violations = compile(a, &p, seconds, &bytes);
        if (violations && k + 1 < found->ncandidates)
            plan_close(&p);
    }
    printf("%6u", p.decision.gpus_used);
    for (int k = 0; k < NPHASES; k++) {
        printf(" %9.3f", seconds[k]);
        total += seconds[k];
    }
    for (uint32_t r = 0; r < p.nroles; r++)
        instructions += p.train[r]->ninsns;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf(" %9.3f  %8ld %8.1f %9u %6u  %s\n", total, usage.ru_maxrss / 1024, (double)bytes / (1 << 20), instructions,
           p.nroles, violations ? "VIOLATIONS" : decision_text(a, &p.decision));
    fflush(stdout);
    plan_close(&p);
    arena_free(a);
    return violations != 0;
}

int main(int argc, char **argv)
{
    const char *cluster = argc > 1 ? argv[1] : "build/bench-cluster.xml";
    size_t only = argc > 2 ? strtoul(argv[2], NULL, 10) : 0; /* one of the rows, from 1 */
    printf("%6s", "ranks");
    for (int k = 0; k < NPHASES; k++)
        printf(" %9s", phase_names[k]);
    printf(" %9s  %8s %8s %9s %6s  decision; times in s\n", "total", "peak MiB", "plan MiB", "insns", "roles");
    int failed = 0;
    fflush(stdout);
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) { /* a process each, so that each has a peak of its own */
        if (only && i + 1 != only)
            continue;
        pid_t pid = fork();
        if (pid == 0)
            _exit(bench(i, cluster));
        int status = 1;
        waitpid(pid, &status, 0);
        failed |= status != 0;
    }
    remove(cluster);
    return failed;
}
