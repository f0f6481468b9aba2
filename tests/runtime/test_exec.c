/* The executor: random programs over all queues give the same bits in order and in any adversarial order, a
 * missing wait shows up, and what goes wrong ends with a report. */

#include "runtime/allocations.h"
#include "runtime/exec_play.h"
#include "tests/e2e/e2e.h"
#include "tests/runtime/many.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

enum { BUFFERS = 5, LENGTH = 24 };
struct step { /* what an instruction does, for the reference */
    enum op op;
    uint32_t y, a, b;
    int part;
};

static void append(struct many *m, const struct step *s, uint64_t *random)
{
    static const enum queue any[] = {QUEUE_TP, QUEUE_DP, QUEUE_COMPUTE};
    enum queue q = isa_info(s->op)->queue == QUEUE_ANY ? any[draw(random, 3)] : isa_info(s->op)->queue;
    struct many_operand y = {s->y, -1}, a = {s->a, -1}, b = {s->b, -1};
    struct many_operand part_y = {s->y, s->part}, part_a = {s->a, s->part};
    if (s->op == OP_ADD) {
        many_insn(m, 0, s->op, q, (struct many_operand[]){y, a, b}, 3);
    } else if (s->op == OP_ALL_REDUCE) {
        many_insn(m, 0, s->op, q, &y, 1);
    } else if (s->op == OP_BROADCAST) {
        uint32_t i = many_insn(m, 0, s->op, q, &y, 1);
        m->program[0]->attrs[m->program[0]->insns[i].attr + ATTR(BROADCAST, root)].u.i =
            (int64_t)s->b % m->nranks;
    } else if (s->op == OP_ALL_GATHER) {
        many_insn(m, 0, s->op, q, (struct many_operand[]){y, part_a}, 2);
    } else if (s->op == OP_REDUCE_SCATTER) {
        many_insn(m, 0, s->op, q, (struct many_operand[]){part_y, a}, 2);
    } else if (s->op == OP_ALL_TO_ALL) {
        many_insn(m, 0, s->op, q, (struct many_operand[]){y, a}, 2);
    } else { /* the ring: send a to the next rank, receive y from the one before */
        many_insn(m, 0, OP_SEND, QUEUE_SEND, &a, 1);
        many_insn(m, 0, OP_RECV, QUEUE_RECV, &y, 1);
    }
}

static void make_steps(struct step *steps, uint32_t nranks, uint64_t *random)
{
    static const enum op ops[] = {OP_ADD,        OP_ADD,        OP_ALL_REDUCE,
                                  OP_BROADCAST,  OP_ALL_GATHER, OP_REDUCE_SCATTER,
                                  OP_ALL_TO_ALL, OP_SEND};
    for (uint32_t i = 0; i < LENGTH; i++) {
        struct step *s = &steps[i];
        s->op = ops[draw(random, sizeof ops / sizeof *ops)];
        s->y = draw(random, BUFFERS);
        s->a = (s->y + 1 + draw(random, BUFFERS - 1)) % BUFFERS;
        s->b = draw(random, BUFFERS);
        s->part = (int)draw(random, nranks);
    }
}

typedef float vectors[MOST_MANY][BUFFERS][MOST_MANY * PART];

/* one step on all ranks at once, members in order */
static void reference(vectors v, const struct step *s, uint32_t n)
{
    static vectors old;
    uint32_t all = n * PART, at = (uint32_t)s->part * PART;
    memcpy(old, v, sizeof old);
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t e = 0; e < all; e++) {
            float *y = v[r][s->y], sum = 0;
            for (uint32_t m = 0; m < n; m++) {
                bool scatter = s->op == OP_REDUCE_SCATTER;
                float x = scatter ? old[m][s->a][r * PART + e % PART] : old[m][s->y][e];
                sum = m ? sum + x : x;
            }
            if (s->op == OP_ADD)
                y[e] = old[r][s->a][e] + old[r][s->b][e];
            else if (s->op == OP_ALL_REDUCE)
                y[e] = sum;
            else if (s->op == OP_BROADCAST)
                y[e] = old[s->b % n][s->y][e];
            else if (s->op == OP_ALL_GATHER)
                y[e] = old[e / PART][s->a][at + e % PART];
            else if (s->op == OP_REDUCE_SCATTER && e / PART == (uint32_t)s->part)
                y[e] = sum;
            else if (s->op == OP_ALL_TO_ALL)
                y[e] = old[e / PART][s->a][r * PART + e % PART];
            else if (s->op == OP_SEND)
                y[e] = old[(r + n - 1) % n][s->a][e];
        }
}

static void fill(vectors v, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t b = 0; b < BUFFERS; b++)
            for (uint32_t e = 0; e < n * PART; e++)
                v[r][b][e] = (float)(r + 1) * 0.3f + (float)b * 0.07f + (float)e * 0.001f;
}

/* runs the program under a seed; do all vectors equal `want`? */
static bool run_equals(struct many *m, uint64_t seed, vectors start, vectors want)
{
    m->seed = seed;
    bool fine = many_run(m, 0) == STATUS_OK;
    for (uint32_t r = 0; r < m->nranks; r++)
        for (uint32_t b = 0; b < BUFFERS; b++)
            memcpy(many_vector(m, r, b), start[r][b], m->nranks * PART * sizeof(float));
    /* a fresh transport each time: its state lives in shared memory and counts meetings */
    memset(m->world.transport, 0, transport_shared_bytes(m->channels.list, m->channels.n));
    fine = fine && many_run(m, 1) == STATUS_OK;
    for (uint32_t r = 0; r < m->nranks && fine; r++)
        for (uint32_t b = 0; b < BUFFERS; b++)
            fine = fine && memcmp(many_vector(m, r, b), want[r][b], m->nranks * PART * sizeof(float)) == 0;
    return fine;
}

static void test_random_programs(void)
{
    static const uint32_t sizes[] = {1, 2, 3, 8};
    static vectors start, want;
    uint64_t random = 7;
    for (uint32_t round = 0; round < 12; round++) {
        struct many m;
        struct step steps[LENGTH];
        uint32_t n = sizes[round % 4];
        many_open(&m, n, 1, BUFFERS);
        make_steps(steps, n, &random);
        fill(start, n);
        memcpy(want, start, sizeof want);
        for (uint32_t i = 0; i < LENGTH; i++) {
            if (n == 1 && steps[i].op == OP_SEND) /* nobody to send to */
                steps[i].op = OP_ADD;
            append(&m, &steps[i], &random);
            reference(want, &steps[i], n);
        }
        for (uint64_t seed = 0; seed < 4; seed++)
            CU_ASSERT(run_equals(&m, seed, start, want));
        many_close(&m);
    }
}

/* several runs in a row keep meetings apart, also when ranks are a step ahead of each other */
static void test_many_runs(void)
{
    struct many m;
    many_open(&m, 4, 1, 2);
    many_insn(&m, 0, OP_ALL_REDUCE, QUEUE_TP, &(struct many_operand){0, -1}, 1);
    many_insn(&m, 0, OP_SEND, QUEUE_SEND, &(struct many_operand){0, -1}, 1);
    many_insn(&m, 0, OP_RECV, QUEUE_RECV, &(struct many_operand){1, -1}, 1);
    many_run(&m, 0);
    for (uint32_t r = 0; r < 4; r++)
        for (uint32_t e = 0; e < 4 * PART; e++)
            many_vector(&m, r, 0)[e] = r == 2;
    CU_ASSERT(many_run(&m, 9) == STATUS_OK);
    CU_ASSERT(many_vector(&m, 3, 0)[5] == 65536); /* 1, then times 4 in each further run */
    CU_ASSERT(many_vector(&m, 0, 1)[159] == 65536);
    many_close(&m);
}

/* take one wait away: some seed must then give another result */
static void test_missing_wait(void)
{
    static vectors start, want;
    uint32_t found = 0, tried = 0;
    for (uint32_t w = 0; w < 4; w++) {
        const struct step steps[] = {{OP_ADD, 0, 1, 2, 0},
                                     {OP_ALL_REDUCE, 0, 0, 0, 0},
                                     {OP_ADD, 3, 0, 1, 0},
                                     {OP_SEND, 4, 3, 0, 0},
                                     {OP_ADD, 1, 4, 3, 0}};
        struct many m;
        uint64_t random = 2; /* puts ALL_REDUCE on a queue of its own */
        many_open(&m, 3, 1, BUFFERS);
        fill(start, 3);
        memcpy(want, start, sizeof want);
        for (uint32_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            append(&m, &steps[i], &random);
            reference(want, &steps[i], 3);
        }
        struct program *p = m.program[0];
        if (w < p->nwaits) {
            for (uint32_t i = 0, at = w; i < p->ninsns; i++)
                if (at >= p->insns[i].wait && at < p->insns[i].wait + p->insns[i].nwaits) {
                    p->waits[at] = p->waits[p->insns[i].wait + --p->insns[i].nwaits];
                    break;
                }
            tried++;
            for (uint64_t seed = 1; seed < 40; seed++)
                if (!run_equals(&m, seed, start, want)) {
                    found++;
                    break;
                }
        }
        many_close(&m);
    }
    CU_ASSERT(tried == 4);
    CU_ASSERT(found == tried);
}

static void silence(struct many *m, uint32_t rank)
{
    (void)m;
    (void)rank;
    if (!freopen("/dev/null", "w", stderr))
        _exit(1);
}

static void test_watchdog(void)
{
    struct many m;
    many_open(&m, 2, 2, 1); /* role 1 never comes */
    many_insn(&m, 0, OP_ALL_REDUCE, QUEUE_TP, &(struct many_operand){0, -1}, 1);
    m.watchdog_s = 0.3;
    m.before = silence;
    CU_ASSERT(many_run(&m, 1) == STATUS_WORLD);
    CU_ASSERT_STRING_EQUAL(m.world.control->message,
                           "no rank has made progress for 0 s: all wait for rank 1, which is at its end; see the list of "
                           "what each waits for");
    many_close(&m);
}

/* a run longer than the watchdog's time, of which every instruction is shorter */
static void test_progress(void)
{
    enum { TIMES = 10 };
    int64_t times[TIMES];
    const int64_t *const pace[] = {times};
    const struct many_operand v[] = {{0, -1}, {1, -1}};
    struct many m;
    many_open(&m, 1, 1, 2);
    for (uint32_t i = 0; i < TIMES; i++) {
        many_insn(&m, 0, OP_ADD, QUEUE_COMPUTE, v, 2);
        times[i] = 80000000;
    }
    m.watchdog_s = 0.6;
    m.pace_ns = pace;
    m.before = silence;
    CU_ASSERT_EQUAL(many_run(&m, 1), STATUS_OK);
    CU_ASSERT_STRING_EQUAL(m.world.control->message, "");
    many_close(&m);
}

#define ADD_0 "0 compute ADD y=%vector#0[2x40]f32 a=%vector#1[2x40]f32\n"
#define SUM_1 "1 tp ALL_REDUCE x=%vector#0[2x40]f32 group=@all#0 max=0 <compute:0\n"
#define SEND_2 "2 send SEND x=%vector#0[2x40]f32 peer=@next#1 <tp:0\n"
#define RECV_2 "2 recv RECV y=%vector#1[2x40]f32 peer=@before#2 <compute:0\n"
#define SUM_3 "3 tp ALL_REDUCE x=%vector#1[2x40]f32 group=@all#0 max=0 <"
#define RANK "rank 0: stepping, step 7\n"
#define OTHER "rank 1: stepping, step 7\n"
#define WAITS "      waits for its own "

/* what is told of two ranks, the first of which sends to the second, wherever their queues are */
static const struct {
    enum rank_state state[2];
    uint32_t compute[2], tp[2], pair[2], running[2]; /* pair: the first one's send queue, the second one's receive queue */
    const char *report;
} reports[] = {
    {{RANK_STEPPING, RANK_STEPPING}, {NONE, 0}, {1, 1}, {2, 2}, {NONE, 0},
     RANK "   tp is at: " SUM_1 "      meets rank 1, which is there or waits before it\n"
          "   send is at: " SEND_2 WAITS SUM_1 "      meets rank 1, which is there or waits before it\n"
     OTHER "   compute is inside: " ADD_0
           "   tp is at: " SUM_1 WAITS ADD_0 "      meets rank 0, which is there or waits before it\n"
           "   recv is at: " RECV_2 WAITS ADD_0 "      meets rank 0, which is there or waits before it\n"},
    {{RANK_STEPPING, RANK_STEPPING}, {NONE, NONE}, {3, 1}, {NONE, 2}, {NONE, NONE},
     RANK "   tp is at: " SUM_3 "compute:0\n      meets rank 1, which has not come to it\n"
     OTHER "   tp is at: " SUM_1 "      meets rank 0, which has left it\n"
           "   recv is at: " RECV_2 "      meets rank 0, which has left it\n"},
    {{RANK_STEPPING, RANK_SAVING}, {NONE, NONE}, {NONE, 3}, {2, NONE}, {2, NONE},
     RANK "   send is inside: " SEND_2 "      meets rank 1, which has left it\n"
     "rank 1: saving, step 7\n"},
    {{RANK_STARTING, RANK_ENDED}, {0, 0}, {1, 1}, {2, 2}, {NONE, 0}, "rank 0: starting, step 7\nrank 1: ended, step 7\n"},
};

static void test_report(void)
{
    struct many m;
    many_open(&m, 2, 2, 2);
    const struct many_operand v[] = {{0, -1}, {1, -1}};
    for (uint32_t role = 0; role < 2; role++) {
        many_insn(&m, role, OP_ADD, QUEUE_COMPUTE, v, 2);
        many_insn(&m, role, OP_ALL_REDUCE, QUEUE_TP, v, 1);
        many_insn(&m, role, role ? OP_RECV : OP_SEND, role ? QUEUE_RECV : QUEUE_SEND, role ? v + 1 : v, 1);
        many_insn(&m, role, OP_ALL_REDUCE, QUEUE_TP, v + 1, 1);
    }
    CU_ASSERT_EQUAL_FATAL(many_run(&m, 0), STATUS_OK);
    const struct exec e = {.s = {.world = &m.world,
                                 .channels = &m.channels,
                                 .ranks = m.ranks,
                                 .programs = {(const struct program *const *)m.program, NULL}}};
    for (size_t i = 0; i < sizeof reports / sizeof *reports; i++) {
        char *text = NULL;
        size_t size = 0;
        for (uint32_t r = 0; r < 2; r++) {
            struct world_rank *face = &m.world.ranks[r];
            for (uint32_t q = 0; q < NQUEUES; q++)
                face->head[q] = NONE;
            face->pid = getpid();
            face->step = 6;
            face->state = reports[i].state[r];
            face->running = reports[i].running[r];
            face->head[QUEUE_COMPUTE] = reports[i].compute[r];
            face->head[QUEUE_TP] = reports[i].tp[r];
            face->head[r ? QUEUE_RECV : QUEUE_SEND] = reports[i].pair[r];
        }
        FILE *out = open_memstream(&text, &size);
        CU_ASSERT_PTR_NOT_NULL_FATAL(out);
        exec_report(&e, out);
        fclose(out);
        CU_ASSERT_STRING_EQUAL(text, reports[i].report);
        if (strcmp(text, reports[i].report))
            printf("\n%s", text);
        free(text);
    }
    many_close(&m);
}

static void test_mismatch(void)
{
    struct many m;
    many_open(&m, 2, 2, 2);
    many_insn(&m, 0, OP_ALL_REDUCE, QUEUE_TP, &(struct many_operand){0, -1}, 1);
    many_insn(&m, 1, OP_ALL_REDUCE, QUEUE_TP, &(struct many_operand){0, 0}, 1);
    CU_ASSERT(many_run(&m, 1) == STATUS_BUG);
    CU_ASSERT_STRING_EQUAL(
        m.world.control->message,
        "ranks 0 and 1 meet with different operations: ALL_REDUCE f32 2x40 and ALL_REDUCE f32 1x40 "
        "(argument 0, 0)");
    many_close(&m);
}

static void die(struct many *m, uint32_t rank)
{
    (void)m;
    if (rank == 1)
        kill(getpid(), SIGKILL);
}

static void test_death(void)
{
    struct many m;
    many_open(&m, 3, 1, 1);
    many_insn(&m, 0, OP_ALL_REDUCE, QUEUE_TP, &(struct many_operand){0, -1}, 1);
    m.before = die;
    CU_ASSERT(many_run(&m, 1) == STATUS_WORLD);
    CU_ASSERT_STRING_EQUAL(m.world.control->message, "rank 1 was killed by signal 9 (Killed)");
    CU_ASSERT(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD); /* nobody is left */
    many_close(&m);
}

static void test_refusals(void)
{
    struct many m;
    many_open(&m, 1, 1, 1);
    many_insn(&m, 0, OP_SEND, QUEUE_SEND, &(struct many_operand){0, -1}, 1);
    CU_ASSERT(many_run(&m, 1) == STATUS_INPUT);
    CU_ASSERT(strstr(m.world.control->message, "rank 0, instruction 0: a rank cannot send to itself: ") !=
              NULL);
    many_close(&m);
    many_open(&m, 2, 1, 1);
    uint32_t i = many_insn(&m, 0, OP_BROADCAST, QUEUE_TP, &(struct many_operand){0, -1}, 1);
    m.program[0]->attrs[m.program[0]->insns[i].attr + ATTR(BROADCAST, root)].u.i = 2;
    CU_ASSERT(many_run(&m, 1) == STATUS_INPUT);
    CU_ASSERT(strstr(m.world.control->message, "instruction 0: its root is no member of its group: ") !=
              NULL);
    many_close(&m);
}

/* ---- memory that ends ---- */

static uint32_t callocs_left; /* the last of so many calls of calloc() finds no memory; 0 = all do */

/* what the runtime's counting calloc() calls: glibc's, but for that one call */
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_calloc(size_t n, size_t bytes)
{
    static void *(*real)(size_t, size_t);
    static bool looked;
    if (callocs_left && !--callocs_left)
        return NULL;
    if (!looked) {
        looked = true; /* whatever looking needs itself comes from below */
        *(void **)&real = dlsym(RTLD_NEXT, "__libc_calloc");
    }
    if (real)
        return real(n, bytes);
    void *p = bytes && n > SIZE_MAX / bytes ? NULL : malloc(n * bytes);
    return p ? memset(p, 0, n * bytes) : NULL;
}

static uint32_t failing_call;
static void end_memory(struct many *m, uint32_t rank)
{
    (void)m;
    (void)rank;
    callocs_left = failing_call;
}

/* whichever of an executor's arrays there is no memory for: the rank says so and ends, it does not crash */
static void test_memory_ends(void)
{
    enum { ARRAYS = 9 }; /* itself, what met, and seven lists of the program's */
    if (!allocations_count()) {
        test_skip("a sanitizer has the allocator");
        return;
    }
    for (failing_call = 1; failing_call <= ARRAYS + 1; failing_call++) {
        struct many m;
        bool late = failing_call > ARRAYS;
        many_open(&m, 1, 1, 1);
        many_insn(&m, 0, OP_ADD, QUEUE_COMPUTE, (struct many_operand[]){{0, -1}, {0, -1}, {0, -1}}, 3);
        m.before = late ? NULL : end_memory;
        CU_ASSERT_EQUAL(many_run(&m, 1), late ? STATUS_OK : STATUS_WORLD);
        CU_ASSERT_STRING_EQUAL(m.world.control->message, late ? "" : "out of memory while loading programs");
        many_close(&m);
    }
}

/* a process that may map the region and no more than this beside it; 0 = it said so */
static int open_without_memory(void)
{
    const struct world_sizes sizes = {.nranks = 1 << 23};
    const uint64_t page = 4096, region = sizes.nranks * (sizeof(struct world_rank) + page) + 16 * page;
    unsigned long long used = 0;
    struct world w;
    struct error error = {""};
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%llu", &used) != 1 || fclose(f))
        return 1;
    const struct rlimit limit = {used * page + region + (1 << 20), RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit))
        return 1;
    enum status st = world_open(&w, &sizes, NULL, NONE, 1, &error);
    world_close(&w);
    return st != STATUS_WORLD || strcmp(error.text, "out of memory for 8388608 arenas");
}

static void test_no_memory(void)
{
    int status = -1;
    if (strstr(e2e_build(), "san")) {
        test_skip("the address sanitizer ends a process whose memory is short");
        return;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(open_without_memory());
    CU_ASSERT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void suite_exec(void);
void suite_exec(void)
{
    CU_pSuite s = CU_add_suite("exec", NULL, NULL);
    CU_add_test(s, "random programs, any order: same bits", test_random_programs);
    CU_add_test(s, "runs in a row", test_many_runs);
    CU_add_test(s, "memory that ends", test_memory_ends);
    CU_add_test(s, "a missing wait shows", test_missing_wait);
    CU_add_test(s, "watchdog", test_watchdog);
    CU_add_test(s, "no watchdog where there is progress", test_progress);
    CU_add_test(s, "what every rank is at", test_report);
    CU_add_test(s, "different operations meet", test_mismatch);
    CU_add_test(s, "a rank dies", test_death);
    CU_add_test(s, "refused programs", test_refusals);
    CU_add_test(s, "no memory for a world", test_no_memory);
}
