#ifndef LLMC_REFERENCE_BUILD_H
#define LLMC_REFERENCE_BUILD_H

/* Private to the files that build the reference: nodes under construction, weights, products and norms. */

#include "compiler/support/vec.h"
#include "compiler/verify/reference.h"

struct builder {
    struct arena *arena;
    struct nodes *nodes;
    const struct job *job;
    const struct model *model;
    int64_t ntokens, tp;
    bool gpt2;
    uint32_t again; /* bits of recompute_part */
    VEC(struct weight_unit) units;
    uint32_t balance; /* balance loss summed over the layers so far */
    uint32_t scale;   /* the loss scale; NODE_ZERO = none */
};

#define INPUT(r, op_, name, node) ((r).input[OPND(op_, name)] = (node))
#define INTEGER(r, op_, name, v) ((r).attr[ATTR(op_, name)] = (uint64_t)(int64_t)(v))
#define NUMBER(r, op_, name, v) ((r).attr[ATTR(op_, name)] = reference_real(v))
#define NAME(...) arena_printf(b->arena, __VA_ARGS__)

/* Adds the node of a recipe's output; domain: size of the index that it sums over, 0 = none. */
uint32_t reference_make(struct builder *b, struct recipe r, size_t output, const char *name, int64_t cols,
                        int64_t domain);
uint32_t reference_sum(struct builder *b, uint32_t x, uint32_t y, const char *name);

struct named {
    const char *llama, *gpt2; /* tensor names without the layer */
    int64_t at, outputs;      /* GPT-2's fused tensors */
    bool fused;               /* at and outputs also hold for the llama name */
};
uint32_t reference_unit_add(struct builder *b, uint32_t layer, struct named n, int64_t rows, int64_t cols, bool vector);
/* the weight's node as products read it; unit NONE: the empty sum */
uint32_t reference_param(const struct builder *b, uint32_t unit);
/* declares a weight of key/value heads of `head` outputs that products repeat `repeats` times each */
void reference_repeat(struct builder *b, uint32_t unit, int64_t repeats, int64_t head);
void reference_gradient(struct builder *b, uint32_t unit, uint32_t node);

/* the attribute fp8 of products with a unit; NONE: with experts */
int64_t reference_fp8(const struct builder *b, uint32_t unit);
/* y = x W' + bias (a unit or NONE); reference_linear_back() returns the input gradient and adds the weight
 * gradients. */
uint32_t reference_linear(struct builder *b, uint32_t x, uint32_t w, uint32_t bias, const char *name);
uint32_t reference_linear_back(struct builder *b, uint32_t dy, uint32_t x, uint32_t w, uint32_t bias, const char *name);

/* what the backward pass of a layer reads of a value that only products and gated activations read there: the value,
 * or its 8-bit form */
uint32_t reference_kept(struct builder *b, uint32_t x);
/* the same of an activation of gate (or none) and up, which may be recomputed from these as they are kept */
uint32_t reference_kept_act(struct builder *b, const struct ffn *f, uint32_t gate, uint32_t up, uint32_t act,
                            bool again);

struct norm_nodes {
    bool rms;
    int64_t cols;
    uint32_t x, y, mean, rstd, gain, bias; /* gain, bias: units */
    const char *name;
};
struct norm_nodes reference_norm(struct builder *b, uint32_t layer, uint32_t x, const char *llama, const char *gpt2,
                                 const char *name);
/* RMSNorm whatever the model's norm is */
struct norm_nodes reference_rms(struct builder *b, uint32_t layer, uint32_t x, const char *weight, const char *name);
uint32_t reference_norm_back(struct builder *b, const struct norm_nodes *n, uint32_t dy);

struct attn_nodes {
    uint32_t x;                     /* its input */
    uint32_t w[3], bias[3], wo, bo; /* units */
    uint32_t raw[3], qkv[3];        /* results of the products; the same as attention reads them */
    uint32_t gain[2], rstd[2];      /* norms of q and k: units, nodes */
    uint32_t o, lse;                /* as the backward pass reads them, with sinks included */
    uint32_t sink;                  /* unit */
    uint32_t down[3], up[2], latent[3],
        /* latent attention: units of down- and up-projections (q, kv, rotary key; q, kv); nodes of the latents and
         * of kv */
        kv;
    struct norm_nodes norm[2]; /* of the latents of q and kv */
};
/* reference_attn.c: the branch's output; reference_attention_back() adds its input gradient to dn, in the order in
 * which the backward pass reaches its products. */
uint32_t reference_attention(struct builder *b, uint32_t layer, const struct attn *t, uint32_t x, struct attn_nodes *n);
uint32_t reference_attention_back(struct builder *b, uint32_t layer, const struct attn *t, const struct attn_nodes *n,
                                  uint32_t dy, uint32_t dn);

struct ffn_nodes {
    uint32_t x;
    uint32_t wgate, wup, wdown, bgate, bup, bdown; /* units; wgate NONE = not gated */
    uint32_t gate, up, act;
};
/* reference_layer.c: prefix: beginning of the weights' names, "mlp" */
struct recipe reference_activation(const struct ffn *f, bool back); /* the caller adds the inputs */
uint32_t reference_ffn(struct builder *b, uint32_t layer, const struct ffn *f, const char *prefix, uint32_t x,
                       struct ffn_nodes *n);
uint32_t reference_ffn_back(struct builder *b, uint32_t layer, const struct ffn *f, const struct ffn_nodes *n,
                            uint32_t dy, bool shared);

/* reference_moe.c */
struct moe_nodes {
    uint32_t x;
    uint32_t router, router_bias, correction, w[3],
        offset[3]; /* units; w: gate or NONE, up, down; their biases, NONE */
    uint32_t index, weight, score, load, place, counts, once;
    uint32_t rows, gate, up, act;
    struct ffn shared;
    struct ffn_nodes shared_nodes;
};
uint32_t reference_moe(struct builder *b, uint32_t layer, const struct moe *m, uint32_t x, struct moe_nodes *n);
uint32_t reference_moe_back(struct builder *b, uint32_t layer, const struct moe *m, const struct moe_nodes *n,
                            uint32_t dy, uint32_t dn);

struct layer_nodes {
    struct moe_nodes moe;
    struct norm_nodes norm[2], post[2];
    struct attn_nodes attn;
    struct ffn_nodes ffn;
};
/* reference_layer.c */
uint32_t reference_layer(struct builder *b, uint32_t layer, const struct layer *l, uint32_t x, struct layer_nodes *n);
uint32_t reference_layer_back(struct builder *b, uint32_t layer, const struct layer *l, const struct layer_nodes *n,
                              uint32_t dx);

#endif
