/* Allocations that fail, one at a time (tests/preload/memory.c): a compilation, and a run that loads, steps, takes a
 * checkpoint and saves, end with exit code 4 and a sentence, or are not disturbed; none ends by a signal, and what has
 * its final name is whole. */

#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char model[] =
    "llmc 1\nmodel m {\n    vocab 256\n    width 32\n    norm rmsnorm\n    embed tokens\n    repeat 2 { layer {\n"
    "        attn gqa(heads=4, kv=2, rope=10_000)\n        ffn swiglu(64)\n    } }\n    head untied\n}\n"
    "train { sequence 32; batch 4 sequences; precision fp32; optimizer adamw(lr=1e-3) }\n";

/* plan p and data t.bin */
static void make_folder(char *dir, const char *name)
{
    e2e_folder(dir, name);
    e2e_write(dir, "m.llm", model);
    CU_ASSERT_EQUAL_FATAL(e2e_shell(dir, "head -c 9000 runtime/run.c >$D/t.txt && $L tokens $D/t.txt -q -o $D/t.bin && "
                                         "$L plan $D/m.llm topologies/cpu8.xml -q --set gpus=2 --set tp=2 -o $D/p"),
                          0);
}

/* Lets allocation number first, first + step, ... of a process fail, until the command makes fewer; `whole` is what must
 * hold of its files whenever they are there.  Prints what ends otherwise, and how many were tried. */
static void check(const char *dir, const char *command, int rank, int first, int step, const char *whole)
{
    char script[2048], path[E2E_PATH + 32], text[4096];
    snprintf(script, sizeof script,
             "n=%d; while :; do rm -rf $D/out* $D/c $D/mark; "
             "LD_PRELOAD=%s/tests/preload/memory.so MEMORY_RANK=%d MEMORY_AT=$n MEMORY_MARK=$D/mark %s >$D/said 2>&1; code=$?; "
             "test -e $D/mark || break; "
             "{ test $code = 0 || { test $code = 4 && grep -q . $D/said; }; } && { %s; } || "
             "{ echo allocation $n: exit $code: $(tail -n 1 $D/said); exit 1; }; n=$((n + %d)); done; echo $n; test $n -gt 40",
             first, e2e_build(), rank, command, whole, step);
    int status = e2e_shell(dir, script);
    snprintf(path, sizeof path, "%s/stdout", dir);
    e2e_read_text(path, text, sizeof text);
    CU_ASSERT_EQUAL(status, 0);
    if (status)
        printf("\n    %s\n    %s", command, text);
}

/* does the library get there? */
static bool preloads(void)
{
    char dir[E2E_PATH], script[1024];
    e2e_folder(dir, "preloads");
    snprintf(script, sizeof script,
             "LD_PRELOAD=%s/tests/preload/memory.so MEMORY_AT=1 MEMORY_MARK=$D/mark $L fmt plans/tiny-llama/model.llm >/dev/null 2>&1; "
             "test -e $D/mark",
             e2e_build());
    return e2e_shell(dir, script) == 0;
}

static void test_compiler(void)
{
    char dir[E2E_PATH];
    if (!preloads()) {
        test_skip("a sanitizer has an allocator of its own");
        return;
    }
    make_folder(dir, "compiler");
    check(dir, "$L plan $D/m.llm topologies/cpu8.xml --set gpus=2 --set tp=2 -o $D/out", 0, 1, test_whole() ? 7 : 29,
          "test ! -e $D/out || $L check $D/out -q");
    check(dir, "$L check $D/p", 0, 2, test_whole() ? 11 : 29, "true");
}

static void test_run(void)
{
    char dir[E2E_PATH];
    if (!preloads()) {
        test_skip("a sanitizer has an allocator of its own");
        return;
    }
    make_folder(dir, "run");
    for (int rank = 0; rank <= 2; rank++) /* 0: the process that loads the plan, and starts the others */
        check(dir, "$R $D/p --data $D/t.bin --steps 2 --quiet --checkpoint $D/c --every 1 --watchdog 10 --save $D/out", rank, 1 + rank,
              test_whole() ? 3 : 7,
              "for w in $D/c/step-*/ $D/out/; do test ! -e $w/model.safetensors || "
              "$R $D/p --data $D/t.bin --init $w --steps 1 --quiet || exit 1; done");
}

void suite_no_memory(void);
void suite_no_memory(void)
{
    CU_pSuite s = CU_add_suite("no_memory", NULL, NULL);
    CU_add_test(s, "compile and check", test_compiler);
    CU_add_test(s, "load, train and save", test_run);
}
