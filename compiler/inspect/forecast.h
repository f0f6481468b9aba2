#ifndef LLMC_FORECAST_H
#define LLMC_FORECAST_H

/* What `llmc plan` would write, without writing or verifying it, so that `estimate`, its sweeps and `explain` show
 * the same figures. */

#include "compiler/emit/plan.h"
#include "compiler/search/search.h"

struct forecast {
    struct plan *plan; /* compiled; the caller closes it; NULL: the best decision cannot be emitted */
    /* its first candidate and its gap are those of the plan; figures of other candidates are the search's estimates */
    struct search_result *found;
};
/* Also works for a job that cannot be emitted; then the first candidate says so, and figures are the search's.
 * STATUS_NO_PLAN after messages in d, which lives in a; `found` then has the closest miss.  top: number of
 * candidates wanted. */
enum status forecast(struct arena *a, struct diag *d, struct job *job, struct topo *topo, uint32_t top, uint64_t budget,
                     struct forecast *out);

/* The items of an estimate of the plan's decision, scaled to the plan's simulation and placement: step, bubble and
 * exposed transfers are the timeline's, and the peak is that of the fullest arena; within these the estimate's
 * proportions hold. */
struct estimate forecast_items(const struct plan *p, const struct estimate *model);

#endif
