#ifndef LLMC_CALIBRATE_RANKS_H
#define LLMC_CALIBRATE_RANKS_H

/* `llmrun --calibrate` for CPU ranks: this machine as a cluster file that llmc plans with as it is.  Kernels are measured on all
 * cores at once, as they run in training; collectives by every number of ranks up to that of the file.  All
 * times are those that a process had a core, so that what else the machine does meanwhile is not in them. */

#include "runtime/error.h"

#include <stdint.h>
#include <stdio.h>

enum { CALIBRATE_MOST_RANKS = 64 }; /* of a node of a cluster file */

struct calibrate_machine {
    uint32_t cores, ranks;
    double send_bytes_s;   /* of a large transfer between two ranks */
    double stream_bytes_s; /* of memory-bound kernels on average, a core's with all of them at it */
    double peak_flop_s[2]; /* fp32, bf16: of the fastest product */
};

/* the cluster file of a machine of `ranks` ranks; 0: as many as it has cores.  One sentence in error on failure. */
enum status calibrate_ranks(uint32_t ranks, FILE *out, struct error *error);

/* calibrate_kernels.c: <gemm>, <attention> and <kernel> elements to out, and what the machine's element says of them */
enum status calibrate_kernels(struct calibrate_machine *m, FILE *out, struct error *error);
/* calibrate_meetings.c: <collective> elements, and send_bytes_s */
enum status calibrate_meetings(struct calibrate_machine *m, FILE *out, struct error *error);

#endif
