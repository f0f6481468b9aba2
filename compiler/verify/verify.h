#ifndef LLMC_VERIFY_H
#define LLMC_VERIFY_H

/* Proofs about a plan, one property per file (numbers of the design's list):
 *   match.c 2 matching    order.c 3 no deadlock    race.c 4 no race    defined.c 5 defined    memory.c 6
 * memory conserve*.c, precision.c, carried.c 7 conservation    placement.c 8 placement    skew.c: of 2, 4 and 7, what seams need. Property 1 is the
 * loader's (program_check, ranks_check).
 *
 * By roles: local properties once per role, over the whole range of slots; one pass over ranks.bin checks
 * every slot value against the mesh, so that what holds for a role's mesh formula holds for each of its
 * ranks.  `full` unfolds all ranks and uses nothing but ranks.bin.  Nothing here shares code with lower/. */

#include "compiler/emit/plan.h"

struct violation {
    uint32_t property;   /* 1-8 */
    uint32_t role, rank; /* rank: a witness; NONE if any */
    bool evaluation;     /* in the evaluation program */
    uint32_t insn;       /* NONE = none */
    const char *message; /* one sentence; names instruction text and source line where there is one */
};
struct verdict {
    uint32_t nviolations; /* at most 20 are kept per property */
    struct violation *violations;
    uint64_t checked_insns, checked_ranks;
    bool certificate; /* property 3 holds with one total order of all communication */
};

struct verdict *verify_plan(struct arena *a, const struct plan *p, bool full);

/* the single properties, for tests; each appends to the verdict */
void verify_match(struct arena *a, const struct plan *p, bool full, struct verdict *v);
void verify_order(struct arena *a, const struct plan *p, bool full, struct verdict *v);
void verify_race(struct arena *a, const struct plan *p, struct verdict *v);
void verify_defined(struct arena *a, const struct plan *p, struct verdict *v);
void verify_carried(struct arena *a, const struct plan *p,
                    struct verdict *v); /* these two are of property 7 */
void verify_precision(struct arena *a, const struct plan *p, struct verdict *v);
void verify_skew(struct arena *a, const struct plan *p, struct verdict *v); /* of 2, 4 and 7 */
void verify_memory(struct arena *a, const struct plan *p, struct verdict *v);
void verify_conserve(struct arena *a, const struct plan *p, struct verdict *v);
void verify_placement(struct arena *a, const struct plan *p, bool full, struct verdict *v);

#endif
