/* The plugin's table: messages by MPI's point-to-point calls.  Compiled only where an MPI library is.
 *
 * Each lane is a communicator of its own, so that messages of llmrun meet nobody else's.  Errors are returned and not
 * fatal: llmrun says which rank and which message it was. */

#include "runtime/mpi_plugin.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(struct mpi_request), "a request must hold MPI's");

struct mpi_context {
    MPI_Comm lane[NLANES];
    char words[MPI_MAX_ERROR_STRING];
};

static void keep(struct mpi_request *out, MPI_Request request)
{
    memcpy(out, &request, sizeof request);
}

static MPI_Request kept(const struct mpi_request *request)
{
    MPI_Request r;
    memcpy(&r, request, sizeof r);
    return r;
}

static enum mpi_state started(struct mpi_context *c, int error)
{
    int n = 0;
    if (error == MPI_SUCCESS)
        return MESSAGE_OPEN;
    if (MPI_Error_string(error, c->words, &n) != MPI_SUCCESS)
        snprintf(c->words, sizeof c->words, "MPI's error %d", error);
    return MESSAGE_FAILED;
}

static const char *open_lanes(struct mpi_context *c, struct mpi_place *place)
{
    int rank = 0, nranks = 0, local = 1, given = 0, *tags = NULL;
    MPI_Comm host;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < NLANES; i++) {
        if (MPI_Comm_dup(MPI_COMM_WORLD, &c->lane[i]) != MPI_SUCCESS)
            return "MPI_Comm_dup() fails";
        MPI_Comm_set_errhandler(c->lane[i], MPI_ERRORS_RETURN);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    MPI_Comm_get_attr(c->lane[LANE_DATA], MPI_TAG_UB, (void *)&tags, &given);
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host) == MPI_SUCCESS) {
        MPI_Comm_size(host, &local);
        MPI_Comm_free(&host);
    }
    int most = given && tags ? *tags : 32767; /* what every library has */
    *place = (struct mpi_place){(uint32_t)rank, (uint32_t)nranks, (uint32_t)local, (uint32_t)most};
    return NULL;
}

static const char *plugin_open(struct mpi_context **out, struct mpi_place *place)
{
    struct mpi_context *c = calloc(1, sizeof *c);
    int provided = MPI_THREAD_SINGLE;
    if (!c)
        return "out of memory";
    const char *why = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS
                          ? "MPI_Init_thread() fails"
                      : provided < MPI_THREAD_FUNNELED ? "the library is for programs without threads"
                                                       : open_lanes(c, place);
    if (why)
        free(c);
    else
        *out = c;
    return why;
}

static enum mpi_state plugin_send(struct mpi_context *c, enum mpi_lane lane, uint32_t to, uint32_t tag,
                                  const void *data, size_t bytes, struct mpi_request *out)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = bytes > INT_MAX ? MPI_ERR_COUNT
                                : MPI_Isend(data, (int)bytes, MPI_BYTE, (int)to, (int)tag, c->lane[lane], &request);
    keep(out, request);
    return started(c, error);
}

static enum mpi_state plugin_receive(struct mpi_context *c, enum mpi_lane lane, uint32_t from, uint32_t tag, void *data,
                                     size_t bytes, struct mpi_request *out)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = bytes > INT_MAX ? MPI_ERR_COUNT
                                : MPI_Irecv(data, (int)bytes, MPI_BYTE, (int)from, (int)tag, c->lane[lane], &request);
    keep(out, request);
    return started(c, error);
}

static enum mpi_state plugin_test(struct mpi_context *c, struct mpi_request *request, size_t *bytes)
{
    MPI_Request r = kept(request);
    MPI_Status status;
    int done = 0, count = 0, error = MPI_Test(&r, &done, &status);
    keep(request, r);
    if (error == MPI_SUCCESS && done)
        error = MPI_Get_count(&status, MPI_BYTE, &count);
    *bytes = count > 0 ? (size_t)count : 0;
    enum mpi_state state = started(c, error);
    return state == MESSAGE_OPEN && done ? MESSAGE_DONE : state;
}

static const char *plugin_words(const struct mpi_context *c)
{
    return c->words;
}

static void plugin_describe(const struct mpi_context *c, char *out, size_t size)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    (void)c;
    if (MPI_Get_library_version(version, &n) != MPI_SUCCESS)
        n = 0;
    version[n] = 0;
    snprintf(out, size, "%.*s", (int)strcspn(version, ",\n"), version);
}

static void plugin_abort(struct mpi_context *c, int code)
{
    (void)c;
    MPI_Abort(MPI_COMM_WORLD, code);
}

static void plugin_close(struct mpi_context *c)
{
    for (int i = 0; i < NLANES; i++)
        MPI_Comm_free(&c->lane[i]);
    MPI_Finalize();
    free(c);
}

extern const struct mpi_plugin llmrun_mpi;
__attribute__((visibility("default"))) const struct mpi_plugin llmrun_mpi = {.shape = MPI_PLUGIN_SHAPE,
                                                                             .open = plugin_open,
                                                                             .send = plugin_send,
                                                                             .receive = plugin_receive,
                                                                             .test = plugin_test,
                                                                             .words = plugin_words,
                                                                             .describe = plugin_describe,
                                                                             .abort = plugin_abort,
                                                                             .close = plugin_close};
