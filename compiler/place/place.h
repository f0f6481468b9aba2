#ifndef LLMC_PLACE_H
#define LLMC_PLACE_H

/* Places all buffers of a program in one arena.
 *
 * Persistent buffers come first, in their order, so that training and evaluation programs of a role agree.  Step buffers and
 * slots of rings share bytes only where every use of one happens before the first definition of the other (queue order and
 * waits), never by predicted time.  Where it saves enough, so do lives, from a write to the last read of what it writes: a
 * buffer that lies in several places, one after the other, becomes a ring of its own with a slot for each, and operands say
 * which.  Sets offsets and arena_bytes.  Host memory comes first: at least host_bytes, what the other program of the rank has
 * of it.  A program that has been placed can be placed again, but from what the first time has made of its rings. */

#include "compiler/support/arena.h"
#include "runtime/program.h"

void place_program(struct arena *a, struct program *p, uint64_t host_bytes);
/* the same where an arena of `enough` bytes is as good as any smaller one, and lives are placed apart only for one of less than
 * `usual` bytes */
void place_within(struct arena *a, struct program *p, uint64_t host_bytes, uint64_t enough, uint64_t usual);

/* What any placement of a program's buffers must hold of the device's memory: the most bytes that are live at a compute
 * instruction in every run that the queues' orders and the waits allow, persistent ones among them.  And the same of runs
 * that they allow at all, on the clock of the compute queue, which is no bound but close to one. */
struct place_peak {
    uint64_t sure, possible;
};
struct place_peak place_peak(struct arena *a, const struct program *p);

#endif
