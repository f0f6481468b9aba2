/* Instructions appended by name (emit.h).  Everything follows from isa.def: one function per row stores the given
 * operands and attributes in the program, in the row's order, and checks that those the row requires were given. */

#include "compiler/lower/build.h"

#include <assert.h>

/* values that nobody passes: they mark what was not given */
#define UNSAID_INT INT64_MIN
#define UNSAID_SLOT (NONE - 1)

#define R(n, d, r, c) .n = {.buffer = NONE},
#define RO(n, d, r, c) .n = {.buffer = NONE},
#define W(n, d, r, c) .n = {.buffer = NONE},
#define WO(n, d, r, c) .n = {.buffer = NONE},
#define WA(n, d, r, c) .n = {.mat = {.buffer = NONE}},
#define WAO(n, d, r, c) .n = {.mat = {.buffer = NONE}},
#define RW(n, d, r, c) .n = {.buffer = NONE},
#define RWO(n, d, r, c) .n = {.buffer = NONE},
#define INT(n) .n = UNSAID_INT,
#define INTO(n) .n = 0,
#define REAL(n) .n = NAN,
#define REALO(n) .n = 0,
#define BIND(n) .n = {.slot = UNSAID_SLOT},
#define BINDO(n) .n = {.slot = NONE},
#define PEER(n) .n = UNSAID_SLOT,
#define GROUP(n) .n = UNSAID_SLOT,
#define WHOLE(x, y)
#define MOST(x, y)
#define BELOW(x, y)
#define INSN(name, queue, unit, operands, attributes, meaning)                                                         \
    const struct emit_##name emit_none_##name = {operands attributes};
#include "runtime/isa.def"

/* the instruction that is being appended, and its next operand and attribute */
struct emission {
    struct program *p;
    const struct insn *insn;
    struct operand *operand;
    struct attr *attr;
};

static struct emission begin(struct lower *l, enum op op)
{
    uint32_t i = program_insn(l->p, op);
    struct insn *n = &l->p->insns[i];
    n->action = l->action;
    n->stage = (uint16_t)l->stage_index;
    n->layer = l->layer;
    n->microbatch = l->microbatch;
    n->line = l->line;
    return (struct emission){l->p, n, &l->p->operands[n->operand], &l->p->attrs[n->attr]};
}

static void put(struct emission *e, struct mat m, enum mark mark, bool optional)
{
    struct operand *o = e->operand++;
    assert(optional || m.buffer != NONE);
    if (m.buffer == NONE)
        return;
    assert(m.instance == (e->p->buffers[m.buffer].ring == NONE ? NONE : e->insn->microbatch));
    *o = (struct operand){.buffer = m.buffer,
                          .dtype = (uint8_t)m.dtype,
                          .mark = (uint8_t)mark,
                          .slot = m.slot == NONE ? UINT16_MAX : (uint16_t)m.slot,
                          .offset = m.at,
                          .slot_stride = m.slot_stride,
                          .rows = m.rows,
                          .cols = m.cols,
                          .ld = m.ld};
}

static void put_target(struct emission *e, struct target t, bool optional)
{
    assert(t.mat.buffer == NONE || t.mark == MARK_WRITE || t.mark == MARK_ADD);
    put(e, t.mat, t.mark, optional);
}

static void put_int(struct emission *e, int64_t v)
{
    assert(v != UNSAID_INT);
    e->attr++->u.i = v;
}

static void put_real(struct emission *e, double v)
{
    assert(!isnan(v));
    e->attr++->u.f = v;
}

static void put_bind(struct emission *e, struct bind b)
{
    assert(b.slot != UNSAID_SLOT);
    struct attr *a = e->attr++;
    a->u.i = b.base;
    a->slot = b.slot;
    a->stride = b.stride;
}

static void put_slot(struct emission *e, uint32_t slot)
{
    put_bind(e, (struct bind){0, slot, 0});
}

#define R(n, d, r, c) put(&at, e->n, MARK_READ, false);
#define RO(n, d, r, c) put(&at, e->n, MARK_READ, true);
#define W(n, d, r, c) put(&at, e->n, MARK_WRITE, false);
#define WO(n, d, r, c) put(&at, e->n, MARK_WRITE, true);
#define WA(n, d, r, c) put_target(&at, e->n, false);
#define WAO(n, d, r, c) put_target(&at, e->n, true);
#define RW(n, d, r, c) put(&at, e->n, MARK_UPDATE, false);
#define RWO(n, d, r, c) put(&at, e->n, MARK_UPDATE, true);
#define INT(n) put_int(&at, e->n);
#define INTO(n) put_int(&at, e->n);
#define REAL(n) put_real(&at, e->n);
#define REALO(n) put_real(&at, e->n);
#define BIND(n) put_bind(&at, e->n);
#define BINDO(n) put_bind(&at, e->n);
#define PEER(n) put_slot(&at, e->n);
#define GROUP(n) put_slot(&at, e->n);
#define WHOLE(x, y)
#define MOST(x, y)
#define BELOW(x, y)
#define INSN(name, queue, unit, operands, attributes, meaning)                                                         \
    void emit_##name(struct lower *l, const struct emit_##name *e)                                                     \
    {                                                                                                                  \
        struct emission at = begin(l, OP_##name);                                                                      \
        operands attributes                                                                                            \
    }
#include "runtime/isa.def"

struct insn *lower_last(struct lower *l)
{
    return &l->p->insns[l->p->ninsns - 1];
}
