#ifndef LLMC_WEIGHTS_H
#define LLMC_WEIGHTS_H

/* Transfers persistent state between a rank's buffers and logical tensors: initialising, loading, saving, dumping
 * gradients.
 *
 * An element of a bucket belongs to at most one tensor box; elements outside of all boxes, and rows or columns
 * beyond the logical shape (padded vocabulary), are 0 and never leave the process. */

#include "runtime/program.h"
#include "runtime/safetensors.h"

/* where a rank keeps its state */
struct weights_place {
    const struct program *p;
    const struct ranks *ranks;
    uint32_t rank;
    uint8_t *arena;
};

/* Fills all PARAM and MASTER buffers from `from` or, where NULL, from the tensors' initial rules and the
 * seed; moments become 0.  Tensors may also be found under their name without, or with, a leading "model." or
 * "transformer.". */
enum status weights_init(const struct weights_place *w, const struct safetensors *from, uint64_t seed,
                         struct error *error);

/* All logical tensors of all roles, each once, sorted by name.  The caller frees the array, which holds the
 * names too.  Fails if two roles disagree on a shape. */
enum status weights_catalog(const struct program *const *programs, uint32_t nroles, struct weight_plan **out,
                            uint32_t *n, struct error *error);

/* What this rank saves: the ranges that its optimizer instructions update, if its copy counts.  One call for all
 * optimizer instructions, or for one of them. */
struct weights_sink {
    struct weight_files *files;
    const struct weight_plan *catalog;
    uint32_t ncatalog;
    _Atomic uint64_t *covered; /* by catalog entry: elements written by all ranks */
};
/* writes the updated parameters */
void weights_save(const struct weights_place *w, const struct weights_sink *sink);
/* writes the gradient operand of instruction `insn` if that is an optimizer instruction */
void weights_save_gradient(const struct weights_place *w, uint32_t insn, const struct weights_sink *sink);
/* checks that every element of every tensor was written exactly once */
enum status weights_complete(const struct weights_sink *sink, struct error *error);

#endif
