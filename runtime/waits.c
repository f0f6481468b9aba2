/* Waiting, by the ranks that it is for.  While nothing moves, the heads that the compute queue needs and that are open
 * are what the rank waits for; when one of these ends, all time since then is accounted for by it.  Where the compute
 * queue has no more to do, all queues' heads count.  O(queues) when a wait begins, O(ranks) at a step's end. */

#include "runtime/waits.h"
#include "runtime/exec_play.h"

#include <stdlib.h>
#include <string.h>

enum { MEMORY = 8 /* steps that means are of, about */ };

struct waits {
    uint32_t nranks, blockers; /* blockers: a bit per queue */
    int64_t since_ns;          /* nothing moves since then; 0: something does */
    int64_t pending_ns;        /* before that, and not accounted for */
    uint32_t last[NQUEUES];    /* of the meeting at each queue's head, once it is done */
    int64_t came_ns[NQUEUES];
    int64_t *step_ns;    /* of this step, by rank and queue */
    double *mean;        /* the same of recent steps; nanoseconds */
    int64_t transfer_ns; /* of this step */
    double steps, mean_step_ns, mean_transfer_ns, mean_other_ns;
    int64_t other_ns; /* of this step, for ranks that are not known */
};

enum status waits_open(struct waits **out, uint32_t nranks)
{
    struct waits *w = calloc(1, sizeof *w);
    if (!w)
        return STATUS_WORLD;
    *out = w;
    w->nranks = nranks;
    w->step_ns = calloc((size_t)nranks * NQUEUES, sizeof *w->step_ns);
    w->mean = calloc((size_t)nranks * NQUEUES, sizeof *w->mean);
    return w->step_ns && w->mean ? STATUS_OK : STATUS_WORLD;
}

void waits_close(struct waits *w)
{
    if (!w)
        return;
    free(w->step_ns);
    free(w->mean);
    free(w);
}

static uint32_t unfinished(const struct play *play)
{
    uint32_t queues = 0;
    for (uint32_t q = 0; q < NQUEUES; q++)
        queues |= (uint32_t)(play->done[q] < play->stop[q]) << q;
    return queues;
}

/* queues whose heads wait for other ranks, of those that the compute queue needs */
static uint32_t find_blockers(const struct play *play)
{
    uint32_t left = unfinished(play), found = 0, seen = 0;
    uint32_t wanted = left >> QUEUE_COMPUTE & 1 ? 1u << QUEUE_COMPUTE : left;
    while (wanted & ~seen) {
        uint32_t q = (uint32_t)__builtin_ctz(wanted & ~seen);
        const struct insn *in = &play->p->insns[play->order[play->first[q] + play->done[q]]];
        bool waits = false;
        seen |= 1u << q;
        for (uint32_t i = 0; i < in->nwaits && !play->open[q]; i++) {
            const struct wait *wait = &play->p->waits[in->wait + i];
            bool done = play->done[wait->queue] > wait->position;
            wanted |= (uint32_t)!done << wait->queue;
            waits |= !done;
        }
        found |= (uint32_t)!waits << q;
    }
    return found;
}

void waits_stuck(struct waits *w, const struct play *play)
{
    if (w->since_ns || play->started[QUEUE_COMPUTE]) /* paced: a kernel is running */
        return;
    w->since_ns = world_now_ns();
    w->blockers = find_blockers(play);
}

void waits_moved(struct waits *w)
{
    w->pending_ns += w->since_ns ? world_now_ns() - w->since_ns : 0;
    w->since_ns = 0;
}

void waits_met(struct waits *w, uint32_t queue, uint32_t last, int64_t came_ns)
{
    w->last[queue] = last;
    w->came_ns[queue] = came_ns;
}

void waits_ended(struct waits *w, uint32_t queue)
{
    if (!(w->blockers >> queue & 1) || (!w->since_ns && !w->pending_ns))
        return;
    int64_t now = world_now_ns(), all = w->pending_ns + (w->since_ns ? now - w->since_ns : 0);
    int64_t moving = w->came_ns[queue] < now ? now - w->came_ns[queue] : 0;
    moving = moving < all ? moving : all;
    w->transfer_ns += moving;
    if (w->last[queue] < w->nranks)
        w->step_ns[w->last[queue] * NQUEUES + queue] += all - moving;
    else
        w->other_ns += all - moving;
    w->pending_ns = w->since_ns = 0;
}

static void publish(struct world_rank *face, const struct waited *x)
{
    uint64_t words[sizeof *x / sizeof(uint64_t)];
    _Static_assert(sizeof words == sizeof face->waited, "world_rank has room for it");
    memcpy(words, x, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        atomic_store_explicit(&face->waited[i], words[i], memory_order_relaxed);
}

struct waited waits_read(const struct world_rank *face)
{
    struct waited x;
    uint64_t words[sizeof x / sizeof(uint64_t)];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        words[i] = atomic_load_explicit(&face->waited[i], memory_order_relaxed);
    memcpy(&x, words, sizeof x);
    return x;
}

/* puts a rank in its place among those that are waited for longest */
static void insert(struct waited *x, uint32_t rank, uint32_t queue, double ns)
{
    uint32_t at = WAITED_FOR;
    while (at && (double)x->most[at - 1].ns < ns)
        at--;
    if (at == WAITED_FOR || ns < 1)
        return;
    memmove(&x->most[at + 1], &x->most[at], (WAITED_FOR - 1 - at) * sizeof x->most[0]);
    x->most[at].rank = rank;
    x->most[at].queue = queue;
    x->most[at].ns = (uint64_t)ns;
}

static void take_mean(double *mean, double x, double steps)
{
    *mean += (x - *mean) / (steps < MEMORY ? steps : MEMORY);
}

void waits_step(struct waits *w, struct world_rank *face, int64_t step_ns)
{
    struct waited x = {0};
    double all = 0;
    w->other_ns += w->pending_ns;
    w->steps++;
    take_mean(&w->mean_step_ns, (double)step_ns, w->steps);
    take_mean(&w->mean_transfer_ns, (double)w->transfer_ns, w->steps);
    take_mean(&w->mean_other_ns, (double)w->other_ns, w->steps);
    for (uint32_t r = 0; r < w->nranks; r++) {
        double sum = 0;
        uint32_t queue = 0;
        for (uint32_t q = 0; q < NQUEUES; q++) {
            double *mean = &w->mean[r * NQUEUES + q];
            take_mean(mean, (double)w->step_ns[r * NQUEUES + q], w->steps);
            queue = *mean > w->mean[r * NQUEUES + queue] ? q : queue;
            sum += *mean;
        }
        insert(&x, r, queue, sum);
        all += sum;
    }
    x.steps = (uint64_t)w->steps;
    x.step_ns = (uint64_t)w->mean_step_ns;
    x.waits_ns = (uint64_t)(all + w->mean_other_ns);
    x.transfers_ns = (uint64_t)w->mean_transfer_ns;
    publish(face, &x);
    memset(w->step_ns, 0, (size_t)w->nranks * NQUEUES * sizeof *w->step_ns);
    w->transfer_ns = w->other_ns = w->pending_ns = 0;
}
