/* The engine: start and end of every instruction of every role.
 *
 * Queues run in order and share nothing but rendezvous, so all times follow from maxima alone, and the order in
 * which the engine visits instructions does not matter: no event heap is needed.  An actor (a role's queue) advances
 * until its head waits for a position that another queue has not reached, or for a partner; whoever moves on wakes
 * those who wait for it.  Each instruction is visited once, plus once per time that it blocks an actor: linear.
 *
 * Limits: a wait is within a role; channels are pairs of roles (SLOT_PEER's argument is a pipeline coordinate). */

#include "compiler/simulate/engine.h"
#include "compiler/support/strbuf.h"

#include <assert.h>
#include <string.h>

/* --- meetings --- */

enum { MEET_NONE, MEET_SEND, MEET_RECV, MEET_GROUP };

/* Which kind of meeting an instruction takes part in; *with: the peer's role, or the group's mask if the group spans
 * roles. */
static int meeting_kind(const struct program *p, uint32_t i, uint32_t nroles, uint32_t *with)
{
    const struct insn *insn = &p->insns[i];
    const struct isa_info *info = isa_info(insn->op);
    if (info->unit != UNIT_P2P && info->unit != UNIT_COLLECTIVE)
        return MEET_NONE;
    for (uint32_t k = 0; k < info->nattrs; k++) {
        if (info->attr[k].kind != ATTR_PEER && info->attr[k].kind != ATTR_GROUP)
            continue;
        uint32_t slot = p->attrs[insn->attr + k].slot;
        if (slot >= p->nslots)
            return MEET_NONE;
        *with = p->slots[slot].arg;
        if (info->attr[k].kind == ATTR_PEER)
            return insn->queue == QUEUE_RECV ? MEET_RECV : MEET_SEND;
        bool spans = *with & GROUP_TIE || *with & (1u << AXIS_PP);
        return spans && nroles > 1 ? MEET_GROUP : MEET_NONE;
    }
    return MEET_NONE;
}

#define MAX_MASKS 1024u /* a tie group per pair of roles */
struct builder {
    struct sim_engine *e;
    uint32_t *nsends, *nrecvs, *channel; /* by source * nroles + destination; channel: first meeting */
    uint32_t nmasks, masks[MAX_MASKS], most[MAX_MASKS], group[MAX_MASKS]; /* group: first meeting */
    const char *why;
};

static uint32_t mask_index(struct builder *b, uint32_t mask)
{
    uint32_t k = 0;
    while (k < b->nmasks && b->masks[k] != mask)
        k++;
    if (k == b->nmasks && k < MAX_MASKS)
        b->masks[b->nmasks++] = mask;
    return k;
}

/* Visits every meeting instruction of a role in program order: first (slot_of NULL) counts them, then enters each in
 * its meeting. */
static bool walk_meetings(struct arena *a, struct builder *b, uint32_t role, const uint32_t *slot_of)
{
    struct sim_engine *e = b->e;
    const struct program *p = e->programs[role];
    uint32_t seen[MAX_MASKS] = {0};
    for (uint32_t i = 0; i < p->ninsns; i++) {
        uint32_t with = 0, meeting = NONE, party = 0;
        int kind = meeting_kind(p, i, e->nroles, &with);
        if (kind == MEET_NONE)
            continue;
        if (kind == MEET_GROUP) {
            uint32_t mirror = e->nroles - 1 - role;
            bool tie = with & GROUP_TIE;
            uint32_t k = mask_index(b, tie ? GROUP_TIE | (role < mirror ? role : mirror) : with);
            if (k == MAX_MASKS) {
                b->why = "more than 1024 different groups span roles";
                return false;
            }
            if (tie && role == mirror) {
                b->why = arena_printf(a, "role %u, instruction %u: the role is its own mirror image", role, i);
                return false;
            }
            meeting = b->group[k] + seen[k]++;
            if (seen[k] > b->most[k])
                b->most[k] = seen[k];
            party = tie ? role > mirror : role;
        } else {
            if (with >= e->nroles) {
                b->why = arena_printf(a, "role %u, instruction %u: its peer, role %u, is not one of %u roles", role, i,
                                      with, e->nroles);
                return false;
            }
            size_t channel = kind == MEET_SEND ? (size_t)role * e->nroles + with : (size_t)with * e->nroles + role;
            uint32_t *count = kind == MEET_SEND ? b->nsends : b->nrecvs;
            meeting = b->channel[channel] + count[channel]++;
            party = kind == MEET_RECV;
        }
        if (!slot_of)
            continue;
        struct sim_slot *slot = &e->slots[slot_of[i]];
        struct sim_meeting *m = &e->meetings[meeting];
        slot->meeting = meeting;
        e->parties[m->first + party] = (struct sim_party){.slot = slot_of[i],
                                                          .actor = role * NQUEUES + p->insns[i].queue};
        if (slot->duration_ns > m->duration_ns)
            m->duration_ns = slot->duration_ns;
    }
    return true;
}

static void lay_out_meetings(struct arena *a, struct builder *b)
{
    struct sim_engine *e = b->e;
    size_t nchannels = (size_t)e->nroles * e->nroles, nparties = 0;
    for (size_t c = 0; c < nchannels; c++) {
        uint32_t n = b->nsends[c] > b->nrecvs[c] ? b->nsends[c] : b->nrecvs[c];
        b->channel[c] = e->nmeetings;
        e->nmeetings += n;
        b->nsends[c] = b->nrecvs[c] = 0;
    }
    uint32_t npairs = e->nmeetings;
    for (uint32_t k = 0; k < b->nmasks; k++) {
        b->group[k] = e->nmeetings;
        e->nmeetings += b->most[k];
    }
    e->meetings = ARENA_ARRAY(a, struct sim_meeting, (size_t)e->nmeetings + 1);
    uint32_t mask = 0;
    for (uint32_t i = 0; i < e->nmeetings; i++) {
        while (i >= npairs && mask + 1 < b->nmasks && i >= b->group[mask + 1])
            mask++;
        bool pair = i < npairs || b->masks[mask] & GROUP_TIE;
        e->meetings[i].first = (uint32_t)nparties;
        e->meetings[i].nparties = pair ? 2 : e->nroles;
        nparties += e->meetings[i].nparties;
    }
    e->parties = ARENA_ARRAY(a, struct sim_party, nparties + 1);
    for (size_t i = 0; i < nparties; i++)
        e->parties[i].slot = NONE;
}

/* --- slots --- */

/* The longest duration that an instruction may have, so that no sum over two steps and all roles overflows, whatever
 * sizes a plan claims. */
static int64_t duration_limit_ns(const struct sim_engine *e)
{
    return INT64_MAX / 4 / ((int64_t)e->nslots + 1) / e->nroles;
}

/* Fills the slots of a role's instructions, which take ns[i] each; slot_of[i] = the slot of instruction i. */
static bool fill_slots(struct arena *a, struct sim_engine *e, uint32_t role, const int64_t *ns, uint32_t *slot_of,
                       const char **why)
{
    const struct program *p = e->programs[role];
    struct sim_actor *actors = &e->actors[(size_t)role * NQUEUES];
    int64_t limit_ns = duration_limit_ns(e);
    uint32_t at[NQUEUES] = {0};
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *insn = &p->insns[i];
        uint32_t slot = slot_of[i] = actors[insn->queue].first + at[insn->queue]++;
        e->slots[slot] = (struct sim_slot){.duration_ns = ns[i] < limit_ns ? ns[i] : limit_ns,
                                           .insn = i,
                                           .meeting = NONE,
                                           .wait = insn->wait,
                                           .nwaits = insn->nwaits};
        for (uint32_t k = 0; k < insn->nwaits; k++) {
            const struct wait *w = &p->waits[insn->wait + k];
            if (w->queue < NQUEUES && w->position < actors[w->queue].count)
                continue;
            *why = arena_printf(a, "role %u, instruction %u: waits for position %u of a queue that is shorter", role, i,
                                w->position);
            return false;
        }
    }
    return true;
}

static void count_slots(struct sim_engine *e)
{
    for (uint32_t r = 0; r < e->nroles; r++) {
        const struct program *p = e->programs[r];
        struct sim_actor *actors = &e->actors[(size_t)r * NQUEUES];
        uint32_t at[NPHASES + 1][NQUEUES];
        program_phase_positions(p, at);
        for (uint32_t q = 0; q < NQUEUES; q++) {
            for (uint32_t k = 0; k <= NPHASES; k++)
                actors[q].phase[k] = at[k][q];
            actors[q].count = at[NPHASES][q];
            actors[q].first = e->nslots;
            e->nslots += actors[q].count;
        }
    }
}

bool engine_prepare(struct arena *a, struct sim_engine *e, const struct cost *c, const char **why)
{
    size_t nactors = (size_t)e->nroles * NQUEUES, nchannels = (size_t)e->nroles * e->nroles;
    e->actors = ARENA_ARRAY(a, struct sim_actor, nactors);
    e->stack = ARENA_ARRAY(a, uint32_t, nactors);
    e->begin_ns = ARENA_ARRAY(a, int64_t, e->nroles);
    e->end_ns = ARENA_ARRAY(a, int64_t, e->nroles);
    e->share = c->unit.on || !c->type->cores ? NULL : share_new(a, c, e->nroles);
    count_slots(e);
    e->slots = ARENA_ARRAY(a, struct sim_slot, (size_t)e->nslots + 1);
    e->times = ARENA_ARRAY(a, struct sim_interval, (size_t)e->nslots + 1);
    struct builder b = {.e = e};
    b.nsends = ARENA_ARRAY(a, uint32_t, nchannels);
    b.nrecvs = ARENA_ARRAY(a, uint32_t, nchannels);
    b.channel = ARENA_ARRAY(a, uint32_t, nchannels);
    for (uint32_t r = 0; r < e->nroles; r++) {
        if (!walk_meetings(a, &b, r, NULL)) {
            *why = b.why;
            return false;
        }
    }
    lay_out_meetings(a, &b);
    int64_t **ns = arena_array(a, e->nroles, sizeof *ns);
    for (uint32_t r = 0; r < e->nroles; r++)
        ns[r] = ARENA_ARRAY(a, int64_t, e->programs[r]->ninsns + 1u);
    cost_programs_ns(a, c, e->programs, e->nroles, ns);
    for (uint32_t r = 0; r < e->nroles; r++) {
        struct arena_mark mark = arena_mark(a);
        uint32_t *slot_of = ARENA_ARRAY(a, uint32_t, (size_t)e->programs[r]->ninsns + 1);
        if (!fill_slots(a, e, r, ns[r], slot_of, why))
            return false;
        walk_meetings(a, &b, r, slot_of);
        arena_reset(a, mark);
    }
    return true;
}

/* --- running --- */

static void push(struct sim_engine *e, uint32_t actor)
{
    if (!e->actors[actor].stacked) {
        e->actors[actor].stacked = true;
        e->stack[e->nstack++] = actor;
    }
}

/* The actor's head arrives at its meeting; the last party to arrive runs the meeting for all. */
static void arrive(struct sim_engine *e, uint32_t actor, uint32_t meeting, int64_t ready)
{
    struct sim_meeting *m = &e->meetings[meeting];
    e->actors[actor].arrived = true;
    if (ready > m->ready_ns || m->narrived == 0)
        m->ready_ns = ready;
    if (++m->narrived < m->nparties)
        return;
    struct sim_interval t = {m->ready_ns, m->ready_ns + m->duration_ns};
    for (uint32_t k = 0; k < m->nparties; k++) {
        const struct sim_party *party = &e->parties[m->first + k];
        struct sim_actor *other = &e->actors[party->actor];
        e->times[party->slot] = t;
        other->free_ns = t.end_ns;
        other->next++;
        other->arrived = false;
        push(e, party->actor);
    }
}

static void wake_waiters(struct sim_engine *e, uint32_t actor)
{
    struct sim_actor *act = &e->actors[actor];
    uint32_t base = actor - actor % NQUEUES;
    for (uint32_t q = 0; q < NQUEUES; q++) {
        if (act->waiters >> q & 1 && e->actors[base + q].blocked_position < act->next) {
            act->waiters = (uint8_t)(act->waiters & ~(1u << q));
            push(e, base + q);
        }
    }
}

/* Runs an actor as far as it gets. */
static void advance(struct sim_engine *e, uint32_t actor)
{
    struct sim_actor *act = &e->actors[actor];
    uint32_t role = actor / NQUEUES;
    struct sim_actor *siblings = &e->actors[(size_t)role * NQUEUES];
    const struct wait *waits = e->programs[role]->waits;
    while (act->next < act->stop && !act->arrived) {
        const struct sim_slot *slot = &e->slots[act->first + act->next];
        int64_t ready = act->free_ns;
        for (uint32_t k = 0; k < slot->nwaits; k++) {
            const struct wait *w = &waits[slot->wait + k];
            struct sim_actor *target = &siblings[w->queue];
            if (w->position >= target->next) {
                act->blocked_queue = w->queue;
                act->blocked_position = w->position;
                target->waiters = (uint8_t)(target->waiters | 1u << (actor % NQUEUES));
                goto out;
            }
            int64_t end = e->times[target->first + w->position].end_ns;
            ready = end > ready ? end : ready;
        }
        if (slot->meeting != NONE) {
            arrive(e, actor, slot->meeting, ready);
            continue;
        }
        act->free_ns = ready + slot->duration_ns;
        e->times[act->first + act->next++] = (struct sim_interval){ready, act->free_ns};
    }
out:
    if (act->waiters)
        wake_waiters(e, actor);
}

static bool run_positions(struct sim_engine *e, enum phase from, enum phase to)
{
    uint32_t nactors = e->nroles * NQUEUES;
    for (uint32_t i = 0; i < e->nmeetings; i++)
        e->meetings[i].narrived = 0;
    e->nstack = 0;
    for (uint32_t k = nactors; k-- > 0;) {
        struct sim_actor *act = &e->actors[k];
        act->free_ns = e->end_ns[k / NQUEUES];
        act->next = act->phase[from];
        act->stop = act->phase[to + 1];
        act->waiters = 0;
        act->stacked = act->arrived = false;
        push(e, k);
    }
    if (e->share)
        share_run(e);
    while (!e->share && e->nstack) {
        uint32_t actor = e->stack[--e->nstack];
        e->actors[actor].stacked = false;
        advance(e, actor);
    }
    bool done = true;
    for (uint32_t k = 0; k < nactors; k++) {
        const struct sim_actor *act = &e->actors[k];
        done = done && act->next == act->stop;
        if (act->free_ns > e->end_ns[k / NQUEUES])
            e->end_ns[k / NQUEUES] = act->free_ns;
    }
    return done;
}

bool engine_run(struct sim_engine *e)
{
    memcpy(e->begin_ns, e->end_ns, e->nroles * sizeof *e->begin_ns);
    return run_positions(e, PHASE_EARLY, PHASE_CHECK);
}

bool engine_run_phase(struct sim_engine *e, enum phase which)
{
    if (which == PHASE_EARLY)
        memcpy(e->begin_ns, e->end_ns, e->nroles * sizeof *e->begin_ns);
    return run_positions(e, which, which);
}

int64_t engine_ready(const struct sim_engine *e, uint32_t actor, uint32_t slot)
{
    const struct sim_actor *act = &e->actors[actor], *siblings = act - actor % NQUEUES;
    const struct wait *waits = e->programs[actor / NQUEUES]->waits;
    int64_t ready = slot > act->first ? e->times[slot - 1].end_ns : e->begin_ns[actor / NQUEUES];
    for (uint32_t k = 0; k < e->slots[slot].nwaits; k++) {
        const struct wait *w = &waits[e->slots[slot].wait + k];
        int64_t end = e->times[siblings[w->queue].first + w->position].end_ns;
        ready = end > ready ? end : ready;
    }
    return ready;
}

/* --- stuck --- */

static void describe_insn(struct strbuf *b, const struct program *p, uint32_t i)
{
    const struct insn *insn = &p->insns[i];
    if (insn->action && insn->microbatch != NONE)
        strbuf_printf(b, "%c%u ", insn->action, insn->microbatch);
    else if (insn->action)
        strbuf_printf(b, "%c ", insn->action);
    strbuf_printf(b, "%s (instruction %u)", isa_info(insn->op)->name, i);
}

static void describe_blocked(struct strbuf *b, const struct sim_engine *e, uint32_t actor)
{
    const struct sim_actor *act = &e->actors[actor];
    uint32_t role = actor / NQUEUES;
    const struct program *p = e->programs[role];
    const struct sim_slot *slot = &e->slots[act->first + act->next];
    strbuf_printf(b, "role %u ", role);
    describe_insn(b, p, slot->insn);
    if (!act->arrived) {
        const struct sim_actor *target = act - actor % NQUEUES + act->blocked_queue;
        strbuf_text(b, " waits for ");
        describe_insn(b, p, e->slots[target->first + act->blocked_position].insn);
        return;
    }
    const struct sim_meeting *m = &e->meetings[slot->meeting];
    for (uint32_t k = 0; k < m->nparties; k++) {
        const struct sim_party *party = &e->parties[m->first + k];
        const struct sim_actor *other = &e->actors[party->actor];
        if (party->slot == NONE) {
            strbuf_text(b, " waits for a partner that has no such instruction");
            return;
        }
        if (other->arrived && party->slot == other->first + other->next)
            continue;
        strbuf_printf(b, " waits for role %u ", party->actor / NQUEUES);
        describe_insn(b, e->programs[party->actor / NQUEUES], e->slots[party->slot].insn);
        return;
    }
}

const char *engine_stuck(struct arena *a, const struct sim_engine *e)
{
    struct strbuf b = {0};
    strbuf_text(&b, "deadlock: ");
    uint32_t shown = 0;
    for (uint32_t r = 0; r < e->nroles; r++) {
        /* the blocked head that comes first in the program is the most telling */
        uint32_t best = NONE, best_insn = NONE;
        for (uint32_t k = r * NQUEUES; k < (r + 1) * NQUEUES; k++) {
            const struct sim_actor *act = &e->actors[k];
            if (act->next == act->count)
                continue;
            uint32_t insn = e->slots[act->first + act->next].insn;
            if (insn < best_insn) {
                best = k;
                best_insn = insn;
            }
        }
        if (best == NONE)
            continue;
        if (shown++)
            strbuf_text(&b, "; ");
        if (shown > 6) {
            strbuf_text(&b, "...");
            break;
        }
        describe_blocked(&b, e, best);
    }
    const char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}
