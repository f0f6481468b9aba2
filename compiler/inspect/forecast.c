/* The search's first candidates are compiled as `llmc plan` does it; what comes out stands before the other candidates.
 *
 * Time is split by three figures of the timeline: bubble, exposed transfers, and the rest, in which kernels run. Within
 * each the estimate says what is what.  Memory of parameters, gradients and optimizer follows from the decision; what
 * the arena has more or less than the estimate is of activations and buffers. */

#include "compiler/inspect/forecast.h"

#include "compiler/llmc.h"
#include "compiler/model/sema.h"
#include "compiler/simulate/predict.h"

#include <math.h>
#include <string.h>

/* the parts' sum becomes `whole`: in proportion, or all of it in the first part where there are none */
static void scale_seconds(double whole, double **part, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += *part[i];
    for (uint32_t i = 0; i < n; i++)
        *part[i] = sum > 0 ? *part[i] * (whole / sum) : i ? 0 : whole;
}

/* the same of bytes: what rounding leaves goes to the first part */
static void scale_bytes(uint64_t whole, uint64_t **part, uint32_t n)
{
    double sum = 0;
    uint64_t given = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)*part[i];
    for (uint32_t i = 0; i < n; i++) {
        *part[i] = sum > 0 ? (uint64_t)floor((double)*part[i] / sum * (double)whole) : 0;
        *part[i] = *part[i] < whole - given ? *part[i] : whole - given;
        given += *part[i];
    }
    *part[0] += whole - given;
}

static void bring_time(const struct predicted *f, const struct decision *d, struct estimate *e)
{
    double exposed_s = f->exposed_comm_fraction * f->step_time_s, *worked[] = {&e->compute_s, &e->optimizer_s};
    double *moved[] = {&e->dp_comm_s, &e->tp_comm_s, &e->pp_comm_s};
    if (d->dp * d->cp == 1) { /* nothing is between replicas */
        moved[0] = d->tp > 1 || d->ep > 1 ? &e->tp_comm_s : &e->pp_comm_s;
        moved[1] = d->tp > 1 || d->ep > 1 ? &e->pp_comm_s : &e->tp_comm_s;
        moved[2] = &e->dp_comm_s;
    }
    e->step_time_s = f->step_time_s;
    e->bubble_s = f->bubble_fraction * f->step_time_s;
    scale_seconds(exposed_s, moved, 3);
    scale_seconds(fmax(0, f->step_time_s - e->bubble_s - exposed_s), worked, 2);
}

static void bring_memory(const struct plan *p, const struct predicted *f, struct estimate *e)
{
    uint64_t *lasting[] = {&e->parameter_bytes, &e->gradient_bytes, &e->optimizer_bytes},
             *passing[] = {&e->activation_bytes, &e->buffer_bytes, &e->allocator_bytes, &e->communicator_bytes,
                           &e->context_bytes};
    uint64_t kept = e->parameter_bytes + e->gradient_bytes + e->optimizer_bytes;
    e->peak_bytes = f->peak_memory_bytes;
    e->peak_stage = p->ranks->ranks[f->peak_memory_rank].role;
    if (kept > e->peak_bytes)
        scale_bytes(kept = e->peak_bytes, lasting, 3);
    scale_bytes(e->peak_bytes - kept, passing, 5);
}

struct estimate forecast_items(const struct plan *p, const struct estimate *model)
{
    struct estimate e = *model;
    struct predicted f = plan_predicted(p);
    bring_time(&f, &p->decision, &e);
    if (!job_is_modelled(p->job)) /* else the cost model's items are what the figure is the sum of */
        bring_memory(p, &f, &e);
    return e;
}

/* is it the plan's, but for what placing added? */
static bool is_chosen(struct arena *a, const struct job *job, const struct decision *x, const struct plan *p)
{
    struct decision plain = *x, chosen = p->decision;
    plain.room = chosen.room = 0;
    return !strcmp(decision_text(a, job, &plain), decision_text(a, job, &chosen)) &&
           !strcmp(decision_layout(a, &plain), decision_layout(a, &chosen));
}

/* the plan first, then the others in their order */
static void put_first(struct arena *a, const struct job *job, const struct topo *topo, const struct plan *p,
                      uint32_t top, struct search_result *r)
{
    struct candidate *list = ARENA_ARRAY(a, struct candidate, r->ncandidates + 1);
    struct estimate model;
    uint32_t n = 1;
    predict(a, cost_new(a, job, topo, &p->decision), &model);
    list[0] = (struct candidate){.decision = p->decision, .estimate = forecast_items(p, &model), .emittable = true};
    for (uint32_t i = 0; i < r->ncandidates && n < top; i++)
        if (!is_chosen(a, job, &r->candidates[i].decision, p))
            list[n++] = r->candidates[i];
    r->candidates = list;
    r->ncandidates = n;
    r->gap = p->search.gap;
    r->seconds = p->search.seconds;
}

/* what is best of everything, where it is no plan that was refused */
static struct search_result *beyond_plans(struct arena *a, const struct job *job, const struct topo *topo, uint32_t top,
                                          uint64_t budget)
{
    struct search_result *r = search(a, diag_new(a), job, topo, top, budget, false);
    return r->ncandidates && !r->candidates[0].emittable ? r : NULL;
}

enum status forecast(struct arena *a, struct diag *d, struct job *job, struct topo *topo, uint32_t top, uint64_t budget,
                     struct forecast *out)
{
    const struct compile_options options = {
        .top = top > COMPILE_TOP ? top : COMPILE_TOP, .budget = budget, .progress = diag_shows_progress(d)};
    const struct job asked = *job; /* compiling turns it into one whose memory is llmrun's */
    struct diag *own = diag_new(a);
    *out = (struct forecast){0};
    enum status s = compile_best(a, own, job, topo, &options, &out->plan, &out->found);
    compile_progress(&options, "");
    if (s == STATUS_NO_PLAN) {
        struct search_result *r = beyond_plans(a, &asked, topo, top, budget);
        if (r) {
            *job = asked;
            out->found = r;
            return STATUS_OK;
        }
    }
    diag_append(d, own);
    if (s == STATUS_OK)
        put_first(a, job, topo, out->plan, top ? top : 1, out->found);
    return s;
}
