/* `llmc check --execute` and `llmrun --paced` as people meet them. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static int shell(const char *dir, const char *script)
{
    char out[2 * E2E_PATH];
    snprintf(out, sizeof out, "%s/output", dir);
    return e2e_command(out, "sh -c 'L=%s/llmc R=%s/llmrun D=%s C=topologies/cpu8.xml; %s'", e2e_build(), e2e_build(), dir,
                       script);
}

static json_t *read_json(const char *dir, const char *name)
{
    char path[2 * E2E_PATH];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    json_t *root = json_load_file(path, 0, NULL);
    CU_ASSERT_PTR_NOT_NULL(root);
    return root;
}

static void test_check_execute(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "execute");
    CU_ASSERT_EQUAL(shell(dir, "$L plan plans/tiny-llama/model.llm $C -q -o $D/p >$D/s && $L check $D/p --execute >$D/text && "
                               "$L check $D/p --execute --json >$D/json"), 0);
    json_t *root = read_json(dir, "json");
    CU_ASSERT(json_is_true(json_object_get(root, "equal")));
    CU_ASSERT(json_is_true(json_object_get(root, "verified")));
    CU_ASSERT(json_integer_value(json_object_get(json_object_get(root, "exact"), "numbers")) > 1000);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(json_object_get(root, "real"), "steps")), 3);
    json_decref(root);
    CU_ASSERT_EQUAL(shell(dir, "grep -q \"^exact      equals one rank modulo\" $D/text && grep -q \"^real       equals\" $D/text"), 0);
}

/* a plan of four GPUs of which each kernel and transfer takes its planned time: the step takes the simulated one's */
static void test_paced(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "paced");
    CU_ASSERT_EQUAL(shell(dir, "$L plan plans/tiny-llama/model.llm $C -q --set tp=1 --set pp=2 --set dp=2 --set gpus=4 -o $D/p >$D/s && "
                               "$L trace $D/p --times -o $D/times && $R $D/p --paced $D/times --steps 2 --quiet --json >$D/json"), 0);
    json_t *root = read_json(dir, "json"), *paced = json_object_get(root, "paced");
    double planned = json_number_value(json_object_get(paced, "planned_step_s"));
    double measured = json_number_value(json_object_get(paced, "measured_step_s"));
    CU_ASSERT(planned > 0 && measured > 0.98 * planned && measured < 1.05 * planned);
    if (!(measured > 0.98 * planned && measured < 1.05 * planned))
        printf("\n    measured %g s, planned %g s", measured, planned);
    json_decref(root);
    CU_ASSERT_EQUAL(shell(dir, "echo llmc-times 1 3 5 >$D/bad; $R $D/p --paced $D/bad 2>$D/said; test $? = 3 && "
                               "grep -q \"it is not of this plan\" $D/said"), 0);
}

/* what tests/bench/paced.sh measures, as far as no clock is needed: hidden transfers make the simulated step shorter */
static void test_overlap_gains(void)
{
    char dir[E2E_PATH], out[2 * E2E_PATH];
    e2e_folder(dir, "overlap");
    snprintf(out, sizeof out, "%s/output", dir);
    CU_ASSERT_EQUAL(e2e_command(out, "tests/bench/paced.sh %s %s plan", e2e_build(), dir), 0);
}

void suite_execute(void);
void suite_execute(void)
{
    CU_pSuite s = CU_add_suite("execute", NULL, NULL);
    CU_add_test(s, "check --execute", test_check_execute);
    CU_add_test(s, "a paced step takes the simulated time", test_paced);
    CU_add_test(s, "ring, prefetch and combined 1F1B gain in simulation", test_overlap_gains);
}
