/* Drawn models on drawn layouts: a legal plan is never called wrong.  Models over all that the language can
 * say and plans can do (tests/compiler/random_model.h), each on LAYOUTS layouts over all dimensions for up to
 * sixteen ranks.  What decision_legal() and decision_emittable() accept must compile, verify by roles and by
 * ranks, and be the same program after encoding and decoding; every EXACT-th model's plans must compute what
 * one rank computes, modulo a prime and in an adversarial order, and so must the same plans at shrunken
 * dimensions; every REAL-th model's first plan is trained by llmrun beside one rank: losses of STEPS steps
 * within 1e-5 in fp32 and 3e-2 where it rounds to less, the first gradient's norm within
 * 1e-5 and 0.3.
 *
 * MODELS=N draws N models instead of the fixed few (make check-models), MODELS_FROM=SEED starts at that seed,
 * and MODEL=SEED takes that one alone and prints it; it is what a failure says.  JOBS=N processes share the
 * work (default: one per core). */

#include "compiler/execute/exact.h"
#include "compiler/execute/shrink.h"
#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_model.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"
#include "tests/e2e/tally.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MODELS = 48,
    QUICK_MODELS = 6,
    LAYOUTS = 2,
    EXACT = 4,
    REAL = 24,
    STEPS = 3,
    MOST_RANKS = 16,
    MOST_JOBS = 16
};

struct result {
    struct tally models, layouts;
    uint32_t exact, shrunk, cannot_shrink, real, none, failures;
    uint64_t at; /* the seed at work, for whoever finds the process dead */
};
/* seen by all processes */
struct shared {
    atomic_ullong next;
    uint64_t end;
    struct result of[MOST_JOBS];
};

/* one model */
struct bench {
    struct arena *arena;
    uint64_t seed;
    char *text;
    struct job *job;
    struct topo *host;
    struct result *result;
    unsigned worker;
};

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void blame(const struct bench *b, const struct job *job, const struct decision *d, const char *what)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n); /* printed in one piece, for other processes print too */
    if (!f)
        return;
    fprintf(f, "\n    MODEL=%llu: %.900s\n%s", (unsigned long long)b->seed, what, b->text);
    if (d) {
        uint32_t never = job->wishes.never_overlap, over = job->wishes.overlap;
        fprintf(f, "%s%s%s%s%s\n", decision_text(b->arena, job, d),
                never & OVERLAP_CP ? ", never overlap cp" : "",
                never & OVERLAP_DP ? ", never overlap dp" : "", over ? ", overlap" : "",
                decision_skews(job, d) ? ", post-validated" : "");
    }
    fclose(f);
    fwrite(text, 1, n, stdout);
    fflush(stdout);
    free(text);
    b->result->failures++;
}

/* NULL after the failure was reported */
static struct plan *compile(const struct bench *b, struct arena *a, struct job *job, const struct decision *d)
{
    const char *why = "";
    struct plan *p = compile_decision(a, job, b->host, d, &(struct compile_options){0}, &why);
    if (!p)
        blame(b, job, d, why);
    return p;
}

static bool verified(const struct bench *b, struct arena *a, const struct plan *p)
{
    for (int full = 0; full < 2; full++) {
        const struct verdict *v = verify_plan(a, p, full);
        if (!v->nviolations)
            continue;
        blame(b, p->job, &p->decision,
              arena_printf(a, "property %u: %s", v->violations[0].property, v->violations[0].message));
        return false;
    }
    return true;
}

/* a program's file says the program again, and passes its checks */
static const char *recoded(struct arena *a, const struct program *p)
{
    uint8_t *bytes, *again;
    size_t n, n_again;
    struct error error = {""};
    struct program *q;
    if (program_encode(p, &bytes, &n) != STATUS_OK)
        return "a program cannot be encoded";
    const char *why = NULL;
    if (program_decode(bytes, n, &q, &error) != STATUS_OK) {
        why = arena_printf(a, "a program cannot be decoded: %s", error.text);
    } else {
        if (program_check(q, &error) != STATUS_OK)
            why = arena_printf(a, "a decoded program does not pass its checks: %s", error.text);
        else if (program_encode(q, &again, &n_again) != STATUS_OK)
            why = "a decoded program cannot be encoded";
        else {
            why = n == n_again && !memcmp(bytes, again, n) ? NULL : "a decoded program encodes otherwise";
            free(again);
        }
        program_free(q);
    }
    free(bytes);
    return why;
}

/* the decision's object says the decision again */
static const char *reread(struct arena *a, const struct plan *p)
{
    struct strbuf b = {0}, c = {0};
    struct decision d;
    const char *why = NULL;
    decision_json(p->job, &p->decision, &b);
    if (!decision_from_json(a, b.text, b.length, p->job, p->topo, &d, &why))
        why = arena_printf(a, "the decision cannot be read again: %s", why);
    else {
        decision_json(p->job, &d, &c);
        why = strcmp(b.text, c.text) ? "the decision reads otherwise" : NULL;
    }
    strbuf_free(&b);
    strbuf_free(&c);
    return why;
}

static void check_files(const struct bench *b, struct arena *a, const struct plan *p)
{
    const char *why = reread(a, p);
    for (uint32_t r = 0; r < p->nroles && !why; r++) {
        why = recoded(a, p->train[r]);
        why = why ? why : recoded(a, p->eval[r]);
    }
    if (why)
        blame(b, p->job, &p->decision, why);
}

/* tokens beyond an expert rank's room end a run: no exact execution then */
static bool may_overflow(const struct job *job)
{
    return job->train.expert_room > 0;
}

static void check_exact(const struct bench *b, struct arena *a, const struct plan *p)
{
    const char *why = NULL;
    struct decision alone = layout_alone(a, b->job, b->host);
    struct plan *one = compile(b, a, b->job, &alone);
    if (!one)
        return;
    struct exact_truth *truth = exact_truth(a, one, &why);
    if (truth)
        why = exact_compare(a, p, truth, b->seed).why;
    if (why)
        blame(b, p->job, &p->decision, why);
    b->result->exact++;
    plan_close(one);
}

/* what `llmc check --execute` does, but for llmrun */
static void check_shrunk(const struct bench *b, struct arena *a, const struct plan *p)
{
    const char *why = NULL;
    struct shrunk *s = shrink_plan(a, p, &why);
    if (!s) {
        printf("\n    MODEL=%llu has no small plan: %s", (unsigned long long)b->seed, why);
        b->result->cannot_shrink++;
        return;
    }
    struct plan *small = compile(b, a, &s->job, &s->decision);
    struct plan *one = small ? compile(b, a, &s->job, &s->alone) : NULL;
    if (one && verified(b, a, small)) {
        struct exact_truth *truth = exact_truth(a, one, &why);
        if (truth)
            why = exact_compare(a, small, truth, b->seed).why;
        if (why)
            blame(b, p->job, &p->decision,
                  arena_printf(a, "shrunken to %s: %s", decision_text(a, &s->job, &s->decision), why));
    }
    b->result->shrunk++;
    if (one)
        plan_close(one);
    if (small)
        plan_close(small);
}

/* ---- by llmrun ---- */

static bool write_tokens(const char *path, const struct job *job)
{
    uint64_t state = 7, n = (STEPS + 1) * job->train.batch * (job->train.sequence + 8);
    FILE *f = fopen(path, "wb");
    for (uint64_t i = 0; f && i < n; i++) {
        uint16_t token = (uint16_t)random_below(&state, (uint32_t)job->model.vocab);
        fwrite(&token, sizeof token, 1, f);
    }
    return f && fclose(f) == 0;
}

static const char *train(struct arena *a, const char *folder, const struct plan *p, const char *name,
                         const char *options, struct e2e_log *log)
{
    char path[E2E_PATH + 64], out[E2E_PATH + 64];
    struct error error = {""};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (plan_write(p, path, true, &error) != STATUS_OK)
        return arena_strdup(a, error.text);
    snprintf(out, sizeof out, "%s/%s.out", folder, name);
    snprintf(path, sizeof path, "%s/%s.jsonl", folder, name);
    if (e2e_command(out, "%s/llmrun '%s/%s' --data '%s/tokens.bin' --steps %d --quiet --log '%s' %s",
                    e2e_build(), folder, name, folder, STEPS, path, options))
        return arena_printf(a, "llmrun fails on %u ranks", p->ranks->nranks);
    return e2e_log_read(path, log) && log->steps == STEPS ? NULL : "llmrun leaves no log";
}

static const char *compare(struct arena *a, const struct job *job, const struct e2e_log *x,
                           const struct e2e_log *y)
{
    bool rounds = job->train.precision != DT_FP32;
    for (int i = 0; i < STEPS; i++) {
        double loss = e2e_relative(x->loss[i], y->loss[i]),
               norm = e2e_relative(x->grad_norm[i], y->grad_norm[i]);
        bool steep = rounds && i; /* what differs by rounding may descend elsewhere */
        if (!(loss <= (rounds ? 3e-2 : 1e-5) && (steep || norm <= (rounds ? 0.3 : i ? 1e-3 : 1e-5))))
            return arena_printf(
                a, "llmrun, step %d: loss %.9g, one rank's %.9g; gradient norm %.9g, one rank's %.9g", i + 1,
                x->loss[i], y->loss[i], x->grad_norm[i], y->grad_norm[i]);
    }
    return NULL;
}

static void check_real(const struct bench *b, struct arena *a, const struct plan *p)
{
    char folder[E2E_PATH], name[64], path[E2E_PATH + 16], save[E2E_PATH + 64] = "",
                                                                          replay[E2E_PATH + 64] = "";
    struct decision alone = layout_alone(a, b->job, b->host);
    struct plan *one = compile(b, a, b->job, &alone);
    struct e2e_log many, single;
    if (!one)
        return;
    snprintf(name, sizeof name, "drawn-models/%u", b->worker);
    e2e_folder(folder, name);
    if (model_has_experts(&b->job->model)) {
        snprintf(save, sizeof save, "--routing-save '%s/routing'", folder);
        snprintf(replay, sizeof replay, "--routing '%s/routing'", folder);
    }
    snprintf(path, sizeof path, "%s/tokens.bin", folder);
    const char *why = write_tokens(path, b->job) ? NULL : "the tokens cannot be written";
    why = why ? why : train(a, folder, one, "one", save, &single);
    why = why ? why : train(a, folder, p, "many", replay, &many);
    why = why ? why : compare(a, b->job, &many, &single);
    if (why)
        blame(b, p->job, &p->decision, why);
    b->result->real++;
    plan_close(one);
}

/* ---- a model, a layout ---- */

static void draw_wishes(uint64_t *state, struct job *job)
{
    static const uint32_t overlap[] = {0, 0, 0, 0, OVERLAP_DP, OVERLAP_PP, OVERLAP_CP, OVERLAP_ALL_TO_ALL};
    layout_wishes(state, job);
    job->wishes.overlap =
        overlap[random_below(state, sizeof overlap / sizeof *overlap)] & ~job->wishes.never_overlap;
}

static void check_layout(const struct bench *b, uint64_t *state, uint32_t k)
{
    struct arena *a = arena_new();
    struct job job = *b->job;
    struct decision d = {0};
    draw_wishes(state, &job);
    bool found = layout_draw(a, state, &job, b->host, MOST_RANKS, &d);
    if (found && getenv("MODEL"))
        printf("\n    %s", decision_text(a, &job, &d));
    fflush(stdout); /* nothing is lost if the process dies */
    struct plan *p = found ? compile(b, a, &job, &d) : NULL;
    b->result->none += !found;
    if (found) {
        tally_layout(&b->result->layouts, &job, &d);
        tally_model(&b->result->models, &job, &d);
    }
    if (p && verified(b, a, p)) {
        check_files(b, a, p);
        if ((b->seed % EXACT == 0 || getenv("MODEL")) && !may_overflow(&job)) {
            check_exact(b, a, p);
            check_shrunk(b, a, p);
        }
        if ((b->seed % REAL == 0 || getenv("MODEL")) && k == 0 && !may_overflow(&job))
            check_real(b, a, p);
    }
    if (p)
        plan_close(p);
    arena_free(a);
}

static void check_model(struct result *result, unsigned worker, uint64_t seed)
{
    struct bench b = {.arena = arena_new(), .seed = seed, .result = result, .worker = worker};
    uint64_t state = seed * 0x2545f4914f6cdd1du + 1;
    struct diag *d = diag_new(b.arena);
    struct source *s = ARENA_NEW(b.arena, struct source);
    b.text = random_model(b.arena, &state);
    *s = (struct source){"drawn.llm", b.text, strlen(b.text), false};
    b.job = job_parse(b.arena, d, s, NULL, 0);
    if (getenv("MODEL"))
        printf("\n%s", b.text);
    const char *what;
    struct span where;
    if (!b.job) {
        diag_print(d, stdout, false);
        blame(&b, NULL, NULL, "the model is refused");
    } else if (model_unsupported(b.job, &what, &where)) {
        blame(&b, NULL, NULL, what);
    } else {
        b.host = random_host(b.arena, MOST_RANKS);
        for (uint32_t k = 0; k < LAYOUTS; k++)
            check_layout(&b, &state, k);
    }
    arena_free(b.arena);
}

/* ---- which models, and who checks them ---- */

static void work(struct shared *shared, unsigned worker)
{
    for (uint64_t seed; (seed = atomic_fetch_add(&shared->next, 1)) < shared->end;) {
        shared->of[worker].at = seed;
        check_model(&shared->of[worker], worker, seed);
    }
}

static pid_t start(struct shared *shared, unsigned worker)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        work(shared, worker);
        fflush(stdout);
        _exit(0);
    }
    return pid;
}

/* A process that dies has found something; another one goes on behind its seed. */
static void share(struct shared *shared, unsigned jobs)
{
    pid_t child[MOST_JOBS];
    for (unsigned w = 0; w < jobs; w++)
        child[w] = start(shared, w);
    for (unsigned w = 0; w < jobs; w++)
        for (int status = 0; child[w] > 0 && waitpid(child[w], &status, 0) == child[w] && status;
             child[w] = start(shared, w)) {
            printf("\n    MODEL=%llu: the process died of signal %d\n", (unsigned long long)shared->of[w].at,
                   WIFSIGNALED(status) ? WTERMSIG(status) : 0);
            shared->of[w].failures++;
        }
}

static void report(const struct shared *shared)
{
    struct result sum = {0};
    for (unsigned w = 0; w < MOST_JOBS; w++) {
        const struct result *r = &shared->of[w];
        tally_add(&sum.models, &r->models);
        tally_add(&sum.layouts, &r->layouts);
        sum.exact += r->exact;
        sum.shrunk += r->shrunk;
        sum.cannot_shrink += r->cannot_shrink;
        sum.real += r->real;
        sum.none += r->none;
        sum.failures += r->failures;
    }
    printf("\n    %u plans verified, %u exactly, %u shrunken (%u have no small plan), %u by llmrun; %u "
           "refused; no layout "
           "found for %u",
           sum.layouts.items, sum.exact, sum.shrunk, sum.cannot_shrink, sum.real, sum.failures, sum.none);
    bool many = sum.layouts.items >= 1000;
    if (many || getenv("MODELS")) {
        tally_print(&sum.models, "models");
        tally_print(&sum.layouts, "layouts");
    }
    CU_ASSERT_EQUAL(sum.failures, 0);
    CU_ASSERT(sum.layouts.items > 0);
    if (many) /* every value of every dimension is drawn */
        CU_ASSERT_EQUAL(tally_rare(&sum.models, 5) + tally_rare(&sum.layouts, 1), 0);
    fflush(stdout);
}

static void test_models(void)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_FATAL(shared != MAP_FAILED);
    uint64_t alone = number("MODEL", 0), first = alone ? alone : number("MODELS_FROM", 1);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t jobs = number("JOBS", cores < 1 ? 1 : cores > 4 ? 4 : (uint64_t)cores);
    shared->next = first;
    shared->end = first + (alone ? 1 : number("MODELS", test_draws(MODELS, QUICK_MODELS)));
    share(shared, jobs < 1 ? 1 : jobs > MOST_JOBS ? MOST_JOBS : (unsigned)jobs);
    report(shared);
    munmap(shared, sizeof *shared);
}

void suite_drawn_models(void);
void suite_drawn_models(void)
{
    CU_pSuite s = CU_add_suite("drawn_models", NULL, NULL);
    CU_add_test(s, "drawn models on drawn layouts: no legal plan is refused", test_models);
}
