/* cuDNN's attention plans without a device: built for an H200's properties against a driver that has none (fake/no_driver.c),
 * in a child process, for the attention of the example models and more.  The memory a plan asks for is what the rule of
 * cudnn_attention.c says.  Left out, with a line, where cuDNN isn't or where a real driver is. */

#include "kernels/cuda/cudnn_attention.h"

#include <CUnit/CUnit.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char h200[] =
    "{\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,\"deviceName\":\"NVIDIA H200\",\"totalGlobalMem\":150754820096,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":132,"
    "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560}";

struct form {
    const char *what;
    uint32_t sequences, heads, kv, head, value, sequence, window;
    double softcap;
};
static const struct form forms[] = {
    {"GPT-2 124M", 4, 12, 12, 64, 64, 1024, 0, 0},
    {"Llama 3.2 1B", 1, 32, 8, 64, 64, 4096, 0, 0},
    {"Llama 3 8B", 1, 32, 8, 128, 128, 2048, 0, 0},
    {"Mistral, a window", 1, 16, 8, 128, 128, 2048, 512, 0},
    {"Gemma 2, caps", 1, 16, 8, 256, 256, 2048, 0, 50},
    {"DeepSeek-V3", 1, 16, 16, 192, 128, 2048, 0, 0},
};

enum { FINE = 0, NO_CUDNN = 3, WRONG = 4 };

static struct view view(uint32_t rows, uint32_t cols)
{
    return (struct view){.dtype = DTYPE_BF16, .rows = rows, .cols = cols, .ld = cols};
}

/* the instruction's operands, without memory */
static void args_of(const struct form *f, struct kernel_args *k, bool back)
{
    uint32_t rows = f->sequences * f->sequence, q = f->heads * f->head, kk = f->kv * f->head, v = f->kv * f->value, o = f->heads * f->value;
    union value attr[] = {{.i = f->heads}, {.i = f->kv}, {.i = f->head}, {.i = f->sequence}, {.f = 0.125}, {.i = f->window}, {.f = f->softcap}};
    memset(k, 0, sizeof *k);
    memcpy(k->attr, attr, sizeof attr);
    if (!back) {
        k->operand[OPND(ATTENTION, q)] = view(rows, q);
        k->operand[OPND(ATTENTION, k)] = view(rows, kk);
        k->operand[OPND(ATTENTION, v)] = view(rows, v);
        k->operand[OPND(ATTENTION, o)] = view(rows, o);
        return;
    }
    k->operand[OPND(ATTENTION_I, q)] = k->operand[OPND(ATTENTION_I, dq)] = view(rows, q);
    k->operand[OPND(ATTENTION_I, k)] = k->operand[OPND(ATTENTION_I, dk)] = view(rows, kk);
    k->operand[OPND(ATTENTION_I, v)] = k->operand[OPND(ATTENTION_I, dv)] = view(rows, v);
    k->operand[OPND(ATTENTION_I, o)] = k->operand[OPND(ATTENTION_I, dout)] = view(rows, o);
}

static bool builds(const struct cudnn_functions *f, void *properties, const struct form *form, bool back)
{
    struct kernel_args k;
    struct cudnn_job job;
    struct cudnn_memory memory;
    size_t bytes = 0;
    args_of(form, &k, back);
    if (!cudnn_job_get(back ? OP_ATTENTION_I : OP_ATTENTION, &k, 90, &job, &memory)) {
        printf("\n%s: not cuDNN's by rule\n", form->what);
        return false;
    }
    struct cudnn_graph *g = calloc(1, sizeof *g);
    g->f = f;
    void *plan = cudnn_attention_plan(g, &job, NULL, properties, &bytes);
    bool fine = plan && bytes == memory.plan;
    if (!fine)
        printf("\n%s, %s: %s; %zu bytes, by rule %zu\n", form->what, back ? "backward" : "forward", plan ? "a plan" : g->what, bytes,
               memory.plan);
    if (plan)
        f->cudnnBackendDestroyDescriptor(plan);
    cudnn_graph_free(g);
    free(g);
    return fine;
}

static int in_child(const char *driver)
{
    struct cudnn_functions f;
    void *library;
    size_t n = getenv("LLMC_QUICK") && *getenv("LLMC_QUICK") ? 1 : sizeof forms / sizeof *forms;
    int worst = FINE;
    if (!dlopen(driver, RTLD_NOW | RTLD_GLOBAL) || cudnn_load(&f, &library))
        return NO_CUDNN;
    void *properties = cudnn_properties(&f, h200);
    if (!properties)
        return NO_CUDNN; /* a version that wants other properties */
    for (size_t i = 0; i < n; i++)
        if (!builds(&f, properties, &forms[i], false) || !builds(&f, properties, &forms[i], true))
            worst = WRONG;
    f.cudnnBackendDestroyDescriptor(properties);
    return worst;
}

static void test_plans(void)
{
    const char *build = getenv("LLMC_BUILD");
    char driver[512];
    int status = 0;
    snprintf(driver, sizeof driver, "%s/tests/fake/libcuda.so", build ? build : "build");
    void *real = dlopen("libcuda.so.1", RTLD_LAZY);
    if (real) {
        dlclose(real);
        printf("left out: a driver is here ... ");
        return;
    }
    fflush(NULL);
    pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        status = in_child(driver);
        fflush(NULL);
        _exit(status);
    }
    CU_ASSERT(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_CUDNN)
        printf("left out: no cuDNN of version 9.19 or later ... ");
    else
        CU_ASSERT_EQUAL(WEXITSTATUS(status), FINE);
}

/* what is not cuDNN's by rule goes to our own kernels */
static void test_rule(void)
{
    struct form f = forms[2];
    struct kernel_args k;
    struct cudnn_job job;
    struct cudnn_memory m;
    args_of(&f, &k, true);
    CU_ASSERT(cudnn_job_get(OP_ATTENTION_I, &k, 90, &job, &m));
    CU_ASSERT_EQUAL(m.sums, 2048 * 32 * 4);
    CU_ASSERT_EQUAL(m.dq_sum, 2048 * 32 * 128 * 4);
    CU_ASSERT_EQUAL(m.plan, 256 + 2 * 2 * 2048 * 32 * 128);
    CU_ASSERT_EQUAL(cudnn_attention_workspace(OP_ATTENTION_I, &k, 90), m.total);
    CU_ASSERT(!cudnn_job_get(OP_ATTENTION_I, &k, 75, &job, &m));
    k.operand[OPND(ATTENTION_I, dq)].ld += 4;
    CU_ASSERT(!cudnn_job_get(OP_ATTENTION_I, &k, 90, &job, &m));
    args_of(&f, &k, false);
    k.operand[OPND(ATTENTION, q)].dtype = DTYPE_F32;
    CU_ASSERT(!cudnn_job_get(OP_ATTENTION, &k, 90, &job, &m));
}

void suite_cudnn_plans(void);
void suite_cudnn_plans(void)
{
    CU_pSuite s = CU_add_suite("cudnn_plans", NULL, NULL);
    CU_add_test(s, "attention of the example models, without a device", test_plans);
    CU_add_test(s, "which instructions, and how much memory", test_rule);
}
