#ifndef LLMC_EXECUTE_H
#define LLMC_EXECUTE_H

/* `llmc check DIR --execute`: the plan's structure at small dimensions, planned anew, verified, executed exactly in several
 * orders, and trained with real kernels by llmrun, all against one rank.
 *
 * JSON: {schema, equal, shrunk, job, verified, exact: {equal, orders, numbers, instructions, why}, real: {equal, steps,
 * loss_error, norm_error, why}}; why is null where there is nothing to say. */

#include "compiler/llmc.h"

struct execution {
    const char *decision, *job; /* what was executed, for people */
    const char *verified;       /* NULL, or the first violation */
    const char *exact;          /* NULL: equal */
    uint32_t orders;
    uint64_t numbers, ninsns;
    const char *real; /* NULL: equal */
    uint32_t steps;
    double loss_error, norm_error; /* greatest relative differences */
};
/* STATUS_OK: it was executed, differences are in *e.  Else one sentence in error: nothing small enough is legal, or llmrun
 * is not beside this program. */
enum status execute_plan(struct arena *a, const struct plan *p, struct execution *e, char *error, size_t error_size);
bool execution_equal(const struct execution *e);
void execution_print(const struct execution *e, FILE *out);
void execution_json(const struct execution *e, FILE *out);

/* STEPS steps by llmrun of both plans, in a temporary folder that is removed (real.c) */
enum status execute_real(struct arena *a, const struct plan *p, const struct plan *one, struct execution *e, char *error,
                         size_t error_size);

#endif
