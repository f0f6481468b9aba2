/* Loading cuBLASLt and cuDNN: several names are tried, the first that opens is taken, and what is missing is said with
 * the loader's own words.  Paths of the toolkit and of Python wheels come from LD_LIBRARY_PATH as everywhere. */

#include "kernels/cuda/libraries.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_first(const char *const *names, size_t n)
{
    void *library = NULL;
    for (size_t i = 0; i < n && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* POSIX says that a void * from dlsym() holds a function's address */
#define LOAD(name, type, parameters)                                                                                   \
    do {                                                                                                               \
        void *symbol = dlsym(*library, #name);                                                                         \
        if (!symbol)                                                                                                   \
            return "the library lacks " #name;                                                                         \
        memcpy(&f->name, &symbol, sizeof symbol);                                                                      \
    } while (0);

static const char *load_cublaslt(struct cublaslt_functions *f, void **library)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                        "/usr/local/cuda/lib64/libcublasLt.so"};
    *library = open_first(names, sizeof names / sizeof *names);
    if (!*library)
        return "libcublasLt.so is missing (CUDA 12 or later)";
    CUBLASLT_FUNCTIONS(LOAD)
    return NULL;
}

const char *cudnn_load(struct cudnn_functions *f, void **library)
{
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so", "/usr/local/cuda/lib64/libcudnn.so.9"};
    *library = open_first(names, sizeof names / sizeof *names);
    if (!*library)
        return "libcudnn.so.9 is missing";
    CUDNN_FUNCTIONS(LOAD)
    return NULL;
}

const char *cuda_libraries_open(struct cuda_libraries **out, const struct cuda_runtime *runtime,
                                const char *device_name, int device, int sm, int multiprocessors, bool deterministic)
{
    struct cuda_libraries *l = (struct cuda_libraries *)calloc(1, sizeof *l);
    if (!l)
        return "out of memory";
    l->runtime = runtime;
    snprintf(l->device_name, sizeof l->device_name, "%s", device_name);
    l->device = device;
    l->sm = sm;
    l->multiprocessors = multiprocessors;
    l->deterministic = deterministic;
    const char *why = load_cublaslt(&l->lt, &l->lt_library);
    if (!why && l->lt.cublasLtCreate(&l->lt_handle))
        why = "cublasLtCreate fails";
    if (why) {
        cuda_libraries_close(l);
        return why;
    }
    if (cudnn_load(&l->dnn, &l->dnn_library) || l->dnn.cudnnCreate(&l->dnn_handle))
        l->dnn_handle = NULL;
    *out = l;
    return NULL;
}

void cuda_libraries_close(struct cuda_libraries *l)
{
    if (!l)
        return;
    product_cache_free(l);
    attention_cache_free(l);
    if (l->dnn_handle)
        l->dnn.cudnnDestroy(l->dnn_handle);
    if (l->lt_handle)
        l->lt.cublasLtDestroy(l->lt_handle);
    /* the libraries stay open: they have threads and exit handlers of their own */
    free(l);
}
