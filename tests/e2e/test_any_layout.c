/* Same job, any layout, same losses.  Tiny models of every kind, each on layouts drawn over all dimensions
 * that can be lowered (tests/compiler/random_layout.h), up to sixteen ranks.  Every plan must verify, compute
 * exactly what one rank computes modulo a prime in an adversarial order, and train in fp32 by llmrun as one
 * rank does: losses of FEW_STEPS steps and the gradient norm of the first 1e-5 relative, later norms 1e-3;
 * the first step's gradient of every parameter 1e-5 in norm. Models with experts replay one rank's choices
 * for STEPS steps; a free run beside that reports the tokens that chose otherwise, each by a margin below
 * 1e-5 of its logits' spread.  Where none did, it must meet the same bounds.
 *
 * LAYOUTS=N draws N of each of the MAIN models and a sixteenth as many of the others instead of the fixed few
 * (make check-layouts); LAYOUTS_FROM=SEED starts at that seed and LAYOUT_MODELS='llama mixtral' takes these
 * alone, so that a long run can be cut in parts and gone on with; LAYOUT=MODEL:SEED runs that one.  JOBS=N
 * processes share the work (default: one per core). */

#include "compiler/execute/exact.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"
#include "tests/e2e/tally.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    EACH = 10,
    QUICK_EACH = 2,
    STEPS = 20,
    FEW_STEPS = 6,
    MOST_RANKS = 16,
    VOCAB = 53,
    PORTION = 25,
    MOST_PORTIONS = 4096,
    MOST_JOBS = 16
};

/* layouts of one model by consecutive seeds: what a process takes at a time */
struct portion {
    uint32_t model;
    uint64_t first, count;
};
struct result {
    struct tally tally;
    uint32_t exact, real, flips, free, failures;
    double margin;
};
/* seen by all processes */
struct shared {
    atomic_uint next;
    struct result of[MOST_JOBS];
};

struct bench {
    struct arena *arena;
    const struct layout_model *model;
    struct job *job;
    struct topo *host;
    struct exact_truth *truth;
    char folder[E2E_PATH], data[E2E_PATH + 32];
    struct e2e_log alone;
    struct e2e_tensors gradients;
    struct result *result;
    bool experts;
};

static void write_tokens(const char *path)
{
    uint64_t state = 7;
    FILE *f = fopen(path, "wb");
    for (int i = 0; f && i < 20000; i++) {
        uint16_t token = (uint16_t)random_below(&state, VOCAB);
        fwrite(&token, sizeof token, 1, f);
    }
    if (f)
        fclose(f);
}

static bool train(const struct bench *b, const char *plan, const char *name, int steps, const char *options,
                  struct e2e_log *log)
{
    char path[E2E_PATH + 64], out[E2E_PATH + 64];
    snprintf(path, sizeof path, "%s/%s.jsonl", b->folder, name);
    snprintf(out, sizeof out, "%s/%s.out", b->folder, name);
    return e2e_command(out,
                       "%s/llmrun '%s/%s' --data '%s' --steps %d --quiet --log '%s' --dump-gradients "
                       "'%s/%s-gradients' %s",
                       e2e_build(), b->folder, plan, b->data, steps, path, b->folder, name, options) == 0 &&
           e2e_log_read(path, log) && log->steps == (size_t)steps;
}

static bool read_gradients(const struct bench *b, const char *name, struct e2e_tensors *out)
{
    char path[E2E_PATH + 96];
    snprintf(path, sizeof path, "%s/%s-gradients/gradients.safetensors", b->folder, name);
    return e2e_tensors_read(path, out);
}

static bool write_plan(const struct bench *b, const struct plan *p, const char *name)
{
    char path[E2E_PATH + 64];
    struct error error;
    snprintf(path, sizeof path, "%s/%s", b->folder, name);
    bool fine = plan_write(p, path, true, &error) == STATUS_OK;
    if (!fine)
        printf("\n    %s", error.text);
    return fine;
}

static void forget(struct bench *b, struct e2e_tensors *t)
{
    if (!strcmp(b->model->name, "gpt2"))
        e2e_forget_key_biases(t);
}

/* one rank: the truth of both kinds */
static bool open_bench(struct bench *b, const struct layout_model *model, struct result *result,
                       unsigned worker)
{
    char name[64], options[E2E_PATH + 64] = "";
    const char *why = "";
    *b = (struct bench){.arena = arena_new(), .model = model, .result = result};
    b->job = text_job(b->arena, model->text);
    b->host = random_host(b->arena, MOST_RANKS);
    struct decision alone = layout_alone(b->arena, b->job, b->host);
    struct plan *one =
        compile_decision(b->arena, b->job, b->host, &alone, &(struct compile_options){0}, &why);
    b->truth = one ? exact_truth(b->arena, one, &why) : NULL;
    if (!b->truth) {
        printf("\n    %s: one rank: %s", model->name, why);
        return false;
    }
    snprintf(name, sizeof name, "any-layout/%u", worker);
    e2e_folder(b->folder, name);
    snprintf(b->data, sizeof b->data, "%s/tokens.bin", b->folder);
    write_tokens(b->data);
    b->experts = model_has_experts(&b->job->model);
    if (b->experts)
        snprintf(options, sizeof options, "--routing-save '%s/routing'", b->folder);
    bool fine = write_plan(b, one, "one") && train(b, "one", "alone", STEPS, options, &b->alone) &&
                read_gradients(b, "alone", &b->gradients);
    plan_close(one);
    forget(b, &b->gradients);
    return fine;
}

static void blame(const struct bench *b, struct arena *a, uint64_t seed, const struct job *job,
                  const struct decision *d, const char *what)
{
    static const char *const offload[] = {"", ", offload optimizer", ", offload activations",
                                          ", offload both"};
    uint32_t never = job->wishes.never_overlap;
    printf("\n    LAYOUT=%s:%llu  %s%s%s%s%s%s%s: %.700s\n", b->model->name, (unsigned long long)seed,
           decision_text(a, job, d), offload[job->wishes.offload & 3],
           never & OVERLAP_CP ? ", never overlap cp" : "", never & OVERLAP_DP ? ", never overlap dp" : "",
           never & OVERLAP_TP ? ", never overlap tp" : "", never & OVERLAP_ALL_TO_ALL ? ", never overlap all_to_all" : "",
           decision_skews(job, d) ? ", post-validated" : "", what);
    fflush(stdout);
    b->result->failures++;
}

/* a run and its gradients against one rank; "" or what differs */
static void compare(struct bench *b, const char *name, const struct e2e_log *log, char *text, size_t size)
{
    struct e2e_tensors g;
    const char *tensor = "";
    *text = 0;
    for (size_t i = 0; i < log->steps && !*text; i++) {
        double loss = e2e_relative(log->loss[i], b->alone.loss[i]);
        double norm = e2e_relative(log->grad_norm[i], b->alone.grad_norm[i]);
        if (!(loss <= 1e-5 && norm <= (i ? 1e-3 : 1e-5)))
            snprintf(text, size, "llmrun (%s), step %zu: loss off by %.2g, gradient norm by %.2g", name,
                     i + 1, loss, norm);
    }
    if (*text)
        return;
    if (!read_gradients(b, name, &g)) {
        snprintf(text, size, "llmrun (%s) leaves no gradients", name);
        return;
    }
    forget(b, &g);
    double worst = e2e_worst(&g, &b->gradients, &tensor);
    if (!(worst <= 1e-5))
        snprintf(text, size, "llmrun (%s): gradient of %s off by %.2g in norm", name, tensor ? tensor : "?",
                 worst);
    e2e_tensors_free(&g);
}

/* a free run of an expert model: tokens that choose otherwise than with one rank do so by rounding alone */
static void check_free(struct bench *b, char *text, size_t size)
{
    char options[E2E_PATH + 64], path[E2E_PATH + 64], said[8192];
    struct e2e_log log;
    snprintf(options, sizeof options, "--json --routing-compare '%s/routing'", b->folder);
    if (!train(b, "plan", "free", FEW_STEPS, options, &log)) {
        snprintf(text, size, "llmrun --routing-compare fails");
        return;
    }
    snprintf(path, sizeof path, "%s/free.out", b->folder);
    e2e_read_text(path, said, sizeof said);
    const char *flips = strstr(said, "\"flips\": "), *margin = strstr(said, "\"greatest_margin\": ");
    if (!flips || !margin) {
        snprintf(text, size, "llmrun --routing-compare says nothing of its choices");
        return;
    }
    uint32_t n = (uint32_t)strtoul(flips + 9, NULL, 10);
    double most = strtod(margin + 19, NULL);
    b->result->free++;
    b->result->flips += n;
    b->result->margin = fmax(b->result->margin, most);
    if (!(most < 1e-5))
        snprintf(text, size, "a token chooses another expert by a margin of %.2g of the logits' spread",
                 most);
    else if (!n)
        compare(b, "free", &log, text, size);
}

static void check_real(struct bench *b, struct arena *a, uint64_t seed, const struct plan *p)
{
    char options[E2E_PATH + 128] = "", text[256] = "llmrun fails";
    struct e2e_log log;
    size_t n = 0;
    if (seed % 2)
        n +=
            (size_t)snprintf(options, sizeof options, "--shuffle-queues %llu ", (unsigned long long)seed + 1);
    if (b->experts)
        snprintf(options + n, sizeof options - n, "--routing '%s/routing'", b->folder);
    if (write_plan(b, p, "plan") && train(b, "plan", "like", b->experts ? STEPS : FEW_STEPS, options, &log))
        compare(b, "like", &log, text, sizeof text);
    if (b->experts && !*text)
        check_free(b, text, sizeof text);
    if (*text)
        blame(b, a, seed, p->job, &p->decision, text);
    b->result->real++;
}

static void check_plan(struct bench *b, struct arena *a, uint64_t seed, const struct plan *p)
{
    const struct verdict *v = verify_plan(a, p, false);
    if (v->nviolations)
        blame(b, a, seed, p->job, &p->decision, v->violations[0].message);
    struct exact_result r = exact_compare(a, p, b->truth, seed);
    if (r.why)
        blame(b, a, seed, p->job, &p->decision, r.why);
    b->result->exact++;
    check_real(b, a, seed, p);
}

static void check_layout(struct bench *b, uint64_t seed)
{
    struct arena *a = arena_new();
    uint64_t state = seed + ((uint64_t)(b->model - layout_models) << 32); /* each model has its own */
    struct job job = *b->job;
    struct decision d = {0};
    const char *why = "no layout was found";
    layout_wishes(&state, &job);
    struct plan *p = NULL;
    if (layout_draw(a, &state, &job, b->host, MOST_RANKS, &d)) {
        if (getenv("LAYOUT"))
            printf("\n    %s", decision_text(a, &job, &d));
        tally_layout(&b->result->tally, &job, &d);
        p = compile_decision(a, &job, b->host, &d, &(struct compile_options){0}, &why);
    }
    if (p) {
        check_plan(b, a, seed, p);
        plan_close(p);
    } else {
        blame(b, a, seed, &job, &d, why);
    }
    arena_free(a);
}

static void check_portion(const struct portion *u, struct result *result, unsigned worker)
{
    struct bench b;
    if (open_bench(&b, &layout_models[u->model], result, worker))
        for (uint64_t i = 0; i < u->count; i++)
            check_layout(&b, u->first + i);
    else
        result->failures++;
    e2e_tensors_free(&b.gradients);
    arena_free(b.arena);
    if (getenv("LAYOUTS")) {
        printf("\n    %s %llu to %llu", layout_models[u->model].name, (unsigned long long)u->first,
               (unsigned long long)(u->first + u->count - 1));
        fflush(stdout);
    }
}

/* ---- which layouts, and who checks them ---- */

static bool is_main(const char *name)
{
    return !strcmp(name, "llama") || !strcmp(name, "mixtral") || !strcmp(name, "deepseek");
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* is `name` a word of the list? */
static bool named(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return true;
    return false;
}

static uint32_t list_portions(struct portion *portions)
{
    const char *alone = getenv("LAYOUT"), *only = getenv("LAYOUT_MODELS");
    uint64_t each = number("LAYOUTS", 0), from = number("LAYOUTS_FROM", 1);
    uint32_t n = 0;
    for (uint32_t m = 0; m < layout_nmodels; m++) {
        const char *name = layout_models[m].name;
        size_t length = strlen(name);
        if (alone && !strncmp(alone, name, length) && alone[length] == ':')
            portions[n++] = (struct portion){m, strtoull(alone + length + 1, NULL, 10), 1};
        if (alone || (only && *only && !named(only, name)))
            continue;
        uint64_t left = !each ? test_draws_usual(EACH, 1, QUICK_EACH) : is_main(name) ? each : (each + 15) / 16;
        for (uint64_t first = from; left && n < MOST_PORTIONS; first += PORTION) {
            uint64_t count = left < PORTION ? left : PORTION;
            portions[n++] = (struct portion){m, first, count};
            left -= count;
        }
    }
    return n;
}

static void work(struct shared *shared, const struct portion *portions, uint32_t nportions, unsigned worker)
{
    for (uint32_t i; (i = atomic_fetch_add(&shared->next, 1)) < nportions;)
        check_portion(&portions[i], &shared->of[worker], worker);
}

/* false: a process of them has died */
static bool share(struct shared *shared, const struct portion *portions, uint32_t nportions, unsigned jobs)
{
    pid_t child[MOST_JOBS];
    bool fine = true;
    fflush(stdout);
    for (unsigned w = 1; w < jobs; w++) {
        child[w] = fork();
        if (child[w] == 0) {
            work(shared, portions, nportions, w);
            fflush(stdout);
            _exit(0);
        }
    }
    work(shared, portions, nportions, 0);
    for (unsigned w = 1; w < jobs; w++) {
        int status = 1;
        if (child[w] > 0)
            fine &= waitpid(child[w], &status, 0) == child[w] && status == 0;
    }
    return fine;
}

static void report(const struct result *sum, bool whole)
{
    printf("\n    %u layouts exactly, %u by llmrun; %u free runs of experts, %u choices differ, by margins "
           "up to %.1e",
           sum->exact, sum->real, sum->free, sum->flips, sum->margin);
    tally_print(&sum->tally, "layouts");
    CU_ASSERT_EQUAL(sum->failures, 0);
    if (whole) /* every value of every dimension is drawn, and often where many layouts are */
        CU_ASSERT_EQUAL(tally_rare(&sum->tally, sum->tally.items < 1000 ? 1 : sum->tally.items / 100), 0);
    fflush(stdout);
}

static void test_all_models(void)
{
    static const char *const narrow[] = {"LAYOUT", "LAYOUTS_FROM", "LAYOUT_MODELS"};
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct portion *portions = calloc(MOST_PORTIONS, sizeof *portions);
    CU_ASSERT_FATAL(shared != MAP_FAILED && portions);
    struct result sum = {0};
    uint64_t each = number("LAYOUTS", 0);
    bool whole = each ? each >= 100 : test_whole();
    for (int i = 0; i < 3; i++)
        whole &= !getenv(narrow[i]) || !*getenv(narrow[i]);
    uint32_t nportions = list_portions(portions);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t jobs = number("JOBS", cores < 1 ? 1 : cores > 4 ? 4 : (uint64_t)cores);
    CU_ASSERT(nportions > 0);
    CU_ASSERT(share(shared, portions, nportions,
                    jobs < 1           ? 1
                    : jobs > MOST_JOBS ? MOST_JOBS
                                       : (unsigned)jobs));
    for (unsigned w = 0; w < MOST_JOBS; w++) {
        const struct result *r = &shared->of[w];
        tally_add(&sum.tally, &r->tally);
        sum.exact += r->exact;
        sum.real += r->real;
        sum.flips += r->flips;
        sum.free += r->free;
        sum.failures += r->failures;
        sum.margin = fmax(sum.margin, r->margin);
    }
    report(&sum, whole);
    free(portions);
    munmap(shared, sizeof *shared);
}

void suite_any_layout(void);
void suite_any_layout(void)
{
    CU_pSuite s = CU_add_suite("any_layout", NULL, NULL);
    CU_add_test(s, "same job, any layout, same losses", test_all_models);
}
