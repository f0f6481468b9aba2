/* Shared ground of the properties; see prove.h.
 *
 * Clocks: before[i] is the least upper bound of its queue predecessor's clock and its wait targets' clocks,
 * each with the predecessor itself added (Fidge 1988, Mattern 1989, with queues for processes).  One pass,
 * six words per instruction. */

#include "compiler/verify/prove.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PER_PROPERTY 20

const struct program *prove_program(const struct plan *p, uint32_t role, int kind)
{
    struct program **all = kind == PROGRAM_TRAIN ? p->train : p->eval;
    return all ? all[role] : NULL;
}

char *prove_insn_text(struct arena *a, const struct program *p, uint32_t insn)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (f) {
        program_print_insn(p, insn, f);
        fclose(f);
    }
    char *s = arena_printf(a, "instruction %u (%.400s)", insn, text ? text : "");
    free(text);
    return s;
}

uint32_t prove_count(const struct verdict *v, uint32_t property)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->nviolations; i++)
        n += v->violations[i].property == property;
    return n;
}

static void keep(struct arena *a, struct verdict *v, const struct violation *x)
{
    if (!v->violations)
        v->violations = ARENA_ARRAY(a, struct violation, 9 * MOST_PER_PROPERTY);
    v->violations[v->nviolations++] = *x;
}

void prove_keep(struct arena *a, struct verdict *v, const struct violation *x)
{
    struct violation copy = *x;
    if (prove_count(v, x->property) >= MOST_PER_PROPERTY)
        return;
    copy.message = arena_strdup(a, x->message);
    keep(a, v, &copy);
}

void prove_report(struct arena *a, const struct plan *p, struct verdict *v, struct site at, const char *fmt, ...)
{
    if (prove_count(v, at.property) >= MOST_PER_PROPERTY)
        return;
    va_list ap;
    va_start(ap, fmt);
    const char *sentence = arena_vprintf(a, fmt, ap), *place = "", *text = "";
    va_end(ap);
    if (at.role != NONE)
        place = at.rank == NONE
                    ? arena_printf(a, "role %u%s, ", at.role, at.evaluation ? " (evaluation)" : "")
                    : arena_printf(a, "role %u%s (rank %u), ", at.role, at.evaluation ? " (evaluation)" : "", at.rank);
    else if (at.rank != NONE)
        place = arena_printf(a, "rank %u, ", at.rank);
    if (at.insn != NONE && at.role != NONE) {
        const struct program *q = prove_program(p, at.role, at.evaluation ? PROGRAM_EVAL : PROGRAM_TRAIN);
        uint32_t line = q->insns[at.insn].line;
        text = prove_insn_text(a, q, at.insn);
        text = line ? arena_printf(a, "%s, line %u: ", text, line) : arena_printf(a, "%s: ", text);
    }
    keep(a, v,
         &(struct violation){at.property, at.role, at.rank, at.evaluation, at.insn,
                             arena_printf(a, "%s%s%s", place, text, sentence)});
}

struct clocks *prove_positions(struct arena *a, const struct program *p)
{
    struct clocks *c = ARENA_NEW(a, struct clocks);
    c->position = ARENA_ARRAY(a, uint32_t, p->ninsns + 1u);
    program_positions(p, c->position, c->count);
    for (int q = 0; q < NQUEUES; q++)
        c->insn[q] = ARENA_ARRAY(a, uint32_t, c->count[q] + 1u);
    for (uint32_t i = 0; i < p->ninsns; i++)
        c->insn[p->insns[i].queue][c->position[i]] = i;
    return c;
}

struct clocks *prove_clocks(struct arena *a, const struct program *p)
{
    struct clocks *c = prove_positions(a, p);
    c->before = arena_array(a, p->ninsns + 1u, sizeof *c->before);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *in = &p->insns[i];
        uint32_t *mine = c->before[i], at = c->position[i];
        if (at) {
            memcpy(mine, c->before[c->insn[in->queue][at - 1]], sizeof *c->before);
            mine[in->queue] = at;
        }
        for (uint32_t w = 0; w < in->nwaits; w++) {
            const struct wait *wait = &p->waits[in->wait + w];
            if (wait->position >= c->count[wait->queue])
                continue;
            uint32_t target = c->insn[wait->queue][wait->position];
            if (target >= i)
                continue;
            for (int q = 0; q < NQUEUES; q++)
                if (c->before[target][q] > mine[q])
                    mine[q] = c->before[target][q];
            if (mine[wait->queue] < wait->position + 1)
                mine[wait->queue] = wait->position + 1;
        }
    }
    return c;
}

struct region prove_region(const struct program *p, const struct operand *o)
{
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype);
    struct region r = {program_operand_offset(p, o), o->rows, o->cols * size, o->ld * size};
    if (o->slot != UINT16_MAX) {
        r.width = (uint64_t)p->slots[o->slot].most * o->slot_stride + (r.rows - 1) * r.pitch + r.width;
        r.rows = 1;
    }
    if (r.width == r.pitch) {
        r.width *= r.rows;
        r.rows = 1;
    }
    if (r.rows == 1)
        r.pitch = r.width;
    return r;
}

static int64_t divide_down(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Run i of x and run j of y meet when -y.width < (y.at - x.at) + (j - i) pitch < x.width: is there such a j -
 * i? */
bool prove_overlap(const struct region *x, const struct region *y)
{
    if (x->at >= region_end(y) || y->at >= region_end(x))
        return false;
    if (x->rows > 1 && y->rows > 1 && x->pitch != y->pitch)
        return true;
    if (x->rows == 1 && y->rows == 1)
        return true;
    int64_t pitch = (int64_t)(x->rows > 1 ? x->pitch : y->pitch), distance = (int64_t)y->at - (int64_t)x->at;
    int64_t least = divide_down(-(int64_t)y->width - distance, pitch) + 1;
    int64_t most = divide_down((int64_t)x->width - distance - 1, pitch);
    if (least < -((int64_t)x->rows - 1))
        least = -((int64_t)x->rows - 1);
    if (most > (int64_t)y->rows - 1)
        most = (int64_t)y->rows - 1;
    return least <= most;
}

uint32_t prove_mask(const struct mesh *m, uint32_t mask)
{
    if (mask & GROUP_TIE)
        return m->size[AXIS_PP] > 1 ? GROUP_TIE : 0;
    for (uint32_t a = 0; a < NDIGITS; a++)
        if (m->size[a] == 1)
            mask &= ~AXIS_BIT(a);
    return mask;
}

const struct slot *prove_comm_slot(const struct program *p, uint32_t insn)
{
    const struct isa_info *info = isa_info(p->insns[insn].op);
    for (uint32_t k = 0; k < info->nattrs; k++)
        if (info->attr[k].kind == ATTR_PEER || info->attr[k].kind == ATTR_GROUP)
            return &p->slots[prove_attr(p, insn, k)->slot];
    return NULL;
}
