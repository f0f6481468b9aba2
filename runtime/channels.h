#ifndef LLMC_CHANNELS_H
#define LLMC_CHANNELS_H

/* Which ranks communicate: all channels of a plan, equal on every rank.  Channel g < ngroups is group g of
 * ranks.bin; they are followed by the (sender, receiver) pairs that any program uses. */

#include "runtime/program.h"
#include "runtime/transport.h"

struct channels {
    uint32_t n, nranks;
    struct channel *list;
    uint32_t *members; /* storage for the channels' members */
    uint32_t *pair;    /* channel by [sender * nranks + receiver]; NONE: no such channel */
};

/* programs: by role, `nsets` tables of nroles each (training, evaluation); absent programs are NULL.
 * Requires ranks_check() to have passed. */
enum status channels_make(struct channels *c, const struct ranks *r, const struct program *const *const *sets,
                          uint32_t nsets);
void channels_free(struct channels *c);

/* the channel of a communication instruction of a rank, and the rank's index in it */
uint32_t channels_of(const struct channels *c, const struct ranks *r, uint32_t rank, const struct program *p,
                     uint32_t insn, uint32_t *self);

/* the value of slot `slot` on a rank */
uint64_t rank_value(const struct ranks *r, uint32_t rank, uint32_t slot);
bool insn_is_meeting(const struct insn *in);

#endif
