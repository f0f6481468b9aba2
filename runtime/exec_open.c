/* Loading programs into the executor: queues, meetings, and the checks that need slot values and kernels.  And what all
 * players have in common. */

#include "runtime/exec_play.h"
#include "runtime/waits.h"
#include "runtime/work.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct view resolve_operand(const struct exec *e, const struct program *p, const struct operand *o)
{
    struct view v = {.data = NULL};
    if (o->buffer == NONE)
        return v;
    uint64_t at = program_operand_offset(p, o);
    if (o->slot != UINT16_MAX)
        at += rank_value(e->s.ranks, e->s.world->rank, o->slot) * o->slot_stride;
    return (struct view){exec_address(e, at), (enum dtype)o->dtype, o->mark == MARK_ADD, o->rows, o->cols, o->ld};
}

void exec_resolve(const struct exec *e, const struct program *p, uint32_t i, struct kernel_args *k)
{
    const struct insn *in = &p->insns[i];
    const struct isa_info *info = isa_info(in->op);
    for (uint32_t j = 0; j < info->noperands; j++)
        k->operand[j] = resolve_operand(e, p, &p->operands[in->operand + j]);
    for (uint32_t j = 0; j < info->nattrs; j++) {
        const struct attr *a = &p->attrs[in->attr + j];
        uint64_t value = a->slot == NONE ? 0 : rank_value(e->s.ranks, e->s.world->rank, a->slot);
        switch (info->attr[j].kind) {
        case ATTR_REAL:
            k->attr[j].f = a->u.f;
            break;
        case ATTR_INT:
            k->attr[j].i = a->u.i;
            break;
        case ATTR_BIND:
            k->attr[j].i = a->u.i + (int64_t)value * a->stride;
            break;
        case ATTR_PEER:
        case ATTR_GROUP:
            k->attr[j].i = (int64_t)value;
            break;
        }
    }
}

static enum status fail_insn(const struct exec *e, const struct program *p, uint32_t i, const char *why,
                             struct error *error)
{
    char line[512] = "";
    FILE *f = fmemopen(line, sizeof line, "w");
    if (f) {
        program_print_insn(p, i, f);
        fclose(f);
    }
    return error_set(error, STATUS_INPUT, "rank %u, instruction %u: %s: %s", e->s.world->rank, i, why, line);
}

static bool allocate(struct play *play, uint32_t nchannels)
{
    size_t n = play->p->ninsns + (size_t)1;
    play->order = calloc(n, sizeof *play->order);
    play->channel = calloc(n, sizeof *play->channel);
    play->self = calloc(n, sizeof *play->self);
    play->number = calloc(n, sizeof *play->number);
    play->meetings = calloc((nchannels + (size_t)1) * NPHASES, sizeof *play->meetings);
    play->kept = calloc(play->p->nbuffers + (size_t)1, sizeof *play->kept);
    play->ended_ns = calloc(n, sizeof *play->ended_ns);
    if (!play->ended_ns || !play->kept)
        return false;
    return play->order && play->channel && play->self && play->number && play->meetings;
}

/* instructions are in seq order, so numbering them as they come is the order in which all members meet */
static enum status number_meetings(const struct exec *e, struct play *play, struct error *error)
{
    const struct program *p = play->p;
    uint64_t *meetings = play->meetings;
    for (uint32_t i = 0, phase = 0; i < p->ninsns; i++) {
        for (; i >= play->phase[phase + 1]; phase++)
            meetings += e->s.channels->n;
        if (!insn_is_meeting(&p->insns[i]))
            continue;
        uint32_t c = channels_of(e->s.channels, e->s.ranks, e->s.world->rank, p, i, &play->self[i]);
        if (play->self[i] == NONE)
            return fail_insn(e, p, i, "this rank is no member of its group", error);
        const struct channel *channel = &e->s.channels->list[c];
        if (p->insns[i].op == OP_BROADCAST &&
            (uint64_t)p->attrs[p->insns[i].attr + ATTR(BROADCAST, root)].u.i >= channel->nmembers)
            return fail_insn(e, p, i, "its root is no member of its group", error);
        if (isa_info(p->insns[i].op)->unit == UNIT_P2P && channel->members[0] == channel->members[1])
            return fail_insn(e, p, i, "a rank cannot send to itself", error);
        play->channel[i] = c;
        play->number[i] = meetings[c]++;
    }
    return STATUS_OK;
}

static enum status check_kernels(struct exec *e, const struct play *play, struct error *error)
{
    for (uint32_t i = 0; i < play->p->ninsns; i++) {
        struct kernel_args k = {.scratch = NULL};
        if (insn_is_meeting(&play->p->insns[i]))
            continue;
        exec_resolve(e, play->p, i, &k);
        enum op op = play->p->insns[i].op;
        const char *why = kernel_check(op, &k);
        why = why ? why : e->s.player->admit(e, op, &k);
        if (why)
            return fail_insn(e, play->p, i, why, error);
    }
    return STATUS_OK;
}

/* persistent buffers, and what the next step's check needs of this one */
static void find_kept(struct play *play)
{
    const struct program *p = play->p;
    for (uint32_t b = 0; b < p->nbuffers; b++)
        play->kept[b] = p->buffers[b].kind != BUFFER_STEP && p->buffers[b].kind != BUFFER_METRICS;
    for (uint32_t i = play->phase[PHASE_CHECK]; i < p->ninsns; i++)
        for (uint32_t k = 0; k < isa_info(p->insns[i].op)->noperands; k++)
            if (p->operands[p->insns[i].operand + k].buffer != NONE)
                play->kept[p->operands[p->insns[i].operand + k].buffer] = true;
}

static enum status load(struct exec *e, struct play *play, const struct program *p, struct error *error)
{
    play->p = p;
    if (p->arena_bytes > e->s.world->arena_size[e->s.world->rank] || !allocate(play, e->s.channels->n))
        return STATUS_WORLD;
    program_phases(p, play->phase);
    find_kept(play);
    program_phase_positions(p, play->at);
    memcpy(play->count, play->at[NPHASES], sizeof play->count);
    for (uint32_t q = 1; q < NQUEUES; q++)
        play->first[q] = play->first[q - 1] + play->count[q - 1];
    uint32_t next[NQUEUES];
    memcpy(next, play->first, sizeof next);
    for (uint32_t i = 0; i < p->ninsns; i++)
        play->order[next[p->insns[i].queue]++] = i;
    TRY(number_meetings(e, play, error));
    return check_kernels(e, play, error);
}

enum status exec_open(struct exec **out, const struct exec_setup *s, struct error *error)
{
    struct exec *e = calloc(1, sizeof *e);
    error_set(error, STATUS_WORLD, "out of memory while loading programs");
    if (!e)
        return STATUS_WORLD;
    e->s = *s;
    e->arena = s->world->arena[s->world->rank];
    /* ranks must not make the same choices */
    e->random = s->shuffle_seed * 0x9e3779b97f4a7c15 + s->world->rank;
    e->met = calloc(s->channels->n + (size_t)1, sizeof *e->met);
    enum status st = e->met ? STATUS_OK : STATUS_WORLD;
    uint32_t role = s->ranks->ranks[s->world->rank].role;
    e->kind = s->work && s->work->nkinds ? s->work->kind[role] : NULL;
    for (uint32_t r = 0; r < NROUTINES && st == STATUS_OK; r++)
        if (s->programs[r] && s->programs[r][role])
            st = load(e, &e->play[r], s->programs[r][role], error);
    e->scratch_bytes = (e->scratch_bytes + 4096) / 4096 * 4096;
    if (st == STATUS_OK && s->watched && s->player->on_cores)
        st = waits_open(&e->play[ROUTINE_TRAIN].waits, s->world->nranks);
    if (st == STATUS_OK)
        st = s->player->open(e, error);
    if (st != STATUS_OK) {
        exec_close(e);
        return st;
    }
    *out = e;
    return STATUS_OK;
}

void exec_close(struct exec *e)
{
    if (!e)
        return;
    e->s.player->close(e);
    for (uint32_t r = 0; r < NROUTINES; r++) {
        free(e->play[r].order);
        free(e->play[r].channel);
        free(e->play[r].self);
        free(e->play[r].number);
        free(e->play[r].meetings);
        free(e->play[r].kept);
        free(e->play[r].ended_ns);
        waits_close(e->play[r].waits);
    }
    free(e->met);
    free(e);
}

const struct program *exec_program(const struct exec *e, enum routine which)
{
    return e->play[which].p;
}

const int64_t *exec_work(const struct exec *e)
{
    return e->work_ns;
}

void exec_tell_waits(struct exec *e, int64_t step_ns)
{
    if (e->play[ROUTINE_TRAIN].waits)
        waits_step(e->play[ROUTINE_TRAIN].waits, &e->s.world->ranks[e->s.world->rank], step_ns);
}

const void *exec_scratch(const struct exec *e, size_t *bytes)
{
    *bytes = e->scratch_bytes;
    return e->scratch;
}

void exec_set_hook(struct exec *e, exec_hook *hook, void *context)
{
    e->hook = hook;
    e->hook_context = context;
}

void exec_place(struct exec *e, uint8_t *host, uint64_t host_bytes, uint8_t *device)
{
    e->host = host;
    e->host_bytes = host_bytes;
    e->arena = (uint8_t *)((uintptr_t)device - host_bytes);
}

enum status exec_run_phase(struct exec *e, enum routine which, enum phase phase, const struct batch_source *batch,
                           struct trace_span *trace)
{
    struct play *play = &e->play[which];
    play->trace = trace;
    play->batch = batch;
    atomic_store(&e->s.world->ranks[e->s.world->rank].evaluating, which == ROUTINE_EVAL);
    TRY(e->s.player->run(e, which, phase));
    for (uint32_t c = 0; c < e->s.channels->n; c++)
        e->met[c] += play->meetings[(size_t)phase * e->s.channels->n + c];
    return STATUS_OK;
}

enum status exec_run(struct exec *e, enum routine which, const struct batch_source *batch, struct trace_span *trace)
{
    for (enum phase phase = PHASE_EARLY; phase < NPHASES; phase++)
        TRY(exec_run_phase(e, which, phase, batch, trace));
    return STATUS_OK;
}

void *exec_buffer(const struct exec *e, enum routine which, enum buffer_kind kind)
{
    const struct program *p = e->play[which].p;
    for (uint32_t b = 0; p && b < p->nbuffers; b++)
        if (p->buffers[b].kind == kind)
            return e->s.world->arena[e->s.world->rank] + p->buffers[b].offset;
    return NULL;
}

/* all persistent buffers between a device and the host's copy of the arena */
static enum status copy_persistent(struct exec *e, bool to_device)
{
    const struct program *p = e->play[ROUTINE_TRAIN].p;
    for (uint32_t b = 0; e->s.player->copy && b < p->nbuffers; b++) {
        const struct buffer *buffer = &p->buffers[b];
        bool kept = buffer->kind == BUFFER_PARAM || buffer->kind == BUFFER_MASTER || buffer->kind == BUFFER_MOMENT1 ||
                    buffer->kind == BUFFER_MOMENT2 || buffer->kind == BUFFER_SCALE;
        if (kept && buffer->bytes)
            TRY(e->s.player->copy(e, buffer->offset, buffer->bytes, to_device));
    }
    return STATUS_OK;
}

enum status exec_to_device(struct exec *e)
{
    TRY(copy_persistent(e, true));
    if (e->s.player->copy) { /* whole pages of the host's copy are given back */
        uint64_t bytes = e->s.world->arena_size[e->s.world->rank];
        uintptr_t start = ((uintptr_t)e->s.world->arena[e->s.world->rank] + 4095) / 4096 * 4096;
        uintptr_t end = ((uintptr_t)e->s.world->arena[e->s.world->rank] + bytes) / 4096 * 4096;
        if (end > start)
            madvise((void *)start, end - start, MADV_REMOVE);
    }
    return STATUS_OK;
}

enum status exec_from_device(struct exec *e)
{
    return copy_persistent(e, false);
}

uint64_t exec_touched(struct exec *e)
{
    uint64_t bytes = e->s.world->arena_size[e->s.world->rank], piece = 1 << 20;
    const uint8_t *arena = e->s.world->arena[e->s.world->rank];
    while (bytes) {
        uint64_t from = (bytes - 1) / piece * piece;
        if (from < e->host_bytes && bytes > e->host_bytes)
            from = e->host_bytes; /* a copy lies on one side */
        if (e->s.player->copy && e->s.player->copy(e, from, bytes - from, false) != STATUS_OK)
            return 0;
        while (bytes > from && arena[bytes - 1] == 0xff)
            bytes--;
        if (bytes > from)
            return bytes;
    }
    return 0;
}

bool exec_has_phases(const struct exec *e)
{
    const struct play *play = &e->play[ROUTINE_TRAIN];
    return play->p && play->phase[PHASE_CHECK] < play->p->ninsns;
}

bool exec_clipped(const struct exec *e)
{
    const struct play *play = &e->play[ROUTINE_TRAIN];
    for (uint32_t i = play->phase[PHASE_CHECK]; i < play->p->ninsns; i++)
        if (play->p->insns[i].op == OP_CLIP) {
            struct kernel_args k;
            exec_resolve(e, play->p, i, &k);
            return *(const double *)k.operand[OPND(CLIP, scale)].data != 1;
        }
    return false;
}
