#ifndef LLMC_RUN_H
#define LLMC_RUN_H

/* A run: a plan, data and options, from loading to the last step.  Everything that ranks share read-only is
 * loaded before they start; then each rank's process goes through run_rank(). */

#include "runtime/cuda_plugin.h"
#include "runtime/data.h"
#include "runtime/folder.h"
#include "runtime/generate.h"
#include "runtime/log.h"
#include "runtime/planned_times.h"
#include "runtime/player.h"
#include "runtime/settings.h"
#include "runtime/routing.h"
#include "runtime/safetensors.h"
#include "runtime/saver.h"
#include "runtime/work.h"

struct launch;

struct run {
    struct settings o;
    char spare[4352]; /* the folder that was taken in place of o.dir, if one was: spare.h */
    const struct player *player;
    struct folder *folder;
    const struct program *const *programs[NROUTINES]; /* by role */
    struct channels channels;
    struct batch_source *data, *held_out;
    struct prompt prompt;              /* --generate */
    bool evaluates;                    /* evaluation programs are run */
    struct safetensors *init[NSTATES]; /* what --init or --resume found; NULL: there is nothing */
    struct checkpoint resumed;         /* --resume: where the job is; its step is 0 at the beginning */
    struct checkpoint job;             /* --checkpoint: what checkpoints say of the job, the same at every step */
    FILE *lock;                  /* --checkpoint: of its folder; of the process that starts the ranks, or rank 0 */
    struct saver_catalogs saved; /* --checkpoint */
    uint64_t replicas;           /* first word of world.coverage that the comparison of replicas uses */
    struct weight_plan *catalog;
    uint32_t ncatalog;
    uint64_t *arena_sizes; /* by rank: the larger one of its programs' arenas */
    struct world world;
    int64_t began_ns; /* of this attempt, world_now_ns() */
    uint64_t steps;
    /* of one that another plan takes over (chain.h): after how many steps, 0 = it runs to its end; where it says where
     * the job is, else NULL.  moved: it takes over, and all state is in its arenas already */
    uint64_t until;
    struct checkpoint *handed;
    bool moved;
    struct planned_times pace; /* --paced */
    struct work work;          /* kinds of equal work, which are timed on CPU ranks */
    struct routing routing;
    /* --device cuda */
    const struct cuda_plugin *plugin;
    struct nccl_functions nccl; /* --transport nccl */
    struct mpi_ranks *mpi;      /* --transport mpi */
    struct gang *gang;          /* of this process's ranks; with d2d these are threads with copies of this structure */
};

/* --device cuda: finds the plugin and NCCL; --transport mpi: finds its plugin and starts MPI, so that all ranks must
 * call it; requires only the run's settings */
enum status run_open_device(struct run *r, struct error *error);
/* then loads and checks everything that needs no peers */
enum status run_open(struct run *r, struct error *error);
void run_close(struct run *r);
/* the number of steps that the learning rate goes by: the job's, or else this run's */
uint64_t run_lr_steps(const struct run *r);
/* sizes of the shared region */
struct world_sizes run_sizes(const struct run *r);
/* index of a rank's first span in the trace region */
size_t run_first_span(const struct run *r, uint32_t rank);
/* runs one rank from the initialisation of its arena to the end; failures are recorded in the world */
enum status run_rank(struct run *r, uint32_t rank);
/* Runs one rank of a run over several machines, or of several processes that share nothing, with NCCL: it has a
 * region of its own and meets the others over the network with rank 0 at host:port.  LLMRUN_SECRET in the
 * environment is the run's secret. */
enum status run_remote(struct run *r, const struct launch *l, const char *host, uint16_t port, struct error *error);
/* Runs one rank of a run by MPI, after run_open(), of which `opened` is the result.  A failure after the first meeting
 * ends the processes of all ranks. */
enum status run_mpi(struct run *r, enum status opened, struct error *error);
/* describes what a rank is doing, from what it publishes, for the report of its death */
void run_describe(const struct run *r, uint32_t rank, char *out, size_t size);

#endif
