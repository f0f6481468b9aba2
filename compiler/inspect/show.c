/* The summary, and what all views share: which role is meant, layers and blocks in words. */

#include "compiler/inspect/show.h"

#include "compiler/inspect/fitted.h"
#include "compiler/inspect/table.h"
#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/support/vec.h"
#include "compiler/target/target.h"

#include <stdlib.h>
#include <string.h>

/* --- shared --- */

bool *show_stages(struct arena *a, const struct plan *p, uint32_t role)
{
    bool *runs = ARENA_ARRAY(a, bool, p->decision.nstages);
    const struct program *q = p->train[role];
    for (uint32_t i = 0; i < q->ninsns; i++)
        if (q->insns[i].microbatch != NONE && q->insns[i].stage < p->decision.nstages)
            runs[q->insns[i].stage] = true;
    return runs;
}

bool show_role(struct arena *a, const struct plan *p, const struct show_options *o, uint32_t *role, const char **why)
{
    *role = NONE;
    if (o->rank >= 0) {
        if (o->rank >= (int64_t)p->ranks->nranks) {
            *why = arena_printf(a, "there is no rank %lld; the plan has ranks 0 to %u", (long long)o->rank,
                                p->ranks->nranks - 1);
            return false;
        }
        *role = p->ranks->ranks[o->rank].role;
    } else if (o->stage >= 0) {
        if (o->stage >= (int64_t)p->decision.nstages) {
            *why = arena_printf(a, "there is no stage %lld; the plan has stages 0 to %u", (long long)o->stage,
                                p->decision.nstages - 1);
            return false;
        }
        for (uint32_t r = p->nroles; r-- > 0;)
            if (show_stages(a, p, r)[o->stage])
                *role = r;
    }
    return true;
}

uint32_t show_first_rank(const struct plan *p, uint32_t role)
{
    const uint32_t coord[NDIGITS] = {[AXIS_PP] = role};
    return mesh_rank(&p->mesh, coord);
}

char *show_layers(struct arena *a, const struct plan *p, uint32_t role)
{
    struct strbuf b = {0};
    const char *plus = "";
    const bool *runs = show_stages(a, p, role);
    strbuf_text(&b, "");
    for (uint32_t s = 0; s < p->decision.nstages; s++) {
        const struct stage *stage = &p->decision.stages[s];
        if (!runs[s])
            continue;
        strbuf_text(&b, plus);
        plus = " + ";
        strbuf_text(&b, stage->embed ? "E " : "");
        if (stage->count == 1)
            strbuf_printf(&b, "%u", stage->first);
        else if (stage->count > 1)
            strbuf_printf(&b, "%u-%u", stage->first, stage->first + stage->count - 1);
        else
            strbuf_text(&b, "none");
        strbuf_text(&b, stage->head ? " L" : "");
    }
    char *text = arena_strdup(a, b.text);
    strbuf_free(&b);
    return text;
}

static bool is_of(const struct insn *n, char action, uint32_t stage, uint32_t microbatch)
{
    uint32_t own = n->stage == UINT16_MAX ? NONE : n->stage;
    return n->action == action && own == stage && n->microbatch == microbatch;
}

static bool continues(const struct show_block *b, const struct insn *n)
{
    return is_of(n, b->action, b->stage, b->microbatch) ||
           (b->other && is_of(n, b->other, b->other_stage, b->other_microbatch));
}

struct show_block *show_blocks(struct arena *a, const struct program *p, const struct sim_role *r, uint32_t *nblocks)
{
    VEC(struct show_block) blocks = {0};
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        if (n->queue != QUEUE_COMPUTE)
            continue;
        uint32_t stage = n->stage == UINT16_MAX ? NONE : n->stage;
        struct show_block *last = blocks.n ? &blocks.at[blocks.n - 1] : NULL;
        struct show_block *before = blocks.n > 1 ? last - 1 : NULL;
        if (before && !continues(last, n) && !before->other && !last->other && continues(before, n)) {
            /* an action goes on behind another: they alternate, a pair */
            before->other = last->action;
            before->other_stage = last->stage;
            before->other_microbatch = last->microbatch;
            last = before;
            blocks.n--;
        }
        if (last && continues(last, n)) {
            last->end_ns = r->insns[i].end_ns;
            last->last = i;
        } else {
            vec_push(a, &blocks,
                     (struct show_block){.action = n->action,
                                         .stage = stage,
                                         .microbatch = n->microbatch,
                                         .first = i,
                                         .last = i,
                                         .start_ns = r->insns[i].start_ns,
                                         .end_ns = r->insns[i].end_ns});
        }
    }
    *nblocks = (uint32_t)blocks.n;
    return blocks.at;
}

char *show_block_name(struct arena *a, const struct show_block *b)
{
    char action = b->action ? b->action : '-';
    if (b->other)
        return arena_printf(a, "%c%u & %c%u", action, b->microbatch, b->other, b->other_microbatch);
    if (b->microbatch == NONE)
        return arena_printf(a, "%c", action);
    return arena_printf(a, "%c%u", action, b->microbatch);
}

/* --- summary --- */

/* nanoseconds of compute in actions of a kind; backward: B, I and W together */
static int64_t action_ns(const struct program *p, const struct sim_role *r, const char *kinds)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        const struct insn *n = &p->insns[i];
        if (n->queue == QUEUE_COMPUTE && n->action && strchr(kinds, n->action))
            sum += r->insns[i].end_ns - r->insns[i].start_ns;
    }
    return sum;
}

static double percent(int64_t part, int64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static const char *billions(struct arena *a, uint64_t n)
{
    double v = (double)n;
    return v >= 1e9   ? arena_printf(a, "%.4gB", v / 1e9)
           : v >= 1e6 ? arena_printf(a, "%.4gM", v / 1e6)
                      : arena_strdup(a, units_show_commas(n).s);
}

const char *show_job(struct arena *a, const struct job *job)
{
    static const char *const precision[] = {
        [DT_FP32] = "fp32", [DT_BF16] = "bf16", [DT_FP16] = "fp16", [DT_FP8] = "fp8"};
    const struct model *m = &job->model;
    const struct train *t = &job->train;
    uint64_t all = model_parameters(m), active = model_active_parameters(m), ahead = model_predict_parameters(m);
    const char *experts = active == all ? "" : arena_printf(a, ", %s active", billions(a, active));
    const char *modules = ahead ? arena_printf(a, " and prediction modules of %s", billions(a, ahead)) : "";
    return arena_printf(a, "%s parameters%s, %u layers%s; %s of %s tokens per step, %s", billions(a, all), experts,
                        m->nlayers, modules, units_show_count(t->batch, "sequence").s, units_show_commas(t->sequence).s,
                        precision[t->precision]);
}

/* what the files of a plan for another stack are */
static const char *target_note(struct arena *a, const struct job *job)
{
    if (!job_is_modelled(job))
        return "";
    const char *launch = job->wishes.target->launch ? PLAN_LAUNCH " and " PLAN_HOSTS " start it; "
                                                    : "no launch files are written for it; ";
    return arena_printf(a, "; %sprograms are a model of its step, figures are its own", launch);
}

static void print_head(const struct plan *p, FILE *out, struct arena *a)
{
    const struct predicted f = plan_predicted(p);
    const struct timeline *t = p->timeline;
    fprintf(out, "%s on %s of %s of %s\n", p->job->model.name, units_show_commas(p->decision.gpus_used).s,
            units_show_count(p->topo->gpus, "GPU").s, p->topo->name ? p->topo->name : "the cluster");
    fprintf(out, "  model      %s\n", show_job(a, p->job));
    fprintf(out, "  plan       %s\n", decision_text(a, p->job, &p->decision));
    fprintf(out, "  stages     %s\n", decision_layout_short(a, &p->decision));
    fprintf(out, "  target     %s%s\n", job_target(p->job), target_note(a, p->job));
    fprintf(out, "  step       %s, %s tokens/s/GPU, %s/GPU", units_show_seconds(f.step_time_s).s,
            units_show_rate(f.tokens_per_s_per_gpu).s, units_show_flop_s(f.model_flops_per_gpu_s).s);
    if (f.mfu > 0)
        fprintf(out, ", MFU %.1f %%", 100 * f.mfu);
    fprintf(out, "\n  idle       bubble %.2f %%, exposed communication %.2f %% of the step, mean over ranks\n",
            100 * f.bubble_fraction, 100 * f.exposed_comm_fraction);
    int64_t whole = t->step_ns * (int64_t)t->nroles;
    fprintf(out, "             bubble by cause:");
    for (int k = 0; k < NIDLE; k++) {
        if (k != IDLE_COMM)
            fprintf(out, " %s %.2f %%%s", idle_names[k], percent(t->idle_ns[k], whole), k + 1 < NIDLE ? "," : "\n");
    }
    fprintf(out, "  memory     %s of %s on rank %u, the fullest\n", units_show_bytes(f.peak_memory_bytes).s,
            units_show_bytes(cost_memory_limit(p->job, &p->topo->types[p->decision.type].gpu)).s, f.peak_memory_rank);
    const struct whole_run run = plan_run(p);
    if (run.steps)
        fprintf(out, "  run        %s\n             %s\n", run_text(a, &run), run_detail(a, &run, 13));
}

static void print_stages(const struct plan *p, FILE *out, struct arena *a, uint32_t only, uint32_t width)
{
    const char *memory = job_is_modelled(p->job) ? "arena" : "memory";
    const struct table_column columns[] = {{"rank", .left = true}, {"layers", .left = true, .wraps = true},
                                           {"forward", .may = 2},  {"backward", .may = 3},
                                           {"busy", .may = 0},     {"bubble", .may = 0},
                                           {"exposed", .may = 0},  {memory, .may = 0},
                                           {"insns", .may = 4}};
    struct table *t = table_new(a, columns, ARRAY_LEN(columns));
    double microbatches = p->decision.microbatches;
    for (uint32_t r = 0; r < p->nroles; r++) {
        if (only != NONE && only != r)
            continue;
        const struct sim_role *role = &p->timeline->roles[r];
        int64_t step = p->timeline->step_ns, comm = role->idle_ns[IDLE_COMM];
        double forward = (double)action_ns(p->train[r], role, "F") / microbatches;
        double backward = (double)action_ns(p->train[r], role, "BIW") / microbatches;
        const char **cell = table_row(t);
        *cell++ = arena_printf(a, "%u", r);
        *cell++ = show_layers(a, p, r);
        *cell++ = arena_strdup(a, units_show_seconds(forward / 1e9).s);
        *cell++ = arena_strdup(a, units_show_seconds(backward / 1e9).s);
        *cell++ = arena_printf(a, "%.1f%%", percent(role->busy_ns, step));
        *cell++ = arena_printf(a, "%.1f%%", percent(step - role->busy_ns - comm, step));
        *cell++ = arena_printf(a, "%.1f%%", percent(comm, step));
        *cell++ = arena_strdup(a, units_show_bytes(p->train[r]->arena_bytes - program_host_bytes(p->train[r])).s);
        *cell = arena_printf(a, "%u", p->train[r]->ninsns);
    }
    fputc('\n', out);
    table_print(t, 0, width, out);
    struct fitted legend;
    if (!fitted_open(&legend))
        return;
    fputs("(rank: of the pipeline; E embedding, L head and loss; forward and backward: compute of one microbatch)\n",
          legend.stream);
    fitted_close(&legend, width, out);
}

static void summary_json(const struct plan *p, FILE *out)
{
    struct strbuf b = {0};
    plan_json(p, false, &b);
    fprintf(out, "%s\n", b.text);
    strbuf_free(&b);
}

void show_summary(const struct plan *p, FILE *out, const struct show_options *o)
{
    if (o->json) {
        summary_json(p, out);
        return;
    }
    struct arena *a = arena_new();
    uint32_t role = NONE;
    const char *why;
    show_role(a, p, o, &role, &why);
    struct fitted head;
    if (fitted_open(&head)) {
        print_head(p, head.stream, a);
        fitted_close(&head, o->width, out);
    }
    print_stages(p, out, a, role, o->width);
    fputc('\n', out);
    show_memory_bill(p, out, role, o->width);
    fputc('\n', out);
    show_traffic(p, out, o);
    arena_free(a);
}
