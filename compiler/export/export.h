#ifndef LLMC_EXPORT_H
#define LLMC_EXPORT_H

/* A plan in the words of another training stack.  What that stack cannot be told is named, never dropped. */

#include "compiler/emit/plan.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <stdio.h>

struct export
{
    struct arena *arena;
    const struct plan *plan;
    struct strbuf text;        /* what is written */
    VEC(const char *) refused; /* sentences, each of something that cannot be said */
};

/* adds a sentence to what is refused */
void export_refuse(struct export *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Fills in text and refused for a target; false where none is called so. */
bool export_plan(struct export *x, const char *target);
/* their names, with commas */
const char *export_targets(struct arena *a);
void export_free(struct export *x);

/* Launch files of a plan for a target that has them: launch.sh for its nodes and hosts, the nodes in order.
 * export_try_job() fills in what is refused of a job before there is a plan, export_launch() gives a plan its files. */
void export_try_job(struct export *x, const struct job *job);
void export_launch(struct export *x, struct plan *p);

/* targets */

/* a shell script that starts Megatron-LM's pretrain_gpt.py on one node by torchrun (megatron.c) */
void export_megatron(struct export *x);
/* the part of it that says the model and how it is trained; x->plan has a job alone */
void export_megatron_job(struct export *x);
/* the pipeline's actions, a row per pipeline rank, for torch.distributed.pipelining (torch.c) */
void export_torch_csv(struct export *x);

#endif
