/* `llmc import` and `llmc topo import` as people meet them: models from configurations, clusters from what other programs
 * wrote. */

#include "tests/draws.h"
#include "tests/e2e/e2e.h"
#include "tests/e2e/shot.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A configuration becomes a model that can be planned; its weights' index is compared where it lies beside it. */
static void test_import(void)
{
    struct shot *s = malloc(sizeof *s);
    char dir[E2E_PATH];
    e2e_folder(dir, "imports");
    expect(s, dir,
           "mkdir $D/gpt2; echo '{\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"n_embd\": 768, \"n_layer\": 12, "
           "\"n_head\": 12, \"n_positions\": 1024}' >$D/gpt2/config.json; $L import $D/gpt2/config.json -o $D/gpt2.llm",
           0, "124,439,808 parameters\n");
    CU_ASSERT_STRING_EQUAL(s->out, "");
    expect(s, dir, "L=$(realpath $L); cd $D/gpt2 && $L import config.json -q | sed 's/^model .*/model gpt2 {/' | cmp - ../gpt2.llm", 0, NULL);
    expect(s, dir, "$L estimate $D/gpt2.llm topologies/h100x8.xml -q && $L fmt $D/gpt2.llm | cmp - $D/gpt2.llm", 0, NULL);
    expect(s, dir, "$L import $D/gpt2/config.json -q --json", 0, NULL);
    CU_ASSERT(!strncmp(s->out, "{\"schema\": \"llmc-import-1\", \"parameters\": 124439808, \"active\": 124439808, "
                               "\"prediction\": 0, \"model\": \"llmc 1\\n", 60));
    static const struct {
        const char *metadata, *says;
    } indexes[] = {
        {"\"total_parameters\": 124439808", "index.json: 124,439,808, the same\n"},
        {"\"total_parameters\": 124439807", "index.json: 124,439,807, which is NOT the same\n"},
        {"\"total_size\": 248879616", "index.json: 248,879,616 bytes, 2.0000 for each\n"},
    };
    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "echo '{\"metadata\": {%s}, \"weight_map\": {}}' >$D/gpt2/model.safetensors.index.json; "
                 "$L import $D/gpt2/config.json -o $D/again.llm",
                 indexes[i].metadata);
        expect(s, dir, command, 0, indexes[i].says);
    }
    expect(s, dir, "rm $D/gpt2/*.index.json; sed 's/gpt2/gpt9/' $D/gpt2/config.json >$D/c; $L import $D/c -o $D/none.llm", 3,
           "error: models of type 'gpt9' are not known");
    expect(s, dir, "test ! -e $D/none.llm", 0, NULL);
    expect(s, dir, "$L import $D/gpt2/config.json -o $D", 4, "it is a folder");
    free(s);
}

/* A script of Megatron-LM becomes model, training and plan, and the plan is taken as it is; nothing is written over. */
static void test_import_script(void)
{
    struct shot *s = malloc(sizeof *s);
    char dir[E2E_PATH];
    e2e_folder(dir, "imports");
    expect(s, dir,
           "printf '%s\n' 'TP=2' 'ARGS=(--num-layers 4 --hidden-size 128 --num-attention-heads 8 --swiglu' "
           "' --seq-length 128 --max-position-embeddings 128)' 'torchrun --nproc-per-node $GPUS pretrain_gpt.py \\' "
           "' ${ARGS[@]} --tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 --micro-batch-size 1 \\' "
           "' --global-batch-size 8 --lr 1e-3 --use-distributed-optimizer --bf16 --position-embedding-type rope \\' "
           "' --sequence-parallel --make-vocab-size-divisible-by 1 --save \"$1\"' >$D/run.sh; $L import $D/run.sh -o $D/run.llm",
           3, "error: '--vocab-size' is missing\n");
    expect(s, dir, "test ! -e $D/run.llm; $L import $D/run.sh --set GPUS=8 --set vocab-size=256 -o $D/run.llm", 0,
           "parameters\n");
    expect(s, dir,
           "$L plan $D/run.llm topologies/cpu8.xml --set 'adjust=context_gib = 0.1' --set 'adjust=communicator_mib = 8' "
           "-q -o $D/p | grep -q 'plan  *tp 2 sp, pp 2, dp 2, zero 1, microbatch 1 x 4, 1f1b, recompute none'",
           0, NULL);
    expect(s, dir, "cp $D/run.sh $D/same; ln -s same $D/link; $L import $D/same --set vocab-size=256 -o $D/link", 2,
           "llmc: import would write over the file that it reads: name another with -o\n");
    expect(s, dir, "cmp $D/run.sh $D/same && $L import $D/run.sh --set GPUS=8 --set vocab-size=256 -q --json >$D/j && "
                   "grep -q '^{\"schema\": \"llmc-import-1\"' $D/j", 0, NULL);
    free(s);
}

/* What Megatron-LM is told comes back as the same decision of the same model; LLMC_DRAWS=all: 200 plans. */
static void test_there_and_back(void)
{
    struct shot *s = malloc(sizeof *s);
    char dir[E2E_PATH], script[256];
    e2e_folder(dir, "imports");
    snprintf(script, sizeof script, "PYTHONDONTWRITEBYTECODE=1 python3 tests/e2e/import_megatron.py --llmc $L --work $D/work --draws %u",
             test_draws_usual(200, 20, 5));
    expect(s, dir, script, 0, NULL);
    CU_ASSERT(strstr(s->out, "plans there and back, 0 wrong\n") != NULL);
    free(s);
}

/* A cluster file names a dump that lies below its folder, wherever both are seen from; plans come of it. */
static void test_import_cluster(void)
{
    struct shot *s = malloc(sizeof *s);
    char dir[E2E_PATH];
    e2e_folder(dir, "imports");
    expect(s, dir, "mkdir $D/in $D/in/dumps; cp tests/cases/topologies-in/* $D/in 2>/dev/null; mv $D/in/h100.xml $D/in/dumps; "
                   "$L topo import nccl $D/in/dumps/h100.xml slurm $D/in/topology.conf slurm $D/in/slurm.conf "
                   "nccl-tests $D/in/all_reduce.txt -o $D/in/c.xml",
           0, "16 nodes of 8 GPUs; 'llmc topo show' prints what was understood\n");
    CU_ASSERT_STRING_EQUAL(s->out, "");
    expect(s, dir, "grep -q '<topology format=.nccl. href=.dumps/h100.xml./>' $D/in/c.xml", 0, NULL);
    expect(s, dir, "$L topo show $D/in/c.xml >$D/x; grep -q '^  dump  .*NVLink 371GB/s effective' $D/x && "
                   "grep -q '^cluster row7: 16 nodes, 128 GPUs, 128 usable' $D/x", 0, NULL);
    expect(s, dir, "$L estimate plans/llama3-8b/model.llm $D/in/c.xml --budget 1000 -q", 0, NULL);
    expect(s, dir, "L=$(realpath $L); cd $D/in/dumps && $L topo import nccl h100.xml --set nodes=1 -q | grep -q 'href=.h100.xml.'", 0,
           NULL);
    expect(s, dir, "mkdir $D/out; $L topo import nccl $D/in/dumps/h100.xml --set nodes=1 -q -o $D/out/c.xml; "
                   "grep -q 'lies outside of this' $D/out/c.xml && ! grep -q '<topology' $D/out/c.xml", 0, NULL);
    expect(s, dir, "$L topo import nccl $D/in/dumps/h100.xml -o $D/none.xml", 3,
           "error: the files do not say: nodes (--set nodes=N, or their names)\n");
    expect(s, dir, "test ! -e $D/none.xml", 0, NULL);
    expect(s, dir, "$L topo import nccl $D/in/dumps/h100.xml --set nodes=1 -o $D", 4, "it is a folder");
    free(s);
}

void suite_imports(void);
void suite_imports(void)
{
    CU_pSuite s = CU_add_suite("imports", NULL, NULL);
    CU_add_test(s, "models from configurations", test_import);
    CU_add_test(s, "a plan from a script", test_import_script);
    CU_add_test(s, "Megatron-LM's arguments, there and back", test_there_and_back);
    CU_add_test(s, "clusters from other programs' files", test_import_cluster);
}
