/* What the executor costs: ns per instruction of programs whose kernels do next to nothing.
 *
 *   kernel alone    FILL of one element, called directly: what no executor could save
 *   one queue       the same, replayed from a program
 *   two queues      every instruction waits for the one before, on the other queue: FILL, then an ALL_REDUCE
 * among one two ranks       the same with two processes: each pair of instructions holds a meeting, so ranks
 * wait for each other least = the best of many runs; a busy machine shows in the median first. */

#include "runtime/device.h"
#include "tests/runtime/many.h"

#include "tests/runtime/many.c" /* benchmarks link no test */

#include <sys/wait.h>
#include <unistd.h>

enum { LENGTH = 4096, RUNS = 101 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double report(const char *name, double *ns, double base)
{
    qsort(ns, RUNS, sizeof *ns, ascending);
    printf("%-36s %9.1f %9.1f", name, ns[0], ns[RUNS / 2]);
    if (base > 0)
        printf("   %.1f ns over the kernel alone", ns[0] - base);
    printf("\n");
    fflush(stdout);
    return ns[0];
}

static double bench_kernel(void)
{
    static const char *const name = "kernel alone";
    float y[64], scratch[64];
    struct kernel_args k = {.scratch = scratch};
    double ns[RUNS];
    k.operand[OPND(FILL, y)] = (struct view){y, DTYPE_F32, false, 1, 1, 1};
    k.attr[ATTR(FILL, value)].f = 0;
    for (uint32_t r = 0; r < RUNS; r++) {
        int64_t start = world_now_ns();
        for (uint32_t i = 0; i < LENGTH; i++)
            device_cpu_run(OP_FILL, &k);
        ns[r] = (double)(world_now_ns() - start) / LENGTH;
    }
    return report(name, ns, 0);
}

/* LENGTH instructions on one element; meetings: every other one is an ALL_REDUCE */
static void make_program(struct program *p, bool meetings)
{
    for (uint32_t i = 0; i < LENGTH; i++) {
        bool meeting = meetings && i % 2;
        uint32_t insn = program_insn(p, meeting ? OP_ALL_REDUCE : OP_FILL);
        p->insns[insn].queue = meeting ? QUEUE_TP : QUEUE_COMPUTE;
        p->insns[insn].seq = i;
        if (meeting)
            p->attrs[p->insns[insn].attr].slot = 0;
        p->operands[p->insns[insn].operand] = (struct operand){.buffer = 0,
                                                               .mark = meeting ? MARK_UPDATE : MARK_WRITE,
                                                               .slot = UINT16_MAX,
                                                               .rows = 1,
                                                               .cols = 1,
                                                               .ld = 1};
        if (meetings && i)
            program_wait(p, insn, meeting ? QUEUE_COMPUTE : QUEUE_TP, (i - 1) / 2);
    }
}

static enum status replay(struct many *m, uint32_t rank, double *ns)
{
    struct exec *e;
    struct error error;
    struct exec_setup setup = {.player = &player_cpu,
                               .world = &m->world,
                               .channels = &m->channels,
                               .ranks = m->ranks,
                               .programs = {(const struct program *const *)m->program, NULL}};
    m->world.rank = rank;
    enum status st = exec_open(&e, &setup, &error);
    if (st != STATUS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return st;
    }
    for (uint32_t r = 0; r < RUNS && st == STATUS_OK; r++) {
        int64_t start = world_now_ns();
        st = exec_run(e, ROUTINE_TRAIN, NULL, NULL);
        ns[r] = (double)(world_now_ns() - start) / LENGTH;
    }
    exec_close(e);
    return st;
}

static int bench(const char *name, uint32_t nranks, bool meetings, double base)
{
    struct many m;
    double ns[RUNS] = {0};
    many_open(&m, nranks, 1, 1);
    make_program(m.program[0], meetings);
    enum status st = many_run(&m, 0);
    pid_t pid = st == STATUS_OK && nranks == 2 ? fork() : -1;
    if (pid == 0)
        _exit(replay(&m, 1, ns) != STATUS_OK);
    if (st == STATUS_OK)
        st = replay(&m, 0, ns);
    int status = 0;
    if (pid > 0)
        waitpid(pid, &status, 0);
    report(name, ns, base);
    many_close(&m);
    return st != STATUS_OK || status != 0;
}

int main(void)
{
    printf("%-36s %9s %9s   ns per instruction\n", "", "least", "median");
    double base = bench_kernel();
    return bench("one queue", 1, false, base) | bench("two queues, one rank", 1, true, base) |
           bench("two queues, two ranks that meet", 2, true, base);
}
