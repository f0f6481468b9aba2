#ifndef LLMC_DRAWS_H
#define LLMC_DRAWS_H

/* How many of its drawn cases a suite takes: `few` where LLMC_QUICK is set (sanitizers); all with LLMC_DRAWS=all (`make check
 * DRAWS=all`, as .ci/run has it); otherwise a sixth of all, and at least few. */

#include <stdint.h>

uint32_t test_draws(uint32_t all, uint32_t few);
/* for cases of which a sixth takes too long: `usual` instead */
uint32_t test_draws_usual(uint32_t all, uint32_t usual, uint32_t few);

#endif
