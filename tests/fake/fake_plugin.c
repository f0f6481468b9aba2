/* The fake device as a plugin that llmrun opens: LLMRUN_CUDA=build/tests/fake/llmrun-fake.so llmrun --device cuda ... */

#include "tests/fake/fake_cuda.h"

extern struct cuda_plugin llmrun_cuda;
struct cuda_plugin llmrun_cuda;

__attribute__((constructor)) static void fill(void)
{
    const struct fake_setup s = {.seed = 1, .devices = 1, .memory_bytes = (uint64_t)16 << 30};
    llmrun_cuda = *fake_cuda_open(&s);
}
