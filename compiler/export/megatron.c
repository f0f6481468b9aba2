/* Megatron-Core by two ways in: arguments of Megatron-LM's pretrain_gpt.py, and overrides of Megatron Bridge's
 * ConfigContainer on its recipe with nothing but Megatron-Core's defaults.  Fields and their two names are declared in
 * megatron.def.  Data, checkpoints, logging and the tokenizer are the user's: the script hands on its own arguments
 * behind these.
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

enum field {
#define VALUE(id, megatron, bridge) F_##id,
#define FLAG(id, megatron, bridge) F_##id,
#include "compiler/export/megatron.def"
};

static const struct spelling {
    const char *by[2]; /* of enum export_dialect */
} fields[] = {
#define VALUE(id, megatron, bridge) {{megatron, bridge}},
#define FLAG(id, megatron, bridge) {{megatron, bridge}},
#include "compiler/export/megatron.def"
};

static bool bridges(const struct export *x)
{
    return x->dialect == EXPORT_BRIDGE;
}

/* one more word, on the next line where this one is full */
static void put(struct export *x, const char *word)
{
    enum { WIDTH = 116 };
    strbuf_text(&x->text, "");
    const char *line = strrchr(x->text.text, '\n');
    size_t column = x->text.length - (line ? (size_t)(line + 1 - x->text.text) : 0);
    bool fresh = column < 5 || x->text.text[x->text.length - 1] == ' ';
    if (!fresh && column + 1 + strlen(word) > WIDTH)
        strbuf_text(&x->text, " \\\n    ");
    else if (!fresh)
        strbuf_char(&x->text, ' ');
    strbuf_text(&x->text, word);
}

/* for a shell: within quotes, unless it needs none or is a shell's own word already */
static const char *quoted(struct export *x, const char *word)
{
    return *word == '"' || !strpbrk(word, "'*|()[]{}<>&;$") ? word : arena_printf(x->arena, "'%s'", word);
}

/* Megatron-LM's way: an option and what belongs to it is one word of put() */
static void put_options(struct export *x, const char *names, const char *value)
{
    const char *text = value ? arena_printf(x->arena, "%s %s", names, quoted(x, value)) : names, *next;
    for (const char *at = text; at; at = next ? next + 1 : NULL) {
        next = strstr(at, " --");
        put(x, next ? arena_strndup(x->arena, at, (size_t)(next - at)) : at);
    }
}

/* Bridge's way: PATH=VALUE for each path, and what is whole already */
static void put_paths(struct export *x, const char *paths, const char *value)
{
    for (const char *at = paths; *at;) {
        size_t n = strcspn(at, " ");
        const char *word = arena_strndup(x->arena, at, n);
        bool whole = !value || strchr(word, '=');
        const char *text = whole ? word : arena_printf(x->arena, "%s=%s", word, value);
        put(x, whole || *value == '"' ? text : quoted(x, text));
        at += n + (at[n] == ' ');
    }
}

/* a flag's words (value NULL), or a field's value behind its names */
static void put_field(struct export *x, enum field f, const char *value)
{
    const char *names = fields[f].by[x->dialect];
    if (names && bridges(x))
        put_paths(x, names, value);
    else if (names)
        put_options(x, names, value);
}

/* the arguments that a switch of the plan writes, by the target's file; NULL: none */
static const char *switch_words(const struct export *x, enum target_row row)
{
    const struct target *t = x->job->wishes.target;
    uint32_t bit = means_setting(x->job, row);
    return t && bit ? target_argument(t, row, bit) : NULL;
}

/* an option with its values, n bytes, as an override: as the field has it that says just this, else of the model:
 * "--cuda-graph-modules attn mlp" is "model.cuda_graph_modules=[attn,mlp]" */
static const char *override_of(struct export *x, const char *option, size_t n)
{
    for (size_t f = 0; f < ARRAY_LEN(fields); f++)
        if (fields[f].by[0] && fields[f].by[1] && strlen(fields[f].by[0]) == n && !strncmp(fields[f].by[0], option, n))
            return fields[f].by[1];
    size_t name = strcspn(option, " ");
    bool list = name >= 8 && name < n && !strncmp(option + name - 8, "-modules", 8);
    struct strbuf b = {0};
    strbuf_printf(&b, "model.%.*s=", (int)name - 2, option + 2);
    for (char *c = b.text; *c; c++)
        *c = *c == '-' ? '_' : *c;
    strbuf_text(&b, name >= n ? "true" : list ? "[" : "");
    for (size_t i = name + 1; i < n; i++)
        strbuf_char(&b, option[i] == ' ' ? ',' : option[i]);
    strbuf_text(&b, list ? "]" : "");
    const char *text = arena_strndup(x->arena, b.text, b.length);
    strbuf_free(&b);
    return text;
}

static void put_switch(struct export *x, const char *words)
{
    if (!bridges(x)) {
        put_options(x, words, NULL);
        return;
    }
    for (const char *at = words, *next; at; at = next ? next + 1 : NULL) {
        next = strstr(at, " --");
        put_paths(x, quoted(x, override_of(x, at, next ? (size_t)(next - at) : strlen(at))), NULL);
    }
}

static void flag(struct export *x, enum field f)
{
    put_field(x, f, NULL);
}

static void say(struct export *x, enum field f, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(struct export *x, enum field f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_field(x, f, arena_vprintf(x->arena, fmt, ap));
    va_end(ap);
}

static void count(struct export *x, enum field f, uint64_t n)
{
    say(x, f, "%llu", (unsigned long long)n);
}

/* a number as short as it reads back equal */
static void real(struct export *x, enum field f, double value)
{
    say(x, f, "%s", export_real(x, value));
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

/* latent attention has yarn alone, and other attention all but yarn (gpt_model.py, multi_latent_attention.py) */
static void stretching(struct export *x, const struct attn *a, const struct rope *r)
{
    bool latent = a->kind == ATTN_MLA;
    if (r->scaling == ROPE_PLAIN)
        return;
    if (r->scaling == ROPE_LLAMA3 && !latent && r->low == 1 && r->high == 4 && r->original == 8192) {
        real(x, F_llama_factor, r->factor);
    } else if (r->scaling == ROPE_LINEAR && !latent && r->factor == floor(r->factor)) {
        say(x, F_linear_factor, "%.0f", r->factor);
    } else if (r->scaling == ROPE_YARN && latent) {
        real(x, F_yarn_factor, r->factor);
        say(x, F_yarn_original, "%.0f", r->original);
        real(x, F_yarn_fast, r->fast);
        real(x, F_yarn_slow, r->slow);
        real(x, F_yarn_mscale, r->mscale);
        real(x, F_yarn_mscale_all, r->mscale_all);
    } else {
        export_refuse(x, "this stretching of rotary positions");
    }
}

static void positions(struct export *x, const struct model *m, const struct attn *a)
{
    const struct rope *r = &a->rope;
    uint64_t sequence = x->job->train.sequence;
    count(x, F_max_positions, m->positions ? m->positions : sequence);
    if (bridges(x) && m->positions && m->positions != sequence) /* GPTModelProvider has as many as the sequence */
        export_refuse(x, "learned positions that are not as many as tokens of a sequence");
    if (m->positions || (!r->on && a->kind != ATTN_MLA)) {
        say(x, F_position_type, m->positions ? "learned_absolute" : "none");
        return;
    }
    say(x, F_position_type, "rope");
    say(x, F_rotary_base, "%.0f", r->theta);
    if (r->theta != floor(r->theta))
        export_refuse(x, "a base of rotary positions that is no whole number");
    if (a->kind == ATTN_GQA && r->dims != a->head)
        real(x, F_rotary_percent, (double)r->dims / a->head);
    if (r->adjacent && a->kind == ATTN_GQA)
        flag(x, F_rotary_interleaved);
    if (a->kind == ATTN_MLA)
        say(x, F_rope_type, r->scaling == ROPE_YARN ? "yarn" : "rope");
    if (a->kind == ATTN_MLA && r->scaling != ROPE_YARN) /* MLATransformerConfig: fused, it is for yarn alone */
        flag(x, F_no_rope_fusion);
    stretching(x, a, r);
}

static void attention(struct export *x, const struct model *m, const struct attn *a)
{
    count(x, F_heads, a->heads);
    if (a->kind == ATTN_MLA) {
        count(x, F_kv_rank, a->kv_rank);
        count(x, F_qk_head, a->nope);
        count(x, F_qk_rope_head, a->rope_dims);
        count(x, F_v_head, a->v);
        if (a->q_rank)
            count(x, F_q_rank, a->q_rank);
        flag(x, F_qk_norm); /* the norms of what is compressed */
        if (bridges(x))
            export_refuse(x, "latent attention, which is in recipes of single models");
    } else {
        count(x, F_head, a->head);
        if (a->kv != a->heads)
            count(x, F_query_groups, a->kv);
        if (a->qk_norm == QK_NORM_HEAD)
            flag(x, F_qk_norm);
        if (a->qk_norm == QK_NORM_FULL)
            export_refuse(x, "norms of queries and keys over all heads");
        if (a->scale != a->head)
            export_refuse(x, "a scale of scores that is not the heads'");
    }
    positions(x, m, a);
    if (a->window) /* there, tokens before this one */
        say(x, F_window, bridges(x) ? "[%u,0]" : "%u,0", a->window - 1);
    if (a->sinks)
        flag(x, F_sinks);
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
        flag(x, F_swiglu);
    else if (f->act == ACT_RELU2)
        flag(x, F_squared_relu);
    else if (f->act == ACT_GELU && (f->bias || !f->approx_tanh))
        flag(x, f->approx_tanh ? F_gelu_tanh : F_gelu_exact);
    else
        export_refuse(x, "this activation of the inner layer");
    if (f->limit > 0 || f->offset > 0 || (f->alpha > 0 && f->alpha != 1))
        export_refuse(x, "a gate with a limit, factor or offset");
    if (!f->bias)
        flag(x, F_no_offsets);
    if (!f->bias && a->qkv_bias && !a->bias)
        flag(x, F_qkv_offsets);
    if (f->bias != a->bias)
        export_refuse(x, "offsets in attention and none in the inner layer, or the other way round");
}

/* Without a word of its own, a dispatcher as the plan was predicted with; of another stack's plan the plainest, and
 * also where every rank has all experts: the others assert several ranks (token_dispatcher.py: MoEFlexTokenDispatcher).
 */
static void dispatcher(struct export *x)
{
    const char *words = switch_words(x, TARGET_dispatcher);
    bool once = job_is_modelled(x->job) && x->job->wishes.profile->ep_once_per_node > 0.5;
    if (x->plan && x->plan->decision.ep * x->plan->decision.etp == 1)
        flag(x, F_alltoall);
    else if (words)
        put_switch(x, words);
    else
        flag(x, once ? F_deepep : F_alltoall);
}

static void router(struct export *x, const struct moe *e)
{
    if (e->router == ROUTER_SIGMOID)
        flag(x, F_sigmoid);
    else if (!e->normalize)
        flag(x, F_pre_softmax);
    else if (e->active == 1) /* transformer_config.py: without --moe-router-pre-softmax its gradient would be zero */
        export_refuse(x, "one expert per token whose weight is divided by the sum of weights");
    if (e->router == ROUTER_SIGMOID && !e->normalize)
        export_refuse(x, "a sigmoid router whose weights are not divided by their sum");
    if (e->groups > 1) {
        count(x, F_groups, e->groups);
        count(x, F_group_topk, e->pick);
    }
    if (e->scale != 1)
        real(x, F_topk_factor, e->scale);
    if (e->bias)
        real(x, F_bias_rate, e->rate);
    if (e->bias && e->router != ROUTER_SIGMOID) /* transformer_config.py: moe_router_enable_expert_bias */
        export_refuse(x, "a bias of experts beside a softmax");
    if (e->balance > 0)
        real(x, F_balance, e->balance);
    else
        flag(x, F_no_balance);
    if (e->linear_bias)
        export_refuse(x, "an offset in the router's product");
    if (e->capacity > 0)
        real(x, F_capacity, e->capacity);
    flag(x, F_router_numbers);
    if (x->job->train.precision == DT_BF16 || x->job->train.precision == DT_FP8) /* arguments.py: for bf16 alone */
        flag(x, F_grouped);
    dispatcher(x);
}

/* which layers have experts: "([0]*3+[1]*58)", or as a list */
static void frequency(struct export *x, const struct model *m)
{
    struct strbuf list = {0};
    for (uint32_t i = 0, n; i < m->nlayers; i += n) {
        bool experts = m->layers[i]->is_moe;
        for (n = 0; i + n < m->nlayers && m->layers[i + n]->is_moe == experts; n++)
            if (bridges(x))
                strbuf_printf(&list, "%s%d", i + n ? "," : "", experts);
        if (!bridges(x))
            strbuf_printf(&list, "%s[%d]*%u", i ? "+" : "", experts, n);
    }
    say(x, F_expert_layers, bridges(x) ? "[%s]" : "(%s)", list.text);
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
    count(x, F_ffn_hidden_size, f->width);
    inner(x, f, &m->layers[0]->attn);
    if (!experts)
        return;
    const struct moe *e = &experts->moe;
    if (e->expert.act != f->act || e->expert.bias != f->bias)
        export_refuse(x, "experts of another kind than dense layers");
    count(x, F_experts, e->experts);
    count(x, F_topk, e->active);
    count(x, F_expert_hidden_size, e->expert.width);
    if (e->shared)
        count(x, F_shared_hidden_size, e->shared * e->expert.width);
    frequency(x, m);
    router(x, e);
}

static void model(struct export *x, const struct model *m)
{
    count(x, F_num_layers, m->nlayers);
    count(x, F_hidden_size, m->width);
    count(x, F_vocab_size, m->vocab);
    flag(x, F_pads_vocab);
    say(x, F_normalization, m->norm.kind == NORM_RMS ? "RMSNorm" : "LayerNorm");
    real(x, F_norm_epsilon, m->norm.eps);
    flag(x, F_no_dropout);
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
        flag(x, F_untied);
    if (m->predict) {
        count(x, F_predict, m->predict);
        real(x, F_predict_weight, m->predict_weight);
    }
    if (m->embed_scale != 1 || m->embed_norm)
        export_refuse(x, "a factor on, or a norm of, the embedding");
    if (m->head_bias || m->head_softcap > 0 || m->head_scale != 1)
        export_refuse(x, "a head with offset, soft cap or factor");
}

/* ---- training ---- */

/* what Bridge's mixed_precision recipes fix otherwise */
static void refuse_precision(struct export *x, const struct train *t)
{
    if (t->precision == DT_FP16)
        export_refuse(x, "fp16, whose gradients its recipe keeps in 16 bits");
    if (t->precision == DT_FP8 && t->recipe == FP8_TENSOR)
        export_refuse(x, "fp8 with a scale for each tensor in all layers");
    if (t->precision == DT_FP8 && t->recipe == FP8_BLOCK)
        export_refuse(x, "fp8 by blocks, in E4M3 alone");
    if (t->precision != DT_FP32 && t->grads != DT_FP32)
        export_refuse(x, "gradients in bf16");
}

static void precision(struct export *x, const struct train *t)
{
    static const int recipes[] = {
        [FP8_TENSOR] = F_fp8_tensor, [FP8_ROW] = -1, [FP8_BLOCK] = F_fp8_block, [FP8_MX] = F_fp8_mx};
    bool half = t->precision != DT_FP32;
    if (bridges(x))
        refuse_precision(x, t);
    if (!half || t->precision == DT_BF16)
        flag(x, half ? F_bf16 : F_fp32);
    if (t->precision == DT_FP8 && recipes[t->recipe] >= 0)
        flag(x, (enum field)recipes[t->recipe]);
    if (t->precision == DT_FP16) {
        real(x, F_fp16, t->loss_scale);
        count(x, F_scale_window, t->scale_window);
        count(x, F_scale_hysteresis, t->scale_hysteresis);
    }
    if (half)
        flag(x, t->grads == DT_FP32 ? F_grads_fp32 : F_grads_bf16);
    if (t->precision == DT_FP16 && t->grads != DT_FP32)
        export_refuse(x, "gradients in 16 bits under fp16");
    if (t->moments == DT_BF16)
        flag(x, F_moments_bf16);
}

static void learning_rate(struct export *x, const struct train *t)
{
    static const char *const styles[] = {"constant", "linear", "cosine", "WSD"};
    real(x, F_lr, t->lr);
    say(x, F_lr_style, "%s", styles[t->lr_kind]);
    count(x, F_warmup, t->lr_warmup);
    real(x, F_min_lr, t->lr_kind == LR_CONSTANT ? 0 : t->lr_min);
    if (t->lr_kind == LR_WSD) {
        count(x, F_decay_steps, t->lr_warmup + t->lr_stable + t->lr_decay);
        count(x, F_wsd_steps, t->lr_decay);
    } else if (t->lr_kind != LR_CONSTANT && t->lr_decay)
        count(x, F_decay_steps, t->lr_decay);
}

static void training(struct export *x, const struct train *t)
{
    count(x, F_sequence, t->sequence);
    count(x, F_batch, t->batch);
    if (t->total > 0)
        say(x, F_steps, "%.0f", ceil(t->total / ((double)t->sequence * (double)t->batch)));
    else
        say(x, F_steps, "\"${TRAIN_ITERS:?says how many steps to take}\"");
    precision(x, t);
    if (t->optimizer == OPT_SGD)
        real(x, F_momentum, t->momentum);
    if (t->optimizer == OPT_ADAMW) {
        real(x, F_beta1, t->beta1);
        real(x, F_beta2, t->beta2);
        real(x, F_epsilon, t->eps);
    }
    real(x, F_weight_decay, t->optimizer == OPT_ADAMW ? t->weight_decay : 0);
    learning_rate(x, t);
    real(x, F_clip, t->clip);
    real(x, F_init_std, t->init_std);
    if (!t->init_residual)
        export_refuse(x, "residual outputs that start like other weights");
    count(x, F_seed, t->seed);
}

/* ---- layout ---- */

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
    if (d->schedule == SCHED_COMBINED_1F1B && !switch_words(x, TARGET_expert_overlap))
        flag(x, F_expert_overlap);
    if (d->pp > 1)
        say(x, F_layout, "%s", layout(x));
    if (d->pp > 1 && d->vpp > 1)
        count(x, F_vpp, d->vpp);
    if (d->vpp > 1 && d->schedule_group && d->schedule_group != d->pp)
        count(x, F_group, d->schedule_group);
}

/* What moves gradients and parameters beside compute.  Megatron-FSDP asserts the former where it shards gradients, and
 * turns on both where it shards parameters (megatron/core/distributed/fsdp/src/megatron_fsdp). */
static void overlap_state(struct export *x, const struct decision *d)
{
    bool never = x->job->wishes.never_overlap & OVERLAP_DP;
    if (never && d->zero >= 2)
        export_refuse(x, "never overlap dp with zero %u", d->zero);
    if (never || (d->dp * d->cp == 1 && d->zero < 2))
        return;
    flag(x, F_overlap_gradients);
    if (d->zero)
        flag(x, F_overlap_parameters);
}

/* Moments in bf16 and state in host memory are for the precision-aware optimizer, and that one for the distributed
 * optimizer, which a single replica may have as well (megatron/core/optimizer/optimizer_config.py). */
static void state(struct export *x, const struct decision *d)
{
    static const enum field levels[] = {F_zero_0, F_zero_1, F_zero_2, F_zero_3};
    uint32_t ranks = d->dp * d->cp;
    bool offload = x->job->wishes.offload & OFFLOAD_OPTIMIZER, moments = x->job->train.moments == DT_BF16,
         aware = switch_words(x, TARGET_precision_aware);
    flag(x, d->zero == 0 && (offload || moments || aware) ? F_zero_1 : levels[d->zero]);
    if (d->zero == 1 && d->shard && d->shard < ranks)
        count(x, F_instances, ranks / d->shard);
    overlap_state(x, d);
    if (offload && !moments && !aware)
        flag(x, F_precision_aware);
    if (offload)
        flag(x, F_offload);
}

static void recompute_parts(struct export *x, const struct decision *d)
{
    static const struct {
        uint32_t part;
        const char *module;
    } modules[] = {
        {PART_NORM, "layernorm"}, {PART_CORE_ATTN, "core_attn"}, {PART_MLA_UP, "mla_up_proj"},   {PART_FFN, "mlp"},
        {PART_MOE, "moe"},        {PART_MOE_ACT, "moe_act"},     {PART_SHARED, "shared_experts"}};
    const char *list = "", *between = bridges(x) ? "," : " "; /* a list, or a word each */
    for (size_t k = 0; k < ARRAY_LEN(modules); k++)
        if (d->parts & modules[k].part)
            list = arena_printf(x->arena, "%s%s%s", list, *list ? between : "", modules[k].module);
    say(x, F_recompute_modules, bridges(x) ? "[%s]" : "%s", list);
}

static void recompute(struct export *x, const struct decision *d)
{
    bool spares = false;
    uint32_t again = 0; /* layers of a chunk at most */
    for (uint32_t k = 0; k < d->nstages; k++) {
        const struct stage *st = &d->stages[k];
        spares |= st->spared > 0;
        again = st->count - st->spared > again ? st->count - st->spared : again;
    }
    if (d->recompute == RECOMPUTE_FULL && !spares)
        flag(x, F_recompute_all);
    else if (d->recompute == RECOMPUTE_FULL)
        count(x, F_recompute_first, again);
    else if (d->recompute == RECOMPUTE_SELECTIVE)
        recompute_parts(x, d);
}

/* what the target's switches write, but the dispatcher, which router() has written; without tensor parallelism its own
 * are asserted to be off (megatron/training/arguments.py) */
static void switches(struct export *x)
{
    for (enum target_row row = TARGET_SETTINGS; row < TARGET_ROWS; row++) {
        bool idle = target_setting_of(row) == TARGET_OF_TP && x->plan->decision.tp == 1;
        const char *words = row == TARGET_dispatcher || idle ? NULL : switch_words(x, row);
        if (words)
            put_switch(x, words);
        if (words && row == TARGET_cuda_graphs) /* Bridge's gpt_provider.py asserts what arguments.py sets by itself */
            flag(x, F_graphs_random);
    }
}

/* are transfers of experts beside another microbatch's compute? */
static bool overlaps_experts(const struct export *x)
{
    return decision_pairs(x->plan->decision.schedule) || switch_words(x, TARGET_expert_overlap);
}

/* what excludes a third thing, which no line of the target says */
static void refuse_graphs(struct export *x, const struct decision *d)
{
    const struct attn *a = &x->job->model.layers[0]->attn;
    const char *graphs = switch_words(x, TARGET_cuda_graphs);
    if (!graphs || !strstr(graphs, "transformer_engine"))
        return;
    if (d->zero >= 2 && overlaps_experts(x)) /* mcore_fsdp_adapter.py */
        export_refuse(x, "graphs of layers with zero %u and transfers of experts beside compute", d->zero);
    if (strstr(graphs, " attn") && switch_words(x, TARGET_delay_wgrad) && (a->bias || a->qkv_bias)) /* arguments.py */
        export_refuse(x, "graphs of attention with offsets beside delayed weight gradients");
}

static void parallel(struct export *x, const struct decision *d)
{
    static const char *const contexts[] = {[CONTEXT_AUTO] = "p2p",
                                           [CONTEXT_RING] = "p2p",
                                           [CONTEXT_ALL_GATHER] = "all_gather",
                                           [CONTEXT_ALL_TO_ALL] = "a2a"};
    count(x, F_microbatch, d->microbatch);
    count(x, F_tp, d->tp);
    if (d->sp)
        flag(x, F_sp);
    count(x, F_cp, d->cp);
    count(x, F_pp, d->pp);
    if (d->cp > 1)
        say(x, F_cp_comm_type, "%s", contexts[d->context]);
    if (model_has_experts(&x->job->model)) {
        count(x, F_ep, d->ep);
        count(x, F_etp, d->etp);
    }
    if (x->job->wishes.overlap & OVERLAP_TP && d->tp > 1 && !switch_words(x, TARGET_tp_comm_overlap)) {
        flag(x, F_tp_overlap);
        if (!d->sp)
            export_refuse(x, "overlap tp without sequence parallelism");
    }
    if (means_order(d) == MEANS_TP_CP_PP_DP)
        flag(x, F_pp_before_dp);
    if (model_has_experts(&x->job->model) && x->job->model.predict > 1 && overlaps_experts(x)) /* TransformerConfig */
        export_refuse(x, "several prediction modules with transfers of experts beside compute");
    schedule(x, d);
    state(x, d);
    recompute(x, d);
    switches(x);
    refuse_graphs(x, d);
}

void export_megatron_job(struct export *x)
{
    model(x, &x->job->model);
    training(x, &x->job->train);
}

/* Transfers of tp and cp start in the order of kernels only from one queue of the device: up to Hopper Megatron-LM
 * asserts it.  Megatron-FSDP asserts that there are several, and pairs of microbatches are faster with them
 * (megatron/training/arguments.py). */
static void write_queues(struct export *x, const struct decision *d)
{
    uint32_t sm = x->plan->topo->types[d->type].gpu.sm;
    if (d->zero >= 2)
        strbuf_text(&x->text, "unset CUDA_DEVICE_MAX_CONNECTIONS\n");
    else if ((d->tp > 1 || d->cp > 1) && sm < 100 && !overlaps_experts(x))
        strbuf_text(&x->text, "export CUDA_DEVICE_MAX_CONNECTIONS=1\n");
}

static void write_script(struct export *x, const char *program)
{
    const struct decision *d = &x->plan->decision;
    export_refuse_lacking(x, "megatron-core", NULL);
    strbuf_printf(
        &x->text,
        "#!/bin/sh\n"
        "# %s on %u GPUs of %s, as llmc planned it: on every node, with NODE_RANK, MASTER_ADDR and MASTER_PORT set, in\n"
        "# the order of `llmc export --to hosts`.  Data, tokenizer, checkpoints and logging follow as arguments.\n",
        x->job->model.name, d->gpus_used, export_cluster(x));
    write_queues(x, d);
    strbuf_printf(&x->text,
                  "exec torchrun --nnodes %u --nproc-per-node %u --node-rank \"${NODE_RANK:?}\" \\\n"
                  "    --master-addr \"${MASTER_ADDR:?}\" --master-port \"${MASTER_PORT:-6000}\" %s \\\n    ",
                  d->nnodes, export_gpus_per_node(x), program);
    export_megatron_job(x);
    parallel(x, d);
    strbuf_text(&x->text, " \\\n    \"$@\"\n");
}

void export_megatron(struct export *x)
{
    write_script(x, "pretrain_gpt.py");
}

void export_bridge(struct export *x)
{
    x->dialect = EXPORT_BRIDGE;
    write_script(x, "scripts/training/run_recipe.py \\\n    --recipe vanilla_gpt_pretrain_config --mode pretrain");
}
