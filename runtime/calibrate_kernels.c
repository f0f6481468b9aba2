/* CPU kernels, on every core at once.
 *
 * A process per core runs one kernel after the other, all of them the same at the same time, so that what cores share (memory,
 * caches, clocks) is shared as in training.  Operands are random numbers that lie one behind the other in a pool larger than a
 * core's caches; what is written lies in another one, so that it is never read as a number far from 1.  The whole list is gone through ROUNDS times, so that a moment in which the machine had other work is one of
 * several; of a round the median call counts, of rounds the median, of processes the mean.
 *
 * Products are the mean of the three forms that a layer has.  Memory-bound kernels are points of bytes and seconds, bytes as
 * llmc counts them: every operand once, updated ones twice. */

#include "runtime/calibrate_ranks.h"
#include "runtime/device.h"
#include "runtime/launch.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, CALLS = 9, LEAST_CALLS = 3, MOST_ITEMS = 400, POOL_BYTES = 32 << 20, SCRATCH_BYTES = 64 << 20 };
static const double ENOUGH_S = 0.001; /* of calls in a round */

enum kind { PRODUCT, ATTENTION, ATTENTION_BACK, STREAM };
struct item {
    enum kind kind;
    enum op op; /* STREAM */
    enum dtype dtype;
    uint32_t m, n, k; /* of a product; rows of a stream; places and width of a head */
};
struct bench {
    struct world world;
    uint32_t nitems;
    struct item items[MOST_ITEMS];
    /* of this process */
    size_t used[2]; /* of what is read, of what is written */
    int32_t *ints;
    double *ones;
    float *scratch;
};

/* ---- what is measured ---- */

static void add_item(struct bench *b, struct item i)
{
    if (b->nitems < MOST_ITEMS)
        b->items[b->nitems++] = i;
}

static void list_items(struct bench *b)
{
    static const uint32_t sizes[] = {32, 96, 256, 640}, places[] = {64, 256, 1024}, heads[] = {32, 128};
    static const uint32_t rows[] = {64, 1024};
    static const enum op streams[] = {
        OP_ADD,      OP_COPY,     OP_FILL,     OP_RMSNORM, OP_RMSNORM_I, OP_RMSNORM_W, OP_LAYERNORM, OP_LAYERNORM_I, OP_LAYERNORM_W,
        OP_BIAS_W,   OP_ROPE,     OP_GELU,     OP_GELU_I,  OP_RELU,      OP_RELU_I,    OP_SWIGLU,    OP_SWIGLU_I,    OP_GEGLU,
        OP_GEGLU_I,  OP_XENT_MAX, OP_XENT_SUM, OP_XENT_I,  OP_SQNORM,    OP_ADAMW,     OP_SGD};
    for (int half = 0; half < 2; half++) {
        enum dtype dtype = half ? DTYPE_BF16 : DTYPE_F32;
        for (int i = 0; i < 64; i++)
            add_item(b, (struct item){PRODUCT, OP_MATMUL_NT, dtype, sizes[i / 16], sizes[i / 4 % 4], sizes[i % 4]});
        for (int i = 0; i < 6; i++)
            for (int back = 0; back < 2; back++)
                add_item(b, (struct item){back ? ATTENTION_BACK : ATTENTION, OP_ATTENTION, dtype, places[i / 2], heads[i % 2], 0});
        for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
            for (int j = 0; j < 2; j++)
                add_item(b, (struct item){STREAM, streams[i], dtype, rows[j], 0, 0});
    }
}

/* ---- operands ---- */

static struct view take(struct bench *b, bool written, enum dtype dtype, uint32_t rows, uint32_t cols)
{
    size_t bytes = ((size_t)rows * cols * isa_dtype_bytes(dtype) + 255) / 256 * 256;
    uint8_t *pool = b->world.arena[b->world.rank] + (written ? POOL_BYTES : 0);
    size_t *used = &b->used[written];
    if (!written && (dtype == DTYPE_I32 || dtype == DTYPE_F64))
        return (struct view){dtype == DTYPE_I32 ? (void *)b->ints : b->ones, dtype, false, rows, cols, cols};
    if (*used + bytes > POOL_BYTES)
        *used = 0;
    struct view v = {pool + *used, dtype, false, rows, cols, cols};
    *used += bytes;
    return v;
}

/* a name of isa.def's shapes; products of names, and 1 */
static uint32_t extent(const char *name, uint32_t rows)
{
    static const struct {
        const char *name;
        uint32_t n;
    } known[] = {{"h", 256}, {"a", 256}, {"v", 256}, {"heads", 8}, {"head", 32}, {"1", 1}, {"2", 2}, {"8", 8}};
    uint32_t n = 1;
    if (!strcmp(name, "t"))
        return rows;
    for (const char *at = name; *at;) {
        size_t length = strcspn(at, "*");
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strlen(known[i].name) == length && !strncmp(at, known[i].name, length))
                n *= known[i].n;
        at += length + (at[length] == '*');
    }
    return n;
}

static enum dtype dtype_of(char letter, enum dtype dtype)
{
    return letter == 'F' ? DTYPE_F32 : letter == 'I' ? DTYPE_I32 : letter == 'D' ? DTYPE_F64 : dtype;
}

/* optional operands are there but for those that only some plans have */
static void fill_stream(struct bench *b, const struct item *x, struct kernel_args *k)
{
    const struct isa_info *info = isa_info(x->op);
    for (uint32_t i = 0; i < info->noperands; i++) {
        const struct isa_operand *o = &info->operand[i];
        bool copy = x->op == OP_ADAMW && x->dtype == DTYPE_BF16 && i == OPND(ADAMW, copy);
        if (o->optional && !copy && !(x->op == OP_ADD && i == OPND(ADD, b)))
            continue;
        bool state = (x->op == OP_ADAMW || x->op == OP_SGD) && !copy; /* moments and gradients are fp32 by default */
        k->operand[i] = take(b, o->mark == MARK_WRITE || o->mark == MARK_ADD, dtype_of(o->dtype, state ? DTYPE_F32 : x->dtype), extent(o->rows, x->m), extent(o->cols, x->m));
    }
    if (x->op == OP_ROPE) {
        k->attr[ATTR(ROPE, head)].i = k->attr[ATTR(ROPE, dims)].i = 32;
        k->attr[ATTR(ROPE, sequence)].i = x->m;
        k->attr[ATTR(ROPE, theta)].f = 1e4;
    }
    if (x->op == OP_RELU)
        k->attr[ATTR(RELU, power)].i = 1;
    if (x->op == OP_RELU_I)
        k->attr[ATTR(RELU_I, power)].i = 1;
    if (x->op == OP_XENT_MAX)
        k->attr[ATTR(XENT_MAX, vocab)].i = 256;
    if (x->op == OP_XENT_SUM)
        k->attr[ATTR(XENT_SUM, vocab)].i = 256;
    if (x->op == OP_XENT_I)
        k->attr[ATTR(XENT_I, vocab)].i = 256;
    if (x->op == OP_SQNORM)
        k->attr[ATTR(SQNORM, count)].i = 1;
}

static double stream_bytes(const struct item *x, const struct kernel_args *k)
{
    const struct isa_info *info = isa_info(x->op);
    double bytes = 0;
    for (uint32_t i = 0; i < info->noperands; i++)
        if (k->operand[i].data)
            bytes += (info->operand[i].mark == MARK_UPDATE ? 2.0 : 1.0) * k->operand[i].rows * k->operand[i].cols *
                     isa_dtype_bytes(k->operand[i].dtype);
    return bytes;
}

enum { HEADS = 4, KEY_HEADS = 2 };

static enum op fill_attention(struct bench *b, const struct item *x, struct kernel_args *k)
{
    bool back = x->kind == ATTENTION_BACK;
    const struct isa_info *info = isa_info(back ? OP_ATTENTION_I : OP_ATTENTION);
    for (uint32_t i = 0; i < info->noperands; i++) {
        const char *name = info->operand[i].name;
        bool keys = !strcmp(name, "k") || !strcmp(name, "v") || !strcmp(name, "dk") || !strcmp(name, "dv");
        bool lse = !strcmp(name, "lse");
        k->operand[i] = take(b, info->operand[i].mark != MARK_READ, lse ? DTYPE_F32 : x->dtype, x->m, lse ? HEADS : (keys ? KEY_HEADS : HEADS) * x->n);
    }
#define SET(op)                                                                                                          \
    k->attr[ATTR(op, heads)].i = HEADS, k->attr[ATTR(op, kv)].i = KEY_HEADS, k->attr[ATTR(op, head)].i = x->n,           \
    k->attr[ATTR(op, sequence)].i = x->m, k->attr[ATTR(op, scale)].f = 0.088
    if (back)
        SET(ATTENTION_I);
    else
        SET(ATTENTION);
#undef SET
    return back ? OP_ATTENTION_I : OP_ATTENTION;
}

/* ---- timing ---- */

static bool run_one(struct bench *b, enum op op, struct kernel_args *k)
{
    if (kernel_check(op, k) || kernel_scratch_floats(op, k) * sizeof(float) > SCRATCH_BYTES)
        return false;
    k->scratch = b->scratch;
    device_cpu()->run(op, k);
    return true;
}

/* one call, of a product in all three forms; false: it does not run here */
static bool call(struct bench *b, const struct item *x)
{
    struct kernel_args k[3] = {{.scratch = NULL}, {.scratch = NULL}, {.scratch = NULL}};
    if (x->kind == PRODUCT) {
        k[0].operand[0] = k[1].operand[0] = take(b, true, x->dtype, x->m, x->n);
        k[2].operand[0] = take(b, true, DTYPE_F32, x->m, x->n);
        k[2].operand[0].add = true;
        k[0].operand[1] = k[1].operand[1] = take(b, false, x->dtype, x->m, x->k);
        k[0].operand[2] = take(b, false, x->dtype, x->n, x->k);
        k[1].operand[2] = k[2].operand[2] = take(b, false, x->dtype, x->k, x->n);
        k[2].operand[1] = take(b, false, x->dtype, x->k, x->m);
        return run_one(b, OP_MATMUL_NT, &k[0]) && run_one(b, OP_MATMUL_NN, &k[1]) && run_one(b, OP_MATMUL_TN, &k[2]);
    }
    if (x->kind == STREAM) {
        fill_stream(b, x, &k[0]);
        return run_one(b, x->op, &k[0]);
    }
    enum op op = fill_attention(b, x, &k[0]);
    return run_one(b, op, &k[0]);
}

static int by_time(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* first: nothing has run yet, so that a call is made before the clock runs */
static double time_item(struct bench *b, const struct item *x, bool first)
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
    return (double *)(void *)b->world.trace + ((size_t)rank * MOST_ITEMS + item) * ROUNDS;
}

static enum status measure(void *context, uint32_t rank)
{
    struct bench *b = context;
    uint64_t state = rank + 1;
    uint8_t *pool = b->world.arena[rank];
    memset(pool + POOL_BYTES, 0, POOL_BYTES);
    for (size_t i = 0; i < POOL_BYTES / 2; i++) { /* halves between 1 and 2 of either sign; two of them are such an fp32 number */
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint16_t half = (uint16_t)(0x3f80 | ((state >> 40) & 0x807f));
        memcpy(pool + 2 * i, &half, 2);
    }
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < b->nitems; i++) {
            TRY(world_barrier(&b->world));
            result(b, rank, i)[round] = time_item(b, &b->items[i], round == 0);
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

/* ---- the elements ---- */

static const char *word(enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? "bf16" : "fp32";
}

static void print_products(const struct bench *b, struct calibrate_machine *m, enum dtype dtype, FILE *out)
{
    fprintf(out, "    <gemm dtype=\"%s\">\n", word(dtype));
    for (uint32_t i = 0; i < b->nitems; i++) {
        const struct item *x = &b->items[i];
        double seconds = x->kind == PRODUCT && x->dtype == dtype ? seconds_of(b, i) : 0, flop = 6.0 * x->m * x->n * x->k;
        if (!(seconds > 0))
            continue;
        double *peak = &m->peak_flop_s[dtype == DTYPE_BF16];
        *peak = flop / seconds > *peak ? flop / seconds : *peak;
        fprintf(out, "      <point m=\"%u\" n=\"%u\" k=\"%u\" rate=\"%.4gGFLOP/s\"/>\n", x->m, x->n, x->k, flop / seconds * 1e-9);
    }
    fprintf(out, "    </gemm>\n");
    m->peak_flop_s[dtype == DTYPE_BF16] *= 1.001; /* no point is faster when it is rounded */
}

/* operations as llmc counts them: half of the scores, of every head twice its width, for backward 2.5 times as many */
static void print_attention(const struct bench *b, enum dtype dtype, FILE *out)
{
    fprintf(out, "    <attention dtype=\"%s\">\n", word(dtype));
    for (uint32_t i = 0; i + 1 < b->nitems; i++) {
        const struct item *x = &b->items[i];
        if (x->kind != ATTENTION || x->dtype != dtype)
            continue;
        double forward = seconds_of(b, i), backward = seconds_of(b, i + 1), flop = 2.0 * x->m * (x->m + 1) * HEADS * x->n;
        if (forward > 0 && backward > 0)
            fprintf(out, "      <point sequence=\"%u\" head=\"%u\" forward=\"%.4gGFLOP/s\" backward=\"%.4gGFLOP/s\"/>\n", x->m, x->n,
                    flop / forward * 1e-9, 2.5 * flop / backward * 1e-9);
    }
    fprintf(out, "    </attention>\n");
}

static void print_streams(struct bench *b, struct calibrate_machine *m, enum dtype dtype, FILE *out)
{
    double all_bytes = 0, all_s = 0;
    for (uint32_t i = 0; i < b->nitems; i++) {
        const struct item *x = &b->items[i];
        struct kernel_args k = {.scratch = NULL};
        double seconds = x->kind == STREAM && x->dtype == dtype ? seconds_of(b, i) : 0;
        if (!(seconds > 0))
            continue;
        bool first = b->items[i - 1].kind != STREAM || b->items[i - 1].op != x->op;
        bool last = i + 1 == b->nitems || b->items[i + 1].kind != STREAM || b->items[i + 1].op != x->op;
        fill_stream(b, x, &k);
        double bytes = stream_bytes(x, &k);
        if (dtype == DTYPE_F32) {
            all_bytes += bytes;
            all_s += seconds;
            m->stream_bytes_s = all_bytes / all_s;
        }
        if (first)
            fprintf(out, "    <kernel op=\"%s\" dtype=\"%s\">\n", isa_info(x->op)->name, word(dtype));
        fprintf(out, "      <point size=\"%.0fB\" time=\"%.4gus\"/>\n", bytes, seconds * 1e6);
        if (last)
            fprintf(out, "    </kernel>\n");
    }
}

enum status calibrate_kernels(struct calibrate_machine *m, FILE *out, char *error, size_t error_size)
{
    struct bench b = {.scratch = aligned_alloc(256, SCRATCH_BYTES), .ints = malloc(sizeof(int32_t) << 16),
                      .ones = malloc(sizeof(double) * STEP_WORDS)};
    struct world_sizes sizes = {.nranks = m->cores, .arena_bytes = 2 * POOL_BYTES, .trace_bytes = sizeof(double) * m->cores * MOST_ITEMS * ROUNDS};
    if (!b.scratch || !b.ints || !b.ones) {
        snprintf(error, error_size, "out of memory");
        return STATUS_WORLD;
    }
    for (int32_t i = 0; i < 1 << 16; i++)
        b.ints[i] = i % 256;
    for (int i = 0; i < STEP_WORDS; i++)
        b.ones[i] = 1;
    list_items(&b);
    TRY(world_open(&b.world, &sizes, NULL, UINT32_MAX, 10, error, error_size));
    enum status st = launch_local(&b.world, measure, describe, &b);
    if (st != STATUS_OK)
        snprintf(error, error_size, "%s", b.world.control->message);
    b.world.rank = 0;
    for (int half = 0; half < 2 && st == STATUS_OK; half++) {
        enum dtype dtype = half ? DTYPE_BF16 : DTYPE_F32;
        print_products(&b, m, dtype, out);
        print_attention(&b, dtype, out);
        print_streams(&b, m, dtype, out);
    }
    world_close(&b.world);
    free(b.scratch);
    free(b.ints);
    free(b.ones);
    return st;
}
