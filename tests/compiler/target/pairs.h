#ifndef LLMC_TESTS_PAIRS_H
#define LLMC_TESTS_PAIRS_H

/* Pairs of published runs that differ in a switch (tests/bench/measured/pairs.tsv), and what is predicted of them. */

#include "compiler/support/arena.h"

#include <stdbool.h>
#include <stdint.h>

struct pair {
    const char *name, *target, *model, *cluster, *plan, *off, *on, *missed, *source; /* "" where the table has "-" */
    bool speed;         /* what was measured is a speed, not seconds */
    bool tokens;        /* and that in tokens/s per GPU */
    double measured[2]; /* without the switch, with it */
};

/* the pairs of the table; NULL, after a line that says why, if it cannot be read */
struct pair *pairs_read(struct arena *a, const char *path, uint32_t *n);
/* predicted, without the switch and with it: seconds of a step; the predicted speed against the measured one, - 1, where
 * that is in tokens/s per GPU or in seconds, else NAN */
struct pair_figures {
    double seconds[2], off[2];
};
/* as `llmc estimate` predicts them; what is wrong with its plans, or NULL */
const char *pair_predict(struct arena *a, const struct pair *x, struct pair_figures *out);
/* the share of the step that the switch saves, as it is predicted */
double pair_predicted_gain(const struct pair_figures *x);
/* the share of the step that the switch saves, as it was measured */
double pair_gain(const struct pair *x);
/* is the predicted gain that one within a third? */
bool pair_holds(const struct pair *x, double predicted);

#endif
