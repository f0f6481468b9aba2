/* What the proof knows of both plans: which state their steps need and leave behind. */

#include "compiler/transition/prove.h"

#include "compiler/verify/prove.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VIOLATIONS = 20 };

uint64_t proof_slot(const struct plan *p, uint32_t rank, uint32_t slot)
{
    return slot == NONE ? 0 : p->ranks->values[p->ranks->ranks[rank].slot + slot];
}

uint64_t proof_peer(const struct transition *t, uint32_t rank, uint32_t insn)
{
    const struct rank_info *r = &t->ranks->ranks[rank];
    const struct program *p = t->programs[r->role];
    return t->ranks->values[r->slot + p->attrs[p->insns[insn].attr + ATTR(SEND, peer)].slot];
}

uint64_t proof_first(const struct plan *p, uint32_t rank, const struct program *q, const struct needed *n)
{
    const struct buffer *b = &q->buffers[n->buffer];
    return proof_slot(p, rank, b->shard_slot) * (b->bytes / isa_dtype_bytes(b->dtype)) + n->first +
           proof_slot(p, rank, n->slot) * n->stride;
}

void proof_report(struct proof *f, uint32_t property, uint32_t rank, uint32_t insn, const char *fmt, ...)
{
    struct verdict *v = f->verdict;
    const struct transition *t = f->t;
    if (!v->violations)
        v->violations = ARENA_ARRAY(f->messages, struct violation, MOST_VIOLATIONS);
    if (v->nviolations == MOST_VIOLATIONS)
        return;
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_vprintf(f->messages, fmt, ap);
    va_end(ap);
    uint32_t role = rank == NONE ? NONE : t->ranks->ranks[rank].role;
    if (insn != NONE)
        text = arena_printf(f->messages, "rank %u: %s: %s", rank, prove_insn_text(f->messages, t->programs[role], insn),
                            text);
    v->violations[v->nviolations++] = (struct violation){property, role, rank, false, insn, text};
}

/* Is the rank where both plans have it?  The new plan's nodes are those that are left, in their order. */
static bool is_at_home(const struct transition *t, uint32_t rank)
{
    const struct rank_info *r = &t->ranks->ranks[rank];
    const struct seat *s = &t->seats[rank];
    const struct rank_info *old = s->from == NONE ? r : &t->from->ranks->ranks[s->from],
                           *new = s->to == NONE ? r : &t->to->ranks->ranks[s->to];
    uint32_t node = new->node + (new != r && t->lost != NONE &&new->node >= t->lost);
    return old->node == r->node && old->gpu == r->gpu && node == r->node && new->gpu == r->gpu;
}

static void check_seats(struct proof *f)
{
    const struct transition *t = f->t;
    uint8_t *old = ARENA_ARRAY(f->arena, uint8_t, t->from->ranks->nranks + 1),
            *new = ARENA_ARRAY(f->arena, uint8_t, t->to->ranks->nranks + 1);
    uint32_t served = 0;
    for (uint32_t i = 0; i < t->ranks->nranks; i++) {
        const struct seat *s = &t->seats[i];
        uint64_t end = s->base + (s->to == NONE ? 0 : transition_arena(t->to, s->to));
        bool twice = (s->from != NONE && old[s->from]++) || (s->to != NONE && new[s->to]++);
        if (s->from != NONE && t->lost != NONE && t->from->ranks->ranks[s->from].node == t->lost)
            proof_report(f, 1, i, NONE, "rank %u of the old plan was on node %u, which is lost", s->from, t->lost);
        else if (!is_at_home(t, i))
            proof_report(f, 1, i, NONE, "rank %u is on another GPU than the plans have it", i);
        else if (twice || (s->from != NONE && s->base < transition_arena(t->from, s->from)) || s->base % 256)
            proof_report(f, 1, i, NONE, "rank %u has not a place of its own in both plans", i);
        else if (t->programs[t->ranks->ranks[i].role]->arena_bytes != end)
            proof_report(f, 1, i, NONE, "rank %u has %llu bytes of arena, both plans together %llu", i,
                         (unsigned long long)t->programs[t->ranks->ranks[i].role]->arena_bytes,
                         (unsigned long long)end);
        served += s->to != NONE;
    }
    if (served != t->to->ranks->nranks)
        proof_report(f, 1, NONE, NONE, "%u of the new plan's %u ranks have a place", served, t->to->ranks->nranks);
}

void proof_structure(struct proof *f)
{
    const struct transition *t = f->t;
    struct error error;
    for (uint32_t i = 0; i < t->nroles; i++)
        if (program_check(t->programs[i], &error) != STATUS_OK)
            proof_report(f, 1, NONE, NONE, "role %u: %s", i, error.text);
    if (!f->verdict->nviolations &&
        ranks_check(t->ranks, (const struct program *const *)t->programs, &error) != STATUS_OK)
        proof_report(f, 1, NONE, NONE, "%s", error.text);
    if (!f->verdict->nviolations)
        check_seats(f);
}

static int by_place(const void *a, const void *b)
{
    const struct stored *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void list_spans(struct proof *f, struct stated *s)
{
    const struct program *p = s->p;
    size_t n = 0;
    for (uint32_t i = 0; i < p->ntensors; i++)
        n += tensor_boxes(&p->tensors[i]);
    s->span = ARENA_ARRAY(f->arena, struct stored, n + 1);
    s->first = ARENA_ARRAY(f->arena, uint32_t, p->nbuckets + 1);
    n = 0;
    for (uint32_t b = 0; b < p->nbuckets; b++) {
        s->first[b] = (uint32_t)n;
        for (uint32_t i = p->buckets[b].tensor; i < p->buckets[b].tensor + p->buckets[b].ntensors; i++)
            for (uint32_t j = 0; j < tensor_boxes(&p->tensors[i]); j++) {
                const struct tensor *t = &p->tensors[i];
                uint64_t one = (uint64_t)t->rows * t->cols;
                s->span[n++] = (struct stored){t->at + one * j, t->at + one * (j + 1), t->cols, i, j};
            }
        if (n > s->first[b])
            qsort(s->span + s->first[b], n - s->first[b], sizeof *s->span, by_place);
    }
    s->first[p->nbuckets] = (uint32_t)n;
}

static struct needed of_operand(const struct operand *o)
{
    uint64_t size = isa_dtype_bytes((enum dtype)o->dtype);
    return (struct needed){.buffer = o->buffer,
                           .first = o->offset / size,
                           .stride = o->slot == UINT16_MAX ? 0 : o->slot_stride / size,
                           .n = o->rows == 1 || o->ld == o->cols ? (uint64_t)o->rows * o->cols : 0,
                           .slot = o->slot == UINT16_MAX ? NONE : o->slot};
}

static struct needed whole(const struct program *p, uint32_t buffer)
{
    const struct buffer *b = &p->buffers[buffer];
    return (struct needed){.buffer = buffer, .n = b->bytes / isa_dtype_bytes(b->dtype), .slot = NONE};
}

/* What a program reads of a buffer of working copies before it writes it: a part, where it begins by gathering all
 * ranks' parts into it; else all.  n 0: it does not touch it. */
static struct needed first_use(const struct program *p, uint32_t buffer)
{
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct operand *o = &p->operands[p->insns[i].operand];
        for (uint32_t k = 0; k < isa_info(p->insns[i].op)->noperands; k++) {
            if (o[k].buffer != buffer)
                continue;
            const struct operand *y = &o[OPND(ALL_GATHER, y)], *x = &o[OPND(ALL_GATHER, x)];
            struct needed all = whole(p, buffer), part = of_operand(x);
            bool gathers = p->insns[i].op == OP_ALL_GATHER && x->buffer == buffer && y->buffer == buffer &&
                           !y->offset && y->slot == UINT16_MAX && (uint64_t)y->rows * y->cols == all.n && part.n;
            return gathers ? part : all;
        }
    }
    return (struct needed){.buffer = buffer, .slot = NONE};
}

static bool same_need(const struct needed *x, const struct needed *y, const struct program *p, const struct program *q)
{
    bool slots = x->slot == NONE || y->slot == NONE ? x->slot == y->slot
                                                    : p->slots[x->slot].kind == q->slots[y->slot].kind &&
                                                          p->slots[x->slot].arg == q->slots[y->slot].arg;
    return x->first == y->first && x->stride == y->stride && x->n == y->n && slots;
}

/* over both programs of the role */
static struct needed need_of(const struct program *train, const struct program *eval, uint32_t buffer)
{
    const struct buffer *b = &train->buffers[buffer];
    if (b->kind != BUFFER_PARAM)
        return whole(train, buffer);
    struct needed n = first_use(train, buffer);
    for (uint32_t i = 0; eval && i < eval->nbuffers; i++)
        if (eval->buffers[i].kind == b->kind && eval->buffers[i].offset == b->offset &&
            eval->buffers[i].bucket != NONE) {
            struct needed m = first_use(eval, i);
            if (m.n && !same_need(&n, &m, train, eval))
                return whole(train, buffer);
        }
    return n;
}

/* The biases of a stage's routers are one buffer, whole on every rank, in which each instruction moves its own. */
static void list_updated(struct proof *f, struct stated *s)
{
    const struct program *p = s->p;
    s->updated = ARENA_ARRAY(f->arena, struct needed, p->nbuckets + 1);
    for (uint32_t i = 0; i < p->ninsns; i++) {
        enum op op = p->insns[i].op;
        const struct operand *o = &p->operands[p->insns[i].operand];
        if (op != OP_ADAMW && op != OP_SGD && op != OP_BIAS_MOVE)
            continue;
        const struct operand *copy = op == OP_ADAMW ? &o[OPND(ADAMW, copy)] : op == OP_SGD ? &o[OPND(SGD, copy)] : o;
        const struct operand *own = copy->buffer == NONE ? o : copy;
        if (p->buffers[own->buffer].kind == BUFFER_PARAM)
            s->updated[p->buffers[own->buffer].bucket] = op == OP_BIAS_MOVE ? whole(p, own->buffer) : of_operand(own);
    }
}

static struct stated *read_plan(struct proof *f, const struct plan *plan)
{
    struct stated *all = ARENA_ARRAY(f->arena, struct stated, plan->nroles + 1);
    for (uint32_t role = 0; role < plan->nroles; role++) {
        struct stated *s = &all[role];
        const struct program *p = s->p = plan->train[role];
        s->buffer = ARENA_ARRAY(f->arena, uint32_t, p->nbuffers + 1);
        for (uint32_t i = 0; i < p->nbuffers; i++) {
            if (p->buffers[i].bucket == NONE)
                continue;
            uint32_t at = s->nbuffers++;
            for (; at && p->buffers[s->buffer[at - 1]].offset > p->buffers[i].offset; at--)
                s->buffer[at] = s->buffer[at - 1];
            s->buffer[at] = i;
        }
        s->need = ARENA_ARRAY(f->arena, struct needed, s->nbuffers + 1);
        for (uint32_t i = 0; i < s->nbuffers; i++)
            s->need[i] = need_of(p, plan->eval[role], s->buffer[i]);
        list_updated(f, s);
        list_spans(f, s);
    }
    return all;
}

void proof_state(struct proof *f)
{
    f->old = read_plan(f, f->t->from);
    f->new = read_plan(f, f->t->to);
}
