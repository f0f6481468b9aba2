#ifndef LLMC_TOPO_H
#define LLMC_TOPO_H

/* The cluster as resolved from cluster.xml: node types, nodes in order, tiers, torus, exclusions,
 * measurements.
 *
 * Units: bytes, seconds, bytes/s per GPU or per NIC in one direction, operations/s dense.  A field that the
 * file and the catalogue leave open is 0 unless its comment says otherwise.  Everything lives in the
 * compilation's arena. */

#include "compiler/support/diag.h"
#include "runtime/isa.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum topo_dtype { TOPO_FP32, TOPO_TF32, TOPO_BF16, TOPO_FP16, TOPO_FP8, TOPO_FP4, NTOPO_DTYPES };

/* which facts the file gave itself; the others come from the catalogue */
enum topo_fact {
    FACT_MEMORY = 1,
    FACT_RESERVE = 2,
    FACT_MEMORY_RATE = 4,
    FACT_SCALE_UP = 8,
    FACT_PEAK = 16 /* << dtype */
};

struct topo_gpu {
    const char *model;      /* "H100-SXM" */
    bool known;             /* in the catalogue */
    uint64_t memory_bytes;  /* as the driver reports it */
    uint64_t reserve_bytes; /* context + communicator buffers, not available to the arena */
    double memory_bytes_s;
    double peak_flop_s[NTOPO_DTYPES]; /* dense; 0 = no such unit */
    double efficiency[NTOPO_DTYPES];  /* 0 = not stated */
    uint32_t sm;                      /* 90 for Hopper, 0 = unknown */
    uint32_t given;                   /* topo_fact bits */
};
/* CPU ranks, for which the cluster file has the word "cpu" */
static inline bool topo_is_cpu(const struct topo_gpu *gpu)
{
    return !strcmp(gpu->model, "cpu");
}

enum scale_up_kind { SCALE_UP_NONE, SCALE_UP_NVSWITCH, SCALE_UP_MESH, SCALE_UP_PCIE };
struct topo_scale_up {
    enum scale_up_kind kind;
    double bytes_s;   /* per GPU, one direction, data-sheet */
    double latency_s; /* 0 = default */
    uint32_t span;    /* nodes per domain, >= 1 */
    uint32_t gpus;    /* GPUs per domain; = node's gpus * span unless the file says smaller (1 for SCALE_UP_NONE) */
    bool multicast;
};

struct topo_nic {
    uint32_t count;
    double bytes_s; /* each */
    double latency_s;
    bool gdr;
};

struct topo_node_type {
    const char *id;
    uint32_t gpus;
    uint32_t cores; /* that CPU ranks of a node share; 0: each has its own */
    struct topo_gpu gpu;
    struct topo_scale_up scale_up;
    uint32_t nnics;
    const struct topo_nic *nics;
    double nic_bytes_s_per_gpu;    /* sum over NICs / gpus; 0 without NICs */
    uint32_t nnodes, first_domain; /* nodes of this type; index of its first scale-up domain */
    uint64_t host_memory_bytes;
    double host_bytes_s;
    double mtbf_s; /* mean time between interruptions of a run by one node; 0 = not known */
    bool mtbf_assumed;
    double restart_s;                 /* from an interruption until steps are taken again */
    const struct topo_detail *detail; /* from an NCCL dump, or NULL */
    struct span span;
};

/* What an NCCL dump says, after the nine reader rules. */
struct topo_detail {
    uint32_t ngpus, nnics, nnuma;
    const double *gpu_nic_bytes_s; /* [ngpus][nnics]: PCIe below the lowest common switch, 0 = through the root */
    double nvlink_bytes_s;         /* per GPU, effective; 0 = none listed */
};

enum node_state { NODE_USABLE, NODE_EXCLUDED, NODE_SPARE };
struct topo_node {
    const char *name;
    uint32_t type, ordinal; /* ordinal: how many nodes of its type stand before it; domains cut this count */
    enum node_state state;
    const char *reason;                /* of exclude, spare or degraded, or NULL */
    uint64_t excluded_gpus;            /* bit mask */
    double nic_factor, compute_factor; /* 1 = healthy */
};

struct topo_tier {
    const char *name;
    uint64_t span;           /* nodes below one switch group; the last is >= nnodes */
    double oversubscription; /* > 0, as written; below 1 = more uplinks than downlinks */
    double latency_s;        /* added one way */
    uint32_t ngroups;
    const uint32_t *group_of; /* per node; NULL where groups are simply index / span */
};

struct topo_point {
    double bytes, seconds;  /* collectives: message size as nccl-tests counts it */
    double m, n, k, flop_s; /* gemm; attention: m places, heads n wide, backward_flop_s as well */
    double backward_flop_s;
};
struct topo_measured {
    const char *date; /* "" = not stated */
    const char *kind; /* "gemm", "attention", "kernel" (bytes, seconds of op), or the collective's name: all_reduce
                         all_gather reduce_scatter all_to_all send_recv broadcast */
    enum op op;
    uint32_t ranks, per_node;
    const char *tier, *type, *dtype; /* tier: as topo_level_name(); type: NULL = whichever */
    uint32_t npoints;
    const struct topo_point *points;
};

struct topo {
    const char *name;
    const struct source *source;
    const char *text; /* the file with what its hrefs name put in place: needs no other file, means the same */
    size_t text_size;
    uint32_t ntypes;
    struct topo_node_type *types;
    uint32_t nnodes;
    struct topo_node *nodes; /* document order; spans and domains cut this order */
    const char *medium;
    uint32_t rails;
    bool cross_rail;
    uint32_t ntiers;
    struct topo_tier *tiers;
    uint32_t torus_dims; /* then the innermost tier is "torus", of all nodes or of each of several */
    uint32_t torus[4];
    double torus_bytes_s, torus_latency_s;
    uint32_t nmeasured;
    struct topo_measured *measured;
    uint64_t gpus;        /* all that exist */
    uint64_t usable_gpus; /* of usable nodes without excluded GPUs */
};

/* Read and check a cluster file; NULL when the diagnostics hold an error. */
struct topo *topo_read(struct arena *a, struct diag *d, const char *path);
/* the same from memory; base: folder that relative hrefs start from, or NULL to refuse them */
struct topo *topo_parse(struct arena *a, struct diag *d, const struct source *source, const char *base);

/* Nodes that a plan may use, in order: usable, of the given type (UINT32_MAX = the only type with usable
 * nodes; 0 of them when there are several), no excluded GPU.  Returns the count and an arena array of node
 * indices. */
uint32_t topo_usable(struct arena *a, const struct topo *t, uint32_t type, uint32_t **nodes);

/* Level of the network between two nodes: 0 same NVLink domain, k the k-th tier (1 = innermost), for the k-th
 * entry of tiers; nodes that only the last tier joins give ntiers. */
uint32_t topo_level(const struct topo *t, uint32_t node_a, uint32_t node_b);
/* Which group of tiers[tier] a node is in, and which scale-up domain (a node without scale-up is one of its
 * own). */
uint32_t topo_group(const struct topo *t, uint32_t tier, uint32_t node);
uint32_t topo_domain(const struct topo *t, uint32_t node);
uint32_t topo_ndomains(const struct topo *t);
/* One-way bytes/s per GPU and latency at a level, for healthy GPUs of one type.  Level 0: scale-up; without
 * one, host memory (host-bandwidth, else half of the memory bandwidth).  Level k: NIC share / max(1,
 * oversubscriptions so far); on a torus, level 1, both links of one axis. */
double topo_level_bytes_s(const struct topo *t, uint32_t type, uint32_t level);
double topo_level_latency_s(const struct topo *t, uint32_t type, uint32_t level);
const char *topo_level_name(const struct topo *t, uint32_t level); /* "scale-up" or the tier's name */

/* innermost level whose groups hold that many nodes of a type in a row */
uint32_t topo_level_of_nodes(const struct topo *t, uint32_t type, uint64_t nodes);

/* the resolved view, for `llmc topo show` */
void topo_print(const struct topo *t, FILE *out);
void topo_print_json(const struct topo *t, FILE *out);

#endif
