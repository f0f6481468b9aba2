/* Items of time and memory, what each means and where its figure comes from.
 *
 * The items are fields of struct estimate, so their sum is the estimate's total to the last bit of rounding;
 * rounded for print, they are apportioned so that what is read adds up as well. */

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

static bool has_measured_products(const struct cost *c)
{
    for (uint32_t i = 0; i < c->topo->nmeasured; i++)
        if (!strcmp(c->topo->measured[i].kind, "gemm"))
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
                        has_measured_products(c) ? "; measured products" : "");
}

/* one transfer in words: its algorithm, or the curve, members, network and rate; the rest of the sentence is
 * detail */
static void transfer_how(struct arena *a, const struct cost *c, const char *head, enum op op, double bytes,
                         const struct cost_group *g, struct explain_item *item)
{
    char why[256];
    cost_collective_why(c, op, bytes, g, why, sizeof why);
    const char *name = arena_printf(a, "%s%s of %s", head, isa_info(op)->name, units_show_bytes((uint64_t)bytes).s);
    char *lower = arena_strdup(a, name);
    for (char *p = lower; *p; p++)
        *p = *p == '_' ? '-'
             : *p >= 'A' && *p <= 'Z' && p - lower < (ptrdiff_t)(strlen(head) + strlen(isa_info(op)->name))
                 ? (char)(*p - 'A' + 'a')
                 : *p;
    const char *comma = strstr(why, ", of ");
    const char *brief = arena_printf(a, "%s, %.*s", lower, comma ? (int)(comma - why) : (int)strlen(why), why);
    item->how = *item->how ? arena_printf(a, "%s; %s", item->how, brief) : brief;
    item->detail = arena_printf(a, "%s%s%s: %s", item->detail, *item->detail ? "; " : "", lower, why);
}

static double element_bytes(const struct cost *c)
{
    return c->job->train.precision == DT_FP32 ? 4 : 2;
}

static void layer_how(struct arena *a, const struct cost *c, struct explain_item *item)
{
    const struct decision *d = c->decision;
    double rows = (double)(c->job->train.sequence / d->cp * d->microbatch), width = (double)c->job->model.width;
    double bytes = rows * width * element_bytes(c);
    if (d->tp > 1)
        transfer_how(a, c, "tp: ", d->sp ? OP_ALL_GATHER : OP_ALL_REDUCE, bytes, &c->group[AXIS_BIT(AXIS_TP)], item);
    if (d->cp > 1)
        item->how = arena_printf(a, "%s%scp: %s over %s", item->how, *item->how ? "; " : "", context_names[d->context],
                                 topo_level_name(c->topo, c->group[AXIS_BIT(AXIS_CP)].level));
    if (d->ep > 1 && cost_exchange_nodes(c) > 1) {
        transfer_how(a, c, "ep between nodes: ", OP_ALL_TO_ALL, bytes / d->tp, &c->far, item);
        transfer_how(a, c, "ep within: ", OP_ALL_TO_ALL, bytes / d->tp, &c->near, item);
    } else if (d->ep > 1)
        transfer_how(a, c, "ep: ", OP_ALL_TO_ALL, bytes / d->tp, &c->ep, item);
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

/* parameters outside of the routed experts */
static double dense_parameters(const struct model *m)
{
    double dense = (double)model_active_parameters(m);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        const struct layer *l = m->layers[i];
        if (!l->is_moe || l->moe.experts <= l->moe.active)
            continue;
        double rest = (double)(model_layer_parameters(m, l, false) - model_layer_parameters(m, l, true));
        dense -= rest / (l->moe.experts - l->moe.active) * l->moe.active;
    }
    return dense;
}

/* the pipeline's ranks hold much the same: an even share of the dense parameters names the size */
static void data_how(struct arena *a, const struct cost *c, struct explain_item *item)
{
    const struct decision *d = c->decision;
    const struct train *t = &c->job->train;
    if (d->dp * d->cp < 2)
        return;
    const struct cost_group *g = d->zero ? &c->shard : &c->group[AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)];
    double bytes = (t->reduce == DT_FP32 ? 4.0 : 2.0) * dense_parameters(&c->job->model) / ((double)d->tp * d->pp);
    transfer_how(a, c, "", d->zero ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, bytes, g, item);
    if (d->zero && c->replicas.n > 1)
        transfer_how(a, c, "", OP_ALL_REDUCE, bytes / d->shard, &c->replicas, item);
}

static const char *bubble_how(struct arena *a, const struct cost *c)
{
    const struct decision *d = c->decision;
    if (d->pp < 2)
        return "";
    const char *chunks = d->vpp > 1 ? arena_printf(a, ", %u chunks each", d->vpp) : "";
    return arena_printf(a, "%s, %u microbatches through %u stages%s", schedule_name(d->schedule), d->microbatches,
                        d->pp, chunks);
}

static const char *optimizer_how(struct arena *a, const struct cost *c)
{
    return arena_printf(a, "%s, state streamed at %s, shard 1/%u",
                        c->job->train.optimizer == OPT_ADAMW ? "AdamW" : "SGD", units_show_bytes_s(c->device.bytes_s).s,
                        c->decision->shard);
}

static int by_value(const void *x, const void *y)
{
    const struct explain_item *a = x, *b = y;
    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    return strcmp(a->key, b->key);
}

#define ITEM(key, name, meaning)                                                                                       \
    out[n++] = (struct explain_item)                                                                                   \
    {                                                                                                                  \
#key, name, (double)e->key, meaning, "", ""                                                                    \
    }

uint32_t explain_time_items(struct arena *a, const struct cost *c, const struct estimate *e, struct explain_item *out)
{
    uint32_t n = 0;
    ITEM(compute_s, "compute", "kernels of forward and backward");
    ITEM(tp_comm_s, "layer transfers", "of tp, cp and ep, not hidden");
    ITEM(pp_comm_s, "stage transfers", "activations between stages, not hidden");
    ITEM(dp_comm_s, "gradients and parameters", "transfers of dp, not hidden");
    ITEM(bubble_s, "bubble", "stages waiting for each other");
    ITEM(optimizer_s, "optimizer", "update of the parameters");
    if (c) {
        out[0].how = compute_how(a, c, e);
        layer_how(a, c, &out[1]);
        out[2].how = stage_how(a, c);
        data_how(a, c, &out[3]);
        out[4].how = bubble_how(a, c);
        out[5].how = optimizer_how(a, c);
    }
    return n;
}

static double dtype_bytes(enum dtype_name d)
{
    return d == DT_FP32 ? 4 : 2;
}

uint32_t explain_memory_items(struct arena *a, const struct cost *c, const struct estimate *e, struct explain_item *out)
{
    uint32_t n = 0;
    ITEM(parameter_bytes, "parameters", "working copy");
    ITEM(gradient_bytes, "gradients", "accumulated over a step");
    ITEM(optimizer_bytes, "optimizer", "master copy and moments");
    ITEM(activation_bytes, "activations", "kept for backward");
    ITEM(buffer_bytes, "buffers", "temporaries and transfers");
    ITEM(allocator_bytes, "allocator", "reserved but not used: fragments and caches of the stack's allocator");
    ITEM(communicator_bytes, "communicators", "channel buffers of the groups");
    ITEM(context_bytes, "context", "device context and libraries of the stack");
    if (c) {
        const struct decision *d = c->decision;
        const struct train *t = &c->job->train;
        double parameter = dtype_bytes(t->precision),
               state = t->master == train_working(t) ? 0 : dtype_bytes(t->master);
        if (d->zero >= 3 && c->buffers->master_shards > 0.5) { /* the shards are the masters */
            parameter = fmax(parameter, dtype_bytes(t->master));
            state = 0;
        }
        state += t->optimizer == OPT_ADAMW ? 2 * dtype_bytes(t->moments)
                 : t->momentum > 0         ? dtype_bytes(t->moments)
                                           : 0;
        const char *split = arena_printf(a, "split over %u", d->shard);
        out[0].how = arena_printf(a, "%g bytes per parameter%s%s", parameter, d->zero >= 3 ? ", " : "",
                                  d->zero >= 3 ? split : "");
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
    return total_bytes >= 1024.0 * 1024 ? unit_for(total_bytes, 1024.0 * 1024, "MiB")
                                        : unit_for(total_bytes, 1024, "KiB");
}
