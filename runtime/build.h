#ifndef LLMC_BUILD_H
#define LLMC_BUILD_H

/* Ranks compute the same bits only if they run the same program. */

#include <stdint.h>

/* a hash of this program's file; 0: it cannot be read */
uint64_t build_id(void);

#endif
