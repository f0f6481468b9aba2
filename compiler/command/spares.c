/* llmc plan --spare-plans: what to go on with when nodes are gone.
 *
 * A spare plan is the same request with fewer GPUs, where the data-parallel degree gives way: whoever types
 * --set 'gpus<=N' --set 'dp>=1' gets the same.  It lies beside the plan, as DIR.minus1 and so on, with the transition
 * from the plan to it, as DIR.minus1.move; llmrun takes it when so many fewer ranks are started. */

#include "compiler/command/command.h"

#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "compiler/support/units.h"
#include "compiler/transition/transition.h"
#include "compiler/verify/verify.h"

#include <string.h>

enum { LOSSES = 16 /* nodes whose loss is tried */ };

struct spare {
    char *dir, *move;
    uint32_t nodes; /* that are gone */
    struct plan *plan;
    double step_s, move_s; /* a step; the transition */
    uint32_t tried, kept;  /* nodes whose loss was tried; of them, those whose state others have */
};

static char *without_slash(struct arena *a, const char *dir)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    return arena_strndup(a, dir, n);
}

/* the request with fewer GPUs, planned and proved */
static enum status plan_spare(struct command *c, const struct plan *p, struct spare *s)
{
    const struct options *o = c->options;
    const struct topo_node_type *type = &p->topo->types[p->decision.type];
    const char **sets = ARENA_ARRAY(c->arena, const char *, o->nsets + 2);
    if (o->nsets)
        memcpy(sets, o->sets, o->nsets * sizeof *sets);
    sets[o->nsets] = arena_printf(c->arena, "gpus<=%u", (p->decision.nnodes - s->nodes) * type->gpus);
    sets[o->nsets + 1] = "dp>=1";
    struct diag *d = diag_new(c->arena);
    struct job *job = job_read(c->arena, d, o->args[o->nargs - 2], sets, o->nsets + 2);
    struct topo *topo = topo_read(c->arena, d, o->args[o->nargs - 1]);
    struct verdict *v = NULL;
    struct compile_options options = {.top = o->top, .budget = o->budget};
    enum status st = job && topo ? compile_job(c->arena, d, job, topo, &options, &s->plan, &v) : STATUS_INPUT;
    if (st != STATUS_OK)
        return command_fail(c, st,
                            arena_printf(c->arena, "no spare plan with %u node%s fewer: %s", s->nodes,
                                         s->nodes == 1 ? "" : "s",
                                         v && v->nviolations ? "it does not verify" : diag_first(d)));
    s->plan->nsets = o->nsets + 2;
    s->plan->sets = sets;
    s->step_s = plan_predicted(s->plan).step_time_s;
    struct error error;
    TRY(command_launch(c, s->plan));
    st = plan_write(s->plan, s->dir, o->force, &error);
    plan_close(s->plan);
    return st == STATUS_OK ? st : command_fail(c, st, error.text);
}

/* Of so many nodes, each lost alone: whose state do the others have? */
static void count_losses(struct command *c, const struct plan *from, const struct plan *to, struct spare *s)
{
    uint32_t n = from->decision.nnodes, step = n > LOSSES ? n / LOSSES : 1;
    struct error error;
    for (uint32_t i = 0; i < n && s->tried < LOSSES; i += step, s->tried++) {
        struct transition *t = NULL;
        struct arena_mark mark = arena_mark(c->arena);
        s->kept += transition_make(c->arena, from, to, from->decision.nodes[i], &t, &error) == STATUS_OK;
        transition_close(t);
        arena_reset(c->arena, mark);
    }
}

/* The transition, made, proved and written; *why: instead, why state cannot move in memory, where it cannot. */
static enum status write_move(struct command *c, const struct plan *from, const struct plan *to, struct spare *s,
                              const char **why)
{
    struct transition *t = NULL;
    struct error error;
    enum status st = transition_make(c->arena, from, to, NONE, &t, &error);
    st = st == STATUS_OK ? transition_fits(t, &error) : st;
    if (st == STATUS_NO_PLAN) {
        *why = arena_strdup(c->arena, error.text);
        transition_close(t);
        return STATUS_OK;
    }
    if (st == STATUS_OK && transition_prove(c->arena, t)->nviolations)
        st = error_set(&error, STATUS_BUG, "the transition to %s does not verify; this is a bug in llmc", s->dir);
    s->move_s = st == STATUS_OK ? transition_cost(t).seconds : 0;
    st = st == STATUS_OK ? transition_write(t, s->move, c->options->force, &error) : st;
    transition_close(t);
    return st == STATUS_OK ? st : command_fail(c, st, error.text);
}

/* what a spare plan costs: its step, the move to it, and of the nodes that were tried, how many may be lost */
static void show(const struct command *c, const struct plan *p, const struct plan *to, const struct spare *s,
                 const char *why)
{
    FILE *out = c->options->json ? stderr : stdout;
    fprintf(out, "  %u node%s fewer  %s: %u GPUs, %s per step (%+.1f %%)", s->nodes, s->nodes == 1 ? "" : "s", s->dir,
            to->decision.gpus_used, units_show_seconds(s->step_s).s,
            100 * (s->step_s / plan_predicted(p).step_time_s - 1));
    if (why)
        fprintf(out, "\n                no move in memory: %s\n", why);
    else
        fprintf(out, "; moving there in memory %s\n", units_show_seconds(s->move_s).s);
    fprintf(out, "                %s\n", decision_text(c->arena, to->job, &to->decision));
    if (s->tried)
        fprintf(out, "                of %u nodes that may be lost, all state of %u is on others too%s\n", s->tried,
                s->kept, s->kept < s->tried ? ": go on from a checkpoint" : "");
}

static enum status spare_out(struct command *c, const struct plan *p, struct spare *s)
{
    struct plan *from = NULL, *to = NULL;
    struct error error;
    const char *why = NULL;
    TRY(plan_spare(c, p, s));
    enum status st = plan_read(c->arena, c->options->output, &from, &error);
    st = st == STATUS_OK ? plan_read(c->arena, s->dir, &to, &error) : st;
    if (st != STATUS_OK)
        return command_fail(c, st, error.text);
    st = write_move(c, from, to, s, &why);
    if (st == STATUS_OK && s->nodes == 1 && !why)
        count_losses(c, from, to, s);
    if (st == STATUS_OK)
        show(c, p, to, s, why);
    plan_close(from);
    plan_close(to);
    return st;
}

enum status command_spares(struct command *c, const struct plan *p)
{
    const char *dir = without_slash(c->arena, c->options->output);
    if (c->options->spares >= p->decision.nnodes)
        return command_fail(c, STATUS_NO_PLAN,
                            arena_printf(c->arena, "--spare-plans %llu: the plan has only %u node%s",
                                         (unsigned long long)c->options->spares, p->decision.nnodes,
                                         p->decision.nnodes == 1 ? "" : "s"));
    fprintf(c->options->json ? stderr : stdout, "\nspare plans\n");
    for (uint32_t k = 1; k <= c->options->spares; k++) {
        struct spare s = {.nodes = k,
                          .dir = arena_printf(c->arena, "%s.minus%u", dir, k),
                          .move = arena_printf(c->arena, "%s.minus%u.move", dir, k)};
        TRY(spare_out(c, p, &s));
    }
    return STATUS_OK;
}
