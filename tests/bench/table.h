/* Reads tests/bench/measured/micro.tsv: blocks of lines with tabs between fields, each block under a line
 * "@kind column ...". What a field says is asked by the name of its column.  At most 16 columns; longer lines
 * are cut. */

#ifndef LLMC_TABLE_H
#define LLMC_TABLE_H

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum { TABLE_COLUMNS = 16 };

struct table_block {
    const char *kind;
    uint32_t ncolumns;
    const char *columns[TABLE_COLUMNS];
};
struct table_line {
    const struct table_block *block;
    const char *fields[TABLE_COLUMNS];
};

/* the lines of FOLDER/micro.tsv, NULL if there is no such file */
struct table_line *table_read(struct arena *a, const char *folder, uint32_t *nlines);

/* "" where there is no such column, or the field is "-" */
const char *table_word(const struct table_line *line, const char *column);
double table_number(const struct table_line *line, const char *column);

#endif
