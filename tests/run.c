/* Entry of all tests: every suite of suites.def, or those whose name contains argv[1], or where that is =NAME
 * the one suite of that name.  The last line counts tests, not assertions: "N passed, N failed", and ", N
 * skipped" behind it where there are such.  Exit 1 on any failure, and where no test ran. */

#include "tests/skip.h"

#include <CUnit/Basic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SUITE(name) void suite_##name(void);
#include "tests/suites.def"
#undef SUITE

static const struct {
    const char *name;
    void (*add)(void);
} suites[] = {
#define SUITE(name) {#name, suite_##name},
#include "tests/suites.def"
#undef SUITE
};

enum { MOST_SKIPS = 1024 };
static CU_pTest skipped[MOST_SKIPS];
static unsigned nskipped;

void test_skip(const char *format, ...)
{
    va_list ap;
    printf("\n    skipped: ");
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    printf(" ");
    if ((!nskipped || skipped[nskipped - 1] != CU_get_current_test()) && nskipped < MOST_SKIPS)
        skipped[nskipped++] = CU_get_current_test();
}

static unsigned count_skipped(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < nskipped; i++) {
        const struct CU_FailureRecord *f = CU_get_failure_list();
        while (f && f->pTest != skipped[i])
            f = f->pNext;
        n += !f;
    }
    return n;
}

static bool wanted(const char *suite, const char *what)
{
    return *what == '=' ? !strcmp(suite, what + 1) : strstr(suite, what) != NULL;
}

int main(int argc, char **argv)
{
    if (CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++) {
        if (argc < 2 || wanted(suites[i].name, argv[1]))
            suites[i].add();
    }
    setvbuf(stdout, NULL, _IOLBF, 0); /* a test that crashes is the last one named */
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_ErrorCode error = CU_basic_run_tests();
    unsigned left_out = count_skipped(), failed = CU_get_number_of_tests_failed(),
             passed = CU_get_number_of_tests_run() - failed - left_out;
    CU_cleanup_registry();
    printf("%u passed, %u failed", passed, failed);
    if (left_out)
        printf(", %u skipped", left_out);
    printf("\n");
    return failed || !(passed + left_out) || error != CUE_SUCCESS;
}
