/* The search on one core: seconds, evaluations per second, memory and certificate for the large jobs of the literature, and
 * how they grow with GPUs.
 *
 * Clusters are written for the benchmark, so that only their size varies: nodes of eight GPUs below scalable units of 32
 * nodes.  Each row is a process of its own, so that each has a peak of its own; seconds are those of its CPU, for other
 * work may share the machine.  Every schedule, order, list of recomputation and ZeRO level is free; only 'gpus' is given.
 *
 * To compare with: Calculon v0.1 (exhaustive, no schedules, no context or expert parallelism) took 18.3 s on 2 cores for
 * 8,112 configurations of Turing-NLG 530B on 5,128 A100, which have few divisors: 443 configurations/s, and was not
 * finished after 540 s for 5,120. */

#include "compiler/model/sema.h"
#include "compiler/search/search.h"
#include "compiler/topology/topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct row {
    const char *name, *model, *gpu, *batch;
    double scale_up_gb_s, nic_gb_s;
    uint32_t gpus;
    double most_s; /* asked of it; 0 = nothing */
};
static const struct row rows[] = {
    {"Turing-NLG 530B", "plans/turing-nlg-530b/model.llm", "A100-SXM-80GB", "1920", 300, 25, 5120, 1},
    {"GPT-3 175B", "plans/gpt3-175b/model.llm", "A100-SXM-80GB", "1536", 300, 25, 1024, 1},
    {"DeepSeek-V3", "plans/deepseek-v3/model.llm", "H800-SXM", "15360", 200, 50, 2048, 5},
    {"Llama-3 405B", "plans/llama3-405b/model.llm", "H100-SXM", "2048", 450, 50, 16384, 1},
    {"Llama-3 405B", "plans/llama3-405b/model.llm", "H100-SXM", "12288", 450, 50, 98304, 3},
    {"Kimi-K2", "tests/cases/oracles/kimi-k2.llm", "H100-SXM", "16384", 450, 50, 512, 5},
    {"GLM-4.5", "tests/cases/oracles/glm-4.5.llm", "H100-SXM", "16384", 450, 50, 512, 5},
    {"Qwen3-235B-A22B", "tests/cases/oracles/qwen3-235b-a22b.llm", "H100-SXM", "4096", 450, 50, 256, 5},
    {"GPT-OSS-120B", "tests/cases/oracles/gpt-oss-120b.llm", "H100-SXM", "4096", 450, 50, 128, 5},
};
static const uint32_t growth[] = {64, 512, 2048, 8192, 32768};

static struct topo *make_cluster(struct arena *a, struct diag *d, const struct row *r, uint32_t gpus)
{
    char *text = arena_printf(a,
                              "<cluster version=\"1\" name=\"bench\"><node-type id=\"node\" gpus=\"8\"><gpu model=\"%s\"/>"
                              "<scale-up kind=\"nvswitch\" bandwidth=\"%.0fGB/s\"/><nic count=\"8\" bandwidth=\"%.0fGB/s\"/></node-type>"
                              "<nodes type=\"node\" count=\"%u\"/>%s</cluster>",
                              r->gpu, r->scale_up_gb_s, r->nic_gb_s, gpus / 8,
                              gpus > 256 ? "<fabric medium=\"infiniband\"><tier name=\"unit\" span=\"32\"/><tier name=\"spine\" "
                                           "span=\"all\" oversubscription=\"1.5\"/></fabric>"
                              : gpus > 8 ? "<fabric medium=\"infiniband\"><tier name=\"all\" span=\"all\"/></fabric>"
                                         : "");
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){"bench.xml", text, strlen(text), false};
    return topo_parse(a, d, s, NULL);
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* pinned: as a user would give wishes; else the whole space but for the number of GPUs */
static int bench(const struct row *r, uint32_t gpus, uint64_t batch)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    const char *sets[] = {arena_printf(a, "batch=%llu sequences", (unsigned long long)batch), arena_printf(a, "gpus=%u", gpus)};
    struct job *job = job_read(a, d, r->model, sets, 2);
    struct topo *topo = make_cluster(a, d, r, gpus);
    if (!job || !topo) {
        diag_print(d, stderr, false);
        return 1;
    }
    struct wishes *w = &job->wishes;
    *w = (struct wishes){.degree = {[DEG_GPUS] = w->degree[DEG_GPUS]}, .recompute = RECOMPUTE_AUTO, .overlap = w->overlap,
                         .profile_name = w->profile_name, .profile = w->profile};
    double start_s = cpu_s();
    struct search_result *found = search(a, d, job, topo, 1, 0, false);
    double seconds = cpu_s() - start_s;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (!found->ncandidates) {
        diag_print(d, stdout, false);
        return 1;
    }
    const struct candidate *c = &found->candidates[0];
    bool late = r->most_s > 0 && gpus == r->gpus && seconds > r->most_s;
    printf("%-16s %6u %7.3f %10llu %9llu %8.0f %6llu %6.2f %5ld  %7.2f  %s%s\n", r->name, gpus, seconds,
           (unsigned long long)found->space, (unsigned long long)found->spent, (double)found->spent / seconds,
           (unsigned long long)found->simulated, 100 * found->gap, usage.ru_maxrss / 1024, c->estimate.step_time_s,
           decision_text(a, job, &c->decision), late ? "  LATE" : "");
    fflush(stdout);
    arena_free(a);
    return late;
}

static int in_process(const struct row *r, uint32_t gpus, uint64_t batch)
{
    int status = 1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(bench(r, gpus, batch));
    waitpid(pid, &status, 0);
    return status != 0;
}

/* with an argument only the rows of so many GPUs */
int main(int argc, char **argv)
{
    int failed = 0;
    unsigned long long only = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    printf("%-16s %6s %7s %10s %9s %8s %6s %6s %5s  %7s  %s\n", "job", "GPUs", "CPU s", "space", "spent", "per s", "runs",
           "gap %", "MiB", "step s", "decision; runs: of schedules, action by action");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!only || only == rows[i].gpus)
            failed |= in_process(&rows[i], rows[i].gpus, strtoull(rows[i].batch, NULL, 10));
    if (only)
        return failed;
    printf("growth with GPUs, batch 2048 sequences up to 8,192 GPUs and a quarter of them from there on\n");
    for (size_t i = 0; i < sizeof growth / sizeof *growth; i++) {
        const struct row *r = &rows[growth[i] < 2048 ? 1 : 3];
        failed |= in_process(r, growth[i], growth[i] / 4 > 2048 ? growth[i] / 4 : 2048);
    }
    return failed;
}
