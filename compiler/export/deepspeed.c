/* A configuration for deepspeed.initialize(): batch, precision, ZeRO, AutoTP, AutoEP, Ulysses, optimizer and learning
 * rate (deepspeed/runtime/config.py, zero/config.py, tensor_parallel/config.py, lr_schedules.py and
 * module_inject/auto_ep_{config,folding}.py of deepspeedai/DeepSpeed edaa7221, 2026-08).  The model and what runs again
 * in it are the program's.  Ranks count alike: tp or the sequence's parts change fastest, then replicas
 * (utils/groups.py: _init_tp_mesh_device). */

#include "compiler/export/export.h"

#include <math.h>

/* by the rows of compiler/target/target.def; of groups and stages there is nothing to say without pipelines */
static const char has[] =
    "title DeepSpeed\nprofile llmrun\ngroup *\nstages *\nzero *\nreplicas 3\nsequence_parallel no\ncontext all_to_all\n"
    "experts ep\nranks shared_keys context_copies expert_copies\norder dp_before_pp\noffload optimizer\noverlap tp dp\n"
    "precision fp32 bf16 fp16\nnumbers other_reduce\noptimizer *\nattention *\nlayers *\n";

static const char *format(enum dtype_name t)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "fp8"};
    return names[t];
}

static void refuse(struct export *x, const struct train *t, const struct decision *d)
{
    export_refuse_lacking(x, "deepspeed", has);
    if (d->tp > 1 && d->cp > 1)
        export_refuse(x, "tensor parallelism beside context parallelism");
    if (d->tp > 1 && d->ep > 1 && d->zero == 3)
        export_refuse(x, "zero 3 with experts and tensor parallelism");
    if (d->zero == 3 && d->ep > 1 &&
        (d->cp > 1 || d->shard < d->dp * d->cp)) /* engine.py: "AutoEP with ZeRO Stage 3" */
        export_refuse(x, "zero 3 with experts and context parallelism, or over some of the replicas");
    if (!d->zero && t->precision != DT_FP32 && t->grads != t->precision) /* engine.py: "unsupported mix of" */
        export_refuse(x, "zero 0 with gradients in another format than products");
    if (d->zero == 3 && d->shard < d->dp * d->cp && d->cp > 1)
        export_refuse(x, "zero 3 over some of the replicas with context parallelism");
    if (x->job->wishes.offload & OFFLOAD_OPTIMIZER && (!d->zero || (d->tp > 1 && d->ep > 1)))
        export_refuse(x, d->zero ? "offload of optimizer with experts and tensor parallelism"
                                 : "offload of optimizer with zero 0");
    if (t->precision == DT_FP16 && log2(t->loss_scale) != floor(log2(t->loss_scale)))
        export_refuse(x, "a loss scale that is no power of two");
    if (t->lr_kind == LR_WSD)
        export_refuse(x, "a learning rate that stays before it falls");
    if (t->lr_kind == LR_LINEAR && t->lr_min > 0)
        export_refuse(x, "a learning rate that falls in a line, but not to nothing");
    if ((t->lr_kind == LR_LINEAR || t->lr_kind == LR_COSINE) && !t->lr_decay && !(t->total > 0))
        export_refuse(x, "a learning rate that falls until an end that is not said ('total' or 'decay' says it)");
}

static void write_precision(struct export *x, const struct train *t)
{
    if (t->precision == DT_BF16)
        strbuf_text(&x->text, "  \"bf16\": {\"enabled\": true},\n");
    if (t->precision == DT_FP16)
        strbuf_printf(&x->text,
                      "  \"fp16\": {\"enabled\": true, \"initial_scale_power\": %.0f, \"loss_scale_window\": %llu, "
                      "\"hysteresis\": %llu},\n",
                      log2(t->loss_scale), (unsigned long long)t->scale_window,
                      (unsigned long long)t->scale_hysteresis);
    if (t->precision != DT_FP32)
        strbuf_printf(&x->text,
                      "  \"data_types\": {\"grad_accum_dtype\": \"%s\"},\n  \"communication_data_type\": \"%s\",\n",
                      format(t->grads), format(t->reduce));
}

static void write_zero(struct export *x, const struct decision *d)
{
    strbuf_printf(&x->text, "  \"zero_optimization\": {\"stage\": %u", d->zero);
    if (d->zero)
        strbuf_text(&x->text, ", \"overlap_comm\": true");
    if (d->zero == 3 && d->shard < d->dp * d->cp)
        strbuf_printf(&x->text, ", \"mics_shard_size\": %u", d->shard);
    if (x->job->wishes.offload & OFFLOAD_OPTIMIZER)
        strbuf_text(&x->text, ", \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}");
    strbuf_text(&x->text, "},\n");
    if (d->tp > 1)
        strbuf_printf(&x->text, "  \"tensor_parallel\": {\"autotp_size\": %u, \"tp_overlap_comm\": %s},\n", d->tp,
                      x->job->wishes.overlap & OVERLAP_TP ? "true" : "false");
    if (d->ep > 1)
        strbuf_printf(&x->text, "  \"expert_parallel\": {\"enabled\": true, \"autoep_size\": %u},\n", d->ep);
    if (d->cp > 1)
        strbuf_printf(&x->text, "  \"data_parallel_size\": %u,\n  \"sequence_parallel_size\": %u,\n", d->dp, d->cp);
}

static void write_optimizer(struct export *x, const struct train *t, const struct decision *d)
{
    if (t->optimizer == OPT_ADAMW)
        strbuf_printf(
            &x->text,
            "  \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": %s, \"betas\": [%s, %s], \"eps\": %s, "
            "\"weight_decay\": %s}}",
            export_real(x, t->lr), export_real(x, t->beta1), export_real(x, t->beta2), export_real(x, t->eps),
            export_real(x, t->weight_decay));
    else
        strbuf_printf(&x->text, "%s  \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": %s, \"momentum\": %s}}",
                      d->zero ? "  \"zero_allow_untested_optimizer\": true,\n" : "", export_real(x, t->lr),
                      export_real(x, t->momentum));
}

static void write_scheduler(struct export *x, const struct train *t)
{
    uint64_t steps = t->lr_decay    ? t->lr_decay
                     : t->total > 0 ? (uint64_t)ceil(t->total / ((double)t->sequence * (double)t->batch))
                                    : 0;
    unsigned long long end = steps, warmup = t->lr_warmup;
    if (t->lr_kind == LR_CONSTANT && warmup)
        strbuf_printf(
            &x->text,
            ",\n  \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0, \"warmup_max_lr\": %s, "
            "\"warmup_num_steps\": %llu, \"warmup_type\": \"linear\"}}",
            export_real(x, t->lr), warmup);
    if (t->lr_kind == LR_LINEAR)
        strbuf_printf(
            &x->text,
            ",\n  \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": %llu, "
            "\"warmup_min_lr\": 0, \"warmup_max_lr\": %s, \"warmup_num_steps\": %llu, \"warmup_type\": \"linear\"}}",
            end, export_real(x, t->lr), warmup);
    if (t->lr_kind == LR_COSINE)
        strbuf_printf(&x->text,
                      ",\n  \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": %llu, "
                      "\"warmup_min_ratio\": 0, \"warmup_num_steps\": %llu, \"cos_min_ratio\": %s, \"warmup_type\": "
                      "\"linear\"}}",
                      end, warmup, export_real(x, t->lr > 0 ? t->lr_min / t->lr : 0));
    strbuf_text(&x->text, "\n}\n");
}

void export_deepspeed(struct export *x)
{
    const struct train *t = &x->job->train;
    const struct decision *d = &x->plan->decision;
    refuse(x, t, d);
    strbuf_printf(&x->text,
                  "{\n  \"train_batch_size\": %llu,\n  \"train_micro_batch_size_per_gpu\": %u,\n"
                  "  \"gradient_accumulation_steps\": %u,\n  \"gradient_clipping\": %s,\n",
                  (unsigned long long)t->batch, d->microbatch, d->microbatches, export_real(x, t->clip));
    write_precision(x, t);
    write_zero(x, d);
    write_optimizer(x, t, d);
    write_scheduler(x, t);
}
