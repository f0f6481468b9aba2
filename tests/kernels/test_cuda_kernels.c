/* The CUDA kernels' logic against kernels/cpu, on the CPU's emulation of the device language: every memory-bound row, with
 * threads and blocks in order and in reverse.  tests/gpu runs the same table on a GPU. */

#include "kernels/cuda/cuda_kernels.h"
#include "tests/emulated/host.h"
#include "tests/kernels/cuda_cases.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

/* a piece of exactly so many bytes, aligned as device memory is: a sanitizer sees the first byte behind */
static void *make(size_t bytes)
{
    void *memory = NULL;
    return posix_memalign(&memory, 256, bytes) == 0 ? memory : NULL;
}

static void copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

static const char *finish(int run)
{
    cuda_host_set_reverse(run == 0);
    return NULL;
}

/* rows of units MATMUL and ATTENTION have tests of their own */
typedef const char *launcher(const struct cuda_call *c);
#define ROW_STREAM(name) cuda_##name
#define ROW_HOST(name) cuda_##name
#define ROW_MATMUL(name) NULL
#define ROW_ATTENTION(name) NULL
#define ROW_P2P(name) NULL
#define ROW_COLLECTIVE(name) NULL
#define cuda_ATTENTION_MERGE NULL
static launcher *const rows[NOPS] = {
#define INSN(name, queue, unit, operands, attributes, meaning) [OP_##name] = ROW_##unit(name),
#include "runtime/isa.def"
};

static const char *launch(enum op op, const struct cuda_call *c)
{
    return rows[op](c);
}

static void test_rows(void)
{
    const struct cuda_place place = {make, free, copy, copy, launch, finish};
    unsigned nruns;
    const char *filter = getenv("CUDA_ROW");
    cuda_host_set_reverse(0);
    CU_ASSERT_EQUAL(cuda_cases_check(&place, filter, &nruns), 0);
    cuda_host_set_reverse(0);
    CU_ASSERT(filter || nruns > 1000);
}

void suite_cuda_kernels(void);
void suite_cuda_kernels(void)
{
    CU_pSuite s = CU_add_suite("cuda_kernels", NULL, NULL);
    CU_add_test(s, "memory-bound rows against the CPU's", test_rows);
}
