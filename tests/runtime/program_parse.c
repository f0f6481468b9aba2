/* The text form, reading half; runtime/program_text.c describes it.
 *
 * One line at a time, by hand: one function per kind of line, over the words that program_scan.c reads.  What
 * is read must then pass program_check().  Counts need no limit of their own, as every item is at least a
 * line of text. */

#include "tests/runtime/program_parse.h"

#include "runtime/program_words.h"
#include "tests/runtime/program_scan.h"

#include <inttypes.h>
#include <string.h>

/* name#index */
static enum status read_slot(struct scan *s, struct program *p, uint32_t *slot)
{
    char name[sizeof p->slots->name];
    TRY(scan_name(s, name, sizeof name));
    if (!scan_char(s, '#'))
        return scan_fault(s, "expected '#' and an index after '%s'", name);
    TRY(scan_u32(s, slot));
    if (*slot >= p->nslots || strcmp(p->slots[*slot].name, name) != 0)
        return scan_fault(s, "slot %" PRIu32 " is not '%s'", *slot, name);
    return STATUS_OK;
}

static enum status parse_axes(struct scan *s, uint32_t *mask)
{
    *mask = 0;
    if (scan_word(s, "none"))
        return STATUS_OK;
    do {
        char name[8];
        uint32_t a = 0;
        TRY(scan_name(s, name, sizeof name));
        while (a < NDIGITS && strcmp(name, program_digit_words[a]) != 0)
            a++;
        if (a == NDIGITS && strcmp(name, "tie") != 0)
            return scan_fault(s, "unknown axis '%s'", name);
        *mask |= a == NDIGITS ? GROUP_TIE : 1u << a;
    } while (scan_char(s, '+'));
    return STATUS_OK;
}

static enum status parse_slot(struct scan *s, struct program *p)
{
    struct slot slot = {.arg = 0};
    uint32_t kind, distance;
    int64_t most;
    TRY(scan_item(s, p->nslots, slot.name, sizeof slot.name));
    TRY(scan_choice(s, program_slot_words, NSLOT_KINDS, &kind));
    switch ((enum slot_kind)kind) {
    case SLOT_COORD:
    case SLOT_FIRST:
    case SLOT_GROUP:
        TRY(parse_axes(s, &slot.arg));
        break;
    case SLOT_PEER:
        TRY(scan_u32(s, &slot.arg));
        break;
    case SLOT_BEHIND:
        TRY(parse_axes(s, &slot.arg));
        scan_spaces(s);
        TRY(scan_u32(s, &distance));
        if (slot.arg > 0xff || distance > UINT32_MAX >> 8)
            return scan_fault(s, "no such slot");
        slot.arg = SLOT_BEHIND_ARG(slot.arg, distance);
        break;
    }
    TRY(scan_expect(s, "most"));
    TRY(scan_i64(s, &most));
    program_slot(p, slot.name, (enum slot_kind)kind, slot.arg, most);
    return STATUS_OK;
}

static enum status parse_ring(struct scan *s, struct program *p)
{
    struct ring r;
    TRY(scan_item(s, p->nrings, r.name, sizeof r.name));
    TRY(scan_keyword_u32(s, "depth", &r.depth));
    program_ring(p, r.name, r.depth);
    return STATUS_OK;
}

static bool digit_follows(struct scan *s)
{
    return !scan_end(s) && *s->at >= '0' && *s->at <= '9';
}

/* an offset, or that of every slot of a ring */
static enum status parse_offset(struct scan *s, struct program *p, struct buffer *b)
{
    TRY(scan_u64(s, &b->offset));
    for (uint32_t k = 1; b->ring < p->nrings && k < p->rings[b->ring].depth && digit_follows(s); k++) {
        uint64_t at;
        TRY(scan_u64(s, &at));
        if (k == 1)
            b->place = program_add_place(p, b->offset);
        b->scattered = true;
        program_add_place(p, at);
    }
    if (b->scattered && p->nplaces - b->place != p->rings[b->ring].depth)
        return scan_fault(s, "expected the offset of every slot");
    return STATUS_OK;
}

static enum status parse_buffer(struct scan *s, struct program *p)
{
    struct buffer b = {.ring = NONE, .bucket = NONE, .shard_slot = NONE};
    uint32_t kind;
    TRY(scan_item(s, p->nbuffers, b.name, sizeof b.name));
    TRY(scan_choice(s, program_buffer_words, NBUFFER_KINDS, &kind));
    b.kind = (enum buffer_kind)kind;
    TRY(scan_dtype(s, &b.dtype));
    b.host = scan_word(s, "host");
    TRY(scan_keyword_u64(s, "bytes", &b.bytes));
    b.stride = b.bytes;
    if (scan_word(s, "ring"))
        TRY(scan_u32(s, &b.ring));
    if (scan_word(s, "stride"))
        TRY(scan_u64(s, &b.stride));
    if (scan_word(s, "offset"))
        TRY(parse_offset(s, p, &b));
    if (scan_word(s, "bucket"))
        TRY(scan_u32(s, &b.bucket));
    if (scan_word(s, "shard"))
        TRY(read_slot(s, p, &b.shard_slot));
    program_buffer(p, &b);
    return STATUS_OK;
}

static enum status parse_bucket(struct scan *s, struct program *p)
{
    struct bucket b = {.count_slot = NONE};
    TRY(scan_item(s, p->nbuckets, b.name, sizeof b.name));
    TRY(scan_keyword_u64(s, "elements", &b.elements));
    TRY(scan_keyword_u32(s, "tensors", &b.ntensors));
    b.decay = scan_word(s, "decay");
    if (scan_word(s, "count"))
        TRY(read_slot(s, p, &b.count_slot));
    if (p->nbuckets) {
        const struct bucket *last = &p->buckets[p->nbuckets - 1];
        if (__builtin_add_overflow(last->tensor, last->ntensors, &b.tensor))
            return scan_fault(s, "too many tensors");
    }
    program_bucket(p, &b);
    return STATUS_OK;
}

static enum status parse_corner(struct scan *s, struct program *p, const char *word, uint32_t *slot, uint64_t *stride)
{
    *slot = NONE;
    if (!scan_word(s, word))
        return STATUS_OK;
    TRY(scan_expect(s, "+"));
    TRY(read_slot(s, p, slot));
    if (!scan_char(s, '*'))
        return scan_fault(s, "expected '*' and a stride");
    return scan_u64(s, stride);
}

static enum status parse_tensor(struct scan *s, struct program *p)
{
    struct tensor t = {.ndim = 1, .shape = {1, 0}};
    uint32_t init;
    TRY(scan_item(s, p->ntensors, t.name, sizeof t.name));
    t.member_slot = NONE;
    if (scan_word(s, "family")) {
        scan_spaces(s);
        TRY(scan_u32(s, &t.family));
        TRY(scan_keyword_u32(s, "from", &t.member));
        TRY(scan_keyword_u32(s, "boxes", &t.boxes));
        TRY(parse_corner(s, p, "member", &t.member_slot, &t.member_stride));
    }
    TRY(scan_keyword_u64(s, "shape", &t.shape[1]));
    scan_spaces(s);
    if (s->at < s->end && *s->at >= '0' && *s->at <= '9') {
        t.ndim = 2;
        t.shape[0] = t.shape[1];
        TRY(scan_u64(s, &t.shape[1]));
    }
    TRY(scan_keyword_u32(s, "box", &t.rows));
    scan_spaces(s);
    TRY(scan_u32(s, &t.cols));
    TRY(scan_keyword_u64(s, "at", &t.at));
    TRY(scan_keyword_u64(s, "corner", &t.row));
    scan_spaces(s);
    TRY(scan_u64(s, &t.col));
    TRY(parse_corner(s, p, "row", &t.row_slot, &t.row_stride));
    TRY(parse_corner(s, p, "col", &t.col_slot, &t.col_stride));
    t.transposed = scan_word(s, "transposed");
    TRY(scan_choice(s, program_init_words, NINIT_KINDS, &init));
    t.init = (enum init_kind)init;
    TRY(scan_real(s, &t.std));
    program_tensor(p, &t);
    return STATUS_OK;
}

static enum status parse_job(struct scan *s, struct program *p)
{
    for (size_t i = 0; i < NJOB_FIELDS; i++) {
        const struct job_field *f = &program_job_fields[i];
        void *at = (char *)&p->job + f->offset;
        char name[24];
        scan_spaces(s);
        TRY(scan_name(s, name, sizeof name));
        if (strcmp(name, f->name) != 0 || !scan_char(s, '='))
            return scan_fault(s, "expected '%s='", f->name);
        switch (f->kind) {
        case JOB_U64:
            TRY(scan_u64(s, at));
            break;
        case JOB_U32:
            TRY(scan_u32(s, at));
            break;
        case JOB_REAL:
            TRY(scan_real(s, at));
            break;
        }
    }
    return STATUS_OK;
}

/* after its name and '=': %buffer#3~1+128+slot#0*64[4x8/16]f32 */
static enum status parse_operand(struct scan *s, struct program *p, struct operand *o)
{
    char name[sizeof p->buffers->name + 1]; /* with its '%' */
    enum dtype dtype = DTYPE_F32;
    TRY(scan_name(s, name, sizeof name));
    if (name[0] != '%' || !scan_char(s, '#'))
        return scan_fault(s, "expected %%buffer#index");
    TRY(scan_u32(s, &o->buffer));
    if (o->buffer >= p->nbuffers || strcmp(p->buffers[o->buffer].name, name + 1) != 0)
        return scan_fault(s, "buffer %" PRIu32 " is not '%s'", o->buffer, name + 1);
    if (scan_char(s, '~')) {
        uint64_t slot;
        TRY(scan_u64(s, &slot));
        if (__builtin_mul_overflow(slot, p->buffers[o->buffer].stride, &o->offset))
            return scan_fault(s, "an offset that does not fit 64 bits");
    }
    while (scan_char(s, '+')) {
        const char *start = s->at;
        char word[sizeof p->slots->name];
        TRY(scan_name(s, word, sizeof word));
        bool slot = s->at < s->end && *s->at == '#';
        s->at = start;
        if (slot) {
            uint32_t i;
            TRY(read_slot(s, p, &i));
            if (i >= UINT16_MAX || !scan_char(s, '*'))
                return scan_fault(s, "expected '*' and a stride");
            o->slot = (uint16_t)i;
            TRY(scan_u64(s, &o->slot_stride));
        } else {
            uint64_t add;
            TRY(scan_u64(s, &add));
            if (__builtin_add_overflow(o->offset, add, &o->offset))
                return scan_fault(s, "an offset that does not fit 64 bits");
        }
    }
    if (!scan_char(s, '['))
        return scan_fault(s, "expected '[' and a shape");
    TRY(scan_u32(s, &o->rows));
    if (!scan_char(s, 'x'))
        return scan_fault(s, "expected 'x' in a shape");
    TRY(scan_u32(s, &o->cols));
    o->ld = o->cols;
    if (scan_char(s, '/'))
        TRY(scan_u32(s, &o->ld));
    if (!scan_char(s, ']'))
        return scan_fault(s, "expected ']' after a shape");
    TRY(scan_dtype(s, &dtype));
    o->dtype = (uint8_t)dtype;
    return STATUS_OK;
}

static enum status parse_attr(struct scan *s, struct program *p, enum attr_kind kind, struct attr *a)
{
    switch (kind) {
    case ATTR_REAL:
        return scan_real(s, &a->u.f);
    case ATTR_INT:
        return scan_i64(s, &a->u.i);
    case ATTR_BIND:
        TRY(scan_i64(s, &a->u.i));
        if (!scan_char(s, '+'))
            return STATUS_OK;
        TRY(read_slot(s, p, &a->slot));
        if (!scan_char(s, '*'))
            return scan_fault(s, "expected '*' and a stride");
        return scan_i64(s, &a->stride);
    case ATTR_PEER:
    case ATTR_GROUP:
        if (!scan_char(s, '@'))
            return scan_fault(s, "expected '@' and a slot");
        return read_slot(s, p, &a->slot);
    }
    return STATUS_OK;
}

/* name=... or name+=...: an operand if '%' follows, else an attribute; seen has a bit for each */
static enum status parse_argument(struct scan *s, struct program *p, uint32_t i, uint32_t *seen)
{
    const struct insn *in = &p->insns[i];
    const struct isa_info *info = isa_info(in->op);
    char name[32];
    uint32_t k = 0;
    TRY(scan_name(s, name, sizeof name));
    bool add = scan_char(s, '+');
    if (!scan_char(s, '='))
        return scan_fault(s, "expected '=' after '%s'", name);
    if (s->at < s->end && *s->at == '%') {
        while (k < info->noperands && strcmp(info->operand[k].name, name) != 0)
            k++;
        if (k == info->noperands || *seen >> k & 1)
            return scan_fault(s, "%s has %s operand '%s'", info->name, k == info->noperands ? "no" : "already its",
                              name);
        if (add && info->operand[k].mark != MARK_ADD)
            return scan_fault(s, "operand '%s' of %s can't be accumulated into", name, info->name);
        *seen |= 1u << k;
        struct operand *o = &p->operands[in->operand + k];
        enum mark mark = info->operand[k].mark;
        o->mark = (uint8_t)(mark == MARK_ADD && !add ? MARK_WRITE : mark);
        return parse_operand(s, p, o);
    }
    while (k < info->nattrs && strcmp(info->attr[k].name, name) != 0)
        k++;
    if (add || k == info->nattrs || *seen >> (ISA_MAX_OPERANDS + k) & 1)
        return scan_fault(s, "%s has %s attribute '%s'", info->name, k == info->nattrs ? "no" : "already its", name);
    *seen |= 1u << (ISA_MAX_OPERANDS + k);
    return parse_attr(s, p, info->attr[k].kind, &p->attrs[in->attr + k]);
}

static enum status parse_wait(struct scan *s, struct program *p, uint32_t i)
{
    for (unsigned q = 0; q < NQUEUES; q++) {
        const char *name = isa_queue_name((enum queue)q);
        size_t n = strlen(name);
        if ((size_t)(s->end - s->at) > n && !memcmp(s->at, name, n) && s->at[n] == ':') {
            uint32_t position;
            s->at += n + 1;
            TRY(scan_u32(s, &position));
            if (p->insns[i].nwaits == UINT8_MAX)
                return scan_fault(s, "too many waits");
            program_wait(p, i, (enum queue)q, position);
            return STATUS_OK;
        }
    }
    return scan_fault(s, "expected queue:position after '<'");
}

static enum status parse_tags(struct scan *s, struct insn *in)
{
    while (!scan_end(s)) {
        uint32_t stage;
        if (scan_word(s, "line")) {
            TRY(scan_u32(s, &in->line));
        } else if (s->end - s->at > 2 && s->at[0] == 'm' && s->at[1] == 'b') {
            s->at += 2;
            TRY(scan_u32(s, &in->microbatch));
        } else if (s->at + 1 < s->end && s->at[1] != ' ' && scan_char(s, 'L')) {
            TRY(scan_u32(s, &in->layer));
        } else if (scan_char(s, 's')) {
            TRY(scan_u32(s, &stage));
            if (stage >= UINT16_MAX)
                return scan_fault(s, "stage %" PRIu32 " does not fit 16 bits", stage);
            in->stage = (uint16_t)stage;
        } else if (*s->at >= 'A' && *s->at <= 'Z') {
            in->action = *s->at++;
        } else {
            return scan_fault(s, "unknown tag at '%.*s'", SCAN_HERE(s));
        }
        if (s->at < s->end && *s->at != ' ')
            return scan_fault(s, "expected a space after a tag");
    }
    return STATUS_OK;
}

static enum status parse_insn(struct scan *s, struct program *p)
{
    uint32_t seq, queue = 0, seen = 0;
    char name[32];
    enum op op;
    TRY(scan_u32(s, &seq));
    while (queue < NQUEUES && !scan_word(s, isa_queue_name((enum queue)queue)))
        queue++;
    if (queue == NQUEUES)
        return scan_fault(s, "unknown queue");
    TRY(scan_name(s, name, sizeof name));
    if (!isa_find(name, &op))
        return scan_fault(s, "unknown instruction '%s'", name);
    uint32_t i = program_insn(p, op);
    p->insns[i].seq = seq;
    p->insns[i].queue = (uint8_t)queue;
    while (!scan_end(s)) {
        if (scan_char(s, ';'))
            return parse_tags(s, &p->insns[i]);
        if (scan_char(s, '<'))
            TRY(parse_wait(s, p, i));
        else
            TRY(parse_argument(s, p, i, &seen));
        if (s->at < s->end && *s->at != ' ' && s->at[-1] != ' ')
            return scan_fault(s, "unexpected '%c'", *s->at >= ' ' && *s->at <= '~' ? *s->at : '?');
    }
    return STATUS_OK;
}

static enum status parse_line(struct scan *s, struct program *p)
{
    static const struct {
        const char *word;
        enum status (*parse)(struct scan *, struct program *);
    } kinds[] = {{"slot", parse_slot},     {"ring", parse_ring},     {"buffer", parse_buffer},
                 {"bucket", parse_bucket}, {"tensor", parse_tensor}, {"job", parse_job}};
    if (scan_end(s) || *s->at == '#') {
        s->at = s->end;
        return STATUS_OK;
    }
    if (*s->at >= '0' && *s->at <= '9')
        return parse_insn(s, p);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (scan_word(s, kinds[i].word))
            return kinds[i].parse(s, p);
    if (scan_word(s, "role")) {
        TRY(scan_u32(s, &p->role));
        return scan_keyword_u32(s, "of", &p->nroles);
    }
    if (scan_word(s, "arena"))
        return scan_u64(s, &p->arena_bytes);
    if (scan_word(s, "evaluation")) {
        p->evaluation = scan_word(s, "yes");
        return p->evaluation ? STATUS_OK : scan_expect(s, "no");
    }
    return scan_fault(s, "unknown line");
}

static enum status parse_lines(struct scan *s, struct program *p, const char *text, size_t size)
{
    const char *end = text + size;
    for (bool first = true; text < end; text = s->end + 1) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        s->at = text;
        s->end = newline ? newline : end;
        s->line++;
        if (first) {
            uint32_t version;
            TRY(scan_expect(s, "llmc"));
            TRY(scan_keyword_u32(s, "program", &version));
            if (version != PROGRAM_TEXT_VERSION)
                return scan_fault(s, "version %" PRIu32 ", this build reads version %d", version, PROGRAM_TEXT_VERSION);
            first = false;
        } else {
            TRY(parse_line(s, p));
        }
        if (!scan_end(s))
            return scan_fault(s, "more than expected at '%.*s'", SCAN_HERE(s));
        if (!newline)
            break;
    }
    return s->line ? STATUS_OK : scan_fault(s, "an empty text");
}

enum status program_parse(const char *text, size_t size, struct program **p, struct error *error)
{
    struct scan s = {.error = error};
    *p = NULL;
    if (size > LIMIT_FILE)
        return error_set(error, STATUS_INPUT, "%zu bytes, at most %" PRIu64 " are read", size, LIMIT_FILE);
    struct program *made = program_new(0, 1);
    enum status status = parse_lines(&s, made, text, size);
    if (status == STATUS_OK)
        status = program_check(made, error);
    if (status == STATUS_OK)
        *p = made;
    else
        program_free(made);
    return status;
}
