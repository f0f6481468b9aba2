/* Decoding: the inverse of program_encode.c, for files that may be hostile.
 *
 * What was read must pass program_check() and encode to the same bytes, so whatever is wrong is refused at
 * the end, and only what memory rests on is looked at before.  Counts are compared with the bytes left before
 * anything is allocated for them; segments are kept as a small program whose buffers are symbols; totals are
 * known before the expansion (program_expand.c), and every instruction takes at least one byte of the seq
 * section, so memory stays within about a kilobyte per byte of the file.  Time is linear. */

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
    return (uint32_t)read_number(r);
}

static uint32_t read_optional(struct reader *r)
{
    return read_u32(r) - 1; /* 0 stands for NONE */
}

static bool read_bool(struct reader *r)
{
    return read_number(r) != 0;
}

static void read_head(struct decoder *d)
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
        uint32_t *n;
        const struct reader *from;
    } counts[] = {{&p->nslots, tables},   {&p->nrings, tables},   {&p->nbuffers, tables},
                  {&p->nbuckets, tables}, {&p->ntensors, tables}, {&p->ninsns, &d->section[SECTION_SEQ]}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        *counts[i].n = (uint32_t)read_below(r, LIMIT_INSNS + 1);
        r->bad |= *counts[i].n > (size_t)(counts[i].from->end - counts[i].from->at);
    }
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
    t->init = (enum init_kind)read_u32(r);
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
    if (!b->scattered)
        return;
    uint64_t at = b->offset;
    b->place = program_add_place(p, at);
    for (uint32_t k = 1; k < p->rings[b->ring].depth && !r->bad; k++) { /* each takes a byte of the file or more */
        at += b->stride + (uint64_t)read_signed(r);
        program_add_place(p, at);
    }
}

static void read_tables(struct decoder *d)
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
        s->kind = (enum slot_kind)read_u32(r);
        s->arg = read_u32(r);
        s->most = read_signed(r);
    }
    for (struct ring *g = p->rings, *end = g + p->nrings; g < end; g++) {
        read_text(r, g->name, sizeof g->name);
        g->depth = read_u32(r);
    }
    for (struct buffer *b = p->buffers, *end = b + p->nbuffers; b < end; b++) {
        read_text(r, b->name, sizeof b->name);
        uint32_t kind = read_u32(r);
        b->host = kind & PROGRAM_HOST_BIT;
        b->kind = (enum buffer_kind)(kind & ~PROGRAM_HOST_BIT);
        b->dtype = (enum dtype)read_u32(r);
        b->ring = read_optional(r);
        b->bytes = read_number(r);
        b->stride = read_number(r);
        b->offset = read_number(r);
        if (b->ring < p->nrings)
            read_places(r, p, b);
        b->bucket = read_optional(r);
        b->shard_slot = read_optional(r);
    }
    uint32_t tensor = 0;
    for (struct bucket *b = p->buckets, *end = b + p->nbuckets; b < end; b++) {
        read_text(r, b->name, sizeof b->name);
        b->elements = read_number(r);
        b->tensor = tensor;
        b->ntensors = read_u32(r);
        b->decay = read_bool(r);
        b->count_slot = read_optional(r);
        tensor += b->ntensors;
    }
    for (struct tensor *t = p->tensors, *end = t + p->ntensors; t < end; t++)
        read_tensor(r, t);
}

static void read_operand(struct reader *r, struct operand *o, enum mark table_mark)
{
    uint32_t flags = read_u32(r);
    o->dtype = flags & 7u;
    o->mark = (uint8_t)(table_mark == MARK_ADD && !(flags & FORM_ADD) ? MARK_WRITE : table_mark);
    o->buffer = read_u32(r);
    if (flags & FORM_SLOT) {
        o->slot = (uint16_t)read_u32(r);
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
static void read_insn(struct decoder *d, struct reader *r, uint32_t *line)
{
    enum op op = (enum op)read_below(r, NOPS);
    const struct isa_info *info = isa_info(op);
    uint64_t present = UINT64_MAX;
    for (uint32_t k = 0; k < info->noperands; k++)
        if (info->operand[k].optional) {
            present = read_number(r);
            break;
        }
    uint32_t i = program_insn(d->template, op);
    struct insn *in = &d->template->insns[i];
    for (uint32_t k = 0; k < info->noperands; k++)
        if (present >> k & 1)
            read_operand(r, &d->template->operands[in->operand + k], info->operand[k].mark);
    for (uint32_t k = 0; k < info->nattrs; k++)
        read_attr(r, &d->template->attrs[in->attr + k], info->attr[k].kind);
    in->line = *line += (uint32_t)read_signed(r);
}

static void read_segment(struct decoder *d, struct reader *r, struct segment *s)
{
    struct program *t = d->template;
    uint32_t action = read_u32(r), stage = read_u32(r), line = 0, operand = t->noperands, attr = t->nattrs;
    s->ninsns = read_count(r);
    s->insn = t->ninsns;
    r->bad |= !s->ninsns;
    for (uint32_t i = 0; i < s->ninsns && !r->bad; i++) {
        read_insn(d, r, &line);
        t->insns[s->insn + i].action = (char)action;
        t->insns[s->insn + i].stage = (uint16_t)(stage - 1); /* 0 stands for none */
    }
    s->noperands = t->noperands - operand;
    s->nattrs = t->nattrs - attr;
    s->nsymbols = read_u32(r);
    for (uint32_t i = operand; i < t->noperands; i++)
        r->bad |= t->operands[i].buffer != NONE && t->operands[i].buffer >= s->nsymbols;
}

static void read_segments(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_SEGMENTS];
    d->nsegments = read_count(r);
    d->segments = zeroed(d->nsegments, sizeof *d->segments);
    for (uint32_t i = 0; i < d->nsegments && !r->bad; i++)
        read_segment(d, r, &d->segments[i]);
}

static void read_symbol(struct decoder *d, struct reader *r, uint32_t frame, uint32_t *buffer)
{
    bool absolute = read_bool(r);
    struct symbol s = {.class = NONE};
    s.buffer = *buffer = read_offset(r, *buffer, d->p->nbuffers);
    s.offset = read_number(r);
    if (r->bad)
        return;
    uint32_t class = d->p->buffers[s.buffer].ring;
    if (class < d->p->nrings && !absolute) {
        if (d->class_frame[class] != frame + 1) {
            d->class_frame[class] = frame + 1;
            d->class_number[class] = d->frames[frame].nclasses++;
        }
        s.class = d->class_number[class];
    }
    d->symbols = room_for(d->symbols, &d->symbols_room, d->nsymbols, sizeof *d->symbols);
    d->symbols[d->nsymbols++] = s;
}

static void read_frames(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_FRAMES];
    d->nframes = read_count(r);
    d->frames = zeroed(d->nframes, sizeof *d->frames);
    d->class_frame = zeroed(d->p->nrings, sizeof *d->class_frame);
    d->class_number = zeroed(d->p->nrings, sizeof *d->class_number);
    for (uint32_t i = 0; i < d->nframes && !r->bad; i++) {
        uint32_t buffer = 0;
        d->frames[i].segment = (uint32_t)read_below(r, d->nsegments);
        d->frames[i].symbol = d->nsymbols;
        for (uint32_t k = 0; !r->bad && k < d->segments[d->frames[i].segment].nsymbols; k++)
            read_symbol(d, r, i, &buffer);
    }
}

/* patterns are read twice: here for their lengths, and along each call for their waits */
static void read_patterns(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_WAITS];
    d->npatterns = read_count(r);
    d->patterns = zeroed(d->npatterns, sizeof *d->patterns);
    for (uint32_t i = 0; i < d->npatterns && !r->bad; i++) {
        struct pattern *t = &d->patterns[i];
        t->nwaiting = read_count(r);
        t->first = r->at;
        for (uint32_t k = 0; k < t->nwaiting && !r->bad; k++) {
            read_number(r);
            uint32_t n = (uint32_t)read_below(r, LIMIT_WAITS + 1);
            t->nwaits += n;
            for (uint32_t j = 0; j < n; j++) {
                read_below(r, NQUEUES);
                read_signed(r);
            }
        }
    }
}

static void read_call(struct decoder *d, struct reader *r, struct call *c, const struct call *last)
{
    c->frame = read_offset(r, last ? (int64_t)last->frame + 1 : 0, d->nframes);
    c->pattern = read_offset(r, last ? last->pattern : 0, d->npatterns);
    c->microbatch = (last ? last->microbatch : 0) + (uint32_t)read_signed(r); /* -1 stands for NONE */
    c->layer = (last ? last->layer : 0) + (uint32_t)read_signed(r);
    c->slot = d->nslots;
    for (uint32_t i = 0; !r->bad && i < d->frames[c->frame].nclasses; i++) {
        d->slots = room_for(d->slots, &d->slots_room, d->nslots, sizeof *d->slots);
        d->slots[d->nslots++] = read_u32(r);
    }
}

/* all calls; in the program, the numbers of operands, attributes and waits; per queue, of instructions */
static void read_calls(struct decoder *d)
{
    struct reader *r = &d->section[SECTION_CALLS];
    uint64_t ninsns = 0, noperands = 0, nattrs = 0, nwaits = 0;
    for (uint32_t q = 0; q < NQUEUES; q++) {
        struct queue_state *s = &d->queue[q];
        uint32_t n = read_count(r);
        s->call = d->ncalls;
        for (uint32_t i = 0; i < n; i++) {
            d->calls = room_for(d->calls, &d->calls_room, d->ncalls, sizeof *d->calls);
            read_call(d, r, &d->calls[d->ncalls], i ? &d->calls[d->ncalls - 1] : NULL);
            if (r->bad)
                return;
            const struct call *c = &d->calls[d->ncalls++];
            const struct segment *g = &d->segments[d->frames[c->frame].segment];
            s->left += g->ninsns;
            noperands += g->noperands;
            nattrs += g->nattrs;
            nwaits += d->patterns[c->pattern].nwaits;
            r->bad |= d->patterns[c->pattern].nwaiting > g->ninsns;
        }
        s->calls_end = d->ncalls;
        ninsns += s->left;
    }
    /* ninsns <= LIMIT_INSNS: each has at most 12 operands, 12 attributes and LIMIT_WAITS waits */
    r->bad |= ninsns != d->p->ninsns;
    d->p->noperands = (uint32_t)noperands;
    d->p->nattrs = (uint32_t)nattrs;
    d->p->nwaits = (uint32_t)nwaits;
}

static enum status decode(struct decoder *d, struct error *error)
{
    const struct {
        const char *what;
        enum section section;
        void (*read)(struct decoder *);
    } parts[] = {{"header fields", SECTION_HEAD, read_head},    {"tables", SECTION_TABLES, read_tables},
                 {"segments", SECTION_SEGMENTS, read_segments}, {"frames", SECTION_FRAMES, read_frames},
                 {"waits", SECTION_WAITS, read_patterns},       {"calls", SECTION_CALLS, read_calls}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        parts[i].read(d);
        if (d->section[parts[i].section].bad)
            return error_set(error, STATUS_INPUT, "its %s are malformed", parts[i].what);
    }
    program_expand(d);
    if (d->p->nbuffers && !d->p->arena_bytes)
        return error_set(error, STATUS_INPUT, "its buffers have no place");
    return program_check(d->p, error);
}

/* one form per program: what was read must encode to the bytes it was read from */
static enum status check_canonical(const struct program *p, const uint8_t *bytes, size_t size, struct error *error)
{
    uint8_t *again;
    size_t again_size;
    TRY(program_encode(p, &again, &again_size));
    bool same = size == again_size && !memcmp(bytes, again, size);
    free(again);
    return same ? STATUS_OK : error_set(error, STATUS_INPUT, "it is not written in the one form its contents have");
}

enum status program_decode(const uint8_t *bytes, size_t size, struct program **p, struct error *error)
{
    const struct container c = program_container();
    struct decoder d = {0};
    *p = NULL;
    if (size > LIMIT_FILE)
        return error_set(error, STATUS_INPUT, "%zu bytes, at most %" PRIu64 " are read", size, LIMIT_FILE);
    TRY(container_open(&c, bytes, size, d.section, error));
    d.p = program_new(0, 0);
    d.template = program_new(0, 0);
    enum status s = decode(&d, error);
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
        s = check_canonical(d.p, bytes, size, error);
    if (s == STATUS_OK)
        *p = d.p;
    else
        program_free(d.p);
    return s;
}

enum status program_read(const char *path, struct program **p, struct error *error)
{
    uint8_t *bytes;
    size_t size;
    *p = NULL;
    TRY(container_load(path, &bytes, &size, error));
    enum status s = program_decode(bytes, size, p, error);
    free(bytes);
    return s == STATUS_OK ? s : error_set(error, s, "%s: %s", path, error->text);
}
