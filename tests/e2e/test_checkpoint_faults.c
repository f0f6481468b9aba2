/* At every call by which a run changes its folder of checkpoints, the process that makes it is killed, or the call
 * fails: once, or with all that follow.  The newest generation that has its name is whole, a resumed run goes on
 * from it and ends as the undisturbed one does, and what was cut off is cleaned away.
 *
 * FAULT=PLAN:RANK:KIND:ON:AT is that one case. */

#include "tests/compiler/random_plan.h"
#include "tests/draws.h"
#include "tests/e2e/faulted.h"

#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const plans[] = {"--set gpus=2 --set pp=2", "--set gpus=4 --set dp=2 --set pp=2 --set zero=3",
                                    "--set gpus=4 --set tp=2 --set pp=2"};
enum { ALL = 1200, FEW = 60 };

struct count {
    uint32_t cases, failed;
};

static void blame(struct count *c, const struct faulted *t, int plan, const struct fault *f, const char *what)
{
    c->failed++;
    if (c->failed > 10)
        return;
    printf("\n    FAULT=%d:%d:%d:%d:%u  %s: exit %d\n    | %s", plan, f->rank, f->kind, f->on, f->at, what, t->code, t->err);
    fflush(stdout);
}

/* the newest generation, which must be whole; 0: there is none; *fine false: it is not whole */
static uint64_t newest(const struct faulted *t, bool *fine)
{
    uint64_t steps[FAULTED_MOST];
    uint32_t other, n = faulted_generations(t, steps, &other);
    char path[E2E_PATH + 16];
    snprintf(path, sizeof path, "%s/job/ck", t->dir);
    *fine = n ? faulted_find(path) == steps[n - 1] && faulted_same(t, steps[n - 1]) : true;
    return n ? steps[n - 1] : 0;
}

/* From what a disturbed run has left to the end: "" or what is wrong. */
static const char *go_on(struct faulted *t, uint64_t from)
{
    uint64_t steps[FAULTED_MOST];
    uint32_t other;
    char options[64], said[E2E_PATH + 64];
    snprintf(options, sizeof options, "--steps %d --every 1 --keep 2 --resume", FAULTED_STEPS);
    faulted_run(t, NULL, false, options);
    snprintf(said, sizeof said, from ? "resuming from %s/job/ck/step-%d\n" : "%s/job/ck has no checkpoint yet", t->dir,
             (int)from);
    if (t->code)
        return "it cannot be resumed";
    if (!strstr(t->err, said))
        return "resumed, it does not begin with the newest generation";
    if (!faulted_same(t, FAULTED_STEPS))
        return "resumed, it ends otherwise";
    uint32_t n = faulted_generations(t, steps, &other);
    return other        ? "something is left of what was cut off"
           : n > 2 ? "more generations are left than were to be kept"
                   : "";
}

/* A run that has been disturbed by an error ends well, and has said what it could not do; or it has no last
 * checkpoint, and says so with exit code 4. */
static const char *check_error(const struct faulted *t, const struct fault *f, uint64_t last)
{
    uint64_t steps[FAULTED_MOST];
    uint32_t other;
    bool whole = last == FAULTED_STEPS - 1 && faulted_same(t, last);
    faulted_generations(t, steps, &other);
    if (other && (f->kind == ENOSPC || f->kind == EDQUOT || f->kind == ENOMEM))
        return "something is left of what could not be written";
    if (t->code != 0 && t->code != 4)
        return "it neither ends well nor with exit code 4";
    if (!*t->err)
        return "it says nothing";
    if (t->code == 0)
        return whole ? "" : "it ends well without its last checkpoint";
    if (f->rank == 0)
        return strstr(t->err, "cannot make folder") ? "" : "the launcher does not say what it cannot do";
    return strstr(t->err, "the last checkpoint, of step 3, is missing\n") ? "" : "it does not say what is missing";
}

/* false: the run no longer notices */
static bool check_case(struct faulted *t, struct count *c, int plan, const struct fault *f)
{
    char options[64];
    bool fine;
    faulted_clear(t);
    snprintf(options, sizeof options, "--steps %d --every 1 --keep 2 --quiet", FAULTED_STEPS - 1);
    faulted_run(t, f, false, options);
    if (!t->reached)
        return false;
    c->cases++;
    uint64_t last = newest(t, &fine);
    const char *what = !fine                     ? "the newest generation is not whole"
                       : t->code == -1           ? "it does not end"
                       : f->kind                 ? check_error(t, f, last)
                       : f->rank && t->code != 4 ? "a rank was killed, and the run does not say so"
                                                 : "";
    if (*what)
        blame(c, t, plan, f, what);
    else if (*(what = go_on(t, last)))
        blame(c, t, plan, f, what);
    return true;
}

static void check_plan(int plan, const struct fault *kinds, size_t nkinds)
{
    struct count c = {0};
    char name[32];
    int ranks = plans[plan][strlen("--set gpus=")] - '0';
    uint32_t stride = ALL / test_draws(ALL, FEW), k = 0;
    stride = stride > 1 && !test_quick() ? 3 * stride + 1 : stride; /* no period of the calls has a part in common with it */
    snprintf(name, sizeof name, "plan-%d", plan);
    struct faulted *t = faulted_open(name, plans[plan]);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    for (size_t i = 0; i < nkinds; i++)
        for (int rank = 0; rank <= ranks; rank++)
            for (uint32_t at = 1 + k++ % stride;; at += stride) {
                struct fault f = kinds[i];
                f.rank = rank;
                f.at = at;
                if (!check_case(t, &c, plan, &f))
                    break;
            }
    CU_ASSERT_EQUAL(c.failed, 0);
    printf("(%u) ", c.cases);
    faulted_close(t);
}

static void test_deaths(void)
{
    static const struct fault kill[] = {{.kind = 0}};
    for (int plan = 0; plan < 3; plan++)
        if (plan == 0 || test_whole())
            check_plan(plan, kill, 1);
}

static void test_errors(void)
{
    static const struct fault errors[] = {{.kind = ENOSPC},         {.kind = ENOSPC, .on = 1}, {.kind = EIO},
                                          {.kind = EIO, .on = 1},   {.kind = EMFILE},          {.kind = EMFILE, .on = 1},
                                          {.kind = EDQUOT},         {.kind = ENOMEM},          {.kind = ENOMEM, .on = 1},
                                          {.kind = EROFS, .on = 1}, {.kind = EACCES}};
    check_plan(0, errors, test_whole() ? sizeof errors / sizeof *errors : 4);
    if (test_whole())
        check_plan(2, errors, 4);
}

/* ---- newest generations that are damaged ---- */

/* generations 1 to 4, of which the last two have a byte more than they should have */
static bool begin_damaged(const struct faulted *t)
{
    char log[E2E_PATH + 16];
    faulted_clear(t);
    snprintf(log, sizeof log, "%s/log", t->dir);
    return !e2e_command(log,
                        "sh -c 'cd %s && mkdir job/ck && cp -r whole/step-* job/ck && for step in 3 4; do "
                        "echo >>job/ck/step-$step/moment1/model.safetensors; done'",
                        t->dir);
}

/* The run that replaces them, and keeps one, is killed: what had been found before is still found, or something newer. */
static void test_damaged(void)
{
    struct faulted *t = faulted_open("damaged", plans[0]);
    struct count c = {0};
    char options[64], folder[E2E_PATH + 16];
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    snprintf(options, sizeof options, "--steps %d --every 1 --keep 1 --resume --quiet", FAULTED_STEPS);
    snprintf(folder, sizeof folder, "%s/job/ck", t->dir);
    for (uint32_t at = 1, stride = ALL / test_draws(ALL, FEW);; at += stride) {
        struct fault f = {.rank = 1, .at = at};
        CU_ASSERT_FATAL(begin_damaged(t));
        faulted_run(t, &f, false, options);
        if (!t->reached)
            break;
        c.cases++;
        uint64_t found = faulted_find(folder);
        const char *what = found < 2 || !faulted_same(t, found) ? "nothing that is whole is found" : go_on(t, found);
        if (*what)
            blame(&c, t, 0, &f, what);
    }
    CU_ASSERT_EQUAL(c.failed, 0);
    printf("(%u) ", c.cases);
    faulted_close(t);
}

/* A run that goes on from its last step has nothing to do, and leaves what there is alone. */
static void test_ended(void)
{
    struct faulted *t = faulted_open("ended", plans[0]);
    char log[E2E_PATH + 16], list[1024], options[64];
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    faulted_clear(t);
    snprintf(log, sizeof log, "%s/log", t->dir);
    CU_ASSERT_EQUAL(e2e_command(log, "cp -r %s/whole %s/job/ck", t->dir, t->dir), 0);
    snprintf(options, sizeof options, "--steps %d --every 1 --keep 1 --resume", FAULTED_STEPS);
    faulted_run(t, NULL, true, options);
    CU_ASSERT_EQUAL(t->code, 0);
    snprintf(log, sizeof log, "%s/list", t->dir);
    e2e_read_text(log, list, sizeof list);
    CU_ASSERT_STRING_EQUAL(list, "");
    faulted_close(t);
}

/* The launching process is killed at a drawn time, and its ranks die with it, while others already begin again. */
static void test_times(void)
{
    struct faulted *t = faulted_open("times", plans[2]);
    struct count c = {0};
    uint64_t random = 17;
    char options[64], folder[E2E_PATH + 16];
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    snprintf(options, sizeof options, "--steps %d --every 1 --keep 2 --quiet", FAULTED_STEPS - 1);
    snprintf(folder, sizeof folder, "%s/job/ck", t->dir);
    for (uint32_t n = test_draws(400, 10); c.cases < n; c.cases++) {
        struct fault f = {.after_us = 1000 + random_below(&random, 60000)};
        faulted_clear(t);
        faulted_run(t, &f, false, options);
        const char *what = go_on(t, faulted_find(folder));
        if (*what)
            blame(&c, t, 2, &f, what);
    }
    CU_ASSERT_EQUAL(c.failed, 0);
    printf("(%u) ", c.cases);
    faulted_close(t);
}

/* ---- reading ---- */

/* A run that is resumed and cannot read something goes on from a generation that it can read, or not at all. */
static void check_reading(struct faulted *t, struct count *c, struct fault f)
{
    char log[E2E_PATH + 16], options[64];
    snprintf(log, sizeof log, "%s/log", t->dir);
    snprintf(options, sizeof options, "--steps %d --every 1 --keep 0 --resume", FAULTED_STEPS);
    for (f.at = 1;; f.at++, c->cases++) {
        faulted_clear(t);
        CU_ASSERT_EQUAL_FATAL(e2e_command(log, "sh -c 'cd %s/whole && mkdir ../job/ck && cp -r step-[123] ../job/ck'", t->dir), 0);
        faulted_run(t, &f, false, options);
        if (!t->reached)
            return;
        bool goes_on = t->code == 0 && faulted_same(t, FAULTED_STEPS) && strstr(t->err, "resuming from ");
        const char *what = "";
        if (!goes_on && ((t->code != 3 && t->code != 4) || !strstr(t->err, "llmrun: ")))
            what = "it neither goes on nor says why not";
        else if (goes_on && !strstr(t->err, "/step-3\n") && !strstr(t->err, "is passed over"))
            what = "it goes on from an older generation and does not say why";
        else if (!goes_on)
            what = go_on(t, 3);
        if (*what)
            blame(c, t, 0, &f, what);
    }
}

static void test_reading(void)
{
    static const struct fault faults[] = {
        {.kind = EIO}, {.kind = EIO, .on = 1}, {.kind = EMFILE}, {.kind = EMFILE, .on = 1}};
    struct faulted *t = faulted_open("reading", plans[0]);
    struct count c = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        check_reading(t, &c, faults[i]);
    CU_ASSERT_EQUAL(c.failed, 0);
    printf("(%u) ", c.cases);
    faulted_close(t);
}

static void test_one(void)
{
    const char *text = getenv("FAULT");
    struct fault f;
    int plan;
    if (!text || sscanf(text, "%d:%d:%d:%d:%u", &plan, &f.rank, &f.kind, &f.on, &f.at) != 5 || plan < 0 || plan > 2)
        return;
    struct faulted *t = faulted_open("one", plans[plan]);
    struct count c = {0};
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT(check_case(t, &c, plan, &f));
    CU_ASSERT_EQUAL(c.failed, 0);
    faulted_close(t);
}

void suite_checkpoint_faults(void);
void suite_checkpoint_faults(void)
{
    CU_pSuite s = CU_add_suite("checkpoint_faults", NULL, NULL);
    if (getenv("FAULT")) {
        CU_add_test(s, "one fault", test_one);
        return;
    }
    CU_add_test(s, "a process killed at every change", test_deaths);
    CU_add_test(s, "every change that fails", test_errors);
    CU_add_test(s, "damaged generations are replaced", test_damaged);
    CU_add_test(s, "a run that has ended", test_ended);
    CU_add_test(s, "deaths at any time", test_times);
    CU_add_test(s, "what cannot be read", test_reading);
}
