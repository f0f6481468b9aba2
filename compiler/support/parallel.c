/* The calling thread works, too, so where no further thread can be had it does everything by itself. */

#include "compiler/support/parallel.h"

#ifdef __wasi__ /* which has no threads */

void parallel_each(uint32_t n, void (*each)(void *context, uint32_t i), void *context)
{
    for (uint32_t i = 0; i < n; i++)
        each(context, i);
}

uint32_t parallel_together(uint32_t most, void (*each)(void *context, uint32_t i, uint32_t n), void *context)
{
    (void)most;
    each(context, 0, 1);
    return 1;
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

enum { MOST_HELPERS = 15 };

static uint32_t count_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : (uint32_t)CPU_COUNT(&set);
}

void parallel_each(uint32_t n, void (*each)(void *context, uint32_t i), void *context)
{
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

/* ---- all at the same time ---- */

struct ensemble {
    void (*each)(void *context, uint32_t i, uint32_t n);
    void *context;
    pthread_mutex_t gate; /* shut until it is known how many there are */
    uint32_t n;
};
struct player {
    struct ensemble *ensemble;
    uint32_t index;
};

static void *play(void *arg)
{
    const struct player *p = arg;
    struct ensemble *e = p->ensemble;
    pthread_mutex_lock(&e->gate);
    pthread_mutex_unlock(&e->gate);
    e->each(e->context, p->index, e->n);
    return NULL;
}

uint32_t parallel_together(uint32_t most, void (*each)(void *context, uint32_t i, uint32_t n), void *context)
{
    pthread_t thread[MOST_HELPERS];
    struct player player[MOST_HELPERS];
    struct ensemble e = {each, context, PTHREAD_MUTEX_INITIALIZER, 1};
    uint32_t cores = count_cores();
    pthread_mutex_lock(&e.gate);
    while (e.n <= MOST_HELPERS && e.n < most && e.n < cores) {
        player[e.n - 1] = (struct player){&e, e.n};
        if (pthread_create(&thread[e.n - 1], NULL, play, &player[e.n - 1]))
            break;
        e.n++;
    }
    pthread_mutex_unlock(&e.gate);
    each(context, 0, e.n);
    for (uint32_t i = 1; i < e.n; i++)
        pthread_join(thread[i - 1], NULL);
    return e.n;
}

#endif
