#ifndef LLMC_PLANNED_TIMES_H
#define LLMC_PLANNED_TIMES_H

/* Planned times of every role's instructions, as `llmc trace DIR --times` writes them:
 *   llmc-times 1 ROLES STEP_NS, then per role its instructions' number and their durations in nanoseconds. */

#include "runtime/program.h"

struct planned_times {
    int64_t step_ns;
    uint32_t nroles;
    int64_t **ns; /* by role and instruction */
};
enum status planned_times_read(const char *path, const struct program *const *programs, uint32_t nroles,
                               struct planned_times *out, struct error *error);
void planned_times_free(struct planned_times *p);

#endif
