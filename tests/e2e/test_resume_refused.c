/* Checkpoints that a run does not go on from, because they are of other data or of another optimizer, or because another
 * run is at work in their folder. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

static const char model[] = "llmc 1\nmodel m {\n    vocab 256\n    width 32\n    norm rmsnorm\n    embed tokens\n    repeat 2 { layer {\n"
                            "        attn gqa(heads=4, kv=2, rope=10_000)\n        ffn swiglu(64)\n    } }\n    head untied\n}\n"
                            "train { sequence 32; batch 4 sequences; precision fp32; optimizer OPTIMIZER; lr_schedule SCHEDULE }\n";

#define PLAN(NAME, OPTIMIZER, SCHEDULE)                                                                                 \
    "sed 's/OPTIMIZER/" OPTIMIZER "/; s/SCHEDULE/" SCHEDULE "/' $D/m >$D/" NAME ".llm && "                               \
    "$L plan $D/" NAME ".llm topologies/cpu8.xml -q --set gpus=2 -o $D/" NAME " && "

/* plan p, data t.bin, and checkpoints c of its first 4 steps */
static void make_folder(char *dir, const char *name)
{
    e2e_folder(dir, name);
    e2e_write(dir, "m", model);
    CU_ASSERT_EQUAL_FATAL(e2e_shell(dir, "head -c 9000 runtime/run.c >$D/t.txt && $L tokens $D/t.txt -q -o $D/t.bin && " PLAN(
                                             "p", "adamw(lr=1e-3)", "constant") "$R $D/p --data $D/t.bin --steps 4 --checkpoint $D/c --quiet"),
                          0);
}

#define RESUME(PLAN) "$R $D/" PLAN " --steps 6 --checkpoint $D/c --resume 2>$D/said --data "

static void test_others(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "others");
    e2e_expect(dir, "cp -r $D/c $D/kept; tr a b <$D/t.txt >$D/u.txt && $L tokens $D/u.txt -q -o $D/u.bin && " RESUME("p") "$D/u.bin", 5,
           "/c/step-4 was taken on other data than ");
    e2e_expect(dir, PLAN("s", "sgd(lr=1e-3, momentum=0.9)", "constant") RESUME("s") "$D/t.bin", 5,
           "/c/step-4 has moments of ADAMW, which decay by 0.9 and 0.95; those of the plan are of SGD, by 0.9 and 0");
    e2e_expect(dir, PLAN("b", "adamw(lr=1e-3, beta2=0.99)", "constant") RESUME("b") "$D/t.bin", 5,
           "; those of the plan are of ADAMW, by 0.9 and 0.99");
    /* what may differ: learning rate and its schedule, decay of weights, the form of the file */
    e2e_expect(dir, "rm -r $D/c; mv $D/kept $D/c; cp $D/t.bin $D/v.bin && " PLAN("l", "adamw(lr=1e-4, weight_decay=0)", "cosine(min=1e-5)") RESUME("l") "$D/v.bin", 0,
           "/c/step-4\n");
}

/* a learning rate that goes by the run's length, and one that does not */
static void test_length(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "length");
    e2e_expect(dir, RESUME("p") "$D/t.bin && grep -c . $D/said && ! grep 'learning rate' $D/said", 0, "resuming from ");
    e2e_expect(dir,
           PLAN("l", "adamw(lr=1e-3)", "cosine(min=1e-5)") "rm -r $D/c && $R $D/l --data $D/t.bin --steps 4 --checkpoint $D/c --quiet && " RESUME(
               "l") "$D/t.bin",
           0, "the learning rate goes by a run of 6 steps from here on; the checkpoint's went by 4\n");
    e2e_expect(dir, RESUME("l") "$D/t.bin && ! grep 'learning rate' $D/said", 0, "/c/step-6\n");
}

/* Starts a run that takes long in a folder of its own, as process P, and waits until it has a checkpoint there. */
#define LONG                                                                                                             \
    "rm -rf $D/c; $R $D/p --data $D/t.bin --steps 1000000 --checkpoint $D/c --every 10 --restarts 3 --quiet 2>$D/long & P=$!; " \
    "for i in $(seq 1000); do test -d $D/c/step-10 && break; sleep 0.01; done; "
/* kills what started the run, and waits until its ranks have ended, which is soon after */
#define KILL "K=$(child 1-); kill -KILL $P; gone $K"

static void test_one_at_a_time(void)
{
    static const char another[] = "llmrun: another run that has not ended writes its checkpoints into ";
    char dir[E2E_PATH];
    make_folder(dir, "one");
    e2e_expect(dir, LONG RESUME("p") "$D/t.bin; code=$?; " KILL " && exit $code", 4, another);
    /* one that has not begun, too */
    e2e_expect(dir, LONG "$R $D/p --data $D/t.bin --steps 6 --checkpoint $D/c 2>$D/said; code=$?; kill -TERM $P; wait $P; exit $code", 4, another);
    /* it keeps the folder where its ranks are started again */
    e2e_expect(dir,
           LONG "kill -KILL $(child 2); for i in $(seq 1000); do grep -q again $D/long && break; sleep 0.01; done; "
                "sleep 0.5; kill -0 $P && " RESUME("p") "$D/t.bin; code=$?; kill -TERM $P; wait $P; exit $code",
           4, another);
    /* a run that was killed has ended, as soon as its ranks have */
    e2e_expect(dir, LONG KILL " && $R $D/p --data $D/t.bin --steps 1 --checkpoint $D/c --resume 2>$D/said", 2,
           ": the run has only 1 steps");
    e2e_expect(dir, "rm -rf $D/c; mkdir -p $D/c/.lock; $R $D/p --data $D/t.bin --steps 6 --checkpoint $D/c 2>$D/said", 4,
           "/c/.lock: it is a folder, not a file");
}

void suite_resume_refused(void);
void suite_resume_refused(void)
{
    CU_pSuite s = CU_add_suite("resume_refused", NULL, NULL);
    CU_add_test(s, "other data and optimizers", test_others);
    CU_add_test(s, "another length", test_length);
    CU_add_test(s, "one run at a time", test_one_at_a_time);
}
