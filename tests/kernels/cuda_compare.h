#ifndef LLMC_TESTS_CUDA_COMPARE_H
#define LLMC_TESTS_CUDA_COMPARE_H

/* One instruction by kernels/cuda, under the emulation of the device language, and by kernels/cpu: same operands with gaps
 * between rows, results compared by ||have - want|| / ||want||. */

#include "kernels/cuda/cuda_kernels.h"

/* where a run's operands are; the emulation's are where the CPU's are */
struct cuda_memory {
    void *(*make)(size_t bytes);
    void (*drop)(void *p);
    void (*store)(void *to, const void *from, size_t bytes);
    void (*fetch)(void *to, const void *from, size_t bytes);
    const char *(*finish)(void); /* all is done: NULL, or what went wrong */
};

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
    const struct cuda_memory *memory; /* NULL = host */
    bool prepare;                     /* cuda_prepare() first */
};

/* prepared operands of the CPU's run, dense or not, before both runs; NULL = random numbers do */
typedef void cuda_case_prepare(const struct cuda_case *c, struct kernel_args *k);
/* for gradients of attention: o and lse must be those of q, k and v, the CPU's forward makes them */
cuda_case_prepare cuda_case_forward;
/* The largest error of all that the row writes, infinite where it cannot be told: a row that fails, an operand or a gap that
 * must stay and doesn't.  Prints what is above most. */
double cuda_compare(const struct cuda_case *c, cuda_case_prepare *prepare, double most);
/* two runs of the CUDA kernel give the same bits, threads in order and in reverse */
bool cuda_repeats(const struct cuda_case *c, cuda_case_prepare *prepare);

/* a launch with operands and workspace in the case's memory, for timing; NULL = made */
struct cuda_sample {
    struct kernel_args args;
    struct cuda_call call;
};
const char *cuda_sample_make(const struct cuda_case *c, cuda_case_prepare *prepare, struct cuda_sample *s);
const char *cuda_sample_launch(const struct cuda_case *c, struct cuda_sample *s);
void cuda_sample_free(const struct cuda_case *c, struct cuda_sample *s);

#endif
