/* The shared region: layout, attaching, events, barrier, failure.
 *
 * Layout: control block, rank faces, transport, trace, coverage, logits, then the arenas, each ending where an
 * inaccessible page begins, so that one byte too far is a fault at once.  Events are futex words (Drepper,
 * "Futexes Are Tricky"): a sleeper publishes that it sleeps and the kernel re-checks the word, so a bump is
 * never lost. */

#include "runtime/world.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SUM_PART = 4096 /* values that meet at once */ };
static const int64_t NAP_NS = 20000;
static const uint64_t ready_mark = 0x6c6c6d72756e3031; /* "llmrun01" */

int64_t world_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t world_core_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static size_t pages(uint64_t bytes)
{
    return (size_t)((bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
}

static long futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, (void *)word, op, value, timeout, NULL, 0);
}

uint32_t world_event(const struct world *w)
{
    return atomic_load(&w->ranks[w->rank].event);
}

void world_bump(const struct world *w, uint32_t rank)
{
    struct world_rank *r = &w->ranks[rank];
    atomic_fetch_add(&r->event, 1);
    if (atomic_load(&r->sleeping))
        futex(&r->event, FUTEX_WAKE, 1, NULL);
}

void world_sleep_for(const struct world *w, uint32_t event, int64_t ns)
{
    struct world_rank *r = &w->ranks[w->rank];
    int64_t longest = w->mpi ? NAP_NS : 100000000;
    struct timespec most = {0, ns < longest ? ns : longest};
    atomic_store(&r->sleeping, 1);
    if (!atomic_load(&w->control->failed))
        futex(&r->event, FUTEX_WAIT, event, &most);
    atomic_store(&r->sleeping, 0);
}

void world_sleep(const struct world *w, uint32_t event)
{
    world_sleep_for(w, event, 100000000);
}

void world_fail(const struct world *w, enum status st, const char *fmt, ...)
{
    uint32_t none = STATUS_OK;
    if (!atomic_compare_exchange_strong(&w->control->failed, &none, (uint32_t)st))
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w->control->message, sizeof w->control->message, fmt, ap);
    va_end(ap);
    atomic_store(&w->control->message_ready, 1);
    if (w->remote && w->remote->fail)
        w->remote->fail(w->remote->context, w->control->message);
    for (uint32_t i = 0; i < w->nranks; i++)
        world_bump(w, i);
    for (int i = 0; i < 2; i++)
        if (w->within[i])
            world_fail(w->within[i], st, "%s", w->control->message);
}

const char *world_trouble(const struct world *w, uint32_t rank)
{
    char path[64], text[256] = "";
    int32_t pid = atomic_load(&w->ranks[rank].pid);
    if (!pid) /* perhaps of another host */
        return "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *in = fopen(path, "r");
    size_t n = in ? fread(text, 1, sizeof text - 1, in) : 0;
    if (in)
        fclose(in);
    const char *state = n ? strrchr(text, ')') : NULL; /* the name before it may hold anything */
    if (!state || strlen(state) < 3)
        return ", but its process is gone";
    return state[2] == 'T' || state[2] == 't' ? ", but its process is stopped"
           : state[2] == 'Z'                  ? ", but its process is dead"
                                              : "";
}

enum status world_failed(const struct world *w)
{
    return (enum status)atomic_load(&w->control->failed);
}

enum status world_sum(const struct world *w, uint64_t *values, uint32_t n)
{
    struct error error = {""};
    uint32_t at = 0;
    do {
        uint32_t part = n - at < SUM_PART ? n - at : SUM_PART;
        TRY(world_failed(w));
        enum status st = w->remote->sum(w->remote->context, values + at, part, &error);
        if (st != STATUS_OK)
            world_fail(w, st, "%s", error.text);
        at += part;
    } while (at < n);
    return world_failed(w);
}

enum status world_share(const struct world *w, _Atomic uint64_t *values, uint64_t n)
{
    uint64_t part[1024];
    for (uint64_t at = 0, count; w->remote && at < n; at += count) {
        count = n - at < 1024 ? n - at : 1024;
        for (uint64_t i = 0; i < count; i++)
            part[i] = atomic_load(&values[at + i]);
        TRY(world_sum(w, part, (uint32_t)count));
        for (uint64_t i = 0; i < count; i++)
            atomic_store(&values[at + i], part[i]);
    }
    return STATUS_OK;
}

enum status world_barrier(const struct world *w)
{
    uint64_t none = 0;
    if (w->remote)
        return world_sum(w, &none, 0);
    uint32_t turn = atomic_load(&w->control->barrier_turn);
    if (atomic_fetch_add(&w->control->barrier_count, 1) + 1 == w->nranks) {
        atomic_store(&w->control->barrier_count, 0);
        atomic_fetch_add(&w->control->barrier_turn, 1);
        for (uint32_t i = 0; i < w->nranks; i++)
            world_bump(w, i);
    }
    for (;;) {
        uint32_t event = world_event(w);
        if (atomic_load(&w->control->barrier_turn) != turn)
            return world_failed(w);
        TRY(world_failed(w));
        world_sleep(w, event);
    }
}

void world_look(const struct world *w)
{
    if (w->remote && w->remote->look)
        w->remote->look(w->remote->context, w);
}

/* one process makes the object, the others open it once it is marked ready by a living process */
static int open_shared(const char *name, size_t bytes, uint32_t rank, double timeout_s, struct error *error)
{
    int64_t end = world_now_ns() + (int64_t)(timeout_s * 1e9);
    if (rank == 0) {
        int before = shm_open(name, O_RDWR | O_CLOEXEC, 0600);
        bool used = before >= 0 && flock(before, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
        if (before >= 0)
            close(before);
        if (used) {
            error_set(error, STATUS_MISMATCH, "rank 0 was started twice: another one waits for the ranks at %s", name);
            return -1;
        }
        shm_unlink(name);
        int fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) || ftruncate(fd, (off_t)bytes)) {
            error_set(error, STATUS_WORLD, "cannot make shared memory %s of %zu bytes: %s", name, bytes,
                      strerror(errno));
            if (fd >= 0)
                close(fd);
            return -1;
        }
        return fd;
    }
    for (;;) {
        int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0600);
        struct stat st;
        if (fd >= 0 && !fstat(fd, &st) && (size_t)st.st_size == bytes) {
            struct world_control *c = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            /* a run that died before all had attached may have left its object behind */
            bool ready = c != MAP_FAILED && atomic_load(&c->ready) == ready_mark &&
                         kill(atomic_load(&c->creator), 0) == 0;
            if (c != MAP_FAILED)
                munmap(c, PAGE_BYTES);
            if (ready)
                return fd;
        }
        if (fd >= 0)
            close(fd);
        if (world_now_ns() > end) {
            error_set(error, STATUS_WORLD, "rank 0 did not appear within %.0f s (shared memory %s)", timeout_s, name);
            return -1;
        }
        usleep(2000);
    }
}

static enum status wait_attached(struct world *w, const char *name, double timeout_s, struct error *error)
{
    int64_t end = world_now_ns() + (int64_t)(timeout_s * 1e9);
    while (atomic_load(&w->control->attached) < w->nranks) {
        if (world_now_ns() > end) {
            if (w->rank == 0)
                shm_unlink(name);
            return error_set(error, STATUS_MISMATCH, "%u of %u ranks attached within %.0f s",
                             atomic_load(&w->control->attached), w->nranks, timeout_s);
        }
        usleep(2000);
    }
    if (w->rank == 0)
        shm_unlink(name);
    return STATUS_OK;
}

static uint64_t arena_size(const struct world_sizes *s, uint32_t rank)
{
    return s->each ? s->each[rank] : s->arena_bytes;
}

/* places everything in the region; the guard page before an arena is the one behind its predecessor */
static void lay_out(struct world *w, const struct world_sizes *s, size_t at[6])
{
    at[0] = pages(sizeof *w->control);
    at[1] = at[0] + pages(s->nranks * sizeof *w->ranks);
    at[2] = at[1] + pages(s->transport_bytes);
    at[3] = at[2] + pages(s->trace_bytes);
    at[4] = at[3] + pages(s->coverage_bytes);
    at[5] = at[4] + pages(s->logits_bytes);
    w->control_bytes = at[5];
    w->map_bytes = at[5] + PAGE_BYTES;
    for (uint32_t r = 0; r < s->nranks; r++)
        w->map_bytes += pages(arena_size(s, r)) + PAGE_BYTES;
}

static enum status map_region(struct world *w, const struct world_sizes *s, int fd, struct error *error)
{
    size_t at[6];
    lay_out(w, s, at);
    int flags = MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
    w->map = mmap(NULL, w->map_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (w->map == MAP_FAILED) {
        w->map = NULL;
        return error_set(error, STATUS_WORLD, "cannot map %zu bytes for %u arenas: %s", w->map_bytes, s->nranks,
                         strerror(errno));
    }
    w->control = (struct world_control *)(void *)w->map;
    w->ranks = (struct world_rank *)(void *)(w->map + at[0]);
    w->transport = w->map + at[1];
    w->trace = w->map + at[2];
    w->coverage = w->map + at[3];
    w->logits = w->map + at[4];
    w->arenas = w->map + at[5];
    w->arenas_bytes = w->map_bytes - at[5];
    w->arena = calloc(s->nranks, sizeof *w->arena);
    w->arena_size = calloc(s->nranks, sizeof *w->arena_size);
    if (!w->arena || !w->arena_size)
        return error_set(error, STATUS_WORLD, "out of memory for %u arenas", s->nranks);
    uint8_t *next = w->map + at[5];
    mprotect(next, PAGE_BYTES, PROT_NONE);
    for (uint32_t r = 0; r < s->nranks; r++) {
        uint64_t bytes = arena_size(s, r);
        next += PAGE_BYTES + pages(bytes);
        w->arena[r] = next - (bytes + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT;
        w->arena_size[r] = bytes;
        w->arena_bytes = bytes > w->arena_bytes ? bytes : w->arena_bytes;
        mprotect(next, PAGE_BYTES, PROT_NONE);
    }
    return STATUS_OK;
}

/* A rank claims its place, and waits for the others.  Another process's place stays that one's. */
static enum status attach(struct world *w, const char *name, double timeout_s, struct error *error)
{
    int32_t other = 0;
    if (!atomic_compare_exchange_strong(&w->ranks[w->rank].pid, &other, (int32_t)getpid()))
        return error_set(error, STATUS_MISMATCH, "rank %u was started twice: process %d is the other one", w->rank,
                         other);
    atomic_fetch_add(&w->control->attached, 1);
    if (w->rank == 0) {
        atomic_store(&w->control->creator, (int32_t)getpid());
        atomic_store(&w->control->ready, ready_mark);
    }
    return wait_attached(w, name, timeout_s, error);
}

enum status world_open(struct world *w, const struct world_sizes *sizes, const char *name, uint32_t rank,
                       double timeout_s, struct error *error)
{
    size_t at[6];
    int fd = -1;
    *w = (struct world){.rank = rank, .nranks = sizes->nranks, .named = name != NULL, .parent = getppid()};
    w->spins = sizes->nranks > (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) ? 8 : 100;
    if (name) {
        lay_out(w, sizes, at);
        fd = open_shared(name, w->map_bytes, rank, timeout_s, error);
        if (fd < 0)
            return STATUS_WORLD;
    }
    enum status st = map_region(w, sizes, fd, error);
    if (st == STATUS_OK && name)
        st = attach(w, name, timeout_s, error);
    if (fd >= 0)
        close(fd); /* with it rank 0's claim to the name ends */
    return st;
}

void world_close(struct world *w)
{
    if (w->map)
        munmap(w->map, w->map_bytes);
    free(w->arena);
    free(w->arena_size);
    w->map = NULL;
    w->arena = NULL;
    w->arena_size = NULL;
}
