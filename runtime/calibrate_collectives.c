/* Measuring NCCL: every kind of communication, over every shape of group that plans may use, by size.
 *
 * Groups are the first 2, 4, 8 ... ranks and all of them, and one rank of each node; each is split from the world,
 * non-blocking as in training, with registered memory.  A time is that of several calls between two events, of the
 * group's first rank; what arrives is compared with what was sent, once per kind and group.  Sizes are those that
 * nccl-tests prints: of the larger of both buffers.  One rank alone sends to itself, and gives no curve. */

#include "runtime/calibrate.h"
#include "runtime/cuda/nccl_comm.h"
#include "runtime/world.h"

#include <sched.h>
#include <string.h>

enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND_RECV, BROADCAST, NKINDS };
enum { LEAST_BYTES = 4096, WARM = 2, SHAPES = 40, DEADLINE_S = 120, MOST_POINTS = 16 };
static const char *const names[NKINDS] = {"all_reduce", "all_gather", "reduce_scatter",
                                          "all_to_all", "send_recv",  "broadcast"};

struct bench {
    const struct cuda_runtime *cu;
    const struct nccl_functions *f;
    const struct calibrate_group *g;
    cuda_stream stream;
    cuda_event from, to;
    struct ncclComm *world, *group;
    void *handle;
    uint8_t *x, *y;
    uint32_t n, self; /* of the group */
    char error[300];
};
struct shape {
    uint32_t ranks, per_node, stride; /* the ranks 0, stride, 2 stride, ... */
};

static const char *say(struct bench *b, const char *what, const char *why)
{
    snprintf(b->error, sizeof b->error, "%s: %s", what, why);
    return b->error;
}

static const char *settle(struct bench *b, struct ncclComm *c, const char *what)
{
    int64_t end = world_now_ns() + DEADLINE_S * (int64_t)1000000000;
    for (int state = NCCL_IN_PROGRESS; state != NCCL_OK;) {
        int rc = b->f->CommGetAsyncError(c, &state);
        if (rc || (state && state != NCCL_IN_PROGRESS))
            return say(b, what, b->f->GetErrorString(rc ? rc : state));
        if (world_now_ns() > end)
            return say(b, what, "no end within two minutes");
        sched_yield();
    }
    return NULL;
}

static const char *finish(struct bench *b, const char *what)
{
    int64_t end = world_now_ns() + DEADLINE_S * (int64_t)1000000000;
    int rc;
    while ((rc = cuda_poll_stream(b->cu, b->stream)) == CUDA_NOT_READY) {
        int state = NCCL_OK;
        b->f->CommGetAsyncError(b->group, &state);
        if (state && state != NCCL_IN_PROGRESS)
            return say(b, what, b->f->GetErrorString(state));
        if (world_now_ns() > end)
            return say(b, what, "no end within two minutes");
        sched_yield();
    }
    return rc ? say(b, what, b->cu->GetErrorString(rc)) : NULL;
}

static int exchange(struct bench *b, enum kind kind, size_t count)
{
    int rc = b->f->GroupStart();
    for (uint32_t i = 0; i < b->n && !rc; i++) {
        bool ring = kind == SEND_RECV;
        uint32_t to = ring ? (b->self + 1) % b->n : i, from = ring ? (b->self + b->n - 1) % b->n : i;
        size_t at = ring ? 0 : i * count * sizeof(float);
        rc = b->f->Send(b->x + at, count, NCCL_FLOAT32, (int)to, b->group, b->stream);
        rc = rc && rc != NCCL_IN_PROGRESS ? rc
                                          : b->f->Recv(b->y + at, count, NCCL_FLOAT32, (int)from, b->group, b->stream);
        rc = rc == NCCL_IN_PROGRESS ? NCCL_OK : rc;
        if (ring)
            break;
    }
    int end = b->f->GroupEnd();
    return rc ? rc : end;
}

/* one call; bytes: of the larger buffer */
static const char *call(struct bench *b, enum kind kind, uint64_t bytes)
{
    size_t all = bytes / sizeof(float), each = all / b->n;
    int rc = NCCL_OK;
    switch (kind) {
    case ALL_REDUCE:
        rc = b->f->AllReduce(b->x, b->y, all, NCCL_FLOAT32, NCCL_SUM, b->group, b->stream);
        break;
    case ALL_GATHER:
        rc = b->f->AllGather(b->x, b->y, each, NCCL_FLOAT32, b->group, b->stream);
        break;
    case REDUCE_SCATTER:
        rc = b->f->ReduceScatter(b->x, b->y, each, NCCL_FLOAT32, NCCL_SUM, b->group, b->stream);
        break;
    case ALL_TO_ALL:
        rc = exchange(b, kind, each);
        break;
    case SEND_RECV:
        rc = exchange(b, kind, all);
        break;
    case BROADCAST:
        rc = b->f->Broadcast(b->x, b->y, all, NCCL_FLOAT32, 0, b->group, b->stream);
        break;
    case NKINDS:
        break;
    }
    if (rc && rc != NCCL_IN_PROGRESS)
        return say(b, names[kind], b->f->GetErrorString(rc));
    return settle(b, b->group, names[kind]);
}

/* every rank sends its number + 1; what must stand in element i of y, of `all` */
static float expected(const struct bench *b, enum kind kind, size_t i, size_t each)
{
    float n = (float)b->n;
    if (kind == ALL_REDUCE || kind == REDUCE_SCATTER)
        return n * (n + 1) / 2;
    if (kind == ALL_GATHER || kind == ALL_TO_ALL)
        return (float)(i / each + 1);
    return kind == BROADCAST ? 1 : (float)((b->self + b->n - 1) % b->n + 1);
}

static const char *check(struct bench *b, enum kind kind)
{
    float x[LEAST_BYTES / sizeof(float)], y[LEAST_BYTES / sizeof(float)];
    size_t each = LEAST_BYTES / sizeof(float) / b->n, n = kind == REDUCE_SCATTER ? each : each * b->n;
    for (size_t i = 0; i < LEAST_BYTES / sizeof(float); i++)
        x[i] = (float)(b->self + 1);
    if (b->cu->MemcpyAsync(b->x, x, sizeof x, CUDA_COPY_DEFAULT, b->stream))
        return say(b, names[kind], "the device takes no data");
    const char *why = finish(b, names[kind]);
    why = why ? why : call(b, kind, each * b->n * sizeof(float));
    if (!why && b->cu->MemcpyAsync(y, b->y, sizeof y, CUDA_COPY_DEFAULT, b->stream))
        why = say(b, names[kind], "the device gives no data");
    why = why ? why : finish(b, names[kind]);
    for (size_t i = 0; i < n && !why; i++)
        if (!(y[i] == expected(b, kind, i, each))) {
            char text[100];
            snprintf(text, sizeof text, "element %zu is %g instead of %g", i, (double)y[i],
                     (double)expected(b, kind, i, each));
            why = say(b, names[kind], text);
        }
    return why;
}

/* mean seconds of a call */
static const char *time_calls(struct bench *b, enum kind kind, uint64_t bytes, double *seconds)
{
    uint32_t calls = bytes < 1 << 20 ? 20 : bytes < 1 << 26 ? 10 : 4;
    const char *why = NULL;
    float ms;
    for (uint32_t i = 0; i < WARM + calls && !why; i++) {
        if (i == WARM && b->cu->EventRecord(b->from, b->stream))
            why = say(b, names[kind], "no event");
        why = why ? why : call(b, kind, bytes);
    }
    if (!why && b->cu->EventRecord(b->to, b->stream))
        why = say(b, names[kind], "no event");
    why = why ? why : finish(b, names[kind]);
    if (why)
        return why;
    if (b->cu->EventElapsedTime(&ms, b->from, b->to))
        return say(b, names[kind], "no time");
    *seconds = (double)ms * 1e-3 / calls;
    return NULL;
}

static const char *measure_kind(struct bench *b, const struct shape *s, enum kind kind, FILE *out)
{
    const char *why = check(b, kind);
    double times[MOST_POINTS] = {0};
    uint64_t sizes[MOST_POINTS];
    uint32_t n = 0;
    for (uint64_t bytes = LEAST_BYTES; bytes <= b->g->most_bytes && n < MOST_POINTS && !why; bytes *= 4, n++) {
        sizes[n] = bytes / (4 * b->n) * (4 * b->n); /* equal parts */
        why = time_calls(b, kind, sizes[n], &times[n]);
    }
    if (why || b->self || !n)
        return why;
    if (b->n == 1) {
        fprintf(out, "  <!-- one rank, %s to itself: %.3g us of %llu bytes, %.4g GB/s of %llu -->\n", names[kind],
                times[0] * 1e6, (unsigned long long)sizes[0], (double)sizes[n - 1] / times[n - 1] * 1e-9,
                (unsigned long long)sizes[n - 1]);
        return NULL;
    }
    fprintf(out, "  <collective op=\"%s\" ranks=\"%u\" per-node=\"%u\">\n", names[kind], s->ranks, s->per_node);
    for (uint32_t i = 0; i < n; i++)
        if (times[i] > 0)
            fprintf(out, "    <point size=\"%lluB\" time=\"%.4gus\"/>\n", (unsigned long long)sizes[i], times[i] * 1e6);
    fprintf(out, "  </collective>\n");
    return NULL;
}

static void end_comm(struct bench *b, struct ncclComm **c, bool well)
{
    if (!*c)
        return;
    if (b->handle && *c == b->group && well)
        b->f->CommDeregister(*c, b->handle);
    int rc = well ? b->f->CommFinalize(*c) : NCCL_OK;
    if (well && (!rc || rc == NCCL_IN_PROGRESS) && !settle(b, *c, "finalising"))
        b->f->CommDestroy(*c);
    else
        b->f->CommAbort(*c);
    if (*c == b->group)
        b->handle = NULL;
    *c = NULL;
}

/* all ranks of the world come here, for every shape */
static const char *measure_shape(struct bench *b, const struct shape *s, FILE *out)
{
    struct nccl_config config = nccl_config_new("llmc calibration");
    uint32_t rank = b->g->rank;
    bool in = rank % s->stride == 0 && rank / s->stride < s->ranks;
    b->n = s->ranks;
    b->self = rank / s->stride;
    int rc = b->f->CommSplit(b->world, in ? 0 : NCCL_SPLIT_NO_COLOUR, (int)(in ? b->self : 0), &b->group, &config);
    const char *why = rc && rc != NCCL_IN_PROGRESS ? say(b, "splitting", b->f->GetErrorString(rc))
                                                   : settle(b, b->world, "splitting");
    if (why || !in)
        return why;
    why = settle(b, b->group, "splitting");
    if (!why && b->f->CommRegister(b->group, b->x, 2 * b->g->most_bytes, &b->handle))
        b->handle = NULL; /* slower, as it is in training then */
    why = why ? why : settle(b, b->group, "registering memory");
    for (enum kind kind = 0; kind < NKINDS && !why; kind++)
        why = measure_kind(b, s, kind, out);
    end_comm(b, &b->group, !why);
    return why;
}

static uint32_t list_shapes(const struct calibrate_group *g, struct shape *s)
{
    uint32_t n = 0, node = g->per_node && g->per_node < g->nranks ? g->per_node : g->nranks, nodes = g->nranks / node;
    for (uint32_t ranks = 2; ranks < g->nranks && n < SHAPES / 2; ranks *= 2)
        if (ranks <= node || ranks % node == 0)
            s[n++] = (struct shape){ranks, ranks < node ? ranks : node, 1};
    s[n++] = (struct shape){g->nranks, node, 1};
    for (uint32_t ranks = 2; node > 1 && ranks <= nodes && n < SHAPES; ranks *= 2)
        s[n++] = (struct shape){ranks, 1, node};
    return n;
}

static const char *open_bench(struct bench *b)
{
    struct nccl_config config = nccl_config_new("llmc calibration");
    void *memory = NULL;
    int rc = b->cu->SetDevice(b->g->device);
    rc = rc ? rc : b->cu->StreamCreateWithPriority(&b->stream, CUDA_STREAM_NONBLOCKING, 0);
    rc = rc ? rc : b->cu->EventCreateWithFlags(&b->from, CUDA_EVENT_PLAIN);
    rc = rc ? rc : b->cu->EventCreateWithFlags(&b->to, CUDA_EVENT_PLAIN);
    if (rc)
        return say(b, "cannot use the device", b->cu->GetErrorString(rc));
    rc = b->f->MemAlloc(&memory, 2 * b->g->most_bytes);
    if (rc)
        return say(b, "memory", b->f->GetErrorString(rc));
    b->x = memory;
    b->y = b->x + b->g->most_bytes;
    if (b->cu->MemsetAsync(b->x, 0, 2 * b->g->most_bytes, b->stream))
        return say(b, "memory", "the device does not fill it");
    rc = b->f->CommInitRankConfig(&b->world, (int)b->g->nranks, b->g->id, (int)b->g->rank, &config);
    if (rc && rc != NCCL_IN_PROGRESS)
        return say(b, "joining the world", b->f->GetErrorString(rc));
    return settle(b, b->world, "joining the world");
}

enum status calibrate_collectives(const struct cuda_plugin *plugin, const struct nccl_functions *f,
                                  const struct calibrate_group *g, FILE *out, struct error *error)
{
    struct bench b = {.cu = plugin->runtime, .f = f, .g = g};
    struct shape shapes[SHAPES];
    uint32_t n = list_shapes(g, shapes);
    const char *why = open_bench(&b);
    if (!why && !g->rank)
        calibrate_begin(plugin, g->device, out);
    for (uint32_t i = 0; i < n && !why; i++)
        why = measure_shape(&b, &shapes[i], out);
    if (!why && !g->rank)
        fprintf(out, "</measured>\n");
    end_comm(&b, &b.world, !why);
    if (b.from)
        b.cu->EventDestroy(b.from);
    if (b.to)
        b.cu->EventDestroy(b.to);
    if (b.stream)
        b.cu->StreamDestroy(b.stream);
    if (b.x && !why) /* after a failure something may still use it */
        b.f->MemFree(b.x);
    return why ? error_set(error, STATUS_WORLD, "NCCL: %s", why) : STATUS_OK;
}
