/* How the fake device moves, and its streams and events.  See fake_inside.h. */

#include "tests/fake/fake_inside.h"

#include <stdlib.h>
#include <string.h>

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
        op->event->done_ns = world_now_ns();
        break;
    case KIND_WAIT:
        p = op->event->done >= op->version ? FAKE_DONE : FAKE_STUCK;
        break;
    case KIND_GRAPH:
        p = fake_instance_step(op->state);
        break;
    }
    if (p != FAKE_DONE)
        return p;
    s->head = op->next;
    if (!s->head)
        s->tail = &s->head;
    if (op->kind == KIND_GRAPH)
        fake_instance_free(op->state);
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

struct task *fake_node(cuda_graph g, enum kind kind, int32_t before, int32_t other)
{
    if (g->n == g->room) {
        g->room = g->room ? 2 * g->room : 64;
        g->nodes = realloc(g->nodes, g->room * sizeof *g->nodes);
    }
    struct task *op = &g->nodes[g->n++];
    *op = (struct task){.kind = kind, .after = {before, other}};
    return op;
}

struct task *fake_append(cuda_stream s, enum kind kind)
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
        op = fake_node(s->capture, KIND_STEP, s->last, -1);
        s->last = (int32_t)s->capture->n - 1;
    } else {
        op = fake_append(s, KIND_STEP);
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

static int f_priorities(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return 0;
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
            fake_instance_free(op->state);
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
    fake_cuda_unless_capturing("a stream is queried");
    move(1 + (fake.s.seed ? (uint32_t)fake_cuda_draw(64) : 64));
    int rc = fake.broken ? ERROR_LAUNCH : s->head ? CUDA_NOT_READY : CUDA_OK;
    fake_cuda_unlock();
    return fake_cuda_error(rc);
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
        fake_node(s->capture, KIND_RECORD, s->last, -1);
        s->last = e->node = (int32_t)s->capture->n - 1;
    } else {
        struct task *op = fake_append(s, KIND_RECORD);
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
        fake_node(s->capture, KIND_WAIT, s->last, e->node);
        s->last = (int32_t)s->capture->n - 1;
    } else if (s->capture) {
        fake_cuda_breach("a captured stream waits for an event from outside");
        rc = ERROR_CAPTURE;
    } else if (!e->recorded) {
        fake_cuda_breach("a stream waits for an event that was never recorded");
    } else {
        struct task *op = fake_append(s, KIND_WAIT);
        op->event = e;
        op->version = e->recorded;
    }
    fake_cuda_unlock();
    return fake_cuda_error(rc);
}

static int f_event_query(cuda_event e)
{
    fake_cuda_lock();
    fake_cuda_unless_capturing("an event is queried");
    move(8);
    int rc = fake.broken ? ERROR_LAUNCH : e->done < e->recorded ? CUDA_NOT_READY : CUDA_OK;
    fake_cuda_unlock();
    return fake_cuda_error(rc);
}

static int f_event_elapsed(float *ms, cuda_event from, cuda_event to)
{
    if (!from->timed || !to->timed)
        fake_cuda_breach("time between events that keep none");
    if (from->done < from->recorded || to->done < to->recorded || !from->recorded || !to->recorded)
        return fake_cuda_error(CUDA_NOT_READY);
    *ms = (float)((double)(to->done_ns - from->done_ns) * 1e-6);
    return 0;
}

void fake_streams_table(struct cuda_runtime *t)
{
    t->DeviceGetStreamPriorityRange = f_priorities;
    t->StreamCreateWithPriority = f_stream_create;
    t->StreamDestroy = f_stream_destroy;
    t->StreamQuery = f_stream_query;
    t->StreamWaitEvent = f_stream_wait;
    t->EventCreateWithFlags = f_event_create;
    t->EventDestroy = f_event_destroy;
    t->EventRecord = f_event_record;
    t->EventQuery = f_event_query;
    t->EventElapsedTime = f_event_elapsed;
}
