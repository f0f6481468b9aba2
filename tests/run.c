/* Entry of all tests: every suite of suites.def, or those whose name contains argv[1], or where that is =NAME
 * the one suite of that name.  The last line counts tests, not assertions: "N passed, N failed".  Exit 1 on
 * any failure, and where no test ran. */

#include <CUnit/Basic.h>
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
    unsigned failed = CU_get_number_of_tests_failed(), passed = CU_get_number_of_tests_run() - failed;
    CU_cleanup_registry();
    printf("%u passed, %u failed\n", passed, failed);
    return failed || !passed || error != CUE_SUCCESS;
}
