/* Rotary position embedding (Su et al., arXiv 2104.09864).
 *
 * Pair i of a head turns by position * frequency_i, frequency_i = theta^(-2i / dims), scaled as Llama 3 or
 * linearly, or as YaRN (Peng et al., arXiv 2309.00071, section 3.2). Pairs are (i, i + dims/2), Hugging
 * Face's order, or adjacent (2i, 2i + 1), Meta's.  Angles in fp64: at position 10^5 an fp32 angle would be
 * wrong in the third digit.  Only every ANCHOR-th position calls sin and cos; from there each next position
 * is a rotation by one step of frequency_i, in fp64 (error below ANCHOR 2^-52).  Anchors lie at multiples of
 * ANCHOR, so that a position's table does not depend on where the rank's part begins. */

#include "kernels/cpu/places.h"
#include "kernels/cpu/rows.h"

enum { ANCHOR = 64 };
enum scaling { SCALING_NONE, SCALING_LINEAR, SCALING_LLAMA3, SCALING_YARN };

/* YaRN: pairs that turn more than `high` times within the original length keep their frequency, those that
 * turn less than `low` times are divided by factor, between them it fades linearly in the pair's number */
static double yarn_frequency(const struct kernel_args *k, double f, uint32_t pair, uint32_t dims)
{
    double scale = dims / (2 * log(NUMBER(ROPE, theta))), turn = 2 * 3.14159265358979323846;
    double first = floor(scale * log(NUMBER(ROPE, original) / (NUMBER(ROPE, high) * turn)));
    double last = ceil(scale * log(NUMBER(ROPE, original) / (NUMBER(ROPE, low) * turn)));
    first = first > 0 ? first : 0;
    last = last < dims - 1 ? last : dims - 1;
    last = last > first ? last : first + 0.001;
    double ramp = (pair - first) / (last - first);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return f * (1 - ramp) + f / NUMBER(ROPE, factor) * ramp;
}

/* Llama 3.1: wavelengths above original/low are stretched by factor, those below original/high kept, between
 * blended */
static double frequency(const struct kernel_args *k, uint32_t pair, uint32_t dims)
{
    double f = pow(NUMBER(ROPE, theta), -2.0 * pair / dims), factor = NUMBER(ROPE, factor);
    double low = NUMBER(ROPE, low), high = NUMBER(ROPE, high), original = NUMBER(ROPE, original);
    if (INTEGER(ROPE, scaling) == SCALING_LINEAR)
        return f / factor;
    if (INTEGER(ROPE, scaling) == SCALING_YARN)
        return yarn_frequency(k, f, pair, dims);
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

/* row i of table = {cos, sign sin} of the place of (start + i) mod sequence, half of dims each; work: 5 half
 * doubles */
VARIANTS static void make_table(const struct kernel_args *k, float *table, uint32_t positions, double *restrict work)
{
    uint32_t dims = (uint32_t)INTEGER(ROPE, dims), half = dims / 2;
    uint64_t sequence = (uint64_t)INTEGER(ROPE, sequence), start = (uint64_t)INTEGER(ROPE, start);
    struct places places = {0, 1, (uint32_t)sequence, INTEGER(ROPE, first), INTEGER(ROPE, shift)};
    double *restrict f = work, *restrict step_cos = f + half, *restrict step_sin = step_cos + half;
    double *restrict cosine = step_sin + half, *restrict sine = cosine + half;
    double size = NUMBER(ROPE, magnitude) > 0 ? NUMBER(ROPE, magnitude) : 1,
           sign = INTEGER(ROPE, inverse) ? -size : size;
    for (uint32_t p = 0; p < half; p++) {
        f[p] = frequency(k, p, dims);
        sincos(f[p], &step_sin[p], &step_cos[p]);
    }
    for (uint32_t i = 0; i < positions; i++) {
        uint32_t w = (uint32_t)((start + i) % sequence);
        uint64_t position = (uint64_t)place_of(&places, 0, w), beyond = position % ANCHOR, turns = 1;
        if (i == 0 || w == 0 || w == sequence / 2 || beyond == 0) {
            for (uint32_t p = 0; p < half; p++)
                sincos((double)(position - beyond) * f[p], &sine[p], &cosine[p]);
            turns = beyond;
        }
        for (; turns; turns--)
            for (uint32_t p = 0; p < half; p++) {
                double c = cosine[p] * step_cos[p] - sine[p] * step_sin[p];
                sine[p] = sine[p] * step_cos[p] + cosine[p] * step_sin[p];
                cosine[p] = c;
            }
        float *restrict out = table + (size_t)i * dims;
        for (uint32_t p = 0; p < half; p++) {
            out[p] = (float)(size * cosine[p]);
            out[half + p] = (float)(sign * sine[p]);
        }
    }
}

ALWAYS_INLINE void rotate_head(const float *restrict in, float *restrict out, const float *cosine, const float *sine,
                               uint32_t dims, bool adjacent)
{
    for (uint32_t p = 0; p < dims / 2; p++) {
        uint32_t a = adjacent ? 2 * p : p, b = adjacent ? 2 * p + 1 : p + dims / 2;
        out[a] = in[a] * cosine[p] - in[b] * sine[p];
        out[b] = in[b] * cosine[p] + in[a] * sine[p];
    }
}

VARIANTS void cpu_ROPE(struct kernel_args *k)
{
    const struct view *y = V(ROPE, y), *x = V(ROPE, x);
    uint32_t head = (uint32_t)INTEGER(ROPE, head), dims = (uint32_t)INTEGER(ROPE, dims), half = dims / 2;
    uint32_t from = (uint32_t)INTEGER(ROPE, from);
    uint64_t sequence = (uint64_t)INTEGER(ROPE, sequence);
    uint32_t positions = x->rows < sequence ? x->rows : (uint32_t)sequence;
    double *work = (double *)(void *)k->scratch;
    float *table = k->scratch + 10 * (size_t)half, *tmp = table + (size_t)positions * dims, *out = tmp + x->cols;
    make_table(k, table, positions, work);
    for (uint32_t i = 0; i < x->rows; i++) {
        const float *in = row_load(x, i, tmp), *cosine = table + (size_t)(i % positions) * dims;
        if (dims < head)
            memcpy(out, in, x->cols * sizeof *out);
        for (uint32_t c = 0; c + head <= x->cols; c += head)
            rotate_head(in + c + from, out + c + from, cosine, cosine + half, dims, INTEGER(ROPE, adjacent) != 0);
        row_store(y, i, out);
    }
}
