/* The index of faults: thirty classes of what goes wrong in runs of weeks, each with the test that shows what becomes of
 * it.  In the end there is the right cause, and no step is lost beyond the last checkpoint.  Some are shown here, some by
 * suites of their own, which this one looks for by name.
 *
 * The core ten run alone but with LLMC_DRAWS=all. */

#include "runtime/spikes.h"
#include "tests/compiler/random_plan.h"
#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[E2E_PATH];

/* the plan p of four ranks, and what 60 undisturbed steps leave */
static int prepare(void)
{
    char path[E2E_PATH + 16];
    e2e_folder(dir, "faults");
    snprintf(path, sizeof path, "%s/m.llm", dir);
    FILE *out = fopen(path, "w");
    bool fine = out && fputs(e2e_small_model, out) >= 0;
    fine = out && fclose(out) == 0 && fine;
    return !fine || e2e_shell(dir, "cat runtime/*.c >$D/t.txt && $L tokens $D/t.txt -q -o $D/t.bin && "
                                   "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=2 --set pp=1 --set dp=2 --set gpus=4 -o $D/p && "
                                   "$R $D/p --data $D/t.bin --steps 60 --quiet --save $D/whole --log $D/whole.jsonl");
}

/* $A: data and length; same: the run has left what the undisturbed one leaves; blow: signal $1 to rank $2 - 1 of run $P, as soon as
 * it is there */
#define WORDS                                                                                                           \
    "A=\"--data $D/t.bin --steps 60 --quiet\"; C=\"--checkpoint $D/c --every 4\"; rm -rf $D/c $D/end $D/end.jsonl; "       \
    "same() { cmp $D/whole/model.safetensors $D/end/model.safetensors; }; "                                             \
    "newer() { for i in $(seq 500); do now=$(ls -t $D/c 2>/dev/null | grep '^step-[0-9]*$' | head -n 1); "              \
    "test -n \"$now\" && test \"$now\" != \"$last\" && break; sleep 0.01; done; last=$now; }; "                         \
    "blow() { for i in $(seq 500); do kill -$1 $(child $2) 2>/dev/null && break; sleep 0.01; done; }; "                 \
    "MPI='timeout 400 mpirun --oversubscribe --bind-to none'; export OMPI_ALLOW_RUN_AS_ROOT=1 "                         \
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "                                                                                \
    "ASAN_OPTIONS=detect_leaks=0:handle_segv=0:verify_asan_link_order=0; "

/* the script ends with this code, and somebody says this; false: it is 77, for the reason on its standard output */
static bool expect(const char *script, int code, const char *says)
{
    char path[E2E_PATH + 32], text[1 << 14], whole[4096];
    char before[E2E_PATH + 32];
    snprintf(path, sizeof path, "%s/stderr", dir);
    snprintf(before, sizeof before, "%s/stderr.before", dir); /* what the script before said */
    rename(path, before);
    snprintf(whole, sizeof whole, WORDS "%s", script);
    int ended = e2e_shell(dir, whole);
    snprintf(path, sizeof path, "%s/%s", dir, ended == 77 ? "stdout" : "stderr");
    e2e_read_text(path, text, sizeof text);
    if (ended == 77) {
        text[strcspn(text, "\n")] = 0;
        test_skip("%s", text);
        return false;
    }
    CU_ASSERT_EQUAL(ended, code);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, says));
    if (ended != code || !strstr(text, says)) {
        printf("\n    %s\n    exit %d, wanted %d and: %s\n    said: %.3000s\n", script, ended, code, says, text);
        snprintf(path, sizeof path, "%s/stdout", dir);
        e2e_read_text(path, text, sizeof text);
        printf("    printed: %.3000s\n    said before: ", text);
        e2e_read_text(before, text, sizeof text);
        printf("%.3000s\n", text);
    }
    return true;
}

static void test_killed(void)
{
    expect("$R $D/p $A $C --restarts 9 --save $D/end & P=$!; for s in KILL SEGV ABRT; do newer; blow $s 3; "
           "done; wait $P && same",
           0, "llmrun: rank 2 was killed by signal 6 (Aborted)");
}

static void test_node_killed(void)
{
    expect("$R $D/p $A $C --restarts 1 --save $D/end & P=$!; newer; blow 9 3-4; wait $P && same", 0,
           "starting again from the newest checkpoint (restart 1 of 1)");
}

static void test_stopped(void)
{
    expect("$R $D/p $A $C --restarts 1 --watchdog 1 --save $D/end & P=$!; newer; S=$(child 2); kill -STOP $S; wait $P && same && "
           "! kill -0 $S",
           0, ", but its process is stopped");
    /* between instructions, or while a checkpoint is written */
    expect("grep -q 'no rank has made progress for 1 s: all wait for rank 1, .*, but its process is stopped; see\\|"
           "a checkpoint waits for rank 1 for 1 s, but its process is stopped' $D/stderr.before",
           0, "");
}

/* A plan whose ranks wait for each other in a circle, which the verifier would refuse: a stage sends only when it has got
 * what the next stage makes of it. */
static void test_deadlock(void)
{
    struct arena *arena = arena_new();
    struct plan *p = text_plan(arena, tiny_llama, "pp=2 microbatch=1");
    struct error error = {""};
    char path[E2E_PATH + 16];
    struct program *q = p->train[0];
    uint32_t send = 0;
    while (send < q->ninsns && q->insns[send].op != OP_SEND)
        send++;
    CU_ASSERT_FATAL(send < q->ninsns && q->insns[send].nwaits > 0);
    q->waits[q->insns[send].wait] = (struct wait){.queue = QUEUE_RECV, .position = 0};
    snprintf(path, sizeof path, "%s/circle", dir);
    CU_ASSERT_EQUAL_FATAL(plan_write(p, path, true, &error), STATUS_OK);
    expect("head -c 60000 /dev/zero >$D/z.bin; timeout 400 $R $D/circle --data $D/z.bin --steps 9 --watchdog 1 --quiet", 4,
           "no rank has made progress for 1 s: the plan itself stands still, and would on any machine: rank ");
    plan_close(p);
    arena_free(arena);
}

/* one rank at half speed is named, and lives; equal ranks of plans that divide the work unequally are not */
static void test_straggler(void)
{
    expect("$R $D/p --data $D/t.bin --steps 250 --quiet --slow-rank 2:2 --save $D/end && "
           "$R $D/p --data $D/t.bin --steps 250 --quiet --save $D/whole250 && "
           "cmp $D/whole250/model.safetensors $D/end/model.safetensors",
           0, "llmrun: rank 2 is slow, and all wait for it: ");
    expect("test $(grep -c 'is slow' $D/stderr.before) = 1", 0, "");
    expect("for o in '--set pp=4 --set tp=1 --set dp=1' '--set pp=2 --set tp=2 --set dp=1' '--set cp=2 --set tp=1 --set pp=1 --set dp=2'; do "
           "$L plan $D/m.llm topologies/cpu8.xml -q --set gpus=4 $o -o $D/uneven || exit; "
           "$R $D/uneven --data $D/t.bin --steps 150 --quiet 2>$D/uneven.said || exit; grep 'is slow' $D/uneven.said >&2 && exit 1; done; true",
           0, "");
}

static void test_link(const char *what)
{
    char script[256];
    snprintf(script, sizeof script,
             "test -e ${R}-mpi.so || { echo 'there is no MPI plugin'; exit 77; }; rm -rf $D/cut; mkdir $D/cut && timeout 400 tests/tools/cut.sh ${L%%/llmc} $D/cut $D/p $D/t.bin 4 %s", what);
    expect(script, 0, "");
}

static void test_link_down(void)
{
    test_link("flap");
    test_link("down");
}

static void test_black_hole(void)
{
    test_link("drop");
}

static void test_host_lost(void)
{
    test_node_killed();
    test_link("lost");
}

/* under a launcher: the run goes on without the one that is too many */
static void test_duplicate(void)
{
    expect("export WORLD_SIZE=4 MASTER_PORT=$$; T=\"$R $D/p $A --save $D/end\"; for r in 0 1 2; do RANK=$r $T & done; sleep 0.5; "
           "RANK=1 timeout 400 $T; test $? = 4 -o $? = 5 || exit 9; RANK=0 timeout 400 $T && exit 8; RANK=3 $T && wait && same",
           0, "llmrun: rank 1 was started twice: process ");
    expect("grep -q 'rank 0 was started twice' $D/stderr.before", 0, "");
}

/* each flush takes half a second; saves by time are left out meanwhile, and no step waits for one */
static void test_slow_storage(void)
{
    expect("mkdir -p $D/slow; D2=$(realpath $D/slow); LD_PRELOAD=$(realpath ${L%/llmc})/tests/preload/faults.so FAULTS_BELOW=$D2 FAULTS_DELAY=150 "
           "$R $D/p --data $D/t.bin --steps 80 --quiet --checkpoint $D2/c --every 0.1s --log $D/end.jsonl --json >$D/json || exit; "
           "sed 's/.*step_time_s\": \\([0-9.e-]*\\).*/\\1/' $D/end.jsonl | sort -g | tail -n 1 | "
           "awk '$1 > 1 { print \"a step took \" $1 > \"/dev/stderr\"; exit 1 }' || exit; cat $D/json >&2",
           0, "\"left_out\": ");
    expect("! grep -q '\"left_out\": 0' $D/stderr.before && rm -r $D/slow", 0, "");
}

/* a batch of what no text looks like, at step 41 */
static void test_spike(void)
{
    expect("cp $D/t.bin $D/s.bin; for i in $(seq 256); do printf \"\\\\$(printf %o $((128 + i % 100)))\\\\000\"; done | "
           "dd of=$D/s.bin bs=1 seek=$((1024 + 512 * 40)) conv=notrunc 2>/dev/null; "
           "$R $D/p --data $D/s.bin --steps 60 --quiet $C --on-spike stop; test $? = 75 && test -d $D/c/step-43",
           0, "llmrun: step 41: the loss rises to ");
    /* a series that only falls, or scatters by a tenth, has none; a jump is said once */
    struct spikes s = {.loss = {.n = 0}};
    uint64_t random = 5;
    for (uint64_t step = 1; step <= 2000; step++) {
        double noise = (random_below(&random, 2001) / 1000.0 - 1) / 10, loss = (2 + 4 * 50.0 / (50.0 + (double)step)) * (1 + noise);
        const char *words = spikes_add(&s, step, step == 1500 || step == 1501 ? 3 * loss : loss, step == 1700 ? 30 : 1 + 5 * noise);
        if (words && step != 1500 && step != 1700)
            printf("\n    %s", words);
        CU_ASSERT_EQUAL(words != NULL, step == 1500 || step == 1700);
    }
}

static void test_clocks(void)
{
    expect("LD_PRELOAD=$(realpath ${L%/llmc})/tests/preload/clock.so date +%s >$D/hour; test $(($(date +%s) - $(cat $D/hour))) -ge 3500 || exit; "
           "LD_PRELOAD=$(realpath ${L%/llmc})/tests/preload/clock.so $R $D/p $A --checkpoint $D/c --every 1h --watchdog 2 --save $D/end && same && "
           "test $(ls $D/c | wc -l) = 1",
           0, "");
}

/* a control group of 10 MiB, where the ranks need more; and an address space without room for what they map */
static void test_memory(void)
{
    if (strstr(e2e_build(), "san")) {
        test_skip("the address sanitizer wants more memory than this leaves");
        return;
    }
    expect("(ulimit -v 100000; exec $R $D/p $A)", 4, "llmrun: cannot map the ");
    expect("G=/sys/fs/cgroup/memory F=memory.limit_in_bytes; test -d $G || { G=/sys/fs/cgroup F=memory.max; }; G=$G/llmc-test-$$; "
           "mkdir $G 2>/dev/null && echo 10000000 >$G/$F 2>/dev/null || { rmdir $G 2>/dev/null; echo 'no control group can be made here'; exit 77; }; "
           "sh -c \"echo \\$\\$ >$G/cgroup.procs; exec $R $D/p $A --checkpoint $D/c\"; code=$?; rmdir $G; exit $code",
           4, " was killed because the memory of its control group ran out");
}

static void test_limits(void)
{
    for (int most = 4; most <= 8; most += test_whole() ? 1 : 2) { /* descriptors, but for those of make: it works, or says what it cannot do */
        char script[512];
        snprintf(script, sizeof script,
                 "(exec 3>&- 4>&- 5>&- 6>&- 7>&-; ulimit -n %d; exec $R $D/p $A $C --save $D/end); code=$?; test $code != 0 || same || exit 9; "
                 "test $code = 0 || grep -q 'llmrun: .*Too many open files' $D/stderr || exit 8; test $code = 0 -o $code = 4",
                 most);
        expect(script, 0, "");
    }
    expect("test $(id -u) = 0 || { echo 'this takes root'; exit 77; }; command -v setpriv >/dev/null || { echo 'there is no setpriv'; exit 77; }; "
           "T=$(mktemp -d) && chmod 755 $T && cp -r $D/p $D/t.bin $R $T && chmod -R a+rX $T; "
           "(cd / && exec setpriv --reuid 54321 --clear-groups prlimit --nproc=3:3 $T/llmrun $T/p --data $T/t.bin --steps 9 --quiet); "
           "code=$?; rm -r $T; exit $code",
           4, "llmrun: cannot start a process for rank ");
}

/* the launching process is killed: no rank lives for longer than five seconds, and the run can be gone on with */
static void test_launcher(void)
{
    expect("$R $D/p $A $C & P=$!; newer; K=$(child 1-); kill -9 $P; "
           "gone $K || exit 9; $R $D/p $A $C --resume --save $D/end; same",
           0, "");
}

/* the same of mpirun */
static void test_mpirun(void)
{
    expect("command -v mpirun >/dev/null && test -e ${R}-mpi.so || { echo 'there is no Open MPI'; exit 77; }; "
           "mpirun --oversubscribe --bind-to none -n 4 $R $D/p --transport mpi --data $D/t.bin --steps 1000000 --quiet --log $D/end.jsonl & "
           "P=$!; for i in $(seq 300); do test -s $D/end.jsonl && break; sleep 0.05; done; K=$(pgrep -P $P); kill -9 $P; "
           "test $(echo $K | wc -w) -ge 4 || exit 8; gone $K || exit 9",
           0, "");
}

static void test_launchers(void)
{
    test_launcher();
    test_mpirun();
}

/* ranks of one MPI job: another build, another secret, another plan */
static void test_strangers(void)
{
    static const char *const other[][2] = {
        {"$M : -n 1 -x LLMRUN_SECRET=a $D/other/llmrun $W", "rank 3 on .* runs another build of llmrun than rank 0"},
        {"$M : -n 1 -x LLMRUN_SECRET=b $R $W", "rank 3 on .* has another secret than rank 0"}};
    char script[1024];
    for (size_t i = 0; i < 2; i++) {
        snprintf(script, sizeof script,
                 "command -v mpirun >/dev/null && test -e ${R}-mpi.so || { echo 'there is no Open MPI'; exit 77; }; "
                 "rm -rf $D/other; mkdir $D/other && cp ${L%%/llmc}/llmrun ${R}-mpi.so $D/other && echo >>$D/other/llmrun; "
                 "W=\"$D/p --transport mpi $A --log $D/end.jsonl\"; M=\"$MPI -n 3 -x LLMRUN_SECRET=a $R $W\"; "
                 "%s; code=$?; grep -q '%s' $D/stderr || exit 9; test ! -e $D/end.jsonl || exit 8; exit $code",
                 other[i][0], other[i][1]);
        expect(script, 5, "");
    }
}

/* nobody reads: the run goes on, and says at its end what it could not write */
static void test_streams(void)
{
    static const struct {
        const char *to;
        int code;
    } ways[] = {{"--log - >/dev/full", 4}, {"--log $D/end.jsonl >&- 2>&- <&-", 0}, {"2>/dev/full", 0},
                {"--json >&-", 4}, {"--log /dev/full", 4}};
    for (size_t i = 0; i < (test_whole() ? sizeof ways / sizeof *ways : 2); i++) {
        char script[512];
        snprintf(script, sizeof script, "$R $D/p --data $D/t.bin --steps 60 --save $D/end %s; code=$?; same || exit 9; exit $code", ways[i].to);
        expect(script, ways[i].code, "");
    }
    expect("$R $D/p --data $D/t.bin --steps 60 --log $D/end.jsonl >&- 2>&- <&-; test $(grep -c '^{\"step\"' $D/end.jsonl) = 60 && "
           "test $(wc -l <$D/end.jsonl) = 60",
           0, "");
}

/* ---- the index ---- */

struct fault_class {
    int number;
    const char *name;
    bool core;             /* one of the ten */
    void (*show)(void);    /* NULL: the other suites do */
    const char *elsewhere; /* "SUITE: TEST; SUITE: TEST", or NULL */
};

static const struct fault_class classes[] = {
    {1, "a rank is killed", true, test_killed, "supervise: ranks that die or stand still; checkpoint_faults: a process killed at every change"},
    {2, "all ranks of a node are killed", false, test_host_lost, NULL},
    {3, "a rank stands still", true, test_stopped, "mpi: ranks that fail, die or stand still"},
    {4, "a plan that waits in a circle", true, test_deadlock, "wrong_plans"},
    {5, "a slow rank", false, test_straggler, NULL},
    {6, "a link goes down, and comes back", false, test_link_down, NULL},
    {7, "a link swallows everything", false, test_black_hole, NULL},
    {8, "a damaged plan", false, NULL, "program_damage; folder; odd_files"},
    {9, "ranks with different plans", false, NULL, "rendezvous: other plans, secrets and sizes; mpi: ranks that do not fit"},
    {10, "a rank twice, a rank missing, another number of ranks", true, test_duplicate, "rendezvous: other builds, a rank twice; mpi: ranks that do not fit"},
    {11, "a checkpoint that is cut off", false, NULL, "checkpoint_faults: a process killed at every change; checkpoint_faults: deaths at any time"},
    {12, "a damaged checkpoint", false, NULL, "checkpoint_damage; checkpoint_faults: damaged generations are replaced"},
    {13, "a disk that is full or fails", false, NULL, "checkpoint_faults: every change that fails; checkpoint_disks"},
    {14, "a slow disk", false, test_slow_storage, NULL},
    {15, "power is lost", false, NULL, "checkpoint_crash"},
    {16, "damaged data", false, NULL, "data"},
    {17, "the place in the data", false, NULL, "resume"},
    {18, "numbers that are none", false, NULL, "supervise: numbers that are none"},
    {19, "the loss or the gradients jump", true, test_spike, NULL},
    {20, "a bit flips", false, NULL, "supervise: a bit that flips"},
    {21, "the run is asked to stop", false, NULL, "supervise: asked to stop; mpi: checkpoints"},
    {22, "clocks jump", true, test_clocks, NULL},
    {23, "the host's memory runs out", true, test_memory, NULL},
    {24, "a device's memory is too small", false, NULL, "device"},
    {25, "descriptors, processes or the port run out", true, test_limits, "rendezvous: a port that is taken"},
    {26, "the launcher dies", false, test_launchers, "checkpoint_faults: deaths at any time"},
    {27, "the same step fails again and again", false, NULL, "supervise: a step that always fails"},
    {28, "strangers at the meeting's port", true, NULL, "rendezvous: a crowd at the door"},
    {29, "another build", false, test_strangers, "rendezvous: other builds, a rank twice"},
    {30, "nobody takes the log", true, test_streams, NULL},
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* the tests that are said to show a class are there */
static void test_index(void)
{
    CU_ASSERT_EQUAL(CLASSES, 30);
    for (int i = 0; i < CLASSES; i++) {
        char list[400], script[800], *rest = NULL;
        CU_ASSERT_EQUAL(classes[i].number, i + 1);
        CU_ASSERT(classes[i].show || classes[i].elsewhere);
        snprintf(list, sizeof list, "%s", classes[i].elsewhere ? classes[i].elsewhere : "");
        for (char *one = strtok_r(list, ";", &rest); one; one = strtok_r(NULL, ";", &rest)) {
            one += *one == ' ';
            char *test = strstr(one, ": ");
            if (test)
                *test = 0;
            snprintf(script, sizeof script, "F=$(grep -rl --include='*.c' 'CU_add_suite(\"%s\"' tests) && grep -qx 'SUITE(%s)' tests/suites.def && grep -qF '\"%s' $F",
                     one, one, test ? test + 2 : "");
            expect(script, 0, "");
        }
    }
}

void suite_faults(void);
void suite_faults(void)
{
    CU_pSuite s = CU_add_suite("faults", prepare, NULL);
    CU_add_test(s, "the index", test_index);
    for (int i = 0; i < CLASSES; i++)
        if (classes[i].show && (classes[i].core || test_whole()))
            CU_add_test(s, classes[i].name, classes[i].show);
}
