/* Prices of kernels: published rates by shape and GPU, order of prices where physics dictates it, steps of
 * tiles and rounds, the factors of a profile, and CPU ranks. */

#include "compiler/llmc.h"
#include "compiler/cost/cost.h"
#include "compiler/model/sema.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <string.h>

static struct job *make_job(struct arena *a, const char *precision)
{
    return text_job(
        a, arena_printf(a,
                        "llmc 1\nmodel m {\n vocab 32000\n width 2048\n norm rmsnorm\n embed tokens\n"
                        " repeat 8 { layer { attn gqa(heads=16, kv=8, rope=10_000)\n ffn swiglu(8192) } }\n"
                        " head untied\n}\ntrain {\n sequence 2048\n batch 64 sequences\n precision %s\n}\n",
                        precision));
}

/* the stack of no effect: kernels as microbenchmarks have them */
static const struct profile *plain_profile(struct arena *a)
{
    struct profile *p = ARENA_NEW(a, struct profile);
    unsigned line;
    const char *why = "";
    CU_ASSERT_FATAL(profile_parse(p, "", 0, &line, &why));
    return p;
}

/* profile: NULL = that of no effect */
static struct cost *make_cost(struct arena *a, const char *gpu, const char *precision,
                              const struct profile *profile)
{
    struct job *job = make_job(a, precision);
    struct source *s = ARENA_NEW(a, struct source);
    char *text =
        arena_printf(a,
                     "<cluster version=\"1\"><node-type id=\"n\" gpus=\"1\"><gpu model=\"%s\"/>"
                     "<scale-up kind=\"none\"/></node-type><nodes type=\"n\" count=\"1\"/></cluster>",
                     gpu);
    *s = (struct source){"c.xml", text, strlen(text), false};
    struct topo *topo = topo_parse(a, diag_new(a), s, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    struct decision *d = ARENA_NEW(a, struct decision);
    *d = decision_single();
    d->microbatches = 64;
    const char *why = "";
    CU_ASSERT_FATAL(decision_place(a, topo, d, &why));
    decision_cut(a, d, job->model.nlayers, NULL, 0, 0);
    job->wishes.profile = profile ? profile : plain_profile(a);
    return cost_new(a, job, topo, d);
}

static double forward_s(const struct cost *c, uint64_t m, uint64_t n, uint64_t k)
{
    return cost_matmul_s(c, PRODUCT_FORWARD, m, n, k, DTYPE_BF16);
}

/* Rates of single products.  Sustained ones: shape tables of the SimuMax project (A100-PCIe, B200; layouts of
 * Megatron). */
static void test_products(void)
{
    static const struct {
        const char *gpu;
        enum product product;
        uint64_t m, n, k;
        double tflops, tolerance;
    } rows[] = {
        {"A100-PCIe-80GB", PRODUCT_FORWARD, 4096, 4096, 512, 190, 0.08},
        {"A100-PCIe-80GB", PRODUCT_FORWARD, 4096, 8192, 7168, 227, 0.04},
        {"A100-PCIe-80GB", PRODUCT_FORWARD, 4096, 102400, 5120, 236, 0.04},
        {"A100-PCIe-80GB", PRODUCT_FORWARD, 4096, 576, 5120, 155, 0.15}, /* 160 tiles on 108 units */
        {"A100-PCIe-80GB", PRODUCT_INPUT, 4096, 5120, 576, 185, 0.08},
        {"A100-PCIe-80GB", PRODUCT_WEIGHT, 8192, 28672, 4096, 222, 0.04},
        {"B200", PRODUCT_FORWARD, 4096, 129280, 7168, 1101, 0.06},
        {"B200", PRODUCT_INPUT, 65536, 5120, 576, 1103, 0.08},
        {"B200", PRODUCT_WEIGHT, 64128, 8192, 8192, 1001, 0.08},
    };
    struct arena *a = arena_new();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct cost *c = make_cost(a, rows[i].gpu, "bf16", NULL);
        double seconds = cost_matmul_s(c, rows[i].product, rows[i].m, rows[i].n, rows[i].k, DTYPE_BF16);
        double tflops = 2e-12 * (double)rows[i].m * (double)rows[i].n * (double)rows[i].k / seconds;
        if (fabs(tflops / rows[i].tflops - 1) > rows[i].tolerance)
            printf("\n    %s %llux%llux%llu: %.0f TFLOP/s, published %.0f", rows[i].gpu,
                   (unsigned long long)rows[i].m, (unsigned long long)rows[i].n,
                   (unsigned long long)rows[i].k, tflops, rows[i].tflops);
        CU_ASSERT(fabs(tflops / rows[i].tflops - 1) <= rows[i].tolerance);
    }
    arena_free(a);
}

/* The most that anyone measured at any shape (tables of maximum achievable products) is what the highest
 * clock gives, and more than is sustained; sustained Hopper rates by end-to-end runs. */
static void test_peaks(void)
{
    static const struct {
        const char *gpu;
        double most, least; /* TFLOP/s of a sustained 8192^3 */
    } rows[] = {{"A100-SXM", 271.2, 230},
                {"A100-PCIe-80GB", 252.9, 222},
                {"H100-SXM", 794.5, 620},
                {"B200", 1745, 1000},
                {"GB200", 1822, 1100}};
    struct arena *a = arena_new();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct cost *c = make_cost(a, rows[i].gpu, "bf16", NULL);
        double tflops = 2e-12 * pow(8192, 3) / forward_s(c, 8192, 8192, 8192);
        CU_ASSERT(tflops < rows[i].most);
        CU_ASSERT(tflops > rows[i].least);
    }
    arena_free(a);
}

static void test_order(void)
{
    struct arena *a = arena_new();
    static const char *const gpus[] = {"V100", "A100-SXM", "H100-SXM", "B200", "GB300", "MI300X"};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        const struct cost *c = make_cost(a, gpus[i], "bf16", NULL);
        for (uint64_t n = 64; n <= 65536; n *= 2) { /* more of anything never takes less time */
            CU_ASSERT(forward_s(c, n, 4096, 4096) <= forward_s(c, 2 * n, 4096, 4096));
            CU_ASSERT(forward_s(c, 4096, n, 4096) <= forward_s(c, 4096, 2 * n, 4096));
            CU_ASSERT(forward_s(c, 4096, 4096, n) <= forward_s(c, 4096, 4096, 2 * n));
            CU_ASSERT(cost_stream_s(c, (double)n) < cost_stream_s(c, 2 * (double)n));
            double flops = 2.0 * 4096 * 4096 * (double)n;
            double peak =
                c->type->gpu.peak_flop_s[c->type->gpu.peak_flop_s[TOPO_BF16] > 0 ? TOPO_BF16 : TOPO_FP16];
            CU_ASSERT(forward_s(c, 4096, 4096, n) > flops / peak);
        }
        CU_ASSERT(cost_matmul_s(c, PRODUCT_WEIGHT, 4096, 4096, 4096, DTYPE_BF16) >=
                  forward_s(c, 4096, 4096, 4096));
        CU_ASSERT(cost_matmul_s(c, PRODUCT_FORWARD, 4096, 4096, 4096, DTYPE_F32) >
                  3 * forward_s(c, 4096, 4096, 4096));
        CU_ASSERT_EQUAL(forward_s(c, 0, 8, 8), 0);
        /* one row: the weight's bytes at no more than the memory's bandwidth */
        CU_ASSERT(forward_s(c, 1, 8192, 8192) >= 2.0 * 8192 * 8192 / c->type->gpu.memory_bytes_s);
    }
    arena_free(a);
}

/* One tile more than a whole number of rounds costs a round where nothing hides it; K = 4096 on 108 units. */
static void test_rounds(void)
{
    struct arena *a = arena_new();
    const struct cost *c = make_cost(a, "A100-SXM", "bf16", NULL);
    double full = forward_s(c, 128 * 12, 256 * 9, 4096), over = forward_s(c, 128 * 12, 256 * 9 + 8, 4096);
    CU_ASSERT(over > 1.15 * full);
    CU_ASSERT(forward_s(c, 128 * 12, 256 * 9 - 8, 4096) > 0.97 * full);
    /* rows that are no multiple of 16 bytes (a width of 13,825) miss the fast loads */
    CU_ASSERT(forward_s(c, 8192, 13824, 13828) > 1.2 * forward_s(c, 8192, 13824, 13824));
    CU_ASSERT(forward_s(c, 8192, 13824, 13825) > 1.2 * forward_s(c, 8192, 13824, 13828));
    arena_free(a);
}

static void test_number_formats(void)
{
    struct arena *a = arena_new();
    const struct cost *half = make_cost(a, "H100-SXM", "bf16", NULL),
                      *fp8 = make_cost(a, "H100-SXM", "fp8", NULL);
    double ratio = forward_s(half, 8192, 8192, 8192) / forward_s(fp8, 8192, 8192, 8192);
    CU_ASSERT(ratio > 1.4 && ratio < 2);
    CU_ASSERT_EQUAL(cost_matmul_half_s(fp8, PRODUCT_FORWARD, 8192, 8192, 8192, DTYPE_BF16),
                    forward_s(half, 8192, 8192, 8192));
    const struct cost *older = make_cost(a, "A100-SXM", "bf16", NULL); /* no such unit */
    CU_ASSERT(cost_quantize_s(half, 1e9) < 2 * cost_stream_s(half, 2e9) &&
              cost_quantize_s(half, 1e9) > cost_stream_s(half, 2e9));
    CU_ASSERT_EQUAL(older->device.clock_flop_s[COST_FP8], 0);
    arena_free(a);
}

static void test_groups(void)
{
    struct arena *a = arena_new();
    struct cost *c = make_cost(a, "B200", "bf16", NULL);
    /* many small experts are bound by their weights' bytes, few large ones by arithmetic */
    double small = cost_grouped_matmul_s(c, PRODUCT_FORWARD, 256, 16, 4096, 7168, DTYPE_BF16);
    CU_ASSERT(small > 256.0 * 2 * 4096 * 7168 / c->type->gpu.memory_bytes_s);
    double large = cost_grouped_matmul_s(c, PRODUCT_FORWARD, 8, 65536, 4096, 7168, DTYPE_BF16);
    CU_ASSERT(large < 1.1 * 8 * forward_s(c, 65536, 4096, 7168));
    /* SimuMax, B200: 40 experts of 3072 x 5120, 2460 tokens each: 1095, 1017, 938 TFLOP/s */
    double flops = 2.0 * 40 * 2460 * 3072 * 5120;
    static const double published[] = {1095e12, 1017e12, 938e12};
    for (enum product p = PRODUCT_FORWARD; p <= PRODUCT_WEIGHT; p++)
        CU_ASSERT(fabs(flops / cost_grouped_matmul_s(c, p, 40, 2460, 3072, 5120, DTYPE_BF16) / published[p] -
                       1) < 0.2);
    c->device.group_s = 9e-6; /* a loop of launches */
    CU_ASSERT(cost_grouped_matmul_s(c, PRODUCT_FORWARD, 256, 1, 64, 64, DTYPE_BF16) >= 256 * 9e-6);
    arena_free(a);
}

/* FlashAttention-2 (A100, forward and backward) and -3 (H100, forward), 16,384 tokens, width 2048; SimuMax
 * (B200) */
static void test_attention(void)
{
    static const struct {
        const char *gpu;
        double seq, heads, head;
        bool causal, backward;
        double tflops, tolerance;
    } rows[] = {
        {"A100-SXM", 512, 16, 128, true, true, 99, 0.08},
        {"A100-SXM", 16384, 16, 128, true, true, 189, 0.08},
        {"A100-SXM", 2048, 32, 64, false, true, 162, 0.08},
        {"H100-SXM", 512, 16, 128, true, false, 292, 0.10},
        {"H100-SXM", 16384, 16, 128, true, false, 616, 0.08},
        {"H100-SXM", 4096, 8, 256, false, false, 736, 0.08},
        {"H100-SXM", 8192, 32, 64, false, false, 496, 0.08},
    };
    struct arena *a = arena_new();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct cost *c = make_cost(a, rows[i].gpu, "bf16", NULL);
        struct cost_attention t = {.tokens = 16384,
                                   .context = rows[i].seq,
                                   .heads = rows[i].heads,
                                   .qk = rows[i].head,
                                   .v = rows[i].head,
                                   .full = !rows[i].causal};
        double flops = 4 * t.tokens * t.context * t.heads * t.qk * (rows[i].causal ? 0.5 : 1) *
                       (rows[i].backward ? 3.5 : 1);
        double seconds = cost_attention_s(c, &t, DTYPE_BF16, false);
        seconds += rows[i].backward ? cost_attention_s(c, &t, DTYPE_BF16, true) : 0;
        CU_ASSERT(fabs(flops / seconds / 1e12 / rows[i].tflops - 1) < rows[i].tolerance);
    }
    arena_free(a);
}

static void test_attention_shapes(void)
{
    struct arena *a = arena_new();
    struct profile old = *make_cost(a, "A100-SXM", "bf16", NULL)->profile;
    old.attention_unfused = 1;
    const struct cost *c = make_cost(a, "A100-SXM", "bf16", NULL),
                      *u = make_cost(a, "A100-SXM", "bf16", &old);
    struct cost_attention t = {.tokens = 8192, .context = 8192, .heads = 16, .qk = 128, .v = 128}, w = t,
                          mla = t, few = t;
    for (int backward = 0; backward < 2; backward++) {
        double seconds = cost_attention_s(c, &t, DTYPE_BF16, backward);
        w.window = 1024; /* an eighth of the keys per row, of the half that a causal mask leaves: a bit above
                            a quarter */
        double narrow = cost_attention_s(c, &w, DTYPE_BF16, backward) / seconds;
        CU_ASSERT(narrow > 0.25 && narrow < 0.40);
        w.window = 8192;
        CU_ASSERT_DOUBLE_EQUAL(cost_attention_s(c, &w, DTYPE_BF16, backward), seconds, 1e-12);
        mla.qk = 192;
        CU_ASSERT(cost_attention_s(c, &mla, DTYPE_BF16, backward) > 1.1 * seconds);
        few.heads = 1; /* 64 tiles on 108 units */
        CU_ASSERT(16 * cost_attention_s(c, &few, DTYPE_BF16, backward) > 1.5 * seconds);
        /* scores through memory, 2.1 GB of them, several times */
        double unfused = cost_attention_s(u, &t, DTYPE_BF16, backward);
        CU_ASSERT(unfused > 2 * seconds && unfused > 4 * 2.1e9 / c->type->gpu.memory_bytes_s);
        /* heads of 108: rows of 216 bytes miss the fast loads */
        struct cost_attention aligned = t, odd = t;
        aligned.qk = aligned.v = 112;
        odd.qk = odd.v = 108;
        CU_ASSERT(cost_attention_s(u, &odd, DTYPE_BF16, backward) >
                  1.02 * cost_attention_s(u, &aligned, DTYPE_BF16, backward));
    }
    struct cost_attention padded = t, whole = t; /* heads of 80 run as 96 */
    padded.qk = padded.v = 80;
    whole.qk = whole.v = 96;
    CU_ASSERT_DOUBLE_EQUAL(cost_attention_s(c, &padded, DTYPE_BF16, false),
                           cost_attention_s(c, &whole, DTYPE_BF16, false), 1e-12);
    t.tokens = 0;
    CU_ASSERT_EQUAL(cost_attention_s(c, &t, DTYPE_BF16, false), 0);
    arena_free(a);
}

/* ranks on a processor, and makers without a table: one roofline, outputs counted once, gradients read as
 * well */
static void test_plain(void)
{
    struct arena *a = arena_new();
    struct job *job = make_job(a, "bf16");
    uint64_t state = 1;
    struct decision d = random_decision(a, &state, job, random_host(a, 1), 1);
    const struct cost *cpu = cost_new(a, job, random_host(a, 1), &d);
    const struct cost *gpu = make_cost(a, "MI300X", "bf16", NULL);
    CU_ASSERT(cpu->device.plain && gpu->device.plain);
    CU_ASSERT_EQUAL(cpu->device.launch_s, 2e-6);
    /* 20 GFLOP/s stated, 0.8 of it sustained, less k / (k + 16) and tiles / (tiles + 0.5) */
    double expected = 2 * pow(1024, 3) / (16e9 * 1024 / 1040 * 64 / 64.5);
    CU_ASSERT_DOUBLE_EQUAL(forward_s(cpu, 1024, 1024, 1024), expected + 2e-6, 1e-6 * expected);
    double thin = forward_s(gpu, 65536, 4096, 1) - gpu->device.launch_s; /* writes 512 MiB */
    CU_ASSERT_DOUBLE_EQUAL(thin, 2 * (65536 + 4096 + 65536.0 * 4096) / gpu->device.bytes_s, 0.3 * thin);
    CU_ASSERT(cost_matmul_s(gpu, PRODUCT_WEIGHT, 65536, 4096, 1, DTYPE_BF16) > 3 * thin);
    struct cost_attention t = {.tokens = 8192, .context = 8192, .heads = 16, .qk = 128, .v = 128}, full = t;
    full.full = true;
    double ratio =
        cost_attention_s(gpu, &full, DTYPE_BF16, true) / cost_attention_s(gpu, &t, DTYPE_BF16, true);
    CU_ASSERT(ratio > 1.9 && ratio <= 2);
    CU_ASSERT(cost_grouped_matmul_s(gpu, PRODUCT_INPUT, 8, 1024, 4096, 4096, DTYPE_BF16) > 0);
    arena_free(a);
}

/* everyone waits for the slowest: arithmetic by the node's factor, memory not */
static void test_slow_node(void)
{
    struct arena *a = arena_new();
    struct cost *c = make_cost(a, "H100-SXM", "bf16", NULL);
    double product = forward_s(c, 8192, 8192, 8192), stream = cost_stream_s(c, 1e9);
    struct cost_attention t = {.tokens = 8192, .context = 8192, .heads = 16, .qk = 128, .v = 128};
    double attention = cost_attention_s(c, &t, DTYPE_BF16, true);
    c->device.compute_factor = 0.8;
    CU_ASSERT_DOUBLE_EQUAL(forward_s(c, 8192, 8192, 8192) / product, 1.25, 0.01);
    CU_ASSERT_DOUBLE_EQUAL(cost_attention_s(c, &t, DTYPE_BF16, true) / attention, 1.25, 0.01);
    CU_ASSERT_EQUAL(cost_stream_s(c, 1e9), stream);
    arena_free(a);
}

static void test_profile(void)
{
    struct arena *a = arena_new();
    const struct cost *c = make_cost(a, "H100-SXM", "bf16", NULL);
    struct profile p = *c->profile;
    p.matmul_sm90 = 0.5 * p.matmul_sm90;
    p.attention_sm90 = 0.5 * p.attention_sm90;
    p.stream_traffic = 2 * p.stream_traffic;
    const struct cost *slow = make_cost(a, "H100-SXM", "bf16", &p);
    struct cost_attention t = {.tokens = 8192, .context = 8192, .heads = 16, .qk = 128, .v = 128};
    CU_ASSERT_DOUBLE_EQUAL(forward_s(slow, 8192, 8192, 8192) / forward_s(c, 8192, 8192, 8192), 2, 0.02);
    CU_ASSERT_DOUBLE_EQUAL(
        cost_attention_s(slow, &t, DTYPE_BF16, false) / cost_attention_s(c, &t, DTYPE_BF16, false), 2, 0.02);
    CU_ASSERT_DOUBLE_EQUAL(cost_stream_s(slow, 1e9) / cost_stream_s(c, 1e9), 2, 0.02);
    const struct cost *other = make_cost(a, "A100-SXM", "bf16", &p); /* another generation's factor */
    CU_ASSERT_DOUBLE_EQUAL(forward_s(other, 8192, 8192, 8192),
                           forward_s(make_cost(a, "A100-SXM", "bf16", NULL), 8192, 8192, 8192), 1e-9);
    arena_free(a);
}

void suite_kernel_cost(void);
void suite_kernel_cost(void)
{
    CU_pSuite s = CU_add_suite("kernel_cost", NULL, NULL);
    CU_add_test(s, "products against published rates", test_products);
    CU_add_test(s, "no product beats the best ever measured", test_peaks);
    CU_add_test(s, "more work takes more time", test_order);
    CU_add_test(s, "rounds of tiles and alignment", test_rounds);
    CU_add_test(s, "number formats", test_number_formats);
    CU_add_test(s, "products of experts", test_groups);
    CU_add_test(s, "attention against published rates", test_attention);
    CU_add_test(s, "attention by shape", test_attention_shapes);
    CU_add_test(s, "devices without a table", test_plain);
    CU_add_test(s, "a slow node", test_slow_node);
    CU_add_test(s, "a profile's factors", test_profile);
}
