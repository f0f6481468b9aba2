/* kernels/cuda's products against kernels/cpu, under the emulation: our own kernels for single products and experts',
 * and cuBLASLt's part against one that knows its rules (fake/fake_cublaslt.h). */

#include "tests/kernels/cuda_compare.h"
#include "kernels/cpu/fp8.h"
#include "kernels/cuda/fused.h"
#include "kernels/cuda/products.h"
#include "tests/draws.h"
#include "tests/fake/fake_cublaslt.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void set(struct cuda_case *c, uint32_t at, const char *name, double value)
{
    c->number[at].name = name;
    c->number[at].value = value;
}

static struct cuda_case product(enum op op, double m, double n, double k, uint32_t mode)
{
    struct cuda_case c = {.op = op, .c = mode & 1 ? DTYPE_BF16 : DTYPE_F32, .g = mode & 2 ? DTYPE_BF16 : DTYPE_F32, .add = mode & 4};
    set(&c, 0, "m", m);
    set(&c, 1, "n", n);
    set(&c, 2, "k", k);
    c.unaligned = mode & 8;
    return c;
}

static double limit(const struct cuda_case *c)
{
    return c->g == DTYPE_BF16 ? 4e-3 : 2e-6;
}

static void test_single(void)
{
    static const enum op ops[] = {OP_MATMUL_NT, OP_MATMUL_NN, OP_MATMUL_TN};
    for (int i = 0; i < 3; i++)
        for (uint32_t mode = 0; mode < 16; mode += mode == 7 ? 2 : 1) {
            bool large = mode == 7;
            struct cuda_case c = product(ops[i], large ? 150 : 33, large ? 140 : 20, large ? 70 : 41, mode);
            CU_ASSERT(cuda_compare(&c, NULL, limit(&c)) <= limit(&c));
        }
    struct cuda_case c = product(OP_MATMUL_NT, 10, 12, 16, 1);
    c.absent = 1u << OPND(MATMUL_NT, bias);
    CU_ASSERT(cuda_compare(&c, NULL, limit(&c)) <= limit(&c));
}

/* blocks of 40 rows for 3 experts: an empty one, one that is cut by the block's end, a negative count */
static void counts(const struct cuda_case *c, struct kernel_args *k)
{
    static const int32_t rows[2][3] = {{17, 0, 20}, {30, -5, 99}};
    uint32_t at = c->op == OP_GROUPED_NT   ? OPND(GROUPED_NT, counts)
                  : c->op == OP_GROUPED_NN ? OPND(GROUPED_NN, counts)
                  : c->op == OP_GROUPED_TN ? OPND(GROUPED_TN, counts)
                                           : OPND(GROUPED_BIAS_W, counts);
    const struct view *v = &k->operand[at];
    for (uint32_t i = 0; i < 6; i++)
        ((int32_t *)v->data)[(size_t)i * v->ld] = rows[i / 3][i % 3];
}

/* a row or two in each block */
static void few(const struct cuda_case *c, struct kernel_args *k)
{
    const struct view *v = &k->operand[OPND(GROUPED_BIAS_W, counts)];
    (void)c;
    for (uint32_t i = 0; i < v->rows; i++)
        ((int32_t *)v->data)[(size_t)i * v->ld] = 1 + (int32_t)(i % 2);
}

static void test_grouped(void)
{
    static const enum op ops[] = {OP_GROUPED_NT, OP_GROUPED_NN, OP_GROUPED_TN};
    for (int i = 0; i < 3; i++)
        for (uint32_t mode = 0; mode < 16; mode += 3) {
            struct cuda_case c = product(ops[i], 80, 24, 40, mode);
            set(&c, 3, "experts", 3);
            set(&c, 4, "blocks", 2);
            CU_ASSERT(cuda_compare(&c, counts, limit(&c)) <= limit(&c));
            c.absent = ops[i] == OP_GROUPED_NT ? 1u << OPND(GROUPED_NT, bias) : 0;
            CU_ASSERT(!c.absent || cuda_compare(&c, counts, limit(&c)) <= limit(&c));
        }
}

static void test_grouped_biases(void)
{
    for (uint32_t mode = 0; mode < 16; mode++) {
        struct cuda_case c = product(OP_GROUPED_BIAS_W, 80, 1, 1, mode);
        c.absent = mode & 1 ? 1u << OPND(GROUPED_BIAS_W, weight) : 0;
        set(&c, 1, "h", 72);
        set(&c, 2, "experts", 3);
        set(&c, 3, "blocks", 2);
        CU_ASSERT(cuda_compare(&c, counts, limit(&c)) <= limit(&c));
    }
    struct cuda_case c = product(OP_GROUPED_BIAS_W, 600, 1, 1, 0); /* more blocks than a block has threads */
    set(&c, 1, "h", 40);
    set(&c, 2, "experts", 1);
    set(&c, 3, "blocks", 300);
    CU_ASSERT(cuda_compare(&c, few, 2e-6) <= 2e-6);
    CU_ASSERT(cuda_repeats(&c, few));
}

/* as many as two tiles per expert, and more groups than a block has threads */
static void many(const struct cuda_case *c, struct kernel_args *k)
{
    const struct view *v = &k->operand[OPND(GROUPED_NT, counts)];
    (void)c;
    for (uint32_t i = 0; i < v->rows; i++)
        ((int32_t *)v->data)[(size_t)i * v->ld] = v->rows > 100 ? (int32_t)(i % 3) : i ? 40 : 200;
}

static void test_tables(void)
{
    struct cuda_case c = product(OP_GROUPED_NT, 300, 16, 16, 1);
    set(&c, 3, "experts", 3);
    set(&c, 4, "blocks", 1);
    CU_ASSERT(cuda_compare(&c, many, limit(&c)) <= limit(&c));
    if (test_usual())
        return;
    c = product(OP_GROUPED_NT, 2400, 8, 8, 1);
    set(&c, 3, "experts", 600);
    set(&c, 4, "blocks", 3);
    CU_ASSERT(cuda_compare(&c, many, limit(&c)) <= limit(&c));
    CU_ASSERT(cuda_repeats(&c, many));
}

/* ---- cuBLASLt ---- */

static int event_make(cuda_event *e, unsigned flags)
{
    (void)flags;
    *e = calloc(1, sizeof(int));
    return 0;
}
static int event_drop(cuda_event e)
{
    free(e);
    return 0;
}
static int event_record(cuda_event e, cuda_stream s)
{
    (void)s;
    memcpy(e, &fake_lt()->cost, sizeof(int));
    return 0;
}
static int event_query(cuda_event e)
{
    (void)e;
    return CUDA_OK;
}
static int event_elapsed(float *ms, cuda_event from, cuda_event to)
{
    int a, b;
    memcpy(&a, from, sizeof a);
    memcpy(&b, to, sizeof b);
    *ms = (float)(b - a);
    return 0;
}

static const struct cuda_runtime *clock_only(void)
{
    static const struct cuda_runtime r = {.EventCreateWithFlags = event_make,
                                          .EventDestroy = event_drop,
                                          .EventRecord = event_record,
                                          .EventQuery = event_query,
                                          .EventElapsedTime = event_elapsed};
    return &r;
}

static void lt_open(struct cuda_libraries *l)
{
    memset(l, 0, sizeof *l);
    l->lt = fake_cublaslt();
    l->runtime = clock_only();
    l->sm = 90;
    CU_ASSERT(l->lt.cublasLtCreate(&l->lt_handle) == 0);
    snprintf(l->device_name, sizeof l->device_name, "a card");
}
static void lt_close(struct cuda_libraries *l)
{
    product_cache_free(l);
    CU_ASSERT(l->lt.cublasLtDestroy(l->lt_handle) == 0);
    CU_ASSERT_EQUAL(fake_lt()->live, 0);
    CU_ASSERT_PTR_NULL(fake_lt()->wrong);
}

static void test_cublaslt(void)
{
    static const enum op ops[] = {OP_MATMUL_NT, OP_MATMUL_NN, OP_MATMUL_TN};
    struct cuda_libraries l;
    setenv("LLMC_CACHE", "/dev/null/llmc", 1);
    lt_open(&l);
    for (int i = 0; i < 3; i++)
        for (uint32_t mode = 0; mode < 16; mode++) {
            struct cuda_case c = product(ops[i], 33, 20, 41, mode);
            c.libraries = &l;
            int before = fake_lt()->products;
            CU_ASSERT(cuda_compare(&c, NULL, limit(&c)) <= limit(&c));
            bool lacks = c.c == DTYPE_F32 && c.g == DTYPE_BF16; /* ours do it */
            CU_ASSERT_EQUAL(fake_lt()->products - before, lacks ? 0 : 1);
        }
    lt_close(&l);
}

/* an instruction on operands of its own */
struct sample {
    struct kernel_args args;
    struct cuda_call call;
    void *memory[4];
};
static void sample_make(struct sample *s, struct cuda_libraries *l)
{
    static const uint32_t rows[] = {16, 16, 24}, cols[] = {24, 32, 32};
    memset(s, 0, sizeof *s);
    for (int i = 0; i < 3; i++) {
        s->memory[i] = aligned_alloc(256, 4096);
        memset(s->memory[i], 0, 4096);
        s->args.operand[i] = (struct view){s->memory[i], DTYPE_BF16, false, rows[i], cols[i], cols[i]};
    }
    s->memory[3] = aligned_alloc(256, 4096);
    s->call = (struct cuda_call){.args = &s->args, .workspace = s->memory[3], .workspace_bytes = 4096, .libraries = l};
}
static void sample_free(struct sample *s)
{
    for (int i = 0; i < 4; i++)
        free(s->memory[i]);
}

static void test_tuning(void)
{
    char folder[] = "/tmp/llmc-products-XXXXXX", path[64];
    struct cuda_libraries l;
    struct sample s;
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/products.txt", folder);
    setenv("LLMC_CACHE", folder, 1);
    for (int run = 0; run < 3; run++) { /* measured; found in the file; the file is damaged, measured again */
        int before = fake_lt()->heuristics;
        lt_open(&l);
        sample_make(&s, &l);
        if (run == 2) {
            FILE *f = fopen(path, "r+");
            CU_ASSERT_PTR_NOT_NULL_FATAL(f);
            fseek(f, -4, SEEK_END);
            fputc('x', f);
            fclose(f);
        }
        CU_ASSERT_PTR_NULL(cuda_prepare(OP_MATMUL_NT, &s.call));
        CU_ASSERT_EQUAL(fake_lt()->heuristics - before, run == 1 ? 0 : 1);
        int cost = fake_lt()->cost;
        CU_ASSERT_PTR_NULL(cuda_MATMUL_NT(&s.call));
        CU_ASSERT_EQUAL(fake_lt()->cost - cost, 10); /* the fastest one */
        sample_free(&s);
        lt_close(&l);
    }
    unlink(path);
    rmdir(folder);
}

/* room for less than the fastest algorithm needs: the next best */
static void test_small_workspace(void)
{
    struct cuda_libraries l;
    struct sample s;
    setenv("LLMC_CACHE", "/dev/null/llmc", 1);
    lt_open(&l);
    sample_make(&s, &l);
    s.call.workspace_bytes = 512;
    CU_ASSERT_PTR_NULL(cuda_prepare(OP_MATMUL_NT, &s.call));
    int cost = fake_lt()->cost;
    CU_ASSERT_PTR_NULL(cuda_MATMUL_NT(&s.call));
    CU_ASSERT_EQUAL(fake_lt()->cost - cost, 30);
    sample_free(&s);
    lt_close(&l);
}

/* ---- gelu ---- */

enum { GELU_ROWS = 24, GELU_IN = 16, GELU_OUT = 40 };
struct layer {
    uint16_t *memory[10];
    struct kernel_args product, weight, act;
    struct cuda_call call;
};

static struct view layer_view(struct layer *l, int at, uint32_t rows, uint32_t cols, bool random)
{
    l->memory[at] = aligned_alloc(256, 8192);
    for (uint32_t i = 0; i < 4096; i++)
        l->memory[at][i] = random ? (uint16_t)((i * 2654435761u >> 9 & 0x80ff) | 0x3e00) : 0xffff; /* 0.13 to 0.5, either sign */
    return (struct view){l->memory[at], DTYPE_BF16, false, rows, cols, cols};
}

/* h = gelu(x = n w' + b), or dx = (dy w) gelu'(x) with dw = dy' h between */
static void layer_make(struct layer *l, struct cuda_libraries *libraries, bool back)
{
    memset(l, 0, sizeof *l);
    struct view *p = l->product.operand, *a = l->act.operand, *w = l->weight.operand, x = layer_view(l, 0, GELU_ROWS, GELU_OUT, back);
    p[1] = layer_view(l, 1, GELU_ROWS, GELU_IN, true);
    p[2] = back ? layer_view(l, 2, GELU_IN, GELU_OUT, true) : layer_view(l, 2, GELU_OUT, GELU_IN, true);
    p[0] = back ? layer_view(l, 3, GELU_ROWS, GELU_OUT, false) : x;
    if (!back)
        p[3] = layer_view(l, 4, 1, GELU_OUT, true);
    a[0] = layer_view(l, 5, GELU_ROWS, GELU_OUT, false);
    a[1] = p[0];
    if (back)
        a[2] = x;
    l->act.attr[ATTR(GELU, tanh)].i = 1;
    w[0] = layer_view(l, 6, GELU_IN, GELU_OUT, false);
    w[1] = p[1];
    w[2] = layer_view(l, 7, GELU_ROWS, GELU_OUT, true);
    l->call = (struct cuda_call){.workspace = aligned_alloc(256, 4096), .workspace_bytes = 4096, .libraries = libraries};
}
static void layer_free(struct layer *l)
{
    for (int i = 0; i < 10; i++)
        free(l->memory[i]);
    free(l->call.workspace);
}

static double apart(const struct view *x, const struct view *y)
{
    double most = 0, difference = 0;
    for (uint32_t i = 0; i < x->rows * x->cols; i++) {
        double a = (double)bf16_load(((const uint16_t *)x->data)[i]), b = (double)bf16_load(((const uint16_t *)y->data)[i]);
        most = fmax(most, fabs(b));
        difference = fabs(a - b) <= 1e9 ? fmax(difference, fabs(a - b)) : INFINITY;
    }
    return difference / most;
}

/* joined where the library has it and it was measured, else one by one: the same numbers but for the rounding between */
static void test_gelu(void)
{
    static const enum op forth[] = {OP_MATMUL_NT, OP_GELU}, back[] = {OP_MATMUL_NN, OP_MATMUL_TN, OP_GELU_I}, split[] = {OP_MATMUL_NN, OP_GELU_I};
    const enum op *const ops[] = {forth, back, split};
    const unsigned n[] = {2, 3, 2};
    setenv("LLMC_CACHE", "/dev/null/llmc", 1);
    for (int i = 0; i < 12; i++) {
        struct cuda_libraries l;
        struct layer own, want;
        int kind = i % 3, before, lacks = i / 3 % 2, unprepared = i / 6;
        lt_open(&l);
        fake_lt()->lacks_gelu = lacks;
        layer_make(&own, &l, kind > 0);
        layer_make(&want, &l, kind > 0);
        const struct kernel_args *args[] = {&own.product, kind == 1 ? &own.weight : &own.act, &own.act};
        CU_ASSERT_EQUAL(cuda_fuse(ops[kind], args, n[kind]), n[kind]);
        CU_ASSERT_EQUAL(cuda_fused_hides(ops[kind], n[kind]), kind ? 0 : 2);
        if (!unprepared)
            CU_ASSERT_PTR_NULL(cuda_fused_prepare(ops[kind], args, n[kind], &own.call));
        layer_free(&own); /* what it was measured on is random */
        layer_make(&own, &l, kind > 0);
        before = fake_lt()->joined;
        CU_ASSERT_PTR_NULL(cuda_fused(ops[kind], args, n[kind], &own.call));
        CU_ASSERT_EQUAL(fake_lt()->joined - before, !lacks && !unprepared);
        const struct kernel_args *each[] = {&want.product, kind == 1 ? &want.weight : &want.act, &want.act};
        for (unsigned k = 0; k < n[kind]; k++) {
            want.call.args = each[k];
            CU_ASSERT_PTR_NULL(cuda_kernel(ops[kind][k], &want.call));
        }
        CU_ASSERT(apart(&own.act.operand[0], &want.act.operand[0]) < 8e-3);
        CU_ASSERT(kind || apart(&own.product.operand[0], &want.product.operand[0]) <= 0);
        CU_ASSERT(kind != 1 || apart(&own.weight.operand[0], &want.weight.operand[0]) <= 0);
        CU_ASSERT_EQUAL(cuda_fused_workspace_bytes(ops[kind], args, n[kind]), WORKSPACE_PRODUCT);
        layer_free(&own);
        layer_free(&want);
        fake_lt()->lacks_gelu = false;
        lt_close(&l);
    }
}

static double apart_fp32(const struct view *x, const struct view *y)
{
    double most = 0, difference = 0;
    for (uint32_t i = 0; i < x->rows * x->cols; i++) {
        double a = (double)((const float *)x->data)[i], b = (double)((const float *)y->data)[i];
        most = fmax(most, fabs(b));
        difference = fabs(a - b) <= 1e9 ? fmax(difference, fabs(a - b)) : INFINITY;
    }
    return difference / most;
}

static int copy_now(void *to, const void *from, size_t bytes, int kind, cuda_stream s)
{
    (void)kind, (void)s;
    memcpy(to, from, bytes);
    return 0;
}
static int stream_idle(cuda_stream s)
{
    (void)s;
    return CUDA_OK;
}

/* a weight's gradient and the bias's: one product that must first agree with two; wrong sums are found and not used */
static void test_bias_sum(void)
{
    static const enum op ops[] = {OP_MATMUL_TN, OP_BIAS_W};
    setenv("LLMC_CACHE", "/dev/null/llmc", 1);
    for (int i = 0; i < 8; i++) {
        bool add = i & 1, wrong = i & 2, lacks = i & 4;
        struct cuda_libraries l;
        struct layer own, want;
        struct cuda_runtime r = *clock_only();
        lt_open(&l);
        r.MemcpyAsync = copy_now;
        r.StreamQuery = stream_idle;
        l.runtime = &r;
        fake_lt()->wrong_sum = wrong;
        fake_lt()->lacks_gelu = lacks;
        struct layer *both[] = {&own, &want};
        for (int k = 0; k < 2; k++) {
            struct layer *f = both[k];
            memset(f, 0, sizeof *f);
            struct view *p = f->product.operand, *b = f->act.operand;
            p[0] = layer_view(f, 0, GELU_OUT, GELU_IN, false);
            p[1] = layer_view(f, 1, GELU_ROWS, GELU_OUT, true);
            p[2] = layer_view(f, 2, GELU_ROWS, GELU_IN, true);
            b[0] = layer_view(f, 3, 1, GELU_OUT, false);
            b[1] = p[1];
            p[0].dtype = b[0].dtype = DTYPE_F32;
            p[0].add = b[0].add = add;
            f->call = (struct cuda_call){.workspace = aligned_alloc(256, 4096), .workspace_bytes = 4096, .libraries = &l};
        }
        const struct kernel_args *args[] = {&own.product, &own.act};
        CU_ASSERT_EQUAL(cuda_fuse(ops, args, 2), 2);
        CU_ASSERT_EQUAL(cuda_fused_hides(ops, 2), 2);
        CU_ASSERT_PTR_NULL(cuda_fused_prepare(ops, args, 2, &own.call));
        for (int k = 0; k < 2; k++) {
            memset(both[k]->memory[0], 0, 8192);
            memset(both[k]->memory[3], 0, 8192);
            ((float *)both[k]->act.operand[0].data)[3] = add ? 7 : 0;
            memcpy(both[k]->memory[1], want.memory[2], 8192);
            memcpy(both[k]->memory[2], want.memory[1], 8192);
        }
        memcpy(own.memory[1], want.memory[1], 8192);
        memcpy(own.memory[2], want.memory[2], 8192);
        int before = fake_lt()->joined;
        CU_ASSERT_PTR_NULL(cuda_fused(ops, args, 2, &own.call));
        CU_ASSERT_EQUAL(fake_lt()->joined - before, !wrong && !lacks);
        for (int k = 0; k < 2; k++) {
            want.call.args = k ? &want.act : &want.product;
            CU_ASSERT_PTR_NULL(cuda_kernel(ops[k], &want.call));
        }
        CU_ASSERT(apart_fp32(&own.act.operand[0], &want.act.operand[0]) < 1e-6);
        CU_ASSERT(apart_fp32(&own.product.operand[0], &want.product.operand[0]) < 1e-6);
        layer_free(&own);
        layer_free(&want);
        fake_lt()->wrong_sum = fake_lt()->lacks_gelu = false;
        lt_close(&l);
    }
}

/* what must stay apart */
static void test_gelu_apart(void)
{
    static const enum op forth[] = {OP_MATMUL_NT, OP_GELU}, back[] = {OP_MATMUL_NN, OP_MATMUL_TN, OP_GELU_I};
    struct layer f, b;
    layer_make(&f, NULL, false);
    layer_make(&b, NULL, true);
    const struct kernel_args *fargs[] = {&f.product, &f.act}, *bargs[] = {&b.product, &b.weight, &b.act};
    struct kernel_args act = f.act, product = f.product, weight = b.weight, slope = b.act;
    CU_ASSERT_EQUAL(cuda_fuse(back, bargs, 2), 1);
#define APART(ops, args, n, k, change, was)                                                                  \
    change;                                                                                                  \
    CU_ASSERT_EQUAL(cuda_fuse(ops, args, n), 1);                                                             \
    k = was;                                                                                                 \
    CU_ASSERT_EQUAL(cuda_fuse(ops, args, n), n)
    APART(forth, fargs, 2, f.act, f.act.attr[ATTR(GELU, tanh)].i = 0, act);
    APART(forth, fargs, 2, f.act, f.act.operand[1].data = f.memory[6], act);
    APART(forth, fargs, 2, f.act, f.act.operand[0].data = f.memory[0], act);
    APART(forth, fargs, 2, f.product, f.product.operand[0].add = true, product);
    APART(forth, fargs, 2, f.product, f.product.attr[ATTR(MATMUL_NT, fp8)].i = 1, product);
    APART(back, bargs, 3, b.weight, b.weight.operand[0].data = b.memory[2], weight); /* the weight's gradient over the weight */
    APART(back, bargs, 3, b.weight, b.weight.operand[2].data = b.memory[3], weight); /* of what the product makes */
    APART(back, bargs, 3, b.act, b.act.operand[0].data = b.memory[1], slope);
    APART(back, bargs, 3, b.act, b.act.operand[0].data = b.memory[0], slope);
    layer_free(&f);
    layer_free(&b);
}

/* ---- 8 bits ---- */

static struct cuda_case eight(enum op op, double m, double n, double k, uint32_t mode)
{
    struct cuda_case c = product(op, m, n, k, mode);
    set(&c, 3, "fp8", 1);
    return c;
}

/* a and b over forty binades, so that some numbers become denormal and others nothing; or a all zero */
static void spread(const struct cuda_case *c, struct kernel_args *k)
{
    uint64_t random = 5;
    for (uint32_t o = 1; o < 3; o++) {
        const struct view *v = &k->operand[o];
        for (uint32_t i = 0; i < v->rows; i++)
            for (uint32_t j = 0; j < v->cols; j++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                float x = ldexpf(1 + (float)(random >> 57) / 128, -(int)(random >> 40 & 1023) % 40);
                x = c->add && o == 1 ? 0 : random >> 39 & 1 ? -x : x;
                if (v->dtype == DTYPE_F32)
                    ((float *)v->data)[(size_t)i * v->ld + j] = x;
                else
                    ((uint16_t *)v->data)[(size_t)i * v->ld + j] = bf16_round(x);
            }
    }
}

static float eight_value(uint8_t code, bool e5m2)
{
    int mantissa = e5m2 ? 2 : 3, field = code >> mantissa & (e5m2 ? 31 : 15), low = code & ((1 << mantissa) - 1);
    float x = ldexpf((float)(field ? low + (1 << mantissa) : low), (field ? field - 1 : 0) - (e5m2 ? 16 : 9));
    return code & 128 ? -x : x;
}

/* an operand's copy, what is summed over within its rows, equals the CPU's in every bit; down: turned */
static uint32_t differing(const struct view *v, bool down, enum fp8_use use, const struct view *copy, const float *scale)
{
    uint32_t ld, differ = 0;
    float *tmp = malloc((size_t)v->rows * v->cols * sizeof *tmp);
    const float *want = fp8_load(v, 1, use, down, tmp, &ld);
    for (uint32_t i = 0; i < v->rows; i++)
        for (uint32_t j = 0; j < v->cols; j++) {
            uint8_t code = ((const uint8_t *)copy->data)[(size_t)(down ? j : i) * copy->ld + (down ? i : j)];
            float have = *scale * eight_value(code, use == FP8_GRADIENT);
            differ += memcmp(&have, &want[(size_t)i * ld + j], sizeof have) != 0;
        }
    free(tmp);
    return differ;
}

static void test_eight_numbers(void)
{
    static const uint32_t rows[3][3] = {{48, 48, 80}, {48, 48, 96}, {48, 96, 96}}, cols[3][3] = {{80, 96, 96}, {80, 96, 80}, {80, 48, 80}};
    for (uint32_t i = 0; i < 6; i++) {
        enum op op = i % 3 == 0 ? OP_MATMUL_NT : i % 3 == 1 ? OP_MATMUL_NN : OP_MATMUL_TN;
        struct kernel_args k = {.attr = {{.i = 1}}};
        const struct cuda_case c = {.op = op};
        struct product p;
        struct cuda_call call = {.args = &k}, rest;
        for (uint32_t o = 0; o < 3; o++)
            k.operand[o] = (struct view){aligned_alloc(64, 65536), i < 3 ? DTYPE_F32 : DTYPE_BF16, false, rows[i % 3][o], cols[i % 3][o], 112};
        spread(&c, &k);
        call.workspace_bytes = cuda_workspace_bytes(op, &k, 90);
        call.workspace = aligned_alloc(256, (call.workspace_bytes + 255) / 256 * 256);
        CU_ASSERT(product_get(op, &k, &p));
        CU_ASSERT_PTR_NULL(product_operands(op, &call, false, &p, &rest));
        CU_ASSERT(p.eight && !p.ta && p.tb && rest.workspace_bytes == WORKSPACE_PRODUCT);
        if (p.eight) {
            CU_ASSERT_EQUAL(differing(&k.operand[1], op == OP_MATMUL_TN, op == OP_MATMUL_NT ? FP8_INPUT : FP8_GRADIENT, &p.a, p.scale_a), 0);
            CU_ASSERT_EQUAL(differing(&k.operand[2], op != OP_MATMUL_NT, FP8_WEIGHT, &p.b, p.scale_b), 0);
        }
        for (uint32_t o = 0; o < 3; o++)
            free(k.operand[o].data);
        free(call.workspace);
    }
}

/* Operands round as the CPU's do, bit by bit: what is left are sums' orders and the result's dtype. */
static void test_eight(void)
{
    static const enum op ops[] = {OP_MATMUL_NT, OP_MATMUL_NN, OP_MATMUL_TN};
    struct cuda_libraries l;
    setenv("LLMC_CACHE", "/dev/null/llmc", 1);
    lt_open(&l);
    for (int i = 0; i < 3; i++)
        for (uint32_t mode = 0; mode < 8; mode++)
            for (int own = 0; own < 2; own++) {
                struct cuda_case c = eight(ops[i], 32, 80, 144, mode);
                c.libraries = own ? NULL : &l;
                c.prepare = mode == 7;
                int before = fake_lt()->eight, fast = fake_lt()->fast;
                CU_ASSERT(cuda_compare(&c, NULL, limit(&c)) <= limit(&c));
                CU_ASSERT_EQUAL(fake_lt()->eight - before > 0, !own);
                CU_ASSERT_EQUAL(fake_lt()->fast - fast > 0, !own && i == 0);
            }
    for (int i = 0; i < 3; i++)
        for (uint32_t mode = 0; mode < 8; mode++) {
            struct cuda_case c = eight(ops[i], 80, 16, 96, mode);
            c.libraries = mode & 1 ? &l : NULL;
            c.absent = i == 0 && mode & 4 ? 1u << OPND(MATMUL_NT, bias) : 0;
            CU_ASSERT(cuda_compare(&c, spread, limit(&c)) <= limit(&c));
        }
    struct cuda_case c = eight(OP_MATMUL_NT, 32, 16, 48, 7);
    int before = fake_lt()->products;
    c.libraries = &l;
    c.prepare = fake_lt()->lacks_eight = true;
    CU_ASSERT(cuda_compare(&c, NULL, limit(&c)) <= limit(&c));
    CU_ASSERT_EQUAL(fake_lt()->products, before);
    fake_lt()->lacks_eight = false;
    c = eight(OP_MATMUL_TN, 32, 16, 48, 7);
    CU_ASSERT(cuda_repeats(&c, NULL));
    lt_close(&l);
}

static void test_eight_grouped(void)
{
    static const enum op ops[] = {OP_GROUPED_NT, OP_GROUPED_NN, OP_GROUPED_TN};
    for (int i = 0; i < 3; i++)
        for (uint32_t mode = 0; mode < 8; mode++) {
            struct cuda_case c = eight(ops[i], 80, 48, 80, mode);
            set(&c, 4, "experts", 3);
            set(&c, 5, "blocks", 2);
            CU_ASSERT(cuda_compare(&c, counts, limit(&c)) <= limit(&c));
            CU_ASSERT(mode || cuda_repeats(&c, counts));
        }
}

/* what does not fit runs in its operands' own dtype and is told; recipes and GPUs that lack it are refused */
static void test_eight_refused(void)
{
    struct cuda_libraries l;
    struct sample s;
    struct workspace_fp8 w;
    lt_open(&l);
    sample_make(&s, &l);
    s.args.attr[ATTR(MATMUL_NT, fp8)].i = 1;
    CU_ASSERT_STRING_EQUAL(cuda_note(OP_MATMUL_NT, &s.args, 90), "its dimensions are no multiples of 16");
    int before = fake_lt()->eight;
    CU_ASSERT_PTR_NULL(cuda_MATMUL_NT(&s.call));
    CU_ASSERT_EQUAL(fake_lt()->eight, before);
    s.args.operand[OPND(MATMUL_NT, c)].cols = s.args.operand[OPND(MATMUL_NT, b)].rows = 16;
    CU_ASSERT_PTR_NULL(cuda_note(OP_MATMUL_NT, &s.args, 90));
    CU_ASSERT_STRING_EQUAL(product_fp8_plan(OP_MATMUL_NT, &s.args, 86, &w), "the GPU is older than sm_89");
    CU_ASSERT_STRING_EQUAL(cuda_MATMUL_NT(&s.call), "the workspace is too small for operands of 8 bits");
    s.args.operand[OPND(MATMUL_NT, a)].ld++;
    CU_ASSERT_STRING_EQUAL(cuda_note(OP_MATMUL_NT, &s.args, 90), "its rows begin at no multiples of 16 bytes");
    l.sm = 80;
    CU_ASSERT_STRING_EQUAL(cuda_prepare(OP_MATMUL_NT, &s.call), "a card is sm_80, and products in fp8 need sm_89 or later: write precision bf16");
    static const char *const says[] = {"fp8(recipe=row) is not supported on GPUs: write fp8(recipe=tensor)",
                                       "fp8(recipe=block) is not supported on GPUs: write fp8(recipe=tensor)",
                                       "fp8(recipe=mx) is not supported on GPUs: write fp8(recipe=tensor)"};
    for (int recipe = 2; recipe <= 4; recipe++) {
        s.args.attr[ATTR(MATMUL_NT, fp8)].i = recipe;
        CU_ASSERT_STRING_EQUAL(cuda_product_check(OP_MATMUL_NT, &s.args), says[recipe - 2]);
    }
    sample_free(&s);
    lt_close(&l);
}

void suite_cuda_products(void);
void suite_cuda_products(void)
{
    CU_pSuite s = CU_add_suite("cuda_products", NULL, NULL);
    CU_add_test(s, "single, as on the CPU", test_single);
    CU_add_test(s, "experts', as on the CPU", test_grouped);
    CU_add_test(s, "gradients of experts' biases", test_grouped_biases);
    CU_add_test(s, "tables of experts' rows", test_tables);
    CU_add_test(s, "cuBLASLt, as on the CPU and by its rules", test_cublaslt);
    CU_add_test(s, "numbers of 8 bits, as on the CPU in every bit", test_eight_numbers);
    CU_add_test(s, "8 bits, as on the CPU and by cuBLASLt's rules", test_eight);
    CU_add_test(s, "8 bits of experts, as on the CPU", test_eight_grouped);
    CU_add_test(s, "a product and the gelu behind it", test_gelu);
    CU_add_test(s, "a weight's gradient and the bias's", test_bias_sum);
    CU_add_test(s, "a gelu that stays apart", test_gelu_apart);
    CU_add_test(s, "8 bits that are refused, or not taken", test_eight_refused);
    CU_add_test(s, "the fastest algorithm, measured once and kept", test_tuning);
    CU_add_test(s, "no more workspace than there is", test_small_workspace);
}
