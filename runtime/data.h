#ifndef LLMC_DATA_H
#define LLMC_DATA_H

/* Token data: a flat file of little-endian uint16 or uint32 ids, bare or behind a 1,024-byte header, or
 * Megatron's .bin with its .idx; mapped read-only, never copied.
 *
 * Sample i is the tokens [i S, i S + S], S + 1 of them, i taken modulo floor((n - 1) / S): a function of the
 * file and i alone, so every layout reads the same batches. */

#include "runtime/error.h"

#include <stddef.h>
#include <stdint.h>

struct batch_source;

/* Opens a file for sequences of `sequence` tokens.  A bare file holds uint16 when vocab <= 65536, else
 * uint32. Path may name the .bin or the .idx of a Megatron pair.  On failure one sentence in error. */
enum status data_open(const char *path, uint64_t sequence, uint64_t vocab, struct batch_source **out,
                      struct error *error);
/* A source in memory of so many samples, whose ids are 0 until data_set() changes them; STATUS_WORLD without memory */
enum status data_blank(uint64_t samples, uint64_t sequence, struct batch_source **out);
/* its token `at`, which the next data_copy() sees; at < data_ntokens() */
void data_set(struct batch_source *s, uint64_t at, int32_t id);
void data_close(struct batch_source *s);

uint64_t data_ntokens(const struct batch_source *s);
uint64_t data_nsamples(const struct batch_source *s);
/* XXH64 of its ids as they are stored, without headers, and of their number: of all that fit in 4 MiB; of more, of
 * DATA_BLOCKS blocks at even distances, the first and the last ids among them. */
enum { DATA_BLOCKS = 64, DATA_BLOCK = 1 << 16 /* bytes */ };
uint64_t data_hash(const struct batch_source *s);
/* the file's mapping, for the summary's account of memory */
const void *data_mapping(const struct batch_source *s, size_t *bytes);
/* checks that the ids of samples 0 .. samples - 1 (or all, if fewer) are below vocab; names the first that
 * isn't */
enum status data_check(const struct batch_source *s, uint64_t samples, struct error *error);

/* copies n ids of a sample from its position `from` on, written `stride` words apart; from + n <= S + 1 */
void data_copy(const struct batch_source *s, uint64_t sample, uint64_t from, uint32_t n, int32_t *out, uint32_t stride);

#endif
