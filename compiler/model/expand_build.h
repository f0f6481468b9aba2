#ifndef LLMC_EXPAND_BUILD_H
#define LLMC_EXPAND_BUILD_H

/* Private to the files that expand layers: an expansion under construction.  Weights belong to the operator added
 * last; matrices come before vectors. */

#include "compiler/model/expand.h"
#include "compiler/support/vec.h"

#define NO_VALUE UINT32_MAX

struct expand_builder {
    struct arena *arena;
    const struct model *model;
    bool gpt2;
    const char *ffn; /* prefix of a feed-forward layer's weight names: "mlp" */
    VEC(struct opr_value) values;
    VEC(struct opr) oprs;
    VEC(struct opr_weight) weights;
};

/* Each returns the new item; pointers are valid only until the next call. */
uint32_t expand_value(struct expand_builder *b, const char *name, enum opr_class class, uint64_t cols);
struct opr *expand_opr(struct expand_builder *b, enum opr_kind kind, const char *name, uint32_t in, uint32_t out);
/* a matrix [rows, cols] */
struct opr_weight *expand_matrix(struct expand_builder *b, const char *llama, const char *gpt2, uint64_t rows,
                                 uint64_t cols, enum opr_split split);
/* a vector [n] */
struct opr_weight *expand_vector(struct expand_builder *b, const char *llama, const char *gpt2, uint64_t n,
                                 enum opr_split split, enum opr_init init);

uint32_t expand_norm(struct expand_builder *b, const char *name, const char *out, uint32_t in, const char *llama,
                     const char *gpt2);
struct expansion *expand_finish(struct expand_builder *b, uint32_t result);
/* Appends a whole layer that reads x and returns its output; appends final norm, head and loss, for the target that
 * lies `ahead` positions after the usual one. */
uint32_t expand_sublayers(struct expand_builder *b, const struct layer *l, uint32_t x);
void expand_logits_loss(struct expand_builder *b, uint32_t x, const char *llama_norm, const char *gpt2_norm,
                        uint32_t ahead);

/* Append a sublayer from its (normalised) input; return the branch's output before its bias is added. */
uint32_t expand_ffn(struct expand_builder *b, const struct ffn *f, uint32_t in);
uint32_t expand_gqa(struct expand_builder *b, const struct attn *t, uint32_t in);
uint32_t expand_mla(struct expand_builder *b, const struct attn *t, uint32_t in);
uint32_t expand_moe(struct expand_builder *b, const struct moe *m, uint32_t in);

#endif
