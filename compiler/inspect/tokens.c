/* Byte-level tokens: the vocabulary that needs no file of its own.  Streams, so the size of the text is no
 * matter. */

#include "compiler/inspect/tokens.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_WORDS = 256, MAGIC = 20240520, VERSION = 1, CHUNK = 1 << 15 };

static bool write_header(FILE *to, uint64_t count)
{
    unsigned char bytes[HEADER_WORDS * 4] = {0};
    const uint32_t words[] = {MAGIC, VERSION, (uint32_t)count};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++)
        for (size_t b = 0; b < 4; b++)
            bytes[4 * w + b] = (unsigned char)(words[w] >> (8 * b));
    return fwrite(bytes, sizeof bytes, 1, to) == 1;
}

/* at most one chunk more than `most`; false after an error */
static bool copy_tokens(FILE *from, FILE *to, uint64_t most, uint64_t *count)
{
    unsigned char text[CHUNK], ids[2 * CHUNK];
    *count = 0;
    for (size_t n; *count <= most && (n = fread(text, 1, sizeof text, from)) > 0; *count += n) {
        for (size_t i = 0; i < n; i++) {
            ids[2 * i] = text[i];
            ids[2 * i + 1] = 0;
        }
        if (fwrite(ids, 2, n, to) != n)
            return false;
    }
    return !ferror(from);
}

enum status tokens_write(const char *in, const char *out, bool header, uint64_t *ntokens, char *error,
                         size_t error_size)
{
    char temporary[4096];
    if (snprintf(temporary, sizeof temporary, "%s.tmp", out) >= (int)sizeof temporary) {
        snprintf(error, error_size, "%.200s...: the path is too long", out);
        return STATUS_USAGE;
    }
    FILE *from = fopen(in, "rb");
    if (!from) {
        snprintf(error, error_size, "%s: %s", in, strerror(errno));
        return STATUS_INPUT;
    }
    FILE *to = fopen(temporary, "wb");
    *ntokens = 0;
    bool fine = to && (!header || write_header(to, 0)) &&
                copy_tokens(from, to, header ? INT32_MAX : UINT64_MAX, ntokens);
    bool unread = ferror(from);
    bool fits = !header || *ntokens <= INT32_MAX;
    if (fine && header && fits)
        fine = fseek(to, 0, SEEK_SET) == 0 && write_header(to, *ntokens); /* now the count is known */
    int cause = errno;
    fclose(from);
    if (to && fclose(to)) {
        cause = fine ? errno : cause;
        fine = false;
    }
    if (fine && fits && *ntokens && rename(temporary, out) == 0)
        return STATUS_OK;
    if (to)
        unlink(temporary);
    if (unread) {
        snprintf(error, error_size, "%s: %s", in, strerror(cause));
        return STATUS_INPUT;
    }
    if (fine && !*ntokens) {
        snprintf(error, error_size, "%s: empty", in);
        return STATUS_INPUT;
    }
    if (fine && !fits) {
        snprintf(error, error_size, "%s: more than 2^31 - 1 bytes do not fit the header's count", in);
        return STATUS_INPUT;
    }
    snprintf(error, error_size, "%s: %s", out, strerror(fine ? errno : cause));
    return STATUS_WORLD;
}
