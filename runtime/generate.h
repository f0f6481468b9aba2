#ifndef LLMC_GENERATE_H
#define LLMC_GENERATE_H

/* Text from a trained model: the plan's evaluation says what may come next, one token after the other.
 *
 * Models with a vocabulary of 256 to PROMPT_BYTES_MOST entries read bytes: prompt and answer are text, and entries
 * behind the 256th, which stand for no byte, are never chosen.  For any other vocabulary both are token ids in decimal.
 */

#include "runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exec;
struct run;

enum { PROMPT_BYTES_MOST = 272 };

struct prompt {
    bool bytes;      /* ids are bytes of a text */
    uint32_t *ids;   /* malloc'ed; those of the prompt, with room for the answer behind them */
    uint64_t n, end; /* ids of the prompt; of prompt and answer */
};
/* Reads a prompt for a model of that vocabulary, with room for `more` tokens.  STATUS_USAGE and one sentence in error
 * where it is empty, or not what this vocabulary takes. */
enum status prompt_read(const char *text, uint64_t vocab, uint64_t more, struct prompt *out, struct error *error);

/* the run's prompt for the plan that it has loaded, before its ranks start */
enum status generate_open(struct run *r, struct error *error);
/* bytes of memory that the ranks share for it: zero at first, in the world's region for logits */
size_t generate_shared_bytes(const struct run *r);
/* One rank's part, all ranks at once; exec has the plan's programs, and weights are in the arena.  Rank 0 writes to
 * stdout: text or ids as they come, or one JSON object at the end. */
enum status generate_rank(const struct run *r, struct exec *exec, struct error *error);

/* How the next token is chosen.  temperature 0: always the likeliest; top_k 0: among all */
struct sampling {
    double temperature;
    uint64_t top_k, seed;
};
/* The id whose logit / temperature, with random noise of the Gumbel distribution added, is largest: id i comes with
 * probability softmax(logits / temperature)[i].  The noise depends on seed, place in the text and id alone.  With top_k
 * only logits at least as large as the k-th largest take part.  scratch: n floats.  UINT32_MAX: no logit is a number.
 */
uint32_t sampling_choose(const struct sampling *s, const float *logits, uint32_t n, uint64_t place, float *scratch);

/* The bytes as UTF-8, where every byte that belongs to no character becomes U+FFFD.  out has room for 3 n bytes;
 * returns how many it takes. */
size_t generate_utf8(const uint8_t *bytes, size_t n, char *out);

#endif
