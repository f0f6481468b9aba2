/* The simulator of instructions under unit costs against closed forms, exactly, in integers; deadlocks with
 * their sentences; live bytes. */

#include "tests/compiler/simulate/handmade.h"

#include "compiler/simulate/simulate.h"

#include <CUnit/Basic.h>
#include <string.h>

struct bench {
    struct arena *a;
    struct cost cost;
    struct schedule *s;
    struct program **programs;
    struct timeline *t;
    const char *why;
};

static struct bench start(enum schedule_kind kind, uint32_t p, uint32_t m, int64_t f, int64_t x, int64_t c)
{
    struct bench b = {.a = arena_new(), .why = ""};
    struct decision d = {.pp = p, .vpp = 1, .microbatches = m, .nstages = p, .schedule = kind};
    b.cost = (struct cost){.unit = {.on = true, .f_ns = f, .b_ns = x, .c_ns = c}};
    b.s = schedule_new(b.a, &d);
    b.programs = handmade_programs(b.a, b.s, m < 2 * p ? m : 2 * p);
    return b;
}

static void run(struct bench *b)
{
    b->t = simulate(b->a, &b->cost, (const struct program *const *)b->programs, b->s->nranks, &b->why);
}

static void finish(struct bench *b)
{
    handmade_free(b->programs, b->s->nranks);
    arena_free(b->a);
}

/* busy and all causes add up to the period, on every role and in the sums */
static void check_sums(const struct timeline *t)
{
    int64_t sums[NIDLE] = {0};
    for (uint32_t r = 0; r < t->nroles; r++) {
        const struct sim_role *role = &t->roles[r];
        int64_t idle = 0, waited = 0;
        for (uint32_t k = 0; k < NIDLE; k++) {
            idle += role->idle_ns[k];
            sums[k] += role->idle_ns[k];
            CU_ASSERT(role->idle_ns[k] >= 0);
        }
        for (uint32_t q = 0; q < t->nroles; q++)
            waited += role->waited_ns[q];
        CU_ASSERT_EQUAL(role->busy_ns + idle, t->step_ns);
        CU_ASSERT_EQUAL(waited, role->idle_ns[IDLE_WAIT] + role->idle_ns[IDLE_IMBALANCE]);
    }
    CU_ASSERT_EQUAL(memcmp(sums, t->idle_ns, sizeof sums), 0);
}

static void test_bubbles(void)
{
    const enum schedule_kind kinds[] = {SCHED_GPIPE, SCHED_1F1B, SCHED_EAGER_1F1B};
    for (uint32_t p = 1; p <= 8; p++) {
        for (uint32_t m = 1; m <= 25; m += 3) {
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
                struct bench b = start(kinds[k], p, m, 1000, 2000, 0);
                run(&b);
                CU_ASSERT_PTR_NOT_NULL_FATAL(b.t);
                CU_ASSERT_EQUAL(b.t->step_ns, (m + p - 1) * 3000);
                CU_ASSERT_EQUAL(b.t->bubble_fraction, (double)(p - 1) / (m + p - 1));
                CU_ASSERT_EQUAL(b.t->exposed_comm_fraction, 0);
                CU_ASSERT_EQUAL(b.t->idle_ns[IDLE_IMBALANCE], 0);
                check_sums(b.t);
                finish(&b);
            }
        }
    }
}

/* planners E.3: p | m; bubble and exposed transfers together are all idle time */
static void test_transfers(void)
{
    for (uint32_t p = 2; p <= 8; p++) {
        for (uint32_t m = p; m <= 4 * p; m += p) {
            struct bench b = start(SCHED_1F1B, p, m, 1000, 2000, 50);
            run(&b);
            CU_ASSERT_PTR_NOT_NULL_FATAL(b.t);
            CU_ASSERT_EQUAL(b.t->step_ns, (m + p - 1) * 3000 + 100 * ((p - 1) * (m / p) + p - 2));
            CU_ASSERT(b.t->exposed_comm_fraction > 0);
            check_sums(b.t);
            finish(&b);
            b = start(SCHED_EAGER_1F1B, p, m, 1000, 2000, 50);
            run(&b);
            CU_ASSERT_EQUAL(b.t->step_ns, (m + p - 1) * 3000 + 100 * (p - 1));
            check_sums(b.t);
            finish(&b);
        }
    }
}

/* instructions and actions agree */
static void test_actions_agree(void)
{
    for (uint32_t p = 2; p <= 6; p++) {
        for (uint32_t m = 1; m <= 20; m += 3) {
            struct bench b = start(SCHED_1F1B, p, m, 1000, 2000, 70);
            struct pipeline_stage stages[8];
            for (uint32_t i = 0; i < 8; i++)
                stages[i] = (struct pipeline_stage){
                    .forward_s = 1000, .backward_s = 2000, .next_s = 70, .back_s = 70};
            struct pipeline_times times = {.stages = stages};
            run(&b);
            CU_ASSERT_EQUAL((double)b.t->step_ns, simulate_actions(b.a, b.s, &times, NULL, NULL));
            finish(&b);
        }
    }
}

/* p = 2, m = 2, F = 10, B = 20, c = 3, worked by hand:
 *   role 0  F0 0-10  F1 10-20               B0 46-66 B1 76-96     sends y0 10-13, y1 20-23
 *   role 1           F0 13-23 B0 23-43 F1 43-53 B1 53-73          sends dx0 43-46, dx1 73-76 */
static void test_by_hand(void)
{
    struct bench b = start(SCHED_1F1B, 2, 2, 10, 20, 3);
    run(&b);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b.t);
    CU_ASSERT_EQUAL(b.t->step_ns, 96);
    const struct sim_role *first = &b.t->roles[0], *last = &b.t->roles[1];
    CU_ASSERT_EQUAL(first->idle_ns[IDLE_COMM], 3 + 3);
    CU_ASSERT_EQUAL(first->idle_ns[IDLE_WAIT], 23 + 7);
    CU_ASSERT_EQUAL(first->waited_ns[1], 30);
    CU_ASSERT_EQUAL(first->idle_ns[IDLE_WARMUP] + first->idle_ns[IDLE_COOLDOWN], 0);
    CU_ASSERT_EQUAL(last->idle_ns[IDLE_COMM], 3);
    CU_ASSERT_EQUAL(last->idle_ns[IDLE_WARMUP] + last->idle_ns[IDLE_COOLDOWN], 33);
    CU_ASSERT_EQUAL(first->last_ns - first->first_ns, 96);
    CU_ASSERT_EQUAL(last->last_ns - last->first_ns, 60);
    CU_ASSERT_EQUAL(b.t->bubble_fraction, 63.0 / 192);
    CU_ASSERT_EQUAL(b.t->exposed_comm_fraction, 9.0 / 192);
    check_sums(b.t);
    finish(&b);
}

/* Live bytes of role 0 above, 256 bytes a slot: y0 0-13, y1 10-23, dy0 43-66, dy1 73-96; dx is never sent, so
 * it dies with its definition: 46-66, 76-96. */
static void test_memory(void)
{
    struct bench b = start(SCHED_1F1B, 2, 2, 10, 20, 3);
    run(&b);
    static const struct live_point want[] = {{0, 256},  {10, 512}, {13, 256}, {23, 0},   {43, 256},
                                             {46, 512}, {66, 0},   {73, 256}, {76, 512}, {96, 0}};
    uint32_t n;
    const struct live_point *p = simulate_memory(b.a, b.programs[0], &b.t->roles[0], &n);
    CU_ASSERT_EQUAL_FATAL(n, sizeof want / sizeof *want);
    for (uint32_t i = 0; i < n; i++) {
        CU_ASSERT_EQUAL(p[i].at_ns - b.t->roles[0].begin_ns, want[i].at_ns);
        CU_ASSERT_EQUAL(p[i].bytes, want[i].bytes);
    }
    const uint64_t *at = simulate_memory_at(b.a, b.programs[0], &b.t->roles[0], b.t->roles[0].begin_ns + 50);
    const uint64_t want_at[] = {0, 0, 256, 256}; /* x, y, dy, dx */
    CU_ASSERT_EQUAL(memcmp(at, want_at, sizeof want_at), 0);
    CU_ASSERT_EQUAL(b.t->roles[0].peak_live_bytes, 512);
    CU_ASSERT_EQUAL(b.t->roles[0].peak_ns - b.t->roles[0].begin_ns, 10);
    finish(&b);
}

static void test_deadlock(void)
{
    struct bench b = start(SCHED_1F1B, 2, 2, 10, 20, 3);
    /* role 1's second forward receives from nobody */
    for (uint32_t i = 0; i < b.programs[0]->ninsns; i++) {
        struct insn *insn = &b.programs[0]->insns[i];
        if (insn->op == OP_SEND && insn->microbatch == 1) {
            insn->op = OP_FILL;
            insn->queue = QUEUE_COPY;
        }
    }
    run(&b);
    CU_ASSERT_PTR_NULL(b.t);
    CU_ASSERT_STRING_EQUAL(
        b.why, "deadlock: role 0 B1 RECV (instruction 6) waits for role 1 B1 SEND (instruction 7); "
               "role 1 F1 RECV (instruction 4) waits for a partner that has no such instruction");
    finish(&b);
}

/* the first forward waits for what the last backward waits for: a gradient of its own output */
static void test_circle(void)
{
    struct bench b = start(SCHED_1F1B, 2, 1, 10, 20, 3);
    struct program *p = b.programs[0];
    for (uint32_t i = 1; i < p->ninsns; i++)
        for (uint32_t w = p->insns[i].wait; w < p->insns[i].wait + p->insns[i].nwaits; w++)
            if (p->waits[w].queue == QUEUE_RECV) {
                p->insns[0].wait = w;
                p->insns[0].nwaits = 1;
            }
    run(&b);
    CU_ASSERT_PTR_NULL(b.t);
    CU_ASSERT_STRING_EQUAL(
        b.why, "deadlock: role 0 F0 FILL (instruction 0) waits for B0 RECV (instruction 2); "
               "role 1 F0 RECV (instruction 0) waits for role 0 F0 SEND (instruction 1)");
    finish(&b);
}

/* Of a deadlock of many roles the first six are told, each with the first of its own that is blocked. */
static void test_many_stuck(void)
{
    for (uint32_t p = 2; p <= 9; p++) {
        struct bench b = start(SCHED_1F1B, p, 1, 10, 20, 3);
        for (uint32_t i = 0; i < b.programs[0]->ninsns; i++) /* the first role's only forward is never sent */
            if (b.programs[0]->insns[i].op == OP_SEND) {
                b.programs[0]->insns[i].op = OP_FILL;
                b.programs[0]->insns[i].queue = QUEUE_COPY;
            }
        run(&b);
        const char *want = arena_printf(
            b.a,
            "deadlock: role 0 B0 RECV (instruction 2) waits for role 1 B0 SEND (instruction %u); "
            "role 1 F0 RECV (instruction 0) waits for a partner that has no such instruction",
            p == 2 ? 3 : 5);
        for (uint32_t r = 2; r < p && r < 6; r++)
            want = arena_printf(
                b.a, "%s; role %u F0 RECV (instruction 0) waits for role %u F0 SEND (instruction 2)", want, r,
                r - 1);
        want = p > 6 ? arena_printf(b.a, "%s; ...", want) : want;
        CU_ASSERT_PTR_NULL(b.t);
        CU_ASSERT_STRING_EQUAL(b.why, want);
        finish(&b);
    }
}

static void test_bad_wait(void)
{
    struct bench b = start(SCHED_1F1B, 2, 1, 10, 20, 3);
    b.programs[1]->waits[0].position = 7;
    run(&b);
    CU_ASSERT_PTR_NULL(b.t);
    CU_ASSERT_STRING_EQUAL(b.why, "role 1, instruction 1: waits for position 7 of a queue that is shorter");
    finish(&b);
}

/* a role whose forwards are n all-reduces with the other stages, one of `groups` groups after the other */
static struct program *summing_role(uint32_t role, uint32_t n, uint32_t groups)
{
    struct program *p = program_new(role, 2);
    for (uint32_t k = 0; k < groups; k++)
        program_slot(p, "group", SLOT_GROUP, AXIS_BIT(AXIS_PP) | k << 8, 2);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = program_insn(p, OP_ALL_REDUCE);
        struct insn *insn = &p->insns[at];
        p->operands[insn->operand].buffer = NONE;
        p->attrs[insn->attr + ATTR(ALL_REDUCE, group)].slot = i % groups;
        insn->queue = QUEUE_COMPUTE;
        insn->action = 'F';
        insn->microbatch = insn->seq = i;
    }
    return p;
}

/* collectives across roles: any number of them, of at most 1024 groups */
static void test_groups(void)
{
    static const struct {
        uint32_t n, groups;
        const char *why;
    } rows[] = {{5000, 2, ""}, {1024, 1024, ""}, {1025, 1025, "more than 1024 different groups span roles"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena *a = arena_new();
        struct cost c = {.unit = {.on = true, .f_ns = 7}};
        struct program *programs[2] = {summing_role(0, rows[i].n, rows[i].groups), summing_role(1, rows[i].n, rows[i].groups)};
        const char *why = "";
        struct timeline *t = simulate(a, &c, (const struct program *const *)programs, 2, &why);
        CU_ASSERT_STRING_EQUAL(why, rows[i].why);
        CU_ASSERT_EQUAL(t != NULL, !*rows[i].why);
        if (t)
            CU_ASSERT_EQUAL(t->step_ns, 7 * rows[i].n);
        handmade_free(programs, 2);
        arena_free(a);
    }
}

/* a step of no time is idle for no part of it */
static void test_no_time(void)
{
    struct bench b = start(SCHED_1F1B, 2, 2, 0, 0, 0);
    run(&b);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b.t);
    CU_ASSERT_EQUAL(b.t->step_ns, 0);
    CU_ASSERT_EQUAL(b.t->bubble_fraction, 0);
    CU_ASSERT_EQUAL(b.t->exposed_comm_fraction, 0);
    finish(&b);
}

void suite_simulate(void);
void suite_simulate(void)
{
    CU_pSuite s = CU_add_suite("simulate", NULL, NULL);
    CU_add_test(s, "bubbles of equal stages", test_bubbles);
    CU_add_test(s, "transfer time", test_transfers);
    CU_add_test(s, "actions and instructions agree", test_actions_agree);
    CU_add_test(s, "worked by hand", test_by_hand);
    CU_add_test(s, "live bytes", test_memory);
    CU_add_test(s, "deadlock is named", test_deadlock);
    CU_add_test(s, "a circle of waits is named", test_circle);
    CU_add_test(s, "deadlock of many roles", test_many_stuck);
    CU_add_test(s, "bad wait", test_bad_wait);
    CU_add_test(s, "groups across roles", test_groups);
    CU_add_test(s, "nothing takes time", test_no_time);
}
