/* See sums.h.  One loop per type and rule, so that each is vector code. */

#include "kernels/cpu/sums.h"
#include "kernels/cpu/rows.h"

/* acc[j] = value, += value, or the larger of the two; a NaN in acc stays */
#define TAKE(acc, value)                                                                                               \
    do {                                                                                                               \
        if (rule == SUMS_SET)                                                                                          \
            for (uint32_t j = 0; j < n; j++)                                                                           \
                (acc)[j] = (value);                                                                                    \
        else if (rule == SUMS_ADD)                                                                                     \
            for (uint32_t j = 0; j < n; j++)                                                                           \
                (acc)[j] += (value);                                                                                   \
        else                                                                                                           \
            for (uint32_t j = 0; j < n; j++)                                                                           \
                (acc)[j] = (value) > (acc)[j] ? (value) : (acc)[j];                                                    \
    } while (0)

VARIANTS void sums_take(union sums *sums, const void *in, uint32_t n, enum dtype dtype, enum sums_rule rule)
{
    const float *restrict f = in;
    const double *restrict d = in;
    const uint16_t *restrict h = in;
    const int32_t *restrict i = in;
    switch (dtype) {
    case DTYPE_F32:
        TAKE(sums->f, f[j]);
        break;
    case DTYPE_BF16:
        TAKE(sums->f, float_of_bf16(h[j]));
        break;
    case DTYPE_F16:
        TAKE(sums->f, float_of_f16(h[j]));
        break;
    case DTYPE_F64:
        TAKE(sums->d, d[j]);
        break;
    case DTYPE_I32:
        TAKE(sums->i, i[j]);
        break;
    case NDTYPES:
        break;
    }
}

VARIANTS void sums_store(const union sums *sums, void *out, uint32_t n, enum dtype dtype)
{
    uint16_t *restrict h = out;
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_I32:
        memcpy(out, sums, n * sizeof(float));
        break;
    case DTYPE_BF16:
        for (uint32_t j = 0; j < n; j++)
            h[j] = bf16_of_float(sums->f[j]);
        break;
    case DTYPE_F16:
        for (uint32_t j = 0; j < n; j++)
            h[j] = f16_of_float(sums->f[j]);
        break;
    case DTYPE_F64:
        memcpy(out, sums, n * sizeof(double));
        break;
    case NDTYPES:
        break;
    }
}
