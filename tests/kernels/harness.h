#ifndef LLMC_TESTS_HARNESS_H
#define LLMC_TESTS_HARNESS_H

/* Runs a kernel on operands that lie against inaccessible pages, with gaps between rows, and compares all it
 * wrote with a reference in double precision.  Shapes come from isa.def's own expressions. */

#include "kernels/kernels.h"

struct dim {
    const char *name; /* of a shape's name in isa.def */
    uint32_t value;
};
struct sample {
    enum op op;
    double *v[ISA_MAX_OPERANDS]; /* operands' values, dense; outputs: what they should become */
    uint32_t rows[ISA_MAX_OPERANDS], cols[ISA_MAX_OPERANDS];
    union value attr[ISA_MAX_ATTRS];
};
struct kernel_case {
    enum op op;
    struct dim dims[8];
    struct {
        const char *name;
        double value;
    } attrs[ISA_MAX_ATTRS];
    void (*prepare)(struct sample *s);   /* makes inputs consistent; NULL = random numbers do */
    void (*reference)(struct sample *s); /* inputs -> outputs, as if nothing were accumulated */
    uint32_t integers;                   /* int32 operands are drawn from [0, integers) */
    double tolerance;                    /* relative to the largest reference value, for fp32; 0 = 2e-6 */
    uint32_t absent;                     /* bits: optional operands left out */
};

/* all of: C and G in fp32 and one of bf16 and fp16, writing and accumulating, operands against the page before and after */
void harness_check(const struct kernel_case *c);

/* v[out] = gradient of objective by v[in], by central differences */
void harness_differentiate(struct sample *s, double (*objective)(const struct sample *s), uint32_t in,
                           uint32_t out);

/* slope of head h of n's linear biases, as the paper's authors compute it (arXiv 2108.12409) */
double harness_slope(int64_t n, int64_t h);

/* of a sample's operand by its name: an element, its shape, all elements */
#define AT(s, op, name, i, j) ((s)->v[OPND(op, name)][(size_t)(i) * (s)->cols[OPND(op, name)] + (size_t)(j)])
#define ROWS(s, op, name) ((s)->rows[OPND(op, name)])
#define COLS(s, op, name) ((s)->cols[OPND(op, name)])
#define EACH(s, op, name, i, j)                                                                              \
    for (uint32_t i = 0; i < ROWS(s, op, name); i++)                                                         \
        for (uint32_t j = 0; j < COLS(s, op, name); j++)
#define INT_ATTR(s, op, name) ((s)->attr[ATTR(op, name)].i)
#define REAL_ATTR(s, op, name) ((s)->attr[ATTR(op, name)].f)

#endif
