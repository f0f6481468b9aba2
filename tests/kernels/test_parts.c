/* Attention in parts against plain formulas in double precision: every way in which a rank of a split
 * sequence meets keys, parts merged and gradients added over all keys against attention to all at once. */

#include "tests/kernels/harness.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* place of row `row` of an operand, by the words of isa.def */
static int64_t place(int64_t row, int64_t rows, int64_t parts, int64_t sequence, int64_t first, int64_t shift)
{
    int64_t part = row / (rows / parts), w = row % sequence;
    return first + part * sequence / 2 + w + (w >= sequence / 2 ? shift - part * sequence : 0);
}

static int64_t sequence_of(int64_t row, int64_t rows, int64_t parts, int64_t sequence)
{
    return row % (rows / parts) / sequence;
}

enum { MOST_ROWS = 160 };

/* operands and attributes of either instruction; places and sequences of rows of q, of k */
struct call {
    const double *q, *k, *v;
    uint32_t t, u;
    int64_t heads, kv, head, value, sequence, window, parts, kparts, first, shift, kfirst, kshift, alibi, first_head;
    double scale, softcap;
    int64_t qat[MOST_ROWS], kat[MOST_ROWS], qof[MOST_ROWS], kof[MOST_ROWS];
};

#define CALL(s, op)                                                                                          \
    {                                                                                                        \
        s->v[OPND(op, q)], s->v[OPND(op, k)], s->v[OPND(op, v)], s->rows[OPND(op, q)], s->rows[OPND(op, k)], \
            INT_ATTR(s, op, heads), INT_ATTR(s, op, kv), INT_ATTR(s, op, head),                              \
            s->cols[OPND(op, v)] / INT_ATTR(s, op, kv), INT_ATTR(s, op, sequence), INT_ATTR(s, op, window),  \
            INT_ATTR(s, op, parts), INT_ATTR(s, op, kparts), INT_ATTR(s, op, first), INT_ATTR(s, op, shift), \
            INT_ATTR(s, op, kfirst), INT_ATTR(s, op, kshift), INT_ATTR(s, op, alibi),                        \
            INT_ATTR(s, op, first_head), REAL_ATTR(s, op, scale),                                            \
            REAL_ATTR(s, op, softcap), {0}, {0}, {0}, {0}                                                    \
    }

static void find_places(struct call *c)
{
    CU_ASSERT_FATAL(c->t <= MOST_ROWS && c->u <= MOST_ROWS);
    for (uint32_t i = 0; i < c->t; i++) {
        c->qat[i] = place(i, c->t, c->parts, c->sequence, c->first, c->shift);
        c->qof[i] = sequence_of(i, c->t, c->parts, c->sequence);
    }
    for (uint32_t j = 0; j < c->u; j++) {
        c->kat[j] = place(j, c->u, c->kparts, c->sequence, c->kfirst, c->kshift);
        c->kof[j] = sequence_of(j, c->u, c->kparts, c->sequence);
    }
}

static bool sees(const struct call *c, uint32_t i, uint32_t j)
{
    int64_t p = c->qat[i], r = c->kat[j];
    return c->qof[i] == c->kof[j] && r <= p && (!c->window || r > p - c->window);
}

/* after scale and soft cap, before biases */
static double capped(const struct call *c, uint32_t i, uint32_t j, uint32_t h)
{
    double sum = 0;
    for (int64_t d = 0; d < c->head; d++)
        sum +=
            c->q[(i * c->heads + h) * c->head + d] * c->k[(j * c->kv + h / (c->heads / c->kv)) * c->head + d];
    sum *= c->scale;
    return c->softcap > 0 ? c->softcap * tanh(sum / c->softcap) : sum;
}

static double score(const struct call *c, uint32_t i, uint32_t j, uint32_t h)
{
    return capped(c, i, j, h) + (double)(c->kat[j] - c->qat[i]) * harness_slope(c->alibi, c->first_head + h);
}

/* log-sum-exp of a row and head; out: head numbers, or NULL */
static double attend(const struct call *c, uint32_t i, uint32_t h, double *out)
{
    double sum = 0;
    for (int64_t d = 0; out && d < c->value; d++)
        out[d] = 0;
    for (uint32_t j = 0; j < c->u; j++) {
        if (!sees(c, i, j))
            continue;
        double e = exp(score(c, i, j, h));
        sum += e;
        for (int64_t d = 0; out && d < c->value; d++)
            out[d] += e * c->v[(j * c->kv + h / (c->heads / c->kv)) * c->value + d];
    }
    for (int64_t d = 0; out && sum > 0 && d < c->value; d++)
        out[d] /= sum;
    return sum > 0 ? log(sum) : -INFINITY;
}

static void ref_part(struct sample *s)
{
    struct call c = CALL(s, ATTENTION_PART);
    find_places(&c);
    for (uint32_t i = 0; i < c.t; i++)
        for (uint32_t h = 0; h < c.heads; h++)
            s->v[OPND(ATTENTION_PART, lse)][i * c.heads + h] =
                attend(&c, i, h, s->v[OPND(ATTENTION_PART, o)] + (i * c.heads + h) * c.value);
}

/* o and lse as if there were a further key of score 0 and value 0.1 elsewhere: what other ranks hold */
static void exact_output(struct sample *s)
{
    struct call c = CALL(s, ATTENTION_PART_I);
    double *o = s->v[OPND(ATTENTION_PART_I, o)];
    find_places(&c);
    for (uint32_t i = 0; i < c.t; i++)
        for (uint32_t h = 0; h < c.heads; h++) {
            double *at = o + (i * c.heads + h) * c.value, e = exp(attend(&c, i, h, at));
            for (int64_t d = 0; d < c.value; d++)
                at[d] = (e * at[d] + 0.1) / (e + 1);
            s->v[OPND(ATTENTION_PART_I, lse)][i * c.heads + h] = log(e + 1);
        }
}

/* o as a kernel may find it, in bf16: the row sums of o dout are those of the rounded one */
static void prepare_part_i(struct sample *s)
{
    size_t n = (size_t)s->rows[OPND(ATTENTION_PART_I, o)] * s->cols[OPND(ATTENTION_PART_I, o)];
    exact_output(s);
    for (size_t i = 0; i < n; i++) {
        double *x = &s->v[OPND(ATTENTION_PART_I, o)][i];
        int power;
        double mantissa = frexp(*x, &power);
        *x = ldexp(nearbyint(ldexp(mantissa, 8)), power - 8);
    }
}

static double objective(const struct sample *s)
{
    struct call c = CALL(s, ATTENTION_PART_I);
    double sum = 0, out[16];
    find_places(&c);
    for (uint32_t i = 0; i < c.t; i++)
        for (uint32_t h = 0; h < c.heads; h++) {
            double e = exp(attend(&c, i, h, out));
            for (int64_t d = 0; d < c.value; d++)
                sum += (e * out[d] + 0.1) / (e + 1) *
                       s->v[OPND(ATTENTION_PART_I, dout)][(i * c.heads + h) * c.value + d];
        }
    return sum;
}

/* one row, key and head: dS = P (dP - rowsum(o dout)) cap's slope */
static void add_pair(struct sample *s, const struct call *c, uint32_t i, uint32_t j, uint32_t h)
{
    int64_t key = j * c->kv + h / (c->heads / c->kv), row = i * c->heads + h;
    const double *dout = s->v[OPND(ATTENTION_PART_I, dout)] + row * c->value;
    const double *o = s->v[OPND(ATTENTION_PART_I, o)] + row * c->value;
    double dp = 0, sc = capped(c, i, j, h), p = exp(score(c, i, j, h) - s->v[OPND(ATTENTION_PART_I, lse)][row]);
    double slope = c->softcap > 0 ? 1 - sc * sc / (c->softcap * c->softcap) : 1;
    for (int64_t d = 0; d < c->value; d++) {
        dp += dout[d] * (c->v[key * c->value + d] - o[d]);
        s->v[OPND(ATTENTION_PART_I, dv)][key * c->value + d] += p * dout[d];
    }
    for (int64_t d = 0; d < c->head; d++) {
        s->v[OPND(ATTENTION_PART_I, dq)][row * c->head + d] +=
            p * dp * slope * c->scale * c->k[key * c->head + d];
        s->v[OPND(ATTENTION_PART_I, dk)][key * c->head + d] +=
            p * dp * slope * c->scale * c->q[row * c->head + d];
    }
}

static void formula(struct sample *s)
{
    struct call c = CALL(s, ATTENTION_PART_I);
    find_places(&c);
    for (uint32_t k = 0; k < 3; k++)
        memset(s->v[k], 0, (size_t)s->rows[k] * s->cols[k] * sizeof(double));
    for (uint32_t i = 0; i < c.t; i++)
        for (uint32_t j = 0; j < c.u; j++)
            for (uint32_t h = 0; h < c.heads && sees(&c, i, j); h++)
                add_pair(s, &c, i, j, h);
}

static void ref_part_i(struct sample *s)
{
    exact_output(s);
    for (uint32_t k = 0; k < 3 && s->rows[0] < 64;
         k++) { /* the formula is the gradient: dq, dk, dv by q, k, v */
        size_t n = (size_t)s->rows[k] * s->cols[k];
        double *want = s->v[k], worst = 0;
        s->v[k] = calloc(n, sizeof *want);
        harness_differentiate(s, objective, OPND(ATTENTION_PART_I, q) + k, k);
        double *have = s->v[k];
        s->v[k] = want;
        formula(s);
        for (size_t e = 0; e < n; e++)
            worst = fmax(worst, fabs(want[e] - have[e]));
        CU_ASSERT(worst < 1e-7);
        free(have);
    }
    prepare_part_i(s);
    formula(s);
}

static void prepare_merge(struct sample *s)
{
    s->v[OPND(ATTENTION_MERGE, lse)][0] = -INFINITY;
    s->v[OPND(ATTENTION_MERGE, part_lse)][1] = -INFINITY;
    s->v[OPND(ATTENTION_MERGE, part_lse)][2] = s->v[OPND(ATTENTION_MERGE, lse)][2] = -INFINITY;
    for (uint32_t d = 0; d < INT_ATTR(s, ATTENTION_MERGE, head); d++)
        s->v[OPND(ATTENTION_MERGE, o)][2 * INT_ATTR(s, ATTENTION_MERGE, head) + d] = 0;
}

static void ref_merge(struct sample *s)
{
    int64_t head = INT_ATTR(s, ATTENTION_MERGE, head);
    for (uint32_t i = 0; i < s->rows[OPND(ATTENTION_MERGE, lse)] * s->cols[OPND(ATTENTION_MERGE, lse)]; i++) {
        double *a = &s->v[OPND(ATTENTION_MERGE, lse)][i], ea = exp(*a),
               eb = exp(s->v[OPND(ATTENTION_MERGE, part_lse)][i]);
        for (int64_t d = 0; d < head; d++) {
            double *o = &s->v[OPND(ATTENTION_MERGE, o)][i * head + d];
            *o = ea + eb > 0 ? (ea * *o + eb * s->v[OPND(ATTENTION_MERGE, part)][i * head + d]) / (ea + eb)
                             : 0;
        }
        *a = log(ea + eb);
    }
}

static void ref_split(struct sample *s)
{
    uint32_t t = s->rows[OPND(COLUMNS_SPLIT, x)], w = s->cols[OPND(COLUMNS_SPLIT, y)],
             n = s->cols[OPND(COLUMNS_SPLIT, x)];
    for (uint32_t i = 0; i < t; i++)
        for (uint32_t j = 0; j < n; j++)
            s->v[OPND(COLUMNS_SPLIT, y)][(j / w * t + i) * w + j % w] =
                s->v[OPND(COLUMNS_SPLIT, x)][i * n + j];
}

static void ref_join(struct sample *s)
{
    uint32_t t = s->rows[OPND(COLUMNS_JOIN, y)], w = s->cols[OPND(COLUMNS_JOIN, x)],
             n = s->cols[OPND(COLUMNS_JOIN, y)];
    for (uint32_t i = 0; i < t; i++)
        for (uint32_t j = 0; j < n; j++)
            s->v[OPND(COLUMNS_JOIN, y)][i * n + j] = s->v[OPND(COLUMNS_JOIN, x)][(j / w * t + i) * w + j % w];
}

/* sequences of 24 tokens on 3 ranks: runs of 4; two sequences */
#define RANK(c)                                                                                              \
    {"first", 4 * (c)},                                                                                      \
    {                                                                                                        \
        "shift", 16 - 8 * (c)                                                                                \
    }
#define KEYS(c)                                                                                              \
    {"kfirst", 4 * (c)},                                                                                     \
    {                                                                                                        \
        "kshift", 16 - 8 * (c)                                                                               \
    }
#define HEADS                                                                                                \
    {"heads", 4}, {"kv", 2}, {"head", 3}, {"sequence", 8},                                                   \
    {                                                                                                        \
        "scale", 0.7                                                                                         \
    }
#define STEEP                                                                                                \
    {"heads", 4}, {"kv", 2}, {"head", 3}, {"sequence", 8},                                                   \
    {                                                                                                        \
        "scale", 3                                                                                           \
    }
static const struct kernel_case cases[] = {
    /* own keys; of one before, of one behind; gathered keys; heads of all rows */
    {OP_ATTENTION_PART,
     {{"t", 16}, {"u", 16}, {"w", 3}},
     {HEADS, {"parts", 1}, {"kparts", 1}, RANK(1), KEYS(1)},
     NULL,
     ref_part,
     0,
     0,
     0},
    {OP_ATTENTION_PART,
     {{"t", 16}, {"u", 16}, {"w", 3}},
     {HEADS, {"parts", 1}, {"kparts", 1}, RANK(1), KEYS(0)},
     NULL,
     ref_part,
     0,
     0,
     0},
    {OP_ATTENTION_PART,
     {{"t", 16}, {"u", 16}, {"w", 3}},
     {HEADS, {"parts", 1}, {"kparts", 1}, RANK(1), KEYS(2)},
     NULL,
     ref_part,
     0,
     0,
     0},
    {OP_ATTENTION_PART,
     {{"t", 16}, {"u", 16}, {"w", 3}},
     {HEADS, {"parts", 1}, {"kparts", 1}, RANK(0), KEYS(2), {"window", 6}},
     NULL,
     ref_part,
     0,
     0,
     0},
    {OP_ATTENTION_PART,
     {{"t", 16}, {"u", 48}, {"w", 3}},
     {HEADS, {"parts", 1}, {"kparts", 3}, RANK(1), {"kshift", 16}},
     NULL,
     ref_part,
     0,
     0,
     0},
    {OP_ATTENTION_PART,
     {{"t", 16}, {"u", 48}, {"w", 3}},
     {HEADS, {"parts", 1}, {"kparts", 3}, RANK(2), {"kshift", 16}, {"window", 5}, {"softcap", 2}},
     NULL,
     ref_part,
     0,
     4e-6,
     0},
    {OP_ATTENTION_PART,
     {{"t", 48}, {"u", 48}, {"w", 3}},
     {HEADS, {"parts", 3}, {"kparts", 3}, {"shift", 16}, {"kshift", 16}, {"window", 9}},
     NULL,
     ref_part,
     0,
     0,
     0},
    /* runs longer than a block of rows */
    {OP_ATTENTION_PART,
     {{"t", 150}, {"u", 150}, {"w", 5}},
     {{"heads", 2},
      {"kv", 1},
      {"head", 4},
      {"sequence", 150},
      {"scale", 0.7},
      {"parts", 1},
      {"kparts", 1},
      {"first", 75},
      {"shift", 75},
      {"kshift", 225}},
     NULL,
     ref_part,
     0,
     0,
     0},
    {OP_ATTENTION_PART_I,
     {{"t", 16}, {"u", 16}, {"w", 3}},
     {STEEP, {"parts", 1}, {"kparts", 1}, RANK(1), KEYS(1)},
     prepare_part_i,
     ref_part_i,
     0,
     1e-5,
     0},
    {OP_ATTENTION_PART_I,
     {{"t", 16}, {"u", 16}, {"w", 3}},
     {STEEP, {"parts", 1}, {"kparts", 1}, RANK(1), KEYS(2)},
     prepare_part_i,
     ref_part_i,
     0,
     1e-5,
     0},
    {OP_ATTENTION_PART_I,
     {{"t", 8}, {"u", 24}, {"w", 3}},
     {STEEP, {"parts", 1}, {"kparts", 3}, RANK(1), {"kshift", 16}, {"window", 6}, {"softcap", 1.5}},
     prepare_part_i,
     ref_part_i,
     0,
     1e-5,
     0},
    {OP_ATTENTION_PART_I,
     {{"t", 24}, {"u", 24}, {"w", 3}},
     {STEEP, {"parts", 3}, {"kparts", 3}, {"shift", 16}, {"kshift", 16}},
     prepare_part_i,
     ref_part_i,
     0,
     1e-5,
     0},
    {OP_ATTENTION_PART_I,
     {{"t", 140}, {"u", 140}, {"w", 3}},
     {{"heads", 1},
      {"kv", 1},
      {"head", 2},
      {"sequence", 140},
      {"scale", 6},
      {"parts", 1},
      {"kparts", 1},
      {"first", 70},
      {"shift", 70},
      {"kshift", 210},
      {"window", 80}},
     prepare_part_i,
     ref_part_i,
     0,
     1e-5,
     0},
    {OP_ATTENTION_PART,
     {{"t", 16}, {"u", 48}, {"w", 3}},
     {HEADS, {"parts", 1}, {"kparts", 3}, RANK(2), {"kshift", 16}, {"window", 5}, {"softcap", 2}, {"alibi", 6}, {"first_head", 2}},
     NULL,
     ref_part,
     0,
     4e-6,
     0},
    {OP_ATTENTION_PART_I,
     {{"t", 16}, {"u", 16}, {"w", 3}},
     {STEEP, {"parts", 1}, {"kparts", 1}, RANK(1), KEYS(0), {"alibi", 4}},
     prepare_part_i,
     ref_part_i,
     0,
     1e-5,
     0},
    {OP_ATTENTION_PART_I,
     {{"t", 8}, {"u", 24}, {"w", 3}},
     {STEEP, {"parts", 1}, {"kparts", 3}, RANK(1), {"kshift", 16}, {"window", 6}, {"softcap", 1.5}, {"alibi", 5}, {"first_head", 1}},
     prepare_part_i,
     ref_part_i,
     0,
     1e-5,
     0},
    {OP_ATTENTION_MERGE, {{"t", 5}}, {{"heads", 3}, {"head", 4}}, prepare_merge, ref_merge, 0, 0, 0},
    {OP_COLUMNS_SPLIT, {{"t", 5}, {"w", 3}}, {{"parts", 4}}, NULL, ref_split, 0, 0, 0},
    {OP_COLUMNS_JOIN, {{"t", 5}, {"w", 3}}, {{"parts", 4}}, NULL, ref_join, 0, 0, 0},
};

static void test_all(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        harness_check(&cases[i]);
}

void suite_parts(void);
void suite_parts(void)
{
    CU_pSuite s = CU_add_suite("parts", NULL, NULL);
    CU_add_test(s, "attention in parts equals plain formulas", test_all);
}
