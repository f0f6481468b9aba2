/* Commands that only predict: estimate with its sweeps, and explain. */

#include "compiler/command/command.h"

#include "compiler/inspect/estimate.h"
#include "compiler/inspect/explain.h"
#include "compiler/inspect/forecast.h"
#include "compiler/inspect/lesson.h"
#include "compiler/inspect/show.h"
#include "compiler/inspect/sweep.h"
#include "compiler/llmc.h"
#include "compiler/support/strbuf.h"

enum { TOP = 10 };              /* candidates that an estimate lists */
enum { TARGETS_BUDGET = 5000 }; /* of the search for each target's best, which stands beside the answer */

static enum status command_sweep(struct command *c)
{
    const struct options *o = c->options;
    struct topo *topo = topo_read(c->arena, c->diag, o->args[1]);
    if (!topo)
        return command_diagnose(c, STATUS_INPUT);
    struct sweep_options options = {.model = o->args[0],
                                    .nsets = o->nsets,
                                    .sets = o->sets,
                                    .nsweeps = o->nsweeps,
                                    .sweeps = o->sweeps,
                                    .budget = o->budget,
                                    .price = o->price,
                                    .json = o->json,
                                    .width = show_detect(stdout).width};
    return command_diagnose(c, sweep(c->arena, c->diag, topo, &options, stdout));
}

enum status command_estimate(struct command *c)
{
    const struct options *o = c->options;
    struct job *job;
    struct topo *topo;
    if (o->nsweeps)
        return command_sweep(c);
    TRY(command_read(c, &job, &topo));
    job->price = o->price;
    struct forecast f;
    enum status s = forecast(c->arena, c->diag, job, topo, o->top ? (uint32_t)o->top : TOP, o->budget, &f);
    c->plans[0] = f.plan;
    if (s != STATUS_OK)
        return command_diagnose(c, s);
    struct target_best *targets = NULL;
    struct estimate_more more = {.plan = f.plan, .formulas = o->formulas};
    if (!job->wishes.targeted) {
        diag_progress(c->diag, "searching for other targets");
        more.ntargets = search_targets(c->arena, job, topo, TARGETS_BUDGET, &targets);
        diag_progress(c->diag, "%s", "");
    }
    more.targets = targets;
    if (o->json) {
        struct strbuf json = {0};
        estimate_json(job, topo, f.found, &more, &json);
        fputs(json.text, stdout);
        strbuf_free(&json);
    } else {
        estimate_print(job, topo, f.found, &more, show_detect(stdout).width, stdout);
        if (o->formulas)
            lesson_print(job, topo, &f.found->candidates[0], stdout);
    }
    s = command_diagnose(c, STATUS_OK);
    if (f.plan && !o->quiet)
        command_say_search(c, job, topo, f.plan);
    return s;
}

/* of a plan folder, or of a model and a cluster */
enum status command_explain(struct command *c)
{
    const struct options *o = c->options;
    struct explain_options options = {
        .all = o->all, .json = o->json, .colour = c->colour, .budget = o->budget, .width = show_detect(stdout).width};
    struct job *job;
    struct topo *topo;
    struct plan *p = NULL;
    if (o->nargs == 2) {
        TRY(command_read(c, &job, &topo));
        job->price = o->price;
        const struct job asked = *job;
        const struct compile_options bounds = {.budget = o->budget, .progress = diag_shows_progress(c->diag)};
        if (compile_best(c->arena, diag_new(c->arena), job, topo, &bounds, &p, NULL) != STATUS_OK) {
            p = NULL; /* explained is what cannot be emitted, or why there is nothing */
            *job = asked;
        }
        compile_progress(&bounds, "");
        c->plans[0] = p;
    } else {
        if (o->nsets)
            return command_fail(c, STATUS_USAGE,
                                "a plan folder has its statements already; --set goes with MODEL CLUSTER");
        TRY(command_open(c, 0, &p));
        job = p->job;
        topo = p->topo;
    }
    enum status s = explain(c->arena, c->diag, job, topo, p, &options, stdout);
    if (s == STATUS_OK) /* beside the explanation, which --json leaves alone on stdout */
        diag_print(c->diag, stderr, c->colour);
    return s;
}
