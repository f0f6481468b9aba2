#ifndef LLMC_TESTS_RANDOM_SIZES_H
#define LLMC_TESTS_RANDOM_SIZES_H

/* Jobs and decisions of the size that people train, over every dimension: what a plan's estimate and its programs must agree
 * about.  Steps are short (few microbatches), so that one compiles in well under a second. */

#include "compiler/llmc.h"

struct sized_draw {
    const char *model, *cluster; /* text of the model; path of the cluster file */
    struct job *job;
    struct topo *topo;
    struct decision decision;
};
/* A legal and emittable decision; false if the seed leads to none.  Equal seeds give equal draws as long as the rules of
 * legality stay. */
bool sized_draw(struct arena *a, uint64_t seed, struct sized_draw *out);

#endif
