#ifndef LLMC_TABLE_H
#define LLMC_TABLE_H

/* Tables whose columns are as wide as what is in them, for a terminal of some width. */

#include "compiler/support/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct table_column {
    const char *head;
    bool left;    /* aligned so; else right */
    bool wraps;   /* its cells may go on below, broken at blanks, in TABLE_LEAST columns or more; at most one column */
    uint32_t may; /* 0: it stays; else it may be left out, the greatest number first */
};
enum { TABLE_LEAST = 12 };

/* columns and cells outlive it; it lives in the arena */
struct table;
struct table *table_new(struct arena *a, const struct table_column *columns, uint32_t ncolumns);
/* a new row's cells, to be filled in: "" before */
const char **table_row(struct table *t);
/* Prints heads, unless all are empty, and rows, all behind `indent` blanks, in at most `width` columns where that is
 * possible: two blanks between columns, or one, then a narrower column that wraps, then fewer columns, which are named
 * below. */
void table_print(const struct table *t, uint32_t indent, uint32_t width, FILE *out);

#endif
