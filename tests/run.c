/* Entry of all tests: every suite of suites.def, or those whose name contains argv[1], or where that is =NAME
 * the one suite of that name.  Where there are several, each runs in a process of its own, LLMC_JOBS of them at a
 * time, and what it prints comes out once it has ended: a suite that crashes is a failure, and the others go on.
 * Behind them stands what the longest took: seconds of a clock, and on cores with all processes waited for; and what
 * failed, once more, each test with its first failed assertion, since the tail of a log is what is read first.
 * The last line counts tests, not assertions: "N passed, N failed", and ", N skipped" behind it where there are
 * such.  Exit 1 on any failure, and where no test ran. */

#include "runtime/device.h"
#include "tests/skip.h"

#include <CUnit/Basic.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SUITE(name) void suite_##name(void);
#include "tests/suites.def"
#undef SUITE

static const struct {
    const char *name;
    void (*add)(void);
} suites[] = {
#define SUITE(name) {#name, suite_##name},
#include "tests/suites.def"
#undef SUITE
};
enum { NSUITES = sizeof suites / sizeof *suites };

/* ---- tests that were skipped ---- */

enum { MOST_SKIPS = 1024 };
static CU_pTest skipped[MOST_SKIPS];
static unsigned nskipped;

void test_skip(const char *format, ...)
{
    va_list ap;
    printf("\n    skipped: ");
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    printf(" ");
    if ((!nskipped || skipped[nskipped - 1] != CU_get_current_test()) && nskipped < MOST_SKIPS)
        skipped[nskipped++] = CU_get_current_test();
}

static unsigned count_skipped(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < nskipped; i++) {
        const struct CU_FailureRecord *f = CU_get_failure_list();
        while (f && f->pTest != skipped[i])
            f = f->pNext;
        n += !f;
    }
    return n;
}

/* ---- one suite ---- */

struct counts {
    unsigned passed, failed, skipped;
    bool ended; /* and all of its tests have run */
};

/* "failed: SUITE, TEST, at FILE:LINE: CONDITION" of each failed test, to be printed once more behind all suites. */
static void note_failures(unsigned suite, FILE *notes)
{
    CU_pTest last = NULL;
    for (const struct CU_FailureRecord *f = CU_get_failure_list(); f; f = f->pNext) {
        if (!f->pTest)
            fprintf(notes, "failed: %s: %.200s\n", suites[suite].name, f->strCondition);
        else if (f->pTest != last)
            fprintf(notes, "failed: %s, %s, at %s:%u: %.200s\n", suites[suite].name, f->pTest->pName, f->strFileName,
                    f->uiLineNumber, f->strCondition);
        last = f->pTest;
    }
    fflush(notes);
}

static struct counts run_suite(unsigned suite, FILE *notes)
{
    if (CU_initialize_registry() != CUE_SUCCESS)
        return (struct counts){0};
    suites[suite].add();
    setvbuf(stdout, NULL, _IOLBF, 0); /* a test that crashes is the last one named */
    CU_basic_set_mode(CU_BRM_VERBOSE);
    bool ended = CU_basic_run_tests() == CUE_SUCCESS;
    struct counts c = {.failed = CU_get_number_of_tests_failed(), .skipped = count_skipped(), .ended = ended};
    c.passed = CU_get_number_of_tests_run() - c.failed - c.skipped;
    note_failures(suite, notes);
    CU_cleanup_registry();
    return c;
}

/* ---- several ---- */

struct child {
    pid_t pid; /* 0: the place is free */
    unsigned suite;
    FILE *output;
    double began_s;
};

struct took {
    double wall_s, cores_s; /* 0: did not run */
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cores_s(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) * 1e-6;
}

/* The suites that held cores longest, and the sums of all. */
static void print_times(const struct took *took)
{
    enum { LONGEST = 10 };
    double wall = 0, cores = 0;
    bool printed[NSUITES] = {false};
    for (unsigned i = 0; i < NSUITES; i++) {
        wall += took[i].wall_s;
        cores += took[i].cores_s;
    }
    printf("\n%-24s %10s %10s\n", "longest suites", "seconds", "on cores");
    for (unsigned k = 0; k < LONGEST; k++) {
        unsigned most = 0;
        for (unsigned i = 1; i < NSUITES; i++)
            if (printed[most] || (!printed[i] && took[i].cores_s > took[most].cores_s))
                most = i;
        if (printed[most] || took[most].wall_s <= 0)
            break;
        printed[most] = true;
        printf("%-24s %10.1f %10.1f\n", suites[most].name, took[most].wall_s, took[most].cores_s);
    }
    printf("%-24s %10.1f %10.1f\n\n", "all suites", wall, cores);
}

/* Begins a suite; its counts go to memory that both processes have. */
static void start(struct child *x, unsigned suite, struct counts *out, FILE *notes)
{
    *x = (struct child){.suite = suite, .output = tmpfile(), .began_s = now_s()};
    fflush(stdout);
    x->pid = x->output ? fork() : -1;
    if (x->pid < 0) {
        perror("tests/run");
        exit(1);
    }
    if (x->pid)
        return;
    dup2(fileno(x->output), STDOUT_FILENO);
    dup2(fileno(x->output), STDERR_FILENO);
    *out = run_suite(suite, notes);
    exit(0); /* and not _exit(): a sanitizer looks for leaks as the process ends */
}

/* All that a suite printed but CUnit's banner and summary; whole: where its process failed behind them, these, too. */
static void print_output(FILE *output, bool whole)
{
    char line[4096];
    bool body = false;
    rewind(output);
    while (fgets(line, sizeof line, output)) {
        body |= whole || !strncmp(line, "Suite: ", 7);
        if (!whole && !strncmp(line, "Run Summary:", 12))
            break;
        if (body && *line != '\n')
            fputs(line, stdout);
    }
    fclose(output);
}

static void finish(struct child *x, int status, struct counts *c, struct counts *all, FILE *notes)
{
    bool fails = !c->ended || status;
    print_output(x->output, fails);
    if (fails) {
        const char *how = WIFSIGNALED(status) ? "signal" : "exit status";
        int which = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
        printf("\nsuite %s did not end well: %s %d\n", suites[x->suite].name, how, which);
        fprintf(notes, "failed: %s did not end well: %s %d\n", suites[x->suite].name, how, which);
        fflush(notes); /* before the next fork, which would write it again */
        c->failed += !c->failed;
    }
    fflush(stdout);
    all->passed += c->passed;
    all->failed += c->failed;
    all->skipped += c->skipped;
    x->pid = 0;
}

static struct child *child_of(struct child *at, unsigned jobs, pid_t pid)
{
    for (unsigned k = 0; k < jobs; k++)
        if (at[k].pid == pid)
            return &at[k];
    return NULL;
}

static struct counts run_all(const bool *wanted, unsigned jobs, FILE *notes)
{
    struct counts all = {.ended = true};
    struct child *children = calloc(jobs, sizeof *children);
    struct took took[NSUITES] = {{0}};
    struct counts *of = mmap(NULL, sizeof *of * NSUITES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!children || of == MAP_FAILED)
        return (struct counts){0};
    unsigned running = 0;
    for (unsigned next = 0; next < NSUITES || running;) {
        struct child *place = running < jobs ? child_of(children, jobs, 0) : NULL;
        if (next < NSUITES && place) {
            if (wanted[next])
                start(place, next, &of[next], notes);
            running += wanted[next++];
            continue;
        }
        int status;
        struct rusage used;
        struct child *x = child_of(children, jobs, wait4(-1, &status, 0, &used));
        if (!x)
            continue;
        took[x->suite] = (struct took){now_s() - x->began_s, cores_s(&used)};
        finish(x, status, &of[x->suite], &all, notes);
        running--;
    }
    print_times(took);
    free(children);
    munmap(of, sizeof *of * NSUITES);
    return all;
}

static void print_notes(FILE *notes)
{
    char line[1024];
    rewind(notes);
    while (fgets(line, sizeof line, notes))
        fputs(line, stdout);
}

static unsigned find_wanted(const char *what, bool *wanted)
{
    unsigned n = 0;
    for (unsigned i = 0; i < NSUITES; i++) {
        wanted[i] = *what == '=' ? !strcmp(suites[i].name, what + 1) : strstr(suites[i].name, what) != NULL;
        n += wanted[i];
    }
    return n;
}

int main(int argc, char **argv)
{
    device_cpu_tune(argv); /* as llmrun does: products within this process are its own, bit by bit */
    bool wanted[NSUITES];
    const char *jobs = getenv("LLMC_JOBS");
    long njobs = jobs ? strtol(jobs, NULL, 10) : 1;
    unsigned n = find_wanted(argc > 1 ? argv[1] : "", wanted), first = 0;
    while (n && !wanted[first])
        first++;
    FILE *notes = tmpfile();
    if (!notes) {
        perror("tests/run");
        return 1;
    }
    struct counts c = {0};
    if (n == 1)
        c = run_suite(first, notes);
    else if (n)
        c = run_all(wanted, njobs < 1 ? 1 : njobs > NSUITES ? NSUITES : (unsigned)njobs, notes);
    print_notes(notes);
    printf("%u passed, %u failed", c.passed, c.failed);
    if (c.skipped)
        printf(", %u skipped", c.skipped);
    printf("\n");
    return c.failed || !(c.passed + c.skipped) || !c.ended;
}
