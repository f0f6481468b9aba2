/* Mutations of one instruction: partners, operands, attributes, waits, queue and number. */

#include "tests/compiler/verify/mutate_private.h"

#include <stdlib.h>
#include <string.h>

bool mutate_slot_of_comm(const struct mutate_draw *d, bool peer)
{
    uint32_t i = mutate_pick(d, peer ? mutate_is_p2p : mutate_is_collective);
    if (i == NONE)
        return false;
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
    const struct isa_info *info = isa_info(q->insns[i].op);
    for (uint32_t k = 0; k < info->nattrs; k++) {
        struct attr *at = &q->attrs[q->insns[i].attr + k];
        if (info->attr[k].kind != (peer ? ATTR_PEER : ATTR_GROUP))
            continue;
        for (uint32_t tries = 0; tries < 8; tries++) {
            uint32_t s = random_below(d->random, q->nslots);
            if (s == at->slot || q->slots[s].kind != q->slots[at->slot].kind)
                continue;
            at->slot = s;
            mutate_add_insn(d->m, q, i);
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

bool mutate_operand(const struct mutate_draw *d)
{
    uint32_t i = mutate_pick(d, mutate_any), k = i == NONE ? NONE : mutate_pick_operand(d, i);
    if (k == NONE)
        return false;
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
    struct operand *o = &q->operands[q->insns[i].operand + k];
    const struct buffer *b = &q->buffers[o->buffer];
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype), step;
    mutate_add_insn(d->m, q, i);
    switch ((unsigned)d->m->kind) {
    case MUTATE_SIZE:
        resize(o, random_below(d->random, 6));
        break;
    case MUTATE_SIZE_MATCHED: { /* all operands alike: the instruction stays well-formed */
        uint32_t how = random_below(d->random, 4);
        for (uint32_t j = 0; j < isa_info(q->insns[i].op)->noperands; j++)
            if (q->operands[q->insns[i].operand + j].buffer != NONE)
                resize(&q->operands[q->insns[i].operand + j], how);
        break;
    }
    case MUTATE_DTYPE:
        for (uint32_t j = 0; j < isa_info(q->insns[i].op)->noperands; j++) {
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
        if (isa_info(q->insns[i].op)->operand[k].mark != MARK_ADD)
            return false;
        for (uint32_t j = 0; j < isa_info(q->insns[i].op)->noperands; j++) {
            struct operand *x = &q->operands[q->insns[i].operand + j];
            if (x->buffer != NONE && isa_info(q->insns[i].op)->operand[j].mark == MARK_ADD)
                x->mark = x->mark == MARK_ADD ? MARK_WRITE : MARK_ADD;
        }
        break;
    }
    const struct operand *before = &d->p->operands[d->p->insns[i].operand];
    if (!memcmp(&q->operands[q->insns[i].operand], before,
                isa_info(q->insns[i].op)->noperands * sizeof *before))
        return false;
    if (o->rows && o->buffer != NONE)
        mutate_add_operands(d->m, q, i);
    return true;
}

bool mutate_attribute(const struct mutate_draw *d)
{
    uint32_t i = mutate_pick(d, mutate_any);
    if (i == NONE || !isa_info(d->p->insns[i].op)->nattrs)
        return false;
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
    const struct isa_info *info = isa_info(q->insns[i].op);
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
    mutate_add_insn(d->m, q, i);
    return true;
}

static bool has_bound(const struct program *p, uint32_t i)
{
    const struct isa_info *info = isa_info(p->insns[i].op);
    bool bound = false;
    for (uint32_t k = 0; k < info->nattrs; k++)
        bound |= info->attr[k].kind == ATTR_BIND;
    return bound;
}

static bool has_inputs(const struct program *p, uint32_t i)
{
    return isa_info(p->insns[i].op)->noperands > 2;
}

bool mutate_bind_slot(const struct mutate_draw *d)
{
    uint32_t i = mutate_pick(d, has_bound), s = random_below(d->random, d->p->nslots ? d->p->nslots : 1);
    if (i == NONE || s >= d->p->nslots || (d->p->slots[s].kind != SLOT_COORD && d->p->slots[s].kind != SLOT_FIRST))
        return false;
    const struct isa_info *info = isa_info(d->p->insns[i].op);
    for (uint32_t k = 0; k < info->nattrs; k++) {
        const struct attr *before = &d->p->attrs[d->p->insns[i].attr + k];
        if (info->attr[k].kind != ATTR_BIND || before->slot == s || (before->slot == NONE && random_below(d->random, 2)))
            continue;
        struct program *q = mutate_own(d->m, d->role, d->evaluation);
        struct attr *at = &q->attrs[q->insns[i].attr + k];
        at->stride = at->slot == NONE ? 1 : at->stride;
        at->slot = s;
        mutate_add_insn(d->m, q, i);
        return true;
    }
    return false;
}

/* for instance keys and values, or what is merged and what it is merged into */
bool mutate_exchanged(const struct mutate_draw *d)
{
    uint32_t i = mutate_pick(d, has_inputs);
    if (i == NONE)
        return false;
    const struct isa_info *info = isa_info(d->p->insns[i].op);
    uint32_t n = info->noperands, x = random_below(d->random, n), y = random_below(d->random, n);
    const struct operand *ox = &d->p->operands[d->p->insns[i].operand + x], *oy = &d->p->operands[d->p->insns[i].operand + y];
    bool alike = ox->buffer != NONE && oy->buffer != NONE && ox->rows == oy->rows && ox->cols == oy->cols &&
                 ox->dtype == oy->dtype && (ox->buffer != oy->buffer || ox->offset != oy->offset);
    if (x == y || !alike)
        return false;
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
    struct operand *to = &q->operands[q->insns[i].operand], t = to[x];
    uint8_t mark_x = to[x].mark, mark_y = to[y].mark;
    to[x] = to[y];
    to[y] = t;
    to[x].mark = mark_x;
    to[y].mark = mark_y;
    mutate_add_insn(d->m, q, i);
    return true;
}

bool mutate_wait(const struct mutate_draw *d)
{
    uint32_t i = mutate_pick(d, mutate_has_waits);
    if (i == NONE)
        return false;
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
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
    mutate_add_insn(d->m, q, i);
    return true;
}

bool mutate_queue(const struct mutate_draw *d)
{
    static const uint8_t queues[] = {QUEUE_TP, QUEUE_DP, QUEUE_COMPUTE};
    uint32_t i = mutate_pick(d, mutate_is_collective);
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
    mutate_add_insn(d->m, changed, i);
    d->m->seq = d->p->insns[i].seq;
    mutate_replace(d->m, d->role, d->evaluation, changed);
    return true;
}

bool mutate_seq(const struct mutate_draw *d)
{
    uint32_t i = mutate_pick(d, mutate_is_comm);
    if (i == NONE)
        return false;
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
    q->insns[i].seq += random_below(d->random, 2) ? 1 : UINT32_MAX;
    mutate_add_insn(d->m, q, i);
    return true;
}

bool mutate_stale(const struct mutate_draw *d)
{
    uint32_t i = mutate_pick(d, mutate_is_gather_of_parameters);
    if (i == NONE)
        return false;
    if (random_below(d->random, 2))
        return mutate_on_all_members(d, i, mutate_drop_from);
    /* nobody waits for it any more */
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
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
    mutate_add_insn(d->m, q, i);
    return changed > 0;
}

