#ifndef LLMC_LOWER_FINISH_H
#define LLMC_LOWER_FINISH_H

/* Private to the lowering: what is left when all roles' instructions are written. */

#include "compiler/cost/cost.h"
#include "compiler/lower/lower.h"

/* order.c: keying simulation, ring depths, queue order, waits and sequence numbers */
struct lowered {
    struct program *p;
    const uint32_t *channels; /* per instruction: channel of a SEND or RECV, a small number; else NONE */
    uint32_t cuts;            /* number of parts of every buffer that are waited for separately */
};
void order_programs(const struct cost *c, const struct lowered *roles, uint32_t nroles, uint32_t microbatches);

#endif
