/* Does an accepted fault do harm?  Asked of two oracles that share nothing with the verifier: the brute-force closure over
 * all ranks (oracle.h), and the execution of all ranks modulo a prime (compiler/execute). */

#include "compiler/execute/exact.h"
#include "tests/compiler/verify/mutate.h"
#include "tests/compiler/verify/oracle.h"

#define NSEEDS 3

const char *mutant_harm(struct arena *a, const struct mutant *m, const struct exact_truth *truth)
{
    const char *why = oracle_order(a, &m->plan, false);
    if (!why)
        why = oracle_order(a, &m->plan, true);
    for (uint64_t seed = 1; seed <= NSEEDS && !why; seed++)
        why = exact_compare(a, &m->plan, truth, seed).why;
    return why;
}
