/* Opening the plugin and NCCL.  Each failure names the file, says why it did not open, and what would help. */

#include "runtime/cuda/load.h"
#include "runtime/file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum status cuda_load(const struct cuda_plugin **out, struct error *error)
{
    char path[3100];
    const char *given = getenv("LLMRUN_CUDA");
    if (!given)
        file_beside_program("llmrun-cuda.so", path, sizeof path);
    if (access(given ? given : path, R_OK))
        return error_set(
            error, STATUS_WORLD,
            "--device cuda needs the plugin %s, which is not there: `make` builds it where CUDA's compiler nvcc is",
            given ? given : path);
    if (!given && !dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
        return error_set(error, STATUS_WORLD, "--device cuda needs NVIDIA's driver: %s", dlerror());
    void *library = dlopen(given ? given : path, RTLD_NOW | RTLD_LOCAL);
    const struct cuda_plugin *p = library ? dlsym(library, "llmrun_cuda") : NULL;
    if (!p)
        return error_set(error, STATUS_WORLD, "--device cuda needs its plugin: %s", dlerror());
    if (p->fingerprint() != isa_fingerprint())
        return error_set(error, STATUS_WORLD,
                         "--device cuda needs a plugin of this version: %s knows other instructions",
                         given ? given : path);
    *out = p;
    return STATUS_OK;
}

enum status nccl_load(struct nccl_functions *f, struct error *error)
{
    const char *names[] = {getenv("LLMRUN_NCCL"), "libnccl.so.2", "libnccl.so", "/usr/local/cuda/lib64/libnccl.so.2"};
    void *library = NULL;
    const char *missing = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = names[i] ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library)
        return error_set(error, STATUS_WORLD, "--transport nccl needs NCCL: %s", dlerror());
        /* POSIX says that a void * from dlsym() holds a function's address */
#define LOAD(name, parameters)                                                                                         \
    {                                                                                                                  \
        void *symbol = dlsym(library, "nccl" #name);                                                                   \
        missing = symbol || missing ? missing : "nccl" #name;                                                          \
        memcpy(&f->name, &symbol, sizeof symbol);                                                                      \
    }
    NCCL_FUNCTIONS(LOAD)
    LOAD(GetErrorString, )
    LOAD(GetLastError, )
#undef LOAD
    if (!missing)
        return STATUS_OK;
    return error_set(error, STATUS_WORLD, "--transport nccl needs NCCL 2.19 or later: this one lacks %s", missing);
}
