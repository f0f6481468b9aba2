#ifndef LLMC_PLAN_H
#define LLMC_PLAN_H

/* A plan in memory and as a folder: plan.json, model.llm, cluster.xml, programs/, ranks.bin, MANIFEST.
 * Written to a temporary folder beside the target and renamed into place. */

#include "compiler/cost/run.h"
#include "compiler/model/decision.h"
#include "compiler/simulate/simulate.h"
#include "compiler/topology/mesh.h"

/* Version of llmc and of the plans that it writes; `llmc check` derives only plans of its own version again. */
#define LLMC_VERSION "0.1.0"

/* a file of the folder: its name and contents */
struct plan_file {
    const char *name;
    const void *bytes;
    size_t size;
};

/* limits and results of the search that chose the plan */
enum { PLAN_MOST_TOP = 65536 };
struct plan_search {
    uint32_t top; /* most candidates that it kept, up to PLAN_MOST_TOP */
    uint64_t budget, space, evaluated, pruned, spent;
    double gap, seconds; /* seconds: printed on stdout only */
    /* the best decision that was met and cannot be emitted, by the estimate, and what of it cannot; NULL: none; not
     * stored in the folder */
    const char *refused, *cannot;
    double refused_s;
};

struct plan {
    struct job *job;
    struct topo *topo;
    uint32_t nsets; /* --set KEY=VALUE overrides as given: part of the input */
    const char *const *sets;
    struct decision decision;
    struct mesh mesh;
    uint32_t nroles;        /* = pp: one role per pipeline rank */
    struct program **train; /* by role */
    struct program **eval;
    struct ranks *ranks;
    struct timeline *timeline;
    struct plan_search search;
    /* If the plan was read from a folder: its files, and the version of the compiler named in it ("" if none).
     * Otherwise none and NULL. */
    uint32_t nfiles;
    const struct plan_file *files;
    const char *version;
    /* what starts it with its target's own launcher, where that is not llmrun (export.h); else none */
    uint32_t nlaunch;
    const struct plan_file *launch;
};

/* makes the contents of ranks.bin from the mesh: roles, places, groups, and slot values as the programs declare them */
struct ranks *plan_ranks(const struct plan *p);

/* The figures of "predicted" in plan.json and of an estimate.  mfu is 0 if the peak of the compute dtype is not
 * known. */
struct predicted {
    double step_time_s, tokens_per_s_per_gpu, model_flops_per_gpu_s, mfu, bubble_fraction, exposed_comm_fraction;
    uint64_t peak_memory_bytes; /* of the largest arena; of a plan for another stack than llmrun, what that takes */
    uint32_t peak_memory_rank;  /* the first rank with it */
};
/* the figures that follow from the time of a step; the others are 0 */
struct predicted predicted_new(const struct job *job, const struct topo *topo, const struct decision *d, double step_s);
/* prints the JSON object "predicted", without a comma after it */
struct strbuf;
void predicted_json(const struct predicted *f, struct strbuf *out);
/* the name of the stack that the plan is for: every view and every JSON says it */
const char *job_target(const struct job *job);
/* prints plan.json's members "model" and "cluster", with a comma after them */
void job_json(const struct job *job, const struct topo *topo, uint32_t gpus_used, struct strbuf *out);
/* the pipeline rank with the largest arena, host memory not counted; the first of several */
uint32_t plan_fullest(const struct plan *p);
/* the figures of a plan; requires its timeline */
struct predicted plan_predicted(const struct plan *p);
/* Prints plan.json's member "waiting", without a comma after it: of every role, as shares of the step, how long its
 * compute queue waits for what is not ready, how long for transfers that run, and for which other roles most of all, at
 * most PLAN_WAITED_FOR of them.  It is what `llmrun --watch` compares ranks with.  Requires the timeline. */
enum { PLAN_WAITED_FOR = 4 };
void plan_waiting_json(const struct plan *p, struct strbuf *out);
/* of its step as simulated; requires its timeline */
struct whole_run plan_run(const struct plan *p);

/* prints plan.json; with_seconds: with the search's seconds, for stdout only */
void plan_json(const struct plan *p, bool with_seconds, struct strbuf *out);
/* prints its beginning, without the closing brace: what follows from the inputs and the decision alone */
void plan_json_head(const struct plan *p, struct strbuf *out);

/* Reports where two JSON values differ: the key ("decision.nodes[0][1]"), the value found and the value wanted; NULL
 * for a value that is missing. */
typedef void plan_json_report(void *context, const char *key, const char *is, const char *wanted);
struct json_t;
void plan_json_compare(const struct json_t *is, const struct json_t *wanted, const char *key, plan_json_report *report,
                       void *context);

/* Passes every file of a plan's folder to `take`, in the order in which they are written, MANIFEST last; a file's
 * bytes live until `take` returns. */
typedef enum status plan_take(void *context, const struct plan_file *f, struct error *error);
enum status plan_each_file(const struct plan *p, plan_take *take, void *context, struct error *error);
#define PLAN_LAUNCH "launch.sh"
#define PLAN_HOSTS "hosts"
#define PLAN_TITAN "titanplan.py"    /* a module's name, which launch.sh of torchtitan imports */
#define PLAN_SCHEDULE "schedule.csv" /* of decisions that come with their schedule: auto and file */
/* Name of the file in the folder that holds the i-th wished schedule, which must be that of a file: PLAN_SCHEDULE if
 * it is the only wish, otherwise a copy of its own. */
char *plan_wished_file(struct arena *a, const struct plan *p, uint32_t i);

/* the same of a folder of one text file, programs, and ranks.bin */
enum status plan_emit_files(const struct plan_file *text, struct program *const *programs, uint32_t nprograms,
                            const struct ranks *ranks, plan_take *take, void *context, struct error *error);
/* whoever passes the files of `what` to take */
typedef enum status plan_each(const void *what, plan_take *take, void *context, struct error *error);

/* Writes the files into a folder, as plan_write() does. */
enum status plan_write_folder(plan_each *each, const void *what, const char *dir, bool force, struct error *error);
/* Writes the plan into a folder, which is made or replaces a plan that was there; with force, anything that is there
 * is moved aside. */
enum status plan_write(const struct plan *p, const char *dir, bool force, struct error *error);
/* Can a plan be written there, as far as one can tell before there is a plan? */
enum status plan_may_write(const char *dir, bool force, struct error *error);
/* Reads the files that a folder's MANIFEST names, MANIFEST last, into the arena; a changed one is STATUS_INPUT. */
enum status plan_read_folder(struct arena *a, const char *dir, const struct plan_file **files, uint32_t *n,
                             struct error *error);
/* Reads a plan from its files alone: hashes are checked first (a changed folder is STATUS_INPUT and names the file),
 * then everything is parsed and checked for structure; what plan.json says of inputs and decision must agree with
 * them.  Its figures are not read: the timeline is simulated again, and what the search found needs another search
 * (plan_read.c). */
enum status plan_read(struct arena *a, const char *dir, struct plan **p, struct error *error);
/* releases programs and ranks, which are malloc'ed; the rest lives in the arena */
void plan_close(struct plan *p);

#endif
