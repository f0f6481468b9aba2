/* Plans that take over from each other: in memory, by a transition (llmrun FROM DIR TO --at N), and where fewer ranks are started
 * than planned, by a spare plan.  That what moves is right to the bit is suite resume's, on drawn layouts; here are the ways
 * in which such runs are asked for, refused, stopped and disturbed. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

/* two nodes of two CPU ranks */
static const char cluster[] =
    "<cluster version=\"1\" name=\"pair\">\n"
    "  <node-type id=\"m\" gpus=\"2\" host-bandwidth=\"2GB/s\">\n"
    "    <gpu model=\"cpu\" memory=\"2GiB\" reserve=\"64MiB\" memory-bandwidth=\"5GB/s\">\n"
    "      <peak dtype=\"fp32\" rate=\"20GFLOP/s\"/>\n    </gpu>\n    <scale-up kind=\"none\"/>\n"
    "    <nic count=\"1\" bandwidth=\"10Gb/s\"/>\n  </node-type>\n  <nodes type=\"m\" count=\"2\"/>\n"
    "  <fabric medium=\"infiniband\"><tier name=\"leaf\" span=\"all\"/></fabric>\n</cluster>\n";

/* a: tp 2, pp 2; b: dp 2 of two ranks; ab: from one to the other */
static void make_folder(char *dir, const char *name)
{
    e2e_folder(dir, name);
    e2e_write(dir, "m.llm", e2e_small_model);
    e2e_write(dir, "c.xml", cluster);
    CU_ASSERT_EQUAL_FATAL(
        e2e_shell(dir, "cat runtime/*.c >$D/t.txt && $L tokens $D/t.txt -q -o $D/t.bin && "
                   "$L plan $D/m.llm $D/c.xml -q --set tp=2 --set pp=2 --set dp=1 -o $D/a && "
                   "$L plan $D/m.llm $D/c.xml -q --set tp=1 --set pp=1 --set dp=2 --set zero=1 -o $D/b && "
                   "$L transition $D/a $D/b -o $D/ab"),
        0);
}

#define TRAIN "--data $D/t.bin --steps 20 "

static void test_refused(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "refused");
    e2e_expect(dir, "$R $D/a $D/ab $D/b " TRAIN "2>$D/said", 2, "--at: missing: after how many steps the second plan goes on");
    e2e_expect(dir, "$R $D/a --at 3 " TRAIN "2>$D/said", 2, "--at: is for PLAN TRANSITION PLAN");
    e2e_expect(dir, "$R $D/a $D/b --at 3 " TRAIN "2>$D/said", 2, "one plan at a time, or PLAN TRANSITION PLAN with --at N");
    e2e_expect(dir, "$R $D/a $D/ab $D/b --at 20 " TRAIN "2>$D/said", 2, "--at 20: the run has only 20 steps");
    e2e_expect(dir, "$R $D/a $D/ab $D/b --at 3 --checkpoint $D/c --resume " TRAIN "2>$D/said", 2, "--at: not with");
    e2e_expect(dir, "$R $D/b $D/ab $D/a --at 3 " TRAIN "2>$D/said", 5, "/ab is for another plan than");
    e2e_expect(dir, "$R $D/a $D/b $D/b --at 3 " TRAIN "2>$D/said", 3, "/b is no transition ('llmc transition PLAN PLAN -o DIR' makes one)");
    e2e_expect(dir, "$R $D/ab " TRAIN "2>$D/said", 3, "is a transition between plans, and no plan");
    e2e_expect(dir, "cp -r $D/ab $D/bad; sed -i 's/\"to_ranks\": .0, 1/\"to_ranks\": [1, 0/' $D/bad/transition.json; "
                "$R $D/a $D/bad $D/b --at 3 " TRAIN "2>$D/said", 3, "/bad/transition.json: was changed");
}

static void test_disturbed(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "disturbed");
    /* a rank that dies by the first plan, and by the second */
    e2e_expect(dir,
           "$R $D/a $D/ab $D/b --at 100000 --data $D/t.bin --steps 200000 --log $D/l --quiet 2>$D/said & P=$!; "
           "for i in $(seq 500); do grep -q loss $D/l 2>/dev/null && break; sleep 0.01; done; "
           "kill -9 $(child 4); wait $P",
           4, "llmrun: rank 3 was killed by signal 9 (Killed) ");
    e2e_expect(dir,
           "rm -f $D/l; $R $D/a $D/ab $D/b --at 2 --data $D/t.bin --steps 200000 --log $D/l --quiet 2>$D/said & P=$!; "
           "for i in $(seq 500); do grep -q '\"step\": 3,' $D/l 2>/dev/null && break; sleep 0.01; done; "
           "kill -9 $(child 1); wait $P",
           4, "llmrun: rank 0 was killed by signal 9 (Killed) ");
    /* asked to stop before, and after */
    static const char *const at[] = {"100000", "2"};
    for (int k = 0; k < 2; k++) {
        char script[2048];
        snprintf(script, sizeof script,
                 "rm -rf $D/c $D/l; $R $D/a $D/ab $D/b --at %s --data $D/t.bin --steps 200000 --log $D/l --checkpoint $D/c --every 1h "
                 "2>$D/said & P=$!; for i in $(seq 500); do grep -q '\"step\": 4,' $D/l 2>/dev/null && break; sleep 0.01; "
                 "done; kill -TERM $P; wait $P; test $? = 75 && ls $D/c | grep -q step- && S=$(ls $D/c | cut -d- -f2) && "
                 "$R $D/b --data $D/t.bin --steps $((S + 2)) --checkpoint $D/c --resume --quiet",
                 at[k]);
        e2e_expect(dir, script, 0, ", as a signal asked; llmrun ");
    }
}

static void test_spares(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "spares");
    e2e_expect(dir, "$L plan $D/m.llm $D/c.xml -q --set tp=2 --set pp=1 --set dp=2 -o $D/p --spare-plans 1 >$D/said", 0,
           "  1 node fewer  ");
    e2e_expect(dir, "$L check $D/p.minus1 >$D/said && $L transition $D/p $D/p.minus1 --check $D/p.minus1.move >>$D/said", 0,
           "proved: every element of state arrives exactly once");
    e2e_expect(dir, "$L plan $D/m.llm $D/c.xml -q --set tp=2 --set pp=1 --set dp=2 -o $D/q --spare-plans 2 2>$D/said >$D/out", 1,
           "llmc: --spare-plans 2: the plan has only 2 nodes");
    /* where both plans' state does not fit at once, there is no move in memory, and that is no error */
    e2e_expect(dir,
               "sed 's/width 64/width 512/; s/swiglu(176)/swiglu(1408)/' $D/m.llm >$D/wide.llm; sed 's/2GiB/170MiB/' $D/c.xml >$D/less.xml; "
               "$L plan $D/wide.llm $D/less.xml -q --set tp=2 --set pp=1 --set dp=2 -o $D/w --spare-plans 1 >$D/said && "
               "test ! -e $D/w.minus1.move && $L check $D/w.minus1 -q",
               0, "no move in memory: rank 0 would hold 115MiB of both plans' state, and has 106MiB: go by way of a checkpoint");
    /* the same words for a job that has lost a node */
    e2e_expect(dir,
           "$R $D/p " TRAIN "--save $D/whole --quiet 2>$D/said && $R $D/p --data $D/t.bin --steps 10 --checkpoint $D/c --quiet && "
           "for r in 0 1; do RANK=$r WORLD_SIZE=2 MASTER_PORT=1$$ MASTER_ADDR=127.0.0.1 $R $D/p " TRAIN
           "--checkpoint $D/c --resume --save $D/end 2>>$D/said & P=$!; done; wait $P && wait",
           0, "llmrun: 2 ranks were started, ");
    char path[E2E_PATH + 64];
    struct e2e_tensors a, b;
    snprintf(path, sizeof path, "%s/whole/model.safetensors", dir);
    CU_ASSERT_FATAL(e2e_tensors_read(path, &a));
    snprintf(path, sizeof path, "%s/end/model.safetensors", dir);
    CU_ASSERT_FATAL(e2e_tensors_read(path, &b));
    CU_ASSERT(e2e_difference(&a, &b, NULL) < 1e-5);
    e2e_tensors_free(&a);
    e2e_tensors_free(&b);
    e2e_expect(dir, "RANK=0 WORLD_SIZE=3 MASTER_PORT=1$$ MASTER_ADDR=127.0.0.1 $R $D/p " TRAIN "2>$D/said", 5,
           "llmrun: 3 ranks were started, the plan is for 4");
}

void suite_moves(void);
void suite_moves(void)
{
    CU_pSuite s = CU_add_suite("moves", NULL, NULL);
    CU_add_test(s, "asked for in a wrong way", test_refused);
    CU_add_test(s, "disturbed and stopped", test_disturbed);
    CU_add_test(s, "fewer ranks than planned", test_spares);
}
