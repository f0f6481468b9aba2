#ifndef LLMC_DRAWS_H
#define LLMC_DRAWS_H

/* How much of itself a suite runs.  Three sizes: few of its cases where LLMC_QUICK is set (sanitizers); all of them with
 * LLMC_DRAWS=all (`make check DRAWS=all`, as .ci/run has it); otherwise, in `make check`, what fits into a few minutes. */

#include <stdbool.h>
#include <stdint.h>

/* number of drawn cases: few, all, or a twelfth of all and at least few */
uint32_t test_draws(uint32_t all, uint32_t few);
/* for cases of which a twelfth is too many or not enough: `usual` instead */
uint32_t test_draws_usual(uint32_t all, uint32_t usual, uint32_t few);
bool test_whole(void);         /* the largest of the sizes, for cases that take long */
bool test_whole_or_skip(void); /* the same; if not, the running test is skipped, with that for its reason */
bool test_usual(void);         /* the one between, which may leave out what sanitizers should see */
bool test_quick(void);         /* the smallest */

#endif
