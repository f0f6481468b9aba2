#ifndef LLMC_TESTS_FAKE_KERNELS_H
#define LLMC_TESTS_FAKE_KERNELS_H

/* What the fake device runs: kernels/cpu on the operands as they are when the stream comes to them. */

#include "tests/fake/fake_cuda.h"

struct fake_kernel {
    enum op op;
    struct kernel_args args;
    const int32_t *staged;
    void *workspace; /* NULL: it uses none */
    size_t workspace_bytes;
};
fake_step fake_kernel_run; /* state: struct fake_kernel */
fake_step fake_kernel_sum; /* state: struct cuda_sum */

#endif
