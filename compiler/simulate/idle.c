/* Why the compute queue was idle: simulate.h states the rules; this file applies them in integers.
 *
 * Before instruction i the queue idles from `a` to `b`, the start of i.  D is the wait of i that ended last (the
 * first listed of several); it ran during [D.start, b].  The part of [a, b] within that interval is exposed
 * communication.  The rest passed before D could start: the predecessor that determined D's start (its partner's
 * readiness, its queue, its waits) is followed back to a role other than ours, or until nothing of ours ended later
 * than `a`.  IMBALANCE is taken out of WAIT at the end.  A transfer on the compute queue itself counts as exposed,
 * not as busy. */

#include "compiler/simulate/engine.h"

#include "compiler/support/vec.h"

const char *const idle_names[NIDLE] = {"warm-up", "cool-down", "exposed comm", "wait", "imbalance"};

static bool is_transfer(const struct program *p, const struct sim_slot *slot)
{
    enum unit u = isa_info(p->insns[slot->insn].op)->unit;
    return u == UNIT_P2P || u == UNIT_COLLECTIVE;
}

static bool is_work(char action)
{
    return action == 'F' || action == 'B' || action == 'I' || action == 'W';
}

struct place {
    uint32_t actor, slot;
};

/* the wait of a slot that ended last, the first listed of several; slot NONE if it has no wait */
static struct place last_wait(const struct sim_engine *e, struct place here)
{
    uint32_t base = here.actor - here.actor % NQUEUES;
    struct place best = {.slot = NONE};
    int64_t best_end = INT64_MIN;
    const struct sim_slot *slot = &e->slots[here.slot];
    for (uint32_t k = 0; k < slot->nwaits; k++) {
        const struct wait *w = &e->programs[here.actor / NQUEUES]->waits[slot->wait + k];
        struct place target = {base + w->queue, e->actors[base + w->queue].first + w->position};
        int64_t end = e->times[target.slot].end_ns;
        bool later = end > e->times[here.slot].start_ns; /* a check's wait on the previous step */
        if (!later && end > best_end) {
            best = target;
            best_end = end;
        }
    }
    return best;
}

/* The party of a slot's meeting that was ready last; among equals one of another role. */
static struct place last_party(const struct sim_engine *e, struct place here)
{
    uint32_t meeting = e->slots[here.slot].meeting;
    if (meeting == NONE)
        return here;
    const struct sim_meeting *m = &e->meetings[meeting];
    struct place best = here;
    int64_t best_ready = INT64_MIN;
    for (uint32_t k = 0; k < m->nparties; k++) {
        struct place p = {e->parties[m->first + k].actor, e->parties[m->first + k].slot};
        int64_t ready = engine_ready(e, p.actor, p.slot);
        bool foreign = p.actor / NQUEUES != here.actor / NQUEUES && best.actor / NQUEUES == here.actor / NQUEUES;
        if (ready > best_ready || (ready == best_ready && foreign)) {
            best = p;
            best_ready = ready;
        }
    }
    return best;
}

/* Returns the role that kept D from starting earlier, looking back no further than `since`. */
static uint32_t whom(const struct sim_engine *e, struct place d, int64_t since)
{
    uint32_t self = d.actor / NQUEUES;
    while (e->times[d.slot].start_ns > since) {
        struct place p = last_party(e, d);
        if (p.actor / NQUEUES != self)
            return p.actor / NQUEUES;
        const struct sim_actor *act = &e->actors[d.actor];
        struct place next = last_wait(e, d);
        bool has_before = d.slot > act->first;
        if (has_before && (next.slot == NONE || e->times[d.slot - 1].end_ns >= e->times[next.slot].end_ns))
            next = (struct place){d.actor, d.slot - 1};
        if (next.slot == NONE)
            break;
        d = next;
    }
    return self;
}

struct idle_run {
    struct arena *arena;
    const struct sim_engine *e;
    uint32_t role;
    struct sim_role *r;
    int64_t work_ns;    /* compute time in F, B, I and W */
    uint32_t warm_end;  /* slots before this one belong to the first F action or precede it */
    uint32_t last_work; /* slot of the last instruction of an F, B, I or W; NONE */
    VEC(struct sim_idle) idles;
};

/* Adds an interval, if it is not empty, to the role's list and sums. */
static void add_idle(struct idle_run *run, struct sim_idle x)
{
    if (x.start_ns >= x.end_ns)
        return;
    run->r->idle_ns[x.cause] += x.end_ns - x.start_ns;
    if (x.cause == IDLE_WAIT)
        run->r->waited_ns[x.who] += x.end_ns - x.start_ns;
    vec_push(run->arena, &run->idles, x);
}

static void find_phases(struct idle_run *run)
{
    const struct sim_engine *e = run->e;
    const struct program *p = e->programs[run->role];
    const struct sim_actor *act = &e->actors[(size_t)run->role * NQUEUES + QUEUE_COMPUTE];
    run->warm_end = act->first;
    run->last_work = NONE;
    const struct insn *first = NULL;
    for (uint32_t s = act->first; s < act->first + act->count; s++) {
        const struct insn *insn = &p->insns[e->slots[s].insn];
        if (!first && insn->action == 'F')
            first = insn;
        if (first && insn->action == 'F' && insn->stage == first->stage && insn->microbatch == first->microbatch)
            run->warm_end = s + 1;
        if (is_work(insn->action))
            run->last_work = s;
    }
}

static enum idle_cause phase(const struct idle_run *run, uint32_t slot)
{
    if (slot < run->warm_end)
        return IDLE_WARMUP;
    return run->last_work == NONE || slot > run->last_work ? IDLE_COOLDOWN : IDLE_WAIT;
}

/* Attributes the idle time from `from` until the slot's start. */
static void attribute_gap(struct idle_run *run, struct place here, int64_t from)
{
    const struct sim_engine *e = run->e;
    int64_t start = e->times[here.slot].start_ns, comm = start;
    struct sim_idle x = {from, start, phase(run, here.slot), e->slots[here.slot].insn, NONE, run->role};
    struct place d = {.slot = NONE};
    if (e->slots[here.slot].meeting != NONE) {
        x.who = whom(e, here, from);
    } else {
        d = last_wait(e, here);
        if (d.slot != NONE) {
            comm = e->times[d.slot].start_ns > from ? e->times[d.slot].start_ns : from;
            x.on = e->slots[d.slot].insn;
        }
        if (d.slot != NONE && comm > from)
            x.who = whom(e, d, from);
    }
    x.end_ns = comm;
    add_idle(run, x);
    add_idle(run, (struct sim_idle){comm, start, IDLE_COMM, x.insn, x.on, run->role});
}

/* position of the k-th instruction in order of time: the early phase, the check, the body */
static uint32_t nth_in_time(const struct sim_actor *act, uint32_t k)
{
    uint32_t early = act->phase[PHASE_BODY], check = act->count - act->phase[PHASE_CHECK];
    return k < early ? k : k < early + check ? act->phase[PHASE_CHECK] + k - early : k - check;
}

static void attribute_role(struct idle_run *run, int64_t step_ns)
{
    const struct sim_engine *e = run->e;
    const struct program *p = e->programs[run->role];
    uint32_t actor = run->role * NQUEUES + QUEUE_COMPUTE;
    const struct sim_actor *act = &e->actors[actor];
    int64_t at = e->begin_ns[run->role];
    find_phases(run);
    run->r->first_ns = run->r->last_ns = at;
    for (uint32_t k = 0; k < act->count; k++) {
        uint32_t s = act->first + nth_in_time(act, k);
        struct sim_interval t = e->times[s];
        if (k == 0)
            run->r->first_ns = t.start_ns;
        if (t.start_ns > at)
            attribute_gap(run, (struct place){actor, s}, at);
        if (is_transfer(p, &e->slots[s])) {
            add_idle(run, (struct sim_idle){t.start_ns, t.end_ns, IDLE_COMM, e->slots[s].insn, NONE, run->role});
        } else {
            run->r->busy_ns += t.end_ns - t.start_ns;
            if (is_work(p->insns[e->slots[s].insn].action))
                run->work_ns += t.end_ns - t.start_ns;
        }
        at = run->r->last_ns = t.end_ns;
    }
    add_idle(run, (struct sim_idle){at, step_ns + e->begin_ns[run->role], IDLE_COOLDOWN, NONE, NONE, run->role});
    run->r->idles = run->idles.at;
    run->r->nidles = (uint32_t)run->idles.n;
}

void idle_attribute(struct arena *a, const struct sim_engine *e, struct timeline *t)
{
    struct idle_run *runs = ARENA_ARRAY(a, struct idle_run, e->nroles);
    int64_t slowest = 0;
    for (uint32_t r = 0; r < e->nroles; r++) {
        runs[r] = (struct idle_run){.arena = a, .e = e, .role = r, .r = &t->roles[r]};
        t->roles[r].waited_ns = ARENA_ARRAY(a, int64_t, e->nroles);
        attribute_role(&runs[r], t->step_ns);
        slowest = runs[r].work_ns > slowest ? runs[r].work_ns : slowest;
    }
    for (uint32_t r = 0; r < e->nroles; r++) {
        int64_t *idle = t->roles[r].idle_ns, lag = slowest - runs[r].work_ns;
        idle[IDLE_IMBALANCE] = idle[IDLE_WAIT] < lag ? idle[IDLE_WAIT] : lag;
        idle[IDLE_WAIT] -= idle[IDLE_IMBALANCE];
        for (uint32_t k = 0; k < NIDLE; k++)
            t->idle_ns[k] += idle[k];
    }
    int64_t bubble = t->idle_ns[IDLE_WARMUP] + t->idle_ns[IDLE_COOLDOWN] + t->idle_ns[IDLE_WAIT] +
                     t->idle_ns[IDLE_IMBALANCE];
    double whole = (double)t->step_ns * e->nroles;
    t->bubble_fraction = whole > 0 ? (double)bubble / whole : 0;
    t->exposed_comm_fraction = whole > 0 ? (double)t->idle_ns[IDLE_COMM] / whole : 0;
}
