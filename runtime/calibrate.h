#ifndef LLMC_CALIBRATE_H
#define LLMC_CALIBRATE_H

/* `llmrun --calibrate --device cuda`: how fast this machine's kernels are in a mix like a training step's, as the
 * <measured> block of a cluster file.  CPU ranks: runtime/calibrate_ranks.h. */

#include "runtime/cuda_plugin.h"
#include "runtime/error.h"

#include <stdio.h>

/* deterministic: by the kernels that give equal bits from run to run.  One sentence in error on failure. */
enum status calibrate(const struct cuda_plugin *plugin, bool deterministic, FILE *out, struct error *error);

/* Curves of NCCL's collectives, by all ranks together; the first prints.  per_node: ranks of each node, in order;
 * most_bytes: the largest size, and half of the memory that is used */
struct calibrate_group {
    uint32_t rank, nranks, per_node;
    int device;
    uint64_t most_bytes;
    struct nccl_id id;
};
enum status calibrate_collectives(const struct cuda_plugin *plugin, const struct nccl_functions *f,
                                  const struct calibrate_group *g, FILE *out, struct error *error);
/* the block's first lines: date, device */
void calibrate_begin(const struct cuda_plugin *plugin, int device, FILE *out);

#endif
