#ifndef LLMC_EXECUTE_EXACT_H
#define LLMC_EXECUTE_EXACT_H

/* Does a plan compute what a single rank computes?  Exactly, modulo a prime (Schwartz 1980: two polynomials that
 * differ agree at a random point with probability at most degree / 2^61).
 *
 * Both are run for a few steps, each followed by an evaluation, from the same random parameters and optimizer state.
 * The following must be equal: the gradient of every parameter, as any rank's optimizer reads it; every updated
 * parameter and its state, on every rank that holds it; and the loss, the gradient norm and the held-out loss on all
 * ranks. */

#include "compiler/transition/transition.h"

struct exact_truth; /* the result of a single rank */

#define EXACT_STEPS 2

/* Returns NULL, and sets *why, if the plan cannot be executed.  The result is allocated in the arena. */
struct exact_truth *exact_truth(struct arena *a, const struct plan *one, const char **why);

struct exact_result {
    const char *why;                      /* NULL: equal; otherwise the first difference, allocated in the arena */
    uint64_t elements, ninsns, undefined; /* elements compared; instructions executed; elements read that nobody had
                                           * written */
};
/* seed 0: queues run in a fixed order; otherwise in an adversarial one. */
struct exact_result exact_compare(struct arena *a, const struct plan *p, const struct exact_truth *t, uint64_t seed);

/* The same for a job that goes over to another plan: t->from runs the first step and its evaluation; the transition's
 * programs run over what that leaves in its ranks' memories; t->to runs the other step on what they leave in new ones.
 * Only the loss scale goes along without them, like the number of the step.  Requires the truth of t's job. */
struct exact_result exact_transition(struct arena *a, const struct transition *t, const struct exact_truth *truth,
                                     uint64_t seed);

#endif
