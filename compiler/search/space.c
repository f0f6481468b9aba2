/* Which decisions exist: candidate lists per degree, and meshes made of them.
 *
 * A degree's candidates divide what they split (heads, FFN widths, experts, the batch), so nothing illegal is
 * listed; wishes filter the lists.  If the file gives no order of axes the two usual ones are listed: tp, cp, dp, pp
 * and tp, cp, pp, dp (innermost first); the second keeps a whole replica close together, which `keep pp within ...`
 * needs.  All 24 are listed if nothing is found otherwise (`anything`). */

#include "compiler/search/space.h"
#include "compiler/model/actions.h"
#include "compiler/model/means.h"
#include "compiler/model/orders.h"

#include "compiler/support/vec.h"

#include <string.h>

bool space_wants(const struct wish *w, uint64_t value)
{
    switch (w->relation) {
    case REL_ANY:
        return true;
    case REL_EQ:
        return value == w->value;
    case REL_LE:
        return value <= w->value;
    case REL_GE:
        return value >= w->value;
    case REL_IN:
        for (uint32_t i = 0; i < w->nlist; i++)
            if (w->list[i] == value)
                return true;
        return false;
    }
    return false;
}

/* Does tp divide the key/value heads?  Either each tensor-parallel rank has heads of its own, or equally many ranks
 * share a head in all such layers. */
static bool keys_divide(const struct attn *t, uint32_t tp, uint32_t *ranks)
{
    uint32_t parts = t->kind == ATTN_GQA ? model_key_parts(t->kv, tp) : tp, n = tp / parts;
    if (t->heads % tp || (t->kind == ATTN_GQA && t->kv % parts) || tp % parts || (n > 1 && *ranks > 1 && n != *ranks))
        return false;
    *ranks = n > 1 ? n : *ranks;
    return true;
}

/* does every layer allow the degree? */
static bool layers_divide(const struct model *m, enum degree degree, uint32_t v)
{
    const struct layer *last = NULL;
    uint32_t key_ranks = 1;
    for (uint32_t i = 0; i < model_all_layers(m); i++) {
        const struct layer *l = model_layer(m, i);
        if (l == last)
            continue;
        last = l;
        if (degree == DEG_TP && (!keys_divide(&l->attn, v, &key_ranks) || (!l->is_moe && l->ffn.width % v) ||
                                 (l->is_moe && l->moe.shared && l->moe.expert.width * l->moe.shared % v)))
            return false;
        if (degree == DEG_EP && l->is_moe && l->moe.experts % v)
            return false;
        if (degree == DEG_ETP && l->is_moe && l->moe.expert.width % v)
            return false;
    }
    return true;
}

/* most stages that the model can be cut into: a layout may give the embedding and the head stages of their own */
static uint64_t most_chunks(const struct job *job)
{
    return (uint64_t)job->model.nlayers + (job->wishes.layout ? 2 : 0);
}

static bool possible(const struct space *s, enum degree degree, uint32_t v)
{
    const struct job *job = s->job;
    switch (degree) {
    case DEG_TP:
    case DEG_EP:
    case DEG_ETP:
        return layers_divide(&job->model, degree, v) && (degree == DEG_TP || v == 1 || s->experts);
    case DEG_CP:
        return v == 1 || job->train.sequence % (2 * (uint64_t)v) == 0;
    case DEG_DP:
        return job->train.batch % v == 0;
    case DEG_PP:
    case DEG_VPP:
        return v <= most_chunks(job);
    case DEG_ZERO:
        return v <= 3;
    case DEG_SHARD:
    case DEG_MICROBATCH:
    case DEG_GPUS:
    case NDEGREES:
        break;
    }
    return true;
}

/* Does the target have it? */
static bool offered(const struct space *s, enum degree degree, uint32_t v)
{
    if (degree == DEG_ZERO)
        return v > 3 || means_of(s->job, TARGET_zero) >> v & 1;
    if (degree == DEG_EP || degree == DEG_ETP)
        return v == 1 || means_of(s->job, TARGET_experts) & target_bit(TARGET_experts, degree_names[degree]);
    return degree != DEG_CP || v == 1 || means_offer(s->job, TARGET_context, 1) ||
           means_offer(s->job, TARGET_context, 2) || means_offer(s->job, TARGET_context, 4);
}

/* what of a degree's value the target lacks */
static const char *lacking(struct arena *a, const struct space *s, enum degree degree, uint64_t v)
{
    enum target_row with;
    if (degree == DEG_ZERO)
        return target_phrase(a, TARGET_zero, 1u << v);
    if (degree == DEG_CP)
        return means_refused(a, s->job, TARGET_context, 2, &with);
    return target_phrase(a, TARGET_experts, target_bit(TARGET_experts, degree_names[degree]));
}

/* Is this value worth trying?  Every value that the plan block names is. */
static bool sensible(const struct space *s, enum degree degree, uint32_t v)
{
    enum relation relation = s->job->wishes.degree[degree].relation;
    bool stated = relation != REL_ANY || s->anything, named = relation == REL_EQ || relation == REL_IN || s->anything;
    bool power = (v & (v - 1)) == 0;
    if (degree == DEG_CP)
        return v == 1 || named || (power && (stated || s->job->train.sequence / v >= 2048));
    if (degree == DEG_VPP)
        return stated || v <= 4 || (power && v <= 8);
    if (degree == DEG_ETP) { /* experts whole, or split like everything else where the file fixes tp and ep */
        const struct wish *tp = &s->job->wishes.degree[DEG_TP];
        bool fixed = tp->relation == REL_EQ && s->job->wishes.degree[DEG_EP].relation == REL_EQ;
        return stated || v == 1 || (fixed && v == tp->value);
    }
    return true;
}

static uint32_t degree_most(const struct space *s, enum degree degree)
{
    const struct job *job = s->job;
    uint64_t most = s->usable;
    if (degree == DEG_DP && job->train.batch < most)
        most = job->train.batch;
    if (degree == DEG_VPP || (degree == DEG_PP && most_chunks(job) < most))
        most = most_chunks(job);
    if (degree == DEG_ZERO)
        most = 3;
    if ((degree == DEG_TP || degree == DEG_ETP || degree == DEG_VPP) && most > 4096)
        most = 4096;
    if (degree == DEG_VPP && most > 64)
        most = 64;
    return most > UINT32_MAX ? UINT32_MAX : (uint32_t)most;
}

/* "1, 2, 4, 8 or 16", with at most eight values */
static const char *list_text(struct arena *a, const struct space_list *l)
{
    const char *text = "";
    for (uint32_t i = 0; i < l->n && i < 8; i++)
        text = arena_printf(a, "%s%s%u", text, i ? ", " : "", l->at[i]);
    return l->n > 8 ? arena_printf(a, "%s, ...", text) : text;
}

static const char *wish_text(struct arena *a, enum degree degree, const struct wish *w)
{
    const char *name = degree_names[degree];
    unsigned long long v = (unsigned long long)w->value;
    switch (w->relation) {
    case REL_EQ:
        return arena_printf(a, "'%s' must be %llu", name, v);
    case REL_LE:
        return arena_printf(a, "'%s' must be at most %llu", name, v);
    case REL_GE:
        return arena_printf(a, "'%s' must be at least %llu", name, v);
    case REL_IN:
    case REL_ANY:
        break;
    }
    return arena_printf(a, "'%s' must be one of the values listed", name);
}

static const char *why_impossible(struct arena *a, const struct space *s, enum degree degree)
{
    const struct model *m = &s->job->model;
    const struct wish *w = &s->job->wishes.degree[degree];
    if (w->relation == REL_EQ && w->value <= UINT32_MAX && possible(s, degree, (uint32_t)w->value) &&
        !offered(s, degree, (uint32_t)w->value))
        return arena_printf(a, "target %s has no %s", s->job->wishes.target->name, lacking(a, s, degree, w->value));
    switch (degree) {
    case DEG_TP:
        if (m->nlayers)
            return arena_printf(a,
                                "it must divide heads = %u and the FFN's width, and kv = %u must be a multiple or "
                                "a divisor",
                                m->layers[0]->attn.heads, m->layers[0]->attn.kv);
        break;
    case DEG_CP:
        return arena_printf(a, "twice its value must divide the sequence of %llu tokens",
                            (unsigned long long)s->job->train.sequence);
    case DEG_DP:
        return arena_printf(a, "it must divide the batch of %llu sequences", (unsigned long long)s->job->train.batch);
    case DEG_PP:
    case DEG_VPP:
        return arena_printf(a, "the model has %u layers", m->nlayers);
    case DEG_EP:
    case DEG_ETP:
        return s->experts ? "it must divide the experts and their width" : "the model has no experts";
    case DEG_ZERO:
    case DEG_SHARD:
    case DEG_MICROBATCH:
    case DEG_GPUS:
    case NDEGREES:
        break;
    }
    return "no such value exists";
}

static bool make_list(struct arena *a, struct diag *d, const struct space *s, enum degree degree,
                      struct space_list *out)
{
    const struct wish *w = &s->job->wishes.degree[degree];
    VEC(uint32_t) wanted = {0}, all = {0};
    uint32_t most = degree_most(s, degree);
    for (uint32_t v = degree == DEG_ZERO ? 0 : 1; v <= most; v++) {
        if (!possible(s, degree, v) || !sensible(s, degree, v) || !offered(s, degree, v))
            continue;
        vec_push(a, &all, v);
        bool beyond = degree == DEG_ZERO && w->relation == REL_ANY && v > s->job->wishes.profile->zero_most;
        if (space_wants(w, v) && !beyond)
            vec_push(a, &wanted, v);
    }
    *out = (struct space_list){(uint32_t)wanted.n, wanted.at};
    if (wanted.n)
        return true;
    struct space_list known = {(uint32_t)all.n, all.at};
    const char *text = wish_text(a, degree, w);
    diag_error(d, w->span, "no-plan", "no plan: %s but %s", text,
               w->relation == REL_EQ && w->value > most && degree != DEG_ZERO && degree != DEG_PP
                   ? arena_printf(a, "at most %u is possible here", most)
                   : why_impossible(a, s, degree));
    diag_help(d, "drop the line, or allow %s in [%s]", degree_names[degree], list_text(a, &known));
    return false;
}

/* Lists the usual two orders, followed by all other permutations of the four axes if `anything` is set. */
static void free_orders(struct space *s)
{
    static const enum axis usual[2][NAXES] = {{AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP},
                                              {AXIS_TP, AXIS_CP, AXIS_PP, AXIS_DP}};
    memcpy(s->order, usual, sizeof usual);
    s->norders = means_of(s->job, TARGET_order) & 2 ? 2 : 1; /* the target's second word is the second of these */
    for (uint32_t code = 0; code < 256 && s->anything; code++) {
        enum axis x[NAXES];
        uint32_t seen = 0;
        for (uint32_t i = 0; i < NAXES; i++) {
            x[i] = (enum axis)(code >> (6 - 2 * i) & 3);
            seen |= 1u << x[i];
        }
        if (seen == (1u << NAXES) - 1 && memcmp(x, usual[0], sizeof x) && memcmp(x, usual[1], sizeof x))
            memcpy(s->order[s->norders++], x, sizeof x);
    }
}

static bool space_orders(struct diag *d, struct space *s)
{
    const struct wishes *w = &s->job->wishes;
    free_orders(s);
    if (!w->norder)
        return true;
    const enum axis standard[NAXES] = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP};
    uint32_t seen = 0, n = 0;
    s->norders = 1;
    for (uint32_t i = 0; i < w->norder; i++)
        for (uint32_t axis = 0; axis < NAXES; axis++)
            if (!strcmp(w->order[i], axis_names[axis]) && !(seen & 1u << axis)) {
                seen |= 1u << axis;
                s->order[0][n++] = (enum axis)axis;
            }
    if (n < w->norder) {
        diag_error(d, w->order_span, "no-plan", "the order names tp, cp, dp and pp, once each");
        return false;
    }
    for (uint32_t i = 0; i < NAXES; i++) /* axes that were left out come outermost */
        if (!(seen & 1u << standard[i]))
            s->order[0][n++] = standard[i];
    return true;
}

static uint32_t order_size(const struct space_mesh *m, enum axis axis)
{
    return axis == AXIS_TP ? m->tp : axis == AXIS_CP ? m->cp : axis == AXIS_DP ? m->dp : m->pp;
}

bool space_order_counts(const struct space *s, uint32_t order, const struct space_mesh *m)
{
    for (uint32_t before = 0; before < order; before++) {
        uint32_t i = 0, j = 0;
        while (i < NAXES || j < NAXES) {
            if (i < NAXES && order_size(m, s->order[before][i]) == 1)
                i++;
            else if (j < NAXES && order_size(m, s->order[order][j]) == 1)
                j++;
            else if (s->order[before][i] != s->order[order][j])
                break;
            else
                i++, j++;
        }
        if (i == NAXES && j == NAXES)
            return false;
    }
    return true;
}

static void add_schedule(struct space *s, enum schedule_kind kind, uint32_t vpp, uint32_t group, uint32_t groups_of_pp)
{
    if (s->nschedules < SPACE_SCHEDULES)
        s->schedules[s->nschedules++] = (struct space_schedule){.kind = kind,
                                                                .vpp = vpp,
                                                                .group = group,
                                                                .groups_of_pp = groups_of_pp,
                                                                .folds = schedule_chunks(kind) == 2};
}

/* Adds one kind of schedule with every number of chunks that it supports. */
static void add_kind(struct space *s, enum schedule_kind kind, uint32_t group, bool named)
{
    uint32_t chunks = schedule_chunks(kind);
    bool looped = chunks == 0;
    for (uint32_t i = 0; i < s->vpp.n; i++) {
        uint32_t v = s->vpp.at[i];
        if (looped ? v < 2 : v != chunks)
            continue;
        add_schedule(s, kind, v, group, looped && !group ? 1 : 0);
        if (looped && !group && !named &&
            means_of(s->job, TARGET_group) & 2) /* a schedule that the file names without a group has groups of pp */
            add_schedule(s, kind, v, 0, 2);
    }
}

/* Sorts schedules by chunks and placement, otherwise stable: consecutive ones then share their stages (family.c's
 * classes). */
static void sort_schedules(struct space *s)
{
    for (uint32_t i = 1; i < s->nschedules; i++) {
        struct space_schedule x = s->schedules[i];
        uint32_t key = 2 * x.vpp + x.folds, at = i;
        for (; at > 0 && 2 * s->schedules[at - 1].vpp + s->schedules[at - 1].folds > key; at--)
            s->schedules[at] = s->schedules[at - 1];
        s->schedules[at] = x;
    }
}

/* what the target says of a schedule that it does not have, for a model like this one or beside what the job has, and
 * the row that excludes it, else TARGET_ROWS; NULL: it has it */
static const char *schedule_refused(const struct space *s, enum schedule_kind k, enum target_row *with)
{
    uint32_t no_ep = target_bit(TARGET_experts, "no_ep");
    *with = TARGET_ROWS;
    if (!s->experts && means_exclude(s->job, TARGET_schedule, 1u << k, TARGET_experts, no_ep))
        return arena_printf(s->arena, "has schedule %s for models with experts alone", schedule_name(k));
    const char *lack = means_refused(s->arena, s->job, TARGET_schedule, 1u << k, with);
    return lack ? arena_printf(s->arena, "has no %s", lack) : NULL;
}

/* after schedule_refused() */
static void say_refused(struct diag *d, const struct space *s, struct span at, const char *refused,
                        enum target_row with)
{
    const struct target *t = s->job->wishes.target;
    diag_error(d, at, "target", "no plan: target %s %s", t->name, refused);
    if (with < TARGET_SETTINGS || with == TARGET_ROWS)
        diag_help(d, "drop the line, or write 'target %s'", TARGET_DEFAULT);
    else
        diag_help(d, "drop the line, or write '%s %s' or 'target %s'", target_row_name(with),
                  target_words(s->arena, with, t->has[with] & ~means_in_force(s->job, with)), TARGET_DEFAULT);
}

static bool space_schedules(struct diag *d, struct space *s)
{
    const struct wishes *w = &s->job->wishes;
    static const enum schedule_kind all[] = {
        SCHED_1F1B, SCHED_GPIPE,  SCHED_INTERLEAVED, SCHED_EAGER_1F1B,    SCHED_ZB_H1,    SCHED_ZB_H2,
        SCHED_ZB_V, SCHED_V_HALF, SCHED_V_MIN,       SCHED_COMBINED_1F1B, SCHED_DUALPIPE, SCHED_DUALPIPE_V,
#define SCHEDULE(KIND, word, arguments, stages, traits)
#define ORDERED(KIND, word, arguments, stages, traits) SCHED_##KIND,
#include "compiler/model/schedule.def"
    };
    bool automatic = w->nschedules == 0;
    enum target_row with;
    for (uint32_t i = 0; i < w->nschedules; i++) {
        const char *why = schedule_refused(s, w->schedules[i].kind, &with);
        automatic |= w->schedules[i].kind == SCHED_AUTO && !why;
        if (w->schedules[i].kind != SCHED_FILE)
            continue;
        if (why) {
            say_refused(d, s, w->schedules[i].span, why, with);
            return false;
        }
        if (s->nschedules == SPACE_SCHEDULES ||
            !space_schedule_file(d, s, &w->schedules[i], &s->schedules[s->nschedules++]))
            return false;
    }
    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        /* not a starting point for 'auto': it has two copies of the model */
        if (automatic && w->nschedules && all[k] == SCHED_DUALPIPE)
            continue;
        bool alone = automatic && all[k] == SCHED_1F1B; /* one rank's actions, which any target has */
        if (!alone && schedule_refused(s, all[k], &with))
            continue;
        for (uint32_t i = 0; i < (automatic ? 1 : w->nschedules); i++)
            if (automatic || w->schedules[i].kind == all[k]) {
                add_kind(s, all[k], automatic ? 0 : w->schedules[i].group, !automatic);
            }
    }
    sort_schedules(s);
    if (s->nschedules)
        return true;
    const char *refused = schedule_refused(s, w->schedules[0].kind, &with);
    if (refused) { /* others were refused before */
        say_refused(d, s, w->schedules[0].span, refused, with);
        return false;
    }
    diag_error(d, w->schedules[0].span, "no-plan",
               "no plan: schedule '%s' takes another number of chunks per rank (vpp)",
               schedule_name(w->schedules[0].kind));
    if (w->degree[DEG_VPP].relation != REL_ANY)
        diag_note(d, w->degree[DEG_VPP].span, "'vpp' excludes it");
    diag_help(d, "drop either line; v-shaped schedules take vpp 2, interleaved ones 2 or more, the others 1");
    return false;
}

bool space_schedule_takes(const struct space *s, const struct space_schedule *k, const struct decision *d)
{
    bool looped = schedule_chunks(k->kind) == 0;
    if (k->listed)
        return d->pp == k->listed->nranks && d->microbatches == k->listed->microbatches;
    if (d->pp == 1) /* without a pipeline all schedules are equal, or keep more; DualPipe needs a second rank */
        return k->vpp == 1 && k->kind == s->schedules[0].kind && k->kind != SCHED_DUALPIPE;
    if (k->kind == SCHED_DUALPIPE)
        return d->pp % 2 == 0 && d->microbatches % 2 == 0 && d->microbatches >= 2 * d->pp;
    if (k->kind == SCHED_DUALPIPE_V)
        return d->microbatches >= 2 * d->pp - 1;
    if (!looped)
        return true;
    if (k->groups_of_pp > 1 && d->microbatches <= d->pp)
        return false; /* with fewer microbatches than a group both group sizes give the same order */
    uint32_t group = k->group ? k->group : k->groups_of_pp * d->pp, rest = d->microbatches % group;
    if ((k->group || k->groups_of_pp > 1) && (group < d->pp || group > d->microbatches))
        return false;
    return d->microbatches <= group || rest == 0 || rest >= d->pp;
}

static bool space_type(struct arena *a, struct diag *d, struct space *s)
{
    const struct topo *t = s->topo;
    const struct wishes *w = &s->job->wishes;
    uint64_t best = 0;
    uint32_t with = 0;
    s->type = UINT32_MAX;
    for (uint32_t i = 0; i < t->ntypes; i++) {
        uint32_t *nodes, n = topo_usable(a, t, i, &nodes);
        if ((w->use && strcmp(w->use, t->types[i].id)) || n == 0)
            continue;
        with++;
        if ((uint64_t)n * t->types[i].gpus > best) {
            best = (uint64_t)n * t->types[i].gpus;
            s->type = i;
        }
    }
    s->usable = best;
    if (with == 1)
        return true;
    if (with == 0)
        diag_error(d, w->use_span, "no-plan", "no plan: the cluster has no usable nodes%s%s%s",
                   w->use ? " of type '" : "", w->use ? w->use : "", w->use ? "'" : "");
    else {
        diag_error(d, w->use_span, "no-plan", "no plan: the cluster has usable nodes of %u types and a plan uses one",
                   with);
        const char *types = "";
        for (uint32_t i = 0; i < t->ntypes; i++) {
            uint32_t *nodes, n = topo_usable(s->arena, t, i, &nodes);
            if (n)
                types = arena_printf(s->arena, "%s%s'use \"%s\"' (%llu GPUs)", types, *types ? " or " : "",
                                     t->types[i].id, (unsigned long long)n * t->types[i].gpus);
        }
        diag_help(d, "add %s to the plan block", types);
    }
    return false;
}

/* Checks the tiers of `keep AXIS within TIER`, which the language does not know. */
static bool space_keeps(struct arena *a, struct diag *d, const struct space *s)
{
    const struct wishes *w = &s->job->wishes;
    const struct topo *t = s->topo;
    for (uint32_t i = 0; i < w->nkeeps; i++) {
        const char *within = w->keeps[i].within, *names = "node, scale_up";
        bool known = !within || !strcmp(within, "node") || !strcmp(within, "scale_up");
        for (uint32_t k = 0; k < t->ntiers; k++) {
            known |= within && !strcmp(within, t->tiers[k].name);
            names = arena_printf(a, "%s, %s", names, t->tiers[k].name);
        }
        if (known)
            continue;
        diag_error(d, w->keeps[i].span, "no-plan", "no plan: '%s' has no tier '%s'", t->name ? t->name : "the cluster",
                   within);
        diag_help(d, "keep %s within one of %s, or within N nodes", w->keeps[i].axis, names);
        return false;
    }
    return true;
}

/* Warns of wishes that have no effect on anything in the space. */
static void warn_idle(struct diag *d, const struct space *s)
{
    const struct wishes *w = &s->job->wishes;
    if (w->sequence_parallel == TRI_YES && s->tp.at[s->tp.n - 1] == 1) {
        diag_warning(d, w->sequence_parallel_span, "idle", "sequence parallelism does nothing here: tp can only be 1");
        diag_help(d, "drop the line, or allow a larger tp");
    }
    const struct wish *shard = &w->degree[DEG_SHARD];
    if (shard->relation == REL_EQ && shard->value > 1 && s->zero.at[s->zero.n - 1] == 0) {
        diag_warning(d, shard->span, "idle", "there is no state to split over %llu ranks: zero can only be 0",
                     (unsigned long long)shard->value);
        diag_help(d, "allow zero 1, 2 or 3");
    }
}

bool space_new(struct arena *a, struct diag *d, const struct job *job, const struct topo *topo, bool anything,
               struct space *s)
{
    *s = (struct space){.arena = a, .job = job, .topo = topo, .anything = anything};
    s->experts = model_has_experts(&job->model);
    if (!means_check(a, d, job) || !space_type(a, d, s) || !space_keeps(a, d, s))
        return false;
    uint32_t *nodes;
    s->places[0] = (struct space_nodes){.block = 1, .n = topo_usable(a, topo, s->type, &nodes)};
    s->places[0].nodes = nodes;
    uint32_t *healthy;
    s->healthy.n = decision_healthy(a, topo, nodes, s->places[0].n, &healthy);
    s->healthy.nodes = healthy;
    s->nplaces = 1;
    const struct wish *gpus = &job->wishes.degree[DEG_GPUS];
    if ((gpus->relation == REL_EQ || gpus->relation == REL_GE) && gpus->value > s->usable) {
        diag_error(d, gpus->span, "no-plan", "no plan: %s but '%s' has %llu usable GPUs", wish_text(a, DEG_GPUS, gpus),
                   topo->name, (unsigned long long)s->usable);
        diag_help(d, "drop the line: as many as fit are used");
        return false;
    }
    bool good = make_list(a, d, s, DEG_TP, &s->tp);
    good &= make_list(a, d, s, DEG_CP, &s->cp);
    good &= make_list(a, d, s, DEG_PP, &s->pp);
    good &= make_list(a, d, s, DEG_VPP, &s->vpp);
    good &= make_list(a, d, s, DEG_DP, &s->dp);
    good &= make_list(a, d, s, DEG_EP, &s->ep);
    good &= make_list(a, d, s, DEG_ETP, &s->etp);
    good &= make_list(a, d, s, DEG_ZERO, &s->zero);
    if (good)
        warn_idle(d, s);
    if (!space_orders(d, s) || !good || !space_schedules(d, s))
        return false;
    space_recompute(a, s);
    return true;
}

uint32_t space_meshes(struct arena *a, const struct space *s, struct space_mesh **meshes)
{
    const struct wish *gpus = &s->job->wishes.degree[DEG_GPUS];
    VEC(struct space_mesh) out = {0};
    for (uint32_t i = 0; i < s->tp.n; i++)
        for (uint32_t j = 0; j < s->cp.n; j++)
            for (uint32_t k = 0; k < s->dp.n; k++)
                for (uint32_t l = 0; l < s->pp.n; l++) {
                    struct space_mesh m = {s->tp.at[i], s->cp.at[j], s->dp.at[k], s->pp.at[l]};
                    uint64_t n = (uint64_t)m.tp * m.cp;
                    if (n > s->usable || (n *= m.dp) > s->usable || (n *= m.pp) > s->usable)
                        break; /* pp ascends */
                    if (!space_wants(gpus, n))
                        continue;
                    vec_push(a, &out, m);
                }
    *meshes = out.at;
    return (uint32_t)out.n;
}
