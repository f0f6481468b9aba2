/* The plan as a folder, read.
 *
 * MANIFEST names every file with its SHA-256; a file that is missing or different ends the reading, files
 * that it does not name are never opened.  Of plan.json the overrides, the decision and what bounded the
 * search are read, for they are what a plan is made from; what it says of model, cluster and decision must
 * then be what this compiler would write of them, to the last key.  Its figures are neither read nor
 * believed: who shows some makes them anew, and `llmc check` compares (compiler/origin/). */

#include "compiler/emit/plan.h"

#include "compiler/model/sema.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"
#include "runtime/file.h"
#include "runtime/hash.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* bytes of a file, by what it is: 16 MiB name the programs of 65,536 pipeline ranks, and a text is hashed in a few
 * seconds */
#define MOST_MANIFEST ((uint64_t)16 << 20)
#define MOST_TEXT ((uint64_t)256 << 20)
#define MOST_BINARY ((uint64_t)4 << 30)

struct file {
    const char *name;
    char *bytes; /* in the arena, a 0 behind it */
    size_t size;
};
struct files {
    VEC(struct file) v;
};

static uint64_t most_bytes(const char *name)
{
    if (!strcmp(name, "MANIFEST"))
        return MOST_MANIFEST;
    return !strncmp(name, "programs/", 9) || !strcmp(name, "ranks.bin") ? MOST_BINARY : MOST_TEXT;
}

static enum status read_whole(struct arena *a, const char *dir, const char *name, struct file *out, struct error *error)
{
    char path[4096];
    int fd;
    uint64_t bytes;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return error_set(error, STATUS_INPUT, "%.200s...: the path is too long", dir);
    const char *why = file_open(path, &fd, &bytes);
    if (why && errno == ENOENT && !strcmp(name, "MANIFEST"))
        return error_set(error, STATUS_INPUT,
                         "%s/MANIFEST is missing: this is no plan folder ('llmc plan MODEL CLUSTER -o DIR' makes one)",
                         dir);
    if (why)
        return error_set(error, STATUS_INPUT, "%s: %s", path, why);
    if (bytes > most_bytes(name)) {
        close(fd);
        return error_set(error, STATUS_INPUT, "%s: larger than %llu MiB", path,
                         (unsigned long long)(most_bytes(name) >> 20));
    }
    *out = (struct file){name, arena_alloc(a, (size_t)bytes + 1), (size_t)bytes};
    size_t done = 0;
    for (ssize_t n; done < out->size && (n = read(fd, out->bytes + done, out->size - done)) > 0;)
        done += (size_t)n;
    close(fd);
    if (done != out->size)
        return error_set(error, STATUS_INPUT, "%s: ends early", path);
    return STATUS_OK;
}

static bool plain_name(const char *name)
{
    return *name && *name != '/' && !strstr(name, "..") &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-./") == strlen(name);
}

static enum status read_listed(struct arena *a, const char *dir, char *line, struct files *files, struct error *error)
{
    char hex[65];
    struct file f;
    char *name = line + 66;
    if (strlen(line) < 67 || strncmp(line + 64, "  ", 2) || !plain_name(name))
        return error_set(error, STATUS_INPUT, "%s/MANIFEST: a line is not '<sha256>  <file>'", dir);
    TRY(read_whole(a, dir, arena_strdup(a, name), &f, error));
    hash_sha256(f.bytes, f.size, hex);
    if (strncmp(hex, line, 64))
        return error_set(error, STATUS_INPUT,
                         "%s/%s was changed after the plan was written (its hash differs from MANIFEST)", dir, name);
    vec_push(a, &files->v, f);
    return STATUS_OK;
}

static enum status read_manifest(struct arena *a, const char *dir, struct files *files, struct error *error)
{
    struct file manifest;
    TRY(read_whole(a, dir, "MANIFEST", &manifest, error));
    if (memchr(manifest.bytes, 0, manifest.size))
        return error_set(error, STATUS_INPUT, "%s/MANIFEST: holds a byte that no text has", dir);
    char *line = arena_strndup(a, manifest.bytes, manifest.size);
    while (*line) {
        char *end = strchr(line, '\n');
        if (!end)
            return error_set(error, STATUS_INPUT, "%s/MANIFEST: the last line is cut off", dir);
        *end = 0;
        TRY(read_listed(a, dir, line, files, error));
        line = end + 1;
    }
    vec_push(a, &files->v, manifest);
    return STATUS_OK;
}

/* the files for whoever compares them */
static const struct plan_file *list_files(struct arena *a, const struct files *files, uint32_t *n)
{
    struct plan_file *out = ARENA_ARRAY(a, struct plan_file, files->v.n + 1);
    for (size_t i = 0; i < files->v.n; i++)
        out[i] = (struct plan_file){files->v.at[i].name, files->v.at[i].bytes, files->v.at[i].size};
    *n = (uint32_t)files->v.n;
    return out;
}

enum status plan_read_folder(struct arena *a, const char *dir, const struct plan_file **files, uint32_t *n,
                             struct error *error)
{
    struct files read = {0};
    TRY(read_manifest(a, dir, &read, error));
    *files = list_files(a, &read, n);
    return STATUS_OK;
}

static const struct file *find_file(const struct files *files, const char *name)
{
    for (size_t i = 0; i < files->v.n; i++)
        if (!strcmp(files->v.at[i].name, name))
            return &files->v.at[i];
    return NULL;
}

static struct source *as_source(struct arena *a, const char *dir, const struct file *f)
{
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){arena_printf(a, "%s/%s", dir, f->name), f->bytes, f->size, false};
    return s;
}

/* a whole number of an object, at most `most`; 0 where there is none */
static uint64_t number_of(const json_t *object, const char *key, uint64_t most)
{
    const json_t *v = json_object_get(object, key);
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : 0;
    return n > 0 && (uint64_t)n <= most ? (uint64_t)n : 0;
}

/* an error about the job: overrides, which people look for in plan.json, or the model alone */
static enum status fail_job(struct arena *a, const char *dir, const struct files *files, const struct plan *p,
                            struct error *error)
{
    if (p->nsets && job_parse(a, diag_new(a), as_source(a, dir, find_file(files, "model.llm")), NULL, 0))
        return error_set(error, STATUS_INPUT, "%s/plan.json: its 'set' cannot be applied to model.llm", dir);
    return error_set(error, STATUS_INPUT, "%s/model.llm cannot be read", dir);
}

/* plan.json: the overrides, what bounded the search, the version, and the decision */
static enum status read_json(struct arena *a, const char *dir, const json_t *root, struct plan *p, char **decision,
                             struct error *error)
{
    const json_t *sets = json_object_get(root, "set"), *d = json_object_get(root, "decision"),
                 *search = json_object_get(root, "search");
    if (!json_is_object(d) || !json_is_array(sets))
        return error_set(error, STATUS_INPUT, "%s/plan.json: has no %s", dir,
                         json_is_object(d) ? "list 'set'" : "decision");
    p->nsets = (uint32_t)json_array_size(sets);
    const char **list = ARENA_ARRAY(a, const char *, p->nsets + 1);
    for (uint32_t i = 0; i < p->nsets; i++) {
        const char *s = json_string_value(json_array_get(sets, i));
        list[i] = arena_strdup(a, s ? s : "");
    }
    p->sets = list;
    p->search.top = (uint32_t)number_of(search, "top", PLAN_MOST_TOP);
    p->search.budget = number_of(search, "budget", INT64_MAX);
    const char *version = json_string_value(json_object_get(json_object_get(root, "compiler"), "version"));
    p->version = arena_strdup(a, version ? version : "");
    char *text = json_dumps(d, JSON_REAL_PRECISION(17));
    *decision = arena_strdup(a, text ? text : "");
    free(text);
    return STATUS_OK;
}

struct first_difference {
    struct arena *arena;
    const char *text;
};

static void keep_first(void *context, const char *key, const char *is, const char *wanted)
{
    struct first_difference *d = context;
    if (d->text)
        return;
    if (!is)
        d->text = arena_printf(d->arena, "'%s' is missing", key);
    else if (!wanted)
        d->text = arena_printf(d->arena, "unknown key '%s'", key);
    else
        d->text = arena_printf(d->arena, "'%s' is %.200s; by the inputs and the decision it is %.200s", key, is,
                               wanted);
}

/* Is all that it says of inputs and decision what this compiler says of them?  A folder without `compiler` is
 * of a version that did not write it. */
static enum status check_head(struct arena *a, const char *dir, const json_t *root, const struct plan *p,
                              struct error *error)
{
    static const char *const keys[] = {"schema", "compiler", "model", "cluster", "set", "decision", "target"};
    struct strbuf text = {0};
    struct first_difference d = {.arena = a};
    plan_json_head(p, &text);
    strbuf_char(&text, '}');
    json_t *wanted = json_loadb(text.text, text.length, 0, NULL);
    strbuf_free(&text);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const json_t *is = json_object_get(root, keys[i]);
        if (is || strcmp(keys[i], "compiler") != 0)
            plan_json_compare(is, json_object_get(wanted, keys[i]), keys[i], keep_first, &d);
    }
    json_decref(wanted);
    if (d.text)
        return error_set(error, STATUS_INPUT, "%s/plan.json: %s", dir, d.text);
    return STATUS_OK;
}

/* schedules of files that are wished for lie in the folder, beside model.llm */
static void keep_wished(struct arena *a, struct plan *p)
{
    struct wishes *w = &p->job->wishes;
    struct schedule_wish *own = ARENA_ARRAY(a, struct schedule_wish, w->nschedules + 1);
    for (uint32_t i = 0; i < w->nschedules; i++) {
        own[i] = w->schedules[i];
        if (own[i].kind == SCHED_FILE)
            own[i].file = plan_wished_file(a, p, i);
    }
    w->schedules = own;
}

static enum status read_schedule(struct arena *a, const char *dir, const struct files *files, struct decision *d,
                                 struct error *error)
{
    if (d->schedule != SCHED_AUTO && d->schedule != SCHED_FILE)
        return STATUS_OK;
    const struct file *f = find_file(files, PLAN_SCHEDULE);
    const char *why = NULL;
    if (!f)
        return error_set(error, STATUS_INPUT, "%s/MANIFEST does not list %s", dir, PLAN_SCHEDULE);
    d->listed = schedule_parse(a, f->bytes, f->size, &why);
    if (d->listed)
        why = schedule_unsupported(a, d);
    if (why)
        return error_set(error, STATUS_INPUT, "%s/%s: %s", dir, PLAN_SCHEDULE, why);
    return STATUS_OK;
}

static enum status read_described(struct arena *a, const char *dir, const struct files *files, const json_t *root,
                                  struct plan *p, struct error *error)
{
    char *decision = "";
    const char *why = "";
    struct diag *d = diag_new(a);
    TRY(read_json(a, dir, root, p, &decision, error));
    p->job = job_parse(a, d, as_source(a, dir, find_file(files, "model.llm")), p->sets, p->nsets);
    p->topo = topo_parse(a, d, as_source(a, dir, find_file(files, "cluster.xml")), NULL);
    if (!p->job || !p->topo) {
        diag_print(d, stderr, false);
        if (!p->job)
            return fail_job(a, dir, files, p, error);
        return error_set(error, STATUS_INPUT, "%s/cluster.xml cannot be read", dir);
    }
    job_emits(a, p->job);
    if (!decision_from_json(a, decision, strlen(decision), p->job, p->topo, &p->decision, &why) ||
        !decision_legal(a, p->job, p->topo, &p->decision, &why))
        return error_set(error, STATUS_INPUT, "%s/plan.json: %s", dir, why);
    p->job->wishes.tight_experts = cost_is_tight(p->job, &p->topo->types[p->decision.type].gpu, &p->decision);
    TRY(check_head(a, dir, root, p, error));
    TRY(read_schedule(a, dir, files, &p->decision, error));
    keep_wished(a, p);
    p->mesh = decision_mesh(p->job, &p->decision);
    return STATUS_OK;
}

static enum status read_inputs(struct arena *a, const char *dir, const struct files *files, struct plan *p,
                               struct error *error)
{
    static const char *const names[] = {"plan.json", "model.llm", "cluster.xml", "ranks.bin"};
    if (find_file(files, "transition.json"))
        return error_set(
            error, STATUS_INPUT,
            "%s is a transition between plans, and no plan ('llmc transition FROM TO --check %s' proves it)", dir, dir);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (!find_file(files, names[i]))
            return error_set(error, STATUS_INPUT, "%s/MANIFEST does not list %s", dir, names[i]);
    json_error_t where;
    const struct file *f = find_file(files, "plan.json");
    json_t *root = json_loadb(f->bytes, f->size, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return error_set(error, STATUS_INPUT, "%s/plan.json: %s", dir, where.text);
    enum status s = read_described(a, dir, files, root, p, error);
    json_decref(root);
    return s;
}

static enum status read_program(const struct files *files, const char *dir, uint32_t role, bool evaluation,
                                struct program **out, struct error *error)
{
    char name[64];
    snprintf(name, sizeof name, "programs/%s%u.bin", evaluation ? "eval-" : "", role);
    const struct file *f = find_file(files, name);
    if (!f)
        return error_set(error, STATUS_INPUT, "%s/MANIFEST does not list %s", dir, name);
    enum status s = program_decode((const uint8_t *)f->bytes, f->size, out, error);
    if (s == STATUS_OK && ((*out)->role != role || (*out)->evaluation != evaluation))
        return error_set(error, STATUS_INPUT, "%s/%s is the program of another role", dir, name);
    if (s != STATUS_OK)
        return error_set(error, s, "%s/%s: %s", dir, name, error->text);
    return STATUS_OK;
}

enum status plan_read(struct arena *a, const char *dir, struct plan **out, struct error *error)
{
    struct files files = {0};
    struct plan *p = *out = ARENA_NEW(a, struct plan);
    if (!*dir) /* else it would be '/' */
        return error_set(error, STATUS_INPUT, "the folder's name is empty");
    TRY(read_manifest(a, dir, &files, error));
    p->files = list_files(a, &files, &p->nfiles);
    TRY(read_inputs(a, dir, &files, p, error));
    p->nroles = p->decision.pp;
    p->train = ARENA_ARRAY(a, struct program *, p->nroles);
    p->eval = ARENA_ARRAY(a, struct program *, p->nroles);
    for (uint32_t r = 0; r < p->nroles; r++) {
        TRY(read_program(&files, dir, r, false, &p->train[r], error));
        TRY(read_program(&files, dir, r, true, &p->eval[r], error));
    }
    const struct file *f = find_file(&files, "ranks.bin");
    enum status s = ranks_decode((const uint8_t *)f->bytes, f->size, &p->ranks, error);
    if (s != STATUS_OK)
        return error_set(error, s, "%s/ranks.bin: %s", dir, error->text);
    if (p->ranks->nranks != p->mesh.nranks || p->ranks->nroles != p->nroles)
        return error_set(error, STATUS_INPUT, "%s/ranks.bin is for %u ranks of %u roles, plan.json for %u of %u", dir,
                         p->ranks->nranks, p->ranks->nroles, p->mesh.nranks, p->nroles);
    return STATUS_OK;
}
