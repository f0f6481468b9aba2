#ifndef LLMC_TESTS_RANDOM_MODEL_H
#define LLMC_TESTS_RANDOM_MODEL_H

/* Models and jobs over all that the language can say and `llmc plan` can emit, at dimensions of a few elements. */

#include "compiler/support/arena.h"

#include <stdint.h>

/* a whole file, without a plan block; equal states give equal texts */
char *random_model(struct arena *a, uint64_t *state);

#endif
