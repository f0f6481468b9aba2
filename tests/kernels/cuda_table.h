#ifndef LLMC_TESTS_CUDA_TABLE_H
#define LLMC_TESTS_CUDA_TABLE_H

/* The cases of cuda_cases.h: rows, shapes, and inputs that cannot be any number. */

#include "tests/kernels/cuda_cases.h"

struct cuda_case {
    struct cuda_shape shape; /* int32 operands are drawn from its range unless prepared otherwise */
    void (*prepare)(const struct kernel_args *k, uint64_t *random);
    uint32_t absent; /* bits: optional operands left out */
    bool words;      /* operands of any dtype are int32: rows in 8 bits */
    double tolerance; /* of fp32 and fp64 outputs, relative to the largest value; 0 = 2e-6 */
    enum { STAGED_NONE, STAGED_IDS, STAGED_ROUTING } staged;
};
extern const struct cuda_case cuda_table[];
extern const size_t cuda_table_length;

#define EACH(v, i, j)                                                                                        \
    for (uint32_t i = 0; i < (v)->rows; i++)                                                                 \
        for (uint32_t j = 0; j < (v)->cols; j++)

/* in (0, 1); 64-bit linear congruential generator */
double cuda_cases_draw(uint64_t *state);

#endif
