/* Curves of collectives: measured by ranks of a fake NCCL that knows its rules, printed as a block that a
 * cluster file takes.  Rates of kernels: on a clock that says what they must come to. */

#include "runtime/calibrate.h"
#include "compiler/topology/topo.h"
#include "tests/fake/fake_nccl.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, NODE = 2 };

/* exit status of a rank: 0 = fine */
static int rank_body(const struct cuda_plugin *cuda, const struct nccl_functions *nccl, struct calibrate_group g,
                     FILE *out)
{
    char complaints[500];
    struct error error;
    enum status st = calibrate_collectives(cuda, nccl, &g, out, &error);
    fflush(out);
    if (st != STATUS_OK)
        printf("\n    rank %u: %s", g.rank, error.text);
    fake_nccl_complaints(complaints, sizeof complaints);
    if (!complaints[0])
        fake_cuda_complaints(complaints, sizeof complaints);
    if (complaints[0])
        printf("\n    rank %u: %s", g.rank, complaints);
    fflush(stdout);
    return st != STATUS_OK || complaints[0];
}

/* text: what the first rank prints; false if a rank fails */
static bool measure(uint32_t ranks, uint32_t node, char *text, size_t size)
{
    const struct fake_setup device = {.devices = RANKS, .memory_bytes = 64 << 20};
    const struct fake_nccl_setup quiet = {.seed = 0};
    const struct cuda_plugin *cuda = fake_cuda_open(&device);
    const struct nccl_functions *nccl = fake_nccl_open(&quiet, ranks);
    struct calibrate_group g = {.nranks = ranks, .per_node = node, .most_bytes = 1 << 14};
    FILE *out = tmpfile();
    bool fine = cuda && nccl && out && !nccl->GetUniqueId(&g.id);
    for (g.rank = 0; fine && g.rank < ranks; g.rank++) {
        g.device = (int)g.rank;
        fflush(NULL);
        if (fork() == 0)
            _exit(rank_body(cuda, nccl, g, out));
    }
    for (uint32_t r = 0, status; r < ranks; r++)
        fine = wait((int *)&status) > 0 && WIFEXITED((int)status) && WEXITSTATUS((int)status) == 0 && fine;
    rewind(out);
    text[fread(text, 1, size - 1, out)] = 0;
    fclose(out);
    fake_nccl_close();
    fake_cuda_close();
    return fine;
}

static void test_curves(void)
{
    static char text[1 << 18], file[(1 << 18) + 1000];
    CU_ASSERT_FATAL(measure(RANKS, NODE, text, sizeof text));
    snprintf(file, sizeof file,
             "<cluster version=\"1\"><node-type id=\"n\" gpus=\"%d\"><gpu model=\"H100-SXM\"/>"
             "<scale-up kind=\"nvswitch\" bandwidth=\"450GB/s\"/><nic count=\"2\" bandwidth=\"400Gb/s\"/></node-type>"
             "<nodes type=\"n\" count=\"%d\"/><fabric><tier name=\"leaf\" span=\"all\"/></fabric>%s</cluster>",
             NODE, RANKS / NODE, text);
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct source s = {"measured.xml", file, strlen(file), false};
    struct topo *t = topo_parse(a, d, &s, NULL);
    diag_print(d, stdout, false);
    CU_ASSERT_EQUAL(diag_errors(d), 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    /* a node, all, and one rank of each node: 3 shapes of 6 kinds */
    CU_ASSERT_EQUAL(t->nmeasured, 18);
    arena_free(a);
}

static void test_alone(void)
{
    static char text[1 << 14];
    CU_ASSERT(measure(1, 1, text, sizeof text));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "one rank, send_recv to itself"));
    CU_ASSERT_PTR_NULL(strstr(text, "<collective"));
}

/* ---- kernels ---- */

/* A device on which nothing runs: products come to 1e13 operations a second and all else to a millisecond, give or take
 * a quarter, and one time in sixteen a hundred times as much. */
static struct {
    int major, minor;
    uint64_t state, calls;
    double other_s;            /* of what is no product */
    double total, before, now; /* seconds of all that was launched; at the last two events */
    size_t bytes;              /* of an address without memory behind it */
} slow;

static int slow_attribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 75 ? slow.major : attribute == 76 ? slow.minor : 0;
    return CUDA_OK;
}

static int slow_malloc(void **p, size_t bytes)
{
    slow.bytes = bytes;
    *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return *p == MAP_FAILED;
}

static int slow_free(void *p)
{
    return munmap(p, slow.bytes);
}

static int slow_copy(void *to, const void *from, size_t bytes, int kind, cuda_stream s)
{
    (void)to;
    (void)from;
    (void)bytes;
    (void)kind;
    (void)s;
    return CUDA_OK;
}

static const char *slow_launch(enum op op, const struct cuda_call *c)
{
    bool nt = op == OP_MATMUL_NT, nn = op == OP_MATMUL_NN;
    const struct view *a = &c->args->operand[OPND(MATMUL_NT, a)], *y = &c->args->operand[OPND(MATMUL_NT, c)];
    bool product = nt || nn || op == OP_MATMUL_TN;
    slow.total += product ? 2.0 * y->rows * y->cols * (nt || nn ? a->cols : a->rows) / 1e13 : slow.other_s;
    return NULL;
}

static int slow_record(cuda_event e, cuda_stream stream)
{
    (void)e;
    (void)stream;
    slow.before = slow.now;
    slow.now = slow.total;
    return CUDA_OK;
}

static int slow_elapsed(float *ms, cuda_event from, cuda_event to)
{
    (void)from;
    (void)to;
    slow.state = slow.state * 6364136223846793005u + 1442695040888963407u;
    double noise = 0.75 + 0.5 * (double)(slow.state >> 40) / 0x1p24;
    *ms = (float)(1e3 * (slow.now - slow.before) * (++slow.calls % 16 ? noise : 100 * noise));
    return CUDA_OK;
}

static bool measure_kernels(char *text, size_t size)
{
    const struct fake_setup device = {.devices = 1, .memory_bytes = 1 << 20};
    struct cuda_plugin plugin = *fake_cuda_open(&device);
    struct cuda_runtime runtime = *plugin.runtime;
    struct error error;
    FILE *out = tmpfile();
    plugin.runtime = &runtime;
    plugin.launch = slow_launch;
    runtime.DeviceGetAttribute = slow_attribute;
    runtime.Malloc = slow_malloc;
    runtime.Free = slow_free;
    runtime.MemcpyAsync = slow_copy;
    runtime.EventRecord = slow_record;
    runtime.EventElapsedTime = slow_elapsed;
    bool fine = out && calibrate(&plugin, true, out, &error) == STATUS_OK;
    if (out) {
        rewind(out);
        text[fread(text, 1, size - 1, out)] = 0;
        fclose(out);
    }
    fake_cuda_close();
    return fine;
}

static void check_measured(const struct topo *t, bool eight)
{
    static const char *const dtypes[] = {"bf16", "fp32", "fp8"};
    enum { KERNELS = 25, OF_DTYPE = 2 + KERNELS };
    CU_ASSERT_EQUAL_FATAL(t->nmeasured, 2 * OF_DTYPE + eight);
    for (uint32_t i = 0; i < t->nmeasured; i++) {
        const struct topo_measured *m = &t->measured[i];
        uint32_t kind = i % OF_DTYPE;
        CU_ASSERT_STRING_EQUAL(m->kind, kind == 0 ? "gemm" : kind == 1 ? "attention" : "kernel");
        CU_ASSERT_STRING_EQUAL(m->dtype, dtypes[i / OF_DTYPE]);
        /* of 27 and 8 products; four of 27 would take too long */
        CU_ASSERT_EQUAL(m->npoints, kind == 1 ? 10 : kind > 1 ? 3 : i == OF_DTYPE ? 8 : 23);
        for (uint32_t j = 0; j < m->npoints; j++) {
            const struct topo_point *p = &m->points[j];
            if (kind == 0)
                CU_ASSERT_DOUBLE_EQUAL(p->flop_s, 1e13, 2e12);
            if (kind == 1)
                CU_ASSERT_DOUBLE_EQUAL(p->backward_flop_s / p->flop_s, 2.5, 0.8);
            if (kind > 1)
                CU_ASSERT_DOUBLE_EQUAL(p->seconds, 1e-3, 2e-4);
        }
    }
}

/* the median of each, whatever disturbs some; 8-bit products where there are any */
static void test_kernels(void)
{
    static const int devices[][2] = {{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}};
    static char text[1 << 16], file[1 << 17];
    slow.other_s = 1e-3;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        slow.major = devices[i][0];
        slow.minor = devices[i][1];
        CU_ASSERT_FATAL(measure_kernels(text, sizeof text));
        snprintf(file, sizeof file,
                 "<cluster version=\"1\"><node-type id=\"n\" gpus=\"1\"><gpu model=\"H100-SXM\"/>"
                 "<scale-up kind=\"none\"/><nic count=\"1\" bandwidth=\"400Gb/s\"/></node-type>"
                 "<nodes type=\"n\" count=\"1\"/><fabric><tier name=\"leaf\" span=\"all\"/></fabric>%s"
                 "</cluster>",
                 text);
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        struct source s = {"measured.xml", file, strlen(file), false};
        struct topo *t = topo_parse(a, d, &s, NULL);
        diag_print(d, stdout, false);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        check_measured(t, i >= 2);
        arena_free(a);
    }
}

/* what would take too long, by what the size before took, is left out */
static void test_patience(void)
{
    static char text[1 << 16];
    unsigned kernels = 0, points = 0;
    slow.other_s = 0.05;
    CU_ASSERT_FATAL(measure_kernels(text, sizeof text));
    for (const char *at = text; (at = strstr(at, "<kernel ")); at++)
        kernels++;
    for (const char *at = text; (at = strstr(at, "<point size")); at++)
        points++;
    CU_ASSERT_EQUAL(kernels, 2 * 25);
    CU_ASSERT_EQUAL(points, kernels);
}

/* a device too small to measure on: said in words, and all that was made before is given back */
static void test_no_room(void)
{
    const struct fake_setup small = {.devices = 1, .memory_bytes = 64 << 20};
    char complaints[500];
    struct error error = {""};
    FILE *out = tmpfile();
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    CU_ASSERT_EQUAL(calibrate(fake_cuda_open(&small), true, out, &error), STATUS_WORLD);
    CU_ASSERT_STRING_EQUAL(error.text, "cannot use the device: out of memory");
    CU_ASSERT_EQUAL(ftell(out), 0);
    fake_cuda_complaints(complaints, sizeof complaints);
    CU_ASSERT_STRING_EQUAL(complaints, "");
    fake_cuda_close();
    fclose(out);
}

void suite_calibrate(void);
void suite_calibrate(void)
{
    CU_pSuite s = CU_add_suite("calibrate", NULL, NULL);
    CU_add_test(s, "curves of collectives by four ranks on two nodes", test_curves);
    CU_add_test(s, "one rank sends to itself", test_alone);
    CU_add_test(s, "rates of kernels", test_kernels);
    CU_add_test(s, "what would take too long", test_patience);
    CU_add_test(s, "a device without room", test_no_room);
}
