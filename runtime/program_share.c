/* Sharing: equal instructions have one list of operands and one of attributes.
 *
 * A microbatch's work is the same as the one's before it, but for ring slots, so that a program of millions of
 * instructions has some thousand different bodies (opcode, queue, operands, attributes).  A hash table over bodies
 * finds the equal ones; lists that nothing uses any more are squeezed out.  Afterwards two instructions have the same
 * first operand only if their bodies are equal, which lets a pass keep per body what it has found out (program_check()
 * proves it). Linear in the operands looked at. */

#include "runtime/program_share.h"
#include "runtime/program_words.h"

#include <stdlib.h>
#include <string.h>

#define OPERAND_BYTES (offsetof(struct operand, ld) + sizeof(uint32_t)) /* without padding */

struct program_bodies {
    uint32_t n, room, *table; /* instructions; NONE */
    uint32_t *hash;           /* theirs */
};

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint32_t hash_body(const struct program *p, const struct insn *in)
{
    const struct isa_info *info = isa_info(in->op);
    uint64_t h = (uint64_t)in->queue << 16 | in->op;
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = &p->operands[in->operand + k];
        h = mix(h, (uint64_t)o->buffer << 32 | (uint32_t)o->dtype << 24 | (uint32_t)o->mark << 16 | o->slot);
        h = mix(h, o->offset ^ o->slot_stride << 40);
        h = mix(h, (uint64_t)o->rows << 32 ^ (uint64_t)o->cols << 16 ^ o->ld);
    }
    for (uint32_t k = 0; k < info->nattrs; k++) {
        const struct attr *a = &p->attrs[in->attr + k];
        h = mix(h, (uint64_t)a->u.i);
        h = mix(h, (uint64_t)a->stride << 32 ^ a->slot);
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool same_body(const struct program *p, const struct insn *x, const struct insn *y)
{
    const struct isa_info *info = isa_info(x->op);
    if (x->op != y->op || x->queue != y->queue)
        return false;
    for (uint32_t k = 0; k < info->noperands; k++)
        if (memcmp(&p->operands[x->operand + k], &p->operands[y->operand + k], OPERAND_BYTES))
            return false;
    for (uint32_t k = 0; k < info->nattrs; k++) {
        const struct attr *a = &p->attrs[x->attr + k], *b = &p->attrs[y->attr + k];
        if (a->u.i != b->u.i || a->stride != b->stride || a->slot != b->slot)
            return false;
    }
    return true;
}

struct program_bodies *program_bodies_new(void)
{
    struct program_bodies *b = program_alloc(NULL, 1, sizeof *b);
    *b = (struct program_bodies){.room = 1024};
    b->table = program_alloc(NULL, b->room, sizeof *b->table);
    b->hash = program_alloc(NULL, b->room, sizeof *b->hash);
    memset(b->table, 0xff, b->room * sizeof *b->table);
    return b;
}

void program_bodies_free(struct program_bodies *b)
{
    if (b) {
        free(b->table);
        free(b->hash);
        free(b);
    }
}

static void widen(struct program_bodies *b)
{
    struct program_bodies old = *b;
    b->room *= 2;
    b->table = program_alloc(NULL, b->room, sizeof *b->table);
    b->hash = program_alloc(NULL, b->room, sizeof *b->hash);
    memset(b->table, 0xff, b->room * sizeof *b->table);
    for (uint32_t k = 0; k < old.room; k++) {
        if (old.table[k] == NONE)
            continue;
        uint32_t i = old.hash[k] & (b->room - 1);
        while (b->table[i] != NONE)
            i = (i + 1) & (b->room - 1);
        b->table[i] = old.table[k];
        b->hash[i] = old.hash[k];
    }
    free(old.table);
    free(old.hash);
}

/* the place of an equal body, or of a new one */
static uint32_t find_body(const struct program_bodies *b, const struct program *p, const struct insn *in, uint32_t hash)
{
    uint32_t i = hash & (b->room - 1);
    while (b->table[i] != NONE && (b->hash[i] != hash || !same_body(p, &p->insns[b->table[i]], in)))
        i = (i + 1) & (b->room - 1);
    return i;
}

void program_share(struct program *p, struct program_bodies *b, uint32_t first)
{
    if (first >= p->ninsns)
        return;
    uint32_t operand = p->insns[first].operand, attr = p->insns[first].attr;
    for (uint32_t i = first; i < p->ninsns; i++) {
        struct insn *in = &p->insns[i];
        const struct isa_info *info = isa_info(in->op);
        uint32_t hash = hash_body(p, in), at = find_body(b, p, in, hash);
        if (b->table[at] != NONE) {
            in->operand = p->insns[b->table[at]].operand;
            in->attr = p->insns[b->table[at]].attr;
            continue;
        }
        memmove(p->operands + operand, p->operands + in->operand, info->noperands * sizeof *p->operands);
        memmove(p->attrs + attr, p->attrs + in->attr, info->nattrs * sizeof *p->attrs);
        in->operand = operand;
        in->attr = attr;
        operand += info->noperands;
        attr += info->nattrs;
        b->table[at] = i;
        b->hash[at] = hash;
        if (4 * ++b->n > 3 * b->room)
            widen(b);
    }
    p->noperands = operand;
    p->nattrs = attr;
}

void program_unshare(struct program *p)
{
    uint64_t noperands = 0, nattrs = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        noperands += isa_info(p->insns[i].op)->noperands;
        nattrs += isa_info(p->insns[i].op)->nattrs;
    }
    struct operand *operands = program_alloc(NULL, noperands + 1, sizeof *operands);
    struct attr *attrs = program_alloc(NULL, nattrs + 1, sizeof *attrs);
    uint32_t operand = 0, attr = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        struct insn *in = &p->insns[i];
        const struct isa_info *info = isa_info(in->op);
        memcpy(operands + operand, p->operands + in->operand, info->noperands * sizeof *operands);
        memcpy(attrs + attr, p->attrs + in->attr, info->nattrs * sizeof *attrs);
        in->operand = operand;
        in->attr = attr;
        operand += info->noperands;
        attr += info->nattrs;
    }
    free(p->operands);
    free(p->attrs);
    p->operands = operands;
    p->attrs = attrs;
    p->noperands = operand;
    p->nattrs = attr;
    program_trim(p);
}
