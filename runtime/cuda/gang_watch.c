/* Waiting for the device, and giving up.
 *
 * Waiting is polling: of the origin stream, of the communicators' errors, of the other processes' failures, and of the
 * progress words that streams write as they come to communications.  Whoever finds trouble first says so once for the
 * whole run, naming the rank and the instruction: of a call that was refused that very one, of an error or a silence on
 * the device the earliest communication that has begun and not ended. */

#include "runtime/cuda/gang_inside.h"

#include <sched.h>
#include <unistd.h>

enum { SPINS = 2000, NAP_US = 50 };

static void give_up(struct gang *g)
{
    if (!g->failed && g->meet)
        g->s.meet->abort(g->meet);
    g->failed = true;
}

enum status gang_fail(struct gang *g, uint32_t rank, enum routine which, uint32_t insn, const char *why)
{
    char line[600] = "";
    const struct program *p = g->ranks[rank].e ? g->ranks[rank].e->play[which].p : NULL;
    FILE *f = p && insn < p->ninsns ? fmemopen(line, sizeof line, "w") : NULL;
    if (f) {
        program_print_insn(p, insn, f);
        fclose(f);
        world_fail(g->s.world, STATUS_WORLD, "rank %u, instruction %u: %s: %s", g->first + rank, insn, why, line);
    } else {
        world_fail(g->s.world, STATUS_WORLD, "rank %u: %s", g->first + rank, why);
    }
    give_up(g);
    return world_failed(g->s.world);
}

static uint32_t seq_of(const struct gang *g, uint32_t rank, enum routine which, uint32_t mark)
{
    const struct program *p = g->ranks[rank].e->play[which].p;
    return mark && mark <= p->ninsns ? p->insns[mark - 1].seq : UINT32_MAX;
}

/* gang_refused() where only the device can know who it was: what its progress words say */
static enum status blame(struct gang *g, enum routine which, const char *why)
{
    uint32_t rank = 0, insn = NONE, least = UINT32_MAX;
    for (uint32_t r = 0; r < g->s.n; r++)
        for (uint32_t q = 0; q < NQUEUES; q++) {
            const volatile uint32_t *mark = g->ranks[r].mark;
            uint32_t begun = mark[q], seq = seq_of(g, r, which, begun);
            if (begun != mark[MARK_ENDED + q] && seq < least) {
                least = seq;
                rank = r;
                insn = begun - 1;
            }
        }
    if (insn == NONE) { /* no communication is under way: some kernel */
        for (uint32_t r = 0; r < g->s.n; r++) {
            uint32_t mark = ((const volatile uint32_t *)g->ranks[r].mark)[MARK_COMPUTE],
                     seq = seq_of(g, r, which, mark);
            if (mark && seq < least) {
                least = seq;
                rank = r;
                insn = mark - 1;
            }
        }
        char text[300];
        snprintf(text, sizeof text, "%s, in a kernel after this one at the latest", why);
        return gang_fail(g, rank, which, insn, insn == NONE ? why : text);
    }
    return gang_fail(g, rank, which, insn, why);
}

enum status gang_refused(struct gang *g, uint32_t rank, enum routine which, uint32_t insn, const char *why)
{
    int error = g->capturing ? CUDA_OK : cuda_poll_stream(g->cu, gang_origin(g));
    bool broken = error != CUDA_OK && error != CUDA_NOT_READY;
    return broken ? blame(g, which, g->cu->GetErrorString(error)) : gang_fail(g, rank, which, insn, why);
}

/* what has been done so far, of all ranks of the run */
static uint64_t progress(struct gang *g)
{
    uint64_t all = 0;
    for (uint32_t r = 0; r < g->s.n; r++) {
        uint64_t own = g->counts.steps << 24;
        for (uint32_t i = 0; i < NMARKS; i++)
            own += ((const volatile uint32_t *)g->ranks[r].mark)[i];
        atomic_store_explicit(&g->s.world->ranks[g->first + r].progress, own, memory_order_relaxed);
    }
    for (uint32_t r = 0; r < g->s.world->nranks; r++)
        all += atomic_load_explicit(&g->s.world->ranks[r].progress, memory_order_relaxed);
    return all;
}

enum status gang_wait(struct gang *g, enum routine which)
{
    int64_t since = world_now_ns();
    uint64_t before = progress(g);
    for (uint32_t polls = 0;; polls++) {
        int error = cuda_poll_stream(g->cu, gang_origin(g));
        if (error == CUDA_OK)
            return STATUS_OK;
        if (error != CUDA_NOT_READY)
            return blame(g, which, g->cu->GetErrorString(error));
        if (polls < SPINS)
            continue;
        const char *why = g->meet ? g->s.meet->poll(g->meet) : NULL;
        if (why)
            return blame(g, which, why);
        if (world_failed(g->s.world) != STATUS_OK) {
            give_up(g);
            return world_failed(g->s.world);
        }
        uint64_t now = progress(g);
        int64_t silent = world_now_ns() - since;
        if (now != before) {
            before = now;
            since = world_now_ns();
        } else if (g->s.watchdog_s > 0 && (double)silent > g->s.watchdog_s * 1e9) {
            char text[100];
            snprintf(text, sizeof text, "no rank has made progress for %.3g s", g->s.watchdog_s);
            return blame(g, which, text);
        }
        usleep(NAP_US);
    }
}
