/* Measuring kernels one by one: operands of random numbers, never zeros (a GPU is faster on those), one call to warm up,
 * then the median of several, of fewer where they take long; shapes that would take longer than PATIENCE_S a call are left out.
 * Times are between two events, and the host polls. */

#include "runtime/calibrate.h"
#include "runtime/world.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS = 9 };
static const double PATIENCE_S = 0.5;

struct machine {
    const struct cuda_plugin *plugin;
    const struct cuda_runtime *cu;
    struct cuda_libraries *libraries;
    cuda_stream stream;
    cuda_event from, to;
    int sm;
    uint8_t *memory, *workspace; /* for all operands, one behind the other */
    size_t bytes, used, workspace_bytes;
};

static bool open_machine(struct machine *m, const struct cuda_plugin *plugin, char *error, size_t error_size)
{
    const char *why = NULL;
    int rc = 0, major = 0, minor = 0;
    void *p = NULL;
    *m = (struct machine){.plugin = plugin, .bytes = (size_t)6 << 30, .workspace_bytes = 256 << 20};
    m->cu = plugin->runtime;
    rc = m->cu->SetDevice(0);
    rc = rc ? rc : m->cu->DeviceGetAttribute(&major, 75, 0);
    rc = rc ? rc : m->cu->DeviceGetAttribute(&minor, 76, 0);
    m->sm = 10 * major + minor;
    rc = rc ? rc : m->cu->StreamCreateWithPriority(&m->stream, CUDA_STREAM_NONBLOCKING, 0);
    rc = rc ? rc : m->cu->EventCreateWithFlags(&m->from, CUDA_EVENT_PLAIN);
    rc = rc ? rc : m->cu->EventCreateWithFlags(&m->to, CUDA_EVENT_PLAIN);
    rc = rc ? rc : m->cu->Malloc(&p, m->bytes + m->workspace_bytes);
    m->memory = p;
    m->workspace = p ? m->memory + m->bytes : NULL;
    why = rc ? m->cu->GetErrorString(rc) : plugin->open(&m->libraries, 0, true);
    snprintf(error, error_size, "cannot use the device: %s", why ? why : "");
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

/* numbers between 1 and 2 of either sign, a piece of which is repeated */
static struct view operand(struct machine *m, enum dtype dtype, uint32_t rows, uint32_t cols)
{
    static const size_t PIECE = 1 << 20;
    size_t bytes = (size_t)rows * cols * isa_dtype_bytes(dtype);
    uint8_t *at = m->memory + m->used, *piece = malloc(PIECE);
    uint64_t state = m->used + 1;
    m->used = (m->used + bytes + 255) / 256 * 256;
    if (m->used > m->bytes || !piece) {
        free(piece);
        return (struct view){.data = NULL};
    }
    for (size_t i = 0; i < PIECE / 2; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint16_t half = (uint16_t)(0x3f80 | ((state >> 40) & 0x807f));
        memcpy(piece + 2 * i, &half, 2); /* two of them are an fp32 number of the same kind */
    }
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < PIECE ? bytes - done : PIECE;
        m->cu->MemcpyAsync(at + done, piece, n, CUDA_COPY_DEFAULT, m->stream);
    }
    wait_idle(m);
    free(piece);
    return (struct view){at, dtype, false, rows, cols, cols};
}

static int by_time(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* seconds of one call; 0 = the kernel does not run here */
static double time_kernel(struct machine *m, enum op op, struct kernel_args *k)
{
    double seconds[CALLS];
    int64_t begun = world_now_ns();
    const struct cuda_call c = {k, m->stream, m->workspace, m->workspace_bytes, NULL, m->libraries};
    for (uint32_t i = 0; i < isa_info(op)->noperands; i++)
        if (!k->operand[i].data && !isa_info(op)->operand[i].optional)
            return 0;
    if (kernel_check(op, k) || m->plugin->check(op, k) || m->plugin->workspace_bytes(op, k, m->sm) > m->workspace_bytes)
        return 0;
    if (m->plugin->prepare && m->plugin->prepare(op, &c))
        return 0;
    k->scratch = (float *)(void *)m->workspace;
    int done = 0;
    for (int i = -1; i < CALLS && (i < 1 || world_now_ns() - begun < (int64_t)(4e9 * PATIENCE_S)); i++) {
        float ms = 0;
        int rc = m->cu->EventRecord(m->from, m->stream);
        if (rc || m->plugin->launch(op, &c) || m->cu->EventRecord(m->to, m->stream) || wait_idle(m) ||
            m->cu->EventElapsedTime(&ms, m->from, m->to))
            return 0;
        if (i >= 0)
            seconds[done++] = (double)ms * 1e-3;
    }
    qsort(seconds, (size_t)done, sizeof *seconds, by_time);
    return seconds[done / 2];
}

/* eight: operands are rounded to 8 bits first, by one scale each, and that counts */
static void measure_products(struct machine *m, enum dtype dtype, bool eight, FILE *out)
{
    static const uint32_t gpu[][3] = {{1024, 1024, 1024},  {2048, 4096, 4096}, {4096, 4096, 4096}, {8192, 4096, 4096},
                                      {8192, 14336, 4096}, {8192, 4096, 14336}, {8192, 8192, 8192}, {512, 4096, 4096}};
    double rate = 0; /* of the last point */
    fprintf(out, "  <gemm dtype=\"%s\">\n", eight ? "fp8" : dtype == DTYPE_BF16 ? "bf16" : "fp32");
    for (size_t i = 0; i < sizeof gpu / sizeof *gpu; i++) {
        const uint32_t *s = gpu[i];
        struct kernel_args k = {.scratch = NULL};
        if (rate > 0 && 2.0 * s[0] * s[1] * s[2] / rate > PATIENCE_S)
            continue;
        m->used = 0;
        k.operand[OPND(MATMUL_NT, c)] = operand(m, dtype, s[0], s[1]);
        k.operand[OPND(MATMUL_NT, a)] = operand(m, dtype, s[0], s[2]);
        k.operand[OPND(MATMUL_NT, b)] = operand(m, dtype, s[1], s[2]);
        k.attr[ATTR(MATMUL_NT, fp8)].i = eight;
        double seconds = time_kernel(m, OP_MATMUL_NT, &k);
        rate = seconds > 0 ? 2.0 * s[0] * s[1] * s[2] / seconds : rate;
        if (seconds > 0)
            fprintf(out, "    <point m=\"%u\" n=\"%u\" k=\"%u\" rate=\"%.4gGFLOP/s\"/>\n", s[0], s[1], s[2],
                    2.0 * s[0] * s[1] * s[2] / seconds * 1e-9);
    }
    fprintf(out, "  </gemm>\n");
}

/* seconds; 0 = it does not run here */
static double measure_attention(struct machine *m, uint32_t sequence, FILE *out)
{
    uint32_t heads = 32, kv = 8, head = 128;
    enum dtype dtype = DTYPE_BF16;
    struct kernel_args k = {.scratch = NULL};
    m->used = 0;
    k.operand[OPND(ATTENTION, o)] = operand(m, dtype, sequence, heads * head);
    k.operand[OPND(ATTENTION, lse)] = operand(m, DTYPE_F32, sequence, heads);
    k.operand[OPND(ATTENTION, q)] = operand(m, dtype, sequence, heads * head);
    k.operand[OPND(ATTENTION, k)] = operand(m, dtype, sequence, kv * head);
    k.operand[OPND(ATTENTION, v)] = operand(m, dtype, sequence, kv * head);
    k.attr[ATTR(ATTENTION, heads)].i = heads;
    k.attr[ATTR(ATTENTION, kv)].i = kv;
    k.attr[ATTR(ATTENTION, head)].i = head;
    k.attr[ATTR(ATTENTION, sequence)].i = sequence;
    k.attr[ATTR(ATTENTION, scale)].f = 0.088;
    double seconds = time_kernel(m, OP_ATTENTION, &k), flop = 2.0 * heads * head * sequence * sequence;
    if (seconds > 0)
        fprintf(out, "  <!-- attention forward, %u heads of %u, %u of keys, %u causal places: %.3g us, %.4g GFLOP/s -->\n", heads,
                head, kv, sequence, seconds * 1e6, flop / seconds * 1e-9);
    return seconds;
}

static void measure_streams(struct machine *m, FILE *out)
{
    uint32_t rows = 16384, cols = 4096;
    enum dtype dtype = DTYPE_BF16;
    double matrix = (double)rows * cols * isa_dtype_bytes(dtype);
    struct kernel_args k = {.scratch = NULL};
    m->used = 0;
    for (uint32_t i = 0; i < 3; i++)
        k.operand[i] = operand(m, dtype, rows, cols);
    double copy = time_kernel(m, OP_COPY, &k), swiglu = time_kernel(m, OP_SWIGLU, &k);
    k.operand[OPND(RMSNORM, g)] = operand(m, dtype, 1, cols);
    k.operand[OPND(RMSNORM, rstd)] = operand(m, DTYPE_F32, rows, 1);
    k.attr[ATTR(RMSNORM, eps)].f = 1e-5;
    double norm = time_kernel(m, OP_RMSNORM, &k);
    if (copy > 0)
        fprintf(out, "  <!-- copy of %.4g MB: %.4g GB/s read and written -->\n", matrix * 1e-6, 2 * matrix / copy * 1e-9);
    if (swiglu > 0)
        fprintf(out, "  <!-- swiglu: %.4g GB/s -->\n", 3 * matrix / swiglu * 1e-9);
    if (norm > 0)
        fprintf(out, "  <!-- rmsnorm: %.4g GB/s -->\n", 2 * matrix / norm * 1e-9);
}

void calibrate_begin(const struct cuda_plugin *plugin, int device, FILE *out)
{
    char name[300], date[16];
    time_t now = time(NULL);
    struct tm day;
    plugin->describe(device, name, sizeof name);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    fprintf(out, "<measured date=\"%s\">\n  <!-- calibrated by llmrun on %s -->\n", date, name);
}

enum status calibrate(const struct cuda_plugin *plugin, FILE *out, char *error, size_t error_size)
{
    struct machine m;
    if (!open_machine(&m, plugin, error, error_size)) {
        close_machine(&m);
        return STATUS_WORLD;
    }
    calibrate_begin(plugin, 0, out);
    measure_products(&m, DTYPE_BF16, false, out);
    measure_products(&m, DTYPE_F32, false, out);
    if (m.sm >= 89)
        measure_products(&m, DTYPE_BF16, true, out);
    double seconds = measure_attention(&m, 512, out);
    if (seconds > 0 && seconds * 64 < PATIENCE_S)
        measure_attention(&m, 4096, out);
    measure_streams(&m, out);
    fprintf(out, "</measured>\n");
    close_machine(&m);
    return STATUS_OK;
}
