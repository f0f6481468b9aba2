/* `llmc explain`: what is asked, in which order.  The search runs once as `llmc plan` or `llmc estimate`
 * would; everything else changes one thing of its answer, or of its question, and looks again. */

#include "compiler/fit.h"
#include "compiler/inspect/explain_private.h"
#include "compiler/inspect/forecast.h"
#include "compiler/model/means.h"
#include "compiler/model/sema.h"
#include "compiler/simulate/predict.h"
#include "compiler/support/units.h"

#include <math.h>
#include <string.h>

#define POOL 24

/* a dimension's value in words; "" where it follows from others; whole: with what usually follows */
static const char *dimension_text(struct arena *a, const struct decision *d, enum dimension k, bool whole)
{
    switch (k) {
    case DIM_TP:
        return arena_printf(a, "tp %u", d->tp);
    case DIM_SP:
        return d->tp < 2 ? "" : d->sp ? "sp" : "no sp";
    case DIM_CP:
        return arena_printf(a, "cp %u", d->cp);
    case DIM_CONTEXT:
        return d->cp < 2 ? "" : arena_printf(a, "context %s", context_names[d->context]);
    case DIM_PP:
        return arena_printf(a, "pp %u", d->pp);
    case DIM_VPP:
        return arena_printf(a, "vpp %u", d->vpp);
    case DIM_EP:
        return arena_printf(a, "ep %u", d->ep);
    case DIM_ETP:
        return arena_printf(a, "etp %u", d->etp);
    case DIM_ZERO:
        return arena_printf(a, "zero %u", d->zero);
    case DIM_SHARD:
        return d->zero && (whole || d->shard < d->dp * d->cp) ? arena_printf(a, "shard %u", d->shard) : "";
    case DIM_MICROBATCH:
        return arena_printf(a, "microbatch %u", d->microbatch);
    case DIM_RECOMPUTE:
        /* in how many layers follows from memory: said where recompute is what differs */
        return decision_recompute_text(a, d, whole);
    case DIM_SCHEDULE:
        return d->pp < 2 ? "" : schedule_name(d->schedule);
    case DIM_ORDER:
        return arena_printf(a, "order %s %s %s %s", axis_names[d->order[0]], axis_names[d->order[1]],
                            axis_names[d->order[2]], axis_names[d->order[3]]);
    case DIM_GPUS:
        return arena_strdup(a, units_show_count(d->gpus_used, "GPU").s);
    case NDIMENSIONS:
        break;
    }
    return "";
}

static void choose(struct explanation *x)
{
    if (!x->plan) {
        x->chosen = x->found->candidates[0];
        return;
    }
    struct decision d = x->plan->decision;
    d.room = 0; /* it, as prefetch, follows from the placed plan, not from a search */
    const char *why = NULL, *text = decision_text(x->arena, x->job, &d), *stages = decision_layout(x->arena, &d);
    x->rank = UINT32_MAX;
    for (uint32_t i = 0; i < x->found->ncandidates && x->rank == UINT32_MAX; i++) {
        struct decision c = x->found->candidates[i].decision;
        double room = c.room;
        c.room = 0;
        if (strcmp(decision_text(x->arena, x->job, &c), text) || strcmp(decision_layout(x->arena, &c), stages))
            continue;
        x->rank = i;
        x->chosen = x->found->candidates[i];
        x->chosen.decision.prefetch = x->plan->decision.prefetch;
        if (room == x->plan->decision.room)
            return;
    }
    x->chosen = (struct candidate){.decision = x->plan->decision};
    x->chosen.emittable = decision_emittable(x->arena, x->job, &x->chosen.decision, &why);
    x->chosen.cannot = why;
    predict(x->arena, cost_new(x->arena, x->job, x->topo, &x->chosen.decision), &x->chosen.estimate);
}

/* in which choices the decision differs, its own dimension first; what follows from others is left out */
static const char *difference(struct arena *a, const struct decision *d, const struct decision *from,
                              enum dimension first)
{
    const char *text = "";
    for (uint32_t i = 0; i <= NDIMENSIONS; i++) {
        enum dimension k = i == 0 ? first : (enum dimension)(i - 1);
        const char *now = i > 0 && k == first ? "" : dimension_text(a, d, k, i == 0);
        if (*now && strcmp(now, dimension_text(a, from, k, i == 0)) != 0)
            text = arena_printf(a, "%s%s%s", text, *text ? ", " : "", now);
    }
    return text;
}

/* What the search's estimate has ahead of the plan is compiled as the plan was, and compared by that. */
static void compile_faster(struct explanation *x, struct explain_other *o)
{
    struct candidate *c = &o->candidate;
    const char *stuck;
    uint64_t bytes = c->estimate.peak_bytes;
    if (!x->plan || !o->fits || !c->emittable || o->slower >= 0)
        return;
    struct plan *p = fit_decision(x->arena, x->job, x->topo, &c->decision, &(struct compile_options){0},
                                  &c->estimate.peak_bytes, &stuck);
    if (p && job_is_modelled(x->job)) /* another stack's bytes are not those of the arena */
        c->estimate.peak_bytes = bytes;
    o->compiled = true;
    o->fits = p != NULL;
    if (!p) {
        o->why = stuck ? stuck
                       : arena_printf(x->arena, "needs %s once placed", units_show_bytes(c->estimate.peak_bytes).s);
        return;
    }
    c->estimate.step_time_s = 1e-9 * (double)p->timeline->step_ns;
    o->slower = fit_worth(x->job, c->estimate.step_time_s, &c->decision) /
                    fit_worth(x->job, 1e-9 * (double)x->plan->timeline->step_ns, &x->plan->decision) -
                1;
    plan_close(p);
}

static void find_others(struct explanation *x)
{
    struct neighbour *list = ARENA_ARRAY(x->arena, struct neighbour, NDIMENSIONS);
    search_neighbours(x->arena, x->job, x->topo, &x->chosen, x->emit_only, list);
    for (uint32_t k = 0; k < NDIMENSIONS; k++) {
        const struct neighbour *n = &list[k];
        bool again = false;
        for (size_t i = 0; i < x->others.n; i++)
            again |= (n->found || n->memory) &&
                     !strcmp(decision_text(x->arena, x->job, &x->others.at[i].candidate.decision),
                             decision_text(x->arena, x->job, &n->candidate.decision));
        if ((!n->found && !n->memory) || again)
            continue;
        struct explain_other o = {
            .candidate = n->candidate, .fits = n->found, .wished = n->wished, .slower = n->slower};
        o.dimension = dimension_names[k];
        o.what = difference(x->arena, &n->candidate.decision, &x->chosen.decision, n->dimension);
        if (n->memory)
            o.why = arena_printf(x->arena, "needs %s", units_show_bytes(n->candidate.estimate.peak_bytes).s);
        compile_faster(x, &o);
        vec_push(x->arena, &x->others, o);
    }
}

/* The best of what the choice left aside: of what the search refused, for a plan; of what can be emitted, for an
 * estimate.
 */
static void find_left_out(struct explanation *x)
{
    const struct search_result *r = x->found;
    if (x->plan) {
        x->has_left_out = r->has_refused && r->refused.estimate.step_time_s < x->chosen.estimate.step_time_s;
        x->left_out = r->refused;
    } else if (!x->chosen.emittable) {
        r = search(x->arena, diag_new(x->arena), x->job, x->topo, 1, x->budget, true);
        x->has_left_out = r->ncandidates > 0;
        if (r->ncandidates)
            x->left_out = r->candidates[0];
    }
}

static double step_of(struct explanation *x, const struct job *job)
{
    struct estimate e;
    predict(x->arena, cost_new(x->arena, job, x->topo, &x->chosen.decision), &e);
    return e.step_time_s;
}

static bool setting_matters(enum target_row row, const struct decision *d)
{
    enum target_of of = target_setting_of(row);
    return of == TARGET_OF_EXPERTS ? d->ep > 1 : of == TARGET_OF_TP ? d->tp > 1 : true;
}

/* what each other setting of the target would make of the chosen decision */
static void find_settings(struct explanation *x)
{
    const struct target *t = x->job->wishes.target;
    const char *why;
    if (!job_is_modelled(x->job))
        return;
    double own_s = step_of(x, x->job);
    for (enum target_row row = TARGET_SETTINGS; row < TARGET_ROWS; row++)
        for (uint32_t rest = setting_matters(row, &x->chosen.decision) ? t->has[row] : 0; rest; rest &= rest - 1) {
            uint32_t bit = rest & (0 - rest);
            const struct job *job = job_with_setting(x->arena, x->job, row, bit);
            if (bit == means_setting(x->job, row) || !means_allow(x->arena, job, &x->chosen.decision, &why))
                continue;
            struct explain_setting s = {target_phrase(x->arena, row, bit), step_of(x, job) / own_s - 1};
            if (fabs(s.slower) >= 0.0005)
                vec_push(x->arena, &x->settings, s);
        }
}

bool explain_find(struct explanation *x, struct diag *d)
{
    const struct plan *plan = x->plan;
    x->emit_only = plan != NULL;
    x->found = search(x->arena, d, x->job, x->topo, POOL, x->budget, x->emit_only);
    x->memory_limit_bytes = x->found->memory_limit_bytes;
    if (!plan && !x->found->ncandidates) {
        x->reason = diag_first(d);
        explain_rescue(x);
        return false;
    }
    choose(x);
    x->shown = plan ? forecast_items(plan, &x->chosen.estimate) : x->chosen.estimate;
    x->cost = cost_new(x->arena, x->job, x->topo, &x->chosen.decision);
    find_others(x);
    explain_shifts(x);
    explain_jitter(x);
    explain_nodes(x);
    find_left_out(x);
    find_settings(x);
    x->has_beyond = search_beyond(x->arena, x->job, x->topo, x->budget, &x->beyond, &x->lacks) &&
                    x->beyond.estimate.step_time_s < x->chosen.estimate.step_time_s;
    return true;
}

enum status explain(struct arena *a, struct diag *d, struct job *job, struct topo *topo, const struct plan *plan,
                    const struct explain_options *o, FILE *out)
{
    struct explanation x = {.arena = a, .job = job, .topo = topo, .plan = plan, .budget = o->budget, .all = o->all};
    bool found = explain_find(&x, d);
    if (!found && !o->quiet)
        diag_print(d, stderr, o->colour);
    o->json ? explain_json(&x, out) : explain_text(&x, o->all, o->width, out);
    return found ? STATUS_OK : STATUS_NO_PLAN;
}
