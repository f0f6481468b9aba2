#ifndef LLMC_TESTS_FAKE_CUBLASLT_H
#define LLMC_TESTS_FAKE_CUBLASLT_H

/* A cuBLASLt on host memory: column-major products in plain loops, as layouts, operations, epilogue and beta say.  What the
 * real one forbids or leaves undefined is refused: unset or wrong attributes, shapes that do not fit, combinations of types
 * it lacks, an algorithm of another shape, too small a workspace, pointers less aligned than was promised, use after
 * destruction.  Its three algorithms differ in memory, and in `cost`, which a test's clock may count. */

#include "kernels/cuda/libraries.h"

struct fake_lt_state {
    int live;      /* descriptors, layouts, preferences and handles not destroyed yet */
    int products;  /* run so far */
    int eight, fast; /* of them: of 8-bit operands, by fast accumulation */
    int joined;      /* of them: with gelu, its slope or a bias's gradient */
    bool lacks_gelu, wrong_sum; /* a test's wish: no algorithm for those; wrong gradients of biases */
    bool lacks_eight; /* a test's wish: no algorithm for operands of 8 bits */
    int cost;      /* of them all: algorithm 0, 1, 2 cost 30, 10, 20 */
    int heuristics; /* how often algorithms were asked for */
    const char *wrong; /* the first rule that was broken */
};

struct cublaslt_functions fake_cublaslt(void);
struct fake_lt_state *fake_lt(void);

#endif
