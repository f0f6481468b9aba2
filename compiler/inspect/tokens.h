#ifndef LLMC_TOKENS_H
#define LLMC_TOKENS_H

/* `llmc tokens`: converts any file to byte-level tokens, one id (0-255) per byte, as little-endian uint16. */

#include "runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* header: 1,024 bytes in front, magic 20240520, version 1 and the count, as common loaders expect (then at
 * most 2^31 - 1 tokens); else bare ids.  in: a file, a FIFO, or "-".  out is replaced when all is written; a
 * device, a FIFO or "-" is written into.  On failure one sentence in error. */
enum status tokens_write(const char *in, const char *out, bool header, uint64_t *ntokens, struct error *error);

#endif
