/* Routers: scores, choices, the balance loss, and where the chosen rows are placed (moe.c). */

#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"
#include "compiler/lower/operators.h"
#include "compiler/lower/step.h"

/* number of this rank's first row among the microbatch's */
static struct bind own_start(struct lower *l)
{
    return l->sp && l->d->tp > 1 ? bind_to(0, lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_TP]), l->local) : bind_at(0);
}

static struct mat router_bias(struct lower *l, uint32_t piece, const struct opr *o)
{
    return o->moe->bias ? lower_vector(l, piece, o, o->nbiases - 1, false) : mat_none();
}

/* ---- router ---- */

static void route(struct lower *l, uint32_t piece, uint32_t opr, struct mat logits)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    const struct moe *m = o->moe;
    EMIT(l, ROUTE, .index = lower_aux(l, piece, opr, ROUTER_INDEX), .weight = lower_aux(l, piece, opr, ROUTER_WEIGHT),
         .score = lower_aux(l, piece, opr, ROUTER_SCORE), .logits = logits, .bias = router_bias(l, piece, o),
         .step = lower_step_block(l), .sigmoid = m->router == ROUTER_SIGMOID, .groups = m->groups, .pick = m->pick,
         .normalize = m->normalize, .scale = m->scale, .layer = l->pieces[piece].layer, .sample = lower_sample(l),
         .sequence = lower_sequence(l), .start = own_start(l), .first = lower_first(l), .shift = lower_shift(l));
}

/* Counts how often each expert was chosen: per sequence for the balance loss, over the step for the correction bias. */
static void count_load(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    const struct moe *m = o->moe;
    struct mat index = lower_aux(l, piece, opr, ROUTER_INDEX), load;
    if (m->balance > 0) {
        load = lower_aux(l, piece, opr, ROUTER_LOAD);
        EMIT(l, LOAD, .load = mat_write(load), .index = index, .sequence = lower_sequence(l), .start = own_start(l));
        uint32_t parts = (l->sp ? l->mesh.dim[MESH_TP] : 0) | (l->d->cp > 1 ? l->mesh.dim[MESH_CP] : 0);
        if (parts)
            lower_collective(l, OP_ALL_REDUCE, QUEUE_TP, parts, load, load);
    }
    if (!m->bias || l->evaluation || l->recomputing)
        return;
    enum mark mark;
    load = lower_load(l, piece, o, &mark);
    EMIT(l, LOAD, .load = mat_by(load, mark), .index = index, .sequence = l->local, .start = bind_at(0));
}

/* weight of the balance loss of one sequence, over all: balance * E / (K S) * 1 / S, mean over the batch */
static double balance_scale(const struct lower *l, const struct moe *m)
{
    double s = (double)l->job->train.sequence;
    return m->balance * m->experts / (m->active * s) / (s * (double)l->job->train.batch);
}

static void balance(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    if (!(o->moe->balance > 0) || l->recomputing)
        return;
    EMIT(l, BALANCE, .loss = mat_add(lower_metric(l, METRIC_BALANCE, 1)), .load = lower_aux(l, piece, opr, ROUTER_LOAD),
         .score = lower_aux(l, piece, opr, ROUTER_SCORE), .scale = balance_scale(l, o->moe),
         .sequence = lower_sequence(l), .start = own_start(l));
}

/* Places rows for nodes, with the choices that they have on each. */
static void arrange_once(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct expert_rows r = lower_expert_rows(l, o->moe);
    EMIT(l, ARRANGE_ONCE, .place = lower_aux(l, piece, opr, ROUTER_PLACE),
         .chosen = lower_aux(l, piece, opr, ROUTER_CHOSEN),
         .need = r.node_bounded && !l->recomputing ? lower_metric(l, METRIC_NEED, 2) : mat_none(),
         .index = lower_aux(l, piece, opr, ROUTER_INDEX), .experts = o->moe->experts, .blocks = r.nodes, .rows = r.node,
         .capacity = r.capacity, .sequence = lower_sequence(l), .mean = model_node_rows(o->moe, r.nodes, l->local),
         .start = own_start(l));
}

static void arrange(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct expert_rows r = lower_expert_rows(l, o->moe);
    EMIT(l, ARRANGE, .place = lower_aux(l, piece, opr, ROUTER_PLACE), .counts = lower_aux(l, piece, opr, ROUTER_COUNTS),
         .need = r.bounded && !l->recomputing ? lower_metric(l, METRIC_NEED, 2) : mat_none(),
         .index = lower_aux(l, piece, opr, ROUTER_INDEX), .experts = o->moe->experts, .blocks = r.blocks,
         .rows = r.block, .capacity = r.capacity, .sequence = lower_sequence(l), .start = own_start(l));
}

void lower_router(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct mat logits = lower_temp(l, "logits", DTYPE_F32, l->local, o->moe->experts);
    EMIT(l, MATMUL_NT, .c = mat_write(logits), .a = lower_value(l, piece, o->in[0]),
         .b = lower_weight(l, piece, o, false),
         .bias = o->moe->linear_bias ? lower_vector(l, piece, o, 0, false) : mat_none());
    route(l, piece, opr, logits);
    count_load(l, piece, opr);
    balance(l, piece, opr);
    (l->d->ep_nodes > 1 ? arrange_once : arrange)(l, piece, opr);
}

void lower_router_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    const struct moe *m = o->moe;
    struct mat dlogits = lower_temp(l, "dlogits", l->ctype, l->local, m->experts);
    enum mark mark;
    EMIT(l, ROUTE_I, .dlogits = dlogits, .dweight = lower_temp(l, "dweight", DTYPE_F32, l->local, m->active),
         .index = lower_aux(l, piece, opr, ROUTER_INDEX), .score = lower_aux(l, piece, opr, ROUTER_SCORE),
         .load = m->balance > 0 ? lower_aux(l, piece, opr, ROUTER_LOAD) : mat_none(),
         .by = m->balance > 0 ? lower_loss_factor(l) : mat_none(), .sigmoid = m->router == ROUTER_SIGMOID,
         .normalize = m->normalize, .scale = m->scale, .balance = balance_scale(l, m), .sequence = lower_sequence(l),
         .start = own_start(l));
    struct mat dx = lower_gradient(l, piece, o->in[0], &mark);
    EMIT(l, MATMUL_NN, .c = mat_by(dx, mark), .a = dlogits, .b = lower_weight(l, piece, o, false));
    struct mat x = lower_kept(l, piece, o->in[0]);
    mark = lower_contribution(l, piece, o->weight);
    EMIT(l, MATMUL_TN, .c = mat_by(lower_weight(l, piece, o, true), mark), .a = dlogits, .b = x);
    if (!m->linear_bias)
        return;
    mark = lower_contribution(l, piece, o->bias);
    EMIT(l, BIAS_W, .db = mat_by(lower_vector(l, piece, o, 0, true), mark), .dy = dlogits);
}
