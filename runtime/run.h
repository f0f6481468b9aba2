#ifndef LLMC_RUN_H
#define LLMC_RUN_H

/* A run: a plan, data and options, from loading to the last step.  Everything that ranks share read-only is
 * loaded before they start; then each rank's process goes through run_rank(). */

#include "runtime/cuda/gang.h"
#include "runtime/data.h"
#include "runtime/exec.h"
#include "runtime/folder.h"
#include "runtime/log.h"
#include "runtime/pace.h"
#include "runtime/settings.h"
#include "runtime/routing.h"
#include "runtime/safetensors.h"

struct run {
    struct settings o;
    struct folder *folder;
    const struct program *const *programs[NROUTINES]; /* by role */
    struct channels channels;
    struct batch_source *data, *held_out;
    struct safetensors *init;
    struct weight_plan *catalog;
    uint32_t ncatalog;
    uint64_t *arena_sizes; /* by rank: of its programs the larger */
    struct world world;
    bool peers_by_pid;
    uint64_t steps;
    struct pace pace; /* --paced */
    struct routing routing;
    /* on GPUs */
    const struct cuda_plugin *plugin;
    const struct nccl_functions *nccl; /* NULL: d2d */
    struct nccl_functions nccl_table;
    struct gang *gang; /* d2d: of all ranks, which are threads with copies of this structure */
};

/* loads and checks everything that needs no peers */
enum status run_open(struct run *r, const struct settings *o, char *error, size_t error_size);
void run_close(struct run *r);
/* --device cuda: finds the plugin and NCCL */
enum status run_open_device(struct run *r, char *error, size_t error_size);
/* are ranks threads of one process, each with a copy of the run? */
bool run_is_threaded(const struct run *r);
/* the device of a rank's process, or before threads start that of all; once the world is open */
enum status run_join_device(struct run *r, uint32_t rank);
/* sizes of the shared region */
struct world_sizes run_sizes(const struct run *r);
/* a rank's first span in the trace region */
size_t run_first_span(const struct run *r, uint32_t rank);
/* one rank, from its arena's first byte to the end; failures are recorded in the world */
enum status run_rank(struct run *r, uint32_t rank);
/* what a rank is doing, from its public face, for the report of its death */
void run_describe(const struct run *r, uint32_t rank, char *out, size_t size);

#endif
