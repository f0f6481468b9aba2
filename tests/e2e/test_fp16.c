/* Loss scaling, by whole runs: a scale that is far too large makes gradients overflow.  Every such step must be skipped on all
 * ranks, and change nothing but the scale, until gradients fit; from there on training is that of a run whose scale fits at once. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 40 };

struct scales {
    struct e2e_log log;
    double scale[E2E_STEPS], lr[E2E_STEPS];
    bool skipped[E2E_STEPS];
    size_t nskipped;
};

static double field(const char *line, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(line, key);
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static bool read_scales(const char *path, struct scales *s)
{
    static char text[1 << 16];
    size_t n = 0;
    e2e_read_text(path, text, sizeof text);
    for (char *line = strtok(text, "\n"); line && n < E2E_STEPS; line = strtok(NULL, "\n"), n++) {
        s->log.loss[n] = field(line, "loss");
        s->log.grad_norm[n] = field(line, "grad_norm");
        s->scale[n] = field(line, "loss_scale");
        s->lr[n] = field(line, "lr");
        s->skipped[n] = strstr(line, "\"skipped\": true") != NULL;
        s->nskipped += s->skipped[n];
        if (!s->skipped[n] && !strstr(line, "\"skipped\": false"))
            return false;
    }
    s->log.steps = n;
    return n > 0;
}

static const char *const layouts[] = {
    "--set gpus=1",
    "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=yes --set zero=1 --set recompute=none",
    "--set tp=1 --set pp=2 --set dp=4 --set gpus=8 --set zero=3 --set shard=4 --set microbatch=1",
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void plan_and_run(const char *folder, const char *precision, int layout, int steps, struct scales *s)
{
    char output[2 * E2E_PATH], path[2 * E2E_PATH];
    snprintf(output, sizeof output, "%s/output", folder);
    snprintf(path, sizeof path, "%s/%d.%d.jsonl", folder, layout, steps);
    CU_ASSERT_EQUAL_FATAL(e2e_command(output, "%s/llmc plan tests/reference/llama/model.llm topologies/cpu8.xml %s "
                                              "--set 'precision=%s' --set 'lr_schedule=linear(warmup=6, decay=60)' -o %s/%d",
                                      e2e_build(), layouts[layout], precision, folder, layout), 0);
    CU_ASSERT_EQUAL_FATAL(e2e_command(output, "%s/llmrun %s/%d --data tests/reference/llama/tokens.bin --steps %d --log %s --save %s/w%d.%d",
                                      e2e_build(), folder, layout, steps, path, folder, layout, steps), 0);
    *s = (struct scales){.nskipped = 0};
    CU_ASSERT_FATAL(read_scales(path, s));
    CU_ASSERT_EQUAL_FATAL(s->log.steps, (size_t)steps);
}

/* skipped steps come first, each halves the scale and leaves loss and learning rate where they were */
static void check_start(const struct scales *s, double initial, size_t window)
{
    size_t first = 0, good = 0;
    double want = initial;
    while (first < s->log.steps && s->skipped[first])
        first++;
    CU_ASSERT(first >= 3 && first + 8 < s->log.steps);
    for (size_t i = 0; i < s->log.steps; i++) {
        CU_ASSERT_EQUAL(s->scale[i], want);
        CU_ASSERT_EQUAL(s->skipped[i], !isfinite(s->log.grad_norm[i]) || s->log.grad_norm[i] <= 0);
        good = s->skipped[i] ? 0 : good + 1;
        want = s->skipped[i] ? want / 2 : good == window ? 2 * want : want;
        good = good == window ? 0 : good;
        CU_ASSERT(i == 0 || i > first || s->lr[i] == s->lr[0]);
    }
    CU_ASSERT(s->lr[first + 1] > s->lr[first]);
    CU_ASSERT(s->log.loss[s->log.steps - 1] < s->log.loss[0]);
}

static void test_overflow(void)
{
    char folder[E2E_PATH], a[2 * E2E_PATH], b[2 * E2E_PATH];
    struct scales s[LAYOUTS], early;
    e2e_folder(folder, "fp16/overflow");
    for (int l = 0; l < LAYOUTS; l++) {
        plan_and_run(folder, "fp16(scale=1e12, window=9, hysteresis=1)", l, STEPS, &s[l]);
        check_start(&s[l], 1e12, 9);
        for (size_t i = 0; i < STEPS; i++) { /* every layout skips the same steps */
            CU_ASSERT_EQUAL(s[l].skipped[i], s[0].skipped[i]);
            CU_ASSERT(s[l].skipped[i] || e2e_relative(s[l].log.loss[i], s[0].log.loss[i]) < 1e-3);
        }
        for (int steps = 1; steps <= 2; steps++) /* which change no parameter */
            plan_and_run(folder, "fp16(scale=1e12, window=9, hysteresis=1)", l, steps, &early);
        CU_ASSERT(early.skipped[0] && early.skipped[1]);
        snprintf(a, sizeof a, "%s/w%d.1/model.safetensors", folder, l);
        snprintf(b, sizeof b, "%s/w%d.2/model.safetensors", folder, l);
        CU_ASSERT(e2e_same_bytes(a, b));
        snprintf(b, sizeof b, "%s/w%d.%d/model.safetensors", folder, l, STEPS);
        CU_ASSERT(!e2e_same_bytes(a, b));
    }
}

/* the first overflow behind a doubling only uses up the hysteresis */
static void test_hysteresis(void)
{
    char folder[E2E_PATH];
    struct scales s;
    e2e_folder(folder, "fp16/hysteresis");
    plan_and_run(folder, "fp16(scale=1e12, window=100, hysteresis=3)", 0, 6, &s);
    const double want[] = {1e12, 1e12, 1e12, 5e11, 2.5e11, 1.25e11};
    for (size_t i = 0; i < 6; i++)
        CU_ASSERT_EQUAL(s.scale[i], want[i]);
}

/* what is printed has no trace of the scale, and powers of two leave none in the numbers that fp32 keeps */
static void test_scale_leaves_no_trace(void)
{
    static const char *const scales[] = {"fp16(scale=1_024)", "fp16(scale=65_536)", "fp16(scale=65_536, grads=fp16)"};
    char folder[E2E_PATH];
    struct scales s[3];
    e2e_folder(folder, "fp16/scales");
    for (size_t i = 0; i < 3; i++) {
        plan_and_run(folder, scales[i], 1, 8, &s[i]);
        CU_ASSERT_EQUAL(s[i].nskipped, 0);
        for (size_t k = 0; k < 8; k++) {
            CU_ASSERT(e2e_relative(s[i].log.loss[k], s[0].log.loss[k]) < 1e-3);
            CU_ASSERT(e2e_relative(s[i].log.grad_norm[k], s[0].log.grad_norm[k]) < 1e-2);
        }
    }
}

void suite_fp16(void);
void suite_fp16(void)
{
    CU_pSuite s = CU_add_suite("fp16", NULL, NULL);
    CU_add_test(s, "steps whose gradients overflow are skipped on all ranks", test_overflow);
    CU_add_test(s, "hysteresis", test_hysteresis);
    CU_add_test(s, "the scale leaves no trace", test_scale_leaves_no_trace);
}
