#ifndef LLMC_COST_KERNEL_H
#define LLMC_COST_KERNEL_H

/* Seconds of single kernels, and the figures of a plan's GPU that they depend on.  cost_device_init() fills these
 * once per decision, from the table of generations in device.c, the catalogue's peaks and the profile's factors.
 * They are plain values, so that pricing a kernel takes a few dozen floating-point operations. */

#include "runtime/isa.h"

#include <stdbool.h>
#include <stdint.h>

struct cost;

/* number formats that matrix products are computed in */
enum cost_number { COST_F32, COST_HALF, COST_FP8, COST_NNUMBERS };

/* One output tile shape of a matrix product library.  A smaller tile shares the operands that a unit loads among
 * fewer results, so it runs slower. */
struct cost_tile {
    double m, n, per_m, per_n; /* per_: reciprocals */
    double work;               /* m n, divided by the speed relative to the largest tile's */
};
enum { COST_MAX_TILES = 12 };

/* flash attention in one direction: the rate of its two products, and the overhead of a tile of scores */
struct cost_flash {
    double flop_s;  /* FLOP/s of the products alone, on the whole device */
    double softmax; /* exponential and rescaling, in FLOPs per score at that rate */
    double fill;    /* prologue, epilogue and first loads of a tile of queries, as a number of keys */
    double rows;    /* queries in a tile */
    double tail;    /* share of the longest tile that the device waits for at the end */
    double unequal; /* factor where keys and values differ in width */
};

struct cost_device {
    bool plain;   /* no table for this device (CPU ranks, other vendors): one roofline, see kernel.c */
    double units; /* units that compute tiles in parallel */
    double sms;
    unsigned ntiles;
    struct cost_tile tiles[COST_MAX_TILES];
    double clock_flop_s[COST_NNUMBERS]; /* FLOP/s with the largest tiles, all units busy, at the highest clock; 0 =
                                         * format not supported */
    double power_flop_s[COST_NNUMBERS]; /* FLOP/s that the power supply sustains */
    double shared;                      /* see cost_device_tiles() */
    double fill;                        /* prologue and epilogue of a tile, as a length of the inner dimension */
    double split_s;                     /* extra seconds of a kernel that splits its inner dimension to fill all
                                         * units */
    double weight_share;                /* time of weight gradients accumulated in fp32, relative to forward products */
    double group_shown;    /* grouped products: the share of the shorter of memory time and arithmetic time that is
                            * not hidden by the longer */
    double write;          /* cost of a byte that a product writes, relative to one that it reads */
    double odd, batch_odd; /* fraction of the speed left where rows are aligned to 8 bytes only; the same for batched
                            * products */
    struct cost_flash forward, backward;
    bool coarse_heads; /* the attention library supports few head sizes */
    bool unfused;      /* attention runs as separate kernels */
    double bytes_s;    /* memory bandwidth that streaming kernels sustain */
    double product_bytes_s;
    double stream;             /* bytes actually moved per byte that fused kernels would need */
    double gradient_bytes;     /* bytes per element of an accumulated weight gradient */
    double group_s;            /* least seconds per product of a grouped product, where the benchmark launched them
                                * one by one */
    double launch_s;           /* seconds from kernel to kernel within a captured graph, ramps included */
    double half_k, half_tiles; /* where `plain`: the inner dimension and the number of output tiles at which half of
                                * the peak speed is reached */
    double compute_factor;     /* of the slowest node in use */
    double nic_factor;         /* of the node in use with the most degraded NICs */
};

struct topo_gpu;
/* Number of multiprocessors; 0 = unknown. */
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
/* Seconds of `products` independent products of one shape in one kernel, in half precision. */
double cost_batched_matmul_s(const struct cost *c, double products, uint64_t m, uint64_t n, uint64_t k,
                             enum dtype dtype);
/* Seconds of experts' grouped product: `groups` layers [k] -> [n], each of m tokens on average; m, n and k are those
 * of the forward product, whatever `product` is. */
double cost_grouped_matmul_s(const struct cost *c, enum product product, uint64_t groups, double m, uint64_t n,
                             uint64_t k, enum dtype dtype);
/* Seconds of the conversion of a bf16 tensor to fp8, both row-wise and transposed. */
double cost_quantize_s(const struct cost *c, double elements);
/* Causal attention of `tokens` query rows, each of which sees at most `context` keys (the sequence, or a chunk), or
 * at most `window` of them; heads query heads and kv key-value heads; qk, v: width of a head's query and value. */
struct cost_attention {
    double tokens, context, window /* 0 = none */, heads, kv /* 0 = heads */, qk, v;
    bool full; /* no causal mask */
};
/* Seconds; backward: all gradients together. */
double cost_attention_s(const struct cost *c, const struct cost_attention *a, enum dtype dtype, bool backward);
/* Seconds of a memory-bound kernel; bytes: read plus written. */
double cost_stream_s(const struct cost *c, double bytes);
/* The same for one kind of instruction, from the cluster file's measurement if there is one; half: some of its
 * operands have 16 bits. */
double cost_stream_of_s(const struct cost *c, enum op op, double bytes, bool half);

#endif
