/* Parameters, FLOPs and utilisation as papers print them, each by the paper's own formula, and model_flops()
 * against all.
 *
 * A row holds what the paper prints; its value must come out of the formula within half a unit of the last
 * printed digit and the rounding of the inputs.  Sources, and what they count:
 *
 * - SC'21: Narayanan et al., arXiv:2104.04473, equations 2-4, tables 1 and 2, section 5.1, and MT-NLG: Smith
 * et al., arXiv:2201.11990, section 2.4: full recomputation and whole attention (hardware FLOPs).
 *
 * - Korthikanti et al., arXiv:2205.05198, tables 3 and 5, section 6.3, appendix A: with and without
 * recomputation, whole attention.
 *
 * - PaLM: Chowdhery et al., arXiv:2204.02311, section 4.1 and appendix B, and nanoGPT, estimate_mfu() of
 * model.py: 6N, embeddings included, and whole attention.
 *
 * - llm.c, train_gpt2.cu: 6N and half of attention for the causal mask.
 *
 * - Llama 3: Grattafiori et al., arXiv:2407.21783, section 3.2 and table 4: 6N for the budget. */

#include "tests/compiler/cost/published.h"

#include "compiler/support/vec.h"

#include <CUnit/Basic.h>
#include <math.h>

#define V 51200.0
#define SEQUENCE 2048.0
#define A100 312e12

static double sc21_parameters(double l, double h)
{
    return 12 * l * h * h * (1 + 13 / (12 * h) + (V + SEQUENCE) / (12 * l * h));
}

static double sc21_flops(double b, double l, double h)
{
    return 96 * b * SEQUENCE * l * h * h * (1 + SEQUENCE / (6 * h) + V / (16 * l * h));
}

static double korthikanti_model_flops(double b, double l, double h)
{
    return 72 * b * SEQUENCE * l * h * h * (1 + SEQUENCE / (6 * h) + V / (12 * h * l));
}

/* attention recomputed */
static double korthikanti_hardware_flops(double b, double l, double h)
{
    return 72 * b * SEQUENCE * l * h * h * (1 + SEQUENCE / (3 * h) + V / (12 * h * l));
}

/* per token: n parameters, l layers, `heads` of q dimensions, sequences of t */
static double palm_flops(double n, double l, double heads, double q, double t)
{
    return 6 * n + 12 * l * heads * q * t;
}

static double llmc_flops(double n, double l, double channels, double t)
{
    return 6 * n + 6 * l * channels * t;
}

/* within half a unit of the last printed digit and a relative rounding of what it was computed from */
static void check(const char *name, double value, double printed, double half, double relative)
{
    bool good = fabs(value - printed) <= half + relative * printed;
    CU_ASSERT(good);
    if (!good)
        printf("[%s: %.5g, printed %.5g] ", name, value, printed);
}

static const struct {
    const char *name;
    double billions;
    uint32_t heads, width, layers, tp, pp, gpus, batch;
    double tflops, percent, aggregate_pflops;
} table_1[] = {
    {"1.7B", 1.7, 24, 2304, 24, 1, 1, 32, 512, 137, 44, 4.4},
    {"3.6B", 3.6, 32, 3072, 30, 2, 1, 64, 512, 138, 44, 8.8},
    {"7.5B", 7.5, 32, 4096, 36, 4, 1, 128, 512, 142, 46, 18.2},
    {"18.4B", 18.4, 48, 6144, 40, 8, 1, 256, 1024, 135, 43, 34.6},
    {"39.1B", 39.1, 64, 8192, 48, 8, 2, 512, 1536, 138, 44, 70.8},
    {"76.1B", 76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140, 45, 143.8},
    {"145.6B", 145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148, 47, 227.1},
    {"310.1B", 310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155, 50, 297.4},
    {"529.6B", 529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163, 52, 410.2},
    {"1008.0B", 1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163, 52, 502.0},
    {"GPT-3 174.6B", 174.6, 96, 12288, 96, 8, 16, 1024, 1536, 140, 45, 143.4}, /* section 5.1 and table 2 */
};

static struct published_run gpt(const char *name, uint32_t layers, uint32_t width, uint32_t heads,
                                uint32_t batch)
{
    return (struct published_run){
        .name = name, .layers = layers, .width = width, .heads = heads, .batch = batch, .gpus = 8};
}

/* equation 2 and ours, which adds the final norm; equation 3 and ours: a step's forward and backward, the
 * layers' forward again, but not the head's */
static void test_table_1(void)
{
    for (size_t i = 0; i < ARRAY_LEN(table_1); i++) {
        struct arena *a = arena_new();
        double l = table_1[i].layers, h = table_1[i].width, b = table_1[i].batch, n = table_1[i].gpus;
        struct published_run run =
            gpt(table_1[i].name, table_1[i].layers, table_1[i].width, table_1[i].heads, table_1[i].batch);
        struct job *job = published_job(a, &run);
        check(run.name, sc21_parameters(l, h) / 1e9, table_1[i].billions, 0.05, 0);
        CU_ASSERT_DOUBLE_EQUAL((double)model_parameters(&job->model), sc21_parameters(l, h) + 2 * h,
                               1e-15 * 1e12);
        double ours = model_flops(&job->model, 2048, table_1[i].batch);
        CU_ASSERT_DOUBLE_EQUAL((ours * 4 / 3 - 2 * b * SEQUENCE * h * V) / sc21_flops(b, l, h), 1, 1e-12);
        CU_ASSERT_DOUBLE_EQUAL(ours / korthikanti_model_flops(b, l, h), 1, 1e-12);
        check(run.name, table_1[i].tflops * 1e12 / A100 * 100, table_1[i].percent, 0.5,
              0.5 / table_1[i].tflops);
        check(run.name, table_1[i].tflops * n / 1e3, table_1[i].aggregate_pflops, 0.05,
              0.5 / table_1[i].tflops);
        arena_free(a);
    }
}

/* What the step takes by equation 3, and days of training: iterations times the step (table 2, 300B tokens),
 * or 8TP/(nX), equation 4 (section 5.1).  Megatron-LM's readme has 32 s and 138 TFLOP/s for GPT-3 on 1,024.
 */
static const struct {
    const char *name;
    double parameters;
    uint32_t width, layers, gpus, batch;
    double tflops, tokens, days;
    bool by_equation_4;
} days[] = {
    {"ZeRO-3 175B, 384", 174.6e9, 12288, 96, 384, 1536, 144, 300e9, 90, false},
    {"ZeRO-3 175B, 768", 174.6e9, 12288, 96, 768, 1536, 88, 300e9, 74, false},
    {"ZeRO-3 175B, 1536", 174.6e9, 12288, 96, 1536, 1536, 44, 300e9, 74, false},
    {"ZeRO-3 530B, 640", 529.6e9, 20480, 105, 640, 2560, 138, 300e9, 169, false},
    {"ZeRO-3 530B, 1120", 529.6e9, 20480, 105, 1120, 2240, 98, 300e9, 137, false},
    {"ZeRO-3 530B, 2240", 529.6e9, 20480, 105, 2240, 2240, 48, 300e9, 140, false},
    {"PTD-P 175B, 384", 174.6e9, 12288, 96, 384, 1536, 153, 300e9, 84, false},
    {"PTD-P 175B, 768", 174.6e9, 12288, 96, 768, 1536, 149, 300e9, 43, false},
    {"PTD-P 175B, 1536", 174.6e9, 12288, 96, 1536, 1536, 141, 300e9, 23, false},
    {"PTD-P 530B, 560", 529.6e9, 20480, 105, 560, 2240, 171, 300e9, 156, false},
    {"PTD-P 530B, 1120", 529.6e9, 20480, 105, 1120, 2240, 167, 300e9, 80, false},
    {"PTD-P 530B, 2240", 529.6e9, 20480, 105, 2240, 2240, 159, 300e9, 42, false},
    {"GPT-3 175B, 1024", 175e9, 12288, 96, 1024, 1536, 140, 300e9, 34, true},
    {"1T, 3072", 1008e9, 25600, 128, 3072, 3072, 163, 450e9, 84, true},
};

static void test_days(void)
{
    for (size_t i = 0; i < ARRAY_LEN(days); i++) {
        double rate = days[i].gpus * days[i].tflops * 1e12, day_s = 86400;
        double step_s = sc21_flops(days[i].batch, days[i].layers, days[i].width) / rate;
        double steps = days[i].tokens / (days[i].batch * SEQUENCE);
        double seconds =
            days[i].by_equation_4 ? 8 * days[i].tokens * days[i].parameters / rate : steps * step_s;
        check(days[i].name, seconds / day_s, days[i].days, 0.5, 0.5 / days[i].tflops);
    }
    check("readme", sc21_flops(1536, 96, 12288) / 1024 / 32 / 1e12, 138, 0.5, 0.5 / 32);
    check("MT-NLG 2240", sc21_flops(1920, 105, 20480) / 2240 / 60.1 / 1e12, 126, 0.5, 0.05 / 60.1);
    check("MT-NLG 2800", sc21_flops(1920, 105, 20480) / 2800 / 50.2 / 1e12, 121, 0.5, 0.05 / 50.2);
    check("MT-NLG 3360", sc21_flops(1920, 105, 20480) / 3360 / 44.4 / 1e12, 113, 0.5, 0.05 / 44.4);
}

/* Table 5 (without data parallelism) and section 6.3 (530B on 2,240 GPUs).  The throughput gain is that of
 * the seconds. */
static const struct {
    const char *name;
    uint32_t layers, width, heads, gpus, batch;
    double full_s, present_s, gain, mfu, hfu; /* 0: not printed */
} table_5[] = {
    {"22B", 48, 6144, 64, 8, 4, 1.42, 1.10, 29.0, 41.5, 43.7},
    {"175B", 96, 12288, 96, 64, 64, 18.13, 13.75, 31.8, 51.4, 52.8},
    {"530B", 105, 20480, 128, 280, 280, 49.05, 37.83, 29.7, 56.0, 57.0},
    {"1T", 128, 25600, 160, 512, 512, 94.42, 71.49, 32.1, 56.3, 57.0},
    {"530B, 2240", 105, 20480, 128, 2240, 2240, 0, 39.15, 0, 54.2, 0},
};

static void test_table_5(void)
{
    for (size_t i = 0; i < ARRAY_LEN(table_5); i++) {
        struct arena *a = arena_new();
        double l = table_5[i].layers, h = table_5[i].width, b = table_5[i].batch, s = table_5[i].present_s;
        double peak = table_5[i].gpus * A100 * s / 100, rounding = 0.005 / s;
        struct published_run run =
            gpt(table_5[i].name, table_5[i].layers, table_5[i].width, table_5[i].heads, table_5[i].batch);
        const struct job *job = published_job(a, &run);
        check(run.name, korthikanti_model_flops(b, l, h) / peak, table_5[i].mfu, 0.05, rounding);
        check(run.name, model_flops(&job->model, 2048, table_5[i].batch) / peak, table_5[i].mfu, 0.05,
              rounding);
        if (table_5[i].hfu > 0)
            check(run.name, korthikanti_hardware_flops(b, l, h) / peak, table_5[i].hfu, 0.05, rounding);
        if (table_5[i].full_s > 0)
            check(run.name, 100 * (table_5[i].full_s / s - 1), table_5[i].gain, 0.05, 5 * rounding);
        arena_free(a);
    }
}

/* PaLM 4.1 and appendix B: tokens/s printed; 540.35B parameters in 118 layers, 48 heads of 256, on 6,144
 * chips of 275 TFLOP/s; MT-NLG 530B as they counted it, with and without attention */
static void test_palm(void)
{
    double palm = 238.3e3 / (6144 * 275e12) * 100, mtnlg = 65.43e3 / (2240 * A100) * 100;
    check("PaLM", palm * palm_flops(540.35e9, 118, 48, 256, 2048), 46.2, 0.05, 0.0002);
    check("PaLM without attention", palm * palm_flops(540.35e9, 0, 0, 0, 0), 45.7, 0.05, 0.0002);
    check("MT-NLG", mtnlg * palm_flops(529.6e9, 105, 128, 160, 2048), 30.2, 0.05, 0.0001);
    check("MT-NLG without attention", mtnlg * palm_flops(529.6e9, 0, 0, 0, 0), 29.7, 0.05, 0.0001);
}

/* Llama 3 405B: 3.8e25 FLOPs are 6N for 15.6T tokens.  Table 4 prints TFLOP/s to tens and the utilisation of
 * 989. */
static void test_llama_3(void)
{
    static const struct {
        double tflops, percent;
    } rows[] = {{430, 43}, {400, 41}, {380, 38}};
    struct arena *a = arena_new();
    struct published_run run = {.name = "405B",
                                .layers = 126,
                                .width = 16384,
                                .heads = 128,
                                .kv = 8,
                                .ffn = 53248,
                                .sequence = 8192,
                                .batch = 2048,
                                .hopper = true,
                                .gpus = 8};
    const struct model *m = &published_job(a, &run)->model;
    double n = (double)model_parameters(m), tokens = 2048.0 * 8192;
    check("405B", n / 1e9, 405, 1, 0);
    check("3.8e25", palm_flops(n, 0, 0, 0, 0) * 15.6e12 / 1e25, 3.8, 0.05, 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check("table 4", rows[i].tflops / 989 * 100, rows[i].percent, 0.5, 5 / rows[i].tflops);
    /* ours leaves out the embedding, which multiplies nothing, and the norms, and adds the whole of attention
     */
    double idle = (double)m->vocab * 16384 + (2 * 126 + 1) * 16384.0;
    double ours = model_flops(m, 8192, 2048) / tokens;
    CU_ASSERT_DOUBLE_EQUAL(ours / palm_flops(n - idle, 126, 128, 128, 8192), 1, 1e-12);
    CU_ASSERT_DOUBLE_EQUAL(ours / (6 * n), 1.078, 0.001);
    arena_free(a);
}

/* GPT-2: nanoGPT counts no positions, llm.c all parameters and half of attention; ours neither positions,
 * norms nor biases.  A tied table multiplies once, in the head. */
static void test_conventions(void)
{
    static const struct {
        const char *name;
        uint32_t layers, width, heads;
        double millions;
    } rows[] = {{"124M", 12, 768, 12, 124},
                {"350M", 24, 1024, 16, 355},
                {"774M", 36, 1280, 20, 774},
                {"1558M", 48, 1600, 25, 1558}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new();
        struct published_run run = gpt(rows[i].name, rows[i].layers, rows[i].width, rows[i].heads, 512);
        run.vocab = 50257;
        run.sequence = 1024;
        const struct model *m = &published_job(a, &run)->model;
        double n = (double)model_parameters(m), l = rows[i].layers, h = rows[i].width, t = 1024;
        double ours = model_flops(m, 1024, 512) / (512 * t), positions = t * h, vectors = 13 * l * h + 2 * h;
        check(run.name, n / 1e6, rows[i].millions, 0.5, 0);
        double nanogpt = palm_flops(n - positions, l, rows[i].heads, h / rows[i].heads, t);
        CU_ASSERT_DOUBLE_EQUAL((nanogpt - 6 * vectors) / ours, 1, 1e-12);
        CU_ASSERT_DOUBLE_EQUAL((llmc_flops(n, l, h, t) - 6 * (positions + vectors) + 6 * l * h * t) / ours, 1,
                               1e-12);
        arena_free(a);
    }
}

void suite_published_flops(void);
void suite_published_flops(void)
{
    CU_pSuite s = CU_add_suite("published_flops", NULL, NULL);
    CU_add_test(s, "Megatron-LM: parameters and FLOPs of table 1", test_table_1);
    CU_add_test(s, "Megatron-LM: days of training", test_days);
    CU_add_test(s, "activation recomputation: utilisation of table 5", test_table_5);
    CU_add_test(s, "PaLM", test_palm);
    CU_add_test(s, "Llama 3", test_llama_3);
    CU_add_test(s, "nanoGPT and llm.c", test_conventions);
}
