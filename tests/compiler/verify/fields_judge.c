/* Does an accepted change do harm?  Asked of what shares nothing with the verifier: the host's part
 * (fields_host.c), the brute-force closure over all ranks (oracle.h), and the execution of all ranks modulo a
 * prime under adversarial orders, which compares all metrics, gradients and updates: where experts lack room,
 * that the step says so and is not taken.
 *
 * What only people see may change.  That it changes nothing else is executed too: the first ones of every
 * field of a plan, and one of 64 behind them. */

#include "tests/compiler/verify/fields.h"
#include "tests/compiler/verify/oracle.h"

const char *fields_harm(struct arena *a, struct fields_bench *b, const struct fields_change *c)
{
    bool people = fields_for_people(b->base, c);
    if (people && b->judged++ >= fields_n && b->judged % 64)
        return NULL;
    const char *why = fields_host_harm(a, b->host, b->plan);
    if (!why && !people)
        why = oracle_order(a, b->plan, false);
    if (!why && !people)
        why = oracle_order(a, b->plan, true);
    for (uint64_t seed = 1; seed <= (people ? 1 : 3) && !why; seed++)
        why = exact_compare(a, b->plan, b->truth, seed).why;
    return why;
}
