#ifndef LLMC_COST_H
#define LLMC_COST_H

/* Predicted time, behind one narrow interface: the nanoseconds of an instruction of a program, and the step time and
 * memory of a decision in closed form.  comp.c owns kernels, comm.c transfers and collectives, mem.c bytes. */

#include "compiler/model/decision.h"
#include "compiler/model/expand.h"
#include "compiler/topology/mesh.h"

/* Unit costs, for tests of schedules: the first compute instruction of an F action takes f, of a B action b, every
 * transfer c, everything else nothing. */
struct cost_unit {
    bool on;
    int64_t f_ns, b_ns, c_ns;
};

struct cost {
    const struct job *job;
    const struct topo *topo;
    const struct topo_node_type *type;
    const struct decision *decision;
    struct mesh mesh;
    struct cost_unit unit;
    uint32_t group_level[1u << NAXES]; /* outermost level crossed, by axis mask */
    uint32_t tie_level, next_level;    /* first-last stage; worst pair of neighbouring stages */
};

struct cost *cost_new(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d);

/* duration of instruction i; first: the first compute instruction of its action */
int64_t cost_insn_ns(const struct cost *c, const struct program *p, uint32_t i, bool first);
double cost_matmul_s(const struct cost *c, uint64_t m, uint64_t n, uint64_t k, enum dtype dtype);
/* op: the collective's opcode; bytes: of the largest operand; mask as SLOT_GROUP's argument */
double cost_collective_s(const struct cost *c, enum op op, double bytes, uint32_t mask);
/* between neighbouring pipeline ranks */
double cost_transfer_s(const struct cost *c, double bytes);

/* closed form, itemised; the items of time and of memory add up */
struct estimate {
    double step_time_s, compute_s, tp_comm_s, pp_comm_s, dp_comm_s, bubble_s, optimizer_s;
    double stage_forward_s, stage_backward_s; /* of the slowest stage, one microbatch */
    uint64_t peak_bytes;                      /* of the fullest stage */
    uint32_t peak_stage;
    uint64_t parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes, buffer_bytes; /* on that stage */
};
void cost_estimate(struct arena *a, const struct cost *c, struct estimate *e);
/* forward seconds of each layer, the embedding and the head, for cutting stages */
void cost_layers(struct arena *a, const struct cost *c, double *layer_s, double *embed_s, double *head_s);

#endif
