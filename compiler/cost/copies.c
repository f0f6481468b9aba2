/* Activations in host memory, value by value: what a layer keeps is copied out as its forward pass makes it, and
 * back in the same order for each backward pass, to one of two places that all values of one name share
 * (compiler/lower/offload.c).  When a pass makes each of them, first needs it and last reads it follows from the
 * kernels and transfers of the pass, one after the other.  Cost: linear in the steps of a block and in operators
 * times values. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/walk.h"

/* fractions of a pass */
struct share {
    double begin, end;
};
/* of a pass, by operator: its forward kernels, in F or in recomputation; its backward kernels */
struct shares {
    struct share *forward, *backward;
    struct share experts; /* from the weighting of rows to the products for weight gradients */
};
struct reader {
    struct arena *arena;
    const struct expansion *e;
    struct backward plan;
    struct shares pass[4]; /* F, B, I, W */
};

static void widen(struct share *x, double begin, double end)
{
    bool empty = x->end <= 0;
    x->begin = empty || begin < x->begin ? begin : x->begin;
    x->end = empty || end > x->end ? end : x->end;
}

static struct shares shares_new(struct arena *a, const struct expansion *e, const struct walk *w, uint32_t pass)
{
    struct shares t = {.forward = ARENA_ARRAY(a, struct share, e->noprs),
                       .backward = ARENA_ARRAY(a, struct share, e->noprs)};
    struct walk_strand x = walk_strand_new(a, w, pass);
    size_t again = 0;
    double now = 0, whole = x.all_s > 0 ? x.all_s : 1;
    for (size_t i = 0; i < w->forward.n; i++)
        again += (w->forward.at[i].passes & pass) != 0;
    for (size_t i = 0; i < x.n; i++) {
        double begin = now / whole;
        now += x.at[i].seconds;
        widen(&(i < again ? t.forward : t.backward)[x.at[i].opr], begin, now / whole);
        if (i >= again && e->oprs[x.at[i].opr].kind == OPR_EXPERTS) {
            bool weighs = x.at[i].kind == WALK_USE && x.at[i].room == WALK_CHOICES && t.experts.begin <= 0;
            t.experts.begin = weighs ? begin : t.experts.begin;
            t.experts.end = x.at[i].kind == WALK_KERNEL ? begin : t.experts.end;
        }
    }
    return t;
}

static void read_at(struct pipeline_copy_read *r, const struct share *x)
{
    r->need = r->reads && r->need < x->begin ? r->need : x->begin;
    r->done = r->reads && r->done > x->end ? r->done : x->end;
    r->reads = true;
}

/* Notes a reader in the backward passes that make input gradients; again: the operator's recomputation reads it. */
static void read_back(const struct reader *m, struct pipeline_copy *c, uint32_t opr, bool again)
{
    for (int k = 0; k < 2; k++) {
        const struct shares *t = &m->pass[1 + k];
        read_at(&c->read[k], &(again ? t->forward : t->backward)[opr]);
    }
}

static void find_readers(const struct reader *m, uint32_t value, struct pipeline_copy *c)
{
    for (uint32_t i = 0; i < m->e->noprs; i++) {
        const struct opr *o = &m->e->oprs[i];
        bool input = o->in[0] == value || o->in[1] == value, late = expand_puts_off(m->e, o);
        if (input && m->plan.needed[i])
            read_back(m, c, i, true);
        if (input && backward_reads_input(o) && late) {
            read_at(&c->read[0], &m->pass[1].backward[i]);
            read_at(&c->read[2], &m->pass[3].backward[i]);
        } else if ((input && backward_reads_input(o)) || (o->out == value && backward_reads_output(o))) {
            read_back(m, c, i, false);
        }
        if (o->out == value && !m->plan.needed[i]) {
            c->begun = c->made > 0 && c->begun < m->pass[0].forward[i].begin ? c->begun : m->pass[0].forward[i].begin;
            c->made = m->pass[0].forward[i].end > c->made ? m->pass[0].forward[i].end : c->made;
        }
    }
}

/* Finds when an operator keeps statistics besides its output.  Of experts, the rows that arrived exist first; the
 * activation function's output is made before the last product. */
static void find_reader(const struct reader *m, uint32_t opr, uint32_t part, struct pipeline_copy *c)
{
    const struct opr *o = &m->e->oprs[opr];
    const struct share *f = &m->pass[0].forward[opr];
    double down = o->kind == OPR_EXPERTS ? f->end - (f->end - f->begin) / o->nweights : f->end;
    c->begun = part == 2 ? down : f->begin;
    c->made = part == 0 && o->kind == OPR_EXPERTS ? f->begin : down;
    if (m->plan.needed[opr])
        read_back(m, c, opr, true);
    if (o->kind != OPR_EXPERTS || m->plan.needed[opr]) {
        read_back(m, c, opr, false);
        return;
    }
    for (int k = 0; k < 2; k++) { /* rows for weight gradients; before that the inputs and the output of the
                                   * activation function */
        const struct shares *t = &m->pass[1 + k];
        struct share rows = {t->experts.end, t->backward[opr].end};
        read_at(&c->read[k], part == 0 ? &rows : &t->experts);
    }
}

/* For a stack whose blocks are not followed: everything at once, out from the start of F on, and back before a
 * backward pass. */
static const struct pipeline_copy *whole(struct arena *a, const struct cost_block *b, double park_s, double fetch_s,
                                         uint32_t *n)
{
    struct pipeline_copy *c = ARENA_ARRAY(a, struct pipeline_copy, 2);
    c[0].copy_s = park_s;
    c[0].fetch_s = fetch_s;
    for (int k = 0; k < 2; k++) {
        c[k].place = (uint32_t)k;
        c[k].begun = 1 - b->tail;
        for (int r = 0; r < 3; r++)
            c[k].read[r] = (struct pipeline_copy_read){true, 0, 1};
    }
    c[1].made = 1 - b->tail;
    *n = 2;
    return c;
}

static void reader_init(struct reader *m, struct arena *a, const struct cost *c, const struct cost_shape *s,
                        const struct cost_block *b)
{
    static const uint32_t passes[] = {WALK_F, WALK_B, WALK_I, WALK_W};
    const struct cost_lives_later *later = b->lives;
    const struct decision *d = c->decision;
    uint32_t again = backward_again(later->recompute, later->parts);
    struct walk w;
    *m = (struct reader){.arena = a, .e = b->e, .plan = backward_new(a, b->e, again, decision_exchanges_heads(d))};
    cost_block_walk(a, c, s, b, &w);
    for (int k = 0; k < 4; k++)
        m->pass[k] = shares_new(a, b->e, &w, passes[k]);
}

const struct pipeline_copy *cost_copies(struct arena *a, const struct cost *c, const struct cost_shape *s,
                                        const struct cost_block *b, bool received, double park_s, double fetch_s,
                                        uint32_t *n)
{
    if (!b->lives)
        return whole(a, b, park_s, fetch_s, n);
    struct cost_parked *each;
    uint32_t nparked = cost_parked(a, c, b, &each);
    struct pipeline_copy *copies = ARENA_ARRAY(a, struct pipeline_copy, nparked + 1u);
    struct reader m;
    reader_init(&m, a, c, s, b);
    *n = 0;
    for (uint32_t i = 0; i < nparked; i++) {
        const struct cost_parked *x = &each[i];
        if (received && x->value == 0)
            continue;
        struct pipeline_copy *to = &copies[(*n)++];
        to->place = x->place;
        to->copy_s = x->bytes / cost_host_bytes_s(c);
        if (x->value != NONE) {
            find_readers(&m, x->value, to);
            to->fetch_s = m.plan.weighs[x->value] ? to->copy_s : 0;
        } else {
            find_reader(&m, x->opr, x->part, to);
        }
    }
    return copies;
}
