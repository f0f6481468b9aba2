#ifndef LLMC_PLAYER_H
#define LLMC_PLAYER_H

/* The ways to replay a rank's programs, each a table of functions.  The executor loads programs and leaves to its
 * player everything that depends on where they run:
 *   cpu    kernels in this thread, communication through shared memory; the reference
 *   mpi    the same with communication by messages, between hosts
 *   paced  the same queues, waits and meetings, but an instruction takes its planned time instead of being executed
 *   d2d    streams of one GPU that all ranks share, as threads of one process: runtime/cuda/gang.h
 *   nccl   streams of a GPU per rank */

#include "runtime/exec.h"

struct json_t;
/* of a queue's head, or of all; ENDED: it is done, and the next may begin; HELD_BACK: what is allowed to move cannot */
enum progress { STUCK, MOVED, ENDED, BROKEN, HELD_BACK };
struct play;

struct player {
    const char *transport; /* name of the transport between ranks, in a word */
    bool threads;          /* ranks are threads of one process, else processes */
    bool on_cores;         /* operands are in the world's arena, and kernels run on CPU cores; else on a GPU */
    bool computes;         /* otherwise the contents of buffers are meaningless */
    /* bytes of the world's region for the transport */
    size_t (*shared_bytes)(const struct channel *channels, uint32_t nchannels);
    /* called before open() for every kernel: NULL, or why it cannot run */
    const char *(*admit)(struct exec *e, enum op op, const struct kernel_args *k);
    /* programs are loaded; one sentence in error on failure */
    enum status (*open)(struct exec *e, struct error *error);
    /* also called if open() failed or was never called */
    void (*close)(struct exec *e);
    enum status (*run)(struct exec *e, enum routine which, enum phase phase);
    /* copies bytes from offset `at` on between operands and the world's arena; NULL on CPU cores */
    enum status (*copy)(struct exec *e, uint64_t at, uint64_t bytes, bool to_device);
    /* one line about the device for the log's header */
    void (*describe)(const struct exec *e, char *out, size_t size);
    /* its own figures, into the summary's JSON object; NULL: it has none */
    void (*report)(const struct exec *e, struct json_t *out);
    /* Players on CPU cores share a loop, which asks them to run a queue's head, instruction `insn`, as far as is
     * possible now; */
    enum progress (*try_head)(struct exec *e, struct play *play, uint32_t queue, uint32_t insn);
    /* and how many nanoseconds it may sleep until a head ends by itself; NULL: none does */
    int64_t (*rest_ns)(const struct play *play);
};
extern const struct player player_cpu, player_mpi, player_paced, player_d2d, player_nccl;

#endif
