#ifndef LLMC_MPI_RANKS_H
#define LLMC_MPI_RANKS_H

/* Ranks that are processes of one MPI job, on any hosts: opening the plugin, and all that they say to each other but
 * operands, which are transport_mpi.c's.  Barriers and small sums go through rank 0.  While ranks step, each tells rank
 * 0 now and then how far it is, and rank 0 tells all how far they are together, so that the watchdog knows a slow run
 * from one that stands still, and rank 0 knows who waits for whom. */

#include "runtime/error.h"
#include "runtime/mpi_plugin.h"
#include "runtime/world.h"

struct mpi_pulses;
struct notice;
struct mpi_ranks {
    const struct mpi_plugin *plugin;
    struct mpi_context *context;
    struct mpi_place place;
    struct world_remote remote; /* for the world */
    struct mpi_pulses *pulses;
    struct notice *notices;    /* by rank, for mpi_ranks_abort() */
    double patience_s;         /* for ranks that do not come to a meeting */
    double step_patience_s;    /* the same while ranks step */
    const struct world *world; /* once there is one */
    char (*hosts)[WORLD_HOST]; /* by rank, at rank 0 once all have met */
    int32_t parent;            /* the process that started this one */
};

/* llmrun-mpi.so beside the program, or the file that LLMRUN_MPI names, which must be of this version; it stays open
 * until the process ends.  STATUS_WORLD and one sentence that says what is missing. */
enum status mpi_load(const struct mpi_plugin **out, struct error *error);

/* Returns when MPI has started on all ranks. */
enum status mpi_ranks_open(struct mpi_ranks **out, const struct mpi_plugin *plugin, struct error *error);
/* what a rank would begin with */
struct mpi_start {
    enum status status;    /* of its loading; unless STATUS_OK nothing else is known but a sentence */
    const char *plan_hash; /* 64 hexadecimal digits */
    uint32_t plan_ranks;
    uint64_t step;  /* steps that were taken before */
    uint64_t build; /* build_id(): only equal builds of llmrun make a run */
};
/* The first meeting, in which all ranks find out whether it is a run: then they return STATUS_OK, and otherwise alike.
 * They compare LLMRUN_SECRET, too.  In `error` is a sentence if this rank's loading has failed; afterwards rank 0 has
 * one, which names the rank, and the others have none. */
enum status mpi_ranks_join(struct mpi_ranks *m, const struct mpi_start *start, struct error *error);
/* At rank 0: of which ranks nothing is heard any more, on which hosts, and what that means, in words; false: of none.
 */
bool mpi_ranks_silent(const struct mpi_ranks *m, char *out, size_t size);
/* After a failure: says it, unless a lower rank that fails within half a second does, and ends the processes of all. */
void mpi_ranks_abort(struct mpi_ranks *m, enum status st, const char *words);
/* the end of a run that has not failed; all ranks call it; NULL is fine */
void mpi_ranks_close(struct mpi_ranks *m);

#endif
