/* The text form, reading half; program_text.c describes it.
 *
 * One line at a time, by hand: a scanner that never leaves its line, and one function per kind of line.  What
 * is read must then pass program_check().  Counts need no limit of their own, as every item is at least a
 * line of text. */

#include "runtime/program.h"
#include "runtime/program_words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const char *at, *end; /* of the current line */
    uint32_t line;
    struct program *p;
    char *error;
    size_t error_size;
};

static enum status fault(const struct parser *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static enum status fault(const struct parser *s, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return program_fault(s->error, s->error_size, "line %" PRIu32 ": %s", s->line, text);
}

static void skip_spaces(struct parser *s)
{
    while (s->at < s->end && *s->at == ' ')
        s->at++;
}

static bool at_end(struct parser *s)
{
    skip_spaces(s);
    return s->at == s->end;
}

static bool accept_char(struct parser *s, char c)
{
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

/* a whole word, with the spaces around it */
static bool accept(struct parser *s, const char *word)
{
    size_t n = strlen(word);
    skip_spaces(s);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return false;
    if (s->at + n < s->end && s->at[n] != ' ')
        return false;
    s->at += n;
    skip_spaces(s);
    return true;
}

/* what stands here, for messages: up to 20 characters */
#define HERE(s) (int)((s)->end - (s)->at > 20 ? 20 : (s)->end - (s)->at), (s)->at

static enum status expect(struct parser *s, const char *word)
{
    return accept(s, word) ? STATUS_OK : fault(s, "expected '%s' at '%.*s'", word, HERE(s));
}

static enum status read_u64(struct parser *s, uint64_t *v)
{
    const char *start = s->at;
    *v = 0;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++)
        if (__builtin_mul_overflow(*v, 10u, v) || __builtin_add_overflow(*v, (uint64_t)(*s->at - '0'), v))
            return fault(s, "a number that does not fit 64 bits");
    return s->at > start ? STATUS_OK : fault(s, "expected a number");
}

static enum status read_u32(struct parser *s, uint32_t *v)
{
    uint64_t wide;
    TRY(read_u64(s, &wide));
    *v = (uint32_t)wide;
    return wide <= UINT32_MAX ? STATUS_OK : fault(s, "%" PRIu64 " does not fit 32 bits", wide);
}

static enum status read_i64(struct parser *s, int64_t *v)
{
    bool negative = accept_char(s, '-');
    uint64_t wide;
    TRY(read_u64(s, &wide));
    if (wide > (uint64_t)INT64_MAX + negative)
        return fault(s, "a number that does not fit 64 bits");
    *v = negative ? (int64_t)(0 - wide) : (int64_t)wide;
    return STATUS_OK;
}

static enum status read_real(struct parser *s, double *v)
{
    char text[64], *end;
    size_t n = 0;
    while (s->at < s->end && *s->at != ' ' && n + 1 < sizeof text)
        text[n++] = *s->at++;
    text[n] = 0;
    *v = strtod(text, &end);
    return n && !*end ? STATUS_OK : fault(s, "'%s' is not a number", text);
}

/* a name: everything up to what can't be in one */
static enum status read_name(struct parser *s, char *to, size_t size)
{
    size_t n = 0;
    memset(to, 0, size);
    while (s->at<s->end && * s->at> ' ' && *s->at <= '~' && !strchr(PROGRAM_NAME_ENDS, *s->at)) {
        if (n + 1 == size)
            return fault(s, "a name of more than %zu characters", size - 1);
        to[n++] = *s->at++;
    }
    return n ? STATUS_OK : fault(s, "expected a name");
}

/* name#index */
static enum status read_slot(struct parser *s, uint32_t *slot)
{
    char name[sizeof s->p->slots->name];
    TRY(read_name(s, name, sizeof name));
    if (!accept_char(s, '#'))
        return fault(s, "expected '#' and an index after '%s'", name);
    TRY(read_u32(s, slot));
    if (*slot >= s->p->nslots || strcmp(s->p->slots[*slot].name, name) != 0)
        return fault(s, "slot %" PRIu32 " is not '%s'", *slot, name);
    return STATUS_OK;
}

/* one of n words, as a number */
static enum status read_word(struct parser *s, const char *const *words, size_t n, uint32_t *i)
{
    skip_spaces(s);
    for (*i = 0; *i < n; ++*i)
        if (accept(s, words[*i]))
            return STATUS_OK;
    return fault(s, "unknown word at '%.*s'", HERE(s));
}

static enum status read_dtype(struct parser *s, enum dtype *d)
{
    for (unsigned i = 0; i < NDTYPES; i++)
        if (accept(s, isa_dtype_name((enum dtype)i))) {
            *d = (enum dtype)i;
            return STATUS_OK;
        }
    return fault(s, "unknown dtype");
}

/* items carry their index, so that people can find them; it must be the next one */
static enum status read_item(struct parser *s, uint32_t next, char *name, size_t size)
{
    uint32_t i;
    TRY(read_u32(s, &i));
    if (i != next)
        return fault(s, "number %" PRIu32 " where %" PRIu32 " is next", i, next);
    skip_spaces(s);
    return read_name(s, name, size);
}

static enum status keyword_u64(struct parser *s, const char *word, uint64_t *v)
{
    TRY(expect(s, word));
    return read_u64(s, v);
}

static enum status keyword_u32(struct parser *s, const char *word, uint32_t *v)
{
    TRY(expect(s, word));
    return read_u32(s, v);
}

static enum status parse_axes(struct parser *s, uint32_t *mask)
{
    *mask = 0;
    if (accept(s, "none"))
        return STATUS_OK;
    do {
        char name[8];
        uint32_t a = 0;
        TRY(read_name(s, name, sizeof name));
        while (a < NDIGITS && strcmp(name, program_digit_words[a]) != 0)
            a++;
        if (a == NDIGITS && strcmp(name, "tie") != 0)
            return fault(s, "unknown axis '%s'", name);
        *mask |= a == NDIGITS ? GROUP_TIE : 1u << a;
    } while (accept_char(s, '+'));
    return STATUS_OK;
}

static enum status parse_slot(struct parser *s)
{
    struct slot slot = {.arg = 0};
    uint32_t kind, distance;
    int64_t most;
    TRY(read_item(s, s->p->nslots, slot.name, sizeof slot.name));
    TRY(read_word(s, program_slot_words, NSLOT_KINDS, &kind));
    switch ((enum slot_kind)kind) {
    case SLOT_COORD:
    case SLOT_FIRST:
    case SLOT_GROUP:
        TRY(parse_axes(s, &slot.arg));
        break;
    case SLOT_PEER:
        TRY(read_u32(s, &slot.arg));
        break;
    case SLOT_BEHIND:
        TRY(parse_axes(s, &slot.arg));
        TRY(read_u32(s, &distance));
        if (slot.arg > 0xff || distance > UINT32_MAX >> 8)
            return fault(s, "no such slot");
        slot.arg = SLOT_BEHIND_ARG(slot.arg, distance);
        break;
    }
    TRY(expect(s, "most"));
    TRY(read_i64(s, &most));
    program_slot(s->p, slot.name, (enum slot_kind)kind, slot.arg, most);
    return STATUS_OK;
}

static enum status parse_ring(struct parser *s)
{
    struct ring r;
    TRY(read_item(s, s->p->nrings, r.name, sizeof r.name));
    TRY(keyword_u32(s, "depth", &r.depth));
    program_ring(s->p, r.name, r.depth);
    return STATUS_OK;
}

static enum status parse_buffer(struct parser *s)
{
    struct buffer b = {.ring = NONE, .bucket = NONE, .shard_slot = NONE};
    uint32_t kind;
    TRY(read_item(s, s->p->nbuffers, b.name, sizeof b.name));
    TRY(read_word(s, program_buffer_words, NBUFFER_KINDS, &kind));
    b.kind = (enum buffer_kind)kind;
    TRY(read_dtype(s, &b.dtype));
    b.host = accept(s, "host");
    TRY(keyword_u64(s, "bytes", &b.bytes));
    b.stride = b.bytes;
    if (accept(s, "ring"))
        TRY(read_u32(s, &b.ring));
    if (accept(s, "stride"))
        TRY(read_u64(s, &b.stride));
    if (accept(s, "offset"))
        TRY(read_u64(s, &b.offset));
    if (accept(s, "bucket"))
        TRY(read_u32(s, &b.bucket));
    if (accept(s, "shard"))
        TRY(read_slot(s, &b.shard_slot));
    program_buffer(s->p, &b);
    return STATUS_OK;
}

static enum status parse_bucket(struct parser *s)
{
    struct bucket b = {.count_slot = NONE};
    TRY(read_item(s, s->p->nbuckets, b.name, sizeof b.name));
    TRY(keyword_u64(s, "elements", &b.elements));
    TRY(keyword_u32(s, "tensors", &b.ntensors));
    b.decay = accept(s, "decay");
    if (accept(s, "count"))
        TRY(read_slot(s, &b.count_slot));
    if (s->p->nbuckets) {
        const struct bucket *last = &s->p->buckets[s->p->nbuckets - 1];
        if (__builtin_add_overflow(last->tensor, last->ntensors, &b.tensor))
            return fault(s, "too many tensors");
    }
    program_bucket(s->p, &b);
    return STATUS_OK;
}

static enum status parse_corner(struct parser *s, const char *word, uint32_t *slot, uint64_t *stride)
{
    *slot = NONE;
    if (!accept(s, word))
        return STATUS_OK;
    TRY(expect(s, "+"));
    TRY(read_slot(s, slot));
    if (!accept_char(s, '*'))
        return fault(s, "expected '*' and a stride");
    return read_u64(s, stride);
}

static enum status parse_tensor(struct parser *s)
{
    struct tensor t = {.ndim = 1, .shape = {1, 0}};
    uint32_t init;
    TRY(read_item(s, s->p->ntensors, t.name, sizeof t.name));
    t.member_slot = NONE;
    if (accept(s, "family")) {
        skip_spaces(s);
        TRY(read_u32(s, &t.family));
        TRY(keyword_u32(s, "from", &t.member));
        TRY(keyword_u32(s, "boxes", &t.boxes));
        TRY(parse_corner(s, "member", &t.member_slot, &t.member_stride));
    }
    TRY(keyword_u64(s, "shape", &t.shape[1]));
    skip_spaces(s);
    if (s->at < s->end && *s->at >= '0' && *s->at <= '9') {
        t.ndim = 2;
        t.shape[0] = t.shape[1];
        TRY(read_u64(s, &t.shape[1]));
    }
    TRY(keyword_u32(s, "box", &t.rows));
    skip_spaces(s);
    TRY(read_u32(s, &t.cols));
    TRY(keyword_u64(s, "at", &t.at));
    TRY(keyword_u64(s, "corner", &t.row));
    skip_spaces(s);
    TRY(read_u64(s, &t.col));
    TRY(parse_corner(s, "row", &t.row_slot, &t.row_stride));
    TRY(parse_corner(s, "col", &t.col_slot, &t.col_stride));
    t.transposed = accept(s, "transposed");
    TRY(read_word(s, program_init_words, NINIT_KINDS, &init));
    t.init = (enum init_kind)init;
    TRY(read_real(s, &t.std));
    program_tensor(s->p, &t);
    return STATUS_OK;
}

static enum status parse_job(struct parser *s)
{
    for (size_t i = 0; i < NJOB_FIELDS; i++) {
        const struct job_field *f = &program_job_fields[i];
        void *at = (char *)&s->p->job + f->offset;
        char name[24];
        skip_spaces(s);
        TRY(read_name(s, name, sizeof name));
        if (strcmp(name, f->name) != 0 || !accept_char(s, '='))
            return fault(s, "expected '%s='", f->name);
        switch (f->kind) {
        case JOB_U64:
            TRY(read_u64(s, at));
            break;
        case JOB_U32:
            TRY(read_u32(s, at));
            break;
        case JOB_REAL:
            TRY(read_real(s, at));
            break;
        }
    }
    return STATUS_OK;
}

/* after its name and '=': %buffer#3~1+128+slot#0*64[4x8/16]f32 */
static enum status parse_operand(struct parser *s, struct operand *o)
{
    char name[sizeof s->p->buffers->name + 1]; /* with its '%' */
    enum dtype dtype = DTYPE_F32;
    TRY(read_name(s, name, sizeof name));
    if (name[0] != '%' || !accept_char(s, '#'))
        return fault(s, "expected %%buffer#index");
    TRY(read_u32(s, &o->buffer));
    if (o->buffer >= s->p->nbuffers || strcmp(s->p->buffers[o->buffer].name, name + 1) != 0)
        return fault(s, "buffer %" PRIu32 " is not '%s'", o->buffer, name + 1);
    if (accept_char(s, '~')) {
        uint64_t slot;
        TRY(read_u64(s, &slot));
        if (__builtin_mul_overflow(slot, s->p->buffers[o->buffer].stride, &o->offset))
            return fault(s, "an offset that does not fit 64 bits");
    }
    while (accept_char(s, '+')) {
        const char *start = s->at;
        char word[sizeof s->p->slots->name];
        TRY(read_name(s, word, sizeof word));
        bool slot = s->at < s->end && *s->at == '#';
        s->at = start;
        if (slot) {
            uint32_t i;
            TRY(read_slot(s, &i));
            if (i >= UINT16_MAX || !accept_char(s, '*'))
                return fault(s, "expected '*' and a stride");
            o->slot = (uint16_t)i;
            TRY(read_u64(s, &o->slot_stride));
        } else {
            uint64_t add;
            TRY(read_u64(s, &add));
            if (__builtin_add_overflow(o->offset, add, &o->offset))
                return fault(s, "an offset that does not fit 64 bits");
        }
    }
    if (!accept_char(s, '['))
        return fault(s, "expected '[' and a shape");
    TRY(read_u32(s, &o->rows));
    if (!accept_char(s, 'x'))
        return fault(s, "expected 'x' in a shape");
    TRY(read_u32(s, &o->cols));
    o->ld = o->cols;
    if (accept_char(s, '/'))
        TRY(read_u32(s, &o->ld));
    if (!accept_char(s, ']'))
        return fault(s, "expected ']' after a shape");
    TRY(read_dtype(s, &dtype));
    o->dtype = (uint8_t)dtype;
    return STATUS_OK;
}

static enum status parse_attr(struct parser *s, enum attr_kind kind, struct attr *a)
{
    switch (kind) {
    case ATTR_REAL:
        return read_real(s, &a->u.f);
    case ATTR_INT:
        return read_i64(s, &a->u.i);
    case ATTR_BIND:
        TRY(read_i64(s, &a->u.i));
        if (!accept_char(s, '+'))
            return STATUS_OK;
        TRY(read_slot(s, &a->slot));
        if (!accept_char(s, '*'))
            return fault(s, "expected '*' and a stride");
        return read_i64(s, &a->stride);
    case ATTR_PEER:
    case ATTR_GROUP:
        if (!accept_char(s, '@'))
            return fault(s, "expected '@' and a slot");
        return read_slot(s, &a->slot);
    }
    return STATUS_OK;
}

/* name=... or name+=...: an operand if '%' follows, else an attribute; seen has a bit for each */
static enum status parse_argument(struct parser *s, uint32_t i, uint32_t *seen)
{
    const struct insn *in = &s->p->insns[i];
    const struct isa_info *info = isa_info((enum op)in->op);
    char name[32];
    uint32_t k = 0;
    TRY(read_name(s, name, sizeof name));
    bool add = accept_char(s, '+');
    if (!accept_char(s, '='))
        return fault(s, "expected '=' after '%s'", name);
    if (s->at < s->end && *s->at == '%') {
        while (k < info->noperands && strcmp(info->operand[k].name, name) != 0)
            k++;
        if (k == info->noperands || *seen >> k & 1)
            return fault(s, "%s has %s operand '%s'", info->name, k == info->noperands ? "no" : "already its",
                         name);
        if (add && info->operand[k].mark != MARK_ADD)
            return fault(s, "operand '%s' of %s can't be accumulated into", name, info->name);
        *seen |= 1u << k;
        struct operand *o = &s->p->operands[in->operand + k];
        enum mark mark = info->operand[k].mark;
        o->mark = (uint8_t)(mark == MARK_ADD && !add ? MARK_WRITE : mark);
        return parse_operand(s, o);
    }
    while (k < info->nattrs && strcmp(info->attr[k].name, name) != 0)
        k++;
    if (add || k == info->nattrs || *seen >> (ISA_MAX_OPERANDS + k) & 1)
        return fault(s, "%s has %s attribute '%s'", info->name, k == info->nattrs ? "no" : "already its",
                     name);
    *seen |= 1u << (ISA_MAX_OPERANDS + k);
    return parse_attr(s, info->attr[k].kind, &s->p->attrs[in->attr + k]);
}

static enum status parse_wait(struct parser *s, uint32_t i)
{
    for (unsigned q = 0; q < NQUEUES; q++) {
        const char *name = isa_queue_name((enum queue)q);
        size_t n = strlen(name);
        if ((size_t)(s->end - s->at) > n && !memcmp(s->at, name, n) && s->at[n] == ':') {
            uint32_t position;
            s->at += n + 1;
            TRY(read_u32(s, &position));
            if (s->p->insns[i].nwaits == UINT8_MAX)
                return fault(s, "too many waits");
            program_wait(s->p, i, (enum queue)q, position);
            return STATUS_OK;
        }
    }
    return fault(s, "expected queue:position after '<'");
}

static enum status parse_tags(struct parser *s, struct insn *in)
{
    while (!at_end(s)) {
        uint32_t stage;
        if (accept(s, "line")) {
            TRY(read_u32(s, &in->line));
        } else if (s->end - s->at > 2 && s->at[0] == 'm' && s->at[1] == 'b') {
            s->at += 2;
            TRY(read_u32(s, &in->microbatch));
        } else if (s->at + 1 < s->end && s->at[1] != ' ' && accept_char(s, 'L')) {
            TRY(read_u32(s, &in->layer));
        } else if (accept_char(s, 's')) {
            TRY(read_u32(s, &stage));
            if (stage >= UINT16_MAX)
                return fault(s, "stage %" PRIu32 " does not fit 16 bits", stage);
            in->stage = (uint16_t)stage;
        } else if (*s->at >= 'A' && *s->at <= 'Z') {
            in->action = *s->at++;
        } else {
            return fault(s, "unknown tag at '%.*s'", HERE(s));
        }
        if (s->at < s->end && *s->at != ' ')
            return fault(s, "expected a space after a tag");
    }
    return STATUS_OK;
}

static enum status parse_insn(struct parser *s)
{
    uint32_t seq, queue = 0, seen = 0;
    char name[32];
    enum op op;
    TRY(read_u32(s, &seq));
    while (queue < NQUEUES && !accept(s, isa_queue_name((enum queue)queue)))
        queue++;
    if (queue == NQUEUES)
        return fault(s, "unknown queue");
    TRY(read_name(s, name, sizeof name));
    if (!isa_find(name, &op))
        return fault(s, "unknown instruction '%s'", name);
    uint32_t i = program_insn(s->p, op);
    s->p->insns[i].seq = seq;
    s->p->insns[i].queue = (uint8_t)queue;
    while (!at_end(s)) {
        if (accept_char(s, ';'))
            return parse_tags(s, &s->p->insns[i]);
        if (accept_char(s, '<'))
            TRY(parse_wait(s, i));
        else
            TRY(parse_argument(s, i, &seen));
        if (s->at < s->end && *s->at != ' ' && s->at[-1] != ' ')
            return fault(s, "unexpected '%c'", *s->at >= ' ' && *s->at <= '~' ? *s->at : '?');
    }
    return STATUS_OK;
}

static enum status parse_line(struct parser *s)
{
    static const struct {
        const char *word;
        enum status (*parse)(struct parser *);
    } kinds[] = {{"slot", parse_slot},     {"ring", parse_ring},     {"buffer", parse_buffer},
                 {"bucket", parse_bucket}, {"tensor", parse_tensor}, {"job", parse_job}};
    struct program *p = s->p;
    if (at_end(s) || *s->at == '#') {
        s->at = s->end;
        return STATUS_OK;
    }
    if (*s->at >= '0' && *s->at <= '9')
        return parse_insn(s);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (accept(s, kinds[i].word))
            return kinds[i].parse(s);
    if (accept(s, "role")) {
        TRY(read_u32(s, &p->role));
        return keyword_u32(s, "of", &p->nroles);
    }
    if (accept(s, "arena"))
        return read_u64(s, &p->arena_bytes);
    if (accept(s, "evaluation")) {
        p->evaluation = accept(s, "yes");
        return p->evaluation ? STATUS_OK : expect(s, "no");
    }
    return fault(s, "unknown line");
}

static enum status parse_lines(struct parser *s, const char *text, size_t size)
{
    const char *end = text + size;
    for (bool first = true; text < end; text = s->end + 1) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        s->at = text;
        s->end = newline ? newline : end;
        s->line++;
        if (first) {
            uint32_t version;
            TRY(expect(s, "llmc"));
            TRY(keyword_u32(s, "program", &version));
            if (version != PROGRAM_TEXT_VERSION)
                return fault(s, "version %" PRIu32 ", this build reads version %d", version,
                             PROGRAM_TEXT_VERSION);
            first = false;
        } else {
            TRY(parse_line(s));
        }
        if (!at_end(s))
            return fault(s, "more than expected at '%.*s'", HERE(s));
        if (!newline)
            break;
    }
    return s->line ? STATUS_OK : fault(s, "an empty text");
}

enum status program_parse(const char *text, size_t size, struct program **p, char *error, size_t error_size)
{
    struct parser s = {.error = error, .error_size = error_size};
    *p = NULL;
    if (size > LIMIT_FILE)
        return program_fault(error, error_size, "%zu bytes, at most %" PRIu64 " are read", size, LIMIT_FILE);
    s.p = program_new(0, 1);
    enum status status = parse_lines(&s, text, size);
    if (status == STATUS_OK)
        status = program_check(s.p, error, error_size);
    if (status == STATUS_OK)
        *p = s.p;
    else
        program_free(s.p);
    return status;
}
