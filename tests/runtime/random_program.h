#ifndef LLMC_TESTS_RANDOM_PROGRAM_H
#define LLMC_TESTS_RANDOM_PROGRAM_H

/* Random valid programs, for properties that must hold for all of them. */

#include "runtime/program.h"

/* n instructions in repeating microbatches; the same seed gives the same program; it passes program_check() */
struct program *random_program(uint64_t seed, uint32_t n);
uint64_t random_next(uint64_t *state);

#endif
