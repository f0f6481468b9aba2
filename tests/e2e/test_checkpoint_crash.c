/* Power cuts.  A run's changes are recorded; at every one of them the power is cut, and disks are made that may be left
 * (tests/e2e/disk_states.h).  On each the newest generation that had been committed is found, or a newer one that is
 * whole: what has a generation's name is one.  So that the test is known to see what it looks for, the flushes are
 * ignored kind by kind, and each must be missed. */

#include "runtime/checkpoint.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"
#include "tests/e2e/disk_states.h"
#include "tests/e2e/faulted.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 2 * E2E_PATH };

struct record {
    struct faulted *t;
    struct disk disk;
    uint64_t *committed; /* by changes made: the newest generation whose name has been flushed */
    uint32_t states, failed;
};

static bool is_step(const char *name, uint64_t *step)
{
    unsigned long long n;
    int end = 0;
    bool fine = sscanf(name, "step-%llu%n", &n, &end) == 1 && !name[end];
    *step = fine ? n : 0;
    return fine;
}

static void find_commits(struct record *r)
{
    uint64_t named = 0, step;
    for (uint32_t i = 0; i < r->disk.nchanges; i++) {
        const struct disk_change *c = &r->disk.change[i];
        r->committed[i + 1] = r->committed[i];
        if (c->kind == DISK_NAME && is_step(c->here, &step))
            named = step;
        if (c->kind == DISK_FLUSH && !strcmp(r->disk.node[c->node].path, "/ck"))
            r->committed[i + 1] = named;
    }
}

static void begin(struct record *r, const char *name, const char *words)
{
    char list[PATH], root[PATH], whole[PATH], options[64];
    r->t = faulted_open(name, words);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->t);
    faulted_clear(r->t);
    snprintf(options, sizeof options, "--steps %d --every 1 --keep 2 --quiet", FAULTED_STEPS);
    faulted_run(r->t, NULL, true, options);
    CU_ASSERT_EQUAL_FATAL(r->t->code, 0);
    snprintf(list, sizeof list, "%s/list", r->t->dir);
    snprintf(root, sizeof root, "%s/job", r->t->dir);
    snprintf(whole, sizeof whole, "%s/whole", r->t->dir);
    CU_ASSERT_FATAL(disk_read(&r->disk, list, root, whole));
    r->committed = calloc(r->disk.nchanges + (size_t)1, sizeof *r->committed);
    find_commits(r);
    CU_ASSERT_EQUAL(r->committed[r->disk.nchanges], FAULTED_STEPS);
    bool *flushed = calloc(r->disk.nnodes, sizeof *flushed);
    for (uint32_t i = 0; i < r->disk.nchanges; i++) {
        const struct disk_change *c = &r->disk.change[i];
        flushed[c->node] |= c->kind == DISK_FLUSH;
        CU_ASSERT_FALSE(c->kind == DISK_DATA && flushed[c->node]);
    }
    free(flushed);
}

static void end(struct record *r)
{
    faulted_close(r->t);
    disk_free(&r->disk);
    free(r->committed);
    free(r);
}

/* one disk: "" or what is wrong with it */
static const char *check(struct record *r, const struct disk_choice *c)
{
    char folder[PATH], ck[PATH + 8];
    uint64_t steps[FAULTED_MOST], committed = r->committed[c->made];
    uint32_t other;
    struct error error = {""};
    const char *what = "";
    snprintf(folder, sizeof folder, "%s/job", r->t->dir);
    faulted_remove(folder);
    if (!disk_make(&r->disk, c, folder))
        return "it cannot be made";
    r->states++;
    uint32_t n = faulted_generations(r->t, steps, &other);
    snprintf(ck, sizeof ck, "%s/ck", folder);
    uint64_t found = faulted_find(ck), newest = n ? steps[n - 1] : 0;
    if (found < committed)
        what = "the committed generation is not found";
    else if (found != newest)
        what = "the newest generation that has its name is not whole";
    else if (found && !faulted_same(r->t, found))
        what = "what is found is not what was written";
    else if (access(ck, F_OK) == 0 && checkpoint_sweep(ck, &error) != STATUS_OK)
        what = "what was cut off cannot be removed";
    else if (faulted_generations(r->t, steps, &other) != n || other)
        what = "what was cut off is not all that is removed";
    return what;
}

static bool blame(struct record *r, const struct disk_choice *c, const char *what)
{
    if (*what && r->failed++ < 10)
        printf("\n    cut at change %u, names %d, data %d, random %llu: %s", c->made, (int)c->names, (int)c->data,
               (unsigned long long)c->random, what);
    return *what != 0;
}

/* every change, every combination of the simple choices, and `draws` drawn ones */
static void check_all(struct record *r, uint32_t draws)
{
    uint64_t random = 11;
    for (uint32_t made = 0; made <= r->disk.nchanges; made++) {
        for (int k = 0; k < 4; k++) {
            struct disk_choice c = {made, k & 1 ? KEEP_ALL : KEEP_NOTHING, k & 2 ? KEEP_ALL : KEEP_NOTHING, 1};
            blame(r, &c, check(r, &c));
        }
        for (uint32_t k = 0; k < draws; k++) {
            struct disk_choice c = {made, k % 2 ? KEEP_PREFIX : KEEP_SOME, random_below(&random, 4) ? KEEP_SOME : KEEP_ALL, 0};
            c.random = 1 + random_below(&random, 1u << 30);
            blame(r, &c, check(r, &c));
        }
    }
}

static void test_states(void)
{
    static const char *const plans[] = {"--set gpus=2 --set pp=2", "--set gpus=4 --set tp=2 --set pp=2"};
    for (int plan = 0; plan < (test_quick() ? 1 : 2); plan++) {
        struct record *r = calloc(1, sizeof *r);
        char name[24];
        snprintf(name, sizeof name, "plan-%d", plan);
        begin(r, name, plans[plan]);
        check_all(r, test_draws(120, 2));
        CU_ASSERT_EQUAL(r->failed, 0);
        printf("(%u after %u changes) ", r->states, r->disk.nchanges);
        end(r);
    }
}

/* ---- flushes that are not made ---- */

/* ignores the flushes of what has this path; the number of them */
static uint32_t ignore(struct record *r, const char *path)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->disk.nchanges; i++) {
        struct disk_change *c = &r->disk.change[i];
        c->ignored = c->kind == DISK_FLUSH && !strcmp(r->disk.node[c->node].path, path);
        n += c->ignored;
    }
    return n;
}

static bool is_missed(struct record *r)
{
    uint64_t random = 3;
    for (uint32_t round = 0; round < 40; round++)
        for (uint32_t made = 0; made <= r->disk.nchanges; made++) {
            struct disk_choice c = {made, round == 0 ? KEEP_NOTHING : round == 1 ? KEEP_ALL : round % 2 ? KEEP_SOME : KEEP_PREFIX,
                                    round < 2 ? KEEP_NOTHING : KEEP_SOME, 1 + random_below(&random, 1u << 30)};
            if (*check(r, &c))
                return true;
        }
    return false;
}

static void test_flushes(void)
{
    static const char *const paths[] = {"",
                                        "/ck",
                                        "/ck/step-N.tmp",
                                        "/ck/step-N.tmp/moment1",
                                        "/ck/step-N.tmp/moment2",
                                        "/ck/step-N.tmp/model.safetensors.tmp",
                                        "/ck/step-N.tmp/moment1/model.safetensors.tmp",
                                        "/ck/step-N.tmp/checkpoint.json.tmp-N"};
    struct record *r = calloc(1, sizeof *r);
    begin(r, "flushes", "--set gpus=2 --set pp=2");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        CU_ASSERT_NOT_EQUAL(ignore(r, paths[i]), 0);
        bool missed = is_missed(r);
        CU_ASSERT(missed);
        if (!missed)
            printf("\n    nobody misses the flushes of '%s'", paths[i]);
    }
    end(r);
}

void suite_checkpoint_crash(void);
void suite_checkpoint_crash(void)
{
    CU_pSuite s = CU_add_suite("checkpoint_crash", NULL, NULL);
    CU_add_test(s, "disks after a power cut", test_states);
    CU_add_test(s, "every kind of flush is needed", test_flushes);
}
