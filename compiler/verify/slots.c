/* Property 2, second half: every slot value of ranks.bin is what the mesh says.
 *
 * One pass over the ranks.  With it, what is proved for a role's formula (peer = same coordinates at another
 * pipeline rank, group = ranks that differ along the mask) holds for each rank; peer(peer(r)) = r because
 * both are that formula. Members of a group must also hold one and the same group id, or they would open
 * different communicators: each rank's id is compared with that of the group's first member. */

#include "compiler/verify/prove.h"

#include <assert.h>
#include <string.h>

static bool same_group(const struct group *g, const struct group *h)
{
    return g->first == h->first && !memcmp(g->n, h->n, sizeof g->n) && !memcmp(g->stride, h->stride, sizeof g->stride);
}

/* largest value by the declaration's own rule */
static uint64_t slot_most(const struct plan *p, const struct slot *s)
{
    switch (s->kind) {
    case SLOT_COORD:
        return mesh_group_size(&p->mesh, s->arg) - 1;
    case SLOT_FIRST:
        return 1;
    case SLOT_PEER:
        return p->mesh.nranks - 1;
    case SLOT_GROUP:
        return mesh_group_size(&p->mesh, s->arg);
    case SLOT_BEHIND:
        return mesh_group_size(&p->mesh, SLOT_BEHIND_MASK(s->arg)) - 1;
    }
    return 0;
}

static const struct slot *find_group_slot(const struct program *p, uint32_t mask, uint32_t *index)
{
    for (uint32_t i = 0; i < p->nslots; i++)
        if (p->slots[i].kind == SLOT_GROUP && p->slots[i].arg == mask) {
            *index = i;
            return &p->slots[i];
        }
    return NULL;
}

/* Round a ring: the number of the member `distance` places before, counted back from the rank itself. */
static uint64_t number_behind(const struct mesh *m, const uint32_t coord[NDIGITS], const struct slot *s)
{
    uint64_t number = 0, weight = 1;
    for (uint32_t i = 0; i < m->ndigits; i++) {
        uint32_t digit = m->order[i];
        if (!(SLOT_BEHIND_MASK(s->arg) & AXIS_BIT(digit)))
            continue;
        number += coord[digit] * weight;
        weight *= m->size[digit];
    }
    for (uint32_t k = SLOT_BEHIND_DISTANCE(s->arg); k > 0; k--)
        number = number ? number - 1 : weight - 1;
    return number;
}

/* NULL, or what is wrong with a rank's value */
static const char *slot_fault(struct arena *a, const struct plan *p, uint32_t rank, const uint32_t coord[NDIGITS],
                              const struct slot *s, uint64_t value)
{
    uint64_t want = 0;
    uint32_t at[NDIGITS];
    switch (s->kind) {
    case SLOT_COORD:
        want = mesh_number(&p->mesh, rank, s->arg);
        break;
    case SLOT_FIRST:
        want = 1;
        for (uint32_t i = 0; i < NDIGITS; i++)
            if (s->arg & AXIS_BIT(i) && coord[i])
                want = 0;
        break;
    case SLOT_PEER:
        if (s->arg >= p->mesh.size[AXIS_PP])
            return arena_printf(a, "pipeline rank %u does not exist", s->arg);
        memcpy(at, coord, sizeof at);
        at[AXIS_PP] = s->arg;
        want = mesh_rank(&p->mesh, at);
        break;
    case SLOT_BEHIND:
        want = number_behind(&p->mesh, coord, s);
        break;
    case SLOT_GROUP: {
        assert(value < p->ranks->ngroups); /* structure: ranks_check() */
        const struct group *have = &p->ranks->groups[value];
        struct group g = mesh_group(&p->mesh, rank, s->arg);
        if (!same_group(have, &g))
            return arena_printf(a, "group %llu has %u members from rank %u, the mesh says %u from rank %u",
                                (unsigned long long)value, group_size(have), have->first, group_size(&g), g.first);
        const struct rank_info *lead = &p->ranks->ranks[g.first];
        uint32_t index;
        assert(lead->role < p->nroles); /* structure */
        if (find_group_slot(p->train[lead->role], s->arg, &index) && p->ranks->values[lead->slot + index] != value)
            return arena_printf(a, "group %llu, but rank %u of the same group says %llu", (unsigned long long)value,
                                g.first, (unsigned long long)p->ranks->values[lead->slot + index]);
        return NULL;
    }
    }
    if (value == want)
        return NULL;
    return arena_printf(a, "%llu, the mesh says %llu", (unsigned long long)value, (unsigned long long)want);
}

/* both programs of a role read the same values, so they must declare the same slots */
static void check_declarations(struct arena *a, const struct plan *p, uint32_t role, struct verdict *v)
{
    const struct program *t = prove_program(p, role, PROGRAM_TRAIN), *e = prove_program(p, role, PROGRAM_EVAL);
    struct site at = {2, role, NONE, false, NONE};
    for (uint32_t i = 0; i < t->nslots; i++)
        if ((uint64_t)t->slots[i].most != slot_most(p, &t->slots[i]))
            prove_report(a, p, v, at, "slot %s may be %lld at most, the mesh says %llu", t->slots[i].name,
                         (long long)t->slots[i].most, (unsigned long long)slot_most(p, &t->slots[i]));
    bool same = !e || e->nslots == t->nslots;
    for (uint32_t i = 0; e && same && i < t->nslots; i++)
        same = t->slots[i].kind == e->slots[i].kind && t->slots[i].arg == e->slots[i].arg &&
               t->slots[i].most == e->slots[i].most;
    if (!same)
        prove_report(a, p, v, at, "the training and the evaluation program declare different slots");
}

void prove_slots(struct arena *a, const struct plan *p, struct verdict *v)
{
    for (uint32_t role = 0; role < p->nroles; role++)
        check_declarations(a, p, role, v);
    if (prove_count(v, 2))
        return;
    for (uint32_t rank = 0; rank < p->ranks->nranks; rank++) {
        const struct rank_info *r = &p->ranks->ranks[rank];
        uint32_t coord[NDIGITS];
        mesh_coords(&p->mesh, rank, coord);
        struct site at = {2, r->role, rank, false, NONE};
        if (r->role != coord[AXIS_PP]) {
            prove_report(a, p, v, at, "its pipeline coordinate is %u, so that is its role", coord[AXIS_PP]);
            continue;
        }
        const struct program *q = p->train[r->role];
        for (uint32_t i = 0; i < q->nslots; i++) {
            const char *fault = slot_fault(a, p, rank, coord, &q->slots[i], p->ranks->values[r->slot + i]);
            if (fault)
                prove_report(a, p, v, at, "slot %s is %s", q->slots[i].name, fault);
        }
    }
}
