/* Random plans on the fake device equal CPU ranks in every bit, by either transport and in every way of replaying, with
 * the device running streams in any order that events allow; no rule of CUDA or NCCL is broken and nothing is left behind;
 * faults end with one report that names rank and instruction. */

#include "tests/compiler/random_plan.h"
#include "tests/e2e/e2e.h"
#include "tests/runtime/trial.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

static struct trial on_device(const struct plan *p, enum trial_kind kind, uint64_t seed)
{
    return (struct trial){.plan = p,
                          .kind = kind,
                          .replay = (enum replay)(seed % 3),
                          .cuda = {.seed = seed % 8 ? seed : 0, .devices = kind == TRIAL_NCCL ? 16 : 1, .memory_bytes = 1u << 30},
                          .nccl = {.seed = seed % 8 ? seed : 0},
                          .trace = seed % 5 == 0,
                          .watchdog_s = 20};
}

static void blame(uint64_t seed, const struct trial *t, const char *what)
{
    static const char *const kinds[] = {"cpu", "d2d", "nccl"};
    printf("\n    plan %llu, %s, replay %d: %s; status %d %s | %s", (unsigned long long)seed, kinds[t->kind], (int)t->replay, what,
           (int)t->status, t->error, t->complaints);
    fflush(stdout);
    CU_FAIL("a plan on the fake device");
}

static void compare(uint64_t seed, const struct trial *cpu, struct trial *t)
{
    trial_run(t);
    if (!trial_equal(cpu, t))
        blame(seed, t, "differs from CPU ranks");
    if (t->complaints[0])
        blame(seed, t, "breaks a rule");
    if (t->backwards)
        blame(seed, t, "its trace runs backwards");
}

/* the same plan with room for GPUs' kernels, which are then given no other */
static struct plan *for_gpus(struct arena *a, struct plan *p)
{
    const char *why;
    p->topo->types[0].gpu.sm = 90;
    struct plan *q = compile_decision(a, p->job, p->topo, &p->decision, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(q);
    CU_ASSERT(q->train[0]->arena_bytes >= p->train[0]->arena_bytes + program_workspace_bytes(p->train[0], 90));
    plan_close(p);
    return q;
}

static void run_plans(enum trial_kind kind)
{
    uint64_t first = getenv("GANG") ? strtoull(getenv("GANG"), NULL, 10) : 1, n = getenv("GANG") ? 1 : e2e_quick() ? 12 : 100;
    for (uint64_t seed = first; seed < first + n; seed++) {
        struct arena *a = arena_new();
        struct plan *p = random_plan(a, kind == TRIAL_NCCL ? seed + 1000 : seed, 8);
        if (seed % 4 == 0)
            p = for_gpus(a, p);
        struct trial cpu = {.plan = p, .kind = TRIAL_CPU}, t = on_device(p, kind, seed);
        trial_run(&cpu);
        if (cpu.status != STATUS_OK)
            blame(seed, &cpu, "fails");
        compare(seed, &cpu, &t);
        plan_close(p);
        arena_free(a);
    }
}

static void test_d2d(void)
{
    run_plans(TRIAL_D2D);
}

static void test_nccl(void)
{
    run_plans(TRIAL_NCCL);
}

void suite_gang(void);
void suite_gang(void)
{
    CU_pSuite s = CU_add_suite("gang", NULL, NULL);
    CU_add_test(s, "random plans on one device equal CPU ranks", test_d2d);
    CU_add_test(s, "random plans by NCCL equal CPU ranks", test_nccl);
}
