/* The calling thread works, too, so where no further thread can be had it does everything by itself. */

#include "compiler/support/parallel.h"

#ifdef __wasi__ /* which has no threads */

void parallel_each(uint32_t n, void (*each)(void *context, uint32_t i), void *context)
{
    for (uint32_t i = 0; i < n; i++)
        each(context, i);
}

#else

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

struct team {
    void (*each)(void *context, uint32_t i);
    void *context;
    uint32_t n;
    atomic_uint next;
};

static void *work(void *arg)
{
    struct team *t = arg;
    for (uint32_t i; (i = atomic_fetch_add(&t->next, 1)) < t->n;)
        t->each(t->context, i);
    return NULL;
}

static uint32_t count_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : (uint32_t)CPU_COUNT(&set);
}

void parallel_each(uint32_t n, void (*each)(void *context, uint32_t i), void *context)
{
    enum { MOST_HELPERS = 15 };
    pthread_t helper[MOST_HELPERS];
    struct team t = {.each = each, .context = context, .n = n};
    uint32_t helpers = 0, cores = n > 1 ? count_cores() : 1;
    while (helpers < MOST_HELPERS && helpers + 1 < n && helpers + 1 < cores &&
           !pthread_create(&helper[helpers], NULL, work, &t))
        helpers++;
    work(&t);
    while (helpers)
        pthread_join(helper[--helpers], NULL);
}

#endif
