#ifndef LLMC_RUN_TRACE_H
#define LLMC_RUN_TRACE_H

/* A measured step as Chrome trace JSON: one process per rank, one thread per queue, one event per instruction, named
 * as `llmc trace` names it. */

#include "runtime/exec.h"

/* spans[rank] has one span per instruction of the rank's program */
enum status run_trace_write(const char *path, const struct ranks *ranks, const struct program *const *programs,
                            const struct trace_span *const *spans, struct error *error);

#endif
