/* Linear layers: y = x W' + b.
 *
 * Column-parallel (TOKENS -> COLS): the weight's output rows are split over tp.  Row-parallel (COLS -> TOKENS): its
 * input columns are split, and the products are partial sums.  Whole (TOKENS -> TOKENS, latent attention's
 * down-projections): every rank has the whole weight and works on its own rows; nothing is gathered or reduced
 * except, under sequence parallelism, the weight's gradient, like that of a norm.  Input gradient dx = dy W, weight
 * gradient dW = dy' x; the former is issued first so that its reduction over tp overlaps with the latter.
 *
 * Weights of one operator that are in two buckets (those of queries in one; of keys and values, where tp has more
 * ranks than there are key/value heads, in another) are two products, side by side in y.  If the backward is split,
 * I and W each gather what they need.  Shapes per rank: x [t, k], W [n, k], y [t, n]. */

#include "compiler/lower/build.h"
#include "compiler/lower/collect.h"
#include "compiler/lower/operators.h"

/* the recipe's number in isa.def if the product is computed in 8 bits; 0 for the head, as for everything outside of
 * layers */
static int64_t rounding(const struct lower *l, const struct opr *o)
{
    return strcmp(o->name, "head") ? lower_fp8(l) : 0;
}

static bool gathers(const struct piece *pc, const struct opr *o)
{
    return !o->row_parallel && pc->e->values[o->out].class == CLASS_COLS;
}

/* the weights of an operator that are in one bucket, and the columns of its output that they compute */
struct part {
    struct opr o;
    uint32_t first, cols;
};

static uint32_t parts_of(const struct lower *l, uint32_t piece, const struct opr *o, struct part part[2])
{
    const struct weight_place *w = &l->pieces[piece].weights[o->weight];
    uint32_t own = 0, rows[2] = {0, 0};
    while (own < o->nweights && w[own].bucket == w[0].bucket)
        own++;
    for (uint32_t k = 0; k < o->nweights; k++)
        rows[k >= own] += w[k].rows;
    part[0] = part[1] = (struct part){.o = *o, .cols = rows[0]};
    if (own == o->nweights)
        return 1;
    part[0].o.nweights = own;
    part[0].o.nbiases = o->nbiases ? own : 0;
    part[1].o.weight += own;
    part[1].o.nweights -= own;
    part[1].o.bias += part[0].o.nbiases;
    part[1].o.nbiases -= part[0].o.nbiases;
    part[1].first = rows[0];
    part[1].cols = rows[1];
    return 2;
}

void lower_linear(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    struct mat x = lower_value(l, piece, o->in[0]), y = lower_value(l, piece, o->out);
    struct mat a = gathers(&l->pieces[piece], o) ? lower_gather(l, "full", x) : x;
    struct mat c = o->row_parallel ? lower_partial(l, y) : y;
    uint32_t cuts = o->row_parallel ? l->cuts : l->runs;
    struct part part[2];
    uint32_t n = parts_of(l, piece, o, part);
    for (uint32_t cut = 0; cut < cuts; cut++) {
        for (uint32_t k = 0; k < n; k++) {
            EMIT(l, MATMUL_NT, .c = mat_write(mat_cut(mat_columns(c, part[k].first, part[k].cols), cut, cuts)),
                 .a = mat_cut(a, cut, cuts), .b = lower_weight(l, piece, &part[k].o, false),
                 .bias = lower_vectors(l, piece, &part[k].o, false), .fp8 = rounding(l, o));
        }
        if (o->row_parallel)
            lower_reduce_cut(l, c, y, cut);
    }
}

/* If the gradient already has other contributions, this one is reduced first and then added. */
static void input_gradient(struct lower *l, uint32_t piece, const struct opr *o, struct mat dy)
{
    enum mark mark;
    struct mat dx = lower_gradient(l, piece, o->in[0], &mark), sum = dx;
    bool reduces = gathers(&l->pieces[piece], o) && l->d->tp > 1;
    if (reduces && mark == MARK_ADD)
        sum = lower_temp(l, "dsum", dx.dtype, dx.rows, dx.cols);
    struct mat c = reduces ? lower_partial(l, sum) : dx;
    uint32_t cuts = reduces ? l->cuts : l->runs;
    struct part part[2];
    uint32_t n = parts_of(l, piece, o, part);
    for (uint32_t cut = 0; cut < cuts; cut++) {
        for (uint32_t k = 0; k < n; k++) {
            EMIT(l, MATMUL_NN,
                 .c = mat_by(mat_cut(c, cut, cuts), k         ? MARK_ADD
                                                    : reduces ? MARK_WRITE
                                                              : mark),
                 .a = mat_cut(mat_columns(dy, part[k].first, part[k].cols), cut, cuts),
                 .b = lower_weight(l, piece, &part[k].o, false), .fp8 = rounding(l, o));
        }
        if (reduces)
            lower_reduce_cut(l, c, sum, cut);
    }
    if (!reduces || mark == MARK_WRITE)
        return;
    EMIT(l, ADD, .y = mat_add(dx), .a = sum);
}

static void weight_gradient_of(struct lower *l, uint32_t piece, const struct opr *o, struct mat dy, struct mat x)
{
    struct part part[2];
    uint32_t n = parts_of(l, piece, o, part);
    for (uint32_t k = 0; k < n; k++) {
        const struct opr *p = &part[k].o;
        struct mat mine = mat_columns(dy, part[k].first, part[k].cols);
        enum mark mark = lower_contribution(l, piece, p->weight);
        EMIT(l, MATMUL_TN, .c = mat_by(lower_weight(l, piece, p, true), mark), .a = mine, .b = x,
             .fp8 = rounding(l, o));
        if (!p->nbiases)
            continue;
        mark = lower_contribution(l, piece, p->bias);
        EMIT(l, BIAS_W, .db = mat_by(lower_vectors(l, piece, p, true), mark), .dy = mine);
    }
}

/* Run by run for this rank's rows, at once for whole rows. */
static void weight_gradient(struct lower *l, uint32_t piece, const struct opr *o, struct mat dy, struct mat x)
{
    uint32_t runs = dy.rows == l->local ? l->runs : 1;
    for (uint32_t run = 0; run < runs; run++)
        weight_gradient_of(l, piece, o, mat_cut(dy, run, runs), mat_cut(x, run, runs));
}

void lower_linear_back(struct lower *l, uint32_t piece, uint32_t opr)
{
    const struct opr *o = &l->pieces[piece].e->oprs[opr];
    bool weight = l->halves & HALF_WEIGHT || l->undivided;
    struct mat dy = lower_output_gradient(l, piece, o->out), x = {.buffer = NONE};
    if (weight)
        x = lower_kept(l, piece, o->in[0]);
    if (o->row_parallel)
        dy = lower_gather(l, "dfull", dy);
    else if (weight && gathers(&l->pieces[piece], o))
        x = lower_gather(l, "full", x);
    if (l->halves & HALF_INPUT)
        input_gradient(l, piece, o, dy);
    if (weight)
        weight_gradient(l, piece, o, dy, x);
}
