#ifndef LLMC_MANUAL_H
#define LLMC_MANUAL_H

/* `llmc isa`: the instruction set's manual, made from the table alone. */

#include <stdbool.h>
#include <stdio.h>

/* Prints all instructions, or those whose name contains filter (ignoring letter case); NULL: all.  false: there is
 * none, and nothing was printed. */
bool manual_isa(FILE *out, const char *filter);

/* {"fingerprint": "...", "instructions": [{"name", "number", "queue", "unit", "meaning",
 *   "operands": [{"name", "mark", "optional", "dtype", "rows", "cols"}], "attributes": [{"name", "kind"}]}]}
 */
bool manual_isa_json(FILE *out, const char *filter);

#endif
