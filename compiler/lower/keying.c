/* Keying simulation: one rank per role, queues in program order, but for transfers a queue per channel and direction
 * (a channel is what two neighbouring stages send each other in one direction).  An event loop by start time; events
 * are numbered in the order in which they are taken. */

#include "compiler/lower/order.h"

#include "compiler/support/heap.h"
#include "compiler/support/parallel.h"

#include <assert.h>
#include <stdlib.h>

/* by opcode: index of its PEER or GROUP attribute; NONE: it has no partners */
static void find_meetings(uint32_t attr[NOPS])
{
    for (enum op op = 0; op < NOPS; op++) {
        const struct isa_info *info = isa_info(op);
        bool meets = info->unit == UNIT_P2P || info->unit == UNIT_COLLECTIVE;
        attr[op] = NONE;
        for (uint32_t k = 0; meets && k < info->nattrs && attr[op] == NONE; k++)
            if (info->attr[k].kind == ATTR_PEER || info->attr[k].kind == ATTR_GROUP)
                attr[op] = k;
    }
}

static uint32_t vqueue_of(const struct role *r, uint32_t i)
{
    uint32_t channel = r->channels[i];
    if (channel == NONE)
        return r->p->insns[i].queue;
    bool sends = r->p->insns[i].op == OP_SEND;
    for (uint32_t v = NQUEUES;; v++)
        if (r->vqueue[v].channel == channel && r->vqueue[v].sends == sends)
            return v;
}

/* the ends of every channel: [2c] sends, [2c + 1] receives */
struct ends {
    uint32_t n;
    uint32_t (*at)[2]; /* role, virtual queue */
};

static void find_vqueues(struct arena *a, struct role *r, uint32_t index, struct ends *ends)
{
    const struct program *p = r->p;
    VEC(struct vqueue) all = {0};
    for (uint32_t q = 0; q < NQUEUES; q++)
        vec_push(a, &all, ((struct vqueue){.channel = NONE, .next_waiter = NO_INSN}));
    for (uint32_t i = 0; i < p->ninsns; i++) {
        if (r->channels[i] == NONE)
            continue;
        bool sends = p->insns[i].op == OP_SEND;
        uint32_t *end = ends->at[2 * r->channels[i] + !sends];
        if (end[0] != NONE)
            continue;
        end[0] = index;
        end[1] = (uint32_t)all.n;
        vec_push(a, &all, ((struct vqueue){.channel = r->channels[i], .sends = sends, .next_waiter = NO_INSN}));
    }
    r->vqueue = all.at;
    r->nvqueues = (uint32_t)all.n;
}

static void join_ends(struct role *roles, uint32_t nroles, const struct ends *ends)
{
    for (uint32_t r = 0; r < nroles; r++)
        for (uint32_t v = NQUEUES; v < roles[r].nvqueues; v++) {
            struct vqueue *q = &roles[r].vqueue[v];
            const uint32_t *other = ends->at[2 * q->channel + q->sends];
            q->peer = other[0];
            q->peer_vqueue = other[1];
        }
}

static void prepare_role(void *roles, uint32_t index)
{
    struct role *r = (struct role *)roles + index;
    struct program *p = r->p;
    struct arena *a = r->arena;
    uint32_t *of = ARENA_ARRAY(a, uint32_t, p->ninsns);
    for (uint32_t i = 0; i < p->ninsns; i++)
        r->vqueue[of[i] = vqueue_of(r, i)].length++;
    for (uint32_t v = 0; v < r->nvqueues; v++) {
        r->vqueue[v].insn = ARENA_ARRAY(a, uint32_t, r->vqueue[v].length);
        r->vqueue[v].length = 0;
    }
    r->start = ARENA_ARRAY(a, int64_t, p->ninsns);
    r->end = ARENA_ARRAY(a, int64_t, p->ninsns);
    r->waiter = ARENA_ARRAY(a, uint32_t, p->ninsns);
    r->takes_ns = ARENA_ARRAY(a, int64_t, p->ninsns);
    r->order = ARENA_ARRAY(a, uint32_t, p->ninsns);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        struct vqueue *q = &r->vqueue[of[i]];
        q->insn[q->length++] = i;
        r->waiter[i] = NO_INSN;
        r->end[i] = -1;
    }
}

struct event {
    int64_t start;
    uint32_t role, vqueue;
};

struct keying {
    struct arena *arena;
    struct role *roles;
    uint32_t nroles, seq;
    uint32_t meeting[NOPS]; /* attributes by opcode */
    VEC(struct event) heap;
};

/* the slot of an instruction's PEER or GROUP attribute, or NULL */
static const struct slot *meeting_slot(const struct keying *k, const struct program *p, uint32_t i)
{
    uint32_t attr = k->meeting[p->insns[i].op];
    return attr == NONE ? NULL : &p->slots[p->attrs[p->insns[i].attr + attr].slot];
}

static bool before(const struct event *x, const struct event *y)
{
    if (x->start != y->start)
        return x->start < y->start;
    return x->role != y->role ? x->role < y->role : x->vqueue < y->vqueue;
}

HEAP(events, struct event, before)

/* Stores the roles that meet in the head instruction of a queue as (role, virtual queue) pairs, its own first;
 * returns how many. */
static uint32_t parties(const struct keying *k, uint32_t role, uint32_t vqueue, struct event out[])
{
    const struct role *r = &k->roles[role];
    const struct vqueue *q = &r->vqueue[vqueue];
    out[0] = (struct event){0, role, vqueue};
    if (q->channel != NONE) {
        out[1] = (struct event){0, q->peer, q->peer_vqueue};
        return 2;
    }
    const struct slot *s = meeting_slot(k, r->p, q->insn[q->head]);
    if (!s || s->kind != SLOT_GROUP || !(s->arg & (GROUP_TIE | AXIS_BIT(AXIS_PP))))
        return 1;
    uint32_t n = 1, mirror = k->nroles - 1 - role;
    for (uint32_t x = 0; x < k->nroles; x++)
        if (x != role && (!(s->arg & GROUP_TIE) || x == mirror))
            out[n++] = (struct event){0, x, vqueue};
    return n;
}

/* Is the other role's head part of the same meeting, and ready?  Raises *ready to its time. */
static bool partner_ready(const struct keying *k, const struct slot *s, struct event other, int64_t *ready)
{
    const struct role *r = &k->roles[other.role];
    const struct vqueue *q = &r->vqueue[other.vqueue];
    if (!q->ready)
        return false;
    const struct slot *t = meeting_slot(k, r->p, q->insn[q->head]);
    if (s->kind == SLOT_GROUP && (!t || t->kind != s->kind || t->arg != s->arg))
        return false;
    if (q->ready_ns > *ready)
        *ready = q->ready_ns;
    return true;
}

/* Offers the head of a queue: once its dependences have run, it meets its partners; when all of them are ready, it
 * becomes an event. */
static void offer_head(struct keying *k, uint32_t role, uint32_t vqueue, struct event scratch[])
{
    struct role *r = &k->roles[role];
    struct vqueue *q = &r->vqueue[vqueue];
    if (q->head >= q->length)
        return;
    uint32_t i = q->insn[q->head];
    int64_t ready = q->free_ns;
    for (uint32_t d = r->deps.first[i]; d < r->deps.first[i + 1]; d++) {
        uint32_t from = r->deps.list.at[d];
        if (r->end[from] < 0) {
            q->next_waiter = r->waiter[from];
            r->waiter[from] = vqueue;
            return;
        }
        if (r->end[from] > ready)
            ready = r->end[from];
    }
    q->ready = true;
    q->ready_ns = ready;
    uint32_t n = parties(k, role, vqueue, scratch);
    const struct slot *meeting = meeting_slot(k, r->p, i);
    for (uint32_t x = 1; x < n; x++)
        if (!partner_ready(k, meeting, scratch[x], &ready))
            return;
    vec_reserve(k->arena, &k->heap, k->heap.n + 1);
    events_push(k->heap.at, k->heap.n++, (struct event){ready, role, vqueue});
}

static void run_event(struct keying *k, struct event e, struct event met[], struct event scratch[])
{
    uint32_t n = parties(k, e.role, e.vqueue, met);
    int64_t duration = 0;
    for (uint32_t x = 0; x < n; x++) {
        const struct role *r = &k->roles[met[x].role];
        const struct vqueue *q = &r->vqueue[met[x].vqueue];
        uint32_t i = q->insn[q->head];
        if (r->takes_ns[i] > duration)
            duration = r->takes_ns[i];
    }
    for (uint32_t x = 0; x < n; x++) {
        struct role *r = &k->roles[met[x].role];
        struct vqueue *q = &r->vqueue[met[x].vqueue];
        uint32_t i = q->insn[q->head++];
        r->p->insns[i].seq = k->seq;
        r->order[r->norder++] = i;
        r->start[i] = e.start;
        r->end[i] = q->free_ns = e.start + duration;
        q->ready = false;
        met[x].start = i;
    }
    k->seq++;
    for (uint32_t x = 0; x < n; x++) {
        struct role *r = &k->roles[met[x].role];
        offer_head(k, met[x].role, met[x].vqueue, scratch);
        for (uint32_t v = r->waiter[met[x].start], next; v != NO_INSN; v = next) {
            next = r->vqueue[v].next_waiter;
            offer_head(k, met[x].role, v, scratch);
        }
    }
}

void lower_key(struct arena *a, const struct cost *c, struct role *roles, uint32_t nroles)
{
    struct keying k = {.arena = a, .roles = roles, .nroles = nroles};
    struct event *met = ARENA_ARRAY(a, struct event, nroles + 2), *scratch = ARENA_ARRAY(a, struct event, nroles + 2);
    struct ends ends = {0};
    find_meetings(k.meeting);
    for (uint32_t r = 0; r < nroles; r++)
        for (uint32_t i = 0; i < roles[r].p->ninsns; i++)
            if (roles[r].channels[i] != NONE && roles[r].channels[i] >= ends.n)
                ends.n = roles[r].channels[i] + 1;
    ends.at = arena_array(a, 2 * (size_t)ends.n + 1, sizeof *ends.at);
    memset(ends.at, 0xff, 2 * (size_t)ends.n * sizeof *ends.at);
    for (uint32_t r = 0; r < nroles; r++)
        find_vqueues(a, &roles[r], r, &ends);
    join_ends(roles, nroles, &ends);
    parallel_each(nroles, prepare_role, roles);
    const struct program **programs = arena_array(a, nroles, sizeof *programs);
    int64_t **takes_ns = arena_array(a, nroles, sizeof *takes_ns);
    for (uint32_t r = 0; r < nroles; r++) {
        programs[r] = roles[r].p;
        takes_ns[r] = roles[r].takes_ns;
    }
    cost_programs_ns(a, c, programs, nroles, takes_ns);
    for (uint32_t r = 0; r < nroles; r++)
        for (uint32_t v = 0; v < roles[r].nvqueues; v++)
            offer_head(&k, r, v, scratch);
    while (k.heap.n)
        run_event(&k, events_pop(k.heap.at, k.heap.n--), met, scratch);
    for (uint32_t r = 0; r < nroles; r++)
        for (uint32_t v = 0; v < roles[r].nvqueues; v++)
            assert(roles[r].vqueue[v].head == roles[r].vqueue[v].length);
}
