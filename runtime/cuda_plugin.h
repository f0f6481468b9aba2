#ifndef LLMC_CUDA_PLUGIN_H
#define LLMC_CUDA_PLUGIN_H

/* What build/llmrun-cuda.so gives to llmrun: the CUDA runtime and all kernels of kernels/cuda, as one table under the
 * symbol `llmrun_cuda`.  Tests have a table of the same shape that works on host memory.
 *
 * Launching never synchronises, allocates or reads device memory from the host, so that all of it can be captured. */

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/fused.h"
#include "kernels/cuda/meetings.h"
#include "runtime/cuda_api.h"

struct cuda_plugin {
    uint64_t (*fingerprint)(void); /* isa_fingerprint() of the plugin */
    const struct cuda_runtime *runtime;
    /* one line about the device, for the log's header */
    void (*describe)(int device, char *out, size_t size);
    /* Handles of cuBLASLt and cuDNN; the device is set.  deterministic: equal inputs give equal bits from run to run.
     * NULL = fine, else what is missing */
    const char *(*open)(struct cuda_libraries **out, int device, bool deterministic);
    void (*close)(struct cuda_libraries *l);
    const char *(*check)(enum op op, const struct kernel_args *k);
    size_t (*workspace_bytes)(enum op op, const struct kernel_args *k, int sm);
    const char *(*prepare)(enum op op, const struct cuda_call *c); /* or NULL */
    /* or NULL: why an instruction does not run as its attributes ask, NULL = it does */
    const char *(*note)(enum op op, const struct kernel_args *k, int sm);
    /* NULL = launched, else what went wrong; what the call points to is read before it returns */
    const char *(*launch)(enum op op, const struct cuda_call *c);
    /* kernels/cuda/fused.h: how many of n instructions, from the first on, one call can do, what it needs and hides, and that
     * call; fuse NULL = none */
    unsigned (*fuse)(const enum op *ops, const struct kernel_args *const *args, unsigned n);
    size_t (*fused_workspace_bytes)(const enum op *ops, const struct kernel_args *const *args, unsigned n);
    unsigned (*fused_hides)(const enum op *ops, unsigned n);
    const char *(*prepare_fused)(const enum op *ops, const struct kernel_args *const *args, unsigned n, const struct cuda_call *c); /* or NULL */
    const char *(*launch_fused)(const enum op *ops, const struct kernel_args *const *args, unsigned n, const struct cuda_call *c);
    const char *(*sum)(const struct cuda_sum *s, cuda_stream stream);
    const char *(*mark)(uint32_t *word, uint32_t value, cuda_stream stream);
};

#endif
