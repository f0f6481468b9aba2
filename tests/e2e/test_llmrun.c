/* llmrun as a whole, on a small Llama over eight ranks: ranks started from outside, evaluation, the trace,
 * the memory account, and what happens when a process dies, stops, or loses its parent. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* a folder with the model, tokens and plans p1 (one rank) and p8 (tp 2, pp 2, dp 2, ZeRO 1) */
static void make_folder(char *dir, const char *name)
{
    e2e_folder(dir, name);
    e2e_write(dir, "m.llm", e2e_small_model);
    CU_ASSERT_EQUAL_FATAL(
        e2e_shell(dir, "cat runtime/*.c >$D/t.txt && $L tokens $D/t.txt -q -o $D/t.bin && "
                   "head -c 3000 $D/t.txt >$D/h.txt && "
                   "$L tokens $D/h.txt -q -o $D/h.bin && "
                   "$L plan $D/m.llm topologies/cpu8.xml -q --set gpus=1 -o $D/p1 && "
                   "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=2 --set pp=2 --set dp=2 -o $D/p8"),
        0);
}

static json_t *read_json(const char *dir, const char *name)
{
    char path[E2E_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return json_load_file(path, 0, NULL);
}

static void read_log(const char *dir, const char *name, struct e2e_log *log)
{
    char path[E2E_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CU_ASSERT_FATAL(e2e_log_read(path, log));
}

/* the last "eval_loss" of a log */
static double eval_loss(const char *dir, const char *name)
{
    char path[E2E_PATH + 32], text[1 << 14];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    e2e_read_text(path, text, sizeof text);
    double loss = NAN;
    for (const char *at = text; (at = strstr(at, "\"eval_loss\": ")); at++)
        loss = atof(at + strlen("\"eval_loss\": "));
    return loss;
}

static void test_given_ranks(void)
{
    char dir[E2E_PATH];
    struct e2e_log forked, given;
    make_folder(dir, "llmrun-given");
    /* the first step and the last are told of, of those between every hundredth */
    CU_ASSERT_EQUAL(e2e_shell(dir, "$R $D/p8 --data $D/t.bin --steps 4 --log $D/forked.jsonl --save $D/forked "
                               "2>$D/said && "
                               "test $(grep -c '^step' $D/said) = 2 && grep -q '^step 1/4  loss ' $D/said && "
                               "grep -q '^step 4/4  loss ' $D/said"),
                    0);
    CU_ASSERT_EQUAL(e2e_shell(dir,
                          "echo $$ >$D/port; for r in 7 3 1 0 2 4 5 6; do RANK=$r WORLD_SIZE=8 LOCAL_RANK=$r "
                          "MASTER_PORT=$$ "
                          "$R $D/p8 --data $D/t.bin --steps 4 --log $D/given.jsonl --save $D/given & done; "
                          "for i in 0 1 2 3 4 5 6 7; do wait %1 2>/dev/null; done; wait"),
                    0);
    read_log(dir, "forked.jsonl", &forked);
    read_log(dir, "given.jsonl", &given);
    CU_ASSERT(forked.steps == 4 && given.steps == 4);
    for (size_t i = 0; i < forked.steps && i < given.steps; i++)
        CU_ASSERT(forked.loss[i] == given.loss[i] && forked.grad_norm[i] == given.grad_norm[i]);
    CU_ASSERT_EQUAL(e2e_shell(dir, "cmp $D/forked/model.safetensors $D/given/model.safetensors"), 0);
    CU_ASSERT_EQUAL(e2e_shell(dir, "ls /dev/shm | grep -- -$(cat $D/port)$"), 1); /* the object is gone */
}

static void test_evaluation(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "llmrun-eval");
    CU_ASSERT_EQUAL(
        e2e_shell(dir,
              "$R $D/p1 --data $D/t.bin --steps 3 --eval $D/h.bin --eval-every 2 --log $D/one.jsonl --quiet"),
        0);
    CU_ASSERT_EQUAL(
        e2e_shell(dir, "$R $D/p8 --data $D/t.bin --steps 3 --eval $D/h.bin --log $D/many.jsonl --quiet"), 0);
    CU_ASSERT(e2e_relative(eval_loss(dir, "many.jsonl"), eval_loss(dir, "one.jsonl")) < 1e-5);
    CU_ASSERT_EQUAL(
        e2e_shell(dir,
              "test $(grep -c eval_loss $D/one.jsonl) = 2 && test $(grep -c eval_loss $D/many.jsonl) = 1"),
        0);
    /* 3000 tokens hold 93 sequences, hence 11 whole batches of 8 of 32 tokens */
    CU_ASSERT_EQUAL(
        e2e_shell(dir, "grep -q '\"step\": 3, \"eval_loss\": .*, \"eval_tokens\": 2816}' $D/one.jsonl"), 0);
    /* and a step has 8 of them */
    CU_ASSERT_EQUAL(e2e_shell(dir, "grep -q '\"step\": 1, .*, \"tokens\": 256,' $D/one.jsonl && "
                               "grep -q '\"step\": 3, .*, \"tokens\": 768,' $D/many.jsonl"),
                    0);
    /* evaluation does not disturb training */
    struct e2e_log one, many;
    CU_ASSERT_EQUAL(e2e_shell(dir, "$R $D/p1 --data $D/t.bin --steps 3 --log $D/none.jsonl --quiet"), 0);
    read_log(dir, "one.jsonl", &one);
    read_log(dir, "none.jsonl", &many);
    CU_ASSERT(one.steps == 3 && many.steps == 3 && one.loss[2] == many.loss[2]);
}

static void test_trace(void)
{
    char dir[E2E_PATH];
    double last[8][8] = {{0}};
    size_t spans = 0;
    make_folder(dir, "llmrun-trace");
    CU_ASSERT_EQUAL(e2e_shell(dir, "$R $D/p8 --data $D/t.bin --steps 2 --trace $D/trace.json --json --quiet"), 0);
    json_t *trace = read_json(dir, "trace.json"), *summary = read_json(dir, "stdout"), *event;
    size_t i;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const char *kind = json_string_value(json_object_get(event, "ph"));
        json_int_t pid = json_integer_value(json_object_get(event, "pid")),
                   tid = json_integer_value(json_object_get(event, "tid"));
        double start = json_number_value(json_object_get(event, "ts")),
               length = json_number_value(json_object_get(event, "dur"));
        if (!kind || strcmp(kind, "X") != 0)
            continue;
        spans++;
        CU_ASSERT(pid >= 0 && pid < 8 && tid >= 1 && tid < 8 && length >= 0);
        if (pid < 0 || pid >= 8 || tid < 0 || tid >= 8)
            continue;
        CU_ASSERT(start >= last[pid][tid] - 1e-6); /* a queue runs one thing at a time */
        last[pid][tid] = start + length;
    }
    for (int rank = 0; rank < 8; rank++) /* microseconds of one small step */
        CU_ASSERT(last[rank][1] > 100 && last[rank][1] < 600e6);
    CU_ASSERT(spans > 1000);
    CU_ASSERT_EQUAL(spans, (size_t)json_integer_value(json_object_get(summary, "instructions_per_step")));
    json_decref(trace);
    json_decref(summary);
}

static json_int_t end_bytes(const json_t *memory, const char *line)
{
    return json_integer_value(json_object_get(json_object_get(memory, line), "end_bytes"));
}

static void test_memory(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "llmrun-memory");
    /* activations large enough that whole KiB of rounding do not matter */
    CU_ASSERT_EQUAL(
        e2e_shell(dir,
              "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=2 --set pp=2 --set dp=2 --set sequence=256 "
              "--set batch='16 sequences' --set microbatch=4 -o $D/p >$D/plan.txt && "
              /* OpenBLAS's products for AVX-512 allocate at every call */
              "{ ! grep -q avx512 /proc/cpuinfo || export OPENBLAS_CORETYPE=Haswell; } && "
              "$R $D/p --data $D/t.bin --steps 3 --json --quiet"),
        0);
    json_t *summary = read_json(dir, "stdout"), *arena, *memory = json_object_get(summary, "memory");
    size_t i;
    /* three steps of 16 sequences of 256 tokens of 2 bytes, in whole pages */
    json_int_t planned = 0, data = end_bytes(memory, "data"), scratch = end_bytes(memory, "scratch");
    CU_ASSERT(data > 3 * 16 * 256 * 2 - 8 * 1024 && data < 2 << 20);
    CU_ASSERT(scratch > 0 && scratch <= json_integer_value(json_object_get(summary, "scratch_bytes")));
    CU_ASSERT(end_bytes(memory, "control") > 0);
    CU_ASSERT(end_bytes(memory, "code") > 0 && end_bytes(memory, "stack") > 0);
    json_array_foreach(json_object_get(summary, "arenas"), i, arena)
    {
        json_int_t plan = json_integer_value(json_object_get(arena, "planned_bytes"));
        json_int_t touched = json_integer_value(json_object_get(arena, "touched_bytes"));
        CU_ASSERT(touched <= plan && touched > plan - 512); /* buffers end at multiples of 256 */
        planned += plan;
    }
    CU_ASSERT_EQUAL(i, 8);
    json_int_t resident = end_bytes(memory, "arena");
    /* whole pages, and the kernel's account rounds each of 64 mappings down to KiB */
    CU_ASSERT(resident >= planned - 64 * 1024 && resident <= planned + 8 * 8192);
    double named = json_number_value(json_object_get(memory, "named_rise_bytes"));
    double rise = json_number_value(json_object_get(memory, "rise_bytes"));
    CU_ASSERT(rise > 0 && fabs(named - rise) <= 0.02 * rise);
    if (!test_quick()) /* the sanitizers have an allocator of their own */
        CU_ASSERT_EQUAL(json_integer_value(json_object_get(summary, "allocations_after_first_step")), 0);
    json_decref(summary);
}

/* scripts start a long run in the background as process $P, with rank 2 as $C, and blow when it is in a step; nobody may be left
 * at the end */
#define BEGIN                                                                                                \
    "rm -f $D/log; $R $D/p8 --data $D/t.bin --steps 1000000 --quiet --log $D/log %s 2>$D/said & P=$!; "      \
    "for i in $(seq 1000); do grep -q loss $D/log 2>/dev/null && break; sleep 0.01; done; "                  \
    "C=$(child 3) ALL=$(child 1-); test -n \"$ALL\" || exit 98; "
#define LEFT "gone $ALL || exit 99; exit $code"

static void check_fault(const char *dir, const char *options, const char *blow, int code, const char *says)
{
    char script[2048], path[E2E_PATH + 32], text[1 << 14];
    int n = snprintf(script, sizeof script, BEGIN, options);
    snprintf(script + n, sizeof script - (size_t)n, "%s; wait $P; code=$?; " LEFT, blow);
    int ended = e2e_shell(dir, script);
    CU_ASSERT_EQUAL(ended, code);
    if (ended != code)
        printf("\n    %s: exit %d, wanted %d\n", blow, ended, code);
    snprintf(path, sizeof path, "%s/said", dir);
    e2e_read_text(path, text, sizeof text);
    CU_ASSERT(strstr(text, says) != NULL);
    if (!strstr(text, says))
        printf("\n    wanted: %s\n    said: %.300s\n", says, text);
}

static void test_faults(void)
{
    char dir[E2E_PATH];
    make_folder(dir, "llmrun-faults");
    check_fault(dir, "", "kill -9 $C", 4, "llmrun: rank 2 was killed by signal 9 (Killed) in step ");
    check_fault(dir, "--watchdog 1", "kill -STOP $C", 4, "but its process is stopped");
    check_fault(dir, "", "kill -9 $P", 137, "");
}

/* folders whose hashes fit but whose files do not belong together */
static void test_mixed_up(void)
{
    static const struct {
        const char *mix, *says;
    } cases[] = {
        {"cp $D/p8/programs/1.bin $D/q/programs/0.bin", "/q/programs/0.bin: is the program of role 1 of 2"},
        {"cp $D/p8/programs/eval-0.bin $D/q/programs/0.bin", "/q/programs/0.bin: is an evaluation program"},
        {"cp $D/p8/programs/0.bin $D/q/programs/eval-0.bin", "/q/programs/eval-0.bin: is a training program"},
        {"cp $D/other/programs/1.bin $D/q/programs/1.bin",
         "/q/programs/1.bin: belongs to another job than programs/0.bin"},
        {"cp $D/wide/programs/eval-1.bin $D/q/programs/eval-1.bin",
         "/q/programs/eval-1.bin: its buffer param.layer2 is not where the training program keeps it"},
        {"cp $D/p1/ranks.bin $D/q/ranks.bin", "/q/programs/0.bin: is the program of role 0 of 2"},
        {"rm $D/q/programs/eval-1.bin", "/q/MANIFEST: does not list programs/eval-1.bin"},
        {"echo nonsense >$D/q/ranks.bin", "/q/ranks.bin: "},
        {": >$D/q/programs/1.bin", "/q/programs/1.bin: "},
    };
    char dir[E2E_PATH], script[1024], text[1 << 12], path[E2E_PATH + 32];
    make_folder(dir, "llmrun-mixed");
    CU_ASSERT_EQUAL_FATAL(e2e_shell(dir,
                                "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=2 --set pp=2 --set dp=2 "
                                "--set batch='16 sequences' -o $D/other && "
                                "$L plan $D/m.llm topologies/cpu8.xml -q --set tp=1 --set pp=2 --set dp=4 "
                                "-o $D/wide"),
                          0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(script, sizeof script,
                 "rm -rf $D/q; cp -r $D/p8 $D/q && %s && (cd $D/q && find . -type f ! -name MANIFEST "
                 "-printf '%%P\\n' | xargs sha256sum >MANIFEST) && $R $D/q --data $D/t.bin --steps 1",
                 cases[i].mix);
        CU_ASSERT_EQUAL(e2e_shell(dir, script), 3);
        snprintf(path, sizeof path, "%s/stderr", dir);
        e2e_read_text(path, text, sizeof text);
        CU_ASSERT(strstr(text, cases[i].says) != NULL);
        if (!strstr(text, cases[i].says))
            printf("\n    %s: %s\n", cases[i].mix, text);
    }
}

/* what can't be written at the end is known before the first step */
static void test_outputs(void)
{
    static const char *const cases[][2] = {
        {"--save $D/none/s", "/none/s: No such file or directory"},
        {"--save $D/t.bin", "/t.bin: it is a file, not a folder, and weights go into a folder"},
        {"--save $D/s --trace $D/none/t", "/none/t: No such file or directory"}};
    char dir[E2E_PATH], script[512], text[1 << 12], path[E2E_PATH + 32];
    make_folder(dir, "llmrun-outputs");
    snprintf(path, sizeof path, "%s/stderr", dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(script, sizeof script, "$R $D/p1 --data $D/t.bin --steps 1 --log $D/log %s", cases[i][0]);
        CU_ASSERT_EQUAL(e2e_shell(dir, script), 4);
        e2e_read_text(path, text, sizeof text);
        CU_ASSERT(strstr(text, cases[i][1]) && !strstr(text, "loss"));
    }
    CU_ASSERT_EQUAL(e2e_shell(dir, "ls -A $D/s | grep . && exit 1; exit 0"), 0); /* nothing is left behind */
}

void suite_llmrun(void);
void suite_llmrun(void)
{
    CU_pSuite s = CU_add_suite("llmrun", NULL, NULL);
    CU_add_test(s, "ranks started from outside", test_given_ranks);
    CU_add_test(s, "evaluation", test_evaluation);
    CU_add_test(s, "trace", test_trace);
    CU_add_test(s, "memory by name, no allocation", test_memory);
    CU_add_test(s, "files of different plans", test_mixed_up);
    CU_add_test(s, "outputs that cannot be written", test_outputs);
    CU_add_test(s, "death, standstill, lost parent", test_faults);
}
