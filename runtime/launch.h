#ifndef LLMC_LAUNCH_H
#define LLMC_LAUNCH_H

/* Starting ranks: fork them here, or find out which one this process was started as. */

#include "runtime/world.h"

struct launch {
    bool given;            /* started from outside as one rank of many */
    bool apart;            /* on several hosts, as far as the launcher says */
    uint32_t rank, nranks; /* if given */
    char name[64];         /* of the shared-memory object they meet in */
};

/* reads RANK and WORLD_SIZE (torchrun), or Open MPI's, PMI's or Slurm's variables; key distinguishes jobs */
enum status launch_detect(struct launch *l, const char *key, struct error *error);

/* Runs body(context, rank) in a process per rank and waits for all.  If one dies, the others are notified, given a
 * moment, and killed; no process outlives the call.  describe() says what a dead rank was doing. */
enum status launch_local(struct world *w, enum status (*body)(void *context, uint32_t rank),
                         void (*describe)(void *context, uint32_t rank, char *out, size_t size), void *context);

/* Runs ranks as threads of this process, which share one device: body() makes its own copy of the world, with its
 * rank.  A failure is recorded in the world, which all ranks watch; none is killed. */
enum status launch_threads(struct world *w, enum status (*body)(void *context, uint32_t rank), void *context);

#endif
