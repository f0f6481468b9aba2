/* Rows to experts on several nodes are sent either straight to every expert's rank, or once per node and spread
 * there (compiler/lower/moe.c).  Here: which of the two a decision takes, and what each costs.
 *
 * Straight, the k rows of a token travel among all expert ranks, most of them between nodes.  Once per node, as many
 * rows as a token has nodes to visit (model_sets_met(), times the capacity of the blocks) travel among the ranks
 * with the same number on each node, and then k rows over the links of a node, one transfer after the other.  The
 * faster way for a microbatch's rows in one layer is taken, for whole blocks and plain all-to-all: that is how
 * llmrun sends them, whatever stack a profile describes. */

#include "compiler/cost/cost_private.h"

#include <math.h>

void cost_split_experts(struct cost *c)
{
    const struct decision *d = c->decision;
    uint32_t together = c->ep.below[0], nodes = d->ep_nodes;
    c->near = c->far = (struct cost_group){.n = 1};
    if (nodes == 1 || d->ep < 4)
        return;
    if (!nodes) { /* the ranks that form a node's part must be on one node in every group */
        uint64_t domain = (uint64_t)c->type->gpus * (c->type->scale_up.span > 1 ? c->type->scale_up.span : 1);
        if (!c->ep.level || together < 2 || d->ep % together || d->ep == together ||
            domain % mesh_run(&c->mesh, (uint64_t)together * d->etp) ||
            !decision_experts_nest(c->job, d, d->ep / together))
            return;
        nodes = d->ep / together;
    }
    c->near = cost_expert_group(c, d->ep / nodes, d->etp);
    c->far = cost_expert_group(c, nodes, d->ep / nodes * d->etp);
}

/* Capacity of blocks of experts' rows, as a multiple of the mean; 0: room for all that can arrive. */
static double room_of(const struct cost *c)
{
    return c->decision->room > 0 ? c->decision->room : cost_usual_room(c->job, &c->type->gpu);
}

/* The rows of `tokens` tokens that travel between nodes, by the capacity of a stack's blocks. */
static double far_rows(const struct cost *c, const struct profile *stack, const struct moe *m, double tokens)
{
    double nodes = c->far.n, met = model_sets_met(nodes, m->active, m->groups, m->pick);
    double room = room_of(c);
    if (stack->allocator > 0.5 || m->capacity > 0)
        room = c->job->train.imbalance;
    return tokens * (room > 0 ? fmin(nodes, room * met) : nodes);
}

static double straight_s(const struct cost *c, const struct moe *m, double tokens, double row_bytes)
{
    return cost_group_s(c, OP_ALL_TO_ALL, tokens * m->active * cost_rows_moved(c, m) * row_bytes, &c->ep);
}

static double far_s(const struct cost *c, const struct moe *m, double tokens, double row_bytes)
{
    return cost_group_s(c, OP_ALL_TO_ALL, far_rows(c, c->profile, m, tokens) * row_bytes, &c->far);
}

static double near_s(const struct cost *c, const struct moe *m, double tokens, double row_bytes)
{
    return cost_group_s(c, OP_ALL_TO_ALL, tokens * m->active * cost_rows_moved(c, m) * row_bytes, &c->near);
}

/* Seconds of the additional passes through memory of the rows that arrived at a node. */
static double copies_s(const struct cost *c, const struct moe *m, double tokens, double row_bytes)
{
    return cost_stream_s(c, 2 * far_rows(c, c->profile, m, tokens) * row_bytes);
}

uint32_t cost_exchange_nodes(const struct cost *c)
{
    const struct decision *d = c->decision;
    const struct model *model = &c->job->model;
    const struct moe *m = NULL;
    if (d->ep_nodes)
        return d->ep_nodes;
    for (uint32_t i = 0; i < model_all_layers(model) && c->far.n > 1 && !m; i++)
        m = model_layer(model, i)->is_moe ? &model_layer(model, i)->moe : NULL;
    if (!m)
        return 1;
    double tokens = (double)d->microbatch * (double)c->job->train.sequence / d->cp / d->tp;
    double row_bytes = (c->job->train.precision == DT_FP32 ? 4.0 : 2.0) * (double)model->width;
    double once = far_s(c, m, tokens, row_bytes) + near_s(c, m, tokens, row_bytes) + copies_s(c, m, tokens, row_bytes);
    return once < straight_s(c, m, tokens, row_bytes) ? c->far.n : 1;
}

double cost_far_rows(const struct cost *c, const struct moe *m, double tokens)
{
    bool ours = c->buffers->allocator < 0.5 && c->decision->ep > 1;
    return ours && c->ep.level != COST_FLOOR && cost_exchange_nodes(c) > 1 ? far_rows(c, c->buffers, m, tokens) : 0;
}

struct cost_exchange cost_exchange(const struct cost *c, const struct moe *m, double tokens, double row_bytes)
{
    double moved = tokens * m->active * cost_rows_moved(c, m);
    bool stack = c->profile->ep_once_per_node > 0.5, ours = c->profile->allocator < 0.5 && c->decision->ep > 1;
    double dispatch = cost_dispatch_s(c, moved / m->active * row_bytes, m->active, m->groups, m->pick, &c->ep, stack);
    struct cost_exchange x = {.way_s = dispatch};
    if (c->ep.level == COST_FLOOR && ours &&
        !stack) { /* no nodes are assigned yet: a lower bound of both ways, without their start-up time */
        double once = cost_floor_dispatch_s(c, tokens * row_bytes, m->active, m->groups, m->pick, c->ep.n);
        x.way_s = fmin(dispatch, 0.9 * fmax(0, once - 50e-6));
        return x;
    }
    uint32_t nodes = stack || !ours ? 1 : cost_exchange_nodes(c); /* other stacks send as their profile says */
    if (nodes > 1) {
        double choices = 4 * m->active * far_rows(c, c->profile, m, tokens);
        double far = far_s(c, m, tokens, row_bytes), near = near_s(c, m, tokens, row_bytes);
        x.way_s = far + near;
        x.far_s = far;
        x.copies_s = copies_s(c, m, tokens, row_bytes);
        x.rows = far_rows(c, c->profile, m, tokens);
        /* choices and their weights are sent once, and the row counts within the node; gradients of the weights are
         * sent back */
        x.forward_s = 2 * cost_group_s(c, OP_ALL_TO_ALL, choices, &c->far) +
                      cost_group_s(c, OP_ALL_TO_ALL, 4.0 * m->experts / nodes, &c->near);
        x.backward_s = cost_group_s(c, OP_ALL_TO_ALL, choices, &c->far) +
                       2 * cost_group_s(c, OP_ALL_TO_ALL, 4 * moved, &c->near);
    } else if (ours) { /* row counts; in the backward pass the rows' weights and their gradients: mostly latency */
        x.forward_s = cost_group_s(c, OP_ALL_TO_ALL, 4 * m->experts, &c->ep);
        x.backward_s = 2 * cost_group_s(c, OP_ALL_TO_ALL, 4 * moved, &c->ep);
    }
    return x;
}

double cost_usual_room(const struct job *job, const struct topo_gpu *gpu)
{
    if (job->train.expert_room > 0)
        return job->train.expert_room;
    return topo_is_cpu(gpu) ? 0 : 1.5 * job->train.imbalance;
}

/* Rows that are sent to experts, and that their activations hold, for each row expected on average: llmrun's blocks
 * travel whole, with their capacity; other stacks send the rows that there are. */
static double rows_of(const struct cost *c, const struct profile *stack, const struct moe *m, double room)
{
    const struct decision *d = c->decision;
    double local = (double)m->experts / d->ep, all = fmin(m->active, local) * d->ep / m->active; /* the most that can
                                                                                                  * arrive */
    if (stack->allocator > 0.5 || m->capacity > 0)
        return fmin(c->job->train.imbalance, all);
    return room > 0 ? fmin(room, all) : all;
}

bool cost_may_be_tight(const struct job *job, const struct decision *d)
{
    return job->wishes.tight_experts && !(d->room > 0) && !(job->train.expert_room > 0);
}

bool cost_is_tight(const struct job *job, const struct topo_gpu *gpu, const struct decision *d)
{
    double usual = cost_usual_room(job, gpu);
    return d->room > 0 && !(job->train.expert_room > 0) && (!(usual > 0) || d->room < COST_NEARLY_USUAL * usual);
}

double cost_room_kept(const struct cost *c)
{
    double room = room_of(c), mean = fmax(1, c->job->train.imbalance);
    return cost_may_be_tight(c->job, c->decision) && !(room > 0 && room < mean) ? mean : room;
}

double cost_rows_moved(const struct cost *c, const struct moe *m)
{
    return rows_of(c, c->profile, m, cost_room_kept(c));
}

double cost_rows_kept(const struct cost *c, const struct moe *m)
{
    return rows_of(c, c->buffers, m, cost_room_kept(c));
}

double cost_sent_bytes(const struct cost *c)
{
    uint64_t h = (uint64_t)c->job->model.width;
    return c->job->train.fp8_sent ? 4.0 * (double)isa_eight_words(h)
                                  : (c->job->train.precision == DT_FP32 ? 4.0 : 2.0) * (double)h;
}

double cost_travel_s(const struct cost *c, const struct moe *m, struct cost_exchange *to, struct cost_exchange *from)
{
    const struct decision *d = c->decision;
    double h = (double)c->job->model.width, element = c->job->train.precision == DT_FP32 ? 4 : 2;
    double tokens = (double)c->job->train.sequence * d->microbatch / d->cp / d->tp;
    *to = *from = cost_exchange(c, m, tokens, h * element);
    if (c->job->train.fp8_sent)
        *to = cost_exchange(c, m, tokens, cost_sent_bytes(c));
    double seconds = to->way_s + from->way_s;
    if (d->etp > 1) {
        const struct cost_group g = d->nodes ? cost_run_group(c, d->etp, 1) : cost_floor_group(c, d->etp);
        double rows = tokens * m->active * cost_rows_moved(c, m) * d->etp;
        to->shared_s = cost_group_s(c, OP_ALL_GATHER, rows * cost_sent_bytes(c), &g);
        from->shared_s = cost_group_s(c, OP_REDUCE_SCATTER, rows * h * element, &g);
    }
    return seconds + to->shared_s + from->shared_s;
}

void cost_emitted_ways(const struct cost *c, const struct moe *m, struct cost_exchange *to, struct cost_exchange *from)
{
    const struct decision *d = c->decision;
    if (!c->job->wishes.emitted || c->profile->allocator < 0.5 || cost_exchange_nodes(c) < 2)
        return;
    double tokens = (double)c->job->train.sequence * d->microbatch / d->cp / d->tp;
    double row = (c->job->train.precision == DT_FP32 ? 4 : 2) * (double)c->job->model.width;
    struct cost_exchange *each[] = {to, from};
    for (int k = 0; k < 2; k++) {
        double bytes = k ? row : cost_sent_bytes(c);
        double far = cost_group_s(c, OP_ALL_TO_ALL, far_rows(c, c->buffers, m, tokens) * bytes, &c->far);
        double near = cost_group_s(c, OP_ALL_TO_ALL, tokens * m->active * rows_of(c, c->buffers, m, room_of(c)) * bytes,
                                   &c->near);
        each[k]->far_s = each[k]->way_s * far / (far + near);
    }
}
