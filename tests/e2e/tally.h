#ifndef LLMC_TALLY_H
#define LLMC_TALLY_H

/* How often each value of each dimension occurred in what was drawn: a generator that never draws something
 * tests nothing of it.  A value counts only where it means something: a schedule with several pipeline ranks,
 * a way to attend with cp > 1. */

#include "compiler/model/decision.h"

enum { TALLY_ROWS = 160 };
struct tally {
    uint32_t items, nrows, at;
    const char *dimension[TALLY_ROWS];
    char name[TALLY_ROWS][28];
    uint32_t count[TALLY_ROWS];
};

/* one more item: then the same rows in the same order each time */
void tally_item(struct tally *t);
void tally_row(struct tally *t, const char *dimension, const char *name, bool has);
void tally_number(struct tally *t, const char *dimension, const uint32_t *values, uint32_t n, uint32_t value);
#define TALLY_NUMBER(t, dimension, value, ...)                                                               \
    tally_number(t, dimension, (const uint32_t[]){__VA_ARGS__},                                              \
                 sizeof(uint32_t[]){__VA_ARGS__} / sizeof(uint32_t), value)

void tally_add(struct tally *to, const struct tally *t);
/* a table on stdout: "312 layouts, of these with ..." */
void tally_print(const struct tally *t, const char *items);
/* rows that occurred less often than `least`, each named on stdout */
uint32_t tally_rare(const struct tally *t, uint32_t least);

/* one more layout; `job` with the wishes that it was drawn under (layout_tally.c) */
void tally_layout(struct tally *t, const struct job *job, const struct decision *d);
/* one more model and job on a layout: what tally_layout() doesn't see (model_tally.c) */
void tally_model(struct tally *t, const struct job *job, const struct decision *d);

#endif
