/* llmc transition: the programs that move a job's state from one plan to another, proved; or their proof once more. */

#include "compiler/command/command.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/transition/transition.h"
#include "compiler/verify/verify.h"

#include <inttypes.h>

static void print(const struct transition *t, const struct verdict *v, FILE *out)
{
    struct transition_cost c = transition_cost(t);
    fprintf(out,
            "%u ranks of %u roles, %" PRIu64 " messages: %s within nodes, %s between nodes, %s on ranks themselves\n",
            t->ranks->nranks, t->nroles, c.messages, units_show_bytes(c.near_bytes).s, units_show_bytes(c.far_bytes).s,
            units_show_bytes(c.local_bytes).s);
    fprintf(out, "%s predicted; rank %u holds most, %s of both plans' state\n", units_show_seconds(c.seconds).s,
            c.peak_rank, units_show_bytes(c.peak_bytes).s);
    fprintf(out,
            "proved: every element of state arrives exactly once, and nothing waits for ever "
            "(%" PRIu64 " instructions)\n",
            v->checked_insns);
}

/* Of programs that are not proved nothing else can be said. */
static enum status refuse(struct command *c, const struct verdict *v)
{
    const struct options *o = c->options;
    for (uint32_t i = 0; i < v->nviolations && !(o->check && o->json); i++)
        fprintf(o->check ? stdout : stderr, "property %u: %s\n", v->violations[i].property, v->violations[i].message);
    if (!o->check)
        return command_fail(c, STATUS_BUG, "the transition does not verify and was not written; this is a bug in llmc");
    return o->json ? command_fail(c, STATUS_NO_PLAN, v->violations[0].message) : STATUS_NO_PLAN;
}

static enum status run(struct command *c, const struct plan *from, const struct plan *to, struct transition **t)
{
    const struct options *o = c->options;
    struct error error = {""};
    enum status s = o->check ? transition_read(c->arena, o->check, from, to, t, &error)
                             : transition_make(c->arena, from, to, o->lost, t, &error);
    if (s != STATUS_OK)
        return command_fail(c, s, error.text);
    if (!o->check && (s = transition_fits(*t, &error)) != STATUS_OK)
        return command_fail(c, s, error.text);
    struct verdict *v = transition_prove(c->arena, *t);
    if (v->nviolations)
        return refuse(c, v);
    if (!o->check) {
        s = transition_write(*t, o->output, o->force, &error);
        if (s != STATUS_OK)
            return command_fail(c, s, error.text);
    }
    if (o->json) {
        struct strbuf json = {0};
        transition_json(*t, &json);
        fputs(json.text, stdout);
        strbuf_free(&json);
    } else {
        print(*t, v, stdout);
    }
    return STATUS_OK;
}

enum status command_transition(struct command *c)
{
    const struct options *o = c->options;
    struct plan *from, *to;
    struct error error;
    if (!o->output == !o->check)
        return command_fail(c, STATUS_USAGE, "transition wants -o DIR, or --check DIR");
    if (o->check && o->lost != NONE)
        return command_fail(c, STATUS_USAGE, "--lost goes with -o: the folder says which node is lost");
    enum status s = plan_read(c->arena, o->args[0], &from, &error);
    if (s != STATUS_OK)
        return command_fail(c, s, error.text);
    c->plans[0] = from;
    if (o->lost != NONE && o->lost >= from->topo->nnodes)
        return command_fail(c, STATUS_USAGE,
                            arena_printf(c->arena, "there is no node %u; the first plan's cluster has nodes 0 to %u",
                                         o->lost, from->topo->nnodes - 1));
    s = plan_read(c->arena, o->args[1], &to, &error);
    if (s != STATUS_OK)
        return command_fail(c, s, error.text);
    struct transition *t = NULL;
    s = run(c, from, to, &t);
    transition_close(t);
    plan_close(to);
    return s;
}
