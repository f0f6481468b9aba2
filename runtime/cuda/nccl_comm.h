#ifndef LLMC_NCCL_COMM_H
#define LLMC_NCCL_COMM_H

/* The configuration of every communicator: non-blocking, so that it can be aborted (NCCL user guide, "Fault
 * tolerance"), and NCCL's own choice of everything else. */

#include "runtime/cuda_api.h"

static inline struct nccl_config nccl_config_new(const char *name)
{
    const int none = NCCL_UNDEFINED;
    return (struct nccl_config){.size = sizeof(struct nccl_config),
                                .magic = 0xcafebeef,
                                .version = 22809,
                                .blocking = 0,
                                .cga_cluster_size = none,
                                .min_ctas = none,
                                .max_ctas = none,
                                .split_share = none,
                                .traffic_class = none,
                                .comm_name = name,
                                .collnet_enable = none,
                                .cta_policy = none,
                                .shrink_share = none,
                                .nvls_ctas = none,
                                .channels_per_net_peer = none,
                                .nvlink_centric_sched = none};
}

#endif
