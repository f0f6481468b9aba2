/* `llmc report`: the page says what --json says and answers to clicks (report.py, in a Chromium), also where the
 * model's text tries to be a part of the page; what is no place for a page is refused. */

#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Plans a model of plans/ (or a file of the folder) into DIR/name. */
#define PLAN(name, model, cluster, set)                                                                                \
    "$L plan " model " topologies/" cluster ".xml -o $D/" name " " set " -q >/dev/null\n"

static void page(const char *dir, const char *plans, const char *script)
{
    char all[4096];
    snprintf(all, sizeof all,
             "%sPYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/report.py --llmc $L --work $D %s >$D/said 2>&1\n", script,
             plans);
    int code = e2e_shell(dir, all);
    if (code == 77)
        test_skip("there is no chromium that starts here; it is in the package chromium");
    else
        CU_ASSERT_EQUAL(code, 0);
    char said[2048];
    snprintf(all, sizeof all, "%s/said", dir);
    e2e_read_text(all, said, sizeof said);
    if (code && code != 77)
        printf("%s", said);
}

static void test_pages(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "pages");
    page(dir, "$D/a $D/b",
         PLAN("a", "plans/tiny-llama/model.llm", "cpu8", "")
             PLAN("b", "plans/tiny-llama/model.llm", "cpu8", "--set recompute=full"));
    page(dir, "$D/moe", PLAN("moe", "plans/tiny-moe/model.llm", "cpu16", ""));
    if (test_quick())
        return;
    page(dir, "$D/dualpipe", PLAN("dualpipe", "plans/gpt3-175b/model.llm", "h100-1024", "--set schedule=dualpipe --set 'batch=256 sequences'"));
    page(dir, "$D/vpp", PLAN("vpp", "plans/gpt3-175b/model.llm", "h100-1024", "--set vpp=3 --set 'batch=256 sequences'"));
}

static void test_hostile(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "hostile");
    page(
        dir, "$D/h",
        "sed '2i # </script><script>throw 1</script><!-- \" \\\\ &amp; \\x01' plans/tiny-llama/model.llm >$D/h.llm\n" PLAN(
            "h", "$D/h.llm", "cpu8", ""));
}

static void test_refused(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "refused");
    const char *script = PLAN("p", "plans/tiny-llama/model.llm", "cpu8",
                              "") "cp $D/p/plan.json $D/was\n"
                                  "$L report $D/p 2>$D/said; [ $? = 2 ] || exit 10\n"
                                  "grep -q 'report wants -o FILE' $D/said || exit 11\n"
                                  "$L report $D/p -o $D/p/plan.json 2>$D/said; [ $? = 4 ] || exit 12\n"
                                  "cmp $D/was $D/p/plan.json || exit 13\n"
                                  "$L report $D/p $D/none -o $D/x.html 2>$D/said && exit 14\n"
                                  "[ ! -e $D/x.html ] || exit 15\n"
                                  "$L report $D/p -o $D/none/x.html 2>$D/said; [ $? = 4 ] || exit 16\n"
                                  "$L report $D/p -o - | grep -c 'id=\"plan0\"' | grep -qx 1 || exit 17\n";
    CU_ASSERT_EQUAL(e2e_shell(dir, script), 0);
}

void suite_report(void);
void suite_report(void)
{
    CU_pSuite s = CU_add_suite("report", NULL, NULL);
    CU_add_test(s, "pages say what --json says, and answer", test_pages);
    CU_add_test(s, "a model's text is no part of the page", test_hostile);
    CU_add_test(s, "no place for a page", test_refused);
}
