/* The seconds and the exposed transfers of a layer, the embedding or the head as one rank runs it, by rules per
 * operator; block_bytes.c adds bytes and parameters.
 *
 * Recomputation adds the operators that it repeats to the backward pass.  Tensor-parallel transfers are exposed in
 * the forward pass; in the backward pass the all-gather of a product's input runs beside the product for its input
 * gradient, and the reduction of that gradient beside the product for the weight gradient, as far as the profile's
 * stack does so.  Ring context parallelism hides its transfers behind attention, up to its length.  What remains
 * exposed where the user asks for overlap is the profile's, except for llmrun, whose plans cut rows into parts that
 * are transferred separately (decision_cuts()): there it follows from the order of kernels and transfers.  A block
 * takes at least the host's time to launch its kernels. */

#include "compiler/cost/block_private.h"

#include <math.h>
#include <string.h>

enum { PASS_F, PASS_B, PASS_I, PASS_W, NPASSES };

double cost_shown(const struct cost *c, uint32_t axis, double by_itself, double overlapped)
{
    const struct wishes *w = &c->job->wishes;
    return w->never_overlap & axis ? 1 : w->overlap & axis ? overlapped : by_itself;
}

/* Where kernels leave multiprocessors to transfers, these are slower already, and no transfer slows them. */
static double pair_hides(const struct cost *c)
{
    return c->job->wishes.comm_sms ? 1 : c->profile->pair_hides;
}

bool cost_together(const struct cost *c)
{
    return c->decision->pp == 1 && c->profile->ep_together > 0.5;
}

double cost_ep_shown(const struct cost *c)
{
    double shown = c->profile->ep_shown * (cost_together(c) ? 1 - pair_hides(c) : 1);
    return cost_shown(c, OVERLAP_ALL_TO_ALL, shown, shown);
}

double block_shown(const struct block *b, uint32_t axis, double by_itself, double overlapped)
{
    return cost_shown(b->c, axis, by_itself, overlapped);
}

double block_value_bytes(const struct block *b, uint32_t v)
{
    if (v == NONE)
        return 0;
    const struct opr_value *value = &b->e->values[v];
    double cols = expand_own_cols(value, b->d->tp);
    return b->element * (value->class == CLASS_COLS ? b->tokens * cols : b->rows * (double)value->cols);
}

/* Adds seconds of n forward and nb backward kernels; again: the forward kernels run once more in recomputation. */
void block_add_time(struct block *b, double forward, double n, double backward, double nb, bool again)
{
    b->out.forward_s += forward;
    b->out.backward_s += backward;
    b->forward_kernels += n;
    b->backward_kernels += nb;
    if (again)
        block_add_again(b, forward, n);
}

void block_add_again(struct block *b, double seconds, double n)
{
    b->out.backward_s += seconds;
    b->out.again_s += seconds;
    b->backward_kernels += n;
}

/* Adds exposed transfers of the backward pass, which the pass for input gradients has as well where the backward
 * pass is split. */
void block_add_backward_comm(struct block *b, double seconds)
{
    b->out.backward_comm_s += seconds;
    b->out.input_comm_s += seconds;
}

/* Other stacks recompute everything that is named; with full recomputation they also repeat what the backward pass
 * does not need, if their profile says so. */
bool block_recomputes(const struct block *b, const struct opr *o)
{
    enum recompute recompute = b->d->recompute;
    if (recompute == RECOMPUTE_NONE || o - b->e->oprs >= b->e->again) /* a prediction module's head is never
                                                                       * recomputed */
        return false;
    if (b->c->profile->allocator > 0.5 && recompute == RECOMPUTE_SELECTIVE)
        return backward_names(b->e, o, b->d->parts);
    return b->plan.needed[o - b->e->oprs] || (recompute == RECOMPUTE_FULL && b->c->profile->recompute_whole > 0.5);
}

static double weights_cols(const struct block *b, const struct opr *o, double *in)
{
    double rows = 0;
    for (uint32_t w = 0; w < o->nweights; w++) {
        rows += (double)b->e->weights[o->weight + w].rows;
        *in = (double)b->e->weights[o->weight + w].cols;
    }
    return rows;
}

/* Seconds of converting an operand of m rows to 8 bits.  One that is gathered over tp is converted in shards before
 * the gather; on Hopper, whose products take both operands along the inner dimension, the whole is transposed
 * afterwards. */
static double operand_s(const struct block *b, double m, double cols, bool gathered)
{
    const struct cost *c = b->c;
    if (!gathered || c->profile->allocator < 0.5 || !cost_gathers_eight(c))
        return cost_quantize_s(c, m * cols);
    double turned = c->type->gpu.sm >= 100 ? 0 : cost_quantize_s(c, m * cols / 2);
    return cost_quantize_s(c, m * cols / b->d->tp) + turned;
}

static double stream_s(const struct block *b, enum op op, double bytes)
{
    return cost_stream_of_s(b->c, op, bytes, b->element < 4);
}

/* fused.c: of these bytes, those that an instruction need not move when its neighbour has them. */
static double joined(const struct block *b, bool neighbours, double bytes)
{
    return neighbours && cost_fuses(b->c) ? bytes : 0;
}

/* The operator of this block that makes a value; NULL: it comes from another block. */
static const struct opr *maker(const struct block *b, uint32_t value)
{
    for (const struct opr *o = b->e->oprs; o < b->e->oprs + b->e->noprs; o++)
        if (o->out == value)
            return o;
    return NULL;
}

/* Is the gradient of its output that of the residual stream, to which others add? */
static bool copied(const struct block *b, const struct opr *o)
{
    bool read = false;
    for (const struct opr *x = o + 1; x < b->e->oprs + b->e->noprs && !read; x++)
        for (int k = 0; k < 2; k++)
            if (x->in[k] == o->out) {
                if (x->kind != OPR_ADD)
                    return false;
                read = true;
            }
    return read && expand_puts_off(b->e, o);
}

/* Adds the seconds of the three products of m rows, n outputs and k inputs. */
static void add_products(const struct block *b, bool head, const uint32_t parts[3], double m, double n, double k,
                         double seconds[3])
{
    const struct cost *c = b->c;
    for (enum product p = PRODUCT_FORWARD; p <= PRODUCT_WEIGHT; p++) {
        uint64_t um = (uint64_t)(m / parts[p]), un = (uint64_t)ceil(n), uk = (uint64_t)ceil(k);
        uint64_t rows = p == PRODUCT_WEIGHT ? un : um, cols = p == PRODUCT_FORWARD ? un : uk;
        uint64_t inner = p == PRODUCT_FORWARD ? uk : p == PRODUCT_INPUT ? un : um;
        seconds[p] += parts[p] * (head ? cost_matmul_half_s(c, p, rows, cols, inner, b->dtype)
                                       : cost_matmul_s(c, p, rows, cols, inner, b->dtype));
    }
}

/* Adds an operator's forward kernels to the walk, and those of them that are recomputed. */
static void forward_kernels(struct block *b, const struct opr *o, double forward_s, double again_s)
{
    if (block_on_own_rows(b, o)) {
        b->own_s += forward_s;
        b->own_again_s += again_s;
        return;
    }
    block_flush_own(b);
    walk_add(&b->walk, WALK_KERNEL, 0, WALK_F, forward_s);
    walk_add(&b->walk, WALK_KERNEL, 0, WALK_AGAIN, again_s);
}

static void linear(struct block *b, const struct opr *o)
{
    const struct cost *c = b->c;
    const struct opr_weight *first = &b->e->weights[o->weight];
    bool head = o + 1 < b->e->oprs + b->e->noprs && o[1].kind == OPR_LOSS;
    double in = 0, out = weights_cols(b, o, &in), tp = b->d->tp;
    if (head)
        out = (double)expand_padded_vocab(c->job->model.vocab, b->d->tp);
    const struct opr_value *y = &b->e->values[o->out];
    double m = b->tokens, n = out, k = in, keys = y->kv < tp ? (double)y->keys / fmax(1, y->kv) : 0; /* kept separate
                                                                                                      * from the
                                                                                                      * other columns */
    if (first->split == SPLIT_ROWS)
        n = head ? out / tp : expand_own_cols(y, b->d->tp);
    else if (first->split == SPLIT_COLS)
        k /= tp;
    else
        m = b->rows;
    /* under fp8 the head stays in half precision; other products convert their input and, in the backward pass, the
     * gradient */
    bool fp8 = !head && c->job->train.precision == DT_FP8;
    double seconds[3] = {0}; /* by product */
    uint32_t parts[3];
    block_cut_products(b, o, first->split == SPLIT_NONE, parts);
    add_products(b, head, parts, m, n - keys, k, seconds);
    if (keys > 0)
        add_products(b, head, parts, m, keys, k, seconds);
    bool whole = first->split != SPLIT_NONE && tp > 1 && b->d->sp; /* one operand of the product is gathered */
    uint32_t f = parts[PRODUCT_FORWARD], x = parts[PRODUCT_INPUT];
    double forward = seconds[PRODUCT_FORWARD] + (fp8 ? f * operand_s(b, m / f, k, whole && !o->row_parallel) : 0);
    double input = seconds[PRODUCT_INPUT] + (fp8 ? x * operand_s(b, m / x, n, whole && o->row_parallel) : 0);
    double weight = seconds[PRODUCT_WEIGHT];
    double sums = block_value_bytes(b, o->out),
           bias = o->nbiases ? stream_s(b, OP_BIAS_W, sums - joined(b, true, sums)) : 0;
    b->out.weight_s += expand_puts_off(b->e, o) ? weight + bias : 0;
    b->copies_s += !head && copied(b, o) ? cost_stream_s(c, 2 * block_value_bytes(b, o->out)) : 0;
    double products = keys > 0 ? 2 : 1;
    bool again = block_recomputes(b, o);
    block_add_time(b, forward, products, input + weight + bias, products * (2 + (bias > 0)), again);
    if (first->split != SPLIT_NONE && tp > 1) {
        block_tensor_parallel(b, o, b->tokens * b->element * out, b->tokens * b->element * in, forward, input,
                              weight + bias);
        return;
    }
    forward_kernels(b, o, forward, again ? forward : 0);
    walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | WALK_I, input);
    walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | (expand_puts_off(b->e, o) ? WALK_W : WALK_I), weight + bias);
}

/* Seconds of the kernels of llmrun's router whose time is their launch: logits, places, the experts' loads and their
 * balance. */
static double router_launches_s(const struct block *b, const struct moe *m)
{
    return b->c->profile->allocator < 0.5 ? (2 + (m->balance > 0 ? 2 : 0) + (m->bias ? 1 : 0)) * b->c->device.launch_s
                                          : 0;
}

/* Seconds of reducing the experts' loads for the balance loss, where several ranks hold parts of a sequence. */
static double balance_s(const struct block *b, const struct moe *m)
{
    double bytes = 8.0 * m->experts * b->d->microbatch;
    if (m->balance <= 0 || b->c->profile->allocator > 0.5)
        return 0;
    double tp = b->d->sp ? cost_collective_s(b->c, OP_ALL_REDUCE, bytes, AXIS_BIT(AXIS_TP)) : 0;
    return fmax(tp, cost_collective_s(b->c, OP_ALL_REDUCE, bytes, AXIS_BIT(AXIS_CP)));
}

/* Its input was just summed, here or at the end of the previous block; the kernels for its two gradients follow each
 * other. */
static void norm(struct block *b, const struct opr *o, double in, double out)
{
    bool rms = b->c->job->model.norm.kind == NORM_RMS;
    const struct opr *made = maker(b, o->in[0]);
    double forward = stream_s(b, rms ? OP_RMSNORM : OP_LAYERNORM,
                              in + out - joined(b, !made || made->kind == OPR_ADD, in));
    double input = stream_s(b, rms ? OP_RMSNORM_I : OP_LAYERNORM_I, 2 * in + 2 * out);
    double weights = stream_s(b, rms ? OP_RMSNORM_W : OP_LAYERNORM_W, in + out - joined(b, true, in + out));
    block_add_time(b, forward, 1, input + weights, 2, block_recomputes(b, o));
}

double block_act_s(const struct block *b, enum act act, bool back, double bytes)
{
    static const enum op ops[][2] = {[ACT_GELU] = {OP_GELU, OP_GELU_I},
                                     [ACT_RELU] = {OP_RELU, OP_RELU_I},
                                     [ACT_RELU2] = {OP_RELU, OP_RELU_I},
                                     [ACT_SWIGLU] = {OP_SWIGLU, OP_SWIGLU_I},
                                     [ACT_GEGLU] = {OP_GEGLU, OP_GEGLU_I}};
    return stream_s(b, ops[act][back], bytes);
}

/* When GELU directly follows a product, and its gradient follows that product's input gradient, only x or only y is
 * moved. */
static void act(struct block *b, const struct opr *o, double in, double out)
{
    const struct opr *made = maker(b, o->in[0]);
    bool behind = o->ffn->act == ACT_GELU && made == o - 1 && made->kind == OPR_LINEAR;
    block_add_time(b, block_act_s(b, o->ffn->act, false, in + out - joined(b, behind, in)), 1,
                   block_act_s(b, o->ffn->act, true, 2 * in + out - joined(b, behind, in + out)), 1,
                   block_recomputes(b, o));
}

/* Fused: maximum, sum and the gradient in place, half of it in the backward pass; two small reductions of row
 * statistics. Where ranks do not share a vocabulary it is one call without these reductions, which includes the
 * gradient where the schedule runs the backward pass directly after it. */
static void loss(struct block *b)
{
    const struct cost *c = b->c;
    double tp = b->d->tp, in = b->element * b->tokens * (double)expand_padded_vocab(c->job->model.vocab, b->d->tp) / tp;
    in *= c->profile->loss_passes / 4;
    double less = joined(b, tp <= 1, in);
    double whole = stream_s(b, OP_XENT_I, 2 * in), slope = stream_s(b, OP_XENT_I, 2 * in - less);
    block_add_time(b, stream_s(b, OP_XENT_MAX, in) + stream_s(b, OP_XENT_SUM, in - less), 6, slope, 2, false);
    b->out.loss_late_s = whole - slope;
    b->out.forward_comm_s += 2 * cost_collective_s(c, OP_ALL_REDUCE, 8 * b->tokens, AXIS_BIT(AXIS_TP));
}

static void stream(struct block *b, const struct opr *o)
{
    const struct cost *c = b->c;
    double in = block_value_bytes(b, o->in[0]), in2 = block_value_bytes(b, o->in[1]),
           out = block_value_bytes(b, o->out);
    switch (o->kind) {
    case OPR_NORM:
        norm(b, o, in, out);
        break;
    case OPR_ROPE:
        block_add_time(b, stream_s(b, OP_ROPE, 2 * in), 1, stream_s(b, OP_ROPE, 2 * in), 1, block_recomputes(b, o));
        break;
    case OPR_HEADNORM: /* in and out include the other half */
        block_add_time(b, cost_stream_s(c, in + out) / 2, 1, cost_stream_s(c, 3 * out) / 2 + cost_stream_s(c, out), 2,
                       block_recomputes(b, o));
        break;
    case OPR_CONCAT:
        block_add_time(b, cost_stream_s(c, 2 * out), 1, cost_stream_s(c, 2 * out), 1, block_recomputes(b, o));
        break;
    case OPR_KEYS:
        block_add_time(b, cost_stream_s(c, in + in2 + out), 1, cost_stream_s(c, in + in2 + out), 1,
                       block_recomputes(b, o));
        break;
    case OPR_SCALE:
        block_add_time(b, cost_stream_s(c, 2 * in), 1, cost_stream_s(c, 2 * in), 1, block_recomputes(b, o));
        break;
    case OPR_SOFTCAP:
        block_add_time(b, cost_stream_s(c, in + out), 1, cost_stream_s(c, 2 * in + out), 1, block_recomputes(b, o));
        break;
    case OPR_ACT:
        act(b, o, in, out);
        break;
    case OPR_ADD:
        block_add_time(b, stream_s(b, OP_ADD, in + in2 + out), 1,
                       o->nbiases ? stream_s(b, OP_BIAS_W, out - joined(b, true, out)) : 0, o->nbiases > 0,
                       block_recomputes(b, o));
        break;
    case OPR_EMBED:
        block_add_time(b, cost_stream_s(c, 2 * out), 1, cost_stream_s(c, 5 * out), 2, false);
        b->out.weight_s += cost_stream_s(c, 5 * out);
        if (b->d->tp > 1)
            b->out.forward_comm_s += b->runs *
                                     cost_collective_s(c, b->d->sp ? OP_REDUCE_SCATTER : OP_ALL_REDUCE,
                                                       b->tokens * b->element * (double)c->job->model.width / b->runs,
                                                       AXIS_BIT(AXIS_TP));
        break;
    case OPR_POSITION:
        block_add_time(b, cost_stream_s(c, 2 * out), 1, cost_stream_s(c, 5 * out), 2, false);
        b->out.weight_s += cost_stream_s(c, 5 * out);
        break;
    case OPR_LOSS:
        loss(b);
        break;
    case OPR_ROUTER:
        block_add_time(b, cost_stream_s(c, in + 6 * out) + router_launches_s(b, o->moe), 4,
                       cost_stream_s(c, 2 * in + 6 * out), 6, block_recomputes(b, o));
        b->out.forward_comm_s += balance_s(b, o->moe);
        break;
    case OPR_LINEAR:
    case OPR_ATTENTION:
    case OPR_EXPERTS:
        break;
    }
}

/* Seconds of kernels when a host launches them as it goes and they wait for it and for the transfers between them.
 * They take at least as long as the host does, and more where both times are similar, because small kernels then
 * wait for the host while large ones let it run ahead.  Runs of one model with growing microbatches (vTrain's, tp 1
 * to 8, one node and many) follow the root of the sum of squares.  A host that waits for each kernel in turn never
 * runs ahead (BLOOM's runs on more than 160 GPUs, which hung otherwise: its chronicles, "dealing with JZ hanging on
 * the large model"). */
static double waits(const struct profile *p, double kernels_s, double transfers_s, double host_s)
{
    double device_s = kernels_s + transfers_s;
    if (p->launches_block > 0.5)
        return kernels_s + host_s;
    return sqrt(device_s * device_s + host_s * host_s) - transfers_s;
}

/* Sets the transfers that the passes do not hide.  Other stacks hide in F, B and I what their profiles say.  With
 * rows to experts on a queue of their own less may be exposed; the difference goes to the apart_ fields.  Without
 * that queue F waits for all transfers except those of a ring. */
static void expose(struct block *b, const struct walk_strand strand[NPASSES], bool layer, const struct cost_block *none)
{
    struct cost_block *out = &b->out;
    if (none) { /* recomputation leaves F and W as they are */
        out->forward_comm_s = none->forward_comm_s;
        out->weight_comm_s = none->weight_comm_s;
    } else {
        if (b->cuts > 1)
            out->forward_comm_s = walk_exposed_s(&strand[PASS_F], layer, false);
        out->weight_comm_s = walk_exposed_s(&strand[PASS_W], layer, false);
    }
    if (b->c->profile->allocator > 0.5)
        return;
    out->backward_comm_s = walk_exposed_s(&strand[PASS_B], layer, false);
    out->input_comm_s = walk_exposed_s(&strand[PASS_I], layer, false);
    if (!b->exchanges_apart)
        return;
    if (none) {
        out->apart_forward_s = none->apart_forward_s;
    } else {
        out->forward_comm_s = walk_exposed_s(&strand[PASS_F], false, false);
        out->apart_forward_s = fmax(0, out->forward_comm_s - walk_exposed_s(&strand[PASS_F], false, true));
    }
    out->apart_backward_s = fmax(0, out->backward_comm_s - walk_exposed_s(&strand[PASS_B], layer, true));
    out->apart_input_s = fmin(out->apart_backward_s, out->input_comm_s);
}

/* The share of its transfers that one more block in a row of blocks hides, where forward and backward passes of two
 * microbatches run together. */
static double hidden_share(struct arena *a, const struct block *b, const struct walk_strand strand[NPASSES])
{
    const struct cost_block *o = &b->out;
    double both_s = o->forward_comm_s + o->backward_comm_s,
           whole_s = both_s + o->forward_s + o->backward_s - o->forward_idle_s - o->backward_idle_s;
    struct walk_strand forward = walk_strand_join(a, &strand[PASS_F], 1, cost_paired_s(o, false));
    struct walk_strand backward = walk_strand_join(a, &strand[PASS_B], 1, cost_paired_s(o, true));
    double one_s, two_s;
    if (both_s <= 0)
        return 0;
    walk_rows_together(&forward, &backward, true, &one_s, &two_s);
    return cost_smaller(1, cost_larger(0, whole_s - (two_s - one_s)) / both_s);
}

/* Schedules in pairs run the transfers of one microbatch beside the kernels of another, which are slower then, and
 * beside whose waits for their hosts these kernels run.  pairs.c computes how much is hidden for a decision's stages;
 * it never exceeds this, which is what one more block in a row of blocks hides. */
static void hide(struct arena *a, struct block *b, const struct walk_strand strand[NPASSES])
{
    struct cost_block *o = &b->out;
    double hidden = hidden_share(a, b, strand), lost = (1 - pair_hides(b->c)) * hidden;
    o->forward_lost_s = lost * o->forward_comm_s;
    o->backward_lost_s = lost * o->backward_comm_s;
    if (lost > 0)
        hidden = hidden_share(a, b, strand);
    o->forward_hidden_s = hidden * o->forward_comm_s + o->forward_idle_s;
    o->backward_hidden_s = hidden * o->backward_comm_s + o->backward_idle_s;
}

/* Adds an operator that is neither a product nor attention nor experts: its kernels, and the transfers they wait
 * for. */
static void plain(struct block *b, const struct opr *o)
{
    const struct cost_block before = b->out, *now = &b->out;
    double forward_kernels_before = b->forward_kernels, backward_kernels_before = b->backward_kernels;
    bool own = block_on_own_rows(b, o);
    stream(b, o);
    bool runs_again = now->again_s > before.again_s;
    if (own) { /* one kernel for each part instead of a single one */
        double more_s = (b->runs - 1) * b->c->device.launch_s;
        b->out.forward_s += more_s * (b->forward_kernels - forward_kernels_before);
        b->out.again_s += runs_again ? more_s * (b->forward_kernels - forward_kernels_before) : 0;
        b->out.backward_s += more_s * (b->backward_kernels - backward_kernels_before);
    }
    if (o->kind == OPR_ROUTER)
        walk_forward(&b->walk, WALK_FREE, WALK_INPUT, 0, runs_again);
    double again_s = now->again_s - before.again_s, backward_s = now->backward_s - before.backward_s - again_s;
    uint32_t late = expand_puts_off(b->e, o) ? WALK_W : WALK_I;
    if (o->kind == OPR_KEYS) {
        block_keys(b, o, now->forward_s - before.forward_s, backward_s, runs_again);
        return;
    }
    forward_kernels(b, o, now->forward_s - before.forward_s, again_s);
    walk_forward(&b->walk, WALK_BLOCK, 0, now->forward_comm_s - before.forward_comm_s,
                 runs_again && o->kind == OPR_ROUTER);
    if (o->kind == OPR_EMBED && b->d->sp && b->d->tp > 1) { /* together with the weight gradients */
        double bytes = b->tokens * b->element * (double)b->c->job->model.width / b->runs;
        walk_add(&b->walk, WALK_BLOCK, 0, WALK_B | WALK_W,
                 b->runs * cost_collective_s(b->c, OP_ALL_GATHER, bytes, AXIS_BIT(AXIS_TP)));
    }
    if (own && o->kind == OPR_NORM && strcmp(o->name, "mla.kv_norm"))
        walk_add(&b->walk, WALK_USE, WALK_REDUCED, WALK_B | late, 0);
    if (own)
        walk_own(&b->walk, WALK_B | late, b->cuts, b->runs == 1, backward_s / b->runs);
    else
        walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | late, backward_s);
}

/* Add the conversions before an operator's backward kernels, and after its forward kernels. */
static void convert_back(struct block *b, uint32_t i)
{
    struct cost_conversions s = cost_conversions(b->c, b->d, b->e, b->words, i);
    bool late = expand_puts_off(b->e, &b->e->oprs[i]);
    block_add_time(b, 0, 0, s.backward_s, s.backward, false);
    b->out.weight_s += late ? s.backward_s : 0;
    walk_add(&b->walk, WALK_KERNEL, 0, WALK_B | (late ? WALK_W : WALK_I), s.backward_s);
}

static void convert(struct block *b, uint32_t i)
{
    struct cost_conversions s = cost_conversions(b->c, b->d, b->e, b->words, i);
    block_add_time(b, s.forward_s, s.forward, s.again_s, s.again, false);
    b->out.kept_s += s.forward_s + 1e-6 * b->c->profile->host_op_us * s.forward;
    b->out.again_s += s.again_s;
    forward_kernels(b, &b->e->oprs[i], s.forward_s, s.again_s);
}

/* What the profile's stack launches as CUDA graphs: each is one operator to the host, however many kernels it has. */
enum graph { GRAPH_ATTN, GRAPH_MLP, GRAPH_ROUTER, GRAPH_REST, NGRAPHS };
struct graphs {
    double forward[NGRAPHS], backward[NGRAPHS]; /* kernels */
    bool experts, attended;
};

static struct graphs graphs_of(const struct expansion *e)
{
    struct graphs g = {0};
    for (uint32_t i = 0; i < e->noprs; i++)
        g.experts |= e->oprs[i].kind == OPR_EXPERTS;
    return g;
}

/* The graph that an operator would be in: up to the sum behind attention that of attention; of the others, experts
 * and what follows them are in none that is for a part of a layer. */
static enum graph graph_of(struct graphs *g, const struct opr *o, bool layer)
{
    bool attended = g->attended;
    if (!layer)
        return GRAPH_REST;
    g->attended |= o->kind == OPR_ADD;
    if (o->kind == OPR_EXPERTS)
        g->experts = false;
    return !attended ? GRAPH_ATTN : o->kind == OPR_EXPERTS ? GRAPH_REST : g->experts ? GRAPH_ROUTER : GRAPH_MLP;
}

static void count_graphs(struct block *b, struct graphs *g, bool moe)
{
    const struct profile *p = b->c->profile;
    const double share[NGRAPHS] = {p->graph_attn, p->graph_mlp, p->graph_router, p->graph_rest};
    if (moe) { /* what follows the experts */
        g->forward[GRAPH_REST] += g->forward[GRAPH_MLP];
        g->backward[GRAPH_REST] += g->backward[GRAPH_MLP];
        g->forward[GRAPH_MLP] = g->backward[GRAPH_MLP] = 0;
    }
    for (int k = 0; k < NGRAPHS; k++) {
        b->forward_graphed += share[k] * fmax(0, g->forward[k] - 1);
        b->backward_graphed += share[k] * fmax(0, g->backward[k] - 1);
    }
}

/* Adds all operators to b->out and b->walk. */
static void make(struct arena *a, const struct cost *c, const struct expansion *e, bool layer, struct block *b)
{
    const struct decision *d = c->decision;
    const struct train *t = &c->job->train;
    b->c = c;
    b->d = d;
    b->e = b->out.e = e;
    b->walk.queue = b->tp_queue = decision_tp_turns(c->job, d) ? WALK_COMPUTE : WALK_TP;
    b->dtype = t->precision == DT_FP32 ? DTYPE_F32 : DTYPE_BF16;
    if (!layer) { /* the embedding and the head are never recomputed */
        b->whole = *d;
        b->whole.recompute = RECOMPUTE_NONE;
        b->whole.parts = 0;
        b->d = &b->whole;
    }
    b->element = b->dtype == DTYPE_F32 ? 4 : 2;
    b->sequence = (double)t->sequence;
    b->tokens = b->sequence * d->microbatch / d->cp;
    b->rows = d->sp ? b->tokens / d->tp : b->tokens;
    b->cuts = c->profile->allocator < 0.5 ? decision_cuts(c->job, d) : 1;
    b->runs = d->sp ? b->cuts : 1;
    b->walk.arena = a;
    if (b->d->recompute != RECOMPUTE_NONE)
        b->plan = backward_new(a, e, backward_again(b->d->recompute, b->d->parts), decision_exchanges_heads(d));
    b->words = cost_words(a, c, b->d, e, layer);
    double kept_s = 0; /* forward seconds up to the last kept value */
    struct graphs graphs = graphs_of(e);
    bool moe = graphs.experts;
    for (uint32_t i = 0; i < e->noprs; i++) {
        const struct opr *o = &e->oprs[i];
        double before_s = b->out.forward_s + b->out.forward_comm_s;
        double forward = b->forward_kernels, backward = b->backward_kernels;
        b->walk.opr = i;
        if (b->words)
            convert_back(b, i);
        if (o->kind == OPR_LINEAR)
            linear(b, o);
        else if (o->kind == OPR_ATTENTION)
            block_attention(b, o);
        else if (o->kind == OPR_EXPERTS)
            block_experts(b, o);
        else
            plain(b, o);
        if (b->words)
            convert(b, i);
        enum graph graph = graph_of(&graphs, o, layer);
        graphs.forward[graph] += b->forward_kernels - forward;
        graphs.backward[graph] += b->backward_kernels - backward;
        double after_s = b->out.forward_s + b->out.forward_comm_s;
        if (o->kind == OPR_LINEAR || o->kind == OPR_EXPERTS) /* the experts' down projection comes after their last
                                                              * kept value */
            kept_s = before_s + (o->kind == OPR_EXPERTS ? 1 - 1.0 / o->nweights : 0) * (after_s - before_s);
    }
    block_flush_own(b);
    count_graphs(b, &graphs, moe);
    double whole_s = b->out.forward_s + b->out.forward_comm_s;
    b->out.tail = whole_s > 0 ? 1 - kept_s / whole_s : 0;
}

struct cost_block cost_block_make(struct arena *a, const struct cost *c, const struct expansion *e, bool layer,
                                  const struct cost_block *none)
{
    struct arena_mark mark = arena_mark(a);
    struct block b = {.c = c};
    struct walk_strand strand[NPASSES] = {{0}};
    static const uint32_t passes[NPASSES] = {WALK_F, WALK_B, WALK_I, WALK_W};
    make(a, c, e, layer, &b);
    if (b.words)
        none = NULL;
    for (int k = 0; k < (none ? PASS_W : NPASSES); k++)
        strand[k] = walk_strand_new(a, &b.walk, passes[k]);
    expose(&b, strand, layer, none);
    b.out.input_s = b.out.backward_s - b.out.weight_s + b.copies_s;
    b.out.own_forward_s = b.out.forward_s - b.fixed_forward_s;
    b.out.own_backward_s = b.out.backward_s - b.fixed_backward_s;
    double host_s = 1e-6 * c->profile->host_op_us, kernels_s = b.out.backward_s;
    b.out.forward_s = waits(c->profile, b.out.forward_s, b.out.forward_comm_s,
                            host_s * (b.forward_kernels - b.forward_graphed));
    b.out.backward_s = waits(c->profile, b.out.backward_s, b.out.backward_comm_s,
                             host_s * (b.backward_kernels - b.backward_graphed));
    double slower = kernels_s > 0 ? b.out.backward_s / kernels_s : 1;
    b.out.input_s *= slower;
    b.out.weight_s *= slower;
    b.out.again_s *= slower;
    hide(a, &b, strand);
    arena_reset(a, mark);
    cost_keep(a, c, e, layer, &b.out);
    if (b.out.lives && !c->pairs && decision_pairs(c->decision->schedule))
        cost_paired_lives(c, &b.out);
    return b.out;
}

void cost_expansion_walk(struct arena *a, const struct cost *c, const struct expansion *e, bool layer, struct walk *w)
{
    struct block b = {.c = c};
    make(a, c, e, layer, &b);
    *w = b.walk;
}

void cost_block_walk(struct arena *a, const struct cost *c, const struct cost_shape *s, const struct cost_block *block,
                     struct walk *w)
{
    struct decision none = *c->decision;
    struct cost spared = *c;
    none.recompute = RECOMPUTE_NONE;
    none.parts = 0;
    spared.decision = &none;
    bool spares = s->spared != s->layers && block >= s->spared && block < s->spared + s->ndistinct;
    cost_expansion_walk(a, spares ? &spared : c, block->e, block != &s->embed && block != &s->head, w);
}
