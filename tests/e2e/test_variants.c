/* Variants of one tiny model, one rank against eight: each row changes a statement or two of the base below.  What the
 * reference fixtures do not hold for every layout is held here: activations, norms, heads, optimizers, schedules of the
 * learning rate, bf16 and fp16.  fp32 rows agree to 1e-5; in bf16 the layouts round at different places: 1e-3; in fp16, of
 * three more digits, 2e-4. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 8 };

static const struct {
    const char *name, *norm, *embed, *attn, *ffn, *head, *train; /* NULL = the base's */
    double bound;
    bool quick;
} variants[] = {
    {"geglu", NULL, NULL, NULL, "geglu(48)", NULL, NULL, 1e-5, false},
    {"relu", NULL, NULL, NULL, "relu(96, bias=yes)", NULL, NULL, 1e-5, false},
    {"gelu-erf", NULL, NULL, NULL, "gelu(96, approx=none)", NULL, NULL, 1e-5, false},
    {"swiglu-bias", NULL, NULL, NULL, "swiglu(48, bias=yes)", NULL, NULL, 1e-5, false},
    {"sinks", NULL, NULL, "gqa(heads=4, kv=2, rope=500, sinks=yes)", "swiglu(48, limit=0.5, alpha=1.702, offset=1)", NULL, NULL, 1e-5, true},
    {"sinks-bf16", "layernorm", "positions(24)", "mha(heads=4, window=7, sinks=yes)", "gelu(96)", "tied", "precision bf16", 1e-3, false},
    {"alibi", "layernorm", NULL, "mha(heads=4, bias=yes, alibi=yes)", "gelu(96, bias=yes)", "tied", NULL, 1e-5, true},
    {"alibi-bf16", NULL, NULL, "gqa(heads=12, kv=2, head=8, window=7, softcap=5, alibi=yes)", NULL, NULL, "precision bf16", 1e-3, false},
    {"chunk", NULL, NULL, "gqa(heads=4, kv=2, rope=500, chunk=5)", NULL, NULL, NULL, 1e-5, true},
    {"layernorm", "layernorm(bias=no)", NULL, NULL, NULL, NULL, NULL, 1e-5, false},
    {"tied-positions", "layernorm", "positions(24)", "mha(heads=4, bias=yes)", NULL, "tied", NULL, 1e-5, false},
    {"wide-heads", NULL, NULL, "gqa(heads=4, kv=4, head=16, rope=500, bias=yes)", NULL, NULL, NULL, 1e-5, false},
    {"linear-rope", NULL, NULL, "gqa(heads=4, kv=2, rope=rotary(500, scaling=linear(2)))", NULL, NULL, NULL, 1e-5, false},
    {"sgd", NULL, NULL, NULL, NULL, NULL, "optimizer sgd(lr=1e-2, momentum=0.9)", 1e-5, true},
    {"sgd-plain", NULL, NULL, NULL, NULL, NULL, "optimizer sgd(lr=1e-2)", 1e-5, false},
    {"wsd", NULL, NULL, NULL, NULL, NULL, "lr_schedule wsd(warmup=2, stable=2, decay=3)", 1e-5, false},
    {"init", NULL, NULL, NULL, NULL, NULL, "init normal(std=0.2, residual=no)\n    seed 7", 1e-5, false},
    {"predict", NULL, NULL, NULL, NULL, "untied\n    predict 1 ahead", NULL, 1e-5, true},
    {"predict-tied", NULL, NULL, NULL, NULL, "tied\n    predict 2 ahead { weight 1 }", NULL, 1e-5, false},
    {"predict-layer", NULL, NULL, NULL, NULL,
     "untied\n    predict 2 ahead {\n        layer { attn mla(heads=4, kv_rank=8, nope=4, rope=2, v=6)\n ffn gelu(64, bias=yes) }\n    }", NULL,
     1e-5, true},
    {"head-bias", NULL, NULL, NULL, NULL, "untied(bias=yes, scale=0.5, softcap=8)", NULL, 1e-5, true},
    {"bf16", NULL, NULL, NULL, NULL, NULL, "precision bf16", 1e-3, true},
    {"bf16-grads", NULL, NULL, NULL, NULL, NULL, "precision bf16(grads=bf16)", 3e-3, true},
    {"bf16-reduce", NULL, NULL, NULL, NULL, "tied", "precision bf16(reduce=bf16)", 3e-3, true},
    {"bf16-reduce-fp32", NULL, NULL, NULL, NULL, "tied", "precision bf16(grads=bf16, reduce=fp32)", 3e-3, false},
    {"bf16-alone", NULL, NULL, NULL, NULL, NULL, "precision bf16(master=bf16, grads=bf16, moments=bf16)", 3e-3, true},
    {"bf16-alone-sgd", NULL, NULL, NULL, NULL, NULL, "optimizer sgd(lr=1e-2, momentum=0.9)\n    precision bf16(master=bf16)", 3e-3, false},
    {"bf16-tied", "layernorm", "positions(24)", "mha(heads=4, bias=yes)", "gelu(96, bias=yes)", "tied", "precision bf16", 1e-3, false},
    {"fp16", NULL, NULL, NULL, NULL, NULL, "precision fp16(scale=65_536)", 2e-4, true},
    {"fp16-grads", NULL, NULL, NULL, NULL, NULL, "precision fp16(grads=fp16, scale=65_536)", 4e-4, true},
    {"fp16-predict", "layernorm", NULL, NULL, "gelu(96, bias=yes)", "tied\n    predict 1 ahead", "precision fp16(moments=bf16, scale=65_536)", 2e-4, false},
};

static const char *const layouts[] = {
    "--set gpus=1",
    "--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=yes --set zero=1 --set recompute=none",
    ("--set tp=2 --set pp=2 --set dp=2 --set gpus=8 --set sequence_parallel=no --set zero=0 --set recompute=full"
     " --set schedule=gpipe --set microbatch=1"),
};

static const char *either(const char *a, const char *b)
{
    return a ? a : b;
}

static bool write_model(const char *path, size_t i)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f, "llmc 1\n\nmodel variant {\n    vocab 101\n    width 32\n    norm %s\n    embed tokens\n",
            either(variants[i].norm, "rmsnorm"));
    if (variants[i].embed)
        fprintf(f, "    embed %s\n", variants[i].embed);
    fprintf(f, "    repeat 4 {\n        layer {\n            attn %s\n            ffn %s\n        }\n    }\n    head %s\n}\n\n",
            either(variants[i].attn, "gqa(heads=4, kv=2, rope=500)"), either(variants[i].ffn, "swiglu(48)"),
            either(variants[i].head, "untied"));
    fprintf(f, "train {\n    sequence 20\n    batch 8 sequences\n");
    const char *train = either(variants[i].train, "");
    if (!strstr(train, "precision"))
        fprintf(f, "    precision fp32\n");
    if (strncmp(train, "optimizer", 9) != 0)
        fprintf(f, "    optimizer adamw(lr=1e-3)\n");
    fprintf(f, "    %s\n}\n", train);
    return fclose(f) == 0;
}

static bool run_layout(const char *folder, size_t layout, struct e2e_log *log)
{
    char output[2 * E2E_PATH], path[2 * E2E_PATH];
    snprintf(output, sizeof output, "%s/output", folder);
    snprintf(path, sizeof path, "%s/%zu.jsonl", folder, layout);
    return e2e_command(output, "%s/llmc plan %s/model.llm topologies/cpu8.xml %s -o %s/%zu", e2e_build(), folder,
                       layouts[layout], folder, layout) == 0
        && e2e_command(output, "%s/llmrun %s/%zu --data tests/reference/gpt2/tokens.bin --steps %d --log %s", e2e_build(),
                       folder, layout, STEPS, path) == 0
        && e2e_log_read(path, log);
}

static void check_variant(size_t i)
{
    char name[64], folder[E2E_PATH], path[2 * E2E_PATH];
    struct e2e_log alone, split;
    size_t nlayouts = sizeof layouts / sizeof *layouts;
    snprintf(name, sizeof name, "variants/%s", variants[i].name);
    e2e_folder(folder, name);
    snprintf(path, sizeof path, "%s/model.llm", folder);
    CU_ASSERT_FATAL(write_model(path, i));
    CU_ASSERT_FATAL(run_layout(folder, 0, &alone));
    for (size_t layout = 1; layout < nlayouts; layout++) {
        if (test_usual() && layout != 1 + i % (nlayouts - 1))
            continue;
        CU_ASSERT_FATAL(run_layout(folder, layout, &split));
        CU_ASSERT_EQUAL_FATAL(split.steps, STEPS);
        double worst = 0;
        for (size_t s = 0; s < STEPS; s++)
            worst = worst > e2e_relative(split.loss[s], alone.loss[s]) ? worst : e2e_relative(split.loss[s], alone.loss[s]);
        double norm = e2e_relative(split.grad_norm[0], alone.grad_norm[0]);
        CU_ASSERT(worst <= variants[i].bound);
        CU_ASSERT(norm <= variants[i].bound);
        if (worst > variants[i].bound || norm > variants[i].bound)
            printf("\n    %s, layout %zu: loss off by %.2g, first gradient norm by %.2g", variants[i].name, layout, worst, norm);
    }
}

static void test_variants(void)
{
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (variants[i].quick || !test_quick())
            check_variant(i);
    }
}

/* bf16 and fp16 compute what fp32 computes, to their own precision */
static void test_halves_near_fp32(void)
{
    static const char *const formats[] = {"fp32", "bf16", "fp16(scale=65_536)"};
    static const double bounds[] = {0, 1e-2, 2e-3};
    char folder[E2E_PATH], output[2 * E2E_PATH], path[2 * E2E_PATH];
    struct e2e_log log[3];
    e2e_folder(folder, "variants/precision");
    snprintf(output, sizeof output, "%s/output", folder);
    for (int k = 0; k < 3; k++) {
        CU_ASSERT_EQUAL_FATAL(e2e_command(output, "%s/llmc plan tests/reference/llama/model.llm topologies/cpu8.xml"
                                          " --set gpus=1 --set 'precision=%s' -o %s/%d", e2e_build(), formats[k],
                                          folder, k), 0);
        snprintf(path, sizeof path, "%s/%d.jsonl", folder, k);
        CU_ASSERT_EQUAL_FATAL(e2e_command(output, "%s/llmrun %s/%d --data tests/reference/llama/tokens.bin --steps %d"
                                          " --init tests/reference/llama --log %s", e2e_build(), folder, k, STEPS, path), 0);
        CU_ASSERT_FATAL(e2e_log_read(path, &log[k]));
    }
    for (int k = 1; k < 3; k++) {
        for (size_t s = 0; s < STEPS; s++) {
            CU_ASSERT(e2e_relative(log[k].loss[s], log[0].loss[s]) < bounds[k]);
            CU_ASSERT(e2e_relative(log[k].grad_norm[s], log[0].grad_norm[s]) < 10 * bounds[k]);
        }
        CU_ASSERT(e2e_relative(log[k].loss[0], log[0].loss[0]) > 1e-7); /* it did round */
    }
}

/* Without positions a chunk cannot be told from a sequence of its own, and samples follow each other in the file: two sequences
 * of 20 tokens in chunks of 5 are eight of 5. */
static void test_chunks(void)
{
    static const char *const attn[] = {"heads=4, kv=2, chunk=5", "heads=4, kv=2", "heads=4, kv=2"};
    static const unsigned sequence[] = {20, 5, 20}, batch[] = {2, 8, 2};
    char folder[E2E_PATH], path[2 * E2E_PATH];
    struct e2e_log log[3];
    e2e_folder(folder, "variants/chunks");
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/model.llm", folder);
        FILE *f = fopen(path, "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        fprintf(f, "llmc 1\nmodel chunks {\n    vocab 101\n    width 32\n    norm rmsnorm\n    embed tokens\n    repeat 2 {\n"
                   "        layer {\n            attn gqa(%s)\n            ffn swiglu(48)\n        }\n    }\n    head untied\n}\n"
                   "train {\n    sequence %u\n    batch %u sequences\n    precision fp32\n    optimizer adamw(lr=1e-3)\n}\n",
                attn[i], sequence[i], batch[i]);
        CU_ASSERT_EQUAL_FATAL(fclose(f), 0);
        CU_ASSERT_FATAL(run_layout(folder, 0, &log[i]));
    }
    for (size_t s = 0; s < STEPS; s++)
        CU_ASSERT(e2e_relative(log[0].loss[s], log[1].loss[s]) < 1e-6);
    CU_ASSERT(e2e_relative(log[0].grad_norm[0], log[1].grad_norm[0]) < 1e-5);
    CU_ASSERT(e2e_relative(log[2].loss[0], log[1].loss[0]) > 1e-5); /* the chunk does matter */
}

void suite_variants(void);
void suite_variants(void)
{
    CU_pSuite s = CU_add_suite("variants", NULL, NULL);
    CU_add_test(s, "one rank and eight agree, whatever the model is made of", test_variants);
    CU_add_test(s, "bf16 and fp16 stay near fp32", test_halves_near_fp32);
    CU_add_test(s, "chunks are short sequences", test_chunks);
}
