/* Does a decision obey the plan block, overrides included?  What pins or bounds a value of the decision is compared
 * with it here, one sentence per wish, with the statement that makes it.
 *
 * Not here: `keep` and `memory`, which are properties 8 and 6; `offload` and `post_validation`, which a decision
 * repeats and plan_read() compares; and what only bounds or weighs predictions (`minimize`, `step_time`, `finish`,
 * `leave`, `profile`, `adjust`): the search is run again, and its choice compared. */

#include "compiler/origin/origin.h"

#include "compiler/model/means.h"
#include "compiler/model/parse.h"
#include "compiler/search/space.h"
#include "compiler/support/strbuf.h"

#include <stdarg.h>
#include <string.h>

struct obeying {
    struct arena *arena;
    const struct plan *plan;
    struct origin *origin;
    const struct stmt *statements; /* of the plan block */
};

static const struct stmt *block_of(const struct stmt *s, const char *word)
{
    for (; s; s = s->next)
        if (!s->let && !strcmp(s->word, word))
            return s->block;
    return NULL;
}

/* The statement that counts for a word, as people find it: the last override, else that of the plan block; or what else
 * decides. */
static const char *statement(const struct obeying *b, const char *word, const char *otherwise)
{
    for (uint32_t i = b->plan->nsets; i-- > 0;) {
        const char *set = b->plan->sets[i];
        size_t n = strcspn(set, " =<>");
        if (n == strlen(word) && !strncmp(set, word, n))
            return arena_printf(b->arena, "the override '%.200s' asks for another", set);
    }
    for (const struct stmt *s = b->statements; s; s = s->next) {
        uint32_t line, column;
        if (s->let || strcmp(s->word, word) != 0)
            continue;
        source_position(s->span.source, s->span.start, &line, &column);
        int n = s->span.length < 200 ? (int)s->span.length : 200;
        return arena_printf(b->arena, "line %u of model.llm asks for another: '%.*s'", line, n,
                            s->span.source->text + s->span.start);
    }
    return otherwise;
}

static void disobeys(struct obeying *b, const char *key, const char *word, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void disobeys(struct obeying *b, const char *key, const char *word, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *is = arena_vprintf(b->arena, fmt, ap);
    va_end(ap);
    origin_add(b->origin, &(struct difference){.file = "plan.json",
                                               .key = key,
                                               .role = NONE,
                                               .instruction = NONE,
                                               .message = arena_printf(b->arena, "%s is %s, %s", key, is,
                                                                       statement(b, word, "which nobody asked for"))});
}

static void obey_degrees(struct obeying *b)
{
    const struct decision *d = &b->plan->decision;
    for (int i = 0; i < NDEGREES; i++) {
        struct wish wish = b->plan->job->wishes.degree[i];
        if (i == DEG_GPUS && wish.relation == REL_EQ) /* leftover GPUs give way: the search, run again, says which */
            wish.relation = REL_LE;
        uint32_t value = decision_degree(d, (enum degree)i);
        if (!space_wants(&wish, value))
            disobeys(b, i == DEG_GPUS ? "cluster.gpus_used" : arena_printf(b->arena, "decision.%s", degree_names[i]),
                     degree_names[i], "%u", value);
    }
}

/* A schedule without a group has groups of pp, which 'auto' beside it leaves open; 'auto' stands for one of its own,
 * and for any where there is no pipeline. */
static bool asked_schedule(const struct wishes *w, const struct decision *d)
{
    uint32_t has = d->schedule_group ? d->schedule_group : d->pp;
    bool open = false;
    for (uint32_t i = 0; i < w->nschedules; i++)
        open |= w->schedules[i].kind == SCHED_AUTO;
    for (uint32_t i = 0; i < w->nschedules; i++) {
        const struct schedule_wish *x = &w->schedules[i];
        bool grouped = x->kind == SCHED_INTERLEAVED || x->kind == SCHED_COMBINED_1F1B;
        if (x->kind == d->schedule && (open || !grouped || (x->group ? x->group : d->pp) == has))
            return true;
    }
    return open ? d->pp == 1 : w->nschedules == 0 && d->schedule != SCHED_FILE;
}

static void obey_schedule(struct obeying *b)
{
    const struct decision *d = &b->plan->decision;
    if (!asked_schedule(&b->plan->job->wishes, d))
        disobeys(b, "decision.schedule", "schedule", d->schedule_group ? "%s in groups of %u" : "%s",
                 schedule_name(d->schedule), d->schedule_group);
}

static void obey_recompute(struct obeying *b)
{
    const struct wishes *w = &b->plan->job->wishes;
    const struct decision *d = &b->plan->decision;
    uint32_t parts = w->parts ? w->parts : PART_CORE_ATTN, spared = 0;
    for (uint32_t i = 0; i < d->nstages && !d->recompute_layers; i++)
        spared += d->stages[i].spared;
    if (w->recompute == RECOMPUTE_AUTO ||
        (d->recompute == w->recompute && !spared && (w->recompute != RECOMPUTE_SELECTIVE || d->parts == parts) &&
         (w->recompute != RECOMPUTE_FULL || d->recompute_layers == w->recompute_layers)))
        return;
    const char *text = decision_recompute_text(b->arena, d, true);
    disobeys(b, "decision.recompute", "recompute", "%s", text + strlen("recompute "));
}

static void obey_kinds(struct obeying *b)
{
    const struct wishes *w = &b->plan->job->wishes;
    const struct decision *d = &b->plan->decision;
    if (d->sp ? w->sequence_parallel == TRI_NO : w->sequence_parallel == TRI_YES && d->tp > 1) {
        bool stated = strcmp(statement(b, "sequence_parallel", ""), "") != 0;
        disobeys(b, "decision.sp", stated ? "sequence_parallel" : "profile", "%s", d->sp ? "true" : "false");
    }
    if (d->cp > 1 && w->context != CONTEXT_AUTO && d->context != w->context)
        disobeys(b, "decision.context", "context", "%s", context_names[d->context]);
    if (w->use && strcmp(w->use, b->plan->topo->types[d->type].id) != 0)
        disobeys(b, "decision.node_type", "use", "%u, '%s'", d->type, b->plan->topo->types[d->type].id);
}

static void obey_order(struct obeying *b)
{
    const struct wishes *w = &b->plan->job->wishes;
    const struct decision *d = &b->plan->decision;
    bool same = true;
    for (uint32_t i = 0; i < w->norder && i < NAXES; i++) /* what is left out comes outermost */
        same = same && !strcmp(w->order[i], axis_names[d->order[i]]);
    if (!same)
        disobeys(b, "decision.order", "order", "%s, %s, %s, %s", axis_names[d->order[0]], axis_names[d->order[1]],
                 axis_names[d->order[2]], axis_names[d->order[3]]);
}

static void obey_layout(struct obeying *b)
{
    const struct wishes *w = &b->plan->job->wishes;
    const struct decision *d = &b->plan->decision;
    struct decision want = {0};
    const char *why;
    if (!w->layout || !decision_parse_layout(b->arena, &want, b->plan->job->model.nlayers, w->layout, &why))
        return;
    const char *is = decision_layout(b->arena, d);
    if (strcmp(decision_layout(b->arena, &want), is) != 0)
        disobeys(b, "decision.layout", "layout", "'%s'", decision_layout_short(b->arena, d));
}

/* what may hide beside what, and whatever else cannot be lowered */
static void obey_overlap(struct obeying *b)
{
    const char *why = "";
    if (!means_allow(b->arena, b->plan->job, &b->plan->decision, &why))
        origin_add(b->origin, &(struct difference){.file = "plan.json",
                                                   .key = "target",
                                                   .role = NONE,
                                                   .instruction = NONE,
                                                   .message = arena_printf(b->arena, "target %s", why)});
    if (!decision_emittable(b->arena, b->plan->job, &b->plan->decision, &why))
        origin_add(b->origin,
                   &(struct difference){.file = "plan.json",
                                        .role = NONE,
                                        .instruction = NONE,
                                        .message = arena_printf(b->arena, "the decision cannot be lowered: %s", why)});
}

void origin_wishes(struct arena *a, const struct plan *p, struct origin *o)
{
    struct ast *tree = parse_source(a, diag_new(a), p->job->source);
    struct obeying b = {a, p, o, tree ? block_of(tree->stmts, "plan") : NULL};
    obey_degrees(&b);
    obey_schedule(&b);
    obey_recompute(&b);
    obey_kinds(&b);
    obey_order(&b);
    obey_layout(&b);
    obey_overlap(&b);
}
