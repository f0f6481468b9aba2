/* Structural checks of instructions: opcode, queue, operands, attributes, waits.
 *
 * Shapes are unified as isa.def writes them.  The table's strings are compiled once per call into dimension
 * rules: first those that are a plain name, which bind it or compare with it, then products and constants,
 * where one unbound factor is found by exact division (ALL_TO_ALL: rows = group_n * t).  Then come the ranges and
 * relations without which a kernel would divide by zero or read outside its operands.  Cost per instruction is linear
 * in its operands, attributes and waits. */

#include "runtime/program.h"
#include "runtime/program_share.h"
#include "runtime/program_words.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum term_kind { TERM_CONSTANT, TERM_NAME, TERM_ATTR, TERM_GROUP };
struct term {
    uint8_t kind;
    uint8_t index;     /* NAME: of the row's names; ATTR: attribute */
    uint32_t constant; /* CONSTANT */
};
struct dimension {
    uint8_t operand, cols; /* cols: 0 = rows, 1 = columns */
    struct term factor[2];
};
#define MAX_NAMES 16
struct row {
    const struct isa_info *info;
    uint8_t ndims, nplain, nrelations, nnames;
    const char *name[MAX_NAMES];
    struct dimension dim[2 * ISA_MAX_OPERANDS];
    struct {
        struct term left, right;
        const struct isa_relation *source;
    } relation[ISA_MAX_RELATIONS];
    const struct isa_range *range[ISA_MAX_ATTRS];
};

struct check {
    const struct program *p;
    struct error *error;
    struct row *rows; /* NOPS; each is filled when the first instruction of its kind is met */
    uint32_t count[NQUEUES];
    uint32_t position[NQUEUES]; /* of the next instruction on each queue */
    uint32_t *body;             /* by first operand: an instruction that was checked with it, NONE */
};

static bool same_name(const char *a, const char *b, size_t n)
{
    return !strncmp(a, b, n) && !b[n];
}

static struct term compile_term(struct row *row, const char *text, size_t n)
{
    if (text[0] >= '0' && text[0] <= '9')
        return (struct term){.kind = TERM_CONSTANT, .constant = (uint32_t)strtoul(text, NULL, 10)};
    if (same_name(text, "group_n", n))
        return (struct term){.kind = TERM_GROUP};
    for (uint8_t i = 0; i < row->info->nattrs; i++)
        if (same_name(text, row->info->attr[i].name, n))
            return (struct term){.kind = TERM_ATTR, .index = i};
    uint8_t i = 0;
    while (i < row->nnames && !same_name(text, row->name[i], n))
        i++;
    if (i == row->nnames)
        row->name[row->nnames++] = text;
    return (struct term){.kind = TERM_NAME, .index = i};
}

static void compile_dimension(struct row *row, uint8_t operand, bool cols, bool plain)
{
    const struct isa_operand *o = &row->info->operand[operand];
    const char *text = cols ? o->cols : o->rows, *star = strchr(text, '*');
    size_t n = star ? (size_t)(star - text) : strlen(text);
    struct dimension d = {.operand = operand, .cols = cols};
    d.factor[0] = compile_term(row, text, n);
    if (star)
        d.factor[1] = compile_term(row, star + 1, strlen(star + 1));
    else
        d.factor[1] = (struct term){.kind = TERM_CONSTANT, .constant = 1};
    if (plain == (!star && d.factor[0].kind == TERM_NAME))
        row->dim[row->ndims++] = d;
}

static void compile_row(struct row *row, enum op op)
{
    row->info = isa_info(op);
    for (int pass = 0; pass < 2; pass++) {
        for (uint8_t i = 0; i < row->info->noperands; i++) {
            compile_dimension(row, i, false, !pass);
            compile_dimension(row, i, true, !pass);
        }
        if (!pass)
            row->nplain = row->ndims;
    }
    for (uint8_t i = 0; i < row->info->nattrs; i++)
        if (row->info->attr[i].kind == ATTR_INT)
            row->range[i] = isa_range(row->info->attr[i].name);
    for (const struct isa_relation *r = row->info->relation; r->x; r++) {
        row->relation[row->nrelations].left = compile_term(row, r->x, strlen(r->x));
        row->relation[row->nrelations].right = compile_term(row, r->y, strlen(r->y));
        row->relation[row->nrelations++].source = r;
    }
}

/* "instruction 7 (its text): fault" */
static enum status insn_fault(const struct check *c, uint32_t i, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static enum status insn_fault(const struct check *c, uint32_t i, const char *fmt, ...)
{
    char *text = NULL, fault[256];
    size_t size = 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(fault, sizeof fault, fmt, ap);
    va_end(ap);
    FILE *f = open_memstream(&text, &size);
    if (f) {
        program_print_insn(c->p, i, f);
        fclose(f);
    }
    enum status st = error_set(c->error, STATUS_INPUT, "instruction %" PRIu32 " (%.400s): %s", i, text ? text : "",
                               fault);
    free(text);
    return st;
}

static bool dtype_fits(char class, uint8_t dtype, uint8_t *common)
{
    bool fits = true;
    switch (class) {
    case 'F':
        return dtype == DTYPE_F32;
    case 'I':
        return dtype == DTYPE_I32;
    case 'D':
        return dtype == DTYPE_F64;
    case 'C':
    case 'G':
        fits = isa_dtype_real((enum dtype)dtype);
        break;
    default: /* 'A' */
        fits = dtype < NDTYPES;
        break;
    }
    if (class == 'G')
        return fits;
    if (*common == NDTYPES)
        *common = dtype;
    return fits && *common == dtype;
}

static bool mark_fits(enum mark table, uint8_t mark)
{
    return mark == table || (table == MARK_ADD && mark == MARK_WRITE);
}

/* bytes touched, for every value of the slot, against the buffer or the ring slot they start in */
static const char *check_footprint(const struct check *c, const struct operand *o)
{
    const struct buffer *b = &c->p->buffers[o->buffer];
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype), span = 0, extent;
    if (!o->rows || !o->cols)
        return "it is empty";
    if (o->ld < o->cols)
        return "its rows overlap (ld < cols)";
    if ((o->offset | o->slot_stride) % size)
        return "its offset is not a multiple of its dtype's size";
    if (o->slot == UINT16_MAX) {
        if (o->slot_stride)
            return "it has a slot stride without a slot";
    } else {
        if (!program_slot_counts(c->p, o->slot))
            return "its slot is not a coordinate or first slot";
        if (__builtin_mul_overflow(o->slot_stride, (uint64_t)c->p->slots[o->slot].most, &span))
            return "its largest offset does not fit 64 bits";
    }
    /* (2^32 - 2)(2^32 - 1) + 2^32 - 1 < 2^64, so only the last two steps can overflow */
    extent = (uint64_t)(o->rows - 1) * o->ld + o->cols;
    if (__builtin_mul_overflow(extent, size, &extent) || __builtin_add_overflow(extent, span, &extent))
        return "its size does not fit 64 bits";
    if (o->offset >= b->bytes || extent > b->bytes - o->offset)
        return "it does not lie in its buffer";
    if (b->ring != NONE && extent > b->stride - o->offset % b->stride)
        return "it does not lie in one slot of its ring";
    return NULL;
}

static enum status check_operands(const struct check *c, uint32_t i, const struct row *row)
{
    const struct insn *in = &c->p->insns[i];
    const struct operand *operand = &c->p->operands[in->operand];
    uint8_t compute = NDTYPES, any = NDTYPES, add = MARK_NONE;
    for (uint8_t k = 0; k < row->info->noperands; k++) {
        const struct operand *o = &operand[k];
        const struct isa_operand *t = &row->info->operand[k];
        if (o->buffer == NONE) {
            if (!t->optional)
                return insn_fault(c, i, "operand %s is missing", t->name);
            continue;
        }
        if (o->buffer >= c->p->nbuffers)
            return insn_fault(c, i, "operand %s: buffer %" PRIu32 " of %" PRIu32, t->name, o->buffer, c->p->nbuffers);
        if (c->p->buffers[o->buffer].kind == BUFFER_WORKSPACE)
            return insn_fault(c, i, "operand %s: a workspace holds no operands", t->name);
        if (c->p->buffers[o->buffer].host && (in->op != OP_COPY || in->queue != QUEUE_COPY))
            return insn_fault(c, i, "operand %s: only copies on queue copy reach host memory", t->name);
        if (!dtype_fits(t->dtype, o->dtype, t->dtype == 'A' ? &any : &compute))
            return insn_fault(c, i, "operand %s: its dtype may not be %s here", t->name,
                              isa_dtype_name((enum dtype)o->dtype));
        if (!mark_fits(t->mark, o->mark))
            return insn_fault(c, i, "operand %s: mark %u is not what the table says", t->name, o->mark);
        if (t->mark == MARK_ADD) {
            if (add != MARK_NONE && o->mark != add)
                return insn_fault(c, i, "operand %s: all outputs must be written or all accumulated", t->name);
            add = o->mark;
        }
        const char *fault = check_footprint(c, o);
        if (fault)
            return insn_fault(c, i, "operand %s: %s", t->name, fault);
    }
    return STATUS_OK;
}

/* values base + slot * stride for slot 0..most must lie in 0..LIMIT_BYTES */
static bool bind_fits(const struct program *p, const struct attr *a)
{
    int64_t last = a->u.i;
    if (a->slot == NONE) {
        if (a->stride)
            return false;
    } else {
        if (!program_slot_counts(p, a->slot) || __builtin_mul_overflow(a->stride, p->slots[a->slot].most, &last) ||
            __builtin_add_overflow(last, a->u.i, &last))
            return false;
    }
    return a->u.i >= 0 && a->u.i <= (int64_t)LIMIT_BYTES && last >= 0 && last <= (int64_t)LIMIT_BYTES;
}

static enum status check_attrs(const struct check *c, uint32_t i, const struct row *row)
{
    static const struct isa_range any = {"", -(int64_t)LIMIT_BYTES, (int64_t)LIMIT_BYTES};
    const struct program *p = c->p;
    for (uint8_t k = 0; k < row->info->nattrs; k++) {
        const struct attr *a = &p->attrs[p->insns[i].attr + k];
        const struct isa_attr *t = &row->info->attr[k];
        const struct isa_range *r = row->range[k] ? row->range[k] : &any;
        bool fine = false;
        switch (t->kind) {
        case ATTR_INT:
            if (a->u.i < r->least || a->u.i > r->most)
                return insn_fault(c, i, "attribute %s must be %" PRId64 " to %" PRId64, t->name, r->least, r->most);
            fine = a->slot == NONE && !a->stride;
            break;
        case ATTR_REAL:
            fine = isfinite(a->u.f) && a->slot == NONE && !a->stride;
            break;
        case ATTR_BIND:
            fine = bind_fits(p, a);
            break;
        case ATTR_PEER:
        case ATTR_GROUP:
            fine = !a->u.i && !a->stride && a->slot < p->nslots &&
                   p->slots[a->slot].kind == (t->kind == ATTR_PEER ? SLOT_PEER : SLOT_GROUP);
            break;
        }
        if (!fine)
            return insn_fault(c, i, "attribute %s is not a %s", t->name,
                              t->kind == ATTR_INT    ? "plain integer"
                              : t->kind == ATTR_REAL ? "finite number"
                              : t->kind == ATTR_BIND ? "number from 0 on for all values of its slot"
                              : t->kind == ATTR_PEER ? "peer slot"
                                                     : "group slot");
    }
    return STATUS_OK;
}

/* values of the names of one instruction; 0 = not bound, which no valid dimension is */
struct binding {
    uint64_t name[MAX_NAMES];
    const struct attr *attr;
    uint64_t group_size;
};

static uint64_t term_value(const struct binding *b, struct term t)
{
    switch ((enum term_kind)t.kind) {
    case TERM_CONSTANT:
        return t.constant;
    case TERM_NAME:
        return b->name[t.index];
    case TERM_ATTR:
        return (uint64_t)b->attr[t.index].u.i;
    case TERM_GROUP:
        return b->group_size;
    }
    return 0;
}

static enum status check_shapes(const struct check *c, uint32_t i, const struct row *row, struct binding *b)
{
    const struct operand *operand = &c->p->operands[c->p->insns[i].operand];
    for (uint8_t k = 0; k < row->ndims; k++) {
        const struct dimension *d = &row->dim[k];
        const struct operand *o = &operand[d->operand];
        const struct isa_operand *t = &row->info->operand[d->operand];
        uint64_t have = d->cols ? o->cols : o->rows, want;
        if (o->buffer == NONE)
            continue;
        if (k < row->nplain) {
            uint64_t *name = &b->name[d->factor[0].index];
            if (!*name)
                *name = have;
            want = *name;
        } else {
            uint64_t x = term_value(b, d->factor[0]), y = term_value(b, d->factor[1]);
            if (!y && x && d->factor[1].kind == TERM_NAME && have % x == 0)
                y = b->name[d->factor[1].index] = have / x;
            want = x * y; /* sides, members and the attributes in shapes are all below 2^32 */
        }
        if (!want)
            return insn_fault(c, i, "operand %s: %" PRIu64 " %s can't be %s", t->name, have,
                              d->cols ? "columns" : "rows", d->cols ? t->cols : t->rows);
        if (have != want)
            return insn_fault(c, i, "operand %s: %" PRIu64 " %s, but %s = %" PRIu64, t->name, have,
                              d->cols ? "columns" : "rows", d->cols ? t->cols : t->rows, want);
    }
    for (uint8_t k = 0; k < row->nrelations; k++) {
        const struct isa_relation *r = row->relation[k].source;
        uint64_t x = term_value(b, row->relation[k].left), y = term_value(b, row->relation[k].right);
        if (!isa_holds(r, x, y)) {
            static const char *const words[] = {
                [RELATION_WHOLE] = "divisible by", [RELATION_MOST] = "at most", [RELATION_BELOW] = "less than"};
            return row->relation[k].right.kind == TERM_CONSTANT
                       ? insn_fault(c, i, "%s = %" PRIu64 " must be %s %s", r->x, x, words[r->kind], r->y)
                       : insn_fault(c, i, "%s = %" PRIu64 " must be %s %s = %" PRIu64, r->x, x, words[r->kind], r->y,
                                    y);
        }
    }
    return STATUS_OK;
}

static enum status check_waits(const struct check *c, uint32_t i)
{
    const struct insn *in = &c->p->insns[i];
    if (in->nwaits > LIMIT_WAITS)
        return insn_fault(c, i, "%u waits, at most %u are allowed", in->nwaits, LIMIT_WAITS);
    if ((uint64_t)in->wait + in->nwaits > c->p->nwaits)
        return insn_fault(c, i, "its waits lie beyond the program's %" PRIu32, c->p->nwaits);
    for (uint32_t k = 0; k < in->nwaits; k++) {
        const struct wait *w = &c->p->waits[in->wait + k];
        if (w->queue >= NQUEUES)
            return insn_fault(c, i, "it waits on queue %u of %d", w->queue, NQUEUES);
        if (w->position >= c->count[w->queue])
            return insn_fault(c, i, "it waits for %s:%" PRIu32 ", but that queue has %" PRIu32 " instructions",
                              isa_queue_name((enum queue)w->queue), w->position, c->count[w->queue]);
        if (w->queue == in->queue && w->position >= c->position[in->queue])
            return insn_fault(c, i, "it waits for itself or a later instruction of its own queue");
    }
    return STATUS_OK;
}

/* Instructions that share their operands are checked once; they must have all else of a body in common. */
static enum status check_body(struct check *c, uint32_t i, const struct row *row)
{
    const struct program *p = c->p;
    const struct insn *in = &p->insns[i];
    uint32_t *body = &c->body[in->operand];
    if (*body != NONE) {
        const struct insn *x = &p->insns[*body];
        if (x->op == in->op && x->queue == in->queue && x->attr == in->attr)
            return STATUS_OK;
        return insn_fault(
            c, i, "it shares operands with instruction %" PRIu32 ", but not its opcode, queue and attributes", *body);
    }
    TRY(check_operands(c, i, row));
    TRY(check_attrs(c, i, row));
    struct binding b = {.attr = row->info->nattrs ? p->attrs + in->attr : NULL};
    for (uint8_t k = 0; k < row->info->nattrs; k++)
        if (row->info->attr[k].kind == ATTR_GROUP)
            b.group_size = (uint64_t)p->slots[b.attr[k].slot].most;
    TRY(check_shapes(c, i, row, &b));
    *body = i;
    return STATUS_OK;
}

static enum status check_insn(struct check *c, uint32_t i)
{
    const struct program *p = c->p;
    const struct insn *in = &p->insns[i];
    if (in->op >= NOPS)
        return insn_fault(c, i, "unknown opcode");
    struct row *row = &c->rows[in->op];
    if (!row->info)
        compile_row(row, in->op);
    if (!isa_queue_legal(in->op, (enum queue)in->queue))
        return insn_fault(c, i, "it may not run on queue %s", isa_queue_name((enum queue)in->queue));
    if (i && in->seq <= p->insns[i - 1].seq)
        return insn_fault(c, i, "seq %" PRIu32 " follows %" PRIu32, in->seq, p->insns[i - 1].seq);
    if ((uint64_t)in->operand + row->info->noperands > p->noperands)
        return insn_fault(c, i, "its operands lie beyond the program's %" PRIu32, p->noperands);
    if ((uint64_t)in->attr + row->info->nattrs > p->nattrs)
        return insn_fault(c, i, "its attributes lie beyond the program's %" PRIu32, p->nattrs);
    if (in->action && (in->action < 'A' || in->action > 'Z'))
        return insn_fault(c, i, "its action is not a letter");
    TRY(check_body(c, i, row));
    TRY(check_waits(c, i));
    c->position[in->queue]++;
    return STATUS_OK;
}

/* two in training, or none */
static enum status check_seams(const struct check *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->p->ninsns; i++)
        if (c->p->insns[i].op == OP_SEAM && (++n > 2 || c->p->evaluation))
            return insn_fault(c, i, c->p->evaluation ? "a seam in an evaluation program" : "a third seam");
    return n != 1 ? STATUS_OK : insn_fault(c, 0, "the program has one seam, not two");
}

enum status program_check_code(const struct program *p, struct error *error)
{
    struct check c = {.p = p, .error = error};
    for (uint32_t i = 0; i < p->ninsns; i++) {
        if (p->insns[i].queue >= NQUEUES)
            return insn_fault(&c, i, "unknown queue %u", p->insns[i].queue);
        c.count[p->insns[i].queue]++;
    }
    c.rows = program_alloc(NULL, NOPS, sizeof *c.rows);
    memset(c.rows, 0, NOPS * sizeof *c.rows);
    c.body = program_alloc(NULL, (size_t)p->noperands + 1, sizeof *c.body);
    memset(c.body, 0xff, ((size_t)p->noperands + 1) * sizeof *c.body);
    enum status s = STATUS_OK;
    for (uint32_t i = 0; i < p->ninsns && s == STATUS_OK; i++)
        s = check_insn(&c, i);
    if (s == STATUS_OK)
        s = check_seams(&c);
    free(c.rows);
    free(c.body);
    return s;
}
