/* Containers of binary files.  A reader never looks beyond its section, and a file is nothing but its header
 * and its sections: no padding, no holes, nothing behind the last.  Damage is found by the hashes before
 * anything is read; whoever forges those still meets the bounds of every read and program_check(). */

#include "runtime/program_bytes.h"
#include "runtime/file.h"
#include "runtime/program_share.h"
#include "runtime/hash.h"
#include "runtime/program_words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_BYTES 32u

static void reserve(struct bytes *b, size_t n)
{
    if (b->room - b->n < n) {
        b->room = 2 * b->room + n + 64;
        b->at = program_alloc(b->at, b->room, 1);
    }
}

void bytes_raw(struct bytes *b, const void *data, size_t n)
{
    reserve(b, n);
    if (n)
        memcpy(b->at + b->n, data, n);
    b->n += n;
}

void bytes_number(struct bytes *b, uint64_t v)
{
    if (v < 128 && b->n < b->room) { /* most are */
        b->at[b->n++] = (uint8_t)v;
        return;
    }
    reserve(b, 10);
    for (; v > 127; v >>= 7)
        b->at[b->n++] = (uint8_t)(v | 128);
    b->at[b->n++] = (uint8_t)v;
}

void bytes_signed(struct bytes *b, int64_t v)
{
    bytes_number(b, (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0));
}

static void put_fixed(uint8_t *to, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get_fixed(const uint8_t *from, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)from[i] << 8 * i;
    return v;
}

void bytes_real(struct bytes *b, double v)
{
    uint64_t bits;
    uint8_t text[8];
    memcpy(&bits, &v, sizeof bits);
    put_fixed(text, bits, 8);
    bytes_raw(b, text, 8);
}

void bytes_text(struct bytes *b, const char *s, size_t size)
{
    size_t n = strnlen(s, size);
    bytes_number(b, n);
    bytes_raw(b, s, n);
}

uint64_t read_number(struct reader *r)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;
        v |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return v;
    }
    r->bad = true;
    r->at = r->end;
    return 0;
}

int64_t read_signed(struct reader *r)
{
    uint64_t v = read_number(r);
    return (int64_t)(v >> 1 ^ (v & 1 ? UINT64_MAX : 0));
}

double read_real(struct reader *r)
{
    double v = 0;
    if (r->end - r->at < 8) {
        r->bad = true;
        r->at = r->end;
        return 0;
    }
    uint64_t bits = get_fixed(r->at, 8);
    r->at += 8;
    memcpy(&v, &bits, sizeof v);
    return v;
}

uint32_t read_offset(struct reader *r, int64_t base, uint32_t limit)
{
    uint64_t v = (uint64_t)base + (uint64_t)read_signed(r);
    r->bad |= v >= limit;
    return r->bad ? 0 : (uint32_t)v;
}

uint64_t read_below(struct reader *r, uint64_t limit)
{
    uint64_t v = read_number(r);
    r->bad |= v >= limit;
    return r->bad ? 0 : v;
}

uint32_t read_count(struct reader *r)
{
    uint64_t v = read_number(r);
    r->bad |= v > (uint64_t)(r->end - r->at);
    return r->bad ? 0 : (uint32_t)v;
}

void read_text(struct reader *r, char *to, size_t size)
{
    uint32_t n = read_count(r);
    memset(to, 0, size);
    if (n < size)
        memcpy(to, r->at, n);
    r->at += n;
}

void container_write(const struct container *c, struct bytes *sections, uint8_t **bytes, size_t *size)
{
    size_t head = HEAD_BYTES + 16u * (size_t)c->nsections + 8, total = head;
    for (uint32_t i = 0; i < c->nsections; i++)
        total += sections[i].n;
    uint8_t *out = program_alloc(NULL, total, 1), *at = out + HEAD_BYTES, *data = out + head;
    memcpy(out, c->magic, 8);
    put_fixed(out + 8, c->version, 4);
    put_fixed(out + 12, c->nsections, 4);
    put_fixed(out + 16, total, 8);
    put_fixed(out + 24, c->fingerprint, 8);
    for (uint32_t i = 0; i < c->nsections; i++, at += 16) {
        put_fixed(at, sections[i].n, 8);
        put_fixed(at + 8, hash64(sections[i].at, sections[i].n, i), 8);
        if (sections[i].n)
            memcpy(data, sections[i].at, sections[i].n);
        data += sections[i].n;
        free(sections[i].at);
        sections[i] = (struct bytes){0};
    }
    put_fixed(at, hash64(out, (size_t)(at - out), 0), 8);
    *bytes = out;
    *size = total;
}

#define FAULT(...) error_set(error, STATUS_INPUT, __VA_ARGS__)

enum status container_open(const struct container *c, const uint8_t *bytes, size_t size, struct reader *section,
                           struct error *error)
{
    size_t head = HEAD_BYTES + 16u * (size_t)c->nsections, left;
    if (size < HEAD_BYTES || memcmp(bytes, c->magic, 8) != 0)
        return FAULT("not a %s file", c->what);
    if (get_fixed(bytes + 8, 4) != c->version)
        return FAULT("a %s file of version %" PRIu64 ", this build reads version %" PRIu32, c->what,
                     get_fixed(bytes + 8, 4), c->version);
    if (get_fixed(bytes + 16, 8) != size)
        return FAULT("%zu bytes long instead of %" PRIu64, size, get_fixed(bytes + 16, 8));
    if (get_fixed(bytes + 24, 8) != c->fingerprint)
        return FAULT("written for another instruction set: %016" PRIx64 ", this build has %016" PRIx64,
                     get_fixed(bytes + 24, 8), c->fingerprint);
    if (get_fixed(bytes + 12, 4) != c->nsections || size < head + 8 ||
        get_fixed(bytes + head, 8) != hash64(bytes, head, 0))
        return FAULT("its header is damaged");
    const uint8_t *data = bytes + head + 8;
    left = size - head - 8;
    for (uint32_t i = 0; i < c->nsections; i++) {
        uint64_t n = get_fixed(bytes + HEAD_BYTES + 16 * i, 8);
        if (n > left || get_fixed(bytes + HEAD_BYTES + 16 * i + 8, 8) != hash64(data, (size_t)n, i))
            return FAULT("its section %" PRIu32 " is damaged", i);
        section[i] = (struct reader){.at = data, .end = data + n};
        data += n;
        left -= (size_t)n;
    }
    return left ? FAULT("%zu bytes follow its last section", left) : STATUS_OK;
}

static enum status read_open_file(int fd, const char *path, uint64_t want, uint8_t **bytes, size_t *size,
                                  struct error *error)
{
    if (want > LIMIT_FILE)
        return FAULT("%s: %" PRIu64 " bytes, at most %" PRIu64 " are read", path, want, LIMIT_FILE);
    size_t got = 0;
    *bytes = program_alloc(NULL, want + 1, 1);
    while (got < want) {
        ssize_t n = read(fd, *bytes + got, want - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            FAULT("%s: %s", path, n < 0 ? strerror(errno) : "shrank while being read");
            free(*bytes);
            *bytes = NULL;
            return STATUS_WORLD;
        }
        got += (size_t)n;
    }
    *size = want;
    return STATUS_OK;
}

enum status container_load(const char *path, uint8_t **bytes, size_t *size, struct error *error)
{
    int fd;
    uint64_t want;
    *bytes = NULL;
    const char *why = file_open(path, &fd, &want);
    if (why)
        return FAULT("%s: %s", path, why);
    enum status s = read_open_file(fd, path, want, bytes, size, error);
    close(fd);
    return s;
}
