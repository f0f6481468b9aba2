#ifndef LLMC_EXPAND_H
#define LLMC_EXPAND_H

/* Model expansion: a layer, the embedding and the head as operators over named values.
 *
 * A value is a matrix [tokens, cols].  Its sharding class says how tensor parallelism holds it: TOKENS values (the
 * residual stream, norms) are whole on every rank, or split by rows under sequence parallelism; COLS values (heads,
 * FFN columns, vocabulary columns) are split by columns.  Where tp has more ranks than there are key heads, each key head
 * lies on several neighbouring ranks.  Layout conversions between the two are the lowering's work.
 * Backward follows by rules per operator kind; nothing here knows about schedules, ranks or buffers.
 *
 * FLOPs and bytes are per token of the full (unsplit) operator; attention's score products depend on the sequence. */

#include "compiler/model/model.h"

/* opr.def: kinds of operators, in its order */
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
    uint64_t cols; /* of the full value */
    uint64_t keys; /* of them those of kv key heads */
    uint32_t kv;
};

enum opr_split {
    SPLIT_NONE, /* whole on every rank */
    SPLIT_ROWS, /* column-parallel and vocabulary-parallel: by output rows */
    SPLIT_COLS  /* row-parallel: by input columns */
};
enum opr_init { WEIGHT_NORMAL, WEIGHT_RESIDUAL /* std / sqrt(2 layers) */, WEIGHT_ONES, WEIGHT_ZEROS };

/* a weight that belongs to another piece of the model, and is only used here */
enum opr_sharing { WEIGHT_OWN, WEIGHT_OF_EMBED, WEIGHT_OF_HEAD };

/* a weight tensor of an operator, possibly one of several stacked along the output dimension (q, k, v; gate, up) */
struct opr_weight {
    const char *suffix;   /* "self_attn.q_proj.weight": completed by weight_name() with the layer */
    uint64_t rows, cols;  /* as used: [out, in]; 1-D: rows = 1, or those of a family */
    bool vector;
    bool transposed;      /* the Hugging Face tensor is [in, out] (GPT-2's Conv1D) */
    uint64_t hf_row;      /* first row within the Hugging Face tensor's output dimension (fused c_attn) */
    uint64_t hf_rows;     /* rows of the Hugging Face tensor's output dimension */
    enum opr_split split; /* over tp */
    uint32_t kv;          /* outputs of so many key heads, which several ranks of tp may share; 0: each has its own */
    uint32_t family;      /* experts: so many tensors of rows / family rows, '%' in the suffix for the number; else 0 */
    enum opr_split member_split; /* of each of them over etp */
    bool decay;           /* weight decay applies */
    bool shared;          /* whole on every tp rank, used with the own heads alone: its gradient is partial over tp */
    bool moved;           /* not trained: an instruction of its own changes it (a router's correction bias) */
    enum opr_init init;
    enum opr_sharing shared_with;
};

struct opr {
    enum opr_kind kind;
    const char *name; /* "attn.qkv" */
    uint32_t in[2], out; /* values; UINT32_MAX = none */
    bool row_parallel;   /* LINEAR */
    bool keys;           /* HEADNORM: of the keys */
    bool shared;         /* of experts that every token uses */
    uint32_t ahead;      /* EMBED, LOSS: of the token (target) so many places later; 0 outside of prediction modules */
    double factor;       /* SCALE: factor; SOFTCAP: cap */
    uint32_t weight, nweights; /* matrices: in expansion's weights */
    uint32_t bias, nbiases;    /* vectors added to the output; ATTENTION: its sinks */
    const struct attn *attn;   /* ROPE, ATTENTION */
    const struct ffn *ffn;     /* ACT */
    const struct moe *moe;     /* ROUTER, EXPERTS */
    struct span span;          /* where the file says it */
};

struct expansion {
    uint32_t nvalues, noprs, nweights;
    struct opr_value *values; /* value 0 is the input (residual stream), `result` the output */
    struct opr *oprs;
    struct opr_weight *weights;
    uint32_t result;
    uint32_t again; /* operators from here on are never run again for the backward pass: a head */
};

/* One layer; the embedding (tokens, positions); the final norm, head and loss.  Equal layers give equal expansions.
 * Where prediction modules follow, the head's result is its input, which they read.  ahead: number of the module, from 1;
 * its weights are called as those of layer nlayers + ahead - 1. */
const struct expansion *expand_layer(struct arena *a, const struct model *m, const struct layer *l);
const struct expansion *expand_embed(struct arena *a, const struct model *m);
const struct expansion *expand_head(struct arena *a, const struct model *m);
const struct expansion *expand_predict(struct arena *a, const struct model *m, uint32_t ahead);

/* the words of `recompute selective` that name an operator: bits of recompute_part */
uint32_t opr_word(const struct opr *o);

/* text form: operators, values ("/" = split over tp), weights */
void expand_print(const struct expansion *e, FILE *out);

/* full Hugging Face name: "model.layers.3.self_attn.q_proj.weight", "transformer.h.3.attn.c_attn.weight" */
char *expand_weight_name(struct arena *a, const struct opr_weight *w, uint32_t layer);

/* vocabulary rows as stored: padded so that tp splits it evenly (and in steps of 64 where the vocabulary is large) */
uint64_t expand_padded_vocab(uint64_t vocab, uint32_t tp);

/* A rank's columns of a COLS value, the vocabulary's padding aside; into how many parts tp cuts a weight that it splits. */
double expand_own_cols(const struct opr_value *v, uint32_t tp);
uint32_t expand_parts(const struct opr_weight *w, uint32_t tp);

/* May the operator's weight gradient be put off to a W?  Not where products in are much narrower than out (latent attention's
 * projections up): they would keep most of the bytes for the least of the work. */
bool expand_puts_off(const struct expansion *e, const struct opr *o);

#endif
