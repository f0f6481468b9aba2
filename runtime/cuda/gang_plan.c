/* What a gang works out once, when programs are loaded: the order of issuing, which instructions others wait for, what
 * the host prepares before a step, and the stretches of the compute queue that become graphs. */

#include "runtime/cuda/gang_inside.h"
#include "runtime/routing.h"

#include <stdlib.h>
#include <string.h>

static int by_order(const void *pa, const void *pb)
{
    const struct gang_entry *a = pa, *b = pb;
    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    if (a->channel != b->channel)
        return a->channel < b->channel ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->insn < b->insn ? -1 : a->insn > b->insn;
}

static bool order_step(struct gang *g, enum routine which)
{
    struct gang_step *step = &g->step[which];
    size_t n = 0;
    for (uint32_t r = 0; r < g->s.n; r++)
        n += g->ranks[r].e->play[which].p ? g->ranks[r].e->play[which].p->ninsns : 0;
    step->order = calloc(n + 1, sizeof *step->order);
    if (!step->order)
        return false;
    for (uint32_t r = 0; r < g->s.n; r++) {
        const struct play *play = &g->ranks[r].e->play[which];
        for (uint32_t i = 0; play->p && i < play->p->ninsns; i++) {
            const struct insn *in = &play->p->insns[i];
            uint32_t channel = insn_is_meeting(in) ? play->channel[i] : NONE;
            step->order[step->n++] = (struct gang_entry){r, i, in->seq, channel};
        }
    }
    qsort(step->order, step->n, sizeof *step->order, by_order);
    return true;
}

/* an event behind every instruction that another queue waits for */
static enum status make_events(struct gang *g, struct gang_rank *r, enum routine which)
{
    const struct play *play = &r->e->play[which];
    for (uint32_t i = 0; i < play->p->ninsns; i++) {
        const struct insn *in = &play->p->insns[i];
        r->used[in->queue] = true;
        for (uint32_t w = 0; w < in->nwaits; w++) {
            const struct wait *wait = &play->p->waits[in->wait + w];
            cuda_event *e = &r->play[which].event[play->order[play->first[wait->queue] + wait->position]];
            if (wait->queue != in->queue && !*e && g->cu->EventCreateWithFlags(e, CUDA_EVENT_NO_TIMING))
                return STATUS_WORLD;
        }
    }
    return STATUS_OK;
}

/* A stretch may begin where an instruction waits, and ends where one is waited for: then nothing that it needs comes
 * while it runs, and nobody waits for its middle.  Communications, which come on this queue where the job wants no
 * overlap, are in none: they are launched for all their members at once. */
static void find_stretches(struct gang_play *gp, const struct play *play)
{
    const uint32_t *order = play->order + play->first[QUEUE_COMPUTE];
    uint32_t n = play->count[QUEUE_COMPUTE];
    for (uint32_t at = 0; at < n;) {
        uint32_t end = at;
        while (!gp->event[order[end]] && end + 1 < n && play->p->insns[order[end + 1]].nwaits == 0 &&
               !insn_is_meeting(&play->p->insns[order[end]]) && !insn_is_meeting(&play->p->insns[order[end + 1]]))
            end++;
        if (end > at) {
            gp->runs[gp->nruns] = (struct stretch){at, end, NULL};
            for (uint32_t i = at; i <= end; i++)
                gp->run_of[order[i]] = gp->nruns;
            gp->nruns++;
        }
        at = end + 1;
    }
}

/* do they share a byte?  Of operands in slots that differ between ranks: perhaps */
static bool share_bytes(const struct operand *a, const struct operand *b)
{
    uint64_t ends[2];
    const struct operand *both[2] = {a, b};
    if (a->buffer != b->buffer)
        return false;
    if (a->slot != UINT16_MAX || b->slot != UINT16_MAX)
        return true;
    for (int i = 0; i < 2; i++)
        ends[i] = both[i]->offset + (uint64_t)both[i]->rows * both[i]->ld * isa_dtype_bytes(both[i]->dtype);
    return a->offset < ends[1] && b->offset < ends[0];
}

static bool same_place(const struct operand *a, const struct operand *b)
{
    return a->offset == b->offset && a->dtype == b->dtype && a->rows == b->rows && a->cols == b->cols && a->ld == b->ld;
}

bool gang_dies(const struct program *p, uint32_t insn, uint32_t last)
{
    const struct operand *own = &p->operands[p->insns[insn].operand];
    if (p->buffers[own->buffer].kind != BUFFER_STEP)
        return false;
    for (uint32_t i = 0; i < p->ninsns; i++)
        if (p->insns[i].op == OP_SEAM)
            return false;
    for (uint32_t i = last + 1; i < p->ninsns; i++) { /* in the order of the step */
        const struct insn *in = &p->insns[i];
        bool touched = false, over = true;
        for (uint32_t k = 0; k < isa_info(in->op)->noperands; k++) {
            const struct operand *o = &p->operands[in->operand + k];
            if (!share_bytes(own, o)) /* nor with an operand that is not there */
                continue;
            touched = true;
            over = over && o->mark == MARK_WRITE && same_place(own, o);
        }
        if (touched)
            return over;
    }
    return true;
}

/* what a call of n instructions needs, and whether all others find what they look for */
static bool may_fuse(const struct gang *g, const struct gang_rank *r, const struct play *play, const uint32_t *order,
                     const enum op *ops, const struct kernel_args *const *list, uint32_t n)
{
    const struct cuda_plugin *p = g->s.plugin;
    uint32_t hidden = p->fused_hides(ops, n);
    return p->fused_workspace_bytes(ops, list, n) <= r->workspace_bytes[QUEUE_COMPUTE] &&
           (hidden >= n || gang_dies(play->p, order[hidden], order[n - 1]));
}

/* Neighbours on the compute queue that one launch can do.  As in a stretch nothing may come between them from outside:
 * only the first waits, only the last is waited for. */
static void find_fused(const struct gang *g, const struct gang_rank *r, struct gang_play *gp, const struct play *play)
{
    const uint32_t *order = play->order + play->first[QUEUE_COMPUTE];
    uint32_t n = play->count[QUEUE_COMPUTE];
    for (uint32_t at = 0; at < n; at++)
        gp->place[order[at]] = at;
    for (uint32_t at = 0, done; at < n && g->s.plugin->fuse; at += done) {
        enum op ops[CUDA_FUSE_MOST];
        struct kernel_args args[CUDA_FUSE_MOST];
        const struct kernel_args *list[CUDA_FUSE_MOST];
        uint32_t room = 0;
        for (done = 0; done == room && room < CUDA_FUSE_MOST;) { /* four first, and more of those that take them all */
            uint32_t most = room < 4 ? 4 : CUDA_FUSE_MOST, before = room;
            for (; room < most && at + room < n; room++) {
                uint32_t i = order[at + room];
                if (room && (play->p->insns[i].nwaits || gp->event[order[at + room - 1]]))
                    break;
                ops[room] = play->p->insns[i].op;
                args[room] = (struct kernel_args){.scratch = NULL};
                exec_resolve(r->e, play->p, i, &args[room]);
                list[room] = &args[room];
            }
            if (room == before)
                break;
            done = g->s.plugin->fuse(ops, list, room);
        }
        if (done > 1 && !may_fuse(g, r, play, order + at, ops, list, done))
            done = 1;
        gp->fused[order[at]] = (uint8_t)done;
        for (uint32_t i = 1; i < done; i++)
            gp->fused[order[at + i]] = 0;
    }
}

static bool is_staged(const struct exec *e, enum routine which, enum op op)
{
    bool given = which == ROUTINE_TRAIN && e->s.routing && e->s.routing->use == ROUTING_REPLAY;
    return op == OP_TOKENS || op == OP_TOKENS_AHEAD || (op == OP_ROUTE && given);
}

/* int32 words: ids and targets, or the choices of every row */
static size_t staged_bytes(const struct program *p, const struct insn *in)
{
    const struct operand *o = &p->operands[in->operand];
    uint64_t rows = o[0].buffer != NONE ? o[0].rows : o[1].rows,
             words = in->op == OP_ROUTE ? rows * o[0].cols : 2 * rows;
    return (size_t)((words * sizeof(int32_t) + 255) / 256 * 256);
}

size_t gang_stage_bytes(const struct exec *e, enum routine which)
{
    const struct program *p = e->play[which].p;
    size_t bytes = 0;
    for (uint32_t i = 0; p && i < p->ninsns; i++)
        if (is_staged(e, which, p->insns[i].op))
            bytes += staged_bytes(p, &p->insns[i]);
    return bytes;
}

static enum status plan_rank(struct gang *g, struct gang_rank *r, enum routine which)
{
    const struct play *play = &r->e->play[which];
    struct gang_play *gp = &r->play[which];
    if (!play->p)
        return STATUS_OK;
    size_t n = play->p->ninsns + (size_t)1, at = 0;
    gp->n = play->p->ninsns;
    gp->event = calloc(n, sizeof(cuda_event));
    gp->data = calloc(n, sizeof *gp->data);
    gp->staged = calloc(n, sizeof *gp->staged);
    gp->runs = calloc(n, sizeof *gp->runs);
    gp->run_of = malloc(n * sizeof *gp->run_of);
    gp->fused = malloc(n);
    gp->place = calloc(n, sizeof *gp->place);
    if (!gp->event || !gp->data || !gp->staged || !gp->runs || !gp->run_of || !gp->fused || !gp->place)
        return STATUS_WORLD;
    memset(gp->run_of, 0xff, n * sizeof *gp->run_of);
    memset(gp->fused, 1, n);
    TRY(make_events(g, r, which));
    for (uint32_t i = 0; i < play->p->ninsns; i++) {
        const struct insn *in = &play->p->insns[i];
        if (!is_staged(r->e, which, in->op))
            continue;
        gp->staged[gp->nstaged++] = (struct staged){i, at};
        gp->data[i] = (const int32_t *)(const void *)(r->stage_device + at);
        at += staged_bytes(play->p, in);
    }
    if (g->s.replay == REPLAY_SEGMENTS)
        find_stretches(gp, play);
    find_fused(g, r, gp, play);
    return STATUS_OK;
}

/* every meeting on one device needs all its members in this process */
static enum status check_meetings(const struct gang *g, enum routine which, struct error *error)
{
    const struct gang_step *step = &g->step[which];
    for (uint32_t at = 0, n; at < step->n; at += n) {
        n = 1;
        uint32_t c = step->order[at].channel;
        while (at + n < step->n && c != NONE && step->order[at + n].seq == step->order[at].seq &&
               step->order[at + n].channel == c)
            n++;
        const struct exec *e = g->ranks[step->order[at].rank].e;
        if (c == NONE || g->s.nccl || n == e->s.channels->list[c].nmembers)
            continue;
        return error_set(error, STATUS_INPUT, "rank %u, instruction %u: %u of its %u partners come to it",
                         g->first + step->order[at].rank, step->order[at].insn, n, e->s.channels->list[c].nmembers);
    }
    return STATUS_OK;
}

enum status gang_plan(struct gang *g, struct error *error)
{
    error_set(error, STATUS_WORLD, "out of memory while loading programs");
    g->parts = calloc(g->s.n + (size_t)1, sizeof *g->parts);
    if (!g->parts)
        return STATUS_WORLD;
    for (enum routine which = 0; which < NROUTINES; which++) {
        if (!order_step(g, which))
            return STATUS_WORLD;
        for (uint32_t r = 0; r < g->s.n; r++)
            TRY(plan_rank(g, &g->ranks[r], which));
        TRY(check_meetings(g, which, error));
    }
    return STATUS_OK;
}

static void free_play(const struct gang *g, struct gang_play *gp)
{
    for (uint32_t i = 0; gp->event && i < gp->n; i++)
        if (gp->event[i])
            g->cu->EventDestroy(gp->event[i]);
    for (uint32_t i = 0; i < gp->nruns; i++)
        if (gp->runs[i].graph)
            g->cu->GraphExecDestroy(gp->runs[i].graph);
    free(gp->event);
    free(gp->data);
    free(gp->staged);
    free(gp->runs);
    free(gp->run_of);
    free(gp->fused);
    free(gp->place);
    *gp = (struct gang_play){0};
}

void gang_plan_free(struct gang *g)
{
    for (enum routine which = 0; which < NROUTINES; which++) {
        for (uint32_t r = 0; r < g->s.n; r++)
            free_play(g, &g->ranks[r].play[which]);
        if (g->step[which].graph)
            g->cu->GraphExecDestroy(g->step[which].graph);
        free(g->step[which].order);
        g->step[which] = (struct gang_step){0};
    }
    free(g->parts);
    g->parts = NULL;
}

/* choices that the run was given, as the instruction's tokens come */
static void stage_routes(const struct exec *e, const struct kernel_args *k, const double *block, int32_t *out)
{
    const struct view *index = &k->operand[OPND(ROUTE, index)];
    int64_t sequence = k->attr[ATTR(ROUTE, sequence)].i, start = k->attr[ATTR(ROUTE, start)].i;
    int64_t sample = k->attr[ATTR(ROUTE, sample)].i + (int64_t)block[STEP_SAMPLE],
            first = k->attr[ATTR(ROUTE, first)].i;
    int64_t shift = k->attr[ATTR(ROUTE, shift)].i;
    for (uint32_t i = 0; i < index->rows; i++) {
        int64_t row = start + i, within = row % sequence;
        int64_t place = first + within + (within >= sequence / 2 ? shift : 0);
        const uint16_t *given = routing_at(e->s.routing, k->attr[ATTR(ROUTE, layer)].i,
                                           (uint64_t)(sample + row / sequence), (uint64_t)place);
        for (uint32_t j = 0; j < index->cols; j++)
            out[(size_t)i * index->cols + j] = given ? given[j] : 0;
    }
}

void gang_stage_fill(struct gang *g, struct gang_rank *r, enum routine which)
{
    struct exec *e = r->e;
    const struct play *play = &e->play[which];
    const struct gang_play *gp = &r->play[which];
    double *block = exec_buffer(e, which, BUFFER_BLOCK);
    (void)g;
    for (uint32_t s = 0; s < gp->nstaged; s++) {
        uint32_t i = gp->staged[s].insn;
        enum op op = play->p->insns[i].op;
        int32_t *out = (int32_t *)(void *)(r->stage + gp->staged[s].at);
        struct kernel_args k = {.batch = play->batch};
        exec_resolve(e, play->p, i, &k);
        if (op == OP_ROUTE) {
            stage_routes(e, &k, block, out);
            continue;
        }
        uint32_t rows = k.operand[0].data ? k.operand[0].rows : k.operand[1].rows;
        for (uint32_t j = 0; j < 2; j++)
            k.operand[j] = (struct view){out + (size_t)j * rows, DTYPE_I32, false, rows, 1, 1};
        k.operand[OPND(TOKENS, step)].data = block;
        if (op == OP_TOKENS)
            cpu_TOKENS(&k);
        else
            cpu_TOKENS_AHEAD(&k);
    }
}
