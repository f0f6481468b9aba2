/* Entry of all tests: every suite of suites.def, or those whose name contains argv[1].  Exit 1 on any failure. */

#include <CUnit/Basic.h>
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

int main(int argc, char **argv)
{
    if (CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    for (size_t i = 0; i < sizeof suites / sizeof *suites; i++) {
        if (argc < 2 || strstr(suites[i].name, argv[1]))
            suites[i].add();
    }
    CU_basic_set_mode(CU_BRM_NORMAL);
    CU_basic_run_tests();
    int failed = (int)CU_get_number_of_failures();
    CU_cleanup_registry();
    return failed || CU_get_error() != CUE_SUCCESS;
}
