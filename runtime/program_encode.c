/* Encoding: cut queues into runs, give equal parts of them one number each, write the sections of
 * program_form.h.
 *
 * Linear: parts are found by hash tables over their encoded bytes, symbols of a run by one over (buffer,
 * offset).  A run of instructions that share the lists of one before it (program_share.h) has that one's frame,
 * and is not encoded again.  Numbers are given in order of first use, so equal programs give equal bytes.  Requires
 * program_check(). */

#include "runtime/hash.h"
#include "runtime/program_form.h"
#include "runtime/program_share.h"

#include <stdlib.h>
#include <string.h>

/* distinct byte strings, numbered from 0 */
struct pool {
    struct bytes text; /* all of them, one behind the other */
    size_t *end;       /* of each in text */
    uint32_t n, room;
    uint32_t *table; /* number + 1, or 0; a power of two of entries, at most half full */
    uint32_t table_size;
};

struct symbol {
    uint32_t buffer, number;
    uint64_t offset;
    uint32_t run; /* the entry is empty unless this is the current run */
    bool absolute;
};

/* a run that has been encoded: its frame, and the slot of every ring class in it */
struct written {
    uint32_t frame, slot, nslots; /* slot: the first in the encoder's slots */
};

struct encoder {
    const struct program *p;
    struct pool segments, frames, waits;
    struct pool runs; /* the instructions' lists and lines; their numbers are indices of written */
    struct written *written;
    uint32_t nwritten, written_room;
    struct bytes slots; /* of all of written, 4 bytes each */
    struct bytes calls, seq;
    struct bytes scratch; /* the part being made */
    /* the current run */
    uint32_t run;
    struct symbol *symbols; /* hash table; a power of two of entries */
    uint32_t nsymbols, symbols_size;
    struct bytes frame; /* the symbols, encoded */
    uint32_t last_buffer;
    uint32_t *ring_run, *ring_slot; /* per class: ring_slot is valid if ring_run is the current run */
    uint32_t *classes, nclasses;    /* in order of first use */
    /* the current queue */
    uint32_t wait_position[NQUEUES];
    uint64_t last_frame, last_waits;
    int64_t last_microbatch, last_layer;
};

static void pool_free(struct pool *pool)
{
    free(pool->text.at);
    free(pool->end);
    free(pool->table);
}

static const uint8_t *pool_text(const struct pool *pool, uint32_t i, size_t *n)
{
    size_t from = i ? pool->end[i - 1] : 0;
    *n = pool->end[i] - from;
    return pool->text.at + from;
}

static void pool_grow(struct pool *pool)
{
    uint32_t size = pool->table_size ? 2 * pool->table_size : 64;
    pool->table = program_alloc(pool->table, size, sizeof *pool->table);
    memset(pool->table, 0, size * sizeof *pool->table);
    pool->table_size = size;
    for (uint32_t i = 0; i < pool->n; i++) {
        size_t n;
        const uint8_t *text = pool_text(pool, i, &n);
        uint32_t k = (uint32_t)hash64(text, n, 0) & (size - 1);
        while (pool->table[k])
            k = (k + 1) & (size - 1);
        pool->table[k] = i + 1;
    }
}

static uint32_t pool_number(struct pool *pool, const struct bytes *b)
{
    if (2 * (pool->n + 1) > pool->table_size)
        pool_grow(pool);
    uint32_t k = (uint32_t)hash64(b->at, b->n, 0) & (pool->table_size - 1);
    for (; pool->table[k]; k = (k + 1) & (pool->table_size - 1)) {
        size_t n;
        const uint8_t *text = pool_text(pool, pool->table[k] - 1, &n);
        if (n == b->n && !memcmp(text, b->at, n))
            return pool->table[k] - 1;
    }
    if (pool->n == pool->room) {
        pool->room = 2 * pool->room + 64;
        pool->end = program_alloc(pool->end, pool->room, sizeof *pool->end);
    }
    bytes_raw(&pool->text, b->at, b->n);
    pool->end[pool->n] = pool->text.n;
    pool->table[k] = ++pool->n;
    return pool->n - 1;
}

/* count, then all strings */
static struct bytes pool_section(struct pool *pool)
{
    struct bytes b = {0};
    bytes_number(&b, pool->n);
    bytes_raw(&b, pool->text.at, pool->text.n);
    return b;
}

static void write_head(const struct program *p, struct bytes *b)
{
    bytes_number(b, p->role);
    bytes_number(b, p->nroles);
    bytes_number(b, p->evaluation);
    for (size_t i = 0; i < NJOB_FIELDS; i++) {
        const void *at = (const char *)&p->job + program_job_fields[i].offset;
        switch (program_job_fields[i].kind) {
        case JOB_U64:
            bytes_number(b, *(const uint64_t *)at);
            break;
        case JOB_U32:
            bytes_number(b, *(const uint32_t *)at);
            break;
        case JOB_REAL:
            bytes_real(b, *(const double *)at);
            break;
        }
    }
    bytes_number(b, p->arena_bytes);
    const uint32_t counts[] = {p->nslots, p->nrings, p->nbuffers, p->nbuckets, p->ntensors, p->ninsns};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        bytes_number(b, counts[i]);
}

/* an index that may be NONE */
static void write_optional(struct bytes *b, uint32_t i)
{
    bytes_number(b, (uint64_t)(form_index(i) + 1));
}

static void write_tensor(struct bytes *b, const struct tensor *t)
{
    bytes_text(b, t->name, sizeof t->name);
    bytes_number(b, t->ndim);
    bytes_number(b, t->shape[0]);
    bytes_number(b, t->shape[1]);
    bytes_number(b, t->row);
    bytes_number(b, t->col);
    bytes_number(b, t->rows);
    bytes_number(b, t->cols);
    write_optional(b, t->row_slot);
    write_optional(b, t->col_slot);
    bytes_number(b, t->row_stride);
    bytes_number(b, t->col_stride);
    bytes_number(b, t->transposed);
    bytes_number(b, t->at);
    bytes_number(b, t->init);
    bytes_real(b, t->std);
    bytes_number(b, t->family);
    if (!t->family)
        return;
    bytes_number(b, t->member);
    bytes_number(b, t->boxes);
    write_optional(b, t->member_slot);
    bytes_number(b, t->member_stride);
}

/* where a ring's slots lie: each from where it would lie behind the one before */
static void write_places(const struct program *p, const struct buffer *u, struct bytes *b)
{
    bytes_number(b, u->scattered);
    for (uint32_t k = 1; u->scattered && k < p->rings[u->ring].depth; k++)
        bytes_signed(b, (int64_t)(p->places[u->place + k] - p->places[u->place + k - 1] - u->stride));
}

static void write_tables(const struct program *p, struct bytes *b)
{
    for (uint32_t i = 0; i < p->nslots; i++) {
        const struct slot *s = &p->slots[i];
        bytes_text(b, s->name, sizeof s->name);
        bytes_number(b, s->kind);
        bytes_number(b, s->arg);
        bytes_signed(b, s->most);
    }
    for (uint32_t i = 0; i < p->nrings; i++) {
        const struct ring *r = &p->rings[i];
        bytes_text(b, r->name, sizeof r->name);
        bytes_number(b, r->depth);
    }
    for (uint32_t i = 0; i < p->nbuffers; i++) {
        const struct buffer *u = &p->buffers[i];
        bytes_text(b, u->name, sizeof u->name);
        bytes_number(b, u->kind | (u->host ? PROGRAM_HOST_BIT : 0));
        bytes_number(b, u->dtype);
        write_optional(b, u->ring);
        bytes_number(b, u->bytes);
        bytes_number(b, u->stride);
        bytes_number(b, u->offset);
        if (u->ring != NONE)
            write_places(p, u, b);
        write_optional(b, u->bucket);
        write_optional(b, u->shard_slot);
    }
    for (uint32_t i = 0; i < p->nbuckets; i++) {
        const struct bucket *u = &p->buckets[i];
        bytes_text(b, u->name, sizeof u->name);
        bytes_number(b, u->elements);
        bytes_number(b, u->ntensors);
        bytes_number(b, u->decay);
        write_optional(b, u->count_slot);
    }
    for (uint32_t i = 0; i < p->ntensors; i++)
        write_tensor(b, &p->tensors[i]);
}

/* room for the symbols of a run with n operands */
static void start_run(struct encoder *e, uint64_t noperands)
{
    e->run++;
    e->nsymbols = 0;
    e->frame.n = 0;
    e->last_buffer = 0;
    e->nclasses = 0;
    if (2 * noperands <= e->symbols_size)
        return;
    uint32_t size = e->symbols_size ? e->symbols_size : 64;
    while (size < 2 * noperands)
        size *= 2;
    e->symbols = program_alloc(e->symbols, size, sizeof *e->symbols);
    memset(e->symbols, 0, size * sizeof *e->symbols);
    e->symbols_size = size;
}

static uint32_t find_symbol(struct encoder *e, uint32_t buffer, uint64_t offset, bool absolute)
{
    uint64_t h = (buffer * 2u + absolute + offset * 0x9E3779B97F4A7C15u) * 0xD6E8FEB86659FD93u;
    uint32_t mask = e->symbols_size - 1, k = (uint32_t)(h >> 32) & mask;
    for (; e->symbols[k].run == e->run; k = (k + 1) & mask) {
        const struct symbol *s = &e->symbols[k];
        if (s->buffer == buffer && s->offset == offset && s->absolute == absolute)
            return s->number;
    }
    e->symbols[k] = (struct symbol){buffer, e->nsymbols, offset, e->run, absolute};
    bytes_number(&e->frame, absolute);
    bytes_signed(&e->frame, (int64_t)buffer - (int64_t)e->last_buffer);
    bytes_number(&e->frame, offset);
    e->last_buffer = buffer;
    return e->nsymbols++;
}

/* the symbol of an operand; the first operand that uses a ring class in this run sets the class's slot */
static uint32_t operand_symbol(struct encoder *e, const struct operand *o)
{
    const struct buffer *b = &e->p->buffers[o->buffer];
    if (b->ring == NONE)
        return find_symbol(e, o->buffer, o->offset, false);
    uint32_t slot = (uint32_t)(o->offset / b->stride);
    if (e->ring_run[b->ring] != e->run) {
        e->ring_run[b->ring] = e->run;
        e->ring_slot[b->ring] = slot;
        e->classes[e->nclasses++] = b->ring;
    }
    if (e->ring_slot[b->ring] != slot)
        return find_symbol(e, o->buffer, o->offset, true);
    return find_symbol(e, o->buffer, o->offset % b->stride, false);
}

static void write_attr(struct bytes *b, enum attr_kind kind, const struct attr *a)
{
    switch (kind) {
    case ATTR_INT:
        bytes_signed(b, a->u.i);
        break;
    case ATTR_REAL:
        bytes_real(b, a->u.f);
        break;
    case ATTR_BIND:
        bytes_signed(b, a->u.i);
        write_optional(b, a->slot);
        if (a->slot != NONE)
            bytes_signed(b, a->stride);
        break;
    case ATTR_PEER:
    case ATTR_GROUP:
        bytes_number(b, a->slot);
        break;
    }
}

static void write_insn(struct encoder *e, const struct insn *in, uint32_t *last_line)
{
    const struct isa_info *info = isa_info(in->op);
    const struct operand *operand = e->p->operands + in->operand;
    struct bytes *b = &e->scratch;
    uint64_t present = 0;
    bool choice = false; /* only rows with optional operands say which are present */
    for (uint32_t k = 0; k < info->noperands; k++) {
        choice |= info->operand[k].optional;
        present |= (uint64_t)(operand[k].buffer != NONE) << k;
    }
    bytes_number(b, in->op);
    if (choice)
        bytes_number(b, present);
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = &operand[k];
        if (o->buffer == NONE)
            continue;
        bytes_number(b, o->dtype | (o->mark == MARK_ADD ? FORM_ADD : 0) | (o->slot != UINT16_MAX ? FORM_SLOT : 0) |
                            (o->ld != o->cols ? FORM_LD : 0));
        bytes_number(b, operand_symbol(e, o));
        if (o->slot != UINT16_MAX) {
            bytes_number(b, o->slot);
            bytes_number(b, o->slot_stride);
        }
        bytes_number(b, o->rows);
        bytes_number(b, o->cols);
        if (o->ld != o->cols)
            bytes_number(b, o->ld);
    }
    for (uint32_t k = 0; k < info->nattrs; k++)
        write_attr(b, info->attr[k].kind, e->p->attrs + in->attr + k);
    bytes_signed(b, (int64_t)in->line - (int64_t)*last_line);
    *last_line = in->line;
}

/* does the instruction need another slot of a ring class than the run before it uses? */
static bool conflicts(const struct encoder *e, const struct insn *in, uint32_t mark)
{
    const struct isa_info *info = isa_info(in->op);
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = &e->p->operands[in->operand + k];
        if (o->buffer == NONE || e->p->buffers[o->buffer].ring == NONE)
            continue;
        const struct buffer *b = &e->p->buffers[o->buffer];
        if (e->ring_run[b->ring] == mark && e->ring_slot[b->ring] != o->offset / b->stride)
            return true;
    }
    return false;
}

static void claim_classes(struct encoder *e, const struct insn *in, uint32_t mark)
{
    const struct isa_info *info = isa_info(in->op);
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = &e->p->operands[in->operand + k];
        if (o->buffer == NONE || e->p->buffers[o->buffer].ring == NONE)
            continue;
        const struct buffer *b = &e->p->buffers[o->buffer];
        if (e->ring_run[b->ring] != mark) {
            e->ring_run[b->ring] = mark;
            e->ring_slot[b->ring] = (uint32_t)(o->offset / b->stride);
        }
    }
}

/* end of the run that starts at list[from]; counts its operands */
static uint32_t run_end(struct encoder *e, const uint32_t *list, uint32_t from, uint32_t n, uint64_t *noperands)
{
    const struct insn *first = &e->p->insns[list[from]];
    uint32_t i = from, mark = ++e->run;
    *noperands = 0;
    for (; i < n; i++) {
        const struct insn *in = &e->p->insns[list[i]];
        if (in->action != first->action || in->stage != first->stage || in->microbatch != first->microbatch ||
            in->layer != first->layer || (i > from && conflicts(e, in, mark)))
            break;
        claim_classes(e, in, mark);
        *noperands += isa_info(in->op)->noperands;
    }
    return i;
}

static uint32_t write_waits(struct encoder *e, const uint32_t *list, uint32_t n)
{
    struct bytes *b = &e->scratch;
    uint32_t waiting = 0, last = 0;
    b->n = 0;
    for (uint32_t i = 0; i < n; i++)
        waiting += e->p->insns[list[i]].nwaits != 0;
    bytes_number(b, waiting);
    for (uint32_t i = 0; i < n; i++) {
        const struct insn *in = &e->p->insns[list[i]];
        if (!in->nwaits)
            continue;
        bytes_number(b, i - last);
        bytes_number(b, in->nwaits);
        last = i;
        for (const struct wait *w = e->p->waits + in->wait, *end = w + in->nwaits; w < end; w++) {
            bytes_number(b, w->queue);
            bytes_signed(b, (int64_t)w->position - (int64_t)e->wait_position[w->queue]);
            e->wait_position[w->queue] = w->position;
        }
    }
    return pool_number(&e->waits, b);
}

/* the run's segment and frame */
static uint32_t write_frame(struct encoder *e, const uint32_t *list, uint32_t n, uint64_t noperands)
{
    const struct insn *first = &e->p->insns[list[0]];
    struct bytes *b = &e->scratch;
    uint32_t line = 0;
    start_run(e, noperands);
    b->n = 0;
    bytes_number(b, (uint8_t)first->action);
    bytes_number(b, first->stage == UINT16_MAX ? 0 : first->stage + 1u);
    bytes_number(b, n);
    for (uint32_t i = 0; i < n; i++)
        write_insn(e, &e->p->insns[list[i]], &line);
    bytes_number(b, e->nsymbols);
    uint32_t segment = pool_number(&e->segments, b);
    b->n = 0;
    bytes_number(b, segment);
    bytes_raw(b, e->frame.at, e->frame.n);
    return pool_number(&e->frames, b);
}

/* what has been written for a run of these instructions, now or before */
static const struct written *find_written(struct encoder *e, const uint32_t *list, uint32_t n, uint64_t noperands)
{
    const struct insn *first = &e->p->insns[list[0]];
    const uint32_t head[2] = {(uint32_t)(uint8_t)first->action, first->stage};
    struct bytes *b = &e->scratch;
    b->n = 0;
    bytes_raw(b, head, sizeof head);
    for (uint32_t i = 0; i < n; i++) {
        const struct insn *in = &e->p->insns[list[i]];
        const uint32_t own[4] = {in->op, in->operand, in->attr, in->line};
        bytes_raw(b, own, sizeof own);
    }
    uint32_t number = pool_number(&e->runs, b);
    if (number < e->nwritten)
        return &e->written[number];
    if (e->nwritten == e->written_room) {
        e->written_room = 2 * e->written_room + 64;
        e->written = program_alloc(e->written, e->written_room, sizeof *e->written);
    }
    struct written *w = &e->written[e->nwritten++];
    w->frame = write_frame(e, list, n, noperands);
    w->slot = (uint32_t)(e->slots.n / sizeof *e->ring_slot);
    w->nslots = e->nclasses;
    for (uint32_t i = 0; i < e->nclasses; i++)
        bytes_raw(&e->slots, &e->ring_slot[e->classes[i]], sizeof *e->ring_slot);
    return w;
}

static void write_run(struct encoder *e, const uint32_t *list, uint32_t n, uint64_t noperands)
{
    const struct insn *first = &e->p->insns[list[0]];
    const struct written *w = find_written(e, list, n, noperands);
    uint32_t frame = w->frame, waits = write_waits(e, list, n);
    int64_t microbatch = form_index(first->microbatch), layer = form_index(first->layer);
    bytes_signed(&e->calls, (int64_t)frame - (int64_t)e->last_frame);
    bytes_signed(&e->calls, (int64_t)waits - (int64_t)e->last_waits);
    bytes_signed(&e->calls, microbatch - e->last_microbatch);
    bytes_signed(&e->calls, layer - e->last_layer);
    for (uint32_t i = 0; i < w->nslots; i++) {
        uint32_t slot;
        memcpy(&slot, e->slots.at + (w->slot + i) * sizeof slot, sizeof slot);
        bytes_number(&e->calls, slot);
    }
    e->last_frame = (uint64_t)frame + 1;
    e->last_waits = waits;
    e->last_microbatch = microbatch;
    e->last_layer = layer;
}

static void write_queue(struct encoder *e, const uint32_t *list, uint32_t n)
{
    struct bytes calls = e->calls;
    uint32_t ncalls = 0;
    uint64_t seq = 0;
    memset(e->wait_position, 0, sizeof e->wait_position);
    e->last_frame = e->last_waits = 0;
    e->last_microbatch = e->last_layer = 0;
    e->calls = (struct bytes){0};
    for (uint32_t i = 0; i < n; ncalls++) {
        uint64_t noperands;
        uint32_t end = run_end(e, list, i, n, &noperands);
        write_run(e, list + i, end - i, noperands);
        i = end;
    }
    bytes_number(&calls, ncalls);
    bytes_raw(&calls, e->calls.at, e->calls.n);
    free(e->calls.at);
    e->calls = calls;
    for (uint32_t i = 0; i < n; i++) { /* seq grows along a queue: each is stored less what it must be at least */
        bytes_number(&e->seq, e->p->insns[list[i]].seq - seq);
        seq = (uint64_t)e->p->insns[list[i]].seq + 1;
    }
}

struct container program_container(void)
{
    return (struct container){.magic = PROGRAM_FILE_MAGIC,
                              .what = "program",
                              .version = PROGRAM_FILE_VERSION,
                              .nsections = NSECTIONS,
                              .fingerprint = isa_fingerprint()};
}

enum status program_encode(const struct program *p, uint8_t **bytes, size_t *size)
{
    struct encoder e = {.p = p};
    struct bytes section[NSECTIONS] = {{0}};
    uint32_t count[NQUEUES], next[NQUEUES], sum = 0;
    *bytes = NULL;
    *size = 0;
    for (uint32_t i = 1; i < p->ninsns; i++)
        if (p->insns[i].seq <= p->insns[i - 1].seq)
            return STATUS_BUG;
    uint32_t *list = program_alloc(NULL, p->ninsns, sizeof *list);
    e.ring_run = program_alloc(NULL, p->nrings, sizeof *e.ring_run);
    memset(e.ring_run, 0, p->nrings * sizeof *e.ring_run);
    e.ring_slot = program_alloc(NULL, p->nrings, sizeof *e.ring_slot);
    e.classes = program_alloc(NULL, p->nrings, sizeof *e.classes);
    program_positions(p, list, count);
    for (uint32_t q = 0; q < NQUEUES; sum += count[q++])
        next[q] = sum;
    for (uint32_t i = 0; i < p->ninsns; i++)
        list[next[p->insns[i].queue]++] = i;
    for (uint32_t q = 0; q < NQUEUES; q++)
        write_queue(&e, list + next[q] - count[q], count[q]);

    write_head(p, &section[SECTION_HEAD]);
    write_tables(p, &section[SECTION_TABLES]);
    section[SECTION_SEGMENTS] = pool_section(&e.segments);
    section[SECTION_FRAMES] = pool_section(&e.frames);
    section[SECTION_WAITS] = pool_section(&e.waits);
    section[SECTION_CALLS] = e.calls;
    section[SECTION_SEQ] = e.seq;
    const struct container c = program_container();
    container_write(&c, section, bytes, size);
    pool_free(&e.segments);
    pool_free(&e.frames);
    pool_free(&e.waits);
    pool_free(&e.runs);
    free(e.written);
    free(e.slots.at);
    free(e.scratch.at);
    free(e.frame.at);
    free(e.symbols);
    free(e.ring_run);
    free(e.ring_slot);
    free(e.classes);
    free(list);
    return STATUS_OK;
}
