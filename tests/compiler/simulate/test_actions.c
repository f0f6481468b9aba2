/* Run of actions against closed forms (whole numbers of seconds, so equality is exact). */

#include "compiler/simulate/simulate.h"

#include <CUnit/Basic.h>

static double run(enum schedule_kind kind, uint32_t p, uint32_t m, double f, double x, double c)
{
    struct arena *a = arena_new();
    struct decision d = {.pp = p, .vpp = 1, .microbatches = m, .nstages = p, .schedule = kind};
    double forward[16], backward[16], transfer[16];
    for (uint32_t i = 0; i < p; i++)
        forward[i] = f, backward[i] = x, transfer[i] = c;
    double t = simulate_actions(a, schedule_new(a, &d), forward, backward, transfer);
    arena_free(a);
    return t;
}

static void test_bubbles(void)
{
    for (uint32_t p = 1; p <= 8; p++) {
        for (uint32_t m = 1; m <= 3 * p; m++) {
            CU_ASSERT_EQUAL(run(SCHED_GPIPE, p, m, 3, 7, 0), (m + p - 1) * 10.0);
            CU_ASSERT_EQUAL(run(SCHED_1F1B, p, m, 3, 7, 0), (m + p - 1) * 10.0);
            CU_ASSERT_EQUAL(run(SCHED_EAGER_1F1B, p, m, 3, 7, 0), (m + p - 1) * 10.0);
        }
    }
}

/* with transfers: (m+p-1)(F+X) + 2c[(p-1)m/p + p-2] for p | m, and 2c(p-1) for the eager order */
static void test_transfers(void)
{
    for (uint32_t p = 2; p <= 8; p++) {
        for (uint32_t m = p; m <= 4 * p; m += p) {
            double hops = (p - 1) * (m / p) + p - 2;
            CU_ASSERT_EQUAL(run(SCHED_1F1B, p, m, 100, 200, 5), (m + p - 1) * 300.0 + 10 * hops);
            CU_ASSERT_EQUAL(run(SCHED_EAGER_1F1B, p, m, 100, 200, 5), (m + p - 1) * 300.0 + 10.0 * (p - 1));
        }
    }
}

void suite_actions(void);
void suite_actions(void)
{
    CU_pSuite s = CU_add_suite("actions", NULL, NULL);
    CU_add_test(s, "bubbles", test_bubbles);
    CU_add_test(s, "transfer time", test_transfers);
}
