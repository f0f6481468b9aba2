/* The players on cores: queues, the loop, waiting.
 *
 * A step is one pass over all queues after another.  A pass tries each queue's head once, communication first
 * so that transfers are posted before a kernel takes the processor.  When a whole pass moves nothing the rank
 * polls a little and then sleeps on its event, which peers bump.
 *
 * Adversarial mode draws which queues may move from a seeded generator (SplitMix64, Steele et al. 2014),
 * keeps each draw for a random while, and holds back communications, so that an order the wait lists do not
 * enforce will sooner or later be violated; what a step must write before reading is poisoned first. */

#include "runtime/device.h"
#include "runtime/exec_play.h"
#include "runtime/mpi_ranks.h"
#include "runtime/waits.h"
#include "runtime/work.h"

#include <cblas.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t draw(struct exec *e)
{
    uint64_t z = e->random += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* isa.def lists the written operand first */
void exec_make_meeting(const struct exec *e, const struct play *play, uint32_t i, struct meeting *m)
{
    struct kernel_args k;
    const struct insn *in = &play->p->insns[i];
    exec_resolve(e, play->p, i, &k);
    uint32_t noperands = isa_info(in->op)->noperands;
    *m = (struct meeting){.op = in->op, .channel = play->channel[i], .self = play->self[i]};
    m->number = e->met[m->channel] + play->number[i];
    m->y = k.operand[0];
    m->x = k.operand[noperands - 1];
    if (in->op == OP_BROADCAST)
        m->argument = (uint32_t)k.attr[ATTR(BROADCAST, root)].i;
    if (in->op == OP_SHIFT)
        m->argument = (uint32_t)k.attr[ATTR(SHIFT, by)].i;
    if (in->op == OP_ALL_REDUCE)
        m->argument = k.attr[ATTR(ALL_REDUCE, max)].i != 0;
}

static bool waits_done(const struct play *play, const struct insn *in)
{
    for (uint32_t w = 0; w < in->nwaits; w++) {
        const struct wait *wait = &play->p->waits[in->wait + w];
        if (play->done[wait->queue] <= wait->position)
            return false;
    }
    return true;
}

static void publish_head(const struct exec *e, const struct play *play, uint32_t q)
{
    uint32_t at = play->done[q];
    atomic_store_explicit(&e->s.world->ranks[e->s.world->rank].head[q],
                          at < play->stop[q] ? play->order[play->first[q] + at] : NONE, memory_order_relaxed);
}

static void pop(const struct exec *e, struct play *play, uint32_t q)
{
    struct world_rank *face = &e->s.world->ranks[e->s.world->rank];
    uint32_t insn = play->order[play->first[q] + play->done[q]], evaluates = play != &e->play[ROUTINE_TRAIN];
    play->done[q]++;
    play->open[q] = false;
    publish_head(e, play, q);
    uint64_t n = atomic_load_explicit(&face->progress, memory_order_relaxed);
    atomic_store_explicit(&face->flight[n % WORLD_FLIGHT], 2 * insn + evaluates, memory_order_relaxed);
    atomic_store_explicit(&face->progress, n + 1, memory_order_relaxed);
}

/* Runs a kernel whose time counts. */
static void run_timed(struct exec *e, enum op op, struct kernel_args *k, uint8_t kind)
{
    int64_t start = world_now_ns();
    device_cpu_run(op, k);
    int64_t took = world_now_ns() - start, end = start + took + (int64_t)(e->s.slow * (double)took);
    while (e->s.slow > 0 && world_now_ns() < end)
        __builtin_ia32_pause();
    e->work_ns[kind] += e->s.slow > 0 ? end - start : took;
}

static void run_kernel(struct exec *e, struct play *play, uint32_t i)
{
    struct kernel_args k = {.scratch = e->scratch, .batch = play->batch};
    k.routing = play == &e->play[ROUTINE_TRAIN] ? e->s.routing : NULL;
    struct world_rank *face = &e->s.world->ranks[e->s.world->rank];
    exec_resolve(e, play->p, i, &k);
    if (e->hook)
        e->hook(e->hook_context, play->p, i, &k);
    atomic_store_explicit(&face->running, i, memory_order_relaxed);
    int64_t core_ns = play->trace ? world_core_ns() : 0;
    if (play->trace)
        play->trace[i].start_ns = world_now_ns();
    uint8_t kind = e->kind && play == &e->play[ROUTINE_TRAIN] ? e->kind[i] : WORK_NONE;
    if (kind == WORK_NONE)
        device_cpu_run(play->p->insns[i].op, &k);
    else
        run_timed(e, play->p->insns[i].op, &k, kind);
    if (play->trace) {
        play->trace[i].end_ns = world_now_ns();
        play->trace[i].core_ns = world_core_ns() - core_ns;
    }
    atomic_store_explicit(&face->running, NONE, memory_order_relaxed);
}

void exec_met(const struct exec *e, const struct play *play, uint32_t q, const struct meeting *m)
{
    int64_t came_ns;
    if (!play->waits)
        return;
    uint32_t last = transport_last(e->transport, m, &came_ns);
    waits_met(play->waits, q, last, came_ns);
}

static enum progress try_meeting(struct exec *e, struct play *play, uint32_t q, uint32_t i)
{
    struct meeting m;
    bool posted = false;
    int64_t core_ns = play->trace ? world_core_ns() : 0;
    exec_make_meeting(e, play, i, &m);
    if (!play->open[q]) {
        m.ready_ns = play->waits ? world_now_ns() : 0;
        enum meeting_state st = transport_post(e->transport, &m);
        if (st == MEETING_REFUSED)
            return STUCK;
        if (st == MEETING_FAILED)
            return BROKEN;
        play->open[q] = posted = true;
        if (play->trace)
            play->trace[i] = (struct trace_span){.start_ns = world_now_ns()};
        if (e->s.shuffle_seed)
            return MOVED; /* let something else happen between post and transfer */
    }
    bool done = transport_poll(e->transport, &m) == MEETING_DONE;
    if (play->trace)
        play->trace[i].core_ns += world_core_ns() - core_ns;
    if (!done)
        return posted ? MOVED : STUCK;
    if (play->trace)
        play->trace[i].end_ns = world_now_ns();
    exec_met(e, play, q, &m);
    return ENDED;
}

static enum progress try_head(struct exec *e, struct play *play, uint32_t q, uint32_t i)
{
    if (insn_is_meeting(&play->p->insns[i]))
        return try_meeting(e, play, q, i);
    run_kernel(e, play, i);
    return ENDED;
}

static enum progress try_queue(struct exec *e, struct play *play, uint32_t q)
{
    if (play->done[q] == play->stop[q])
        return STUCK;
    uint32_t i = play->order[play->first[q] + play->done[q]];
    if (!play->open[q] && !play->started[q] && !waits_done(play, &play->p->insns[i]))
        return STUCK;
    enum progress head = e->s.player->try_head(e, play, q, i);
    if (head != ENDED)
        return head;
    if (play->waits && insn_is_meeting(&play->p->insns[i]))
        waits_ended(play->waits, q);
    pop(e, play, q);
    return MOVED;
}

static enum progress pass_in_order(struct exec *e, struct play *play)
{
    static const uint8_t order[NQUEUES] = {QUEUE_SEND, QUEUE_RECV, QUEUE_TP, QUEUE_DP, QUEUE_COPY, QUEUE_COMPUTE};
    enum progress all = STUCK;
    for (uint32_t i = 0; i < NQUEUES; i++) {
        enum progress one = try_queue(e, play, order[i]);
        if (one == BROKEN)
            return BROKEN;
        all = one == MOVED ? MOVED : all;
    }
    return all;
}

/* STUCK only when every queue was allowed to move and none could */
static enum progress pass_shuffled(struct exec *e, struct play *play)
{
    const uint32_t everyone = (1u << NQUEUES) - 1;
    if (e->patience == 0) {
        uint64_t r = draw(e);
        e->allowed = (uint32_t)(r >> 8) & everyone;
        e->patience = 1 + (uint32_t)(r >> 32) % 64;
    }
    e->patience--;
    uint32_t start = (uint32_t)(draw(e) % NQUEUES), allowed = e->allowed;
    enum progress all = STUCK;
    for (uint32_t i = 0; i < NQUEUES; i++) {
        uint32_t q = (start + i) % NQUEUES;
        enum progress one = allowed >> q & 1 ? try_queue(e, play, q) : STUCK;
        if (one == BROKEN)
            return BROKEN;
        all = one == MOVED ? MOVED : all;
    }
    if (all == MOVED || allowed == everyone)
        return all;
    if (e->patience > 4)
        e->patience = 4; /* nothing allowed can move: do not spin for long */
    if (e->patience == 0)
        e->allowed = everyone, e->patience = 1;
    return HELD_BACK;
}

static void check_peers(const struct exec *e)
{
    if (getppid() != e->s.world->parent)
        world_fail(e->s.world, STATUS_WORLD, "the process that started rank %u is gone", e->s.world->rank);
    for (uint32_t r = 0; r < e->s.world->nranks; r++) {
        int32_t pid = atomic_load(&e->s.world->ranks[r].pid);
        if (pid > 0 && kill(pid, 0) && errno == ESRCH && atomic_load(&e->s.world->ranks[r].state) != RANK_ENDED)
            world_fail(e->s.world, STATUS_WORLD, "rank %u (process %d) is gone", r, pid);
    }
}

struct patience {
    uint32_t polls;
    int64_t since_ns, peers_ns;
    uint64_t progress; /* of all ranks, at since_ns */
};

static void check_watchdog(const struct exec *e, struct patience *p)
{
    uint64_t progress = 0;
    int64_t now = world_now_ns();
    for (uint32_t r = 0; r < e->s.world->nranks; r++)
        progress += atomic_load_explicit(&e->s.world->ranks[r].progress, memory_order_relaxed);
    if (!p->since_ns || progress != p->progress) {
        p->since_ns = now;
        p->progress = progress;
    }
    if (e->s.world->named && now - p->peers_ns > 1000000000) {
        p->peers_ns = now;
        check_peers(e);
    }
    /* without shared memory rank 0 knows most, and is the first to say it */
    double most_s = e->s.watchdog_s + (e->s.world->remote && e->s.world->rank ? 5 : 0);
    if (!(e->s.watchdog_s > 0) || (double)(now - p->since_ns) < most_s * 1e9)
        return;
    bool first = world_failed(e->s.world) == STATUS_OK;
    char cause[1500];
    exec_cause(e, cause, sizeof cause);
    world_fail(e->s.world, STATUS_WORLD,
               "no rank has made progress for %.0f s%s%s; see the list of what each waits for", e->s.watchdog_s,
               cause[0] ? ": " : "", cause);
    if (first)
        exec_report(e, stderr);
}

static enum status wait_for_peers(const struct exec *e, const struct play *play, uint32_t event, struct patience *p)
{
    int64_t (*rest_ns)(const struct play *) = e->s.player->rest_ns;
    TRY(world_failed(e->s.world));
    if (!rest_ns && p->polls++ < e->s.world->spins) {
        __builtin_ia32_pause();
        return STATUS_OK;
    }
    int64_t rest = rest_ns ? rest_ns(play) : INT64_MAX;
    if (rest > 20000) /* shorter: the way into the kernel and back would be longer */
        world_sleep_for(e->s.world, event, rest);
    check_watchdog(e, p);
    return world_failed(e->s.world);
}

/* everything that does not outlive the step becomes NaN, or -1 */
static void poison_step(const struct exec *e, const struct play *play)
{
    const struct program *p = play->p;
    uint64_t at = 0;
    for (;;) { /* what is kept in the order of offsets; there is little */
        const struct buffer *next = NULL;
        for (uint32_t b = 0; b < p->nbuffers; b++)
            if (play->kept[b] && p->buffers[b].bytes && p->buffers[b].offset >= at &&
                (!next || p->buffers[b].offset < next->offset))
                next = &p->buffers[b];
        uint64_t end = next ? next->offset : p->arena_bytes;
        memset(e->arena + at, 0xff, end - at);
        if (!next)
            return;
        at = next->offset + next->bytes;
    }
}

static bool phase_done(const struct play *play)
{
    for (uint32_t q = 0; q < NQUEUES; q++)
        if (play->done[q] < play->stop[q])
            return false;
    return true;
}

static enum status run(struct exec *e, enum routine which, enum phase phase)
{
    struct play *play = &e->play[which];
    struct patience patience = {0};
    memcpy(play->done, play->at[phase], sizeof play->done);
    memcpy(play->stop, play->at[phase + 1], sizeof play->stop);
    memset(play->open, 0, sizeof play->open);
    play->began_ns = world_now_ns();
    if (e->s.shuffle_seed && which == ROUTINE_TRAIN && phase == PHASE_EARLY)
        poison_step(e, play);
    for (uint32_t q = 0; q < NQUEUES; q++)
        publish_head(e, play, q);
    while (!phase_done(play)) {
        uint32_t event = world_event(e->s.world);
        world_look(e->s.world);
        enum progress moved = e->s.shuffle_seed ? pass_shuffled(e, play) : pass_in_order(e, play);
        if (moved == BROKEN)
            return world_failed(e->s.world);
        if (play->waits && moved == STUCK)
            waits_stuck(play->waits, play);
        else if (play->waits)
            waits_moved(play->waits);
        if (moved == MOVED)
            patience.polls = 0;
        else if (moved == STUCK)
            TRY(wait_for_peers(e, play, event, &patience));
    }
    return STATUS_OK;
}

static const char *admit(struct exec *e, enum op op, const struct kernel_args *k)
{
    size_t bytes = kernel_scratch_floats(op, k) * sizeof(float);
    e->scratch_bytes = bytes > e->scratch_bytes ? bytes : e->scratch_bytes;
    return NULL;
}

/* OpenBLAS maps so much at its first product, and tries for ever where it cannot. */
static const size_t BLAS_BYTES = (size_t)128 << 20;

static enum status try_blas(struct error *error)
{
    void *map = mmap(NULL, BLAS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return error_set(error, STATUS_WORLD, "cannot map the %zu MiB that matrix products may take: %s",
                         BLAS_BYTES >> 20, strerror(errno));
    munmap(map, BLAS_BYTES);
    return STATUS_OK;
}

/* an error that it does not name is that there is no memory */
static enum status open_transport(struct exec *e, struct error *error)
{
    if (e->s.player->computes)
        TRY(try_blas(error));
    TRY(transport_open(&e->transport, e->s.world, e->s.channels->list, e->s.channels->n));
    void *map = mmap(NULL, e->scratch_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    e->scratch = map == MAP_FAILED ? NULL : map;
    return e->scratch ? STATUS_OK : STATUS_WORLD;
}

static void close_transport(struct exec *e)
{
    if (e->transport)
        transport_close(e->transport);
    if (e->scratch)
        munmap(e->scratch, e->scratch_bytes);
}

static void describe(const struct exec *e, char *out, size_t size)
{
    int n = snprintf(out, size, "cpu, %s, core %s, %d thread", openblas_get_config(), openblas_get_corename(),
                     openblas_get_num_threads());
    const struct mpi_ranks *mpi = e ? e->s.world->mpi : NULL; /* without a run: --calibrate */
    if (mpi && n > 0 && (size_t)n + 2 < size) {
        snprintf(out + n, size - (size_t)n, ", ");
        mpi->plugin->describe(mpi->context, out + n + 2, size - (size_t)n - 2);
    }
}

#define ON_CORES                                                                                                       \
    .on_cores = true, .admit = admit, .open = open_transport, .close = close_transport, .run = run, .describe = describe

const struct player player_cpu = {ON_CORES, .transport = "shm", .computes = true,
                                  .shared_bytes = transport_shared_bytes, .try_head = try_head};
const struct player player_mpi = {ON_CORES, .transport = "mpi", .computes = true, .shared_bytes = transport_mpi_bytes,
                                  .try_head = try_head};
const struct player player_paced = {ON_CORES, .transport = "shm", .shared_bytes = transport_shared_bytes,
                                    .try_head = exec_try_paced, .rest_ns = exec_paced_rest};
