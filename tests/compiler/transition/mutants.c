/* Drawing faults: a rank, of its role's program an instruction, and of that something to change.  Programs are copied before they
 * are changed; ranks that share the role have the fault, too. */

#include "tests/compiler/transition/mutants.h"

#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/mutate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[NFAULTS] = {
    [FAULT_OFFSET] = "offset",          [FAULT_ROWS] = "rows",       [FAULT_COLS] = "columns",
    [FAULT_LD] = "leading dimension",   [FAULT_SHAPE] = "shape",     [FAULT_SMALLER] = "smaller message",
    [FAULT_BUFFER] = "buffer",          [FAULT_STEAL] = "operand",   [FAULT_EXCHANGE] = "operands exchanged",
    [FAULT_DTYPE] = "format",           [FAULT_SLOT] = "slot",       [FAULT_PLACE] = "place of buffer",
    [FAULT_PEER] = "peer",              [FAULT_VALUES] = "values",   [FAULT_DROP] = "dropped",
    [FAULT_DROP_BOTH] = "dropped both", [FAULT_DOUBLE] = "doubled",  [FAULT_DOUBLE_BOTH] = "doubled both",
    [FAULT_SWAP] = "neighbours",        [FAULT_SEQ] = "seq",         [FAULT_WAIT] = "wait",
    [FAULT_FILL] = "value of FILL",     [FAULT_OP] = "instruction",  [FAULT_SEATS] = "seats",
    [FAULT_BASE] = "base",              [FAULT_ROLE] = "role",       [FAULT_GPU] = "GPU",
    [FAULT_LOST] = "lost node",
};

const char *fault_name(enum fault f)
{
    return names[f];
}

/* a draw: an instruction of a role's program, which is the mutant's own copy */
struct draw {
    struct transition *t;
    uint64_t *random;
    uint32_t rank; /* one of the role's */
    struct program *p;
    uint32_t insn;
};

static uint32_t below(struct draw *d, uint32_t n)
{
    return random_below(d->random, n);
}

static struct operand *operand_of(struct program *p, uint32_t insn, uint32_t k)
{
    return &p->operands[p->insns[insn].operand + k];
}

static struct operand *some_operand(struct draw *d)
{
    return operand_of(d->p, d->insn, below(d, isa_info(d->p->insns[d->insn].op)->noperands));
}

static bool change_operand(struct draw *d, enum fault kind)
{
    struct operand *o = some_operand(d);
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype), steps[] = {size, o->ld * size, o->cols * size, 256,
                                                                      size * (1 + below(d, 64)), 1 + below(d, 64)};
    uint64_t step = steps[below(d, 6)], n = (uint64_t)o->rows * o->cols;
    uint32_t one = 1 + below(d, 2), rows;
    switch ((unsigned)kind) {
    case FAULT_OFFSET:
        o->offset += below(d, 2) || o->offset < step ? step : 0 - step;
        return true;
    case FAULT_ROWS:
        o->rows += below(d, 2) || o->rows <= one ? one : 0 - one;
        return true;
    case FAULT_COLS:
        o->cols += below(d, 2) || o->cols <= one ? one : 0 - one;
        o->ld = o->ld < o->cols ? o->cols : o->ld;
        return true;
    case FAULT_LD:
        o->ld += below(d, 2) || o->ld < o->cols + one ? one : 0 - one;
        return true;
    case FAULT_SHAPE:
        rows = 2 + below(d, 7);
        if (n % rows || rows == o->rows)
            return false;
        o->rows = rows;
        o->cols = (uint32_t)(n / rows);
        o->ld = o->cols + (below(d, 2) ? 0 : below(d, 8));
        return true;
    case FAULT_DTYPE:
        o->dtype = (uint8_t)((o->dtype + 1 + below(d, NDTYPES - 1)) % NDTYPES);
        return true;
    case FAULT_SLOT:
        o->slot = (uint16_t)below(d, d->p->nslots + 1);
        o->slot_stride = step;
        return true;
    }
    return false;
}

static bool other_buffer(struct draw *d)
{
    struct operand *o = some_operand(d);
    uint32_t buffer = below(d, d->p->nbuffers);
    if (buffer == o->buffer)
        return false;
    o->buffer = buffer;
    return true;
}

/* whose shape fits, so that only what it is of is wrong */
static bool other_operand(struct draw *d, bool both)
{
    struct operand *o = some_operand(d);
    for (uint32_t tries = 0; tries < 20; tries++) {
        uint32_t i = below(d, d->p->ninsns);
        struct operand *x = operand_of(d->p, i, below(d, isa_info(d->p->insns[i].op)->noperands)), y = *o;
        if (x == o || x->mark != o->mark || x->rows != o->rows || x->cols != o->cols || x->dtype != o->dtype)
            continue;
        *o = *x;
        *x = both ? y : *x;
        return true;
    }
    return false;
}

static bool move_buffer(struct draw *d)
{
    struct buffer *b = &d->p->buffers[below(d, d->p->nbuffers)];
    const struct buffer *other = &d->p->buffers[below(d, d->p->nbuffers)];
    if (below(d, 2) && other->offset != b->offset)
        b->offset = other->offset;
    else
        b->offset += below(d, 2) || b->offset < 256 ? 256u : 0u - 256u;
    return true;
}

static bool other_peer(struct draw *d)
{
    enum op op = d->p->insns[d->insn].op;
    struct attr *a = &d->p->attrs[d->p->insns[d->insn].attr];
    if ((op != OP_SEND && op != OP_RECV) || d->p->nslots < 2)
        return false;
    a->slot = (a->slot + 1 + below(d, d->p->nslots - 1)) % d->p->nslots;
    return true;
}

static bool other_values(struct draw *d)
{
    uint64_t *v = d->t->ranks->values + d->t->ranks->ranks[d->rank].slot;
    uint32_t n = d->p->nslots, i = n ? below(d, n) : 0, j = n ? below(d, n) : 0;
    if (!n || d->t->ranks->nranks < 2)
        return false;
    uint64_t old = v[i];
    if (below(d, 2) && i != j) {
        v[i] = v[j];
        v[j] = old;
    } else {
        v[i] = (v[i] + 1 + below(d, d->t->ranks->nranks - 1)) % d->t->ranks->nranks;
    }
    return true;
}

/* the instruction of a rank that a message meets; NONE: it is no message, or its role is the same, which cannot be changed twice */
static uint32_t find_peer(const struct draw *d, uint32_t *role)
{
    const struct insn *in = &d->p->insns[d->insn];
    if (in->op != OP_SEND && in->op != OP_RECV)
        return NONE;
    const struct rank_info *r = d->t->ranks->ranks;
    uint64_t peer = d->t->ranks->values[r[d->rank].slot + d->p->attrs[in->attr].slot];
    *role = r[peer].role;
    const struct program *q = d->t->programs[*role];
    for (uint32_t i = 0; i < q->ninsns && *role != r[d->rank].role; i++)
        if (q->insns[i].seq == in->seq)
            return i;
    return NONE;
}

/* drops an instruction of a role, or doubles it at the next number */
static void relist(struct transition *t, uint32_t role, uint32_t insn, bool twice)
{
    struct program *p = t->programs[role];
    uint32_t n = 0, *list = calloc(p->ninsns + 2u, sizeof *list), *seq = calloc(p->ninsns + 2u, sizeof *seq);
    for (uint32_t i = 0; i < p->ninsns; i++)
        for (uint32_t k = 0; k < (i != insn ? 1u : twice ? 2u : 0u); k++) {
            seq[n] = p->insns[i].seq + (twice && (i > insn || k));
            list[n++] = i;
        }
    t->programs[role] = mutate_rebuild(p, list, seq, n);
    program_free(p);
    free(list);
    free(seq);
}

static bool other_list(struct draw *d, bool twice, bool both)
{
    uint32_t role = 0, own = d->t->ranks->ranks[d->rank].role, there = find_peer(d, &role);
    if (both && there == NONE)
        return false;
    if (both) {
        d->t->programs[role] = mutate_copy(d->t->programs[role]);
        relist(d->t, role, there, twice);
    }
    relist(d->t, own, d->insn, twice);
    return true;
}

static bool smaller_message(struct draw *d)
{
    uint32_t role, there = find_peer(d, &role);
    if (there == NONE)
        return false;
    struct program *q = d->t->programs[role] = mutate_copy(d->t->programs[role]);
    struct operand *x = operand_of(d->p, d->insn, 0), *y = operand_of(q, there, 0);
    bool row = below(d, 2) && x->rows > 1, both_from = below(d, 2);
    if (!row && x->cols < 2)
        return false;
    for (int k = 0; k < 2; k++) {
        struct operand *o = k ? y : x;
        uint64_t size = isa_dtype_bytes((enum dtype)o->dtype);
        o->offset += both_from ? (row ? o->ld * size : size) : 0;
        *(row ? &o->rows : &o->cols) -= 1;
    }
    return true;
}

static bool swap_neighbours(struct draw *d)
{
    if (d->insn + 1 >= d->p->ninsns)
        return false;
    struct insn *x = &d->p->insns[d->insn], *y = x + 1, z = *x;
    uint32_t seq = x->seq, next = y->seq;
    *x = *y;
    *y = z;
    x->seq = seq;
    y->seq = next;
    return true;
}

static bool other_fill(struct draw *d)
{
    static const double values[] = {1, -0.0, 1e-30, INFINITY, -1, 0x1p-1074};
    if (d->p->insns[d->insn].op != OP_FILL)
        return false;
    d->p->attrs[d->p->insns[d->insn].attr + ATTR(FILL, value)].u.f = values[below(d, 6)];
    return true;
}

static bool other_op(struct draw *d)
{
    struct insn *in = &d->p->insns[d->insn];
    struct operand *o = operand_of(d->p, d->insn, 0);
    if (in->op == OP_SEND || in->op == OP_RECV) {
        in->op = in->op == OP_SEND ? OP_RECV : OP_SEND;
        in->queue = (uint8_t)isa_info(in->op)->queue;
        o->mark = in->op == OP_SEND ? MARK_READ : MARK_WRITE;
        return true;
    }
    if (in->op == OP_COPY)
        in->queue = QUEUE_COPY;
    return in->op == OP_COPY;
}

static bool other_seats(struct draw *d)
{
    uint32_t n = d->t->ranks->nranks, with = below(d, n);
    struct seat *s = &d->t->seats[d->rank], *other = &d->t->seats[with], was = *s;
    bool old = below(d, 2);
    if (below(d, 4) == 0) {
        *(old ? &s->from : &s->to) = NONE;
        return *(old ? &was.from : &was.to) != NONE;
    }
    if (below(d, 2)) { /* with its arena */
        *s = *other;
        *other = was;
    } else if (old) {
        s->from = other->from;
        other->from = was.from;
    } else {
        s->to = other->to;
        other->to = was.to;
    }
    return memcmp(s, &was, sizeof was) != 0;
}

static bool other_place(struct draw *d)
{
    struct rank_info *r = &d->t->ranks->ranks[d->rank], was = *r, *other = &d->t->ranks->ranks[below(d, d->t->ranks->nranks)];
    if (below(d, 2)) {
        *(below(d, 2) ? &r->node : &r->gpu) += 1;
        return true;
    }
    r->node = other->node;
    r->gpu = other->gpu;
    other->node = was.node;
    other->gpu = was.gpu;
    return r->node != was.node || r->gpu != was.gpu;
}

static bool other_role(struct draw *d)
{
    uint32_t *role = &d->t->ranks->ranks[d->rank].role;
    if (d->t->nroles < 2)
        return false;
    *role = (*role + 1 + below(d, d->t->nroles - 1)) % d->t->nroles;
    return true;
}

/* An old rank that has something was there, or nothing changes. */
static bool other_lost(struct draw *d)
{
    uint32_t was = d->t->lost;
    d->t->lost = below(d, d->t->from->topo->nnodes);
    return d->t->lost != was;
}

static bool change(struct draw *d, enum fault kind)
{
    uint64_t size = 256;
    switch (kind) {
    case FAULT_OFFSET:
    case FAULT_ROWS:
    case FAULT_COLS:
    case FAULT_LD:
    case FAULT_SHAPE:
    case FAULT_DTYPE:
    case FAULT_SLOT:
        return change_operand(d, kind);
    case FAULT_SMALLER:
        return smaller_message(d);
    case FAULT_BUFFER:
        return other_buffer(d);
    case FAULT_STEAL:
    case FAULT_EXCHANGE:
        return other_operand(d, kind == FAULT_EXCHANGE);
    case FAULT_PLACE:
        return move_buffer(d);
    case FAULT_PEER:
        return other_peer(d);
    case FAULT_VALUES:
        return other_values(d);
    case FAULT_DROP:
    case FAULT_DROP_BOTH:
        return other_list(d, false, kind == FAULT_DROP_BOTH);
    case FAULT_DOUBLE:
    case FAULT_DOUBLE_BOTH:
        return other_list(d, true, kind == FAULT_DOUBLE_BOTH);
    case FAULT_SWAP:
        return swap_neighbours(d);
    case FAULT_SEQ:
        d->p->insns[d->insn].seq += below(d, 2) ? 1u : 0u - 1u;
        return true;
    case FAULT_WAIT:
        if (d->insn + 1 != d->p->ninsns)
            return false;
        program_wait(d->p, d->insn, d->p->insns[0].queue, 0);
        return true;
    case FAULT_FILL:
        return other_fill(d);
    case FAULT_OP:
        return other_op(d);
    case FAULT_SEATS:
        return other_seats(d);
    case FAULT_BASE:
        d->t->seats[d->rank].base += below(d, 2) || d->t->seats[d->rank].base < size ? size : 0 - size;
        return true;
    case FAULT_ROLE:
        return other_role(d);
    case FAULT_GPU:
        return other_place(d);
    case FAULT_LOST:
        return other_lost(d);
    case NFAULTS:
        break;
    }
    return false;
}

bool fault_make(struct arena *a, const struct transition *t, enum fault kind, uint64_t *random, struct transition *out)
{
    uint32_t rank = random_below(random, t->ranks->nranks), role = t->ranks->ranks[rank].role;
    *out = *t;
    if (!t->programs[role]->ninsns)
        return false;
    out->programs = ARENA_ARRAY(a, struct program *, t->nroles);
    for (uint32_t i = 0; i < t->nroles; i++)
        out->programs[i] = t->programs[i];
    out->programs[role] = mutate_copy(t->programs[role]);
    out->ranks = mutate_copy_ranks(t->ranks);
    out->seats = ARENA_ARRAY(a, struct seat, t->ranks->nranks);
    memcpy(out->seats, t->seats, t->ranks->nranks * sizeof *t->seats);
    struct draw d = {out, random, rank, out->programs[role], random_below(random, t->programs[role]->ninsns)};
    return change(&d, kind);
}

void fault_free(const struct transition *t, struct transition *mutant)
{
    for (uint32_t i = 0; i < t->nroles; i++)
        if (mutant->programs[i] != t->programs[i])
            program_free(mutant->programs[i]);
    if (mutant->ranks != t->ranks)
        ranks_free(mutant->ranks);
}
