#ifndef LLMC_PLACE_H
#define LLMC_PLACE_H

/* Places all buffers of a program in one arena: sets their offsets and arena_bytes.
 *
 * Host memory comes first: at least host_bytes, which the rank's other program uses.  Persistent buffers follow in
 * their order, so that the training and evaluation programs of a role agree.  Step buffers and slots of rings share
 * bytes only where every use of one happens before the first definition of the other (by queue order and waits),
 * never by predicted time.  Where it saves enough, so do single live ranges, from a write to the last read of what
 * it wrote: a buffer that lies at several offsets, one after the other, becomes a ring of its own with a slot for
 * each, and operands name the slot.
 *
 * A program that has been placed can be placed again, but with the rings as the first placement left them. */

#include "compiler/support/arena.h"
#include "runtime/program.h"

void place_program(struct arena *a, struct program *p, uint64_t host_bytes);
/* The same where an arena of `enough` bytes is as good as any smaller one.  Live ranges are placed one by one only
 * if the arena would otherwise take more than `usual` bytes. */
void place_within(struct arena *a, struct program *p, uint64_t host_bytes, uint64_t enough, uint64_t usual);

/* How many bytes of device memory a program's buffers need, persistent ones included.  sure: a lower bound for every
 * placement: the most bytes that are live at a compute instruction in every run that queue order and waits allow.
 * possible: the most that are live in some such run, on the clock of the compute queue; no bound, but close to one. */
struct place_peak {
    uint64_t sure, possible;
};
struct place_peak place_peak(struct arena *a, const struct program *p);

#endif
