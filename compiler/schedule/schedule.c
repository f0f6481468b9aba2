/* Schedules as data: the decision's schedule, made by its family, and the forward-only schedule of an evaluation. */

#include "compiler/cost/pipeline.h"
#include "compiler/model/orders.h"
#include "compiler/schedule/family.h"

#include <assert.h>

struct schedule *schedule_empty(struct arena *a, uint32_t nranks, uint32_t nstages, uint32_t microbatches,
                                uint64_t room)
{
    struct schedule *s = ARENA_NEW(a, struct schedule);
    *s = (struct schedule){
        .nranks = nranks, .nstages = nstages, .copies = 1, .microbatches = microbatches, .forward_only = true};
    s->nactions = ARENA_ARRAY(a, uint32_t, nranks);
    s->actions = ARENA_ARRAY(a, struct action *, nranks);
    for (uint32_t r = 0; r < nranks; r++)
        s->actions[r] = ARENA_ARRAY(a, struct action, (size_t)room + 1);
    s->stage_rank = ARENA_ARRAY(a, uint32_t, nstages);
    for (uint32_t i = 0; i < nstages; i++)
        s->stage_rank[i] = NONE;
    return s;
}

void schedule_append(struct schedule *s, uint32_t rank, char kind, uint32_t stage, uint32_t microbatch)
{
    assert(stage < s->nstages && microbatch < s->microbatches);
    s->actions[rank][s->nactions[rank]++] = (struct action){.kind = kind, .stage = stage, .microbatch = microbatch};
    if (s->stage_rank[stage] == NONE)
        s->stage_rank[stage] = rank;
    if (kind != 'F')
        s->forward_only = false;
}

void schedule_append_pair(struct schedule *s, uint32_t rank, struct action forward, struct action backward)
{
    schedule_append(s, rank, forward.kind, forward.stage, forward.microbatch);
    s->actions[rank][s->nactions[rank] - 1].pair = true;
    schedule_append(s, rank, backward.kind, backward.stage, backward.microbatch);
}

void schedule_finish(struct schedule *s)
{
    for (uint32_t r = 0; r < s->nranks; r++)
        s->actions[r][s->nactions[r]++] = (struct action){.kind = 'O'};
}

/* Does the schedule that came with the decision have its ranks, stages and microbatches?  NULL, or a sentence on why
 * not. */
static const char *listed_unsupported(struct arena *a, const struct decision *d)
{
    const char *name = schedule_name(d->schedule);
    const struct schedule *s = d->listed;
    if (!s)
        return arena_printf(a, "schedule '%s' comes with its actions, and there are none", name);
    if (s->nranks != d->pp || s->nstages != d->nstages || s->microbatches != d->microbatches)
        return arena_printf(
            a, "schedule '%s' has %u ranks, %u stages and %u microbatches, but %u, %u and %u are asked for", name,
            s->nranks, s->nstages, s->microbatches, d->pp, d->nstages, d->microbatches);
    for (uint32_t i = 0; i < s->nstages; i++) {
        uint32_t r = d->folds && i >= d->pp ? 2 * d->pp - 1 - i : i % d->pp;
        if (s->stage_rank[i] != r)
            return arena_printf(a, "schedule '%s' has stage %u on rank %u, not %u", name, i, s->stage_rank[i], r);
    }
    return NULL;
}

const char *schedule_unsupported(struct arena *a, const struct decision *d)
{
    const char *name = schedule_name(d->schedule);
    uint32_t p = d->pp, m = d->microbatches, per_rank = schedule_chunks(d->schedule);
    if (d->schedule == SCHED_AUTO || d->schedule == SCHED_FILE)
        return listed_unsupported(a, d);
    if (d->nstages % p || (per_rank && d->nstages != per_rank * p))
        return arena_printf(a, "schedule '%s' runs %s per pipeline rank, but %u stages on %u ranks are asked for", name,
                            per_rank == 1   ? "one stage"
                            : per_rank == 2 ? "two stages"
                                            : "as many stages on one rank as on another",
                            d->nstages, p);
    uint32_t group = d->schedule_group ? d->schedule_group : p, rest = m % group;
    if (per_rank == 0 && (group < p || (m > group && rest && rest < p)))
        return arena_printf(
            a,
            "schedule '%s' takes groups of at least pp = %u microbatches, the last one too; %u in groups "
            "of %u leave %u",
            name, p, m, group, group < p ? group : rest);
    if (d->schedule == SCHED_DUALPIPE_V && m < 2 * p - 1)
        return arena_printf(a, "schedule 'dualpipe_v' needs at least 2 * pp - 1 = %u microbatches, not %u", 2 * p - 1,
                            m);
    if (d->schedule == SCHED_DUALPIPE && (p % 2 || m % 2 || m < 2 * p))
        return arena_printf(a,
                            "schedule 'dualpipe' needs an even pp and an even number of at least 2 * pp microbatches, "
                            "not %u and %u",
                            p, m);
    return NULL;
}

/* a rank of an ORDERED schedule while it is filled; next: microbatch of each of its stages' next F, next B or I, and
 * next W */
struct filling {
    struct schedule *s;
    const struct decision *d;
    uint32_t rank, next[3][DECISION_MOST_VPP];
};

static void take(void *to, char kind, uint32_t j)
{
    struct filling *x = to;
    assert(kind == 'F' || kind == 'B' || schedule_has(x->d->schedule, SCHEDULE_SPLITS));
    uint32_t stage = decision_folds(x->d) && j ? 2 * x->d->pp - 1 - x->rank : x->rank + j * x->d->pp;
    schedule_append(x->s, x->rank, kind, stage, x->next[kind == 'F' ? 0 : kind == 'W' ? 2 : 1][j]++);
}

static void fill_ordered(struct schedule *s, const struct decision *d)
{
    for (uint32_t r = 0; r < d->pp; r++)
        order_of(d->schedule)(d, r, take, &(struct filling){.s = s, .d = d, .rank = r});
}

static void fill(struct arena *a, struct schedule *s, const struct decision *d)
{
    uint32_t group = d->schedule_group ? d->schedule_group : d->pp;
    switch (d->schedule) {
    case SCHED_GPIPE:
        schedule_gpipe(s);
        return;
    case SCHED_1F1B:
    case SCHED_EAGER_1F1B:
        schedule_1f1b(s, d->schedule == SCHED_EAGER_1F1B);
        return;
    case SCHED_INTERLEAVED:
    case SCHED_COMBINED_1F1B:
        schedule_interleaved(s, group, d->schedule == SCHED_COMBINED_1F1B);
        return;
    case SCHED_ZB_H1:
        schedule_zb_h1(s);
        return;
    case SCHED_ZB_H2:
        schedule_zb_h2(s);
        return;
    case SCHED_ZB_V:
        schedule_zb_v(s);
        return;
    case SCHED_V_HALF:
    case SCHED_V_MIN:
        schedule_block(s, d->schedule);
        return;
    case SCHED_DUALPIPE:
        schedule_dualpipe(s, ARENA_ARRAY(a, struct action, 4 * (size_t)d->pp));
        return;
    case SCHED_DUALPIPE_V:
        schedule_dualpipe_v(s, ARENA_ARRAY(a, struct action, 4 * (size_t)d->pp));
        return;
#define SCHEDULE(KIND, word, arguments, stages, traits)
#define ORDERED(KIND, word, arguments, stages, traits) case SCHED_##KIND:
#include "compiler/model/schedule.def"
        fill_ordered(s, d);
        return;
    case SCHED_AUTO:
    case SCHED_FILE:
    case NSCHEDULES:
        break;
    }
}

struct schedule *schedule_new(struct arena *a, const struct decision *d)
{
    if (schedule_unsupported(a, d))
        return NULL;
    if (d->schedule == SCHED_AUTO || d->schedule == SCHED_FILE) {
        struct schedule *own = ARENA_NEW(a, struct schedule);
        *own = *d->listed;
        return own;
    }
    bool mirrored = d->schedule == SCHED_DUALPIPE;
    uint32_t copies = mirrored ? 2 : 1, stages = copies * d->nstages, m = d->microbatches / copies;
    uint64_t per_action = pipeline_splits(d->schedule) ? 3 : 2;
    struct schedule *s = schedule_empty(a, d->pp, stages, m, per_action * (stages / d->pp) * m);
    s->copies = copies;
    s->skews = pipeline_skews(d->schedule);
    fill(a, s, d);
    schedule_finish(s);
    return s;
}

static bool is_looped(const struct schedule *s)
{
    for (uint32_t i = 0; i < s->nstages; i++)
        if (s->stage_rank[i] != i % s->nranks)
            return false;
    return s->copies == 1;
}

/* Forwards chunk by chunk in groups of pp microbatches, the order of the interleaved warm-up; with one stage per
 * rank: microbatches 0, 1, ... */
static void forward_looped(struct schedule *s, uint32_t r)
{
    for (uint32_t base = 0; base < s->microbatches; base += s->nranks)
        for (uint32_t stage = r; stage < s->nstages; stage += s->nranks)
            for (uint32_t i = base; i < s->microbatches && i < base + s->nranks; i++)
                schedule_append(s, r, 'F', stage, i);
}

/* F of stage s and microbatch i in ascending order of s + i * (stages of the chain per rank), the later stage first
 * among equals. This key increases along every dependence, so ranks cannot block each other. */
static void forward_any(struct schedule *s, const struct schedule *train, uint32_t r)
{
    uint32_t chain = train->nstages / train->copies, step = (chain + s->nranks - 1) / s->nranks;
    uint64_t last = chain - 1 + (uint64_t)step * (s->microbatches - 1);
    for (uint64_t key = 0; key <= last; key++)
        for (uint32_t stage = chain; stage-- > 0;)
            if (train->stage_rank[stage] == r && stage <= key && (key - stage) % step == 0 &&
                (key - stage) / step < s->microbatches)
                schedule_append(s, r, 'F', stage, (uint32_t)((key - stage) / step));
}

uint32_t schedule_early(const struct schedule *s, uint32_t rank)
{
    uint32_t early = 0;
    for (uint32_t r = s->nranks - 1; r-- > rank;) {
        uint32_t lead = 0;
        while (lead < s->nactions[r] && lead <= early && s->actions[r][lead].kind == 'F' &&
               s->actions[r][lead].stage == r && s->actions[r][lead].microbatch == lead && !s->actions[r][lead].pair)
            lead++;
        early = lead;
    }
    return early;
}

struct schedule *schedule_forward(struct arena *a, const struct schedule *train)
{
    uint32_t m = train->microbatches * train->copies, most = 0;
    for (uint32_t r = 0; r < train->nranks; r++) {
        uint32_t own = 0;
        for (uint32_t i = 0; i < train->nstages; i++)
            own += train->stage_rank[i] == r;
        most = own > most ? own : most;
    }
    struct schedule *s = schedule_empty(a, train->nranks, train->nstages, m, (uint64_t)most * m);
    s->copies = train->copies;
    for (uint32_t r = 0; r < s->nranks; r++) {
        if (is_looped(train))
            forward_looped(s, r);
        else
            forward_any(s, train, r);
    }
    for (uint32_t i = 0; i < s->nstages; i++)
        s->stage_rank[i] = train->stage_rank[i];
    return s;
}
