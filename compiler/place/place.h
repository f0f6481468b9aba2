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

/* Places the programs of all roles, side by side; eval and each of its programs may be NULL.  Only the memory of the
 * fullest role decides whether a plan fits, so live ranges are placed one by one in those programs alone that would
 * otherwise take most.  PLACE_FOR_PEAK: where only the peak is asked for, nothing is placed more tightly than the
 * bytes that some role needs in any placement. */
enum place_for { PLACE_FOR_USE, PLACE_FOR_PEAK };
void place_roles(struct arena *a, struct program *const *train, struct program *const *eval, uint32_t nroles,
                 enum place_for purpose);

/* How many bytes of device memory a program's buffers need, persistent ones included.  sure: a lower bound for every
 * placement: the most bytes that are live at a compute instruction in every run that queue order and waits allow.
 * possible: the most that are live in some such run, on the clock of the compute queue; no bound, but close to one. */
struct place_peak {
    uint64_t sure, possible;
};
struct place_peak place_peak(struct arena *a, const struct program *p);

#endif
