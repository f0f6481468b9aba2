/* What a whole run costs, from the seconds of a step.
 *
 * Interruptions come at random (Poisson), M seconds apart in the mean: a node's own mean divided by the nodes in use.
 * After each one, everything since the last checkpoint is done again, R seconds later.  A checkpoint holds the steps up
 * for C seconds: llmrun copies weights and the optimizer's state into host memory, and writes the copy beside the next
 * steps.  Other stacks that write before they go on lose more than that.
 *
 * Young, "A first order approximation to the optimum checkpoint interval", 1974: T = sqrt(2 C M).  Daly, "A higher
 * order estimate of the optimum checkpoint interval for restart dumps", 2006, equation 37, for C < 2 M: T = sqrt(2 C M)
 * [1 + 1/3 sqrt(C / 2M) + 1/9 C / 2M] - C, and T = M otherwise.  It minimises his complete model of the wall time of W
 * seconds of work, M exp(R / M) (exp((T + C) / M) - 1) W / T, in which interruptions may also come during checkpoints
 * and restarts.  It is too good where failures come in bursts or wait for people, and where storage, of which the
 * cluster file says nothing, needs longer than the interval. */

#include "compiler/cost/run.h"

#include "compiler/cost/cost_private.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <math.h>

double run_interval_young_s(double checkpoint_s, double mtbf_s)
{
    return sqrt(2 * checkpoint_s * mtbf_s);
}

double run_interval_s(double checkpoint_s, double mtbf_s)
{
    double x = checkpoint_s / (2 * mtbf_s);
    return x < 1 ? run_interval_young_s(checkpoint_s, mtbf_s) * (1 + sqrt(x) / 3 + x / 9) - checkpoint_s : mtbf_s;
}

double run_wall_s(double work_s, double interval_s, double checkpoint_s, double restart_s, double mtbf_s)
{
    return mtbf_s * exp(restart_s / mtbf_s) * expm1((interval_s + checkpoint_s) / mtbf_s) * (work_s / interval_s);
}

/* bytes that a rank copies: what the optimizer keeps up to date */
static double saved_bytes(const struct train *t, const struct estimate *e)
{
    bool own_weights = t->precision == DT_FP32; /* no master copy among the optimizer's bytes */
    return (double)e->optimizer_bytes + (own_weights ? (double)e->parameter_bytes : 0);
}

static void add_losses(struct whole_run *r, double step_s, double work_s)
{
    if (r->mtbf_s <= 0) {
        r->seconds = work_s;
        r->goodput = 1;
        return;
    }
    double best = fmax(1, round(run_interval_s(r->checkpoint_s, r->mtbf_s) / step_s));
    r->every = best < (double)r->steps ? (uint64_t)best : r->steps;
    r->every_s = (double)r->every * step_s;
    r->seconds = run_wall_s(work_s, r->every_s, r->checkpoint_s, r->restart_s, r->mtbf_s);
    r->goodput = work_s / r->seconds;
    r->interruptions = r->seconds / r->mtbf_s;
}

struct whole_run run_whole(const struct cost *c, const struct estimate *e, double step_s)
{
    const struct train *t = &c->job->train;
    double gpus = c->decision->gpus_used, nodes = ceil(gpus / c->type->gpus);
    if (t->total <= 0 || !(step_s > 0))
        return (struct whole_run){0};
    struct whole_run r = {.tokens = t->total, .price = c->job->price};
    r.steps = (uint64_t)ceil(t->total / ((double)t->batch * (double)t->sequence));
    r.node_mtbf_s = c->type->mtbf_s;
    r.mtbf_s = c->type->mtbf_s / nodes;
    r.assumed = c->type->mtbf_assumed;
    r.restart_s = c->type->restart_s;
    r.checkpoint_s = saved_bytes(t, e) / cost_host_bytes_s(c);
    add_losses(&r, step_s, (double)r.steps * step_s);
    r.gpu_hours = r.seconds / 3600 * gpus;
    r.dollars = r.gpu_hours * r.price;
    return r;
}

static uint64_t rounded(double v)
{
    return (uint64_t)round(fmin(v, 1e18));
}

/* 15.6T */
static const char *tokens_text(struct arena *a, double v)
{
    return v >= 1e12  ? arena_printf(a, "%.4gT", v / 1e12)
           : v >= 1e9 ? arena_printf(a, "%.4gB", v / 1e9)
           : v >= 1e6 ? arena_printf(a, "%.4gM", v / 1e6)
                      : arena_strdup(a, units_show_commas(rounded(v)).s);
}

const char *run_text(struct arena *a, const struct whole_run *r)
{
    if (r->goodput < 1e-3)
        return "never ends: interruptions leave no time for it";
    const char *hours = arena_printf(a, "%s, %s GPU hours", units_show_seconds(r->seconds).s,
                                     units_show_commas(rounded(r->gpu_hours)).s);
    if (r->price > 0)
        hours = arena_printf(a, "%s, $%s at $%.2f each", hours, units_show_commas(rounded(r->dollars)).s, r->price);
    return r->mtbf_s > 0 ? arena_printf(a, "%s; goodput %.1f %%", hours, 100 * r->goodput) : hours;
}

const char *run_detail(struct arena *a, const struct whole_run *r, size_t indent)
{
    const char *steps = arena_printf(a, "%s tokens in %s", tokens_text(a, r->tokens),
                                     units_show_count(r->steps, "step").s);
    if (r->mtbf_s <= 0)
        return steps;
    return arena_printf(
        a,
        "%s, at best with a checkpoint after every %s (%s), of %s each\n%*s%s: a node has one in %s%s, and steps go on after %s",
        steps, units_show_commas(r->every).s, units_show_seconds(r->every_s).s, units_show_seconds(r->checkpoint_s).s,
        (int)indent, "", units_show_count(rounded(r->interruptions), "interruption").s,
        units_show_seconds(r->node_mtbf_s).s, r->assumed ? ", as is assumed" : "", units_show_seconds(r->restart_s).s);
}

void run_json(const struct whole_run *r, struct strbuf *o)
{
    if (!r->steps)
        return;
    strbuf_json(o, ",\n 'run': {'tokens': %g, 'steps': %lu, 'seconds': %g, 'gpu_hours': %g, 'goodput': %g", r->tokens,
                r->steps, r->seconds, r->gpu_hours, r->goodput);
    if (r->price > 0)
        strbuf_json(o, ", 'dollars_per_gpu_hour': %g, 'dollars': %g", r->price, r->dollars);
    if (r->mtbf_s > 0)
        strbuf_json(o,
                    ",\n         'interruptions': %g, 'mtbf_s': %g, 'mtbf_assumed': %d, 'restart_s': %g, "
                    "'checkpoint_stall_s': %g, 'checkpoint_every_steps': %lu, 'checkpoint_every_s': %g",
                    r->interruptions, r->mtbf_s, r->assumed, r->restart_s, r->checkpoint_s, r->every, r->every_s);
    strbuf_text(o, "}");
}
