/* Kernels of a GPU, as fast as they are within a training step.
 *
 * What a GPU sustains in a step is less than what it does for a moment: large products draw more power than it may, and
 * its clock falls.  So each item is timed for about VISIT_S behind LOAD_S of large products, most of a step's time, and
 * the whole list is gone through round after round for LIST_S; of the rounds behind the first, in which libraries
 * choose and the GPU warms up, the median counts.  Operands are random numbers of many sizes, never zeros (a GPU is
 * faster on those), one behind the other in a pool much larger than its caches.  An item that would take longer than
 * PATIENCE_S a call is left out. */

#include "runtime/calibrate.h"
#include "runtime/calibrate_items.h"
#include "runtime/world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 24, MOST_REPEATS = 64, NINTS = 1 << 16 };
static const size_t POOL_BYTES = (size_t)1 << 30, PIECE_BYTES = (size_t)16 << 20, WORKSPACE_BYTES = (size_t)1 << 30;
static const double PATIENCE_S = 0.1, VISIT_S = 0.001, LOAD_S = 0.006, LIST_S = 4;

static const uint32_t products[] = {1024, 4096, 16384, 0}, plain_products[] = {1024, 4096, 0},
                      places[] = {512, 1024, 2048, 4096, 8192, 0}, heads[] = {64, 128, 0}, rows[] = {64, 1024, 8192, 0};

struct machine {
    const struct cuda_plugin *plugin;
    const struct cuda_runtime *cu;
    struct cuda_libraries *libraries;
    cuda_stream stream;
    cuda_event from, to;
    int sm;
    uint8_t *memory; /* what is read; what is written; ids; ones; the workspace */
    size_t used[2];  /* of what is read, of what is written */
};

static uint8_t *ints_of(const struct machine *m)
{
    return m->memory + 2 * POOL_BYTES;
}

static uint8_t *ones_of(const struct machine *m)
{
    return ints_of(m) + NINTS * sizeof(int32_t);
}

static uint8_t *workspace_of(const struct machine *m)
{
    return ones_of(m) + 4096;
}

static bool open_machine(struct machine *m, const struct cuda_plugin *plugin, bool deterministic, struct error *error)
{
    const char *why = NULL;
    int rc = 0, major = 0, minor = 0;
    void *p = NULL;
    *m = (struct machine){.plugin = plugin};
    m->cu = plugin->runtime;
    rc = m->cu->SetDevice(0);
    rc = rc ? rc : m->cu->DeviceGetAttribute(&major, 75, 0);
    rc = rc ? rc : m->cu->DeviceGetAttribute(&minor, 76, 0);
    m->sm = 10 * major + minor;
    rc = rc ? rc : m->cu->StreamCreateWithPriority(&m->stream, CUDA_STREAM_NONBLOCKING, 0);
    rc = rc ? rc : m->cu->EventCreateWithFlags(&m->from, CUDA_EVENT_PLAIN);
    rc = rc ? rc : m->cu->EventCreateWithFlags(&m->to, CUDA_EVENT_PLAIN);
    rc = rc ? rc : m->cu->Malloc(&p, (size_t)(workspace_of(m) - m->memory) + WORKSPACE_BYTES);
    m->memory = p;
    why = rc ? m->cu->GetErrorString(rc) : plugin->open(&m->libraries, 0, deterministic);
    error_set(error, STATUS_WORLD, "cannot use the device: %s", why ? why : "");
    return !why;
}

static void close_machine(struct machine *m)
{
    if (m->libraries)
        m->plugin->close(m->libraries);
    if (m->from)
        m->cu->EventDestroy(m->from);
    if (m->to)
        m->cu->EventDestroy(m->to);
    if (m->stream)
        m->cu->StreamDestroy(m->stream);
    if (m->memory)
        m->cu->Free(m->memory);
}

static int wait_idle(const struct machine *m)
{
    int rc;
    while ((rc = cuda_poll_stream(m->cu, m->stream)) == CUDA_NOT_READY)
        ;
    return rc;
}

/* ---- operands ---- */

/* a piece of random numbers from the host, then copies of it; halves of either sign below 2, the smaller the rarer, two
 * of which are an fp32 number of the same kind */
static bool fill_pool(struct machine *m)
{
    uint8_t *piece = malloc(PIECE_BYTES);
    uint64_t state = 1;
    if (!piece)
        return false;
    for (size_t i = 0; i < PIECE_BYTES / 2; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = state >> 40;
        uint16_t exponent = 127;
        while (exponent > 119 && bits & 0x10000u << (127 - exponent))
            exponent--;
        uint16_t half = (uint16_t)((bits & 0x807f) | (uint16_t)(exponent << 7));
        memcpy(piece + 2 * i, &half, 2);
    }
    int rc = m->cu->MemcpyAsync(m->memory, piece, PIECE_BYTES, CUDA_COPY_DEFAULT, m->stream);
    rc = rc ? rc : wait_idle(m);
    free(piece);
    return !rc;
}

/* as at first: updates have changed some of it */
static bool refill_pool(struct machine *m)
{
    int rc = 0;
    for (size_t done = PIECE_BYTES; done < POOL_BYTES && !rc; done += PIECE_BYTES)
        rc = m->cu->MemcpyAsync(m->memory + done, m->memory, PIECE_BYTES, CUDA_COPY_DEFAULT, m->stream);
    return !rc && !wait_idle(m);
}

static bool fill_constants(struct machine *m)
{
    int32_t *ints = malloc(NINTS * sizeof *ints);
    double ones[STEP_WORDS];
    if (!ints)
        return false;
    for (int32_t i = 0; i < NINTS; i++)
        ints[i] = i % 256;
    for (int i = 0; i < STEP_WORDS; i++)
        ones[i] = 1;
    int rc = m->cu->MemcpyAsync(ints_of(m), ints, NINTS * sizeof *ints, CUDA_COPY_DEFAULT, m->stream);
    rc = rc ? rc : m->cu->MemcpyAsync(ones_of(m), ones, sizeof ones, CUDA_COPY_DEFAULT, m->stream);
    rc = rc ? rc : wait_idle(m);
    free(ints);
    return !rc;
}

/* The first piece stays as it is: the others are made from it.  NULL where an operand is larger than the pool. */
static struct view take(void *context, bool written, enum dtype dtype, uint32_t nrows, uint32_t cols)
{
    struct machine *m = context;
    size_t bytes = ((size_t)nrows * cols * isa_dtype_bytes(dtype) + 255) / 256 * 256, least = written ? 0 : PIECE_BYTES;
    size_t *used = &m->used[written];
    if (!written && (dtype == DTYPE_I32 || dtype == DTYPE_F64))
        return (struct view){dtype == DTYPE_I32 ? ints_of(m) : ones_of(m), dtype, false, nrows, cols, cols};
    if (*used < least || *used + bytes > POOL_BYTES)
        *used = least;
    if (*used + bytes > POOL_BYTES)
        return (struct view){.data = NULL};
    struct view v = {m->memory + (written ? POOL_BYTES : 0) + *used, dtype, false, nrows, cols, cols};
    *used += bytes;
    return v;
}

/* ---- timing ---- */

static bool runs_here(const struct machine *m, enum op op, const struct kernel_args *k)
{
    for (uint32_t i = 0; i < isa_info(op)->noperands; i++)
        if (!k->operand[i].data && !isa_info(op)->operand[i].optional)
            return false;
    return !kernel_check(op, k) && !m->plugin->check(op, k) &&
           m->plugin->workspace_bytes(op, k, m->sm) <= WORKSPACE_BYTES;
}

/* all of an item's calls once; first: nothing of it has run yet.  false: it does not run here */
static bool launch_item(struct machine *m, const struct calibrate_list *l, const struct calibrate_item *x, bool first)
{
    struct kernel_args k[CALIBRATE_MOST_CALLS];
    enum op ops[CALIBRATE_MOST_CALLS];
    unsigned n = calibrate_calls(l, x, take, m, ops, k);
    for (unsigned i = 0; i < n; i++) {
        const struct cuda_call c = {&k[i], m->stream, workspace_of(m), WORKSPACE_BYTES, NULL, m->libraries};
        k[i].scratch = (float *)(void *)workspace_of(m);
        if (first && (!runs_here(m, ops[i], &k[i]) || (m->plugin->prepare && m->plugin->prepare(ops[i], &c))))
            return false;
        if (m->plugin->launch(ops[i], &c))
            return false;
    }
    return true;
}

/* seconds of an item's calls, of so many repetitions right behind each other; 0 = it does not run here */
static double time_item(struct machine *m, const struct calibrate_list *l, const struct calibrate_item *x,
                        unsigned repeats, bool first)
{
    float ms = 0;
    if (first && (!launch_item(m, l, x, true) || wait_idle(m)))
        return 0;
    if (m->cu->EventRecord(m->from, m->stream))
        return 0;
    for (unsigned i = 0; i < repeats; i++)
        if (!launch_item(m, l, x, false))
            return 0;
    if (m->cu->EventRecord(m->to, m->stream) || wait_idle(m) || m->cu->EventElapsedTime(&ms, m->from, m->to))
        return 0;
    return (double)ms * 1e-3 / repeats;
}

struct round_times {
    double seconds[CALIBRATE_MOST_ITEMS][ROUNDS];
};

/* seconds that the item would take, by what the last one of its kind took or would have taken; 0 = unknown */
static double foresee(const struct calibrate_list *l, uint32_t item, const double *guess)
{
    const struct calibrate_item *x = &l->items[item];
    for (uint32_t i = item; i-- > 0;) {
        const struct calibrate_item *y = &l->items[i];
        if (y->kind != x->kind || y->op != x->op || guess[i] == 0)
            continue;
        return fabs(guess[i]) * (x->kind == CALIBRATE_STREAM
                                     ? calibrate_stream_bytes(l, x) / calibrate_stream_bytes(l, y)
                                     : calibrate_flop(l, x) / calibrate_flop(l, y));
    }
    return 0;
}

/* The first round: what runs here, and how long that takes, of two calls the shorter unless the first leaves no doubt;
 * 0 = it does not, and negative = it takes too long. */
static void try_items(struct machine *m, const struct calibrate_list *l, double *guess)
{
    for (uint32_t i = 0; i < l->nitems; i++) {
        double most = PATIENCE_S * (l->items[i].kind == CALIBRATE_PRODUCT ? CALIBRATE_MOST_CALLS : 1);
        guess[i] = foresee(l, i, guess);
        if (guess[i] <= most) {
            guess[i] = time_item(m, l, &l->items[i], 1, true);
            if (guess[i] > 0 && guess[i] <= 10 * most)
                guess[i] = fmin(guess[i], time_item(m, l, &l->items[i], 1, false));
        }
        if (guess[i] > most)
            guess[i] = -guess[i];
    }
}

static unsigned repeats_for(double visit_s, double seconds)
{
    double n = ceil(visit_s / seconds);
    return n > MOST_REPEATS ? MOST_REPEATS : n < 1 ? 1 : (unsigned)n;
}

/* the product that keeps the device busy between items: of those that fit LOAD_S the one of most operations, and of
 * several the fastest; the list's end if there is none */
static uint32_t find_load(const struct calibrate_list *l, const double *guess)
{
    uint32_t best = l->nitems;
    for (uint32_t i = 0; i < l->nitems; i++) {
        const struct calibrate_item *x = &l->items[i];
        if (x->kind != CALIBRATE_PRODUCT || !(guess[i] > 0) || guess[i] > LOAD_S)
            continue;
        double more = best == l->nitems ? 1 : calibrate_flop(l, x) - calibrate_flop(l, &l->items[best]);
        if (more > 0 || (more == 0 && guess[i] < guess[best]))
            best = i;
    }
    return best;
}

static double visit(struct machine *m, const struct calibrate_list *l, uint32_t item, uint32_t load,
                    const double *guess)
{
    if (!(guess[item] > 0))
        return 0;
    for (unsigned i = 0; load < l->nitems && i < repeats_for(LOAD_S, guess[load]); i++)
        if (!launch_item(m, l, &l->items[load], false))
            return 0;
    return time_item(m, l, &l->items[item], repeats_for(VISIT_S, guess[item]), false);
}

static int by_time(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static bool measure(struct machine *m, const struct calibrate_list *l, double *seconds)
{
    int64_t begun = world_now_ns();
    double guess[CALIBRATE_MOST_ITEMS];
    uint32_t rounds = 0;
    struct round_times *times = calloc(1, sizeof *times);
    bool fine = times && refill_pool(m);
    if (fine)
        try_items(m, l, guess);
    uint32_t load = fine ? find_load(l, guess) : 0;
    for (; fine && rounds < ROUNDS && (rounds == 0 || world_now_ns() - begun < (int64_t)(1e9 * LIST_S)); rounds++) {
        fine = refill_pool(m);
        for (uint32_t i = 0; i < l->nitems; i++)
            times->seconds[i][rounds] = visit(m, l, i, load, guess);
    }
    for (uint32_t i = 0; fine && i < l->nitems; i++) {
        qsort(times->seconds[i], rounds, sizeof(double), by_time);
        seconds[i] = times->seconds[i][rounds / 2];
    }
    free(times);
    return fine;
}

/* ---- the elements ---- */

void calibrate_begin(const struct cuda_plugin *plugin, int device, FILE *out)
{
    char name[300], date[16];
    time_t now = time(NULL);
    struct tm day;
    plugin->describe(device, name, sizeof name);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    fprintf(out, "<measured date=\"%s\">\n  <!-- calibrated by llmrun on %s -->\n", date, name);
}

static bool measure_dtype(struct machine *m, enum dtype dtype, bool eight, FILE *out)
{
    const uint32_t *sizes = dtype == DTYPE_F32 ? plain_products : products;
    struct calibrate_list list = {.sizes = {sizes, sizes, sizes, places, heads, rows, .nheads = 32, .nkey_heads = 8,
                                            .tokens = 8192, .width = 4096, .vocab = 16384, .head = 128}};
    double seconds[CALIBRATE_MOST_ITEMS] = {0};
    calibrate_add(&list, dtype, eight);
    bool fine = measure(m, &list, seconds);
    if (fine)
        calibrate_print(&list, dtype, eight, seconds, 2, out);
    return fine;
}

enum status calibrate(const struct cuda_plugin *plugin, bool deterministic, FILE *out, struct error *error)
{
    struct machine m;
    if (!open_machine(&m, plugin, deterministic, error) || !fill_pool(&m) || !fill_constants(&m)) {
        close_machine(&m);
        return STATUS_WORLD;
    }
    calibrate_begin(plugin, 0, out);
    bool fine = measure_dtype(&m, DTYPE_BF16, false, out) && measure_dtype(&m, DTYPE_F32, false, out) &&
                (m.sm < 89 || measure_dtype(&m, DTYPE_BF16, true, out));
    if (fine)
        fprintf(out, "</measured>\n");
    close_machine(&m);
    return fine ? STATUS_OK
                : error_set(error, STATUS_WORLD, "the device cannot be measured: out of memory, or a copy failed");
}
