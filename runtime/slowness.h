#ifndef LLMC_SLOWNESS_H
#define LLMC_SLOWNESS_H

/* Finds slow ranks, which collectives hide: all wait for the slowest.  What each rank's own instructions take is
 * compared with what the same instructions take on other ranks (work.h).  A slow rank is said once, and nothing is done
 * to it. */

#include "runtime/work.h"

struct slowness;

/* rank 0's, of two ranks or more; STATUS_WORLD: out of memory */
enum status slowness_open(struct slowness **out, const struct world *w, const struct ranks *r, const struct work *work);
void slowness_close(struct slowness *s);

/* Makes what this rank's instructions of each kind have taken since its start known, after `steps` steps. */
void slowness_tell(const struct world *w, uint32_t steps, const int64_t ns[WORK_KINDS]);
/* After a step of rank 0's: looks at what the others have told.  The rank that has been found to be slow just now, in
 * words; else NULL. */
const char *slowness_look(struct slowness *s);

#endif
