/* Runs that something happens to: ranks that are killed or stand still, signals that ask for the end, steps that always fail,
 * and folders that a run must not begin in or go on from.  Whatever happens, what comes out in the end is, in every bit, what
 * the undisturbed run leaves.
 *
 * SOAK=N kills N ranks, one after the other, at random times; before every fifth it waits for another checkpoint, since a run in
 * which ten attempts do not get that far gives up. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* p: tp 2, dp 2; whole: the weights after 60 steps without a break */
static int prepare(void)
{
    char dir[E2E_PATH], script[2048];
    e2e_folder(dir, "undisturbed");
    snprintf(script, sizeof script, "cat >$D/m.llm <<'.'\n%s.\n%s", e2e_small_model,
             "cat runtime/*.c >$D/t.txt && $L tokens $D/t.txt -q -o $D/t.bin && "
             "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=2 --set pp=1 --set dp=2 --set gpus=4 -o $D/p && "
             "$R $D/p --data $D/t.bin --steps 60 --quiet --save $D/whole --log $D/whole.jsonl");
    return e2e_shell(dir, script);
}

/* a copy of it */
static void make_folder(char *dir, const char *name)
{
    e2e_folder(dir, name);
    CU_ASSERT_EQUAL_FATAL(e2e_shell(dir, "cp -r $D/../undisturbed/. $D"), 0);
}

#define SAME "cmp $D/whole/model.safetensors $D/end/model.safetensors && cut -d, -f1-5 <$D/whole.jsonl >$D/a && " \
             "cut -d, -f1-5 <$D/end.jsonl >$D/b && cmp $D/a $D/b"
/* starts a run in the background as process P; its n-th child is a rank.  Each blow waits until a generation is there that was not
 * there at the one before. */
#define RUN                                                                                                              \
    "rm -rf $D/c; $R $D/p --data $D/t.bin --steps 60 --checkpoint $D/c --every 4 --restarts 9 --save $D/end "             \
    "--log $D/end.jsonl %s 2>$D/said & P=$!; last=; "                                                                    \
    "newer() { for i in $(seq 400); do now=$(ls -t $D/c 2>/dev/null | grep -v -e tmp -e fail | head -n 1); "                        \
    "test -n \"$now\" && test \"$now\" != \"$last\" && break; sleep 0.01; done; last=$now; }; "

static void test_deaths(void)
{
    char dir[E2E_PATH], script[4096];
    make_folder(dir, "deaths");
    snprintf(script, sizeof script,
             RUN "newer; kill -9 $(child 3); sleep 0.3; newer; kill -9 $(child 1); wait $P && " SAME " && "
                 "grep -c 'starting again' $D/said | grep -qx 2",
             "");
    e2e_expect(dir, script, 0, "llmrun: rank 2 was killed by signal 9 (Killed) ");
    /* what every rank did last, and the instruction that rank 2 was at */
    e2e_expect(dir,
           "F=$(grep -l '^rank 2 was killed' $D/c/failure-*.txt) && test $(grep -c '^rank [0-3], [0-9]* instr' $F) = 4 && "
           "grep -q '^rank 2, [0-9]* instructions finished, ' $F && test $(grep -c '^ .*[0-9]  *[a-z_]* *[A-Z]' $F) = 128",
           0, "llmrun: what every rank did last is in ");
    snprintf(script, sizeof script, RUN "newer; kill -STOP $(child 2); wait $P && " SAME, "--watchdog 1 --goodput");
    e2e_expect(dir, script, 0, "but its process is stopped");
    /* all of the time is in one of the lines, and all steps that count are the run's */
    e2e_expect(dir, "grep -q '^goodput: .* went into 60 steps that count$' $D/said && grep -q ' starting, 2 times$' $D/said && "
                "grep -q ' again after 1 failure: ' $D/said && sed -n '/^goodput/,$p' $D/said | "
                "awk '/^goodput/ { sum = $5 * $2 / 100; all = $5; next } { sum += $1 } "
                "END { exit !(sum > 0.98 * all && sum < 1.02 * all) }'", 0, "goodput: ");
}

static void test_asked_to_stop(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "asked");
    static const char begin[] = "rm -rf $D/c $D/end.jsonl; $R $D/p --data $D/t.bin --steps 60 --checkpoint $D/c --every 1000000 --save "
                                "$D/end --log $D/end.jsonl %s 2>$D/said & P=$!; for i in $(seq 200); do "
                                "grep -q loss $D/end.jsonl 2>/dev/null && break; sleep 0.01; done; ";
    char script[4096];
    for (int rank = 0; rank < 2; rank++) { /* the whole run is asked, or one of its ranks */
        snprintf(script, sizeof script, begin, "");
        snprintf(script + strlen(script), sizeof script - strlen(script), "kill -TERM %s; wait $P",
                 rank ? "$(child 2)" : "$P");
        e2e_expect(dir, script, 75, ", as a signal asked; --resume goes on from there");
        e2e_expect(dir,
               "test $(ls $D/c | wc -l) = 1 && test ! -e $D/end/model.safetensors && $R $D/p --data $D/t.bin --steps 60 --checkpoint $D/c "
               "--every 1000000 --save $D/end --log $D/end.jsonl --resume 2>$D/said && " SAME " && rm -r $D/end",
               0, "resuming from ");
    }
}

static void test_refused(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "refused");
    e2e_expect(dir, "$R $D/p --data $D/t.bin --steps 4 --checkpoint $D/c --every 2 --quiet 2>$D/said", 0, "");
    e2e_expect(dir, "$R $D/p --data $D/t.bin --steps 9 --checkpoint $D/c 2>$D/said", 2,
           "/c has checkpoints up to step 4: --resume goes on from there, another folder begins anew");
    e2e_expect(dir, "$R $D/p --data $D/t.bin --steps 3 --checkpoint $D/c --resume 2>$D/said", 2,
           "/c/step-4: the run has only 3 steps");
    e2e_expect(dir, "head -c 9000 $D/t.txt >$D/u.txt; $L tokens $D/u.txt -q -o $D/u.bin; $R $D/p --data $D/u.bin --steps 9 --checkpoint $D/c --resume 2>$D/said", 5,
           "/c/step-4 was taken on data of ");
    e2e_expect(dir,
           "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=2 --set pp=1 --set dp=2 --set gpus=4 --set batch='4 sequences' -o "
           "$D/q && $R $D/q --data $D/t.bin --steps 9 --checkpoint $D/c --resume 2>$D/said",
           5, "/c/step-4 is of a job with 8 sequences of 32 tokens in a step, the plan takes 4 of 32");
    e2e_expect(dir,
           "printf x | dd of=$D/c/step-4/moment1/model.safetensors bs=1 seek=5000 conv=notrunc 2>/dev/null; "
           "$R $D/p --data $D/t.bin --steps 9 --checkpoint $D/c --resume 2>$D/said && grep -q 'resuming from .*/c/step-2' "
           "$D/said",
           0, "/c/step-4 is passed over: ");
    e2e_expect(dir, "$R $D/p --data $D/t.bin --steps 9 --checkpoint $D/none --resume --quiet 2>$D/said && test -d $D/none/step-9", 0,
           "");
    e2e_expect(dir, "$R $D/p --data $D/none.bin --steps 9 --checkpoint $D/n --restarts 5 2>$D/said; code=$?; "
                "grep -q again $D/said && exit 99; exit $code", 3, "none.bin");
}

static const char skewed[] =
    "llmc 1\n"
    "model m {\n    vocab 256\n    width 32\n    norm rmsnorm\n    embed tokens\n    repeat 2 { layer {\n"
    "        attn gqa(heads=4, kv=4, rope=10_000)\n        moe swiglu(32) {\n            experts 4\n            active 1\n        }\n    } }\n    head untied\n}\n"
    "train { sequence 32; batch 4 sequences; precision fp32; optimizer adamw(lr=1e-3); expert_room 1 }\n";

/* what no restart can mend is given up */
static void test_no_accident(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "accident");
    e2e_write(dir, "k.llm", skewed);
    e2e_expect(dir,
           "$L plan $D/k.llm topologies/cpu8.xml -q --set gpus=2 --set ep=2 --set dp=2 -o $D/k 2>$D/said && "
           "$R $D/k --data $D/t.bin --steps 20 --checkpoint $D/c --every 1 --restarts 9 2>$D/said",
           4, "; that has happened 3 times running, so it is no accident: giving up");
    /* each of them has a record of its own */
    e2e_expect(dir, "test $(ls $D/c | grep -c '^failure-[0-9]*\\(-[23]\\)\\?.txt$') = 3", 0, "giving up");
}

/* numbers that are none end the step before they reach any weight, and the rank that had them first is named */
static void test_not_finite(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "finite");
    /* a NaN in the last element of the last tensor: the final norm's, which both tensor-parallel ranks hold */
    e2e_expect(dir,
           "printf '\\377\\377\\377\\177' | dd of=$D/whole/model.safetensors bs=1 "
           "seek=$(($(stat -c %s $D/whole/model.safetensors) - 4)) conv=notrunc 2>/dev/null; "
           "$R $D/p --data $D/t.bin --steps 3 --quiet --init $D/whole 2>$D/said",
           4, "step 1 was not taken: its loss or its gradients are not finite; on rank ");
    e2e_expect(dir, "true", 0, " the values of model.norm.weight are not, so its memory or what was loaded is damaged");
    e2e_expect(dir,
           "$R $D/p --data $D/t.bin --steps 3 --quiet --init $D/whole --checkpoint $D/c --every 1 --restarts 5 2>$D/said",
           4, "no accident: giving up");
}

/* a bit that flips unseen is found before a checkpoint takes it, and the run goes on from the one before */
static void test_flipped(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "flipped");
    static const char run[] = "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=2 --set pp=1 --set dp=2 --set zero=0 -o $D/%s && "
                              "$R $D/%s --data $D/t.bin --steps 60 --quiet --save $D/whole --log $D/whole.jsonl && rm -rf $D/c; $R $D/%s --data $D/t.bin --steps 60 --checkpoint $D/c --every 8 --restarts 2 --save $D/end "
                              "--log $D/end.jsonl --flip-bit %s 2>$D/said && " SAME;
    char script[4096];
    snprintf(script, sizeof script, run, "two", "two", "two", "2:11");
    e2e_expect(dir, script, 0, "after step 16 ranks 0 and 2 hold the same part of the weights or moments, but not the same bits: ");
    e2e_expect(dir,
           "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=1 --set pp=1 --set dp=4 --set zero=0 -o $D/four && "
           "$R $D/four --data $D/t.bin --steps 12 --check-replicas 5 --flip-bit 1:3 2>$D/said",
           4, "after step 5 rank 1 holds other weights or moments than the 3 ranks that hold the same part: ");
}

/* the slowest test of all, by hand */
static void test_soak(void)
{
    const char *soak = getenv("SOAK");
    char dir[E2E_PATH], script[4096];
    make_folder(dir, "soak");
    snprintf(script, sizeof script,
             "N=%d; S=$((N * 50 + 60)); $R $D/p --data $D/t.bin --steps $S --quiet --save $D/whole --log $D/whole.jsonl; "
             "rm -rf $D/c; $R $D/p --data $D/t.bin --steps $S --checkpoint $D/c --every 3 --restarts $((2 * N)) --watchdog 2 "
             "--save $D/end --log $D/end.jsonl 2>$D/said & P=$!; sleep 1; k=0; last=; while kill -0 $P 2>/dev/null; do "
             "k=$((k + 1)); while test $((k %% 5)) = 0 && kill -0 $P 2>/dev/null; do now=$(ls -t $D/c | grep -v -e tmp -e fail | head -n 1); "
             "test \"$now\" != \"$last\" && last=$now && break; sleep 0.05; done; "
             "sleep 0.$(shuf -i 100-600 -n 1); C=$(child $(shuf -i 1-4 -n 1) 2>/dev/null); "
             "case $(shuf -i 1-10 -n 1) in 1) kill -STOP $C;; 2) kill -SEGV $C;; 3) kill -ABRT $C;; *) kill -9 $C;; esac "
             "2>/dev/null; test $(grep -c 'starting again' $D/said) -ge $N && break; done; wait $P && " SAME
             " && tail -n 1 $D/said >$D/last && test $(cut -d' ' -f2 $D/last) -ge $N && cp $D/last $D/said",
             atoi(soak));
    e2e_expect(dir, script, 0, "restarts: ");
    snprintf(script, sizeof script, "%s/last", dir);
    char last[256];
    e2e_read_text(script, last, sizeof last);
    printf("\n    %s", last);
}

void suite_supervise(void);
void suite_supervise(void)
{
    CU_pSuite s = CU_add_suite("supervise", prepare, NULL);
    CU_add_test(s, "ranks that die or stand still", test_deaths);
    CU_add_test(s, "asked to stop", test_asked_to_stop);
    CU_add_test(s, "what is not gone on from", test_refused);
    CU_add_test(s, "a step that always fails", test_no_accident);
    CU_add_test(s, "numbers that are none", test_not_finite);
    CU_add_test(s, "a bit that flips", test_flipped);
    if (getenv("SOAK"))
        CU_add_test(s, "soak", test_soak);
}
