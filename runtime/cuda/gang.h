#ifndef LLMC_GANG_H
#define LLMC_GANG_H

/* Ranks on a CUDA device: the ranks of this process, which share one device, one issuing thread and one memory
 * allocation.  With NCCL that is one rank per process; with `d2d` all ranks of a plan are threads of one process and play
 * on one device.
 *
 * A queue of a rank is a stream; a wait is an event, recorded only where the plan has a wait.  Instructions are issued in
 * `seq` order, which is an order that all ranks agree on, so communications start in the same order everywhere.  Nothing
 * here ever blocks in the driver: whoever waits polls, looks for failed peers and for silence, and gives up in words. */

#include "runtime/cuda_plugin.h"
#include "runtime/exec.h"

enum replay { REPLAY_EAGER, REPLAY_SEGMENTS, REPLAY_GRAPH };
struct gang;

/* How ranks exchange operands on streams: the asynchronous counterpart of transport.h */
struct meet;
struct meet_part { /* one rank's part in a meeting */
    struct meeting m;
    enum queue queue;
    cuda_stream stream;
    uint32_t rank;
    void *workspace; /* the stream's, of at least what workspace_bytes() says */
    size_t workspace_bytes;
};
struct meet_setup {
    const struct gang *gang;
    const struct cuda_plugin *plugin;
    const struct nccl_functions *nccl;
    struct world *world;
    const struct channels *channels;
    const struct ranks *ranks;
    const struct program *const *const *programs; /* by routine, by role */
    uint32_t nlocal;
    const struct nccl_id *id;
    void *memory; /* to be registered */
    size_t memory_bytes;
    double deadline_s;
};
struct meet_ops {
    const char *name;
    /* does not block for longer than deadline_s; one sentence in error */
    enum status (*open)(struct meet **out, const struct meet_setup *s, char *error, size_t error_size);
    void (*close)(struct meet *m);
    /* device memory that a part needs besides operands; by shapes alone, operands have no place yet */
    size_t (*workspace_bytes)(const struct meeting *m);
    /* all local parts of one meeting, onto their streams; NULL = launched */
    const char *(*launch)(struct meet *m, const struct meet_part *parts, uint32_t nparts);
    /* NULL = fine, else what went wrong, of any communicator */
    const char *(*poll)(struct meet *m);
    /* lets everything that is under way end, at once and badly */
    void (*abort)(struct meet *m);
};
const struct meet_ops *meet_d2d(void);
const struct meet_ops *meet_nccl(void);

struct gang_setup {
    const struct cuda_plugin *plugin;
    const struct nccl_functions *nccl; /* NULL with d2d */
    const struct meet_ops *meet;
    const struct nccl_id *id;          /* of the world's communicator, where all ranks find the same; NULL with d2d */
    struct world *world;               /* outlives the gang */
    int device;
    uint32_t first, n; /* ranks first .. first + n - 1 live here */
    enum replay replay;
    bool deterministic;
    double watchdog_s, connect_s; /* connect_s: what making all communicators may take */
};
enum status gang_new(struct gang **out, const struct gang_setup *s);
/* after all its ranks' executors are closed */
void gang_free(struct gang *g);
const struct cuda_plugin *gang_plugin(const struct gang *g);
void gang_describe(const struct gang *g, char *out, size_t size);

/* Every rank calls these, in a thread of its own; join and run meet all ranks. */
enum status gang_join(struct gang *g, struct exec *e, char *error, size_t error_size);
void gang_leave(struct gang *g, struct exec *e);
enum status gang_run(struct gang *g, struct exec *e, enum routine which);

/* bytes [at, at + bytes) of a rank's arena between the device and the host's copy of the arena */
enum status gang_copy(struct gang *g, struct exec *e, uint64_t at, uint64_t bytes, bool to_device);

/* What the gang's process holds on the device, in bytes, of what the driver says has been taken since the context was made
 * (total).  Of its own allocation: arenas as planned, workspaces of products and attention, staged words.  By difference:
 * libraries (their handles and kernels), communicators, and the rest, which is graphs and kernels that came later. */
struct gang_memory {
    uint64_t arena, workspace, staging, libraries, communicators, rest, total;
};
void gang_memory(const struct gang *g, struct gang_memory *m);
/* Graphs that were made; steps, their instructions, and the host's nanoseconds for launching them, without those steps that
 * are not as others: a routine's first, traced ones, those that capture; launches that do several instructions at once */
struct gang_counts {
    uint64_t graphs, steps, replayed, issue_ns, fused;
};
void gang_counts(const struct gang *g, struct gang_counts *c);

#endif
