/* Is a violation about the fault?  It must be reported at an instruction that the fault touches, that meets it, or that
 * uses its bytes. */

#include "tests/compiler/verify/mutate.h"

#include <stdlib.h>
#include <string.h>

static bool overlaps_site(const struct mutant *m, uint32_t role, bool evaluation, uint32_t insn)
{
    const struct program *p = evaluation ? m->plan.eval[role] : m->plan.train[role];
    for (uint32_t k = 0; k < isa_info(p->insns[insn].op)->noperands; k++) {
        const struct operand *o = &p->operands[p->insns[insn].operand + k];
        if (o->buffer == NONE)
            continue;
        uint64_t size = isa_dtype_bytes((enum dtype)o->dtype),
                 start = program_operand_offset(p, o);
        uint64_t span = o->slot == UINT16_MAX ? 0 : (uint64_t)p->slots[o->slot].most * o->slot_stride;
        uint64_t end = start + span + ((uint64_t)(o->rows - 1) * o->ld + o->cols) * size;
        for (uint32_t s = 0; s < m->nsites; s++)
            if (m->sites[s].role == role && m->sites[s].evaluation == evaluation && m->sites[s].start < end &&
                start < m->sites[s].end)
                return true;
    }
    return false;
}

/* a fault in what a role sends is seen where it is used: one step of messages is followed */
static bool meets_site(const struct mutant *m, uint32_t role, bool evaluation, uint32_t insn)
{
    const struct program *p = evaluation ? m->plan.eval[role] : m->plan.train[role];
    for (uint32_t s = 0; s < m->nsites; s++) {
        const struct mutation_site *x = &m->sites[s];
        if (x->insn == NONE || x->evaluation != evaluation)
            continue;
        const struct program *q = evaluation ? m->plan.eval[x->role] : m->plan.train[x->role];
        if (x->insn < q->ninsns && (q->insns[x->insn].seq + 4) / 8 == (p->insns[insn].seq + 4) / 8)
            return true;
    }
    return false;
}

/* a collective across roles is one instruction: does any member's part of it use the bytes? */
static bool member_overlaps(const struct mutant *m, uint32_t role, bool evaluation, uint32_t insn)
{
    const struct program *p = evaluation ? m->plan.eval[role] : m->plan.train[role];
    enum unit unit = isa_info(p->insns[insn].op)->unit;
    if (unit != UNIT_COLLECTIVE && unit != UNIT_P2P)
        return false;
    for (uint32_t r = 0; r < m->plan.nroles; r++) {
        const struct program *q = evaluation ? m->plan.eval[r] : m->plan.train[r];
        for (uint32_t i = 0; i < q->ninsns; i++)
            if (q->insns[i].seq == p->insns[insn].seq && overlaps_site(m, r, evaluation, i))
                return true;
    }
    return false;
}

/* bytes of an operand on any rank of the role */
static void hull(const struct program *p, const struct operand *o, uint64_t *start, uint64_t *end)
{
    uint64_t span = o->slot == UINT16_MAX ? 0 : (uint64_t)p->slots[o->slot].most * o->slot_stride;
    *start = program_operand_offset(p, o);
    *end = *start + span + ((uint64_t)(o->rows - 1) * o->ld + o->cols) * isa_dtype_bytes((enum dtype)o->dtype);
}

static bool share_bytes(const struct program *p, uint32_t x, uint32_t y)
{
    for (uint32_t j = 0; j < isa_info(p->insns[x].op)->noperands; j++)
        for (uint32_t k = 0; k < isa_info(p->insns[y].op)->noperands; k++) {
            const struct operand *a = &p->operands[p->insns[x].operand + j], *b = &p->operands[p->insns[y].operand + k];
            uint64_t from, to, start, end;
            if (a->buffer == NONE || b->buffer == NONE)
                continue;
            hull(p, a, &from, &to);
            hull(p, b, &start, &end);
            if (from < end && start < to)
                return true;
        }
    return false;
}

/* what came by a transfer or collective carries the faults of all who took part */
static bool came_by_meeting(const struct mutant *m, uint32_t role, bool evaluation, uint32_t insn)
{
    const struct program *p = evaluation ? m->plan.eval[role] : m->plan.train[role];
    for (uint32_t i = 0; i < insn; i++)
        if (i != insn && member_overlaps(m, role, evaluation, i) &&
            share_bytes(p, i, insn))
            return true;
    return false;
}

static bool about(const struct mutant *m, uint32_t role, bool evaluation, uint32_t insn)
{
    for (uint32_t s = 0; s < m->nsites; s++)
        if (m->sites[s].role == role && m->sites[s].evaluation == evaluation && m->sites[s].insn == insn)
            return true;
    return overlaps_site(m, role, evaluation, insn) || meets_site(m, role, evaluation, insn) ||
           member_overlaps(m, role, evaluation, insn) || came_by_meeting(m, role, evaluation, insn);
}

static bool buffer_meets_site(const struct mutant *m, const struct violation *v, const struct program *p, const struct buffer *b)
{
    for (uint32_t k = 0; k < (b->scattered ? p->rings[b->ring].depth : 1); k++) {
        uint64_t start = program_slot_offset(p, b, k), end = start + (b->scattered ? b->stride : b->bytes);
        for (uint32_t s = 0; s < m->nsites; s++)
            if (m->sites[s].role == v->role && m->sites[s].evaluation == v->evaluation && m->sites[s].start < end &&
                start < m->sites[s].end)
                return true;
    }
    return false;
}

/* "buffer NAME", or "buffers NAME and NAME", of a buffer that the fault touches */
static bool names_buffer(const struct mutant *m, const struct violation *v)
{
    const struct program *p = v->evaluation ? m->plan.eval[v->role] : m->plan.train[v->role];
    for (uint32_t b = 0; b < p->nbuffers; b++) {
        char text[64];
        snprintf(text, sizeof text, " %s ", p->buffers[b].name);
        if (strstr(v->message, "buffer") && strstr(v->message, text) && buffer_meets_site(m, v, p, &p->buffers[b]))
            return true;
    }
    return false;
}

/* Two instructions that nothing orders any more: what ordered them stood between them in the list, and is gone, on another
 * queue, or without its wait. */
static bool lost_order(const struct mutant *m, const struct violation *v)
{
    const struct program *p = v->evaluation ? m->plan.eval[v->role] : m->plan.train[v->role];
    const char *other = strstr(v->message, "bytes that instruction ");
    if (v->property != 4 || !other)
        return false;
    unsigned long i = strtoul(other + strlen("bytes that instruction "), NULL, 10);
    if (m->kind == MUTATE_QUEUE)
        return i < p->ninsns && p->insns[i].seq < m->seq && m->seq < p->insns[v->insn].seq;
    bool between = false;
    for (uint32_t s = 0; s < m->nsites; s++) {
        const struct mutation_site *x = &m->sites[s];
        between |= x->role == v->role && x->evaluation == v->evaluation && x->insn != NONE && i < x->insn &&
                   x->insn < v->insn;
    }
    return between && (m->kind == MUTATE_WAIT || m->kind == MUTATE_WAIT_EARLIER || m->kind == MUTATE_DROP ||
                       m->kind == MUTATE_DROP_MATCHED);
}

/* A rank's wrong number gives wrong rows of the right node: that is seen where rows of several ranks meet, one
 * instruction after the one that took them. */
static bool took_wrong_rows(const struct mutant *m, const struct violation *v)
{
    const struct program *p = v->evaluation ? m->plan.eval[v->role] : m->plan.train[v->role];
    bool found = false;
    for (uint32_t i = 0; i < v->insn && m->kind == MUTATE_BIND_SLOT && !found; i++)
        found = overlaps_site(m, v->role, v->evaluation, i) && share_bytes(p, i, v->insn);
    return found;
}

bool mutate_named(const struct mutant *m, const struct violation *v)
{
    if (m->global || v->role == NONE)
        return true;
    if (v->insn == NONE)
        return v->property == 1 || names_buffer(m, v);
    if (about(m, v->role, v->evaluation, v->insn) || lost_order(m, v) || took_wrong_rows(m, v))
        return true;
    uint32_t role = v->role;
    for (const char *s = v->message; *s; s++) {
        if (!strncmp(s, "role ", 5))
            role = (uint32_t)strtoul(s + 5, NULL, 10);
        if (strncmp(s, "instruction ", 12) != 0 || role >= m->plan.nroles)
            continue;
        const struct program *p = v->evaluation ? m->plan.eval[role] : m->plan.train[role];
        unsigned long i = strtoul(s + 12, NULL, 10);
        if (i < p->ninsns && about(m, role, v->evaluation, (uint32_t)i))
            return true;
    }
    return false;
}
