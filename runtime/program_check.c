/* Structural checks of a program (property 1): everything but the instructions, which program_check_code.c
 * does.
 *
 * After it, nothing that reads a program needs to check an index, a size or a name again.  Arithmetic is on
 * values below LIMIT_BYTES, so sums of a few cannot wrap; products are checked.  Linear, but for sorting each
 * bucket's tensors. */

#include "runtime/program.h"
#include "runtime/program_share.h"
#include "runtime/program_words.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct check {
    const struct program *p;
    struct error *error;
    uint64_t host_bytes; /* the arena's beginning */
};

#define FAULT(...) error_set(c->error, STATUS_INPUT, __VA_ARGS__)

bool program_slot_counts(const struct program *p, uint32_t slot)
{
    return slot < p->nslots && (p->slots[slot].kind == SLOT_COORD || p->slots[slot].kind == SLOT_FIRST ||
                                p->slots[slot].kind == SLOT_BEHIND);
}

/* names are read by people, and by the text form, which ends them at what may not be in them */
static enum status check_name(const struct check *c, const char *what, uint32_t i, const char *name, size_t size)
{
    size_t n = strnlen(name, size);
    if (n == size)
        return FAULT("%s %" PRIu32 ": its name is not terminated", what, i);
    if (!n)
        return FAULT("%s %" PRIu32 ": it has no name", what, i);
    for (size_t k = 0; k < n; k++)
        if (name[k] <= ' ' || name[k] > '~' || strchr(PROGRAM_NAME_ENDS, name[k]))
            return FAULT("%s %" PRIu32 ": byte %d in its name; allowed are printable ASCII characters but %s", what, i,
                         (unsigned char)name[k], PROGRAM_NAME_ENDS);
    return STATUS_OK;
}
#define CHECK_NAME(what, i, name) TRY(check_name(c, what, i, name, sizeof(name)))

static enum status check_counts(const struct check *c)
{
    const struct program *p = c->p;
    const struct {
        const char *what;
        uint64_t n, most;
    } counts[] = {{"slots", p->nslots, LIMIT_SLOTS},       {"rings", p->nrings, LIMIT_RINGS},
                  {"buffers", p->nbuffers, LIMIT_BUFFERS}, {"buckets", p->nbuckets, LIMIT_BUCKETS},
                  {"tensors", p->ntensors, LIMIT_TENSORS}, {"instructions", p->ninsns, LIMIT_INSNS},
                  {"roles", p->nroles, LIMIT_ROLES}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].n > counts[i].most)
            return FAULT("%" PRIu64 " %s, at most %" PRIu64 " are allowed", counts[i].n, counts[i].what,
                         counts[i].most);
    if (p->role >= p->nroles)
        return FAULT("role %" PRIu32 " of %" PRIu32, p->role, p->nroles);
    if (p->arena_bytes > LIMIT_BYTES)
        return FAULT("an arena of %" PRIu64 " bytes, at most %" PRIu64 " are allowed", p->arena_bytes, LIMIT_BYTES);
    return STATUS_OK;
}

static enum status check_job(const struct check *c)
{
    const struct job_info *job = &c->p->job;
    const struct {
        const char *name;
        uint64_t value;
    } positive[] = {{"sequence", job->sequence}, {"batch", job->batch}, {"vocab", job->vocab}};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (!positive[i].value || positive[i].value > LIMIT_BYTES)
            return FAULT("job: %s is %" PRIu64 ", must be 1 to %" PRIu64, positive[i].name, positive[i].value,
                         LIMIT_BYTES);
    if (job->optimizer > 1)
        return FAULT("job: optimizer %" PRIu32 " is unknown", job->optimizer);
    if (job->lr_kind > 3)
        return FAULT("job: learning rate schedule %" PRIu32 " is unknown", job->lr_kind);
    for (size_t i = 0; i < NJOB_FIELDS; i++) {
        const struct job_field *f = &program_job_fields[i];
        double v;
        if (f->kind != JOB_REAL)
            continue;
        memcpy(&v, (const char *)job + f->offset, sizeof v);
        if (!isfinite(v))
            return FAULT("job: %s is not a finite number", f->name);
    }
    return STATUS_OK;
}

static enum status check_slots(const struct check *c)
{
    const uint32_t digits = (1u << NDIGITS) - 1;
    for (uint32_t i = 0; i < c->p->nslots; i++) {
        const struct slot *s = &c->p->slots[i];
        bool fine = false;
        CHECK_NAME("slot", i, s->name);
        if (s->most < 0 || s->most > UINT32_MAX)
            return FAULT("slot %" PRIu32 " (%s): largest value %" PRId64 ", must be 0 to %" PRIu32, i, s->name, s->most,
                         UINT32_MAX);
        switch (s->kind) {
        case SLOT_COORD:
            fine = s->arg && !(s->arg & ~digits);
            break;
        case SLOT_FIRST:
            fine = !(s->arg & ~digits) && s->most == 1;
            break;
        case SLOT_PEER:
            fine = s->arg < NONE;
            break;
        case SLOT_GROUP:
            fine = !(s->arg & ~(digits | GROUP_TIE)) && s->most >= 1;
            break;
        case SLOT_BEHIND:
            fine = SLOT_BEHIND_MASK(s->arg) && SLOT_BEHIND_DISTANCE(s->arg) <= s->most;
            break;
        }
        if (!fine)
            return FAULT("slot %" PRIu32 " (%s): argument %" PRIu32 " and largest value %" PRId64
                         " do not belong to its kind %s",
                         i, s->name, s->arg, s->most, program_word(program_slot_words, NSLOT_KINDS, s->kind));
    }
    return STATUS_OK;
}

/* a slot that may be absent and otherwise must be a number */
static enum status check_number_slot(const struct check *c, const char *what, uint32_t i, const char *use,
                                     uint32_t slot)
{
    if (slot != NONE && !program_slot_counts(c->p, slot))
        return FAULT("%s %" PRIu32 ": its %s slot %" PRIu32 " is not a coordinate or first slot", what, i, use, slot);
    return STATUS_OK;
}

/* element count of a bucket's buffer against the bucket's; shards must cover it exactly */
static enum status check_persistent(const struct check *c, uint32_t i)
{
    const struct buffer *b = &c->p->buffers[i];
    if (b->bucket >= c->p->nbuckets)
        return FAULT("buffer %" PRIu32 " (%s): bucket %" PRIu32 " of %" PRIu32, i, b->name, b->bucket, c->p->nbuckets);
    if (!isa_dtype_real((enum dtype)b->dtype))
        return FAULT("buffer %" PRIu32 " (%s): a %s buffer can't hold %s", i, b->name, program_buffer_words[b->kind],
                     isa_dtype_name(b->dtype));
    TRY(check_number_slot(c, "buffer", i, "shard", b->shard_slot));
    uint64_t size = isa_dtype_bytes(b->dtype), elements = c->p->buckets[b->bucket].elements;
    uint64_t shards = b->shard_slot == NONE ? 1 : (uint64_t)c->p->slots[b->shard_slot].most + 1;
    if (elements % shards || b->bytes != elements / shards * size)
        return FAULT("buffer %" PRIu32 " (%s): %" PRIu64 " bytes of %s in %" PRIu64 " shards are not the %" PRIu64
                     " elements of bucket %s",
                     i, b->name, b->bytes, isa_dtype_name(b->dtype), shards, elements, c->p->buckets[b->bucket].name);
    return STATUS_OK;
}

static enum status check_kind(const struct check *c, uint32_t i)
{
    const struct buffer *b = &c->p->buffers[i];
    uint64_t words = 0;
    switch (b->kind) {
    case BUFFER_PARAM:
    case BUFFER_MASTER:
    case BUFFER_MOMENT1:
    case BUFFER_MOMENT2:
        if (b->ring != NONE)
            return FAULT("buffer %" PRIu32 " (%s): persistent state can't be a ring", i, b->name);
        return check_persistent(c, i);
    case BUFFER_BLOCK:
        words = STEP_WORDS;
        break;
    case BUFFER_METRICS:
        words = METRIC_WORDS;
        break;
    case BUFFER_SCALE:
        words = SCALE_WORDS;
        break;
    case BUFFER_WORKSPACE:
        if (b->ring != NONE || b->host)
            return FAULT("buffer %" PRIu32 " (%s): a workspace can't be a ring or in host memory", i, b->name);
        break;
    case BUFFER_STEP:
    case NBUFFER_KINDS:
        break;
    }
    if (words && (b->ring != NONE || b->dtype != DTYPE_F64 || b->bytes != words * 8))
        return FAULT("buffer %" PRIu32 " (%s): the %s buffer must be %" PRIu64 " words of f64", i, b->name,
                     program_buffer_words[b->kind], words);
    if (b->bucket != NONE || b->shard_slot != NONE)
        return FAULT("buffer %" PRIu32 " (%s): a %s buffer has no bucket and no shard", i, b->name,
                     program_buffer_words[b->kind]);
    return STATUS_OK;
}

static enum status check_size(const struct check *c, uint32_t i)
{
    const struct buffer *b = &c->p->buffers[i];
    uint64_t bytes = b->stride;
    if (!b->bytes || b->bytes > LIMIT_BYTES)
        return FAULT("buffer %" PRIu32 " (%s): %" PRIu64 " bytes, must be 1 to %" PRIu64, i, b->name, b->bytes,
                     LIMIT_BYTES);
    if (b->ring != NONE) {
        if (b->ring >= c->p->nrings)
            return FAULT("buffer %" PRIu32 " (%s): ring %" PRIu32 " of %" PRIu32, i, b->name, b->ring, c->p->nrings);
        uint32_t depth = c->p->rings[b->ring].depth;
        if (__builtin_mul_overflow(b->stride, depth, &bytes) || bytes != b->bytes)
            return FAULT("buffer %" PRIu32 " (%s): %" PRIu64 " bytes are not %" PRIu32 " slots of %" PRIu64 " bytes", i,
                         b->name, b->bytes, depth, b->stride);
    } else if (bytes != b->bytes) {
        return FAULT("buffer %" PRIu32 " (%s): stride %" PRIu64 " without a ring must be its %" PRIu64 " bytes", i,
                     b->name, b->stride, b->bytes);
    }
    return STATUS_OK;
}

/* bytes of a buffer, or of one of its slots, in the arena */
static enum status check_place(const struct check *c, uint32_t i, uint64_t offset, uint64_t bytes)
{
    const struct buffer *b = &c->p->buffers[i];
    if (offset % 256)
        return FAULT("buffer %" PRIu32 " (%s): offset %" PRIu64 " is not a multiple of 256", i, b->name, offset);
    if (offset > c->p->arena_bytes || bytes > c->p->arena_bytes - offset)
        return FAULT("buffer %" PRIu32 " (%s): %" PRIu64 " bytes from %" PRIu64 " on lie beyond the arena's %" PRIu64,
                     i, b->name, bytes, offset, c->p->arena_bytes);
    if (!b->host && offset < c->host_bytes)
        return FAULT("buffer %" PRIu32 " (%s): offset %" PRIu64 " lies in the %" PRIu64 " bytes of host memory", i,
                     b->name, offset, c->host_bytes);
    return STATUS_OK;
}

/* `next`: the place that follows those of the buffers before it.  A list says what an offset and a stride cannot. */
static enum status check_places(const struct check *c, uint32_t i, uint32_t *next)
{
    const struct buffer *b = &c->p->buffers[i];
    if (b->scattered) {
        uint32_t depth = b->ring == NONE ? 0 : c->p->rings[b->ring].depth;
        if (b->kind != BUFFER_STEP || b->host || !depth)
            return FAULT("buffer %" PRIu32
                         " (%s): only rings of the step on the device have slots in places of their own",
                         i, b->name);
        if (b->place != *next || depth > c->p->nplaces - *next)
            return FAULT("buffer %" PRIu32 " (%s): its %" PRIu32 " slots have not the places %" PRIu32 " and following",
                         i, b->name, depth, *next);
        const uint64_t *at = &c->p->places[b->place];
        bool follow = true;
        for (uint32_t k = 0; k < depth; k++) {
            follow &= at[k] == b->offset + k * b->stride;
            TRY(c->p->arena_bytes ? check_place(c, i, at[k], b->stride) : STATUS_OK);
        }
        if (follow || at[0] != b->offset)
            return FAULT("buffer %" PRIu32 " (%s): %s", i, b->name,
                         follow ? "its slots follow one another and need no places"
                                : "its offset is not its first slot's");
        *next += depth;
        return STATUS_OK;
    }
    return c->p->arena_bytes ? check_place(c, i, b->offset, b->bytes) : STATUS_OK;
}

static enum status check_buffers(const struct check *c)
{
    uint32_t kinds[NBUFFER_KINDS] = {0}, places = 0;
    for (uint32_t i = 0; i < c->p->nrings; i++) {
        CHECK_NAME("ring", i, c->p->rings[i].name);
        if (!c->p->rings[i].depth)
            return FAULT("ring %" PRIu32 " (%s): it has no slots", i, c->p->rings[i].name);
    }
    for (uint32_t i = 0; i < c->p->nbuffers; i++) {
        const struct buffer *b = &c->p->buffers[i];
        CHECK_NAME("buffer", i, b->name);
        if ((unsigned)b->dtype >= NDTYPES)
            return FAULT("buffer %" PRIu32 " (%s): unknown dtype %d", i, b->name, (int)b->dtype);
        if ((unsigned)b->kind >= NBUFFER_KINDS)
            return FAULT("buffer %" PRIu32 " (%s): unknown kind %d", i, b->name, (int)b->kind);
        TRY(check_size(c, i));
        TRY(check_places(c, i, &places));
        TRY(check_kind(c, i));
        if ((b->kind >= BUFFER_BLOCK) && kinds[b->kind]++)
            return FAULT("buffer %" PRIu32 " (%s): there is a %s buffer already", i, b->name,
                         program_buffer_words[b->kind]);
    }
    if (places != c->p->nplaces)
        return FAULT("%" PRIu32 " places for the %" PRIu32 " slots of scattered rings", c->p->nplaces, places);
    return STATUS_OK;
}

/* corner + slot's largest value times stride + extent, which must stay below LIMIT_BYTES; in *end */
static bool corner_end(const struct program *p, uint64_t corner, uint32_t slot, uint64_t stride, uint32_t extent,
                       uint64_t *end)
{
    uint64_t most = slot == NONE ? 0 : (uint64_t)p->slots[slot].most, span;
    if ((slot == NONE && stride) || corner > LIMIT_BYTES || __builtin_mul_overflow(most, stride, &span) ||
        span > LIMIT_BYTES)
        return false;
    *end = corner + span + extent;
    return *end <= LIMIT_BYTES;
}

static enum status check_tensor(const struct check *c, uint32_t i, uint64_t elements)
{
    const struct tensor *t = &c->p->tensors[i];
    uint64_t product, row_end, col_end;
    CHECK_NAME("tensor", i, t->name);
    if (t->ndim < 1 || t->ndim > 2 || (t->ndim == 1 && t->shape[0] != 1) || !t->shape[0] || !t->shape[1] ||
        __builtin_mul_overflow(t->shape[0], t->shape[1], &product) || product > LIMIT_BYTES)
        return FAULT("tensor %" PRIu32 " (%s): %" PRIu32 " dimensions of %" PRIu64 " x %" PRIu64, i, t->name, t->ndim,
                     t->shape[0], t->shape[1]);
    uint64_t stored = 0, last = 0;
    bool boxes = tensor_boxes(t) && !__builtin_mul_overflow((uint64_t)t->rows * t->cols, tensor_boxes(t), &stored);
    if (!boxes || !stored || t->at > elements || stored > elements - t->at)
        return FAULT("tensor %" PRIu32 " (%s): a box of %" PRIu32 " x %" PRIu32 " at element %" PRIu64
                     " does not lie in a bucket of %" PRIu64,
                     i, t->name, t->rows, t->cols, t->at, elements);
    TRY(check_number_slot(c, "tensor", i, "row", t->row_slot));
    if (t->family)
        TRY(check_number_slot(c, "tensor", i, "member", t->member_slot));
    if (t->family && (!corner_end(c->p, t->member, t->member_slot, t->member_stride, t->boxes, &last) ||
                      last > t->family || t->family > LIMIT_TENSORS || !strchr(t->name, '%')))
        return FAULT("tensor %" PRIu32 " (%s): its boxes are not of its family of %" PRIu32, i, t->name, t->family);
    TRY(check_number_slot(c, "tensor", i, "column", t->col_slot));
    /* rows (of a vector: its elements) may lie beyond the shape: padding */
    if (!corner_end(c->p, t->row, t->row_slot, t->row_stride, t->transposed ? t->cols : t->rows, &row_end) ||
        !corner_end(c->p, t->col, t->col_slot, t->col_stride, t->transposed ? t->rows : t->cols, &col_end) ||
        (t->ndim == 2 ? col_end > t->shape[1] : row_end > 1))
        return FAULT("tensor %" PRIu32 " (%s): its box does not lie in the tensor's %" PRIu64 " x %" PRIu64, i, t->name,
                     t->shape[0], t->shape[1]);
    if ((unsigned)t->init >= NINIT_KINDS || !isfinite(t->std) || t->std < 0)
        return FAULT("tensor %" PRIu32 " (%s): bad initial rule", i, t->name);
    return STATUS_OK;
}

struct extent {
    uint64_t from, to;
    uint32_t tensor;
};

static int compare_extents(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

static enum status check_overlap(const struct check *c, const struct bucket *b, struct extent *extents)
{
    for (uint32_t i = 0; i < b->ntensors; i++) {
        const struct tensor *t = &c->p->tensors[b->tensor + i];
        extents[i] = (struct extent){t->at, t->at + (uint64_t)t->rows * t->cols * tensor_boxes(t), b->tensor + i};
    }
    qsort(extents, b->ntensors, sizeof *extents, compare_extents);
    for (uint32_t i = 1; i < b->ntensors; i++)
        if (extents[i].from < extents[i - 1].to)
            return FAULT("tensor %" PRIu32 " (%s): its elements overlap those of tensor %" PRIu32 " (%s)",
                         extents[i].tensor, c->p->tensors[extents[i].tensor].name, extents[i - 1].tensor,
                         c->p->tensors[extents[i - 1].tensor].name);
    return STATUS_OK;
}

static enum status check_bucket_list(const struct check *c, struct extent *extents)
{
    uint32_t tensor = 0;
    for (uint32_t i = 0; i < c->p->nbuckets; i++) {
        const struct bucket *b = &c->p->buckets[i];
        CHECK_NAME("bucket", i, b->name);
        if (!b->elements || b->elements > LIMIT_BYTES)
            return FAULT("bucket %" PRIu32 " (%s): %" PRIu64 " elements, must be 1 to %" PRIu64, i, b->name,
                         b->elements, LIMIT_BYTES);
        if (b->tensor != tensor || b->ntensors > c->p->ntensors - tensor)
            return FAULT("bucket %" PRIu32 " (%s): its %" PRIu32 " tensors from %" PRIu32
                         " on are not the next ones of %" PRIu32,
                         i, b->name, b->ntensors, b->tensor, c->p->ntensors);
        if (b->count_slot != NONE && (b->count_slot >= c->p->nslots || c->p->slots[b->count_slot].kind != SLOT_FIRST))
            return FAULT("bucket %" PRIu32 " (%s): its count slot %" PRIu32 " is not a first slot", i, b->name,
                         b->count_slot);
        tensor += b->ntensors;
        for (uint32_t k = 0; k < b->ntensors; k++)
            TRY(check_tensor(c, b->tensor + k, b->elements));
        TRY(check_overlap(c, b, extents));
    }
    if (tensor != c->p->ntensors)
        return FAULT("tensor %" PRIu32 " (%.*s): it belongs to no bucket", tensor, (int)sizeof c->p->tensors->name,
                     c->p->tensors[tensor].name);
    return STATUS_OK;
}

static enum status check_buckets(const struct check *c)
{
    struct extent *extents = program_alloc(NULL, c->p->ntensors, sizeof *extents);
    enum status s = check_bucket_list(c, extents);
    free(extents);
    return s;
}

enum status program_check(const struct program *p, struct error *error)
{
    const struct check check = {p, error, program_host_bytes(p)}, *c = &check;
    TRY(check_counts(c));
    TRY(check_job(c));
    TRY(check_slots(c));
    TRY(check_buckets(c));
    TRY(check_buffers(c));
    return program_check_code(p, error);
}
