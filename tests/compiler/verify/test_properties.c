/* Order, races and definedness on hand-made programs, and the geometry below them against single bytes. */

#include "compiler/verify/prove.h"
#include "runtime/workspace.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

/* ---- hand-made programs: fp32 views in two buffers of 16 rows of 8 ---- */

struct at {
    int buffer; /* -1 = absent */
    uint32_t row, col, rows, cols;
};
struct step {
    enum op op; /* FILL y, COPY y x, ALL_REDUCE y */
    struct at y, x;
    int wait_queue, wait_position; /* -1 = none */
};
struct hand {
    const char *name;
    bool together;        /* both buffers lie on the same bytes */
    uint32_t property;    /* violated, 0 = none */
    const char *message;  /* part of it */
    struct step steps[6]; /* up to rows = 0 */
};
#define NO                                                                                                   \
    {                                                                                                        \
        -1, 0, 0, 0, 0                                                                                       \
    }
#define ALL(b)                                                                                               \
    {                                                                                                        \
        b, 0, 0, 16, 8                                                                                       \
    }
#define LEFT(b)                                                                                              \
    {                                                                                                        \
        b, 0, 0, 16, 4                                                                                       \
    }
#define RIGHT(b)                                                                                             \
    {                                                                                                        \
        b, 0, 4, 16, 4                                                                                       \
    }
#define NOWAIT -1, -1

static const struct hand hands[] = {
    {"a wait orders",
     false,
     0,
     "",
     {{OP_FILL, ALL(0), NO, NOWAIT}, {OP_ALL_REDUCE, ALL(0), NO, QUEUE_COMPUTE, 0}}},
    {"a missing wait",
     false,
     4,
     "it writes x, which overlaps bytes that instruction 0",
     {{OP_FILL, ALL(0), NO, NOWAIT}, {OP_ALL_REDUCE, ALL(0), NO, NOWAIT}}},
    {"columns side by side don't overlap",
     false,
     0,
     "",
     {{OP_FILL, ALL(0), NO, NOWAIT},
      {OP_ALL_REDUCE, LEFT(0), NO, QUEUE_COMPUTE, 0},
      {OP_FILL, RIGHT(0), NO, NOWAIT}}},
    {"columns that share one",
     false,
     4,
     "it writes y, which overlaps bytes that instruction 1",
     {{OP_FILL, ALL(0), NO, NOWAIT},
      {OP_ALL_REDUCE, {0, 0, 0, 16, 5}, NO, QUEUE_COMPUTE, 0},
      {OP_FILL, RIGHT(0), NO, NOWAIT}}},
    {"rows one below the other",
     false,
     0,
     "",
     {{OP_FILL, ALL(0), NO, NOWAIT},
      {OP_ALL_REDUCE, {0, 0, 0, 8, 8}, NO, QUEUE_COMPUTE, 0},
      {OP_FILL, {0, 8, 0, 8, 8}, NO, NOWAIT}}},
    {"write after a read in flight",
     false,
     4,
     "it writes y, which overlaps bytes that instruction 2",
     {{OP_FILL, ALL(0), NO, NOWAIT},
      {OP_FILL, ALL(1), NO, NOWAIT},
      {OP_ALL_REDUCE, ALL(1), NO, QUEUE_COMPUTE, 1},
      {OP_COPY, ALL(1), ALL(0), NOWAIT}}},
    {"an order through another queue",
     false,
     0,
     "",
     {{OP_FILL, ALL(0), NO, NOWAIT},
      {OP_FILL, ALL(1), NO, NOWAIT},
      {OP_ALL_REDUCE, ALL(0), NO, QUEUE_COMPUTE, 0},
      {OP_ALL_REDUCE, ALL(1), NO, QUEUE_COMPUTE, 1},
      {OP_FILL, ALL(0), NO, QUEUE_DP, 1}}},
    {"two reads need no order",
     false,
     0,
     "",
     {{OP_FILL, ALL(0), NO, NOWAIT}, {OP_COPY, ALL(1), ALL(0), NOWAIT}, {OP_COPY, ALL(1), ALL(0), NOWAIT}}},
    {"buffers that share bytes race",
     true,
     4,
     "it writes y, which overlaps bytes that instruction 1",
     {{OP_FILL, ALL(0), NO, NOWAIT},
      {OP_ALL_REDUCE, ALL(0), NO, QUEUE_COMPUTE, 0},
      {OP_FILL, ALL(1), NO, NOWAIT}}},
    {"an operand partly over another",
     false,
     4,
     "its operands y and x overlap",
     {{OP_FILL, ALL(0), NO, NOWAIT}, {OP_COPY, {0, 1, 0, 8, 8}, {0, 0, 0, 8, 8}, NOWAIT}}},
    {"in place is allowed", false, 0, "", {{OP_FILL, ALL(0), NO, NOWAIT}, {OP_COPY, ALL(0), ALL(0), NOWAIT}}},
    {"nothing was written",
     false,
     5,
     "it reads x, of which 512 bytes were not written in this step",
     {{OP_COPY, ALL(1), ALL(0), NOWAIT}}},
    {"half was written",
     false,
     5,
     "of which 256 bytes were not written in this step; the rest is by instruction 0",
     {{OP_FILL, LEFT(0), NO, NOWAIT}, {OP_COPY, ALL(1), ALL(0), NOWAIT}}},
    {"both halves were written",
     false,
     0,
     "",
     {{OP_FILL, LEFT(0), NO, NOWAIT}, {OP_FILL, RIGHT(0), NO, NOWAIT}, {OP_COPY, ALL(1), ALL(0), NOWAIT}}},
    {"overwritten by another buffer",
     true,
     5,
     "of which 256 bytes were not written",
     {{OP_FILL, ALL(0), NO, NOWAIT},
      {OP_FILL, {1, 0, 0, 8, 8}, NO, NOWAIT},
      {OP_COPY, {0, 8, 0, 8, 8}, {0, 0, 0, 8, 8}, NOWAIT}}},
    {"a wait for a later instruction",
     false,
     3,
     "it waits for a later one, instruction 1",
     {{OP_FILL, ALL(0), NO, QUEUE_DP, 0}, {OP_ALL_REDUCE, ALL(1), NO, NOWAIT}}},
};

static void set_view(struct program *p, uint32_t insn, size_t k, const struct at *v, enum mark mark)
{
    p->operands[p->insns[insn].operand + k] = (struct operand){(uint32_t)v->buffer,
                                                               DTYPE_F32,
                                                               (uint8_t)mark,
                                                               UINT16_MAX,
                                                               (v->row * 8 + v->col) * 4,
                                                               0,
                                                               v->rows,
                                                               v->cols,
                                                               8};
}

static struct program *hand_program(const struct hand *h)
{
    struct program *p = program_new(0, 1);
    uint32_t group = program_slot(p, "group", SLOT_GROUP, AXIS_BIT(AXIS_DP), 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct buffer b = {.name = "x",
                           .kind = BUFFER_STEP,
                           .dtype = DTYPE_F32,
                           .ring = NONE,
                           .bytes = 512,
                           .stride = 512,
                           .offset = i && !h->together ? 512 : 0,
                           .bucket = NONE,
                           .shard_slot = NONE};
        program_buffer(p, &b);
    }
    p->arena_bytes = 1024;
    p->job = (struct job_info){.sequence = 1, .batch = 1, .vocab = 1};
    for (const struct step *s = h->steps; s < h->steps + 6 && s->y.rows; s++) {
        uint32_t i = program_insn(p, s->op);
        p->insns[i].seq = i;
        if (s->op == OP_ALL_REDUCE) {
            p->insns[i].queue = QUEUE_DP;
            p->attrs[p->insns[i].attr + ATTR(ALL_REDUCE, group)].slot = group;
        }
        set_view(p, i, 0, &s->y, s->op == OP_ALL_REDUCE ? MARK_UPDATE : MARK_WRITE);
        if (s->op == OP_COPY)
            set_view(p, i, OPND(COPY, x), &s->x, MARK_READ);
        if (s->wait_queue >= 0)
            program_wait(p, i, (enum queue)s->wait_queue, (uint32_t)s->wait_position);
    }
    return p;
}

static void test_hands(void)
{
    for (size_t i = 0; i < sizeof hands / sizeof *hands; i++) {
        const struct hand *h = &hands[i];
        struct arena *a = arena_new();
        struct program *p = hand_program(h);
        const uint32_t size[NAXES] = {1, 1, 2, 1};
        const enum axis order[NAXES] = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP};
        struct plan plan = {.nroles = 1, .train = &p, .mesh = mesh_new(size, order)};
        struct verdict v = {0};
        verify_order(a, &plan, false, &v);
        verify_race(a, &plan, &v);
        if (!v.nviolations)
            verify_defined(a, &plan, &v);
        bool fine = h->property ? v.nviolations && v.violations[0].property == h->property &&
                                      strstr(v.violations[0].message, h->message)
                                : !v.nviolations;
        CU_ASSERT(fine);
        CU_ASSERT_EQUAL(v.certificate, h->property != 3);
        if (!fine)
            printf("\n    %s: %s", h->name, v.nviolations ? v.violations[0].message : "accepted");
        program_free(p);
        arena_free(a);
    }
}

/* ---- overlap ---- */

static struct region draw_region(uint64_t *random)
{
    struct region r = {.at = random_below(random, 64), .rows = 1 + random_below(random, 5)};
    r.pitch = random_below(random, 2) ? 12 : 1 + random_below(random, 16);
    r.width = 1 + random_below(random, (uint32_t)r.pitch);
    if (r.rows == 1 || r.width == r.pitch)
        r = (struct region){r.at, 1, r.rows * r.width, r.rows * r.width};
    return r;
}

static void test_overlap(void)
{
    uint64_t random = 7;
    for (int i = 0; i < 20000; i++) {
        struct region x = draw_region(&random), y = draw_region(&random);
        bool map[256] = {false}, meet = false;
        for (uint64_t k = 0; k < x.rows; k++)
            memset(map + x.at + k * x.pitch, true, x.width);
        for (uint64_t k = 0; k < y.rows; k++)
            for (uint64_t b = 0; b < y.width; b++)
                meet = meet || map[y.at + k * y.pitch + b];
        bool exact = x.rows == 1 || y.rows == 1 || x.pitch == y.pitch;
        CU_ASSERT_FATAL(exact ? prove_overlap(&x, &y) == meet : prove_overlap(&x, &y) || !meet);
    }
}

/* ---- messages of whole plans ---- */

static void test_limits(void)
{
    struct arena *a = arena_new();
    struct plan *p = random_plan(a, 3, 8);
    char want[64];
    p->job->wishes.memory = p->train[0]->arena_bytes - 1;
    snprintf(want, sizeof want, "is larger than the %llu bytes asked for",
             (unsigned long long)p->job->wishes.memory);
    const struct verdict *v = verify_plan(a, p, false);
    CU_ASSERT_FATAL(v->nviolations > 0);
    CU_ASSERT_EQUAL(v->violations[0].property, 6);
    CU_ASSERT_PTR_NOT_NULL(strstr(v->violations[0].message, want));
    p->job->wishes.memory = 0;
    p->topo->nodes[0].excluded_gpus = 1;
    v = verify_plan(a, p, false);
    CU_ASSERT_FATAL(v->nviolations > 0);
    CU_ASSERT_EQUAL(v->violations[0].property, 8);
    CU_ASSERT_PTR_NOT_NULL(strstr(v->violations[0].message, "rank 0, GPU 0 of node"));
    CU_ASSERT_PTR_NOT_NULL(strstr(v->violations[0].message, "is excluded"));
    p->topo->nodes[0].excluded_gpus = 0;
    p->topo->nodes[0].state = NODE_SPARE;
    v = verify_plan(a, p, false);
    CU_ASSERT_FATAL(v->nviolations > 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(v->violations[0].message, "is a spare"));
    plan_close(p);
    arena_free(a);
}

/* What the reference step has no words for is said of the training programs and of those for evaluation. */
static void test_no_words(void)
{
    struct arena *a = arena_new();
    struct plan *p = text_plan(a, tiny_llama, "pp=2");
    struct verdict v = {0};
    p->job->model.predict = 1;
    p->job->model.positions = 8;
    verify_training(a, p, &v);
    verify_evaluation(a, p, &v);
    CU_ASSERT_EQUAL_FATAL(v.nviolations, 2);
    for (uint32_t i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(v.violations[i].evaluation, i == 1);
        CU_ASSERT_STRING_EQUAL(v.violations[i].message,
                               "the reference step can't express prediction modules with more than tokens in the embedding");
    }
    plan_close(p);
    arena_free(a);
}

static void test_workspace(void)
{
    struct arena *a = arena_new();
    struct plan *cpu = random_plan(a, 3, 8);
    const char *why;
    for (uint32_t i = 0; i < cpu->train[0]->nbuffers; i++)
        CU_ASSERT_NOT_EQUAL(cpu->train[0]->buffers[i].kind, BUFFER_WORKSPACE);
    cpu->topo->types[0].gpu.sm = 90;
    struct plan *p = compile_decision(a, cpu->job, cpu->topo, &cpu->decision, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    CU_ASSERT_EQUAL(verify_plan(a, p, false)->nviolations, 0);
    for (uint32_t i = 0; i < p->train[0]->nbuffers; i++)
        if (p->train[0]->buffers[i].kind == BUFFER_WORKSPACE) {
            CU_ASSERT(p->train[0]->buffers[i].bytes >= WORKSPACE_PRODUCT);
            p->train[0]->buffers[i].bytes = p->train[0]->buffers[i].stride = 256;
        }
    const struct verdict *v = verify_plan(a, p, false);
    CU_ASSERT_FATAL(v->nviolations > 0);
    CU_ASSERT_EQUAL(v->violations[0].property, 6);
    CU_ASSERT_PTR_NOT_NULL(strstr(v->violations[0].message, " bytes, of which 256 are placed"));
    plan_close(p);
    plan_close(cpu);
    arena_free(a);
}

void suite_verify_properties(void);
void suite_verify_properties(void)
{
    CU_pSuite s = CU_add_suite("verify_properties", NULL, NULL);
    CU_add_test(s, "order, races and definedness of hand-made programs", test_hands);
    CU_add_test(s, "overlap of strided regions against single bytes", test_overlap);
    CU_add_test(s, "memory and placement beyond their limits", test_limits);
    CU_add_test(s, "a model that the reference step has no words for", test_no_words);
    CU_add_test(s, "room for what GPUs' kernels use besides operands", test_workspace);
}
