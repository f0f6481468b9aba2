#ifndef LLMC_WORK_H
#define LLMC_WORK_H

/* Equal work: instructions of a plan that do the same on operands of the same shapes, whoever's they are.  A rank whose
 * instructions take longer than the same ones of other ranks is slow, however the plan divides the work.  Left out is
 * what depends on data or on the rank's place: communication, whatever reads integers (tokens, experts' rows), and
 * instructions with attributes of the rank's own (parts of sequences). */

#include "runtime/program.h"
#include "runtime/world.h"

enum { WORK_NONE = UINT8_MAX };

struct work {
    uint32_t nkinds, nroles; /* at most WORK_KINDS kinds: those that take most */
    enum op op[WORK_KINDS];
    uint8_t **kind;                /* by role and instruction, WORK_NONE where it is none of them */
    uint32_t (*count)[WORK_KINDS]; /* by role: instructions of each kind in a step */
};

/* programs: by role */
enum status work_make(struct work *w, const struct ranks *r, const struct program *const *programs);
void work_free(struct work *w);

#endif
