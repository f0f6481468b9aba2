/* A Python file that makes torchtitan's configuration, a Trainer.Config, of a plan: fields and their meaning by
 * torchtitan/config/configs.py, trainer.py and components/ of pytorch/torchtitan b5bcd76c (2026-08), names of schedules
 * by get_schedule_class() of torch/distributed/pipelining/schedules.py.  config/manager.py takes it as
 * `--module titanplan --config plan`.
 *
 * Ranks count alike: the mesh is ("pp", "dp_replicate", "dp_shard", "cp", "tp"), and experts' ("pp", "dp_replicate",
 * "efsdp", "ep") over the same ranks (distributed/parallel_dims.py).  Weights are always split over cp with dp_shard,
 * in fp32, and summed in fp32.  What of a decision can be said at all is declared in compiler/target/torchtitan.target.
 */

#include "compiler/export/titan.h"

#include "compiler/model/means.h"

#include <math.h>
#include <string.h>

/* torch's name of a schedule; NULL: its actions are read from a file */
static const char *schedule_class(const struct decision *d)
{
    static const char *const classes[NSCHEDULES] = {[SCHED_GPIPE] = "GPipe",
                                                    [SCHED_1F1B] = "1F1B",
                                                    [SCHED_INTERLEAVED] = "Interleaved1F1B",
                                                    [SCHED_ZB_V] = "ZBVZeroBubble",
                                                    [SCHED_DUALPIPE_V] = "DualPipeV"};
    if (d->schedule == SCHED_INTERLEAVED && d->microbatches % d->pp)
        return NULL; /* torch makes rounds of microbatches / (microbatches / pp), llmc of pp */
    return classes[d->schedule];
}

/* _check_torch_compile_compatibility(): a backward in two halves is not for compiled layers */
static bool may_compile(const struct decision *d)
{
    return d->pp == 1 || d->schedule == SCHED_GPIPE || d->schedule == SCHED_1F1B || d->schedule == SCHED_INTERLEAVED;
}

static bool switched(const struct export *x, enum target_row row, const char *word)
{
    return means_setting(x->job, row) == target_bit(row, word);
}

static bool compiles(const struct export *x)
{
    return may_compile(&x->plan->decision) && !switched(x, TARGET_compile, "no");
}

/* a plan for another target has no such switch, and may say `overlap tp with compute` */
static bool overlaps_tp(const struct export *x)
{
    return x->plan->decision.tp > 1 && (x->job->wishes.overlap & OVERLAP_TP || switched(x, TARGET_async_tp, "yes"));
}

static const char *truth(bool yes)
{
    return yes ? "True" : "False";
}

/* ---- training ---- */

static void refuse_training(struct export *x, const struct train *t)
{
    uint64_t last = t->lr_kind == LR_WSD ? t->lr_warmup + t->lr_stable + t->lr_decay : t->lr_decay;
    if (t->precision == DT_FP8 && t->recipe == FP8_TENSOR)
        export_refuse(x, "fp8 with a scale for each tensor");
    if (t->precision != DT_FP32 && (t->grads != DT_FP32 || t->reduce != DT_FP32))
        export_refuse(x, "gradients that are kept or summed in another format than fp32");
    if (last && t->total > 0 && ceil(t->total / ((double)t->sequence * (double)t->batch)) > (double)last)
        export_refuse(x, "steps behind the end of the learning rate's decay");
}

static void write_optimizer(struct export *x, const struct train *t)
{
    const char *kwargs = arena_printf(
        x->arena, "{\"lr\": %s, \"betas\": (%s, %s), \"eps\": %s, \"weight_decay\": ", export_real(x, t->lr),
        export_real(x, t->beta1), export_real(x, t->beta2), export_real(x, t->eps));
    strbuf_text(&x->text, "        optimizer=OptimizersContainer.Config(\n            param_groups=[\n");
    if (t->weight_decay > 0) /* which biases and norms never have */
        strbuf_printf(&x->text,
                      "                ParamGroupConfig(pattern=r\"norm|\\.bias$\", optimizer_name=\"AdamW\",\n"
                      "                    optimizer_kwargs=%s0.0}),\n",
                      kwargs);
    strbuf_printf(&x->text,
                  "                ParamGroupConfig(pattern=r\".*\", optimizer_name=\"AdamW\",\n"
                  "                    optimizer_kwargs=%s%s}),\n            ],\n            implementation=\"%s\",\n"
                  "        ),\n",
                  kwargs, export_real(x, t->weight_decay), t->moments == DT_BF16 ? "fused_opt_states_bf16" : "fused");
}

static void write_learning_rate(struct export *x, const struct train *t)
{
    double steps = (double)(t->lr_warmup + t->lr_stable + t->lr_decay);
    strbuf_printf(&x->text, "        lr_scheduler=LRSchedulersContainer.Config(\n            warmup_steps=%llu",
                  (unsigned long long)t->lr_warmup);
    if (t->lr_kind == LR_CONSTANT)
        strbuf_text(&x->text, ", decay_ratio=0.0");
    else
        strbuf_printf(&x->text, ", decay_type=\"%s\", min_lr_factor=%s", t->lr_kind == LR_COSINE ? "cosine" : "linear",
                      export_real(x, t->lr > 0 ? t->lr_min / t->lr : 0));
    if (t->lr_kind == LR_WSD)
        strbuf_printf(&x->text, ", total_steps=%.0f, decay_ratio=%s", steps,
                      export_real(x, (double)t->lr_decay / steps));
    else if (t->lr_kind != LR_CONSTANT && t->lr_decay)
        strbuf_printf(&x->text, ", total_steps=%llu", (unsigned long long)t->lr_decay);
    strbuf_text(&x->text, ",\n        ),\n");
}

static void write_training(struct export *x, const struct train *t, const struct decision *d)
{
    const char *steps = t->total > 0
                            ? arena_printf(x->arena, "%.0f", ceil(t->total / ((double)t->sequence * (double)t->batch)))
                            : "int(os.environ[\"TRAIN_STEPS\"])";
    strbuf_printf(&x->text,
                  "        training=TrainingConfig(\n"
                  "            num_tokens_per_microbatch_per_dp_rank=%llu,\n"
                  "            num_tokens_per_train_step=%llu,\n"
                  "            max_context_length=%llu,\n"
                  "            max_norm=%s,\n"
                  "            steps=%s,\n"
                  "            disable_cuda_graphs=%s,\n"
                  "            mixed_precision_param=\"%s\",\n"
                  "        ),\n"
                  "        debug=DebugConfig(seed=%llu),\n",
                  (unsigned long long)(d->microbatch * t->sequence), (unsigned long long)(t->batch * t->sequence),
                  (unsigned long long)t->sequence, t->clip > 0 ? export_real(x, t->clip) : "float(\"inf\")", steps,
                  truth(d->pp > 1 || d->ep > 1), t->precision == DT_FP32 ? "float32" : "bfloat16",
                  (unsigned long long)t->seed);
}

/* ---- layout ---- */

static void refuse_layout(struct export *x, const struct decision *d)
{
    uint64_t tokens = d->microbatch * x->job->train.sequence;
    uint32_t parts = (d->sp ? d->tp : 1) * (d->cp > 1 ? 2 * d->cp : 1);
    if (overlaps_tp(x) && !compiles(x))
        export_refuse(x, "asynchronous tensor parallelism in layers that are not compiled");
    if (tokens % parts)
        export_refuse(x, "microbatches of %llu tokens, which %u does not divide", (unsigned long long)tokens, parts);
    if (d->pp > 1 && d->schedule == SCHED_DUALPIPE_V && d->microbatches < 2 * d->pp)
        export_refuse(x, "schedule dualpipe_v with fewer microbatches than stages");
    if (d->nstages && !d->stages[0].count && !d->stages[0].head && x->job->train.weight_decay > 0)
        export_refuse(x, "a stage of the embedding alone, with weight decay that leaves norms out");
}

static void write_stages(struct export *x, const struct decision *d)
{
    strbuf_text(&x->text, "            module_fqns_per_model_part=[\n");
    for (uint32_t s = 0; s < d->nstages; s++) {
        const struct stage *st = &d->stages[s];
        const char *comma = "";
        strbuf_text(&x->text, "                [");
        if (st->embed)
            strbuf_text(&x->text, "\"tok_embeddings\""), comma = ", ";
        if (st->count)
            strbuf_printf(&x->text, "%s*layers(%u, %u)", comma, st->first, st->first + st->count), comma = ", ";
        if (st->head)
            strbuf_printf(&x->text, "%s\"norm\", \"lm_head\"", comma);
        strbuf_text(&x->text, "],\n");
    }
    strbuf_text(&x->text, "            ],\n");
}

static void write_pipeline(struct export *x, const struct decision *d)
{
    const char *name = schedule_class(d);
    strbuf_printf(&x->text, "            pipeline_parallel_degree=%u,\n", d->pp);
    if (d->pp == 1)
        return;
    strbuf_printf(&x->text, "            num_pp_microbatches=%u,\n            pipeline_parallel_schedule=\"%s\",\n",
                  d->microbatches,
                  name          ? name
                  : d->vpp == 1 ? "PipelineScheduleSingle"
                                : "PipelineScheduleMulti");
    if (!name)
        strbuf_text(&x->text,
                    "            pipeline_parallel_schedule_csv=os.path.join(HERE, \"" PLAN_SCHEDULE "\"),\n");
    write_stages(x, d);
}

static void write_parallelism(struct export *x, const struct decision *d)
{
    uint32_t replicas = d->dp * d->cp, shard = export_fsdp_shard(d);
    strbuf_printf(&x->text,
                  "        parallelism=ParallelismConfig(\n"
                  "            data_parallel_replicate_degree=%u,\n"
                  "            data_parallel_shard_degree=%u,\n"
                  "            fsdp_reshard_after_forward=\"%s\",\n"
                  "            tensor_parallel_degree=%u,\n"
                  "            enable_sequence_parallel=%s,\n"
                  "            context_parallel_degree=%u,\n"
                  "            expert_parallel_degree=%u,\n",
                  replicas / shard, shard / d->cp, d->zero == 3 ? "always" : "never", d->tp, truth(d->sp || d->tp == 1),
                  d->cp, d->ep);
    write_pipeline(x, d);
    strbuf_text(&x->text, "        ),\n");
    strbuf_printf(&x->text, "        activation_checkpoint=%s,\n",
                  d->recompute == RECOMPUTE_FULL        ? "FullAC.Config()"
                  : d->recompute == RECOMPUTE_SELECTIVE ? "SelectiveAC.Config()"
                                                        : "None");
    strbuf_printf(&x->text, "        compile=CompileConfig(enable=%s, enable_async_tensor_parallel=%s),\n",
                  truth(compiles(x)), truth(overlaps_tp(x)));
}

/* ---- the file ---- */

static const char *torchrun(struct export *x)
{
    return arena_printf(x->arena,
                        "torchrun --nnodes %u --nproc-per-node %u --node-rank \"${NODE_RANK:?}\" \\\n"
                        "    --master-addr \"${MASTER_ADDR:?}\" --master-port \"${MASTER_PORT:-6000}\" \\\n"
                        "    -m torchtitan.train --module titanplan --config plan",
                        x->plan->decision.nnodes, export_gpus_per_node(x));
}

static void write_imports(struct export *x)
{
    strbuf_text(&x->text,
                "import os\n"
                "from functools import partial\n"
                "\n"
                "from torch.nn import init\n"
                "from torchtitan.components.data import ConcatThenSplitPackingConfig, GrainDataLoader\n"
                "from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss\n"
                "from torchtitan.components.optimizer import (\n"
                "    LRSchedulersContainer, OptimizersContainer, ParamGroupConfig, register_moe_load_balancing_hook)\n"
                "from torchtitan.config import CompileConfig, DebugConfig, ParallelismConfig, TrainingConfig\n"
                "from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC\n"
                "from torchtitan.distributed.pipeline_parallel import pipeline_llm\n"
                "from torchtitan.hf_datasets.text_datasets import DATASETS\n");
    titan_imports(x);
    strbuf_text(&x->text, "from torchtitan.protocols.model_spec import ModelSpec\n"
                          "from torchtitan.trainer import Trainer\n");
    if (x->job->train.precision == DT_FP8)
        strbuf_text(&x->text, "from torchtitan.components.quantization import (\n"
                              "    Float8GroupedExpertsConverter, Float8LinearConverter, MXFP8GroupedExpertsConverter, "
                              "MXFP8LinearConverter)\n");
    strbuf_text(&x->text, "\nHERE = os.path.dirname(os.path.abspath(__file__))\n");
}

/* spec(): the model with its products in fp8, and what torchtitan does to it */
static void write_spec(struct export *x, bool compiled)
{
    const struct train *t = &x->job->train;
    const struct titan_names *n = &titan_names[titan_family(&x->job->model)];
    bool experts = model_has_experts(&x->job->model), mx = t->recipe == FP8_MX;
    strbuf_text(&x->text, "\n\ndef spec():\n    config = model()\n");
    if (t->precision == DT_FP8) {
        strbuf_printf(&x->text, "    config = %s, model_compile_enabled=%s).build().convert(config)\n",
                      mx ? "MXFP8LinearConverter.Config(fqns=[\"attention\", \"shared_experts\", \"feed_forward\"]"
                         : "Float8LinearConverter.Config(recipe_name=\"rowwise\", filter_fqns=[\"lm_head\", "
                           "\"router.gate\"]",
                      truth(compiled));
        if (experts)
            strbuf_printf(&x->text,
                          "    config = %sGroupedExpertsConverter.Config(model_compile_enabled=%s).build()"
                          ".convert(config)\n",
                          mx ? "MXFP8" : "Float8", truth(compiled));
    }
    strbuf_printf(&x->text,
                  "    return ModelSpec(\n        name=\"%s\", flavor=\"plan\", model=config, parallelize_fn=%s, "
                  "pipelining_fn=pipeline_llm,\n        post_optimizer_build_fn=%s, state_dict_adapter=%s)\n",
                  n->module, n->parallelize, experts ? "register_moe_load_balancing_hook" : "None", n->adapter);
}

static void write_plan(struct export *x, const struct decision *d)
{
    const struct model *m = &x->job->model;
    strbuf_text(&x->text, "\n\ndef layers(first, end):\n    return [f\"layers.{i}\" for i in range(first, end)]\n"
                          "\n\ndef plan():\n    return Trainer.Config(\n        model_spec=spec(),\n");
    if (m->predict)
        strbuf_printf(&x->text, "        loss=MTPLoss.Config(mtp_scale=%s, global_vocab_size=%llu),\n",
                      export_real(x, m->predict_weight), (unsigned long long)m->vocab);
    else
        strbuf_printf(
            &x->text,
            "        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=%llu)),\n",
            (unsigned long long)m->vocab);
    strbuf_text(&x->text,
                "        hf_assets_path=os.environ.get(\"HF_ASSETS_PATH\", \"./tests/assets/tokenizer\"),\n"
                "        dataloader=GrainDataLoader.Config(\n"
                "            dataset=ConcatThenSplitPackingConfig(dataset=DATASETS[os.environ.get(\"DATASET\", "
                "\"c4\")])),\n");
    write_optimizer(x, &x->job->train);
    write_learning_rate(x, &x->job->train);
    write_training(x, &x->job->train, d);
    write_parallelism(x, d);
    strbuf_text(&x->text, "    )\n");
}

void export_torchtitan_job(struct export *x)
{
    titan_model(x);
    refuse_training(x, &x->job->train);
}

void export_torchtitan(struct export *x)
{
    const struct decision *d = &x->plan->decision;
    export_refuse_lacking(x, "torchtitan", NULL);
    refuse_layout(x, d);
    strbuf_printf(&x->text,
                  "# %s on %u GPUs of %s, as llmc planned it, for torchtitan.  As " PLAN_TITAN ", in a folder on\n"
                  "# PYTHONPATH, with NODE_RANK, MASTER_ADDR and MASTER_PORT set, on every node in the order of\n"
                  "# `llmc export --to hosts`:\n",
                  x->job->model.name, d->gpus_used, export_cluster(x));
    for (const char *at = torchrun(x), *end; *at; at = end + (*end == '\n')) {
        end = at + strcspn(at, "\n");
        strbuf_printf(&x->text, "#   %.*s\n", (int)(end - at), at);
    }
    if (d->pp > 1 && !schedule_class(d))
        strbuf_text(&x->text, "# " PLAN_SCHEDULE " beside it is what `llmc export --to torch-csv` writes.\n");
    strbuf_printf(&x->text, "# DATASET names one of torchtitan's datasets, HF_ASSETS_PATH the tokenizer's folder%s.\n",
                  x->job->train.total > 0 ? "" : ", TRAIN_STEPS how many steps to take");
    write_imports(x);
    export_torchtitan_job(x);
    write_spec(x, compiles(x));
    write_plan(x, d);
}

void export_torchtitan_launch(struct export *x)
{
    strbuf_printf(
        &x->text,
        "#!/bin/sh\n"
        "# %s on %u GPUs of %s, as llmc planned it: on every node, with NODE_RANK, MASTER_ADDR and MASTER_PORT\n"
        "# set, in the order of " PLAN_HOSTS ".  More of torchtitan's options may follow as arguments.\n"
        "here=$(CDPATH= cd -- \"$(dirname -- \"$0\")\" && pwd)\n"
        "export PYTHONPATH=\"$here${PYTHONPATH:+:$PYTHONPATH}\"\n"
        "exec %s \"$@\"\n",
        x->job->model.name, x->plan->decision.gpus_used, export_cluster(x), torchrun(x));
}

void export_torchtitan_csv(struct export *x)
{
    const struct decision *d = &x->plan->decision;
    if (d->pp > 1 && !schedule_class(d) && !d->listed) /* else the folder has it */
        export_torch_csv(x);
}
