/* The explanation as text: short, in order of importance, one screen; --all adds what is small or the same.
 */

#include "compiler/inspect/estimate.h"
#include "compiler/inspect/explain_private.h"
#include "compiler/inspect/fitted.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* effects below this are not worth a line of their own */
#define SMALL 0.001
#define OTHERS_SHOWN 7

/* items, their shares and their total; rounded so that both columns add up as printed */
static void print_items(const struct explain_item *item, uint32_t n, struct explain_unit u, bool all, const char *total,
                        FILE *out)
{
    int64_t shown[EXPLAIN_ITEMS] = {0}, share[EXPLAIN_ITEMS] = {0};
    double value[EXPLAIN_ITEMS] = {0}, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += value[i] = item[i].value;
    int64_t whole = explain_round(value, n, u.step, shown), tenths = explain_round(value, n, sum / 1000, share);
    double scale = u.step / u.per_name;
    for (uint32_t i = 0; i < n; i++) {
        if (!all && !shown[i])
            continue;
        fprintf(out, "  %-24s %9.*f %-3s %5.1f %%  %s\n", item[i].name, u.decimals, (double)shown[i] * scale, u.name,
                (double)share[i] / 10, *item[i].how ? item[i].how : item[i].meaning);
        if (all && *item[i].detail)
            fprintf(out, "  %24s %s\n", "", item[i].detail);
    }
    fprintf(out, "  %-24s %9.*f %-3s %5.1f %%%s%s\n", "total", u.decimals, (double)whole * scale, u.name,
            (double)tenths / 10, *total ? "  " : "", total);
}

static void print_head(const struct explanation *x, FILE *out)
{
    const struct candidate *c = &x->chosen;
    struct predicted f = predicted_new(x->job, x->topo, &c->decision, x->shown.step_time_s);
    fprintf(out, "%s on %s of %s of %s: %s per step, %s tokens/s/GPU", x->job->model.name,
            units_show_commas(c->decision.gpus_used).s, units_show_count(x->topo->gpus, "GPU").s, x->topo->name,
            units_show_seconds(f.step_time_s).s, units_show_rate(f.tokens_per_s_per_gpu).s);
    if (f.mfu > 0)
        fprintf(out, ", MFU %.1f %%", 100 * f.mfu);
    fprintf(out, "\n  %s\n", decision_text(x->arena, x->job, &c->decision));
    const struct whole_run run = run_whole(x->cost, &c->estimate, x->shown.step_time_s);
    if (run.steps)
        fprintf(out, "  the run %s%s%s\n", run_text(x->arena, &run), x->all ? "\n    " : "",
                x->all ? run_detail(x->arena, &run, 4) : "");
    if (x->plan)
        fprintf(
            out,
            "  compiled, placed and simulated instruction by instruction; other plans, below, are compared with the "
            "search's estimate of this one, %s per step and %s, and compiled where that has them ahead\n",
            units_show_seconds(c->estimate.step_time_s).s, units_show_bytes(c->estimate.peak_bytes).s);
    if (x->plan && x->rank == UINT32_MAX)
        fprintf(out, "  not among the %u best of a new search: it was chosen by other limits or by another version\n",
                x->found->ncandidates);
    else if (x->plan && x->rank)
        fprintf(out, "  the search has %u plan%s before it by estimates; compiled, none is so much faster or fits\n",
                x->rank, x->rank > 1 ? "s" : "");
    fprintf(out, "  target %s, profile %s\n", job_target(x->job),
            estimate_basis(x->arena, x->job, x->topo, &c->decision));
    if (x->has_beyond)
        fprintf(out, "  faster by the same estimate, but %s has no %s: %s (%+.1f %%)\n", job_target(x->job), x->lacks,
                decision_text(x->arena, x->job, &x->beyond.decision),
                100 * (x->beyond.estimate.step_time_s / c->estimate.step_time_s - 1));
    const struct candidate *l = &x->left_out;
    double other = x->has_left_out ? l->estimate.step_time_s / c->estimate.step_time_s - 1 : 0;
    if (!c->emittable && x->has_left_out)
        fprintf(out, "  not emitted yet: %s; the best that is: %s (%+.1f %%)\n", c->cannot,
                decision_text(x->arena, x->job, &l->decision), 100 * other);
    else if (!c->emittable)
        fprintf(out, "  not emitted yet: %s\n", c->cannot);
    else if (x->has_left_out)
        fprintf(out, "  faster by the same estimate, but not emitted yet (%s): %s (%+.1f %%)\n", l->cannot,
                decision_text(x->arena, x->job, &l->decision), 100 * other);
}

static int by_loss(const void *left, const void *right)
{
    const struct explain_other *a = left, *b = right;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    return a->slower != b->slower ? a->slower < b->slower ? -1 : 1 : strcmp(a->dimension, b->dimension);
}

static void print_others(const struct explanation *x, bool all, FILE *out)
{
    uint32_t n = (uint32_t)x->others.n, shown = 0;
    if (!n)
        return;
    struct explain_other *sorted = ARENA_ARRAY(x->arena, struct explain_other, n);
    memcpy(sorted, x->others.at, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_loss);
    fprintf(out, "\nOne thing different\n");
    const char *misses = "";
    for (uint32_t i = 0; i < n; i++) {
        const struct explain_other *o = &sorted[i];
        const struct estimate *e = &o->candidate.estimate;
        if (!o->fits)
            misses = arena_printf(x->arena, "%s%s%s %s", misses, *misses ? "; " : "", o->what, o->why);
        if (!o->fits || (!all && shown == OTHERS_SHOWN))
            continue;
        shown++;
        const char *emitted = o->candidate.emittable == x->chosen.emittable ? ""
                              : o->candidate.emittable                      ? ", can be emitted"
                                                                            : ", not emitted yet";
        fprintf(out, "  %+6.1f %% %9s %9s  %s%s%s%s\n", 100 * o->slower, units_show_seconds(e->step_time_s).s,
                units_show_bytes(e->peak_bytes).s, o->what, emitted, o->compiled ? ", compiled" : "",
                o->wished ? ", against the plan block" : "");
    }
    if (*misses)
        fprintf(out, "  does not fit: %s\n", misses);
}

static int by_effect(const void *left, const void *right)
{
    const struct explain_shift *a = *(const struct explain_shift *const *)left,
                               *b = *(const struct explain_shift *const *)right;
    double s = fabs(a->less), t = fabs(b->less);
    return s != t ? s > t ? -1 : 1 : strcmp(a->key, b->key);
}

static void print_shifts(const struct explanation *x, bool all, FILE *out)
{
    uint32_t n = (uint32_t)x->shifts.n;
    const struct explain_shift **sorted = ARENA_ARRAY(x->arena, const struct explain_shift *, n ? n : 1);
    for (uint32_t i = 0; i < n; i++)
        sorted[i] = &x->shifts.at[i];
    qsort(sorted, n, sizeof *sorted, by_effect);
    const char *small = "";
    bool other = false;
    fprintf(out, "\nWhat it depends on (step time at -10 %% and +10 %%)\n");
    for (uint32_t i = 0; i < n; i++) {
        const struct explain_shift *s = sorted[i];
        other |= s->choice != NULL;
        if (!all && !s->choice && fabs(s->less) < SMALL && !(fabs(s->more) >= SMALL)) {
            small = arena_printf(x->arena, "%s%s%s", small, *small ? ", " : "", s->what);
            continue;
        }
        fprintf(out, "  %-24s %+8.1f %%", s->what, 100 * s->less);
        if (!isnan(s->more))
            fprintf(out, " %+8.1f %%", 100 * s->more);
        if (s->note)
            fprintf(out, "%s  %s", isnan(s->more) ? "           " : "", s->note);
        fprintf(out, "\n");
        if (s->choice)
            fprintf(out, "    then %s would be %.1f %% faster\n", s->choice, 100 * s->gain);
    }
    if (x->has_jitter)
        fprintf(out, "  %-24s %+8.1f %%             %u replicas wait for the slowest; %+.1f %% on one alone\n",
                arena_printf(x->arena, "every action off by %.0f %%", 100 * x->jitter_share), 100 * x->jitter_slowest,
                x->chosen.decision.dp, 100 * x->jitter_mean);
    if (*small)
        fprintf(out, "  less than %.1f %%: %s\n", 100 * SMALL, small);
    if (!other && all)
        fprintf(out, "  A new search in each of these cases chooses the same plan, or one as fast.\n");
    else if (!other && x->found->ncandidates > 1)
        fprintf(out, "  None of the %u best plans would be chosen instead in any of these cases.\n",
                x->found->ncandidates);
}

static void print_settings(const struct explanation *x, FILE *out)
{
    if (x->settings.n)
        fprintf(out, "\nSettings of %s, for this plan by the estimate\n", job_target(x->job));
    for (size_t i = 0; i < x->settings.n; i++)
        fprintf(out, "  %+6.1f %%  %s\n", 100 * x->settings.at[i].slower, x->settings.at[i].what);
}

static void print_changes(const struct explanation *x, FILE *out)
{
    if (!x->changes.n)
        return;
    fprintf(out, "\nWhat would be better\n");
    for (size_t i = 0; i < x->changes.n; i++) {
        const struct explain_change *c = &x->changes.at[i];
        const struct candidate *then = &c->candidate, *now = &x->chosen;
        double step = then->estimate.step_time_s / now->estimate.step_time_s - 1;
        double gpu = (1 + step) * then->decision.gpus_used / now->decision.gpus_used - 1;
        fprintf(out, "  %s: %s per step (%+.1f %%), GPU time %+.1f %%\n", c->what,
                units_show_seconds(then->estimate.step_time_s).s, 100 * step, 100 * gpu);
        fprintf(out, "    %s\n", c->how);
    }
}

/* branches by constraint, the most first */
static void print_removed(const struct search_result *r, FILE *out)
{
    static const char *const meaning[NREMOVALS] = {
        [REMOVED_BOUND] = "not looked at: even their bound is slower",
        [REMOVED_MEMORY] = "need more memory than there is",
        [REMOVED_KEEP] = "meshes that break a 'keep' or don't fit the nodes in one piece",
        [REMOVED_TIME] = "slower than the limit on time",
        [REMOVED_EMIT] = "fit, but can't be emitted yet",
        [REMOVED_SAME] = "orders of a mesh's axes that cost the same",
    };
    uint32_t order[NREMOVALS];
    for (uint32_t i = 0; i < NREMOVALS; i++) {
        uint32_t at = i;
        for (; at > 0 && r->removed[order[at - 1]] < r->removed[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    fprintf(out, "\nWhat ruled out the rest (%s configurations looked at, of %s)\n", units_show_commas(r->evaluated).s,
            units_show_commas(r->space).s);
    fprintf(out, "  in branches of the search, each of one configuration to very many:\n");
    for (uint32_t i = 0; i < NREMOVALS; i++)
        if (r->removed[order[i]])
            fprintf(out, "  %13s  %s\n", units_show_commas(r->removed[order[i]]).s, meaning[order[i]]);
}

/* which choices the plan block left open, and which it made */
static void print_space(const struct explanation *x, FILE *out)
{
    const struct wishes *w = &x->job->wishes;
    const char *open = "", *made = "";
    for (uint32_t i = 0; i < NDEGREES; i++) {
        const char **list = w->degree[i].relation == REL_EQ ? &made : &open;
        *list = arena_printf(x->arena, "%s%s%s", *list, **list ? ", " : "", degree_names[i]);
    }
    const struct {
        const char *name;
        bool made;
    } others[] = {{"sequence_parallel", w->sequence_parallel != TRI_AUTO},
                  {"context", w->context != CONTEXT_AUTO},
                  {"schedule", w->nschedules > 0},
                  {"recompute", w->recompute != RECOMPUTE_AUTO},
                  {"layout", w->layout != NULL},
                  {"order", w->norder > 0}};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        const char **list = others[i].made ? &made : &open;
        *list = arena_printf(x->arena, "%s%s%s", *list, **list ? ", " : "", others[i].name);
    }
    fprintf(out, "  open were %s\n", *open ? open : "no choices");
    if (*made)
        fprintf(out, "  the plan block decides %s\n", made);
}

static void print_certificate(const struct explanation *x, bool all, FILE *out)
{
    const struct search_result *r = x->found;
    bool passed = false; /* by a neighbour that the search did not come to */
    for (size_t i = 0; i < x->others.n; i++)
        passed |= x->others.at[i].fits && !x->others.at[i].wished && x->others.at[i].slower < -SMALL;
    print_removed(r, out);
    fprintf(out, "\nHow sure\n");
    if (all)
        print_space(x, out);
    if (r->given_up >= 0.0005)
        fprintf(out, "  A less plain one would be %.1f %% faster, which is less than this model can tell:\n    %s\n",
                100 * r->given_up, decision_text(x->arena, x->job, &r->fastest.decision));
    if (r->gap > r->given_up)
        fprintf(
            out,
            "  The budget ended before the space: something in it may be up to %.1f %% faster, nothing more; --budget %llu lets the search look further%s.\n",
            100 * r->gap, (unsigned long long)(SEARCH_MORE * r->budget),
            passed ? ", which is worth while: one thing different is faster already" : "");
    else
        fprintf(out,
                "  By this cost model nothing in the space that the plan block allows is faster%s: every "
                "plan was looked at or is ruled out by a lower bound on its time.\n",
                r->given_up >= 0.0005 ? " than that" : "");
    if (r->simulated == 1)
        fprintf(out, "  The best one was run through its schedule, action by action.\n");
    else if (r->simulated)
        fprintf(out, "  The best %s were run through their schedules, action by action.\n",
                units_show_commas(r->simulated).s);
}

static void print_rescue(const struct explanation *x, bool all, FILE *out)
{
    uint32_t n = (uint32_t)x->changes.n;
    if (!n) {
        fprintf(out, "No single change of the request was found that some plan would satisfy.\n");
        return;
    }
    fprintf(out, "What would make it possible\n");
    for (uint32_t i = 0; i < n && (all || i < 8); i++) {
        const struct explain_change *c = &x->changes.at[i];
        const struct estimate *e = &c->candidate.estimate;
        fprintf(out, "  %s: %s per step on %s, %s\n", c->what, units_show_seconds(e->step_time_s).s,
                units_show_count(c->candidate.decision.gpus_used, "GPU").s, units_show_bytes(e->peak_bytes).s);
        fprintf(out, "    %s\n", c->how);
    }
}

static void print_all(const struct explanation *x, bool all, FILE *out)
{
    struct explain_item item[EXPLAIN_ITEMS];
    const struct estimate *e = &x->shown;
    if (!x->cost) {
        print_rescue(x, all, out);
        return;
    }
    print_head(x, out);
    fprintf(out, "\nTime of a step\n");
    uint32_t n = explain_time_items(x->arena, x->cost, e, item);
    print_items(item, n, explain_unit_seconds(e->step_time_s), all, "", out);
    fprintf(out, "\nMemory of stage %u, the fullest\n", e->peak_stage);
    n = explain_memory_items(x->arena, x->cost, e, item);
    print_items(item, n, explain_unit_bytes((double)e->peak_bytes), all,
                arena_printf(x->arena, "of %s", units_show_bytes(x->memory_limit_bytes).s), out);
    print_others(x, all, out);
    print_shifts(x, all, out);
    print_settings(x, out);
    print_changes(x, out);
    print_certificate(x, all, out);
}

void explain_text(const struct explanation *x, bool all, uint32_t width, FILE *out)
{
    struct fitted f;
    if (!fitted_open(&f))
        return;
    print_all(x, all, f.stream);
    fitted_close(&f, width, out);
}
