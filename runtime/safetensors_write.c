/* Writing safetensors: every process derives the same layout, one makes the files at their full size under
 * temporary names, all store into mappings, one flushes and renames.  Disk space is reserved before, so that
 * a full disk is an error here and not a signal later.  The layout is in a copy of the list of tensors: ranks that are
 * threads are given the same list, and work it out at the same time. */

#include "runtime/safetensors.h"
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DATA_ALIGNMENT = 4096 };

struct out_file {
    char name[80]; /* final; ".tmp" behind it until published */
    char *header;
    size_t header_bytes; /* with the leading length, padded */
    uint64_t bytes;
    int fd;
    uint8_t *map;
};
struct weight_files {
    char dir[4096], stem[40];
    uint32_t n, nfiles;
    struct weight_plan *t; /* own */
    struct out_file *file;
};

static uint64_t tensor_bytes(const struct weight_plan *t)
{
    return (t->ndim == 2 ? t->shape[0] : 1) * t->shape[1] * (t->dtype == WEIGHT_F32 ? 4 : 2);
}

static void print_name(FILE *out, const char *name)
{
    fputc('"', out);
    for (; *name; name++) {
        if (*name == '"' || *name == '\\')
            fputc('\\', out);
        fputc(*name, out);
    }
    fputc('"', out);
}

static const char *const dtypes[] = {[WEIGHT_F32] = "F32", [WEIGHT_BF16] = "BF16", [WEIGHT_F16] = "F16"};

/* header text of file `i`, padded with blanks so that the data begins at a page */
static bool make_header(struct weight_files *f, uint32_t i)
{
    struct out_file *file = &f->file[i];
    struct weight_plan *t = f->t;
    size_t size = 0;
    FILE *out = open_memstream(&file->header, &size);
    if (!out)
        return false;
    uint64_t at = 0;
    for (int b = 0; b < 8; b++)
        fputc(0, out);
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", out);
    for (uint32_t j = 0; j < f->n; j++) {
        if (t[j].file != i)
            continue;
        fputc(',', out);
        print_name(out, t[j].name);
        fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtypes[t[j].dtype]);
        if (t[j].ndim == 2)
            fprintf(out, "%llu,", (unsigned long long)t[j].shape[0]);
        fprintf(out, "%llu],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t[j].shape[1], (unsigned long long)at,
                (unsigned long long)(at + tensor_bytes(&t[j])));
        t[j].offset = at;
        at += tensor_bytes(&t[j]);
    }
    fputc('}', out);
    while (ftell(out) % DATA_ALIGNMENT)
        fputc(' ', out);
    bool fine = fclose(out) == 0;
    file->header_bytes = size;
    file->bytes = size + at;
    for (int b = 0; fine && b < 8; b++)
        file->header[b] = (char)((size - 8) >> (8 * b));
    for (uint32_t j = 0; j < f->n; j++)
        if (t[j].file == i)
            t[j].offset += size;
    return fine;
}

static void assign_files(struct weight_files *f, uint64_t file_bytes)
{
    struct weight_plan *t = f->t;
    uint64_t used = 0;
    uint32_t file = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        if (used && used + tensor_bytes(&t[i]) > file_bytes) {
            file++;
            used = 0;
        }
        t[i].file = file;
        used += tensor_bytes(&t[i]);
    }
    f->nfiles = file + 1;
}

static enum status open_file(struct weight_files *f, struct out_file *file, bool make, struct error *error)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s.tmp", f->dir, file->name);
    const char *why = make ? file_may_replace(path) : NULL;
    if (why)
        return error_set(error, STATUS_WORLD, "%s: %s", path, why);
    file->fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT | O_TRUNC : 0), 0666);
    if (file->fd < 0)
        return error_set(error, STATUS_WORLD, "cannot open %s: %s", path, strerror(errno));
    if (make && (errno = posix_fallocate(file->fd, 0, (off_t)file->bytes)))
        return error_set(error, STATUS_WORLD, "cannot reserve space for %s: %s", path, strerror(errno));
    file->map = mmap(NULL, file->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (file->map == MAP_FAILED) {
        file->map = NULL;
        return error_set(error, STATUS_WORLD, "cannot map %s: %s", path, strerror(errno));
    }
    if (make)
        memcpy(file->map, file->header, file->header_bytes);
    return STATUS_OK;
}

static void release(struct weight_files *f)
{
    for (uint32_t i = 0; f->file && i < f->nfiles; i++) {
        if (f->file[i].map)
            munmap(f->file[i].map, f->file[i].bytes);
        if (f->file[i].fd >= 0)
            close(f->file[i].fd);
        free(f->file[i].header);
    }
    free(f->file);
    free(f->t);
    free(f);
}

enum status safetensors_create(const char *dir, const char *stem, const struct weight_plan *t, uint32_t n,
                               uint64_t file_bytes, bool make, struct weight_files **out, struct error *error)
{
    struct weight_files *f = calloc(1, sizeof *f);
    if (!f)
        return STATUS_WORLD;
    snprintf(f->dir, sizeof f->dir, "%s", dir);
    snprintf(f->stem, sizeof f->stem, "%s", stem);
    f->n = n;
    f->t = calloc(n + (size_t)1, sizeof *f->t);
    if (f->t) {
        memcpy(f->t, t, n * sizeof *t);
        assign_files(f, file_bytes);
        f->file = calloc(f->nfiles, sizeof *f->file);
    }
    enum status st = f->file ? STATUS_OK : STATUS_WORLD;
    for (uint32_t i = 0; st == STATUS_OK && i < f->nfiles; i++)
        f->file[i].fd = -1;
    if (st == STATUS_OK && make && mkdir(dir, 0777) && errno != EEXIST)
        st = error_set(error, STATUS_WORLD, "cannot make folder %s: %s", dir, strerror(errno));
    for (uint32_t i = 0; st == STATUS_OK && i < f->nfiles; i++) {
        if (f->nfiles == 1)
            snprintf(f->file[i].name, sizeof f->file[i].name, "%s.safetensors", f->stem);
        else
            snprintf(f->file[i].name, sizeof f->file[i].name, "%s-%05u-of-%05u.safetensors", f->stem, i + 1, f->nfiles);
        st = make_header(f, i) ? open_file(f, &f->file[i], make, error) : STATUS_WORLD;
    }
    if (st != STATUS_OK) {
        release(f);
        return st;
    }
    *out = f;
    return STATUS_OK;
}

uint8_t *safetensors_target(struct weight_files *f, uint32_t i)
{
    return f->file[f->t[i].file].map + f->t[i].offset;
}

static enum status write_index(const struct weight_files *f, struct error *error)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/%s.safetensors.index.json", f->dir, f->stem);
    struct file_out file;
    uint64_t total = 0;
    const char *why = file_may_replace(path);
    why = why ? why : file_create(path, &file);
    if (why)
        return error_set(error, STATUS_WORLD, "%s: %s", path, why);
    FILE *out = file.stream;
    for (uint32_t i = 0; i < f->n; i++)
        total += tensor_bytes(&f->t[i]);
    fprintf(out, "{\"metadata\":{\"total_size\":%llu},\"weight_map\":{", (unsigned long long)total);
    for (uint32_t i = 0; i < f->n; i++) {
        fputs(i ? "," : "", out);
        print_name(out, f->t[i].name);
        fprintf(out, ":\"%s\"", f->file[f->t[i].file].name);
    }
    fputs("}}\n", out);
    why = file_publish(&file);
    return why ? error_set(error, STATUS_WORLD, "cannot write %s: %s", path, why) : STATUS_OK;
}

uint32_t safetensors_nfiles(const struct weight_files *f)
{
    return f->nfiles;
}

const char *safetensors_file(const struct weight_files *f, uint32_t i, const uint8_t **map, uint64_t *bytes)
{
    *map = f->file[i].map;
    *bytes = f->file[i].bytes;
    return f->file[i].name;
}

enum status safetensors_flush(const struct weight_files *f, uint32_t i, struct error *error)
{
    return fsync(f->file[i].fd)
               ? error_set(error, STATUS_WORLD, "cannot flush %s: %s", f->file[i].name, strerror(errno))
               : STATUS_OK;
}

static enum status publish_files(struct weight_files *f, struct error *error)
{
    char from[4400], to[4400];
    for (uint32_t i = 0; i < f->nfiles; i++)
        TRY(safetensors_flush(f, i, error));
    for (uint32_t i = 0; i < f->nfiles; i++) {
        snprintf(from, sizeof from, "%s/%s.tmp", f->dir, f->file[i].name);
        snprintf(to, sizeof to, "%s/%s", f->dir, f->file[i].name);
        const char *why = file_may_replace(to);
        if (why)
            return error_set(error, STATUS_WORLD, "%s: %s", to, why);
        if (rename(from, to))
            return error_set(error, STATUS_WORLD, "cannot rename %s: %s", from, strerror(errno));
    }
    if (f->nfiles > 1)
        TRY(write_index(f, error));
    const char *why = file_flush_folder(f->dir);
    return why ? error_set(error, STATUS_WORLD, "cannot flush %s: %s", f->dir, why) : STATUS_OK;
}

enum status safetensors_finish(struct weight_files *f, bool publish, struct error *error)
{
    enum status st = publish ? publish_files(f, error) : STATUS_OK;
    release(f);
    return st;
}
