/* Token files: mapping, recognising the form, checking ids.
 *
 * Forms, by content and name: the 1,024-byte header of 256 int32 (magic 20240520, version 1: uint16; magic
 * 20240801, version 7: uint32; third word the count); Megatron's .idx ("MMIDIDX", arrays unaligned behind a
 * 34-byte header) beside its .bin; otherwise bare ids.  Every size is checked against the file before use. */

#include "runtime/data.h"
#include "runtime/file.h"
#include "runtime/hash.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct batch_source {
    uint8_t *map;
    size_t map_bytes;
    uint8_t *own;       /* of a source in memory */
    const uint8_t *ids; /* maybe unaligned */
    uint32_t id_bytes;  /* 1, 2 or 4 */
    uint64_t ntokens, nsamples, sequence, vocab;
};

enum { HEADER_BYTES = 1024, MAGIC_U16 = 20240520, MAGIC_U32 = 20240801, INDEX_HEADER_BYTES = 34 };

struct file {
    uint8_t *bytes;
    size_t size;
};

static enum status map_file(const char *path, struct file *f, struct error *error)
{
    int fd;
    uint64_t bytes;
    const char *why = file_open(path, &fd, &bytes);
    if (why)
        return error_set(error, STATUS_INPUT, "%s: %s", path, why);
    if (!bytes) {
        close(fd);
        return error_set(error, STATUS_INPUT, "%s: not a file with tokens in it", path);
    }
    f->size = (size_t)bytes;
    f->bytes = mmap(NULL, f->size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (f->bytes == MAP_FAILED) {
        f->bytes = NULL;
        return error_set(error, STATUS_INPUT, "%s: cannot map: %s", path, strerror(errno));
    }
    return STATUS_OK;
}

static void unmap_file(struct file *f)
{
    if (f->bytes)
        munmap(f->bytes, f->size);
}

static uint64_t read_le(const uint8_t *p, uint32_t bytes)
{
    uint64_t x = 0;
    for (uint32_t i = 0; i < bytes; i++)
        x |= (uint64_t)p[i] << (8 * i);
    return x;
}

/* a Megatron index's dtype code -> bytes of an id; 0 = not ids we read */
static uint32_t index_id_bytes(uint8_t code)
{
    return code == 1 ? 1 : code == 8 ? 2 : code == 4 ? 4 : 0;
}

/* The index must describe a .bin of `bin_bytes` as sequences that follow each other without holes. */
static enum status check_index(const char *path, const struct file *f, uint64_t bin_bytes, uint32_t *id_bytes,
                               struct error *error)
{
    const uint8_t *p = f->bytes;
    if (f->size < INDEX_HEADER_BYTES || memcmp(p, "MMIDIDX\0\0", 9) != 0)
        return error_set(error, STATUS_INPUT, "%s: not a Megatron index", path);
    if (read_le(p + 9, 8) != 1)
        return error_set(error, STATUS_INPUT, "%s: index version %llu, only 1 is known", path,
                         (unsigned long long)read_le(p + 9, 8));
    *id_bytes = index_id_bytes(p[17]);
    if (!*id_bytes)
        return error_set(error, STATUS_INPUT, "%s: ids of type code %u; known are 1 (u8), 4 (i32), 8 (u16)", path,
                         p[17]);
    uint64_t sequences = read_le(p + 18, 8), documents = read_le(p + 26, 8), rest = f->size - INDEX_HEADER_BYTES;
    if (sequences > rest / 12 || documents > (rest - 12 * sequences) / 8)
        return error_set(error, STATUS_INPUT, "%s: %llu sequences and %llu documents do not fit in its %zu bytes", path,
                         (unsigned long long)sequences, (unsigned long long)documents, f->size);
    uint64_t used = 12 * sequences + 8 * documents;
    if (rest != used && rest != used + sequences)
        return error_set(error, STATUS_INPUT, "%s: %llu bytes behind its arrays", path,
                         (unsigned long long)(rest - used));
    const uint8_t *length = p + INDEX_HEADER_BYTES, *pointer = length + 4 * sequences;
    uint64_t at = 0;
    for (uint64_t i = 0; i < sequences; i++) {
        uint64_t n = read_le(length + 4 * i, 4);
        if (n > INT32_MAX || read_le(pointer + 8 * i, 8) != at)
            return error_set(error, STATUS_INPUT, "%s: sequence %llu does not follow the one before it", path,
                             (unsigned long long)i);
        at += n * *id_bytes;
        if (at > bin_bytes)
            return error_set(error, STATUS_INPUT, "%s: sequence %llu ends beyond the .bin file", path,
                             (unsigned long long)i);
    }
    if (at != bin_bytes)
        return error_set(error, STATUS_INPUT, "%s: describes %llu bytes, the .bin file has %llu", path,
                         (unsigned long long)at, (unsigned long long)bin_bytes);
    return STATUS_OK;
}

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n > m && strcmp(s + n - m, tail) == 0;
}

/* the .bin and .idx of a Megatron pair that `path` names, if there is an .idx */
static bool index_paths(const char *path, char bin[4096], char idx[4096])
{
    size_t n = strlen(path);
    if (n > 4000)
        return false;
    snprintf(bin, 4096, "%s", path);
    snprintf(idx, 4096, "%s", path);
    if (ends_with(path, ".idx"))
        memcpy(bin + n - 4, ".bin", 4);
    else if (ends_with(path, ".bin"))
        memcpy(idx + n - 4, ".idx", 4);
    else
        return false;
    return access(idx, F_OK) == 0;
}

static enum status open_indexed(struct batch_source *s, const char *bin, const char *idx, struct error *error)
{
    struct file data = {0}, index = {0};
    enum status st = map_file(bin, &data, error);
    if (st == STATUS_OK)
        st = map_file(idx, &index, error);
    if (st == STATUS_OK)
        st = check_index(idx, &index, data.size, &s->id_bytes, error);
    unmap_file(&index);
    s->map = data.bytes;
    s->map_bytes = data.size;
    s->ids = data.bytes;
    if (st == STATUS_OK)
        s->ntokens = data.size / s->id_bytes;
    return st;
}

static enum status open_flat(struct batch_source *s, const char *path, struct error *error)
{
    struct file data = {0};
    TRY(map_file(path, &data, error));
    s->map = data.bytes;
    s->map_bytes = data.size;
    uint64_t magic = data.size >= HEADER_BYTES ? read_le(data.bytes, 4) : 0;
    if (magic == MAGIC_U16 || magic == MAGIC_U32) {
        uint64_t version = read_le(data.bytes + 4, 4), count = read_le(data.bytes + 8, 4);
        uint64_t known = magic == MAGIC_U16 ? 1 : 7;
        if (version != known)
            return error_set(error, STATUS_INPUT, "%s: header version %llu, expected %llu", path,
                             (unsigned long long)version, (unsigned long long)known);
        s->id_bytes = magic == MAGIC_U16 ? 2 : 4;
        s->ids = data.bytes + HEADER_BYTES;
        s->ntokens = count;
        if ((data.size - HEADER_BYTES) != count * s->id_bytes)
            return error_set(error, STATUS_INPUT, "%s: header promises %llu tokens, %zu bytes follow", path,
                             (unsigned long long)count, data.size - HEADER_BYTES);
        return STATUS_OK;
    }
    s->id_bytes = s->vocab <= 65536 ? 2 : 4;
    s->ids = data.bytes;
    s->ntokens = data.size / s->id_bytes;
    if (data.size % s->id_bytes)
        return error_set(error, STATUS_INPUT, "%s: %zu bytes are not a whole number of uint%u ids", path, data.size,
                         8 * s->id_bytes);
    return STATUS_OK;
}

enum status data_open(const char *path, uint64_t sequence, uint64_t vocab, struct batch_source **out,
                      struct error *error)
{
    char bin[4096], idx[4096];
    struct batch_source *s = calloc(1, sizeof *s);
    if (!s)
        return STATUS_WORLD;
    s->sequence = sequence;
    s->vocab = vocab;
    enum status st = index_paths(path, bin, idx) ? open_indexed(s, bin, idx, error) : open_flat(s, path, error);
    if (st == STATUS_OK && (sequence == 0 || s->ntokens < 1 || (s->ntokens - 1) / sequence == 0))
        st = error_set(error, STATUS_INPUT, "%s: %llu tokens, at least %llu are needed for one sequence", path,
                       (unsigned long long)s->ntokens, (unsigned long long)sequence + 1);
    if (st != STATUS_OK) {
        data_close(s);
        return st;
    }
    s->nsamples = (s->ntokens - 1) / sequence;
    *out = s;
    return STATUS_OK;
}

enum status data_blank(uint64_t samples, uint64_t sequence, struct batch_source **out)
{
    struct batch_source *s = calloc(1, sizeof *s);
    uint64_t n;
    bool fits = !__builtin_mul_overflow(samples, sequence, &n) && n < SIZE_MAX / 4;
    if (s && fits)
        s->own = calloc((size_t)n + 1, 4);
    if (!s || !s->own) {
        data_close(s);
        return STATUS_WORLD;
    }
    s->ids = s->own;
    s->id_bytes = 4;
    s->ntokens = n + 1;
    s->nsamples = samples;
    s->sequence = sequence;
    *out = s;
    return STATUS_OK;
}

void data_set(struct batch_source *s, uint64_t at, int32_t id)
{
    for (uint32_t i = 0; i < 4; i++)
        s->own[4 * at + i] = (uint8_t)((uint32_t)id >> (8 * i));
}

void data_close(struct batch_source *s)
{
    if (s && s->map)
        munmap(s->map, s->map_bytes);
    if (s)
        free(s->own);
    free(s);
}

uint64_t data_ntokens(const struct batch_source *s)
{
    return s->ntokens;
}

uint64_t data_nsamples(const struct batch_source *s)
{
    return s->nsamples;
}

uint64_t data_hash(const struct batch_source *s)
{
    uint64_t bytes = s->ntokens * s->id_bytes, hash = s->ntokens;
    if (bytes <= (uint64_t)DATA_BLOCKS * DATA_BLOCK)
        return hash64(s->ids, (size_t)bytes, hash);
    uint64_t apart = (bytes - DATA_BLOCK) / (DATA_BLOCKS - 1);
    for (uint64_t i = 0; i < DATA_BLOCKS; i++)
        hash = hash64(s->ids + (i + 1 < DATA_BLOCKS ? i * apart : bytes - DATA_BLOCK), DATA_BLOCK, hash);
    return hash;
}

const void *data_mapping(const struct batch_source *s, size_t *bytes)
{
    *bytes = s->map_bytes;
    return s->map;
}

static uint64_t token(const struct batch_source *s, uint64_t i)
{
    return read_le(s->ids + i * s->id_bytes, s->id_bytes);
}

enum status data_check(const struct batch_source *s, uint64_t samples, struct error *error)
{
    uint64_t n = (samples < s->nsamples ? samples : s->nsamples) * s->sequence + 1;
    for (uint64_t i = 0; i < n; i++)
        if (token(s, i) >= s->vocab)
            return error_set(error, STATUS_INPUT,
                             "token %llu of the data is id %llu, but the vocabulary has %llu entries",
                             (unsigned long long)i, (unsigned long long)token(s, i), (unsigned long long)s->vocab);
    return STATUS_OK;
}

void data_copy(const struct batch_source *s, uint64_t sample, uint64_t from, uint32_t n, int32_t *out, uint32_t stride)
{
    uint64_t first = sample % s->nsamples * s->sequence + from;
    for (uint32_t i = 0; i < n; i++)
        out[(size_t)i * stride] = (int32_t)token(s, first + i);
}
