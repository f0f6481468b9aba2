#ifndef LLMC_EXPORT_H
#define LLMC_EXPORT_H

/* A plan in the words of another training stack, in one of the forms that forms.def declares.  What that stack cannot
 * be told is named, never dropped. */

#include "compiler/emit/plan.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <stdio.h>

/* of forms that share a writer: by whose names it says things */
enum export_dialect { EXPORT_MEGATRON, EXPORT_BRIDGE };

struct export
{
    struct arena *arena;
    const struct job *job;
    const struct plan *plan; /* NULL: before there is one */
    enum export_dialect dialect;
    struct strbuf text;        /* what is written */
    VEC(const char *) refused; /* sentences, each of something that cannot be said */
};

/* Fills in text and refused for a form; false where none is called so. */
bool export_plan(struct export *x, const struct plan *p, const char *form);
/* the forms' names, with commas */
const char *export_forms(struct arena *a);
/* for people: each with its meaning */
void export_help(FILE *out);
void export_free(struct export *x);

/* Launch files of a plan for a target that has them.  export_try_job() fills in what is refused of a job before there
 * is a plan, export_launch() gives a plan its files. */
void export_try_job(struct export *x, const struct job *job);
void export_launch(struct export *x, struct plan *p);

/* ---- for forms ---- */

/* adds a sentence to what is refused, once */
void export_refuse(struct export *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* refuses what the plan needs and a stack has not: by its target file, or by a text of such lines (target.h) */
void export_refuse_lacking(struct export *x, const char *name, const char *text);
/* GPUs that each node of the plan has; 0, and refused, where they are not alike */
uint32_t export_gpus_per_node(struct export *x);
/* ranks that FSDP splits state over: those of ZeRO 2 and 3, or cp alone, whose ranks it never copies state to */
uint32_t export_fsdp_shard(const struct decision *d);
/* "the cluster", where it has no name */
const char *export_cluster(const struct export *x);
/* a number as short as it reads back equal */
const char *export_real(struct export *x, double value);

#define FORM(name, writer, job, meaning) void export_##writer(struct export *x);
#include "compiler/export/forms.def"
/* the parts of these that say the model and how it is trained, of x->job */
void export_megatron_job(struct export *x);
void export_torchtitan_job(struct export *x);
/* torchtitan's script for one node, and its schedule where that is read from a file that no plan has else */
void export_torchtitan_launch(struct export *x);
void export_torchtitan_csv(struct export *x);

#endif
