#ifndef LLMC_TOPO_RULES_H
#define LLMC_TOPO_RULES_H

/* The vocabulary of cluster.xml as one table, and the check of a tree against it: unknown and misplaced
 * elements and attributes, what is missing, what is there twice, and every single value.  What holds between
 * values is checked by those who read the tree. */

#include "compiler/topology/topo_xml.h"

#include <stdbool.h>
#include <stdio.h>

/* The largest file and the largest counts that are accepted. */
#define TOPO_FILE_MAX ((size_t)16 << 20)
#define TOPO_IMPORT_MAX ((size_t)64 << 20)
#define TOPO_NODES_MAX 1048576u
#define TOPO_NODE_GPUS_MAX 64u

/* Words of attributes that take one of a few, in the order of the enums that hold them. */
extern const char *const topo_scale_up_words[4]; /* enum scale_up_kind */
extern const char *const topo_dtype_words[6];    /* enum topo_dtype */
extern const char *const topo_medium_words[6];
extern const char *const topo_op_words[6]; /* of measured collectives */

/* Check e and everything below it; values that are right are parsed into their attributes and marked valid.
 */
void topo_rules_check(struct arena *a, struct diag *d, struct xml_element *root);

/* every element and attribute, with what they mean: `llmc help cluster` */
void topo_help(FILE *out);

/* Read checked attributes.  False when the attribute is absent, or present but wrong (and reported). */
bool topo_attr_real(const struct xml_element *e, const char *name, double *value);
bool topo_attr_count(const struct xml_element *e, const char *name, uint32_t *value);
bool topo_attr_bytes(const struct xml_element *e, const char *name, uint64_t *value);
/* value of an attribute that passed its check, else NULL */
const char *topo_attr_text(const struct xml_element *e, const char *name);
/* yes = true; `otherwise` when absent */
bool topo_attr_yes(const struct xml_element *e, const char *name, bool otherwise);
/* present, right or wrong */
bool topo_attr_given(const struct xml_element *e, const char *name);

/* the next child of that name: after = NULL for the first */
const struct xml_element *topo_child(const struct xml_element *parent, const char *name,
                                     const struct xml_element *after);

#endif
