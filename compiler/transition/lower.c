/* Moves become programs.
 *
 * Messages are numbered like a clock (Lamport 1978): a message's seq is one more than the largest that its sender and
 * its receiver have had, so both ends agree and every queue has growing numbers, which proves that nobody waits for
 * ever.  They are taken in rounds: in round d every rank sends to the one d places behind it, so that as many as
 * possible are on their way at once.  What a rank does alone follows on the compute queue, which waits for nobody.
 *
 * Ranks whose programs are equal but for peers, which are slots, share a role. */

#include "compiler/transition/moves.h"

#include "runtime/hash.h"
#include "runtime/program_share.h"

#include <stdlib.h>
#include <string.h>

/* one kind of one move, between two ranks */
struct message {
    uint32_t round, src, dst, move;
    uint32_t seq;
    uint8_t kind;
};
/* what a rank does, in the order of its program: a message, or one kind of a move of its own */
struct event {
    uint32_t seq, message, move;
    uint8_t kind;
    bool sends;
};
struct lowering {
    struct arena *arena;
    struct transition *t;
    const struct plan_state *from, *to;
    const struct move_list *moves;
    VEC(struct message) messages;
    uint32_t *first;      /* by rank: its first among `events`; nranks + 1 */
    struct event *events; /* of messages */
    VEC(uint64_t) values; /* of slots, of all ranks */
    VEC(char *) hashes;   /* by role */
    VEC(struct program *) roles;
};

static const struct role_state *role_of(const struct plan_state *s, uint32_t rank)
{
    return &s->role[s->plan->ranks->ranks[rank].role];
}

static bool moves_kind(const struct lowering *l, uint32_t rank, const struct move *m, int kind)
{
    return role_of(l->to, l->t->seats[rank].to)->kept[m->dst_kept].buffer[kind] != NONE;
}

static int by_round(const void *a, const void *b)
{
    const struct message *x = a, *y = b;
    if (x->round != y->round)
        return x->round < y->round ? -1 : 1;
    if (x->dst != y->dst)
        return x->dst < y->dst ? -1 : 1;
    if (x->move != y->move)
        return x->move < y->move ? -1 : 1;
    return x->kind - y->kind;
}

static void list_messages(struct lowering *l)
{
    uint32_t n = l->t->ranks->nranks;
    for (uint32_t dst = 0; dst < n; dst++)
        for (uint32_t i = 0; i < l->moves[dst].list.n; i++) {
            const struct move *m = &l->moves[dst].list.at[i];
            for (int kind = 0; kind < STATE_KINDS && m->src != NONE && m->src != dst; kind++)
                if (moves_kind(l, dst, m, kind))
                    vec_push(l->arena, &l->messages,
                             (struct message){(dst + n - m->src) % n, m->src, dst, i, 0, (uint8_t)kind});
        }
    if (l->messages.n)
        qsort(l->messages.at, l->messages.n, sizeof *l->messages.at, by_round);
}

/* numbers messages, and lists them by rank */
static void order_messages(struct lowering *l)
{
    uint32_t n = l->t->ranks->nranks, *clock = ARENA_ARRAY(l->arena, uint32_t, n);
    l->first = ARENA_ARRAY(l->arena, uint32_t, n + 2);
    for (uint32_t i = 0; i < l->messages.n; i++) {
        struct message *m = &l->messages.at[i];
        uint32_t *src = &clock[m->src], *dst = &clock[m->dst];
        m->seq = (*src > *dst ? *src : *dst) + 1;
        *src = *dst = m->seq;
        l->first[m->src + 2]++;
        l->first[m->dst + 2]++;
    }
    for (uint32_t r = 1; r <= n; r++)
        l->first[r + 1] += l->first[r];
    l->events = ARENA_ARRAY(l->arena, struct event, 2 * l->messages.n + 1);
    for (uint32_t i = 0; i < l->messages.n; i++) {
        const struct message *m = &l->messages.at[i];
        l->events[l->first[m->src + 1]++] = (struct event){m->seq, i, m->move, m->kind, true};
        l->events[l->first[m->dst + 1]++] = (struct event){m->seq, i, m->move, m->kind, false};
    }
}

/* The buffer of one side for a buffer of its plan, made where it is first used. */
static uint32_t buffer_of(struct program *p, const struct program *plan, uint32_t index, bool old, uint64_t base)
{
    const struct buffer *b = &plan->buffers[index];
    struct buffer copy = {.kind = BUFFER_STEP,
                          .dtype = b->dtype,
                          .ring = NONE,
                          .bytes = b->bytes,
                          .stride = b->bytes,
                          .offset = base + b->offset,
                          .bucket = NONE,
                          .shard_slot = NONE};
    for (uint32_t i = 0; i < p->nbuffers; i++)
        if (p->buffers[i].offset == copy.offset && p->buffers[i].bytes == copy.bytes)
            return i;
    snprintf(copy.name, sizeof copy.name, "%s.%.35s", old ? "old" : "new", b->name);
    return program_buffer(p, &copy);
}

/* an operand for one kind of a move's elements on one side */
static struct operand side(const struct lowering *l, struct program *p, const struct move *m, int kind, uint32_t rank,
                           bool old)
{
    const struct seat *seat = &l->t->seats[rank];
    const struct plan_state *s = old ? l->from : l->to;
    uint32_t own = old ? seat->from : seat->to;
    const struct role_state *role = role_of(s, own);
    const struct kept *k = &role->kept[old ? m->src_kept : m->dst_kept];
    kind = kept_as(k, kind);
    const struct buffer *b = &role->p->buffers[k->buffer[kind]];
    uint64_t size = isa_dtype_bytes(b->dtype), begins = state_slot(s->plan, own, b->shard_slot) * (b->bytes / size);
    struct operand o = {.buffer = buffer_of(p, role->p, k->buffer[kind], old, old ? 0 : seat->base),
                        .dtype = (uint8_t)b->dtype,
                        .mark = old ? MARK_READ : MARK_WRITE,
                        .slot = UINT16_MAX,
                        .rows = m->rows,
                        .cols = m->cols};
    o.ld = (uint32_t)(m->rows == 1 ? m->cols : old ? m->src_ld : m->dst_ld);
    o.offset = ((old ? m->src_first : m->dst_first) - begins) * size;
    return o;
}

static void append(struct program *p, enum op op, uint32_t seq)
{
    program_insn(p, op);
    p->insns[p->ninsns - 1].seq = seq;
}

static struct operand *operand_at(struct program *p, uint32_t k)
{
    return &p->operands[p->insns[p->ninsns - 1].operand + k];
}

static void emit_message(struct lowering *l, struct program *p, uint32_t rank, const struct event *e, uint32_t *peers)
{
    const struct message *m = &l->messages.at[e->message];
    const struct move *move = &l->moves[m->dst].list.at[m->move];
    uint32_t peer = e->sends ? m->dst : m->src, slot = 0;
    struct operand o = side(l, p, move, m->kind, rank, e->sends);
    while (slot < p->nslots && peers[slot] != peer)
        slot++;
    if (slot == p->nslots) {
        char name[24];
        snprintf(name, sizeof name, "peer%u", slot);
        peers[program_slot(p, name, SLOT_PEER, SLOT_PEER_GIVEN, l->t->ranks->nranks - 1)] = peer;
    }
    append(p, e->sends ? OP_SEND : OP_RECV, e->seq);
    *operand_at(p, 0) = o;
    p->attrs[p->insns[p->ninsns - 1].attr + ATTR(SEND, peer)].slot = slot;
}

static void emit_alone(struct lowering *l, struct program *p, uint32_t rank, const struct move *m, int kind,
                       uint32_t seq)
{
    struct operand to = side(l, p, m, kind, rank, false);
    if (m->src == NONE) {
        append(p, OP_FILL, seq);
        *operand_at(p, OPND(FILL, y)) = to;
        return;
    }
    struct operand from = side(l, p, m, kind, rank, true);
    append(p, OP_COPY, seq);
    *operand_at(p, OPND(COPY, y)) = to;
    *operand_at(p, OPND(COPY, x)) = from;
}

/* the program of one rank; its peers in the order of its slots */
static struct program *make_program(struct lowering *l, uint32_t rank, uint32_t *peers)
{
    const struct transition *t = l->t;
    struct program *p = program_new(0, 1);
    uint32_t seq = 0, to = t->seats[rank].to;
    p->job = t->to->train[0]->job;
    for (uint32_t i = l->first[rank]; i < l->first[rank + 1]; i++) {
        emit_message(l, p, rank, &l->events[i], peers);
        seq = l->events[i].seq;
    }
    for (size_t i = 0; i < l->moves[rank].list.n; i++)
        for (int kind = 0; kind < STATE_KINDS; kind++) {
            const struct move *m = &l->moves[rank].list.at[i];
            if ((m->src == NONE || m->src == rank) && moves_kind(l, rank, m, kind))
                emit_alone(l, p, rank, m, kind, ++seq);
        }
    p->arena_bytes = t->seats[rank].base + (to == NONE ? 0 : transition_arena(t->to, to));
    return p;
}

/* the role of a program that others have perhaps, which is kept only if none has; NONE: it cannot be encoded */
static uint32_t share(struct lowering *l, struct program *p)
{
    uint8_t *bytes;
    size_t size;
    char *hash = arena_alloc(l->arena, 65);
    if (program_encode(p, &bytes, &size) != STATUS_OK) {
        program_free(p);
        return NONE;
    }
    hash_sha256(bytes, size, hash);
    free(bytes);
    for (uint32_t i = (uint32_t)l->hashes.n; i-- > 0;)
        if (!strcmp(l->hashes.at[i], hash)) {
            program_free(p);
            return i;
        }
    program_trim(p);
    vec_push(l->arena, &l->hashes, hash);
    vec_push(l->arena, &l->roles, p);
    return (uint32_t)l->roles.n - 1;
}

static void finish_ranks(struct lowering *l)
{
    struct transition *t = l->t;
    for (uint32_t i = 0; i < t->nroles; i++) {
        t->programs[i]->role = i;
        t->programs[i]->nroles = t->nroles;
    }
    struct ranks *r = ranks_new(t->ranks->nranks, t->nroles, 0, (uint32_t)l->values.n);
    memcpy(r->ranks, t->ranks->ranks, r->nranks * sizeof *r->ranks);
    if (l->values.n)
        memcpy(r->values, l->values.at, l->values.n * sizeof *r->values);
    ranks_free(t->ranks);
    t->ranks = r;
}

enum status moves_lower(struct arena *a, struct transition *t, const struct plan_state state[2],
                        const struct move_list *moves, struct error *error)
{
    struct lowering l = {.arena = a, .t = t, .from = &state[0], .to = &state[1], .moves = moves};
    list_messages(&l);
    order_messages(&l);
    uint32_t *peers = ARENA_ARRAY(a, uint32_t, t->ranks->nranks + 1);
    for (uint32_t rank = 0; rank < t->ranks->nranks; rank++) {
        struct program *p = make_program(&l, rank, peers);
        t->ranks->ranks[rank].slot = (uint32_t)l.values.n;
        for (uint32_t i = 0; i < p->nslots; i++)
            vec_push(a, &l.values, peers[i]);
        t->ranks->ranks[rank].role = share(&l, p);
        t->nroles = (uint32_t)l.roles.n;
        t->programs = l.roles.at;
        if (t->ranks->ranks[rank].role == NONE)
            return error_set(error, STATUS_BUG, "the program of rank %u cannot be encoded", rank);
    }
    finish_ranks(&l);
    return STATUS_OK;
}
