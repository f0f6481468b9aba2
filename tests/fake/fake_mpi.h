#ifndef LLMC_TESTS_FAKE_MPI_H
#define LLMC_TESTS_FAKE_MPI_H

/* An MPI whose ranks are contexts of this process, in one thread or in several, which knows the rules and keeps the first
 * breach in words: no memory in two messages at once unless both send, tags below the limit, every message tested until it
 * is done.  Data moves as late as MPI allows, after some tests of either side, so that memory that is touched too early
 * shows. */

#include "runtime/mpi_plugin.h"

struct fake_mpi_setup {
    uint32_t nranks, tags;
    uint64_t seed;      /* of delays; 0 = none */
    uint64_t lose_send; /* this message, counted from 1, is lost: its sender hears of it; 0 = none */
    const char *refuse; /* why open() fails; NULL: it does not */
};

/* open() gives the first caller rank 0, the next rank 1 and so on */
const struct mpi_plugin *fake_mpi_start(const struct fake_mpi_setup *s);
/* what was broken, or left behind at the end; "" = nothing */
void fake_mpi_complaints(char *out, size_t size);
/* the exit code that a rank aborted with; 0 = none has */
int fake_mpi_aborted(void);

#endif
