/* llmc: the command line of the plan compiler.  One function per command; compile.c has the passes in order.
 */

#include "compiler/compile.h"
#include "compiler/execute/execute.h"
#include "compiler/inspect/diff.h"
#include "compiler/inspect/estimate.h"
#include "compiler/inspect/explain.h"
#include "compiler/inspect/manual.h"
#include "compiler/inspect/show.h"
#include "compiler/inspect/sweep.h"
#include "compiler/inspect/tokens.h"
#include "compiler/inspect/trace.h"
#include "compiler/inspect/verdict.h"
#include "compiler/model/fmt.h"
#include "compiler/model/sema.h"
#include "compiler/model/vocab.h"
#include "compiler/support/cli.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/topology/topo.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION "0.1.0"

struct context {
    struct arena *arena;
    struct diag *diag;
    const struct options *options;
    bool colour;
    struct plan *plan; /* the command's plan, or NULL; released at the end, however the command ended */
};

/* Diagnostics to stderr, or as JSON to stdout; the status they imply.  That a plan is impossible may be due to
 * a file that the model names. */
static enum status report(struct context *c, enum status status)
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
    case STATUS_BUG:
        return "bug";
    }
    return "";
}

/* what went wrong without a place in an input: one line; with --json a diagnostic like the others */
static enum status fail(struct context *c, enum status status, const char *message)
{
    if (!c->options->json) {
        fprintf(stderr, "llmc: %s\n", message);
        return status;
    }
    diag_error(c->diag, (struct span){0}, status_code(status), "%s", message);
    return report(c, status);
}

/* a bound on memory that no GPU reaches bounds nothing: say so */
static void warn_memory(struct context *c, const struct job *job, const struct topo *topo)
{
    uint64_t most = 0;
    const char *model = "";
    for (uint32_t i = 0; i < topo->ntypes; i++) {
        const struct topo_gpu *g = &topo->types[i].gpu;
        bool meant = !job->wishes.use || !strcmp(job->wishes.use, topo->types[i].id);
        if (!meant || g->memory_bytes <= g->reserve_bytes + most)
            continue;
        most = g->memory_bytes - g->reserve_bytes;
        model = g->model;
    }
    if (job->wishes.memory > most && most) {
        diag_warning(c->diag, job->wishes.memory_span, "memory", "a plan may have %s, but %s leaves %s",
                     units_show_bytes(job->wishes.memory).s, model, units_show_bytes(most).s);
        diag_help(
            c->diag,
            "the bound is the GPU's memory less its reserve; 'reserve' in the cluster file changes that");
    }
}

static enum status read_inputs(struct context *c, struct job **job, struct topo **topo)
{
    const struct options *o = c->options;
    uint32_t first = o->nargs - 2;
    *job = job_read(c->arena, c->diag, o->args[first], o->sets, o->nsets);
    *topo = topo_read(c->arena, c->diag, o->args[first + 1]);
    if (!*job || !*topo)
        return report(c, STATUS_INPUT);
    warn_memory(c, *job, *topo);
    return STATUS_OK;
}

/* what the search would choose if everything that the language can say could be lowered */
static void say_left_out(struct context *c, const struct job *job, const struct topo *topo,
                         const struct plan *p)
{
    struct arena_mark mark = arena_mark(c->arena);
    struct search_result *r = search(c->arena, diag_new(c->arena), job, topo, 1, c->options->budget, false);
    struct estimate chosen;
    cost_estimate(c->arena, cost_new(c->arena, job, topo, &p->decision), &chosen);
    if (r->ncandidates && !r->candidates[0].emittable &&
        r->candidates[0].estimate.step_time_s < chosen.step_time_s)
        fprintf(
            stderr,
            "left out: %s\n  would be %.1f %% faster by the same estimate, but %s cannot be emitted yet\n",
            decision_text(c->arena, &r->candidates[0].decision),
            100 * (chosen.step_time_s / r->candidates[0].estimate.step_time_s - 1), r->candidates[0].cannot);
    arena_reset(c->arena, mark);
}

/* the job without what the plan block asks for and nobody can emit: the words of the model and of training
 * stay */
static struct job without_plan_only(struct context *c, const struct job *job)
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

/* beside an error that something can't be emitted yet: what it would give, and what can be had without it */
static void say_gain(struct context *c, const struct job *job, const struct topo *topo)
{
    struct arena_mark mark = arena_mark(c->arena);
    struct relaxation *list;
    const struct candidate *instead = NULL;
    const char *without = NULL;
    struct job rest = without_plan_only(c, job);
    struct search_result *r = search(c->arena, diag_new(c->arena), job, topo, 1, c->options->budget, false);
    uint32_t n = r->ncandidates ? search_relaxations(c->arena, &rest, topo, true,
                                                     c->options->budget ? c->options->budget : 100000, &list)
                                : 0;
    for (uint32_t i = 0; i < n; i++)
        if (list[i].found &&
            (!instead || list[i].candidate.estimate.step_time_s < instead->estimate.step_time_s)) {
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

static enum status command_plan(struct context *c)
{
    const struct options *o = c->options;
    struct job *job;
    struct topo *topo;
    struct plan *p;
    struct verdict *v = NULL;
    char error[1024];
    if (!o->output)
        return fail(c, STATUS_USAGE, "plan wants -o DIR");
    TRY(read_inputs(c, &job, &topo));
    bool quiet = o->quiet || !isatty(STDERR_FILENO) || getenv("CI");
    struct compile_options options = {.top = o->top, .budget = o->budget, .progress = !quiet};
    enum status s = compile_job(c->arena, c->diag, job, topo, &options, &p, &v);
    if (v && v->nviolations) {
        verdict_print(v, stderr);
        return fail(c, STATUS_BUG, "the plan does not verify and was not written; this is a bug in llmc");
    }
    if (s == STATUS_NO_PLAN && strstr(diag_first(c->diag), "not emitted yet"))
        say_gain(c, job, topo);
    if (s != STATUS_OK)
        return report(c, s);
    c->plan = p;
    p->nsets = o->nsets;
    p->sets = o->sets;
    s = plan_write(p, o->output, o->force, error, sizeof error);
    if (s != STATUS_OK)
        return fail(c, s, error);
    report(c, STATUS_OK);
    if (!o->quiet)
        say_left_out(c, job, topo, p);
    if (o->json) {
        struct strbuf json = {0};
        plan_json(p, true, &json);
        fputs(json.text, stdout);
        strbuf_free(&json);
    } else {
        struct show_options show = show_detect(stdout);
        show_summary(p, stdout, &show);
    }
    return STATUS_OK;
}

/* read a plan folder and simulate it */
static enum status open_plan(struct context *c, struct plan **p)
{
    char error[1024];
    const char *why = "";
    enum status s = plan_read(c->arena, c->options->args[0], p, error, sizeof error);
    if (s != STATUS_OK)
        return fail(c, s, error);
    c->plan = *p;
    struct cost *cost = cost_new(c->arena, (*p)->job, (*p)->topo, &(*p)->decision);
    (*p)->timeline = simulate(c->arena, cost, (const struct program *const *)(*p)->train, (*p)->nroles, &why);
    return (*p)->timeline ? STATUS_OK : fail(c, STATUS_NO_PLAN, why);
}

static enum status command_check(struct context *c)
{
    struct plan *p;
    char error[1024];
    enum status s = plan_read(c->arena, c->options->args[0], &p, error, sizeof error);
    if (s != STATUS_OK)
        return fail(c, s, error);
    c->plan = p;
    if (c->options->execute) {
        struct execution e;
        s = execute_plan(c->arena, p, &e, error, sizeof error);
        if (s != STATUS_OK)
            return fail(c, s, error);
        if (c->options->json)
            execution_json(&e, stdout);
        else
            execution_print(&e, stdout);
        return execution_equal(&e) ? STATUS_OK : STATUS_NO_PLAN;
    }
    struct verdict *v = verify_plan(c->arena, p, c->options->full);
    if (c->options->json)
        verdict_json(v, stdout);
    else
        verdict_print(v, stdout);
    return v->nviolations ? STATUS_NO_PLAN : STATUS_OK;
}

static enum status command_show(struct context *c)
{
    const struct options *o = c->options;
    struct plan *p;
    const char *why = "";
    uint32_t role;
    if (o->memory + o->traffic + o->timeline + o->schedule + o->code > 1)
        return fail(c, STATUS_USAGE, "show draws one view at a time");
    TRY(open_plan(c, &p));
    struct show_options show = show_detect(stdout);
    show.json = o->json;
    show.unicode = show.unicode && !o->ascii;
    show.rank = o->rank == UINT32_MAX ? -1 : (int64_t)o->rank;
    show.stage = o->stage_index == UINT32_MAX ? -1 : (int64_t)o->stage_index;
    if (!show_role(c->arena, p, &show, &role, &why))
        return fail(c, STATUS_USAGE, why);
    void (*view)(const struct plan *, FILE *, const struct show_options *) = o->memory     ? show_memory
                                                                             : o->traffic  ? show_traffic
                                                                             : o->timeline ? show_timeline
                                                                             : o->schedule ? show_schedule
                                                                             : o->code     ? show_code
                                                                                           : show_summary;
    view(p, stdout, &show);
    return STATUS_OK;
}

static enum status close_output(FILE *f, const char *path)
{
    if (ferror(f) | fclose(f)) {
        fprintf(stderr, "llmc: %s: %s\n", path, strerror(errno));
        return STATUS_WORLD;
    }
    return STATUS_OK;
}

static enum status command_trace(struct context *c)
{
    const struct options *o = c->options;
    struct plan *p;
    uint32_t *ranks = NULL, nranks = 0;
    const char *why = "";
    if (!o->output)
        return fail(c, STATUS_USAGE, "trace wants -o FILE");
    TRY(open_plan(c, &p));
    if (o->ranks && !trace_parse_ranks(c->arena, o->ranks, p->mesh.nranks, &ranks, &nranks, &why))
        return fail(c, STATUS_USAGE, why);
    FILE *f = strcmp(o->output, "-") ? fopen(o->output, "w") : stdout;
    if (!f)
        return fail(c, STATUS_WORLD, arena_printf(c->arena, "%s: %s", o->output, strerror(errno)));
    if (o->times)
        trace_times(p, f);
    else
        trace_write(p, ranks, nranks, f);
    return close_output(f, o->output);
}

static enum status command_diff(struct context *c)
{
    struct plan *p;
    char error[512] = "";
    TRY(open_plan(c, &p));
    enum status st = diff_trace(c->arena, p, c->options->args[1], c->options->json, stdout, error, sizeof error);
    return st == STATUS_OK ? st : fail(c, st, error);
}

static enum status command_sweep(struct context *c)
{
    const struct options *o = c->options;
    struct topo *topo = topo_read(c->arena, c->diag, o->args[1]);
    if (!topo)
        return report(c, STATUS_INPUT);
    struct sweep_options options = {.model = o->args[0],
                                    .nsets = o->nsets,
                                    .sets = o->sets,
                                    .nsweeps = o->nsweeps,
                                    .sweeps = o->sweeps,
                                    .budget = o->budget,
                                    .json = o->json};
    return report(c, sweep(c->arena, c->diag, topo, &options, stdout));
}

static enum status command_estimate(struct context *c)
{
    const struct options *o = c->options;
    struct job *job;
    struct topo *topo;
    if (o->nsweeps)
        return command_sweep(c);
    TRY(read_inputs(c, &job, &topo));
    struct search_result *r =
        search(c->arena, c->diag, job, topo, o->top ? (uint32_t)o->top : 10, o->budget, false);
    if (diag_errors(c->diag) || !r->ncandidates)
        return report(c, STATUS_NO_PLAN);
    if (o->json) {
        struct strbuf json = {0};
        estimate_json(job, topo, r, &json);
        fputs(json.text, stdout);
        strbuf_free(&json);
    } else {
        estimate_print(job, topo, r, stdout);
    }
    return report(c, STATUS_OK);
}

/* of a plan folder, or of a model and a cluster */
static enum status command_explain(struct context *c)
{
    const struct options *o = c->options;
    struct explain_options options = {
        .all = o->all, .json = o->json, .colour = c->colour, .budget = o->budget};
    struct job *job;
    struct topo *topo;
    struct plan *p = NULL;
    if (o->nargs == 2) {
        TRY(read_inputs(c, &job, &topo));
    } else {
        if (o->nsets)
            return fail(c, STATUS_USAGE,
                        "a plan folder has its statements already; --set goes with MODEL CLUSTER");
        TRY(open_plan(c, &p));
        job = p->job;
        topo = p->topo;
    }
    enum status s = explain(c->arena, c->diag, job, topo, p, &options, stdout);
    return s == STATUS_OK ? report(c, s) : s;
}

static enum status command_topo(struct context *c)
{
    struct topo *t = topo_read(c->arena, c->diag, c->options->args[0]);
    if (t && c->options->json)
        topo_print_json(t, stdout);
    else if (t)
        topo_print(t, stdout);
    return report(c, t ? STATUS_OK : STATUS_INPUT);
}

static enum status command_tokens(struct context *c)
{
    char error[1024];
    if (!c->options->output)
        return fail(c, STATUS_USAGE, "tokens wants -o OUT");
    uint64_t n = 0;
    enum status s = tokens_write(c->options->args[0], c->options->output, true, &n, error, sizeof error);
    if (s != STATUS_OK)
        return fail(c, s, error);
    if (!c->options->quiet)
        fprintf(stderr, "%s: %llu tokens\n", c->options->output, (unsigned long long)n);
    return STATUS_OK;
}

static enum status command_fmt(struct context *c)
{
    struct source *s = source_read(c->arena, c->diag, c->options->args[0], (size_t)1 << 20);
    char *text = s ? fmt_text(c->arena, c->diag, s) : NULL;
    if (text)
        fputs(text, stdout);
    return report(c, text ? STATUS_OK : STATUS_INPUT);
}

static enum status command_isa(struct context *c)
{
    const char *name = c->options->nargs ? c->options->args[0] : NULL;
    bool found = c->options->json ? manual_isa_json(stdout, name) : manual_isa(stdout, name);
    if (found)
        return STATUS_OK;
    return fail(c, STATUS_USAGE,
                arena_printf(c->arena, "no instruction is called '%s'; llmc isa lists them", name));
}

/* -d STAGE: ast, sched, asm */
static enum status command_dump(struct context *c)
{
    const char *stage = c->options->args[0];
    struct job *job;
    struct topo *topo;
    struct plan *p;
    struct verdict *v = NULL;
    TRY(read_inputs(c, &job, &topo));
    if (!strcmp(stage, "ast")) {
        fputs(fmt_text(c->arena, c->diag, (struct source *)job->source), stdout);
        return STATUS_OK;
    }
    if (strcmp(stage, "sched") && strcmp(stage, "asm"))
        return fail(c, STATUS_USAGE, "the stages are ast, sched, asm");
    enum status s = compile_job(c->arena, c->diag, job, topo, &(struct compile_options){0}, &p, &v);
    if (s != STATUS_OK)
        return report(c, s);
    c->plan = p;
    struct show_options show = {.rank = c->options->rank == UINT32_MAX ? -1 : (int64_t)c->options->rank,
                                .stage = -1};
    if (!strcmp(stage, "sched"))
        schedule_print(schedule_new(c->arena, &p->decision), stdout);
    else
        show_code(p, stdout, &show);
    return STATUS_OK;
}

static enum status command_version(struct context *c)
{
    (void)c;
    puts("llmc " VERSION
         "\nLicence: see LICENSE in the source; no warranty, to the extent permitted by law.");
    return STATUS_OK;
}

static enum status command_help(struct context *c)
{
    const char *topic = c->options->nargs ? c->options->args[0] : NULL;
    if (topic && !strcmp(topic, "language")) {
        help_language(stdout);
        return STATUS_OK;
    }
    if (c->options->nargs == 2)
        topic = arena_printf(c->arena, "%s %s", topic, c->options->args[1]);
    return cli_help(stdout, topic) ? STATUS_OK : STATUS_USAGE;
}

static const struct {
    const char *name;
    enum status (*run)(struct context *c);
} commands[] = {
    {"plan", command_plan},      {"estimate", command_estimate}, {"explain", command_explain},
    {"check", command_check},    {"show", command_show},         {"trace", command_trace},
    {"diff", command_diff},
    {"topo show", command_topo}, {"tokens", command_tokens},     {"fmt", command_fmt},
    {"isa", command_isa},        {"dump", command_dump},         {"version", command_version},
    {"help", command_help},
};

int main(int argc, char **argv)
{
    struct options o;
    if (!cli_parse(argc, argv, &o))
        return STATUS_USAGE;
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    struct context c = {.arena = arena_new(), .options = &o};
    c.diag = diag_new(c.arena);
    c.colour = isatty(STDERR_FILENO) && !(no_colour && *no_colour) && !(term && !strcmp(term, "dumb"));
    enum status s = STATUS_USAGE;
    if (o.version)
        s = command_version(&c);
    else if (o.help || !o.command)
        cli_help(o.help ? stdout : stderr, o.command), s = o.help ? STATUS_OK : STATUS_USAGE;
    else
        for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
            if (!strcmp(commands[i].name, o.command))
                s = commands[i].run(&c);
    if (fflush(stdout) && s == STATUS_OK)
        s = STATUS_WORLD, fprintf(stderr, "llmc: stdout: %s\n", strerror(errno));
    if (c.plan)
        plan_close(c.plan);
    arena_free(c.arena);
    return (int)s;
}
