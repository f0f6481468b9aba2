#ifndef LLMC_FITTED_H
#define LLMC_FITTED_H

/* Text whose lines have any length, for a terminal of some width. */

#include <stdint.h>
#include <stdio.h>

enum { FITTED_LEAST = 30 }; /* columns that a table's last column has to have beside the others */

/* What is written to the stream of fitted_open() (NULL without memory), fitted_close() prints, with lines broken at
 * blanks, or behind a '|', so that none is wider than `width` columns where that is possible.  A line goes on below its
 * last column, which begins behind two or more blanks, if that has FITTED_LEAST columns; else two columns behind its
 * own beginning. */
struct fitted {
    FILE *stream;
    char *text;
    size_t size;
};
FILE *fitted_open(struct fitted *f);
void fitted_close(struct fitted *f, uint32_t width, FILE *out);

#endif
