/* Seconds of matrix products and of memory-bound kernels.
 *
 * A product C[m, n] = A[m, k] B[k, n] has three limits, combined by a 4-norm (each limit also slows the others a
 * little):
 * - clock: the library cuts C into tiles; a unit (an SM; two on Blackwell) makes one in 2 tm tn (k + fill) / rate, and
 * the device takes ceil(tiles / units) rounds (tile and wave quantisation), or cuts the inner dimension to fill the
 * last round and pays a fix-up.  The best of the generation's tile shapes counts, as the library's heuristic would
 * choose;
 * - power: 2 m n k operations at the rate that the power supply sustains, which full rounds exceed;
 * - memory: operands once, output once, output at a higher price because it is written at the tiles' ends.
 *
 * A weight gradient is added to its output.  Constants are in device.c.  Products that the cluster file measured
 * scale the formula, or replace it (measured.c).
 *
 * Devices without a table (CPU ranks) have one roofline: efficiency k / (k + half_k) for the prologue of short inner
 * dimensions times tiles / (tiles + half_tiles) for outputs too small to fill the machine. */

#include "compiler/cost/cost_private.h"

#include <math.h>

/* x / y rounded up, from the reciprocal of y; for x < 2^31 y, where the slack is less than one part of any */
static double parts(double x, double per_y)
{
    return (double)(int64_t)(x * per_y + (1 - 1e-9));
}

static double norm4(double a, double b, double c)
{
    a *= a, b *= b, c *= c;
    return sqrt(sqrt(a * a + b * b + c * c));
}

/* Bytes of operands and output; written bytes are weighted with their higher price. */
static double product_bytes(const struct cost_device *dev, enum product product, double m, double n, double k,
                            enum cost_number number)
{
    double element = number == COST_F32 ? 4 : number == COST_FP8 ? 1 : 2, result = number == COST_F32 ? 4 : 2;
    double added = product == PRODUCT_WEIGHT ? dev->gradient_bytes : 0;
    return element * (m * k + k * n) + (added + dev->write * (added > 0 ? added : result)) * m * n;
}

/* The fraction of the speed left for rows that start at unaligned addresses: the fast loads need rows of a multiple
 * of 16 bytes (NVIDIA's matrix multiplication guide, section 2.1).  Batches of products fell back to kernels without
 * tensor cores: BLOOM's runs with heads of 108 took 1.4 times the step of heads of 144, for products that are a
 * fortieth of the arithmetic. */
static double alignment(const struct cost_device *dev, bool batch, uint64_t row, uint64_t other,
                        enum cost_number number)
{
    uint64_t bytes = (row | other) * (number == COST_FP8 ? 1 : 2); /* the lowest set bit is that of the worse aligned
                                                                    * of both */
    if (number == COST_F32 || !(bytes & 15))
        return 1;
    if (batch)
        return dev->batch_odd;
    return !(bytes & 7) ? dev->odd : bytes & 3 ? 0.5 * dev->odd : 0.75 * dev->odd;
}

/* Seconds of the rounds of tiles at the highest clock, for `products` independent products of that shape side by
 * side. */
static double rounds_s(const struct cost_device *dev, double products, double m, double n, double k, double flop_s)
{
    double best = INFINITY, per_unit = 1 / dev->units, overhead = dev->split_s;
    double unit_s = 2 * dev->units / flop_s * (64 * parts(k, 1.0 / 64) + dev->fill);
    for (unsigned i = 0; i < dev->ntiles; i++) {
        const struct cost_tile *t = &dev->tiles[i];
        double rounds = products * parts(m, t->per_m) * parts(n, t->per_n) * per_unit, tile_s = t->work * unit_s;
        double whole = parts(rounds, 1) * tile_s, split = rounds * tile_s + overhead;
        double least = whole < split ? whole : split;
        best = least < best ? least : best;
    }
    return best;
}

static double plain_s(const struct cost_device *dev, double products, double m, double n, double k,
                      enum cost_number number)
{
    double tiles = products * ceil(m / 128) * ceil(n / 128);
    double flop_s = dev->clock_flop_s[number] * k / (k + dev->half_k) * tiles / (tiles + dev->half_tiles);
    return 2 * products * m * n * k / flop_s;
}

static enum cost_number number_of(const struct cost *c, enum dtype dtype)
{
    if (isa_dtype_bytes(dtype) != 2)
        return COST_F32;
    return c->job->train.precision == DT_FP8 && c->device.clock_flop_s[COST_FP8] > 0 ? COST_FP8 : COST_HALF;
}

/* an fp32 gradient is read and written at the end of its tiles */
static double layout_share(const struct cost_device *dev, enum product product)
{
    return product == PRODUCT_WEIGHT && dev->gradient_bytes > 2 ? dev->weight_share : 1;
}

/* By the formulas, without the time from kernel to kernel. */
static double formula_s(const struct cost *c, enum product product, double products, uint64_t m, uint64_t n, uint64_t k,
                        enum cost_number number)
{
    const struct cost_device *dev = &c->device;
    double dm = (double)m, dn = (double)n, dk = (double)k, flops = 2 * products * dm * dn * dk;
    double memory = products * product_bytes(dev, product, dm, dn, dk, number) / dev->product_bytes_s;
    if (dev->plain)
        return fmax(plain_s(dev, products, dm, dn, dk, number) / dev->compute_factor, memory);
    double share = layout_share(dev, product) /
                   (alignment(dev, products > 1, n, product == PRODUCT_WEIGHT ? m : k, number) * dev->compute_factor);
    double clock = share * rounds_s(dev, products, dm, dn, dk, dev->clock_flop_s[number]);
    return norm4(clock, share * flops / dev->power_flop_s[number], memory);
}

struct kind_of_product {
    enum product product;
    enum cost_number number;
};

static double point_s(const struct cost *c, const struct topo_point *at, void *context)
{
    const struct kind_of_product *x = context;
    return c->device.compute_factor *
           formula_s(c, x->product, 1, (uint64_t)at->m, (uint64_t)at->n, (uint64_t)at->k, x->number);
}

/* The same, computed anew. */
static double batch_new_s(const struct cost *c, enum product product, double products, uint64_t m, uint64_t n,
                          uint64_t k, enum cost_number number)
{
    if (m == 0 || n == 0 || k == 0)
        return 0;
    double dm = (double)m, dn = (double)n, dk = (double)k;
    bool plain = c->device.plain && c->topo->nmeasured;
    double flop_s = plain ? cost_measured_product_flop_s(c, dm, dn, dk, number) : 0;
    if (flop_s > 0)
        return 2 * products * dm * dn * dk / (flop_s * c->device.compute_factor);
    double seconds = formula_s(c, product, products, m, n, k, number);
    struct kind_of_product x = {product, number};
    double share = !plain && c->topo->nmeasured ? cost_measured_product_share(c, dm, dn, dk, number, point_s, &x) : 0;
    return share > 0 ? share * seconds : seconds + c->device.launch_s;
}

struct product_key {
    double products;
    uint64_t m, n, k;
    double compute_factor;
    uint32_t product, number;
};
struct cost_products {
    struct {
        struct product_key key;
        double seconds;
    } at[4096];
};

struct cost_products *cost_products_new(struct arena *a)
{
    return ARENA_NEW(a, struct cost_products);
}

static bool same_product(const struct product_key *x, const struct product_key *y)
{
    return x->products == y->products && x->m == y->m && x->n == y->n && x->k == y->k &&
           x->compute_factor == y->compute_factor && x->product == y->product && x->number == y->number;
}

/* `products` independent products of one shape in one kernel; cached, because a search asks for the same ones again
 * and again. */
static double batch_s(const struct cost *c, enum product product, double products, uint64_t m, uint64_t n, uint64_t k,
                      enum cost_number number)
{
    if (!c->products)
        return batch_new_s(c, product, products, m, n, k, number);
    const struct product_key key = {products, m, n, k, c->device.compute_factor, product, number};
    uint64_t hash = ((m * 0x9e3779b97f4a7c15u ^ n) * 0x9e3779b97f4a7c15u ^ k) * 0x9e3779b97f4a7c15u ^ product << 8 ^
                    number;
    uint64_t i = (hash ^ hash >> 32) % (sizeof c->products->at / sizeof *c->products->at);
    if (!same_product(&c->products->at[i].key, &key)) {
        c->products->at[i].seconds = batch_new_s(c, product, products, m, n, k, number);
        c->products->at[i].key = key;
    }
    return c->products->at[i].seconds;
}

double cost_matmul_s(const struct cost *c, enum product product, uint64_t m, uint64_t n, uint64_t k, enum dtype dtype)
{
    return batch_s(c, product, 1, m, n, k, number_of(c, dtype));
}

double cost_matmul_half_s(const struct cost *c, enum product product, uint64_t m, uint64_t n, uint64_t k,
                          enum dtype dtype)
{
    return batch_s(c, product, 1, m, n, k, isa_dtype_bytes(dtype) == 2 ? COST_HALF : COST_F32);
}

double cost_batched_matmul_s(const struct cost *c, double products, uint64_t m, uint64_t n, uint64_t k,
                             enum dtype dtype)
{
    return batch_s(c, PRODUCT_FORWARD, products, m, n, k, isa_dtype_bytes(dtype) == 2 ? COST_HALF : COST_F32);
}

/* The products run beside each other, so rounds are filled across them.  Each reads and writes its own data, and a
 * share of that does not hide behind their arithmetic. */
double cost_grouped_matmul_s(const struct cost *c, enum product product, uint64_t groups, double m, uint64_t n,
                             uint64_t k, enum dtype dtype)
{
    const struct cost_device *dev = &c->device;
    enum cost_number number = number_of(c, dtype);
    double dn = (double)n, dk = (double)k, rows = m, cols = dn, inner = dk;
    if (groups == 0 || !(m > 0) || n == 0 || k == 0)
        return 0;
    if (product == PRODUCT_WEIGHT) { /* the gradient over m tokens: [n, k] over m */
        rows = dn;
        cols = dk;
        inner = m;
    } else if (product == PRODUCT_INPUT) {
        cols = dk;
        inner = dn;
    }
    double number_groups = (double)groups, flops = 2 * number_groups * m * dn * dk;
    double element = number == COST_F32   ? 4
                     : number == COST_FP8 ? 1
                                          : 2,
           out = product == PRODUCT_WEIGHT ? 2 * dev->gradient_bytes : 2;
    double bytes = number_groups * (element * (rows * inner + inner * cols) + out * rows * cols);
    double memory = bytes / dev->product_bytes_s, host = number_groups * dev->group_s;
    double flop_s = c->type->cores ? cost_measured_product_flop_s(c, rows, cols, inner, number) : 0;
    if (flop_s > 0)
        return flops / (flop_s * dev->compute_factor);
    if (dev->plain)
        return fmax(fmax(plain_s(dev, number_groups, rows, cols, inner, number) / dev->compute_factor, memory), host) +
               dev->launch_s;
    double share = layout_share(dev, product) / dev->compute_factor;
    double clock = share * rounds_s(dev, number_groups, rows, cols, inner, dev->clock_flop_s[number]);
    double compute = norm4(clock, share * flops / dev->power_flop_s[number], 0);
    return fmax(fmax(compute, memory) + dev->group_shown * fmin(compute, memory), host) + dev->launch_s;
}

double cost_quantize_s(const struct cost *c, double elements)
{
    /* read once; written by rows and, for the gradient products, by columns; FP8 tensor cores take both operands
     * along the inner dimension (Transformer Engine's cast-transpose kernels); with scales for rows, both ways have
     * maxima of their own */
    double more = c->job->train.recipe == FP8_ROW ? c->profile->quantize_row : 1;
    return c->profile->quantize_traffic * more * elements * (2 + 1 + 1) / c->device.bytes_s + c->device.launch_s;
}

double cost_stream_s(const struct cost *c, double bytes)
{
    return c->device.stream * bytes / c->device.bytes_s + c->device.launch_s;
}

double cost_stream_of_s(const struct cost *c, enum op op, double bytes, bool half)
{
    bool here = c->topo->nmeasured && (c->type->cores || c->type->gpu.sm);
    double measured = here ? cost_measured_stream_s(c, op, bytes, half) : 0;
    return measured > 0 ? measured / c->device.compute_factor : cost_stream_s(c, bytes);
}
