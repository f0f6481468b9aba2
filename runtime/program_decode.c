/* Decoding: the inverse of program_encode.c, for files that may be hostile.
 *
 * Counts are compared with the bytes left before anything is allocated for them; segments are kept as a small
 * program whose buffers are symbols; totals are known before the expansion (program_expand.c), and every
 * instruction takes at least one byte of the seq section, so memory stays within about a kilobyte per byte of
 * the file.  What was read must pass program_check() and encode to the same bytes.  Time is linear. */

#include "runtime/program_decode.h"
#include "runtime/program_share.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* room for one item more */
static void *room_for(void *array, size_t *room, size_t n, size_t item)
{
    if (n < *room)
        return array;
    *room = 2 * *room + 64;
    return program_alloc(array, *room, item);
}

static uint32_t read_u32(struct reader *r)
{
    return (uint32_t)read_below(r, UINT32_MAX);
}

static uint32_t read_optional(struct reader *r)
{
    uint64_t v = read_below(r, UINT32_MAX);
    return v ? (uint32_t)(v - 1) : NONE;
}

static bool read_bool(struct reader *r)
{
    return read_below(r, 1) != 0;
}

static bool read_head(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_HEAD], *tables = &d->section[SECTION_TABLES];
    struct program *p = d->p;
    p->role = read_u32(r);
    p->nroles = read_u32(r);
    p->evaluation = read_bool(r);
    for (size_t i = 0; i < NJOB_FIELDS; i++) {
        void *at = (char *)&p->job + program_job_fields[i].offset;
        switch (program_job_fields[i].kind) {
        case JOB_U64:
            *(uint64_t *)at = read_number(r);
            break;
        case JOB_U32:
            *(uint32_t *)at = read_u32(r);
            break;
        case JOB_REAL:
            *(double *)at = read_real(r);
            break;
        }
    }
    p->arena_bytes = read_number(r);
    const struct {
        uint32_t *n, most;
        const struct reader *from;
    } counts[] = {{&p->nslots, LIMIT_SLOTS, tables},     {&p->nrings, LIMIT_RINGS, tables},
                  {&p->nbuffers, LIMIT_BUFFERS, tables}, {&p->nbuckets, LIMIT_BUCKETS, tables},
                  {&p->ntensors, LIMIT_TENSORS, tables}, {&p->ninsns, LIMIT_INSNS, &d->section[SECTION_SEQ]}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        *counts[i].n = (uint32_t)read_below(r, counts[i].most);
        r->bad |= *counts[i].n > (size_t)(counts[i].from->end - counts[i].from->at);
    }
    return !r->bad && r->at == r->end;
}

static void *zeroed(size_t n, size_t item)
{
    return memset(program_alloc(NULL, n, item), 0, n * item);
}

static void read_tensor(struct reader *r, struct tensor *t)
{
    read_text(r, t->name, sizeof t->name);
    t->ndim = read_u32(r);
    t->shape[0] = read_number(r);
    t->shape[1] = read_number(r);
    t->row = read_number(r);
    t->col = read_number(r);
    t->rows = read_u32(r);
    t->cols = read_u32(r);
    t->row_slot = read_optional(r);
    t->col_slot = read_optional(r);
    t->row_stride = read_number(r);
    t->col_stride = read_number(r);
    t->transposed = read_bool(r);
    t->at = read_number(r);
    t->init = (enum init_kind)read_below(r, NINIT_KINDS - 1);
    t->std = read_real(r);
    t->member_slot = NONE;
    t->family = read_u32(r);
    if (!t->family)
        return;
    t->member = read_u32(r);
    t->boxes = read_u32(r);
    t->member_slot = read_optional(r);
    t->member_stride = read_number(r);
}

static void read_places(struct reader *r, struct program *p, struct buffer *b)
{
    b->scattered = read_bool(r);
    if (!b->scattered || r->bad)
        return;
    uint64_t at = b->offset;
    b->place = program_add_place(p, at);
    for (uint32_t k = 1; k < p->rings[b->ring].depth && !r->bad; k++) { /* each takes a byte of the file or more */
        at += b->stride + (uint64_t)read_signed(r);
        program_add_place(p, at);
    }
}

static bool read_tables(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_TABLES];
    struct program *p = d->p;
    p->slots = zeroed(p->nslots, sizeof *p->slots);
    p->rings = zeroed(p->nrings, sizeof *p->rings);
    p->buffers = zeroed(p->nbuffers, sizeof *p->buffers);
    p->buckets = zeroed(p->nbuckets, sizeof *p->buckets);
    p->tensors = zeroed(p->ntensors, sizeof *p->tensors);
    for (struct slot *s = p->slots, *end = s + p->nslots; s < end; s++) {
        read_text(r, s->name, sizeof s->name);
        s->kind = (enum slot_kind)read_below(r, NSLOT_KINDS - 1);
        s->arg = read_u32(r);
        s->most = read_signed(r);
    }
    for (struct ring *g = p->rings, *end = g + p->nrings; g < end; g++) {
        read_text(r, g->name, sizeof g->name);
        g->depth = read_u32(r);
    }
    for (struct buffer *b = p->buffers, *end = b + p->nbuffers; b < end; b++) {
        read_text(r, b->name, sizeof b->name);
        uint64_t kind = read_below(r, PROGRAM_HOST_BIT + NBUFFER_KINDS - 1);
        b->host = kind >= PROGRAM_HOST_BIT;
        kind &= PROGRAM_HOST_BIT - 1;
        r->bad |= kind >= NBUFFER_KINDS;
        b->kind = (enum buffer_kind)(kind < NBUFFER_KINDS ? kind : 0);
        b->dtype = (enum dtype)read_below(r, NDTYPES - 1);
        b->ring = read_optional(r);
        b->bytes = read_number(r);
        b->stride = read_number(r);
        b->offset = read_number(r);
        r->bad |= b->ring != NONE && (b->ring >= p->nrings || !b->stride); /* expanding calls relies on it */
        if (b->ring != NONE && !r->bad)
            read_places(r, p, b);
        b->bucket = read_optional(r);
        b->shard_slot = read_optional(r);
    }
    uint32_t tensor = 0;
    for (struct bucket *b = p->buckets, *end = b + p->nbuckets; b < end; b++) {
        read_text(r, b->name, sizeof b->name);
        b->elements = read_number(r);
        b->tensor = tensor;
        b->ntensors = (uint32_t)read_below(r, p->ntensors - tensor);
        b->decay = read_bool(r);
        b->count_slot = read_optional(r);
        tensor += b->ntensors;
    }
    for (struct tensor *t = p->tensors, *end = t + p->ntensors; t < end; t++)
        read_tensor(r, t);
    return !r->bad && r->at == r->end;
}

static void read_operand(struct reader *r, struct operand *o, enum mark table_mark)
{
    uint64_t flags = read_below(r, FORM_ADD | FORM_SLOT | FORM_LD | 3u);
    o->dtype = flags & 3u;
    o->mark = (uint8_t)(table_mark == MARK_ADD && !(flags & FORM_ADD) ? MARK_WRITE : table_mark);
    r->bad |= flags & FORM_ADD && table_mark != MARK_ADD;
    o->buffer = read_u32(r);
    if (flags & FORM_SLOT) {
        o->slot = (uint16_t)read_below(r, LIMIT_SLOTS);
        o->slot_stride = read_number(r);
    }
    o->rows = read_u32(r);
    o->cols = read_u32(r);
    o->ld = flags & FORM_LD ? read_u32(r) : o->cols;
}

static void read_attr(struct reader *r, struct attr *a, enum attr_kind kind)
{
    switch (kind) {
    case ATTR_INT:
        a->u.i = read_signed(r);
        break;
    case ATTR_REAL:
        a->u.f = read_real(r);
        break;
    case ATTR_BIND:
        a->u.i = read_signed(r);
        a->slot = read_optional(r);
        if (a->slot != NONE)
            a->stride = read_signed(r);
        break;
    case ATTR_PEER:
    case ATTR_GROUP:
        a->slot = read_u32(r);
        break;
    }
}

/* one instruction into the template; its buffers are symbols */
static bool read_insn(struct decoder *d, struct reader *r, uint32_t *line)
{
    uint64_t op = read_below(r, NOPS - 1), present = UINT64_MAX;
    if (r->bad)
        return false;
    const struct isa_info *info = isa_info((enum op)op);
    for (uint32_t k = 0; k < info->noperands; k++)
        if (info->operand[k].optional) {
            present = read_below(r, (1u << info->noperands) - 1);
            break;
        }
    uint32_t i = program_insn(d->template, (enum op)op);
    struct insn *in = &d->template->insns[i];
    for (uint32_t k = 0; k < info->noperands; k++)
        if (present >> k & 1)
            read_operand(r, &d->template->operands[in->operand + k], info->operand[k].mark);
    for (uint32_t k = 0; k < info->nattrs; k++)
        read_attr(r, &d->template->attrs[in->attr + k], info->attr[k].kind);
    in->line = *line = read_offset(r, *line, UINT32_MAX);
    return !r->bad;
}

static bool read_segment(struct decoder *d, struct reader *r, struct segment *s)
{
    struct program *t = d->template;
    uint32_t action = (uint32_t)read_below(r, 127), stage = (uint32_t)read_below(r, UINT16_MAX), line = 0;
    uint32_t operand = t->noperands, attr = t->nattrs;
    s->ninsns = read_count(r, LIMIT_INSNS);
    s->insn = t->ninsns;
    if (!s->ninsns)
        return false;
    for (uint32_t i = 0; i < s->ninsns; i++) {
        if (!read_insn(d, r, &line))
            return false;
        t->insns[s->insn + i].action = (char)action;
        t->insns[s->insn + i].stage = stage ? (uint16_t)(stage - 1) : UINT16_MAX;
    }
    s->noperands = t->noperands - operand;
    s->nattrs = t->nattrs - attr;
    s->nsymbols = (uint32_t)read_below(r, s->noperands);
    for (uint32_t i = operand; i < t->noperands; i++)
        if (t->operands[i].buffer != NONE && t->operands[i].buffer >= s->nsymbols)
            return false;
    return !r->bad;
}

static bool read_segments(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_SEGMENTS];
    d->nsegments = read_count(r, LIMIT_INSNS);
    d->segments = zeroed(d->nsegments, sizeof *d->segments);
    for (uint32_t i = 0; i < d->nsegments; i++)
        if (!read_segment(d, r, &d->segments[i]))
            return false;
    return !r->bad && r->at == r->end;
}

static void read_symbol(struct decoder *d, struct reader *r, uint32_t frame, uint32_t *buffer)
{
    bool absolute = read_bool(r);
    struct symbol s = {.class = NONE};
    s.buffer = *buffer = read_offset(r, *buffer, (int64_t)d->p->nbuffers - 1);
    s.offset = read_number(r);
    if (r->bad)
        return;
    uint32_t class = d->p->buffers[s.buffer].ring;
    if (class != NONE && !absolute) {
        if (d->class_frame[class] != frame + 1) {
            d->class_frame[class] = frame + 1;
            d->class_number[class] = d->frames[frame].nclasses++;
        }
        s.class = d->class_number[class];
        r->bad |= s.offset >= d->p->buffers[s.buffer].stride;
    }
    d->symbols = room_for(d->symbols, &d->symbols_room, d->nsymbols, sizeof *d->symbols);
    d->symbols[d->nsymbols++] = s;
}

static bool read_frames(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_FRAMES];
    d->nframes = read_count(r, LIMIT_INSNS);
    d->frames = zeroed(d->nframes, sizeof *d->frames);
    d->class_frame = zeroed(d->p->nrings, sizeof *d->class_frame);
    d->class_number = zeroed(d->p->nrings, sizeof *d->class_number);
    for (uint32_t i = 0; i < d->nframes; i++) {
        uint32_t buffer = 0;
        d->frames[i].segment = (uint32_t)read_below(r, UINT32_MAX);
        d->frames[i].symbol = d->nsymbols;
        if (d->frames[i].segment >= d->nsegments)
            return false;
        for (uint32_t k = 0; k < d->segments[d->frames[i].segment].nsymbols && !r->bad; k++)
            read_symbol(d, r, i, &buffer);
        if (r->bad)
            return false;
    }
    return !r->bad && r->at == r->end;
}

/* patterns are read twice: here for their lengths, and along each call for their waits */
static bool read_patterns(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_WAITS];
    const uint8_t *start = r->at;
    d->npatterns = read_count(r, LIMIT_INSNS);
    d->patterns = zeroed(d->npatterns, sizeof *d->patterns);
    for (uint32_t i = 0; i < d->npatterns && !r->bad; i++) {
        struct pattern *t = &d->patterns[i];
        t->nwaiting = read_count(r, LIMIT_INSNS);
        t->first = (size_t)(r->at - start);
        for (uint32_t k = 0; k < t->nwaiting && !r->bad; k++) {
            read_number(r);
            uint32_t n = (uint32_t)read_below(r, LIMIT_WAITS);
            t->nwaits += n;
            for (uint32_t j = 0; j < n; j++) {
                read_below(r, NQUEUES - 1);
                read_signed(r);
            }
        }
    }
    bool fine = !r->bad && r->at == r->end;
    r->at = start;
    return fine;
}

static bool read_call(struct decoder *d, struct reader *r, struct call *c, const struct call *last)
{
    c->frame = read_offset(r, last ? (int64_t)last->frame + 1 : 0, (int64_t)d->nframes - 1);
    c->pattern = read_offset(r, last ? last->pattern : 0, (int64_t)d->npatterns - 1);
    /* -1 stands for NONE */
    c->microbatch = read_offset(r, (last ? form_index(last->microbatch) : 0) + 1, NONE) - 1;
    c->layer = read_offset(r, (last ? form_index(last->layer) : 0) + 1, NONE) - 1;
    c->slot = d->nslots;
    if (r->bad)
        return false;
    for (uint32_t i = 0; i < d->frames[c->frame].nclasses; i++) {
        d->slots = room_for(d->slots, &d->slots_room, d->nslots, sizeof *d->slots);
        d->slots[d->nslots++] = read_u32(r);
    }
    return !r->bad;
}

/* all calls; in the program, the numbers of operands, attributes and waits; per queue, of instructions */
static bool read_calls(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_CALLS];
    uint64_t ninsns = 0, noperands = 0, nattrs = 0, nwaits = 0;
    for (uint32_t q = 0; q < NQUEUES; q++) {
        struct queue_state *s = &d->queue[q];
        uint32_t n = read_count(r, LIMIT_INSNS);
        s->call = d->ncalls;
        for (uint32_t i = 0; i < n; i++) {
            d->calls = room_for(d->calls, &d->calls_room, d->ncalls, sizeof *d->calls);
            if (!read_call(d, r, &d->calls[d->ncalls], i ? &d->calls[d->ncalls - 1] : NULL))
                return false;
            const struct call *c = &d->calls[d->ncalls++];
            const struct segment *g = &d->segments[d->frames[c->frame].segment];
            s->left += g->ninsns;
            noperands += g->noperands;
            nattrs += g->nattrs;
            nwaits += d->patterns[c->pattern].nwaits;
            if (d->patterns[c->pattern].nwaiting > g->ninsns)
                return false;
        }
        s->calls_end = d->ncalls;
        ninsns += s->left;
    }
    /* ninsns <= LIMIT_INSNS: each has at most 12 operands, 12 attributes and LIMIT_WAITS waits */
    if (r->bad || r->at != r->end || ninsns != d->p->ninsns)
        return false;
    d->p->noperands = (uint32_t)noperands;
    d->p->nattrs = (uint32_t)nattrs;
    d->p->nwaits = (uint32_t)nwaits;
    return true;
}

static enum status decode(struct decoder *d, char *error, size_t error_size)
{
    const struct {
        const char *what;
        bool (*read)(struct decoder *);
    } parts[] = {{"header fields", read_head},    {"tables", read_tables},  {"segments", read_segments},
                 {"frames", read_frames},         {"waits", read_patterns}, {"calls", read_calls},
                 {"instructions", program_expand}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!parts[i].read(d))
            return program_fault(error, error_size, "its %s are malformed", parts[i].what);
    if (d->p->nbuffers && !d->p->arena_bytes)
        return program_fault(error, error_size, "its buffers have no place");
    return program_check(d->p, error, error_size);
}

/* one form per program: what was read must encode to the bytes it was read from */
static enum status check_canonical(const struct program *p, const uint8_t *bytes, size_t size, char *error,
                                   size_t error_size)
{
    uint8_t *again;
    size_t again_size;
    TRY(program_encode(p, &again, &again_size));
    bool same = size == again_size && !memcmp(bytes, again, size);
    free(again);
    return same ? STATUS_OK
                : program_fault(error, error_size, "it is not written in the one form its contents have");
}

enum status program_decode(const uint8_t *bytes, size_t size, struct program **p, char *error,
                           size_t error_size)
{
    const struct container c = program_container();
    struct decoder d = {0};
    *p = NULL;
    if (size > LIMIT_FILE)
        return program_fault(error, error_size, "%zu bytes, at most %" PRIu64 " are read", size, LIMIT_FILE);
    TRY(container_open(&c, bytes, size, d.section, error, error_size));
    d.p = program_new(0, 0);
    d.template = program_new(0, 0);
    enum status s = decode(&d, error, error_size);
    program_free(d.template);
    free(d.segments);
    free(d.frames);
    free(d.symbols);
    free(d.patterns);
    free(d.calls);
    free(d.slots);
    free(d.class_frame);
    free(d.class_number);
    if (s == STATUS_OK)
        s = check_canonical(d.p, bytes, size, error, error_size);
    if (s == STATUS_OK)
        *p = d.p;
    else
        program_free(d.p);
    return s;
}

enum status program_read(const char *path, struct program **p, char *error, size_t error_size)
{
    uint8_t *bytes;
    size_t size;
    char fault[700] = "";
    *p = NULL;
    TRY(container_load(path, &bytes, &size, error, error_size));
    enum status s = program_decode(bytes, size, p, fault, sizeof fault);
    free(bytes);
    if (s != STATUS_OK)
        program_fault(error, error_size, "%s: %s", path, fault);
    return s;
}
