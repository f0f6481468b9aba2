/* The model that settings of Megatron-LM describe, as megatron/core/models/gpt builds it.  Arguments and configurations
 * say some things each in their own way: activations, tied tables, groups of queries. */

#include "compiler/import/megatron.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t count(const struct args *x, unsigned row)
{
    uint64_t n = arg_count(x, row);
    if (n > INT32_MAX)
        arg_error(x, row, "'%.60s' is too large", arg_name(x, row));
    return n > INT32_MAX ? INT32_MAX : (uint32_t)n;
}

static uint32_t required(const struct args *x, unsigned row)
{
    if (!arg_said(x, row)) {
        const char *name = arg_name(x, row);
        arg_error(x, row, "'%s' is missing", name);
        diag_help(x->givens->diag, "--set %s=VALUE says it", name + strspn(name, "-"));
    }
    return count(x, row);
}

/* Tables are padded for every tensor parallel rank alike; what llmc pads itself, to a multiple of ranks, is left to it.
 */
static uint32_t vocabulary(const struct args *x)
{
    if (arg_said(x, A_padded_vocab_size))
        return count(x, A_padded_vocab_size);
    uint64_t n = required(x, A_vocab_size), by = arg_count(x, A_make_vocab_size_divisible_by),
             tp = arg_count(x, A_tensor_model_parallel_size), unit = by * (tp && tp <= UINT16_MAX ? tp : 1);
    if (by <= 1 || by > INT32_MAX || !arg_yes(x, A_should_pad_vocab) || n % unit == 0)
        return (uint32_t)n;
    uint64_t padded = (n + unit - 1) / unit * unit;
    given_note(x->givens, "the vocabulary of %llu is padded to a multiple of %llu, as Megatron-LM does",
               (unsigned long long)n, (unsigned long long)unit);
    return padded > INT32_MAX ? INT32_MAX : (uint32_t)padded;
}

/* ---- positions ---- */

static const char *yarn(const struct args *x)
{
    static const struct {
        const char *name;
        unsigned row;
        double usual;
    } more[] = {{"fast", A_beta_fast, 32},
                {"slow", A_beta_slow, 1},
                {"mscale", A_mscale, 1},
                {"mscale_all", A_mscale_all_dim, 0}};
    struct arena *a = x->givens->arena;
    double factor = arg_real(x, A_rotary_scaling_factor);
    if (factor <= 1) /* nothing is stretched, and the magnitude is 1 */
        return NULL;
    const char *text = arena_printf(a, "yarn(factor=%s, original=%s", describe_number(a, factor),
                                    describe_number(a, arg_real(x, A_original_max_position_embeddings)));
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        if (arg_real(x, more[i].row) != more[i].usual)
            text = arena_printf(a, "%s, %s=%s", text, more[i].name, describe_number(a, arg_real(x, more[i].row)));
    return arena_printf(a, "%s)", text);
}

static struct described_rope rotary(const struct args *x, uint32_t head, const char *type, bool mla)
{
    struct arena *a = x->givens->arena;
    struct described_rope r = {.theta = arg_real(x, A_rotary_base), .adjacent = arg_yes(x, A_rotary_interleaved)};
    double share = fmin(fmax(arg_real(x, A_rotary_percent), 0), 1),
           stretch = arg_real(x, A_seq_len_interpolation_factor);
    uint32_t dims = (uint32_t)(share * head);
    r.dims = dims >= head ? 0 : dims / 2 * 2;
    if (!strcmp(type, "yarn"))
        r.scaling = yarn(x);
    else if (mla) /* multi_latent_attention.py hands neither of these on */
        r.scaling = NULL;
    else if (arg_yes(x, A_rope_scaling)) /* megatron/core/models/common/embeddings/rotary_pos_embedding.py */
        r.scaling = arena_printf(a, "llama3(factor=%s, low=1, high=4, original=8192)",
                                 describe_number(a, arg_real(x, A_rope_scaling_factor)));
    else if (stretch > 0 && stretch != 1)
        r.scaling = arena_printf(a, "linear(factor=%s)", describe_number(a, stretch));
    return r;
}

static void positions(const struct args *x, struct described *m, struct described_attention *at)
{
    const char *type = arg_yes(x, A_use_rotary_position_embeddings) ? "rope" : arg_word(x, A_position_embedding_type);
    bool learned = !strcmp(type, "learned_absolute");
    if (learned && !arg_yes(x, A_add_position_embedding))
        arg_error(x, A_add_position_embedding, "no positions, and learned ones: --position-embedding-type says which");
    if (learned && !at->mla) {
        m->positions = required(x, A_max_position_embeddings);
        return;
    }
    if (at->mla && strcmp(type, "rope") != 0)
        arg_error(x, A_position_embedding_type, "latent attention has rotary positions: '%s' should be rope",
                  arg_name(x, A_position_embedding_type));
    if (!strcmp(type, "none"))
        return;
    if (strcmp(type, "rope") != 0 && strcmp(type, "yarn") != 0) {
        arg_refuse(x, A_position_embedding_type, "positions of type '%.60s'", type);
        type = "rope";
    }
    if (at->mla) /* stretched unless it says otherwise: MLATransformerConfig */
        type = *arg_word(x, A_rope_type) ? arg_word(x, A_rope_type) : "yarn";
    at->rope = rotary(x, at->mla ? at->rope_dims : at->head, type, at->mla);
}

/* ---- a layer ---- */

static void attention(const struct args *x, struct described *m, struct described_attention *at)
{
    uint32_t groups = count(x, A_num_query_groups);
    at->heads = required(x, A_num_attention_heads);
    at->head = arg_said(x, A_kv_channels) ? count(x, A_kv_channels) : at->heads ? m->width / at->heads : 0;
    /* an argument's number of groups counts only where groups are asked for */
    at->kv = groups && (!x->givens->dashes || arg_yes(x, A_group_query_attention)) ? groups : at->heads;
    if (x->givens->dashes && arg_yes(x, A_group_query_attention) && !groups)
        at->kv = 1;
    at->bias = arg_yes(x, A_add_bias_linear);
    at->qkv_bias = at->bias || arg_yes(x, A_add_qkv_bias);
    at->qk_norm = arg_yes(x, A_qk_layernorm) ? "head" : NULL;
    at->mla = arg_yes(x, A_multi_latent_attention);
    if (at->mla) {
        at->q_rank = count(x, A_q_lora_rank);
        at->kv_rank = count(x, A_kv_lora_rank);
        at->nope = count(x, A_qk_head_dim);
        at->rope_dims = count(x, A_qk_pos_emb_head_dim);
        at->v = count(x, A_v_head_dim);
        if (!arg_yes(x, A_qk_layernorm))
            arg_refuse(x, A_qk_layernorm, "latents without norms");
        if (at->bias || at->qkv_bias)
            arg_refuse(x, A_add_bias_linear, "offsets in latent attention");
    }
    if (arg_is(x, A_softmax_type, "learnable"))
        at->sinks = true;
    else if (!arg_is(x, A_softmax_type, "vanilla"))
        arg_refuse(x, A_softmax_type, "a softmax of type '%.60s'", arg_word(x, A_softmax_type));
    double scale = arg_real(x, A_softmax_scale);
    double divided = scale > 0 ? 1 / (scale * scale) : 0; /* scores are divided by its root */
    at->scale = divided > 0 && fabs(divided / at->head - 1) > 1e-9 ? divided : 0;
    positions(x, m, at);
}

static bool any_yes(const struct args *x, const unsigned *at, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= arg_yes(x, at[i]);
    return any;
}

/* the function's name behind its module: torch.nn.functional.silu */
static const char *function_of(const struct args *x)
{
    const char *name = arg_word(x, A_activation_func), *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static void activation(const struct args *x, struct described_ffn *f)
{
    static const unsigned words[] = {A_swiglu, A_squared_relu, A_quick_geglu};
    const char *function = function_of(x);
    bool gated = arg_yes(x, A_gated_linear_unit);
    f->bias = arg_yes(x, A_add_bias_linear);
    if (arg_yes(x, A_swiglu) || (gated && (!strcmp(function, "silu") || !strcmp(function, "swish")))) {
        f->kind = "swiglu";
    } else if (arg_yes(x, A_quick_geglu) || (gated && !strcmp(function, "quick_gelu"))) {
        f->kind = "swiglu"; /* gate * logistic(1.702 gate) */
        f->alpha = 1.702;
    } else if (arg_yes(x, A_squared_relu) || (!gated && !strcmp(function, "squared_relu"))) {
        f->kind = "relu2";
    } else {
        /* the fused form, which wants offsets, is the tanh one: megatron/core/fusions/fused_bias_gelu.py */
        bool tanh_form = arg_yes(x, A_openai_gelu) || !strcmp(function, "fast_gelu") ||
                         !strcmp(function, "openai_gelu") || !strcmp(function, "gelu_impl");
        f->kind = gated ? "geglu" : !strcmp(function, "relu") ? "relu" : "gelu";
        f->exact = !tanh_form && (gated || !f->bias || !arg_yes(x, A_bias_gelu_fusion));
        if (!any_yes(x, words, ARRAY_LEN(words)) && *function && strcmp(function, "gelu") != 0 && !tanh_form &&
            (gated || strcmp(function, "relu") != 0))
            arg_refuse(x, A_activation_func, "activation '%.60s'%s", function, gated ? " in a gated layer" : "");
    }
    if (!strcmp(f->kind, "swiglu")) {
        f->offset = arg_real(x, A_glu_linear_offset);
        f->limit = arg_real(x, A_activation_func_clamp_value);
    } else if (arg_real(x, A_activation_func_clamp_value) > 0) {
        arg_refuse(x, A_activation_func_clamp_value, "a limit in this activation");
    } else if (arg_real(x, A_glu_linear_offset) != 0) {
        arg_refuse(x, A_glu_linear_offset, "an offset in this activation");
    }
}

static uint32_t inner_width(const struct args *x, const struct described *m, const struct described_ffn *f)
{
    if (arg_said(x, A_ffn_hidden_size))
        return count(x, A_ffn_hidden_size);
    uint64_t width = m->width; /* arguments.py: a multiple of 64 near 8/3 of the width where gates are asked for so */
    width = arg_yes(x, A_swiglu) && !strcmp(f->kind, "swiglu") ? width * 8 / 3 / 64 * 64 : width * 4;
    return width > INT32_MAX ? INT32_MAX : (uint32_t)width;
}

/* ---- experts ---- */

static void router(const struct args *x, struct described_layer *l)
{
    const char *score = arg_word(x, A_moe_router_score_function);
    l->active = count(x, A_moe_router_topk);
    l->sigmoid = !strcmp(score, "sigmoid");
    if (!l->sigmoid && strcmp(score, "softmax") != 0)
        arg_refuse(x, A_moe_router_score_function, "a router of scores '%.60s'", score);
    /* moe_utils.py: softmax over the picked ones, or before; a sigmoid's weights are divided by their sum, but one */
    l->plain = l->sigmoid ? l->active == 1 : arg_yes(x, A_moe_router_pre_softmax);
    l->groups = count(x, A_moe_router_num_groups);
    l->pick = count(x, A_moe_router_group_topk);
    l->router_scale = arg_real(x, A_moe_router_topk_scaling_factor);
    l->router_bias = arg_yes(x, A_moe_router_enable_expert_bias);
    l->router_rate = arg_real(x, A_moe_router_bias_update_rate);
    l->capacity = arg_real(x, A_moe_expert_capacity_factor);
    l->capacity = l->capacity < 0 ? 0 : l->capacity;
}

static void balance(const struct args *x, struct described_layer *l)
{
    uint32_t n, ncoefficients;
    const char *const *types = arg_words(x, A_moe_router_load_balancing_type, &n), *const *coefficients = arg_words(
                                                                                       x, A_moe_aux_loss_coeff,
                                                                                       &ncoefficients);
    const char *type = n ? types[0] : "aux_loss";
    double coefficient = ncoefficients ? strtod(coefficients[0], NULL) : 0;
    if (n > 1 || ncoefficients > 1)
        arg_refuse(x, A_moe_router_load_balancing_type, "several balance losses");
    if (!strcmp(type, "sinkhorn") || !strcmp(type, "quantile_balancing"))
        arg_refuse(x, A_moe_router_load_balancing_type, "balancing by '%.60s'", type);
    else if (strcmp(type, "none") != 0 && coefficient > 0 && coefficient < 1e6)
        l->balance = coefficient;
    if (l->balance > 0 && strcmp(type, "seq_aux_loss") != 0)
        given_note(x->givens, "%.40s: the balance loss is over a batch there, over each sequence here", type);
}

static void experts(const struct args *x, struct described *m)
{
    uint32_t n = count(x, A_num_moe_experts), wide = count(x, A_moe_shared_expert_intermediate_size);
    struct arena *a = x->givens->arena;
    uint8_t *which = arena_alloc(a, m->nlayers + 1u);
    uint64_t every = 1;
    bool listed = arg_pattern(x, A_moe_layer_freq, m->nlayers, which, &every);
    struct described_layer l = m->layers[0];
    if (!n)
        return;
    l.experts = n;
    router(x, &l);
    balance(x, &l);
    l.ffn.width = arg_said(x, A_moe_ffn_hidden_size) ? count(x, A_moe_ffn_hidden_size) : l.ffn.width;
    l.shared = l.ffn.width ? wide / l.ffn.width : 0;
    if (l.ffn.width && wide % l.ffn.width)
        arg_refuse(x, A_moe_shared_expert_intermediate_size, "shared experts of %u, no multiple of an expert's %u",
                   wide, l.ffn.width);
    for (uint32_t i = 0; i < m->nlayers; i++)
        if (listed ? which[i] : !every || i % every == 0)
            m->layers[i] = l;
}

/* ---- layers that differ in attention ---- */

static void windows(const struct args *x, struct described *m)
{
    uint32_t n;
    const char *const *size = arg_words(x, A_window_size, &n);
    if (!n)
        return;
    /* "127,0", "(127, 0)", or a list: tokens in front of this one, and behind */
    const char *text = size[0] + strspn(size[0], "( ");
    char *end;
    double before = strtod(text, &end);
    const char *behind = n > 1 ? size[1] : end + strspn(end, ", ");
    if (end == text || before < 0 || before > 1e9 || !*behind || strtod(behind, NULL) != 0) {
        arg_refuse(x, A_window_size, "a window that does not end at a token itself");
        return;
    }
    uint8_t *which = arena_alloc(x->givens->arena, m->nlayers + 1u);
    uint64_t every = 0;
    bool listed = arg_pattern(x, A_window_attn_skip_freq, m->nlayers, which, &every);
    for (uint32_t i = 0; i < m->nlayers; i++)
        if (listed ? which[i] : !every || (i + 1) % every)
            m->layers[i].attention.window = (uint32_t)before + 1;
}

static void without_rotation(const struct args *x, struct described *m)
{
    uint8_t *which = arena_alloc(x->givens->arena, m->nlayers + 1u);
    uint64_t every = 0;
    if (!arg_said(x, A_no_rope_freq))
        return;
    bool listed = arg_pattern(x, A_no_rope_freq, m->nlayers, which, &every);
    for (uint32_t i = 0; i < m->nlayers; i++)
        if (listed ? which[i] : every && (i + 1) % every == 0)
            m->layers[i].attention.rope = (struct described_rope){0};
}

static void note_dropout(const struct args *x)
{
    double hidden = arg_real(x, A_hidden_dropout), attention_share = arg_real(x, A_attention_dropout);
    if (hidden != 0 || attention_share != 0)
        given_note(x->givens, "hidden_dropout %g, attention_dropout %g: steps are without dropout", hidden,
                   attention_share);
}

void megatron_model(const struct args *x, struct described *m)
{
    m->width = required(x, A_hidden_size);
    m->nlayers = required(x, A_num_layers);
    m->vocab = vocabulary(x);
    if (m->nlayers > GIVEN_MOST_LAYERS)
        arg_error(x, A_num_layers, "more than %d layers", GIVEN_MOST_LAYERS);
    m->nlayers = m->nlayers > GIVEN_MOST_LAYERS ? GIVEN_MOST_LAYERS : m->nlayers;
    m->layers = ARENA_ARRAY(x->givens->arena, struct described_layer, m->nlayers + 1u);
    struct described_layer *l = &m->layers[0];
    m->layernorm = arg_is(x, A_normalization, "LayerNorm");
    m->norm_bias = m->layernorm;
    if (!m->layernorm && !arg_is(x, A_normalization, "RMSNorm"))
        arg_refuse(x, A_normalization, "norms of kind '%.60s'", arg_word(x, A_normalization));
    m->eps = arg_real(x, A_layernorm_epsilon);
    attention(x, m, &l->attention);
    activation(x, &l->ffn);
    l->ffn.width = inner_width(x, m, &l->ffn);
    for (uint32_t i = 1; i < m->nlayers; i++)
        m->layers[i] = m->layers[0];
    if (m->nlayers) {
        experts(x, m);
        windows(x, m);
        without_rotation(x, m);
    }
    m->tied = arg_yes(x, A_share_embeddings_and_output_weights) && !arg_yes(x, A_untie_embeddings_and_output_weights);
    m->predict = count(x, A_mtp_num_layers);
    m->predict_weight = arg_real(x, A_mtp_loss_scaling_factor);
    note_dropout(x);
}
