/* Seconds of two actions that run together: the steps of the blocks of their stages, interleaved by strands.c.
 * Stages of equal blocks have equal steps, so each pair of kinds of stages is run once, when it is first requested. */

#include "compiler/cost/pairs.h"

#include "compiler/cost/cost_private.h"
#include "compiler/cost/walk.h"

/* the steps of a block's F and B */
struct block_steps {
    const struct cost_block *block;
    struct walk_strand pass[2];
};

/* a kind of stage, represented by the first of it */
struct kind {
    uint32_t stage;
    bool made;
    struct walk_strand pass[2];
};

struct cost_pairs {
    struct arena *arena;
    const struct cost *c;
    const struct cost_shape *s;
    const struct pipeline_moves *moves; /* NULL or, by stage, the transfers that run in turn on the queue of kernels */
    struct block_steps *blocks;
    uint32_t nblocks, nkinds, *kind_of; /* kind_of: by stage */
    struct kind *kinds;
    struct cost_pair *known; /* by kind of F * nkinds + kind of B; end_s = 0: not known yet */
};

static const struct block_steps *steps_of(struct cost_pairs *p, const struct cost_block *block)
{
    struct block_steps *x = p->blocks;
    while (x->block && x->block != block)
        x++;
    if (x->block)
        return x;
    struct walk w;
    cost_block_walk(p->arena, p->c, p->s, block, &w);
    x->block = block;
    for (int k = 0; k < 2; k++) {
        x->pass[k] = walk_strand_new(p->arena, &w, k ? WALK_B : WALK_F);
    }
    return x;
}

/* Lists the blocks of a stage in the model's order; returns their number. */
static uint32_t blocks_of(const struct cost_pairs *p, uint32_t stage, const struct cost_block **out)
{
    const struct stage *st = &p->c->decision->stages[stage];
    uint32_t n = 0;
    if (st->embed)
        out[n++] = &p->s->embed;
    for (uint32_t i = 0; i < st->count; i++)
        out[n++] = cost_layer(p->s, st, i);
    if (st->head)
        out[n++] = &p->s->head;
    for (uint32_t i = 0; st->head && i < p->c->job->model.predict; i++)
        out[n++] = &p->s->predict;
    return n;
}

/* Adds the gather before each piece and the reduction after it, for a microbatch in the middle of a step. */
static void add_turns(const struct cost_pairs *p, uint32_t stage, int pass, struct walk_strand *parts, uint32_t n)
{
    const struct pipeline_moves *m = &p->moves[stage];
    for (uint32_t i = 0, k = 0; k < m->npieces; k++) {
        const struct pipeline_piece *x = &m->pieces[k];
        double front_s = x->gathers && (pass == 0 || x->reads) ? x->gather_s : 0,
               behind_s = pass && x->scatters ? x->convert_s + x->sum_s + x->add_s : 0;
        for (uint32_t end = i + x->count; i < end && i < n; i++) {
            struct walk_strand *part = &parts[pass ? n - 1 - i : i];
            *part = walk_strand_turns(p->arena, part, front_s, behind_s);
        }
    }
}

/* Kernels take what the stage's sums say: with other stacks than llmrun they wait for their hosts. */
static void make_kind(struct cost_pairs *p, struct kind *k)
{
    const struct cost_stage sum = cost_sum_stage(p->c, p->s, k->stage);
    const struct stage *st = &p->c->decision->stages[k->stage];
    const struct cost_block **blocks = ARENA_ARRAY(p->arena, const struct cost_block *,
                                                   st->count + 2 + p->c->job->model.predict);
    uint32_t n = blocks_of(p, k->stage, blocks);
    for (int pass = 0; pass < 2; pass++) {
        struct walk_strand *parts = ARENA_ARRAY(p->arena, struct walk_strand, n + 1);
        for (uint32_t i = 0; i < n; i++)
            parts[i] = steps_of(p, blocks[pass ? n - 1 - i : i])->pass[pass];
        if (p->moves)
            add_turns(p, k->stage, pass, parts, n);
        k->pass[pass] = walk_strand_join(p->arena, parts, n, cost_paired_s(&sum, pass));
    }
    k->made = true;
}

static bool same_blocks(const struct cost_pairs *p, uint32_t i, uint32_t j)
{
    const struct stage *x = &p->c->decision->stages[i], *y = &p->c->decision->stages[j];
    if (x->count != y->count || x->embed != y->embed || x->head != y->head || x->spared != y->spared)
        return false;
    for (uint32_t k = 0; k < x->count; k++)
        if (cost_layer(p->s, x, k) != cost_layer(p->s, y, k))
            return false;
    return true;
}

struct cost_pairs *cost_pairs_new(struct arena *a, const struct cost *c, const struct cost_shape *s,
                                  const struct pipeline_moves *turns)
{
    const struct decision *d = c->decision;
    bool may = decision_pairs(d->schedule) || d->schedule == SCHED_AUTO || d->listed;
    if (!may)
        return NULL;
    struct cost_pairs *p = ARENA_NEW(a, struct cost_pairs);
    *p = (struct cost_pairs){.arena = a, .c = c, .s = s, .moves = turns};
    p->blocks = ARENA_ARRAY(a, struct block_steps, 2 * s->ndistinct + 4u);
    p->kind_of = ARENA_ARRAY(a, uint32_t, d->nstages);
    p->kinds = ARENA_ARRAY(a, struct kind, d->nstages);
    for (uint32_t i = 0; i < d->nstages; i++) {
        uint32_t k = 0;
        while (k < p->nkinds && !same_blocks(p, p->kinds[k].stage, i))
            k++;
        if (k == p->nkinds)
            p->kinds[p->nkinds++] = (struct kind){.stage = i};
        p->kind_of[i] = k;
    }
    p->known = ARENA_ARRAY(a, struct cost_pair, (size_t)p->nkinds * p->nkinds);
    return p;
}

/* The caller adds the turns to the pair. */
static struct cost_pair without_turns(const struct cost_pair *x, double turns_s, double least_s)
{
    double end_s = cost_larger(x->end_s, least_s) - turns_s, share = end_s / x->end_s;
    return (struct cost_pair){share * x->forward_s, share * x->backward_s, end_s};
}

struct cost_pair cost_pair(struct cost_pairs *p, uint32_t forward, uint32_t backward, double forward_s,
                           double backward_s, double hidden_s)
{
    double least_s = cost_larger(cost_larger(forward_s, backward_s), forward_s + backward_s - hidden_s);
    if (!p)
        return (struct cost_pair){least_s, least_s, least_s};
    struct kind *f = &p->kinds[p->kind_of[forward]], *b = &p->kinds[p->kind_of[backward]];
    struct cost_pair *x = &p->known[(size_t)p->kind_of[forward] * p->nkinds + p->kind_of[backward]];
    if (x->end_s <= 0) {
        if (!f->made)
            make_kind(p, f);
        if (!b->made)
            make_kind(p, b);
        walk_together(&f->pass[0], &b->pass[1], decision_exchanges_apart(p->c->job, p->c->decision), &x->forward_s,
                      &x->backward_s);
        x->end_s = cost_larger(x->forward_s, x->backward_s);
    }
    double turns_s = f->pass[0].turns_s + b->pass[1].turns_s;
    if (turns_s > 0) /* any transfer may run beside them */
        return without_turns(x, turns_s, least_s);
    double longer = x->end_s < least_s ? least_s - x->end_s : 0;
    return (struct cost_pair){cost_larger(x->forward_s + longer, forward_s),
                              cost_larger(x->backward_s + longer, backward_s), x->end_s + longer};
}
