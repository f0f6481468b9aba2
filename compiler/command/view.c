/* Commands that read a plan folder: check, show, report, trace, diff. */

#include "compiler/command/command.h"

#include "compiler/execute/execute.h"
#include "compiler/inspect/compare.h"
#include "compiler/inspect/diff.h"
#include "compiler/inspect/show.h"
#include "compiler/inspect/trace.h"
#include "compiler/inspect/verdict.h"
#include "compiler/origin/origin.h"
#include "compiler/report/report.h"
#include "compiler/support/units.h"
#include "compiler/verify/verify.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* read a plan folder and simulate it */
enum status command_open(struct command *c, uint32_t arg, struct plan **p)
{
    struct error error;
    const char *why = "";
    enum status s = plan_read(c->arena, c->options->args[arg], p, &error);
    if (s != STATUS_OK)
        return command_fail(c, s, error.text);
    c->plans[arg] = *p;
    (*p)->job->price = c->options->price;
    struct cost *cost = cost_new(c->arena, (*p)->job, (*p)->topo, &(*p)->decision);
    (*p)->timeline = simulate(c->arena, cost, (const struct program *const *)(*p)->train, (*p)->nroles, &why);
    return (*p)->timeline ? STATUS_OK : command_fail(c, STATUS_NO_PLAN, why);
}

enum status command_check(struct command *c)
{
    struct plan *p;
    struct error error;
    enum status s = plan_read(c->arena, c->options->args[0], &p, &error);
    if (s != STATUS_OK)
        return command_fail(c, s, error.text);
    c->plans[0] = p;
    if (c->options->execute) {
        struct execution e;
        const struct execute_options o = {c->options->full, diag_shows_progress(c->diag)};
        s = execute_plan(c->arena, c->options->args[0], p, &o, &e, &error);
        if (s != STATUS_OK)
            return command_fail(c, s, error.text);
        if (c->options->json)
            execution_json(&e, stdout);
        else
            execution_print(&e, stdout);
        return execution_equal(&e) ? STATUS_OK : STATUS_NO_PLAN;
    }
    struct verdict *v = verify_plan(c->arena, p, c->options->full);
    struct origin *o = origin_check(c->arena, p);
    if (c->options->json)
        verdict_json(v, o, stdout);
    else
        verdict_print(v, o, stdout);
    return v->nviolations || o->ndifferences ? STATUS_NO_PLAN : STATUS_OK;
}

/* what the search found is no part of a folder that anybody believes: it searches again */
static const struct search_result *search_again(struct command *c, struct plan *p)
{
    uint32_t top = p->search.top ? p->search.top : 1;
    const struct search_result *r = search(c->arena, diag_new(c->arena), p->job, p->topo, top, p->search.budget, true);
    p->search = compile_found(c->arena, p, r, top);
    return r;
}

/* of an option; text: NULL if it is not given */
static enum status read_time(struct command *c, const char *name, const char *text, double *seconds)
{
    struct units_error e;
    if (!text || units_seconds(text, strlen(text), seconds, &e))
        return STATUS_OK;
    return command_fail(c, STATUS_USAGE,
                        arena_printf(c->arena, "--%s wants a time such as 300ms, not '%s'", name, text));
}

enum status command_show(struct command *c)
{
    const struct options *o = c->options;
    struct plan *p;
    const char *why = "";
    uint32_t role;
    if (o->memory + o->traffic + o->timeline + o->schedule + o->code > 1)
        return command_fail(c, STATUS_USAGE, "show draws one view at a time");
    TRY(command_open(c, 0, &p));
    if (o->json && !(o->memory + o->traffic + o->timeline + o->schedule + o->code))
        search_again(c, p);
    struct show_options show = show_detect(stdout);
    show.json = o->json;
    show.unicode = show.unicode && !o->ascii;
    show.rank = o->rank == UINT32_MAX ? -1 : (int64_t)o->rank;
    show.stage = o->stage_index == UINT32_MAX ? -1 : (int64_t)o->stage_index;
    TRY(read_time(c, "from", o->from, &show.from_s));
    TRY(read_time(c, "to", o->to, &show.to_s));
    show.zoom = (double)o->zoom;
    if (!show_role(c->arena, p, &show, &role, &why))
        return command_fail(c, STATUS_USAGE, why);
    void (*view)(const struct plan *, FILE *, const struct show_options *) = o->memory     ? show_memory
                                                                             : o->traffic  ? show_traffic
                                                                             : o->timeline ? show_timeline
                                                                             : o->schedule ? show_schedule
                                                                             : o->code     ? show_code
                                                                                           : show_summary;
    view(p, stdout, &show);
    return STATUS_OK;
}

/* Is this a file of the plan itself, under whatever name? */
static bool is_of_plan(const struct command *c, const struct plan *p, const char *dir, const char *path)
{
    struct stat target, own;
    if (stat(path, &target))
        return false;
    for (uint32_t i = 0; i < p->nfiles; i++)
        if (!stat(arena_printf(c->arena, "%s/%s", dir, p->files[i].name), &own) && own.st_dev == target.st_dev &&
            own.st_ino == target.st_ino)
            return true;
    return false;
}

static enum status write_report(struct command *c, const struct report_plan *plans)
{
    struct file_out out;
    struct error error;
    const char *path = c->options->output, *why = file_create(path, &out);
    if (!why) {
        enum status s = report_write(plans, c->options->nargs, out.stream, &error);
        if (s != STATUS_OK) {
            file_discard(&out);
            return command_fail(c, s, error.text);
        }
        why = file_publish(&out);
    }
    return why ? command_fail(c, STATUS_WORLD, arena_printf(c->arena, "%s: %s", path, why)) : STATUS_OK;
}

enum status command_report(struct command *c)
{
    const struct options *o = c->options;
    struct report_plan plans[2];
    if (!o->output)
        return command_fail(c, STATUS_USAGE, "report wants -o FILE");
    for (uint32_t i = 0; i < o->nargs; i++) {
        struct plan *p;
        TRY(command_open(c, i, &p));
        if (is_of_plan(c, p, o->args[i], o->output))
            return command_fail(c, STATUS_WORLD, arena_printf(c->arena, "%s: it is a file of the plan", o->output));
        plans[i] = (struct report_plan){o->args[i], p, verify_plan(c->arena, p, false), search_again(c, p)};
    }
    return write_report(c, plans);
}

enum status command_trace(struct command *c)
{
    const struct options *o = c->options;
    struct plan *p;
    uint32_t *ranks = NULL, nranks = 0;
    const char *why = "";
    if (!o->output)
        return command_fail(c, STATUS_USAGE, "trace wants -o FILE");
    if (o->format && strcmp(o->format, "json") != 0 && strcmp(o->format, "perfetto") != 0)
        return command_fail(c, STATUS_USAGE,
                            arena_printf(c->arena, "--format wants json or perfetto, not '%s'", o->format));
    if (o->format && o->times)
        return command_fail(c, STATUS_USAGE, "--times has a format of its own");
    TRY(command_open(c, 0, &p));
    if (o->ranks && !trace_parse_ranks(c->arena, o->ranks, p->mesh.nranks, &ranks, &nranks, &why))
        return command_fail(c, STATUS_USAGE, why);
    if (is_of_plan(c, p, o->args[0], o->output))
        return command_fail(c, STATUS_WORLD, arena_printf(c->arena, "%s: it is a file of the plan itself", o->output));
    struct file_out out;
    why = file_create(o->output, &out);
    if (!why) {
        if (o->times)
            trace_times(p, out.stream);
        else
            trace_write(p, ranks, nranks, o->format && !strcmp(o->format, "perfetto"), out.stream);
        why = file_publish(&out);
    }
    return why ? command_fail(c, STATUS_WORLD, arena_printf(c->arena, "%s: %s", o->output, why)) : STATUS_OK;
}

enum status command_diff(struct command *c)
{
    struct plan *p, *other;
    struct error error = {""};
    struct stat target;
    TRY(command_open(c, 0, &p));
    if (!stat(c->options->args[1], &target) && S_ISDIR(target.st_mode)) {
        TRY(command_open(c, 1, &other));
        return compare_plans(c->arena, p, other, c->options->json, stdout) ? STATUS_NO_PLAN : STATUS_OK;
    }
    enum status st = diff_trace(c->arena, p, c->options->args[1], c->options->json, stdout, &error);
    return st == STATUS_OK ? st : command_fail(c, st, error.text);
}
