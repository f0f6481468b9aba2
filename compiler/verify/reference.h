#ifndef LLMC_REFERENCE_H
#define LLMC_REFERENCE_H

/* The training step of the model on one device, as nodes: what every plan must compute.
 *
 * Built from the job alone, but for one liberty: where tensor parallelism has more ranks than a layer has key heads, keys
 * and values are written down with every key head repeated, once for each rank that attends to it.  Attention to repeated
 * heads by as many groups of queries is the same attention, the weight's rows are used once for each, and its gradient is
 * the sum over the repetitions.  It shares nothing with the expansion or the lowering, down to the names of weights. */

#include "compiler/model/decision.h"
#include "compiler/model/model.h"
#include "compiler/verify/value.h"

enum reference_source {
    SOURCE_TOKENS,
    SOURCE_TARGETS,
    SOURCE_BLOCK,
    SOURCE_PARAM,
    SOURCE_MOMENT1,
    SOURCE_MOMENT2,
    SOURCE_SCALE
};

/* A weight as one operator uses it, [out, in] or a vector [1, n]; one of several in its tensor where that is
 * fused. */
struct weight_unit {
    const char *name; /* of the Hugging Face tensor */
    int64_t at;       /* first output in the tensor's output dimension */
    int64_t outputs;  /* of the whole tensor */
    int64_t rows, cols;
    bool vector, transposed, decay;
    int64_t family; /* so many matrices, '%' in the name for the number; 0 = one */
    bool moved;     /* not trained but moved by the load of experts: `gradient` is that load, `rate` how far */
    double rate;
    bool half;   /* its products keep 16 bits where others take 8 */
    bool padded; /* a vocabulary: rows beyond it may be stored, zero for ever */
    enum init_kind init;
    double std;
    uint32_t param, moment[2], gradient, squares; /* nodes; gradient: of the whole batch */
    int64_t repeats, head; /* of key heads: how often products have each; its outputs.  Else 1 */
    uint32_t used, made;   /* the weight as products have it; the gradient by that, before repetitions are added up */
};
struct reference {
    const struct job *job;
    struct nodes *nodes;
    uint32_t nunits;
    struct weight_unit *units; /* those of a tensor stand together, by `at` */
    uint32_t *table, table_room;
    int64_t ntokens; /* of the batch */
    int64_t repeats; /* of key heads, the most of all layers */
    uint32_t *later[2]; /* tokens, targets of places by so many later, for prediction modules */
    uint32_t tokens, targets, block, loss, squares, clip;
    uint32_t scale;        /* the loss scale that gradients are multiplied by, NODE_ZERO without; `squares` is of what that makes */
    uint32_t next_scale;   /* as the step leaves it */
    uint32_t norm;         /* squared norm without the scale */
    uint32_t next_balance; /* of an evaluation, which has no prediction modules */
    uint32_t balance;      /* balance loss: a sum over layers, NODE_ZERO without any */
};
/* For the decision's tensor-parallel ranks, and where activations stay in 8 bits for what it runs again; NULL and what it can't
 * express */
struct reference *reference_new(struct arena *a, const struct job *job, const struct decision *d, const char **cannot);
void reference_index(struct arena *a, struct reference *r); /* done by reference_new() */
/* first unit of a tensor's name, NONE */
uint32_t reference_unit(const struct reference *r, const char *name);

uint64_t reference_real(double v); /* attribute bits */

#endif
