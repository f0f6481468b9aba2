/* Transitions in use: modulo a prime, one plan of a drawn pair trains for a step, its state goes over, and the other plan's next
 * step finds everything as it would be had a single rank trained all along.
 *
 * Both plans keep every number in the same format, or there is no transition, and the field knows no rounding, so layouts that
 * add in another order or send in another format agree word for word.
 *
 *   TRANSITIONS=N draws N pairs; TRANSITION=SEED that one. */

#include "compiler/execute/exact.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/transition/mutants.h"
#include "tests/compiler/transition/pairs.h"
#include "tests/compiler/transition/shadow.h"
#include "tests/draws.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAIRS = 300, FEW_PAIRS = 12, QUICK_PAIRS = 4, FAULTS = 100, FEW_FAULTS = 8, QUICK_FAULTS = 4, EACH = 4, ORDERS = 16 };

struct tally {
    uint64_t pairs, lost, elements, ninsns;
};

/* a pair, its transition, and what a single rank computes */
struct course {
    struct pair p;
    struct transition *t;
    struct plan *one;
    struct exact_truth *truth;
};

static void blame(const struct pair *p, const char *why)
{
    printf("\n    %s: %.600s", p->what, why);
    fflush(stdout);
    CU_FAIL("a transition is wrong");
}

/* false: no run to compare, because what a lost node alone had is gone, or because a token beyond a rank's room for experts' rows
 * ends the run, as it may where the job says how much room that is */
static bool goes_over(struct arena *a, struct course *c)
{
    struct error error = {""};
    if (c->p.from->job->train.expert_room > 0)
        return false;
    bool made = transition_make(a, c->p.from, c->p.to, c->p.lost, &c->t, &error) == STATUS_OK;
    CU_ASSERT(made || c->p.lost != NONE);
    return made;
}

/* false: this draw has nothing to go over from or to; release with close_course() in both cases */
static bool open_course(struct arena *a, uint64_t seed, struct course *c)
{
    const char *why = "";
    *c = (struct course){0};
    if (!pair_draw(a, seed, &c->p) || !goes_over(a, c))
        return false;
    struct topo *host = random_host(a, 1);
    struct decision alone = layout_alone(a, c->p.from->job, host);
    c->one = compile_decision(a, c->p.from->job, host, &alone, &(struct compile_options){0}, &why);
    c->truth = c->one ? exact_truth(a, c->one, &why) : NULL;
    if (!c->truth)
        blame(&c->p, why);
    return c->truth != NULL;
}

static void close_course(struct course *c)
{
    if (c->one)
        plan_close(c->one);
    transition_close(c->t);
    pair_close(&c->p);
}

static void check_pair(struct arena *a, const struct course *c, uint64_t seed, struct tally *tally)
{
    struct exact_result r = exact_transition(a, c->t, c->truth, seed);
    if (r.why)
        blame(&c->p, r.why);
    tally->pairs++;
    tally->lost += c->p.lost != NONE;
    tally->elements += r.elements;
    tally->ninsns += r.ninsns;
}

static void test_pairs(void)
{
    const char *only = getenv("TRANSITION"), *wanted = getenv("TRANSITIONS");
    uint64_t n = only ? 1 : wanted ? strtoull(wanted, NULL, 10) : test_draws_usual(PAIRS, FEW_PAIRS, QUICK_PAIRS);
    struct tally tally = {0};
    for (uint64_t seed = only ? strtoull(only, NULL, 10) : 1; tally.pairs < n; seed++) {
        struct arena *a = arena_new();
        struct course c;
        if (open_course(a, seed, &c))
            check_pair(a, &c, seed, &tally);
        if (only)
            printf("\n    %s", c.p.what);
        close_course(&c);
        arena_free(a);
        if (only)
            break;
    }
    printf("\n    %llu pairs, %llu with a lost node; %llu instructions, %llu numbers equal ", (unsigned long long)tally.pairs,
           (unsigned long long)tally.lost, (unsigned long long)tally.ninsns, (unsigned long long)tally.elements);
}

/* ---- it can fail ---- */

/* a fault in what a rank does: its transition, but for that, is one that the loader takes */
static bool draw_fault(struct arena *a, const struct course *c, uint64_t *random, struct transition *m)
{
    struct error error = {""};
    if (!fault_make(a, c->t, (enum fault)random_below(random, FAULT_SEATS), random, m))
        return false;
    for (uint32_t i = 0; i < m->nroles; i++)
        if (program_check(m->programs[i], &error) != STATUS_OK)
            return false;
    return ranks_check(m->ranks, (const struct program *const *)m->programs, &error) == STATUS_OK;
}

/* Two instructions that write the same bytes do harm in some orders only. */
static const char *shadow_harm(struct arena *a, const struct transition *m, uint64_t *random)
{
    const char *why = NULL;
    for (uint32_t i = 0; i < ORDERS && !why; i++) {
        struct shadow *s = shadow_new(m, NULL);
        why = shadow_run(s, random);
        why = why ? why : shadow_lost(a, s);
        shadow_free(s);
    }
    return why;
}

static const char *exact_harm(struct arena *a, const struct course *c, const struct transition *m, uint32_t orders)
{
    const char *why = NULL;
    for (uint64_t seed = 1; seed <= orders && !why; seed++)
        why = exact_transition(a, m, c->truth, seed).why;
    return why;
}

struct found {
    uint32_t made, harmful, found;
};

static void judge(const struct course *c, uint64_t *random, struct found *f)
{
    struct arena *a = arena_new();
    struct transition m;
    if (draw_fault(a, c, random, &m)) {
        const char *harm = shadow_harm(a, &m, random), *differs = exact_harm(a, c, &m, harm ? ORDERS : 1);
        f->made++;
        f->harmful += harm != NULL;
        f->found += differs != NULL;
        if (!harm != !differs)
            blame(&c->p, harm ? arena_printf(a, "nothing differs, but %s", harm) : differs);
    }
    fault_free(c->t, &m);
    arena_free(a);
}

/* A fault shows in use if, and only if, something that a step needs is not in its place on shadow memory.  Odd seeds, whose models
 * are small. */
static void test_faults(void)
{
    struct found f = {0};
    uint32_t n = test_draws_usual(FAULTS, FEW_FAULTS, QUICK_FAULTS);
    for (uint64_t seed = 20001; f.made < n; seed += 2) {
        struct arena *a = arena_new();
        struct course c;
        uint64_t random = seed;
        if (open_course(a, seed, &c))
            for (uint32_t k = 0; k < EACH; k++)
                judge(&c, &random, &f);
        close_course(&c);
        arena_free(a);
    }
    printf("%u made, %u of them harmful, %u found ", f.made, f.harmful, f.found);
    CU_ASSERT(f.found > 0);
}

void suite_transition_exact(void);
void suite_transition_exact(void)
{
    CU_pSuite s = CU_add_suite("transition_exact", NULL, NULL);
    CU_add_test(s, "after a transition a step computes what one rank computes, modulo a prime", test_pairs);
    CU_add_test(s, "faults of transitions differ from one rank", test_faults);
}
