/* A library named libcuda.so that has the driver's functions and no device: cuDNN builds its plans against it, which loads
 * compiled kernels but never runs one.  Only what cuDNN 9 looks for; every call but the few below says "fine". */

int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned n, void *c, void *d, unsigned m);
int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned n, void *c, void *d, unsigned m)
{
    (void)code, (void)a, (void)b, (void)n, (void)c, (void)d, (void)m;
    *library = library; /* any address but NULL */
    return 0;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name);
int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)name;
    *kernel = library;
    return 0;
}

int cuKernelGetFunction(void **function, void *kernel);
int cuKernelGetFunction(void **function, void *kernel)
{
    *function = kernel;
    return 0;
}

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

#define FINE(name)                                                                                           \
    int name(void);                                                                                          \
    int name(void)                                                                                           \
    {                                                                                                        \
        return 0;                                                                                            \
    }
FINE(cuInit)
FINE(cuCtxGetCurrent)
FINE(cuCtxGetLimit)
FINE(cuCtxPopCurrent)
FINE(cuCtxPushCurrent)
FINE(cuDeviceGet)
FINE(cuDeviceGetCount)
FINE(cuFuncSetAttribute)
FINE(cuGetErrorName)
FINE(cuGetErrorString)
FINE(cuKernelGetAttribute)
FINE(cuKernelSetAttribute)
FINE(cuLaunchCooperativeKernel)
FINE(cuLaunchKernel)
FINE(cuLaunchKernelEx)
FINE(cuLibraryLoadFromFile)
FINE(cuLibraryUnload)
FINE(cuLinkAddData)
FINE(cuLinkComplete)
FINE(cuLinkCreate)
FINE(cuLinkDestroy)
FINE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
FINE(cuOccupancyMaxPotentialClusterSize)
FINE(cuStreamGetCtx)
