#ifndef LLMC_HASH_H
#define LLMC_HASH_H

/* Two hashes: a fast one that finds accidents (sections of binary files, tables in memory), and SHA-256,
 * which names a file's contents (MANIFEST).  Both depend on the bytes alone, never on the machine. */

#include <stddef.h>
#include <stdint.h>

/* XXH64 of n bytes.  Not secure: anyone can make two inputs collide. */
uint64_t hash64(const void *bytes, size_t n, uint64_t seed);

/* SHA-256 as 64 lower-case hexadecimal digits and a 0 */
void hash_sha256(const void *bytes, size_t n, char hex[65]);

/* the same, piece by piece */
struct sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    unsigned char block[64];
};
void sha256_start(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *bytes, size_t n);
void sha256_finish(struct sha256 *s, char hex[65]);

#endif
