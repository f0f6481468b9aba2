/* Recording, replaying and comparing choices of experts; see routing.h. */

#include "runtime/routing.h"
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char MAGIC[8] = "LLMCRTE";
enum { HEADER = 32, UNKNOWN = 65535 };

static bool size_of(const struct routing_shape *s, size_t *bytes)
{
    uint64_t n = 2;
    return !__builtin_mul_overflow(n, s->layers, &n) && !__builtin_mul_overflow(n, s->choices, &n) &&
           !__builtin_mul_overflow(n, s->sequence, &n) && !__builtin_mul_overflow(n, s->samples, &n) &&
           n < (uint64_t)1 << 40 && (*bytes = (size_t)n + HEADER, true);
}

static void write_header(uint8_t *at, const struct routing_shape *s)
{
    memcpy(at, MAGIC, sizeof MAGIC);
    memcpy(at + 8, &s->layers, 4);
    memcpy(at + 12, &s->choices, 4);
    memcpy(at + 16, &s->sequence, 4);
    memcpy(at + 20, &s->experts, 4);
    memcpy(at + 24, &s->samples, 8);
}

static bool read_header(const uint8_t *at, struct routing_shape *s)
{
    memcpy(&s->layers, at + 8, 4);
    memcpy(&s->choices, at + 12, 4);
    memcpy(&s->sequence, at + 16, 4);
    memcpy(&s->experts, at + 20, 4);
    memcpy(&s->samples, at + 24, 8);
    return !memcmp(at, MAGIC, sizeof MAGIC);
}

static enum status map_file(struct routing *r, int fd, const char *path, struct error *error)
{
    bool save = r->use == ROUTING_SAVE;
    void *map = mmap(NULL, r->bytes, save ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return error_set(error, STATUS_WORLD, "%s: %s", path, strerror(errno));
    r->map = map;
    return STATUS_OK;
}

static enum status create(struct routing *r, const char *path, struct error *error)
{
    const char *why = file_not_file(path); /* it is mapped, so nothing else will do */
    if (why)
        return error_set(error, STATUS_WORLD, "%s: %s", path, why);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, (off_t)r->bytes)) {
        enum status st = error_set(error, STATUS_WORLD, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return st;
    }
    enum status st = map_file(r, fd, path, error);
    close(fd);
    if (st == STATUS_OK) {
        memset(r->map, 0xff, r->bytes);
        write_header(r->map, &r->shape);
    }
    return st;
}

static enum status open_existing(struct routing *r, const char *path, struct error *error)
{
    uint8_t header[HEADER];
    struct routing_shape has;
    int fd;
    uint64_t bytes;
    const char *why = file_open(path, &fd, &bytes);
    if (why)
        return error_set(error, STATUS_INPUT, "%s: %s", path, why);
    enum status st = STATUS_OK;
    if (read(fd, header, HEADER) != HEADER || !read_header(header, &has) || !size_of(&has, &r->bytes) ||
        bytes != r->bytes)
        st = error_set(error, STATUS_INPUT,
                       "%s: it does not hold choices of experts ('llmrun --routing-save' writes them)", path);
    else if (has.layers != r->shape.layers || has.choices != r->shape.choices || has.sequence != r->shape.sequence ||
             has.experts != r->shape.experts)
        st = error_set(error, STATUS_INPUT, "%s: its choices are those of another model", path);
    else if (has.samples < r->shape.samples)
        st = error_set(error, STATUS_INPUT, "%s: it holds fewer steps than are to be run", path);
    if (st == STATUS_OK) {
        r->shape = has;
        st = map_file(r, fd, path, error);
    }
    close(fd);
    return st;
}

enum status routing_open(struct routing *r, enum routing_use use, const char *path, const struct routing_shape *shape,
                         struct error *error)
{
    *r = (struct routing){.use = use, .shape = *shape};
    if (use == ROUTING_NONE)
        return STATUS_OK;
    if (!shape->layers || shape->experts >= UNKNOWN || !size_of(shape, &r->bytes))
        return error_set(error, STATUS_USAGE, "%s: %s", path,
                         shape->layers ? "there would be too many choices" : "the model has no experts to choose");
    return use == ROUTING_SAVE ? create(r, path, error) : open_existing(r, path, error);
}

void routing_close(struct routing *r)
{
    if (r->map)
        munmap(r->map, r->bytes);
    *r = (struct routing){.use = ROUTING_NONE};
}

uint16_t *routing_at(const struct routing *r, int64_t layer, uint64_t sample, uint64_t place)
{
    const struct routing_shape *s = &r->shape;
    if (!r->map || layer < 0 || layer >= s->layers || sample >= s->samples || place >= s->sequence)
        return NULL;
    uint64_t token = ((uint64_t)layer * s->samples + sample) * s->sequence + place;
    return (uint16_t *)(void *)(r->map + HEADER) + token * s->choices;
}

static bool among(const int32_t *chosen, uint32_t n, uint32_t e)
{
    for (uint32_t j = 0; j < n; j++)
        if ((uint32_t)chosen[j] == e)
            return true;
    return false;
}

/* counts the token, and by how much what was chosen exceeds what the file says instead */
static void compare(struct routing *r, const uint16_t *at, const int32_t *chosen, uint32_t n, const float *value,
                    uint32_t experts)
{
    float low = INFINITY, high = -INFINITY, most = -INFINITY, least = INFINITY;
    r->compared++;
    for (uint32_t j = 0; j < n; j++)
        if (at[j] < experts && !among(chosen, n, at[j]))
            least = fminf(least, value[at[j]]);
    if (!(least < INFINITY))
        return;
    for (uint32_t j = 0; j < n; j++) {
        bool in_file = false;
        for (uint32_t i = 0; i < n; i++)
            in_file |= at[i] == chosen[j];
        if (!in_file)
            most = fmaxf(most, value[chosen[j]]);
    }
    for (uint32_t e = 0; e < experts; e++) {
        low = fminf(low, value[e]);
        high = fmaxf(high, value[e]);
    }
    double margin = fabs((double)(most - least)) / (double)(high - low); /* groups can choose a smaller one */
    r->flips++;
    r->margin = margin > r->margin ? margin : r->margin;
}

void routing_token(struct routing *r, uint16_t *at, int32_t *chosen, uint32_t n, const float *value, uint32_t experts)
{
    if (!at || n > r->shape.choices || experts > r->shape.experts)
        return;
    if (r->use == ROUTING_COMPARE)
        compare(r, at, chosen, n, value, experts);
    for (uint32_t j = 0; j < n; j++)
        if (r->use == ROUTING_SAVE)
            at[j] = (uint16_t)chosen[j];
        else if (r->use == ROUTING_REPLAY && at[j] < experts)
            chosen[j] = at[j];
}
