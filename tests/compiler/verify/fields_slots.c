/* Slots that a plan does not have, with right values: see fields.h.  Values are the mesh's, so the verifier
 * has nothing to say against the declaration; only what refers to it can be wrong. */

#include "tests/compiler/verify/fields.h"

#include <stdlib.h>
#include <string.h>

static uint64_t behind_value(const struct mesh *m, uint32_t rank, uint32_t arg)
{
    uint32_t mask = SLOT_BEHIND_MASK(arg), n = mesh_group_size(m, mask);
    return (mesh_number(m, rank, mask) + n - SLOT_BEHIND_DISTANCE(arg) % n) % n;
}

static bool same_members(const struct group *x, const struct group *y)
{
    if (group_size(x) != group_size(y))
        return false;
    for (uint32_t i = 0; i < group_size(x); i++)
        if (group_rank(x, i) != group_rank(y, i))
            return false;
    return true;
}

/* the group of those members, of one mask where several have the same; a new one where there is none */
static uint64_t group_value(struct plan *p, uint32_t rank, uint32_t mask)
{
    struct group g = mesh_group(&p->mesh, rank, mask);
    struct ranks *r = p->ranks;
    for (uint32_t i = 0; i < r->ngroups; i++)
        if (same_members(&r->groups[i], &g))
            return i;
    r->groups = realloc(r->groups, (r->ngroups + 1u) * sizeof *r->groups);
    r->groups[r->ngroups] = g;
    return r->ngroups++;
}

static uint64_t slot_value(struct plan *p, uint32_t rank, enum slot_kind kind, uint32_t arg)
{
    uint32_t coord[NDIGITS];
    mesh_coords(&p->mesh, rank, coord);
    switch (kind) {
    case SLOT_COORD:
        return mesh_number(&p->mesh, rank, arg);
    case SLOT_FIRST:
        return mesh_number(&p->mesh, rank, arg) == 0;
    case SLOT_PEER:
        coord[AXIS_PP] = arg;
        return mesh_rank(&p->mesh, coord);
    case SLOT_GROUP:
        return group_value(p, rank, arg);
    case SLOT_BEHIND:
        break;
    }
    return behind_value(&p->mesh, rank, arg);
}

static int64_t slot_most(const struct plan *p, enum slot_kind kind, uint32_t arg)
{
    switch (kind) {
    case SLOT_COORD:
        return mesh_group_size(&p->mesh, arg) - 1;
    case SLOT_FIRST:
        return 1;
    case SLOT_PEER:
        return p->mesh.nranks - 1;
    case SLOT_GROUP:
        return mesh_group_size(&p->mesh, arg);
    case SLOT_BEHIND:
        break;
    }
    return mesh_group_size(&p->mesh, SLOT_BEHIND_MASK(arg)) - 1;
}

/* one more value at the end of those of every rank of the role */
static void add_values(struct plan *p, uint32_t role, enum slot_kind kind, uint32_t arg)
{
    struct ranks *old = p->ranks, *r = ranks_new(old->nranks, old->nroles, 0, old->nvalues + old->nranks);
    free(r->groups);
    r->groups = old->groups;
    r->ngroups = old->ngroups;
    p->ranks = r;
    uint32_t n = 0;
    for (uint32_t i = 0; i < old->nranks; i++) {
        uint32_t first = old->ranks[i].slot,
                 end = i + 1 < old->nranks ? old->ranks[i + 1].slot : old->nvalues;
        r->ranks[i] = old->ranks[i];
        r->ranks[i].slot = n;
        memcpy(r->values + n, old->values + first, (end - first) * sizeof *r->values);
        n += end - first;
        if (r->ranks[i].role == role)
            r->values[n++] = slot_value(p, i, kind, arg);
    }
    r->nvalues = n;
    old->groups = NULL;
    ranks_free(old);
}

uint32_t fields_add_slot(struct plan *p, uint32_t role, enum slot_kind kind, uint32_t arg)
{
    static const char *const names[] = {"coord", "first", "peer", "group", "behind"};
    char name[24];
    snprintf(name, sizeof name, "%s_%u", names[kind], arg);
    program_slot(p->train[role], name, kind, arg, slot_most(p, kind, arg));
    uint32_t slot = program_slot(p->eval[role], name, kind, arg, slot_most(p, kind, arg));
    add_values(p, role, kind, arg);
    return slot;
}

static bool declared(const struct program *p, enum slot_kind kind, uint32_t arg)
{
    for (uint32_t s = 0; s < p->nslots; s++)
        if (p->slots[s].kind == kind && p->slots[s].arg == arg)
            return true;
    return false;
}

static void add_missing(struct plan *p, uint32_t role, enum slot_kind kind, uint32_t arg)
{
    if (!declared(p->train[role], kind, arg))
        fields_add_slot(p, role, kind, arg);
}

/* masks of digits that have several ranks; of those of one rank, alone, one */
void fields_add_slots(struct plan *p)
{
    uint32_t wide = 0, narrow = 0;
    for (uint32_t d = 0; d < NDIGITS; d++)
        *(p->mesh.size[d] > 1 ? &wide : &narrow) |= AXIS_BIT(d);
    narrow &= ~narrow + 1;
    for (uint32_t role = 0; role < p->nroles; role++) {
        for (uint32_t mask = 1; mask < 1u << NDIGITS; mask++) {
            if (mask & ~wide && mask != narrow)
                continue;
            add_missing(p, role, SLOT_COORD, mask);
            add_missing(p, role, SLOT_FIRST, mask);
            add_missing(p, role, SLOT_GROUP, mask);
            if (mesh_group_size(&p->mesh, mask) > 1)
                add_missing(p, role, SLOT_BEHIND, SLOT_BEHIND_ARG(mask, 1));
        }
        for (uint32_t peer = 0; peer < p->nroles; peer++)
            add_missing(p, role, SLOT_PEER, peer);
        if (p->nroles > 1)
            add_missing(p, role, SLOT_GROUP, GROUP_TIE);
    }
}

void fields_free(struct plan *p)
{
    for (uint32_t r = 0; r < p->nroles; r++) {
        program_free(p->train[r]);
        program_free(p->eval[r]);
    }
    ranks_free(p->ranks);
}
