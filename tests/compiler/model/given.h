#ifndef LLMC_TESTS_GIVEN_H
#define LLMC_TESTS_GIVEN_H

/* A job of six layers on eight CPU ranks with a legal decision, for tests that change one thing of it. */

#include "compiler/model/decision.h"

struct given {
    struct arena *a;
    struct job *job;
    struct topo *topo;
    struct layer *layer; /* all six layers are this one */
    struct decision d;
};
/* placed and cut; ends with arena_free(g.a) */
struct given given(void);

#endif
