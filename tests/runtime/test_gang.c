/* Two hundred random plans on the fake device equal CPU ranks in every bit, half of them by either transport, over every
 * dimension that a decision has and in every way of replaying, with the device running streams in any order that events
 * allow; no rule of CUDA or NCCL is broken and nothing is left behind: no communicator, stream, event, graph or memory.
 * GANG=SEED runs the plan of that seed alone. */

#include "runtime/cuda/gang_inside.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"
#include "tests/e2e/e2e.h"
#include "tests/runtime/program_parse.h"
#include "tests/runtime/trial.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

static struct trial on_device(const struct plan *p, enum trial_kind kind, uint64_t seed)
{
    return (struct trial){.plan = p,
                          .kind = kind,
                          .replay = (enum replay)(seed % 3),
                          .cuda = {.seed = seed % 8 ? seed : 0, .devices = kind == TRIAL_NCCL ? 16 : 1, .memory_bytes = 1u << 30},
                          .nccl = {.seed = seed % 8 ? seed : 0},
                          .trace = seed % 5 == 0,
                          .watchdog_s = 20};
}

static void blame(uint64_t seed, const struct trial *t, const char *what)
{
    static const char *const kinds[] = {"cpu", "d2d", "nccl"};
    printf("\n    plan %llu, %s, replay %d: %s; status %d %s | %s", (unsigned long long)seed, kinds[t->kind], (int)t->replay, what,
           (int)t->status, t->error, t->complaints);
    fflush(stdout);
    CU_FAIL("a plan on the fake device");
}

static void compare(uint64_t seed, const struct trial *cpu, struct trial *t)
{
    trial_run(t);
    if (!trial_equal(cpu, t))
        blame(seed, t, "differs from CPU ranks");
    if (t->complaints[0])
        blame(seed, t, "breaks a rule");
    if (t->backwards)
        blame(seed, t, "its trace runs backwards");
}

/* the same plan with room for GPUs' kernels, which are then given no other */
static struct plan *for_gpus(struct arena *a, struct plan *p)
{
    const char *why;
    p->topo->types[0].gpu.sm = 90;
    struct plan *q = compile_decision(a, p->job, p->topo, &p->decision, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(q);
    uint64_t placed = 0;
    for (uint32_t b = 0; b < q->train[0]->nbuffers; b++)
        placed += q->train[0]->buffers[b].kind == BUFFER_WORKSPACE ? q->train[0]->buffers[b].bytes : 0;
    CU_ASSERT(placed > 0 && placed >= program_workspace_bytes(q->train[0], 90));
    plan_close(p);
    return q;
}

/* the model's text with products in 8 bits, every recipe in turn */
static const char *in_eight_bits(struct arena *a, const char *text, uint64_t seed)
{
    static const char *const recipes[] = {"tensor", "tensor", "row", "block", "mx"}, old[] = "precision fp32";
    const char *at = strstr(text, old);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    return arena_printf(a, "%.*sprecision fp8(recipe=%s)%s", (int)(at - text), text, recipes[seed / 8 % 5], at + strlen(old));
}

/* three of five over every dimension of a layout, for models of all kinds; the others over jobs: dtypes, optimizers, clipping */
static struct plan *draw_plan(struct arena *a, uint64_t seed, uint64_t salt)
{
    uint64_t state = seed * 0x2545f4914f6cdd1du + salt + 1;
    struct topo *host = random_host(a, 8);
    struct decision d;
    const char *why = "no layout was drawn";
    if (seed % 5 > 2)
        return random_plan(a, seed + salt, 8);
    const char *text = layout_models[seed % layout_nmodels].text;
    struct job *job = text_job(a, seed % 8 ? text : in_eight_bits(a, text, seed));
    layout_wishes(&state, job);
    job->wishes.post_validation = false; /* its programs have seams, which are not played on GPUs */
    struct plan *p = layout_draw(a, &state, job, host, 8, &d) ? compile_decision(a, job, host, &d, &(struct compile_options){0}, &why) : NULL;
    if (!p)
        printf("\n    plan %llu: %s", (unsigned long long)seed, why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    return p;
}

/* how many plans had what */
struct tally {
    uint32_t plans, tp, pp, dp, ring, gathered, exchanged, ep, zero[4], replay[3], traced, eight;
};

static void count(struct tally *n, const struct plan *p, const struct trial *t)
{
    const struct decision *d = &p->decision;
    n->plans++;
    n->tp += d->tp > 1;
    n->pp += d->pp > 1;
    n->dp += d->dp > 1;
    n->ring += d->cp > 1 && d->context == CONTEXT_RING;
    n->gathered += d->cp > 1 && d->context == CONTEXT_ALL_GATHER;
    n->exchanged += d->cp > 1 && d->context == CONTEXT_ALL_TO_ALL;
    n->ep += d->ep > 1;
    n->zero[d->zero]++;
    n->replay[t->replay]++;
    n->traced += t->trace;
    n->eight += p->job->train.precision == DT_FP8;
}

/* each at least once in a hundred plans */
static void expect_all(const struct tally *n)
{
    const uint32_t each[] = {n->tp, n->pp, n->dp, n->ring, n->gathered, n->exchanged, n->ep, n->zero[0], n->zero[1],
                             n->zero[2], n->zero[3], n->replay[0], n->replay[1], n->replay[2], n->traced, n->eight};
    printf("%u plans: tp %u, pp %u, dp %u, cp by ring %u, all_gather %u, all_to_all %u, ep %u, zero 0-3 %u %u %u %u; eager %u, segments %u, "
           "graph %u; fp8 %u ... ",
           n->plans, n->tp, n->pp, n->dp, n->ring, n->gathered, n->exchanged, n->ep, n->zero[0], n->zero[1], n->zero[2], n->zero[3],
           n->replay[0], n->replay[1], n->replay[2], n->eight);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        CU_ASSERT(each[i] > 0);
}

static void run_plans(enum trial_kind kind)
{
    struct tally all = {0};
    uint64_t first = getenv("GANG") ? strtoull(getenv("GANG"), NULL, 10) : 1, n = getenv("GANG") ? 1 : test_draws_usual(100, 8, 12);
    for (uint64_t seed = first; seed < first + n; seed++) {
        struct arena *a = arena_new();
        struct plan *p = draw_plan(a, seed, kind == TRIAL_NCCL ? 1000 : 0);
        if (seed % 4 == 0)
            p = for_gpus(a, p);
        struct trial cpu = {.plan = p, .kind = TRIAL_CPU}, t = on_device(p, kind, seed);
        trial_run(&cpu);
        if (cpu.status != STATUS_OK)
            blame(seed, &cpu, "fails");
        compare(seed, &cpu, &t);
        count(&all, p, &t);
        plan_close(p);
        arena_free(a);
    }
    if (all.plans == 100)
        expect_all(&all);
}

static void test_d2d(void)
{
    run_plans(TRIAL_D2D);
}

static void test_nccl(void)
{
    run_plans(TRIAL_NCCL);
}

/* Instruction 0's result is hidden by a call that ends with instruction 1: is it missed behind it? */
static const struct {
    const char *behind; /* instructions from 2 on */
    bool dies;
} behinds[] = {
    {"", true},
    {"2 compute ADD y=%z#2[8x8]f32 a=%y#1[8x8]f32\n", true},                                     /* others */
    {"2 compute ADD y=%z#2[8x8]f32 a=%x#0[8x8]f32\n", false},                                    /* read */
    {"2 compute ADD y=%z#2[8x8]f32 a=%y#1[8x8]f32\n3 compute ADD y=%z#2[8x8]f32 a=%x#0[8x8]f32\n", false}, /* later */
    {"2 compute ADD y=%z#2[8x8]f32 a=%y#1[8x8]f32 b=%x#0[8x8]f32\n", false},                      /* as the last operand */
    {"2 compute ADD y=%z#2[2x8]f32 a=%x#0+192[2x8]f32\n", false},                                /* its last rows */
    {"2 compute ADD y=%z#2[2x8]f32 a=%x#0+256[2x8]f32\n", true},                                 /* what lies behind it */
    {"2 compute ADD y=%x#0[8x8]f32 a=%y#1[8x8]f32\n3 compute ADD y=%z#2[8x8]f32 a=%x#0[8x8]f32\n", true}, /* written first */
    {"2 compute ADD y=%x#0[8x8]f32 a=%x#0[8x8]f32\n", false},                                    /* read as it is written */
    {"2 compute ADD y=%x#0[4x8]f32 a=%y#1[4x8]f32\n", false},                                    /* written in part */
    {"2 compute ADD y=%x#0+32[8x8]f32 a=%y#1[8x8]f32\n", false},
    {"2 compute ADD y=%x#0[8x4]f32 a=%y#1[8x4]f32\n", false},
    {"2 compute ADD y=%x#0[4x8/16]f32 a=%y#1[4x8]f32\n", false},
    {"2 compute ADD y+=%x#0[8x8]f32 a=%y#1[8x8]f32\n", false}, /* added to */
    {"2 compute ADD y=%z#2[4x8]f32 a=%x#0+tp#0*64[4x8]f32\n", false}, /* perhaps */
    {"2 compute ADD y=%x#0+tp#0*64[4x8]f32 a=%y#1[4x8]f32\n", false},
};

static void test_hidden(void)
{
    static const char form[] =
        "llmc program 1\nrole 0 of 1\nevaluation no\n"
        "job sequence=8 batch=2 vocab=100 seed=1 steps_total=9 optimizer=0 lr_kind=2 lr=0.001 lr_min=0 beta1=0.9 beta2=0.95 "
        "lr_warmup=1 lr_decay=5 lr_stable=0 tokens_per_step=16\narena 4096\nslot 0 tp coord tp most 1\n"
        "buffer 0 x step f32 bytes 1024 offset 0\nbuffer 1 y step f32 bytes 1024 offset 1024\n"
        "buffer 2 z step f32 bytes 1024 offset 2048\n"
        "0 compute ADD y=%%x#0[8x8]f32 a=%%y#1[8x8]f32\n1 compute ADD y=%%y#1+256[8x8]f32 a=%%x#0[8x8]f32\n%s";
    for (size_t i = 0; i < 2 * sizeof behinds / sizeof *behinds; i++) {
        char text[2000];
        struct error error = {""};
        struct program *p = NULL;
        bool step = i % 2;
        snprintf(text, sizeof text, form, behinds[i / 2].behind);
        enum status s = program_parse(text, strlen(text), &p, &error);
        if (s)
            printf("\n    %s", error.text);
        CU_ASSERT_EQUAL_FATAL(s, STATUS_OK);
        p->buffers[0].kind = step ? BUFFER_STEP : BUFFER_PARAM;
        bool dies = gang_dies(p, 0, 1);
        CU_ASSERT_EQUAL(dies, step && behinds[i / 2].dies); /* what lives longer than a step may be looked at later */
        if (dies != (step && behinds[i / 2].dies))
            printf("\n    %s", text);
        program_free(p);
    }
}

void suite_gang(void);
void suite_gang(void)
{
    CU_pSuite s = CU_add_suite("gang", NULL, NULL);
    CU_add_test(s, "random plans on one device equal CPU ranks", test_d2d);
    CU_add_test(s, "random plans by NCCL equal CPU ranks", test_nccl);
    CU_add_test(s, "what a joined call leaves out is read by nobody", test_hidden);
}
