/* Generations of checkpoints in a folder: what their index says, whether they are intact, and which is the newest. */

#include "runtime/checkpoint.h"
#include "runtime/file.h"
#include "runtime/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const checkpoint_folders[NSTATES] = {"", "moment1/", "moment2/"};
static const char format[] = "llmc checkpoint 1";
static const char ending[] = ",\n\"hash\": \""; /* before the hash of all that precedes it */
enum { ENDING = sizeof ending - 1 + 16 + 4 /* the hash's digits, "}\n */, MOST_INDEX = 256 << 20 };

void checkpoint_path(const char *dir, uint64_t step, char out[CHECKPOINT_PATH])
{
    snprintf(out, CHECKPOINT_PATH, "%.4000s/step-%llu", dir, (unsigned long long)step);
}

/* ---- writing ---- */

static void print_files(FILE *out, const struct checkpoint_file *files, uint32_t nfiles)
{
    fputs("\"files\": [", out);
    for (uint32_t i = 0; i < nfiles; i++) {
        fprintf(out, "%s\n {\"name\": \"%s\", \"bytes\": %llu, \"blocks\": [", i ? "," : "", files[i].name,
                (unsigned long long)files[i].bytes);
        for (uint64_t k = 0; k < checkpoint_blocks(files[i].bytes); k++)
            fprintf(out, "%s\"%016llx\"", k ? ", " : "", (unsigned long long)files[i].blocks[k]);
        fputs("]}", out);
    }
    fputs("]", out);
}

/* all of the index but its hash */
static char *index_text(const struct checkpoint *c, const struct checkpoint_file *files, uint32_t nfiles, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    if (!out)
        return NULL;
    fprintf(out, "{\"format\": \"%s\",\n\"step\": %llu, \"steps\": %llu, \"tokens\": %llu,\n", format,
            (unsigned long long)c->step, (unsigned long long)c->steps,
            (unsigned long long)(c->step * c->batch * c->sequence));
    fprintf(out, "\"batch\": %llu, \"sequence\": %llu, \"samples\": %llu, \"seed\": %llu,\n\"plan\": \"%s\",\n",
            (unsigned long long)c->batch, (unsigned long long)c->sequence, (unsigned long long)c->samples,
            (unsigned long long)c->seed, c->plan);
    for (int i = 0; c->scaled && i < SCALE_WORDS; i++)
        fprintf(out, "%s%.17g%s", i ? ", " : "\"loss_scale\": [", c->scale[i], i + 1 == SCALE_WORDS ? "],\n" : "");
    print_files(out, files, nfiles);
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

enum status checkpoint_write(const char *folder, const struct checkpoint *c, const struct checkpoint_file *files,
                             uint32_t nfiles, struct error *error)
{
    char path[CHECKPOINT_PATH + 32];
    size_t size = 0;
    struct file_out file;
    char *text = index_text(c, files, nfiles, &size);
    if (!text)
        return STATUS_WORLD;
    snprintf(path, sizeof path, "%s/checkpoint.json", folder);
    const char *why = file_may_replace(path);
    why = why ? why : file_create(path, &file);
    if (!why) {
        fwrite(text, 1, size, file.stream);
        fprintf(file.stream, "%s%016llx\"}\n", ending, (unsigned long long)hash64(text, size, 0));
        why = file_publish(&file);
    }
    free(text);
    return why ? error_set(error, STATUS_WORLD, "%s: %s", path, why) : STATUS_OK;
}

/* ---- reading ---- */

/* the index's text, whose hash has been checked; NULL with a sentence in error */
static char *read_text(const char *path, size_t *size, struct error *error)
{
    int fd;
    uint64_t bytes;
    char *text = NULL;
    const char *why = file_open(path, &fd, &bytes);
    if (why) {
        error_set(error, STATUS_INPUT, "%s: %s", path, why);
        return NULL;
    }
    if (bytes > ENDING && bytes <= MOST_INDEX)
        text = malloc((size_t)bytes + 1);
    for (size_t at = 0; text && at < bytes;) {
        ssize_t n = read(fd, text + at, (size_t)bytes - at);
        if (n <= 0 && errno != EINTR) {
            free(text);
            text = NULL;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    char want[ENDING + 1];
    if (text) {
        *size = (size_t)bytes - ENDING + 1;
        snprintf(want, sizeof want, "%s%016llx\"}\n", ending, (unsigned long long)hash64(text, *size, 0));
        if (memcmp(text + *size, want, ENDING - 1) == 0) {
            text[bytes] = 0;
            return text;
        }
        free(text);
    }
    error_set(error, STATUS_INPUT, "%s: damaged or not complete", path);
    return NULL;
}

static bool number(const json_t *object, const char *name, uint64_t *out)
{
    const json_t *value = json_object_get(object, name);
    *out = json_is_integer(value) && json_integer_value(value) >= 0 ? (uint64_t)json_integer_value(value) : 0;
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* Is it the name of one of a generation's own files? */
static bool is_plain(const char *name)
{
    for (int state = NSTATES; state-- > 1;) {
        size_t n = strlen(checkpoint_folders[state]);
        name += strncmp(name, checkpoint_folders[state], n) == 0 ? n : 0;
    }
    return *name && *name != '.' && strlen(name) < 80 && !strchr(name, '/');
}

static enum status check_blocks(const char *path, const uint8_t *map, uint64_t bytes, const json_t *blocks,
                                struct error *error)
{
    for (uint64_t k = 0; k < checkpoint_blocks(bytes); k++) {
        uint64_t from = k * CHECKPOINT_BLOCK, n = bytes - from < CHECKPOINT_BLOCK ? bytes - from : CHECKPOINT_BLOCK;
        const char *want = json_string_value(json_array_get(blocks, (size_t)k));
        char have[17];
        snprintf(have, sizeof have, "%016llx", (unsigned long long)hash64(map + from, (size_t)n, 0));
        if (!want || strcmp(want, have) != 0)
            return error_set(error, STATUS_INPUT, "%s: damaged between bytes %llu and %llu", path,
                             (unsigned long long)from, (unsigned long long)(from + n));
    }
    return STATUS_OK;
}

static enum status check_file(const char *folder, const json_t *entry, struct error *error)
{
    char path[CHECKPOINT_PATH + 128];
    const char *name = json_string_value(json_object_get(entry, "name"));
    const json_t *blocks = json_object_get(entry, "blocks");
    uint64_t want, bytes;
    int fd;
    if (!name || !is_plain(name) || !number(entry, "bytes", &want) ||
        json_array_size(blocks) != checkpoint_blocks(want))
        return error_set(error, STATUS_INPUT, "%s/checkpoint.json: it names a file in a way that llmrun does not",
                         folder);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const char *why = file_open(path, &fd, &bytes);
    if (why)
        return error_set(error, STATUS_INPUT, "%s: %s", path, why);
    const uint8_t *map = NULL;
    if (bytes == want && bytes)
        map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes != want)
        return error_set(error, STATUS_INPUT, "%s: it has %llu bytes instead of %llu", path, (unsigned long long)bytes,
                         (unsigned long long)want);
    if (map == MAP_FAILED)
        return error_set(error, STATUS_WORLD, "%s: %s", path, strerror(errno));
    enum status st = check_blocks(path, map, bytes, blocks, error);
    if (map)
        munmap((void *)(uintptr_t)map, (size_t)bytes);
    return st;
}

static enum status take_index(const char *folder, const json_t *root, struct checkpoint *c, struct error *error)
{
    const char *version = json_string_value(json_object_get(root, "format"));
    const char *plan = json_string_value(json_object_get(root, "plan"));
    const json_t *scale = json_object_get(root, "loss_scale"), *files = json_object_get(root, "files");
    bool fine = number(root, "step", &c->step) & number(root, "steps", &c->steps) & number(root, "batch", &c->batch) &
                number(root, "sequence", &c->sequence) & number(root, "samples", &c->samples) &
                number(root, "seed", &c->seed);
    if (!version || strcmp(version, format) != 0)
        return error_set(error, STATUS_INPUT, "%s/checkpoint.json: not of the format '%s'", folder, format);
    c->scaled = scale != NULL;
    if (!fine || !plan || strlen(plan) != 64 || !json_array_size(files) ||
        (scale && json_array_size(scale) != SCALE_WORDS))
        return error_set(error, STATUS_INPUT, "%s/checkpoint.json: something is missing", folder);
    snprintf(c->plan, sizeof c->plan, "%s", plan);
    for (size_t i = 0; scale && i < SCALE_WORDS; i++)
        c->scale[i] = json_number_value(json_array_get(scale, i));
    for (size_t i = 0; i < json_array_size(files); i++)
        TRY(check_file(folder, json_array_get(files, i), error));
    return STATUS_OK;
}

/* reads a generation's index and checks every file that it names */
static enum status read_generation(const char *folder, struct checkpoint *c, struct error *error)
{
    char path[CHECKPOINT_PATH + 32];
    size_t size;
    json_error_t where;
    *c = (struct checkpoint){.step = 0};
    snprintf(path, sizeof path, "%s/checkpoint.json", folder);
    char *text = read_text(path, &size, error);
    if (!text)
        return STATUS_INPUT;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (!root)
        return error_set(error, STATUS_INPUT, "%s:%d: %s", path, where.line, where.text);
    enum status st = take_index(folder, root, c, error);
    json_decref(root);
    return st;
}

/* ---- generations ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* the number in a generation's name; false: it is something else */
static bool is_generation(const char *name, uint64_t *step)
{
    char *end, again[40];
    if (strncmp(name, "step-", 5) != 0)
        return false;
    *step = strtoull(name + 5, &end, 10);
    snprintf(again, sizeof again, "step-%llu", (unsigned long long)*step);
    return *end == 0 && strcmp(again, name) == 0;
}

enum status checkpoint_list(const char *dir, uint64_t **steps, uint32_t *n, struct error *error)
{
    *n = 0;
    *steps = NULL;
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? STATUS_OK
                               : error_set(error, STATUS_WORLD, "cannot read folder %s: %s", dir, strerror(errno));
    uint32_t room = 0;
    enum status st = STATUS_OK;
    for (const struct dirent *e; st == STATUS_OK && (e = readdir(d));) {
        uint64_t step;
        if (!is_generation(e->d_name, &step))
            continue;
        if (*n == room) {
            room = room ? 2 * room : 16;
            uint64_t *longer = realloc(*steps, room * sizeof **steps);
            st = longer ? STATUS_OK : STATUS_WORLD;
            *steps = longer ? longer : *steps;
        }
        if (st == STATUS_OK)
            (*steps)[(*n)++] = step;
    }
    closedir(d);
    if (*n)
        qsort(*steps, *n, sizeof **steps, by_number);
    return st;
}

enum status checkpoint_find(const char *dir, struct checkpoint *c, char folder[CHECKPOINT_PATH], bool *found,
                            struct error *error)
{
    uint64_t *steps;
    uint32_t n;
    *found = false;
    enum status st = checkpoint_list(dir, &steps, &n, error);
    for (uint32_t i = n; st == STATUS_OK && !*found && i-- > 0;) {
        struct error why = {""};
        checkpoint_path(dir, steps[i], folder);
        *found = read_generation(folder, c, &why) == STATUS_OK && c->step == steps[i];
        if (!*found)
            fprintf(stderr, "llmrun: %s is passed over: %s\n", folder,
                    why.text[0] ? why.text : "its index is of another step");
    }
    free(steps);
    if (st == STATUS_OK && n && !*found)
        return error_set(error, STATUS_INPUT, "%s: none of its %u checkpoints is intact", dir, n);
    return st;
}

enum status checkpoint_remove(const char *dir, uint64_t step, bool incomplete, struct error *error)
{
    char folder[CHECKPOINT_PATH], nameless[CHECKPOINT_PATH + 8];
    checkpoint_path(dir, step, folder);
    snprintf(nameless, sizeof nameless, "%s.tmp", folder);
    const char *why = incomplete ? NULL : file_move(folder, nameless);
    why = why ? why : file_remove_folder(nameless);
    return why ? error_set(error, STATUS_WORLD, "cannot remove %s: %s", folder, why) : STATUS_OK;
}
