#ifndef LLMC_ALLOCATIONS_H
#define LLMC_ALLOCATIONS_H

#include <stdint.h>

/* calls of malloc and its kin by this process so far; stays 0 in builds with a sanitizer, which has its own
 */
uint64_t allocations_count(void);

#endif
