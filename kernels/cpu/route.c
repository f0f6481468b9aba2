/* The router: which experts a token chooses, with what weight, and the gradient; how evenly the choices fall.
 *
 * Softmax routers (Shazeer et al. 2017; Mixtral normalises over the chosen ones, which equals a softmax of
 * their logits) and sigmoid routers with a correction bias and groups (DeepSeek-AI, arXiv 2412.19437,
 * section 2.1.2): a group counts by the sum of its two best biased scores, or, for softmax, by its best one
 * (arXiv 2405.04434, section 2.2.3).  Of equal scores the lower index wins.  The balance loss is that of
 * arXiv 2412.19437, equations 17 to 20, per sequence; the choices count as constants in its gradient. */

#include "kernels/cpu/places.h"
#include "kernels/cpu/rows.h"
#include "runtime/routing.h"

static int32_t *int_row(const struct view *v, uint32_t i)
{
    return (int32_t *)v->data + (size_t)i * v->ld;
}

static void scores(float *out, const float *logits, uint32_t n, bool sigmoid)
{
    if (sigmoid) {
        for (uint32_t j = 0; j < n; j++)
            out[j] = float_logistic(logits[j]);
        return;
    }
    float inverse = (float)(1 / row_exp(out, logits, row_max(logits, n), n));
    for (uint32_t j = 0; j < n; j++)
        out[j] *= inverse;
}

/* the index of the largest of n, and -inf in its place */
static uint32_t take_largest(float *x, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t j = 1; j < n; j++)
        if (x[j] > x[best] || (x[best] != x[best] && x[j] == x[j])) /* a NaN loses */
            best = j;
    x[best] = -INFINITY;
    return best;
}

static float group_score(const float *x, uint32_t n, bool two)
{
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t j = 0; j < n; j++) {
        if (x[j] > first) {
            second = first;
            first = x[j];
        } else if (x[j] > second) {
            second = x[j];
        }
    }
    return two && n > 1 ? first + second : first;
}

/* all but the pick best groups become -inf; tmp: 2 groups */
static void limit_groups(float *x, uint32_t n, uint32_t groups, uint32_t pick, bool sigmoid, float *tmp)
{
    uint32_t size = n / groups;
    float *picked = tmp + groups;
    for (uint32_t g = 0; g < groups; g++) {
        tmp[g] = group_score(x + g * size, size, sigmoid);
        picked[g] = 0;
    }
    for (uint32_t k = 0; k < pick; k++)
        picked[take_largest(tmp, groups)] = 1;
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t j = 0; j < size && picked[g] < 1; j++)
            x[g * size + j] = -INFINITY;
}

/* The token's choices as a run's --routing option wants them; value: what they were made by.  Without groups
 * and bias that is the logits: scores rise with them. */
static void use_routing(const struct kernel_args *k, uint32_t i, int32_t *chosen, const float *value)
{
    uint64_t at = (uint64_t)INTEGER(ROUTE, start) + i, sequence = (uint64_t)INTEGER(ROUTE, sequence);
    struct places p = {0, 1, (uint32_t)sequence, INTEGER(ROUTE, first), INTEGER(ROUTE, shift)};
    uint64_t sample = (uint64_t)((const double *)V(ROUTE, step)->data)[STEP_SAMPLE] + (uint64_t)INTEGER(ROUTE, sample);
    int64_t place = place_of(&p, 0, (uint32_t)(at % sequence));
    routing_token(k->routing, routing_at(k->routing, INTEGER(ROUTE, layer), sample + at / sequence, (uint64_t)place),
                  chosen, V(ROUTE, index)->cols, value, V(ROUTE, logits)->cols);
}

void cpu_ROUTE(struct kernel_args *k)
{
    const struct view *logits = V(ROUTE, logits), *score = V(ROUTE, score), *bias = V(ROUTE, bias);
    const struct view *index = V(ROUTE, index), *weight = V(ROUTE, weight);
    bool sigmoid = INTEGER(ROUTE, sigmoid);
    uint32_t n = logits->cols, groups = (uint32_t)INTEGER(ROUTE, groups), pick = (uint32_t)INTEGER(ROUTE, pick);
    float *out = k->scratch, *biased = out + n, *tmp = biased + n, scale = (float)NUMBER(ROUTE, scale);
    for (uint32_t i = 0; i < logits->rows; i++) {
        int32_t *chosen = int_row(index, i);
        scores(out, row_load(logits, i, NULL), n, sigmoid);
        for (uint32_t j = 0; j < n; j++)
            biased[j] = out[j] + (bias->data ? ((const float *)bias->data)[j] : 0);
        if (groups > 1)
            limit_groups(biased, n, groups, pick, sigmoid, tmp);
        double sum = 0;
        for (uint32_t j = 0; j < index->cols; j++)
            chosen[j] = (int32_t)take_largest(biased, n);
        for (uint32_t j = 0; j < n && k->routing; j++)
            biased[j] = bias->data ? out[j] + ((const float *)bias->data)[j] : row_load(logits, i, NULL)[j];
        if (k->routing)
            use_routing(k, i, chosen, biased);
        for (uint32_t j = 0; j < index->cols; j++)
            sum += (double)out[chosen[j]];
        float factor = INTEGER(ROUTE, normalize) ? (float)((double)scale / (sum + 1e-20)) : scale;
        for (uint32_t j = 0; j < index->cols; j++)
            tmp[j] = factor * out[chosen[j]];
        row_store(weight, i, tmp);
        row_store(score, i, out);
    }
}

/* dscore += the gradient of coefficient * sum of load p, p = score over its sum (which is 1 for a softmax) */
static void add_balance(float *dscore, const float *score, const double *load, uint32_t n, double coefficient,
                        bool sigmoid)
{
    double sum = sigmoid ? 0 : 1, dot = 0;
    for (uint32_t j = 0; j < n && sigmoid; j++)
        sum += (double)score[j];
    for (uint32_t j = 0; j < n && sigmoid; j++)
        dot += load[j] * (double)score[j] / (sum * sum);
    for (uint32_t j = 0; j < n; j++)
        dscore[j] += (float)(coefficient * (load[j] / sum - dot));
}

void cpu_ROUTE_I(struct kernel_args *k)
{
    const struct view *dlogits = V(ROUTE_I, dlogits), *score = V(ROUTE_I, score), *load = V(ROUTE_I, load);
    const struct view *index = V(ROUTE_I, index), *dweight = V(ROUTE_I, dweight);
    bool sigmoid = INTEGER(ROUTE_I, sigmoid);
    uint32_t n = score->cols;
    float *d = k->scratch;
    double scale = NUMBER(ROUTE_I, scale), balance = NUMBER(ROUTE_I, balance) * number_or_one(V(ROUTE_I, by));
    for (uint32_t i = 0; i < score->rows; i++) {
        const float *s = row_load(score, i, NULL), *dw = row_load(dweight, i, NULL);
        const int32_t *chosen = int_row(index, i);
        double sum = 0, dot = 0;
        memset(d, 0, n * sizeof *d);
        for (uint32_t j = 0; j < index->cols; j++)
            if ((uint32_t)chosen[j] < n) {
                sum += (double)s[chosen[j]];
                dot += (double)dw[j] * (double)s[chosen[j]];
            }
        bool normalize = INTEGER(ROUTE_I, normalize);
        sum += 1e-20;
        for (uint32_t j = 0; j < index->cols; j++)
            if ((uint32_t)chosen[j] < n)
                d[chosen[j]] += (float)(scale * (normalize ? ((double)dw[j] - dot / sum) / sum : (double)dw[j]));
        uint64_t q = ((uint64_t)INTEGER(ROUTE_I, start) + i) / (uint64_t)INTEGER(ROUTE_I, sequence);
        if (load->data && q < load->rows)
            add_balance(d, s, (const double *)load->data + q * load->ld, n, balance, sigmoid);
        double mean = sigmoid ? 0 : row_dot(d, s, n);
        for (uint32_t j = 0; j < n; j++)
            d[j] = sigmoid ? d[j] * s[j] * (1 - s[j]) : (float)((double)s[j] * ((double)d[j] - mean));
        row_store(dlogits, i, d);
    }
}

void cpu_LOAD(struct kernel_args *k)
{
    const struct view *load = V(LOAD, load), *index = V(LOAD, index);
    for (uint32_t q = 0; q < load->rows && !load->add; q++)
        memset((double *)load->data + (size_t)q * load->ld, 0, load->cols * sizeof(double));
    for (uint32_t i = 0; i < index->rows; i++) {
        uint64_t q = ((uint64_t)INTEGER(LOAD, start) + i) / (uint64_t)INTEGER(LOAD, sequence);
        const int32_t *chosen = int_row(index, i);
        for (uint32_t j = 0; j < index->cols && q < load->rows; j++)
            if ((uint32_t)chosen[j] < load->cols)
                ((double *)load->data)[q * load->ld + (uint32_t)chosen[j]] += 1;
    }
}

void cpu_BALANCE(struct kernel_args *k)
{
    const struct view *load = V(BALANCE, load), *score = V(BALANCE, score), *loss = V(BALANCE, loss);
    double total = 0, *out = loss->data;
    for (uint32_t i = 0; i < score->rows; i++) {
        uint64_t q = ((uint64_t)INTEGER(BALANCE, start) + i) / (uint64_t)INTEGER(BALANCE, sequence);
        const float *s = row_load(score, i, NULL);
        double dot = 0;
        for (uint32_t j = 0; j < score->cols && q < load->rows; j++)
            dot += ((const double *)load->data)[q * load->ld + j] * (double)s[j];
        total += dot / row_sum(s, score->cols);
    }
    total *= NUMBER(BALANCE, scale);
    *out = loss->add ? *out + total : total;
}

/* DeepSeek-AI, arXiv 2408.15664: experts with more than the mean become less likely, the others more */
void cpu_BIAS_MOVE(struct kernel_args *k)
{
    const struct view *bias = V(BIAS_MOVE, bias);
    const double *load = V(BIAS_MOVE, load)->data;
    float *b = bias->data;
    double mean = 0;
    for (uint32_t j = 0; j < bias->cols; j++)
        mean += load[j] / bias->cols;
    for (uint32_t j = 0; j < bias->cols && *(const double *)V(BIAS_MOVE, scale)->data >= 0; j++)
        b[j] += (float)(NUMBER(BIAS_MOVE, rate) * (double)((load[j] < mean) - (load[j] > mean)));
}
