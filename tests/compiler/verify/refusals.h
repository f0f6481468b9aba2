#ifndef LLMC_TESTS_REFUSALS_H
#define LLMC_TESTS_REFUSALS_H

/* Wrong plans that no text of programs says: changes of ranks.bin, of the cluster, of the job and of buffers' flags. */

#include "compiler/llmc.h"

/* who is asked: all of the verifier, or one property where another would speak first */
enum by {
    BY_VERIFY,
    BY_UNFOLDING, /* prove_full(), matching */
    BY_RUNNING,   /* prove_full(), order */
    BY_MEMORY,
    BY_SKEW,
    BY_CARRIED, /* property 7, what programs carry beside their instructions */
    BY_VALUES,   /* property 7 */
    BY_REFERENCE /* reference_new() */
};
struct by_hand {
    const char *base; /* of refusals_bases.def; NULL ends the list */
    void (*change)(struct arena *a, struct plan *p);
    enum by by;
    const char *message; /* part of it */
};
extern const struct by_hand refusals_by_hand[];
/* Messages' formats without a case, and why; format NULL ends the list. */
extern const struct unreached {
    const char *format, *why;
} refusals_unreached[];

#endif
