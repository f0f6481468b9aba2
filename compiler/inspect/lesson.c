/* The formulas behind an estimate.
 *
 * Sources: Narayanan et al., SC'21, sections 2.2 and 5 (bubbles, FLOPs); Chowdhery et al. 2022, appendix B (MFU);
 * Rajbhandari et al., SC'20, sections 3 and 5 (bytes per parameter, ZeRO); Korthikanti et al. 2022, equations 1 to 6
 * (activations); NCCL's tuning.cc (collectives).  How the items of time and memory come about is said by
 * explain_items.c. */

#include "compiler/inspect/lesson.h"

#include "compiler/inspect/estimate.h"
#include "compiler/inspect/explain_items.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <stdlib.h>
#include <string.h>

struct lesson {
    const char *key, *name;      /* of the figure, as in the estimate's JSON; for people */
    const char *formula, *value; /* in words and letters; with this job's numbers */
    const char *source;          /* where it is from */
};
enum { LESSONS = 24 };

struct lessons {
    struct arena *arena;
    const struct job *job;
    const struct topo *topo;
    const struct candidate *c;
    struct predicted figures;
    uint32_t n;
    struct lesson *out;
};

static void add(struct lessons *l, const char *key, const char *name, const char *formula, const char *value,
                const char *source)
{
    if (l->n < LESSONS)
        l->out[l->n++] = (struct lesson){key, name, formula, value, source};
}

/* "1.5s + 20ms = 1.52s": items that are not 0, and their sum as it is shown elsewhere */
static const char *sum_text(struct arena *a, const struct explain_item *item, uint32_t n, const char *total, bool time)
{
    struct strbuf b = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (item[i].value <= 0)
            continue;
        const struct units_text shown = time ? units_show_seconds(item[i].value)
                                             : units_show_bytes((uint64_t)item[i].value);
        strbuf_printf(&b, "%s%s", b.length ? " + " : "", shown.s);
    }
    strbuf_printf(&b, " = %s", total);
    const char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}

static void add_rates(struct lessons *l)
{
    struct arena *a = l->arena;
    const struct train *t = &l->job->train;
    const struct predicted *f = &l->figures;
    const struct decision *d = &l->c->decision;
    const char *gpus = arena_strdup(a, units_show_count(d->gpus_used, "GPU").s);
    add(l, "tokens_per_s_per_gpu", "tokens/s/GPU", "sequences x tokens of each / (step x GPUs)",
        arena_printf(a, "%s x %s / (%s x %s) = %s", units_show_commas(t->batch).s, units_show_commas(t->sequence).s,
                     units_show_seconds(f->step_time_s).s, gpus, units_show_rate(f->tokens_per_s_per_gpu).s),
        "");
    double flops = model_flops(&l->job->model, t->sequence, t->batch);
    add(l, "model_flops_per_gpu_s", "FLOP/s/GPU", "FLOPs of the model's forward and backward pass / (step x GPUs)",
        arena_printf(a, "%.4g / (%s x %s) = %s", flops, units_show_seconds(f->step_time_s).s, gpus,
                     units_show_flop_s(f->model_flops_per_gpu_s).s),
        "products count 2 per multiplication and 3 times for forward and backward, attention in full, what is "
        "recomputed not at all: Narayanan et al., SC'21, section 5");
    if (f->mfu > 0)
        add(l, "mfu", "MFU", "FLOP/s/GPU / the GPU's dense peak in the job's precision",
            arena_printf(a, "%s / %s = %.2f %%", units_show_flop_s(f->model_flops_per_gpu_s).s,
                         units_show_flop_s(f->model_flops_per_gpu_s / f->mfu).s, 100 * f->mfu),
            "Chowdhery et al. 2022, appendix B");
}

/* the textbook's share, where stages are equal and transfers are free; "" for a schedule without one */
static const char *ideal_bubble(struct arena *a, const struct decision *d)
{
    double p = d->pp, v = d->vpp, m = d->microbatches;
    if (d->schedule != SCHED_GPIPE && d->schedule != SCHED_1F1B && d->schedule != SCHED_INTERLEAVED)
        return "";
    return arena_printf(a,
                        "; of equal stages with free transfers (pp - 1) / (vpp x m + pp - 1) = %u / (%u x %u + %u) = "
                        "%.2f %%",
                        d->pp - 1, d->vpp, d->microbatches, d->pp - 1, 100 * (p - 1) / (v * m + p - 1));
}

static void add_shares(struct lessons *l)
{
    struct arena *a = l->arena;
    const struct estimate *e = &l->c->estimate;
    const struct predicted *f = &l->figures;
    const char *step = arena_strdup(a, units_show_seconds(e->step_time_s).s);
    add(l, "bubble_fraction", "bubble", "time that ranks wait for each other / step, mean over ranks",
        arena_printf(a, "%s / %s = %.2f %%%s", units_show_seconds(e->bubble_s).s, step, 100 * f->bubble_fraction,
                     ideal_bubble(a, &l->c->decision)),
        "the wait is the timeline's; the textbook's share: Narayanan et al., SC'21, section 2.2");
    add(l, "exposed_comm_fraction", "exposed transfers", "(tp + pp + dp transfers that nothing hides) / step",
        arena_printf(a, "(%s + %s + %s) / %s = %.2f %%", units_show_seconds(e->tp_comm_s).s,
                     units_show_seconds(e->pp_comm_s).s, units_show_seconds(e->dp_comm_s).s, step,
                     100 * f->exposed_comm_fraction),
        "");
}

/* how items come about, by key; the rest is said by the item itself */
static const struct how {
    const char *key, *formula, *source;
} hows[] = {
    {"compute_s", "microbatches x seconds of the kernels, mean over stages",
     "kernels by tiles and memory traffic; measured products of the cluster file where it has some"},
    {"tp_comm_s",
     "start + steps x (latency + bytes / members / bandwidth), by NCCL's algorithm, less what compute hides",
     "ring: n - 1 steps for gather and scatter, 2 (n - 1) for all-reduce; NCCL's tuning model, or the file's curves"},
    {"pp_comm_s", "latency + bytes of a microbatch's activations / bandwidth, where it delays a stage", ""},
    {"dp_comm_s", "start + steps x (latency + bytes / members / bandwidth), less what the last backward passes hide",
     "as layer transfers"},
    {"optimizer_s", "bytes of master copy, moments and gradients of the shard / memory bandwidth", ""},
    {"parameter_bytes", "bytes per parameter x parameters of the rank's stage / tp, / shard where ZeRO is 3",
     "Rajbhandari et al., SC'20, section 5"},
    {"gradient_bytes", "bytes per parameter x parameters of the rank's stage / tp, / shard where ZeRO is 2 or 3",
     "Rajbhandari et al., SC'20, section 5"},
    {"optimizer_bytes", "bytes per parameter x parameters of the rank's stage / tp, / shard where ZeRO is on",
     "master copy and moments: Rajbhandari et al., SC'20, section 3"},
    {"activation_bytes", "microbatches in flight x what each leaves for its backward pass",
     "by operator; an unfused GPT layer keeps s b h (34 + 5 a s / h) / tp: Korthikanti et al. 2022, equations 1 to 6"},
    {"buffer_bytes", "largest temporaries, and places of transfers, where lives of buffers overlap", ""},
};

/* "2 bytes x 4.541G parameters = 8.46GiB": as many parameters as make the item, of which explain_items.c says what each
 * takes; NULL for an item of another kind */
static const char *by_parameter(const struct lessons *l, const struct explain_item *item)
{
    const char *per = strstr(item->how, " bytes per parameter");
    double each = per ? strtod(item->how, NULL) : 0;
    if (each <= 0)
        return NULL;
    uint32_t shard = strstr(per, "split") ? l->c->decision.shard : 1;
    const char *split = shard > 1 ? arena_printf(l->arena, " / %u", shard) : "";
    return arena_printf(l->arena, "%g bytes x %.4gG parameters%s = %s", each, item->value * shard / each / 1e9, split,
                        units_show_bytes((uint64_t)item->value).s);
}

static const char *item_text(const struct lessons *l, const struct explain_item *item, bool time)
{
    const char *how = *item->detail ? item->detail : *item->how ? item->how : item->meaning;
    const struct units_text shown = time ? units_show_seconds(item->value) : units_show_bytes((uint64_t)item->value);
    const char *counted = by_parameter(l, item);
    return counted ? counted : arena_printf(l->arena, "%s: %s", how, shown.s);
}

static void add_items(struct lessons *l, const struct explain_item *item, uint32_t n, bool time)
{
    for (uint32_t i = 0; i < n; i++)
        for (size_t k = 0; k < ARRAY_LEN(hows); k++)
            if (!strcmp(hows[k].key, item[i].key) && item[i].value > 0)
                add(l, item[i].key, item[i].name, hows[k].formula, item_text(l, &item[i], time), hows[k].source);
}

/* Returns how many there are; texts live in the arena. */
static uint32_t list_lessons(struct arena *a, const struct job *job, const struct topo *topo, const struct candidate *c,
                             struct lesson *out)
{
    struct lessons l = {a, job, topo, c, estimate_predicted(job, topo, c), 0, out};
    const struct cost *cost = cost_new(a, job, topo, &c->decision);
    struct explain_item item[EXPLAIN_ITEMS];
    uint32_t n = explain_time_items(a, cost, &c->estimate, item);
    add(&l, "step_time_s", "step", "compute + transfers of layers, stages and dp + bubble + optimizer",
        sum_text(a, item, n, units_show_seconds(c->estimate.step_time_s).s, true), "mean over ranks");
    add_rates(&l);
    add_shares(&l);
    add_items(&l, item, n, true);
    n = explain_memory_items(a, cost, &c->estimate, item);
    add(&l, "peak_memory_bytes", "memory", "what fills the fullest GPU",
        sum_text(a, item, n, units_show_bytes(c->estimate.peak_bytes).s, false), "");
    add_items(&l, item, n, false);
    return l.n;
}

void lesson_print(const struct job *job, const struct topo *topo, const struct candidate *c, FILE *out)
{
    enum { COLUMN = 13, WIDTH = 110 };
    struct arena *a = arena_new();
    struct lesson list[LESSONS];
    uint32_t n = list_lessons(a, job, topo, c, list);
    fprintf(out, "\n  what is behind the figures\n");
    for (uint32_t i = 0; i < n; i++) {
        struct strbuf b = {0};
        strbuf_wrap(&b, list[i].formula, COLUMN, COLUMN, WIDTH);
        fprintf(out, "  %s\n%*s%s\n", list[i].name, COLUMN, "", b.text);
        strbuf_clear(&b);
        strbuf_wrap(&b, list[i].value, COLUMN + 2, COLUMN + 2, WIDTH);
        fprintf(out, "%*s= %s\n", COLUMN, "", b.text);
        strbuf_clear(&b);
        strbuf_wrap(&b, list[i].source, COLUMN, COLUMN, WIDTH);
        if (b.length)
            fprintf(out, "%*s%s\n", COLUMN, "", b.text);
        strbuf_free(&b);
    }
    arena_free(a);
}

void lesson_json(const struct job *job, const struct topo *topo, const struct candidate *c, struct strbuf *out)
{
    struct arena *a = arena_new();
    struct lesson list[LESSONS];
    uint32_t n = list_lessons(a, job, topo, c, list);
    strbuf_text(out, ",\n \"formulas\": [");
    for (uint32_t i = 0; i < n; i++)
        strbuf_json(out,
                    i ? ",\n  {'key': %s, 'name': %s, 'formula': %s, 'values': %s, 'source': %s}"
                      : "\n  {'key': %s, 'name': %s, 'formula': %s, 'values': %s, 'source': %s}",
                    list[i].key, list[i].name, list[i].formula, list[i].value, list[i].source);
    strbuf_text(out, "]");
    arena_free(a);
}
