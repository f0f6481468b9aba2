#ifndef LLMC_TRANSPORT_H
#define LLMC_TRANSPORT_H

/* How ranks exchange operands.  A communication is a meeting: every member of a channel posts its operands under the
 * meeting's number, one of them moves the data, and all are notified.  No call blocks.
 *
 * A channel is a group of ranks, or a (sender, receiver) pair.  All members number the meetings of a channel alike,
 * from 0, in `seq` order, step after step; these numbers match them, never the time of arrival.  Sums are computed
 * in member order, in fp32 or wider, whoever computes them: equal inputs give equal bits. */

#include "kernels/kernels.h"
#include "runtime/status.h"
#include "runtime/world.h"

struct channel {
    uint32_t nmembers;
    const uint32_t *members; /* ranks; of a pair: sender, receiver */
};

/* one rank's part of a meeting */
struct meeting {
    enum op op;
    uint32_t channel, self; /* self: own index among the members */
    uint64_t number;
    struct view x, y;  /* x: what it sends, y: where it receives; in-place instructions have x == y */
    int64_t ready_ns;  /* when the member was ready for it; only for latest() and last() */
    uint32_t argument; /* BROADCAST: root; ALL_REDUCE: 1 = maximum; SHIFT: by */
};
enum meeting_state {
    MEETING_REFUSED, /* post(): an earlier meeting must end first; try again */
    MEETING_OPEN,
    MEETING_DONE,
    MEETING_FAILED
};

struct transport;
/* bytes that the transport needs in the world's region, which must be zero at the start: in shared memory, or where the
 * region is this rank's alone and operands go by MPI */
size_t transport_shared_bytes(const struct channel *channels, uint32_t nchannels);
size_t transport_mpi_bytes(const struct channel *channels, uint32_t nchannels);
/* by MPI where the world says so (world.mpi) */
enum status transport_open(struct transport **t, struct world *w, const struct channel *channels, uint32_t nchannels);
void transport_close(struct transport *t);
enum meeting_state transport_post(struct transport *t, const struct meeting *m);
/* DONE: everything that m sends and receives is final, and no peer will access it again */
enum meeting_state transport_poll(struct transport *t, const struct meeting *m);
/* only right after DONE: the greatest ready_ns of all members; by MPI just this rank's, since hosts have their own
 * clocks */
int64_t transport_latest(struct transport *t, const struct meeting *m);
/* Only right after DONE: the rank that came last to the meeting, by ready_ns, and in *came_ns when.  By MPI the rank
 * whose message was awaited last, NONE if none was, and INT64_MAX: nobody knows when it was sent. */
uint32_t transport_last(struct transport *t, const struct meeting *m, int64_t *came_ns);

#endif
