/* Property 2, matching: what is sent is received, and collectives are issued alike by all members.
 *
 * By roles: the k-th SEND of role s to pipeline rank d meets the k-th RECV of role d from s, on every pair of
 * ranks with equal other coordinates (slots.c proves that the slots say so).  Members of a group within one
 * role run the same program, and no slot enters a signature, so they agree by construction; groups across
 * roles are compared k-th by k-th, per communicator = group and queue.  Linear in instructions. */

#include "compiler/verify/prove.h"

struct match {
    struct arena *arena;
    const struct plan *plan;
    struct verdict *verdict;
    int kind;
};

static uint64_t operand_bytes(const struct operand *o)
{
    return (uint64_t)o->rows * o->cols * isa_dtype_bytes((enum dtype)o->dtype);
}

/* Are the two sides of a transfer, or two members' collectives, the same?  NULL, or what differs. */
static const char *difference(struct arena *a, const struct program *p, uint32_t i, const struct program *q, uint32_t j)
{
    const struct isa_info *info = isa_info(p->insns[i].op);
    bool p2p = prove_is_p2p(p->insns[i].op);
    if (!p2p && p->insns[i].op != q->insns[j].op)
        return "the collectives differ";
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *x = prove_operand(p, i, k), *y = prove_operand(q, j, k);
        if (x->dtype != y->dtype)
            return arena_printf(a, "%s here, %s there", isa_dtype_name((enum dtype)x->dtype),
                                isa_dtype_name((enum dtype)y->dtype));
        if (operand_bytes(x) != operand_bytes(y))
            return arena_printf(a, "%llu bytes here, %llu there", (unsigned long long)operand_bytes(x),
                                (unsigned long long)operand_bytes(y));
        if (x->rows != y->rows)
            return arena_printf(a, "%u rows here, %u there", x->rows, y->rows);
    }
    for (uint32_t k = 0; !p2p && k < info->nattrs; k++)
        if (info->attr[k].kind == ATTR_INT && prove_attr(p, i, k)->u.i != prove_attr(q, j, k)->u.i)
            return arena_printf(a, "attribute %s differs", info->attr[k].name);
    return NULL;
}

static const char *meeting_text(struct arena *a, const struct meeting *m)
{
    if (m->p2p)
        return arena_printf(a, "the channel from role %u to role %u", m->member[0].role, m->member[1].role);
    return arena_printf(a, "the group over %s%s%s on queue %s",
                        m->mask & GROUP_TIE ? "the tied stages" : "the pipeline",
                        m->mask & AXIS_BIT(AXIS_TP) ? ", tp" : "", m->mask & AXIS_BIT(AXIS_DP) ? ", dp" : "",
                        isa_queue_name((enum queue)m->queue));
}

/* Where two streams of different length part: the first place with different seq, which is the likely
 * culprit. */
static uint32_t parting(const struct program *p, const struct stream *x, const struct program *q,
                        const struct stream *y)
{
    uint32_t n = x->n < y->n ? x->n : y->n;
    for (uint32_t k = 0; k < n; k++)
        if (p->insns[x->insn[k]].seq != q->insns[y->insn[k]].seq)
            return k;
    return n;
}

static void match_streams(const struct match *c, const struct meeting *m, uint32_t member)
{
    const struct stream *x = &m->member[0], *y = &m->member[member];
    const struct program *p = prove_program(c->plan, x->role, c->kind), *q = prove_program(c->plan, y->role, c->kind);
    struct site at = {2, x->role, NONE, c->kind == PROGRAM_EVAL, NONE};
    if (x->n != y->n) {
        uint32_t k = parting(p, x, q, y);
        bool first = k < x->n && (k >= y->n || p->insns[x->insn[k]].seq < q->insns[y->insn[k]].seq);
        at.role = first ? x->role : y->role;
        at.insn = first ? x->insn[k] : y->insn[k];
        prove_report(c->arena, c->plan, c->verdict, at,
                     "%s has %u instructions on role %u but %u on role %u; this is the first without a match",
                     meeting_text(c->arena, m), x->n, x->role, y->n, y->role);
        return;
    }
    for (uint32_t k = 0; k < x->n; k++) {
        const char *what = difference(c->arena, p, x->insn[k], q, y->insn[k]);
        if (!what)
            continue;
        at.insn = x->insn[k];
        prove_report(c->arena, c->plan, c->verdict, at, "on %s it meets role %u's %s: %s", meeting_text(c->arena, m),
                     y->role, prove_insn_text(c->arena, q, y->insn[k]), what);
    }
}

/* Finds partners that do not exist.  slots.c finds peers beyond the pipeline, structure roots beyond their group. */
static void check_partners(const struct match *c, uint32_t role)
{
    const struct program *p = prove_program(c->plan, role, c->kind);
    for (uint32_t i = 0; p && i < p->ninsns; i++) {
        enum op op = p->insns[i].op;
        struct site at = {2, role, NONE, c->kind == PROGRAM_EVAL, i};
        if (prove_is_p2p(op)) {
            uint32_t peer = prove_comm_slot(p, i)->arg;
            if (peer == role)
                prove_report(c->arena, c->plan, c->verdict, at, "its peer is the rank itself");
        } else if (prove_is_collective(op) && !prove_member(c->plan, prove_comm_slot(p, i)->arg, role)) {
            prove_report(c->arena, c->plan, c->verdict, at, "role %u is its own mirror image", role);
        }
    }
}

void verify_match(struct arena *a, const struct plan *p, bool full, struct verdict *v)
{
    uint32_t before = prove_count(v, 2);
    prove_slots(a, p, v);
    for (int kind = 0; kind < NPROGRAM_KINDS; kind++) {
        struct match c = {a, p, v, kind};
        struct arena *scratch = arena_new();
        uint32_t n;
        struct meeting *m = prove_meetings(scratch, p, kind, &n);
        for (uint32_t role = 0; role < p->nroles; role++)
            check_partners(&c, role);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 1; k < m[i].nmembers; k++)
                match_streams(&c, &m[i], k);
        arena_free(scratch);
    }
    if (full && prove_count(v, 2) == before)
        prove_full(a, p, false, v);
}
