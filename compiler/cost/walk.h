#ifndef LLMC_WALK_H
#define LLMC_WALK_H

/* A block's backward pass as the lowering has it: kernels one after the other, and beside them a queue of transfers in order.
 * What a transfer brings is used at once, by a later kernel, or at the operator's end; one that needs nothing of this pass is
 * asked for ahead, as soon as the queue comes to it and the room that it goes to is free. */

#include "compiler/support/vec.h"

#include <stdbool.h>
#include <stdint.h>

/* passes that a step belongs to: B; I; W */
enum { WALK_B = 1, WALK_I = 2, WALK_W = 4 };
enum walk_kind {
    WALK_KERNEL,
    WALK_BLOCK,  /* a transfer of what is there, which the next kernel needs */
    WALK_AHEAD,  /* one that needs nothing of this pass, into a room; */
    WALK_BEHIND, /* one of what is there, into a room; */
    WALK_USE,    /* the next kernel needs what comes into that room; */
    WALK_FREE    /* nothing does any more */
};
/* gathered inputs and gradients of outputs of products; their inputs' gradients; keys with values, sums of their gradients */
enum walk_room { WALK_INPUT, WALK_OUTPUT, WALK_REDUCED, WALK_KEYS, WALK_SUMS, NWALK_ROOMS };
struct walk_step {
    uint8_t kind, room, passes;
    uint32_t opr;
    double seconds;
};
struct walk {
    struct arena *arena;
    uint32_t opr; /* whose steps are added */
    VEC(struct walk_step) again, steps; /* what runs again first; then operators from the last to the first */
};

void walk_add(struct walk *w, enum walk_kind kind, enum walk_room room, uint32_t passes, double seconds);
/* of the forward pass that runs again in B or I: a kernel, or a transfer that it waits for */
void walk_again(struct walk *w, enum walk_kind kind, double seconds);
/* Seconds by which a pass outlasts its kernels; round: behind one of its like, else by itself. */
double walk_exposed_s(const struct walk *w, uint32_t pass, bool round);

#endif
