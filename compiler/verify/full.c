/* Properties 2 and 3 without the roles' shortcut: every rank unfolded, from ranks.bin's own peers and groups.
 *
 * Matching: the sends of rank r to q against the receives of q from r, and the sequence of collectives of
 * every member of every group.  A rank's sequence is its role's, so sequences are compared by 64-bit hashes
 * that are made once per role, slot and queue.
 *
 * Order: the rendezvous run itself.  An instruction of a queue's head has arrived when everything before it
 * by queue order and waits is done; a transfer happens when both sides have arrived, a collective when all
 * members have.  In a machine without wildcards the run is confluent, so one order of events decides for all
 * (Siegel and Avrunin 2005). Compute instructions never wait for other ranks: they are contracted into the
 * clocks of the communicating ones. Cost: ranks times communication per rank. */

#include "compiler/verify/prove.h"

#include <string.h>

/* communication of one role, per queue, with what each needs done before */
struct tape {
    uint32_t n[NQUEUES];
    uint32_t *insn[NQUEUES];
    uint32_t (*need[NQUEUES])[NQUEUES]; /* communication instructions done, by queue */
};
/* a sequence of instructions that use one slot on one queue */
struct sequence {
    uint64_t hash;
    uint32_t n;
};
struct full {
    struct arena *arena, *scratch;
    const struct plan *plan;
    struct verdict *verdict;
    int kind;
    struct tape *tapes;
    struct sequence **sequences; /* per role: [slot * NQUEUES + queue] */
    uint32_t *done;              /* [rank * NQUEUES + queue] */
    bool *arrived;
    uint32_t *gathered;     /* [group * NQUEUES + queue]: members that have arrived */
    uint32_t *stack, depth; /* ranks whose heads must be looked at, each once */
    bool *stacked;
};

static const struct program *program_of(const struct full *f, uint32_t rank)
{
    return prove_program(f->plan, f->plan->ranks->ranks[rank].role, f->kind);
}

/* slots of equal meaning count as the first of them */
static uint32_t first_like(const struct program *p, uint32_t slot)
{
    uint32_t i = 0;
    while (p->slots[i].kind != p->slots[slot].kind || p->slots[i].arg != p->slots[slot].arg)
        i++;
    return i;
}

static uint32_t comm_slot(const struct program *p, uint32_t insn)
{
    return first_like(p, (uint32_t)(prove_comm_slot(p, insn) - p->slots));
}

static uint64_t slot_value(const struct full *f, uint32_t rank, uint32_t slot)
{
    return f->plan->ranks->values[f->plan->ranks->ranks[rank].slot + slot];
}

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

/* what both sides, or all members, must agree on */
static uint64_t signature(const struct program *p, uint32_t insn)
{
    const struct isa_info *info = isa_info(p->insns[insn].op);
    uint64_t h = prove_is_p2p(p->insns[insn].op) ? 1 : p->insns[insn].op + 2u;
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = prove_operand(p, insn, k);
        h = mix(mix(mix(h, o->dtype), o->rows), o->cols);
    }
    for (uint32_t k = 0; k < info->nattrs; k++)
        h = mix(h, (uint64_t)prove_attr(p, insn, k)->u.i); /* of slots 0: a peer's own is another one */
    return h;
}

static void read_role(struct full *f, uint32_t role)
{
    const struct program *p = prove_program(f->plan, role, f->kind);
    const struct clocks *c = prove_clocks(f->scratch, p);
    struct tape *t = &f->tapes[role];
    uint32_t *prefix[NQUEUES]; /* communication among the first n instructions of a queue */
    f->sequences[role] = ARENA_ARRAY(f->scratch, struct sequence, (size_t)p->nslots * NQUEUES + 1);
    for (int q = 0; q < NQUEUES; q++) {
        prefix[q] = ARENA_ARRAY(f->scratch, uint32_t, c->count[q] + 1u);
        for (uint32_t k = 0; k < c->count[q]; k++) {
            enum op op = p->insns[c->insn[q][k]].op;
            prefix[q][k + 1] = prefix[q][k] + (prove_is_p2p(op) || prove_is_collective(op));
        }
        t->insn[q] = ARENA_ARRAY(f->scratch, uint32_t, prefix[q][c->count[q]] + 1u);
        t->need[q] = arena_array(f->scratch, prefix[q][c->count[q]] + 1u, sizeof *t->need[q]);
    }
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *in = &p->insns[i];
        if (!prove_is_p2p(in->op) && !prove_is_collective(in->op))
            continue;
        struct sequence *s = &f->sequences[role][comm_slot(p, i) * NQUEUES + in->queue];
        uint32_t at = t->n[in->queue]++;
        t->insn[in->queue][at] = i;
        for (int q = 0; q < NQUEUES; q++)
            t->need[in->queue][at][q] = prefix[q][c->before[i][q]];
        s->hash = mix(s->hash, signature(p, i));
        s->n++;
    }
}

/* ---- matching ---- */

static bool same_sequence(const struct sequence *x, const struct sequence *y)
{
    return x->hash == y->hash;
}

/* sends against receives, from either side; slots that name no peer have neither */
static void match_peer(struct full *f, uint32_t rank, uint32_t slot, bool sends)
{
    const struct program *p = program_of(f, rank);
    uint64_t peer = slot_value(f, rank, slot);
    const struct rank_info *me = &f->plan->ranks->ranks[rank];
    const struct sequence *mine = &f->sequences[me->role][slot * NQUEUES + (sends ? QUEUE_SEND : QUEUE_RECV)];
    struct site at = {2, me->role, rank, f->kind == PROGRAM_EVAL, NONE};
    static const struct sequence nothing;
    const struct sequence *theirs = &nothing;
    if (!mine->n)
        return;
    if (peer >= f->plan->ranks->nranks || peer == rank) {
        prove_report(f->arena, f->plan, f->verdict, at, "slot %s names rank %llu", p->slots[slot].name,
                     (unsigned long long)peer);
        return;
    }
    const struct program *q = program_of(f, (uint32_t)peer);
    for (uint32_t s = 0; s < q->nslots; s++)
        if (q->slots[s].kind == SLOT_PEER && first_like(q, s) == s && slot_value(f, (uint32_t)peer, s) == rank)
            theirs = &f->sequences[q->role][s * NQUEUES + (sends ? QUEUE_RECV : QUEUE_SEND)];
    if (!same_sequence(mine, theirs))
        prove_report(f->arena, f->plan, f->verdict, at, "its %u %s rank %llu do not match that rank's %u %s it",
                     mine->n, sends ? "sends to" : "receives from", (unsigned long long)peer, theirs->n,
                     sends ? "receives from" : "sends to");
}

/* the members of a group, by the group's own definition */
static uint64_t match_group(struct full *f, uint32_t id)
{
    const struct group *g = &f->plan->ranks->groups[id];
    const struct sequence *first = NULL;
    uint32_t first_rank = NONE, size = group_size(g);
    uint64_t users = 0;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t rank = group_rank(g, i);
        const struct program *p = program_of(f, rank);
        struct site at = {2, p->role, rank, f->kind == PROGRAM_EVAL, NONE};
        const struct sequence *mine = NULL;
        for (uint32_t s = 0; s < p->nslots; s++)
            if (p->slots[s].kind == SLOT_GROUP && first_like(p, s) == s && slot_value(f, rank, s) == id) {
                mine = &f->sequences[p->role][s * NQUEUES];
                users++;
            }
        if (i == 0) {
            first = mine;
            first_rank = rank;
        }
        for (int q = 0; q < NQUEUES; q++) {
            static const struct sequence nothing;
            const struct sequence *x = first ? &first[q] : &nothing, *y = mine ? &mine[q] : &nothing;
            if (!same_sequence(x, y))
                prove_report(f->arena, f->plan, f->verdict, at,
                             "its %u collectives of group %u on queue %s do not match rank %u's %u", y->n, id,
                             isa_queue_name((enum queue)q), first_rank, x->n);
        }
    }
    return users;
}

static void match_all(struct full *f)
{
    const struct ranks *r = f->plan->ranks;
    uint64_t members = 0, users = 0;
    for (uint32_t rank = 0; rank < r->nranks; rank++) {
        const struct program *p = program_of(f, rank);
        for (uint32_t s = 0; s < p->nslots; s++) {
            if (first_like(p, s) != s)
                continue;
            users += p->slots[s].kind == SLOT_GROUP;
            match_peer(f, rank, s, true);
            match_peer(f, rank, s, false);
        }
    }
    for (uint32_t g = 0; g < r->ngroups; g++)
        members += match_group(f, g);
    struct site all = {2, NONE, NONE, f->kind == PROGRAM_EVAL, NONE};
    if (members != users)
        prove_report(f->arena, f->plan, f->verdict, all, "%llu of %llu uses of groups are by ranks that are no members",
                     (unsigned long long)(users - members), (unsigned long long)users);
}

/* ---- order ---- */

static uint32_t head(const struct full *f, uint32_t rank, uint32_t queue)
{
    const struct tape *t = &f->tapes[f->plan->ranks->ranks[rank].role];
    uint32_t at = f->done[rank * NQUEUES + queue];
    return at < t->n[queue] ? t->insn[queue][at] : NONE;
}

static bool ready(const struct full *f, uint32_t rank, uint32_t queue)
{
    const struct tape *t = &f->tapes[f->plan->ranks->ranks[rank].role];
    const uint32_t *done = &f->done[rank * NQUEUES], *need = t->need[queue][done[queue]];
    for (int q = 0; q < NQUEUES; q++)
        if (done[q] < need[q])
            return false;
    return true;
}

static void look_at(struct full *f, uint32_t rank)
{
    if (!f->stacked[rank])
        f->stack[f->depth++] = rank;
    f->stacked[rank] = true;
}

static void finish(struct full *f, uint32_t rank, uint32_t queue)
{
    f->done[rank * NQUEUES + queue]++;
    f->arrived[rank * NQUEUES + queue] = false;
    look_at(f, rank);
}

/* rank's head of a queue has just arrived: does its rendezvous happen? */
static void arrive(struct full *f, uint32_t rank, uint32_t queue, uint32_t insn)
{
    const struct program *p = program_of(f, rank);
    uint64_t value = slot_value(f, rank, comm_slot(p, insn));
    f->arrived[rank * NQUEUES + queue] = true;
    if (prove_is_p2p(p->insns[insn].op)) {
        uint32_t peer = (uint32_t)value, other = p->insns[insn].op == OP_SEND ? QUEUE_RECV : QUEUE_SEND;
        uint32_t theirs = head(f, peer, other);
        if (!f->arrived[peer * NQUEUES + other] || slot_value(f, peer, comm_slot(program_of(f, peer), theirs)) != rank)
            return;
        finish(f, rank, queue);
        finish(f, peer, other);
        return;
    }
    const struct group *g = &f->plan->ranks->groups[value];
    uint32_t size = group_size(g), *n = &f->gathered[value * NQUEUES + queue];
    if (++*n < size)
        return;
    *n = 0;
    for (uint32_t i = 0; i < size; i++)
        finish(f, group_rank(g, i), queue);
}

static void visit(struct full *f, uint32_t rank)
{
    f->stacked[rank] = false;
    for (uint32_t q = 0; q < NQUEUES; q++) {
        uint32_t insn = head(f, rank, q);
        if (insn != NONE && !f->arrived[rank * NQUEUES + q] && ready(f, rank, q))
            arrive(f, rank, q, insn);
    }
}

static void run_all(struct full *f)
{
    const struct ranks *r = f->plan->ranks;
    f->done = ARENA_ARRAY(f->scratch, uint32_t, (size_t)r->nranks * NQUEUES);
    f->arrived = ARENA_ARRAY(f->scratch, bool, (size_t)r->nranks *NQUEUES);
    f->gathered = ARENA_ARRAY(f->scratch, uint32_t, (size_t)r->ngroups * NQUEUES + 1);
    f->stack = ARENA_ARRAY(f->scratch, uint32_t, (size_t)r->nranks + 1);
    f->stacked = ARENA_ARRAY(f->scratch, bool, (size_t)r->nranks + 1);
    for (uint32_t rank = r->nranks; rank-- > 0;)
        look_at(f, rank);
    while (f->depth)
        visit(f, f->stack[--f->depth]);
    for (uint32_t rank = 0; rank < r->nranks; rank++)
        for (uint32_t q = 0; q < NQUEUES; q++) {
            uint32_t insn = head(f, rank, q);
            if (insn == NONE)
                continue;
            struct site at = {3, r->ranks[rank].role, rank, f->kind == PROGRAM_EVAL, insn};
            prove_report(f->arena, f->plan, f->verdict, at, "the run of all ranks gets stuck: it waits here for ever");
            return;
        }
}

void prove_full(struct arena *a, const struct plan *p, bool order, struct verdict *v)
{
    for (int kind = 0; kind < NPROGRAM_KINDS; kind++) {
        struct full f = {.arena = a, .scratch = arena_new(), .plan = p, .verdict = v, .kind = kind};
        f.tapes = ARENA_ARRAY(f.scratch, struct tape, p->nroles);
        f.sequences = ARENA_ARRAY(f.scratch, struct sequence *, p->nroles);
        for (uint32_t r = 0; r < p->nroles; r++)
            read_role(&f, r);
        if (order)
            run_all(&f);
        else
            match_all(&f);
        arena_free(f.scratch);
    }
}
