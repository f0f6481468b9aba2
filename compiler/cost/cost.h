#ifndef LLMC_COST_H
#define LLMC_COST_H

/* Predicted time and memory behind one narrow interface: the nanoseconds of each instruction of a program, and, in
 * closed form, the step time and the memory of a decision.  kernel.c prices kernels, comm.c transfers and
 * collectives; block.c turns a layer into seconds and block_bytes.c into bytes, by rules per operator; mem.c sums the
 * bytes of a rank, estimate.c the seconds of the step. */

#include "compiler/cost/kernel.h"
#include "compiler/model/decision.h"
#include "compiler/model/expand.h"
#include "compiler/topology/mesh_runs.h"

/* Unit costs, for tests of schedules: the first compute instruction of an F action takes f_ns, that of a B action
 * b_ns, those of its halves I and W half of that, every point-to-point transfer c_ns, and everything else nothing. */
struct cost_unit {
    bool on;
    int64_t f_ns, b_ns, c_ns;
};

/* One way to run a collective: start_s + per_byte_s * bytes + root_s * sqrt(bytes) seconds.  way encodes algorithm
 * and protocol. */
struct cost_line {
    float start_s, per_byte_s, root_s;
    uint32_t way;
};
/* The participants of a collective: n members, below[l] of which lie together at or below network level l.  Derived
 * from that: the ways to run each kind of collective, or the index + 1 of a measured curve.  The struct has no
 * padding, because groups are compared as bytes. */
#define COST_LEVELS 12
enum cost_move { MOVE_ALL_REDUCE, MOVE_GATHER, MOVE_BROADCAST, MOVE_EXCHANGE, NMOVES };
#define COST_LINES 18
struct cost_group {
    uint32_t n, level, below[COST_LEVELS];
    uint32_t beyond;            /* 1: the group extends beyond a scale-up domain that is smaller than a node */
    uint32_t first[NMOVES + 1]; /* the lines of a move are first[move] .. first[move + 1] - 1; an empty range: not
                                 * tuned yet */
    struct cost_line lines[COST_LINES];
    uint16_t curve[6]; /* by cost_curve_slot(): all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, send;
                        * 0 = none */
};

/* Links and networks at the rates that NCCL transfers reach, by level (0: inside a domain).  Filled once per
 * decision. */
struct cost_net {
    double bytes_s[COST_LEVELS]; /* bytes per second and GPU, one way; 0: see cost_link_bytes_s() */
    double extra_s[COST_LEVELS]; /* a hop's stated latency in excess of NCCL's default; the whole latency where
                                  * `plain` */
    bool plain, ordered;         /* plain: no NCCL (CPU ranks, a torus); ordered: networks that keep 128 bytes
                                  * together */
};

struct cost {
    const struct job *job;
    const struct profile *profile; /* the job's profile, for time */
    const struct profile *buffers; /* the profile for memory: cost_buffers() */
    const struct topo *topo;
    const struct topo_node_type *type;
    const struct decision *decision;
    struct cost_device device;
    struct cost_net net;
    struct mesh mesh;
    const struct mesh_runs *runs;   /* the nodes' mesh runs, if a search has computed them; else NULL */
    struct cost_products *products; /* a search's cache of matrix products; else NULL */
    struct moments_pairs *pairs;    /* a search's cache of the memory of stages that run beside one another
                                     * (beside.c); else NULL */
    struct cost_unit unit;
    double crowd;                               /* CPU ranks per core of a node; 1 where each rank has a core of its
                                                 * own */
    const struct cost_group *group;             /* by mask of axes */
    const struct cost_group *digits;            /* by mask of the folded mesh's digits; NULL where the digits are the
                                                 * axes */
    struct cost_group tie, shard, replicas, ep; /* the first and the last stage; the ranks that ZeRO state is split
                                                 * over; the replicas of that state; the expert ranks */
    struct cost_group near, far; /* expert ranks of one node, and those with the same number on each node; n = 1 where
                                  * rows can only be sent straight to the expert's rank */
    struct cost_group next;      /* the worst placed pair of neighbouring stages */
    uint32_t next_level;         /* = next.level */
};

/* Requires a legal decision d with its nodes assigned. */
struct cost *cost_new(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d);
/* The same, in place, for the search: only the groups that blocks need are filled in.  runs: those of d's nodes, or
 * a superset; products: a cache of the same job and node type. */
void cost_init(struct arena *a, struct cost *c, const struct job *job, const struct topo *topo,
               const struct decision *d, const struct mesh_runs *runs, struct cost_products *products,
               struct moments_pairs *pairs);
struct cost_products *cost_products_new(struct arena *a);
struct moments_pairs *moments_pairs_new(struct arena *a);
struct arena *moments_arena(struct moments_pairs *known); /* the arena that the cache is allocated in */

/* Tells whether a compute instruction is the first of its action.  In a pair, the instructions of two actions may
 * alternate.  Initialise with zeros. */
struct cost_actions {
    struct insn last[2];
};
static inline bool cost_starts_action(struct cost_actions *t, const struct insn *n)
{
    for (int k = 0; k < 2; k++)
        if (t->last[k].action == n->action && t->last[k].stage == n->stage && t->last[k].microbatch == n->microbatch)
            return false;
    t->last[1] = t->last[0];
    t->last[0] = *n;
    return true;
}

/* Duration of instruction i in nanoseconds; first: it is the first compute instruction of its action. */
int64_t cost_insn_ns(const struct cost *c, const struct program *p, uint32_t i, bool first);
/* The same, cached by first operand (program_share.h); known: one entry per operand of the program, initially zero. */
int64_t cost_insn_once(const struct cost *c, const struct program *p, uint32_t i, bool first, int64_t *known);
/* Seconds of a collective.  op: its opcode; bytes: size of the largest operand; mask: of axes, or GROUP_TIE. */
double cost_collective_s(const struct cost *c, enum op op, double bytes, uint32_t mask);
/* The same for a mask of digits, as programs have it. */
double cost_digits_s(const struct cost *c, enum op op, double bytes, uint32_t mask);
/* The same for a group.  Where ranks share cores: the seconds for which each member occupies a core. */
double cost_group_s(const struct cost *c, enum op op, double bytes, const struct cost_group *g);
/* Seconds to send from every member to the next one round a ring, one of an all-gather's n - 1 rounds; bytes: one
 * member's. */
double cost_shift_s(const struct cost *c, double bytes, uint32_t mask);
/* Seconds of a transfer between neighbouring pipeline ranks. */
double cost_transfer_s(const struct cost *c, double bytes);
/* Seconds for which the collective occupies this GPU's share of its node's NICs; for transfers that overlap, add
 * them up. */
double cost_wire_s(const struct cost *c, enum op op, double bytes, const struct cost_group *g);
/* Seconds to dispatch tokens to their experts or to combine them.  bytes: of this rank's tokens, each counted once;
 * copies: experts per token; groups, pick: a token's experts lie in `pick` of `groups` groups of experts (pick 0:
 * any). By all-to-all every copy travels; with once_per_node a token is sent to a node once and copied there
 * (DeepEP, HybridEP). */
double cost_dispatch_s(const struct cost *c, double bytes, uint32_t copies, uint32_t groups, uint32_t pick,
                       const struct cost_group *g, bool once_per_node);
/* The ep_nodes of decision.h: the decision's own value or, where that is 0, the faster of sending straight (1) and
 * once per node. */
uint32_t cost_exchange_nodes(const struct cost *c);
/* Describes how cost_group_s() got its result: algorithm or curve, levels, bus bandwidth.  Writes at most size
 * bytes, including the final 0. */
void cost_collective_why(const struct cost *c, enum op op, double bytes, const struct cost_group *g, char *text,
                         size_t size);

/* The estimate in closed form, itemised: the items of time add up to the step, those of memory to the peak. */
struct estimate {
    double step_time_s, compute_s, tp_comm_s, pp_comm_s, dp_comm_s, bubble_s, optimizer_s;
    double stage_forward_s, stage_backward_s; /* of the slowest stage, for one microbatch */
    uint64_t peak_bytes;                      /* of the fullest stage */
    uint32_t peak_stage;                      /* the pipeline rank with that peak */
    uint64_t parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes, buffer_bytes; /* on that rank */
    uint64_t allocator_bytes, communicator_bytes, context_bytes; /* as the profile's software stack takes them */
};
void cost_estimate(struct arena *a, const struct cost *c, struct estimate *e);
/* Stores in ns[r] the nanoseconds of all instructions of the r-th of n programs, as the profile's software stack runs
 * them; under unit costs, those of each by itself.  A SEND holds up its rank's kernels for its share of the transfer:
 * the last kernel before it is lengthened by that much. */
void cost_programs_ns(struct arena *a, const struct cost *c, const struct program *const *programs, uint32_t n,
                      int64_t *const *ns);
/* By how many uses ahead parameters should be prefetched under ZeRO 3; 0 where nothing is gathered. */
uint32_t cost_prefetch(struct arena *a, const struct cost *c);
/* Capacity of the blocks of experts' rows where the job does not say it, as a multiple of the mean; 0: room for all
 * that can arrive.  Blocks travel whole, so capacity costs time: on GPUs it is 1.5 times the expected imbalance. */
double cost_usual_room(const struct job *job, const struct topo_gpu *gpu);
#define COST_NEARLY_USUAL 0.9 /* the fraction of the usual capacity below which a plan is called tight */
/* May a plan of d have less capacity than usual because nothing else fits?  And does d have less? */
bool cost_may_be_tight(const struct job *job, const struct decision *d);
bool cost_is_tight(const struct job *job, const struct topo_gpu *gpu, const struct decision *d);
/* The software stack whose memory a step takes: the one that the job's profile describes or, where programs are
 * written, llmrun. */
const struct profile *cost_buffers(const struct job *job);

/* The bytes of a GPU that peak_bytes is compared with: decision_gpu_bytes(), plus the reserve where the profile
 * itemises the context. */
uint64_t cost_memory_limit(const struct job *job, const struct topo_gpu *gpu);
/* Forward plus backward seconds of each layer, of the embedding and of the head, for cutting the model into stages. */
void cost_layers(struct arena *a, const struct cost *c, double *layer_s, double *embed_s, double *head_s);

#endif
