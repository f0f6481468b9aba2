/* Why a search found nothing, in one message.
 *
 * Memory: the closest miss, itemised, and what each single change of it would save and cost.  Limits on time: the
 * fastest plan.  Wishes that exclude each other: each wish is dropped in turn and the search repeated on a small budget;
 * the first whose absence lets plans appear is named at its line, a second one in the note, with a value that works. */

#include "compiler/search/search_private.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <string.h>

#define TRIAL_BUDGET 200

static const struct span nowhere = {0};

bool search_emit_ready(const struct searching *s, struct diag *d)
{
    const struct wishes *w = &s->job->wishes;
    const char *what;
    struct span where;
    if (!s->emit_only)
        return true;
    if (model_unsupported(s->job, &what, &where)) {
        diag_error(d, where, "not-emittable", "no plan: %s can be estimated but not emitted yet", what);
        diag_help(d, "llmc estimate predicts it");
        return false;
    }
    uint32_t never = OVERLAP_DP | OVERLAP_PP, can = OVERLAP_DP | OVERLAP_PP;
    if (!w->offload && !(w->overlap & ~can) && !(w->never_overlap & never))
        return true;
    diag_error(d, w->span, "not-emittable", "no plan: %s can be estimated but not emitted yet",
               w->offload ? "offload" : w->overlap & ~can ? "overlap of tp, cp or all_to_all" : "never overlap of dp or pp");
    return false;
}

/* one change of the closest miss; false if it changes nothing that exists */
static bool change(struct arena *a, const struct searching *s, int which, struct decision *d, const char **name)
{
    const struct wishes *w = &s->job->wishes;
    if (which == 0 && d->recompute != RECOMPUTE_FULL) {
        d->recompute = RECOMPUTE_FULL;
        d->parts = 0;
        *name = "recompute full";
    } else if (which == 1 && d->pp * 2 <= s->job->model.nlayers && d->vpp == 1 && !w->layout &&
               (uint64_t)d->gpus_used * 2 <= s->space.usable) {
        d->pp *= 2;
        *name = arena_printf(a, "pp %u", d->pp);
    } else if (which == 2 && d->zero < 3 && d->dp > 1) {
        d->zero++;
        d->shard = d->dp * d->cp;
        *name = arena_printf(a, "zero %u", d->zero);
    } else if (which == 3 && d->tp * 2 <= s->topo->types[d->type].gpus && (uint64_t)d->gpus_used * 2 <= s->space.usable) {
        d->tp *= 2;
        *name = arena_printf(a, "tp %u", d->tp);
    } else if (which == 4 && d->tp > 1 && !d->sp) {
        d->sp = true;
        *name = "sequence parallelism";
    } else if (which == 5 && d->microbatch > 1 && d->microbatch % 2 == 0) {
        d->microbatch /= 2;
        d->microbatches *= 2;
        *name = arena_printf(a, "microbatch %u", d->microbatch);
    } else {
        return false;
    }
    return true;
}

static void memory_help(struct searching *s, struct strbuf *out)
{
    struct candidate *x = &s->result->closest;
    uint32_t n = s->job->model.nlayers;
    cost_estimate(s->arena, cost_new(s->arena, s->job, s->topo, &x->decision), &x->estimate);
    for (int which = 0; which < 6; which++) {
        struct decision d = x->decision;
        const char *name, *why;
        if (!change(s->arena, s, which, &d, &name) || !decision_place(s->arena, s->topo, &d, &why))
            continue;
        double *layer_s = ARENA_ARRAY(s->arena, double, n ? n : 1), embed_s, head_s;
        struct cost *c = cost_new(s->arena, s->job, s->topo, &d);
        cost_layers(s->arena, c, layer_s, &embed_s, &head_s);
        if (d.pp != x->decision.pp)
            decision_cut(s->arena, &d, n, layer_s, embed_s, head_s);
        if (!decision_legal(s->arena, s->job, s->topo, &d, &why))
            continue;
        struct estimate e;
        cost_estimate(s->arena, c, &e);
        if (e.peak_bytes >= x->estimate.peak_bytes)
            continue;
        double slower = 100 * (e.step_time_s / x->estimate.step_time_s - 1);
        strbuf_printf(out, "%s%s saves %s", out->length ? "; " : "", name,
                      units_show_bytes(x->estimate.peak_bytes - e.peak_bytes).s);
        if (d.gpus_used != x->decision.gpus_used)
            strbuf_printf(out, " on %u GPUs", d.gpus_used);
        else if (slower >= 0.5)
            strbuf_printf(out, " (+%.0f%% step time)", slower);
        if (s->emit_only && !decision_emittable(s->arena, s->job, &d, &why))
            strbuf_text(out, " (not emitted yet)");
    }
}

static void blame_memory(struct searching *s, struct diag *d)
{
    const struct candidate *x = &s->result->closest;
    const struct estimate *e = &x->estimate;
    const struct decision *c = &x->decision;
    diag_error(d, nowhere, "memory",
               "nothing fits in %s. Closest: tp %u, pp %u, cp %u, dp %u, zero %u, microbatch %u, recompute %s needs %s on "
               "stage %u",
               units_show_bytes(s->memory_limit).s, c->tp, c->pp, c->cp, c->dp, c->zero, c->microbatch,
               recompute_names[c->recompute], units_show_bytes(e->peak_bytes).s, e->peak_stage);
    bool small = e->peak_bytes < (uint64_t)1 << 30;
    double unit = small ? 1 << 20 : 1 << 30;
    diag_note(d, nowhere, "parameters %.1f  gradients %.1f  optimizer %.1f  activations %.1f  buffers %.1f %s",
              (double)e->parameter_bytes / unit, (double)e->gradient_bytes / unit, (double)e->optimizer_bytes / unit,
              (double)e->activation_bytes / unit, (double)e->buffer_bytes / unit, small ? "MiB" : "GiB");
    struct strbuf help = {0};
    memory_help(s, &help);
    if (help.length)
        diag_help(d, "%s", help.text);
    else
        diag_help(d, "use more GPUs, or GPUs with more memory");
    strbuf_free(&help);
}

/* the wishes that a trial can drop */
enum { DROP_KEEPS = NDEGREES, DROP_LAYOUT, DROP_SCHEDULE, DROP_SP, DROP_CONTEXT, DROP_ORDER, NDROPS };

static bool drop(struct job *job, int which, struct span *at)
{
    struct wishes *w = &job->wishes;
    if (which < NDEGREES) {
        *at = w->degree[which].span;
        bool stated = w->degree[which].relation != REL_ANY;
        w->degree[which].relation = REL_ANY;
        return stated;
    }
    bool stated = false;
    if (which == DROP_KEEPS && w->nkeeps) {
        *at = w->keeps[0].span;
        w->nkeeps = 0;
        stated = true;
    } else if (which == DROP_LAYOUT && w->layout) {
        *at = w->layout_span;
        w->layout = NULL;
        stated = true;
    } else if (which == DROP_SCHEDULE && w->nschedules) {
        *at = w->schedules[0].span;
        w->nschedules = 0;
        stated = true;
    } else if (which == DROP_SP && w->sequence_parallel != TRI_AUTO) {
        *at = w->sequence_parallel_span;
        w->sequence_parallel = TRI_AUTO;
        stated = true;
    } else if (which == DROP_CONTEXT && w->context != CONTEXT_AUTO) {
        *at = w->span;
        w->context = CONTEXT_AUTO;
        stated = true;
    } else if (which == DROP_ORDER && w->norder) {
        *at = w->order_span;
        w->norder = 0;
        stated = true;
    }
    return stated;
}

static uint64_t degree_value(const struct decision *d, int which)
{
    const uint32_t v[NDEGREES] = {[DEG_TP] = d->tp, [DEG_CP] = d->cp, [DEG_PP] = d->pp, [DEG_VPP] = d->vpp, [DEG_DP] = d->dp,
                                  [DEG_EP] = d->ep, [DEG_ETP] = d->etp, [DEG_ZERO] = d->zero, [DEG_SHARD] = d->shard,
                                  [DEG_MICROBATCH] = d->microbatch, [DEG_GPUS] = d->gpus_used};
    return v[which];
}

static const char *drop_name(int which)
{
    static const char *const names[] = {"keep", "layout", "schedule", "sequence_parallel", "context", "order"};
    return which < NDEGREES ? degree_names[which] : names[which - NDEGREES];
}

struct suspect {
    int which;
    struct span span;
    uint64_t value; /* of a degree, in the plan that appears without the wish */
    struct space_list values; /* all that it could be without the wish, for tp */
};

/* wishes whose absence lets plans appear */
static uint32_t find_suspects(struct searching *s, struct suspect *out, uint32_t room)
{
    uint32_t n = 0;
    struct searching *trial = ARENA_NEW(s->arena, struct searching);
    for (int which = 0; which < NDROPS && n < room; which++) {
        struct job job = *s->job;
        struct span at;
        if (!drop(&job, which, &at))
            continue;
        *trial = (struct searching){.arena = s->arena, .job = &job, .topo = s->topo, .emit_only = s->emit_only, .top = 1,
                                    .budget = TRIAL_BUDGET, .result = ARENA_NEW(s->arena, struct search_result)};
        if (!search_run(trial, diag_new(s->arena)) || !trial->result->evaluated)
            continue;
        const struct search_result *r = trial->result;
        uint64_t value = which >= NDEGREES  ? 0
                         : r->ncandidates   ? degree_value(&r->candidates[0].decision, which)
                         : r->has_closest   ? degree_value(&r->closest.decision, which)
                                            : 0;
        out[n++] = (struct suspect){which, at, value, trial->space.tp};
    }
    return n;
}

static void blame_wishes(struct searching *s, struct diag *d)
{
    struct suspect found[2];
    uint32_t n = find_suspects(s, found, 2);
    const struct wishes *w = &s->job->wishes;
    if (n == 0) {
        diag_error(d, w->span, "no-plan", "no plan: no combination of degrees satisfies the plan block on %llu GPUs%s",
                   (unsigned long long)s->space.usable,
                   s->nmeshes ? "" : ": tp * cp * dp * pp never meets the number of GPUs, with dp dividing the batch");
        diag_help(d, "drop wishes until plans appear; two or more of them exclude each other");
        return;
    }
    const struct suspect *x = &found[0];
    bool keep = n > 1 && found[1].which == DROP_KEEPS;
    const struct wish *wish = x->which < NDEGREES ? &w->degree[x->which] : NULL;
    if (wish && wish->relation == REL_EQ && keep)
        diag_error(d, x->span, "no-plan", "no plan: '%s' must be %llu but %s of '%s' has %u GPUs", drop_name(x->which),
                   (unsigned long long)wish->value,
                   w->keeps[0].within && !strcmp(w->keeps[0].within, "scale_up") ? "an NVLink domain" : "a node",
                   s->topo->types[s->space.type].id,
                   w->keeps[0].within && !strcmp(w->keeps[0].within, "scale_up") ? s->topo->types[s->space.type].scale_up.gpus
                                                                               : s->topo->types[s->space.type].gpus);
    else if (wish && wish->relation == REL_EQ)
        diag_error(d, x->span, "no-plan", "no plan: with '%s' = %llu nothing satisfies the rest of the plan block",
                   drop_name(x->which), (unsigned long long)wish->value);
    else
        diag_error(d, x->span, "no-plan", "no plan: with this '%s' nothing satisfies the rest of the plan block",
                   drop_name(x->which));
    if (n > 1 && !keep)
        diag_note(d, found[1].span, "'%s' excludes it", drop_name(found[1].which));
    else if (keep && w->keeps[0].within)
        diag_note(d, found[1].span, "'keep %s within %s'", w->keeps[0].axis, w->keeps[0].within);
    else if (keep)
        diag_note(d, found[1].span, "'keep %s within %llu nodes'", w->keeps[0].axis, (unsigned long long)w->keeps[0].nodes);
    if (wish && keep && x->which == DEG_TP) {
        const char *values = "";
        for (uint32_t i = 0; i < x->values.n && x->values.at[i] <= s->topo->types[s->space.type].gpus; i++)
            values = arena_printf(s->arena, "%s%s%u", values, i ? ", " : "", x->values.at[i]);
        diag_help(d, "drop either line, or allow tp in [%s]", values);
    } else if (wish && x->value)
        diag_help(d, "drop %s, or allow %s in [%llu]", n > 1 ? "either line" : "the line", drop_name(x->which),
                  (unsigned long long)x->value);
    else
        diag_help(d, "drop %s", n > 1 ? "either line" : "the line");
}

void search_blame(struct searching *s, struct diag *d)
{
    const struct search_result *r = s->result;
    if (s->too_slow) {
        diag_error(d, s->job->wishes.span, "too-slow", "no plan: the fastest that fits needs %s per step",
                   units_show_seconds(s->fastest_s).s);
        diag_help(d, "relax 'step_time' or 'finish', or use more GPUs");
    } else if (s->cannot) {
        diag_error(d, s->job->wishes.span, "not-emittable", "no plan: %s can be estimated but not emitted yet", s->cannot);
    } else if (r->has_closest) {
        blame_memory(s, d);
    } else {
        blame_wishes(s, d);
    }
}
