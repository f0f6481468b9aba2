#ifndef LLMC_PARALLEL_H
#define LLMC_PARALLEL_H

/* Work on all cores that the process may use.  What comes out must not depend on how many there are: a piece of work
 * writes nothing but what belongs to its own index, and allocates from an arena of its own. */

#include <stdint.h>

/* Calls each(context, i) once for every i < n, from several threads at a time, those with small i first; returns when
 * all have returned. */
void parallel_each(uint32_t n, void (*each)(void *context, uint32_t i), void *context);

/* Calls each(context, i, n) once for every i < n, all at the same time, so that they may wait for each other; n is the
 * number of threads that there are, at most `most` and at least 1.  Returns n when all have returned. */
uint32_t parallel_together(uint32_t most, void (*each)(void *context, uint32_t i, uint32_t n), void *context);

#endif
