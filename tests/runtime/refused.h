#ifndef LLMC_TESTS_REFUSED_H
#define LLMC_TESTS_REFUSED_H

/* What cases expect the loader to refuse: compared with what it says, and noted for the test that wants a
 * case of every refusal. */

#include "compiler/support/vec.h"
#include "runtime/status.h"

struct refused {
    struct arena *arena;
    VEC(const char *) messages;
};
/* What cases expect, and is said, is noted here from now on; NULL: no longer. */
void refused_collect(struct refused *to);
/* Fails the test unless the status is that of a refusal and the message this one. */
void refused_expect(enum status s, const char *said, const char *message);

/* all cases of a file that expect refusals */
void program_refusals(void);        /* test_program.c */
void program_bad_refusals(void);    /* test_program_bad.c */
void program_damage_refusals(void); /* test_program_damage.c */
void ranks_refusals(void);          /* test_ranks.c */

#endif
