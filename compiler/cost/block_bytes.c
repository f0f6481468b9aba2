/* The bytes of a layer, the embedding or the head on one rank: kept from forward to backward, temporaries, and
 * parameters, by rules per operator.
 *
 * Which values are kept from the forward to the backward pass follows from what the latter reads: norms, products
 * and activation functions need their input, attention its input, output and log-sum-exp, the loss its logits.
 * Everything else is a temporary. Recomputation takes values off that list.  For a dense GPT layer with dropout and
 * unfused attention this gives sbh (34 + 5as/h), split over tp as in equations 1 to 6 of Korthikanti et al. 2022.
 *
 * What a stack does differently is in its profile: masks of dropout, attention scores, logits in fp32, whole
 * gradients of vocabulary matrices. */

#include "compiler/cost/cost_private.h"
#include "compiler/model/backward.h"

#include <math.h>
#include <string.h>

struct keep {
    const struct cost *c;
    const struct expansion *e;
    enum recompute recompute; /* of this block: the embedding and the head are never recomputed */
    uint32_t parts;
    double element, tokens, rows; /* tokens of a microbatch on this rank; rows of a TOKENS value (split under SP) */
    uint8_t *kept;                /* by value */
    const uint8_t *eight;         /* by value, for llmrun where it keeps 8 bits: number of parts in 8 bits; else NULL */
    double gradients;             /* the most bytes of gradient temporaries of any operator */
    double sequence;
    double spared; /* bytes that recomputation takes off `extra` */
    double eager;  /* bytes of copies that unfused operators keep */
    double stack;  /* of extra: bytes that llmrun does not keep */
    double extra;  /* bytes kept besides values: statistics, log-sum-exp, masks, routing */
    struct cost_block *out;
};

static double value_bytes(const struct keep *b, uint32_t v)
{
    if (v == NONE)
        return 0;
    const struct opr_value *value = &b->e->values[v];
    double cols = expand_own_cols(value, b->c->decision->tp);
    return b->element * (value->class == CLASS_COLS ? b->tokens * cols : b->rows * (double)value->cols);
}

/* Marks the values that the backward pass reads, by operator kind; kept: by value. */
static void find_kept(const struct expansion *e, uint8_t *kept)
{
    memset(kept, 0, e->nvalues);
    for (uint32_t i = 0; i < e->noprs; i++) {
        const struct opr *o = &e->oprs[i];
        if (backward_reads_input(o) && o->in[0] != NONE)
            kept[o->in[0]] = 1;
        if (backward_reads_input(o) && o->in[1] != NONE)
            kept[o->in[1]] = 1;
        if (backward_reads_output(o))
            kept[o->out] = 1;
    }
}

static bool recomputes(const struct keep *b, uint32_t part)
{
    return b->recompute == RECOMPUTE_FULL || (b->recompute == RECOMPUTE_SELECTIVE && (b->parts & part));
}

/* llmrun rounds to 8 bits when products read and keeps 16 bits, unless the job asks it to keep 8 */
static bool keeps_fp8(const struct keep *b)
{
    return b->c->job->train.precision == DT_FP8 && (b->c->buffers->allocator > 0.5 || b->c->job->train.fp8_kept);
}

#define EIGHT_OF_SIXTEEN (33.0 / 64) /* with one scale per 128 numbers */

/* Bytes of a value from forward to backward.  fp8 stacks keep values that only products read in the format they are
 * read in and, where the job asks for it, also those that gates read (DeepSeek-V3 report, section 3.3.3). */
static double kept_bytes(const struct keep *b, uint32_t v)
{
    bool products = keeps_fp8(b);
    if (b->eight)
        return b->kept[v] ? value_bytes(b, v) * (b->eight[v] ? EIGHT_OF_SIXTEEN : 1) : 0;
    for (uint32_t i = 0; i < b->e->noprs && products; i++) {
        const struct opr *o = &b->e->oprs[i];
        bool reads = o->in[0] == v || o->in[1] == v || (o->kind == OPR_ATTENTION && o->out == v);
        products = !reads || o->kind == OPR_LINEAR || o->kind == OPR_EXPERTS || o->kind == OPR_ROUTER ||
                   (o->kind == OPR_ACT && b->c->job->train.fp8_kept);
    }
    return b->kept[v] ? value_bytes(b, v) * (products ? 0.5 : 1) : 0;
}

static void experts(struct keep *b, const struct opr *o)
{
    const struct moe *m = o->moe;
    const struct decision *d = b->c->decision;
    double h = (double)b->c->job->model.width, w = (double)m->expert.width / d->etp, parts = o->nweights - 1;
    double routed = b->tokens / d->tp * m->active * cost_rows_kept(b->c, m) * d->etp;
    double in = b->element * routed * h, hidden = b->element * routed * w;
    double less = b->eight ? EIGHT_OF_SIXTEEN : 0.5, fp8 = keeps_fp8(b) ? less : 1;
    double kept = fp8 * in + (b->c->job->train.fp8_kept ? less : 1) * hidden * parts +
                  (recomputes(b, PART_MOE_ACT) ? 0 : fp8 * hidden);
    double far = cost_far_rows(b->c, m, b->tokens / d->tp);
    kept += 8 * far * m->active; /* of rows that arrived at this node: the places of their choices, and the weights */
    b->extra += recomputes(b, PART_MOE) ? 0 : kept;
    b->spared += recomputes(b, PART_MOE) ? kept : 0;
    /* rows that arrived, their gradients, and the same on the sender's side; the weighted activation, its gradient
     * twice, and the gradients of its inputs */
    b->gradients = fmax(b->gradients, (d->ep > 1 ? 3 : 2) * in + 2 * b->element * far * h + hidden * (parts + 3));
}

/* Scores of unfused attention: the softmax's output and, with dropout, its mask and its output (Korthikanti et al.,
 * section 4.1: 2as^2b + as^2b + 2as^2b); fused attention keeps one fp32 statistic per row and head. */
static void attention(struct keep *b, const struct opr *o)
{
    const struct attn *t = o->attn;
    const struct profile *p = b->c->buffers;
    double heads = (double)t->heads / b->c->decision->tp, rows = b->tokens * heads;
    double window = t->window  ? fmin(t->window, b->sequence)
                    : t->chunk ? (double)attn_reach(t, (uint64_t)b->sequence)
                               : b->sequence;
    double scores = rows *
                    (p->keeps_scores > 0.5 ? window * (b->element + (p->dropout > 0.5 ? b->element + 1 : 0)) : 4);
    if (recomputes(b, PART_CORE_ATTN))
        b->spared += scores;
    else {
        b->extra += scores;
        b->stack += scores - 4 * rows;
    }
    /* attention with exchanged heads also keeps its output in its own layout: the following product reads the local
     * one */
    if (decision_exchanges_heads(b->c->decision) && !recomputes(b, PART_CORE_ATTN))
        b->extra += value_bytes(b, o->out);
}

/* The number of key heads of a rank. */
static double own_keys(const struct opr *o, uint32_t tp)
{
    return (double)o->attn->kv / model_key_parts(o->attn->kv, tp);
}

static void operator(struct keep *b, uint32_t i)
{
    const struct opr *o = &b->e->oprs[i];
    double in = value_bytes(b, o->in[0]), in2 = value_bytes(b, o->in[1]), out = value_bytes(b, o->out);
    const struct profile *p = b->c->buffers;
    const struct decision *d = b->c->decision;
    double mask = p->dropout > 0.5 ? out / b->element : 0; /* one byte per element */
    switch (o->kind) {
    case OPR_NORM:
        b->extra += 4 * b->rows * (b->c->job->model.norm.kind == NORM_LAYER ? 2 : 1);
        break;
    case OPR_LINEAR:
        /* the gradient of the logits overwrites them */
        if (i + 1 < b->e->noprs && o[1].kind == OPR_LOSS)
            out = 0;
        b->gradients = fmax(b->gradients, in + out);
        break;
    case OPR_ATTENTION:
        attention(b, o);
        b->gradients = fmax(b->gradients, in + in2 + out);
        break;
    case OPR_ACT:
        if (in > 1.5 * out && !recomputes(b, opr_word(o)))
            b->eager += p->eager * out;
        b->gradients = fmax(b->gradients, in + out);
        break;
    case OPR_EMBED:
        b->extra += 4 * b->tokens + mask;
        break;
    case OPR_LOSS:
        b->extra += 16 * b->tokens;
        break;
    case OPR_ROUTER:
        b->extra += recomputes(b, opr_word(o)) ? 0 : 2 * out;
        b->spared += recomputes(b, opr_word(o)) ? 2 * out : 0;
        break;
    case OPR_EXPERTS:
        experts(b, o);
        break;
    case OPR_ADD:
        b->extra += mask;
        b->stack += mask;
        break;
    case OPR_ROPE:
        b->eager += p->eager * b->element * b->tokens * ((double)o->attn->heads / d->tp + own_keys(o, d->tp)) *
                    o->attn->head;
        break;
    case OPR_HEADNORM:
        b->extra += 4 * b->tokens * (o->keys ? own_keys(o, d->tp) : (double)o->attn->heads / d->tp);
        break;
    case OPR_KEYS:
    case OPR_CONCAT:
    case OPR_SOFTCAP:
        b->gradients = fmax(b->gradients, in + out);
        break;
    case OPR_SCALE:
    case OPR_POSITION:
        break;
    }
}

/* Is the last product of operator i kept?  PyTorch's example of selective checkpointing recomputes every second
 * product, in order, keeps attention's outputs, and recomputes everything else. */
static bool keeps_product(const struct keep *b, uint32_t i)
{
    uint32_t products = 0;
    for (uint32_t k = 0; k <= i; k++)
        products += b->e->oprs[k].kind == OPR_LINEAR ? b->e->oprs[k].nweights : 0;
    return products % 2;
}

/* Does 'recompute selective' without parts mean every second product, as in PyTorch's example? */
static bool recomputes_products(const struct cost *c, const struct decision *d)
{
    return c->buffers->selective_products > 0.5 && d->recompute == RECOMPUTE_SELECTIVE && d->parts == PART_CORE_ATTN;
}

/* The bytes kept in that case; of a stacked product (q, k and v; gate and up) the kept share by columns. */
static double selective_bytes(struct keep *b)
{
    const struct expansion *e = b->e;
    double bytes = value_bytes(b, 0);
    for (uint32_t i = 0; i < e->noprs; i++) {
        const struct opr *o = &e->oprs[i];
        if (o->kind == OPR_ATTENTION)
            bytes += value_bytes(b, o->out);
        if (o->kind != OPR_LINEAR || o->out == NONE)
            continue;
        double all = 0, kept = 0;
        for (uint32_t w = 0; w < o->nweights; w++)
            all += (double)e->weights[o->weight + w].rows;
        bool last = keeps_product(b, i); /* of the operator's last product; going backwards they alternate */
        for (uint32_t w = o->nweights; w-- > 0; last = !last)
            kept += last ? (double)e->weights[o->weight + w].rows : 0;
        bytes += all > 0 ? value_bytes(b, o->out) * kept / all : 0;
    }
    return bytes;
}

/* Unmarks the values that selective recomputation recomputes.  With other stacks than llmrun, attention with
 * exchanged heads keeps its output. */
static void forget(struct arena *a, struct keep *b)
{
    const struct decision *d = b->c->decision;
    bool exchanges = b->c->buffers->allocator < 0.5 && decision_exchanges_heads(d);
    const bool *dropped = backward_dropped(a, b->e, b->parts, exchanges);
    for (uint32_t v = 0; v < b->e->nvalues; v++)
        b->kept[v] = b->kept[v] && !dropped[v];
}

static void count_weights(struct keep *b)
{
    const struct decision *d = b->c->decision;
    double split[2] = {0}; /* elements of matrices whole on every rank, and split over tp */
    bool early[2] = {false};
    for (uint32_t i = 0; i < b->e->noprs; i++) {
        const struct opr *o = &b->e->oprs[i];
        bool vocabulary = o->kind == OPR_EMBED || !strcmp(o->name, "head");
        b->out->early |= o->nweights && !b->e->weights[o->weight].vector && !expand_puts_off(b->e, o);
        for (uint32_t w = o->weight; w < o->bias + o->nbiases; w++) {
            const struct opr_weight *t = &b->e->weights[w];
            double rows = (double)t->rows;
            if (t->shared_with != WEIGHT_OWN)
                continue;
            if (vocabulary && t->rows == b->c->job->model.vocab && !t->vector)
                rows = (double)expand_padded_vocab(t->rows, d->tp);
            double n = rows * (double)t->cols, own = t->split == SPLIT_NONE ? n : n / expand_parts(t, d->tp);
            bool keys = t->split != SPLIT_NONE && expand_parts(t, d->tp) < d->tp;
            *(t->vector ? &b->out->key_vectors : &b->out->key_matrices) += keys ? own : 0;
            b->out->shapes += o->kind == OPR_EXPERTS ? n / o->moe->experts / d->etp : t->vector ? 0 : own;
            if (o->kind == OPR_EXPERTS)
                b->out->experts += n / d->ep / d->etp;
            else if (!t->vector) {
                b->out->matrices += own;
                split[t->split != SPLIT_NONE] += own;
                early[t->split != SPLIT_NONE] |= !expand_puts_off(b->e, o);
                b->out->whole_late |= t->split == SPLIT_NONE && expand_puts_off(b->e, o);
            } else if (t->split == SPLIT_NONE)
                b->out->vectors_whole += own;
            else
                b->out->vectors_split += own;
        }
    }
    b->out->whole_matrices = split[0];
    for (int k = 0; k < 2; k++)
        b->out->early_matrices += early[k] ? split[k] : 0;
}

static double kept_values(const struct keep *b)
{
    double bytes = b->extra;
    for (uint32_t v = 0; v < b->e->nvalues; v++)
        bytes += kept_bytes(b, v);
    return bytes;
}

/* The bytes that the operators of a prediction module's head keep, which are never recomputed. */
static double kept_behind(struct arena *a, struct keep *b)
{
    const struct expansion *e = b->e;
    struct keep head = *b;
    struct expansion last = *e;
    if (e->again >= e->noprs)
        return 0;
    last.oprs += e->again;
    last.noprs -= e->again;
    head.e = &last;
    head.extra = 0;
    head.recompute = RECOMPUTE_NONE;
    head.kept = ARENA_ARRAY(a, uint8_t, e->nvalues + 1);
    find_kept(&last, head.kept);
    for (uint32_t i = 0; i < last.noprs; i++)
        operator(&head, i);
    return kept_values(&head);
}

/* The loss of a stack that computes it from copies: nothing of the logits is kept, and the softmax and its gradient
 * are temporaries of the head.  The head's backward pass holds the logits' gradient, the whole gradient of the
 * matrix where the stack makes one, and the gradient and the gathered input of the residual stream. */
static void loss_buffers(struct keep *b)
{
    const struct profile *p = b->c->buffers;
    const struct decision *d = b->c->decision;
    const struct expansion *e = b->e;
    double width = (double)b->c->job->model.width, stream = b->tokens * b->element * width;
    for (uint32_t i = 1; i < e->noprs; i++) {
        if (e->oprs[i].kind != OPR_LOSS)
            continue;
        uint32_t logits = e->oprs[i].in[0];
        double rows = (double)expand_padded_vocab(b->c->job->model.vocab, d->tp), n = b->tokens * rows / d->tp;
        b->kept[logits] = 0;
        double matrix = p->whole_gradients > 0.5 ? b->element * rows * width / d->tp : 0;
        double backward = b->element * n + matrix + (d->sp ? 3 : 1) * stream;
        const double bytes[NLOSSES] = {
            [LOSS_WHOLE] = p->loss_bytes * n * d->tp,
            [LOSS_SPLIT] = p->loss_bytes * n,
            [LOSS_PARALLEL] = (p->loss_parallel > 0 ? p->loss_parallel : p->loss_bytes) * n,
            [LOSS_LEAST] = (p->loss_least > 0 ? p->loss_least : p->loss_bytes) * n,
        };
        for (int k = 0; k < NLOSSES; k++)
            b->out->loss_bytes[k] = fmax(bytes[k] + (d->sp ? 2 : 1) * stream, backward);
    }
}

/* Bytes from I to W: gradients of products' outputs, and inputs of products where these are recomputed.  The loss's
 * gradient is in the logits' buffer. */
static double late_bytes(struct arena *a, const struct keep *b)
{
    double bytes = 0;
    uint8_t *seen = ARENA_ARRAY(a, uint8_t, b->e->nvalues + 1);
    for (uint32_t i = 0; i < b->e->noprs; i++) {
        const struct opr *o = &b->e->oprs[i];
        bool head = i + 1 < b->e->noprs && o[1].kind == OPR_LOSS;
        if (o->kind != OPR_LINEAR || !expand_puts_off(b->e, o))
            continue;
        bool again = o->in[0] != 0 && (b->recompute == RECOMPUTE_FULL || !b->kept[o->in[0]]);
        bytes += (head ? 0 : value_bytes(b, o->out)) + (again && !seen[o->in[0]] ? value_bytes(b, o->in[0]) : 0);
        seen[o->in[0]] = 1;
    }
    return bytes;
}

/* Of the kept values, bytes of those that products read whose weight gradients are made by W. */
static double waits_bytes(struct arena *a, const struct keep *b)
{
    double bytes = 0;
    uint8_t *seen = ARENA_ARRAY(a, uint8_t, b->e->nvalues + 1);
    for (uint32_t i = 0; i < b->e->noprs; i++) {
        const struct opr *o = &b->e->oprs[i];
        if (o->kind != OPR_LINEAR || !expand_puts_off(b->e, o))
            continue;
        uint32_t reads[] = {o->in[0], !strcmp(o->name, "head") ? o->out : NONE};
        for (int k = 0; k < 2; k++)
            if (reads[k] != NONE && !seen[reads[k]]++ && b->recompute != RECOMPUTE_FULL)
                bytes += kept_bytes(b, reads[k]);
    }
    return bytes;
}

void cost_keep(struct arena *a, const struct cost *c, const struct expansion *e, bool layer, struct cost_block *out)
{
    const struct decision *d = c->decision;
    struct keep b = {.c = c, .e = e, .out = out};
    b.recompute = layer ? d->recompute : RECOMPUTE_NONE;
    b.parts = layer ? d->parts : 0;
    b.element = c->job->train.precision == DT_FP32 ? 4 : 2;
    b.sequence = (double)c->job->train.sequence;
    b.tokens = b.sequence * d->microbatch / d->cp;
    b.rows = d->sp ? b.tokens / d->tp : b.tokens;
    b.kept = ARENA_ARRAY(a, uint8_t, e->nvalues + 1);
    find_kept(e, b.kept);
    if (c->buffers->allocator < 0.5 && c->job->train.fp8_kept)
        b.eight = layer ? backward_eight(a, e) : ARENA_ARRAY(a, uint8_t, e->nvalues + 1);
    for (uint32_t i = 0; i < e->noprs; i++)
        operator(&b, i);
    count_weights(&b);
    if (c->buffers->loss_bytes > 0)
        loss_buffers(&b);
    double all = kept_values(&b) + b.spared, kept = all - b.spared, again;
    if (b.recompute == RECOMPUTE_SELECTIVE && recomputes_products(c, d)) {
        kept = fmin(kept, selective_bytes(&b));
    } else if (b.recompute == RECOMPUTE_SELECTIVE) {
        forget(a, &b);
        kept = kept_values(&b);
    }
    if (b.recompute == RECOMPUTE_FULL)
        kept = value_bytes(&b, 0) + kept_behind(a, &b);
    double stream_bytes = b.rows * b.element * (double)c->job->model.width;
    double gathered = d->sp ? b.tokens * b.element * (double)c->job->model.width : 0;
    out->keep_bytes = kept;
    out->late_bytes = late_bytes(a, &b);
    out->waits_bytes = waits_bytes(a, &b);
    out->stack_bytes = b.recompute == RECOMPUTE_FULL || recomputes_products(c, d) ? 0 : b.stack;
    out->eager_bytes = b.recompute == RECOMPUTE_FULL || recomputes_products(c, d) ? 0 : b.eager;
    again = all - kept + b.eager - out->eager_bytes;
    out->forward_bytes = 2 * stream_bytes + gathered + again;
    out->backward_bytes = stream_bytes + b.gradients + 2 * gathered + again;
    if (c->buffers->allocator > 0.5)
        return;
    enum lives_kind kind = layer                          ? e->again < e->noprs ? LIVES_PREDICT : LIVES_LAYER
                           : e->oprs[0].kind == OPR_EMBED ? LIVES_EMBED
                                                          : LIVES_HEAD;
    out->lives = ARENA_NEW(a, struct cost_lives_later);
    *out->lives = (struct cost_lives_later){.e = e, .kind = kind, .recompute = d->recompute, .parts = d->parts};
    out->lives->arena = c->pairs ? moments_arena(c->pairs) : a;
}
