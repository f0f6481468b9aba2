/* What seams need, so that a plan that is checked during its next step is the plan that every other property is about.
 *
 * The text says: early, body, check.  The replay is: early; then body, the next step's early, check, again and again;
 * where the check finds a scale other than 1, early once more.  Both compute the same if
 *   - phases are closed: of every communication all members have it in the same phase (property 2), so that each
 *     phase ends on every rank whatever the others replay next;
 *   - early and check touch no bytes in common of which one writes (4), but for the copies of parameters that the
 * check's ADAMW leaves.  Those hold already what it writes, if scale is 1: an ADAMW_AHEAD with the same operands and
 * attributes foretold it in the body (7), and nothing else updates anything.  If not, early reads them when it runs
 * again;
 *   - running early twice is running it once: it reads only what it wrote itself or what is persistent (property 5),
 * and of that changes nothing but copies of parameters, by gathering them (7). All members of a check find the same
 * scale, because it follows from a sum over the world, whose bits are the same on all.
 *
 * One pass over the early instructions, against the few operands of the check. */

#include "compiler/verify/prove.h"

#include "compiler/support/vec.h"

#include <string.h>

struct use {
    struct region region;
    uint32_t insn, buffer;
    bool writes, foretold;
};

struct skew {
    struct arena *arena, *scratch;
    const struct plan *plan;
    const struct program *program;
    struct verdict *verdict;
    uint32_t role, phase[NPHASES + 1];
    VEC(struct use) uses; /* of the check */
};

static struct site at(const struct skew *s, uint32_t property, uint32_t insn)
{
    return (struct site){property, s->role, NONE, false, insn};
}

/* Formats are the same by the job (precision.c); rows lie one behind the other, and parts by a slot too, or
 * values (7) are not known. */
static bool same_operand(const struct operand *x, const struct operand *y)
{
    return x->buffer == y->buffer && x->slot == y->slot && x->offset == y->offset && x->rows == y->rows &&
           x->cols == y->cols;
}

/* is ADAMW_AHEAD `ahead` what ADAMW `i` will be? */
static bool foretells(const struct program *p, uint32_t ahead, uint32_t i)
{
    static const uint8_t pairs[][2] = {
        {OPND(ADAMW_AHEAD, copy), OPND(ADAMW, copy)}, {OPND(ADAMW_AHEAD, p), OPND(ADAMW, p)},
        {OPND(ADAMW_AHEAD, m), OPND(ADAMW, m)},       {OPND(ADAMW_AHEAD, v), OPND(ADAMW, v)},
        {OPND(ADAMW_AHEAD, g), OPND(ADAMW, g)},       {OPND(ADAMW_AHEAD, step), OPND(ADAMW, step)}};
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        if (!same_operand(prove_operand(p, ahead, pairs[k][0]), prove_operand(p, i, pairs[k][1])))
            return false;
    for (size_t k = 0; k <= ATTR(ADAMW, decay); k++) /* in the same order */
        if (prove_attr(p, ahead, k)->u.f != prove_attr(p, i, k)->u.f)
            return false;
    return true;
}

static bool is_foretold(const struct skew *s, uint32_t i)
{
    for (uint32_t k = s->phase[PHASE_BODY]; k < s->phase[PHASE_CHECK]; k++)
        if (s->program->insns[k].op == OP_ADAMW_AHEAD && foretells(s->program, k, i))
            return true;
    return false;
}

static void find_uses(struct skew *s)
{
    const struct program *p = s->program;
    for (uint32_t i = s->phase[PHASE_CHECK]; i < p->ninsns; i++) {
        bool update = p->insns[i].op == OP_ADAMW;
        if (update && !is_foretold(s, i))
            prove_report(s->arena, s->plan, s->verdict, at(s, 7, i), "no ADAMW_AHEAD of the body foretells it");
        for (uint32_t k = 0; k < isa_info(p->insns[i].op)->noperands; k++) {
            const struct operand *o = prove_operand(p, i, k);
            if (o->buffer == NONE)
                continue;
            bool copy = update && k == OPND(ADAMW, copy) && p->buffers[o->buffer].kind == BUFFER_PARAM;
            vec_push(s->scratch, &s->uses,
                     ((struct use){prove_region(p, o), i, o->buffer, o->mark != MARK_READ, copy}));
        }
    }
}

static void check_operand(struct skew *s, uint32_t i, const struct operand *o)
{
    const struct program *p = s->program;
    const struct buffer *b = &p->buffers[o->buffer];
    bool writes = o->mark != MARK_READ;
    struct region mine = prove_region(p, o);
    if (writes && b->kind != BUFFER_STEP && !(b->kind == BUFFER_PARAM && p->insns[i].op == OP_ALL_GATHER)) {
        prove_report(s->arena, s->plan, s->verdict, at(s, 7, i),
                     "it changes buffer %s before the first seam, where it may run twice", b->name);
        return;
    }
    for (size_t k = 0; k < s->uses.n; k++) {
        const struct use *u = &s->uses.at[k];
        if ((!writes && !u->writes) || (u->foretold && u->buffer == o->buffer) || !prove_overlap(&mine, &u->region))
            continue;
        prove_report(s->arena, s->plan, s->verdict, at(s, 4, i),
                     "it runs before %s of the step before, and %s bytes of %s", prove_insn_text(s->arena, p, u->insn),
                     writes ? "writes" : "reads", p->buffers[u->buffer].name);
        return;
    }
}

static void check_updates(struct skew *s)
{
    const struct program *p = s->program;
    uint32_t clips = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        enum op op = p->insns[i].op;
        bool behind = i >= s->phase[PHASE_CHECK];
        clips += op == OP_CLIP && behind;
        if (op == OP_SGD || op == OP_BIAS_MOVE || (op == OP_ADAMW && !behind))
            prove_report(s->arena, s->plan, s->verdict, at(s, 7, i), "it updates what the check is not about");
    }
    if (clips != 1)
        prove_report(s->arena, s->plan, s->verdict, at(s, 7, NONE), "%u CLIPs are behind the second seam, not one",
                     clips);
}

static void check_role(struct skew *s)
{
    s->scratch = arena_new();
    find_uses(s);
    for (uint32_t i = 0; i < s->phase[PHASE_BODY] && prove_count(s->verdict, 4) < 20; i++)
        for (uint32_t k = 0; k < isa_info(s->program->insns[i].op)->noperands; k++)
            if (prove_operand(s->program, i, k)->buffer != NONE)
                check_operand(s, i, prove_operand(s->program, i, k));
    check_updates(s);
    arena_free(s->scratch);
}

/* how many of a member's come before an instruction */
static uint32_t count_before(const struct stream *m, uint32_t insn)
{
    uint32_t low = 0, high = m->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        *(m->insn[middle] < insn ? &low : &high) = m->insn[middle] < insn ? middle + 1 : middle;
    }
    return low;
}

static void check_closed(struct arena *a, const struct plan *p, struct verdict *v)
{
    struct arena *scratch = arena_new();
    uint32_t n, phase[NPHASES + 1], first[NPHASES + 1];
    const struct meeting *all = prove_meetings(scratch, p, PROGRAM_TRAIN, &n);
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t m = 1; m < all[k].nmembers; m++) {
            const struct stream *x = &all[k].member[0], *y = &all[k].member[m];
            program_phases(prove_program(p, x->role, PROGRAM_TRAIN), first);
            program_phases(prove_program(p, y->role, PROGRAM_TRAIN), phase);
            for (enum phase e = PHASE_BODY; e <= PHASE_CHECK; e++)
                if (count_before(x, first[e]) != count_before(y, phase[e])) {
                    prove_report(a, p, v, (struct site){2, y->role, NONE, false, NONE},
                                 "%u of its communications with role %u come before the %s seam, there %u",
                                 count_before(y, phase[e]), x->role, e == PHASE_BODY ? "first" : "second",
                                 count_before(x, first[e]));
                    break;
                }
        }
    arena_free(scratch);
}

void verify_skew(struct arena *a, const struct plan *p, struct verdict *v)
{
    uint32_t n = 0;
    for (uint32_t role = 0; role < p->nroles; role++) {
        struct skew s = {
            .arena = a, .plan = p, .program = prove_program(p, role, PROGRAM_TRAIN), .verdict = v, .role = role};
        if (!program_phases(s.program, s.phase))
            continue;
        n++;
        check_role(&s);
    }
    if (n && n < p->nroles)
        prove_report(a, p, v, (struct site){2, NONE, NONE, false, NONE}, "%u roles have seams, %u have none", n,
                     p->nroles - n);
    else if (n)
        check_closed(a, p, v);
}
