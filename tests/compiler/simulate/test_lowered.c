/* The simulator on real lowered programs under unit costs: bubbles and step against their closed forms,
 * exactly. */

#include "tests/compiler/inspect/fixture.h"

#include <CUnit/Basic.h>

static void check(const struct fixture *f, int64_t step_ns)
{
    struct arena *a = arena_new();
    struct plan *p = fixture_plan(a, f);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_EQUAL(p->timeline->step_ns, step_ns);
    int64_t idle = 0;
    for (uint32_t r = 0; r < p->nroles; r++) {
        const struct sim_role *role = &p->timeline->roles[r];
        int64_t sum = role->busy_ns;
        for (int k = 0; k < NIDLE; k++)
            sum += role->idle_ns[k];
        CU_ASSERT_EQUAL(sum, p->timeline->step_ns);
        CU_ASSERT(role->peak_live_bytes <= p->train[r]->arena_bytes);
        idle += sum - role->busy_ns;
    }
    if (f->c_ns == 0) {
        uint32_t m = f->microbatches;
        CU_ASSERT_EQUAL(p->timeline->bubble_fraction, (double)(f->pp - 1) / (m + f->pp - 1));
        CU_ASSERT_EQUAL(idle * (m + f->pp - 1), (int64_t)(f->pp - 1) * step_ns * f->pp);
    }
    plan_close(p);
    arena_free(a);
}

static void test_bubbles(void)
{
    for (uint32_t p = 1; p <= 8; p *= 2) {
        for (uint32_t m = 1; m <= 17; m += 4) {
            struct fixture f = {
                .tp = 1, .pp = p, .dp = 1, .microbatches = m, .unit = true, .f_ns = 1000, .b_ns = 2000};
            f.schedule = SCHED_GPIPE;
            check(&f, (m + p - 1) * 3000);
            f.schedule = SCHED_1F1B;
            check(&f, (m + p - 1) * 3000);
        }
    }
    struct fixture mixed = {.tp = 2,
                            .pp = 2,
                            .dp = 2,
                            .zero = 1,
                            .sp = true,
                            .microbatches = 6,
                            .unit = true,
                            .f_ns = 1000,
                            .b_ns = 2000,
                            .schedule = SCHED_1F1B};
    check(&mixed, 7 * 3000);
}

/* Closed form: (m+p-1)(F+X) + 2c[(p-1)m/p + p-2] for p | m */
static void test_transfers(void)
{
    for (uint32_t p = 2; p <= 8; p *= 2) {
        for (uint32_t m = p; m <= 3 * p; m += p) {
            struct fixture f = {.tp = 1,
                                .pp = p,
                                .dp = 1,
                                .microbatches = m,
                                .unit = true,
                                .f_ns = 1000,
                                .b_ns = 2000,
                                .c_ns = 50,
                                .schedule = SCHED_1F1B};
            check(&f, (m + p - 1) * 3000 + 100 * ((p - 1) * (m / p) + p - 2));
        }
    }
}

/* With predicted costs and uneven stages: actions, given the stages' compute and transfer times, agree with the
 * instructions up to the end of the last backward within 1 %. */
static void test_two_simulators(void)
{
    const enum schedule_kind kinds[] = {SCHED_GPIPE, SCHED_1F1B};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct arena *a = arena_new();
        struct fixture f = {.tp = 1, .pp = 4, .dp = 1, .microbatches = 8, .schedule = kinds[k]};
        struct plan *p = fixture_plan(a, &f);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        struct pipeline_stage stages[4] = {{0}};
        double end_s = 0;
        for (uint32_t r = 0; r < p->nroles; r++) {
            const struct sim_role *role = &p->timeline->roles[r];
            for (uint32_t i = 0; i < role->ninsns; i++) {
                const struct insn *n = &p->train[r]->insns[i];
                double seconds = (double)(role->insns[i].end_ns - role->insns[i].start_ns) * 1e-9;
                double at_s = (double)(role->insns[i].end_ns - role->begin_ns) * 1e-9;
                if (n->op == OP_SEND && n->action == 'F')
                    stages[r].next_s = stages[r + 1].back_s = seconds;
                if (n->queue != QUEUE_COMPUTE || (n->action != 'F' && n->action != 'B'))
                    continue;
                *(n->action == 'F' ? &stages[r].forward_s : &stages[r].backward_s) += seconds / f.microbatches;
                end_s = at_s > end_s ? at_s : end_s;
            }
        }
        struct pipeline_times times = {.stages = stages};
        double actions_s = simulate_actions(a, schedule_new(a, &p->decision), &times, NULL, NULL);
        CU_ASSERT_DOUBLE_EQUAL(actions_s, end_s, 0.01 * end_s);
        plan_close(p);
        arena_free(a);
    }
}

void suite_simulate_lowered(void);
void suite_simulate_lowered(void)
{
    CU_pSuite s = CU_add_suite("simulate_lowered", NULL, NULL);
    CU_add_test(s, "bubbles of lowered plans", test_bubbles);
    CU_add_test(s, "transfer time of lowered plans", test_transfers);
    CU_add_test(s, "actions and instructions agree", test_two_simulators);
}
