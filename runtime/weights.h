#ifndef LLMC_WEIGHTS_H
#define LLMC_WEIGHTS_H

/* Transfers persistent state between a rank's buffers and logical tensors: initialising, loading, saving, dumping
 * gradients.
 *
 * An element of a bucket belongs to at most one tensor box; elements outside of all boxes, and rows or columns
 * beyond the logical shape (padded vocabulary), are 0 and never leave the process. */

#include "kernels/kernels.h"
#include "runtime/program.h"
#include "runtime/safetensors.h"

/* where a rank keeps its state */
struct weights_place {
    const struct program *p;
    const struct ranks *ranks;
    uint32_t rank;
    uint8_t *arena;
};

/* What there is to know of a parameter between two steps: its value as the optimizer keeps it (that of the master copy,
 * where there is one), and its moments. */
enum state { STATE_WEIGHT, STATE_MOMENT1, STATE_MOMENT2, NSTATES };

/* Fills all persistent buffers of buckets from `from`, by enum state.  Where that is NULL, weights come from the
 * tensors' initial rules and the seed, and moments become 0.  Tensors may also be found under their name without, or
 * with, a leading "model." or "transformer.". */
enum status weights_init(const struct weights_place *w, const struct safetensors *const from[NSTATES], uint64_t seed,
                         struct error *error);

/* Is all of the rank's persistent state finite?  If not, `what` says which tensor's is not first. */
bool weights_finite(const struct weights_place *w, char *what, size_t size);

/* All logical tensors of all roles that have the state, each once, sorted by name; exact: in the format that the
 * optimizer keeps it in, else as fp32.  The caller frees the array, which holds the names too.  Fails if two roles
 * disagree on a shape or format. */
enum status weights_catalog(const struct program *const *programs, uint32_t nroles, enum state state, bool exact,
                            struct weight_plan **out, uint32_t *n, struct error *error);

/* Elements that this rank answers for: those that one of its optimizer instructions updates, if its copy counts.  All
 * ranks' pieces together are every element of every tensor once. */
struct weights_piece {
    uint32_t bucket, ld; /* ld: elements from one row's beginning to the next one's, in the bucket */
    uint64_t first;      /* element of the bucket at which row 0 begins */
    struct view values;  /* where they are */
};
/* Lists the pieces of a state; copies: also those that another rank answers for.  The caller frees *out. */
enum status weights_pieces(const struct weights_place *w, enum state state, bool copies, struct weights_piece **out,
                           uint32_t *n);

/* where pieces go */
struct weights_sink {
    struct weight_files *files;
    const struct weight_plan *catalog;
    uint32_t ncatalog;
    _Atomic uint64_t *covered; /* by catalog entry: elements written by all ranks */
};
/* Writes a piece; `values`, of as many rows and columns, instead of its own where not NULL. */
void weights_store(const struct weights_place *w, const struct weights_piece *piece, const struct view *values,
                   const struct weights_sink *sink);
/* writes the weights of all pieces */
enum status weights_save(const struct weights_place *w, const struct weights_sink *sink);
/* writes the gradient operand of instruction `insn` if that is an optimizer instruction */
void weights_save_gradient(const struct weights_place *w, uint32_t insn, const struct weights_sink *sink);
/* checks that every element of every tensor was written exactly once */
enum status weights_complete(const struct weights_sink *sink, struct error *error);

#endif
