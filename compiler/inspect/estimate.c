/* Printing of what is predicted: of the first candidate as it is compiled (forecast.h), where it can be; of the others
 * by the search. */

#include "compiler/inspect/estimate.h"

#include "compiler/inspect/explain_items.h"
#include "compiler/inspect/fitted.h"
#include "compiler/inspect/lesson.h"
#include "compiler/inspect/show.h"
#include "compiler/inspect/traffic.h"
#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <string.h>

struct predicted estimate_predicted(const struct job *job, const struct topo *topo, const struct candidate *c)
{
    const struct estimate *e = &c->estimate;
    struct predicted f = predicted_new(job, topo, &c->decision, e->step_time_s);
    f.bubble_fraction = e->bubble_s / e->step_time_s;
    f.exposed_comm_fraction = (e->tp_comm_s + e->pp_comm_s + e->dp_comm_s) / e->step_time_s;
    f.peak_memory_bytes = e->peak_bytes;
    const uint32_t size[NAXES] = {
        [AXIS_TP] = c->decision.tp, [AXIS_CP] = c->decision.cp, [AXIS_DP] = c->decision.dp, [AXIS_PP] = c->decision.pp};
    const uint32_t coord[NDIGITS] = {[AXIS_PP] = e->peak_stage};
    struct mesh mesh = mesh_new(size, c->decision.order);
    f.peak_memory_rank = mesh_rank(&mesh, coord);
    return f;
}

static struct whole_run candidate_run(struct arena *a, const struct job *job, const struct topo *topo,
                                      const struct candidate *c)
{
    return run_whole(cost_new(a, job, topo, &c->decision), &c->estimate, c->estimate.step_time_s);
}

/* Generations of accelerators whose kernels measured runs have calibrated; processors are described by their
 * file. */
static bool is_calibrated(const struct topo_gpu *gpu)
{
    static const uint32_t sm[] = {80, 90, 100, 103};
    for (size_t i = 0; i < ARRAY_LEN(sm); i++)
        if (gpu->sm == sm[i])
            return true;
    return topo_is_cpu(gpu);
}

const char *estimate_basis(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d)
{
    const struct topo_gpu *gpu = &topo->types[d->type].gpu;
    const char *guess = is_calibrated(gpu)
                            ? ""
                            : arena_printf(a, "; extrapolated: no run has calibrated kernels of %s", gpu->model);
    struct strbuf text = {0};
    strbuf_text(&text, job->wishes.profile_name);
    for (uint32_t i = 0; i < job->wishes.nadjusts; i++)
        strbuf_printf(&text, "%s %s %g", i ? "," : " with", job->wishes.adjusts[i].param->name,
                      job->wishes.adjusts[i].value);
    strbuf_text(&text, guess);
    char *whole = arena_strdup(a, text.text);
    strbuf_free(&text);
    return whole;
}

static void print_parts(const struct explain_item *item, uint32_t n, struct explain_unit u, FILE *out)
{
    int64_t shown[EXPLAIN_ITEMS] = {0}, share[EXPLAIN_ITEMS] = {0};
    double value[EXPLAIN_ITEMS] = {0}, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += value[i] = item[i].value;
    explain_round(value, n, u.step, shown);
    explain_round(value, n, sum / 1000, share);
    for (uint32_t i = 0; i < n; i++)
        if (value[i] > 0)
            fprintf(out, "    %-26s %9.*f %-3s %5.1f %%\n", item[i].name, u.decimals,
                    (double)shown[i] * u.step / u.per_name, u.name, (double)share[i] / 10);
}

static void print_total(const char *head, double value, struct explain_unit u, const char *rest, FILE *out)
{
    fprintf(out, "  %-9s%.*f %s%s\n", head, u.decimals, value / u.per_name, u.name, rest);
}

static void print_best(const struct job *job, const struct topo *topo, const struct search_result *r, FILE *out)
{
    struct arena *a = arena_new();
    const struct candidate *c = &r->candidates[0];
    const struct estimate *e = &c->estimate;
    struct predicted f = estimate_predicted(job, topo, c);
    struct explain_item item[EXPLAIN_ITEMS];
    fprintf(out, "%s on %s of %s of %s\n", job->model.name, units_show_commas(c->decision.gpus_used).s,
            units_show_count(topo->gpus, "GPU").s, topo->name);
    fprintf(out, "  model    %s\n", show_job(a, job));
    fprintf(out, "  plan     %s\n", decision_text(a, job, &c->decision));
    fprintf(out, "  stages   %s\n", decision_layout_short(a, &c->decision));
    fprintf(out, "  target   %s\n", job_target(job));
    fprintf(out, "  profile  %s\n", estimate_basis(a, job, topo, &c->decision));
    const char *mfu = f.mfu > 0 ? arena_printf(a, ", MFU %.1f %%", 100 * f.mfu) : "";
    struct explain_unit u = explain_unit_seconds(e->step_time_s);
    print_total("step", e->step_time_s, u,
                arena_printf(a, ", %s tokens/s, %s tokens/s/GPU, %s/GPU%s",
                             units_show_rate(f.tokens_per_s_per_gpu * c->decision.gpus_used).s,
                             units_show_rate(f.tokens_per_s_per_gpu).s, units_show_flop_s(f.model_flops_per_gpu_s).s,
                             mfu),
                out);
    print_parts(item, explain_time_items(a, NULL, e, item), u, out);
    u = explain_unit_bytes((double)e->peak_bytes);
    print_total("memory", (double)e->peak_bytes, u,
                arena_printf(a, " of %s on stage %u", units_show_bytes(r->memory_limit_bytes).s, e->peak_stage), out);
    print_parts(item, explain_memory_items(a, NULL, e, item), u, out);
    const struct whole_run run = candidate_run(a, job, topo, c);
    if (run.steps)
        fprintf(out, "  run      %s\n           %s\n", run_text(a, &run), run_detail(a, &run, 11));
    if (!c->emittable)
        fprintf(out, "  not emitted yet: %s\n", c->cannot);
    arena_free(a);
}

/* a candidate's decision, with what tells it from those before it where that says the same: GPUs, stages */
static const char *candidate_text(struct arena *a, const struct job *job, const struct search_result *r, uint32_t at)
{
    const struct decision *d = &r->candidates[at].decision;
    const char *text = decision_text(a, job, d);
    bool same = false;
    for (uint32_t i = 0; i < at && !same; i++)
        same = !strcmp(text, decision_text(a, job, &r->candidates[i].decision));
    const char *gpus = d->gpus_used == r->candidates[0].decision.gpus_used
                           ? ""
                           : arena_printf(a, ", on %s", units_show_count(d->gpus_used, "GPU").s);
    const char *stages = same ? arena_printf(a, ", stages %s", decision_layout_short(a, d)) : "";
    return arena_printf(a, "%s%s%s%s", text, stages, gpus, r->candidates[at].emittable ? "" : " *");
}

/* the step of a candidate, and its bytes: of its programs where it was compiled */
static struct candidate candidate_known(const struct job *job, const struct candidate *c)
{
    struct candidate known = *c;
    if (c->simulated_s > 0)
        known.estimate.step_time_s = c->simulated_s;
    if (c->placed_bytes && !job_is_modelled(job)) /* another stack places nothing */
        known.estimate.peak_bytes = c->placed_bytes;
    return known;
}

/* false: it was compiled, and is too large */
static bool candidate_fits(const struct candidate *c)
{
    return c->simulated_s > 0 || !c->placed_bytes;
}

static void print_targets(struct arena *a, const struct topo *topo, const struct estimate_more *more, FILE *out)
{
    if (more->ntargets)
        fprintf(out,
                "\n  the best of each target, with its own means and figures, by the search's estimate\n"
                "  %-14s %8s %8s %9s   %s\n",
                "", "step", "MFU %", "memory", "plan");
    for (uint32_t i = 0; i < more->ntargets; i++) {
        const struct target_best *x = &more->targets[i];
        const char *name = job_target(x->job);
        if (!x->found) {
            fprintf(out, "  %-14s %8s %8s %9s   %s\n", name, "-", "-", "-", x->why);
            continue;
        }
        const char *cannot = x->candidate.emittable ? ""
                                                    : arena_printf(a, "; not emitted yet: %s", x->candidate.cannot);
        fprintf(out, "  %-14s %8s %8.1f %9s   %s%s\n", name, units_show_seconds(x->candidate.estimate.step_time_s).s,
                100 * estimate_predicted(x->job, topo, &x->candidate).mfu,
                units_show_bytes(x->candidate.estimate.peak_bytes).s, decision_text(a, x->job, &x->candidate.decision),
                cannot);
    }
}

static void print_others(struct arena *a, const struct job *job, const struct topo *topo, const struct search_result *r,
                         FILE *out)
{
    bool planned = false, compiled = false, large = false;
    fprintf(out, "\n  others, by the search's estimate\n  %4s %10s %8s %9s   %s\n", "", "step", "MFU %", "memory",
            "plan");
    for (uint32_t i = 1; i < r->ncandidates; i++) {
        const struct candidate x = candidate_known(job, &r->candidates[i]);
        bool fits = candidate_fits(&x);
        fprintf(out, "  %3u. %10s %8.1f %9s%c  %s\n", i + 1, units_show_seconds(x.estimate.step_time_s).s,
                100 * estimate_predicted(job, topo, &x).mfu, units_show_bytes(x.estimate.peak_bytes).s,
                x.simulated_s > 0 ? '='
                : fits            ? ' '
                                  : '!',
                candidate_text(a, job, r, i));
        planned |= !x.emittable;
        compiled |= x.simulated_s > 0;
        large |= !fits;
    }
    if (compiled)
        fprintf(out, job_is_modelled(job) ? "  = compiled: the step is that of its programs\n"
                                          : "  = compiled: step and memory are those of its programs\n");
    if (large)
        fprintf(out, "  ! compiled: too large as its buffers were placed\n");
    if (planned)
        fprintf(out, "  * not emitted yet\n");
}

void estimate_print(const struct job *job, const struct topo *topo, const struct search_result *r,
                    const struct estimate_more *more, uint32_t width, FILE *terminal)
{
    struct fitted f;
    FILE *out = r->ncandidates ? fitted_open(&f) : NULL;
    if (!out)
        return;
    struct arena *a = arena_new();
    print_best(job, topo, r, out);
    fprintf(out, "  search   %s of %s configurations looked at, %s ruled out unseen", units_show_commas(r->evaluated).s,
            units_show_commas(r->space).s, units_show_commas(r->pruned).s);
    if (r->gap > 0)
        fprintf(out, r->gap < 0.001 ? ", less than 0.1 %% from the best" : ", at most %.1f %% from the best",
                100 * r->gap);
    fprintf(out, ", %s\n", units_show_seconds(r->seconds).s);
    if (r->ncandidates > 1)
        print_others(a, job, topo, r, out);
    print_targets(a, topo, more, out);
    fitted_close(&f, width, terminal);
    arena_free(a);
}

static void items_json(const struct estimate *e, struct strbuf *o)
{
    struct arena *a = arena_new();
    struct explain_item item[EXPLAIN_ITEMS];
    strbuf_text(o, " \"time\": {");
    uint32_t n = explain_time_items(a, NULL, e, item);
    for (uint32_t i = 0; i < n; i++)
        strbuf_json(o, i ? ", %s: %g" : "%s: %g", item[i].key, item[i].value);
    strbuf_text(o, "},\n \"memory\": {");
    n = explain_memory_items(a, NULL, e, item);
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(o, "\"%s\": %.0f%s", item[i].key, item[i].value, i + 1 < n ? ", " : "},\n");
    arena_free(a);
}

static void candidate_json(const struct job *job, const struct topo *topo, const struct candidate *c, struct strbuf *o)
{
    strbuf_text(o, "\"decision\": ");
    decision_json(job, &c->decision, o);
    strbuf_text(o, ",\n ");
    struct predicted predicted = estimate_predicted(job, topo, c);
    predicted_json(&predicted, o);
    struct arena *a = arena_new();
    const struct whole_run run = candidate_run(a, job, topo, c);
    run_json(&run, o);
    arena_free(a);
    strbuf_json(o, ",\n 'emittable': %d", c->emittable);
    if (!c->emittable)
        strbuf_json(o, ", 'cannot_emit': %s", c->cannot);
}

static void targets_json(const struct topo *topo, const struct estimate_more *more, struct strbuf *o)
{
    strbuf_text(o, ",\n \"targets\": [");
    for (uint32_t i = 0; i < more->ntargets; i++) {
        const struct target_best *x = &more->targets[i];
        strbuf_text(o, i ? ",\n {" : "{");
        strbuf_json(o, "'target': %s, ", job_target(x->job));
        if (x->found)
            candidate_json(x->job, topo, &x->candidate, o);
        else
            strbuf_json(o, "'reason': %s", x->why);
        strbuf_text(o, "}");
    }
    strbuf_text(o, "]");
}

void estimate_json(const struct job *job, const struct topo *topo, const struct search_result *r,
                   const struct estimate_more *more, struct strbuf *o)
{
    if (r->ncandidates == 0)
        return;
    strbuf_text(o, "{\"schema\": 1,\n ");
    job_json(job, topo, r->candidates[0].decision.gpus_used, o);
    strbuf_text(o, " ");
    candidate_json(job, topo, &r->candidates[0], o);
    strbuf_text(o, ",\n");
    items_json(&r->candidates[0].estimate, o);
    strbuf_json(o, " 'memory_limit_bytes': %lu,\n", r->memory_limit_bytes);
    if (more->plan)
        traffic_tiers_json(more->plan, o);
    strbuf_json(
        o,
        " 'target': %s, 'profile': %s, 'extrapolated': %d,\n 'search': {'space': %lu, 'evaluated': %lu, 'pruned': %lu, "
        "'budget': %lu, 'spent': %lu, 'gap': %g, 'seconds': %g},\n 'candidates': [",
        job_target(job), job->wishes.profile_name, !is_calibrated(&topo->types[r->candidates[0].decision.type].gpu),
        r->space, r->evaluated, r->pruned, r->budget, r->spent, r->gap, r->seconds);
    for (uint32_t i = 1; i < r->ncandidates; i++) {
        const struct candidate x = candidate_known(job, &r->candidates[i]);
        strbuf_text(o, i > 1 ? ",\n {" : "{");
        candidate_json(job, topo, &x, o);
        strbuf_json(o, ", 'compiled': %d, 'fits': %d}", x.placed_bytes != 0, candidate_fits(&x));
    }
    strbuf_text(o, "]");
    if (more->ntargets)
        targets_json(topo, more, o);
    if (more->formulas)
        lesson_json(job, topo, &r->candidates[0], o);
    strbuf_text(o, "}\n");
}
