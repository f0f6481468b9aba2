/* Mutations of plans; see mutate.h.  Programs are rebuilt through the builder, so every mutant is what a
 * compiler with that fault would have handed over: positions, waits and arrays are consistent, only the fault
 * is there.  Here: copies, the sites of a fault, choosing, and the table of kinds. */

#include "tests/compiler/verify/mutate_private.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[NMUTATIONS] = {
    "drop",          "drop matched",  "duplicate",       "duplicate matched",  "swap",
    "swap matched",  "wrong peer",    "wrong group",     "wrong size",         "wrong size matched",
    "wrong dtype",   "missing wait",  "earlier wait",    "overlapping buffer", "wrong offset",
    "wrong buffer",  "wrong mark",    "wrong attribute", "wrong number",       "exchanged operands",
    "wrong queue",   "wrong seq",     "skipped layer", "swapped layer", "stale parameter", "missing reduction",  "wrong slot value",
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
struct program *mutate_own(struct mutant *m, uint32_t role, bool evaluation)
{
    struct program **at = slot_of(&m->plan, role, evaluation);
    const struct program *original = evaluation ? m->original->eval[role] : m->original->train[role];
    if (*at == original)
        *at = mutate_copy(original);
    return *at;
}

void mutate_replace(struct mutant *m, uint32_t role, bool evaluation, struct program *p)
{
    struct program **at = slot_of(&m->plan, role, evaluation);
    if (*at != (evaluation ? m->original->eval[role] : m->original->train[role]))
        program_free(*at);
    *at = p;
}

void mutant_begin(struct arena *a, const struct plan *p, enum mutation kind, struct mutant *m)
{
    *m = (struct mutant){.plan = *p, .kind = kind, .original = p};
    m->plan.train = ARENA_ARRAY(a, struct program *, p->nroles);
    m->plan.eval = ARENA_ARRAY(a, struct program *, p->nroles);
    memcpy(m->plan.train, p->train, p->nroles * sizeof *p->train);
    memcpy(m->plan.eval, p->eval, p->nroles * sizeof *p->eval);
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

void mutate_add_site(struct mutant *m, uint32_t role, bool evaluation, uint32_t insn, uint64_t start,
                     uint64_t end)
{
    if (m->nsites < MOST_SITES)
        m->sites[m->nsites++] = (struct mutation_site){role, insn, evaluation, start, end};
}

/* all bytes that an instruction touches */
void mutate_add_operands(struct mutant *m, const struct program *p, uint32_t insn)
{
    for (uint32_t k = 0; k < isa_info(p->insns[insn].op)->noperands; k++) {
        const struct operand *o = &p->operands[p->insns[insn].operand + k];
        if (o->buffer == NONE)
            continue;
        uint64_t start = program_operand_offset(p, o),
                 size = isa_dtype_bytes((enum dtype)o->dtype);
        uint64_t span = o->slot == UINT16_MAX ? 0 : (uint64_t)p->slots[o->slot].most * o->slot_stride;
        mutate_add_site(m, p->role, p->evaluation, NONE, start,
                 start + span + ((uint64_t)(o->rows - 1) * o->ld + o->cols) * size);
    }
}

void mutate_add_insn(struct mutant *m, const struct program *p, uint32_t insn)
{
    mutate_add_site(m, p->role, p->evaluation, insn, 0, 0);
    mutate_add_operands(m, p, insn);
}

/* ---- choosing ---- */

bool mutate_is_p2p(const struct program *p, uint32_t i)
{
    return isa_info(p->insns[i].op)->unit == UNIT_P2P;
}

bool mutate_is_collective(const struct program *p, uint32_t i)
{
    return isa_info(p->insns[i].op)->unit == UNIT_COLLECTIVE;
}

bool mutate_is_comm(const struct program *p, uint32_t i)
{
    return mutate_is_p2p(p, i) || mutate_is_collective(p, i);
}

bool mutate_is_reduction(const struct program *p, uint32_t i)
{
    return p->insns[i].op == OP_ALL_REDUCE || p->insns[i].op == OP_REDUCE_SCATTER;
}

bool mutate_is_gather_of_parameters(const struct program *p, uint32_t i)
{
    return p->insns[i].op == OP_ALL_GATHER &&
           p->buffers[p->operands[p->insns[i].operand].buffer].kind == BUFFER_PARAM;
}

bool mutate_accumulates(const struct program *p, uint32_t i)
{
    for (uint32_t k = 0; k < isa_info(p->insns[i].op)->noperands; k++) {
        uint8_t mark = p->operands[p->insns[i].operand + k].mark;
        if (p->operands[p->insns[i].operand + k].buffer != NONE && (mark == MARK_ADD || mark == MARK_UPDATE))
            return true;
    }
    return false;
}

bool mutate_has_waits(const struct program *p, uint32_t i)
{
    return p->insns[i].nwaits > 0;
}

bool mutate_any(const struct program *p, uint32_t i)
{
    (void)p;
    (void)i;
    return true;
}

/* a random instruction for which `fits` holds; NONE after many tries */
uint32_t mutate_pick(const struct mutate_draw *d, bool (*fits)(const struct program *, uint32_t))
{
    for (int tries = 0; tries < 64 && d->p->ninsns; tries++) {
        uint32_t i = random_below(d->random, d->p->ninsns);
        if (fits(d->p, i))
            return i;
    }
    return NONE;
}

/* a random present operand; NONE */
uint32_t mutate_pick_operand(const struct mutate_draw *d, uint32_t insn)
{
    uint32_t n = isa_info(d->p->insns[insn].op)->noperands;
    for (int tries = 0; tries < 16; tries++) {
        uint32_t k = random_below(d->random, n);
        if (d->p->operands[d->p->insns[insn].operand + k].buffer != NONE)
            return k;
    }
    return NONE;
}

uint32_t mutate_find_seq(const struct program *p, uint32_t seq)
{
    for (uint32_t i = 0; i < p->ninsns; i++)
        if (p->insns[i].seq == seq)
            return i;
    return NONE;
}

bool mutate(struct arena *a, const struct plan *p, enum mutation kind, uint64_t *random, struct mutant *m)
{
    mutant_begin(a, p, kind, m);
    struct mutate_draw d = {m, random, random_below(random, p->nroles), random_below(random, 8) == 0, NULL};
    d.p = d.evaluation ? p->eval[d.role] : p->train[d.role];
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
    case MUTATE_BIND_SLOT:
        done = mutate_bind_slot(&d);
        break;
    case MUTATE_EXCHANGED:
        done = mutate_exchanged(&d);
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
