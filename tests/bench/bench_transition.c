/* Transitions between large plans: making and proving them, in seconds of CPU time, and the peak of memory with both plans.
 *
 *   build/tests/bench/bench_transition [FIRST [LAST]]     rows from FIRST to LAST, counted from 1
 *
 * Each row is a process of its own, so that each has a peak of its own.  From one plan of Llama 3 405B on 16,384 GPUs to one of a
 * node fewer is asked of it in ten seconds and 2 GiB.  The last row is one that is refused: whole copies on every replica of
 * what 128 shards hold would be some 10^8 transfers. */

#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "compiler/support/vec.h"
#include "compiler/transition/transition.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SETS_MAX = 6, MOST_MIB = 2048 };
static const double MOST_S = 10;

struct row {
    const char *name;
    bool experts; /* DeepSeek-V3 on 2,048 GPUs instead of Llama 3 405B on 16,384 */
    const char *from[SETS_MAX], *to[SETS_MAX];
};
#define LLAMA(tp, pp, dp) "gpus=16384", "tp=" tp, "pp=" pp, "cp=1", "dp=" dp
static const struct row rows[] = {
    {"405B: a node fewer", false, {LLAMA("8", "16", "128")}, {"gpus<=16376"}},
    {"405B: tp 8 to tp 4", false, {LLAMA("8", "16", "128")}, {LLAMA("4", "16", "256")}},
    {"405B: tp 4 to tp 8", false, {LLAMA("4", "16", "256")}, {LLAMA("8", "16", "128")}},
    {"405B: pp 16 to pp 32", false, {LLAMA("8", "16", "128")}, {LLAMA("8", "32", "64")}},
    {"405B: zero 0 to zero 1", false, {LLAMA("8", "16", "128"), "zero=0"}, {LLAMA("8", "16", "128")}},
    {"405B: zero 0 to tp 4", false, {LLAMA("8", "16", "128"), "zero=0"}, {LLAMA("4", "16", "256")}},
    {"405B: zero 3 to tp 4", false, {LLAMA("8", "16", "128"), "zero=3"}, {LLAMA("4", "16", "256")}},
    {"DeepSeek-V3: ep 64 to 32", true, {"gpus=2048"}, {"gpus=2048", "tp=1", "pp=16", "ep=32"}},
    {"DeepSeek-V3: ep 32 to 64", true, {"gpus=2048", "tp=1", "pp=16", "ep=32"}, {"gpus=2048"}},
    {"405B: zero 1 to zero 0", false, {LLAMA("8", "16", "128")}, {LLAMA("8", "16", "128"), "zero=0"}},
};

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static struct plan *make_plan(struct arena *a, const struct row *r, const char *const *sets)
{
    struct diag *d = diag_new(a);
    const char *list[SETS_MAX];
    uint32_t n = 0;
    for (; n < SETS_MAX && sets[n]; n++)
        list[n] = sets[n];
    struct job *job = job_read(a, d, r->experts ? "plans/deepseek-v3/model.llm" : "plans/llama3-405b/model.llm", list, n);
    struct topo *topo =
        job ? topo_read(a, d, r->experts ? "topologies/h800-2048.xml" : "topologies/meta-24k-roce.xml") : NULL;
    struct plan *p = NULL;
    struct search_result *found;
    if (!topo || compile_best(a, d, job, topo, &(struct compile_options){0}, &p, &found) != STATUS_OK)
        diag_print(d, stderr, false);
    return p;
}

static int bench(const struct row *r)
{
    struct arena *a = arena_new();
    struct plan *from = make_plan(a, r, r->from), *to = make_plan(a, r, r->to);
    struct transition *t;
    struct error error = {""};
    if (!from || !to)
        return 1;
    double start_s = cpu_s();
    enum status s = transition_make(a, from, to, NONE, &t, &error);
    double made_s = cpu_s() - start_s;
    if (s != STATUS_OK) {
        printf("%-26s %6.2f  %s\n", r->name, made_s, error.text);
        return s != STATUS_NO_PLAN;
    }
    const struct verdict *v = transition_prove(a, t);
    double s_all = cpu_s() - start_s;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    struct transition_cost c = transition_cost(t);
    bool late = s_all > MOST_S || usage.ru_maxrss / 1024 > MOST_MIB;
    printf("%-26s %6.2f %6.2f %6ld %9llu %6u %6u %8.3f%s%s\n", r->name, made_s, s_all - made_s, usage.ru_maxrss / 1024,
           (unsigned long long)c.messages, t->ranks->nranks, t->nroles, c.seconds, late ? "  LATE" : "",
           v->nviolations ? "  NOT PROVED" : "");
    return late || v->nviolations;
}

int main(int argc, char **argv)
{
    size_t first = argc > 1 ? strtoul(argv[1], NULL, 10) : 1, last = argc > 2 ? strtoul(argv[2], NULL, 10) : ARRAY_LEN(rows);
    int failed = 0;
    printf("%-26s %6s %6s %6s %9s %6s %6s %8s\n", "transition", "make s", "prove", "MiB", "messages", "ranks", "roles",
           "moves s");
    for (size_t i = first; i >= 1 && i <= last && i <= ARRAY_LEN(rows); i++) {
        int status = 1;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            int st = bench(&rows[i - 1]);
            fflush(stdout);
            _exit(st);
        }
        waitpid(pid, &status, 0);
        failed |= status != 0;
    }
    return failed;
}
