/* Rotary position embedding (Su et al., arXiv 2104.09864).
 *
 * Pair i of a head turns by position * frequency_i, frequency_i = theta^(-2i / dims), scaled as Llama 3 or linearly.
 * Pairs are (i, i + dims/2), Hugging Face's order, or adjacent (2i, 2i + 1), Meta's.  Angles in fp64: at position
 * 10^5 an fp32 angle would be wrong in the third digit. */

#include "kernels/cpu/rows.h"

enum scaling { SCALING_NONE, SCALING_LINEAR, SCALING_LLAMA3 };

/* Llama 3.1: wavelengths above original/low are stretched by factor, those below original/high kept, between blended */
static double frequency(const struct kernel_args *k, uint32_t pair, uint32_t dims)
{
    double f = pow(NUMBER(ROPE, theta), -2.0 * pair / dims), factor = NUMBER(ROPE, factor);
    double low = NUMBER(ROPE, low), high = NUMBER(ROPE, high), original = NUMBER(ROPE, original);
    if (INTEGER(ROPE, scaling) == SCALING_LINEAR)
        return f / factor;
    if (INTEGER(ROPE, scaling) != SCALING_LLAMA3)
        return f;
    double turns = original * f / (2 * 3.14159265358979323846); /* full turns within the original length */
    if (turns < low)
        return f / factor;
    if (turns > high)
        return f;
    double keep = (turns - low) / (high - low);
    return (1 - keep) * f / factor + keep * f;
}

static void rotate_head(const float *in, float *out, const float *cosine, const float *sine, uint32_t dims,
                        bool adjacent)
{
    for (uint32_t p = 0; p < dims / 2; p++) {
        uint32_t a = adjacent ? 2 * p : p, b = adjacent ? 2 * p + 1 : p + dims / 2;
        out[a] = in[a] * cosine[p] - in[b] * sine[p];
        out[b] = in[b] * cosine[p] + in[a] * sine[p];
    }
}

void cpu_ROPE(struct kernel_args *k)
{
    const struct view *y = V(ROPE, y), *x = V(ROPE, x);
    uint32_t head = (uint32_t)INTEGER(ROPE, head), dims = (uint32_t)INTEGER(ROPE, dims), half = dims / 2;
    uint64_t sequence = (uint64_t)INTEGER(ROPE, sequence), start = (uint64_t)INTEGER(ROPE, start);
    uint32_t positions = x->rows < sequence ? x->rows : (uint32_t)sequence;
    float *table = k->scratch, *tmp = table + (size_t)positions * dims, *out = tmp + x->cols;
    double sign = INTEGER(ROPE, inverse) ? -1 : 1;
    for (uint32_t p = 0; p < half; p++) {
        double f = frequency(k, p, dims);
        for (uint32_t i = 0; i < positions; i++) {
            double angle = (double)((start + i) % sequence) * f;
            table[(size_t)i * dims + p] = (float)cos(angle);
            table[(size_t)i * dims + half + p] = (float)(sign * sin(angle));
        }
    }
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp), *cosine = table + (size_t)(i % positions) * dims;
        memcpy(out, in, x->cols * sizeof *out);
        for (uint32_t c = 0; c + head <= x->cols; c += head)
            rotate_head(in + c, out + c, cosine, cosine + half, dims, INTEGER(ROPE, adjacent) != 0);
        row_store(y, i, out);
    }
}
