#ifndef LLMC_CALIBRATE_RANKS_H
#define LLMC_CALIBRATE_RANKS_H

/* `llmrun --calibrate` for CPU ranks: describes this machine as a cluster file with which llmc can plan.  Kernels
 * are measured on all cores at once, as they run in training; collectives by every number of ranks up to that of the
 * file.  All times count only while a process had a core, so other work on the machine is not included. */

#include "runtime/error.h"

#include <stdint.h>
#include <stdio.h>

enum { CALIBRATE_MOST_RANKS = 64 }; /* of a node of a cluster file */

struct calibrate_machine {
    uint32_t cores, ranks;
    double send_bytes_s;   /* of a large transfer between two ranks */
    double stream_bytes_s; /* average of memory-bound kernels per core, with all cores busy */
    double peak_flop_s[2]; /* of the fastest matrix product in fp32, bf16 */
};

/* the cluster file of a machine of `ranks` ranks; 0: as many as it has cores.  One sentence in error on failure. */
enum status calibrate_ranks(uint32_t ranks, FILE *out, struct error *error);

/* calibrate_kernels.c: <gemm>, <attention> and <kernel> elements to out, and what the machine's element says of them */
enum status calibrate_kernels(struct calibrate_machine *m, FILE *out, struct error *error);
/* calibrate_meetings.c: <collective> elements, and send_bytes_s */
enum status calibrate_meetings(struct calibrate_machine *m, FILE *out, struct error *error);

#endif
