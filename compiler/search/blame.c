/* Why a search found nothing, in one message.
 *
 * Memory: the closest miss, itemised, and what each single change of it would save and cost.  Limits on time: the
 * fastest plan.  Wishes that exclude each other: each wish is dropped in turn and the search repeated with a small
 * budget; the first one without which plans appear is reported at its line, a second one in the note, with a value
 * that works.  Causes that a single word shows are checked first: products of degrees, heads, shard. */

#include "compiler/model/means.h"
#include "compiler/search/passes.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <string.h>

#define TRIAL_BUDGET 200

static const struct span nowhere = {0};

/* May the schedule run pairs, which overlap one microbatch's exchange of expert rows with another's matrix products? */
static bool may_pair(const struct wishes *w)
{
    bool pairs = w->nschedules == 0;
    for (uint32_t i = 0; i < w->nschedules; i++)
        pairs |= decision_pairs(w->schedules[i].kind);
    return pairs;
}

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
    uint32_t never = OVERLAP_PP, can = OVERLAP_DP | OVERLAP_PP | OVERLAP_CP;
    can |= may_pair(w) ? OVERLAP_ALL_TO_ALL : 0;
    can |= w->profile->allocator > 0.5 ? 0 : OVERLAP_TP;
    if (!(w->overlap & ~can) && !(w->never_overlap & never))
        return true;
    diag_error(d, w->span, "not-emittable", "no plan: %s can be estimated but not emitted yet",
               w->overlap & ~can & OVERLAP_TP
                   ? arena_printf(s->arena, "overlap of tp with profile \"%s\"", w->profile_name)
               : w->overlap & ~can ? "overlap of all_to_all without combined_1f1b, dualpipe or dualpipe_v"
                                   : "never overlap of pp");
    return false;
}

/* does the plan block limit the memory to less than the GPUs have? */
static bool bounds_memory(const struct searching *s)
{
    return s->job->wishes.memory && s->job->wishes.memory == s->memory_limit;
}

static void memory_help(struct searching *s, struct strbuf *out)
{
    const struct candidate *x = &s->result->closest;
    struct job free = *s->job;
    free.wishes.memory = 0;
    free.wishes.frees = true;
    free.wishes.free_bytes = 0;
    const struct topo_gpu *gpu = &s->topo->types[x->decision.type].gpu;
    uint64_t most = cost_memory_limit(&free, gpu);
    if (bounds_memory(s) && x->estimate.peak_bytes <= most)
        strbuf_printf(out, "allow more memory: %s leaves %s", gpu->model, units_show_bytes(most).s);
    else if (x->estimate.peak_bytes <= most)
        strbuf_printf(out, "'keep 0GiB free' leaves %s", units_show_bytes(most).s);
    struct remedy *list;
    uint32_t n = search_remedies(s->arena, s->job, s->topo, x, s->memory_limit, s->emit_only, &list);
    for (uint32_t i = 0; i < n && i < 5; i++) {
        strbuf_printf(out, "%s%s saves %s", out->length ? "; " : "", list[i].name,
                      units_show_bytes(list[i].saves_bytes).s);
        if (list[i].candidate.decision.gpus_used != x->decision.gpus_used)
            strbuf_printf(out, " on %u GPUs", list[i].candidate.decision.gpus_used);
        else if (list[i].slower >= 0.005)
            strbuf_printf(out, " (+%.0f%% step time)", 100 * list[i].slower);
        if (s->emit_only && !list[i].candidate.emittable)
            strbuf_text(out, " (not emitted yet)");
    }
}

static void blame_memory(struct searching *s, struct diag *d)
{
    const struct candidate *x = &s->result->closest;
    const struct estimate *e = &x->estimate;
    const struct decision *c = &x->decision;
    diag_error(d, bounds_memory(s) ? s->job->wishes.memory_span : nowhere, "memory",
               "nothing fits in %s%s. Closest: tp %u, pp %u, cp %u, dp %u, zero %u, microbatch %u, recompute "
               "%s needs %s on "
               "stage %u",
               units_show_bytes(s->memory_limit).s, decision_free_text(s->arena, s->job, &s->topo->types[c->type].gpu),
               c->tp, c->pp, c->cp, c->dp, c->zero, c->microbatch, recompute_names[c->recompute],
               units_show_bytes(e->peak_bytes).s, e->peak_stage);
    bool small = e->peak_bytes < (uint64_t)1 << 30;
    double unit = small ? 1 << 20 : 1 << 30;
    double own = (double)(e->allocator_bytes + e->communicator_bytes + e->context_bytes);
    const char *stack = own > 0 ? arena_printf(s->arena, "  software stack %.1f", own / unit) : "";
    diag_note(d, nowhere, "parameters %.1f  gradients %.1f  optimizer %.1f  activations %.1f  buffers %.1f%s %s",
              (double)e->parameter_bytes / unit, (double)e->gradient_bytes / unit, (double)e->optimizer_bytes / unit,
              (double)e->activation_bytes / unit, (double)e->buffer_bytes / unit, stack, small ? "MiB" : "GiB");
    struct strbuf help = {0};
    memory_help(s, &help);
    if (help.length)
        diag_help(d, "%s", help.text);
    else
        diag_help(d, "use more GPUs, or GPUs with more memory");
    strbuf_free(&help);
}

struct suspect {
    uint32_t which;
    const char *name;
    struct span span;
    uint64_t value;           /* value of a degree in the plan that appears without the wish */
    struct space_list values; /* for tp: all values possible without the wish */
};

/* Are there plans, or would there be with more memory, more time or a more capable lowering?  Bounds alone show
 * nothing. */
static bool plans_appear(const struct searching *s)
{
    const struct search_result *r = s->result;
    return r->ncandidates || r->has_closest || r->removed[REMOVED_TIME] || s->cannot;
}

/* Finds wishes without which plans appear; if there are none, those whose trial ended before it could tell. */
static uint32_t find_suspects(struct searching *s, struct suspect *out, uint32_t room)
{
    uint32_t n = 0, nunsure = 0;
    struct searching *trial = ARENA_NEW(s->arena, struct searching);
    struct suspect *unsure = ARENA_ARRAY(s->arena, struct suspect, room);
    for (uint32_t which = 0; which < SEARCH_WISHES && n < room; which++) {
        struct job job = *s->job;
        struct span at;
        const char *name = search_drop_wish(&job, which, &at);
        if (!name)
            continue;
        *trial = (struct searching){.arena = s->arena,
                                    .job = &job,
                                    .topo = s->topo,
                                    .emit_only = s->emit_only,
                                    .top = 1,
                                    .budget = TRIAL_BUDGET,
                                    .result = ARENA_NEW(s->arena, struct search_result)};
        if (!search_run(trial, diag_new(s->arena)))
            continue;
        const struct search_result *r = trial->result;
        uint64_t value = which >= NDEGREES ? 0
                         : r->ncandidates  ? decision_degree(&r->candidates[0].decision, which)
                         : r->has_closest  ? decision_degree(&r->closest.decision, which)
                                           : 0;
        struct suspect x = {which, name, at, value, trial->space.tp};
        if (plans_appear(trial))
            out[n++] = x;
        else if (trial->cut_short && nunsure < room)
            unsure[nunsure++] = x;
    }
    if (n)
        return n;
    memcpy(out, unsure, nunsure * sizeof *out);
    return nunsure;
}

/* Reports pinned degrees whose product cannot be the number of GPUs asked for, or available. */
static bool blame_product(struct searching *s, struct diag *d)
{
    static const enum degree axes[] = {DEG_TP, DEG_CP, DEG_PP, DEG_DP};
    const struct wish *w = s->job->wishes.degree, *gpus = &w[DEG_GPUS];
    const char *text = "";
    uint64_t product = 1, pinned = 0;
    struct span last = nowhere;
    for (size_t i = 0; i < ARRAY_LEN(axes); i++) {
        const struct wish *x = &w[axes[i]];
        if (x->relation != REL_EQ || x->value == 0 || product > UINT64_MAX / x->value)
            continue;
        product *= x->value;
        last = x->span;
        text = arena_printf(s->arena, "%s%s%s %llu", text, pinned++ ? " x " : "", degree_names[axes[i]],
                            (unsigned long long)x->value);
    }
    bool asked = gpus->relation == REL_EQ, all = pinned == ARRAY_LEN(axes);
    uint64_t want = asked ? gpus->value : s->space.usable;
    if (pinned < 2 || (asked ? (all ? product == want : want % product == 0) : product <= want))
        return false;
    diag_error(d, asked ? gpus->span : last, "no-plan", "no plan: %s is %llu GPUs, %s %llu", text,
               (unsigned long long)product, asked ? all ? "not" : "which does not divide" : "but the cluster has",
               (unsigned long long)want);
    uint64_t others = all ? product / w[DEG_DP].value : 1, dp = want / others;
    uint64_t fits = product <= s->space.usable ? (want > product && !all ? want / product * product : product) : 0;
    if (all && asked && want % others == 0 && s->job->train.batch % dp == 0)
        diag_help(d, "dp = %llu would make %llu", (unsigned long long)dp, (unsigned long long)want);
    else if (asked && fits)
        diag_help(d, "gpus = %llu fits these degrees, or leave one of them open", (unsigned long long)fits);
    else
        diag_help(d, "leave one of them open, or make it smaller");
    return true;
}

/* Reports heads: exchanging rows for heads requires that cp divides the heads and key/value heads of a tp rank. */
static bool blame_heads(struct searching *s, struct diag *d)
{
    const struct wishes *w = &s->job->wishes;
    const struct wish *cp = &w->degree[DEG_CP];
    if (w->context != CONTEXT_ALL_TO_ALL || cp->relation != REL_EQ || cp->value < 2)
        return false;
    for (uint32_t i = 0; i < model_all_layers(&s->job->model); i++) {
        const struct attn *t = &model_layer(&s->job->model, i)->attn;
        uint32_t kv = t->kind == ATTN_GQA ? t->kv : t->heads, least = s->space.tp.n ? s->space.tp.at[0] : 1;
        for (uint32_t k = 0; k < s->space.tp.n; k++)
            least = s->space.tp.at[k] < least ? s->space.tp.at[k] : least;
        kv /= model_key_parts(kv, least);
        if (t->heads / least % cp->value == 0 && kv % cp->value == 0)
            continue;
        diag_error(d, cp->span, "no-plan",
                   "no plan: 'cp' = %llu by all_to_all must divide the heads = %u and kv = %u of a rank%s",
                   (unsigned long long)cp->value, t->heads / least, kv, least > 1 ? " of tp" : "");
        diag_help(d, "context ring and all_gather have no such limit");
        return true;
    }
    return false;
}

/* Reports 'shard': state is sharded evenly over ranks of dp and cp, so it is an error if no mesh has a multiple of
 * 'shard' of them. */
static bool blame_shard(struct searching *s, struct diag *d)
{
    enum { VALUES = 8, MOST = 4096 };
    const struct wish *shard = &s->job->wishes.degree[DEG_SHARD];
    struct space_mesh *meshes;
    uint32_t n = space_meshes(s->arena, &s->space, &meshes), values = 0;
    const char *text = "";
    if (shard->relation != REL_EQ || n == 0)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if ((uint64_t)meshes[i].dp * meshes[i].cp % shard->value == 0)
            return false;
    for (uint32_t v = 1; v <= MOST && values < VALUES; v++) {
        uint32_t i = 0;
        while (i < n && (uint64_t)meshes[i].dp * meshes[i].cp % v)
            i++;
        if (i < n)
            text = arena_printf(s->arena, "%s%s%u", text, values++ ? ", " : "", v);
    }
    diag_error(d, shard->span, "no-plan",
               "no plan: 'shard' = %llu does not divide dp * cp of any combination that the rest of the plan "
               "block allows",
               (unsigned long long)shard->value);
    diag_help(d, "drop the line, or allow shard in [%s%s]", text, values == VALUES ? ", ..." : "");
    return true;
}

/* Did a budget below the default end the search?  Then nothing is known about the rest. */
static bool ended_early(const struct searching *s)
{
    return s->cut_short && s->most && s->most < SEARCH_BUDGET;
}

static void blame_budget(struct searching *s, struct diag *d)
{
    diag_error(d, s->job->wishes.span, "no-plan",
               "no plan: a budget of %llu ended the search before anything was found", (unsigned long long)s->most);
    if (ended_early(s))
        diag_help(d, "leave --budget out for one of %u", SEARCH_BUDGET);
    else
        diag_help(d, "give a larger --budget, or pin some of what the plan block leaves open");
}

/* of several keeps the one about that axis, else the first */
static const struct keep_wish *keep_about(const struct wishes *w, const char *axis)
{
    for (uint32_t i = 0; i < w->nkeeps; i++)
        if (!strcmp(w->keeps[i].axis, axis))
            return &w->keeps[i];
    return &w->keeps[0];
}

static void blame_wishes(struct searching *s, struct diag *d)
{
    struct suspect found[2];
    if (blame_heads(s, d) || blame_product(s, d) || blame_shard(s, d))
        return;
    uint32_t n = ended_early(s) ? 0 : find_suspects(s, found, 2);
    const struct wishes *w = &s->job->wishes;
    if (n == 0 && s->cut_short) {
        blame_budget(s, d);
        return;
    }
    if (n == 0) {
        diag_error(d, w->span, "no-plan", "no plan: no combination of degrees satisfies the plan block on %llu GPUs%s",
                   (unsigned long long)s->space.usable,
                   s->nmeshes ? "" : ": tp * cp * dp * pp never meets the number of GPUs, with dp dividing the batch");
        diag_help(d, "drop wishes until plans appear; two or more of them exclude each other");
        return;
    }
    const struct suspect *x = &found[0];
    const struct keep_wish *keep = n > 1 && !strcmp(found[1].name, "keep") ? keep_about(w, x->name) : NULL;
    const struct wish *wish = x->which < NDEGREES ? &w->degree[x->which] : NULL;
    const struct topo_node_type *type = &s->topo->types[s->space.type];
    const char *within = keep ? keep->within : NULL;
    bool domain = within && !strcmp(within, "scale_up");
    uint32_t gpus = domain ? type->scale_up.gpus : type->gpus;
    bool named = domain || (within && !strcmp(within, "node"));
    bool wider = named && gpus && wish && wish->relation == REL_EQ && wish->value > gpus;
    if (wider)
        diag_error(d, x->span, "no-plan", "no plan: '%s' must be %llu but %s of '%s' has %u GPUs", x->name,
                   (unsigned long long)wish->value, domain ? "an NVLink domain" : "a node", type->id, gpus);
    else if (wish && wish->relation == REL_EQ)
        diag_error(d, x->span, "no-plan", "no plan: with '%s' = %llu nothing satisfies the rest of the plan block",
                   x->name, (unsigned long long)wish->value);
    else
        diag_error(d, x->span, "no-plan", "no plan: with this '%s' nothing satisfies the rest of the plan block",
                   x->name);
    if (n > 1 && !keep)
        diag_note(d, found[1].span, "'%s' excludes it", found[1].name);
    else if (keep && keep->within)
        diag_note(d, keep->span, "'keep %s within %s'", keep->axis, keep->within);
    else if (keep)
        diag_note(d, keep->span, "'keep %s within %llu nodes'", keep->axis, (unsigned long long)keep->nodes);
    if (wish && keep && x->which == DEG_TP) {
        const char *values = "";
        for (uint32_t i = 0; i < x->values.n && x->values.at[i] <= s->topo->types[s->space.type].gpus; i++)
            values = arena_printf(s->arena, "%s%s%u", values, i ? ", " : "", x->values.at[i]);
        diag_help(d, "drop either line, or allow tp in [%s]", values);
    } else if (wish && x->value)
        diag_help(d, "drop %s, or allow %s in [%llu]", n > 1 ? "either line" : "the line", x->name,
                  (unsigned long long)x->value);
    else
        diag_help(d, "drop %s", n > 1 ? "either line" : "the line");
}

/* Suggests what would meet a limit on time: the fewest usable GPUs, if a 'gpus' wish excludes them; otherwise more
 * GPUs than there are. */
static void blame_deadline(struct searching *s, struct diag *d, const char *limit, double times)
{
    struct job job = *s->job;
    struct candidate x;
    bool held_back = job.wishes.degree[DEG_GPUS].relation != REL_ANY;
    job.wishes.degree[DEG_GPUS].relation = REL_ANY;
    if (held_back && search_gpus_needed(s->arena, &job, s->topo, s->emit_only, &x))
        diag_help(d, "%u GPUs would do (%s per step): change 'gpus', or relax '%s'", x.decision.gpus_used,
                  units_show_seconds(x.estimate.step_time_s).s, limit);
    else
        diag_help(d, "relax '%s', or use %.3g times the GPUs or more", limit, times);
}

void search_blame(struct searching *s, struct diag *d)
{
    const struct search_result *r = s->result;
    if (s->result->removed[REMOVED_TIME]) {
        const struct wishes *w = &s->job->wishes;
        const struct train *t = &s->job->train;
        bool by_step = w->step_time_s > 0 && s->fastest_s > w->step_time_s;
        double run_s = t->total / ((double)t->batch * (double)t->sequence) * s->fastest_s;
        diag_error(d, by_step ? w->step_time_span : w->finish_span, "too-slow",
                   "no plan: the fastest that fits needs %s per step%s%s%s%s", units_show_seconds(s->fastest_s).s,
                   by_step ? ", 'step_time' allows " : " and ",
                   by_step ? units_show_seconds(w->step_time_s).s : units_show_seconds(run_s).s,
                   by_step ? "" : " in all, 'finish' allows ", by_step ? "" : units_show_seconds(w->finish_s).s);
        blame_deadline(s, d, by_step ? "step_time" : "finish",
                       by_step ? s->fastest_s / w->step_time_s : run_s / w->finish_s);
    } else if (s->cannot) {
        diag_error(d, s->job->wishes.span, "not-emittable", "no plan: %s can be estimated but not emitted yet",
                   s->cannot);
    } else if (s->foreign) {
        diag_error(d, s->job->wishes.span, "target", "no plan: target %s", s->foreign);
        diag_help(d, "leave more to the search, or write 'target %s'", TARGET_DEFAULT);
    } else if (r->has_closest && !ended_early(s)) {
        blame_memory(s, d);
    } else {
        blame_wishes(s, d);
    }
}
