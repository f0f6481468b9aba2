/* What tests/bench/README.md and README.md claim of predictions, and what that rests on: the tables of published runs
 * are sound, runs of every software stack are accepted by the compiler, and every figure of theirs is the one that the
 * tables and this compiler give. Scripts of tests/bench/ do it and print what is wrong; quick runs, which may
 * be slow builds, leave the figures out. */

#include "tests/draws.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>

static const char *build(void)
{
    const char *b = getenv("LLMC_BUILD");
    return b && *b ? b : "build";
}

static void test_tables(void)
{
    char command[1024];
    snprintf(
        command, sizeof command,
        "PYTHONPYCACHEPREFIX=%s/pycache python3 tests/bench/check.py --llmc %s/llmc --work %s/bench/drawn",
        build(), build(), build());
    int status = system(command);
    CU_ASSERT_EQUAL(status, 0);
}

/* A copy of the tables with one thing wrong each: the check must say so. */
static void expect_complaint(const char *edit, const char *complaint)
{
    char command[2048];
    snprintf(
        command, sizeof command,
        "d=%s/bench/spoilt; rm -rf $d && mkdir -p $d/tests && cp -R tests/bench $d/tests/bench && cd "
        "$d/tests/bench && %s && "
        "! PYTHONDONTWRITEBYTECODE=1 python3 check.py >said && grep -q '%s' said || { cat said; exit 1; }",
        build(), edit, complaint);
    int status = system(command);
    if (status != 0)
        printf("\n    not found: %s\n", complaint);
    CU_ASSERT_EQUAL(status, 0);
}

static void test_spoilt(void)
{
    expect_complaint(
        "sed -i 's|\"rows\": \\[\"bloom/206B[^\"]*\"|\"rows\": [\"bloom/206B.*\"|' measured/quirks.json",
        "no such run: bloom/206B");
    expect_complaint("sed -i '0,/\"source\": \"[^\"]*\"/s//\"source\": \"\"/' measured/facts.json",
                     "no source");
    expect_complaint("sed -i 's/^mosaic\\ttorch-fsdp/mosaic\\tno-stack/' measured/sources.tsv",
                     "mosaic has no stack");
    expect_complaint("sed -i 's/^sc21-t1.1.7B\\t/sc21-t1\\/3.6B\\t/' measured/runs.tsv", "is there twice");
    expect_complaint("printf 'x = \"zerobubble\"\\n' >>inputs.py", "speaks of zerobubble");
}

static void test_figures(void)
{
    char command[1024];
    snprintf(command, sizeof command,
             "PYTHONPYCACHEPREFIX=%s/pycache python3 tests/bench/accuracy.py --readme tests/bench/README.md --build %s "
             "--work %s/bench/claims",
             build(), build(), build());
    if (!test_whole_or_skip())
        return;
    int status = system(command);
    CU_ASSERT_EQUAL(status, 0);
}

void suite_claims(void);
void suite_claims(void)
{
    CU_pSuite s = CU_add_suite("claims", NULL, NULL);
    CU_add_test(s, "tables of published runs are sound", test_tables);
    CU_add_test(s, "what is wrong with them is found", test_spoilt);
    CU_add_test(s, "the figures of tests/bench/README.md are these", test_figures);
}
