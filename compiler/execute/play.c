/* Running the programs of all ranks: one event after another, chosen by priority among those that may happen.
 *
 * Random priorities with few changes reach orders that a uniform choice would hardly ever draw, such as one rank far
 * ahead of all others (Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs",
 * 2010). */

#include "compiler/execute/machine.h"

#include <string.h>

static void start(struct exact_machine *m, uint32_t rank, enum exact_program which)
{
    struct exact_rank *r = &m->ranks[rank];
    uint32_t role = m->plan->ranks->ranks[rank].role, next[NQUEUES];
    r->p = which == EXACT_EVAL ? m->plan->eval[role] : m->plan->train[role];
    r->order = ARENA_ARRAY(m->arena, uint32_t, r->p->ninsns + 1u);
    memset(r->count, 0, sizeof r->count);
    memset(r->done, 0, sizeof r->done);
    memset(r->state, 0, sizeof r->state);
    for (uint32_t i = 0; i < r->p->ninsns; i++)
        r->count[r->p->insns[i].queue]++;
    r->first[0] = 0;
    for (uint32_t q = 1; q < NQUEUES; q++)
        r->first[q] = r->first[q - 1] + r->count[q - 1];
    memcpy(next, r->first, sizeof next);
    for (uint32_t i = 0; i < r->p->ninsns; i++)
        r->order[next[r->p->insns[i].queue]++] = i;
}

void exact_forget(struct exact_machine *m, uint32_t rank)
{
    struct exact_rank *r = &m->ranks[rank];
    struct arena_mark mark = arena_mark(m->scratch);
    const struct program *programs[] = {m->plan->train[m->plan->ranks->ranks[rank].role], r->p};
    uint8_t *kept = ARENA_ARRAY(m->scratch, uint8_t, r->memory.nwords + 1);
    for (int k = 0; k < 2; k++)
        for (uint32_t b = 0; b < programs[k]->nbuffers; b++) {
            const struct buffer *x = &programs[k]->buffers[b];
            bool keeps = k ? x->kind == BUFFER_BLOCK : x->kind != BUFFER_STEP && x->kind != BUFFER_METRICS;
            if (keeps && x->offset / 2 + x->bytes / 2 <= r->memory.nwords)
                memset(kept + x->offset / 2, 1, x->bytes / 2);
        }
    for (uint64_t w = 0; w < r->memory.nwords; w++)
        if (!kept[w])
            r->memory.word[w] = 0;
    arena_reset(m->scratch, mark);
}

static uint32_t head(const struct exact_rank *r, uint32_t q)
{
    return r->done[q] < r->count[q] ? r->order[r->first[q] + r->done[q]] : NONE;
}

static bool may_move(const struct exact_machine *m, uint32_t rank, uint32_t q)
{
    const struct exact_rank *r = &m->ranks[rank];
    uint32_t i = head(r, q);
    if (i == NONE)
        return false;
    if (r->state[q] == HEAD_POSTED)
        return exact_complete(m, rank, i);
    if (r->state[q] == HEAD_MOVED)
        return true;
    const struct insn *in = &r->p->insns[i];
    for (uint32_t w = 0; w < in->nwaits; w++)
        if (r->done[r->p->waits[in->wait + w].queue] <= r->p->waits[in->wait + w].position)
            return false;
    return !exact_is_meeting(in) || exact_may_post(m, rank, i);
}

/* Performs one event of a queue that may move. */
static bool advance(struct exact_machine *m, uint32_t rank, uint32_t q)
{
    struct exact_rank *r = &m->ranks[rank];
    uint32_t i = head(r, q);
    bool meeting = exact_is_meeting(&r->p->insns[i]);
    if (meeting && r->state[q] == HEAD_IDLE) {
        r->state[q] = HEAD_POSTED;
        exact_post(m, rank, i);
        return true;
    }
    if (meeting && r->state[q] == HEAD_POSTED)
        return exact_move(m, rank, i);
    if (meeting)
        exact_end(m, rank, i);
    else if (!exact_compute(m, rank, i))
        return false;
    r->state[q] = HEAD_IDLE;
    r->done[q]++;
    m->ninsns++;
    return true;
}

static void shuffle(struct exact_machine *m)
{
    uint32_t n = m->nranks * NQUEUES;
    uint64_t draw = exact_random(m, 256);
    if (draw < 24)
        m->priority[exact_random(m, n)] = (uint8_t)exact_random(m, 256);
    else if (draw == 255)
        for (uint32_t i = 0; i < n; i++)
            m->priority[i] = (uint8_t)exact_random(m, 256);
}

/* Chooses the queue that moves next: that of highest priority, in turn among equals; false: none can move. */
static bool choose(struct exact_machine *m, uint32_t *turn)
{
    uint32_t n = m->nranks * NQUEUES, best = NONE;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = (*turn + k) % n;
        if ((best == NONE || m->priority[i] > m->priority[best]) && may_move(m, i / NQUEUES, i % NQUEUES))
            best = i;
        if (best != NONE && !m->shuffled)
            break;
    }
    *turn = best;
    return best != NONE;
}

static bool all_done(const struct exact_machine *m)
{
    for (uint32_t r = 0; r < m->nranks; r++)
        for (uint32_t q = 0; q < NQUEUES; q++)
            if (m->ranks[r].done[q] < m->ranks[r].count[q])
                return false;
    return true;
}

static bool stuck(struct exact_machine *m)
{
    for (uint32_t r = 0; r < m->nranks; r++)
        for (uint32_t q = 0; q < NQUEUES; q++)
            if (head(&m->ranks[r], q) != NONE)
                return exact_fail(m, r, head(&m->ranks[r], q), "no rank can go on; the first that waits");
    return false;
}

bool exact_run(struct exact_machine *m, enum exact_program which)
{
    struct arena_mark mark = arena_mark(m->arena), step = arena_mark(m->step);
    bool fine;
    m->fours = (struct exact_fours){.arena = m->step};
    for (uint32_t r = 0; r < m->nranks; r++) {
        start(m, r, which);
        if (which != EXACT_MOVE)
            exact_forget(m, r);
    }
    for (uint32_t i = 0; i < m->nranks * NQUEUES; i++)
        m->priority[i] = m->shuffled ? (uint8_t)exact_random(m, 256) : 0;
    fine = exact_meetings(m);
    for (uint32_t turn = 0; fine && choose(m, &turn);) {
        fine = advance(m, turn / NQUEUES, turn % NQUEUES);
        if (m->shuffled)
            shuffle(m);
    }
    if (fine && !all_done(m))
        fine = stuck(m);
    arena_reset(m->arena, mark);
    arena_reset(m->step, step);
    return fine;
}
