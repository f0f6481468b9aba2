/* Vocabulary-parallel token embedding (Shoeybi et al. 2019, section 3) and learned positions.
 * Each tp rank looks up the tokens of its own rows; the sum over tp is the embedding. */

#include "compiler/lower/build.h"

static uint32_t vocab_rows(const struct lower *l)
{
    return (uint32_t)(expand_padded_vocab(l->job->model.vocab, l->d->tp) / l->d->tp);
}

/* ids of the microbatch's tokens, or of their targets, as a piece reads them */
static struct mat ids_of(struct lower *l, uint32_t piece, bool targets)
{
    const struct piece *pc = &l->pieces[piece];
    uint32_t own = targets ? l->chunk->targets_buffer : l->chunk->tokens_buffer, later = targets ? pc->targets : pc->tokens;
    return lower_ring_mat(l, pc->ahead ? later : own, DTYPE_I32, l->tokens, 1);
}

/* First sequence of the microbatch on replica 0, and the distance between replicas.  Prediction modules read tokens of
 * later places; the operands and first attributes of both instructions are the same. */
static void read_tokens(struct lower *l, uint32_t piece, bool targets)
{
    uint32_t ahead = l->pieces[piece].ahead, i = lower_insn(l, ahead ? OP_TOKENS_AHEAD : OP_TOKENS);
    struct mat m = ids_of(l, piece, targets);
    struct mat step = {l->step_block, NONE, 0, 1, STEP_WORDS, STEP_WORDS, DTYPE_F64, NONE, 0};
    if (targets)
        ARG(l, i, TOKENS, targets, m, MARK_WRITE);
    else
        ARG(l, i, TOKENS, tokens, m, MARK_WRITE);
    ARG(l, i, TOKENS, step, step, MARK_READ);
    uint32_t dp = l->d->dp > 1 ? lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_DP]) : NONE;
    ATTR_BIND_SET(l, i, TOKENS, sample, (uint64_t)l->microbatch * l->d->microbatch, dp,
                  (uint64_t)l->d->microbatches * l->d->microbatch);
    ATTR_INT_SET(l, i, TOKENS, sequence, lower_sequence(l));
    lower_places(l, i, ATTR(TOKENS, first), ATTR(TOKENS, shift));
    if (!ahead)
        return;
    ATTR_INT_SET(l, i, TOKENS_AHEAD, ahead, ahead);
    ATTR_INT_SET(l, i, TOKENS_AHEAD, whole, l->job->train.sequence);
}

static uint32_t tp_slot(struct lower *l)
{
    return l->d->tp > 1 ? lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_TP]) : NONE;
}

void lower_embed(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    read_tokens(l, piece, false);
    struct mat y = lower_value(l, piece, o->out), c = lower_partial(l, y);
    uint32_t i = lower_insn(l, OP_EMBED);
    ARG(l, i, EMBED, y, c, MARK_WRITE);
    ARG(l, i, EMBED, tokens, ids_of(l, piece, false), MARK_READ);
    ARG(l, i, EMBED, table, lower_weight(l, piece, o, false), MARK_READ);
    ATTR_BIND_SET(l, i, EMBED, start, 0, tp_slot(l), vocab_rows(l));
    lower_reduce_into(l, c, y);
}

void lower_embed_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct mat dy = lower_output_gradient(l, piece, o->out);
    if (!(l->halves & HALF_WEIGHT))
        return;
    dy = lower_gather(l, "dfull", dy);
    enum mark mark = lower_contribution(l, piece, o->weight);
    uint32_t i = lower_insn(l, OP_EMBED_W);
    ARG(l, i, EMBED_W, dtable, lower_weight(l, piece, o, true), mark);
    ARG(l, i, EMBED_W, dy, dy, MARK_READ);
    ARG(l, i, EMBED_W, tokens, ids_of(l, piece, false), MARK_READ);
    ATTR_BIND_SET(l, i, EMBED_W, start, 0, tp_slot(l), vocab_rows(l));
}

void lower_position(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    for (uint32_t run = 0; run < l->runs; run++) {
        uint32_t i = lower_insn(l, OP_POSITION);
        ARG(l, i, POSITION, y, mat_cut(lower_value(l, piece, o->out), run, l->runs), MARK_WRITE);
        ARG(l, i, POSITION, x, mat_cut(lower_value(l, piece, o->in[0]), run, l->runs), MARK_READ);
        ARG(l, i, POSITION, table, lower_weight(l, piece, o, false), MARK_READ);
        lower_bind_run(l, i, ATTR(POSITION, start), run);
        ATTR_INT_SET(l, i, POSITION, sequence, lower_sequence(l));
        lower_places(l, i, ATTR(POSITION, first), ATTR(POSITION, shift));
    }
}

/* The gradient of what stands before positions is that of the positions, so both share one place; where W still reads
 * the latter and the former is scaled, each has its own. */
static void position_input(struct lower *l, uint32_t piece, const struct opr *o)
{
    struct piece *pc = &l->pieces[piece];
    if (l->halves == (HALF_INPUT | HALF_WEIGHT) || l->job->model.embed_scale == 1) {
        pc->gradient[o->in[0]] = pc->gradient[o->out];
        pc->has_gradient[o->in[0]] = true;
        return;
    }
    enum mark mark;
    struct mat dx = lower_gradient(l, piece, o->in[0], &mark);
    uint32_t i = lower_insn(l, OP_COPY);
    ARG(l, i, COPY, y, dx, mark);
    ARG(l, i, COPY, x, pc->gradient[o->out], MARK_READ);
}

void lower_position_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct mat dy = lower_output_gradient(l, piece, o->out);
    if (l->halves & HALF_INPUT)
        position_input(l, piece, o);
    if (!(l->halves & HALF_WEIGHT))
        return;
    for (uint32_t run = 0; run < l->runs; run++) {
        enum mark mark = lower_contribution(l, piece, o->weight);
        uint32_t i = lower_insn(l, OP_POSITION_W);
        ARG(l, i, POSITION_W, dtable, lower_weight(l, piece, o, true), mark);
        ARG(l, i, POSITION_W, dy, mat_cut(dy, run, l->runs), MARK_READ);
        lower_bind_run(l, i, ATTR(POSITION_W, start), run);
        ATTR_INT_SET(l, i, POSITION_W, sequence, lower_sequence(l));
        lower_places(l, i, ATTR(POSITION_W, first), ATTR(POSITION_W, shift));
    }
}

/* The loss is vocabulary-parallel: row maxima, then sums and target logits, are reduced over tp; no rank ever holds all
 * logits of a row.  It is the mean over the step's targets; only tp rank 0's share counts in the metrics. */
static void targets_and_sums(struct lower *l, struct mat targets, struct mat logits, struct mat max, struct mat sum)
{
    uint32_t i = lower_insn(l, OP_XENT_MAX);
    ARG(l, i, XENT_MAX, max, max, MARK_WRITE);
    ARG(l, i, XENT_MAX, logits, logits, MARK_READ);
    ATTR_BIND_SET(l, i, XENT_MAX, start, 0, tp_slot(l), vocab_rows(l));
    ATTR_INT_SET(l, i, XENT_MAX, vocab, l->job->model.vocab);
    if (l->d->tp > 1) {
        lower_collective(l, OP_ALL_REDUCE, QUEUE_TP, l->mesh.dim[MESH_TP], max, max);
        ATTR_INT_SET(l, l->p->ninsns - 1, ALL_REDUCE, max, 1);
    }
    i = lower_insn(l, OP_XENT_SUM);
    ARG(l, i, XENT_SUM, sum, sum, MARK_WRITE);
    ARG(l, i, XENT_SUM, logits, logits, MARK_READ);
    ARG(l, i, XENT_SUM, max, max, MARK_READ);
    ARG(l, i, XENT_SUM, targets, targets, MARK_READ);
    ATTR_BIND_SET(l, i, XENT_SUM, start, 0, tp_slot(l), vocab_rows(l));
    ATTR_INT_SET(l, i, XENT_SUM, vocab, l->job->model.vocab);
    if (l->d->tp > 1)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_TP, l->mesh.dim[MESH_TP], sum, sum);
}

/* a prediction module's loss counts its weight, shared among the modules, over as many places though some are masked */
static double loss_scale(const struct lower *l, bool ahead)
{
    const struct model *m = &l->job->model;
    double mean = 1 / ((double)l->job->train.sequence * (double)l->job->train.batch);
    return ahead ? m->predict_weight / m->predict * mean : mean;
}

void lower_loss(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct mat logits = lower_value(l, piece, o->in[0]);
    struct mat max = lower_aux(l, piece, opr, 0), sum = lower_aux(l, piece, opr, 1);
    read_tokens(l, piece, true);
    targets_and_sums(l, ids_of(l, piece, true), logits, max, sum);
    if (l->pieces[piece].ahead) /* the loss that is printed is the next token's */
        return;
    struct mat loss = {l->metrics, NONE, METRIC_LOSS * sizeof(double), 1, 1, 1, DTYPE_F64, NONE, 0};
    uint32_t i = lower_insn(l, OP_XENT_LOSS);
    ARG(l, i, XENT_LOSS, loss, loss, MARK_ADD);
    ARG(l, i, XENT_LOSS, sum, sum, MARK_READ);
    ATTR_REAL_SET(l, i, XENT_LOSS, scale, loss_scale(l, false));
    bool shared = l->d->tp > 1;
    ATTR_BIND_SET(l, i, XENT_LOSS, count, shared ? 0 : 1, shared ? lower_slot(l, SLOT_FIRST, l->mesh.dim[MESH_TP]) : NONE, 1);
}

void lower_loss_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct mat logits = lower_value(l, piece, o->in[0]);
    uint32_t i = lower_insn(l, OP_XENT_I);
    ARG(l, i, XENT_I, dlogits, logits, MARK_WRITE);
    ARG(l, i, XENT_I, logits, logits, MARK_READ);
    ARG(l, i, XENT_I, max, lower_aux(l, piece, opr, 0), MARK_READ);
    ARG(l, i, XENT_I, sum, lower_aux(l, piece, opr, 1), MARK_READ);
    ARG(l, i, XENT_I, targets, ids_of(l, piece, true), MARK_READ);
    ATTR_BIND_SET(l, i, XENT_I, start, 0, tp_slot(l), vocab_rows(l));
    ATTR_INT_SET(l, i, XENT_I, vocab, l->job->model.vocab);
    ARG(l, i, XENT_I, by, lower_loss_factor(l), MARK_READ);
    ATTR_REAL_SET(l, i, XENT_I, scale, loss_scale(l, pc->ahead));
    pc->gradient[o->in[0]] = logits; /* in place: the logits are not needed again */
    pc->has_gradient[o->in[0]] = true;
}
