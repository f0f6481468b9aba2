/* Meetings: every member of a channel posts its operands, then the transfer takes place, and then each member learns
 * that it is over.  Every member numbers the meetings of a channel in program order; one can be posted when the
 * member has ended the one before.
 *
 * Channels below ngroups are those of the groups; after them come those of all pairs (sender, receiver). */

#include "compiler/execute/machine.h"

#include <string.h>

static uint32_t find_channel(struct exact_machine *m, uint32_t rank, const struct program *p, const struct insn *in)
{
    uint32_t value = (uint32_t)exact_value(m, rank, p->attrs[in->attr].slot);
    if (isa_info(in->op)->unit == UNIT_COLLECTIVE)
        return value;
    uint32_t from = in->op == OP_SEND ? rank : value, to = in->op == OP_SEND ? value : rank;
    return m->plan->ranks->ngroups + from * m->nranks + to;
}

static void list_members(struct exact_machine *m, uint32_t c)
{
    struct exact_channel *ch = &m->channels[c];
    uint32_t ngroups = m->plan->ranks->ngroups;
    if (ch->members)
        return;
    ch->nmembers = c < ngroups ? group_size(&m->plan->ranks->groups[c]) : 2;
    ch->members = ARENA_ARRAY(m->arena, uint32_t, ch->nmembers);
    ch->insn = ARENA_ARRAY(m->arena, uint32_t, ch->nmembers);
    for (uint32_t i = 0; i < ch->nmembers; i++) {
        ch->members[i] = c < ngroups ? group_rank(&m->plan->ranks->groups[c], i)
                         : i         ? (c - ngroups) % m->nranks
                                     : (c - ngroups) / m->nranks;
        ch->insn[i] = NONE;
    }
}

static bool number_meetings(struct exact_machine *m, uint32_t rank)
{
    struct exact_rank *r = &m->ranks[rank];
    uint32_t *next = ARENA_ARRAY(m->arena, uint32_t, m->nchannels);
    r->channel = ARENA_ARRAY(m->arena, uint32_t, r->p->ninsns + 1u);
    r->self = ARENA_ARRAY(m->arena, uint32_t, r->p->ninsns + 1u);
    r->number = ARENA_ARRAY(m->arena, uint32_t, r->p->ninsns + 1u);
    r->met = ARENA_ARRAY(m->arena, uint32_t, m->nchannels);
    for (uint32_t i = 0; i < r->p->ninsns; i++) {
        if (!exact_is_meeting(&r->p->insns[i]))
            continue;
        uint32_t c = find_channel(m, rank, r->p, &r->p->insns[i]), self = NONE;
        list_members(m, c);
        for (uint32_t k = 0; k < m->channels[c].nmembers; k++)
            self = m->channels[c].members[k] == rank ? k : self;
        if (self == NONE)
            return exact_fail(m, rank, i, "it is no member of its group");
        if (c >= m->plan->ranks->ngroups && m->channels[c].members[0] == m->channels[c].members[1])
            return exact_fail(m, rank, i, "it sends to itself");
        r->channel[i] = c;
        r->self[i] = self;
        r->number[i] = next[c]++;
    }
    return true;
}

bool exact_meetings(struct exact_machine *m)
{
    m->nchannels = m->plan->ranks->ngroups + m->nranks * m->nranks;
    m->channels = ARENA_ARRAY(m->arena, struct exact_channel, m->nchannels);
    for (uint32_t r = 0; r < m->nranks; r++)
        if (!number_meetings(m, r))
            return false;
    return true;
}

bool exact_may_post(const struct exact_machine *m, uint32_t rank, uint32_t insn)
{
    const struct exact_rank *r = &m->ranks[rank];
    return r->met[r->channel[insn]] == r->number[insn];
}

/* What a member sends is its last operand, and what it receives its first one (SEND receives nothing, RECV sends
 * nothing). */
static bool gives(struct exact_machine *m, uint32_t rank, uint32_t insn, struct place *x)
{
    const struct insn *in = &m->ranks[rank].p->insns[insn];
    return in->op != OP_RECV && exact_place(m, rank, insn, isa_info(in->op)->noperands - 1u, x);
}

static bool receives(struct exact_machine *m, uint32_t rank, uint32_t insn, struct place *y)
{
    return m->ranks[rank].p->insns[insn].op != OP_SEND && exact_place(m, rank, insn, 0, y);
}

static uint64_t *load(struct exact_machine *m, uint32_t rank, const struct place *x)
{
    uint64_t *data = ARENA_ARRAY(m->step, uint64_t, (size_t)x->rows * x->cols);
    memory_load(&m->ranks[rank].memory, x, data);
    return data;
}

void exact_post(struct exact_machine *m, uint32_t rank, uint32_t insn)
{
    struct exact_rank *r = &m->ranks[rank];
    struct exact_channel *c = &m->channels[r->channel[insn]];
    uint8_t q = r->p->insns[insn].queue;
    struct place x, y;
    bool giver = gives(m, rank, insn, &x), receiver = receives(m, rank, insn, &y);
    c->insn[r->self[insn]] = insn;
    c->nposted++;
    r->early[q] = r->late[q] = NULL;
    if (m->shuffled && giver && exact_random(m, 2) && memory_holds(&r->memory, &x))
        r->early[q] = load(m, rank, &x);
    if (m->shuffled && receiver && (!giver || r->early[q]) && memory_holds(&r->memory, &y))
        memory_clobber(&r->memory, &y);
}

bool exact_complete(const struct exact_machine *m, uint32_t rank, uint32_t insn)
{
    const struct exact_channel *c = &m->channels[m->ranks[rank].channel[insn]];
    return c->nposted == c->nmembers;
}

/* Do all members have the same instruction, with matching shapes? */
static bool alike(struct exact_machine *m, uint32_t rank, uint32_t insn, const struct place *x)
{
    const struct exact_rank *r = &m->ranks[rank];
    const struct exact_channel *c = &m->channels[r->channel[insn]];
    const struct insn *in = &r->p->insns[insn];
    for (uint32_t k = 0; k < c->nmembers; k++) {
        const struct program *p = m->ranks[c->members[k]].p;
        const struct insn *other = &p->insns[c->insn[k]];
        struct place y, own;
        bool p2p = isa_info(in->op)->unit == UNIT_P2P;
        bool same = p2p ? other->op == (k ? OP_RECV : OP_SEND) : other->op == in->op;
        for (uint32_t a = 1; same && a < isa_info(in->op)->nattrs; a++)
            same = p->attrs[other->attr + a].u.i == r->p->attrs[in->attr + a].u.i;
        if (!same)
            return exact_fail(m, rank, insn, "it meets %s of rank %u", isa_info(other->op)->name, c->members[k]);
        if (!(p2p && k ? receives(m, c->members[k], c->insn[k], &y) : gives(m, c->members[k], c->insn[k], &y)) ||
            y.rows != x->rows || y.cols != x->cols || y.dtype != x->dtype)
            return exact_fail(m, rank, insn, "its operand does not fit that of rank %u", c->members[k]);
        if (!memory_holds(&m->ranks[c->members[k]].memory, &y) ||
            (receives(m, c->members[k], c->insn[k], &own) && !memory_holds(&m->ranks[c->members[k]].memory, &own)))
            return exact_fail(m, c->members[k], c->insn[k], "an operand leaves the arena");
    }
    return true;
}

static void combine(uint64_t *to, const uint64_t *from, size_t n, enum dtype dtype, bool max)
{
    for (size_t e = 0; e < n; e++)
        if (max && dtype == DTYPE_I32)
            to[e] = (int64_t)from[e] > (int64_t)to[e] ? from[e] : to[e];
        else if (max)
            to[e] = from[e] > to[e] ? from[e] : to[e];
        else
            to[e] = dtype == DTYPE_I32 ? to[e] + from[e] : field_add(to[e], from[e]);
}

/* What member k receives, given all members' operands of n elements each. */
static uint64_t *result(struct exact_machine *m, const struct exact_channel *c, const struct insn *in,
                        const struct program *p, uint64_t *const *given, size_t n, enum dtype dtype, uint32_t k)
{
    uint32_t size = c->nmembers;
    size_t part = n / size;
    bool max = in->op == OP_ALL_REDUCE && p->attrs[in->attr + ATTR(ALL_REDUCE, max)].u.i;
    uint64_t root = in->op == OP_BROADCAST ? (uint64_t)p->attrs[in->attr + ATTR(BROADCAST, root)].u.i : 0;
    uint64_t *out = ARENA_ARRAY(m->step, uint64_t, in->op == OP_ALL_GATHER ? n * size : n);
    if (in->op == OP_ALL_REDUCE) {
        memcpy(out, given[0], n * sizeof *out);
        for (uint32_t i = 1; i < size; i++)
            combine(out, given[i], n, dtype, max);
    } else if (in->op == OP_REDUCE_SCATTER) {
        memcpy(out, given[0] + k * part, part * sizeof *out);
        for (uint32_t i = 1; i < size; i++)
            combine(out, given[i] + k * part, part, dtype, false);
    } else if (in->op == OP_ALL_GATHER) {
        for (uint32_t i = 0; i < size; i++)
            memcpy(out + i * n, given[i], n * sizeof *out);
    } else if (in->op == OP_SHIFT) {
        int64_t by = p->attrs[in->attr + ATTR(SHIFT, by)].u.i % (int64_t)size;
        memcpy(out, given[((int64_t)(k + size) - by) % size], n * sizeof *out);
    } else if (in->op == OP_ALL_TO_ALL) {
        for (uint32_t i = 0; i < size; i++)
            memcpy(out + i * part, given[i] + k * part, part * sizeof *out);
    } else { /* SEND, RECV: the data of member 0; BROADCAST: those of the root */
        memcpy(out, given[root < size ? root : 0], n * sizeof *out);
    }
    return out;
}

bool exact_move(struct exact_machine *m, uint32_t rank, uint32_t insn)
{
    struct exact_channel *c = &m->channels[m->ranks[rank].channel[insn]];
    uint64_t **given = ARENA_ARRAY(m->step, uint64_t *, c->nmembers);
    const struct program *p = m->ranks[c->members[0]].p;
    const struct insn *in = &p->insns[c->insn[0]];
    struct place x;
    if (!gives(m, c->members[0], c->insn[0], &x))
        return exact_fail(m, rank, insn, "nobody gives");
    if (!alike(m, rank, insn, &x))
        return false;
    for (uint32_t k = 0; k < c->nmembers; k++) {
        struct exact_rank *r = &m->ranks[c->members[k]];
        uint8_t q = r->p->insns[c->insn[k]].queue;
        struct place own;
        if (gives(m, c->members[k], c->insn[k], &own))
            given[k] = r->early[q] ? r->early[q] : load(m, c->members[k], &own);
    }
    for (uint32_t k = 0; k < c->nmembers; k++) {
        struct exact_rank *r = &m->ranks[c->members[k]];
        uint8_t q = r->p->insns[c->insn[k]].queue;
        struct place y;
        r->state[q] = HEAD_MOVED;
        if (!receives(m, c->members[k], c->insn[k], &y))
            continue;
        uint64_t *out = result(m, c, in, p, given, (size_t)x.rows * x.cols, x.dtype, k);
        if (m->shuffled && exact_random(m, 2))
            r->late[q] = out;
        else
            memory_store(&r->memory, &y, out);
    }
    for (uint32_t k = 0; k < c->nmembers; k++)
        c->insn[k] = NONE;
    c->nposted = 0;
    return true;
}

void exact_end(struct exact_machine *m, uint32_t rank, uint32_t insn)
{
    struct exact_rank *r = &m->ranks[rank];
    uint8_t q = r->p->insns[insn].queue;
    struct place y;
    if (r->late[q] && receives(m, rank, insn, &y))
        memory_store(&r->memory, &y, r->late[q]);
    r->late[q] = NULL;
    r->met[r->channel[insn]]++;
}
