/* Lower bounds of a placement: seconds that no order of its actions goes below.
 *
 * Every rank is looked at as one machine.  Its actions have earliest starts, from chains of forwards and
 * input gradients through all stages, where the k-th action of a stage is behind the k before it, and where a
 * rank that ends the k-th forward of a stage has done k of each of its shallower chunks.  A machine whose
 * jobs have earliest starts is through no sooner than when it takes them in that order.  Behind a rank's last
 * input gradient is the way to the first stage.  Closely: ranks that come near are looked at once more for
 * what the others can feed them (auto_feed.c).
 *
 * Memory adds to it with one stage per rank: a rank that holds k microbatches does at most k forwards before
 * its first input gradient, and behind its last forward at most k of the rest. */

#include "compiler/schedule/auto_feed.h"
#include "compiler/schedule/auto_private.h"

#include <math.h>
#include <stdlib.h>

#define NEAR 0.04 /* of the bound: what a closer look at a rank may add */

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

/* rank r's jobs in the order of their earliest starts; way_s: from its last input gradient to the end */
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

/* from a rank's first forward to its first input gradient at the earliest: a microbatch's way there and back
 */
static double trip_s(const struct bound *b, uint32_t r)
{
    double s = b->job->slot[b->slot_of[r]].takes[RELAY_F];
    for (uint32_t q = r; q + 1 < b->job->p; q++) {
        const struct relay_stage *next = &b->job->slot[b->slot_of[q + 1]];
        s += b->job->slot[b->slot_of[q]].next_s + next->takes[RELAY_F] + input_s(next) + auto_back_s(b->job, next);
    }
    return s;
}

/* Idle at the two ends of a rank's span, and the microbatches without their W when its last forward ends.  Before the
 * first input gradient it does at most as many forwards as it can hold.  Behind the last forward there are x
 * microbatches left between F and I and some between I and W, as many as fit beside x; the last one's way there and
 * back is filled with the others' gradients.  Where more come than fit the first idle time ends before the second. */
struct ends {
    double idle_s;   /* of both */
    double before_s; /* of the first */
    double without_w;
};

/* microbatches that a rank can hold between F and I */
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

/* from the end of rank r's chain of all forwards and input gradients to the end of a rank before it */
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

/* from rank 0's first forward, or from each rank's own */
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
        const struct relay_stage *first = &job->slot[b.slot_of[r]]; /* stage r is the rank's first */
        if (r)
            way += auto_back_s(job, first) + input_s(&job->slot[b.slot_of[r - 1]]);
        longest = fmax(longest, machine_s(&b, jobs, r, way));
    }
    if (closely && !job->skews)
        longest = fed_s(a, &b, longest);
    arena_reset(a, mark);
    return longest;
}
