#ifndef LLMC_TOLD_H
#define LLMC_TOLD_H

/* What rank 0 tells whoever draws the view of --watch, through the memory that they share: the results of its last
 * step, and sentences for people.  The rank never waits for the reader. */

#include "runtime/log.h"
#include "runtime/world.h"

void told_step(const struct world *w, const struct log_step *s);
/* the newest one; false: there is none, or it is being written */
bool told_read(const struct world *w, struct log_step *out);

/* A line; printed here where TOLD_LINES of them have not been read. */
void told_say(const struct world *w, const char *line);
/* the next one that was not read; false: there is none */
bool told_hear(const struct world *w, char out[TOLD_LINE]);

#endif
