/* `llmc explore`: the page's numbers are those of `estimate --json`, bit for bit, over drawn settings of jobs of
 * several kinds (explore.py, in a Chromium); it answers to hands, and a model's text is no part of it. */

#include "tests/draws.h"
#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* false, after a skip, where this llmc has nothing that pages could run */
static bool has_module(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "module");
    int code = e2e_shell(dir, "$L explore plans/tiny-llama/model.llm topologies/cpu8.xml -o $D/x.html 2>$D/said; s=$?\n"
                              "[ $s != 4 ] || grep -q 'lld, wasi-libc' $D/said || exit 1\n"
                              "exit $s\n");
    if (code == 4)
        test_skip("this build has no module for pages; it wants lld, wasi-libc and libclang-rt-14-dev-wasm32");
    else
        CU_ASSERT_EQUAL(code, 0);
    return code == 0;
}

static void page(const char *dir, const char *model, const char *cluster, const char *how)
{
    char text[4096];
    snprintf(text, sizeof text,
             "PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/explore.py --llmc $L --work $D/work --model %s "
             "--cluster topologies/%s.xml %s >$D/said 2>&1\n",
             model, cluster, how);
    int code = e2e_shell(dir, text);
    if (code == 77)
        test_skip("there is no chromium that starts here; it is in the package chromium");
    else
        CU_ASSERT_EQUAL(code, 0);
    char said[4096];
    snprintf(text, sizeof text, "%s/said", dir);
    e2e_read_text(text, said, sizeof said);
    if (code && code != 77)
        printf("%s: %s", model, said);
}

/* `share`: of all drawn settings, 1,000, which take half an hour: EXPLORES=1 in the environment draws them all */
static void drawn(const char *name, const char *cluster, unsigned share)
{
    char dir[E2E_PATH], model[80], how[80];
    e2e_folder(dir, name);
    snprintf(model, sizeof model, "plans/%s/model.llm", name);
    snprintf(how, sizeof how, "--draws %u --seed %u",
             getenv("EXPLORES") ? share : test_draws_usual(share / 10, share / 35, share / 40), share);
    page(dir, model, cluster, how);
}

static void test_drawn(void)
{
    if (!has_module())
        return;
    drawn("gpt2-124m", "h200x1", 300);
    drawn("tiny-moe", "cpu16", 220);
    if (!test_whole())
        return;
    drawn("llama3-8b", "h100x8", 70);
    drawn("mixtral-8x7b", "h100-1024", 70);
    drawn("llama3-70b-fsdp", "tpu-v5p", 200);
    drawn("llama3-70b", "a100-1024", 70);
    drawn("llama3-405b", "meta-24k-roce", 35);
    drawn("deepseek-v3", "h800-2048", 35);
}

static void test_page(void)
{
    char dir[E2E_PATH], how[40];
    if (!has_module())
        return;
    e2e_folder(dir, "page");
    snprintf(how, sizeof how, "--all --draws %u", test_draws(300, 20));
    page(dir, "plans/tiny-llama/model.llm", "cpu8", how);
}

static void test_hostile(void)
{
    char dir[E2E_PATH];
    if (!has_module())
        return;
    e2e_folder(dir, "hostile");
    CU_ASSERT_EQUAL(e2e_shell(dir, "sed '2i # </script><script>throw 1</script><!-- \" \\\\ &amp; \\x01' "
                                   "plans/tiny-llama/model.llm >$D/h.llm\n"),
                    0);
    page(dir, "$D/h.llm", "cpu8", "--draws 4 --move 0.9");
}

static void test_refused(void)
{
    char dir[E2E_PATH];
    if (!has_module())
        return;
    e2e_folder(dir, "refused");
    const char *script = "M=plans/tiny-llama/model.llm C=topologies/cpu8.xml\n"
                         "$L explore $M $C 2>$D/said; [ $? = 2 ] || exit 10\n"
                         "grep -q 'explore wants -o FILE' $D/said || exit 11\n"
                         "cp $M $D/m.llm\n"
                         "$L explore $D/m.llm $C -o $D/m.llm 2>$D/said; [ $? = 4 ] || exit 12\n"
                         "cmp $M $D/m.llm || exit 13\n"
                         "$L explore $M $C --set tp=3 -o $D/x.html 2>$D/said; [ $? = 3 ] || exit 14\n"
                         "[ ! -e $D/x.html ] || exit 15\n"
                         "$L explore $M $C -o $D/none/x.html 2>$D/said; [ $? = 4 ] || exit 16\n"
                         "$L explore $M $C --set tp=1 -o - | grep -c 'tp=1' | grep -qx 1 || exit 17\n";
    CU_ASSERT_EQUAL(e2e_shell(dir, script), 0);
}

void suite_explore(void);
void suite_explore(void)
{
    CU_pSuite s = CU_add_suite("explore", NULL, NULL);
    CU_add_test(s, "drawn settings: what the page shows is what estimate prints", test_drawn);
    CU_add_test(s, "the page answers to hands, refuses, and finds the best", test_page);
    CU_add_test(s, "a model's text is no part of the page", test_hostile);
    CU_add_test(s, "no place for a page, and no job", test_refused);
}
