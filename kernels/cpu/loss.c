/* Cross-entropy over a vocabulary that may be split over ranks, in pieces between which the runtime reduces:
 * row maximum, sum of exponentials with the target's logit, loss, and the gradient by the logits.
 * Columns at start + j >= vocab are padding: they count nowhere and get gradient 0.  Rows of target -1 are
 * masked: their sum of exponentials is given as 1 and their target's logit as 0, so that their loss is 0
 * whatever the order of sums. */

#include "kernels/cpu/rows.h"

/* columns of this rank's part that are real */
static uint32_t valid_columns(int64_t start, int64_t vocab, uint32_t cols)
{
    int64_t n = vocab - start;
    return n <= 0 ? 0 : n < (int64_t)cols ? (uint32_t)n : cols;
}

static bool masked(const struct view *targets, uint32_t i)
{
    return ((const int32_t *)targets->data)[(size_t)i * targets->ld] == -1;
}

/* the target's column here, or -1 */
static int64_t target_column(const struct view *targets, uint32_t i, int64_t start, uint32_t n)
{
    int64_t j = ((const int32_t *)targets->data)[(size_t)i * targets->ld] - start;
    return j >= 0 && j < (int64_t)n ? j : -1;
}

void cpu_XENT_MAX(struct kernel_args *k)
{
    const struct view *logits = V(XENT_MAX, logits);
    uint32_t n = valid_columns(INTEGER(XENT_MAX, start), INTEGER(XENT_MAX, vocab), logits->cols);
    for (uint32_t i = 0; i < logits->rows; i++) {
        const float *in = row_load(logits, i, k->scratch);
        float most = row_max(in, n);
        row_store(V(XENT_MAX, max), i, &most);
    }
}

void cpu_XENT_SUM(struct kernel_args *k)
{
    const struct view *logits = V(XENT_SUM, logits), *targets = V(XENT_SUM, targets);
    int64_t start = INTEGER(XENT_SUM, start);
    float *tmp = k->scratch, *out = tmp + logits->cols;
    uint32_t n = valid_columns(start, INTEGER(XENT_SUM, vocab), logits->cols);
    for (uint32_t i = 0; i < logits->rows; i++) {
        const float *in = row_load(logits, i, tmp);
        float most = *row_load(V(XENT_SUM, max), i, NULL);
        double sum = row_exp(out, in, most, n);
        int64_t target = target_column(targets, i, start, n);
        float both[2] = {(float)sum, target < 0 ? 0 : in[target] - most};
        if (masked(targets, i))
            both[0] = start == 0;
        row_store(V(XENT_SUM, sum), i, both);
    }
}

void cpu_XENT_LOSS(struct kernel_args *k)
{
    const struct view *sum = V(XENT_LOSS, sum), *loss = V(XENT_LOSS, loss);
    double total = 0, *out = loss->data;
    for (uint32_t i = 0; i < sum->rows; i++) {
        const float *in = row_load(sum, i, NULL);
        total += log((double)in[0]) - (double)in[1];
    }
    total *= NUMBER(XENT_LOSS, scale) * (double)INTEGER(XENT_LOSS, count);
    *out = loss->add ? *out + total : total;
}

VARIANTS void cpu_XENT_I(struct kernel_args *k)
{
    const struct view *logits = V(XENT_I, logits), *targets = V(XENT_I, targets), *dlogits = V(XENT_I, dlogits);
    int64_t start = INTEGER(XENT_I, start);
    uint32_t n = valid_columns(start, INTEGER(XENT_I, vocab), logits->cols);
    float *tmp = k->scratch, *out = tmp + logits->cols,
          scale = (float)(NUMBER(XENT_I, scale) * number_or_one(V(XENT_I, by)));
    memset(out, 0, logits->cols * sizeof *out);
    for (uint32_t i = 0; i < logits->rows; i++) {
        const float *in = row_load(logits, i, tmp);
        float most = *row_load(V(XENT_I, max), i, NULL), inverse = 1 / row_load(V(XENT_I, sum), i, NULL)[0];
        for (uint32_t j = 0; j < n; j++)
            out[j] = scale * (float_exp(in[j] - most) * inverse);
        int64_t target = target_column(targets, i, start, n);
        if (target >= 0)
            out[target] -= scale;
        if (masked(targets, i))
            memset(out, 0, n * sizeof *out);
        row_store(dlogits, i, out);
    }
}
