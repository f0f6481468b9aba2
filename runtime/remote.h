#ifndef LLMC_REMOTE_H
#define LLMC_REMOTE_H

/* One rank of a run over several machines, or of several processes that share nothing: a region of its own, and a meeting over
 * the network with rank 0 at host:port. */

#include "runtime/launch.h"
#include "runtime/run.h"

/* after run_open() and run_open_device(), with NCCL; LLMRUN_SECRET in the environment is the run's secret */
enum status run_remote(struct run *r, const struct launch *l, const char *host, uint16_t port, char *error, size_t error_size);

#endif
