#ifndef LLMC_TOPO_VOCABULARY_H
#define LLMC_TOPO_VOCABULARY_H

/* Private to topo_rules.c: every element of cluster.xml with its parent, how often it may occur, and its attributes
 * with kind, example, whether they are required, and what they mean. */

#include <stdbool.h>
#include <stddef.h>

enum value_kind {
    VALUE_ID,
    VALUE_COUNT,
    VALUE_GPUS,
    VALUE_BYTES,
    VALUE_BYTES_S,
    VALUE_FLOP_S,
    VALUE_SECONDS,
    VALUE_FRACTION, /* above 0, at most 1 */
    VALUE_RATIO,    /* 0.1 to 1000 */
    VALUE_SPAN,     /* a count or `all` */
    VALUE_WORD,
    VALUE_TEXT,
    VALUE_DATE,
};

struct attr_rule {
    const char *name;
    enum value_kind kind;
    bool required;
    const char *example;      /* NULL: the first word */
    const char *const *words; /* VALUE_WORD */
    size_t nwords;
    const char *meaning;
};

enum occurs { ONCE, AT_MOST_ONCE, ONCE_OR_MORE, ANY };
struct element_rule {
    const char *name, *parent; /* parent "" = the document */
    enum occurs occurs;
    const struct attr_rule *attrs;
    size_t nattrs;
    const char *example;
};
extern const struct element_rule topo_elements[];
extern const size_t topo_nelements;

#endif
