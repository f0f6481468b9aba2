/* `llmc check --execute` and `llmrun --paced` as people meet them. */

#include "tests/e2e/e2e.h"
#include "tests/e2e/forge.h"

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
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(root, "executed")), "shrunk");
    CU_ASSERT(json_is_true(json_object_get(json_object_get(root, "origin"), "holds")));
    CU_ASSERT(json_is_true(json_object_get(root, "verified")));
    CU_ASSERT(json_integer_value(json_object_get(json_object_get(root, "exact"), "numbers")) > 1000);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(json_object_get(root, "real"), "steps")), 3);
    json_decref(root);
    CU_ASSERT_EQUAL(shell(dir, "grep -q \"^exact      equals one rank modulo\" $D/text && grep -q \"^real    "
                               "   equals\" $D/text && "
                               "grep -q \"^executed   the same decision at small dimensions: \" $D/text && "
                               "grep -q \"^           the folder.s programs are byte for byte what it "
                               "compiles to at full size\" $D/text"),
                    0);
}

/* Programs that a matter of minutes can interpret are run themselves: of every kind of model, and with a
 * fault that structure does not show, which is said in numbers. */
static void test_programs(void)
{
    static const char *const models[] = {"llama", "gpt2", "deepseek_mtp"};
    char dir[E2E_PATH], script[512];
    e2e_folder(dir, "programs");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        snprintf(
            script, sizeof script,
            "$L plan tests/reference/%s/model.llm $C -q --set pp=2 --set dp=2 --set gpus=4 -o $D/p >$D/s && "
            "$L check $D/p --execute --json >$D/json",
            models[i]);
        CU_ASSERT_EQUAL(shell(dir, script), 0);
        json_t *root = read_json(dir, "json");
        CU_ASSERT(json_is_true(json_object_get(root, "equal")));
        CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(root, "executed")), "programs");
        CU_ASSERT(json_is_null(json_object_get(root, "shrunk")));
        CU_ASSERT_EQUAL(json_integer_value(json_object_get(json_object_get(root, "exact"), "orders")), 4);
        CU_ASSERT_EQUAL(json_integer_value(json_object_get(json_object_get(root, "real"), "steps")), 3);
        json_decref(root);
        if (test_quick())
            break;
    }
}

/* as many ranks as are run themselves, of a model whose layers are parallel and have no experts: no choices
 * are asked for */
static void test_sixteen(void)
{
    static const char model[] =
        "llmc 1\nmodel m {\n    vocab 64\n    width 16\n    norm rmsnorm\n    embed tokens\n"
        "    repeat 2 { layer parallel { attn gqa(heads=2, kv=2, rope=100); ffn swiglu(16) } }\n"
        "    head untied\n}\ntrain {\n    sequence 8\n    batch 16 sequences\n    precision fp32\n"
        "    optimizer adamw(lr=1e-3)\n}\n";
    char dir[E2E_PATH], path[2 * E2E_PATH];
    e2e_folder(dir, "execute-sixteen");
    snprintf(path, sizeof path, "%s/m.llm", dir);
    FILE *f = fopen(path, "w");
    CU_ASSERT_FATAL(f && fputs(model, f) >= 0 && fclose(f) == 0);
    CU_ASSERT_EQUAL_FATAL(shell(dir, "$L plan $D/m.llm topologies/cpu16.xml -q --set tp=1 --set pp=2 "
                                     "--set dp=8 -o $D/p >$D/s && "
                                     "$L check $D/p --execute --json >$D/json"),
                          0);
    json_t *root = read_json(dir, "json");
    CU_ASSERT(json_is_true(json_object_get(root, "equal")));
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(root, "executed")), "programs");
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(json_object_get(root, "real"), "steps")), 3);
    json_decref(root);
}

/* One rank sits on a node of the type that the plan uses, for of others there may be none. */
static void test_other_type(void)
{
#define NIC "<nic count=\"2\" bandwidth=\"400Gb/s\"/>"
    static const char cluster[] =
        "<cluster version=\"1\"><node-type id=\"gone\" gpus=\"2\"><gpu model=\"A100-SXM\"/>" NIC "</node-type>"
        "<node-type id=\"here\" gpus=\"2\"><gpu model=\"H100-SXM\"/>" NIC "</node-type>"
        "<nodes type=\"gone\" count=\"1\"/><nodes type=\"here\" count=\"1\"/><exclude nodes=\"gone-0001\"/>"
        "<fabric medium=\"infiniband\"><tier name=\"leaf\" span=\"all\"/></fabric></cluster>";
    char dir[E2E_PATH], path[2 * E2E_PATH];
    e2e_folder(dir, "types");
#undef NIC
    snprintf(path, sizeof path, "%s/two.xml", dir);
    FILE *f = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(cluster, f);
    fclose(f);
    CU_ASSERT_EQUAL(shell(dir, "$L plan tests/reference/llama/model.llm $D/two.xml -q --set gpus=2 -o $D/p >$D/s && "
                               "$L check $D/p --execute >$D/text; grep -q \"^exact      equals one rank\" $D/text"), 0);
}

/* the first sum of two operands takes one of them twice: shapes and places stay */
static void add_twice(struct program *p)
{
    for (uint32_t i = 0; i < p->ninsns; i++) {
        struct operand *o = &p->operands[p->insns[i].operand];
        if (p->insns[i].op != OP_ADD || o[OPND(ADD, b)].buffer == NONE)
            continue;
        o[OPND(ADD, b)].buffer = o[OPND(ADD, a)].buffer;
        o[OPND(ADD, b)].offset = o[OPND(ADD, a)].offset;
        return;
    }
    CU_FAIL("no sum of two operands");
}

static void forge_fault(const char *dir)
{
    char path[2 * E2E_PATH];
    struct arena *a = arena_new();
    struct forge f;
    snprintf(path, sizeof path, "%s/p", dir);
    forge_read(a, path, &f);
    forge_program(&f, "programs/0.bin", add_twice);
    snprintf(path, sizeof path, "%s/q", dir);
    forge_write(&f, path);
    arena_free(a);
}

/* a folder with a wrong program never equals one rank: neither where it is run itself, nor where its decision
 * would be */
static void test_wrong_program(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "wrong");
    CU_ASSERT_EQUAL(shell(dir, "$L plan tests/reference/llama/model.llm $C -q --set tp=1 --set pp=2 --set "
                               "dp=2 --set gpus=4 --set schedule=1f1b "
                               "--set microbatch=1 -o $D/p >$D/s"),
                    0);
    forge_fault(dir);
    CU_ASSERT_EQUAL(
        shell(dir,
              "! $L check $D/q --execute >$D/text1 && "
              "grep -q \"^executed   the folder.s programs: tp 1, pp 2, dp 2\" $D/text1 && "
              "grep -q \"^verified   NO: role 0, instruction \" $D/text1 && "
              "grep -q \"^exact      DIFFERS from one rank: step 1: rank 1: the gradient of "
              "model.embed_tokens.weight differs\" $D/text1 && "
              "grep -q \"^real       not run\" $D/text1 && "
              "grep -q \"^origin, programs/0.bin: role 0: instruction .* this compiler makes \" $D/text1"),
        0);
    CU_ASSERT_EQUAL(shell(dir, "! $L check $D/q --execute --json >$D/json"), 0);
    json_t *root = read_json(dir, "json");
    CU_ASSERT(json_is_false(json_object_get(root, "equal")));
    CU_ASSERT(json_is_false(json_object_get(json_object_get(root, "exact"), "equal")));
    CU_ASSERT(json_is_false(json_object_get(json_object_get(root, "origin"), "holds")));
    json_decref(root);
    CU_ASSERT_EQUAL(shell(dir, "$L plan plans/tiny-llama/model.llm $C -q -o $D/p >$D/s"), 0);
    forge_fault(dir);
    CU_ASSERT_EQUAL(shell(dir, "! $L check $D/q --execute >$D/text && grep -q \"^executed   nothing: the "
                               "folder.s programs are too large\" "
                               "$D/text && ! grep -q ^exact $D/text && grep -q \"^origin, programs/0.bin: "
                               "role 0: instruction \" $D/text"),
                    0);
    CU_ASSERT_EQUAL(shell(dir, "! $L check $D/q --execute --json >$D/json"), 0);
    root = read_json(dir, "json");
    CU_ASSERT(json_is_false(json_object_get(root, "equal")));
    CU_ASSERT(json_is_null(json_object_get(root, "executed")));
    json_decref(root);
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
    CU_add_test(s, "small programs are run themselves", test_programs);
    CU_add_test(s, "sixteen ranks are run themselves", test_sixteen);
    CU_add_test(s, "a plan of the second node type", test_other_type);
    CU_add_test(s, "a wrong program equals nothing", test_wrong_program);
    CU_add_test(s, "a paced step takes the simulated time", test_paced);
    CU_add_test(s, "ring, prefetch and combined 1F1B gain in simulation", test_overlap_gains);
}
