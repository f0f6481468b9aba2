#ifndef LLMC_FORECAST_H
#define LLMC_FORECAST_H

/* What `llmc plan` would write, without writing or verifying it: one truth for `estimate`, its sweeps and `explain`. */

#include "compiler/emit/plan.h"
#include "compiler/search/search.h"

struct forecast {
    struct plan *plan; /* compiled, the caller's to close; NULL: what is best cannot be emitted */
    struct search_result *found; /* its first candidate and its gap are the plan's, the others' figures the search's */
};
/* Also of a job that cannot be emitted, where the first candidate says so and figures are the search's.  STATUS_NO_PLAN after
 * messages in d, which lives in a; found then has the closest miss.  top: candidates wanted. */
enum status forecast(struct arena *a, struct diag *d, struct job *job, struct topo *topo, uint32_t top, uint64_t budget,
                     struct forecast *out);

/* An estimate's items of the plan's decision, brought to what the plan's simulation and placement say: step, bubble and
 * exposed transfers are the timeline's, the peak is the fullest arena; within these the estimate's shares hold. */
struct estimate forecast_items(const struct plan *p, const struct estimate *model);

#endif
