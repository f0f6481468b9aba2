/* Byte-level tokens: the vocabulary that needs no file of its own.  Streams, so the size of the text is no
 * matter. */

#include "compiler/inspect/tokens.h"
#include "runtime/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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

/* a stream that cannot be positioned gets its tokens, and their header, when all have been counted */
static bool hand_on(FILE *gathered, FILE *to)
{
    unsigned char bytes[CHUNK];
    rewind(gathered);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, gathered)) > 0;)
        if (fwrite(bytes, 1, n, to) != n)
            return false;
    return !ferror(gathered);
}

/* NULL; or why not, and of which of the two paths that is said */
static const char *convert(FILE *from, struct file_out *out, bool header, uint64_t *ntokens, bool *blame_in)
{
    FILE *to = out->replaces ? out->stream : tmpfile();
    if (!to)
        return strerror(errno);
    bool fine = (!header || write_header(to, 0)) && copy_tokens(from, to, header ? INT32_MAX : UINT64_MAX, ntokens);
    const char *why = fine ? NULL : strerror(errno);
    *blame_in = ferror(from);
    if (fine && (!*ntokens || (header && *ntokens > INT32_MAX))) {
        *blame_in = true;
        why = *ntokens ? "more than 2^31 - 1 bytes do not fit the header's count" : "empty";
    }
    if (!why && header && (fseek(to, 0, SEEK_SET) || !write_header(to, *ntokens))) /* now the count is known */
        why = strerror(errno);
    if (!why && to != out->stream && !hand_on(to, out->stream))
        why = strerror(errno);
    if (to != out->stream)
        fclose(to);
    return why;
}

enum status tokens_write(const char *in, const char *out, bool header, uint64_t *ntokens, struct error *error)
{
    struct file_out file = {.stream = NULL};
    FILE *from;
    bool blame_in = true;
    *ntokens = 0;
    const char *why = file_read_stream(in, &from);
    if (!why) {
        blame_in = false;
        why = file_create(out, &file);
        if (!why) {
            why = convert(from, &file, header, ntokens, &blame_in);
            if (why)
                file_discard(&file);
            else
                why = file_publish(&file);
        }
        if (from != stdin)
            fclose(from);
    }
    if (!why)
        return STATUS_OK;
    return error_set(error, blame_in ? STATUS_INPUT : STATUS_WORLD, "%s: %s", blame_in ? in : out, why);
}
