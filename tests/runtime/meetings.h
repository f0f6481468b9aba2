#ifndef LLMC_TESTS_MEETINGS_H
#define LLMC_TESTS_MEETINGS_H

/* Meetings of three ranks, all played by this process, over either transport: what comes of every operation, dtype and
 * stride, in place and not. */

#include "runtime/mpi_ranks.h"
#include "runtime/transport.h"

enum { MEMBERS = 3, ARENA = 1 << 26 };

struct meetings {
    struct world world[MEMBERS]; /* one region, seen as each rank, or one of each */
    struct transport *end[MEMBERS];
    struct mpi_ranks *mpi[MEMBERS];
};

/* channel 0: all members; channel 1: a pair, of rank 0 and rank 1.  mpi: by messages; NULL: in shared memory */
void open_meetings(struct meetings *t, const struct mpi_plugin *mpi);
void close_meetings(struct meetings *t);
/* the first n members post, then poll until all are done */
void meet(struct meetings *t, struct meeting *m, uint32_t n);
/* every operation as a meeting of channel 0, from its first one on */
void check_forms(struct meetings *t);

/* element [i, j], as far as fp64 holds it */
double get(const struct view *v, uint32_t i, uint32_t j);
void put(const struct view *v, uint32_t i, uint32_t j, double x);

#endif
