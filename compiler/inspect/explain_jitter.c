/* Jitter: the schedule's actions simulated with every duration off by a random share, uniform within
 * +-JITTER.
 *
 * Runs with RUNS seeds give mean and spread of one replica's pipeline.  Replicas meet once per step, in the
 * gradients' reduction, so the step waits for the slowest: mean + spread * sqrt(2 ln replicas), the leading
 * term of the expected maximum of that many normal variables, but never more than JITTER of the whole. */

#include "compiler/inspect/explain_private.h"

#include "compiler/simulate/predict.h"
#include "compiler/support/real.h"

#include <math.h>

#define JITTER 0.05
#define RUNS 16

void explain_jitter(struct explanation *x)
{
    double even_s, runs_s[RUNS], sum = 0, squares = 0;
    if (!predict_jitter(x->arena, x->cost, JITTER, RUNS, &even_s, runs_s) || !(even_s > 0 && isfinite(even_s)))
        return;
    for (uint32_t i = 0; i < RUNS; i++) {
        sum += runs_s[i] - even_s;
        squares += (runs_s[i] - even_s) * (runs_s[i] - even_s);
    }
    double mean = sum / RUNS, spread = sqrt(fmax(0, squares / RUNS - mean * mean));
    x->has_jitter = true;
    x->jitter_share = JITTER;
    x->jitter_mean = mean / x->chosen.estimate.step_time_s;
    double slowest = fmin(mean + spread * sqrt(2 * real_log(fmax(1, x->chosen.decision.dp))), JITTER * even_s);
    x->jitter_slowest = slowest / x->chosen.estimate.step_time_s;
}
