/* The plugin's table: the CUDA runtime that is linked into it, and the kernels.  Compiled only where the toolkit is.
 *
 * The runtime's functions return an enum; llmrun's table says int, which has the same binary form. */

#include "kernels/cuda/libraries.h"
#include "runtime/cuda_plugin.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

static const char *get_error_string(int error)
{
    return cudaGetErrorString((cudaError_t)error);
}

/* through a type that says nothing, as dlsym() would do */
#define MEMBER(name, parameters) .name = (int(*) parameters)(void (*)(void))cuda##name,
static const struct cuda_runtime runtime = {CUDA_RUNTIME(MEMBER).GetErrorString = get_error_string};

static void describe(int device, char *out, size_t size)
{
    struct cudaDeviceProp p;
    int driver = 0, version = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&version);
    if (cudaGetDeviceProperties(&p, device) != cudaSuccess)
        snprintf(out, size, "no properties of device %d", device);
    else
        snprintf(out, size, "%s, sm_%d%d, %d multiprocessors, %.1f GiB, driver %d.%d, CUDA %d.%d", p.name, p.major,
                 p.minor, p.multiProcessorCount, (double)p.totalGlobalMem / 0x1p30, driver / 1000, driver % 1000 / 10,
                 version / 1000, version % 1000 / 10);
}

static const char *open_libraries(struct cuda_libraries **out, int device, bool deterministic)
{
    int major = 0, minor = 0, processors = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
        return "the device does not say what it is";
    if (major < 8)
        return "the device is older than compute capability 8.0";
    struct cudaDeviceProp p;
    if (cudaGetDeviceProperties(&p, device) != cudaSuccess)
        return "the device does not say what it is";
    return cuda_libraries_open(out, &runtime, p.name, device, 10 * major + minor, processors, deterministic);
}

extern const struct cuda_plugin llmrun_cuda;
__attribute__((visibility("default")))
const struct cuda_plugin llmrun_cuda = {.fingerprint = isa_fingerprint,
                                        .runtime = &runtime,
                                        .describe = describe,
                                        .open = open_libraries,
                                        .close = cuda_libraries_close,
                                        .check = cuda_check,
                                        .workspace_bytes = cuda_workspace_bytes,
                                        .note = cuda_note,
                                        .prepare = cuda_prepare,
                                        .launch = cuda_kernel,
                                        .fuse = cuda_fuse,
                                        .fused_workspace_bytes = cuda_fused_workspace_bytes,
                                        .fused_hides = cuda_fused_hides,
                                        .prepare_fused = cuda_fused_prepare,
                                        .launch_fused = cuda_fused,
                                        .sum = cuda_sum,
                                        .mark = cuda_mark};
