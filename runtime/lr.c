/* Learning-rate schedules.  Warm-up rises linearly and reaches lr at step `warmup`; linear and cosine then
 * reach lr_min at step `decay`, counted from the start; wsd holds for `stable` steps and falls over `decay`
 * steps. */

#include "runtime/lr.h"

#include <math.h>

enum { CONSTANT, LINEAR, COSINE, WSD };

bool lr_needs_total(const struct job_info *job)
{
    return (job->lr_kind == LINEAR || job->lr_kind == COSINE) && !job->lr_decay;
}

double lr_at(const struct job_info *job, uint64_t step, uint64_t total_steps)
{
    double s = (double)step, from = (double)job->lr_warmup, to = (double)(job->lr_decay ? job->lr_decay : total_steps);
    if (step < job->lr_warmup)
        return job->lr * (s + 1) / (from + 1);
    if (job->lr_kind == CONSTANT)
        return job->lr;
    if (job->lr_kind == WSD) {
        from += (double)job->lr_stable;
        to = from + (double)job->lr_decay;
    }
    double done = to > from ? (s - from) / (to - from) : 1;
    done = done < 0 ? 0 : done > 1 ? 1 : done;
    if (job->lr_kind == COSINE)
        return job->lr_min + (job->lr - job->lr_min) * 0.5 * (1 + cos(3.14159265358979323846 * done));
    return job->lr + (job->lr_min - job->lr) * done;
}
