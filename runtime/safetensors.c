/* Reading safetensors: u64 length, JSON header, data.  All the format's rules are enforced: header length,
 * UTF-8, duplicate keys, shapes and byte counts without overflow, ranges that cover the data exactly.  The
 * JSON itself is parsed by jansson.  Sharded folders go through model.safetensors.index.json. */

#include "runtime/safetensors.h"
#include "runtime/file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_LIMIT = 100000000, FILE_LIMIT = 10000 };

struct file {
    uint8_t *map;
    size_t size;
};
struct safetensors {
    uint32_t nfiles, nweights, room;
    struct file *files;
    struct weight *weights;
};

static const struct {
    const char *name;
    uint32_t bits;
    enum weight_dtype dtype;
} dtypes[] = {{"F32", 32, WEIGHT_F32},          {"BF16", 16, WEIGHT_BF16},    {"F16", 16, WEIGHT_F16},
              {"F64", 64, WEIGHT_OTHER},        {"I64", 64, WEIGHT_OTHER},    {"I32", 32, WEIGHT_OTHER},
              {"I16", 16, WEIGHT_OTHER},        {"I8", 8, WEIGHT_OTHER},      {"U64", 64, WEIGHT_OTHER},
              {"U32", 32, WEIGHT_OTHER},        {"U16", 16, WEIGHT_OTHER},    {"U8", 8, WEIGHT_OTHER},
              {"BOOL", 8, WEIGHT_OTHER},        {"C64", 64, WEIGHT_OTHER},    {"F8_E5M2", 8, WEIGHT_OTHER},
              {"F8_E4M3", 8, WEIGHT_OTHER},     {"F8_E8M0", 8, WEIGHT_OTHER}, {"F8_E4M3FNUZ", 8, WEIGHT_OTHER},
              {"F8_E5M2FNUZ", 8, WEIGHT_OTHER}, {"F6_E2M3", 6, WEIGHT_OTHER}, {"F6_E3M2", 6, WEIGHT_OTHER},
              {"F4", 4, WEIGHT_OTHER}};

static bool natural(const json_t *j, uint64_t *out)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0)
        return false;
    *out = (uint64_t)json_integer_value(j);
    return true;
}

/* one header entry -> w; its range must lie within `room` bytes */
static const char *read_entry(const json_t *entry, const uint8_t *data, uint64_t room, struct weight *w)
{
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t begin, end, elements = 1, bits = 0, all;
    if (json_object_size(entry) != 3 || !json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets) ||
        json_array_size(offsets) != 2)
        return "must hold dtype, shape and two data_offsets, and nothing else";
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(json_string_value(dtype), dtypes[i].name) == 0) {
            bits = dtypes[i].bits;
            w->dtype = dtypes[i].dtype;
        }
    if (!bits)
        return "has an unknown dtype";
    if (json_array_size(shape) > SAFETENSORS_MAX_DIMS)
        return "has more than 8 dimensions";
    w->ndim = (uint32_t)json_array_size(shape);
    for (uint32_t d = 0; d < w->ndim; d++) {
        if (!natural(json_array_get(shape, d), &w->shape[d]))
            return "has a dimension that is no natural number";
        if (__builtin_mul_overflow(elements, w->shape[d], &elements))
            return "has a shape whose product overflows";
    }
    if (__builtin_mul_overflow(elements, bits, &all) || all % 8)
        return "has a size that is no whole number of bytes";
    if (!natural(json_array_get(offsets, 0), &begin) || !natural(json_array_get(offsets, 1), &end) || begin > end ||
        end > room)
        return "has data_offsets outside of the data";
    if (end - begin != all / 8)
        return "has data_offsets that do not fit its shape and dtype";
    w->data = data + begin;
    w->bytes = end - begin;
    return NULL;
}

static int by_place(const void *a, const void *b)
{
    const struct weight *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct weight *)a)->name, ((const struct weight *)b)->name);
}

static bool strings_only(json_t *object)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return false;
    json_object_foreach(object, key, value) if (!json_is_string(value)) return false;
    return true;
}

static enum status read_entries(struct safetensors *s, const char *path, json_t *root, const uint8_t *data,
                                uint64_t room, struct error *error)
{
    const char *name;
    json_t *entry;
    uint32_t first = s->nweights;
    size_t n = json_object_size(root);
    struct weight *grown = realloc(s->weights, (s->nweights + n + 1) * sizeof *grown);
    if (!grown)
        return STATUS_WORLD;
    s->weights = grown;
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            if (!strings_only(entry))
                return error_set(error, STATUS_INPUT, "%s: __metadata__ is not an object of strings", path);
            continue;
        }
        struct weight w = {.dtype = WEIGHT_OTHER};
        const char *why = json_is_object(entry) ? read_entry(entry, data, room, &w) : "is not an object";
        if (why)
            return error_set(error, STATUS_INPUT, "%s: tensor '%.200s' %s", path, name, why);
        w.name = strdup(name);
        if (!w.name)
            return STATUS_WORLD;
        s->weights[s->nweights++] = w;
    }
    /* the ranges in order must cover the data: no hole, no overlap, nothing left */
    qsort(s->weights + first, s->nweights - first, sizeof *s->weights, by_place);
    const uint8_t *at = data;
    for (uint32_t i = first; i < s->nweights; i++) {
        if (s->weights[i].data != at)
            return error_set(error, STATUS_INPUT, "%s: tensor '%.200s' leaves a hole or overlaps another", path,
                             s->weights[i].name);
        at += s->weights[i].bytes;
    }
    if (at != data + room)
        return error_set(error, STATUS_INPUT, "%s: %llu bytes behind the last tensor", path,
                         (unsigned long long)(data + room - at));
    return STATUS_OK;
}

static enum status map_file(const char *path, struct file *f, struct error *error)
{
    int fd;
    uint64_t bytes;
    const char *why = file_open(path, &fd, &bytes);
    if (why)
        return error_set(error, STATUS_INPUT, "%s: %s", path, why);
    f->size = (size_t)bytes;
    f->map = bytes ? mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (f->map != MAP_FAILED)
        return STATUS_OK;
    f->map = NULL;
    return error_set(error, STATUS_INPUT, "%s: %s", path, bytes ? strerror(errno) : "not a file with contents");
}

static enum status add_file(struct safetensors *s, const char *path, struct error *error)
{
    struct file *files = realloc(s->files, (s->nfiles + 1) * sizeof *files), *f;
    if (!files)
        return STATUS_WORLD;
    s->files = files;
    f = &s->files[s->nfiles];
    *f = (struct file){0};
    TRY(map_file(path, f, error));
    s->nfiles++;
    uint64_t length = 0;
    for (uint32_t i = 0; i < 8 && f->size >= 8; i++)
        length |= (uint64_t)f->map[i] << (8 * i);
    if (f->size < 8 || length > HEADER_LIMIT || length + 8 > f->size)
        return error_set(error, STATUS_INPUT, "%s: not safetensors: its header of %llu bytes does not fit in the file",
                         path, (unsigned long long)length);
    if (length == 0 || f->map[8] != '{')
        return error_set(error, STATUS_INPUT, "%s: not safetensors: its header does not begin with '{'", path);
    json_error_t why;
    json_t *root = json_loadb((const char *)f->map + 8, length, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return error_set(error, STATUS_INPUT, "%s: header: %s", path, why.text);
    enum status st = read_entries(s, path, root, f->map + 8 + length, f->size - 8 - length, error);
    json_decref(root);
    return st;
}

/* the files that an index names; names must stay inside the folder */
static enum status add_index(struct safetensors *s, const char *dir, const char *path, struct error *error)
{
    json_error_t why;
    FILE *in;
    const char *odd = file_read(path, &in);
    if (odd)
        return error_set(error, STATUS_INPUT, "%s: %s", path, odd);
    json_t *root = json_loadf(in, JSON_REJECT_DUPLICATES, &why), *value, *seen = json_object();
    fclose(in);
    const json_t *map = root ? json_object_get(root, "weight_map") : NULL;
    const char *key;
    enum status st = STATUS_OK;
    if (!root)
        st = error_set(error, STATUS_INPUT, "%s: %s", path, why.text);
    else if (!json_is_object(map))
        st = error_set(error, STATUS_INPUT, "%s: has no weight_map", path);
    if (st == STATUS_OK) {
        json_object_foreach((json_t *)(uintptr_t)map, key, value)
        {
            const char *name = json_string_value(value);
            if (!name || strchr(name, '/') || strlen(name) > 255 || s->nfiles > FILE_LIMIT) {
                st = error_set(error, STATUS_INPUT, "%s: the file of '%.200s' is no plain file name", path, key);
                break;
            }
            if (json_object_get(seen, name))
                continue;
            json_object_set_new(seen, name, json_true());
            char file[4400];
            snprintf(file, sizeof file, "%s/%s", dir, name);
            st = add_file(s, file, error);
            if (st != STATUS_OK)
                break;
        }
    }
    json_decref(root);
    json_decref(seen);
    return st;
}

enum status safetensors_open(const char *path, struct safetensors **out, struct error *error)
{
    struct safetensors *s = calloc(1, sizeof *s);
    struct stat info;
    char single[4200], index[4200];
    if (!s)
        return STATUS_WORLD;
    enum status st;
    snprintf(single, sizeof single, "%.4096s/model.safetensors", path);
    snprintf(index, sizeof index, "%.4096s/model.safetensors.index.json", path);
    if (stat(path, &info))
        st = error_set(error, STATUS_INPUT, "%s: %s", path, strerror(errno));
    else if (!S_ISDIR(info.st_mode))
        st = add_file(s, path, error);
    else if (access(index, F_OK) == 0)
        st = add_index(s, path, index, error);
    else
        st = add_file(s, single, error);
    if (st == STATUS_OK && s->nweights) {
        qsort(s->weights, s->nweights, sizeof *s->weights, by_name);
        for (uint32_t i = 1; i < s->nweights && st == STATUS_OK; i++)
            if (strcmp(s->weights[i - 1].name, s->weights[i].name) == 0)
                st = error_set(error, STATUS_INPUT, "%s: tensor '%.200s' is in two files", path, s->weights[i].name);
    }
    if (st != STATUS_OK) {
        safetensors_close(s);
        return st;
    }
    *out = s;
    return STATUS_OK;
}

void safetensors_close(struct safetensors *s)
{
    for (uint32_t i = 0; s && i < s->nweights; i++)
        free(s->weights[i].name);
    for (uint32_t i = 0; s && i < s->nfiles; i++)
        munmap(s->files[i].map, s->files[i].size);
    if (s) {
        free(s->weights);
        free(s->files);
    }
    free(s);
}

uint32_t safetensors_count(const struct safetensors *s)
{
    return s->nweights;
}

const struct weight *safetensors_at(const struct safetensors *s, uint32_t i)
{
    return &s->weights[i];
}

const struct weight *safetensors_find(const struct safetensors *s, const char *name)
{
    struct weight key = {.name = (char *)(uintptr_t)name};
    return s->nweights ? bsearch(&key, s->weights, s->nweights, sizeof key, by_name) : NULL;
}

static float half_load(uint16_t h)
{
    int exponent = h >> 10 & 31;
    float fraction = (float)(h & 1023), sign = h & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31)
        return fraction > 0 ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexpf(1024 + fraction, exponent - 25) : ldexpf(fraction, -24));
}

void safetensors_load(const struct weight *w, uint64_t first, uint64_t step, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t e = first + i * step;
        uint16_t half;
        uint32_t bits;
        switch (w->dtype) {
        case WEIGHT_F32:
            memcpy(&out[i], w->data + 4 * e, 4);
            break;
        case WEIGHT_BF16:
            memcpy(&half, w->data + 2 * e, 2);
            bits = (uint32_t)half << 16;
            memcpy(&out[i], &bits, 4);
            break;
        case WEIGHT_F16:
            memcpy(&half, w->data + 2 * e, 2);
            out[i] = half_load(half);
            break;
        case WEIGHT_OTHER:
            out[i] = 0;
            break;
        }
    }
}
