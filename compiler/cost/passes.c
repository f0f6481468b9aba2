/* The peak bytes of an action, block by block, for the actions where earlier and later blocks hold different things:
 * where the step has its first or its last gradients of a stage, or fewer uses of gathered parameters left than
 * there are places for them.
 *
 * Of a run of equal blocks the first and the last are looked at, and the one from which on all places are taken: in
 * between, bytes change linearly.  Cost: a few operations for each run of blocks. */

#include "compiler/cost/moments.h"

#include <math.h>

struct pass {
    const struct moments_stage *s;
    const struct moments_shards *shards;
    const struct moments_at *at;
    char kind;
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Uses of gathered parameters from the k-th block on, including its own. */
static double uses_left(const struct pass *p, const struct moments_block *b, double k)
{
    if (p->kind == 'F')
        return p->s->uses[0] - b->in_front.uses[0] - k * b->each.uses[0] + p->at->uses;
    return (p->kind == 'W' ? 0 : b->in_front.uses[1] + (k + 1) * b->each.uses[1]) + p->at->uses;
}

/* Bytes of the places for gathered parameters.  W uses none, and neither does the embedding's backward pass, so that
 * one place is free unless the parameters used last are used next again. */
static double gathered(const struct pass *p, const struct moments_block *b, double k)
{
    bool none = p->kind == 'W' ? !p->at->stays : p->kind != 'F' && b->each.uses[1] <= 0;
    return p->shards->gathered * smaller(p->shards->places - none, uses_left(p, b, k));
}

/* Bytes of optimizer state already fetched.  A copy from host memory waits for one of two places, which the block
 * two before it frees: so what comes after all of these copies is there while the last two blocks run, and as the
 * one before them ends. */
static double fetched(const struct pass *p, const struct moments_block *b, double k, bool ends)
{
    bool w = p->kind == 'W';
    double left = b->in_front.copies[w] + (k + 1) * b->each.copies[w] + p->at->copies;
    return left <= 2 + ends ? p->shards->fetched : 0;
}

/* Bytes of the stage's gradients while the k-th block's are `own`, less those that all earlier actions have left.
 * Blocks before it have those of earlier actions, blocks after it those that this action has left. */
static double gradients(const struct pass *p, const struct moments_block *b, double k, double own)
{
    const struct moments_stage *s = p->s;
    const struct moments_at *at = p->at;
    const struct moments_sums *f = &b->in_front, *e = &b->each;
    double made = s->made - f->made - (k + 1) * e->made, early = s->early - f->early - (k + 1) * e->early;
    double after = s->after - f->after - (k + 1) * e->after;
    if (p->kind == 'I')
        return at->had || at->early ? 0 : early + e->early;
    double in_front = at->had ? f->made + k * e->made : at->early ? f->early + k * e->early : 0;
    return in_front + own + (at->last ? after : made) - (at->had ? s->made : at->early ? s->early : 0);
}

/* Bytes of this rank's part of the sums that came before the k-th block's. */
static double part_before(const struct pass *p, const struct moments_block *b, double k)
{
    return k < b->times - 1 ? b->part : b + 1 < p->s->blocks + p->s->nblocks ? b->part_behind : p->at->part;
}

/* Bytes of gradients on their way that are not the k-th block's: those of earlier actions, unless they have been
 * waited for, and those of blocks that this action has already run. */
static double on_way(const struct pass *p, const struct moments_block *b, double k)
{
    const struct moments_at *at = p->at;
    const struct moments_sums *f = &b->in_front, *e = &b->each;
    if (p->shards->most <= 0)
        return 0;
    double used = p->kind == 'F'   ? f->uses[0] + k * e->uses[0]
                  : p->kind == 'W' ? 0
                                   : p->s->uses[1] - f->uses[1] - (k + 1) * e->uses[1];
    double before = used < at->made_uses ? at->made : smaller(at->made, at->part);
    if (p->kind == 'F' || p->kind == 'I')
        return before;
    double behind = b->times - 1 - k, since = b->scattered > 0 && behind > 0 ? 0 : b->since + behind * e->uses[1];
    return moments_on_way(p->shards, at, p->kind == 'W' && since < INFINITY ? 0 : since, before, part_before(p, b, k),
                          b->scattered > 0);
}

/* Bytes of the places for copies from host memory, apart from those for the block's own pass, that are empty: the
 * stage's earlier blocks take them first, and then the next action. */
static double unused(const struct pass *p, const struct moments_block *b)
{
    double others = b->others[p->kind == 'W'];
    const double *ahead = p->at->ahead;
    return b->ahead > 1               ? larger(0, others - ahead[0] - ahead[1])
           : b->ahead && p->at->apart ? larger(0, others - ahead[0])
                                      : others;
}

/* Bytes of the places for copies from host memory to which, as a block ends, nothing more is copied in this step. */
static double emptied(const struct pass *p, const struct moments_block *b, double k)
{
    bool w = p->kind == 'W';
    double in_front = b->in_front.copies[w] + k * b->each.copies[w];
    return p->at->copies > 0 || in_front >= 2 ? 0 : b->beside[1] - (in_front >= 1 ? b->near[w] : 0);
}

/* Bytes after the k-th block's last product, when the reduction of its gradients begins: the sums of the block
 * before are not added up yet, and parameters that waited for W's last sums are being gathered. */
static double leaving(const struct pass *p, const struct moments_block *b, double k, double places, double rest)
{
    bool w = p->kind == 'W', last = k <= 0;
    for (const struct moments_block *x = p->s->blocks; x < b; x++)
        last &= x->scattered <= 0;
    double kept = w ? b->in_front.left + k * b->each.left : b->in_front.keep + k * b->each.keep;
    if (b->scattered <= 0 || p->shards->converted || p->shards->blocks)
        return -INFINITY;
    if (w && last && !p->at->stays && uses_left(p, b, k) >= p->shards->places)
        places += p->shards->gathered;
    return kept + b->leaving[w] + places + gradients(p, b, k, b->each.made) + rest + (p->at->had ? b->part : 0);
}

/* Bytes of a block's sums that are not converted back yet, as far as they are assumed to exist. */
static double not_back(const struct pass *p, const struct moments_block *b)
{
    return p->at->last ? smaller(b->scattered, b->each.after) : b->scattered;
}

/* The peak bytes of the k-th block of a run. */
static double at_block(const struct pass *p, const struct moments_block *b, double k)
{
    const struct moments_at *at = p->at;
    const struct moments_sums *f = &b->in_front, *e = &b->each;
    double kept = f->keep + k * e->keep, left = f->left + k * e->left;
    double places = gathered(p, b, k) - (p->kind == 'F' ? 0 : unused(p, b));
    bool first = !at->had, last_block = b == p->s->blocks + p->s->nblocks - 1 && k >= b->times - 1;
    const struct moments_shards *shards = p->shards;
    double before = on_way(p, b, k), rest = moments_making(shards, before, part_before(p, b, k), b->scattered > 0);
    if (p->kind == 'F')
        return kept + b->forward + places + before;
    if (p->kind == 'I')
        return kept + p->s->left - left - e->left + (first && !at->early ? b->first_input : b->input) + places +
               fetched(p, b, k, false) + gradients(p, b, k, 0) + before;
    bool only = at->made <= 0 && b->behind + (b->scattered > 0 ? b->times - 1 - k : 0) <= 1; /* no others are on
                                                                                              * their way */
    bool sure = !shards->unsure || last_block || only || (!first && before <= shards->before + part_before(p, b, k));
    bool ends_use = b->scattered > 0 || shards->blocks, stays = at->stays && k <= 0;
    double place = p->kind == 'B' && ends_use && !stays ? shards->gathered * e->uses[1] : 0;
    double own = e->made - (first ? b->scattered : 0),
           back = 0; /* bytes of the sums of the block before, which are converted back after this block */
    if (first && shards->converted && !last_block)
        back = not_back(p, k < b->times - 1 ? b : b + 1);
    double most = p->kind == 'W' ? left + b->weight + rest
                                 : kept + moments_backward(first && !at->early ? &b->first_backward : &b->backward,
                                                           sure ? before : rest, rest, place);
    double ends = b->beside[p->kind == 'W'] - emptied(p, b, k) + (p->kind == 'W' ? left : kept) +
                  (p->shards->blocks ? 0 : places) + fetched(p, b, k, true);
    most += places + fetched(p, b, k, false) + gradients(p, b, k, own) - back;
    most = larger(most, leaving(p, b, k, places + fetched(p, b, k, false), rest));
    if (at->last && b->end > 0)
        most = larger(most, ends + gradients(p, b, k, b->end) + rest - (b->converts ? shards->own : 0));
    if (b->converts) { /* during their conversion, and after it */
        double sent = shards->blocks ? rest : larger(rest - place - back, rest - shards->own + b->part);
        most = larger(most, ends + shards->sent + gradients(p, b, k, own) + sent);
    }
    return most;
}

/* The block from which on, or up to which, fewer uses are left than there are places. */
static double bend(const struct pass *p, const struct moments_block *b)
{
    double each = b->each.uses[p->kind != 'F'], from = uses_left(p, b, 0) - p->shards->places;
    if (each <= 0 || p->kind == 'W' || p->shards->gathered <= 0)
        return 0;
    double k = ceil((p->kind == 'F' ? from : -from) / each);
    return larger(0, smaller(k, b->times - 1));
}

/* The last block that runs while gradients of earlier actions are on their way. */
static double behind(const struct pass *p, const struct moments_block *b)
{
    const struct moments_at *at = p->at;
    double each = b->each.uses[p->kind != 'F'], in_front = b->in_front.uses[p->kind != 'F'];
    if (each <= 0 || p->kind == 'W' || at->made_uses >= INFINITY)
        return 0;
    double k = p->kind == 'F' ? ceil((at->made_uses - in_front) / each) - 1
                              : floor((p->s->uses[1] - in_front - at->made_uses) / each);
    return larger(0, smaller(k, b->times - 1));
}

/* The last block of B that runs while gradients of the action's blocks after the run are on their way. */
static double in_front(const struct pass *p, const struct moments_block *b)
{
    double each = b->each.uses[1], last = b->times - 1;
    if (each <= 0 || p->kind != 'B' || b->since >= p->shards->uses || p->shards->uses >= INFINITY)
        return last;
    return larger(0, last + 1 - ceil((p->shards->uses - b->since) / each));
}

double moments_action(const struct moments_stage *s, const struct moments_shards *shards, char kind,
                      const struct moments_at *at)
{
    struct pass p = {s, shards, at, kind};
    double most = s->nblocks ? -INFINITY : 0;
    for (uint32_t i = 0; i < s->nblocks; i++) {
        const struct moments_block *b = &s->blocks[i];
        double last = b->times - 1;
        most = larger(most, at_block(&p, b, last));
        most = last > 0 ? larger(most, at_block(&p, b, 0)) : most;
        if (last > 1 && (i + 1 == s->nblocks || b->scattered > 0) && kind != 'F') /* the block that runs second */
            most = larger(most, at_block(&p, b, last - 1));
        if (last > 1 && shards->gathered > 0)
            most = larger(larger(most, at_block(&p, b, bend(&p, b))),
                          larger(at_block(&p, b, behind(&p, b)), at_block(&p, b, in_front(&p, b))));
        for (double k = 1; k < 3 && k < last && shards->fetched > 0; k++)
            most = larger(most, at_block(&p, b, k));
    }
    return most;
}

double moments_again(const struct moments_stage *s, const struct moments_shards *shards, char kind,
                     const struct moments_at *at)
{
    uint32_t i = 0;
    while (i + 1 < s->nblocks && s->blocks[i].each.uses[1] <= 0)
        i++;
    struct moments_at own = *at;
    own.stays = true;
    if (kind == 'W')
        return moments_action(s, shards, kind, &own);
    return s->nblocks ? at_block(&(struct pass){s, shards, &own, kind}, &s->blocks[i], 0) : 0;
}
