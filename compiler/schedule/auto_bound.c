/* Lower bounds on the step of any order of a placement's actions, in seconds.
 *
 * Every rank is looked at as one machine.  Its actions have release times, from chains of forwards and input
 * gradients through all stages: the k-th action of a stage follows the k before it, and a rank that ends the k-th
 * forward of a stage has run k forwards of each of its earlier chunks.  A machine cannot end sooner than if it takes
 * its jobs in the order of release times. After a rank's last input gradient comes the way back to the first stage.
 * With `closely`, ranks whose bound is nearly the largest are bounded once more by what the other ranks can feed
 * them (auto_feed.c).
 *
 * With one stage per rank memory adds to the bound: a rank that can hold k microbatches runs at most k forwards
 * before its first input gradient, and after its last forward at most k microbatches have gradients left. */

#include "compiler/schedule/auto_feed.h"
#include "compiler/schedule/auto_private.h"

#include <math.h>
#include <stdlib.h>

#define NEAR 0.04 /* share of the bound that a closer look at a rank may add */

struct bound {
    const struct auto_job *job;
    uint32_t *slot_of;          /* by stage */
    double *forward, *backward; /* earliest starts, by stage * m + microbatch */
    double *begins;             /* by rank */
    double *done;               /* by rank: scratch */
};
struct machine_job {
    double release_s, takes_s;
    bool weight;
};

static double input_s(const struct relay_stage *st)
{
    return fmin(st->takes[RELAY_I], st->takes[RELAY_B]);
}

static double weight_s(const struct relay_stage *st)
{
    return fmin(st->takes[RELAY_I] + st->takes[RELAY_W], st->takes[RELAY_B]) - input_s(st);
}

static int compare_jobs(const void *x, const void *y)
{
    const struct machine_job *a = x, *b = y;
    return (a->release_s > b->release_s) - (a->release_s < b->release_s);
}

static void earliest_forwards(struct bound *b)
{
    const struct auto_job *job = b->job;
    uint32_t n = job->p * job->v, m = job->m;
    double *shallower = b->done; /* forward seconds of a rank's chunks so far */
    for (uint32_t r = 0; r < job->p; r++)
        shallower[r] = 0;
    for (uint32_t s = 0; s < n; s++) {
        const struct relay_stage *st = &job->slot[b->slot_of[s]];
        double *own = b->forward + (size_t)s * m, takes = st->takes[RELAY_F];
        for (uint32_t i = 0; i < m; i++) {
            const struct relay_stage *from = s ? &job->slot[b->slot_of[s - 1]] : NULL;
            own[i] = from ? own[i - (size_t)m] + from->takes[RELAY_F] + from->next_s : 0;
            if (s < job->p)
                b->begins[st->rank] = i ? b->begins[st->rank] : own[0];
            if (i)
                own[i] = fmax(own[i], own[i - 1] + takes);
            own[i] = fmax(own[i], b->begins[st->rank] + (i + 1) * (shallower[st->rank] + takes) - takes);
        }
        shallower[st->rank] += takes;
    }
}

static void earliest_backwards(struct bound *b)
{
    const struct auto_job *job = b->job;
    uint32_t n = job->p * job->v, m = job->m;
    double *done = b->done; /* seconds of a rank's forwards and of its deeper input gradients */
    for (uint32_t r = 0; r < job->p; r++) {
        done[r] = 0;
        for (uint32_t c = 0; c < job->v; c++)
            done[r] += job->slot[r * job->v + c].takes[RELAY_F];
    }
    for (uint32_t s = n; s-- > 0;) {
        const struct relay_stage *st = &job->slot[b->slot_of[s]];
        double *own = b->backward + (size_t)s * m, takes = input_s(st);
        for (uint32_t i = 0; i < m; i++) {
            const struct relay_stage *from = s + 1 < n ? &job->slot[b->slot_of[s + 1]] : NULL;
            own[i] = from ? own[i + (size_t)m] + input_s(from) + auto_back_s(job, from)
                          : b->forward[(size_t)s * m + i] + st->takes[RELAY_F] - st->lead_s;
            if (i)
                own[i] = fmax(own[i], own[i - 1] + takes);
            own[i] = fmax(own[i], b->begins[st->rank] + (i + 1) * (done[st->rank] + takes) - takes);
        }
        done[st->rank] += takes;
    }
}

/* Rank r's jobs in the order of their release times; way_s: seconds from its last input gradient to the end of the
 * step. */
static double machine_s(const struct bound *b, struct machine_job *jobs, uint32_t r, double way_s)
{
    const struct auto_job *job = b->job;
    uint32_t n = 0;
    for (uint32_t c = 0; c < job->v; c++) {
        const struct relay_stage *st = &job->slot[r * job->v + c];
        for (uint32_t i = 0; i < job->m; i++) {
            size_t here = (size_t)st->stage * job->m + i;
            jobs[n++] = (struct machine_job){b->forward[here], st->takes[RELAY_F], false};
            jobs[n++] = (struct machine_job){b->backward[here], input_s(st), false};
            jobs[n++] = (struct machine_job){b->backward[here] + input_s(st), weight_s(st), true};
        }
    }
    qsort(jobs, n, sizeof *jobs, compare_jobs);
    double all = 0, chain = 0;
    for (uint32_t i = 0; i < n; i++) {
        all = fmax(all, jobs[i].release_s) + jobs[i].takes_s;
        if (!jobs[i].weight)
            chain = fmax(chain, jobs[i].release_s) + jobs[i].takes_s;
    }
    return fmax(all, chain + way_s);
}

/* --- memory, one stage per rank --- */

/* Seconds from the start of a rank's first forward to the earliest start of its first input gradient: one
 * microbatch's way to the last stage and back. */
static double trip_s(const struct bound *b, uint32_t r)
{
    double s = b->job->slot[b->slot_of[r]].takes[RELAY_F];
    for (uint32_t q = r; q + 1 < b->job->p; q++) {
        const struct relay_stage *next = &b->job->slot[b->slot_of[q + 1]];
        s += b->job->slot[b->slot_of[q]].next_s + next->takes[RELAY_F] + input_s(next) + auto_back_s(b->job, next);
    }
    return s;
}

/* Idle seconds at the two ends of a rank's span, and how many microbatches still lack their W when its last forward
 * ends.
 *
 * Before the first input gradient the rank runs at most as many forwards as it can hold.  After the last forward, x
 * microbatches are between F and I, and some between I and W, as many as fit beside x; the last one's way to the
 * last stage and back is filled with the others' gradients.  If there are more microbatches than fit, the first idle
 * time ends before the second begins. */
struct ends {
    double idle_s;   /* at both ends together */
    double before_s; /* at the first end */
    double without_w;
};

/* how many microbatches a rank can hold between F and I */
static double held(const struct auto_job *job, uint32_t r)
{
    double most = job->most ? floor(job->most[r] * (1 + 1e-9) / job->slot[r].keep) : job->m;
    return fmin(most, job->m);
}

static struct ends ends_with(const struct bound *b, uint32_t r, double trip, double x)
{
    const struct relay_stage *st = &b->job->slot[b->slot_of[r]];
    double m = b->job->m, k = held(b->job, r), f = st->takes[RELAY_F], i = input_s(st), w = weight_s(st), rest = m;
    if (b->job->most && st->late > 0)
        rest = floor((b->job->most[r] * (1 + 1e-9) - x * st->keep) / st->late);
    struct ends e = {.before_s = fmax(0, trip - k * f), .without_w = fmin(m, x + rest)};
    double behind = fmax(0, trip - f - (x - 1) * i - (e.without_w - 1) * w);
    e.idle_s = k < m ? e.before_s + behind : fmax(e.before_s, behind);
    return e;
}

/* Seconds from the end of rank r's forwards and input gradients to the end of the last rank before it. */
static double way_back_s(const struct bound *b, uint32_t r)
{
    const struct auto_job *job = b->job;
    double longest = 0, way = 0;
    for (uint32_t q = r + 1; q-- > 0;) {
        const struct relay_stage *st = &job->slot[b->slot_of[q]];
        double before = job->skews ? b->begins[r] - b->begins[q] : b->begins[r];
        longest = fmax(longest, before + way + weight_s(st));
        if (q)
            way += auto_back_s(job, st) + input_s(&job->slot[b->slot_of[q - 1]]);
    }
    return longest;
}

/* Seconds from rank 0's first forward, or, where steps are skewed, from each rank's own first action. */
static double linear_s(const struct bound *b)
{
    const struct auto_job *job = b->job;
    double longest = 0;
    for (uint32_t r = 0; r < job->p; r++) {
        const struct relay_stage *st = &job->slot[b->slot_of[r]];
        double m = job->m, chain = m * (st->takes[RELAY_F] + input_s(st)), w = weight_s(st), least = INFINITY;
        double trip = trip_s(b, r), way = way_back_s(b, r);
        for (double x = held(job, r); x >= 1; x--) {
            struct ends e = ends_with(b, r, trip, x);
            double own = chain + m * w + e.idle_s + (job->skews ? 0 : b->begins[r]);
            least = fmin(least, fmax(own, e.before_s + chain + (m - e.without_w) * w + way));
        }
        longest = fmax(longest, least);
    }
    return longest;
}

static double work_s(const struct auto_job *job)
{
    double longest = 0;
    for (uint32_t r = 0; r < job->p; r++) {
        double s = 0;
        for (uint32_t c = 0; c < job->v; c++) {
            const struct relay_stage *st = &job->slot[r * job->v + c];
            s += job->m * (st->takes[RELAY_F] + input_s(st) + weight_s(st));
        }
        longest = fmax(longest, s);
    }
    return longest;
}

/* --- closely --- */

static void fill_line(struct arena *a, const struct bound *b, struct auto_line *l)
{
    const struct auto_job *job = b->job;
    uint32_t stages = job->p * job->v, n = 2 * stages;
    *l = (struct auto_line){.n = n, .m = job->m, .p = job->p};
    l->rank = ARENA_ARRAY(a, uint32_t, n);
    l->takes = ARENA_ARRAY(a, double, n);
    l->gap = ARENA_ARRAY(a, double, n);
    l->weight = ARENA_ARRAY(a, double, n);
    l->head = ARENA_ARRAY(a, double *, n);
    for (uint32_t x = 0; x < n; x++) {
        bool forward = x < stages;
        uint32_t s = forward ? x : n - 1 - x;
        const struct relay_stage *st = &job->slot[b->slot_of[s]];
        l->rank[x] = st->rank;
        l->takes[x] = forward ? st->takes[RELAY_F] : input_s(st);
        l->gap[x] = forward ? st->next_s : auto_back_s(job, st);
        l->weight[x] = forward ? 0 : weight_s(st);
        l->head[x] = (forward ? b->forward : b->backward) + (size_t)s * job->m;
    }
}

static double fed_s(struct arena *a, const struct bound *b, double bound_s)
{
    struct auto_line line;
    double longest = bound_s;
    fill_line(a, b, &line);
    for (uint32_t r = 0; r < b->job->p; r++) {
        double work = 0;
        for (uint32_t x = 0; x < line.n; x++)
            if (line.rank[x] == r)
                work += b->job->m * (line.takes[x] + line.weight[x]);
        if (work + b->begins[r] > bound_s * (1 - NEAR))
            longest = fmax(longest, work + auto_feed_idle_s(a, &line, r));
    }
    return longest;
}

double auto_bound_s(struct arena *a, const struct auto_job *job, bool closely)
{
    struct arena_mark mark = arena_mark(a);
    uint32_t n = job->p * job->v;
    struct bound b = {.job = job};
    b.slot_of = ARENA_ARRAY(a, uint32_t, n);
    for (uint32_t k = 0; k < n; k++)
        b.slot_of[job->slot[k].stage] = k;
    b.forward = ARENA_ARRAY(a, double, (size_t)n * job->m);
    b.backward = ARENA_ARRAY(a, double, (size_t)n * job->m);
    b.begins = ARENA_ARRAY(a, double, job->p);
    b.done = ARENA_ARRAY(a, double, job->p);
    earliest_forwards(&b);
    earliest_backwards(&b);
    struct machine_job *jobs = ARENA_ARRAY(a, struct machine_job, (size_t)3 * job->v * job->m);
    double longest = job->v == 1 ? linear_s(&b) : work_s(job), way = weight_s(&job->slot[b.slot_of[0]]);
    for (uint32_t r = 0; r < job->p && !job->skews; r++) {
        const struct relay_stage *first = &job->slot[b.slot_of[r]]; /* stage r is the first on rank r */
        if (r)
            way += auto_back_s(job, first) + input_s(&job->slot[b.slot_of[r - 1]]);
        longest = fmax(longest, machine_s(&b, jobs, r, way));
    }
    if (closely && !job->skews)
        longest = fed_s(a, &b, longest);
    arena_reset(a, mark);
    return longest;
}
