/* From files to numbers: published parameter counts, FLOPs by hand, defaults, learning rates, what can be
 * run. */

#include "compiler/model/decision.h"
#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <CUnit/Basic.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* the job of a file that must be fine */
static struct job *read_job(struct arena *a, const char *path, const char *const *sets, uint32_t nsets)
{
    struct diag *d = diag_new(a);
    struct job *j = job_read(a, d, path, sets, nsets);
    if (!j)
        diag_print(d, stdout, false);
    return j;
}

static struct job *parse_job(struct arena *a, const char *text)
{
    struct diag *d = diag_new(a);
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){.name = "test", .text = text, .size = strlen(text)};
    struct job *j = job_parse(a, d, s, NULL, 0);
    if (!j)
        diag_print(d, stdout, false);
    return j;
}

/* the number behind "# NAME" in a file, 0 if it is not there */
static uint64_t stated(const struct source *s, const char *name)
{
    const char *at = strstr(s->text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static void test_oracles(void)
{
    struct arena *a = arena_new();
    DIR *dir = opendir("tests/cases/oracles");
    CU_ASSERT_FATAL(dir != NULL);
    int n = 0;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (!strstr(e->d_name, ".llm"))
            continue;
        struct job *j = read_job(a, arena_printf(a, "tests/cases/oracles/%s", e->d_name), NULL, 0);
        CU_ASSERT_FATAL(j != NULL);
        uint64_t active = stated(j->source, "\n# active "), predict = stated(j->source, "\n# predict ");
        CU_ASSERT_EQUAL(model_parameters(&j->model), stated(j->source, "\n# parameters "));
        CU_ASSERT(!active || model_active_parameters(&j->model) == active);
        CU_ASSERT_EQUAL(model_predict_parameters(&j->model), predict);
        n++;
    }
    closedir(dir);
    CU_ASSERT_EQUAL(n, 34);
    arena_free(a);
}

/* GPT-3 175B by the formula of Megatron-LM (arXiv:2104.04473, equation 3) without recomputation:
 * 72 B s l h^2 (1 + s/(6h) + V/(12 l h)) */
static void test_flops(void)
{
    struct arena *a = arena_new();
    struct job *j = read_job(a, "plans/gpt3-175b/model.llm", NULL, 0);
    CU_ASSERT_FATAL(j != NULL);
    double b = 1536, s = 2048, l = 96, h = 12288, v = 51200;
    double wanted = 72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
    CU_ASSERT_DOUBLE_EQUAL(model_flops(&j->model, 2048, 1536) / wanted, 1, 1e-12);
    j = read_job(a, "tests/cases/oracles/gpt-oss-20b.llm", NULL, 0);
    CU_ASSERT_FATAL(j != NULL);
    double full = model_flops(&j->model, 4096, 1), half = model_flops(&j->model, 2048, 2);
    /* only the twelve layers without window see the longer sequence */
    CU_ASSERT_DOUBLE_EQUAL((full - half) / (3.0 * 12 * 4 * 4096 * 2048 * 64 * 64), 1, 1e-9);
    arena_free(a);
}

static const char small[] = "llmc 1\nmodel m {\n vocab 100\n width 64\n norm rmsnorm\n embed tokens\n"
                            " repeat 2 { layer { attn gqa(4, 2, rope=10_000); ffn swiglu(96) }\n layer { "
                            "attn mha(8); ffn gelu(8) } }\n"
                            " head tied\n}\ntrain {\n sequence 32\n batch 8 sequences\n}\n";

static void test_defaults(void)
{
    struct arena *a = arena_new();
    struct job *j = parse_job(a, small);
    CU_ASSERT_FATAL(j != NULL);
    const struct layer *l = j->model.layers[0];
    CU_ASSERT_EQUAL(j->model.nlayers, 4);
    CU_ASSERT_PTR_EQUAL(j->model.layers[2], l);
    CU_ASSERT_EQUAL(l->attn.head, 16);
    CU_ASSERT_EQUAL(l->attn.rope.dims, 16);
    CU_ASSERT(l->attn.rope.on && !l->attn.rope.adjacent && l->attn.scale == 16 && l->attn.window == 0);
    CU_ASSERT_EQUAL(j->model.layers[1]->attn.kv, 8);
    CU_ASSERT(j->model.layers[1]->ffn.approx_tanh && !j->model.layers[1]->attn.rope.on);
    CU_ASSERT(j->model.norm.eps == 1e-5 && j->model.norm.place == NORM_PRE && j->model.embed_scale == 1 &&
              j->model.tied);
    const struct train *t = &j->train;
    CU_ASSERT(t->precision == DT_BF16 && t->master == DT_FP32 && t->reduce == DT_FP32);
    CU_ASSERT(t->optimizer == OPT_ADAMW && t->lr == 3e-4 && t->beta1 == 0.9 && t->beta2 == 0.95 &&
              t->eps == 1e-8 && t->weight_decay == 0.1);
    CU_ASSERT(t->clip == 1 && t->imbalance == 1 && t->seed == 1 && t->init_std == 0.02 && t->init_residual &&
              t->batch == 8);
    CU_ASSERT(j->wishes.recompute == RECOMPUTE_AUTO && j->wishes.objective == MINIMIZE_STEP_TIME &&
              !j->wishes.nschedules);
    CU_ASSERT_STRING_EQUAL(j->wishes.profile_name, "llmrun");
    arena_free(a);
}

/* what stands in a train block, in any order of its lines */
static void test_orders(void)
{
    static const char *const lines[] = {"total 1M tokens", "sequence 32", "batch 8 sequences", "seed 7", "clip 2"};
    struct arena *a = arena_new();
    for (size_t turn = 0; turn < ARRAY_LEN(lines); turn++)
        for (int back = 0; back < 2; back++) {
            struct strbuf text = {0};
            strbuf_printf(&text, "%.*s", (int)(strstr(small, "train") - small), small);
            strbuf_text(&text, "train {\n");
            for (size_t i = 0; i < ARRAY_LEN(lines); i++)
                strbuf_printf(&text, "%s\n", lines[(turn + (back ? ARRAY_LEN(lines) - i : i)) % ARRAY_LEN(lines)]);
            strbuf_text(&text, "}\n");
            const struct job *j = parse_job(a, arena_strdup(a, text.text));
            CU_ASSERT_FATAL(j != NULL);
            CU_ASSERT(j->train.total == 1000000 && j->train.sequence == 32 && j->train.batch == 8 && j->train.seed == 7 &&
                      j->train.clip == 2);
            strbuf_free(&text);
        }
    arena_free(a);
}

static void test_arithmetic(void)
{
    static const struct {
        const char *text;
        double value;
    } rows[] = {{"1.5 * 4", 6},       {"0.5 * 0.5", 0.25}, {"3 * 4", 12},      {"3 / 2", 1.5},     {"4 / 2", 2},
                {"0.75 / 0.25", 3},   {"0.5 + 2", 2.5},    {"2.5 - 0.5", 2},   {"7 - 3", 4},       {"2 * (1.5 + 1)", 5},
                {"8 / 4 * 0.25", 0.5}, {"1e3 * 1e-3", 1},   {"10 - 2.5 * 2", 5}};
    struct arena *a = arena_new();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *const set = arena_printf(a, "clip=%s", rows[i].text);
        const struct job *j = read_job(a, "plans/llama3-8b/model.llm", &set, 1);
        CU_ASSERT_FATAL(j != NULL);
        CU_ASSERT_DOUBLE_EQUAL(j->train.clip, rows[i].value, 1e-12);
    }
    arena_free(a);
}

static void test_sets(void)
{
    struct arena *a = arena_new();
    const char *const sets[] = {"tp=4", "batch=2Mi tokens",          "pp=in [1, 2]", "memory=40GiB",
                                "tp=8", "schedule=in [gpipe, zb_v]", "cp=<=2",       "clip=none"};
    struct job *j = read_job(a, "plans/llama3-8b/model.llm", sets, ARRAY_LEN(sets));
    CU_ASSERT_FATAL(j != NULL);
    const struct wishes *w = &j->wishes;
    CU_ASSERT(w->degree[DEG_TP].relation == REL_EQ && w->degree[DEG_TP].value == 8);
    CU_ASSERT(w->degree[DEG_PP].relation == REL_IN && w->degree[DEG_PP].nlist == 2 &&
              w->degree[DEG_PP].list[1] == 2);
    CU_ASSERT(w->degree[DEG_CP].relation == REL_LE && w->degree[DEG_CP].value == 2);
    CU_ASSERT_EQUAL(w->memory, UINT64_C(40) << 30);
    CU_ASSERT(w->nkeeps == 1 && !w->frees);
    CU_ASSERT_EQUAL(j->train.batch, 256);
    CU_ASSERT(w->nschedules == 2 && w->schedules[1].kind == SCHED_ZB_V);
    CU_ASSERT_EQUAL(j->train.clip, 0);
    arena_free(a);
}

/* the last override of a word counts, wherever the one before stands, and all others stay */
static void test_repeated_sets(void)
{
    static const char *const words[] = {"tp", "pp", "cp"};
    static const enum degree degrees[] = {DEG_TP, DEG_PP, DEG_CP};
    struct arena *a = arena_new();
    for (size_t again = 0; again < ARRAY_LEN(words); again++) {
        const char *sets[] = {"tp=1", "pp=2", "cp=1", arena_printf(a, "%s=4", words[again]), "dp=8"};
        struct job *j = read_job(a, "plans/llama3-8b/model.llm", sets, ARRAY_LEN(sets));
        CU_ASSERT_FATAL(j != NULL);
        for (size_t i = 0; i < ARRAY_LEN(words); i++) {
            const struct wish *w = &j->wishes.degree[degrees[i]];
            CU_ASSERT(w->relation == REL_EQ && w->value == (i == again ? 4 : i == 1 ? 2 : 1));
        }
        CU_ASSERT(j->wishes.degree[DEG_DP].relation == REL_EQ && j->wishes.degree[DEG_DP].value == 8);
    }
    arena_free(a);
}

/* memory that stays free: what is said, what is not */
static void test_free(void)
{
    struct topo_gpu gpu = {.model = "H100-SXM", .memory_bytes = UINT64_C(80) << 30, .reserve_bytes = UINT64_C(2) << 30},
                    cpu = {.model = "cpu", .memory_bytes = UINT64_C(2) << 30};
    static const struct {
        const char *set;
        uint64_t free_mib;
    } cases[] = {{"keep=3GiB free", 3072}, {"keep=1.5 GiB free", 1536}, {"keep=0GiB free", 0}, {"tp=2", 1638}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        struct job *j = read_job(a, "plans/llama3-8b/model.llm", &cases[i].set, 1);
        CU_ASSERT_FATAL(j != NULL);
        CU_ASSERT_EQUAL(j->wishes.nkeeps, 1);
        CU_ASSERT_EQUAL(decision_free_bytes(j, &gpu) >> 20, cases[i].free_mib);
        CU_ASSERT_EQUAL(decision_gpu_bytes(j, &gpu), (UINT64_C(78) << 30) - (cases[i].free_mib << 20));
        CU_ASSERT_EQUAL(decision_free_bytes(j, &cpu), j->wishes.frees ? cases[i].free_mib << 20 : 0);
        j->wishes.memory = UINT64_C(40) << 30;
        CU_ASSERT_EQUAL(decision_gpu_bytes(j, &gpu), UINT64_C(40) << 30);
        j->wishes.memory = UINT64_C(90) << 30;
        CU_ASSERT_EQUAL(decision_gpu_bytes(j, &gpu), (UINT64_C(78) << 30) - (cases[i].free_mib << 20));
        arena_free(a);
    }
}

/* what may be said several times, and what replaces what */
static void test_overrides_of_many(void)
{
    static const char *const sets[] = {"adjust=context_gib = 1", "adjust=straggle = 0", "adjust=context_gib = 2",
                                       "overlap=tp with compute", "overlap=dp with compute", "keep=tp within node"};
    struct arena *a = arena_new();
    struct job *j = read_job(a, "plans/deepseek-v3/model.llm", sets, ARRAY_LEN(sets));
    CU_ASSERT_FATAL(j != NULL);
    const struct wishes *w = &j->wishes;
    CU_ASSERT_FATAL(w->nadjusts == 2);
    CU_ASSERT_EQUAL(w->adjusts[0].param, profile_param("straggle"));
    CU_ASSERT_EQUAL(w->adjusts[1].param, profile_param("context_gib"));
    CU_ASSERT_EQUAL(w->adjusts[1].value, 2);
    CU_ASSERT_EQUAL(w->overlap, OVERLAP_TP | OVERLAP_DP); /* and not all_to_all, as the file has it */
    CU_ASSERT_FATAL(w->nkeeps == 2);
    CU_ASSERT_STRING_EQUAL(w->keeps[0].axis, "ep");
    CU_ASSERT_STRING_EQUAL(w->keeps[1].axis, "tp");
    arena_free(a);
}

static void test_plan_words(void)
{
    struct arena *a = arena_new();
    struct job *j = read_job(a, "plans/deepseek-v3/model.llm", NULL, 0);
    CU_ASSERT_FATAL(j != NULL);
    const struct wishes *w = &j->wishes;
    CU_ASSERT_EQUAL(w->parts, PART_NORM | PART_MLA_UP);
    CU_ASSERT_EQUAL(w->overlap, OVERLAP_ALL_TO_ALL);
    CU_ASSERT_EQUAL(w->comm_sms, 20);
    CU_ASSERT_FATAL(w->nkeeps == 1);
    CU_ASSERT_STRING_EQUAL(w->keeps[0].axis, "ep");
    CU_ASSERT_EQUAL(w->keeps[0].nodes, 8);
    CU_ASSERT_EQUAL(j->train.recipe, FP8_BLOCK);
    const char *const sets[] = {"layout=\"Et*3|(t*4|)*14t*2mL\"", "finish=60d", "profile=\"megatron-core\"",
                                "order=[tp, dp, pp]"};
    j = read_job(a, "plans/deepseek-v3/model.llm", sets, ARRAY_LEN(sets));
    CU_ASSERT_FATAL(j != NULL);
    w = &j->wishes;
    CU_ASSERT_FATAL(w->nchunks == 16);
    CU_ASSERT(w->chunks[0].embedding && w->chunks[0].layers == 3 && w->chunks[1].layers == 4 &&
              w->chunks[14].layers == 4);
    CU_ASSERT(w->chunks[15].loss && w->chunks[15].layers == 2 && w->chunks[15].predictions == 1);
    CU_ASSERT_EQUAL(w->finish_s, 60 * 86400.0);
    CU_ASSERT_EQUAL(w->norder, 3);
    CU_ASSERT_STRING_EQUAL(w->profile_name, "megatron-core");
    arena_free(a);
}

/* DeepSeek-V2's scores: divided by sqrt(128 + 64), times the square of mscale = 0.1 * 0.707 * ln 40 + 1 (modeling_deepseek.py) */
static void test_yarn(void)
{
    struct arena *a = arena_new();
    struct job *j = read_job(a, "tests/cases/oracles/deepseek-v2.llm", NULL, 0);
    CU_ASSERT_FATAL(j != NULL);
    double mscale = 0.1 * 0.707 * log(40) + 1;
    CU_ASSERT_DOUBLE_EQUAL(1 / sqrt(j->model.layers[0]->attn.scale), mscale * mscale / sqrt(192), 1e-9);
    arena_free(a);
}

static void test_unsupported(void)
{
    static const struct {
        const char *path, *what;
        uint32_t line;
    } rows[] = {{"plans/deepseek-v3/model.llm", NULL, 0},
                {"tests/cases/oracles/olmo2-7b.llm", NULL, 0},
                {"tests/cases/oracles/bloom.llm", NULL, 0},
                {"tests/cases/oracles/gpt-oss-20b.llm", NULL, 0},
                {"plans/mixtral-8x7b/model.llm", NULL, 0},
                {"tests/cases/oracles/gemma2-2b.llm", NULL, 0},
                {"tests/cases/oracles/mistral-7b.llm", NULL, 0},
                {"tests/cases/oracles/qwen3-8b.llm", NULL, 0},
                {"tests/cases/oracles/phi-2.llm", NULL, 0},
                {"tests/cases/oracles/gpt-neox-20b.llm", NULL, 0},
                {"plans/llama3-405b/model.llm", NULL, 0},
                {"plans/gpt2-124m/model.llm", NULL, 0},
                {"plans/tiny-llama/model.llm", NULL, 0},
                {"tests/cases/oracles/llama3.2-1b.llm", NULL, 0},
                {"tests/cases/oracles/qwen2.5-7b.llm", NULL, 0}};
    struct arena *a = arena_new();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct job *j = read_job(a, rows[i].path, NULL, 0);
        CU_ASSERT_FATAL(j != NULL);
        const char *what = NULL;
        struct span at = {0};
        uint32_t line = 0, column = 0;
        CU_ASSERT_EQUAL(model_unsupported(j, &what, &at), rows[i].what != NULL);
        if (!what || !rows[i].what)
            continue;
        source_position(at.source, at.start, &line, &column);
        CU_ASSERT_STRING_EQUAL(what, rows[i].what);
        CU_ASSERT_EQUAL(line, rows[i].line);
    }
    arena_free(a);
}

/* layers and lets, each at its limit and one above */
static void test_limits(void)
{
    struct arena *a = arena_new();
    for (int over = 0; over < 2; over++)
        for (int lets = 0; lets < 2; lets++) {
            struct strbuf text = {0};
            struct diag *d = diag_new(a);
            strbuf_text(&text, "llmc 1\n");
            for (int i = 0; lets && i < 1000 + over; i++)
                strbuf_printf(&text, "let a%d = %d\n", i, i);
            strbuf_printf(&text,
                          "model m {\nvocab 10\nwidth 8\nnorm rmsnorm\nembed tokens\nhead tied\n"
                          "repeat %d { layer { attn mha(2); ffn relu(8) } }\n}\ntrain {\nsequence 8\nbatch 8 "
                          "sequences\n}\n",
                          lets ? 1 : 65536 + over);
            struct source s = {.name = "limit", .text = text.text, .size = text.length};
            const struct job *j = job_parse(a, d, &s, NULL, 0);
            CU_ASSERT_EQUAL(j != NULL, !over);
            CU_ASSERT_EQUAL(diag_errors(d), over);
            strbuf_free(&text);
        }
    arena_free(a);
}

void suite_model(void);
void suite_model(void)
{
    CU_pSuite s = CU_add_suite("model", NULL, NULL);
    CU_add_test(s, "scores under yarn", test_yarn);
    CU_add_test(s, "parameters of 34 published models", test_oracles);
    CU_add_test(s, "model FLOPs", test_flops);
    CU_add_test(s, "defaults", test_defaults);
    CU_add_test(s, "lines in any order", test_orders);
    CU_add_test(s, "arithmetic", test_arithmetic);
    CU_add_test(s, "overrides", test_sets);
    CU_add_test(s, "overrides of the same word", test_repeated_sets);
    CU_add_test(s, "memory that stays free", test_free);
    CU_add_test(s, "overrides of what may be said several times", test_overrides_of_many);
    CU_add_test(s, "words of the plan", test_plan_words);
    CU_add_test(s, "what can't be run names its line", test_unsupported);
    CU_add_test(s, "limits of layers and lets", test_limits);
}
