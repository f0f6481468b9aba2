/* Instructions that take their planned time instead of being done.  Meetings are held, on one element of each part, so
 * that ranks wait for each other as they would. */

#include "runtime/exec_play.h"

/* members meet, and nothing else moves */
static void make_small(struct meeting *m)
{
    uint32_t parts = m->x.rows > m->y.rows ? m->x.rows / (m->y.rows ? m->y.rows : 1) : 1;
    uint32_t gathered = m->y.rows > m->x.rows ? m->y.rows / (m->x.rows ? m->x.rows : 1) : 1;
    if (m->op == OP_ALL_TO_ALL)
        return;
    m->x.rows = parts;
    m->y.rows = gathered;
    m->x.cols = m->y.cols = 1;
}

/* When a head is ready: when what it waited for has ended by plan, which may be a moment before this process was woken
 * to see it, so that waking late does not add up.  A meeting starts when the last member is ready. */
static int64_t start_of(const struct play *play, uint32_t q, uint32_t i)
{
    const struct insn *in = &play->p->insns[i];
    uint32_t at = play->done[q];
    int64_t start = at ? play->ended_ns[play->order[play->first[q] + at - 1]] : play->began_ns;
    for (uint32_t w = 0; w < in->nwaits; w++) {
        const struct wait *wait = &play->p->waits[in->wait + w];
        int64_t end = play->ended_ns[play->order[play->first[wait->queue] + wait->position]];
        start = end > start ? end : start;
    }
    return start;
}

enum progress exec_try_paced(struct exec *e, struct play *play, uint32_t q, uint32_t i)
{
    int64_t now = world_now_ns();
    if (!play->started[q]) {
        int64_t start = start_of(play, q, i);
        if (insn_is_meeting(&play->p->insns[i])) {
            struct meeting m;
            bool posted = false;
            exec_make_meeting(e, play, i, &m);
            make_small(&m);
            m.ready_ns = start;
            if (!play->open[q]) {
                enum meeting_state st = transport_post(e->transport, &m);
                if (st == MEETING_REFUSED || st == MEETING_FAILED)
                    return st == MEETING_FAILED ? BROKEN : STUCK;
                play->open[q] = posted = true;
            }
            if (transport_poll(e->transport, &m) != MEETING_DONE)
                return posted ? MOVED : STUCK;
            exec_met(e, play, q, &m);
            start = transport_latest(e->transport, &m);
        }
        play->started[q] = true;
        play->until_ns[q] = start + e->s.pace_ns[e->s.ranks->ranks[e->s.world->rank].role][i];
        if (play->trace)
            play->trace[i] = (struct trace_span){.start_ns = start, .end_ns = play->until_ns[q]};
    }
    if (now < play->until_ns[q])
        return STUCK;
    play->started[q] = false;
    play->ended_ns[i] = play->until_ns[q];
    return ENDED;
}

/* a tenth of a second if no head runs */
int64_t exec_paced_rest(const struct play *play)
{
    int64_t first = INT64_MAX, now = world_now_ns();
    for (uint32_t q = 0; q < NQUEUES; q++)
        first = play->started[q] && play->until_ns[q] < first ? play->until_ns[q] : first;
    return first == INT64_MAX ? 100000000 : first > now ? first - now : 0;
}
