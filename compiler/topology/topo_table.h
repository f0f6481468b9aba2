#ifndef LLMC_TOPO_TABLE_H
#define LLMC_TOPO_TABLE_H

/* Tables that nccl-tests print, row by row.
 *
 * They report two bandwidths: algbw = size / time, and busbw = algbw times a factor that makes rings of any number of
 * ranks comparable (PERFORMANCE.md of nccl-tests).  Size is the larger of the two buffers. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOPO_TABLE_POINTS_MAX 4096u /* of one curve */

/* busbw over algbw of a cluster file's word for an operation: 2(n-1)/n for all_reduce, (n-1)/n for all_gather,
 * reduce_scatter and all_to_all, 1 for broadcast and send_recv */
double topo_table_bus_factor(const char *op, uint32_t ranks);
/* One row: the first `end` bytes of `line`.  False for headings and whatever else is no measurement. */
bool topo_table_row(const char *line, size_t end, double *bytes, double *time_us, double *busbw_gb_s);

#endif
