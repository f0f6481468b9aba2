/* What the fields of each family of models mean, as Hugging Face's transformers builds them (modeling_*.py and
 * configuration_*.py of the family; defaults are those of its configuration class).  Older families, with layer norms
 * and without gates, are in families_gpt.c. */

#include "compiler/import/parts.h"

#include <math.h>
#include <string.h>

static void llama(struct fields *f, struct described *m)
{
    struct described_layer *l = part_sizes(f, m);
    part_rms(f, m, 1e-6);
    l->ffn.width = fields_count(f, "intermediate_size", FIELD_REQUIRED);
    l->ffn.bias = fields_flag(f, "mlp_bias", false);
    l->attention.bias = fields_flag(f, "attention_bias|bias", false);
    part_activation(f, &l->ffn, "hidden_act", "silu", true);
    l->attention.rope = part_rope(f, m, 10000, NULL, 1, l->attention.head);
    part_tied(f, m, false);
    part_copy_layers(m);
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
    struct described_layer *l = part_sizes(f, m);
    part_rms(f, m, 1e-6);
    l->ffn.width = fields_count(f, "intermediate_size", FIELD_REQUIRED);
    /* the first release has "gelu" in hidden_act and means the tanh form */
    fields_ignore(f, "hidden_act");
    part_activation(f, &l->ffn, "hidden_activation", "gelu_pytorch_tanh", true);
    l->attention.head = fields_count(f, "head_dim", 256);
    l->attention.bias = fields_flag(f, "attention_bias", false);
    l->attention.rope = part_rope(f, m, 10000, NULL, 1, l->attention.head);
    m->embed_scale = true;
    part_tied(f, m, true);
    part_copy_layers(m);
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
    part_windows(f, m, fields_count(f, "sliding_window", 4096), 2, 1);
}

static void gemma3(struct fields *f, struct described *m)
{
    gemma2(f, m);
    uint32_t pattern = fields_count(f, "sliding_window_pattern", 6);
    double near = fields_real(f, "rope_local_base_freq", 10000);
    part_windows(f, m, fields_count(f, "sliding_window", 4096), pattern ? pattern : 1, pattern ? pattern - 1 : 0);
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
    x->rope = part_rope(f, m, 10000, "partial_rotary_factor", 1, x->head);
    fields_ignore(f, "original_max_position_embeddings");
    part_copy_layers(m);
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
    m->head_scale = logits > 0 ? 1 / logits : 1;
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
    x->rope = part_rope(f, m, 10000, "partial_rotary_factor", 0.5, x->head);
    x->rope.adjacent = true;
    x->qkv_bias = x->bias; /* none on the output */
    x->bias = false;
    part_copy_layers(m);
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
    part_copy_layers(m);
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
    part_windows(f, m, fields_count(f, "sliding_window", 128), 2, 1);
}

static void cohere(struct fields *f, struct described *m)
{
    llama(f, m);
    part_layernorm(f, m, "layer_norm_eps", false);
    m->parallel = 1;
    m->head_scale = fields_real(f, "logit_scale", 0.0625);
    part_tied(f, m, true);
    for (uint32_t i = 0; i < m->nlayers; i++)
        m->layers[i].attention.rope.adjacent = true;
    if (fields_flag(f, "use_qk_norm", false))
        fields_refuse(f, "use_qk_norm", "layer norms of queries and keys");
}

static void cohere2(struct fields *f, struct described *m)
{
    cohere(f, m);
    uint32_t pattern = fields_count(f, "sliding_window_pattern", 4);
    part_windows(f, m, fields_count(f, "sliding_window", 4096), pattern ? pattern : 1, pattern ? pattern - 1 : 0);
    for (uint32_t i = 0; i < m->nlayers; i++)
        if (!m->layers[i].attention.window) /* what sees all has no positions */
            m->layers[i].attention.rope = (struct described_rope){0};
}

static void stablelm(struct fields *f, struct described *m)
{
    llama(f, m);
    part_layernorm(f, m, "layer_norm_eps", true);
    struct described_attention *x = &m->layers[0].attention;
    x->rope = part_rope(f, m, 10000, "partial_rotary_factor|rope_pct", 0.25, x->head);
    x->qkv_bias = fields_flag(f, "use_qkv_bias", false);
    m->parallel = fields_flag(f, "use_parallel_residual", false);
    if (fields_flag(f, "qk_layernorm", false))
        fields_refuse(f, "qk_layernorm", "layer norms of queries and keys");
    part_copy_layers(m);
}

static void ernie(struct fields *f, struct described *m)
{
    llama(f, m);
    bool bias = fields_flag(f, "use_bias", false);
    for (uint32_t i = 0; i < m->nlayers; i++) {
        m->layers[i].attention.bias = m->layers[i].ffn.bias = bias;
        m->layers[i].attention.rope.adjacent = true;
    }
    part_tied(f, m, true);
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
    {"phi", family_phi},
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
    {"gpt2", family_gpt2},
    {"gpt_bigcode", family_gpt_bigcode},
    {"gpt_neox", family_gpt_neox},
    {"gptj", family_gptj},
    {"opt", family_opt},
    {"bloom", family_bloom},
    {"falcon", family_falcon},
    {"mpt", family_mpt},
    {"starcoder2", family_starcoder2},
    {"stablelm", stablelm},
    {"nemotron", family_nemotron},
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
