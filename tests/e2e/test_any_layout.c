/* Same job, any layout, same losses.  Tiny models of every kind, each on layouts drawn over all dimensions that can be
 * lowered (tests/compiler/random_layout.h), up to sixteen ranks.  Every plan must verify, compute exactly what one rank
 * computes modulo a prime in two adversarial orders, and every REAL_EVERY-th is trained by llmrun in fp32 and compared
 * with one rank: losses and gradient norms of STEPS steps as in test_layouts.c.
 *
 * LAYOUTS=N draws N per model instead of the fixed few (make check-layouts); LAYOUT=MODEL:SEED runs that one alone. */

#include "compiler/execute/exact.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EACH = 9, QUICK_EACH = 2, REAL_EVERY = 7, STEPS = 6, MOST_RANKS = 16, VOCAB = 53 };

struct bench {
    struct arena *arena;
    const struct layout_model *model;
    struct job *job;
    struct topo *host;
    struct exact_truth *truth;
    char folder[E2E_PATH], data[E2E_PATH + 32];
    struct e2e_log alone;
    uint32_t exact, real, flips;
    bool experts; /* then llmrun's comparisons replay the choices of one rank, and free runs count those that differ */
};

static void write_tokens(const char *path)
{
    uint64_t state = 7;
    FILE *f = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    for (int i = 0; i < 20000; i++) {
        uint16_t token = (uint16_t)random_below(&state, VOCAB);
        fwrite(&token, sizeof token, 1, f);
    }
    fclose(f);
}

static bool train(const struct bench *b, const struct plan *p, const char *name, const char *options, struct e2e_log *log)
{
    char plan[E2E_PATH + 64], path[E2E_PATH + 64], out[E2E_PATH + 64], error[512];
    snprintf(plan, sizeof plan, "%s/%s", b->folder, name);
    snprintf(path, sizeof path, "%s/%s.jsonl", b->folder, name);
    snprintf(out, sizeof out, "%s/%s.out", b->folder, name);
    if (plan_write(p, plan, true, error, sizeof error) != STATUS_OK) {
        printf("\n    %s", error);
        return false;
    }
    return e2e_command(out, "%s/llmrun '%s' --data '%s' --steps %d --quiet --log '%s' %s", e2e_build(), plan, b->data,
                       STEPS, path, options) == 0 &&
           e2e_log_read(path, log);
}

/* false: no such plan can be lowered yet */
static bool open_bench(struct bench *b, const struct layout_model *model)
{
    const char *why = "";
    *b = (struct bench){.arena = arena_new(), .model = model};
    b->job = text_job(b->arena, model->text);
    b->host = random_host(b->arena, MOST_RANKS);
    struct decision alone = layout_alone(b->arena, b->job, b->host);
    if (!decision_emittable(b->arena, b->job, &alone, &why)) {
        printf("\n    %s: left out, %s", model->name, why);
        return false;
    }
    struct plan *one = compile_decision(b->arena, b->job, b->host, &alone, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(one);
    b->truth = exact_truth(b->arena, one, &why);
    if (!b->truth)
        printf("\n    %s: one rank: %s", model->name, why);
    CU_ASSERT_PTR_NOT_NULL(b->truth);
    char name[64];
    snprintf(name, sizeof name, "any-layout/%s", model->name);
    e2e_folder(b->folder, name);
    snprintf(b->data, sizeof b->data, "%s/tokens.bin", b->folder);
    write_tokens(b->data);
    for (uint32_t i = 0; i < b->job->model.nlayers; i++)
        b->experts |= b->job->model.layers[i]->is_moe;
    char options[E2E_PATH + 64] = "";
    if (b->experts)
        snprintf(options, sizeof options, "--routing-save '%s/routing'", b->folder);
    CU_ASSERT(train(b, one, "alone", options, &b->alone));
    plan_close(one);
    return b->truth != NULL;
}

static void blame(const struct bench *b, struct arena *a, uint64_t seed, const struct decision *d, const char *what)
{
    printf("\n    LAYOUT=%s:%llu  %s: %.700s", b->model->name, (unsigned long long)seed, decision_text(a, d), what);
    fflush(stdout);
    CU_FAIL("a layout differs from one rank");
}

/* a free run of an expert model: tokens that choose otherwise than with one rank do so by rounding alone */
static bool free_margin(struct bench *b, const struct plan *p, char *text, size_t size)
{
    char options[E2E_PATH + 64], path[E2E_PATH + 64], said[8192];
    struct e2e_log log;
    snprintf(options, sizeof options, "--json --routing-compare '%s/routing'", b->folder);
    if (!train(b, p, "free", options, &log)) {
        snprintf(text, size, "llmrun --routing-compare fails");
        return false;
    }
    snprintf(path, sizeof path, "%s/free.out", b->folder);
    e2e_read_text(path, said, sizeof said);
    const char *flips = strstr(said, "\"flips\": "), *margin = strstr(said, "\"greatest_margin\": ");
    if (!flips || !margin) {
        snprintf(text, size, "llmrun --routing-compare says nothing of its choices");
        return false;
    }
    b->flips += (uint32_t)strtoul(flips + 9, NULL, 10);
    double most = strtod(margin + 19, NULL);
    if (most < 1e-5)
        return true;
    snprintf(text, size, "a token chooses another expert by a margin of %.2g of the logits' spread", most);
    return false;
}

static void check_real(struct bench *b, struct arena *a, uint64_t seed, const struct plan *p)
{
    char options[E2E_PATH + 128] = "", text[256] = "";
    struct e2e_log log;
    size_t n = 0;
    if (seed % 2)
        n += (size_t)snprintf(options, sizeof options, "--shuffle-queues %llu ", (unsigned long long)seed + 1);
    if (b->experts)
        snprintf(options + n, sizeof options - n, "--routing '%s/routing'", b->folder);
    if (!train(b, p, "plan", options, &log) || log.steps != STEPS) {
        blame(b, a, seed, &p->decision, "llmrun fails");
        return;
    }
    for (size_t i = 0; i < STEPS && !*text; i++) {
        double loss = e2e_relative(log.loss[i], b->alone.loss[i]);
        double norm = e2e_relative(log.grad_norm[i], b->alone.grad_norm[i]);
        if (loss > 1e-5 || norm > (i ? 1e-3 : 1e-5))
            snprintf(text, sizeof text, "llmrun, step %zu: loss off by %.2g, gradient norm by %.2g", i + 1, loss, norm);
    }
    if (*text)
        blame(b, a, seed, &p->decision, text);
    if (b->experts && !*text && !free_margin(b, p, text, sizeof text))
        blame(b, a, seed, &p->decision, text);
    b->real++;
}

static void check_layout(struct bench *b, uint64_t seed, bool real)
{
    struct arena *a = arena_new();
    uint64_t state = seed + ((uint64_t)(b->model - layout_models) << 32); /* each model has its own */
    struct decision d;
    const char *why = "";
    if (!layout_draw(a, &state, b->job, b->host, MOST_RANKS, &d)) {
        CU_FAIL("no layout was found");
        arena_free(a);
        return;
    }
    if (getenv("LAYOUT"))
        printf("\n    %s", decision_text(a, &d));
    struct plan *p = compile_decision(a, b->job, b->host, &d, &(struct compile_options){0}, &why);
    if (!p) {
        blame(b, a, seed, &d, why);
        arena_free(a);
        return;
    }
    const struct verdict *v = verify_plan(a, p, false);
    if (v->nviolations)
        blame(b, a, seed, &d, v->violations[0].message);
    for (uint64_t order = 1; order <= 2; order++) {
        struct exact_result r = exact_compare(a, p, b->truth, 2 * seed + order);
        if (r.why) {
            blame(b, a, seed, &d, r.why);
            break;
        }
    }
    if (real)
        check_real(b, a, seed, p);
    b->exact++;
    plan_close(p);
    arena_free(a);
}

static void check_model(const struct layout_model *model)
{
    struct bench b;
    const char *alone = getenv("LAYOUT"), *many = getenv("LAYOUTS");
    size_t n = strlen(model->name);
    uint64_t each = many ? strtoull(many, NULL, 10) : e2e_quick() ? QUICK_EACH : EACH;
    if (alone && (strncmp(alone, model->name, n) || alone[n] != ':'))
        return;
    if (open_bench(&b, model)) {
        if (alone)
            check_layout(&b, strtoull(alone + n + 1, NULL, 10), true);
        for (uint64_t seed = 1; !alone && seed <= each; seed++)
            check_layout(&b, seed, seed % REAL_EVERY == 0);
        printf("\n    %s: %u layouts exactly, %u of them by llmrun ", model->name, b.exact, b.real);
        if (b.experts)
            printf("(%u choices differ in free runs) ", b.flips);
        fflush(stdout);
    }
    arena_free(b.arena);
}

static void test_all_models(void)
{
    for (uint32_t i = 0; i < layout_nmodels; i++)
        check_model(&layout_models[i]);
}

void suite_any_layout(void);
void suite_any_layout(void)
{
    CU_pSuite s = CU_add_suite("any_layout", NULL, NULL);
    CU_add_test(s, "same job, any layout, same losses", test_all_models);
}
