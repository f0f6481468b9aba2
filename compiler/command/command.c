/* What the commands share: reading inputs, and saying what went wrong and what the search left out. */

#include "compiler/command/command.h"

#include "compiler/emit/plan.h"
#include "compiler/model/sema.h"
#include "compiler/search/search.h"
#include "compiler/support/units.h"
#include "compiler/topology/topo.h"

#include <string.h>

/* Diagnostics to stderr, or as JSON to stdout; the status they imply.  That a plan is impossible may be due to
 * a file that the model names. */
enum status command_diagnose(struct command *c, enum status status)
{
    if (status == STATUS_NO_PLAN && (diag_has(c->diag, "cannot-read") || diag_has(c->diag, "bad-schedule")))
        status = STATUS_INPUT;
    if (c->options->json && diag_errors(c->diag))
        diag_print_json(c->diag, stdout);
    else
        diag_print(c->diag, stderr, c->colour);
    return status;
}

static const char *status_code(enum status status)
{
    switch (status) {
    case STATUS_OK:
        return "fine";
    case STATUS_NO_PLAN:
        return "no-plan";
    case STATUS_USAGE:
        return "usage";
    case STATUS_INPUT:
        return "input";
    case STATUS_WORLD:
        return "environment";
    case STATUS_MISMATCH:
        return "hosts";
    case STATUS_STOPPED: /* llmrun's alone */
        return "stopped";
    case STATUS_BUG:
        return "bug";
    }
    return "";
}

/* what went wrong without a place in an input: one line; with --json a diagnostic like the others */
enum status command_fail(struct command *c, enum status status, const char *message)
{
    if (!c->options->json) {
        fprintf(stderr, "llmc: %s\n", message);
        return status;
    }
    diag_error(c->diag, (struct span){0}, status_code(status), "%s", message);
    return command_diagnose(c, status);
}

/* a bound on memory that no GPU reaches bounds nothing: say so */
static void warn_memory(struct command *c, const struct job *job, const struct topo *topo)
{
    uint64_t most = 0;
    const char *model = "";
    struct job unbounded = *job;
    unbounded.wishes.memory = 0;
    for (uint32_t i = 0; i < topo->ntypes; i++) {
        const struct topo_gpu *g = &topo->types[i].gpu;
        bool meant = !job->wishes.use || !strcmp(job->wishes.use, topo->types[i].id);
        uint64_t leaves = decision_gpu_bytes(&unbounded, g);
        if (!meant || leaves <= most)
            continue;
        most = leaves;
        model = g->model;
    }
    if (job->wishes.memory > most && most) {
        diag_warning(c->diag, job->wishes.memory_span, "memory", "a plan may have %s, but %s leaves %s",
                     units_show_bytes(job->wishes.memory).s, model, units_show_bytes(most).s);
        diag_help(
            c->diag,
            "the bound is the GPU's memory less its reserve and what is kept free; 'reserve' in the cluster file and "
            "'keep N free' change that");
    }
}

/* what is kept free must leave something of some GPU */
static bool check_free(struct command *c, const struct job *job, const struct topo *topo)
{
    const struct topo_gpu *largest = NULL;
    for (uint32_t i = 0; i < topo->ntypes; i++) {
        const struct topo_gpu *g = &topo->types[i].gpu;
        if (job->wishes.use && strcmp(job->wishes.use, topo->types[i].id) != 0)
            continue;
        if (!largest || g->memory_bytes - g->reserve_bytes > largest->memory_bytes - largest->reserve_bytes)
            largest = g;
    }
    if (!job->wishes.frees || !largest || job->wishes.free_bytes < largest->memory_bytes - largest->reserve_bytes)
        return true;
    diag_error(c->diag, job->wishes.free_span, "memory", "%s free leaves a plan nothing of %s",
               units_show_bytes(job->wishes.free_bytes).s, largest->model);
    diag_help(c->diag, "it has %s, %s of them in reserve", units_show_bytes(largest->memory_bytes).s,
              units_show_bytes(largest->reserve_bytes).s);
    return false;
}

enum status command_read(struct command *c, struct job **job, struct topo **topo)
{
    const struct options *o = c->options;
    uint32_t first = o->nargs - 2;
    *job = job_read(c->arena, c->diag, o->args[first], o->sets, o->nsets);
    *topo = topo_read(c->arena, c->diag, o->args[first + 1]);
    if (!*job || !*topo)
        return command_diagnose(c, STATUS_INPUT);
    if (!check_free(c, *job, *topo))
        return command_diagnose(c, STATUS_INPUT);
    warn_memory(c, *job, *topo);
    return STATUS_OK;
}

/* what the search would choose if everything that the language can say could be lowered, as far as it came to that */
static void say_left_out(struct command *c, const struct job *job, const struct topo *topo, const struct plan *p)
{
    const struct plan_search *x = &p->search;
    struct estimate chosen;
    if (!x->refused)
        return;
    cost_estimate(c->arena, cost_new(c->arena, job, topo, &p->decision), &chosen);
    if (x->refused_s < chosen.step_time_s)
        fprintf(stderr, "left out: %s\n  would be %.1f %% faster by the same estimate, but %s cannot be emitted yet\n",
                x->refused, 100 * (chosen.step_time_s / x->refused_s - 1), x->cannot);
}

enum { BEYOND_BUDGET = 100000 }; /* of the search for it */

/* what the target has no means for and would gain */
static void say_beyond(struct command *c, const struct job *job, const struct topo *topo, const struct plan *p)
{
    struct candidate x;
    struct estimate chosen;
    const char *lacks;
    uint64_t budget = c->options->budget ? c->options->budget : BEYOND_BUDGET;
    if (!search_beyond(c->arena, job, topo, budget, &x, &lacks))
        return;
    cost_estimate(c->arena, cost_new(c->arena, job, topo, &p->decision), &chosen);
    if (x.estimate.step_time_s < chosen.step_time_s)
        fprintf(stderr, "ruled out: %s\n  would be %.1f %% faster by the same estimate, but %s has no %s\n",
                decision_text(c->arena, job, &x.decision), 100 * (chosen.step_time_s / x.estimate.step_time_s - 1),
                job_target(job), lacks);
}

/* how far the plan may be from the best one, where that is more than the model can tell, and what would close the gap
 */
static void say_gap(const struct plan *p)
{
    const struct plan_search *x = &p->search;
    if (x->gap < 0.01)
        return;
    fprintf(stderr, "search: by its bounds no plan of this space is more than %.1f %% faster", 100 * x->gap);
    if (x->spent >= x->budget)
        fprintf(stderr, "; '--budget %llu' looks further", (unsigned long long)(SEARCH_MORE * x->budget));
    fputc('\n', stderr);
}

void command_say_search(struct command *c, const struct job *job, const struct topo *topo, const struct plan *p)
{
    say_gap(p);
    say_left_out(c, job, topo, p);
    say_beyond(c, job, topo, p);
}
