/* Counting drawn models: a model counts for a value that any of its layers has. */

#include "tests/e2e/tally.h"

#include <math.h>

static bool power_of_two(uint64_t n)
{
    return !(n & (n - 1));
}

/* is it so for any layer? */
#define ANY(t, job, dimension, name, condition)                                                              \
    do {                                                                                                     \
        bool any = false;                                                                                    \
        for (uint32_t i = 0; i < (job)->model.nlayers; i++) {                                                \
            const struct layer *l = (job)->model.layers[i];                                                  \
            const struct attn *at = &l->attn;                                                                \
            const struct moe *e = &l->moe;                                                                   \
            const struct ffn *f = l->is_moe ? &e->expert : &l->ffn;                                          \
            (void)at, (void)e, (void)f;                                                                      \
            any |= (condition);                                                                              \
        }                                                                                                    \
        tally_row(t, dimension, name, any);                                                                  \
    } while (0)

static void attention(struct tally *t, const struct job *job, const struct decision *d)
{
    ANY(t, job, "attention", "one head a key", at->kind == ATTN_GQA && at->kv == at->heads);
    ANY(t, job, "attention", "fewer keys", at->kind == ATTN_GQA && at->kv < at->heads);
    ANY(t, job, "attention", "a key head on several ranks", at->kind == ATTN_GQA && at->kv < d->tp);
    ANY(t, job, "attention", "one key head", at->kind == ATTN_GQA && at->kv == 1 && at->heads > 1);
    ANY(t, job, "attention", "latent", at->kind == ATTN_MLA);
    ANY(t, job, "attention", "latent queries", at->kind == ATTN_MLA && at->q_rank);
    ANY(t, job, "heads", "no power of two", !power_of_two(at->heads));
    ANY(t, job, "heads", "kv no power of two", !power_of_two(at->kv));
    ANY(t, job, "heads", "other size than width/heads", at->head * (uint64_t)at->heads != job->model.width);
    ANY(t, job, "attention's words", "bias", at->bias);
    ANY(t, job, "attention's words", "qkv_bias", at->qkv_bias);
    ANY(t, job, "attention's words", "qk_norm=head", at->qk_norm == QK_NORM_HEAD);
    ANY(t, job, "attention's words", "qk_norm=full", at->qk_norm == QK_NORM_FULL);
    ANY(t, job, "attention's words", "window", at->window);
    ANY(t, job, "attention's words", "chunk", at->chunk);
    ANY(t, job, "attention's words", "softcap", at->softcap > 0);
    ANY(t, job, "attention's words", "sinks", at->sinks);
    ANY(t, job, "attention's words", "alibi", at->alibi);
    ANY(t, job, "attention's words", "scale", at->kind == ATTN_GQA && fabs(at->scale - at->head) > 0);
    ANY(t, job, "rope", "none", !at->rope.on);
    ANY(t, job, "rope", "plain", at->rope.on && at->rope.scaling == ROPE_PLAIN);
    ANY(t, job, "rope", "linear", at->rope.scaling == ROPE_LINEAR);
    ANY(t, job, "rope", "llama3", at->rope.scaling == ROPE_LLAMA3);
    ANY(t, job, "rope", "yarn", at->rope.scaling == ROPE_YARN);
    ANY(t, job, "rope", "some dims", at->kind == ATTN_GQA && at->rope.on && at->rope.dims < at->head);
    ANY(t, job, "rope", "adjacent", at->kind == ATTN_GQA && at->rope.adjacent);
}

static void layers(struct tally *t, const struct job *job)
{
    const struct layer *const *all = job->model.layers;
    bool dense = false, experts = false;
    for (uint32_t i = 0; i < job->model.nlayers; i++) {
        dense |= !all[i]->is_moe;
        experts |= all[i]->is_moe;
    }
    tally_row(t, "layers", "dense", !experts);
    tally_row(t, "layers", "of experts", !dense);
    tally_row(t, "layers", "both", dense && experts);
    ANY(t, job, "layers", "other heads than the first", at->heads != all[0]->attn.heads);
    ANY(t, job, "layers", "other windows", at->window != all[0]->attn.window);
    ANY(t, job, "layers", "parallel", l->parallel && l->parallel_norms == 1);
    ANY(t, job, "layers", "parallel, two norms", l->parallel && l->parallel_norms == 2);
    ANY(t, job, "inner", "gelu", f->act == ACT_GELU && f->approx_tanh);
    ANY(t, job, "inner", "gelu, exact", f->act == ACT_GELU && !f->approx_tanh);
    ANY(t, job, "inner", "relu", f->act == ACT_RELU);
    ANY(t, job, "inner", "relu2", f->act == ACT_RELU2);
    ANY(t, job, "inner", "swiglu", f->act == ACT_SWIGLU);
    ANY(t, job, "inner", "swiglu, limit", f->act == ACT_SWIGLU && f->limit > 0);
    ANY(t, job, "inner", "swiglu, alpha", f->act == ACT_SWIGLU && model_alpha(f) > 0);
    ANY(t, job, "inner", "swiglu, offset", f->act == ACT_SWIGLU && f->offset > 0);
    ANY(t, job, "inner", "geglu", f->act == ACT_GEGLU);
    ANY(t, job, "inner", "bias", f->bias);
    ANY(t, job, "experts", "no power of two", l->is_moe && !power_of_two(e->experts));
    ANY(t, job, "experts", "shared", l->is_moe && e->shared);
    ANY(t, job, "experts", "capacity", l->is_moe && e->capacity > 0);
    ANY(t, job, "experts", "balance", l->is_moe && e->balance > 0);
    tally_row(t, "experts", "expert_room", experts && job->train.expert_room > 0);
    ANY(t, job, "router", "softmax", l->is_moe && e->router == ROUTER_SOFTMAX);
    ANY(t, job, "router", "sigmoid", l->is_moe && e->router == ROUTER_SIGMOID);
    ANY(t, job, "router", "groups", l->is_moe && e->groups > 1);
    ANY(t, job, "router", "normalize=no", l->is_moe && !e->normalize);
    ANY(t, job, "router", "scale", l->is_moe && fabs(e->scale - 1) > 0);
    ANY(t, job, "router", "bias", l->is_moe && e->bias);
    ANY(t, job, "router", "linear_bias", l->is_moe && e->linear_bias);
}

static void ends(struct tally *t, const struct model *m)
{
    tally_row(t, "width", "no power of two", !power_of_two(m->width));
    tally_row(t, "norm", "rmsnorm", m->norm.kind == NORM_RMS);
    tally_row(t, "norm", "layernorm", m->norm.kind == NORM_LAYER && m->norm.bias);
    tally_row(t, "norm", "layernorm(bias=no)", m->norm.kind == NORM_LAYER && !m->norm.bias);
    tally_row(t, "norm", "pre", m->norm.place == NORM_PRE);
    tally_row(t, "norm", "post", m->norm.place == NORM_POST);
    tally_row(t, "norm", "both", m->norm.place == NORM_BOTH);
    tally_row(t, "embedding", "scale", fabs(m->embed_scale - 1) > 0);
    tally_row(t, "embedding", "norm", m->embed_norm);
    tally_row(t, "embedding", "positions", m->positions);
    tally_row(t, "head", "tied", m->tied);
    tally_row(t, "head", "untied", !m->tied);
    tally_row(t, "head", "softcap", m->head_softcap > 0);
    tally_row(t, "head", "scale", fabs(m->head_scale - 1) > 0);
    tally_row(t, "head", "bias", m->head_bias);
    TALLY_NUMBER(t, "predict ahead", m->predict, 0, 1, 2);
    tally_row(t, "predict ahead", "a layer of another kind", m->predict && m->predict_layer != m->layers[m->nlayers - 1]);
}

static void training(struct tally *t, const struct train *x)
{
    static const char *const recipes[] = {"fp8(tensor)", "fp8(row)", "fp8(block)", "fp8(mx)"};
    tally_row(t, "precision", "fp32", x->precision == DT_FP32);
    tally_row(t, "precision", "bf16", x->precision == DT_BF16);
    for (int i = 0; i < 4; i++)
        tally_row(t, "precision", recipes[i], x->precision == DT_FP8 && x->recipe == (enum fp8_recipe)i);
    tally_row(t, "precision", "moments=bf16", x->moments == DT_BF16);
    tally_row(t, "precision", "grads=bf16", x->grads == DT_BF16);
    tally_row(t, "precision", "master=bf16", x->master == DT_BF16);
    tally_row(t, "precision", "reduce=bf16, grads=fp32", x->reduce == DT_BF16 && x->grads == DT_FP32);
    tally_row(t, "precision", "reduce=fp32, grads=bf16", x->reduce == DT_FP32 && x->grads == DT_BF16);
    tally_row(t, "optimizer", "adamw", x->optimizer == OPT_ADAMW);
    tally_row(t, "optimizer", "sgd", x->optimizer == OPT_SGD && x->momentum <= 0);
    tally_row(t, "optimizer", "sgd, momentum", x->optimizer == OPT_SGD && x->momentum > 0);
    tally_row(t, "optimizer", "no clipping", x->clip <= 0);
    tally_row(t, "optimizer", "init residual=no", !x->init_residual);
    TALLY_NUMBER(t, "lr schedule", (uint32_t)x->lr_kind, LR_CONSTANT, LR_LINEAR, LR_COSINE, LR_WSD);
}

void tally_model(struct tally *t, const struct job *job, const struct decision *d)
{
    tally_item(t);
    attention(t, job, d);
    layers(t, job);
    ends(t, &job->model);
    training(t, &job->train);
    tally_row(t, "vocabulary", "padded for tp", job->model.vocab % d->tp);
    TALLY_NUMBER(t, "degrees of three", d->tp % 3 ? 0 : d->tp, 3, 6);
    tally_row(t, "degrees of three", "cp", d->cp % 3 == 0);
    tally_row(t, "degrees of three", "ep", d->ep % 3 == 0);
}
