/* cuDNN's plans for attention without a device: asked for and built for GPUs' properties against a driver that has none
 * (fake/no_driver.c), in a child process.  The table below is the product of all that the compiler may ask for; by the rule
 * of runtime/workspace.h each of its shapes is either cuDNN's, with so many bytes and not one more or less, or our own
 * kernels' for a reason.  Every run asks engines about a drawn part of the table and builds plans of a few of those:
 *   CUDNN_SHAPES=all  asks about the whole table, minutes       CUDNN_SHAPES=N  about every Nth shape of it
 *   CUDNN_PLANS=N     builds plans of N of all that is cuDNN's, a second each; all: heads of 64 to 256 in all their forms
 * Left out, with a line, where cuDNN isn't, where it is of another version than the rule, or where a real driver is. */

#include "kernels/cuda/cudnn_attention.h"
#include "tests/draws.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* what cuDNN asks of a device; a real one's other figures do not change plans' memory */
static const char properties_text[] =
    "{\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,\"deviceName\":\"NVIDIA H200\",\"totalGlobalMem\":150754820096,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":132,"
    "\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
    "\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,"
    "\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560}";

static const struct target {
    int sm, shared_bytes;
} targets[] = {{80, 166912}, {90, 232448}, {100, 232448}};

/* heads' dimensions: every multiple of 8, then those whose values have others */
enum { EQUAL = 32 };
static const struct {
    uint32_t head, value;
} uneven[] = {{192, 128}, {64, 128}, {128, 64}, {256, 128}};
static const struct {
    uint32_t sequences, heads, kv;
} sharing[] = {{4, 12, 12}, {1, 32, 8}, {2, 8, 1}, {1, 1, 1}};
static const uint32_t sequence_of[] = {1, 64, 128, 129, 1001, 4096, 131072}, window_of[] = {0, 50};
static const double cap_of[] = {0, 30};

#define COUNT(list) ((uint32_t)(sizeof(list) / sizeof *(list)))
struct form {
    uint32_t target, sequences, heads, kv, head, value, sequence, window, apart; /* apart: elements between rows, packed beside others */
    double softcap;
    bool back;
};
enum { FORMS = 3 * (EQUAL + 4) * 4 * 7 * 2 * 2 * 2 * 2 };

/* number n of the table */
static struct form form_at(uint32_t n)
{
    struct form f = {.target = n % COUNT(targets)};
    n /= COUNT(targets);
    uint32_t dims = n % (EQUAL + COUNT(uneven));
    f.head = dims < EQUAL ? 8 * (dims + 1) : uneven[dims - EQUAL].head;
    f.value = dims < EQUAL ? f.head : uneven[dims - EQUAL].value;
    n /= EQUAL + COUNT(uneven);
    f.sequences = sharing[n % COUNT(sharing)].sequences;
    f.heads = sharing[n % COUNT(sharing)].heads;
    f.kv = sharing[n % COUNT(sharing)].kv;
    n /= COUNT(sharing);
    f.sequence = sequence_of[n % COUNT(sequence_of)];
    n /= COUNT(sequence_of);
    f.window = window_of[n % 2];
    f.softcap = cap_of[n / 2 % 2];
    f.back = n / 4 % 2;
    f.apart = n / 8 % 2 ? (f.heads + f.kv) * f.head + f.kv * f.value : 0;
    return f;
}

enum { FINE = 0, NO_CUDNN = 3, WRONG = 4 };

static struct view view(uint32_t rows, uint32_t cols, uint32_t apart)
{
    return (struct view){.dtype = DTYPE_BF16, .rows = rows, .cols = cols, .ld = apart ? apart : cols};
}

/* the instruction's operands, without memory */
static enum op args_of(const struct form *f, struct kernel_args *k)
{
    uint32_t rows = f->sequences * f->sequence, q = f->heads * f->head, kk = f->kv * f->head, v = f->kv * f->value, o = f->heads * f->value;
    union value attr[] = {{.i = f->heads}, {.i = f->kv}, {.i = f->head}, {.i = f->sequence}, {.f = 0.125}, {.i = f->window}, {.f = f->softcap}};
    memset(k, 0, sizeof *k);
    memcpy(k->attr, attr, sizeof attr);
    if (!f->back) {
        k->operand[OPND(ATTENTION, q)] = view(rows, q, f->apart);
        k->operand[OPND(ATTENTION, k)] = view(rows, kk, f->apart);
        k->operand[OPND(ATTENTION, v)] = view(rows, v, f->apart);
        k->operand[OPND(ATTENTION, o)] = view(rows, o, 0);
        return OP_ATTENTION;
    }
    k->operand[OPND(ATTENTION_I, q)] = k->operand[OPND(ATTENTION_I, dq)] = view(rows, q, f->apart);
    k->operand[OPND(ATTENTION_I, k)] = k->operand[OPND(ATTENTION_I, dk)] = view(rows, kk, f->apart);
    k->operand[OPND(ATTENTION_I, v)] = k->operand[OPND(ATTENTION_I, dv)] = view(rows, v, f->apart);
    k->operand[OPND(ATTENTION_I, o)] = k->operand[OPND(ATTENTION_I, dout)] = view(rows, o, 0);
    return OP_ATTENTION_I;
}

static void blame(const struct form *f, const char *what, size_t bytes, size_t rule)
{
    printf("\n    sm_%d, %s, heads %u of %u dims, %u of keys, values %u, %u sequences of %u, window %u, cap %g, rows %u apart: %s; %zu bytes, by "
           "rule %zu",
           targets[f->target].sm, f->back ? "backward" : "forward", f->heads, f->head, f->kv, f->value, f->sequences, f->sequence, f->window,
           f->softcap, f->apart, what, bytes, rule);
    fflush(stdout);
}

struct tally {
    uint32_t asked, own, built, wrong;
    double seconds;
};

/* what engines say of one shape is what the rule says; build: its plan as well */
static void look(const struct cudnn_functions *f, void *properties, const struct form *form, bool build, struct tally *t)
{
    struct kernel_args k;
    struct cudnn_job job;
    struct workspace_attention memory;
    size_t bytes = 0;
    enum op op = args_of(form, &k);
    const char *own = cudnn_job_get(op, &k, targets[form->target].sm, &job, &memory);
    struct cudnn_graph *g = calloc(1, sizeof *g);
    g->f = f;
    cudnn_attention_graph(g, &job);
    void *plan = build ? cudnn_plan(g, NULL, properties, (size_t)memory.plan, &bytes) : NULL;
    bool there = build ? plan != NULL : cudnn_bytes(g, NULL, properties, &bytes), fine = own ? !there : there && bytes == memory.plan;
    fine = fine && (own || memory.total == cuda_workspace_bytes(op, &k, targets[form->target].sm));
    t->own += own != NULL;
    t->asked += !build;
    t->built += plan != NULL;
    t->wrong += !fine;
    if (!fine && t->wrong < 10)
        blame(form, there ? "an engine" : g->what, bytes, (size_t)memory.plan);
    if (plan)
        f->cudnnBackendDestroyDescriptor(plan);
    cudnn_graph_free(g);
    free(g);
}

static bool is_cudnns(const struct form *form)
{
    struct kernel_args k;
    struct cudnn_job job;
    struct workspace_attention memory;
    enum op op = args_of(form, &k);
    return !cudnn_job_get(op, &k, targets[form->target].sm, &job, &memory);
}

/* what a setting says: a number, `all` = all, nothing = unset */
static uint32_t setting(const char *name, uint32_t unset, uint32_t all)
{
    const char *s = getenv(name);
    return !s || !*s ? unset : strcmp(s, "all") == 0 ? all : (uint32_t)strtoul(s, NULL, 10);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* the table's numbers in an order that looks drawn: FORMS has the factors 2, 3 and 7 alone, and the step has none of them */
static uint32_t drawn(uint32_t i)
{
    return (uint32_t)((uint64_t)i * 40503013 % FORMS);
}

/* plans of heads of 64 to 256 in every form of mask and direction, where everything that is not compiled into them stays */
static bool in_full(const struct form *f)
{
    return f->head >= 64 && f->sequence == 4096 && f->heads == 32 && !f->apart;
}

static void look_at_all(const struct cudnn_functions *f, void *const *properties, struct tally *t)
{
    uint32_t every = setting("CUDNN_SHAPES", test_draws_usual(100, 400, 1000), 1);
    uint32_t plans = setting("CUDNN_PLANS", test_draws_usual(6, 2, 2), UINT32_MAX);
    bool full = plans == UINT32_MAX;
    for (uint32_t i = 0; i < FORMS / (every ? every : 1); i++) {
        struct form form = form_at(drawn(i));
        look(f, properties[form.target], &form, false, t);
    }
    double start = seconds();
    for (uint32_t i = 0; i < FORMS && t->built < plans && t->wrong < 10; i++) {
        struct form form = form_at(drawn(i));
        if (is_cudnns(&form) && (!full || in_full(&form))) {
            look(f, properties[form.target], &form, true, t);
            if (t->built % 50 == 0)
                fprintf(stderr, "    %u plans, %.0f s\n", t->built, seconds() - start);
        }
    }
    t->seconds = seconds() - start;
}

static int in_child(const char *driver)
{
    struct cudnn_functions f;
    void *library, *properties[COUNT(targets)];
    struct tally t = {0};
    if (!dlopen(driver, RTLD_NOW | RTLD_GLOBAL) || cudnn_load(&f, &library) || f.cudnnGetVersion() / 100 != 919)
        return NO_CUDNN;
    for (uint32_t i = 0; i < COUNT(targets); i++) {
        char text[sizeof properties_text + 32];
        snprintf(text, sizeof text, properties_text, 10 * targets[i].sm, targets[i].shared_bytes);
        if (!(properties[i] = cudnn_properties(&f, text)))
            return NO_CUDNN; /* a version that wants other properties */
    }
    double start = seconds();
    look_at_all(&f, properties, &t);
    for (uint32_t i = 0; i < COUNT(targets); i++)
        f.cudnnBackendDestroyDescriptor(properties[i]);
    printf("%u of %d shapes asked, %u of them our own kernels', in %.0f s; %u plans built in %.0f s ... ", t.asked, (int)FORMS, t.own,
           seconds() - start - t.seconds, t.built, t.seconds);
    return t.wrong ? WRONG : FINE;
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
        test_skip("a driver is here, and plans are to be built without one");
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
        test_skip("cuDNN 9.19 is not here, of which the rule is");
    else
        CU_ASSERT_EQUAL(WEXITSTATUS(status), FINE);
}

static const char *says(const struct kernel_args *k, enum op op, int sm)
{
    struct cudnn_job job;
    struct workspace_attention m;
    const char *why = cudnn_job_get(op, k, sm, &job, &m);
    CU_ASSERT(why || m.total == cuda_workspace_bytes(op, k, sm));
    return why ? why : "";
}

/* the whole table by rule: what is not cuDNN's is our own kernels', which have memory for rows' sums, and only for a reason */
static void test_rule(void)
{
    uint32_t own = 0, wrong = 0;
    for (uint32_t i = 0; i < FORMS; i++) {
        struct form f = form_at(i);
        struct kernel_args k;
        struct cudnn_job job;
        struct workspace_attention m;
        enum op op = args_of(&f, &k);
        int sm = targets[f.target].sm;
        const char *why = cudnn_job_get(op, &k, sm, &job, &m);
        size_t bytes = cuda_workspace_bytes(op, &k, sm), sums = f.back ? (size_t)f.sequences * f.sequence * f.heads * sizeof(float) : 0;
        bool engine = sm == 90 || !f.back || (f.head <= 128 && f.value <= 128 && (sm == 100 || !(f.softcap > 0))) ||
                      (sm == 100 && f.head == 192 && f.value == 128);
        wrong += engine != !why || bytes < sums || (why ? bytes != sums || strlen(why) < 20 || attention_check(op, &k) : bytes != m.total);
        own += why != NULL;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    CU_ASSERT(own > 0 && own < FORMS / 2);
    struct form f = {.target = 1, .sequences = 1, .heads = 32, .kv = 8, .head = 128, .value = 128, .sequence = 2048, .back = true};
    struct kernel_args k;
    struct cudnn_job job;
    struct workspace_attention m;
    args_of(&f, &k);
    CU_ASSERT(!cudnn_job_get(OP_ATTENTION_I, &k, 90, &job, &m));
    CU_ASSERT_EQUAL(m.sums, 2048 * 32 * 4);
    CU_ASSERT_EQUAL(m.dq_sum, 2048 * 32 * 128 * 4);
    CU_ASSERT_EQUAL(m.plan, 256 + 2 * 2 * 2048 * 32 * 128);
}

/* what is outside of the table, in words */
static void test_reasons(void)
{
    struct form f = {.target = 1, .sequences = 1, .heads = 32, .kv = 8, .head = 128, .value = 128, .sequence = 2048, .back = true};
    struct kernel_args k;
    args_of(&f, &k);
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION_I, 90), "");
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION_I, 75), "the device is older than sm_80");
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION_PART_I, 90), "keys are those of a part of the sequence");
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION_PART, 90), "keys are those of a part of the sequence");
    k.operand[OPND(ATTENTION_I, dq)].ld += 4;
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION_I, 90), "rows do not begin at multiples of 16 bytes");
    k.attr[ATTR(ATTENTION_I, softcap)].f = 30;
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION_I, 80), "gradients of capped scores are not cuDNN's on this device");
    f.head = f.value = 160;
    args_of(&f, &k);
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION_I, 90), "");
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION_I, 100), "gradients of heads of more than 128 dimensions are not cuDNN's on this device");
    f.back = false;
    f.value = 260;
    args_of(&f, &k);
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION, 90), "dimensions of heads are no multiples of 8");
    f.value = 264;
    args_of(&f, &k);
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION, 90), "heads have more than 256 dimensions");
    f.value = 160;
    args_of(&f, &k);
    k.operand[OPND(ATTENTION, q)].dtype = DTYPE_F32;
    CU_ASSERT_STRING_EQUAL(says(&k, OP_ATTENTION, 90), "operands are not bf16");
}

void suite_cudnn_plans(void);
void suite_cudnn_plans(void)
{
    CU_pSuite s = CU_add_suite("cudnn_plans", NULL, NULL);
    CU_add_test(s, "engines and plans without a device", test_plans);
    CU_add_test(s, "which shapes are cuDNN's, and how much memory", test_rule);
    CU_add_test(s, "why others are our own kernels'", test_reasons);
}
