#ifndef LLMC_TESTS_CUDA_CASES_H
#define LLMC_TESTS_CUDA_CASES_H

/* The memory-bound CUDA kernels against kernels/cpu, from one table of rows and shapes.  Where operands lie and how a call is
 * started is the caller's: the CPU's emulation in tests/kernels, a GPU in tests/gpu.
 *
 * Every case runs in fp32 and bf16 of both kinds, writing and accumulating, with operands that are dense, with gaps
 * between rows, and not aligned.  Inputs are random and never zero; what is to be written, gaps and workspace are NaN.
 * A case passes if the outputs agree, nothing else was written, and a second run gives the same bits. */

#include "kernels/kernels.h"

struct cuda_call;

struct cuda_place {
    void *(*make)(size_t bytes);
    void (*drop)(void *memory);
    void (*store)(void *to, const void *from, size_t bytes); /* to the device */
    void (*fetch)(void *to, const void *from, size_t bytes); /* from the device */
    const char *(*launch)(enum op op, const struct cuda_call *c);
    const char *(*finish)(int run); /* waits; NULL or what went wrong; after run 0 the same calls come again */
};

/* runs the cases of rows whose names contain filter (NULL: all); prints what is wrong, rows without a case among it; returns how
 * many runs failed */
unsigned cuda_cases_check(const struct cuda_place *p, const char *filter, unsigned *nruns);

/* shapes by isa.def's names, attributes, and the range of int32 operands: [low, high) */
struct cuda_shape {
    enum op op;
    struct {
        const char *name;
        uint32_t value;
    } dims[6];
    struct {
        const char *name;
        double value;
    } attrs[12];
    int32_t low, high;
};
/* views without memory or gaps, and attributes; bits of absent: optional operands left out */
void cuda_cases_views(const struct cuda_shape *s, uint32_t absent, enum dtype c, enum dtype g, struct kernel_args *k);

/* Does the operand have another format than the first such?  Of an instruction without C those of G differ. */
bool cuda_cases_other(const struct isa_info *info, uint32_t operand);

/* fp32 or bf16 elements and others, for tests that make their own operands */
double cuda_cases_get(const struct view *v, uint32_t i, uint32_t j);
void cuda_cases_set(const struct view *v, uint32_t i, uint32_t j, double x);

#endif
