/* Drawn jobs for every target: nothing that a search, an estimate or a plan chooses is outside what its stack has,
 * judged by a list written here from the stacks' own documentation, not from the table; and the views of one plan
 * agree.
 *
 * TARGET_JOBS=N draws so many jobs for each target. */

#include "compiler/cost/cost_private.h"
#include "compiler/export/export.h"
#include "compiler/inspect/estimate.h"
#include "compiler/inspect/explain.h"
#include "compiler/inspect/forecast.h"
#include "compiler/inspect/show.h"
#include "compiler/model/sema.h"
#include "compiler/simulate/predict.h"
#include "compiler/support/strbuf.h"
#include "compiler/target/target.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/random_sizes.h"
#include "tests/draws.h"

#include <CUnit/Basic.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void suite_target_jobs(void);

/* a job as drawn for one target: what its plan block says besides */
enum { MOST_SETS = 16 };
struct drawn {
    const char *target, *sets[MOST_SETS];
    uint32_t nsets;
    struct job *job;
};

static bool said(const struct drawn *x, const char *set)
{
    for (uint32_t i = 0; i < x->nsets; i++)
        if (!strcmp(x->sets[i], set))
            return true;
    return false;
}

/* ---- what a stack has not ---- */

static bool one_of(const char *word, const char *list)
{
    const char *at = strstr(list, word);
    return at && (at == list || at[-1] == ' ') && (at[strlen(word)] == ' ' || !at[strlen(word)]);
}

/* the axes that have more than one rank, innermost first: "tp dp" */
static const char *order_text(struct arena *a, const struct decision *d)
{
    const uint32_t size[NAXES] = {[AXIS_TP] = d->tp, [AXIS_CP] = d->cp, [AXIS_DP] = d->dp, [AXIS_PP] = d->pp};
    const char *text = "";
    for (int i = 0; i < NAXES; i++)
        if (size[d->order[i]] > 1)
            text = arena_printf(a, "%s%s%s", text, *text ? " " : "", axis_names[d->order[i]]);
    return text;
}

static bool spares(const struct decision *d)
{
    bool any = false;
    for (uint32_t s = 0; s < d->nstages; s++)
        any |= d->stages[s].spared > 0;
    return any;
}

/* --recompute-method block: as many layers of every chunk as --recompute-num-layers says, or all that it has */
static bool first_layers(const struct decision *d)
{
    uint32_t most = 0;
    for (uint32_t s = 0; s < d->nstages; s++)
        most = d->stages[s].count - d->stages[s].spared > most ? d->stages[s].count - d->stages[s].spared : most;
    for (uint32_t s = 0; s < d->nstages; s++)
        if (d->stages[s].count - d->stages[s].spared != (most < d->stages[s].count ? most : d->stages[s].count))
            return false;
    return true;
}

/* Transformer Engine's attn_forward_func_with_cp() and get_attention_backend() */
static const char *context_lacks(const struct job *job, const struct decision *d)
{
    bool window = false, sinks = false;
    for (uint32_t i = 0; i < job->model.nlayers; i++) {
        window |= job->model.layers[i]->attn.window > 0;
        sinks |= job->model.layers[i]->attn.sinks;
    }
    if (d->cp == 1)
        return NULL;
    if (job->train.precision == DT_FP32)
        return "split sequences in 32 bits";
    if (window && d->context == CONTEXT_RING)
        return "a window around a ring";
    return sinks && d->context != CONTEXT_ALL_TO_ALL ? "sinks of split sequences" : NULL;
}

/* TransformerConfig.__post_init__ about CUDA graphs */
static const char *graphs_lack(const struct drawn *x, bool overlaps)
{
    bool mlp = said(x, "cuda_graphs=mlp") || said(x, "cuda_graphs=attn_mlp"), capacity = false;
    bool router = said(x, "cuda_graphs=moe_router") || said(x, "cuda_graphs=attn_moe_router");
    uint32_t experts = 0;
    for (uint32_t i = 0; i < x->job->model.nlayers; i++) {
        experts += x->job->model.layers[i]->is_moe;
        capacity |= x->job->model.layers[i]->is_moe && x->job->model.layers[i]->moe.capacity > 0;
    }
    if (mlp && (overlaps || experts == x->job->model.nlayers))
        return "graphs of dense layers";
    if (said(x, "cuda_graphs=full_iteration") && experts)
        return "whole graphs of experts";
    return router && capacity ? "graphs of a capacity" : NULL;
}

/* TransformerConfig.__post_init__ and arguments.py about what the settings need of each other */
static const char *megatron_settings(const struct drawn *x, const struct decision *d)
{
    bool pairs = d->pp > 1 && d->schedule == SCHED_COMBINED_1F1B, overlaps = pairs || said(x, "expert_overlap=yes");
    bool router = said(x, "cuda_graphs=moe_router") || said(x, "cuda_graphs=attn_moe_router");
    bool parts = router || said(x, "cuda_graphs=attn") || said(x, "cuda_graphs=mlp") || said(x, "cuda_graphs=attn_mlp");
    if (overlaps && d->recompute == RECOMPUTE_SELECTIVE && d->parts & PART_MOE)
        return "experts that run again beside their transfers";
    if (graphs_lack(x, overlaps))
        return graphs_lack(x, overlaps);
    if (said(x, "delay_wgrad=yes") && !overlaps)
        return "delayed weight gradients alone";
    if (said(x, "expert_overlap=no") && pairs)
        return "paired passes without overlap";
    if (said(x, "expert_overlap=yes") && (d->ep == 1 || (d->pp > 1 && !pairs) || d->recompute == RECOMPUTE_FULL))
        return "overlap of experts";
    if (said(x, "tp_comm_overlap=yes") && d->tp > 1 && !d->sp)
        return "overlap of whole sequences";
    if (parts && d->recompute == RECOMPUTE_FULL)
        return "graphs of layers that run again";
    return router && d->recompute == RECOMPUTE_SELECTIVE && d->parts & PART_MOE ? "graphs of routers that run again"
                                                                                : NULL;
}

static const char *megatron_lacks(struct arena *a, const struct drawn *x, const struct decision *d)
{
    const struct job *job = x->job;
    const char *order = order_text(a, d), *schedule = schedule_name(d->schedule);
    bool pairs = !strcmp(schedule, "combined_1f1b"), early = strstr(order, "pp") && strstr(strstr(order, "pp"), "dp");
    if (d->pp > 1 && !one_of(schedule, "1f1b interleaved combined_1f1b"))
        return "schedule";
    if (context_lacks(job, d))
        return context_lacks(job, d);
    if (d->pp > 1 && pairs && (d->ep == 1 || d->recompute == RECOMPUTE_FULL))
        return "overlap of experts";
    if (d->zero > 1 && (d->shard < d->dp * d->cp || early))
        return "Megatron FSDP";
    if (!one_of(order, "tp tp,cp") && strstr(order, "tp") && strncmp(order, "tp", 2) != 0)
        return "order";
    if (d->recompute == RECOMPUTE_SELECTIVE && (d->parts & PART_FFN_ACT || spares(d)))
        return "selective recomputation";
    if (d->recompute == RECOMPUTE_FULL && spares(d) && !first_layers(d))
        return "block recomputation";
    bool aware = said(x, "precision_aware=yes") || job->train.moments == DT_BF16 || job->wishes.offload & OFFLOAD_OPTIMIZER;
    if (aware && ((d->zero == 0 && d->dp * d->cp > 1) || job->train.optimizer == OPT_SGD))
        return "precision-aware optimizer";
    if (d->ep > 1 && job->train.precision == DT_FP16)
        return "experts in fp16";
    if (model_has_experts(&job->model) && d->tp > 1 && !d->sp)
        return "experts and whole sequences";
    bool half = job->train.precision == DT_BF16 || job->train.precision == DT_FP8;
    if (!half && d->recompute == RECOMPUTE_SELECTIVE && d->parts & PART_MOE_ACT)
        return "activations of experts one by one";
    if (job->train.precision == DT_FP32 && ((d->pp > 1 && pairs) || said(x, "expert_overlap=yes")))
        return "overlap of experts in fp32";
    return job->wishes.offload & OFFLOAD_ACTIVATIONS ? "offload" : megatron_settings(x, d);
}

/* dp_shard * cp * tp = efsdp * ep; without ep, experts are split as other layers are */
static const char *torchtitan_experts(const struct decision *d)
{
    uint32_t dp_shard_cp = d->dp * d->cp == 1 || d->zero == 0 ? d->cp : d->shard;
    if (d->ep > 1)
        return d->etp > 1 ? "etp beside ep" : dp_shard_cp * d->tp % d->ep ? "efsdp" : NULL;
    return d->etp != d->tp ? "whole experts" : NULL;
}

static const char *torchtitan_lacks(struct arena *a, const struct drawn *x, const struct decision *d)
{
    const struct job *job = x->job;
    const char *order = order_text(a, d), *schedule = schedule_name(d->schedule);
    const char *pp = strstr(order, "pp");
    if (d->pp > 1 && !one_of(schedule, "gpipe 1f1b interleaved zb_v dualpipe_v auto file"))
        return "schedule";
    if (d->pp > 1 && one_of(schedule, "zb_v dualpipe_v auto file") && !said(x, "compile=no"))
        return "compiled layers";
    if (d->pp > 1 && one_of(schedule, "auto file") && d->folds)
        return "placement";
    if (d->pp > 1 && !strcmp(schedule, "interleaved") && d->schedule_group && d->schedule_group != d->pp)
        return "group";
    if (d->pp > 1 && !strcmp(schedule, "dualpipe_v") && (d->ep == 1 || d->recompute != RECOMPUTE_NONE))
        return "overlap of experts";
    if (d->dp * d->cp > 1 && d->zero == 1)
        return "zero 1";
    if (d->cp > 1 && d->context != CONTEXT_ALL_GATHER)
        return "context";
    if (d->cp > 1 && (d->zero == 0 || d->shard % d->cp))
        return "state that is whole on some of cp";
    if (model_has_experts(&job->model) && torchtitan_experts(d))
        return torchtitan_experts(d);
    for (uint32_t i = 0; i < job->model.nlayers; i++)
        if (job->model.layers[i]->attn.kv % d->tp)
            return "key heads";
    if (job->model.predict && (d->pp > 1 || d->cp > 1))
        return "prediction modules";
    if (pp && pp[2])
        return "order"; /* pp is outermost */
    if (spares(d) || (d->recompute == RECOMPUTE_SELECTIVE && d->parts != PART_CORE_ATTN))
        return "recomputation";
    if (said(x, "async_tp=yes") && (said(x, "compile=no") || (d->tp > 1 && !d->sp)))
        return "asynchronous tp";
    return d->pp > 1 && job->model.tied ? "tied pipeline" : NULL;
}

/* llmrun has all that the language has */
static const char *nothing(struct arena *a, const struct drawn *x, const struct decision *d)
{
    (void)a, (void)x, (void)d;
    return NULL;
}

static const struct stack {
    const char *target;
    const char *(*lacks)(struct arena *a, const struct drawn *x, const struct decision *d);
} stacks[] = {{"llmrun", nothing}, {"megatron-core", megatron_lacks}, {"torchtitan", torchtitan_lacks}};
enum { STACKS = sizeof stacks / sizeof *stacks };

/* ---- drawn jobs ---- */

/* With a third of the settings that the target has, each in any of its words; false if the language refuses them. */
static bool drawn_job(struct arena *a, const struct sized_draw *draw, const char *target, uint64_t *state,
                      struct drawn *x)
{
    struct source *text = ARENA_NEW(a, struct source);
    const struct target *t = target_find(a, target);
    *text = (struct source){.name = "drawn", .text = draw->model, .size = strlen(draw->model)};
    *x = (struct drawn){.target = target, .sets = {arena_printf(a, "target=%s", target)}, .nsets = 1};
    for (enum target_row row = TARGET_SETTINGS; row < TARGET_ROWS; row++) {
        uint32_t words = (uint32_t)__builtin_popcount(t->has[row]), bit = words ? 1u << random_below(state, words) : 0;
        CU_ASSERT_EQUAL(t->has[row], words ? (1u << words) - 1 : 0); /* all of a row, or nothing */
        if (bit && random_below(state, 3) == 0)
            x->sets[x->nsets++] = arena_printf(a, "%s=%s", target_row_name(row), target_words(a, row, bit));
    }
    x->job = job_parse(a, diag_new(a), text, x->sets, x->nsets);
    return x->job != NULL;
}

static void judge(struct arena *a, uint64_t seed, const struct stack *stack, const struct drawn *x,
                  const struct decision *d)
{
    const char *lack = stack->lacks(a, x, d);
    if (lack)
        printf("\nseed %llu: %s: %s: %s\n", (unsigned long long)seed, stack->target, lack, decision_text(a, x->job, d));
    CU_ASSERT_PTR_NULL(lack);
}

/* ---- views ---- */

static json_t *parsed(char *text, size_t n)
{
    json_t *root = json_loadb(text, n, 0, NULL);
    free(text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(root);
    return root;
}

static json_t *explained(struct arena *a, struct job *job, struct topo *topo, const struct plan *p)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    CU_ASSERT_EQUAL(explain(a, diag_new(a), job, topo, p,
                            &(struct explain_options){.json = true, .budget = 200, .width = 100}, out),
                    STATUS_OK);
    fclose(out);
    return parsed(text, n);
}

static json_t *estimated(const struct job *job, const struct topo *topo, const struct forecast *f)
{
    struct strbuf text = {0};
    estimate_json(job, topo, f->found, &(struct estimate_more){.plan = f->plan}, &text);
    return parsed(text.text, text.length);
}

static json_t *shown(const struct plan *p, void (*view)(const struct plan *p, FILE *out, const struct show_options *o))
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    view(p, out, &(struct show_options){.json = true, .rank = 0, .stage = -1, .width = 100});
    fclose(out);
    return parsed(text, n);
}

/* The view names the target and closes.  `chosen`: its object with decision, step and peak, which are the plan's; where
 * that is its root, step and peak are in "predicted". */
static void agrees(const struct plan *p, const char *target, json_t *view, const json_t *chosen)
{
    struct predicted f = plan_predicted(p);
    struct strbuf text = {0};
    decision_json(p->job, &p->decision, &text);
    json_t *own = parsed(text.text, text.length);
    const json_t *figures = chosen == view ? json_object_get(view, "predicted") : chosen;
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(view, "target")), target);
    CU_ASSERT_DOUBLE_EQUAL(json_number_value(json_object_get(figures, "step_time_s")), f.step_time_s,
                           1e-8 * f.step_time_s);
    CU_ASSERT_DOUBLE_EQUAL(json_number_value(json_object_get(figures, "peak_memory_bytes")),
                           (double)f.peak_memory_bytes, 1e-8 * (double)f.peak_memory_bytes);
    CU_ASSERT(json_equal(own, json_object_get(chosen, "decision")));
    json_decref(own);
    json_decref(view);
}

static void check_views(struct arena *a, struct job *job, struct topo *topo, const struct forecast *f,
                        const char *target)
{
    static void (*const others[])(const struct plan *p, FILE *out, const struct show_options *o) = {
        show_memory, show_traffic, show_timeline, show_schedule, show_code};
    const struct plan *p = f->plan;
    struct strbuf text = {0};
    plan_json(p, false, &text);
    json_t *plan = parsed(text.text, text.length), *estimate = estimated(job, topo, f);
    json_t *summary = shown(p, show_summary), *why = explained(a, job, topo, p);
    agrees(p, target, plan, plan);
    agrees(p, target, estimate, estimate);
    agrees(p, target, summary, summary);
    agrees(p, target, why, json_object_get(why, "chosen"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        json_t *other = shown(p, others[i]);
        CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(other, "target")), target);
        json_decref(other);
    }
}

/* ---- drawn jobs, one after the other ---- */

struct tally {
    uint32_t jobs, untold, candidates, plans;
};

/* Is the job one that launch files of the target cannot say?  It can be estimated, and there is no plan. */
static bool untold(struct arena *a, const struct drawn *x, struct topo *topo, struct tally *t)
{
    struct export e = {.arena = a};
    export_try_job(&e, x->job);
    export_free(&e);
    if (!e.refused.n)
        return false;
    t->untold++;
    if (t->untold > t->jobs / 2 + 1) /* these are many */
        return true;
    const struct search_result *r = search(a, diag_new(a), x->job, topo, 2, 500, false);
    for (uint32_t i = 0; i < r->ncandidates; i++) {
        CU_ASSERT_FALSE(r->candidates[i].emittable);
        CU_ASSERT_PTR_NOT_NULL_FATAL(r->candidates[i].cannot);
        CU_ASSERT_PTR_NOT_NULL(strstr(r->candidates[i].cannot, e.refused.at[0]));
    }
    CU_ASSERT_EQUAL(search(a, diag_new(a), x->job, topo, 2, 500, true)->ncandidates, 0);
    return true;
}

/* Of another stack's plan the simulated programs take what the search's estimate says; so the plan is not slower than what
 * that has next. */
static void check_time(struct arena *a, uint64_t seed, struct job *job, struct topo *topo, const struct forecast *f)
{
    enum { FAR = 11 }; /* %, as the worst of suite estimates */
    struct estimate model = {0};
    double step_s = f->found->candidates[0].estimate.step_time_s;
    predict(a, cost_new(a, job, topo, &f->plan->decision), &model);
    double off = step_s / model.step_time_s - 1;
    double next = f->found->ncandidates > 1 ? step_s / f->found->candidates[1].estimate.step_time_s - 1 : 0;
    bool fine = fabs(off) <= 0.01 * FAR && next <= 0.01 * FAR;
    CU_ASSERT(fine);
    if (!fine)
        printf("\n    job %llu: %g s, by the estimate %g s; the next one %+.1f %%", (unsigned long long)seed, step_s,
               model.step_time_s, -100 * next);
}

/* Every second job is searched for what can be estimated, the others are planned as `llmc plan` does it. */
static void check_job(struct arena *a, uint64_t seed, const struct stack *stack, struct drawn *x, struct topo *topo,
                      struct tally *t)
{
    enum { TOP = 6, BUDGET = 4000 };
    t->jobs++;
    if (seed % 2) {
        const struct search_result *r = search(a, diag_new(a), x->job, topo, TOP, BUDGET, false);
        for (uint32_t i = 0; i < r->ncandidates; i++)
            judge(a, seed, stack, x, &r->candidates[i].decision);
        t->candidates += r->ncandidates;
        return;
    }
    struct forecast f;
    if (forecast(a, diag_new(a), x->job, topo, TOP, BUDGET, &f) != STATUS_OK)
        return;
    for (uint32_t i = 0; i < f.found->ncandidates; i++)
        judge(a, seed, stack, x, &f.found->candidates[i].decision);
    t->candidates += f.found->ncandidates;
    if (f.plan) {
        check_views(a, x->job, topo, &f, stack->target);
        if (job_is_modelled(x->job))
            check_time(a, seed, x->job, topo, &f);
        plan_close(f.plan);
        t->plans++;
    }
}

static void test_drawn(void)
{
    const char *count = getenv("TARGET_JOBS");
    uint32_t wanted = count ? (uint32_t)strtoul(count, NULL, 10) : test_draws(30, 5);
    for (size_t k = 0; k < STACKS; k++) {
        struct tally t = {0};
        for (uint64_t seed = 3000; t.jobs < wanted; seed++) {
            struct arena *a = arena_new();
            struct sized_draw draw;
            struct drawn x;
            uint64_t state = seed;
            if (sized_draw(a, seed, &draw) && drawn_job(a, &draw, stacks[k].target, &state, &x) &&
                !untold(a, &x, draw.topo, &t))
                check_job(a, seed, &stacks[k], &x, draw.topo, &t);
            arena_free(a);
        }
        printf("[%s: %u jobs, %u candidates, %u plans; %u that it cannot be told of] ", stacks[k].target, t.jobs, t.candidates,
               t.plans, t.untold);
        CU_ASSERT(wanted < 30 || (t.candidates > wanted && t.plans * 8 >= wanted)); /* of few jobs all may be refused */
    }
}

void suite_target_jobs(void)
{
    CU_pSuite s = CU_add_suite("target_jobs", NULL, NULL);
    CU_add_test(s, "nothing is chosen that a target has not, and views agree", test_drawn);
}
