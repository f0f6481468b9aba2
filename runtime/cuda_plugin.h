#ifndef LLMC_CUDA_PLUGIN_H
#define LLMC_CUDA_PLUGIN_H

/* What build/llmrun-cuda.so provides to llmrun: the CUDA runtime and all kernels of kernels/cuda, as one table under
 * the symbol `llmrun_cuda`.  Tests have a table of the same shape that works on host memory.
 *
 * Launching never synchronises, allocates, or reads device memory from the host, so all of it can be captured in
 * graphs. */

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/fused.h"
#include "kernels/cuda/meetings.h"
#include "runtime/cuda_api.h"

struct cuda_plugin {
    uint64_t (*fingerprint)(void); /* isa_fingerprint() of the plugin */
    const struct cuda_runtime *runtime;
    /* one line about the device, for the log's header */
    void (*describe)(int device, char *out, size_t size);
    /* Opens handles of cuBLASLt and cuDNN; the device has been set.  deterministic: equal inputs give equal bits in
     * every run.  NULL: fine, else what is missing. */
    const char *(*open)(struct cuda_libraries **out, int device, bool deterministic);
    void (*close)(struct cuda_libraries *l);
    const char *(*check)(enum op op, const struct kernel_args *k);
    size_t (*workspace_bytes)(enum op op, const struct kernel_args *k, int sm);
    const char *(*prepare)(enum op op, const struct cuda_call *c); /* or NULL */
    /* may be NULL; returns why an instruction does not run as its attributes ask, NULL: it does */
    const char *(*note)(enum op op, const struct kernel_args *k, int sm);
    /* NULL: launched, else what went wrong; everything that the call points to has been read when it returns */
    const char *(*launch)(enum op op, const struct cuda_call *c);
    /* kernels/cuda/fused.h: how many of n instructions, starting with the first, one call can execute; its
     * workspace; the operand that it may leave unwritten; and that call.  fuse may be NULL: no instructions are
     * fused. */
    unsigned (*fuse)(const enum op *ops, const struct kernel_args *const *args, unsigned n);
    size_t (*fused_workspace_bytes)(const enum op *ops, const struct kernel_args *const *args, unsigned n);
    unsigned (*fused_hides)(const enum op *ops, unsigned n);
    const char *(*prepare_fused)(const enum op *ops, const struct kernel_args *const *args, unsigned n,
                                 const struct cuda_call *c); /* or NULL */
    const char *(*launch_fused)(const enum op *ops, const struct kernel_args *const *args, unsigned n,
                                const struct cuda_call *c);
    const char *(*sum)(const struct cuda_sum *s, cuda_stream stream);
    const char *(*mark)(uint32_t *word, uint32_t value, cuda_stream stream);
};

#endif
