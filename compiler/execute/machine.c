/* Opening a machine, resolving operands, and computing one instruction. */

#include "compiler/execute/machine.h"

#include <stdarg.h>
#include <string.h>

static const struct program *role_program(const struct plan *p, uint32_t role, enum exact_program which)
{
    return which == EXACT_EVAL ? p->eval[role] : p->train[role];
}

static const char *check_plan(struct arena *a, const struct plan *p)
{
    struct error error = {""};
    for (uint32_t r = 0; r < p->nroles; r++)
        for (int e = 0; e < 2; e++)
            if (program_check(role_program(p, r, (enum exact_program)e), &error) != STATUS_OK)
                return arena_printf(a, "role %u: %s", r, error.text);
    if (ranks_check(p->ranks, (const struct program *const *)p->train, &error) != STATUS_OK ||
        ranks_check(p->ranks, (const struct program *const *)p->eval, &error) != STATUS_OK)
        return arena_strdup(a, error.text);
    return NULL;
}

struct exact_machine *exact_open(struct arena *a, const struct plan *p, uint64_t seed, const char **why)
{
    if ((*why = check_plan(a, p)))
        return NULL;
    struct arena *own = arena_new();
    struct exact_machine *m = ARENA_NEW(own, struct exact_machine);
    m->arena = own;
    m->step = arena_new();
    m->scratch = arena_new();
    m->plan = p;
    m->nranks = p->ranks->nranks;
    m->shuffled = seed != 0;
    m->random = field_bits(seed, 1, 0);
    m->ranks = ARENA_ARRAY(own, struct exact_rank, m->nranks);
    m->priority = ARENA_ARRAY(own, uint8_t, (size_t)m->nranks * NQUEUES);
    for (uint32_t r = 0; r < m->nranks; r++) {
        uint32_t role = p->ranks->ranks[r].role;
        uint64_t train = p->train[role]->arena_bytes, eval = p->eval[role]->arena_bytes;
        memory_open(own, &m->ranks[r].memory, train > eval ? train : eval, field_bits(seed, 2, r));
    }
    return m;
}

void exact_close(struct exact_machine *m)
{
    if (!m)
        return;
    arena_free(m->scratch);
    arena_free(m->step);
    arena_free(m->arena);
}

uint64_t exact_random(struct exact_machine *m, uint64_t n)
{
    m->random += 0x9e3779b97f4a7c15u;
    return field_bits(m->random, 3, 0) % n;
}

uint64_t exact_value(const struct exact_machine *m, uint32_t rank, uint32_t slot)
{
    const struct ranks *r = m->plan->ranks;
    return r->values[r->ranks[rank].slot + slot];
}

bool exact_is_meeting(const struct insn *in)
{
    enum unit unit = isa_info(in->op)->unit;
    return unit == UNIT_P2P || unit == UNIT_COLLECTIVE;
}

bool exact_place(const struct exact_machine *m, uint32_t rank, uint32_t insn, uint32_t operand, struct place *out)
{
    const struct program *p = m->ranks[rank].p;
    const struct operand *o = &p->operands[p->insns[insn].operand + operand];
    if (o->buffer == NONE)
        return false;
    uint64_t at = program_operand_offset(p, o);
    if (o->slot != UINT16_MAX)
        at += exact_value(m, rank, o->slot) * o->slot_stride;
    *out = (struct place){at, (enum dtype)o->dtype, o->rows, o->cols, o->ld};
    return true;
}

bool exact_fail(struct exact_machine *m, uint32_t rank, uint32_t insn, const char *fmt, ...)
{
    va_list ap;
    if (m->why[0])
        return false;
    va_start(ap, fmt);
    int n = vsnprintf(m->why, sizeof m->why, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n + 64 >= sizeof m->why)
        return false;
    n += snprintf(m->why + n, sizeof m->why - (size_t)n, ": rank %u, instruction %u: ", rank, insn);
    FILE *f = fmemopen(m->why + n, sizeof m->why - (size_t)n, "w");
    if (f) {
        program_print_insn(m->ranks[rank].p, insn, f);
        fclose(f);
    }
    m->why[sizeof m->why - 1] = 0;
    return false;
}

static bool load_operands(struct exact_machine *m, uint32_t rank, uint32_t insn, struct exact_args *k,
                          struct place *places)
{
    const struct program *p = m->ranks[rank].p;
    const struct insn *in = &p->insns[insn];
    const struct isa_info *info = isa_info(in->op);
    for (uint32_t i = 0; i < info->noperands; i++) {
        enum mark mark = (enum mark)p->operands[in->operand + i].mark;
        if (!exact_place(m, rank, insn, i, &places[i]))
            continue;
        if (!memory_holds(&m->ranks[rank].memory, &places[i]))
            return exact_fail(m, rank, insn, "operand %s leaves the arena", info->operand[i].name);
        k->v[i] = (struct exact_view){ARENA_ARRAY(m->scratch, uint64_t, (size_t)places[i].rows * places[i].cols),
                                      places[i].rows, places[i].cols};
        if (mark == MARK_READ || mark == MARK_UPDATE)
            memory_load(&m->ranks[rank].memory, &places[i], k->v[i].at);
    }
    return true;
}

static void bind_attributes(const struct exact_machine *m, uint32_t rank, uint32_t insn, struct exact_args *k)
{
    const struct program *p = m->ranks[rank].p;
    const struct insn *in = &p->insns[insn];
    const struct isa_info *info = isa_info(in->op);
    for (uint32_t i = 0; i < info->nattrs; i++) {
        const struct attr *a = &p->attrs[in->attr + i];
        uint64_t value = a->slot == NONE ? 0 : exact_value(m, rank, a->slot);
        switch (info->attr[i].kind) {
        case ATTR_REAL:
            k->attr[i].f = a->u.f;
            break;
        case ATTR_INT:
            k->attr[i].i = a->u.i;
            break;
        case ATTR_BIND:
            k->attr[i].i = a->u.i + (int64_t)value * a->stride;
            break;
        case ATTR_PEER:
        case ATTR_GROUP:
            k->attr[i].i = (int64_t)value;
            break;
        }
    }
}

/* A kernel may work in place, operand by operand.  Where a written operand overlaps another one in any other way,
 * the result depends on the order in which the kernel processes elements. */
static bool tangled(const struct isa_info *info, const struct exact_args *k, const struct place *places,
                    const struct operand *operands, uint32_t written)
{
    for (uint32_t i = 0; i < info->noperands; i++) {
        if (i == written || !k->v[i].at || !memory_overlap(&places[i], &places[written]))
            continue;
        const struct place *x = &places[i], *y = &places[written];
        bool same = x->at == y->at && x->rows == y->rows && x->cols == y->cols && (x->ld == y->ld || x->rows == 1);
        if (!same || operands[i].mark != MARK_READ)
            return true;
    }
    return false;
}

static void store_operands(struct exact_machine *m, uint32_t rank, uint32_t insn, const struct exact_args *k,
                           const struct place *places)
{
    const struct program *p = m->ranks[rank].p;
    const struct insn *in = &p->insns[insn];
    const struct isa_info *info = isa_info(in->op);
    struct memory *memory = &m->ranks[rank].memory;
    for (uint32_t i = 0; i < info->noperands; i++) {
        enum mark mark = (enum mark)p->operands[in->operand + i].mark;
        size_t n = (size_t)k->v[i].rows * k->v[i].cols;
        if (!k->v[i].at || mark == MARK_READ)
            continue;
        if (mark == MARK_ADD) {
            uint64_t *old = ARENA_ARRAY(m->scratch, uint64_t, n);
            memory_load(memory, &places[i], old);
            for (size_t e = 0; e < n; e++)
                k->v[i].at[e] = places[i].dtype == DTYPE_I32 ? k->v[i].at[e] + old[e]
                                                             : field_add(k->v[i].at[e], old[e]);
        }
        if (tangled(info, k, places, &p->operands[in->operand], i))
            memory_clobber(memory, &places[i]);
        else
            memory_store(memory, &places[i], k->v[i].at);
    }
}

bool exact_compute(struct exact_machine *m, uint32_t rank, uint32_t insn)
{
    const struct insn *in = &m->ranks[rank].p->insns[insn];
    struct exact_args k = {.scratch = m->scratch,
                           .fours = &m->fours,
                           .vocab = m->ranks[rank].p->job.vocab,
                           .garbage = field_bits(m->random, 4, 0)};
    struct place places[ISA_MAX_OPERANDS];
    struct arena_mark mark = arena_mark(m->scratch);
    exact_kernel *kernel = exact_kernel_of(in->op);
    if (!kernel)
        return exact_fail(m, rank, insn, "%s has no exact form", isa_info(in->op)->name);
    if (!load_operands(m, rank, insn, &k, places))
        return false;
    bind_attributes(m, rank, insn, &k);
    kernel(&k);
    store_operands(m, rank, insn, &k, places);
    if (m->update && (in->op == OP_ADAMW || in->op == OP_SGD || in->op == OP_BIAS_MOVE))
        m->update(m->context, rank, insn, &k);
    arena_reset(m->scratch, mark);
    return true;
}
