/* cuDNN's attention plans without a device: built for GPUs' properties against a driver that has none (fake/no_driver.c),
 * in a child process, for the attention of the example models and more.  The memory a plan asks for is what the rule of
 * runtime/workspace.h says.  Left out, with a line, where cuDNN isn't or where a real driver is. */

#include "kernels/cuda/cudnn_attention.h"

#include <CUnit/CUnit.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* what cuDNN asks of a device; a real one's other figures do not change plans' memory */
static const char properties_text[] =
    "{\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,\"deviceName\":\"NVIDIA H200\",\"totalGlobalMem\":150754820096,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":132,"
    "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560}";

/* all forms are looked at for sm_90, the first few for the others, whose engines refuse some: own kernels serve those */
static const struct target {
    int sm, shared_bytes;
    size_t forms;
    bool may_refuse;
} targets[] = {{90, 232448, 100, false}, {80, 166912, 3, true}, {100, 232448, 1, true}};

struct form {
    const char *what;
    uint32_t sequences, heads, kv, head, value, sequence, window;
    double softcap;
};
/* the example models, then every kind of head and mask at its ends */
static const struct form forms[] = {
    {"GPT-2 124M", 4, 12, 12, 64, 64, 1024, 0, 0},
    {"Llama 3.2 1B", 1, 32, 8, 64, 64, 4096, 0, 0},
    {"Llama 3 8B", 1, 32, 8, 128, 128, 2048, 0, 0},
    {"Mistral, a window", 1, 16, 8, 128, 128, 2048, 512, 0},
    {"Gemma 2, caps", 1, 16, 8, 256, 256, 2048, 0, 50},
    {"DeepSeek-V3", 1, 16, 16, 192, 128, 2048, 0, 0},
    {"the smallest head", 2, 8, 2, 8, 8, 1024, 0, 0},
    {"a head of 72", 2, 8, 2, 72, 72, 1024, 0, 0},
    {"a head of 80", 2, 8, 8, 80, 80, 1024, 0, 0},
    {"a head of 96", 1, 8, 4, 96, 96, 1024, 256, 0},
    {"a head of 112", 1, 8, 8, 112, 112, 1024, 0, 30},
    {"a head of 160", 1, 8, 2, 160, 160, 1024, 0, 0},
    {"a head of 224", 1, 8, 2, 224, 224, 1024, 100, 50},
    {"wider values", 1, 8, 8, 64, 128, 1024, 0, 0},
    {"one head of keys", 1, 8, 1, 128, 128, 1024, 0, 0},
    {"few places", 1, 8, 2, 128, 128, 64, 16, 0},
    {"an odd number of places", 3, 8, 2, 128, 128, 1000, 0, 0},
    {"many places", 1, 8, 2, 128, 128, 32768, 0, 0},
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

/* cuDNN's plan for the form, if there is one, and its memory: within 256 bytes of what the compiler placed, and no more */
static bool builds(const struct cudnn_functions *f, void *properties, const struct target *t, const struct form *form, bool back)
{
    struct kernel_args k;
    struct cudnn_job job;
    struct workspace_attention memory;
    size_t bytes = 0;
    enum op op = back ? OP_ATTENTION_I : OP_ATTENTION;
    args_of(form, &k, back);
    if (!cudnn_job_get(op, &k, t->sm, &job, &memory)) {
        printf("\n%s: not cuDNN's by rule\n", form->what);
        return false;
    }
    struct cudnn_graph *g = calloc(1, sizeof *g);
    g->f = f;
    void *plan = cudnn_attention_plan(g, &job, NULL, properties, &bytes);
    bool fine = plan ? bytes <= memory.plan && memory.plan - bytes <= 256 : t->may_refuse;
    fine = fine && memory.total == cuda_workspace_bytes(op, &k, t->sm);
    if (!fine)
        printf("\nsm_%d, %s, %s: %s; %zu bytes, by rule %zu\n", t->sm, form->what, back ? "backward" : "forward",
               plan ? "a plan" : g->what, bytes, (size_t)memory.plan);
    if (plan)
        f->cudnnBackendDestroyDescriptor(plan);
    cudnn_graph_free(g);
    free(g);
    return fine;
}

static int try_target(const struct cudnn_functions *f, const struct target *t)
{
    char text[sizeof properties_text + 32];
    bool quick = getenv("LLMC_QUICK") && *getenv("LLMC_QUICK");
    size_t n = quick ? 1 : t->forms < sizeof forms / sizeof *forms ? t->forms : sizeof forms / sizeof *forms;
    int worst = FINE;
    snprintf(text, sizeof text, properties_text, 10 * t->sm, t->shared_bytes);
    void *properties = cudnn_properties(f, text);
    if (!properties)
        return NO_CUDNN; /* a version that wants other properties */
    for (size_t i = 0; i < n; i++)
        if (!builds(f, properties, t, &forms[i], false) || !builds(f, properties, t, &forms[i], true))
            worst = WRONG;
    f->cudnnBackendDestroyDescriptor(properties);
    return worst;
}

static int in_child(const char *driver)
{
    struct cudnn_functions f;
    void *library;
    if (!dlopen(driver, RTLD_NOW | RTLD_GLOBAL) || cudnn_load(&f, &library))
        return NO_CUDNN;
    int worst = FINE;
    for (size_t i = 0; i < sizeof targets / sizeof *targets && worst == FINE; i++)
        worst = try_target(&f, &targets[i]);
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
    struct workspace_attention m;
    args_of(&f, &k, true);
    CU_ASSERT(cudnn_job_get(OP_ATTENTION_I, &k, 90, &job, &m));
    CU_ASSERT_EQUAL(m.sums, 2048 * 32 * 4);
    CU_ASSERT_EQUAL(m.dq_sum, 2048 * 32 * 128 * 4);
    CU_ASSERT_EQUAL(m.plan, 256 + 2 * 2 * 2048 * 32 * 128);
    CU_ASSERT_EQUAL(cuda_workspace_bytes(OP_ATTENTION_I, &k, 90), m.total);
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
