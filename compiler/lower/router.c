/* Routers: scores, choices, the loss that balances them, and where the chosen rows lie (moe.c). */

#include "compiler/lower/build.h"

static struct mat no_mat(void)
{
    return (struct mat){.buffer = NONE};
}

/* first row of the rank's own among the microbatch's */
static void bind_start(struct lower *l, uint32_t insn, size_t attr)
{
    bool split = l->sp && l->d->tp > 1;
    lower_bind(l, insn, attr, 0, split ? lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_TP]) : NONE, l->local);
}

static struct mat router_bias(struct lower *l, uint32_t piece, const struct opr *o)
{
    return o->moe->bias ? lower_vector(l, piece, o, o->nbiases - 1, false) : no_mat();
}

/* ---- router ---- */

static void route(struct lower *l, uint32_t piece, uint32_t opr, struct mat logits)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    const struct moe *m = o->moe;
    struct mat step = {l->step_block, NONE, 0, 1, STEP_WORDS, STEP_WORDS, DTYPE_F64, NONE, 0};
    uint32_t i = lower_insn(l, OP_ROUTE),
             dp = l->d->dp > 1 ? lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_DP]) : NONE;
    ARG(l, i, ROUTE, index, lower_aux(l, piece, opr, ROUTER_INDEX), MARK_WRITE);
    ARG(l, i, ROUTE, weight, lower_aux(l, piece, opr, ROUTER_WEIGHT), MARK_WRITE);
    ARG(l, i, ROUTE, score, lower_aux(l, piece, opr, ROUTER_SCORE), MARK_WRITE);
    ARG(l, i, ROUTE, logits, logits, MARK_READ);
    ARG(l, i, ROUTE, bias, router_bias(l, piece, o), MARK_READ);
    ARG(l, i, ROUTE, step, step, MARK_READ);
    ATTR_INT_SET(l, i, ROUTE, sigmoid, m->router == ROUTER_SIGMOID);
    ATTR_INT_SET(l, i, ROUTE, groups, m->groups);
    ATTR_INT_SET(l, i, ROUTE, pick, m->pick);
    ATTR_INT_SET(l, i, ROUTE, normalize, m->normalize);
    ATTR_REAL_SET(l, i, ROUTE, scale, m->scale);
    ATTR_INT_SET(l, i, ROUTE, layer, l->pieces[piece].layer);
    ATTR_BIND_SET(l, i, ROUTE, sample, (uint64_t)l->microbatch * l->d->microbatch, dp,
                  (uint64_t)l->d->microbatches * l->d->microbatch);
    ATTR_INT_SET(l, i, ROUTE, sequence, lower_sequence(l));
    bind_start(l, i, ATTR(ROUTE, start));
    lower_places(l, i, ATTR(ROUTE, first), ATTR(ROUTE, shift));
}

/* how often each expert was chosen: per sequence for the balance loss, over the step for the correction bias
 */
static void count_load(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    const struct moe *m = o->moe;
    struct mat index = lower_aux(l, piece, opr, ROUTER_INDEX), load;
    if (m->balance > 0) {
        load = lower_aux(l, piece, opr, ROUTER_LOAD);
        uint32_t i = lower_insn(l, OP_LOAD);
        ARG(l, i, LOAD, load, load, MARK_WRITE);
        ARG(l, i, LOAD, index, index, MARK_READ);
        ATTR_INT_SET(l, i, LOAD, sequence, lower_sequence(l));
        bind_start(l, i, ATTR(LOAD, start));
        uint32_t parts = (l->sp ? l->mesh.dim[MESH_TP] : 0) | (l->d->cp > 1 ? l->mesh.dim[MESH_CP] : 0);
        if (parts)
            lower_collective(l, OP_ALL_REDUCE, QUEUE_TP, parts, load, load);
    }
    if (!m->bias || l->evaluation || l->recomputing)
        return;
    enum mark mark;
    load = lower_load(l, piece, o, &mark);
    uint32_t i = lower_insn(l, OP_LOAD);
    ARG(l, i, LOAD, load, load, mark);
    ARG(l, i, LOAD, index, index, MARK_READ);
    ATTR_INT_SET(l, i, LOAD, sequence, l->local);
    ATTR_BIND_SET(l, i, LOAD, start, 0, NONE, 0);
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
    struct mat loss = {l->metrics, NONE, METRIC_BALANCE * sizeof(double), 1, 1, 1, DTYPE_F64, NONE, 0};
    uint32_t i = lower_insn(l, OP_BALANCE);
    ARG(l, i, BALANCE, loss, loss, MARK_ADD);
    ARG(l, i, BALANCE, load, lower_aux(l, piece, opr, ROUTER_LOAD), MARK_READ);
    ARG(l, i, BALANCE, score, lower_aux(l, piece, opr, ROUTER_SCORE), MARK_READ);
    ATTR_REAL_SET(l, i, BALANCE, scale, balance_scale(l, o->moe));
    ATTR_INT_SET(l, i, BALANCE, sequence, lower_sequence(l));
    bind_start(l, i, ATTR(BALANCE, start));
}

/* rows for nodes, and what they have chosen there */
static void arrange_once(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct expert_rows r = lower_expert_rows(l, o->moe);
    struct mat need = {l->metrics, NONE, METRIC_NEED * sizeof(double), 1, 2, 2, DTYPE_F64, NONE, 0};
    uint32_t i = lower_insn(l, OP_ARRANGE_ONCE);
    ARG(l, i, ARRANGE_ONCE, place, lower_aux(l, piece, opr, ROUTER_PLACE), MARK_WRITE);
    ARG(l, i, ARRANGE_ONCE, chosen, lower_aux(l, piece, opr, ROUTER_CHOSEN), MARK_WRITE);
    if (r.node_bounded && !l->recomputing)
        ARG(l, i, ARRANGE_ONCE, need, need, MARK_UPDATE);
    ARG(l, i, ARRANGE_ONCE, index, lower_aux(l, piece, opr, ROUTER_INDEX), MARK_READ);
    ATTR_INT_SET(l, i, ARRANGE_ONCE, experts, o->moe->experts);
    ATTR_INT_SET(l, i, ARRANGE_ONCE, blocks, r.nodes);
    ATTR_INT_SET(l, i, ARRANGE_ONCE, rows, r.node);
    ATTR_INT_SET(l, i, ARRANGE_ONCE, capacity, r.capacity);
    ATTR_INT_SET(l, i, ARRANGE_ONCE, sequence, lower_sequence(l));
    ATTR_REAL_SET(l, i, ARRANGE_ONCE, mean, model_node_rows(o->moe, r.nodes, l->local));
    bind_start(l, i, ATTR(ARRANGE_ONCE, start));
}

static void arrange(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct expert_rows r = lower_expert_rows(l, o->moe);
    struct mat need = {l->metrics, NONE, METRIC_NEED * sizeof(double), 1, 2, 2, DTYPE_F64, NONE, 0};
    uint32_t i = lower_insn(l, OP_ARRANGE);
    ARG(l, i, ARRANGE, place, lower_aux(l, piece, opr, ROUTER_PLACE), MARK_WRITE);
    ARG(l, i, ARRANGE, counts, lower_aux(l, piece, opr, ROUTER_COUNTS), MARK_WRITE);
    if (r.bounded && !l->recomputing)
        ARG(l, i, ARRANGE, need, need, MARK_UPDATE);
    ARG(l, i, ARRANGE, index, lower_aux(l, piece, opr, ROUTER_INDEX), MARK_READ);
    ATTR_INT_SET(l, i, ARRANGE, experts, o->moe->experts);
    ATTR_INT_SET(l, i, ARRANGE, blocks, r.blocks);
    ATTR_INT_SET(l, i, ARRANGE, rows, r.block);
    ATTR_INT_SET(l, i, ARRANGE, capacity, r.capacity);
    ATTR_INT_SET(l, i, ARRANGE, sequence, lower_sequence(l));
    bind_start(l, i, ATTR(ARRANGE, start));
}

void lower_router(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct mat logits = lower_temp(l, "logits", DTYPE_F32, l->local, o->moe->experts);
    uint32_t i = lower_insn(l, OP_MATMUL_NT);
    ARG(l, i, MATMUL_NT, c, logits, MARK_WRITE);
    ARG(l, i, MATMUL_NT, a, lower_value(l, piece, o->in[0]), MARK_READ);
    ARG(l, i, MATMUL_NT, b, lower_weight(l, piece, o, false), MARK_READ);
    if (o->moe->linear_bias)
        ARG(l, i, MATMUL_NT, bias, lower_vector(l, piece, o, 0, false), MARK_READ);
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
    uint32_t i = lower_insn(l, OP_ROUTE_I);
    ARG(l, i, ROUTE_I, dlogits, dlogits, MARK_WRITE);
    ARG(l, i, ROUTE_I, dweight, lower_temp(l, "dweight", DTYPE_F32, l->local, m->active), MARK_READ);
    ARG(l, i, ROUTE_I, index, lower_aux(l, piece, opr, ROUTER_INDEX), MARK_READ);
    ARG(l, i, ROUTE_I, score, lower_aux(l, piece, opr, ROUTER_SCORE), MARK_READ);
    if (m->balance > 0) {
        ARG(l, i, ROUTE_I, load, lower_aux(l, piece, opr, ROUTER_LOAD), MARK_READ);
        ARG(l, i, ROUTE_I, by, lower_loss_factor(l), MARK_READ);
    }
    ATTR_INT_SET(l, i, ROUTE_I, sigmoid, m->router == ROUTER_SIGMOID);
    ATTR_INT_SET(l, i, ROUTE_I, normalize, m->normalize);
    ATTR_REAL_SET(l, i, ROUTE_I, scale, m->scale);
    ATTR_REAL_SET(l, i, ROUTE_I, balance, balance_scale(l, m));
    ATTR_INT_SET(l, i, ROUTE_I, sequence, lower_sequence(l));
    bind_start(l, i, ATTR(ROUTE_I, start));
    struct mat dx = lower_gradient(l, piece, o->in[0], &mark);
    i = lower_insn(l, OP_MATMUL_NN);
    ARG(l, i, MATMUL_NN, c, dx, mark);
    ARG(l, i, MATMUL_NN, a, dlogits, MARK_READ);
    ARG(l, i, MATMUL_NN, b, lower_weight(l, piece, o, false), MARK_READ);
    struct mat x = lower_kept(l, piece, o->in[0]);
    mark = lower_contribution(l, piece, o->weight);
    i = lower_insn(l, OP_MATMUL_TN);
    ARG(l, i, MATMUL_TN, c, lower_weight(l, piece, o, true), mark);
    ARG(l, i, MATMUL_TN, a, dlogits, MARK_READ);
    ARG(l, i, MATMUL_TN, b, x, MARK_READ);
    if (!m->linear_bias)
        return;
    mark = lower_contribution(l, piece, o->bias);
    i = lower_insn(l, OP_BIAS_W);
    ARG(l, i, BIAS_W, db, lower_vector(l, piece, o, 0, true), mark);
    ARG(l, i, BIAS_W, dy, dlogits, MARK_READ);
}
