/* `llmc export`: what each form says is read back by its own stack's rules (FORM.py), the plan's nodes are in order, and
 * what a form cannot say is refused. */

#include "tests/draws.h"
#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void said(const char *dir, int code, int wanted)
{
    char path[E2E_PATH + 8], text[4096];
    snprintf(path, sizeof path, "%s/said", dir);
    e2e_read_text(path, text, sizeof text);
    if (code != wanted)
        printf("\n    exit %d, wanted %d: %s", code, wanted, text);
    CU_ASSERT_EQUAL(code, wanted);
}

/* the form's reader finds in drawn plans of `all` what they say; with all of them, in worked examples, too */
static void read_back(const char *reader, uint32_t all, uint32_t few, const char *known)
{
    char dir[E2E_PATH], script[512];
    uint32_t draws = test_draws_usual(all, few, few);
    e2e_folder(dir, reader);
    snprintf(script, sizeof script,
             "PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/%s.py --llmc $L --work $D/work --draws %u %s >$D/said 2>&1\n", reader, draws,
             draws == all ? known : "");
    said(dir, e2e_shell(dir, script), 0);
}

static void test_megatron(void)
{
    read_back("megatron", 200, 12, "--known");
}

static void test_bridge(void)
{
    read_back("megatron_bridge", 200, 12, "--known");
}

static void test_torchtitan(void)
{
    read_back("torchtitan", 200, 12, "--known");
}

static void test_deepspeed(void)
{
    read_back("deepspeed", 200, 12, "");
}

static void test_accelerate(void)
{
    read_back("accelerate", 200, 12, "");
}

static void test_maxtext(void)
{
    read_back("maxtext", 200, 12, "");
}

/* On TPUs a slice is a torus, not a host, and what splits a sequence comes with its attention. */
static void test_maxtext_tpus(void)
{
    static const struct {
        const char *cluster, *pins, *says;
    } cases[] = {
        {"topologies/tpu-v5p.xml", "--set gpus=64 --set dp=16 --set shard=64 --set cp=4 --set context=ring",
         "hardware: tpu .*ici_context_parallelism: 4 dcn_context_parallelism: 1 ici_fsdp_parallelism: 16 .*attention: flash "
         "use_tokamax_splash: true context_parallel_strategy: ring"},
        {"topologies/tpu-v5p.xml", "--set gpus=64 --set dp=16 --set shard=64 --set cp=4 --set context=all_to_all",
         "attention: flash use_tokamax_splash: true context_parallel_load_balance: false context_parallel_strategy: ulysses"},
        {"topologies/tpu-v5p.xml", "--set gpus=64 --set dp=16 --set shard=64 --set cp=4 --set context=all_gather",
         "remat_policy: full context_parallel_strategy: all_gather"},
        {"topologies/tpu-v5p.xml", "--set gpus=64 --set dp=1 --set shard=64 --set cp=64 --set context=ring --set sequence=2048 "
         "--set 'batch=4 sequences'",
         "cannot be told of rings of an odd cp, or of sequences that its square does not divide, on TPUs"},
        {"tests/cases/known/tpu-v4-pods.xml", "--set gpus=6144 --set dp=6144 --set shard=6144 --set cp=1 --set 'batch=6144 sequences'",
         "ici_fsdp_parallelism: 3072 dcn_fsdp_parallelism: 2 "},
    };
    char dir[E2E_PATH], script[2048];
    e2e_folder(dir, "tpus");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(script, sizeof script,
                 "{ $L plan tests/cases/oracles/llama3-8b.llm %s -q --force -o $D/p --set tp=1 --set pp=1 --set zero=3 "
                 "--set schedule=gpipe --set recompute=full --set microbatch=1 %s >/dev/null && "
                 "{ $L export $D/p --to maxtext 2>&1 || true; } | tr '\n' ' ' | grep -qe '%s'; } >$D/said 2>&1\n",
                 cases[i].cluster, cases[i].pins, cases[i].says);
        said(dir, e2e_shell(dir, script), 0);
    }
}

static void test_torch_csv(void)
{
    read_back("torch_csv", 200, 13, "");
}

static void test_hosts(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "hosts");
    said(dir,
         e2e_shell(dir, "{ $L plan plans/llama3-8b/model.llm topologies/h100-1024.xml --set gpus=32 --set zero=3 -q -o $D/p "
                        ">/dev/null && $L export $D/p --to hosts -o $D/h && test $(wc -l <$D/h) = 4 && test $(sort -u $D/h | wc -l) = 4 && sort $D/h | cmp - $D/h; } >$D/said 2>&1\n"),
         0);
}

/* A plan for Megatron-Core has its launch files beside it, which are export's; it is proved and made again like any
 * other; llmrun replays it and says that it is another's. */
static void test_launch(void)
{
    char dir[E2E_PATH];
    e2e_folder(dir, "launch");
    said(
        dir,
        e2e_shell(
            dir,
            "{ $L plan plans/tiny-llama/model.llm topologies/cpu8.xml --set target=megatron-core --set 'batch=16 sequences' "
            "--set 'adjust=context_gib = 0.1' --set 'adjust=communicator_mib = 8' -q -o $D/p >/dev/null && "
            "$L export $D/p --to megatron | cmp - $D/p/launch.sh && $L export $D/p --to hosts | cmp - $D/p/hosts && "
            "$L check $D/p && $L show $D/p | grep -q 'target  *megatron-core; launch.sh and hosts start it' && "
            "seq -w 100000 199999 >$D/t && $L tokens $D/t -o $D/tokens && $R $D/p --data $D/tokens --steps 1 2>$D/run && "
            "grep -q 'the plan is for megatron-core: these programs compute the same step' $D/run && "
            "$L plan plans/tiny-llama/model.llm topologies/cpu8.xml --set target=torchtitan --set 'batch=16 sequences' "
            "--set 'adjust=context_gib = 0.1' --force -q -o $D/p >/dev/null && $L export $D/p --to torchtitan | "
            "cmp - $D/p/titanplan.py && grep -q -e '--module titanplan --config plan' $D/p/launch.sh && sh -n $D/p/launch.sh && "
            "$L export $D/p --to hosts | cmp - $D/p/hosts && $L check $D/p && "
            "{ $L plan tests/cases/oracles/gemma2-2b.llm topologies/h100x8.xml --set target=megatron-core -q -o $D/q 2>$D/no; "
            "test $? = 1; } && grep -q 'no plan: target megatron-core cannot be told of a soft cap of scores' $D/no; } >$D/said 2>&1\n"),
        0);
}

/* what a target's switches write, in both of Megatron's dialects, and for torchtitan; and that a script's are read back */
static void test_switches(void)
{
    static const char *const scripts[] = {
        "$L plan plans/tiny-moe/model.llm topologies/cpu8.xml -q -o $D/m --set target=megatron-core --set 'adjust=context_gib = 0.1' "
        "--set 'adjust=communicator_mib = 8' --set 'batch=16 sequences' --set tp=2 --set sequence_parallel=yes --set pp=2 --set cp=1 "
        "--set ep=2 --set dp=2 --set vpp=1 --set dispatcher=hybridep --set fused_permutation=yes --set cuda_graphs=attn_moe_router "
        "--set tp_comm_overlap=yes --set precision_aware=yes >/dev/null",
        "$L export $D/m --to megatron -o $D/run.sh && tr -s ' \\\\\n' ' ' <$D/run.sh >$D/line && for w in "
        "'--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep ' '--moe-permute-fusion ' '--tp-comm-overlap ' "
        "'--cuda-graph-impl transformer_engine --cuda-graph-modules attn moe_router moe_preprocess ' "
        "'--use-precision-aware-optimizer '; do test $(grep -oe \"$w\" $D/line | wc -l) = 1 || { echo \"$w\"; exit 1; }; done",
        "$L export $D/m --to megatron-bridge | tr -s ' \\\\\n' ' ' >$D/line && for w in "
        "model.moe_flex_dispatcher_backend=hybridep model.moe_permute_fusion=true model.cuda_graph_impl=transformer_engine "
        "\"'model.cuda_graph_modules=.attn,moe_router,moe_preprocess.'\" optimizer.use_precision_aware_optimizer=true "
        "model.tp_comm_overlap=true; do test $(grep -o \"$w \" $D/line | wc -l) = 1 || { echo \"$w\"; exit 1; }; done",
        "$L import $D/run.sh --set TRAIN_ITERS=10 -q -o $D/m.llm && for w in 'dispatcher  *hybridep' 'fused_permutation  *yes' "
        "'cuda_graphs  *attn_moe_router' 'precision_aware  *yes' 'overlap tp with compute'; do "
        "grep -q \" $w$\" $D/m.llm || { echo \"$w\"; exit 1; }; done",
        "for s in yes no; do $L plan plans/tiny-llama/model.llm topologies/cpu8.xml --set target=torchtitan --set 'batch=16 sequences' "
        "--set 'adjust=context_gib = 0.1' --set tp=2 --set sequence_parallel=yes --set pp=1 --set precision=bf16 --set zero=3 "
        "--set compile=$s --set async_tp=$s -q --force -o $D/t >/dev/null && $L export $D/t --to torchtitan | "
        "grep -q \"CompileConfig(enable=$(echo $s | sed 's/yes/True/; s/no/False/'), "
        "enable_async_tensor_parallel=$(echo $s | sed 's/yes/True/; s/no/False/'))\" || { echo $s; exit 1; }; done"};
    char dir[E2E_PATH], script[4096];
    e2e_folder(dir, "switches");
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        snprintf(script, sizeof script, "{ %s; } >$D/said 2>&1\n", scripts[i]);
        said(dir, e2e_shell(dir, script), 0);
    }
}

static void test_refused(void)
{
    static const struct {
        const char *words, *says;
        int code;
    } cases[] = {
        {"", "llmc: export wants --to FORM: megatron, megatron-bridge, torchtitan, deepspeed, accelerate, maxtext, torch-csv, hosts\n", 2},
        {"--to nemo", "llmc: there is no form 'nemo'; there are megatron, megatron-bridge, torchtitan, deepspeed, accelerate, maxtext, torch-csv, hosts\n", 2},
        {"--to megatron -o $D/out", "llmc: megatron cannot be told of schedule zb_h1\n", 1},
        {"--to hosts -o $D", "it is a folder", 4},
    };
    char dir[E2E_PATH], script[512], path[E2E_PATH + 8], text[1024];
    e2e_folder(dir, "refused");
    CU_ASSERT_EQUAL(e2e_shell(dir, "$L plan plans/tiny-llama/model.llm topologies/cpu8.xml --set pp=2 --set schedule=zb_h1 -q "
                                   "-o $D/p >/dev/null\n"),
                    0);
    snprintf(path, sizeof path, "%s/said", dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(script, sizeof script, "$L export $D/p %s 2>$D/said\n", cases[i].words);
        said(dir, e2e_shell(dir, script), cases[i].code);
        e2e_read_text(path, text, sizeof text);
        CU_ASSERT(strstr(text, cases[i].says) != NULL);
    }
    CU_ASSERT_EQUAL(e2e_shell(dir, "test ! -e $D/out\n"), 0);
}

/* what Megatron asserts of models and wishes that plans are not drawn with: changed is an expression of sed */
static void test_asserted(void)
{
    static const struct {
        const char *model, *changed, *pins, *says;
    } cases[] = {
        {"moe", "s/active  2/active  1/", "pp=2", "cannot be told of one expert per token whose weight is divided by the sum of weights"},
        {"moe", "s/^plan {/plan {\\n never overlap [dp]/", "zero=2", "cannot be told of never overlap dp with zero 2"},
        {"moe", "s/attn gqa.*/attn mla(heads=8, q_rank=64, kv_rank=64, nope=16, rope=8, v=16)/", "pp=2", "--no-rope-fusion"},
        {"moe", "s/^plan {/plan {\\n target megatron-core/", "ep=1 --set dispatcher=deepep --set 'adjust=context_gib = 0.1' "
         "--set 'adjust=communicator_mib = 8'", "--moe-token-dispatcher-type alltoall"},
        {"llama", "s/^plan {/plan {\\n overlap tp with compute/", "tp=2", "cannot be told of overlap tp without sequence parallelism"},
        {"llama", "s/^plan {/plan {\\n never overlap [dp]/", "zero=1", "--use-distributed-optimizer .no overlap"},
    };
    char dir[E2E_PATH], script[2048];
    e2e_folder(dir, "asserted");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(script, sizeof script,
                 "{ sed '%s' plans/tiny-%s/model.llm >$D/m.llm && $L plan $D/m.llm topologies/cpu8.xml -q --force -o $D/p --set tp=1 "
                 "--set cp=1 --set pp=1 --set dp=4 --set 'batch=16 sequences' --set sequence_parallel=no --set %s >/dev/null && "
                 "{ $L export $D/p --to megatron 2>&1 || true; } | tr -s ' \\\n' ' ' | "
                 "sed '/--overlap-/!s/--use-distributed-optimizer /&.no overlap/' | grep -qe '%s'; } >$D/said 2>&1\n",
                 cases[i].changed, cases[i].model, cases[i].pins, cases[i].says);
        said(dir, e2e_shell(dir, script), 0);
    }
}

void suite_export(void);
void suite_export(void)
{
    CU_pSuite s = CU_add_suite("export", NULL, NULL);
    CU_add_test(s, "what Megatron asserts is said or refused", test_asserted);
    CU_add_test(s, "Megatron-LM's arguments say what the plan says", test_megatron);
    CU_add_test(s, "Megatron Bridge's overrides say what the plan says", test_bridge);
    CU_add_test(s, "torchtitan's configuration says what the plan says", test_torchtitan);
    CU_add_test(s, "DeepSpeed's configuration says what the plan says", test_deepspeed);
    CU_add_test(s, "accelerate's configuration says what the plan says", test_accelerate);
    CU_add_test(s, "MaxText's configuration says what the plan says", test_maxtext);
    CU_add_test(s, "MaxText on TPUs", test_maxtext_tpus);
    CU_add_test(s, "torch's CSV has the actions of the programs", test_torch_csv);
    CU_add_test(s, "nodes in order", test_hosts);
    CU_add_test(s, "switches of a target", test_switches);
    CU_add_test(s, "what a target cannot be told", test_refused);
    CU_add_test(s, "launch files of a plan for a target", test_launch);
}
