/* Property 3, no deadlock: `seq` is a topological number of everything that waits for anything.
 *
 * Merge the two sides of a transfer and the members of a collective into one node; edges are queue order and
 * waits.  If seq grows along every edge and is equal within a node, the graph is acyclic, so some node can
 * always proceed, for any durations.  As all communication of a rank has different numbers, sorting it onto
 * one queue adds only edges along which seq grows: it stays acyclic even if serialised (the certificate).
 * Linear. */

#include "compiler/verify/prove.h"

#include <assert.h>

struct order {
    struct arena *arena;
    const struct plan *plan;
    struct verdict *verdict;
    int kind;
};

static void order_role(const struct order *c, uint32_t role)
{
    const struct program *p = prove_program(c->plan, role, c->kind);
    if (!p)
        return;
    struct arena *scratch = arena_new();
    const struct clocks *k = prove_positions(scratch, p);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *in = &p->insns[i];
        struct site at = {3, role, NONE, c->kind == PROGRAM_EVAL, i};
        assert(!i || in->seq > p->insns[i - 1].seq); /* structure: so is that every wait has a target */
        for (uint32_t w = 0; w < in->nwaits; w++) {
            const struct wait *wait = &p->waits[in->wait + w];
            assert(wait->position < k->count[wait->queue]);
            uint32_t target = k->insn[wait->queue][wait->position];
            if (p->insns[target].seq >= in->seq)
                prove_report(c->arena, c->plan, c->verdict, at, "it waits for a later one, %s",
                             prove_insn_text(c->arena, p, target));
        }
    }
    arena_free(scratch);
}

static void order_meeting(const struct order *c, const struct meeting *m, uint32_t member)
{
    const struct stream *x = &m->member[0], *y = &m->member[member];
    const struct program *p = prove_program(c->plan, x->role, c->kind), *q = prove_program(c->plan, y->role, c->kind);
    uint32_t n = x->n < y->n ? x->n : y->n; /* unequal lengths are property 2's */
    for (uint32_t k = 0; k < n; k++) {
        if (p->insns[x->insn[k]].seq == q->insns[y->insn[k]].seq)
            continue;
        struct site at = {3, x->role, NONE, c->kind == PROGRAM_EVAL, x->insn[k]};
        prove_report(c->arena, c->plan, c->verdict, at, "it meets role %u's %s, which has another seq", y->role,
                     prove_insn_text(c->arena, q, y->insn[k]));
        return;
    }
}

void verify_order(struct arena *a, const struct plan *p, bool full, struct verdict *v)
{
    uint32_t before = prove_count(v, 3);
    for (int kind = 0; kind < NPROGRAM_KINDS; kind++) {
        struct order c = {a, p, v, kind};
        struct arena *scratch = arena_new();
        uint32_t n;
        struct meeting *m = prove_meetings(scratch, p, kind, &n);
        for (uint32_t role = 0; role < p->nroles; role++)
            order_role(&c, role);
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 1; k < m[i].nmembers; k++)
                order_meeting(&c, &m[i], k);
        arena_free(scratch);
    }
    v->certificate = prove_count(v, 3) == before;
    if (full && v->certificate)
        prove_full(a, p, true, v);
}
