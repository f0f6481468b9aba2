#ifndef LLMC_PROGRAM_BYTES_H
#define LLMC_PROGRAM_BYTES_H

/* The container of binary files, and the encoding of numbers in it; private to program*.c.
 *
 *   magic[8]  version u32  sections u32  file bytes u64  fingerprint u64
 *   per section: bytes u64  hash u64                           hash of all above u64
 *   sections, consecutively, to the end of the file
 *
 * All fixed-width numbers are little-endian.  Inside sections numbers are varints: 7 bits per byte, lowest first, in
 * the fewest bytes; signed ones are zigzag-encoded.  Writers end the process when memory runs out. */

#include "runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes { /* start with {0}; free at */
    uint8_t *at;
    size_t n, room;
};
void bytes_raw(struct bytes *b, const void *data, size_t n);
void bytes_number(struct bytes *b, uint64_t v);
void bytes_signed(struct bytes *b, int64_t v);
void bytes_real(struct bytes *b, double v);
void bytes_text(struct bytes *b, const char *s, size_t size); /* of an array of size bytes */

/* Reading past the end, or a number without an end, sets bad.  Numbers that are longer than necessary or too large
 * for their field are not detected here: whoever reads a file compares it with the encoding of its contents. */
struct reader {
    const uint8_t *at, *end;
    bool bad;
};
uint64_t read_number(struct reader *r);
int64_t read_signed(struct reader *r);
double read_real(struct reader *r);
/* reads into a field of size bytes; stores nothing if the text does not fit */
void read_text(struct reader *r, char *to, size_t size);
/* For numbers on which memory safety depends; on failure 0 and bad: a number below a limit; base + a signed number
 * below a limit; a count of items that take at least one byte each, so never more than the bytes left. */
uint64_t read_below(struct reader *r, uint64_t limit);
uint32_t read_offset(struct reader *r, int64_t base, uint32_t limit);
uint32_t read_count(struct reader *r);

struct container {
    char magic[9];
    const char *what; /* "program" */
    uint32_t version, nsections;
    uint64_t fingerprint;
};
/* joins the sections, which are freed */
void container_write(const struct container *c, struct bytes *sections, uint8_t **bytes, size_t *size);
/* sets section[nsections] to readers of the sections */
enum status container_open(const struct container *c, const uint8_t *bytes, size_t size, struct reader *section,
                           struct error *error);
/* a whole regular file; free *bytes */
enum status container_load(const char *path, uint8_t **bytes, size_t *size, struct error *error);

#endif
