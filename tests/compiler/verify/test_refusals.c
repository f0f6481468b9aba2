/* For every rule of the verifier a plan that it refuses, with the rule's own message first.
 *
 * refusals_bases.def has plans that are right; a case of refusals.def changes the text of one's programs, so
 * that what a rule forbids is there and as little else as possible.  A case fails when its rule does not
 * fire, and the last test when a rule has no case: it reads the messages' format strings out of the
 * verifier's source.  Where a rule is a second line behind another, the table says so. */

#include "compiler/place/place.h"
#include "compiler/support/vec.h"
#include "compiler/verify/prove.h"
#include "compiler/verify/reference.h"
#include "runtime/program_share.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/alter.h"
#include "tests/compiler/verify/refusals.h"
#include "tests/formats.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum {
#define BASE(name, job, decision) BASE_##name,
#include "tests/compiler/verify/refusals_bases.def"
#undef BASE
    NBASES
};
static const struct {
    const char *name, *job, *decision;
} bases[NBASES] = {
#define BASE(name, job, decision) {#name, job, decision},
#include "tests/compiler/verify/refusals_bases.def"
#undef BASE
};

struct refused {
    int base;
    enum by by;
    const char *message; /* part of it */
    struct alteration alterations[MOST_ALTERATIONS];
};
static const struct refused cases[] = {
#define REFUSED(base, message, ...) {BASE_##base, BY_VERIFY, message, {__VA_ARGS__}},
#define UNFOLDED(base, message, ...) {BASE_##base, BY_UNFOLDING, message, {__VA_ARGS__}},
#define RUN(base, message, ...) {BASE_##base, BY_RUNNING, message, {__VA_ARGS__}},
#define VALUES(base, message, ...) {BASE_##base, BY_VALUES, message, {__VA_ARGS__}},
#define CARRIED(base, message, ...) {BASE_##base, BY_CARRIED, message, {__VA_ARGS__}},
#define SKEWED(base, message, ...) {BASE_##base, BY_SKEW, message, {__VA_ARGS__}},
#include "tests/compiler/verify/refusals.def"
#undef REFUSED
#undef UNFOLDED
#undef RUN
#undef CARRIED
#undef SKEWED
#undef VALUES
};

/* ---- plans, made once ---- */

struct plans {
    struct arena *arena;
    struct plan *plan[NBASES];
    VEC(const char *) messages; /* of what was refused */
    bool excused[64];           /* rows of refusals_unreached[] whose format the source has */
};

/* every buffer on bytes of its own, first host memory, then what outlives the step, then the rest: what an altered operand
 * reads was not overwritten by a buffer that placement put there */
static void lay_apart(struct program *p, uint64_t host_bytes)
{
    uint64_t end = 0;
    p->nplaces = 0;
    for (int round = 0; round < 3; round++) {
        for (uint32_t b = 0; b < p->nbuffers; b++) {
            struct buffer *x = &p->buffers[b];
            if (round != (x->host ? 0 : x->kind == BUFFER_STEP ? 2 : 1))
                continue;
            x->scattered = false;
            x->place = 0;
            x->offset = end;
            end = (end + x->bytes + 255) / 256 * 256;
        }
        end = end > host_bytes ? end : host_bytes;
    }
    p->arena_bytes = end;
}

/* with all lives of a buffer in one place, so that altered operands say which buffer they mean, and no more */
static struct plan *base_plan(struct arena *a, int k)
{
    struct plan *p = text_plan(a, bases[k].job, bases[k].decision);
    struct cost *cost;
    struct plan *lowered = compile_lowered(a, p->job, p->topo, &p->decision, &(struct compile_options){0}, false, &cost);
    for (uint32_t r = 0; r < p->nroles; r++) {
        struct program **from[] = {&lowered->train[r], &lowered->eval[r]}, **to[] = {&p->train[r], &p->eval[r]};
        for (int i = 0; i < 2; i++) {
            struct program *q = *from[i];
            *from[i] = *to[i];
            *to[i] = q;
            program_unshare(q);
            lay_apart(q, i ? program_host_bytes(p->train[r]) : 0);
        }
    }
    plan_close(lowered);
    return p;
}

static const struct plan *base(struct plans *s, int k)
{
    if (!s->plan[k]) {
        s->plan[k] = base_plan(s->arena, k);
        CU_ASSERT_EQUAL(verify_plan(s->arena, s->plan[k], true)->nviolations, 0);
    }
    return s->plan[k];
}

/* what is said first, NULL: nothing */
static const char *said(struct arena *a, const struct plan *p, enum by by)
{
    struct verdict own = {0}, *v = &own;
    const char *cannot = NULL;
    switch (by) {
    case BY_VERIFY:
        v = verify_plan(a, p, false);
        break;
    case BY_UNFOLDING:
    case BY_RUNNING:
        prove_full(a, p, by == BY_RUNNING, v);
        break;
    case BY_MEMORY:
        verify_memory(a, p, v);
        break;
    case BY_SKEW:
        verify_skew(a, p, v);
        break;
    case BY_CARRIED:
        verify_job_tables(a, p, v);
        break;
    case BY_VALUES:
        verify_training(a, p, v);
        verify_evaluation(a, p, v);
        break;
    case BY_REFERENCE:
        reference_new(a, p->job, &p->decision, &cannot);
        return cannot;
    }
    return v->nviolations ? v->violations[0].message : NULL;
}

static void expect(struct plans *s, const struct plan *p, enum by by, const char *message, const char *name,
                   const char *what)
{
    struct arena *a = arena_new();
    const char *first = said(a, p, by);
    bool refused = first && strstr(first, message);
    CU_ASSERT(refused);
    if (!refused)
        printf("\n    %s, %s: \"%s\", not \"%s\"", name, what, first ? first : "accepted", message);
    if (first)
        vec_push(s->arena, &s->messages, arena_strdup(s->arena, first));
    arena_free(a);
}

static void refuse_cases(struct plans *s)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct refused *c = &cases[i];
        const struct plan *p = base(s, c->base);
        struct arena *a = arena_new();
        const char *why;
        struct plan *q = alter_plan(a, p, c->alterations, &why);
        CU_ASSERT_PTR_NOT_NULL(q);
        if (!q)
            printf("\n    %s, %s: %s", bases[c->base].name, c->alterations[0].line, why);
        if (q) {
            expect(s, q, c->by, c->message, bases[c->base].name, c->alterations[0].line);
            altered_free(q, p);
        }
        arena_free(a);
    }
}

/* ---- what the text of programs does not say ---- */

static void refuse_by_hand(struct plans *s)
{
    for (size_t i = 0; refusals_by_hand[i].base; i++) {
        const struct by_hand *h = &refusals_by_hand[i];
        int k = 0;
        while (k < NBASES && strcmp(bases[k].name, h->base) != 0)
            k++;
        CU_ASSERT_FATAL(k < NBASES);
        struct arena *a = arena_new();
        struct plan *p = base_plan(a, k);
        h->change(a, p);
        expect(s, p, h->by, h->message, h->base, "by hand");
        plan_close(p);
        arena_free(a);
    }
}

/* ---- every message of the verifier's source ---- */

static void need_case(struct plans *s, const char *file, const char *format)
{
    bool words, found = false;
    formats_fit(format, "", &words);
    for (size_t i = 0; words && i < s->messages.n && !found; i++)
        found = formats_fit(format, s->messages.at[i], &words);
    for (size_t i = 0; refusals_unreached[i].format; i++)
        if (!strcmp(refusals_unreached[i].format, format))
            found = s->excused[i] = true;
    CU_ASSERT(found || !words);
    if (words && !found)
        printf("\n    %s: no case for \"%s\"", file, format);
}

struct source_file {
    struct plans *plans;
    const char *name, *call;
};

static bool take_format(void *context, const char *format)
{
    const struct source_file *f = context;
    if (strchr(format, ' '))
        need_case(f->plans, f->name, format);
    return !strcmp(f->call, "fail_start("); /* that has its sentence in another place */
}

/* literals of a call that reports, and reasons that functions return to one that does */
static void read_source(struct plans *s, const char *file, const char *text)
{
    static const char *const calls[] = {"conserve_fail(", "conserve_fail_inputs(", "fail_start(",
                                        "prove_report(",  "return arena_printf(",  "return \""};
    for (size_t k = 0; k < ARRAY_LEN(calls); k++)
        formats_of_calls(s->arena, text, calls[k], take_format, &(struct source_file){s, file, calls[k]});
}

static void read_sources(struct plans *s)
{
    static const char folder[] = "compiler/verify";
    DIR *d = opendir(folder);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    uint32_t nfiles = 0;
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n < 2 || strcmp(e->d_name + n - 2, ".c") != 0)
            continue;
        const char *text = formats_read(s->arena, arena_printf(s->arena, "%s/%s", folder, e->d_name));
        read_source(s, e->d_name, text);
        nfiles++;
    }
    closedir(d);
    CU_ASSERT(nfiles > 30);
}

/* no excuse may stand for a message that has a case, or that the source no longer has */
static void check_excuses(struct plans *s)
{
    bool words;
    for (size_t k = 0; refusals_unreached[k].format; k++) {
        CU_ASSERT_FATAL(k < ARRAY_LEN(s->excused));
        CU_ASSERT(s->excused[k]);
        if (!s->excused[k])
            printf("\n    \"%s\" is no message of the verifier", refusals_unreached[k].format);
        for (size_t i = 0; i < s->messages.n; i++) {
            bool fit = formats_fit(refusals_unreached[k].format, s->messages.at[i], &words);
            CU_ASSERT(!words || !fit);
            if (words && fit)
                printf("\n    \"%s\" has a case: %s", refusals_unreached[k].format, s->messages.at[i]);
        }
    }
}

static void test_refusals(void)
{
    struct plans s = {.arena = arena_new()};
    refuse_cases(&s);
    refuse_by_hand(&s);
    read_sources(&s);
    check_excuses(&s);
    for (int k = 0; k < NBASES; k++)
        if (s.plan[k])
            plan_close(s.plan[k]);
    arena_free(s.arena);
}

void suite_refusals(void);
void suite_refusals(void)
{
    CU_pSuite s = CU_add_suite("refusals", NULL, NULL);
    CU_add_test(s, "every rule refuses a plan", test_refusals);
}
