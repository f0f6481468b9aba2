#ifndef LLMC_TESTS_SHADOW_H
#define LLMC_TESTS_SHADOW_H

/* All ranks of a transition, interpreted on shadow memory: instead of its contents every byte has a word that says which
 * element of which tensor and kind of state it belongs to.  Nothing here is shared with what makes transitions or proves them:
 * tensors are walked as checkpoints walk them (runtime/weights.c), and what a step leaves behind is what an instruction other
 * than a collective writes to a persistent buffer. */

#include "compiler/transition/transition.h"

struct shadow {
    const struct transition *t;
    uint64_t **cells; /* by rank, of every byte of its arena */
};

/* The old plan's state on its seats, all else poisoned.  before: NULL, or a transition that has run, whose new plan is this
 * one's old plan: then its memory goes on. */
struct shadow *shadow_new(const struct transition *t, const struct shadow *before);
void shadow_free(struct shadow *s);
/* Runs all ranks in a random order that queues, waits and meetings allow.  NULL, or what goes wrong: waiting for ever, unequal
 * sides of a transfer, bytes outside of the arena. */
const char *shadow_run(struct shadow *s, uint64_t *random);
/* NULL: all of the new plan's state is where its ranks keep it, its padding 0, and no other element of its persistent buffers was
 * written with something else; else a sentence in the arena */
const char *shadow_wrong(struct arena *a, const struct shadow *s);
/* the same only of what is a tensor's and is left behind by a step: no padding, nothing that the next step makes anew */
const char *shadow_lost(struct arena *a, const struct shadow *s);
/* Does some element that the second plan keeps lie on no rank of the first one outside of node `lost`? */
bool shadow_lacks(const struct plan *from, uint32_t lost, const struct plan *to);

#endif
