/* Targets: the files that come with the compiler and their text form, what settings change against published runs, and
 * what is said of statements that a target has not. */

#include "compiler/model/sema.h"
#include "compiler/model/vocab.h"
#include "compiler/profile/profile.h"
#include "compiler/target/target.h"
#include "tests/compiler/search/found.h"
#include "tests/compiler/target/pairs.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ---- */

static void test_files(void)
{
    struct arena *a = arena_new();
    size_t n = 0;
    for (; target_name(n); n++) {
        const struct target *t = target_find(a, target_name(n));
        struct profile p;
        struct choice choice;
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        CU_ASSERT(profile_find(&p, t->profile));
        CU_ASSERT(vocab_choose(vocab_find(SCOPE_plan, "target"), t->name, &choice));
        CU_ASSERT_EQUAL(t->everything, !strcmp(t->name, TARGET_DEFAULT));
        for (int row = 0; row < TARGET_ROWS; row++)
            CU_ASSERT(!t->has[row] || *t->source[row]);
        for (uint32_t i = 0; i < t->nclashes; i++)
            CU_ASSERT_NOT_EQUAL(*t->clashes[i].source, 0);
        for (uint32_t i = 0; i < t->nnumbers; i++)
            CU_ASSERT_NOT_EQUAL(*t->numbers[i].source, 0);
        for (enum target_row row = TARGET_SETTINGS; row < TARGET_ROWS; row++) /* a launch file can tell words apart */
            for (uint32_t bit = 2; bit <= t->has[row]; bit <<= 1)
                CU_ASSERT_PTR_NOT_NULL(target_argument(t, row, bit));
    }
    CU_ASSERT(n >= 3);
    CU_ASSERT_PTR_NULL(target_find(a, "megatron"));
    arena_free(a);
}

#define SETS "a setting's number is written: sets ROW WORD PARAMETER VALUE [with ROW WORD]"

static void test_text(void)
{
    static const struct {
        const char *text;
        unsigned line;
        const char *why;
    } refused[] = {
        {"title a\nprofile b\nscedule *\n", 3, "unknown row"},
        {"title a\nprofile b\nzero 0 4\n", 3, "not a word of this row"},
        {"title a\nprofile b\nzero | nowhere\n", 3, "not a word of this row"},
        {"title\n", 1, "a value is missing"},
        {"title a\n", 1, "a target names its title and its profile"},
        {"sets dispatcher alltoall ep_shown 2\n", 1, SETS},
        {"sets zero 2 ep_shown 1\n", 1, SETS},
        {"sets compile yes tp_shown 1 with zero 2\n", 1, SETS},
        {"sets compile yes tp_shown 1 with precision\n", 1, SETS},
        {"sets compile yes tp_shown 1 beside precision bf16\n", 1, SETS},
        {"sets compile yes tp_shown 1 with precision bf16 fp32\n", 1, SETS},
        {"writes zero 2 --zero\n", 1, "a setting's arguments are written: writes ROW WORD ARGUMENTS"},
        {"usual zero 2\n", 1, "a setting's usual word is written: usual ROW WORD"},
        {"usual compile yes no\n", 1, "a setting's usual word is written: usual ROW WORD"},
        {"writes compile yes\n", 1, "a setting's arguments are written: writes ROW WORD ARGUMENTS"},
        {"never zero 2 with order\n", 1, "an exclusion is written: never ROW WORD with ROW WORD"},
        {"never zero 2 and order another\n", 1, "an exclusion is written: never ROW WORD with ROW WORD"},
    };
    static const char text[] =
        "# a stack\n\ntitle  one\tof mine # or two\nprofile llmrun\nzero 0 2 | a file\norder *\nstages -\n"
        "never zero 2 with order another | its page";
    struct arena *a = arena_new();
    unsigned line;
    const char *why = "";
    const struct target *t = target_parse(a, "mine", text, &line, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_STRING_EQUAL(t->title, "one\tof mine");
    CU_ASSERT_STRING_EQUAL(t->source[TARGET_zero], "a file");
    CU_ASSERT_STRING_EQUAL(target_words(a, TARGET_zero, t->has[TARGET_zero]), "0, 2");
    CU_ASSERT_STRING_EQUAL(target_words(a, TARGET_order, t->has[TARGET_order]), "dp_before_pp, pp_before_dp, another");
    CU_ASSERT_EQUAL(t->has[TARGET_stages], 0);
    CU_ASSERT_EQUAL(t->has[TARGET_schedule], 0);
    CU_ASSERT_EQUAL(t->nclashes, 1);
    CU_ASSERT_FALSE(t->everything);
    CU_ASSERT_STRING_EQUAL(target_phrase(a, TARGET_order, 6), "ranks in pp_before_dp order");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CU_ASSERT_PTR_NULL(target_parse(a, "mine", refused[i].text, &line, &why));
        CU_ASSERT_EQUAL(line, refused[i].line);
        CU_ASSERT_STRING_EQUAL(why, refused[i].why);
    }
    arena_free(a);
}

/* ---- settings ---- */

/* Published pairs that differ in a switch: those that the table does not call missed have the sign and, to a third, the
 * size of the published gain; and of the others it would not be true.  Of torchtitan's own pages, which are about recipes of
 * 8-bit numbers and tensor parallelism, each run is within 12 % by itself. */
static void check_pair(const struct pair *x, uint32_t *held, uint32_t *of_pages)
{
    struct arena *a = arena_new();
    struct pair_figures f = {.seconds = {1, 1}};
    const char *wrong = pair_predict(a, x, &f);
    double gain = pair_predicted_gain(&f);
    bool holds = !wrong && pair_holds(x, gain), page = !strncmp(x->source, "pytorch/torchtitan ", 19);
    if (wrong || holds == (*x->missed != 0))
        printf("\n%s: published %+.1f %%, predicted %+.1f %% %s", x->name, 100 * pair_gain(x), 100 * gain, wrong ? wrong : "");
    CU_ASSERT_PTR_NULL(wrong);
    CU_ASSERT_EQUAL(holds, !*x->missed);
    CU_ASSERT_NOT_EQUAL(*x->source, 0);
    for (int k = 0; k < 2 && page && !wrong; k++)
        CU_ASSERT(fabs(f.off[k]) <= 0.12);
    *held += holds;
    *of_pages += page;
    arena_free(a);
}

static void test_pairs(void)
{
    enum { LEAST = 15 };
    struct arena *a = arena_new();
    uint32_t n, held = 0, of_pages = 0;
    const struct pair *all = pairs_read(a, "tests/bench/measured/pairs.tsv", &n);
    CU_ASSERT_PTR_NOT_NULL_FATAL(all);
    for (uint32_t i = 0; i < n; i++)
        check_pair(&all[i], &held, &of_pages);
    printf("[%u of %u pairs, %u of torchtitan's pages] ", held, n, of_pages);
    CU_ASSERT(held >= LEAST && of_pages >= LEAST);
    arena_free(a);
}

/* ---- what is refused ---- */

static void test_refused(void)
{
    static const struct {
        const char *target, *set, *message;
    } cases[] = {
        {"megatron-core", "schedule=zb_v", "no plan: target megatron-core has no schedule zb_v"},
        {"megatron-core", "schedule=combined_1f1b",
         "no plan: target megatron-core has schedule combined_1f1b for models with experts alone"},
        {"megatron-core", "recompute=[norm, ffn_act]", "no plan: target megatron-core has no recompute ffn_act"},
        {"megatron-core", "offload=[activations]", "no plan: target megatron-core has no offload of activations"},
        {"megatron-core", "precision=fp8(recipe=row)", "no plan: target megatron-core has no precision fp8_row"},
        {"megatron-core", "post_validation=yes", "no plan: target megatron-core has no post_validation"},
        {"torchtitan", "zero=1", "no plan: 'zero' must be 1 but target torchtitan has no zero 1"},
        {"torchtitan", "context=all_to_all", "no plan: target torchtitan has no context all_to_all"},
        {"torchtitan", "optimizer=sgd(0.1)", "no plan: target torchtitan has no optimizer sgd"},
        {"torchtitan", "overlap=cp with compute", "no plan: target torchtitan has no overlap of cp"},
        {"torchtitan", "dispatcher=hybridep", "no plan: target torchtitan has no dispatcher hybridep"},
        {"llmrun", "expert_overlap=yes", "no plan: target llmrun has no expert_overlap yes"},
        {"llmrun", "cuda_graphs=attn", "no plan: target llmrun has no cuda_graphs attn"},
        {"torchtitan", "delay_wgrad=yes", "no plan: target torchtitan has no delay_wgrad yes"},
        {"torchtitan", "precision_aware=yes", "no plan: target torchtitan has no precision_aware yes"},
        {"megatron-core", "async_tp=yes", "no plan: target megatron-core has no async_tp yes"},
        {"megatron-core", "compile=yes", "no plan: target megatron-core has no compile yes"},
        {"megatron-core", "cuda_graphs=moe_router", "no plan: cuda_graphs moe_router is for models with experts"},
        {"megatron-core", "expert_overlap=yes", "no plan: expert_overlap yes is for models with experts"},
        {"torchtitan", "schedule=zb_v", "no plan: target torchtitan has no schedule zb_v with compile yes"},
        {"torchtitan", "schedule=auto", "no plan: target torchtitan has no schedule auto with compile yes"},
        {"torchtitan", "recompute=full(layers=2)", "no plan: target torchtitan has no recompute first_layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena *a = arena_new();
        const char *const sets[] = {arena_printf(a, "target=%s", cases[i].target), cases[i].set, "gpus=8"};
        struct found f = search_example("llama3-8b", "h100x8", sets, 3, 1, true);
        CU_ASSERT_EQUAL(f.r->ncandidates, 0);
        CU_ASSERT_STRING_EQUAL(diag_first(f.d), cases[i].message);
        arena_free(f.a);
        arena_free(a);
    }
}

void suite_targets(void);
void suite_targets(void)
{
    CU_pSuite s = CU_add_suite("targets", NULL, NULL);
    CU_add_test(s, "those that come with the compiler", test_files);
    CU_add_test(s, "text form", test_text);
    CU_add_test(s, "pairs that differ in a switch", test_pairs);
    CU_add_test(s, "what is refused", test_refused);
}
