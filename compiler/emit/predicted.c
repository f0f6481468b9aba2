/* The predicted figures of a plan, from its timeline, its programs and the job; or of an estimate. */

#include "compiler/emit/plan.h"

#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "compiler/target/target.h"

const char *job_target(const struct job *job)
{
    return job->wishes.target ? job->wishes.target->name : TARGET_DEFAULT;
}

/* dense peak of the dtype that the job computes in, falling back from halves to each other; 0 = not known */
static double peak_flop_s(enum dtype_name precision, const double *peak)
{
    switch (precision) {
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

struct predicted predicted_new(const struct job *job, const struct topo *topo, const struct decision *d, double step_s)
{
    const struct train *t = &job->train;
    struct predicted f = {.step_time_s = step_s};
    double gpu_s = step_s * d->gpus_used, peak = peak_flop_s(t->precision, topo->types[d->type].gpu.peak_flop_s);
    if (gpu_s > 0) {
        f.tokens_per_s_per_gpu = (double)t->batch * (double)t->sequence / gpu_s;
        f.model_flops_per_gpu_s = model_flops(&job->model, t->sequence, t->batch) / gpu_s;
    }
    f.mfu = peak > 0 ? f.model_flops_per_gpu_s / peak : 0;
    return f;
}

void job_json(const struct job *job, const struct topo *topo, uint32_t gpus_used, struct strbuf *o)
{
    const struct model *m = &job->model;
    uint64_t ahead = model_predict_parameters(m);
    strbuf_json(o, "'model': {'name': %s, 'parameters': %lu, 'active_parameters': %lu, ", m->name, model_parameters(m),
                model_active_parameters(m));
    if (ahead) /* counted by nobody among the parameters */
        strbuf_json(o, "'prediction_parameters': %lu, ", ahead);
    strbuf_json(o, "'layers': %u},\n 'cluster': {'name': %s, 'gpus': %lu, 'gpus_used': %u},\n", m->nlayers, topo->name,
                topo->gpus, gpus_used);
}

void predicted_json(const struct predicted *f, struct strbuf *o)
{
    strbuf_json(o,
                "'predicted': {'step_time_s': %g, 'tokens_per_s_per_gpu': %g, 'model_flops_per_gpu_s': %g, 'mfu': %g,\n"
                "               'bubble_fraction': %g, 'exposed_comm_fraction': %g, 'peak_memory_bytes': %lu, "
                "'peak_memory_rank': %u}",
                f->step_time_s, f->tokens_per_s_per_gpu, f->model_flops_per_gpu_s, f->mfu, f->bubble_fraction,
                f->exposed_comm_fraction, f->peak_memory_bytes, f->peak_memory_rank);
}

static uint64_t device_bytes(const struct plan *p, uint32_t role)
{
    return p->train[role]->arena_bytes - program_host_bytes(p->train[role]);
}

uint32_t plan_fullest(const struct plan *p)
{
    uint32_t fullest = 0;
    for (uint32_t r = 1; r < p->nroles; r++)
        fullest = device_bytes(p, r) > device_bytes(p, fullest) ? r : fullest;
    return fullest;
}

/* bytes of the fullest pipeline rank, and which it is: what another stack takes by the cost model, or the largest arena
 */
static uint64_t fullest_bytes(const struct plan *p, uint32_t *rank)
{
    *rank = plan_fullest(p);
    if (!job_is_modelled(p->job))
        return device_bytes(p, *rank);
    struct arena *a = arena_new();
    struct estimate e = {0};
    cost_estimate(a, cost_new(a, p->job, p->topo, &p->decision), &e);
    arena_free(a);
    *rank = e.peak_stage;
    return e.peak_bytes;
}

struct predicted plan_predicted(const struct plan *p)
{
    struct predicted f = predicted_new(p->job, p->topo, &p->decision, (double)p->timeline->step_ns / 1e9);
    uint32_t coord[NDIGITS] = {0};
    f.bubble_fraction = p->timeline->bubble_fraction;
    f.exposed_comm_fraction = p->timeline->exposed_comm_fraction;
    f.peak_memory_bytes = fullest_bytes(p, &coord[AXIS_PP]);
    f.peak_memory_rank = mesh_rank(&p->mesh, coord);
    return f;
}

/* the next of the roles that a role waits for, by how long: after `last`, NONE for the first; NONE: there is no other
 */
static uint32_t next_waited(const int64_t *for_ns, uint32_t nroles, uint32_t last)
{
    uint32_t next = NONE;
    for (uint32_t r = 0; r < nroles; r++) {
        bool behind = last == NONE || for_ns[r] < for_ns[last] || (for_ns[r] == for_ns[last] && r > last);
        if (for_ns[r] > 0 && behind && (next == NONE || for_ns[r] > for_ns[next]))
            next = r;
    }
    return next;
}

void plan_waiting_json(const struct plan *p, struct strbuf *o)
{
    struct arena *a = arena_new();
    double step_ns = (double)p->timeline->step_ns;
    strbuf_text(o, "\"waiting\": [");
    for (uint32_t r = 0; r < p->nroles; r++) {
        const struct sim_role *role = &p->timeline->roles[r];
        int64_t *for_ns = ARENA_ARRAY(a, int64_t, p->nroles), waits_ns = 0;
        for (uint32_t i = 0; i < role->nidles; i++) {
            const struct sim_idle *d = &role->idles[i];
            int64_t ns = d->cause == IDLE_COMM ? 0 : d->end_ns - d->start_ns;
            waits_ns += ns;
            for_ns[d->who] += d->who == r ? 0 : ns;
        }
        strbuf_json(o, "\n  {'waits': %g, 'transfers': %g, 'for': [", (double)waits_ns / step_ns,
                    (double)role->idle_ns[IDLE_COMM] / step_ns);
        uint32_t who = next_waited(for_ns, p->nroles, NONE);
        for (uint32_t n = 0; n < PLAN_WAITED_FOR && who != NONE; n++) {
            strbuf_json(o, n ? ", [%u, %g]" : "[%u, %g]", who, (double)for_ns[who] / step_ns);
            who = next_waited(for_ns, p->nroles, who);
        }
        strbuf_text(o, r + 1 < p->nroles ? "]}," : "]}");
    }
    strbuf_text(o, "]");
    arena_free(a);
}

struct whole_run plan_run(const struct plan *p)
{
    struct arena *a = arena_new();
    struct estimate e = {0};
    const struct cost *c = cost_new(a, p->job, p->topo, &p->decision);
    if (p->job->train.total > 0)
        cost_estimate(a, c, &e);
    struct whole_run r = run_whole(c, &e, (double)p->timeline->step_ns / 1e9);
    arena_free(a);
    return r;
}
