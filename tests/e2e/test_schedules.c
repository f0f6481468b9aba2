/* The same job gives the same losses under every pipeline schedule.  Each row trains six AdamW steps, one of them under
 * an adversarial order of queues, and is compared with the single rank: losses and the held-out loss 1e-5 relative,
 * gradient norms 1e-5 at step 1 and 1e-3 later, every gradient of the first step 1e-5 in norm, weights as saved 1e-5. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 6 };

/* llama: untied, gpt2: tied embeddings; batch 8, four layers */
static const struct {
    const char *name, *model, *options;
    bool quick;
} rows[] = {
    {"gpipe", "llama", "pp=2 dp=1 schedule=gpipe", false},
    {"1f1b", "llama", "pp=4 dp=1 schedule=1f1b", false},
    {"eager", "llama", "pp=4 dp=1 schedule=eager_1f1b", false},
    {"interleaved", "llama", "pp=2 vpp=2 dp=2 zero=1 schedule=interleaved", true},
    {"interleaved-group", "gpt2", "pp=2 vpp=2 dp=1 'schedule=interleaved(group=3)'", false},
    {"combined", "gpt2", "pp=2 vpp=2 tp=2 dp=1 sequence_parallel=yes schedule=combined_1f1b", true},
    {"combined-recompute", "llama", "pp=2 vpp=2 dp=1 recompute=full schedule=combined_1f1b", false},
    {"zb-h1", "gpt2", "pp=2 tp=2 dp=1 sequence_parallel=yes schedule=zb_h1", true},
    {"zb-h1-recompute", "llama", "pp=2 dp=2 recompute=full schedule=zb_h1", false},
    {"zb-h2", "llama", "pp=4 dp=1 schedule=zb_h2", false},
    {"zb-v", "gpt2", "pp=2 vpp=2 dp=2 zero=1 schedule=zb_v", true},
    {"zb-v-recompute", "llama", "pp=2 vpp=2 tp=2 dp=1 sequence_parallel=no recompute=full schedule=zb_v", false},
    {"zb-h2-checked-later", "llama", "pp=4 tp=2 dp=1 schedule=zb_h2 post_validation=yes", false},
    {"zb-v-checked-later", "gpt2", "pp=2 vpp=2 dp=2 zero=3 schedule=zb_v post_validation=yes", false},
    {"v-half", "llama", "pp=2 vpp=2 dp=1 schedule=v_half", false},
    {"v-min", "gpt2", "pp=2 vpp=2 dp=1 schedule=v_min", false},
    {"dualpipe", "gpt2", "pp=2 dp=2 zero=1 schedule=dualpipe", true},
    {"dualpipe-4", "llama", "pp=4 dp=1 recompute=full schedule=dualpipe", false},
    {"dualpipe-v", "llama", "pp=2 vpp=2 tp=2 dp=1 sequence_parallel=yes schedule=dualpipe_v", false},
};

/* "a=1 'b=2'" -> "--set a=1 --set 'b=2'" */
static void set_options(const char *words, char *out, size_t size)
{
    size_t n = 0;
    for (const char *at = words; *at; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        n += (size_t)snprintf(out + n, size - n, "--set %.*s ", (int)length, at);
        at += length;
    }
}

static bool plan_and_train(const char *folder, const char *model, const char *options, const char *flags)
{
    char log[2 * E2E_PATH];
    snprintf(log, sizeof log, "%s/output", folder);
    return e2e_command(log, "%s/llmc plan tests/reference/%s/model.llm topologies/cpu8.xml --set microbatch=1 %s -o %s/plan",
                       e2e_build(), model, options, folder) == 0
        && e2e_command(log, "%s/llmrun %s/plan --data tests/reference/%s/tokens.bin --eval tests/reference/%s/tokens.bin"
                       " --steps %d --log %s/log.jsonl --save %s/weights --dump-gradients %s/gradients %s", e2e_build(),
                       folder, model, model, STEPS, folder, folder, folder, flags) == 0;
}

static double held_out_loss(const char *folder)
{
    char path[2 * E2E_PATH], text[8192];
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    e2e_read_text(path, text, sizeof text);
    const char *at = strstr(text, "\"eval_loss\": ");
    return at ? strtod(at + strlen("\"eval_loss\": "), NULL) : 0;
}

static bool compare_logs(const char *folder, const char *alone)
{
    char path[2 * E2E_PATH];
    struct e2e_log a, b;
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    bool fine = e2e_log_read(path, &a);
    snprintf(path, sizeof path, "%s/log.jsonl", alone);
    fine = fine && e2e_log_read(path, &b) && a.steps == STEPS && b.steps == STEPS;
    for (size_t i = 0; fine && i < STEPS; i++)
        fine = e2e_relative(a.loss[i], b.loss[i]) <= 1e-5 &&
               e2e_relative(a.grad_norm[i], b.grad_norm[i]) <= (i == 0 ? 1e-5 : 1e-3);
    return fine && held_out_loss(alone) > 0 && e2e_relative(held_out_loss(folder), held_out_loss(alone)) <= 1e-5;
}

static bool compare_tensors(const char *folder, const char *alone, const char *file)
{
    char path[2 * E2E_PATH];
    const char *name;
    struct e2e_tensors a, b;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!e2e_tensors_read(path, &a))
        return false;
    snprintf(path, sizeof path, "%s/%s", alone, file);
    if (!e2e_tensors_read(path, &b)) {
        e2e_tensors_free(&a);
        return false;
    }
    e2e_forget_key_biases(&a);
    e2e_forget_key_biases(&b);
    bool weights = strstr(file, "model") != NULL;
    bool fine = e2e_worst(&a, &b, &name) <= (weights ? 1e-4 : 1e-5) && e2e_difference(&a, &b, NULL) <= 1e-5;
    e2e_tensors_free(&a);
    e2e_tensors_free(&b);
    return fine;
}

static void test_every_schedule(void)
{
    static const char *const models[] = {"llama", "gpt2"};
    char alone[2][E2E_PATH], folder[E2E_PATH], name[64], options[512];
    for (int k = 0; k < 2; k++) {
        snprintf(name, sizeof name, "schedules/%s-alone", models[k]);
        e2e_folder(alone[k], name);
        CU_ASSERT_FATAL(plan_and_train(alone[k], models[k], "--set gpus=1", ""));
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!test_whole() && !rows[i].quick)
            continue;
        const char *single = alone[strcmp(rows[i].model, "llama") != 0];
        snprintf(name, sizeof name, "schedules/%s", rows[i].name);
        e2e_folder(folder, name);
        set_options(rows[i].options, options, sizeof options);
        bool ran = plan_and_train(folder, rows[i].model, options, i % 2 ? "--shuffle-queues 1" : "");
        bool logs = ran && compare_logs(folder, single);
        bool gradients = ran && compare_tensors(folder, single, "gradients/gradients.safetensors");
        bool weights = ran && compare_tensors(folder, single, "weights/model.safetensors");
        CU_ASSERT(logs && gradients && weights);
        if (!logs || !gradients || !weights)
            printf("\n    %s: ran %d, losses %d, gradients %d, weights %d", rows[i].name, ran, logs, gradients, weights);
    }
}

/* clip: no step is clipped, about half of them are, all are */
static void test_checked_later(void)
{
    static const char *const clips[] = {"none", "0.6", "0.01"};
    char folder[2][E2E_PATH], options[256], name[64], path[2][3 * E2E_PATH];
    for (size_t i = 0; i < sizeof clips / sizeof *clips; i++) {
        for (int later = 0; later < 2; later++) {
            snprintf(name, sizeof name, "schedules/%s-%s", later ? "later" : "at-once", clips[i]);
            e2e_folder(folder[later], name);
            snprintf(options, sizeof options, "--set pp=4 --set dp=2 --set zero=1 --set schedule=zb_h2 --set clip=%s --set post_validation=%s",
                     clips[i], later ? "yes" : "no");
            CU_ASSERT_FATAL(plan_and_train(folder[later], "llama", options, later && i ? "--shuffle-queues 3 --eval-every 2" : ""));
            snprintf(path[later], sizeof path[later], "%s/log.jsonl", folder[later]);
        }
        struct e2e_log at_once, checked;
        CU_ASSERT_FATAL(e2e_log_read(path[0], &at_once) && e2e_log_read(path[1], &checked));
        CU_ASSERT_EQUAL_FATAL(at_once.steps, STEPS);
        CU_ASSERT_EQUAL_FATAL(checked.steps, STEPS);
        unsigned clipped = 0;
        for (size_t k = 0; k < STEPS; k++) {
            CU_ASSERT(at_once.loss[k] == checked.loss[k] && at_once.grad_norm[k] == checked.grad_norm[k]);
            clipped += strcmp(clips[i], "none") != 0 && at_once.grad_norm[k] > atof(clips[i]);
        }
        CU_ASSERT(i == 0 ? clipped == 0 : i == 1 ? clipped > 0 && clipped < STEPS : clipped == STEPS);
        for (int later = 0; later < 2; later++)
            snprintf(path[later], sizeof path[later], "%s/weights/model.safetensors", folder[later]);
        CU_ASSERT(e2e_same_bytes(path[0], path[1]));
    }
}

void suite_schedules_run(void);
void suite_schedules_run(void)
{
    CU_pSuite s = CU_add_suite("schedules_run", NULL, NULL);
    CU_add_test(s, "every schedule trains like one rank", test_every_schedule);
    CU_add_test(s, "post-validation changes no bit", test_checked_later);
}
