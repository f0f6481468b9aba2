/* llmrun --transport mpi under a real mpirun, where Open MPI is: the bits of shared memory over plans of every kind; what
 * becomes of all when a rank fails, is killed, stands still or has another plan; and mpirun without --transport, which is
 * shared memory.  test_messages.c has the same transport on a fake. */

#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* a shell script with L, R, D as in test_cli.c, and M = mpirun with what it needs in a container; its exit status */
static int shell(const char *dir, const char *script)
{
    char whole[4096];
    snprintf(whole, sizeof whole,
             "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0\n"
             "M='timeout 400 mpirun --oversubscribe --bind-to none'\n%s", script);
    return e2e_shell(dir, whole);
}

static bool has_mpi(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "installed");
    if (shell(dir, "command -v mpirun && test -e ${R}-mpi.so") == 0)
        return true;
    test_skip("Open MPI is not installed, or the plugin was built before it was");
    return false;
}

static void expect(const char *dir, const char *script, int code)
{
    char text[1 << 12], path[E2E_PATH + 32];
    int ended = shell(dir, script);
    CU_ASSERT_EQUAL(ended, code);
    if (ended == code)
        return;
    snprintf(path, sizeof path, "%s/stderr", dir);
    e2e_read_text(path, text, sizeof text);
    printf("\n    %s: exit %d, wanted %d\n%s\n", script, ended, code, text);
}

/* what was said on stderr; once: by one rank alone */
static void expect_said(const char *dir, const char *words, bool once)
{
    static char text[1 << 16];
    char path[E2E_PATH + 32];
    snprintf(path, sizeof path, "%s/stderr", dir);
    e2e_read_text(path, text, sizeof text);
    const char *at = strstr(text, words), *reports = at ? strstr(text, "llmrun: ") : NULL;
    bool alone = !once || (reports && !strstr(reports + 1, "llmrun: "));
    CU_ASSERT(at && alone);
    if (!at || !alone)
        printf("\n    wanted%s: %s\n    said: %s\n", once ? ", once" : "", words, text);
}

static const struct {
    const char *model, *plan;
    int ranks;
    const char *options;
} layouts[] = {
    {"llama", "--set gpus=4 --set tp=2 --set pp=2 --set dp=1 --set 'overlap=tp with compute'", 4, ""},
    {"llama", "--set gpus=8 --set tp=2 --set pp=2 --set dp=2 --set zero=1", 8, "--shuffle-queues 3"},
    {"mixtral", "--set gpus=4 --set dp=2 --set tp=2 --set ep=4 --set etp=1 --set sequence_parallel=yes", 4, ""},
    {"llama", "--set gpus=4 --set dp=4 --set zero=3 --set shard=2", 4, ""},
    {"llama", "--set gpus=4 --set cp=2 --set dp=2 --set zero=2", 4, ""},
    {"gpt2", "--set gpus=4 --set pp=4 --set dp=1 --set schedule=gpipe --set tp=1", 4, ""},
    {"gpt2", "--set gpus=8 --set dp=8 --set zero=0 --set microbatch=1", 8, ""},
    {"mixtral", "--set gpus=4 --set dp=4 --set ep=2 --set zero=3 --set microbatch=1", 4, "--shuffle-queues 5"},
};

/* losses, gradient norms, first gradients and final weights are the same bytes */
static void test_equal(void)
{
    char dir[E2E_PATH], name[32], script[1500];
    if (!has_mpi())
        return;
    for (size_t i = 0; i < (test_whole() ? sizeof layouts / sizeof *layouts : 3); i++) {
        snprintf(name, sizeof name, "layout-%zu", i);
        e2e_folder(dir, name);
        snprintf(script, sizeof script,
                 "$L plan tests/reference/%s/model.llm topologies/cpu8.xml -q %s -o $D/plan && "
                 "$R $D/plan --data tests/reference/%s/tokens.bin --steps 5 --log $D/shm.jsonl --save $D/shm "
                 "--dump-gradients $D/shm-g && "
                 "$M -n %d $R $D/plan --transport mpi --data tests/reference/%s/tokens.bin --steps 5 --log $D/mpi.jsonl "
                 "--save $D/mpi --dump-gradients $D/mpi-g %s && "
                 "cmp $D/shm/model.safetensors $D/mpi/model.safetensors && "
                 "cmp $D/shm-g/gradients.safetensors $D/mpi-g/gradients.safetensors && "
                 "for t in shm mpi; do sed 's/, \"lr\".*//' $D/$t.jsonl >$D/$t.losses; done && "
                 "test $(wc -l <$D/mpi.losses) = 5 && cmp $D/shm.losses $D/mpi.losses",
                 layouts[i].model, layouts[i].plan, layouts[i].model, layouts[i].ranks, layouts[i].model,
                 layouts[i].options);
        expect(dir, script, 0);
    }
}

/* folder with plans of eight ranks (p) and of another job of as many (q) */
static void make_folder(char *dir, const char *name)
{
    e2e_folder(dir, name);
    expect(dir,
           "for b in 8 16; do $L plan tests/reference/llama/model.llm topologies/cpu8.xml -q --set tp=2 --set pp=2 "
           "--set dp=2 --set batch=\"$b sequences\" -o $D/p$b || exit 1; done; cp tests/reference/llama/tokens.bin $D/t.bin",
           0);
}

/* held-out loss and the summary's figures are all ranks' */
static void test_summary(void)
{
    char dir[E2E_PATH];
    if (!has_mpi())
        return;
    make_folder(dir, "summary");
    expect(dir,
           "for t in shm mpi; do test $t = shm && run= || run=\"$M -n 8\"; $run $R $D/p8 --transport $t --data $D/t.bin "
           "--steps 3 --eval $D/t.bin --json >$D/$t.json || exit 1; "
           "grep -o '\"eval_loss\": [^,]*\\|\"instructions_per_step\": [^,]*\\|\"planned_bytes\": [^,]*\\|"
           "\"touched_bytes\": [^,}]*' $D/$t.json >$D/$t.figures; done; "
           "test $(wc -l <$D/mpi.figures) = 18 && cmp $D/shm.figures $D/mpi.figures",
           0);
    expect_said(dir, "8 ranks over mpi, 3 steps, cpu, ", false);
}

/* in the middle of a run of many steps, with $C the process of rank 2 */
static void disturb(const char *dir, const char *options, const char *blow, int code)
{
    char script[1500];
    snprintf(script, sizeof script,
             "$M -n 8 $R $D/p8 --transport mpi --data $D/t.bin --steps 1000000 --log $D/log %s & P=$!; "
             "for i in $(seq 600); do test -s $D/log && break; sleep 0.05; done; "
             "for C in $(pgrep -P $(pgrep -P $P)); do tr '\\0' '\\n' </proc/$C/environ | "
             "grep -qx OMPI_COMM_WORLD_RANK=2 && break; done; %s; wait $P",
             options, blow);
    expect(dir, script, code);
}

/* generations are those of shared memory, and either transport goes on from them */
static void test_checkpoints(void)
{
    char dir[E2E_PATH];
    if (!has_mpi())
        return;
    make_folder(dir, "checkpoints");
    expect(dir,
           "A=\"--data $D/t.bin --every 2 --keep 0\"; R8=\"$M -n 8 $R $D/p8 --transport mpi\"; "
           "$R $D/p8 $A --steps 6 --checkpoint $D/shm && $R8 $A --steps 6 --checkpoint $D/mpi && "
           "diff -r $D/shm $D/mpi && test -e $D/mpi/step-4/checkpoint.json && "
           "mkdir $D/half && cp -r $D/shm/step-2 $D/half && $R8 $A --steps 6 --checkpoint $D/half --resume && "
           "diff -r $D/shm/step-6 $D/half/step-6",
           0);
    expect_said(dir, "resuming from ", false);
    disturb(dir, "--quiet --checkpoint $D/stopped", "kill -TERM $C", 75);
    expect(dir, "test $(ls $D/stopped | grep -c '^step-[0-9]*$') = 1", 0);
}

/* without --transport ranks that mpirun starts on one host meet in its memory */
static void test_shared_memory(void)
{
    char dir[E2E_PATH];
    if (!has_mpi())
        return;
    make_folder(dir, "shared");
    expect(dir,
           "$R $D/p8 --data $D/t.bin --steps 3 --save $D/a && $M -n 8 $R $D/p8 --data $D/t.bin --steps 3 --save $D/b && "
           "cmp $D/a/model.safetensors $D/b/model.safetensors",
           0);
    expect_said(dir, "8 ranks over shm, 3 steps, cpu, ", false);
    expect(dir, "$M -n 4 $R $D/p8 --data $D/t.bin --steps 3", 5);
    expect_said(dir, "llmrun: 4 ranks were started, the plan is for 8\n", false);
    /* as mpirun tells the ranks of a host that it is one of two */
    expect(dir,
           "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_SIZE=4 OMPI_MCA_ess_base_jobid=1 "
           "$R $D/p8 --data $D/t.bin --steps 3",
           5);
    expect_said(dir, "the ranks were started on several hosts, which share no memory: pass --transport mpi", true);
}

/* nothing begins where ranks do not fit each other, and one of them says why */
static void test_no_run(void)
{
    char dir[E2E_PATH];
    if (!has_mpi())
        return;
    make_folder(dir, "no-run");
    expect(dir, "$M -n 4 $R $D/p8 --transport mpi --data $D/t.bin --steps 3 --log $D/log", 5);
    expect_said(dir, "llmrun: 4 ranks were started, the plan is for 8: mpirun -n 8 llmrun ...", true);
    expect(dir, "timeout 400 $R $D/p8 --transport mpi --data $D/t.bin --steps 3 --log $D/log", 5);
    expect_said(dir, "llmrun: 1 rank was started, the plan is for 8: mpirun -n 8 llmrun ...", true);
    expect(dir,
           "A=\"--transport mpi --data $D/t.bin --steps 3 --log $D/log\"; "
           "$M -n 5 $R $D/p8 $A : -n 1 $R $D/p16 $A : -n 2 $R $D/p8 $A",
           5);
    expect_said(dir, "llmrun: rank 5 has another plan than rank 0: ", true);
    expect(dir,
           "A=\"--transport mpi --steps 3 --log $D/log\"; "
           "$M -n 6 $R $D/p8 $A --data $D/t.bin : -n 2 $R $D/p8 $A --data $D/none",
           3);
    expect_said(dir, "llmrun: rank 6: ", true);
    expect_said(dir, "/none: No such file or directory", true);
    expect(dir, "test -e $D/log", 1);
}

static void test_failures(void)
{
    char dir[E2E_PATH];
    if (!has_mpi())
        return;
    make_folder(dir, "failures");
    disturb(dir, "--quiet", "kill -9 $C", 137);
    expect_said(dir, "process rank 2 ", false); /* mpirun's words */
    expect(dir, "rm $D/log", 0);
    disturb(dir, "--quiet --watchdog 1", "kill -STOP $C", 4);
    expect_said(dir, "llmrun: rank 0: no rank has made progress for 1 s: nothing is heard of rank 2 on ", true);
    expect_said(dir, "other ranks there answer, so it is the process that stands still; see the list of what each waits for", true);
    expect_said(dir, "rank 7: stepping, step ", false);
    expect_said(dir, "meets rank 2, which ", false);
    /* all ranks find it, one says it: weights of another model */
    expect(dir,
           "$M -n 8 $R $D/p8 --transport mpi --data $D/t.bin --steps 3 --init tests/reference/gpt2", 3);
    expect_said(dir, "llmrun: rank 0: the weights lack tensor ", true);
    /* one rank alone finds it */
    expect(dir,
           "A=\"--transport mpi --data $D/t.bin --steps 3\"; "
           "$M -n 7 $R $D/p8 $A : -n 1 $R $D/p8 $A --init tests/reference/gpt2", 3);
    expect_said(dir, "llmrun: rank 7: the weights lack tensor ", true);
}

/* two hosts, as far as one machine can be two */
static void test_hosts(void)
{
    char dir[E2E_PATH];
    if (!has_mpi())
        return;
    make_folder(dir, "hosts");
    int code = shell(dir, "timeout 250 tests/tools/hosts.sh ${L%/llmc} $D $D/p8 $D/t.bin 8");
    CU_ASSERT(code == 0 || code == 77);
    if (code == 77)
        test_skip("this takes root, ip, unshare and nsenter");
    else if (code)
        printf("\n    exit %d: see %s/stdout and stderr\n", code, dir);
}

void suite_mpi(void);
void suite_mpi(void)
{
    CU_pSuite s = CU_add_suite("mpi", NULL, NULL);
    CU_add_test(s, "the bits of shared memory", test_equal);
    CU_add_test(s, "evaluation and figures of all ranks", test_summary);
    CU_add_test(s, "checkpoints", test_checkpoints);
    CU_add_test(s, "mpirun without --transport", test_shared_memory);
    CU_add_test(s, "ranks that do not fit", test_no_run);
    CU_add_test(s, "two hosts", test_hosts);
    CU_add_test(s, "ranks that fail, die or stand still", test_failures);
}
