#ifndef LLMC_GOODPUT_H
#define LLMC_GOODPUT_H

/* --goodput: where the time of a run went, over all of its attempts.  What counts is the time of steps that were not
 * taken again; all else is lost to something, and said with what (MegaScale and Llama 3 call the share "effective
 * training time"). */

#include "runtime/run.h"

enum { GOODPUT_CAUSES = 8 };
struct goodput_cause {
    char words[160];
    uint64_t times, steps;
    double lost_s;
};
struct goodput {
    double all_s, counted_s, starting_s, saving_s, evaluating_s, ending_s;
    uint64_t starts, steps, again;
    /* of the attempt before, whose steps count as far as the next one begins behind them */
    uint64_t first, reached;
    double stepped_s;
    uint32_t last, ncauses; /* why it ended: index; failures beyond the last cause count as that one */
    struct goodput_cause cause[GOODPUT_CAUSES];
};

/* Adds an attempt that took wall_s seconds and has ended; failure: why, or NULL if it has not failed. */
void goodput_add(struct goodput *g, const struct run *r, double wall_s, const char *failure);
/* after restarts: one line of what they cost */
void goodput_print_losses(struct goodput *g, FILE *out);
void goodput_print(struct goodput *g, FILE *out);
/* Are two failures the same but for their numbers? */
bool goodput_same(const char *a, const char *b);

#endif
