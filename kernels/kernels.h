#ifndef LLMC_KERNELS_H
#define LLMC_KERNELS_H

/* The contract of kernels/cpu and kernels/cuda: one function per compute row of runtime/isa.def.  kernels/cpu is
 * readable and correct; it is the specification.  Matrix products go to a BLAS. */

#include "runtime/isa.h"

/* a row-major matrix in memory: element (i, j) at data + (i * ld + j) * size of dtype */
struct view {
    void *data; /* NULL = an absent optional operand */
    enum dtype dtype;
    bool add; /* results are added to its contents */
    uint32_t rows, cols, ld;
};
union value {
    int64_t i;
    double f;
};

struct batch_source; /* token data, see runtime/data.h */
struct routing;

struct kernel_args {
    struct view operand[ISA_MAX_OPERANDS]; /* indexed by OPND(op, name) */
    union value attr[ISA_MAX_ATTRS];       /* indexed by ATTR(op, name), slots resolved */
    float *scratch;                        /* at least kernel_scratch_floats() */
    const struct batch_source *batch;      /* used by TOKENS only */
    /* used by ROUTE only, runtime/routing.h; NULL: choices are free and not recorded */
    struct routing *routing;
};

/* Number of fp32 words of scratch, 64-byte aligned, that the kernel needs for these shapes.  Scratch is allocated
 * once, for the largest need. */
size_t kernel_scratch_floats(enum op op, const struct kernel_args *k);

/* NULL if the kernel supports these shapes and attributes (with slots resolved), else what is wrong with them.
 * Memory is not accessed. isa.def's shapes have been checked before. */
const char *kernel_check(enum op op, const struct kernel_args *k);

/* one prototype per compute row; communication instructions belong to the transport */
#define KERNEL_MATMUL(name) void cpu_##name(struct kernel_args *k);
#define KERNEL_ATTENTION(name) void cpu_##name(struct kernel_args *k);
#define KERNEL_STREAM(name) void cpu_##name(struct kernel_args *k);
#define KERNEL_HOST(name) void cpu_##name(struct kernel_args *k);
#define KERNEL_P2P(name)
#define KERNEL_COLLECTIVE(name)
#define INSN(name, queue, unit, operands, attributes, meaning) KERNEL_##unit(name)
#include "runtime/isa.def"
#undef KERNEL_MATMUL
#undef KERNEL_ATTENTION
#undef KERNEL_STREAM
#undef KERNEL_HOST
#undef KERNEL_P2P
#undef KERNEL_COLLECTIVE

#endif
