#ifndef LLMC_COST_KERNEL_H
#define LLMC_COST_KERNEL_H

/* Seconds of single kernels, and what the GPU of a plan can do, as they need it: filled once per decision by
 * cost_device_init() from the table of generations in device.c, the catalogue's peaks and the profile's
 * factors.  Plain values, so that a price is a few dozen floating-point operations. */

#include "runtime/isa.h"

#include <stdbool.h>
#include <stdint.h>

struct cost;

/* number formats that products are computed in */
enum cost_number { COST_F32, COST_HALF, COST_FP8, COST_NNUMBERS };

/* One output tile shape of a library of products.  Operands that a unit loads for a smaller tile are shared
 * by fewer results, so it runs slower. */
struct cost_tile {
    double m, n, per_m, per_n; /* per_: reciprocals */
    double work;               /* m n, over the speed relative to the largest tile's */
};
enum { COST_MAX_TILES = 12 };

/* flash attention of one direction: rate of both products, and what a tile of scores costs beside them */
struct cost_flash {
    double flop_s;  /* products alone, whole device */
    double softmax; /* exponential and rescaling per score, in flops at that rate */
    double fill;    /* keys' worth of prologue, epilogue and first loads of a tile of queries */
    double rows;    /* queries of a tile */
    double tail;    /* share of the longest tile that the device waits for at the end */
    double unequal; /* factor where keys and values differ in width */
};

struct cost_device {
    bool plain;   /* no table for it (CPU ranks, other makers): one roofline, see kernel.c */
    double units; /* that compute tiles side by side */
    double sms;
    unsigned ntiles;
    struct cost_tile tiles[COST_MAX_TILES];
    double clock_flop_s[COST_NNUMBERS]; /* largest tiles, all units busy, highest clock; 0 = none */
    double power_flop_s[COST_NNUMBERS]; /* that the power supply sustains */
    double shared;                      /* see cost_device_tiles() */
    double fill;                        /* inner dimension's worth of prologue and epilogue of a tile */
    double split_s;                     /* extra time of a kernel that cuts its inner dimension to fill all units */
    double weight_share;   /* time of weight gradients that are added in fp32, relative to forward products */
    double group_shown;    /* of a group's memory time, where arithmetic takes longer; or the reverse */
    double write;          /* cost of a written byte of a product, relative to a read one */
    double odd, batch_odd; /* speed left where rows start at 8-byte boundaries only; of batches */
    struct cost_flash forward, backward;
    bool coarse_heads; /* attention knows few head sizes */
    bool unfused;      /* attention by separate kernels */
    double bytes_s;    /* memory, sustained by streaming kernels */
    double product_bytes_s;
    double stream;             /* bytes moved per byte that fused kernels need */
    double gradient_bytes;     /* of an accumulated weight gradient's element */
    double group_s;            /* least time per product of a group, where a benchmark launched them one by one */
    double launch_s;           /* kernel to kernel within a captured graph, ramps included */
    double half_k, half_tiles; /* plain: inner dimension and output tiles at which half of the speed is reached */
    double compute_factor;     /* of the slowest node used */
    double nic_factor;         /* of the most degraded node used */
};

struct topo_gpu;
/* multiprocessors; 0 = nothing is known of them */
uint32_t cost_device_sms(const struct topo_gpu *gpu);
/* fills in the tiles' work: shared is the time of a 128 x 128 tile's loads of one operand, relative to its
 * arithmetic */
void cost_device_tiles(struct cost_device *dev, double shared);

/* C[m, n] over k, of bf16 or fp32 operands; under fp8 precision bf16 means fp8, except in the _half one.
 * Which product of a layer: its forward, the gradient of its input, or that of its weight, which is added to
 * C. */
enum product { PRODUCT_FORWARD, PRODUCT_INPUT, PRODUCT_WEIGHT };
double cost_matmul_s(const struct cost *c, enum product product, uint64_t m, uint64_t n, uint64_t k, enum dtype dtype);
double cost_matmul_half_s(const struct cost *c, enum product product, uint64_t m, uint64_t n, uint64_t k,
                          enum dtype dtype);
/* so many independent products in one kernel, half precision */
double cost_batched_matmul_s(const struct cost *c, double products, uint64_t m, uint64_t n, uint64_t k,
                             enum dtype dtype);
/* experts: groups layers [k] -> [n], each of m tokens on average; m, n, k are those of the forward product
 * for every `product` */
double cost_grouped_matmul_s(const struct cost *c, enum product product, uint64_t groups, double m, uint64_t n,
                             uint64_t k, enum dtype dtype);
/* a bf16 tensor to fp8, both ways round */
double cost_quantize_s(const struct cost *c, double elements);
/* Causal attention of `tokens` query rows, each of which may see `context` keys at most (the sequence; a
 * chunk), or `window` of them; heads of `kv` keys and values; qk, v: width of a head's query and value. */
struct cost_attention {
    double tokens, context, window /* 0 = none */, heads, kv /* 0 = heads */, qk, v;
    bool full; /* no causal mask */
};
/* backward: both gradients together */
double cost_attention_s(const struct cost *c, const struct cost_attention *a, enum dtype dtype, bool backward);
/* a memory-bound kernel; bytes: read and written */
double cost_stream_s(const struct cost *c, double bytes);
/* the same of one instruction, as the cluster file measured it, if it did; half: some of the numbers have 16 bits */
double cost_stream_of_s(const struct cost *c, enum op op, double bytes, bool half);

#endif
