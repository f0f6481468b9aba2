/* Why no rank makes progress: from a rank that is blocked, along what is waited for, to something that waits for
 * nothing, or back to where it was.  Each instruction needs all that it waits for, so that any one way leads to a
 * cause, and a circle is one: the plan's own.  As in exec_report.c, what ranks have published is all that is needed. */

#include "runtime/exec_play.h"
#include "runtime/mpi_ranks.h"
#include "runtime/sentence.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN = 4 /* instructions of a circle */ };

struct place { /* a queue's head */
    uint32_t rank, queue, insn;
};
static void say_rank(struct sentence *w, const struct exec *e, uint32_t rank)
{
    say_rank_of(w, rank, e->s.world->hosts ? e->s.world->hosts[rank] : NULL);
}

static void say_insn(struct sentence *w, const struct program *p, uint32_t insn)
{
    char text[600] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    if (!f)
        return;
    program_print_insn(p, insn, f);
    fclose(f);
    text[sizeof text - 1] = 0;
    say(w, "%s", text + strspn(text, " "));
}

static struct place head_of(const struct exec *e, uint32_t rank, uint32_t queue)
{
    return (struct place){rank, queue, atomic_load(&e->s.world->ranks[rank].head[queue])};
}

/* the head that p's instruction waits for on its own rank; false: for none */
static bool own_wait(const struct exec *e, const struct place *at, struct place *next)
{
    const struct program *p = exec_program_of(e, at->rank);
    uint32_t count[NQUEUES], *position = calloc(p->ninsns + (size_t)1, sizeof *position);
    bool waits = false;
    if (!position)
        return false;
    program_positions(p, position, count);
    const struct insn *in = &p->insns[at->insn];
    for (uint32_t i = 0; i < in->nwaits && !waits; i++) {
        const struct wait *wait = &p->waits[in->wait + i];
        *next = head_of(e, at->rank, wait->queue);
        waits = next->insn < p->ninsns && position[next->insn] <= wait->position;
    }
    free(position);
    return waits;
}

/* Is it in an earlier step, or not in one at all? */
static bool is_behind(const struct exec *e, uint32_t rank, uint32_t other)
{
    const struct world_rank *a = &e->s.world->ranks[rank], *b = &e->s.world->ranks[other];
    return atomic_load(&a->step) < atomic_load(&b->step) || atomic_load(&a->state) != RANK_STEPPING;
}

/* the head of a member that has not come to the meeting; false: all are there, or have left it */
static bool member_wait(const struct exec *e, const struct place *at, struct place *next)
{
    const struct program *p = exec_program_of(e, at->rank);
    uint32_t self, c = channels_of(e->s.channels, e->s.ranks, at->rank, p, at->insn, &self);
    const struct channel *channel = &e->s.channels->list[c];
    for (uint32_t m = 0; m < channel->nmembers; m++) {
        uint32_t other = channel->members[m];
        const struct program *q = exec_program_of(e, other);
        struct place unused;
        bool there = other == at->rank;
        for (uint32_t j = 0; q && other != at->rank && j < q->ninsns; j++) {
            if (q->insns[j].seq != p->insns[at->insn].seq)
                continue;
            there = true;
            *next = head_of(e, other, q->insns[j].queue);
            if (next->insn < j || (next->insn == j && own_wait(e, next, &unused)) || is_behind(e, other, at->rank))
                return true;
        }
        if (!there) { /* its program has no such instruction */
            *next = (struct place){other, 0, NONE};
            return true;
        }
    }
    return false;
}

/* the last of a way: it waits for nothing that has not come */
static void say_end(struct sentence *w, const struct exec *e, const struct place *at)
{
    static const char *const doing[] = {"starting", "between two steps", "saving", "at its end"};
    const struct program *p = exec_program_of(e, at->rank);
    struct world_rank *face = &e->s.world->ranks[at->rank];
    uint32_t state = atomic_load(&face->state);
    const char *trouble = world_trouble(e->s.world, at->rank);
    if (at->insn >= p->ninsns) {
        say(w, "all wait for ");
        say_rank(w, e, at->rank);
        say(w, ", which is %s%s", doing[state <= RANK_ENDED ? state : RANK_ENDED], trouble);
    } else if (insn_is_meeting(&p->insns[at->insn]) && !*trouble) {
        uint32_t self, c = channels_of(e->s.channels, e->s.ranks, at->rank, p, at->insn, &self);
        const struct channel *channel = &e->s.channels->list[c];
        say_rank(w, e, at->rank);
        say(w, " and ");
        say_rank(w, e, channel->members[channel->members[0] == at->rank]);
        say(w, "%s have met, and nothing comes through between them, at ", channel->nmembers > 2 ? " and others" : "");
        say_insn(w, p, at->insn);
    } else {
        say(w, "all wait for ");
        say_rank(w, e, at->rank);
        say(w, ", which is %s ", atomic_load(&face->running) == at->insn ? "inside of" : "at");
        say_insn(w, p, at->insn);
        say(w, "%s", trouble);
    }
}

/* a circle, from `at` back to it */
static void say_circle(struct sentence *w, const struct exec *e, struct place at)
{
    struct place first = at, next;
    say(w, "the plan itself stands still, and would on any machine: ");
    for (uint32_t i = 0; i < SHOWN; i++, at = next) {
        say(w, "%s", i ? ", which waits for " : "");
        say_rank(w, e, at.rank);
        say(w, " at ");
        say_insn(w, exec_program_of(e, at.rank), at.insn);
        if (!own_wait(e, &at, &next) && !member_wait(e, &at, &next))
            return;
        if (next.rank == first.rank && next.queue == first.queue) {
            say(w, ", which waits for the first");
            return;
        }
    }
    say(w, ", which waits for more, and these for the first");
}

/* along what is waited for, as far as it goes */
static void follow(struct sentence *w, const struct exec *e, struct place at)
{
    uint32_t most = e->s.world->nranks * NQUEUES;
    for (uint32_t steps = 0; steps <= 2 * most; steps++) {
        const struct program *p = exec_program_of(e, at.rank);
        struct place next;
        if (!p || at.insn >= p->ninsns || atomic_load(&e->s.world->ranks[at.rank].running) == at.insn)
            break;
        bool waits = own_wait(e, &at, &next) || (insn_is_meeting(&p->insns[at.insn]) && member_wait(e, &at, &next));
        if (!waits)
            break;
        at = next;
        if (steps == 2 * most) { /* by now it has gone round */
            say_circle(w, e, at);
            return;
        }
    }
    if (exec_program_of(e, at.rank))
        say_end(w, e, &at);
}

/* where a rank stands: inside of an instruction, else before the first that waits for nothing on the rank itself */
static struct place stand_of(const struct exec *e, uint32_t rank)
{
    const struct program *p = exec_program_of(e, rank);
    struct place stand = {rank, 0, NONE}, unused;
    for (uint32_t q = 0; p && q < NQUEUES; q++) {
        struct place at = head_of(e, rank, q);
        if (at.insn >= p->ninsns)
            continue;
        if (atomic_load(&e->s.world->ranks[rank].running) == at.insn)
            return at;
        if (stand.insn == NONE && !own_wait(e, &at, &unused))
            stand = at;
    }
    return stand;
}

/* A rank whose process does not run is the cause, whatever others happen to stand at: on a busy machine some have not
 * yet come as far as they could.  false: there is none. */
static bool say_troubled(struct sentence *w, const struct exec *e)
{
    for (uint32_t r = 0; r < e->s.world->nranks; r++) {
        bool ended = atomic_load(&e->s.world->ranks[r].state) == RANK_ENDED;
        if (ended || !exec_program_of(e, r) || !*world_trouble(e->s.world, r))
            continue;
        struct place at = stand_of(e, r);
        say_end(w, e, &at);
        return true;
    }
    return false;
}

void exec_cause(const struct exec *e, char *out, size_t size)
{
    const struct world *w = e->s.world;
    struct sentence words = {out, size, 0};
    *out = 0;
    if (w->remote && w->rank) /* only rank 0 knows of the others */
        return;
    if ((w->mpi && mpi_ranks_silent(w->mpi, out, size)) || say_troubled(&words, e))
        return;
    for (uint32_t r = 0; r < w->nranks; r++)
        for (uint32_t q = 0; q < NQUEUES; q++) {
            struct place at = head_of(e, r, q);
            const struct program *p = exec_program_of(e, r);
            if (p && at.insn < p->ninsns && atomic_load(&w->ranks[r].state) == RANK_STEPPING) {
                follow(&words, e, at);
                return;
            }
        }
}
