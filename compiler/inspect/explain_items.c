/* Items of time and memory, what each means and where its figure comes from.
 *
 * The items are fields of struct estimate, so their sum is the estimate's total to the last bit of rounding; rounded for
 * print, they are apportioned so that what is read adds up as well. */

#include "compiler/inspect/explain_items.h"

#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double peak_of(const struct cost *c)
{
    const struct topo_gpu *gpu = &c->type->gpu;
    enum dtype_name p = c->job->train.precision;
    if (p == DT_FP8 && gpu->peak_flop_s[TOPO_FP8] > 0)
        return gpu->peak_flop_s[TOPO_FP8];
    if (p == DT_FP32)
        return gpu->peak_flop_s[TOPO_FP32];
    double half = gpu->peak_flop_s[p == DT_FP16 ? TOPO_FP16 : TOPO_BF16];
    return half > 0 ? half : gpu->peak_flop_s[TOPO_FP32];
}

static bool has_measured(const struct cost *c, bool products)
{
    for (uint32_t i = 0; i < c->topo->nmeasured; i++)
        if ((c->topo->measured[i].kind[0] == 'g') == products)
            return true;
    return false;
}

static const char *compute_how(struct arena *a, const struct cost *c, const struct estimate *e)
{
    const struct decision *d = c->decision;
    const struct train *t = &c->job->train;
    double peak = peak_of(c);
    if (peak <= 0 || e->compute_s <= 0)
        return "";
    double share = model_flops(&c->job->model, t->sequence, t->batch) / (e->compute_s * d->gpus_used * peak);
    return arena_printf(a, "%u x %s on the mean stage; useful: %.0f %% of %s%s", d->microbatches,
                        units_show_seconds(e->compute_s / d->microbatches).s, 100 * share, units_show_flop_s(peak).s,
                        has_measured(c, true) ? "; measured products" : "");
}

static const char *group_text(struct arena *a, const struct cost *c, const struct cost_group *g)
{
    const char *name = topo_level_name(c->topo, g->level);
    return arena_printf(a, "%u ranks, %s%s", g->n, name, has_measured(c, false) ? " (curves where measured)" : "");
}

static double element_bytes(const struct cost *c)
{
    return c->job->train.precision == DT_FP32 ? 4 : 2;
}

static const char *layer_how(struct arena *a, const struct cost *c)
{
    const struct decision *d = c->decision;
    const char *text = "";
    uint64_t rows = c->job->train.sequence / d->cp * d->microbatch;
    uint64_t bytes = (uint64_t)((double)rows * (double)c->job->model.width * element_bytes(c));
    if (d->tp > 1)
        text = arena_printf(a, "tp: %s of %s, %s", d->sp ? "all-gather, reduce-scatter" : "all-reduce",
                            units_show_bytes(bytes).s, group_text(a, c, &c->group[AXIS_BIT(AXIS_TP)]));
    if (d->cp > 1)
        text = arena_printf(a, "%s%scp: %s, %s", text, *text ? "; " : "", context_names[d->context],
                            group_text(a, c, &c->group[AXIS_BIT(AXIS_CP)]));
    if (d->ep > 1)
        text = arena_printf(a, "%s%sep: all-to-all, %s", text, *text ? "; " : "", group_text(a, c, &c->ep));
    return text;
}

static const char *stage_how(struct arena *a, const struct cost *c)
{
    const struct decision *d = c->decision;
    if (d->pp < 2)
        return "";
    double rows = (double)c->job->train.sequence * d->microbatch / d->cp / (d->sp ? d->tp : 1);
    double bytes = rows * (double)c->job->model.width * element_bytes(c);
    return arena_printf(a, "%s over %s takes %s", units_show_bytes((uint64_t)bytes).s,
                        topo_level_name(c->topo, c->next_level), units_show_seconds(cost_transfer_s(c, bytes)).s);
}

static const char *data_how(struct arena *a, const struct cost *c)
{
    const struct decision *d = c->decision;
    uint32_t n = d->dp * d->cp;
    if (n < 2)
        return "";
    const struct cost_group *g = d->zero ? &c->shard : &c->group[AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)];
    const char *replicas = "";
    if (d->zero && d->shard < n)
        replicas = arena_printf(a, "; all-reduce, %s", group_text(a, c, &c->replicas));
    return arena_printf(a, "%s, %s%s; what does not hide",
                        d->zero ? "reduce-scatter, all-gather" : "all-reduce", group_text(a, c, g), replicas);
}

static const char *bubble_how(struct arena *a, const struct cost *c)
{
    const struct decision *d = c->decision;
    if (d->pp < 2)
        return "";
    const char *chunks = d->vpp > 1 ? arena_printf(a, ", %u chunks each", d->vpp) : "";
    return arena_printf(a, "%s, %u microbatches through %u stages%s", schedule_name(d->schedule), d->microbatches, d->pp, chunks);
}

static const char *optimizer_how(struct arena *a, const struct cost *c)
{
    return arena_printf(a, "%s, state streamed at %s, shard 1/%u", c->job->train.optimizer == OPT_ADAMW ? "AdamW" : "SGD",
                        units_show_bytes_s(c->device.bytes_s).s, c->decision->shard);
}

static int by_value(const void *x, const void *y)
{
    const struct explain_item *a = x, *b = y;
    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return strcmp(a->key, b->key);
}

uint32_t explain_time_items(struct arena *a, const struct cost *c, const struct estimate *e, struct explain_item *out)
{
    uint32_t n = 0;
    out[n++] = (struct explain_item){"compute_s", "compute", e->compute_s, "kernels of forward and backward", ""};
    out[n++] = (struct explain_item){"tp_comm_s", "layer transfers", e->tp_comm_s, "of tp, cp and ep, not hidden", ""};
    out[n++] = (struct explain_item){"pp_comm_s", "stage transfers", e->pp_comm_s, "activations between stages, not hidden", ""};
    out[n++] = (struct explain_item){"dp_comm_s", "gradients and parameters", e->dp_comm_s, "transfers of dp, not hidden", ""};
    out[n++] = (struct explain_item){"bubble_s", "bubble", e->bubble_s, "stages waiting for each other", ""};
    out[n++] = (struct explain_item){"optimizer_s", "optimizer", e->optimizer_s, "update of the parameters", ""};
    if (c) {
        out[0].how = compute_how(a, c, e);
        out[1].how = layer_how(a, c);
        out[2].how = stage_how(a, c);
        out[3].how = data_how(a, c);
        out[4].how = bubble_how(a, c);
        out[5].how = optimizer_how(a, c);
    }
    return n;
}

static double dtype_bytes(enum dtype_name d)
{
    return d == DT_FP32 ? 4 : d == DT_FP8 ? 1 : 2;
}

uint32_t explain_memory_items(struct arena *a, const struct cost *c, const struct estimate *e, struct explain_item *out)
{
    uint32_t n = 0;
    out[n++] = (struct explain_item){"parameter_bytes", "parameters", (double)e->parameter_bytes, "working copy", ""};
    out[n++] = (struct explain_item){"gradient_bytes", "gradients", (double)e->gradient_bytes, "accumulated over a step", ""};
    out[n++] = (struct explain_item){"optimizer_bytes", "optimizer", (double)e->optimizer_bytes, "master copy and moments", ""};
    out[n++] = (struct explain_item){"activation_bytes", "activations", (double)e->activation_bytes, "kept for backward", ""};
    out[n++] = (struct explain_item){"buffer_bytes", "buffers", (double)e->buffer_bytes, "temporaries and transfers", ""};
    if (c) {
        const struct decision *d = c->decision;
        const struct train *t = &c->job->train;
        bool fp32 = t->precision == DT_FP32;
        double state = fp32 ? 0 : dtype_bytes(t->master);
        state += t->optimizer == OPT_ADAMW ? 2 * dtype_bytes(t->moments) : t->momentum > 0 ? 4 : 0;
        const char *split = arena_printf(a, "split over %u", d->shard);
        out[0].how = arena_printf(a, "%g bytes per parameter%s%s", dtype_bytes(fp32 ? DT_FP32 : t->parameters),
                                  d->zero >= 3 ? ", " : "", d->zero >= 3 ? split : "");
        out[1].how = arena_printf(a, "%g bytes per parameter%s%s", dtype_bytes(t->grads), d->zero >= 2 ? ", " : "",
                                  d->zero >= 2 ? split : "");
        out[2].how = arena_printf(a, "%g bytes per parameter%s%s", state, d->zero ? ", " : "", d->zero ? split : "");
        out[3].how = arena_printf(a, "of microbatches in flight, %s, recompute %s", schedule_name(d->schedule),
                                  recompute_names[d->recompute]);
    }
    qsort(out, n, sizeof *out, by_value);
    return n;
}

int64_t explain_round(const double *value, uint32_t n, double unit, int64_t *out)
{
    double sum = 0;
    int64_t given = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += value[i];
        out[i] = (int64_t)floor(value[i] / unit);
        given += out[i];
    }
    int64_t total = (int64_t)llround(sum / unit);
    while (given < total) { /* at most n rounds; of equal remainders the first */
        uint32_t most = 0;
        for (uint32_t i = 1; i < n; i++)
            if (value[i] / unit - (double)out[i] > value[most] / unit - (double)out[most])
                most = i;
        out[most]++;
        given++;
    }
    return total;
}

static struct explain_unit unit_for(double total, double per_name, const char *name)
{
    struct explain_unit u = {name, per_name, per_name, 0};
    for (double shown = total / per_name; shown < 1000 && u.decimals < 3; shown *= 10) {
        u.step /= 10;
        u.decimals++;
    }
    return u;
}

struct explain_unit explain_unit_seconds(double total_s)
{
    if (total_s >= 1)
        return unit_for(total_s, 1, "s");
    return total_s >= 1e-3 ? unit_for(total_s, 1e-3, "ms") : unit_for(total_s, 1e-6, "us");
}

struct explain_unit explain_unit_bytes(double total_bytes)
{
    if (total_bytes >= 1024.0 * 1024 * 1024)
        return unit_for(total_bytes, 1024.0 * 1024 * 1024, "GiB");
    return total_bytes >= 1024.0 * 1024 ? unit_for(total_bytes, 1024.0 * 1024, "MiB") : unit_for(total_bytes, 1024, "KiB");
}
