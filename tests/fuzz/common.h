#ifndef LLMC_TESTS_FUZZ_COMMON_H
#define LLMC_TESTS_FUZZ_COMMON_H

/* What fuzzers share.  An input costs tens of microseconds, so whatever they need is made once: an arena, files, and a
 * stream for what is printed. */

#include "compiler/support/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ends the process, which libFuzzer reports, unless it is so */
void require(bool fine);
/* the same arena each time, with nothing in it */
struct arena *empty_arena(void);
/* whatever is printed here is gone */
FILE *nowhere(void);

/* A folder in memory of this process alone, made at the first call and removed at its end. */
const char *fuzz_folder(void);
/* A file there, open for writing until the process ends. */
int fuzz_file(const char *name);
/* The file has these bytes, and no others. */
void fuzz_put(int fd, const void *bytes, size_t n);

#endif
