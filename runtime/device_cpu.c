/* The CPU device: dispatch to kernels/cpu from the instruction table, and care for the BLAS.
 *
 * OpenBLAS 0.3.21 knows no Zen 4 or later and then uses AVX2 kernels at half speed; OPENBLAS_CORETYPE is read
 * when the library is loaded, so the program replaces itself once with the variable set. */

#include "runtime/device.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void kernel_function(struct kernel_args *k);
#define CASE_MATMUL(name) cpu_##name
#define CASE_ATTENTION(name) cpu_##name
#define CASE_STREAM(name) cpu_##name
#define CASE_HOST(name) cpu_##name
#define CASE_P2P(name) NULL
#define CASE_COLLECTIVE(name) NULL
static kernel_function *const kernels[NOPS] = {
#define INSN(name, queue, unit, operands, attributes, meaning) [OP_##name] = CASE_##unit(name),
#include "runtime/isa.def"
};

void device_cpu_run(enum op op, struct kernel_args *k)
{
    kernels[op](k);
}

static bool slow_core(void)
{
    const char *core = openblas_get_corename();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           (strcmp(core, "Haswell") == 0 || strcmp(core, "Zen") == 0 || strcmp(core, "Unknown") == 0 ||
            strcmp(core, "Prescott") == 0);
}

void device_cpu_tune(char **argv)
{
    bool core = !getenv("OPENBLAS_CORETYPE") && slow_core(), threads = !getenv("OPENBLAS_NUM_THREADS");
    if ((core || threads) && !getenv("LLMRUN_TUNED")) {
        setenv("LLMRUN_TUNED", "1", 1);
        setenv("OPENBLAS_NUM_THREADS", "1", 1);
        if (core)
            setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
        execv("/proc/self/exe", argv);
    }
    openblas_set_num_threads(1);
}
