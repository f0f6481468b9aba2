#ifndef LLMC_TRANSITION_PROVE_H
#define LLMC_TRANSITION_PROVE_H

/* Private to the proof of transitions. */

#include "compiler/support/vec.h"
#include "compiler/transition/transition.h"
#include "compiler/verify/verify.h"

/* Elements that a rank needs or has of a buffer: n from first + slot value * stride on, counted from the buffer's
 * beginning. */
struct needed {
    uint32_t buffer;
    uint64_t first, stride, n;
    uint32_t slot;
};
/* a box of a tensor in a bucket: elements [at, end) */
struct stored {
    uint64_t at, end, cols;
    uint32_t tensor, box;
};
/* a role's state */
struct stated {
    const struct program *p;
    uint32_t nbuffers, *buffer; /* persistent ones, by growing offset */
    struct needed *need;        /* by those: what the step reads before it writes it */
    struct needed *updated;     /* by bucket: what the optimizer writes of the working copy; n 0: nothing */
    struct stored *span;        /* by bucket and place */
    uint32_t *first;            /* by bucket: its first span; nbuckets + 1 */
};
/* a box on a rank: its corner in a tensor, and that tensor's size, in the orientation in which it is stored */
struct boxed {
    const char *name;
    uint64_t member, row, col, row_end, col_end;
    bool transposed;
};
/* an operand's place: buffer of a plan's rank, element of its bucket */
struct where {
    const struct plan *p;
    uint32_t rank;
    const struct stated *s;
    uint32_t buffer;
    uint64_t first;
};
struct corner {
    uint32_t buffer, span;
    uint64_t row, col;
    int sign;
};
struct proof {
    struct arena *arena, *messages; /* scratch; of what is reported */
    const struct transition *t;
    struct verdict *verdict;
    struct stated *old, *new; /* by role of the plans */
    VEC(struct corner) corners;
    uint64_t sends, receives;
};

uint64_t proof_slot(const struct plan *p, uint32_t rank, uint32_t slot);
uint64_t proof_peer(const struct transition *t, uint32_t rank, uint32_t insn);
/* first element of the bucket */
uint64_t proof_first(const struct plan *p, uint32_t rank, const struct program *q, const struct needed *n);
void proof_report(struct proof *f, uint32_t property, uint32_t rank, uint32_t insn, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void proof_structure(struct proof *f);
/* reads both plans' state: f->old, f->new */
void proof_state(struct proof *f);

#endif
