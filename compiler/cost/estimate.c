/* Step time of a decision in closed form.
 *
 * pipeline.c times the pipeline.  Data-parallel transfers hide behind the last backward pass (reductions) and the
 * first forward pass (gathers) of their rank, and behind the time that the rank waits for others there; those of the
 * last and of the first block stay exposed.  The optimizer streams its own shard; the slowest rank counts. */

#include "compiler/cost/cost_private.h"
#include "compiler/support/real.h"

#include <math.h>
#include <string.h>

static void add_block(const struct cost *c, struct cost_stage *st, const struct cost_block *b, double times)
{
    enum schedule_kind kind = c->decision->schedule;
    double apart = decision_exchanges_apart(c->job, c->decision) ? 1 : 0;
    double late_s = kind == SCHED_GPIPE || decision_pairs(kind) ? b->loss_late_s : 0;
    st->forward_s += times * b->forward_s;
    st->backward_s += times * (b->backward_s + late_s);
    st->own_forward_s += times * b->own_forward_s;
    st->own_backward_s += times * (b->own_backward_s + late_s);
    st->forward_idle_s += times * b->forward_idle_s;
    st->backward_idle_s += times * b->backward_idle_s;
    st->forward_lost_s += times * b->forward_lost_s;
    st->backward_lost_s += times * b->backward_lost_s;
    st->kept_s += times * b->kept_s;
    st->input_s += times * (b->input_s + late_s + b->input_comm_s - apart * b->apart_input_s);
    st->weight_s += times * (b->weight_s + b->weight_comm_s);
    st->forward_comm_s += times * (b->forward_comm_s - apart * b->apart_forward_s);
    st->backward_comm_s += times * (b->backward_comm_s - apart * b->apart_backward_s);
    st->forward_hidden_s += times * fmax(0, b->forward_hidden_s - apart * b->apart_forward_s);
    st->backward_hidden_s += times * fmax(0, b->backward_hidden_s - apart * b->apart_backward_s);
    st->matrices += times * (b->matrices + b->vectors_split + b->vectors_whole);
    st->experts += times * b->experts;
    st->blocks += times;
}

/* Adds the seconds of kernels that add a microbatch's weight gradients, made in half precision, to those of the
 * step: they read the former, and read and write the latter.  Products that add to fp32 gradients themselves
 * (Megatron-LM's fused accumulation) did so only outside ZeRO's optimizers: DeepSpeed adds with kernels, sharded or
 * not, and so did stacks that sum in half precision. */
static void add_gradients(const struct cost *c, struct cost_stage *st)
{
    if (c->profile->gradients_added < 0.5 || (c->decision->zero == 0 && c->device.gradient_bytes > 2))
        return;
    double shares = c->decision->zero >= 2 ? c->decision->shard : 1;
    double seconds = (2 + 2 * c->device.gradient_bytes) * (st->matrices + st->experts) / shares / c->device.bytes_s;
    st->backward_s += seconds;
    st->weight_s += seconds;
}

double cost_copied_table(const struct cost *c, const struct cost_shape *s)
{
    const struct decision *d = c->decision;
    const struct model *m = &c->job->model;
    return m->predict && !m->tied && !cost_ends_meet(d) ? s->embed.matrices : 0;
}

static bool empty(const struct cost_updated *x)
{
    return x->matrices + x->experts <= 0;
}

static void add_first(struct cost_stage *st, struct cost_updated x)
{
    if (!empty(&x) && empty(&st->first[1]))
        st->first[empty(&st->first[0]) ? 0 : 1] = x;
}

/* Buckets of matrices come piece by piece, and those of experts after a layer's others (compiler/lower/params.c). */
static void find_first(const struct cost *c, const struct cost_shape *s, const struct stage *st, struct cost_stage *sum)
{
    if (!(c->job->wishes.offload & OFFLOAD_OPTIMIZER))
        return;
    for (uint32_t i = 0; i < st->count + 2 && empty(&sum->first[1]); i++) {
        const struct cost_block *b = i == 0 ? &s->embed : i <= st->count ? cost_layer(s, st, i - 1) : &s->head;
        if ((i == 0 && !st->embed) || (i > st->count && !st->head))
            continue;
        add_first(sum, (struct cost_updated){.matrices = b->matrices - b->key_matrices - b->whole_matrices});
        add_first(sum, (struct cost_updated){.matrices = b->key_matrices});
        add_first(sum, (struct cost_updated){.matrices = b->whole_matrices});
        add_first(sum, (struct cost_updated){.experts = b->experts});
    }
}

struct cost_stage cost_sum_stage(const struct cost *c, const struct cost_shape *s, uint32_t stage)
{
    const struct decision *d = c->decision;
    const struct stage *st = &d->stages[stage];
    struct cost_stage sum = {0};
    for (uint32_t i = 0, run; i < st->count; i += run) {
        run = cost_run(s, st, i);
        add_block(c, &sum, cost_layer(s, st, i), run);
    }
    if (st->embed)
        add_block(c, &sum, &s->embed, 1);
    find_first(c, s, st, &sum);
    if (!st->head) {
        add_gradients(c, &sum);
        return sum;
    }
    struct cost_block head = s->head;
    if (c->job->model.tied && cost_stage_rank(d, 0) == cost_stage_rank(d, stage))
        head.matrices = 0;
    add_block(c, &sum, &head, 1);
    add_block(c, &sum, &s->predict, c->job->model.predict);
    sum.matrices += cost_copied_table(c, s);
    add_gradients(c, &sum);
    return sum;
}

/* Does a stage consist only of layers of one kind?  Then stages with as many layers, of which as many recompute,
 * have equal sums. */
static bool plain_stage(const struct cost_shape *s, const struct stage *st)
{
    return !st->embed && !st->head && st->count && s->run[st->first] >= st->count;
}

static bool same_stages(const struct cost_shape *s, const struct stage *x, const struct stage *y)
{
    return x->count == y->count && x->spared == y->spared && s->kind[x->first] == s->kind[y->first];
}

static void add_stage(struct cost_stage *rank, const struct cost_stage *st)
{
    rank->forward_s += st->forward_s;
    rank->backward_s += st->backward_s;
    rank->kept_s += st->kept_s;
    rank->input_s += st->input_s;
    rank->weight_s += st->weight_s;
    rank->forward_comm_s += st->forward_comm_s;
    rank->backward_comm_s += st->backward_comm_s;
    rank->forward_hidden_s += st->forward_hidden_s;
    rank->backward_hidden_s += st->backward_hidden_s;
    rank->matrices += st->matrices;
    rank->experts += st->experts;
    rank->blocks += st->blocks;
    add_first(rank, st->first[0]);
    add_first(rank, st->first[1]);
}

static double rank_f(const struct cost_stage *st)
{
    return st->forward_s + st->forward_comm_s;
}

static double rank_x(const struct cost_stage *st)
{
    return st->backward_s + st->backward_comm_s;
}

/* Seconds of a transfer between two stages.  Data that all ranks of a tensor-parallel group hold alike may be sent
 * in shards and gathered at the receiver. */
static double boundary_transfer_s(const struct cost *c, double bytes)
{
    const struct decision *d = c->decision;
    if (d->sp || d->tp < 2 || c->profile->boundary_split < 0.5)
        return cost_transfer_s(c, bytes);
    return cost_transfer_s(c, bytes / d->tp) + cost_collective_s(c, OP_ALL_GATHER, bytes, AXIS_BIT(AXIS_TP));
}

/* Seconds of a stage's backward pass before it needs the gradient of its output: its last layer's recomputation. */
static double stage_lead_s(const struct cost_shape *s, const struct stage *st)
{
    return st->head || !st->count ? 0 : cost_layer(s, st, st->count - 1)->again_s;
}

void cost_pipeline(const struct cost *c, const struct cost_shape *s, struct cost_stage *ranks,
                   struct pipeline_stage *stages, struct pipeline_times *times)
{
    const struct decision *d = c->decision;
    const struct wishes *w = &c->job->wishes;
    double transfer_s = d->pp > 1 ? boundary_transfer_s(c, s->boundary_bytes) : 0;
    const struct stage *known = NULL; /* the last plain stage; its sums are below */
    struct cost_stage sums = {0};
    for (uint32_t r = 0; r < d->pp; r++) {
        ranks[r] = (struct cost_stage){0};
        for (uint32_t j = 0; j < d->vpp; j++) {
            uint32_t i = cost_rank_stage(d, r, j);
            bool plain = plain_stage(s, &d->stages[i]);
            struct cost_stage st = plain && known && same_stages(s, known, &d->stages[i]) ? sums
                                                                                          : cost_sum_stage(c, s, i);
            if (plain) {
                known = &d->stages[i];
                sums = st;
            }
            add_stage(&ranks[r], &st);
            double copy_s = cost_stage_parked(c, s, i) / cost_host_bytes_s(c); /* copied out beside F, back beside B */
            double x = fmax(rank_x(&st), copy_s);
            stages[i] = (struct pipeline_stage){.forward_s = fmax(rank_f(&st), copy_s),
                                                .backward_s = x,
                                                .input_s = fmax(st.input_s, copy_s),
                                                .weight_s = st.weight_s,
                                                .lead_s = stage_lead_s(s, &d->stages[i]),
                                                .kept_s = st.kept_s,
                                                .next_s = transfer_s,
                                                .back_s = transfer_s,
                                                .forward_hidden_s = st.forward_hidden_s,
                                                .backward_hidden_s = st.backward_hidden_s};
        }
    }
    *times = (struct pipeline_times){.stages = stages,
                                     .skewed = decision_skews(c->job, d) || c->profile->post_validation > 0.5,
                                     .validated = decision_skews(c->job, d)};
    times->held = w->never_overlap & OVERLAP_PP ? 1 : w->overlap & OVERLAP_PP ? 0 : c->profile->pp_shown;
}

void cost_clear_copies(const struct cost *c, const struct cost_shape *s, struct pipeline_stage *stages)
{
    for (uint32_t i = 0; c->job->wishes.offload & OFFLOAD_ACTIVATIONS && i < c->decision->nstages; i++) {
        struct cost_stage st = cost_sum_stage(c, s, i);
        stages[i].forward_s = rank_f(&st);
        stages[i].backward_s = rank_x(&st);
        stages[i].input_s = st.input_s;
    }
}

void cost_clear_transfers(const struct decision *d, struct pipeline_stage *stages)
{
    for (uint32_t i = 0; i < d->nstages; i++)
        stages[i].next_s = stages[i].back_s = 0;
}

/* Seconds of a transfer in equal pieces, each with its own latency. */
static double pieces_s(const struct cost *c, enum op op, double bytes, double pieces, const struct cost_group *g)
{
    return pieces * cost_group_s(c, op, bytes / pieces, g);
}

/* Seconds of one reduction and one gather of everything that a rank holds; experts: the group that reduces their
 * gradients, if the rank has experts.  ZeRO 2 and 3 transfer block by block; otherwise gradients travel in buckets
 * of 40 million elements, or a million per member if that is more (Megatron-LM's default). */
static void dp_transfers(const struct cost *c, const struct cost_stage *st, const struct cost_group *experts,
                         double *reduce, double *gather)
{
    const struct decision *d = c->decision;
    const struct train *t = &c->job->train;
    double gradient = t->reduce == DT_FP32 ? 4 : 2, parameter = cost_parameter_bytes(c), n = d->dp * d->cp;
    const struct cost_group *all = &c->group[AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)];
    double pieces = d->zero >= 2 ? fmax(1, st->blocks) : ceil(fmax(1, st->matrices) / fmax(40e6, 1e6 * n));
    *reduce = *gather = 0;
    if (n > 1 && d->zero == 0) {
        *reduce = pieces_s(c, OP_ALL_REDUCE, gradient * st->matrices, pieces, all);
    } else if (n > 1) {
        *reduce = pieces_s(c, OP_REDUCE_SCATTER, gradient * st->matrices, pieces, &c->shard) +
                  pieces_s(c, OP_ALL_REDUCE, gradient * st->matrices / d->shard, pieces, &c->replicas);
        *gather = pieces_s(c, OP_ALL_GATHER, parameter * st->matrices, pieces, &c->shard);
    }
    if (st->experts > 0 && experts->n > 1) {
        pieces = d->zero >= 2 ? fmax(1, st->blocks) : ceil(st->experts / fmax(40e6, 1e6 * experts->n));
        *reduce += pieces_s(c, d->zero ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, gradient * st->experts, pieces, experts);
        *gather += d->zero ? pieces_s(c, OP_ALL_GATHER, parameter * st->experts, pieces, experts) : 0;
    }
    if (d->zero == 3) {
        *reduce /= c->profile->zero3_speed;
        *gather /= c->profile->zero3_speed;
    }
}

/* Seconds of one microbatch's pass during which the NICs carry other transfers, for which data-parallel ones wait. */
static double nic_taken_s(const struct cost *c, double layer_comm_s)
{
    const struct decision *d = c->decision;
    if (!c->group[AXIS_BIT(AXIS_DP) | AXIS_BIT(AXIS_CP)].level)
        return 0;
    bool layers = c->group[AXIS_BIT(AXIS_TP)].level || c->group[AXIS_BIT(AXIS_CP)].level || c->ep.level;
    double rows = (double)c->job->train.sequence / d->cp * d->microbatch / (d->sp ? d->tp : 1);
    double bytes = rows * (double)c->job->model.width * (c->job->train.precision == DT_FP32 ? 4 : 2);
    return (layers ? layer_comm_s : 0) + (d->pp > 1 ? d->vpp * cost_wire_s(c, OP_SEND, bytes, &c->next) : 0);
}

/* The number of microbatches whose kernels a step's data-parallel transfers can run beside. */
static uint32_t passes_beside(const struct cost *c)
{
    const struct decision *d = c->decision;
    if (d->zero >= 2)
        return d->microbatches;
    uint32_t group = c->profile->dp_by_chunk > 0.5 && d->vpp > 1 && !decision_folds(d) ? d->pp : 1;
    return group < d->microbatches ? group : d->microbatches;
}

/* The seconds, of one reduction or gather of moved_s, that can run beside kernels that take pass_s per microbatch.
 * Looped stages process a group of microbatches chunk by chunk: the transfers of all chunks but one run beside the
 * group's kernels of the other chunks, those of the last chunk beside its own last microbatch. */
static double dp_hides(const struct cost *c, double moved_s, double pass_s)
{
    double passes = passes_beside(c), v = c->decision->vpp;
    if (c->decision->zero >= 2 || passes < 2)
        return fmin(moved_s, pass_s);
    return fmin(moved_s, passes * pass_s) * (1 - 1 / v) + fmin(moved_s, pass_s) / v;
}

/* The share of the data-parallel transfers that could hide but stays exposed, by the profile. */
static double dp_share(const struct cost *c)
{
    const struct wishes *w = &c->job->wishes;
    bool overlaps = w->overlap & OVERLAP_DP || (c->decision->zero == 3 && c->profile->zero3_overlaps > 0.5);
    return w->never_overlap & OVERLAP_DP ? 1 : overlaps ? c->profile->dp_overlap_shown : c->profile->dp_shown;
}

/* The state that a pipeline rank reduces and gathers; DualPipe's ranks have two copies of the model, one from each
 * end. */
static struct cost_stage rank_state(const struct cost *c, const struct cost_stage *stages, uint32_t r)
{
    struct cost_stage st = stages[r];
    if (c->decision->schedule == SCHED_DUALPIPE) {
        const struct cost_stage *other = &stages[c->decision->pp - 1 - r];
        st.matrices += other->matrices;
        st.experts += other->experts;
        st.blocks += other->blocks;
        if (c->job->model.tied && (r == 0 || r + 1 == c->decision->pp)) /* both ends share one table */
            st.matrices -= (double)expand_padded_vocab(c->job->model.vocab, c->decision->tp) / c->decision->tp *
                           (double)c->job->model.width;
    }
    return st;
}

/* Estimates the data-parallel transfers of the worst rank.  They run beside kernels as far as the stack allows: of
 * what could hide, the profile's share stays exposed.  That the last reduced and the first gathered block have
 * nothing to hide behind is ignored here (moves.c models it).  Hidden transfers slow the kernels beside them down.
 * Under ZeRO 2 gradients are scattered for every microbatch; under ZeRO 3 parameters are gathered twice for each.
 * Copies on mirror ranks add theirs at the end.
 *
 * longer: a lower bound for these stages and for any whose forward passes also do the work for kept values (kept_s),
 * and whose backward passes are longer by at most one such forward pass.  More is hidden there and less exposed, so
 * what is hidden is computed from the shorter passes, and what is exposed from the longer ones. */
struct dp_transfers {
    double exposed_s, shown_s, stolen_s; /* shown: the part of exposed_s that is due to the profile's share */
};

static struct dp_transfers dp_exposed(const struct cost *c, const struct cost_stage *stages, bool longer)
{
    const struct decision *d = c->decision;
    struct dp_transfers worst = {0};
    double before_f = 0, before_x = 0, reduce = 0, gather = 0, share = dp_share(c), stolen = c->profile->stolen;
    bool mirrors = d->schedule == SCHED_DUALPIPE;
    uint32_t expert_dp = decision_expert_dp(d);
    struct cost_group experts = {.n = 1}; /* set once a rank with experts is found */
    struct cost_stage last = {0};
    for (uint32_t r = 0; r < d->pp; r++) {
        const struct cost_stage st = rank_state(c, stages, r);
        if (st.experts > 0 && experts.n < expert_dp)
            experts = cost_run_group(c, expert_dp, d->ep * d->etp);
        double f = rank_f(&stages[r]), x = rank_x(&stages[r]), late = 0;
        if (r == 0 || st.matrices != last.matrices || st.experts != last.experts || st.blocks != last.blocks)
            dp_transfers(c, &st, &experts, &reduce, &gather);
        last = st;
        if (mirrors)
            late = cost_group_s(c, OP_ALL_REDUCE, 4 * (st.matrices + st.experts) / (d->zero >= 2 ? d->shard : 1),
                                &c->tie) +
                   (d->zero >= 2 ? 0 : reduce);
        double times_x = d->zero >= 2 ? d->microbatches : 1, times_f = d->zero == 3 ? d->microbatches : 1;
        double moved_x = (mirrors && d->zero < 2 ? 0 : reduce) + (d->zero == 3 ? gather : 0);
        double free_x = fmax(0, x - nic_taken_s(c, st.backward_comm_s));
        double free_f = fmax(0, f - nic_taken_s(c, st.forward_comm_s));
        double more_f = longer ? st.kept_s : 0, more_x = longer ? f + st.kept_s : 0;
        double hidden = times_x * dp_hides(c, moved_x, free_x) + times_f * dp_hides(c, gather, free_f),
               shown = share * hidden, most = hidden;
        if (longer)
            most = times_x * dp_hides(c, moved_x, free_x + more_x) + times_f * dp_hides(c, gather, free_f + more_f);
        double exposed = times_x * moved_x + times_f * gather - most + share * most;
        exposed += late - fmin(exposed, before_x) - fmin(fmax(0, exposed - before_x), before_f);
        worst.shown_s = fmax(worst.shown_s, fmin(shown, exposed));
        worst.stolen_s = fmax(worst.stolen_s, stolen * (hidden - shown));
        worst.exposed_s = fmax(worst.exposed_s, exposed + stolen * (1 - share) * (longer ? 0 : hidden));
        before_f += mirrors ? 0 : f + more_f;
        before_x += mirrors ? 0 : x + more_x;
    }
    if (c->job->model.tied && d->pp > 1) {
        double table = (double)expand_padded_vocab(c->job->model.vocab, d->tp) / d->tp * (double)c->job->model.width;
        worst.exposed_s += cost_group_s(c, OP_ALL_REDUCE, 4 * table, &c->tie);
    }
    return worst;
}

double cost_host_bytes_s(const struct cost *c)
{
    /* Grace is attached by 450 GB/s each way (NVIDIA's data sheets of GH200 and GB200), others by PCIe; 0.8 is an
     * assumption */
    const char *model = c->type->gpu.model;
    double bytes_s = !strncmp(model, "GB", 2) || !strncmp(model, "GH", 2) ? 0.8 * 450e9 : 25e9;
    return c->type->host_bytes_s > 0 ? c->type->host_bytes_s : bytes_s;
}

/* Bytes of a gradient element when the update reads it: what is reduced between ranks at the end stays in the format
 * of that reduction (lower_own_gradient() of compiler/lower/shard.c).  Of the n ranks that hold copies, the state is
 * split over `shard`. */
static double summed_bytes(const struct cost *c, uint32_t n, uint32_t shard)
{
    const struct decision *d = c->decision;
    bool at_end = d->schedule == SCHED_DUALPIPE || shard < n || (shard > 1 && d->zero < 2);
    return (at_end ? c->job->train.reduce : c->job->train.grads) == DT_FP32 ? 4 : 2;
}

/* Bytes of a rank's share of elements at the update: gradients, state, and a separate working copy; parked: of the
 * state, what may be kept in host memory. */
struct update_bytes {
    double gradients, state, copy, parked;
};

static struct update_bytes update_bytes(const struct cost *c, const struct cost_updated *x)
{
    const struct decision *d = c->decision;
    const struct train *t = &c->job->train;
    double moment = t->moments == DT_FP32 ? 4 : 2, moments = t->optimizer == OPT_ADAMW ? 2 : t->momentum > 0 ? 1 : 0;
    double weight = cost_master_bytes(c, c->profile),
           read = cost_master_halves(c, c->profile) ? 2 : 0; /* with their other half */
    bool apart = t->master != train_working(t); /* separate from the working copy, which the update writes too */
    uint32_t shard = d->zero ? decision_expert_shard(d) : 1;
    double dense = x->matrices / d->shard, experts = x->experts / shard, own = dense + experts;
    return (struct update_bytes){
        .gradients = summed_bytes(c, d->dp * d->cp, d->shard) * dense +
                     summed_bytes(c, decision_expert_dp(d), shard) * experts,
        .state = (weight + moment * moments) * own,
        .copy = (apart ? 2 + read : 0) * own,
        .parked = ((apart ? weight : 0) + moment * moments) * own,
    };
}

static double updated_s(const struct cost *c, const struct update_bytes *x, double buckets)
{
    enum op op = c->job->train.optimizer == OPT_ADAMW ? OP_ADAMW : OP_SGD;
    return cost_stream_of_s(c, op, x->gradients + 2 * x->state + x->copy, x->copy > 0) + buckets * c->device.launch_s;
}

/* Fetching and returning the state share one queue.  That of the first two buckets is fetched before the norm is
 * known, and the first bucket is updated before anything else moves. */
static void fetch_state(const struct cost *c, const struct cost_stage *st, double parked, struct pipeline_update *u)
{
    const struct update_bytes first = update_bytes(c, &st->first[0]), second = update_bytes(c, &st->first[1]);
    u->ahead_s = (first.parked + second.parked) / cost_host_bytes_s(c);
    u->first_s = updated_s(c, &first, 1);
    u->update_s = fmax(u->update_s, u->first_s + 2 * parked / cost_host_bytes_s(c) - u->ahead_s);
}

struct pipeline_update cost_rank_update(const struct cost *c, const struct cost_stage *ranks, uint32_t r)
{
    const struct cost_stage st = rank_state(c, ranks, r);
    const struct update_bytes x = update_bytes(c, &(struct cost_updated){st.matrices, st.experts});
    double buckets = st.blocks * (st.experts > 0 ? 3 : 1) + 2; /* number of launches */
    struct pipeline_update u = {.norm_s = cost_stream_of_s(c, OP_SQNORM, x.gradients, c->job->train.grads != DT_FP32) +
                                          buckets * c->device.launch_s};
    u.last_norm_s = u.norm_s / buckets;
    u.update_s = updated_s(c, &x, buckets);
    if (decision_skews(c->job, c->decision)) /* also computes in advance the parameters that the next step begins
                                              * with */
        u.update_s += cost_stream_s(c, x.gradients + x.state + x.copy) + buckets * c->device.launch_s;
    if (c->job->wishes.offload & OFFLOAD_OPTIMIZER)
        fetch_state(c, &st, x.parked, &u);
    return u;
}

static double optimizer_s(const struct cost *c, const struct cost_stage *stages)
{
    double longest = 0;
    for (uint32_t r = 0; r < c->decision->pp; r++) {
        struct pipeline_update u = cost_rank_update(c, stages, r);
        longest = fmax(longest, u.norm_s + u.update_s);
    }
    return longest + cost_agree_s(c);
}

double cost_agree_s(const struct cost *c)
{
    return cost_collective_s(c, OP_ALL_REDUCE, 16, AXES_WORLD) + 2 * c->device.launch_s;
}

/* optimizer_s is a lower bound: the update of the first stage's rank, which all wait for, and the least norm. */
void cost_tail(const struct cost *c, const struct cost_stage *ranks, struct estimate *e)
{
    double norm_s = INFINITY;
    for (uint32_t r = 0; r < c->decision->pp; r++)
        norm_s = fmin(norm_s, cost_rank_update(c, ranks, r).norm_s);
    e->dp_comm_s = c->crowd * dp_exposed(c, ranks, true).exposed_s;
    e->optimizer_s = c->crowd * (cost_rank_update(c, ranks, 0).update_s + norm_s + cost_agree_s(c)) +
                     1e-3 * c->profile->step_overhead_ms;
}

static void plain_tail(const struct cost *c, const struct cost_stage *ranks, struct estimate *e)
{
    e->dp_comm_s = c->crowd * dp_exposed(c, ranks, false).exposed_s;
    e->optimizer_s = c->crowd * optimizer_s(c, ranks) + 1e-3 * c->profile->step_overhead_ms;
}

static struct cost_seen seen(const struct cost *c, const struct cost_stage *ranks, bool longer)
{
    struct dp_transfers dp = dp_exposed(c, ranks, longer);
    return (struct cost_seen){c->job->wishes.never_overlap & OVERLAP_DP ? 0 : dp.shown_s, dp.stolen_s};
}

struct cost_seen cost_seen(const struct cost *c, const struct cost_stage *ranks)
{
    return seen(c, ranks, false);
}

double cost_seam_s(const struct cost *c, const struct cost_stage *ranks, bool least)
{
    double seam_s = 1e-3 * c->profile->step_overhead_ms;
    if (dp_share(c) <= 0 && c->profile->stolen <= 0)
        return seam_s;
    struct cost_seen x = seen(c, ranks, least);
    return seam_s + x.shown_s + x.stolen_s;
}

void cost_rest(const struct cost *c, const struct cost_stage *ranks, double beside_s, struct estimate *e)
{
    struct cost_seen seen = cost_seen(c, ranks);
    double update_s = fmin(beside_s, optimizer_s(c, ranks));
    e->optimizer_s = c->crowd * update_s + 1e-3 * c->profile->step_overhead_ms;
    e->dp_comm_s = c->crowd * (beside_s - update_s) + seen.shown_s + seen.stolen_s;
}

double cost_slow_least(const struct cost *c)
{
    const struct decision *d = c->decision;
    return c->profile->straggle * real_log2(fmax(1, (double)d->nnodes / d->pp));
}

struct cost_body cost_body(const struct cost *c, const struct cost_stage *ranks)
{
    const struct decision *d = c->decision;
    struct cost_body x = {0};
    double slowest = -1, compute = 0, comm = 0;
    for (uint32_t r = 0; r < d->pp; r++) {
        double f = rank_f(&ranks[r]), b = rank_x(&ranks[r]);
        compute += ranks[r].forward_s + ranks[r].backward_s;
        comm += ranks[r].forward_comm_s + ranks[r].backward_comm_s;
        if (f + b <= slowest)
            continue;
        slowest = f + b;
        x.stage_forward_s = f;
        x.stage_backward_s = b;
    }
    x.compute_s = c->crowd * compute / d->pp * d->microbatches;
    x.comm_s = c->crowd * comm / d->pp * d->microbatches;
    x.least_s = c->crowd > 1 ? x.compute_s + x.comm_s : 0;
    /* Everyone waits for the slowest node at every synchronisation, and for the host between two steps.  A node that
     * is slow on a stage with slack delays nobody. */
    double straggle = c->profile->straggle, slack = slowest * d->pp / (compute + comm) - 1;
    x.slow = fmax(cost_slow_least(c), straggle * real_log2(fmax(1, d->nnodes)) - slack);
    return x;
}

void cost_items(const struct cost_body *x, double pipeline_s, double free_s, struct estimate *e)
{
    pipeline_s = fmax(pipeline_s, x->least_s);
    free_s = fmax(free_s, x->least_s);
    e->stage_forward_s = x->stage_forward_s;
    e->stage_backward_s = x->stage_backward_s;
    e->tp_comm_s = x->comm_s;
    e->pp_comm_s = fmax(0, pipeline_s - free_s);
    e->compute_s = fmin(x->compute_s, pipeline_s - e->pp_comm_s); /* less where pairs fill the host's waits */
    e->bubble_s = fmax(0, pipeline_s - e->compute_s - e->tp_comm_s - e->pp_comm_s);
    /* transfers that overlapped pairs hide are not exposed */
    e->tp_comm_s = fmin(e->tp_comm_s, fmax(0, pipeline_s - e->compute_s - e->pp_comm_s));
    e->compute_s *= 1 + x->slow;
    e->bubble_s *= 1 + x->slow;
    e->step_time_s = e->compute_s + e->tp_comm_s + e->pp_comm_s + e->bubble_s + e->dp_comm_s + e->optimizer_s;
}

void cost_step(const struct cost *c, const struct cost_stage *ranks, double pipeline_s, double free_s,
               struct estimate *e)
{
    struct cost_body x = cost_body(c, ranks);
    plain_tail(c, ranks, e);
    cost_items(&x, pipeline_s, free_s, e);
}

void cost_time(const struct cost *c, const struct cost_shape *s, struct cost_stage *ranks,
               struct pipeline_stage *stages, struct estimate *e)
{
    struct pipeline_times times;
    cost_pipeline(c, s, ranks, stages, &times);
    double pipeline_s = pipeline_bound_s(c->decision, &times), free_s = pipeline_s;
    if (c->decision->pp > 1) {
        cost_clear_transfers(c->decision, stages);
        free_s = pipeline_bound_s(c->decision, &times);
    }
    cost_step(c, ranks, pipeline_s, free_s, e);
}

void cost_estimate(struct arena *a, const struct cost *c, struct estimate *e)
{
    struct arena_mark mark = arena_mark(a);
    struct cost_kinds kinds = cost_kinds_new(a, &c->job->model);
    struct cost_shape s;
    cost_shape_init(a, c, &kinds, &s);
    *e = (struct estimate){0};
    cost_time(c, &s, ARENA_ARRAY(a, struct cost_stage, c->decision->pp),
              ARENA_ARRAY(a, struct pipeline_stage, c->decision->nstages), e);
    cost_memory(c, &s, e);
    arena_reset(a, mark);
}
