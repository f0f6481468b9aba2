/* A value is a spike if it is above the median of the last steps by a share of it and by so many deviations.  These are
 * the median of what the value changes by from step to step, so that neither earlier spikes nor the slope of a loss
 * that falls hide anything.  Norms scatter by factors: theirs is the logarithm.  O(n log n) a step for the 64 values
 * kept. */

#include "runtime/spikes.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAST = 16, DEVIATIONS = 8 };
static const double LOSS_SHARE = 0.1, NORM_TIMES = 5;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, uint64_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return values[n / 2];
}

static double value_before(const struct spikes_series *s, uint64_t steps)
{
    return s->value[(s->n - steps) % SPIKES_STEPS];
}

/* least: how far above the median a spike is at least, as a share of the median where it is 0 or more; negative: by
 * itself */
static bool add(struct spikes_series *s, double x, double least, double *median, double *deviation)
{
    double sorted[SPIKES_STEPS];
    uint64_t n = s->n < SPIKES_STEPS ? s->n : SPIKES_STEPS;
    bool spike = false;
    if (n >= LAST) {
        for (uint64_t i = 0; i < LAST; i++)
            sorted[i] = value_before(s, i + 1);
        *median = median_of(sorted, LAST);
        for (uint64_t i = 1; i < n; i++)
            sorted[i - 1] = fabs(value_before(s, i) - value_before(s, i + 1));
        *deviation = 1.4826 * M_SQRT1_2 * median_of(sorted, n - 1);
        double more = least < 0 ? -least : least * fabs(*median);
        spike = x > *median + more && x > *median + DEVIATIONS * *deviation;
    }
    bool begins = spike && !s->above;
    s->above = spike;
    s->value[s->n++ % SPIKES_STEPS] = x;
    return begins;
}

const char *spikes_add(struct spikes *s, uint64_t step, double loss, double norm)
{
    double median = 0, deviation = 0, log_median = 0, ignored = 0;
    if (!isfinite(loss) || !isfinite(norm) || !(norm > 0)) /* no step was taken, or there is nothing to see */
        return NULL;
    bool loss_spike = add(&s->loss, loss, LOSS_SHARE, &median, &deviation),
         norm_spike = add(&s->norm, log(norm), -log(NORM_TIMES), &log_median, &ignored);
    if (!loss_spike && !norm_spike)
        return NULL;
    int n = snprintf(s->words, sizeof s->words, "step %llu: ", (unsigned long long)step);
    if (loss_spike)
        n += snprintf(s->words + n, sizeof s->words - (size_t)n,
                      "the loss rises to %.4g; of the steps before its median is %.4g, with a deviation of %.2g%s",
                      loss, median, deviation, norm_spike ? "; " : "");
    if (norm_spike)
        snprintf(s->words + n, sizeof s->words - (size_t)n,
                 "the gradient norm is %.4g, %.3g times the median of the steps before", norm, norm / exp(log_median));
    return s->words;
}
