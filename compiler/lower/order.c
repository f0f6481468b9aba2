/* Order: when each transfer and collective is issued, how deep rings are, and who waits for whom.
 *
 * 1. Dependences of every role's instructions (in program order) from what their operands read and write, with rings
 *    unlimited.
 * 2. Keying simulation (keying.c).  The number of an instruction's event is `seq`: it is equal for all parties of a
 *    rendezvous and grows along every queue and every dependence, so the merged graph is acyclic whatever the
 *    durations.
 * 3. A ring is as deep as the most slots in flight in that run (rings.c); a slot is reused only where its last user
 *    ended before the next writer started.
 * 4. Instructions are sorted by seq, which orders the send and receive queues by simulated start (the "timed" rule),
 * and every dependence between queues that the vector clocks do not yet imply becomes a wait.
 *
 * Steps 1, 3 and 4 take each role by itself, step 2 all of them at once.  Cost: O(n log q) for n instructions and q
 * queues. */

#include "compiler/lower/order.h"

#include "compiler/support/parallel.h"

#include <stdlib.h>

/* ---- 1. dependences ---- */

enum { MOST_BETWEEN = 32 }; /* instructions between a collective and the kernel of its action that precedes it */

struct access_state {
    /* readers: bits of the queues that have read since the write; read: the last reader per queue */
    uint32_t write, readers, read[NQUEUES];
};

/* an operand: the index of its buffer's first state (there is one per part, of every slot of a ring), its ring, and
 * the range of parts that it accesses */
struct access {
    uint32_t base, ring, first, n;
    bool writes;
};

/* at: i's position in the order in which dependences are found */
static void add_dep(struct arena *a, struct role *r, uint32_t from, uint32_t i, uint32_t at)
{
    if (from == NO_INSN || from == i || r->p->insns[from].queue == r->p->insns[i].queue)
        return;
    for (size_t k = r->deps.first[at]; k < r->deps.list.n; k++)
        if (r->deps.list.at[k] == from)
            return;
    vec_push(a, &r->deps.list, from);
}

/* Finds the parts of its buffer, or of a ring's slot, that an operand accesses: all of them where the operand's
 * offset depends on the rank. */
static void find_parts(const struct role *r, const struct operand *o, struct access *x)
{
    const struct buffer *b = &r->p->buffers[o->buffer];
    x->n = r->cuts;
    if (r->cuts == 1 || b->kind != BUFFER_STEP || o->slot != UINT16_MAX)
        return;
    uint64_t at = b->ring == NONE ? o->offset : o->offset % b->stride;
    uint64_t end = at + ((uint64_t)(o->rows - 1) * o->ld + o->cols) * isa_dtype_bytes((enum dtype)o->dtype);
    x->first = (uint32_t)(at * r->cuts / b->stride);
    x->n = (uint32_t)((end * r->cuts + b->stride - 1) / b->stride) - x->first;
}

/* Returns the accesses of all operands; *nstates: the number of states. */
static struct access *find_accesses(struct arena *a, const struct role *r, uint32_t *nstates)
{
    const struct program *p = r->p;
    struct access *all = ARENA_ARRAY(a, struct access, p->noperands + 1u);
    uint32_t *base = ARENA_ARRAY(a, uint32_t, p->nbuffers + 1u), n = 0;
    for (uint32_t b = 0; b < p->nbuffers; b++) {
        base[b] = n;
        n += r->cuts * (p->buffers[b].ring == NONE ? 1 : r->depth[p->buffers[b].ring]);
    }
    for (uint32_t k = 0; k < p->noperands; k++) {
        const struct operand *o = &p->operands[k];
        all[k].base = NONE;
        if (o->buffer == NONE)
            continue;
        uint32_t ring = p->buffers[o->buffer].ring;
        all[k] = (struct access){.base = base[o->buffer], .ring = ring, .writes = o->mark != MARK_READ};
        find_parts(r, o, &all[k]);
    }
    *nstates = n;
    return all;
}

/* A seam comes after everything listed before it and before everything listed after it; a dependence on the last
 * instruction of every queue, and of every channel on it, is enough. */
struct seam {
    uint32_t insn; /* the latest seam; NO_INSN: none yet */
    VEC(uint32_t) last;
};

static void note_last(struct arena *a, struct seam *s, const struct role *r, uint32_t i)
{
    for (size_t k = 0; k < s->last.n; k++) {
        uint32_t x = s->last.at[k];
        if (r->p->insns[x].queue == r->p->insns[i].queue && r->channels[x] == r->channels[i]) {
            s->last.at[k] = i;
            return;
        }
    }
    vec_push(a, &s->last, i);
}

static void cross_seam(struct arena *list, struct arena *scratch, struct role *r, struct seam *s, uint32_t i,
                       uint32_t at)
{
    if (r->p->insns[i].op == OP_SEAM) {
        for (size_t k = 0; k < s->last.n; k++)
            add_dep(list, r, s->last.at[k], i, at);
        s->insn = i;
    } else {
        add_dep(list, r, s->insn, i, at);
        note_last(scratch, s, r, i);
    }
}

/* Other stacks than llmrun launch a collective on a stream that waits for the kernels launched before it
 * (torch.distributed), so it never runs ahead of those of its own action: the last of these, or NO_INSN. */
static uint32_t launched_behind(const struct role *r, uint32_t i)
{
    const struct insn *all = r->p->insns, *n = &all[i];
    if (!r->launched || n->queue != QUEUE_TP)
        return NO_INSN;
    for (uint32_t k = i; k-- > 0;)
        if (all[k].queue == QUEUE_COMPUTE && all[k].action == n->action && all[k].stage == n->stage &&
            all[k].microbatch == n->microbatch)
            return k;
        else if (i - k > MOST_BETWEEN)
            break;
    return NO_INSN;
}

/* Finds dependences in a given order of the instructions (NULL: program order).  The order of time is needed for
 * rings: a slot belongs to its users in that order, and an early transfer may be listed before the last use that it
 * waits for. */
static void find_deps(struct arena *list, struct arena *scratch, struct role *r, const uint32_t *order)
{
    struct program *p = r->p;
    struct arena_mark mark = arena_mark(scratch);
    uint32_t nstates;
    const struct access *all = find_accesses(scratch, r, &nstates);
    struct access_state *state = ARENA_ARRAY(scratch, struct access_state, nstates + 1u);
    struct seam seam = {.insn = NO_INSN};
    uint32_t phase[NPHASES + 1];
    bool seams = program_phases(p, phase);
    for (uint32_t s = 0; s < nstates; s++)
        state[s].write = NO_INSN;
    r->deps.list.n = 0;
    for (uint32_t at = 0; at < p->ninsns; at++) {
        uint32_t i = order ? order[at] : at;
        const struct insn *n = &p->insns[i];
        struct access_state *touched[ISA_MAX_OPERANDS];
        uint32_t ntouched = isa_info(n->op)->noperands;
        const struct access *x = &all[n->operand];
        r->deps.first[at] = (uint32_t)r->deps.list.n;
        if (seams)
            cross_seam(list, scratch, r, &seam, i, at);
        add_dep(list, r, launched_behind(r, i), i, at);
        for (uint32_t k = 0; k < ntouched; k++) {
            if (x[k].base == NONE)
                continue;
            uint32_t slot = x[k].ring == NONE ? 0 : slot_of(r, x[k].ring, n->microbatch);
            touched[k] = &state[x[k].base + slot * r->cuts + x[k].first];
            for (const struct access_state *s = touched[k]; s < touched[k] + x[k].n; s++) {
                add_dep(list, r, s->write, i, at);
                for (uint32_t left = x[k].writes ? s->readers : 0; left; left &= left - 1)
                    add_dep(list, r, s->read[__builtin_ctz(left)], i, at);
            }
        }
        for (uint32_t k = 0; k < ntouched; k++) {
            if (x[k].base == NONE)
                continue;
            for (struct access_state *s = touched[k]; s < touched[k] + x[k].n; s++) {
                if (x[k].writes) {
                    s->write = i;
                    s->readers = 0;
                } else if (s->write != i) {
                    s->read[n->queue] = i;
                    s->readers |= 1u << n->queue;
                }
            }
        }
    }
    r->deps.first[p->ninsns] = (uint32_t)r->deps.list.n;
    arena_reset(scratch, mark);
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

/* Waits of the instruction at a position of the order: its dependences by descending seq, without those that are
 * implied by what is already known to be done. */
static uint32_t choose_waits(const struct role *r, uint32_t at, const uint32_t *position, const struct clock *after,
                             struct clock *now, struct wait out[NQUEUES])
{
    struct candidate_wait latest[NQUEUES];
    uint32_t n = 0;
    bool have[NQUEUES] = {false};
    for (uint32_t d = r->deps.first[at]; d < r->deps.first[at + 1]; d++) {
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

static void add_waits(struct arena *a, struct role *r)
{
    struct program *p = r->p;
    uint32_t *position = ARENA_ARRAY(a, uint32_t, p->ninsns);
    uint32_t count[NQUEUES] = {0}, last[NQUEUES], *first = ARENA_ARRAY(a, uint32_t, p->ninsns + 1);
    struct clock *after = ARENA_ARRAY(a, struct clock, p->ninsns);
    VEC(struct wait) waits = {0};
    for (uint32_t k = 0; k < p->ninsns; k++) {
        uint32_t i = r->order[k], q = p->insns[i].queue;
        struct clock now = count[q] ? after[last[q]] : (struct clock){{0}};
        struct wait chosen[NQUEUES];
        uint32_t n = choose_waits(r, k, position, after, &now, chosen);
        first[k] = (uint32_t)waits.n;
        for (uint32_t w = 0; w < n; w++)
            vec_push(a, &waits, chosen[w]);
        position[i] = count[q]++;
        now.done[q] = count[q];
        after[i] = now;
        last[q] = i;
    }
    first[p->ninsns] = (uint32_t)waits.n;
    program_permute(p, r->order);
    program_set_waits(p, waits.at, first);
}

/* Lists grow by doubling, so each role's lists are in an arena of their own, which is freed with them. */
static void begin_role(void *roles, uint32_t index)
{
    struct role *r = (struct role *)roles + index;
    struct arena *scratch = arena_new();
    r->deps.first = ARENA_ARRAY(r->arena, uint32_t, r->p->ninsns + 1u);
    find_deps(r->arena, scratch, r, NULL);
    arena_free(scratch);
}

static void end_role(void *roles, uint32_t index)
{
    struct role *r = (struct role *)roles + index;
    struct arena *scratch = arena_new();
    lower_fold_rings(scratch, r);
    find_deps(r->arena, scratch, r, r->order);
    add_waits(scratch, r);
    arena_free(scratch);
    arena_free(r->arena);
}

void order_programs(const struct cost *c, const struct lowered *lowered, uint32_t nroles, uint32_t microbatches)
{
    struct arena *a = arena_new();
    struct role *roles = ARENA_ARRAY(a, struct role, nroles);
    for (uint32_t r = 0; r < nroles; r++) {
        struct program *p = roles[r].p = lowered[r].p;
        lower_split_rings(a, p);
        roles[r].arena = arena_new();
        roles[r].channels = lowered[r].channels;
        roles[r].depth = ARENA_ARRAY(a, uint32_t, p->nrings);
        roles[r].microbatches = microbatches;
        roles[r].cuts = lowered[r].cuts;
        roles[r].launched = c->job && job_is_modelled(c->job);
        roles[r].slots = ARENA_ARRAY(a, uint32_t, (size_t)p->nrings * microbatches + 1);
        for (uint32_t g = 0; g < p->nrings; g++) {
            roles[r].depth[g] = microbatches;
            for (uint32_t m = 0; m < microbatches; m++)
                roles[r].slots[(size_t)g * microbatches + m] = m;
        }
    }
    parallel_each(nroles, begin_role, roles);
    lower_key(a, c, roles, nroles);
    parallel_each(nroles, end_role, roles);
    arena_free(a);
}
