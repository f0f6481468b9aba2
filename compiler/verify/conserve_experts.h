#ifndef LLMC_CONSERVE_EXPERTS_H
#define LLMC_CONSERVE_EXPERTS_H

/* Between the files of experts' rules. */

#include "compiler/verify/conserve.h"

const struct node *experts_node(const struct machine *m, uint32_t node);
/* the layer whose router a node of choices, or of what follows from them, belongs to; NULL: none */
const struct moe *experts_layer(const struct machine *m, uint32_t node);
/* an operand, if it is there, into the recipe; it must have the rows of `like`, where that has a node */
bool experts_input(struct machine *m, uint32_t i, struct recipe *r, size_t k, const struct value *like, struct value *out);
/* the recipe's output k; over: what it is summed over here, NULL: all */
bool experts_output(struct machine *m, uint32_t i, struct recipe *r, size_t k, const struct extent *over, struct extent row,
                    struct extent col, const struct routed *routed);
bool experts_whole_columns(struct machine *m, uint32_t i, const struct value *v);
/* do rows lie `start` rows into the sequences that the attribute says? */
bool experts_check_start(struct machine *m, uint32_t i, size_t sequence, size_t start, const struct extent *row);
/* The value that rows were sent to nodes of; the node itself where they were not. */
uint32_t experts_sent(const struct machine *m, const struct value *v);

#endif
