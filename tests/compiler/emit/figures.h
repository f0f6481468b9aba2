#ifndef LLMC_TESTS_FIGURES_H
#define LLMC_TESTS_FIGURES_H

/* What figures of plan.json must be, by other ways than the code that writes them: from a trace, and from the
 * text of programs. */

#include "compiler/emit/plan.h"

#include <jansson.h>

struct shape {
    double layers, width, vocab, heads, kv, head, ffn, products /* of a feed-forward */, positions, sequence, batch;
    double experts, active, shared; /* 0 = dense */
    bool tied, biases, layernorm, predicts;
};

struct figures_case {
    const char *name, *model, *precision, *plan;
    struct shape shape;
    double gpus, used, peak_flop_s; /* of the job's format */
    uint64_t budget;
    double space; /* configurations that the plan block leaves open; 0: not counted here */
    const char *decision; /* JSON */
};

struct seen {
    const struct figures_case *c;
    const struct plan *plan;
    json_t *json, *trace, *memory;
};

/* a number of the object `predicted` */
double figures_predicted(const struct seen *x, const char *key);

/* by the trace: seconds of the longest rank, and means over the first ranks of all roles as fractions of a step */
double figures_step_s(const struct seen *x);
double figures_bubble(const struct seen *x);
double figures_exposed(const struct seen *x);
/* Asserts that `waiting` says of every role what the first of its ranks does in the trace: pauses that transfers ran in,
 * the others, and because of which roles. */
void figures_check_waiting(const struct seen *x);
/* by the programs' text: bytes of the arena on the fullest rank's device, and the first such rank */
double figures_peak_bytes(const struct seen *x);
double figures_peak_rank(const struct seen *x);

#endif
