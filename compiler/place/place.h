#ifndef LLMC_PLACE_H
#define LLMC_PLACE_H

/* Places all buffers of a program in one arena.
 *
 * Persistent buffers come first, in their order, so that training and evaluation programs of a role agree.  Step buffers
 * share bytes only where every use of one happens before the first definition of the other (queue order and waits),
 * never by predicted time.  Sets offsets and arena_bytes.  Host memory comes first: at least host_bytes, what the other
 * program of the rank has of it. */

#include "compiler/support/arena.h"
#include "runtime/program.h"

void place_program(struct arena *a, struct program *p, uint64_t host_bytes);

#endif
