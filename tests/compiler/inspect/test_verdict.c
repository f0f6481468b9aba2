/* What the verifier found, printed: nothing, and violations with and without a rank and an instruction. */

#include "compiler/inspect/verdict.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

void suite_verdict(void);

static void check(void (*print)(const struct verdict *, FILE *), const struct verdict *v, const char *want)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    print(v, f);
    fclose(f);
    if (strcmp(text, want))
        printf("\n%swanted\n%s", text, want);
    CU_ASSERT_STRING_EQUAL(text, want);
    free(text);
}

static void test_holds(void)
{
    struct verdict v = {.checked_insns = 120, .checked_ranks = 8, .certificate = true};
    check(verdict_print, &v,
          "properties 1-8 hold: 120 instructions, 8 ranks, one global order of communication\n");
    check(verdict_json, &v,
          "{\"schema\": 1, \"holds\": true, \"certificate\": true, \"instructions\": 120, \"ranks\": 8, "
          "\"violations\": []}\n");
    v.certificate = false;
    check(verdict_print, &v, "properties 1-8 hold: 120 instructions, 8 ranks\n");
    check(verdict_json, &v,
          "{\"schema\": 1, \"holds\": true, \"certificate\": false, \"instructions\": 120, \"ranks\": 8, "
          "\"violations\": []}\n");
}

static void test_violations(void)
{
    struct violation x[] = {
        {.property = 3, .role = 1, .rank = NONE, .insn = 0, .message = "it waits for \"itself\""},
        {.property = 6, .role = 2, .rank = 5, .evaluation = true, .insn = NONE, .message = "no room"},
    };
    struct verdict v = {.nviolations = 2, .violations = x, .checked_insns = 7, .checked_ranks = 8};
    check(verdict_print, &v,
          "property 3, role 1: it waits for \"itself\"\n"
          "property 6, role 2 (evaluation): no room\n");
    check(verdict_json, &v,
          "{\"schema\": 1, \"holds\": false, \"certificate\": false, \"instructions\": 7, \"ranks\": 8, "
          "\"violations\": [\n"
          " {\"property\": 3, \"role\": 1, \"rank\": null, \"evaluation\": false, \"instruction\": 0, "
          "\"message\": \"it waits for \\\"itself\\\"\"},\n"
          " {\"property\": 6, \"role\": 2, \"rank\": 5, \"evaluation\": true, \"instruction\": null, "
          "\"message\": \"no room\"}]}\n");
}

void suite_verdict(void)
{
    CU_pSuite s = CU_add_suite("verdict", NULL, NULL);
    CU_add_test(s, "a plan that holds", test_holds);
    CU_add_test(s, "violations", test_violations);
}
