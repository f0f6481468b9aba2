#ifndef LLMC_CUDA_KERNELS_H
#define LLMC_CUDA_KERNELS_H

/* The CUDA kernels' contract, for C and C++: kernels/cpu specifies what they compute, this header how they are
 * called.
 *
 * One function per compute row of isa.def.  It puts kernels on a stream and returns at once: NULL = launched, else
 * what went wrong, as a static string.  A call allocates nothing, never synchronises, and neither reads nor writes
 * operands from the host, so all of it can be captured in a graph and replayed; what changes from step to step is
 * read by the kernels from device memory (the step block, staged ids).  Same arguments, same bits: sums are taken in
 * an order that depends on shapes alone, and nothing is added by floating-point atomics. */

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/kernels.h"
#include "runtime/workspace.h"

struct CUstream_st;    /* cudaStream_t = struct CUstream_st *: this header needs no CUDA header */
struct cuda_libraries; /* cuBLASLt, cuDNN, their handles and chosen algorithms: runtime/cuda_api.h */

struct cuda_call {
    const struct kernel_args *args; /* views' data are device addresses; scratch, batch and routing are not used */
    struct CUstream_st *stream;
    /* device memory for this call alone, aligned to 256 bytes; contents unspecified before and after */
    void *workspace;
    size_t workspace_bytes; /* at least cuda_workspace_bytes() */
    /* What the host prepared for this instruction and the device copied before the step, in device memory, dense int32.
     * TOKENS, TOKENS_AHEAD: `rows` ids, then `rows` targets, both always there.  ROUTE: choices given to the run, t x
     * k, or NULL = free; a token whose first is -1 is free too.  Others: NULL. */
    const int32_t *staged;
    struct cuda_libraries *libraries; /* products and attention only */
};

#define KERNEL_MATMUL(name) const char *cuda_##name(const struct cuda_call *c);
#define KERNEL_ATTENTION(name) const char *cuda_##name(const struct cuda_call *c);
#define KERNEL_STREAM(name) const char *cuda_##name(const struct cuda_call *c);
#define KERNEL_HOST(name) const char *cuda_##name(const struct cuda_call *c);
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

/* cuda_NAME of an opcode */
const char *cuda_kernel(enum op op, const struct cuda_call *c);
/* NULL if these kernels support the shapes and attributes, else what is wrong; to be called after kernel_check() */
const char *cuda_check(enum op op, const struct kernel_args *k);
/* device memory that the call needs, by the rule of runtime/workspace.h; sm: compute capability, 90 = 9.0 */
size_t cuda_workspace_bytes(enum op op, const struct kernel_args *k, int sm);

/* the argument of that rule */
struct workspace_of cuda_workspace_of(enum op op, const struct kernel_args *k);
/* NULL, or why an instruction that asks for fp8 runs in its operands' own dtype on this device */
const char *cuda_note(enum op op, const struct kernel_args *k, int sm);

/* To be called for every compute instruction once its operands and workspace have addresses, before the first launch,
 * outside capture and before anything of value is in memory: products measure their algorithms on the instruction's own
 * operands (which it fills with random numbers) or find them in the cache, attention builds cuDNN's plans.  May
 * synchronise the stream.  Without it launches use the libraries' first suggestion.  NULL = fine */
const char *cuda_prepare(enum op op, const struct cuda_call *c);

/* The two parts of cuda_check(): for memory-bound rows (*.cu except products), and for products and attention (units
 * MATMUL and ATTENTION, and ATTENTION_MERGE). */
const char *cuda_stream_check(enum op op, const struct kernel_args *k);
const char *cuda_product_check(enum op op, const struct kernel_args *k);

#ifdef __cplusplus
}
#endif

#endif
