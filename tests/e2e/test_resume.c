/* A run that goes on from a checkpoint is the run that was never interrupted: on its own plan bit for bit, with weights, moments
 * and log; on another layout of the job to rounding, as one rank computes it.  Tiny models of every kind, on layouts
 * drawn over all dimensions (tests/compiler/random_layout.h): ZeRO 0 to 3, state in host memory, post-validated steps, experts,
 * prediction modules.
 *
 * State that moves to the other layout in memory (llmc transition) gives what files give, bit for bit.
 *
 * MOVES=N draws N pairs of layouts for that alone.  RESUMES=N draws N layouts of each model and goes on from every step of LONG; RESUME=MODEL:SEED is that one. */

#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"

#include "compiler/transition/transition.h"
#include "compiler/verify/verify.h"
#include "runtime/hash.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 6, LONG = 40, AT = 3, MOST_RANKS = 8, VOCAB = 53, EACH = 4 };

static uint64_t asked(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

struct bench {
    struct arena *arena;
    const struct layout_model *model;
    struct job *job;
    struct topo *host;
    char folder[E2E_PATH];
    const char *routing; /* options: what one rank chose is chosen again */
    struct e2e_log alone;
    uint32_t own, other, moved, failures;
};

static void write_tokens(const struct bench *b)
{
    char path[E2E_PATH + 32];
    uint64_t state = 7;
    snprintf(path, sizeof path, "%s/tokens.bin", b->folder);
    FILE *f = fopen(path, "wb");
    for (int i = 0; f && i < 20000; i++) {
        uint16_t token = (uint16_t)random_below(&state, VOCAB);
        fwrite(&token, sizeof token, 1, f);
    }
    if (f)
        fclose(f);
}

/* llmrun in the bench's folder; its exit code */
static int run(const struct bench *b, const char *plan, int steps, const char *options)
{
    char log[E2E_PATH + 32];
    snprintf(log, sizeof log, "%s/out", b->folder);
    return e2e_command(log, "sh -c 'R=$(realpath %s/llmrun); cd %s && $R %s --data tokens.bin --steps %d --quiet %s'", e2e_build(),
                       b->folder, plan, steps, options);
}

static int shell(const struct bench *b, const char *words)
{
    char log[E2E_PATH + 32];
    snprintf(log, sizeof log, "%s/out", b->folder);
    return e2e_command(log, "sh -c 'cd %s && { %s; }'", b->folder, words);
}

static bool read_log(const struct bench *b, const char *name, struct e2e_log *out)
{
    char path[E2E_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", b->folder, name);
    return e2e_log_read(path, out);
}

static bool write_plan(const struct bench *b, const struct plan *p, const char *name)
{
    char path[E2E_PATH + 64];
    struct error error;
    snprintf(path, sizeof path, "%s/%s", b->folder, name);
    return plan_write(p, path, true, &error) == STATUS_OK;
}

static bool open_bench(struct bench *b, const struct layout_model *model)
{
    const char *why = "";
    char name[64];
    *b = (struct bench){.arena = arena_new(), .model = model};
    b->job = text_job(b->arena, model->text);
    b->host = random_host(b->arena, MOST_RANKS);
    snprintf(name, sizeof name, "resume-%s", model->name);
    e2e_folder(b->folder, name);
    write_tokens(b);
    struct decision alone = layout_alone(b->arena, b->job, b->host);
    struct plan *one = compile_decision(b->arena, b->job, b->host, &alone, &(struct compile_options){0}, &why);
    if (!one)
        return false;
    bool experts = model_has_experts(&b->job->model);
    b->routing = experts ? "--routing routing" : "";
    bool fine = write_plan(b, one, "one") &&
                run(b, "one", STEPS, experts ? "--log one.jsonl --routing-save routing" : "--log one.jsonl") == 0 &&
                read_log(b, "one.jsonl", &b->alone);
    plan_close(one);
    return fine;
}

static void blame(struct bench *b, uint64_t seed, const struct plan *p, const char *what)
{
    printf("\n    RESUME=%s:%llu  %s: %s", b->model->name, (unsigned long long)seed,
           decision_text(b->arena, p->job, &p->decision), what);
    fflush(stdout);
    b->failures++;
}

static struct plan *draw_plan(struct bench *b, uint64_t *state, struct job *job)
{
    struct decision d = {0};
    const char *why;
    *job = *b->job;
    layout_wishes(state, job);
    return layout_draw(b->arena, state, job, b->host, MOST_RANKS, &d)
               ? compile_decision(b->arena, job, b->host, &d, &(struct compile_options){0}, &why)
               : NULL;
}

/* goes on from one generation of an uninterrupted run: "" or what differs in the end */
static const char *from_step(const struct bench *b, int step, int steps)
{
    char words[1024];
    snprintf(words, sizeof words,
             "rm -rf part && mkdir part && cp -r whole/step-%d part && head -n %d whole.jsonl >part.jsonl && "
             "echo \"{\\\"step\\\": %d, \\\"loss\\\": 99\" >>part.jsonl",
             step, step + 1, step + 2); /* a line too many, and a torn one */
    if (shell(b, words))
        return "the uninterrupted run leaves no checkpoint";
    if (run(b, "own", steps, "--checkpoint part --every 1000000 --resume --log part.jsonl"))
        return "it cannot be resumed";
    snprintf(words, sizeof words,
             "diff -r -x checkpoint.json whole/step-%d part/step-%d && "
             "cut -d, -f1-5 <whole.jsonl >a && cut -d, -f1-5 <part.jsonl >b && cmp a b",
             steps, steps);
    return shell(b, words) ? "resumed, it ends otherwise" : "";
}

static void check_own(struct bench *b, uint64_t seed, uint64_t *state, const struct plan *p, bool every)
{
    int steps = every ? LONG : STEPS, few = test_whole() ? 2 : 1;
    if (shell(b, "rm -rf whole") || !write_plan(b, p, "own") ||
        run(b, "own", steps, "--checkpoint whole --every 1 --keep 0 --log whole.jsonl")) {
        blame(b, seed, p, "it does not run");
        return;
    }
    for (int k = 0; k < (every ? steps - 1 : few); k++, b->own++) {
        int step = every ? k + 1 : 1 + (int)random_below(state, STEPS - 1);
        const char *what = from_step(b, step, steps);
        if (*what)
            blame(b, seed, p, what);
    }
}

/* the plan begins, `then` goes on: losses as one rank has them */
static void check_other(struct bench *b, uint64_t seed, const struct plan *then)
{
    char options[E2E_PATH];
    struct e2e_log log;
    snprintf(options, sizeof options, "--checkpoint half %s", b->routing);
    if (shell(b, "rm -rf half") || run(b, "own", AT, options) || !write_plan(b, then, "then")) {
        blame(b, seed, then, "what it would go on from is not there");
        return;
    }
    snprintf(options, sizeof options, "--checkpoint half --resume --log then.jsonl %s", b->routing);
    if (run(b, "then", STEPS, options) || !read_log(b, "then.jsonl", &log) || log.steps != STEPS - AT) {
        blame(b, seed, then, "it cannot go on");
        return;
    }
    for (size_t i = 0; i < log.steps; i++)
        if (!(e2e_relative(log.loss[i], b->alone.loss[AT + i]) <= 1e-5 &&
              e2e_relative(log.grad_norm[i], b->alone.grad_norm[AT + i]) <= 1e-3)) {
            blame(b, seed, then, "its losses are not those of one rank");
            break;
        }
    b->other++;
}

/* These plans are made by hand, so that llmc cannot read them: the hashes of their folders are looked up here. */
static void hash_folder(const struct bench *b, const char *name, char out[65])
{
    static char text[1 << 16];
    char path[E2E_PATH + 64];
    snprintf(path, sizeof path, "%s/%s/MANIFEST", b->folder, name);
    e2e_read_text(path, text, sizeof text);
    hash_sha256(text, strlen(text), out);
}

static bool write_transition(const struct bench *b, const struct plan *own, const struct plan *then)
{
    struct transition *t = NULL;
    struct error error = {""};
    char path[E2E_PATH + 64];
    snprintf(path, sizeof path, "%s/move", b->folder);
    bool fine = transition_make(b->arena, own, then, NONE, &t, &error) == STATUS_OK;
    if (fine) {
        const struct verdict *v = transition_prove(b->arena, t);
        hash_folder(b, "own", t->from_hash);
        hash_folder(b, "then", t->to_hash);
        fine = !v->nviolations && transition_write(t, path, true, &error) == STATUS_OK;
        if (v->nviolations)
            printf("\n    %s", v->violations[0].message);
    }
    if (error.text[0])
        printf("\n    %s", error.text);
    transition_close(t);
    return fine;
}

/* The plan begins, `then` goes on with what is in memory: as if it had gone by files, bit for bit.  What other plans chose is
 * not asked for here, so plans with experts go by files once more. */
static void check_moved(struct bench *b, uint64_t seed, const struct plan *own, const struct plan *then)
{
    bool alone = asked("MOVES");
    if (alone && (!write_plan(b, own, "own") || !write_plan(b, then, "then"))) {
        blame(b, seed, then, "it cannot be written");
        return;
    }
    if ((*b->routing || alone) && (shell(b, "rm -rf half") ||
                                 run(b, "own", AT, "--checkpoint half") ||
                        run(b, "then", STEPS, "--checkpoint half --resume --log then.jsonl"))) {
        blame(b, seed, then, "it cannot go on without another's choices");
        return;
    }
    if (!write_transition(b, own, then) || shell(b, "rm -rf chained") ||
        run(b, "own move then", STEPS, "--at 3 --checkpoint chained --every 1000000 --log chained.jsonl")) {
        blame(b, seed, then, "state does not move to it in memory");
        return;
    }
    if (shell(b, "diff -r -x checkpoint.json half/step-6 chained/step-6 && cut -d, -f1-5 <then.jsonl >a && "
                 "tail -n 3 chained.jsonl | cut -d, -f1-5 >b && cmp a b"))
        blame(b, seed, then, "after a move in memory it ends otherwise than after one by files");
    b->moved++;
}

static void check_layout(struct bench *b, uint64_t seed, bool every)
{
    uint64_t state = seed + ((uint64_t)(b->model - layout_models) << 32) + 77;
    struct job job, other;
    struct plan *own = draw_plan(b, &state, &job), *then = draw_plan(b, &state, &other);
    CU_ASSERT(own && then);
    if (own && then) {
        if (!asked("MOVES")) {
            check_own(b, seed, &state, own, every);
            check_other(b, seed, then);
        }
        check_moved(b, seed, own, then);
    }
    plan_close(own);
    plan_close(then);
}

static void test_resumed(void)
{
    const char *only = getenv("RESUME");
    uint64_t each = asked("RESUMES");
    uint32_t own = 0, other = 0, moved = 0;
    for (uint32_t m = 0; m < layout_nmodels; m++) {
        const struct layout_model *model = &layout_models[m];
        size_t n = strlen(model->name);
        bool this = only && !strncmp(only, model->name, n) && only[n] == ':';
        struct bench b;
        if (only && !this)
            continue;
        CU_ASSERT_FATAL(open_bench(&b, model));
        uint64_t first = this ? strtoull(only + n + 1, NULL, 10) : 1,
                 count = this ? 1 : asked("MOVES") ? asked("MOVES") : each ? each : test_draws(EACH, 1);
        for (uint64_t seed = first; seed < first + count; seed++)
            check_layout(&b, seed, each || this);
        CU_ASSERT_EQUAL(b.failures, 0);
        own += b.own;
        other += b.other;
        moved += b.moved;
        arena_free(b.arena);
    }
    printf("\n    %u resumed on their own plan, %u on another, %u moved in memory ", own, other, moved);
}

void suite_resume(void);
void suite_resume(void)
{
    CU_pSuite s = CU_add_suite("resume", NULL, NULL);
    CU_add_test(s, "from a checkpoint as if it had never stopped", test_resumed);
}
