/* Transitions between drawn plans of a job: made, proved, and run on shadow memory (shadow.h), which must end with all of the new
 * plan's state in its place.
 *
 *   TRANSITIONS=N draws N pairs; TRANSITION=SEED that one. */

#include "compiler/verify/verify.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/transition/pairs.h"
#include "tests/compiler/transition/shadow.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS = 300, QUICK_PAIRS = 30 };

struct tally {
    uint64_t pairs, lost, gone, messages, insns, roles, ranks;
};

static void blame(const struct pair *p, const char *why)
{
    printf("\n    %s: %.600s", p->what, why);
    fflush(stdout);
    CU_FAIL("a transition is wrong");
}

/* made and proved; NULL, after saying why, where it is neither that nor a loss that nobody can make good */
static struct transition *make(struct arena *a, const struct pair *p, struct tally *tally)
{
    struct transition *t = NULL;
    struct error error = {""};
    enum status s = transition_make(a, p->from, p->to, p->lost, &t, &error);
    if (s == STATUS_NO_PLAN && p->lost != NONE && strstr(error.text, "that no other node has")) {
        tally->gone++;
        if (!shadow_lacks(p->from, p->lost, p->to))
            blame(p, "it says that state is lost, and it is not");
    } else if (s != STATUS_OK) {
        blame(p, error.text);
    } else {
        const struct verdict *v = transition_prove(a, t);
        if (!v->nviolations)
            return t;
        blame(p, v->violations[0].message);
    }
    transition_close(t);
    return NULL;
}

/* runs it behind `before`, if that is not NULL; the caller frees what is left */
static struct shadow *run(struct arena *a, const struct pair *p, const struct transition *t, const struct shadow *before,
                          uint64_t *random)
{
    struct shadow *s = shadow_new(t, before);
    const char *why = shadow_run(s, random);
    why = why ? why : shadow_wrong(a, s);
    if (why)
        blame(p, why);
    return s;
}

/* back to the first plan, on the memory that the first transition left */
static void run_back(struct arena *a, const struct pair *p, const struct shadow *there, uint64_t *random)
{
    struct tally tally = {0};
    struct pair back = {p->to, p->from, NONE, p->what};
    struct transition *t = make(a, &back, &tally);
    if (t)
        shadow_free(run(a, &back, t, there, random));
    transition_close(t);
}

static void check_pair(struct arena *a, const struct pair *p, uint64_t seed, struct tally *tally)
{
    struct transition *t = make(a, p, tally);
    tally->pairs++;
    tally->lost += p->lost != NONE;
    if (!t)
        return;
    struct transition_cost cost = transition_cost(t);
    struct shadow *s = run(a, p, t, NULL, &seed);
    if (p->lost == NONE)
        run_back(a, p, s, &seed);
    shadow_free(s);
    tally->messages += cost.messages;
    tally->roles += t->nroles;
    tally->ranks += t->ranks->nranks;
    for (uint32_t i = 0; i < t->ranks->nranks; i++)
        tally->insns += t->programs[t->ranks->ranks[i].role]->ninsns;
    transition_close(t);
}

static void test_pairs(void)
{
    const char *only = getenv("TRANSITION"), *wanted = getenv("TRANSITIONS");
    uint64_t n = only ? 1 : wanted ? strtoull(wanted, NULL, 10) : test_draws(PAIRS, QUICK_PAIRS);
    struct tally tally = {0};
    for (uint64_t seed = only ? strtoull(only, NULL, 10) : 1; tally.pairs < n; seed++) {
        struct arena *a = arena_new();
        struct pair p;
        if (pair_draw(a, seed, &p) && only)
            printf("\n    %s", p.what);
        fflush(stdout);
        if (p.from)
            check_pair(a, &p, seed, &tally);
        pair_close(&p);
        arena_free(a);
        if (only)
            break;
    }
    printf("\n    %llu pairs, %llu with a lost node, of which %llu took state with them; %llu ranks of %llu roles, %llu "
           "messages, %llu instructions ",
           (unsigned long long)tally.pairs, (unsigned long long)tally.lost, (unsigned long long)tally.gone,
           (unsigned long long)tally.ranks, (unsigned long long)tally.roles, (unsigned long long)tally.messages,
           (unsigned long long)tally.insns);
    CU_ASSERT(only || tally.messages > 0);
}

/* Every rank has its own state, also where others have it in other pieces, so nothing is sent. */
static void check_itself(struct arena *a, const struct pair *p)
{
    struct tally tally = {0};
    struct pair same = {p->from, p->from, NONE, p->what};
    struct transition *t = make(a, &same, &tally);
    if (t && transition_cost(t).messages)
        blame(p, "to move a plan to itself takes messages");
    transition_close(t);
}

static bool same_programs(const struct program *x, const struct program *y)
{
    uint8_t *a = NULL, *b = NULL;
    size_t n = 0, m = 1;
    bool fine = program_encode(x, &a, &n) == STATUS_OK && program_encode(y, &b, &m) == STATUS_OK && n == m &&
                !memcmp(a, b, n);
    free(a);
    free(b);
    return fine;
}

static bool same_ranks(const struct ranks *x, const struct ranks *y)
{
    return x->nranks == y->nranks && x->nroles == y->nroles && x->nvalues == y->nvalues && x->ngroups == y->ngroups &&
           !memcmp(x->ranks, y->ranks, x->nranks * sizeof *x->ranks) &&
           (!x->nvalues || !memcmp(x->values, y->values, x->nvalues * sizeof *x->values));
}

/* written and read again, it is the same, and still proved */
static void check_folder(struct arena *a, const char *dir, const struct pair *p)
{
    struct tally tally = {0};
    struct error error = {""};
    struct transition *t = make(a, p, &tally), *read = NULL;
    bool fine = !t || (transition_write(t, dir, false, &error) == STATUS_OK &&
                       transition_read(a, dir, p->from, p->to, &read, &error) == STATUS_OK);
    if (t && fine) {
        fine = t->lost == read->lost && t->nroles == read->nroles && same_ranks(t->ranks, read->ranks) &&
               !memcmp(t->seats, read->seats, t->ranks->nranks * sizeof *t->seats);
        for (uint32_t i = 0; i < t->nroles && fine; i++)
            fine = same_programs(t->programs[i], read->programs[i]);
        fine = fine && !transition_prove(a, read)->nviolations;
    }
    if (!fine)
        blame(p, error.text[0] ? error.text : "a folder is read as another transition");
    transition_close(read);
    transition_close(t);
}

static void test_ends(void)
{
    uint32_t n = test_draws(60, 8), done = 0;
    char dir[E2E_PATH], path[E2E_PATH + 32];
    e2e_folder(dir, "folders");
    for (uint64_t seed = 5000; done < n; seed++) {
        struct arena *a = arena_new();
        struct pair p;
        if (pair_draw(a, seed, &p)) {
            snprintf(path, sizeof path, "%s/%u", dir, done++);
            check_itself(a, &p);
            check_folder(a, path, &p);
        }
        pair_close(&p);
        arena_free(a);
    }
}

void suite_transition(void);
void suite_transition(void)
{
    CU_pSuite s = CU_add_suite("transition", NULL, NULL);
    CU_add_test(s, "drawn pairs of plans, there and back", test_pairs);
    CU_add_test(s, "a plan to itself; folders read again", test_ends);
}
