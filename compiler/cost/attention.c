/* Seconds of attention.
 *
 * Flash attention: a unit takes a tile of `rows` queries of one head over the keys it may see.  A tile costs
 * its scores' products at the device's rate, plus the exponentials per score, plus a fill worth some keys;
 * the device takes the sum of all tiles over its units plus a share of the longest one, and never less than
 * the longest.  A causal mask halves the scores of a sequence except for half a tile on the diagonal, a
 * window keeps at most its width and wastes a tile's edge. Heads are padded to the widths that kernels are
 * made for.  Backward has five products to forward's two (FlashAttention-2, section 3.1).
 *
 * Unfused attention is the sum of its kernels: batched products of every head, and scores that pass through
 * memory for scale, mask and softmax, and once more for dropout. */

#include "compiler/cost/cost_private.h"

#include <math.h>

/* Keys that a tile of queries computes scores for: the average, and in *longest the longest tile. */
static double tile_keys(const struct cost_attention *a, double rows, double *longest)
{
    double keys = a->context;
    *longest = keys;
    if (a->window > 0 && a->window < keys) {
        *longest = fmin(keys, a->window + rows);
        return *longest - a->window * a->window / (2 * keys);
    }
    return a->full ? keys : 0.5 * (keys + fmin(rows, keys));
}

/* The width that a head is padded to in shared memory: 64, 96, 128, then multiples of 32 (FlashAttention-2) or 64
 * (-3). */
static double padded(double width, bool coarse)
{
    double part = coarse && width > 128 ? 64 : 32;
    return fmax(64, part * ceil(width / part));
}

static double flash_s(const struct cost_device *dev, const struct cost_attention *a, bool backward, double element)
{
    const struct cost_flash *f = backward ? &dev->backward : &dev->forward;
    double rows = fmin(f->rows, a->context), longest, keys = tile_keys(a, rows, &longest);
    double width = padded(a->qk, dev->coarse_heads) + padded(a->v, dev->coarse_heads);
    double per_score = (2 * width + f->softmax) * (backward ? 2.5 : 1);
    double flop_s = f->flop_s * dev->compute_factor * (a->qk != a->v ? f->unequal : 1);
    double tiles = a->heads * ceil(a->tokens / f->rows), unit_s = per_score * f->rows * dev->sms / flop_s;
    double all = tiles * unit_s * (keys + f->fill) / dev->sms, last = unit_s * (longest + f->fill);
    double seconds = fmax(all + f->tail * last, last);
    double kv = a->kv > 0 ? a->kv : a->heads;
    double bytes = element * a->tokens * (a->heads + kv) * (a->qk + a->v) * (backward ? 2 : 1);
    return fmax(seconds, bytes / dev->bytes_s) + dev->launch_s * (backward ? 3 : 1);
}

static double unfused_s(const struct cost *c, const struct cost_attention *a, bool backward, enum dtype dtype)
{
    double heads = a->heads * a->tokens / a->context, scores = a->heads * a->tokens * a->context;
    uint64_t s = (uint64_t)ceil(a->context), qk = (uint64_t)ceil(a->qk), v = (uint64_t)ceil(a->v);
    double element = isa_dtype_bytes(dtype);
    double query_key = cost_batched_matmul_s(c, heads, s, s, qk, dtype),
           context = cost_batched_matmul_s(c, heads, s, v, s, dtype);
    double mask = 1; /* a byte per score: the mask of dropout */
    if (!backward)
        return query_key + context + cost_stream_s(c, 2 * element * scores) +
               cost_stream_s(c, (2 * element + mask) * scores);
    /* gradients of scores [s, s] and of values; then of keys and queries */
    double products = cost_batched_matmul_s(c, heads, s, s, v, dtype) + context +
                      2 * cost_batched_matmul_s(c, heads, s, qk, s, dtype);
    return products + cost_stream_s(c, 3 * element * scores) + cost_stream_s(c, (2 * element + mask) * scores);
}

/* Half of the score matrix is above the diagonal; the rate of products, less a share, for heads of 128 and long
 * sequences. */
static double plain_s(const struct cost_device *dev, const struct cost_attention *a, bool backward, enum dtype dtype)
{
    double longest, keys = tile_keys(a, 1, &longest),
                    flops = 2 * a->tokens * keys * a->heads * (a->qk + a->v) * (backward ? 2.5 : 1);
    double width = fmin(1, 0.5 + a->qk / 256),
           peak = dev->clock_flop_s[isa_dtype_bytes(dtype) == 2 ? COST_HALF : COST_F32];
    double rate = peak * dev->compute_factor * (backward ? dev->backward.flop_s : dev->forward.flop_s) * width *
                  a->context / (a->context + 512);
    double bytes = isa_dtype_bytes(dtype) * a->tokens * a->heads * 2 * (a->qk + a->v) * (backward ? 2 : 1);
    return fmax(flops / rate, bytes / dev->bytes_s) + dev->launch_s * (backward ? 3 : 1);
}

/* no tensor cores for fp32 */
static double formula_s(const struct cost *c, const struct cost_attention *a, enum dtype dtype, bool backward)
{
    const struct cost_device *dev = &c->device;
    if (dev->plain)
        return plain_s(dev, a, backward, dtype);
    double seconds = flash_s(dev, a, backward, isa_dtype_bytes(dtype));
    return isa_dtype_bytes(dtype) == 2 ? seconds : seconds * dev->clock_flop_s[COST_HALF] / dev->clock_flop_s[COST_F32];
}

/* At the rate that was measured at p. */
static double at_rate_s(const struct cost *c, const struct cost_attention *a, const struct topo_point *p, bool backward)
{
    double longest, keys = tile_keys(a, 1, &longest),
                    flops = 2 * a->tokens * keys * a->heads * (a->qk + a->v) * (backward ? 2.5 : 1);
    return flops / ((backward ? p->backward_flop_s : p->flop_s) * c->device.compute_factor);
}

/* Where no formula relates one shape to another, the rate of the nearest one applies. */
static double measured_s(const struct cost *c, const struct cost_attention *a, const struct topo_point *p,
                         enum dtype dtype, bool backward)
{
    struct cost_attention there = *a;
    if (c->device.plain)
        return at_rate_s(c, a, p, backward);
    there.context = p->m;
    there.qk = there.v = p->n;
    there.window = 0;
    there.full = false;
    return formula_s(c, a, dtype, backward) * at_rate_s(c, &there, p, backward) / formula_s(c, &there, dtype, backward);
}

double cost_attention_s(const struct cost *c, const struct cost_attention *a, enum dtype dtype, bool backward)
{
    if (!(a->tokens > 0) || !(a->heads > 0) || !(a->context > 0))
        return 0;
    if (c->device.unfused)
        return unfused_s(c, a, backward, dtype);
    enum cost_number number = isa_dtype_bytes(dtype) == 2 ? COST_HALF : COST_F32;
    const struct topo_point *p = c->topo->nmeasured ? cost_measured_attention(c, a->context, a->qk, number) : NULL;
    return p ? measured_s(c, a, p, dtype, backward) : formula_s(c, a, dtype, backward);
}
