#ifndef LLMC_PARALLEL_H
#define LLMC_PARALLEL_H

/* Work on all cores that the process may use.  What comes out must not depend on how many there are: a piece of work
 * writes nothing but what belongs to its own index, and allocates from an arena of its own. */

#include <stdint.h>

/* Calls each(context, i) once for every i < n, from several threads at a time, those with small i first; returns when
 * all have returned. */
void parallel_each(uint32_t n, void (*each)(void *context, uint32_t i), void *context);

#endif
