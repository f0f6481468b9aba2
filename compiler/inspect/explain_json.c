/* The explanation as one JSON object: base units, the unit in the key, shares and changes as fractions. */

#include "compiler/inspect/estimate.h"
#include "compiler/inspect/explain_private.h"
#include "compiler/support/strbuf.h"

#include <math.h>

static void text(struct strbuf *o, const char *key, const char *v, const char *after)
{
    strbuf_printf(o, "\"%s\": ", key);
    v ? strbuf_json_string(o, v) : strbuf_text(o, "null");
    strbuf_text(o, after);
}

static void items_json(const struct explanation *x, bool time, struct strbuf *o)
{
    struct explain_item item[EXPLAIN_ITEMS];
    const struct estimate *e = &x->shown;
    uint32_t n = time ? explain_time_items(x->arena, x->cost, e, item)
                      : explain_memory_items(x->arena, x->cost, e, item);
    if (time)
        strbuf_json_key(o, "step_time_s", e->step_time_s, ", \"items\": [");
    else
        strbuf_printf(o, "\"peak_bytes\": %llu, \"limit_bytes\": %llu, \"stage\": %u, \"items\": [",
                      (unsigned long long)e->peak_bytes, (unsigned long long)x->memory_limit_bytes, e->peak_stage);
    for (uint32_t i = 0; i < n; i++) {
        strbuf_text(o, i ? ",\n   {" : "\n   {");
        text(o, "key", item[i].key, ", ");
        strbuf_json_key(o, time ? "seconds" : "bytes", item[i].value, ", ");
        text(o, "meaning", item[i].meaning, ", ");
        text(o, "how", item[i].how, ", ");
        text(o, "detail", item[i].detail, "}");
    }
    strbuf_text(o, "]},\n");
}

static void candidate_json(const struct job *job, const struct candidate *c, struct strbuf *o)
{
    strbuf_json_key(o, "step_time_s", c->estimate.step_time_s, ", ");
    strbuf_json_key(o, "peak_memory_bytes", (double)c->estimate.peak_bytes, ", ");
    strbuf_printf(o, "\"emittable\": %s, \"decision\": ", c->emittable ? "true" : "false");
    decision_json(job, &c->decision, o);
}

static void others_json(const struct explanation *x, struct strbuf *o)
{
    strbuf_text(o, " \"runners_up\": [");
    for (size_t i = 0; i < x->others.n; i++) {
        const struct explain_other *r = &x->others.at[i];
        strbuf_text(o, i ? ",\n  {" : "\n  {");
        text(o, "dimension", r->dimension, ", ");
        text(o, "change", r->what, ", ");
        strbuf_json_key(o, "loses", r->slower, ", ");
        strbuf_printf(o, "\"fits\": %s, \"compiled\": %s, \"against_wishes\": %s, ", r->fits ? "true" : "false",
                      r->compiled ? "true" : "false", r->wished ? "true" : "false");
        text(o, "why", r->why, ",\n   ");
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
        text(o, "key", s->key, ", ");
        strbuf_json_key(o, "at_minus_10_percent", s->less, ", ");
        strbuf_json_key(o, "at_plus_10_percent", s->more, ", ");
        text(o, "other_choice", s->choice, ", ");
        strbuf_json_key(o, "other_gains", s->gain, "}");
    }
    strbuf_text(o, "],\n \"jitter\": ");
    if (x->has_jitter) {
        strbuf_text(o, "{");
        strbuf_json_key(o, "share", x->jitter_share, ", ");
        strbuf_json_key(o, "one_replica", x->jitter_mean, ", ");
        strbuf_json_key(o, "slowest_replica", x->jitter_slowest, "},\n");
    } else {
        strbuf_text(o, "null,\n");
    }
}

static void changes_json(const struct explanation *x, struct strbuf *o)
{
    strbuf_text(o, " \"changes\": [");
    for (size_t i = 0; i < x->changes.n; i++) {
        strbuf_text(o, i ? ",\n  {" : "\n  {");
        text(o, "change", x->changes.at[i].what, ", ");
        candidate_json(x->job, &x->changes.at[i].candidate, o);
        strbuf_text(o, "}");
    }
    strbuf_text(o, "]");
}

static void search_json(const struct job *job, const struct search_result *r, struct strbuf *o)
{
    strbuf_printf(
        o, " \"search\": {\"space\": %llu, \"evaluated\": %llu, \"pruned\": %llu, \"budget\": %llu, \"spent\": %llu, ",
        (unsigned long long)r->space, (unsigned long long)r->evaluated, (unsigned long long)r->pruned,
        (unsigned long long)r->budget, (unsigned long long)r->spent);
    strbuf_text(o, "\"branches_removed\": {");
    for (uint32_t i = 0; i < NREMOVALS; i++)
        strbuf_printf(o, "%s\"%s\": %llu", i ? ", " : "", removal_names[i], (unsigned long long)r->removed[i]);
    strbuf_text(o, "}, \"given_up\": ");
    if (r->given_up > 0) {
        strbuf_text(o, "{");
        strbuf_json_key(o, "faster", r->given_up, ", ");
        candidate_json(job, &r->fastest, o);
        strbuf_text(o, "}");
    } else {
        strbuf_text(o, "null");
    }
    strbuf_text(o, ", ");
    strbuf_json_key(o, "gap", r->gap, "}}\n");
}

void explain_json(const struct explanation *x, FILE *out)
{
    struct strbuf o = {0};
    strbuf_text(&o, "{\"schema\": 1,\n ");
    text(&o, "model", x->job->model.name, ", ");
    text(&o, "cluster", x->topo->name ? x->topo->name : "", ", ");
    text(&o, "profile", x->job->wishes.profile_name, ",\n");
    strbuf_printf(&o, " \"feasible\": %s, ", x->cost ? "true" : "false");
    text(&o, "reason", x->reason, ",\n");
    if (x->cost) {
        struct candidate shown = x->chosen;
        shown.estimate = x->shown;
        strbuf_text(&o, " \"chosen\": {");
        candidate_json(x->job, &shown, &o);
        strbuf_text(&o, "},\n \"time\": {");
        items_json(x, true, &o);
        strbuf_text(&o, " \"memory\": {");
        items_json(x, false, &o);
        others_json(x, &o);
        shifts_json(x, &o);
    }
    changes_json(x, &o);
    strbuf_text(&o, ",\n");
    search_json(x->job, x->found, &o);
    fputs(o.text, out);
    strbuf_free(&o);
}
