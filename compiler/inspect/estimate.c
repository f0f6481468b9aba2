/* Printing of what the search predicts.  Figures are those of the closed form: `llmc plan` simulates the very
 * instructions and is the better number where both exist. */

#include "compiler/inspect/estimate.h"

#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <string.h>

struct figures {
    double tokens_per_s, tokens_per_s_per_gpu, model_flops_per_gpu_s, mfu, bubble, exposed;
    uint32_t peak_rank;
};

static double peak_flop_s(const struct job *job, const struct topo_gpu *gpu)
{
    const double *peak = gpu->peak_flop_s;
    switch (job->train.precision) {
    case DT_FP32:
        return peak[TOPO_FP32];
    case DT_BF16:
        return peak[TOPO_BF16] > 0 ? peak[TOPO_BF16] : peak[TOPO_FP16] > 0 ? peak[TOPO_FP16] : peak[TOPO_FP32];
    case DT_FP16:
        return peak[TOPO_FP16] > 0 ? peak[TOPO_FP16] : peak[TOPO_BF16] > 0 ? peak[TOPO_BF16] : peak[TOPO_FP32];
    case DT_FP8:
        return peak[TOPO_FP8];
    }
    return 0;
}

static struct figures figures_of(const struct job *job, const struct topo *topo, const struct candidate *c)
{
    const struct train *t = &job->train;
    const struct estimate *e = &c->estimate;
    double tokens = (double)t->batch * (double)t->sequence, gpus = c->decision.gpus_used;
    struct figures f = {.tokens_per_s = tokens / e->step_time_s};
    f.tokens_per_s_per_gpu = f.tokens_per_s / gpus;
    f.model_flops_per_gpu_s = model_flops(&job->model, t->sequence, t->batch) / (e->step_time_s * gpus);
    double peak = peak_flop_s(job, &topo->types[c->decision.type].gpu);
    f.mfu = peak > 0 ? f.model_flops_per_gpu_s / peak : 0;
    f.bubble = e->bubble_s / e->step_time_s;
    f.exposed = (e->tp_comm_s + e->pp_comm_s + e->dp_comm_s) / e->step_time_s;
    const uint32_t size[NAXES] = {[AXIS_TP] = c->decision.tp, [AXIS_CP] = c->decision.cp, [AXIS_DP] = c->decision.dp,
                                  [AXIS_PP] = c->decision.pp};
    const uint32_t coord[NAXES] = {[AXIS_PP] = e->peak_stage};
    struct mesh mesh = mesh_new(size, c->decision.order);
    f.peak_rank = mesh_rank(&mesh, coord);
    return f;
}

static double gib(uint64_t bytes)
{
    return (double)bytes / (1024.0 * 1024 * 1024);
}

static void print_best(const struct job *job, const struct topo *topo, const struct search_result *r, FILE *out)
{
    struct arena *a = arena_new();
    const struct candidate *c = &r->candidates[0];
    const struct estimate *e = &c->estimate;
    struct figures f = figures_of(job, topo, c);
    fprintf(out, "%s on %u of %llu GPUs of %s\n", job->model.name, c->decision.gpus_used, (unsigned long long)topo->gpus,
            topo->name ? topo->name : "the cluster");
    fprintf(out, "  plan     %s\n", decision_text(a, &c->decision));
    fprintf(out, "  stages   %s\n", decision_layout_short(a, &c->decision));
    fprintf(out, "  step     %s   %.0f tokens/s   %.0f tokens/s/GPU   %s/GPU", units_show_seconds(e->step_time_s).s,
            f.tokens_per_s, f.tokens_per_s_per_gpu, units_show_flop_s(f.model_flops_per_gpu_s).s);
    if (f.mfu > 0)
        fprintf(out, "   MFU %.1f %%", 100 * f.mfu);
    const double part[] = {e->compute_s, e->tp_comm_s, e->pp_comm_s, e->dp_comm_s, e->bubble_s, e->optimizer_s};
    static const char *const name[] = {"compute", "layer transfers", "stage transfers", "gradients and parameters",
                                       "bubble", "optimizer"};
    fprintf(out, "\n");
    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        fprintf(out, "    %-26s %10s %6.1f %%\n", name[i], units_show_seconds(part[i]).s, 100 * part[i] / e->step_time_s);
    fprintf(out, "  memory   %s of %s on stage %u\n", units_show_bytes(e->peak_bytes).s,
            units_show_bytes(r->memory_limit_bytes).s, e->peak_stage);
    fprintf(out, "    parameters %.2f  gradients %.2f  optimizer %.2f  activations %.2f  buffers %.2f GiB\n",
            gib(e->parameter_bytes), gib(e->gradient_bytes), gib(e->optimizer_bytes), gib(e->activation_bytes),
            gib(e->buffer_bytes));
    if (!c->emittable)
        fprintf(out, "  not emitted yet: %s\n", c->cannot);
    arena_free(a);
}

void estimate_print(const struct job *job, const struct topo *topo, const struct search_result *r, FILE *out)
{
    if (r->ncandidates == 0)
        return;
    struct arena *a = arena_new();
    print_best(job, topo, r, out);
    fprintf(out, "  search   %llu evaluated, %llu families ruled out by bound, %llu over memory", (unsigned long long)r->evaluated,
            (unsigned long long)r->pruned, (unsigned long long)r->infeasible_memory);
    if (r->gap > 0)
        fprintf(out, ", at most %.1f %% from the best", 100 * r->gap);
    fprintf(out, ", %s\n", units_show_seconds(r->seconds).s);
    if (r->ncandidates > 1)
        fprintf(out, "\n  %4s %10s %8s %9s  %s\n", "", "step", "MFU %", "memory", "plan");
    for (uint32_t i = 1; i < r->ncandidates; i++) {
        const struct candidate *c = &r->candidates[i];
        fprintf(out, "  %3u. %10s %8.1f %9s  %s%s\n", i + 1, units_show_seconds(c->estimate.step_time_s).s,
                100 * figures_of(job, topo, c).mfu, units_show_bytes(c->estimate.peak_bytes).s,
                decision_text(a, &c->decision), c->emittable ? "" : " *");
    }
    bool planned = false;
    for (uint32_t i = 1; i < r->ncandidates; i++)
        planned |= !r->candidates[i].emittable;
    if (planned)
        fprintf(out, "  * not emitted yet\n");
    arena_free(a);
}

static void key(struct strbuf *o, const char *k, double v, const char *after)
{
    strbuf_printf(o, "\"%s\": ", k);
    strbuf_json_number(o, v);
    strbuf_text(o, after);
}

static void predicted_json(const struct job *job, const struct topo *topo, const struct candidate *c, struct strbuf *o)
{
    struct figures f = figures_of(job, topo, c);
    strbuf_text(o, "\"predicted\": {");
    key(o, "step_time_s", c->estimate.step_time_s, ", ");
    key(o, "tokens_per_s_per_gpu", f.tokens_per_s_per_gpu, ", ");
    key(o, "model_flops_per_gpu_s", f.model_flops_per_gpu_s, ", ");
    key(o, "mfu", f.mfu, ",\n               ");
    key(o, "bubble_fraction", f.bubble, ", ");
    key(o, "exposed_comm_fraction", f.exposed, ", ");
    strbuf_printf(o, "\"peak_memory_bytes\": %llu, \"peak_memory_rank\": %u}", (unsigned long long)c->estimate.peak_bytes,
                  f.peak_rank);
}

static void items_json(const struct estimate *e, struct strbuf *o)
{
    strbuf_text(o, " \"time\": {");
    key(o, "compute_s", e->compute_s, ", ");
    key(o, "tp_comm_s", e->tp_comm_s, ", ");
    key(o, "pp_comm_s", e->pp_comm_s, ", ");
    key(o, "dp_comm_s", e->dp_comm_s, ", ");
    key(o, "bubble_s", e->bubble_s, ", ");
    key(o, "optimizer_s", e->optimizer_s, "},\n");
    strbuf_printf(o,
                  " \"memory\": {\"parameter_bytes\": %llu, \"gradient_bytes\": %llu, \"optimizer_bytes\": %llu, "
                  "\"activation_bytes\": %llu, \"buffer_bytes\": %llu},\n",
                  (unsigned long long)e->parameter_bytes, (unsigned long long)e->gradient_bytes,
                  (unsigned long long)e->optimizer_bytes, (unsigned long long)e->activation_bytes,
                  (unsigned long long)e->buffer_bytes);
}

static void candidate_json(const struct job *job, const struct topo *topo, const struct candidate *c, struct strbuf *o)
{
    strbuf_text(o, "\"decision\": ");
    decision_json(&c->decision, o);
    strbuf_text(o, ",\n ");
    predicted_json(job, topo, c, o);
    strbuf_printf(o, ",\n \"emittable\": %s", c->emittable ? "true" : "false");
    if (!c->emittable) {
        strbuf_text(o, ", \"cannot_emit\": ");
        strbuf_json_string(o, c->cannot);
    }
}

void estimate_json(const struct job *job, const struct topo *topo, const struct search_result *r, struct strbuf *o)
{
    if (r->ncandidates == 0)
        return;
    const struct model *m = &job->model;
    strbuf_text(o, "{\"schema\": 1,\n \"model\": {\"name\": ");
    strbuf_json_string(o, m->name);
    strbuf_printf(o, ", \"parameters\": %llu, \"active_parameters\": %llu, \"layers\": %u},\n",
                  (unsigned long long)model_parameters(m), (unsigned long long)model_active_parameters(m), m->nlayers);
    strbuf_text(o, " \"cluster\": {\"name\": ");
    strbuf_json_string(o, topo->name ? topo->name : "");
    strbuf_printf(o, ", \"gpus\": %llu, \"gpus_used\": %u},\n ", (unsigned long long)topo->gpus,
                  r->candidates[0].decision.gpus_used);
    candidate_json(job, topo, &r->candidates[0], o);
    strbuf_text(o, ",\n");
    items_json(&r->candidates[0].estimate, o);
    strbuf_printf(o, " \"search\": {\"space\": %llu, \"evaluated\": %llu, \"pruned\": %llu, \"over_memory\": %llu, ",
                  (unsigned long long)r->space, (unsigned long long)r->evaluated, (unsigned long long)r->pruned,
                  (unsigned long long)r->infeasible_memory);
    key(o, "gap", r->gap, ", ");
    key(o, "seconds", r->seconds, "},\n");
    strbuf_text(o, " \"candidates\": [");
    for (uint32_t i = 1; i < r->ncandidates; i++) {
        strbuf_text(o, i > 1 ? ",\n {" : "{");
        candidate_json(job, topo, &r->candidates[i], o);
        strbuf_text(o, "}");
    }
    strbuf_text(o, "]}\n");
}

/* values of a sweep: split at commas, brackets around them allowed */
static uint32_t sweep_values(struct arena *a, const char *list, const char ***values)
{
    VEC(const char *) out = {0};
    size_t n = strlen(list);
    if (n >= 2 && list[0] == '[' && list[n - 1] == ']') {
        list++;
        n -= 2;
    }
    for (size_t i = 0, start = 0; i <= n; i++)
        if (i == n || list[i] == ',') {
            size_t from = start, to = i;
            while (from < to && list[from] == ' ')
                from++;
            while (to > from && list[to - 1] == ' ')
                to--;
            if (to == from)
                return 0;
            vec_push(a, &out, arena_strndup(a, list + from, to - from));
            start = i + 1;
        }
    *values = out.at;
    return (uint32_t)out.n;
}

static void sweep_row(struct arena *a, const struct job *job, const struct topo *topo, const struct search_result *r,
                      const char *key_text, const char *value, bool json, FILE *out)
{
    struct strbuf b = {0};
    if (json) {
        strbuf_text(&b, "{\"key\": ");
        strbuf_json_string(&b, key_text);
        strbuf_text(&b, ", \"value\": ");
        strbuf_json_string(&b, value);
        strbuf_text(&b, ", \"estimate\": ");
        if (r->ncandidates)
            estimate_json(job, topo, r, &b);
        else
            strbuf_text(&b, "null");
        strbuf_text(&b, "}");
    } else if (r->ncandidates) {
        const struct candidate *c = &r->candidates[0];
        struct figures f = figures_of(job, topo, c);
        strbuf_printf(&b, "%-16s %8u %10s %12.0f %8.1f %9s  %s%s\n", value, c->decision.gpus_used,
                      units_show_seconds(c->estimate.step_time_s).s, f.tokens_per_s, 100 * f.mfu,
                      units_show_bytes(c->estimate.peak_bytes).s, decision_text(a, &c->decision), c->emittable ? "" : " *");
    } else {
        strbuf_printf(&b, "%-16s no plan\n", value);
    }
    fputs(b.text, out);
    strbuf_free(&b);
}

enum status estimate_sweep(struct arena *a, struct diag *d, const char *model, const char *const *sets, uint32_t nsets,
                           const struct topo *topo, const char *sweep, uint64_t budget, bool json, FILE *out)
{
    const char *equals = strchr(sweep, '='), **values;
    uint32_t n = equals && equals > sweep ? sweep_values(a, equals + 1, &values) : 0;
    if (n == 0) {
        diag_error(d, (struct span){0}, "usage", "--sweep takes KEY=LIST, such as tp=1,2,4,8");
        return STATUS_USAGE;
    }
    const char *key_text = arena_strndup(a, sweep, (size_t)(equals - sweep));
    const char **all = ARENA_ARRAY(a, const char *, nsets + 1);
    for (uint32_t i = 0; i < nsets; i++)
        all[i] = sets[i];
    if (!json)
        fprintf(out, "%-16s %8s %10s %12s %8s %9s  %s\n", key_text, "GPUs", "step", "tokens/s", "MFU %", "memory", "plan");
    enum status status = STATUS_NO_PLAN;
    for (uint32_t i = 0; i < n; i++) {
        all[nsets] = arena_printf(a, "%s=%s", key_text, values[i]);
        struct job *job = job_read(a, d, model, all, nsets + 1);
        if (!job)
            return STATUS_INPUT;
        struct search_result *r = search(a, diag_new(a), job, topo, 1, budget, false);
        if (r->ncandidates)
            status = STATUS_OK;
        if (json)
            fputs(i ? ",\n" : "[", out);
        sweep_row(a, job, topo, r, key_text, values[i], json, out);
    }
    if (json)
        fputs("]\n", out);
    return status;
}
