#ifndef LLMC_TRAFFIC_H
#define LLMC_TRAFFIC_H

/* What an instruction moves, and with whom; for all views that show transfers. */

#include "compiler/emit/plan.h"

struct transfer {
    bool peer; /* with: the peer's pipeline rank; else the mask of its group (mesh_group()) */
    uint32_t with;
    uint32_t members; /* ranks that take part */
    uint64_t bytes;   /* of the largest operand: a send's message, the whole vector of a collective */
};
/* false: instruction `insn` of the role's training program communicates with nobody */
bool transfer_of(const struct plan *p, uint32_t role, uint32_t insn, struct transfer *out);
/* "tp", "cp x dp", "next rank", in the arena */
char *transfer_group(struct arena *a, const struct plan *p, const struct transfer *t, uint32_t role);
/* the lowest level of the cluster that holds all of its members: "scale-up", or a tier's name */
const char *transfer_tier(const struct plan *p, const struct transfer *t);

struct strbuf;
/* Prints the member "traffic", with a comma behind it: what a rank of the fullest role moves in a step, summed by level
 * of the cluster.  Requires the plan's timeline. */
void traffic_tiers_json(const struct plan *p, struct strbuf *out);

#endif
