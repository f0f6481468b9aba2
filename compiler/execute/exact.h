#ifndef LLMC_EXECUTE_EXACT_H
#define LLMC_EXECUTE_EXACT_H

/* Does a plan compute what one rank computes?  Exactly, modulo a prime (Schwartz 1980: two polynomials that differ
 * agree at a random point with probability degree / 2^61).
 *
 * Both are run for a few steps from equal random parameters and optimizer state, each followed by an evaluation.  Equal
 * must be: the gradient of every parameter that any rank's optimizer sees, every updated parameter and its state, on
 * every rank that holds it, and loss, norm and held-out loss on all ranks. */

#include "compiler/emit/plan.h"

struct exact_truth; /* what one rank computes */

#define EXACT_STEPS 2

/* NULL and *why if the plan cannot be executed.  Lives in the arena. */
struct exact_truth *exact_truth(struct arena *a, const struct plan *one, const char **why);

struct exact_result {
    const char *why;                      /* NULL: equal; else the first difference, in the arena */
    uint64_t elements, ninsns, undefined; /* compared; executed; elements read that nobody had written */
};
/* seed 0: queues in a fixed order; else adversarial */
struct exact_result exact_compare(struct arena *a, const struct plan *p, const struct exact_truth *t, uint64_t seed);

#endif
