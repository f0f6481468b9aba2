/* Rows of nccl-tests: size count type [redop] [root] then time algbw busbw wrong, out of place and in place.  Older
 * versions leave redop and root out where they mean nothing, so the four columns are counted from the right. */

#include "compiler/topology/topo_table.h"

#include "compiler/support/units.h"

#include <string.h>

double topo_table_bus_factor(const char *op, uint32_t ranks)
{
    double n = ranks;
    if (!strcmp(op, "all_reduce"))
        return 2 * (n - 1) / n;
    if (!strcmp(op, "broadcast") || !strcmp(op, "send_recv"))
        return 1;
    return (n - 1) / n;
}

/* A token of a table's line: [*at, *at + *length), *at moved to it; false at the end of the line. */
static bool next_token(const char *line, size_t end, size_t *at, size_t *length)
{
    while (*at < end && (line[*at] == ' ' || line[*at] == '\t' || line[*at] == '\r'))
        ++*at;
    for (*length = 0; *at + *length < end && !strchr(" \t\r", line[*at + *length]);)
        ++*length;
    return *length > 0;
}

bool topo_table_row(const char *line, size_t end, double *bytes, double *time_us, double *busbw_gb_s)
{
    enum { COLUMNS = 16 };
    double number[COLUMNS] = {0};
    size_t n = 0, numbers_from = 0, length;
    struct units_error e;
    for (size_t at = 0; next_token(line, end, &at, &length); at += length) {
        if (n == COLUMNS)
            return false;
        const char *token = line + at;
        bool minus = *token == '-';
        if (units_real(token + minus, length - minus, &number[n], &e))
            number[n] = minus ? -number[n] : number[n];
        else if (n < 2)
            return false;
        else if (length != 3 || memcmp(token, "N/A", 3) != 0) /* the #wrong column may say so */
            numbers_from = n + 1;
        n++;
    }
    if (n < 3 || numbers_from < 3 || n - numbers_from < 4)
        return false;
    size_t first = n - numbers_from >= 8 ? n - 8 : n - 4;
    *bytes = number[0];
    *time_us = number[first];
    *busbw_gb_s = number[first + 2];
    return *bytes > 0 && *bytes < 0x1p63 && *time_us > 0; /* what is larger is no size */
}
