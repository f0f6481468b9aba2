/* Lower bounds, in seconds, of simulated actions of a schedule with the transfers of parameters and gradients beside
 * them: never above simulate_actions() of the same actions with moves.c's pieces (compiler/simulate/beside.c).
 *
 * All times of that simulation grow with every duration in it, because a rank's actions and the transfers on its
 * queue run in a fixed order.  So a simulation with transfers takes at least as long as the one without (P), plus
 * what comes before its first action and after its last; and every part of it that must run sequentially is a bound.
 *
 * Before: all paths begin with the first forward pass of stage 0, which waits for the update, for the vectors'
 * parameters and for those of its pieces, in turn (in DualPipe one such pass at each end). After: a step whose
 * backward pass is not split ends with stage 0's last backward pass on rank 0, because every other action has a
 * successor. The gradients of its pieces are complete one after the other, and what is reduced from the k-th piece
 * on ends after the k-th is made.  Where the backward pass is split any rank may be the last, and the least bound of
 * all counts.  Then come the reductions over mirror ranks and ends of the pipeline, the norm, and its reduction over
 * all ranks. Consecutive steps without a common synchronisation (post-validation) are as far apart as on the rank
 * where this is most: its own update, actions, reductions and norm.
 *
 * By ranks, independently of P: the way to the rank, then its kernels or the transfers of its queue, whichever takes
 * longer, ignoring what they wait for.  A piece that is used twice in a row is gathered once, so the first piece of
 * every action may have been gathered before. */

#include "compiler/cost/cost_private.h"
#include "compiler/model/actions.h"

#include <math.h>

enum ending { ENDS_FIRST, ENDS_ANYWHERE, ENDS_APART, ENDS_MIRRORED };

struct least {
    const struct cost *c;
    const struct decision *d;
    const struct pipeline_times *t;
    enum ending ending;
    bool splits;
};

static enum ending ending_of(const struct decision *d, const struct pipeline_times *t)
{
    if (d->schedule == SCHED_DUALPIPE)
        return ENDS_MIRRORED;
    bool skews = pipeline_skews(d->schedule) || (d->listed && d->listed->skews) || d->schedule == SCHED_AUTO;
    return t->skewed && skews ? ENDS_APART : cost_splits(d) || d->schedule == SCHED_AUTO ? ENDS_ANYWHERE : ENDS_FIRST;
}

/* The number of stages of a rank, and the j-th of them. */
static uint32_t owned(const struct least *x)
{
    return x->ending == ENDS_MIRRORED ? 2 : x->d->vpp;
}

static uint32_t own_stage(const struct least *x, uint32_t r, uint32_t j)
{
    return x->ending == ENDS_MIRRORED ? (j ? x->d->pp - 1 - r : r) : cost_rank_stage(x->d, r, j);
}

/* The number of passes of one of a rank's stages. */
static double passes(const struct least *x)
{
    return x->ending == ENDS_MIRRORED ? x->d->microbatches / 2 : x->d->microbatches;
}

/* Where transfers do not overlap (blocks): upper bound of the seconds of other transfers of a piece's pass, F, B, I
 * or W, that run beside its gathers and reductions; longer: also for layers that recompute more. */
static double hidden_s(const struct least *x, const struct pipeline_piece *p, int pass, bool longer)
{
    double gather_s = p->gathers && pass < 3 ? p->gather_s : 0,
           sums_s = pass % 2 ? p->convert_s + p->sum_s + p->finish_s + p->add_s : 0;
    bool any = longer || x->d->listed || decision_pairs(x->d->schedule) || x->d->schedule == SCHED_AUTO;
    return !x->t->blocks ? 0 : any ? (p->waits ? gather_s + sums_s : 0) : p->beside[pass];
}

/* The same for all microbatches. */
static double hidden_all_s(const struct least *x, const struct pipeline_piece *p)
{
    double backward = cost_larger(hidden_s(x, p, 1, false), hidden_s(x, p, 2, false) + hidden_s(x, p, 3, false));
    double n = passes(x);
    return p->count *
           ((p->gathers ? n * hidden_s(x, p, 0, false) : 0) + (p->gathers || p->scatters ? n : 1) * backward);
}

/* ---- before the first action ---- */

/* Seconds of the parameters that one rank gathers at the start of the step: of vectors, and of pieces. */
static double vectors_s(const struct least *x, uint32_t r)
{
    double seconds = 0;
    for (uint32_t j = 0; j < owned(x); j++)
        seconds += x->t->moves[own_stage(x, r, j)].gather_s;
    return seconds;
}

static double pieces_s(const struct least *x, uint32_t r)
{
    double seconds = 0;
    for (uint32_t j = 0; j < owned(x); j++) {
        const struct pipeline_moves *m = &x->t->moves[own_stage(x, r, j)];
        for (uint32_t k = 0; k < m->npieces; k++)
            seconds += m->pieces[k].gathers ? 0 : m->pieces[k].count * m->pieces[k].gather_s;
    }
    return seconds;
}

/* Seconds from the start of the step until the rank's first action may begin. */
static double begin_s(const struct least *x, uint32_t r)
{
    return x->t->updates[r].update_s + vectors_s(x, r) + (x->t->blocks ? pieces_s(x, r) : 0);
}

/* For `count` equal pieces, each of which has own_s of kernels after move_s of transfers, which run sequentially
 * from *moved_s on: the time at which kernels that are free at now_s have ended. */
static double behind_moves(uint32_t count, double own_s, double move_s, double now_s, double *moved_s)
{
    double late_s = *moved_s + cost_larger(move_s + count * own_s, count * move_s + own_s);
    *moved_s += count * move_s;
    return cost_larger(now_s + count * own_s, late_s);
}

/* The part of a transfer that blocks the action that sends it. */
static double held_s(const struct least *x, double transfer_s)
{
    return x->d->pp > 1 ? x->t->held * transfer_s : 0;
}

/* Seconds that the first forward pass of stage 0 takes beyond its kernels; longer: including the work for all kept
 * values. */
static double opening_s(const struct least *x, bool longer)
{
    const struct pipeline_moves *m = &x->t->moves[0];
    const struct pipeline_stage *st = &x->t->stages[0];
    double takes = st->forward_s + (longer ? st->kept_s : 0) + held_s(x, st->next_s), now_s = 0, head_s = 0,
           wire_s = pieces_s(x, 0), blocked_s = 0;
    for (uint32_t k = 0; k < m->npieces; k++) {
        const struct pipeline_piece *p = &m->pieces[k];
        now_s = behind_moves(p->count, p->forward * takes, p->gather_s, now_s, p->gathers ? &wire_s : &head_s);
        blocked_s += p->gathers ? p->count * cost_larger(0, p->gather_s - hidden_s(x, p, 0, longer)) : 0;
    }
    return x->t->blocks ? blocked_s : cost_larger(0, now_s - takes);
}

/* ---- behind the last action ---- */

/* A stage's last pass that makes gradients.  takes_s: its own seconds; through_s: from its start until everything is
 * reduced; least_s: at least from its end. */
struct pass {
    double takes_s, through_s, least_s;
};

/* split: weight gradients only; longer: plus one forward pass of a stage that keeps everything, the most that
 * recomputation adds. */
static struct pass some_pass(const struct least *x, uint32_t stage, bool split, bool longer)
{
    const struct pipeline_moves *m = &x->t->moves[stage];
    const struct pipeline_stage *st = &x->t->stages[stage];
    double makes_s = split ? st->weight_s : st->backward_s + held_s(x, st->back_s),
           again_s = longer ? st->forward_s + st->kept_s : 0, now_s = 0, wire_s = 0, all_s = 0;
    struct pass out = {.takes_s = makes_s + again_s};
    for (uint32_t k = m->npieces; k-- > 0;) {
        const struct pipeline_piece *p = &m->pieces[k];
        double own_s = (split ? p->weight : p->backward) * makes_s + p->forward * again_s,
               sum_s = split && p->early && !x->t->blocks ? 0 : p->sum_s + p->finish_s; /* it may have ended before */
        double add_s = p->scatters && passes(x) > 1 ? p->add_s : 0;
        wire_s = cost_larger(wire_s + p->count * sum_s,
                             now_s + cost_larger(own_s + p->count * sum_s, p->count * own_s + sum_s));
        now_s += p->count * own_s;
        double hides_s = hidden_s(x, p, split ? 3 : 1, longer);
        all_s += p->count * cost_larger(0, sum_s + add_s - hides_s);
        out.least_s = cost_larger(0, sum_s - hides_s) + cost_larger(hides_s > 0 ? 0 : add_s, m->sum_s);
    }
    out.least_s = m->npieces ? out.least_s : m->sum_s;
    out.through_s = x->t->blocks ? out.takes_s + all_s + m->sum_s : cost_larger(wire_s, now_s) + m->sum_s;
    return out;
}

/* Seconds after the end of a stage's last pass, which takes stretched_s longer than its kernels; a list may end with
 * either kind. */
static double stage_after_s(const struct least *x, uint32_t stage, bool longer, double stretched_s)
{
    double least = INFINITY;
    for (int split = 0; split < 2; split++) {
        if (split != x->splits && !x->d->listed)
            continue;
        struct pass pass = some_pass(x, stage, split, longer);
        least = cost_smaller(least, cost_larger(pass.through_s - pass.takes_s - stretched_s, pass.least_s));
    }
    return least;
}

/* The same for whichever of the rank's stages is the last. */
static double rank_after_s(const struct least *x, uint32_t r, bool longer)
{
    double least = INFINITY;
    for (uint32_t j = 0; j < owned(x); j++)
        least = cost_smaller(least, stage_after_s(x, own_stage(x, r, j), longer, 0));
    return least;
}

/* Seconds of the reductions that a rank makes with its mirror rank at the end. */
static double late_s(const struct least *x, uint32_t r)
{
    uint32_t mirror = x->d->pp - 1 - r, one = r < mirror ? r : mirror;
    double seconds = 0;
    for (uint32_t j = 0; j < owned(x) && r != mirror; j++)
        seconds += x->t->moves[own_stage(x, one, j)].late_s;
    return seconds;
}

/* Seconds of the norm after them: of the last bucket's gradients only, as far as the reductions hide the others'. */
static double norm_s(const struct least *x, uint32_t r)
{
    const struct pipeline_update *u = &x->t->updates[r];
    bool beside = x->d->schedule == SCHED_DUALPIPE && !x->t->blocks;
    return beside ? cost_larger(u->last_norm_s, u->norm_s - late_s(x, r)) : u->norm_s;
}

/* ---- the whole ---- */

static double before_actions_s(const struct least *x, bool longer)
{
    double begin = begin_s(x, 0);
    return (x->ending == ENDS_MIRRORED ? cost_smaller(begin, begin_s(x, x->d->pp - 1)) : begin) + opening_s(x, longer);
}

static double behind_actions_s(const struct least *x, bool longer)
{
    double least = INFINITY;
    for (uint32_t r = 0; r < (x->ending == ENDS_FIRST ? 1 : x->d->pp); r++) {
        double own = norm_s(x, r);
        own += x->ending == ENDS_FIRST ? stage_after_s(x, 0, longer, 0) : rank_after_s(x, r, longer);
        own += x->ending == ENDS_APART ? begin_s(x, r) : late_s(x, r);
        least = cost_smaller(least, own);
    }
    return least + x->t->agree_s;
}

static double beside_s(const struct least *x, bool longer)
{
    return behind_actions_s(x, longer) + (x->ending == ENDS_APART ? 0 : before_actions_s(x, longer));
}

/* ---- by ranks ---- */

/* Seconds of one stage over the step: kernels, without those that add up what arrives; these kernels; the transfers
 * of its queue from the first action on; copies to host memory and back. */
struct load {
    double kernels_s, adds_s, wire_s, copies_s, first_s; /* first_s: the longest gather of one piece */
};

static struct load stage_load(const struct least *x, uint32_t stage)
{
    const struct pipeline_stage *st = &x->t->stages[stage];
    const struct pipeline_moves *m = &x->t->moves[stage];
    double n = passes(x),
           hidden = decision_pairs(x->d->schedule) || x->d->listed ? st->forward_hidden_s + st->backward_hidden_s : 0;
    double backward = x->splits ? cost_smaller(st->backward_s, st->input_s + st->weight_s) : st->backward_s;
    double forth = 0, back = 0, first = 0, last = 0; /* gathers in either direction; those of the first piece in each */
    struct load out = {.kernels_s = n * (st->forward_s + backward - hidden), .wire_s = m->sum_s};
    for (uint32_t k = 0; k < m->npieces; k++) {
        const struct pipeline_piece *p = &m->pieces[k];
        double sums = p->scatters ? n : 1;
        out.wire_s += p->count * (sums * p->sum_s + p->finish_s);
        out.adds_s += p->scatters && n > 2 ? p->count * (n - 2) * p->add_s : 0; /* without those of the last pass */
        out.copies_s += 2 * n * p->count * p->park_s;
        out.kernels_s -= hidden_all_s(x, p);
        if (!p->gathers)
            continue;
        first = forth > 0 ? first : p->gather_s;
        forth += p->count * p->gather_s;
        last = p->reads ? p->gather_s : last;
        back += p->reads ? p->count * p->gather_s : 0;
        out.first_s = cost_larger(out.first_s, p->gather_s);
    }
    out.wire_s += n * (forth - first + back - last);
    return out;
}

/* Seconds from stage 0's first forward pass to that of the rank's first stage, from the nearer end in DualPipe. */
static double way_s(const struct least *x, uint32_t r)
{
    double way[2] = {0, 0};
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t i = 0; i < (k ? x->d->pp - 1 - r : r); i++)
            way[k] += x->t->stages[i].forward_s + x->t->stages[i].next_s;
    return x->ending == ENDS_MIRRORED ? cost_smaller(way[0], way[1]) : x->ending == ENDS_APART ? 0 : way[0];
}

/* Lower bound of a step by the work of single ranks.  Layers that recompute more copy less to host memory. */
static double whole_s(const struct least *x, bool longer)
{
    double longest = 0, opened_s = x->ending == ENDS_APART ? 0 : before_actions_s(x, false);
    for (uint32_t r = 0; r < x->d->pp; r++) {
        struct load all = {0};
        for (uint32_t j = 0; j < owned(x); j++) {
            struct load own = stage_load(x, own_stage(x, r, j));
            all.kernels_s += own.kernels_s;
            all.adds_s += own.adds_s;
            all.wire_s += own.wire_s;
            all.copies_s += own.copies_s;
            all.first_s = cost_larger(all.first_s, own.first_s);
        }
        double at_begin = x->t->updates[r].update_s + vectors_s(x, r) + pieces_s(x, r), way = way_s(x, r);
        double start = cost_larger(begin_s(x, r), way > 0 ? opened_s + way : 0), kernels = start + all.kernels_s;
        if (x->t->blocks) /* sequentially */
            kernels += all.adds_s + all.wire_s;
        else /* early sums are added up while the last ones are waited for */
            kernels += cost_larger(all.adds_s, rank_after_s(x, r, false)) +
                       (way > 0 || x->ending == ENDS_APART ? 0 : opening_s(x, false));
        double wire = cost_larger(at_begin + all.wire_s, start + all.wire_s - x->t->prefetch * all.first_s);
        double own = cost_larger(cost_larger(kernels, x->t->blocks ? 0 : wire), longer ? 0 : start + all.copies_s) +
                     norm_s(x, r);
        own += x->ending == ENDS_APART ? 0 : late_s(x, r);
        longest = cost_larger(longest, own);
    }
    return longest + x->t->agree_s;
}

/* ---- actions that transfers stretch ---- */

/* Seconds of the gathers of a stage's pieces in a forward pass, or a backward pass, after the first `ahead`, which
 * may have been gathered before the action began. */
static double gathers_s(const struct pipeline_moves *m, bool forward, uint32_t ahead)
{
    double seconds = 0;
    for (uint32_t i = 0; i < m->npieces; i++) {
        const struct pipeline_piece *p = &m->pieces[forward ? i : m->npieces - 1 - i];
        if (!p->gathers || !(forward || p->reads))
            continue;
        uint32_t there = ahead < p->count ? ahead : p->count;
        ahead -= there;
        seconds += (p->count - there) * p->gather_s;
    }
    return seconds;
}

/* The same for gradients that are reduce-scattered, without the last `behind`, which may still be on their way when
 * the action ends. */
static double scatters_s(const struct pipeline_moves *m, uint32_t behind)
{
    double seconds = 0;
    for (uint32_t i = 0; i < m->npieces; i++) {
        const struct pipeline_piece *p = &m->pieces[i];
        uint32_t left = !p->scatters ? 0 : behind < p->count ? behind : p->count;
        behind -= left;
        seconds += p->scatters ? (p->count - left) * p->sum_s : 0;
    }
    return seconds;
}

/* Seconds of copying what the layers keep, without two places, which layers of other kinds may not share. */
static double parks_s(const struct pipeline_moves *m)
{
    double seconds = 0;
    for (uint32_t i = 0; i < m->npieces; i++)
        seconds += m->pieces[i].count > 2 ? (m->pieces[i].count - 2) * m->pieces[i].park_s : 0;
    return seconds;
}

static double stretch(double *takes_s, double by_s, bool blocks)
{
    double before = *takes_s;
    *takes_s = blocks ? before + by_s : cost_larger(before, by_s);
    return *takes_s - before;
}

double cost_least_stretch(const struct cost *c, const struct pipeline_times *times, struct pipeline_stage *stages)
{
    const struct decision *d = c->decision;
    struct least x = {c, d, times, ending_of(d, times), cost_splits(d)};
    uint32_t ahead = times->blocks ? 1 : times->prefetch + 1, behind = times->blocks ? 1 : 2;
    double longer = 0;
    for (uint32_t i = 0; i < d->nstages; i++) {
        const struct pipeline_moves *m = &times->moves[i];
        const struct pipeline_stage *st = &times->stages[i];
        double forth = gathers_s(m, true, ahead), back = gathers_s(m, false, ahead), sums = scatters_s(m, behind),
               parks = parks_s(m);
        double held = times->blocks ? 0 : times->held; /* the part that belongs to the action */
        double hidden[4] = {0};
        for (uint32_t k = 0; k < 4 * m->npieces; k++)
            hidden[k % 4] += m->pieces[k / 4].count * hidden_s(&x, &m->pieces[k / 4], (int)(k % 4), false);
        stages[i] = *st;
        longer += stretch(&stages[i].forward_s, cost_larger(forth - hidden[0] - held * st->next_s, 0), times->blocks);
        longer += stretch(&stages[i].backward_s, cost_larger(back + sums - hidden[1] - held * st->back_s, 0),
                          times->blocks);
        longer += stretch(&stages[i].input_s, cost_larger(back - hidden[2] - held * st->back_s, 0), times->blocks);
        longer += stretch(&stages[i].weight_s, cost_larger(sums - hidden[3], 0), times->blocks);
        if (!times->blocks && parks > 0) {
            longer += stretch(&stages[i].forward_s, cost_larger(parks - held * st->next_s, 0), false);
            longer += stretch(&stages[i].backward_s, cost_larger(parks - held * st->back_s, 0), false);
            longer += stretch(&stages[i].input_s, cost_larger(parks - held * st->back_s, 0), false);
        }
        if (!times->blocks && (decision_pairs(d->schedule) || d->listed)) { /* each may also overlap the other's
                                                                             * additional time */
            stages[i].forward_hidden_s += stages[i].forward_s - st->forward_s;
            stages[i].backward_hidden_s += stages[i].backward_s - st->backward_s;
        }
    }
    if (longer <= 0)
        return 0;
    double before = 0, behind_s = INFINITY;
    if (x.ending != ENDS_APART) {
        double opens = opening_s(&x, false), begin = before_actions_s(&x, false) - opens;
        before = begin + cost_larger(0, opens - (stages[0].forward_s - times->stages[0].forward_s));
    }
    for (uint32_t r = 0; r < (x.ending == ENDS_FIRST ? 1 : d->pp); r++) {
        double own = INFINITY;
        for (uint32_t j = 0; j < (x.ending == ENDS_FIRST ? 1 : owned(&x)); j++) {
            uint32_t i = own_stage(&x, r, j);
            double by = cost_larger(stages[i].weight_s - times->stages[i].weight_s,
                                    stages[i].backward_s - times->stages[i].backward_s);
            own = cost_smaller(own, stage_after_s(&x, i, false, by));
        }
        own += norm_s(&x, r) + (x.ending == ENDS_APART ? begin_s(&x, r) : late_s(&x, r));
        behind_s = cost_smaller(behind_s, own);
    }
    return before + behind_s + times->agree_s;
}

struct cost_least cost_least(const struct cost *c, const struct pipeline_times *times, bool longer)
{
    const struct decision *d = c->decision;
    const struct least x = {c, d, times, ending_of(d, times), cost_splits(d)};
    return (struct cost_least){beside_s(&x, false), beside_s(&x, true), whole_s(&x, longer)};
}
