/* Experts end to end: models of every kind of router train the same on any layout as on one rank; a plan
 * whose blocks lack room stops without taking the step; weights are saved under the experts' own names
 * whatever rank has them. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const models[] = {
    "swiglu(24) {\n experts 4\n active 2\n router softmax\n }",
    "gelu(24) {\n experts 4\n active 2\n router softmax(normalize=no, linear_bias=yes)\n }",
    ("swiglu(24) {\n experts 8\n active 2\n shared 1\n balance 0.01\n"
     " router sigmoid(groups=4, pick=2, bias=yes, scale=2.5, rate=0.01)\n }"),
    "swiglu(24) {\n experts 4\n active 2\n capacity 1.0\n balance 0.02\n router softmax\n }",
};

static bool write_model(const char *path, const char *moe, const char *train)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f,
            "llmc 1\nmodel m {\n vocab 64\n width 32\n norm rmsnorm\n embed tokens\n repeat 2 {\n layer {\n"
            " attn gqa(heads=4, kv=2, rope=10_000)\n moe %s\n }\n }\n head untied\n}\n"
            "train {\n sequence 16\n batch 8 sequences\n precision fp32\n optimizer adamw(lr=5e-3)\n%s}\n",
            moe, train);
    return fclose(f) == 0;
}

/* words of a small vocabulary of five tokens each: something to learn */
static bool write_tokens(const char *path)
{
    unsigned short words[12][5], token;
    unsigned long long state = 7;
    FILE *f = fopen(path, "wb");
    for (int i = 0; f && i < 60; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i / 5][i % 5] = (unsigned short)(state >> 58);
    }
    for (int i = 0; f && i < 4000; i++) {
        if (i % 5 == 0)
            state = state * 6364136223846793005u + 1442695040888963407u;
        token = words[(state >> 40) % 12][i % 5];
        fwrite(&token, sizeof token, 1, f);
    }
    return f && fclose(f) == 0;
}

static int plan_and_run_on(const char *cluster, const char *folder, const char *plan, const char *set, int steps)
{
    char log[2 * E2E_PATH];
    snprintf(log, sizeof log, "%s/output", folder);
    int status = e2e_command(log, "%s/llmc plan %s/model.llm %s -o %s/%s %s", e2e_build(),
                             folder, cluster, folder, plan, set);
    return status ? status
                  : e2e_command(log,
                                "%s/llmrun %s/%s --data %s/tokens.bin --steps %d --quiet --log %s/%s.jsonl "
                                "--save %s/%s-weights",
                                e2e_build(), folder, plan, folder, steps, folder, plan, folder, plan);
}

static int plan_and_run(const char *folder, const char *plan, const char *set, int steps)
{
    return plan_and_run_on("topologies/cpu8.xml", folder, plan, set, steps);
}

static const struct {
    int model;
    const char *set;
    bool quick;
} cases[] = {
    {0, "--set dp=2 --set ep=2", true},
    {0, "--set dp=4 --set ep=4 --set zero=1", false},
    {0, "--set tp=2 --set dp=2 --set ep=2 --set etp=2 --set sequence_parallel=yes", false},
    {0, "--set tp=2 --set dp=2 --set pp=2 --set ep=4 --set zero=1 --set sequence_parallel=yes", true},
    {0, "--set dp=4 --set ep=2 --set zero=3 --set microbatch=1", false},
    {0, "--set dp=2 --set ep=2 --set recompute=full", false},
    {0, "--set pp=2 --set dp=2 --set ep=2 --set schedule=dualpipe --set microbatch=1", false},
    {1, "--set dp=4 --set ep=4", false},
    {2, "--set dp=8 --set ep=8", false},
    {2, "--set tp=2 --set cp=2 --set dp=2 --set ep=4 --set sequence_parallel=yes --set microbatch=2", true},
    {2, "--set pp=2 --set dp=2 --set ep=2 --set schedule=zb_h1", false},
    {3, "--set dp=2 --set ep=2 --set tp=1", true},
    {3, "--set tp=2 --set dp=2 --set ep=2 --set sequence_parallel=yes --set microbatch=2", false},
};

static void check_case(size_t i, const char *folder)
{
    char name[32], a[2 * E2E_PATH], b[2 * E2E_PATH];
    struct e2e_log x, y;
    double worst = 1e300;
    snprintf(name, sizeof name, "case%zu", i);
    bool fine = !plan_and_run(folder, name, cases[i].set, 5);
    snprintf(a, sizeof a, "%s/%s.jsonl", folder, name);
    snprintf(b, sizeof b, "%s/one.jsonl", folder);
    fine = fine && e2e_log_read(a, &x) && e2e_log_read(b, &y) && x.steps == 5 && y.steps == 5;
    for (size_t s = 0; fine && s < 5; s++) {
        worst = s ? fmax(worst, e2e_relative(x.loss[s], y.loss[s])) : e2e_relative(x.loss[s], y.loss[s]);
        worst = fmax(worst, e2e_relative(x.grad_norm[s], y.grad_norm[s]));
    }
    struct e2e_tensors p, q;
    double weights = 1e300;
    snprintf(a, sizeof a, "%s/%s-weights/model.safetensors", folder, name);
    snprintf(b, sizeof b, "%s/one-weights/model.safetensors", folder);
    if (fine && e2e_tensors_read(a, &p) && e2e_tensors_read(b, &q)) {
        weights = e2e_difference(&p, &q, NULL);
        e2e_tensors_free(&p);
        e2e_tensors_free(&q);
    }
    CU_ASSERT(fine && worst < 1e-5 && weights < 1e-4);
    if (!fine || !(worst < 1e-5) || !(weights < 1e-4))
        printf("\n    model %d, %s: losses and norms differ by %.1e, weights by %.1e", cases[i].model,
               cases[i].set, worst, weights);
}

static void test_layouts(void)
{
    for (int model = 0; model < (int)(sizeof models / sizeof *models); model++) {
        char folder[E2E_PATH], name[32], path[2 * E2E_PATH];
        snprintf(name, sizeof name, "experts/%d", model);
        e2e_folder(folder, name);
        snprintf(path, sizeof path, "%s/model.llm", folder);
        CU_ASSERT_FATAL(write_model(path, models[model], ""));
        snprintf(path, sizeof path, "%s/tokens.bin", folder);
        CU_ASSERT_FATAL(write_tokens(path));
        CU_ASSERT_FATAL(plan_and_run(folder, "one", "--set gpus=1", 5) == 0);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            if (cases[i].model == model && (cases[i].quick || test_whole()))
                check_case(i, folder);
    }
}

static void test_learns(void)
{
    char folder[E2E_PATH], path[2 * E2E_PATH];
    struct e2e_log log;
    e2e_folder(folder, "experts/learns");
    snprintf(path, sizeof path, "%s/model.llm", folder);
    CU_ASSERT_FATAL(write_model(path, models[2], ""));
    snprintf(path, sizeof path, "%s/tokens.bin", folder);
    CU_ASSERT_FATAL(write_tokens(path));
    CU_ASSERT_FATAL(plan_and_run(folder, "one", "--set dp=2 --set ep=2", 40) == 0);
    snprintf(path, sizeof path, "%s/one.jsonl", folder);
    CU_ASSERT_FATAL(e2e_log_read(path, &log) && log.steps == 40);
    CU_ASSERT(log.loss[39] < 0.5 * log.loss[0]);
}

/* a block too small: exit 4, the rows and the room that are needed, and nothing was updated */
static void test_room(void)
{
    char folder[E2E_PATH], path[2 * E2E_PATH], text[4096];
    e2e_folder(folder, "experts/room");
    snprintf(path, sizeof path, "%s/model.llm", folder);
    CU_ASSERT_FATAL(write_model(path, models[0], " expert_room 1\n"));
    snprintf(path, sizeof path, "%s/tokens.bin", folder);
    CU_ASSERT_FATAL(write_tokens(path));
    snprintf(path, sizeof path, "%s/output", folder);
    CU_ASSERT_FATAL(!e2e_command(
        path,
        "%s/llmc plan %s/model.llm topologies/cpu8.xml -o %s/plan --set dp=4 --set ep=4 --set pp=1"
        " --set tp=1 --set microbatch=1",
        e2e_build(), folder, folder));
    e2e_read_text(path, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "expert room 1"));
    CU_ASSERT_EQUAL(
        e2e_command(path, "sh -c \"%s/llmrun %s/plan --data %s/tokens.bin --steps 2 --quiet; test \\$? = 4\"",
                    e2e_build(), folder, folder),
        0);
    e2e_read_text(path, text, sizeof text);
    const char *rows = strstr(text, "step 1 was not taken: a rank has "), *room = strstr(text, "the mean is 8.0, so plan with expert_room ");
    CU_ASSERT_FATAL(rows && room);
    double need = strtod(rows + strlen("step 1 was not taken: a rank has "), NULL) / 8;
    double said = strtod(room + strlen("the mean is 8.0, so plan with expert_room "), NULL);
    CU_ASSERT_DOUBLE_EQUAL(said, ceil(need * 100) / 100, 1e-9);
}

/* four nodes of two ranks, fast within and slow between */
static bool write_pairs(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f, "<?xml version=\"1.0\"?>\n<cluster version=\"1\" name=\"pairs\">\n"
               "<node-type id=\"pair\" gpus=\"2\" host-bandwidth=\"40GB/s\">\n"
               "<gpu model=\"cpu\" memory=\"1GiB\" memory-bandwidth=\"5GB/s\"><peak dtype=\"fp32\" rate=\"20GFLOP/s\"/></gpu>\n"
               "<scale-up kind=\"none\"/><nic count=\"1\" bandwidth=\"100Mb/s\"/></node-type>\n"
               "<nodes type=\"pair\" count=\"4\"/><fabric medium=\"ethernet\"><tier name=\"leaf\" span=\"all\"/></fabric>\n</cluster>\n");
    return fclose(f) == 0;
}

/* Rows once per node, chosen because the network is slow: the same as one rank, and where nodes' blocks lack room no step. */
static void test_nodes(void)
{
    static const struct {
        int model;
        const char *set, *text;
        bool quick;
    } of[] = {{2, "--set dp=8 --set ep=8 --set tp=1 --set pp=1", "\"expert_nodes\": 4", true},
              {2, "--set tp=2 --set dp=2 --set pp=2 --set ep=4 --set sequence_parallel=yes --set microbatch=1 --set schedule=dualpipe",
               "\"expert_nodes\": 2", false},
              {3, "--set tp=1 --set dp=4 --set ep=4 --set pp=1", "\"expert_nodes\": 2", false}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char folder[E2E_PATH], name[32], path[2 * E2E_PATH], cluster[2 * E2E_PATH], text[1 << 16];
        struct e2e_log x, y;
        if (!of[i].quick && !test_whole())
            continue;
        snprintf(name, sizeof name, "experts/nodes%zu", i);
        e2e_folder(folder, name);
        snprintf(cluster, sizeof cluster, "%s/pairs.xml", folder);
        CU_ASSERT_FATAL(write_pairs(cluster));
        snprintf(path, sizeof path, "%s/model.llm", folder);
        CU_ASSERT_FATAL(write_model(path, models[of[i].model], ""));
        snprintf(path, sizeof path, "%s/tokens.bin", folder);
        CU_ASSERT_FATAL(write_tokens(path));
        CU_ASSERT_FATAL(plan_and_run_on(cluster, folder, "one", "--set gpus=1", 5) == 0);
        CU_ASSERT_FATAL(plan_and_run_on(cluster, folder, "all", of[i].set, 5) == 0);
        snprintf(path, sizeof path, "%s/all/plan.json", folder);
        e2e_read_text(path, text, sizeof text);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, of[i].text));
        snprintf(path, sizeof path, "%s/all.jsonl", folder);
        CU_ASSERT_FATAL(e2e_log_read(path, &x));
        snprintf(path, sizeof path, "%s/one.jsonl", folder);
        CU_ASSERT_FATAL(e2e_log_read(path, &y));
        for (size_t s = 0; s < 5; s++)
            CU_ASSERT(e2e_relative(x.loss[s], y.loss[s]) < 1e-5 && e2e_relative(x.grad_norm[s], y.grad_norm[s]) < 1e-5);
    }
}

static void test_nodes_room(void)
{
    char folder[E2E_PATH], path[2 * E2E_PATH], cluster[2 * E2E_PATH], text[4096];
    e2e_folder(folder, "experts/nodes-room");
    snprintf(cluster, sizeof cluster, "%s/pairs.xml", folder);
    CU_ASSERT_FATAL(write_pairs(cluster));
    snprintf(path, sizeof path, "%s/model.llm", folder);
    CU_ASSERT_FATAL(write_model(path, models[0], " expert_room 1\n"));
    snprintf(path, sizeof path, "%s/tokens.bin", folder);
    CU_ASSERT_FATAL(write_tokens(path));
    CU_ASSERT_EQUAL(plan_and_run_on(cluster, folder, "plan", "--set dp=4 --set ep=4 --set tp=1 --set pp=1 --set microbatch=2", 2), 4);
    snprintf(path, sizeof path, "%s/output", folder);
    e2e_read_text(path, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "step 1 was not taken: a rank has "));
}

/* what llmrun says with --json of choices compared with those in folder/choices, its tokens being `tokens` */
static void compare_choices(const char *folder, const char *tokens, unsigned long *compared,
                            unsigned long *flips)
{
    char path[2 * E2E_PATH], text[1 << 14];
    snprintf(path, sizeof path, "%s/output", folder);
    CU_ASSERT_EQUAL(e2e_command(path,
                                "%s/llmrun %s/plan --data %s/%s --steps 3 --quiet --json "
                                "--routing-compare %s/choices",
                                e2e_build(), folder, folder, tokens, folder),
                    0);
    e2e_read_text(path, text, sizeof text);
    const char *at = strstr(text, "\"routing\": ");
    CU_ASSERT_FATAL(at != NULL);
    CU_ASSERT_FATAL(sscanf(at, "\"routing\": {\"compared\": %lu, \"flips\": %lu,", compared, flips) == 2);
}

/* The choices of a run are recorded, every token's in every layer; the same run chooses the same again, one
 * on other tokens does not, and what is recorded is what a run that is told to follows. */
static void test_choices(void)
{
    char folder[E2E_PATH], path[2 * E2E_PATH], a[2 * E2E_PATH], b[2 * E2E_PATH];
    unsigned long compared, flips;
    struct e2e_log own, other;
    e2e_folder(folder, "experts/choices");
    snprintf(path, sizeof path, "%s/model.llm", folder);
    CU_ASSERT_FATAL(write_model(path, models[0], ""));
    snprintf(path, sizeof path, "%s/tokens.bin", folder);
    CU_ASSERT_FATAL(write_tokens(path));
    CU_ASSERT_FATAL(plan_and_run(folder, "plan", "--set dp=2 --set ep=2 --set tp=1 --set pp=1", 3) == 0);
    snprintf(path, sizeof path, "%s/output", folder);
    CU_ASSERT_EQUAL(e2e_command(path, "sh -c 'tail -c +1001 %s/tokens.bin >%s/later.bin'", folder, folder),
                    0);
    CU_ASSERT_EQUAL(e2e_command(path,
                                "%s/llmrun %s/plan --data %s/tokens.bin --steps 3 --quiet "
                                "--routing-save %s/choices",
                                e2e_build(), folder, folder, folder),
                    0);
    compare_choices(folder, "tokens.bin", &compared, &flips);
    CU_ASSERT(compared == 3 * 8 * 16 * 2 && flips == 0); /* steps, sequences of so many tokens, layers */
    compare_choices(folder, "later.bin", &compared, &flips);
    CU_ASSERT(compared == 3 * 8 * 16 * 2 && flips > compared / 8);
    for (int follows = 0; follows < 2; follows++)
        CU_ASSERT_EQUAL(e2e_command(path,
                                    "%s/llmrun %s/plan --data %s/later.bin --steps 3 --quiet "
                                    "--log %s/%d.jsonl %s%s%s",
                                    e2e_build(), folder, folder, folder, follows, follows ? "--routing " : "",
                                    follows ? folder : "", follows ? "/choices" : ""),
                        0);
    snprintf(a, sizeof a, "%s/0.jsonl", folder);
    snprintf(b, sizeof b, "%s/1.jsonl", folder);
    CU_ASSERT_FATAL(e2e_log_read(a, &own) && e2e_log_read(b, &other));
    CU_ASSERT(own.loss[0] != other.loss[0]);
}

/* memory that leaves experts less room than usual is told of; room that was asked for is not */
static void test_tight_room(void)
{
    static const struct {
        const char *set;
        bool told;
    } tight[] = {{"memory=270MB", true}, {"memory=4GB", false}, {"expert_room=1.1", false}};
    char folder[E2E_PATH], output[2 * E2E_PATH], text[1 << 14];
    e2e_folder(folder, "experts/tight");
    snprintf(output, sizeof output, "%s/said", folder);
    for (size_t i = 0; i < sizeof tight / sizeof *tight; i++) {
        CU_ASSERT_EQUAL(e2e_command(output,
                                    "%s/llmc plan plans/tiny-moe/model.llm topologies/h100x8.xml -o %s/plan --force --set tp=1 --set cp=1 "
                                    "--set pp=1 --set dp=8 --set ep=8 --set microbatch=16 --set zero=1 --set recompute=none "
                                    "--set 'batch=128 sequences' --set %s",
                                    e2e_build(), folder, tight[i].set),
                        0);
        e2e_read_text(output, text, sizeof text);
        CU_ASSERT_EQUAL(strstr(text, "warning: memory leaves experts room for 1.") != NULL, tight[i].told);
        CU_ASSERT_EQUAL(strstr(text, "help: 'expert_room 1.5' in the train block makes a plan that has it") != NULL, tight[i].told);
    }
}

void suite_experts(void);
void suite_experts(void)
{
    CU_pSuite s = CU_add_suite("experts", NULL, NULL);
    CU_add_test(s, "any layout of any router equals one rank", test_layouts);
    CU_add_test(s, "a router with bias, groups and shared experts learns", test_learns);
    CU_add_test(s, "rows once per node equal one rank", test_nodes);
    CU_add_test(s, "nodes without room take no step", test_nodes_room);
    CU_add_test(s, "a step that lacks room is not taken", test_room);
    CU_add_test(s, "a plan tells that it has little room", test_tight_room);
    CU_add_test(s, "choices recorded, compared, followed", test_choices);
}
