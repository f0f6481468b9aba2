/* The rules of the tree itself, as tests: order of the map, sizes, no mutable file-scope data, no unused function,
 * one owner of files, every row of the tables used, headers that stand alone.  Each is a script that prints what breaks its
 * rule; here they only get run.  The build says in the environment where its object files are (LLMC_BUILD) and how a header
 * is to be compiled (LLMC_CC). */

#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

static void run_script(const char *command)
{
    int status = system(command);
    if (status != 0)
        printf("\n    %s: status %d\n", command, status);
    CU_ASSERT_EQUAL(status, 0);
}

/* one that exits with 77 where this machine lacks what it needs */
static void run_script_if_possible(const char *command, const char *lack)
{
    int status = system(command);
    bool untried = WIFEXITED(status) && WEXITSTATUS(status) == 77;
    if (untried)
        test_skip("%s", lack);
    CU_ASSERT(untried || status == 0);
}

static void test_layers(void)
{
    run_script("tests/tools/layers.sh");
}

static void test_globals(void)
{
    run_script("tests/tools/globals.sh ${LLMC_BUILD:-build}");
}

static void test_unused(void)
{
    run_script("tests/tools/unused.sh ${LLMC_BUILD:-build}");
}

static void test_shape(void)
{
    run_script("tests/tools/shape.sh --check ${LLMC_BUILD:-build}");
}

static void test_format(void)
{
    run_script_if_possible("tests/tools/format.sh", "there is no clang-format 14");
}

static void test_files(void)
{
    run_script("tests/tools/files.sh");
}

static void test_rows(void)
{
    run_script("tests/tools/rows.sh");
}

static void test_schema(void)
{
    run_script("python3 tests/tools/schema.py");
}

static void test_headers(void)
{
    run_script_if_possible("tests/tools/headers.sh ${LLMC_CC:-cc -std=c11 -D_GNU_SOURCE -I.}",
                           "kernels/cuda/libraries.h needs the headers of cuBLASLt and cuDNN");
}

/* the plugin has what llmrun asks it for */
static void test_plugin(void)
{
    const char *plugin = getenv("LLMC_PLUGIN");
    if (!plugin || !*plugin)
        test_skip("the CUDA plugin was not built: there is no nvcc, or this is a sanitizer's build");
    else
        run_script("nm -D --defined-only \"$LLMC_PLUGIN\" | grep -q ' D llmrun_cuda$'");
}

static void test_mpi_plugin(void)
{
    run_script_if_possible("P=${LLMC_BUILD:-build}/llmrun-mpi.so; test -e $P || exit 77; "
                           "nm -D --defined-only $P | grep -q ' D llmrun_mpi$'",
                           "the MPI plugin was not built: there is no Open MPI");
}

void suite_tree(void);
void suite_tree(void)
{
    CU_pSuite s = CU_add_suite("tree", NULL, NULL);
    CU_add_test(s, "includes follow the map", test_layers);
    CU_add_test(s, "functions fit, folders need each other one way", test_shape);
    CU_add_test(s, "one formatting", test_format);
    CU_add_test(s, "no mutable file-scope data", test_globals);
    CU_add_test(s, "no function without a use", test_unused);
    CU_add_test(s, "files have one owner", test_files);
    CU_add_test(s, "operators are used, instructions emitted and tested", test_rows);
    CU_add_test(s, "the schema of cluster files is the compiler's table", test_schema);
    CU_add_test(s, "headers stand alone", test_headers);
    CU_add_test(s, "the CUDA plugin", test_plugin);
    CU_add_test(s, "the MPI plugin", test_mpi_plugin);
}
