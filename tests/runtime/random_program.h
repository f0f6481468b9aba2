#ifndef LLMC_TESTS_RANDOM_PROGRAM_H
#define LLMC_TESTS_RANDOM_PROGRAM_H

/* Random valid programs, for properties that must hold for all of them. */

#include "runtime/program.h"

/* a valid program of eight instructions, as program_print() writes it */
extern const char small_program[];
/* n instructions in repeating microbatches; the same seed gives the same program; it passes program_check()
 */
struct program *random_program(uint64_t seed, uint32_t n);
/* a stage of `layers` equal layers run forward and backward for each microbatch, waits between compute and tp
 * queue */
struct program *layered_program(uint32_t layers, uint32_t microbatches);
/* make the header of a damaged binary file fit it again: its length, its sections' lengths, the fingerprint,
 * all hashes */
void repair_file(uint8_t *file, size_t n, uint64_t fingerprint);
uint64_t random_next(uint64_t *state);

#endif
