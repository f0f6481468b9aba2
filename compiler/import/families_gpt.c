/* Families with layer norms and plain inner layers, as families.c has the others. */

#include "compiler/import/parts.h"

/* models with layer norms and a plain inner layer of `width` or a multiple of the model's */
static struct described_layer *plain(struct fields *f, struct described *m, const char *eps, const char *width,
                                     bool bias)
{
    struct described_layer *l = part_sizes(f, m);
    part_layernorm(f, m, eps, true);
    l->ffn.width = fields_count(f, width, 4 * m->width);
    l->ffn.bias = l->attention.bias = bias;
    return l;
}

void family_gpt2(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "layer_norm_epsilon", "n_inner", true);
    part_activation(f, &l->ffn, "activation_function", "gelu_new", false);
    m->positions = m->sequence = fields_count(f, "n_positions|n_ctx", 1024);
    fields_ignore(f, "n_ctx n_special predict_special_tokens");
    if (!fields_flag(f, "scale_attn_weights", true))
        fields_refuse(f, "scale_attn_weights", "scores that are not scaled");
    if (fields_flag(f, "scale_attn_by_inverse_layer_idx", false))
        fields_refuse(f, "scale_attn_by_inverse_layer_idx", "scores scaled by the layer's number");
    fields_ignore(f, "reorder_and_upcast_attn");
    part_tied(f, m, true);
    part_copy_layers(m);
}

void family_gpt_bigcode(struct fields *f, struct described *m)
{
    family_gpt2(f, m);
    bool one = fields_flag(f, "multi_query", true);
    for (uint32_t i = 0; i < m->nlayers && one; i++)
        m->layers[i].attention.kv = 1;
    fields_ignore(f, "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 inference_runner validate_runner_input "
                     "pad_key_length pre_allocate_kv_cache max_batch_size max_sequence_length");
}

void family_gpt_neox(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "layer_norm_eps", "intermediate_size", true);
    part_activation(f, &l->ffn, "hidden_act", "gelu", false);
    l->attention.bias = fields_flag(f, "attention_bias", true);
    l->attention.rope = part_rope(f, m, 10000, "rotary_pct", 0.25, l->attention.head);
    m->parallel = fields_flag(f, "use_parallel_residual", true) ? 2 : 0;
    part_tied(f, m, false);
    part_copy_layers(m);
}

void family_gptj(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "layer_norm_epsilon", "n_inner", true);
    part_activation(f, &l->ffn, "activation_function", "gelu_new", false);
    l->attention.bias = false;
    l->attention.rope = (struct described_rope){.theta = 10000, .adjacent = true};
    l->attention.rope.dims = fields_count(f, "rotary_dim", 64);
    m->parallel = 1;
    m->head_bias = true;
    part_tied(f, m, false);
    fields_ignore(f, "rotary scale_attn_weights n_ctx");
    part_copy_layers(m);
}

void family_phi(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "layer_norm_eps", "intermediate_size", true);
    part_activation(f, &l->ffn, "hidden_act", "gelu_new", false);
    l->attention.rope = part_rope(f, m, 10000, "partial_rotary_factor", 0.5, l->attention.head);
    m->parallel = 1;
    m->head_bias = true;
    part_tied(f, m, false);
    if (fields_flag(f, "qk_layernorm", false))
        fields_refuse(f, "qk_layernorm", "layer norms of queries and keys");
    part_copy_layers(m);
}

void family_opt(struct fields *f, struct described *m)
{
    bool bias = fields_flag(f, "enable_bias", true);
    struct described_layer *l = plain(f, m, "layer_norm_eps", "ffn_dim", bias);
    part_activation(f, &l->ffn, "activation_function", "relu", false);
    m->positions = m->sequence + 2; /* its table has two rows more than positions */
    if (!fields_flag(f, "do_layer_norm_before", true))
        fields_refuse(f, "do_layer_norm_before", "norms behind the sum");
    if (!fields_flag(f, "layer_norm_elementwise_affine", true))
        fields_refuse(f, "layer_norm_elementwise_affine", "norms without a gain");
    if (fields_count(f, "word_embed_proj_dim", m->width) != m->width)
        fields_refuse(f, "word_embed_proj_dim", "tokens' vectors of another width than the model's");
    if (fields_flag(f, "_remove_final_layer_norm", false))
        fields_refuse(f, "_remove_final_layer_norm", "no norm in front of the head");
    part_tied(f, m, true);
    part_copy_layers(m);
}

void family_bloom(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "layer_norm_epsilon", "n_inner", true);
    l->ffn.kind = "gelu";
    l->attention.alibi = true;
    m->embed_norm = true;
    part_tied(f, m, true);
    if (fields_flag(f, "apply_residual_connection_post_layernorm", false))
        fields_refuse(f, "apply_residual_connection_post_layernorm", "residuals taken behind norms");
    fields_ignore(f, "seq_length pretraining_tp slow_but_exact masked_softmax_fusion unk_token_id offset_alibi "
                     "bias_dropout_fusion attention_softmax_in_fp32 skip_bias_add skip_bias_add_qkv");
    part_copy_layers(m);
}

void family_falcon(struct fields *f, struct described *m)
{
    bool bias = fields_flag(f, "bias", false), decoder = fields_flag(f, "new_decoder_architecture", false),
         one = fields_flag(f, "multi_query", true);
    struct described_layer *l = plain(f, m, "layer_norm_epsilon", "ffn_hidden_size", bias);
    part_activation(f, &l->ffn, "activation", "gelu", false);
    l->attention.kv = decoder ? fields_count(f, "num_kv_heads|n_head_kv", l->attention.heads)
                      : one   ? 1
                              : l->attention.heads;
    l->attention.alibi = fields_flag(f, "alibi", false);
    fields_ignore(f, "num_kv_heads n_head_kv");
    struct described_rope turned = part_rope(f, m, 10000, NULL, 1, l->attention.head);
    if (!l->attention.alibi)
        l->attention.rope = turned;
    m->parallel = !fields_flag(f, "parallel_attn", true) ? 0
                                                         : fields_count(f, "num_ln_in_parallel_attn", decoder ? 2 : 1);
    part_tied(f, m, true);
    part_copy_layers(m);
}

void family_mpt(struct fields *f, struct described *m)
{
    struct described_layer *l = part_sizes(f, m);
    struct fields a = fields_of(f, "attn_config");
    bool bias = !fields_flag(f, "no_bias", true);
    part_layernorm(f, m, "layer_norm_epsilon", bias);
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
    part_tied(f, m, true);
    part_copy_layers(m);
}

void family_starcoder2(struct fields *f, struct described *m)
{
    bool bias = fields_flag(f, "use_bias", true);
    struct described_layer *l = plain(f, m, "norm_epsilon", "intermediate_size", bias);
    part_activation(f, &l->ffn, "hidden_act", "gelu_pytorch_tanh", false);
    l->attention.rope = part_rope(f, m, 10000, NULL, 1, l->attention.head);
    uint32_t window = fields_count(f, "sliding_window", 0);
    l->attention.window = window < m->sequence ? window : 0;
    fields_ignore(f, "mlp_type norm_type");
    part_tied(f, m, true);
    part_copy_layers(m);
}

void family_nemotron(struct fields *f, struct described *m)
{
    struct described_layer *l = plain(f, m, "norm_eps", "intermediate_size", false);
    l->ffn.bias = fields_flag(f, "mlp_bias", false);
    l->attention.bias = fields_flag(f, "attention_bias", false);
    part_activation(f, &l->ffn, "hidden_act", "relu2", false);
    l->attention.rope = part_rope(f, m, 10000, "partial_rotary_factor|rope_percent", 0.5, l->attention.head);
    part_tied(f, m, false);
    part_copy_layers(m);
}
