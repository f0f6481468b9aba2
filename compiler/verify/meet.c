/* Which instructions of different roles meet: sorted once for matching, order and interpretation.
 *
 * Two passes over each program (count, fill), so cost is linear in instructions plus pp^2 channel heads. */

#include "compiler/verify/prove.h"

#include "compiler/support/vec.h"

/* one possible meeting per pair of roles, then one per group kind and queue: axis masks, and the tie group of every
 * role and its mirror image, by the lower of the two */
#define NMASKS (1u << NDIGITS)

struct table {
    const struct plan *plan;
    uint32_t nroles;
    struct meeting *at; /* nroles^2 + (NMASKS + nroles) * NQUEUES */
    uint32_t *member;   /* of role r in meeting i: member[i * nroles + r]; collectives only */
};

static uint32_t mask_index(const struct table *t, uint32_t mask, uint32_t role)
{
    uint32_t mirror = t->nroles - 1 - role;
    return mask & GROUP_TIE ? NMASKS + (role < mirror ? role : mirror) : mask & (NMASKS - 1);
}

/* the stream that an instruction belongs to, NULL if it meets no other role */
static struct stream *stream_of(const struct table *t, const struct program *p, uint32_t i)
{
    const struct insn *in = &p->insns[i];
    if (prove_is_p2p(in->op)) {
        uint32_t peer = prove_comm_slot(p, i)->arg, role = p->role;
        if (peer >= t->nroles || peer == role)
            return NULL;
        return in->op == OP_SEND ? &t->at[role * t->nroles + peer].member[0]
                                 : &t->at[peer * t->nroles + role].member[1];
    }
    if (!prove_is_collective(in->op))
        return NULL;
    uint32_t mask = prove_mask(&t->plan->mesh, prove_comm_slot(p, i)->arg);
    if (!prove_crosses(mask) || !prove_member(t->plan, mask, p->role))
        return NULL;
    uint32_t row = t->nroles * t->nroles + mask_index(t, mask, p->role) * NQUEUES + in->queue;
    return &t->at[row].member[mask & GROUP_TIE ? p->role > t->nroles - 1 - p->role : p->role];
}

static void lay_out(struct arena *a, struct table *t)
{
    uint32_t n = t->nroles;
    t->at = ARENA_ARRAY(a, struct meeting, (size_t)n * n + (NMASKS + n) * NQUEUES);
    for (uint32_t i = 0; i < n * n; i++) {
        t->at[i] = (struct meeting){.p2p = true, .nmembers = 2, .member = ARENA_ARRAY(a, struct stream, 2)};
        t->at[i].member[0].role = i / n;
        t->at[i].member[1].role = i % n;
    }
    for (uint32_t i = 0; i < (NMASKS + n) * NQUEUES; i++) {
        uint32_t k0 = i / NQUEUES, mask = k0 >= NMASKS ? GROUP_TIE : k0, low = k0 - NMASKS;
        struct meeting *m = &t->at[n * n + i];
        if (!prove_crosses(prove_mask(&t->plan->mesh, mask)) || (mask & GROUP_TIE && low >= n - 1 - low))
            continue;
        *m = (struct meeting){.mask = mask, .queue = i % NQUEUES, .nmembers = mask & GROUP_TIE ? 2 : n};
        m->member = ARENA_ARRAY(a, struct stream, m->nmembers);
        for (uint32_t k = 0; k < m->nmembers; k++)
            m->member[k].role = !(mask & GROUP_TIE) ? k : k ? n - 1 - low : low;
    }
}

struct meeting *prove_meetings(struct arena *a, const struct plan *p, int kind, uint32_t *n)
{
    struct table t = {.plan = p, .nroles = p->nroles};
    lay_out(a, &t);
    for (int fill = 0; fill < 2; fill++)
        for (uint32_t role = 0; role < p->nroles; role++) {
            const struct program *q = prove_program(p, role, kind);
            for (uint32_t i = 0; q && i < q->ninsns; i++) {
                struct stream *s = stream_of(&t, q, i);
                if (!s)
                    continue;
                if (fill && !s->insn) {
                    s->insn = ARENA_ARRAY(a, uint32_t, s->n);
                    s->n = 0;
                }
                if (fill)
                    s->insn[s->n] = i;
                s->n++;
            }
        }
    uint32_t all = p->nroles * p->nroles + (NMASKS + p->nroles) * NQUEUES;
    *n = 0;
    for (uint32_t i = 0; i < all; i++) {
        bool used = false;
        for (uint32_t k = 0; k < t.at[i].nmembers; k++)
            used |= t.at[i].member[k].n > 0;
        if (used)
            t.at[(*n)++] = t.at[i];
    }
    return t.at;
}
