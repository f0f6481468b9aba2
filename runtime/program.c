/* Building programs: ten growing arrays and what reorders them.
 *
 * Arrays double, so building is amortised O(1) per item.  Neither a compiler that builds a program nor a rank
 * that loads one has a way to go on without memory, so running out of it ends the process with exit code 4
 * and one line, as the compiler's arena does. */

#include "runtime/program.h"
#include "runtime/program_share.h"
#include "runtime/program_words.h"
#include "runtime/workspace.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROOM_SLOTS,
    ROOM_RINGS,
    ROOM_BUFFERS,
    ROOM_BUCKETS,
    ROOM_TENSORS,
    ROOM_PLACES,
    ROOM_INSNS,
    ROOM_OPERANDS,
    ROOM_ATTRS,
    ROOM_WAITS
};

void *program_alloc(void *array, size_t n, size_t item)
{
    void *p = n > SIZE_MAX / 2 / item ? NULL : realloc(array, n ? n * item : 1);
    if (!p) {
        fprintf(stderr, "out of memory (%zu items of %zu bytes wanted)\n", n, item);
        exit(STATUS_WORLD);
    }
    return p;
}

/* room for n + extra items; the new ones are zero */
static void *grow(void *array, uint32_t *room, uint32_t n, uint32_t extra, size_t item)
{
    uint64_t want = (uint64_t)n + extra, next = *room ? *room : 16;
    if (want > *room) {
        while (next < want)
            next *= 2;
        if (next > UINT32_MAX)
            next = UINT32_MAX;
        array = program_alloc(array, want > next ? SIZE_MAX : (size_t)next, item);
        *room = (uint32_t)next;
    }
    if (extra)
        memset((char *)array + (size_t)n * item, 0, (size_t)extra * item);
    return array;
}

static void copy_name(char *to, size_t size, const char *name)
{
    size_t n = strnlen(name, size - 1);
    memcpy(to, name, n);
    memset(to + n, 0, size - n);
}

struct program *program_new(uint32_t role, uint32_t nroles)
{
    struct program *p = program_alloc(NULL, 1, sizeof *p);
    memset(p, 0, sizeof *p);
    p->role = role;
    p->nroles = nroles;
    return p;
}

void program_free(struct program *p)
{
    if (!p)
        return;
    free(p->slots);
    free(p->rings);
    free(p->buffers);
    free(p->buckets);
    free(p->tensors);
    free(p->places);
    free(p->insns);
    free(p->operands);
    free(p->attrs);
    free(p->waits);
    free(p);
}

uint32_t program_slot(struct program *p, const char *name, enum slot_kind kind, uint32_t arg, int64_t most)
{
    p->slots = grow(p->slots, &p->room[ROOM_SLOTS], p->nslots, 1, sizeof *p->slots);
    struct slot *s = &p->slots[p->nslots];
    copy_name(s->name, sizeof s->name, name);
    s->kind = kind;
    s->arg = arg;
    s->most = most;
    return p->nslots++;
}

uint32_t program_ring(struct program *p, const char *name, uint32_t depth)
{
    p->rings = grow(p->rings, &p->room[ROOM_RINGS], p->nrings, 1, sizeof *p->rings);
    struct ring *r = &p->rings[p->nrings];
    copy_name(r->name, sizeof r->name, name);
    r->depth = depth;
    return p->nrings++;
}

/* structs are copied member by member where they hold names: bytes behind a name's end must be 0 */
uint32_t program_buffer(struct program *p, const struct buffer *b)
{
    struct buffer copy = *b;
    copy_name(copy.name, sizeof copy.name, b->name);
    p->buffers = grow(p->buffers, &p->room[ROOM_BUFFERS], p->nbuffers, 1, sizeof *p->buffers);
    p->buffers[p->nbuffers] = copy;
    return p->nbuffers++;
}

uint32_t program_add_place(struct program *p, uint64_t offset)
{
    p->places = grow(p->places, &p->room[ROOM_PLACES], p->nplaces, 1, sizeof *p->places);
    p->places[p->nplaces] = offset;
    return p->nplaces++;
}

uint64_t program_host_bytes(const struct program *p)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const struct buffer *b = &p->buffers[i];
        if (b->host && b->offset + b->bytes > end)
            end = b->offset + b->bytes;
    }
    return (end + 255) / 256 * 256;
}

bool program_phases(const struct program *p, uint32_t at[NPHASES + 1])
{
    uint32_t n = 0;
    at[0] = at[1] = 0;
    at[2] = at[NPHASES] = p->ninsns;
    for (uint32_t i = 0; i < p->ninsns && n < 2; i++)
        if (p->insns[i].op == OP_SEAM)
            at[++n] = i + 1;
    return n == 2;
}

bool program_phase_positions(const struct program *p, uint32_t at[NPHASES + 1][NQUEUES])
{
    uint32_t begin[NPHASES + 1], count[NQUEUES] = {0};
    bool seams = program_phases(p, begin);
    for (uint32_t i = 0, k = 0; i <= p->ninsns; i++) {
        for (; k <= NPHASES && i == begin[k]; k++)
            memcpy(at[k], count, sizeof count);
        if (i < p->ninsns)
            count[p->insns[i].queue]++;
    }
    return seams;
}

uint32_t program_bucket(struct program *p, const struct bucket *b)
{
    struct bucket copy = *b;
    copy_name(copy.name, sizeof copy.name, b->name);
    p->buckets = grow(p->buckets, &p->room[ROOM_BUCKETS], p->nbuckets, 1, sizeof *p->buckets);
    p->buckets[p->nbuckets] = copy;
    return p->nbuckets++;
}

uint32_t tensor_boxes(const struct tensor *t)
{
    return t->family ? t->boxes : 1;
}

void tensor_name(const struct tensor *t, uint64_t member, char *out, size_t size)
{
    const char *at = t->family ? strchr(t->name, '%') : NULL;
    if (at)
        snprintf(out, size, "%.*s%llu%s", (int)(at - t->name), t->name, (unsigned long long)member, at + 1);
    else
        snprintf(out, size, "%s", t->name);
}

uint32_t program_tensor(struct program *p, const struct tensor *t)
{
    struct tensor copy = *t;
    copy_name(copy.name, sizeof copy.name, t->name);
    if (!t->family) {
        copy.member = copy.boxes = 0;
        copy.member_slot = NONE;
        copy.member_stride = 0;
    }
    p->tensors = grow(p->tensors, &p->room[ROOM_TENSORS], p->ntensors, 1, sizeof *p->tensors);
    p->tensors[p->ntensors] = copy;
    return p->ntensors++;
}

uint32_t program_insn(struct program *p, enum op op)
{
    const struct isa_info *info = isa_info(op);
    p->insns = grow(p->insns, &p->room[ROOM_INSNS], p->ninsns, 1, sizeof *p->insns);
    p->operands = grow(p->operands, &p->room[ROOM_OPERANDS], p->noperands, info->noperands, sizeof *p->operands);
    p->attrs = grow(p->attrs, &p->room[ROOM_ATTRS], p->nattrs, info->nattrs, sizeof *p->attrs);
    struct insn *in = &p->insns[p->ninsns];
    in->op = op;
    in->queue = (uint8_t)(info->queue == QUEUE_ANY ? QUEUE_TP : info->queue);
    in->operand = p->noperands;
    in->attr = p->nattrs;
    in->wait = p->nwaits;
    in->stage = UINT16_MAX;
    in->layer = in->microbatch = NONE;
    for (uint32_t i = 0; i < info->noperands; i++) {
        p->operands[p->noperands + i].buffer = NONE;
        p->operands[p->noperands + i].slot = UINT16_MAX;
    }
    for (uint32_t i = 0; i < info->nattrs; i++)
        p->attrs[p->nattrs + i].slot = NONE;
    p->noperands += info->noperands;
    p->nattrs += info->nattrs;
    return p->ninsns++;
}

uint32_t program_repeat(struct program *p, uint32_t insn)
{
    p->insns = grow(p->insns, &p->room[ROOM_INSNS], p->ninsns, 1, sizeof *p->insns);
    p->insns[p->ninsns] = p->insns[insn];
    return p->ninsns++;
}

void program_wait(struct program *p, uint32_t insn, enum queue q, uint32_t position)
{
    struct insn *in = &p->insns[insn];
    p->waits = grow(p->waits, &p->room[ROOM_WAITS], p->nwaits, 1, sizeof *p->waits);
    p->waits[p->nwaits].queue = (uint8_t)q;
    p->waits[p->nwaits].position = position;
    p->nwaits++;
    in->nwaits++;
}

void program_set_waits(struct program *p, const struct wait *list, const uint32_t *first)
{
    uint32_t n = p->ninsns ? first[p->ninsns] - first[0] : 0;
    p->waits = grow(p->waits, &p->room[ROOM_WAITS], 0, n, sizeof *p->waits);
    for (uint32_t i = 0; i < n; i++) { /* member by member: padding stays 0 */
        p->waits[i].queue = list[first[0] + i].queue;
        p->waits[i].position = list[first[0] + i].position;
    }
    p->nwaits = n;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        p->insns[i].wait = first[i] - first[0];
        /* a list that does not fit is left too long for program_check() rather than cut */
        p->insns[i].nwaits = (uint8_t)(first[i + 1] - first[i] < UINT8_MAX ? first[i + 1] - first[i] : UINT8_MAX);
    }
}

void program_positions(const struct program *p, uint32_t *out, uint32_t count[NQUEUES])
{
    memset(count, 0, NQUEUES * sizeof *count);
    for (uint32_t i = 0; i < p->ninsns; i++)
        out[i] = count[p->insns[i].queue]++;
}

/* new_position[first[q] + k] = position, after the reordering, of the k-th instruction of queue q before it
 */
static void map_positions(const struct program *p, const uint32_t *order, const uint32_t *old_position,
                          const uint32_t *first, uint32_t *new_position)
{
    uint32_t next[NQUEUES] = {0};
    for (uint32_t i = 0; i < p->ninsns; i++) {
        uint32_t old = order[i];
        enum queue q = (enum queue)p->insns[old].queue;
        new_position[first[q] + old_position[old]] = next[q]++;
    }
}

void program_permute(struct program *p, const uint32_t *order)
{
    uint32_t n = p->ninsns, count[NQUEUES], first[NQUEUES];
    if (!n)
        return;
    uint32_t *position = NULL, *moved = NULL;
    if (p->nwaits) {
        position = program_alloc(NULL, n, sizeof *position);
        moved = program_alloc(NULL, n, sizeof *moved);
        program_positions(p, position, count);
        for (uint32_t q = 0, sum = 0; q < NQUEUES; sum += count[q++])
            first[q] = sum;
        map_positions(p, order, position, first, moved);
    }

    struct insn *insns = program_alloc(NULL, n, sizeof *insns);
    struct wait *waits = program_alloc(NULL, (size_t)p->nwaits + 1, sizeof *waits);
    uint32_t nwaits = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct insn *old = &p->insns[order[i]];
        insns[i] = *old;
        insns[i].wait = nwaits;
        for (uint32_t k = 0; k < old->nwaits; k++) {
            struct wait w = p->waits[old->wait + k];
            if (w.queue < NQUEUES && w.position < count[w.queue])
                w.position = moved[first[w.queue] + w.position];
            waits[nwaits + k] = w;
        }
        nwaits += old->nwaits;
    }
    free(position);
    free(moved);
    free(p->insns);
    free(p->waits);
    p->insns = insns;
    p->waits = waits;
    p->room[ROOM_INSNS] = n;
    p->room[ROOM_WAITS] = p->nwaits + 1;
}

void program_trim(struct program *p)
{
    p->operands = program_alloc(p->operands, (size_t)p->noperands + 1, sizeof *p->operands);
    p->attrs = program_alloc(p->attrs, (size_t)p->nattrs + 1, sizeof *p->attrs);
    p->room[ROOM_OPERANDS] = p->noperands + 1;
    p->room[ROOM_ATTRS] = p->nattrs + 1;
}

uint64_t program_workspace_bytes(const struct program *p, uint32_t sm)
{
    uint64_t most = 0, *seen = program_alloc(NULL, (size_t)p->noperands + 1, sizeof *seen);
    memset(seen, 0, ((size_t)p->noperands + 1) * sizeof *seen);
    for (uint32_t i = 0; sm && i < p->ninsns; i++) {
        const struct insn *in = &p->insns[i];
        const struct isa_info *info = isa_info(in->op);
        if (in->queue != QUEUE_COMPUTE || program_seen(seen, in))
            continue;
        struct workspace_of w = {.attr = {0}};
        for (uint32_t k = 0; k < info->noperands; k++) {
            const struct operand *o = &p->operands[in->operand + k];
            if (o->buffer == NONE)
                continue;
            w.operand[k].rows = o->rows;
            w.operand[k].cols = o->cols;
            w.operand[k].dtype = (enum dtype)o->dtype;
        }
        for (uint32_t k = 0; k < info->nattrs; k++)
            w.attr[k] = info->attr[k].kind == ATTR_REAL ? p->attrs[in->attr + k].u.f != 0 : p->attrs[in->attr + k].u.i;
        uint64_t bytes = workspace_bytes(in->op, &w, sm);
        most = bytes > most ? bytes : most;
    }
    free(seen);
    return most;
}
