/* tests/gpu/run on the fake device and the emulation: every part runs, every figure is read, and its results are complete, so
 * that a machine with a GPU does not meet a wrong option first. */

#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[1 << 17];

static void test_dry(void)
{
    char out[E2E_PATH + 64], path[E2E_PATH + 64];
    if (!test_whole_or_skip())
        return;
    const char *b = e2e_build();
    snprintf(path, sizeof path, "%s/tests/fake/llmrun-fake.so", b);
    bool built = !access(path, R_OK), python = built && !system("python3 -c 'import json' >/dev/null 2>&1");
    if (!python) {
        if (!built)
            test_skip("%s was not built", path);
        else
            test_skip("there is no python3");
        return;
    }
    snprintf(path, sizeof path, "%s/gpu-dry/results.json", b);
    unlink(path);
    snprintf(out, sizeof out, "%s/gpu-dry.txt", b);
    int status = e2e_command(out, "env BUILT=1 PYTHON=/nowhere/python3 tests/gpu/run %s --dry --limit 400", b);
    if (status) {
        e2e_read_text(out, text, sizeof text);
        printf("\n%s", text);
    }
    CU_ASSERT_EQUAL(status, 0);
    e2e_read_text(path, text, sizeof text);
    static const char *const said[] = {"\"part\": \"machine\"",
                                       "kernels against the CPU",
                                       "graph, again equals eager in every bit",
                                       "deepseek bf16, tp=1 pp=2 dp=4 ep=4",
                                       "collectives and sends to oneself",
                                       "llama3-8b-like: MFU",
                                       "llama3-8b-like: memory by name",
                                       "llama3-8b-like: step over its kernels",
                                       "gpt2-124m: host's time",
                                       "gpt2-124m: over PyTorch",
                                       "llama3-8b-like: step predicted, calibrated",
                                       "drawn plans, eight ranks on one GPU",
                                       "llama3-8b-like: llmc diff",
                                       "SWIGLU",
                                       "memcheck of kernels"};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        if (!strstr(text, said[i]))
            printf("\n    no result of '%s'", said[i]);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, said[i]));
    }
    CU_ASSERT_PTR_NULL(strstr(text, "left out"));
    CU_ASSERT_PTR_NULL(strstr(text, "FAILED"));
}

void suite_gpu_script(void);
void suite_gpu_script(void)
{
    CU_pSuite s = CU_add_suite("gpu_script", NULL, NULL);
    CU_add_test(s, "tests/gpu/run without a GPU", test_dry);
}
