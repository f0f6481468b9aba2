#ifndef LLMC_IMPORT_DESCRIBE_H
#define LLMC_IMPORT_DESCRIBE_H

/* A model on its way from a foreign configuration to text of the model language, in the language's own terms: members
 * have the names of its arguments, and 0, false and NULL are its defaults except where a comment says otherwise. */

#include "compiler/support/arena.h"

#include <stdbool.h>
#include <stdint.h>

struct described_rope {
    double theta; /* 0: no rotary positions */
    uint32_t dims;
    bool adjacent;
    const char *scaling; /* "yarn(factor=4, ...)" */
};
struct described_attention {
    uint32_t heads, kv, head;
    struct described_rope rope;
    bool bias, qkv_bias, sinks, alibi;
    const char *qk_norm; /* "head" */
    uint32_t window;
    double softcap, scale;
    bool mla; /* then heads, rope.theta and rope.scaling count, and: */
    uint32_t q_rank, kv_rank, nope, rope_dims, v;
};
struct described_ffn {
    const char *kind; /* "swiglu" */
    uint32_t width;
    bool bias, exact; /* exact: the error function instead of the tanh form */
    double limit, alpha, offset;
};
struct described_layer {
    struct described_attention attention;
    struct described_ffn ffn; /* of each expert, where there are any */
    uint32_t experts, active, shared;
    bool sigmoid, plain, router_bias, linear_bias; /* plain: weights are not divided by their sum */
    uint32_t groups, pick;
    double router_scale, router_rate, capacity, balance;
};
struct described {
    const char *name;
    uint32_t vocab, width, positions, nlayers, parallel; /* parallel: norms in front of both sublayers; 0: one by one */
    bool layernorm, norm_bias, embed_norm, embed_scale, tied, head_bias;
    double eps, embed_factor, head_scale, head_softcap;
    const char *place; /* of norms: "post" */
    uint32_t predict;
    double predict_weight;
    struct described_layer *layers;
    uint32_t sequence;        /* the longest; 0: unknown */
    const char *train, *plan; /* statements of these blocks, a line each; NULL: a train block to start from, no plan */
};

/* a number as people write it: 1024, 128_256, 0.5, 1e-6 */
const char *describe_number(struct arena *a, double value);
/* Its text; notes: lines for its first comment. */
char *describe(struct arena *a, const struct described *m, const char *const *notes, size_t nnotes);

#endif
