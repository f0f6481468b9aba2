/* Many ranks on one device: operands are copied from arena to arena, and sums are taken by one kernel that reads all
 * members in member order, so that results equal those of the CPU's shared memory bit by bit.
 *
 * The first member's stream does the work: it waits until all members have come (an event each), works, and all go on
 * after it (one event).  So nobody's operand is touched before its stream has come to the meeting, nor after it has
 * left. */

#include "runtime/cuda/gang.h"

#include <stdlib.h>

struct seat { /* of a channel: events are recorded anew in every meeting, waits refer to the recording before them */
    cuda_event *come;
    cuda_event done;
    uint32_t n;
};
struct meet {
    const struct cuda_plugin *plugin;
    const struct channels *channels;
    struct seat *seats; /* [channel * NQUEUES + the first member's queue] */
};

static void d2d_close(struct meet *m)
{
    const struct cuda_runtime *cu = m->plugin->runtime;
    for (uint32_t i = 0; m->seats && i < m->channels->n * NQUEUES; i++) {
        for (uint32_t j = 0; m->seats[i].come && j < m->seats[i].n; j++)
            if (m->seats[i].come[j])
                cu->EventDestroy(m->seats[i].come[j]);
        if (m->seats[i].done)
            cu->EventDestroy(m->seats[i].done);
        free(m->seats[i].come);
    }
    free(m->seats);
    free(m);
}

static enum status d2d_open(struct meet **out, const struct meet_setup *s, struct error *error)
{
    for (uint32_t c = 0; c < s->channels->n; c++)
        if (s->channels->list[c].nmembers > CUDA_MOST_MEMBERS)
            return error_set(error, STATUS_MISMATCH,
                             "a group of %u ranks is too large for one device, at most %d can meet",
                             s->channels->list[c].nmembers, CUDA_MOST_MEMBERS);
    struct meet *m = calloc(1, sizeof *m);
    if (!m || !(m->seats = calloc((size_t)s->channels->n * NQUEUES + 1, sizeof *m->seats))) {
        free(m);
        return error_set(error, STATUS_WORLD, "out of memory");
    }
    m->plugin = s->plugin;
    m->channels = s->channels;
    *out = m;
    return STATUS_OK;
}

/* made when a channel first meets, which is in the first step, outside of captures */
static int make_seat(const struct meet *m, struct seat *seat, uint32_t n)
{
    const struct cuda_runtime *cu = m->plugin->runtime;
    seat->n = n;
    seat->come = calloc(n, sizeof(cuda_event));
    int rc = seat->come ? cu->EventCreateWithFlags(&seat->done, CUDA_EVENT_NO_TIMING) : 2;
    for (uint32_t j = 0; j < n && !rc; j++)
        rc = cu->EventCreateWithFlags(&seat->come[j], CUDA_EVENT_NO_TIMING);
    return rc;
}

/* rows from `from` to rows at `to`; widths are equal */
static int copy_rows(const struct meet *m, const struct view *y, uint32_t to, const struct view *x, uint32_t from,
                     uint32_t rows, cuda_stream stream)
{
    size_t size = isa_dtype_bytes(x->dtype);
    uint8_t *out = (uint8_t *)y->data + (size_t)to * y->ld * size;
    const uint8_t *in = (const uint8_t *)x->data + (size_t)from * x->ld * size;
    if (out == in || !rows || !x->cols)
        return 0;
    if (x->ld == x->cols && y->ld == y->cols)
        return m->plugin->runtime->MemcpyAsync(out, in, rows * x->cols * size, CUDA_COPY_DEFAULT, stream);
    return m->plugin->runtime->Memcpy2DAsync(out, y->ld * size, in, x->ld * size, x->cols * size, rows,
                                             CUDA_COPY_DEFAULT, stream);
}

static const char *sum_parts(const struct meet *m, const struct meet_part *parts, uint32_t n, cuda_stream stream)
{
    const struct view *x = &parts[0].m.x;
    bool scatter = parts[0].m.op == OP_REDUCE_SCATTER;
    size_t size = isa_dtype_bytes(x->dtype);
    struct cuda_sum s = {.nmembers = n, .rows = scatter ? x->rows / n : x->rows, .cols = x->cols, .dtype = x->dtype};
    s.max = !scatter && parts[0].m.argument;
    for (uint32_t part = 0; part < (scatter ? n : 1); part++) {
        for (uint32_t j = 0; j < n; j++) {
            const struct view *in = &parts[j].m.x, *y = &parts[j].m.y;
            s.x[j] = (const uint8_t *)in->data + (size_t)part * s.rows * in->ld * size;
            s.x_ld[j] = in->ld;
            s.y[j] = !scatter || j == part ? y->data : NULL;
            s.y_ld[j] = y->ld;
        }
        const char *why = m->plugin->sum(&s, stream);
        if (why)
            return why;
    }
    return NULL;
}

static int move_parts(const struct meet *m, const struct meet_part *p, uint32_t n, cuda_stream s)
{
    int rc = 0;
    uint32_t rows = p[0].m.x.rows, argument = p[0].m.argument;
    for (uint32_t j = 0; j < n && !rc; j++)
        for (uint32_t i = 0; i < n && !rc; i++) {
            if (p[0].m.op == OP_ALL_GATHER)
                rc = copy_rows(m, &p[i].m.y, j * rows, &p[j].m.x, 0, rows, s);
            else if (p[0].m.op == OP_ALL_TO_ALL)
                rc = copy_rows(m, &p[i].m.y, j * (rows / n), &p[j].m.x, i * (rows / n), rows / n, s);
            else if (p[0].m.op == OP_SHIFT && i == (j + argument) % n)
                rc = copy_rows(m, &p[i].m.y, 0, &p[j].m.x, 0, rows, s);
            else if (p[0].m.op == OP_BROADCAST && j == argument)
                rc = copy_rows(m, &p[i].m.y, 0, &p[j].m.x, 0, rows, s);
            else if (p[0].m.op == OP_SEND && j == 0 && i == 1)
                rc = copy_rows(m, &p[1].m.y, 0, &p[0].m.x, 0, rows, s);
        }
    return rc;
}

static const char *work(const struct meet *m, const struct meet_part *parts, uint32_t n, cuda_stream stream)
{
    if (parts[0].m.op == OP_ALL_REDUCE || parts[0].m.op == OP_REDUCE_SCATTER)
        return sum_parts(m, parts, n, stream);
    int rc = move_parts(m, parts, n, stream);
    return rc ? m->plugin->runtime->GetErrorString(rc) : NULL;
}

/* programs were checked one by one; parts that do not fit together would overwrite a peer */
static bool parts_fit(const struct meet_part *p, uint32_t n)
{
    const struct meeting *a = &p[0].m;
    for (uint32_t j = 0; j < n; j++) {
        const struct meeting *b = &p[j].m;
        bool pair = a->op == OP_SEND && j == 1;
        uint64_t gathered = a->op == OP_ALL_GATHER ? (uint64_t)n * b->x.rows : b->x.rows;
        uint64_t received = a->op == OP_REDUCE_SCATTER ? (uint64_t)n * b->y.rows : b->y.rows;
        if (b->op != (pair ? OP_RECV : a->op) || b->argument != a->argument || b->x.dtype != a->x.dtype ||
            b->y.dtype != a->x.dtype || b->x.rows != a->x.rows || b->x.cols != a->x.cols || b->y.cols != a->x.cols ||
            gathered != received || (a->op == OP_ALL_TO_ALL && a->x.rows % n))
            return false;
    }
    return true;
}

static size_t d2d_workspace_bytes(const struct meeting *m)
{
    (void)m; /* copies and sums go by rows */
    return 0;
}

static const char *d2d_launch(struct meet *m, const struct meet_part *given, uint32_t n)
{
    const struct cuda_runtime *cu = m->plugin->runtime;
    struct meet_part parts[CUDA_MOST_MEMBERS] = {0};
    uint32_t channel = given[0].m.channel;
    if (n != m->channels->list[channel].nmembers)
        return "not all members of the group have come";
    for (uint32_t j = 0; j < n; j++)
        parts[given[j].m.self] = given[j]; /* in member order; of a pair: sender, receiver */
    if (!parts_fit(parts, n))
        return "the members' operands do not fit together";
    struct seat *seat = &m->seats[channel * NQUEUES + parts[0].queue];
    int rc = seat->come ? 0 : make_seat(m, seat, n);
    cuda_stream stream = parts[0].stream;
    for (uint32_t j = 1; j < n && !rc; j++) {
        rc = cu->EventRecord(seat->come[j], parts[j].stream);
        if (!rc)
            rc = cu->StreamWaitEvent(stream, seat->come[j], 0);
    }
    if (rc)
        return cu->GetErrorString(rc);
    const char *why = work(m, parts, n, stream);
    if (why || n == 1)
        return why;
    rc = cu->EventRecord(seat->done, stream);
    for (uint32_t j = 1; j < n && !rc; j++)
        rc = cu->StreamWaitEvent(parts[j].stream, seat->done, 0);
    return rc ? cu->GetErrorString(rc) : NULL;
}

static const char *d2d_poll(struct meet *m)
{
    (void)m;
    return NULL;
}

static void d2d_abort(struct meet *m)
{
    (void)m;
}

const struct meet_ops *meet_d2d(void)
{
    static const struct meet_ops d2d = {"d2d",      d2d_open, d2d_close, d2d_workspace_bytes,
                                        d2d_launch, d2d_poll, d2d_abort};
    return &d2d;
}
