/* The instruction table as data.  Everything comes from isa.def; a row added there needs nothing here.
 *
 * The fingerprint covers every field of every row that gives a number in a program its meaning, in order, so that two
 * builds agree on it exactly when they agree on all of these. */

#include "runtime/isa.h"
#include "runtime/hash.h"

#include <string.h>

#define INT(n)
#define INTO(n)
#define REAL(n)
#define REALO(n)
#define BIND(n)
#define BINDO(n)
#define PEER(n)
#define GROUP(n)
#define WHOLE(x, y) {#x, #y, RELATION_WHOLE},
#define MOST(x, y) {#x, #y, RELATION_MOST},
#define BELOW(x, y) {#x, #y, RELATION_BELOW},
#define INSN(name, queue, unit, operands, attributes, meaning) {attributes{NULL, NULL, RELATION_WHOLE}},
static const struct isa_relation relations[NOPS][ISA_MAX_RELATIONS + 1] = {
#include "runtime/isa.def"
};

#define OPERAND(n, m, o, d, r, c)                                                                                      \
    {.name = #n, .mark = m, .optional = o, .dtype = #d[0], .format = FORMAT_##d, .rows = #r, .cols = #c},
#define R(n, d, r, c) OPERAND(n, MARK_READ, false, d, r, c)
#define RO(n, d, r, c) OPERAND(n, MARK_READ, true, d, r, c)
#define W(n, d, r, c) OPERAND(n, MARK_WRITE, false, d, r, c)
#define WO(n, d, r, c) OPERAND(n, MARK_WRITE, true, d, r, c)
#define WA(n, d, r, c) OPERAND(n, MARK_ADD, false, d, r, c)
#define WAO(n, d, r, c) OPERAND(n, MARK_ADD, true, d, r, c)
#define RW(n, d, r, c) OPERAND(n, MARK_UPDATE, false, d, r, c)
#define RWO(n, d, r, c) OPERAND(n, MARK_UPDATE, true, d, r, c)
#define INT(n) {#n, ATTR_INT, false},
#define INTO(n) {#n, ATTR_INT, true},
#define REAL(n) {#n, ATTR_REAL, false},
#define REALO(n) {#n, ATTR_REAL, true},
#define BIND(n) {#n, ATTR_BIND, false},
#define BINDO(n) {#n, ATTR_BIND, true},
#define PEER(n) {#n, ATTR_PEER, false},
#define GROUP(n) {#n, ATTR_GROUP, false},
#define WHOLE(x, y)
#define MOST(x, y)
#define BELOW(x, y)
#define INSN(opname, q, u, operands, attributes, text)                                                                 \
    {.name = #opname,                                                                                                  \
     .queue = QUEUE_##q,                                                                                               \
     .unit = UNIT_##u,                                                                                                 \
     .noperands = offsetof(struct isa_opnds_##opname, end_),                                                           \
     .nattrs = offsetof(struct isa_attrs_##opname, end_),                                                              \
     .operand = {operands},                                                                                            \
     .attr = {attributes{NULL, ATTR_INT, false}},                                                                      \
     .relation = relations[OP_##opname],                                                                               \
     .meaning = text},

const struct isa_info isa_table[NOPS] = {
#include "runtime/isa.def"
};

/* Rows that are alike are asked for operands and attributes by the name of one of them. */
#define SAME_OPERAND(x, y, name) _Static_assert(OPND(x, name) == OPND(y, name), #x " and " #y " differ in " #name)
#define SAME_ATTR(x, y, name) _Static_assert(ATTR(x, name) == ATTR(y, name), #x " and " #y " differ in " #name)
#define SAME_PRODUCT(x, y)                                                                                             \
    SAME_OPERAND(x, y, c);                                                                                             \
    SAME_OPERAND(x, y, a);                                                                                             \
    SAME_OPERAND(x, y, b)
#define SAME_GROUPED(x, y)                                                                                             \
    SAME_PRODUCT(x, y);                                                                                                \
    SAME_OPERAND(x, y, counts);                                                                                        \
    SAME_ATTR(x, y, experts);                                                                                          \
    SAME_ATTR(x, y, blocks);                                                                                           \
    SAME_ATTR(x, y, fp8)
#define SAME_ATTENTION(x, y)                                                                                           \
    SAME_ATTR(x, y, heads);                                                                                            \
    SAME_ATTR(x, y, kv);                                                                                               \
    SAME_ATTR(x, y, head);                                                                                             \
    SAME_ATTR(x, y, sequence);                                                                                         \
    SAME_ATTR(x, y, scale);                                                                                            \
    SAME_ATTR(x, y, window);                                                                                           \
    SAME_ATTR(x, y, softcap);                                                                                          \
    SAME_ATTR(x, y, alibi);                                                                                            \
    SAME_ATTR(x, y, first_head)
SAME_PRODUCT(MATMUL_NT, MATMUL_NN);
SAME_PRODUCT(MATMUL_NT, MATMUL_TN);
SAME_PRODUCT(MATMUL_NT, GROUPED_NT);
SAME_ATTR(MATMUL_NT, MATMUL_NN, fp8);
SAME_ATTR(MATMUL_NT, MATMUL_TN, fp8);
SAME_GROUPED(GROUPED_NT, GROUPED_NN);
SAME_GROUPED(GROUPED_NT, GROUPED_TN);
SAME_ATTENTION(ATTENTION, ATTENTION_I);
SAME_ATTENTION(ATTENTION_PART, ATTENTION_PART_I);
SAME_ATTR(ATTENTION_PART, ATTENTION_PART_I, kparts);
SAME_OPERAND(TOKENS, TOKENS_AHEAD, tokens);
SAME_OPERAND(TOKENS, TOKENS_AHEAD, targets);
SAME_OPERAND(TOKENS, TOKENS_AHEAD, step);
SAME_ATTR(TOKENS, TOKENS_AHEAD, sample);
SAME_ATTR(TOKENS, TOKENS_AHEAD, sequence);
SAME_ATTR(TOKENS, TOKENS_AHEAD, first);
SAME_ATTR(TOKENS, TOKENS_AHEAD, shift);
SAME_OPERAND(CLIP, CLIP_SCALED, scale);
SAME_OPERAND(CLIP, CLIP_SCALED, sum);
SAME_OPERAND(ADAMW, SGD, p);

const struct isa_range *isa_range(const char *name)
{
    static const struct isa_range ranges[] = {
#define INSN(name, queue, unit, operands, attributes, meaning)
#define RANGE(name, least, most) {#name, least, most},
#include "runtime/isa.def"
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!strcmp(ranges[i].name, name))
            return &ranges[i];
    return NULL;
}

bool isa_holds(const struct isa_relation *r, uint64_t x, uint64_t y)
{
    return r->kind == RELATION_WHOLE ? y && x % y == 0 : r->kind == RELATION_MOST ? x <= y : x < y;
}

bool isa_find(const char *name, enum op *op)
{
    for (enum op i = 0; i < NOPS; i++)
        if (!strcmp(isa_table[i].name, name)) {
            *op = i;
            return true;
        }
    return false;
}

const char *isa_queue_name(enum queue q)
{
    static const char *const names[] = {"compute", "tp", "send", "recv", "dp", "copy", "any"};
    return (unsigned)q <= QUEUE_ANY ? names[q] : "?";
}

const char *isa_unit_name(enum unit u)
{
    static const char *const names[] = {"matmul", "attention", "stream", "p2p", "collective", "host"};
    return (unsigned)u <= UNIT_HOST ? names[u] : "?";
}

const char *isa_dtype_name(enum dtype d)
{
    static const char *const names[] = {"f32", "bf16", "f64", "i32", "f16"};
    return (unsigned)d < NDTYPES ? names[d] : "?";
}

bool isa_queue_legal(enum op op, enum queue q)
{
    const struct isa_info *info = isa_info(op);
    if (!info)
        return false;
    if (info->queue != QUEUE_ANY)
        return q == info->queue || (op == OP_COPY && q == QUEUE_COPY);
    return q == QUEUE_TP || q == QUEUE_DP || q == QUEUE_COMPUTE;
}

static uint64_t add_text(uint64_t h, const char *s)
{
    return hash64(s, strlen(s) + 1, h);
}

static uint64_t add_number(uint64_t h, unsigned n)
{
    unsigned char byte = (unsigned char)n;
    return hash64(&byte, 1, h);
}

uint64_t isa_fingerprint(void)
{
    uint64_t h = hash64("llmc isa", 8, NOPS);
    for (size_t i = 0; i < NOPS; i++) {
        const struct isa_info *row = &isa_table[i];
        h = add_text(h, row->name);
        h = add_number(add_number(h, row->queue), row->unit);
        h = add_number(h, row->noperands);
        for (size_t k = 0; k < row->noperands; k++) {
            const struct isa_operand *o = &row->operand[k];
            h = add_number(add_text(h, o->name), o->mark);
            h = add_number(add_number(h, o->optional), (unsigned char)o->dtype);
            h = add_text(add_text(h, o->rows), o->cols);
        }
        h = add_number(h, row->nattrs);
        for (size_t k = 0; k < row->nattrs; k++)
            h = add_number(add_text(h, row->attr[k].name), row->attr[k].kind);
        h = add_text(h, row->meaning);
    }
    return h;
}
