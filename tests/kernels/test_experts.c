/* Kernels of experts against plain formulas, their gradients against central differences, in double precision. */

#include "tests/kernels/harness.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

#define HAS(s, op, name) ((s)->v[OPND(op, name)] != NULL)

static void router_scores(const double *logits, double *out, uint32_t n, bool sigmoid)
{
    double sum = 0;
    for (uint32_t j = 0; j < n; j++)
        sum += out[j] = sigmoid ? 1 / (1 + exp(-logits[j])) : exp(logits[j]);
    for (uint32_t j = 0; j < n && !sigmoid; j++)
        out[j] /= sum;
}

/* is group g among the best, by counting those that beat it */
static bool group_picked(const double *x, uint32_t n, uint32_t groups, uint32_t pick, uint32_t g, bool two)
{
    double value[16];
    uint32_t size = n / groups, better = 0;
    for (uint32_t q = 0; q < groups; q++) {
        double a = -INFINITY, b = -INFINITY;
        for (uint32_t j = q * size; j < (q + 1) * size; j++)
            if (x[j] > a) {
                b = a;
                a = x[j];
            } else if (x[j] > b) {
                b = x[j];
            }
        value[q] = two && size > 1 ? a + b : a;
    }
    for (uint32_t q = 0; q < groups; q++)
        better += value[q] > value[g];
    return better < pick;
}

static void ref_route(struct sample *s)
{
    uint32_t n = COLS(s, ROUTE, logits), k = COLS(s, ROUTE, index), groups = (uint32_t)INT_ATTR(s, ROUTE, groups);
    for (uint32_t i = 0; i < ROWS(s, ROUTE, logits); i++) {
        double biased[64], sum = 0, *score = &AT(s, ROUTE, score, i, 0);
        router_scores(&AT(s, ROUTE, logits, i, 0), score, n, INT_ATTR(s, ROUTE, sigmoid));
        for (uint32_t j = 0; j < n; j++)
            biased[j] = score[j] + (HAS(s, ROUTE, bias) ? AT(s, ROUTE, bias, 0, j) : 0);
        for (uint32_t j = 0; j < n; j++) {
            uint32_t rank = 0;
            for (uint32_t l = 0; l < n; l++)
                rank += biased[l] > biased[j] && group_picked(biased, n, groups, (uint32_t)INT_ATTR(s, ROUTE, pick),
                                                             l / (n / groups), INT_ATTR(s, ROUTE, sigmoid));
            if (rank < k && group_picked(biased, n, groups, (uint32_t)INT_ATTR(s, ROUTE, pick), j / (n / groups),
                                         INT_ATTR(s, ROUTE, sigmoid)))
                AT(s, ROUTE, index, i, rank) = j;
        }
        for (uint32_t j = 0; j < k; j++)
            sum += score[(uint32_t)AT(s, ROUTE, index, i, j)];
        for (uint32_t j = 0; j < k; j++)
            AT(s, ROUTE, weight, i, j) = REAL_ATTR(s, ROUTE, scale) * score[(uint32_t)AT(s, ROUTE, index, i, j)] /
                                         (INT_ATTR(s, ROUTE, normalize) ? sum : 1);
    }
}

/* ---- the router's gradient: logits are kept in dlogits' place while it is differentiated ---- */

static double of_route(const struct sample *s)
{
    uint32_t n = COLS(s, ROUTE_I, score), k = COLS(s, ROUTE_I, index);
    double total = 0, score[64];
    for (uint32_t i = 0; i < ROWS(s, ROUTE_I, score); i++) {
        double sum = 0, all = 0;
        router_scores(&AT(s, ROUTE_I, score, i, 0), score, n, INT_ATTR(s, ROUTE_I, sigmoid));
        for (uint32_t j = 0; j < k; j++)
            sum += score[(uint32_t)AT(s, ROUTE_I, index, i, j)];
        for (uint32_t j = 0; j < k; j++)
            total += AT(s, ROUTE_I, dweight, i, j) * REAL_ATTR(s, ROUTE_I, scale) *
                     score[(uint32_t)AT(s, ROUTE_I, index, i, j)] / (INT_ATTR(s, ROUTE_I, normalize) ? sum : 1);
        int64_t q = (INT_ATTR(s, ROUTE_I, start) + i) / INT_ATTR(s, ROUTE_I, sequence);
        for (uint32_t j = 0; j < n; j++)
            all += score[j];
        for (uint32_t j = 0; j < n && HAS(s, ROUTE_I, load); j++)
            total += REAL_ATTR(s, ROUTE_I, balance) * (HAS(s, ROUTE_I, by) ? AT(s, ROUTE_I, by, 0, 0) : 1) * AT(s, ROUTE_I, load, q, j) * score[j] / all;
    }
    return total;
}

/* a token chooses different experts */
static void prepare_route_i(struct sample *s)
{
    EACH(s, ROUTE_I, index, i, j)
    AT(s, ROUTE_I, index, i, j) = ((uint32_t)AT(s, ROUTE_I, index, i, 0) + 2 * j) % COLS(s, ROUTE_I, score);
    EACH(s, ROUTE_I, score, i, j)
    {
        double *row = &AT(s, ROUTE_I, score, i, 0), logits[64];
        if (j)
            continue;
        memcpy(logits, row, COLS(s, ROUTE_I, score) * sizeof *row);
        router_scores(logits, row, COLS(s, ROUTE_I, score), INT_ATTR(s, ROUTE_I, sigmoid));
    }
}

static void ref_route_i(struct sample *s)
{
    uint32_t n = COLS(s, ROUTE_I, score);
    double keep[512];
    size_t all = (size_t)ROWS(s, ROUTE_I, score) * n;
    memcpy(keep, s->v[OPND(ROUTE_I, score)], all * sizeof *keep);
    EACH(s, ROUTE_I, score, i, j)
    AT(s, ROUTE_I, score, i, j) = INT_ATTR(s, ROUTE_I, sigmoid) ? log(keep[i * n + j] / (1 - keep[i * n + j]))
                                                                 : log(keep[i * n + j]);
    harness_differentiate(s, of_route, OPND(ROUTE_I, score), OPND(ROUTE_I, dlogits));
    memcpy(s->v[OPND(ROUTE_I, score)], keep, all * sizeof *keep);
}

static void ref_load(struct sample *s)
{
    EACH(s, LOAD, load, q, j) AT(s, LOAD, load, q, j) = 0;
    EACH(s, LOAD, index, i, j)
    AT(s, LOAD, load, (INT_ATTR(s, LOAD, start) + i) / INT_ATTR(s, LOAD, sequence), AT(s, LOAD, index, i, j)) += 1;
}

static void prepare_balance(struct sample *s)
{
    EACH(s, BALANCE, score, i, j) AT(s, BALANCE, score, i, j) = fabs(AT(s, BALANCE, score, i, j)) + 0.1;
}

static void ref_balance(struct sample *s)
{
    double total = 0;
    EACH(s, BALANCE, score, i, j)
    {
        double sum = 0;
        for (uint32_t l = 0; l < COLS(s, BALANCE, score); l++)
            sum += AT(s, BALANCE, score, i, l);
        total += AT(s, BALANCE, load, (INT_ATTR(s, BALANCE, start) + i) / INT_ATTR(s, BALANCE, sequence), j) *
                 AT(s, BALANCE, score, i, j) / sum;
    }
    AT(s, BALANCE, loss, 0, 0) = total * REAL_ATTR(s, BALANCE, scale);
}

static void prepare_bias(struct sample *s)
{
    AT(s, BIAS_MOVE, scale, 0, 0) = 0.5;
    EACH(s, BIAS_MOVE, load, i, j) AT(s, BIAS_MOVE, load, i, j) = j % 3; /* some are the mean exactly */
}

static void prepare_bias_skip(struct sample *s)
{
    AT(s, BIAS_MOVE, scale, 0, 0) = -1;
}

static void ref_bias_move(struct sample *s)
{
    double mean = 0;
    for (uint32_t j = 0; j < COLS(s, BIAS_MOVE, load); j++)
        mean += AT(s, BIAS_MOVE, load, 0, j) / COLS(s, BIAS_MOVE, load);
    for (uint32_t j = 0; j < COLS(s, BIAS_MOVE, load) && AT(s, BIAS_MOVE, scale, 0, 0) >= 0; j++)
        AT(s, BIAS_MOVE, bias, 0, j) +=
            REAL_ATTR(s, BIAS_MOVE, rate) * ((AT(s, BIAS_MOVE, load, 0, j) < mean) - (AT(s, BIAS_MOVE, load, 0, j) > mean));
}

static void prepare_arrange(struct sample *s)
{
    AT(s, ARRANGE, need, 0, 0) = AT(s, ARRANGE, need, 0, 1) = 0;
}

/* a choice's place: its expert's rows begin behind those of the block's experts before it */
static void ref_arrange(struct sample *s)
{
    uint32_t experts = (uint32_t)INT_ATTR(s, ARRANGE, experts), blocks = (uint32_t)INT_ATTR(s, ARRANGE, blocks);
    int64_t rows = INT_ATTR(s, ARRANGE, rows), capacity = INT_ATTR(s, ARRANGE, capacity), next = 0;
    for (uint32_t e = 0; e < experts; e++) {
        int64_t used = 0, sequence = -1, kept = 0, block = e / (experts / blocks);
        next = e % (experts / blocks) ? next : 0;
        EACH(s, ARRANGE, index, i, j)
        {
            int64_t now = (INT_ATTR(s, ARRANGE, start) + i) / INT_ATTR(s, ARRANGE, sequence);
            used = now == sequence ? used : 0;
            sequence = now;
            if ((uint32_t)AT(s, ARRANGE, index, i, j) != e)
                continue;
            bool fits = !capacity || used < capacity;
            used += fits;
            AT(s, ARRANGE, place, i, j) = fits && next < rows ? (double)(block * rows + next) : -1;
            kept += fits && next < rows;
            next += fits;
        }
        AT(s, ARRANGE, counts, e, 0) = (double)kept;
        double mean = (double)ROWS(s, ARRANGE, index) * COLS(s, ARRANGE, index) / blocks;
        if (next > rows) {
            AT(s, ARRANGE, need, 0, 0) = fmax(AT(s, ARRANGE, need, 0, 0), (double)next / mean);
            AT(s, ARRANGE, need, 0, 1) = fmax(AT(s, ARRANGE, need, 0, 1), (double)next);
        }
    }
}

static void prepare_once(struct sample *s)
{
    AT(s, ARRANGE_ONCE, need, 0, 0) = AT(s, ARRANGE_ONCE, need, 0, 1) = 0;
}

/* is choice j of token i of block b, and among its expert's first `capacity` of the sequence? */
static bool visits(const struct sample *s, uint32_t i, uint32_t j, uint32_t b)
{
    int64_t capacity = INT_ATTR(s, ARRANGE_ONCE, capacity), start = INT_ATTR(s, ARRANGE_ONCE, start), before = 0;
    double each = (double)(INT_ATTR(s, ARRANGE_ONCE, experts) / INT_ATTR(s, ARRANGE_ONCE, blocks)),
           e = AT(s, ARRANGE_ONCE, index, i, j);
    EACH(s, ARRANGE_ONCE, index, q, r)
    before += (q < i || (q == i && r < j)) && AT(s, ARRANGE_ONCE, index, q, r) == e &&
              (start + q) / INT_ATTR(s, ARRANGE_ONCE, sequence) == (start + i) / INT_ATTR(s, ARRANGE_ONCE, sequence);
    return e >= 0 && e < (double)INT_ATTR(s, ARRANGE_ONCE, experts) && floor(e / each) == b && (!capacity || before < capacity);
}

/* a token's row in a block: as many as tokens before it have one; the first of its choices there points at it */
static void ref_once(struct sample *s)
{
    uint32_t k = COLS(s, ARRANGE_ONCE, index), blocks = (uint32_t)INT_ATTR(s, ARRANGE_ONCE, blocks);
    uint32_t each = (uint32_t)INT_ATTR(s, ARRANGE_ONCE, experts) / blocks, rows = (uint32_t)INT_ATTR(s, ARRANGE_ONCE, rows);
    EACH(s, ARRANGE_ONCE, chosen, r, j) AT(s, ARRANGE_ONCE, chosen, r, j) = -1;
    EACH(s, ARRANGE_ONCE, place, i, j) AT(s, ARRANGE_ONCE, place, i, j) = -1;
    for (uint32_t b = 0; b < blocks; b++) {
        uint32_t next = 0;
        for (uint32_t i = 0; i < ROWS(s, ARRANGE_ONCE, index); i++) {
            bool there = false;
            for (uint32_t j = 0; j < k; j++) {
                if (!visits(s, i, j, b))
                    continue;
                if (next < rows && !there)
                    AT(s, ARRANGE_ONCE, place, i, j) = b * rows + next;
                if (next < rows)
                    AT(s, ARRANGE_ONCE, chosen, b * rows + next, j) = AT(s, ARRANGE_ONCE, index, i, j) - b * each;
                there = true;
            }
            next += there;
        }
        if (next > rows) {
            AT(s, ARRANGE_ONCE, need, 0, 0) = fmax(AT(s, ARRANGE_ONCE, need, 0, 0), next / REAL_ATTR(s, ARRANGE_ONCE, mean));
            AT(s, ARRANGE_ONCE, need, 0, 1) = fmax(AT(s, ARRANGE_ONCE, need, 0, 1), next);
        }
    }
}

/* every choice has a row of its own; every fifth was dropped */
static void distinct_places(double *place, size_t n)
{
    for (size_t i = 0; i < n; i++)
        place[i] = i % 5 == 4 ? -1 : (double)((i * 7) % (n + 1));
}

static void prepare_dispatch(struct sample *s)
{
    distinct_places(s->v[OPND(DISPATCH, place)], (size_t)ROWS(s, DISPATCH, place) * COLS(s, DISPATCH, place));
}

static void ref_dispatch(struct sample *s)
{
    EACH(s, DISPATCH, place, i, j)
    for (uint32_t c = 0; c < COLS(s, DISPATCH, y) && AT(s, DISPATCH, place, i, j) >= 0; c++)
        AT(s, DISPATCH, y, AT(s, DISPATCH, place, i, j), c) =
            (HAS(s, DISPATCH, x) ? AT(s, DISPATCH, x, i, c) : 1) * (HAS(s, DISPATCH, weight) ? AT(s, DISPATCH, weight, i, j) : 1);
}

static void prepare_combine(struct sample *s)
{
    distinct_places(s->v[OPND(COMBINE, place)], (size_t)ROWS(s, COMBINE, place) * COLS(s, COMBINE, place));
}

static void ref_combine(struct sample *s)
{
    EACH(s, COMBINE, y, i, c)
    {
        double sum = 0;
        for (uint32_t j = 0; j < COLS(s, COMBINE, place); j++)
            if (AT(s, COMBINE, place, i, j) >= 0)
                sum += AT(s, COMBINE, x, AT(s, COMBINE, place, i, j), c) *
                       (HAS(s, COMBINE, weight) ? AT(s, COMBINE, weight, i, j) : 1);
        AT(s, COMBINE, y, i, c) = sum;
    }
}

static void prepare_combine_w(struct sample *s)
{
    distinct_places(s->v[OPND(COMBINE_W, place)], (size_t)ROWS(s, COMBINE_W, place) * COLS(s, COMBINE_W, place));
}

static void ref_combine_w(struct sample *s)
{
    EACH(s, COMBINE_W, dweight, i, j)
    {
        AT(s, COMBINE_W, dweight, i, j) = 0;
        for (uint32_t c = 0; c < COLS(s, COMBINE_W, x) && AT(s, COMBINE_W, place, i, j) >= 0; c++)
            AT(s, COMBINE_W, dweight, i, j) +=
                (HAS(s, COMBINE_W, dy) ? AT(s, COMBINE_W, dy, i, c) : 1) * AT(s, COMBINE_W, x, AT(s, COMBINE_W, place, i, j), c);
    }
}

static void ref_weigh_i(struct sample *s)
{
    for (uint32_t i = 0; i < ROWS(s, WEIGH_I, dx); i++) {
        double w = AT(s, WEIGH_I, weight, i, 0), sum = 0;
        for (uint32_t c = 0; c < COLS(s, WEIGH_I, dx); c++) {
            AT(s, WEIGH_I, dx, i, c) = AT(s, WEIGH_I, dy, i, c) * w;
            AT(s, WEIGH_I, y, i, c) = AT(s, WEIGH_I, x, i, c) * w;
            sum += AT(s, WEIGH_I, dy, i, c) * AT(s, WEIGH_I, x, i, c);
        }
        AT(s, WEIGH_I, dweight, i, 0) = sum;
    }
}

/* full blocks, so that every row is specified: 0, 1, ... rows per expert, the rest to the last */
static void prepare_grouped(struct sample *s)
{
    size_t c = s->op == OP_GROUPED_NT ? OPND(GROUPED_NT, counts)
               : s->op == OP_GROUPED_NN ? OPND(GROUPED_NN, counts)
               : s->op == OP_GROUPED_TN ? OPND(GROUPED_TN, counts)
                                        : OPND(GROUPED_BIAS_W, counts);
    size_t rows = s->op == OP_GROUPED_TN       ? s->rows[OPND(GROUPED_TN, a)]
                  : s->op == OP_GROUPED_BIAS_W ? s->rows[OPND(GROUPED_BIAS_W, dy)]
                                               : s->rows[OPND(GROUPED_NT, c)];
    size_t experts = (size_t)INT_ATTR(s, GROUPED_NT, experts), blocks = (size_t)INT_ATTR(s, GROUPED_NT, blocks);
    for (size_t b = 0; b < blocks; b++) {
        double left = (double)(rows / blocks);
        for (size_t e = 0; e < experts; e++) {
            double n = e + 1 == experts ? left : (double)((e + b) % 3);
            s->v[c][b * experts + e] = n;
            left -= n;
        }
    }
}

/* the expert of a row */
static uint32_t expert_of(const double *counts, uint32_t experts, uint32_t per_block, uint32_t row)
{
    uint32_t e = 0, left = row % per_block;
    for (counts += (size_t)(row / per_block) * experts; left >= (uint32_t)counts[e]; e++)
        left -= (uint32_t)counts[e];
    return e;
}

static void ref_grouped_nt(struct sample *s)
{
    uint32_t experts = (uint32_t)INT_ATTR(s, GROUPED_NT, experts);
    uint32_t per = ROWS(s, GROUPED_NT, c) / (uint32_t)INT_ATTR(s, GROUPED_NT, blocks), n = COLS(s, GROUPED_NT, c);
    EACH(s, GROUPED_NT, c, i, j)
    {
        uint32_t e = expert_of(s->v[OPND(GROUPED_NT, counts)], experts, per, i);
        double sum = HAS(s, GROUPED_NT, bias) ? AT(s, GROUPED_NT, bias, e, j) : 0;
        for (uint32_t k = 0; k < COLS(s, GROUPED_NT, a); k++)
            sum += AT(s, GROUPED_NT, a, i, k) * AT(s, GROUPED_NT, b, e * n + j, k);
        AT(s, GROUPED_NT, c, i, j) = sum;
    }
}

static void ref_grouped_bias_w(struct sample *s)
{
    uint32_t experts = (uint32_t)INT_ATTR(s, GROUPED_BIAS_W, experts);
    uint32_t per = ROWS(s, GROUPED_BIAS_W, dy) / (uint32_t)INT_ATTR(s, GROUPED_BIAS_W, blocks);
    EACH(s, GROUPED_BIAS_W, db, i, j)
    AT(s, GROUPED_BIAS_W, db, i, j) = 0;
    EACH(s, GROUPED_BIAS_W, dy, i, j)
    AT(s, GROUPED_BIAS_W, db, expert_of(s->v[OPND(GROUPED_BIAS_W, counts)], experts, per, i), j) +=
        AT(s, GROUPED_BIAS_W, dy, i, j) * (HAS(s, GROUPED_BIAS_W, weight) ? AT(s, GROUPED_BIAS_W, weight, i, 0) : 1);
}

static void ref_grouped_nn(struct sample *s)
{
    uint32_t experts = (uint32_t)INT_ATTR(s, GROUPED_NN, experts), inner = COLS(s, GROUPED_NN, a);
    uint32_t per = ROWS(s, GROUPED_NN, c) / (uint32_t)INT_ATTR(s, GROUPED_NN, blocks);
    EACH(s, GROUPED_NN, c, i, j)
    {
        uint32_t e = expert_of(s->v[OPND(GROUPED_NN, counts)], experts, per, i);
        double sum = 0;
        for (uint32_t k = 0; k < inner; k++)
            sum += AT(s, GROUPED_NN, a, i, k) * AT(s, GROUPED_NN, b, e * inner + k, j);
        AT(s, GROUPED_NN, c, i, j) = sum;
    }
}

static void ref_grouped_tn(struct sample *s)
{
    uint32_t experts = (uint32_t)INT_ATTR(s, GROUPED_TN, experts), n = COLS(s, GROUPED_TN, a);
    uint32_t per = ROWS(s, GROUPED_TN, a) / (uint32_t)INT_ATTR(s, GROUPED_TN, blocks);
    EACH(s, GROUPED_TN, c, i, j)
    {
        double sum = 0;
        for (uint32_t r = 0; r < ROWS(s, GROUPED_TN, a); r++)
            if (expert_of(s->v[OPND(GROUPED_TN, counts)], experts, per, r) == i / n)
                sum += AT(s, GROUPED_TN, a, r, i % n) * AT(s, GROUPED_TN, b, r, j);
        AT(s, GROUPED_TN, c, i, j) = sum;
    }
}

#define ROUTE_ATTRS(sig, g, p, norm, sc)                                                                     \
    {{"sigmoid", sig}, {"groups", g}, {"pick", p}, {"normalize", norm}, {"scale", sc}, {"sequence", 4}}
static const struct kernel_case cases[] = {
    {OP_ROUTE, {{"t", 7}, {"e", 8}, {"k", 2}}, ROUTE_ATTRS(0, 1, 1, 0, 1), NULL, ref_route, 0, 0, 1 << OPND(ROUTE, bias)},
    {OP_ROUTE, {{"t", 7}, {"e", 8}, {"k", 3}}, ROUTE_ATTRS(0, 1, 1, 1, 2), NULL, ref_route, 0, 0, 1 << OPND(ROUTE, bias)},
    {OP_ROUTE, {{"t", 7}, {"e", 12}, {"k", 3}}, ROUTE_ATTRS(0, 4, 2, 0, 1), NULL, ref_route, 0, 0, 1 << OPND(ROUTE, bias)},
    {OP_ROUTE, {{"t", 7}, {"e", 16}, {"k", 4}}, ROUTE_ATTRS(1, 4, 2, 1, 2.5), NULL, ref_route, 0, 0, 0},
    {OP_ROUTE, {{"t", 7}, {"e", 8}, {"k", 8}}, ROUTE_ATTRS(1, 1, 1, 0, 1), NULL, ref_route, 0, 0, 0},
    {OP_ROUTE_I,
     {{"t", 6}, {"e", 7}, {"k", 3}, {"s", 3}},
     {{"normalize", 1}, {"scale", 1.5}, {"balance", 0.3}, {"sequence", 4}, {"start", 4}},
     prepare_route_i,
     ref_route_i,
     7,
     1e-5,
     1 << OPND(ROUTE_I, by)},
    {OP_ROUTE_I,
     {{"t", 6}, {"e", 7}, {"k", 2}, {"s", 3}},
     {{"sigmoid", 1}, {"normalize", 1}, {"scale", 2.5}, {"balance", 0.3}, {"sequence", 3}},
     prepare_route_i,
     ref_route_i,
     7,
     1e-5,
     0},
    {OP_ROUTE_I,
     {{"t", 6}, {"e", 7}, {"k", 2}},
     {{"scale", 1}, {"sequence", 3}},
     prepare_route_i,
     ref_route_i,
     7,
     1e-5,
     1 << OPND(ROUTE_I, load)},
    {OP_LOAD, {{"t", 9}, {"e", 5}, {"k", 2}, {"s", 3}}, {{"sequence", 4}, {"start", 2}}, NULL, ref_load, 5, 0, 0},
    {OP_BALANCE,
     {{"t", 9}, {"e", 5}, {"s", 3}},
     {{"scale", 0.7}, {"sequence", 4}, {"start", 2}},
     prepare_balance,
     ref_balance,
     0,
     0,
     0},
    {OP_BIAS_MOVE, {{"e", 9}}, {{"rate", 0.001}}, prepare_bias, ref_bias_move, 0, 0, 0},
    {OP_BIAS_MOVE, {{"e", 9}}, {{"rate", 0.001}}, prepare_bias_skip, ref_bias_move, 0, 0, 0},
    {OP_ARRANGE,
     {{"t", 11}, {"k", 2}},
     {{"experts", 6}, {"blocks", 3}, {"rows", 22}, {"sequence", 4}},
     prepare_arrange,
     ref_arrange,
     6,
     0,
     0},
    {OP_ARRANGE,
     {{"t", 11}, {"k", 2}},
     {{"experts", 6}, {"blocks", 2}, {"rows", 5}, {"sequence", 4}},
     prepare_arrange,
     ref_arrange,
     6,
     0,
     0},
    {OP_ARRANGE,
     {{"t", 11}, {"k", 2}},
     {{"experts", 4}, {"blocks", 1}, {"rows", 22}, {"sequence", 4}, {"start", 2}, {"capacity", 2}},
     prepare_arrange,
     ref_arrange,
     4,
     0,
     0},
    {OP_ARRANGE_ONCE, {{"t", 13}, {"k", 3}}, {{"experts", 8}, {"blocks", 4}, {"rows", 13}, {"sequence", 4}, {"mean", 6}},
     prepare_once, ref_once, 8, 0, 0},
    {OP_ARRANGE_ONCE, {{"t", 13}, {"k", 3}}, {{"experts", 8}, {"blocks", 2}, {"rows", 5}, {"sequence", 4}, {"mean", 7.5}},
     prepare_once, ref_once, 9, 0, 0},
    {OP_ARRANGE_ONCE, {{"t", 13}, {"k", 4}},
     {{"experts", 6}, {"blocks", 2}, {"rows", 13}, {"sequence", 4}, {"start", 3}, {"capacity", 1}, {"mean", 2}},
     prepare_once, ref_once, 6, 0, 0},
    {OP_DISPATCH, {{"t", 5}, {"h", 7}, {"k", 2}, {"m", 12}}, {{0}}, prepare_dispatch, ref_dispatch, 0, 0, 0},
    {OP_DISPATCH,
     {{"t", 5}, {"h", 7}, {"k", 2}, {"m", 12}},
     {{0}},
     prepare_dispatch,
     ref_dispatch,
     0,
     0,
     1 << OPND(DISPATCH, weight)},
    {OP_DISPATCH, {{"t", 5}, {"h", 1}, {"k", 2}, {"m", 12}}, {{0}}, prepare_dispatch, ref_dispatch, 0, 0,
     1 << OPND(DISPATCH, x)},
    {OP_COMBINE, {{"t", 5}, {"h", 7}, {"k", 2}, {"m", 12}}, {{0}}, prepare_combine, ref_combine, 0, 0, 0},
    {OP_COMBINE,
     {{"t", 5}, {"h", 7}, {"k", 2}, {"m", 12}},
     {{0}},
     prepare_combine,
     ref_combine,
     0,
     0,
     1 << OPND(COMBINE, weight)},
    {OP_COMBINE_W, {{"t", 5}, {"h", 7}, {"k", 2}, {"m", 12}}, {{0}}, prepare_combine_w, ref_combine_w, 0, 0, 0},
    {OP_COMBINE_W, {{"t", 5}, {"h", 1}, {"k", 2}, {"m", 12}}, {{0}}, prepare_combine_w, ref_combine_w, 0, 0,
     1 << OPND(COMBINE_W, dy)},
    {OP_WEIGH_I, {{"m", 12}, {"h", 7}}, {{0}}, NULL, ref_weigh_i, 0, 0, 0},
    {OP_GROUPED_NT,
     {{"m", 18}, {"n", 5}, {"k", 7}},
     {{"experts", 3}, {"blocks", 2}},
     prepare_grouped,
     ref_grouped_nt,
     0,
     0,
     1 << OPND(GROUPED_NT, bias)},
    {OP_GROUPED_NT, {{"m", 18}, {"n", 5}, {"k", 7}}, {{"experts", 3}, {"blocks", 2}}, prepare_grouped, ref_grouped_nt, 0, 0, 0},
    {OP_GROUPED_BIAS_W, {{"m", 18}, {"h", 5}}, {{"experts", 3}, {"blocks", 2}}, prepare_grouped, ref_grouped_bias_w, 0, 0, 0},
    {OP_GROUPED_BIAS_W, {{"m", 36}, {"h", 40}}, {{"experts", 4}, {"blocks", 3}}, prepare_grouped, ref_grouped_bias_w, 0, 0,
     1 << OPND(GROUPED_BIAS_W, weight)},
    {OP_GROUPED_NN,
     {{"m", 18}, {"n", 5}, {"k", 7}},
     {{"experts", 3}, {"blocks", 2}},
     prepare_grouped,
     ref_grouped_nn,
     0,
     0,
     0},
    {OP_GROUPED_TN,
     {{"m", 18}, {"n", 5}, {"k", 7}},
     {{"experts", 4}, {"blocks", 2}},
     prepare_grouped,
     ref_grouped_tn,
     0,
     0,
     0},
};

static void test_all(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        harness_check(&cases[i]);
}

void suite_expert_kernels(void);
void suite_expert_kernels(void)
{
    CU_pSuite s = CU_add_suite("expert_kernels", NULL, NULL);
    CU_add_test(s, "kernels of experts equal plain formulas and central differences", test_all);
}
