/* Processes.  Children ask the kernel to be killed when their parent dies, so nothing is left behind even
 * after kill -9 of the parent.  The first death or bad exit fails the world; the rest get GRACE_NS to see it.
 */

#include "runtime/launch.h"
#include "runtime/memory.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t GRACE_NS = 3000000000;

static bool read_variable(const char *name, uint32_t *out)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return false;
    unsigned long n = strtoul(text, &end, 10);
    *out = (uint32_t)n;
    return *end == 0 && n < UINT32_MAX;
}

enum status launch_detect(struct launch *l, const char *key, struct error *error)
{
    static const struct {
        const char *rank, *size, *job, *local, *hosts; /* local: ranks on this host */
    } from[] = {
        {"RANK", "WORLD_SIZE", "MASTER_PORT", "LOCAL_WORLD_SIZE", NULL},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_ess_base_jobid", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
        {"PMI_RANK", "PMI_SIZE", "PMI_ID", "MPI_LOCALNRANKS", NULL},
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", NULL, "SLURM_STEP_NUM_NODES"}};
    *l = (struct launch){.given = false};
    for (size_t i = 0; i < sizeof from / sizeof *from && !l->given; i++) {
        if (!getenv(from[i].rank) || !getenv(from[i].size) || !getenv(from[i].job))
            continue;
        if (!read_variable(from[i].rank, &l->rank) || !read_variable(from[i].size, &l->nranks) || l->rank >= l->nranks)
            return error_set(error, STATUS_USAGE, "%s and %s are set but are not a rank and a number of ranks",
                             from[i].rank, from[i].size);
        l->given = true;
        uint32_t count;
        l->apart = (from[i].local && read_variable(from[i].local, &count) && count < l->nranks) ||
                   (from[i].hosts && read_variable(from[i].hosts, &count) && count > 1);
        /* the port or job number, digits only, keeps two jobs with one plan apart */
        char job[24] = "";
        for (const char *c = getenv(from[i].job); *c && strlen(job) < sizeof job - 1; c++)
            if (*c >= '0' && *c <= '9')
                job[strlen(job) + 1] = 0, job[strlen(job)] = *c;
        snprintf(l->name, sizeof l->name, "/llmrun-%u-%.16s-%s", (unsigned)getuid(), key, job);
    }
    return STATUS_OK;
}

struct child {
    pid_t pid;
    bool running;
};

/* kills: of processes for want of memory, before the ranks were started */
static void describe_end(char *out, size_t size, int status, uint64_t kills)
{
    bool group, memory = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && memory_kills(&group) > kills;
    if (memory)
        snprintf(out, size, "was killed because %s",
                 group ? "the memory of its control group ran out" : "this machine's memory ran out");
    else if (WIFSIGNALED(status))
        snprintf(out, size, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(out, size, "ended with exit code %d", WEXITSTATUS(status));
}

static bool start_child(struct world *w, struct child *child, uint32_t rank, pid_t parent,
                        enum status (*body)(void *context, uint32_t rank), void *context)
{
    fflush(NULL);
    child->pid = fork();
    if (child->pid < 0)
        return false;
    if (child->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(STATUS_WORLD);
        w->rank = rank;
        enum status st = body(context, rank);
        fflush(NULL);
        _exit((int)st);
    }
    child->running = true;
    return true;
}

static void kill_all(const struct child *children, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        if (children[r].running)
            kill(children[r].pid, SIGKILL);
}

/* waits for children until none runs */
static void reap(struct world *w, struct child *children, uint32_t n, uint64_t kills,
                 void (*describe)(void *context, uint32_t rank, char *out, size_t size), void *context)
{
    int64_t deadline = 0;
    for (uint32_t left = n; left;) {
        int status;
        pid_t pid = waitpid(-1, &status, deadline ? WNOHANG : 0);
        if (pid < 0 && errno != EINTR)
            return;
        if (pid <= 0) { /* failing: poll until the grace is over */
            usleep(5000);
            if (deadline && world_now_ns() > deadline) {
                kill_all(children, n);
                deadline = INT64_MAX;
            }
            continue;
        }
        for (uint32_t r = 0; r < n; r++) {
            if (children[r].pid != pid || !children[r].running)
                continue;
            children[r].running = false;
            left--;
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                continue;
            char end[80], doing[700] = "";
            describe_end(end, sizeof end, status, kills);
            describe(context, r, doing, sizeof doing);
            world_fail(w, WIFEXITED(status) ? (enum status)WEXITSTATUS(status) : STATUS_WORLD, "rank %u %s%s%s", r, end,
                       doing[0] ? " " : "", doing);
            if (!deadline)
                deadline = world_now_ns() + GRACE_NS;
        }
    }
}

enum status launch_local(struct world *w, enum status (*body)(void *context, uint32_t rank),
                         void (*describe)(void *context, uint32_t rank, char *out, size_t size), void *context)
{
    struct child *children = calloc(w->nranks, sizeof *children);
    pid_t parent = getpid();
    bool group;
    uint64_t kills = memory_kills(&group);
    if (!children)
        return STATUS_WORLD;
    uint32_t started = 0;
    while (started < w->nranks && start_child(w, &children[started], started, parent, body, context))
        started++;
    if (started < w->nranks) {
        world_fail(w, STATUS_WORLD, "cannot start a process for rank %u: %s", started, strerror(errno));
        kill_all(children, started);
    }
    reap(w, children, started, kills, describe, context);
    free(children);
    return world_failed(w);
}

struct thread {
    pthread_t id;
    uint32_t rank;
    struct world *world;
    enum status (*body)(void *context, uint32_t rank);
    void *context;
};

static void *run_thread(void *argument)
{
    struct thread *t = argument;
    enum status st = t->body(t->context, t->rank);
    if (st != STATUS_OK)
        world_fail(t->world, st, "rank %u ended with status %d", t->rank, (int)st);
    return NULL;
}

enum status launch_threads(struct world *w, enum status (*body)(void *context, uint32_t rank), void *context)
{
    struct thread *threads = calloc(w->nranks, sizeof *threads);
    uint32_t started = 0;
    if (!threads)
        return STATUS_WORLD;
    for (; started < w->nranks; started++) {
        threads[started] = (struct thread){.rank = started, .world = w, .body = body, .context = context};
        if (pthread_create(&threads[started].id, NULL, run_thread, &threads[started])) {
            world_fail(w, STATUS_WORLD, "cannot start a thread for rank %u", started);
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i].id, NULL);
    free(threads);
    return world_failed(w);
}
