/* Seconds of kernels: a roofline with three corrections.
 *
 * A product takes max(flops / (peak * efficiency), bytes / bandwidth) plus a launch.  Efficiency is what large products
 * sustain (a stated one wins), times k / (k + half_k) for the prologue of short inner dimensions, times
 * tiles / (tiles + half_tiles) for outputs too small to fill the machine.  The sustained fractions are read off published
 * sweeps: A100 0.74-0.78 of 312 TFLOP/s at K >= 7168 and 0.61 at K = 512, H100 about 0.68 of 989 in end-to-end runs,
 * B200 0.55-0.63 of 2250; their best single shapes are 0.80-0.87.  Attention follows FlashAttention's own tables: about
 * 0.75 of what products reach forward and 0.62 backward, less for short sequences and for heads of 64.  A measured
 * product curve of the cluster file replaces the formula: the efficiency of the nearest measured shape in log space. */

#include "compiler/cost/cost_private.h"

#include <math.h>
#include <string.h>

static double sustained(const struct topo_gpu *gpu, enum topo_dtype d)
{
    if (gpu->efficiency[d] > 0)
        return gpu->efficiency[d];
    if (gpu->sm >= 100)
        return 0.60;
    if (gpu->sm >= 90)
        return 0.68;
    return gpu->sm ? 0.76 : 0.8;
}

void cost_device_init(struct cost *c)
{
    const struct topo_gpu *gpu = &c->type->gpu;
    struct cost_device *dev = &c->device;
    enum topo_dtype half = gpu->peak_flop_s[TOPO_BF16] > 0 ? TOPO_BF16 : TOPO_FP16;
    bool fp16 = c->job->train.precision == DT_FP16 && gpu->peak_flop_s[TOPO_FP16] > 0;
    half = fp16 ? TOPO_FP16 : half;
    /* a device without half precision computes it in fp32 */
    enum topo_dtype low = gpu->peak_flop_s[half] > 0 ? half : TOPO_FP32;
    enum topo_dtype full = gpu->peak_flop_s[TOPO_FP32] > 0 ? TOPO_FP32 : low;
    bool processor = !strcmp(gpu->model, "cpu"); /* the cluster file's word for CPU ranks */
    for (int d = 0; d < NDTYPES; d++) {
        enum topo_dtype t = d == DTYPE_BF16 ? low : full;
        dev->flop_s[d] = gpu->peak_flop_s[t] * sustained(gpu, t);
    }
    if (gpu->peak_flop_s[TOPO_FP8] > 0)
        dev->fp8_flop_s = gpu->peak_flop_s[TOPO_FP8] * sustained(gpu, TOPO_FP8);
    dev->bytes_s = gpu->memory_bytes_s > 0 ? 0.85 * gpu->memory_bytes_s : 8e9;
    dev->launch_s = processor ? 2e-6 : 2.5e-6; /* GPU: kernel to kernel within a captured graph, ramps included */
    dev->attention_forward = gpu->sm >= 80 ? 0.75 : 0.5;
    dev->attention_backward = gpu->sm >= 80 ? 0.62 : 0.45;
    dev->half_k = processor ? 16 : 110;
    dev->half_tiles = processor ? 0.5 : gpu->sm >= 90 ? 40 : 30;
}

/* measured efficiency of the nearest shape, as operations per second; 0 = nothing measured */
static double measured_flop_s(const struct cost *c, double m, double n, double k, enum dtype dtype)
{
    const char *want = dtype == DTYPE_BF16 ? "bf16" : "fp32";
    double best = INFINITY, flop_s = 0;
    for (uint32_t i = 0; i < c->topo->nmeasured; i++) {
        const struct topo_measured *t = &c->topo->measured[i];
        if (strcmp(t->kind, "gemm") || (t->type && strcmp(t->type, c->type->id)) || (t->dtype && strcmp(t->dtype, want)))
            continue;
        for (uint32_t j = 0; j < t->npoints; j++) {
            const struct topo_point *p = &t->points[j];
            double distance = fabs(log(m / p->m)) + fabs(log(n / p->n)) + fabs(log(k / p->k));
            if (distance < best) {
                best = distance;
                flop_s = p->flop_s;
            }
        }
    }
    /* beyond a factor of 16 in all, the shape says too little about this one */
    return best < 2.8 ? flop_s : 0;
}

double cost_matmul_s(const struct cost *c, uint64_t m, uint64_t n, uint64_t k, enum dtype dtype)
{
    if (m == 0 || n == 0 || k == 0)
        return 0;
    const struct cost_device *dev = &c->device;
    double dm = (double)m, dn = (double)n, dk = (double)k, flops = 2 * dm * dn * dk;
    double element = dtype == DTYPE_BF16 ? 2 : 4;
    double bytes = element * (dm * dk + dk * dn + dm * dn);
    double flop_s = c->topo->nmeasured ? measured_flop_s(c, dm, dn, dk, dtype) : 0;
    if (flop_s <= 0) {
        double tiles = ceil(dm / 128) * ceil(dn / 128);
        flop_s = dev->flop_s[dtype] * dk / (dk + dev->half_k) * tiles / (tiles + dev->half_tiles);
        if (dtype == DTYPE_BF16 && c->job->train.precision == DT_FP8 && dev->fp8_flop_s > 0)
            flop_s *= dev->fp8_flop_s / dev->flop_s[dtype];
    }
    return fmax(flops / flop_s, bytes / dev->bytes_s) + dev->launch_s;
}

double cost_attention_s(const struct cost *c, double tokens, double context, double heads, double qk, double v,
                        enum dtype dtype, bool backward)
{
    if (tokens <= 0 || heads <= 0)
        return 0;
    const struct cost_device *dev = &c->device;
    /* half of the score matrix is above the diagonal; backward has five products to forward's two */
    double flops = 0.5 * 2 * tokens * context * heads * (qk + v) * (backward ? 2.5 : 1);
    double width = fmin(1, 0.5 + qk / 256); /* heads of 64 run at three quarters */
    double rate = dev->flop_s[dtype] * (backward ? dev->attention_backward : dev->attention_forward) * width * context /
                  (context + 512);
    double bytes = (dtype == DTYPE_BF16 ? 2 : 4) * tokens * heads * 2 * (qk + v) * (backward ? 2 : 1);
    return fmax(flops / rate, bytes / dev->bytes_s) + dev->launch_s * (backward ? 3 : 1);
}

double cost_stream_s(const struct cost *c, double bytes)
{
    return bytes / c->device.bytes_s + c->device.launch_s;
}
