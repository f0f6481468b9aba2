#ifndef LLMC_EXECUTE_MEMORY_H
#define LLMC_EXECUTE_MEMORY_H

/* A rank's arena as the exact interpreter represents it: one word for every two bytes, which says what element
 * begins there.
 *
 * An element can only be read as what was written: with another dtype, or where part of its bytes has been
 * overwritten since, it is undefined, except for zeros.  An undefined element reads as a number that differs from
 * seed to seed. */

#include "compiler/execute/field.h"
#include "compiler/support/arena.h"
#include "runtime/isa.h"

struct memory {
    uint64_t *word; /* tag << FIELD_BITS | value */
    uint64_t nwords;
    uint64_t garbage;   /* state of the generator of the numbers that undefined elements read as */
    uint64_t undefined; /* number of undefined elements read */
};
/* a resolved matrix view: byte offset in the arena, sizes in elements */
struct place {
    uint64_t at;
    enum dtype dtype;
    uint32_t rows, cols, ld;
};

void memory_open(struct arena *a, struct memory *m, uint64_t bytes, uint64_t seed);
bool memory_holds(const struct memory *m,
                  const struct place *p); /* all of its bytes are inside the arena, at whole words */
uint64_t memory_read(struct memory *m, uint64_t at, enum dtype dtype);
void memory_write(struct memory *m, uint64_t at, enum dtype dtype, uint64_t value);
/* As dense row-major arrays; integers (DTYPE_I32) as int64_t. */
void memory_load(struct memory *m, const struct place *p, uint64_t *out);
void memory_store(struct memory *m, const struct place *p, const uint64_t *from);
void memory_clobber(struct memory *m, const struct place *p); /* its elements become undefined */
/* what `from` has from one byte on comes to another's, as far as both reach */
void memory_copy(struct memory *to, uint64_t at, const struct memory *from, uint64_t from_at);
bool memory_overlap(const struct place *x, const struct place *y);

#endif
