#ifndef LLMC_WATCH_H
#define LLMC_WATCH_H

/* --watch: a view of the run on stderr, drawn in place on a terminal, elsewhere a line at the first step, the last one
 * and no more often than every second.  A thread of rank 0's process draws it from what ranks publish, so that no rank
 * waits for a terminal. */

#include "runtime/folder.h"
#include "runtime/world.h"

struct watch;

/* world and folder outlive it.  STATUS_WORLD: no memory, or no thread */
enum status watch_start(struct watch **out, const struct world *w, const struct folder *f, uint64_t steps);
/* leaves the last state to be read; NULL is fine */
void watch_stop(struct watch *w);

#endif
