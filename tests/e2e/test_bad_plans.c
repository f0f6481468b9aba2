/* Well-formed requests that no plan satisfies: each case's words, handed to llmc, must end with the exit code and the text on
 * stderr that the case wants, nothing on stdout, and write nothing. */

#include "tests/cases.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <unistd.h>

void suite_bad_plans(void);

static const char *complaint(struct arena *a, const struct text_case *c)
{
    char path[E2E_PATH + 8], dir[E2E_PATH], out[256], err[4096];
    e2e_folder(dir, "bad-plans");
    int code = e2e_llmc(dir, c->words[0]);
    snprintf(path, sizeof path, "%s/out", dir);
    e2e_read_text(path, out, sizeof out);
    snprintf(path, sizeof path, "%s/err", dir);
    e2e_read_text(path, err, sizeof err);
    snprintf(path, sizeof path, "%s/plan", dir);
    CU_ASSERT(*err && !*out && access(path, F_OK) != 0);
    return arena_printf(a, "exit %d\n%s", code, err);
}

static void test_cases(void)
{
    struct arena *a = arena_new();
    CU_ASSERT(cases_check_folder(a, "tests/bad", "plan-", complaint) >= 53);
    arena_free(a);
}

void suite_bad_plans(void)
{
    CU_pSuite s = CU_add_suite("bad_plans", NULL, NULL);
    CU_add_test(s, "impossible requests say why", test_cases);
}
