#ifndef LLMC_ISA_H
#define LLMC_ISA_H

/* Everything that follows from isa.def: numbers, names, operand marks, attribute kinds, units. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum op {
#define INSN(name, queue, unit, operands, attributes, meaning) OP_##name,
#include "runtime/isa.def"
    NOPS
};

/* queues of a rank: each runs in order; wait lists are the only order between them */
enum queue { QUEUE_COMPUTE, QUEUE_TP, QUEUE_SEND, QUEUE_RECV, QUEUE_DP, QUEUE_COPY, NQUEUES, QUEUE_ANY = NQUEUES };
enum unit { UNIT_MATMUL, UNIT_ATTENTION, UNIT_STREAM, UNIT_P2P, UNIT_COLLECTIVE, UNIT_HOST };
/* the order gives the numbers in files */
enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F64, DTYPE_I32, DTYPE_F16, NDTYPES };

/* how an instruction uses one operand */
enum mark { MARK_NONE, MARK_READ, MARK_WRITE, MARK_ADD /* accumulate: read and write */, MARK_UPDATE /* RW */ };
/* an operand's format in isa.def's table: its dtype class and, for some G, which of the job's formats it is */
enum isa_format {
    FORMAT_C,
    FORMAT_G,
    FORMAT_F,
    FORMAT_I,
    FORMAT_D,
    FORMAT_A,
    FORMAT_G_COMPUTE,
    FORMAT_G_GRADIENT,
    FORMAT_G_MASTER,
    FORMAT_G_MOMENT
};
/* an operand as the table declares it: MARK_ADD stands for "write or accumulate" */
struct isa_operand {
    const char *name;
    enum mark mark;
    bool optional;
    char dtype; /* C G F I D A, see isa.def */
    enum isa_format format;
    const char *rows, *cols;
};
enum attr_kind { ATTR_INT, ATTR_REAL, ATTR_BIND, ATTR_PEER, ATTR_GROUP };
struct isa_attr {
    const char *name;
    enum attr_kind kind;
    bool optional; /* if not given it is 0 and not printed */
};
/* x is a multiple of y, at most y, or below y; each is a name among the row's shapes or attributes, or a number */
enum relation_kind { RELATION_WHOLE, RELATION_MOST, RELATION_BELOW };
struct isa_relation {
    const char *x, *y;
    enum relation_kind kind;
};
/* permitted range of integer attributes of that name */
struct isa_range {
    const char *name;
    int64_t least, most;
};
#define ISA_MAX_RELATIONS 4
#define ISA_MAX_OPERANDS 12
#define ISA_MAX_ATTRS 16
struct isa_info {
    const char *name;
    enum queue queue;
    enum unit unit;
    uint8_t noperands, nattrs;
    struct isa_operand operand[ISA_MAX_OPERANDS];
    struct isa_attr attr[ISA_MAX_ATTRS + 1]; /* terminated by an empty entry */
    const struct isa_relation *relation;     /* terminated by an empty entry */
    const char *meaning;
};

/* Index of an operand or attribute by name, at compile time: OPND(RMSNORM, rstd), ATTR(ROPE, theta). */
#define OPND(op, name) (offsetof(struct isa_opnds_##op, name))
#define ATTR(op, name) (offsetof(struct isa_attrs_##op, name))
#define OPNDS(...) __VA_ARGS__
#define ATTRS(...) __VA_ARGS__
#define R(n, d, r, c) char n;
#define RO(n, d, r, c) char n;
#define W(n, d, r, c) char n;
#define WO(n, d, r, c) char n;
#define WA(n, d, r, c) char n;
#define WAO(n, d, r, c) char n;
#define RW(n, d, r, c) char n;
#define RWO(n, d, r, c) char n;
#define INT(n) char n;
#define INTO(n) char n;
#define REAL(n) char n;
#define REALO(n) char n;
#define BIND(n) char n;
#define BINDO(n) char n;
#define PEER(n) char n;
#define GROUP(n) char n;
#define WHOLE(x, y)
#define MOST(x, y)
#define BELOW(x, y)
#define INSN(name, queue, unit, operands, attributes, meaning)                                                         \
    struct isa_opnds_##name {                                                                                          \
        operands char end_;                                                                                            \
    };                                                                                                                 \
    struct isa_attrs_##name {                                                                                          \
        attributes char end_;                                                                                          \
    };
#include "runtime/isa.def"

/* the step block: fp64[8], written by the host before each step; the only place for what changes from step to step */
enum { STEP_NUMBER, STEP_LR, STEP_CORRECTION1, STEP_CORRECTION2, STEP_SAMPLE, STEP_WORDS = 8 };
/* The metrics block: fp64[5].  At the end of a step the first METRIC_SUMS words are summed over all ranks; the
 * others, if a program limits its expert rows, are maximised: what ARRANGE lacked. */
enum {
    METRIC_SQNORM,
    METRIC_LOSS,
    METRIC_BALANCE,
    METRIC_SUMS,
    METRIC_NEED = METRIC_SUMS,
    METRIC_NEED_ROWS,
    METRIC_WORDS
};

/* the loss scale, fp64[4], which persists between steps, as CLIP_SCALED leaves it */
enum { SCALE_FACTOR, SCALE_GOOD_STEPS, SCALE_PATIENCE, SCALE_SKIPPED, SCALE_WORDS };

extern const struct isa_info isa_table[NOPS];
/* NULL: no such instruction */
static inline const struct isa_info *isa_info(enum op op)
{
    return (unsigned)op < NOPS ? &isa_table[op] : NULL;
}
bool isa_find(const char *name, enum op *op);
const struct isa_range *isa_range(const char *name); /* NULL: not bounded */
bool isa_holds(const struct isa_relation *r, uint64_t x, uint64_t y);
const char *isa_queue_name(enum queue q);
const char *isa_unit_name(enum unit u);
const char *isa_dtype_name(enum dtype d);
static inline uint32_t isa_dtype_bytes(enum dtype d)
{
    return d == DTYPE_F64 ? 8 : d == DTYPE_BF16 || d == DTYPE_F16 ? 2 : (unsigned)d < NDTYPES ? 4 : 0;
}
/* formats of C and G operands: fp32, or one of 16 bits */
static inline bool isa_dtype_real(enum dtype d)
{
    return d == DTYPE_F32 || d == DTYPE_BF16 || d == DTYPE_F16;
}
/* number of int32 words for a row of that many numbers in 8 bits, as isa.def defines it */
static inline uint64_t isa_eight_words(uint64_t cols)
{
    return (cols + 3) / 4 + (cols + 127) / 128;
}
/* Matrix products; grouped products of expert rows, each with its expert's weights.  isa.c asserts that operands
 * which are looked up under one product's name have the same index in all products of the kind. */
static inline bool isa_product(enum op op)
{
    return op == OP_MATMUL_NT || op == OP_MATMUL_NN || op == OP_MATMUL_TN;
}
static inline bool isa_grouped(enum op op)
{
    return op == OP_GROUPED_NT || op == OP_GROUPED_NN || op == OP_GROUPED_TN;
}
/* may the instruction run on that queue?  Instructions of queue ANY run on COMPUTE, TP or DP */
bool isa_queue_legal(enum op op, enum queue q);
/* hash of all rows: programs carry it, and the loader refuses a program with a different one */
uint64_t isa_fingerprint(void);

#endif
