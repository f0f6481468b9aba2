/* Table of GPU generations, and the device of a plan from it.
 *
 * Sources of the constants:
 *  units       multiprocessors of the product (NVIDIA's architecture papers; 152 of GB200 and GB300 from the
 * shapes of their best products, which fill 76 pairs exactly).  Blackwell makes a tile by a pair. clock share
 * of the data-sheet peak that products reach which fill the device exactly: the best shapes of the tables of
 * maximum achievable products (A100 0.87, H100 0.80, GH200 0.84, B200 0.78, GB200 0.73, fp8 0.71 to 0.78),
 * divided by their quantisation and fill. power       share of the peak sustained under the power limit,
 * joined with the clock by kernel.c's norm.  A100-PCIe (300 W) and B200: fitted to SimuMax's tables of
 * shapes; A100-SXM has 400 W and the same chip; the others by end-to-end runs. fill, shared, split, weight,
 * write, group: the same tables, by `bench_micro FOLDER fit`; Hopper, without such a table, lies between. odd
 * NVIDIA's guide; batches from BLOOM's runs (kernel.c). attention   FlashAttention-2's figures (A100),
 * FlashAttention-3's (Hopper), SimuMax (A100-PCIe, B200: cuDNN); rate and softmax by their spread over head
 * sizes, fill over sequence lengths, tail over the number of heads. */

#include "compiler/cost/cost_private.h"
#include "compiler/support/real.h"
#include "compiler/support/vec.h"

#include <math.h>
#include <string.h>

/* clang-format off */
static const struct generation {
    unsigned sm; /* at least */
    double sms_per_tile;
    struct {
        double m, n;
    } tiles[COST_MAX_TILES];
    double clock, clock_fp8;               /* shares of the peak */
    double fill, shared, split_s, weight, write, group, odd, batch_odd; /* see struct cost_device */
    double memory, product_memory;         /* shares of the data-sheet bandwidth: streams, products */
    struct cost_flash forward, backward;   /* flop_s: share of what large products sustain */
} generations[] = {
    {.sm = 100, .sms_per_tile = 2,
     .tiles = {{256, 256}, {256, 224}, {256, 192}, {256, 160}, {256, 128}, {128, 256}, {128, 192}, {128, 128},
               {256, 64}, {128, 64}, {64, 256}},
     .clock = 0.82, .clock_fp8 = 0.79, .fill = 85, .shared = 0.092, .split_s = 18e-6, .weight = 1.065, .write = 2,
     .group = 0.9, .odd = 0.5, .batch_odd = 0.085, .memory = 0.90, .product_memory = 0.88,
     .forward = {.flop_s = 1.59, .softmax = 212, .fill = 158, .rows = 256, .tail = 0.64, .unequal = 1},
     .backward = {.flop_s = 0.99, .softmax = 55, .fill = 111, .rows = 128, .tail = 0.15, .unequal = 0.78}},
    {.sm = 90, .sms_per_tile = 1,
     .tiles = {{128, 256}, {256, 128}, {128, 224}, {128, 192}, {128, 160}, {128, 128}, {64, 256}, {256, 64},
               {64, 128}, {128, 64}},
     .clock = 0.86, .clock_fp8 = 0.80, .fill = 90, .shared = 0.15, .split_s = 30e-6, .weight = 1.05, .write = 2,
     .group = 0.6, .odd = 0.5, .batch_odd = 0.085, .memory = 0.90, .product_memory = 0.88,
     .forward = {.flop_s = 1.54, .softmax = 290, .fill = 258, .rows = 128, .tail = 1, .unequal = 0.88},
     .backward = {.flop_s = 0.94, .softmax = 100, .fill = 286, .rows = 128, .tail = 0.43, .unequal = 0.94}},
    {.sm = 80, .sms_per_tile = 1,
     .tiles = {{128, 256}, {256, 128}, {128, 128}, {64, 256}, {256, 64}, {64, 128}, {128, 64}, {64, 64}},
     .clock = 0.90, .fill = 175, .shared = 1.06, .split_s = 92e-6, .weight = 1.046, .write = 1.5,
     .group = 0.35, .odd = 0.75, .batch_odd = 0.085, .memory = 0.88, .product_memory = 0.85,
     .forward = {.flop_s = 1.165, .softmax = 100, .fill = 176, .rows = 128, .tail = 0.89, .unequal = 0.85},
     .backward = {.flop_s = 0.88, .softmax = 73, .fill = 188, .rows = 128, .tail = 0.41, .unequal = 0.78}},
    /* no measurements of kernels: Ampere's, at rates of public V100 benchmarks */
    {.sm = 70, .sms_per_tile = 1,
     .tiles = {{128, 256}, {256, 128}, {128, 128}, {64, 256}, {256, 64}, {64, 128}, {128, 64}, {64, 64}},
     .clock = 0.85, .fill = 175, .shared = 1.06, .split_s = 92e-6, .weight = 1.046, .write = 1.5,
     .group = 0.35, .odd = 0.75, .batch_odd = 0.085, .memory = 0.85, .product_memory = 0.85,
     .forward = {.flop_s = 0.60, .softmax = 100, .fill = 176, .rows = 128, .tail = 0.89, .unequal = 0.85},
     .backward = {.flop_s = 0.50, .softmax = 73, .fill = 188, .rows = 128, .tail = 0.41, .unequal = 0.78}},
};

/* by beginning of the catalogue's name, first match; power: half precision and fp8 */
static const struct {
    const char *model;
    double sms, power, power_fp8;
} models[] = {
    {"A100-PCIe", 108, 0.92, 0},     {"A100", 108, 1.10, 0},              {"A800", 108, 1.10, 0},
    {"V100", 80, 1.0, 0},            {"L40S", 142, 0.65, 0.65},           {"H100-PCIe", 114, 0.70, 0.6},
    {"H20", 78, 1.2, 1.2},           {"H100-SXM-96GB", 132, 0.76, 0.62},  {"GH200", 132, 0.88, 0.75},
    {"H", 132, 0.82, 0.68},          {"GB300", 152, 0.74, 0.65},          {"GB", 152, 0.66, 0.525},
    {"B300", 148, 0.61, 0.62},       {"B", 148, 0.516, 0.56},
};
/* clang-format on */

static const struct generation *find_generation(const struct topo_gpu *gpu)
{
    for (size_t i = 0; gpu->sm && i < ARRAY_LEN(generations); i++)
        if (gpu->sm >= generations[i].sm)
            return &generations[i];
    return NULL;
}

/* The seconds of the largest products under both limits, as a rate; by kernel.c's norm. */
static double sustained(double clock, double power)
{
    return 1 / sqrt(sqrt(1 / real_power(clock, 4) + 1 / real_power(power, 4)));
}

void cost_device_tiles(struct cost_device *dev, double shared)
{
    double most = 0;
    for (unsigned i = 0; i < dev->ntiles; i++) {
        struct cost_tile *t = &dev->tiles[i];
        double relative = 1 / (1 + shared * 128 * (t->per_m + t->per_n));
        t->work = t->m * t->n / relative;
        most = fmax(most, relative);
    }
    for (unsigned i = 0; i < dev->ntiles; i++)
        dev->tiles[i].work *= most;
}

static void init_tiles(struct cost_device *dev, const struct generation *g)
{
    for (dev->ntiles = 0; dev->ntiles < COST_MAX_TILES && g->tiles[dev->ntiles].m > 0; dev->ntiles++) {
        double m = g->tiles[dev->ntiles].m, n = g->tiles[dev->ntiles].n;
        dev->tiles[dev->ntiles] = (struct cost_tile){.m = m, .n = n, .per_m = 1 / m, .per_n = 1 / n};
    }
    dev->shared = g->shared;
    cost_device_tiles(dev, g->shared);
}

/* Sets the rates of one number format; stated: the cluster file's efficiency of large products, 0 = none. */
static void init_rate(struct cost_device *dev, enum cost_number number, double peak, double clock, double power,
                      double stated, double factor)
{
    if (peak <= 0 || clock <= 0)
        return;
    double scale = factor * (stated > 0 ? stated / sustained(clock, power) : 1);
    dev->clock_flop_s[number] = peak * clock * scale;
    dev->power_flop_s[number] = peak * power * scale;
}

uint32_t cost_device_sms(const struct topo_gpu *gpu)
{
    if (!find_generation(gpu) || gpu->memory_bytes_s <= 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(models); i++)
        if (!strncmp(models[i].model, gpu->model, strlen(models[i].model)))
            return (uint32_t)models[i].sms;
    return 128;
}

/* Multiprocessors that are reserved for communication compute nothing during the whole step (DeepSeek-V3's report,
 * section 3.2.2); the others may use what the power supply sustains. */
static void leave_sms(struct cost_device *dev, const struct generation *g, double sms)
{
    if (!(sms < dev->sms))
        return;
    double share = 1 - sms / dev->sms;
    dev->sms -= sms;
    dev->units = floor(dev->sms / g->sms_per_tile);
    for (int i = 0; i < COST_NNUMBERS; i++)
        dev->clock_flop_s[i] *= share;
    dev->forward.flop_s *= share;
    dev->backward.flop_s *= share;
}

static void init_known(struct cost *c, const struct topo_gpu *gpu, const struct generation *g, enum topo_dtype low,
                       enum topo_dtype full)
{
    struct cost_device *dev = &c->device;
    const struct profile *p = c->profile;
    double power = 0.8, power_fp8 = 0.6;
    dev->sms = cost_device_sms(gpu);
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        if (strncmp(models[i].model, gpu->model, strlen(models[i].model)))
            continue;
        power = models[i].power;
        power_fp8 = models[i].power_fp8;
        break;
    }
    dev->units = floor(dev->sms / g->sms_per_tile);
    init_tiles(dev, g);
    double half = gpu->sm >= 100 ? p->matmul_sm100 : gpu->sm >= 90 ? p->matmul_sm90 : p->matmul_sm80;
    double fp8 = gpu->sm >= 100 ? p->matmul_fp8_sm100 : p->matmul_fp8_sm90;
    enum fp8_recipe recipe = c->job->train.recipe;
    fp8 *= recipe == FP8_BLOCK ? p->matmul_block : recipe == FP8_MX ? p->matmul_mx : 1;
    double attention = gpu->sm >= 100 ? p->attention_sm100 : gpu->sm >= 90 ? p->attention_sm90 : p->attention_sm80;
    init_rate(dev, COST_HALF, gpu->peak_flop_s[low], g->clock, power, gpu->efficiency[low], half);
    init_rate(dev, COST_F32, gpu->peak_flop_s[full], 0.9, 0.9, gpu->efficiency[full], half);
    init_rate(dev, COST_FP8, gpu->peak_flop_s[TOPO_FP8], g->clock_fp8, power_fp8, gpu->efficiency[TOPO_FP8], fp8);
    double large = gpu->peak_flop_s[low] * sustained(g->clock, power);
    dev->fill = g->fill;
    dev->split_s = g->split_s;
    dev->weight_share = g->weight;
    dev->write = g->write;
    dev->group_shown = g->group;
    dev->odd = g->odd;
    dev->batch_odd = g->batch_odd;
    dev->coarse_heads = g->sm >= 90;
    dev->forward = g->forward;
    dev->backward = g->backward;
    if (gpu->sm >= 103) { /* Blackwell Ultra: exponentials at twice the rate (NVIDIA's architecture paper) */
        dev->forward.softmax /= 2;
        dev->backward.softmax /= 2;
    }
    dev->forward.flop_s *= large * attention;
    dev->backward.flop_s *= large * attention;
    dev->bytes_s = g->memory * gpu->memory_bytes_s;
    dev->product_bytes_s = g->product_memory * gpu->memory_bytes_s;
    dev->launch_s = 2.5e-6;
    leave_sms(dev, g, c->job->wishes.comm_sms);
}

/* CPU ranks and devices without a table: large products at 0.8 of the peak, attention as FlashAttention's
 * tables relate it to products */
static void init_plain(struct cost *c, const struct topo_gpu *gpu, enum topo_dtype low, enum topo_dtype full)
{
    struct cost_device *dev = &c->device;
    bool processor = topo_is_cpu(gpu);
    dev->plain = true;
    dev->units = dev->sms = 1;
    double peaks[COST_NNUMBERS] = {[COST_F32] = gpu->peak_flop_s[full],
                                   [COST_HALF] = gpu->peak_flop_s[low],
                                   [COST_FP8] = gpu->peak_flop_s[TOPO_FP8]};
    const enum topo_dtype names[COST_NNUMBERS] = {[COST_F32] = full, [COST_HALF] = low, [COST_FP8] = TOPO_FP8};
    for (int i = 0; i < COST_NNUMBERS; i++) {
        double stated = gpu->efficiency[names[i]];
        dev->clock_flop_s[i] = dev->power_flop_s[i] = peaks[i] * (stated > 0 ? stated : 0.8);
    }
    dev->write = 1;
    dev->half_k = processor ? 16 : 110;
    dev->half_tiles = processor ? 0.5 : 30;
    dev->weight_share = 1;
    dev->forward.flop_s = 0.5;
    dev->backward.flop_s = 0.45;
    dev->bytes_s = gpu->memory_bytes_s > 0 ? 0.85 * gpu->memory_bytes_s : 8e9;
    dev->product_bytes_s = dev->bytes_s;
    dev->launch_s = processor ? 2e-6 : 2.5e-6;
}

void cost_device_init(struct cost *c)
{
    const struct topo_gpu *gpu = &c->type->gpu;
    struct cost_device *dev = &c->device;
    const struct train *t = &c->job->train;
    *dev = (struct cost_device){.compute_factor = 1, .nic_factor = 1};
    enum topo_dtype half = gpu->peak_flop_s[TOPO_BF16] > 0 ? TOPO_BF16 : TOPO_FP16;
    bool fp16 = t->precision == DT_FP16 && gpu->peak_flop_s[TOPO_FP16] > 0;
    half = fp16 ? TOPO_FP16 : half;
    /* a device without half precision computes it in fp32 */
    enum topo_dtype low = gpu->peak_flop_s[half] > 0 ? half : TOPO_FP32;
    enum topo_dtype full = gpu->peak_flop_s[TOPO_FP32] > 0 ? TOPO_FP32 : low;
    const struct generation *g = find_generation(gpu);
    if (g && gpu->memory_bytes_s > 0)
        init_known(c, gpu, g, low, full);
    else
        init_plain(c, gpu, low, full);
    /* only accumulation in fp32 slows the ends of tiles */
    dev->gradient_bytes = t->grads == DT_BF16 || t->grads == DT_FP16 ? 2 : 4;
    dev->unfused = c->profile->attention_unfused > 0.5;
    dev->stream = c->profile->stream_traffic;
}
