/* How close placed arenas come to what must be live: arena over live peak, of the worked examples and of drawn plans.
 *
 *   build/tests/bench/bench_place [DRAWN [SEED]]
 *
 * A drawn plan is a worked example's model on its cluster with degrees, schedule and recomputation pinned at random, and one
 * of the decisions that the search then finds.  Of a plan's roles the one with the largest arena counts.  Columns: the
 * arena; `must`, what any placement has to hold at once, and `may`, what it might have to by the compute queue's clock
 * (place.h); `simulated`, the peak of the predicted step; the arena over each of them, and milliseconds of placing per role.
 * Behind the rows: median, 95th percentile and largest of the three ratios. */

#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "compiler/place/place.h"
#include "compiler/support/vec.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SETS_MAX = 12, USUAL_DRAWN = 100, TRIES = 20, BUDGET = 20000 };

struct example {
    const char *name, *model, *cluster, *sets[SETS_MAX];
    uint32_t nsets;
};
struct row {
    double must, may, simulated; /* arena over it */
};
struct rows {
    VEC(struct row) v;
};

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* splitmix64, Steele et al. 2014: a number below n */
static uint32_t draw(uint64_t *state, uint32_t n)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) >> 11) % n;
}

static bool open_example(struct arena *a, const char *name, struct example *x)
{
    *x = (struct example){.name = arena_strdup(a, name), .model = arena_printf(a, "plans/%s/model.llm", name)};
    struct source *s = source_read(a, diag_new(a), arena_printf(a, "plans/%s/cluster", name), 1 << 20);
    if (!s)
        return false;
    x->cluster = arena_strndup(a, s->text, strcspn(s->text, "\n"));
    for (const char *at = s->text + strcspn(s->text, "\n"); *at; at += strcspn(at, "\n"))
        if (!strncmp(++at, "set ", 4) && x->nsets < SETS_MAX / 2)
            x->sets[x->nsets++] = arena_strndup(a, at + 4, strcspn(at + 4, "\n"));
    return true;
}

static void pin(struct arena *a, struct example *x, uint64_t *state)
{
    static const char *const schedules[] = {"1f1b",     "interleaved", "zb_h1",         "zb_h2", "zb_v",
                                            "dualpipe", "dualpipe_v",  "combined_1f1b", "auto",  "gpipe"};
    static const char *const recompute[] = {"none", "full", "auto"};
    if (draw(state, 4))
        x->sets[x->nsets++] = arena_printf(a, "pp=%u", 2u << draw(state, 4));
    if (draw(state, 4))
        x->sets[x->nsets++] = arena_printf(a, "schedule=%s", schedules[draw(state, ARRAY_LEN(schedules))]);
    if (draw(state, 2))
        x->sets[x->nsets++] = arena_printf(a, "recompute=%s", recompute[draw(state, ARRAY_LEN(recompute))]);
    if (!draw(state, 3))
        x->sets[x->nsets++] = arena_printf(a, "zero=%u", draw(state, 4));
    if (!draw(state, 3))
        x->sets[x->nsets++] = arena_printf(a, "microbatch=%u sequences", 1u << draw(state, 2));
}

/* s: that placing took, of all roles */
static void print_plan(struct arena *a, const struct example *x, const struct plan *p, double s, struct rows *rows)
{
    double gib = 1 << 30;
    uint32_t fullest = 0;
    for (uint32_t r = 0; r < p->nroles; r++)
        if (p->train[r]->arena_bytes > p->train[fullest]->arena_bytes)
            fullest = r;
    const struct program *q = p->train[fullest];
    struct place_peak peak = place_peak(a, q);
    double arena = (double)(q->arena_bytes - program_host_bytes(q)), live = (double)p->timeline->roles[fullest].peak_live_bytes;
    struct row r = {arena / (double)peak.sure, arena / (double)peak.possible, arena / live};
    vec_push(a, &rows->v, r);
    printf("%-18s %8.2f %8.2f %8.2f %8.2f   %6.3f %6.3f %6.3f %6.1f  %s\n", x->name, arena / gib, (double)peak.sure / gib,
           (double)peak.possible / gib, live / gib, r.must, r.may, r.simulated, 1e3 * s / p->nroles,
           decision_text(a, p->job, &p->decision));
    fflush(stdout);
}

/* the plan of one of the decisions that the search finds; false: it finds none */
static bool bench(const struct example *x, uint64_t *state, struct arena *keep, struct rows *rows)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct job *job = job_read(a, d, x->model, (const char **)x->sets, x->nsets);
    struct topo *topo = job ? topo_read(a, d, x->cluster) : NULL;
    struct search_result *found = topo ? search(a, d, job, topo, state ? 8 : 1, state ? BUDGET : 0, true) : NULL;
    struct plan *p = NULL;
    const char *why = "";
    if (found && found->ncandidates) {
        struct decision decision = found->candidates[state ? draw(state, found->ncandidates) : 0].decision;
        if (!(decision.room > 0) && decision.ep > 1)
            decision.room = 1.2 * job->train.imbalance;
        struct cost *cost;
        p = compile_lowered(a, job, topo, &decision, &(struct compile_options){0}, true, &cost);
        double s = cpu_s();
        for (uint32_t r = 0; r < p->nroles; r++)
            place_program(a, p->train[r], 0);
        s = cpu_s() - s;
        p->timeline = simulate(a, cost, (const struct program *const *)p->train, p->nroles, &why);
        struct rows own = {0};
        if (p->timeline)
            print_plan(a, x, p, s, &own);
        if (p->timeline)
            vec_push(keep, &rows->v, own.v.at[0]);
        plan_close(p);
    }
    arena_free(a);
    return p != NULL;
}

static int ascending(const void *x, const void *y)
{
    const double *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

static void print_share(const char *name, const struct rows *rows, size_t offset)
{
    double at[4096];
    size_t n = rows->v.n < ARRAY_LEN(at) ? rows->v.n : ARRAY_LEN(at);
    for (size_t i = 0; i < n; i++)
        memcpy(&at[i], (const char *)&rows->v.at[i] + offset, sizeof *at);
    qsort(at, n, sizeof *at, ascending);
    if (n)
        printf("arena over %-10s median %.3f, 95th percentile %.3f, largest %.3f of %zu plans\n", name, at[n / 2],
               at[(n * 95 - 1) / 100], at[n - 1], n);
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    uint32_t drawn = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : USUAL_DRAWN;
    uint64_t state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    struct arena *a = arena_new();
    struct rows rows = {0};
    struct dirent **names;
    int n = scandir("plans", &names, visible, alphasort);
    struct example *all = ARENA_ARRAY(a, struct example, n > 0 ? (size_t)n : 1);
    uint32_t nall = 0;
    for (int i = 0; i < n; i++) {
        nall += open_example(a, names[i]->d_name, &all[nall]);
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    printf("%-18s %8s %8s %8s %8s   %6s %6s %6s %6s  decision; GiB of the fullest role\n", "plan", "arena", "must", "may",
           "simul.", "/must", "/may", "/sim", "ms");
    for (uint32_t i = 0; i < nall; i++)
        bench(&all[i], NULL, a, &rows);
    for (uint32_t i = 0, tries = 0; i < drawn && nall && tries < drawn * TRIES; tries++) {
        struct example x = all[draw(&state, nall)];
        pin(a, &x, &state);
        i += bench(&x, &state, a, &rows);
    }
    print_share("must", &rows, offsetof(struct row, must));
    print_share("may", &rows, offsetof(struct row, may));
    print_share("simulated", &rows, offsetof(struct row, simulated));
    arena_free(a);
    return !rows.v.n;
}
