/* Closed forms and lower bounds of pipelines against the run of their actions: on thousands of random
 * instances with uneven stages the bound is never above, and mostly close. */

#include "compiler/cost/cost_private.h"
#include "compiler/cost/moments_private.h"
#include "compiler/simulate/simulate.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_STAGES 64
#define INSTANCES 1500

struct instance {
    struct decision d;
    struct pipeline_stage stages[MOST_STAGES];
    struct pipeline_times times;
};

/* xorshift64*: the same instances everywhere */
static double draw(uint64_t *state, double low, double high)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return low + (high - low) * (double)((*state * 2685821657736338717u) >> 11) / 9007199254740992.0;
}

static uint32_t pick(uint64_t *state, uint32_t low, uint32_t high)
{
    return low + (uint32_t)draw(state, 0, high - low + 0.999999);
}

static uint32_t draw_chunks(uint64_t *state, enum schedule_kind kind)
{
    if (kind == SCHED_INTERLEAVED || kind == SCHED_COMBINED_1F1B)
        return pick(state, 2, 4);
    return pipeline_folds(kind) ? 2 : 1;
}

/* stages as models have them: layers alike up to one more or less, a head, an embedding; now and then wild
 * ones */
static void draw_stages(uint64_t *state, struct instance *x)
{
    bool wild = draw(state, 0, 1) < 0.2;
    double forward = draw(state, 0.5, 2), input = draw(state, 0.7, 1.6), weight = draw(state, 0.5, 1.2);
    double transfer = draw(state, 0, 1) < 0.3 ? 0 : draw(state, 0, 0.2), uneven = draw(state, 0, 0.3);
    double hidden = draw(state, 0, 1) < 0.5 ? 0 : draw(state, 0, 0.25);
    double lead = draw(state, 0, 1) < 0.7 ? 0 : draw(state, 0, 0.15);
    for (uint32_t s = 0; s < x->d.nstages; s++) {
        double size = wild ? draw(state, 0.3, 2) : 1 + (draw(state, 0, 1) < 0.3 ? uneven : 0);
        struct pipeline_stage *st = &x->stages[s];
        st->forward_s = forward * size;
        st->input_s = forward * input * size;
        st->weight_s = forward * weight * size;
        if (s + 1 == x->d.nstages) {
            double head = draw(state, 0, 0.5);
            st->forward_s += head, st->input_s += head, st->weight_s += head;
        }
        st->backward_s = (st->input_s + st->weight_s) * draw(state, 0.95, 1);
        st->forward_hidden_s = hidden * st->forward_s;
        st->backward_hidden_s = hidden * st->backward_s * draw(state, 0, 1);
        st->lead_s = s + 1 < x->d.nstages ? lead * st->input_s : 0;
        st->next_s = transfer * (wild ? draw(state, 0, 3) : 1);
        st->back_s = transfer * (wild ? draw(state, 0, 3) : 1);
    }
}

static void draw_instance(uint64_t *state, enum schedule_kind kind, struct instance *x)
{
    struct decision *d = &x->d;
    *d = (struct decision){.schedule = kind, .vpp = draw_chunks(state, kind)};
    d->pp = pick(state, 2, 12);
    d->microbatches = pick(state, 1, 6 * d->pp);
    if (kind == SCHED_DUALPIPE)
        d->pp += d->pp % 2;
    if (kind == SCHED_DUALPIPE || kind == SCHED_DUALPIPE_V)
        d->microbatches = 2 * d->pp + 2 * pick(state, 0, 3 * d->pp);
    if (kind == SCHED_INTERLEAVED || kind == SCHED_COMBINED_1F1B) {
        d->schedule_group = draw(state, 0, 1) < 0.3 ? 2 * d->pp : 0;
        uint32_t group = d->schedule_group ? d->schedule_group : d->pp;
        if (draw(state, 0, 1) < 0.8)
            d->microbatches = group * pick(state, 1, 9);
        else
            d->microbatches = group + d->pp;
        if (draw(state, 0, 1) < 0.1)
            d->microbatches = pick(state, 1, group);
    }
    d->nstages = d->pp * d->vpp;
    draw_stages(state, x);
    double held = draw(state, 0, 1);
    x->times = (struct pipeline_times){.stages = x->stages,
                                       .skewed = d->microbatches % 2,
                                       .held = held < 0.6   ? 0
                                               : held < 0.8 ? 1
                                                            : draw(state, 0, 1)};
}

static int compare_doubles(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static const struct {
    enum schedule_kind kind;
    double median, least; /* bound / simulated: at least this in the middle, and in the worst of 20 */
} families[] = {
    {SCHED_GPIPE, 0.9999, 0.9999},   {SCHED_1F1B, 0.9999, 0.99},       {SCHED_EAGER_1F1B, 0.9999, 0.99},
    {SCHED_INTERLEAVED, 0.99, 0.94}, {SCHED_COMBINED_1F1B, 0.97, 0.9}, {SCHED_ZB_H1, 0.999, 0.99},
    {SCHED_ZB_H2, 0.985, 0.87},      {SCHED_ZB_V, 0.985, 0.9},         {SCHED_V_HALF, 0.98, 0.92},
    {SCHED_V_MIN, 0.93, 0.8},        {SCHED_DUALPIPE, 0.97, 0.92},     {SCHED_DUALPIPE_V, 0.97, 0.92},
};

static void test_bounds(void)
{
    double *share = malloc(INSTANCES * sizeof *share);
    CU_ASSERT_PTR_NOT_NULL_FATAL(share);
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        uint64_t state = 88172645463325252u + k;
        uint32_t above = 0;
        for (uint32_t i = 0; i < INSTANCES; i++) {
            struct arena *a = arena_new();
            struct instance x;
            draw_instance(&state, families[k].kind, &x);
            const struct schedule *s = schedule_new(a, &x.d);
            CU_ASSERT_PTR_NOT_NULL_FATAL(s);
            double makespan = simulate_actions(a, s, &x.times, NULL, NULL);
            share[i] = pipeline_bound_s(&x.d, &x.times) / makespan;
            above += share[i] > 1 + 1e-9;
            arena_free(a);
        }
        qsort(share, INSTANCES, sizeof *share, compare_doubles);
        CU_ASSERT_EQUAL(above, 0);
        CU_ASSERT(share[INSTANCES / 2] >= families[k].median);
        CU_ASSERT(share[INSTANCES / 20] >= families[k].least);
    }
    free(share);
}

/* Where transfers take as long as actions, what goes round between ranks sets the pace. */
static void test_slow_transfers(void)
{
    static const enum schedule_kind kinds[] = {SCHED_1F1B, SCHED_EAGER_1F1B, SCHED_ZB_H1, SCHED_ZB_H2};
    static const double least[] = {0.98, 0.99, 0.94, 0.87}, median[] = {0.9999, 0.9999, 0.985, 0.99};
    double share[INSTANCES];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint64_t state = 88172645463325252u + k;
        for (uint32_t i = 0; i < INSTANCES; i++) {
            struct arena *a = arena_new();
            struct instance x;
            draw_instance(&state, kinds[k], &x);
            x.times.held = 0;
            double transfer = x.stages[0].forward_s * draw(&state, 0.3, 3);
            for (uint32_t s = 0; s < x.d.nstages; s++)
                x.stages[s].next_s = x.stages[s].back_s = transfer;
            double makespan = simulate_actions(a, schedule_new(a, &x.d), &x.times, NULL, NULL);
            share[i] = pipeline_bound_s(&x.d, &x.times) / makespan;
            arena_free(a);
        }
        qsort(share, INSTANCES, sizeof *share, compare_doubles);
        CU_ASSERT(share[INSTANCES - 1] <= 1 + 1e-9);
        CU_ASSERT(share[INSTANCES / 2] >= median[k] && share[INSTANCES / 20] >= least[k]);
    }
}

/* Backward passes that are longer by what is known of ranks alone: bounds of the shorter ones with that stay below the run. */
static void test_longer(void)
{
    static const enum schedule_kind kinds[] = {SCHED_INTERLEAVED, SCHED_COMBINED_1F1B, SCHED_DUALPIPE, SCHED_DUALPIPE_V};
    double share[INSTANCES];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        uint64_t state = 88172645463325252u + k;
        uint32_t above = 0, told = 0;
        for (uint32_t i = 0; i < INSTANCES; i++) {
            struct arena *a = arena_new();
            struct instance x;
            draw_instance(&state, kinds[k], &x);
            double *longer_s = ARENA_ARRAY(a, double, x.d.pp), bound_s = pipeline_bound_s(&x.d, &x.times);
            struct pipeline_stage *stages = ARENA_ARRAY(a, struct pipeline_stage, x.d.nstages);
            struct pipeline_times times = x.times;
            times.stages = memcpy(stages, x.stages, x.d.nstages * sizeof *stages);
            for (uint32_t s = 0; s < x.d.nstages; s++) {
                double own_s = draw(&state, 0, 0.5) * stages[s].forward_s;
                uint32_t r = cost_stage_rank(&x.d, s);
                stages[s].backward_s += own_s;
                stages[s].input_s += own_s;
                if (kinds[k] == SCHED_DUALPIPE) /* half of the microbatches come from each end */
                    longer_s[x.d.pp - 1 - r] += own_s / 2;
                longer_s[r] += kinds[k] == SCHED_DUALPIPE ? own_s / 2 : own_s;
            }
            double longer_bound_s = pipeline_longer_s(&x.d, &x.times, longer_s);
            share[i] = longer_bound_s / simulate_actions(a, schedule_new(a, &x.d), &times, NULL, NULL);
            above += share[i] > 1 + 1e-9 || longer_bound_s < bound_s;
            told += longer_bound_s > bound_s;
            arena_free(a);
        }
        qsort(share, INSTANCES, sizeof *share, compare_doubles);
        CU_ASSERT_EQUAL(above, 0);
        CU_ASSERT(told >= INSTANCES * 3 / 4);
    }
}

/* the most bytes that a rank holds are the run's, with stages that keep unequal amounts and with equal ones
 */
static void test_live(void)
{
    uint64_t state = 4101842887655102017u;
    for (size_t k = 0; k < sizeof families / sizeof *families; k++)
        for (uint32_t i = 0; i < 400; i++) {
            struct arena *a = arena_new();
            struct instance x;
            struct act_rank ranks[32];
            double bytes[MOST_STAGES];
            draw_instance(&state, families[k].kind, &x);
            const struct decision *d = &x.d;
            for (uint32_t s = 0; s < d->nstages; s++)
                bytes[s] = i % 2 ? 1 : draw(&state, 0.5, 4);
            simulate_actions(a, schedule_new(a, d), &x.times, &(struct act_bytes){.keep = bytes}, ranks);
            for (uint32_t r = 0; r < d->pp; r++) {
                double keep[MOST_STAGES];
                for (uint32_t j = 0; j < d->vpp; j++)
                    keep[j] = bytes[pipeline_folds(d->schedule) && j ? 2 * d->pp - 1 - r : r + j * d->pp];
                if (d->schedule == SCHED_DUALPIPE)
                    keep[1] = bytes[d->pp - 1 - r];
                double live = pipeline_live_bytes(d, r, keep);
                CU_ASSERT_DOUBLE_EQUAL(live, ranks[r].peak_bytes, 1e-9 * live);
            }
            arena_free(a);
        }
}

/* the most chunks that a rank may have, each of its own size */
static void test_most_chunks(void)
{
    struct arena *a = arena_new();
    double keep[DECISION_MOST_VPP];
    struct decision d = decision_single();
    d.schedule = SCHED_INTERLEAVED;
    d.pp = 2;
    d.vpp = DECISION_MOST_VPP;
    d.nstages = d.pp * d.vpp;
    d.microbatches = 6;
    for (uint32_t j = 0; j < d.vpp; j++)
        keep[j] = 1 + j * 37 % 64;
    const struct schedule *s = schedule_new(a, &d);
    for (uint32_t r = 0; r < d.pp; r++) {
        double held = 0, most = 0;
        for (uint32_t k = 0; k < s->nactions[r]; k++) {
            const struct action *x = &s->actions[r][k];
            if (x->kind == 'F' || x->kind == 'B')
                held += x->kind == 'F' ? keep[x->stage / d.pp] : -keep[x->stage / d.pp];
            most = fmax(most, held);
        }
        CU_ASSERT_EQUAL(pipeline_live_bytes(&d, r, keep), most);
    }
    arena_free(a);
}

/* kernels of a pass over a stage, with all that its blocks hold; block: from the front; ready_s: what it receives is there */
struct step {
    double seconds, share, ready_s, during, behind;
    uint32_t phase, block;
};

static uint32_t list_steps(const struct moments_stage *x, bool back, double ready_s, struct step *out)
{
    uint32_t n = 0, blocks = 0;
    double kept = 0, all_s = x->receives_s[back], needs_s = 0;
    for (uint32_t k = 0; k < x->nruns; k++)
        blocks += (uint32_t)x->runs[k].times;
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t block = back ? blocks - 1 - i : i, run = block >= x->runs[0].times;
        const struct cost_levels *l = &x->runs[run].lives->levels[back];
        kept = block < x->runs[0].times ? block * x->runs[0].keep : x->runs[0].times * x->runs[0].keep + (block - x->runs[0].times) * x->runs[1].keep;
        for (uint32_t k = 0; k < l->n; k++) {
            const struct walk_step *at = &l->step[k];
            all_s += at->seconds;
            needs_s = at->kind == WALK_USE ? ready_s : needs_s;
            if (at->kind == WALK_KERNEL)
                out[n++] = (struct step){at->seconds, all_s, needs_s, kept + (double)l->bytes[k].during, kept + (double)l->bytes[k].behind, at->passes, block};
        }
    }
    for (uint32_t k = 0; k < n; k++)
        out[k].share /= all_s + x->sends_s[back];
    return n;
}

/* gradients that a stage's first pass has made by a step */
static double made_by(const struct moments_stage *x, const struct step *at)
{
    double made = 0;
    for (uint32_t k = 0, block = 0; k < x->nruns; block += (uint32_t)x->runs[k++].times)
        for (uint32_t i = block; i < block + x->runs[k].times; i++)
            made += i > at->block ? x->runs[k].made : i == at->block && at->phase ? x->runs[k].made - x->runs[k].scattered : 0;
    return made;
}

/* The most of a forward beside a backward: next comes a step of the one that can start first, of two that can the one whose share of
 * time is less.  first: blocks but the last one of a run count the gradients of all of them. */
static double beside(const struct moments_stage *f, const struct moments_stage *b, bool first)
{
    struct step fs[64], bs[64];
    double ready_s[] = {f->receives_s[0], b->receives_s[1] > 0 ? f->receives_s[0] + b->receives_s[1] : 0};
    uint32_t nf = list_steps(f, false, ready_s[0], fs), nb = list_steps(b, true, ready_s[1], bs), i = 0, j = 0;
    double most = 0, now_s = 0;
    while (i < nf || j < nb) {
        double done = i ? fs[i - 1].share : fs[0].share * f->receives_s[0] / (f->receives_s[0] + fs[0].seconds);
        double other = j ? bs[j - 1].share : bs[0].share * b->receives_s[1] / (b->receives_s[1] + bs[0].seconds);
        double start_s = fmax(now_s, i < nf ? fs[i].ready_s : 0), other_s = fmax(now_s, j < nb ? bs[j].ready_s : 0);
        bool left = j == nb || (i < nf && (start_s < other_s || (start_s <= other_s && done <= other)));
        const struct step *now = left && j ? &bs[j - 1] : &bs[j];
        struct step at = *now;
        if (left && j && j < nb && bs[j].block != now->block)
            at = (struct step){.block = bs[j].block};
        uint32_t front = at.block >= b->runs[0].times ? (uint32_t)b->runs[0].times : 0, times = (uint32_t)b->runs[front > 0].times;
        if (at.block != front + times - 1)
            at.block = front;
        double bytes = left ? fs[i].during + (j ? bs[j - 1].behind : b->keep) : bs[j].during + (i ? fs[i - 1].behind : 0);
        most = fmax(most, bytes + (first ? made_by(b, &at) : 0));
        now_s = left ? start_s + fs[i].seconds : other_s + bs[j].seconds;
        i += left;
        j += !left;
    }
    return most;
}

/* three kernels, one of them the first that needs what the stage receives */
static void draw_levels(struct arena *a, uint64_t *state, double least, struct cost_levels *x)
{
    uint32_t needs = (uint32_t)draw(state, 0, 3);
    *x = (struct cost_levels){.front = least, .step = ARENA_ARRAY(a, struct walk_step, 4), .bytes = ARENA_ARRAY(a, struct cost_level, 4)};
    for (uint8_t k = 0; k < 3; k++) {
        if (k == needs)
            x->step[x->n++] = (struct walk_step){.kind = WALK_USE, .room = WALK_RECEIVED};
        x->step[x->n] = (struct walk_step){.kind = WALK_KERNEL, .passes = k == 2 ? 4 : k, .queue = WALK_COMPUTE, .seconds = draw(state, 0.1, 1)};
        x->bytes[x->n] = (struct cost_level){(float)draw(state, least, 4), (float)draw(state, 0, 4)};
        x->all_s += x->step[x->n++].seconds;
    }
}

/* behind draw_blocks(), of what their passes take */
static void draw_runs(struct arena *a, uint64_t *state, struct moments_stage *x, struct cost_lives *lives)
{
    struct cost_levels *levels = ARENA_ARRAY(a, struct cost_levels, 4);
    x->nruns = 2;
    x->mark = *state;
    for (int back = 0; back < 2; back++) {
        x->receives_s[back] = fmax(0, draw(state, -1, 2));
        x->sends_s[back] = fmax(0, draw(state, -1, 2));
    }
    for (uint32_t k = 0; k < 2; k++) {
        const struct moments_block *b = &x->blocks[k];
        draw_levels(a, state, 0, &levels[2 * k]);
        draw_levels(a, state, b->each.keep, &levels[2 * k + 1]);
        lives[k].levels = &levels[2 * k];
        x->runs[k] = (struct moments_run){.lives = &lives[k], .times = b->times, .keep = b->each.keep, .made = b->each.made, .scattered = b->scattered, .makes = 3};
    }
}

/* runs: no more than what a block takes */
static void draw_blocks(uint64_t *state, struct moments_stage *x, double runs)
{
    struct moments_sums front = {0};
    x->nblocks = 2;
    x->forward = x->input = x->weight = 0;
    x->backward = (struct moments_backward){0};
    x->backward_end = x->weight_end = x->leaving[0] = x->leaving[1] = -INFINITY;
    for (uint32_t i = 0; i < x->nblocks; i++) {
        struct moments_block *b = &x->blocks[i];
        double keep = draw(state, 0.5, 4), left = draw(state, 0.2, 3), made = draw(state, 0.5, 20);
        *b = (struct moments_block){.times = floor(draw(state, 1, 4)), .in_front = front};
        b->each = (struct moments_sums){keep, left, made, draw(state, 0, 0.5), draw(state, 0.5, 20), {1, i || draw(state, 0, 2) >= 1}, {0}};
        b->forward = keep + runs + draw(state, 0, 1);
        b->backward.begin = keep + runs + draw(state, 0, 1);
        b->backward.made = keep + runs + draw(state, 0, 1);
        b->backward.used = keep + runs + draw(state, 0, 1);
        b->input = keep + left;
        b->weight = left + draw(state, 0, 1);
        b->first_backward.begin = b->backward.begin - draw(state, 0, 0.5);
        b->first_backward.made = b->backward.made - draw(state, 0, 0.5);
        b->first_backward.used = b->backward.used - draw(state, 0, 0.5);
        b->scattered = draw(state, 0, 2) < 1 ? 0 : draw(state, 0, made);
        b->first_input = b->input - draw(state, 0, 0.2);
        b->end = fmax(made, b->each.after) + draw(state, 0, 4);
        b->beside[0] = draw(state, 0, 1);
        b->leaving[0] = draw(state, 0, b->backward.made);
        b->leaving[1] = draw(state, 0, b->weight);
        for (double k = 0; k < b->times; k++) {
            x->forward = fmax(x->forward, front.keep + b->forward);
            x->backward.begin = fmax(x->backward.begin, front.keep + b->backward.begin);
            x->backward.made = fmax(x->backward.made, front.keep + b->backward.made);
            x->backward.used = fmax(x->backward.used, front.keep + b->backward.used);
            x->input = fmax(x->input, front.keep + b->input - front.left - left);
            x->weight = fmax(x->weight, front.left + b->weight);
            x->leaving[0] = fmax(x->leaving[0], front.keep + b->leaving[0]);
            x->leaving[1] = fmax(x->leaving[1], front.left + b->leaving[1]);
            front.keep += keep;
            front.left += left;
            front.made += made;
            front.early += b->each.early;
            front.after += b->each.after;
            front.uses[0] += b->each.uses[0];
            front.uses[1] += b->each.uses[1];
        }
    }
    x->keep = front.keep;
    x->left = front.left;
    x->made = front.made;
    x->gradients = front.made + draw(state, 0, 1);
    x->early = front.early;
    x->after = front.after;
    x->uses[0] = front.uses[0];
    x->uses[1] = front.uses[1];
    x->input += x->left;
}

/* a rank's order so far: what a stage's microbatches hold, and which of its gradients there are */
struct walked {
    double held, most, uses; /* uses: of gathered parameters to come */
    double made, made_uses;  /* gradients on their way; uses that they stay through */
    bool unwaited;           /* nothing waits for those of a stage's first B or W */
    double used;             /* the block that used parameters last, counted through stages; -1: none has */
    bool stays;              /* it is the next one that does, too */
    bool input[2 * MOST_STAGES], weight[2 * MOST_STAGES];
    uint32_t left[2 * MOST_STAGES];
};

static double gradients_of(const struct walked *w, const struct moments_stage *x, uint32_t c)
{
    double vectors = x->gradients - x->made;
    return w->weight[c] ? vectors + (w->left[c] ? x->made : x->after) : w->input[c] ? x->early : 0;
}

/* the block that an action uses first, or last, counted as in struct walked */
static double used_block(const struct moments_stage *x, uint32_t c, char kind, bool last)
{
    double all = x->blocks[0].times + x->blocks[1].times, unused = kind == 'F' || x->blocks[0].each.uses[1] > 0 ? 0 : x->blocks[0].times;
    return 100.0 * c + ((kind == 'F') == last ? all - 1 : unused);
}

/* is that the one before */
static bool shares(const struct walked *w, const struct moments_stage *x, uint32_t c, char kind)
{
    return kind != 'W' && fabs(used_block(x, c, kind, false) - w->used) < 0.5;
}

/* uses in B of a stage's blocks in front of one and behind another */
static double uses_between(const struct moments_stage *x, double front, double back)
{
    double uses = 0;
    for (double at = front + 1; at < back; at++)
        uses += x->blocks[at >= x->blocks[0].times].each.uses[1];
    return uses;
}

/* blocks that send gradients to shards, and what all of them use; INFINITY: none does */
static void find_scatters(struct moments_stage *x)
{
    double first = x->blocks[0].times, all = first + x->blocks[1].times, since = INFINITY;
    x->scatters = 0;
    x->since = x->blocks[0].scattered > 0 ? 0 : x->blocks[1].scattered > 0 ? uses_between(x, -1, first) : INFINITY;
    for (uint32_t k = 2; k-- > 0; since = x->blocks[k].scattered > 0 ? 0 : since + x->blocks[k].times * x->blocks[k].each.uses[1]) {
        x->blocks[k].since = since;
        x->scatters += x->blocks[k].scattered > 0 ? 2 * all : 0;
    }
    x->all_scatter = x->blocks[0].scattered > 0 && x->blocks[1].scattered > 0;
}

/* of the n-th of a stage's blocks, by itself, while an action runs: its bytes with its stage's gradients */
static double block_bytes(const struct walked *w, const struct moments_stage *x, uint32_t c, char kind, double n,
                          const struct moments_shards *shards)
{
    const struct moments_block *b = &x->blocks[n >= x->blocks[0].times];
    double k = n - (b == x->blocks ? 0 : x->blocks[0].times), keep = b->in_front.keep + k * b->each.keep;
    double left = b->in_front.left + k * b->each.left, uses = w->uses, vectors = w->weight[c] ? x->gradients - x->made : 0, own = 0;
    double before = w->made, used = 0, since = INFINITY; /* uses since a block behind has sent gradients */
    for (double at = 0, all = x->blocks[0].times + x->blocks[1].times; at < all; at++) {
        const struct moments_sums *o = &x->blocks[at >= x->blocks[0].times].each;
        bool done = at > n, last = kind != 'I' && w->left[c] == 1;
        double had = w->weight[c] ? o->made : w->input[c] ? o->early : 0;
        double behind = kind == 'I' ? fmax(had, o->early) : last ? o->after : o->made;
        uses += kind == 'F' ? (at >= n) * o->uses[0] : kind == 'W' ? 0 : (at <= n) * o->uses[1];
        own += at < n ? had : done ? behind : kind == 'I' ? fmax(had, o->early) : o->made;
        since = at <= n ? since : fmin(since, x->blocks[at >= x->blocks[0].times].scattered > 0 ? uses_between(x, n, at) : INFINITY);
        used += kind == 'F' ? (at < n) * o->uses[0] : kind == 'W' ? 0 : (at > n) * o->uses[1];
    }
    before = used < w->made_uses + shares(w, x, c, kind) ? before : fmin(before, shards->part);
    bool takes = kind == 'F' || (kind == 'W' ? w->stays : b->each.uses[1] > 0);
    double there = shards->gathered * fmin(shards->places - !takes, uses);
    if (kind == 'F')
        return keep + b->forward + there + gradients_of(w, x, c) + before;
    if (kind == 'I')
        return keep + x->left - left - b->each.left + (w->input[c] ? b->input : b->first_input) + there + own + vectors + before;
    double part = w->weight[c] ? shards->part : 0, mine = since >= INFINITY ? 0 : kind == 'W' || since < shards->uses ? shards->before + part : part;
    before = w->unwaited && b->scattered <= 0 ? fmin(before + mine, shards->most) : fmax(before, mine);
    double made = b->scattered > 0 ? fmax(before, fmin(before + shards->own, shards->most)) : before, end = (kind == 'W' ? left : keep + b->beside[0]) + b->end - b->each.made;
    double most = left + b->weight + made;
    if (kind == 'B') {
        const struct moments_backward *of = w->input[c] ? &b->backward : &b->first_backward;
        double frontmost = x->blocks[0].each.uses[1] > 0 ? 0 : x->blocks[0].times;
        double place = b->scattered > 0 && (n > frontmost || !w->stays) ? shards->gathered * b->each.uses[1] : 0;
        most = keep + fmax(of->begin + before, made + fmax(of->made, of->used - place));
    }
    double front = x->blocks[0].scattered > 0 ? 0 : x->blocks[0].times; /* parameters are gathered behind W's last sums */
    double more = kind == 'W' && n <= front && uses >= shards->places && !w->stays ? shards->gathered : 0;
    if (b->scattered > 0)
        most = fmax(most, (kind == 'W' ? left : keep) + b->leaving[kind == 'W'] + more + made + part + (w->weight[c] ? 0 : b->scattered));
    own -= w->weight[c] ? 0 : b->scattered;
    return fmax(most + own, w->left[c] == 1 ? end + own + (w->weight[c] ? 0 : b->scattered) + made : 0) + there + vectors;
}

static double others_gradients(const struct walked *w, const struct moments_stage *stages, uint32_t but)
{
    double bytes = 0;
    for (uint32_t c = 0; c < MOST_STAGES; c++)
        bytes += c == but ? 0 : gradients_of(w, &stages[c], c);
    return bytes;
}

/* is the block that was used last used next, behind the k-th action */
static bool uses_again(const struct walked *w, const struct schedule *s, uint32_t r, uint32_t k, const struct decision *d,
                       const struct moments_stage *stages)
{
    while (++k < s->nactions[r] && strchr("OW", s->actions[r][k].kind))
        ;
    if (k == s->nactions[r])
        return false;
    uint32_t c = s->actions[r][k].stage / d->pp;
    return shares(w, &stages[c], c, s->actions[r][k].kind);
}

/* the fullest moment, action by action and block by block */
static double walked_bytes(const struct schedule *s, uint32_t r, const struct decision *d, const struct moments_stage *stages,
                           const struct moments_shards *shards)
{
    struct walked w = {.used = -1};
    for (uint32_t k = 0; k < s->nactions[r]; k++) {
        const struct action *a = &s->actions[r][k];
        uint32_t c = a->stage / d->pp;
        w.left[c] += a->kind == 'B' || a->kind == 'W';
        if (a->kind == 'O' || a->kind == 'W')
            continue;
        w.uses += stages[c].uses[a->kind != 'F'] - shares(&w, &stages[c], c, a->kind);
        w.used = used_block(&stages[c], c, a->kind, true);
    }
    w.used = -1;
    for (uint32_t k = 0; k < s->nactions[r]; k++) {
        const struct action *a = &s->actions[r][k];
        uint32_t c = a->stage / d->pp;
        const struct moments_stage *x = &stages[c], *f = k && a[-1].pair ? &stages[a[-1].stage / d->pp] : NULL;
        bool weighs = a->kind == 'B' || a->kind == 'W';
        if (a->kind == 'O')
            continue;
        w.uses -= a->kind == 'W' ? 0 : x->uses[a->kind != 'F'] - shares(&w, x, c, a->kind);
        if (a->pair)
            continue;
        if (w.made_uses + shares(&w, x, c, a->kind) <= 0) {
            w.made = fmin(w.made, shards->part);
            w.unwaited = false;
        }
        struct walked behind = w;
        behind.used = a->kind == 'W' ? w.used : used_block(x, c, a->kind, true);
        w.stays = uses_again(&behind, s, r, k, d, stages);
        w.held -= a->kind == 'F' ? 0 : a->kind == 'W' ? x->left : x->keep;
        double bytes = 0, all = x->blocks[0].times + x->blocks[1].times;
        for (double n = 0; n < all && !f; n++)
            bytes = fmax(bytes, block_bytes(&w, x, c, a->kind, n, shards));
        if (f)
            bytes = beside(f, x, !w.weight[c]) + (w.weight[c] ? gradients_of(&w, x, c) : 0);
        w.most = fmax(w.most, w.held + others_gradients(&w, stages, c) + bytes);
        w.made_uses -= a->kind == 'W' ? 0 : x->uses[a->kind != 'F'] - shares(&w, x, c, a->kind);
        w.used = a->kind == 'W' ? w.used : used_block(x, c, a->kind, true);
        weighs &= x->scatters > 0;
        w.made = weighs ? w.weight[c] ? shards->before + shards->part : shards->first : w.made;
        w.made_uses = weighs ? shards->uses - (a->kind == 'B' ? x->since : 0) : w.made_uses;
        w.unwaited = weighs ? !w.weight[c] : w.unwaited;
        weighs = a->kind == 'B' || a->kind == 'W';
        w.left[c] -= weighs;
        w.input[c] |= a->kind != 'F';
        w.weight[c] |= weighs;
        w.held += (a->kind == 'F' ? x->keep : a->kind == 'I' ? x->left : 0) + (f ? f->keep : 0);
    }
    return w.most;
}

static void test_moments(void)
{
    uint64_t state = 88172645463325252u;
    for (size_t k = 0; k < sizeof families / sizeof *families; k++)
        for (uint32_t i = 0; i < 200; i++) {
            struct arena *a = arena_new();
            struct instance x;
            struct moments_stage stages[MOST_STAGES] = {0};
            struct cost_lives lives[MOST_STAGES][2];
            draw_instance(&state, families[k].kind, &x);
            const struct schedule *s = schedule_new(a, &x.d);
            bool pairs = decision_pairs(x.d.schedule);
            for (uint32_t j = 0; j < MOST_STAGES; j++) {
                draw_blocks(&state, &stages[j], pairs ? 4 : 0);
                draw_runs(a, &state, &stages[j], lives[j]);
                find_scatters(&stages[j]);
            }
            for (uint32_t r = 0; r < x.d.pp; r++)
                for (double gathered = 0; gathered <= (pairs ? 0 : 64); gathered = 8 * gathered + 1) {
                    double own = pairs ? 0 : draw(&state, 0, 8), before = pairs ? 0 : draw(&state, 0, 8), part = before / 4;
                    const struct moments_shards shards = {.gathered = gathered, .places = 1 + i % 5, .own = own, .before = before,
                                                          .part = part, .most = own + before + part, .uses = gathered > 0 && i % 3 ? (double)(i % 3) : INFINITY,
                                                          .first = own + before, .first_b = own + before};
                    for (uint32_t j = 0; j < MOST_STAGES; j++)
                        for (uint32_t n = 0; n < 2; n++)
                            stages[j].part = stages[j].blocks[n].part = stages[j].blocks[n].part_behind = part;
                    double most = pipeline_moments(&x.d, r, stages, &shards, NULL, NULL, 0, INFINITY).bytes, want = walked_bytes(s, r, &x.d, stages, &shards);
                    CU_ASSERT_DOUBLE_EQUAL(most, want, (pairs ? 1e-6 : 1e-9) * want);
                }
            arena_free(a);
        }
}

/* Are they the same by rounds, of which some are left out that are like those a period before? */
static bool same_waits(const struct waits *x, const struct waits *all)
{
    uint32_t half = x->n / 2, n = x->n + x->left;
    bool differ = n > all->n; /* the optimizer's is one more */
    for (uint32_t k = 0; k < n && !differ; k++) {
        bool left = x->left && k >= half && k < half + x->left;
        differ = all->at[k] != x->at[k < half ? k : left ? half - x->period + (k - half) % x->period : k - x->left];
    }
    return !differ;
}

/* What lies on ranks for other actions is the same of a schedule that is followed in part as of the list of all its actions. */
static void test_waits(void)
{
    uint64_t state = 88172645463325252u;
    uint32_t more = 0, all = 0;
    for (size_t k = 0; k < sizeof families / sizeof *families; k++)
        for (uint32_t i = 0; i < 100; i++) {
            struct arena *a = arena_new();
            struct instance x;
            struct moments_stage stages[MOST_STAGES] = {0};
            draw_instance(&state, families[k].kind, &x);
            struct decision listed = x.d;
            listed.listed = schedule_new(a, &x.d);
            listed.folds = decision_folds(&x.d);
            listed.schedule = decision_pairs(x.d.schedule) ? x.d.schedule : SCHED_FILE; /* pairs of a list are rounds of their own */
            for (uint32_t r = 0; r < x.d.pp && waits_are_followed(&x.d); r++) {
                const struct waits in_part = waits_of(a, NULL, &x.d, NULL, r), whole = waits_of(a, NULL, &listed, NULL, r);
                CU_ASSERT(same_waits(&in_part, &whole));
            }
            for (uint32_t j = 0; j < MOST_STAGES; j++)
                draw_blocks(&state, &stages[j], 0);
            for (uint32_t r = 0; r < x.d.pp && waits_are_followed(&x.d) && !decision_pairs(x.d.schedule); r++, all++) {
                const struct moments_shards none = {.uses = INFINITY};
                double without = pipeline_moments(&x.d, r, stages, &none, NULL, NULL, 0, INFINITY).bytes;
                for (uint32_t j = 0; j < MOST_STAGES; j++)
                    stages[j].waits = 1;
                double most = pipeline_moments(&x.d, r, stages, &none, NULL, NULL, 0, INFINITY).bytes;
                double want = pipeline_moments(&listed, r, stages, &none, NULL, NULL, 0, INFINITY).bytes;
                for (uint32_t j = 0; j < MOST_STAGES; j++)
                    stages[j].waits = 0;
                CU_ASSERT_DOUBLE_EQUAL(most, want, 1e-9 * want);
                more += most > without + 0.5;
            }
            arena_free(a);
        }
    CU_ASSERT(more > all / 2);
}

void suite_pipeline(void);
void suite_pipeline(void)
{
    CU_pSuite s = CU_add_suite("pipeline", NULL, NULL);
    CU_add_test(s, "bounds hold and are close", test_bounds);
    CU_add_test(s, "slow transfers", test_slow_transfers);
    CU_add_test(s, "longer backward passes", test_longer);
    CU_add_test(s, "activations in flight", test_live);
    CU_add_test(s, "the most chunks", test_most_chunks);
    CU_add_test(s, "the fullest moment", test_moments);
    CU_add_test(s, "what lies there for other actions", test_waits);
}
