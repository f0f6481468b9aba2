#ifndef LLMC_EXPERT_ROWS_H
#define LLMC_EXPERT_ROWS_H

/* How the rows of a microbatch lie while they are with the experts: blocks, one per expert rank. */

#include "compiler/model/decision.h"

struct expert_rows {
    uint32_t blocks, experts; /* blocks here; experts of each */
    uint32_t block;           /* rows of a block */
    uint32_t capacity;        /* rows per sequence and expert, 0 = no limit */
    bool bounded;             /* a block may be too small */
    uint32_t nodes, node;     /* blocks of a rank's own rows, one per node, and rows of one; nodes is 1 where rows go straight */
    bool node_bounded;
};
/* nodes, room: as in a decision (ep_nodes, 1 = straight; 0 = all that can come); of `local` rows of a rank and `sequence` rows
 * of a sequence on it */
struct expert_rows expert_rows_new(const struct moe *m, uint32_t ep, uint32_t nodes, double room, uint32_t local, uint32_t sequence);

#endif
