#ifndef LLMC_LOG_H
#define LLMC_LOG_H

/* The run's log: JSON lines for programs, one progress line for people (on a terminal only).  Rank 0 writes.
 */

#include "runtime/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct world;
struct log {
    FILE *lines;      /* NULL = no --log */
    const char *path; /* its name, in messages */
    bool broken;      /* a line could not be written; that was reported, and no more are tried */
    bool progress;    /* stderr is a terminal and --quiet is absent */
    bool plain;       /* no terminal: now and then a line on stderr */
    /* --watch: what is said goes to whoever draws the view of this world, and there are no lines of progress; or NULL
     */
    const struct world *watched;
    uint64_t steps;
    int64_t last_ns;
};
struct log_step {
    uint64_t step, tokens; /* step from 1; tokens seen so far, this step included */
    double loss, grad_norm, lr, step_time_s, tokens_per_s, core_s; /* core_s: of all ranks together; 0: not known */
    double loss_scale;                                             /* loss scale of the step; 0: none */
    bool skipped; /* its gradients overflowed, and it changed nothing */
};

/* watched: NULL without --watch */
enum status log_open(struct log *l, const char *path, uint64_t first, uint64_t steps, bool quiet,
                     const struct world *watched, struct error *error);
void log_step(struct log *l, const struct log_step *s);
void log_eval(struct log *l, uint64_t step, double loss, uint64_t tokens);
/* a sentence on stderr, whatever is there of a line for people */
void log_say(const struct log *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* STATUS_WORLD if anything could not be written */
enum status log_close(struct log *l, struct error *error);

#endif
