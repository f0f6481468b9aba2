/* Reading a plan folder.  Every file is read once, hashed against MANIFEST, and decoded from the very bytes
 * that were hashed.  MANIFEST holds lines "<sha256>  <relative path>"; a file the runtime needs must be
 * listed. */

#include "runtime/folder.h"
#include "runtime/file.h"
#include "runtime/hash.h"

#include <jansson.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_LIMIT_MIB = 2048, PATH_LIMIT = 512, LINES_LIMIT = 1 << 20 };

struct reader {
    const char *dir;
    char *manifest;
    size_t manifest_size;
    struct error *error;
};

static enum status read_file(const struct reader *r, const char *name, char **bytes, size_t *size)
{
    char path[4096 + PATH_LIMIT];
    struct stat st;
    FILE *in;
    snprintf(path, sizeof path, "%.4000s/%s", r->dir, name);
    const char *why = file_read(path, &in);
    if (why && errno == ENOENT && !strcmp(name, "MANIFEST"))
        return error_set(r->error, STATUS_INPUT,
                         "%s/MANIFEST is missing: this is no plan folder ('llmc plan MODEL CLUSTER -o DIR' makes one)",
                         r->dir);
    if (why)
        return error_set(r->error, STATUS_INPUT, "%s: %s", path, why);
    if (fstat(fileno(in), &st) || st.st_size > (off_t)FILE_LIMIT_MIB << 20) {
        fclose(in);
        return error_set(r->error, STATUS_INPUT, "%s: larger than %d MiB", path, FILE_LIMIT_MIB);
    }
    *size = (size_t)st.st_size;
    *bytes = malloc(*size + 1);
    if (!*bytes) {
        fclose(in);
        return error_set(r->error, STATUS_WORLD, "%s: out of memory: it has %zu bytes", path, *size);
    }
    bool fine = fread(*bytes, 1, *size, in) == *size && fgetc(in) == EOF;
    fclose(in);
    if (!fine) {
        free(*bytes);
        *bytes = NULL;
        return error_set(r->error, STATUS_INPUT, "%s: could not be read whole", path);
    }
    (*bytes)[*size] = 0;
    return STATUS_OK;
}

/* one line of MANIFEST from *at on; false at its end or where it is malformed (then *at stays) */
static bool next_line(const struct reader *r, size_t *at, char hash[65], char path[PATH_LIMIT])
{
    const char *line = r->manifest + *at, *end = memchr(line, '\n', r->manifest_size - *at);
    if (!end || end - line < 67 || end - line >= 66 + PATH_LIMIT || line[64] != ' ' || line[65] != ' ')
        return false;
    size_t n = (size_t)(end - line) - 66;
    memcpy(hash, line, 64);
    hash[64] = 0;
    memcpy(path, line + 66, n);
    path[n] = 0;
    if (strspn(hash, "0123456789abcdef") != 64 || strlen(path) != n || path[0] == '/' || strstr(path, ".."))
        return false;
    *at += (size_t)(end - line) + 1;
    return true;
}

static enum status check_hash(const struct reader *r, const char *name, const char *bytes, size_t size,
                              const char *want)
{
    char have[65];
    hash_sha256(bytes, size, have);
    return strcmp(have, want) == 0
               ? STATUS_OK
               : error_set(r->error, STATUS_INPUT, "%s/%s: was changed: its hash differs from MANIFEST", r->dir, name);
}

/* Files that decode into something are hashed when they are read; here all the others, of which plan.json is kept. */
static bool is_decoded(const char *name)
{
    return strcmp(name, "ranks.bin") == 0 || strncmp(name, "programs/", 9) == 0;
}

/* which stack plan.json says that the plan is for; what cannot be read says nothing */
static void note_target(struct folder *f, const char *json, size_t size)
{
    json_t *root = json_loadb(json, size, 0, NULL);
    const char *target = json_string_value(json_object_get(root, "target"));
    snprintf(f->target, sizeof f->target, "%s", target ? target : "");
    json_decref(root);
}

static enum status check_others(const struct reader *r, struct folder *f)
{
    char hash[65], path[PATH_LIMIT];
    size_t at = 0;
    for (uint32_t lines = 0; at < r->manifest_size; lines++) {
        if (lines > LINES_LIMIT || !next_line(r, &at, hash, path))
            return error_set(r->error, STATUS_INPUT, "%s/MANIFEST: malformed after %u lines", r->dir, lines);
        if (is_decoded(path))
            continue;
        char *bytes = NULL;
        size_t size;
        TRY(read_file(r, path, &bytes, &size));
        enum status st = check_hash(r, path, bytes, size, hash);
        if (st == STATUS_OK && !strcmp(path, "plan.json"))
            note_target(f, bytes, size);
        if (!strcmp(path, "plan.json") && !f->json)
            f->json = bytes;
        else
            free(bytes);
        TRY(st);
    }
    return STATUS_OK;
}

static bool is_listed(const struct reader *r, const char *name, char hash[65])
{
    char path[PATH_LIMIT];
    for (size_t at = 0; at < r->manifest_size && next_line(r, &at, hash, path);)
        if (strcmp(path, name) == 0)
            return true;
    return false;
}

/* the bytes of a listed file whose hash is right */
static enum status read_listed(const struct reader *r, const char *name, char **bytes, size_t *size)
{
    char hash[65];
    if (!is_listed(r, name, hash))
        return error_set(r->error, STATUS_INPUT, "%s/MANIFEST: does not list %s", r->dir, name);
    TRY(read_file(r, name, bytes, size));
    enum status st = check_hash(r, name, *bytes, *size, hash);
    if (st != STATUS_OK)
        free(*bytes);
    return st;
}

static enum status read_program(const struct reader *r, const char *name, struct program **p)
{
    char *bytes;
    size_t size;
    TRY(read_listed(r, name, &bytes, &size));
    enum status st = program_decode((const uint8_t *)bytes, size, p, r->error);
    free(bytes);
    return st == STATUS_OK ? st : error_set(r->error, STATUS_INPUT, "%s/%s: %s", r->dir, name, r->error->text);
}

static enum status read_ranks(const struct reader *r, struct ranks **ranks)
{
    char *bytes;
    size_t size;
    TRY(read_listed(r, "ranks.bin", &bytes, &size));
    enum status st = ranks_decode((const uint8_t *)bytes, size, ranks, r->error);
    free(bytes);
    return st == STATUS_OK ? st : error_set(r->error, STATUS_INPUT, "%s/ranks.bin: %s", r->dir, r->error->text);
}

/* persistent state must lie in the same place in both programs of a role */
static enum status check_eval(const struct reader *r, const struct program *train, const struct program *eval)
{
    for (uint32_t i = 0; i < eval->nbuffers; i++) {
        const struct buffer *e = &eval->buffers[i];
        bool found = e->bucket == NONE;
        for (uint32_t j = 0; j < train->nbuffers && !found; j++) {
            const struct buffer *t = &train->buffers[j];
            found = t->bucket != NONE && t->kind == e->kind && t->offset == e->offset && t->bytes == e->bytes &&
                    t->dtype == e->dtype;
        }
        if (!found)
            return error_set(r->error, STATUS_INPUT,
                             "%s/programs/eval-%u.bin: its buffer %s is not where the training program keeps it",
                             r->dir, eval->role, e->name);
    }
    return STATUS_OK;
}

/* do the tokens that an instruction reads lie within samples of `sequence`, whatever its slots' values */
static bool places_fit(const struct program *p, uint32_t i, uint64_t sequence)
{
    const struct attr *a = p->attrs + p->insns[i].attr, *first = a + ATTR(TOKENS, first),
                      *shift = a + ATTR(TOKENS, shift);
    uint64_t n = (uint64_t)a[ATTR(TOKENS, sequence)].u.i;
    if (p->insns[i].op == OP_TOKENS_AHEAD && (uint64_t)a[ATTR(TOKENS_AHEAD, whole)].u.i > sequence)
        return false;
    bool together = first->slot == shift->slot; /* then the sum is affine in one slot: largest at an end */
    for (int end = 0; end < 4; end++) {
        if (together && (end & 1) != end >> 1)
            continue;
        int64_t x = first->slot != NONE && end & 1 ? p->slots[first->slot].most : 0;
        int64_t y = shift->slot != NONE && end >> 1 ? p->slots[shift->slot].most : 0;
        uint64_t at = (uint64_t)(first->u.i + x * first->stride), more = (uint64_t)(shift->u.i + y * shift->stride);
        if (at > sequence || more > sequence || n > sequence || at + more + n > sequence)
            return false;
    }
    return true;
}

/* All programs belong to one job, and sequences are as long as it says: the token file is cut into such. */
static enum status check_job(const struct reader *r, const char *name, const struct program *p,
                             const struct job_info *job, bool evaluation)
{
    if (p->job.sequence != job->sequence || p->job.batch != job->batch || p->job.vocab != job->vocab ||
        p->job.seed != job->seed)
        return error_set(r->error, STATUS_INPUT, "%s/%s: belongs to another job than programs/0.bin", r->dir, name);
    if (p->evaluation != evaluation)
        return error_set(r->error, STATUS_INPUT, "%s/%s: is %s program", r->dir, name,
                         p->evaluation ? "an evaluation" : "a training");
    for (uint32_t i = 0; i < p->ninsns; i++)
        if ((p->insns[i].op == OP_TOKENS || p->insns[i].op == OP_TOKENS_AHEAD) && !places_fit(p, i, job->sequence))
            return error_set(r->error, STATUS_INPUT, "%s/%s: instruction %u reads beyond the job's sequences", r->dir,
                             name, i);
    return STATUS_OK;
}

static enum status read_programs(const struct reader *r, struct folder *f)
{
    char name[64], hash[65];
    uint32_t n = f->ranks->nroles;
    f->train = calloc(n, sizeof *f->train);
    f->eval = is_listed(r, "programs/eval-0.bin", hash) ? calloc(n, sizeof *f->eval) : NULL;
    if (!f->train)
        return STATUS_WORLD;
    for (uint32_t role = 0; role < n; role++) {
        snprintf(name, sizeof name, "programs/%u.bin", role);
        TRY(read_program(r, name, &f->train[role]));
        if (f->train[role]->role != role || f->train[role]->nroles != n)
            return error_set(r->error, STATUS_INPUT, "%s/%s: is the program of role %u of %u", r->dir, name,
                             f->train[role]->role, f->train[role]->nroles);
        TRY(check_job(r, name, f->train[role], &f->train[0]->job, false));
        if (!f->eval)
            continue;
        snprintf(name, sizeof name, "programs/eval-%u.bin", role);
        TRY(read_program(r, name, &f->eval[role]));
        TRY(check_job(r, name, f->eval[role], &f->train[0]->job, true));
        TRY(check_eval(r, f->train[role], f->eval[role]));
    }
    if (ranks_check(f->ranks, (const struct program *const *)f->train, r->error) != STATUS_OK)
        return error_set(r->error, STATUS_INPUT, "%s/ranks.bin: %s", r->dir, r->error->text);
    if (f->eval && ranks_check(f->ranks, (const struct program *const *)f->eval, r->error) != STATUS_OK)
        return error_set(r->error, STATUS_INPUT, "%s/ranks.bin and programs/eval-*: %s", r->dir, r->error->text);
    return STATUS_OK;
}

enum status folder_open(const char *dir, struct folder **out, struct error *error)
{
    struct reader r = {.dir = dir, .error = error};
    if (!*dir) /* else it would be '/' */
        return error_set(error, STATUS_INPUT, "the folder's name is empty");
    struct folder *f = calloc(1, sizeof *f);
    if (!f)
        return STATUS_WORLD;
    enum status st = read_file(&r, "MANIFEST", &r.manifest, &r.manifest_size);
    if (st == STATUS_OK)
        hash_sha256(r.manifest, r.manifest_size, f->hash);
    if (st == STATUS_OK)
        st = check_others(&r, f);
    if (st == STATUS_OK)
        st = read_ranks(&r, &f->ranks);
    if (st == STATUS_OK)
        st = read_programs(&r, f);
    for (uint32_t i = 0; st == STATUS_OK && i < f->ranks->nranks; i++)
        f->nodes = f->ranks->ranks[i].node + 1 > f->nodes ? f->ranks->ranks[i].node + 1 : f->nodes;
    free(r.manifest);
    if (st != STATUS_OK) {
        folder_close(f);
        return st;
    }
    *out = f;
    return STATUS_OK;
}

void folder_close(struct folder *f)
{
    if (!f)
        return;
    for (uint32_t i = 0; f->ranks && i < f->ranks->nroles; i++) {
        if (f->train)
            program_free(f->train[i]);
        if (f->eval)
            program_free(f->eval[i]);
    }
    free(f->train);
    free(f->eval);
    ranks_free(f->ranks);
    free(f->json);
    free(f);
}
