/* CPU kernels, on every core at once.
 *
 * A process per core runs one kernel after the other, all of them the same at the same time, so that what cores share
 * (memory, caches, clocks) is shared as in training.  Operands are random numbers that lie one behind the other in a
 * pool larger than a core's caches; what is written lies in another one, so that it is never read as a number far
 * from 1.  The whole list is gone through ROUNDS times, so that a moment in which the machine had other work is one of
 * several; of a round the median call counts, of rounds the median, of processes the mean. */

#include "runtime/calibrate_items.h"
#include "runtime/calibrate_ranks.h"
#include "runtime/device.h"
#include "runtime/launch.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, CALLS = 9, LEAST_CALLS = 3, POOL_BYTES = 32 << 20, SCRATCH_BYTES = 64 << 20 };
static const double ENOUGH_S = 0.001; /* of calls in a round */

static const uint32_t products[] = {32, 96, 256, 640, 0}, places[] = {64, 256, 1024, 0}, heads[] = {32, 128, 0},
                      rows[] = {64, 1024, 0};
static const struct calibrate_sizes SIZES = {products,    products,        products,     places,       heads,     rows,
                                             .nheads = 4, .nkey_heads = 2, .width = 256, .vocab = 256, .head = 32};

struct bench {
    struct world world;
    struct calibrate_list list;
    /* of this process */
    size_t used[2]; /* of what is read, of what is written */
    int32_t *ints;
    double *ones;
    float *scratch;
};

static struct view take(void *context, bool written, enum dtype dtype, uint32_t nrows, uint32_t cols)
{
    struct bench *b = context;
    size_t bytes = ((size_t)nrows * cols * isa_dtype_bytes(dtype) + 255) / 256 * 256;
    uint8_t *pool = b->world.arena[b->world.rank] + (written ? POOL_BYTES : 0);
    size_t *used = &b->used[written];
    if (!written && (dtype == DTYPE_I32 || dtype == DTYPE_F64))
        return (struct view){dtype == DTYPE_I32 ? (void *)b->ints : b->ones, dtype, false, nrows, cols, cols};
    if (*used + bytes > POOL_BYTES)
        *used = 0;
    struct view v = {pool + *used, dtype, false, nrows, cols, cols};
    *used += bytes;
    return v;
}

/* ---- timing ---- */

static bool run_one(struct bench *b, enum op op, struct kernel_args *k)
{
    if (kernel_check(op, k) || kernel_scratch_floats(op, k) * sizeof(float) > SCRATCH_BYTES)
        return false;
    k->scratch = b->scratch;
    device_cpu_run(op, k);
    return true;
}

/* one call, of a product in all three forms; false: it does not run here */
static bool call(struct bench *b, const struct calibrate_item *x)
{
    struct kernel_args k[CALIBRATE_MOST_CALLS];
    enum op ops[CALIBRATE_MOST_CALLS];
    unsigned n = calibrate_calls(&b->list, x, take, b, ops, k);
    bool runs = true;
    for (unsigned i = 0; i < n && runs; i++)
        runs = run_one(b, ops[i], &k[i]);
    return runs;
}

static int by_time(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* first: nothing has run yet, so that a call is made before the clock runs */
static double time_item(struct bench *b, const struct calibrate_item *x, bool first)
{
    double seconds[CALLS], spent = 0;
    int n = 0;
    if (first && !call(b, x))
        return 0;
    while (n < CALLS && (n < LEAST_CALLS || spent < ENOUGH_S)) {
        int64_t start = world_core_ns();
        if (!call(b, x))
            return 0;
        seconds[n] = 1e-9 * (double)(world_core_ns() - start);
        spent += seconds[n++];
    }
    qsort(seconds, (size_t)n, sizeof *seconds, by_time);
    return seconds[n / 2];
}

/* where a process leaves its times: by process, item, round */
static double *result(const struct bench *b, uint32_t rank, uint32_t item)
{
    return (double *)(void *)b->world.trace + ((size_t)rank * CALIBRATE_MOST_ITEMS + item) * ROUNDS;
}

static enum status measure(void *context, uint32_t rank)
{
    struct bench *b = context;
    uint64_t state = rank + 1;
    uint8_t *pool = b->world.arena[rank];
    memset(pool + POOL_BYTES, 0, POOL_BYTES);
    for (size_t i = 0; i < POOL_BYTES / 2;
         i++) { /* halves between 1 and 2 of either sign; two of them are such an fp32 number */
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint16_t half = (uint16_t)(0x3f80 | ((state >> 40) & 0x807f));
        memcpy(pool + 2 * i, &half, 2);
    }
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < b->list.nitems; i++) {
            TRY(world_barrier(&b->world));
            result(b, rank, i)[round] = time_item(b, &b->list.items[i], round == 0);
        }
    return STATUS_OK;
}

static void describe(void *context, uint32_t rank, char *out, size_t size)
{
    (void)context;
    (void)rank;
    snprintf(out, size, "while it measured kernels");
}

static double seconds_of(const struct bench *b, uint32_t item)
{
    double sum = 0;
    for (uint32_t r = 0; r < b->world.nranks; r++) {
        double *rounds = result(b, r, item);
        qsort(rounds, ROUNDS, sizeof *rounds, by_time);
        sum += rounds[ROUNDS / 2];
    }
    return sum / b->world.nranks;
}

/* what the machine's element says of them */
static void summarise(const struct bench *b, const double *seconds, struct calibrate_machine *m)
{
    double all_bytes = 0, all_s = 0;
    for (uint32_t i = 0; i < b->list.nitems; i++) {
        const struct calibrate_item *x = &b->list.items[i];
        double *peak = &m->peak_flop_s[x->dtype == DTYPE_BF16];
        if (!(seconds[i] > 0))
            continue;
        if (x->kind == CALIBRATE_PRODUCT && calibrate_flop(&b->list, x) / seconds[i] > *peak)
            *peak = calibrate_flop(&b->list, x) / seconds[i];
        if (x->kind == CALIBRATE_STREAM && x->dtype == DTYPE_F32) {
            all_bytes += calibrate_stream_bytes(&b->list, x);
            all_s += seconds[i];
        }
    }
    for (int half = 0; half < 2; half++)
        m->peak_flop_s[half] *= 1.001; /* no point is faster when it is rounded */
    m->stream_bytes_s = all_s > 0 ? all_bytes / all_s : 0;
}

enum status calibrate_kernels(struct calibrate_machine *m, FILE *out, struct error *error)
{
    struct bench b = {.list.sizes = SIZES,
                      .scratch = aligned_alloc(256, SCRATCH_BYTES),
                      .ints = malloc(sizeof(int32_t) << 16),
                      .ones = malloc(sizeof(double) * STEP_WORDS)};
    struct world_sizes sizes = {.nranks = m->cores,
                                .arena_bytes = 2 * POOL_BYTES,
                                .trace_bytes = sizeof(double) * m->cores * CALIBRATE_MOST_ITEMS * ROUNDS};
    if (!b.scratch || !b.ints || !b.ones)
        return error_set(error, STATUS_WORLD, "out of memory");
    for (int32_t i = 0; i < 1 << 16; i++)
        b.ints[i] = i % 256;
    for (int i = 0; i < STEP_WORDS; i++)
        b.ones[i] = 1;
    calibrate_add(&b.list, DTYPE_F32, false);
    calibrate_add(&b.list, DTYPE_BF16, false);
    TRY(world_open(&b.world, &sizes, NULL, UINT32_MAX, 10, error));
    enum status st = launch_local(&b.world, measure, describe, &b);
    if (st != STATUS_OK)
        error_set(error, st, "%s", b.world.control->message);
    b.world.rank = 0;
    double seconds[CALIBRATE_MOST_ITEMS];
    for (uint32_t i = 0; i < b.list.nitems && st == STATUS_OK; i++)
        seconds[i] = seconds_of(&b, i);
    if (st == STATUS_OK) {
        summarise(&b, seconds, m);
        calibrate_print(&b.list, DTYPE_F32, false, seconds, 4, out);
        calibrate_print(&b.list, DTYPE_BF16, false, seconds, 4, out);
    }
    world_close(&b.world);
    free(b.scratch);
    free(b.ints);
    free(b.ones);
    return st;
}
