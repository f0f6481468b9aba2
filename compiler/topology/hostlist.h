#ifndef LLMC_HOSTLIST_H
#define LLMC_HOSTLIST_H

/* Slurm host lists: a[001-004,7],b-[1-2]x[1-3],login.
 *
 * A list is patterns separated by commas; brackets hold numbers and ranges; the rightmost bracket runs
 * fastest. A range is padded to the width of its low bound when that is longer than its digits need
 * (001-100). Names are counted and bounded before anything is allocated. */

#include "compiler/support/arena.h"
#include "compiler/support/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

#define HOSTLIST_NAME_MAX 255u
#define HOSTLIST_BYTES_MAX ((uint64_t)64 << 20) /* of all names of one list */

struct hostlist {
    uint32_t n;
    const char **names;
};

/* what is wrong with `length` bytes from byte `at` */
struct hostlist_error {
    size_t at, length;
    char message[120];
};

/* How many names a list stands for, duplicates counted; false when the list is malformed or has more than
 * max. */
bool hostlist_count(const char *text, size_t length, uint64_t max, uint64_t *count, struct hostlist_error *e);
/* all of them, in order */
bool hostlist_expand(struct arena *a, const char *text, size_t length, uint64_t max, struct hostlist *list,
                     struct hostlist_error *e);
/* The list that expands to these names in this order: neighbours that differ in their last number share a bracket. */
void hostlist_print(struct strbuf *out, const char *const *names, size_t n);

#endif
