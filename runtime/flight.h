#ifndef LLMC_FLIGHT_H
#define LLMC_FLIGHT_H

/* The flight record: after a failure, the last instructions that every rank finished, and the one that it was at. */

#include "runtime/run.h"

/* Writes DIR/failure-N.txt of a run whose ranks have ended, N being the step that it reached, and says so on stderr;
 * DIR/failure-N-2.txt and so on where there is one of that step already.
 * What cannot be written is said, and no more. */
void flight_write(const struct run *r, const char *dir, const char *why);
/* the last step that a rank has begun, counted from 1; 0: none */
uint64_t flight_step(const struct run *r);

#endif
