/* See many.h. */

#include "tests/runtime/many.h"

#include <stdlib.h>
#include <string.h>

void many_open(struct many *m, uint32_t nranks, uint32_t nroles, uint32_t nbuffers)
{
    *m = (struct many){.nranks = nranks, .nroles = nroles, .nbuffers = nbuffers};
    m->ranks = ranks_new(nranks, nroles, 1, 3 * nranks);
    m->ranks->groups[0] = (struct group){0, {nranks, 1, 1, 1}, {1, nranks, nranks, nranks}};
    for (uint32_t r = 0; r < nranks; r++) {
        m->ranks->ranks[r] = (struct rank_info){r % nroles, 0, r, 3 * r};
        m->ranks->values[3 * r] = 0;
        m->ranks->values[3 * r + 1] = (r + 1) % nranks;
        m->ranks->values[3 * r + 2] = (r + nranks - 1) % nranks;
    }
    uint64_t bytes = (uint64_t)nranks * PART * sizeof(float);
    for (uint32_t role = 0; role < nroles; role++) {
        struct program *p = m->program[role] = program_new(role, nroles);
        program_slot(p, "all", SLOT_GROUP, 1, nranks);
        program_slot(p, "next", SLOT_PEER, 0, nranks - 1);
        program_slot(p, "before", SLOT_PEER, 0, nranks - 1);
        for (uint32_t b = 0; b < nbuffers; b++) {
            /* PARAM, so that the adversarial mode does not poison what the test put there */
            struct buffer buffer = {.name = "vector",
                                    .kind = BUFFER_PARAM,
                                    .ring = NONE,
                                    .bytes = bytes,
                                    .stride = bytes,
                                    .offset = b * ((bytes + 255) / 256 * 256),
                                    .bucket = NONE,
                                    .shard_slot = NONE};
            program_buffer(p, &buffer);
            p->arena_bytes = buffer.offset + (bytes + 255) / 256 * 256;
        }
    }
}

void many_close(struct many *m)
{
    for (uint32_t role = 0; role < m->nroles; role++)
        program_free(m->program[role]);
    ranks_free(m->ranks);
    channels_free(&m->channels);
    world_close(&m->world);
}

static void wait_for(struct many *m, uint32_t role, uint32_t insn, uint32_t other)
{
    struct program *p = m->program[role];
    uint32_t position = 0;
    for (uint32_t i = 0; i < other; i++)
        position += p->insns[i].queue == p->insns[other].queue;
    if (p->insns[other].queue != p->insns[insn].queue)
        program_wait(p, insn, (enum queue)p->insns[other].queue, position);
}

uint32_t many_insn(struct many *m, uint32_t role, enum op op, enum queue q, const struct many_operand *o,
                   uint32_t no)
{
    struct program *p = m->program[role];
    const struct isa_info *info = isa_info(op);
    uint32_t i = program_insn(p, op);
    p->insns[i].queue = (uint8_t)q;
    p->insns[i].seq = i;
    if (info->unit == UNIT_COLLECTIVE)
        p->attrs[p->insns[i].attr].slot = 0;
    if (info->unit == UNIT_P2P)
        p->attrs[p->insns[i].attr].slot = op == OP_SEND ? 1 : 2;
    for (uint32_t j = 0; j < no; j++) {
        struct operand *operand = &p->operands[p->insns[i].operand + j];
        bool whole = o[j].part < 0;
        *operand = (struct operand){.buffer = o[j].buffer,
                                    .mark = (uint8_t)info->operand[j].mark,
                                    .slot = UINT16_MAX,
                                    .offset = whole ? 0 : (uint64_t)o[j].part * PART * sizeof(float),
                                    .rows = whole ? m->nranks : 1,
                                    .cols = PART,
                                    .ld = PART};
        operand->mark = operand->mark == MARK_ADD ? MARK_WRITE : operand->mark;
        uint32_t b = o[j].buffer;
        bool writes = operand->mark != MARK_READ;
        if (m->last_writer[role][b])
            wait_for(m, role, i, m->last_writer[role][b] - 1);
        for (uint32_t r = 0; writes && r < i; r++)
            if (m->readers[role][b] >> r & 1)
                wait_for(m, role, i, r);
    }
    for (uint32_t j = 0; j < no; j++) { /* after all operands: an instruction does not wait for itself */
        uint32_t b = o[j].buffer;
        if (p->operands[p->insns[i].operand + j].mark == MARK_READ) {
            m->readers[role][b] |= (uint64_t)1 << i;
        } else {
            m->last_writer[role][b] = i + 1;
            m->readers[role][b] = 0;
        }
    }
    return i;
}

float *many_vector(struct many *m, uint32_t rank, uint32_t buffer)
{
    return (float *)(void *)(m->world.arena[rank] + m->program[rank % m->nroles]->buffers[buffer].offset);
}

struct context {
    struct many *m;
    uint32_t runs;
};

static enum status body(void *context, uint32_t rank)
{
    struct context *c = context;
    struct many *m = c->m;
    struct error error;
    struct exec *e;
    struct exec_setup setup = {.player = m->pace_ns ? &player_paced : &player_cpu,
                               .world = &m->world,
                               .channels = &m->channels,
                               .ranks = m->ranks,
                               .programs = {(const struct program *const *)m->program, NULL},
                               .shuffle_seed = m->seed,
                               .watchdog_s = m->watchdog_s,
                               .pace_ns = m->pace_ns};
    atomic_store(&m->world.ranks[rank].state, RANK_STEPPING);
    atomic_store(&m->world.ranks[rank].running, NONE);
    if (m->before)
        m->before(m, rank);
    enum status st = exec_open(&e, &setup, &error);
    if (st != STATUS_OK) {
        world_fail(&m->world, st, "%s", error.text);
        return st;
    }
    for (uint32_t i = 0; i < c->runs && st == STATUS_OK; i++)
        st = exec_run(e, ROUTINE_TRAIN, NULL, NULL);
    exec_close(e);
    atomic_store(&m->world.ranks[rank].state, RANK_ENDED);
    return st;
}

static void describe(void *context, uint32_t rank, char *out, size_t size)
{
    (void)context;
    (void)rank;
    if (size)
        *out = 0;
}

enum status many_run(struct many *m, uint32_t runs)
{
    struct error error;
    const struct program *const *sets[] = {(const struct program *const *)m->program};
    struct context c = {m, runs};
    if (!m->world.map) {
        TRY(channels_make(&m->channels, m->ranks, sets, 1));
        struct world_sizes sizes = {.nranks = m->nranks,
                                    .arena_bytes = m->program[0]->arena_bytes,
                                    .transport_bytes =
                                        transport_shared_bytes(m->channels.list, m->channels.n)};
        TRY(world_open(&m->world, &sizes, NULL, NONE, 1, &error));
    }
    return runs ? launch_local(&m->world, body, describe, &c) : STATUS_OK;
}
