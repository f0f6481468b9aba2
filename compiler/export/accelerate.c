/* A configuration file for `accelerate launch` (src/accelerate/commands/config/config_args.py, commands/launch.py and
 * parallelism_config.py of huggingface/accelerate 16cb6eb8, 2026-07): FSDP 2 where state is split or there is another
 * axis than replicas, DeepSpeed with the file of `llmc export --to deepspeed`, which then says degrees and precision,
 * under ZeRO 1, else copies.  Model, optimizer and batch are the program's; of the batch the file's head tells.
 *
 * Ranks count alike: the mesh is ("dp_replicate", "dp_shard", "cp", "tp").  FSDP splits state over dp_shard and cp
 * together, and sums gradients in the format that it computes in (utils/dataclasses.py: set_mixed_precision). */

#include "compiler/export/export.h"

/* by the rows of compiler/target/target.def; of groups and stages there is nothing to say without pipelines */
static const char has[] =
    "title accelerate\nprofile llmrun\ngroup *\nstages *\nzero 0 2 3\nreplicas 2 3\nsequence_parallel no\n"
    "context ring all_gather\nexperts -\nrecompute full\norder dp_before_pp\noverlap dp\nprecision fp32 bf16 fp16\n"
    "numbers other_reduce\noptimizer *\nattention *\nlayers *\n";

static bool shards(const struct decision *d)
{
    return (d->zero >= 2 && d->shard > 1 && d->dp * d->cp > 1) || d->tp > 1 || d->cp > 1;
}

static void refuse(struct export *x, const struct train *t, const struct decision *d)
{
    bool fsdp = shards(d);
    export_refuse_lacking(x, "accelerate", has);
    if (fsdp && d->tp * d->cp > 1 && d->zero == 0 && d->dp > 1)
        export_refuse(x, "zero 0 with tensor or context parallelism");
    if (fsdp && d->zero >= 2 && d->tp * d->cp > 1 && d->dp > 1 && d->shard == d->cp)
        export_refuse(x, "replicas that split nothing with tensor or context parallelism");
    if (!fsdp && d->recompute == RECOMPUTE_FULL)
        export_refuse(x, "recompute full without FSDP");
    if (fsdp && t->precision == DT_FP16)
        export_refuse(x, "fp16 with FSDP");
    if (t->precision == DT_BF16 && (t->grads != DT_FP32 || t->reduce != (fsdp ? DT_BF16 : DT_FP32)))
        export_refuse(x, fsdp ? "gradients that FSDP does not keep in fp32 and sum in bf16"
                              : "gradients that are kept or summed in another format than fp32");
    if (t->precision == DT_FP16 && (t->loss_scale != 65536 || t->scale_window != 2000 || t->scale_hysteresis != 1))
        export_refuse(x, "a loss scale that is not torch's (scale=65_536, window=2_000, hysteresis=1)");
}

/* ZeRO 1: what the other file cannot say is refused, too */
static void by_deepspeed(struct export *x)
{
    struct export other = {.arena = x->arena, .job = x->job, .plan = x->plan};
    export_deepspeed(&other);
    for (size_t i = 0; i < other.refused.n; i++)
        export_refuse(x, "%s", other.refused.at[i]);
    export_free(&other);
    if (x->plan->decision.cp > 1)
        export_refuse(x, "context parallelism with DeepSpeed");
    strbuf_text(&x->text, "distributed_type: DEEPSPEED\n"
                          "deepspeed_config:\n"
                          "  deepspeed_config_file: ds_config.json\n"
                          "  zero3_init_flag: false\n");
}

static void by_fsdp(struct export *x, const struct decision *d)
{
    uint32_t replicas = d->dp * d->cp, shard = export_fsdp_shard(d);
    strbuf_printf(&x->text,
                  "distributed_type: FSDP\n"
                  "fsdp_config:\n"
                  "  fsdp_version: 2\n"
                  "  fsdp_reshard_after_forward: %s\n"
                  "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                  "  fsdp_activation_checkpointing: %s\n"
                  "  fsdp_offload_params: false\n"
                  "  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
                  d->zero == 2 ? "false" : "true", d->recompute == RECOMPUTE_FULL ? "true" : "false");
    strbuf_printf(&x->text,
                  "parallelism_config:\n"
                  "  parallelism_config_dp_replicate_size: %u\n"
                  "  parallelism_config_dp_shard_size: %u\n"
                  "  parallelism_config_tp_size: %u\n"
                  "  parallelism_config_cp_size: %u\n",
                  replicas / shard, shard / d->cp, d->tp, d->cp);
    if (d->cp > 1)
        strbuf_printf(&x->text, "  parallelism_config_cp_comm_strategy: %s\n",
                      d->context == CONTEXT_ALL_GATHER ? "allgather" : "alltoall");
}

static void write_head(struct export *x, const struct decision *d)
{
    strbuf_printf(&x->text,
                  "# %s on %u GPUs of %s, as llmc planned it, for accelerate: on every node, in the order of\n"
                  "# `llmc export --to hosts`, with NODE_RANK set:\n"
                  "#   ACCELERATE_GRADIENT_ACCUMULATION_STEPS=%u accelerate launch --config_file FILE \\\n"
                  "#       --machine_rank \"$NODE_RANK\" PROGRAM\n"
                  "# Each process of PROGRAM takes %u sequences of %llu tokens at a time.\n",
                  x->job->model.name, d->gpus_used, export_cluster(x), d->microbatches, d->microbatch,
                  (unsigned long long)x->job->train.sequence);
    if (d->zero == 1)
        strbuf_text(&x->text, "# ds_config.json is what `llmc export --to deepspeed` writes.\n");
}

void export_accelerate(struct export *x)
{
    static const char *const precisions[] = {"'no'", "bf16", "fp16", "fp8"};
    const struct decision *d = &x->plan->decision;
    uint32_t gpus = export_gpus_per_node(x);
    write_head(x, d);
    strbuf_printf(&x->text,
                  "compute_environment: LOCAL_MACHINE\n"
                  "num_machines: %u\nmachine_rank: 0\nnum_processes: %u\n"
                  "main_process_ip: %s\nmain_process_port: 6000\nsame_network: true\nmain_training_function: main\n",
                  d->nnodes, d->nnodes * gpus, d->nnodes ? x->plan->topo->nodes[d->nodes[0]].name : "localhost");
    if (d->zero == 1 && d->dp * d->cp > 1) {
        by_deepspeed(x);
        return;
    }
    refuse(x, &x->job->train, d);
    strbuf_printf(&x->text, "mixed_precision: %s\n", precisions[x->job->train.precision]);
    if (shards(d))
        by_fsdp(x, d);
    else
        strbuf_printf(&x->text, "distributed_type: %s\n", d->gpus_used > 1 ? "MULTI_GPU" : "'NO'");
}
