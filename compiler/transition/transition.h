#ifndef LLMC_TRANSITION_H
#define LLMC_TRANSITION_H

/* Moving a job's state from one plan to another of the same job, in memory and between two steps.
 *
 * State is what a step leaves behind for the next one: of every bucket the elements that the rank's optimizer
 * instructions keep up to date, in the working copy, the master copy and the moments.  Everything else a step makes
 * anew (with ZeRO it begins by gathering the working copies), and the loss scale goes with the number of the step.
 *
 * A transition is a set of programs of the same instruction set as a plan's: SEND and RECV between ranks, COPY on a
 * rank, FILL for padding.  Its ranks are the places, a node and a GPU each, of both plans; in a rank's arena the old
 * plan's comes first, at offset 0, and the new plan's behind it.  Ranks with equal programs share a role; peers are
 * slots. */

#include "compiler/emit/plan.h"

/* what a rank of the transition is in the two plans: NONE, or a rank of theirs */
struct seat {
    uint32_t from, to;
    uint64_t base; /* offset of the new plan's arena in this one's */
};

struct transition {
    const struct plan *from, *to;
    char from_hash[65], to_hash[65]; /* of their folders' MANIFEST */
    uint32_t lost;                   /* node of the old plan whose memory is gone; NONE */
    struct ranks *ranks;             /* as in ranks.bin */
    struct seat *seats;              /* by rank */
    uint32_t nroles;
    struct program **programs; /* by role */
};

/* Makes the programs.  lost: a node of the old plan whose ranks take no part, or NONE; the new plan's nodes are then
 * the other ones in their order.  STATUS_NO_PLAN and a sentence if the plans are not of one job, or if no rank that is
 * left holds some state. */
enum status transition_make(struct arena *a, const struct plan *from, const struct plan *to, uint32_t lost,
                            struct transition **out, struct error *error);
void transition_close(struct transition *t);
/* bytes of a rank of a plan, for both of its programs */
uint64_t transition_arena(const struct plan *p, uint32_t rank);

/* What it takes, by closed formulas on the programs (predict.c). */
struct transition_cost {
    uint64_t messages, near_bytes, far_bytes, local_bytes; /* sent within and between nodes; copied on a rank */
    uint64_t peak_bytes; /* of the fullest rank: both plans' persistent buffers, host memory not counted */
    uint32_t peak_rank;
    uint64_t room_bytes; /* that a GPU of that rank has for an arena */
    double seconds;
};
struct transition_cost transition_cost(const struct transition *t);
/* Both plans' state has to fit at once, since nothing of the old one goes before all of the new one is there; else
 * STATUS_NO_PLAN. */
enum status transition_fits(const struct transition *t, struct error *error);

/* Proof that the programs do what they should, from both plans and the programs alone (prove.c): every element of the
 * new plan's state is written exactly once, with the old plan's element of the same tensor, place and kind, or with 0
 * where it is padding; nothing else is written, nothing is read that the old plan's steps do not leave behind; every
 * SEND has its RECV, and all waiting follows the order of seq.  At most 20 violations are kept. */
struct verdict;
struct verdict *transition_prove(struct arena *a, const struct transition *t);

/* the folder: transition.json, ranks.bin, programs/N.bin, MANIFEST */
enum status transition_write(const struct transition *t, const char *dir, bool force, struct error *error);
/* reads the programs back, to be proved against both plans, whose hashes must be those that it was made for */
enum status transition_read(struct arena *a, const char *dir, const struct plan *from, const struct plan *to,
                            struct transition **out, struct error *error);
/* hash of a plan's MANIFEST, as it was read */
void transition_hash(const struct plan *p, char out[65]);
/* prints transition.json */
struct strbuf;
void transition_json(const struct transition *t, struct strbuf *out);

#endif
