/* What goes wrong on a device ends with one report that names rank and instruction, and leaves nothing behind: refused
 * launches, kernels that break the device or never end, communicators that fail, hang or refuse.  And a plan that lacks a
 * wait is found out.  Last, llmrun's whole way, files included, on the fake device. */

#include "runtime/launch.h"
#include "runtime/run.h"
#include "tests/compiler/random_plan.h"
#include "tests/e2e/e2e.h"
#include "tests/runtime/trial.h"

#include <CUnit/CUnit.h>
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LATER_CALL = 60 };

struct bench {
    struct arena *arena;
    struct plan *plan;
};

static struct bench open_bench(const char *decision)
{
    struct bench b = {.arena = arena_new()};
    const char *why = "";
    struct job *job = text_job(b.arena, tiny_llama);
    struct topo *host = random_host(b.arena, 8);
    struct decision d = text_decision(b.arena, job, host, decision);
    b.plan = compile_decision(b.arena, job, host, &d, &(struct compile_options){0}, &why);
    if (!b.plan)
        printf("\n    %s: %s", decision, why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(b.plan);
    return b;
}

static void close_bench(struct bench *b)
{
    plan_close(b->plan);
    arena_free(b->arena);
}

/* one report of this form: it names a rank and an instruction, and says what */
static void expect(const struct trial *t, const char *says)
{
    bool named = strncmp(t->error, "rank ", 5) == 0 && strstr(t->error, ", instruction ") != NULL;
    if (t->status != STATUS_WORLD || !named || !strstr(t->error, says) || t->complaints[0])
        printf("\n    status %d, \"%s\" instead of \"%s\" | %s", (int)t->status, t->error, says, t->complaints);
    CU_ASSERT_EQUAL(t->status, STATUS_WORLD);
    CU_ASSERT(named);
    CU_ASSERT_PTR_NOT_NULL(strstr(t->error, says));
    CU_ASSERT_EQUAL(t->complaints[0], 0);
}

/* a silence or an error between ranks is blamed on an instruction by which they meet, on no other queue */
static void expect_meeting(const struct trial *t, const char *says)
{
    expect(t, says);
    CU_ASSERT_PTR_NULL(strstr(t->error, " compute "));
    if (strstr(t->error, " compute "))
        printf("\n    %s", t->error);
}

static struct trial faulty(const struct plan *p, enum trial_kind kind, enum replay replay)
{
    return (struct trial){.plan = p,
                          .kind = kind,
                          .replay = replay,
                          .cuda = {.seed = 3, .devices = 8, .memory_bytes = 1u << 28},
                          .nccl = {.seed = 3, .fail_rank = 1},
                          .watchdog_s = 20};
}

static void test_kernels(void)
{
    struct bench b = open_bench("tp=2 dp=2 zero=1 microbatch=1");
    for (enum replay replay = REPLAY_EAGER; replay <= REPLAY_GRAPH; replay++) {
        struct trial t = faulty(b.plan, TRIAL_D2D, replay);
        t.cuda.refuse_launch = 40;
        trial_run(&t);
        expect(&t, "invalid configuration argument");
        t = faulty(b.plan, TRIAL_D2D, replay);
        t.cuda.break_launch = 60;
        trial_run(&t);
        expect(&t, "illegal memory access");
        t = faulty(b.plan, TRIAL_D2D, replay);
        t.cuda.hang_launch = 60;
        t.watchdog_s = 0.5;
        trial_run(&t);
        expect(&t, "no rank has made progress for 0.5 s");
    }
    close_bench(&b);
}

/* a whole step that the driver refuses: there is no instruction to name, but the run ends */
static void test_graphs(void)
{
    struct bench b = open_bench("tp=2 dp=2 zero=1 microbatch=1");
    struct trial t = faulty(b.plan, TRIAL_D2D, REPLAY_GRAPH);
    t.cuda.refuse_graph = 2;
    trial_run(&t);
    CU_ASSERT_EQUAL(t.status, STATUS_WORLD);
    CU_ASSERT_STRING_EQUAL(t.error, "rank 0: invalid argument");
    CU_ASSERT_STRING_EQUAL(t.complaints, "");
    close_bench(&b);
}

/* A step is given up while a queue hangs that no other waits for yet: what lies on the device is not freed,
 * for that would wait for the queue. */
static void test_hanging_queue(void)
{
    struct bench b = open_bench("dp=2 zero=1 microbatch=1");
    struct trial t = faulty(b.plan, TRIAL_D2D, REPLAY_EAGER);
    trial_run(&t);
    CU_ASSERT_EQUAL_FATAL(t.status, STATUS_OK);
    uint64_t launch = t.launches + 1;
    do { /* the last of gradients, which are not clipped yet */
        t = faulty(b.plan, TRIAL_D2D, REPLAY_EAGER);
        t.cuda.refuse_launch = --launch;
        trial_run(&t);
        CU_ASSERT_EQUAL_FATAL(t.status, STATUS_WORLD);
    } while (!strstr(t.error, " dp REDUCE_SCATTER "));
    t = faulty(b.plan, TRIAL_D2D, REPLAY_EAGER);
    t.cuda.hang_launch = launch;
    t.cuda.refuse_launch = launch + 1;
    trial_run(&t);
    expect(&t, "invalid configuration argument");
    close_bench(&b);
}

/* where no communication can be to blame: the last instruction that the only rank is known to have come to */
static void test_alone(void)
{
    struct bench b = open_bench("microbatch=1");
    struct trial t = faulty(b.plan, TRIAL_D2D, REPLAY_EAGER);
    t.cuda.break_launch = 60;
    trial_run(&t);
    expect(&t, "an illegal memory access was encountered, in a kernel after this one at the latest: ");
    CU_ASSERT(strncmp(t.error, "rank 0, ", 8) == 0);
    close_bench(&b);
}

static void test_communicators(void)
{
    struct bench b = open_bench("tp=2 pp=2 dp=2 zero=1 microbatch=1");
    /* in the first step, and in a later one, which is a capture or has segments */
    for (uint32_t i = 0; i < 2 * 3; i++) {
        enum replay replay = (enum replay)(i / 2);
        uint64_t at = i % 2 ? LATER_CALL : 3;
        struct trial t = faulty(b.plan, TRIAL_NCCL, replay);
        t.nccl.fail_call = at;
        trial_run(&t);
        expect_meeting(&t, "remote process exited");
        t = faulty(b.plan, TRIAL_NCCL, replay);
        t.nccl.refuse_call = at;
        trial_run(&t);
        expect_meeting(&t, "unhandled system error");
        t = faulty(b.plan, TRIAL_NCCL, replay);
        t.nccl.hang_call = at;
        t.watchdog_s = 0.5;
        trial_run(&t);
        expect_meeting(&t, "no rank has made progress for 0.5 s");
    }
    close_bench(&b);
}

/* without any waits between queues the device's free order must show, and the report is about bits, not about a crash */
static void test_missing_waits(void)
{
    struct bench b = open_bench("tp=2 dp=2 zero=2 microbatch=1");
    struct trial cpu = {.plan = b.plan, .kind = TRIAL_CPU};
    uint32_t found = 0;
    trial_run(&cpu);
    CU_ASSERT_EQUAL(cpu.status, STATUS_OK);
    for (uint32_t role = 0; role < b.plan->nroles; role++)
        for (uint32_t i = 0; i < b.plan->train[role]->ninsns; i++)
            b.plan->train[role]->insns[i].nwaits = 0;
    for (uint64_t seed = 1; seed < 6; seed++) {
        struct trial t = faulty(b.plan, TRIAL_D2D, REPLAY_EAGER);
        t.cuda.seed = seed;
        trial_run(&t);
        found += !trial_equal(&cpu, &t);
    }
    CU_ASSERT(found > 0);
    close_bench(&b);
}

static enum status body(void *context, uint32_t rank)
{
    struct run mine = *(struct run *)context;
    mine.world.rank = rank;
    return run_rank(&mine, rank);
}

/* runs a plan's folder as llmrun does, on the fake device */
static enum status run_folder(const struct settings *o, struct error *error)
{
    const struct fake_setup fake = {.seed = 5, .devices = 1, .memory_bytes = 1u << 28};
    struct run r = {.o = *o, .plugin = fake_cuda_open(&fake)};
    enum status st = run_open(&r, error);
    if (st == STATUS_OK) {
        struct world_sizes sizes = run_sizes(&r);
        st = world_open(&r.world, &sizes, NULL, NONE, 1, error);
    }
    if (st == STATUS_OK) {
        st = launch_threads(&r.world, body, &r);
        error_set(error, st, "%s", r.world.control->message);
    }
    char complaints[512];
    fake_cuda_complaints(complaints, sizeof complaints);
    CU_ASSERT_STRING_EQUAL(complaints, "");
    run_close(&r);
    fake_cuda_close();
    return st;
}

static void write_tokens(const char *path)
{
    uint64_t state = 7;
    FILE *f = fopen(path, "wb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    for (int i = 0; i < 20000; i++) {
        uint16_t token = (uint16_t)random_below(&state, 29);
        fwrite(&token, sizeof token, 1, f);
    }
    fclose(f);
}

/* logs, gradients and weights equal those of CPU ranks byte by byte */
static void test_llmrun(void)
{
    struct bench b = open_bench("tp=2 pp=2 dp=2 zero=1 microbatch=1");
    char folder[E2E_PATH], path[8][E2E_PATH + 40];
    struct error error = {""};
    e2e_folder(folder, "gang-llmrun");
    static const char *const names[8] = {"plan", "tokens.bin", "cpu", "gpu", "cpu.grad", "gpu.grad", "gpu.jsonl", "gpu.trace"};
    for (int i = 0; i < 8; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
    write_tokens(path[1]);
    CU_ASSERT_EQUAL_FATAL(plan_write(b.plan, path[0], true, &error), STATUS_OK);
    char out[E2E_PATH + 40];
    snprintf(out, sizeof out, "%s/out", folder);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmrun '%s' --data '%s' --steps 4 --quiet --save '%s' --dump-gradients '%s'", e2e_build(),
                                path[0], path[1], path[2], path[4]),
                    0);
    for (int replay = 0; replay < 3; replay++) {
        struct settings o = {.dir = path[0], .data = path[1], .save = path[3], .gradients = path[5], .log = path[6],
                             .trace = path[7], .eval = path[1], .steps = 4, .watchdog_s = 20, .quiet = true, .cuda = true};
        o.replay = replay;
        enum status st = run_folder(&o, &error);
        if (st != STATUS_OK)
            printf("\n    %s", error.text);
        CU_ASSERT_EQUAL(st, STATUS_OK);
        char cpu[E2E_PATH + 80], gpu[E2E_PATH + 80];
        snprintf(cpu, sizeof cpu, "%s/model.safetensors", path[2]);
        snprintf(gpu, sizeof gpu, "%s/model.safetensors", path[3]);
        if (!e2e_same_bytes(cpu, gpu))
            printf("\n    replay %d: %s and %s differ", replay, cpu, gpu);
        CU_ASSERT(e2e_same_bytes(cpu, gpu));
        snprintf(cpu, sizeof cpu, "%s/gradients.safetensors", path[4]);
        snprintf(gpu, sizeof gpu, "%s/gradients.safetensors", path[5]);
        CU_ASSERT(e2e_same_bytes(cpu, gpu));
    }
    close_bench(&b);
}

static uint16_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CU_ASSERT_FATAL(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* in a process of its own, as `llmrun --rendezvous` goes on after its command line */
static int remote_rank(const struct settings *o, const struct cuda_plugin *plugin, const struct nccl_functions *nccl, uint32_t rank,
                       uint32_t nranks, uint16_t port)
{
    struct run r = {.o = *o, .plugin = plugin, .nccl = *nccl};
    const struct launch l = {.given = true, .rank = rank, .nranks = nranks};
    char complaints[512];
    struct error error = {""};
    enum status st = run_open(&r, &error);
    if (st == STATUS_OK)
        st = run_remote(&r, &l, "localhost", port, &error);
    fake_cuda_complaints(complaints, sizeof complaints);
    if (!complaints[0])
        fake_nccl_complaints(complaints, sizeof complaints);
    if (st != STATUS_OK || complaints[0])
        fprintf(stderr, "\n    rank %u: status %d, %s %s\n", rank, (int)st, error.text, complaints);
    run_close(&r);
    return st != STATUS_OK ? (int)st : complaints[0] != 0;
}

/* processes that share no memory but the fake devices', and meet by TCP: weights equal those of CPU ranks byte by byte */
static void test_rendezvous_run(void)
{
    struct bench b = open_bench("tp=2 dp=2 zero=1 microbatch=1");
    const uint32_t nranks = b.plan->ranks->nranks;
    const struct fake_setup fake = {.seed = 9, .devices = 8, .memory_bytes = 1u << 28};
    const struct fake_nccl_setup nccl = {.seed = 9};
    char folder[E2E_PATH], path[4][E2E_PATH + 40], cpu[E2E_PATH + 80], gpu[E2E_PATH + 80];
    struct error error = {""};
    static const char *const names[4] = {"plan", "tokens.bin", "cpu", "gpu"};
    e2e_folder(folder, "gang-rendezvous");
    for (int i = 0; i < 4; i++)
        snprintf(path[i], sizeof path[i], "%s/%s", folder, names[i]);
    write_tokens(path[1]);
    CU_ASSERT_EQUAL_FATAL(plan_write(b.plan, path[0], true, &error), STATUS_OK);
    snprintf(cpu, sizeof cpu, "%s/out", folder);
    CU_ASSERT_EQUAL(e2e_command(cpu, "%s/llmrun '%s' --data '%s' --steps 3 --quiet --save '%s'", e2e_build(), path[0], path[1], path[2]), 0);
    const struct settings o = {.dir = path[0], .data = path[1], .save = path[3], .steps = 3, .watchdog_s = 30, .quiet = true,
                               .cuda = true, .nccl = true, .replay = REPLAY_GRAPH};
    const struct cuda_plugin *plugin = fake_cuda_open(&fake);
    const struct nccl_functions *functions = fake_nccl_open(&nccl, nranks);
    uint16_t port = free_port();
    fflush(NULL);
    for (uint32_t rank = 0; rank < nranks; rank++)
        if (fork() == 0)
            _exit(remote_rank(&o, plugin, functions, rank, nranks, port));
    for (uint32_t rank = 0; rank < nranks; rank++) {
        int status = -1;
        CU_ASSERT(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    snprintf(cpu, sizeof cpu, "%s/model.safetensors", path[2]);
    snprintf(gpu, sizeof gpu, "%s/model.safetensors", path[3]);
    CU_ASSERT(e2e_same_bytes(cpu, gpu));
    fake_nccl_close();
    fake_cuda_close();
    close_bench(&b);
}

void suite_gang_faults(void);
void suite_gang_faults(void)
{
    CU_pSuite s = CU_add_suite("gang_faults", NULL, NULL);
    CU_add_test(s, "kernels that fail or hang", test_kernels);
    CU_add_test(s, "a graph that is refused", test_graphs);
    CU_add_test(s, "a queue that hangs", test_hanging_queue);
    CU_add_test(s, "a kernel that fails on the only rank", test_alone);
    CU_add_test(s, "communicators that fail, refuse or hang", test_communicators);
    CU_add_test(s, "missing waits show", test_missing_waits);
    CU_add_test(s, "llmrun on the fake device", test_llmrun);
    CU_add_test(s, "processes that meet by TCP", test_rendezvous_run);
}
