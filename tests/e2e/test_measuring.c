/* What is measured on this machine: --calibrate's block, and a run's trace against the plan's timeline. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

static char text[1 << 16];

static void test_calibrate(void)
{
    char folder[E2E_PATH], out[E2E_PATH + 32];
    e2e_folder(folder, "measuring");
    snprintf(out, sizeof out, "%s/measured.xml", folder);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmrun --calibrate", e2e_build()), 0);
    e2e_read_text(out, text, sizeof text);
    static const char *const said[] = {"<measured date=", "<gemm dtype=\"bf16\">", "<point m=\"64\" n=\"64\" k=\"64\" rate=",
                                       "<gemm dtype=\"fp32\">", "attention forward", "rmsnorm", "</measured>"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        CU_ASSERT_PTR_NOT_NULL(strstr(text, said[i]));
}

static void test_diff(void)
{
    char folder[E2E_PATH], out[E2E_PATH + 32];
    const char *b = e2e_build();
    e2e_folder(folder, "measuring-diff");
    snprintf(out, sizeof out, "%s/out", folder);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc tokens LICENSE -o '%s/tokens.bin'", b, folder), 0);
    CU_ASSERT_EQUAL(e2e_command(out,
                                "%s/llmc plan plans/tiny-llama/model.llm topologies/cpu8.xml --set tp=2 --set pp=1 --set dp=1 "
                                "--set batch='2 sequences' -o '%s/plan'",
                                b, folder),
                    0);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmrun '%s/plan' --data '%s/tokens.bin' --steps 1 --quiet --trace '%s/trace.json'", b,
                                folder, folder, folder),
                    0);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc diff '%s/plan' '%s/trace.json'", b, folder, folder), 0);
    e2e_read_text(out, text, sizeof text);
    static const char *const said[] = {"step: planned ", "MATMUL_NT ", "ALL_GATHER ", "farthest off", " instead of "};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        CU_ASSERT_PTR_NOT_NULL(strstr(text, said[i]));
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc diff '%s/plan' LICENSE", b, folder), 3);
    CU_ASSERT_EQUAL(e2e_command(out, "sed -i s/MATMUL_NT/MATMUL_NN/ '%s/trace.json'", folder), 0);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc diff '%s/plan' '%s/trace.json'", b, folder, folder), 3);
    e2e_read_text(out, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "it is the trace of another plan"));
}

void suite_measuring(void);
void suite_measuring(void)
{
    CU_pSuite s = CU_add_suite("measuring", NULL, NULL);
    CU_add_test(s, "llmrun --calibrate", test_calibrate);
    CU_add_test(s, "llmc diff", test_diff);
}
