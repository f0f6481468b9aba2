/* Sums over ranks that share one device, and progress words.
 *
 * One thread takes an element of all members, adds in member order and stores to all who get it: the same bits as the
 * CPU's shared-memory transport, and in place because nobody else touches that element.  fp32 is added in fp32 as there,
 * bf16 in fp32 and rounded once. */

#include "kernels/cuda/meetings.h"

#include <cuda_bf16.h>
#include <cuda_runtime.h>

template <typename T> struct wide {
    typedef T type;
};
template <> struct wide<__nv_bfloat16> {
    typedef float type;
};

__device__ static float load(const __nv_bfloat16 *p)
{
    return __bfloat162float(*p);
}
__device__ static float load(const float *p)
{
    return *p;
}
__device__ static double load(const double *p)
{
    return *p;
}
__device__ static int32_t load(const int32_t *p)
{
    return *p;
}
__device__ static void store(__nv_bfloat16 *p, float v)
{
    *p = __float2bfloat16(v);
}
template <typename T> __device__ static void store(T *p, T v)
{
    *p = v;
}

template <typename T> __global__ void sum_kernel(const __grid_constant__ struct cuda_sum s)
{
    uint64_t n = (uint64_t)s.rows * s.cols, step = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t e = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; e < n; e += step) {
        uint64_t row = e / s.cols, col = e % s.cols;
        typename wide<T>::type sum = load((const T *)s.x[0] + row * s.x_ld[0] + col);
        for (uint32_t m = 1; m < s.nmembers; m++) {
            typename wide<T>::type v = load((const T *)s.x[m] + row * s.x_ld[m] + col);
            sum = s.max ? (v > sum ? v : sum) : sum + v; /* a NaN in sum stays, as on the CPU */
        }
        for (uint32_t m = 0; m < s.nmembers; m++)
            if (s.y[m])
                store((T *)s.y[m] + row * s.y_ld[m] + col, sum);
    }
}

__global__ void mark_kernel(volatile uint32_t *word, uint32_t value)
{
    *word = value;
}

static const char *launched(void)
{
    cudaError_t e = cudaGetLastError();
    return e == cudaSuccess ? NULL : cudaGetErrorString(e);
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
        sum_kernel<float><<<grid, 256, 0, stream>>>(*s);
        break;
    case DTYPE_BF16:
        sum_kernel<__nv_bfloat16><<<grid, 256, 0, stream>>>(*s);
        break;
    case DTYPE_F64:
        sum_kernel<double><<<grid, 256, 0, stream>>>(*s);
        break;
    case DTYPE_I32:
        sum_kernel<int32_t><<<grid, 256, 0, stream>>>(*s);
        break;
    default:
        return "no sums of this type";
    }
    return launched();
}

const char *cuda_mark(uint32_t *word, uint32_t value, struct CUstream_st *stream)
{
    mark_kernel<<<1, 1, 0, stream>>>(word, value);
    return launched();
}
