#ifndef LLMC_MOVES_H
#define LLMC_MOVES_H

/* Private to making transitions: which elements go from which rank to which.
 *
 * All kinds of state of a bucket lie alike, so a move names elements of buckets; lower.c repeats it for every kind. */

#include "compiler/support/vec.h"
#include "compiler/transition/transition.h"

enum { STATE_KINDS = 4 }; /* PARAM, MASTER, MOMENT1, MOMENT2 from BUFFER_PARAM on */

/* what a role keeps of one bucket */
struct kept {
    uint32_t bucket;
    uint32_t buffer[STATE_KINDS]; /* by kind; NONE: there is none */
    /* the elements that the rank keeps up to date: `n` from first + slot value * stride on, plus where its buffer of
     * parameters begins, if that is a shard itself */
    uint64_t first, stride, n;
    uint32_t slot;    /* NONE */
    uint32_t *tensor; /* the bucket's tensors, by growing `at` */
};
struct role_state {
    const struct program *p;
    uint32_t nkept;
    struct kept *kept;
    uint32_t *id; /* by tensor: number of its name, or of its family's first */
};
/* one plan's state */
struct plan_state {
    const struct plan *plan;
    struct role_state *role;
};

/* A box of a tensor as a rank stores it, in the orientation in which it is stored: rows of `cols` elements, whose
 * corner is (row, col) of a tensor of rows_end x cols_end. */
struct box {
    uint32_t id;
    uint64_t row, col, rows, cols, rows_end, cols_end;
    uint64_t at; /* element of the bucket */
};

/* `rows` runs of `cols` elements; src NONE: of zeros */
struct move {
    uint32_t src, src_kept, dst_kept; /* rank; index among its role's kept */
    uint32_t rows, cols;
    uint64_t src_first, src_ld, dst_first, dst_ld; /* elements of the buckets */
};
struct move_list {
    VEC(struct move) list;
};

/* Reads what both plans keep, and numbers the tensors of both by name; STATUS_NO_PLAN if they are not of one job. */
enum status state_read(struct arena *a, const struct plan *from, const struct plan *to, struct plan_state out[2],
                       uint32_t *ntensors, struct error *error);
/* value of a slot on a rank; 0 for NONE */
uint64_t state_slot(const struct plan *p, uint32_t rank, uint32_t slot);
/* The kind of buffer that has a kind of state: where there is no master copy, the working copy is that, too. */
int kept_as(const struct kept *k, int kind);
/* first element that a rank keeps up to date */
uint64_t kept_first(const struct plan_state *s, uint32_t rank, const struct kept *k);
/* the i-th box of a tensor on a rank */
struct box state_box(const struct plan_state *s, uint32_t rank, uint32_t tensor, uint32_t i);

/* Lists the moves of every rank of the transition, by the rank that receives. */
enum status moves_find(struct arena *a, const struct transition *t, const struct plan_state state[2], uint32_t ntensors,
                       struct move_list *moves, struct error *error);
/* Makes the programs that do them: ranks, roles. */
enum status moves_lower(struct arena *a, struct transition *t, const struct plan_state state[2],
                        const struct move_list *moves, struct error *error);

#endif
