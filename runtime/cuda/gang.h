#ifndef LLMC_GANG_H
#define LLMC_GANG_H

/* Ranks on a CUDA device: the ranks of this process, which share one device, one issuing thread and one memory
 * allocation.  With NCCL that is one rank per process; with `d2d` all ranks of a plan are threads of one process and
 * run on one device.
 *
 * A queue of a rank is a stream; a wait is an event, recorded only where the plan has a wait.  Instructions are
 * issued in `seq` order, on which all ranks agree, so communications start in the same order everywhere.  Nothing
 * here ever blocks in the driver: whoever waits polls, watches for failed peers and for missing progress, and gives
 * up with a message. */

#include "runtime/cuda_plugin.h"
#include "runtime/player.h"

enum replay { REPLAY_EAGER, REPLAY_SEGMENTS, REPLAY_GRAPH };
struct gang;

/* How ranks exchange operands on streams: the asynchronous counterpart of transport.h */
struct meet;
struct meet_part { /* one rank's part in a meeting */
    struct meeting m;
    enum queue queue;
    cuda_stream stream;
    uint32_t rank;
    void *workspace; /* the stream's workspace, of at least workspace_bytes() */
    size_t workspace_bytes;
};
struct meet_setup {
    const struct cuda_plugin *plugin;
    const struct nccl_functions *nccl;
    struct world *world;
    const struct channels *channels;
    const struct ranks *ranks;
    const struct program *const *const *programs; /* by routine, by role */
    const struct nccl_id *id;
    void *memory; /* memory to register with the communicators */
    size_t memory_bytes;
    double deadline_s;
};
struct meet_ops {
    const char *name;
    /* does not block for longer than deadline_s; one sentence in error */
    enum status (*open)(struct meet **out, const struct meet_setup *s, struct error *error);
    void (*close)(struct meet *m);
    /* device memory that a part needs in addition to operands; depends on shapes alone, since operands have no
     * addresses yet */
    size_t (*workspace_bytes)(const struct meeting *m);
    /* puts all local parts of one meeting on their streams; NULL: launched */
    const char *(*launch)(struct meet *m, const struct meet_part *parts, uint32_t nparts);
    /* NULL: fine, else what went wrong in any communicator */
    const char *(*poll)(struct meet *m);
    /* aborts everything that is in progress */
    void (*abort)(struct meet *m);
};
const struct meet_ops *meet_d2d(void);
const struct meet_ops *meet_nccl(void);

struct gang_setup {
    const struct cuda_plugin *plugin;
    const struct nccl_functions *nccl; /* NULL with d2d */
    const struct meet_ops *meet;
    struct world *world; /* outlives the gang; open before ranks come */
    int device;          /* -1: the device with the rank's index in its node */
    uint32_t n;          /* ranks of this process: all, or with NCCL one */
    enum replay replay;
    bool deterministic;
    double watchdog_s, connect_s; /* connect_s: time limit for making all communicators */
};
/* To be called before ranks start.  Ranks join when executors with player_d2d or player_nccl are opened, which each
 * rank does in a thread or process of its own.  Opening and running synchronise all ranks. */
enum status gang_new(struct gang **out, const struct gang_setup *s);
/* after all its ranks' executors are closed */
void gang_free(struct gang *g);

#endif
