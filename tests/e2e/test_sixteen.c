/* The demo's models on real text with every dimension above 1, on sixteen ranks, train as one rank does: the
 * dense one with tp, cp, pp and dp of 2; the one with experts with ep too, replaying the choices of one rank,
 * and free.  Text: the repository's own licence and README. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>

enum { STEPS = 8 };

static int shell(const char *dir, const char *script)
{
    char out[2 * E2E_PATH];
    snprintf(out, sizeof out, "%s/output", dir);
    return e2e_command(out,
                       "sh -c 'L=%s/llmc R=%s/llmrun D=%s C=topologies/cpu16.xml T=\"--data $D/tokens.bin "
                       "--steps %d --quiet\"; %s'",
                       e2e_build(), e2e_build(), dir, STEPS, script);
}

static void compare(const char *dir, const char *name)
{
    char path[2 * E2E_PATH];
    struct e2e_log one, many;
    double worst = 0, norms = 0;
    snprintf(path, sizeof path, "%s/one.jsonl", dir);
    CU_ASSERT_FATAL(e2e_log_read(path, &one) && one.steps == STEPS);
    snprintf(path, sizeof path, "%s/%s.jsonl", dir, name);
    CU_ASSERT_FATAL(e2e_log_read(path, &many) && many.steps == STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        worst = fmax(worst, e2e_relative(many.loss[i], one.loss[i]));
        norms = fmax(norms, e2e_relative(many.grad_norm[i], one.grad_norm[i]));
    }
    CU_ASSERT(worst < 1e-5 && norms < 1e-3);
    CU_ASSERT(many.loss[STEPS - 1] < 0.97 * many.loss[0]);
    if (!(worst < 1e-5 && norms < 1e-3))
        printf("\n    %s: losses differ from one rank by %.1e, norms by %.1e", dir, worst, norms);
}

static void test_dense(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "sixteen/dense");
    CU_ASSERT_EQUAL_FATAL(
        shell(dir,
              "M=$D/model.llm && sed \"s/^ *batch .*/batch 4 sequences/\" plans/tiny-llama/model.llm >$M && "
              "B=\"--set microbatch=1 -q\" && cat LICENSE README.md compiler/LIMITS.md tests/bench/README.md >$D/text && $L tokens $D/text -o "
              "$D/tokens.bin && "
              "$L plan $M $C $B --set tp=1 --set pp=1 --set dp=1 --set gpus=1 -o $D/p1 && "
              "$L plan $M $C $B --set tp=2 --set cp=2 --set pp=2 --set dp=2 -o $D/p16 && "
              "$R $D/p1 $T --log $D/one.jsonl && $R $D/p16 $T --log $D/many.jsonl"),
        0);
    compare(dir, "many");
}

static void test_experts(void)
{
    char dir[E2E_PATH];
    if (test_usual() && !test_whole_or_skip())
        return;
    e2e_folder(dir, "sixteen/experts");
    CU_ASSERT_EQUAL_FATAL(
        shell(dir,
              "M=$D/model.llm && sed \"s/^ *batch .*/batch 4 sequences/\" plans/tiny-moe/model.llm >$M && "
              "B=-q && cat LICENSE README.md compiler/LIMITS.md tests/bench/README.md >$D/text && $L tokens $D/text -o $D/tokens.bin && "
              "$L plan $M $C $B --set tp=1 --set cp=1 --set pp=1 --set dp=1 --set ep=1 -o $D/p1 && "
              "$L plan $M $C $B -o $D/p16 && "
              "$R $D/p1 $T --routing-save $D/routing --log $D/one.jsonl && "
              "$R $D/p16 $T --routing $D/routing --log $D/many.jsonl"),
        0);
    compare(dir, "many");
}

void suite_sixteen(void);
void suite_sixteen(void)
{
    CU_pSuite s = CU_add_suite("sixteen", NULL, NULL);
    CU_add_test(s, "tp, cp, pp, dp of 2: the dense demo model", test_dense);
    CU_add_test(s, "tp, cp, pp, dp, ep above 1: the demo model with experts", test_experts);
}
