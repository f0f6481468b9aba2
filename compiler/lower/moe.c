/* Experts: router, rows to the experts and back, the experts' products.
 *
 * Every rank routes its own token rows.  The chosen rows lie in one block per expert rank, expert after
 * expert, with counts; an all-to-all of rows and counts over the expert group gives every rank one block per
 * member, all for its own experts, and products run over rows with counts.  The way back is the same
 * all-to-all, then a weighted sum per token (Lepikhin et al. 2021, section 3; without dropping as in Gale et
 * al. 2023).  A block holds so many rows as one rank can send at most, unless the decision bounds it: then a
 * step that lacks room is not taken.
 *
 * Where the expert ranks are spread over nodes (decision.h, ep_nodes), a token's row travels once to each node that has any of
 * its experts, to the rank with the own number there, and is spread from there; rows that experts of a node make are
 * weighed and summed there, and one comes back (DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.2).  That is the same twice:
 * ARRANGE_ONCE, DISPATCH and COMBINE with nodes for experts, and between them, with the rows that came for tokens and with their
 * choices, which came too, everything as above.
 *
 * Kept for the backward pass: the rows that came and both outputs of the first products.  A choice's weight is a
 * factor of its row's activation as well as of what comes back, so backward multiplies there, and its gradient takes no
 * more than activation and gradient at the expert. Shapes per rank: x [t, h], k choices, m rows in blocks, w = the experts' width. */

#include "compiler/lower/build.h"

#include <math.h>

enum { ROUTER_SCORE, ROUTER_INDEX, ROUTER_WEIGHT, ROUTER_PLACE, ROUTER_COUNTS, ROUTER_LOAD };
enum { ROUTER_CHOSEN = ROUTER_COUNTS }; /* over nodes: what each of the sent rows has chosen there */
enum { EXPERTS_ROWS, EXPERTS_UP, EXPERTS_HIDDEN = EXPERTS_ACT, EXPERTS_COUNTS, EXPERTS_PLACE, EXPERTS_WEIGHT };

static bool gated(const struct ffn *f)
{
    return f->act == ACT_SWIGLU || f->act == ACT_GEGLU;
}

static bool over_nodes(const struct lower *l)
{
    return l->d->ep_nodes > 1;
}

struct expert_rows lower_expert_rows(const struct lower *l, const struct moe *m)
{
    return expert_rows_new(m, l->d->ep, over_nodes(l) ? l->d->ep_nodes : 1, l->d->room, l->local, lower_sequence(l));
}

uint32_t lower_experts_aux(const struct lower *l)
{
    return over_nodes(l) ? EXPERTS_WEIGHT + 1 : EXPERTS_COUNTS + 1;
}

uint32_t lower_router_aux(const struct moe *m)
{
    return m->balance > 0 ? ROUTER_LOAD + 1 : ROUTER_LOAD;
}

struct aux_shape lower_moe_shape(const struct lower *l, const struct opr *o, uint32_t k)
{
    const struct moe *m = o->moe;
    struct expert_rows r = lower_expert_rows(l, m);
    uint32_t rows = r.blocks * l->d->etp * r.block, w = (uint32_t)m->expert.width / l->d->etp, h = (uint32_t)l->job->model.width;
    struct aux_shape counts = {DTYPE_I32, m->experts, 1}, came = {DTYPE_I32, r.nodes * r.node, m->active};
    const struct aux_shape router[] = {
        {DTYPE_F32, l->local, m->experts}, {DTYPE_I32, l->local, m->active},
        {DTYPE_F32, l->local, m->active},  {DTYPE_I32, l->local, m->active},
        over_nodes(l) ? came : counts,     {DTYPE_F64, l->d->microbatch, m->experts}};
    const struct aux_shape experts[] = {{l->ctype, rows, h},
                                        {l->ctype, rows, gated(&m->expert) ? 2 * w : w},
                                        {l->ctype, rows, w},
                                        {DTYPE_I32, r.blocks * l->d->etp * r.experts, 1},
                                        came,
                                        {DTYPE_F32, came.rows, came.cols}};
    return o->kind == OPR_ROUTER ? router[k] : experts[k];
}

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
    (over_nodes(l) ? arrange_once : arrange)(l, piece, opr);
}

void lower_router_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    const struct moe *m = o->moe;
    struct mat dlogits = lower_temp(l, "dlogits", l->ctype, l->local, m->experts),
               x = lower_value(l, piece, o->in[0]);
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

/* ---- rows to the experts and back ---- */

/* Room for rows as they are sent, and for those that experts get, which are etp times as many. */
static struct mat sent_temp(struct lower *l, const char *name, const struct moe *m, enum dtype dtype, uint32_t cols)
{
    struct expert_rows r = lower_expert_rows(l, m);
    return lower_temp(l, name, dtype, r.blocks * r.block, cols);
}

static struct mat rows_temp(struct lower *l, const char *name, const struct moe *m, uint32_t cols)
{
    struct expert_rows r = lower_expert_rows(l, m);
    return lower_temp(l, name, l->ctype, r.blocks * l->d->etp * r.block, cols);
}

static struct mat row_numbers(struct lower *l, const char *name, const struct moe *m)
{
    struct expert_rows r = lower_expert_rows(l, m);
    return lower_temp(l, name, DTYPE_F32, r.blocks * l->d->etp * r.block, 1);
}

/* Two actions that run together attend under the exchanges of each other: where keys, values or sequences travel too, they
 * must not wait behind these. */
static enum queue exchange_queue(const struct lower *l)
{
    bool others = l->d->cp > 1 || l->sp;
    return others && !l->evaluation && decision_exchanges_apart(l->job, l->d) ? QUEUE_DP : QUEUE_TP;
}

/* the expert ranks, of one node where a node's rows came together */
static uint32_t spread_over(const struct lower *l)
{
    return l->mesh.dim[over_nodes(l) ? MESH_EP_NEAR : MESH_EP];
}

/* Between nodes rows take the network, within them links: of two actions that run together one's may travel beside the other's. */
static enum queue far_queue(const struct lower *l)
{
    return over_nodes(l) && !l->evaluation && decision_exchanges_apart(l->job, l->d) ? QUEUE_DP : QUEUE_TP;
}

static enum queue near_queue(const struct lower *l)
{
    return over_nodes(l) ? QUEUE_TP : exchange_queue(l);
}

/* blocks x, one per expert rank, to these ranks: y; then to all that share an expert.  Rows, or counts. */
static void exchange(struct lower *l, struct mat x, struct mat y, const char *name)
{
    uint32_t ep = spread_over(l), etp = l->mesh.dim[MESH_ETP];
    struct mat part = ep && etp ? lower_temp(l, name, x.dtype, x.rows, x.cols) : ep ? y : x;
    if (ep)
        lower_collective(l, OP_ALL_TO_ALL, near_queue(l), ep, x, part);
    if (etp)
        lower_collective(l, OP_ALL_GATHER, near_queue(l), etp, part, y);
}

/* the way back: partial sums over etp into the own rows, then home */
static void exchange_back(struct lower *l, struct mat x, struct mat y, const char *name)
{
    uint32_t ep = spread_over(l), etp = l->mesh.dim[MESH_ETP];
    struct mat part = ep && etp ? lower_temp(l, name, y.dtype, y.rows, y.cols) : etp ? y : x;
    if (etp)
        lower_collective(l, OP_REDUCE_SCATTER, near_queue(l), etp, x, part);
    if (ep)
        lower_collective(l, OP_ALL_TO_ALL, near_queue(l), ep, part, y);
}

/* Tokens' rows, or their gradients, as they travel: in 8 bits where the job says so, rounded once, by whoever has the token. */
static struct mat outbound(struct lower *l, struct mat x)
{
    if (!l->job->train.fp8_sent)
        return x;
    struct mat y = lower_temp(l, "outbound", DTYPE_I32, x.rows, (uint32_t)isa_eight_words(x.cols));
    uint32_t i = lower_insn(l, OP_QUANTIZE);
    ARG(l, i, QUANTIZE, y, y, MARK_WRITE);
    ARG(l, i, QUANTIZE, x, x, MARK_READ);
    return y;
}

static bool exchanges(const struct lower *l)
{
    return l->mesh.dim[MESH_EP] || l->mesh.dim[MESH_ETP];
}

/* x, or the choices' weights, to their experts' rows y */
static void dispatch(struct lower *l, const struct moe *m, struct mat x, struct mat place, struct mat weight,
                     struct mat y)
{
    struct mat sent = exchanges(l) ? sent_temp(l, "sent", m, y.dtype, y.cols) : y;
    uint32_t i = lower_insn(l, OP_DISPATCH);
    ARG(l, i, DISPATCH, y, sent, MARK_WRITE);
    ARG(l, i, DISPATCH, x, x, MARK_READ);
    ARG(l, i, DISPATCH, place, place, MARK_READ);
    ARG(l, i, DISPATCH, weight, weight, MARK_READ);
    if (exchanges(l))
        exchange(l, sent, y, "came");
}

/* the same of tokens' rows, and as numbers again: y */
static void dispatch_rows(struct lower *l, const struct moe *m, struct mat x, struct mat place, struct mat y)
{
    bool eight = l->job->train.fp8_sent;
    struct mat came = eight ? lower_temp(l, "inbound", DTYPE_I32, y.rows, x.cols) : y;
    dispatch(l, m, x, place, no_mat(), came);
    if (!eight)
        return;
    uint32_t i = lower_insn(l, OP_DEQUANTIZE);
    ARG(l, i, DEQUANTIZE, y, y, MARK_WRITE);
    ARG(l, i, DEQUANTIZE, x, came, MARK_READ);
}

static void combine(struct lower *l, struct mat x, struct mat place, struct mat weight, struct mat y,
                    enum mark mark)
{
    uint32_t i = lower_insn(l, OP_COMBINE);
    ARG(l, i, COMBINE, y, y, mark);
    ARG(l, i, COMBINE, x, x, MARK_READ);
    ARG(l, i, COMBINE, place, place, MARK_READ);
    ARG(l, i, COMBINE, weight, weight, MARK_READ);
}

/* ---- experts ---- */

struct experts {
    const struct opr *o;
    const struct moe *m;
    uint32_t router; /* the operator that chose */
    struct mat counts;
    struct mat place, weight; /* of the rows that are sent to expert ranks: tokens, or what came for the node; */
    struct mat home;          /* over nodes: of the tokens themselves */
    struct expert_rows rows;
};

static struct experts open_experts(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct piece *pc = &l->pieces[piece];
    struct experts e = {.o = &pc->e->oprs[opr], .m = pc->e->oprs[opr].moe};
    while (pc->e->oprs[e.router].out != e.o->in[1])
        e.router++;
    e.rows = lower_expert_rows(l, e.m);
    e.counts =
        lower_aux(l, piece, exchanges(l) ? opr : e.router, exchanges(l) ? EXPERTS_COUNTS : ROUTER_COUNTS);
    e.home = lower_aux(l, piece, e.router, ROUTER_PLACE);
    e.place = over_nodes(l) ? lower_aux(l, piece, opr, EXPERTS_PLACE) : e.home;
    e.weight = over_nodes(l) ? lower_aux(l, piece, opr, EXPERTS_WEIGHT) : lower_aux(l, piece, e.router, ROUTER_WEIGHT);
    return e;
}

/* ---- rows between nodes ---- */

static struct mat node_temp(struct lower *l, const struct experts *e, const char *name, struct mat like)
{
    return lower_temp(l, name, like.dtype, e->rows.nodes * e->rows.node, like.cols);
}

/* a row of each token to every node that it has a choice on: y */
static void carry(struct lower *l, const struct experts *e, struct mat x, const char *name, struct mat y)
{
    struct mat sent = node_temp(l, e, name, x);
    uint32_t i = lower_insn(l, OP_DISPATCH);
    ARG(l, i, DISPATCH, y, sent, MARK_WRITE);
    ARG(l, i, DISPATCH, x, x, MARK_READ);
    ARG(l, i, DISPATCH, place, e->home, MARK_READ);
    ARG(l, i, DISPATCH, weight, no_mat(), MARK_READ);
    lower_collective(l, OP_ALL_TO_ALL, far_queue(l), l->mesh.dim[MESH_EP_FAR], sent, y);
}

/* what the nodes' experts make of a token: x comes home and is added up */
static void bring(struct lower *l, const struct experts *e, struct mat x, const char *name, struct mat y, enum mark mark)
{
    struct mat came = node_temp(l, e, name, x);
    lower_collective(l, OP_ALL_TO_ALL, far_queue(l), l->mesh.dim[MESH_EP_FAR], x, came);
    combine(l, came, e->home, no_mat(), y, mark);
}

/* places of what came for the node among its experts' rows; the counts of these */
static struct mat arrange_node(struct lower *l, const struct experts *e, struct mat chosen)
{
    struct mat came = node_temp(l, e, "farchosen", chosen);
    struct mat need = {l->metrics, NONE, METRIC_NEED * sizeof(double), 1, 2, 2, DTYPE_F64, NONE, 0};
    struct mat counts = lower_temp(l, "nodecounts", DTYPE_I32, e->rows.blocks * e->rows.experts, 1);
    lower_collective(l, OP_ALL_TO_ALL, far_queue(l), l->mesh.dim[MESH_EP_FAR], chosen, came);
    uint32_t i = lower_insn(l, OP_ARRANGE);
    ARG(l, i, ARRANGE, place, e->place, MARK_WRITE);
    ARG(l, i, ARRANGE, counts, counts, MARK_WRITE);
    if (e->rows.bounded && !l->recomputing)
        ARG(l, i, ARRANGE, need, need, MARK_UPDATE);
    ARG(l, i, ARRANGE, index, came, MARK_READ);
    ATTR_INT_SET(l, i, ARRANGE, experts, e->rows.blocks * e->rows.experts);
    ATTR_INT_SET(l, i, ARRANGE, blocks, e->rows.blocks);
    ATTR_INT_SET(l, i, ARRANGE, rows, e->rows.block);
    ATTR_INT_SET(l, i, ARRANGE, sequence, lower_sequence(l));
    ATTR_INT_SET(l, i, ARRANGE, tokens, l->local);
    return counts;
}

static void grouped(struct lower *l, const struct experts *e, enum op op, struct mat c, struct mat a,
                    struct mat b, enum mark mark)
{
    /* the three rows have the same operands, but for the bias, and attributes */
    uint32_t i = lower_insn(l, op);
    ARG(l, i, GROUPED_NT, c, c, mark);
    ARG(l, i, GROUPED_NT, a, a, MARK_READ);
    ARG(l, i, GROUPED_NT, b, b, MARK_READ);
    ARG(l, i, GROUPED_NT, counts, e->counts, MARK_READ);
    ATTR_INT_SET(l, i, GROUPED_NT, experts, e->rows.experts);
    ATTR_INT_SET(l, i, GROUPED_NT, blocks, e->rows.blocks * l->d->etp);
    ATTR_INT_SET(l, i, GROUPED_NT, fp8, lower_fp8(l));
}

/* c = a b' + the k-th bias, where there are biases */
static void project(struct lower *l, uint32_t piece, const struct experts *e, uint32_t k, struct mat c, struct mat a)
{
    grouped(l, e, OP_GROUPED_NT, c, a, lower_one_weight(l, piece, e->o, k, false), MARK_WRITE);
    if (e->o->nbiases)
        ARG(l, l->p->ninsns - 1, GROUPED_NT, bias, lower_vector(l, piece, e->o, k, false), MARK_READ);
}

static void bias_gradient(struct lower *l, uint32_t piece, const struct experts *e, uint32_t k, struct mat dy, struct mat weight,
                          enum mark mark)
{
    uint32_t i = lower_insn(l, OP_GROUPED_BIAS_W);
    ARG(l, i, GROUPED_BIAS_W, db, lower_vector(l, piece, e->o, k, true), mark);
    ARG(l, i, GROUPED_BIAS_W, dy, dy, MARK_READ);
    ARG(l, i, GROUPED_BIAS_W, weight, weight, MARK_READ);
    ARG(l, i, GROUPED_BIAS_W, counts, e->counts, MARK_READ);
    ATTR_INT_SET(l, i, GROUPED_BIAS_W, experts, e->rows.experts);
    ATTR_INT_SET(l, i, GROUPED_BIAS_W, blocks, e->rows.blocks * l->d->etp);
}

/* A row's weight is a factor of the output's bias, too: what that adds to its gradient is a product with one column. */
static void bias_weights_back(struct lower *l, uint32_t piece, const struct experts *e, struct mat dback, struct mat drow)
{
    grouped(l, e, OP_GROUPED_NT, drow, dback, lower_vector(l, piece, e->o, e->o->nbiases - 1, false), MARK_ADD);
    ATTR_INT_SET(l, l->p->ninsns - 1, GROUPED_NT, fp8, 0);
}

/* the k-th of the projections in, side by side */
static struct mat projection(const struct experts *e, struct mat up, uint32_t k)
{
    uint32_t w = up.cols / (e->o->nweights - 1);
    return mat_columns(up, k * w, w);
}

/* tokens' rows, and what they chose, to the experts: `rows` */
static void send_rows(struct lower *l, uint32_t piece, const struct experts *e, struct mat x, struct mat rows)
{
    struct mat counts = lower_aux(l, piece, e->router, ROUTER_COUNTS);
    x = outbound(l, x);
    if (over_nodes(l)) {
        struct mat came = node_temp(l, e, "farcame", x);
        counts = arrange_node(l, e, counts);
        carry(l, e, lower_aux(l, piece, e->router, ROUTER_WEIGHT), "farweights", e->weight);
        carry(l, e, x, "farsent", came);
        x = came;
    }
    dispatch_rows(l, e->m, x, e->place, rows);
    if (exchanges(l))
        exchange(l, counts, e->counts, "counts");
}

/* rows that came back from expert ranks to the sums y of tokens; weight: of choices, or none */
static void sum_rows(struct lower *l, const struct experts *e, struct mat back, struct mat weight, struct mat y, enum mark mark)
{
    if (!over_nodes(l)) {
        combine(l, back, e->place, weight, y, mark);
        return;
    }
    struct mat sum = node_temp(l, e, "nodesums", back);
    combine(l, back, e->place, weight, sum, MARK_WRITE);
    bring(l, e, sum, "farback", y, mark);
}

void lower_experts(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct experts e = open_experts(l, piece, opr);
    struct mat x = lower_value(l, piece, e.o->in[0]);
    struct mat rows = lower_aux(l, piece, opr, EXPERTS_ROWS), up = lower_aux(l, piece, opr, EXPERTS_UP);
    struct mat hidden = lower_aux(l, piece, opr, EXPERTS_HIDDEN), back = sent_temp(l, "back", e.m, l->ctype, x.cols);
    struct mat out = exchanges(l) ? rows_temp(l, "outs", e.m, x.cols) : back;
    if (l->recomputing && l->pieces[piece].aux[opr][EXPERTS_UP] != NONE) { /* all else was kept */
        lower_activation(l, &e.m->expert, up, hidden);
        return;
    }
    send_rows(l, piece, &e, x, rows);
    for (uint32_t k = 0; k + 1 < e.o->nweights; k++)
        project(l, piece, &e, k, projection(&e, up, k), rows);
    lower_activation(l, &e.m->expert, up, hidden);
    project(l, piece, &e, e.o->nweights - 1, out, hidden);
    if (exchanges(l))
        exchange_back(l, out, back, "summed");
    sum_rows(l, &e, back, e.weight, lower_value(l, piece, e.o->out), MARK_WRITE);
}

/* The gradients of the choices' weights, from those of the rows' weights. */
static void weights_back(struct lower *l, const struct experts *e, struct mat drow)
{
    struct mat home = drow, dweight = lower_temp(l, "dweight", DTYPE_F32, l->local, e->m->active);
    struct mat there = over_nodes(l) ? node_temp(l, e, "nodedweight", dweight) : dweight;
    if (exchanges(l)) {
        home = sent_temp(l, "dwsent", e->m, DTYPE_F32, 1);
        exchange_back(l, drow, home, "dwsummed");
    }
    uint32_t i = lower_insn(l, OP_COMBINE_W);
    ARG(l, i, COMBINE_W, dweight, there, MARK_WRITE);
    ARG(l, i, COMBINE_W, x, home, MARK_READ);
    ARG(l, i, COMBINE_W, place, e->place, MARK_READ);
    if (over_nodes(l)) /* of a token's row the columns of choices elsewhere are 0 */
        bring(l, e, there, "fardweight", dweight, MARK_WRITE);
}

void lower_experts_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct experts e = open_experts(l, piece, opr);
    struct mat rows = lower_aux(l, piece, opr, EXPERTS_ROWS), up = lower_aux(l, piece, opr, EXPERTS_UP);
    struct mat hidden = lower_aux(l, piece, opr, EXPERTS_HIDDEN), weight = row_numbers(l, "weights", e.m);
    struct mat dy = l->pieces[piece].gradient[e.o->out], dback = rows_temp(l, "dback", e.m, dy.cols);
    struct mat dsum = rows_temp(l, "dsums", e.m, hidden.cols), dhidden = rows_temp(l, "dhidden", e.m, hidden.cols);
    struct mat weighted = rows_temp(l, "weighted", e.m, hidden.cols), dup = rows_temp(l, "dups", e.m, up.cols);
    struct mat drows = rows_temp(l, "drows", e.m, rows.cols), dx_rows = drows, drow = row_numbers(l, "dwrows", e.m);
    uint32_t down = e.o->nweights - 1;
    dispatch(l, e.m, no_mat(), e.place, e.weight, weight);
    dy = outbound(l, dy);
    if (over_nodes(l)) {
        struct mat came = node_temp(l, &e, "farcame", dy);
        carry(l, &e, dy, "farsent", came);
        dy = came;
    }
    dispatch_rows(l, e.m, dy, e.place, dback);
    grouped(l, &e, OP_GROUPED_NN, dsum, dback, lower_one_weight(l, piece, e.o, down, false), MARK_WRITE);
    uint32_t i = lower_insn(l, OP_WEIGH_I);
    ARG(l, i, WEIGH_I, dx, dhidden, MARK_WRITE);
    ARG(l, i, WEIGH_I, y, weighted, MARK_WRITE);
    ARG(l, i, WEIGH_I, dweight, drow, MARK_WRITE);
    ARG(l, i, WEIGH_I, dy, dsum, MARK_READ);
    ARG(l, i, WEIGH_I, x, hidden, MARK_READ);
    ARG(l, i, WEIGH_I, weight, weight, MARK_READ);
    if (e.o->nbiases)
        bias_weights_back(l, piece, &e, dback, drow);
    weights_back(l, &e, drow);
    lower_activation_back(l, &e.m->expert, up, dup, dhidden);
    for (uint32_t k = 0; k < down; k++)
        grouped(l, &e, OP_GROUPED_NN, drows, projection(&e, dup, k),
                lower_one_weight(l, piece, e.o, k, false), k ? MARK_ADD : MARK_WRITE);
    enum mark mark;
    struct mat dx = lower_gradient(l, piece, e.o->in[0], &mark);
    if (exchanges(l)) {
        dx_rows = sent_temp(l, "dsent", e.m, l->ctype, rows.cols);
        exchange_back(l, drows, dx_rows, "summed");
    }
    sum_rows(l, &e, dx_rows, no_mat(), dx, mark);
    mark = lower_contribution(l, piece, e.o->weight);
    grouped(l, &e, OP_GROUPED_TN, lower_one_weight(l, piece, e.o, down, true), dback, weighted, mark);
    for (uint32_t k = 0; k < down; k++)
        grouped(l, &e, OP_GROUPED_TN, lower_one_weight(l, piece, e.o, k, true), projection(&e, dup, k), rows,
                mark);
    if (!e.o->nbiases)
        return;
    mark = lower_contribution(l, piece, e.o->bias);
    bias_gradient(l, piece, &e, down, dback, weight, mark);
    for (uint32_t k = 0; k < down; k++)
        bias_gradient(l, piece, &e, k, projection(&e, dup, k), no_mat(), mark);
}
