/* A model as torchtitan's own classes: layers of torchtitan/models/{llama3,qwen3,deepseek_v3}/model.py, put together as
 * the registries beside them do, with every width written out (pytorch/torchtitan b5bcd76c, 2026-08).
 *
 *   latent attention        deepseek_v3, with dense layers, experts and prediction modules
 *   experts, or norms of
 *   queries and keys        qwen3
 *   else                    llama3
 *
 * ComplexRoPE turns neighbours (2i, 2i+1), CosSinRoPE halves (i, i + dim/2) and has no Llama scaling: there the model
 * is the same up to an order of each head's rows, which torchtitan's state_dict_adapter.py knows.  Weights start as
 * llmc's do, normal, residual outputs divided by sqrt(2 layers). */

#include "compiler/export/titan.h"

#include <math.h>

enum titan_family titan_family(const struct model *m)
{
    bool qwen = false;
    for (uint32_t i = 0; i < model_all_layers(m); i++) {
        const struct layer *l = model_layer(m, i);
        if (l->attn.kind == ATTN_MLA)
            return TITAN_DEEPSEEK;
        qwen |= l->is_moe || l->attn.qk_norm == QK_NORM_HEAD;
    }
    return qwen ? TITAN_QWEN : TITAN_LLAMA;
}

const struct titan_names titan_names[] = {
    {"llama3", "Llama3Model", "Llama3TransformerBlock", "parallelize_llama", "Llama3StateDictAdapter"},
    {"qwen3", "Qwen3Model", "Qwen3TransformerBlock", "parallelize_qwen3", "Qwen3StateDictAdapter"},
    {"deepseek_v3", "DeepSeekV3Model", "DeepSeekV3TransformerBlock", "parallelize_deepseekv3",
     "DeepSeekV3StateDictAdapter"}};

/* ---- what it has not ---- */

static void refuse_rope(struct export *x, const struct attn *a)
{
    const struct rope *r = &a->rope;
    if (!r->on)
        export_refuse(x, "attention without rotary positions");
    else if (a->kind == ATTN_GQA && r->dims != a->head)
        export_refuse(x, "rotary positions on a part of each head");
    if (r->scaling == ROPE_LINEAR)
        export_refuse(x, "rotary positions stretched by a factor alone");
    if (r->scaling == ROPE_YARN && a->kind == ATTN_GQA)
        export_refuse(x, "YaRN but with latent attention");
    if (r->scaling == ROPE_YARN && r->mscale != r->mscale_all)
        export_refuse(x, "YaRN that makes queries and keys larger (mscale and mscale_all differ)");
}

static void refuse_attention(struct export *x, const struct attn *a)
{
    refuse_rope(x, a);
    if (a->chunk)
        export_refuse(x, "attention within chunks");
    if (a->alibi)
        export_refuse(x, "linear position biases");
    if (a->softcap > 0)
        export_refuse(x, "a soft cap of scores");
    if (a->bias)
        export_refuse(x, "offsets behind attention");
    if (a->qk_norm == QK_NORM_FULL)
        export_refuse(x, "norms of queries and keys over all heads");
    if (a->kind == ATTN_GQA && a->scale != a->head)
        export_refuse(x, "a scale of scores that is not the heads'");
}

static void refuse_inner(struct export *x, const struct ffn *f)
{
    if (f->act != ACT_SWIGLU)
        export_refuse(x, "another activation than swiglu");
    if (f->bias)
        export_refuse(x, "offsets in the inner layer");
    if (f->limit > 0 || f->offset > 0 || model_alpha(f) > 0)
        export_refuse(x, "a gate with a limit, factor or offset");
}

static void refuse_layer(struct export *x, const struct layer *l)
{
    refuse_attention(x, &l->attn);
    refuse_inner(x, l->is_moe ? &l->moe.expert : &l->ffn);
    if (l->parallel)
        export_refuse(x, "parallel layers");
    if (l->is_moe && l->moe.balance > 0)
        export_refuse(x, "a balance loss of experts");
    if (l->is_moe && x->job->train.precision == DT_FP32)
        export_refuse(x, "experts in fp32");
}

static void refuse_model(struct export *x, const struct model *m)
{
    enum titan_family family = titan_family(m);
    bool unlike = false;
    for (uint32_t i = 0; i < model_all_layers(m); i++)
        unlike |= (model_layer(m, i)->attn.kind == ATTN_MLA) != (family == TITAN_DEEPSEEK);
    if (unlike)
        export_refuse(x, "layers with latent attention beside others");
    if (m->norm.kind != NORM_RMS)
        export_refuse(x, "layer norms");
    if (m->norm.place != NORM_PRE)
        export_refuse(x, "norms behind sublayers");
    if (m->positions)
        export_refuse(x, "learned positions");
    if (m->embed_scale != 1 || m->embed_norm)
        export_refuse(x, "a factor on, or a norm of, the embedding");
    if (m->head_bias || m->head_softcap > 0 || m->head_scale != 1)
        export_refuse(x, "a head with offset, soft cap or factor");
    if (m->predict && family != TITAN_DEEPSEEK)
        export_refuse(x, "prediction modules but with latent attention");
}

/* ---- layers ---- */

static void write_rope(struct export *x, const struct attn *a)
{
    const struct rope *r = &a->rope;
    strbuf_printf(&x->text, "            rope=%s.Config(dim=%u, max_context_length=%llu, theta=%s",
                  r->adjacent || r->scaling == ROPE_LLAMA3 ? "ComplexRoPE" : "CosSinRoPE", r->dims,
                  (unsigned long long)x->job->train.sequence, export_real(x, r->theta));
    if (r->scaling == ROPE_LLAMA3)
        strbuf_printf(&x->text,
                      ", scaling=\"llama\",\n                scaling_factor=%s, low_freq_factor=%s, "
                      "high_freq_factor=%s, original_max_position_embeddings=%.0f",
                      export_real(x, r->factor), export_real(x, r->low), export_real(x, r->high), r->original);
    if (r->scaling == ROPE_YARN)
        strbuf_printf(&x->text,
                      ", scaling=\"yarn\",\n                rope_factor=%s, beta_fast=%s, beta_slow=%s, "
                      "original_seq_len=%.0f",
                      export_real(x, r->factor), export_real(x, r->fast), export_real(x, r->slow), r->original);
    strbuf_text(&x->text, "),\n");
}

static void write_attention(struct export *x, const struct model *m, const struct attn *a)
{
    struct strbuf *t = &x->text;
    unsigned long long width = m->width;
    if (a->kind == ATTN_MLA) {
        strbuf_printf(t,
                      "        attention=latent(\n"
                      "            layer_id=0, dim=%llu, n_heads=%u, q_lora_rank=%u, kv_lora_rank=%u,\n"
                      "            qk_nope_head_dim=%u, qk_rope_head_dim=%u, v_head_dim=%u, mscale=%s,\n"
                      "            attn_backend=\"flex\", linear_init=WEIGHT, norm_init=ONES, depth_init=lambda _: "
                      "RESIDUAL,\n",
                      width, a->heads, a->q_rank, a->kv_rank, a->nope, a->rope_dims, a->v,
                      export_real(x, a->rope.scaling == ROPE_YARN ? a->rope.mscale_all : 1));
    } else {
        strbuf_printf(t,
                      "        attention=grouped(\n"
                      "            dim=%llu, n_heads=%u, n_kv_heads=%u, head_dim=%u, fuse_qkv=True,\n"
                      "            wqkv_param_init=WEIGHT, wo_param_init=RESIDUAL, "
                      "inner_attention=get_attention_config(\"flex\"),\n",
                      width, a->heads, a->kv, a->head);
        if (a->qk_norm == QK_NORM_HEAD)
            strbuf_printf(t, "            qk_norm=norm(%u),\n", a->head);
        if (a->qkv_bias)
            strbuf_text(t, "            bias=True,\n");
    }
    write_rope(x, a);
    strbuf_text(t, "        ),\n");
}

static void write_experts(struct export *x, const struct model *m, const struct moe *e)
{
    struct strbuf *t = &x->text;
    unsigned long long width = m->width, inner = e->expert.width;
    strbuf_printf(t,
                  "        moe=make_moe_config(\n"
                  "            num_experts=%u, load_balance_coeff=%s,\n"
                  "            router=make_router_config(\n"
                  "                dim=%llu, num_experts=%u, gate_param_init=WEIGHT, top_k=%u, score_func=\"%s\",\n"
                  "                route_norm=%s, route_scale=%s, bias=%s%s),\n",
                  e->experts, e->bias && e->rate > 0 ? export_real(x, e->rate) : "None", width, e->experts, e->active,
                  e->router == ROUTER_SIGMOID ? "sigmoid" : "softmax", e->normalize ? "True" : "False",
                  export_real(x, e->scale), e->linear_bias ? "True" : "False",
                  e->groups > 1
                      ? arena_printf(x->arena, ", num_expert_groups=%u, num_limited_groups=%u", e->groups, e->pick)
                      : "");
    strbuf_printf(t,
                  "            routed_experts=make_routed_experts_config(\n"
                  "                dim=%llu, hidden_dim=%llu, num_experts=%u, top_k=%u, param_init=EXPERTS, "
                  "comm_backend=\"standard\"),\n",
                  width, inner, e->experts, e->active);
    if (e->shared)
        strbuf_printf(t, "            shared_experts=inner(%llu, %llu),\n", width, e->shared * inner);
    strbuf_text(t, "        ),\n");
}

/* members of a layer's configuration */
static void write_layer(struct export *x, const struct model *m, const struct layer *l)
{
    strbuf_printf(&x->text, "        attention_norm=norm(%llu),\n        ffn_norm=norm(%llu),\n",
                  (unsigned long long)m->width, (unsigned long long)m->width);
    write_attention(x, m, &l->attn);
    if (l->is_moe)
        write_experts(x, m, &l->moe);
    else
        strbuf_printf(&x->text, "        feed_forward=inner(%llu, %llu),\n", (unsigned long long)m->width,
                      (unsigned long long)l->ffn.width);
}

/* which of the functions layer_0(), layer_1() ... makes layer i: layers that are one in the model file are one here */
static uint32_t layer_function(const struct model *m, uint32_t i)
{
    uint32_t n = 0, first = 0;
    while (m->layers[first] != m->layers[i])
        first++;
    for (uint32_t k = 1; k <= first; k++)
        n += m->layers[k] != m->layers[k - 1];
    return n;
}

static void write_layers(struct export *x, const struct model *m)
{
    const char *block = titan_names[titan_family(m)].block;
    for (uint32_t i = 0; i < m->nlayers; i++) {
        bool again = i && m->layers[i] == m->layers[i - 1];
        for (uint32_t k = 0; k < i && !again; k++)
            again = m->layers[k] == m->layers[i];
        if (again)
            continue;
        strbuf_printf(&x->text, "\n\ndef layer_%u():\n    return %s.Config(\n", layer_function(m, i), block);
        write_layer(x, m, m->layers[i]);
        strbuf_text(&x->text, "    )\n");
    }
    if (!m->predict)
        return;
    unsigned long long width = m->width;
    strbuf_text(&x->text, "\n\ndef prediction():\n    return MTPTransformerBlock.Config(\n");
    write_layer(x, m, m->predict_layer);
    strbuf_printf(&x->text,
                  "        enorm=norm(%llu),\n        hnorm=norm(%llu),\n        mtp_norm=norm(%llu),\n"
                  "        eh_proj=linear(%llu, %llu),\n    )\n",
                  width, width, width, 2 * width, width);
}

/* ---- the model ---- */

static void write_helpers(struct export *x, const struct model *m)
{
    const struct train *t = &x->job->train;
    double residual = t->init_residual ? t->init_std / sqrt(2.0 * m->nlayers) : t->init_std;
    strbuf_printf(&x->text,
                  "WEIGHT = {\"weight\": partial(init.normal_, std=%s), \"bias\": init.zeros_}\n"
                  "RESIDUAL = {\"weight\": partial(init.normal_, std=%s), \"bias\": init.zeros_}\n"
                  "ONES = {\"weight\": init.ones_}\n"
                  "EXPERTS = {\"w1_EFD\": WEIGHT[\"weight\"], \"w2_EDF\": RESIDUAL[\"weight\"], \"w3_EFD\": "
                  "WEIGHT[\"weight\"]}\n"
                  "EPS = %s\n",
                  export_real(x, t->init_std), export_real(x, residual), export_real(x, m->norm.eps));
    strbuf_text(&x->text, "\n\ndef norm(width):\n"
                          "    return RMSNorm.Config(normalized_shape=width, eps=EPS, param_init=ONES)\n"
                          "\n\ndef linear(width, out, param_init=WEIGHT):\n"
                          "    return Linear.Config(in_features=width, out_features=out, param_init=param_init)\n"
                          "\n\ndef inner(width, hidden):\n"
                          "    return FeedForward.Config(w1=linear(width, hidden), w2=linear(hidden, width, RESIDUAL), "
                          "w3=linear(width, hidden))\n");
    if (titan_family(m) == TITAN_DEEPSEEK)
        strbuf_text(&x->text, "\n\ndef latent(**members):\n"
                              "    attention = make_mla_attention_config(**members)\n"
                              "    attention.q_norm.eps = attention.kv_norm.eps = EPS\n"
                              "    return attention\n");
    else
        strbuf_text(&x->text, "\n\ndef grouped(bias=False, **members):\n"
                              "    attention = make_gqa_config(**members)\n"
                              "    attention.qkv_linear.wqkv.bias = bias\n"
                              "    return attention\n");
}

void titan_imports(struct export *x)
{
    const struct model *m = &x->job->model;
    const struct titan_names *n = &titan_names[titan_family(m)];
    strbuf_printf(
        &x->text,
        "from torchtitan.models.common import ComplexRoPE, CosSinRoPE, Embedding, FeedForward, Linear, RMSNorm\n"
        "from torchtitan.models.common.config_utils import (\n"
        "    get_attention_config, make_gqa_config, make_moe_config, make_routed_experts_config, "
        "make_router_config)\n"
        "from torchtitan.models.common.param_init import skip_param_init\n"
        "from torchtitan.models.%s import %s, %s\n"
        "from torchtitan.models.%s.model import %s\n"
        "from torchtitan.models.%s.state_dict_adapter import %s\n",
        n->module, n->model, n->parallelize, n->module, n->block, n->module, n->adapter);
    if (titan_family(m) == TITAN_DEEPSEEK)
        strbuf_text(&x->text, "from torchtitan.models.deepseek_v3 import MTPLoss, MTPTransformerBlock, "
                              "make_mla_attention_config\n");
}

void titan_model(struct export *x)
{
    const struct model *m = &x->job->model;
    struct strbuf *t = &x->text;
    const struct titan_names *n = &titan_names[titan_family(m)];
    unsigned long long width = m->width, vocab = m->vocab;
    refuse_model(x, m);
    for (uint32_t i = 0; i < model_all_layers(m); i++)
        if (!i || model_layer(m, i) != model_layer(m, i - 1))
            refuse_layer(x, model_layer(m, i));
    write_helpers(x, m);
    write_layers(x, m);
    strbuf_printf(t, "\n\ndef model():\n    return %s.Config(\n        dim=%llu,\n        vocab_size=%llu,\n", n->model,
                  width, vocab);
    if (m->tied)
        strbuf_text(t, "        enable_weight_tying=True,\n");
    strbuf_printf(t,
                  "        tok_embeddings=Embedding.Config(num_embeddings=%llu, embedding_dim=%llu, param_init=%s),\n"
                  "        norm=norm(%llu),\n        lm_head=linear(%llu, %llu),\n        layers=[",
                  vocab, width, m->tied ? "{\"weight\": skip_param_init}" : "WEIGHT", width, width, vocab);
    for (uint32_t i = 0, run; i < m->nlayers; i += run) {
        for (run = 1; i + run < m->nlayers && m->layers[i + run] == m->layers[i]; run++)
            ;
        strbuf_printf(t, "%s*(layer_%u() for _ in range(%u))", i ? ", " : "", layer_function(m, i), run);
    }
    strbuf_text(t, "],\n");
    if (m->predict)
        strbuf_printf(t, "        mtp_layers=[prediction() for _ in range(%u)],\n", m->predict);
    strbuf_text(t, "    )\n");
}
