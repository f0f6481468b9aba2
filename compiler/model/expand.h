#ifndef LLMC_EXPAND_H
#define LLMC_EXPAND_H

/* Model expansion: a layer, the embedding and the head as operators over named values.
 *
 * A value is a matrix [tokens, cols].  Its class says how tensor parallelism shards it: TOKENS values (the residual
 * stream, norms) are whole on every rank, or split by rows under sequence parallelism; COLS values (heads, FFN
 * columns, vocabulary columns) are split by columns.  Where tp has more ranks than there are key/value heads, each
 * of these is replicated on several neighbouring ranks.  The lowering converts between the two layouts.  The
 * backward pass follows by a rule per operator kind; nothing here knows about schedules, ranks or buffers.
 *
 * FLOPs and bytes are per token of the full (unsplit) operator; attention's score products depend on the sequence. */

#include "compiler/model/model.h"

/* kinds of operators, in the order of opr.def */
enum opr_kind {
#define OPR(kind, name, reads, beside, word, meaning) OPR_##kind,
#include "compiler/model/opr.def"
#undef OPR
};
enum { OPR_IN = 1, OPR_OUT = 2 };
struct opr_info {
    const char *name;
    uint32_t reads, beside, word;
};
const struct opr_info *opr_info(enum opr_kind kind);

enum opr_class { CLASS_TOKENS, CLASS_COLS };
struct opr_value {
    const char *name; /* "x1", "qkv" */
    enum opr_class class;
    uint64_t cols; /* of the unsplit value */
    uint64_t keys; /* keys: how many of the columns belong to key/value heads; kv: number of those heads */
    uint32_t kv;
};

enum opr_split {
    SPLIT_NONE, /* whole on every rank */
    SPLIT_ROWS, /* column-parallel and vocabulary-parallel: split by output rows */
    SPLIT_COLS  /* row-parallel: split by input columns */
};
enum opr_init { WEIGHT_NORMAL, WEIGHT_RESIDUAL /* std / sqrt(2 layers) */, WEIGHT_ONES, WEIGHT_ZEROS };

/* whether the weight belongs to another piece of the model and is only read here */
enum opr_sharing { WEIGHT_OWN, WEIGHT_OF_EMBED, WEIGHT_OF_HEAD };

/* a weight tensor of an operator, possibly one of several stacked along the output dimension (q, k, v; gate, up) */
struct opr_weight {
    const char *suffix;  /* "self_attn.q_proj.weight": expand_weight_name() adds the layer */
    uint64_t rows, cols; /* shape as used: [out, in]; of a vector rows = 1, or a row per expert of a family */
    bool vector;
    bool transposed;      /* the Hugging Face tensor is [in, out] (GPT-2's Conv1D) */
    uint64_t hf_row;      /* first row within the Hugging Face tensor's output dimension (fused c_attn) */
    uint64_t hf_rows;     /* rows of the Hugging Face tensor's output dimension */
    enum opr_split split; /* over tp */
    /* not 0: the outputs are those of so many key/value heads, each of which several ranks of tp may hold; 0: split
     * evenly */
    uint32_t kv;
    /* experts: the weight stacks so many tensors of rows / family rows each; '%' in the suffix stands for the
     * number; else 0 */
    uint32_t family;
    enum opr_split member_split; /* how etp splits each of those tensors */
    bool decay;                  /* weight decay applies */
    /* replicated over tp but used with the rank's own heads only, so its gradient is a partial sum over tp */
    bool shared;
    /* not trained by gradients: a dedicated instruction changes it (a router's correction bias) */
    bool moved;
    enum opr_init init;
    enum opr_sharing shared_with;
};

struct opr {
    enum opr_kind kind;
    const char *name;    /* "attn.qkv" */
    uint32_t in[2], out; /* values; UINT32_MAX = none */
    bool row_parallel;   /* LINEAR */
    bool keys;           /* HEADNORM: normalises the keys, else the queries */
    bool shared;         /* belongs to shared experts, which every token uses */
    uint32_t ahead;      /* EMBED, LOSS: the token (target) so many positions later; 0 outside of prediction modules */
    double factor;       /* SCALE: factor; SOFTCAP: cap */
    uint32_t weight, nweights; /* first of the matrices in the expansion's weights, and how many */
    uint32_t bias, nbiases;    /* the same of vectors added to the output; ATTENTION: its sinks */
    const struct attn *attn;   /* ROPE, ATTENTION */
    const struct ffn *ffn;     /* ACT */
    const struct moe *moe;     /* ROUTER, EXPERTS */
    struct span span;          /* place in the model file that asks for it */
};

struct expansion {
    uint32_t nvalues, noprs, nweights;
    struct opr_value *values; /* value 0 is the input (residual stream), `result` the output */
    struct opr *oprs;
    struct opr_weight *weights;
    uint32_t result;
    uint32_t again; /* operators from here on are never recomputed for the backward pass: those of the head */
};

/* Expansions of one layer; of the embedding (tokens, positions); of the final norm, head and loss; of a prediction
 * module. Equal layers give equal expansions.  Where prediction modules follow, the head's result is its input,
 * which they read. ahead: number of the module, from 1; its weights are named like those of layer nlayers + ahead -
 * 1. */
const struct expansion *expand_layer(struct arena *a, const struct model *m, const struct layer *l);
const struct expansion *expand_embed(struct arena *a, const struct model *m);
const struct expansion *expand_head(struct arena *a, const struct model *m);
const struct expansion *expand_predict(struct arena *a, const struct model *m, uint32_t ahead);

/* words of `recompute selective` that name the operator, as bits of recompute_part */
uint32_t opr_word(const struct opr *o);

/* full Hugging Face name: "model.layers.3.self_attn.q_proj.weight", "transformer.h.3.attn.c_attn.weight" */
char *expand_weight_name(struct arena *a, const struct opr_weight *w, uint32_t layer);

/* Vocabulary rows as stored: padded so that tp splits them evenly, and to a multiple of 64 per rank where the
 * vocabulary is large (8,192 or more). */
uint64_t expand_padded_vocab(uint64_t vocab, uint32_t tp);

/* Columns of a COLS value on one rank, without the vocabulary's padding; and into how many parts tp cuts a weight
 * that it splits. */
double expand_own_cols(const struct opr_value *v, uint32_t tp);
uint32_t expand_parts(const struct opr_weight *w, uint32_t tp);

/* May the operator's weight gradient be deferred to a W action?  Not where a product's input is much narrower than
 * its output (latent attention's up-projections): deferring it would keep most of the bytes for the least of the
 * work. */
bool expand_puts_off(const struct expansion *e, const struct opr *o);

#endif
