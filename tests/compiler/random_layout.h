#ifndef LLMC_TESTS_RANDOM_LAYOUT_H
#define LLMC_TESTS_RANDOM_LAYOUT_H

/* Layouts over every dimension that a decision has, for tiny models of all kinds: what decision_emittable()
 * accepts today is drawn, so tests that use this grow with the lowering. */

#include "compiler/llmc.h"

struct layout_model {
    const char *name, *text;
};
extern const struct layout_model layout_models[];
extern const uint32_t layout_nmodels;

/* the cluster is random_host()'s of tests/compiler/random_plan.h */
/* A legal and emittable decision for 2 to max_ranks ranks; false if none was found in many draws.  Equal
 * states give equal layouts as long as the rules of legality stay. */
bool layout_draw(struct arena *a, uint64_t *state, const struct job *job, const struct topo *topo,
                 uint32_t max_ranks, struct decision *out);
/* what a job says and a decision doesn't: the optimizer's state on the host, what may not overlap, and what shall;
 * drawn before the layout */
void layout_wishes(uint64_t *state, struct job *job);
/* one rank, one sequence at a time */
struct decision layout_alone(struct arena *a, const struct job *job, const struct topo *topo);

#endif
