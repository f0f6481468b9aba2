/* parallel_each() and parallel_together(): every index once, on many threads, on one core, and where no thread can be made. */

#include "compiler/support/parallel.h"
#include "compiler/support/vec.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST = 1000 };
struct tally {
    atomic_uint calls[MOST];
    pthread_t by[MOST];
};

static void count(void *context, uint32_t i)
{
    struct tally *t = context;
    atomic_fetch_add(&t->calls[i], 1);
    t->by[i] = pthread_self();
}

/* Returns on how many of the n indexes the calling thread itself worked. */
static uint32_t run(uint32_t n)
{
    struct tally *t = calloc(1, sizeof *t);
    uint32_t own = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    parallel_each(n, count, t);
    for (uint32_t i = 0; i < MOST; i++) {
        CU_ASSERT_EQUAL(t->calls[i], i < n);
        own += i < n && pthread_equal(t->by[i], pthread_self());
    }
    free(t);
    return own;
}

static void test_each(void)
{
    static const uint32_t sizes[] = {0, 1, 2, 3, 16, 17, MOST};
    for (size_t k = 0; k < ARRAY_LEN(sizes); k++)
        for (int again = 0; again < 20; again++)
            run(sizes[k]);
}

/* ---- all at the same time ---- */

struct meeting {
    atomic_uint there, calls[MOST];
};

/* Returns only when all are there, so one thread alone could not do it. */
static void meet(void *context, uint32_t i, uint32_t n)
{
    struct meeting *m = context;
    atomic_fetch_add(&m->calls[i], 1);
    atomic_fetch_add(&m->there, 1);
    while (atomic_load(&m->there) < n)
        sched_yield();
}

static uint32_t meet_all(uint32_t most)
{
    struct meeting *m = calloc(1, sizeof *m);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    uint32_t n = parallel_together(most, meet, m);
    for (uint32_t i = 0; i < MOST; i++)
        CU_ASSERT_EQUAL(m->calls[i], i < n);
    free(m);
    return n;
}

static void test_together(void)
{
    for (uint32_t most = 1; most < 20; most++) {
        uint32_t n = meet_all(most);
        CU_ASSERT(n >= 1 && n <= most);
    }
}

static void test_one_core(void)
{
    cpu_set_t all, one;
    CU_ASSERT_EQUAL_FATAL(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t core = 0; !CPU_COUNT(&one); core++)
        if (CPU_ISSET(core, &all))
            CPU_SET(core, &one);
    CU_ASSERT_EQUAL_FATAL(sched_setaffinity(0, sizeof one, &one), 0);
    CU_ASSERT_EQUAL(run(MOST), MOST);
    CU_ASSERT_EQUAL(meet_all(8), 1);
    sched_setaffinity(0, sizeof all, &all);
}

static void *hold(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* Leaves the process no room for a thread's stack.  Runs first: stacks of threads that have ended, also of those that a
 * library had before this process was forked, are used again; what is left of these is taken here. */
static void test_no_threads(void)
{
    struct rlimit had, none;
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CU_ASSERT_FATAL(f && fscanf(f, "%lu", &pages) == 1);
    fclose(f);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_AS, &had), 0);
    none = had;
    none.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)1 << 20);
    if (pages >> 30 || setrlimit(RLIMIT_AS, &none)) { /* a sanitizer has mapped terabytes of its own */
        test_skip("address space cannot be limited");
        return;
    }
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t held[64];
    uint32_t nheld = 0;
    pthread_mutex_lock(&gate);
    while (nheld < ARRAY_LEN(held) && !pthread_create(&held[nheld], NULL, hold, &gate))
        nheld++;
    CU_ASSERT_EQUAL(run(MOST), MOST);
    CU_ASSERT_EQUAL(meet_all(8), 1);
    pthread_mutex_unlock(&gate);
    while (nheld)
        pthread_join(held[--nheld], NULL);
    setrlimit(RLIMIT_AS, &had);
}

void suite_parallel(void);
void suite_parallel(void)
{
    CU_pSuite s = CU_add_suite("parallel", NULL, NULL);
    CU_add_test(s, "where no thread can be made", test_no_threads);
    CU_add_test(s, "every index once", test_each);
    CU_add_test(s, "all at the same time", test_together);
    CU_add_test(s, "on one core", test_one_core);
}
