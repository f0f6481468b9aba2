/* Routers and experts.
 *
 * Scores are random functions of logits.  "Largest" refers to the numbers 0 .. p - 1, which are the same in every
 * layout; of equal ones the lower index wins. Counts and places are integers.  Rows that the instruction set leaves
 * unspecified become garbage that differs from run to run. */

#include "compiler/execute/kernel.h"

#include <string.h>

static uint64_t *row(const struct exact_view *v, uint64_t i)
{
    return v->at + i * v->cols;
}

static void fill_garbage(struct exact_args *k, const struct exact_view *v)
{
    for (uint64_t i = 0; i < (uint64_t)v->rows * v->cols; i++)
        v->at[i] = exact_garbage(k);
}

static void scores(uint64_t *out, const uint64_t *logits, uint32_t n, bool sigmoid)
{
    uint64_t sum = 0;
    for (uint32_t j = 0; j < n; j++) {
        out[j] = sigmoid ? field_hash(SALT_ROUTER, logits[j], 0) : exact_exp(logits[j]);
        sum = field_add(sum, out[j]);
    }
    uint64_t inverse = sigmoid ? 1 : field_inverse(sum);
    for (uint32_t j = 0; j < n; j++)
        out[j] = field_mul(out[j], inverse);
}

/* The index of the largest number that is not taken yet; 0 if all are. */
static uint32_t take_largest(const uint64_t *x, uint8_t *taken, uint32_t n)
{
    uint32_t best = n;
    for (uint32_t j = 0; j < n; j++)
        if (!taken[j] && (best == n || x[j] > x[best]))
            best = j;
    best = best == n ? 0 : best;
    taken[best] = 1;
    return best;
}

/* Marks as taken all but the `pick` best groups; a group's value is its best score, or the sum of its two best. */
static void limit_groups(struct exact_args *k, const uint64_t *x, uint8_t *taken, uint32_t n, uint32_t groups,
                         uint32_t pick, bool two)
{
    uint64_t *score = ARENA_ARRAY(k->scratch, uint64_t, groups);
    uint8_t *out = ARENA_ARRAY(k->scratch, uint8_t, n + groups), *picked = out + n;
    uint32_t size = n / groups;
    for (uint32_t g = 0; g < groups; g++) {
        const uint64_t *of = x + g * size;
        score[g] = of[take_largest(of, out + g * size, size)];
        if (two && size > 1)
            score[g] = field_add(score[g], of[take_largest(of, out + g * size, size)]);
    }
    for (uint32_t i = 0; i < pick && i < groups; i++)
        take_largest(score, picked, groups);
    for (uint32_t j = 0; j < size * groups; j++)
        taken[j] = !picked[j / size];
}

void exact_ROUTE(struct exact_args *k)
{
    const struct exact_view *logits = V(ROUTE, logits), *score = V(ROUTE, score), *bias = V(ROUTE, bias);
    const struct exact_view *index = V(ROUTE, index), *weight = V(ROUTE, weight);
    uint32_t n = logits->cols, groups = (uint32_t)INTEGER(ROUTE, groups);
    uint64_t *biased = ARENA_ARRAY(k->scratch, uint64_t, n), scale = field_real(NUMBER(ROUTE, scale));
    uint8_t *taken = ARENA_ARRAY(k->scratch, uint8_t, n);
    for (uint32_t i = 0; i < logits->rows; i++) {
        uint64_t sum = 0, *s = row(score, i);
        memset(taken, 0, n);
        scores(s, row(logits, i), n, INTEGER(ROUTE, sigmoid));
        for (uint32_t j = 0; j < n; j++)
            biased[j] = field_add(s[j], bias->at ? bias->at[j] : 0);
        if (groups > 1 && n % groups == 0)
            limit_groups(k, biased, taken, n, groups, (uint32_t)INTEGER(ROUTE, pick), INTEGER(ROUTE, sigmoid));
        for (uint32_t j = 0; j < index->cols; j++) {
            row(index, i)[j] = take_largest(biased, taken, n);
            sum = field_add(sum, s[row(index, i)[j]]);
        }
        uint64_t factor = INTEGER(ROUTE, normalize) ? field_mul(scale, field_inverse(sum)) : scale;
        for (uint32_t j = 0; j < index->cols; j++)
            row(weight, i)[j] = field_mul(factor, s[row(index, i)[j]]);
    }
}

/* The sequence that a row belongs to; `most` if none. */
static uint64_t sequence_of(int64_t start, uint64_t i, int64_t sequence, uint64_t most)
{
    uint64_t q = sequence > 0 ? ((uint64_t)start + i) / (uint64_t)sequence : most;
    return q < most ? q : most;
}

/* d += gradient of coefficient * sum of load p, p = score over its sum (1 for a softmax) */
static void add_balance(uint64_t *d, const uint64_t *s, const uint64_t *load, uint32_t n, uint64_t coefficient,
                        bool sigmoid)
{
    uint64_t sum = 0, inverse = 1, dot = 0;
    for (uint32_t j = 0; j < n; j++)
        sum = field_add(sum, s[j]);
    if (sigmoid) {
        inverse = field_inverse(sum);
        dot = field_mul(field_dot(load, 1, s, 1, n), field_mul(inverse, inverse));
    }
    for (uint32_t j = 0; j < n; j++)
        d[j] = field_add(d[j], field_mul(coefficient, field_sub(field_mul(load[j], inverse), dot)));
}

void exact_ROUTE_I(struct exact_args *k)
{
    const struct exact_view *dlogits = V(ROUTE_I, dlogits), *score = V(ROUTE_I, score), *load = V(ROUTE_I, load);
    const struct exact_view *index = V(ROUTE_I, index);
    bool sigmoid = INTEGER(ROUTE_I, sigmoid), normalize = INTEGER(ROUTE_I, normalize);
    uint32_t n = score->cols;
    uint64_t scale = field_real(NUMBER(ROUTE_I, scale)), balance = field_real(NUMBER(ROUTE_I, balance));
    if (V(ROUTE_I, by)->at)
        balance = field_mul(balance, V(ROUTE_I, by)->at[0]);
    for (uint32_t i = 0; i < score->rows; i++) {
        const uint64_t *s = row(score, i), *dw = row(V(ROUTE_I, dweight), i), *chosen = row(index, i);
        uint64_t sum = 0, dot = 0, *d = row(dlogits, i);
        for (uint32_t j = 0; j < index->cols; j++)
            if (chosen[j] < n) {
                sum = field_add(sum, s[chosen[j]]);
                dot = field_add(dot, field_mul(dw[j], s[chosen[j]]));
            }
        uint64_t inverse = field_inverse(sum);
        for (uint32_t j = 0; j < index->cols; j++) {
            uint64_t part = normalize ? field_mul(field_sub(dw[j], field_mul(dot, inverse)), inverse) : dw[j];
            if (chosen[j] < n)
                d[chosen[j]] = field_add(d[chosen[j]], field_mul(scale, part));
        }
        uint64_t q = sequence_of(INTEGER(ROUTE_I, start), i, INTEGER(ROUTE_I, sequence), load->at ? load->rows : 0);
        if (load->at && q < load->rows)
            add_balance(d, s, row(load, q), n, balance, sigmoid);
        uint64_t mean = field_dot(d, 1, s, 1, n);
        for (uint32_t j = 0; j < n; j++)
            d[j] = field_mul(s[j], sigmoid ? field_mul(d[j], field_sub(1, s[j])) : field_sub(d[j], mean));
    }
}

void exact_LOAD(struct exact_args *k)
{
    const struct exact_view *load = V(LOAD, load), *index = V(LOAD, index);
    for (uint32_t i = 0; i < index->rows; i++) {
        uint64_t q = sequence_of(INTEGER(LOAD, start), i, INTEGER(LOAD, sequence), load->rows);
        for (uint32_t j = 0; j < index->cols && q < load->rows; j++)
            if (row(index, i)[j] < load->cols)
                row(load, q)[row(index, i)[j]] = field_add(row(load, q)[row(index, i)[j]], 1);
    }
}

void exact_BALANCE(struct exact_args *k)
{
    const struct exact_view *load = V(BALANCE, load), *score = V(BALANCE, score);
    uint64_t total = 0;
    for (uint32_t i = 0; i < score->rows; i++) {
        uint64_t q = sequence_of(INTEGER(BALANCE, start), i, INTEGER(BALANCE, sequence), load->rows), sum = 0;
        for (uint32_t j = 0; j < score->cols; j++)
            sum = field_add(sum, row(score, i)[j]);
        if (q < load->rows)
            total = field_add(total,
                              field_mul(field_dot(row(load, q), 1, row(score, i), 1, score->cols), field_inverse(sum)));
    }
    V(BALANCE, loss)->at[0] = field_mul(total, field_real(NUMBER(BALANCE, scale)));
}

/* loads are sums of ones, far below p / 2, so the sign of a difference is defined */
void exact_BIAS_MOVE(struct exact_args *k)
{
    const struct exact_view *bias = V(BIAS_MOVE, bias), *load = V(BIAS_MOVE, load);
    uint64_t sum = 0, rate = field_real(NUMBER(BIAS_MOVE, rate));
    for (uint32_t j = 0; j < load->cols; j++)
        sum = field_add(sum, load->at[j]);
    for (uint32_t j = 0; j < bias->cols && V(BIAS_MOVE, scale)->at[0] != FIELD_P - 1; j++) {
        uint64_t less = field_sub(sum, field_mul(load->at[j], load->cols)); /* mean - load, times the number of
                                                                             * experts */
        if (less)
            bias->at[j] = less < FIELD_P / 2 ? field_add(bias->at[j], rate) : field_sub(bias->at[j], rate);
    }
}

void exact_ARRANGE(struct exact_args *k)
{
    const struct exact_view *index = V(ARRANGE, index), *place = V(ARRANGE, place), *counts = V(ARRANGE, counts);
    const struct exact_view *need = V(ARRANGE, need);
    uint64_t experts = counts->rows, blocks = (uint64_t)INTEGER(ARRANGE, blocks),
             rows = (uint64_t)INTEGER(ARRANGE, rows);
    uint64_t capacity = (uint64_t)INTEGER(ARRANGE, capacity), last = UINT64_MAX;
    uint64_t *used = ARENA_ARRAY(k->scratch, uint64_t, experts), *first = ARENA_ARRAY(k->scratch, uint64_t, experts);
    for (uint64_t i = 0; i < index->rows; i++) {
        uint64_t now = sequence_of(INTEGER(ARRANGE, start), i, INTEGER(ARRANGE, sequence), UINT64_MAX - 1);
        if (now != last)
            memset(used, 0, experts * sizeof *used);
        last = now;
        for (uint32_t j = 0; j < index->cols; j++) {
            uint64_t e = row(index, i)[j];
            bool fits = e < experts && (!capacity || used[e] < capacity);
            row(place, i)[j] = fits ? counts->at[e]++ : UINT64_MAX;
            used[fits ? e : 0] += fits;
        }
    }
    for (uint64_t b = 0; blocks && b < blocks; b++) {
        uint64_t filled = 0, wanted = 0;
        for (uint64_t e = b * (experts / blocks); e < (b + 1) * (experts / blocks); e++) {
            wanted += counts->at[e];
            counts->at[e] = counts->at[e] < rows - filled ? counts->at[e] : rows - filled;
            first[e] = b * rows + filled;
            filled += counts->at[e];
        }
        for (uint32_t w = 0; need->at && wanted > rows && w < 2; w++)
            need->at[w] = wanted > need->at[w] ? wanted : need->at[w];
    }
    for (uint64_t i = 0; i < (uint64_t)place->rows * place->cols; i++) {
        uint64_t e = index->at[i], p = place->at[i];
        place->at[i] = e < experts && p < counts->at[e] ? first[e] + p : UINT64_MAX;
    }
}

void exact_ARRANGE_ONCE(struct exact_args *k)
{
    const struct exact_view *index = V(ARRANGE_ONCE, index), *place = V(ARRANGE_ONCE, place),
                            *chosen = V(ARRANGE_ONCE, chosen), *need = V(ARRANGE_ONCE, need);
    uint64_t experts = (uint64_t)INTEGER(ARRANGE_ONCE, experts), blocks = (uint64_t)INTEGER(ARRANGE_ONCE, blocks),
             rows = (uint64_t)INTEGER(ARRANGE_ONCE, rows), capacity = (uint64_t)INTEGER(ARRANGE_ONCE, capacity);
    uint64_t each = blocks && experts >= blocks ? experts / blocks : 1, sequence = UINT64_MAX;
    uint64_t *used = ARENA_ARRAY(k->scratch, uint64_t, experts),
             *filled = ARENA_ARRAY(k->scratch, uint64_t, blocks + 1),
             *visitor = ARENA_ARRAY(k->scratch, uint64_t, blocks + 1); /* 1 + the last token that has a row there */
    for (uint64_t i = 0; i < (uint64_t)chosen->rows * chosen->cols; i++)
        chosen->at[i] = UINT64_MAX;
    for (uint64_t i = 0; i < index->rows; i++) {
        uint64_t now = sequence_of(INTEGER(ARRANGE_ONCE, start), i, INTEGER(ARRANGE_ONCE, sequence), UINT64_MAX - 1);
        if (now != sequence)
            memset(used, 0, experts * sizeof *used);
        sequence = now;
        for (uint32_t j = 0; j < index->cols; j++) {
            uint64_t e = row(index, i)[j], b = e / each;
            bool fits = e < experts && b < blocks && (!capacity || used[e] < capacity);
            row(place, i)[j] = UINT64_MAX;
            if (!fits)
                continue;
            used[e]++;
            bool first = visitor[b] != i + 1;
            visitor[b] = i + 1;
            filled[b] += first;
            if (filled[b] > rows || b * rows + filled[b] > chosen->rows)
                continue;
            row(place, i)[j] = first ? b * rows + filled[b] - 1 : UINT64_MAX;
            row(chosen, b * rows + filled[b] - 1)[j] = e - b * each;
        }
    }
    for (uint64_t b = 0; need->at && b < blocks; b++)
        for (uint32_t w = 0; filled[b] > rows && w < 2; w++)
            need->at[w] = filled[b] > need->at[w] ? filled[b] : need->at[w];
}

void exact_DISPATCH(struct exact_args *k)
{
    const struct exact_view *y = V(DISPATCH, y), *x = V(DISPATCH, x), *place = V(DISPATCH, place),
                            *w = V(DISPATCH, weight);
    fill_garbage(k, y);
    for (uint32_t i = 0; i < place->rows; i++)
        for (uint32_t j = 0; j < place->cols; j++)
            for (uint32_t c = 0; row(place, i)[j] < y->rows && c < y->cols; c++)
                row(y, row(place, i)[j])[c] = field_mul(x->at ? row(x, i)[c] : 1, w->at ? row(w, i)[j] : 1);
}

void exact_COMBINE(struct exact_args *k)
{
    const struct exact_view *y = V(COMBINE, y), *x = V(COMBINE, x), *place = V(COMBINE, place), *w = V(COMBINE, weight);
    for (uint32_t i = 0; i < y->rows; i++)
        for (uint32_t j = 0; j < place->cols; j++)
            for (uint32_t c = 0; row(place, i)[j] < x->rows && c < y->cols; c++)
                row(y, i)[c] = field_add(row(y, i)[c],
                                         field_mul(row(x, row(place, i)[j])[c], w->at ? row(w, i)[j] : 1));
}

void exact_COMBINE_W(struct exact_args *k)
{
    const struct exact_view *dw = V(COMBINE_W, dweight), *dy = V(COMBINE_W, dy), *x = V(COMBINE_W, x);
    const struct exact_view *place = V(COMBINE_W, place);
    for (uint32_t i = 0; i < place->rows; i++)
        for (uint32_t j = 0; j < place->cols; j++)
            for (uint32_t c = 0; row(place, i)[j] < x->rows && c < x->cols; c++)
                row(dw, i)[j] = field_add(row(dw, i)[j],
                                          field_mul(dy->at ? row(dy, i)[c] : 1, row(x, row(place, i)[j])[c]));
}

void exact_WEIGH_I(struct exact_args *k)
{
    const struct exact_view *dx = V(WEIGH_I, dx), *y = V(WEIGH_I, y), *dy = V(WEIGH_I, dy), *x = V(WEIGH_I, x);
    for (uint32_t i = 0; i < dx->rows; i++) {
        uint64_t w = row(V(WEIGH_I, weight), i)[0];
        row(V(WEIGH_I, dweight), i)[0] = field_dot(row(dy, i), 1, row(x, i), 1, x->cols);
        for (uint32_t c = 0; c < dx->cols; c++) {
            row(dx, i)[c] = field_mul(row(dy, i)[c], w);
            row(y, i)[c] = field_mul(row(x, i)[c], w);
        }
    }
}

/* The expert of every row of an operand; `experts` where the row is unspecified. */
static uint64_t *owners(struct exact_args *k, const struct exact_view *counts, uint64_t m, uint64_t experts,
                        uint64_t blocks)
{
    uint64_t *owner = ARENA_ARRAY(k->scratch, uint64_t, m + 1), rows = blocks ? m / blocks : 0;
    for (uint64_t i = 0; i < m; i++)
        owner[i] = experts;
    for (uint64_t b = 0; b < blocks; b++) {
        uint64_t at = b * rows;
        for (uint64_t e = 0; e < experts; e++)
            for (uint64_t n = counts->at[b * experts + e]; (int64_t)n > 0 && at < (b + 1) * rows; n--)
                owner[at++] = e;
    }
    return owner;
}

/* Each row of c = its row of a times its expert's part of b, which may be transposed. */
static void multiply_groups(struct exact_args *k, const struct exact_view *c, const struct exact_view *a,
                            const struct exact_view *b, bool tb, const uint64_t *owner, uint64_t experts)
{
    fill_garbage(k, c);
    for (uint64_t i = 0; i < c->rows; i++)
        for (uint64_t j = 0; owner[i] < experts && j < c->cols; j++)
            row(c, i)[j] = tb ? field_dot(row(a, i), 1, row(b, owner[i] * c->cols + j), 1, a->cols)
                              : field_dot(row(a, i), 1, row(b, owner[i] * a->cols) + j, b->cols, a->cols);
}

void exact_GROUPED_NT(struct exact_args *k)
{
    const struct exact_view *c = V(GROUPED_NT, c), *counts = V(GROUPED_NT, counts);
    uint64_t experts = (uint64_t)INTEGER(GROUPED_NT, experts), blocks = (uint64_t)INTEGER(GROUPED_NT, blocks);
    const struct exact_view *bias = V(GROUPED_NT, bias);
    const uint64_t *owner = owners(k, counts, c->rows, experts, blocks);
    multiply_groups(k, c, V(GROUPED_NT, a), V(GROUPED_NT, b), true, owner, experts);
    for (uint64_t i = 0; bias->at && i < c->rows; i++)
        for (uint64_t j = 0; owner[i] < experts && j < c->cols; j++)
            row(c, i)[j] = field_add(row(c, i)[j], row(bias, owner[i])[j]);
}

void exact_GROUPED_NN(struct exact_args *k)
{
    const struct exact_view *c = V(GROUPED_NN, c), *counts = V(GROUPED_NN, counts);
    uint64_t experts = (uint64_t)INTEGER(GROUPED_NN, experts), blocks = (uint64_t)INTEGER(GROUPED_NN, blocks);
    multiply_groups(k, c, V(GROUPED_NN, a), V(GROUPED_NN, b), false, owners(k, counts, c->rows, experts, blocks),
                    experts);
}

void exact_GROUPED_BIAS_W(struct exact_args *k)
{
    const struct exact_view *db = V(GROUPED_BIAS_W, db), *dy = V(GROUPED_BIAS_W, dy),
                            *weight = V(GROUPED_BIAS_W, weight);
    uint64_t experts = (uint64_t)INTEGER(GROUPED_BIAS_W, experts);
    const uint64_t *owner = owners(k, V(GROUPED_BIAS_W, counts), dy->rows, experts,
                                   (uint64_t)INTEGER(GROUPED_BIAS_W, blocks));
    for (uint64_t i = 0; i < dy->rows; i++)
        for (uint64_t j = 0; owner[i] < experts && j < dy->cols; j++) {
            uint64_t *to = row(db, owner[i]) + j;
            *to = field_add(*to, field_mul(weight->at ? row(weight, i)[0] : 1, row(dy, i)[j]));
        }
}

void exact_GROUPED_TN(struct exact_args *k)
{
    const struct exact_view *c = V(GROUPED_TN, c), *a = V(GROUPED_TN, a), *b = V(GROUPED_TN, b);
    uint64_t experts = (uint64_t)INTEGER(GROUPED_TN, experts);
    const uint64_t *owner = owners(k, V(GROUPED_TN, counts), a->rows, experts, (uint64_t)INTEGER(GROUPED_TN, blocks));
    for (uint64_t i = 0; i < a->rows; i++)
        for (uint64_t r = 0; owner[i] < experts && r < a->cols; r++)
            for (uint64_t j = 0; j < c->cols; j++) {
                uint64_t *to = row(c, owner[i] * a->cols + r) + j;
                *to = field_add(*to, field_mul(row(a, i)[r], row(b, i)[j]));
            }
}

void exact_QUANTIZE(struct exact_args *k)
{
    const struct exact_view *y = V(QUANTIZE, y), *x = V(QUANTIZE, x);
    uint32_t words = (x->cols + 3) / 4;
    for (uint32_t i = 0; i < x->rows; i++)
        for (uint32_t w = 0; w < words && isa_eight_words(x->cols) == y->cols; w++) {
            struct exact_four four = {{0}};
            for (uint32_t e = 0; e < 4 && 4 * w + e < x->cols; e++)
                four.number[e] = row(x, i)[4 * w + e];
            row(y, i)[w] = k->fours->list.n;
            if (w % 32 == 0)
                row(y, i)[words + w / 32] = k->fours->list.n;
            vec_push(k->fours->arena, &k->fours->list, four);
        }
}

void exact_DEQUANTIZE(struct exact_args *k)
{
    const struct exact_view *y = V(DEQUANTIZE, y), *x = V(DEQUANTIZE, x);
    uint32_t words = (y->cols + 3) / 4;
    for (uint32_t i = 0; i < y->rows; i++)
        for (uint32_t j = 0; j < y->cols && isa_eight_words(y->cols) == x->cols; j++) {
            const uint64_t *from = row(x, i);
            bool known = from[j / 4] < k->fours->list.n && from[words + j / 128] == from[j / 128 * 32];
            row(y, i)[j] = known ? k->fours->list.at[from[j / 4]].number[j % 4] : exact_garbage(k);
        }
}
