/* The plan as a folder, written: plan_each_file() makes the bytes of every file, here they go to the disk,
 * `llmc check` compares them with what is there.
 *
 * Everything goes into DIR.tmp-<pid> beside the target, MANIFEST last, then one rename; an existing plan
 * folder is moved aside first and removed afterwards.  A folder that holds anything else is refused without
 * force, and with force stays beside the plan as DIR.old-<pid>: nothing that another wrote is ever removed.
 */

#include "compiler/emit/plan.h"

#include "compiler/schedule/schedule.h"
#include "compiler/support/parallel.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"
#include "runtime/file.h"
#include "runtime/hash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* the files on their way to the taker, and the lines of MANIFEST */
struct emitter {
    plan_take *take;
    void *context;
    struct strbuf manifest;
};

static enum status emit_hashed(struct emitter *e, const char *name, const void *bytes, size_t n, const char *hex,
                               struct error *error)
{
    strbuf_printf(&e->manifest, "%s  %s\n", hex, name);
    return e->take(e->context, &(struct plan_file){name, bytes, n}, error);
}

static enum status emit(struct emitter *e, const char *name, const void *bytes, size_t n, struct error *error)
{
    char hex[65];
    hash_sha256(bytes, n, hex);
    return emit_hashed(e, name, bytes, n, hex, error);
}

/* ---- programs: encoded and hashed on all cores, some at a time, and taken in their order ---- */

enum { AT_ONCE = 16 };
struct encoded {
    const struct program *program;
    uint8_t *bytes;
    size_t n;
    char hex[65];
    enum status status;
};

static void encode_one(void *context, uint32_t i)
{
    struct encoded *x = (struct encoded *)context + i;
    x->status = program_encode(x->program, &x->bytes, &x->n);
    if (x->status == STATUS_OK)
        hash_sha256(x->bytes, x->n, x->hex);
}

static enum status emit_encoded(struct emitter *e, const struct encoded *x, struct error *error)
{
    char name[64];
    if (x->status != STATUS_OK)
        return error_set(error, STATUS_BUG, "the program of role %u cannot be encoded", x->program->role);
    snprintf(name, sizeof name, "programs/%s%u.bin", x->program->evaluation ? "eval-" : "", x->program->role);
    return emit_hashed(e, name, x->bytes, x->n, x->hex, error);
}

static enum status emit_programs(struct emitter *e, const struct program *const *programs, uint32_t n,
                                 struct error *error)
{
    enum status s = STATUS_OK;
    for (uint32_t done = 0; done < n && s == STATUS_OK; done += AT_ONCE) {
        struct encoded some[AT_ONCE] = {0};
        uint32_t count = n - done < AT_ONCE ? n - done : AT_ONCE;
        for (uint32_t i = 0; i < count; i++)
            some[i].program = programs[done + i];
        parallel_each(count, encode_one, some);
        for (uint32_t i = 0; i < count; i++) {
            s = s == STATUS_OK ? emit_encoded(e, &some[i], error) : s;
            free(some[i].bytes);
        }
    }
    return s;
}

static enum status emit_schedule(struct emitter *e, const struct schedule *s, struct error *error)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return error_set(error, STATUS_WORLD, "%s: %s", PLAN_SCHEDULE, strerror(errno));
    schedule_print(s, f);
    fclose(f);
    enum status status = emit(e, PLAN_SCHEDULE, text, n, error);
    free(text);
    return status;
}

char *plan_wished_file(struct arena *a, const struct plan *p, uint32_t i)
{
    bool chosen = p->job->wishes.nschedules == 1 && p->decision.schedule == SCHED_FILE;
    return chosen ? arena_strdup(a, PLAN_SCHEDULE) : arena_printf(a, "wished-%u.csv", i);
}

/* Schedules of files that are wished for beside other schedules, for whoever searches again.  The model's
 * text is not there to be asked where plans are made by hand. */
static enum status emit_wished(struct emitter *e, const struct plan *p, struct error *error)
{
    struct arena *a = arena_new();
    const char *slash = p->job->source->name ? strrchr(p->job->source->name, '/') : NULL;
    enum status s = STATUS_OK;
    for (uint32_t i = 0; i < p->job->wishes.nschedules && s == STATUS_OK; i++) {
        const struct schedule_wish *w = &p->job->wishes.schedules[i];
        const char *name = plan_wished_file(a, p, i), *path = w->file;
        if (w->kind != SCHED_FILE || !strcmp(name, PLAN_SCHEDULE))
            continue;
        if (*path != '/' && slash)
            path = arena_printf(a, "%.*s/%s", (int)(slash - p->job->source->name), p->job->source->name, path);
        struct source *from = source_read(a, diag_new(a), path, (size_t)64 << 20);
        if (from)
            s = emit(e, name, from->text, from->size, error);
    }
    arena_free(a);
    return s;
}

static enum status emit_inputs(struct emitter *e, const struct plan *p, struct error *error)
{
    struct strbuf json = {0};
    plan_json(p, false, &json);
    enum status s = emit(e, "plan.json", json.text, json.length, error);
    strbuf_free(&json);
    TRY(s);
    TRY(emit(e, "model.llm", p->job->source->text, p->job->source->size, error));
    TRY(emit(e, "cluster.xml", p->topo->text, p->topo->text_size, error));
    if (p->decision.listed)
        TRY(emit_schedule(e, p->decision.listed, error));
    for (uint32_t i = 0; i < p->nlaunch; i++)
        TRY(emit(e, p->launch[i].name, p->launch[i].bytes, p->launch[i].size, error));
    return emit_wished(e, p, error);
}

static enum status emit_ranks(struct emitter *e, const struct ranks *ranks, struct error *error)
{
    uint8_t *bytes;
    size_t n;
    TRY(ranks_encode(ranks, &bytes, &n));
    enum status s = emit(e, "ranks.bin", bytes, n, error);
    free(bytes);
    return s;
}

static enum status emit_all(struct emitter *e, const struct plan *p, struct error *error)
{
    TRY(emit_inputs(e, p, error));
    struct arena *a = arena_new();
    const struct program **all = ARENA_ARRAY(a, const struct program *, 2 * (size_t)p->nroles);
    for (uint32_t r = 0; r < p->nroles; r++) {
        all[2 * r] = p->train[r];
        all[2 * r + 1] = p->eval[r];
    }
    enum status s = emit_programs(e, all, 2 * p->nroles, error);
    arena_free(a);
    TRY(s);
    TRY(emit_ranks(e, p->ranks, error));
    return e->take(e->context, &(struct plan_file){"MANIFEST", e->manifest.text, e->manifest.length}, error);
}

enum status plan_each_file(const struct plan *p, plan_take *take, void *context, struct error *error)
{
    struct emitter e = {.take = take, .context = context};
    enum status s = emit_all(&e, p, error);
    strbuf_free(&e.manifest);
    return s;
}

enum status plan_emit_files(const struct plan_file *text, struct program *const *programs, uint32_t nprograms,
                            const struct ranks *ranks, plan_take *take, void *context, struct error *error)
{
    struct emitter e = {.take = take, .context = context};
    enum status s = emit(&e, text->name, text->bytes, text->size, error);
    s = s == STATUS_OK ? emit_programs(&e, (const struct program *const *)programs, nprograms, error) : s;
    s = s == STATUS_OK ? emit_ranks(&e, ranks, error) : s;
    s = s == STATUS_OK ? take(context, &(struct plan_file){"MANIFEST", e.manifest.text, e.manifest.length}, error) : s;
    strbuf_free(&e.manifest);
    return s;
}

/* errors of writing name the file in the folder, which plan_write() puts before it: people never see its
 * temporary name */
static enum status write_file(void *context, const struct plan_file *file, struct error *error)
{
    const char *dir = context;
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", dir, file->name) >= (int)sizeof path)
        return error_set(error, STATUS_WORLD, "%s: the path is too long", dir);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(file->bytes, 1, file->size, f) != file->size || fflush(f) || fsync(fileno(f))) {
        int cause = errno;
        if (f)
            fclose(f);
        return error_set(error, STATUS_WORLD, "%s cannot be written: %s", file->name, strerror(cause));
    }
    if (fclose(f))
        return error_set(error, STATUS_WORLD, "%s cannot be written: %s", file->name, strerror(errno));
    return STATUS_OK;
}

static enum status write_all(plan_each *each, const void *what, char *dir, struct error *error)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/programs", dir);
    if (mkdir(path, 0777))
        return error_set(error, STATUS_WORLD, "programs cannot be made: %s", strerror(errno));
    return each(what, write_file, dir, error);
}

/* only for what was written a moment ago, and for a FOLDER_PLAN */
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

/* a schedule's that is wished for beside others (plan_wished_file()) */
static bool is_wished(const char *name)
{
    size_t digits = strncmp(name, "wished-", 7) ? 0 : strspn(name + 7, "0123456789");
    return digits && !strcmp(name + 7 + digits, ".csv");
}

/* Do only files that a plan has lie in this folder?  A link, device or FIFO of such a name is none of them. */
static bool holds_only_ours(DIR *d, bool programs, bool *manifest, size_t *entries)
{
    static const char *const ours[] = {"plan.json",   "model.llm",       "cluster.xml", "ranks.bin", "MANIFEST",
                                       PLAN_SCHEDULE, "transition.json", PLAN_LAUNCH,   PLAN_HOSTS,  PLAN_TITAN};
    bool only = true;
    struct stat st;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        bool known = programs ? is_program(e->d_name) : is_wished(e->d_name);
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

enum folder { FOLDER_FREE, FOLDER_PLAN, FOLDER_FOREIGN };
static enum folder inspect_target(const char *dir)
{
    bool manifest = false, only = true;
    size_t entries = 0, programs = 0;
    for (int inside = 0; inside < 2 && only; inside++) {
        char path[FILE_PATH];
        snprintf(path, sizeof path, inside ? "%s/programs" : "%s", dir);
        DIR *d = opendir(path);
        if (!d && !inside)
            return errno == ENOENT ? FOLDER_FREE : FOLDER_FOREIGN;
        only = d ? holds_only_ours(d, inside, &manifest, inside ? &programs : &entries) : errno == ENOENT;
        if (d)
            closedir(d);
    }
    return only && (!entries || manifest) ? FOLDER_PLAN : FOLDER_FOREIGN;
}

/* the folders that a plan is written into and that what was there is moved to, both beside it */
struct beside {
    char target[FILE_PATH]; /* where a link of the plan's name leads */
    char temp[4000], old[4000];
};
static enum status name_beside(const char *dir, struct beside *b, struct error *error)
{
    const char *why = *dir ? file_resolve(dir, b->target) : "the folder's name is empty";
    if (why && *dir)
        return error_set(error, STATUS_WORLD, "%.200s: %s", dir, why);
    if (why)
        return error_set(error, STATUS_WORLD, "%s", why);
    if (strlen(b->target) + 32 > sizeof b->temp)
        return error_set(error, STATUS_WORLD, "the folder's path is too long");
    snprintf(b->temp, sizeof b->temp, "%s.tmp-%ld", b->target, (long)getpid());
    snprintf(b->old, sizeof b->old, "%s.old-%ld", b->target, (long)getpid());
    return STATUS_OK;
}

/* what a rename would displace: a folder, or with force a regular file */
static enum status check_kind(const char *dir, const char *target, struct error *error)
{
    struct stat st;
    const char *why = file_not_folder(target);
    if (why && (lstat(target, &st) || !S_ISREG(st.st_mode)))
        return error_set(error, STATUS_WORLD, "%s: %s, and a plan is a folder", dir, why);
    return STATUS_OK;
}

enum status plan_may_write(const char *dir, bool force, struct error *error)
{
    struct beside b;
    struct stat st;
    TRY(name_beside(dir, &b, error));
    const char *last = strrchr(b.target, '/');
    last = last && last[1] ? last + 1 : b.target;
    if (!strcmp(last, ".") || !strcmp(last, "..") || !strcmp(last, "/"))
        return error_set(error, STATUS_WORLD, "%s cannot be replaced by a plan: name a folder in it", dir);
    char *slash = strrchr(b.temp, '/');
    const char *parent = slash == b.temp ? "/" : slash ? b.temp : ".";
    if (slash)
        *slash = 0;
    if (stat(parent, &st))
        return error_set(error, STATUS_WORLD, "%s cannot be made: %s: %s", dir, parent, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return error_set(error, STATUS_WORLD, "%s cannot be made: %s is no folder", dir, parent);
    if (access(parent, W_OK | X_OK))
        return error_set(error, STATUS_WORLD, "%s cannot be made: nothing can be written into %s: %s", dir, parent,
                         strerror(errno));
    TRY(check_kind(dir, b.target, error));
    if (inspect_target(b.target) == FOLDER_FOREIGN && !force)
        return error_set(error, STATUS_WORLD,
                         "%s exists and holds more than a plan; name another, or give --force to move it to %s", dir,
                         b.old);
    return STATUS_OK;
}

enum status plan_write_folder(plan_each *each, const void *what, const char *dir, bool force, struct error *error)
{
    struct beside b;
    TRY(plan_may_write(dir, force, error));
    TRY(name_beside(dir, &b, error));
    char *temp = b.temp, *old = b.old;
    enum folder folder = inspect_target(b.target);
    if (mkdir(temp, 0777))
        return error_set(error, STATUS_WORLD, "%s cannot be made: %s", dir, strerror(errno));
    enum status s = write_all(each, what, temp, error);
    if (s != STATUS_OK)
        error_set(error, s, "%s: %s", dir, error->text);
    if (s == STATUS_OK && folder != FOLDER_FREE && rename(b.target, old))
        s = error_set(error, STATUS_WORLD, "%s: %s", dir, strerror(errno));
    if (s == STATUS_OK && rename(temp, b.target)) {
        s = error_set(error, STATUS_WORLD, "%s: %s", dir, strerror(errno));
        if (folder != FOLDER_FREE)
            rename(old, b.target);
    }
    if (s != STATUS_OK)
        remove_plan(temp);
    else if (folder == FOLDER_PLAN)
        remove_plan(old);
    return s;
}

static enum status each_of_plan(const void *what, plan_take *take, void *context, struct error *error)
{
    return plan_each_file(what, take, context, error);
}

enum status plan_write(const struct plan *p, const char *dir, bool force, struct error *error)
{
    return plan_write_folder(each_of_plan, p, dir, force, error);
}
