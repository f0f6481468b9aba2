#ifndef LLMC_CALIBRATE_H
#define LLMC_CALIBRATE_H

/* `llmrun --calibrate --device cuda`: how fast this machine's kernels are, as the <measured> block of a cluster file.  Products
 * are points that llmc predicts by; attention and memory-bound kernels are comments.  CPU ranks: runtime/calibrate_ranks.h. */

#include "runtime/cuda_plugin.h"
#include "runtime/status.h"

#include <stdio.h>

/* One sentence in error on failure. */
enum status calibrate(const struct cuda_plugin *plugin, FILE *out, char *error, size_t error_size);

/* Curves of NCCL's collectives, by all ranks together; the first prints.  per_node: ranks of each node, in order; most_bytes:
 * the largest size, and half of the memory that is used */
struct calibrate_group {
    uint32_t rank, nranks, per_node;
    int device;
    uint64_t most_bytes;
    struct nccl_id id;
};
enum status calibrate_collectives(const struct cuda_plugin *plugin, const struct nccl_functions *f, const struct calibrate_group *g,
                                  FILE *out, char *error, size_t error_size);
/* the block's first lines: date, device */
void calibrate_begin(const struct cuda_plugin *plugin, int device, FILE *out);

#endif
