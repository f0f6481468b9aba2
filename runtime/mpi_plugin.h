#ifndef LLMC_MPI_PLUGIN_H
#define LLMC_MPI_PLUGIN_H

/* What build/llmrun-mpi.so provides to llmrun: messages between ranks by the MPI library that it was built with, as one
 * table under the symbol `llmrun_mpi`.  Tests have a table of the same shape that works within one process.
 *
 * Messages from one rank to another with one lane and tag arrive in the order in which they were sent.  Nothing but
 * open() and close(), which all ranks call, waits for anybody.  One thread calls all of it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MPI_PLUGIN_SHAPE = 1 }; /* one more whenever something here changes */
enum mpi_lane { LANE_DATA, LANE_CONTROL, NLANES };
enum mpi_state { MESSAGE_OPEN, MESSAGE_DONE, MESSAGE_FAILED };

struct mpi_context;
struct mpi_request { /* a message on its way; what is in it is the plugin's */
    uint64_t word;
};
struct mpi_place {
    uint32_t rank, nranks, local, tags; /* local: ranks on this host; tags: a message's tag is less */
};
struct mpi_plugin {
    uint32_t shape; /* MPI_PLUGIN_SHAPE when it was built */
    /* NULL, or why ranks cannot be reached */
    const char *(*open)(struct mpi_context **out, struct mpi_place *place);
    /* The memory is the message's until it is done.  At most INT_MAX bytes. */
    enum mpi_state (*send)(struct mpi_context *c, enum mpi_lane lane, uint32_t to, uint32_t tag, const void *data,
                           size_t bytes, struct mpi_request *out);
    enum mpi_state (*receive)(struct mpi_context *c, enum mpi_lane lane, uint32_t from, uint32_t tag, void *data,
                              size_t bytes, struct mpi_request *out);
    /* bytes: how many came, of a message that was received */
    enum mpi_state (*test)(struct mpi_context *c, struct mpi_request *request, size_t *bytes);
    /* what went wrong, after FAILED */
    const char *(*words)(const struct mpi_context *c);
    /* the library's name and version, in a few words */
    void (*describe)(const struct mpi_context *c, char *out, size_t size);
    /* ends the processes of all ranks, this one with the exit code */
    void (*abort)(struct mpi_context *c, int code);
    void (*close)(struct mpi_context *c);
};

#endif
