/* Experts: rows to the experts and back, and the experts' matrix products.
 *
 * Every rank routes its own token rows.  The chosen rows are arranged in one block per expert-parallel rank, expert
 * by expert, with counts.  An all-to-all of rows and counts over the expert group gives every rank one block per
 * member, all for its own experts, and grouped products run over the rows that the counts give.  The way back is the
 * same all-to-all, then a weighted sum per token (Lepikhin et al. 2021, section 3; without dropping as in Gale et
 * al. 2023).  In the backward pass it overlaps with the products that compute weight gradients.  A block has memory
 * for as many rows as one rank can send at most, unless the decision limits it; a step in which a limited block
 * overflows is not taken.
 *
 * Where the expert-parallel ranks are spread over nodes (decision.h, ep_nodes), a token's row travels once to each
 * node that holds any of its experts, to the rank with the sender's number there, and is copied from there; the rows
 * that experts of a node compute are weighted and summed there, and one row returns (DeepSeek-AI 2024, arXiv
 * 2412.19437, section 3.2.2).  This applies the same scheme twice: ARRANGE_ONCE, DISPATCH and COMBINE with nodes in
 * place of experts; and within the node, all of the above, with the rows that arrived in place of tokens, and with
 * their choices, which travel, too.
 *
 * Kept for the backward pass: the rows that arrived, and both outputs of the first products.  A choice's weight
 * multiplies the output, so it may as well multiply the activation; the backward pass does so, and the weight's
 * gradient needs only activation and gradient, at the expert.  Shapes per rank: x [t, h], k choices, m rows in
 * blocks, w = the experts' width. */

#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"
#include "compiler/lower/operators.h"
#include "compiler/lower/step.h"

#include <math.h>

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

static bool keeps_eight(const struct lower *l)
{
    return l->job->train.fp8_kept && !l->evaluation;
}

/* shape of what matrix products and gated activations read in the backward pass */
static struct aux_shape kept_shape(const struct lower *l, uint32_t rows, uint32_t cols, uint32_t parts)
{
    struct mat words = lower_words((struct mat){.cols = cols}, parts);
    return keeps_eight(l) ? (struct aux_shape){words.dtype, rows, words.cols}
                          : (struct aux_shape){l->ctype, rows, cols};
}

struct aux_shape lower_moe_shape(const struct lower *l, const struct opr *o, uint32_t k)
{
    const struct moe *m = o->moe;
    struct expert_rows r = lower_expert_rows(l, m);
    uint32_t rows = r.blocks * l->d->etp * r.block, w = (uint32_t)m->expert.width / l->d->etp,
             h = (uint32_t)l->job->model.width;
    struct aux_shape counts = {DTYPE_I32, m->experts, 1}, came = {DTYPE_I32, r.nodes * r.node, m->active};
    const struct aux_shape router[] = {{DTYPE_F32, l->local, m->experts}, {DTYPE_I32, l->local, m->active},
                                       {DTYPE_F32, l->local, m->active},  {DTYPE_I32, l->local, m->active},
                                       over_nodes(l) ? came : counts,     {DTYPE_F64, l->d->microbatch, m->experts}};
    uint32_t parts = gated(&m->expert) ? 2 : 1;
    const struct aux_shape experts[] = {kept_shape(l, rows, h, 1),
                                        kept_shape(l, rows, parts * w, parts),
                                        kept_shape(l, rows, w, 1),
                                        {DTYPE_I32, r.blocks * l->d->etp * r.experts, 1},
                                        came,
                                        {DTYPE_F32, came.rows, came.cols}};
    return o->kind == OPR_ROUTER ? router[k] : experts[k];
}

/* ---- rows to the experts and back ---- */

/* Buffers for rows as they are sent, and for those that the experts receive, which are etp times as many. */
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

/* The queue of exchanges.  Of two overlapping actions one runs attention during the exchanges of the other; where
 * attention transfers keys, values or sequence rows, too, those must not queue behind the exchanges. */
static enum queue exchange_queue(const struct lower *l)
{
    bool others = l->d->cp > 1 || l->sp;
    return others && !l->evaluation && decision_exchanges_apart(l->job, l->d) ? QUEUE_DP : QUEUE_TP;
}

/* mask of the expert-parallel ranks that blocks go to; of one node, where rows go through nodes */
static uint32_t spread_over(const struct lower *l)
{
    return l->mesh.dim[over_nodes(l) ? MESH_EP_NEAR : MESH_EP];
}

/* The queue of exchanges between nodes, which use the network, and within a node, which use its links: with a queue
 * each, those of two overlapping actions can proceed at the same time. */
static enum queue far_queue(const struct lower *l)
{
    if (decision_rows_turn(l->job, l->d))
        return QUEUE_COMPUTE;
    return over_nodes(l) && !l->evaluation && decision_exchanges_apart(l->job, l->d) ? QUEUE_DP : QUEUE_TP;
}

static enum queue near_queue(const struct lower *l)
{
    if (decision_rows_turn(l->job, l->d))
        return QUEUE_COMPUTE;
    return over_nodes(l) ? QUEUE_TP : exchange_queue(l);
}

/* Sends blocks x, one per expert-parallel rank, to those ranks (y), and then to all that share an expert over etp.
 * For rows or counts. */
static void exchange(struct lower *l, struct mat x, struct mat y, const char *name)
{
    uint32_t ep = spread_over(l), etp = l->mesh.dim[MESH_ETP];
    struct mat part = ep && etp ? lower_temp(l, name, x.dtype, x.rows, x.cols) : ep ? y : x;
    if (ep)
        lower_collective(l, OP_ALL_TO_ALL, near_queue(l), ep, x, part);
    if (etp)
        lower_collective(l, OP_ALL_GATHER, near_queue(l), etp, part, y);
}

/* The way back: sums over etp into each rank's own rows, then returns them. */
static void exchange_back(struct lower *l, struct mat x, struct mat y, const char *name)
{
    uint32_t ep = spread_over(l), etp = l->mesh.dim[MESH_ETP];
    struct mat part = ep && etp ? lower_temp(l, name, y.dtype, y.rows, y.cols) : etp ? y : x;
    if (etp)
        lower_collective(l, OP_REDUCE_SCATTER, near_queue(l), etp, x, part);
    if (ep)
        lower_collective(l, OP_ALL_TO_ALL, near_queue(l), ep, part, y);
}

/* Token rows, or their gradients, as they travel: in 8 bits where the job says so, quantised once by the rank that
 * has the token. */
static struct mat outbound(struct lower *l, struct mat x)
{
    if (!l->job->train.fp8_sent)
        return x;
    struct mat words = lower_words(x, 1), y = lower_temp(l, "outbound", DTYPE_I32, words.rows, words.cols);
    lower_quantize(l, x, y, 1);
    return y;
}

static bool exchanges(const struct lower *l)
{
    return l->mesh.dim[MESH_EP] || l->mesh.dim[MESH_ETP];
}

/* Sends x, or the choices' weights, to the rows y of their experts. */
static void dispatch(struct lower *l, const struct moe *m, struct mat x, struct mat place, struct mat weight,
                     struct mat y)
{
    struct mat sent = exchanges(l) ? sent_temp(l, "sent", m, y.dtype, y.cols) : y;
    EMIT(l, DISPATCH, .y = sent, .x = x, .place = place, .weight = weight);
    if (exchanges(l))
        exchange(l, sent, y, "came");
}

/* The same for token rows, which are expanded into y again; words: where they are kept in 8 bits, or none. */
static void dispatch_rows(struct lower *l, const struct moe *m, struct mat x, struct mat place, struct mat y,
                          struct mat words)
{
    bool sent = l->job->train.fp8_sent, kept = words.buffer != NONE;
    struct mat came = !sent ? y : kept ? words : lower_temp(l, "inbound", DTYPE_I32, y.rows, x.cols);
    dispatch(l, m, x, place, mat_none(), came);
    if (sent)
        lower_dequantize(l, came, y, 1);
    else if (kept)
        lower_quantize(l, y, words, 1);
}

static void combine(struct lower *l, struct mat x, struct mat place, struct mat weight, struct mat y, enum mark mark)
{
    EMIT(l, COMBINE, .y = mat_by(y, mark), .x = x, .place = place, .weight = weight);
}

/* ---- experts ---- */

struct experts {
    const struct opr *o;
    const struct moe *m;
    uint32_t router; /* index of the router's operator */
    struct mat counts;
    /* of the rows that are sent to expert-parallel ranks: tokens, or the rows that arrived for the node; */
    struct mat place, weight;
    struct mat home; /* where rows go through nodes: of the tokens themselves */
    struct expert_rows rows;
};

static struct experts open_experts(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct piece *pc = &l->pieces[piece];
    struct experts e = {.o = &pc->e->oprs[opr], .m = pc->e->oprs[opr].moe};
    while (pc->e->oprs[e.router].out != e.o->in[1])
        e.router++;
    e.rows = lower_expert_rows(l, e.m);
    e.counts = lower_aux(l, piece, exchanges(l) ? opr : e.router, exchanges(l) ? EXPERTS_COUNTS : ROUTER_COUNTS);
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

/* Sends a row of each token to every node that holds one of its experts: y. */
static void carry(struct lower *l, const struct experts *e, struct mat x, const char *name, struct mat y)
{
    struct mat sent = node_temp(l, e, name, x);
    EMIT(l, DISPATCH, .y = sent, .x = x, .place = e->home, .weight = mat_none());
    lower_collective(l, OP_ALL_TO_ALL, far_queue(l), l->mesh.dim[MESH_EP_FAR], sent, y);
}

/* Assigns the rows that arrived for the node to places among its experts' rows; returns the counts of these. */
static struct mat arrange_node(struct lower *l, const struct experts *e, struct mat chosen)
{
    struct mat came = node_temp(l, e, "farchosen", chosen);
    struct mat counts = lower_temp(l, "nodecounts", DTYPE_I32, e->rows.blocks * e->rows.experts, 1);
    lower_collective(l, OP_ALL_TO_ALL, far_queue(l), l->mesh.dim[MESH_EP_FAR], chosen, came);
    EMIT(l, ARRANGE, .place = e->place, .counts = counts,
         .need = e->rows.bounded && !l->recomputing ? lower_metric(l, METRIC_NEED, 2) : mat_none(), .index = came,
         .experts = e->rows.blocks * e->rows.experts, .blocks = e->rows.blocks, .rows = e->rows.block, .capacity = 0,
         .sequence = lower_sequence(l), .start = bind_at(0), .tokens = l->local);
    return counts;
}

/* c = a b' + bias, with each row's expert's b */
static void grouped_nt(struct lower *l, const struct experts *e, struct target c, struct mat a, struct mat b,
                       struct mat bias, int64_t fp8)
{
    EMIT(l, GROUPED_NT, .c = c, .a = a, .b = b, .counts = e->counts, .bias = bias, .experts = e->rows.experts,
         .blocks = e->rows.blocks * l->d->etp, .fp8 = fp8);
}

/* c = a b */
static void grouped_nn(struct lower *l, const struct experts *e, struct target c, struct mat a, struct mat b)
{
    EMIT(l, GROUPED_NN, .c = c, .a = a, .b = b, .counts = e->counts, .experts = e->rows.experts,
         .blocks = e->rows.blocks * l->d->etp, .fp8 = lower_fp8(l));
}

/* c = a' b over each expert's rows */
static void grouped_tn(struct lower *l, const struct experts *e, struct target c, struct mat a, struct mat b)
{
    EMIT(l, GROUPED_TN, .c = c, .a = a, .b = b, .counts = e->counts, .experts = e->rows.experts,
         .blocks = e->rows.blocks * l->d->etp, .fp8 = lower_fp8(l));
}

/* c = a b' + the k-th bias, if experts have biases */
static void project(struct lower *l, uint32_t piece, const struct experts *e, uint32_t k, struct mat c, struct mat a)
{
    struct mat b = lower_one_weight(l, piece, e->o, k, false);
    grouped_nt(l, e, mat_write(c), a, b, e->o->nbiases ? lower_vector(l, piece, e->o, k, false) : mat_none(),
               lower_fp8(l));
}

static void bias_gradient(struct lower *l, uint32_t piece, const struct experts *e, uint32_t k, struct mat dy,
                          struct mat weight, enum mark mark)
{
    EMIT(l, GROUPED_BIAS_W, .db = mat_by(lower_vector(l, piece, e->o, k, true), mark), .dy = dy, .weight = weight,
         .counts = e->counts, .experts = e->rows.experts, .blocks = e->rows.blocks * l->d->etp);
}

/* A row's weight also multiplies the output's bias; what that adds to the weight's gradient is a product with one
 * column. */
static void bias_weights_back(struct lower *l, uint32_t piece, const struct experts *e, struct mat dback,
                              struct mat drow)
{
    grouped_nt(l, e, mat_add(drow), dback, lower_vector(l, piece, e->o, e->o->nbiases - 1, false), mat_none(), 0);
}

/* the k-th of the up-projections, which are side by side */
static struct mat projection(const struct experts *e, struct mat up, uint32_t k)
{
    uint32_t w = up.cols / (e->o->nweights - 1);
    return mat_columns(up, k * w, w);
}

/* Sends token rows and counts of choices to the experts; words: where the rows are kept in 8 bits, or none.  Counts
 * go first, since the products need them, too, and after the rows they might have to wait for another microbatch's
 * transfers. */
static void send_rows(struct lower *l, uint32_t piece, const struct experts *e, struct mat x, struct mat rows,
                      struct mat words)
{
    struct mat counts = lower_aux(l, piece, e->router, ROUTER_COUNTS);
    if (over_nodes(l))
        counts = arrange_node(l, e, counts);
    if (exchanges(l))
        exchange(l, counts, e->counts, "counts");
    x = outbound(l, x);
    if (over_nodes(l)) {
        struct mat came = node_temp(l, e, "farcame", x);
        carry(l, e, lower_aux(l, piece, e->router, ROUTER_WEIGHT), "farweights", e->weight);
        carry(l, e, x, "farsent", came);
        x = came;
    }
    dispatch_rows(l, e->m, x, e->place, rows, words);
}

/* Takes rows that returned from expert-parallel ranks; where rows go through nodes, their sums return to the tokens'
 * ranks.  weight: of choices, or none. */
static struct mat send_sums(struct lower *l, const struct experts *e, struct mat back, struct mat weight)
{
    if (!over_nodes(l))
        return back;
    struct mat sum = node_temp(l, e, "nodesums", back), came = node_temp(l, e, "farback", back);
    combine(l, back, e->place, weight, sum, MARK_WRITE);
    lower_collective(l, OP_ALL_TO_ALL, far_queue(l), l->mesh.dim[MESH_EP_FAR], sum, came);
    return came;
}

/* Sums for each token what has returned that way. */
static void sum_rows(struct lower *l, const struct experts *e, struct mat came, struct mat weight, struct mat y,
                     enum mark mark)
{
    combine(l, came, e->home, over_nodes(l) ? mat_none() : weight, y, mark);
}

/* What matrix products and gated activations of the backward pass read, as the forward pass makes it: in the buffer
 * where it is kept, or in a temporary from which 8-bit words are made. */
static struct mat made(struct lower *l, uint32_t piece, const struct experts *e, uint32_t opr, uint32_t k,
                       const char *name, uint32_t cols)
{
    return keeps_eight(l) ? rows_temp(l, name, e->m, cols) : lower_aux(l, piece, opr, k);
}

/* where its words go; none: it is recomputed before they are read */
static struct mat words_of(struct lower *l, uint32_t piece, uint32_t opr, uint32_t k)
{
    bool read = l->recomputing || l->pieces[piece].aux[opr][k] != NONE;
    return keeps_eight(l) && read ? lower_aux(l, piece, opr, k) : mat_none();
}

static void keep(struct lower *l, uint32_t piece, uint32_t opr, uint32_t k, struct mat x, uint32_t parts)
{
    struct mat words = words_of(l, piece, opr, k);
    if (words.buffer != NONE)
        lower_quantize(l, x, words, parts);
}

/* The same as the backward pass reads it. */
static struct mat kept(struct lower *l, uint32_t piece, const struct experts *e, uint32_t opr, uint32_t k,
                       const char *name, uint32_t cols, uint32_t parts)
{
    struct mat x = made(l, piece, e, opr, k, name, cols);
    if (keeps_eight(l))
        lower_dequantize(l, lower_aux(l, piece, opr, k), x, parts);
    return x;
}

void lower_experts(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct experts e = open_experts(l, piece, opr);
    struct mat x = lower_value(l, piece, e.o->in[0]);
    uint32_t w = (uint32_t)e.m->expert.width / l->d->etp, down = e.o->nweights - 1;
    struct mat rows = made(l, piece, &e, opr, EXPERTS_ROWS, "rows", x.cols),
               up = made(l, piece, &e, opr, EXPERTS_UP, "ups", down * w);
    struct mat hidden = made(l, piece, &e, opr, EXPERTS_HIDDEN, "acts", w),
               back = sent_temp(l, "back", e.m, l->ctype, x.cols);
    struct mat out = exchanges(l) ? rows_temp(l, "outs", e.m, x.cols) : back;
    if (l->recomputing && l->pieces[piece].aux[opr][EXPERTS_UP] != NONE) { /* everything else was kept */
        lower_activation(l, &e.m->expert, kept(l, piece, &e, opr, EXPERTS_UP, "ups", down * w, down), hidden);
        keep(l, piece, opr, EXPERTS_HIDDEN, hidden, 1);
        return;
    }
    send_rows(l, piece, &e, x, rows, words_of(l, piece, opr, EXPERTS_ROWS));
    for (uint32_t k = 0; k < down; k++)
        project(l, piece, &e, k, projection(&e, up, k), rows);
    lower_activation(l, &e.m->expert, up, hidden);
    keep(l, piece, opr, EXPERTS_UP, up, down);
    keep(l, piece, opr, EXPERTS_HIDDEN, hidden, 1);
    if (l->recomputing && l->pieces[piece].unread[opr])
        return;
    project(l, piece, &e, down, out, hidden);
    if (exchanges(l))
        exchange_back(l, out, back, "summed");
    struct mat y = lower_value(l, piece, e.o->out);
    sum_rows(l, &e, send_sums(l, &e, back, e.weight), e.weight, y, MARK_WRITE);
}

/* Gradients of the choices' weights, from those of the rows' weights, on their way back: small, but perhaps queued
 * behind large transfers of another microbatch.  Only the router needs them, so nothing waits for them before
 * everything else of the experts is done. */
struct weights_back {
    struct mat home, there, came, dweight;
};

static struct weights_back send_weights(struct lower *l, const struct experts *e, struct mat drow)
{
    struct weights_back w = {.home = drow, .dweight = lower_temp(l, "dweight", DTYPE_F32, l->local, e->m->active)};
    w.there = over_nodes(l) ? node_temp(l, e, "nodedweight", w.dweight) : w.dweight;
    if (exchanges(l)) {
        w.home = sent_temp(l, "dwsent", e->m, DTYPE_F32, 1);
        exchange_back(l, drow, w.home, "dwsummed");
    }
    return w;
}

/* Called after the other kernels that the rows' transfers wait for. */
static void gather_weights(struct lower *l, const struct experts *e, struct weights_back *w)
{
    EMIT(l, COMBINE_W, .dweight = w->there, .x = w->home, .place = e->place);
    if (!over_nodes(l))
        return;
    w->came = node_temp(l, e, "fardweight", w->there);
    lower_collective(l, OP_ALL_TO_ALL, far_queue(l), l->mesh.dim[MESH_EP_FAR], w->there, w->came);
}

static void sum_weights(struct lower *l, const struct experts *e, const struct weights_back *w)
{
    if (over_nodes(l)) /* in a token's row the columns of choices on other nodes are 0 */
        combine(l, w->came, e->home, mat_none(), w->dweight, MARK_WRITE);
}

/* gradients of rows and of the products' outputs; weights of rows */
struct rows_back {
    struct mat dback, weighted, dup, weight;
    enum mark mark, bias_mark;
};

/* gradients of the weights of the down-projection; of the up-projections */
static void weigh_down(struct lower *l, uint32_t piece, const struct experts *e, const struct rows_back *x)
{
    uint32_t down = e->o->nweights - 1;
    grouped_tn(l, e, mat_by(lower_one_weight(l, piece, e->o, down, true), x->mark), x->dback, x->weighted);
    if (e->o->nbiases)
        bias_gradient(l, piece, e, down, x->dback, x->weight, x->bias_mark);
}

static void weigh_up(struct lower *l, uint32_t piece, uint32_t opr, const struct experts *e, const struct rows_back *x)
{
    struct mat rows = kept(l, piece, e, opr, EXPERTS_ROWS, "rows", x->dback.cols, 1);
    for (uint32_t k = 0; k + 1 < e->o->nweights; k++)
        grouped_tn(l, e, mat_by(lower_one_weight(l, piece, e->o, k, true), x->mark), projection(e, x->dup, k), rows);
    for (uint32_t k = 0; e->o->nbiases && k + 1 < e->o->nweights; k++)
        bias_gradient(l, piece, e, k, projection(e, x->dup, k), mat_none(), x->bias_mark);
}

/* Returns the rows' gradients to the tokens' ranks, overlapped with the products for weight gradients.  Where rows
 * go through nodes, those of the up-projections overlap with the way between nodes, which is the longer one. */
static void bring_rows(struct lower *l, uint32_t piece, uint32_t opr, const struct experts *e, struct mat drows,
                       struct weights_back *choices, struct rows_back *x)
{
    enum mark mark;
    struct mat dx = lower_gradient(l, piece, e->o->in[0], &mark), back = drows;
    bool away = exchanges(l);
    if (away) {
        back = sent_temp(l, "dsent", e->m, l->ctype, drows.cols);
        exchange_back(l, drows, back, "summed");
    } else {
        sum_rows(l, e, drows, mat_none(), dx, mark);
    }
    x->mark = lower_contribution(l, piece, e->o->weight);
    x->bias_mark = e->o->nbiases ? lower_contribution(l, piece, e->o->bias) : x->mark;
    weigh_down(l, piece, e, x);
    struct mat came = send_sums(l, e, back, mat_none());
    weigh_up(l, piece, opr, e, x);
    if (!over_nodes(l))
        gather_weights(l, e, choices);
    if (away)
        sum_rows(l, e, came, mat_none(), dx, mark);
    sum_weights(l, e, choices);
}

void lower_experts_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct experts e = open_experts(l, piece, opr);
    uint32_t w = (uint32_t)e.m->expert.width / l->d->etp, down = e.o->nweights - 1;
    struct mat weight = row_numbers(l, "weights", e.m), dy = l->pieces[piece].gradient[e.o->out];
    uint32_t h = dy.cols;
    struct mat dback = rows_temp(l, "dback", e.m, h), dsum = rows_temp(l, "dsums", e.m, w),
               dhidden = rows_temp(l, "dhidden", e.m, w);
    struct mat weighted = rows_temp(l, "weighted", e.m, w), dup = rows_temp(l, "dups", e.m, down * w);
    struct mat drows = rows_temp(l, "drows", e.m, h), drow = row_numbers(l, "dwrows", e.m);
    dispatch(l, e.m, mat_none(), e.place, e.weight, weight);
    dy = outbound(l, dy);
    if (over_nodes(l)) {
        struct mat came = node_temp(l, &e, "farcame", dy);
        carry(l, &e, dy, "farsent", came);
        dy = came;
    }
    dispatch_rows(l, e.m, dy, e.place, dback, mat_none());
    grouped_nn(l, &e, mat_write(dsum), dback, lower_one_weight(l, piece, e.o, down, false));
    struct mat hidden = kept(l, piece, &e, opr, EXPERTS_HIDDEN, "acts", w, 1);
    EMIT(l, WEIGH_I, .dx = dhidden, .y = weighted, .dweight = drow, .dy = dsum, .x = hidden, .weight = weight);
    if (e.o->nbiases)
        bias_weights_back(l, piece, &e, dback, drow);
    struct weights_back weights = send_weights(l, &e, drow);
    if (over_nodes(l)) /* they have two ways to travel */
        gather_weights(l, &e, &weights);
    lower_activation_back(l, &e.m->expert, kept(l, piece, &e, opr, EXPERTS_UP, "ups", down * w, down), dup, dhidden);
    for (uint32_t k = 0; k < down; k++)
        grouped_nn(l, &e, k ? mat_add(drows) : mat_write(drows), projection(&e, dup, k),
                   lower_one_weight(l, piece, e.o, k, false));
    struct rows_back back = {.dback = dback, .weighted = weighted, .dup = dup, .weight = weight};
    bring_rows(l, piece, opr, &e, drows, &weights, &back);
}
