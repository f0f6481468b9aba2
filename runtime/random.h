#ifndef LLMC_RANDOM_H
#define LLMC_RANDOM_H

/* Counter-based random numbers: a function of seed, tensor name and element index alone, so that every layout
 * of a job starts from the same weights. */

#include <stdint.h>

/* Philox4x32-10: four words from a counter and a key */
void random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* out[i] = std * standard normal number of element first + i * step of the tensor of that name */
void random_normals(uint64_t seed, const char *name, uint64_t first, uint64_t step, uint32_t n, double std, float *out);

#endif
