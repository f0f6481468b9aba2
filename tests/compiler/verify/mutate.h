#ifndef LLMC_TESTS_MUTATE_H
#define LLMC_TESTS_MUTATE_H

/* Faults put into plans, one at a time, each of a kind that a broken compiler could make. */

#include "compiler/execute/exact.h"
#include "compiler/verify/verify.h"

enum mutation {
    MUTATE_DROP,         /* one instruction */
    MUTATE_DROP_MATCHED, /* a transfer on both sides, or a collective on all members' roles */
    MUTATE_DUPLICATE,
    MUTATE_DUPLICATE_MATCHED, /* double reduction */
    MUTATE_SWAP,              /* two neighbours of a queue */
    MUTATE_SWAP_MATCHED,      /* two transfers on both sides */
    MUTATE_PEER,
    MUTATE_GROUP,
    MUTATE_SIZE,
    MUTATE_SIZE_MATCHED,
    MUTATE_DTYPE,
    MUTATE_WAIT,         /* one missing */
    MUTATE_WAIT_EARLIER, /* one for the instruction before */
    MUTATE_OVERLAP,      /* a buffer moved onto others */
    MUTATE_OFFSET,       /* one element, row or ring slot off */
    MUTATE_BUFFER,       /* another buffer of the same size */
    MUTATE_MARK,         /* written instead of added, or the other way round */
    MUTATE_ATTRIBUTE,
    MUTATE_BIND_SLOT, /* an attribute follows another of the rank's numbers */
    MUTATE_EXCHANGED, /* two operands of one instruction */
    MUTATE_QUEUE,
    MUTATE_SEQ,
    MUTATE_LAYER_SKIPPED, /* all of a layer in one microbatch */
    MUTATE_LAYER_SWAPPED, /* the weights of another one */
    MUTATE_STALE,         /* a gather of parameters dropped, or after its first use */
    MUTATE_REDUCTION,     /* a reduction dropped */
    MUTATE_SLOT_VALUE,    /* ranks.bin: a peer, group or number */
    MUTATE_GPU,           /* ranks.bin: a place */
    MUTATE_TENSOR,        /* a box, a name, weight decay */
    MUTATE_ARENA,         /* too large, or a buffer beyond its end */
    NMUTATIONS
};
const char *mutation_name(enum mutation m);

/* bytes that the fault concerns, in the arena of a role; and instructions of the mutated program */
struct mutation_site {
    uint32_t role, insn; /* insn NONE: bytes only */
    bool evaluation;
    uint64_t start, end;
};
#define MOST_SITES 256
struct mutant {
    struct plan plan; /* shares with the original what was not changed */
    enum mutation kind;
    bool global;  /* no instruction is at fault: tables */
    uint32_t seq; /* MUTATE_QUEUE: of the instruction whose order changed */
    uint32_t nsites;
    struct mutation_site sites[MOST_SITES];
    const struct plan *original;
};
/* false: this draw found nothing to change */
bool mutate(struct arena *a, const struct plan *p, enum mutation kind, uint64_t *random, struct mutant *out);
/* a mutant equal to the plan, with tables of its own, for changes made by hand; release as below */
void mutant_begin(struct arena *a, const struct plan *p, enum mutation kind, struct mutant *out);
void mutant_free(struct mutant *m);
/* NULL: the closure over all ranks finds neither deadlock nor race, and all ranks, executed modulo a prime under
 * adversarial orders, compute the truth; else what goes wrong */
const char *mutant_harm(struct arena *a, const struct mutant *m, const struct exact_truth *truth);
/* does a violation name an instruction or bytes that the fault concerns? */
bool mutate_named(const struct mutant *m, const struct violation *v);

/* a copy whose instructions are list[0..n) of the source's; waits follow their targets.  seq: of each, or
 * NULL. */
struct program *mutate_rebuild(const struct program *p, const uint32_t *list, const uint32_t *seq,
                               uint32_t n);
struct program *mutate_copy(const struct program *p);
struct ranks *mutate_copy_ranks(const struct ranks *r);
/* a copy that owns its programs and ranks */
struct plan *mutate_copy_plan(struct arena *a, const struct plan *p);
/* a copy of the plan with gaps between its numbers */
struct plan *mutate_spread(struct arena *a, const struct plan *p, uint32_t factor);

#endif
