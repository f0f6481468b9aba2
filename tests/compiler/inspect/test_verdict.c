/* What the verifier found, printed: nothing, and violations with and without a rank and an instruction; and where a
 * folder is not what its inputs give. */

#include "compiler/inspect/verdict.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

void suite_verdict(void);

static void check_beside(void (*print)(const struct verdict *, const struct origin *, FILE *), const struct verdict *v,
                         const struct origin *o, const char *want)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    print(v, o, f);
    fclose(f);
    if (strcmp(text, want))
        printf("\n%swanted\n%s", text, want);
    CU_ASSERT_STRING_EQUAL(text, want);
    free(text);
}

static void check(void (*print)(const struct verdict *, const struct origin *, FILE *),
                  const struct verdict *v, const char *want)
{
    check_beside(print, v, NULL, want);
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

static void test_origin(void)
{
    struct difference x[] = {
        {.file = "plan.json",
         .key = "search.gap",
         .role = NONE,
         .instruction = NONE,
         .message = "search.gap is 1, wanted 0"},
        {.role = 1, .instruction = 3, .evaluation = true, .message = "another one"},
    };
    struct verdict v = {.checked_insns = 7, .checked_ranks = 8};
    struct origin o = {.version = "1.2.3", .nfiles = 9};
    check_beside(verdict_print, &v, &o,
                 "properties 1-8 hold: 7 instructions, 8 ranks\n"
                 "origin holds: model.llm, cluster.xml and the overrides give this plan, 9 files to the byte\n");
    check_beside(
        verdict_json, &v, &o,
        "{\"schema\": 1, \"holds\": true, \"certificate\": false, \"instructions\": 7, \"ranks\": 8, "
        "\"violations\": [], "
        "\"origin\": {\"holds\": true, \"compiler\": \"1.2.3\", \"files\": 9, \"differences\": []}}\n");
    o.differences = x;
    o.ndifferences = 2;
    check_beside(verdict_print, &v, &o,
                 "properties 1-8 hold: 7 instructions, 8 ranks\n"
                 "origin, plan.json: search.gap is 1, wanted 0\norigin: another one\n"
                 "origin: if nobody changed a file, another build of llmc made this folder: make the plan again\n");
    check_beside(verdict_json, &v, &o,
                 "{\"schema\": 1, \"holds\": false, \"certificate\": false, \"instructions\": 7, \"ranks\": "
                 "8, \"violations\": [], "
                 "\"origin\": {\"holds\": false, \"compiler\": \"1.2.3\", \"files\": 9, \"differences\": [\n"
                 " {\"file\": \"plan.json\", \"key\": \"search.gap\", \"role\": null, \"evaluation\": false, "
                 "\"instruction\": null, "
                 "\"message\": \"search.gap is 1, wanted 0\"},\n"
                 " {\"file\": null, \"key\": null, \"role\": 1, \"evaluation\": true, \"instruction\": 3, "
                 "\"message\": \"another one\"}]}}\n");
}

void suite_verdict(void)
{
    CU_pSuite s = CU_add_suite("verdict", NULL, NULL);
    CU_add_test(s, "a plan that holds", test_holds);
    CU_add_test(s, "violations", test_violations);
    CU_add_test(s, "a folder's origin", test_origin);
}
