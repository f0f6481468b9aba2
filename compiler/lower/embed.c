/* Vocabulary-parallel token embedding (Shoeybi et al. 2019, section 3) and learned positions.  Each tp rank looks up
 * the tokens that are in its own rows of the table; the sum over tp is the embedding. */

#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"
#include "compiler/lower/operators.h"
#include "compiler/lower/step.h"

static uint32_t vocab_rows(const struct lower *l)
{
    return (uint32_t)(expand_padded_vocab(l->job->model.vocab, l->d->tp) / l->d->tp);
}

/* ids of the microbatch's tokens or targets, as a piece reads them */
static struct mat ids_of(struct lower *l, uint32_t piece, bool targets)
{
    const struct piece *pc = &l->pieces[piece];
    uint32_t own = targets ? l->chunk->targets_buffer : l->chunk->tokens_buffer,
             later = targets ? pc->targets : pc->tokens;
    return lower_ring_mat(l, pc->ahead ? later : own, DTYPE_I32, l->tokens, 1);
}

/* Reads the ids of the microbatch's tokens or targets; for a prediction module those of later positions. */
static void read_tokens(struct lower *l, uint32_t piece, bool targets)
{
    struct mat ids = ids_of(l, piece, targets), tokens = targets ? mat_none() : ids;
    uint32_t ahead = l->pieces[piece].ahead;
    if (!targets)
        ids = mat_none();
    if (!ahead)
        EMIT(l, TOKENS, .tokens = tokens, .targets = ids, .step = lower_step_block(l), .sample = lower_sample(l),
             .sequence = lower_sequence(l), .first = lower_first(l), .shift = lower_shift(l));
    else
        EMIT(l, TOKENS_AHEAD, .tokens = tokens, .targets = ids, .step = lower_step_block(l), .sample = lower_sample(l),
             .sequence = lower_sequence(l), .first = lower_first(l), .shift = lower_shift(l), .ahead = ahead,
             .whole = (int64_t)l->job->train.sequence);
}

/* number of this rank's first row of the table */
static struct bind vocab_start(struct lower *l)
{
    return l->d->tp > 1 ? bind_to(0, lower_slot(l, SLOT_COORD, l->mesh.dim[MESH_TP]), vocab_rows(l)) : bind_at(0);
}

void lower_embed(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    read_tokens(l, piece, false);
    struct mat y = lower_value(l, piece, o->out), c = lower_partial(l, y);
    EMIT(l, EMBED, .y = c, .tokens = ids_of(l, piece, false), .table = lower_weight(l, piece, o, false),
         .start = vocab_start(l));
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
    EMIT(l, EMBED_W, .dtable = mat_by(lower_weight(l, piece, o, true), mark), .dy = dy,
         .tokens = ids_of(l, piece, false), .start = vocab_start(l));
}

void lower_position(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    for (uint32_t run = 0; run < l->runs; run++) {
        EMIT(l, POSITION, .y = mat_cut(lower_value(l, piece, o->out), run, l->runs),
             .x = mat_cut(lower_value(l, piece, o->in[0]), run, l->runs), .table = lower_weight(l, piece, o, false),
             .start = lower_run_start(l, run), .sequence = lower_sequence(l), .first = lower_first(l),
             .shift = lower_shift(l));
    }
}

/* Adding positions passes the gradient on unchanged, so input and output share one buffer for it.  Where W still
 * reads the output's gradient and the input's is scaled afterwards, each has its own. */
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
    EMIT(l, COPY, .y = dx, .x = pc->gradient[o->out]);
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
        EMIT(l, POSITION_W, .dtable = mat_by(lower_weight(l, piece, o, true), mark), .dy = mat_cut(dy, run, l->runs),
             .start = lower_run_start(l, run), .sequence = lower_sequence(l), .first = lower_first(l),
             .shift = lower_shift(l));
    }
}

/* The loss is vocabulary-parallel: row maxima, then sums and target logits, are reduced over tp; no rank ever holds all
 * logits of a row.  It is the mean over the step's targets; only tp rank 0's share counts in the metrics. */
static void targets_and_sums(struct lower *l, struct mat targets, struct mat logits, struct mat max, struct mat sum)
{
    EMIT(l, XENT_MAX, .max = max, .logits = logits, .start = vocab_start(l), .vocab = (int64_t)l->job->model.vocab);
    if (l->d->tp > 1)
        lower_maximum(l, QUEUE_TP, l->mesh.dim[MESH_TP], max);
    EMIT(l, XENT_SUM, .sum = sum, .logits = logits, .max = max, .targets = targets, .start = vocab_start(l),
         .vocab = (int64_t)l->job->model.vocab);
    if (l->d->tp > 1)
        lower_collective(l, OP_ALL_REDUCE, QUEUE_TP, l->mesh.dim[MESH_TP], sum, sum);
}

/* A factor on the sum of losses that makes it a mean.  A prediction module's loss is weighted by its share of the
 * modules' weight, and divided by as many positions, although some of them are masked. */
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
    if (l->pieces[piece].ahead) /* the loss that is reported is that of the next token */
        return;
    struct bind count = l->d->tp > 1 ? bind_to(0, lower_slot(l, SLOT_FIRST, l->mesh.dim[MESH_TP]), 1) : bind_at(1);
    EMIT(l, XENT_LOSS, .loss = mat_add(lower_metric(l, METRIC_LOSS, 1)), .sum = sum, .scale = loss_scale(l, false),
         .count = count);
}

void lower_loss_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    struct piece *pc = &l->pieces[piece];
    const struct opr *o = &pc->e->oprs[opr];
    struct mat logits = lower_value(l, piece, o->in[0]);
    EMIT(l, XENT_I, .dlogits = logits, .logits = logits, .max = lower_aux(l, piece, opr, 0),
         .sum = lower_aux(l, piece, opr, 1), .targets = ids_of(l, piece, true), .start = vocab_start(l),
         .vocab = (int64_t)l->job->model.vocab, .by = lower_loss_factor(l), .scale = loss_scale(l, pc->ahead));
    pc->gradient[o->in[0]] = logits; /* in place: the logits are not needed again */
    pc->has_gradient[o->in[0]] = true;
}
