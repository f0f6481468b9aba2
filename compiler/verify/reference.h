#ifndef LLMC_REFERENCE_H
#define LLMC_REFERENCE_H

/* The training step of the model on one device, as nodes: what every plan must compute.
 *
 * Built from the job alone, with one exception: where tensor parallelism has more ranks than a layer has key/value
 * heads, keys and values are expressed with every such head repeated, once for each rank that attends to it.
 * Attention to repeated heads by as many groups of queries is the same attention, the weight's rows are used once
 * for each, and its gradient is the sum over the repetitions.  Shares nothing with the expansion or the lowering,
 * including the names of weights. */

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

/* A weight as one operator uses it, [out, in] or a vector [1, n]; one of several in its tensor if that is fused. */
struct weight_unit {
    const char *name; /* of the Hugging Face tensor */
    int64_t at;       /* first output in the tensor's output dimension */
    int64_t outputs;  /* of the whole tensor */
    int64_t rows, cols;
    bool vector, transposed, decay;
    int64_t family; /* not 0: so many matrices, where '%' in the name stands for the number; 0: one */
    bool moved;     /* not trained but moved by the experts' load: `gradient` is that load, `rate` the step */
    double rate;
    bool half;   /* its products are computed in 16 bits where others are in 8 */
    bool padded; /* a vocabulary: rows beyond it may be stored, and stay zero */
    enum init_kind init;
    double std;
    uint32_t param, moment[2], gradient, squares; /* nodes; gradient: of the whole batch */
    /* of key/value heads: how often products repeat each head, and outputs per head; otherwise repeats is 1 */
    int64_t repeats, head;
    uint32_t used, made; /* the weight as products read it; its gradient before repetitions are summed */
};
struct reference {
    const struct job *job;
    struct nodes *nodes;
    uint32_t nunits;
    struct weight_unit *units; /* units of one tensor are consecutive, ordered by `at` */
    uint32_t *table, table_room;
    int64_t ntokens;    /* of the batch */
    int64_t repeats;    /* repeats of key/value heads, the maximum over layers */
    uint32_t *later[2]; /* tokens, targets so many positions later, for prediction modules */
    uint32_t tokens, targets, block, loss, squares, clip;
    uint32_t scale;        /* the loss scale that multiplies gradients, NODE_ZERO without one; `squares` includes it */
    uint32_t next_scale;   /* the loss scale after the step */
    uint32_t norm;         /* squared norm of the gradients without the scale */
    uint32_t next_balance; /* balance loss of an evaluation, which has no prediction modules */
    uint32_t balance;      /* balance loss: a sum over layers, NODE_ZERO without any */
};
/* Makes the reference for the decision's tensor-parallel ranks and, where activations are kept in 8 bits, for what
 * it recomputes; NULL, with what it cannot express in *cannot. */
struct reference *reference_new(struct arena *a, const struct job *job, const struct decision *d, const char **cannot);
void reference_index(struct arena *a, struct reference *r); /* done by reference_new() */
/* first unit of the tensor of that name, or NONE */
uint32_t reference_unit(const struct reference *r, const char *name);

uint64_t reference_real(double v); /* a real attribute's bits */

#endif
