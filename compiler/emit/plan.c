/* The plan in memory: ranks.bin from the mesh, plan.json from decision and timeline. */

#include "compiler/emit/plan.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <stdlib.h>

#define MOST_MASKS 32
struct masks {
    uint32_t n, mask[MOST_MASKS], base[MOST_MASKS]; /* base: number of the mask's first group */
};

static void collect_masks(const struct program *p, struct masks *m)
{
    for (uint32_t s = 0; s < p->nslots; s++) {
        uint32_t i = 0;
        while (i < m->n && m->mask[i] != p->slots[s].arg)
            i++;
        if (p->slots[s].kind == SLOT_GROUP && i == m->n && i < MOST_MASKS)
            m->mask[m->n++] = p->slots[s].arg;
    }
}

static uint64_t slot_value(const struct mesh *mesh, const struct masks *m, uint32_t rank, const struct slot *s)
{
    uint32_t coord[NDIGITS];
    switch (s->kind) {
    case SLOT_COORD:
        return mesh_number(mesh, rank, s->arg);
    case SLOT_FIRST:
        return mesh_number(mesh, rank, s->arg) == 0;
    case SLOT_PEER:
        mesh_coords(mesh, rank, coord);
        coord[AXIS_PP] = s->arg;
        return mesh_rank(mesh, coord);
    case SLOT_BEHIND: {
        uint32_t mask = SLOT_BEHIND_MASK(s->arg), n = mesh_group_size(mesh, mask);
        return (mesh_number(mesh, rank, mask) + n - SLOT_BEHIND_DISTANCE(s->arg) % n) % n;
    }
    case SLOT_GROUP:
        for (uint32_t i = 0; i < m->n; i++)
            if (m->mask[i] == s->arg)
                return m->base[i] + mesh_group_index(mesh, rank, s->arg);
        break;
    }
    return 0;
}

/* A role's training and evaluation programs declare the same slots, so one set of values serves both. */
struct ranks *plan_ranks(const struct plan *p)
{
    struct masks m = {0};
    uint32_t ngroups = 0, nvalues = 0, nranks = p->mesh.nranks;
    for (uint32_t r = 0; r < p->nroles; r++) {
        collect_masks(p->train[r], &m);
        nvalues += p->train[r]->nslots * (nranks / p->nroles);
    }
    for (uint32_t i = 0; i < m.n; i++) {
        m.base[i] = ngroups;
        ngroups += mesh_ngroups(&p->mesh, m.mask[i]);
    }
    struct ranks *out = ranks_new(nranks, p->nroles, ngroups, nvalues);
    uint32_t per_node = p->topo->types[p->decision.type].gpus, next = 0;
    for (uint32_t rank = 0; rank < nranks; rank++) {
        uint32_t coord[NDIGITS];
        mesh_coords(&p->mesh, rank, coord);
        struct rank_info *info = &out->ranks[rank];
        info->role = coord[AXIS_PP];
        info->node = p->decision.nodes[rank / per_node];
        info->gpu = rank % per_node;
        info->slot = next;
        for (uint32_t i = 0; i < m.n; i++)
            out->groups[m.base[i] + mesh_group_index(&p->mesh, rank, m.mask[i])] = mesh_group(&p->mesh, rank,
                                                                                              m.mask[i]);
        const struct program *program = p->train[info->role];
        for (uint32_t s = 0; s < program->nslots; s++)
            out->values[next++] = slot_value(&p->mesh, &m, rank, &program->slots[s]);
    }
    return out;
}

void plan_json_head(const struct plan *p, struct strbuf *o)
{
    strbuf_json(o, "{'schema': 1,\n 'compiler': {'version': %s, ", p->version ? p->version : LLMC_VERSION);
    strbuf_printf(o, "\"instructions\": \"%016llx\"},\n ", (unsigned long long)isa_fingerprint());
    job_json(p->job, p->topo, p->decision.gpus_used, o);
    strbuf_text(o, " \"set\": [");
    for (uint32_t i = 0; i < p->nsets; i++)
        strbuf_json(o, i ? ", %s" : "%s", p->sets[i]);
    strbuf_text(o, "],\n \"decision\": ");
    decision_json(p->job, &p->decision, o);
    strbuf_json(o, ",\n 'target': %s", job_target(p->job));
}

void plan_json(const struct plan *p, bool with_seconds, struct strbuf *o)
{
    const struct plan_search *s = &p->search;
    struct predicted predicted = plan_predicted(p);
    plan_json_head(p, o);
    strbuf_text(o, ",\n ");
    predicted_json(&predicted, o);
    const struct whole_run run = plan_run(p);
    run_json(&run, o);
    strbuf_text(o, ",\n ");
    plan_waiting_json(p, o);
    strbuf_json(o,
                ",\n 'search': {'space': %lu, 'evaluated': %lu, 'pruned': %lu, 'top': %u, 'budget': %lu, 'spent': %lu, "
                "'gap': %g",
                s->space, s->evaluated, s->pruned, s->top, s->budget, s->spent, s->gap);
    if (with_seconds)
        strbuf_json(o, ", 'seconds': %g", s->seconds);
    strbuf_text(o, "}}\n");
}

void plan_close(struct plan *p)
{
    if (!p)
        return;
    for (uint32_t r = 0; r < p->nroles; r++) {
        program_free(p->train ? p->train[r] : NULL);
        program_free(p->eval ? p->eval[r] : NULL);
    }
    ranks_free(p->ranks);
}
