/* Arguments of Megatron-LM's pretrain_gpt.py, with the names and defaults of megatron/training/arguments.py and
 * megatron/core/transformer/transformer_config.py of 2026.  Data, checkpoints, logging and the tokenizer are the
 * user's: the script hands on its own arguments behind these.
 *
 * What of a decision can be said at all is declared in compiler/target/megatron-core.target; what of a model can be is
 * refused here.  Ranks count alike: tp changes fastest, then cp, dp, pp (RankGenerator's "tp-cp-ep-dp-pp"), experts'
 * ranks by etp, ep.
 */

#include "compiler/export/export.h"

#include "compiler/model/means.h"
#include "compiler/model/sema.h"

#include <math.h>
#include <string.h>

/* one more argument, on a line of its own */
static void say(struct export *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct export *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    strbuf_printf(&x->text, " \\\n    %s", arena_vprintf(x->arena, fmt, ap));
    va_end(ap);
}

/* an argument with a number as short as it reads back equal */
static void say_real(struct export *x, const char *name, double value)
{
    say(x, "%s %s", name, export_real(x, value));
}

/* ---- model ---- */

static bool same_rope(const struct rope *a, const struct rope *b)
{
    return a->on == b->on && a->theta == b->theta && a->dims == b->dims && a->adjacent == b->adjacent &&
           a->scaling == b->scaling && a->factor == b->factor && a->low == b->low && a->high == b->high &&
           a->original == b->original && a->fast == b->fast && a->slow == b->slow && a->mscale == b->mscale &&
           a->mscale_all == b->mscale_all;
}

static bool same_attention(const struct attn *a, const struct attn *b)
{
    return a->kind == b->kind && a->q_rank == b->q_rank && a->kv_rank == b->kv_rank && a->nope == b->nope &&
           a->rope_dims == b->rope_dims && a->v == b->v && a->heads == b->heads && a->kv == b->kv &&
           a->head == b->head && a->bias == b->bias && a->qkv_bias == b->qkv_bias && a->qk_norm == b->qk_norm &&
           a->window == b->window && a->chunk == b->chunk && a->sinks == b->sinks && a->alibi == b->alibi &&
           a->scale == b->scale && a->softcap == b->softcap && same_rope(&a->rope, &b->rope);
}

static void positions(struct export *x, const struct model *m, const struct attn *a)
{
    const struct rope *r = &a->rope;
    if (m->positions) {
        say(x, "--position-embedding-type learned_absolute --max-position-embeddings %llu",
            (unsigned long long)m->positions);
        return;
    }
    say(x, "--max-position-embeddings %llu", (unsigned long long)x->job->train.sequence);
    if (!r->on && a->kind != ATTN_MLA) {
        say(x, "--position-embedding-type none");
        return;
    }
    say(x, "--position-embedding-type rope --rotary-base %.0f", r->theta);
    if (r->theta != floor(r->theta))
        export_refuse(x, "a base of rotary positions that is no whole number");
    if (a->kind == ATTN_GQA && r->dims != a->head)
        say_real(x, "--rotary-percent", (double)r->dims / a->head);
    if (r->adjacent && a->kind == ATTN_GQA)
        say(x, "--rotary-interleaved");
    if (a->kind == ATTN_MLA)
        say(x, "--rope-type %s", r->scaling == ROPE_YARN ? "yarn" : "rope");
    if (r->scaling == ROPE_LLAMA3 && r->low == 1 && r->high == 4 && r->original == 8192)
        say_real(x, "--use-rope-scaling --rope-scaling-factor", r->factor);
    else if (r->scaling == ROPE_LINEAR && r->factor == floor(r->factor))
        say(x, "--rotary-seq-len-interpolation-factor %.0f", r->factor);
    else if (r->scaling == ROPE_YARN && a->kind == ATTN_MLA) {
        say_real(x, "--rotary-scaling-factor", r->factor);
        say(x, "--original-max-position-embeddings %.0f", r->original);
        say_real(x, "--beta-fast", r->fast);
        say_real(x, "--beta-slow", r->slow);
        say_real(x, "--mscale", r->mscale);
        say_real(x, "--mscale-all-dim", r->mscale_all);
    } else if (r->scaling != ROPE_PLAIN)
        export_refuse(x, "this stretching of rotary positions");
}

static void attention(struct export *x, const struct model *m, const struct attn *a)
{
    say(x, "--num-attention-heads %u", a->heads);
    if (a->kind == ATTN_MLA) {
        say(x, "--multi-latent-attention --kv-lora-rank %u --qk-head-dim %u --qk-pos-emb-head-dim %u --v-head-dim %u",
            a->kv_rank, a->nope, a->rope_dims, a->v);
        if (a->q_rank)
            say(x, "--q-lora-rank %u", a->q_rank);
        say(x, "--qk-layernorm"); /* the norms of what is compressed */
    } else {
        say(x, "--kv-channels %u", a->head);
        if (a->kv != a->heads)
            say(x, "--group-query-attention --num-query-groups %u", a->kv);
        if (a->qk_norm == QK_NORM_HEAD)
            say(x, "--qk-layernorm");
        if (a->qk_norm == QK_NORM_FULL)
            export_refuse(x, "norms of queries and keys over all heads");
        if (a->scale != a->head)
            export_refuse(x, "a scale of scores that is not the heads'");
    }
    positions(x, m, a);
    if (a->window)
        say(x, "--window-size %u,0", a->window - 1); /* there, tokens before this one */
    if (a->sinks)
        say(x, "--softmax-type learnable");
    if (a->softcap > 0)
        export_refuse(x, "a soft cap of scores");
    if (a->alibi)
        export_refuse(x, "linear position biases");
    if (a->chunk)
        export_refuse(x, "attention within chunks");
}

/* gelu, relu2 or swiglu, and offsets: all linear maps have them, or none but queries, keys and values */
static void inner(struct export *x, const struct ffn *f, const struct attn *a)
{
    if (f->act == ACT_SWIGLU)
        say(x, "--swiglu");
    else if (f->act == ACT_RELU2)
        say(x, "--squared-relu");
    else if (f->act == ACT_GELU && !f->approx_tanh)
        say(x, "--no-bias-gelu-fusion");
    else if (f->act != ACT_GELU || !f->bias)
        export_refuse(x, "this activation of the inner layer");
    if (f->limit > 0 || f->offset > 0 || (f->alpha > 0 && f->alpha != 1))
        export_refuse(x, "a gate with a limit, factor or offset");
    if (!f->bias)
        say(x, "--disable-bias-linear%s", a->qkv_bias && !a->bias ? " --add-qkv-bias" : "");
    if (f->bias != a->bias)
        export_refuse(x, "offsets in attention and none in the inner layer, or the other way round");
}

/* what a plan for Megatron-Core was predicted with; of another plan the plainest */
static const char *dispatcher(const struct job *job)
{
    uint32_t chosen = means_setting(job, TARGET_dispatcher);
    if (chosen == target_bit(TARGET_dispatcher, "hybridep"))
        return "flex --moe-flex-dispatcher-backend hybridep";
    if (chosen == target_bit(TARGET_dispatcher, "deepep") ||
        (!chosen && job_is_modelled(job) && job->wishes.profile->ep_once_per_node > 0.5))
        return "flex --moe-flex-dispatcher-backend deepep";
    return "alltoall";
}

static void router(struct export *x, const struct moe *e)
{
    if (e->router == ROUTER_SIGMOID)
        say(x, "--moe-router-score-function sigmoid");
    else if (!e->normalize)
        say(x, "--moe-router-pre-softmax");
    if (e->router == ROUTER_SIGMOID && !e->normalize)
        export_refuse(x, "a sigmoid router whose weights are not divided by their sum");
    if (e->groups > 1)
        say(x, "--moe-router-num-groups %u --moe-router-group-topk %u", e->groups, e->pick);
    if (e->scale != 1)
        say_real(x, "--moe-router-topk-scaling-factor", e->scale);
    if (e->bias)
        say_real(x, "--moe-router-enable-expert-bias --moe-router-bias-update-rate", e->rate);
    if (e->balance > 0)
        say_real(x, "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff", e->balance);
    else
        say(x, "--moe-router-load-balancing-type none");
    if (e->linear_bias)
        export_refuse(x, "an offset in the router's product");
    if (e->capacity > 0)
        say_real(x, "--moe-expert-capacity-factor", e->capacity);
    say(x, "--moe-router-dtype fp32 --moe-token-dispatcher-type %s --moe-grouped-gemm", dispatcher(x->job));
}

/* which layers have experts: "([0]*3+[1]*58)" */
static void frequency(struct export *x, const struct model *m)
{
    struct strbuf list = {0};
    for (uint32_t i = 0, n; i < m->nlayers; i += n) {
        bool experts = m->layers[i]->is_moe;
        for (n = 0; i + n < m->nlayers && m->layers[i + n]->is_moe == experts; n++)
            ;
        strbuf_printf(&list, "%s[%d]*%u", i ? "+" : "", experts, n);
    }
    say(x, "--moe-layer-freq '(%s)'", list.text);
    strbuf_free(&list);
}

static void feed_forward(struct export *x, const struct model *m)
{
    const struct layer *dense = NULL, *experts = NULL;
    for (uint32_t i = 0; i < m->nlayers; i++) {
        const struct layer *l = m->layers[i], **one = l->is_moe ? &experts : &dense;
        if (*one && (l->is_moe ? memcmp(&l->moe, &(*one)->moe, offsetof(struct moe, span)) != 0
                               : memcmp(&l->ffn, &(*one)->ffn, offsetof(struct ffn, span)) != 0))
            export_refuse(x, "layers of several widths or activations (layer %u)", i);
        *one = l;
    }
    const struct ffn *f = dense ? &dense->ffn : &experts->moe.expert;
    say(x, "--ffn-hidden-size %llu", (unsigned long long)f->width);
    inner(x, f, &m->layers[0]->attn);
    if (!experts)
        return;
    const struct moe *e = &experts->moe;
    if (e->expert.act != f->act || e->expert.bias != f->bias)
        export_refuse(x, "experts of another kind than dense layers");
    say(x, "--num-experts %u --moe-router-topk %u --moe-ffn-hidden-size %llu", e->experts, e->active,
        (unsigned long long)e->expert.width);
    if (e->shared)
        say(x, "--moe-shared-expert-intermediate-size %llu", (unsigned long long)(e->shared * e->expert.width));
    frequency(x, m);
    router(x, e);
}

static void model(struct export *x, const struct model *m)
{
    say(x, "--num-layers %u --hidden-size %llu", m->nlayers, (unsigned long long)m->width);
    say(x, "--vocab-size %llu --make-vocab-size-divisible-by 1", (unsigned long long)m->vocab);
    say(x, "--normalization %s", m->norm.kind == NORM_RMS ? "RMSNorm" : "LayerNorm");
    say_real(x, "--norm-epsilon", m->norm.eps);
    if (m->norm.place != NORM_PRE)
        export_refuse(x, "norms behind sublayers");
    if (m->norm.kind == NORM_LAYER && !m->norm.bias)
        export_refuse(x, "layer norms without offsets");
    for (uint32_t i = 0; i < m->nlayers; i++)
        if (m->layers[i]->parallel || !same_attention(&m->layers[i]->attn, &m->layers[0]->attn)) {
            export_refuse(
                x, m->layers[i]->parallel ? "parallel layers (layer %u)" : "layers of unlike attention (layer %u)", i);
            break;
        }
    attention(x, m, &m->layers[0]->attn);
    feed_forward(x, m);
    if (!m->tied)
        say(x, "--untie-embeddings-and-output-weights");
    if (m->predict) {
        say(x, "--mtp-num-layers %u", m->predict);
        say_real(x, "--mtp-loss-scaling-factor", m->predict_weight);
    }
    if (m->embed_scale != 1 || m->embed_norm)
        export_refuse(x, "a factor on, or a norm of, the embedding");
    if (m->head_bias || m->head_softcap > 0 || m->head_scale != 1)
        export_refuse(x, "a head with offset, soft cap or factor");
}

/* ---- training ---- */

static void precision(struct export *x, const struct train *t)
{
    static const char *const recipes[] = {"--fp8-format hybrid --fp8-recipe tensorwise", NULL,
                                          "--fp8-format e4m3 --fp8-recipe blockwise",
                                          "--fp8-format e4m3 --fp8-recipe mxfp8"};
    if (t->precision == DT_BF16 || t->precision == DT_FP8)
        say(x, "--bf16");
    if (t->precision == DT_FP8 && recipes[t->recipe])
        say(x, "%s", recipes[t->recipe]);
    if (t->precision == DT_FP16) {
        say_real(x, "--fp16 --initial-loss-scale", t->loss_scale);
        say(x, "--loss-scale-window %llu --hysteresis %llu", (unsigned long long)t->scale_window,
            (unsigned long long)t->scale_hysteresis);
    }
    bool half = t->precision != DT_FP32;
    if (half && t->grads == DT_FP32 && t->precision != DT_FP16)
        say(x, "--accumulate-allreduce-grads-in-fp32");
    if (half && t->grads != DT_FP32)
        say(x, "--grad-reduce-in-bf16");
    if (half && t->precision == DT_FP16 && t->grads != DT_FP32)
        export_refuse(x, "gradients in 16 bits under fp16");
    if (t->moments == DT_BF16)
        say(x, "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16");
}

static void learning_rate(struct export *x, const struct train *t)
{
    static const char *const styles[] = {"constant", "linear", "cosine", "WSD"};
    say_real(x, "--lr", t->lr);
    say(x, "--lr-decay-style %s", styles[t->lr_kind]);
    if (t->lr_warmup)
        say(x, "--lr-warmup-iters %llu", (unsigned long long)t->lr_warmup);
    if (t->lr_kind != LR_CONSTANT)
        say_real(x, "--min-lr", t->lr_min);
    if (t->lr_kind == LR_WSD)
        say(x, "--lr-decay-iters %llu --lr-wsd-decay-iters %llu --lr-wsd-decay-style linear",
            (unsigned long long)(t->lr_warmup + t->lr_stable + t->lr_decay), (unsigned long long)t->lr_decay);
    else if (t->lr_kind != LR_CONSTANT && t->lr_decay)
        say(x, "--lr-decay-iters %llu", (unsigned long long)t->lr_decay);
}

static void training(struct export *x, const struct train *t)
{
    say(x, "--seq-length %llu --global-batch-size %llu", (unsigned long long)t->sequence, (unsigned long long)t->batch);
    if (t->total > 0)
        say(x, "--train-iters %.0f", ceil(t->total / ((double)t->sequence * (double)t->batch)));
    else
        say(x, "--train-iters \"${TRAIN_ITERS:?says how many steps to take}\"");
    precision(x, t);
    if (t->optimizer == OPT_SGD)
        say_real(x, "--optimizer sgd --sgd-momentum", t->momentum);
    if (t->optimizer == OPT_ADAMW) {
        say_real(x, "--optimizer adam --adam-beta1", t->beta1);
        say_real(x, "--adam-beta2", t->beta2);
        say_real(x, "--adam-eps", t->eps);
        say_real(x, "--weight-decay", t->weight_decay);
    }
    learning_rate(x, t);
    say_real(x, "--clip-grad", t->clip);
    say_real(x, "--init-method-std", t->init_std);
    if (!t->init_residual)
        export_refuse(x, "residual outputs that start like other weights");
    say(x, "--seed %llu", (unsigned long long)t->seed);
}

/* ---- layout ---- */

static bool has_experts(const struct model *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->nlayers; i++)
        any |= m->layers[i]->is_moe;
    return any;
}

/* Megatron's own notation, which wants every prediction module named */
static const char *layout(struct export *x)
{
    char *text = decision_layout(x->arena, &x->plan->decision);
    uint32_t predict = x->job->model.predict;
    size_t n = strlen(text);
    if (!predict || strchr(text, 'm') || !n || text[n - 1] != 'L')
        return text;
    return arena_printf(x->arena, predict > 1 ? "%.*sm*%uL" : "%.*smL", (int)n - 1, text, predict);
}

static void schedule(struct export *x, const struct decision *d)
{
    if (d->schedule == SCHED_COMBINED_1F1B ||
        means_setting(x->job, TARGET_expert_overlap) == target_bit(TARGET_expert_overlap, "yes"))
        say(x, "--overlap-moe-expert-parallel-comm");
    if (d->pp > 1)
        say(x, "--pipeline-model-parallel-layout '%s'", layout(x));
    if (d->vpp > 1 && d->schedule_group && d->schedule_group != d->pp)
        say(x, "--microbatch-group-size-per-virtual-pipeline-stage %u", d->schedule_group);
}

static void state(struct export *x, const struct decision *d)
{
    uint32_t ranks = d->dp * d->cp;
    if (d->zero == 1)
        say(x, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather");
    if (d->zero == 1 && d->shard && d->shard < ranks)
        say(x, "--num-distributed-optimizer-instances %u", ranks / d->shard);
    if (d->zero >= 2)
        say(x, "--use-megatron-fsdp --data-parallel-sharding-strategy %s --ckpt-format fsdp_dtensor",
            d->zero == 2 ? "optim_grads" : "optim_grads_params");
    if (x->job->wishes.offload & OFFLOAD_OPTIMIZER)
        say(x, "--optimizer-cpu-offload");
}

static void recompute(struct export *x, const struct decision *d)
{
    static const struct {
        uint32_t part;
        const char *module;
    } modules[] = {
        {PART_NORM, "layernorm"}, {PART_CORE_ATTN, "core_attn"}, {PART_MLA_UP, "mla_up_proj"},   {PART_FFN, "mlp"},
        {PART_MOE, "moe"},        {PART_MOE_ACT, "moe_act"},     {PART_SHARED, "shared_experts"}};
    bool spares = false;
    uint32_t again = 0; /* layers of a chunk at most */
    for (uint32_t k = 0; k < d->nstages; k++) {
        const struct stage *st = &d->stages[k];
        spares |= st->spared > 0;
        again = st->count - st->spared > again ? st->count - st->spared : again;
    }
    if (d->recompute == RECOMPUTE_NONE)
        return;
    if (d->recompute == RECOMPUTE_FULL && !spares)
        say(x, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
    else if (d->recompute == RECOMPUTE_FULL)
        say(x, "--recompute-granularity full --recompute-method block --recompute-num-layers %u", again);
    if (d->recompute != RECOMPUTE_SELECTIVE)
        return;
    const char *list = "";
    for (size_t k = 0; k < ARRAY_LEN(modules); k++)
        if (d->parts & modules[k].part)
            list = arena_printf(x->arena, "%s %s", list, modules[k].module);
    say(x, "--recompute-granularity selective --recompute-modules%s", list);
}

static void parallel(struct export *x, const struct decision *d)
{
    static const char *const contexts[] = {[CONTEXT_AUTO] = "p2p",
                                           [CONTEXT_RING] = "p2p",
                                           [CONTEXT_ALL_GATHER] = "all_gather",
                                           [CONTEXT_ALL_TO_ALL] = "a2a"};
    say(x, "--micro-batch-size %u", d->microbatch);
    say(x, "--tensor-model-parallel-size %u%s --context-parallel-size %u --pipeline-model-parallel-size %u", d->tp,
        d->sp ? " --sequence-parallel" : "", d->cp, d->pp);
    if (d->cp > 1)
        say(x, "--cp-comm-type %s", contexts[d->context]);
    if (has_experts(&x->job->model))
        say(x, "--expert-model-parallel-size %u --expert-tensor-parallel-size %u", d->ep, d->etp);
    if (x->job->wishes.overlap & OVERLAP_TP && d->tp > 1)
        say(x, "--tp-comm-overlap");
    if (means_order(d) == MEANS_TP_CP_PP_DP)
        say(x, "--use-tp-pp-dp-mapping");
    schedule(x, d);
    state(x, d);
    recompute(x, d);
}

void export_megatron_job(struct export *x)
{
    model(x, &x->job->model);
    training(x, &x->job->train);
}

void export_megatron(struct export *x)
{
    const struct plan *p = x->plan;
    const struct decision *d = &p->decision;
    export_refuse_lacking(x, target_find(x->arena, "megatron-core"));
    strbuf_printf(
        &x->text,
        "#!/bin/sh\n"
        "# %s on %u GPUs of %s, as llmc planned it: on every node, with NODE_RANK, MASTER_ADDR and MASTER_PORT set, in\n"
        "# the order of `llmc export --to hosts`.  Data, tokenizer, checkpoints and logging follow as arguments.\n"
        "exec torchrun --nnodes %u --nproc-per-node %u --node-rank \"${NODE_RANK:?}\" \\\n"
        "    --master-addr \"${MASTER_ADDR:?}\" --master-port \"${MASTER_PORT:-6000}\" pretrain_gpt.py",
        p->job->model.name, d->gpus_used, export_cluster(x), d->nnodes, export_gpus_per_node(x));
    export_megatron_job(x);
    parallel(x, d);
    say(x, "\"$@\"");
    strbuf_char(&x->text, '\n');
}
