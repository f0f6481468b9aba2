#ifndef LLMC_SAFETENSORS_H
#define LLMC_SAFETENSORS_H

/* The safetensors container: a strict reader for one file or a sharded folder, and a writer that lays files out
 * first and lets many processes fill them through mappings. */

#include "runtime/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAFETENSORS_MAX_DIMS = 8 };
enum weight_dtype { WEIGHT_F32, WEIGHT_BF16, WEIGHT_F16, WEIGHT_OTHER };
struct weight {
    char *name;
    enum weight_dtype dtype;
    uint32_t ndim;
    uint64_t shape[SAFETENSORS_MAX_DIMS];
    const uint8_t *data; /* little-endian, row-major, in the mapping; may be unaligned */
    uint64_t bytes;
};

struct safetensors;
/* path: a .safetensors file, or a folder with model.safetensors or model.safetensors.index.json.  Everything
 * is checked before it returns; one sentence in error otherwise. */
enum status safetensors_open(const char *path, struct safetensors **out, struct error *error);
void safetensors_close(struct safetensors *s);
uint32_t safetensors_count(const struct safetensors *s);
const struct weight *safetensors_at(const struct safetensors *s, uint32_t i);         /* sorted by name */
const struct weight *safetensors_find(const struct safetensors *s, const char *name); /* NULL if absent */
/* loads n elements from `first` on, `step` apart, as fp32 */
void safetensors_load(const struct weight *w, uint64_t first, uint64_t step, uint32_t n, float *out);

/* writing: tensors in the order given (sorted by name), split into files of at most file_bytes of data */
struct weight_plan {
    const char *name;
    enum weight_dtype dtype;
    uint32_t ndim; /* 1 or 2 */
    uint64_t shape[2];
    uint32_t file;   /* set in safetensors_create()'s copy: number of its file */
    uint64_t offset; /* also set there: offset in the file */
};
struct weight_files;
enum status safetensors_create(const char *dir, const char *stem, const struct weight_plan *t, uint32_t n,
                               uint64_t file_bytes, bool make, struct weight_files **out, struct error *error);
/* address of element 0 of tensor i, writable */
uint8_t *safetensors_target(struct weight_files *f, uint32_t i);
/* The files, which all processes have open until they finish: their number, and the final name, contents and size of
 * one. */
uint32_t safetensors_nfiles(const struct weight_files *f);
const char *safetensors_file(const struct weight_files *f, uint32_t i, const uint8_t **map, uint64_t *bytes);
/* flushes a file to disk */
enum status safetensors_flush(const struct weight_files *f, uint32_t i, struct error *error);
/* flush and unmap; with `publish` (one process only, after all others) also rename into place */
enum status safetensors_finish(struct weight_files *f, bool publish, struct error *error);

#endif
