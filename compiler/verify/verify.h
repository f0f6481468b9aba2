#ifndef LLMC_VERIFY_H
#define LLMC_VERIFY_H

/* Proofs about a plan, one property per file (numbers of the design's list):
 *   match.c 2 matching                  order.c 3 no deadlock       race.c 4 no race
 *   defined.c 5 defined                 memory.c 6 memory           conserve*.c, precision.c, job_tables.c 7
 * conservation placement.c 8 placement             skew.c of 2, 4 and 7, what seams need Property 1 is the loader's
 * (program_check, ranks_check).
 *
 * By roles: local properties are checked once per role, over the whole range of slots.  One pass over ranks.bin
 * checks every slot value against the mesh, so what holds for a role's mesh formula holds for each of its ranks.
 * `full` checks every rank by itself and uses nothing but ranks.bin.  Nothing here shares code with lower/. */

#include "compiler/emit/plan.h"

struct violation {
    uint32_t property;   /* number of the property, 1 to 8 */
    uint32_t role, rank; /* rank: an example; NONE: any */
    bool evaluation;     /* in the evaluation program */
    uint32_t insn;       /* NONE: no single instruction */
    const char *message; /* one sentence, with the instruction's text and source line if there is one */
};
struct verdict {
    uint32_t nviolations; /* at most 20 are kept per property */
    struct violation *violations;
    uint64_t checked_insns, checked_ranks;
    bool certificate; /* property 3 holds, with one total order of all communication */
};

struct verdict *verify_plan(struct arena *a, const struct plan *p, bool full);

/* the single properties; each appends to the verdict */
void verify_match(struct arena *a, const struct plan *p, bool full, struct verdict *v);
void verify_order(struct arena *a, const struct plan *p, bool full, struct verdict *v);
void verify_race(struct arena *a, const struct plan *p, struct verdict *v);
void verify_defined(struct arena *a, const struct plan *p, struct verdict *v);
void verify_job_tables(struct arena *a, const struct plan *p, struct verdict *v); /* these two belong to property 7 */
void verify_precision(struct arena *a, const struct plan *p, struct verdict *v);
void verify_skew(struct arena *a, const struct plan *p, struct verdict *v); /* parts of properties 2, 4 and 7 */
void verify_memory(struct arena *a, const struct plan *p, struct verdict *v);
/* conservation, of the training step and of evaluation */
void verify_training(struct arena *a, const struct plan *p, struct verdict *v);
void verify_evaluation(struct arena *a, const struct plan *p, struct verdict *v);
void verify_placement(struct arena *a, const struct plan *p, struct verdict *v);

#endif
