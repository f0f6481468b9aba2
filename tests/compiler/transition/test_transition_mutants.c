/* Thousands of faults in transitions: the proof refuses each, or what comes of it on shadow memory is all the same. */

#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/transition/mutants.h"
#include "tests/compiler/transition/pairs.h"
#include "tests/compiler/transition/shadow.h"
#include "tests/draws.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MUTANTS = 6000, QUICK_MUTANTS = 500, EACH = 100, RUNS = 3 };

struct tally {
    uint32_t made, killed, equivalent, alive;
};

/* NULL: in several orders, every element that matters is where it would be without the fault.  Where ranks are is nothing that
 * shadow memory knows. */
static const char *harm(struct arena *a, const struct transition *m, enum fault kind, uint64_t *random)
{
    const char *why = kind == FAULT_GPU ? "a rank is not where its memory is" : NULL;
    for (uint32_t i = 0; i < RUNS && !why; i++) {
        struct shadow *s = shadow_new(m, NULL);
        why = shadow_run(s, random);
        why = why ? why : shadow_wrong(a, s);
        shadow_free(s);
    }
    return why;
}

static void judge(const struct pair *p, const struct transition *t, enum fault kind, uint64_t *random, struct tally *tally)
{
    struct arena *a = arena_new();
    struct transition m;
    if (fault_make(a, t, kind, random, &m)) {
        const struct verdict *v = transition_prove(a, &m);
        const char *why = v->nviolations ? NULL : harm(a, &m, kind, random);
        tally->made++;
        tally->killed += v->nviolations > 0;
        tally->equivalent += !v->nviolations && !why;
        tally->alive += why != NULL;
        if (why)
            printf("\n    %s: %s is proved, but %s", p->what, fault_name(kind), why);
    }
    fault_free(t, &m);
    arena_free(a);
}

static uint32_t mutate_pair(struct arena *a, const struct pair *p, uint64_t seed, struct tally *tallies)
{
    struct transition *t = NULL;
    struct error error = {""};
    uint32_t made = 0;
    if (transition_make(a, p->from, p->to, p->lost, &t, &error) == STATUS_OK)
        for (uint32_t draws = 0; draws < 3 * EACH && made < EACH; draws++) {
            enum fault kind = (enum fault)random_below(&seed, NFAULTS);
            uint32_t before = tallies[kind].made;
            judge(p, t, kind, &seed, &tallies[kind]);
            made += tallies[kind].made - before;
        }
    transition_close(t);
    return made;
}

static void test_mutants(void)
{
    struct tally tallies[NFAULTS] = {0}, sum = {0};
    const char *wanted = getenv("TRANSITIONS");
    uint64_t n = wanted ? strtoull(wanted, NULL, 10) : test_draws(MUTANTS, QUICK_MUTANTS), made = 0;
    for (uint64_t seed = 9000; made < n; seed++) {
        struct arena *a = arena_new();
        struct pair p;
        if (pair_draw(a, seed, &p))
            made += mutate_pair(a, &p, seed, tallies);
        pair_close(&p);
        arena_free(a);
    }
    printf("\n    %-20s %6s %6s %10s %6s\n", "fault", "made", "killed", "equivalent", "alive");
    for (int k = 0; k < NFAULTS; k++) {
        const struct tally *t = &tallies[k];
        printf("    %-20s %6u %6u %10u %6u\n", fault_name((enum fault)k), t->made, t->killed, t->equivalent, t->alive);
        CU_ASSERT(t->killed > 0);
        sum.made += t->made;
        sum.killed += t->killed;
        sum.equivalent += t->equivalent;
        sum.alive += t->alive;
    }
    printf("    %-20s %6u %6u %10u %6u\n  ", "all", sum.made, sum.killed, sum.equivalent, sum.alive);
    CU_ASSERT_EQUAL(sum.alive, 0);
    CU_ASSERT_EQUAL(sum.killed + sum.equivalent, sum.made);
}

void suite_transition_mutants(void);
void suite_transition_mutants(void)
{
    CU_pSuite s = CU_add_suite("transition_mutants", NULL, NULL);
    CU_add_test(s, "faults in transitions are refused", test_mutants);
}
