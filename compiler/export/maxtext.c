/* A YAML file over MaxText's base.yml: `python3 -m maxtext.trainers.pre_train.train FILE` (src/maxtext/configs/base.yml
 * and types.py of AI-Hypercomputer/maxtext e591f30c, 2026-08).  Data, checkpoints and the tokenizer are arguments
 * behind it.
 *
 * An axis of the mesh is split into a part within slices (ici_*), which are nodes of GPUs or tori of TPUs, and one
 * between them (dcn_*); the mesh is (data, stage, fsdp, context, tensor or tensor_sequence, expert), outermost first.
 * Weights split over fsdp are split over context and expert, too.  Its pipelines run all microbatches forward, then all
 * backward.  Weights start as MaxText's do. */

#include "compiler/export/export.h"

#include "compiler/model/means.h"

#include <math.h>
#include <string.h>

/* by the rows of compiler/target/target.def */
static const char has[] =
    "title MaxText\nprofile llmrun\nschedule gpipe\nzero 0 1 3\nreplicas 3\nsequence_parallel *\ncontext *\n"
    "experts ep etp\nnever experts ep with experts etp\npipeline tied\nrecompute core_attn full\n"
    "order dp_before_pp pp_before_dp\noffload optimizer\noverlap dp\nprecision fp32 bf16\noptimizer *\nattention *\nlayers *\n";

/* ---- model ---- */

static void refuse_attention(struct export *x, const struct attn *a)
{
    const struct rope *r = &a->rope;
    if (a->kind == ATTN_MLA)
        export_refuse(x, "latent attention, whose decoder block this file does not ask for");
    if (!r->on || r->adjacent || (a->kind == ATTN_GQA && r->dims != a->head))
        export_refuse(x, "other positions than rotary ones of whole heads, in halves");
    if (r->scaling == ROPE_YARN ||
        (r->scaling == ROPE_LLAMA3 && (r->factor != 8 || r->low != 1 || r->high != 4 || r->original != 8192)))
        export_refuse(x, "this stretching of rotary positions");
    if (r->theta != floor(r->theta))
        export_refuse(x, "a base of rotary positions that is no whole number");
    if (a->window || a->chunk || a->sinks || a->alibi || a->softcap > 0)
        export_refuse(x, "windows, chunks, sinks, biases or soft caps of attention");
    if (a->bias || a->qk_norm == QK_NORM_FULL || (a->kind == ATTN_GQA && a->scale != a->head))
        export_refuse(x, "offsets behind attention, norms over all heads, or another scale of scores");
}

static void refuse_model(struct export *x, const struct model *m)
{
    const struct layer *l = m->layers[0];
    const struct ffn *f = l->is_moe ? &l->moe.expert : &l->ffn;
    for (uint32_t i = 1; i < m->nlayers; i++)
        if (m->layers[i] != l)
            export_refuse(x, "layers of several kinds");
    refuse_attention(x, &l->attn);
    if (m->norm.kind != NORM_RMS || m->norm.place != NORM_PRE || l->parallel)
        export_refuse(x, "other norms than RMS norms before sublayers");
    if (f->act != ACT_SWIGLU || f->bias || f->limit > 0 || f->offset > 0 || model_alpha(f) > 0)
        export_refuse(x, "another inner layer than plain swiglu");
    if (m->positions || m->embed_scale != 1 || m->embed_norm || m->head_bias || m->head_softcap > 0 ||
        m->head_scale != 1 || m->predict)
        export_refuse(x, "learned positions, factors or norms of embedding and head, or prediction modules");
    if (l->is_moe && (l->moe.shared || l->moe.router != ROUTER_SOFTMAX || !l->moe.normalize || l->moe.groups > 1 ||
                      l->moe.bias || l->moe.linear_bias || l->moe.scale != 1))
        export_refuse(x, "shared experts, or another router than a normalised softmax");
}

static void write_model(struct export *x, const struct model *m)
{
    const struct layer *l = m->layers[0];
    const struct attn *a = &l->attn;
    unsigned long long width = m->width, inner = l->is_moe ? l->moe.expert.width : l->ffn.width;
    bool norms = a->qk_norm == QK_NORM_HEAD;
    strbuf_printf(
        &x->text,
        "decoder_block: %s\nbase_emb_dim: %llu\nbase_num_decoder_layers: %u\nbase_num_query_heads: %u\n"
        "base_num_kv_heads: %u\nhead_dim: %u\nbase_mlp_dim: %llu\nvocab_size: %llu\n"
        "mlp_activations: ['silu', 'linear']\nnormalization_layer_epsilon: %s\nattention_bias: %s\n"
        "use_qk_norm: %s\nlogits_via_embedding: %s\nnormalize_embedding_logits: false\nenable_dropout: false\n",
        l->is_moe ? (norms ? "qwen3_moe" : "mixtral") : (norms ? "qwen3" : "llama2"), width, m->nlayers, a->heads,
        a->kv, a->head, inner, (unsigned long long)m->vocab, export_real(x, m->norm.eps),
        a->qkv_bias ? "true" : "false", norms ? "true" : "false", m->tied ? "true" : "false");
    strbuf_printf(&x->text, "rope_max_timescale: %.0f\nrope_type: %s\n", a->rope.theta,
                  a->rope.scaling == ROPE_LLAMA3 ? "llama3.1" : "default");
    if (a->rope.scaling == ROPE_LINEAR)
        strbuf_printf(&x->text, "rope_linear_scaling_factor: %s\n", export_real(x, a->rope.factor));
    if (l->is_moe)
        strbuf_printf(&x->text,
                      "num_experts: %u\nnum_experts_per_tok: %u\nbase_moe_mlp_dim: %llu\nnorm_topk_prob: true\n"
                      "sparse_matmul: %s\ncapacity_factor: %s\nload_balance_loss_weight: %s\n",
                      l->moe.experts, l->moe.active, inner, l->moe.capacity > 0 ? "false" : "true",
                      l->moe.capacity > 0 ? export_real(x, l->moe.capacity) : "-1.0", export_real(x, l->moe.balance));
}

/* ---- training ---- */

static void write_schedule(struct export *x, const struct train *t, double steps)
{
    double end = t->lr_kind == LR_WSD ? (double)(t->lr_warmup + t->lr_stable + t->lr_decay) : (double)t->lr_decay;
    double whole = end > 0 ? end : steps, warm = (double)t->lr_warmup;
    bool constant = t->lr_kind == LR_CONSTANT;
    if (!(whole > 0) && (!constant || t->lr_warmup)) {
        export_refuse(x, "a learning rate over steps that are not said ('total' says them)");
        return;
    }
    strbuf_printf(&x->text, "learning_rate: %s\nlr_schedule_type: %s\nlearning_rate_final_fraction: %s\n",
                  export_real(x, t->lr), constant || t->lr_kind == LR_COSINE ? "cosine" : "wsd",
                  export_real(x, constant    ? 1
                                 : t->lr > 0 ? t->lr_min / t->lr
                                             : 0));
    strbuf_printf(&x->text, "warmup_steps_fraction: %s\n", export_real(x, whole > 0 ? warm / whole : 0));
    if (end > 0)
        strbuf_printf(&x->text, "learning_rate_schedule_steps: %.0f\n", end);
    if (t->lr_kind == LR_WSD || t->lr_kind == LR_LINEAR)
        strbuf_printf(&x->text, "wsd_decay_style: linear\nwsd_decay_steps_fraction: %s\n",
                      export_real(x, (t->lr_kind == LR_WSD ? (double)t->lr_decay : whole - warm) / whole));
}

static void write_training(struct export *x, const struct train *t)
{
    double steps = t->total > 0 ? ceil(t->total / ((double)t->sequence * (double)t->batch)) : 0;
    if (t->optimizer == OPT_SGD && t->momentum > 0)
        export_refuse(x, "SGD with momentum");
    if (steps > 0)
        strbuf_printf(&x->text, "steps: %.0f\n", steps);
    strbuf_printf(&x->text,
                  "max_target_length: %llu\nweight_dtype: float32\ndtype: %s\ngrad_dtype: %s\nopt_type: %s\n"
                  "gradient_clipping_threshold: %s\ninit_weights_seed: %llu\n",
                  (unsigned long long)t->sequence, t->precision == DT_FP32 ? "float32" : "bfloat16",
                  t->precision != DT_FP32 && t->grads == DT_BF16 ? "bfloat16" : "float32",
                  t->optimizer == OPT_SGD ? "sgd" : "adamw", export_real(x, t->clip), (unsigned long long)t->seed);
    if (t->optimizer == OPT_ADAMW)
        strbuf_printf(&x->text,
                      "adam_b1: %s\nadam_b2: %s\nadam_eps: %s\nadam_weight_decay: %s\n"
                      "adamw_mask: ['.*norm.*', '.*bias.*']\n",
                      export_real(x, t->beta1), export_real(x, t->beta2), export_real(x, t->eps),
                      export_real(x, t->weight_decay));
    write_schedule(x, t, steps);
}

/* ---- layout ---- */

static uint32_t common(uint32_t a, uint32_t b)
{
    return b ? common(b, a % b) : a;
}

struct axis_size {
    const char *name;
    uint32_t size;
};

static bool on_tpus(const struct export *x)
{
    const struct plan *p = x->plan;
    return !strncmp(p->topo->types[p->decision.type].gpu.model, "TPU", 3);
}

/* chips that JAX counts as one slice */
static uint32_t slice(struct export *x)
{
    const struct topo *t = x->plan->topo;
    uint64_t chips = 1, used = x->plan->decision.gpus_used;
    if (!on_tpus(x))
        return export_gpus_per_node(x);
    for (uint32_t i = 0; i < t->torus_dims; i++)
        chips *= t->torus[i];
    if (!t->torus_dims || chips >= used)
        return (uint32_t)used;
    if (used % chips)
        export_refuse(x, "slices of TPUs that are not filled");
    return (uint32_t)chips;
}

/* innermost first: each axis takes what it can of a slice */
static void write_axes(struct export *x, const struct axis_size *axes, uint32_t n)
{
    uint32_t left = slice(x);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t inside = common(axes[i].size, left);
        strbuf_printf(&x->text, "ici_%s_parallelism: %u\ndcn_%s_parallelism: %u\n", axes[i].name, inside, axes[i].name,
                      axes[i].size / inside);
        left /= inside;
    }
}

/* What types.py asks of the context axis ("context_parallel_strategy"), which attention goes with it, and whether it
 * goes with packed documents: on GPUs Transformer Engine's, on TPUs Tokamax's for rings and exchanges of heads. */
static void write_context(struct export *x, const struct decision *d)
{
    uint64_t cp = d->cp, sequence = x->job->train.sequence;
    bool tpus = on_tpus(x), ring = d->context == CONTEXT_RING, heads = d->context == CONTEXT_ALL_TO_ALL;
    if (!tpus)
        strbuf_printf(&x->text, "attention: cudnn_flash_te\n%s",
                      cp == 1 || ring ? "max_segments_per_seq: 32\n" : "packing: false\n");
    if (cp == 1)
        return;
    if (heads && !tpus)
        export_refuse(x, "context all_to_all on GPUs");
    else if (heads && cp > slice(x)) /* heads that cp does not divide are in no plan */
        export_refuse(x, "context all_to_all between slices");
    if (ring && tpus && (cp % 2 || sequence % (cp * cp)))
        export_refuse(x, "rings of an odd cp, or of sequences that its square does not divide, on TPUs");
    if (tpus && (ring || heads))
        strbuf_printf(&x->text, "attention: flash\nuse_tokamax_splash: true\n%s",
                      heads ? "context_parallel_load_balance: false\n" : "");
    strbuf_printf(&x->text, "context_parallel_strategy: %s\n", ring ? "ring" : heads ? "ulysses" : "all_gather");
}

static void refuse_layout(struct export *x, const struct decision *d, uint32_t data, uint32_t fsdp)
{
    if (d->ep > 1 && (d->tp > 1 || d->cp > 1 || d->zero != 3 || d->shard % d->ep))
        export_refuse(x, "experts spread otherwise than over ranks of zero 3 that split nothing else");
    bool inside = fsdp * d->ep > 1;
    if (d->pp > 1 && d->dp > 1 &&
        (data == 1 ? means_order(d) != MEANS_TP_CP_DP_PP : inside || means_order(d) != MEANS_TP_CP_PP_DP))
        export_refuse(x, "stages, replicas and shards in another order than replicas of stages of shards");
    if (d->zero == 1 && d->cp > 1)
        export_refuse(x, "zero 1 with context parallelism");
    if (d->pp > 1 && d->microbatches % d->pp)
        export_refuse(x, "microbatches that pp does not divide");
    if (x->job->wishes.offload & OFFLOAD_OPTIMIZER && d->zero == 0)
        export_refuse(x, "offload of optimizer with zero 0");
}

static void write_layout(struct export *x, const struct train *t, const struct decision *d)
{
    uint32_t shard = d->zero == 3 && d->dp * d->cp > 1 ? d->shard : d->cp;
    uint32_t fsdp = shard / d->cp / (d->zero == 3 && shard % (d->cp * d->ep) == 0 ? d->ep : 1);
    uint32_t data = d->dp * d->cp / shard;
    uint32_t passes = d->pp > 1 ? 1 : d->microbatches;
    const struct axis_size axes[] = {{"expert", d->ep},
                                     {"tensor_sequence", d->sp ? d->tp : 1},
                                     {"tensor", d->sp ? 1 : d->tp},
                                     {"context", d->cp},
                                     {"fsdp", fsdp},
                                     {"pipeline", d->pp},
                                     {"data", data}};
    refuse_layout(x, d, data, fsdp);
    strbuf_printf(&x->text, "per_device_batch_size: %s\ngradient_accumulation_steps: %u\n",
                  export_real(x, (double)t->batch / passes / d->gpus_used), passes);
    write_axes(x, axes, ARRAY_LEN(axes));
    strbuf_printf(&x->text, "shard_optimizer_over_data: %s\noptimizer_memory_host_offload: %s\nremat_policy: %s\n",
                  d->zero == 1 ? "true" : "false", x->job->wishes.offload & OFFLOAD_OPTIMIZER ? "true" : "false",
                  d->recompute == RECOMPUTE_FULL        ? "full"
                  : d->recompute == RECOMPUTE_SELECTIVE ? "minimal"
                                                        : "minimal_with_context");
    write_context(x, d);
    if (d->pp > 1)
        strbuf_printf(&x->text,
                      "num_layers_per_pipeline_stage: %u\nnum_pipeline_repeats: 1\nnum_pipeline_microbatches: %u\n",
                      d->stages[0].count, d->microbatches);
}

void export_maxtext(struct export *x)
{
    const struct decision *d = &x->plan->decision;
    export_refuse_lacking(x, "maxtext", has);
    refuse_model(x, &x->job->model);
    strbuf_printf(
        &x->text,
        "# %s on %u GPUs of %s, as llmc planned it, for MaxText: on every node, in the order of\n"
        "# `llmc export --to hosts`, `python3 -m maxtext.trainers.pre_train.train FILE run_name=... `, with data,\n"
        "# tokenizer, checkpoints%s behind it.\n"
        "base_config: base.yml\nhardware: %s\n",
        x->job->model.name, d->gpus_used, export_cluster(x), x->job->train.total > 0 ? "" : ", steps=N",
        on_tpus(x) ? "tpu" : "gpu");
    write_model(x, &x->job->model);
    write_training(x, &x->job->train);
    write_layout(x, &x->job->train, d);
}
