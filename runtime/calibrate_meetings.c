/* Collectives over shared memory: every kind, by every number of ranks up to eight and usual ones beyond, by size.
 *
 * As many groups as the ranks make meet at the same time, as in training: on buffers of their own arenas, and with some
 * arithmetic before each meeting, so that ranks that outnumber cores arrive apart, sleep while they wait and are woken.
 * That arithmetic is timed alone and taken off. A time is what all ranks together spent on cores, sleeping and waking
 * included, over the cores that they can use at once: a mean over several meetings one behind the other, of ROUNDS such
 * the median.  Sizes are those of nccl-tests: of the larger of both buffers. */

#include "runtime/calibrate_ranks.h"
#include "runtime/launch.h"
#include "runtime/transport.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, LEAST_BYTES = 2048, MOST_BYTES = 2 << 20, POINTS = 11, NKINDS = 6 };

static const struct {
    enum op op;
    const char *name;
} kinds[NKINDS] = {{OP_ALL_REDUCE, "all_reduce"}, {OP_ALL_GATHER, "all_gather"}, {OP_REDUCE_SCATTER, "reduce_scatter"},
                   {OP_ALL_TO_ALL, "all_to_all"}, {OP_SEND, "send_recv"},        {OP_BROADCAST, "broadcast"}};

struct bench {
    struct world world;
    struct transport *transport;
    uint32_t n, ngroups, self; /* members of a group; their groups; this rank's number in its own */
    uint32_t members[CALIBRATE_MOST_RANKS];
    struct channel channels[CALIBRATE_MOST_RANKS];
    uint64_t number; /* of the next meeting */
};

static enum status meet(struct bench *b, enum op op, struct view x, struct view y)
{
    struct meeting m = {
        .op = op, .channel = b->world.rank / b->n, .self = b->self, .number = b->number++, .x = x, .y = y};
    enum meeting_state s = MEETING_REFUSED;
    uint32_t spins = 0;
    while (s == MEETING_REFUSED)
        s = transport_post(b->transport, &m);
    while (s == MEETING_OPEN) {
        uint32_t event = world_event(&b->world);
        s = transport_poll(b->transport, &m);
        if (s != MEETING_OPEN)
            break;
        TRY(world_failed(&b->world));
        if (++spins > b->world.spins)
            world_sleep(&b->world, event);
    }
    return s == MEETING_DONE ? STATUS_OK : STATUS_WORLD;
}

static struct view view(uint8_t *at, uint64_t elements)
{
    return (struct view){at, DTYPE_F32, false, (uint32_t)(elements / 16), 16, 16};
}

/* elements of one member's part; of all of them for the others */
static uint64_t part(const struct bench *b, uint32_t point)
{
    uint64_t rows = ((uint64_t)LEAST_BYTES << point) / 64 / b->n;
    return 16 * (rows ? rows : 1);
}

static enum status meet_kind(struct bench *b, uint32_t kind, uint32_t point)
{
    uint8_t *at = b->world.arena[b->world.rank];
    enum op op = kinds[kind].op;
    uint64_t each = part(b, point), all = each * b->n;
    struct view x = view(at, op == OP_ALL_GATHER ? each : all);
    struct view y = op == OP_ALL_REDUCE || op == OP_BROADCAST
                        ? x
                        : view(at + MOST_BYTES, op == OP_REDUCE_SCATTER ? each : all);
    return meet(b, op == OP_SEND && b->self ? OP_RECV : op, x, y);
}

static double *result(const struct bench *b, uint32_t rank, uint32_t kind, uint32_t point)
{
    return (double *)(void *)b->world.trace + (((size_t)rank * NKINDS + kind) * POINTS + point) * ROUNDS;
}

/* some 20 us on a core */
static void compute(void)
{
    volatile double x = 1;
    for (int i = 0; i < 6000; i++)
        x = x * 0.999 + 0.001;
}

static enum status measure(void *context, uint32_t rank)
{
    struct bench *b = context;
    bool in = rank < b->n * b->ngroups;
    b->self = rank % b->n;
    memset(b->world.arena[rank], 0, b->world.arena_bytes);
    TRY(world_barrier(&b->world));
    for (uint32_t r = 0; r < b->world.nranks; r++) /* every process maps every page before the clock runs */
        for (uint64_t at = 0; at < b->world.arena_bytes; at += 4096)
            atomic_fetch_or((_Atomic uint8_t *)(b->world.arena[r] + at), 0);
    TRY(transport_open(&b->transport, &b->world, b->channels, b->ngroups));
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t kind = 0; kind < NKINDS; kind++)
            for (uint32_t point = 0; point < POINTS; point++) {
                uint32_t calls = point < 6 ? 8 : point < 9 ? 4 : 2;
                if (kinds[kind].op == OP_SEND && b->n != 2)
                    continue;
                TRY(world_barrier(&b->world));
                int64_t start = world_core_ns();
                for (uint32_t i = 0; in && i < calls; i++)
                    compute();
                int64_t middle = world_core_ns(), alone = middle - start;
                for (uint32_t i = 0; in && i < calls; i++) {
                    compute();
                    TRY(meet_kind(b, kind, point));
                }
                int64_t taken = world_core_ns() - middle - alone;
                result(b, rank, kind, point)[round] = 1e-9 * (double)(taken > 100 ? taken : 100) / calls;
            }
    return world_barrier(&b->world);
}

static void describe(void *context, uint32_t rank, char *out, size_t size)
{
    (void)context;
    (void)rank;
    snprintf(out, size, "while it measured collectives");
}

static int by_time(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void print(const struct bench *b, struct calibrate_machine *m, FILE *out)
{
    for (uint32_t kind = 0; kind < NKINDS; kind++) {
        if (kinds[kind].op == OP_SEND && b->n != 2)
            continue;
        fprintf(out, "    <collective op=\"%s\" ranks=\"%u\">\n", kinds[kind].name, b->n);
        for (uint32_t point = 0; point < POINTS; point++) {
            double rounds[ROUNDS] = {0}, bytes = 4.0 * (double)part(b, point) * b->n;
            for (uint32_t round = 0; round < ROUNDS; round++)
                for (uint32_t rank = 0; rank < b->n * b->ngroups; rank++)
                    rounds[round] += result(b, rank, kind, point)[round] / b->ngroups /
                                     (b->n < m->cores ? b->n : m->cores);
            qsort(rounds, ROUNDS, sizeof *rounds, by_time);
            fprintf(out, "      <point size=\"%.0fB\" time=\"%.4gus\"/>\n", bytes, rounds[ROUNDS / 2] * 1e6);
            if (kinds[kind].op == OP_SEND)
                m->send_bytes_s = bytes / rounds[ROUNDS / 2];
        }
        fprintf(out, "    </collective>\n");
    }
}

static enum status measure_group(struct calibrate_machine *m, uint32_t n, FILE *out, struct error *error)
{
    struct bench b = {.n = n, .ngroups = m->ranks / n};
    for (uint32_t i = 0; i < m->ranks; i++)
        b.members[i] = i;
    for (uint32_t g = 0; g < b.ngroups; g++)
        b.channels[g] = (struct channel){n, b.members + g * n};
    struct world_sizes sizes = {.nranks = m->ranks,
                                .arena_bytes = 2 * MOST_BYTES,
                                .transport_bytes = transport_shared_bytes(b.channels, b.ngroups),
                                .trace_bytes = sizeof(double) * m->ranks * NKINDS * POINTS * ROUNDS};
    TRY(world_open(&b.world, &sizes, NULL, UINT32_MAX, 10, error));
    enum status st = launch_local(&b.world, measure, describe, &b);
    if (st != STATUS_OK)
        error_set(error, st, "%s", b.world.control->message);
    else
        print(&b, m, out);
    world_close(&b.world);
    return st;
}

enum status calibrate_meetings(struct calibrate_machine *m, FILE *out, struct error *error)
{
    m->send_bytes_s = m->stream_bytes_s / 2; /* where one rank is alone */
    for (uint32_t n = 2; n <= m->ranks; n++)
        if (n <= 8 || m->ranks % n == 0 || !(n & (n - 1)))
            TRY(measure_group(m, n, out, error));
    return STATUS_OK;
}
