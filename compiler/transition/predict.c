/* What a transition costs, by closed formulas.
 *
 * Every GPU sends and receives at once: within a node at its scale-up rate, between nodes at its share of the node's
 * network cards; what it copies for itself is read and written in its memory.  The slowest GPU's sum of these three is
 * the time, plus a latency for every message that the GPU with most of them waits for.  Contention above the node is
 * left out, so it is a bound from below where the network is oversubscribed. */

#include "compiler/support/units.h"
#include "compiler/transition/transition.h"

static const double MESSAGE_S = 10e-6; /* of one message: launch and rendezvous */

/* bytes of one rank; messages that it takes part in */
struct load {
    uint64_t near_in, near_out, far_in, far_out, local, messages;
};

static uint64_t bytes_of(const struct program *p, uint32_t i)
{
    const struct operand *o = &p->operands[p->insns[i].operand];
    return (uint64_t)o->rows * o->cols * isa_dtype_bytes((enum dtype)o->dtype);
}

static struct load load_of(const struct transition *t, uint32_t rank)
{
    const struct rank_info *r = &t->ranks->ranks[rank];
    const struct program *p = t->programs[r->role];
    struct load l = {0};
    for (uint32_t i = 0; i < p->ninsns; i++) {
        uint64_t bytes = bytes_of(p, i);
        enum op op = p->insns[i].op;
        if (op != OP_SEND && op != OP_RECV) {
            l.local += bytes;
            continue;
        }
        uint32_t slot = p->attrs[p->insns[i].attr + ATTR(SEND, peer)].slot;
        bool near = t->ranks->ranks[t->ranks->values[r->slot + slot]].node == r->node;
        *(op == OP_SEND ? near ? &l.near_out : &l.far_out : near ? &l.near_in : &l.far_in) += bytes;
        l.messages++;
    }
    return l;
}

static uint64_t most(uint64_t x, uint64_t y)
{
    return x > y ? x : y;
}

/* bytes of a plan's persistent buffers on the device */
static uint64_t state_bytes(const struct plan *p, uint32_t rank)
{
    const struct program *q = rank == NONE ? NULL : p->train[p->ranks->ranks[rank].role];
    uint64_t bytes = 0;
    for (uint32_t i = 0; q && i < q->nbuffers; i++)
        if (q->buffers[i].bucket != NONE && !q->buffers[i].host)
            bytes += q->buffers[i].bytes;
    return bytes;
}

struct transition_cost transition_cost(const struct transition *t)
{
    const struct topo_node_type *type = &t->to->topo->types[t->to->decision.type];
    double memory = type->gpu.memory_bytes_s > 0 ? type->gpu.memory_bytes_s : 1e10,
           near = type->scale_up.bytes_s > 0 ? type->scale_up.bytes_s : memory / 2,
           far = type->nic_bytes_s_per_gpu > 0 ? type->nic_bytes_s_per_gpu : near;
    struct transition_cost c = {.room_bytes = decision_gpu_bytes(t->to->job, &type->gpu)};
    for (uint32_t rank = 0; rank < t->ranks->nranks; rank++) {
        struct load l = load_of(t, rank);
        uint64_t peak = state_bytes(t->from, t->seats[rank].from) + state_bytes(t->to, t->seats[rank].to);
        double s = (double)most(l.near_in, l.near_out) / near + (double)most(l.far_in, l.far_out) / far +
                   2 * (double)l.local / memory + (double)l.messages * MESSAGE_S;
        c.seconds = s > c.seconds ? s : c.seconds;
        c.near_bytes += l.near_out;
        c.far_bytes += l.far_out;
        c.local_bytes += l.local;
        c.messages += l.messages;
        if (peak > c.peak_bytes) {
            c.peak_bytes = peak;
            c.peak_rank = rank;
        }
    }
    c.messages /= 2; /* counted at both ends */
    return c;
}

enum status transition_fits(const struct transition *t, struct error *error)
{
    struct transition_cost c = transition_cost(t);
    return c.peak_bytes <= c.room_bytes
               ? STATUS_OK
               : error_set(error, STATUS_NO_PLAN,
                           "rank %u would hold %s of both plans' state, and has %s: go by way of a checkpoint (llmrun "
                           "--resume)",
                           c.peak_rank, units_show_bytes(c.peak_bytes).s, units_show_bytes(c.room_bytes).s);
}
