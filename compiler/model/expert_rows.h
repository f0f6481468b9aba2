#ifndef LLMC_EXPERT_ROWS_H
#define LLMC_EXPERT_ROWS_H

/* How the rows of a microbatch are laid out while they are with the experts: in blocks, one per expert-parallel
 * rank. */

#include "compiler/model/decision.h"

struct expert_rows {
    /* blocks: one per expert-parallel rank, of one node where rows go through nodes; experts: on each rank */
    uint32_t blocks, experts;
    uint32_t block;    /* rows that a block has memory for */
    uint32_t capacity; /* rows per sequence and expert, 0 = no limit */
    bool bounded;      /* a block may be too small for what is routed to it */
    /* two-step exchange: blocks of a rank's own rows, one per node, and the rows of one; nodes is 1 where rows go
     * straight */
    uint32_t nodes, node;
    bool node_bounded;
};
/* nodes, room: a decision's ep_nodes (1: rows go straight) and room (0: for all rows that can come).  local: rows of
 * a microbatch on this rank; sequence: rows of one sequence on it. */
struct expert_rows expert_rows_new(const struct moe *m, uint32_t ep, uint32_t nodes, double room, uint32_t local,
                                   uint32_t sequence);

#endif
