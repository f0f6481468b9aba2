/* Mutations of plans; see mutate.h.  Programs are rebuilt through the builder, so every mutant is what a
 * compiler with that fault would have handed over: positions, waits and arrays are consistent, only the fault
 * is there. */

#include "tests/compiler/verify/mutate.h"

#include "tests/compiler/random_plan.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[NMUTATIONS] = {
    "drop",          "drop matched",  "duplicate",       "duplicate matched",  "swap",
    "swap matched",  "wrong peer",    "wrong group",     "wrong size",         "wrong size matched",
    "wrong dtype",   "missing wait",  "earlier wait",    "overlapping buffer", "wrong offset",
    "wrong buffer",  "wrong mark",    "wrong attribute", "wrong queue",        "wrong seq",
    "skipped layer", "swapped layer", "stale parameter", "missing reduction",  "wrong slot value",
    "wrong GPU",     "wrong tensor",  "wrong arena",
};

const char *mutation_name(enum mutation m)
{
    return names[m];
}

static struct program **slot_of(struct plan *p, uint32_t role, bool evaluation)
{
    return evaluation ? &p->eval[role] : &p->train[role];
}

/* the mutant's own copy of one program */
static struct program *own(struct mutant *m, uint32_t role, bool evaluation)
{
    struct program **at = slot_of(&m->plan, role, evaluation);
    const struct program *original = evaluation ? m->original->eval[role] : m->original->train[role];
    if (*at == original)
        *at = mutate_copy(original);
    return *at;
}

static void replace(struct mutant *m, uint32_t role, bool evaluation, struct program *p)
{
    struct program **at = slot_of(&m->plan, role, evaluation);
    if (*at != (evaluation ? m->original->eval[role] : m->original->train[role]))
        program_free(*at);
    *at = p;
}

void mutant_free(struct mutant *m)
{
    for (uint32_t r = 0; r < m->plan.nroles; r++) {
        if (m->plan.train[r] != m->original->train[r])
            program_free(m->plan.train[r]);
        if (m->plan.eval[r] != m->original->eval[r])
            program_free(m->plan.eval[r]);
    }
    if (m->plan.ranks != m->original->ranks)
        ranks_free(m->plan.ranks);
}

/* ---- sites ---- */

static void add_site(struct mutant *m, uint32_t role, bool evaluation, uint32_t insn, uint64_t start,
                     uint64_t end)
{
    if (m->nsites < MOST_SITES)
        m->sites[m->nsites++] = (struct mutation_site){role, insn, evaluation, start, end};
}

/* all bytes that an instruction touches */
static void add_operands(struct mutant *m, const struct program *p, uint32_t insn)
{
    for (uint32_t k = 0; k < isa_info((enum op)p->insns[insn].op)->noperands; k++) {
        const struct operand *o = &p->operands[p->insns[insn].operand + k];
        if (o->buffer == NONE)
            continue;
        uint64_t start = p->buffers[o->buffer].offset + o->offset,
                 size = isa_dtype_bytes((enum dtype)o->dtype);
        uint64_t span = o->slot == UINT16_MAX ? 0 : (uint64_t)p->slots[o->slot].most * o->slot_stride;
        add_site(m, p->role, p->evaluation, NONE, start,
                 start + span + ((uint64_t)(o->rows - 1) * o->ld + o->cols) * size);
    }
}

static void add_insn(struct mutant *m, const struct program *p, uint32_t insn)
{
    add_site(m, p->role, p->evaluation, insn, 0, 0);
    add_operands(m, p, insn);
}

/* ---- choosing ---- */

struct draw {
    struct mutant *m;
    uint64_t *random;
    uint32_t role;
    bool evaluation;
    const struct program *p; /* the original */
};

static bool is_p2p(const struct program *p, uint32_t i)
{
    return isa_info((enum op)p->insns[i].op)->unit == UNIT_P2P;
}

static bool is_collective(const struct program *p, uint32_t i)
{
    return isa_info((enum op)p->insns[i].op)->unit == UNIT_COLLECTIVE;
}

static bool is_comm(const struct program *p, uint32_t i)
{
    return is_p2p(p, i) || is_collective(p, i);
}

static bool is_reduction(const struct program *p, uint32_t i)
{
    return p->insns[i].op == OP_ALL_REDUCE || p->insns[i].op == OP_REDUCE_SCATTER;
}

static bool is_gather_of_parameters(const struct program *p, uint32_t i)
{
    return p->insns[i].op == OP_ALL_GATHER &&
           p->buffers[p->operands[p->insns[i].operand].buffer].kind == BUFFER_PARAM;
}

static bool accumulates(const struct program *p, uint32_t i)
{
    for (uint32_t k = 0; k < isa_info((enum op)p->insns[i].op)->noperands; k++) {
        uint8_t mark = p->operands[p->insns[i].operand + k].mark;
        if (p->operands[p->insns[i].operand + k].buffer != NONE && (mark == MARK_ADD || mark == MARK_UPDATE))
            return true;
    }
    return false;
}

static bool has_waits(const struct program *p, uint32_t i)
{
    return p->insns[i].nwaits > 0;
}

static bool any(const struct program *p, uint32_t i)
{
    (void)p;
    (void)i;
    return true;
}

/* a random instruction for which `fits` holds; NONE after many tries */
static uint32_t pick(const struct draw *d, bool (*fits)(const struct program *, uint32_t))
{
    for (int tries = 0; tries < 64 && d->p->ninsns; tries++) {
        uint32_t i = random_below(d->random, d->p->ninsns);
        if (fits(d->p, i))
            return i;
    }
    return NONE;
}

/* a random present operand; NONE */
static uint32_t pick_operand(const struct draw *d, uint32_t insn)
{
    uint32_t n = isa_info((enum op)d->p->insns[insn].op)->noperands;
    for (int tries = 0; tries < 16; tries++) {
        uint32_t k = random_below(d->random, n);
        if (d->p->operands[d->p->insns[insn].operand + k].buffer != NONE)
            return k;
    }
    return NONE;
}

static uint32_t find_seq(const struct program *p, uint32_t seq)
{
    for (uint32_t i = 0; i < p->ninsns; i++)
        if (p->insns[i].seq == seq)
            return i;
    return NONE;
}

/* ---- mutations of the list of instructions ---- */

static bool drop_from(struct mutant *m, const struct program *p, uint32_t insn)
{
    uint32_t n = 0, *list = calloc(p->ninsns + 1u, sizeof *list);
    for (uint32_t i = 0; i < p->ninsns; i++)
        if (i != insn)
            list[n++] = i;
    struct program *q = mutate_rebuild(p, list, NULL, n);
    free(list);
    add_operands(m, p, insn);
    if (insn < n)
        add_site(m, p->role, p->evaluation, insn, 0, 0);
    for (uint32_t r = 0; r < m->plan.nroles && is_comm(p, insn); r++) { /* what it met */
        const struct program *other = p->evaluation ? m->plan.eval[r] : m->plan.train[r];
        uint32_t i = r == p->role ? NONE : find_seq(other, p->insns[insn].seq);
        if (i != NONE)
            add_site(m, r, p->evaluation, i, 0, 0);
    }
    replace(m, p->role, p->evaluation, q);
    return true;
}

static bool duplicate_in(struct mutant *m, const struct program *p, uint32_t insn)
{
    uint32_t n = 0, *list = calloc(p->ninsns + 2u, sizeof *list), *seq = calloc(p->ninsns + 2u, sizeof *seq);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        seq[n] = p->insns[i].seq;
        list[n++] = i;
        if (i == insn) {
            seq[n] = p->insns[i].seq + 1;
            list[n++] = i;
        }
    }
    struct program *q = mutate_rebuild(p, list, seq, n);
    free(list);
    free(seq);
    add_insn(m, q, insn);
    add_insn(m, q, insn + 1);
    replace(m, p->role, p->evaluation, q);
    return true;
}

/* exchange the places of two instructions */
static bool swap_in(struct mutant *m, const struct program *p, uint32_t x, uint32_t y)
{
    uint32_t *list = calloc(p->ninsns + 1u, sizeof *list), *seq = calloc(p->ninsns + 1u, sizeof *seq);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        list[i] = i == x ? y : i == y ? x : i;
        seq[i] = p->insns[i].seq;
    }
    struct program *q = mutate_rebuild(p, list, seq, p->ninsns);
    free(list);
    free(seq);
    add_insn(m, q, x);
    add_insn(m, q, y);
    replace(m, p->role, p->evaluation, q);
    return true;
}

/* on every role that takes part in instruction `insn` of the drawn one */
static bool on_all_members(const struct draw *d, uint32_t insn,
                           bool (*change)(struct mutant *, const struct program *, uint32_t))
{
    uint32_t seq = d->p->insns[insn].seq;
    for (uint32_t r = 0; r < d->m->plan.nroles; r++) {
        const struct program *p = d->evaluation ? d->m->original->eval[r] : d->m->original->train[r];
        uint32_t i = find_seq(p, seq);
        if (i != NONE && (r == d->role || is_comm(p, i)))
            change(d->m, p, i);
    }
    return true;
}

static bool mutate_list(const struct draw *d)
{
    uint32_t i;
    switch ((unsigned)d->m->kind) {
    case MUTATE_DROP:
        return (i = pick(d, any)) != NONE && drop_from(d->m, d->p, i);
    case MUTATE_DROP_MATCHED:
        return (i = pick(d, is_comm)) != NONE && on_all_members(d, i, drop_from);
    case MUTATE_REDUCTION:
        return (i = pick(d, is_reduction)) != NONE && on_all_members(d, i, drop_from);
    case MUTATE_DUPLICATE:
        return (i = pick(d, random_below(d->random, 8) ? accumulates : any)) != NONE &&
               duplicate_in(d->m, d->p, i);
    case MUTATE_DUPLICATE_MATCHED:
        return (i = pick(d, is_comm)) != NONE && on_all_members(d, i, duplicate_in);
    }
    return false;
}

static bool mutate_swap(const struct draw *d)
{
    uint32_t x = pick(d, any), y = x;
    if (x == NONE)
        return false;
    do
        y++;
    while (y < d->p->ninsns && d->p->insns[y].queue != d->p->insns[x].queue);
    return y < d->p->ninsns && swap_in(d->m, d->p, x, y);
}

static bool mutate_swap_matched(const struct draw *d)
{
    uint32_t x = pick(d, is_p2p), y = x;
    if (x == NONE)
        return false;
    do
        y++;
    while (y < d->p->ninsns &&
           (d->p->insns[y].op != d->p->insns[x].op || d->p->insns[y].queue != d->p->insns[x].queue));
    if (y >= d->p->ninsns)
        return false;
    /* contents only: everything still matches */
    struct program *q = own(d->m, d->role, d->evaluation);
    uint32_t k = d->p->insns[x].op == OP_SEND ? OPND(SEND, x) : OPND(RECV, y);
    struct operand *ox = &q->operands[q->insns[x].operand + k], *oy = &q->operands[q->insns[y].operand + k],
                   t = *ox;
    if (!memcmp(ox, oy, sizeof t))
        return false;
    *ox = *oy;
    *oy = t;
    add_insn(d->m, q, x);
    add_insn(d->m, q, y);
    return true;
}

static bool drops_layer(const struct insn *in, const struct insn *like)
{
    return in->layer == like->layer && in->microbatch == like->microbatch && in->action == like->action;
}

static bool mutate_layer(const struct draw *d)
{
    uint32_t i = pick(d, any), n = 0, dropped = 0;
    if (i == NONE || d->p->insns[i].layer == NONE || d->p->insns[i].microbatch == NONE)
        return false;
    struct insn like = d->p->insns[i];
    uint32_t *list = calloc(d->p->ninsns + 1u, sizeof *list), first = NONE;
    for (uint32_t k = 0; k < d->p->ninsns; k++) {
        if (drops_layer(&d->p->insns[k], &like)) {
            first = first == NONE ? n : first;
            dropped++;
            add_operands(d->m, d->p, k);
        } else {
            list[n++] = k;
        }
    }
    struct program *q = mutate_rebuild(d->p, list, NULL, n);
    free(list);
    if (first < n)
        add_site(d->m, d->role, d->evaluation, first, 0, 0);
    replace(d->m, d->role, d->evaluation, q);
    return dropped > 0;
}

/* one action uses the weights of another layer, of the same shapes */
static bool mutate_layer_swapped(const struct draw *d)
{
    uint32_t i = pick(d, any), changed = 0;
    if (i == NONE || d->p->insns[i].layer == NONE || d->p->insns[i].microbatch == NONE)
        return false;
    struct insn like = d->p->insns[i];
    struct program *q = own(d->m, d->role, d->evaluation);
    for (uint32_t k = 0; k < q->ninsns; k++)
        for (uint32_t o = 0;
             drops_layer(&q->insns[k], &like) && o < isa_info((enum op)q->insns[k].op)->noperands; o++) {
            struct operand *x = &q->operands[q->insns[k].operand + o];
            if (x->buffer == NONE || q->buffers[x->buffer].kind != BUFFER_PARAM)
                continue;
            for (uint32_t b = 0; b < q->nbuffers; b++)
                if (b != x->buffer && q->buffers[b].kind == BUFFER_PARAM &&
                    q->buffers[b].bytes == q->buffers[x->buffer].bytes) {
                    add_insn(d->m, q, k);
                    x->buffer = b;
                    add_insn(d->m, q, k);
                    changed++;
                    break;
                }
        }
    return changed > 0;
}

/* ---- mutations of one instruction ---- */

static bool mutate_slot_of_comm(const struct draw *d, bool peer)
{
    uint32_t i = pick(d, peer ? is_p2p : is_collective);
    if (i == NONE)
        return false;
    struct program *q = own(d->m, d->role, d->evaluation);
    const struct isa_info *info = isa_info((enum op)q->insns[i].op);
    for (uint32_t k = 0; k < info->nattrs; k++) {
        struct attr *at = &q->attrs[q->insns[i].attr + k];
        if (info->attr[k].kind != (peer ? ATTR_PEER : ATTR_GROUP))
            continue;
        for (uint32_t tries = 0; tries < 8; tries++) {
            uint32_t s = random_below(d->random, q->nslots);
            if (s == at->slot || q->slots[s].kind != q->slots[at->slot].kind)
                continue;
            at->slot = s;
            add_insn(d->m, q, i);
            return true;
        }
    }
    return false;
}

static void resize(struct operand *o, uint32_t how)
{
    if (how == 0 && o->rows > 1)
        o->rows--;
    else if (how == 1 && o->cols > 1)
        o->cols--;
    else if (how == 2)
        o->rows++;
    else if (how == 3 && o->rows % 2 == 0)
        o->rows /= 2;
    else if (how == 4)
        o->ld++;
    else
        o->cols = o->cols > 2 ? o->cols / 2 : o->cols + 1;
}

static bool mutate_operand(const struct draw *d)
{
    uint32_t i = pick(d, any), k = i == NONE ? NONE : pick_operand(d, i);
    if (k == NONE)
        return false;
    struct program *q = own(d->m, d->role, d->evaluation);
    struct operand *o = &q->operands[q->insns[i].operand + k];
    const struct buffer *b = &q->buffers[o->buffer];
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype), step;
    add_insn(d->m, q, i);
    switch ((unsigned)d->m->kind) {
    case MUTATE_SIZE:
        resize(o, random_below(d->random, 6));
        break;
    case MUTATE_SIZE_MATCHED: { /* all operands alike: the instruction stays well-formed */
        uint32_t how = random_below(d->random, 4);
        for (uint32_t j = 0; j < isa_info((enum op)q->insns[i].op)->noperands; j++)
            if (q->operands[q->insns[i].operand + j].buffer != NONE)
                resize(&q->operands[q->insns[i].operand + j], how);
        break;
    }
    case MUTATE_DTYPE:
        for (uint32_t j = 0; j < isa_info((enum op)q->insns[i].op)->noperands; j++) {
            struct operand *x = &q->operands[q->insns[i].operand + j];
            if (x->buffer != NONE && (j == k || random_below(d->random, 2)))
                x->dtype = x->dtype == DTYPE_F32 ? DTYPE_BF16 : DTYPE_F32;
        }
        break;
    case MUTATE_OFFSET:
        step = b->ring != NONE && random_below(d->random, 2) ? b->stride
               : random_below(d->random, 2)                  ? size
                                                             : o->ld * size;
        if (b->ring != NONE && step == b->stride)
            o->offset = (o->offset + step) % b->bytes;
        else if (random_below(d->random, 2))
            o->offset += step;
        else if (o->offset >= step)
            o->offset -= step;
        else
            return false;
        break;
    case MUTATE_BUFFER:
        for (uint32_t tries = 0; tries < 32; tries++) {
            uint32_t other = random_below(d->random, q->nbuffers);
            if (other != o->buffer && q->buffers[other].bytes >= b->stride &&
                q->buffers[other].kind == b->kind) {
                o->buffer = other;
                o->offset %= q->buffers[other].bytes;
                break;
            }
        }
        break;
    case MUTATE_MARK:
        if (isa_info((enum op)q->insns[i].op)->operand[k].mark != MARK_ADD)
            return false;
        for (uint32_t j = 0; j < isa_info((enum op)q->insns[i].op)->noperands; j++) {
            struct operand *x = &q->operands[q->insns[i].operand + j];
            if (x->buffer != NONE && isa_info((enum op)q->insns[i].op)->operand[j].mark == MARK_ADD)
                x->mark = x->mark == MARK_ADD ? MARK_WRITE : MARK_ADD;
        }
        break;
    }
    const struct operand *before = &d->p->operands[d->p->insns[i].operand];
    if (!memcmp(&q->operands[q->insns[i].operand], before,
                isa_info((enum op)q->insns[i].op)->noperands * sizeof *before))
        return false;
    if (o->rows && o->buffer != NONE)
        add_operands(d->m, q, i);
    return true;
}

static bool mutate_attribute(const struct draw *d)
{
    uint32_t i = pick(d, any);
    if (i == NONE || !isa_info((enum op)d->p->insns[i].op)->nattrs)
        return false;
    struct program *q = own(d->m, d->role, d->evaluation);
    const struct isa_info *info = isa_info((enum op)q->insns[i].op);
    uint32_t k = random_below(d->random, info->nattrs);
    struct attr *at = &q->attrs[q->insns[i].attr + k];
    switch (info->attr[k].kind) {
    case ATTR_INT:
        at->u.i += random_below(d->random, 2) ? 1 : -1;
        break;
    case ATTR_REAL:
        at->u.f = at->u.f != 0 && random_below(d->random, 2) ? at->u.f * 1.0001 : at->u.f + 1;
        break;
    case ATTR_BIND:
        if (at->slot != NONE && random_below(d->random, 2))
            at->stride += random_below(d->random, 2) ? 1 : -at->stride + 1;
        else
            at->u.i += 1 + random_below(d->random, 4);
        break;
    case ATTR_PEER:
    case ATTR_GROUP:
        return false;
    }
    add_insn(d->m, q, i);
    return true;
}

static bool mutate_wait(const struct draw *d)
{
    uint32_t i = pick(d, has_waits);
    if (i == NONE)
        return false;
    struct program *q = own(d->m, d->role, d->evaluation);
    struct insn *in = &q->insns[i];
    uint32_t w = random_below(d->random, in->nwaits);
    struct wait *wait = &q->waits[in->wait + w];
    if (d->m->kind == MUTATE_WAIT) {
        memmove(wait, wait + 1, (in->nwaits - w - 1u) * sizeof *wait);
        in->nwaits--;
    } else if (wait->position) {
        wait->position--;
    } else {
        return false;
    }
    add_insn(d->m, q, i);
    return true;
}

static bool mutate_queue(const struct draw *d)
{
    static const uint8_t queues[] = {QUEUE_TP, QUEUE_DP, QUEUE_COMPUTE};
    uint32_t i = pick(d, is_collective);
    if (i == NONE)
        return false;
    uint8_t to = queues[random_below(d->random, 3)];
    if (to == d->p->insns[i].queue)
        return false;
    /* through a rebuild, so that waits keep their targets */
    struct program *changed = mutate_copy(d->p);
    changed->insns[i].queue = to;
    uint32_t position[NQUEUES] = {0}, *at[NQUEUES], *old = calloc(d->p->ninsns + 1u, sizeof *old);
    for (int qu = 0; qu < NQUEUES; qu++)
        at[qu] = calloc(d->p->ninsns + 1u, sizeof *at[qu]);
    for (uint32_t k = 0; k < d->p->ninsns; k++)
        at[d->p->insns[k].queue][position[d->p->insns[k].queue]++] = k;
    memset(position, 0, sizeof position);
    for (uint32_t k = 0; k < d->p->ninsns; k++)
        old[k] = position[changed->insns[k].queue]++;
    for (uint32_t k = 0; k < d->p->ninsns; k++)
        for (uint32_t w = 0; w < changed->insns[k].nwaits; w++) {
            struct wait *x = &changed->waits[changed->insns[k].wait + w];
            uint32_t target = at[x->queue][x->position];
            *x = (struct wait){changed->insns[target].queue, old[target]};
        }
    for (int qu = 0; qu < NQUEUES; qu++)
        free(at[qu]);
    free(old);
    add_insn(d->m, changed, i);
    d->m->seq = d->p->insns[i].seq;
    replace(d->m, d->role, d->evaluation, changed);
    return true;
}

static bool mutate_seq(const struct draw *d)
{
    uint32_t i = pick(d, is_comm);
    if (i == NONE)
        return false;
    struct program *q = own(d->m, d->role, d->evaluation);
    q->insns[i].seq += random_below(d->random, 2) ? 1 : UINT32_MAX;
    add_insn(d->m, q, i);
    return true;
}

static bool mutate_stale(const struct draw *d)
{
    uint32_t i = pick(d, is_gather_of_parameters);
    if (i == NONE)
        return false;
    if (random_below(d->random, 2))
        return on_all_members(d, i, drop_from);
    /* nobody waits for it any more */
    struct program *q = own(d->m, d->role, d->evaluation);
    uint32_t positions = 0, changed = 0;
    for (uint32_t k = 0; k < i; k++)
        positions += q->insns[k].queue == q->insns[i].queue;
    for (uint32_t k = 0; k < q->ninsns; k++)
        for (uint32_t w = 0; w < q->insns[k].nwaits; w++) {
            struct wait *x = &q->waits[q->insns[k].wait + w];
            if (x->queue != q->insns[i].queue || x->position != positions)
                continue;
            memmove(x, x + 1, (q->insns[k].nwaits - w - 1u) * sizeof *x);
            q->insns[k].nwaits--;
            changed++;
            break;
        }
    add_insn(d->m, q, i);
    return changed > 0;
}

/* ---- mutations of tables ---- */

static bool mutate_buffers(const struct draw *d)
{
    struct program *q = own(d->m, d->role, d->evaluation);
    uint32_t b = random_below(d->random, q->nbuffers), other = random_below(d->random, q->nbuffers);
    struct buffer *x = &q->buffers[b];
    uint64_t before = x->offset;
    add_site(d->m, d->role, d->evaluation, NONE, x->offset, x->offset + x->bytes);
    if (d->m->kind == MUTATE_ARENA) {
        d->m->global = true;
        if (random_below(d->random, 2))
            q->arena_bytes += (uint64_t)4 << 30;
        else
            x->offset = q->arena_bytes / 256 * 256;
        return true;
    }
    switch (random_below(d->random, 3)) {
    case 0:
        x->offset = q->buffers[other].offset;
        break;
    case 1:
        x->offset += 256;
        break;
    default:
        x->offset -= x->offset ? 256 : 0;
        break;
    }
    add_site(d->m, d->role, d->evaluation, NONE, x->offset, x->offset + x->bytes);
    return x->offset != before;
}

static bool mutate_slot_value(const struct draw *d)
{
    struct ranks *r = d->m->plan.ranks = mutate_copy_ranks(d->m->original->ranks);
    uint32_t rank = random_below(d->random, r->nranks),
             slots = d->m->original->train[r->ranks[rank].role]->nslots;
    d->m->global = true;
    if (random_below(d->random, 3) == 0) {
        struct group *g = &r->groups[random_below(d->random, r->ngroups ? r->ngroups : 1)];
        if (!r->ngroups)
            return false;
        if (random_below(d->random, 2))
            g->first += random_below(d->random, 2) ? 1 : UINT32_MAX;
        else
            g->stride[0] += 1;
        return g->n[0] > 1;
    }
    if (!slots)
        return false;
    uint64_t *v = &r->values[r->ranks[rank].slot + random_below(d->random, slots)];
    *v += random_below(d->random, 2) || !*v ? 1 : UINT64_MAX;
    return true;
}

static bool mutate_gpu(const struct draw *d)
{
    struct ranks *r = d->m->plan.ranks = mutate_copy_ranks(d->m->original->ranks);
    uint32_t rank = random_below(d->random, r->nranks);
    d->m->global = true;
    switch (random_below(d->random, 3)) {
    case 0:
        r->ranks[rank].gpu++;
        break;
    case 1:
        r->ranks[rank].node++;
        break;
    default:
        r->ranks[rank].role = (r->ranks[rank].role + 1) % r->nroles;
        return r->nroles > 1;
    }
    return true;
}

static bool mutate_tensor(const struct draw *d)
{
    struct program *q = own(d->m, d->role, d->evaluation);
    d->m->global = true;
    if (!q->ntensors)
        return false;
    struct tensor *t = &q->tensors[random_below(d->random, q->ntensors)],
                  *u = &q->tensors[random_below(d->random, q->ntensors)];
    char name[sizeof t->name];
    switch (random_below(d->random, 6)) {
    case 0:
        memcpy(name, t->name, sizeof name);
        memcpy(t->name, u->name, sizeof name);
        memcpy(u->name, name, sizeof name);
        return strcmp(t->name, u->name) != 0;
    case 1:
        t->row++;
        break;
    case 2:
        t->row_stride += t->row_slot != NONE;
        t->col_stride += t->col_slot != NONE;
        return t->row_slot != NONE || t->col_slot != NONE;
    case 3:
        t->transposed = !t->transposed;
        break;
    case 4:
        q->buckets[random_below(d->random, q->nbuckets)].decay ^= true;
        break;
    default:
        t->col++;
        break;
    }
    return true;
}

bool mutate(struct arena *a, const struct plan *p, enum mutation kind, uint64_t *random, struct mutant *m)
{
    *m = (struct mutant){.plan = *p, .kind = kind, .original = p};
    m->plan.train = ARENA_ARRAY(a, struct program *, p->nroles);
    m->plan.eval = ARENA_ARRAY(a, struct program *, p->nroles);
    memcpy(m->plan.train, p->train, p->nroles * sizeof *p->train);
    memcpy(m->plan.eval, p->eval, p->nroles * sizeof *p->eval);
    struct draw d = {m, random, random_below(random, p->nroles), random_below(random, 8) == 0, NULL};
    d.p = d.evaluation ? p->eval[d.role] : p->train[d.role];
    m->values =
        kind != MUTATE_WAIT && kind != MUTATE_WAIT_EARLIER && kind != MUTATE_SEQ && kind != MUTATE_QUEUE;
    bool done = false;
    switch (kind) {
    case MUTATE_DROP:
    case MUTATE_DROP_MATCHED:
    case MUTATE_REDUCTION:
    case MUTATE_DUPLICATE:
    case MUTATE_DUPLICATE_MATCHED:
        done = mutate_list(&d);
        break;
    case MUTATE_SWAP:
        done = mutate_swap(&d);
        break;
    case MUTATE_SWAP_MATCHED:
        done = mutate_swap_matched(&d);
        break;
    case MUTATE_PEER:
    case MUTATE_GROUP:
        done = mutate_slot_of_comm(&d, kind == MUTATE_PEER);
        break;
    case MUTATE_SIZE:
    case MUTATE_SIZE_MATCHED:
    case MUTATE_DTYPE:
    case MUTATE_OFFSET:
    case MUTATE_BUFFER:
    case MUTATE_MARK:
        done = mutate_operand(&d);
        break;
    case MUTATE_ATTRIBUTE:
        done = mutate_attribute(&d);
        break;
    case MUTATE_WAIT:
    case MUTATE_WAIT_EARLIER:
        done = mutate_wait(&d);
        break;
    case MUTATE_OVERLAP:
    case MUTATE_ARENA:
        done = mutate_buffers(&d);
        break;
    case MUTATE_QUEUE:
        done = mutate_queue(&d);
        break;
    case MUTATE_SEQ:
        done = mutate_seq(&d);
        break;
    case MUTATE_LAYER_SKIPPED:
        done = mutate_layer(&d);
        break;
    case MUTATE_LAYER_SWAPPED:
        done = mutate_layer_swapped(&d);
        break;
    case MUTATE_STALE:
        done = mutate_stale(&d);
        break;
    case MUTATE_SLOT_VALUE:
        done = mutate_slot_value(&d);
        break;
    case MUTATE_GPU:
        done = mutate_gpu(&d);
        break;
    case MUTATE_TENSOR:
        done = mutate_tensor(&d);
        break;
    case NMUTATIONS:
        break;
    }
    if (!done)
        mutant_free(m);
    return done;
}
