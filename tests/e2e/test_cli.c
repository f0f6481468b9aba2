/* The command line as people and scripts meet it: exit codes, what goes to stdout and what to stderr, JSON,
 * damaged and foreign plan folders, equal bytes.  Everything runs the real binaries by a shell in the root of
 * the tree, with L and R for llmc and llmrun, M and C for the tiny Llama and its cluster, D for a folder of
 * the test. */

#include "tests/e2e/e2e.h"
#include "tests/e2e/shot.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void suite_cli(void);

static char *folder(void)
{
    char *path = malloc(E2E_PATH);
    e2e_folder(path, "cli");
    return path;
}

struct line {
    const char *command;
    int code;
    const char *says;
};

static void expect_all(const struct line *lines, size_t n, bool with_plan)
{
    struct shot *s = malloc(sizeof *s);
    char *dir = folder();
    if (with_plan)
        expect(s, dir, "$L plan $M $C -q -o $D/p", 0, NULL);
    for (size_t i = 0; i < n; i++)
        expect(s, dir, lines[i].command, lines[i].code, lines[i].says);
    free(s);
    free(dir);
}
#define EXPECT_ALL(lines, with_plan) expect_all(lines, sizeof lines / sizeof *lines, with_plan)

static void test_fine(void)
{
    static const struct line lines[] = {
        {"$L help", 0, NULL},
        {"$L --help", 0, NULL},
        {"$L help plan", 0, NULL},
        {"$L help topo show", 0, NULL},
        {"$L help topo | grep -c '^usage: llmc topo ' | grep -q 2", 0, NULL},
        {"$L help topo import | grep -q '^  nvidia-smi '", 0, NULL},
        {"$L topo --help | grep -q '^usage: llmc topo import'", 0, NULL},
        {"$L topo show --help | grep -c '^usage: ' | grep -q 1", 0, NULL},
        {"$L help language", 0, NULL},
        {"$L help attn | grep -q '^attn mla(...)'", 0, NULL},
        {"test $($L help microbatch | wc -l) = 3", 0, NULL},
        {"$L help gpus | grep -q '^H800-SXM '", 0, NULL},
        {"$L help cluster | sed -n '/<cluster v/,/<.cluster>/p' >$D/small.xml; $L topo show $D/small.xml | grep -q '256 GPUs'", 0, NULL},
        {"$L plan --help", 0, NULL},
        {"$L version", 0, NULL},
        {"$L --version", 0, NULL},
        {"$L isa", 0, NULL},
        {"$L isa MATMUL_NT", 0, NULL},
        {"$L fmt $M", 0, NULL},
        {"$L topo show $C", 0, NULL},
        {"$L estimate $M $C", 0, NULL},
        /* what long work is at, for a person at a terminal alone, and gone in the end */
        {"env -u CI script -qec \"$L estimate $M $C\" /dev/null | tr '\\r' '\\n' >$D/seen; grep -q 'searching' $D/seen && "
         "grep -q 'lowering' $D/seen && grep -A1 'other targets' $D/seen | tail -n 1 | grep -q '^.\\[K.* on 8 of 8 '",
         0, NULL},
        {"script -qec \"$L estimate $M $C -q\" /dev/null | { ! grep -q searching; }", 0, NULL},
        {"env -u CI script -qec \"$L estimate $M $C --sweep tp=1,2\" /dev/null | grep -q 'row 2 of 2'", 0, NULL},
        {"$L estimate $M $C --set 'tp<=1' --set pp=1 --set dp=1", 0, NULL},
        {"$L estimate $M $C --set profile=torch-fsdp", 0, NULL},
        {"$L estimate $M $C --sweep tp=1,2", 0, NULL},
        {"$L estimate $M $C --set 'tp in [1, 2]' --sweep pp=1,2 --sweep dp=2,4", 0, NULL},
        {"$L explain $M $C", 0, NULL},
        {"$L explain $D/p --all", 0, NULL},
        {"$L plan plans/llama3-8b/model.llm topologies/h100x8.xml --budget 1000 -o $D/short", 0,
         " % faster; '--budget 4000' looks further"},
        {"$L explain plans/llama3-8b/model.llm topologies/h100x8.xml --budget 1000 | grep -q -e ' --budget 4000 lets the'", 0, NULL},
        {"$L explain $D/p --json | sed 's/, \"emittable.*//' >$D/x; grep -q "
         "\"chosen.*peak_memory_bytes.: $($L show $D/p --json | sed -n 's/.*peak_memory_bytes.: \\([0-9]*\\),.*/\\1/p')$\" $D/x", 0, NULL},
        {"$L help explain", 0, NULL},
        {"$L tokens LICENSE -o $D/t.bin -q", 0, NULL},
        {"$L tokens LICENSE -o$D/t2.bin -q && cmp $D/t.bin $D/t2.bin", 0, NULL},
        {"$L check $D/p", 0, NULL},
        {"$L check $D/p --full", 0, NULL},
        {"$L show $D/p", 0, NULL},
        {"$L show $D/p --memory", 0, NULL},
        {"$L show $D/p --traffic --rank 7", 0, NULL},
        {"$L show $D/p --timeline --ascii", 0, NULL},
        {"$L show $D/p --schedule", 0, NULL},
        {"$L show $D/p --code --stage 1", 0, NULL},
        {"$L trace $D/p -o $D/t.json", 0, NULL},
        {"$L trace $D/p --output=$D/t.json --ranks 0,6-7", 0, NULL},
        {"$R --help", 0, NULL},
        {"$R --version", 0, NULL},
        {"$L plan $M $C -q --set 'batch=4 sequences' -o $D/small && $R $D/small --data $D/t.bin --steps 1 --quiet", 0, NULL},
    };
    EXPECT_ALL(lines, true);
}

#define TEN "123456789x" /* of an unknown option the first sixty characters are said */

static void test_usage(void)
{
    static const struct line lines[] = {
        {"$L", 2, "usage: llmc COMMAND"},
        {"$L plam", 2, "unknown command 'plam'; did you mean 'plan'?"},
        {"$L qwertyuiop", 2, "unknown command 'qwertyuiop'; see 'llmc help'"},
        {"$L topo shwo x", 2, "unknown command 'topo shwo'; did you mean 'topo show'?"},
        {"$L topo", 2, "usage: llmc topo show CLUSTER"},
        {"$L topo imprt x", 2, "unknown command 'topo imprt'; did you mean 'topo import'?"},
        {"$L topo import nccl", 2, "usage: llmc topo import FORMAT FILE"},
        {"$L topo import nccl x slurm", 2, "topo import wants a format before each file"},
        {"$L topo import ncl x", 2, "topo import knows no format 'ncl'; did you mean 'nccl'?"},
        {"$L topo import x nccl", 2, "topo import knows no format 'x'; it knows nccl, slurm, nvidia-smi, nccl-tests, hwloc"},
        {"$L topo import nccl x --set nodes", 2, "--set wants KEY=VALUE"},
        {"$L help plam", 2, "unknown command 'plam'; did you mean 'plan'?"},
        {"$L plan --jsn", 2, "unknown option '--jsn'; did you mean '--json'?"},
        {"$L plan --jsn=yes", 2, "unknown option '--jsn'; did you mean '--json'?"},
        {"$L plan --" TEN TEN TEN TEN TEN "12345678=1", 2, "'--" TEN TEN TEN TEN TEN "12345678';"},
        {"$L plan --" TEN TEN TEN TEN TEN "123456789=1", 2, "'--" TEN TEN TEN TEN TEN "123456789';"},
        {"$L plan --" TEN TEN TEN TEN TEN TEN "=1", 2, "'--" TEN TEN TEN TEN TEN TEN "';"},
        {"$L plan --" TEN TEN TEN TEN TEN TEN "1=1", 2, "'--" TEN TEN TEN TEN TEN TEN "';"},
        {"$L check --set tp=1 x", 2, "unknown option '--set'"},
        {"$L plan $M", 2, "usage: llmc plan MODEL CLUSTER -o DIR"},
        {"$L plan $M $C", 2, "plan wants -o DIR"},
        {"$L plan $M $C x -o $D/q", 2, "'x' is one argument too many"},
        {"$L plan $M $C -o", 2, "--output wants PATH"},
        {"$L plan $M $C -o $D/q --set tp", 2, "--set wants KEY=VALUE"},
        {"$L explain $D/p --set tp=1", 2, "--set goes with MODEL CLUSTER"},
        {"$L explain", 2, "usage: llmc explain DIR | MODEL CLUSTER"},
        {"$L estimate $M $C --sweep tp", 2, "--sweep wants KEY=A,B,C"},
        {"$L plan $M $C -o $D/q --budget many", 2, "--budget wants a number, not 'many'"},
        {"$L plan $M $C -o $D/q --price 0", 2, "--price wants dollars per GPU hour, such as 2.50, not '0'"},
        {"$L estimate $M $C --price -1", 2, "such as 2.50, not '-1'"},
        {"$L show $D/p --price 2,50", 2, "such as 2.50, not '2,50'"},
        {"$L explain $D/p --price nan", 2, "such as 2.50, not 'nan'"},
        {"$L report $D/p -o $D/h --price 1e7", 2, "such as 2.50, not '1e7'"},
        {"$L check $D/p --price 2", 2, "unknown option '--price'"},
        {"$L plan $M $C -o $D/q --json=yes", 2, "--json takes no value"},
        {"$L trace $D/p", 2, "trace wants -o FILE"},
        {"$L trace $D/p -o $D/t --ranks 0,99", 2, "'0,99' is not a list of ranks"},
        {"$L trace $D/p -o $D/t --format xml", 2, "--format wants json or perfetto, not 'xml'"},
        {"$L trace $D/p -o $D/t --format json --times", 2, "--times has a format of its own"},
        {"$L tokens $M", 2, "tokens wants -o OUT"},
        {"$L show $D/p --rank 8", 2, "there is no rank 8; the plan has ranks 0 to 7"},
        {"$L show $D/p --rank 4294967294", 2, "there is no rank 4294967294; "},
        {"$L show $D/p --rank 4294967295", 2, "there is no rank 429496729"},
        {"$L show $D/p --rank 4294967296", 2, "there is no rank 429496729"},
        {"$L show $D/p --code --stage 18446744069414584320", 2, "wants a number, not '18446744069414584320'"},
        {"$L show $D/p --code --stage 999999999999999999", 2, "there is no stage 429496729"},
        {"$L show $D/p --code --stage 2", 2, "there is no stage 2; the plan has stages 0 to 1"},
        {"$L show $D/p --memory --traffic", 2, "one view at a time"},
        {"$L isa NOSUCH", 2, "no instruction is called 'NOSUCH'"},
        {"$L -d nothing $M $C", 2, "the stages are ast, sched, asm"},
        {"$R", 2, "PLAN: missing"},
        {"$R $D/p", 2, "--data: missing"},
        {"$R $D/p --data $M --steps none", 2, "not a whole number"},
        {"$R $D/p --no-such-option", 2, "--no-such-option"},
        {"$R $D/p --data $M --device tpu", 2, "--device tpu: not one of: cpu cuda"},
    };
    EXPECT_ALL(lines, true);
}

/* 1 no plan, 3 input, 4 environment, 5 hosts */
static void test_failures(void)
{
    static const struct line lines[] = {
        {"$L plan $M $C -o $D/q --set 'memory=16MiB'", 1, "nothing fits in 16MiB"},
        {"$L explain nodir", 3, "nodir/MANIFEST is missing: this is no plan folder"},
        {"$L estimate $M $C --set gpus=16", 1, "'gpus' must be 16 but 'cpu8' has 8 usable GPUs"},
        {"$L estimate plans/llama3-8b/model.llm topologies/h100x8.xml --budget 1", 1,
         "error: no plan: a budget of 1 ended the search before anything was found"},
        {"$L estimate plans/llama3-8b/model.llm topologies/h100x8.xml --budget 1", 1, "   help: leave --budget out for one of 3000000"},
        {"$L plan nofile $C -o $D/q", 3, "cannot read 'nofile'"},
        {"$L plan $M $C -o $D/q --set 'schedule=\"nofile.csv\"'", 3, "nofile.csv': No such file"},
        {"$L estimate $M $C --set 'schedule=\"model.llm\"'", 3, "schedule \"model.llm\": row"},
        {"$L plan $C $C -o $D/q", 3, "topologies/cpu8.xml:1:1: error"},
        {"$L plan $M $M -o $D/q", 3, "plans/tiny-llama/model.llm:1:1: error"},
        {"$L plan $M $C -o $D/q --set tpp=2", 3, "did you mean 'tp'?"},
        {"$L topo show nofile", 3, "cannot read 'nofile'"},
        {"$L fmt topologies", 3, "topologies"},
        {"$L tokens nofile -o $D/t", 3, "nofile"},
        {"$L tokens topologies -o $D/t", 3, "llmc: topologies: it is a folder, not a file"},
        {"$L diff $D/p nofile", 3, "llmc: nofile: No such file or directory"},
        {"$L diff $D/p topologies", 3, "topologies/MANIFEST is missing: this is no plan folder"},
        {"$L show nodir", 3, "nodir/MANIFEST is missing: this is no plan folder"},
        {"$L check ''", 3, "llmc: the folder's name is empty"},
        {"$R '' --data $M", 3, "the folder's name is empty"},
        {"$L check nodir", 3, "nodir/MANIFEST is missing: this is no plan folder"},
        {"$R nodir --data $M", 3, "nodir/MANIFEST is missing: this is no plan folder"},
        {"$R $D/p --data nofile --steps 1", 3, "nofile"},
        {"$R $D/p --data $M --steps 1", 3, "the vocabulary has 256 entries"},
        {"$L plan $M $C -o $D/no/q", 4, "/no/q cannot be made: "},
        {"$L plan $M $C -o $D/no/q", 4, "/no: No such file or directory"},
        {"$L plan $M $C -o /proc/x", 4, "llmc: /proc/x cannot be made: "},
        {"$L plan $M $C -o LICENSE/q", 4, "llmc: LICENSE/q cannot be made: LICENSE is no folder"},
        {"$L trace $D/p -o $D/no/t", 4, "No such file or directory"},
        {"$L trace $D/p -o /dev/full", 4, "No space left on device"},
        {"$L help >/dev/full", 4, "No space left on device"},
        {"$L show $D/p --code >/dev/full", 4, "No space left on device"},
        {"$R $D/p --data $M --steps 1 --device cuda", 4, "--device cuda needs"},
        {"$L tokens LICENSE -q -o $D/t; RANK=0 WORLD_SIZE=3 MASTER_PORT=1 $R $D/p --data $D/t --steps 1", 5,
         "3 ranks were started, the plan is for 8"},
    };
    EXPECT_ALL(lines, true);
}

/* ---- JSON ---- */

#define DECISION                                                                                             \
    "decision: tp sp cp pp vpp dp ep etp zero shard microbatch microbatches recompute recompute_detail "     \
    "schedule "                                                                                              \
    "schedule_group layout context order offload prefetch;"
#define PREDICTED                                                                                            \
    "predicted: step_time_s tokens_per_s_per_gpu model_flops_per_gpu_s mfu bubble_fraction "                 \
    "exposed_comm_fraction peak_memory_bytes peak_memory_rank;"
#define CONTRACT                                                                                             \
    "schema; model: name parameters active_parameters layers; cluster: name gpus gpus_used;" DECISION        \
        PREDICTED "search: space evaluated pruned budget spent gap"

/* keys: "a; b: c d;": members of the object and of its members */
static void expect_keys(const json_t *object, const char *keys, const char *command)
{
    char *text = strdup(keys), *rest = text;
    for (char *part; (part = strsep(&rest, ";"));) {
        const json_t *inside = object;
        for (char *key; (key = strsep(&part, " "));) {
            size_t n = strlen(key);
            bool opens = n && key[n - 1] == ':';
            if (!n)
                continue;
            key[n - opens] = 0;
            const json_t *value = json_object_get(inside, key);
            if (!value)
                printf("\n    %s: no key %s\n", command, key);
            CU_ASSERT_PTR_NOT_NULL(value);
            inside = opens ? value : inside;
        }
    }
    free(text);
}

static double number(const json_t *o, const char *part, const char *key)
{
    return json_number_value(json_object_get(json_object_get(o, part), key));
}

/* the contract's values agree with each other */
static void expect_sense(const json_t *o, const char *command)
{
    static const char *const fractions[] = {"mfu", "bubble_fraction", "exposed_comm_fraction"};
    double used = number(o, "cluster", "gpus_used"), idle = 0;
    bool fine = used <= number(o, "cluster", "gpus") &&
                used == number(o, "decision", "tp") * number(o, "decision", "cp") * number(o, "decision", "pp") *
                            number(o, "decision", "dp");
    for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++) {
        double f = number(o, "predicted", fractions[i]);
        idle += i ? f : 0;
        fine = fine && f >= 0 && f <= 1;
    }
    double tokens = number(o, "predicted", "step_time_s") * number(o, "predicted", "tokens_per_s_per_gpu") * used;
    fine = fine && idle <= 1 && tokens > 0.5 && fabs(tokens - round(tokens)) < 1e-6 * tokens;
    if (!fine)
        printf("\n    %s: its values do not agree\n", command);
    CU_ASSERT(fine);
}

static const struct {
    const char *command, *keys;
    int code;
    bool array; /* of such objects */
} json_cases[] = {
    {"$L plan $M $C -q -o $D/p --json", CONTRACT " seconds; waiting", 0, false},
    {"cat $D/p/plan.json", CONTRACT "; waiting", 0, false},
    {"$L estimate $M $C --json", CONTRACT " seconds", 0, false},
    {"$L estimate plans/tiny-moe/model.llm topologies/cpu16.xml --json", CONTRACT " seconds", 0, false},
    {"$L estimate plans/llama3-70b-fsdp/model.llm topologies/h100-1024.xml --set gpus=64 --json", CONTRACT " seconds", 0, false},
    {"$L estimate $M $C --formulas --json", CONTRACT " seconds; traffic; memory_limit_bytes; formulas", 0, false},
    {"$L estimate $M $C --sweep tp=1 --json",
     "schema; sweep: tp; why; estimate: schema decision predicted", 0, false},
    {"$L explain $D/p --json",
     "schema; model; profile; feasible; chosen: decision; time: step_time_s items; memory: items; "
     "runners_up; sensitivity; jitter; changes; search: branches_removed budget spent gap",
     0, false},
    {"$L explain $M $C --set memory=16MiB --json", "schema; feasible; changes; search: branches_removed",
     1, false},
    {"$L check $D/p --json",
     "schema; holds; certificate; violations; origin: holds compiler files differences", 0, false},
    {"$L show $D/p --json", CONTRACT "; waiting", 0, false},
    {"$L show $D/p --memory --json", "schema; roles", 0, false},
    {"$L show $D/p --traffic --json", "schema; traffic", 0, false},
    {"$L show $D/p --timeline --json",
     "schema; step_time_s; bubble_fraction; exposed_comm_fraction; roles", 0, false},
    {"$L show $D/p --schedule --json", "schema; schedule; ranks", 0, false},
    {"$L show $D/p --code --json", "schema; role; instructions", 0, false},
    {"$L topo show $C --json", "schema; name; nodes; gpus; usable_gpus; node_types; levels", 0, false},
    {"$L topo import nccl tests/cases/topologies-in/h100.xml --set nodes=1 -q --json", "schema; nodes; gpus; cluster", 0,
     false},
    {"$L isa --json", "fingerprint; instructions", 0, false},
    {"$L plan $M $C -o $D/q --set tp=3 --json", "file; line; column; length; code; message; notes; fix",
     3, true},
    {"$L plan $M $C -o $D/q --set memory=16MiB --json",
     "file; line; column; length; code; message; notes; fix", 1, true},
    {"$L show nodir --json", "file; line; column; length; code; message; notes; fix", 3, true},
    {"$L plan $M $C -o $D/no/q --json", "file; line; column; length; code; message; notes; fix", 4, true},
    {"$L show $D/p --rank 8 --json", "file; line; column; length; code; message; notes; fix", 2, true},
    {"$L plan $M $C -q --set 'batch=4 sequences' -o $D/small >$D/x && $R $D/small --data $D/t --steps 1 --json", "steps; ranks; tokens; loss", 0, false},
};

static void test_json(void)
{
    struct shot *s = malloc(sizeof *s);
    char *dir = folder();
    expect(s, dir, "$L tokens LICENSE -q -o $D/t", 0, NULL);
    for (size_t i = 0; i < sizeof json_cases / sizeof *json_cases; i++) {
        shoot(s, dir, "%s", json_cases[i].command);
        CU_ASSERT_EQUAL(s->code, json_cases[i].code);
        json_error_t where;
        char path[E2E_PATH + 16];
        snprintf(path, sizeof path, "%s/stdout", dir);
        json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
        if (!root)
            printf("\n    %s: line %d: %s\n", json_cases[i].command, where.line, where.text);
        CU_ASSERT_PTR_NOT_NULL(root);
        CU_ASSERT(!root || json_cases[i].array == json_is_array(root));
        if (root)
            expect_keys(json_cases[i].array ? json_array_get(root, 0) : root, json_cases[i].keys,
                        json_cases[i].command);
        if (root && !strncmp(json_cases[i].keys, CONTRACT, sizeof CONTRACT - 1))
            expect_sense(root, json_cases[i].command);
        json_decref(root);
    }
    free(s);
    free(dir);
}

/* what people read: `grep -q` finds it on stdout */
static void test_views(void)
{
    static const struct line lines[] = {
        {"$L show $D/p | grep -q '^tiny_llama on 8 of 8 GPUs of cpu8$'", 0, NULL},
        {"$L show $D/p | grep -q '^  model      3.033M parameters, 4 layers; 32 sequences of 256 tokens per step, fp32$'", 0, NULL},
        {"$L show $D/p | grep -q '^  memory     26.8MiB of 1.94GiB on rank 0'", 0, NULL},
        {"$L plan $M $C --set memory=64MiB -o $D/q | grep -q '^  memory     26.8MiB of 64MiB on rank 0'", 0, NULL},
        {"$L estimate $M $C | grep -q '^  model    3.033M parameters'", 0, NULL},
        {"$L estimate $M $C --set 'offload=[optimizer]' --json | grep -q '\"offload\": .\"optimizer\"'", 0, NULL},
        /* rooms for experts' rows are the placed plan's choice: the search has it all the same */
        {"$L plan plans/tiny-moe/model.llm topologies/cpu16.xml --set memory=12MiB -q -o $D/r && $L explain $D/r >$D/x && "
         "grep -q ', expert room ' $D/x && ! grep -q 'not among' $D/x", 0, NULL},
        /* what the search of an explanation has to say is beside it, not behind it */
        {"$L plan $M $C -q --set 'tp<=8' --set 'pp<=8' --set 'dp<=8' --set schedule=auto --set 'memory=40MiB' -o $D/s >$D/x && "
         "$L explain $D/s --budget 1 --json 2>$D/e | tail -1 | grep -q '^ \"search\": ' && "
         "grep -q 'error: no plan: a budget of 1 ended the search' $D/e", 0, NULL},
        /* a plan that leaves GPUs over is what was asked for, and no explanation offers other numbers that are none */
        {"$L plan tests/reference/llama/model.llm $C -q --set gpus=7 --set 'pp<=2' -o $D/l 2>$D/e >$D/x && $L check $D/l >$D/x && "
         "grep -q 'GPUs are left over' $D/e && $L explain $D/l 2>$D/e >$D/x && ! grep -q ' 0 nodes' $D/x", 0, NULL},
        /* runners-up that differ in their stages alone, or in the number of GPUs, say so */
        {"$L estimate $M $C --set tp=1 --set 'dp in [1, 2]' --set 'gpus<=8' | tr '\\n' ' ' | tr -s ' ' | grep -q 'recompute none, on 2 GPUs'", 0, NULL},
    };
    EXPECT_ALL(lines, true);
}

static json_t *answer(struct shot *s, const char *dir, const char *command)
{
    char path[E2E_PATH + 16];
    shoot(s, dir, "%s", command);
    CU_ASSERT_EQUAL_FATAL(s->code, 0);
    snprintf(path, sizeof path, "%s/stdout", dir);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(root);
    return root;
}

static double sum_of(const json_t *items)
{
    double sum = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)items, key, value)
        sum += json_number_value(value);
    return sum;
}

/* an estimate's traffic is that of the plan's fullest rank, summed by tier */
static void expect_traffic(struct shot *s, const char *dir, const json_t *estimate)
{
    char command[80];
    size_t i, k;
    json_t *tier, *row;
    snprintf(command, sizeof command, "$L show $D/p --traffic --json --rank %.0f",
             number(estimate, "predicted", "peak_memory_rank"));
    json_t *shown = answer(s, dir, command);
    CU_ASSERT(json_array_size(json_object_get(estimate, "traffic")) > 0);
    json_array_foreach(json_object_get(estimate, "traffic"), i, tier)
    {
        double bytes = 0, seconds = 0, told = json_number_value(json_object_get(tier, "time_s"));
        json_array_foreach(json_object_get(shown, "traffic"), k,
                           row) if (json_equal(json_object_get(row, "tier"), json_object_get(tier, "tier")))
        {
            bytes += json_number_value(json_object_get(row, "bytes"));
            seconds += json_number_value(json_object_get(row, "time_s"));
        }
        CU_ASSERT_EQUAL(bytes, json_number_value(json_object_get(tier, "bytes")));
        CU_ASSERT(fabs(seconds - told) <= 1e-9 * told);
    }
    json_decref(shown);
}

/* do two objects have the same numbers, but for rounding? */
static bool near_all(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    bool same = json_object_size(a) == json_object_size(b);
    json_object_foreach((json_t *)(uintptr_t)a, key, value)
    {
        double told = json_number_value(json_object_get(b, key)), is = json_number_value(value);
        same = same && fabs(told - is) <= 1e-12 * fabs(is);
    }
    return same;
}

/* one figure is the same in every view, items add up, and a space is looked at or ruled out whole where there is no gap */
static void test_agreement(void)
{
    static const char *const jobs[] = {"$M $C", "plans/tiny-moe/model.llm topologies/cpu16.xml",
                                       "plans/llama3-70b-fsdp/model.llm topologies/h100-1024.xml --set gpus=64"};
    static const char *const same[] = {"model", "cluster", "decision", "predicted", "run"},
                            *const drawn[] = {"step_time_s", "bubble_fraction", "exposed_comm_fraction"};
    struct shot *s = malloc(sizeof *s);
    char *dir = folder(), command[256];
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        snprintf(command, sizeof command, "$L estimate %s --json", jobs[i]);
        json_t *estimate = answer(s, dir, command);
        snprintf(command, sizeof command, "$L plan %s -o $D/p --json", jobs[i]);
        json_t *plan = answer(s, dir, command), *show = answer(s, dir, "$L show $D/p --json");
        json_t *explain = answer(s, dir, "$L explain $D/p --json"), *line = answer(s, dir, "$L show $D/p --timeline --json");
        const json_t *predicted = json_object_get(plan, "predicted"), *guess = json_object_get(estimate, "predicted");
        for (size_t k = 0; k < 5; k++) /* run: of the last job alone */
            CU_ASSERT(json_object_get(plan, same[k]) == json_object_get(show, same[k]) ||
                      json_equal(json_object_get(plan, same[k]), json_object_get(show, same[k])));
        for (size_t k = 0; k < 3; k++)
            CU_ASSERT(json_equal(json_object_get(plan, same[k]), json_object_get(estimate, same[k])));
        CU_ASSERT(near_all(predicted, guess) && json_is_object(json_object_get(plan, "run")) == (i == 2));
        for (size_t k = 0; k < 2; k++)
            CU_ASSERT(near_all(json_object_get(plan, "run"), json_object_get(k ? explain : estimate, "run")));
        for (size_t k = 0; k < 3; k++)
            CU_ASSERT(json_equal(json_object_get(predicted, drawn[k]), json_object_get(line, drawn[k])));
        CU_ASSERT(json_equal(json_object_get(plan, "decision"),
                             json_object_get(json_object_get(explain, "chosen"), "decision")));
        expect_traffic(s, dir, estimate);
        double step = json_number_value(json_object_get(guess, "step_time_s"));
        double peak = json_number_value(json_object_get(guess, "peak_memory_bytes"));
        CU_ASSERT(fabs(sum_of(json_object_get(estimate, "time")) - step) <= 1e-9 * step);
        CU_ASSERT(fabs(sum_of(json_object_get(estimate, "memory")) - peak) <= 16);
        for (int k = 0; k < 2; k++) {
            const json_t *search = json_object_get(k ? plan : estimate, "search");
            double space = json_number_value(json_object_get(search, "space"));
            double seen = json_number_value(json_object_get(search, "evaluated")) +
                          json_number_value(json_object_get(search, "pruned"));
            CU_ASSERT(json_number_value(json_object_get(search, "gap")) > 0 ? seen <= space : seen == space);
            CU_ASSERT(json_integer_value(json_object_get(search, "spent")) > 0);
        }
        json_t *all[] = {estimate, plan, show, explain, line};
        for (size_t k = 0; k < 5; k++)
            json_decref(all[k]);
    }
    free(s);
    free(dir);
}

#define PRICED "plans/llama3-8b/model.llm topologies/h100x8.xml --set tp=2 --set pp=1 --set zero=1"
/* the price of a GPU hour is told by every view, in the same words, and is no part of a plan */
static void test_price(void)
{
    static const char *const views[] = {"estimate " PRICED, "plan " PRICED " -o $D/b",
                                        "explain " PRICED, "explain $D/a", "show $D/a"};
    struct shot *s = malloc(sizeof *s);
    char *dir = folder(), command[320];
    expect(s, dir, "$L plan " PRICED " -o $D/a", 0, NULL);
    CU_ASSERT(strstr(s->out, " GPU hours; goodput ") != NULL && !strchr(s->out, '$'));
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        snprintf(command, sizeof command, "$L %s --price 2 | grep -o '[0-9,]* GPU hours, .[0-9,]* at .2.00 each'",
                 views[i]);
        shoot(s, dir, "%s", command);
        double hours = 0, dollars = 0;
        const char *money = strchr(s->out, '$');
        for (const char *p = s->out; *p && *p != ' '; p++)
            hours = *p == ',' ? hours : 10 * hours + *p - '0';
        for (const char *p = money ? money + 1 : ""; *p && *p != ' '; p++)
            dollars = *p == ',' ? dollars : 10 * dollars + *p - '0';
        CU_ASSERT(hours > 1e5 && fabs(dollars - 2 * hours) <= 2);
    }
    expect(s, dir, "cmp $D/a/plan.json $D/b/plan.json && $L check $D/b", 0, NULL);
    expect(s, dir, "$L report $D/a --price 2 -o $D/h && grep -c dollars_per_gpu_hour $D/h", 0, NULL);
    expect(s, dir, "$L estimate plans/llama3-8b/model.llm topologies/h100x8.xml --sweep tp=1,2 --price 2 --json | "
                   "grep -c '\"dollars\": '", 0, NULL);
    CU_ASSERT_STRING_EQUAL(s->out, "2\n");
    free(s);
    free(dir);
}

/* ---- plan folders ---- */

/* every file of the folder: cut in half, one byte changed, gone; by everyone who reads plans */
static void test_damage(void)
{
    static const char *const files[] = {"plan.json",           "model.llm",           "cluster.xml",
                                        "ranks.bin",           "programs/0.bin",      "programs/1.bin",
                                        "programs/eval-0.bin", "programs/eval-1.bin", "MANIFEST"};
    static const char *const damage[] = {
        "truncate -s $(($(stat -c %s $F) / 2)) $F",
        ("n=$(($(stat -c %s $F) / 2)); b=$(od -An -tu1 -j $n -N 1 $F); "
         "printf \"\\\\$(printf %03o $(((b + 1) % 256)))\" | dd of=$F bs=1 seek=$n conv=notrunc 2>&-"),
        "rm $F"};
    static const char *const readers[] = {"$L check $D/q", "$L show $D/q", "$R $D/q --data $M --steps 1"};
    struct shot *s = malloc(sizeof *s);
    char *dir = folder();
    char listed[E2E_PATH];
    expect(s, dir, "$L plan $M $C -q -o $D/p && test $(find $D/p -type f | wc -l) = 9", 0, NULL);
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (size_t k = 0; k < sizeof damage / sizeof *damage; k++) {
            shoot(s, dir, "rm -rf $D/q; cp -r $D/p $D/q; F=$D/q/%s; %s; ! cmp -s $F $D/p/%s", files[f],
                  damage[k], files[f]);
            CU_ASSERT_EQUAL(s->code, 0);
            /* a changed line of MANIFEST accuses the file that it names */
            bool line = !strcmp(files[f], "MANIFEST") && k == 1;
            snprintf(listed, sizeof listed, "%s/q/%s", dir, line ? "" : files[f]);
            for (size_t r = 0; r < sizeof readers / sizeof *readers; r++)
                expect(s, dir, readers[r], 3, listed);
        }
    free(s);
    free(dir);
}

/* what stands at the target survives every failure, and no half-written plan appears */
static void test_writing(void)
{
    struct shot *s = malloc(sizeof *s);
    char *dir = folder();
    expect(s, dir, "mkdir $D/foreign; echo mine >$D/foreign/x; $L plan $M $C -o $D/foreign", 4,
           "holds more than a plan");
    expect(s, dir, "ls $D/foreign", 0, NULL);
    CU_ASSERT_STRING_EQUAL(s->out, "x\n");
    expect(s, dir,
           "$L plan $M $C -q -o $D/foreign --force && test -f $D/foreign/MANIFEST && grep -rqx mine "
           "$D/foreign.old-*",
           0, NULL);
    expect(s, dir, "echo mine >$D/file; $L plan $M $C -o $D/file", 4, "holds more than a plan");
    /* a disc that is full: here a limit on the size of files, once reported and once deadly */
    expect(s, dir, "trap '' XFSZ; ulimit -f 16; $L plan $M $C -o $D/full", 4, "File too large");
    expect(s, dir, "ls -d $D/full*", 2, "No such file");
    shoot(s, dir, "ulimit -c 0; (ulimit -f 16; $L plan $M $C -q -o $D/dead >/dev/null)");
    CU_ASSERT(s->code > 128);
    expect(s, dir, "test ! -e $D/dead", 0, NULL);
    /* a plan that stands there stays whole */
    expect(s, dir, "$L plan $M $C -q -o $D/p && cp -r $D/p $D/before", 0, NULL);
    expect(s, dir, "trap '' XFSZ; ulimit -f 16; $L plan $M $C --set zero=0 -o $D/p", 4, "File too large");
    expect(s, dir, "diff -r $D/p $D/before", 0, NULL);
    expect(s, dir,
           "$L plan $M $C --set zero=0 -q -o $D/p && ! diff -r $D/p $D/before >/dev/null && $L check $D/p", 0,
           NULL);
    expect(s, dir, "ls -d $D/p?*", 2, "No such file");
    free(s);
    free(dir);
}

/* the same inputs give the same bytes: twice, and elsewhere */
static void test_same_bytes(void)
{
    struct shot *s = malloc(sizeof *s);
    char *dir = folder();
    expect(s, dir,
           "$L plan $M $C -q -o $D/a && TZ=Asia/Tokyo LC_ALL=C.UTF-8 COLUMNS=20 $L plan $M $C -q -o $D/b", 0,
           NULL);
    expect(s, dir, "diff -r $D/a $D/b", 0, NULL);
    expect(s, dir, "cp $M $D/m.llm; L=$(realpath $L); C=$(realpath $C); cd $D && $L plan m.llm $C -q -o c", 0,
           NULL);
    expect(s, dir, "diff -r $D/a $D/c", 0, NULL);
    free(s);
    free(dir);
}

/* gcc's and clang's builds make the same plans */
static void test_other_compiler(void)
{
    static const char *const more[] = {
        "plans/tiny-llama/model.llm $C",
        "plans/gpt2-124m/model.llm topologies/h100x8.xml",
        "plans/llama3-70b/model.llm topologies/dgx-h100-superpod.xml --set gpus=512",
    };
    char other[E2E_PATH];
    snprintf(other, sizeof other, "%s/clang/llmc", e2e_build());
    if (access(other, X_OK))
        snprintf(other, sizeof other, "build/clang/llmc");
    if (access(other, X_OK)) {
        test_skip("%s was not built (make CC=clang)", other);
        return;
    }
    struct shot *s = malloc(sizeof *s);
    char *dir = folder();
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        shoot(s, dir, "rm -rf $D/a $D/b; $L plan %s -q -o $D/a && %s plan %s -q -o $D/b && diff -r $D/a $D/b",
              more[i], other, more[i]);
        CU_ASSERT_EQUAL(s->code, 0);
    }
    free(s);
    free(dir);
}

/* ---- text forms ---- */

static void test_fmt(void)
{
    struct shot *s = malloc(sizeof *s);
    char *dir = folder();
    expect(s, dir,
           "for f in plans/*/model.llm tests/cases/oracles/*.llm; do $L fmt $f >$D/1 && $L fmt $D/1 >$D/2 && "
           "cmp $D/1 $D/2 || exit 1; done",
           0, NULL);
    expect(s, dir, "for f in plans/*/model.llm; do $L fmt $f | cmp - $f || exit 1; done", 0, NULL);
    /* values stand below each other as far as no block is between them */
    expect(s, dir,
           "printf 'llmc 1\\nmodel m {\\n layer { moe swiglu(48) { experts 8\\n active 2 }\\n attn gqa(heads=4, kv=2) }\\n"
           "}\\n' >$D/blocks; $L fmt $D/blocks",
           0, NULL);
    CU_ASSERT_STRING_EQUAL(s->out, "llmc 1\n\nmodel m {\n    layer {\n        moe swiglu(48) {\n            experts 8\n"
                                   "            active  2\n        }\n        attn gqa(heads=4, kv=2)\n    }\n}\n");
    /* what passes the last column goes on below its first argument */
    expect(s, dir,
           "sed 's/^ *optimizer .*/optimizer adamw(lr=0.00012345678901, beta1=0.91234567, beta2=0.95123456789, "
           "eps=0.0000001234, weight_decay=0.125)/;s/^plan {/plan { microbatch in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, "
           "1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144]/' $M >$D/long; $L fmt $D/long | grep -A1 "
           "'^    optimizer\\|microbatch in'",
           0, NULL);
    CU_ASSERT_STRING_EQUAL(
        s->out,
        "    optimizer   adamw(lr=0.00012345678901, beta1=0.91234567, beta2=0.95123456789, eps=0.0000001234,\n"
        "                      weight_decay=0.125)\n--\n"
        "    microbatch in [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072,\n"
        "                   262144]\n");
    free(s);
    free(dir);
}

static void test_dumps(void)
{
    struct shot *s = malloc(sizeof *s);
    char *dir = folder();
    expect(s, dir, "$L fmt $M >$D/1 && $L -d ast $M $C | cmp - $D/1 && $L dump ast $M $C | cmp - $D/1", 0,
           NULL);
    expect(s, dir, "$L -d sched $M $C", 0, NULL);
    CU_ASSERT(!strncmp(s->out, "0F0,0F1,0B0,", 12));
    expect(s, dir, "$L -d sched $M $C --set schedule=gpipe", 0, NULL);
    CU_ASSERT(!strncmp(s->out, "0F0,0F1,0F2,", 12));
    expect(s, dir, "$L -d asm $M $C --rank 4", 0, NULL);
    CU_ASSERT(strstr(s->out, "XENT_LOSS") != NULL);
    free(s);
    free(dir);
}

void suite_cli(void)
{
    CU_pSuite s = CU_add_suite("cli", NULL, NULL);
    CU_add_test(s, "every view has the same figures", test_agreement);
    CU_add_test(s, "what a run costs", test_price);
    CU_add_test(s, "what people read", test_views);
    CU_add_test(s, "what succeeds says nothing on stderr", test_fine);
    CU_add_test(s, "usage: exit 2 and a hint", test_usage);
    CU_add_test(s, "failures: exit 1, 3, 4, 5", test_failures);
    CU_add_test(s, "JSON holds the contract's keys", test_json);
    CU_add_test(s, "a damaged plan folder is refused, with the file named", test_damage);
    CU_add_test(s, "nothing is half written", test_writing);
    CU_add_test(s, "same inputs, same bytes", test_same_bytes);
    CU_add_test(s, "another compiler, same bytes", test_other_compiler);
    CU_add_test(s, "fmt is idempotent", test_fmt);
    CU_add_test(s, "stages as text", test_dumps);
}
