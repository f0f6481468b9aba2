/* See fake_cuda.h.  One lock around everything: the ranks of a gang are threads.
 *
 * A stream is a list of operations, of which the first may run: a kernel or copy, the recording of an event, the wait for
 * one, a graph, or a communication that is asked again and again until it is done.  Events count their recordings; a wait
 * is for the recording that was the last one when the wait was issued. */

#include "tests/fake/fake_cuda.h"
#include "tests/fake/fake_kernels.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_ALLOCATIONS = 64, ERROR_VALUE = 1, ERROR_MEMORY = 2, ERROR_LAUNCH = 700, ERROR_CAPTURE = 900, ERROR_UNJOINED = 904 };

enum kind { KIND_STEP, KIND_RECORD, KIND_WAIT, KIND_GRAPH };
struct task { /* on a stream, or a node of a graph */
    enum kind kind;
    fake_step *step;
    void *state; /* owned; of a graph's launch: its instance */
    size_t bytes;
    cuda_event event;
    uint64_t version;
    struct task *next;
    int32_t after[2]; /* node: nodes before it, or -1 */
};
struct CUstream_st {
    struct task *head, **tail;
    cuda_graph capture;
    int32_t last; /* node of the capture, or -1 */
    struct CUstream_st *next;
};
struct CUevent_st {
    uint64_t recorded, done;
    int64_t done_ns;
    cuda_graph capture;
    int32_t node;
    bool timed;
    struct CUevent_st *next_dead;
};
struct CUgraph_st {
    struct task *nodes;
    uint32_t n, room;
    cuda_stream origin;
};
struct CUgraphExec_st {
    struct task *nodes;
    uint32_t n;
};
struct instance {
    cuda_graph_exec exec;
    uint8_t *done;
    void **state; /* by node: its own copy while it runs */
    uint32_t left;
};
struct allocation {
    uint8_t *start;
    size_t bytes;
    bool device;
};
struct fake {
    struct fake_setup s;
    struct cuda_plugin plugin;
    pthread_mutex_t lock;
    struct CUstream_st *streams, *favourite;
    uint32_t patience;
    uint64_t random, launches;
    struct CUevent_st *dead;
    uint32_t nstreams, nevents, ngraphs, nexecs;
    uint8_t *memory;
    uint64_t used;
    int device; /* processes are for one device each */
    struct allocation allocations[MOST_ALLOCATIONS];
    bool broken, hung;
    int depth; /* of nested graph steps */
    char breach[400];
};
/* CUDA's functions have no argument that could carry it */
static struct fake fake;

void fake_cuda_lock(void)
{
    pthread_mutex_lock(&fake.lock);
}
void fake_cuda_unlock(void)
{
    pthread_mutex_unlock(&fake.lock);
}

void fake_cuda_breach(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (!fake.breach[0])
        vsnprintf(fake.breach, sizeof fake.breach, format, ap);
    va_end(ap);
}

uint64_t fake_cuda_draw(uint64_t n)
{
    uint64_t z = fake.random += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % n;
}

/* --- memory --- */

static struct allocation *find(const void *p, size_t bytes)
{
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        struct allocation *a = &fake.allocations[i];
        if (a->start && (const uint8_t *)p >= a->start && (const uint8_t *)p + bytes <= a->start + a->bytes)
            return a;
    }
    return NULL;
}

bool fake_cuda_is_device(const void *p, size_t bytes)
{
    const struct allocation *a = find(p, bytes);
    return a && a->device;
}

static void *keep(void *p, size_t bytes, bool device)
{
    for (int i = 0; p && i < MOST_ALLOCATIONS; i++)
        if (!fake.allocations[i].start) {
            fake.allocations[i] = (struct allocation){p, bytes, device};
            return p;
        }
    return NULL;
}

void *fake_cuda_allocate(size_t bytes)
{
    uint64_t at = (fake.used + 511) / 512 * 512;
    if (bytes > fake.s.memory_bytes || at > fake.s.memory_bytes - bytes)
        return NULL;
    fake.used = at + bytes;
    return keep(fake.memory + (size_t)fake.device * fake.s.memory_bytes + at, bytes, true);
}

void fake_cuda_release(void *p)
{
    struct allocation *a = find(p, 0);
    if (!a || a->start != p)
        fake_cuda_breach("memory is freed that was not allocated");
    else if (fake.hung)
        fake_cuda_breach("memory is freed on a device that hangs, which never returns");
    else
        *a = (struct allocation){NULL, 0, false};
}

static int f_malloc(void **p, size_t bytes)
{
    fake_cuda_lock();
    *p = fake_cuda_allocate(bytes);
    fake_cuda_unlock();
    return *p ? 0 : ERROR_MEMORY;
}
static int f_free(void *p)
{
    fake_cuda_lock();
    fake_cuda_release(p);
    fake_cuda_unlock();
    return 0;
}
static int f_host_alloc(void **p, size_t bytes, unsigned flags)
{
    (void)flags;
    fake_cuda_lock();
    void *memory = aligned_alloc(512, (bytes + 511) / 512 * 512);
    *p = keep(memory, bytes, false);
    fake_cuda_unlock();
    return *p ? 0 : ERROR_MEMORY;
}
static int f_free_host(void *p)
{
    fake_cuda_lock();
    fake_cuda_release(p);
    free(p);
    fake_cuda_unlock();
    return 0;
}

/* --- the device moves --- */

static void free_ops(struct task *op)
{
    while (op) {
        struct task *next = op->next;
        if (op->kind != KIND_GRAPH)
            free(op->state);
        free(op);
        op = next;
    }
}

/* one ready node of a graph */
static enum fake_progress step_instance(struct instance *it)
{
    const struct task *nodes = it->exec->nodes;
    uint32_t n = it->exec->n, start = fake.s.seed && n ? (uint32_t)fake_cuda_draw(n) : 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = (start + k) % n;
        const struct task *op = &nodes[i];
        bool ready = !it->done[i];
        for (int j = 0; j < 2; j++)
            ready = ready && (op->after[j] < 0 || it->done[op->after[j]]);
        if (!ready)
            continue;
        enum fake_progress p = FAKE_DONE;
        if (op->kind == KIND_STEP) {
            if (!it->state[i] && (it->state[i] = malloc(op->bytes + 1)))
                memcpy(it->state[i], op->state, op->bytes);
            p = op->step(it->state[i]);
        }
        if (p == FAKE_STUCK)
            continue;
        if (p == FAKE_DONE) {
            it->done[i] = 1;
            free(it->state[i]);
            it->state[i] = NULL;
            it->left--;
        }
        return it->left ? FAKE_MOVED : FAKE_DONE;
    }
    return it->left ? FAKE_STUCK : FAKE_DONE;
}

static void free_instance(struct instance *it)
{
    for (uint32_t i = 0; i < it->exec->n; i++)
        free(it->state[i]);
    free(it->done);
    free(it->state);
    free(it);
}

static int64_t now_ns(void)
{
    return world_now_ns();
}

static enum fake_progress step_stream(cuda_stream s)
{
    struct task *op = s->head;
    enum fake_progress p = FAKE_DONE;
    if (!op)
        return FAKE_STUCK;
    switch (op->kind) {
    case KIND_STEP:
        p = op->step(op->state);
        break;
    case KIND_RECORD:
        op->event->done = op->version > op->event->done ? op->version : op->event->done;
        op->event->done_ns = now_ns();
        break;
    case KIND_WAIT:
        p = op->event->done >= op->version ? FAKE_DONE : FAKE_STUCK;
        break;
    case KIND_GRAPH:
        p = step_instance(op->state);
        break;
    }
    if (p != FAKE_DONE)
        return p;
    s->head = op->next;
    if (!s->head)
        s->tail = &s->head;
    if (op->kind == KIND_GRAPH)
        free_instance(op->state);
    op->next = NULL;
    free_ops(op);
    return FAKE_MOVED;
}

/* some steps of some streams; a stream that is favoured moves as far as it can */
static void move(uint32_t steps)
{
    while (steps-- && !fake.broken) {
        if (fake.s.seed && fake.patience && fake.favourite) {
            fake.patience--;
            if (step_stream(fake.favourite) == FAKE_MOVED)
                continue;
        }
        bool moved = false;
        uint32_t skip = fake.s.seed && fake.nstreams ? (uint32_t)fake_cuda_draw(fake.nstreams) : 0;
        for (int round = 0; round < 2 && !moved; round++)
            for (struct CUstream_st *s = fake.streams; s && !moved; s = s->next) {
                if (round == 0 && skip) {
                    skip--;
                    continue;
                }
                moved = step_stream(s) == FAKE_MOVED;
                if (moved && fake.s.seed) {
                    fake.favourite = s;
                    fake.patience = (uint32_t)fake_cuda_draw(40);
                }
            }
        if (!moved)
            return;
    }
}

/* --- streams and events --- */

static struct task *append_node(cuda_graph g, enum kind kind, int32_t before, int32_t other)
{
    if (g->n == g->room) {
        g->room = g->room ? 2 * g->room : 64;
        g->nodes = realloc(g->nodes, g->room * sizeof *g->nodes);
    }
    struct task *op = &g->nodes[g->n++];
    *op = (struct task){.kind = kind, .after = {before, other}};
    return op;
}

static struct task *append(cuda_stream s, enum kind kind)
{
    struct task *op = calloc(1, sizeof *op);
    if (op) {
        op->kind = kind;
        *s->tail = op;
        s->tail = &op->next;
    }
    return op;
}

int fake_cuda_enqueue(cuda_stream s, fake_step *step, const void *state, size_t bytes)
{
    struct task *op;
    if (s->capture) {
        op = append_node(s->capture, KIND_STEP, s->last, -1);
        s->last = (int32_t)s->capture->n - 1;
    } else {
        op = append(s, KIND_STEP);
    }
    op->step = step;
    op->state = malloc(bytes + 1);
    op->bytes = bytes;
    memcpy(op->state, state, bytes);
    if (!s->capture && fake.s.seed && fake_cuda_draw(8) == 0)
        move(1 + (uint32_t)fake_cuda_draw(4)); /* the device does not wait for the host to ask */
    return 0;
}

bool fake_cuda_is_capturing(cuda_stream s)
{
    return s->capture != NULL;
}

static int f_stream_create(cuda_stream *s, unsigned flags, int priority)
{
    (void)priority;
    fake_cuda_lock();
    if (flags != CUDA_STREAM_NONBLOCKING)
        fake_cuda_breach("a stream that waits for the default stream");
    *s = calloc(1, sizeof **s);
    (*s)->tail = &(*s)->head;
    (*s)->last = -1;
    (*s)->next = fake.streams;
    fake.streams = *s;
    fake.nstreams++;
    fake_cuda_unlock();
    return 0;
}

static int f_stream_destroy(cuda_stream s)
{
    fake_cuda_lock();
    if (s->head && !fake.broken && !fake.hung)
        fake_cuda_breach("a stream is destroyed that has work");
    for (struct CUstream_st **at = &fake.streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    if (fake.favourite == s)
        fake.favourite = NULL;
    fake.nstreams--;
    for (struct task *op = s->head; op; op = op->next)
        if (op->kind == KIND_GRAPH)
            free_instance(op->state);
    free_ops(s->head);
    free(s);
    fake_cuda_unlock();
    return 0;
}

static int f_stream_query(cuda_stream s)
{
    fake_cuda_lock();
    if (s->capture)
        fake_cuda_breach("a stream is queried while it is captured");
    move(1 + (fake.s.seed ? (uint32_t)fake_cuda_draw(64) : 64));
    int rc = fake.broken ? ERROR_LAUNCH : s->head ? CUDA_NOT_READY : CUDA_OK;
    fake_cuda_unlock();
    return rc;
}

static int f_event_create(cuda_event *e, unsigned flags)
{
    fake_cuda_lock();
    *e = calloc(1, sizeof **e);
    (*e)->timed = flags == CUDA_EVENT_PLAIN;
    (*e)->node = -1;
    fake.nevents++;
    fake_cuda_unlock();
    return 0;
}

static int f_event_destroy(cuda_event e)
{
    fake_cuda_lock();
    e->next_dead = fake.dead; /* queues may still refer to it, as CUDA allows */
    fake.dead = e;
    fake.nevents--;
    fake_cuda_unlock();
    return 0;
}

static int f_event_record(cuda_event e, cuda_stream s)
{
    fake_cuda_lock();
    e->capture = s->capture;
    if (s->capture) {
        append_node(s->capture, KIND_RECORD, s->last, -1);
        s->last = e->node = (int32_t)s->capture->n - 1;
    } else {
        struct task *op = append(s, KIND_RECORD);
        op->event = e;
        op->version = ++e->recorded;
    }
    fake_cuda_unlock();
    return 0;
}

static int f_stream_wait(cuda_stream s, cuda_event e, unsigned flags)
{
    int rc = flags ? ERROR_VALUE : 0;
    fake_cuda_lock();
    if (e->capture) { /* the stream joins the capture */
        if (s->capture && s->capture != e->capture)
            rc = ERROR_CAPTURE;
        s->capture = e->capture;
        append_node(s->capture, KIND_WAIT, s->last, e->node);
        s->last = (int32_t)s->capture->n - 1;
    } else if (s->capture) {
        fake_cuda_breach("a captured stream waits for an event from outside");
        rc = ERROR_CAPTURE;
    } else if (!e->recorded) {
        fake_cuda_breach("a stream waits for an event that was never recorded");
    } else {
        struct task *op = append(s, KIND_WAIT);
        op->event = e;
        op->version = e->recorded;
    }
    fake_cuda_unlock();
    return rc;
}

static int f_event_query(cuda_event e)
{
    fake_cuda_lock();
    move(8);
    int rc = fake.broken ? ERROR_LAUNCH : e->done < e->recorded ? CUDA_NOT_READY : CUDA_OK;
    fake_cuda_unlock();
    return rc;
}

static int f_event_elapsed(float *ms, cuda_event from, cuda_event to)
{
    if (!from->timed || !to->timed)
        fake_cuda_breach("time between events that keep none");
    if (from->done < from->recorded || to->done < to->recorded || !from->recorded || !to->recorded)
        return CUDA_NOT_READY;
    *ms = (float)((double)(to->done_ns - from->done_ns) * 1e-6);
    return 0;
}

/* --- graphs --- */

static int f_begin_capture(cuda_stream s, int mode)
{
    fake_cuda_lock();
    int rc = s->capture || mode != CUDA_CAPTURE_THREAD_LOCAL ? ERROR_CAPTURE : 0;
    if (!rc) {
        s->capture = calloc(1, sizeof *s->capture);
        s->capture->origin = s;
        s->last = -1;
        fake.ngraphs++;
    }
    fake_cuda_unlock();
    return rc;
}

/* does everything come before the origin's last node? */
static bool all_joined(const struct CUgraph_st *g, int32_t last)
{
    uint8_t *seen = calloc(g->n + (size_t)1, 1);
    bool all = true;
    if (last >= 0)
        seen[last] = 1;
    for (uint32_t i = g->n; i-- > 0;)
        for (int j = 0; seen[i] && j < 2; j++)
            if (g->nodes[i].after[j] >= 0)
                seen[g->nodes[i].after[j]] = 1;
    for (uint32_t i = 0; i < g->n; i++)
        all = all && seen[i];
    free(seen);
    return all;
}

static int f_end_capture(cuda_stream s, cuda_graph *g)
{
    int rc = 0;
    fake_cuda_lock();
    *g = s->capture;
    if (!*g || (*g)->origin != s)
        rc = ERROR_CAPTURE;
    else if (!all_joined(*g, s->last))
        rc = ERROR_UNJOINED;
    for (struct CUstream_st *t = fake.streams; t; t = t->next)
        if (t->capture == *g) {
            t->capture = NULL;
            t->last = -1;
        }
    fake_cuda_unlock();
    return rc;
}

static int f_graph_destroy(cuda_graph g)
{
    fake_cuda_lock();
    for (uint32_t i = 0; i < g->n; i++)
        free(g->nodes[i].state);
    free(g->nodes);
    free(g);
    fake.ngraphs--;
    fake_cuda_unlock();
    return 0;
}

static int f_instantiate(cuda_graph_exec *x, cuda_graph g, unsigned long long flags)
{
    (void)flags;
    fake_cuda_lock();
    *x = calloc(1, sizeof **x);
    (*x)->n = g->n;
    (*x)->nodes = calloc(g->n + (size_t)1, sizeof *(*x)->nodes);
    for (uint32_t i = 0; i < g->n; i++) {
        (*x)->nodes[i] = g->nodes[i];
        if (g->nodes[i].kind == KIND_STEP) {
            (*x)->nodes[i].state = malloc(g->nodes[i].bytes + 1);
            memcpy((*x)->nodes[i].state, g->nodes[i].state, g->nodes[i].bytes);
        }
    }
    fake.nexecs++;
    fake_cuda_unlock();
    return 0;
}

static int f_graph_nodes(cuda_graph g, void *nodes, size_t *n)
{
    (void)nodes;
    *n = g->n;
    return 0;
}

static int f_graph_launch(cuda_graph_exec x, cuda_stream s)
{
    fake_cuda_lock();
    if (s->capture)
        fake_cuda_breach("a graph is launched into a capture");
    struct instance *it = calloc(1, sizeof *it);
    it->exec = x;
    it->left = x->n;
    it->done = calloc(x->n + (size_t)1, 1);
    it->state = calloc(x->n + (size_t)1, sizeof *it->state);
    append(s, KIND_GRAPH)->state = it;
    fake_cuda_unlock();
    return fake.broken ? ERROR_LAUNCH : 0;
}

static int f_exec_destroy(cuda_graph_exec x)
{
    fake_cuda_lock();
    for (struct CUstream_st *s = fake.streams; s; s = s->next)
        for (struct task *op = s->head; op; op = op->next)
            if (op->kind == KIND_GRAPH && ((struct instance *)op->state)->exec == x) {
                if (!fake.broken && !fake.hung)
                    fake_cuda_breach("a graph is destroyed while it runs");
                fake_cuda_unlock();
                return 0;
            }
    for (uint32_t i = 0; i < x->n; i++)
        free(x->nodes[i].state);
    free(x->nodes);
    free(x);
    fake.nexecs--;
    fake_cuda_unlock();
    return 0;
}

/* --- copies and kernels --- */

struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t to_pitch, from_pitch, width, rows;
    int value; /* of a memset */
};

static enum fake_progress step_copy(void *state)
{
    const struct copy *c = state;
    for (size_t i = 0; i < c->rows; i++) {
        if (c->from)
            memcpy(c->to + i * c->to_pitch, c->from + i * c->from_pitch, c->width);
        else
            memset(c->to + i * c->to_pitch, c->value, c->width);
    }
    return FAKE_DONE;
}

static int enqueue_copy(const struct copy *c, cuda_stream s)
{
    fake_cuda_lock();
    bool known = find(c->to, c->width) && (!c->from || find(c->from, c->width));
    if (s->capture && !known)
        fake_cuda_breach("a copy of pageable memory is captured");
    if (c->rows && c->rows > 1 && (c->to_pitch < c->width || (c->from && c->from_pitch < c->width)))
        fake_cuda_breach("a copy's rows overlap");
    int rc = fake_cuda_enqueue(s, step_copy, c, sizeof *c);
    fake_cuda_unlock();
    return fake.broken ? ERROR_LAUNCH : rc;
}

static int f_copy(void *to, const void *from, size_t bytes, int kind, cuda_stream s)
{
    const struct copy c = {to, from, bytes, bytes, bytes, 1, 0};
    return kind == CUDA_COPY_DEFAULT ? enqueue_copy(&c, s) : ERROR_VALUE;
}
static int f_copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, int kind,
                     cuda_stream s)
{
    const struct copy c = {to, from, to_pitch, from_pitch, width, rows, 0};
    return kind == CUDA_COPY_DEFAULT ? enqueue_copy(&c, s) : ERROR_VALUE;
}
static int f_memset(void *p, int value, size_t bytes, cuda_stream s)
{
    const struct copy c = {p, NULL, bytes, bytes, bytes, 1, value};
    return enqueue_copy(&c, s);
}

static enum fake_progress step_mark(void *state)
{
    const struct copy *c = state;
    *(volatile uint32_t *)(void *)c->to = (uint32_t)c->value;
    return FAKE_DONE;
}

static const char *plugin_mark(uint32_t *word, uint32_t value, cuda_stream s)
{
    const struct copy c = {.to = (uint8_t *)word, .value = (int)value};
    fake_cuda_lock();
    if (!find(word, sizeof *word) || fake_cuda_is_device(word, sizeof *word))
        fake_cuda_breach("a progress word outside of mapped host memory");
    fake_cuda_enqueue(s, step_mark, &c, sizeof c);
    fake_cuda_unlock();
    return NULL;
}

static enum fake_progress step_break(void *state)
{
    (void)state;
    fake.broken = true;
    return FAKE_DONE;
}
static enum fake_progress step_hang(void *state)
{
    (void)state;
    fake.hung = true;
    return FAKE_STUCK;
}

/* NULL = go on */
static const char *count_launch(cuda_stream s)
{
    char none = 0;
    fake.launches++;
    if (fake.launches == fake.s.refuse_launch)
        return "invalid configuration argument";
    if (fake.launches == fake.s.break_launch)
        fake_cuda_enqueue(s, step_break, &none, 1);
    if (fake.launches == fake.s.hang_launch)
        fake_cuda_enqueue(s, step_hang, &none, 1);
    return NULL;
}

static const char *plugin_launch(enum op op, const struct cuda_call *c)
{
    struct fake_kernel k = {.op = op, .args = *c->args, .staged = c->staged};
    const struct isa_info *info = isa_info(op);
    fake_cuda_lock();
    for (uint32_t i = 0; i < info->noperands; i++) {
        const struct view *v = &k.args.operand[i];
        size_t bytes = v->rows ? ((size_t)(v->rows - 1) * v->ld + v->cols) * isa_dtype_bytes(v->dtype) : 0;
        if (v->data && !find(v->data, bytes))
            fake_cuda_breach("%s: operand %u is in nobody's memory", info->name, i);
    }
    if (c->workspace && !fake_cuda_is_device(c->workspace, c->workspace_bytes))
        fake_cuda_breach("%s: its workspace is not device memory", info->name);
    const char *why = count_launch(c->stream);
    if (!why)
        fake_cuda_enqueue(c->stream, fake_kernel_run, &k, sizeof k);
    fake_cuda_unlock();
    return why ? why : fake.broken ? "an earlier kernel has broken the device" : NULL;
}

static const char *plugin_sum(const struct cuda_sum *s, cuda_stream stream)
{
    fake_cuda_lock();
    const char *why = count_launch(stream);
    if (!why)
        fake_cuda_enqueue(stream, fake_kernel_sum, s, sizeof *s);
    fake_cuda_unlock();
    return why;
}

/* --- the rest --- */

static int f_device_count(int *count)
{
    *count = fake.s.devices;
    return 0;
}
static int f_set_device(int device)
{
    if (device < 0 || device >= fake.s.devices)
        return ERROR_VALUE;
    fake.device = device;
    return 0;
}
static int f_attribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 75 ? 9 : 0;
    return 0;
}
static int f_bus_id(char *out, int size, int device)
{
    snprintf(out, (size_t)size, "0000:%02x:00.0", (unsigned)device & 0xff);
    return 0;
}
static int f_version(int *version)
{
    *version = 13000;
    return 0;
}
static int f_mem_info(size_t *available, size_t *total)
{
    *total = fake.s.memory_bytes;
    *available = fake.s.memory_bytes - fake.used;
    return 0;
}
static int f_priorities(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return 0;
}
static int f_last_error(void)
{
    return fake.broken ? ERROR_LAUNCH : 0;
}
static const char *f_error_string(int error)
{
    return error == ERROR_LAUNCH     ? "an illegal memory access was encountered"
           : error == ERROR_MEMORY   ? "out of memory"
           : error == ERROR_UNJOINED ? "capture ends with unjoined work"
           : error == ERROR_CAPTURE  ? "operation not permitted when stream is capturing"
                                     : "invalid argument";
}
static void plugin_describe(int device, char *out, size_t size)
{
    snprintf(out, size, "a fake device %d", device);
}
static const char *plugin_open(struct cuda_libraries **out, int device, bool deterministic)
{
    (void)device;
    (void)deterministic;
    *out = NULL;
    return NULL;
}
static void plugin_close(struct cuda_libraries *l)
{
    (void)l;
}
static const char *plugin_check(enum op op, const struct kernel_args *k)
{
    (void)op;
    (void)k;
    return NULL;
}
static size_t plugin_workspace(enum op op, const struct kernel_args *k, int sm)
{
    (void)k;
    return sm == 90 && isa_info(op)->unit == UNIT_MATMUL ? 4096 : 0;
}

static const struct cuda_runtime fake_runtime = {.GetDeviceCount = f_device_count,
                                                 .SetDevice = f_set_device,
                                                 .DeviceGetAttribute = f_attribute,
                                                 .DeviceGetPCIBusId = f_bus_id,
                                                 .DriverGetVersion = f_version,
                                                 .RuntimeGetVersion = f_version,
                                                 .MemGetInfo = f_mem_info,
                                                 .Malloc = f_malloc,
                                                 .Free = f_free,
                                                 .HostAlloc = f_host_alloc,
                                                 .FreeHost = f_free_host,
                                                 .DeviceGetStreamPriorityRange = f_priorities,
                                                 .StreamCreateWithPriority = f_stream_create,
                                                 .StreamDestroy = f_stream_destroy,
                                                 .StreamQuery = f_stream_query,
                                                 .StreamWaitEvent = f_stream_wait,
                                                 .EventCreateWithFlags = f_event_create,
                                                 .EventDestroy = f_event_destroy,
                                                 .EventRecord = f_event_record,
                                                 .EventQuery = f_event_query,
                                                 .EventElapsedTime = f_event_elapsed,
                                                 .MemcpyAsync = f_copy,
                                                 .Memcpy2DAsync = f_copy_2d,
                                                 .MemsetAsync = f_memset,
                                                 .StreamBeginCapture = f_begin_capture,
                                                 .StreamEndCapture = f_end_capture,
                                                 .GraphInstantiate = f_instantiate,
                                                 .GraphGetNodes = f_graph_nodes,
                                                 .GraphLaunch = f_graph_launch,
                                                 .GraphExecDestroy = f_exec_destroy,
                                                 .GraphDestroy = f_graph_destroy,
                                                 .GetLastError = f_last_error,
                                                 .GetErrorString = f_error_string};

const struct cuda_plugin *fake_cuda_open(const struct fake_setup *s)
{
    memset(&fake, 0, sizeof fake);
    fake.s = *s;
    fake.random = s->seed;
    pthread_mutex_init(&fake.lock, NULL);
    void *map = mmap(NULL, s->memory_bytes * (size_t)s->devices, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fake.memory = map == MAP_FAILED ? NULL : map;
    fake.plugin = (struct cuda_plugin){.fingerprint = isa_fingerprint,
                                       .runtime = &fake_runtime,
                                       .describe = plugin_describe,
                                       .open = plugin_open,
                                       .close = plugin_close,
                                       .check = plugin_check,
                                       .workspace_bytes = plugin_workspace,
                                       .launch = plugin_launch,
                                       .sum = plugin_sum,
                                       .mark = plugin_mark};
    return fake.memory ? &fake.plugin : NULL;
}

void fake_cuda_complaints(char *out, size_t size)
{
    uint32_t allocations = 0;
    snprintf(out, size, "%s", fake.breach);
    for (int i = 0; i < MOST_ALLOCATIONS; i++)
        allocations += fake.allocations[i].start != NULL && !fake.hung && !fake.broken; /* freeing would hang */
    if (!*out && (fake.nstreams || fake.nevents || fake.ngraphs || fake.nexecs || allocations))
        snprintf(out, size, "left behind: %u streams, %u events, %u graphs, %u executable graphs, %u allocations", fake.nstreams,
                 fake.nevents, fake.ngraphs, fake.nexecs, allocations);
}

uint64_t fake_cuda_launches(void)
{
    return fake.launches;
}

void fake_cuda_close(void)
{
    while (fake.dead) {
        struct CUevent_st *next = fake.dead->next_dead;
        free(fake.dead);
        fake.dead = next;
    }
    if (fake.memory)
        munmap(fake.memory, fake.s.memory_bytes * (size_t)fake.s.devices);
    pthread_mutex_destroy(&fake.lock);
    memset(&fake, 0, sizeof fake);
}
