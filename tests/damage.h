#ifndef LLMC_TESTS_DAMAGE_H
#define LLMC_TESTS_DAMAGE_H

/* Texts with a few bytes changed, or cut off: whatever a reader is given, it ends in errors or in a result. */

#include "compiler/support/arena.h"

#include <stdbool.h>
#include <stdint.h>

struct damage {
    struct arena *scratch; /* reset after each */
    const char *text;
    size_t size;
    uint32_t which; /* of the texts */
};
struct damage_text {
    const char *text;
    size_t size;
};

/* Each of n texts so often, with bytes of `bytes` in it: take() says whether the reader took it, and must have asserted
 * that errors and results exclude each other.  Asserts that more than n were taken, and more than n refused. */
void damage_all(const struct damage_text *texts, uint32_t n, uint32_t each, const char *bytes,
                bool (*take)(const struct damage *d, void *with), void *with);

#endif
