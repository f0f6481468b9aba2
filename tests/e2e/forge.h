#ifndef LLMC_TESTS_FORGE_H
#define LLMC_TESTS_FORGE_H

/* Forging plan folders: files are changed at will, and MANIFEST is made to agree. */

#include "compiler/emit/plan.h"

enum { FORGE_FILES = 200 };
struct forge {
    struct arena *arena;
    uint32_t nfiles;
    struct plan_file files[FORGE_FILES]; /* without MANIFEST */
};

/* `llmc plan` in process: of a model's text, which is put beside the folder, with overrides */
void forge_plan(struct arena *a, const char *dir, const char *model, const char *cluster, const char *const *sets,
                uint32_t nsets);
void forge_text(const char *path, const char *text);
/* the files that a folder's MANIFEST lists, as they are on the disk */
void forge_read(struct arena *a, const char *dir, struct forge *f);
struct plan_file *forge_file(struct forge *f, const char *name);
void forge_put(struct forge *f, const char *name, const void *bytes, size_t size);
/* the first `from` in a text file becomes `to`; false if it is not there */
bool forge_edit(struct forge *f, const char *name, const char *from, const char *to);
/* a new folder (what was there is removed) with these files and right hashes */
void forge_write(const struct forge *f, const char *dir);
/* a program of the folder after `change`, placed and encoded again */
void forge_program(struct forge *f, const char *name, void (*change)(struct program *p));

/* What llmc says of a folder: 0 it is what its inputs give, 1 `check` refuses it for its origin, 3 it cannot
 * be read; in text the first sentence. */
int forge_judge(struct arena *a, const char *dir, const char **text);
/* the same with a folder of these files in `dir` */
int forge_try(const struct forge *f, const char *dir, const char **text);

#endif
