/* The explanation as one JSON object: base units, the unit in the key, shares and changes as fractions. */

#include "compiler/inspect/estimate.h"
#include "compiler/inspect/explain_private.h"
#include "compiler/support/strbuf.h"

#include <math.h>

static void items_json(const struct explanation *x, bool time, struct strbuf *o)
{
    struct explain_item item[EXPLAIN_ITEMS];
    const struct estimate *e = &x->shown;
    uint32_t n = time ? explain_time_items(x->arena, x->cost, e, item)
                      : explain_memory_items(x->arena, x->cost, e, item);
    if (time)
        strbuf_json(o, "'step_time_s': %g", e->step_time_s);
    else
        strbuf_json(o, "'peak_bytes': %lu, 'limit_bytes': %lu, 'stage': %u", e->peak_bytes, x->memory_limit_bytes,
                    e->peak_stage);
    strbuf_text(o, ", \"items\": [");
    for (uint32_t i = 0; i < n; i++) {
        strbuf_text(o, i ? ",\n   {" : "\n   {");
        strbuf_json(o, "'key': %s, %s: %g, 'meaning': %s, 'how': %s, 'detail': %s}", item[i].key,
                    time ? "seconds" : "bytes", item[i].value, item[i].meaning, item[i].how, item[i].detail);
    }
    strbuf_text(o, "]},\n");
}

static void candidate_json(const struct job *job, const struct candidate *c, struct strbuf *o)
{
    strbuf_json(o, "'step_time_s': %g, 'peak_memory_bytes': %g, 'emittable': %d, 'decision': ", c->estimate.step_time_s,
                (double)c->estimate.peak_bytes, c->emittable);
    decision_json(job, &c->decision, o);
}

static void others_json(const struct explanation *x, struct strbuf *o)
{
    strbuf_text(o, " \"runners_up\": [");
    for (size_t i = 0; i < x->others.n; i++) {
        const struct explain_other *r = &x->others.at[i];
        strbuf_text(o, i ? ",\n  {" : "\n  {");
        strbuf_json(o,
                    "'dimension': %s, 'change': %s, 'loses': %g, 'fits': %d, 'compiled': %d, 'against_wishes': %d, "
                    "'why': %s,\n   ",
                    r->dimension, r->what, r->slower, r->fits, r->compiled, r->wished, r->why);
        candidate_json(x->job, &r->candidate, o);
        strbuf_text(o, "}");
    }
    strbuf_text(o, "],\n");
}

static void shifts_json(const struct explanation *x, struct strbuf *o)
{
    strbuf_text(o, " \"sensitivity\": [");
    for (size_t i = 0; i < x->shifts.n; i++) {
        const struct explain_shift *s = &x->shifts.at[i];
        strbuf_text(o, i ? ",\n  {" : "\n  {");
        strbuf_json(o,
                    "'key': %s, 'at_minus_10_percent': %g, 'at_plus_10_percent': %g, 'other_choice': %s, "
                    "'other_gains': %g}",
                    s->key, s->less, s->more, s->choice, s->gain);
    }
    strbuf_text(o, "],\n \"jitter\": ");
    if (x->has_jitter)
        strbuf_json(o, "{'share': %g, 'one_replica': %g, 'slowest_replica': %g},\n", x->jitter_share, x->jitter_mean,
                    x->jitter_slowest);
    else
        strbuf_text(o, "null,\n");
}

static void changes_json(const struct explanation *x, struct strbuf *o)
{
    strbuf_text(o, " \"changes\": [");
    for (size_t i = 0; i < x->changes.n; i++) {
        strbuf_text(o, i ? ",\n  {" : "\n  {");
        strbuf_json(o, "'change': %s, ", x->changes.at[i].what);
        candidate_json(x->job, &x->changes.at[i].candidate, o);
        strbuf_text(o, "}");
    }
    strbuf_text(o, "]");
}

static void search_json(const struct job *job, const struct search_result *r, struct strbuf *o)
{
    strbuf_json(o,
                " 'search': {'space': %lu, 'evaluated': %lu, 'pruned': %lu, 'budget': %lu, 'spent': %lu, "
                "'branches_removed': {",
                r->space, r->evaluated, r->pruned, r->budget, r->spent);
    for (uint32_t i = 0; i < NREMOVALS; i++) {
        strbuf_text(o, i ? ", " : "");
        strbuf_json(o, "%s: %lu", removal_names[i], r->removed[i]);
    }
    strbuf_text(o, "}, \"given_up\": ");
    if (r->given_up > 0) {
        strbuf_json(o, "{'faster': %g, ", r->given_up);
        candidate_json(job, &r->fastest, o);
        strbuf_text(o, "}");
    } else {
        strbuf_text(o, "null");
    }
    strbuf_json(o, ", 'gap': %g}}\n", r->gap);
}

void explain_json(const struct explanation *x, FILE *out)
{
    struct strbuf o = {0};
    strbuf_json(
        &o,
        "{'schema': 1,\n 'model': %s, 'cluster': %s, 'target': %s, 'profile': %s,\n 'feasible': %d, 'reason': %s,\n",
        x->job->model.name, x->topo->name ? x->topo->name : "", job_target(x->job), x->job->wishes.profile_name,
        x->cost != NULL, x->reason);
    if (x->cost) {
        struct candidate shown = x->chosen;
        shown.estimate = x->shown;
        strbuf_text(&o, " \"chosen\": {");
        candidate_json(x->job, &shown, &o);
        strbuf_text(&o, "}");
        const struct whole_run run = run_whole(x->cost, &x->chosen.estimate, x->shown.step_time_s);
        run_json(&run, &o);
        strbuf_text(&o, ",\n \"time\": {");
        items_json(x, true, &o);
        strbuf_text(&o, " \"memory\": {");
        items_json(x, false, &o);
        others_json(x, &o);
        shifts_json(x, &o);
    }
    changes_json(x, &o);
    strbuf_text(&o, ",\n \"settings\": [");
    for (size_t i = 0; i < x->settings.n; i++)
        strbuf_json(&o, i ? ", {'setting': %s, 'slower': %g}" : "{'setting': %s, 'slower': %g}", x->settings.at[i].what,
                    x->settings.at[i].slower);
    strbuf_text(&o, "],\n \"ruled_out\": ");
    if (x->has_beyond) {
        strbuf_json(&o, "{'lacks': %s, ", x->lacks);
        candidate_json(x->job, &x->beyond, &o);
        strbuf_text(&o, "}");
    } else {
        strbuf_text(&o, "null");
    }
    strbuf_text(&o, ",\n");
    search_json(x->job, x->found, &o);
    fputs(o.text, out);
    strbuf_free(&o);
}
