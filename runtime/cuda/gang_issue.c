/* The player for streams: issues a step and comes back when the device has done it.
 *
 * Three ways, of which the results are equal bit by bit, because the same instructions run with the same
 * arguments in the same order on every stream: `eager` issues instruction by instruction; `segments` issues
 * stretches of the compute queue as graphs, everything else eagerly; `graph` captures the whole step of all
 * ranks, transfers included, once and replays it.  The first step is always eager: libraries connect and load
 * lazily then, which a capture would not survive.
 *
 * What changes from step to step lies in device memory (step block, staged ids), written on the origin
 * stream, rank 0's compute queue, before anything else starts; the metrics are read there when all streams
 * have ended. */

#include "runtime/cuda/gang_inside.h"

#include <stdlib.h>
#include <string.h>

enum { MARK_EVERY = 32 }; /* compute instructions between two progress words */

struct issue {
    struct gang *g;
    enum routine which;
    bool traced, stretches, fused;
    uint32_t at; /* entry that is being issued */
};

static const char *cuda_text(const struct gang *g, int error)
{
    return error ? g->cu->GetErrorString(error) : NULL;
}

void gang_call(const struct gang *g, const struct gang_rank *r, enum routine which, uint32_t i, struct kernel_args *k,
               struct cuda_call *c)
{
    const struct program *p = r->e->play[which].p;
    uint8_t queue = p->insns[i].queue;
    *k = (struct kernel_args){.scratch = NULL};
    exec_resolve(r->e, p, i, k);
    *c = (struct cuda_call){
        k, r->stream[queue], r->workspace[queue], r->workspace_bytes[queue], r->play[which].data[i], g->libraries};
}

/* copies between host and device need no kernel */
static bool is_plain_copy(const struct insn *in, const struct kernel_args *k)
{
    return in->op == OP_COPY && in->queue == QUEUE_COPY && k->operand[0].dtype == k->operand[1].dtype;
}

static const char *launch_kernel(const struct gang *g, const struct gang_rank *r, enum routine which, uint32_t i)
{
    const struct insn *in = &r->e->play[which].p->insns[i];
    struct kernel_args k;
    struct cuda_call c;
    gang_call(g, r, which, i, &k, &c);
    if (!is_plain_copy(in, &k))
        return g->s.plugin->launch(in->op, &c);
    const struct view *y = &k.operand[OPND(COPY, y)], *x = &k.operand[OPND(COPY, x)];
    size_t bytes = isa_dtype_bytes(y->dtype);
    return cuda_text(g, g->cu->Memcpy2DAsync(y->data, y->ld * bytes, x->data, x->ld * bytes, y->cols * bytes, y->rows,
                                             CUDA_COPY_DEFAULT, c.stream));
}

/* the instruction at a place of the compute queue, with those behind it that the same launch does; or only its
 * preparation */
static const char *call_fused(const struct gang *g, const struct gang_rank *r, enum routine which, uint32_t place,
                              bool prepare)
{
    const struct play *play = &r->e->play[which];
    const uint32_t *order = play->order + play->first[QUEUE_COMPUTE] + place;
    uint32_t n = r->play[which].fused[order[0]];
    enum op ops[CUDA_FUSE_MOST];
    struct kernel_args args[CUDA_FUSE_MOST];
    const struct kernel_args *list[CUDA_FUSE_MOST];
    struct cuda_call c, first;
    for (uint32_t at = 0; at < n; at++) {
        gang_call(g, r, which, order[at], &args[at], at ? &c : &first);
        ops[at] = play->p->insns[order[at]].op;
        list[at] = &args[at];
    }
    return prepare ? g->s.plugin->prepare_fused(ops, list, n, &first) : g->s.plugin->launch_fused(ops, list, n, &first);
}

static const char *launch_fused(struct gang *g, const struct gang_rank *r, enum routine which, uint32_t place)
{
    g->counts.fused++;
    return call_fused(g, r, which, place, false);
}

const char *gang_prepare_fused(const struct gang *g, const struct gang_rank *r, enum routine which)
{
    const struct play *play = &r->e->play[which];
    const char *why = NULL;
    for (uint32_t i = 0; play->p && g->s.plugin->prepare_fused && i < play->p->ninsns && !why; i++)
        if (play->p->insns[i].queue == QUEUE_COMPUTE && r->play[which].fused[i] > 1)
            why = call_fused(g, r, which, r->play[which].place[i], true);
    return why;
}

const char *gang_load(struct gang *g)
{
    for (uint32_t r = 0; r < g->s.n; r++)
        for (enum routine which = 0; which < NROUTINES; which++) {
            const struct play *play = &g->ranks[r].e->play[which];
            for (uint32_t i = 0; play->p && i < play->p->ninsns; i++) {
                const struct gang_play *gp = &g->ranks[r].play[which];
                uint32_t n = play->p->insns[i].queue == QUEUE_COMPUTE ? gp->fused[i] : 1;
                if (insn_is_meeting(&play->p->insns[i]))
                    continue;
                const char *why = n > 1 ? launch_fused(g, &g->ranks[r], which, gp->place[i])
                                        : launch_kernel(g, &g->ranks[r], which, i);
                if (why)
                    return why;
            }
        }
    g->counts.fused = 0;
    return g->s.plugin->mark(&g->ranks[0].mark[MARK_COMPUTE], 0, gang_origin(g));
}

/* events that the plan asks for; one that implies another is not waited for again */
static const char *wait_for_others(const struct gang *g, struct gang_rank *r, enum routine which, uint32_t i)
{
    const struct play *play = &r->e->play[which];
    const struct insn *in = &play->p->insns[i];
    for (uint32_t w = 0; w < in->nwaits; w++) {
        const struct wait *wait = &play->p->waits[in->wait + w];
        int32_t *seen = &r->seen[in->queue][wait->queue];
        if (wait->queue == in->queue || *seen >= (int32_t)wait->position)
            continue;
        *seen = (int32_t)wait->position;
        uint32_t other = play->order[play->first[wait->queue] + wait->position];
        int error = g->cu->StreamWaitEvent(r->stream[in->queue], r->play[which].event[other], 0);
        if (error)
            return cuda_text(g, error);
    }
    return NULL;
}

static const char *stamp(const struct issue *is, cuda_stream stream, uint32_t end)
{
    if (!is->traced)
        return NULL;
    return cuda_text(is->g, is->g->cu->EventRecord(is->g->stamps[2 * is->at + end], stream));
}

static const char *record_event(const struct gang *g, const struct gang_rank *r, enum routine which, uint32_t i)
{
    cuda_event e = r->play[which].event[i];
    return e ? cuda_text(g, g->cu->EventRecord(e, r->stream[r->e->play[which].p->insns[i].queue])) : NULL;
}

static const char *mark(const struct gang *g, const struct gang_rank *r, enum routine which, uint32_t i, uint32_t word)
{
    return g->s.plugin->mark(&r->mark[word], i + 1, r->stream[r->e->play[which].p->insns[i].queue]);
}

/* NULL = launched; the instructions of a stretch come with its first */
static const char *issue_stretch(struct issue *is, struct gang_rank *r, struct stretch *s)
{
    struct gang *g = is->g;
    const struct play *play = &r->e->play[is->which];
    const uint32_t *order = play->order + play->first[QUEUE_COMPUTE];
    const char *why = NULL;
    if (!s->graph) {
        cuda_graph graph = NULL;
        int error = g->cu->StreamBeginCapture(r->stream[QUEUE_COMPUTE], CUDA_CAPTURE_THREAD_LOCAL);
        for (uint32_t i = s->first, n; i <= s->last && !why && !error; i += n) {
            n = r->play[is->which].fused[order[i]];
            why = n > 1 ? launch_fused(g, r, is->which, i) : launch_kernel(g, r, is->which, order[i]);
        }
        if (!error)
            error = g->cu->StreamEndCapture(r->stream[QUEUE_COMPUTE], &graph);
        if (!why && !error)
            error = g->cu->GraphInstantiate(&s->graph, graph, CUDA_INSTANTIATE_PRIORITIES);
        if (graph)
            g->cu->GraphDestroy(graph);
        g->counts.graphs++;
        if (why || error)
            return why ? why : cuda_text(g, error);
    }
    return cuda_text(g, g->cu->GraphLaunch(s->graph, r->stream[QUEUE_COMPUTE]));
}

#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        const char *step_why_ = (call);                                                                                \
        if (step_why_)                                                                                                 \
            return step_why_;                                                                                          \
    } while (0)

static const char *issue_kernel(struct issue *is, const struct gang_entry *entry)
{
    struct gang *g = is->g;
    struct gang_rank *r = &g->ranks[entry->rank];
    const struct insn *in = &r->e->play[is->which].p->insns[entry->insn];
    struct gang_play *gp = &r->play[is->which];
    uint32_t run = is->stretches ? gp->run_of[entry->insn] : NONE;
    if (run != NONE) {
        const struct play *play = &r->e->play[is->which];
        const uint32_t *order = play->order + play->first[QUEUE_COMPUTE];
        if (order[gp->runs[run].first] != entry->insn)
            return NULL;
        STEP(wait_for_others(g, r, is->which, entry->insn));
        STEP(issue_stretch(is, r, &gp->runs[run]));
        return record_event(g, r, is->which, order[gp->runs[run].last]);
    }
    uint32_t n = is->fused && in->queue == QUEUE_COMPUTE ? gp->fused[entry->insn] : 1, last = entry->insn;
    if (!n) /* done by the launch of one before it */
        return NULL;
    STEP(wait_for_others(g, r, is->which, entry->insn));
    STEP(stamp(is, r->stream[in->queue], 0));
    if (n > 1) {
        const struct play *play = &r->e->play[is->which];
        last = play->order[play->first[QUEUE_COMPUTE] + gp->place[entry->insn] + n - 1];
        STEP(launch_fused(g, r, is->which, gp->place[entry->insn]));
    } else {
        STEP(launch_kernel(g, r, is->which, entry->insn));
    }
    STEP(stamp(is, r->stream[in->queue], 1));
    if (in->queue == QUEUE_COMPUTE && last / MARK_EVERY != (entry->insn - 1) / MARK_EVERY)
        STEP(mark(g, r, is->which, last, MARK_COMPUTE));
    return record_event(g, r, is->which, last);
}

/* all parts of one meeting that live here: `n` entries */
static const char *issue_meeting(struct issue *is, const struct gang_entry *entry, uint32_t n)
{
    struct gang *g = is->g;
    uint32_t base = is->at;
    for (uint32_t j = 0; j < n; j++) {
        struct gang_rank *r = &g->ranks[entry[j].rank];
        const struct play *play = &r->e->play[is->which];
        const struct insn *in = &play->p->insns[entry[j].insn];
        struct meet_part *part = &g->parts[j];
        is->at = base + j;
        STEP(wait_for_others(g, r, is->which, entry[j].insn));
        STEP(mark(g, r, is->which, entry[j].insn, in->queue));
        STEP(stamp(is, r->stream[in->queue], 0));
        exec_make_meeting(r->e, play, entry[j].insn, &part->m);
        part->queue = (enum queue)in->queue;
        part->stream = r->stream[in->queue];
        part->rank = g->first + entry[j].rank;
        part->workspace = r->workspace[in->queue];
        part->workspace_bytes = r->workspace_bytes[in->queue];
    }
    STEP(g->s.meet->launch(g->meet, g->parts, n));
    for (uint32_t j = 0; j < n; j++) {
        struct gang_rank *r = &g->ranks[entry[j].rank];
        is->at = base + j;
        STEP(stamp(is, g->parts[j].stream, 1));
        STEP(mark(g, r, is->which, entry[j].insn, MARK_ENDED + (uint32_t)g->parts[j].queue));
        STEP(record_event(g, r, is->which, entry[j].insn));
    }
    return NULL;
}

/* entries that are one meeting */
static uint32_t meeting_size(const struct gang_step *step, uint32_t at)
{
    const struct gang_entry *a = &step->order[at];
    uint32_t n = 1;
    while (a->channel != NONE && at + n < step->n && a[n].seq == a->seq && a[n].channel == a->channel)
        n++;
    return n;
}

/* streams begin when the origin's is written, and the origin goes on when all have ended */
static const char *fork_streams(struct gang *g)
{
    STEP(cuda_text(g, g->cu->EventRecord(g->begin, gang_origin(g))));
    for (uint32_t r = 0; r < g->s.n; r++)
        for (uint32_t q = 0; q < NQUEUES; q++)
            if (g->ranks[r].used[q] && g->ranks[r].stream[q] != gang_origin(g))
                STEP(cuda_text(g, g->cu->StreamWaitEvent(g->ranks[r].stream[q], g->begin, 0)));
    return NULL;
}

static const char *join_streams(struct gang *g)
{
    for (uint32_t r = 0; r < g->s.n; r++)
        for (uint32_t q = 0; q < NQUEUES; q++)
            if (g->ranks[r].used[q] && g->ranks[r].stream[q] != gang_origin(g)) {
                STEP(cuda_text(g, g->cu->EventRecord(g->ranks[r].end[q], g->ranks[r].stream[q])));
                STEP(cuda_text(g, g->cu->StreamWaitEvent(gang_origin(g), g->ranks[r].end[q], 0)));
            }
    return NULL;
}

/* everything between the step block and the metrics */
static enum status issue_all(struct issue *is)
{
    struct gang *g = is->g;
    const struct gang_step *step = &g->step[is->which];
    for (uint32_t r = 0; r < g->s.n; r++)
        memset(g->ranks[r].seen, 0xff, sizeof g->ranks[r].seen);
    const char *why = fork_streams(g);
    if (why)
        return gang_fail(g, 0, is->which, NONE, why);
    for (uint32_t at = 0, n; at < step->n; at += n) {
        const struct gang_entry *entry = &step->order[at];
        n = meeting_size(step, at);
        is->at = at;
        TRY(world_failed(g->s.world));
        why = entry->channel == NONE ? issue_kernel(is, entry) : issue_meeting(is, entry, n);
        if (why)
            return gang_refused(g, entry->rank, is->which, entry->insn, why);
        for (uint32_t j = 0; j < n; j++) {
            const struct gang_rank *r = &g->ranks[entry[j].rank];
            atomic_store_explicit(
                &g->s.world->ranks[g->first + entry[j].rank].head[r->e->play[is->which].p->insns[entry[j].insn].queue],
                entry[j].insn, memory_order_relaxed);
        }
    }
    why = join_streams(g);
    return why ? gang_refused(g, 0, is->which, NONE, why) : STATUS_OK;
}

static enum status capture(struct issue *is)
{
    struct gang *g = is->g;
    struct gang_step *step = &g->step[is->which];
    cuda_graph graph = NULL;
    int error = g->cu->StreamBeginCapture(gang_origin(g), CUDA_CAPTURE_THREAD_LOCAL);
    if (error)
        return gang_fail(g, 0, is->which, NONE, cuda_text(g, error));
    g->capturing = true;
    enum status st = issue_all(is);
    g->capturing = false;
    error = g->cu->StreamEndCapture(gang_origin(g), &graph);
    if (st == STATUS_OK && !error)
        error = g->cu->GraphInstantiate(&step->graph, graph, CUDA_INSTANTIATE_PRIORITIES);
    if (graph)
        g->cu->GraphDestroy(graph);
    g->counts.graphs++;
    return st != STATUS_OK || !error ? st : gang_fail(g, 0, is->which, NONE, cuda_text(g, error));
}

/* a persistent block of a rank: its place in the arena, or NULL */
static void *device_of(const struct gang_rank *r, enum routine which, enum buffer_kind kind, size_t *bytes)
{
    const struct program *p = r->e->play[which].p;
    for (uint32_t b = 0; p && b < p->nbuffers; b++)
        if (p->buffers[b].kind == kind) {
            *bytes = (size_t)p->buffers[b].bytes;
            return exec_address(r->e, p->buffers[b].offset);
        }
    return NULL;
}

/* the pinned copies of a rank's step block and metrics lie behind its staged words */
static uint8_t *pinned_block(const struct gang_rank *r)
{
    return r->stage + r->stage_bytes;
}
static uint8_t *pinned_metrics(const struct gang_rank *r)
{
    return r->stage + r->stage_bytes + 256;
}

static uint8_t *pinned_scale(const struct gang_rank *r)
{
    return pinned_metrics(r) + 128;
}

static const char *write_inputs(struct gang *g, enum routine which)
{
    for (uint32_t i = 0; i < g->s.n; i++) {
        struct gang_rank *r = &g->ranks[i];
        size_t bytes = 0;
        void *block = device_of(r, which, BUFFER_BLOCK, &bytes);
        gang_stage_fill(g, r, which);
        if (gang_stage_bytes(r->e, which))
            STEP(cuda_text(g, g->cu->MemcpyAsync(r->stage_device, r->stage, gang_stage_bytes(r->e, which),
                                                 CUDA_COPY_DEFAULT, gang_origin(g))));
        if (!block)
            continue;
        bytes = STEP_WORDS * sizeof(double);
        memcpy(pinned_block(r), exec_buffer(r->e, which, BUFFER_BLOCK), bytes);
        STEP(cuda_text(g, g->cu->MemcpyAsync(block, pinned_block(r), bytes, CUDA_COPY_DEFAULT, gang_origin(g))));
    }
    return NULL;
}

/* what the host reads after a step: metrics, and the loss scale */
static const char *read_metrics(struct gang *g, enum routine which)
{
    for (uint32_t i = 0; i < g->s.n; i++) {
        size_t bytes = 0, words = SCALE_WORDS * sizeof(double);
        const void *metrics = device_of(&g->ranks[i], which, BUFFER_METRICS, &bytes),
                   *scale = device_of(&g->ranks[i], which, BUFFER_SCALE, &bytes);
        if (metrics)
            STEP(cuda_text(g, g->cu->MemcpyAsync(pinned_metrics(&g->ranks[i]), metrics, METRIC_WORDS * sizeof(double),
                                                 CUDA_COPY_DEFAULT, gang_origin(g))));
        if (scale)
            STEP(cuda_text(
                g, g->cu->MemcpyAsync(pinned_scale(&g->ranks[i]), scale, words, CUDA_COPY_DEFAULT, gang_origin(g))));
    }
    return NULL;
}

/* before the device can go on: where a hook wants to see operands, the step is played one instruction at a
 * time */
static enum status issue_hooked(struct issue *is)
{
    struct gang *g = is->g;
    const struct gang_step *step = &g->step[is->which];
    for (uint32_t r = 0; r < g->s.n; r++)
        memset(g->ranks[r].seen, 0xff, sizeof g->ranks[r].seen);
    const char *why = fork_streams(g);
    for (uint32_t at = 0, n; at < step->n && !why; at += n) {
        const struct gang_entry *entry = &step->order[at];
        const struct exec *e = g->ranks[entry->rank].e;
        const struct program *p = e->play[is->which].p;
        const struct insn *in = &p->insns[entry->insn];
        n = meeting_size(step, at);
        if (in->op == OP_ADAMW || in->op == OP_SGD || in->op == OP_BIAS_MOVE) {
            if ((why = join_streams(g)))
                break;
            TRY(gang_wait(g, is->which));
            struct kernel_args k = {.scratch = NULL};
            exec_resolve(e, p, entry->insn, &k);
            const struct operand *o = &p->operands[in->operand + (in->op == OP_SGD ? OPND(SGD, g) : OPND(ADAMW, g))];
            if (in->op != OP_BIAS_MOVE)
                TRY(gang_copy(g->ranks[entry->rank].e, p->buffers[o->buffer].offset, p->buffers[o->buffer].bytes,
                              false));
            e->hook(e->hook_context, p, entry->insn, &k);
        }
        is->at = at;
        why = entry->channel == NONE ? issue_kernel(is, entry) : issue_meeting(is, entry, n);
        if (why)
            return gang_refused(g, entry->rank, is->which, entry->insn, why);
    }
    if (!why)
        why = join_streams(g);
    return why ? gang_refused(g, 0, is->which, NONE, why) : STATUS_OK;
}

static enum status make_stamps(struct gang *g, struct issue *is)
{
    const struct gang_step *step = &g->step[is->which];
    if (!g->stamps) {
        g->stamps = calloc(2 * (size_t)g->step[ROUTINE_TRAIN].n + 1, sizeof(cuda_event));
        for (uint32_t i = 0; g->stamps && i < 2 * step->n; i++)
            if (g->cu->EventCreateWithFlags(&g->stamps[i], CUDA_EVENT_PLAIN))
                return gang_fail(g, 0, is->which, NONE, "no events for the trace");
    }
    if (!g->stamps || g->cu->EventRecord(g->clock, gang_origin(g)))
        return gang_fail(g, 0, is->which, NONE, "no events for the trace");
    return STATUS_OK;
}

static void read_stamps(struct gang *g, const struct issue *is, int64_t start_ns)
{
    const struct gang_step *step = &g->step[is->which];
    for (uint32_t i = 0; i < step->n; i++) {
        const struct gang_rank *r = &g->ranks[step->order[i].rank];
        const struct play *play = &r->e->play[is->which];
        struct trace_span *spans = play->trace;
        uint32_t insn = step->order[i].insn;
        float from = 0, to = 0;
        if (is->fused && play->p->insns[insn].queue == QUEUE_COMPUTE && !r->play[is->which].fused[insn]) {
            uint32_t before = play->order[play->first[QUEUE_COMPUTE] + r->play[is->which].place[insn] - 1];
            if (spans) /* it took no time of its own */
                spans[insn] = (struct trace_span){spans[before].end_ns, spans[before].end_ns, 0};
            continue;
        }
        g->cu->EventElapsedTime(&from, g->clock, g->stamps[2 * i]);
        g->cu->EventElapsedTime(&to, g->clock, g->stamps[2 * i + 1]);
        if (spans)
            spans[insn] = (struct trace_span){start_ns + (int64_t)((double)from * 1e6),
                                              start_ns + (int64_t)((double)to * 1e6), 0};
    }
}

enum status gang_issue(struct gang *g, enum routine which)
{
    struct gang_step *step = &g->step[which];
    const struct exec *e = g->ranks[0].e;
    bool first = step->done == 0, hooked = e->hook != NULL && which == ROUTINE_TRAIN;
    struct issue is = {.g = g, .which = which, .traced = which == ROUTINE_TRAIN && e->play[which].trace != NULL};
    is.stretches = g->s.replay == REPLAY_SEGMENTS && !first && !is.traced && !hooked;
    is.fused = !hooked; /* a hook looks at operands before each instruction */
    const char *why = write_inputs(g, which);
    if (why)
        return gang_fail(g, 0, which, NONE, why);
    if (is.traced)
        TRY(make_stamps(g, &is));
    uint64_t graphs = g->counts.graphs;
    int64_t start = world_now_ns();
    if (hooked) {
        TRY(issue_hooked(&is));
    } else if (g->s.replay == REPLAY_GRAPH && !first && !is.traced) {
        if (!step->graph)
            TRY(capture(&is));
        start = world_now_ns();
        why = cuda_text(g, g->cu->GraphLaunch(step->graph, gang_origin(g)));
    } else {
        TRY(issue_all(&is));
    }
    if (!why)
        why = read_metrics(g, which);
    if (why)
        return gang_fail(g, 0, which, NONE, why);
    if (!first && !is.traced && g->counts.graphs == graphs) {
        g->counts.issue_ns += (uint64_t)(world_now_ns() - start);
        g->counts.replayed += step->n;
    }
    g->counts.steps++;
    TRY(gang_wait(g, which));
    if (is.traced)
        read_stamps(g, &is, start);
    for (uint32_t i = 0; i < g->s.n; i++) {
        double *metrics = exec_buffer(g->ranks[i].e, which, BUFFER_METRICS),
               *scale = exec_buffer(g->ranks[i].e, which, BUFFER_SCALE);
        if (metrics)
            memcpy(metrics, pinned_metrics(&g->ranks[i]), METRIC_WORDS * sizeof *metrics);
        if (scale)
            memcpy(scale, pinned_scale(&g->ranks[i]), SCALE_WORDS * sizeof *scale);
    }
    step->done++;
    return STATUS_OK;
}
