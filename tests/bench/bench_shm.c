/* Collectives over shared memory against memcpy, in the same processes and the same run.
 *
 * n processes meet as ranks do in llmrun.  The yardstick is all n of them copying between halves of their own
 * arena at once: bytes copied per second, all together.  An operation must at least read and write certain
 * bytes: ALL_REDUCE of B per member: n B read, n B written      = a copy of n B REDUCE_SCATTER of B:        n
 * B read,   B written      = a copy of (n + 1) B / 2 ALL_GATHER to B:            B read once at best, n B
 * written, counted as (n + 1) B / 2 SEND of B:                  a copy of B ratio = seconds that the
 * yardstick needs for that copy / seconds of the operation; 1.0 = as fast as memcpy. */

#include "runtime/program.h"
#include "runtime/transport.h"
#include "runtime/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 8 };

struct run {
    struct world *world;
    struct transport *transport;
    uint64_t number; /* of the next meeting */
    uint32_t n;
};

static bool meet(struct run *r, enum op op, struct view x, struct view y)
{
    struct meeting m = {.op = op, .self = r->world->rank, .number = r->number++, .x = x, .y = y};
    for (enum meeting_state s = MEETING_REFUSED; s == MEETING_REFUSED;) {
        s = transport_post(r->transport, &m);
        if (s == MEETING_FAILED)
            return false;
    }
    for (uint32_t spins = 0;;) {
        uint32_t event = world_event(r->world);
        enum meeting_state s = transport_poll(r->transport, &m);
        if (s != MEETING_OPEN)
            return s == MEETING_DONE;
        if (++spins > r->world->spins)
            world_sleep(r->world, event);
    }
}

static struct view rows(void *data, uint64_t elements)
{
    return (struct view){
        .data = data, .dtype = DTYPE_F32, .rows = (uint32_t)(elements / 256), .cols = 256, .ld = 256};
}

/* seconds of one operation on vectors of `elements`; the mean over as many as take a while */
static double time_operation(struct run *r, enum op op, uint64_t elements, int repeats)
{
    float *x = (float *)(void *)r->world->arena[r->world->rank];
    float *y = x + elements;
    int64_t start = 0;
    for (int i = -2; i < repeats; i++) {
        if (i == 0) {
            world_barrier(r->world);
            start = world_now_ns();
        }
        if (op == OP_COPY) {
            memcpy(y, x, elements * sizeof *x);
            __asm__ volatile("" ::: "memory");
            continue;
        }
        struct view whole = rows(x, elements), part = rows(y, elements / r->n);
        enum op mine = op == OP_SEND && r->world->rank == 1 ? OP_RECV : op;
        bool fine = op == OP_ALL_GATHER       ? meet(r, mine, part, whole)
                    : op == OP_REDUCE_SCATTER ? meet(r, mine, whole, part)
                                              : meet(r, mine, whole, whole);
        if (!fine)
            return 0;
    }
    world_barrier(r->world);
    return (double)(world_now_ns() - start) * 1e-9 / repeats;
}

/* every process maps every page before the clock runs, as after the first step of a training run */
static void map_pages(const struct world *w)
{
    memset(w->arena[w->rank], 0, w->arena_bytes);
    world_barrier(w);
    for (uint32_t i = 0; i < w->nranks; i++)
        for (uint64_t at = 0; at < w->arena_bytes; at += 4096)
            atomic_fetch_or((_Atomic uint8_t *)(w->arena[i] + at), 0);
    world_barrier(w);
}

static void measure_all(struct run *r)
{
    static const struct {
        enum op op;
        const char *name;
    } operations[] = {{OP_ALL_REDUCE, "all_reduce"},
                      {OP_REDUCE_SCATTER, "reduce_scatter"},
                      {OP_ALL_GATHER, "all_gather"},
                      {OP_SEND, "send"}};
    for (uint64_t kib = 16; kib <= 16384; kib *= 32) {
        uint64_t elements = kib * 256;
        int repeats = (int)(65536 / kib / r->n) + 4;
        repeats = repeats > 400 ? 400 : repeats;
        double copy_s = time_operation(r, OP_COPY, elements, repeats), n = r->n;
        double copy_bytes_s = n * (double)elements * 4 / copy_s;
        for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
            if (operations[i].op == OP_SEND && r->n != 2)
                continue;
            double s = time_operation(r, operations[i].op, elements, repeats), bytes = (double)elements * 4;
            double least = operations[i].op == OP_ALL_REDUCE ? n * bytes
                           : operations[i].op == OP_SEND     ? bytes
                                                             : (n + 1) * bytes / 2;
            if (r->world->rank == 0)
                printf("%2.0f ranks  %-14s  %6llu KiB  %10.1f us   memcpy of the same bytes %10.1f us   "
                       "ratio %.2f\n",
                       n, operations[i].name, (unsigned long long)kib, s * 1e6, least / copy_bytes_s * 1e6,
                       least / copy_bytes_s / s);
        }
    }
}

static int bench(uint32_t n)
{
    static const uint32_t members[MOST_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct channel channel = {.nmembers = n, .members = members};
    struct world w;
    struct error error;
    struct world_sizes sizes = {
        .nranks = n, .arena_bytes = 33u << 20, .transport_bytes = transport_shared_bytes(&channel, 1)};
    if (world_open(&w, &sizes, NULL, NONE, 10, &error) != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 4;
    }
    fflush(stdout);
    pid_t pid[MOST_RANKS];
    for (uint32_t i = 0; i < n; i++) {
        pid[i] = fork();
        if (pid[i] != 0)
            continue;
        w.rank = i;
        map_pages(&w);
        struct run r = {.world = &w, .n = n};
        if (transport_open(&r.transport, &w, &channel, 1) != STATUS_OK)
            _exit(4);
        measure_all(&r);
        fflush(stdout);
        _exit(world_failed(&w) != STATUS_OK);
    }
    int failed = 0;
    for (uint32_t i = 0; i < n; i++) {
        int status;
        waitpid(pid[i], &status, 0);
        failed |= status != 0;
    }
    world_close(&w);
    return failed;
}

int main(void)
{
    return bench(2) || bench(4) || bench(8);
}
