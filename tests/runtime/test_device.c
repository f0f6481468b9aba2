/* A device from inside: where the parts of a gang's memory lie and what it says of them, which instructions
 * one launch does, and every meeting of ranks that share a device, one by one. */

#include "runtime/cuda/gang_inside.h"
#include "tests/compiler/random_plan.h"
#include "tests/runtime/trial.h"

#include <CUnit/CUnit.h>
#include <string.h>

/* ---- memory ---- */

enum { TAKEN = 3 << 20, PART = 1000, PLACES = 128, ALIGNMENT = 2 << 20 };

/* meetings on one device that take memory of it when they are opened, and workspace on every queue */
static const struct cuda_runtime *taker;
static void *taken;

static enum status taking_open(struct meet **out, const struct meet_setup *s, struct error *error)
{
    taker = s->plugin->runtime;
    CU_ASSERT_EQUAL(taker->Malloc(&taken, TAKEN), CUDA_OK);
    return meet_d2d()->open(out, s, error);
}

static void taking_close(struct meet *m)
{
    meet_d2d()->close(m);
    taker->Free(taken);
}

static size_t taking_workspace(const struct meeting *m)
{
    (void)m;
    return PART;
}

struct place {
    const uint8_t *from, *to;
};
struct places { /* of a gang's allocation */
    struct place list[PLACES];
    uint32_t n;
};

/* how many bytes the place has */
static uint64_t take(struct places *p, const void *from, uint64_t bytes)
{
    CU_ASSERT_FATAL(p->n < PLACES);
    p->list[p->n++] = (struct place){from, (const uint8_t *)from + bytes};
    return bytes;
}

static uint64_t take_workspaces(struct places *p, const struct gang_rank *r)
{
    const struct program *program = r->e->play[ROUTINE_TRAIN].p;
    bool met[NQUEUES] = {false};
    uint64_t own = 0;
    for (uint32_t i = 0; i < program->ninsns; i++)
        met[program->insns[i].queue] |= insn_is_meeting(&program->insns[i]);
    for (uint32_t q = 0; q < NQUEUES; q++) {
        CU_ASSERT(!met[q] || r->workspace_bytes[q] >= PART);
        CU_ASSERT(!r->workspace[q] == !r->workspace_bytes[q]);
        if (!r->placed || q != QUEUE_COMPUTE)
            own += take(p, r->workspace[q], r->workspace_bytes[q]);
    }
    return own;
}

static const struct buffer *planned_workspace(const struct program *p)
{
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (p->buffers[b].kind == BUFFER_WORKSPACE)
            return &p->buffers[b];
    return NULL;
}

/* room that the plan itself has for kernels is used, and nothing beside it taken */
static void expect_placed(const struct gang_rank *r)
{
    const struct buffer *b = planned_workspace(r->e->play[ROUTINE_TRAIN].p);
    CU_ASSERT(r->placed == b);
    if (!b || !r->placed)
        return;
    CU_ASSERT(r->workspace[QUEUE_COMPUTE] == exec_address(r->e, b->offset));
    CU_ASSERT_EQUAL(r->workspace_bytes[QUEUE_COMPUTE], b->bytes);
}

/* offsets below host_bytes lie in pinned memory, those from there on on the device; no two places share a byte */
static void look(const struct gang *g)
{
    struct places p = {.n = 0};
    struct gang_memory m;
    uint64_t arenas = 0, workspaces = 0, staged = 0, hosts = 0;
    for (uint32_t i = 0; i < g->s.n; i++) {
        const struct gang_rank *r = &g->ranks[i];
        const struct program *program = r->e->play[ROUTINE_TRAIN].p;
        uint64_t host = program_host_bytes(program);
        CU_ASSERT_EQUAL(r->e->host_bytes, host);
        if (host) {
            CU_ASSERT(exec_address(r->e, 0) == r->host && exec_address(r->e, host - 1) == r->host + host - 1);
            CU_ASSERT(r->host >= g->pinned && r->host + host <= g->pinned + g->pinned_bytes);
        }
        CU_ASSERT_EQUAL((exec_address(r->e, host) - g->memory) % ALIGNMENT, 0);
        hosts += host;
        arenas += take(&p, exec_address(r->e, host), program->arena_bytes - host);
        workspaces += take_workspaces(&p, r);
        staged += take(&p, r->stage_device, r->stage_bytes);
        expect_placed(r);
    }
    CU_ASSERT(hosts > 0 && arenas > 0 && workspaces > 0 && staged > 0);
    for (uint32_t i = 0; i < p.n; i++) {
        const struct place *x = &p.list[i];
        CU_ASSERT(x->from == x->to || (x->from >= g->memory && x->to <= g->memory + g->memory_bytes));
        for (uint32_t j = 0; j < i; j++)
            CU_ASSERT(x->from == x->to || p.list[j].from == p.list[j].to || x->from >= p.list[j].to || p.list[j].from >= x->to);
    }
    gang_memory(g, &m);
    CU_ASSERT(m.arena >= arenas && m.arena < arenas + g->s.n * (uint64_t)ALIGNMENT);
    CU_ASSERT_EQUAL(m.workspace, workspaces);
    CU_ASSERT_EQUAL(m.staging, staged);
    CU_ASSERT_EQUAL(m.libraries, FAKE_LIBRARY_BYTES);
    CU_ASSERT_EQUAL(m.communicators, TAKEN);
    CU_ASSERT_EQUAL(m.total, g->memory_bytes + FAKE_LIBRARY_BYTES + TAKEN);
    CU_ASSERT_EQUAL(m.total, m.arena + m.workspace + m.staging + m.libraries + m.communicators + m.rest);
}

static void test_memory(void)
{
    struct meet_ops taking = *meet_d2d();
    taking.open = taking_open;
    taking.close = taking_close;
    taking.workspace_bytes = taking_workspace;
    for (uint32_t sm = 0; sm <= 90; sm += 90) { /* 90: the plan has room for a GPU's kernels */
        struct arena *a = arena_new();
        struct job *job = text_job(a, tiny_llama);
        struct topo *host = random_host(a, 8);
        const char *why = "";
        job->wishes.offload = OFFLOAD_OPTIMIZER | OFFLOAD_ACTIVATIONS;
        host->types[0].gpu.sm = sm;
        struct decision d = text_decision(a, job, host, "tp=2 pp=2 dp=2 zero=1 microbatch=1");
        struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
        if (!p)
            printf("\n    %s", why);
        CU_ASSERT_PTR_NOT_NULL_FATAL(p);
        CU_ASSERT_EQUAL(planned_workspace(p->train[0]) != NULL, sm == 90);
        struct trial cpu = {.plan = p}, t = {.plan = p,
                                             .kind = TRIAL_D2D,
                                             .cuda = {.devices = 1, .memory_bytes = 1u << 30},
                                             .watchdog_s = 20,
                                             .meet = &taking,
                                             .look = look};
        trial_run(&cpu);
        trial_run(&t);
        CU_ASSERT(trial_equal(&cpu, &t));
        CU_ASSERT_STRING_EQUAL(t.complaints, "");
        if (t.status != STATUS_OK || t.complaints[0])
            printf("\n    %s | %s", t.error, t.complaints);
        plan_close(p);
        arena_free(a);
    }
}

/* ---- one launch for several ---- */

/* may one launch do what is at a place of the compute queue and behind it, as far as others wait for them? */
static bool are_neighbours(const struct gang_rank *r, const uint32_t *order, uint32_t at)
{
    const struct gang_play *gp = &r->play[ROUTINE_TRAIN];
    return !r->e->play[ROUTINE_TRAIN].p->insns[order[at + 1]].nwaits && !gp->event[order[at]];
}

/* could one launch do both? */
static bool go_together(const struct gang *g, const uint32_t *order)
{
    const struct gang_rank *r = g->ranks;
    const struct program *p = r->e->play[ROUTINE_TRAIN].p;
    struct kernel_args args[2] = {{.scratch = NULL}, {.scratch = NULL}};
    const struct kernel_args *list[2] = {&args[0], &args[1]};
    enum op ops[2];
    for (uint32_t i = 0; i < 2; i++) {
        ops[i] = p->insns[order[i]].op;
        exec_resolve(r->e, p, order[i], &args[i]);
    }
    return g->s.plugin->fuse(ops, list, 2) == 2 && g->s.plugin->fused_hides(ops, 2) == 2;
}

/* every instruction of the compute queue is in one launch, and no two are apart that one launch could do */
static void look_at_launches(const struct gang *g)
{
    const struct gang_rank *r = g->ranks;
    const struct play *play = &r->e->play[ROUTINE_TRAIN];
    const uint32_t *order = play->order + play->first[QUEUE_COMPUTE];
    const uint8_t *fused = r->play[ROUTINE_TRAIN].fused;
    uint32_t n = play->count[QUEUE_COMPUTE], joined = 0;
    for (uint32_t at = 0, many; at < n; at += many) {
        many = fused[order[at]];
        CU_ASSERT_FATAL(many > 0 && at + many <= n);
        for (uint32_t i = 0; i + 1 < many; i++)
            CU_ASSERT(fused[order[at + i + 1]] == 0 && are_neighbours(r, order, at + i));
        joined += many > 1;
        if (many == 1 && at + 1 < n && fused[order[at + 1]] == 1 && are_neighbours(r, order, at))
            CU_ASSERT_FALSE(go_together(g, order + at));
    }
    CU_ASSERT(joined > 4); /* of every layer */
    CU_ASSERT_EQUAL(g->counts.fused, joined * g->counts.steps);
}

static void look_at_words(const struct gang *g)
{
    static const char *const modes[] = {"instruction by instruction", "in segments", "as one graph"};
    char said[300], want[300];
    g->s.plugin->describe(g->s.device, want, sizeof want);
    snprintf(want + strlen(want), 100, ", d2d, replayed %s", modes[g->s.replay]);
    player_d2d.describe(g->ranks->e, said, sizeof said);
    CU_ASSERT_STRING_EQUAL(said, want);
}

static void run_alone(const char *text, enum replay replay, void (*look_at)(const struct gang *g))
{
    struct arena *a = arena_new();
    const char *why = "";
    struct job *job = text_job(a, text);
    struct topo *host = random_host(a, 8);
    struct decision d = text_decision(a, job, host, "microbatch=1");
    struct plan *p = compile_decision(a, job, host, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p);
    struct trial t = {.plan = p,
                      .kind = TRIAL_D2D,
                      .replay = replay,
                      .cuda = {.devices = 1, .memory_bytes = 1u << 30},
                      .watchdog_s = 20,
                      .look = look_at};
    trial_run(&t);
    CU_ASSERT_EQUAL(t.status, STATUS_OK);
    plan_close(p);
    arena_free(a);
}

static void test_launches(void)
{
    run_alone(tiny_llama, REPLAY_EAGER, look_at_launches);
    run_alone(tiny_gpt2, REPLAY_EAGER, look_at_launches);
}

/* what a log says of the device that a run was on */
static void test_words(void)
{
    for (enum replay replay = REPLAY_EAGER; replay <= REPLAY_GRAPH; replay++)
        run_alone(tiny_llama, replay, look_at_words);
}

/* ---- meetings ---- */

enum { MEMBERS = 4, COLS = 3, EACH = 2, ROOM = 64 }; /* EACH: rows of a part; ROOM: floats of an operand */

struct form {
    enum op op;
    uint32_t n, argument;
    bool gaps; /* between rows */
};

static float given(uint32_t member, uint32_t i, uint32_t j)
{
    return (float)(1 + 1000 * member + 10 * i + j);
}

/* what member k holds at the end */
static float expected(const struct form *f, uint32_t k, uint32_t i, uint32_t j)
{
    float sum = 0;
    uint32_t row = f->op == OP_REDUCE_SCATTER ? k * EACH + i : i;
    switch ((int)f->op) {
    case OP_ALL_GATHER:
        return given(i / EACH, i % EACH, j);
    case OP_ALL_TO_ALL:
        return given(i / EACH, k * EACH + i % EACH, j);
    case OP_SHIFT:
        return given((k + f->n - f->argument) % f->n, i, j);
    case OP_BROADCAST:
        return given(f->argument, i, j);
    case OP_SEND:
        return given(0, i, j);
    default: /* sums, and a maximum */
        for (uint32_t m = 0; m < f->n; m++)
            sum += given(m, row, j);
        return f->op == OP_ALL_REDUCE && f->argument ? given(f->n - 1, i, j) : sum;
    }
}

static struct view view_of(const struct form *f, float *at, uint32_t rows)
{
    return (struct view){at, DTYPE_F32, false, rows, COLS, COLS + f->gaps};
}

static struct meet_part make_part(const struct form *f, uint32_t k, float *memory)
{
    bool alone = f->op == OP_SEND || f->op == OP_BROADCAST || f->op == OP_ALL_REDUCE; /* one operand */
    uint32_t many = f->n * EACH;
    struct meet_part p = {.m = {.op = f->op == OP_SEND && k ? OP_RECV : f->op, .self = k, .argument = f->argument},
                          .queue = QUEUE_TP,
                          .rank = k};
    for (uint32_t e = 0; e < 2 * ROOM; e++)
        memory[e] = -1;
    p.m.x = view_of(f, memory, f->op == OP_ALL_GATHER ? EACH : many);
    p.m.y = alone ? p.m.x : view_of(f, memory + ROOM, f->op == OP_REDUCE_SCATTER ? EACH : many);
    for (uint32_t i = 0; i < p.m.x.rows; i++)
        for (uint32_t j = 0; j < COLS; j++)
            memory[i * p.m.x.ld + j] = given(k, i, j);
    return p;
}

/* y is as it must be, what lies between and behind its rows as it was */
static bool is_right(const struct form *f, uint32_t k, const struct view *y)
{
    const float *at = y->data;
    for (uint32_t e = 0; e < ROOM; e++) {
        uint32_t i = e / y->ld, j = e % y->ld;
        if (at[e] != (i < y->rows && j < COLS ? expected(f, k, i, j) : -1))
            return false;
    }
    return true;
}

static void meet_once(const struct cuda_plugin *plugin, const struct form *f, const cuda_stream *streams, float *memory)
{
    const uint32_t members[MEMBERS] = {0, 1, 2, 3};
    struct channel channel = {f->n, members};
    const struct channels channels = {.n = 1, .nranks = f->n, .list = &channel};
    const struct meet_setup setup = {.plugin = plugin, .channels = &channels};
    struct meet_part parts[MEMBERS];
    struct meet *m = NULL;
    struct error error;
    int rc = CUDA_OK;
    CU_ASSERT_EQUAL_FATAL(meet_d2d()->open(&m, &setup, &error), STATUS_OK);
    for (uint32_t k = 0; k < f->n; k++) {
        parts[k] = make_part(f, k, memory + (size_t)k * 2 * ROOM);
        parts[k].stream = streams[k];
    }
    const char *why = meet_d2d()->launch(m, parts, f->n);
    for (uint32_t k = 0; k < f->n; k++)
        while ((rc = cuda_poll_stream(plugin->runtime, streams[k])) == CUDA_NOT_READY)
            ;
    bool right = !why && !rc;
    for (uint32_t k = 0; k < f->n; k++)
        right = right && is_right(f, k, &parts[k].m.y);
    if (!right)
        printf("\n    %s of %u, argument %u, gaps %d: %s", isa_info(f->op)->name, f->n, f->argument, f->gaps, why ? why : "wrong");
    CU_ASSERT(right);
    meet_d2d()->close(m);
}

static void test_meetings(void)
{
    static const enum op ops[] = {OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_ALL_GATHER, OP_ALL_TO_ALL, OP_SHIFT, OP_BROADCAST, OP_SEND};
    const struct fake_setup setup = {.seed = 3, .devices = 1, .memory_bytes = 1u << 20};
    const struct cuda_plugin *plugin = fake_cuda_open(&setup);
    cuda_stream streams[MEMBERS];
    void *memory = NULL;
    char complaints[300];
    CU_ASSERT_PTR_NOT_NULL_FATAL(plugin);
    CU_ASSERT_EQUAL_FATAL(plugin->runtime->Malloc(&memory, MEMBERS * 2 * ROOM * sizeof(float)), CUDA_OK);
    for (uint32_t k = 0; k < MEMBERS; k++)
        CU_ASSERT_EQUAL(plugin->runtime->StreamCreateWithPriority(&streams[k], CUDA_STREAM_NONBLOCKING, 0), CUDA_OK);
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (uint32_t n = 1; n <= MEMBERS; n++) {
            bool turns = ops[o] == OP_SHIFT || ops[o] == OP_BROADCAST;
            uint32_t arguments = turns ? n : ops[o] == OP_ALL_REDUCE ? 2 : 1;
            for (uint32_t x = 0; x < 2 * arguments && (ops[o] != OP_SEND || n == 2); x++)
                if (ops[o] != OP_SHIFT || x / 2)
                    meet_once(plugin, &(struct form){ops[o], n, x / 2, x % 2}, streams, memory);
        }
    for (uint32_t k = 0; k < MEMBERS; k++)
        plugin->runtime->StreamDestroy(streams[k]);
    plugin->runtime->Free(memory);
    fake_cuda_complaints(complaints, sizeof complaints);
    CU_ASSERT_STRING_EQUAL(complaints, "");
    fake_cuda_close();
}

/* more ranks than one device's sums read at once */
static void test_large_group(void)
{
    enum { MANY = 65 };
    uint32_t members[MANY];
    for (uint32_t k = 0; k < MANY; k++)
        members[k] = k;
    const struct channel list[] = {{2, members}, {MANY, members}};
    const struct channels channels = {.n = 2, .nranks = MANY, .list = (struct channel *)(uintptr_t)list};
    const struct meet_setup setup = {.channels = &channels};
    struct meet *m = NULL;
    struct error error = {""};
    CU_ASSERT_EQUAL(meet_d2d()->open(&m, &setup, &error), STATUS_MISMATCH);
    CU_ASSERT_STRING_EQUAL(error.text, "a group of 65 ranks is too large for one device, at most 64 can meet");
}

void suite_device(void);
void suite_device(void)
{
    CU_pSuite s = CU_add_suite("device", NULL, NULL);
    CU_add_test(s, "memory: places and names", test_memory);
    CU_add_test(s, "launches of several instructions", test_launches);
    CU_add_test(s, "a device in words", test_words);
    CU_add_test(s, "meetings on one device", test_meetings);
    CU_add_test(s, "a group too large for one device", test_large_group);
}
