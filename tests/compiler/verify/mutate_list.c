/* Mutations of the list of instructions: dropped, doubled, exchanged; single ones, transfers on all sides, or a layer. */

#include "tests/compiler/verify/mutate_private.h"

#include <stdlib.h>
#include <string.h>

bool mutate_drop_from(struct mutant *m, const struct program *p, uint32_t insn)
{
    uint32_t n = 0, *list = calloc(p->ninsns + 1u, sizeof *list);
    for (uint32_t i = 0; i < p->ninsns; i++)
        if (i != insn)
            list[n++] = i;
    struct program *q = mutate_rebuild(p, list, NULL, n);
    free(list);
    mutate_add_operands(m, p, insn);
    if (insn < n)
        mutate_add_site(m, p->role, p->evaluation, insn, 0, 0);
    for (uint32_t r = 0; r < m->plan.nroles && mutate_is_comm(p, insn); r++) { /* what it met */
        const struct program *other = p->evaluation ? m->plan.eval[r] : m->plan.train[r];
        uint32_t i = r == p->role ? NONE : mutate_find_seq(other, p->insns[insn].seq);
        if (i != NONE)
            mutate_add_site(m, r, p->evaluation, i, 0, 0);
    }
    mutate_replace(m, p->role, p->evaluation, q);
    return true;
}

static bool duplicate_in(struct mutant *m, const struct program *p, uint32_t insn)
{
    uint32_t n = 0, *list = calloc(p->ninsns + 2u, sizeof *list), *seq = calloc(p->ninsns + 2u, sizeof *seq);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        seq[n] = p->insns[i].seq;
        list[n++] = i;
        if (i == insn) {
            seq[n] = p->insns[i].seq + 1;
            list[n++] = i;
        }
    }
    struct program *q = mutate_rebuild(p, list, seq, n);
    free(list);
    free(seq);
    mutate_add_insn(m, q, insn);
    mutate_add_insn(m, q, insn + 1);
    mutate_replace(m, p->role, p->evaluation, q);
    return true;
}

/* exchange the places of two instructions */
static bool swap_in(struct mutant *m, const struct program *p, uint32_t x, uint32_t y)
{
    uint32_t *list = calloc(p->ninsns + 1u, sizeof *list), *seq = calloc(p->ninsns + 1u, sizeof *seq);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        list[i] = i == x ? y : i == y ? x : i;
        seq[i] = p->insns[i].seq;
    }
    struct program *q = mutate_rebuild(p, list, seq, p->ninsns);
    free(list);
    free(seq);
    mutate_add_insn(m, q, x);
    mutate_add_insn(m, q, y);
    mutate_replace(m, p->role, p->evaluation, q);
    return true;
}

/* on every role that takes part in instruction `insn` of the drawn one */
bool mutate_on_all_members(const struct mutate_draw *d, uint32_t insn,
                           bool (*change)(struct mutant *, const struct program *, uint32_t))
{
    uint32_t seq = d->p->insns[insn].seq;
    for (uint32_t r = 0; r < d->m->plan.nroles; r++) {
        const struct program *p = d->evaluation ? d->m->original->eval[r] : d->m->original->train[r];
        uint32_t i = mutate_find_seq(p, seq);
        if (i != NONE && (r == d->role || mutate_is_comm(p, i)))
            change(d->m, p, i);
    }
    return true;
}

bool mutate_list(const struct mutate_draw *d)
{
    uint32_t i;
    switch ((unsigned)d->m->kind) {
    case MUTATE_DROP:
        return (i = mutate_pick(d, mutate_any)) != NONE && mutate_drop_from(d->m, d->p, i);
    case MUTATE_DROP_MATCHED:
        return (i = mutate_pick(d, mutate_is_comm)) != NONE && mutate_on_all_members(d, i, mutate_drop_from);
    case MUTATE_REDUCTION:
        return (i = mutate_pick(d, mutate_is_reduction)) != NONE && mutate_on_all_members(d, i, mutate_drop_from);
    case MUTATE_DUPLICATE:
        return (i = mutate_pick(d, random_below(d->random, 8) ? mutate_accumulates : mutate_any)) != NONE &&
               duplicate_in(d->m, d->p, i);
    case MUTATE_DUPLICATE_MATCHED:
        return (i = mutate_pick(d, mutate_is_comm)) != NONE && mutate_on_all_members(d, i, duplicate_in);
    }
    return false;
}

bool mutate_swap(const struct mutate_draw *d)
{
    uint32_t x = mutate_pick(d, mutate_any), y = x;
    if (x == NONE)
        return false;
    do
        y++;
    while (y < d->p->ninsns && d->p->insns[y].queue != d->p->insns[x].queue);
    return y < d->p->ninsns && swap_in(d->m, d->p, x, y);
}

bool mutate_swap_matched(const struct mutate_draw *d)
{
    uint32_t x = mutate_pick(d, mutate_is_p2p), y = x;
    if (x == NONE)
        return false;
    do
        y++;
    while (y < d->p->ninsns &&
           (d->p->insns[y].op != d->p->insns[x].op || d->p->insns[y].queue != d->p->insns[x].queue));
    if (y >= d->p->ninsns)
        return false;
    /* contents only: everything still matches */
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
    uint32_t k = d->p->insns[x].op == OP_SEND ? OPND(SEND, x) : OPND(RECV, y);
    struct operand *ox = &q->operands[q->insns[x].operand + k], *oy = &q->operands[q->insns[y].operand + k],
                   t = *ox;
    if (!memcmp(ox, oy, sizeof t))
        return false;
    *ox = *oy;
    *oy = t;
    mutate_add_insn(d->m, q, x);
    mutate_add_insn(d->m, q, y);
    return true;
}

static bool drops_layer(const struct insn *in, const struct insn *like)
{
    return in->layer == like->layer && in->microbatch == like->microbatch && in->action == like->action;
}

bool mutate_layer(const struct mutate_draw *d)
{
    uint32_t i = mutate_pick(d, mutate_any), n = 0, dropped = 0;
    if (i == NONE || d->p->insns[i].layer == NONE || d->p->insns[i].microbatch == NONE)
        return false;
    struct insn like = d->p->insns[i];
    uint32_t *list = calloc(d->p->ninsns + 1u, sizeof *list), first = NONE;
    for (uint32_t k = 0; k < d->p->ninsns; k++) {
        if (drops_layer(&d->p->insns[k], &like)) {
            first = first == NONE ? n : first;
            dropped++;
            mutate_add_operands(d->m, d->p, k);
        } else {
            list[n++] = k;
        }
    }
    struct program *q = mutate_rebuild(d->p, list, NULL, n);
    free(list);
    if (first < n)
        mutate_add_site(d->m, d->role, d->evaluation, first, 0, 0);
    mutate_replace(d->m, d->role, d->evaluation, q);
    return dropped > 0;
}

/* one action uses the weights of another layer, of the same shapes */
bool mutate_layer_swapped(const struct mutate_draw *d)
{
    uint32_t i = mutate_pick(d, mutate_any), changed = 0;
    if (i == NONE || d->p->insns[i].layer == NONE || d->p->insns[i].microbatch == NONE)
        return false;
    struct insn like = d->p->insns[i];
    struct program *q = mutate_own(d->m, d->role, d->evaluation);
    for (uint32_t k = 0; k < q->ninsns; k++)
        for (uint32_t o = 0;
             drops_layer(&q->insns[k], &like) && o < isa_info(q->insns[k].op)->noperands; o++) {
            struct operand *x = &q->operands[q->insns[k].operand + o];
            if (x->buffer == NONE || q->buffers[x->buffer].kind != BUFFER_PARAM)
                continue;
            for (uint32_t b = 0; b < q->nbuffers; b++)
                if (b != x->buffer && q->buffers[b].kind == BUFFER_PARAM &&
                    q->buffers[b].bytes == q->buffers[x->buffer].bytes) {
                    mutate_add_insn(d->m, q, k);
                    x->buffer = b;
                    mutate_add_insn(d->m, q, k);
                    changed++;
                    break;
                }
        }
    return changed > 0;
}

