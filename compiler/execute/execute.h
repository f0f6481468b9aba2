#ifndef LLMC_EXECUTE_H
#define LLMC_EXECUTE_H

/* `llmc check DIR --execute`: compares the plan with a single rank of the same job, exactly in several orders of
 * execution, and with real kernels by llmrun.
 *
 * The folder's own programs are run where that takes minutes at most.  Otherwise the same decision is planned again
 * at small dimensions and verified.  This says something about the folder only if its programs are what the decision
 * compiles to at full size, so it is done only where the folder's origin holds (compiler/origin/).
 *
 * JSON: {schema, equal, executed, decision, shrunk, job, verified, exact: {equal, orders, numbers, instructions,
 * why}, real: {equal, steps, loss_error, norm_error, why}, origin}.  executed is "programs", "shrunk" or null;
 * shrunk is the decision at small dimensions, or null; why is null where there is nothing to report. */

#include "compiler/llmc.h"

struct origin;
enum executed { EXECUTED_NOTHING, EXECUTED_PROGRAMS, EXECUTED_SHRUNK };
struct execution {
    enum executed what;
    const char *decision, *job;  /* what was executed, as text */
    const struct origin *origin; /* the folder's origin */
    const char *verified;        /* NULL, or the first violation, either in the folder or in what was planned again */
    const char *exact;           /* NULL: equal */
    uint32_t orders;
    uint64_t numbers, ninsns;
    const char *real; /* NULL: equal, unless steps is 0: then it was not run, because of what the fields above say */
    uint32_t steps;
    double loss_error, norm_error; /* largest relative differences */
};
struct execute_options {
    bool full;     /* verify with all ranks unfolded */
    bool progress; /* one line per run on stderr */
};
/* p: the plan read from the folder `dir`.  Returns STATUS_OK with any differences in *e.  Otherwise error has one
 * sentence: no small enough dimensions are legal, or llmrun is not in the directory of this program. */
enum status execute_plan(struct arena *a, const char *dir, const struct plan *p, const struct execute_options *o,
                         struct execution *e, struct error *error);
/* Was something executed, does it equal a single rank, and is the folder what its inputs give? */
bool execution_equal(const struct execution *e);
void execution_print(const struct execution *e, FILE *out);
void execution_json(const struct execution *e, FILE *out);

/* Trains the plan with llmrun for STEPS steps, from its folder or, where dir is NULL, from a copy, and the single
 * rank's plan likewise, in a temporary folder that is removed afterwards (real.c). */
enum status execute_real(struct arena *a, const char *dir, const struct plan *p, const struct plan *one,
                         struct execution *e, struct error *error);

#endif
