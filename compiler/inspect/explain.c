/* `llmc explain`: what is asked, in which order.  The search runs once as `llmc plan` or `llmc estimate` would; everything
 * else changes one thing of its answer, or of its question, and looks again. */

#include "compiler/inspect/explain_private.h"
#include "compiler/support/vec.h"

#define POOL 24

static void choose(struct explanation *x)
{
    if (!x->plan) {
        x->chosen = x->found->candidates[0];
        return;
    }
    const char *why = NULL;
    x->chosen = (struct candidate){.decision = x->plan->decision};
    x->chosen.emittable = decision_emittable(x->arena, x->job, &x->chosen.decision, &why);
    x->chosen.cannot = why;
}

/* the best of what the choice left aside: of everything, for a plan; of what can be emitted, for an estimate */
static void find_left_out(struct explanation *x)
{
    if (!x->plan && x->chosen.emittable)
        return;
    const struct search_result *r =
        search(x->arena, diag_new(x->arena), x->job, x->topo, 1, x->budget, x->plan == NULL);
    if (!r->ncandidates)
        return;
    x->left_out = r->candidates[0];
    x->has_left_out = x->plan ? !x->left_out.emittable &&
                                    x->left_out.estimate.step_time_s < x->chosen.estimate.step_time_s
                              : true;
}

enum status explain(struct arena *a, struct diag *d, const struct job *job, const struct topo *topo, const struct plan *plan,
                    const struct explain_options *o, FILE *out)
{
    struct explanation x = {.arena = a, .job = job, .topo = topo, .plan = plan, .budget = o->budget, .emit_only = plan != NULL};
    x.found = search(a, d, job, topo, POOL, o->budget, x.emit_only);
    x.memory_limit_bytes = x.found->memory_limit_bytes;
    if (!plan && !x.found->ncandidates) {
        diag_print(d, stderr, o->colour);
        explain_rescue(&x);
        o->json ? explain_json(&x, out) : explain_text(&x, o->all, out);
        return STATUS_NO_PLAN;
    }
    choose(&x);
    x.cost = cost_new(a, job, topo, &x.chosen.decision);
    if (plan)
        cost_estimate(a, x.cost, &x.chosen.estimate);
    explain_shifts(&x);
    explain_jitter(&x);
    explain_nodes(&x);
    find_left_out(&x);
    o->json ? explain_json(&x, out) : explain_text(&x, o->all, out);
    return STATUS_OK;
}
