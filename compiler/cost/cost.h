#ifndef LLMC_COST_H
#define LLMC_COST_H

/* Predicted time, behind one narrow interface: the nanoseconds of an instruction of a program, and the step time and
 * memory of a decision in closed form.  kernel.c owns kernels, comm.c transfers and collectives; block.c
 * turns a layer into seconds and keep.c into bytes by rules per operator; mem.c sums a rank's bytes, estimate.c the
 * step's seconds. */

#include "compiler/cost/kernel.h"
#include "compiler/model/decision.h"
#include "compiler/model/expand.h"
#include "compiler/topology/mesh_runs.h"

/* Unit costs, for tests of schedules: the first compute instruction of an F action takes f, of a B action b, every
 * transfer c, everything else nothing. */
struct cost_unit {
    bool on;
    int64_t f_ns, b_ns, c_ns;
};

/* One way to run a collective: start_s + per_byte_s * bytes + root_s * sqrt(bytes); way: algorithm and protocol. */
struct cost_line {
    float start_s, per_byte_s, root_s;
    uint32_t way;
};
/* Who takes part in a collective: n members, below[l] of them together at or below network level l; and, made from
 * that, the ways to run each kind of collective, or the curve that was measured (index + 1).  No padding: compared as
 * bytes. */
#define COST_LEVELS 12
enum cost_move { MOVE_ALL_REDUCE, MOVE_GATHER, MOVE_BROADCAST, MOVE_EXCHANGE, NMOVES };
#define COST_LINES 18
struct cost_group {
    uint32_t n, level, below[COST_LEVELS];
    uint32_t beyond;            /* 1: reaches beyond a scale-up domain that is smaller than a node */
    uint32_t first[NMOVES + 1]; /* lines of a move: first[move] .. first[move + 1] - 1; none = not made yet */
    struct cost_line lines[COST_LINES];
    uint16_t curve[6]; /* all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, send; 0 = none */
};

/* links and networks as transfers of NCCL's reach them, by level (0: inside a domain): made once per decision */
struct cost_net {
    double bytes_s[COST_LEVELS]; /* per GPU, one way; 0: see cost_link_bytes_s() */
    double extra_s[COST_LEVELS]; /* stated latency of a hop beyond NCCL's default; the whole latency where plain */
    bool plain, ordered;         /* no NCCL: CPU ranks, torus; networks that keep 128 bytes together */
};

struct cost {
    const struct job *job;
    const struct profile *profile; /* of the job: where time goes */
    const struct profile *buffers; /* where memory goes: cost_buffers() */
    const struct topo *topo;
    const struct topo_node_type *type;
    const struct decision *decision;
    struct cost_device device;
    struct cost_net net;
    struct mesh mesh;
    const struct mesh_runs *runs;   /* of the nodes, where a search has them; NULL: none */
    struct cost_products *products; /* of a search: products that it has asked for; NULL: none */
    struct moments_pairs *pairs;    /* the same of stages that run beside one another (beside.c) */
    struct cost_unit unit;
    double crowd;                               /* CPU ranks per core of a node, 1 where each has its own */
    struct cost_group group[1u << NAXES];       /* by axis mask */
    const struct cost_group *digits;            /* by mask of the folded mesh's digits; NULL where these are the axes */
    struct cost_group tie, shard, replicas, ep; /* first-last stage; of ZeRO state; of its replicas; of experts */
    struct cost_group near,
        far; /* of experts: on one node; with the same number there; n = 1 where rows cannot but go straight */
    struct cost_group next; /* worst pair of neighbouring stages */
    uint32_t next_level;    /* = next.level */
};

/* d: legal, with its nodes */
struct cost *cost_new(struct arena *a, const struct job *job, const struct topo *topo, const struct decision *d);
/* the same into place, for the search: groups of the masks that blocks need only; runs: of d's nodes, or more of them;
 * products: of the same job and type of node */
void cost_init(struct cost *c, const struct job *job, const struct topo *topo, const struct decision *d,
               const struct mesh_runs *runs, struct cost_products *products, struct moments_pairs *pairs);
struct cost_products *cost_products_new(struct arena *a);
struct moments_pairs *moments_pairs_new(struct arena *a);
struct arena *moments_arena(struct moments_pairs *known); /* it lies in */

/* Is a compute instruction its action's first?  Instructions of two actions may alternate (a pair).  Start with zeros.
 */
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

/* duration of instruction i; first: the first compute instruction of its action */
int64_t cost_insn_ns(const struct cost *c, const struct program *p, uint32_t i, bool first);
/* the same, remembered by first operand (program_share.h); known: one per operand of the program, zeros to begin with
 */
int64_t cost_insn_once(const struct cost *c, const struct program *p, uint32_t i, bool first, int64_t *known);
/* op: the collective's opcode; bytes: of the largest operand; mask of axes, or GROUP_TIE */
double cost_collective_s(const struct cost *c, enum op op, double bytes, uint32_t mask);
/* the same of a mask of digits, as programs have it */
double cost_digits_s(const struct cost *c, enum op op, double bytes, uint32_t mask);
/* where ranks share cores: that a member has one */
double cost_group_s(const struct cost *c, enum op op, double bytes, const struct cost_group *g);
/* from every member to the next one round a ring: one of an all-gather's n - 1 rounds; bytes: of a member */
double cost_shift_s(const struct cost *c, double bytes, uint32_t mask);
/* between neighbouring pipeline ranks */
double cost_transfer_s(const struct cost *c, double bytes);
/* seconds that this GPU's share of its node's NICs is busy with it: transfers that overlap each other need the sum */
double cost_wire_s(const struct cost *c, enum op op, double bytes, const struct cost_group *g);
/* Tokens to their experts or back: bytes: of this rank's tokens, each once; copies: experts per token; of `groups`
 * groups of experts a token visits `pick` (0 = any).  By all-to-all every copy travels; with once_per_node a token goes
 * to a node once and is copied there (DeepEP, HybridEP). */
double cost_dispatch_s(const struct cost *c, double bytes, double copies, uint32_t groups, uint32_t pick,
                       const struct cost_group *g, bool once_per_node);
/* decision.h's ep_nodes: as the decision says, or whichever of straight and once per node is faster */
uint32_t cost_exchange_nodes(const struct cost *c);
/* how cost_group_s() got there: algorithm or curve, levels, bus bandwidth; at most size bytes with the final 0 */
void cost_collective_why(const struct cost *c, enum op op, double bytes, const struct cost_group *g, char *text,
                         size_t size);

/* closed form, itemised; the items of time and of memory add up */
struct estimate {
    double step_time_s, compute_s, tp_comm_s, pp_comm_s, dp_comm_s, bubble_s, optimizer_s;
    double stage_forward_s, stage_backward_s; /* of the slowest stage, one microbatch */
    uint64_t peak_bytes;                      /* of the fullest stage */
    uint32_t peak_stage;                      /* pipeline rank */
    uint64_t parameter_bytes, gradient_bytes, optimizer_bytes, activation_bytes, buffer_bytes; /* on that stage */
    uint64_t allocator_bytes, communicator_bytes, context_bytes; /* as the profile's stack has them */
};
void cost_estimate(struct arena *a, const struct cost *c, struct estimate *e);
/* What a profile's stack makes of a program's instructions: host work, shares of transfers that it hides. */
struct cost_stack {
    const struct cost *c;
    struct mesh mesh;
    double (
        *stage_s)[8]; /* by stage: kernels of its F, B, I and W; then copies of activations to host memory and back */
    double (*own_s)[8],
        (*factor)[8]; /* a program's instructions of that; what they take as a multiple of their own time */
    uint32_t (*nactions)[4];
    double slow, experts;      /* the same for the slowest node alone; of rows to experts */
    double held;               /* of a transfer between stages: share that the sender computes nothing in */
    double tp, cp, ep, shards; /* of transfers among ranks of one stage: what their own time is multiplied with */
    double step_s;             /* host work of a step, and what is not hidden of data-parallel transfers */
};
struct cost_stack *cost_stack_new(struct arena *a, const struct cost *c);
/* Nanoseconds of all instructions of a program, as the stack has them (NULL: by themselves).  A SEND holds up its
 * rank's kernels for its share of the transfer: the last one before it takes so much longer. */
void cost_program_ns(struct arena *a, const struct cost *c, struct cost_stack *s, const struct program *p, int64_t *ns);
/* uses ahead that parameters should be gathered under ZeRO 3; 0 where nothing is gathered */
uint32_t cost_prefetch(struct arena *a, const struct cost *c);
/* Rows that blocks of experts' rows have room for where nobody says, over the mean; 0: all that can come.  Blocks
 * travel whole, so room costs time: on GPUs half as much again as the expected unevenness. */
double cost_usual_room(const struct job *job, const struct topo_gpu *gpu);
#define COST_NEARLY_USUAL 0.9 /* the share of it that is not called tight */
/* May a plan of d have less, because nothing else fits?  Has one? */
bool cost_may_be_tight(const struct job *job, const struct decision *d);
bool cost_is_tight(const struct job *job, const struct topo_gpu *gpu, const struct decision *d);
/* The stack whose memory a step takes: the one that the job's profile describes, or, where programs are written,
 * llmrun. */
const struct profile *cost_buffers(const struct job *job);

/* bytes of a GPU that peak_bytes is compared with: decision_gpu_bytes(), and the reserve too where the profile itemises
 * context */
uint64_t cost_memory_limit(const struct job *job, const struct topo_gpu *gpu);
/* forward and backward seconds of each layer, the embedding and the head, for cutting stages */
void cost_layers(struct arena *a, const struct cost *c, double *layer_s, double *embed_s, double *head_s);

#endif
