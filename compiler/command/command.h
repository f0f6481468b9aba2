#ifndef LLMC_COMMAND_H
#define LLMC_COMMAND_H

/* The commands of llmc's command line: each has its options in support/cli.c and its function here. */

#include "compiler/emit/plan.h"
#include "compiler/support/cli.h"
#include "compiler/support/diag.h"

#include <stdio.h>

struct command {
    struct arena *arena;
    struct diag *diag;
    const struct options *options;
    bool colour;
    struct plan *plans[2]; /* the command's plans, or NULL; released at the end, however the command ended */
};

/* clang-format off */
#define COMMANDS(COMMAND) \
    COMMAND("plan", plan) COMMAND("estimate", estimate) COMMAND("explain", explain) COMMAND("check", check) \
    COMMAND("show", show) COMMAND("report", report) COMMAND("explore", explore) COMMAND("export", export) \
    COMMAND("trace", trace) COMMAND("diff", diff) COMMAND("transition", transition) \
    COMMAND("topo show", topo_show) COMMAND("topo import", topo_import) \
    COMMAND("import", import) COMMAND("tokens", tokens) COMMAND("fmt", fmt) COMMAND("isa", isa) COMMAND("dump", dump) \
    COMMAND("version", version) COMMAND("help", help)
/* clang-format on */

#define COMMAND(name, function) enum status command_##function(struct command *c);
COMMANDS(COMMAND)
#undef COMMAND

/* Diagnostics to stderr, or as JSON to stdout; the status they imply, which is `status` unless a file that the model
 * names is at fault. */
enum status command_diagnose(struct command *c, enum status status);
/* what went wrong without a place in an input: one line; with --json a diagnostic like the others */
enum status command_fail(struct command *c, enum status status, const char *message);
/* how a command is used, and what there is of what it takes; false after an error if there is none of that name
 * (text.c) */
bool command_usage(FILE *out, const char *command);
/* a text as a whole file, or none of it (text.c) */
enum status command_write(struct command *c, const char *path, const char *text);
/* the last two arguments: a model with the overrides of --set, and a cluster */
enum status command_read(struct command *c, struct job **job, struct topo **topo);
/* the plan folder that is an argument (0 or 1), simulated */
enum status command_open(struct command *c, uint32_t arg, struct plan **plan);

/* plan --spare-plans: plans for fewer nodes, written beside the plan, proved and described */
enum status command_spares(struct command *c, const struct plan *p);
/* gives the plan its launch files; STATUS_NO_PLAN after errors that name what its target cannot be told */
enum status command_launch(struct command *c, struct plan *p);
/* on stderr: how much faster a plan may be that the search did not reach, one that cannot be emitted, and one that the
 * target rules out */
void command_say_search(struct command *c, const struct job *job, const struct topo *topo, const struct plan *p);

#endif
