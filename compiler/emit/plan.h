#ifndef LLMC_PLAN_H
#define LLMC_PLAN_H

/* A plan in memory and as a folder: plan.json, model.llm, cluster.xml, programs/, ranks.bin, MANIFEST.
 * Written to a temporary folder beside the target and renamed into place. */

#include "compiler/model/decision.h"
#include "compiler/simulate/simulate.h"
#include "compiler/topology/mesh.h"

struct plan {
    struct job *job;
    struct topo *topo;
    uint32_t nsets; /* --set KEY=VALUE, as given: part of the input */
    const char *const *sets;
    struct decision decision;
    struct mesh mesh;
    uint32_t nroles;          /* = pp: one role per pipeline rank */
    struct program **train;   /* by role */
    struct program **eval;
    struct ranks *ranks;
    struct timeline *timeline;
    uint64_t search_space, search_evaluated, search_pruned, search_budget, search_spent;
    double search_gap, search_seconds; /* seconds: stdout only */
};

/* ranks.bin of a mesh: roles, places, groups, slot values by the declarations in the programs */
struct ranks *plan_ranks(const struct plan *p);

/* The figures of "predicted" in plan.json and of an estimate.  mfu is 0 where the peak of the compute dtype is not known. */
struct predicted {
    double step_time_s, tokens_per_s_per_gpu, model_flops_per_gpu_s, mfu, bubble_fraction, exposed_comm_fraction;
    uint64_t peak_memory_bytes; /* of the largest arena */
    uint32_t peak_memory_rank;  /* the first rank with it */
};
/* those that follow from the time of a step; the rest is 0 */
struct predicted predicted_new(const struct job *job, const struct topo *topo, const struct decision *d, double step_s);
/* the object of the contract, without what follows it */
struct strbuf;
void predicted_json(const struct predicted *f, struct strbuf *out);
/* its "model" and "cluster", with a comma behind them */
void job_json(const struct job *job, const struct topo *topo, uint32_t gpus_used, struct strbuf *out);
/* of a plan with a timeline */
struct predicted plan_predicted(const struct plan *p);

/* the object of the contract; with_seconds only for stdout */
void plan_json(const struct plan *p, bool with_seconds, struct strbuf *out);

/* Into a folder that is made, or replaces a plan that was there; with force anything that is there is moved aside. */
enum status plan_write(const struct plan *p, const char *dir, bool force, char *error, size_t error_size);
/* can it be written there, as far as one can tell before there is a plan? */
enum status plan_may_write(const char *dir, bool force, char *error, size_t error_size);
/* From the files alone: hashes first (a changed folder is STATUS_INPUT and names the file), then everything is parsed and
 * checked for structure.  The timeline is not part of the files; simulate again for it. */
enum status plan_read(struct arena *a, const char *dir, struct plan **p, char *error, size_t error_size);
/* release the programs and ranks (malloc'ed); the rest lives in the arena */
void plan_close(struct plan *p);

#endif
