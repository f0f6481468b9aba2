/* See handmade.h.  Order of a role: per action its RECV, its FILL (COPY if it received), its SEND; a RECV
 * waits for the last user of its ring slot, a FILL for its RECV and for the SEND that last read its output
 * slot, a SEND for its FILL. */

#include "tests/compiler/simulate/handmade.h"

#include <string.h>

enum { VALUE_IN, VALUE_OUT, GRAD_IN, GRAD_OUT, NVALUES };

struct maker {
    struct program *p;
    const struct schedule *s;
    uint32_t role, depth;
    uint32_t buffer[NVALUES], peer[2]; /* peer: slot of the rank before, behind */
    uint32_t length[NQUEUES];          /* of the queues so far */
    uint32_t *user[NVALUES]; /* position of the last user of each ring slot, on the compute or send queue */
};

static uint32_t emit(struct maker *m, enum op op, const struct action *t, uint32_t value, uint8_t mark,
                     uint32_t peer)
{
    uint32_t i = program_insn(m->p, op);
    struct insn *insn = &m->p->insns[i];
    insn->action = t->kind;
    insn->stage = (uint16_t)t->stage;
    insn->microbatch = t->microbatch;
    insn->seq = i;
    const struct buffer *b = &m->p->buffers[m->buffer[value]];
    m->p->operands[insn->operand] = (struct operand){.buffer = m->buffer[value],
                                                     .dtype = DTYPE_F32,
                                                     .mark = mark,
                                                     .slot = UINT16_MAX,
                                                     .offset = t->microbatch % m->depth * b->stride,
                                                     .rows = 1,
                                                     .cols = 64,
                                                     .ld = 64};
    if (peer != NONE)
        m->p->attrs[insn->attr].slot = peer;
    m->length[insn->queue]++;
    return i;
}

static void wait_for(struct maker *m, uint32_t insn, enum queue q, uint32_t position)
{
    if (position != NONE)
        program_wait(m->p, insn, q, position);
}

static void make_action(struct maker *m, const struct action *t)
{
    bool forward = t->kind == 'F';
    uint32_t in = forward ? VALUE_IN : GRAD_IN, out = forward ? VALUE_OUT : GRAD_OUT,
             slot = t->microbatch % m->depth;
    bool receives = forward ? t->stage > 0 : t->stage + 1 < m->s->nstages;
    bool sends = forward ? t->stage + 1 < m->s->nstages : t->stage > 0;
    if (receives) {
        uint32_t recv = emit(m, OP_RECV, t, in, MARK_WRITE, m->peer[!forward]);
        wait_for(m, recv, QUEUE_COMPUTE, m->user[in][slot]);
    }
    uint32_t fill = emit(m, receives ? OP_COPY : OP_FILL, t, out, MARK_WRITE, NONE);
    if (receives) {
        struct operand *y = &m->p->operands[m->p->insns[fill].operand], *x = y + OPND(COPY, x);
        *x = *y;
        x->buffer = m->buffer[in];
        x->mark = MARK_READ;
        wait_for(m, fill, QUEUE_RECV, m->length[QUEUE_RECV] - 1);
    }
    wait_for(m, fill, QUEUE_SEND, m->user[out][slot]);
    uint32_t here = m->length[QUEUE_COMPUTE] - 1;
    m->user[in][slot] = here;
    if (!forward)
        m->user[VALUE_IN][slot] = here;
    if (!sends)
        return;
    uint32_t send = emit(m, OP_SEND, t, out, MARK_READ, m->peer[forward]);
    wait_for(m, send, QUEUE_COMPUTE, here);
    m->user[out][slot] = m->length[QUEUE_SEND] - 1;
}

static struct program *make_role(struct arena *a, const struct schedule *s, uint32_t role, uint32_t depth)
{
    static const char *const names[NVALUES] = {"x", "y", "dy", "dx"};
    struct maker m = {.p = program_new(role, s->nranks), .s = s, .role = role, .depth = depth};
    m.peer[0] = role > 0 ? program_slot(m.p, "before", SLOT_PEER, role - 1, s->nranks - 1) : NONE;
    m.peer[1] = role + 1 < s->nranks ? program_slot(m.p, "behind", SLOT_PEER, role + 1, s->nranks - 1) : NONE;
    uint32_t ring = program_ring(m.p, "boundary", depth);
    for (uint32_t v = 0; v < NVALUES; v++) {
        struct buffer b = {
            .kind = BUFFER_STEP, .dtype = DTYPE_F32, .ring = ring, .stride = 256, .bytes = 256ull * depth};
        b.offset = v * b.bytes;
        b.bucket = b.shard_slot = NONE;
        strcpy(b.name, names[v]);
        m.buffer[v] = program_buffer(m.p, &b);
        m.user[v] = ARENA_ARRAY(a, uint32_t, depth);
        memset(m.user[v], 0xff, depth * sizeof *m.user[v]);
    }
    m.p->arena_bytes = NVALUES * 256ull * depth;
    for (uint32_t k = 0; k < s->nactions[role]; k++) {
        if (s->actions[role][k].kind != 'O')
            make_action(&m, &s->actions[role][k]);
    }
    return m.p;
}

struct program **handmade_programs(struct arena *a, const struct schedule *s, uint32_t depth)
{
    struct program **programs = ARENA_ARRAY(a, struct program *, s->nranks);
    for (uint32_t r = 0; r < s->nranks; r++)
        programs[r] = make_role(a, s, r, depth);
    return programs;
}

void handmade_free(struct program **programs, uint32_t nroles)
{
    for (uint32_t r = 0; r < nroles; r++)
        program_free(programs[r]);
}
