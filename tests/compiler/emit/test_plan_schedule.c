/* A plan whose schedule is no formula's keeps it in the folder, and is read back with it. */

#include "compiler/execute/shrink.h"
#include "compiler/schedule/schedule.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void suite_plan_schedule(void);

static char *listed(struct arena *a, const struct decision *d)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    schedule_print(schedule_new(a, d), f);
    fclose(f);
    return text;
}

/* changes the folder, and hashes its files anew: what reading it says */
static void check_refused(struct arena *a, const char *dir, const char *change, const char *says)
{
    struct plan *back = NULL;
    struct error error = {""};
    CU_ASSERT_EQUAL(system(arena_printf(a, "cd %s && { %s; } && " PLAN_HASH_ANEW, dir, change)), 0);
    CU_ASSERT_EQUAL(plan_read(a, dir, &back, &error), STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(error.text, arena_printf(a, "%s/%s", dir, says));
    plan_close(back);
}

static void test_round_trip(void)
{
    struct arena *a = arena_new();
    char root[] = "/tmp/llmc-test-XXXXXX", command[128];
    struct error error = {""};
    const char *why = "";
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(root));
    const char *dir = arena_printf(a, "%s/plan", root), *schedule = arena_printf(a, "%s/schedule.csv", dir);
    struct job *job = text_job(a, tiny_llama);
    struct topo *host = random_host(a, 4);
    struct decision d = text_decision(a, job, host, "pp=2 dp=2 microbatch=1");
    d.schedule = SCHED_AUTO;
    d.listed = shrink_schedule(a, &d, 3);
    CU_ASSERT_PTR_NOT_NULL_FATAL(d.listed);
    struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why), *back = NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_EQUAL_FATAL(plan_write(p, dir, false, &error), STATUS_OK);
    CU_ASSERT_EQUAL_FATAL(plan_read(a, dir, &back, &error), STATUS_OK);
    CU_ASSERT_EQUAL(back->decision.schedule, SCHED_AUTO);
    CU_ASSERT_PTR_NOT_NULL_FATAL(back->decision.listed);
    char *was = listed(a, &p->decision), *is = listed(a, &back->decision);
    CU_ASSERT_STRING_EQUAL(was, is);
    CU_ASSERT(strlen(was) > 100);
    free(was);
    free(is);
    plan_close(back);
    CU_ASSERT_EQUAL(unlink(schedule), 0);
    CU_ASSERT_EQUAL(plan_read(a, dir, &back, &error), STATUS_INPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "schedule.csv"));
    plan_close(back);
    check_refused(a, dir, "echo 0F0,x >schedule.csv",
                  "schedule.csv: row 1, cell 2: 'x' is neither <stage><F, B, I or W><microbatch> nor "
                  "(<F>;<B>)OVERLAP_F_B");
    check_refused(a, dir, "sed -i /schedule.csv/d MANIFEST", "MANIFEST does not list schedule.csv");
    plan_close(p);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CU_ASSERT_EQUAL(system(command), 0);
    arena_free(a);
}

void suite_plan_schedule(void)
{
    CU_pSuite s = CU_add_suite("plan_schedule", NULL, NULL);
    CU_add_test(s, "written and read back", test_round_trip);
}
