/* The search: sensible on shipped jobs, exact against brute force, deterministic, and clear where nothing is
 * found. */

#include "compiler/search/search.h"
#include "compiler/inspect/estimate.h"
#include "compiler/model/sema.h"
#include "compiler/simulate/predict.h"
#include "compiler/support/strbuf.h"
#include "tests/compiler/random_plan.h"
#include "tests/compiler/search/found.h"
#include "tests/draws.h"
#include "tests/texts.h"

#include <CUnit/Basic.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *model, *cluster, *sets[2];
    uint32_t nsets;
    uint32_t tp_least, tp_most, dp, pp_least, pp_most; /* dp 0: any */
    double mfu_least;
} sane[] = {
    {"gpt2-124m", "h100x8", {0}, 0, 1, 1, 8, 1, 1, 0.3},
    {"llama3-8b", "h100x8", {0}, 0, 1, 8, 0, 1, 4, 0.45},
    {"llama3-70b", "dgx-h100-superpod", {"gpus=512"}, 1, 1, 8, 0, 1, 16, 0.25},
    {"llama3-405b", "meta-24k-roce", {"gpus=16384"}, 1, 4, 8, 0, 4, 32, 0.2},
    {"gpt3-175b", "a100-1024", {0}, 0, 1, 8, 0, 1, 16, 0.4},
    {"turing-nlg-530b", "dgx-a100-superpod", {0}, 0, 4, 8, 0, 4, 56, 0.4},
};

static void test_sane(void)
{
    for (size_t i = 0; i < (test_usual() ? 4 : sizeof sane / sizeof *sane); i++) {
        clock_t start = clock();
        struct found f = search_example(sane[i].model, sane[i].cluster, sane[i].sets, sane[i].nsets, 3, true);
        double cpu_s = (double)(clock() - start) / CLOCKS_PER_SEC;
        CU_ASSERT_FATAL(f.r->ncandidates > 0);
        const struct candidate *c = &f.r->candidates[0];
        const struct train *t = &f.job->train;
        const char *why = "";
        CU_ASSERT(decision_legal(f.a, f.job, f.topo, &c->decision, &why));
        CU_ASSERT(c->emittable);
        CU_ASSERT(c->estimate.peak_bytes <= f.r->memory_limit_bytes);
        CU_ASSERT(c->decision.tp >= sane[i].tp_least && c->decision.tp <= sane[i].tp_most);
        CU_ASSERT(!sane[i].dp || c->decision.dp == sane[i].dp);
        CU_ASSERT(c->decision.pp >= sane[i].pp_least && c->decision.pp <= sane[i].pp_most);
        double mfu = model_flops(&f.job->model, t->sequence, t->batch) / c->estimate.step_time_s /
                     c->decision.gpus_used / f.topo->types[c->decision.type].gpu.peak_flop_s[TOPO_BF16];
        CU_ASSERT(mfu > sane[i].mfu_least && mfu < 0.7);
        CU_ASSERT(f.r->gap <= 0.02);
        if (f.r->gap > 0)
            printf("\n    %s: gap %.3f %%", sane[i].model, 100 * f.r->gap);
        CU_ASSERT(cpu_s < 10); /* a second on an idle machine; sanitizers are slower */
        for (uint32_t k = 1; k < f.r->ncandidates; k++)
            CU_ASSERT(f.r->candidates[k].estimate.step_time_s >= 0.99 * c->estimate.step_time_s);
        struct found again = search_example(sane[i].model, sane[i].cluster, sane[i].sets, sane[i].nsets, 3, true);
        CU_ASSERT_STRING_EQUAL(decision_text(f.a, f.job, &c->decision),
                               decision_text(f.a, f.job, &again.r->candidates[0].decision));
        CU_ASSERT_EQUAL(f.r->evaluated, again.r->evaluated);
        arena_free(again.a);
        arena_free(f.a);
    }
}

/* every emittable decision of a small job, in plain loops; the least objective as search.c defines it */
static double brute_force(struct found *f)
{
    double best = INFINITY;
    const char *why;
    for (uint32_t i = 0; i < 4 * 8 * 8 * 64; i++) {
        struct decision d = {.tp = 1u << (i & 3),
                             .pp = 1 + (i >> 2 & 7),
                             .dp = 1 + (i >> 5 & 7),
                             .cp = 1,
                             .vpp = 1,
                             .ep = 1,
                             .etp = 1,
                             .sp = i >> 8 & 1,
                             .zero = i >> 9 & 1,
                             .schedule = i >> 10 & 1 ? SCHED_GPIPE : SCHED_1F1B,
                             .recompute = i >> 11 & 1 ? RECOMPUTE_FULL : RECOMPUTE_NONE,
                             .order = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP}};
        d.shard = d.zero ? d.dp : 1;
        if (d.pp > f->job->model.nlayers || !decision_place(f->a, f->topo, &d, &why))
            continue;
        for (uint32_t m = 1; m <= f->job->train.batch; m++) {
            d.microbatch = m;
            d.microbatches = (uint32_t)(f->job->train.batch / d.dp / m);
            if (d.microbatches == 0 || (uint64_t)d.microbatches * m * d.dp != f->job->train.batch)
                continue;
            double layer_s[64], embed_s, head_s;
            struct cost *c = cost_new(f->a, f->job, f->topo, &d);
            if (f->job->model.layers[0]->attn.kv % d.tp)
                continue;
            cost_layers(f->a, c, layer_s, &embed_s, &head_s);
            decision_cut(f->a, &d, f->job->model.nlayers, layer_s, embed_s, head_s);
            if (!decision_legal(f->a, f->job, f->topo, &d, &why))
                continue;
            struct estimate e;
            predict(f->a, c, &e);
            if (e.peak_bytes <= f->r->memory_limit_bytes)
                best = fmin(best, e.step_time_s *
                                      (1 + 0.005 * (double)e.peak_bytes / (double)f->r->memory_limit_bytes));
        }
    }
    return best;
}

static void test_exact(void)
{
    struct found f = {.a = arena_new()};
    f.job = text_job(f.a, tiny_llama);
    f.topo = random_host(f.a, 8);
    f.r = search(f.a, diag_new(f.a), f.job, f.topo, 1, 0, true);
    CU_ASSERT_EQUAL_FATAL(f.r->ncandidates, 1);
    const struct estimate *e = &f.r->candidates[0].estimate;
    double own = e->step_time_s * (1 + 0.005 * (double)e->peak_bytes / (double)f.r->memory_limit_bytes);
    CU_ASSERT_DOUBLE_EQUAL(own, brute_force(&f), 1e-9 * own);
    arena_free(f.a);
}

/* what is printed where nothing is found */
static const struct {
    const char *model, *cluster, *sets[5];
    uint32_t nsets;
    bool emit_only;
    const char *message;
} nothing[] = {
    {"mixtral-8x22b",
     "meta-24k-roce",
     {"tp=12"},
     1,
     true,
     "--set:1:6: error: no plan: 'tp' must be 12 but it must divide heads = 48 and the FFN's width, and kv = 8 must be a "
     "multiple or a divisor\n    1 | tp = 12\n      |      ^~\n   help: drop the line, or allow tp in [1, 2, 4, 8, 16, 24, "
     "48]\n"},
    {"llama3-405b",
     "meta-24k-roce",
     {"gpus=100000"},
     1,
     true,
     "--set:1:8: error: no plan: 'gpus' must be 100000 but 'meta-24k-roce' has 24064 usable GPUs\n"
     "    1 | gpus = 100000\n      |        ^~~~~~\n"},
    {"llama3-8b",
     "h100x8",
     {"memory=20GiB", "tp=1"},
     2,
     true,
     "error: nothing fits in 20GiB. Closest: tp 1, pp 1, cp 4, dp 2, zero 3, microbatch 1, recompute full "
     "needs"},
    {"llama3-8b", "h100x8", {"step_time=1s"}, 1, true, "error: no plan: the fastest that fits needs "},
    {"mixtral-8x7b", "h100x8", {0}, 0, true, "error: nothing fits in 76GiB (1.59GiB are kept free). Closest: tp "},
    {"gpt3-175b",
     "a100-1024",
     {"tp=16", "pp=8"},
     2,
     true,
     "   help: drop either line, or allow tp in [1, 2, 3, 4, 6, 8]\n"},
    {"gpt3-175b",
     "a100-1024",
     {"pp=7", "gpus in [1024]"},
     2,
     true,
     "--set:1:6: error: no plan: with 'pp' = 7 nothing satisfies the rest of the plan block\n"},
    {"mixtral-8x7b",
     "h100x8",
     {"shard=3", "dp=2"},
     2,
     false,
     "--set:1:9: error: no plan: 'shard' = 3 does not divide dp * cp of any combination that the rest of the plan "
     "block allows\n    1 | shard = 3\n      |         ^\n   help: drop the line, or allow shard in [1, 2"},
    {"llama3-8b",
     "h100x8",
     {"shard=3", "pp=1", "cp=2"},
     3,
     false,
     "   help: drop the line, or allow shard in [1, 2, 4, 8]\n"},
    {"tiny-llama",
     "cpu8",
     {"shard in [3, 5]"},
     1,
     true,
     "--set:1:10: error: no plan: with this 'shard' nothing satisfies the rest of the plan block\n"},
    {"tiny-llama",
     "cpu8",
     {"vpp=2", "pp=1", "schedule=interleaved"},
     3,
     true,
     "--set:1:6: error: no plan: with 'pp' = 1 nothing satisfies the rest of the plan block\n"
     "    1 | pp = 1\n      |      ^\n   help: drop the line, or allow pp in [2]\n"},
    /* of more wishes without any one of which there are plans, the first two */
    {"tiny-llama",
     "cpu16",
     {"tp=1", "pp=4", "dp=4", "microbatch=2", "schedule=dualpipe"},
     5,
     true,
     "--set:1:6: error: no plan: with 'pp' = 4 nothing satisfies the rest of the plan block\n"
     "    1 | pp = 4\n      |      ^\n   note: --set:1: 'dp' excludes it\n"
     "   help: drop either line, or allow pp in [2]\n"},
    {"deepseek-v3",
     "h800-2048",
     {"microbatch=512"},
     1,
     false,
     "--set:1:14: error: no plan: with 'microbatch' = 512 nothing satisfies the rest of the plan block\n"},
};

/* numbers of microbatches and sizes of them that would not fit 32 bits, or the search's usual range */
static void test_large(void)
{
    const char *const huge[] = {"batch=1T sequences"};
    struct found f = search_example("tiny-llama", "cpu8", huge, 1, 1, false);
    CU_ASSERT_EQUAL_FATAL(f.r->ncandidates, 0); /* microbatch 2 is pinned: 2^37 of them */
    arena_free(f.a);
    const char *const free_size[] = {"batch=1T sequences", "microbatch>=1", "sequence=8"};
    f = search_example("tiny-llama", "cpu8", free_size, 3, 1, false);
    CU_ASSERT_FATAL(f.r->ncandidates == 1);
    const struct decision *d = &f.r->candidates[0].decision;
    CU_ASSERT_EQUAL((uint64_t)d->microbatch * d->microbatches * d->dp, f.job->train.batch);
    arena_free(f.a);
    const char *const large[] = {"batch=65536 sequences", "sequence=2", "microbatch=8192"};
    f = search_example("tiny-llama", "cpu8", large, 3, 1, true);
    CU_ASSERT_FATAL(f.r->ncandidates == 1);
    CU_ASSERT_EQUAL(f.r->candidates[0].decision.microbatch, 8192);
    arena_free(f.a);
}

static void test_nothing(void)
{
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        struct found f = search_example(nothing[i].model, nothing[i].cluster, nothing[i].sets, nothing[i].nsets, 1,
                             nothing[i].emit_only);
        const char *text = text_of_diag(f.a, f.d, false);
        CU_ASSERT_EQUAL(f.r->ncandidates, 0);
        CU_ASSERT_EQUAL(diag_errors(f.d), 1);
        CU_ASSERT_PTR_NOT_NULL(strstr(text, nothing[i].message));
        if (!strstr(text, nothing[i].message))
            printf("\n%s", text);
        arena_free(f.a);
    }
}

/* numbers of GPUs that no degrees make: the rest is left over, and which batch would use more is said and true */
static const struct {
    const char *model, *cluster, *sets[2];
    uint32_t gpus; /* 0: nothing is found */
    const char *message, *batch;
    uint32_t with_batch;
} leftovers[] = {
    {"llama3-405b", "meta-24k-roce", {"gpus=16000"}, 8192,
     "--set:1:8: warning: 7808 of 16000 GPUs are left over: no degrees that the plan block allows make 16000, with dp "
     "dividing the batch of 2048 sequences\n    1 | gpus = 16000\n      |        ^~~~~\n"
     "   help: a batch of 2000 sequences would use 16000 (dp 125); 'gpus = 8192' says that these are enough\n",
     "batch=2000 sequences", 16000},
    {"llama3-8b", "h100x8", {"gpus=7", "pp=1"}, 4, "--set:1:8: warning: 3 of 7 GPUs are left over", NULL, 0},
    {"llama3-8b", "h100x8", {"gpus=4", "pp=1"}, 4, NULL, NULL, 0},
    /* an exact number, and a dp that is said, do not give way */
    {"llama3-8b", "h100x8", {"gpus in [7]", "pp=1"}, 0, NULL, NULL, 0},
    {"llama3-8b", "h100x8", {"gpus=7", "dp=2"}, 0, NULL, NULL, 0},
};

static void test_leftovers(void)
{
    for (size_t i = 0; i < sizeof leftovers / sizeof *leftovers; i++) {
        uint32_t nsets = leftovers[i].sets[1] ? 2 : 1;
        struct found f = search_example(leftovers[i].model, leftovers[i].cluster, leftovers[i].sets, nsets, 1, true);
        const char *text = text_of_diag(f.a, f.d, false);
        CU_ASSERT_EQUAL(f.r->ncandidates, leftovers[i].gpus > 0);
        CU_ASSERT_EQUAL(diag_errors(f.d), leftovers[i].gpus == 0);
        CU_ASSERT_EQUAL(diag_warnings(f.d), leftovers[i].message != NULL);
        if (f.r->ncandidates)
            CU_ASSERT_EQUAL(f.r->candidates[0].decision.gpus_used, leftovers[i].gpus);
        CU_ASSERT(!leftovers[i].message || strstr(text, leftovers[i].message));
        if (leftovers[i].message && !strstr(text, leftovers[i].message))
            printf("\n%s", text);
        arena_free(f.a);
        if (!leftovers[i].batch)
            continue;
        const char *const sets[] = {leftovers[i].batch, leftovers[i].sets[0]};
        f = search_example(leftovers[i].model, leftovers[i].cluster, sets, 2, 1, true);
        CU_ASSERT(f.r->ncandidates && f.r->candidates[0].decision.gpus_used == leftovers[i].with_batch);
        arena_free(f.a);
    }
}

static const char keep_model[] =
    "llmc 1\nmodel m {\n vocab 51200\n width 2048\n norm layernorm\n embed tokens\n embed positions(2048)\n"
    " repeat 24 { layer { attn mha(heads=16, bias=yes)\n ffn gelu(8192, bias=yes) } }\n head tied\n}\n"
    "train {\n sequence 2048\n batch 512 sequences\n}\nplan {\n tp = 16\n keep tp within node\n}\n";

static void test_keep(void)
{
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct source s = {"m.llm", keep_model, strlen(keep_model), false};
    struct job *job = job_parse(a, d, &s, NULL, 0);
    struct topo *topo = topo_read(a, d, "topologies/a100-1024.xml");
    CU_ASSERT_PTR_NOT_NULL_FATAL(job);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    CU_ASSERT_EQUAL(search(a, d, job, topo, 1, 0, true)->ncandidates, 0);
    CU_ASSERT_STRING_EQUAL(text_of_diag(a, d, false),
                           "m.llm:17:7: error: no plan: 'tp' must be 16 but a node of 'dgx-a100' has 8 GPUs\n"
                           "   17 |  tp = 16\n      |       ^~\n"
                           "   note: m.llm:18: 'keep tp within node'\n"
                           "   help: drop either line, or allow tp in [1, 2, 4, 8]\n");
    arena_free(a);
}

/* pods hold 376 usable nodes: a replica of 16 nodes may not straddle two of them */
static void test_place(void)
{
    const char *const sets[] = {"gpus=16384", "pp=16", "order=[tp, cp, pp, dp]"};
    struct found f = search_example("llama3-405b", "meta-24k-roce", sets, 3, 1, true);
    CU_ASSERT_EQUAL_FATAL(f.r->ncandidates, 1);
    struct keep_wish *keep = ARENA_NEW(f.a, struct keep_wish);
    *keep = (struct keep_wish){.axis = "pp", .within = "pod"};
    f.job->wishes.keeps = keep;
    f.job->wishes.nkeeps = 1;
    struct search_result *r = search(f.a, f.d, f.job, f.topo, 1, 0, true);
    CU_ASSERT_EQUAL_FATAL(r->ncandidates, 1);
    const struct decision *d = &r->candidates[0].decision;
    for (uint32_t i = 0; i < d->nnodes; i += d->tp * d->pp / 8)
        CU_ASSERT(topo_level(f.topo, d->nodes[i], d->nodes[i + d->tp * d->pp / 8 - 1]) <= 2);
    arena_free(f.a);
}

static void test_json(void)
{
    struct found f = search_example("llama3-8b", "h100x8", NULL, 0, 3, false);
    struct strbuf b = {0};
    estimate_json(f.job, f.topo, f.r, &(struct estimate_more){0}, &b);
    json_error_t error;
    json_t *o = json_loads(b.text, 0, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(o);
    static const char *const keys[] = {"schema", "model", "cluster", "decision", "predicted", "search"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        CU_ASSERT_PTR_NOT_NULL(json_object_get(o, keys[i]));
    static const char *const figures[] = {
        "step_time_s",     "tokens_per_s_per_gpu",  "model_flops_per_gpu_s", "mfu",
        "bubble_fraction", "exposed_comm_fraction", "peak_memory_bytes",     "peak_memory_rank"};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        CU_ASSERT(json_is_number(json_object_get(json_object_get(o, "predicted"), figures[i])));
    static const char *const counts[] = {"space", "evaluated", "pruned", "gap", "seconds"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        CU_ASSERT(json_is_number(json_object_get(json_object_get(o, "search"), counts[i])));
    CU_ASSERT_EQUAL(json_array_size(json_object_get(o, "candidates")), 2);
    json_decref(o);
    strbuf_free(&b);
    arena_free(f.a);
}

/* the size of a space, counted by hand: orders x sequence parallelism x ZeRO levels x recomputation x ... */
static const struct {
    const char *model, *cluster, *sets[6];
    uint32_t nsets;
    uint64_t space;
} sizes[] = {
    /* tp 2, pp 2, dp 2, one schedule; the two usual orders of axes, with and without sp, zero 0 to 3 */
    {"tiny-llama", "cpu8", {0}, 0, 2 * 2 * 4},
    {"tiny-llama", "cpu8", {"order=[tp, cp, dp, pp]", "zero=1"}, 2, 2},
    {"tiny-llama", "cpu8", {"order=[tp, cp, dp, pp]", "zero=1", "sequence_parallel=yes"}, 3, 1},
    {"tiny-llama", "cpu8", {"microbatch in [1, 2, 4]", "zero in [0, 1]", "schedule in [1f1b, gpipe]"}, 3, 2 * 2 * 2 * 3 * 2},
    /* tp 1, cp 4, dp 2: every ep divides 8 */
    {"tiny-moe", "cpu16", {"order=[tp, cp, dp, pp]", "zero=1", "tp=1", "cp=4", "ep in [1, 2, 4, 8]", "context=ring"}, 6,
     4},
    /* of 16 ranks: not by 3 */
    {"tiny-llama", "cpu16", {"tp=1", "pp=1", "dp=16", "microbatch=1", "zero=1", "shard in [2, 3, 4]"}, 6, 2},
};

static void test_space(void)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct found f = search_example(sizes[i].model, sizes[i].cluster, sizes[i].sets, sizes[i].nsets, 1, false);
        CU_ASSERT_EQUAL(f.r->ncandidates, 1);
        CU_ASSERT_EQUAL(f.r->space, sizes[i].space);
        CU_ASSERT(f.r->evaluated > 0 && f.r->evaluated <= f.r->space);
        CU_ASSERT(f.r->gap < 0.001); /* what a leaner plan may cost */
        CU_ASSERT_EQUAL(f.r->pruned, f.r->space - f.r->evaluated); /* nothing is left open */
        if (f.r->space != sizes[i].space)
            printf("\n    %zu: %llu", i, (unsigned long long)f.r->space);
        arena_free(f.a);
    }
}

void suite_search(void);
void suite_search(void)
{
    CU_pSuite s = CU_add_suite("search", NULL, NULL);
    CU_add_test(s, "sensible on shipped jobs", test_sane);
    CU_add_test(s, "as good as brute force", test_exact);
    CU_add_test(s, "very large batches", test_large);
    CU_add_test(s, "where nothing is found", test_nothing);
    CU_add_test(s, "GPUs that are left over", test_leftovers);
    CU_add_test(s, "keep and degree exclude each other", test_keep);
    CU_add_test(s, "replicas stay inside pods", test_place);
    CU_add_test(s, "size of the space", test_space);
    CU_add_test(s, "JSON of the contract", test_json);
}
