#ifndef TESTS_SIMULATE_HANDMADE_H
#define TESTS_SIMULATE_HANDMADE_H

/* Programs made by hand from a schedule, for tests of the simulator: one FILL or COPY per action, SEND and
 * RECV of the boundary values in rings, the waits these need, and nothing else.  Instructions are in a
 * runnable order but seq is only that of the program. */

#include "compiler/schedule/schedule.h"

struct program **handmade_programs(struct arena *a, const struct schedule *s, uint32_t depth);
void handmade_free(struct program **programs, uint32_t nroles);

#endif
