/* Sums over ranks that share one device, and progress words.
 *
 * One thread takes an element of all members, adds in member order and stores to all who get it: the same bits as the
 * CPU's shared-memory transport, and in place because nobody else touches that element.  fp32 is added in fp32 as there,
 * bf16 in fp32 and rounded once. */

#include "kernels/cuda/meetings.h"
#include "kernels/cuda/pack.cuh"

template <typename T> struct wide {
    typedef T type;
};
template <> struct wide<bf16> {
    typedef float type;
};

__device__ static float fetch(const bf16 *p)
{
    return widen(*p);
}
template <typename T> __device__ static T fetch(const T *p)
{
    return *p;
}
__device__ static void put(bf16 *p, float v)
{
    *p = narrow<bf16>(v);
}
template <typename T> __device__ static void put(T *p, T v)
{
    *p = v;
}

template <typename T> __global__ void sum_kernel(const struct cuda_sum s)
{
    uint64_t n = (uint64_t)s.rows * s.cols, step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t e = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; e < n; e += step) {
        uint64_t row = e / s.cols, col = e % s.cols;
        typename wide<T>::type sum = fetch((const T *)s.x[0] + row * s.x_ld[0] + col);
        for (uint32_t m = 1; m < s.nmembers; m++) {
            typename wide<T>::type v = fetch((const T *)s.x[m] + row * s.x_ld[m] + col);
            sum = s.max ? (v > sum ? v : sum) : sum + v; /* a NaN in sum stays, as on the CPU */
        }
        for (uint32_t m = 0; m < s.nmembers; m++)
            if (s.y[m])
                put((T *)s.y[m] + row * s.y_ld[m] + col, sum);
    }
}

__global__ void mark_kernel(volatile uint32_t *word, uint32_t value)
{
    *word = value;
}

const char *cuda_sum(const struct cuda_sum *s, struct CUstream_st *stream)
{
    uint64_t n = (uint64_t)s->rows * s->cols, blocks = (n + 255) / 256;
    unsigned grid = (unsigned)(blocks < 2048 ? blocks : 2048);
    if (s->nmembers > CUDA_MOST_MEMBERS)
        return "too many ranks on one device";
    if (!n)
        return NULL;
    switch (s->dtype) {
    case DTYPE_F32:
        LAUNCH(sum_kernel<float>, grid, 256, 0, stream, *s);
        break;
    case DTYPE_BF16:
        LAUNCH(sum_kernel<bf16>, grid, 256, 0, stream, *s);
        break;
    case DTYPE_F64:
        LAUNCH(sum_kernel<double>, grid, 256, 0, stream, *s);
        break;
    case DTYPE_I32:
        LAUNCH(sum_kernel<int32_t>, grid, 256, 0, stream, *s);
        break;
    default:
        return "no sums of this type";
    }
    return cuda_launched();
}

const char *cuda_mark(uint32_t *word, uint32_t value, struct CUstream_st *stream)
{
    LAUNCH(mark_kernel, 1, 1, 0, stream, word, value);
    return cuda_launched();
}
