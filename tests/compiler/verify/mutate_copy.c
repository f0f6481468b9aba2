/* Copies of programs and plans through the builder; see mutate.h. */

#include "tests/compiler/verify/mutate.h"

#include <stdlib.h>
#include <string.h>

struct program *mutate_rebuild(const struct program *p, const uint32_t *list, const uint32_t *seq, uint32_t n)
{
    struct program *q = program_new(p->role, p->nroles);
    uint32_t *position = calloc(p->ninsns + 1u, sizeof *position), count[NQUEUES] = {0};
    q->evaluation = p->evaluation;
    q->job = p->job;
    q->arena_bytes = p->arena_bytes;
    for (uint32_t i = 0; i < p->nslots; i++)
        program_slot(q, p->slots[i].name, p->slots[i].kind, p->slots[i].arg, p->slots[i].most);
    for (uint32_t i = 0; i < p->nrings; i++)
        program_ring(q, p->rings[i].name, p->rings[i].depth);
    for (uint32_t i = 0; i < p->nbuffers; i++)
        program_buffer(q, &p->buffers[i]);
    for (uint32_t i = 0; i < p->nplaces; i++)
        program_add_place(q, p->places[i]);
    for (uint32_t i = 0; i < p->nbuckets; i++)
        program_bucket(q, &p->buckets[i]);
    for (uint32_t i = 0; i < p->ntensors; i++)
        program_tensor(q, &p->tensors[i]);
    memset(position, 0xff,
           (p->ninsns + 1u) * sizeof *position); /* of every old instruction that is still there */
    for (uint32_t k = 0; k < n; k++) {
        uint32_t queue = p->insns[list[k]].queue, at = count[queue]++;
        if (position[list[k]] == NONE)
            position[list[k]] = at;
    }
    uint32_t old[NQUEUES] = {0}, *at[NQUEUES]; /* old instructions by queue */
    for (int qu = 0; qu < NQUEUES; qu++)
        at[qu] = calloc(p->ninsns + 1u, sizeof *at[qu]);
    for (uint32_t i = 0; i < p->ninsns; i++)
        at[p->insns[i].queue][old[p->insns[i].queue]++] = i;
    for (uint32_t k = 0; k < n; k++) {
        const struct insn *in = &p->insns[list[k]];
        const struct isa_info *info = isa_info(in->op);
        uint32_t i = program_insn(q, in->op);
        q->insns[i].queue = in->queue;
        q->insns[i].seq = seq ? seq[k] : in->seq;
        q->insns[i].action = in->action;
        q->insns[i].stage = in->stage;
        q->insns[i].layer = in->layer;
        q->insns[i].microbatch = in->microbatch;
        q->insns[i].line = in->line;
        memcpy(&q->operands[q->insns[i].operand], &p->operands[in->operand],
               info->noperands * sizeof *p->operands);
        memcpy(&q->attrs[q->insns[i].attr], &p->attrs[in->attr], info->nattrs * sizeof *p->attrs);
        for (uint32_t w = 0; w < in->nwaits; w++) {
            const struct wait *wait = &p->waits[in->wait + w];
            uint32_t target = at[wait->queue][wait->position];
            if (position[target] != NONE)
                program_wait(q, i, (enum queue)wait->queue, position[target]);
        }
    }
    for (int qu = 0; qu < NQUEUES; qu++)
        free(at[qu]);
    free(position);
    return q;
}

struct program *mutate_copy(const struct program *p)
{
    uint32_t *list = calloc(p->ninsns + 1u, sizeof *list);
    for (uint32_t i = 0; i < p->ninsns; i++)
        list[i] = i;
    struct program *q = mutate_rebuild(p, list, NULL, p->ninsns);
    free(list);
    return q;
}

struct ranks *mutate_copy_ranks(const struct ranks *r)
{
    struct ranks *s = ranks_new(r->nranks, r->nroles, r->ngroups, r->nvalues);
    memcpy(s->ranks, r->ranks, r->nranks * sizeof *r->ranks);
    memcpy(s->groups, r->groups, r->ngroups * sizeof *r->groups);
    memcpy(s->values, r->values, r->nvalues * sizeof *r->values);
    return s;
}

struct plan *mutate_copy_plan(struct arena *a, const struct plan *p)
{
    struct plan *q = ARENA_NEW(a, struct plan);
    *q = *p;
    q->train = ARENA_ARRAY(a, struct program *, p->nroles);
    q->eval = ARENA_ARRAY(a, struct program *, p->nroles);
    q->ranks = mutate_copy_ranks(p->ranks);
    for (uint32_t r = 0; r < p->nroles; r++) {
        q->train[r] = mutate_copy(p->train[r]);
        q->eval[r] = mutate_copy(p->eval[r]);
    }
    return q;
}

struct plan *mutate_spread(struct arena *a, const struct plan *p, uint32_t factor)
{
    struct plan *q = mutate_copy_plan(a, p);
    for (uint32_t r = 0; r < p->nroles; r++) {
        for (uint32_t i = 0; i < q->train[r]->ninsns; i++)
            q->train[r]->insns[i].seq *= factor;
        for (uint32_t i = 0; i < q->eval[r]->ninsns; i++)
            q->eval[r]->insns[i].seq *= factor;
    }
    return q;
}
