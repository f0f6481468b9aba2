/* See forge.h.  Folders are written by code of the tests' own, so that plan_write() cannot repair what was forged. */

#include "tests/e2e/forge.h"

#include "compiler/model/sema.h"
#include "compiler/origin/origin.h"
#include "compiler/support/strbuf.h"
#include "runtime/hash.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct plan_file read_file(struct arena *a, const char *dir, const char *name)
{
    struct source *s = source_read(a, diag_new(a), arena_printf(a, "%s/%s", dir, name), (size_t)64 << 20);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    return (struct plan_file){name, s->text, s->size};
}

void forge_read(struct arena *a, const char *dir, struct forge *f)
{
    *f = (struct forge){.arena = a};
    struct plan_file manifest = read_file(a, dir, "MANIFEST");
    for (const char *at = manifest.bytes; *at; at = strchr(at, '\n') + 1) {
        CU_ASSERT_FATAL(f->nfiles < FORGE_FILES && strlen(at) > 66);
        f->files[f->nfiles++] = read_file(a, dir, arena_strndup(a, at + 66, strcspn(at + 66, "\n")));
    }
}

struct plan_file *forge_file(struct forge *f, const char *name)
{
    for (uint32_t i = 0; i < f->nfiles; i++)
        if (!strcmp(f->files[i].name, name))
            return &f->files[i];
    return NULL;
}

void forge_put(struct forge *f, const char *name, const void *bytes, size_t size)
{
    struct plan_file *old = forge_file(f, name);
    CU_ASSERT_FATAL(old || f->nfiles < FORGE_FILES);
    char *copy = arena_alloc(f->arena, size + 1);
    memcpy(copy, bytes, size);
    *(old ? old : &f->files[f->nfiles++]) = (struct plan_file){arena_strdup(f->arena, name), copy, size};
}

bool forge_edit(struct forge *f, const char *name, const char *from, const char *to)
{
    struct plan_file *x = forge_file(f, name);
    const char *text = x ? x->bytes : NULL, *at = text ? strstr(text, from) : NULL;
    if (!at)
        return false;
    char *new = arena_printf(f->arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    forge_put(f, name, new, strlen(new));
    return true;
}

void forge_program(struct forge *f, const char *name, void (*change)(struct program *p))
{
    struct plan_file *x = forge_file(f, name);
    struct program *p;
    struct error error = {""};
    uint8_t *bytes;
    size_t size;
    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    CU_ASSERT_EQUAL_FATAL(program_decode(x->bytes, x->size, &p, &error), STATUS_OK);
    change(p);
    CU_ASSERT_EQUAL_FATAL(program_encode(p, &bytes, &size), STATUS_OK);
    forge_put(f, name, bytes, size);
    free(bytes);
    program_free(p);
}

static void put_file(const char *dir, const char *name, const void *bytes, size_t size)
{
    char path[2 * E2E_PATH];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    CU_ASSERT_EQUAL(fwrite(bytes, 1, size, f), size);
    CU_ASSERT_EQUAL(fclose(f), 0);
}

void forge_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(text, f);
    CU_ASSERT_EQUAL(fclose(f), 0);
}

void forge_plan(struct arena *a, const char *dir, const char *model, const char *cluster, const char *const *sets,
                uint32_t nsets)
{
    struct diag *d = diag_new(a);
    const char *path = arena_printf(a, "%s.llm", dir);
    struct error error = {""};
    struct plan *p = NULL;
    forge_text(path, model);
    struct job *job = job_read(a, d, path, sets, nsets);
    struct topo *topo = topo_read(a, d, cluster);
    CU_ASSERT_FATAL(job && topo);
    enum status s = compile_best(a, d, job, topo, &(struct compile_options){0}, &p, NULL);
    diag_print(d, stdout, false);
    CU_ASSERT_EQUAL_FATAL(s, STATUS_OK);
    p->nsets = nsets;
    p->sets = sets;
    CU_ASSERT_EQUAL_FATAL(plan_write(p, dir, true, &error), STATUS_OK);
    plan_close(p);
}

/* what is in a folder, if there is one */
static void empty_folder(const char *dir)
{
    char path[3 * E2E_PATH];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (*e->d_name != '.')
            unlink(path);
    }
    if (d)
        closedir(d);
}

void forge_write(const struct forge *f, const char *dir)
{
    char programs[2 * E2E_PATH], hex[65];
    struct strbuf manifest = {0};
    snprintf(programs, sizeof programs, "%s/programs", dir);
    empty_folder(programs);
    empty_folder(dir);
    mkdir(dir, 0777);
    mkdir(programs, 0777);
    for (uint32_t i = 0; i < f->nfiles; i++) {
        hash_sha256(f->files[i].bytes, f->files[i].size, hex);
        strbuf_printf(&manifest, "%s  %s\n", hex, f->files[i].name);
        put_file(dir, f->files[i].name, f->files[i].bytes, f->files[i].size);
    }
    put_file(dir, "MANIFEST", manifest.text, manifest.length);
    strbuf_free(&manifest);
}

int forge_judge(struct arena *a, const char *dir, const char **text)
{
    struct plan *p;
    struct error error = {""};
    int silent = open("/dev/null", O_WRONLY), said = dup(2); /* diagnostics */
    dup2(silent, 2);
    int code = plan_read(a, dir, &p, &error) == STATUS_OK ? 0 : 3;
    dup2(said, 2);
    close(silent);
    close(said);
    *text = arena_strdup(a, error.text);
    if (!code) {
        const struct origin *o = origin_check(a, p);
        code = o->ndifferences ? 1 : 0;
        *text = code ? o->differences[0].message : "";
    }
    plan_close(p);
    return code;
}

int forge_try(const struct forge *f, const char *dir, const char **text)
{
    forge_write(f, dir);
    return forge_judge(f->arena, dir, text);
}
