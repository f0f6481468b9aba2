#ifndef LLMC_CONSERVE_EXPERTS_H
#define LLMC_CONSERVE_EXPERTS_H

/* Private to the files with rules of experts. */

#include "compiler/verify/conserve.h"

const struct node *experts_node(const struct machine *m, uint32_t node);
/* the layer whose router made a node of choices, or a node derived from one; NULL: none */
const struct moe *experts_layer(const struct machine *m, uint32_t node);
/* Adds an operand to the recipe if it is present; it must have the same rows as `like`, if that has a node. */
bool experts_input(struct machine *m, uint32_t i, struct recipe *r, size_t k, const struct value *like,
                   struct value *out);
/* Writes the recipe's output k; over: the contributions that are summed on this rank, NULL: all. */
bool experts_output(struct machine *m, uint32_t i, struct recipe *r, size_t k, const struct extent *over,
                    struct extent row, struct extent col, const struct routed *routed);
bool experts_whole_columns(struct machine *m, uint32_t i, const struct value *v);
/* do the rows begin `start` rows into the sequences whose length the attribute gives? */
bool experts_check_start(struct machine *m, uint32_t i, size_t sequence, size_t start, const struct extent *row);
/* The node of which rows were sent to other cluster nodes; the value's own node where they were not. */
uint32_t experts_sent(const struct machine *m, const struct value *v);

#endif
