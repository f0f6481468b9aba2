#ifndef LLMC_BACKWARD_H
#define LLMC_BACKWARD_H

/* What the backward pass of a layer, the embedding or the head needs of its forward pass: which values stay, and which
 * operators run again to make the others.  The lowering allocates by this, and the closed form of memory counts by it. */

#include "compiler/model/decision.h"
#include "compiler/model/expand.h"
#include "compiler/support/arena.h"

#define BACKWARD_RUN_ALL UINT32_MAX /* for the words of `recompute`: all that the backward pass needs runs again */

struct backward {
    bool recompute;         /* some operators run again */
    bool *saved, *needed;   /* by value: stays; by operator: runs again, */
    bool *unread;           /* and then for what it keeps beside its output, which nothing reads */
    bool *weighed, *weighs; /* by value: output, input of an operator whose weight gradient may come in a W */
};
/* the words of `recompute`, as backward_new() takes them */
uint32_t backward_again(enum recompute recompute, uint32_t parts);
/* again: bits of recompute_part, or BACKWARD_RUN_ALL; exchanges: attention to exchanged heads keeps its operands itself */
struct backward backward_new(struct arena *a, const struct expansion *e, uint32_t again, bool exchanges);

/* Do words of recomputation name an operator, or another one that writes the same value?  What several write (rotation works in
 * place) is kept or made again by all of them. */
bool backward_names(const struct expansion *e, const struct opr *o, uint32_t again);
/* by value: is it made again rather than kept? */
const bool *backward_dropped(struct arena *a, const struct expansion *e, uint32_t again, bool exchanges);
/* does the backward pass of an operator read its input, its output? */
bool backward_reads_input(const struct opr *o);
bool backward_reads_output(const struct opr *o);

/* By value: in how many parts side by side it can stay in 8 bits for the backward pass, as products and gates alone read it
 * there: gate and up are two; 0: it cannot.  Of a layer. */
uint8_t *backward_eight(struct arena *a, const struct expansion *e);
/* does an operator but an activation run again that reads what stayed in 8 bits? */
bool backward_reruns_eight(const struct expansion *e, const struct backward *b, const uint8_t *eight, uint32_t again);

/* of experts nothing but the activation runs again */
bool backward_act_only(const struct opr *o, uint32_t again);

#endif
