#ifndef LLMC_PACE_H
#define LLMC_PACE_H

/* Planned times of every role's instructions, as `llmc trace DIR --times` writes them:
 *   llmc-times 1 ROLES STEP_NS, then per role its instructions' number and their durations in nanoseconds. */

#include "runtime/program.h"

struct pace {
    int64_t step_ns;
    uint32_t nroles;
    int64_t **ns; /* by role and instruction */
};
enum status pace_read(const char *path, const struct program *const *programs, uint32_t nroles, struct pace *out,
                      struct error *error);
void pace_free(struct pace *p);

#endif
