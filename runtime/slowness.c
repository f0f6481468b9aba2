/* A window is so many steps of every rank.  In each, the time of a kind of work on a rank is compared with the median
 * over ranks (the lower one of two), a rank's slowness is its time over what the medians would have given it, and that
 * is compared with the median of the other ranks' slowness: x = log of the ratio, 0 where the rank is as fast as they.
 * Any process is interrupted at times, so that x scatters: a rank is slow once the mean of x over recent windows, less
 * five standard errors, is above a limit.  A rank at half speed is found after three windows, one that is a third
 * slower after many. */

#include "runtime/slowness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 4, LEAST = 3 /* windows */, ERRORS = 5 };
static const int64_t WINDOW_NS = 250000000; /* at least */
/* a rank that shares its core with others takes its turns late without being slow */
static const double LIMIT = 1.2, LIMIT_SHARED = 1.4, LEAST_DEVIATION = 0.1, MEMORY = 0.97;

struct told {
    uint32_t steps;
    uint64_t ns[WORK_KINDS];
};
struct scatter { /* of x, older windows weigh less */
    double weight, mean, squares;
};
struct slowness {
    const struct world *w;
    const struct ranks *r;
    const struct work *work;
    double limit;
    int64_t began_ns;
    struct told *then, *now; /* by rank: at the window's start, and at its end */
    double *slow, *sorted;   /* by rank; room to sort so many */
    struct scatter *scatter; /* by rank */
    bool *said;
    double median[WORK_KINDS];
    char words[400];
};

enum status slowness_open(struct slowness **out, const struct world *w, const struct ranks *r, const struct work *work)
{
    struct slowness *s = calloc(1, sizeof *s);
    if (!s)
        return STATUS_WORLD;
    *out = s;
    s->w = w;
    s->r = r;
    s->work = work;
    s->limit = w->nranks > (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) ? LIMIT_SHARED : LIMIT;
    s->then = calloc(w->nranks, sizeof *s->then);
    s->now = calloc(w->nranks, sizeof *s->now);
    s->slow = calloc(w->nranks, sizeof *s->slow);
    s->sorted = calloc(w->nranks, sizeof *s->sorted);
    s->scatter = calloc(w->nranks, sizeof *s->scatter);
    s->said = calloc(w->nranks, sizeof *s->said);
    return s->then && s->now && s->slow && s->sorted && s->scatter && s->said ? STATUS_OK : STATUS_WORLD;
}

void slowness_close(struct slowness *s)
{
    if (!s)
        return;
    free(s->then);
    free(s->now);
    free(s->slow);
    free(s->sorted);
    free(s->scatter);
    free(s->said);
    free(s);
}

/* odd while the times are being written */
void slowness_tell(const struct world *w, uint32_t steps, const int64_t ns[WORK_KINDS])
{
    struct world_rank *face = &w->ranks[w->rank];
    atomic_store(&face->work_steps, 2 * steps - 1);
    for (uint32_t k = 0; k < WORK_KINDS; k++)
        atomic_store_explicit(&face->work_ns[k], (uint64_t)ns[k], memory_order_relaxed);
    atomic_store(&face->work_steps, 2 * steps);
}

/* false: not while it writes */
static bool hear(const struct world_rank *face, struct told *out)
{
    uint32_t before = atomic_load(&face->work_steps);
    for (uint32_t k = 0; k < WORK_KINDS; k++)
        out->ns[k] = atomic_load_explicit(&face->work_ns[k], memory_order_relaxed);
    atomic_thread_fence(memory_order_acquire);
    out->steps = before / 2;
    return before % 2 == 0 && atomic_load(&face->work_steps) == before;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values, uint32_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return n ? values[(n - 1) / 2] : 0;
}

/* nanoseconds that one instruction of the kind took on the rank in the window; 0: it has none */
static double time_of(const struct slowness *s, uint32_t rank, uint32_t kind)
{
    uint32_t count = s->work->count[s->r->ranks[rank].role][kind];
    double n = (double)count * (s->now[rank].steps - s->then[rank].steps);
    return n > 0 ? (double)(s->now[rank].ns[kind] - s->then[rank].ns[kind]) / n : 0;
}

static double excess(const struct slowness *s, uint32_t rank, uint32_t kind)
{
    return s->work->count[s->r->ranks[rank].role][kind] * (time_of(s, rank, kind) - s->median[kind]);
}

static void compare(struct slowness *s)
{
    uint32_t nranks = s->w->nranks;
    for (uint32_t k = 0; k < s->work->nkinds; k++) {
        uint32_t n = 0;
        for (uint32_t r = 0; r < nranks; r++)
            if (s->work->count[s->r->ranks[r].role][k])
                s->sorted[n++] = time_of(s, r, k);
        s->median[k] = median_of(s->sorted, n);
    }
    for (uint32_t r = 0; r < nranks; r++) {
        const uint32_t *count = s->work->count[s->r->ranks[r].role];
        double took = 0, would = 0;
        for (uint32_t k = 0; k < s->work->nkinds; k++) {
            took += count[k] * time_of(s, r, k);
            would += count[k] * s->median[k];
        }
        s->slow[r] = would > 0 ? took / would : 1;
    }
}

static void put_in_words(struct slowness *s, uint32_t rank)
{
    double by_op[NOPS] = {0}, all = 0;
    enum op most = s->work->op[0];
    for (uint32_t k = 0; k < s->work->nkinds; k++) {
        double more = excess(s, rank, k);
        by_op[s->work->op[k]] += more;
        all += more;
    }
    for (uint32_t op = 0; op < NOPS; op++)
        most = by_op[op] > by_op[most] ? (enum op)op : most;
    snprintf(s->words, sizeof s->words,
             "rank %u%s%s is slow, and all wait for it: up to step %u its instructions take %.1f times as long as the "
             "same ones of other ranks, %s most of all (%.0f %% of what it is behind)",
             rank, s->w->hosts ? " on " : "", s->w->hosts ? s->w->hosts[rank] : "", s->now[rank].steps, s->slow[rank],
             isa_info(most)->name, 100 * by_op[most] / all);
}

static void add(struct scatter *c, double x)
{
    double before = x - c->mean;
    c->weight = MEMORY * c->weight + 1;
    c->mean += before / c->weight;
    c->squares = MEMORY * c->squares + before * (x - c->mean);
}

/* what x is at least, as far as can be said; 0: nothing can */
static double least_of(const struct scatter *c)
{
    double deviation = sqrt(c->squares / c->weight);
    deviation = deviation > LEAST_DEVIATION ? deviation : LEAST_DEVIATION;
    bool known = c->weight > 1 + MEMORY * (1 + MEMORY * (LEAST - 2)) - 1e-9;
    return known ? c->mean - ERRORS * deviation / sqrt(c->weight) : 0;
}

/* the slowest rank of those that are slow and were not named before */
static const char *judge(struct slowness *s)
{
    uint32_t nranks = s->w->nranks, middle = (nranks - 2) / 2, worst = NONE;
    double most = log(s->limit);
    memcpy(s->sorted, s->slow, nranks * sizeof *s->sorted);
    qsort(s->sorted, nranks, sizeof *s->sorted, ascending);
    for (uint32_t r = 0; r < nranks; r++) {
        double others = s->slow[r] <= s->sorted[middle] ? s->sorted[middle + 1] : s->sorted[middle];
        add(&s->scatter[r], s->slow[r] > 0 && others > 0 ? log(s->slow[r] / others) : 0);
        if (!s->said[r] && least_of(&s->scatter[r]) > most) {
            most = least_of(&s->scatter[r]);
            worst = r;
        }
    }
    if (worst == NONE)
        return NULL;
    s->said[worst] = true;
    put_in_words(s, worst);
    return s->words;
}

const char *slowness_look(struct slowness *s)
{
    int64_t now_ns = world_now_ns();
    if (now_ns - s->began_ns < WINDOW_NS || !s->work->nkinds)
        return NULL;
    for (uint32_t r = 0; r < s->w->nranks; r++)
        if (!hear(&s->w->ranks[r], &s->now[r]) || s->now[r].steps < s->then[r].steps + STEPS)
            return NULL;
    bool first = !s->then[0].steps; /* the first steps are nobody's usual ones */
    if (!first)
        compare(s);
    const char *words = first ? NULL : judge(s);
    memcpy(s->then, s->now, s->w->nranks * sizeof *s->then);
    s->began_ns = now_ns;
    return words;
}
