/* Generations of checkpoints in a folder: what their index says, whether they are intact, and which is the newest. */

#include "runtime/checkpoint.h"
#include "runtime/file.h"
#include "runtime/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *const checkpoint_folders[NSTATES] = {"", "moment1/", "moment2/"};
static const char format[] = "llmc checkpoint 2";
static const char shards[] = "model.safetensors.index.json"; /* of a state that has several files */
static const char ending[] = ",\n\"hash\": \"";              /* before the hash of all that precedes it */
enum { ENDING = sizeof ending - 1 + 16 + 4 /* the hash's digits, "}\n */, MOST_INDEX = 256 << 20 };

void checkpoint_path(const char *dir, uint64_t step, char out[CHECKPOINT_PATH])
{
    snprintf(out, CHECKPOINT_PATH, "%.4000s/step-%llu", dir, (unsigned long long)step);
}

/* Reads, and does not map: what a disk has lost is then an error, and no signal. */
static const char *read_bytes(int fd, void *out, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = read(fd, (char *)out + at, n - at);
        if (got == 0 || (got < 0 && errno != EINTR))
            return got ? strerror(errno) : "it has become shorter";
        at += got > 0 ? (size_t)got : 0;
    }
    return NULL;
}

/* ---- writing ---- */

static void print_files(FILE *out, const struct checkpoint_file *files, uint32_t nfiles)
{
    for (uint32_t i = 0; i < nfiles; i++) {
        fprintf(out, "%s\n {\"name\": \"%s\", \"bytes\": %llu, \"blocks\": [", i ? "," : "", files[i].name,
                (unsigned long long)files[i].bytes);
        for (uint64_t k = 0; k < checkpoint_blocks(files[i].bytes); k++)
            fprintf(out, "%s\"%016llx\"", k ? ", " : "", (unsigned long long)files[i].blocks[k]);
        fputs("]}", out);
    }
}

/* the indexes of shards that are in the folder, each of one block */
struct shard_indexes {
    struct checkpoint_file file[NSTATES];
    uint64_t hash[NSTATES];
    uint32_t n;
};

static enum status add_shards(struct shard_indexes *x, const char *folder, int state, struct error *error)
{
    char path[CHECKPOINT_PATH + 128];
    struct checkpoint_file *f = &x->file[x->n];
    int fd;
    snprintf(f->name, sizeof f->name, "%s%s", checkpoint_folders[state], shards);
    snprintf(path, sizeof path, "%s/%s", folder, f->name);
    const char *why = file_open(path, &fd, &f->bytes);
    if (why && errno == ENOENT)
        return STATUS_OK;
    uint8_t *text = why || f->bytes > CHECKPOINT_BLOCK ? NULL : malloc((size_t)f->bytes + 1);
    if (!why) {
        why = text ? read_bytes(fd, text, (size_t)f->bytes) : "too large for memory";
        close(fd);
    }
    if (!why)
        x->hash[x->n] = hash64(text, (size_t)f->bytes, 0);
    f->blocks = &x->hash[x->n++];
    free(text);
    return why ? error_set(error, STATUS_WORLD, "%s: %s", path, why) : STATUS_OK;
}

/* all of the index but its hash */
static char *index_text(const struct checkpoint *c, const struct checkpoint_file *files, uint32_t nfiles,
                        const struct shard_indexes *more, size_t *size)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, size);
    if (!out)
        return NULL;
    fprintf(out, "{\"format\": \"%s\",\n\"step\": %llu, \"steps\": %llu, \"tokens\": %llu,\n", format,
            (unsigned long long)c->step, (unsigned long long)c->steps,
            (unsigned long long)(c->step * c->batch * c->sequence));
    fprintf(out, "\"batch\": %llu, \"sequence\": %llu, \"samples\": %llu, \"seed\": %llu,\n",
            (unsigned long long)c->batch, (unsigned long long)c->sequence, (unsigned long long)c->samples,
            (unsigned long long)c->seed);
    fprintf(out, "\"data\": \"%016llx\", \"optimizer\": \"%s\", \"rates\": [%.17g, %.17g],\n\"plan\": \"%s\",\n",
            (unsigned long long)c->data, c->optimizer, c->rates[0], c->rates[1], c->plan);
    for (int i = 0; c->scaled && i < SCALE_WORDS; i++)
        fprintf(out, "%s%.17g%s", i ? ", " : "\"loss_scale\": [", c->scale[i], i + 1 == SCALE_WORDS ? "],\n" : "");
    fputs("\"files\": [", out);
    print_files(out, files, nfiles);
    fputs(more->n ? "," : "", out);
    print_files(out, more->file, more->n);
    fputs("]", out);
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
    struct shard_indexes more = {.n = 0};
    for (int state = 0; state < NSTATES; state++)
        TRY(add_shards(&more, folder, state, error));
    char *text = index_text(c, files, nfiles, &more, &size);
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
    if (bytes > ENDING && bytes <= MOST_INDEX) {
        text = malloc((size_t)bytes + 1);
        why = text ? read_bytes(fd, text, (size_t)bytes) : "out of memory";
    }
    close(fd);
    char want[ENDING + 1];
    if (text && !why) {
        *size = (size_t)bytes - ENDING + 1;
        snprintf(want, sizeof want, "%s%016llx\"}\n", ending, (unsigned long long)hash64(text, *size, 0));
        if (memcmp(text + *size, want, ENDING - 1) == 0) {
            text[bytes] = 0;
            return text;
        }
    }
    free(text);
    error_set(error, STATUS_INPUT, "%s: %s", path, why ? why : "damaged or not complete");
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

static enum status check_blocks(const char *path, int fd, uint64_t bytes, const json_t *blocks, struct error *error)
{
    size_t room = bytes < CHECKPOINT_BLOCK ? (size_t)bytes : CHECKPOINT_BLOCK;
    uint8_t *block = malloc(room + 1);
    enum status st = block ? STATUS_OK : error_set(error, STATUS_WORLD, "%s: out of memory", path);
    for (uint64_t k = 0; st == STATUS_OK && k < checkpoint_blocks(bytes); k++) {
        uint64_t from = k * CHECKPOINT_BLOCK;
        size_t n = bytes - from < room ? (size_t)(bytes - from) : room;
        const char *want = json_string_value(json_array_get(blocks, (size_t)k)), *why = read_bytes(fd, block, n);
        char have[17];
        snprintf(have, sizeof have, "%016llx", (unsigned long long)hash64(block, n, 0));
        if (why)
            st = error_set(error, STATUS_INPUT, "%s: %s", path, why);
        else if (!want || strcmp(want, have) != 0)
            st = error_set(error, STATUS_INPUT, "%s: damaged between bytes %llu and %llu", path,
                           (unsigned long long)from, (unsigned long long)(from + n));
    }
    free(block);
    return st;
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
    enum status st = bytes == want ? check_blocks(path, fd, bytes, blocks, error)
                                   : error_set(error, STATUS_INPUT, "%s: it has %llu bytes instead of %llu", path,
                                               (unsigned long long)bytes, (unsigned long long)want);
    close(fd);
    return st;
}

/* An index of shards says which files are read: one that the generation's own index does not know is not followed. */
static enum status check_shards(const char *folder, const json_t *files, struct error *error)
{
    char name[64], path[CHECKPOINT_PATH + 128];
    struct stat there;
    for (int state = 0; state < NSTATES; state++) {
        bool named = false;
        snprintf(name, sizeof name, "%s%s", checkpoint_folders[state], shards);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        for (size_t i = 0; i < json_array_size(files) && !named; i++)
            named = strcmp(json_string_value(json_object_get(json_array_get(files, i), "name")), name) == 0;
        if (!named && !lstat(path, &there))
            return error_set(error, STATUS_INPUT, "%s: it is no part of the checkpoint", path);
    }
    return STATUS_OK;
}

/* a word of digits and letters that fits */
static bool word(const json_t *object, const char *name, char *out, size_t size)
{
    const char *value = json_string_value(json_object_get(object, name));
    size_t n = value ? strlen(value) : 0;
    if (!n || n >= size || strspn(value, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != n)
        return false;
    memcpy(out, value, n + 1);
    return true;
}

/* an array of n numbers from 0 on */
static bool reals(const json_t *object, const char *name, double *out, size_t n)
{
    const json_t *list = json_object_get(object, name);
    bool fine = json_array_size(list) == n;
    for (size_t i = 0; i < n && fine; i++) {
        out[i] = json_number_value(json_array_get(list, i));
        fine = json_is_number(json_array_get(list, i)) && isfinite(out[i]) && out[i] >= 0;
    }
    return fine;
}

/* all of the index but its files */
static bool take_state(const json_t *root, struct checkpoint *c)
{
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"step", &c->step},         {"steps", &c->steps},     {"batch", &c->batch},
                   {"sequence", &c->sequence}, {"samples", &c->samples}, {"seed", &c->seed}};
    char data[17];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!number(root, numbers[i].name, numbers[i].value))
            return false;
    c->scaled = json_object_get(root, "loss_scale") != NULL;
    if (!word(root, "plan", c->plan, sizeof c->plan) || strlen(c->plan) != 64 ||
        !word(root, "data", data, sizeof data) || strlen(data) != 16 ||
        !word(root, "optimizer", c->optimizer, sizeof c->optimizer) || !reals(root, "rates", c->rates, 2) ||
        (c->scaled && !reals(root, "loss_scale", c->scale, SCALE_WORDS)))
        return false;
    char *end;
    c->data = strtoull(data, &end, 16);
    return !*end && (!c->scaled || c->scale[SCALE_SKIPPED] <= (double)c->step);
}

static enum status take_index(const char *folder, const json_t *root, struct checkpoint *c, struct error *error)
{
    const char *version = json_string_value(json_object_get(root, "format"));
    const json_t *files = json_object_get(root, "files");
    if (!version || strcmp(version, format) != 0)
        return error_set(error, STATUS_INPUT, "%s/checkpoint.json: not of the format '%s', but '%.40s'", folder, format,
                         version ? version : "");
    if (!take_state(root, c) || !json_array_size(files))
        return error_set(error, STATUS_INPUT, "%s/checkpoint.json: something is missing", folder);
    for (size_t i = 0; i < json_array_size(files); i++)
        TRY(check_file(folder, json_array_get(files, i), error));
    return check_shards(folder, files, error);
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

/* ---- one run at a time ---- */

/* ranks whose launcher was killed are dying, but perhaps not dead, when the next run begins */
enum { PATIENCE_MS = 1000, NAP_MS = 10 };

enum status checkpoint_lock(const char *dir, FILE **out, struct error *error)
{
    char path[CHECKPOINT_PATH + 32];
    bool taken;
    snprintf(path, sizeof path, "%.4000s/.lock", dir);
    const char *why = file_lock(path, out, &taken);
    for (int ms = 0; taken && ms < PATIENCE_MS; ms += NAP_MS) {
        nanosleep(&(struct timespec){.tv_nsec = NAP_MS * 1000000L}, NULL);
        why = file_lock(path, out, &taken);
    }
    if (taken)
        return error_set(error, STATUS_WORLD, "another run that has not ended writes its checkpoints into %s", dir);
    if (!*out)
        return error_set(error, STATUS_WORLD, "%s: %s", path, why);
    if (why) /* some file systems have no locks */
        fprintf(stderr, "llmrun: %s cannot be locked: %s; no other run may write into its folder\n", path, why);
    return STATUS_OK;
}

/* ---- generations ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* the number in a generation's name, with an ending behind it; false: it is something else */
static bool is_generation(const char *name, const char *behind, uint64_t *step)
{
    char *end, again[40];
    if (strncmp(name, "step-", 5) != 0)
        return false;
    *step = strtoull(name + 5, &end, 10);
    snprintf(again, sizeof again, "step-%llu%s", (unsigned long long)*step, behind);
    return strcmp(end, behind) == 0 && strcmp(again, name) == 0;
}

static enum status list(const char *dir, const char *behind, uint64_t **steps, uint32_t *n, struct error *error)
{
    *n = 0;
    *steps = NULL;
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? STATUS_OK
                               : error_set(error, STATUS_WORLD, "cannot read folder %s: %s", dir, strerror(errno));
    uint32_t room = 0;
    enum status st = STATUS_OK;
    errno = 0;
    for (const struct dirent *e; st == STATUS_OK && (e = readdir(d)); errno = 0) {
        uint64_t step;
        if (!is_generation(e->d_name, behind, &step))
            continue;
        if (*n == room) {
            room = room ? 2 * room : 16;
            uint64_t *longer = realloc(*steps, room * sizeof **steps);
            st = longer ? STATUS_OK : error_set(error, STATUS_WORLD, "out of memory");
            *steps = longer ? longer : *steps;
        }
        if (st == STATUS_OK)
            (*steps)[(*n)++] = step;
    }
    if (st == STATUS_OK && errno)
        st = error_set(error, STATUS_WORLD, "cannot read folder %s: %s", dir, strerror(errno));
    closedir(d);
    if (*n)
        qsort(*steps, *n, sizeof **steps, by_number);
    return st;
}

enum status checkpoint_list(const char *dir, uint64_t **steps, uint32_t *n, struct error *error)
{
    return list(dir, "", steps, n, error);
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

enum status checkpoint_sweep(const char *dir, struct error *error)
{
    uint64_t *steps;
    uint32_t n;
    enum status st = list(dir, ".tmp", &steps, &n, error);
    for (uint32_t i = 0; st == STATUS_OK && i < n; i++)
        st = checkpoint_remove(dir, steps[i], true, error);
    free(steps);
    return st;
}
