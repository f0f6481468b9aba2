#ifndef LLMC_TESTS_GPU_DEVICE_CUH
#define LLMC_TESTS_GPU_DEVICE_CUH

/* Memory and time of the device that a check or a bench runs on: a GPU, or where nvcc does not compile, the emulation. */

#include "kernels/cuda/language.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__CUDACC__)
const bool EMULATED = false;

/* poisoned; ends the program where there is no room */
static inline void *device_make(size_t bytes)
{
    void *p = nullptr;
    cudaError_t e = cudaMalloc(&p, bytes ? bytes : 1);
    e = e == cudaSuccess ? cudaMemset(p, 0xff, bytes) : e;
    if (e != cudaSuccess) {
        fprintf(stderr, "%zu bytes on the GPU: %s\n", bytes, cudaGetErrorString(e));
        exit(4);
    }
    return p;
}
static inline void device_drop(void *p)
{
    cudaFree(p);
}
static inline void device_store(void *to, const void *from, size_t bytes)
{
    cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
}
static inline void device_fetch(void *to, const void *from, size_t bytes)
{
    cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
}
/* NULL = all that was launched has run, else what went wrong */
static inline const char *device_finish()
{
    cudaError_t e = cudaDeviceSynchronize();
    return e == cudaSuccess ? nullptr : cudaGetErrorString(e);
}
static inline void device_name(char *out, size_t size)
{
    cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, 0) == cudaSuccess)
        snprintf(out, size, "%s", p.name);
    else
        snprintf(out, size, "no GPU");
}
struct device_watch {
    cudaEvent_t from, to;
    device_watch() { cudaEventCreate(&from), cudaEventCreate(&to); }
    ~device_watch() { cudaEventDestroy(from), cudaEventDestroy(to); }
    void start() { cudaEventRecord(from, nullptr); }
    double seconds()
    {
        float ms = 0;
        cudaEventRecord(to, nullptr);
        cudaEventSynchronize(to);
        cudaEventElapsedTime(&ms, from, to);
        return (double)ms * 1e-3;
    }
};
#else
const bool EMULATED = true;

static inline void *device_make(size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 256) / 256 * 256);
    return p ? memset(p, 0xff, bytes) : nullptr;
}
static inline void device_drop(void *p)
{
    free(p);
}
static inline void device_store(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
static inline void device_fetch(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
static inline const char *device_finish()
{
    return nullptr;
}
static inline void device_name(char *out, size_t size)
{
    snprintf(out, size, "emulation");
}
struct device_watch {
    struct timespec from;
    void start() { clock_gettime(CLOCK_MONOTONIC, &from); }
    double seconds()
    {
        struct timespec to;
        clock_gettime(CLOCK_MONOTONIC, &to);
        return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    }
};
#endif

#endif
