#ifndef LLMC_EXECUTE_H
#define LLMC_EXECUTE_H

/* `llmc check DIR --execute`: the plan run against one rank of the same job, exactly in several orders, and
 * with real kernels by llmrun.
 *
 * What is run are the folder's own programs where that is a matter of minutes.  Else it is the same decision
 * at small dimensions, planned anew and verified; that says something of the folder only if its programs are
 * what the decision compiles to at full size, so it is done only where the folder's origin holds
 * (compiler/origin/).
 *
 * JSON: {schema, equal, executed, decision, shrunk, job, verified, exact: {equal, orders, numbers,
 * instructions, why}, real: {equal, steps, loss_error, norm_error, why}, origin}; executed is "programs",
 * "shrunk" or null; shrunk the decision at small dimensions, or null; why null where there is nothing to say.
 */

#include "compiler/llmc.h"

struct origin;
enum executed { EXECUTED_NOTHING, EXECUTED_PROGRAMS, EXECUTED_SHRUNK };
struct execution {
    enum executed what;
    const char *decision, *job;  /* what was executed, for people */
    const struct origin *origin; /* of the folder */
    const char *verified;        /* NULL, or the first violation: of the folder, and of what was planned anew */
    const char *exact;           /* NULL: equal */
    uint32_t orders;
    uint64_t numbers, ninsns;
    const char *real; /* NULL: equal, unless steps is 0: not run because of what is said above */
    uint32_t steps;
    double loss_error, norm_error; /* greatest relative differences */
};
struct execute_options {
    bool full;     /* verify with all ranks unfolded */
    bool progress; /* one line per run on stderr */
};
/* p: read from the folder `dir`.  STATUS_OK: differences are in *e.  Else one sentence in error: nothing
 * small enough is legal, or llmrun is not beside this program. */
enum status execute_plan(struct arena *a, const char *dir, const struct plan *p, const struct execute_options *o,
                         struct execution *e, struct error *error);
/* was something executed, does it equal one rank, and is the folder what its inputs give? */
bool execution_equal(const struct execution *e);
void execution_print(const struct execution *e, FILE *out);
void execution_json(const struct execution *e, FILE *out);

/* STEPS steps by llmrun of the plan, from its folder or, where dir is NULL, from a copy, and of the one
 * rank's, in a temporary folder that is removed (real.c) */
enum status execute_real(struct arena *a, const char *dir, const struct plan *p, const struct plan *one,
                         struct execution *e, struct error *error);

#endif
