#ifndef LLMC_TESTS_CUDA_COMPARE_H
#define LLMC_TESTS_CUDA_COMPARE_H

/* One instruction by kernels/cuda, under the emulation of the device language, and by kernels/cpu: same operands with gaps
 * between rows, results compared by ||have - want|| / ||want||. */

#include "kernels/cuda/cuda_kernels.h"

struct cuda_case {
    enum op op;
    struct {
        const char *name;
        double value;
    } number[24];          /* shapes' names and attributes; the others are 0 */
    uint32_t absent;       /* bits: optional operands left out */
    bool unaligned;        /* odd gaps, so that no row begins at a multiple of 16 bytes */
    enum dtype c, g;
    bool add;
    struct cuda_libraries *libraries;
};

/* prepared operands of the CPU's run, dense or not, before both runs; NULL = random numbers do */
typedef void cuda_case_prepare(const struct cuda_case *c, struct kernel_args *k);
/* the largest error of all that the row writes, NaN where one side has no number; prints the case if it is above most */
double cuda_compare(const struct cuda_case *c, cuda_case_prepare *prepare, double most);
/* two runs of the CUDA kernel give the same bits, threads in order and in reverse */
bool cuda_repeats(const struct cuda_case *c, cuda_case_prepare *prepare);

#endif
