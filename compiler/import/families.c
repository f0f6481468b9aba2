/* What the fields of each family of models mean, as Hugging Face's transformers builds them (modeling_*.py and
 * configuration_*.py of the family; defaults are those of its configuration class). */

#include "compiler/import/families.h"

#include <math.h>
#include <string.h>

enum { MOST_LAYERS = 10000 };

/* ---- parts that families share ---- */

static const char layers[] = "num_hidden_layers|n_layer|n_layers";

/* Sizes, and one layer that all layers are copies of at first. */
static struct described_layer *sizes(struct fields *f, struct described *m)
{
    m->vocab = fields_count(f, "vocab_size", FIELD_REQUIRED);
    m->width = fields_count(f, "hidden_size|n_embd|n_embed|d_model", FIELD_REQUIRED);
    m->nlayers = fields_count(f, layers, FIELD_REQUIRED);
    m->sequence = fields_count(f, "max_position_embeddings|n_positions|n_ctx|seq_length|max_seq_len", 0);
    if (m->nlayers > MOST_LAYERS)
        fields_error(f, layers, "more than %d layers", MOST_LAYERS);
    m->nlayers = m->nlayers > MOST_LAYERS ? MOST_LAYERS : m->nlayers;
    m->layers = ARENA_ARRAY(f->arena, struct described_layer, m->nlayers + 1u);
    struct described_attention *x = &m->layers[0].attention;
    x->heads = fields_count(f, "num_attention_heads|n_head|n_heads", FIELD_REQUIRED);
    x->kv = fields_count(f, "num_key_value_heads", x->heads);
    x->head = fields_count(f, "head_dim", x->heads ? m->width / x->heads : 0);
    return &m->layers[0];
}

static void copy_layers(struct described *m)
{
    for (uint32_t i = 1; i < m->nlayers; i++)
        m->layers[i] = m->layers[0];
}

static void rms(struct fields *f, struct described *m, double eps)
{
    m->eps = fields_real(f, "rms_norm_eps", eps);
}

static void layernorm(struct fields *f, struct described *m, const char *eps, bool bias)
{
    m->layernorm = true;
    m->norm_bias = bias;
    m->eps = fields_real(f, eps, 1e-5);
}

/* The activation of the inner layer, gated or not. */
static void activation(struct fields *f, struct described_ffn *ffn, const char *field, const char *usual, bool gated)
{
    const char *word = fields_word(f, field, usual);
    static const struct {
        const char *word, *plain, *gated;
        bool exact;
    } known[] = {{"silu", NULL, "swiglu", false},       {"swish", NULL, "swiglu", false},
                 {"gelu", "gelu", "geglu", true},       {"gelu_new", "gelu", "geglu", false},
                 {"gelu_fast", "gelu", "geglu", false}, {"gelu_pytorch_tanh", "gelu", "geglu", false},
                 {"relu", "relu", NULL, false},         {"relu2", "relu2", NULL, false}};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (!strcmp(word, known[i].word) && (gated ? known[i].gated : known[i].plain)) {
            ffn->kind = gated ? known[i].gated : known[i].plain;
            ffn->exact = known[i].exact;
            return;
        }
    ffn->kind = gated ? "swiglu" : "gelu";
    fields_refuse(f, field, "activation '%.60s'%s", word, gated ? " in a gated layer" : "");
}

static const char *yarn(struct fields *s, uint32_t positions)
{
    double factor = fields_real(s, "factor", 1);
    uint32_t original = fields_count(s, "original_max_position_embeddings", positions);
    double fast = fields_real(s, "beta_fast", 32), slow = fields_real(s, "beta_slow", 1);
    double scale = fields_real(s, "mscale", 1), all = fields_real(s, "mscale_all_dim", 0);
    if (fields_has(s, "attention_factor"))
        fields_refuse(s, "attention_factor", "a magnitude of its own for stretched positions");
    if (!fields_flag(s, "truncate", true))
        fields_refuse(s, "truncate", "bounds of stretched frequencies that are not rounded");
    const char *text = arena_printf(s->arena, "yarn(factor=%s, original=%u", describe_number(s->arena, factor),
                                    original);
    const struct {
        const char *name;
        double value, usual;
    } more[] = {{"fast", fast, 32}, {"slow", slow, 1}, {"mscale", scale, 1}, {"mscale_all", all, 0}};
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        if (more[i].value != more[i].usual)
            text = arena_printf(s->arena, "%s, %s=%s", text, more[i].name, describe_number(s->arena, more[i].value));
    return arena_printf(s->arena, "%s)", text);
}

/* Stretching to longer sequences: of "rope_scaling", or of the newer "rope_parameters", which hold theta as well. */
static const char *stretching(struct fields *f, const char *field, struct fields *s, uint32_t positions)
{
    const char *kind = fields_word(s, "rope_type|type", "default");
    const char *text = NULL;
    fields_ignore(s, "rope_theta type");
    if (!strcmp(kind, "linear"))
        text = arena_printf(f->arena, "linear(factor=%s)", describe_number(f->arena, fields_real(s, "factor", 1)));
    else if (!strcmp(kind, "yarn"))
        text = yarn(s, positions);
    else if (!strcmp(kind, "llama3"))
        text = arena_printf(f->arena, "llama3(factor=%s, low=%s, high=%s, original=%u)",
                            describe_number(f->arena, fields_real(s, "factor", 8)),
                            describe_number(f->arena, fields_real(s, "low_freq_factor", 1)),
                            describe_number(f->arena, fields_real(s, "high_freq_factor", 4)),
                            fields_count(s, "original_max_position_embeddings", positions));
    else if (strcmp(kind, "default") != 0) {
        fields_refuse(f, field, "positions stretched in the way '%.60s'", kind);
        return NULL;
    }
    fields_rest(s);
    return text;
}

static struct described_rope rope(struct fields *f, const struct described *m, double theta, const char *share,
                                  double usual_share, uint32_t head)
{
    struct described_rope r = {0};
    struct fields parameters = fields_of(f, "rope_parameters"), scaling = fields_of(f, "rope_scaling");
    r.theta = fields_real(&parameters, "rope_theta", fields_real(f, "rope_theta|rotary_emb_base", theta));
    double part = share ? fields_real(&parameters, share, fields_real(f, share, usual_share)) : 1;
    uint32_t dims = (uint32_t)lrint(fmin(fmax(part, 0), 1) * head);
    r.dims = dims == head ? 0 : dims / 2 * 2;
    if (parameters.object)
        r.scaling = stretching(f, "rope_parameters", &parameters, m->sequence);
    if (scaling.object)
        r.scaling = stretching(f, "rope_scaling", &scaling, m->sequence);
    for (size_t i = 0; i < parameters.notes.n + scaling.notes.n; i++)
        vec_push(f->arena, &f->notes,
                 i < parameters.notes.n ? parameters.notes.at[i] : scaling.notes.at[i - parameters.notes.n]);
    return r;
}

static void tied(struct fields *f, struct described *m, bool otherwise)
{
    m->tied = fields_flag(f, "tie_word_embeddings", otherwise);
}

/* Layers that see a window: by the newer "layer_types", else each for which sliding(i) holds. */
static void windows(struct fields *f, struct described *m, uint32_t window, uint32_t pattern, uint32_t whole)
{
    json_t *types = fields_list(f, "layer_types");
    for (uint32_t i = 0; i < m->nlayers; i++) {
        const char *type = types ? json_string_value(json_array_get(types, i)) : NULL;
        bool slides = type ? !strcmp(type, "sliding_attention") : i % pattern != whole;
        if (type && !slides && strcmp(type, "full_attention") != 0) {
            fields_refuse(f, "layer_types", "layers of kind '%.60s'", type);
            return;
        }
        m->layers[i].attention.window = slides ? window : 0;
    }
}

/* ---- families ---- */

static void llama(struct fields *f, struct described *m)
{
    struct described_layer *l = sizes(f, m);
    rms(f, m, 1e-6);
    l->ffn.width = fields_count(f, "intermediate_size", FIELD_REQUIRED);
    l->ffn.bias = fields_flag(f, "mlp_bias", false);
    l->attention.bias = fields_flag(f, "attention_bias|bias", false);
    activation(f, &l->ffn, "hidden_act", "silu", true);
    l->attention.rope = rope(f, m, 10000, NULL, 1, l->attention.head);
    tied(f, m, false);
    copy_layers(m);
}

static void mistral(struct fields *f, struct described *m)
{
    llama(f, m);
    uint32_t window = fields_count(f, "sliding_window", 0);
    for (uint32_t i = 0; i < m->nlayers; i++)
        m->layers[i].attention.window = window < m->sequence ? window : 0;
}

/* experts in place of a dense layer of the same kind */
static void experts(struct described_layer *l, uint32_t n, uint32_t active, uint32_t width)
{
    l->experts = n;
    l->active = active;
    l->ffn.width = width;
}

static void mixtral(struct fields *f, struct described *m)
{
    mistral(f, m);
    uint32_t n = fields_count(f, "num_local_experts", 8), active = fields_count(f, "num_experts_per_tok", 2);
    for (uint32_t i = 0; i < m->nlayers; i++)
        experts(&m->layers[i], n, active, m->layers[i].ffn.width);
    if (fields_real(f, "router_jitter_noise", 0) > 0)
        fields_refuse(f, "router_jitter_noise", "noise in the router");
}

static void qwen2(struct fields *f, struct described *m)
{
    llama(f, m);
    bool slides = fields_flag(f, "use_sliding_window", false);
    uint32_t window = fields_count(f, "sliding_window", 4096), from = fields_count(f, "max_window_layers", 28);
    fields_ignore(f, "layer_types");
    for (uint32_t i = 0; i < m->nlayers; i++) {
        m->layers[i].attention.qkv_bias = true;
        m->layers[i].attention.window = slides && i >= from ? window : 0;
    }
}

static void qwen3(struct fields *f, struct described *m)
{
    qwen2(f, m);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        m->layers[i].attention.qkv_bias = false;
        m->layers[i].attention.qk_norm = "head";
    }
}

static void qwen3_moe(struct fields *f, struct described *m)
{
    qwen3(f, m);
    uint32_t n = fields_count(f, "num_experts|num_local_experts", FIELD_REQUIRED),
             active = fields_count(f, "num_experts_per_tok", 8), step = fields_count(f, "decoder_sparse_step", 1),
             width = fields_count(f, "moe_intermediate_size", FIELD_REQUIRED);
    bool plain = !fields_flag(f, "norm_topk_prob", false);
    json_t *dense = fields_list(f, "mlp_only_layers");
    for (uint32_t i = 0; i < m->nlayers; i++) {
        bool only = !step || (i + 1) % step != 0;
        for (size_t k = 0; k < json_array_size(dense); k++)
            only |= json_integer_value(json_array_get(dense, k)) == (json_int_t)i;
        m->layers[i].plain = !only && plain;
        if (!only)
            experts(&m->layers[i], n, active, width);
    }
}

static void qwen2_moe(struct fields *f, struct described *m)
{
    qwen3_moe(f, m);
    fields_refuse(f, "shared_expert_intermediate_size", "a shared expert behind a gate of its own");
    for (uint32_t i = 0; i < m->nlayers; i++) {
        m->layers[i].attention.qkv_bias = true;
        m->layers[i].attention.qk_norm = NULL;
    }
}

static void gemma(struct fields *f, struct described *m)
{
    struct described_layer *l = sizes(f, m);
    rms(f, m, 1e-6);
    l->ffn.width = fields_count(f, "intermediate_size", FIELD_REQUIRED);
    /* the first release has "gelu" in hidden_act and means the tanh form */
    fields_ignore(f, "hidden_act");
    activation(f, &l->ffn, "hidden_activation", "gelu_pytorch_tanh", true);
    l->attention.head = fields_count(f, "head_dim", 256);
    l->attention.bias = fields_flag(f, "attention_bias", false);
    l->attention.rope = rope(f, m, 10000, NULL, 1, l->attention.head);
    m->embed_scale = true;
    tied(f, m, true);
    copy_layers(m);
}

static void gemma2(struct fields *f, struct described *m)
{
    gemma(f, m);
    m->place = "both";
    m->head_softcap = fields_real(f, "final_logit_softcapping", 0);
    double softcap = fields_real(f, "attn_logit_softcapping", 0), scale = fields_real(f, "query_pre_attn_scalar", 256);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        m->layers[i].attention.softcap = softcap;
        m->layers[i].attention.scale = scale == m->layers[i].attention.head ? 0 : scale;
    }
    windows(f, m, fields_count(f, "sliding_window", 4096), 2, 1);
}

static void gemma3(struct fields *f, struct described *m)
{
    gemma2(f, m);
    uint32_t pattern = fields_count(f, "sliding_window_pattern", 6);
    double near = fields_real(f, "rope_local_base_freq", 10000);
    windows(f, m, fields_count(f, "sliding_window", 4096), pattern ? pattern : 1, pattern ? pattern - 1 : 0);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        m->layers[i].attention.qk_norm = "head";
        if (m->layers[i].attention.window)
            m->layers[i].attention.rope = (struct described_rope){.theta = near};
    }
    if (fields_flag(f, "use_bidirectional_attention", false))
        fields_refuse(f, "use_bidirectional_attention", "attention that sees what follows");
}

static void olmo2(struct fields *f, struct described *m)
{
    llama(f, m);
    m->place = "post";
    for (uint32_t i = 0; i < m->nlayers; i++)
        m->layers[i].attention.qk_norm = "full";
}

static void olmoe(struct fields *f, struct described *m)
{
    llama(f, m);
    uint32_t n = fields_count(f, "num_experts", 64), active = fields_count(f, "num_experts_per_tok", 8);
    bool plain = !fields_flag(f, "norm_topk_prob", false);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        m->layers[i].attention.qk_norm = "full";
        m->layers[i].plain = plain;
        experts(&m->layers[i], n, active, m->layers[i].ffn.width);
    }
    if (fields_has(f, "clip_qkv"))
        fields_refuse(f, "clip_qkv", "queries, keys and values that are clipped");
}

static void phi3(struct fields *f, struct described *m)
{
    mistral(f, m);
    struct described_attention *x = &m->layers[0].attention;
    x->rope = rope(f, m, 10000, "partial_rotary_factor", 1, x->head);
    fields_ignore(f, "original_max_position_embeddings");
    copy_layers(m);
}

static void smollm3(struct fields *f, struct described *m)
{
    qwen2(f, m);
    json_t *with = fields_list(f, "no_rope_layers"); /* 1 where a layer has positions */
    uint32_t step = fields_count(f, "no_rope_layer_interval", 4);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        bool has = with ? json_integer_value(json_array_get(with, i)) != 0 : !step || (i + 1) % step != 0;
        m->layers[i].attention.qkv_bias = false;
        if (!has)
            m->layers[i].attention.rope = (struct described_rope){0};
    }
}

static void seed(struct fields *f, struct described *m)
{
    llama(f, m);
    bool out = fields_flag(f, "attention_out_bias", false);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        struct described_attention *x = &m->layers[i].attention;
        x->qkv_bias = x->bias;
        x->bias = x->bias && out;
    }
    if (out && !m->layers[0].attention.qkv_bias)
        fields_refuse(f, "attention_out_bias", "an offset of attention's output alone");
}

static void granite(struct fields *f, struct described *m)
{
    llama(f, m);
    double embedding = fields_real(f, "embedding_multiplier", 1), logits = fields_real(f, "logits_scaling", 1),
           scores = fields_real(f, "attention_multiplier", 1);
    m->embed_factor = embedding == 1 ? 0 : embedding;
    m->head_scale = logits ? 1 / logits : 1;
    for (uint32_t i = 0; i < m->nlayers && scores > 0; i++)
        m->layers[i].attention.scale = 1 / (scores * scores);
    if (fields_real(f, "residual_multiplier", 1) != 1)
        fields_refuse(f, "residual_multiplier", "a factor on what sublayers add");
}

static void glm4(struct fields *f, struct described *m)
{
    llama(f, m);
    m->place = "both";
    struct described_attention *x = &m->layers[0].attention;
    x->rope = rope(f, m, 10000, "partial_rotary_factor", 0.5, x->head);
    x->rope.adjacent = true;
    x->qkv_bias = x->bias; /* none on the output */
    x->bias = false;
    copy_layers(m);
}

static void glm(struct fields *f, struct described *m)
{
    glm4(f, m);
    m->place = NULL;
}

/* the router of DeepSeek-V3, and dense layers in front */
static void deepseek_experts(struct fields *f, struct described *m, bool sigmoid)
{
    uint32_t n = fields_count(f, "n_routed_experts", FIELD_REQUIRED),
             active = fields_count(f, "num_experts_per_tok", FIELD_REQUIRED),
             shared = fields_count(f, "n_shared_experts", 0), dense = fields_count(f, "first_k_dense_replace", 0),
             step = fields_count(f, "moe_layer_freq", 1),
             width = fields_count(f, "moe_intermediate_size", FIELD_REQUIRED), groups = fields_count(f, "n_group", 1),
             pick = fields_count(f, "topk_group", 1);
    double scale = fields_real(f, "routed_scaling_factor", 1);
    bool plain = !fields_flag(f, "norm_topk_prob", sigmoid);
    const char *method = fields_word(f, "topk_method", sigmoid ? "noaux_tc" : "greedy"),
               *scores = fields_word(f, "scoring_func", sigmoid ? "sigmoid" : "softmax");
    if (!strcmp(method, "group_limited_greedy") && groups > 1)
        fields_refuse(f, "topk_method", "groups of experts picked by their best one");
    if (!strcmp(method, "greedy"))
        groups = pick = 1;
    for (uint32_t i = dense; i < m->nlayers; i++) {
        struct described_layer *l = &m->layers[i];
        if (step && i % step)
            continue;
        experts(l, n, active, width);
        l->shared = shared;
        l->sigmoid = !strcmp(scores, "sigmoid");
        l->router_bias = !strcmp(method, "noaux_tc");
        l->groups = groups;
        l->pick = pick;
        l->router_scale = scale;
        l->plain = plain;
    }
    m->predict = fields_count(f, "num_nextn_predict_layers", 0);
    fields_ignore(f, "ep_size seq_aux aux_loss_alpha");
}

static void deepseek(struct fields *f, struct described *m, bool sigmoid)
{
    llama(f, m);
    struct described_attention *x = &m->layers[0].attention;
    x->mla = true;
    x->q_rank = fields_count(f, "q_lora_rank", 0);
    x->kv_rank = fields_count(f, "kv_lora_rank", 512);
    x->nope = fields_count(f, "qk_nope_head_dim", 128);
    x->rope_dims = fields_count(f, "qk_rope_head_dim", 64);
    x->v = fields_count(f, "v_head_dim", 128);
    fields_ignore(f, "head_dim rope_interleave qk_head_dim");
    copy_layers(m);
    deepseek_experts(f, m, sigmoid);
}

static void deepseek_v2(struct fields *f, struct described *m)
{
    deepseek(f, m, false);
}

static void deepseek_v3(struct fields *f, struct described *m)
{
    deepseek(f, m, true);
}

static void glm4_moe(struct fields *f, struct described *m)
{
    glm4(f, m);
    m->place = NULL;
    bool norms = fields_flag(f, "use_qk_norm", false);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        m->layers[i].attention.qk_norm = norms ? "head" : NULL;
        m->layers[i].attention.rope.adjacent = false;
    }
    deepseek_experts(f, m, true);
}

static void gpt_oss(struct fields *f, struct described *m)
{
    llama(f, m);
    uint32_t n = fields_count(f, "num_local_experts", 128),
             active = fields_count(f, "num_experts_per_tok|experts_per_token", 4);
    double limit = fields_real(f, "swiglu_limit", 7);
    fields_ignore(f, "initial_context_length experts_per_token");
    for (uint32_t i = 0; i < m->nlayers; i++) {
        struct described_layer *l = &m->layers[i];
        l->attention.sinks = true;
        l->linear_bias = true;
        l->ffn.bias = true;
        l->ffn.limit = limit;
        l->ffn.alpha = 1.702;
        l->ffn.offset = 1;
        experts(l, n, active, l->ffn.width);
    }
    windows(f, m, fields_count(f, "sliding_window", 128), 2, 1);
}

static void cohere(struct fields *f, struct described *m)
{
    llama(f, m);
    layernorm(f, m, "layer_norm_eps", false);
    m->parallel = 1;
    m->head_scale = fields_real(f, "logit_scale", 0.0625);
    tied(f, m, true);
    for (uint32_t i = 0; i < m->nlayers; i++)
        m->layers[i].attention.rope.adjacent = true;
    if (fields_flag(f, "use_qk_norm", false))
        fields_refuse(f, "use_qk_norm", "layer norms of queries and keys");
}

static void cohere2(struct fields *f, struct described *m)
{
    cohere(f, m);
    uint32_t pattern = fields_count(f, "sliding_window_pattern", 4);
    windows(f, m, fields_count(f, "sliding_window", 4096), pattern ? pattern : 1, pattern ? pattern - 1 : 0);
    for (uint32_t i = 0; i < m->nlayers; i++)
        if (!m->layers[i].attention.window) /* what sees all has no positions */
            m->layers[i].attention.rope = (struct described_rope){0};
}

/* models with layer norms and a plain inner layer of `width` or a multiple of the model's */
static struct described_layer *plain(struct fields *f, struct described *m, const char *eps, const char *width,
                                     bool bias)
{
    struct described_layer *l = sizes(f, m);
    layernorm(f, m, eps, true);
    l->ffn.width = fields_count(f, width, 4 * m->width);
    l->ffn.bias = l->attention.bias = bias;
    return l;
}

static void gpt2(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "layer_norm_epsilon", "n_inner", true);
    activation(f, &l->ffn, "activation_function", "gelu_new", false);
    m->positions = m->sequence = fields_count(f, "n_positions|n_ctx", 1024);
    fields_ignore(f, "n_ctx n_special predict_special_tokens");
    if (!fields_flag(f, "scale_attn_weights", true))
        fields_refuse(f, "scale_attn_weights", "scores that are not scaled");
    if (fields_flag(f, "scale_attn_by_inverse_layer_idx", false))
        fields_refuse(f, "scale_attn_by_inverse_layer_idx", "scores scaled by the layer's number");
    fields_ignore(f, "reorder_and_upcast_attn");
    tied(f, m, true);
    copy_layers(m);
}

static void gpt_bigcode(struct fields *f, struct described *m)
{
    gpt2(f, m);
    bool one = fields_flag(f, "multi_query", true);
    for (uint32_t i = 0; i < m->nlayers && one; i++)
        m->layers[i].attention.kv = 1;
    fields_ignore(f, "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 inference_runner validate_runner_input "
                     "pad_key_length pre_allocate_kv_cache max_batch_size max_sequence_length");
}

static void gpt_neox(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "layer_norm_eps", "intermediate_size", true);
    activation(f, &l->ffn, "hidden_act", "gelu", false);
    l->attention.bias = fields_flag(f, "attention_bias", true);
    l->attention.rope = rope(f, m, 10000, "rotary_pct", 0.25, l->attention.head);
    m->parallel = fields_flag(f, "use_parallel_residual", true) ? 2 : 0;
    tied(f, m, false);
    copy_layers(m);
}

static void gptj(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "layer_norm_epsilon", "n_inner", true);
    activation(f, &l->ffn, "activation_function", "gelu_new", false);
    l->attention.bias = false;
    l->attention.rope = (struct described_rope){.theta = 10000, .adjacent = true};
    l->attention.rope.dims = fields_count(f, "rotary_dim", 64);
    m->parallel = 1;
    m->head_bias = true;
    tied(f, m, false);
    fields_ignore(f, "rotary scale_attn_weights n_ctx");
    copy_layers(m);
}

static void phi(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "layer_norm_eps", "intermediate_size", true);
    activation(f, &l->ffn, "hidden_act", "gelu_new", false);
    l->attention.rope = rope(f, m, 10000, "partial_rotary_factor", 0.5, l->attention.head);
    m->parallel = 1;
    m->head_bias = true;
    tied(f, m, false);
    if (fields_flag(f, "qk_layernorm", false))
        fields_refuse(f, "qk_layernorm", "layer norms of queries and keys");
    copy_layers(m);
}

static void opt(struct fields *f, struct described *m)
{
    bool bias = fields_flag(f, "enable_bias", true);
    struct described_layer *l = plain(f, m, "layer_norm_eps", "ffn_dim", bias);
    activation(f, &l->ffn, "activation_function", "relu", false);
    m->positions = m->sequence + 2; /* its table has two rows more than positions */
    if (!fields_flag(f, "do_layer_norm_before", true))
        fields_refuse(f, "do_layer_norm_before", "norms behind the sum");
    if (!fields_flag(f, "layer_norm_elementwise_affine", true))
        fields_refuse(f, "layer_norm_elementwise_affine", "norms without a gain");
    if (fields_count(f, "word_embed_proj_dim", m->width) != m->width)
        fields_refuse(f, "word_embed_proj_dim", "tokens' vectors of another width than the model's");
    if (fields_flag(f, "_remove_final_layer_norm", false))
        fields_refuse(f, "_remove_final_layer_norm", "no norm in front of the head");
    tied(f, m, true);
    copy_layers(m);
}

static void bloom(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "layer_norm_epsilon", "n_inner", true);
    l->ffn.kind = "gelu";
    l->attention.alibi = true;
    m->embed_norm = true;
    tied(f, m, true);
    if (fields_flag(f, "apply_residual_connection_post_layernorm", false))
        fields_refuse(f, "apply_residual_connection_post_layernorm", "residuals taken behind norms");
    fields_ignore(f, "seq_length pretraining_tp slow_but_exact masked_softmax_fusion unk_token_id offset_alibi "
                     "bias_dropout_fusion attention_softmax_in_fp32 skip_bias_add skip_bias_add_qkv");
    copy_layers(m);
}

static void falcon(struct fields *f, struct described *m)
{
    bool bias = fields_flag(f, "bias", false), decoder = fields_flag(f, "new_decoder_architecture", false),
         one = fields_flag(f, "multi_query", true);
    struct described_layer *l = plain(f, m, "layer_norm_epsilon", "ffn_hidden_size", bias);
    activation(f, &l->ffn, "activation", "gelu", false);
    l->attention.kv = decoder ? fields_count(f, "num_kv_heads|n_head_kv", l->attention.heads)
                      : one   ? 1
                              : l->attention.heads;
    l->attention.alibi = fields_flag(f, "alibi", false);
    fields_ignore(f, "num_kv_heads n_head_kv");
    struct described_rope turned = rope(f, m, 10000, NULL, 1, l->attention.head);
    if (!l->attention.alibi)
        l->attention.rope = turned;
    m->parallel = !fields_flag(f, "parallel_attn", true) ? 0
                                                         : fields_count(f, "num_ln_in_parallel_attn", decoder ? 2 : 1);
    tied(f, m, true);
    copy_layers(m);
}

static void mpt(struct fields *f, struct described *m)
{
    struct described_layer *l = sizes(f, m);
    struct fields a = fields_of(f, "attn_config");
    bool bias = !fields_flag(f, "no_bias", true);
    layernorm(f, m, "layer_norm_epsilon", bias);
    l->ffn.kind = "gelu";
    l->ffn.exact = true;
    l->ffn.width = fields_count(f, "expansion_ratio", 4) * m->width;
    l->ffn.bias = l->attention.bias = bias;
    l->attention.kv = fields_count(&a, "kv_n_heads", l->attention.heads);
    l->attention.alibi = fields_flag(&a, "alibi", false);
    m->positions = l->attention.alibi ? 0 : m->sequence;
    if (fields_has(&a, "clip_qkv"))
        fields_refuse(&a, "clip_qkv", "queries, keys and values that are clipped");
    if (fields_flag(&a, "qk_ln", false))
        fields_refuse(&a, "qk_ln", "layer norms of queries and keys");
    if (fields_has(&a, "softmax_scale"))
        fields_refuse(&a, "softmax_scale", "a scale of its own for scores");
    fields_ignore(&a, "attn_impl attn_pdrop attn_type alibi_bias_max attn_uses_sequence_id prefix_lm model_type");
    fields_rest(&a);
    fields_ignore(
        f, "learned_pos_emb init_config init_device norm_type ffn_config embedding_fraction emb_pdrop resid_pdrop "
           "logit_scale verbose use_cache tokenizer_name");
    tied(f, m, true);
    copy_layers(m);
}

static void starcoder2(struct fields *f, struct described *m)
{
    bool bias = fields_flag(f, "use_bias", true);
    struct described_layer *l = plain(f, m, "norm_epsilon", "intermediate_size", bias);
    activation(f, &l->ffn, "hidden_act", "gelu_pytorch_tanh", false);
    l->attention.rope = rope(f, m, 10000, NULL, 1, l->attention.head);
    uint32_t window = fields_count(f, "sliding_window", 0);
    l->attention.window = window < m->sequence ? window : 0;
    fields_ignore(f, "mlp_type norm_type");
    tied(f, m, true);
    copy_layers(m);
}

static void stablelm(struct fields *f, struct described *m)
{
    llama(f, m);
    layernorm(f, m, "layer_norm_eps", true);
    struct described_attention *x = &m->layers[0].attention;
    x->rope = rope(f, m, 10000, "partial_rotary_factor|rope_pct", 0.25, x->head);
    x->qkv_bias = fields_flag(f, "use_qkv_bias", false);
    m->parallel = fields_flag(f, "use_parallel_residual", false);
    if (fields_flag(f, "qk_layernorm", false))
        fields_refuse(f, "qk_layernorm", "layer norms of queries and keys");
    copy_layers(m);
}

static void nemotron(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "norm_eps", "intermediate_size", false);
    l->ffn.bias = fields_flag(f, "mlp_bias", false);
    l->attention.bias = fields_flag(f, "attention_bias", false);
    activation(f, &l->ffn, "hidden_act", "relu2", false);
    l->attention.rope = rope(f, m, 10000, "partial_rotary_factor|rope_percent", 0.5, l->attention.head);
    tied(f, m, false);
    copy_layers(m);
}

static void ernie(struct fields *f, struct described *m)
{
    llama(f, m);
    bool bias = fields_flag(f, "use_bias", false);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        m->layers[i].attention.bias = m->layers[i].ffn.bias = bias;
        m->layers[i].attention.rope.adjacent = true;
    }
    tied(f, m, true);
}

static const struct family {
    const char *type;
    void (*read)(struct fields *f, struct described *m);
} families[] = {
    {"llama", llama},
    {"mistral", mistral},
    {"mixtral", mixtral},
    {"qwen2", qwen2},
    {"qwen2_moe", qwen2_moe},
    {"qwen3", qwen3},
    {"qwen3_moe", qwen3_moe},
    {"gemma", gemma},
    {"gemma2", gemma2},
    {"gemma3_text", gemma3},
    {"olmo2", olmo2},
    {"olmoe", olmoe},
    {"phi", phi},
    {"phi3", phi3},
    {"smollm3", smollm3},
    {"seed_oss", seed},
    {"granite", granite},
    {"glm", glm},
    {"glm4", glm4},
    {"glm4_moe", glm4_moe},
    {"deepseek_v2", deepseek_v2},
    {"deepseek_v3", deepseek_v3},
    {"kimi_k2", deepseek_v3},
    {"gpt_oss", gpt_oss},
    {"cohere", cohere},
    {"cohere2", cohere2},
    {"gpt2", gpt2},
    {"gpt_bigcode", gpt_bigcode},
    {"gpt_neox", gpt_neox},
    {"gptj", gptj},
    {"opt", opt},
    {"bloom", bloom},
    {"falcon", falcon},
    {"mpt", mpt},
    {"starcoder2", starcoder2},
    {"stablelm", stablelm},
    {"nemotron", nemotron},
    {"internlm2", llama},
    {"ernie4_5", ernie},
};

const char *family_names(struct arena *a)
{
    const char *names = "";
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        names = arena_printf(a, "%s%s%s", names, i ? ", " : "", families[i].type);
    return names;
}

bool family_read(struct fields *f, const char *type, struct described *m)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (!strcmp(type, families[i].type)) {
            families[i].read(f, m);
            return true;
        }
    return false;
}
