#ifndef LLMC_BACKWARD_H
#define LLMC_BACKWARD_H

/* What the backward pass of a layer, the embedding or the head needs of its forward pass: which values are kept, and
 * which operators are recomputed to get the others.  The lowering allocates buffers by this, and the closed form of
 * memory counts by it. */

#include "compiler/model/decision.h"
#include "compiler/model/expand.h"
#include "compiler/support/arena.h"

/* in place of a set of recompute_part bits: recompute everything that the backward pass needs */
#define BACKWARD_RUN_ALL UINT32_MAX

struct backward {
    bool recompute;       /* some operators are recomputed */
    bool *saved, *needed; /* saved, by value: kept for the backward pass; needed, by operator: recomputed before it */
    /* by operator: recomputed only for what it stores besides its output (statistics, choices); nothing reads the
     * output */
    bool *unread;
    /* by value: output (weighed) or input (weighs) of an operator whose weight gradient may be computed in a W
     * action */
    bool *weighed, *weighs;
};
/* the recomputation of a decision as backward_new()'s argument `again` */
uint32_t backward_again(enum recompute recompute, uint32_t parts);
/* again: bits of recompute_part, or BACKWARD_RUN_ALL.  exchanges: context parallelism exchanges heads, so attention
 * stores its operands itself, in its own layout. */
struct backward backward_new(struct arena *a, const struct expansion *e, uint32_t again, bool exchanges);

/* Does `again` name this operator, or another one that writes the same value?  A value with several writers (rotary
 * embedding works in place) is kept or recomputed by all of them together. */
bool backward_names(const struct expansion *e, const struct opr *o, uint32_t again);
/* by value: is it recomputed rather than kept? */
const bool *backward_dropped(struct arena *a, const struct expansion *e, uint32_t again, bool exchanges);
/* Does the backward pass of an operator read the operator's input; its output? */
bool backward_reads_input(const struct opr *o);
bool backward_reads_output(const struct opr *o);

/* For a layer, by value: whether it can be kept in 8 bits for the backward pass, because only matrix products and
 * activations read it there.  The number is that of column blocks quantised separately: 2 for [gate | up], otherwise
 * 1; 0: it must keep its full precision. */
uint8_t *backward_eight(struct arena *a, const struct expansion *e);
/* Is an operator other than an activation recomputed from a value that is kept in 8 bits? */
bool backward_reruns_eight(const struct expansion *e, const struct backward *b, const uint8_t *eight, uint32_t again);

/* Does `again` recompute of the experts only their activation, not the matrix products? */
bool backward_act_only(const struct opr *o, uint32_t again);

#endif
