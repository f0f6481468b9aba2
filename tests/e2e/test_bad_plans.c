/* Well-formed requests that no plan satisfies: every tests/bad-plans/NAME.args, handed to llmc, must end with
 * the exit code in the first line of NAME.err and print the rest of that file on stderr, nothing on stdout,
 * and write nothing. UPDATE=1 rewrites. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void suite_bad_plans(void);

#define CASES "tests/bad-plans/"

static void check_case(const char *dir, const char *file)
{
    char args[1024], command[4096], path[E2E_PATH + 300], out[256], err[4096], got[5000], want[5000];
    int stem = (int)(strlen(file) - strlen(".args"));
    snprintf(path, sizeof path, CASES "%s", file);
    e2e_read_text(path, args, sizeof args);
    args[strcspn(args, "\n")] = 0;
    snprintf(command, sizeof command, "D='%s'; timeout 120 %s/llmc %s %s >\"$D/out\" 2>\"$D/err\" </dev/null",
             dir, e2e_build(), args, strncmp(args, "plan ", 5) ? "" : "-o \"$D/plan\"");
    int status = system(command);
    snprintf(path, sizeof path, "%s/out", dir);
    e2e_read_text(path, out, sizeof out);
    snprintf(path, sizeof path, "%s/err", dir);
    e2e_read_text(path, err, sizeof err);
    snprintf(got, sizeof got, "exit %d\n%s", WIFEXITED(status) ? WEXITSTATUS(status) : -1, err);
    snprintf(path, sizeof path, CASES "%.*s.err", stem, file);
    FILE *f = getenv("UPDATE") ? fopen(path, "w") : NULL;
    if (f) {
        fputs(got, f);
        fclose(f);
    }
    e2e_read_text(path, want, sizeof want);
    if (strcmp(got, want))
        printf("\n%s%s: wanted\n%sgot\n%s", CASES, file, want, got);
    CU_ASSERT(!strcmp(got, want));
    CU_ASSERT(*err && !*out);
    snprintf(path, sizeof path, "%s/plan", dir);
    CU_ASSERT(access(path, F_OK) != 0);
}

static void test_cases(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "bad-plans");
    CU_ASSERT(e2e_cases(CASES, dir, check_case) >= 30);
}

void suite_bad_plans(void)
{
    CU_pSuite s = CU_add_suite("bad_plans", NULL, NULL);
    CU_add_test(s, "impossible requests say why", test_cases);
}
