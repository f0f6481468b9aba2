/* What is measured on this machine: --calibrate's block, and a run's trace against the plan's timeline. */

#include "tests/e2e/e2e.h"
#include "tests/skip.h"

#include "compiler/topology/topo.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char text[1 << 18];

static const struct topo_measured *find(const struct topo *t, const char *kind, uint32_t ranks, const char *dtype)
{
    for (uint32_t i = 0; i < t->nmeasured; i++)
        if (!strcmp(t->measured[i].kind, kind) && t->measured[i].ranks == ranks &&
            (!dtype || !strcmp(t->measured[i].dtype, dtype)))
            return &t->measured[i];
    return NULL;
}

/* what kernels of 64 rows read and write, by hand: of 256 columns each, and each row's maximum in fp32 */
static void check_bytes(const struct topo *t, int half)
{
    double each = half ? 2 : 4;
    uint32_t seen = 0;
    for (uint32_t i = 0; i < t->nmeasured; i++) {
        const struct topo_measured *m = &t->measured[i];
        bool gelu = m->op == OP_GELU;
        if (strcmp(m->kind, "kernel") || strcmp(m->dtype, half ? "bf16" : "fp32") ||
            (!gelu && m->op != OP_XENT_MAX))
            continue;
        CU_ASSERT_EQUAL(m->points[0].bytes, gelu ? 2 * 64 * 256 * each : 64 * 256 * each + 64 * 4);
        seen++;
    }
    CU_ASSERT_EQUAL(seen, 2);
}

/* a machine of four ranks: what it holds is a rate or a time that a computer can have, and more takes longer */
static void check_machine(const struct topo *t)
{
    static const char *const collectives[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};
    const struct topo_gpu *gpu = &t->types[0].gpu;
    CU_ASSERT_EQUAL(t->gpus, 4);
    CU_ASSERT(t->types[0].cores >= 1);
    CU_ASSERT(gpu->memory_bytes > gpu->reserve_bytes + (16u << 20));
    CU_ASSERT(gpu->memory_bytes_s > 1e8 && gpu->memory_bytes_s < 1e12);
    for (uint32_t ranks = 2; ranks <= 4; ranks++)
        for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++) {
            const struct topo_measured *m = find(t, collectives[i], ranks, NULL);
            CU_ASSERT_PTR_NOT_NULL_FATAL(m);
            CU_ASSERT(m->points[0].seconds > 1e-8 && m->points[m->npoints - 1].seconds < 1);
            CU_ASSERT(m->points[m->npoints - 1].seconds > m->points[0].seconds);
        }
    CU_ASSERT_PTR_NOT_NULL(find(t, "send_recv", 2, NULL));
    for (int half = 0; half < 2; half++) {
        const struct topo_measured *gemm = find(t, "gemm", 0, half ? "bf16" : "fp32"),
                                   *attention = find(t, "attention", 0, half ? "bf16" : "fp32"),
                                   *kernel = find(t, "kernel", 0, half ? "bf16" : "fp32");
        check_bytes(t, half);
        CU_ASSERT_FATAL(gemm && attention && kernel);
        for (uint32_t i = 0; i < gemm->npoints; i++)
            CU_ASSERT(gemm->points[i].flop_s > 1e7 && gemm->points[i].flop_s <= gpu->peak_flop_s[half ? TOPO_BF16 : TOPO_FP32]);
        for (uint32_t i = 0; i < attention->npoints; i++)
            CU_ASSERT(attention->points[i].flop_s > 1e7 && attention->points[i].backward_flop_s > 1e7);
        CU_ASSERT_EQUAL(gemm->npoints, 64); /* all of four sizes by all by all */
        for (uint32_t i = 0; i < gemm->npoints; i++)
            for (uint32_t j = 0; j < i; j++)
                CU_ASSERT(gemm->points[i].m != gemm->points[j].m || gemm->points[i].n != gemm->points[j].n ||
                          gemm->points[i].k != gemm->points[j].k);
        CU_ASSERT(kernel->points[kernel->npoints - 1].seconds > kernel->points[0].seconds);
    }
}

/* llmrun's own description of this machine is one that llmc takes, and what llmc then plans trains and is compared */
static void test_calibrate(void)
{
    char folder[E2E_PATH], out[E2E_PATH + 32], xml[E2E_PATH + 32];
    if (test_usual() && !test_whole_or_skip())
        return;
    const char *b = e2e_build();
    e2e_folder(folder, "measuring");
    snprintf(out, sizeof out, "%s/out", folder);
    snprintf(xml, sizeof xml, "%s/machine.xml", folder);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmrun --calibrate --world 4 -o '%s'", b, xml), 0);
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct topo *t = topo_read(a, d, xml);
    diag_print(d, stdout, false);
    CU_ASSERT_EQUAL(diag_errors(d) + diag_warnings(d), 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    check_machine(t);
    arena_free(a);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc tokens LICENSE -o '%s/tokens.bin'", b, folder), 0);
    CU_ASSERT_EQUAL(e2e_command(out,
                                "%s/llmc plan plans/tiny-llama/model.llm '%s' --set tp=2 --set pp=2 --set dp=1 "
                                "--set batch='4 sequences' -o '%s/plan'",
                                b, xml, folder),
                    0);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc check '%s/plan'", b, folder), 0);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmrun '%s/plan' --data '%s/tokens.bin' --steps 2 --quiet --trace '%s/trace.json'", b,
                                folder, folder, folder),
                    0);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc diff '%s/plan' '%s/trace.json'", b, folder, folder), 0);
    e2e_read_text(out, text, sizeof text);
    static const char *const said[] = {"step: planned ", "cores: planned ", "milliseconds on cores", "MATMUL_NT ", "SEND "};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        CU_ASSERT_PTR_NOT_NULL(strstr(text, said[i]));
    CU_ASSERT_EQUAL(e2e_command(out, "sed -i 's/,\"tdur\":[0-9.]*//' '%s/trace.json'", folder), 0);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc diff '%s/plan' '%s/trace.json'", b, folder, folder), 3);
}

static void test_calibrate_usage(void)
{
    char folder[E2E_PATH], out[E2E_PATH + 32];
    e2e_folder(folder, "measuring-usage");
    snprintf(out, sizeof out, "%s/out", folder);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmrun --calibrate --world 65", e2e_build()), 2);
    e2e_read_text(out, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "--world 65: a node of a cluster file has at most 64 ranks"));
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmrun plan -o x.xml", e2e_build()), 2);
    e2e_read_text(out, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "is for --calibrate"));
}

/* what needs a GPU, where the driver knows of none; and of one */
static void test_no_gpu(void)
{
    static const struct {
        int gpus;
        const char *options;
        int code;
        const char *says;
    } cases[] = {
        {0, "--calibrate --device cuda --transport nccl", 5, "llmrun: this machine has no GPU\n"},
        {1, "--calibrate --device cuda --transport nccl", 0, "one rank, send_recv to itself"},
        {0, "--calibrate --device cuda", 4, "llmrun: cannot use the device: "},
        {0, "--calibrate --device cuda -o $D/machine.xml", 4, "llmrun: cannot use the device: "},
        {0, "$D/plan --data $D/t.bin --steps 1 --device cuda --transport d2d", 5,
         "llmrun: rank 0: rank 0 wants GPU 0, this machine has 0\n"},
    };
    char folder[E2E_PATH], out[E2E_PATH + 32], plugin[E2E_PATH + 40];
    const char *b = e2e_build();
    snprintf(plugin, sizeof plugin, "%s/tests/fake/llmrun-fake.so", b);
    if (access(plugin, R_OK)) {
        test_skip("%s was not built", plugin);
        return;
    }
    e2e_folder(folder, "measuring-no-gpu");
    snprintf(out, sizeof out, "%s/out", folder);
    CU_ASSERT_EQUAL(e2e_command(out, "sh -c 'L=%s/llmc; $L tokens LICENSE -q -o %s/t.bin && $L plan plans/tiny-llama/model.llm "
                                     "topologies/cpu8.xml -q --set tp=2 --set pp=1 --set dp=1 --set batch=\"2 sequences\" -o %s/plan'",
                                b, folder, folder),
                    0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CU_ASSERT_EQUAL(e2e_command(out, "sh -c 'D=%s; FAKE_GPUS=%d LLMRUN_CUDA=%s LLMRUN_NCCL=%s "
                                         "%s/llmrun %s; test $? = %d'",
                                    folder, cases[i].gpus, plugin, plugin, b, cases[i].options,
                                    cases[i].code),
                        0);
        e2e_read_text(out, text, sizeof text);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, cases[i].says));
        if (!strstr(text, cases[i].says))
            printf("\n    %s: %s", cases[i].options, text);
    }
    /* where nothing was measured nothing is left behind */
    CU_ASSERT_EQUAL(e2e_command(out, "sh -c 'ls %s | grep machine.xml; test $? = 1'", folder), 0);
}

static void test_diff(void)
{
    char folder[E2E_PATH], out[E2E_PATH + 32];
    const char *b = e2e_build();
    e2e_folder(folder, "measuring-diff");
    snprintf(out, sizeof out, "%s/out", folder);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc tokens LICENSE -o '%s/tokens.bin'", b, folder), 0);
    CU_ASSERT_EQUAL(e2e_command(out,
                                "%s/llmc plan plans/tiny-llama/model.llm topologies/cpu8.xml --set tp=2 --set pp=1 --set dp=1 "
                                "--set batch='2 sequences' -o '%s/plan'",
                                b, folder),
                    0);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmrun '%s/plan' --data '%s/tokens.bin' --steps 1 --quiet --trace '%s/trace.json'", b,
                                folder, folder, folder),
                    0);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc diff '%s/plan' '%s/trace.json'", b, folder, folder), 0);
    e2e_read_text(out, text, sizeof text);
    static const char *const said[] = {"step: planned ", "MATMUL_NT ", "ALL_GATHER ", "farthest off", " instead of "};
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        CU_ASSERT_PTR_NOT_NULL(strstr(text, said[i]));
    unsigned named = 0; /* what is farthest off, with its instruction */
    for (const char *at = strstr(text, "farthest off\n"), *line = at ? strchr(at, '\n') + 1 : ""; *line; named++) {
        char op[32], queue[32];
        unsigned role, number;
        CU_ASSERT_EQUAL_FATAL(sscanf(line, "%*f us instead of %*f us: role %u: %u %31s %31s", &role, &number, queue, op), 4);
        CU_ASSERT(role == 0 && strstr(text, op) < at); /* in the table above too */
        line += strcspn(line, "\n") + 1;
    }
    CU_ASSERT_EQUAL(named, 12);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc diff '%s/plan' LICENSE", b, folder), 3);
    CU_ASSERT_EQUAL(e2e_command(out, "sed -i s/MATMUL_NT/MATMUL_NN/ '%s/trace.json'", folder), 0);
    CU_ASSERT_EQUAL(e2e_command(out, "%s/llmc diff '%s/plan' '%s/trace.json'", b, folder, folder), 3);
    e2e_read_text(out, text, sizeof text);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "it is the trace of another plan"));
}

void suite_measuring(void);
void suite_measuring(void)
{
    CU_pSuite s = CU_add_suite("measuring", NULL, NULL);
    CU_add_test(s, "llmrun --calibrate, and what llmc makes of it", test_calibrate);
    CU_add_test(s, "llmrun --calibrate, wrongly asked for", test_calibrate_usage);
    CU_add_test(s, "no GPU", test_no_gpu);
    CU_add_test(s, "llmc diff", test_diff);
}
