/* Commands that compile: plan, and dump, which prints a stage. */

#include "compiler/command/command.h"

#include "compiler/export/export.h"
#include "compiler/inspect/show.h"
#include "compiler/inspect/verdict.h"
#include "compiler/llmc.h"
#include "compiler/model/fmt.h"
#include "compiler/model/sema.h"
#include "compiler/model/vocab.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* the job without what the plan block asks for and nobody can emit: the words of the model and of training
 * stay */
static struct job without_plan_only(struct command *c, const struct job *job)
{
    struct job copy = *job;
    struct plan_only *kept = ARENA_ARRAY(c->arena, struct plan_only, job->nplan_only + 1);
    copy.nplan_only = 0;
    for (uint32_t i = 0; i < job->nplan_only; i++) {
        const char *what = job->plan_only[i].what;
        what += *what == '\''; /* "schedule 'zb_v'", "'zero' above 1" */
        if (!vocab_find(SCOPE_plan, arena_strndup(c->arena, what, strcspn(what, " '"))))
            kept[copy.nplan_only++] = job->plan_only[i];
    }
    copy.plan_only = kept;
    return copy;
}

enum { GAIN_BUDGET = 10000 }; /* of each search for a note, of which there is one for each wish */

/* beside an error that something can't be emitted yet: what it would give, and what can be had without it */
static void say_gain(struct command *c, const struct job *job, const struct topo *topo)
{
    struct arena_mark mark = arena_mark(c->arena);
    struct relaxation *list;
    const struct candidate *instead = NULL;
    const char *without = NULL;
    struct job rest = without_plan_only(c, job);
    uint64_t asked = c->options->budget, budget = asked && asked < GAIN_BUDGET ? asked : GAIN_BUDGET;
    struct search_result *r = search(c->arena, diag_new(c->arena), job, topo, 1, budget, false);
    uint32_t n = r->ncandidates ? search_relaxations(c->arena, &rest, topo, true, budget, &list) : 0;
    for (uint32_t i = 0; i < n; i++)
        if (list[i].found && (!instead || list[i].candidate.estimate.step_time_s < instead->estimate.step_time_s)) {
            instead = &list[i].candidate;
            without = list[i].wish;
        }
    char text[512] = "";
    if (instead) {
        double wished_s = r->candidates[0].estimate.step_time_s, instead_s = instead->estimate.step_time_s;
        snprintf(text, sizeof text,
                 "by the estimate it gives %s per step; without '%s' a plan can be written: %s, %.1f %% %s",
                 units_show_seconds(wished_s).s, without, units_show_seconds(instead_s).s,
                 100 * fabs(instead_s / wished_s - 1), instead_s > wished_s ? "slower" : "faster");
    } else if (r->ncandidates) {
        snprintf(text, sizeof text, "by the estimate it gives %s per step",
                 units_show_seconds(r->candidates[0].estimate.step_time_s).s);
    }
    arena_reset(c->arena, mark);
    if (*text)
        diag_note(c->diag, (struct span){0}, "%s", text);
}

/* a plan for GPUs that llmrun can play on CPU ranks alone: said now and not when the machine is there */
static void say_cpu_only(struct command *c, const struct job *job, const struct topo *topo, const struct plan *p)
{
    static const char *const recipes[] = {
        [FP8_TENSOR] = NULL, [FP8_ROW] = "row", [FP8_BLOCK] = "block", [FP8_MX] = "mx"};
    const char *recipe = job->train.precision == DT_FP8 ? recipes[job->train.recipe] : NULL;
    if (!topo->types[0].gpu.sm || job_is_modelled(job))
        return;
    if (recipe) {
        diag_warning(c->diag, (struct span){0}, "cpu-only", "llmrun plays fp8(recipe=%s) on CPU ranks only", recipe);
        diag_help(c->diag, "on GPUs it has fp8(recipe=tensor), and bf16");
    }
    if (job->train.precision == DT_FP16)
        diag_warning(c->diag, (struct span){0}, "cpu-only", "llmrun plays fp16 on CPU ranks only");
    if (decision_skews(job, &p->decision)) {
        diag_warning(c->diag, (struct span){0}, "cpu-only", "llmrun plays a post-validated plan on CPU ranks only");
        diag_help(c->diag, "'post_validation no' makes a plan for GPUs");
    }
}

/* Blocks of experts' rows that had to give way to memory: llmrun stops at a step that sends a rank more, and a run is
 * long. */
static void say_tight_room(struct command *c, const struct job *job, const struct topo *topo, const struct plan *p)
{
    const struct topo_gpu *gpu = &topo->types[p->decision.type].gpu;
    double room = p->decision.room, usual = cost_usual_room(job, gpu);
    if (job_is_modelled(job) || !cost_is_tight(job, gpu, &p->decision) ||
        topo_is_cpu(gpu)) /* whose usual room is that for all rows */
        return;
    diag_warning(
        c->diag, (struct span){0}, "tight-experts",
        "memory leaves experts room for %.4g times the mean of their rows, %.4g is usual: a step that sends a rank more is "
        "not taken, and the run stops",
        room, usual);
    diag_help(c->diag, "'expert_room %.4g' in the train block makes a plan that has it", usual);
}

/* what is refused, each on a line; STATUS_NO_PLAN if there is any */
static enum status refused(struct command *c, const struct export *x, const struct job *job)
{
    for (size_t i = 0; i < x->refused.n; i++)
        diag_error(c->diag, (struct span){0}, "target", "no plan: target %s cannot be told of %s", job_target(job),
                   x->refused.at[i]);
    return x->refused.n ? command_diagnose(c, STATUS_NO_PLAN) : STATUS_OK;
}

enum status command_launch(struct command *c, struct plan *p)
{
    struct export x = {.arena = c->arena};
    export_launch(&x, p);
    return refused(c, &x, p->job);
}

enum status command_plan(struct command *c)
{
    const struct options *o = c->options;
    struct job *job;
    struct topo *topo;
    struct plan *p;
    struct verdict *v = NULL;
    struct error error;
    if (!o->output)
        return command_fail(c, STATUS_USAGE, "plan wants -o DIR");
    enum status s = plan_may_write(o->output, o->force, &error);
    if (s != STATUS_OK)
        return command_fail(c, s, error.text);
    TRY(command_read(c, &job, &topo));
    struct compile_options options = {.top = o->top, .budget = o->budget, .progress = diag_shows_progress(c->diag)};
    s = compile_job(c->arena, c->diag, job, topo, &options, &p, &v);
    if (v && v->nviolations) {
        verdict_print(v, NULL, stderr);
        return command_fail(c, STATUS_BUG, "the plan does not verify and was not written; this is a bug in llmc");
    }
    if (s == STATUS_NO_PLAN && strstr(diag_first(c->diag), "not emitted yet"))
        say_gain(c, job, topo);
    if (s != STATUS_OK)
        return command_diagnose(c, s);
    c->plans[0] = p;
    p->nsets = o->nsets;
    p->sets = o->sets;
    TRY(command_launch(c, p));
    s = plan_write(p, o->output, o->force, &error);
    if (s != STATUS_OK)
        return command_fail(c, s, error.text);
    p->job->price = o->price; /* no part of what was written */
    say_cpu_only(c, job, topo, p);
    say_tight_room(c, job, topo, p);
    command_diagnose(c, STATUS_OK);
    if (!o->quiet)
        command_say_search(c, job, topo, p);
    if (o->json) {
        struct strbuf json = {0};
        plan_json(p, true, &json);
        fputs(json.text, stdout);
        strbuf_free(&json);
    } else {
        struct show_options show = show_detect(stdout);
        show_summary(p, stdout, &show);
    }
    return o->spares ? command_spares(c, p) : STATUS_OK;
}

/* -d STAGE: ast, sched, asm */
enum status command_dump(struct command *c)
{
    const char *stage = c->options->args[0];
    struct job *job;
    struct topo *topo;
    struct plan *p;
    struct verdict *v = NULL;
    TRY(command_read(c, &job, &topo));
    if (!strcmp(stage, "ast")) {
        fputs(fmt_text(c->arena, c->diag, (struct source *)job->source), stdout);
        return STATUS_OK;
    }
    if (strcmp(stage, "sched") && strcmp(stage, "asm"))
        return command_fail(c, STATUS_USAGE, "the stages are ast, sched, asm");
    enum status s = compile_job(c->arena, c->diag, job, topo, &(struct compile_options){0}, &p, &v);
    if (s != STATUS_OK)
        return command_diagnose(c, s);
    c->plans[0] = p;
    struct show_options show = {.rank = c->options->rank == UINT32_MAX ? -1 : (int64_t)c->options->rank, .stage = -1};
    if (!strcmp(stage, "sched"))
        schedule_print(schedule_new(c->arena, &p->decision), stdout);
    else
        show_code(p, stdout, &show);
    return STATUS_OK;
}
