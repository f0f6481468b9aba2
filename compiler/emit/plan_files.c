/* The plan as a folder.
 *
 * Writing: everything into DIR.tmp-<pid> beside the target, MANIFEST last, then one rename; an existing plan
 * folder is moved aside first and removed afterwards.  A folder that holds anything else is refused without
 * force, and with force stays beside the plan as DIR.old-<pid>: nothing that another wrote is ever removed.
 * Reading: MANIFEST names every file with its SHA-256; a file that is missing or different ends the reading,
 * files that it does not name are never opened. */

#include "compiler/emit/plan.h"

#include "compiler/model/sema.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"
#include "runtime/file.h"
#include "runtime/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAIL(status, ...)                                                                                    \
    do {                                                                                                     \
        snprintf(error, error_size, __VA_ARGS__);                                                            \
        return status;                                                                                       \
    } while (0)
#define SCHEDULE "schedule.csv" /* of decisions that come with one: auto and file */
#define MOST_FILE ((size_t)4 << 30)

/* errors of writing name the file in the folder, which plan_write() puts before it: people never see its temporary name */
static enum status write_file(const char *dir, const char *name, const void *bytes, size_t n,
                              struct strbuf *manifest, char *error, size_t error_size)
{
    char path[4096], hex[65];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        FAIL(STATUS_WORLD, "%s: the path is too long", dir);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fflush(f) || fsync(fileno(f))) {
        int cause = errno;
        if (f)
            fclose(f);
        FAIL(STATUS_WORLD, "%s cannot be written: %s", name, strerror(cause));
    }
    if (fclose(f))
        FAIL(STATUS_WORLD, "%s cannot be written: %s", name, strerror(errno));
    hash_sha256(bytes, n, hex);
    if (manifest)
        strbuf_printf(manifest, "%s  %s\n", hex, name);
    return STATUS_OK;
}

static enum status write_program(const struct program *p, const char *dir, struct strbuf *manifest,
                                 char *error, size_t error_size)
{
    uint8_t *bytes;
    size_t n;
    char name[64];
    if (program_encode(p, &bytes, &n) != STATUS_OK)
        FAIL(STATUS_BUG, "the program of role %u cannot be encoded", p->role);
    snprintf(name, sizeof name, "programs/%s%u.bin", p->evaluation ? "eval-" : "", p->role);
    enum status s = write_file(dir, name, bytes, n, manifest, error, error_size);
    free(bytes);
    return s;
}

static enum status write_schedule(const struct schedule *s, const char *dir, struct strbuf *manifest,
                                  char *error, size_t error_size)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        FAIL(STATUS_WORLD, "%s: %s", SCHEDULE, strerror(errno));
    schedule_print(s, f);
    fclose(f);
    enum status status = write_file(dir, SCHEDULE, text, n, manifest, error, error_size);
    free(text);
    return status;
}

static enum status write_all(const struct plan *p, const char *dir, struct strbuf *manifest, char *error,
                             size_t error_size)
{
    char path[4096];
    struct strbuf json = {0};
    plan_json(p, false, &json);
    enum status s = write_file(dir, "plan.json", json.text, json.length, manifest, error, error_size);
    strbuf_free(&json);
    TRY(s);
    TRY(write_file(dir, "model.llm", p->job->source->text, p->job->source->size, manifest, error,
                   error_size));
    TRY(write_file(dir, "cluster.xml", p->topo->text, p->topo->text_size, manifest, error, error_size));
    if (p->decision.listed)
        TRY(write_schedule(p->decision.listed, dir, manifest, error, error_size));
    snprintf(path, sizeof path, "%s/programs", dir);
    if (mkdir(path, 0777))
        FAIL(STATUS_WORLD, "programs cannot be made: %s", strerror(errno));
    for (uint32_t r = 0; r < p->nroles; r++) {
        TRY(write_program(p->train[r], dir, manifest, error, error_size));
        TRY(write_program(p->eval[r], dir, manifest, error, error_size));
    }
    uint8_t *bytes;
    size_t n;
    TRY(ranks_encode(p->ranks, &bytes, &n));
    s = write_file(dir, "ranks.bin", bytes, n, manifest, error, error_size);
    free(bytes);
    TRY(s);
    return write_file(dir, "MANIFEST", manifest->text, manifest->length, NULL, error, error_size);
}

/* only for what was written a moment ago, and for a TARGET_PLAN */
static void remove_plan(const char *dir)
{
    static const char *const sub[] = {"/programs", ""};
    char path[4096], file[8192];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s%s", dir, sub[i]);
        DIR *d = opendir(path);
        if (!d)
            continue;
        for (struct dirent *e; (e = readdir(d));) {
            snprintf(file, sizeof file, "%s/%s", path, e->d_name);
            unlink(file);
        }
        closedir(d);
        rmdir(path);
    }
}

/* a program's file: programs/N.bin, programs/eval-N.bin */
static bool is_program(const char *name)
{
    name += strncmp(name, "eval-", 5) ? 0 : 5;
    size_t digits = strspn(name, "0123456789");
    return digits && !strcmp(name + digits, ".bin");
}

/* Do only files that a plan has lie in this folder?  A link, device or FIFO of such a name is none of them. */
static bool holds_only_ours(DIR *d, bool programs, bool *manifest, size_t *entries)
{
    static const char *const ours[] = {"plan.json", "model.llm", "cluster.xml", "ranks.bin", SCHEDULE, "MANIFEST"};
    bool only = true;
    struct stat st;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        bool known = programs && is_program(e->d_name);
        for (size_t i = 0; i < ARRAY_LEN(ours) && !programs; i++)
            known |= !strcmp(ours[i], e->d_name);
        bool folder = !programs && !strcmp(e->d_name, "programs");
        only &= (known || folder) && !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
                (folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode));
        *manifest |= !strcmp(e->d_name, "MANIFEST");
        ++*entries;
    }
    return only;
}

enum target { TARGET_FREE, TARGET_PLAN, TARGET_FOREIGN };
static enum target inspect_target(const char *dir)
{
    bool manifest = false, only = true;
    size_t entries = 0, programs = 0;
    for (int inside = 0; inside < 2 && only; inside++) {
        char path[FILE_PATH];
        snprintf(path, sizeof path, inside ? "%s/programs" : "%s", dir);
        DIR *d = opendir(path);
        if (!d && !inside)
            return errno == ENOENT ? TARGET_FREE : TARGET_FOREIGN;
        only = d ? holds_only_ours(d, inside, &manifest, inside ? &programs : &entries) : errno == ENOENT;
        if (d)
            closedir(d);
    }
    return only && (!entries || manifest) ? TARGET_PLAN : TARGET_FOREIGN;
}

/* the folders that a plan is written into and that what was there is moved to, both beside it */
struct beside {
    char target[FILE_PATH]; /* where a link of the plan's name leads */
    char temp[4000], old[4000];
};
static enum status name_beside(const char *dir, struct beside *b, char *error, size_t error_size)
{
    const char *why = *dir ? file_resolve(dir, b->target) : "the folder's name is empty";
    if (why && *dir)
        FAIL(STATUS_WORLD, "%.200s: %s", dir, why);
    if (why)
        FAIL(STATUS_WORLD, "%s", why);
    if (strlen(b->target) + 32 > sizeof b->temp)
        FAIL(STATUS_WORLD, "the folder's path is too long");
    snprintf(b->temp, sizeof b->temp, "%s.tmp-%ld", b->target, (long)getpid());
    snprintf(b->old, sizeof b->old, "%s.old-%ld", b->target, (long)getpid());
    return STATUS_OK;
}

/* what a rename would displace: a folder, or with force a regular file */
static enum status check_kind(const char *dir, const char *target, char *error, size_t error_size)
{
    struct stat st;
    const char *why = file_not_folder(target);
    if (why && (lstat(target, &st) || !S_ISREG(st.st_mode)))
        FAIL(STATUS_WORLD, "%s: %s, and a plan is a folder", dir, why);
    return STATUS_OK;
}

enum status plan_may_write(const char *dir, bool force, char *error, size_t error_size)
{
    struct beside b;
    struct stat st;
    TRY(name_beside(dir, &b, error, error_size));
    const char *last = strrchr(b.target, '/');
    last = last && last[1] ? last + 1 : b.target;
    if (!strcmp(last, ".") || !strcmp(last, "..") || !strcmp(last, "/"))
        FAIL(STATUS_WORLD, "%s cannot be replaced by a plan: name a folder in it", dir);
    char *slash = strrchr(b.temp, '/');
    const char *parent = slash == b.temp ? "/" : slash ? b.temp : ".";
    if (slash)
        *slash = 0;
    if (stat(parent, &st))
        FAIL(STATUS_WORLD, "%s cannot be made: %s: %s", dir, parent, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        FAIL(STATUS_WORLD, "%s cannot be made: %s is no folder", dir, parent);
    if (access(parent, W_OK | X_OK))
        FAIL(STATUS_WORLD, "%s cannot be made: nothing can be written into %s: %s", dir, parent, strerror(errno));
    TRY(check_kind(dir, b.target, error, error_size));
    if (inspect_target(b.target) == TARGET_FOREIGN && !force)
        FAIL(STATUS_WORLD, "%s exists and holds more than a plan; name another, or give --force to move it to %s", dir,
             b.old);
    return STATUS_OK;
}

enum status plan_write(const struct plan *p, const char *dir, bool force, char *error, size_t error_size)
{
    struct beside b;
    char why[512] = "";
    TRY(plan_may_write(dir, force, error, error_size));
    TRY(name_beside(dir, &b, error, error_size));
    const char *temp = b.temp, *old = b.old;
    enum target target = inspect_target(b.target);
    if (mkdir(temp, 0777))
        FAIL(STATUS_WORLD, "%s cannot be made: %s", dir, strerror(errno));
    struct strbuf manifest = {0};
    enum status s = write_all(p, temp, &manifest, why, sizeof why);
    strbuf_free(&manifest);
    if (s != STATUS_OK)
        snprintf(error, error_size, "%s: %s", dir, why);
    if (s == STATUS_OK && target != TARGET_FREE && rename(b.target, old)) {
        snprintf(error, error_size, "%s: %s", dir, strerror(errno));
        s = STATUS_WORLD;
    }
    if (s == STATUS_OK && rename(temp, b.target)) {
        snprintf(error, error_size, "%s: %s", dir, strerror(errno));
        s = STATUS_WORLD;
        if (target != TARGET_FREE)
            rename(old, b.target);
    }
    if (s != STATUS_OK)
        remove_plan(temp);
    else if (target == TARGET_PLAN)
        remove_plan(old);
    return s;
}

/* ---- reading ---- */

struct file {
    const char *name;
    char *bytes; /* in the arena, a 0 behind it */
    size_t size;
};
struct files {
    VEC(struct file) v;
};

static enum status read_whole(struct arena *a, const char *dir, const char *name, struct file *out,
                              char *error, size_t error_size)
{
    char path[4096];
    int fd;
    uint64_t bytes;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        FAIL(STATUS_INPUT, "%s: the path is too long", dir);
    const char *why = file_open(path, &fd, &bytes);
    if (why && errno == ENOENT && !strcmp(name, "MANIFEST"))
        FAIL(STATUS_INPUT, "%s/MANIFEST is missing: this is no plan folder ('llmc plan MODEL CLUSTER -o DIR' makes one)", dir);
    if (why)
        FAIL(STATUS_INPUT, "%s: %s", path, why);
    if (bytes > MOST_FILE) {
        close(fd);
        FAIL(STATUS_INPUT, "%s: larger than 4 GiB", path);
    }
    *out = (struct file){name, arena_alloc(a, (size_t)bytes + 1), (size_t)bytes};
    size_t done = 0;
    for (ssize_t n; done < out->size && (n = read(fd, out->bytes + done, out->size - done)) > 0;)
        done += (size_t)n;
    close(fd);
    if (done != out->size)
        FAIL(STATUS_INPUT, "%s: ends early", path);
    return STATUS_OK;
}

static bool plain_name(const char *name)
{
    return *name && *name != '/' && !strstr(name, "..") &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-./") == strlen(name);
}

static enum status read_listed(struct arena *a, const char *dir, char *line, struct files *files, char *error,
                               size_t error_size)
{
    char hex[65];
    struct file f;
    char *name = line + 66;
    if (strlen(line) < 67 || strncmp(line + 64, "  ", 2) || !plain_name(name))
        FAIL(STATUS_INPUT, "%s/MANIFEST: a line is not '<sha256>  <file>'", dir);
    TRY(read_whole(a, dir, arena_strdup(a, name), &f, error, error_size));
    hash_sha256(f.bytes, f.size, hex);
    if (strncmp(hex, line, 64))
        FAIL(STATUS_INPUT, "%s/%s was changed after the plan was written (its hash differs from MANIFEST)",
             dir, name);
    vec_push(a, &files->v, f);
    return STATUS_OK;
}

static enum status read_manifest(struct arena *a, const char *dir, struct files *files, char *error,
                                 size_t error_size)
{
    struct file manifest;
    TRY(read_whole(a, dir, "MANIFEST", &manifest, error, error_size));
    char *line = manifest.bytes;
    while (*line) {
        char *end = strchr(line, '\n');
        if (!end)
            FAIL(STATUS_INPUT, "%s/MANIFEST: the last line is cut off", dir);
        *end = 0;
        TRY(read_listed(a, dir, line, files, error, error_size));
        line = end + 1;
    }
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

/* plan.json: the overrides, and the decision */
static enum status read_json(struct arena *a, const char *dir, const struct file *f, struct plan *p,
                             char **decision, char *error, size_t error_size)
{
    json_error_t where;
    json_t *root = json_loadb(f->bytes, f->size, JSON_REJECT_DUPLICATES, &where),
           *sets = json_object_get(root, "set");
    json_t *d = json_object_get(root, "decision");
    if (!root || !json_is_object(d) || !json_is_array(sets)) {
        json_decref(root);
        FAIL(STATUS_INPUT, "%s/plan.json: %s", dir, root ? "has no decision" : where.text);
    }
    p->nsets = (uint32_t)json_array_size(sets);
    const char **list = ARENA_ARRAY(a, const char *, p->nsets + 1);
    for (uint32_t i = 0; i < p->nsets; i++) {
        const char *s = json_string_value(json_array_get(sets, i));
        list[i] = arena_strdup(a, s ? s : "");
    }
    p->sets = list;
    char *text = json_dumps(d, JSON_REAL_PRECISION(17));
    *decision = arena_strdup(a, text ? text : "");
    free(text);
    json_decref(root);
    return STATUS_OK;
}

static enum status read_schedule(struct arena *a, const char *dir, const struct files *files,
                                 struct decision *d, char *error, size_t error_size)
{
    if (d->schedule != SCHED_AUTO && d->schedule != SCHED_FILE)
        return STATUS_OK;
    const struct file *f = find_file(files, SCHEDULE);
    const char *why = NULL;
    if (!f)
        FAIL(STATUS_INPUT, "%s/MANIFEST does not list %s", dir, SCHEDULE);
    d->listed = schedule_parse(a, f->bytes, f->size, &why);
    if (d->listed)
        why = schedule_unsupported(a, d);
    if (why)
        FAIL(STATUS_INPUT, "%s/%s: %s", dir, SCHEDULE, why);
    return STATUS_OK;
}

static enum status read_inputs(struct arena *a, const char *dir, const struct files *files, struct plan *p,
                               char *error, size_t error_size)
{
    static const char *const names[] = {"plan.json", "model.llm", "cluster.xml", "ranks.bin"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (!find_file(files, names[i]))
            FAIL(STATUS_INPUT, "%s/MANIFEST does not list %s", dir, names[i]);
    char *decision;
    const char *why = "";
    struct diag *d = diag_new(a);
    TRY(read_json(a, dir, find_file(files, "plan.json"), p, &decision, error, error_size));
    p->job = job_parse(a, d, as_source(a, dir, find_file(files, "model.llm")), p->sets, p->nsets);
    p->topo = topo_parse(a, d, as_source(a, dir, find_file(files, "cluster.xml")), NULL);
    if (!p->job || !p->topo) {
        diag_print(d, stderr, false);
        FAIL(STATUS_INPUT, "%s/%s cannot be read", dir, p->job ? "cluster.xml" : "model.llm");
    }
    if (!decision_from_json(a, decision, strlen(decision), p->job, p->topo, &p->decision, &why) ||
        !decision_legal(a, p->job, p->topo, &p->decision, &why))
        FAIL(STATUS_INPUT, "%s/plan.json: %s", dir, why);
    TRY(read_schedule(a, dir, files, &p->decision, error, error_size));
    p->mesh = decision_mesh(p->job, &p->decision);
    return STATUS_OK;
}

static enum status read_program(const struct files *files, const char *dir, uint32_t role, bool evaluation,
                                struct program **out, char *error, size_t error_size)
{
    char name[64], why[512];
    snprintf(name, sizeof name, "programs/%s%u.bin", evaluation ? "eval-" : "", role);
    const struct file *f = find_file(files, name);
    if (!f)
        FAIL(STATUS_INPUT, "%s/MANIFEST does not list %s", dir, name);
    enum status s = program_decode((const uint8_t *)f->bytes, f->size, out, why, sizeof why);
    if (s == STATUS_OK && ((*out)->role != role || (*out)->evaluation != evaluation))
        FAIL(STATUS_INPUT, "%s/%s is the program of another role", dir, name);
    if (s == STATUS_OK)
        s = program_check(*out, why, sizeof why);
    if (s != STATUS_OK)
        FAIL(s, "%s/%s: %s", dir, name, why);
    return STATUS_OK;
}

enum status plan_read(struct arena *a, const char *dir, struct plan **out, char *error, size_t error_size)
{
    struct files files = {0};
    struct plan *p = *out = ARENA_NEW(a, struct plan);
    char why[512];
    TRY(read_manifest(a, dir, &files, error, error_size));
    TRY(read_inputs(a, dir, &files, p, error, error_size));
    p->nroles = p->decision.pp;
    p->train = ARENA_ARRAY(a, struct program *, p->nroles);
    p->eval = ARENA_ARRAY(a, struct program *, p->nroles);
    for (uint32_t r = 0; r < p->nroles; r++) {
        TRY(read_program(&files, dir, r, false, &p->train[r], error, error_size));
        TRY(read_program(&files, dir, r, true, &p->eval[r], error, error_size));
    }
    const struct file *f = find_file(&files, "ranks.bin");
    enum status s = ranks_decode((const uint8_t *)f->bytes, f->size, &p->ranks, why, sizeof why);
    if (s != STATUS_OK)
        FAIL(s, "%s/ranks.bin: %s", dir, why);
    if (p->ranks->nranks != p->mesh.nranks || p->ranks->nroles != p->nroles)
        FAIL(STATUS_INPUT, "%s/ranks.bin is for %u ranks of %u roles, plan.json for %u of %u", dir,
             p->ranks->nranks, p->ranks->nroles, p->mesh.nranks, p->nroles);
    return STATUS_OK;
}
