/* The predicted figures of a plan, from its timeline, its programs and the job. */

#include "compiler/emit/plan.h"

/* dense peak of the dtype that the job computes in, falling back from halves to each other; 0 = not known */
static double peak_flop_s(const struct plan *p)
{
    const double *peak = p->topo->types[p->decision.type].gpu.peak_flop_s;
    switch (p->job->train.precision) {
    case DT_FP32:
        return peak[TOPO_FP32];
    case DT_BF16:
        return peak[TOPO_BF16] > 0   ? peak[TOPO_BF16]
               : peak[TOPO_FP16] > 0 ? peak[TOPO_FP16]
                                     : peak[TOPO_FP32];
    case DT_FP16:
        return peak[TOPO_FP16] > 0   ? peak[TOPO_FP16]
               : peak[TOPO_BF16] > 0 ? peak[TOPO_BF16]
                                     : peak[TOPO_FP32];
    case DT_FP8:
        return peak[TOPO_FP8];
    }
    return 0;
}

struct predicted plan_predicted(const struct plan *p)
{
    struct predicted f = {.step_time_s = (double)p->timeline->step_ns / 1e9,
                          .bubble_fraction = p->timeline->bubble_fraction,
                          .exposed_comm_fraction = p->timeline->exposed_comm_fraction};
    const struct train *t = &p->job->train;
    double gpu_s = f.step_time_s * p->decision.gpus_used;
    if (gpu_s > 0) {
        f.tokens_per_s_per_gpu = (double)t->batch * (double)t->sequence / gpu_s;
        f.model_flops_per_gpu_s = model_flops(&p->job->model, t->sequence, t->batch) / gpu_s;
    }
    double peak = peak_flop_s(p);
    f.mfu = peak > 0 ? f.model_flops_per_gpu_s / peak : 0;
    uint32_t fullest = 0;
    for (uint32_t r = 0; r < p->nroles; r++) {
        uint64_t bytes = p->train[r]->arena_bytes - program_host_bytes(p->train[r]);
        if (bytes > f.peak_memory_bytes) {
            f.peak_memory_bytes = bytes;
            fullest = r;
        }
    }
    const uint32_t coord[NDIGITS] = {[AXIS_PP] = fullest};
    f.peak_memory_rank = mesh_rank(&p->mesh, coord);
    return f;
}
