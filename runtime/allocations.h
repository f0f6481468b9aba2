#ifndef LLMC_ALLOCATIONS_H
#define LLMC_ALLOCATIONS_H

#include <stdint.h>

/* number of calls of malloc() and related functions by this process so far; stays 0 in builds with a sanitizer,
 * which replaces malloc() */
uint64_t allocations_count(void);

#endif
