/* Order: when each transfer and collective is issued, how deep rings are, who waits for whom.
 *
 * 1. Dependences of every role's instructions (in program order) from what their operands read and write, rings unlimited.
 * 2. Keying simulation: one rank per role, queues in program order but transfers with a queue per channel and direction
 *    (a channel is what two neighbouring stages send each other in one direction); an event loop by start time.  The
 *    number of the event is `seq`: equal for all parties of a rendezvous, growing along
 *    every queue and every dependence, so the merged graph is acyclic whatever the durations.
 * 3. A ring is as deep as the most slots in flight in that run; a slot is used again only where its last user ended
 *    before the next writer started.
 * 4. Instructions are sorted by seq, which orders the send and receive queues by simulated start (the "timed" rule), and
 *    every dependence between queues that the vector clocks do not yet imply becomes a wait.
 *
 * Cost: O(n log q) for n instructions and q queues. */

#include "compiler/lower/build.h"

#include <assert.h>
#include <stdlib.h>

#define NO_INSN UINT32_MAX

struct deps {
    uint32_t *first; /* [n + 1] */
    VEC(uint32_t) list;
};

/* an in-order queue of the keying run: one of the program's, or a channel's sends or receives of one role */
struct vqueue {
    uint32_t *insn, length, head;
    uint32_t channel;           /* NONE = one of the program's queues */
    uint32_t peer, peer_vqueue; /* of a channel: its other end */
    bool sends;
    uint32_t next_waiter;
    int64_t free_ns, ready_ns; /* ready: of a head that waits for its partners */
    bool ready;
};

struct role {
    struct program *p;
    const uint32_t *instances, *channels;
    uint32_t *depth; /* per ring */
    struct deps deps;
    uint32_t nvqueues;
    struct vqueue *vqueue;
    int64_t *start, *end;
    uint32_t *waiter; /* per instruction: first virtual queue whose head waits for it, or NO_INSN */
    bool *first_of_action;
};

/* ---- 1. dependences ---- */

struct access_state {
    uint32_t write, read[NQUEUES];
};

static void add_dep(struct arena *a, struct role *r, uint32_t from, uint32_t i)
{
    if (from == NO_INSN || from == i || r->p->insns[from].queue == r->p->insns[i].queue)
        return;
    size_t first = r->deps.first[i];
    for (size_t k = first; k < r->deps.list.n; k++)
        if (r->deps.list.at[k] == from)
            return;
    vec_push(a, &r->deps.list, from);
}

static uint32_t state_of(const struct role *r, const uint32_t *base, uint32_t operand)
{
    uint32_t buffer = r->p->operands[operand].buffer, ring = r->p->buffers[buffer].ring;
    return base[buffer] + (ring == NONE ? 0 : r->instances[operand] % r->depth[ring]);
}

static bool writes(const struct operand *o)
{
    return o->mark != MARK_READ;
}

static void find_deps(struct arena *a, struct role *r)
{
    struct program *p = r->p;
    uint32_t *base = ARENA_ARRAY(a, uint32_t, p->nbuffers + 1), nstates = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++) {
        base[b] = nstates;
        nstates += p->buffers[b].ring == NONE ? 1 : r->depth[p->buffers[b].ring];
    }
    struct access_state *state = ARENA_ARRAY(a, struct access_state, nstates);
    memset(state, 0xff, nstates * sizeof *state);
    r->deps.first = ARENA_ARRAY(a, uint32_t, p->ninsns + 1);
    r->deps.list.n = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        const struct isa_info *info = isa_info((enum op)n->op);
        r->deps.first[i] = (uint32_t)r->deps.list.n;
        for (uint32_t k = n->operand; k < n->operand + info->noperands; k++) {
            if (p->operands[k].buffer == NONE)
                continue;
            const struct access_state *s = &state[state_of(r, base, k)];
            add_dep(a, r, s->write, i);
            for (uint32_t q = 0; writes(&p->operands[k]) && q < NQUEUES; q++)
                add_dep(a, r, s->read[q], i);
        }
        for (uint32_t k = n->operand; k < n->operand + info->noperands; k++) {
            if (p->operands[k].buffer == NONE)
                continue;
            struct access_state *s = &state[state_of(r, base, k)];
            if (writes(&p->operands[k])) {
                memset(s, 0xff, sizeof *s);
                s->write = i;
            } else if (s->write != i) {
                s->read[n->queue] = i;
            }
        }
    }
    r->deps.first[p->ninsns] = (uint32_t)r->deps.list.n;
}

/* ---- 2. keying simulation ---- */

/* what an instruction meets others for: the slot of its PEER or GROUP attribute */
static const struct slot *meeting_slot(const struct program *p, uint32_t i)
{
    const struct isa_info *info = isa_info((enum op)p->insns[i].op);
    for (uint32_t k = 0; k < info->nattrs; k++)
        if (info->attr[k].kind == ATTR_PEER || info->attr[k].kind == ATTR_GROUP)
            return &p->slots[p->attrs[p->insns[i].attr + k].slot];
    return NULL;
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
        vec_push(a, &all,
                 ((struct vqueue){.channel = r->channels[i], .sends = sends, .next_waiter = NO_INSN}));
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

static void prepare_role(struct arena *a, struct role *r)
{
    struct program *p = r->p;
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
    r->first_of_action = ARENA_ARRAY(a, bool, p->ninsns);
    struct cost_actions actions = {0};
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        struct vqueue *q = &r->vqueue[of[i]];
        q->insn[q->length++] = i;
        r->waiter[i] = NO_INSN;
        r->end[i] = -1;
        if (n->queue == QUEUE_COMPUTE)
            r->first_of_action[i] = cost_starts_action(&actions, n);
    }
}

struct event {
    int64_t start;
    uint32_t role, vqueue;
};

struct keying {
    struct arena *arena;
    const struct cost *cost;
    struct role *roles;
    uint32_t nroles, seq;
    VEC(struct event) heap;
};

static bool before(struct event x, struct event y)
{
    if (x.start != y.start)
        return x.start < y.start;
    return x.role != y.role ? x.role < y.role : x.vqueue < y.vqueue;
}

static void heap_push(struct keying *k, struct event e)
{
    vec_push(k->arena, &k->heap, e);
    size_t i = k->heap.n - 1;
    for (; i && before(e, k->heap.at[(i - 1) / 2]); i = (i - 1) / 2)
        k->heap.at[i] = k->heap.at[(i - 1) / 2];
    k->heap.at[i] = e;
}

static struct event heap_pop(struct keying *k)
{
    struct event top = k->heap.at[0], e = k->heap.at[--k->heap.n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < k->heap.n; i = child) {
        if (child + 1 < k->heap.n && before(k->heap.at[child + 1], k->heap.at[child]))
            child++;
        if (!before(k->heap.at[child], e))
            break;
        k->heap.at[i] = k->heap.at[child];
    }
    k->heap.at[i] = e;
    return top;
}

/* roles that meet in an instruction, as (role, virtual queue) pairs; its own first */
static uint32_t parties(const struct keying *k, uint32_t role, uint32_t vqueue, struct event out[])
{
    const struct role *r = &k->roles[role];
    const struct vqueue *q = &r->vqueue[vqueue];
    out[0] = (struct event){0, role, vqueue};
    if (q->channel != NONE) {
        out[1] = (struct event){0, q->peer, q->peer_vqueue};
        return 2;
    }
    const struct slot *s = meeting_slot(r->p, q->insn[q->head]);
    if (!s || s->kind != SLOT_GROUP || !(s->arg & (GROUP_TIE | AXIS_BIT(AXIS_PP))))
        return 1;
    uint32_t n = 1, mirror = k->nroles - 1 - role;
    for (uint32_t x = 0; x < k->nroles; x++)
        if (x != role && (!(s->arg & GROUP_TIE) || x == mirror))
            out[n++] = (struct event){0, x, vqueue};
    return n;
}

/* is the other role's head the same meeting, and ready */
static bool partner_ready(const struct keying *k, const struct slot *s, struct event other, int64_t *ready)
{
    const struct role *r = &k->roles[other.role];
    const struct vqueue *q = &r->vqueue[other.vqueue];
    if (!q->ready)
        return false;
    const struct slot *t = meeting_slot(r->p, q->insn[q->head]);
    if (s->kind == SLOT_GROUP && (!t || t->kind != s->kind || t->arg != s->arg))
        return false;
    if (q->ready_ns > *ready)
        *ready = q->ready_ns;
    return true;
}

/* the head of a queue: when its dependences are known, meet its partners; when all are there, it is an event */
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
    const struct slot *meeting = meeting_slot(r->p, i);
    for (uint32_t x = 1; x < n; x++)
        if (!partner_ready(k, meeting, scratch[x], &ready))
            return;
    heap_push(k, (struct event){ready, role, vqueue});
}

static void run_event(struct keying *k, struct event e, struct event met[], struct event scratch[])
{
    uint32_t n = parties(k, e.role, e.vqueue, met);
    int64_t duration = 0;
    for (uint32_t x = 0; x < n; x++) {
        const struct role *r = &k->roles[met[x].role];
        const struct vqueue *q = &r->vqueue[met[x].vqueue];
        uint32_t i = q->insn[q->head];
        int64_t ns = cost_insn_ns(k->cost, r->p, i, r->first_of_action[i]);
        if (ns > duration)
            duration = ns;
    }
    for (uint32_t x = 0; x < n; x++) {
        struct role *r = &k->roles[met[x].role];
        struct vqueue *q = &r->vqueue[met[x].vqueue];
        uint32_t i = q->insn[q->head++];
        r->p->insns[i].seq = k->seq;
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

static void run_keying(struct arena *a, const struct cost *c, struct role *roles, uint32_t nroles)
{
    struct keying k = {.arena = a, .cost = c, .roles = roles, .nroles = nroles};
    struct event *met = ARENA_ARRAY(a, struct event, nroles + 2), *scratch = ARENA_ARRAY(a, struct event, nroles + 2);
    struct ends ends = {0};
    for (uint32_t r = 0; r < nroles; r++)
        for (uint32_t i = 0; i < roles[r].p->ninsns; i++)
            if (roles[r].channels[i] != NONE && roles[r].channels[i] >= ends.n)
                ends.n = roles[r].channels[i] + 1;
    ends.at = arena_array(a, 2 * (size_t)ends.n + 1, sizeof *ends.at);
    memset(ends.at, 0xff, 2 * (size_t)ends.n * sizeof *ends.at);
    for (uint32_t r = 0; r < nroles; r++)
        find_vqueues(a, &roles[r], r, &ends);
    join_ends(roles, nroles, &ends);
    for (uint32_t r = 0; r < nroles; r++)
        prepare_role(a, &roles[r]);
    for (uint32_t r = 0; r < nroles; r++)
        for (uint32_t v = 0; v < roles[r].nvqueues; v++)
            offer_head(&k, r, v, scratch);
    while (k.heap.n)
        run_event(&k, heap_pop(&k), met, scratch);
    for (uint32_t r = 0; r < nroles; r++)
        for (uint32_t v = 0; v < roles[r].nvqueues; v++)
            assert(roles[r].vqueue[v].head == roles[r].vqueue[v].length);
}

/* ---- 3. rings ---- */

struct life {
    int64_t start, end;
    uint32_t first, last; /* seq */
    bool used;
};

static void size_ring(struct role *r, uint32_t ring, uint32_t microbatches, struct life *life)
{
    struct program *p = r->p;
    memset(life, 0, microbatches * sizeof *life);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        for (uint32_t k = n->operand; k < n->operand + isa_info((enum op)n->op)->noperands; k++) {
            const struct operand *o = &p->operands[k];
            if (o->buffer == NONE || p->buffers[o->buffer].ring != ring)
                continue;
            struct life *l = &life[r->instances[k]];
            if (!l->used || n->seq < l->first) {
                l->first = n->seq;
                l->start = r->start[i];
            }
            if (!l->used || r->end[i] > l->end)
                l->end = r->end[i];
            if (!l->used || n->seq > l->last)
                l->last = n->seq;
            l->used = true;
        }
    }
    uint32_t depth = 1;
    for (bool fits = false; !fits; depth += !fits) {
        fits = true;
        for (uint32_t i = depth; i < microbatches && fits; i++)
            fits = !life[i].used || (life[i - depth].end <= life[i].start && life[i - depth].last < life[i].first);
    }
    r->depth[ring] = p->rings[ring].depth = depth;
}

static void fold_rings(struct arena *a, struct role *r, uint32_t microbatches)
{
    struct program *p = r->p;
    struct life *life = ARENA_ARRAY(a, struct life, microbatches);
    for (uint32_t g = 0; g < p->nrings; g++)
        size_ring(r, g, microbatches, life);
    for (uint32_t b = 0; b < p->nbuffers; b++)
        if (p->buffers[b].ring != NONE)
            p->buffers[b].bytes = p->buffers[b].stride * r->depth[p->buffers[b].ring];
    for (uint32_t k = 0; k < p->noperands; k++) {
        struct operand *o = &p->operands[k];
        uint32_t ring = o->buffer == NONE ? NONE : p->buffers[o->buffer].ring;
        if (ring != NONE)
            o->offset += r->instances[k] % r->depth[ring] * p->buffers[o->buffer].stride;
    }
}

/* ---- 4. queue order and waits ---- */

struct clock {
    uint32_t done[NQUEUES]; /* instructions of each queue known to be done */
};

static void join(struct clock *c, const struct clock *other)
{
    for (uint32_t q = 0; q < NQUEUES; q++)
        if (other->done[q] > c->done[q])
            c->done[q] = other->done[q];
}

struct candidate_wait {
    struct wait wait;
    uint32_t insn;
};

/* waits of one instruction: its dependences by descending seq, less those that what is known already implies */
static uint32_t choose_waits(const struct role *r, uint32_t i, const uint32_t *position, const struct clock *after,
                             struct clock *now, struct wait out[NQUEUES])
{
    struct candidate_wait latest[NQUEUES];
    uint32_t n = 0;
    bool have[NQUEUES] = {false};
    for (uint32_t d = r->deps.first[i]; d < r->deps.first[i + 1]; d++) {
        uint32_t from = r->deps.list.at[d], q = r->p->insns[from].queue;
        if (!have[q] || position[from] > latest[q].wait.position)
            latest[q] = (struct candidate_wait){{(uint8_t)q, position[from]}, from};
        have[q] = true;
    }
    for (uint32_t left = NQUEUES; left--;) {
        uint32_t best = NQUEUES;
        for (uint32_t q = 0; q < NQUEUES; q++)
            if (have[q] && (best == NQUEUES || r->p->insns[latest[q].insn].seq > r->p->insns[latest[best].insn].seq))
                best = q;
        if (best == NQUEUES)
            break;
        have[best] = false;
        if (now->done[best] > latest[best].wait.position)
            continue;
        out[n++] = latest[best].wait;
        join(now, &after[latest[best].insn]);
    }
    return n;
}

static int by_seq(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a < b ? -1 : a > b;
}

static void add_waits(struct arena *a, struct role *r)
{
    struct program *p = r->p;
    uint64_t *key = ARENA_ARRAY(a, uint64_t, p->ninsns);
    uint32_t *order = ARENA_ARRAY(a, uint32_t, p->ninsns), *position = ARENA_ARRAY(a, uint32_t, p->ninsns);
    uint32_t count[NQUEUES] = {0}, last[NQUEUES], *first = ARENA_ARRAY(a, uint32_t, p->ninsns + 1);
    for (uint32_t i = 0; i < p->ninsns; i++)
        key[i] = (uint64_t)p->insns[i].seq << 32 | i;
    qsort(key, p->ninsns, sizeof *key, by_seq);
    struct clock *after = ARENA_ARRAY(a, struct clock, p->ninsns);
    VEC(struct wait) waits = {0};
    for (uint32_t k = 0; k < p->ninsns; k++) {
        uint32_t i = order[k] = (uint32_t)key[k], q = p->insns[i].queue;
        struct clock now = count[q] ? after[last[q]] : (struct clock){{0}};
        struct wait chosen[NQUEUES];
        uint32_t n = choose_waits(r, i, position, after, &now, chosen);
        first[k] = (uint32_t)waits.n;
        for (uint32_t w = 0; w < n; w++)
            vec_push(a, &waits, chosen[w]);
        position[i] = count[q]++;
        now.done[q] = count[q];
        after[i] = now;
        last[q] = i;
    }
    first[p->ninsns] = (uint32_t)waits.n;
    program_permute(p, order);
    program_set_waits(p, waits.at, first);
}

void order_programs(struct arena *a, const struct cost *c, const struct lowered *lowered, uint32_t nroles,
                    uint32_t microbatches)
{
    struct role *roles = ARENA_ARRAY(a, struct role, nroles);
    for (uint32_t r = 0; r < nroles; r++) {
        struct program *p = roles[r].p = lowered[r].p;
        roles[r].instances = lowered[r].instances;
        roles[r].channels = lowered[r].channels;
        roles[r].depth = ARENA_ARRAY(a, uint32_t, p->nrings);
        for (uint32_t g = 0; g < p->nrings; g++)
            roles[r].depth[g] = microbatches;
        find_deps(a, &roles[r]);
    }
    run_keying(a, c, roles, nroles);
    for (uint32_t r = 0; r < nroles; r++) {
        struct arena_mark mark = arena_mark(a);
        fold_rings(a, &roles[r], microbatches);
        roles[r].deps = (struct deps){0};
        find_deps(a, &roles[r]);
        add_waits(a, &roles[r]);
        arena_reset(a, mark);
    }
}
